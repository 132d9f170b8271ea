"""`ws.status()` and `ws.activity()`: the fleet at one glance, and what it did over time.

The status is one snapshot: its parts belong to the same revision. Refusals are not in the log, so both take them from
the file that each machine keeps (`events.refusals`), and say so.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains import events, locks
from holdfast.domains.cycles import rows as cycles
from holdfast.domains.mail.messages import short_of
from holdfast.domains.paths import patterns
from holdfast.domains.stashes.rows import STASH_LOCK
from holdfast.domains.tasks.rows import DEPENDS_ON, TASK
from holdfast.kernel import activity as refused
from holdfast.kernel.events import compacted_to, history_page, to_event
from holdfast.kernel.tx import Row, Snapshot
from holdfast.operation import Look, ReadFile, Steps
from holdfast.types import as_microseconds, as_time
from holdfast.types.fleet import (
    Activity,
    AgentState,
    ClaimEnd,
    FleetStatus,
    LockState,
    Need,
    Tally,
    TaskCounts,
    Waiter,
)

_MOST: Final = 1000  # entries of a list
_MOST_NEEDS: Final = 100
_SOON: Final = 120_000_000  # microseconds
_LATELY: Final = 3_600_000_000
_ESCALATIONS: Final = ("decision-required", "objection")


def status(midnight: datetime | None = None) -> Steps[FleetStatus]:
    """Return the fleet at one revision: who works on what, what is stuck, what needs a person.

    `midnight` is the beginning of the caller's day, for the tasks closed today; by default that of UTC. Refusals are
    those of the last hour on this machine.
    """
    if midnight is not None and not isinstance(midnight, datetime):
        raise errors.InvalidFilter(f"midnight must be a datetime, not {type(midnight).__name__}")
    day = None if midnight is None else as_microseconds(midnight)
    found: FleetStatus = yield Look(lambda snapshot, _: _status(snapshot, day), whole=True, needed=True)
    refusals = yield from events.refusals(since=found.time - timedelta(hours=1))
    return msgspec.structs.replace(found, refusals=tuple(refusals))


def _status(snapshot: Snapshot, midnight: int | None) -> FleetStatus:
    row = snapshot.one("SELECT revision, stamp FROM meta")
    assert row is not None
    revision, now = row[0], -snapshot.left(0, row[1])
    held = _held_tasks(snapshot)
    locked = tuple(_locks(snapshot))
    needs = sorted(_needs(snapshot, locked), key=lambda need: (-need.holds_up, need.since))
    return FleetStatus(
        revision=revision,
        time=as_time(now),
        tasks=_counts(snapshot, len(held), now // _DAY * _DAY if midnight is None else midnight),
        agents=tuple(_agents(snapshot, held)),
        locks=locked,
        claims=tuple(_claims(snapshot, held, now)),
        cycles=tuple(cycles.list_cycles(snapshot, status="in_progress", limit=_MOST)),
        needs=len(needs),
        needs_you=tuple(needs[:_MOST_NEEDS]),
        refusals=(),
    )


# --- tasks and agents ------------------------------------------------------------------------------------------------

_DAY: Final = 86_400_000_000
_COUNTS: Final = (
    "SELECT (SELECT count(*) FROM tasks INDEXED BY tasks_ready WHERE status = 'open' AND waits = 0 AND busy = 0"
    " AND deleted IS NULL AND assignee IS NULL) + (SELECT count(*) FROM tasks INDEXED BY tasks_ready_assigned"
    " WHERE status = 'open' AND waits = 0 AND busy = 0 AND deleted IS NULL AND assignee IS NOT NULL),"
    " (SELECT count(*) FROM tasks INDEXED BY tasks_closed WHERE status = 'closed' AND deleted IS NULL AND updated >= ?)"
)
# By index alone: the few that are deleted are counted apart.
_BY_STATUS: Final = "SELECT status, count(*) FROM tasks INDEXED BY tasks_status WHERE holder IS NULL GROUP BY status"
_DELETED: Final = (
    "SELECT status, count(*) FROM tasks INDEXED BY tasks_deleted WHERE deleted IS NOT NULL AND holder IS NULL"
    " GROUP BY status"
)
_HELD: Final = (
    "SELECT t.id, t.title, t.holder, t.claimed, l.deadline, t.parked, (SELECT stamp FROM meta)"
    " FROM tasks t INDEXED BY tasks_held LEFT JOIN leases l ON l.id = t.record WHERE t.holder IS NOT NULL"
)


def _counts(snapshot: Snapshot, held: int, midnight: int) -> TaskCounts:
    row = snapshot.one(_COUNTS, (midnight,))
    assert row is not None
    counts: Counter[str] = Counter(dict(snapshot.all(_BY_STATUS)))
    counts.subtract(dict(snapshot.all(_DELETED)))
    return TaskCounts(
        ready=row[0],
        waiting=counts["open"] - row[0],
        in_progress=held,
        review=counts["pending_merge"],
        blocked=counts["blocked"],
        closed=counts["closed"],
        closed_today=row[1],
    )


def _held_tasks(snapshot: Snapshot) -> list[Row]:
    """The tasks that somebody holds, as a reader sees them."""
    return [row[:6] for row in snapshot.all(_HELD) if row[4] is None or not snapshot.is_past(row[4], row[6])]


def _agents(snapshot: Snapshot, held: list[Row]) -> Iterator[AgentState]:
    """Every agent that is known or holds a task, by name."""
    tasks: dict[str, list[Row]] = defaultdict(list)
    for row in held:
        tasks[row[2]].append(row)
    known = {row[0]: row[1:] for row in snapshot.all(_KNOWN)}
    unread: dict[str, int] = dict(snapshot.all("SELECT agent, unread FROM mailboxes WHERE unread > 0"))
    waiting: dict[str, int] = dict(snapshot.all(_UNACKNOWLEDGED))
    for name in sorted({*known, *tasks})[:_MOST]:
        role, program, seen = known.get(name, ("agent", "", None))
        mine = sorted(tasks[name], key=lambda row: (row[4] is None, row[4], row[3]))
        id, title, _, since, until, parked = mine[0] if mine else (None, None, None, None, None, 0)
        yield AgentState(
            name=name,
            role=role,
            program=program,
            seen_at=None if seen is None else as_time(seen),
            tasks=len(mine),
            task=id,
            title=title,
            since=None if since is None else as_time(since),
            until=None if until is None else as_time(until),
            parked=bool(parked),
            unread=unread.get(name, 0),
            unacknowledged=waiting.get(name, 0),
        )


_KNOWN: Final = (
    "SELECT n.name, coalesce(a.role, 'agent'), coalesce(a.program, ''), s.seen"
    " FROM (SELECT name FROM agents UNION SELECT name FROM actors) n"
    " LEFT JOIN agents a ON a.name = n.name LEFT JOIN actors s ON s.name = n.name"
)
_UNACKNOWLEDGED: Final = (
    "SELECT d.agent, count(*) FROM deliveries d INDEXED BY deliveries_unread CROSS JOIN messages m ON m.seq = d.message"
    " WHERE d.status = 'unread' AND m.ack = 1 GROUP BY d.agent"
)


def _claims(snapshot: Snapshot, held: list[Row], now: int) -> Iterator[ClaimEnd]:
    """The claims that end soon, the first first; then those that expired lately, the newest first."""
    soon = sorted((row for row in held if row[4] is not None and row[4] - now <= _SOON), key=lambda row: row[4])
    for id, title, holder, _, deadline, _ in soon[:_MOST]:
        yield ClaimEnd(id, title, holder, as_time(deadline), False, holder)
    expired = snapshot.all(
        "SELECT t.id, t.title, e.data, e.time, t.holder FROM log e CROSS JOIN records r ON r.key = e.record"
        " CROSS JOIN tasks t ON t.id = r.id WHERE e.seq >= ? AND e.op = 'expire' AND e.time >= ? AND r.kind = ?"
        " AND e.data IS NOT NULL ORDER BY e.seq DESC LIMIT ?",
        (first_since(snapshot, now - _LATELY), now - _LATELY, TASK, _MOST),
    )
    for id, title, data, time, holder in expired:
        yield ClaimEnd(id, title, _last_holder(data), as_time(time), True, holder)


def _last_holder(data: bytes) -> str:
    """The holder of the claim that an event ended."""
    return str(msgspec.msgpack.decode(data).get("claimed_by", ("", None))[0])


# --- locks -----------------------------------------------------------------------------------------------------------


def _locks(snapshot: Snapshot) -> Iterator[LockState]:
    """The locks that are held, with who waits for each."""
    waiters = _waiters(snapshot)
    for kind, scope, name, holder, acquired, deadline, task, detail, stamp in snapshot.all(
        "SELECT k.kind, k.scope, k.name, k.holder, k.acquired,"
        " coalesce(min(l.deadline, c.deadline), l.deadline, c.deadline), k.task, k.detail, (SELECT stamp FROM meta)"
        f" FROM {locks.SOURCE} LEFT JOIN tasks t ON t.id = k.task LEFT JOIN leases c ON c.id = t.record"
        " ORDER BY k.kind, k.scope, k.name LIMIT ?",
        (_MOST,),
    ):
        if deadline is not None and snapshot.is_past(deadline, stamp):
            continue
        paths = patterns.decode_detail(detail) if kind == patterns.PATH else None
        yield LockState(
            kind=kind,
            name=name,
            scope=scope,
            patterns=() if paths is None else paths.patterns,
            holder=holder,
            shared=paths is not None and paths.shared,
            task=task,
            reason=None if paths is None else paths.reason,
            since=as_time(acquired),
            until=None if deadline is None else as_time(deadline),
            waiters=tuple(waiters[kind, scope, name]),
            stash=_stash(snapshot, name) if kind == STASH_LOCK else "",
        )


def _stash(snapshot: Snapshot, id: str) -> str:
    """The trail and the name of a stash; a global one has its name alone."""
    row = snapshot.one(
        "SELECT t.name, s.name FROM stashes s LEFT JOIN trails t ON t.id = s.trail WHERE s.id = ?", (id,)
    )
    return "" if row is None else "/".join(filter(None, row))


def _waiters(snapshot: Snapshot) -> dict[tuple[str, str, str], list[Waiter]]:
    """The waiters of each lock, in order. One that waits for paths waits for every lock that is in the way."""
    found: dict[tuple[str, str, str], list[Waiter]] = defaultdict(list)
    for kind, scope, name, holder, detail, since in snapshot.all(
        "SELECT w.kind, w.scope, w.name, w.holder, w.detail, l.created FROM waiters w"
        " JOIN leases l ON l.id = w.ticket ORDER BY w.place LIMIT ?",
        (_MOST,),
    ):
        if kind != patterns.PATH:
            found[kind, scope, name].append(Waiter(holder, as_time(since), ()))
            continue
        wanted = patterns.decode_detail(detail)
        for lock in patterns.select(snapshot, *patterns.may_overlap(wanted.patterns)):
            if patterns.clash(lock, wanted, holder) is not None:
                found[patterns.PATH, "", lock.id].append(Waiter(holder, as_time(since), wanted.patterns))
    return found


# --- what needs a person ---------------------------------------------------------------------------------------------


def _needs(snapshot: Snapshot, locked: Iterable[LockState]) -> Iterator[Need]:
    for kind, state in (("blocked", "blocked"), ("review", "pending_merge")):
        yield from _stopped(snapshot, kind, state)
    yield from _mail_to_people(snapshot)
    for lock in locked:
        if lock.until is None and lock.task is None:
            name = " ".join(lock.patterns) or lock.stash or "/".join(filter(None, (lock.scope, lock.name)))
            yield Need("lock", lock.name, name, lock.reason, lock.holder, lock.since, len(lock.waiters))


def _stopped(snapshot: Snapshot, kind: Any, state: str) -> Iterator[Need]:
    """The tasks that wait for a person, with what was said when they stopped."""
    for id, title, updated in snapshot.all(
        "SELECT id, title, updated FROM tasks INDEXED BY tasks_status WHERE holder IS NULL AND status = ?"
        " AND deleted IS NULL ORDER BY priority, seq LIMIT ?",
        (state, _MOST),
    ):
        reason, by, since = last_stop(snapshot, id)
        yield Need(kind, id, title, reason, by, as_time(updated if since is None else since), behind(snapshot, id))


def last_stop(snapshot: Snapshot, id: str) -> tuple[str | None, str | None, int | None]:
    """What was said when a task last changed its status, by whom and when; None if the log has it no more."""
    said = (to_event(row) for row in history_page(snapshot, TASK, "", id, None, 20)[0])
    stop = next((event for event in said if "status" in event.data), None)
    return (None, None, None) if stop is None else (stop.data.get("note"), stop.actor, as_microseconds(stop.time))


_MAIL: Final = (
    "SELECT m.id, x.subject, m.sender, m.type, m.sent, m.task, m.seq FROM agents a CROSS JOIN deliveries d"
    " INDEXED BY deliveries_open ON d.agent = a.name CROSS JOIN messages m ON m.seq = d.message"
    " CROSS JOIN message_texts x ON x.seq = m.seq WHERE a.role IN ('person', 'maintainer') AND d.status <> 'closed'"
    " AND (d.status = 'unread' AND m.ack = 1 OR d.status IN ('unread', 'acknowledged')"
    " AND m.type IN ('request', 'decision-required', 'objection')) GROUP BY m.seq ORDER BY m.seq LIMIT ?"
)


def _mail_to_people(snapshot: Snapshot) -> Iterator[Need]:
    """The messages to people that want an answer, or an acknowledgement."""
    for id, subject, sender, type, sent, task, seq in snapshot.all(_MAIL, (_MOST,)):
        kind: Any = "escalation" if type in _ESCALATIONS else "mail"
        held_up = 0 if task is None else 1 + behind(snapshot, task)
        yield Need(kind, id, subject, type, sender, as_time(sent), held_up, short_of(seq))


def behind(snapshot: Snapshot, id: str) -> int:
    """How many unfinished tasks wait for one, directly or through others; at most 1,000 are counted."""
    row = snapshot.one(
        "WITH RECURSIVE behind(id) AS (SELECT ?1 UNION SELECT k.source FROM behind CROSS JOIN links k"
        " ON k.kind = ?2 AND k.target = behind.id CROSS JOIN tasks t ON t.id = k.source AND t.deleted IS NULL"
        " AND t.status <> 'closed' LIMIT ?3) SELECT count(*) - 1 FROM behind",
        (id, DEPENDS_ON, _MOST + 1),
    )
    return 0 if row is None else int(row[0])


# --- activity --------------------------------------------------------------------------------------------------------

_OPS: Final = {"claim": "claimed", "complete": "completed", "release": "released", "expire": "expired"}
_FENCED: Final = errors.Fenced.code
_MOST_BUCKETS: Final = 10_000
_LONGEST_BUCKET: Final = 366 * 86_400
_FIRST_TIME: Final = as_microseconds(datetime.min.replace(tzinfo=UTC))
_MOST_NUMBERS: Final = 1_000_000
# How a change to closed is packed into an event. No text contains it: its third part is no character of UTF-8.
_CLOSED: Final = [
    msgspec.msgpack.encode("status") + b"\x92" + msgspec.msgpack.encode(source) + msgspec.msgpack.encode("closed")
    for source in ("in_progress", "pending_merge", "blocked")
]
_CLOSES: Final = ("complete", "approve", "close", "cancel")
_COUNT: Final = (
    "SELECT (time - ?1) / ?2, actor, op, count(*), sum(op IN"
    f" ({', '.join(map(repr, _CLOSES))}) AND (instr(data, ?5) OR instr(data, ?6) OR instr(data, ?7))),"
    " CASE op WHEN 'expire' THEN data END"
    " FROM log WHERE seq >= ?3 AND time >= ?1 AND time < ?4"
    f" AND op IN ({', '.join(map(repr, dict.fromkeys((*_OPS, *_CLOSES))))})"
    f" AND (SELECT kind FROM records WHERE key = record) = '{TASK}' GROUP BY 1, 2, 3, 6"
)


def activity(since: datetime | None = None, until: datetime | None = None, bucket: float = 300) -> Steps[Activity]:
    """Count what happened to claims from `since` (a day ago) until `until` (now), by agent, in buckets of seconds.

    An expired claim counts for the agent that held it. Raises Compacted if the log does not reach back to `since`.
    """
    if isinstance(bucket, bool) or not isinstance(bucket, int | float) or not 1 <= bucket <= _LONGEST_BUCKET:
        raise errors.InvalidFilter(f"bucket must be from 1 second to {_LONGEST_BUCKET} (a year), not {bucket!r}")
    read = partial(_activity, since=since, until=until, bucket=round(bucket * 1e6))
    found: Activity = yield Look(lambda snapshot, _: read(snapshot), whole=True, needed=True)
    start = as_microseconds(found.since)
    for name in (refused.OLDER, refused.FILE):
        text = yield ReadFile(name)
        for line in refused.parse(text[1]) if text is not None else ():
            place = (line.time - start) // round(bucket * 1e6)
            if line.code == _FENCED and 0 <= place < len(found.total.fenced):
                _tally(found.agents, line.actor, len(found.total.fenced)).fenced[place] += 1
                found.total.fenced[place] += 1
    return found


def time_span(snapshot: Snapshot, since: datetime | None, until: datetime | None, length: int) -> tuple[int, int, int]:
    """Return the revision, and a span of time: until now, and for `length` microseconds, if nothing else is given."""
    row = snapshot.one("SELECT revision, stamp FROM meta")
    assert row is not None
    end = 1 - snapshot.left(0, row[1]) if until is None else _moment(until, "until")
    start = max(end - length, _FIRST_TIME) if since is None else _moment(since, "since")
    if start >= end:
        raise errors.InvalidFilter("since must be before until")
    return row[0], start, end


def _moment(given: object, what: str) -> int:
    if not isinstance(given, datetime):
        raise errors.InvalidFilter(f"{what} must be a datetime, not {type(given).__name__}")
    return as_microseconds(given)


def _activity(snapshot: Snapshot, since: datetime | None, until: datetime | None, bucket: int) -> Activity:
    revision, start, end = time_span(snapshot, since, until, _DAY)
    count = -((start - end) // bucket)
    if count > _MOST_BUCKETS:
        hint = f"a larger bucket: at most {_MOST_BUCKETS:,} are counted"
        raise errors.InvalidFilter(f"there would be {count:,} buckets", hint=hint)
    params = (start, bucket, first_since(snapshot, start, whole=True), end)
    agents: dict[str, Tally] = {}
    counted = [
        (place, actor if data is None else _last_holder(data), op, number, closed)
        for place, actor, op, number, closed, data in snapshot.all(_COUNT, (*params, *_CLOSED))
    ]
    names = {name for _, name, _, _, _ in counted}
    if len(names) * count > _MOST_NUMBERS:
        hint = "ask for a shorter time or larger buckets"
        raise errors.TooLarge(f"{len(names):,} agents in {count:,} buckets are too many numbers", hint=hint)
    total = _zeros(count)
    for place, name, op, number, closed in counted:
        for tally in (_tally(agents, name, count), total):
            if op in _OPS:
                getattr(tally, _OPS[op])[place] += number
            tally.closed[place] += closed or 0
    return Activity(revision, as_time(start), as_time(end), bucket / 1e6, total, dict(sorted(agents.items())))


def _tally(agents: dict[str, Tally], name: str, count: int) -> Tally:
    if name not in agents:
        agents[name] = _zeros(count)
    return agents[name]


def _zeros(count: int) -> Tally:
    return Tally(*([0] * count for _ in Tally.__struct_fields__))


def first_since(snapshot: Snapshot, time: int, whole: bool = False) -> int:
    """The place in the log from which on everything since a time is found; with `whole`, Compacted if some is gone.

    Times grow along the log, except where the clock was reset, so each part between two resets is searched by halves.
    """
    ends = snapshot.one("SELECT min(seq), max(seq) FROM log")
    if ends is None or ends[0] is None:
        return 0
    resets = [seq for (seq,) in snapshot.all(_RESETS)]
    starts = [ends[0], *resets]
    stops = [*(seq - 1 for seq in resets), ends[1]]
    first = min(_search(snapshot, low, high, time) for low, high in zip(starts, stops, strict=True))
    if whole:
        _check_whole(snapshot, time)
    return first


_RESETS: Final = (
    "SELECT e.seq FROM records r CROSS JOIN log e ON e.record = r.key WHERE r.kind = 'clock' AND e.op = 'reset'"
    " ORDER BY e.seq"
)


def _search(snapshot: Snapshot, low: int, high: int, time: int) -> int:
    """The first place from low to high with this time or a later one; behind `high` if there is none."""
    end = high + 1
    while low < end:
        middle = (low + end) // 2
        row = snapshot.one("SELECT seq, time FROM log WHERE seq >= ? ORDER BY seq LIMIT 1", (middle,))
        if row is None or row[0] >= end or row[1] >= time:
            end = middle
        else:
            low = row[0] + 1
    return low


def _check_whole(snapshot: Snapshot, time: int) -> None:
    """Raise Compacted if the log was compacted after a time."""
    compacted = compacted_to(snapshot)
    if not compacted:
        return
    row = snapshot.one("SELECT time FROM log WHERE revision > ? ORDER BY revision LIMIT 1", (compacted,))
    if row is None or row[0] > time:
        raise errors.Compacted(
            f"events up to revision {compacted} have been compacted, and with them some of the time that was asked for",
            hint=None if row is None else f"ask for less: since={as_time(row[0]).astimezone(UTC).isoformat()}",
            compacted=compacted,
        )
