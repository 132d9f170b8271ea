"""The world of the nodes: virtual time, lines to the log that fail, and disks that survive a crash more or less.

A crash takes a copy of the node's files as they are in that moment, before anything can unwind. `kill` keeps all of
it; `power loss` cuts the write-ahead log somewhere, as it may on a replica, which syncs only at checkpoints; `disk
lost` keeps nothing, so the node joins anew.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path

from holdfast.clock import Clock, Signal
from holdfast.ids import Ids
from holdfast.kernel import failpoints
from holdfast.kernel.engine import Engine
from holdfast.kernel.store_files import FILE
from holdfast.replication.log import CommitLog, MemoryLog
from holdfast.replication.replica import Replica
from holdfast.testing.faulty_log import Fault, FaultyLog, Method
from holdfast.workspace import Workspace
from holdfast.workspace.context import Context
from tests.simulation.scheduler import Fibre, Killed, current, pause

START = 1_700_000_000_000_000
SNAPSHOT_EVERY = 25
PATIENCE = 0.3  # virtual seconds that a write waits for the log
CRASHES = ("kill", "power loss", "disk lost")
BAD_LINE: dict[
    Method, tuple[tuple[Fault, ...], int]
] = {  # for one call: the faults that a method can meet, and how often one in a thousand calls does
    "append": (("conflict", "request lost", "answer lost", "late", "twice", "unreachable"), 90),
    "tail": (("lagging", "lagging", "repeated", "unreachable"), 90),
    "head": (("unreachable",), 20),
    "time": (("unreachable",), 20),
    "put": (("unreachable",), 50),
    "get": (("unreachable",), 50),
    "trim": (("unreachable",), 50),
}


class Timeline:
    """The time that passes, and how far all clocks have leaped ahead of it, the log's too."""

    def __init__(self) -> None:
        self.now = START
        self.leaped = 0
        self.ends = False  # time passes only for those that wait

    @property
    def shown(self) -> int:
        """What a clock that is not wrong alone shows."""
        return self.now + self.leaped


class NodeClock(Clock):
    """A node's clock: `offset` is how wrong it is."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._boot = timeline.now
        self.offset = 0

    def wall(self) -> int:
        return self._timeline.shown + self.offset

    def monotonic(self) -> int:
        return self._timeline.now - self._boot + 1

    def max_sleep(self, deadline: int) -> float | None:
        raise AssertionError("nobody sleeps in a simulation")

    def wait_until(self, deadline: int | None, signal: Signal) -> bool:
        """For a node that waits for the log: let others run until it is time."""
        assert deadline is not None
        while (left := deadline - self.monotonic()) > 0:
            self._timeline.now += left if self._timeline.ends else 0
            pause()
        return False


class LogClock(NodeClock):
    """The clock of the log, by which the others are judged."""


class Line(FaultyLog):
    """A node's way to the log: others may run before a call and before its answer."""

    def __init__(self, log: CommitLog, cluster: Cluster) -> None:
        super().__init__(log, self._choose)
        self._cluster = cluster
        self.cut = False

    def _choose(self, method: Method) -> Fault | None:
        if method == "append" or self._cluster.random.random() < 0.5:
            pause()
        if self.cut:
            return "unreachable"
        faults, per_mille = BAD_LINE[method]
        if self._cluster.calm or self._cluster.random.randrange(1000) >= per_mille:
            return None
        fault = self._cluster.random.choice(faults)
        self._cluster.count(f"line: {fault}")
        return fault

    def append(self, entry: bytes, expected: int) -> int:
        try:
            return super().append(entry, expected)
        finally:
            pause()  # the answer is on its way


