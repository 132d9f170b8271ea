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

from holdfast import errors
from holdfast.faces.http import calls, codec, gate, pages
from holdfast.faces.http.answers import CAREFUL, Answer, refused
from holdfast.faces.http.calls import Caller
from holdfast.faces.http.gate import Gate, Headers
from holdfast.faces.http.metrics import Metrics
from holdfast.faces.http.routes import PREFIX, Route, Routes, decode
from holdfast.faces.http.spaces import Space, Spaces
from holdfast.faces.http.streams import Stream, resume_from
from holdfast.faces.http.tokens import EVERY, MAIN, Token, Tokens

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

LIVENESS: Final = "healthz"
_log = logging.getLogger("holdfast.http")


class App:
    """One server's application."""

    def __init__(self, spaces: Spaces, tokens: Tokens, hosts: Gate, metrics: Metrics | None = None) -> None:
        self.spaces = spaces
        self.tokens = tokens
        self.routes = Routes()
        self.metrics = metrics or Metrics()
        self.stopping = asyncio.Event()
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not served here")
        started = self.metrics.began()
        headers: Headers = dict(scope["headers"])
        status = 500
        try:
            answer = await self._answer(scope, headers, receive, send)
            if answer is None:  # a stream, which has sent everything itself
                status = 200
                return
            status = answer.status
            await _send(send, answer, scope["method"], headers)
        finally:
            self.metrics.ended(scope["method"], status, started)

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
        token = self.tokens.find(gate.bearer(headers))
        name = _space_of(segments)
        if name is None:
            return pages.respond(self, segments, scope["method"], token)
        if token.workspace not in (EVERY, name):
            raise errors.Forbidden(f"this token is not for the workspace {name or 'of this server'!r}")
        space = self.spaces.get(name)
        rest = segments if name == MAIN else segments[1:]
        extra = calls.extra(rest, scope["method"])
        if extra is not None:
            return await extra(self, space, token)
        route, values = self.routes.find(scope["method"], rest)
        return await self._call(route, values, space, token, scope, headers, receive, send)

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
        given = codec.arguments(route.op, path, scope["query_string"], body)
        caller = Caller(token, headers)
        calls.check_actor(route.op, given, caller)
        calls.add_expected(route.op, given, headers)
        handle = space.handle(caller.context())
        call = calls.bound(handle, route.op)
        if route.op.kind == "stream":
            resume_from(route.op, headers, given)
            watching: Any = call(**given)
            stream = Stream(route.op, watching, receive, send)
            self.metrics.watchers += 1
            try:
                await stream.serve(self.stopping)
            finally:
                self.metrics.watchers -= 1
                self.metrics.cut += stream.cut
            return None
        if route.op.kind in ("first", "procedure"):  # which may wait
            result: Any = await _unless_gone(call(**given), receive)
        else:
            result = await call(**given)
        return calls.answered(route, result, headers)


def _segments(scope: Scope) -> list[str]:
    """The parts of the path, not decoded: a name may hold a slash."""
    raw = scope.get("raw_path") or scope["path"].encode()
    return str(raw.partition(b"?")[0].decode("latin-1")).removeprefix("/").split("/")


def _space_of(segments: list[str]) -> str | None:
    """The workspace that is meant; None where none is."""
    if segments[0] == PREFIX:
        return MAIN
    return segments[0] if len(segments) > 1 and segments[1] == PREFIX else None


async def _read_body(headers: Headers, receive: Receive) -> bytes:
    gate.check_length(headers)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise errors.Closed("the client has gone")
        part = message.get("body", b"")
        size += len(part)
        if size > gate.MAX_BODY:
            raise gate.too_large()
        parts.append(part)
        if not message.get("more_body"):
            break
    body = b"".join(parts)
    if body:
        gate.check_json(headers)
    return body


async def _unless_gone(work: Awaitable[Any], receive: Receive) -> Any:
    """Await a call that may wait; cancelled when the client has gone, so that nobody waits in line for nobody."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(receive())
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
            raise errors.Closed("the client has gone")
        return task.result()
    finally:
        gone.cancel()


async def _send(send: Send, answer: Answer, method: str, headers: Headers) -> None:
    body, more = answer.body, answer.headers
    if len(body) > 1024 and b"gzip" in headers.get(b"accept-encoding", b""):
        import gzip

        body = gzip.compress(body, 1, mtime=0)
        more = (*more, (b"content-encoding", b"gzip"), (b"vary", b"accept-encoding"))
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": answer.status, "headers": [*CAREFUL, *more, length]})
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})
