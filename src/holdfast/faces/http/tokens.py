"""Who may come in: tokens of 256 random bits, each with a workspace, a role and perhaps an actor.

Only a digest of each is stored.

They live in `tokens.json` (0600) beside the store, not in it: they are nobody's history. The file is replaced whole and
looked at again when it has changed, so a token that is revoked while a server runs is refused from then on.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, get_args

import msgspec

from holdfast import errors
from holdfast.kernel.ids import new_secret
from holdfast.kernel.names import check_name
from holdfast.kernel.tx import SYSTEM

Role = Literal["read", "agent", "admin"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)
EVERY: Final = "*"  # workspace of a token that is good for all of them
MAIN: Final = ""  # the one in the server's own folder
_log = logging.getLogger("holdfast.http")
FILE: Final = "tokens.json"
FIRST: Final = "token"  # the file with the token that a server makes on its first start


_SPACE: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
MAX_NOTE: Final = 200  # characters


def is_space(name: str) -> bool:
    """Whether this can be the name of a workspace: a plain word, never a path."""
    return bool(_SPACE.fullmatch(name)) and ".." not in name


def check_space(name: str) -> str:
    """The name of a workspace that can be served."""
    if not is_space(name):
        raise errors.InvalidName(
            f"{name[:80]!r} is not the name of a workspace",
            hint="1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit",
        )
    return name


class Token(msgspec.Struct, frozen=True):
    """What a token allows. `digest` is of the secret, which nobody keeps."""

    id: str
    digest: str
    role: Role
    workspace: str = EVERY
    actor: str | None = None
    note: str = ""
    created_at: datetime | None = None

    def allows(self, role: Role) -> bool:
        """Whether it is good for what needs this role."""
        return ROLES.index(self.role) >= ROLES.index(role)


class Tokens:
    """The tokens of one server."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._seen: tuple[int, int, int] | None = None
        self._by_digest: dict[str, Token] = {}

    def find(self, secret: str) -> Token:
        """The token of a secret; Unauthorized if there is none."""
        self._look()
        wanted = digest(secret)
        token = self._by_digest.get(wanted)
        if token is None or not hmac.compare_digest(token.digest, wanted):
            raise errors.Unauthorized("the token is not known", hint="it was revoked, or is another server's")
        return token

    def check(self, token: Token) -> None:
        """Unauthorized if a token that was found is no longer good."""
        self._look()
        if token.digest not in self._by_digest:
            raise errors.Unauthorized("the token was revoked")

    def all(self) -> list[Token]:
        """All of them, oldest first."""
        self._look()
        return sorted(self._by_digest.values(), key=lambda token: token.id)

    def create(self, role: Role, workspace: str = EVERY, actor: str | None = None, note: str = "") -> tuple[Token, str]:
        """A new token, and its secret, which is told this once."""
        if role not in ROLES:
            raise errors.Invalid(f"role is one of {', '.join(ROLES)}, not {role!r}")
        if actor is not None:
            check_name(actor, "actor")
            if actor == SYSTEM:
                raise errors.Invalid(f"the actor {SYSTEM!r} is the workspace itself", hint="choose another name")
        if len(note) > MAX_NOTE or not note.isprintable():
            raise errors.Invalid(f"a note is at most {MAX_NOTE} characters on one line", hint="say it shorter")
        secret = f"hft_{new_secret()}"
        return self._add(secret, role, workspace, actor, note), secret

    def _add(self, secret: str, role: Role, workspace: str, actor: str | None, note: str) -> Token:
        now = datetime.now(UTC)
        id = f"{now:%Y%m%d%H%M%S%f}"  # made under the lock, one at a time
        with self._changing() as tokens:
            while any(token.id == id for token in tokens):
                id += "0"
            token = Token(id, digest(secret), role, workspace, actor, note, now)
            tokens.append(token)
        return token

    def revoke(self, id: str) -> None:
        """Let a token be good for nothing any more; NotFound if there is none."""
        with self._changing() as tokens:
            kept = [token for token in tokens if token.id != id]
            if len(kept) == len(tokens):
                raise errors.NotFound(f"there is no token {id!r}", hint="holdfast token list has all", id=id)
            tokens[:] = kept

    def make_first(self, first_start: bool) -> Path:
        """On the first start: a token that may do everything, in a file that only its owner can read."""
        path = self._path.parent / FIRST
        if not self._path.exists() or (first_start and not path.exists()):
            secret = f"hft_{new_secret()}"
            write_private(path, f"{secret}\n".encode())  # first: a start that is killed in between is begun anew
            self._add(secret, "admin", EVERY, None, "made by the first start")
        return path

    # --- the file ----------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Read the file again if it has changed."""
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            self._seen, self._by_digest = None, {}
            return
        seen = status.st_mtime_ns, status.st_size, status.st_ino
        if seen != self._seen:
            self._by_digest = {token.digest: token for token in self._read()}
            self._seen = seen

    def _read(self) -> list[Token]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=list[Token])
        except FileNotFoundError:
            return []
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            _log.error("%s is damaged: %s", self._path, error)
            raise errors.Corrupt(
                f"{FILE} is damaged", hint="nobody is let in until it is mended or moved away"
            ) from error

    @contextmanager
    def _changing(self) -> Iterator[list[Token]]:
        """The list, written back at the end; one process at a time."""
        lock = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            tokens = self._read()
            yield tokens
            write_private(self._path, msgspec.json.format(msgspec.json.encode(tokens)) + b"\n")
        finally:
            os.close(lock)


def write_private(path: Path, content: bytes) -> None:
    """Replace a file by one that only its owner can read; never half of it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(draft, path)


def digest(secret: str) -> str:
    """What is kept of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()
