"""Several handles on one replica, as the programs of one machine would have: they share its file and its place."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import holdfast
from holdfast.replication.log import LogWrapper
from holdfast.testing.crowd import LONG, start, together
from tests.logs.nodes import RUN, Nodes, Wire, assert_equal, entries, eventually, value, write


def appends(node: holdfast.Workspace) -> int:
    """How many entries a node has appended."""
    state = node.node_state()
    assert state is not None
    return state.appends


def test_what_one_handle_wrote_the_next_one_reads_without_the_log(nodes: Nodes) -> None:
    first, wire = nodes.stale("a"), Wire(nodes.log)
    second = nodes.stale("a", wire)
    first.cells.set(RUN, "cell", 1)
    wire.cut()
    assert value(second, "cell") == 1
    assert second.using(at_least=1).cells.get(RUN, "cell").value == 1


def test_calls_that_come_while_a_group_waits_for_the_log_join_it(nodes: Nodes) -> None:
    asked, answer = threading.Event(), threading.Event()
    first = threading.Thread(target=lambda: node.cells.increment(RUN, "cell"))

    class Slow(LogWrapper):
        def tail(self, after: int) -> Sequence[tuple[int, bytes]]:
            if threading.current_thread() is first:
                asked.set()
                assert answer.wait(LONG)
            return super().tail(after)

    node = nodes.stale("a", Slow(nodes.log))
    node.cells.set(RUN, "cell", 0)
    before = appends(node)
    first.start()
    assert asked.wait(LONG)
    others = [threading.Thread(target=lambda: node.cells.increment(RUN, "cell")) for _ in range(5)]
    for other in others:
        other.start()
    eventually(lambda: len(node._engine.group._queue) == len(others))
    answer.set()
    for thread in (first, *others):
        thread.join(LONG)
    assert value(node, "cell") == 6
    assert appends(node) == before + 1


def test_handles_on_one_replica_and_another_node_lose_nothing(nodes: Nodes) -> None:
    handles = [nodes.open("a"), nodes.open("a"), nodes.open("b")]

    def work(node: holdfast.Workspace) -> None:
        for _ in range(25):
            node.cells.increment(RUN, "cell")

    together(*(lambda node=node: work(node) for node in handles))
    assert_equal(*handles)
    assert value(handles[0], "cell") == 75


def test_a_handle_goes_on_from_where_another_one_has_brought_the_replica(nodes: Nodes) -> None:
    first, second = nodes.stale("a"), nodes.stale("a")
    other = nodes.engine("b", snapshot_every=5, pulse=False)
    for turn in range(5):
        assert first.cells.increment(RUN, "mine") == 2 * turn + 1
        write(other, 12)
        assert second.cells.increment(RUN, "mine") == 2 * turn + 2
    assert_equal(first, second, other)


def test_a_handle_that_slept_while_another_followed_and_the_log_was_trimmed_goes_on_by_itself(nodes: Nodes) -> None:
    wire = Wire(nodes.log)
    awake, asleep = nodes.stale("a"), nodes.open("a", wire)
    other = nodes.engine("b", snapshot_every=5, pulse=False)
    wire.cut()
    write(other, 40)
    awake.using(at_least="latest").reach()
    wire.heal()
    with asleep.watch() as events:
        write(other, 1)
        assert start(lambda: next(events)).result(LONG / 12).version == 41
    eventually(lambda: value(asleep, "cell") == 41, patience=5)


def test_a_watcher_of_one_handle_hears_what_another_handle_brought(nodes: Nodes) -> None:
    first, second, other = nodes.open("a"), nodes.open("a"), nodes.open("b")
    with second.watch() as events:
        first.cells.set(RUN, "cell", 1)
        other.cells.set(RUN, "cell", 2)
        assert start(lambda: [next(events).version for _ in range(2)]).result(LONG) == [1, 2]


def test_opening_a_replica_that_is_open_already_appends_nothing(nodes: Nodes) -> None:
    first = nodes.open("a")
    first.cells.set(RUN, "cell", 1)
    before = len(entries(nodes.log))
    second = nodes.open("a")
    assert value(second, "cell") == 1
    assert len(entries(nodes.log)) == before
