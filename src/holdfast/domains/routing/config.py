"""The settings of a workspace: read from `config.yaml`, stored, and as transactions see them.

Every key is optional. An unknown key is a warning; a bad value is an error, and then there is no Config at all: half of
a file is not what its author meant. Guarantee: every text gives a result, and every problem has a line.

A file is checked and stored by one transaction; bodies read the store, never a file, so every node decides alike.
Parsed settings are cached by their digest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, get_args

import msgspec

from holdfast.domains.routing import CONFIG, ROUTES
from holdfast.domains.routing.rules import Rules
from holdfast.domains.routing.yaml_lines import Findings, Node, Unreadable, close_to, parse, read_flag, read_name, show
from holdfast.kernel.events import compare, pasts
from holdfast.kernel.tx import Snapshot, Tx, newest_version
from holdfast.kernel.validate import MAX_SECONDS
from holdfast.types.tasks import Problem

_SECOND: Final = 1_000_000
_MAX_DAYS: Final = 36_525
_MAX_LIMIT: Final = 1_000_000_000
_DURATION: Final = r"(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?"


Parents = Literal["strict", "independent"]


class Config(msgspec.Struct, frozen=True):
    """The settings. The two timeouts are in microseconds; days that are None mean never."""

    prefix: str = "hf"
    claim_timeout: int = 30 * 60 * _SECOND
    default_grimoire: str | None = None  # None: the default of the routing rules
    retention_days: float | None = 30
    soft_delete_days: float | None = 7
    close_threads_first: bool = False  # a task cannot be closed while messages about it are open
    max_title: int = 500  # characters
    max_body: int = 262_144  # bytes of UTF-8
    max_tags: int = 64  # of a task
    parents: Parents | None = None  # None: as the workspace has it
    path_lock_timeout: int = 60 * 60 * _SECOND


def read_config(text: str, file: str) -> tuple[Config | None, list[Problem]]:
    """Return the settings and the problems; no Config if any is an error. An empty text means all defaults."""
    found = Findings(file)
    values = _values(text, found)
    return None if found.errors else Config(**values), found.in_order()


def _values(text: str, found: Findings) -> dict[str, Any]:
    try:
        root, line = parse(text)
    except Unreadable as error:
        found.error(error.line, error.message)
        return {}
    if root is not None and not isinstance(root, dict):
        found.error(line, f"the file must be a mapping of settings, not {show(root)}")
        return {}
    values = {}
    for path, node in _flatten(root or {}, found).items():
        if path in _KEYS:
            values[path.rpartition(".")[2]] = _KEYS[path](found, path, node)
        else:
            found.warn(node.line, f"unknown key {path!r} is ignored{_advice(path)}")
    return values


def _flatten(root: dict[str, Node], found: Findings) -> dict[str, Node]:
    """The keys with their path, as in `task_store.retention_days`; sections are the mappings at the top level."""
    flat: dict[str, Node] = {}
    for key, node in root.items():
        if isinstance(node.value, dict) and key not in _KEYS:
            flat.update({f"{key}.{inner}": value for inner, value in node.value.items()})
        elif key in _SECTIONS:
            if node.value is not None:  # a section whose keys are all commented out
                found.error(node.line, f"{key} must be a mapping, not {show(node.value)}")
        else:
            flat[key] = node
    return flat


def _advice(path: str) -> str:
    """What to write instead of an unknown key, if that can be guessed."""
    if path in _OTHER_SPELLINGS:
        return f"; {_OTHER_SPELLINGS[path]}"
    name = path.rpartition(".")[2]
    there = next((known for known in _KEYS if known.rpartition(".")[2] == name), None)
    return f"; write {there!r}" if there else close_to(path, list(_KEYS))


# --- readers of one value: each notes its problems -------------------------------------------------------------------


def _prefix(found: Findings, what: str, node: Node) -> str | None:
    if isinstance(node.value, str) and re.fullmatch("[a-z0-9]{1,16}", node.value):
        return node.value
    found.error(node.line, f"{what} must be 1 to 16 of the characters a-z and 0-9, not {show(node.value)}")
    return None


def _parents(found: Findings, what: str, node: Node) -> str | None:
    if node.value in get_args(Parents):
        return str(node.value)
    found.error(node.line, f"{what} must be strict or independent, not {show(node.value)}")
    return None


def _duration(found: Findings, what: str, node: Node) -> int:
    """Microseconds from `1h30m` or a number of seconds."""
    seconds: float = 0
    if isinstance(node.value, int | float) and not isinstance(node.value, bool):
        seconds = node.value
    elif isinstance(node.value, str) and (parts := re.fullmatch(_DURATION, node.value.replace(" ", ""))):
        days, hours, minutes, rest = (int(part or 0) for part in parts.groups())
        seconds = ((days * 24 + hours) * 60 + minutes) * 60 + rest
    if 0 < seconds <= MAX_SECONDS:
        return max(round(seconds * _SECOND), 1)
    wanted = "a duration such as 30m, 90s, 1h30m or 2d, or a number of seconds, above 0 and up to 100 years"
    found.error(node.line, f"{what} must be {wanted}, not {show(node.value)}")
    return 0


def _days(found: Findings, what: str, node: Node) -> float | None:
    if node.value is None or node.value == "never":
        return None
    if isinstance(node.value, int | float) and not isinstance(node.value, bool) and 0 <= node.value <= _MAX_DAYS:
        return node.value
    found.error(node.line, f"{what} must be a number of days from 0 to {_MAX_DAYS}, or never, not {show(node.value)}")
    return None


def _limit(found: Findings, what: str, node: Node) -> int:
    if type(node.value) is int and 1 <= node.value <= _MAX_LIMIT:
        return node.value
    found.error(node.line, f"{what} must be an integer from 1 to {_MAX_LIMIT}, not {show(node.value)}")
    return 0


_KEYS: Final[dict[str, Callable[[Findings, str, Node], Any]]] = {
    "prefix": _prefix,
    "parents": _parents,
    "claim_timeout": _duration,
    "path_lock_timeout": _duration,
    "default_grimoire": read_name,
    "task_store.retention_days": _days,
    "task_store.soft_delete_days": _days,
    "task_store.close_threads_first": read_flag,
    "limits.max_title": _limit,
    "limits.max_body": _limit,
    "limits.max_tags": _limit,
}
_SECTIONS: Final = {path.partition(".")[0] for path in _KEYS if "." in path}
_OTHER_SPELLINGS: Final = {
    "store.claimTimeoutMinutes": "write 'claim_timeout', such as 30m",
    "store.taskRetentionDays": "write 'task_store.retention_days'",
    "store.taskSoftDeleteDays": "write 'task_store.soft_delete_days'",
    "store.eventRetentionHours": "there is no such setting; the log is kept",
    "store.workflowRetentionDays": "there is no such setting",
}


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
