"""One request as one call of an operation: its route, its context, its arguments and its response.

A path is split before it is decoded, so a name may contain a slash (`%2F`). A fixed segment wins over a named one:
`/api/tasks/ready` is not a task. HEAD is GET. A stream may share its address with another operation: clients that
accept `text/event-stream` get the stream.

Headers: `X-Agent-ID` (the actor; `X-Agent-Derived` if nobody chose it), `Idempotency-Key`, `X-Fence` (a token and its
lock, `42 deploy`, `42 run/cell`, `42 trail/name` or `42 /name`, names percent-encoded), `X-At-Least` (a revision, or
`latest`), `If-Match` (the expected version), `If-None-Match` (the answer of a read that the client has: 304 if it is
still the same). The `ETag` of a write is the version of its result; that of a read also covers what was answered: the
answer of a task has fields, such as the progress of its children, that change without its version.

`GET /api/events?after=CURSOR&wait=20` returns at once if there are events after the cursor, otherwise with the next
ones, or an empty list after the given seconds. The cursor for the next poll is in `X-Next-Cursor`.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import msgspec

from holdfast import errors, wire
from holdfast.errors import MethodNotAllowed, NoRoute
from holdfast.faces.http.auth import DUPLICATE, Headers, Token
from holdfast.hints import HTTP, for_http, in_json
from holdfast.operation import REGISTRY, Operation
from holdfast.route import OBSERVED
from holdfast.schema import result_type
from holdfast.types import DerivedActor, Event, Page
from holdfast.workspace.aio import AsyncWorkspace
from holdfast.workspace.context import LATEST, Access, Context, Fence, PassingKey

# A response is for its client only, and is data, whatever a browser would make of it.
SECURITY_HEADERS: Final = {b"cache-control": b"no-store", b"x-content-type-options": b"nosniff"}


def header_lines(*headers: tuple[bytes, bytes]) -> bytes:
    """Headers as they travel, with those of every response."""
    lines = b"".join([b"%b: %b\r\n" % header for header in (*SECURITY_HEADERS.items(), *headers)])
    if lines.count(b"\r") + lines.count(b"\n") != 2 * (len(SECURITY_HEADERS) + len(headers)):
        raise ValueError("a header contains a line break")
    return lines


JSON: Final = (b"content-type", b"application/json")
JSON_LINES: Final = header_lines(JSON)


class Response(msgspec.Struct, frozen=True):
    """A response that is sent whole; `lines` are its headers without its length. `packed`: do not compress it."""

    status: int
    body: bytes = b""
    lines: bytes = JSON_LINES
    packed: bool = False


def json_response(content: Any, status: int = 200) -> Response:
    """A response with JSON."""
    return Response(status, wire.json_bytes(content))


def error_response(error: errors.HoldfastError, prefer: bytes = b"") -> Response:
    """A response with an error, in the words of JSON and addresses, unless the client prefers those of Python."""
    headers = [JSON]
    if isinstance(error, errors.Unauthorized):
        headers.append((b"www-authenticate", b'Bearer realm="holdfast"'))
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", str(error.details.get("allowed", "")).encode()))
    if error.retryable:
        headers.append((b"retry-after", b"1"))
    python = wire.PYTHON_HINTS.encode() in prefer
    message, hint = (error.message, error.hint) if python else (in_json(error.message, HTTP), for_http(error.hint))
    return Response(error.status, wire.failure(error, message, hint), header_lines(*headers))


PREFIX: Final = "api"


class Route(msgspec.Struct, frozen=True):
    """An operation and how it is called. `polled`: it lists what a stream at the same address delivers."""

    op: Operation[..., Any]
    method: str
    path: str
    names: tuple[str, ...]  # of the arguments in the path
    polled: bool
    status: int  # of a success


class _Node:
    """The routes at one place of the tree of paths, and the places below it."""

    def __init__(self) -> None:
        self.fixed: dict[str, _Node] = {}
        self.named: _Node | None = None
        self.routes: dict[str, Route] = {}
        self.streams: dict[str, Route] = {}


class Routes:
    """Every operation that has a path."""

    def __init__(self) -> None:
        self._root = _Node()
        self.all: list[Route] = []
        served = [op for op in REGISTRY.values() if op.route.http is not None]
        streams = {op.route.http: op for op in served if op.kind == "stream"}
        for op in served:
            for http in filter(None, (op.route.http, *op.route.also)):
                self._add(op, http, _lists(op, streams.get(http)))

    def _add(self, op: Operation[..., Any], http: str, polled: bool) -> None:
        method, _, path = http.partition(" ")
        node, names = self._root, []
        for segment in path.strip("/").split("/"):
            if segment.startswith("{"):
                names.append(segment.strip("{}"))
                node.named = node.named or _Node()
                node = node.named
            else:
                node = node.fixed.setdefault(segment, _Node())
        route = Route(op, method, path, tuple(names), polled, 201 if op.route.creates else 200)
        known = node.streams if op.kind == "stream" else node.routes
        if method in known:
            raise ValueError(f"{http} is both {known[method].op.name} and {op.name}")
        known[method] = route
        self.all.append(route)

    def find(self, method: str, segments: list[str], streaming: bool = False) -> tuple[Route, list[str]]:
        """The route of a request and the values of its named segments, not decoded; NoRoute if there is none.

        `streaming` prefers a stream, if there is one.
        """
        found = self._walk(segments)
        if found is None:
            raise NoRoute(f"there is nothing at /{'/'.join(segments)[:200]}")
        node, values = found
        route = node.streams.get(method) if streaming else None
        route = route or node.routes.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = ", ".join(sorted(node.routes))
            raise MethodNotAllowed(
                f"{method} is not allowed here, use {allowed}", hint=self._meant(method, segments), allowed=allowed
            )
        return route, values

    def _meant(self, method: str, segments: list[str]) -> str:
        """What to do about an address that has no such method: its last part may have been read as an id."""
        from difflib import get_close_matches  # only who made a mistake needs it

        node: _Node | None = self._root
        for segment in segments[:-1]:
            node = node and (node.fixed.get(segment) or node.named)
        known = [name for name, below in node.fixed.items() if method in below.routes] if node else []
        near = get_close_matches(segments[-1], known, n=1)
        where = "/".join([*segments[:-1], *near])
        meant = f"did you mean {method} /{where}?" if near else "GET /openapi.json lists every address"
        is_id = node is not None and node.named is not None and segments[-1] not in node.fixed
        return f"{segments[-1]!r} was read as an id; {meant}" if is_id else meant

    def is_stream(self, method: str, segments: list[str]) -> bool:
        """Whether there is a stream at this address."""
        found = self._walk(segments)
        return found is not None and method in found[0].streams

    def _walk(self, segments: list[str]) -> tuple[_Node, list[str]] | None:
        places: list[tuple[_Node, int, list[str]]] = [(self._root, 0, [])]
        while places:
            node, at, values = places.pop()
            if at == len(segments):
                if node.routes:
                    return node, values
                continue
            if node.named is not None:
                places.append((node.named, at + 1, [*values, segments[at]]))
            if segments[at] in node.fixed:  # looked at first
                places.append((node.fixed[segments[at]], at + 1, values))
        return None


def _lists(op: Operation[..., Any], stream: Operation[..., Any] | None) -> bool:
    return stream is not None and result_type(op.name) == list[result_type(stream.name)]  # type: ignore[misc]


def path_arguments(route: Route, values: list[str]) -> dict[str, str]:
    """The arguments that stand in the path."""
    return {name: decode(value) for name, value in zip(route.names, values, strict=True)}


def with_version(found: dict[str, str], route: Route, headers: Headers) -> dict[str, str]:
    """The arguments in the path, and the version in `If-Match`."""
    return found if headers.keys().isdisjoint(_MATCHING) else found | _expected(route.op, headers)


def decode(segment: str) -> str:
    """A segment's text; InvalidName if it is not UTF-8, or not percent-encoded."""
    wire.check_escapes(segment.encode("latin-1"), "the path", errors.InvalidName)
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError as error:
        raise errors.InvalidName(f"a part of the path is not UTF-8: {segment[:80]!r}") from error


