"""Kinds of workspaces for the conformance suite: memory, file, several processes, replicas of a log, and a server.

A `World` is one store. `world.open(actor)` gives another handle on it, as another agent would have; `world.clock` is
its time, which stands still until advanced. `capabilities` says which forms the kind has: "callables" (bodies, and
functions that are called once), "transitions" (functions of a cell's value), "interactive" (`with ws.transaction()`),
"aio" (`ws.aio`), "local" (all calls of a handle meet in one engine of this process), "folder" (another process can
open the store in `folder / "store"`), "store" (the store is at hand: it can be backed up, and a watch reads it at its
own pace), "prompt" (a call that is awaited has begun when it first lets others run).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar

import holdfast
from holdfast import errors
from holdfast.replication.log import CommitLog, MemoryLog, Patience
from holdfast.testing.clock import ManualClock
from holdfast.testing.faulty_log import TimedLog
from holdfast.types import Report
from holdfast.workspace import Workspace
from holdfast.workspace.context import derive_actor
from tests.worlds.processes import ProcessPool, ProcessWorkspace
from tests.worlds.rotating import RotatingWorkspace
from tests.worlds.templates import copy_nodes, copy_store

if TYPE_CHECKING:
    from tests.worlds.nats import NatsCluster

ACTOR = "tester"


class World:
    """One store of one kind, and a clock."""

    kind: ClassVar[str]
    capabilities: ClassVar[frozenset[str]] = frozenset(
        {"callables", "transitions", "interactive", "aio", "local", "store", "prompt"}
    )
    beyond: ClassVar[type[errors.HoldfastError]] = errors.InvalidFilter  # what a cursor of the future gets

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock(folder / "clock")
        self._closers: list[Callable[[], None]] = []
        self._opened: list[Workspace] = []

    def open(self, actor: str | None = ACTOR) -> Workspace:
        """Another handle on the store."""
        raise NotImplementedError

    def settle(self) -> None:
        """Return once every node has seen everything; a store of one node always has."""

    def live_until(self, is_done: Callable[[], bool], step: float = 600) -> None:
        """Let time pass until something has happened; a purge, say, waits for its backup, which is made meanwhile."""
        end = monotonic() + 60
        while not is_done():
            assert monotonic() < end
            self.clock.advance(step)
            self.settle()

    def checked(self) -> Report:
        """What a self-check finds, through the newest handle that is still open."""
        while self._opened:
            try:
                return self._opened.pop().check()
            except errors.Closed:
                continue
        return self.open().check()

    def close(self) -> None:
        """Close every handle."""
        self._opened.clear()
        while self._closers:
            self._closers.pop()()

    def _keep(self, workspace: Any) -> Workspace:
        """Remember a handle: it has the operations of a workspace, and is closed with the world."""
        self._closers.append(workspace.close)
        self._opened.append(workspace)
        return workspace  # type: ignore[no-any-return]


class MemoryWorld(World):
    """A private store without durability; its handles share one engine."""

    kind = "memory"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.clock = ManualClock()
        self._first = holdfast.open(":memory:", actor=ACTOR, clock=self.clock)
        self._closers.append(self._first.close)

    def open(self, actor: str | None = ACTOR) -> Workspace:
        return self._first.using(actor=derive_actor() if actor is None else actor)


class FileWorld(World):
    """A folder on disk; each handle has an engine of its own, as two programs in one process would."""

    kind = "file"
    capabilities = World.capabilities | {"folder"}

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        copy_store(folder / "store")

    def open(self, actor: str | None = ACTOR) -> Workspace:
        return self._keep(holdfast.open(self.folder / "store", actor=actor, clock=self.clock))


class ProcessesWorld(World):
    """A folder used by several processes; each call of a handle goes to the next of them."""

    kind = "processes"
    capabilities = frozenset({"folder", "store"})
    pool: ClassVar[ProcessPool | None] = None

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        copy_store(folder / "store")

    def open(self, actor: str | None = ACTOR) -> Workspace:
        pool = ProcessesWorld.pool = ProcessesWorld.pool or ProcessPool(3)
        return self._keep(ProcessWorkspace(pool, self.folder / "store", self.folder / "clock", actor))


class ReplicatedWorld(World):
    """Nodes that share a log; each call of a handle goes to the next of them, and has seen what was acknowledged."""

    nodes: ClassVar[int]
    beyond = errors.Behind  # nobody knows what other nodes have done
    capabilities = frozenset({"callables", "transitions", "interactive", "aio", "store", "prompt"})

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.clock = ManualClock()
        self.log = self.begin()
        self._handles: list[RotatingWorkspace] = []

    def open(self, actor: str | None = ACTOR) -> Workspace:
        workspace = RotatingWorkspace([self._open_node(number, actor) for number in range(self.nodes)])
        self._handles.append(workspace)
        return self._keep(workspace)

    def begin(self) -> CommitLog:
        """A log that the nodes have joined; whoever tests a log of theirs gives a new one, which they join later."""
        log = MemoryLog(clock=self.clock)
        copy_nodes(self.folder, log, self.nodes)
        return log

    def settle(self) -> None:
        for handle in self._handles:
            handle.settle()

    def _open_node(self, number: int, actor: str | None) -> Workspace:
        """Every handle has its own engine on the node's folder, as two programs on one machine would."""
        log = self.connect(number)
        node = holdfast.open(self.folder / f"node-{number}", actor=actor, clock=self.clock, log=log)
        return node.using(at_least="latest")

    def connect(self, number: int) -> CommitLog:
        """The log as this node reaches it; whoever tests a log of theirs gives each node a client of its own."""
        return self.log


