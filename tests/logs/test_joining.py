"""Snapshots, trimming and joining: a node can start anywhere, fall behind as far as it likes, and ends equal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import get_ident

import pytest

import holdfast
from holdfast import errors
from holdfast.kernel.migrations import known
from holdfast.replication.log import Changes, CommitLog, MemoryLog, Snapshotted, Trimmed
from holdfast.testing.crowd import LONG, start, together
from holdfast.testing.faulty_log import Fault, Method
from tests.logs.nodes import (
    RUN,
    Nodes,
    Wire,
    assert_equal,
    at,
    entries,
    eventually,
    journal,
    noise,
    once,
    raw_entries,
    value,
    write,
)


def snapshots(log: CommitLog) -> list[Snapshotted]:
    """The snapshots that a log still tells of."""
    return [entry for entry in entries(log) if isinstance(entry, Snapshotted)]


def start_of(log: CommitLog) -> int:
    """The position up to which a log has been trimmed."""
    try:
        log.tail(0)
    except Trimmed as trimmed:
        return trimmed.oldest
    return 0


# --- what is too large for an entry ----------------------------------------------------------------------------------


def test_values_too_large_for_an_entry_arrive_whole(nodes: Nodes) -> None:
    a, b = nodes.open("a"), nodes.open("b")
    large = {f"cell {size}": noise(size) for size in (70_000, 500_000, 1_048_000)}
    for cell, content in large.items():
        a.cells.set(RUN, cell, content)
    a.transact(lambda tx: [tx.cells.set(RUN, f"{cell} again", content) for cell, content in large.items()])
    assert all(len(raw) <= nodes.log.max_entry for _, raw in raw_entries(nodes.log))
    assert sum(isinstance(entry, Changes) and bool(entry.blob) for entry in entries(nodes.log)) == 4
    assert_equal(a, b, nodes.open("late"))
    assert {cell: value(b, cell) for cell in large} == large


def test_an_entry_is_put_into_a_blob_exactly_when_it_is_too_large(nodes: Nodes) -> None:
    nodes.log = MemoryLog(clock=nodes.clock, max_entry=1000)
    a, b = nodes.open("a"), nodes.stale("b")
    for size in range(300, 1000, 7):
        a.cells.set(RUN, "cell", noise(size))
    in_blobs = [bool(entry.blob) for entry in entries(nodes.log) if isinstance(entry, Changes)]
    assert in_blobs == sorted(in_blobs)
    assert {True, False} == set(in_blobs)
    assert max(len(raw) for _, raw in raw_entries(nodes.log)) > 980
    assert_equal(a, b)


# --- making snapshots and trimming -----------------------------------------------------------------------------------


def test_snapshots_are_made_by_themselves_and_the_log_is_trimmed(nodes: Nodes) -> None:
    a = nodes.engine("a", snapshot_every=5)
    made: set[str] = set()

    def another() -> bool:
        before = len(made)
        made.update(entry.id for entry in snapshots(nodes.log))
        return len(made) > before

    for _ in range(3):
        for _ in range(6):
            a.cells.increment(RUN, "cell")
        eventually(another)
    eventually(lambda: start_of(nodes.log) > 0)
    assert_equal(a, nodes.open("b"))


def test_the_log_is_trimmed_to_the_last_snapshot_but_one_whose_blob_is_kept(nodes: Nodes) -> None:
    a = nodes.engine("a", snapshot_every=5, pulse=False)
    seen: dict[str, Snapshotted] = {}
    for _ in range(30):
        write(a, 1)
        seen |= {entry.id: entry for entry in snapshots(nodes.log)}
        made = list(seen.values())
        assert start_of(nodes.log) == (made[-2].position if len(made) > 1 else 0)
        for entry in made[-2:]:
            assert nodes.log.get(entry.blob)
        for entry in made[:-2]:
            with pytest.raises(KeyError):
                nodes.log.get(entry.blob)
    assert len(seen) == 6
    assert [entry.position for entry in seen.values()] == sorted(entry.position for entry in seen.values())


def test_only_one_of_many_nodes_makes_the_snapshot_that_is_due(nodes: Nodes) -> None:
    members = [nodes.engine(name, snapshot_every=6, pulse=False) for name in "abc"]
    for turn in range(36):
        write(members[turn % 3], 1)
    positions = [entry.position for entry in snapshots(nodes.log)]
    assert len(positions) == len(set(positions)) == 2
    assert nodes.log.head() <= known() + 36 + 6
    assert_equal(*members)


def test_a_snapshot_that_others_have_passed_by_is_not_announced(nodes: Nodes) -> None:
    every = known() + 2  # so that one is due after the migrations and before the fourth write
    a = nodes.engine("a", snapshot_every=every, pulse=False)
    b = nodes.engine("b", snapshot_every=every, pulse=False)
    for _ in range(4):
        a.cells.increment(RUN, "cell")
    assert journal(a).needs_upkeep()
    journal(a).maintain()  # made, and not yet announced
    for _ in range(30):
        write(b, 1)
    a.cells.increment(RUN, "cell")
    for entry in snapshots(nodes.log):
        assert nodes.log.get(entry.blob)
    assert_equal(a, b, nodes.open("late"))


@pytest.mark.parametrize("fault", ["conflict", "request lost", "answer lost", "late", "twice", "unreachable"])
def test_a_snapshot_that_cannot_be_announced_is_announced_later_and_disturbs_nobody(nodes: Nodes, fault: Fault) -> None:
    wire = Wire(nodes.log)
    a = nodes.engine("a", wire, snapshot_every=known() + 2, pulse=False)
    for _ in range(4):
        a.cells.increment(RUN, "cell")
    assert journal(a).needs_upkeep()
    journal(a).maintain()
    wire.once("append", *[fault] * 6)
    for _ in range(10):
        try:
            a.cells.increment(RUN, "count")
        except (errors.Unreachable, errors.OutcomeUnknown):
            continue
    wire.heal()
    wire.deliver()
    a.cells.increment(RUN, "cell")
    assert len(snapshots(nodes.log)) == 1
    b = nodes.open("b")
    assert_equal(a, b)
    assert value(b, "cell") == 5


@pytest.mark.parametrize("method", ["put", "trim"])
def test_a_log_that_keeps_no_blob_or_does_not_trim_just_now_is_asked_again(nodes: Nodes, method: Method) -> None:
    wire = Wire(nodes.log)
    a = nodes.engine("a", wire, snapshot_every=5)
    wire.always(method, "unreachable")
    done = 0
    for _ in range(30):
        try:
            a.cells.increment(RUN, "cell")
            done += 1
        except errors.Unreachable:
            continue
    wire.heal()

    def trimmed() -> bool:
        a.cells.increment(RUN, "cell")
        return start_of(nodes.log) > 0

    eventually(trimmed)
    assert int(value(a, "cell")) > done
    assert_equal(a, nodes.open("b"))


# --- joining ---------------------------------------------------------------------------------------------------------


def test_a_node_joins_a_log_without_snapshot_from_its_start(nodes: Nodes) -> None:
    a = nodes.open("a")
    for number in range(30):
        a.cells.set(RUN, f"cell {number}", number)
    assert snapshots(nodes.log) == []
    assert_equal(a, nodes.open("b"))


def test_a_node_joins_from_the_newest_snapshot_and_reads_on_from_there(nodes: Nodes) -> None:
    a = nodes.engine("a", snapshot_every=5, pulse=False)
    write(a, 28)
    newest = snapshots(nodes.log)[-1]
    asked: list[int] = []

    class Listening(Wire):
        def get(self, ref: str) -> bytes:
            asked.append(int(ref == newest.blob))
            return super().get(ref)

    with at("log.fetched", lambda: None, get_ident()) as reached:
        b = nodes.open("b", Listening(nodes.log))
    assert asked == [1]
    assert [name for name in reached if name.startswith(("snapshot", "log.f"))] == [
        "snapshot.fetched",
        "snapshot.installed",
        "log.fetched",
    ]
    assert_equal(a, b)


def test_nodes_that_join_while_others_write_and_trim_end_equal(nodes: Nodes) -> None:
    a = nodes.engine("a", snapshot_every=5)
    b = nodes.engine("b", snapshot_every=5)

    def busy(node: holdfast.Workspace) -> Callable[[], holdfast.Workspace]:
        def run() -> holdfast.Workspace:
            for number in range(60):
                node.cells.set(RUN, f"cell {number}", noise(2000 * (number % 40)))
                node.cells.increment(RUN, "count")
            return node

        return run

    def late(name: str) -> Callable[[], holdfast.Workspace]:
        return lambda: nodes.open(name)

    found = together(busy(a), busy(b), *(late(f"late {number}") for number in range(4)))
    assert_equal(*found)
    assert value(found[-1], "count") == 120


def test_a_snapshot_that_is_gone_when_a_joining_node_wants_it_is_no_obstacle(nodes: Nodes) -> None:
    a = nodes.engine("a", snapshot_every=5, pulse=False)
    write(a, 12)

    class Slow(Wire):
        def get(self, ref: str) -> bytes:
            move()
            return super().get(ref)

    move = once(lambda: start(lambda: write(a, 30)).result(LONG))
    b = nodes.open("b", Slow(nodes.log))
    assert_equal(a, b)


def test_joining_a_log_whose_tail_repeats_itself_comes_to_an_end(nodes: Nodes) -> None:
    a = nodes.engine("a", snapshot_every=5, pulse=False)
    write(a, 12)

    class Patient(Wire):
        left = 500

        def tail(self, after: int) -> Sequence[tuple[int, bytes]]:
            self.left -= 1
            assert self.left, "asked for the tail 500 times"
            return super().tail(after)

    wire = Patient(nodes.log)
    wire.always("tail", "repeated")
    assert_equal(a, nodes.open("b", wire))


@pytest.mark.parametrize("times", [1, 2, 3, 4])
def test_joining_a_trimmed_log_whose_tail_lags_for_a_while_is_no_corruption(nodes: Nodes, times: int) -> None:
    a = nodes.engine("a", snapshot_every=5, pulse=False)
    write(a, 30)
    assert start_of(nodes.log) > 0

    class Lagging(Wire):
        left = times

        def tail(self, after: int) -> Sequence[tuple[int, bytes]]:
            page = super().tail(after)
            if page and self.left:
                self.left -= 1
                return ()
            return page

    assert_equal(a, nodes.open("b", Lagging(nodes.log)))


# --- falling behind --------------------------------------------------------------------------------------------------


def test_a_node_that_was_away_longer_than_the_log_reaches_back_joins_by_itself_when_it_is_asked(nodes: Nodes) -> None:
    a = nodes.engine("a", snapshot_every=5, pulse=False)
    b = nodes.stale("b")
    assert b.cells.increment(RUN, "cell") == 1
    position = nodes.log.head()
    write(a, 40)
    assert start_of(nodes.log) > position
    assert value(b, "cell") == 1
    assert b.cells.increment(RUN, "cell") == 42
    assert_equal(a, b)


def test_a_node_that_was_away_longer_than_the_log_reaches_back_joins_when_it_is_opened(nodes: Nodes) -> None:
    a = nodes.engine("a", snapshot_every=5, pulse=False)
    nodes.open("b").close()
    write(a, 40)
    assert_equal(a, nodes.open("b"))


def test_a_node_that_was_cut_off_longer_than_the_log_reaches_back_follows_by_itself_once_it_is_healed(
    nodes: Nodes,
) -> None:
    a = nodes.engine("a", snapshot_every=5, pulse=False)
    wire = Wire(nodes.log)
    b = nodes.open("b", wire)
    wire.cut()
    write(a, 40)
    wire.heal()
    eventually(lambda: value(b, "cell") == 40)
    write(a, 1)
    eventually(lambda: value(b, "cell") == 41)


def test_watchers_of_a_node_that_joined_anew_go_on_without_a_gap(nodes: Nodes) -> None:
    a = nodes.engine("a", snapshot_every=5, pulse=False)
    b = nodes.stale("b")
    b.cells.increment(RUN, "cell")
    with b.watch(after=0) as all_events, b.watch() as from_now, b.cells.watch_stream(RUN, "cell") as changes:
        assert next(all_events).version == 1
        write(a, 40)
        b.using(at_least="latest").reach()
        for events in (all_events, from_now):
            assert [next(events).version for _ in range(40)] == list(range(2, 42))
        assert [next(changes).new for _ in range(40)] == list(range(2, 42))
        b.cells.increment(RUN, "cell")
        assert (next(all_events).version, next(from_now).version, next(changes).new) == (42, 42, 42)


def test_watchers_of_a_node_that_joined_anew_are_told_if_what_they_missed_was_compacted(nodes: Nodes) -> None:
    a = nodes.engine("a", snapshot_every=5, pulse=False)
    b = nodes.stale("b")
    b.cells.increment(RUN, "cell")
    with b.watch() as events:
        assert events._watcher.take() is None
        write(a, 20)
        a.events.compact(before=a.revision)
        write(a, 20)
        b.using(at_least="latest").reach()
        with pytest.raises(errors.Compacted):
            next(events)
    assert_equal(a, b)


def test_readers_of_a_node_that_joins_anew_see_the_old_state_until_it_is_done(nodes: Nodes) -> None:
    a = nodes.engine("a", snapshot_every=5, pulse=False)
    b = nodes.stale("b")
    b.cells.increment(RUN, "cell")
    b.using(at_least="latest").reach()
    write(a, 40)
    seen: list[int] = []

    def look() -> None:
        seen.append(start(lambda: value(b, "cell")).result(LONG))

    with at("snapshot.fetched", look, get_ident()):
        b.using(at_least="latest").reach()
    assert seen == [1]
    assert value(b, "cell") == 41


def test_a_blob_that_is_gone_when_its_entry_is_applied_makes_the_node_join_anew(nodes: Nodes) -> None:
    a = nodes.engine("a", snapshot_every=5, pulse=False)
    b = nodes.stale("b")
    a.cells.set(RUN, "large", noise(100_000))
    overtake = once(lambda: start(lambda: write(a, 40)).result(LONG))
    with at("log.fetched", overtake, get_ident()):
        assert b.cells.increment(RUN, "cell") == 41
    assert_equal(a, b)


def test_positions_that_have_gaps_are_positions_too(nodes: Nodes) -> None:
    class Sparse(MemoryLog):
        """Opaque positions: every third."""

        def append(self, entry: bytes, expected: int) -> int:
            with self._lock:
                if expected == self._end:
                    self._end += 2
                    expected = self._end
            return super().append(entry, expected)

    nodes.log = Sparse(clock=nodes.clock)
    a = nodes.engine("a", snapshot_every=5, pulse=False)
    b = nodes.stale("b")
    a.cells.set(RUN, "large", noise(100_000))
    assert b.cells.increment(RUN, "cell") == 1
    write(a, 40)
    assert b.cells.increment(RUN, "cell") == 42
    assert [position % 3 for position, _ in raw_entries(nodes.log)] == [0] * len(raw_entries(nodes.log))
    assert_equal(a, b, nodes.open("late"))
