"""A task's history, which is its events: an entry for each field that changed, newest first."""

from __future__ import annotations

from datetime import datetime

from holdfast import errors
from holdfast.domains.tasks.rows import TASK, find, missing
from holdfast.kernel import events
from holdfast.kernel.names import check_limit, check_name
from holdfast.kernel.tx import Snapshot, newest_version
from holdfast.types.base import Event, as_microseconds
from holdfast.types.tasks import HistoryEntry

MAX_HISTORY = 10_000


def history(
    snapshot: Snapshot,
    id: str,
    field: str | None = None,
    since: datetime | None = None,
    limit: int = MAX_HISTORY,
    before: int | None = None,
) -> list[HistoryEntry]:
    """What changed, newest first, below version `before`; `field` and `since` narrow it. Also of a deleted task.

    Once only forgotten versions are left it is Compacted.
    """
    if field is not None:
        check_name(field, "field")
    if since is not None and not isinstance(since, datetime):
        raise errors.InvalidFilter(f"since is a datetime, not {type(since).__name__}")
    check_limit(limit, MAX_HISTORY)
    found: list[HistoryEntry] = []
    oldest = None if since is None else as_microseconds(since)
    if before is not None and (type(before) is not int or not 1 <= before <= events.END_OF_REVISION):
        raise errors.InvalidFilter(f"before must be a version (1 or more), not {before!r}")
    for row in events.history(snapshot, TASK, "", _exact(snapshot, id), before, None):
        if oldest is not None and row[2] < oldest:
            break
        found += [entry for entry in _entries(events.to_event(row)) if field is None or entry.field == field]
        if len(found) >= limit:
            break
    return found[:limit]


def _exact(snapshot: Snapshot, id: str) -> str:
    """The id meant; a purged task still has the bare fact that it was."""
    try:
        return find(snapshot, id, deleted=True).id
    except errors.TaskNotFound:
        if not newest_version(snapshot, TASK, "", id):
            raise missing(id) from None
        return id


def _entries(event: Event) -> list[HistoryEntry]:
    """An event as entries: one a field, one for a bare note, one for a step that left no field (a purge)."""
    data = dict(event.data)
    note = data.pop("note", None)
    if not data:
        data = {"note": (None, note)} if note is not None else {event.op: (None, None)}
    return [
        HistoryEntry(
            task_id=event.id,
            field=field,
            old_value=old,
            new_value=new,
            changed_at=event.time,
            changed_by=event.actor,
            note=note,
            op=event.op,
            version=event.version,
            revision=event.revision,
        )
        for field, (old, new) in data.items()
    ]
