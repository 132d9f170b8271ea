"""What a server offers beside operations: readiness, metrics, the OpenAPI document, `whoami`, the page under `/ui/`.

The files of the page need no token and hold nothing of a workspace, and neither do `POST /ui/session`, which exchanges
a ticket or a token for a session, and the redirect of a browser from `/`. With a token or a session: `GET /ui/session`
says what it may see, `DELETE /ui/session` ends it, `POST /ui/ticket` gives a ticket for a link.
"""

from __future__ import annotations

import asyncio
import html
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast import errors
from holdfast.errors import MethodNotAllowed, NoRoute
from holdfast.faces import web
from holdfast.faces.http import auth
from holdfast.faces.http.auth import EVERY, MAIN, TICKET_SECONDS, Headers, Token, lost_store
from holdfast.faces.http.calls import Response, header_lines, json_response
from holdfast.faces.http.request import Request
from holdfast.faces.http.sessions import TICKET_TIME, SessionToken
from holdfast.faces.http.workspaces import ServedWorkspace
from holdfast.route import Role
from holdfast.workspace.context import allows

if TYPE_CHECKING:
    from holdfast.faces.http.app import App


Extra = Callable[["App", ServedWorkspace, Token], Awaitable[Response]]


async def _revision_response(_: App, space: ServedWorkspace, token: Token) -> Response:
    return json_response({"revision": space.workspace.revision, "clock_ahead": space.workspace.clock_ahead})


async def _check(_: App, space: ServedWorkspace, token: Token) -> Response:
    return json_response(await asyncio.to_thread(space.workspace.check))


async def _whoami(_: App, space: ServedWorkspace, token: Token) -> Response:
    return json_response({"token": token.id, "role": token.role, "actor": token.actor, "workspace": space.name})


async def _ticket(app: App, space: ServedWorkspace, token: Token) -> Response:
    return json_response({"ticket": app.tickets.give(token, space.name), "expires_in": TICKET_SECONDS}, status=201)


EXTRAS: Final[dict[str, tuple[str, Role, str, Extra]]] = {
    "revision": ("GET", "read", "The revision of the newest transaction.", _revision_response),
    "check": ("GET", "admin", "Compare the state with the log.", _check),
    "whoami": ("GET", "read", "The rights of this token.", _whoami),
    "ticket": ("POST", "read", "A ticket for one watch, to be used in an address within 30 seconds.", _ticket),
}


def is_extra(segments: list[str]) -> bool:
    """Whether there is an extra at this address."""
    return len(segments) == 2 and segments[1] in EXTRAS


def find(segments: list[str], method: str, token: Token) -> Extra | None:
    """The extra at this address, if there is one. Raises Forbidden unless the token allows it."""
    if not is_extra(segments):
        return None
    wanted, role, _, extra = EXTRAS[segments[1]]
    if method != wanted and not (method == "HEAD" and wanted == "GET"):
        raise MethodNotAllowed(f"{method} is not allowed here, use {wanted}", allowed=wanted)
    if not allows(token.role, role):
        raise errors.Forbidden(f"{segments[1]} needs a token with the role {role}, this one has {token.role}")
    return extra


def respond(app: App, segments: list[str], method: str, token: Token) -> Response:
    """The response to a request that addresses no workspace."""
    if method not in ("GET", "HEAD"):
        raise MethodNotAllowed(f"{method} is not allowed here, use GET", allowed="GET, HEAD")
    match segments:
        case ["readyz"]:
            return _ready(app)
        case ["metrics"]:
            if token.role != "admin" or token.workspace != EVERY:
                raise errors.Forbidden("metrics need a token with the role admin, for all workspaces")
            return _metrics(app)
        case ["openapi.json"]:
            from holdfast.faces.http.openapi import document

            return Response(200, document())
        case [""] | ["docs"]:
            return _docs()
    raise NoRoute(f"there is nothing at /{'/'.join(segments)[:200]}")


def _ready(app: App) -> Response:
    """Whether requests can be served: not while the server stops, nor if the store cannot be read."""
    if app.stopping.is_set():
        raise errors.Unavailable("the server is stopping")
    workspace = app.spaces.get(MAIN).workspace
    if workspace.is_lost:
        raise lost_store("the store of this server was removed, moved or replaced while it ran")
    workspace.revision  # noqa: B018  # raises unless it can be read
    return json_response({"status": "ready"})


def _metrics(app: App) -> Response:
    revisions = {space.name: _revision(space) for space in app.spaces.open()}
    states = {space.name: space.workspace.node_state(ask=False) for space in app.spaces.open()}
    nodes = {name: state for name, state in states.items() if state is not None}
    text = "\n".join(app.metrics.lines(revisions, nodes, app.watchers, app.upkeep)) + "\n"
    return Response(200, text.encode(), header_lines((b"content-type", b"text/plain; version=0.0.4; charset=utf-8")))


def _revision(space: ServedWorkspace) -> int | None:
    """The revision of a workspace; None if it cannot be read, so that the others are still reported."""
    try:
        return None if space.workspace.is_lost else space.workspace.revision
    except errors.HoldfastError:
        return None


def _docs() -> Response:
    """Every operation on one page, without scripts and external resources."""
    from holdfast.faces.http.openapi import document

    described = msgspec.json.decode(document())
    rows = [
        _row(method, path, operation)
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    ]
    page = _PAGE.replace("ROWS", "\n".join(rows)).replace("VERSION", html.escape(described["info"]["version"]))
    lines = header_lines(
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'"),
    )
    return Response(200, page.encode(), lines)


