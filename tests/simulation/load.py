"""The load of a run: clients that ask, read and listen through whichever node they meet, and what became of it.

A client waits for its answer before it asks again, except that one whose answer never came may repeat the call, with
the same key, through another node. Operations that wait at one node at the same time may share a group.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from holdfast import errors
from holdfast.kernel.batch import Call
from holdfast.kernel.events import Filter, marks
from holdfast.kernel.tx import Snapshot, Tx
from holdfast.operation import operation
from holdfast.workspace import Workspace
from holdfast.workspace.transaction import Transaction, user_body
from tests.simulation.cluster import Cluster, Node
from tests.simulation.history import NOTHING_HAPPENED, Asked, History, Looked
from tests.simulation.mail_workload import EVERYBODY
from tests.simulation.replay import REFUSALS, SILENT, refusal
from tests.simulation.truth import Truth
from tests.simulation.watching import Listener
from tests.simulation.workload import READS, Workload

CLIENTS, CROWD = 6, 80  # of most runs, and of every fourth
# What nothing refuses, if it names none of those that may be gone, nor all that are known.
KEYED = ("cells.set", "cells.increment", "tasks.create", "mail.send", "trails.create")
MAY_BE_GONE = {"lease", "parent_id", "task"}
KEY_LIFE = 20 * 3600 * 1_000_000  # after which a client does not repeat itself any more


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


class Load:
    """The clients of one run."""

    def __init__(self, cluster: Cluster, truth: Truth) -> None:
        self.cluster = cluster
        self.truth = truth
        self.chance = cluster.random
        self.history = History()
        self.workload = Workload(self.chance)
        self.crowded = self.chance.random() < 0.25
        self.idle = CROWD if self.crowded else CLIENTS  # clients that wait for nothing
        self.largest_group = 0
        self.again: list[Asked] = []  # keyed operations of unknown outcome, to be repeated
        self.waiting: dict[str, list[Asked]] = {node.name: [] for node in cluster.nodes}
        self.listeners = [
            Listener(wanted)
            for wanted in (
                Filter(),
                Filter(("cell",)),
                Filter(("lock", "task", "message", "path", "stash", "stash-lock", "queue", "channel", "trail", "link")),
                Filter(("cell",), "r1", "a"),
            )
        ]
        self._numbers = itertools.count(1)

    @property
    def operations(self) -> int:
        """How many were asked for, reads among them."""
        return len(self.history.asked) + len(self.history.looked)

    # --- what clients do ---------------------------------------------------------------------------------------------

    def ask(self) -> None:
        """A client asks a node for something; in a crowd many ask the same node."""
        node = self.chance.choice(self.cluster.nodes)
        for _ in range(self.chance.choice((1, 24, 64)) if self.crowded else 1):
            self._ask(node)
        self.begin(node)

    def _ask(self, node: Node) -> None:
        if self.again and self.chance.random() < 0.5:
            asked = self.again.pop(0)
            asked.node, asked.ending, asked.error = node.name, "", None
        elif self.idle:
            self.idle -= 1
            op, args = self.workload.next()
            actor = f"op-{next(self._numbers)}"
            sure = op in KEYED and not MAY_BE_GONE & args.keys() and args.get("to") != EVERYBODY
            keyed = sure and self.chance.random() < 0.4
            fence = None if keyed else self.workload.fence()
            key = actor if keyed else None
            asked = Asked(actor, node.name, op, args, fence, self.history.newest, self.cluster.timeline.now, key)
            # Whoever writes a cell needs no name. The others of this world are none that holds a lock.
            asked.nameless = fence is not None and op.startswith("cells.") and "lock" not in op
            self.history.asked.append(asked)
        else:
            return
        self.waiting[node.name].append(asked)

    def look(self) -> None:
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
            try:
                return revision, now, operation(op).asked_by(node.name)(snapshot, **args)
            except REFUSALS as error:
                return revision, now, refusal(error)

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

    def listen(self) -> None:
        """A listener begins, hears or stops."""
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

    # --- what nodes do of it ------------------------------------------------------------------------------------------

    def begin(self, node: Node) -> None:
        """Give an idle node its next job."""
        if node.busy:
            return
        if not node.up:
            node.begin(lambda: self.start_node(node))
        elif self.waiting[node.name]:
            most = self.chance.choice((1, 64) if self.crowded else (1, 1, 2, 4))
            group, self.waiting[node.name] = self.waiting[node.name][:most], self.waiting[node.name][most:]
            node.begin(lambda: self._perform(node, group))

    def start_node(self, node: Node) -> None:
        """In a fibre: start a node that is down, if it can."""
        try:
            node.start()
            self.cluster.say(f"{node.name} is up")
        except (errors.Unreachable, errors.Busy, errors.DiskFull) as error:
            self.cluster.say(f"{node.name} cannot start: {error.code}")

    def _perform(self, node: Node, group: list[Asked]) -> None:
        """Run operations as one group, and hear how each ended."""
        workspace = node.workspace
        assert workspace is not None
        self.largest_group = max(self.largest_group, len(group))
        node.on_death.append(lambda: self._lost(group))
        calls = [QueuedCall(self._body(workspace, asked), asked.caller) for asked in group]
        for asked in group:
            asked.attempts += 1
        engine = workspace._engine
        engine.group.queue(calls[:-1])
        try:
            calls[-1].result = engine.submit(calls[-1].body, calls[-1].actor)
        except errors.HoldfastError as error:
            calls[-1].error = error
        node.on_death.clear()
        for asked, call in zip(group, calls, strict=True):
            self._hear(asked, call)

    def _body(self, workspace: Workspace, asked: Asked) -> Callable[..., Any]:
        acting = workspace.using(actor=asked.caller, fence=asked.fence, key=asked.key)
        if asked.key is not None:
            op = operation(asked.op)
            return acting._runner.guard(op, (), asked.args, lambda tx: op.function(tx, **asked.args))

        def body(tx: Transaction) -> Any:
            answer = operation(asked.op).on(tx)(**asked.args)
            if not tx._tx.events and asked.op in SILENT:
                tx.cells.set("audit", "silent", asked.actor)  # so that it has a revision by which to judge it
            return answer

        guarded = acting._runner.guard_users(user_body(body))

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
            if any(event.actor == asked.actor for event in self.truth.revisions.get(made, ())):
                self.workload.made(asked.op, made)
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
            self.idle += 1
