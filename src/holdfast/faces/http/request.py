"""One request of a connection, and the way to answer it."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import httptools

from holdfast.faces.http.auth import DUPLICATE, MAX_BODY

if TYPE_CHECKING:
    from holdfast.faces.http.auth import Token
    from holdfast.faces.http.connection import Connection, Refusal

STATUS: Final = {each.value: b"HTTP/1.1 %d %b\r\n" % (each.value, each.phrase.encode()) for each in HTTPStatus}
_SCHEMES: Final = (b"http", b"https")
_AUTHORITY_END: Final = re.compile(rb"[/?#]")
CLOSE: Final = b"connection: close\r\n\r\n"


class Request:
    """One request, and the way to answer it: `reply` once, or `start` and `write`."""

    __slots__ = (
        "_parts",
        "_size",
        "actor",
        "answered",
        "began",
        "body",
        "complete",
        "connection",
        "headers",
        "keep_alive",
        "method",
        "most",
        "path",
        "place",
        "query",
        "refusal",
        "started",
        "token",
        "waits",
    )

    def __init__(self, connection: Connection, method: str, headers: dict[bytes, bytes], keep_alive: bool) -> None:
        self.connection = connection
        self.method = method
        self.headers = headers
        self.keep_alive = keep_alive
        self.path = self.query = self.body = b""
        self.complete = False  # its body has arrived
        self.started = self.answered = False
        self.waits = False  # for others, in a task of its own
        self.refusal: Refusal | None = None
        self._parts: list[bytes] | None = None
        self._size = 0
        self.most = MAX_BODY  # bytes of its body
        # the application's
        self.began = 0
        self.place: Any = None
        self.token: Token | None = None
        self.actor: str | None = None

    def locate(self, target: bytes) -> None:
        """Split its target. Raises an error of the parser if it is malformed.

        A target may name the server (RFC 9112, 3.2.2). If it names another than Host, it counts as a second Host.
        """
        if not target.startswith(b"/"):
            found = httptools.parse_url(target)
            self.path, self.query = found.path or b"\xff", found.query or b""
            if found.host:
                if found.schema.lower() not in _SCHEMES or found.userinfo:
                    raise httptools.HttpParserInvalidURLError("the target is not an address of HTTP")
                host, named = self.headers.get(b"host", b""), _AUTHORITY_END.split(target.partition(b"://")[2])[0]
                if host.lower() != named.lower():
                    self.headers[b"host"] = host + DUPLICATE + named
        else:
            if b"#" in target:
                target = target.partition(b"#")[0]
            self.path, _, self.query = target.partition(b"?")
        if not self.path.isascii():
            raise httptools.HttpParserInvalidURLError("the path is not ASCII")

    def add(self, part: bytes) -> bool:
        """Keep a part of the body; False if it is too large."""
        self._size += len(part)
        if self._size > self.most:
            self._parts, self.body = None, b""
            return False
        if not self.body:
            self.body = part
        elif self._parts is None:
            self._parts = [self.body, part]
        else:
            self._parts.append(part)
        return True

    def end(self) -> None:
        """Its body is complete."""
        self.complete = True
        if self._parts is not None:
            self.body, self._parts = b"".join(self._parts), None

    def reply(self, status: int, lines: bytes, body: bytes) -> None:
        """Send a whole response with one write; `lines` are complete headers, of the application's own making."""
        connection = self.connection
        self.answered = self.started = True
        if not self.complete and b"expect" in self.headers:
            self.keep_alive = False  # nobody knows whether its body follows
        if not connection.gone:
            last = b"\r\n" if self.keep_alive else CLOSE
            connection.transport.write(b"".join((STATUS[status], lines, last, body)))
            connection.finished(self)

    def start(self, status: int, lines: bytes) -> None:
        """Begin a response of unknown length."""
        self.started = True
        if not self.connection.gone:
            last = b"\r\n" if self.keep_alive else CLOSE
            self.connection.transport.write(b"".join((STATUS[status], lines, b"transfer-encoding: chunked\r\n", last)))

    async def write(self, chunk: bytes, more: bool = True) -> None:
        """Send a part of it, as soon as the client has read enough of those before."""
        connection = self.connection
        while connection.paused and not connection.gone:
            await connection.event()
        if connection.gone:
            return
        parts = [b"%x\r\n" % len(chunk), chunk, b"\r\n"] if chunk else []
        connection.transport.write(b"".join(parts if more else [*parts, b"0\r\n\r\n"]))
        if not more:
            self.answered = True
            connection.finished(self)

    async def left(self) -> None:
        """Return when the client has disconnected."""
        while not self.connection.gone:
            await self.connection.event()

    def abort(self) -> None:
        """Cut the connection: the response cannot be finished."""
        self.answered = True
        self.connection.abort()
