"""The watch tool: a long poll on the event log, by revision, without gap or repeat."""

from __future__ import annotations

from typing import Annotated, Any, Final

from holdfast import errors
from holdfast.faces.encoding import wired
from holdfast.faces.mcp.marking import brief, filled, when
from holdfast.faces.mcp.sessions import Session
from holdfast.types.base import Event

TIMEOUT: Final = 30.0
MOST: Final = 60.0
EVENTS: Final = 50  # in one answer
_LONG: Final = 200  # characters of what changed
_UNTOLD: Final = frozenset({"body", "token", "thread"})  # who wants them reads the record


async def watch(
    session: Session,
    since_revision: Annotated[int | str | None, "what the last watch answered; default: now"] = None,
    kinds: Annotated[list[str] | None, "task, cell, lock, path, message"] = None,
    id: Annotated[str | None, "of one record"] = None,
    run: Annotated[str | None, "of the cell `id`"] = None,
    timeout: Annotated[float, "seconds, at most 60; 0 only looks"] = TIMEOUT,
) -> Any:
    """Wait until something happens: the events after since_revision, at once if there are some, none at the timeout."""
    if not 0 <= timeout <= MOST:
        raise errors.Invalid(f"timeout is 0 to {MOST:.0f} seconds, not {timeout:g}", hint="watch again")
    if run is not None and id is None:
        raise errors.Invalid("run belongs to the id of a cell", hint="give id too")
    wanted = filled(kinds=kinds, id=id if run is None else (run, id))
    now = await session.revision()
    after = now if since_revision is None else since_revision
    found = await _list(session, after, wanted)
    if not found and timeout and await session.next_event(after=after, timeout=timeout, **wanted) is not None:
        found = await _list(session, after, wanted)
    # If nothing that was wanted came behind `after`, what was there before the wait need not be looked at again.
    return {"events": [_told(event) for event in found], "since_revision": found[-1].cursor if found else str(now)}


async def _list(session: Session, after: int | str, wanted: dict[str, Any]) -> list[Event]:
    found: list[Event] = await session.call("events.list", after=after, limit=EVENTS, **wanted)
    return found


def _told(event: Event) -> dict[str, Any]:
    """An event with what changed, as far as that is short and new."""
    changed = {
        name: brief(wired(value), _LONG)
        for name, value in event.data.items()
        if name not in _UNTOLD and value not in (None, [None, None])
    }
    return filled(
        revision=event.revision,
        kind=event.kind,
        op=event.op,
        run=event.scope,
        id=event.id,
        by=event.actor,
        at=when(event.time),
        changed=changed or None,
    )
