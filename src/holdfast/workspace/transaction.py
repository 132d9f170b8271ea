"""`Root`: what a workspace offers, whatever runs it; `Transaction`: the same inside one transaction; and `txn`.

`txn` is the form of a transaction that travels: over HTTP and MCP, and to a remote workspace. Conditions look at
records through the probes of the registry, one per kind; operations are entries of the operation table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar

import msgspec

from holdfast import errors
from holdfast.arguments import Meaning, meant
from holdfast.kernel.signals import SHIELD
from holdfast.kernel.tx import Tx
from holdfast.kernel.values import encode
from holdfast.operation import REGISTRY, Domain, M, Operation, Sync, find_operation, procedure, read, stream, write
from holdfast.route import Late, example
from holdfast.types import (
    CONDITION_HINT,
    OPERATION_HINT,
    AnyCondition,
    Condition,
    Exists,
    NotExists,
    Op,
    TxnResult,
    ValueEquals,
    VersionEquals,
    as_time,
)
from holdfast.workspace.context import Body, Context, Fence
from holdfast.workspace.registry import DOMAINS, PROBES, domain_class
from holdfast.workspace.runner import TransactionRunner

if TYPE_CHECKING:
    from holdfast.domains import board as _board
    from holdfast.domains import events as _events
    from holdfast.domains import fleet as _fleet
    from holdfast.domains import undo as _undo
    from holdfast.domains.agents import Agents
    from holdfast.domains.cells import Cells
    from holdfast.domains.cycles import Cycles
    from holdfast.domains.events import ClockOps, Events
    from holdfast.domains.items import Items
    from holdfast.domains.leases import Leases
    from holdfast.domains.links import Links
    from holdfast.domains.mail import Mail
    from holdfast.domains.named_locks import Locks
    from holdfast.domains.paths import Paths
    from holdfast.domains.routes import Routes
    from holdfast.domains.stashes import Stashes
    from holdfast.domains.stashes.channels import Channels
    from holdfast.domains.stashes.queues import Queues
    from holdfast.domains.tasks import Tasks
    from holdfast.domains.threads import Threads
    from holdfast.domains.trails import Trails
else:
    _board = Late("holdfast.domains.board")
    _events = Late("holdfast.domains.events")
    _fleet = Late("holdfast.domains.fleet")
    _undo = Late("holdfast.domains.undo")

MAX_OPERATIONS: Final = 128
MAX_RESULTS: Final = 32 * 1024 * 1024  # bytes: as many tasks with the longest bodies as a txn can write
_packed = msgspec.msgpack.Encoder().encode
R = TypeVar("R")

# --- transactions as data --------------------------------------------------------------------------------------------


def txn(tx: Tx, conditions: Sequence[Condition], then: Sequence[Op], otherwise: Sequence[Op] = ()) -> TxnResult:
    """If every condition holds run `then`, else `otherwise`; atomically, at most 128 of all.

    Raises TooLarge, and does nothing, if the results are more than 32 MiB.
    """
    for given in (conditions, then, otherwise):
        if not isinstance(given, list | tuple):
            raise errors.Invalid(f"conditions and operations come in lists, not {type(given).__name__}")
    if len(conditions) + len(then) + len(otherwise) > MAX_OPERATIONS:
        raise errors.TooLarge(f"at most {MAX_OPERATIONS} conditions and operations in one txn", limit=MAX_OPERATIONS)
    _check_forms(conditions, then, otherwise)
    planned = {id(op): _lookup(op) for op in (*then, *otherwise)}  # a mistake in either branch is a mistake
    succeeded = all(holds(tx, condition) for condition in conditions)
    runner = TransactionRunner(tx)
    results: list[Any] = []
    left = MAX_RESULTS
    for op in then if succeeded else otherwise:
        result = runner.bind(planned[id(op)])(**op.args)
        left -= len(_packed(result))
        if left < 0:
            raise errors.TooLarge(
                f"the results of this txn exceed {MAX_RESULTS // 2**20} MiB, so nothing of it was done",
                hint="read less in it: list fewer, or read before or after it",
                limit=MAX_RESULTS,
            )
        results.append(result)
    return TxnResult(succeeded, results)


def _check_forms(conditions: Sequence[Any], then: Sequence[Any], otherwise: Sequence[Any]) -> None:
    """Raise Invalid for what is neither a condition nor an operation, saying where it is not one.

    What came as JSON and did not fit is still a dict here.
    """
    for each in conditions:
        if not isinstance(each, Condition):
            problem = _misfit(conditions, list[AnyCondition]) or f"{each!r:.80} is not a condition"
            raise errors.InvalidFilter(f"the conditions cannot be read: {problem}", hint=CONDITION_HINT)
    for operations in (then, otherwise):
        for one in operations:
            if not isinstance(one, Op):
                problem = _misfit(operations, list[Op]) or f"{one!r:.80} is not an operation"
                raise errors.Invalid(f"the operations cannot be read: {problem}", hint=OPERATION_HINT)


def _misfit(given: Sequence[Any], wanted: Any) -> str:
    try:
        msgspec.convert(given, wanted)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def holds(tx: Tx, condition: Condition) -> bool:
    """Whether a condition is true."""
    probe = PROBES.get(condition.kind)
    if probe is None:
        message = f"{condition.kind!r} is not a kind that a condition can name"
        raise errors.InvalidFilter(message, hint=f"kinds: {', '.join(sorted(PROBES))}")
    key = (condition.key,) if isinstance(condition.key, str) else condition.key
    parts = probe.__code__.co_varnames[1 : probe.__code__.co_argcount]
    if not isinstance(key, tuple | list) or len(key) != len(parts):
        form = f"({', '.join(parts)})" if len(parts) > 1 else "a str"
        raise errors.InvalidFilter(f"the key of a {condition.kind} is {form}, not {condition.key!r}")
    found = probe(tx, *key)
    match condition:
        case Exists():
            return found is not None
        case NotExists():
            return found is None
        case VersionEquals(version=version):
            if type(version) is not int:
                raise errors.InvalidFilter(f"version must be an int, not {version!r}")
            return found is not None and found.version == version
        case ValueEquals(value=value):
            return found is not None and encode(found.value) == encode(value)
    raise errors.InvalidFilter(f"{type(condition).__name__} is not a condition that txn knows")


def _lookup(op: Op) -> Operation[..., Any]:
    found = find_operation(op.op)
    if not isinstance(op.args, dict):
        raise errors.Invalid(f"the args of {op.op!r} must be a dict by name, not {type(op.args).__name__}")
    if found is None:
        from difflib import get_close_matches

        domain, _, name = str(op.op).rpartition(".")
        names = {each.rpartition(".")[2]: each for each in REGISTRY if each.startswith(f"{domain}.")}
        # Within its domain: a name of another word that begins alike is no likeness.
        close = get_close_matches(name, names, 1) or get_close_matches(str(op.op), () if names else REGISTRY, 1)
        hint = f"did you mean {names.get(close[0], close[0])}?" if close else "docs/python.md lists all of them"
        raise errors.Invalid(f"there is no operation {op.op!r}", hint=hint)
    if found.route.local or found.kind in ("first", "stream") or found.route.nests:
        raise errors.Invalid(f"{op.op!r} cannot run in a txn", hint="any read or write that takes plain data can")
    _check_arguments(found, op.args)
    return found


def _check_arguments(operation: Operation[..., Any], args: dict[str, Any]) -> None:
    try:
        operation.check_arguments((), args)
    except TypeError as error:
        names = operation.accepted.parameters
        lacking = [each.name for each in names.values() if each.default is each.empty and each.name not in args]
        unknown = [str(name) for name in args if name not in names]
        problem = f"needs {' and '.join(lacking)}" if lacking else f"does not take {' and '.join(unknown)}"
        hint = " ".join(question for name in unknown if (question := meant(name, names))) or None
        raise errors.Invalid(f"{operation.name} {problem}; its args are {', '.join(names)}", hint=hint) from error


_BY_ONE_NAME: Final = tuple(kind for kind in sorted(PROBES) if not kind.startswith(("cell", "link")))

# --- what a workspace offers -----------------------------------------------------------------------------------------


class Root(Domain[M]):
    """The operations and domains that a workspace itself has, whatever runs them."""

    prefix = ""
    txn = write(
        txn,
        http="POST /api/txn",
        reloads_rules=True,
        cli="txn",
        help="Do several operations as one, if conditions hold.",
        examples=(
            """holdfast txn '[{"if": "not_exists", "kind": "cell", "key": ["run", "owner"]}]'"""
            """ '[{"op": "cells.set", "args": {"run": "run", "cell": "owner", "value": 1}}]'""",
        ),
        nests=True,
        arguments={
            "conditions": Meaning(
                'what must hold, a JSON list of {"if": IF, "kind": KIND, "key": KEY}. IF is exists, not_exists,'
                ' version_equals (with "version"), or value_equals (with "value"). KIND is cell or cell-lock, with the'
                " key [RUN, CELL], link, with [TYPE, FROM, TO], or a kind whose key is an id or a name: "
                + ", ".join(_BY_ONE_NAME),
                "conditions",
            ),
            "then": Meaning(
                'what is done then, a JSON list of {"op": "cells.set", "args": {...}}, with the names and arguments'
                " of Python's calls",
                "operations",
            ),
        },
    )
    undo = write(
        _undo.undo,
        http="POST /api/undo",
        heavy=True,
        cli="undo [REVISION]",
        help="Take back one transaction: what it did to tasks, cells and stashes.",
        examples=(
            example(
                "holdfast undo --last --dry-run", "holdfast note hf-7k2q one", "holdfast update hf-7k2q --title Other"
            ),
            example("holdfast undo --last", "holdfast close hf-7k2q"),
        ),
        admin_only={"others": True},
        arguments={
            "revision": "the revision of the transaction, as holdfast event list shows it",
            "last": "your own newest transaction",
            "partial": "leave what cannot be taken back, and take back the rest",
            "others": "also a transaction of somebody else",
            "force": "although it was changed since",
        },
    )
    watch = stream(_events.follow, http="GET /api/events", cli="watch", mcp="watch")
    status = procedure(
        _fleet.status,
        http="GET /api/status",
        heavy=True,
        looking=True,
        cli="status",
        help="Show the fleet: who works on what, what is stuck, what needs you.",
        examples=("holdfast status", "holdfast status --json"),
        arguments={"midnight": Meaning("when your day began, for what was closed today", "past")},
    )
    activity = procedure(
        _fleet.activity,
        http="GET /api/activity",
        heavy=True,
        looking=True,
        cli="activity [SINCE]",
        help="Count what happened to claims, by agent and time.",
        examples=("holdfast activity 24h --bucket 1h", "holdfast activity 2h --json"),
        arguments={
            "since": Meaning("since then: 24h, today, 'monday 9:00' or a moment", "past"),
            "until": Meaning("until this moment, or such as 1h ago", "past"),
            "bucket": Meaning("how long each count goes: 5m, 1h", "seconds"),
        },
    )
    board = read(
        _board.board,
        http="GET /api/board",
        listing=True,
        cli="board COLUMN",
        help="List a column of the board, with what its cards show.",
        examples=("holdfast board ready", "holdfast board blocked --json"),
        arguments={
            "column": "ready, waiting, in_progress, review, blocked or closed",
            "holder": "held by this agent",
            "text": "with these words",
            "total": "also count them",
            "type": "of this type",
        },
    )
    timeline = read(
        _board.timeline,
        http="GET /api/timeline",
        heavy=True,
        listing=True,
        cli="timeline [SINCE]",
        help="Show what each agent held, and when.",
        examples=("holdfast timeline 3h --json",),
        arguments={
            "since": Meaning("since then: 3h, today, 'monday 9:00' or a moment", "past"),
            "until": Meaning("until this moment, or such as 1h ago", "past"),
            "resolution": Meaning("join what is shorter: 10s, 5m", "seconds"),
        },
    )

    if TYPE_CHECKING:
        cells: Cells[M]
        locks: Locks[M]
        leases: Leases[M]
        events: Events[M]
        clock: ClockOps[M]
        tasks: Tasks[M]
        routes: Routes[M]
        agents: Agents[M]
        mail: Mail[M]
        paths: Paths[M]
        stashes: Stashes[M]
        queues: Queues[M]
        channels: Channels[M]
        trails: Trails[M]
        links: Links[M]
        cycles: Cycles[M]
        threads: Threads[M]
        items: Items[M]


class _Part:
    """A domain of a workspace: loaded and made when it is first used, from then on a plain attribute."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, root: Root[Any] | None, owner: type) -> Any:
        if root is None:
            return domain_class(self._name)
        part = root.__dict__[self._name] = domain_class(self._name)(root._runner)
        return part


