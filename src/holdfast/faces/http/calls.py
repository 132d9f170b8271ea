"""One request as one call of an operation: its route, its context, its arguments and its answer.

A path is split before it is decoded, so a name may hold a slash (`%2F`). A fixed segment goes before a named one:
`/api/tasks/ready` is no task. HEAD is GET. A stream may share an address: it is for those who accept events.

Headers: `X-Agent-ID` (the actor; `X-Agent-Derived` if nobody chose it), `Idempotency-Key`, `X-Fence` (a token and what
it is of, `42 deploy`, `42 run/cell`, `42 trail/name` or `42 /name`, names percent-encoded), `X-At-Least` (a revision,
or `latest`), `If-Match` (the version expected).

`GET /api/events?after=CURSOR&wait=20` answers at once if something came behind the cursor, else with what comes first,
and with an empty list when the time is over. The cursor of the next poll is in `X-Next-Cursor`.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import unquote, unquote_to_bytes

import msgspec

from holdfast import errors, wire
from holdfast.errors import MethodNotAllowed, NoRoute
from holdfast.faces.http.auth import TWICE, Headers, Role, Token
from holdfast.kernel.tx import DerivedActor
from holdfast.kernel.validate import check_seconds
from holdfast.operation import REGISTRY, Operation, find_operation
from holdfast.types import Event, Op, Page
from holdfast.workspace.aio import AsyncWorkspace
from holdfast.workspace.context import LATEST, Context, Fence

Header = tuple[bytes, bytes]
JSON: Final[Header] = (b"content-type", b"application/json")
# An answer belongs to whom it was given, and is data, whatever a browser would make of it.
CAREFUL: Final[tuple[Header, ...]] = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)


class Answer:
    """An answer that is sent whole."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, body: bytes = b"", headers: tuple[Header, ...] = (JSON,)) -> None:
        self.status = status
        self.body = body
        self.headers = headers


def told(content: Any, status: int = 200) -> Answer:
    """Something as JSON."""
    return Answer(status, msgspec.json.encode(content))


def refused(error: errors.HoldfastError) -> Answer:
    """An error as an answer."""
    headers = [JSON]
    if isinstance(error, errors.Unauthorized):
        headers.append((b"www-authenticate", b'Bearer realm="holdfast"'))
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", str(error.details.get("allowed", "")).encode()))
    if error.retryable:
        headers.append((b"retry-after", b"1"))
    return Answer(error.status, wire.failure(error), tuple(headers))


PREFIX: Final = "api"


class Route(msgspec.Struct, frozen=True):
    """An operation and how it is called."""

    op: Operation[..., Any]
    method: str
    path: str
    names: tuple[str, ...]  # of the arguments in the path


class _Node:
    """What may follow a part of a path."""

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
        for op in REGISTRY.values():
            if op.route.http is not None:
                for http in (op.route.http, *op.route.also):
                    self._add(op, http)

    def _add(self, op: Operation[..., Any], http: str) -> None:
        method, _, path = http.partition(" ")
        node, names = self._root, []
        for segment in path.strip("/").split("/"):
            if segment.startswith("{"):
                names.append(segment.strip("{}"))
                node.named = node.named or _Node()
                node = node.named
            else:
                node = node.fixed.setdefault(segment, _Node())
        route = Route(op, method, path, tuple(names))
        known = node.streams if op.kind == "stream" else node.routes
        if method in known:
            raise ValueError(f"{http} is both {known[method].op.name} and {op.name}")
        known[method] = route
        self.all.append(route)

    def find(self, method: str, segments: list[str], streaming: bool = False) -> tuple[Route, list[str]]:
        """The route of a request and the values of its named segments, not decoded; NoRoute if there is none.

        `streaming`: a stream is meant, if there is one.
        """
        found = _walk(self._root, segments, 0, [])
        if found is None:
            raise NoRoute(f"there is nothing at /{'/'.join(segments)[:200]}")
        node, values = found
        route = node.streams.get(method) if streaming else None
        route = route or node.routes.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = ", ".join(sorted(node.routes))
            raise MethodNotAllowed(f"{method} is not possible here; {allowed} is", allowed=allowed)
        return route, values

    def is_stream(self, method: str, segments: list[str]) -> bool:
        """Whether there is a stream at this address."""
        found = _walk(self._root, segments, 0, [])
        return found is not None and method in found[0].streams


