"""Tools for cells, locks, mail and watching, and the resources that can be read without a tool.

A lock without a ttl expires after ten minutes: an agent that stops without releasing it must not hold it for ever.

`holdfast://prime` is what an agent needs to know at its start: its claims, its unread mail, what is ready.
"""

from __future__ import annotations

from posixpath import normpath
from typing import Annotated, Any, Final, Literal

from holdfast import errors
from holdfast.faces.mcp.client import Session, as_step
from holdfast.faces.mcp.tasks import LISTED, WHOLE, Cursor, check_limit, lost, message, page, path_lock, row, task_show
from holdfast.faces.mcp.tool import LONGEST, brief, check_wait, filled, missing, parts_of, picked, when
from holdfast.hints import for_tools
from holdfast.types import EVENT_KINDS, Cell, Event, Grant
from holdfast.wire import from_wire, wired

CELLS_LISTED: Final = 100


async def cell_get(
    session: Session,
    run: str,
    cell: Annotated[str | None, "default: list the cells of the run"] = None,
    whole: Annotated[bool, "do not cut a long value"] = False,
    cursor: Annotated[str | None, "of a list"] = None,
) -> Any:
    """Read a shared value and its version, which is 0 if there is none."""
    if cell is None:
        names = await session.ws.cells.list(run, limit=CELLS_LISTED, after=cursor or "")
        return page("cells", names, names)
    found = await session.ws.cells.find(run, cell)
    return {"value": None, "version": 0} if found is None else _value(found, whole)


def _value(found: Cell, whole: bool) -> dict[str, Any]:
    value = wired(found.value)
    return {
        "value": value if whole else brief(value, LONGEST),
        "version": found.version,
        "updated": when(found.updated_at),
    }


async def cell_set(
    session: Session,
    run: str,
    cell: str,
    value: Annotated[Any, "any JSON; an object whose only key begins with $ is sent with one more $"],
    expected: Annotated[int | None, "write only if it has this version; 0: only if there is none"] = None,
    ttl: Annotated[float | None, "seconds it lives; not with expected"] = None,
    lock: Annotated[str | None, "write only if you still hold this lock"] = None,
) -> Any:
    """Write a shared value. With expected it is compare-and-swap: VERSION_MISMATCH has the current value."""
    cells, content = (await session.fenced(lock)).cells, from_wire(value)
    if expected is None:
        version = await cells.set(run, cell, content, ttl=ttl)
    elif ttl is not None:
        raise errors.Invalid("ttl cannot be combined with expected: compare-and-swap keeps the ttl of a cell")
    else:
        version = await cells.cas(run, cell, expected or None, content)
    return {"version": version}


TTL: Final = 600.0

Ttl = Annotated[float | None, "seconds; 600"]
Wait = Annotated[float | None, "seconds to wait in the queue, at most 60"]


async def lock(
    session: Session,
    name: str,
    action: Literal["acquire", "release", "renew", "check"] = "acquire",
    ttl: Ttl = None,
    wait: Wait = None,
) -> Any:
    """A lock on a name, one holder at a time. HELD names the holder; renew before it expires."""
    locks = session.ws.locks
    match action:
        case "acquire":
            grant = await locks.acquire(name, ttl=TTL if ttl is None else ttl, wait=check_wait(wait))
        case "renew":
            grant = await locks.refresh(name, ttl=ttl)
        case "release":
            return {"released": await locks.release(name)}
        case "check":
            found = await locks.find(name)
            return {"held": None if found is None else _granted(found)}
    return _granted(grant)


def _granted(grant: Grant) -> dict[str, Any]:
    return picked(grant, "name", "holder", "token") | filled(until=when(grant.expires_at))


