"""Every domain in one place, and `Transaction`: the domains inside one transaction.

`Root` is what a workspace offers, whatever drives it: threads (`Workspace`), an event loop (`AsyncWorkspace`), or a
transaction in progress. This module and workspace.py alone know all domains; here they are wired to the kernel:
what ends with a lease, what `txn` can look at, what `check` compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast import errors
from holdfast.context import Body
from holdfast.domains import cell_reading, cells, events, holding, leases, locks, outside
from holdfast.domains.cells import Cells
from holdfast.domains.clock import ClockOps
from holdfast.domains.events import Events
from holdfast.domains.leases import Leases
from holdfast.domains.locks import Locks
from holdfast.kernel import leases as kernel_leases
from holdfast.kernel.shield import SHIELD
from holdfast.kernel.tx import Snapshot, Tx
from holdfast.ops import LATE, Do, Domain, Look, M, Operation, ReadFile, Step, Sync, drive, stream, write
from holdfast.txn import Probe, run_txn
from holdfast.types.base import as_time
from holdfast.types.txn import Condition, Op, TxnResult

if TYPE_CHECKING:
    from holdfast.domains.agents import Agents
    from holdfast.domains.cycles import Cycles
    from holdfast.domains.linking import Links
    from holdfast.domains.mail import Mail
    from holdfast.domains.paths import Paths
    from holdfast.domains.routes import Routes
    from holdfast.domains.stashes import Stashes
    from holdfast.domains.tasks import Tasks
    from holdfast.domains.trails import Trails
    from holdfast.types.mail import Message
    from holdfast.types.paths import PathLock

R = TypeVar("R")

# These are loaded when they are first used: an agent that only reads a cell need not wait for them.
_HOMES = {
    "tasks": ("holdfast.domains.tasks", "Tasks"),
    "routes": ("holdfast.domains.routes", "Routes"),
    "agents": ("holdfast.domains.agents", "Agents"),
    "mail": ("holdfast.domains.mail", "Mail"),
    "paths": ("holdfast.domains.paths", "Paths"),
    "stashes": ("holdfast.domains.stashes", "Stashes"),
    "trails": ("holdfast.domains.trails", "Trails"),
    "links": ("holdfast.domains.linking", "Links"),
    "cycles": ("holdfast.domains.cycles", "Cycles"),
}
LATE.update({name: module for name, (module, _) in _HOMES.items()})


def _end_late_lease(tx: Tx, lease: str, op: str) -> None:
    if lease.startswith("task:"):
        from holdfast.domains.tasks import claims

        claims.end_lease(tx, lease, op)
    elif lease == "retention":
        from holdfast.domains.tasks import retention

        retention.end_lease(tx, lease, op)
    elif lease.startswith("stash:"):
        from holdfast.domains import stashes

        stashes.end_lease(tx, lease, op)
    elif lease.startswith("trail:"):
        from holdfast.domains import trails

        trails.end_lease(tx, lease, op)


def _stash_freed(tx: Tx, target: holding.Target, op: str, changed_by: str | None) -> None:
    from holdfast.domains.stashes import locking

    locking.freed(tx, target, op, changed_by)


class _OutsideTasks:
    """What mail and paths tell tasks."""

    def messages(self, snapshot: Snapshot, task: str, limit: int) -> tuple[list[Message], int]:
        from holdfast.domains.mail import reading

        return reading.newest_about(snapshot, task, limit)

    def open_messages(self, snapshot: Snapshot, task: str) -> list[str]:
        from holdfast.domains.mail import reading

        return reading.open_about(snapshot, task)

    def locks(self, snapshot: Snapshot, task: str) -> list[PathLock]:
        from holdfast.domains import paths

        return paths.of_task(snapshot, task)

    def freed(self, snapshot: Snapshot, task: str, revision: int) -> list[str]:
        from holdfast.domains import paths

        return paths.freed(snapshot, task, revision)


def _late_probe(module: str) -> Probe:
    """The probe of a domain that is loaded when first used."""
    return lambda tx, id: import_module(f"holdfast.domains.{module}").probe(tx, id)


def _late_check(module: str, table: str = "messages") -> Callable[[Snapshot], Iterable[str]]:
    """What such a domain compares; nothing in a store from before its tables."""

    def check(snapshot: Snapshot) -> Iterable[str]:
        if not snapshot.one("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (table,)):
            return ()
        found: Iterable[str] = import_module(f"holdfast.domains.{module}").check(snapshot)
        return found

    return check


outside.wire(_OutsideTasks())
kernel_leases.wire(cells.end_lease, holding.end_lease, _end_late_lease)
holding.FREED["stash-lock"] = _stash_freed

PROBES: dict[str, Probe] = {
    "cell": cells.probe,
    "cell-lock": cells.probe_lock,
    "cycle": _late_probe("cycles"),
    "lease": leases.probe,
    "lock": locks.probe,
    "agent": _late_probe("agents"),
    "message": _late_probe("mail"),
    "path": _late_probe("paths"),
    "stash": _late_probe("stashes"),
    "trail": _late_probe("trails"),
    "task": _late_probe("tasks"),
}
CHECKERS = (
    cell_reading.check,
    locks.check,
    *(_late_check(module) for module in ("tasks.checks", "agents", "mail.checks", "paths")),
    *(_late_check(module, "stashes") for module in ("stashes", "trails", "linking")),
    _late_check("cycles", "cycles"),
)


def txn(tx: Tx, conditions: Sequence[Condition], then: Sequence[Op], otherwise: Sequence[Op] = ()) -> TxnResult:
    """If every condition holds run `then`, else `otherwise`; atomically, at most 128 of all."""
    inside = Transaction(tx)
    return run_txn(tx, conditions, then, otherwise, PROBES, lambda op, args: inside.bind(op)(**args))


class Root(Domain[M]):
    """The operations and domains that a workspace itself has, whatever drives it."""

    prefix = ""
    txn = write(txn, http="POST /api/txn", cli="txn", mcp=True, routed=True)
    watch = stream(events.follow, http="GET /api/events", cli="watch", mcp=True)

    if TYPE_CHECKING:
        tasks: Tasks[M]
        routes: Routes[M]
        agents: Agents[M]
        mail: Mail[M]
        paths: Paths[M]
        stashes: Stashes[M]
        trails: Trails[M]
        links: Links[M]
        cycles: Cycles[M]
    else:

        def __getattr__(self, name: str) -> Any:
            if name not in _HOMES:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            module, domain = _HOMES[name]
            self.__dict__[name] = getattr(import_module(module), domain)(self._runner)
            return self.__dict__[name]

    def __init__(self, runner: Any) -> None:
        super().__init__(runner)
        self.cells: Cells[M] = Cells(runner)
        self.locks: Locks[M] = Locks(runner)
        self.leases: Leases[M] = Leases(runner)
        self.events: Events[M] = Events(runner)
        self.clock: ClockOps[M] = ClockOps(runner)


# --- inside a transaction --------------------------------------------------------------------------------------------


class Transaction(Root[Sync]):
    """A transaction in progress: the domains, and the facts `now`, `revision` and `actor`."""

    def __init__(self, tx: Tx) -> None:
        super().__init__(self)
        self._tx = tx

    @property
    def now(self) -> datetime:
        """The time of this transaction; it does not move."""
        return as_time(self._tx.now)

    @property
    def revision(self) -> int:
        """The revision this transaction takes if it changes anything."""
        return self._tx.revision

    @property
    def actor(self) -> str:
        """Who acts."""
        return self._tx.actor

    def bind(self, op: Operation[..., Any]) -> Callable[..., Any]:
        """An operation that runs inside this transaction; a write that fails leaves nothing of itself behind."""
        tx, function = self._tx, op.asked_by(self._tx.actor)
        match op.kind:
            case "read":
                return lambda *args, **kwargs: function(tx, *args, **kwargs)
            case "write":
                return lambda *args, **kwargs: self._whole(lambda: function(tx, *args, **kwargs))
            case "procedure":
                return lambda *args, **kwargs: self._whole(lambda: drive(function(*args, **kwargs), self._perform))
        raise errors.Invalid(f"{op.name} cannot be used inside a transaction", hint="watch outside, before or after it")

    def _whole(self, run: Callable[[], Any]) -> Any:
        with self._tx.savepoint():
            return run()

    def _perform(self, step: Step) -> Any:
        match step:
            case Do(body=body):
                return body(self._tx)
            case Look(read=read):
                return read(self._tx, self._tx.actor)
            case ReadFile(name=name):
                raise errors.Unsupported(f"{name} is not read inside a transaction", hint="call it before or after")
        raise errors.Invalid("waiting is not possible inside a transaction", hint="leave out wait=, and wait before it")


def user_body(body: Callable[[Transaction], R]) -> Body:
    """A user's function as a body; a coroutine is refused, because nobody could await it inside."""
    if not callable(body):
        raise errors.Invalid(f"a body is a function of one argument, not {type(body).__name__}")

    def run(tx: Tx) -> Any:
        with SHIELD.window():
            result = body(Transaction(tx))
        if hasattr(result, "__await__") or (hasattr(result, "send") and hasattr(result, "throw")):
            if hasattr(result, "close"):
                result.close()
            raise errors.Invalid(
                "a body cannot be a coroutine or a generator",
                hint="make it a plain function; tx needs no await or yield",
            )
        return result

    return run
