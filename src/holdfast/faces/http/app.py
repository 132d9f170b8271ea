"""The ASGI application: from a request to an operation and back.

Checks run in this order: Host, Origin, token, workspace, address, role, body, arguments. The body of a request is not
read before its sender may call. An error becomes the status of its class and a JSON body; an unexpected exception is
logged with its traceback and becomes a bare 500. A call that waits ends when its client disconnects.

Requests to the private socket need no token: only the owner of the store can send them. There alone, `/command` carries
out a command of the command line.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Final

from holdfast import errors, private_socket, wire
from holdfast.faces.http import auth, calls, pages
from holdfast.faces.http.auth import EVERY, MAIN, TICKET, Gate, Headers, Tickets, Token, Tokens
from holdfast.faces.http.calls import PREFIX, SECURITY_HEADERS, Header, Response, Route, Routes
from holdfast.faces.http.listener import Settings
from holdfast.faces.http.operations import AccessLog, Metrics, Upkeep
from holdfast.faces.http.sse import Client, DirectStream, Receive, Send, Watchers, resume_from
from holdfast.faces.http.workspaces import ServedWorkspace, WorkspaceRegistry
from holdfast.faces.mcp import http as mcp
from holdfast.workspace import Workspace
from holdfast.workspace.aio import while_serving
from holdfast.workspace.context import check_role

Scope = MutableMapping[str, Any]

LIVENESS: Final = "healthz"
PRIVATE: Final = "holdfast.private"  # in a scope: the request came through the private socket
CarryOut = Callable[[Workspace, Path, bytes], bytes | None]
EXCHANGE: Final = "holdfast.exchange"  # in a scope: what can take a request's body and send its response at once
_log = logging.getLogger("holdfast.http")


class App:
    """One server's application."""

    def __init__(
        self,
        spaces: WorkspaceRegistry,
        tokens: Tokens,
        hosts: Gate,
        settings: Settings,
        carry_out: CarryOut | None = None,
    ) -> None:
        self.spaces = spaces
        self.tokens = tokens
        self.tickets = Tickets(tokens)
        self.routes = Routes()
        self.metrics = Metrics()
        self.watchers = Watchers(settings.max_watchers)
        self.upkeep = Upkeep(spaces, settings)
        self.access = None if settings.access_log is None else AccessLog(settings.access_log)
        self.stopping = asyncio.Event()
        self.mcp = mcp.Mounted(self.stopping)
        self._hosts = hosts
        self._private_hosts = Gate(("localhost",))
        self._carry_out = carry_out
        self._looked = False  # at the file of tokens

    async def start(self) -> None:
        """Start the background work."""
        if self.access is not None:
            self.access.open()
        await self.upkeep.start()

    async def end(self) -> None:
        """Stop the background work, after the last request."""
        await self.mcp.end()
        await self.upkeep.stop()
        if self.access is not None:
            self.access.close()

    def stop(self) -> None:
        """Tell watchers where to resume, and take no more of them."""
        self.stopping.set()
        self.watchers.wake()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, as ASGI defines it."""
        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not served here")
        started = self.metrics.began()
        headers = auth.headers_of(scope["headers"])
        status = 500
        try:
            response = await self._respond(scope, headers, receive, send)
            if response is None:  # a stream or MCP, which has sent everything itself
                status = scope.get("status", 200)
                return
            status = response.status
            await _send(scope, send, response, headers)
        finally:
            seconds = self.metrics.ended(scope["method"], status, started)
            if self.access is not None:
                self.access.add(scope, status, seconds)

    async def private(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request that came through the private socket."""
        scope[PRIVATE] = True
        await self(scope, receive, send)

    async def _respond(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> Response | None:
        """The response to a request, also if it fails; None if everything has been sent."""
        try:
            hosts = self._private_hosts if PRIVATE in scope else self._hosts
            hosts.check_host(headers)
            segments = _segments(scope)
            if segments == [LIVENESS]:
                return Response(200, b'{"status":"ok"}')
            hosts.check_origin(headers)
            if segments == [private_socket.PATH] and PRIVATE in scope and self._carry_out is not None:
                return await self._command(self._carry_out, scope, headers, receive)
            name = _workspace_in(segments)
            rest = segments[1:] if name else segments
            token = scope["token"] = self._authenticate(scope, headers, name, rest)
            if name is None:
                return pages.respond(self, segments, scope["method"], token)
            return await self._within(name, rest, token, scope, headers, receive, send)
        except errors.HoldfastError as error:
            return calls.error_response(error, headers.get(b"prefer", b""))
        except Exception:
            _log.exception("%s %s failed", scope["method"], scope["path"])
            return calls.error_response(errors.HoldfastError("internal error; see the server's log"))

    async def _command(self, carry_out: CarryOut, scope: Scope, headers: Headers, receive: Receive) -> Response:
        """Carry out a command, in a thread: 409 if its sender must do that itself, and nothing was changed."""
        scope["token"] = auth.OWNER
        auth.check_length(headers)
        body = await _await_body(receive)
        done = await asyncio.to_thread(carry_out, self.spaces.get(MAIN).workspace, self.spaces.folder, body)
        kind = (b"content-type", b"application/octet-stream")
        return Response(private_socket.DECLINED, b"", ()) if done is None else Response(200, done, (kind,))

    def _authenticate(self, scope: Scope, headers: Headers, name: str | None, rest: list[str]) -> Token:
        """The token of a request; a request for a stream may carry a ticket instead, which works once."""
        if PRIVATE in scope and b"authorization" not in headers:
            return auth.OWNER
        streaming = b"authorization" not in headers and auth.accepts_events(headers)
        if streaming and name is not None and self.routes.is_stream(scope["method"], rest):
            ticket, scope["query_string"] = wire.take_from_query(scope["query_string"], TICKET)
            if ticket is not None:
                return self.tickets.take(ticket, name)
        token = self.tokens.find(auth.bearer(headers), look=not self._looked)
        if not self._looked:  # for all requests that are served in this turn of the loop
            self._looked = True
            asyncio.get_running_loop().call_soon(self._look_again)
        return token

    def _look_again(self) -> None:
        self._looked = False

    async def _within(
        self, name: str, rest: list[str], token: Token, scope: Scope, headers: Headers, receive: Receive, send: Send
    ) -> Response | None:
        """Respond to a request to a workspace."""
        if token.workspace not in (EVERY, name):
            what = f"the workspace {name!r}" if name else "the main workspace"
            raise errors.Forbidden(f"this token is not for {what}", hint="holdfast token create --workspace makes one")
        space = self.spaces.get(name)
        if rest == [mcp.PATH]:
            access = calls.access_of(token, headers)
            scope["actor"] = access.actor
            body = await _read_body(scope, headers, receive)
            await self.mcp.respond(space, access, scope, body, receive, _with_headers(scope, send))
            return None
        extra = pages.find(rest, scope["method"], token)
        if extra is not None:
            return await extra(self, space, token)
        route, values = self.routes.find(scope["method"], rest, auth.accepts_events(headers))
        return await self._call(route, values, space, token, scope, headers, receive, send)

    async def _call(
        self,
        route: Route,
        values: list[str],
        space: ServedWorkspace,
        token: Token,
        scope: Scope,
        headers: Headers,
        receive: Receive,
        send: Send,
    ) -> Response | None:
        """Call the operation of a route."""
        op = route.op
        check_role(op, token.role)
        body = await _read_body(scope, headers, receive)
        path = calls.path_arguments(route, values, headers)
        query, wait = scope["query_string"], None
        if route.polled and query:
            wait, query = wire.take_from_query(query, calls.WAIT)
        given = wire.arguments(op, path, query, body)
        access = calls.access_of(token, headers)
        scope["actor"] = access.actor
        access.check_actor(op, given)
        context = calls.context_of(access.actor, headers)
        if op.route.heavy:
            result = await asyncio.to_thread(op.on(space.in_thread(context)), **given)
            return calls.result_response(route, result, headers)
        handle = space.handle(context)
        call = op.on(handle)
        if op.kind == "stream":
            resume_from(op, headers, given)
            client = Client(token, self.tokens, self.stopping, receive, send)
            with self.watchers.place(token, client):
                self.watchers.cut += not await client.serve(_stream(route, call, given, space, client))
            return None
        if wait is not None:
            work = calls.poll(handle, given, calls.check_wait(wait))
            result = await while_serving(op, work, self.stopping, receive())
        elif op.kind == "first" or given.get("wait"):
            result = await while_serving(op, call(**given), self.stopping, receive())
        else:
            result = await call(**given)
        return calls.result_response(route, result, headers)


def _stream(
    route: Route, call: Callable[..., Any], given: dict[str, Any], space: ServedWorkspace, client: Client
) -> Awaitable[None]:
    """The coroutine that sends a client its events; raises at once if the arguments are wrong."""
    watch = call(**given)
    if route.op.name != "watch" or given.get("timeout") is not None:
        return DirectStream(route.op, watch, client).follow()
    kinds, id = given.get("kinds"), given.get("id")
    wanted = None if kinds is None else tuple(sorted(kinds)), tuple(id) if isinstance(id, list) else id
    return space.channels.follow(wanted, watch, lambda after: call(kinds=kinds, id=id, after=after), client)


def _segments(scope: Scope) -> list[str]:
    """The parts of the path, not decoded: a name may contain a slash."""
    raw = scope.get("raw_path") or scope["path"].encode()
    return str(raw.partition(b"?")[0].decode("latin-1")).removeprefix("/").split("/")


def _workspace_in(segments: list[str]) -> str | None:
    """The name of the workspace that a path addresses, MAIN for the server's own; None if it addresses none."""
    if segments[0] == PREFIX or segments == [mcp.PATH]:
        return MAIN
    return segments[0] if len(segments) > 1 and (segments[1] == PREFIX or segments[1:] == [mcp.PATH]) else None


async def _read_body(scope: Scope, headers: Headers, receive: Receive) -> bytes:
    auth.check_length(headers)
    exchange = scope.get(EXCHANGE)
    body: bytes | None = None if exchange is None else exchange.received()
    if body is None:
        body = await _await_body(receive)
    elif len(body) > auth.MAX_BODY:
        raise auth.too_large()
    if body:
        auth.check_json(headers)
    return body


async def _await_body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise errors.Closed("the client disconnected")
        part = message.get("body", b"")
        size += len(part)
        if size > auth.MAX_BODY:
            raise auth.too_large()
        parts.append(part)
        if not message.get("more_body"):
            return b"".join(parts)


async def _send(scope: Scope, send: Send, response: Response, headers: Headers) -> None:
    body, more = response.body, response.headers
    if len(body) > 1024 and b"gzip" in headers.get(b"accept-encoding", b""):
        import gzip

        body = gzip.compress(body, 1, mtime=0)
        more = (*more, (b"content-encoding", b"gzip"), (b"vary", b"accept-encoding"))
    every = (*SECURITY_HEADERS, *more, (b"content-length", str(len(body)).encode()))
    if scope["method"] == "HEAD":
        body = b""
    exchange = scope.get(EXCHANGE)
    if exchange is None or not exchange.reply(response.status, _lines(every), body):
        await send({"type": "http.response.start", "status": response.status, "headers": every})
        await send({"type": "http.response.body", "body": body})


def _lines(headers: Sequence[Header]) -> bytes:
    """Headers as they travel."""
    lines = b"".join([b"%b: %b\r\n" % header for header in headers])
    if lines.count(b"\r") + lines.count(b"\n") != 2 * len(headers):
        raise ValueError("a header contains a line break")
    return lines


def _with_headers(scope: Scope, send: Send) -> Send:
    """Add the headers of every response of ours to one that somebody else sends, and note its status."""

    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            scope["status"] = message["status"]
            there = {name.lower() for name, _ in message["headers"]}
            more = [header for header in SECURITY_HEADERS if header[0] not in there]
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return sending
