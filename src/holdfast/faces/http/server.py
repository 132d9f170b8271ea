"""Running a server: its HTTP protocol, its background work, and a stop that loses nothing.

Trailers of a chunked body are discarded. Headers may have 64 KiB together and take half a minute to arrive; otherwise
the response is 431 or 408, and the connection is closed.

A server locks its folder by `server.lock`: a second one is refused with the pid and address of the first. Without TLS
it listens on this machine only. To stop, it takes no new requests, finishes those in progress, tells watchers where to
resume, and closes its workspaces.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import httptools
import msgspec
import uvicorn
import uvloop
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from holdfast import errors
from holdfast.faces.http.app import EXCHANGE, App, CarryOut
from holdfast.faces.http.auth import MAIN, Gate, Tokens
from holdfast.faces.http.listener import ServerLock, Settings, bind, bind_private, certificate, check, host_in
from holdfast.faces.http.workspaces import WorkspaceRegistry
from holdfast.filesystem import hide_from_git
from holdfast.private_socket import SERVER_LOCK, SOCKET
from holdfast.workspace import Workspace, open_workspace

MAX_HEADERS: Final = 64 * 1024
MAX_HEADER_COUNT: Final = 128
TOO_LARGE: Final = f"a request may have {MAX_HEADER_COUNT} headers, and {MAX_HEADERS} bytes of them"
HEADER_TIMEOUT: Final = 30.0  # seconds


class Exchange(RequestResponseCycle):
    """One request and its response."""

    def reply(self, status: int, headers: bytes, body: bytes) -> bool:
        """Send a whole response with one write. False if the client must be waited for, or has gone: then `send` does.

        `headers` are complete lines, of the application's own making, so nothing in them is checked again.
        """
        if self.flow.write_paused or self.disconnected or self.response_started:
            return False
        last = b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n"
        self.response_started = self.response_complete = True
        self.transport.write(b"".join((STATUS_LINE[status], headers, last, body)))
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
        return True

    def received(self) -> bytes | None:
        """The body, if all of it is there; None if `receive` must be awaited."""
        if self.more_body or self.waiting_for_100_continue or self.disconnected:
            return None
        self.message_event.clear()
        body, self.body = bytes(self.body), bytearray()
        return body


class Protocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._before_body = True
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None
        self._unused_since: float | None = None

    def data_received(self, data: bytes) -> None:
        """Bytes received; those before a body are counted."""
        while data and self._before_body and not self.transport.is_closing():
            room = MAX_HEADERS - self._size
            piece, data = data[:room], data[room:]
            self._size += len(piece)
            super().data_received(piece)
            if (
                self._before_body
                and self._size
                and (self._size >= MAX_HEADERS or len(self.headers or ()) > MAX_HEADER_COUNT)
            ):
                return self._refuse(b"431 Request Header Fields Too Large", "HEADERS_TOO_LARGE", TOO_LARGE)
        if data and not self.transport.is_closing():
            super().data_received(data)
        if self._before_body and self._size and self._timer is None:
            self._timer = self.loop.call_later(
                HEADER_TIMEOUT, self._refuse, b"408 Request Timeout", "TIMEOUT", "the headers did not come in time"
            )

    def on_message_begin(self) -> None:
        """Request started."""
        super().on_message_begin()
        self._before_body = True

    def on_headers_complete(self) -> None:
        """Headers complete: the application starts, or waits for the response before. Trailers are discarded."""
        parser, scope, previous = self.parser, self.scope, self.cycle
        url, version = httptools.parse_url(self.url), parser.get_http_version()
        path = url.path.decode("ascii")
        scope["method"] = parser.get_method().decode("ascii")
        scope["http_version"] = version
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"], scope["query_string"] = url.path, url.query or b""
        self.cycle = exchange = Exchange(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        scope[EXCHANGE] = exchange  # type: ignore[typeddict-unknown-key]
        if previous is None or previous.response_complete:
            self._start_asgi_task(exchange, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((exchange, self.app))
        self._before_body, self._size = False, 0
        self.headers = []
        self._in_time()

    def on_response_complete(self) -> None:
        """Response sent: the next request of the connection starts, or its time unused begins."""
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._unused_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._close_unused_in(self.timeout_keep_alive)

    def _unset_keepalive_if_required(self) -> None:
        """Bytes received. The timer runs on, because setting one for each request costs more than looking again."""
        self._unused_since = None

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection if it was unused all the time; if it is in use, the end of its request sets a timer."""
        self.timeout_keep_alive_task = None
        if self._unused_since is not None and not self.transport.is_closing():
            left = self._unused_since + self.timeout_keep_alive - self.loop.time()
            if left > 0:
                self._close_unused_in(left)
            else:
                self.transport.close()

    def _close_unused_in(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def on_message_complete(self) -> None:
        """Request complete; the next one may follow."""
        super().on_message_complete()
        self._before_body = True

    def connection_lost(self, exc: Exception | None) -> None:
        """Connection closed."""
        self._in_time()
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
        super().connection_lost(exc)

    def _in_time(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, status: bytes, code: str, what: str) -> None:
        self._in_time()
        error = {"error": what, "code": code, "hint": "send fewer and shorter ones", "retryable": False, "details": {}}
        body = msgspec.json.encode(error)
        self.transport.write(
            b"HTTP/1.1 %b\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
            % (status, len(body), body)
        )
        self.transport.close()


KEEP_ALIVE_SECONDS: Final = 75  # of an unused connection: longer than clients keep it, so none is cut in use
STOP_TIMEOUT: Final = 20  # seconds for requests in progress


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
        self.tokens = Tokens(settings.folder)
        self.tokens.make_first(first_start=not (settings.folder / SERVER_LOCK).exists())
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
            try:
                self.port = 0 if self.settings.socket is not None else self._bound.getsockname()[1]
                lock.publish(self.url)
                uvloop.run(self._serve())
            finally:
                self._bound.close()
                if self.settings.socket is not None:
                    self.settings.socket.unlink(missing_ok=True)
                if self._private is not None:
                    self._private.close()
                    (self.settings.folder / SOCKET).unlink(missing_ok=True)

    def _hosts(self) -> Iterable[str]:
        if self.settings.socket is not None:
            return ("localhost", *self.settings.allow_hosts)
        own = {_in_url(name) for name in (self._name, "localhost", "127.0.0.1", "::1")}
        return (*(f"{name}:{self.port}" for name in own), *self.settings.allow_hosts)

    def _spaces(self) -> WorkspaceRegistry:
        return WorkspaceRegistry(self.settings.folder, self._open)

    def _open(self, folder: Path) -> Workspace:
        return open_workspace(folder, actor="server")

    def _config(self, app: Any, private: bool = False) -> uvicorn.Config:
        tls: dict[str, Any] = {}
        if self.certificate is not None and not private:
            tls = {"ssl_certfile": str(self.certificate[0]), "ssl_keyfile": str(self.certificate[1])}
        return uvicorn.Config(
            app,
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            http=Protocol,
            ws="none",
            proxy_headers=False,  # the client is the peer of the connection, whatever a header says
            timeout_graceful_shutdown=STOP_TIMEOUT,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            **tls,
        )

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self.spaces = spaces = self._spaces()
        try:
            spaces.get(MAIN)
            hosts = Gate(self._hosts(), tls=self.settings.secure)
            app = App(spaces, self.tokens, hosts, self.settings, self._carry_out)
            servers = [(_Quiet(self._config(app)), self._bound)]
            if self._private is not None:
                servers.append((_Quiet(self._config(app.private, private=True)), self._private))
            await app.start()
            for number in (signal.SIGINT, signal.SIGTERM):
                with suppress(ValueError, RuntimeError):  # a server in another thread is stopped by `stop`
                    self._loop.add_signal_handler(number, self._stop.set)
            serving = asyncio.gather(*(server.serve(sockets=[bound]) for server, bound in servers))
            while not all(server.started for server, _ in servers) and not serving.done():
                await asyncio.sleep(0.005)
            if serving.done():  # it failed to start
                await serving
            self.ready.set()
            self._started()
            stopping = asyncio.ensure_future(self._stop.wait())
            await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            app.stop()  # first, so that no watcher keeps the server from stopping
            for server, _ in servers:
                server.should_exit = True
            await serving
            await app.end()
        finally:
            spaces.close()


def tune() -> None:
    """Settings of a process that does nothing but serve.

    Modules stay loaded and a request leaves little garbage, so the collector runs less often.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


class _Quiet(uvicorn.Server):
    """A server without signal handlers: `Server` handles signals, because watchers must be woken before a stop."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()
