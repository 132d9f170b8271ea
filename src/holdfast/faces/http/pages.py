"""What a server offers beside operations: readiness, metrics, the OpenAPI document and its page, `whoami`."""

from __future__ import annotations

import asyncio
import html
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast import errors
from holdfast.errors import MethodNotAllowed, NoRoute
from holdfast.faces.http.auth import EVERY, MAIN, TICKET_SECONDS, Token, lost_store
from holdfast.faces.http.calls import Response, header_lines, json_response
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
    text = "\n".join(app.metrics.lines(revisions, app.watchers, app.upkeep)) + "\n"
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
