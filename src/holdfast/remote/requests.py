"""Calls as HTTP requests: the client's half of `faces.http.codec`."""

from __future__ import annotations

import json
import math
import re
from datetime import datetime
from functools import cache
from typing import Any, Final
from urllib.parse import quote

import msgspec

from holdfast import errors
from holdfast.context import Context
from holdfast.domains.stashes.rows import spelled
from holdfast.faces.encoding import wired
from holdfast.faces.http.codec import plan_of
from holdfast.kernel.names import check_id, check_name
from holdfast.kernel.tx import DerivedActor
from holdfast.kernel.wire import to_wire
from holdfast.ops import Operation, find_operation, operation
from holdfast.schemas import parameters
from holdfast.types.txn import Op

_QUERIED: Final = ("GET", "DELETE")
_MISTAKABLE: Final = re.compile(r"\.+|[a-z-]+")
_BY_ID: Final = ("stashes", "trails", "links", "cycles")  # whose ids are refused as ids, not as names
_LONG_QUERY: Final = 4096  # bytes, beyond which arguments travel in the body, whatever the method
_LONGEST: Final = 1e7  # seconds that a socket can be told to wait
Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def no_function(name: str) -> errors.Unsupported:
    """The error for what takes a function."""
    return errors.Unsupported(f"{name} takes a function, which does not travel", hint="use ws.txn(conditions, then)")


def no_backup() -> errors.Unsupported:
    """The error for a backup through a client."""
    return errors.Unsupported(
        "a backup is made where the store is", hint="start the server with --backup-dir, or back up beside it"
    )


class Request(msgspec.Struct, frozen=True):
    """A call as it travels."""

    method: str
    path: str
    query: list[tuple[str, str]]
    body: bytes | None
    safe: bool  # may be sent again
    wait: float | None  # seconds that the call itself may take; None: as long as it likes


def named(op: Operation[..., Any], args: Args, kwargs: Kwargs) -> dict[str, Any]:
    """The arguments of a call by their names."""
    names = _names(op.name)
    if len(args) > len(names):
        raise TypeError(f"{op.name} takes {len(names)} arguments, not {len(args)}")
    return dict(zip(names, args, strict=False)) | kwargs


def request_of(op: Operation[..., Any], arguments: dict[str, Any]) -> Request:
    """A call of an operation; what cannot travel is refused as it would be in process."""
    given, wait = dict(arguments), _wait(op, arguments)
    assert op.route.http is not None
    method, _, path = op.route.http.partition(" ")
    for name in re.findall(r"\{(\w+)\}", path):
        path = path.replace(f"{{{name}}}", _segment(op, given.pop(name, None), name))
    safe = not op.writes
    encoded = _encoded(op, given) if given or method not in _QUERIED else None
    if encoded is None or method not in _QUERIED or len(encoded) > _LONG_QUERY:
        return Request(method, path, [], encoded, safe, wait)
    return Request(method, path, [("args", encoded.decode())], None, safe, wait)


def _wait(op: Operation[..., Any], given: dict[str, Any]) -> float | None:
    """How long a call may wait for others, as its arguments say."""
    if op.kind not in ("first", "procedure"):
        return 0.0
    wait = given.get("timeout") if op.kind == "first" else given.get("wait", 0.0)
    if wait is None:
        return None if op.kind == "first" else 0.0
    if not isinstance(wait, int | float) or not wait >= 0:
        return 0.0  # the operation refuses it
    return float(min(wait, _LONGEST))


@cache
def _names(name: str) -> list[str]:
    return [each.name for each in parameters(operation(name))]


def _segment(op: Operation[..., Any], value: Any, name: str) -> str:
    domain = op.name.partition(".")[0]
    if plan_of(op.name).hints[name] is int:
        if type(value) is not int:
            raise errors.Invalid(f"{name} is an int, not {value!r}")
        return str(value)
    if domain == "stashes" and name == "id":
        value = spelled(value)
    elif domain in _BY_ID and name != "name":
        check_id(value, name)
    else:
        check_name(value, name)
    if _MISTAKABLE.fullmatch(value):  # a dot would be taken for a place, a word for one of an address
        return "".join(f"%{byte:02X}" for byte in value.encode())
    return quote(value, safe="")


def _encoded(op: Operation[..., Any], given: dict[str, Any]) -> bytes:
    """Arguments as a JSON object."""
    arguments = {name: _argument(op.name, name, value) for name, value in given.items()}
    try:
        return msgspec.json.encode(arguments)
    except UnicodeEncodeError:  # a lone surrogate, which the operation refuses in its own words
        return json.dumps(arguments, default=datetime.isoformat).encode()


def _argument(op: str, name: str, value: Any) -> Any:
    """One argument in a form that JSON can carry, refused as the operation itself would refuse it."""
    plan = plan_of(op)
    if plan.hints.get(name) is Any or name not in plan.hints:
        return to_wire(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such number; the operation refuses the word as it would the number
    try:
        if isinstance(value, list | tuple) and value and all(isinstance(each, Op) for each in value):
            return [{"op": each.op, "args": _inner(each)} for each in value]
        return wired(value)
    except errors.InvalidValue as error:
        if name in plan.values:
            raise
        raise errors.Invalid(f"{name} cannot be {type(value).__name__} {str(value)[:80]}: {error.message}") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise errors.Invalid(f"{name} cannot be {type(value).__name__} {str(value)[:80]}: {error}") from error


def _inner(op: Op) -> Any:
    """The arguments of an operation inside a txn."""
    if not isinstance(op.args, dict) or find_operation(op.op) is None:
        return wired(op.args)
    return {name: _argument(op.op, name, value) for name, value in op.args.items()}


def headers_of(request: Request, context: Context) -> dict[str, str]:
    """What a call says about itself beside its arguments."""
    headers = {"prefer": "return=representation"}
    if request.body is not None:
        headers["content-type"] = "application/json"
    derived = isinstance(context.actor, DerivedActor)
    headers["x-agent-derived" if derived else "x-agent-id"] = quote(context.actor)
    if context.key is not None:
        headers["idempotency-key"] = quote(context.key)
    if context.at_least is not None:
        headers["x-at-least"] = str(context.at_least)
    if context.fence is not None:
        name, token = context.fence
        parts = (name,) if isinstance(name, str) else name
        headers["x-fence"] = f"{token} {'/'.join(quote(part or '', safe='') for part in parts)}"
    return headers