def _walk(node: _Node, segments: list[str], at: int, values: list[str]) -> tuple[_Node, list[str]] | None:
    if at == len(segments):
        return (node, values) if node.routes else None
    fixed = node.fixed.get(segments[at])
    if fixed is not None:
        found = _walk(fixed, segments, at + 1, values)
        if found is not None:
            return found
    if node.named is None:
        return None
    return _walk(node.named, segments, at + 1, [*values, segments[at]])


def decode(segment: str) -> str:
    """A segment's text; Invalid if it is no UTF-8."""
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError as error:
        raise errors.InvalidName(f"the path has a part that is not UTF-8: {segment[:80]!r}") from error


# Beyond what agents do with each other's work: these change what everybody has.
ADMIN: Final = frozenset(
    {"agents.forget", "clock.reset", "events.compact", "tasks.purge", "tasks.sweep_retention", "routes.reload"}
)
PRIVATE: Final = frozenset(
    {"mail.inbox", "mail.search", "mail.sent", "mail.unread"}
)  # reads that are made for one actor
MAINTAINER: Final = "maintainer"  # the role of an agent that may end what others began
CREATING: Final = ("create", "send", "reply", "start")  # methods that make something
_ACTING: Final = ("agent", "holder", "sender")  # arguments that say who acts
_EXPECTED: Final = ("expected", "sequence")  # arguments that say which version is meant


def role_of(op: Operation[..., Any]) -> Role:
    """The role that an operation needs."""
    if op.name in ADMIN:
        return "admin"
    return "agent" if op.writes else "read"


def check_role(op: Operation[..., Any], token: Token) -> None:
    """Forbidden unless the token is good for the operation."""
    role = role_of(op)
    if not token.allows(role):
        raise errors.Forbidden(
            f"{op.name} needs a token with the role {role}, this one has {token.role}",
            hint=f"holdfast token create --role {role} makes one",
        )


class Caller:
    """Who calls, as the token and the headers tell."""

    def __init__(self, token: Token, headers: Headers) -> None:
        self.token = token
        self._headers = headers
        self.actor = self._actor()

    def _actor(self) -> str:
        bound = self.token.actor
        if bound is not None and TWICE in self._headers.get(b"x-agent-id", b""):
            raise errors.Forbidden(f"this token acts as {bound}, and the header x-agent-id stands twice")
        named = _text(self._headers, b"x-agent-id")
        if bound is not None and named is not None and named != bound:
            raise errors.Forbidden(f"this token acts as {bound}, not as {named}")
        if bound is None and named is None:
            return DerivedActor(_text(self._headers, b"x-agent-derived") or f"token-{self.token.id}")
        return bound or named or ""

    def context(self) -> Context:
        """The context of the call."""
        return Context(self.actor, self._fence(), _text(self._headers, b"idempotency-key"), _at_least(self._headers))

    def _fence(self) -> Fence | None:
        given = self._headers.get(b"x-fence")
        if given is None:
            return None
        _check_once(b"x-fence", given)
        found = re.fullmatch(rb"(\d{1,19}) (?=[^ ])([^ /]*)(?:/([^ /]+))?", given)
        if found is None:
            raise errors.Invalid(
                "X-Fence is a token and what it is of: a lock's name, run/cell, the id of a lock stash, or trail/name",
                hint="42 deploy, 42 run/cell, 42 /name of a global lock stash",
            )
        token, name, cell = int(found[1]), unquote(found[2].decode("latin-1")), found[3]
        return (name if cell is None else (name, unquote(cell.decode("latin-1")))), token


def _check_once(name: bytes, given: bytes) -> None:
    if TWICE in given:
        raise errors.Invalid(f"the header {name.decode()} stands twice in the request", hint="send it once")


def _text(headers: Headers, name: bytes) -> str | None:
    given = headers.get(name)
    if given is None:
        return None
    _check_once(name, given)
    if not given.isascii():
        raise errors.Invalid(f"{name.decode()} has letters beyond ASCII", hint="percent-encode it as UTF-8")
    return unquote(given.decode())


