"""Nodes for the tests of this folder: real workspaces in one process that share a log.

`Nodes` opens and closes them. `Wire` is a FaultyLog whose faults a test sets by hand, one for each node that shall have
a bad line. `at` puts something at a failpoint. What a test needs to know of the log itself is read with `entries`.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, get_args

import apsw

import holdfast
from holdfast.clock import Signal
from holdfast.kernel import failpoints
from holdfast.kernel.engine import Engine
from holdfast.kernel.journal import Journal
from holdfast.kernel.store_files import FILE
from holdfast.replication.follower import is_shared
from holdfast.replication.log import START, AnyEntry, Changes, CommitLog, MemoryLog, Trimmed, from_bytes, unseal
from holdfast.replication.replica import Replica
from holdfast.testing import FaultyLog, ManualClock
from holdfast.testing.crowd import LONG
from holdfast.testing.faulty_log import Fault, Method
from holdfast.workspace.context import Context
from tests.worlds.contents import contents

RUN = "run"
_LOOK_AGAIN = 0.005
LITTLE_PATIENCE = 0.1


class LeapingClock(ManualClock):
    """A clock on which waiting takes no time: it leaps to the deadline."""

    def wait_until(self, deadline: int | None, signal: Signal) -> bool:
        assert deadline is not None
        self.advance(max(0, deadline - self.monotonic()) / 1e6)
        return False


class Nodes:
    """Workspaces of one log, each in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.log: CommitLog = MemoryLog(clock=self.clock)
        self.patience: float | None = None  # of nodes that are opened as users do
        self._open: list[holdfast.Workspace] = []

    def open(
        self,
        name: str,
        log: CommitLog | None = None,
        clock: ManualClock | None = None,
        patience: float | None = None,
    ) -> holdfast.Workspace:
        """A node as users open it."""
        log = self.log if log is None else log
        clock = clock or self.clock
        patience = self.patience if patience is None else patience
        return self._keep(holdfast.open(self.path(name), actor=name, clock=clock, log=log, patience=patience))

    def engine(
        self, name: str, log: CommitLog | None = None, *, vfs: str | None = None, pulse: bool = True, **replica: Any
    ) -> holdfast.Workspace:
        """A node with options of its engine or its replica (`snapshot_every`, `steps`, ...); it waits in no time."""
        replica.setdefault("timer", LeapingClock())
        journal = Replica(self.log if log is None else log, self.clock, **replica)
        engine = Engine(self.path(name), clock=self.clock, journal=journal, vfs=vfs, pulse=pulse)
        return self._keep(holdfast.Workspace(engine, Context(name)))

    def stale(self, name: str, log: CommitLog | None = None) -> holdfast.Workspace:
        """A node that follows the log only when it is asked for something."""
        return self.engine(name, log, pulse=False)

    def path(self, name: str) -> Path:
        """The folder of a node."""
        return self.folder / name

    def file(self, name: str) -> apsw.Connection:
        """The replica behind its node's back."""
        connection = apsw.Connection(str(self.path(name) / FILE))
        connection.set_busy_timeout(10_000)
        return connection

    def _keep(self, workspace: holdfast.Workspace) -> holdfast.Workspace:
        self._open.append(workspace)
        return workspace

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every node."""
        while self._open:
            self._open.pop().close()


class Wire(FaultyLog):
    """A line to a log that does as it is told."""

    def __init__(self, log: CommitLog) -> None:
        super().__init__(log, self._choose)
        self._always: dict[Method, Fault] = {}
        self._once: dict[Method, deque[Fault]] = {}
        self.calls: list[Method] = []

    def once(self, method: Method, *faults: Fault) -> None:
        """The next calls of a method go wrong, one after the other."""
        self._once[method] = deque(faults)

    def always(self, method: Method, fault: Fault) -> None:
        """Every call of a method goes wrong from here on."""
        self._always[method] = fault

    def cut(self) -> None:
        """Nothing comes through."""
        for method in get_args(Method):
            self.always(method, "unreachable")

    def heal(self) -> None:
        """Everything works again."""
        self._always, self._once = {}, {}

    def _choose(self, method: Method) -> Fault | None:
        self.calls.append(method)
        queued = self._once.get(method)
        return queued.popleft() if queued else self._always.get(method)


@contextmanager
def at(place: str, act: Callable[[], None], thread: int | None = None) -> Iterator[list[str]]:
    """Do something whenever a failpoint is reached, by any thread or by one; answers the places that were."""
    reached: list[str] = []

    def hook(name: str) -> None:
        if thread is None or threading.get_ident() == thread:
            reached.append(name)
            if name == place:
                act()

    failpoints.hook = hook
    try:
        yield reached
    finally:
        failpoints.hook = None


def once(act: Callable[[], None]) -> Callable[[], None]:
    """The same, the first time; nothing after that."""
    todo = [act]

    def run() -> None:
        if todo:
            todo.pop()()

    return run


def raising(error: BaseException) -> Callable[[], None]:
    """What raises an error the first time."""

    def act() -> None:
        raise error

    return once(act)


def raw_entries(log: CommitLog) -> list[tuple[int, bytes]]:
    """All that is in a log."""
    after, found = START, list[tuple[int, bytes]]()
    while True:
        try:
            page = log.tail(after)
        except Trimmed as trimmed:
            page, after = (), trimmed.oldest
            continue
        if not page:
            return found
        found += page
        after = found[-1][0]


def noise(size: int) -> bytes:
    """Bytes that no compression makes fewer."""
    return random.Random(size).randbytes(size)


def entries(log: CommitLog) -> list[AnyEntry]:
    """All that is in a log, decoded."""
    return [from_bytes(raw, position) for position, raw in raw_entries(log)]


def eventually(condition: Callable[[], object], patience: float = LONG) -> None:
    """Return once it is so; one that never comes is a failure."""
    signal = Signal()
    for _ in range(int(patience / _LOOK_AGAIN)):
        if condition():
            return
        signal.wait(_LOOK_AGAIN)
    assert condition()


def journal(node: holdfast.Workspace) -> Journal:
    """The replica's side of a node."""
    found = node._engine.journal
    assert found is not None
    return found


def write(node: holdfast.Workspace, count: int, cell: str = "cell") -> None:
    """So many writes, with the snapshots that fall due between them: what the pulse does, at a known moment."""
    for _ in range(count):
        node.cells.increment(RUN, cell)
        journal(node).maintain()
    node._engine.sweep()


def changed_tables(log: CommitLog) -> set[str]:
    """The tables that the entries of a log change."""
    found = set()
    for entry in entries(log):
        if isinstance(entry, Changes):
            changeset = unseal(log.get(entry.blob), "a blob") if entry.blob else entry.changeset
            found |= {change.name for change in apsw.Changeset.iter(changeset)}
    return found


def assert_equal(*nodes: holdfast.Workspace) -> None:
    """Every node, once it has caught up, has the same rows in every table that is shared, and they are sound."""
    assert len(nodes) > 1
    for node in nodes:
        node.using(at_least="latest").reach()
    first, *others = [contents(node) for node in nodes]
    assert first["meta"]
    assert all(is_shared(table) for table in first)
    for other in others:
        assert other == first
    assert [problem for node in nodes for problem in node.check().problems] == []


def value(node: holdfast.Workspace, cell: str) -> Any:
    """What a node says is in a cell, from its own replica; None if it has none."""
    found = node.cells.find(RUN, cell)
    return None if found is None else found.value
