"""Calls as HTTP requests, and their answers and errors as what they were: the client's half of the wire."""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Generator, Iterator
from datetime import datetime
from functools import cache
from typing import Any, Final, get_origin, get_type_hints
from urllib.parse import quote

import httpx
import msgspec

from holdfast import errors
from holdfast.context import Context
from holdfast.faces.http import refusals
from holdfast.faces.http.codec import parsed, plan_of, wired
from holdfast.kernel.names import check_name
from holdfast.kernel.tx import DerivedActor
from holdfast.kernel.values import MAX_DEPTH
from holdfast.kernel.wire import from_wire, to_wire
from holdfast.ops import Operation, find_operation, operation
from holdfast.schemas import parameters, result_type
from holdfast.types.base import Page
from holdfast.types.tasks import ImportProblem, Task
from holdfast.types.txn import Op, TxnResult

ATTEMPTS: Final = 3
RESUMES: Final = 8  # in a row, without a single event between them
_TIMES: Final = {"since", "until", "claimed_at"}  # of the data of errors
_QUERIED: Final = ("GET", "DELETE")
_DEEP: Final = MAX_DEPTH + 16  # a value may be as deep as one can be, and lies inside an answer
_CLASSES: Final = {
    each.code: each
    for each in reversed([*vars(errors).values(), *vars(refusals).values()])
    if isinstance(each, type) and issubclass(each, errors.HoldfastError)
}


class Request(msgspec.Struct, frozen=True):
    """A call as it travels."""

    method: str
    path: str
    query: list[tuple[str, str]]
    body: bytes | None
    safe: bool  # may be sent again


