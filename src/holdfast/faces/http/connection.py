"""HTTP/1.1 on an event loop: one connection, and the requests on it in their order.

A connection answers its requests one at a time and in order, however many arrive at once; while some wait, or its
client does not read, nothing more is read from it. The head of a request is checked before its body is kept, so a
sender who may not call occupies no memory. A request whose end is not clear is refused, and what follows it is dropped.
Trailers are discarded. A connection always has a deadline, except while a request of it is being carried out: for the
headers, counted from the accept, for a body, for a client that does not read, and for time unused.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast

import httptools

from holdfast.faces.http.auth import DUPLICATE, MAX_BODY
from holdfast.faces.http.request import CLOSE, STATUS, Request
from holdfast.wire import json_bytes

if TYPE_CHECKING:
    from holdfast.faces.http.server import Connections, Listener

MAX_HEADERS: Final = 64 * 1024
MAX_HEADER_COUNT: Final = 128
HEADER_TIMEOUT: Final = 30.0  # seconds from the accept, or the first byte of a later request, to the end of the headers
BODY_TIMEOUT: Final = 60.0  # seconds from there to the end of the body
READ_TIMEOUT: Final = 30.0  # seconds in which a client must read something of its response
LINGER: Final = 2.0  # seconds for a client to see that its request was refused before it was complete
KEEP_ALIVE: Final = 75.0  # seconds of an unused connection: longer than clients keep it, so none is cut in use
_NEVER: Final = math.inf
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_METHODS: Final = {name.encode(): name for name in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")}


class Refusal(NamedTuple):
    """The response to what is not a request."""

    status: int
    code: str
    error: str
    hint: str


_NOT_HTTP: Final = Refusal(400, "INVALID", "this is not a valid HTTP request", "send HTTP/1.1")
_OTHER_VERSION: Final = Refusal(505, "UNSUPPORTED", "this version of HTTP is not spoken here", "send HTTP/1.1")
_BAD_VERSION: Final = "Invalid HTTP version"  # as the parser reports a digit, a dot and a digit that it does not know
_OTHER_CODING: Final = Refusal(
    501,
    "UNSUPPORTED",
    "a body may be sent in chunks, and in no other transfer coding",
    "send Transfer-Encoding: chunked",
)
_HEADERS_TOO_LARGE: Final = Refusal(
    431,
    "HEADERS_TOO_LARGE",
    f"a request may have {MAX_HEADER_COUNT} headers, and {MAX_HEADERS} bytes of them",
    "send fewer and shorter ones",
)
_HEADERS_LATE: Final = Refusal(408, "TIMEOUT", "the headers did not come in time", "send a request at once")
_BODY_LATE: Final = Refusal(408, "TIMEOUT", "the body did not come in time", "send it at once, in smaller parts")
_NO_ROOM: Final = Refusal(503, "UNAVAILABLE", "the server has no room for more connections", "close some, or try again")


_CODING: Final = b"transfer-encoding"
_CHUNKED: Final = b"chunked"


def _wrong_with(version: str, headers: dict[bytes, bytes]) -> Refusal | None:
    """What is wrong with a request that is not of HTTP/1.1: its version, or a coding that came after it."""
    if version != "1.0":
        return _OTHER_VERSION
    return _NOT_HTTP if _CODING in headers else None


class Application(Protocol):
    """What answers requests."""

    def admit(self, request: Request) -> bool:
        """Check the head of a request. True: `serve` it when its body is there. False: it has been answered."""

    def serve(self, request: Request) -> None:
        """Answer a request that is complete, now or later."""

    def refuse_body(self, request: Request) -> None:
        """Answer a request whose body is too large."""


class Connection(asyncio.Protocol):
    """One connection."""

    def __init__(self, connections: Connections, listener: Listener) -> None:
        self._all = connections
        self._listener = listener
        self._app = connections.app
        self._loop = connections.loop
        self._parser = httptools.HttpRequestParser(self)
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)  # it is dropped, after the response
        self.transport: asyncio.Transport
        self.peer: str | None = None  # the address of the client
        self._raw: socket.socket | None = None  # until the hands are shaken
        self.gone = False
        self.paused = False  # the client does not read
        self.known = False  # it has made an authenticated request
        self.until = _NEVER  # when `late` is called
        self._unread = 0  # bytes in the buffer when that was looked at last
        self._deaf = False  # what it still sends is dropped
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._repeated = 0  # headers that came again
        self._in_head = True
        self._head = 0  # bytes of it so far
        self._heading = True  # the deadline is that of the headers
        self._fed = False  # the bytes that are being read have begun a request already
        self._spilt = 0  # bytes of a body that is not wanted
        self._receiving: Request | None = None
        self._current: Request | None = None  # the one that is being answered
        self._waiting: deque[Request] = deque()
        self._events: list[asyncio.Future[None]] = []

    @property
    def private(self) -> bool:
        """Whether only the owner of the store can have opened it."""
        return self._listener.private

    # --- the transport -----------------------------------------------------------------------------------------------

    async def begin(self, raw: socket.socket) -> None:
        """Accepted: shake hands, if there is TLS. Meanwhile it has a deadline and makes room as any other."""
        self._raw = raw
        self.until = self._all.now + HEADER_TIMEOUT
        self._all.enter(self, raw.fileno())
        tls = self._listener.tls
        secured = {} if tls is None else {"ssl_handshake_timeout": HEADER_TIMEOUT, "ssl_shutdown_timeout": LINGER}
        try:
            await self._loop.connect_accepted_socket(lambda: self, raw, ssl=tls, **secured)
        except OSError:  # of which ssl.SSLError is one
            raw.close()
            self.connection_lost(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Bytes may come."""
        self.transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.peer = peer[0] if isinstance(peer, tuple) else None
        self._raw = None
        if self._deaf:
            self.abort()  # it had to make room meanwhile

    def connection_lost(self, exc: Exception | None) -> None:
        """Closed, by whomever."""
        self.gone = self._deaf = True
        self._all.leave(self)
        self._waiting.clear()
        self.__dict__.pop("_parser", None)  # which refers to this object
        self._wake()

    def eof_received(self) -> bool:
        """The client sends no more. Return whether requests that are complete can still be answered.

        A client that waits or watches counts as gone: most close both ways, and the difference does not show.
        """
        request = self._current
        if request is None or request.waits or not request.complete or not self.transport.can_write_eof():
            return False
        self._deaf = True  # closed after the last answer
        return True

    def pause_writing(self) -> None:
        """The client does not read as fast as we write."""
        self.paused = True
        self._unread = self.transport.get_write_buffer_size()
        streaming = self._current is not None and not self._current.answered  # watches are ended by their own deadline
        self.until = min(self.until, self._all.now + READ_TIMEOUT * (4 if streaming else 1))

    def resume_writing(self) -> None:
        """It has read."""
        self.paused = False
        self._wake()
        if self._current is None:
            self._advance()
        elif self._current.complete:
            self.until = _NEVER

    def event(self) -> asyncio.Future[None]:
        """Done when the client reads again, or is gone."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._events.append(future)
        return future

    def _wake(self) -> None:
        events, self._events = self._events, []
        for future in events:
            if not future.done():
                future.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Parse what has come."""
        if self._deaf:
            return
        self._fed = False
        try:
            if self._in_head and len(data) + self._head > MAX_HEADERS:
                data = self._feed_head(data)
            if data and not self._deaf:
                self._head += len(data)  # zeroed where a head ends
                self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._deaf = True  # nothing is upgraded: the request is answered, and the connection closed
        except httptools.HttpParserError as error:
            self._fail(_OTHER_VERSION if str(error) == _BAD_VERSION else _NOT_HTTP)
        if self._current is None and not self._deaf:
            self._set_idle_deadline()

    def _feed_head(self, data: bytes) -> bytes:
        """Parse no more of a head than it may have; returns the rest."""
        while data and self._in_head and not self._deaf:
            room = MAX_HEADERS - self._head
            piece, data = data[:room], data[room:]
            self._head += len(piece)
            self._parser.feed_data(piece)
            if self._in_head and self._head >= MAX_HEADERS:
                self._fail(_HEADERS_TOO_LARGE)
        return data

    # --- the parser --------------------------------------------------------------------------------------------------

    def on_url(self, url: bytes) -> None:
        """A part of the target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer, which is dropped."""
        if not self._in_head:
            return
        name, headers = name.lower(), self._headers
        if name in headers:
            self._repeated += 1
            if self._repeated <= MAX_HEADER_COUNT:
                headers[name] += DUPLICATE + value
        else:
            headers[name] = value

    def on_headers_complete(self) -> None:
        """The head is complete: it is this request's turn, or it waits for its turn."""
        parser, headers = self._parser, self._headers
        method, version = parser.get_method(), parser.get_http_version()
        keep_alive = version == "1.1" and parser.should_keep_alive()
        request = Request(self, _METHODS.get(method) or method.decode("latin-1"), headers, keep_alive)
        if len(headers) + self._repeated > MAX_HEADER_COUNT:
            self._fail(_HEADERS_TOO_LARGE)
        elif version != "1.1" and (wrong := _wrong_with(version, headers)) is not None:
            self._fail(wrong)
        elif (coding := headers.get(_CODING, _CHUNKED).lower()) != _CHUNKED:
            ends = coding.rpartition(b",")[2].strip(b" \t") == _CHUNKED  # otherwise nobody knows where
            self._fail(_OTHER_CODING if ends else _NOT_HTTP)
        if self._deaf:
            return
        url, self._url, self._headers, self._repeated = self._url, b"", {}, 0
        self._in_head = self._heading = False
        self._head = self._spilt = 0
        request.locate(url)
        self._receiving = request
        if self._current is None and not self._fed and not self.paused:
            self._fed = True
            self._current = request
            self._open(request)
        else:
            self._queue(request)

    def on_body(self, part: bytes) -> None:
        """A part of the body."""
        request = self._receiving
        if request is None or self._deaf:
            return
        if request.answered:
            self._spilt += len(part)
            if self._spilt > MAX_BODY:
                self.close()
        elif not request.add(part):
            self._app.refuse_body(request)

    def on_message_complete(self) -> None:
        """The request is complete; the next one may follow."""
        request, self._receiving = self._receiving, None
        self._in_head, self._head = True, 0
        if request is None or self._deaf:
            return
        request.end()
        if request is not self._current:
            return
        self.until = _NEVER
        if request.answered:
            self._advance()
        else:
            self._app.serve(request)

    # --- requests, in order ------------------------------------------------------------------------------------------

    def _queue(self, request: Request) -> None:
        """Have a request wait. Only what has been read already can wait, because reading pauses."""
        self._waiting.append(request)
        if len(self._waiting) == 1:
            self.transport.pause_reading()
            if self._current is None:
                self._loop.call_soon(self._next)

    def _next(self) -> None:
        """The next request's turn."""
        if self._current is not None or self.paused or self.gone or not self._waiting:
            return
        self._current = request = self._waiting.popleft()
        if not self._waiting:
            self.transport.resume_reading()
        self._open(request)

    def _open(self, request: Request) -> None:
        """It is a request's turn."""
        if request.refusal is not None:
            self._refuse(request.refusal)
        elif self._app.admit(request):
            if request.complete:
                self.until = _NEVER
                self._app.serve(request)
            else:
                self.until = self._all.now + BODY_TIMEOUT
                if request.headers.get(b"expect", b"").lower() == b"100-continue":
                    self.transport.write(_CONTINUE)

    def finished(self, request: Request) -> None:
        """The response has been written. What is left of the request is read and dropped."""
        if request.complete or self._deaf:
            self._advance()
        elif request.keep_alive:
            self.until = self._all.now + BODY_TIMEOUT
        else:
            self._linger()

    def _linger(self) -> None:
        """End our side, and drop what the client still sends: closing at once could take the response from it."""
        self._deaf = True
        self.until = self._all.now + LINGER
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.close()

    def _advance(self) -> None:
        """Continue with the next request, if the client reads and the connection is kept."""
        request, self._current = self._current, None
        if request is not None and not request.keep_alive:
            self.close()
        elif self.paused:
            self.until = self._all.now + READ_TIMEOUT
        elif self._waiting:
            self._loop.call_soon(self._next)
        elif self._deaf:
            self.close()
        else:
            self._heading = False
            self._set_idle_deadline()

    def _set_idle_deadline(self) -> None:
        """Of a connection that waits for its client: bytes that come one by one do not extend it."""
        if self._heading or self.paused:
            return
        self._heading = bool(self._url or self._head)
        self.until = self._all.now + (HEADER_TIMEOUT if self._heading else KEEP_ALIVE)

    def _fail(self, refusal: Refusal) -> None:
        """Refuse what is not a request, in its turn, and drop all that follows."""
        self._deaf = True
        request = self._receiving
        if request is None:
            request = Request(self, "GET", {}, False)
            request.refusal = refusal
            if self._current is None and not self._waiting:
                self._current = request
                self._refuse(refusal)
            else:
                self._waiting.append(request)
        elif request.answered:
            self.close()
        elif request is self._current:
            self._refuse(refusal)
        else:
            request.refusal = refusal

    def _refuse(self, refusal: Refusal) -> None:
        """Send a refusal and close the connection."""
        body = json_bytes(
            {"error": refusal.error, "code": refusal.code, "hint": refusal.hint, "retryable": False, "details": {}}
        )
        lines = b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body)
        if self._current is not None:
            self._current.answered = True
        if not self.gone:
            self.transport.write(b"".join((STATUS[refusal.status], lines, CLOSE, body)))
            self._linger()

    # --- the end -----------------------------------------------------------------------------------------------------

    @property
    def silent(self) -> bool:
        """Whether it has sent nothing of a request."""
        return self._current is None and not (self._head or self._url or self.known)

    @property
    def unused(self) -> bool:
        """Whether it has no request."""
        return self._current is None and not self._waiting

    def late(self, now: float) -> None:
        """The deadline has passed: free the connection, and say why where somebody may listen."""
        request = self._current
        if self._raw is not None:
            self.abort()
        elif self.paused or self.transport.is_closing():
            unread = self.transport.get_write_buffer_size()
            if unread < self._unread and not self.transport.is_closing():
                self._unread, self.until = unread, now + READ_TIMEOUT
            else:
                self.abort()
        elif request is not None and not request.answered:
            self._fail(_BODY_LATE)
        elif request is None and not self._deaf and (self._head or self._url):
            self._fail(_HEADERS_LATE)
        else:
            self.close()

    def stop(self) -> None:
        """The server stops: finish the request in progress, and no other."""
        self._waiting.clear()
        if self._current is None or self._current.answered:
            self.close()
        else:
            self._current.keep_alive = False

    def trust(self) -> None:
        """It has made an authenticated request."""
        self.known = True
        self._all.trust(self)

    def turn_away(self) -> None:
        """There is no room for this connection."""
        if self._raw is None:
            self._refuse(_NO_ROOM)
        self.close()

    def close(self) -> None:
        """Close it when everything is written; `late` if the client does not read."""
        self._deaf = True
        if self._raw is not None:
            self.abort()
        elif not self.gone:
            self.until = self._all.now + READ_TIMEOUT
            self.transport.close()

    def abort(self) -> None:
        """Close it now."""
        self._deaf = True
        if self._raw is not None:
            with suppress(OSError):  # it is closed already
                self._raw.shutdown(socket.SHUT_RDWR)
        elif not self.gone:
            self.transport.abort()
