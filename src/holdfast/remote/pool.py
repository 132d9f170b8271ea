"""Connections for callers that block: kept while they are of use, and given up when an answer does not come in time.

A kept connection that has something to read was closed, or is out of step: it is never used again. The error for a
connection that broke says whether its server may have the request.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any, Final, NamedTuple
from weakref import WeakSet

from holdfast.remote.http1 import Broken, Incoming, Outgoing, Response

IDLE: Final = 30.0  # seconds that an unused connection is kept; a server keeps it for longer
KEPT: Final = 32  # most unused connections
_PIECE: Final = 256 * 1024  # bytes that are read at once
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}  # seconds, seconds, probes
_LEAST: Final = 0.001  # seconds: none would mean not to wait at all


class Peer(NamedTuple):
    """Where connections lead: a host and a port, or the path of a socket."""

    host: str
    port: int
    path: str | None
    tls: ssl.SSLContext | None


def given_up(reason: str, *, sent: bool) -> Broken:
    """The error for an answer that did not come in time."""
    return Broken(reason, sent=sent, late=True)


def unreached(error: OSError) -> Broken:
    """The error for a connection that could not be made."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return Broken(str(error), sent=False, distrusted=True)
    return Broken(str(error) or type(error).__name__, sent=False, late=isinstance(error, TimeoutError))


class Connection:
    """One connection, which carries one request at a time."""

    def __init__(self, peer: Peer, outgoing: Outgoing) -> None:
        try:
            self._socket = _connected(peer, monotonic() + within(outgoing.connect, outgoing.until))
        except OSError as error:
            raise unreached(error) from error
        self.idle_since = 0.0
        self.reusable = False

    @property
    def is_alive(self) -> bool:
        """Whether it waits for a request: one that has something to read was closed, or is out of step."""
        if monotonic() - self.idle_since >= IDLE:
            return False
        return not has_ended(self._socket.fileno())

    def begin(self, outgoing: Outgoing) -> Incoming:
        """Send a request; returns its answer as far as its head."""
        self.reusable = False
        incoming = Incoming()
        broken = self._send(outgoing)
        try:
            while incoming.head is None:
                self.read(incoming, outgoing.answer, outgoing.until)
        except Broken as error:
            raise broken or error from error
        return incoming

    def _send(self, outgoing: Outgoing) -> Broken | None:
        """Send a request; returns what broke, if anything did: a server may refuse, and close, before it has all."""
        try:
            self._socket.settimeout(within(outgoing.answer or outgoing.connect, outgoing.until))
            self._socket.sendall(outgoing.content)
        except TimeoutError as error:
            raise given_up("the request could not be sent in time", sent=True) from error
        except OSError as error:
            return Broken(str(error) or type(error).__name__, sent=True)
        return None

    def read(self, incoming: Incoming, most: float | None, until: float | None) -> None:
        """Read the next piece of an answer."""
        try:
            self._socket.settimeout(None if most is None and until is None else within(most, until))
            data = self._socket.recv(_PIECE)
        except TimeoutError as error:
            raise given_up("no answer came in time", sent=True) from error
        except OSError as error:
            raise Broken(str(error) or type(error).__name__, sent=True) from error
        if data:
            incoming.feed(data)
        else:
            incoming.ended()
        self.reusable = incoming.reusable

    def interrupt(self) -> None:
        """Have whoever reads it find that it has ended."""
        with suppress(OSError):  # it has ended already
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # that of TLS is not for another thread

    def close(self) -> None:
        """Close it."""
        with suppress(OSError):  # it has ended already
            self._socket.close()


class Stream:
    """A response whose body is read as it comes."""

    def __init__(self, connection: Connection, incoming: Incoming, outgoing: Outgoing) -> None:
        assert incoming.head is not None
        self.head = incoming.head
        self.silence = outgoing.answer  # most seconds without a piece of it
        self._connection, self._incoming = connection, incoming
        self._until = outgoing.until

    def read(self) -> bytes:
        """The rest of it."""
        while not self._incoming.done:
            self._connection.read(self._incoming, self.silence, self._until)
        return self._incoming.take()

    def lines(self) -> Iterator[str]:
        """Its lines as they come; what is broken off is not a line."""
        lines = Lines()
        while True:
            yield from lines.of(self._incoming.take())
            if self._incoming.done:
                return
            self._connection.read(self._incoming, self.silence, self._until)


