"""A backup becomes the first snapshot of an empty log, and a backup of a replica becomes a workspace of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast import errors
from holdfast.replication.log import MemoryLog, Snapshotted
from holdfast.testing.crowd import together
from holdfast.testing.faulty_log import Fault
from tests.logs.nodes import RUN, Nodes, Wire, assert_equal, entries, value, write
from tests.worlds.contents import contents


@pytest.fixture
def backup(nodes: Nodes, tmp_path: Path) -> Path:
    """The backup of a workspace of its own."""
    with holdfast.open(nodes.path("plain"), actor="me", clock=nodes.clock) as ws:
        for number in range(5):
            ws.cells.set(RUN, f"cell {number}", number)
        ws.locks.acquire("lock")
        return ws.backup(tmp_path / "backup")


def restore(nodes: Nodes, backup: Path, name: str, log: holdfast.CommitLog) -> int:
    """Restore into a log."""
    return holdfast.restore(backup, nodes.path(name), clock=nodes.clock, log=log)


def test_a_backup_restored_into_an_empty_log_is_a_workspace_that_others_join(nodes: Nodes, backup: Path) -> None:
    revision = restore(nodes, backup, "a", nodes.log)
    assert [type(entry) for entry in entries(nodes.log)] == [Snapshotted]
    late = nodes.open("late")  # before the first replica is even opened
    a = nodes.open("a")
    assert a.revision == late.revision == revision > 10**9
    assert_equal(a, late)
    assert late.cells.increment(RUN, "cell 4") == 5
    assert a.cells.increment(RUN, "cell 4") == 6
    with pytest.raises(errors.Held):
        late.locks.acquire("lock", holder="thief")
    assert_equal(a, late, nodes.open("later"))
    assert len({entry.workspace for entry in entries(nodes.log)}) == 1


def test_the_first_replica_is_at_its_place_in_the_log_from_the_start(nodes: Nodes, backup: Path) -> None:
    restore(nodes, backup, "a", nodes.log)
    wire = Wire(nodes.log)
    a = nodes.stale("a", wire)
    assert "get" not in wire.calls
    assert a.cells.increment(RUN, "cell 4") == 5


def test_a_log_that_holds_a_workspace_is_refused_and_left_as_it_is(nodes: Nodes, backup: Path) -> None:
    nodes.open("other").cells.set(RUN, "theirs", 1)
    before = entries(nodes.log)
    with pytest.raises(errors.Exists):
        restore(nodes, backup, "a", nodes.log)
    assert entries(nodes.log) == before
    assert not (nodes.path("a") / "holdfast.db").exists()


def test_a_folder_that_holds_a_workspace_is_refused_and_so_is_what_is_no_backup(nodes: Nodes, backup: Path) -> None:
    with pytest.raises(errors.Exists):
        restore(nodes, backup, "plain", nodes.log)
    (nodes.folder / "no backup").write_bytes(b"x" * 4096)
    with pytest.raises(errors.Invalid):
        restore(nodes, nodes.folder / "no backup", "a", nodes.log)
    assert entries(nodes.log) == []


def test_over_a_cut_line_nothing_is_restored(nodes: Nodes, backup: Path) -> None:
    wire = Wire(nodes.log)
    wire.cut()
    with pytest.raises(errors.Unreachable):
        restore(nodes, backup, "a", wire)
    wire.heal()
    wire.always("put", "unreachable")
    with pytest.raises(errors.Unreachable):
        restore(nodes, backup, "a", wire)
    assert entries(nodes.log) == []
    assert not (nodes.path("a") / "holdfast.db").exists()
    wire.heal()
    restore(nodes, backup, "a", wire)
    assert value(nodes.open("late"), "cell 4") == 4


@pytest.mark.parametrize("fault", ["request lost", "answer lost", "late", "twice"])
def test_over_a_bad_line_it_is_restored_once(nodes: Nodes, backup: Path, fault: Fault) -> None:
    wire = Wire(nodes.log)
    wire.once("append", fault)
    restore(nodes, backup, "a", wire)
    wire.deliver()
    assert len(entries(nodes.log)) == 1
    assert_equal(nodes.open("a"), nodes.open("b"))


def test_of_two_that_restore_into_the_same_log_at_once_one_does(nodes: Nodes, backup: Path) -> None:
    def attempt(name: str) -> Callable[[], bool]:
        def run() -> bool:
            try:
                restore(nodes, backup, name, nodes.log)
            except errors.Exists:
                return False
            return True

        return run

    names = ["a", "b", "c"]
    won = together(*(attempt(name) for name in names))
    assert sum(won) == 1
    assert len(entries(nodes.log)) == 1
    first = nodes.open(names[won.index(True)])
    others = [nodes.open(name) for name, done in zip(names, won, strict=True) if not done]
    assert_equal(first, *others)


def test_the_same_backup_restored_into_two_logs_makes_two_workspaces_that_share_no_revision(
    nodes: Nodes, backup: Path
) -> None:
    other = MemoryLog(clock=nodes.clock)
    first = restore(nodes, backup, "a", nodes.log)
    nodes.clock.advance(1)
    second = restore(nodes, backup, "b", other)
    assert second - first >= 1_000_000
    nodes.open("b", other).close()
    with pytest.raises(errors.Corrupt):
        nodes.open("b", nodes.log)


def test_a_replica_of_one_restored_log_does_not_follow_another_also_if_both_say_the_same(
    nodes: Nodes, backup: Path
) -> None:
    other = MemoryLog(clock=nodes.clock)
    assert restore(nodes, backup, "a", nodes.log) == restore(nodes, backup, "b", other)
    nodes.open("b", other).cells.set(RUN, "theirs", 1)
    with pytest.raises(errors.Corrupt, match="not the one applied here"):
        nodes.open("a", other)
    assert value(nodes.open("a"), "theirs") is None


def test_an_open_replica_whose_log_becomes_another_one_stops_although_every_row_would_fit(
    nodes: Nodes, backup: Path
) -> None:
    """As if somebody had put an old copy in the log's place and written on: the same positions, times and revisions."""
    other = MemoryLog(clock=nodes.clock)
    restore(nodes, backup, "a", nodes.log)
    restore(nodes, backup, "b", other)
    wire = Wire(nodes.log)
    a, b = nodes.engine("a", wire, pulse=False), nodes.engine("b", other, pulse=False)
    a.cells.set(RUN, "ours", 1)
    b.cells.set(RUN, "theirs", 1)
    wire._log = other
    b.cells.set(RUN, "later", 1)
    with pytest.raises(errors.Corrupt, match="does not follow"):
        a.cells.set(RUN, "cell", 1)
    with pytest.raises(errors.Corrupt):
        value(a, "later")