def _at_least(headers: Headers) -> Any:
    given = _text(headers, b"x-at-least")
    if given is None or given == LATEST:
        return given
    if not given.isascii() or not given.isdigit() or len(given) > 18:
        raise errors.Invalid(f"X-At-Least is a revision, or {LATEST}")
    return int(given)


def check_actor(op: Operation[..., Any], given: dict[str, Any], caller: Caller) -> None:
    """Forbidden if a call under a bound token acts for somebody else, also inside a txn, or one there needs more."""
    if op.name == "txn":
        for step in _steps(given):
            inner = find_operation(step.op)  # txn refuses what is none, in its own words
            if inner is not None:
                check_role(inner, caller.token)
                check_actor(inner, step.args if isinstance(step.args, dict) else {}, caller)
    if op.name == "agents.register" and given.get("role") == MAINTAINER and not caller.token.allows("admin"):
        raise errors.Forbidden(f"a {MAINTAINER} is registered with a token that has the role admin")
    bound = caller.token.actor
    if bound is None or (not op.writes and op.name not in PRIVATE):
        return
    names = (*_ACTING, "name") if op.name == "agents.register" else _ACTING
    for name in names:
        if given.get(name) not in (None, bound):
            raise errors.Forbidden(f"this token acts as {bound}, not as {given[name]}")
    if op.name == "stashes.import_":
        given["holder"] = bound  # whose locks alone its lines may take and give back


def _steps(given: dict[str, Any]) -> list[Op]:
    """The operations of a txn, of either branch; what is none is refused by txn itself."""
    branches = [given.get(name, ()) for name in ("then", "otherwise")]
    return [step for branch in branches if isinstance(branch, list | tuple) for step in branch if isinstance(step, Op)]


def expected(op: Operation[..., Any], headers: Headers) -> dict[str, str]:
    """`If-Match: "3"` is the argument `expected`, or `sequence`, where an operation has one."""
    if b"if-none-match" in headers and op.writes:
        raise errors.Invalid("If-None-Match is not known to writes", hint="cells.init makes only what is not there")
    match = headers.get(b"if-match")
    if match is None:
        return {}
    names = [name for name in _EXPECTED if name in wire.plan_of(op.name).body.__struct_fields__ and op.writes]
    if not names:
        raise errors.Invalid(
            f"{op.name} knows no If-Match", hint="it goes with operations that have `expected`, such as cells.cas"
        )
    found = re.fullmatch(rb'"(\d{1,18})"', match)
    if found is None:
        raise errors.Invalid('If-Match is one version in quotes, such as "3"')
    return {names[0]: found[1].decode()}


def answered(route: Route, result: Any, headers: Headers) -> Answer:
    """The result of an operation as an answer: 201 if it made something, 204 for a delete that is not asked about."""
    more = [JSON]
    version = getattr(result, "sequence", getattr(result, "version", None))
    if type(version) is int:
        more.append((b"etag", f'"{version}"'.encode()))
    if isinstance(result, Page):
        if result.cursor is not None:
            more.append((b"x-next-cursor", str(result.cursor).encode()))
        if result.total is not None:
            more.append((b"x-total-count", str(result.total).encode()))
    if route.method == "DELETE" and b"return=representation" not in headers.get(b"prefer", b""):
        return Answer(204, b"", ())
    status = 201 if route.op.method in CREATING else 200
    return Answer(status, wire.answer(route.op, result), tuple(more))


ARGUMENT: Final = "wait"
MOST: Final = 60  # seconds


def check_wait(value: Any) -> float:
    """How long a poll may wait."""
    try:
        wait = float(value)
    except (TypeError, ValueError) as error:
        raise errors.Invalid(f"wait is seconds, not {str(value)[:80]!r}") from error
    check_seconds(wait, ARGUMENT)
    if wait > MOST:
        raise errors.Invalid(f"a poll waits at most {MOST} seconds", hint="ask again with the cursor you got")
    return wait


async def poll(handle: AsyncWorkspace, given: dict[str, Any], wait: float) -> Page[Event]:
    """The events of a list, as soon as there is one; the cursor of the page is where the next poll goes on."""
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
