"""A node whose clock is more than a second away from the log's does not write and does not sweep; it reads and follows.

The log has the clock of `nodes`, the node in question one of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

import holdfast
from holdfast import errors
from holdfast.replication.log import CommitLog, LogWrapper
from holdfast.testing import ManualClock
from holdfast.testing.crowd import LONG, start
from tests.logs.nodes import RUN, Nodes, assert_equal, entries, value

WRONG = [1.5, -1.5, 3600.0, -3600.0]


class Pair:
    """A node in time, and one with a clock of its own that began in time."""

    def __init__(self, nodes: Nodes, pulse: bool = True) -> None:
        self.clock = ManualClock()
        self.right = nodes.open("right")
        self.wrong = nodes.open("wrong", clock=self.clock)
        if not pulse:
            self.wrong._engine.pulse.stop()
        self.wrong.cells.set(RUN, "cell", 1)


@pytest.mark.parametrize("seconds", WRONG)
def test_a_jump_is_noticed_at_once_and_every_write_is_refused_until_the_clock_is_right_again(
    nodes: Nodes, seconds: float
) -> None:
    pair = Pair(nodes)
    before = len(entries(nodes.log))
    pair.clock.jump(seconds)
    for write in (
        lambda: pair.wrong.cells.set(RUN, "cell", 2),
        lambda: pair.wrong.cells.delete(RUN, "absent"),
        lambda: pair.wrong.transact(lambda tx: tx.cells.set(RUN, "cell", 2)),
        lambda: pair.wrong.transaction().__enter__(),
        lambda: pair.wrong.locks.acquire("lock", ttl=1),
    ):
        with pytest.raises(errors.ClockSkew) as caught:
            write()
        assert caught.value.skew == pytest.approx(seconds)
    assert len(entries(nodes.log)) == before
    assert value(pair.wrong, "cell") == 1
    pair.clock.jump(-seconds)
    assert pair.wrong.cells.set(RUN, "cell", 2) == 2
    assert_equal(pair.right, pair.wrong)


@pytest.mark.parametrize("seconds", [0.05, 0.9, 1.0, -0.05, -0.9, -1.0])
def test_within_a_second_it_writes(nodes: Nodes, seconds: float) -> None:
    pair = Pair(nodes)
    pair.clock.jump(seconds)
    assert pair.wrong.cells.set(RUN, "cell", 2) == 2
    assert pair.right.cells.set(RUN, "cell", 3) == 3
    assert_equal(pair.right, pair.wrong)


@pytest.mark.parametrize("seconds", [1.000001, -1.000001])
def test_above_a_second_it_does_not(nodes: Nodes, seconds: float) -> None:
    pair = Pair(nodes)
    pair.clock.jump(seconds)
    with pytest.raises(errors.ClockSkew):
        pair.wrong.cells.set(RUN, "cell", 2)


def test_small_steps_add_up(nodes: Nodes) -> None:
    pair = Pair(nodes)
    for number in range(10):
        pair.clock.jump(0.099)
        assert pair.wrong.cells.set(RUN, "cell", number)
    pair.clock.jump(0.099)
    pair.clock.jump(0.099)
    with pytest.raises(errors.ClockSkew):
        pair.wrong.cells.set(RUN, "cell", 0)


@pytest.mark.parametrize(("here", "there"), [(5, 0), (5, 10), (6, 4.5), (60, 58)])
def test_drift_is_noticed_within_five_seconds(nodes: Nodes, here: float, there: float) -> None:
    pair = Pair(nodes, pulse=False)
    pair.clock.advance(here)
    nodes.clock.advance(there)
    with pytest.raises(errors.ClockSkew) as caught:
        pair.wrong.cells.set(RUN, "cell", 2)
    assert caught.value.skew == pytest.approx(here - there)


def test_clocks_that_run_together_are_never_far_apart(nodes: Nodes) -> None:
    pair = Pair(nodes)
    for number in range(20):
        pair.clock.advance(3)
        nodes.clock.advance(3)
        assert pair.wrong.cells.set(RUN, "cell", number)
    assert_equal(pair.right, pair.wrong)


@pytest.mark.parametrize("seconds", WRONG)
def test_it_still_follows_and_answers_from_its_replica(nodes: Nodes, seconds: float) -> None:
    pair = Pair(nodes)
    pair.clock.jump(seconds)
    with pair.wrong.watch() as events:
        pair.right.cells.set(RUN, "cell", 2)
        assert start(lambda: next(events)).result(LONG).version == 2
    assert value(pair.wrong, "cell") == 2
    assert pair.wrong.cells.list(RUN) == ["cell"]


@pytest.mark.parametrize("at_least", ["latest", 2])
def test_reads_that_must_have_seen_more_work_there_too(nodes: Nodes, at_least: int) -> None:
    pair = Pair(nodes, pulse=False)
    pair.clock.jump(1.5)
    pair.right.cells.set(RUN, "cell", 2)
    assert pair.wrong.using(at_least=at_least).cells.get(RUN, "cell").value == 2


def test_cursors_of_other_nodes_work_there_too(nodes: Nodes) -> None:
    pair = Pair(nodes, pulse=False)
    pair.clock.jump(1.5)
    pair.right.cells.set(RUN, "cell", 2)
    assert pair.wrong.events.list(after=pair.right.revision) == []


@pytest.mark.parametrize("pulse", [True, False])
def test_it_ends_nobodys_lease(nodes: Nodes, pulse: bool) -> None:
    pair = Pair(nodes, pulse)
    grant = pair.right.locks.acquire("lock", ttl=10)
    pair.right.cells.set(RUN, "short", 1, ttl=10)
    pair.wrong._engine.reach(None)
    before = len(entries(nodes.log))
    pair.clock.jump(60)
    assert pair.wrong.cells.list(RUN) == ["cell", "short"]
    assert [held.name for held in pair.wrong.locks.list()] == ["lock"]
    with pytest.raises(errors.ClockSkew):
        pair.wrong.locks.acquire("lock", holder="thief")
    assert len(entries(nodes.log)) == before
    pair.right.locks.check("lock", grant.token)


def test_a_node_with_a_wrong_clock_can_be_opened_and_read(nodes: Nodes) -> None:
    right = nodes.open("right")
    right.cells.set(RUN, "cell", 1)
    clock = ManualClock()
    clock.jump(100)
    wrong = nodes.open("wrong", clock=clock)
    assert value(wrong, "cell") == 1
    with pytest.raises(errors.ClockSkew):
        wrong.cells.set(RUN, "cell", 2)
    nodes.clock.advance(100)
    assert wrong.cells.set(RUN, "cell", 2) == 2


def test_tokens_and_times_grow_over_nodes_whose_clocks_differ_a_little(nodes: Nodes) -> None:
    ahead, behind = ManualClock(), ManualClock()
    ahead.jump(0.9)
    behind.jump(-0.9)
    members = [nodes.open("ahead", clock=ahead), nodes.open("behind", clock=behind), nodes.open("right")]
    tokens: list[int] = []
    for turn in range(12):
        node: holdfast.Workspace = members[turn % 3]
        grant = node.locks.acquire("lock", holder="me")
        tokens.append(grant.token)
        node.locks.release("lock", holder="me", token=grant.token)
        for clock in (ahead, behind, nodes.clock):
            clock.advance(0.1)
    assert tokens == sorted(set(tokens))
    assert_equal(*members)
    times = [event.time for event in members[0].events.list(limit=1000)]
    assert times == sorted(times)


class Asked(LogWrapper):
    """A log that takes long to tell its time: something happens first, once."""

    def __init__(self, log: CommitLog) -> None:
        super().__init__(log)
        self.first: Callable[[], None] | None = None

    def time(self) -> int:
        happens, self.first = self.first, None
        if happens is not None:
            happens()
        return super().time()


def test_a_clock_that_is_corrected_while_the_log_is_asked_writes_the_right_time(nodes: Nodes) -> None:
    log, clock = Asked(nodes.log), ManualClock()
    node = nodes.open("node", log=log, clock=clock)
    node._engine.pulse.stop()
    node.cells.set(RUN, "cell", 1)
    right = node.events.list()[-1].time
    clock.jump(3600)
    log.first = lambda: clock.jump(-3600)
    node.cells.set(RUN, "cell", 2)
    assert node.events.list()[-1].time - right < timedelta(seconds=1)


def test_a_wrong_clock_does_not_write_because_the_log_took_as_long_to_answer(nodes: Nodes) -> None:
    log, clock = Asked(nodes.log), ManualClock()
    node = nodes.open("node", log=log, clock=clock)
    node._engine.pulse.stop()
    node.cells.set(RUN, "cell", 1)
    clock.jump(3600)

    def an_hour_passes() -> None:
        clock.advance(3600)
        nodes.clock.advance(3600)

    log.first = an_hour_passes
    with pytest.raises(errors.ClockSkew) as caught:
        node.cells.set(RUN, "cell", 2)
    assert caught.value.skew == pytest.approx(3600)


def test_a_log_that_always_takes_longer_than_a_second_cannot_confirm_a_clock(nodes: Nodes) -> None:
    class Slow(LogWrapper):
        def time(self) -> int:
            time = super().time()
            if slow:
                clock.advance(1.5)
                nodes.clock.advance(1.5)
            return time

    slow: list[bool] = []
    clock = ManualClock()
    node = nodes.open("node", log=Slow(nodes.log), clock=clock, patience=0.01)
    node._engine.pulse.stop()
    node.cells.set(RUN, "cell", 1)
    clock.advance(5)  # so that it asks again
    nodes.clock.advance(5)
    slow.append(True)
    with pytest.raises(errors.Unreachable, match="too long to compare"):
        node.cells.set(RUN, "cell", 2)
    slow.clear()
    assert node.cells.set(RUN, "cell", 2) == 2


def test_a_clock_that_jumps_while_the_log_is_asked_does_not_write(nodes: Nodes) -> None:
    log, clock = Asked(nodes.log), ManualClock()
    node = nodes.open("node", log=log, clock=clock)
    node._engine.pulse.stop()
    node.cells.set(RUN, "cell", 1)
    clock.advance(5)  # so that it asks again
    nodes.clock.advance(5)
    log.first = lambda: clock.jump(3600)
    with pytest.raises(errors.ClockSkew):
        node.cells.set(RUN, "cell", 2)