def request_of(op: Operation[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Request:
    """A call of an operation; what cannot travel is refused as it would be in process."""
    names = _names(op.name)
    if len(args) > len(names):
        raise TypeError(f"{op.name} takes {len(names)} arguments, not {len(args)}")
    given = dict(zip(names, args, strict=False)) | kwargs
    assert op.route.http is not None
    method, _, path = op.route.http.partition(" ")
    for name in re.findall(r"\{(\w+)\}", path):
        path = path.replace(f"{{{name}}}", _segment(given.pop(name, None), name, plan_of(op.name).hints[name]))
    safe = op.kind in ("read", "first", "stream")
    if method in _QUERIED:
        query = [("args", _encoded(op, given).decode())] if given else []
        return Request(method, path, query, None, safe)
    return Request(method, path, [], _encoded(op, given), safe)


@cache
def _names(name: str) -> list[str]:
    return [each.name for each in parameters(operation(name))]


def _segment(value: Any, name: str, kind: Any) -> str:
    if kind is int:
        if type(value) is not int:
            raise errors.Invalid(f"{name} is an int, not {value!r}")
        return str(value)
    check_name(value, name)
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


class Wire:
    """The connections to one server."""

    def __init__(self, url: str, token: str | None, timeout: float, verify: str | bool) -> None:
        self.url = url
        base, transport = url.rstrip("/"), None
        if url.startswith("unix://"):
            base, transport = "http://localhost", httpx.HTTPTransport(uds=url.removeprefix("unix://"))
        self._client = httpx.Client(
            base_url=base,
            transport=transport,
            verify=verify,
            timeout=httpx.Timeout(timeout, read=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=32),  # each watch has one of its own
            headers={"authorization": f"Bearer {token or _token()}"},
        )

    def close(self) -> None:
        """Close them."""
        self._client.close()

    def ask(self, what: str, context: Context) -> dict[str, Any]:
        """Something of the workspace itself."""
        response = self._send(Request("GET", f"/api/{what}", [], None, True), context)
        answer: dict[str, Any] = msgspec.json.decode(response.content)
        return answer

    def call(self, op: Operation[..., Any], request: Request, context: Context) -> Any:
        """Do it, and answer what the operation answers."""
        try:
            response = self._send(request, context)
        except errors.HoldfastError as error:
            _type_details(op, error)
            raise
        result = _result(op, response.content)
        if not isinstance(result, list) or not _is_page(op.name):
            return result
        page: Page[Any] = Page(result)
        page.cursor = response.headers.get("x-next-cursor")
        total = response.headers.get("x-total-count")
        page.total = None if total is None else int(total)
        return page

    def _send(self, request: Request, context: Context) -> httpx.Response:
        attempts = ATTEMPTS if request.safe or context.key is not None else 1
        for attempt in range(1, attempts + 1):
            try:
                response = self._client.request(
                    request.method,
                    request.path,
                    params=tuple(request.query),
                    content=request.body,
                    headers=_headers(request, context),
                )
            except httpx.TransportError as error:
                if attempt < attempts:
                    time.sleep(0.05 * attempt)
                    continue
                raise _lost(request, error) from error
            if response.is_success:
                return response
            raise failure(response.content, response.status_code)
        raise AssertionError("not reached")

    def stream(self, op: Operation[..., Any], request: Request, context: Context) -> Generator[Any, None, None]:
        """Events as they come, after a first None once it is connected; resumes by itself."""
        last: str | None = None
        told = False
        failures = 0
        while True:
            headers = _headers(request, context) | {"accept": "text/event-stream"}
            if last is not None:
                headers["last-event-id"] = last
            try:
                with self._client.stream(
                    request.method, request.path, params=tuple(request.query), headers=headers
                ) as answer:
                    if not answer.is_success:
                        raise failure(answer.read(), answer.status_code)
                    for name, id, data in _sent(answer.iter_lines()):
                        last = id or last
                        if not told:
                            told = True
                            yield None
                        if name == "end":
                            return
                        if name == "error":
                            raise failure(data.encode(), 500)
                        if name == "":
                            failures = 0
                            yield _result(op, data.encode())
            except httpx.TransportError as error:
                failures += 1
                if failures > RESUMES or not told:
                    raise errors.Unreachable(f"the server cannot be reached: {error}") from error
            time.sleep(min(0.05 * 2**failures, 2.0))


def _sent(lines: Iterator[str]) -> Iterator[tuple[str, str, str]]:
    """The name, id and data of each server-sent event."""
    name = id = ""
    data: list[str] = []
    for line in lines:
        if not line:
            if data:
                yield name, id, "\n".join(data)
            name, id, data = "", "", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "id":
            id = value
        elif field == "data":
            data.append(value)


def _headers(request: Request, context: Context) -> dict[str, str]:
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
        headers["x-fence"] = f"{token} {'/'.join(quote(part, safe='') for part in parts)}"
    return headers


def _token() -> str:
    """The token from the environment; Unauthorized if there is none."""
    given = os.environ.get("HOLDFAST_TOKEN")
    file = os.environ.get("HOLDFAST_TOKEN_FILE")
    if given:
        return given
    if file:
        with open(file, encoding="utf-8") as opened:
            return opened.read().strip()
    raise errors.Unauthorized("a token is needed", hint="pass token=..., or set HOLDFAST_TOKEN or HOLDFAST_TOKEN_FILE")


def _lost(request: Request, error: httpx.TransportError) -> errors.HoldfastError:
    """What is known of a call without an answer: a write that was sent may have happened."""
    if request.safe or isinstance(error, httpx.ConnectError):
        return errors.Unreachable(f"the server cannot be reached: {error}")
    return errors.OutcomeUnknown(
        f"the connection broke before the answer came: {error}", hint="repeat it with the same idempotency key"
    )


# --- answers and errors ----------------------------------------------------------------------------------------------


def _result(op: Operation[..., Any], content: bytes) -> Any:
    kind = result_type(op.name)
    if not plan_of(op.name).free:
        return msgspec.json.decode(content, type=kind)
    return msgspec.convert(from_wire(msgspec.json.decode(content), _DEEP), kind)


def typed(answer: TxnResult, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TxnResult:
    """The results of a txn as the types of the operations that it ran."""
    given = dict(zip(("conditions", "then", "otherwise"), args, strict=False)) | kwargs
    ran = given["then"] if answer.succeeded else given.get("otherwise", ())
    results = [msgspec.convert(result, result_type(op.op)) for op, result in zip(ran, answer.results, strict=True)]
    return TxnResult(answer.succeeded, results)


@cache
def _is_page(name: str) -> bool:
    return get_origin(get_type_hints(operation(name).function)["return"]) is Page


def failure(content: bytes, status: int) -> errors.HoldfastError:
    """The error that a server told, of the class that it was."""
    try:
        told = parsed(content)
        if not isinstance(told, dict):
            raise ValueError("no object")
    except ValueError:
        return errors.Unavailable(f"the server answered {status}, and not as Holdfast does")
    cls = _CLASSES.get(told.get("code", ""), errors.HoldfastError)
    details = {name: _detail(name, value) for name, value in told.get("details", {}).items()}
    return cls(told.get("error", ""), hint=told.get("hint", ""), **details)


def _type_details(op: Operation[..., Any], error: errors.HoldfastError) -> None:
    """What an error carries of records, as the types they are in process."""
    types: dict[str, Any] = {"problems": list[ImportProblem]}
    if op.name.startswith("tasks."):
        types["value"] = Task
    for name, kind in types.items():
        if isinstance(error.details.get(name), dict | list):
            error.details[name] = msgspec.convert(error.details[name], kind)


def _detail(name: str, value: Any) -> Any:
    value = from_wire(value, _DEEP)
    if name in _TIMES and isinstance(value, str):
        return msgspec.convert(value, datetime)
    return value
