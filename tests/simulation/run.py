"""One seed: a cluster under load and faults, then calm, then judgement.

Every step is a choice of the seed: a client asks or reads, a fibre goes on, a listener listens, time passes, something
breaks or is mended. After the last step everything is mended, every node catches up, and the judges look at what was
promised.
"""

from __future__ import annotations

import hashlib
import itertools
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast import errors
from holdfast.kernel.batch import Call
from holdfast.kernel.events import Filter, marks
from holdfast.kernel.failpoints import NAMES
from holdfast.kernel.tx import Snapshot, Tx
from holdfast.ops import REGISTRY
from holdfast.testing.contents import fingerprint
from holdfast.transaction import Transaction
from holdfast.workspace import Workspace
from tests.simulation.cluster import CRASHES, Cluster, Node
from tests.simulation.history import NOTHING_HAPPENED, Asked, History, Looked
from tests.simulation.replay import SILENT, replay
from tests.simulation.truth import Truth
from tests.simulation.watching import Listener, judge
from tests.simulation.workload import READS, Workload

OPERATIONS = 200  # at least, of each run
FAULTS = 10
NODES = 3
CLIENTS = 6
MOST_STEPS = 20_000
KEY_LIFE = 20 * 3600 * 1_000_000  # after which a client does not repeat itself any more
ROOM = 2**30  # pages of a disk that is not full
LEAP = {"an hour": 3600, "a year": 365 * 86400, "backwards": -7200}


class QueuedCall(Call):
    """A call that rides along in the group of another."""

    __slots__ = ()

    @property
    def ready(self) -> bool:
        return False

    def lead(self) -> None:
        raise AssertionError("a call that is not ready was given the lead")

    def answer(self) -> None:
        """Its end is looked at when the group is done."""


