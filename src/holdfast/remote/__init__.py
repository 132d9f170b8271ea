"""`holdfast.connect`: the same workspace over HTTP, with the same operations, types and errors.

A function of a cell's value (`cells.transition`) runs here, in a loop of compare-and-swap. A body cannot travel, so
`transact` and `transaction` are Unsupported; `txn` can.
A call is tried again only where that is safe: reads, and writes that carry an idempotency key. A watch that loses its
connection resumes by itself behind the last event it gave, without gap or repeat.
"""

from __future__ import annotations

import os
import re
import ssl
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar
from weakref import WeakKeyDictionary

from holdfast import errors
from holdfast.kernel.validate import check_ttl
from holdfast.operation import Handlers, Sync, drive
from holdfast.remote.protocol import (
    Pause,
    RemoteRunner,
    Resuming,
    Send,
    Steps,
    check_events,
    failure,
    no_backup,
    no_block,
    no_function,
)
from holdfast.types import Report
from holdfast.workspace.context import Context, check_context, derive_actor
from holdfast.workspace.transaction import InContext
from holdfast.workspace.watch import Closing

if TYPE_CHECKING:  # of httpx too, which the extra `remote` installs: who does not connect does without
    from asyncio import AbstractEventLoop

    import httpx

    from holdfast.remote.aio import AsyncRemoteWorkspace, AsyncWire


_UNIX: Final = "unix://"
_SILENCE: Final = 35.0  # seconds without even a bookmark, after which a connection counts as lost
R = TypeVar("R")
E = TypeVar("E")


class Address:
    """Where a server is, and how to reach it: for clients that block and clients that await."""

    def __init__(self, url: str, token: str | None, timeout: float, verify: str | bool) -> None:
        if not isinstance(url, str) or not re.match(r"https?://[^/]|unix:///", url):
            raise errors.Invalid(
                f"{url!r} is not the address of a server",
                hint="http://host:port, with /NAME for a named workspace, or unix:///path",
            )
        if url.startswith("http:") and not _is_here(url):
            raise errors.Invalid(
                f"{url} would send the token over the network in the clear",
                hint="use https:// (holdfast serve --tls auto), or a tunnel: ssh -L 4653:127.0.0.1:4653 HOST, then"
                " http://127.0.0.1:4653",
            )
        check_ttl(timeout, "timeout")
        self.url = url
        self.timeout = timeout
        self._token = _checked(_token() if token is None else token)
        self._verify = _trust(url, verify)

    def options(self, transport: type[httpx.HTTPTransport] | type[httpx.AsyncHTTPTransport]) -> dict[str, Any]:
        """The arguments of a client of httpx."""
        from httpx import Limits

        path = self.url.removeprefix(_UNIX)
        by_socket = self.url.startswith(_UNIX)
        # Each watch has a connection of its own. A server keeps an idle one for longer than we do.
        limits = Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=30)
        return {
            "base_url": "http://localhost" if by_socket else self.url.rstrip("/"),
            "transport": transport(verify=self._verify, limits=limits, uds=path if by_socket else None),
            "timeout": self.timeout,
            "headers": {"authorization": f"Bearer {self._token}"},
        }

    def request(self, step: Send) -> dict[str, Any]:
        """The arguments of a request. It waits for a response as long as the call itself may wait, and some more."""
        from httpx import Timeout

        request, wait = step.request, step.request.wait
        return {
            "method": request.method,
            "url": request.path,
            "params": tuple(request.query),
            "content": request.body,
            "headers": step.headers,
            "timeout": Timeout(self.timeout, read=None if wait is None else self.timeout + wait),
        }


class Wire:
    """The connections to one server."""

    awaits: Final = False

    def __init__(self, address: Address) -> None:
        from httpx import Client, HTTPTransport

        self.address = address
        self._client = Client(**address.options(HTTPTransport))
        self._handlers: Handlers = {Send: self._send, Pause: self._pause}

    def close(self) -> None:
        """Close them."""
        self._client.close()

    def _check_open(self) -> None:
        if self._client.is_closed:
            raise errors.Closed("this workspace is closed")

    def drive(self, steps: Steps[R]) -> R:
        """Run the steps of a call to its result."""
        return drive(steps, self._handlers)

    def _pause(self, step: Pause) -> None:
        time.sleep(step.seconds)

    def _send(self, step: Send) -> httpx.Response:
        self._check_open()
        return self._client.request(**self.address.request(step))

    def watch(self, resuming: Resuming) -> RemoteWatch[Any]:
        """An iterator over events."""
        return RemoteWatch(self, resuming)

    def stream(self, resuming: Resuming) -> Generator[Any, None, None]:
        """Events as they come, after a first None once it is connected; resumes by itself."""
        from httpx import TransportError

        begun = False
        while True:
            self._check_open()
            broken: TransportError | None = None
            try:
                with self._client.stream(**self.address.request(resuming.step())) as answer:
                    if not answer.is_success:
                        raise failure(answer.read(), answer.status_code)
                    check_events(answer)
                    allow_silence(answer)
                    for line in answer.iter_lines():
                        events = resuming.heard(line)
                        if resuming.connected and not begun:
                            begun = True
                            yield None
                        yield from events
                        if resuming.over:
                            return
            except TransportError as error:
                broken = error
            time.sleep(resuming.broke(broken))


def allow_silence(answer: httpx.Response) -> None:
    """Let a watch that is connected be silent for as long as a server ever is."""
    answer.request.extensions["timeout"]["read"] = _SILENCE


