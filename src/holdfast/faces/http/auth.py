"""Tokens, tickets, and the checks before a body is read: host, origin, token, length and type of the body.

Tokens are kept in `tokens.json` (0600) beside the store, as digests only. The file is replaced at once and read again
when it has changed, so a token that is revoked while a server runs is refused from then on.

A page in a browser can send requests to any address of this machine, but it can neither choose their Host nor hide its
Origin. So both must be on the list exactly, whatever the socket.

A ticket is 256 random bits, valid for one watch of one workspace within 30 seconds, with the rights that its token has
then. A ticket may be part of an address; a token may not. Tickets live in memory and end with the server.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import logging
import os
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from holdfast import errors
from holdfast.clock import SystemClock
from holdfast.errors import Misdirected, NotJSON
from holdfast.filesystem import Signature, signature_of, write_private
from holdfast.ids import new_secret
from holdfast.private_socket import SERVER_LOCK
from holdfast.route import Role
from holdfast.workspace.context import ROLES, Context, check_context

EVERY: Final = "*"  # workspace of a token for all of them
MAIN: Final = ""  # the one in the server's own folder
_log = logging.getLogger("holdfast.http")
_now = SystemClock().monotonic
FILE: Final = "tokens.json"
FIRST_TOKEN: Final = "token"  # the file with the token that a server makes on its first start


_HOST: Final = re.compile(r"[a-z0-9.:\[\]-]+")
_SPACE: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
MAX_NOTE: Final = 200  # characters


def is_space(name: str) -> bool:
    """Whether a workspace can have this name: a plain word, never a path."""
    return bool(_SPACE.fullmatch(name)) and ".." not in name


def check_space(name: str) -> str:
    """Return the name of a workspace. Raises InvalidName if it cannot be one."""
    if not is_space(name):
        hint = "1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit"
        raise errors.InvalidName(f"{name[:80]!r} is not the name of a workspace", hint=hint)
    return name


class Token(msgspec.Struct, frozen=True):
    """The rights of a token. `digest` is that of its secret, which is not stored."""

    id: str
    digest: str
    role: Role
    workspace: str = EVERY
    actor: str | None = None
    note: str = ""
    created_at: datetime | None = None


OWNER: Final = Token("owner", "", "admin")  # whoever may open the private socket, and so the store


class Tokens:
    """The tokens of one server."""

    def __init__(self, folder: Path, serves: bool = False) -> None:
        self._path = folder / FILE
        self._serves = serves  # it has the lock of the folder
        self._seen: Signature | None = None
        self._by_digest: dict[str, Token] = {}
        self._by_secret: dict[str, Token] = {}  # those that have been used

    def find(self, secret: str, look: bool = True) -> Token:
        """The token of a secret. Raises Unauthorized if there is none. Without `look` the file is as it was."""
        if look:
            self._look()
        if (known := self._by_secret.get(secret)) is not None:
            return known
        wanted = digest(secret)
        token = self._by_digest.get(wanted)
        if token is None or not hmac.compare_digest(token.digest, wanted):
            raise errors.Unauthorized(
                "unknown token",
                hint="check it: it may be revoked, or of another server; holdfast token create makes one",
            )
        self._by_secret[secret] = token
        return token

    def check(self, token: Token) -> None:
        """Raise Unauthorized if a token has been revoked since it was found."""
        self._look()
        if token is not OWNER and token.digest not in self._by_digest:
            raise errors.Unauthorized("the token was revoked")

    def all(self) -> list[Token]:
        """All of them, oldest first."""
        self._look()
        return sorted(self._by_digest.values(), key=lambda token: token.id)

    def create(self, role: Role, workspace: str = EVERY, actor: str | None = None, note: str = "") -> tuple[Token, str]:
        """Create a token; returns it and its secret, which is not stored."""
        if role not in ROLES:
            raise errors.Invalid(f"role must be one of {', '.join(ROLES)}, not {role!r}")
        if actor is not None:
            check_context(Context(actor))
        if len(note) > MAX_NOTE or not note.isprintable():
            raise errors.Invalid(f"note must be at most {MAX_NOTE} characters on one line", hint="shorten it")
        secret = f"hft_{new_secret()}"
        return self._add(secret, role, workspace, actor, note), secret

    def _add(self, secret: str, role: Role, workspace: str, actor: str | None, note: str) -> Token:
        now = datetime.now(UTC)
        id = f"{now:%Y%m%d%H%M%S%f}"  # unique: made under the lock
        with self._changing() as tokens:
            while any(token.id == id for token in tokens):
                id += "0"
            token = Token(id, digest(secret), role, workspace, actor, note, now)
            tokens.append(token)
        return token

    def revoke(self, id: str) -> None:
        """Revoke a token. Raises NotFound if there is none with this id."""
        with self._changing() as tokens:
            kept = [token for token in tokens if token.id != id]
            if len(kept) == len(tokens):
                raise errors.NotFound(f"there is no token {id!r}", hint="holdfast token list shows them", id=id)
            tokens[:] = kept

    def make_first(self, first_start: bool) -> None:
        """On the first start, create an admin token in a file that only its owner can read.

        Not beside tokens that were copied from another server: those who manage that one have its admin token.
        """
        path = self._path.parent / FIRST_TOKEN
        if not self._path.exists() or (first_start and not path.exists() and not self._has_admin()):
            secret = f"hft_{new_secret()}"
            write_private(path, f"{secret}\n".encode())  # first, so that a start that is killed here can be repeated
            self._add(secret, "admin", EVERY, None, "created by the first start")

    def _has_admin(self) -> bool:
        return any(token.role == "admin" and token.workspace == EVERY for token in self._read())

    # --- the file ----------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Read the file again if it has changed."""
        seen = signature_of(self._path)
        if seen is None and self._serves and not (self._path.parent / SERVER_LOCK).exists():
            raise lost_store()
        if seen != self._seen:
            self._by_digest = {token.digest: token for token in self._read()}
            self._by_secret = {}
            self._seen = seen

    def _read(self) -> list[Token]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=list[Token])
        except FileNotFoundError:
            return []
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            _log.error("%s is damaged: %s", self._path, error)
            hint = "all requests are refused until it is repaired or moved away"
            raise errors.Corrupt(f"{FILE} is damaged", hint=hint) from error

    @contextmanager
    def _changing(self) -> Iterator[list[Token]]:
        """The list, written back at the end of the block; one process at a time."""
        lock = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            tokens = self._read()
            yield tokens
            write_private(self._path, msgspec.json.format(msgspec.json.encode(tokens)) + b"\n")
        finally:
            os.close(lock)


