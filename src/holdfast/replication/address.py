"""Addresses of logs, and the file in which a folder records its own.

An address names the engine, where it runs and the workspace: `postgresql://host/db?workspace=team-a` or
`nats://h1,h2,h3/team-a`. What is recorded has no secrets: credentials come from the environment, a file or a service,
as the engine's own client finds them (`PGPASSFILE`, `PGSERVICE`, `NATS_CREDS`, ...). So a folder with a record can be
opened by its path alone, by any command or server on this machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from holdfast import errors
from holdfast.filesystem import LOG_URL, check_place, make_folder, recorded_log, write_private
from holdfast.kernel.store_files import MARK, PARTS, has_store
from holdfast.replication.log import PATIENCE, CommitLog, ErrorMappingLog, Patience

# by scheme: the extra that has its client
_ENGINES = {"postgresql": "postgres", "postgres": "postgres", "nats": "jetstream", "tls": "jetstream"}
_SECRET = ("password", "sslpassword")
EXAMPLE = "postgresql://host/db?workspace=team-a"
_EXAMPLES = f"such as {EXAMPLE} or nats://h1,h2,h3/team-a"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


_OURS = (*PARTS, MARK, LOG_URL, ".gitignore")
_USED_UP = (
    "nothing was made; the name is used up: choose another, or free it, see docs/engines.md, From a file to a log, and"
    " back"
)


class Address(NamedTuple):
    """A log, as far as one may know: `conninfo` may have a password, `public` has none."""

    engine: str
    conninfo: str
    workspace: str
    public: str


def is_address(path: object) -> bool:
    """Whether this names a log, not a folder."""
    scheme, colon, _ = str(path).partition(":/")  # a Path has one slash
    return bool(colon) and scheme in _ENGINES


def parse(url: str) -> Address:
    """Return the parts of an address. Raises Invalid, and repeats no password."""
    from urllib.parse import parse_qsl, quote, urlencode, urlsplit

    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise errors.Invalid(f"this is not the address of a log: {error}", hint=_EXAMPLES) from None
    if parts.scheme not in _ENGINES or not url.startswith(f"{parts.scheme}://"):
        raise errors.Invalid("this is not the address of a log", hint=_EXAMPLES)
    engine = _ENGINES[parts.scheme]
    given = parse_qsl(parts.query, keep_blank_values=True)
    user, at, hosts = parts.netloc.rpartition("@")
    if engine == "jetstream":  # the workspace is the path, and a user without a password is a token
        names, options, path, public = [parts.path[1:]], given, "", hosts
    else:
        names = [value for name, value in given if name == "workspace"]
        options = [(name, value) for name, value in given if name != "workspace"]
        path, public = parts.path, f"{user.partition(':')[0]}{at}{hosts}"
    if len(names) != 1 or not _NAME.fullmatch(names[0]):
        message = "the address of a log names one workspace: letters, digits, dots, dashes and underscores"
        if not names and given:
            message += f"; this one has {', '.join(f'{name}=' for name, _ in given)} and no workspace="
        raise errors.Invalid(message, hint=_EXAMPLES)
    shown = [(name, value) for name, value in given if name not in _SECRET]

    def together(where: str, path: str, query: list[tuple[str, str]]) -> str:
        said = urlencode(query, quote_via=quote, safe="/,:")
        return f"{parts.scheme}://{where}{path}{'?' if said else ''}{said}"

    return Address(engine, together(parts.netloc, path, options), names[0], together(public, parts.path, shown))


def connect(url: str, *, create: bool = False) -> CommitLog:
    """Return the log at an address; nothing is sent yet. With `create` a workspace that is not there is made."""
    address = parse(url)
    kind: Callable[..., CommitLog]
    try:
        if address.engine == "jetstream":
            from holdfast.replication.jetstream import JetStreamLog as kind
        else:
            from holdfast.replication.postgres import PostgresLog as kind
    except ImportError as error:
        raise errors.not_installed(f"a log at {address.public}", address.engine, error) from error
    return kind(address.conninfo, address.workspace, create=create)


@contextmanager
def joining(folder: str | os.PathLike[str], url: str, log: CommitLog, patience: float | None) -> Iterator[None]:
    """Around the opening of a folder: record its log first if it has no store yet, once the log has the workspace.

    Without the record a later command would take what a failed first opening left for a workspace of its own. Nothing
    is left of a folder that was to join a log which has ended.
    """
    check_recorded(folder, url)
    if has_store(folder):
        yield
        return
    with before_all("nothing was made"):
        Patience(PATIENCE if patience is None else patience).outlast(ErrorMappingLog(log).head, refusals=False)
    check_place(os.path.realpath(folder))
    found = os.listdir(folder) if os.path.isdir(folder) else None
    make_folder(folder)
    record(folder, url)
    try:
        yield
    except errors.Closed as error:
        if "moved_to" in error.details:
            for name in {*os.listdir(folder)}.difference(found or ()):
                if name in _OURS or name.endswith(".lock"):
                    os.unlink(os.path.join(folder, name))
            if found is None and not os.listdir(folder):
                os.rmdir(folder)
            error.hint = _USED_UP
        raise


@contextmanager
def before_all(unchanged: str) -> Iterator[None]:
    """Around the first call to a log while no replica of it could answer reads: its error says so."""
    try:
        yield
    except errors.Unreachable as error:
        if error.hint == errors.Unreachable.default_hint:
            error.hint = f"check the address, and retry; {unchanged}"
        raise


def record(folder: str | os.PathLike[str], url: str) -> None:
    """Record a folder's log, without secrets."""
    public = parse(url).public
    if recorded_log(folder) != public:
        write_private(os.path.join(folder, LOG_URL), f"{public}\n".encode())


def check_recorded(folder: str | os.PathLike[str], url: str) -> None:
    """Raise Invalid if a folder is the replica of a log with another address, but for user and options."""
    found = recorded_log(folder)
    if found is not None and _place(found) != _place(url):
        raise errors.Invalid(
            f"{os.fspath(folder)} is a replica of {found}, not of {parse(url).public}",
            hint=f"choose another folder; if the log has moved, correct the file {LOG_URL} in it",
        )


def _place(url: str) -> tuple[str, str, str]:
    from urllib.parse import urlsplit

    address = parse(url)
    parts = urlsplit(address.conninfo)
    return parts.netloc.rpartition("@")[2], parts.path, address.workspace
