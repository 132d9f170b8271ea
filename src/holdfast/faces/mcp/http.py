"""MCP in `holdfast serve`: `/mcp` and `/NAME/mcp`, behind the same gate, tokens and roles as every other address.

Every request stands for itself, so a server that was started anew, or one of several, is no different: there is no
session to lose. What a client is given as session id is a name under which the tokens of its claims are remembered and
its calls can be cancelled; of those a token has at most 256, and the one that was unused longest is forgotten, which
costs nothing but that fence. The SDK sees a request only when all of ours have let it pass.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final
from urllib.parse import parse_qs

from holdfast import errors, wire
from holdfast.errors import MethodNotAllowed
from holdfast.faces.http import calls
from holdfast.faces.http.auth import Headers, Token
from holdfast.faces.http.calls import CAREFUL, Answer
from holdfast.faces.http.sse import Receive, Send
from holdfast.faces.http.workspaces import Space
from holdfast.faces.mcp import load_protocol
from holdfast.faces.mcp.profiles import WORKSPACE, tools_of
from holdfast.faces.mcp.session import Memory, Session
from holdfast.kernel.ids import new_secret
from holdfast.operation import Operation
from holdfast.workspace.context import Context

PATH: Final = "mcp"
SESSION: Final = b"mcp-session-id"
SESSIONS: Final = 256  # of one token, whose tokens of claims are remembered
_LONGEST_NAME: Final = 128
_OURS: Final = "holdfast.mcp"  # in the scope of a request: its session

Cancellable = dict[tuple[str, str, Any], Any]  # by token, session id and number of the request


class Visitor(Session):
    """A session of one request: it may do what its token may."""

    def __init__(self, space: Space, caller: calls.Caller, profile: str, memory: Memory, mounted: Mounted) -> None:
        self._context = Context(caller.actor)
        super().__init__(space.handle(self._context), caller.actor, profile, memory, mounted.stopping)
        self._space = space
        self._caller = caller
        self._mounted = mounted
        self.name = ""

    def check(self, op: Operation[..., Any], given: dict[str, Any]) -> None:
        """The rules of every address: roles, and whom a token may act for."""
        calls.check_role(op, self._caller.token)
        calls.check_actor(op, given, self._caller)

    async def perform(self, workspace: Any, op: Operation[..., Any], given: dict[str, Any]) -> Any:
        """Run an operation; what is too heavy for the loop, in a thread."""
        if op.route.heavy:
            return await asyncio.to_thread(op.on(self._space.in_thread(self._context)), **given)
        return await super().perform(workspace, op, given)

    def cancellable(self, request: Any) -> AbstractContextManager[Any]:
        """Around a call that another request of the same session may cancel."""
        return self._mounted.cancellable((self._caller.token.id, self.name, request)) if self.name else nullcontext()


class Mounted:
    """MCP for all workspaces of one server."""

    def __init__(self, stopping: asyncio.Event) -> None:
        self.stopping = stopping
        self._cancellable: Cancellable = {}
        self._memories: dict[str, OrderedDict[tuple[str, str, str], Memory]] = {}
        self._starting: asyncio.Task[Any] | None = None
        self._ending = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def respond(
        self,
        space: Space,
        token: Token,
        scope: MutableMapping[str, Any],
        headers: Headers,
        body: bytes,
        receive: Receive,
        send: Send,
    ) -> Answer | None:
        """Answer a request that was let in; None if everything has been sent."""
        caller = calls.Caller(token, headers)
        scope["actor"] = caller.actor
        name = _session_name(headers)
        place = space.name, str(caller.actor), name
        if scope["method"] == "DELETE":
            self._memories.get(token.id, OrderedDict()).pop(place, None)
            return Answer(204, b"", ())
        if scope["method"] != "POST":
            raise MethodNotAllowed(f"{scope['method']} is not possible here; POST is", allowed="POST, DELETE")
        wire.check_depth(body)
        profile = parse_qs(scope["query_string"].decode("latin-1")).get("profile", ["core"])[-1]
        tools_of(profile)  # which refuses one that does not exist
        manager = await self._manager()
        given = self._look(token, name, body)
        visitor = Visitor(space, caller, profile, self._memory(token, place), self)
        visitor.name = name
        scope[_OURS] = visitor
        await manager.handle_request(scope, _replay(body, receive), _carefully(scope, send, given))
        return None

    def _look(self, token: Token, name: str, body: bytes) -> bytes | None:
        """Cancel what the request says is to be cancelled; one that begins a session gets a name for it."""
        try:
            message = wire.parsed(body)
        except ValueError:
            return None  # the SDK says what is wrong with it
        match message:
            case {"method": "notifications/cancelled", "params": {"requestId": str() | int() as request}} if name:
                found = self._cancellable.get((token.id, name, request))
                if found is not None:
                    found.cancel()
            case {"method": "initialize"}:
                return new_secret().encode()
        return None

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

    def _memory(self, token: Token, place: tuple[str, str, str]) -> Memory:
        """What a session holds."""
        known = self._memories.setdefault(token.id, OrderedDict())
        memory = known.get(place)
        if memory is None:
            memory = known[place] = Memory()
            if len(known) > SESSIONS:
                known.popitem(last=False)
        else:
            known.move_to_end(place)
        return memory

    # its life

    async def _manager(self) -> Any:
        """What speaks MCP, loaded and started for the first request."""
        if self._starting is None or (self._starting.done() and self._starting.exception() is not None):
            self._starting = asyncio.ensure_future(self._start())
        return await asyncio.shield(self._starting)

    async def _start(self) -> Any:
        protocol = await asyncio.to_thread(load_protocol)  # beside the loop: it takes a second
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
        """Stop, when the last request has been answered."""
        self._ending.set()
        if self._running is not None:
            await self._running


def _session_name(headers: Headers) -> str:
    """The name that a client was given for its session; "" if it has none."""
    name = headers.get(SESSION, b"")
    if len(name) > _LONGEST_NAME or not all(0x21 <= byte <= 0x7E for byte in name):
        raise errors.Invalid("Mcp-Session-Id is not one that was given here", hint="initialize again")
    return name.decode()


def _replay(body: bytes, receive: Receive) -> Receive:
    """The request once more, for who has not read it yet; then what comes after it."""
    parts = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> MutableMapping[str, Any]:
        return parts.pop() if parts else await receive()

    return again


def _carefully(scope: MutableMapping[str, Any], send: Send, given: bytes | None) -> Send:
    """Send with the headers that all our answers have, and the name of a session that begins."""

    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            scope["status"] = message["status"]
            there = {name.lower() for name, _ in message["headers"]}
            more = [header for header in CAREFUL if header[0] not in there]
            if given is not None and message["status"] == 200:
                more.append((SESSION, given))
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return sending
