"""Signing in from a browser: tickets that work once, and the sessions that they become.

A ticket travels in the fragment of a link, which no server and no log sees. It works once, within 10 minutes, and is
exchanged for a session secret of 12 hours, which the page sends as a Bearer token. There are no cookies: those of a
host are shared by all its ports, so every program on this machine would get them.

A session has the rights of its token at the time of the request, and ends with it. Tickets and sessions are kept in
`sessions.json` (0600) beside the tokens, as digests only: a restart of the server ends no session, and a session that
is revoked by another process ends at once.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from holdfast import errors
from holdfast.faces.http.auth import FIRST_TOKEN, Token, Tokens, digest
from holdfast.filesystem import Signature, signature_of, write_private
from holdfast.ids import new_secret

FILE: Final = "sessions.json"
SESSION: Final = "hfs_"  # begins the secret of a session
TICKET_TIME: Final = timedelta(minutes=10)
SESSION_TIME: Final = timedelta(hours=12)
MOST: Final = 1000  # tickets, and sessions; the oldest end first
_log = logging.getLogger("holdfast.http")


class Session(msgspec.Struct, frozen=True):
    """A browser that is signed in. `token` is the id of the token that it has its rights from."""

    id: str
    digest: str
    token: str
    created_at: datetime
    expires_at: datetime


class _LinkTicket(msgspec.Struct, frozen=True):
    """A link that was not used yet."""

    digest: str
    token: str
    expires_at: datetime


class _File(msgspec.Struct):
    tickets: list[_LinkTicket] = []
    sessions: list[Session] = []


class SessionToken(Token, frozen=True, kw_only=True):
    """The rights of a session: those of its token, until it ends."""

    session: str
    expires_at: datetime


class Sessions:
    """The tickets and sessions of one server."""

    def __init__(self, folder: Path, tokens: Tokens) -> None:
        self._path = folder / FILE
        self._tokens = tokens
        self._seen: Signature | None = None
        self._by_digest: dict[str, Session] = {}

    def give_ticket(self, token: Token) -> str:
        """Create a ticket for whoever has this token."""
        ticket = f"hfu_{new_secret()}"
        with self._changing() as file:
            file.tickets.append(_LinkTicket(digest(ticket), token.id, datetime.now(UTC) + TICKET_TIME))
        return ticket

    def redeem(self, ticket: str) -> tuple[SessionToken, str]:
        """Exchange a ticket for a session; returns it and its secret. Raises Unauthorized if it does not work."""
        wanted = digest(ticket)
        with self._changing() as file:
            found = [each for each in file.tickets if each.digest == wanted]
            file.tickets[:] = [each for each in file.tickets if each.digest != wanted]
        if not found:
            raise errors.Unauthorized("the link was used already, or has expired", hint="run holdfast ui for a new one")
        return self.begin(self._parent(found[0].token))

    def begin(self, token: Token) -> tuple[SessionToken, str]:
        """Start a session with the rights of a token; returns it and its secret, which is not stored."""
        secret = f"{SESSION}{new_secret()}"
        now = datetime.now(UTC)
        session = Session(f"{now:%Y%m%d%H%M%S%f}", digest(secret), token.id, now, now + SESSION_TIME)
        with self._changing() as file:
            file.sessions.append(session)
        return _rights(session, token), secret

    def find(self, secret: str) -> SessionToken:
        """The rights of a session. Raises Unauthorized if it has ended."""
        self._look()
        session = self._by_digest.get(digest(secret))
        if session is None or session.expires_at <= datetime.now(UTC):
            raise _ended()
        return _rights(session, self._parent(session.token))

    def check(self, token: Token) -> None:
        """Raise Unauthorized if a token was revoked, or a session has ended, since it was found."""
        self._tokens.check(token)
        if isinstance(token, SessionToken):
            self._look()
            alive = any(session.id == token.session for session in self._by_digest.values())
            if not alive or token.expires_at <= datetime.now(UTC):
                raise _ended()

    def all(self) -> list[Session]:
        """Those that have not ended, oldest first."""
        self._look()
        now, known = datetime.now(UTC), {token.id for token in self._tokens.all()}
        alive = (each for each in self._by_digest.values() if each.expires_at > now and each.token in known)
        return sorted(alive, key=lambda session: session.id)

    def revoke(self, id: str) -> None:
        """End a session. Raises NotFound if there is none with this id."""
        with self._changing() as file:
            kept = [session for session in file.sessions if session.id != id]
            if len(kept) == len(file.sessions):
                raise errors.NotFound(f"there is no session {id!r}", hint="holdfast session list shows them", id=id)
            file.sessions[:] = kept

    def token_for_link(self) -> Token:
        """The token that a link for the owner of the folder gets its rights from: the first one, or a new one."""
        try:
            return self._tokens.find((self._path.parent / FIRST_TOKEN).read_text().strip())
        except (OSError, errors.Unauthorized):
            return self._tokens.create("admin", note="for the web page: holdfast ui")[0]

    def _parent(self, id: str) -> Token:
        found = next((token for token in self._tokens.all() if token.id == id), None)
        if found is None:
            raise errors.Unauthorized("the token of this session was revoked", hint="sign in again with another one")
        return found

    # --- the file ----------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Read the file again if it has changed."""
        seen = signature_of(self._path)
        if seen != self._seen:
            self._by_digest = {session.digest: session for session in self._read().sessions}
            self._seen = seen

    def _read(self) -> _File:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_File)
        except FileNotFoundError:
            return _File()
        except (msgspec.DecodeError, UnicodeDecodeError) as error:  # they can be had again by signing in
            _log.error("%s is damaged, all sessions end: %s", self._path, error)
            return _File()

    @contextmanager
    def _changing(self) -> Iterator[_File]:
        """The content without what has expired, written back at the end of the block; one process at a time."""
        lock = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            file, now = self._read(), datetime.now(UTC)
            file.tickets = [each for each in file.tickets if each.expires_at > now]
            file.sessions = [each for each in file.sessions if each.expires_at > now]
            yield file
            file.tickets, file.sessions = file.tickets[-MOST:], file.sessions[-MOST:]
            write_private(self._path, msgspec.json.format(msgspec.json.encode(file)) + b"\n")
        finally:
            os.close(lock)


def _rights(session: Session, token: Token) -> SessionToken:
    fields = {name: getattr(token, name) for name in Token.__struct_fields__}
    return SessionToken(**fields, session=session.id, expires_at=session.expires_at)


def _ended() -> errors.Unauthorized:
    return errors.Unauthorized("this session has ended", hint="sign in again: holdfast ui prints a link")
