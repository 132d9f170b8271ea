"""Running a server: its connections, its background work, and a stop that loses nothing.

A server locks its folder by `server.lock`: a second one is refused with the pid and address of the first. Without TLS
it listens on this machine only. To stop, it takes no new requests, finishes those in progress, tells watchers where to
resume, and closes its workspaces.

When descriptors run short, connections that have never made an authenticated request make room, those that sent nothing
first, and then the one that was unused the longest. So silent clients cannot keep out those that send, and nothing is
counted by address, because a fleet shares one. A connection in the middle of a TLS handshake counts as any other.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import uvloop

from holdfast import errors
from holdfast.faces.http.app import App, CarryOut
from holdfast.faces.http.auth import MAIN, Gate, Tokens
from holdfast.faces.http.connection import Application, Connection
from holdfast.faces.http.listener import (
    ServerLock,
    Settings,
    bind,
    bind_private,
    certificate,
    check,
    host_in,
    identity_of,
    remove_socket,
)
from holdfast.faces.http.workspaces import WorkspaceRegistry
from holdfast.filesystem import hide_from_git
from holdfast.private_socket import SERVER_LOCK, SOCKET
from holdfast.workspace import Workspace, open_workspace

TICK: Final = 0.5  # seconds between looks at the deadlines
BACKLOG: Final = 2048  # connections that may wait to be accepted
STOP_TIMEOUT: Final = 20  # seconds for requests in progress
POLL: Final = 0.01  # seconds
DESCRIPTORS: Final = 65_536
OF_WORKSPACE: Final = 10  # descriptors of one that is open
_log = logging.getLogger("holdfast.http")


class Listener(NamedTuple):
    """A socket on which a server accepts connections. `private`: only the owner of the store can reach it."""

    bound: socket.socket
    tls: ssl.SSLContext | None = None
    private: bool = False


class Connections:
    """The open connections of a server."""

    def __init__(self, app: Application) -> None:
        self.app = app
        self.loop = asyncio.get_running_loop()
        self.now = self.loop.time()
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.reserve = min(limit // 4, 2048)  # descriptors for stores, backups, and connections about to be accepted
        self._highest = limit - self.reserve
        self._most = limit
        self._listeners: list[Listener] = []
        self._open: dict[Connection, None] = {}
        self._strangers: dict[Connection, None] = {}  # oldest first
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer = self.loop.call_later(TICK, self._look)

    def __len__(self) -> int:
        return len(self._open)

    def listen(self, listener: Listener) -> None:
        """Accept connections on a socket until `stop`."""
        listener.bound.setblocking(False)
        listener.bound.listen(BACKLOG)
        self._listeners.append(listener)
        self.loop.add_reader(listener.bound, self._accept, listener)

    def _accept(self, listener: Listener) -> None:
        """Accept connections, some in a turn of the loop, so that those that make room for them are closed by then."""
        try:
            for _ in range(self.reserve // 4):
                self._begin(listener, listener.bound.accept()[0])
        except (BlockingIOError, ConnectionError):
            return
        except OSError as error:  # no descriptor is left: what is open goes on
            _log.error("a connection cannot be accepted: %s", error)
            self.loop.remove_reader(listener.bound)
            self.loop.call_later(TICK, self._accept_again, listener)

    def _accept_again(self, listener: Listener) -> None:
        if listener in self._listeners:
            self.loop.add_reader(listener.bound, self._accept, listener)

    def _begin(self, listener: Listener, raw: socket.socket) -> None:
        raw.setblocking(False)
        if raw.family != socket.AF_UNIX:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self.loop.create_task(Connection(self, listener).begin(raw))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def enter(self, connection: Connection, descriptor: int) -> None:
        """Add a connection, and make room if descriptors run short.

        The system gives out the lowest free descriptor, so a high one says that there are as many connections as there
        may be. That number grows slowly again, because it may have been something else that took the others.
        """
        self._open[connection] = self._strangers[connection] = None
        if descriptor >= self._highest:
            self._most = min(self._most, len(self._open) - 1)
        if len(self._open) > self._most:
            victim = self._find_victim(connection)
            if victim is None:
                connection.turn_away()
            else:
                self.leave(victim)
                victim.abort()

    def _find_victim(self, newcomer: Connection) -> Connection | None:
        """Whom to disconnect: strangers, the silent ones first, then whoever has been unused the longest."""
        oldest = None
        for each in self._strangers:
            if each is not newcomer:
                if each.silent:
                    return each
                oldest = oldest or each
        unused = (each for each in self._open if each is not newcomer and each.unused)
        return oldest or min(unused, key=lambda each: each.until, default=None)

    def trust(self, connection: Connection) -> None:
        """A connection has made an authenticated request."""
        self._strangers.pop(connection, None)

    def leave(self, connection: Connection) -> None:
        """Remove a connection."""
        self._open.pop(connection, None)
        self._strangers.pop(connection, None)

    def _look(self) -> None:
        self.now = now = self.loop.time()
        self._most += 1
        for connection in [each for each in self._open if each.until <= now]:
            connection.late(now)
        self._timer = self.loop.call_later(TICK, self._look)

    def stop(self) -> None:
        """Accept no more, finish requests in progress, and no others."""
        while self._listeners:
            bound = self._listeners.pop().bound
            self.loop.remove_reader(bound)
            bound.close()
        for connection in list(self._open):
            connection.stop()

    def end(self) -> None:
        """Cut what is left."""
        self._timer.cancel()
        for connection in list(self._open):
            connection.abort()
        for task in self._tasks:
            task.cancel()


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class Server:
    """One server; `run` returns when it has stopped."""

    def __init__(self, settings: Settings, carry_out: CarryOut | None = None) -> None:
        settings.check()
        self.settings = settings
        self._carry_out = carry_out
        self.ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        try:
            settings.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            hide_from_git(str(settings.folder))
        except OSError as error:
            raise errors.Invalid(f"{settings.folder} is not a folder: {error.strerror}", hint="choose --dir") from error
        self.tokens = Tokens(settings.folder, serves=True)
        try:
            self.tokens.make_first(first_start=not (settings.folder / SERVER_LOCK).exists())
        except OSError as error:
            message = f"the server cannot write its token to {settings.folder}: {error.strerror}"
            raise errors.ReadOnly(message) from error
        self.certificate = self._certificate()

    @property
    def url(self) -> str:
        """The address of the server."""
        if self.settings.socket is not None:
            return f"unix://{self.settings.socket}"
        scheme = "https" if self.settings.secure else "http"
        return f"{scheme}://{_in_url(self._name)}:{self.port}"

    @property
    def _name(self) -> str:
        """The host in its address; the name of the machine if it listens on all addresses."""
        return socket.gethostname() if self.settings.host in ("0.0.0.0", "::") else self.settings.host

    def _certificate(self) -> tuple[Path, Path] | None:
        if not self.settings.secure:
            return None
        cert, key = self.settings.tls_cert, self.settings.tls_key
        if cert is None or key is None:
            names = (self.settings.host, *map(host_in, self.settings.allow_hosts))
            cert, key = certificate(self.settings.folder, names)
        check(cert, key)
        return cert, key

    def stop(self) -> None:
        """Stop it, from any thread; repeated calls do nothing."""
        if self._loop is not None and self._stop is not None:
            with suppress(RuntimeError):  # its loop is closed: it has stopped
                self._loop.call_soon_threadsafe(self._stop.set)

    def run(self, started: Callable[[], None] = lambda: None) -> None:
        """Serve until it is stopped; `started` is called once it listens."""
        self._started = started
        with ServerLock(self.settings.folder) as lock:
            self._bound = bind(self.settings)
            self._private = bind_private(self.settings.folder)
            sockets = [self.settings.socket] if self.settings.socket is not None else []
            sockets += [self.settings.folder / SOCKET] if self._private is not None else []
            made = {path: identity_of(path) for path in sockets}
            try:
                self.port = 0 if self.settings.socket is not None else self._bound.getsockname()[1]
                lock.publish(self.url)
                uvloop.run(self._serve())
            finally:
                self._bound.close()
                if self._private is not None:
                    self._private.close()
                for path, identity in made.items():
                    remove_socket(path, identity)

    def _hosts(self) -> Iterable[str]:
        if self.settings.socket is not None:
            return ("localhost", *self.settings.allow_hosts)
        own = {_in_url(name) for name in (self._name, "localhost", "127.0.0.1", "::1")}
        return (*(f"{name}:{self.port}" for name in own), *self.settings.allow_hosts)

    def _spaces(self) -> WorkspaceRegistry:
        return WorkspaceRegistry(self.settings.folder, self._open)

    def _open(self, folder: Path) -> Workspace:
        return open_workspace(folder, actor="server")

    def _application(self, spaces: WorkspaceRegistry) -> App:
        hosts = Gate(self._hosts(), tls=self.settings.secure)
        return App(spaces, self.tokens, hosts, self.settings, self._carry_out)

    def _tls(self) -> ssl.SSLContext | None:
        if self.certificate is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.certificate)
        return context

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(ValueError, RuntimeError):  # a server in another thread is stopped by `stop`
                self._loop.add_signal_handler(number, self._stop.set)
        self.spaces = spaces = self._spaces()
        try:
            spaces.get(MAIN)
            app = self._application(spaces)
            self.connections = connections = Connections(app)
            await app.start()
            if shortage := shortage_of(len(spaces.names())):
                _log.warning("%s", shortage)
            connections.listen(Listener(self._bound, self._tls()))
            if self._private is not None:
                connections.listen(Listener(self._private, private=True))
            self.ready.set()
            self._started()
            await self._stop.wait()
            app.stop()  # first, so that no watcher keeps the server from stopping
            connections.stop()
            await _finished(app, connections)
            await app.end()
        finally:
            spaces.close()


def shortage_of(workspaces: int) -> str:
    """What to do if this process may open too few files for so many workspaces and connections; "" if not."""
    limit, needed = resource.getrlimit(resource.RLIMIT_NOFILE)[0], OF_WORKSPACE * workspaces
    if limit == resource.RLIM_INFINITY or limit >= 2 * needed:
        return ""
    return (
        f"{workspaces} workspaces take {needed} descriptors when all are open, and this process may have {limit}, also"
        f" for connections; allow {max(4096, 2 * needed)} (ulimit -n, LimitNOFILE= of systemd, --ulimit nofile= of"
        " docker) and start again"
    )


async def _finished(app: App, connections: Connections) -> None:
    """Wait for requests in progress, but not for ever."""
    try:
        async with asyncio.timeout(STOP_TIMEOUT):
            while app.running or connections:
                await asyncio.sleep(POLL)
    except TimeoutError:
        _log.error("%d calls did not end in %d seconds: given up", len(app.running), STOP_TIMEOUT)
        for work in list(app.running):
            work.cancel()
    connections.end()


def tune() -> None:
    """Settings of a process that does nothing but serve.

    It may open as many files as the system lets it. Modules stay loaded and a request leaves little garbage, so the
    collector runs less often.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
