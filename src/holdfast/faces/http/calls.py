"""What belongs to a call and not to its arguments: who calls, in which role, under which key and fence; and its answer.

Headers: `X-Agent-ID` (the actor; `X-Agent-Derived` if nobody chose it), `Idempotency-Key`, `X-Fence` (a token and what
it is of, `42 deploy`, `42 run/cell`, `42 trail/name` or `42 /name`, names percent-encoded), `X-At-Least` (a revision,
or `latest`), `If-Match` (the version expected).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import unquote

from holdfast import errors
from holdfast.aio import AsyncWorkspace
from holdfast.context import LATEST, Context, Fence
from holdfast.faces.http import codec
from holdfast.faces.http.answers import JSON, Answer
from holdfast.faces.http.gate import TWICE, Headers
from holdfast.faces.http.routes import Route
from holdfast.faces.http.tokens import Role, Token
from holdfast.kernel.tx import DerivedActor
from holdfast.ops import Operation, find_operation
from holdfast.types.base import Page
from holdfast.types.txn import Op
from holdfast.workspace import Workspace

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
    names = [name for name in _EXPECTED if name in codec.plan_of(op.name).body.__struct_fields__ and op.writes]
    if not names:
        raise errors.Invalid(
            f"{op.name} knows no If-Match", hint="it goes with operations that have `expected`, such as cells.cas"
        )
    found = re.fullmatch(rb'"(\d{1,18})"', match)
    if found is None:
        raise errors.Invalid('If-Match is one version in quotes, such as "3"')
    return {names[0]: found[1].decode()}


def bound(handle: AsyncWorkspace | Workspace, op: Operation[..., Any]) -> Callable[..., Any]:
    """The operation as a call of a handle."""
    domain, _, method = op.name.rpartition(".")
    call: Callable[..., Any] = getattr(getattr(handle, domain) if domain else handle, method)
    return call


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
    return Answer(status, codec.answer(route.op, result), tuple(more))
