"""`txn`: if these conditions hold, then these operations, otherwise those; atomically, as plain data.

The form of a transaction that travels: over HTTP and MCP, and to a remote workspace. Conditions look at records through
the probes that workspace.py wires, one per kind; operations are the entries of the operation table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast import errors
from holdfast.kernel.tx import Tx
from holdfast.kernel.values import encode
from holdfast.ops import Found, Operation, find_operation
from holdfast.types.txn import Condition, Exists, NotExists, Op, TxnResult, ValueEquals, VersionEquals

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
