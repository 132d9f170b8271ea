"""The settings of a workspace: as they are stored, and as transactions see them.

A file is read by `files`, checked and stored by one transaction; bodies read the store, never a file, so every
node decides alike. Parsed settings are cached by their digest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec

from holdfast.domains.routing import CONFIG, ROUTES
from holdfast.domains.routing.rules import Rules
from holdfast.kernel.events import compare, pasts
from holdfast.kernel.tx import Snapshot, Tx, newest_version

SECOND: Final = 1_000_000  # microseconds
Parents = Literal["strict", "independent"]


class Config(msgspec.Struct, frozen=True):
    """The settings. The two timeouts are in microseconds; days that are None mean never."""

    prefix: str = "hf"
    claim_timeout: int = 30 * 60 * SECOND
    default_grimoire: str | None = None  # None: the default of the routing rules
    retention_days: float | None = 30
    soft_delete_days: float | None = 7
    close_threads_first: bool = False  # a task cannot be closed while messages about it are open
    max_title: int = 500  # characters
    max_body: int = 262_144  # bytes of UTF-8
    max_tags: int = 64  # of a task
    parents: Parents | None = None  # None: as the workspace has it
    path_lock_timeout: int = 60 * 60 * SECOND


KIND: Final = {CONFIG: "config", ROUTES: "route"}  # the kinds of their events

_TYPES: Final[dict[str, Any]] = {CONFIG: Config, ROUTES: Rules}
_MOST_KNOWN = 64
_MEMO = "settings"


class Settings(msgspec.Struct, frozen=True):
    """The settings that a transaction reads. `strict`: a task waits for all its children, and ends after them."""

    config: Config
    rules: Rules
    strict: bool = True


_DEFAULT: Final = Settings(Config(), Rules(()))
_known: dict[tuple[tuple[str, bytes | str], ...], Settings] = {}


def settings_of(snapshot: Snapshot) -> Settings:
    """Return the configuration and the rules in force; a group of transactions reads the store once."""
    memo = snapshot.memo
    found: Settings | None = memo.get(_MEMO) if memo else None
    if found is None:
        found = _find(snapshot)
        if memo is not None:
            memo.setdefault(_MEMO, found)
    return found


_DIGESTS: Final = "SELECT '', parents FROM meta UNION ALL SELECT name, digest FROM documents"


def _find(snapshot: Snapshot) -> Settings:
    digests = tuple(snapshot.all(_DIGESTS))
    known = _known.get(digests)
    if known is None:
        known = _load(snapshot)
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[digests] = known
    return known


def _load(snapshot: Snapshot) -> Settings:
    found = {
        name: msgspec.msgpack.decode(content, type=_TYPES[name])
        for name, content in snapshot.all("SELECT name, content FROM documents")
    }
    config: Config = found.get(CONFIG, _DEFAULT.config)
    rules: Rules = found.get(ROUTES, _DEFAULT.rules)
    if config.default_grimoire is not None:
        rules = msgspec.structs.replace(rules, default=config.default_grimoire)
    return Settings(config, rules, snapshot.one("SELECT parents FROM meta") == ("strict",))


def store(tx: Tx, name: str, content: Config | Rules, source: str) -> bool:
    """Put a checked document into force; False if it already is."""
    import hashlib  # only for loading a file

    data = msgspec.msgpack.encode(content)
    digest = hashlib.blake2b(data, digest_size=16).digest()
    row = tx.one("SELECT digest FROM documents WHERE name = ?", (name,))
    if row is not None and row[0] == digest:
        return False
    tx.memo[_MEMO] = None  # for the whole group, because this transaction may yet be rolled back
    version = newest_version(tx, KIND[name], "", name) + 1
    tx.run(
        "INSERT INTO documents (name, version, revision, updated, digest, content, source) VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (name) DO UPDATE SET version = excluded.version, revision = excluded.revision,"
        " updated = excluded.updated, digest = excluded.digest, content = excluded.content, source = excluded.source",
        (name, version, tx.revision, tx.now, digest, data, source),
    )
    tx.emit(KIND[name], name, "load", version=version, data=msgspec.msgpack.encode({"source": source}))
    return True


def set_parents(tx: Tx, parents: Parents) -> None:
    """Keep in the workspace whether tasks wait for all their children; the caller counts them anew."""
    tx.run("UPDATE meta SET parents = ? WHERE id = 1", (parents,))
    tx.memo[_MEMO] = None


def remembered(snapshot: Snapshot, path: str) -> bytes | None:
    """Return the digest of a file's text when this node last loaded it."""
    row = snapshot.one("SELECT digest FROM local_files WHERE path = ?", (path,))
    return None if row is None else row[0]


def remember(tx: Tx, path: str, digest: bytes) -> None:
    """Note that this node has loaded a file with this text, so that it is loaded again only after a change."""
    if remembered(tx, path) != digest:
        tx.run(
            "INSERT INTO local_files (path, digest) VALUES (?, ?)"
            " ON CONFLICT (path) DO UPDATE SET digest = excluded.digest",
            (path, digest),
        )


def check(snapshot: Snapshot) -> Iterator[str]:
    """Report documents that differ from the log, or have another content than their digest says."""
    import hashlib

    for name, kind in KIND.items():
        past = pasts(snapshot, kind, lambda data: {"source": (None, data["source"])})
        columns = ("version", "revision", "updated", "source")
        rows = f"SELECT name, {', '.join(columns)} FROM documents WHERE name = '{name}'"
        yield from compare(snapshot, kind, past, rows, columns)
    for name, digest, content in snapshot.all("SELECT name, digest, content FROM documents"):
        if name not in KIND or digest != hashlib.blake2b(content, digest_size=16).digest():
            yield f"the document {name} is not what was loaded"
