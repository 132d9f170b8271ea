"""A log that is late, gone for a while or unclear is waited for, within one budget of time; nothing is given up early.

The tail of a log may lag behind its end: what a node knows to be there it waits for. Waiting takes no time here where
the node has a `LeapingClock`, and real milliseconds where the tail is late by as many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

import holdfast
from holdfast import errors
from holdfast.replication.log import MAX_ENTRY, PATIENCE, START, MemoryLog, Patience, Snapshotted, Trimmed, from_bytes
from holdfast.testing import FaultyLog, ManualClock
from holdfast.testing.crowd import together
from holdfast.testing.faulty_log import Fault, Method
from tests.logs.nodes import RUN, LeapingClock, Nodes, Wire, assert_equal, noise, value, write

LATE = [0.001, 0.005, 0.03]
LARGE = noise(2 * MAX_ENTRY).hex()  # its changes travel as a blob


# --- the budget ------------------------------------------------------------------------------------------------------


def test_there_is_one_look_without_any_patience_and_one_after_the_last_pause() -> None:
    assert len(list(Patience(0.0, timer=LeapingClock()).looks())) == 1
    timer = LeapingClock()
    began, seen = timer.monotonic(), list[int]()
    for _ in Patience(0.3, timer=timer).looks():
        seen.append(timer.monotonic() - began)
    assert seen == [0, 1_000, 3_000, 7_000, 15_000, 31_000, 63_000, 113_000, 163_000, 213_000, 263_000, 300_000]


def test_the_budget_is_one_for_everything_that_is_waited_for() -> None:
    timer = LeapingClock()
    patience = Patience(1.0, timer=timer)
    began = timer.monotonic()
    for _ in range(3):
        with pytest.raises(errors.Unreachable):
            patience.outlast(_gone)
    assert timer.monotonic() - began == 1_000_000


def test_an_outage_is_not_waited_for_by_whoever_does_not_want_to() -> None:
    timer = LeapingClock()
    began = timer.monotonic()
    with pytest.raises(errors.Unreachable):
        Patience(1.0, timer=timer, outages=False).outlast(_gone)
    assert timer.monotonic() == began


def _gone() -> None:
    raise errors.Unreachable("gone")


# --- a tail that is late ---------------------------------------------------------------------------------------------


def test_a_late_tail_shows_an_entry_when_its_time_has_come_and_the_head_at_once() -> None:
    clock = ManualClock()
    real = MemoryLog(clock=clock)
    log = FaultyLog(real, late=0.03, clock=clock)
    real.append(b"one", START)
    clock.advance(0.02)
    real.append(b"two", 1)
    assert (log.head(), list(log.tail(START))) == (2, [])
    clock.advance(0.01)
    assert list(log.tail(START)) == [(1, b"one")]
    clock.advance(0.02)
    assert list(log.tail(START)) == [(1, b"one"), (2, b"two")]


@pytest.mark.parametrize("late", LATE)
def test_three_nodes_on_a_log_that_is_late_open_and_write_and_nothing_is_unknown(nodes: Nodes, late: float) -> None:
    """`together` raises what a node raised: OutcomeUnknown, Unreachable and Busy would all fail here."""
    lines = [FaultyLog(nodes.log, late=late) for _ in range(3)]
    members = [nodes.open(f"node {number}", line) for number, line in enumerate(lines)]

    def work(node: holdfast.Workspace) -> Callable[[], int]:
        return lambda: len([node.cells.increment(RUN, "cell") for _ in range(10)])

    assert together(*(work(node) for node in members)) == [10, 10, 10]
    assert_equal(*members)
    assert value(members[0], "cell") == 30


@pytest.mark.parametrize("late", LATE)
def test_a_node_joins_a_late_log_from_its_snapshot(nodes: Nodes, late: float) -> None:
    a = nodes.engine("a", snapshot_every=5, pulse=False)
    write(a, 12)
    b = nodes.open("b", FaultyLog(nodes.log, late=late))
    assert_equal(a, b)


def test_a_refusal_is_not_run_again_before_the_log_shows_what_it_has_not_seen(nodes: Nodes) -> None:
    """Each run would be refused again: 500 of them used to end in Busy, however short the delay."""
    a = nodes.stale("a")
    line = FaultyLog(nodes.log, late=3.0, clock=(timer := LeapingClock()))
    b = nodes.engine("b", line, pulse=False, timer=timer)
    a.cells.set(RUN, "cell", 1)
    runs: list[bool] = []

    def body(tx: holdfast.Transaction) -> bool:
        runs.append(tx.cells.find(RUN, "cell") is not None)
        return runs[-1]

    assert b.transact(body) is True
    assert runs == [False, True]


def test_what_must_be_the_latest_waits_for_a_late_tail(nodes: Nodes) -> None:
    a = nodes.stale("a")
    line = FaultyLog(nodes.log, late=3.0, clock=(timer := LeapingClock()))
    b = nodes.engine("b", line, pulse=False, timer=timer)
    a.cells.set(RUN, "cell", 1)
    assert b.using(at_least="latest").cells.get(RUN, "cell").value == 1


def test_a_replica_that_is_opened_again_waits_for_the_tail_before_it_trusts_the_log(nodes: Nodes) -> None:
    """An empty page used to pass for a log in which the last entry is still in its place."""
    nodes.stale("a").cells.set(RUN, "cell", 1)
    nodes.close()
    other = Nodes(nodes.folder / "other")
    for _ in range(9):
        other.stale("c").cells.increment(RUN, "cell")
    other.close()

    class Late(Wire):
        shy = 3

        def tail(self, after: int) -> Sequence[tuple[int, bytes]]:
            self.shy -= 1
            return [] if self.shy >= 0 else super().tail(after)

    with pytest.raises(errors.Corrupt, match="not the one applied here"):
        nodes.stale("a", Late(other.log))


# --- a log that is away, or loses answers ----------------------------------------------------------------------------


class Outage(Wire):
    """Faults until a moment of the timer."""

    def __init__(self, nodes: Nodes, fault: Fault, methods: Sequence[Method], seconds: float) -> None:
        super().__init__(nodes.log)
        self.timer = LeapingClock()
        self._what = fault, methods
        self.end = 0
        self.seconds = seconds

    def begin(self) -> None:
        self.end = self.timer.monotonic() + round(self.seconds * 1e6)

    def _choose(self, method: Method) -> Fault | None:
        fault, methods = self._what
        return fault if method in methods and self.timer.monotonic() < self.end else None


ALL: tuple[Method, ...] = ("head", "append", "tail", "put", "get", "trim")
OUTAGES: tuple[tuple[Fault, Sequence[Method]], ...] = (
    ("unreachable", ALL),
    ("unreachable", ["append"]),
    ("request lost", ["append"]),
    ("late", ["append"]),
)


@pytest.mark.parametrize(("fault", "methods"), OUTAGES)
def test_a_write_outlasts_an_outage_that_is_shorter_than_its_patience(
    nodes: Nodes, fault: Fault, methods: Sequence[Method]
) -> None:
    a = nodes.stale("a")
    line = Outage(nodes, fault, methods, PATIENCE - 0.2)
    b = nodes.engine("b", line, pulse=False, timer=line.timer)
    a.cells.set(RUN, "cell", 1)
    line.begin()
    assert b.cells.increment(RUN, "cell") == 2
    line.deliver()
    line.begin()
    with pytest.raises(errors.VersionMismatch):
        b.cells.cas(RUN, "cell", 7, "never")
    line.begin()
    assert b.using(at_least="latest").cells.get(RUN, "cell").value == 2
    assert_equal(a, b)


@pytest.mark.parametrize(("fault", "methods"), OUTAGES)
def test_a_write_gives_up_when_its_patience_is_spent_and_says_what_is_true(
    nodes: Nodes, fault: Fault, methods: Sequence[Method]
) -> None:
    line = Outage(nodes, fault, methods, 3600)
    b = nodes.engine("b", line, pulse=False, timer=line.timer, patience=2.0)
    line.begin()
    began = line.timer.monotonic()
    with pytest.raises(errors.Unreachable if fault == "unreachable" else errors.OutcomeUnknown):
        b.cells.increment(RUN, "cell")
    assert line.timer.monotonic() - began == 2_000_000
    line.end = 0
    assert b.cells.increment(RUN, "cell") == 1


def test_reads_and_lists_do_not_wait_for_a_log_that_is_away(nodes: Nodes) -> None:
    line = Outage(nodes, "unreachable", ALL, 3600)
    b = nodes.engine("b", line, pulse=False, timer=line.timer)
    b.cells.set(RUN, "cell", 1, ttl=5)
    line.begin()
    nodes.clock.advance(5)
    began = line.timer.monotonic()
    assert b.cells.list(RUN) == ["cell"]
    assert b.cells.find(RUN, "cell") is None
    b.close()
    b = nodes.engine("b", line, pulse=False, timer=line.timer)
    assert b.cells.list(RUN) == ["cell"]
    assert line.timer.monotonic() == began


def test_a_new_node_outlasts_an_outage_too(nodes: Nodes) -> None:
    a = nodes.stale("a")
    a.cells.set(RUN, "cell", 1)
    line = Outage(nodes, "unreachable", ALL, PATIENCE - 0.2)
    line.begin()
    assert_equal(a, nodes.engine("b", line, pulse=False, timer=line.timer))


@pytest.mark.parametrize("patience", [-1, float("nan"), "long"])
def test_a_patience_that_is_no_time_is_invalid(nodes: Nodes, patience: float) -> None:
    with pytest.raises(errors.Invalid, match="patience"):
        nodes.open("a", patience=patience)


# --- a tail from a cache ---------------------------------------------------------------------------------------------


class Cached(Wire):
    """A tail that was pushed to this node and still shows what others have trimmed."""

    pushed: list[tuple[int, bytes]]

    def push(self) -> None:
        self.pushed = list(super().tail(START))

    def tail(self, after: int) -> Sequence[tuple[int, bytes]]:
        page = [entry for entry in self.pushed if entry[0] > after]
        return page or super().tail(after)


def test_a_cached_entry_whose_blob_is_trimmed_leads_to_the_snapshot_that_replaced_it(nodes: Nodes) -> None:
    line = Cached(nodes.log)
    line.pushed = []
    b = nodes.stale("b", line)
    a = nodes.engine("a", snapshot_every=5, pulse=False)
    a.cells.set(RUN, "cell", LARGE)
    line.push()
    write(a, 20, "count")
    with pytest.raises(Trimmed):
        nodes.log.tail(START)
    assert b.using(at_least="latest").cells.get(RUN, "count").value == 20
    assert_equal(a, b)


def test_a_blob_that_is_gone_without_a_snapshot_is_still_corrupt(nodes: Nodes) -> None:
    assert isinstance(nodes.log, MemoryLog)
    a, b = nodes.stale("a"), nodes.stale("b")
    a.cells.set(RUN, "cell", LARGE)
    nodes.log._blobs.clear()
    with pytest.raises(errors.Corrupt, match="not its blob"):
        b.using(at_least="latest").cells.get(RUN, "cell")
    assert not any(isinstance(from_bytes(raw, position), Snapshotted) for position, raw in nodes.log.tail(START))


# --- an end that is too low ------------------------------------------------------------------------------------------


def test_one_low_end_condemns_no_log(nodes: Nodes) -> None:
    line = Wire(nodes.log)
    b = nodes.stale("b", line)
    b.cells.set(RUN, "cell", 1)
    line.once("append", "request lost")
    line.once("head", "low", "low")
    assert b.cells.increment(RUN, "cell") == 2
    b.close()
    line.once("head", "low", "low")
    b = nodes.stale("b", line)
    assert b.cells.increment(RUN, "cell") == 3


def test_a_log_that_stays_too_short_is_condemned(nodes: Nodes) -> None:
    line = Wire(nodes.log)
    b = nodes.stale("b", line)
    b.cells.set(RUN, "cell", 1)
    line.always("head", "low")
    line.once("append", "request lost")
    with pytest.raises(errors.Corrupt, match="the log ends at"):
        b.cells.increment(RUN, "cell")
    b.close()
    with pytest.raises(errors.Corrupt, match="the log ends at"):
        nodes.stale("b", line)


def test_a_block_begins_with_all_that_was_acknowledged_on_a_late_log_too(nodes: Nodes) -> None:
    """It cannot run again: what it does not see it would refuse, and nothing could be done about it."""
    a = nodes.stale("a")
    line = FaultyLog(nodes.log, late=3.0, clock=(timer := LeapingClock()))
    b = nodes.engine("b", line, pulse=False, timer=timer)
    a.cells.set(RUN, "cell", 1)
    with b.transaction() as tx:
        assert tx.cells.get(RUN, "cell").value == 1
        tx.cells.set(RUN, "cell", 2)
    assert_equal(a, b)


def test_a_login_that_is_renewed_meanwhile_is_outlasted_and_one_that_never_was_is_not() -> None:
    refusals = [errors.LogRefused("no password"), errors.LogRefused("no password")]

    def call() -> str:
        if refusals:
            raise refusals.pop()
        return "in"

    with pytest.raises(errors.LogRefused):
        Patience(timer=LeapingClock()).outlast(call, refusals=False)
    assert len(refusals) == 1
    assert Patience(timer=LeapingClock()).outlast(call) == "in"
