"""Power loss on a node: the replica may lose its newest commits, but is whole, and the log has what it lost.

A replica runs with synchronous=NORMAL on purpose. So here a crash state may show any picture that was ever committed,
also one older than the last acknowledged, and nothing else; and a state that is opened with the log has everything
again, without a word to the log. That the harness is not blind is shown with synchronous=OFF, which breaks files.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import holdfast
from holdfast import Workspace
from holdfast.kernel.store import Store
from holdfast.kernel.tx import Row
from tests.amounts import first_seed
from tests.logs.nodes import Nodes, assert_equal, at, write
from tests.power.disk import Tape, recorded
from tests.power.judge import NOTHING, STORE, Finding, Judge, Unsound
from tests.power.scenes import MOVES, SHARE, Stage, grouped, part_of, perform
from tests.power.states import Crash, crashes
from tests.power.test_power_loss import ram, seed, told
from tests.worlds.contents import contents

__all__ = ["ram", "seed"]  # fixtures

MODES = ("PASSIVE", "FULL", "RESTART", "TRUNCATE")
NEVER = 10**9


class Node(Stage):
    """The recorded folder is a node; its log, and what other nodes there are, lie elsewhere."""

    def __init__(self, tape: Tape) -> None:
        super().__init__(tape, NOTHING, random.Random(f"replica {first_seed()}"))
        self.nodes = Nodes(self.root.with_suffix(".others"))
        self.clock, self.log = self.nodes.clock, self.nodes.log
        self.whole: dict[str, list[Row]] = {}  # all that was acknowledged, in the end

    def open(self) -> Workspace:
        return holdfast.open(self.store, actor="me", clock=self.clock, log=self.log)

    def make(self) -> Workspace:
        """Open it for the first time: each migration is a commit of its own."""
        with at("migration.committed", self.acknowledged):
            return self.open()

    def follow(self, ws: Workspace, other: Workspace) -> None:
        """Another node writes, and this one applies it: one commit, whether the pulse makes it or this call."""
        other.cells.increment("other", "count")
        ws.using(at_least="latest").reach()
        self.acknowledged()

    def checkpoint(self, ws: Workspace, mode: str) -> None:
        """Move the write-ahead log into the database."""
        before = self.writes_to_database()
        connection = ws._engine.store.connect()
        connection.execute(f"PRAGMA wal_checkpoint({mode})")
        connection.close()
        assert self.writes_to_database() > before

    def end(self, ws: Workspace, other: Workspace) -> None:
        """The last call has returned."""
        assert_equal(ws, other)
        self.whole = contents(ws)


# --- what is recorded ------------------------------------------------------------------------------------------------


def creating(node: Node) -> None:
    """The first node makes the workspace."""
    with node.make() as ws:
        perform(node, ws, 1)
        node.end(ws, node.nodes.stale("other"))
        node.nodes.close()


def working(node: Node) -> None:
    """A new workspace: calls, groups, writes of another node, every kind of checkpoint, and a sweep."""
    with node.make() as ws:
        other = node.nodes.stale("other")
        perform(node, ws, len(MOVES))
        grouped(node, ws, 1)
        reader = ws._engine.store.connect_reader()
        for number, mode in enumerate(MODES):
            reader.execute("BEGIN; SELECT count(*) FROM events").fetchall()
            perform(node, ws, 2, 2 * number)
            reader.execute("ROLLBACK")
            node.follow(ws, other)
            node.checkpoint(ws, mode)
        reader.close()
        written = node.writes_to_database()
        ws._engine.store.writer.wal_autocheckpoint(12)
        perform(node, ws, 4, 2 * len(MODES))
        assert node.writes_to_database() > written
        node.clock.advance(130)
        ws.locks.list()
        node.acknowledged()
        node.end(ws, other)
        node.nodes.close()


def joining(node: Node) -> None:
    """A new node starts from a snapshot; later it was away for longer than the log reaches back, and does so again."""
    other = node.nodes.engine("other", snapshot_every=5, pulse=False)
    with at("snapshot.installed", node.acknowledged) as reached:  # what came after the snapshot is a commit of its own
        for number in range(3):
            write(other, 15)
            with node.open() as ws:
                node.acknowledged()
                perform(node, ws, 3, 3 * number)
                node.follow(ws, other)
                node.checkpoint(ws, MODES[number + 1])
                perform(node, ws, 1, 3 * (number + 1))
                if number == 2:
                    node.end(ws, other)
    assert reached.count("snapshot.installed") == 3
    node.nodes.close()


class Life(NamedTuple):
    """What is recorded, how many different states are verified at least, and of how many one is opened."""

    name: str
    live: Callable[[Node], None]
    states: int
    opened_every: int = 10


WORKING = Life("a replica", working, part_of(1000))
LIVES = (
    WORKING,
    Life("a replica that is made", creating, part_of(100), opened_every=1),
    Life("a replica that joins", joining, part_of(800)),
)


def record(life: Life, root: Path) -> Node:
    root.mkdir()
    (root / STORE).mkdir()
    with recorded(root) as tape:
        node = Node(tape)
        life.live(node)
    return node


# --- the guarantee ---------------------------------------------------------------------------------------------------


class ReplicaJudge(Judge):
    """Lets a file be behind what was acknowledged, if it catches up with all of it once it has the log."""

    def __init__(self, node: Node, scratch: Path, *, opened_every: int) -> None:
        super().__init__(node.promises, node.files, scratch, opened_every=opened_every)
        self._node = node
        self.behind = 0  # states without the newest commits
        self.caught_up = 0  # commits that opened states did not show, and then did

    def judge(self, crash: Crash) -> Finding:
        finding = super().judge(crash._replace(least=0))
        self.acknowledged += crash.least
        self.behind += not finding.problem and finding.promise < crash.least
        return finding

    def _open(self, folder: Path, promise: int) -> None:
        self.opened += 1
        node = self._node
        head = node.log.head()
        with holdfast.open(folder, actor="judge", clock=node.clock, log=node.log) as ws:
            found, report = contents(ws), ws.check()
        self.lost += len(node.whole["log"]) - len(found["log"])
        if found != node.whole or report.problems:
            raise Unsound(f"opened with the log it is not what was acknowledged: {report}")
        if node.log.head() != head:
            raise Unsound("opening it has written to the log")
        self.caught_up += len(node.promises) - 1 - promise


@pytest.mark.early
@pytest.mark.timeout(600)
@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.name)
def test_a_replica_is_whole_after_a_loss_of_power_and_finds_the_rest_in_the_log(
    life: Life, ram: Path, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    node = record(life, ram / "scene")
    judge = ReplicaJudge(node, ram / "state", opened_every=life.opened_every)
    for crash in crashes(node.tape, life.name, seed, 0, share=SHARE):
        judge.judge(crash)
    kinds = ", ".join(f"{len(states)} {kind}" for kind, states in judge.verified.items())
    with capsys.disabled():
        print(
            f"\npower loss, {life.name}: {len(node.tape.operations)} operations on disk, "
            f"{len(node.promises) - 1} commits; {len(judge)} different states verified ({kinds}) of {judge.generated} "
            f"made, {judge.behind} without the newest commits; {judge.opened} of them opened with the log, where "
            f"{judge.caught_up} commits were found again, {judge.lost} lost"
        )
    assert not judge.problems, told(judge)
    assert judge.lost == 0
    assert judge.behind
    assert judge.caught_up
    assert len(judge) >= life.states
    assert all(judge.verified.values())


# --- that the judge is not blind -------------------------------------------------------------------------------------


def test_a_replica_that_never_syncs_is_found_by_what_it_breaks(
    ram: Path, seed: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Store._settings
    monkeypatch.setattr(Store, "_settings", lambda store: settings(store) | {"synchronous": 0})
    node = record(WORKING, ram / "scene")
    monkeypatch.undo()
    judge = ReplicaJudge(node, ram / "state", opened_every=NEVER)
    for crash in crashes(node.tape, WORKING.name, seed, 0, share=SHARE):
        judge.judge(crash)
    with capsys.disabled():
        print(
            f"\npower loss, a replica with synchronous=OFF: {len(judge.problems)} of {judge.generated} states are "
            f"not sound"
        )
    assert judge.problems
