"""Calls as requests, responses as types and errors, and retries: the same for threads and event loops.

A call is tried again where that is safe: a read, or a write that carries an idempotency key; five times in all. A
client of several nodes tries each of them so often, and gives every write a key: done once, whichever node did it. All
attempts together have one deadline: what a stopped server has in its socket it may still carry out, so a write that
was given up has an unknown outcome, which its key settles.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator
from copy import deepcopy
from datetime import datetime
from secrets import token_hex
from time import monotonic
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from holdfast import errors
from holdfast.domains.stashes.rows import spelled
from holdfast.kernel.validate import check_id, check_name
from holdfast.kernel.values import MAX_DEPTH
from holdfast.operation import Operation, find_operation, operation
from holdfast.remote.http1 import Broken, Response
from holdfast.route import OBSERVED, say_existed
from holdfast.schema import is_page, named_arguments, result_type
from holdfast.types import (
    Cell,
    Condition,
    DerivedActor,
    ImportProblem,
    NotExists,
    Op,
    Page,
    Report,
    TxnResult,
    VersionEquals,
)
from holdfast.types.tasks import Task
from holdfast.wire import PASSING_KEY, PYTHON_HINTS, argument_to_wire, from_wire, parsed, plan_of, wired
from holdfast.workspace.context import Context, PassingKey, typed_txn

_QUERIED: Final = ("GET", "DELETE")
_MISTAKABLE: Final = re.compile(r"\.+|[a-z-]+")
_STASHES: Final = ("stashes", "queues", "channels")  # whose ids may also be (trail, name)
_BY_ID: Final = ("stashes", "trails", "links", "cycles")  # whose ids are refused as ids, not as names
_LONG_QUERY: Final = 4096  # bytes, beyond which arguments travel in the body, whatever the method
_LONGEST: Final = 1e7  # seconds that a socket can wait
Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def no_function(name: str) -> errors.Unsupported:
    """The error for what takes a function."""
    message = f"{name} takes a function, which cannot be sent to a server"
    return errors.Unsupported(message, hint="use ws.txn(conditions, then)")


def no_block() -> errors.Unsupported:
    """The error for a transaction around a block."""
    return errors.Unsupported(
        "a transaction around a block does not stay open over HTTP", hint="use ws.txn(conditions, then)"
    )


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


def request_of(op: Operation[..., Any], arguments: dict[str, Any]) -> Request:
    """The request of a call; what cannot travel is refused as it would be in process."""
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
    wait = given.get("timeout") if op.kind == "first" else given.get("wait") or 0.0
    if wait is None:
        return None
    if not isinstance(wait, int | float) or not wait >= 0:
        return 0.0  # the operation refuses it
    return float(min(wait, _LONGEST))


def _segment(op: Operation[..., Any], value: Any, name: str) -> str:
    domain = op.name.partition(".")[0]
    if plan_of(op.name).hints[name] is int:
        if type(value) is not int:
            raise errors.Invalid(f"{name} is an int, not {value!r}")
        return str(value)
    if domain in _STASHES and name == "id":
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
    try:
        if isinstance(value, list | tuple) and value and all(isinstance(each, Op) for each in value):
            return [{"op": each.op, "args": _inner(each)} for each in value]
        return argument_to_wire(op, name, value)
    except errors.InvalidValue:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise errors.Invalid(f"{name} cannot be {type(value).__name__} {str(value)[:80]}: {error}") from error


def _inner(op: Op) -> Any:
    """The arguments of an operation inside a txn."""
    if not isinstance(op.args, dict) or find_operation(op.op) is None:
        return wired(op.args)
    return {name: _argument(op.op, name, value) for name, value in op.args.items()}


def headers_of(request: Request, context: Context) -> dict[str, str]:
    """The headers of a call: its context, and the form of its body."""
    headers = {"prefer": f"return=representation, {PYTHON_HINTS}"}
    if request.body is not None:
        headers["content-type"] = "application/json"
    derived = isinstance(context.actor, DerivedActor)
    headers["x-agent-derived" if derived else "x-agent-id"] = quote(context.actor)
    if context.key is not None:
        headers["idempotency-key"] = quote(context.key)
        if isinstance(context.key, PassingKey):
            headers["prefer"] += f", {PASSING_KEY}"
    if context.at_least is not None:
        headers["x-at-least"] = str(context.at_least)
    if context.fence is not None:
        name, token = context.fence
        parts = (name,) if isinstance(name, str) else name
        headers["x-fence"] = f"{token} {'/'.join(quote(part or '', safe='') for part in parts)}"
    if OBSERVED.by is not None:
        OBSERVED.by.outgoing(headers)
    return headers


_NOT_OURS: Final = "check the address: a proxy, or another program, answers there"
_TIMES: Final = {"since", "until", "claimed_at"}  # of the data of errors
_DEEP: Final = MAX_DEPTH + 16  # a value may be as deep as one can be, and lies inside an answer
_CLASSES: Final = {
    each.code: each
    for each in reversed(vars(errors).values())
    if isinstance(each, type) and issubclass(each, errors.HoldfastError)
}


def result_of(op: Operation[..., Any], response: Response) -> Any:
    """The result of the operation."""
    result = item_of(op, response.content)
    if not isinstance(result, list) or not is_page(op.name):
        return result
    page: Page[Any] = Page(result)
    page.cursor = response.headers.get("x-next-cursor")
    total, compacted = response.headers.get("x-total-count"), response.headers.get("x-compacted")
    page.total = None if total is None else int(total)
    page.compacted = None if compacted is None else int(compacted)
    return page


def item_of(op: Operation[..., Any], content: bytes) -> Any:
    """A result, or one item of a stream, from its JSON."""
    kind = result_type(op.name)
    if not plan_of(op.name).free:
        return msgspec.json.decode(content, type=kind)
    return msgspec.convert(from_wire(msgspec.json.decode(content), _DEEP), kind)


class _Refusal(msgspec.Struct):
    """An error as a server of ours sends it."""

    error: str
    code: str
    hint: str = ""
    details: dict[str, Any] = {}


def failure(content: bytes, status: int) -> errors.HoldfastError:
    """The error in a response, of the class that it had on the server."""
    try:
        sent = msgspec.convert(parsed(content), _Refusal)
    except ValueError:  # of which msgspec.ValidationError is one
        message = f"the server answered {status}, and not as Holdfast does"
        return errors.Unavailable(message, hint=_NOT_OURS)
    cls = _CLASSES.get(sent.code, errors.HoldfastError)
    details = {name: _detail(name, value) for name, value in sent.details.items()}
    hint = sent.hint.replace(errors.NAME_YOURSELF, errors.NAME_YOURSELF_REMOTELY)
    return cls(sent.error, hint=hint, **details)


def type_details(op: Operation[..., Any], error: errors.HoldfastError) -> None:
    """Convert the records that an error carries to the types they have in process."""
    problems, value = error.details.get("problems"), error.details.get("value")
    if isinstance(problems, list) and problems and "severity" in problems[0]:  # those of an import
        error.details["problems"] = msgspec.convert(problems, list[ImportProblem])
    if isinstance(value, dict) and op.name.startswith("tasks."):
        error.details["value"] = msgspec.convert(value, Task)


def _detail(name: str, value: Any) -> Any:
    value = from_wire(value, _DEEP)
    if name in _TIMES and isinstance(value, str):
        return msgspec.convert(value, datetime)
    return value


ATTEMPTS: Final = 5
PAUSE: Final = 0.05  # seconds before the second attempt; three times as long before each one after it

SERVE_THERE: Final = "start holdfast serve there, or correct the address"
R = TypeVar("R")


class Send(msgspec.Struct, frozen=True):
    """Send a request and return its response. `until` is the monotonic time at which to give up, None for never."""

    request: Request
    headers: dict[str, str]
    until: float | None = None


class Pause(msgspec.Struct, frozen=True):
    """Wait so many seconds."""

    seconds: float


class Elsewhere(msgspec.Struct, frozen=True):
    """Return the servers that there are; leave the one that sent a response, if there is one."""

    response: Any = None


class Reach(NamedTuple):
    """How many servers a client may use, and how many seconds a call has that does not wait for others."""

    nodes: int
    timeout: float


Steps = Generator[Send | Pause | Elsewhere, Any, R]


class RemoteRunner:
    """Runs operations on a server; its wire blocks, or awaits."""

    def __init__(self, wire: Any, context: Context) -> None:
        self.awaits: bool = wire.awaits
        self._wire = wire
        self._context = context

    def bind(self, op: Operation[..., Any]) -> Callable[..., Any]:
        """The operation as a call."""
        wire, context = self._wire, self._context
        if op.kind == "stream":
            from holdfast.remote.stream import Resuming as resuming

            return lambda *args, **kwargs: wire.watch(resuming(op, args, kwargs, context))
        if op.name in _MODIFYING:
            return lambda *args, **kwargs: wire.drive(_MODIFYING[op.name](op, args, kwargs, context))
        if op.route.http is None:
            return lambda *args, **kwargs: wire.drive(refusing(no_function(op.name)))
        return lambda *args, **kwargs: wire.drive(calling(op, args, kwargs, context))

    def ask(self, what: str) -> Any:
        """A property of the workspace itself."""
        return self._wire.drive(_asking(what, self._context))


def refusing(error: errors.HoldfastError) -> Steps[Any]:
    """Raise an error when the call is made, or awaited."""
    yield from ()
    raise error


def calling(op: Operation[..., Any], args: Args, kwargs: Kwargs, context: Context) -> Steps[Any]:
    """Call an operation and return its result."""
    op.check_arguments(args, kwargs)
    given = named_arguments(op, args, kwargs)
    try:
        response = yield from sending(request_of(op, given), context)
    except errors.HoldfastError as error:
        type_details(op, error)
        raise
    if op.route.finds and response.status == 200:
        say_existed()
    try:
        result = result_of(op, response)
        return typed_txn(result, given) if op.name == "txn" else result
    except (msgspec.DecodeError, ValueError) as error:  # of which msgspec.ValidationError is one
        raise not_ours(response, changes=op.writes) from error


def _get_or_init(op: Operation[..., Any], args: Args, kwargs: Kwargs, context: Context) -> Steps[Cell]:
    """`cells.get_or_init`: a function as default is called here, and only if the cell is absent."""
    op.check_arguments(args, kwargs)
    given = named_arguments(op, args, kwargs)
    if callable(given["default"]):
        place = {name: given[name] for name in ("run", "cell")}
        found: Cell | None = yield from calling(operation("cells.find"), (), place, context)
        if found is not None:
            return found
        given["default"] = given["default"]()
    made: Cell = yield from calling(op, (), given, context)
    return made


def _transition(op: Operation[..., Any], args: Args, kwargs: Kwargs, context: Context) -> Steps[Cell]:
    """`cells.transition` and `transition_or_init`: a loop of compare-and-swap, at most TRIES times."""
    op.check_arguments(args, kwargs)
    given = named_arguments(op, args, kwargs)
    fn, place = given["fn"], {name: given[name] for name in ("run", "cell")}
    if not callable(fn):
        raise errors.Invalid(f"fn must be a function of the value, not {type(fn).__name__}")
    if context.key is not None:
        hint = "read the cell, and use ws.using(key=...).cells.cas(...)"
        raise errors.Unsupported(
            f"{op.name} over HTTP takes no key: it may write another value when repeated", hint=hint
        )
    for attempt in range(TRIES):
        found: Cell | None = yield from calling(operation("cells.find"), (), place, context)
        if found is None and "initial" not in given:
            yield from calling(operation("cells.get"), (), place, context)  # raises NotFound, unless it came just now
            continue
        if found is None:
            conditions: list[Condition] = [NotExists("cell", (place["run"], place["cell"]))]
            first = Op("cells.init", {**place, "value": given["initial"]})
            writes = [first, Op("cells.set", {**place, "value": fn(deepcopy(given["initial"]))})]
        else:
            conditions = [VersionEquals("cell", (place["run"], place["cell"]), found.version)]
            writes = [Op("cells.cas", {**place, "expected": found.version, "value": fn(found.value)})]
        then = [*writes, Op("cells.get", place)]
        answer: TxnResult = yield from calling(operation("txn"), (conditions, then), {}, context)
        if answer.succeeded:
            made: Cell = answer.results[-1]
            return made
        yield Pause(min(0.001 * attempt, 0.02))
    message = f"others changed the cell {place['cell']!r} {TRIES} times while {op.name} tried"
    raise errors.Conflict(message, hint="call it again, or let fewer agents write one cell")


TRIES: Final = 500  # of many writers one wins each time
_MODIFYING: Final = {
    "cells.get_or_init": _get_or_init,
    "cells.transition": _transition,
    "cells.transition_or_init": _transition,
}


_PROPERTIES: Final = {
    **{"revision": ("revision", "clock_ahead"), "check": Report.__struct_fields__},
    "whoami": ("token", "role", "actor", "workspace"),
}


def _asking(what: str, context: Context) -> Steps[dict[str, Any]]:
    response = yield from sending(Request("GET", f"/api/{what}", [], None, True, 0.0), context)
    try:
        found = msgspec.json.decode(response.content, type=dict[str, Any])
        return {name: found[name] for name in _PROPERTIES[what]}
    except (msgspec.DecodeError, ValueError, KeyError) as error:
        raise not_ours(response) from error


def not_ours(response: Response, changes: bool = False) -> errors.HoldfastError:
    """The error for a success that no server of ours sends: a page of a proxy, or JSON of something else."""
    kind = response.headers.get("content-type", "no content type").partition(";")[0][:80]
    message = f"the answer ({response.status}, {kind}) is not one of Holdfast's"
    if changes:
        hint = f"the write may have happened: look before you repeat it. {_NOT_OURS}"
        return errors.OutcomeUnknown(message, hint=hint)
    return errors.Unavailable(message, hint=_NOT_OURS)


def sending(request: Request, context: Context) -> Steps[Response]:
    """Send a request, and retry it if that is safe, at another node if there are several."""
    nodes, timeout = yield Elsewhere()
    if nodes > 1 and not request.safe and context.key is None:
        context = msgspec.structs.replace(context, key=f"auto-{token_hex(16)}")
    attempts = ATTEMPTS * nodes if request.safe or context.key is not None else 1
    end = None if request.wait is None else monotonic() + timeout + request.wait
    sent: Broken | None = None  # the trouble after which it may have happened
    for attempt in range(attempts):
        pause = PAUSE * 3 ** (attempt // nodes)
        try:
            until = None if end is None else min(end, monotonic() + timeout / nodes + (request.wait or 0.0))
            response: Response = yield Send(request, headers_of(request, context), until)
        except Broken as error:
            if error.sent:
                sent = error
            late = end is not None and monotonic() + pause >= end
            if attempt == attempts - 1 or late or error.distrusted:
                raise _lost(request, sent or error, context.key, timeout) from error
        else:
            if response.is_success:
                return response
            refusal = failure(response.content, response.status)
            again = is_of_node(refusal) if nodes > 1 else type(refusal) is errors.Unavailable and request.safe
            if not again or attempt == attempts - 1 or (end is not None and monotonic() + pause >= end):
                raise refusal
            yield Elsewhere(response)
        if (attempt + 1) % nodes == 0:  # every node had its chance
            yield Pause(pause)  # one that stops may be replaced
    raise AssertionError("not reached")


_OF_NODE: Final = (errors.Unreachable, errors.Closed, errors.ClockSkew, errors.Behind, errors.Corrupt)


def is_of_node(refusal: errors.HoldfastError) -> bool:
    """Whether an error is about the node that raised it, so that another may do what was asked."""
    unknown = isinstance(refusal, errors.OutcomeUnknown)  # settled by the key of the call
    return isinstance(refusal, _OF_NODE) or unknown or type(refusal) is errors.Unavailable


def _lost(request: Request, error: Broken, key: str | None, timeout: float) -> errors.HoldfastError:
    """The error for a call without a response: a write that was sent may have happened, or may happen yet."""
    reason = f"it did not answer within {timeout + (request.wait or 0.0):g} s" if error.late else str(error)
    if request.safe or not error.sent:
        hint = "pass verify=, the server's own certificate" if error.distrusted else SERVE_THERE
        return errors.Unreachable(f"the server cannot be reached: {reason}", hint=hint)
    lost = f"the connection broke before the answer came: {reason}"
    if error.late:
        lost = f"the server has the call, but {reason}; it may carry it out later"
    if key is None:
        hint = "look whether it happened before you repeat it; with ws.using(key=...) a call can be repeated safely"
        return errors.OutcomeUnknown(lost, hint=hint)
    return errors.OutcomeUnknown(lost, hint=f"repeat it with its idempotency key: key={key}", key=str(key))
