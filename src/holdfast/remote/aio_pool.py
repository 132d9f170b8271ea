"""Connections of an event loop: as those of `holdfast.remote.pool`, for callers that await."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from time import monotonic
from typing import Final, cast

from holdfast.remote.http1 import Broken, Incoming, Outgoing, Response
from holdfast.remote.pool import IDLE, KEPT, Lines, Peer, given_up, has_ended, shared_out, tuned, unreached, within

_AHEAD: Final = 64  # pieces of a stream that are held before reading pauses


class AioConnection(asyncio.Protocol):
    """One connection, which carries one request at a time."""

    def __init__(self) -> None:
        self.idle_since = 0.0
        self._transport: asyncio.Transport | None = None
        self._incoming: Incoming | None = None
        self._streams = False  # its answer is taken in pieces
        self._waiter: asyncio.Future[None] | None = None
        self._ended: Broken | None = None  # why nothing more will come

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its bases

    def data_received(self, data: bytes) -> None:
        """A piece of the answer has come; what nobody asked for ends the connection."""
        if self._incoming is None:
            self.abort()
            return
        try:
            self._incoming.feed(data)
        except Broken as broken:
            self._end(broken)
            self.abort()
            return
        if self._incoming.done or self._streams:
            self._wake()
        if self._streams and self._incoming.waiting >= _AHEAD and self._transport is not None:
            self._transport.pause_reading()

    def eof_received(self) -> None:
        """The server sends nothing more."""
        self._close(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._close(exc)
        self._transport = None

    def _close(self, reason: Exception | None) -> None:
        if self._ended is not None:
            return
        try:
            if reason is not None:
                raise Broken(str(reason) or type(reason).__name__, sent=True)
            if self._incoming is not None:
                self._incoming.ended()
            raise Broken("the server closed the connection", sent=True)
        except Broken as broken:
            self._end(broken)

    def _end(self, reason: Broken) -> None:
        self._ended = self._ended or reason
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    @property
    def is_alive(self) -> bool:
        """Whether it waits for a request."""
        if self._ended is not None or self._transport is None or self._transport.is_closing():
            return False
        return monotonic() - self.idle_since < IDLE

    @property
    def is_silent(self) -> bool:
        """Whether nothing has come that the loop has not seen yet, because it was busy."""
        return self._transport is not None and not has_ended(self._transport.get_extra_info("socket").fileno())

    def rest(self) -> bool:
        """Whether its answer has ended and it may carry another request: then it waits for one."""
        incoming, self._incoming = self._incoming, None
        self.idle_since = monotonic()
        return incoming is not None and incoming.reusable and self.is_alive

    async def begin(self, outgoing: Outgoing, streams: bool) -> Incoming:
        """Send a request; returns its answer: as far as its head if it streams, otherwise whole."""
        incoming = self._incoming = Incoming()
        self._streams = streams
        if self._ended is not None or self._transport is None:
            raise Broken("the server closed the connection", sent=False)
        self._transport.write(outgoing.content)
        while not incoming.done and (not streams or incoming.head is None):
            await self.progress(outgoing.answer, outgoing.until)
        return incoming

    async def progress(self, most: float | None, until: float | None) -> None:
        """Wait for more of the answer: the next piece if it streams, otherwise all of it."""
        incoming, loop = self._incoming, asyncio.get_running_loop()
        assert incoming is not None
        self._check(incoming)
        if self._streams and self._transport is not None:
            self._transport.resume_reading()
        self._waiter = loop.create_future()
        seconds = most if until is None else until - monotonic()
        timer = None if seconds is None else loop.call_later(max(seconds, 0.0), self._late)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()
        self._check(incoming)

    def _check(self, incoming: Incoming) -> None:
        if self._ended is not None and not incoming.done:
            raise self._ended

    def _late(self) -> None:
        self._end(given_up("no answer came in time", sent=True))

    def abort(self) -> None:
        """End it at once."""
        self._end(Broken("the connection was given up", sent=True))
        if self._transport is not None:
            self._transport.abort()


class AioStream:
    """A response whose body is read as it comes."""

    def __init__(self, connection: AioConnection, incoming: Incoming, outgoing: Outgoing) -> None:
        assert incoming.head is not None
        self.head = incoming.head
        self.silence = outgoing.answer  # most seconds without a piece of it
        self._connection, self._incoming = connection, incoming
        self._until = outgoing.until

    async def read(self) -> bytes:
        """The rest of it."""
        parts = []
        while not self._incoming.done:
            await self._connection.progress(self.silence, self._until)
            parts.append(self._incoming.take())
        return b"".join([*parts, self._incoming.take()])

    async def lines(self) -> AsyncGenerator[str, None]:
        """Its lines as they come; what is broken off is not a line."""
        lines, incoming = Lines(), self._incoming
        while incoming.waiting or not incoming.done:  # more may come while a line is handled
            if not incoming.waiting:
                await self._connection.progress(self.silence, self._until)
            for line in lines.of(incoming.take()):
                yield line


class AioPool:
    """The connections of one event loop to one server."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._idle: list[AioConnection] = []
        self._lent: set[AioConnection] = set()
        self._closed = False

    async def request(self, outgoing: Outgoing) -> Response:
        """The whole response to a request; Broken if there is none."""
        async with self._connection(outgoing) as connection:
            incoming = await connection.begin(outgoing, streams=False)
        assert incoming.head is not None
        incoming.head.content = incoming.take()
        return incoming.head

    @asynccontextmanager
    async def stream(self, outgoing: Outgoing) -> AsyncGenerator[AioStream, None]:
        """The response to a request, to be read as it comes."""
        async with self._connection(outgoing) as connection:
            yield AioStream(connection, await connection.begin(outgoing, streams=True), outgoing)

    async def close(self) -> None:
        """Close all of them; requests under way break."""
        self._closed = True
        for connection in (*self._idle, *self._lent):
            connection.abort()
        self._idle.clear()
        await asyncio.sleep(0)  # transports close their sockets in the next turn of the loop

    @asynccontextmanager
    async def _connection(self, outgoing: Outgoing) -> AsyncGenerator[AioConnection, None]:
        """A connection for one request; whatever ends early ends the connection."""
        connection = self._idle_one() or await self._connected(outgoing)
        self._lent.add(connection)
        try:
            yield connection
        except BaseException:
            connection.abort()
            raise
        finally:
            self._lent.discard(connection)
        if connection.rest() and not self._closed and len(self._idle) < KEPT:
            self._idle.append(connection)
        else:
            connection.abort()

    def _idle_one(self) -> AioConnection | None:
        """A connection that is kept and still alive: the one that was used last."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_alive and connection.is_silent:
                return connection
            connection.abort()
        return None

    async def _connected(self, outgoing: Outgoing) -> AioConnection:
        """A new connection."""
        loop, peer = asyncio.get_running_loop(), self._peer
        end = monotonic() + within(outgoing.connect, outgoing.until)
        try:
            if peer.path is not None:
                async with asyncio.timeout(shared_out(end, 1)):
                    return (await loop.create_unix_connection(AioConnection, peer.path))[1]
            plain = await self._opened(end)
            async with asyncio.timeout(shared_out(end, 1)):
                host = None if peer.tls is None else peer.host
                made = await loop.create_connection(AioConnection, sock=plain, ssl=peer.tls, server_hostname=host)
            return made[1]
        except OSError as error:  # of which TimeoutError is one
            raise unreached(error) from error

    async def _opened(self, end: float) -> socket.socket:
        """A connected socket, of the first of the peer's addresses that answers."""
        loop, peer = asyncio.get_running_loop(), self._peer
        async with asyncio.timeout(shared_out(end, 1)):
            places = await loop.getaddrinfo(peer.host, peer.port, type=socket.SOCK_STREAM)
        for number, (family, _, _, _, place) in enumerate(places):
            plain = socket.socket(family, socket.SOCK_STREAM)
            try:
                plain.setblocking(False)
                async with asyncio.timeout(shared_out(end, len(places) - number)):
                    await loop.sock_connect(plain, place)
                return tuned(plain)
            except BaseException as error:
                plain.close()
                if number == len(places) - 1 or not isinstance(error, OSError):
                    raise
        raise OSError(f"{peer.host} has no address")