def _is_here(url: str) -> bool:
    """Whether an address leads to this machine."""
    from ipaddress import ip_address
    from urllib.parse import urlsplit

    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _trust(url: str, verify: str | bool) -> ssl.SSLContext | bool:
    """The certificates that are trusted."""
    if isinstance(verify, str):  # servers that show this certificate, and no others
        try:
            return ssl.create_default_context(cafile=verify)
        except OSError as error:  # of which ssl.SSLError is one
            raise errors.Invalid(
                f"{verify} cannot be used as a certificate: {error}",
                hint="verify= is a PEM file, such as DIR/tls/cert.pem",
            ) from error
    if url.startswith("https:"):
        return verify
    # No certificate is shown: loading the usual ones would take longer than most calls. None is trusted, if one came.
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _checked(token: object) -> str:
    """A token without the line end of its file. A message never repeats what is not a token."""
    text = token.strip() if isinstance(token, str) else ""
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise errors.Unauthorized("this is not a token", hint="a token is one word, as holdfast token create shows it")
    return text


def _token() -> str:
    """The token from the environment; Unauthorized if there is none."""
    given = os.environ.get("HOLDFAST_TOKEN")
    file = os.environ.get("HOLDFAST_TOKEN_FILE")
    if given:
        return given
    if file:
        try:
            with open(file, encoding="utf-8") as opened:
                return opened.read()
        except (OSError, UnicodeDecodeError) as error:
            raise errors.Unauthorized(f"HOLDFAST_TOKEN_FILE {file} cannot be read: {error}") from error
    raise errors.Unauthorized("no token was given", hint=f"{errors.SEND_TOKEN}, or set HOLDFAST_TOKEN")


class RemoteWorkspace(InContext[Sync], Closing):
    """A workspace behind a server."""

    def __init__(self, wire: Wire, context: Context) -> None:
        super().__init__(RemoteRunner(wire, context))
        self._wire = wire
        self._context = context
        self._loops: WeakKeyDictionary[AbstractEventLoop, AsyncWire] = WeakKeyDictionary()

    def _within(self, context: Context) -> RemoteWorkspace:
        other = RemoteWorkspace(self._wire, context)
        other._loops = self._loops
        return other

    @property
    def aio(self) -> AsyncRemoteWorkspace:
        """The awaitable twin, for the running event loop."""
        from holdfast.remote.aio import AsyncRemoteWorkspace, AsyncWire
        from holdfast.workspace.aio import running_loop

        loop = running_loop()
        wire = self._loops.get(loop)
        if wire is None:
            wire = self._loops[loop] = AsyncWire(self._wire.address, loop, lambda: self._loops.pop(loop, None))
        return AsyncRemoteWorkspace(wire, self._context)

    @property
    def revision(self) -> int:
        """The revision of the newest transaction."""
        return int(self._runner.ask("revision")["revision"])

    @property
    def clock_ahead(self) -> float:
        """Seconds by which the workspace's time runs ahead of the server's clock."""
        return float(self._runner.ask("revision")["clock_ahead"])

    @property
    def actor(self) -> str:
        """The name that calls through this object act under."""
        return str(self._context.actor)

    def check(self) -> Report:
        """Have the server compare the state with the log; needs the role admin."""
        return Report(**self._runner.ask("check"))

    if not TYPE_CHECKING:  # a type checker reports their use

        def transact(self, body: Callable[..., object]) -> NoReturn:
            """Raises Unsupported: a function does not travel. `ws.txn(conditions, then)` does."""
            raise no_function("transact")

        def transaction(self) -> NoReturn:
            """Raises Unsupported: a block does not travel. `ws.txn(conditions, then)` does."""
            raise no_block()

        def backup(self, path: str) -> NoReturn:
            """Raises Unsupported: a backup is made where the store is."""
            raise no_backup()

    def close(self) -> None:
        """Close the connections; the server goes on."""
        self._wire.close()

    def __repr__(self) -> str:
        return f"<RemoteWorkspace {self._wire.address.url!r} actor={self.actor!r}>"


class RemoteWatch(Closing, Generic[E]):
    """An iterator over events as they come from a server. It ends at its timeout; close it or use it in `with`."""

    def __init__(self, wire: Wire, resuming: Resuming) -> None:
        self._events = wire.stream(resuming)
        next(self._events)  # connected: from here on nothing is missed

    def __iter__(self) -> RemoteWatch[E]:
        return self

    def __next__(self) -> E:
        event: E = next(self._events)
        return event

    def close(self) -> None:
        """Stop watching."""
        self._events.close()


def connect(
    url: str, *, token: str | None = None, actor: str | None = None, timeout: float = 30.0, verify: str | bool = True
) -> RemoteWorkspace:
    """The workspace behind a server: `http://host:port`, `.../NAME` for a named one, `unix:///path` for a socket.

    The token is given, or in HOLDFAST_TOKEN, or in the file that HOLDFAST_TOKEN_FILE names. `verify` is the server's
    certificate if it made its own. Raises Unsupported if the extra `remote` is not installed.
    """
    try:
        import httpx  # noqa: F401
    except ImportError as error:
        raise errors.Unsupported(
            f"a remote workspace needs a package that is not installed: {error}", hint="pip install 'holdfast[remote]'"
        ) from error
    context = check_context(Context(derive_actor() if actor is None else actor))
    return RemoteWorkspace(Wire(Address(url, token, timeout, verify)), context)
