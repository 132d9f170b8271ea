"""Tickets: what a browser shows instead of a token, because its EventSource can send no header.

A ticket is 256 random bits, good for one watch of one workspace within 30 seconds, and for nothing that its token is
not good for then. It may be in an address; a token may not. Tickets live in memory: a server that starts again knows
none.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from holdfast import errors
from holdfast.faces.http.tokens import Token, Tokens, digest
from holdfast.kernel.clock import SystemClock
from holdfast.kernel.ids import new_secret

LIFE: Final = 30  # seconds
MOST: Final = 10_000  # at a time: the oldest go first
ARGUMENT: Final = "ticket"

_now = SystemClock().monotonic


class Tickets:
    """The tickets of one server that nobody has used yet."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._given: OrderedDict[str, tuple[Token, str, int]] = OrderedDict()

    def give(self, token: Token, workspace: str) -> str:
        """A new one for a workspace."""
        ticket = f"hfk_{new_secret()}"
        self._given[digest(ticket)] = token, workspace, _now() + LIFE * 1_000_000
        while len(self._given) > MOST:
            self._given.popitem(last=False)
        return ticket

    def take(self, ticket: str, workspace: str) -> Token:
        """The token of a ticket, which is used up; Unauthorized if it is not good for this."""
        token, wanted, until = self._given.pop(digest(ticket), (None, "", 0))
        if token is None or wanted != workspace or until < _now():
            raise errors.Unauthorized(
                "the ticket is used up, too old, or another workspace's", hint="POST /api/ticket gives a new one"
            )
        self._tokens.check(token)
        return token
