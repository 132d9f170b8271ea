"""MCP in `holdfast serve`: `/mcp` and `/NAME/mcp`, behind the same checks, tokens and roles as every other address.

No request needs another one before it, so a server that was restarted, or one of several, works as well: there is no
session to lose. The session id that a client gets is the name under which the tokens of its claims are remembered and
its calls can be cancelled. A token has at most 256 of them; the least recently used one is forgotten, and with it only
the fences of its claims. The SDK sees a request only after the server's checks.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, Protocol
from urllib.parse import parse_qs

from holdfast import errors, wire
from holdfast.errors import MethodNotAllowed
from holdfast.faces.mcp import load_protocol
from holdfast.faces.mcp.client import Session
from holdfast.faces.mcp.profiles import WORKSPACE, tools_of
from holdfast.ids import new_secret
from holdfast.operation import Operation
from holdfast.workspace import Workspace
from holdfast.workspace.aio import AsyncWorkspace
from holdfast.workspace.context import Access, Context
from holdfast.workspace.tokens import MemoryTokens

PATH: Final = "mcp"
SESSION: Final = b"mcp-session-id"
SESSIONS: Final = 256  # of one token, that are remembered
_VISIBLE: Final = re.compile(rb"[!-~]{0,128}")
_OURS: Final = "holdfast.mcp"  # in the scope of a request: its session

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Key = tuple[str, type[str], str, str]  # workspace, kind of actor, actor, name of the session


class Served(Protocol):
    """A workspace as the server hands it over."""

    @property
    def name(self) -> str:
        """Its name."""

    def handle(self, context: Context) -> AsyncWorkspace:
        """The workspace for calls in this context."""

    def in_thread(self, context: Context) -> Workspace:
        """The same for use in a thread."""


class HttpMcpSession(Session):
    """The session of requests with the same token, actor and session id: it may do what the token may."""

    def __init__(
        self, served: Served, access: Access, name: str, profile: str, tokens: MemoryTokens, mounted: Mounted
    ) -> None:
        self._context = Context(access.actor)
        super().__init__(served.handle(self._context), access.actor, profile, tokens, mounted.stopping)
        self.served = served
        self.access = access
        self._name = name
        self._mounted = mounted

    def check(self, op: Operation[..., Any], given: dict[str, Any]) -> None:
        """Apply the rules of every address: roles, and the actor of a bound token."""
        self.access.check(op, given)

    def perform(self, workspace: Any, op: Operation[..., Any], given: dict[str, Any]) -> Any:
        """Run an operation; a heavy one in a thread."""
        if op.route.heavy:
            return asyncio.to_thread(op.on(self.served.in_thread(self._context)), **given)
        return super().perform(workspace, op, given)

    def cancellable(self, request: Any) -> AbstractContextManager[Any]:
        """A block around a call that another request of the same session may cancel."""
        return self._mounted.cancellable((self.access.token, self._name, request)) if self._name else nullcontext()


class Mounted:
    """MCP for all workspaces of one server."""

    def __init__(self, stopping: asyncio.Event) -> None:
        self.stopping = stopping
        self._cancellable: dict[tuple[str, str, Any], Any] = {}  # by token, session and number of the request
        self._sessions: dict[str, OrderedDict[Key, HttpMcpSession]] = {}  # by token
        self._starting: asyncio.Task[Any] | None = None
        self._ending = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def respond(
        self, served: Served, access: Access, scope: Scope, body: bytes, receive: Receive, send: Send
    ) -> None:
        """Respond to a request that passed the server's checks."""
        name = _session_name(scope)
        if scope["method"] == "DELETE":
            self._sessions.get(access.token, OrderedDict()).pop(_key(served, access, name), None)
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        if scope["method"] != "POST":
            raise MethodNotAllowed(f"{scope['method']} is not allowed here, use POST", allowed="POST, DELETE")
        wire.check_depth(body)
        _check_message(body)
        profile = parse_qs(scope["query_string"].decode("latin-1")).get("profile", ["core"])[-1]
        tools_of(profile)  # raises Invalid if there is none of this name
        manager = await self._manager()
        begins = self._begins_session(access, name, body)
        scope[_OURS] = self._session(served, access, name, profile)
        replayed = _replay(body, receive)
        await manager.handle_request(scope, replayed, _named(send, new_secret()) if begins else send)

    def _begins_session(self, access: Access, name: str, body: bytes) -> bool:
        """Whether a request begins a session; a notification of cancellation takes effect here."""
        try:
            message = wire.parsed(body)
        except ValueError:
            return False  # the SDK reports what is wrong with it
        match message:
            case {"method": "notifications/cancelled", "params": {"requestId": str() | int() as request}} if name:
                found = self._cancellable.get((access.token, name, request))
                if found is not None:
                    found.cancel()
            case {"method": "initialize"}:
                return True
        return False

    @contextmanager
    def cancellable(self, key: tuple[str, str, Any]) -> Iterator[None]:
        """A block that ends early if its request is cancelled."""
        from anyio import CancelScope

        with CancelScope() as scope:
            self._cancellable[key] = scope
            try:
                yield
            finally:
                if self._cancellable.get(key) is scope:
                    del self._cancellable[key]

    def _session(self, served: Served, access: Access, name: str, profile: str) -> HttpMcpSession:
        """The session of a request, made anew where its workspace, rights or profile have changed."""
        known = self._sessions.setdefault(access.token, OrderedDict())
        key = _key(served, access, name)
        session = known.get(key)
        if session is None or (session.served, session.access, session.profile) != (served, access, profile):
            tokens = MemoryTokens() if session is None else session.tokens
            session = known[key] = HttpMcpSession(served, access, name, profile, tokens, self)
            if len(known) > SESSIONS:
                known.popitem(last=False)
        known.move_to_end(key)
        return session

    # its life

    async def _manager(self) -> Any:
        """The SDK's side, loaded and started for the first request."""
        if self._starting is None or (self._starting.done() and self._starting.exception() is not None):
            self._starting = asyncio.ensure_future(self._start())
        return await asyncio.shield(self._starting)

    async def _start(self) -> Any:
        protocol = await asyncio.to_thread(load_protocol)  # in a thread: it takes a second
        manager = protocol.over_http(WORKSPACE, lambda context: context.request.scope[_OURS])
        started = asyncio.Event()

        async def run() -> None:
            async with manager.run():
                started.set()
                await self._ending.wait()

        self._running = asyncio.ensure_future(run())
        await started.wait()
        return manager

    async def end(self) -> None:
        """Stop, after the last request."""
        self._ending.set()
        if self._running is not None:
            await self._running


