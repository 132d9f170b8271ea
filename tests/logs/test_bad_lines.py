"""Faults of the line on append: a call that answers has happened exactly once, whatever went wrong on the way.

Unreachable and Busy say that nothing has happened, OutcomeUnknown that nobody can say, and then a retry with the same
key makes it exactly once. Nothing hangs.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import holdfast
from holdfast import errors
from holdfast.replication.log import MemoryLog
from holdfast.testing.crowd import LONG, start, together
from holdfast.testing.faulty_log import Fault, FaultyLog, Method
from tests.logs.nodes import LITTLE_PATIENCE, RUN, Nodes, Wire, assert_equal, entries, value

FAULTS: tuple[Fault, ...] = ("unreachable", "conflict", "request lost", "answer lost", "late", "twice")
NOT_DONE = (errors.Unreachable, errors.Busy)

How = Callable[[holdfast.Workspace], object]


def one_call(node: holdfast.Workspace) -> object:
    return node.cells.increment(RUN, "cell")


def one_body(node: holdfast.Workspace) -> object:
    return node.transact(lambda tx: tx.cells.increment(RUN, "cell"))


def one_block(node: holdfast.Workspace) -> object:
    with node.transaction() as tx:
        return tx.cells.increment(RUN, "cell")


WAYS: dict[str, How] = {"call": one_call, "body": one_body, "block": one_block}


class Pair:
    """A node behind a bad line and one behind a good one."""

    def __init__(self, nodes: Nodes) -> None:
        self.good = nodes.open("good")
        self.wire = Wire(nodes.log)
        self.bad = nodes.stale("bad", self.wire)

    def count(self) -> int:
        """How often it has happened, as everybody sees it."""
        assert_equal(self.good, self.bad)
        return int(value(self.good, "cell") or 0)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_strikes_once_leaves_exactly_one_or_says_that_there_is_none(
    nodes: Nodes, fault: Fault, way: str
) -> None:
    pair = Pair(nodes)
    pair.wire.once("append", fault)
    try:
        answer = WAYS[way](pair.bad)
    except (*NOT_DONE, errors.Conflict):  # a block never runs again
        assert fault == "unreachable" or (fault == "conflict" and way == "block")
        expected = 0
    else:
        assert answer == 1
        expected = 1
    pair.wire.deliver()
    assert pair.count() == expected
    assert WAYS[way](pair.bad) == expected + 1
    assert pair.count() == expected + 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_strikes_always_never_hangs_and_never_lies(nodes: Nodes, fault: Fault, way: str) -> None:
    pair = Pair(nodes)
    pair.wire.always("append", fault)
    least = most = 0
    try:
        assert WAYS[way](pair.bad) == 1
        least = most = 1
    except (*NOT_DONE, errors.Conflict):
        assert fault in ("unreachable", "conflict")
    except errors.OutcomeUnknown:
        assert fault in ("request lost", "late")
        most = 1
    assert least <= pair.count() <= most
    pair.wire.deliver()
    assert least <= pair.count() <= most
    before = pair.count()
    pair.wire.heal()
    assert WAYS[way](pair.bad) == before + 1
    pair.wire.deliver()
    assert pair.count() == before + 1


@pytest.mark.parametrize("delivered", ["never", "before the retry", "after the retry"])
@pytest.mark.parametrize("fault", ["request lost", "late"])
def test_after_an_unknown_outcome_a_retry_with_the_same_key_makes_it_exactly_one(
    nodes: Nodes, fault: Fault, delivered: str
) -> None:
    pair = Pair(nodes)
    keyed = pair.bad.using(key="once")
    pair.wire.always("append", fault)
    with pytest.raises(errors.OutcomeUnknown):
        keyed.cells.increment(RUN, "cell")
    pair.wire.heal()
    if delivered == "before the retry":
        pair.wire.deliver()
    assert keyed.cells.increment(RUN, "cell") == 1
    if delivered == "after the retry":
        pair.wire.deliver()
    assert pair.good.using(actor="bad", key="once").cells.increment(RUN, "cell") == 1
    assert pair.count() == 1


def test_an_unknown_outcome_is_known_to_the_next_call_on_any_node(nodes: Nodes) -> None:
    pair = Pair(nodes)
    pair.wire.always("append", "answer lost")
    pair.wire.always("tail", "lagging")  # so that it cannot be looked up either
    with pytest.raises(errors.OutcomeUnknown):
        pair.bad.cells.increment(RUN, "cell")
    assert pair.good.cells.increment(RUN, "cell") == 2
    pair.wire.heal()
    assert pair.bad.cells.increment(RUN, "cell") == 3
    assert pair.count() == 3


def test_late_entries_that_arrive_when_others_have_moved_on_have_no_effect(nodes: Nodes) -> None:
    pair = Pair(nodes)
    pair.wire.always("append", "late")
    with pytest.raises(errors.OutcomeUnknown):
        pair.bad.cells.set(RUN, "cell", "late")
    pair.good.cells.set(RUN, "cell", "meanwhile")
    pair.wire.deliver()
    assert pair.bad.using(at_least="latest").cells.get(RUN, "cell").value == "meanwhile"
    assert [entry.value for entry in pair.good.cells.history(RUN, "cell")] == ["meanwhile"]
    assert_equal(pair.good, pair.bad)


def test_an_entry_that_another_node_overtook_while_it_was_in_doubt_runs_again(nodes: Nodes) -> None:
    pair = Pair(nodes)
    moved: list[bool] = []

    def fault(method: Method) -> Fault | None:
        if method != "append" or moved:
            return None
        moved.append(True)
        start(lambda: pair.good.cells.set(RUN, "cell", 10)).result(LONG)
        return "request lost"

    bad = nodes.stale("third", FaultyLog(nodes.log, fault))
    assert bad.cells.increment(RUN, "cell") == 11
    assert [entry.op for entry in pair.good.using(at_least="latest").cells.history(RUN, "cell")] == ["increment", "set"]


@pytest.mark.parametrize("fault", ["twice", "conflict"])
def test_an_entry_refused_although_it_is_there_or_nobody_was_first_happens_once_also_if_the_tail_lags(
    nodes: Nodes, fault: Fault
) -> None:
    pair = Pair(nodes)
    pair.wire.once("append", fault)
    pair.wire.once("tail", "lagging", "lagging", "lagging")
    assert pair.bad.cells.increment(RUN, "cell") == 1
    assert pair.count() == 1


def test_a_log_that_always_says_conflict_ends_in_busy_and_in_a_new_node_too(nodes: Nodes) -> None:
    pair = Pair(nodes)
    pair.wire.always("append", "conflict")
    runs: list[int] = []

    def body(tx: holdfast.Transaction) -> None:
        runs.append(tx.cells.increment(RUN, "cell"))  # type: ignore[arg-type]

    with pytest.raises(errors.Busy):
        pair.bad.transact(body)
    assert len(runs) > 1
    assert set(runs) == {1}
    empty = Wire(MemoryLog(clock=nodes.clock))
    empty.always("append", "conflict")
    with pytest.raises(errors.Busy):
        nodes.open("new", empty)
    assert entries(empty) == []


@pytest.mark.parametrize("fault", ["request lost", "answer lost", "late", "twice"])
def test_a_workspace_is_made_over_a_bad_line_and_is_one(nodes: Nodes, fault: Fault) -> None:
    wire = Wire(nodes.log)
    wire.once("append", fault)
    bad = nodes.open("bad", wire)
    bad.cells.set(RUN, "cell", 1)
    wire.deliver()
    assert_equal(bad, nodes.open("good"))
    assert len({entry.workspace for entry in entries(nodes.log)}) == 1


@pytest.mark.parametrize("fault", ["request lost", "late"])
def test_an_opening_whose_migration_got_no_answer_is_unreachable_and_can_be_tried_again(
    nodes: Nodes, fault: Fault
) -> None:
    wire = Wire(nodes.log)
    wire.always("append", fault)
    with pytest.raises(errors.Unreachable):
        nodes.open("bad", wire, patience=LITTLE_PATIENCE)
    wire.heal()
    wire.deliver()
    bad = nodes.open("bad", wire)
    assert bad.cells.set(RUN, "cell", 1) == 1
    assert_equal(bad, nodes.open("good"))
    assert len({entry.workspace for entry in entries(nodes.log)}) == 1


def test_many_writers_over_lines_that_do_everything_wrong_now_and_then_lose_nothing_and_repeat_nothing(
    nodes: Nodes,
) -> None:
    faults: tuple[Fault | None, ...] = (None, "answer lost", None, "twice", "request lost", None, "conflict", "late")

    def wrong(number: int) -> Callable[[Method], Fault | None]:
        turn = [number]

        def choose(method: Method) -> Fault | None:
            if method != "append":
                return None
            turn[0] += 1
            return faults[turn[0] % len(faults)]

        return choose

    opened = nodes.open("good")
    lines = [FaultyLog(nodes.log, wrong(number)) for number in range(3)]
    members = [nodes.open(f"bad {number}", line) for number, line in enumerate(lines)]

    def work(node: holdfast.Workspace) -> Callable[[], int]:
        def run() -> int:
            done = 0
            for number in range(20):
                keyed = node.using(key=f"key {number}")
                for _ in range(20):
                    try:
                        keyed.cells.increment(RUN, "cell")
                        done += 1
                        break
                    except (errors.OutcomeUnknown, errors.Busy):
                        continue
            return done

        return run

    assert together(*(work(node) for node in members)) == [20, 20, 20]
    for line in lines:
        line.deliver()
    assert_equal(opened, *members)
    assert value(opened, "cell") == 60
