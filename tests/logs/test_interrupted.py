"""The log has it, but this node could not write its replica, or was interrupted: nothing is lost, nothing runs twice.

Whoever asked is told that the outcome is unknown, or what it is; the node has it with its next call.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from threading import get_ident

import apsw
import pytest

import holdfast
from holdfast import errors
from holdfast.kernel import failpoints
from holdfast.testing.crowd import LONG, Line, start
from tests.e2e.faulty_vfs import NAME, Disk, Fault, faulty_disk
from tests.logs.nodes import RUN, Nodes, assert_equal, at, entries, journal, raising, value, write

IN_A_WRITE = ("batch.begin", "batch.ran", "log.append", "log.appended", "batch.commit", "batch.committed")
AFTER_THE_LOG = ("log.appended", "batch.commit", "batch.committed")


@pytest.fixture
def disk() -> Iterator[Disk]:
    """A disk that fails on demand."""
    with faulty_disk() as disk:
        yield disk


def count_in_log(nodes: Nodes) -> int:
    """How often the counter was changed, as a new node learns it from the log."""
    return int(value(nodes.open(f"judge {len(entries(nodes.log))}"), "cell") or 0)


# --- the local commit fails ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [apsw.IOError, apsw.FullError, apsw.BusyError])
def test_a_commit_that_fails_after_the_append_is_an_unknown_outcome_that_the_next_call_knows(
    nodes: Nodes, error: type[apsw.Error]
) -> None:
    a, b = nodes.stale("a"), nodes.stale("b")
    with at("batch.commit", raising(error("the disk")), get_ident()), pytest.raises(errors.OutcomeUnknown):
        a.cells.increment(RUN, "cell")
    assert value(a, "cell") is None
    assert b.using(at_least="latest").cells.get(RUN, "cell").value == 1
    assert a.cells.increment(RUN, "cell") == 2
    assert_equal(a, b)
    assert [entry.op for entry in a.cells.history(RUN, "cell")] == ["increment", "increment"]


def test_a_retry_with_the_same_key_after_a_commit_that_failed_gets_the_first_answer(nodes: Nodes) -> None:
    a, b = nodes.stale("a"), nodes.stale("b")
    keyed = a.using(key="once")
    with at("batch.commit", raising(apsw.IOError("the disk")), get_ident()), pytest.raises(errors.OutcomeUnknown):
        keyed.cells.increment(RUN, "cell")
    assert keyed.cells.increment(RUN, "cell") == 1
    assert_equal(a, b)


def test_everybody_in_the_group_of_a_commit_that_failed_is_told_that_it_is_unknown(nodes: Nodes) -> None:
    a = nodes.stale("a")
    with Line(a) as line:
        waiting = [line.queue(lambda: a.cells.increment(RUN, "cell")) for _ in range(5)]
        failpoints.hook = _at_the_second_commit(apsw.FullError("the disk"))
    try:
        for call in waiting:
            with pytest.raises(errors.OutcomeUnknown):
                call.result(LONG)
    finally:
        failpoints.hook = None
    assert a.cells.increment(RUN, "cell") == 6
    assert count_in_log(nodes) == 6


def _at_the_second_commit(error: Exception) -> Callable[[str], None]:
    """The body that holds up the line changes nothing, so the first commit is that of those behind it."""
    act = raising(error)

    def hook(name: str) -> None:
        if name == "batch.commit":
            act()

    return hook


@pytest.mark.parametrize("read_before", [True, False])  # whether another connection has the file open
@pytest.mark.parametrize("wrong", [errno.EIO, errno.ENOSPC])
def test_on_a_disk_that_fails_at_any_write_nothing_acknowledged_is_lost_and_nothing_happens_twice(
    nodes: Nodes, disk: Disk, wrong: int, read_before: bool
) -> None:
    a = nodes.engine("a", vfs=NAME, pulse=False)
    if read_before:
        assert a.revision == 0
    done, unknown, refused = 0, 0, 0
    for number in range(1, 40):
        with disk.failing(Fault("write", number, wrong, lasting=True)):
            try:
                a.transact(lambda tx: [tx.cells.increment(RUN, "cell"), tx.cells.set(RUN, "large", b"x" * 30_000)])
                done += 1
            except errors.OutcomeUnknown:
                unknown += 1
            except (errors.DiskFull, errors.IOFailed):
                refused += 1
        if disk.hits == 0:
            break
    assert (done, unknown) > (0, 0)
    found = a.cells.increment(RUN, "cell") - 1
    assert done <= found <= done + unknown
    assert count_in_log(nodes) == found + 1
    assert a.check().problems == []


# --- interrupts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", IN_A_WRITE)
def test_a_body_interrupted_anywhere_does_not_happen_twice(nodes: Nodes, place: str) -> None:
    a = nodes.stale("a")
    runs: list[int] = []

    def body(tx: holdfast.Transaction) -> None:
        runs.append(int(tx.cells.increment(RUN, "cell")))

    with at(place, raising(KeyboardInterrupt()), get_ident()) as reached, pytest.raises(KeyboardInterrupt):
        a.transact(body)
    assert place in reached
    assert len(runs) <= 1
    expected = int(place in AFTER_THE_LOG)
    assert a.cells.increment(RUN, "cell") == expected + 1
    assert count_in_log(nodes) == expected + 1


@pytest.mark.parametrize("place", IN_A_WRITE)
def test_a_leader_interrupted_anywhere_tells_its_followers_nothing_untrue(nodes: Nodes, place: str) -> None:
    a = nodes.stale("a")
    interrupt = raising(KeyboardInterrupt())
    free: list[bool] = []

    def hook(name: str) -> None:
        if name == "batch.ran" and not free:  # that of whoever holds up the line
            free.append(True)
        elif name == place and free:
            interrupt()

    try:
        with Line(a) as line:
            waiting = [line.queue(lambda: a.cells.increment(RUN, "cell")) for _ in range(5)]
            failpoints.hook = hook
        told = [_told(call) for call in waiting]
    finally:
        failpoints.hook = None
    done = [answer for answer in told if isinstance(answer, int)]
    unsure = [answer for answer in told if isinstance(answer, errors.OutcomeUnknown | KeyboardInterrupt)]
    assert len(done) + len(unsure) == 5, told
    assert len(set(done)) == len(done)
    found = count_in_log(nodes)
    assert len(done) <= found <= len(done) + len(unsure)
    assert set(done) <= set(range(1, found + 1))
    assert a.cells.increment(RUN, "cell") == found + 1


def _told(call: Future[int | float]) -> int | float | BaseException:
    try:
        return call.result(LONG)
    except BaseException as error:
        return error


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ("log.fetched", KeyboardInterrupt()),
        ("log.applied", KeyboardInterrupt()),
        ("log.applied", apsw.IOError("the disk")),
        ("log.applied", apsw.FullError("the disk")),
    ],
)
def test_following_that_is_interrupted_goes_on_later(nodes: Nodes, place: str, error: BaseException) -> None:
    a, b = nodes.stale("a"), nodes.stale("b")
    for _ in range(5):
        a.cells.increment(RUN, "cell")
    with (
        at(place, raising(error), get_ident()),
        pytest.raises((KeyboardInterrupt, errors.IOFailed, errors.DiskFull)),
    ):
        b.cells.increment(RUN, "cell")
    assert b.cells.increment(RUN, "cell") == 6
    assert_equal(a, b)


@pytest.mark.parametrize("place", ["snapshot.made", "snapshot.put", "snapshot.announced"])
def test_a_snapshot_that_is_interrupted_disturbs_nobody_and_is_made_another_time(nodes: Nodes, place: str) -> None:
    a, b = nodes.engine("a", snapshot_every=5, pulse=False), nodes.stale("b")
    with at(place, raising(KeyboardInterrupt()), get_ident()) as reached:
        for _ in range(8):
            try:
                a.cells.increment(RUN, "cell")
                journal(a).maintain()
            except KeyboardInterrupt:
                continue
    assert place in reached
    write(a, 30)
    assert_equal(a, b, nodes.open("late"))


@pytest.mark.parametrize("place", ["snapshot.fetched", "snapshot.installed"])
@pytest.mark.parametrize("new", [True, False])
def test_joining_that_is_interrupted_is_done_another_time(nodes: Nodes, place: str, new: bool) -> None:
    a = nodes.engine("a", snapshot_every=5, pulse=False)
    if not new:
        nodes.open("b").close()
    write(a, 30)
    with at(place, raising(KeyboardInterrupt()), get_ident()), pytest.raises(KeyboardInterrupt):
        nodes.open("b")
    assert_equal(a, nodes.open("b"))


@pytest.mark.parametrize("place", ["migration.apply", "migration.committed"])
def test_making_a_workspace_that_is_interrupted_is_done_another_time(nodes: Nodes, place: str) -> None:
    with at(place, raising(KeyboardInterrupt()), get_ident()), pytest.raises(KeyboardInterrupt):
        nodes.open("a")
    a, b = nodes.open("a"), nodes.open("b")
    a.cells.set(RUN, "cell", 1)
    assert_equal(a, b)
    assert len({entry.workspace for entry in entries(nodes.log)}) == 1


# --- blocks ----------------------------------------------------------------------------------------------------------


def one_block(node: holdfast.Workspace) -> None:
    """A block that writes."""
    with node.transaction() as tx:
        tx.cells.increment(RUN, "cell")


def test_a_block_whose_commit_fails_after_the_append_is_an_unknown_outcome(nodes: Nodes) -> None:
    a = nodes.stale("a")
    with at("batch.commit", raising(apsw.IOError("the disk")), get_ident()), pytest.raises(errors.OutcomeUnknown):
        one_block(a)
    assert a.cells.increment(RUN, "cell") == 2


@pytest.mark.parametrize("place", IN_A_WRITE)
def test_a_block_interrupted_anywhere_leaves_the_node_usable(nodes: Nodes, place: str) -> None:
    a = nodes.stale("a")
    with at(place, raising(KeyboardInterrupt()), get_ident()), pytest.raises(KeyboardInterrupt):
        one_block(a)
    expected = int(place in AFTER_THE_LOG)
    assert start(lambda: a.cells.increment(RUN, "cell")).result(LONG) == expected + 1
    assert count_in_log(nodes) == expected + 1
