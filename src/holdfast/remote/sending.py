"""What is sent when, and what is tried again: the same for threads and event loops, which only carry it out.

A call is tried again where that is safe: a read, or a write that carries an idempotency key; five times in all. A
watch that loses its connection resumes behind the last event it gave, without gap or repeat, and gives up after
so many attempts in a row that brought no sign of life.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, TypeVar

import httpx
import msgspec

from holdfast import errors
from holdfast.context import Context
from holdfast.ops import Operation
from holdfast.remote.answers import failure, item_of, result_of, type_details, typed_txn
from holdfast.remote.requests import Args, Kwargs, Request, headers_of, named, request_of

ATTEMPTS: Final = 5
PAUSE: Final = 0.05  # seconds before the second attempt; three times as long before each one after it
RESUMES: Final = 30  # in a row, without a sign of life between them: about a minute
SILENCE: Final = 35.0  # seconds without even a bookmark: nobody is there any more

_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_HINT: Final = "see that holdfast serve runs there, and try again"
R = TypeVar("R")


class Send(msgspec.Struct, frozen=True):
    """Send a request; answers its response."""

    request: Request
    headers: dict[str, str]


class Pause(msgspec.Struct, frozen=True):
    """Wait so many seconds."""

    seconds: float


Steps = Generator[Send | Pause, Any, R]


def calling(op: Operation[..., Any], args: Args, kwargs: Kwargs, context: Context) -> Steps[Any]:
    """Call an operation; answers what it answers."""
    given = named(op, args, kwargs)
    try:
        response = yield from sending(request_of(op, given), context)
    except errors.HoldfastError as error:
        type_details(op, error)
        raise
    result = result_of(op, response)
    return typed_txn(result, given) if op.name == "txn" else result


def asking(what: str, context: Context) -> Steps[dict[str, Any]]:
    """Ask something of the workspace itself."""
    response = yield from sending(Request("GET", f"/api/{what}", [], None, True, 0.0), context)
    answer: dict[str, Any] = msgspec.json.decode(response.content)
    return answer


def sending(request: Request, context: Context) -> Steps[httpx.Response]:
    """Send a request, again if that is safe."""
    attempts = ATTEMPTS if request.safe or context.key is not None else 1
    sent: httpx.TransportError | None = None  # the trouble after which it may have happened
    for attempt in range(attempts):
        try:
            response: httpx.Response = yield Send(request, headers_of(request, context))
        except httpx.TransportError as error:
            if not isinstance(error, _NEVER_SENT):
                sent = error
            if attempt == attempts - 1 or _is_distrust(error):
                raise _lost(request, sent or error) from error
            yield Pause(PAUSE * 3**attempt)
            continue
        if response.is_success:
            return response
        refusal = failure(response.content, response.status_code)
        if type(refusal) is not errors.Unavailable or not request.safe or attempt == attempts - 1:
            raise refusal
        yield Pause(PAUSE * 3**attempt)  # it stops, and another may take its place
    raise AssertionError("not reached")


def _is_distrust(error: httpx.TransportError) -> bool:
    """Whether the server has shown a certificate that is not trusted: that will not change."""
    return "CERTIFICATE_VERIFY_FAILED" in str(error)


def _lost(request: Request, error: httpx.TransportError) -> errors.HoldfastError:
    """What is known of a call without an answer: a write that was sent may have happened."""
    told = str(error) or type(error).__name__
    if request.safe or isinstance(error, _NEVER_SENT):
        hint = "pass verify=, the server's own certificate" if _is_distrust(error) else _HINT
        return errors.Unreachable(f"the server cannot be reached: {told}", hint=hint)
    return errors.OutcomeUnknown(
        f"the connection broke before the answer came: {told}", hint="repeat it with the same idempotency key"
    )


class Resuming:
    """One watch over as many connections as it takes."""

    def __init__(self, op: Operation[..., Any], args: Args, kwargs: Kwargs, context: Context) -> None:
        self._op = op
        self.request = request_of(op, named(op, args, kwargs))
        self._headers = headers_of(self.request, context) | {"accept": "text/event-stream"}
        self._last: str | None = None
        self._failures = 0
        self.connected = False  # it has been heard of; from then on nothing is missed
        self.over = False
        self._name = self._id = ""
        self._data: list[str] = []

    @property
    def headers(self) -> dict[str, str]:
        """What the next request says."""
        self._name, self._id, self._data = "", "", []
        return self._headers if self._last is None else self._headers | {"last-event-id": self._last}

    def heard(self, line: str) -> list[Any]:
        """A line has come; answers the events that it completes."""
        if line:
            self._gather(line)
            return []
        name, id, data = self._name, self._id, "\n".join(self._data)
        self._name, self._id, self._data = "", "", []
        if not data:
            return []
        self.connected = True
        self._failures = 0
        self._last = id or self._last
        if name == "error":
            raise failure(data.encode(), 500)
        self.over = name == "end"
        if name:
            return []
        return [item_of(self._op, data.encode())]

    def _gather(self, line: str) -> None:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            self._name = value
        elif field == "id":
            self._id = value
        elif field == "data":
            self._data.append(value)

    def broke(self, error: httpx.TransportError | None) -> float:
        """The connection has ended; answers the seconds to wait before the next, or raises Unreachable."""
        self._failures += 1
        if self._failures > RESUMES or not self.connected:
            told = "it ends every connection" if error is None else str(error) or type(error).__name__
            raise errors.Unreachable(f"the server cannot be reached: {told}", hint=_HINT) from error
        return float(min(0.05 * 2**self._failures, 2.0))