async def paths(
    session: Session,
    action: Literal["lock", "release", "check"],
    paths: Annotated[list[str] | None, "repo-relative, globs with **; only release does without: all of mine"] = None,
    task: Annotated[str | None, "a task you hold: the lock ends with the claim"] = None,
    shared: Annotated[bool, "others may share it"] = False,
    reason: str | None = None,
    ttl: Ttl = None,
    wait: Wait = None,
) -> Any:
    """Lock files before you edit them. check: HELD if another has one of them."""
    match action:
        case "lock":
            taken = await session.ws.paths.lock(
                _needed(paths),
                ttl=ttl or (None if task else TTL),
                shared=shared,
                task=task or None,
                reason=reason or None,
                wait=check_wait(wait),
            )
            return path_lock(taken)
        case "release":
            return await _release(session, paths, task)
    mine = [await session.ws.paths.check(path) for path in _needed(paths)]
    return {"allowed": True, **filled(mine=tuple({found.id: path_lock(found) for found in mine if found}.values()))}


def _needed(paths: list[str] | None) -> list[str]:
    if not paths:
        raise errors.Invalid("paths is missing", hint='such as paths=["src/app/**"]')
    return paths


async def _release(session: Session, paths: list[str] | None, task: str | None) -> dict[str, Any]:
    """Release my locks: those whose patterns are all among the paths, those for a task, or all; or show what I hold."""
    wanted = None if paths is None else set(map(normpath, paths))
    found = await session.ws.paths.list(holder=session.actor, task=task or None)
    chosen = [each for each in found if wanted is None or wanted.issuperset(each.patterns)]
    if not chosen:
        return {"released": 0, **filled(mine=tuple(map(path_lock, found)) or None)}
    release, tokens = session.ws.paths.release, session.tokens
    done = await session.ws.txn(
        [], [as_step(release, id=each.id, token=tokens.token("path", each.id)) for each in chosen]
    )
    for each in chosen:
        session.tokens.forget("path", each.id)
    return {"released": sum(done.results)}


_SUBJECT: Final = 80  # characters of one that is taken from the body


async def mail_send(
    session: Session,
    body: str,
    to: Annotated[list[str] | None, 'agents; ["*"] is all; not needed with reply_to'] = None,
    subject: Annotated[str | None, "default: the first line of body"] = None,
    reply_to: Annotated[str | None, "message id"] = None,
    task: Annotated[str | None, "id of the task it is about; a reply has that of its thread"] = None,
    type: Literal["notify", "request", "decision-required", "objection", "handoff-ready"] | None = None,
    ack: Annotated[bool, "ask for an acknowledgement"] = False,
) -> Any:
    """Send a message to other agents."""
    kind = type or "notify"
    if reply_to is not None:
        if task and task != (await session.ws.mail.get(reply_to)).task:
            raise errors.Invalid("a reply has the task of its thread, which is another", hint="leave out task")
        sent = await session.ws.mail.reply(reply_to, body, kind, ack=ack, to=to, subject=subject or None)
    elif to is None:
        raise errors.Invalid("a message needs to", hint="or reply_to, the id of the message it replies to")
    else:
        first = next(iter(body.strip().splitlines()), "")
        if not subject and not first:
            raise errors.Invalid("body is empty, and there is no subject", hint="say in body what they must know")
        sent = await session.ws.mail.send(to, subject or first[:_SUBJECT], body, task=task or None, type=kind, ack=ack)
    told = {"id": sent.id, "thread": sent.thread, "to": list(sent.status)}
    return told | filled(warnings=sent.warnings or None)


async def mail_inbox(
    session: Session,
    ack: Annotated[list[str] | None, "message ids to acknowledge first"] = None,
    all: Annotated[bool, "also what was acknowledged"] = False,
    thread: Annotated[str | None, "instead: the whole thread of this message id"] = None,
    limit: Annotated[int, "20, at most 100"] = LISTED,
    cursor: Cursor = None,
) -> Any:
    """My unread messages, newest first. Reading is not acknowledging."""
    mail = session.ws.mail
    check_limit(limit)
    if ack:
        await session.ws.txn([], [as_step(mail.ack, id=id) for id in ack])
    if thread is not None:
        found = await mail.thread(thread, limit, cursor or None)
        return page("messages", found, [message(each, WHOLE) for each in found])
    found = await mail.inbox(unread=not all, limit=limit, cursor=cursor or None)
    return page("messages", found, [message(each) for each in found]) | await lost(session)


