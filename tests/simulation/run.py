"""One seed: a cluster under load and faults, then calm, then judgement.

Every step is a choice of the seed: a client asks or reads, a fibre goes on, a listener listens, time passes, something
breaks or is mended. After the last step everything is mended, every node catches up, and the judges look at what was
promised.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast import errors
from holdfast.kernel.failpoints import NAMES
from tests.simulation.cluster import CRASHES, Cluster, Node
from tests.simulation.history import NOTHING_HAPPENED
from tests.simulation.load import Load
from tests.simulation.replay import replay
from tests.simulation.truth import Truth
from tests.simulation.watching import judge
from tests.worlds.contents import fingerprint

PLACES = [name for name in NAMES if not name.startswith("move.")]  # nobody moves here
OPERATIONS = 200  # at least, of each run
FAULTS = 10
NODES = 3
MOST_STEPS = 20_000
ROOM = 2**30  # pages of a disk that is not full
DAY = 86_400_000_000
LEAP = {"an hour": 3600, "a year": 365 * 86400, "backwards": -7200}


@dataclass
class Outcome:
    """What a run was made of; `digest` is the same for the same seed, or the simulation is not deterministic."""

    seed: int
    operations: int
    reads: int
    heard: int
    revisions: int
    largest_group: int
    done: Counter[str]  # how often each operation was answered, not refused
    faults: Counter[str]
    reached: Counter[str]
    digest: str
    trace: list[str]


class Run:
    """A run of one seed."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.seed = seed
        self.cluster = Cluster(seed, folder, NODES)
        self.truth = Truth(self.cluster.log, self.cluster.timeline)
        self.chance = self.cluster.random
        self.load = Load(self.cluster, self.truth)
        self.steps = 0

    # --- the course of a run -----------------------------------------------------------------------------------------

    def play(self) -> Outcome:
        """Load and faults, then calm, then judgement."""
        self.cluster.install()
        try:
            while not self._enough():
                self._step()
                assert self.steps < MOST_STEPS, "the run does not get on"
            self._calm_down()
            self._judge()
        finally:
            self.cluster.close()
        return self._outcome()

    def _enough(self) -> bool:
        faults = self.cluster.faults.total()
        return self.load.operations >= OPERATIONS and faults >= FAULTS

    def _step(self) -> None:
        self.steps += 1
        self.cluster.timeline.now += self.chance.randint(1, 20_000)
        chance = self.chance.random()
        runnable = [node for node in self.cluster.nodes if node.busy and node.paused_until <= self.steps]
        if runnable and chance < 0.75:
            self._resume(self.chance.choice(runnable))
        elif chance < 0.90:
            self.load.ask()
        elif chance < 0.94:
            self.load.look()
        elif chance < 0.96:
            self.load.listen()
        elif chance < 0.985:
            self._tend()
        else:
            self._break()

    def _resume(self, node: Node) -> None:
        assert node.fibre is not None
        node.fibre.resume()
        if node.fibre.done:
            node.fibre = None
            self.load.begin(node)
        if self.cluster.crash_wanted is not None:
            node, kind = self.cluster.crash_wanted
            self.cluster.crash_wanted = None
            self._crash(node, kind, "at a failpoint")

    # --- what else happens -------------------------------------------------------------------------------------------

    def _tend(self) -> None:
        """What a node's own pulse and its disk do: follow the log, make snapshots, checkpoint."""
        node = self.chance.choice(self.cluster.nodes)
        if node.line.cut or node.clock.offset:
            node.line.cut, node.clock.offset = False, 0
            self.cluster.say(f"{node.name} is mended")
        if not node.busy:
            node.begin((lambda: self.load.start_node(node)) if not node.up else (lambda: self._pulse(node)))

    def _pulse(self, node: Node) -> None:
        assert node.workspace is not None
        engine = node.workspace._engine
        try:
            engine.pulse._followed = None
            engine.pulse._notice()
            engine.pulse._act()
            assert engine.journal is not None
            engine.journal.maintain()
            engine.store.writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except (*NOTHING_HAPPENED, errors.OutcomeUnknown) as error:  # of a sweep, which nobody waits for
            self.cluster.say(f"{node.name} cannot follow: {error.code}")

    def _break(self) -> None:
        node = self.chance.choice(self.cluster.nodes)
        match self.chance.randrange(9):
            case 0:
                self._crash(node, self.chance.choice(CRASHES), "at will")
            case 1 | 2:
                self.cluster.crash_at = (self.chance.choice(PLACES), self.chance.choice(CRASHES[:2]))
            case 3:
                node.paused_until = self.steps + self.chance.randint(20, 200)
                self.cluster.count("pause")
            case 4:
                node.line.cut = True
                self.cluster.count("partition")
            case 5:
                how = self.chance.choice(sorted(LEAP))
                node.clock.offset = LEAP[how] * 1_000_000
                self.cluster.count(f"clock {how}")
            case 6:
                self._pass()
            case 7:
                self._fill_disk(node)
            case 8:
                for other in self.cluster.nodes:
                    other.line.deliver()

    def _pass(self) -> None:
        """An idle night; or all clocks leap at once, which may end leases, but neither tasks nor keys.

        After such a leap a day never passes without another, so that nothing may be retired.
        """
        timeline = self.cluster.timeline
        if self.chance.randrange(3) == 0:
            timeline.leaped += self.chance.choice((40, 400)) * DAY
            self.cluster.count("all clocks leap")
            return
        timeline.now += self.chance.choice((2, 61, 3601, 10_000)) * 1_000_000
        timeline.leaped += 2 * DAY if timeline.leaped else 0
        self.cluster.count("an idle night")

    def _fill_disk(self, node: Node) -> None:
        """No page more until the connection is opened anew, which every such failure leads to."""
        if node.up and not node.busy:
            assert node.workspace is not None
            writer = node.workspace._engine.store.writer
            writer.pragma("max_page_count", writer.pragma("page_count"))
            self.cluster.count("disk full")

    def _crash(self, node: Node, kind: str, where: str) -> None:
        for listener in self.load.listeners:
            if listener.listening and listener.heard[-1].node == node.name:
                listener.stop()
        self.cluster.count(f"crash: {kind}")
        self.cluster.say(f"{node.name} crashes {where}")
        node.crash(kind)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _calm_down(self) -> None:
        """Mend everything, finish what was begun, and have every node catch up."""
        cluster = self.cluster
        cluster.calm, cluster.crash_at, cluster.timeline.ends = True, None, True
        for node in cluster.nodes:
            node.line.cut, node.paused_until, node.clock.offset = False, 0, 0
            node.line.deliver()
            if node.workspace is not None:
                node.workspace._engine.store.writer.pragma("max_page_count", ROOM)
        for _ in range(MOST_STEPS):
            busy = [node for node in cluster.nodes if node.busy]
            if busy:
                self._resume(busy[0])
            elif self.load.again:
                asked = self.load.again.pop(0)
                asked.node, asked.ending, asked.error = cluster.nodes[0].name, "", None
                self.load.waiting[asked.node].append(asked)
                self.load.begin(cluster.nodes[0])
            elif not all(node.up and not self.load.waiting[node.name] for node in cluster.nodes):
                for node in cluster.nodes:
                    self.load.begin(node)
            else:
                break
        for _ in range(2):
            for node in cluster.nodes:
                self._finish(node, lambda node=node: self._reach(node))  # type: ignore[misc]
        for listener in self.load.listeners:
            for _ in range(3):
                if not listener.listening:
                    assert cluster.nodes[0].workspace is not None
                    listener.listen(cluster.nodes[0].workspace, cluster.nodes[0].name)
                if listener.listening:
                    listener.hear(100_000)

    def _finish(self, node: Node, job: Callable[[], None]) -> None:
        node.begin(job)
        while node.busy:
            self._resume(node)

    def _reach(self, node: Node) -> None:
        assert node.workspace is not None
        node.workspace._engine.reach(None)
        self._pulse(node)

    def _judge(self) -> None:
        workspaces = [node.workspace for node in self.cluster.nodes if node.workspace is not None]
        assert len(workspaces) == NODES
        assert self.truth.problems == [], self.truth.problems[:3]
        prints = {fingerprint(workspace) for workspace in workspaces}
        assert len(prints) == 1, "the replicas differ"
        assert workspaces[0].revision == self.truth.newest
        for workspace in workspaces:  # each has search indexes of its own
            problems = workspace.check().problems
            assert problems == [], problems
        assert self.truth.still_told(workspaces[0]) == [], "the log still tells of stashes that are gone"
        replay(self.load.history, self.truth)
        judge(self.load.listeners, self.truth)
        for listener in self.load.listeners:
            assert listener.listening, "a listener did not come back"
            assert listener.heard[-1].bookmark[0] >= self.truth.newest, "reliable: a listener has not heard the end"
        self.cluster.say(f"all nodes are {prints.pop()}")

    def _outcome(self) -> Outcome:
        trace = self.cluster.trace
        return Outcome(
            seed=self.seed,
            operations=self.load.operations,
            reads=len(self.load.history.looked),
            heard=sum(len(heard.events) for listener in self.load.listeners for heard in listener.heard),
            revisions=self.truth.newest,
            largest_group=self.load.largest_group,
            done=Counter(asked.op for asked in self.load.history.asked if asked.ending == "answered"),
            faults=self.cluster.faults,
            reached=self.cluster.reached,
            digest=hashlib.sha256("\n".join(trace).encode()).hexdigest(),
            trace=trace,
        )


def play(seed: int) -> Outcome:
    """Play one seed in a folder of its own."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="holdfast-sim-", dir=memory if memory.is_dir() else None))
    try:
        return Run(seed, folder).play()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
