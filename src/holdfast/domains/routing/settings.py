"""The documents of a workspace, `config.yaml` and `grimoire-matchers.yaml`, as its transactions see them.

A file enters the store by one transaction, checked; bodies read the store, never a file, so every node decides alike.
What is read is kept by its digest: a transaction that finds the digest it knows parses nothing.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.domains.routing.config import Config
from holdfast.domains.routing.matchers import Rules
from holdfast.domains.routing.names import CONFIG, ROUTES
from holdfast.kernel.tx import Snapshot, Tx, newest_version

KIND: Final = {CONFIG: "config", ROUTES: "route"}  # of their events

_TYPES: Final[dict[str, Any]] = {CONFIG: Config, ROUTES: Rules}
_MOST_KNOWN = 64
_MEMO = "settings"


class Settings(msgspec.Struct, frozen=True):
    """What a transaction needs to know."""

    config: Config
    rules: Rules


_DEFAULT: Final = Settings(Config(), Rules(()))
_known: dict[tuple[tuple[str, bytes], ...], Settings] = {(): _DEFAULT}


def settings_of(snapshot: Snapshot) -> Settings:
    """The configuration and the rules in force; a group of transactions asks the store once."""
    memo = snapshot.memo
    found: Settings | None = memo.get(_MEMO) if memo else None
    if found is None:
        found = _find(snapshot)
        if memo is not None:
            memo.setdefault(_MEMO, found)
    return found


def _find(snapshot: Snapshot) -> Settings:
    digests = tuple(snapshot.all("SELECT name, digest FROM documents ORDER BY name"))
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
    return Settings(config, rules)


def store(tx: Tx, name: str, content: Config | Rules, source: str) -> bool:
    """Put a checked document into force; False if it is in force already."""
    import hashlib  # only who loads a file needs it

    data = msgspec.msgpack.encode(content)
    digest = hashlib.blake2b(data, digest_size=16).digest()
    row = tx.one("SELECT digest FROM documents WHERE name = ?", (name,))
    if row is not None and row[0] == digest:
        return False
    tx.memo[_MEMO] = None  # for the whole group, as nobody here knows whether this one will be taken back
    version = newest_version(tx, KIND[name], "", name) + 1
    tx.run(
        "INSERT INTO documents (name, version, revision, updated, digest, content, source) VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (name) DO UPDATE SET version = excluded.version, revision = excluded.revision,"
        " updated = excluded.updated, digest = excluded.digest, content = excluded.content, source = excluded.source",
        (name, version, tx.revision, tx.now, digest, data, source),
    )
    tx.emit(KIND[name], name, "load", version=version, data=msgspec.msgpack.encode({"source": source}))
    return True


def remembered(snapshot: Snapshot, path: str) -> bytes | None:
    """The digest of a file's text when this node last loaded it."""
    row = snapshot.one("SELECT digest FROM local_files WHERE path = ?", (path,))
    return None if row is None else row[0]


def remember(tx: Tx, path: str, digest: bytes) -> None:
    """This node has loaded a file with this text; whoever has not changed it since does not load it again."""
    if remembered(tx, path) != digest:
        tx.run(
            "INSERT INTO local_files (path, digest) VALUES (?, ?)"
            " ON CONFLICT (path) DO UPDATE SET digest = excluded.digest",
            (path, digest),
        )
