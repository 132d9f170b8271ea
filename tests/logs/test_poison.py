"""A damaged replica that writes: the log then holds what fits no other replica, and nothing of theirs may be lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Workspace, errors
from holdfast.kernel.store_files import FILE
from holdfast.replication.log import MemoryLog
from holdfast.replication.replica import Replica
from tests.logs.nodes import RUN, Nodes, assert_equal
from tests.worlds.contents import contents


@pytest.fixture
def stopped(nodes: Nodes) -> Workspace:
    """A sound node beside one whose file was changed by hand and that has written since."""
    bad, good = nodes.engine("bad", pulse=False), nodes.engine("good", pulse=False)
    for _ in range(5):
        bad.cells.increment(RUN, "cell")
    good.using(at_least="latest").cells.get(RUN, "cell")
    bad._engine.store.writer.execute("UPDATE cells SET value = x'07'")
    assert not bad.check().ok
    assert bad.cells.increment(RUN, "cell") == 8
    with pytest.raises(errors.Corrupt) as caught:
        good.cells.increment(RUN, "cell")
    replica = bad._engine.journal
    assert isinstance(replica, Replica)
    assert f"by node {replica.node}" in caught.value.message
    return good


def test_a_rebuild_that_meets_the_same_entry_leaves_the_replica_as_it_was(nodes: Nodes, stopped: Workspace) -> None:
    stopped.close()
    before = (nodes.path("good") / FILE).read_bytes()
    with pytest.raises(errors.Corrupt, match="a different row"):
        holdfast.rebuild(nodes.path("good"), log=nodes.log, clock=nodes.clock)
    assert (nodes.path("good") / FILE).read_bytes() == before
    assert not [path.name for path in nodes.path("good").iterdir() if "rebuilding" in path.name]
    assert not [path.name for path in nodes.path("good").iterdir() if "diverged" in path.name]


def test_what_a_stopped_replica_had_followed_is_salvaged_into_a_new_log(
    nodes: Nodes, stopped: Workspace, tmp_path: Path
) -> None:
    stopped.close()
    saved = holdfast.salvage(nodes.path("good"), tmp_path / "saved", clock=nodes.clock)
    log = MemoryLog(clock=nodes.clock)
    holdfast.restore(saved, nodes.path("new"), clock=nodes.clock, log=log)
    new, other = nodes.open("new", log), nodes.open("other", log)
    assert new.cells.get(RUN, "cell").value == 5
    assert new.cells.increment(RUN, "cell") == 6
    other.using(at_least="latest").cells.get(RUN, "cell")
    assert contents(new) == contents(other)
    assert new.check().ok


def test_rebuilding_with_the_log_of_another_workspace_is_invalid_and_changes_nothing(nodes: Nodes) -> None:
    a = nodes.open("a")
    a.cells.set(RUN, "cell", 1)
    a.close()
    other = MemoryLog(clock=nodes.clock)
    nodes.open("b", other).cells.set(RUN, "cell", 2)
    with pytest.raises(errors.Invalid, match="the log holds the workspace"):
        holdfast.rebuild(nodes.path("a"), log=other, clock=nodes.clock)
    with pytest.raises(errors.Invalid, match="empty"):
        holdfast.rebuild(nodes.path("a"), log=MemoryLog(), clock=nodes.clock)
    assert_equal(nodes.open("a"), nodes.open("c"))


def test_what_is_no_replica_or_no_log_is_refused(nodes: Nodes, tmp_path: Path) -> None:
    with pytest.raises(errors.NotFound):
        holdfast.salvage(tmp_path / "nowhere", tmp_path / "saved")
    nodes.open("a").close()
    calls: tuple[Callable[[Any], object], ...] = (
        lambda wrong: holdfast.rebuild(nodes.path("a"), log=wrong),
        lambda wrong: holdfast.detach(nodes.path("a"), log=wrong),
        lambda wrong: holdfast.upgrade(nodes.path("a"), log=wrong),
        lambda wrong: holdfast.restore(tmp_path / "backup", tmp_path / "new", log=wrong),
        lambda wrong: holdfast.open(nodes.path("a"), actor="me", log=wrong),
        lambda wrong: holdfast.replicate(nodes.path("a"), wrong),
    )
    for call in calls:
        with pytest.raises(errors.Invalid, match="a CommitLog or the address of a log"):
            call(5)
        with pytest.raises(errors.Invalid, match="this is not the address of a log"):
            call("log")
    for call in calls[:2]:
        with pytest.raises(errors.Invalid, match="does not record which one"):
            call(None)