class Lines:
    """Splits text that comes in pieces at its line ends, and nowhere else."""

    def __init__(self) -> None:
        self._rest = b""

    def of(self, data: bytes) -> list[str]:
        """The lines that a piece completes."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [line.removesuffix(b"\r").decode("utf-8", "replace") for line in whole]


class Pool:
    """The connections to one server. Safe for use by several threads; a forked child makes its own."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._closed = False
        self.forget()
        _POOLS.add(self)

    def forget(self) -> None:
        """Have no connections: those of a forked child are its parent's, and so may be who holds the lock."""
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._streams: set[Connection] = set()

    def request(self, outgoing: Outgoing) -> Response:
        """The whole response to a request; Broken if there is none."""
        with self._lent(outgoing) as connection:
            incoming = connection.begin(outgoing)
            while not incoming.done:
                connection.read(incoming, outgoing.answer, outgoing.until)
        assert incoming.head is not None
        incoming.head.content = incoming.take()
        return incoming.head

    @contextmanager
    def stream(self, outgoing: Outgoing) -> Generator[Stream, None, None]:
        """The response to a request, to be read as it comes."""
        with self._lent(outgoing) as connection:
            with self._lock:
                if self._closed:
                    raise Broken("this client is closed", sent=False)
                self._streams.add(connection)
            try:
                yield Stream(connection, connection.begin(outgoing), outgoing)
            finally:
                with self._lock:
                    self._streams.discard(connection)

    def close(self) -> None:
        """Close those that nobody uses now, and end streams; a request under way has its answer first."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            streams = tuple(self._streams)
        for connection in idle:
            connection.close()
        for connection in streams:
            connection.interrupt()

    @contextmanager
    def _lent(self, outgoing: Outgoing) -> Generator[Connection, None, None]:
        """A connection for one request; whatever ends early ends the connection."""
        connection = self._idle_one() or Connection(self._peer, outgoing)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        connection.idle_since = monotonic()
        with self._lock:
            keep = connection.reusable and not self._closed and len(self._idle) < KEPT
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()

    def _idle_one(self) -> Connection | None:
        """A connection that is kept and still alive: the one that was used last."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if connection.is_alive:
                return connection
            connection.close()


def within(most: float | None, until: float | None) -> float:
    """The seconds that a step may take which begins now."""
    left = float("inf") if until is None else max(until - monotonic(), _LEAST)
    return min(left, 1e7 if most is None else most)


def has_ended(descriptor: int) -> bool:
    """Whether an idle socket has something to read: the end, or what nobody asked for."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def shared_out(end: float, places: int) -> float:
    """The seconds for one of so many places: one that does not answer leaves time for the others."""
    return max((end - monotonic()) / places, _LEAST)


def tuned(connection: socket.socket) -> socket.socket:
    """A socket that sends at once, and notices in minutes that a silent peer is gone."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection


def _connected(peer: Peer, end: float) -> socket.socket:
    """A connected socket, of the first of the peer's addresses that answers."""
    if peer.path is not None:
        return _opened(socket.AF_UNIX, peer.path, shared_out(end, 1))
    places = socket.getaddrinfo(peer.host, peer.port, type=socket.SOCK_STREAM)
    for number, (family, _, _, _, place) in enumerate(places):
        try:
            plain = _opened(family, place, shared_out(end, len(places) - number))
            break
        except OSError:
            if number == len(places) - 1:
                raise
    try:
        tuned(plain).settimeout(shared_out(end, 1))
        return plain if peer.tls is None else peer.tls.wrap_socket(plain, server_hostname=peer.host)
    except BaseException:
        plain.close()
        raise


def _opened(family: int, place: Any, seconds: float) -> socket.socket:
    """A socket that is connected to a place."""
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.settimeout(seconds)
        connection.connect(place)
    except BaseException:
        connection.close()
        raise
    return connection


_POOLS: Final[WeakSet[Pool]] = WeakSet()


def _forget() -> None:
    """In a forked child."""
    for pool in list(_POOLS):
        pool.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