def test_a_restored_log_makes_snapshots_and_is_trimmed_like_any_other(nodes: Nodes, backup: Path) -> None:
    restore(nodes, backup, "a", nodes.log)
    seed = entries(nodes.log)[0]
    assert isinstance(seed, Snapshotted)
    a = nodes.engine("a", snapshot_every=5, pulse=False)
    write(a, 30)
    with pytest.raises(KeyError):
        nodes.log.get(seed.blob)
    assert_equal(a, nodes.open("late"))


def test_a_backup_of_a_replica_is_a_workspace_of_its_own(nodes: Nodes, tmp_path: Path) -> None:
    a, b = nodes.open("a"), nodes.stale("b")
    a.cells.set(RUN, "cell", 1)
    copy = b.using(at_least="latest").backup(tmp_path / "copy")
    a.cells.set(RUN, "cell", 2)
    holdfast.restore(copy, nodes.path("restored"), clock=nodes.clock)
    with holdfast.open(nodes.path("restored"), actor="me", clock=nodes.clock) as restored:
        assert restored.cells.get(RUN, "cell").value == 1
        assert restored.cells.set(RUN, "cell", "own") == 2
        assert restored.check().problems == []
    assert a.cells.get(RUN, "cell").value == 2
    assert_equal(a, b)


def test_a_backup_of_a_replica_can_be_restored_into_another_log(nodes: Nodes, tmp_path: Path) -> None:
    a = nodes.open("a")
    a.cells.set(RUN, "cell", 1)
    copy = a.backup(tmp_path / "copy")
    other = MemoryLog(clock=nodes.clock)
    restore(nodes, copy, "c", other)
    c, d = nodes.open("c", other), nodes.open("d", other)
    assert_equal(c, d)
    assert contents(c)["cells"] == contents(a)["cells"]
    assert d.cells.set(RUN, "cell", 2) == 2
    assert value(a, "cell") == 1