def _key(served: Served, access: Access, name: str) -> Key:
    """What a session is remembered by; an actor that was derived is not the one somebody chose."""
    return served.name, type(access.actor), str(access.actor), name


def _check_message(body: bytes) -> None:
    """Raise Invalid unless the body is a message: the SDK would list every type of message that it does not fit."""
    try:
        message = wire.parsed(body)
    except ValueError:
        message = None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0" or not message.keys() & {"method", "id"}:
        hint = 'send such as {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, with Content-Type: application/json'
        raise errors.Invalid("the body is not a JSON-RPC message", hint=hint)


def _session_name(scope: Scope) -> str:
    """The name that a client was given for its session; "" if it has none."""
    name = b"\0".join(value for header, value in scope["headers"] if header == SESSION)  # a duplicate is invalid
    if not _VISIBLE.fullmatch(name):
        raise errors.Invalid("the header Mcp-Session-Id was not issued by this server", hint="initialize again")
    found: str = name.decode()
    return found


def _replay(body: bytes, receive: Receive) -> Receive:
    """The request once more, for the SDK, which has not read it yet; then what follows it."""
    parts = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> MutableMapping[str, Any]:
        return parts.pop() if parts else await receive()

    return again


def _named(send: Send, name: str) -> Send:
    """Send the name of a session with the response that begins it."""

    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start" and message["status"] == 200:
            message = {**message, "headers": [*message["headers"], (SESSION, name.encode())]}
        await send(message)

    return sending