_KEY: Final = b"idempotency-key"
_AT_LEAST: Final = b"x-at-least"
_CONTEXT: Final = (b"x-fence", _KEY, _AT_LEAST)
_MATCHING: Final = (b"if-match", b"if-none-match")
_EXPECTED: Final = ("expected", "sequence")  # arguments that take a version


ACTOR: Final = b"x-agent-id"
DERIVED: Final = b"x-agent-derived"


def access_of(token: Token, actor_header: bytes | None, derived: bytes | None) -> Access:
    """The rights of a request. The actor is the one of a bound token, the one a header names, or a derived one."""
    bound = token.actor
    named = _text(ACTOR, actor_header, errors.Invalid if bound is None else errors.Forbidden)
    if bound is not None and named not in (None, bound):
        hint = f"act as {bound}: {errors.LEAVE_OUT_ACTOR}; or use a token that is bound to no actor"
        raise errors.Forbidden(f"this token acts as {bound}, not as {named}", hint=hint)
    actor = bound if bound is not None else named
    if actor is None:
        actor = DerivedActor(_text(DERIVED, derived) or f"token-{token.id}")
    return Access(token.id, token.role, actor, bound is not None)


def caller_of(headers: Headers) -> AbstractContextManager[None]:
    """A block that serves a request: its calls belong to the trace that it names, if somebody observes."""
    if OBSERVED.by is None:
        return nullcontext()
    return OBSERVED.by.incoming({name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()})