class Node:
    """A machine that runs one process on one replica, or is down."""

    def __init__(self, name: str, cluster: Cluster) -> None:
        self.name = name
        self.cluster = cluster
        self.lives = 0
        self.folder = cluster.folder / f"{name}-0"
        self.clock = NodeClock(cluster.timeline)
        self.line = Line(cluster.log, cluster)
        self.workspace: Workspace | None = None
        self.fibre: Fibre | None = None
        self.paused_until = 0  # steps of the run
        self.jobs: deque[Callable[[], None]] = deque()
        self.on_death: list[Callable[[], None]] = []  # what the jobs in progress must hear of
        self.read_up_to = 0  # the newest revision that a local read of this life has seen

    @property
    def up(self) -> bool:
        return self.workspace is not None

    @property
    def busy(self) -> bool:
        return self.fibre is not None

    def start(self) -> None:
        """In a fibre: open the replica; raises Unreachable if a new one cannot join."""
        cluster = self.cluster
        self.clock = NodeClock(cluster.timeline) if not self.clock.offset else self.clock
        engine = Engine(
            self.folder,
            clock=self.clock,
            journal=Replica(
                self.line,
                self.clock,
                snapshot_every=SNAPSHOT_EVERY,
                fair=False,
                patience=PATIENCE,
                timer=self.clock,
            ),
            ids=Ids(cluster.random.randbytes),
            pulse=False,
        )
        self.workspace = Workspace(engine, Context(self.name))
        self.read_up_to = 0

    def begin(self, job: Callable[[], None]) -> None:
        """Run a job in a fibre of this node."""
        self.fibre = Fibre(f"{self.name}.{self.lives}", job)

    def crash(self, kind: str) -> None:
        """Stop the process here and now; its disk keeps what the kind of crash leaves."""
        self.lives += 1
        after = self.cluster.folder / f"{self.name}-{self.lives}"
        after.mkdir()
        if kind != "disk lost":
            _copy(self.folder, after, self.cluster.random if kind == "power loss" else None)
        if self.fibre is not None:
            self.fibre.kill()
            self.fibre = None
        self.close()
        for tell in self.on_death:
            tell()
        self.on_death.clear()
        if self.folder.exists():  # it may have died before it made anything
            shutil.rmtree(self.folder)
        self.folder = after

    def close(self) -> None:
        """Let go of the files, as a dead process does."""
        if self.workspace is not None:
            engine, self.workspace = self.workspace._engine, None
            engine.hub.close()
            engine.store.close()
            engine._drain()
            engine.turns.close()


class Cluster:
    """Nodes, their log, the true time, and one source of chance."""

    def __init__(self, seed: int, folder: Path, nodes: int) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.timeline = Timeline()
        self.log = MemoryLog(clock=LogClock(self.timeline), max_entry=2048)
        self.calm = False  # no more bad lines
        self.faults: Counter[str] = Counter()
        self.reached: Counter[str] = Counter()
        self.trace: list[str] = []
        self.nodes = [Node(f"node-{number}", self) for number in range(nodes)]
        self.crash_at: tuple[str, str] | None = None  # the failpoint where the next node to reach it crashes, and how
        self.crash_wanted: tuple[Node, str] | None = None

    def say(self, text: str) -> None:
        """A line of the trace."""
        self.trace.append(f"{(self.timeline.now - START) / 1e6:.6f} {text}")

    def count(self, fault: str) -> None:
        """A fault has happened."""
        self.faults[fault] += 1
        self.say(f"fault {fault}")

    def at_failpoint(self, name: str) -> None:
        """The hook of the kernel: here others may run, or the node may die."""
        fibre = current()
        if fibre is None or fibre.killed:
            if fibre is not None:
                raise Killed
            return
        self.reached[name] += 1
        if self.crash_at is not None and self.crash_at[0] == name and not self.calm:
            node = next(node for node in self.nodes if node.fibre is fibre)
            self.crash_wanted, self.crash_at = (node, self.crash_at[1]), None
            pause()
        elif self.random.random() < 0.25:
            pause()

    def install(self) -> None:
        """Listen to the kernel's failpoints."""
        failpoints.hook = self.at_failpoint

    def close(self) -> None:
        """Stop everything."""
        for node in self.nodes:
            if node.fibre is not None:
                node.fibre.kill()
            node.close()
        failpoints.hook = None


def _copy(source: Path, target: Path, chance: random.Random | None) -> None:
    """The files that a dead process leaves; with `chance`, the write-ahead log only up to somewhere."""
    for name in (FILE, f"{FILE}-wal"):
        if (source / name).exists():
            content = (source / name).read_bytes()
            if chance is not None and name != FILE:
                content = content[: chance.randint(0, len(content))]
            (target / name).write_bytes(content)
