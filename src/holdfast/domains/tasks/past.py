"""A task as it was: walked backwards from the present, event by event, to a revision.

Every event has the old values of what it changed, so a revision that is not below the mark of compaction gives exactly
what a reader saw then. Deadlines and tokens are not part of it: renewals leave no event, and tokens are for holders.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains.tasks import rows
from holdfast.kernel import events
from holdfast.kernel.tx import Snapshot, newest_version
from holdfast.kernel.validate import check_name
from holdfast.types import Event
from holdfast.types.tasks import Ref, Task

_PAGE: Final = 1000
_FIELDS: Final = ("title", "body", "type", "status", "priority", "parent_id", "tags", "claimed_by", "assigned_to")
_WALKED: Final = frozenset((*_FIELDS, "grimoire_hint", "grimoire", "deleted", "refs", "deferred_until"))


def as_of(snapshot: Snapshot, id: str, revision: int) -> Task:
    """Return a task as it was at a revision, without its token, its deadline and the counts of its children.

    Raises TaskNotFound if it did not exist then, or was purged since; Invalid for a revision to come; Compacted.
    """
    events.check_revision(snapshot, revision)
    task = _present(snapshot, id)
    past, then = _walk_back(snapshot, task.id, revision)
    if then is None:
        message = f"there was no task {task.id} yet at revision {revision}"
        raise errors.TaskNotFound(message, hint="ask for a later revision", id=task.id, revision=revision)
    seen = rows.to_task(task)
    known: dict[str, Any] = {name: past[name] for name in (*_FIELDS, "grimoire_hint", "grimoire") if name in past}
    if "tags" in known:
        known["tags"] = tuple(known["tags"] or ())
    if "refs" in past:
        known["refs"] = tuple(Ref(*pair) for pair in past["refs"] or ())
    if "deferred_until" in past:
        at = past["deferred_until"]
        known["deferred_until"] = None if at is None else datetime.fromisoformat(at)
    if "body" in known:
        known["body"] = known["body"] or ""
    holder = known.get("claimed_by", seen.claimed_by)
    deleted = bool(past.get("deleted", seen.deleted_at is not None))
    if past or then.version != seen.version:
        known["updated_at"] = then.time
    return msgspec.structs.replace(
        seen,
        **known,
        depth=_depth(snapshot, known.get("parent_id", seen.parent_id), revision),
        claimed_at=None if holder is None else _when(snapshot, task.id, revision, "claimed_by", seen.claimed_at, past),
        deleted_at=_when(snapshot, task.id, revision, "deleted", seen.deleted_at, past) if deleted else None,
        version=then.version,
        revision=then.revision,
        token=None,
        deadline=None,
        children=0,
        children_done=0,
        waiting=False,
        origin=seen.origin if seen.origin is not None and seen.origin.imported_at <= then.time else None,
    )


def _present(snapshot: Snapshot, id: str) -> rows.Stored:
    try:
        return rows.find(snapshot, id, deleted=True)
    except errors.TaskNotFound:
        check_name(id, "id")
        if not newest_version(snapshot, rows.TASK, "", id):
            raise
        message = f"task {id} was purged: the log keeps only that it existed"
        hint = "a backup from before the purge still has it"
        raise errors.TaskNotFound(message, hint=hint, id=id, redacted=True) from None


def _walk_back(snapshot: Snapshot, id: str, revision: int) -> tuple[dict[str, Any], Event | None]:
    """The values that later events replaced, and the newest event at a revision, None if there was none."""
    past: dict[str, Any] = {}
    for event in _newest_first(snapshot, id):
        if event.revision <= revision:
            return past, event
        past |= {field: change[0] for field, change in event.data.items() if field in _WALKED}
    return past, None


def _newest_first(snapshot: Snapshot, id: str) -> Iterator[Event]:
    before, more = None, True
    while more:
        found, more = events.history_page(snapshot, rows.TASK, "", id, before, _PAGE)
        yield from map(events.to_event, found)
        before = found[-1][8] if found else before


def _when(
    snapshot: Snapshot, id: str, revision: int, field: str, present: datetime | None, past: dict[str, Any]
) -> datetime | None:
    """When a field last changed before or at a revision; None if compaction took that event."""
    if field not in past:
        return present
    changed = (e for e in _newest_first(snapshot, id) if e.revision <= revision and field in e.data)
    return next((event.time for event in changed), None)


def _depth(snapshot: Snapshot, parent: str | None, revision: int) -> int:
    """The depth below a parent, as the tree was at a revision."""
    depth = 0
    while parent is not None:
        depth += 1
        row = snapshot.one("SELECT p.id FROM tasks t LEFT JOIN tasks p ON p.seq = t.parent WHERE t.id = ?", (parent,))
        past, _ = _walk_back(snapshot, parent, revision)
        parent = past["parent_id"] if "parent_id" in past else None if row is None else row[0]
    return depth