def _row(method: str, path: str, operation: dict[str, Any]) -> str:
    cells = (f"<code>{method.upper()}</code>", f"<code>{html.escape(path)}</code>", html.escape(operation["summary"]))
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in (*cells, operation['x-role']))}</tr>"


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Holdfast</title>
<style>body{font:15px/1.5 system-ui;margin:2rem auto;max-width:70rem;padding:0 1rem}td{padding:.2rem .8rem .2rem 0;
vertical-align:top}code{font:13px ui-monospace,monospace}</style></head>
<body><h1>Holdfast VERSION</h1>
<p>Every operation of this server. The whole description, for programs, is <a href="/openapi.json">openapi.json</a>.
Arguments travel in the path, the query of a GET or DELETE, and the JSON body of the others; an error is a JSON object
with <code>error</code>, <code>code</code>, <code>hint</code> and <code>details</code>.</p>
<table><thead><tr><th>method</th><th>path</th><th>what it does</th><th>role</th></tr></thead><tbody>
ROWS
</tbody></table></body></html>
"""


# --- the page --------------------------------------------------------------------------------------------------------

SIGN_IN_BODY: Final = 4096  # bytes, from somebody who is not known yet
_SESSION: Final = [web.PATH, "session"]
_TICKET: Final = [web.PATH, "ticket"]


class _Credentials(msgspec.Struct, forbid_unknown_fields=True):
    """What a browser signs in with: one of the two."""

    ticket: str | None = None
    token: str | None = None


def is_public(request: Request, segments: list[str]) -> bool:
    """Whether anybody may have what is at this address."""
    if request.method not in ("GET", "HEAD"):
        return False
    if segments == [""]:
        return b"text/html" in request.headers.get(b"accept", b"") and b"authorization" not in request.headers
    return segments[0] == web.PATH and segments not in (_SESSION, _TICKET)


def public(request: Request, segments: list[str]) -> Response:
    """A file of the page, or a redirect to it."""
    if segments in ([""], [web.PATH]):
        return Response(302, b"", header_lines((b"location", f"/{web.PATH}/".encode())))
    asset = web.find(segments[1:], wants_page=b"text/html" in request.headers.get(b"accept", b""))
    if asset is None:
        raise NoRoute(f"there is nothing at /{'/'.join(segments)[:200]}")
    lines = b"".join(b"%b: %b\r\n" % header for header in asset.headers) + b"vary: accept-encoding\r\n"
    if b"gzip" in request.headers.get(b"accept-encoding", b""):
        return Response(200, asset.packed, lines + b"content-encoding: gzip\r\n", packed=True)
    return Response(200, asset.content, lines, packed=True)


def is_sign_in(request: Request, segments: list[str]) -> bool:
    """Whether a request wants a session."""
    return request.method == "POST" and segments == _SESSION


def check_sign_in(headers: Headers) -> None:
    """Raise unless the body of somebody who is not known yet is short JSON."""
    length = headers.get(b"content-length", b"")
    if not length.isdigit() or int(length) > SIGN_IN_BODY:
        raise errors.TooLarge(f"the body must have a Content-Length of at most {SIGN_IN_BODY}", limit=SIGN_IN_BODY)
    auth.check_json(headers)


def sign_in(app: App, request: Request) -> Response:
    """Exchange a ticket or a token for a session."""
    try:
        given = msgspec.json.decode(request.body, type=_Credentials)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.Invalid('the body must be {"ticket": ...} or {"token": ...}') from error
    if (given.ticket is None) == (given.token is None):
        raise errors.Invalid("give either a ticket or a token")
    if given.ticket is not None:
        token, secret = app.sessions.redeem(given.ticket)
    else:
        token, secret = app.sessions.begin(app.tokens.find(given.token or ""))
    return json_response({**_rights(app, token), "secret": secret}, status=201)


def own(app: App, segments: list[str], method: str, token: Token) -> Response | None:
    """The response to a request about the sender's own session; None if it is about something else."""
    if segments == _TICKET and method == "POST":
        parent = next((each for each in app.tokens.all() if each.id == token.id), None)
        parent = parent or app.sessions.token_for_link()  # the owner has none
        ticket = app.sessions.give_ticket(parent)
        return json_response({"ticket": ticket, "expires_in": int(TICKET_TIME.total_seconds())}, status=201)
    if segments == _SESSION and method in ("GET", "HEAD"):
        return json_response(_rights(app, token))
    if segments == _SESSION and method == "DELETE":
        if not isinstance(token, SessionToken):
            raise errors.Invalid("this is a token, not a session", hint="holdfast token revoke ends a token")
        app.sessions.revoke(token.session)
        return Response(204, b"", header_lines())
    if segments[0] == web.PATH:
        allowed = {tuple(_SESSION): "GET, POST, DELETE", tuple(_TICKET): "POST"}.get(tuple(segments), "GET")
        raise MethodNotAllowed(f"{method} is not allowed here, use {allowed}", allowed=allowed)
    return None


def _rights(app: App, token: Token) -> dict[str, Any]:
    """What a session may see, and until when."""
    return {
        "role": token.role,
        "actor": token.actor,
        "workspaces": app.spaces.names() if token.workspace == EVERY else [token.workspace],
        "expires_at": token.expires_at if isinstance(token, SessionToken) else None,
    }