def context_of(actor: str, headers: Headers) -> Context:
    """The context of a call: what its headers say beside its arguments."""
    if headers.keys().isdisjoint(_CONTEXT):
        return Context(actor)
    key = _text(_KEY, headers.get(_KEY))
    if key is not None and wire.PASSING_KEY.encode() in headers.get(b"prefer", b""):
        key = PassingKey(key)
    return Context(actor, _fence(headers), key, _at_least(headers))


def _fence(headers: Headers) -> Fence | None:
    given = headers.get(b"x-fence")
    if given is None:
        return None
    _check_once(b"x-fence", given)
    found = re.fullmatch(rb"(\d{1,19}) (?=[^ ])([^ /]*)(?:/([^ /]+))?", given)
    if found is None:
        message = "X-Fence must be a token and its lock: a lock's name, run/cell, the id of a lock stash, or trail/name"
        raise errors.Invalid(message, hint="42 deploy, 42 run/cell, 42 /name for a global lock stash")
    token, name, cell = int(found[1]), _decoded(b"x-fence", found[2]), found[3]
    return (name if cell is None else (name, _decoded(b"x-fence", cell))), token


def _check_once(name: bytes, given: bytes, error: type[errors.HoldfastError] = errors.Invalid) -> None:
    if DUPLICATE in given:
        raise error(f"duplicate header {name.decode()}", hint="send it once")


def _text(name: bytes, given: bytes | None, error: type[errors.HoldfastError] = errors.Invalid) -> str | None:
    if given is None:
        return None
    _check_once(name, given, error)
    return _decoded(name, given)


def _decoded(name: bytes, given: bytes) -> str:
    """The text of a percent-encoded header, or of a part of one; Invalid if it is none, or not UTF-8."""
    hint = "percent-encode the bytes of its UTF-8 form"
    if not given.isascii():
        raise errors.Invalid(f"the header {name.decode()} is not ASCII", hint=hint)
    wire.check_escapes(given, f"the header {name.decode()}")
    try:
        return (unquote_to_bytes(given) if b"%" in given else given).decode()
    except UnicodeDecodeError as error:
        raise errors.Invalid(f"the header {name.decode()} is not UTF-8", hint=hint) from error


