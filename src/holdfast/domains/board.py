"""`ws.board()` and `ws.timeline()`: tasks as cards in columns, and what each agent held over time.

Both are for people who look at a fleet: a page of a column costs the same however many tasks there are, and a timeline
reads the log once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
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
    "SELECT e.time, r.kind, r.id, e.op, e.data FROM log e CROSS JOIN records r ON r.key = e.record"
    " WHERE e.seq >= ? AND e.time >= ? AND e.time < ? AND e.data IS NOT NULL AND r.kind IN"
    f" ({', '.join(map(repr, _KINDS))}) AND (r.kind <> 'message' OR e.op = 'send')"
    f" AND (r.kind <> 'task' OR instr(e.data, x'{b'claimed_by'.hex()}')) ORDER BY e.seq LIMIT {_MOST + 1}"
)
_ENDS: Final[dict[str, Any]] = {"closed": "closed", "pending_merge": "review", "blocked": "blocked"}
_LONGEST: Final = 366 * 86_400  # seconds
# Of several ends, the one that matters most: the first of these. What is held has not ended.
_WORST: Final = ("expired", "blocked", "review", "released", "closed", None)


class _Said(msgspec.Struct):
    """What a timeline reads of an event."""

    claimed_by: Any = None
    holder: Any = None
    status: Any = None
    sender: Any = None


_decode: Final = msgspec.msgpack.Decoder(_Said).decode


class _Held(msgspec.Struct):
    """A stretch while it is put together, in microseconds."""

    id: str
    start: int
    end: int | None
    how: Any
    before: bool = False
    count: int = 1


def timeline(
    snapshot: Snapshot, since: datetime | None = None, until: datetime | None = None, resolution: float = 0
) -> Timeline:
    """Return what each agent held from `since` (an hour ago) until `until` (now), and when it sent mail.

    With a `resolution` in seconds, stretches that are shorter and follow each other within that time are one, with
    their count, and so are messages: what a picture of so many pixels cannot show apart. Raises Compacted if the log
    does not reach back to `since`, and TooLarge for more than 200,000 events.
    """
    if isinstance(resolution, bool) or not isinstance(resolution, int | float) or not 0 <= resolution <= _LONGEST:
        raise errors.InvalidFilter(f"resolution must be from 0 to {_LONGEST} seconds (a year), not {resolution!r}")
    revision, start, end = time_span(snapshot, since, until, _HOUR)
    rows = snapshot.all(_EVENTS, (first_since(snapshot, start, whole=True), start, end))
    if len(rows) > _MOST:
        raise errors.TooLarge(f"there are more than {_MOST:,} events in that time", hint="ask for a shorter time")
    lanes = _Lanes(start)
    for event in rows:
        lanes.add(*event)
    lanes.close(snapshot, end)
    return Timeline(revision, as_time(start), as_time(end), lanes.drawn(round(resolution * 1e6)))


class _Lanes:
    """The lanes while the log is read. `open` has the start of what is held, by kind, id and holder."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._open: dict[tuple[str, str, str], int] = {}
        self._claims: dict[str, list[_Held]] = defaultdict(list)
        self._locks: dict[str, list[_Held]] = defaultdict(list)
        self._mail: dict[str, list[int]] = defaultdict(list)

    def add(self, time: int, kind: str, id: str, op: str, data: bytes) -> None:
        said = _decode(data)
        if kind == "message":
            self._mail[said.sender].append(time)
            return
        change = said.claimed_by if kind == "task" else said.holder
        if change is None:
            return
        before, after = change
        if before is not None and before != after:
            begun = self._open.pop((kind, id, before), None)
            held = _Held(id, self._start if begun is None else begun, time, _how(op, said.status), begun is None)
            self._of(kind)[before].append(held)
        if after is not None:
            self._open.setdefault((kind, id, after), time)

    def _of(self, kind: str) -> dict[str, list[_Held]]:
        return self._claims if kind == "task" else self._locks

    def close(self, snapshot: Snapshot, end: int) -> None:
        """Add what is held at the end: what the log of that time began, and what was held all the time."""
        for (kind, id, holder), begun in self._open.items():
            self._of(kind)[holder].append(_Held(id, begun, None, None))
        for kind, id, holder, begun in _held_before(snapshot, min(self._start, end)):
            self._of(kind)[holder].append(_Held(id, begun, None, None, True))

    def drawn(self, resolution: int) -> dict[str, Lane]:
        """The lanes by name, with what is too short for the resolution joined."""
        return {
            name: Lane(
                [_stretch(held) for held in _join(self._claims.get(name, []), resolution)],
                [_stretch(held) for held in _join(self._locks.get(name, []), resolution)],
                [as_time(time) for time in _thin(self._mail.get(name, []), resolution)],
            )
            for name in sorted({*self._claims, *self._locks, *self._mail})
        }


def _join(stretches: list[_Held], resolution: int) -> list[_Held]:
    """Join neighbours that are shorter than the resolution and within it of each other."""
    if not resolution:
        return stretches
    found: list[_Held] = []
    last: _Held | None = None  # the one that short ones join
    for held in sorted(stretches, key=lambda held: held.start):
        if held.end is None or held.end - held.start >= resolution:
            found.append(held)
        elif last is not None and last.end is not None and held.start - last.end < resolution:
            last.end = max(last.end, held.end)
            last.count += 1
            last.how = min(last.how, held.how, key=_WORST.index)
        else:
            last = held
            found.append(held)
    return found


def _thin(times: list[int], resolution: int) -> list[int]:
    """Moments that are at least the resolution apart."""
    found: list[int] = []
    for time in times:
        if not found or not resolution or time - found[-1] >= resolution:
            found.append(time)
    return found


def _stretch(held: _Held) -> Stretch:
    return Stretch(held.id, as_time(held.start), _time(held.end), held.how, held.before, held.count)


def _held_before(snapshot: Snapshot, start: int) -> Iterator[tuple[str, str, str, int]]:
    yield from snapshot.all(
        "SELECT 'task', id, holder, claimed FROM tasks INDEXED BY tasks_held WHERE holder IS NOT NULL AND claimed < ?",
        (start,),
    )
    yield from snapshot.all(
        "SELECT kind, name, holder, acquired FROM locks WHERE kind IN ('path', 'lock') AND acquired < ?", (start,)
    )


def _how(op: str, status: Any) -> Any:
    """How a claim or a lock ended."""
    return "expired" if op == "expire" else _ENDS.get(status[1] if status else "", "released")