@dataclass
class Outcome:
    """What a run was made of; `digest` is the same for the same seed, or the simulation is not deterministic."""

    seed: int
    operations: int
    reads: int
    heard: int
    revisions: int
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
        self.history = History()
        self.workload = Workload(self.chance)
        self.idle = list(range(CLIENTS))  # clients that wait for nothing
        self.again: list[Asked] = []  # keyed operations of unknown outcome, to be repeated
        self.waiting: dict[str, list[Asked]] = {node.name: [] for node in self.cluster.nodes}
        self.listeners = [
            Listener(wanted)
            for wanted in (Filter(), Filter(("cell",)), Filter(("lock",)), Filter(("cell",), "r1", "a"))
        ]
        self._numbers = itertools.count(1)
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
        return len(self.history.asked) + len(self.history.looked) >= OPERATIONS and faults >= FAULTS

    def _step(self) -> None:
        self.steps += 1
        self.cluster.timeline.now += self.chance.randint(1, 20_000)
        chance = self.chance.random()
        runnable = [node for node in self.cluster.nodes if node.busy and node.paused_until <= self.steps]
        if runnable and chance < 0.75:
            self._resume(self.chance.choice(runnable))
        elif chance < 0.90:
            self._ask()
        elif chance < 0.94:
            self._look()
        elif chance < 0.96:
            self._listen()
        elif chance < 0.985:
            self._tend()
        else:
            self._break()

    def _resume(self, node: Node) -> None:
        assert node.fibre is not None
        node.fibre.resume()
        if node.fibre.done:
            node.fibre = None
            self._begin(node)
        if self.cluster.crash_wanted is not None:
            node, kind = self.cluster.crash_wanted
            self.cluster.crash_wanted = None
            self._crash(node, kind, "at a failpoint")

    def _begin(self, node: Node) -> None:
        """Give an idle node its next job."""
        if node.busy:
            return
        if not node.up:
            node.begin(lambda: self._start(node))
        elif self.waiting[node.name]:
            most = self.chance.choice((1, 1, 2, 4))
            group, self.waiting[node.name] = self.waiting[node.name][:most], self.waiting[node.name][most:]
            node.begin(lambda: self._perform(node, group))

    # --- what a node does --------------------------------------------------------------------------------------------

    def _start(self, node: Node) -> None:
        try:
            node.start()
            self.cluster.say(f"{node.name} is up")
        except (errors.Unreachable, errors.Busy, errors.DiskFull) as error:
            self.cluster.say(f"{node.name} cannot start: {error.code}")

    def _perform(self, node: Node, group: list[Asked]) -> None:
        """Run operations as one group, and hear how each ended."""
        workspace = node.workspace
        assert workspace is not None
        node.on_death.append(lambda: self._lost(group))
        calls = [QueuedCall(self._body(workspace, asked), asked.actor) for asked in group]
        for asked in group:
            asked.attempts += 1
        engine = workspace._engine
        for call in calls[:-1]:
            engine.group.join(call)
        try:
            calls[-1].result = engine.submit(calls[-1].body, calls[-1].actor)
        except errors.HoldfastError as error:
            calls[-1].error = error
        node.on_death.clear()
        for asked, call in zip(group, calls, strict=True):
            self._hear(asked, call)

    def _body(self, workspace: Workspace, asked: Asked) -> Callable[..., Any]:
        acting = workspace.using(actor=asked.actor, fence=asked.fence, key=asked.key)
        if asked.key is not None:
            return acting.body_of(REGISTRY[asked.op], (), asked.args)

        def body(tx: Transaction) -> Any:
            target: Any = tx
            for part in asked.op.split("."):
                target = getattr(target, part)
            answer = target(**asked.args)
            if not tx._tx.events and asked.op in SILENT:
                tx.cells.set("audit", "silent", asked.actor)  # so that it has a revision by which to judge it
            return answer

        guarded = acting.transact_body(body)

        def noted(tx: Tx) -> Any:
            asked.revision, asked.now = tx.revision, tx.now
            return guarded(tx)

        return noted

    def _hear(self, asked: Asked, call: Call) -> None:
        error = call.error
        asked.error = error if isinstance(error, errors.HoldfastError) else None
        if error is None:
            asked.ending, asked.answer = "answered", call.result
            self.workload.learn(asked.op, asked.args, call.result)
            made = self._revision_of(asked)
            self.history.acknowledge(made)
            self.workload.revision = max(self.workload.revision, made)
        elif isinstance(error, errors.OutcomeUnknown):
            asked.ending = "unknown"
        elif isinstance(error, NOTHING_HAPPENED):
            asked.ending = "failed" if asked.attempts == 1 else "unknown"
        elif isinstance(error, errors.HoldfastError):
            asked.ending = "refused"
            self.history.acknowledge(asked.revision - 1)
        else:
            raise error
        self._settle(asked)

    def _revision_of(self, asked: Asked) -> int:
        """What an answer tells of the newest revision."""
        if asked.key is not None:
            return next((r for r, events in self.truth.revisions.items() if events[0].actor == asked.actor), 0)
        happened = any(event.actor == asked.actor for event in self.truth.revisions.get(asked.revision, ()))
        return asked.revision if happened else asked.revision - 1

    def _lost(self, group: list[Asked]) -> None:
        for asked in group:
            asked.ending = "unknown"
            self._settle(asked)

    def _settle(self, asked: Asked) -> None:
        how = asked.ending if asked.error is None else f"{asked.ending} {asked.error.code}"
        self.cluster.say(f"{asked.actor} on {asked.node}: {asked.op} {asked.args} {how} {asked.answer!r}")
        in_time = self.cluster.timeline.now - asked.begun < KEY_LIFE
        if asked.ending == "unknown" and asked.key is not None and asked.attempts < 4 and in_time:
            self.again.append(asked)
        else:
            self.idle.append(0)

    # --- what clients do ---------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        node = self.chance.choice(self.cluster.nodes)
        if self.again and self.chance.random() < 0.5:
            asked = self.again.pop(0)
            asked.node, asked.ending, asked.error = node.name, "", None
        elif self.idle:
            self.idle.pop()
            op, args = self.workload.next()
            actor = f"op-{next(self._numbers)}"
            keyed = op in ("cells.set", "cells.increment") and "lease" not in args and self.chance.random() < 0.4
            fence = None if keyed else self.workload.fence()
            key = actor if keyed else None
            asked = Asked(actor, node.name, op, args, fence, self.history.newest, self.cluster.timeline.now, key)
            self.history.asked.append(asked)
        else:
            return
        self.waiting[node.name].append(asked)
        self._begin(node)

    def _look(self) -> None:
        """A read through a node: local, or of what was acknowledged; only where no fibre of the node is in the way."""
        node = self.chance.choice(self.cluster.nodes)
        if not node.up or node.busy:
            return
        op = self.chance.choice(sorted(READS))
        args = READS[op](self.workload)
        wanted = self.chance.choice((None, "latest", self.history.newest))
        floor = node.read_up_to if wanted is None else self.history.newest
        node.begin(lambda: self._read(node, op, args, wanted, floor))

    def _read(self, node: Node, op: str, args: dict[str, Any], wanted: Any, floor: int) -> None:
        assert node.workspace is not None
        workspace = node.workspace.using(at_least=wanted)

        def read(snapshot: Snapshot) -> tuple[int, int, Any]:
            row = snapshot.one("SELECT stamp FROM meta")
            assert row is not None
            revision, now = marks(snapshot)[0], workspace._engine.time.read(row[0])
            return revision, now, REGISTRY[op].function(snapshot, **args)

        try:
            workspace.reach()
            revision, now, answer = workspace._engine.read_snapshot(read)
        except NOTHING_HAPPENED as error:
            self.cluster.say(f"{node.name} cannot read: {error.code}")
            return
        if isinstance(wanted, int) and revision < wanted:
            return  # the operation would have raised Behind
        node.read_up_to = max(node.read_up_to, revision)
        self.history.looked.append(Looked(node.name, op, args, floor, revision, now, answer))
        self.history.acknowledge(revision)
        self.cluster.say(f"{node.name} read {op} {args} at {revision} ({wanted}): {answer!r}")

    def _listen(self) -> None:
        listener = self.chance.choice(self.listeners)
        if not listener.listening:
            node = self.chance.choice(self.cluster.nodes)
            if node.up:
                assert node.workspace is not None
                listener.listen(node.workspace, node.name)
        elif self.chance.random() < 0.15:
            listener.stop()
        else:
            listener.hear(self.chance.choice((1, 3, 50)))

    # --- what else happens -------------------------------------------------------------------------------------------

    def _tend(self) -> None:
        """What a node's own pulse and its disk do: follow the log, make snapshots, checkpoint."""
        node = self.chance.choice(self.cluster.nodes)
        if node.line.cut or node.clock.offset:
            node.line.cut, node.clock.offset = False, 0
            self.cluster.say(f"{node.name} is mended")
        if not node.busy:
            node.begin((lambda: self._start(node)) if not node.up else (lambda: self._pulse(node)))

    def _pulse(self, node: Node) -> None:
        assert node.workspace is not None
        engine = node.workspace._engine
        snapshot = engine.borrow()
        try:
            engine.pulse._beat(snapshot)
            engine.store.writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except NOTHING_HAPPENED as error:
            self.cluster.say(f"{node.name} cannot follow: {error.code}")
        finally:
            engine.give_back(snapshot)

    def _break(self) -> None:
        node = self.chance.choice(self.cluster.nodes)
        match self.chance.randrange(9):
            case 0:
                self._crash(node, self.chance.choice(CRASHES), "at will")
            case 1 | 2:
                self.cluster.crash_at = (self.chance.choice(NAMES), self.chance.choice(CRASHES[:2]))
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
                self.cluster.timeline.now += self.chance.choice((2, 61, 3601, 10_000)) * 1_000_000
                self.cluster.count("an idle night")
            case 7:
                self._fill_disk(node)
            case 8:
                for other in self.cluster.nodes:
                    other.line.deliver()

    def _fill_disk(self, node: Node) -> None:
        """No page more until the connection is opened anew, which every such failure leads to."""
        if node.up and not node.busy:
            assert node.workspace is not None
            writer = node.workspace._engine.store.writer
            writer.pragma("max_page_count", writer.pragma("page_count"))
            self.cluster.count("disk full")

    def _crash(self, node: Node, kind: str, where: str) -> None:
        for listener in self.listeners:
            if listener.listening and listener.heard[-1].node == node.name:
                listener.stop()
        self.cluster.count(f"crash: {kind}")
        self.cluster.say(f"{node.name} crashes {where}")
        node.crash(kind)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _calm_down(self) -> None:
        """Mend everything, finish what was begun, and have every node catch up."""
        cluster = self.cluster
        cluster.calm, cluster.crash_at = True, None
        for node in cluster.nodes:
            node.line.cut, node.paused_until, node.clock.offset = False, 0, 0
            node.line.deliver()
            if node.workspace is not None:
                node.workspace._engine.store.writer.pragma("max_page_count", ROOM)
        for _ in range(MOST_STEPS):
            busy = [node for node in cluster.nodes if node.busy]
            if busy:
                self._resume(busy[0])
            elif self.again:
                asked = self.again.pop(0)
                asked.node, asked.ending, asked.error = cluster.nodes[0].name, "", None
                self.waiting[asked.node].append(asked)
                self._begin(cluster.nodes[0])
            elif not all(node.up and not self.waiting[node.name] for node in cluster.nodes):
                for node in cluster.nodes:
                    self._begin(node)
            else:
                break
        for _ in range(2):
            for node in cluster.nodes:
                self._finish(node, lambda node=node: self._reach(node))  # type: ignore[misc]
        for listener in self.listeners:
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
        prints = {fingerprint(workspace) for workspace in workspaces}
        assert len(prints) == 1, "the replicas differ"
        assert workspaces[0].revision == self.truth.newest
        report = workspaces[self.seed % NODES].check()
        assert report.problems == [], report.problems
        replay(self.history, self.truth)
        judge(self.listeners, self.truth)
        for listener in self.listeners:
            assert listener.listening, "a listener did not come back"
            assert listener.heard[-1].bookmark[0] >= self.truth.newest, "reliable: a listener has not heard the end"
        self.cluster.say(f"all nodes are {prints.pop()}")

    def _outcome(self) -> Outcome:
        trace = self.cluster.trace
        return Outcome(
            seed=self.seed,
            operations=len(self.history.asked) + len(self.history.looked),
            reads=len(self.history.looked),
            heard=sum(len(heard.events) for listener in self.listeners for heard in listener.heard),
            revisions=self.truth.newest,
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
