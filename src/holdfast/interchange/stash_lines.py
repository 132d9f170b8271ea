"""Lines of stashes and of their history: whether they are valid, and how they are written to the store.

A new stash is created with its id, times, versions and history. One that is here is updated if its history here is the
beginning of that in the file, so that nothing done here is lost; otherwise it is in conflict. A put function raises
before it writes anything. Called by `stash_import`.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains import link_types, locks, trails
from holdfast.domains.link_types import LINK
from holdfast.domains.stashes import erase, rescope, rows
from holdfast.domains.tasks import tree
from holdfast.interchange import jsonl, stash_export
from holdfast.interchange.crumbs import write_link
from holdfast.interchange.jsonl import Time
from holdfast.interchange.stash_export import (
    EntryLine,
    LinkLine,
    StashLine,
    TombstoneLine,
    entry_line,
    link_line,
    stash_line,
)
from holdfast.kernel import leases
from holdfast.kernel.leases import NOBODY
from holdfast.kernel.tx import Row, Tx, newest_version
from holdfast.kernel.validate import check_id, check_name
from holdfast.kernel.values import decode, encode
from holdfast.types import as_microseconds, as_time
from holdfast.wire import from_wire, to_wire

_KEPT: Final = ("name", "stash_type", "created_at", "expires_at")  # which never change
_EXPIRE: Final = "expire"
_encode = msgspec.msgpack.Encoder().encode


def put_stash(
    tx: Tx,
    line: StashLine,
    link: LinkLine | None,
    history: list[EntryLine],
    holder: str | None,
    expect: Set[str] = frozenset(),
) -> str:
    """Create a stash with its scope and history, or update the one that is here.

    An entry of its newest version is added if it has no history at all. With `holder`, only its locks change hands.
    One whose trail is among `expect`, and not here yet, is created with it.
    """
    line = _check_stash(line)
    _check_newest(line, history)
    row = tx.one(f"SELECT {stash_export.STASH_COLUMNS} FROM {rows.SOURCE} WHERE s.id = ?", (line.stash_id,))
    if row is not None:
        return _follow(tx, row, line, history, holder)
    if newest_version(tx, rows.STASH, "", line.stash_id):
        return jsonl.DELETED
    entries = history or [_newest_entry(tx, line)]
    data = [_entry_data(tx, entry) for entry in entries]
    if link is not None and link.to_id in expect:
        return jsonl.CREATED
    scope = rows.GLOBAL if link is None else _scope(tx, line, link)
    if line.deleted_at is None:
        rows.check_free(tx, scope, line.name)
    elif scope == rows.GLOBAL:
        raise errors.Invalid("deleted_at is set, but it has no trail to be deleted with")
    _insert(tx, line, scope)
    for entry, each in zip(entries, data, strict=True):
        tx.emit(rows.STASH, line.stash_id, entry.operation, version=entry.version, data=each)
    if line.stash_type == rows.LOCK:
        _hold(tx, line, holder)
    if link is not None:
        write_link(tx, link)
    return jsonl.CREATED


# --- checking a line -------------------------------------------------------------------------------------------------


def _check_stash(line: StashLine) -> StashLine:
    """A line in the form of an export. Raises Invalid if no stash can be so."""
    check_name(line.name, "name")
    value = _check_value(line.stash_type, line.value)
    if value is not None and line.stash_type == rows.LOCK and line.deleted_at is not None:
        raise errors.Invalid("a lock that is held cannot be deleted")
    if line.held_until is not None and (line.stash_type != rows.LOCK or value is None):
        raise errors.Invalid("held_until is only for a lock that is held")
    times = {name: getattr(line, name) for name in ("held_until", "expires_at", "deleted_at")}
    times |= {"created_at": line.created_at, "updated_at": line.updated_at or line.created_at}
    shown = {name: time if time is None else as_time(jsonl.micros(time, name)) for name, time in times.items()}
    return msgspec.structs.replace(line, value=value, **shown)


def check_entry(stash_type: str, entry: EntryLine) -> EntryLine:
    """An entry of a stash of this type, in the form of an export. Raises Invalid if it cannot be one."""
    if entry.changed_by:
        check_id(entry.changed_by, "changed_by")
    created = as_time(jsonl.micros(entry.created_at, "created_at"))
    return msgspec.structs.replace(entry, value=_check_value(stash_type, entry.value), created_at=created)


def _check_value(stash_type: str, given: Any) -> Any:
    value: Any = from_wire(given)
    if stash_type != rows.LOCK:
        rows.check_value(stash_type, value)
    elif value is not None:
        value = _held(value)
    return to_wire(value)


def _held(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or value.keys() != {"holder", "acquired_at"}:
        raise errors.InvalidValue("the value of a lock is null, or has holder and acquired_at", hint="")
    check_name(value["holder"], "holder")
    if value["holder"] in NOBODY:
        raise errors.InvalidHolder(f"{value['holder']!r} cannot hold a lock")
    acquired = msgspec.convert(value["acquired_at"], Time)
    return rows.held_value(value["holder"], jsonl.micros(acquired, "acquired_at"))


def _check_newest(line: StashLine, history: Sequence[EntryLine]) -> None:
    """Raise Invalid unless the newest entry has the version and value of the stash."""
    if not history:
        return
    newest = history[-1]
    if newest.version != line.version:
        raise errors.Invalid(f"it is at version {line.version}, but its history ends at version {newest.version}")
    now, then = from_wire(line.value), from_wire(newest.value)
    if line.stash_type == rows.COUNTER:
        now, then = rows.count_of(now), rows.count_of(then)
    if encode(now) != encode(then):
        raise errors.Invalid(f"its value differs from the newest entry of its history, version {newest.version}")


# --- a new stash -----------------------------------------------------------------------------------------------------


def _scope(tx: Tx, line: StashLine, link: LinkLine) -> str:
    trail = tx.one("SELECT state FROM trails WHERE id = ?", (link.to_id,))
    if trail is None:
        raise errors.Invalid(f"its trail {link.to_id!r} is not here")
    if line.deleted_at is not None and trail[0] != rows.ABANDONED:
        raise errors.Invalid(f"deleted_at is set, but its trail is {trail[0]}")
    if tx.one("SELECT 1 FROM links WHERE id = ?", (link.link_id,)):
        raise errors.Invalid("its link has the id of another one here")
    return link.to_id


def _newest_entry(tx: Tx, line: StashLine) -> EntryLine:
    op = "create" if line.version == 1 else "set"
    if line.stash_type == rows.LOCK and line.version > 1:
        op = "release" if line.value is None else "acquire"
    return EntryLine(
        history_id=tx.new_id(),
        stash_id=line.stash_id,
        version=line.version,
        value=line.value,
        operation=op,  # type: ignore[arg-type]  # one of those above
        created_at=line.updated_at or line.created_at,
    )


def _entry_data(tx: Tx, entry: EntryLine) -> bytes:
    value = msgspec.Raw(encode(from_wire(entry.value), tx.max_value_bytes))
    at = jsonl.micros(entry.created_at, "created_at")
    return _encode({"value": value, "changed_by": entry.changed_by or None, "id": entry.history_id, "at": at})


def _data(tx: Tx, line: StashLine) -> bytes:
    return encode(None if line.stash_type == rows.LOCK else from_wire(line.value), tx.max_value_bytes)


def _insert(tx: Tx, line: StashLine, scope: str) -> None:
    id, data = line.stash_id, _data(tx, line)
    lease = _lease(tx, rows.STASH, tx.actor, line.expires_at, f"{rows.STASH}:{id}")
    times = [jsonl.moment(each, "time") for each in (line.created_at, line.updated_at, line.deleted_at)]
    tx.run(
        "INSERT INTO stashes (id, name, type, trail, version, revision, created, updated, deleted, lease, value)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (id, line.name, line.stash_type, scope, line.version, tx.revision, *times, lease, data),
    )


def _lease(tx: Tx, kind: str, holder: str, end: Time | None, id: str | None = None) -> str | None:
    """A lease that ends when the file says; what should have ended before ends now."""
    return None if end is None else leases.start(tx, kind, holder, max(1, as_microseconds(end) - tx.now), id)


# --- a stash that is here --------------------------------------------------------------------------------------------


def _follow(tx: Tx, row: Row, line: StashLine, history: list[EntryLine], holder: str | None) -> str:
    """Update a stash if everything done to it here is in the file too."""
    here, stored = stash_line(row), rows.Stored(*row[:-1])
    if here == line:
        return jsonl.UNCHANGED
    if any(getattr(here, name) != getattr(line, name) for name in _KEPT):
        return jsonl.DIFFERS
    if line.version < here.version:
        return jsonl.AHEAD
    if line.version == here.version and (here.updated_at, here.value) != (line.updated_at, line.value):
        return jsonl.DIFFERS
    if line.version > here.version and not _continues(tx, line.stash_id, history):
        return jsonl.DIVERGED
    if line.version == here.version and _ends(line) < _ends(here):
        return jsonl.AHEAD
    trail = tx.one("SELECT state FROM trails WHERE id = ?", (stored.trail,))
    if (line.deleted_at is not None) != (trail is not None and trail[0] == rows.ABANDONED):
        return jsonl.DELETED if line.deleted_at is None else "differs: deleted with its trail in the file only; skipped"
    tx.run("UPDATE stashes SET deleted = ? WHERE id = ?", (jsonl.moment(line.deleted_at, "deleted_at"), line.stash_id))
    if line.version > here.version:
        tx.run(
            "UPDATE stashes SET value = ?, version = ?, updated = ?, revision = ? WHERE id = ?",
            (_data(tx, line), line.version, jsonl.moment(line.updated_at, "updated_at"), tx.revision, line.stash_id),
        )
    for entry in history:
        if entry.version > here.version:
            tx.emit(rows.STASH, line.stash_id, entry.operation, version=entry.version, data=_entry_data(tx, entry))
    if line.stash_type == rows.LOCK:
        _hold(tx, line, holder)
    return jsonl.UPDATED


def _ends(line: StashLine) -> float:
    """When a lock ends; one without an end comes last."""
    return float("inf") if line.held_until is None else as_microseconds(line.held_until)


def _continues(tx: Tx, id: str, history: list[EntryLine]) -> bool:
    """Whether the history here is the beginning of that in the file, as far as both still have it."""
    theirs = {entry.version: entry for entry in history}
    own = [entry_line(entry) for entry in rows.entries(tx, id)]
    if not theirs or not own or own[-1].version not in theirs:
        return False
    first = min(theirs)
    return all(same_entry(entry, theirs.get(entry.version)) for entry in own if entry.version >= first)


def same_entry(one: EntryLine, other: EntryLine | None) -> bool:
    """Whether two entries are the same change. A lock expires by itself in every workspace."""
    if other is None or one.version != other.version:
        return False
    return one == other or one.operation == other.operation == _EXPIRE


def _hold(tx: Tx, line: StashLine, only: str | None) -> None:
    """Have the lock of a stash held as in the line, with a new token unless the same holder has it already."""
    target, row = rows.lock_of(line.stash_id), locks.load(tx, rows.lock_of(line.stash_id))
    value: Any = from_wire(line.value)
    holder = str(value["holder"]) if isinstance(value, dict) else None
    if row is not None and holder is not None and rows.held_value(row[1], row[3]) == value:
        deadline = None if line.held_until is None else as_microseconds(line.held_until)
        if row[5] != deadline:
            leases.drop(tx, row[4], target.kind)
            locks.bind(tx, target, _lease(tx, target.kind, holder, line.held_until))
        return
    for name in (holder, None if row is None else row[1]):
        if only is not None and name not in (None, only):
            raise errors.Forbidden(
                f"{line.name!r} is held by {name}: {only} can neither acquire nor release it",
                hint="import it with a token that may act for every agent",
            )
    if row is not None:
        locks.end(tx, target, row, "release")
    if holder is None:
        return
    token, acquired = tx.new_token(), as_microseconds(msgspec.convert(value["acquired_at"], Time))
    bound = _lease(tx, target.kind, holder, line.held_until)
    tx.run(
        "INSERT INTO locks (kind, scope, name, holder, token, acquired, lease) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (*target.key, holder, token, acquired, bound),
    )
    locks.emit_lock(tx, target, "acquire", holder=[None, holder], token=[None, token])


# --- lines of a stash that is here -----------------------------------------------------------------------------------


def compare_entry(tx: Tx, line: EntryLine) -> str:
    """Compare an entry with the history of a stash that was here before."""
    for entry in rows.entries(tx, line.stash_id, line.version):
        return jsonl.UNCHANGED if same_entry(entry_line(entry), line) else jsonl.DIFFERS
    return _missing(tx, line.stash_id, f"differs: the history here has no version {line.version}; skipped")


def put_scope(tx: Tx, line: LinkLine, gone: Set[str], expect: Set[str] = frozenset()) -> str:
    """Put a stash that was here before into the scope of a link, if it was global or its old link is `gone`."""
    row = tx.one(f"SELECT {stash_export.LINK_COLUMNS} FROM links WHERE id = ?", (line.link_id,))
    if row is not None:
        return jsonl.UNCHANGED if link_line(row) == line else jsonl.DIFFERS
    if not tx.one("SELECT 1 FROM stashes WHERE id = ?", (line.from_id,)):
        return _missing(tx, line.from_id, "")
    if newest_version(tx, LINK, "", line.link_id):
        return jsonl.DELETED
    old = tx.one("SELECT id, target FROM links WHERE kind = ? AND source = ?", (rows.SCOPED_TO, line.from_id))
    if old is not None and old[0] not in gone:
        return "differs: the stash has another scope here; skipped"
    if line.to_id in expect:
        return jsonl.CREATED
    states = tx.all("SELECT state FROM trails WHERE id IN (?, ?)", (line.to_id, line.to_id if old is None else old[1]))
    if not states or any(state in rows.ENDED for (state,) in states):
        return "differs: one of its trails has ended or is not here; skipped"
    try:
        rescope(tx, line.from_id, line.to_id)
    except errors.DuplicateName as error:
        return f"differs: {error.message}; skipped"
    if old is not None:
        link_types.untie(tx, rows.SCOPED_TO, line.from_id, old[1])
    write_link(tx, line)
    return jsonl.CREATED


# --- what is gone ----------------------------------------------------------------------------------------------------


def bury(tx: Tx, line: TombstoneLine, left: Set[str]) -> str:
    """Remove what is gone in the file, if nothing done here is lost; `left` are trails that are left alone."""
    kind = stash_export.GONE[line.table]
    if not tx.one(f"SELECT 1 FROM {line.table} WHERE id = ?", (line.id,)):
        if newest_version(tx, kind, "", line.id):
            return jsonl.UNCHANGED
        tx.emit(kind, line.id, "delete", version=line.version)  # so that an older file does not bring it
        return jsonl.CREATED
    return {"stashes": _bury_stash, "trails": _bury_trail, "links": _bury_link}[line.table](tx, line, left)


def _bury_stash(tx: Tx, line: TombstoneLine, left: Set[str]) -> str:
    version, trail, lease = tx.one("SELECT version, trail, lease FROM stashes WHERE id = ?", (line.id,)) or ()
    if trail in left:
        return f"its trail {trail} is left alone; skipped"
    newest = tx.one(
        "SELECT data FROM events WHERE kind = ? AND scope = '' AND id = ? AND data IS NOT NULL"
        " ORDER BY version DESC LIMIT 1",
        (rows.STASH, line.id),
    )
    entry: Any = None if newest is None else decode(newest[0])
    imported = entry is not None and "at" in entry  # only an imported entry has a time of its own
    if not imported or version >= line.version or locks.load(tx, rows.lock_of(line.id)) is not None:
        return "deleted in the file, changed here; skipped"
    erase(tx, line.id, line.version - 1, lease, "delete")
    return jsonl.UPDATED


def _bury_trail(tx: Tx, line: TombstoneLine, left: Set[str]) -> str:
    (version,) = tx.one("SELECT version FROM trails WHERE id = ?", (line.id,)) or (0,)
    if line.id in left or version >= line.version:
        return "deleted in the file, changed here; skipped"
    try:
        tx.run("UPDATE trails SET version = ? WHERE id = ?", (line.version - 1, line.id))  # its last steps there
        trails.delete(tx, line.id)
    except errors.Conflict as error:
        tx.run("UPDATE trails SET version = ? WHERE id = ?", (version, line.id))
        return f"deleted in the file, but here {error.message}; skipped"
    return jsonl.UPDATED


def _bury_link(tx: Tx, line: TombstoneLine, left: Set[str]) -> str:
    kind, source, target = tx.one("SELECT kind, source, target FROM links WHERE id = ?", (line.id,)) or ()
    if target in left or source in left:
        return f"its trail {target if target in left else source} is left alone; skipped"
    if kind in tree.KINDS:  # links of tasks are merged with their tasks
        return jsonl.DIFFERS
    if kind == rows.SCOPED_TO:
        try:
            rescope(tx, source, rows.GLOBAL)
        except (errors.DuplicateName, errors.NotFound) as error:
            return f"differs: {error.message}; skipped"
    link_types.untie(tx, kind, source, target)
    return jsonl.UPDATED


def _missing(tx: Tx, id: str, otherwise: str) -> str:
    if tx.one("SELECT 1 FROM stashes WHERE id = ?", (id,)):
        return otherwise
    if newest_version(tx, rows.STASH, "", id):
        return jsonl.DELETED
    raise errors.Invalid(f"there is no stash {id!r}")
