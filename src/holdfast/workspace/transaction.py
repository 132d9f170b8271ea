"""`Transaction`: the domains inside one transaction; and `txn`, a transaction as plain data.

The form of a transaction that travels: over HTTP and MCP, and to a remote workspace. Conditions look at records through
the probes that workspace.py wires, one per kind; operations are the entries of the operation table.

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
from holdfast.domains import cell_history, cells, events, leases, locks, task_hooks
from holdfast.domains.cells import Cells
from holdfast.domains.events import ClockOps, Events
from holdfast.domains.leases import Leases
from holdfast.domains.locks import FREED, Locks, Target, end_lease
from holdfast.kernel import leases as kernel_leases
from holdfast.kernel.signals import SHIELD
from holdfast.kernel.tx import Snapshot, Tx
from holdfast.kernel.values import encode
from holdfast.operation import (
    LATE,
    Do,
    Domain,
    Found,
    Look,
    M,
    Operation,
    ReadFile,
    Step,
    Sync,
    drive,
    find_operation,
    stream,
    write,
)
from holdfast.types import Condition, Exists, NotExists, Op, TxnResult, ValueEquals, VersionEquals, as_time
from holdfast.workspace.context import Body

if TYPE_CHECKING:
    from holdfast.domains.agents import Agents
    from holdfast.domains.cycles import Cycles
    from holdfast.domains.links import Links
    from holdfast.domains.mail import Mail
    from holdfast.domains.paths import Paths
    from holdfast.domains.routes import Routes
    from holdfast.domains.stashes import Stashes
    from holdfast.domains.tasks import Tasks
    from holdfast.domains.trails import Trails
    from holdfast.types.agents import Message, PathLock


MAX_OPERATIONS = 128


# Looks at one record: its key is a tuple such as (run, cell) or (name,).
Probe = Callable[..., Found | None]
Runner = Callable[[Operation[..., Any], dict[str, Any]], Any]


def holds(tx: Tx, condition: Condition, probes: dict[str, Probe]) -> bool:
    """Whether a condition is true."""
    if not isinstance(condition, Condition):
        raise errors.InvalidFilter(
            f"{condition!r} is not a condition",
            hint='use Exists("cell", (run, cell)), NotExists, VersionEquals, ValueEquals',
        )
    probe = probes.get(condition.kind)
    if probe is None:
        raise errors.InvalidFilter(f"no conditions on {condition.kind!r}", hint=f"kinds: {', '.join(sorted(probes))}")
    key = (condition.key,) if isinstance(condition.key, str) else condition.key
    if not isinstance(key, tuple | list):
        raise errors.InvalidFilter(f"{key!r} is not the key of a {condition.kind}")
    try:
        found = probe(tx, *key)
    except TypeError as error:
        raise errors.InvalidFilter(f"{key!r} is not the key of a {condition.kind}") from error
    match condition:
        case Exists():
            return found is not None
        case NotExists():
            return found is None
        case VersionEquals(version=version):
            if type(version) is not int:
                raise errors.InvalidFilter(f"a version is an int, not {version!r}")
            return found is not None and found.version == version
        case ValueEquals(value=value):
            return found is not None and encode(found.value) == encode(value)
    raise errors.InvalidFilter(f"{type(condition).__name__} is not a condition that txn knows")


def run_txn(
    tx: Tx,
    conditions: Sequence[Condition],
    then: Sequence[Op],
    otherwise: Sequence[Op],
    probes: dict[str, Probe],
    run: Runner,
) -> TxnResult:
    """Decide, then run one branch; an operation that raises undoes everything."""
    for given in (conditions, then, otherwise):
        if not isinstance(given, list | tuple):
            raise errors.Invalid(f"conditions and operations come in lists, not {type(given).__name__}")
    if len(conditions) + len(then) + len(otherwise) > MAX_OPERATIONS:
        raise errors.TooLarge(f"at most {MAX_OPERATIONS} conditions and operations in one txn", limit=MAX_OPERATIONS)
    planned = {id(op): _lookup(op) for op in (*then, *otherwise)}  # a mistake in either branch is a mistake
    succeeded = all(holds(tx, condition, probes) for condition in conditions)
    results = [run(planned[id(op)], op.args) for op in (then if succeeded else otherwise)]
    return TxnResult(succeeded, results)


def _lookup(op: Op) -> Operation[..., Any]:
    if not isinstance(op, Op):
        raise errors.Invalid(
            f"{op!r} is not an Op", hint='use Op("cells.set", {"run": ..., "cell": ..., "value": ...})'
        )
    found = find_operation(op.op)
    if not isinstance(op.args, dict):
        raise errors.Invalid(f"the arguments of {op.op!r} are a dict by name, not {type(op.args).__name__}")
    if found is None or found.route.local or found.kind in ("first", "stream") or found.name == "txn":
        raise errors.Invalid(f"{op.op!r} cannot run in a txn", hint="any read or write that takes plain data can")
    _check_arguments(found, op.args)
    return found


def _check_arguments(operation: Operation[..., Any], args: dict[str, Any]) -> None:
    import inspect

    try:
        inspect.signature(operation.function).bind(*[None] * operation.given, **args)
    except TypeError as error:
        raise errors.Invalid(f"{operation.name} cannot take these arguments: {error}") from error


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
    "links": ("holdfast.domains.links", "Links"),
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


def _stash_freed(tx: Tx, target: Target, op: str, changed_by: str | None) -> None:
    from holdfast.domains.stashes import lock

    lock.freed(tx, target, op, changed_by)


class _TaskHooks:
    """What mail and paths tell tasks."""

    def messages(self, snapshot: Snapshot, task: str, limit: int) -> tuple[list[Message], int]:
        from holdfast.domains.mail import messages

        return messages.newest_about(snapshot, task, limit)

    def open_messages(self, snapshot: Snapshot, task: str) -> list[str]:
        from holdfast.domains.mail import messages

        return messages.open_about(snapshot, task)

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


task_hooks.wire(_TaskHooks())
kernel_leases.wire(cells.end_lease, end_lease, _end_late_lease)
FREED["stash-lock"] = _stash_freed

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
    cell_history.check,
    locks.check,
    *(_late_check(module) for module in ("tasks.check", "agents", "mail.messages", "paths")),
    *(_late_check(module, "stashes") for module in ("stashes", "trails", "links")),
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
