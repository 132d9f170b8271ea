"""What a workspace can be asked that is no operation of the table: how far it is, whether it is sound, who asks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from holdfast import errors
from holdfast.faces.http.answers import Answer, told
from holdfast.faces.http.refusals import MethodNotAllowed
from holdfast.faces.http.spaces import Space
from holdfast.faces.http.tickets import LIFE
from holdfast.faces.http.tokens import Role, Token

if TYPE_CHECKING:
    from holdfast.faces.http.app import App

Extra = Callable[["App", Space, Token], Awaitable[Answer]]


async def _revision(_: App, space: Space, token: Token) -> Answer:
    ahead = space.workspace.clock_ahead
    return told({"revision": space.workspace.revision, "clock_ahead": ahead})


async def _check(_: App, space: Space, token: Token) -> Answer:
    return told(await asyncio.to_thread(space.workspace.check))


async def _whoami(_: App, space: Space, token: Token) -> Answer:
    return told({"token": token.id, "role": token.role, "actor": token.actor, "workspace": space.name})


async def _ticket(app: App, space: Space, token: Token) -> Answer:
    return told({"ticket": app.tickets.give(token, space.name), "expires_in": LIFE}, status=201)


EXTRAS: Final[dict[str, tuple[str, Role, str, Extra]]] = {
    "revision": ("GET", "read", "The revision of the newest transaction.", _revision),
    "check": ("GET", "admin", "Compare the state with the log.", _check),
    "whoami": ("GET", "read", "What this token is good for.", _whoami),
    "ticket": ("POST", "read", "A ticket for one watch, to be used in an address within 30 seconds.", _ticket),
}


def find(segments: list[str], method: str, token: Token) -> Extra | None:
    """What is asked, if it is one of these and the token is good for it."""
    found = EXTRAS.get(segments[1]) if len(segments) == 2 else None
    if found is None:
        return None
    wanted, role, _, extra = found
    if method != wanted and not (method == "HEAD" and wanted == "GET"):
        raise MethodNotAllowed(f"{method} is not possible here; {wanted} is", allowed=wanted)
    if not token.allows(role):
        raise errors.Forbidden(f"{segments[1]} needs a token with the role {role}, this one has {token.role}")
    return extra
