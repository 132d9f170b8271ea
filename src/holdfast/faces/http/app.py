"""The application: from a request to an operation and back.

Checks run in this order: Host, Origin, token, workspace, address, role, body, arguments. The body of a request is not
kept before its sender may call. An error becomes the status of its class and a JSON body; an unexpected exception is
logged with its traceback and becomes a bare 500. A call that waits ends when its client disconnects.

A call that cannot wait for others is stepped without a task (`_Work`): it begins as soon as its request is complete,
and a read is answered before the next request is looked at. Streams, calls that may wait, and MCP have a task each.

Requests to the private socket need no token: only the owner of the store can send them. There alone, `/command` carries
out a command of the command line.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import msgspec

from holdfast import errors, private_socket, wire
from holdfast.faces.http import auth, calls, pages
from holdfast.faces.http.auth import EVERY, MAIN, TICKET, Gate, Tickets, Token, Tokens
from holdfast.faces.http.calls import PREFIX, SECURITY_HEADERS, Response, Route, Routes
from holdfast.faces.http.listener import Settings
from holdfast.faces.http.operations import AccessLog, Metrics, Upkeep
from holdfast.faces.http.request import Request
from holdfast.faces.http.sessions import SESSION, Sessions
from holdfast.faces.http.sse import Client, DirectStream, Watchers, resume_from
from holdfast.faces.http.workspaces import ServedWorkspace, WorkspaceRegistry
from holdfast.faces.mcp import http as mcp
from holdfast.route import hearing_existed
from holdfast.workspace import Workspace
from holdfast.workspace.aio import while_serving
from holdfast.workspace.context import LATEST, CallerGoneError, check_role

LIVENESS: Final = "healthz"
CarryOut = Callable[[Workspace, Path, bytes], bytes | None]
_COMPRESSED: Final = 1024  # bytes, above which a response is
_REMEMBERED: Final = 2048  # addresses, and callers
_SHORT: Final = 512  # bytes of an address that is remembered
_BINARY: Final = calls.header_lines((b"content-type", b"application/octet-stream"))
_ALIVE: Final = Response(200, b'{"status":"ok"}')
_log = logging.getLogger("holdfast.http")


class Place(NamedTuple):
    """What an address means: a workspace and an operation with the arguments that stand in the path."""

    name: str | None  # of the workspace; None if it is about none
    rest: list[str]  # the segments within the workspace, not decoded: a name may contain a slash
    route: Route | None  # None if the address has other meanings, or none
    named: dict[str, str]  # arguments in the path


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
        self.sessions = Sessions(settings.folder, tokens)
        self.routes = Routes()
        self.metrics = Metrics()
        self.watchers = Watchers(settings.max_watchers)
        self.upkeep = Upkeep(spaces, settings)
        self.access = None if settings.access_log is None else AccessLog(settings.access_log)
        self.stopping = asyncio.Event()
        self.mcp = mcp.Mounted(self.stopping)
        self.running: set[Any] = set()  # calls that have not been answered
        self.loop = asyncio.get_running_loop()
        self._hosts = hosts
        self._private_hosts = Gate(("localhost",))
        self._carry_out = carry_out
        self._looked = False  # at the file of tokens
        self._find = lru_cache(_REMEMBERED)(self._locate)
        self._access_of = lru_cache(_REMEMBERED)(calls.access_of)

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

    # --- before the body ---------------------------------------------------------------------------------------------

    def admit(self, request: Request) -> bool:
        """Check everything but the body. False if the request has been answered."""
        request.began = self.metrics.began()
        try:
            return self._admit(request)
        except errors.HoldfastError as error:
            self.refuse(request, error)
        except Exception:
            self._fail(request)
        return False

    def _admit(self, request: Request) -> bool:
        headers, private = request.headers, request.connection.private
        hosts = self._private_hosts if private else self._hosts
        hosts.check_host(headers)
        streaming = b"accept" in headers and auth.accepts_events(headers)
        find = self._find if len(request.path) <= _SHORT else self._locate
        place = find(request.method, request.path, streaming)
        if place.rest == [LIVENESS] and place.name is None:
            if self.spaces.get(MAIN).workspace.is_lost:
                raise auth.lost_store()
            self.reply(request, _ALIVE)
            return False
        if place.name is None and pages.is_public(request, place.rest):
            self.reply(request, pages.public(request, place.rest))
            return False
        hosts.check_origin(headers)
        if place.name is None and pages.is_sign_in(request, place.rest):
            request.place = place, None
            pages.check_sign_in(headers)
            return True
        if private and place.rest == [private_socket.PATH] and self._carry_out is not None:
            request.token = auth.OWNER
            request.connection.trust()
            auth.check_length(headers)
            return True
        token = request.token = self._authenticate(request, place, streaming)
        if not request.connection.known:
            request.connection.trust()
        if place.name is None:
            own = pages.own(self, place.rest, request.method, token)
            self.reply(request, own or pages.respond(self, place.rest, request.method, token))
            return False
        if token.workspace not in (EVERY, place.name):
            what = f"the workspace {place.name!r}" if place.name else "the main workspace"
            raise errors.Forbidden(f"this token is not for {what}", hint="holdfast token create --workspace makes one")
        request.place = place, self.spaces.get(place.name)
        if place.route is not None:
            check_role(place.route.op, token.role)
            request.most = place.route.op.route.body
        elif place.rest != [mcp.PATH] and pages.find(place.rest, request.method, token) is None:
            route, values = self.routes.find(request.method, place.rest, streaming)
            check_role(route.op, token.role)
            calls.path_arguments(route, values)  # one of these raises what is wrong with the address
        auth.check_length(headers, request.most)
        return True

    def _locate(self, method: str, path: bytes, streaming: bool) -> Place:
        """What an address means. A route that does not exist is found missing later, by those who may know."""
        segments = path.decode("latin-1").removeprefix("/").split("/")
        name = _workspace_in(segments)
        rest = segments[1:] if name else segments
        if name is None or rest == [mcp.PATH] or pages.is_extra(rest):
            return Place(name, rest, None, {})
        try:
            route, values = self.routes.find(method, rest, streaming)
            return Place(name, rest, route, calls.path_arguments(route, values))
        except errors.HoldfastError:
            return Place(name, rest, None, {})

    def _authenticate(self, request: Request, place: Place, streaming: bool) -> Token:
        """The token of a request; a request for a stream may carry a ticket instead, which works once."""
        if request.connection.private and b"authorization" not in request.headers:
            return auth.OWNER
        streaming = streaming and b"authorization" not in request.headers
        if streaming and place.name is not None and self.routes.is_stream(request.method, place.rest):
            ticket, request.query = wire.take_from_query(request.query, TICKET)
            if ticket is not None:
                return self.tickets.take(ticket, place.name)
        secret = auth.bearer(request.headers)
        if secret.startswith(SESSION):
            return self.sessions.find(secret)
        token = self.tokens.find(secret, look=not self._looked)
        if not self._looked:  # for all requests that are served in this turn of the loop
            self._looked = True
            self.loop.call_soon(self._look_again)
        return token

    def _look_again(self) -> None:
        self._looked = False

    def refuse_body(self, request: Request) -> None:
        """The body is too large."""
        self.refuse(request, auth.too_large(request.most))

    # --- with the body -----------------------------------------------------------------------------------------------

    def serve(self, request: Request) -> None:
        """Answer a request that was admitted and is complete."""
        if request.place is None:
            return self._spawn(request, self._serve_command(request))
        place, space = request.place
        try:
            if space is None:
                return self.reply(request, pages.sign_in(self, request))
            if request.body:
                auth.check_json(request.headers)
            if place.route is not None:
                with calls.caller_of(request.headers):
                    self._call(request, place.route, place.named, space)
            elif place.rest == [mcp.PATH]:
                self._spawn(request, self._serve_mcp(request, space))
            else:
                self._spawn(request, self._serve_extra(request, place, space))
        except errors.HoldfastError as error:
            self.refuse(request, error)
        except Exception:
            self._fail(request)

    def _call(self, request: Request, route: Route, named: dict[str, str], space: ServedWorkspace) -> None:
        """Call the operation of a route."""
        op, headers, query, wait = route.op, request.headers, request.query, None
        path = calls.with_version(named, route, headers)
        if route.polled and query:
            wait, query = wire.take_from_query(query, calls.WAIT)
        given = wire.arguments(op, path, query, request.body)
        assert request.token is not None
        access = self._access_of(request.token, headers.get(calls.ACTOR), headers.get(calls.DERIVED))
        request.actor = access.actor
        access.check_actor(op, given)
        context = calls.context_of(access.actor, headers)
        if op.route.heavy:
            work = asyncio.to_thread(op.on(space.in_thread(context)), **given)
            return self._spawn(request, self._serve_result(request, route, work))
        handle = space.handle(context)
        call = op.on(handle)
        if op.kind == "stream":
            resume_from(op, headers, given)
            stream = partial(self._serve_stream, request, route, given=given, space=space)
            if context.at_least != LATEST:
                return self._spawn(request, stream(call))
            # Here and not in the call, which runs on the loop: it may wait for the log.
            reached = asyncio.to_thread(space.in_thread(context).reach)
            plain = space.handle(msgspec.structs.replace(context, at_least=None))
            return self._spawn(request, stream(op.on(plain), after=reached))
        if op.route.finds and given.get(op.route.finds) is not None:
            return self._spawn(request, self._serve_found(request, route, call(**given)))
        if wait is not None:
            polled = calls.poll(handle, given, calls.check_wait(wait))
            waiting = while_serving(op, polled, self.stopping, request.left())
        elif op.kind == "first" or given.get("wait"):
            waiting = while_serving(op, call(**given), self.stopping, request.left())
        else:
            return _Work(self, request, route, call(**given)).step()
        return self._spawn(request, self._serve_result(request, route, waiting))

    async def _serve_command(self, request: Request) -> None:
        """Carry out a command, in a thread: 409 if its sender must do that itself, and nothing was changed."""
        assert self._carry_out is not None
        workspace = self.spaces.get(MAIN).workspace
        try:
            done = await asyncio.to_thread(self._carry_out, workspace, self.spaces.folder, request.body)
        except CallerGoneError:
            raise errors.Timeout("this command was begun too late") from None
        status = private_socket.DECLINED if done is None else 200
        self.reply(request, Response(status, done or b"", _BINARY))

    async def _serve_result(self, request: Request, route: Route, work: Awaitable[Any]) -> None:
        self.finish(request, route, await work)

    async def _serve_found(self, request: Request, route: Route, work: Awaitable[Any]) -> None:
        with hearing_existed() as existed:
            result = await work
        self.finish(request, msgspec.structs.replace(route, status=200) if existed else route, result)

    async def _serve_extra(self, request: Request, place: Place, space: ServedWorkspace) -> None:
        assert request.token is not None
        extra = pages.find(place.rest, request.method, request.token)
        assert extra is not None
        self.reply(request, await extra(self, space, request.token))

    async def _serve_stream(
        self,
        request: Request,
        route: Route,
        call: Callable[..., Any],
        given: dict[str, Any],
        space: ServedWorkspace,
        after: Awaitable[None] | None = None,
    ) -> None:
        assert request.token is not None
        if after is not None:
            await after
        client = Client(request.token, self.sessions, self.stopping, request)
        with self.watchers.place(request.token, client):
            if not await client.serve(_stream(route, call, given, space, client)):
                self.watchers.cut += 1
                request.abort()
        self._ended(request, 200)

    async def _serve_mcp(self, request: Request, space: ServedWorkspace) -> None:
        assert request.token is not None
        headers = request.headers
        access = self._access_of(request.token, headers.get(calls.ACTOR), headers.get(calls.DERIVED))
        request.actor = access.actor
        sender = _Asgi(request)
        await self.mcp.respond(space, access, sender.scope, request.body, sender.receive, sender.send)
        self._ended(request, sender.status)

    def _spawn(self, request: Request, work: Coroutine[Any, Any, None]) -> None:
        """Answer a request by a task."""
        request.waits = True
        task = self.loop.create_task(self._guard(request, work))
        self.running.add(task)
        task.add_done_callback(self.running.discard)

    async def _guard(self, request: Request, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except errors.HoldfastError as error:
            self.refuse(request, error)
        except Exception:
            self._fail(request)
        finally:
            if not request.answered:  # cancelled
                request.abort()

    # --- responses ---------------------------------------------------------------------------------------------------

    def finish(self, request: Request, route: Route, result: Any) -> None:
        """Answer with the result of an operation."""
        try:
            response = calls.result_response(route, result, request.headers)
        except errors.HoldfastError as error:
            return self.refuse(request, error)
        except Exception:
            return self._fail(request)
        self.reply(request, response)

    def refuse(self, request: Request, error: errors.HoldfastError) -> None:
        """Answer with an error."""
        if isinstance(error, errors.Closed):  # most hints are about opening it again
            error = auth.closed_here(error)
        if request.started:  # the client sees that its response breaks off
            request.abort()
            return self._ended(request, error.status)
        self.reply(request, calls.error_response(error, request.headers.get(b"prefer", b"")))

    def _fail(self, request: Request) -> None:
        """Answer after an exception that nobody expected."""
        _log.exception("%s %s failed", request.method, unquote(request.path.decode()))
        self.refuse(request, errors.HoldfastError("internal error; see the server's log"))

    def reply(self, request: Request, response: Response) -> None:
        """Send a response, compressed if that is worth it."""
        status, body, lines = response.status, response.body, response.lines
        if len(body) > _COMPRESSED and not response.packed and b"gzip" in request.headers.get(b"accept-encoding", b""):
            body = gzip.compress(body, 1, mtime=0)
            lines = lines.replace(b'\netag: "', b'\netag: W/"') + b"content-encoding: gzip\r\nvary: accept-encoding\r\n"
        if status not in (204, 304):
            lines = b"%bcontent-length: %d\r\n" % (lines, len(body))
        request.reply(status, lines, b"" if request.method == "HEAD" else body)
        self._ended(request, status)

    def _ended(self, request: Request, status: int) -> None:
        seconds = self.metrics.ended(request.method, status, request.began)
        if self.access is not None:
            self.access.add(request, status, seconds)


class _Work:
    """A call that waits for nothing but its own transaction: its coroutine, stepped by what it awaits."""

    __slots__ = ("_app", "_coroutine", "_future", "_request", "_route")

    def __init__(self, app: App, request: Request, route: Route, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._app = app
        self._request = request
        self._route = route
        self._coroutine = coroutine
        self._future: asyncio.Future[Any] | None = None

    def step(self, _: object = None) -> None:
        """Run until it awaits something that is not done; answer when it is finished."""
        app = self._app
        try:
            self._future = future = self._coroutine.send(None)
        except StopIteration as stop:
            app.running.discard(self)
            app.finish(self._request, self._route, stop.value)
        except errors.HoldfastError as error:
            app.running.discard(self)
            app.refuse(self._request, error)
        except asyncio.CancelledError:
            app.running.discard(self)
            self._request.abort()
        except Exception:
            app.running.discard(self)
            app._fail(self._request)
        else:
            app.running.add(self)
            if future is None:  # it lets others go first
                app.loop.call_soon(self.step)
                return
            future._asyncio_future_blocking = False  # what a task tells a future that it has seen it
            future.add_done_callback(self.step)

    def cancel(self) -> None:
        """Give up what it waits for."""
        if self._future is not None:
            self._future.cancel()


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


def _workspace_in(segments: list[str]) -> str | None:
    """The name of the workspace that a path addresses, MAIN for the server's own; None if it addresses none."""
    if segments[0] == PREFIX or segments == [mcp.PATH]:
        return MAIN
    return segments[0] if len(segments) > 1 and (segments[1] == PREFIX or segments[1:] == [mcp.PATH]) else None


class _Asgi:
    """A request as ASGI, which the SDK of MCP understands."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._lines = b""
        self.status = 200
        self.scope: MutableMapping[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": unquote(request.path.decode()),
            "raw_path": request.path,
            "query_string": request.query,
            "root_path": "",
            "headers": list(request.headers.items()),
            "client": None,
            "server": None,
        }

    async def receive(self) -> MutableMapping[str, Any]:
        """The end of the connection: the body is handed over otherwise."""
        await self._request.left()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """A part of the response: one that has no other is sent whole."""
        request = self._request
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = {name.lower(): value for name, value in message["headers"]}
            own = [header for header in headers.items() if header[0] not in (*SECURITY_HEADERS, b"content-length")]
            self._lines = calls.header_lines(*own)
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        if request.started:
            await request.write(body, more)
        elif more:
            request.start(self.status, self._lines)
            await request.write(body)
        else:
            length = b"" if self.status == 204 else b"content-length: %d\r\n" % len(body)
            request.reply(self.status, self._lines + length, body)
