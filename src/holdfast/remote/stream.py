"""One watch over as many connections as it takes: it resumes after the last event it returned, without gap or repeat.

It gives up after 30 attempts in a row without a response, and at once if it never was connected to any node.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast import errors
from holdfast.operation import Operation
from holdfast.remote.http1 import Response
from holdfast.remote.protocol import (
    SERVE_THERE,
    Args,
    Kwargs,
    Send,
    failure,
    headers_of,
    is_of_node,
    item_of,
    not_ours,
    request_of,
)
from holdfast.schema import named_arguments
from holdfast.workspace.context import Context

RESUMES: Final = 30  # in a row, without a response between them: about a minute
SILENCE: Final = 35.0  # seconds without even a bookmark, after which a connection counts as lost


def check_events(response: Response) -> None:
    """Raise Unavailable unless a watch is answered by events."""
    if not response.headers.get("content-type", "").startswith("text/event-stream"):
        raise not_ours(response)


class Resuming:
    """One watch over as many connections as it takes."""

    def __init__(self, op: Operation[..., Any], args: Args, kwargs: Kwargs, context: Context) -> None:
        self.nodes = 1  # of which the client may use any
        op.check_arguments(args, kwargs)
        self._op = op
        self.request = request_of(op, named_arguments(op, args, kwargs))
        self._headers = headers_of(self.request, context) | {"accept": "text/event-stream"}
        self._last: str | None = None
        self._failures = 0
        self.connected = False  # it has been heard of; from then on nothing is missed
        self.over = False
        self._name = self._id = ""
        self._data: list[str] = []

    def step(self) -> Send:
        """The next request: it resumes behind the last event."""
        self._name, self._id, self._data = "", "", []
        resumed = {} if self._last is None else {"last-event-id": self._last}
        return Send(self.request, self._headers | resumed)

    def heard(self, line: str) -> list[Any]:
        """Take in a line and return the events that it completes."""
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

    def refused(self, content: bytes, status: int) -> errors.HoldfastError:
        """The error of a node that does not watch. Raises it, unless another node may."""
        refusal = failure(content, status)
        if self.nodes == 1 or not is_of_node(refusal):
            raise refusal
        return refusal

    def broke(self, error: Exception | None) -> float:
        """The connection has ended: return the seconds to wait before the next, or raise Unreachable to give up."""
        self._failures += 1
        if self._failures > (RESUMES if self.connected else self.nodes - 1):
            reason = "it ends every connection" if error is None else str(error) or type(error).__name__
            raise errors.Unreachable(f"the server cannot be reached: {reason}", hint=SERVE_THERE) from error
        return 0.0 if self._failures < self.nodes else float(min(0.05 * 2**self._failures, 2.0))