for _name in DOMAINS:
    setattr(Root, _name, _Part(_name))


class InContext(Root[M]):
    """A workspace whose calls have a context."""

    _context: Context

    def _within(self, context: Context) -> Self:
        """The same workspace for calls in this context."""
        raise NotImplementedError

    def using(
        self,
        actor: str | None = None,
        fence: Fence | None = None,
        key: str | None = None,
        at_least: int | Literal["latest"] | None = None,
    ) -> Self:
        """The same workspace for calls with this actor, fence, key or at_least; what is not given stays as it was.

        `at_least` is a revision that a read must have reached, or "latest": whatever was acknowledged before, anywhere.
        """
        return self._within(self._context.with_(actor=actor, fence=fence, key=key, at_least=at_least))

    using.__qualname__ = "using"  # as Python names it in the error of a call with wrong arguments


# --- inside a transaction --------------------------------------------------------------------------------------------


class Transaction(Root[Sync]):
    """A transaction in progress: the domains, and the facts `now`, `revision` and `actor`."""

    def __init__(self, tx: Tx) -> None:
        super().__init__(TransactionRunner(tx))
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
        """The name it acts under."""
        return self._tx.actor


def user_body(body: Callable[[Transaction], R]) -> Body:
    """A user's function as a body; a coroutine is refused, because nothing inside could await it."""
    if not callable(body):
        raise errors.Invalid(f"transact takes a function of one argument (tx), not {type(body).__name__}")

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
