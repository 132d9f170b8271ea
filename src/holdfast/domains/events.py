"""`ws.events`: the event log as users see it; and `ws.clock`, which accepts the current time after a wrong clock."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast import errors
from holdfast.clock import FAR_AHEAD
from holdfast.kernel import activity, leases
from holdfast.kernel.events import compact, list_events, make_filter
from holdfast.kernel.tx import Snapshot, Tx
from holdfast.operation import Domain, Following, M, ReadFile, Steps, procedure, read, write
from holdfast.route import example
from holdfast.types import Event, Refusal, as_microseconds, as_time


def follow(
    snapshot: Snapshot,
    kinds: Sequence[str] | None = None,
    id: str | tuple[str, str] | None = None,
    after: int | str | None = None,
    timeout: float | None = None,
) -> Following[Event]:
    """Yield events as they come, after a revision or cursor or from now on; `id` may be (scope, id), as (run, cell)."""
    return Following(make_filter(kinds, id), after, timeout, _as_it_is)


def _as_it_is(_: Snapshot, event: Event) -> Event:
    return event


def refusals(since: datetime | None = None, actor: str | None = None) -> Steps[list[Refusal]]:
    """Count refused calls on this machine by actor and error code: Held, Fenced, version conflicts and the like."""
    if since is not None and not isinstance(since, datetime):
        raise errors.InvalidFilter(f"since must be a datetime, not {type(since).__name__}")
    start = 0 if since is None else as_microseconds(since)
    counts: dict[tuple[str, str], tuple[int, int]] = {}
    for name in (activity.OLDER, activity.FILE):
        found = yield ReadFile(name)
        for line in activity.parse(found[1]) if found is not None else ():
            if line.time >= start and actor in (None, line.actor):
                count, _ = counts.get((line.actor, line.code), (0, 0))
                counts[line.actor, line.code] = (count + 1, line.time)
    return [Refusal(who, code, count, as_time(last)) for (who, code), (count, last) in sorted(counts.items())]


class Events(Domain[M]):
    """`ws.events`."""

    prefix = "events"
    list = read(
        list_events,
        http="GET /api/events",
        listing=True,
        cli="event list",
        help="List events, oldest first; a change of a field is [old, new].",
        examples=("holdfast event list --kind task --id hf-7k2q",),
        mcp="watch",
    )
    refusals = procedure(
        refusals,
        http="GET /api/events/refusals",
        looking=True,
        cli="event refusals",
        nothing=("nothing was refused",),
        help="Count who was refused what on this machine.",
        examples=("holdfast event refusals --since 1d",),
    )
    compact = write(
        compact,
        http="POST /api/events/compact",
        cli="event compact",
        done=("compacted {result:events}",),
        help="Forget old events, after a backup; print how many went.",
        examples=(example("holdfast event compact 2 --yes", "holdfast note hf-7k2q one"),),
        role="admin",
        irreversible="this forgets the events before revision {before}",
    )


def reset_clock(tx: Tx) -> datetime:
    """Accept this machine's clock as the current time and shift every deadline with it; returns the new time.

    Raises Invalid unless the workspace's time is more than 5 minutes ahead of this machine's clock.
    """
    before, after = tx.now, tx.wall_clock()
    if before - after <= FAR_AHEAD:
        raise errors.Invalid("the workspace's time is not more than 5 minutes ahead", hint="no reset is needed")
    if tx.events:
        raise errors.Invalid("a reset must come first in its transaction", hint="call ws.clock.reset() alone")
    leases.shift(tx, after - before)
    tx.run("UPDATE meta SET calm = ?", (after,))
    tx.now = after
    activity.settle(tx)
    tx.emit("clock", "clock", "reset", data=msgspec.msgpack.encode({"time": [before, after]}))
    return as_time(after)


class ClockOps(Domain[M]):
    """`ws.clock`."""

    prefix = "clock"
    reset = write(
        reset_clock,
        http="POST /api/clock/reset",
        cli="clock reset",
        help="Accept this machine's clock if the workspace is ahead of it.",
        examples=("holdfast clock reset",),
        role="admin",
    )