TIMEOUT: Final = 30.0
MOST: Final = 60.0
EVENTS: Final = 50  # in one result
_LONG: Final = 200  # characters of what changed
_OMITTED: Final = frozenset({"body", "token", "thread"})  # of an event; the record has them


async def watch(
    session: Session,
    since_revision: Annotated[int | str | None, "from the last watch; default: now"] = None,
    kinds: Annotated[list[str] | None, "such as task, cell, lock, path, message; default: all"] = None,
    id: Annotated[str | None, "of one record"] = None,
    run: Annotated[str | None, "the run of the cell `id`; only with id"] = None,
    timeout: Annotated[float, "seconds, at most 60; 0 only looks"] = TIMEOUT,
) -> Any:
    """Wait until something happens: the events after since_revision, at once if there are some, none at the timeout."""
    if not 0 <= timeout <= MOST:
        raise errors.Invalid(f"timeout must be 0 to {MOST:.0f} seconds, not {timeout:g}", hint="watch again")
    if run is not None and id is None:
        raise errors.Invalid("run needs the id of a cell", hint="give id too")
    kinds = kinds and [_kind(kind) for kind in kinds]
    wanted = filled(kinds=kinds, id=id if run is None else (run, id))
    now = await session.revision()
    after = now if since_revision is None else since_revision
    found = await _list(session, after, wanted)
    if not found and timeout and await session.next_event(after=after, timeout=timeout, **wanted) is not None:
        found = await _list(session, after, wanted)
    # If no wanted event came after `after`, what was there before the wait need not be looked at again.
    return {"events": [_shown(event) for event in found], "since_revision": found[-1].cursor if found else str(now)}


def _kind(named: str) -> str:
    """The kind of event that is meant: also by the name of a tool, or in the plural."""
    kind = named.lower().removesuffix("s")
    return {"mail": "message", "claim": "task"}.get(kind, kind if kind in EVENT_KINDS else named)


async def _list(session: Session, after: int | str, wanted: dict[str, Any]) -> list[Event]:
    return await session.ws.events.list(after=after, limit=EVENTS, **wanted)


def _shown(event: Event) -> dict[str, Any]:
    """An event with what changed, as far as that is short."""
    changed = {
        name: brief(wired(value), _LONG)
        for name, value in event.data.items()
        if name not in _OMITTED and value not in (None, [None, None])
    }
    shown = picked(event, "revision", "kind", "op") | filled(run=event.scope, id=event.id, by=event.actor)
    return shown | filled(at=when(event.time), changed=changed or None)


PRIMED: Final = 5  # ready tasks at the beginning
FIXED: Final = {
    "prime": "What I hold, my unread mail, what is ready.",
    "ready": "Tasks that can be claimed, best first.",
}
TEMPLATES: Final = {
    "task/{id}": "A task with body, notes, messages and events.",
    "cell/{run}/{cell}": "A shared value.",
}


async def read(session: Session, uri: str) -> Any:
    """The content of a resource; NotFound if there is none of this name."""
    match parts_of(uri):
        case ["prime"]:
            return await _prime(session)
        case ["ready"]:
            found = await session.ws.tasks.ready(limit=LISTED)
            return page("tasks", found, [row(task) for task in found])
        case ["task", id]:
            return await task_show(session, id, whole=True)
        case ["cell", run, cell]:
            return _value(await session.ws.cells.get(run, cell), whole=True)
    raise missing(uri, (*FIXED, *TEMPLATES))


async def _prime(session: Session) -> Any:
    ready = await session.ws.tasks.ready(limit=PRIMED)
    content = {"actor": session.actor, "ready": [row(task) for task in ready]}
    try:
        unread = await session.ws.mail.unread()
    except errors.InvalidHolder as error:  # a derived actor, which can hold nothing
        return content | {"hint": for_tools(error.hint)}
    claims = await session.ws.tasks.list(claimed_by=session.actor, limit=LISTED)
    return content | {"claims": [row(task) for task in claims], "unread": unread} | await lost(session)