class TwoNodesWorld(ReplicatedWorld):
    """Two nodes over one log."""

    kind = "replicated-2"
    nodes = 2


class ThreeNodesWorld(ReplicatedWorld):
    """Three nodes over one log."""

    kind = "replicated-3"
    nodes = 3


class EngineWorld(ReplicatedWorld):
    """Three nodes over a log in a real engine; each reaches it as a process of its own would."""

    nodes = 3

    def begin(self) -> CommitLog:
        self._name = os.urandom(8).hex()
        self._clients: dict[int, CommitLog] = {}
        log = self.connect(0)
        Patience().outlast(log.head)
        copy_nodes(self.folder, log, self.nodes)
        return log

    def connect(self, number: int) -> CommitLog:
        if number not in self._clients:
            log = self.client(number, self._name)
            self._closers.insert(0, log.close)  # after its workspaces
            self._clients[number] = TimedLog(log, self.clock)
        return self._clients[number]

    def client(self, number: int, name: str) -> CommitLog:
        """A client of the log, with connections of its own."""
        raise NotImplementedError


class PostgresWorld(EngineWorld):
    """Three nodes over a log in PostgreSQL."""

    kind = "postgres"

    def client(self, number: int, name: str) -> CommitLog:
        from holdfast.replication.postgres import PostgresLog
        from tests.worlds.postgres import shared_server

        return PostgresLog(f"{shared_server().url}&application_name=node-{number}", name, create=True)


class JetStreamWorld(EngineWorld):
    """Three nodes over a log on one NATS server."""

    kind = "jetstream"

    def client(self, number: int, name: str) -> CommitLog:
        from holdfast.replication.jetstream import JetStreamLog

        url = self.servers().url.replace("nats://", f"nats://node-{number}:any@")  # they ask nobody who they are
        return JetStreamLog(f"{url}?sync=always", name, create=True)

    def servers(self) -> NatsCluster:
        """Where the log is."""
        from tests.worlds.nats import shared_server

        return shared_server()


class JetStreamClusterWorld(JetStreamWorld):
    """Three nodes over a log on three NATS servers, which answer what one alone never does."""

    kind = "jetstream-3"

    def servers(self) -> NatsCluster:
        from tests.worlds.nats import shared_cluster

        return shared_cluster()


class RemoteWorld(World):
    """A named workspace of a server on this machine, which the worlds of one process share; handles are clients."""

    kind = "remote"
    capabilities = frozenset({"aio", "transitions"})

    def __init__(self, folder: Path) -> None:
        from tests.worlds.served import shared_server

        super().__init__(folder)
        self.clock = ManualClock()
        self._server = shared_server()
        copy_store(folder / "store")
        self._name = self._server.add(folder / "store", self.clock)
        self._closers.append(lambda: self._server.remove(self._name))

    def open(self, actor: str | None = ACTOR) -> Workspace:
        from holdfast.remote import connect

        return self._keep(connect(f"{self._server.url}/{self._name}", token=self._server.token, actor=actor))


KINDS: tuple[type[World], ...] = (
    MemoryWorld,
    FileWorld,
    ProcessesWorld,
    TwoNodesWorld,
    ThreeNodesWorld,
    PostgresWorld,
    JetStreamWorld,
    JetStreamClusterWorld,
    RemoteWorld,
)