def _at_least(headers: Headers) -> Any:
    given = _text(_AT_LEAST, headers.get(_AT_LEAST))
    if given is None or given == LATEST:
        return given
    if not given.isascii() or not given.isdigit() or len(given) > 18:
        raise errors.Invalid(f"X-At-Least must be a revision, or {LATEST}")
    return int(given)


def _expected(op: Operation[..., Any], headers: Headers) -> dict[str, str]:
    """`If-Match: "3"` as the argument `expected`, or `sequence`."""
    if b"if-none-match" in headers and op.writes:
        raise errors.Invalid("writes do not take If-None-Match", hint="cells.init writes only if the cell is not there")
    match = headers.get(b"if-match")
    if match is None:
        return {}
    names = [name for name in _EXPECTED if name in wire.plan_of(op.name).hints and op.writes]
    if not names:
        hint = "operations with the argument `expected` do, such as cells.cas"
        raise errors.Invalid(f"{op.name} does not take If-Match", hint=hint)
    found = re.fullmatch(rb'(?:W/)?"(\d{1,18})(?:-[0-9a-f]{16})?"', match)
    if found is None:
        raise errors.Invalid('If-Match must be one version in quotes, such as "3", or an ETag')
    return {names[0]: found[1].decode()}


_NO_CONTENT: Final = Response(204, b"", header_lines())


def result_response(route: Route, result: Any, headers: Headers) -> Response:
    """The result of an operation: 201 if it created something, 204 for a delete without `Prefer`, 304 if known."""
    answers = route.method != "DELETE" or route.op.route.answers
    if not answers and b"return=representation" not in headers.get(b"prefer", b""):
        return _NO_CONTENT
    lines, version = JSON_LINES, None
    if isinstance(result, Page):
        more = (
            (b"x-next-cursor", result.cursor),
            (b"x-total-count", result.total),
            (b"x-compacted", result.compacted),
        )
        lines = header_lines(JSON, *((name, str(value).encode()) for name, value in more if value is not None))
    elif isinstance(result, msgspec.Struct):
        version = getattr(result, "sequence", getattr(result, "version", None))
    body = wire.answer(route.op, result)
    prefix = b"%d" % version if type(version) is int else b""
    if route.method == "GET":
        digest = hashlib.blake2b(body + lines, digest_size=8).hexdigest().encode()
        prefix = b"%b-%b" % (prefix, digest) if prefix else digest
        known = headers.get(b"if-none-match")
        if known is not None and _is_known(known, prefix):
            return Response(304, b"", b'%betag: "%b"\r\n' % (lines, prefix))
    if prefix:
        lines = b'%betag: "%b"\r\n' % (lines, prefix)
    return Response(route.status, body, lines)


def _is_known(given: bytes, tag: bytes) -> bool:
    """Whether `If-None-Match` names an answer; a tag that compression weakened is as good."""
    return given.strip() == b"*" or tag in re.findall(rb'"([^"]*)"', given)


WAIT: Final = "wait"
MAX_WAIT: Final = 60  # seconds


def check_wait(value: Any) -> float:
    """The seconds that a poll may wait."""
    try:
        wait = float(value)
    except (TypeError, ValueError) as error:
        raise errors.Invalid(f"wait must be seconds, not {str(value)[:80]!r}") from error
    if not 0 <= wait <= MAX_WAIT:
        raise errors.Invalid(f"wait must be 0 to {MAX_WAIT} seconds", hint="poll again with the cursor you got")
    return wait


async def poll(handle: AsyncWorkspace, given: dict[str, Any], wait: float) -> Page[Event]:
    """The events of a list, as soon as there is one; the cursor of the page is where the next poll continues."""
    if given.get("after") is None:
        given["after"] = await handle.revision()
    watching = {name: given[name] for name in ("kinds", "id", "after") if name in given}
    page: Page[Event]
    async with handle.watch(**watching, timeout=wait) as watch:
        found = await handle.events.list(**given)
        while not found and await anext(watch, None) is not None:
            found = await handle.events.list(**given)
        page = Page(found)
        page.cursor = found[-1].cursor if found else watch.bookmark
        return page