_LOST_HINT: Final = "put the folder back as it was, or restore a backup; then restart the server"


def lost_store(message: str = "the folder of this server was removed or moved while it ran") -> errors.Closed:
    """The error of a server whose files are gone. It cannot go on with others: what it has open is not them."""
    return errors.Closed(message, hint=_LOST_HINT)


def closed_here(error: errors.Closed) -> errors.Closed:
    """The error of a server whose workspace is closed: its files are gone, unless the workspace went elsewhere."""
    return error if "moved_to" in error.details else lost_store(error.message)


def digest(secret: str) -> str:
    """The stored form of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


MAX_BODY: Final = 4 * 1024 * 1024
DUPLICATE: Final = b"\0"  # joins the values of a duplicate header; no value contains it
_JSON: Final = b"application/json"
_BEARER: Final = b"bearer "

Headers = Mapping[bytes, bytes]


class Gate:
    """The hosts and origins from which a server may be called."""

    def __init__(self, hosts: Iterable[str], tls: bool = False) -> None:
        scheme = "https" if tls else "http"
        self._hosts = frozenset(host.lower().encode() for host in hosts)
        self._origins = frozenset(f"{scheme}://".encode() + host for host in self._hosts)

    def check_host(self, headers: Headers) -> None:
        """Raise Misdirected unless the Host is on the list."""
        host = headers.get(b"host", b"").lower()
        if host not in self._hosts:
            if DUPLICATE in host:
                named = ", ".join(each.decode("latin-1")[:100] for each in host.split(DUPLICATE))
                raise Misdirected(f"the request names several hosts: {named}", hint="name one")
            named = host.decode("latin-1")[:100]
            hint = "use the address that the server printed"
            if _HOST.fullmatch(named):  # such as a forwarded port
                hint += f", or allow this one: holdfast serve --allow-host {named}"
            raise Misdirected(f"the Host {named!r} is not one of this server's", hint=hint)

    def check_origin(self, headers: Headers) -> None:
        """Raise Forbidden for a request from a page of another site."""
        origin = headers.get(b"origin")
        if origin is not None and origin.lower() not in self._origins:
            raise errors.Forbidden(f"the Origin {origin.decode('latin-1')[:100]!r} may not call this server")


def headers_of(pairs: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Headers by name; the values of a duplicate are joined by DUPLICATE, which no check accepts."""
    found: dict[bytes, bytes] = {}
    for name, value in pairs:
        found[name] = value if name not in found else found[name] + DUPLICATE + value
    return found


def bearer(headers: Headers) -> str:
    """The secret in a request. Raises Unauthorized if there is none."""
    given = headers.get(b"authorization", b"")
    if given[:7].lower() != _BEARER or not given[7:].strip():
        hint = "send Authorization: Bearer TOKEN; the first one is in the file `token` of the served folder"
        raise errors.Unauthorized("missing token", hint=hint)
    return given[7:].strip().decode("latin-1")


def accepts_events(headers: Headers) -> bool:
    """Whether a request accepts server-sent events."""
    return b"text/event-stream" in headers.get(b"accept", b"").lower()


def check_length(headers: Headers, most: int = MAX_BODY) -> None:
    """Raise TooLarge if Content-Length is above the limit."""
    length = headers.get(b"content-length")
    if length is not None and (not length.isdigit() or int(length) > most):
        raise too_large(most)


def too_large(most: int) -> errors.TooLarge:
    """The error for a body that is too large."""
    return errors.TooLarge(f"the body must be at most {most} bytes", limit=most)


def check_json(headers: Headers) -> None:
    """Raise NotJSON unless Content-Type is JSON."""
    kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
    if kind != _JSON:
        raise NotJSON(f"the Content-Type is {kind.decode('latin-1')[:100]!r}")


TICKET_SECONDS: Final = 30  # seconds
MAX_TICKETS: Final = 10_000  # at a time: the oldest go first
TICKET: Final = "ticket"


class Tickets:
    """The unused tickets of one server."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._given: OrderedDict[str, tuple[Token, str, int]] = OrderedDict()

    def give(self, token: Token, workspace: str) -> str:
        """Create a ticket for a workspace."""
        ticket = f"hfk_{new_secret()}"
        self._given[digest(ticket)] = token, workspace, _now() + TICKET_SECONDS * 1_000_000
        while len(self._given) > MAX_TICKETS:
            self._given.popitem(last=False)
        return ticket

    def take(self, ticket: str, workspace: str) -> Token:
        """The token of a ticket, which works once. Raises Unauthorized if it is not valid for the workspace."""
        token, wanted, until = self._given.pop(digest(ticket), (None, "", 0))
        if token is None or wanted != workspace or until < _now():
            hint = "POST /api/ticket gives a new one"
            raise errors.Unauthorized("the ticket was used, has expired, or is for another workspace", hint=hint)
        self._tokens.check(token)
        return token
