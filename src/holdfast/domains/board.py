"""`ws.board()` and `ws.timeline()`: tasks as cards in columns, and what each agent held over time.

Both are for people who look at a fleet: a page of a column costs the same however many tasks there are, and a timeline
reads the log once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final, Literal, get_args

import msgspec

from holdfast import errors
from holdfast.domains.fleet import behind, first_since, last_stop, time_span
from holdfast.domains.tasks.creation import check_priority, check_tag, check_type
from holdfast.domains.tasks.queries import MAX_TOTAL, Walk, match_of
from holdfast.domains.tasks.readiness import place_of, read
from holdfast.domains.tasks.tags import READY, STARTABLE
from holdfast.kernel.tx import Row, Snapshot
from holdfast.kernel.validate import check_flag, check_limit, check_name
from holdfast.types import Page, as_time
from holdfast.types.fleet import Card, Lane, Stretch, Timeline
from holdfast.types.tasks import TaskType

Column = Literal["ready", "waiting", "in_progress", "review", "blocked", "closed"]
_FREE: Final = "t.holder IS NULL AND t.status ="
_RESERVED: Final = ("tasks_ready_reserved", f"{STARTABLE} AND t.assignee IS NOT NULL")
# By column: the index that has its order, and its condition. All but the closed ones go by priority. What is ready for
# one agent alone is merged with what is ready for all.
_COLUMNS: Final[dict[str, tuple[str, str]]] = {
    "ready": ("tasks_ready", READY),
    "waiting": ("tasks_status", f"{_FREE} 'open' AND NOT (t.waits = 0 AND t.busy = 0)"),
    "in_progress": ("tasks_held", "t.holder IS NOT NULL"),
    "review": ("tasks_status", f"{_FREE} 'pending_merge'"),
    "blocked": ("tasks_status", f"{_FREE} 'blocked'"),
    "closed": ("tasks_closed", "t.status = 'closed'"),
}
_STOPPED: Final = ("review", "blocked")
_FIELDS: Final = (
    "t.seq, t.id, t.title, t.type, t.priority, t.tags, t.holder, t.claimed, l.deadline, t.parked, t.created, t.updated,"
    " t.waits, t.assignee, (SELECT stamp FROM meta)"
)
_CHILDREN: Final = (
    "SELECT count(*), coalesce(sum(status = 'closed'), 0) FROM tasks WHERE parent = ? AND deleted IS NULL"
)


def board(
    snapshot: Snapshot,
    column: Column,
    text: str | None = None,
    tag: str | None = None,
    type: TaskType | None = None,
    priority: int | None = None,
    holder: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
    total: bool = False,
) -> Page[Card]:
    """List a column of the board: by priority, then oldest first; the closed ones latest first.

    `cursor` is that of the previous page; `total=True` counts, up to 10,000.
    """
    if column not in _COLUMNS:
        raise errors.InvalidFilter(f"{column!r} is not a column", hint=f"columns: {', '.join(get_args(Column))}")
    check_limit(limit, 1000, "cursor")
    check_flag(total=total)
    walks = []
    for index, condition in (_COLUMNS[column], *((_RESERVED,) if column == "ready" else ())):
        walks.append(Walk(source=f"tasks t INDEXED BY {index}"))
        walks[-1].add(f"{condition} AND t.deleted IS NULL")
        _narrow(walks[-1], text, tag, type, priority, holder)
    page: Page[Card] = Page()
    if total:
        count = sum(_count(snapshot, walk) for walk in walks)
        page.total, page.more = min(count, MAX_TOTAL), count > MAX_TOTAL
    key, backwards = ("t.updated", True) if column == "closed" else ("t.priority", False)
    place = place_of(
        cursor, rf"{column}\.([0-9]{{1,18}})\.([0-9]{{1,18}})", f"the column {column}", "pass it unchanged"
    )
    rows: list[Row] = []
    for walk in walks:
        walk.source += " LEFT JOIN leases l ON l.id = t.record"
        select = f"SELECT {_FIELDS} {walk.text}"
        rows += read(snapshot, select, walk.params, key, "t.seq", limit + 1, place, backwards)
    if len(walks) > 1:
        rows.sort(key=lambda row: (row[4], row[0]))
    page += [_card(snapshot, row, column) for row in rows[:limit]]
    if len(rows) > limit:
        last = rows[limit - 1]
        page.cursor = f"{column}.{last[11 if column == 'closed' else 4]}.{last[0]}"
    return page


def _count(snapshot: Snapshot, walk: Walk) -> int:
    row = snapshot.one(f"SELECT count(*) FROM (SELECT 1 {walk.text} LIMIT {MAX_TOTAL + 1})", walk.params)
    return 0 if row is None else int(row[0])


def _narrow(
    walk: Walk, text: str | None, tag: str | None, type: TaskType | None, priority: int | None, holder: str | None
) -> None:
    """Add the filters that are given."""
    if text is not None:
        walk.add("t.seq IN (SELECT rowid FROM tasks_fts WHERE tasks_fts MATCH ?)", match_of(text))
    if tag is not None:
        walk.add("EXISTS (SELECT 1 FROM task_tags g WHERE g.tag = ? AND g.seq = t.seq)", check_tag(tag))
    if type is not None:
        walk.equal("t.type", check_type(type))
    if priority is not None:
        walk.equal("t.priority", check_priority(priority))
    if holder is not None:
        check_name(holder, "holder")
        walk.equal("t.holder", holder)


def _card(snapshot: Snapshot, row: Row, column: str) -> Card:
    seq, id, title, type, priority, tags, holder, claimed, deadline, parked, created, updated, waits, assignee, _ = row
    children = snapshot.one(_CHILDREN, (seq,)) or (0, 0)
    reason, by, since = last_stop(snapshot, id) if column in _STOPPED else (None, None, None)
    return Card(
        id=id,
        title=title,
        type=type,
        priority=priority,
        tags=tuple(msgspec.json.decode(tags)),
        holder=holder,
        since=_time(claimed if holder is not None else since),
        until=_time(deadline),
        parked=bool(parked),
        created_at=as_time(created),
        updated_at=as_time(updated),
        waits_for=waits,
        children=children[0],
        children_closed=children[1],
        reason=reason,
        by=by,
        holds_up=behind(snapshot, id) if column in _STOPPED else 0,
        assigned_to=assignee,
    )


def _time(moment: int | None) -> datetime | None:
    return None if moment is None else as_time(moment)


# --- timeline --------------------------------------------------------------------------------------------------------

_HOUR: Final = 3_600_000_000
_MOST: Final = 200_000  # events
_KINDS: Final = ("task", "path", "lock", "message")
_EVENTS: Final = (
    "SELECT e.time, e.actor, r.kind, r.id, e.op, e.data FROM log e CROSS JOIN records r ON r.key = e.record"
    " WHERE e.seq >= ? AND e.time >= ? AND e.time < ? AND e.data IS NOT NULL AND r.kind IN"
    f" ({', '.join(map(repr, _KINDS))}) AND (r.kind <> 'message' OR e.op = 'send') ORDER BY e.seq LIMIT {_MOST + 1}"
)
_ENDS: Final[dict[str, Any]] = {"closed": "closed", "pending_merge": "review", "blocked": "blocked"}


def timeline(snapshot: Snapshot, since: datetime | None = None, until: datetime | None = None) -> Timeline:
    """Return what each agent held from `since` (an hour ago) until `until` (now), and when it sent mail.

    Raises Compacted if the log does not reach back to `since`, and TooLarge for more than 200,000 events.
    """
    revision, start, end = time_span(snapshot, since, until, _HOUR)
    rows = snapshot.all(_EVENTS, (first_since(snapshot, start, whole=True), start, end))
    if len(rows) > _MOST:
        raise errors.TooLarge(f"there are more than {_MOST:,} events in that time", hint="ask for a shorter time")
    lanes = _Lanes(start)
    for event in rows:
        lanes.add(*event)
    lanes.close(snapshot, end)
    return Timeline(revision, as_time(start), as_time(end), dict(sorted(lanes.found.items())))


class _Lanes:
    """The lanes while the log is read. `open` has the start of what is held, by kind, id and holder."""

    def __init__(self, start: int) -> None:
        self.found: dict[str, Lane] = {}
        self._start = start
        self._open: dict[tuple[str, str, str], int] = {}

    def _lane(self, name: str) -> Lane:
        if name not in self.found:
            self.found[name] = Lane([], [], [])
        return self.found[name]

    def add(self, time: int, actor: str, kind: str, id: str, op: str, data: bytes) -> None:
        said: dict[str, Any] = msgspec.msgpack.decode(data)
        if kind == "message":
            self._lane(said["sender"]).mail.append(as_time(time))
            return
        change: Sequence[Any] | None = said.get("claimed_by" if kind == "task" else "holder")
        if change is None:
            return
        before, after = change
        if before is not None and before != after:
            self._end(kind, id, before, time, _how(op, said))
        if after is not None:
            self._open.setdefault((kind, id, after), time)

    def _end(self, kind: str, id: str, holder: str, time: int, how: Any) -> None:
        begun = self._open.pop((kind, id, holder), None)
        start = as_time(self._start if begun is None else begun)
        self._stretches(kind, holder).append(Stretch(id, start, as_time(time), how, begun is None))

    def _stretches(self, kind: str, holder: str) -> list[Stretch]:
        lane = self._lane(holder)
        return lane.claims if kind == "task" else lane.locks

    def close(self, snapshot: Snapshot, end: int) -> None:
        """Add what is held at the end: what the log of that time began, and what was held all the time."""
        for (kind, id, holder), begun in self._open.items():
            self._stretches(kind, holder).append(Stretch(id, as_time(begun), None, None))
        for kind, id, holder, begun in _held_before(snapshot, min(self._start, end)):
            self._stretches(kind, holder).append(Stretch(id, as_time(begun), None, None, True))


def _held_before(snapshot: Snapshot, start: int) -> Iterator[tuple[str, str, str, int]]:
    yield from snapshot.all(
        "SELECT 'task', id, holder, claimed FROM tasks INDEXED BY tasks_held WHERE holder IS NOT NULL AND claimed < ?",
        (start,),
    )
    yield from snapshot.all(
        "SELECT kind, name, holder, acquired FROM locks WHERE kind IN ('path', 'lock') AND acquired < ?", (start,)
    )


def _how(op: str, said: dict[str, Any]) -> Any:
    """How a claim or a lock ended."""
    status = said.get("status", (None, None))[1]
    return "expired" if op == "expire" else _ENDS.get(status, "released")
