"""The ASGI application: from a request to an operation and back.

Order of refusals: Host, Origin, token, workspace, address, role, body, arguments. Nothing is read of a request that is
refused for who sends it. An error is its class's status and a JSON body; one that is not ours is logged with its
traceback and told as a bare 500. A call that waits ends when its client has gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from holdfast import errors, wire
from holdfast.faces.http import auth, calls, pages
from holdfast.faces.http.auth import EVERY, MAIN, Gate, Headers, Tickets, Token, Tokens
from holdfast.faces.http.calls import (
    ARGUMENT,
    CAREFUL,
    PREFIX,
    Answer,
    Caller,
    Route,
    Routes,
    check_wait,
    decode,
    poll,
    refused,
)
from holdfast.faces.http.listener import Settings
from holdfast.faces.http.operations import AccessLog, Metrics, Upkeep
from holdfast.faces.http.pages import find
from holdfast.faces.http.sse import Alone, Client, Receive, Send, Watchers, resume_from
from holdfast.faces.http.workspaces import Space, Spaces
from holdfast.faces.mcp import http
from holdfast.workspace.aio import while_serving

Scope = MutableMapping[str, Any]

LIVENESS: Final = "healthz"
_log = logging.getLogger("holdfast.http")


class App:
    """One server's application."""

    def __init__(self, spaces: Spaces, tokens: Tokens, hosts: Gate, settings: Settings) -> None:
        self.spaces = spaces
        self.tokens = tokens
        self.tickets = Tickets(tokens)
        self.routes = Routes()
        self.metrics = Metrics()
        self.watchers = Watchers(settings.max_watchers)
        self.upkeep = Upkeep(spaces, settings)
        self.access = None if settings.access_log is None else AccessLog(settings.access_log)
        self.stopping = asyncio.Event()
        self.mcp = http.Mounted(self.stopping)
        self._hosts = hosts

    async def start(self) -> None:
        """Begin what goes on in the background."""
        if self.access is not None:
            self.access.open()
        await self.upkeep.start()

    async def end(self) -> None:
        """End it, when the last request has been answered."""
        await self.mcp.end()
        await self.upkeep.stop()
        if self.access is not None:
            self.access.close()

    def stop(self) -> None:
        """Tell watchers where to resume, and take no more of them."""
        self.stopping.set()
        self.watchers.wake()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not served here")
        started = self.metrics.began()
        headers = auth.headers_of(scope["headers"])
        status = 500
        try:
            answer = await self._answer(scope, headers, receive, send)
            if answer is None:  # a stream, or MCP, which has sent everything itself
                status = scope.get("status", 200)
                return
            status = answer.status
            await _send(send, answer, scope["method"], headers)
        finally:
            seconds = self.metrics.ended(scope["method"], status, started)
            if self.access is not None:
                self.access.add(scope, status, seconds)

    async def _answer(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> Answer | None:
        try:
            return await self._respond(scope, headers, receive, send)
        except errors.HoldfastError as error:
            return refused(error)
        except Exception:
            _log.exception("%s %s failed", scope["method"], scope["path"])
            return refused(errors.HoldfastError("the server failed; its log says more"))

    async def _respond(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> Answer | None:
        self._hosts.check_host(headers)
        segments = _segments(scope)
        if segments == [LIVENESS]:
            return Answer(200, b'{"status":"ok"}')
        self._hosts.check_origin(headers)
        name = _space_of(segments)
        rest = segments[1:] if name else segments
        token = scope["token"] = self._admitted(scope, headers, name, rest)
        if name is None:
            return pages.respond(self, segments, scope["method"], token)
        if token.workspace not in (EVERY, name):
            what = f"the workspace {name!r}" if name else "the main workspace"
            raise errors.Forbidden(f"this token is not for {what}", hint="holdfast token create --workspace makes one")
        space = self.spaces.get(name)
        if rest == [http.PATH]:
            body = await _read_body(headers, receive)
            return await self.mcp.respond(space, token, scope, headers, body, receive, send)
        extra = find(rest, scope["method"], token)
        if extra is not None:
            return await extra(self, space, token)
        route, values = self.routes.find(scope["method"], rest, auth.accepts_events(headers))
        return await self._call(route, values, space, token, scope, headers, receive, send)

    def _admitted(self, scope: Scope, headers: Headers, name: str | None, rest: list[str]) -> Token:
        """The token of a request; who asks for a stream may show a ticket instead, which is used up by it."""
        streaming = b"authorization" not in headers and auth.accepts_events(headers)
        if name is not None and streaming and self.routes.is_stream(scope["method"], rest):
            ticket, scope["query_string"] = wire.take_from_query(scope["query_string"], auth.ARGUMENT)
            if ticket is not None:
                return self.tickets.take(ticket, name)
        return self.tokens.find(auth.bearer(headers))

    async def _call(
        self,
        route: Route,
        values: list[str],
        space: Space,
        token: Token,
        scope: Scope,
        headers: Headers,
        receive: Receive,
        send: Send,
    ) -> Answer | None:
        calls.check_role(route.op, token)
        body = await _read_body(headers, receive)
        path = {name: decode(value) for name, value in zip(route.names, values, strict=True)}
        path |= calls.expected(route.op, headers)
        query, wait = scope["query_string"], None
        if route.op.name == "events.list" and query:
            wait, query = wire.take_from_query(query, ARGUMENT)
        given = wire.arguments(route.op, path, query, body)
        caller = Caller(token, headers)
        scope["actor"] = caller.actor
        calls.check_actor(route.op, given, caller)
        if route.op.route.heavy:  # for the loop
            work = route.op.on(space.in_thread(caller.context()))
            return calls.answered(route, await asyncio.to_thread(work, **given), headers)
        handle = space.handle(caller.context())
        call = route.op.on(handle)
        if route.op.kind == "stream":
            resume_from(route.op, headers, given)
            client = Client(token, self.tokens, self.stopping, receive, send)
            with self.watchers.place(token, client):
                self.watchers.cut += not await client.serve(_stream(route, call, given, space, client))
            return None
        if wait is not None:
            result = await while_serving(route.op, poll(handle, given, check_wait(wait)), self.stopping, receive())
        elif route.op.kind == "first" or given.get("wait"):
            result = await while_serving(route.op, call(**given), self.stopping, receive())
        else:
            result = await call(**given)
        return calls.answered(route, result, headers)


def _stream(
    route: Route, call: Callable[..., Any], given: dict[str, Any], space: Space, client: Client
) -> Awaitable[None]:
    """What sends a client the events it wants; what is wrong with its wishes is refused here."""
    watch = call(**given)
    if route.op.name != "watch" or given.get("timeout") is not None:
        return Alone(route.op, watch, client).follow()
    kinds, id = given.get("kinds"), given.get("id")
    wanted = None if kinds is None else tuple(sorted(kinds)), tuple(id) if isinstance(id, list) else id
    return space.channels.follow(wanted, watch, lambda after: call(kinds=kinds, id=id, after=after), client)


def _segments(scope: Scope) -> list[str]:
    """The parts of the path, not decoded: a name may hold a slash."""
    raw = scope.get("raw_path") or scope["path"].encode()
    return str(raw.partition(b"?")[0].decode("latin-1")).removeprefix("/").split("/")


def _space_of(segments: list[str]) -> str | None:
    """The workspace that is meant; None where none is."""
    if segments[0] == PREFIX or segments == [http.PATH]:
        return MAIN
    return segments[0] if len(segments) > 1 and (segments[1] == PREFIX or segments[1:] == [http.PATH]) else None


async def _read_body(headers: Headers, receive: Receive) -> bytes:
    auth.check_length(headers)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise errors.Closed("the client has gone")
        part = message.get("body", b"")
        size += len(part)
        if size > auth.MAX_BODY:
            raise auth.too_large()
        parts.append(part)
        if not message.get("more_body"):
            break
    body = b"".join(parts)
    if body:
        auth.check_json(headers)
    return body


async def _send(send: Send, answer: Answer, method: str, headers: Headers) -> None:
    body, more = answer.body, answer.headers
    if len(body) > 1024 and b"gzip" in headers.get(b"accept-encoding", b""):
        import gzip

        body = gzip.compress(body, 1, mtime=0)
        more = (*more, (b"content-encoding", b"gzip"), (b"vary", b"accept-encoding"))
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": answer.status, "headers": [*CAREFUL, *more, length]})
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})
