"""Putting imported records into the store: with their ids, times and versions, if they are new here.

Each answers CREATED, UNCHANGED or why it was left alone; what cannot be put raises before anything was written.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains import holding, links
from holdfast.domains.stashes.exporting import (
    LINK_COLUMNS,
    TRAIL,
    TRAIL_COLUMNS,
    EntryLine,
    LinkLine,
    StashLine,
    Time,
    TrailLine,
    entry_line,
    link_line,
    stash_line,
)
from holdfast.domains.stashes.rows import COLUMNS, GLOBAL, SOURCE, STASH, check_free, held_value, lock_of
from holdfast.domains.stashes.values import LOCK, check_value
from holdfast.domains.tasks import depending
from holdfast.domains.tasks.records import moment
from holdfast.kernel import leases
from holdfast.kernel.names import check_id, check_name
from holdfast.kernel.tx import Tx, newest_version
from holdfast.kernel.values import encode
from holdfast.kernel.wire import from_wire, to_wire
from holdfast.types.base import as_microseconds, as_time

CREATED: Final = "created"
UNCHANGED: Final = "unchanged"
DIFFERS: Final = "here already, and not the same: left alone"
GONE: Final = "deleted here: what is deleted does not come back"
ENDS: Final[dict[str, tuple[str, str]]] = {  # the tables of what a link leads from and to
    "belongs_to": ("tasks", "trails"),
    "child_of": ("tasks", "tasks"),
    "branches_from": ("trails", "tasks"),
    "scoped_to": ("stashes", "trails"),
    **dict.fromkeys(depending.KINDS, ("tasks", "tasks")),
}
_encode = msgspec.msgpack.Encoder().encode


def put_trail(tx: Tx, line: TrailLine) -> str:
    """Put a trail."""
    name = line.name or line.trail_id
    check_name(name, "name")
    created = _micros(line.created_at, "created_at")
    updated = _micros(line.updated_at or line.completed_at or line.created_at, "updated_at")
    ended = moment(line.completed_at, "completed_at")
    before: str = line.before or ""
    if line.state in ("completed", "abandoned"):
        ended = updated if ended is None else ended
    elif ended is not None:
        raise errors.Invalid(f"it is {line.state} and has a completed_at")
    if line.state == "abandoned":
        before = before or "active"
    if (before in ("completed", "abandoned")) or ((before or line.tasks) and line.state != "abandoned"):
        raise errors.Invalid(
            "before and tasks tell of a trail that was abandoned, and before is where it can go back to"
        )
    wanted = (line.trail_id, name, line.state, line.version, created, updated, ended, before)
    row = tx.one(f"SELECT {TRAIL_COLUMNS} FROM trails WHERE id = ?", (line.trail_id,))
    if row is not None:
        return UNCHANGED if row == wanted else DIFFERS
    if newest_version(tx, TRAIL, "", line.trail_id):
        return GONE
    tx.run(f"INSERT INTO trails ({TRAIL_COLUMNS}, revision) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*wanted, tx.revision))
    told: dict[str, Any] = {"name": [None, name], "state": [None, line.state]}
    if line.state == "abandoned":
        told["tasks"] = [list(line.tasks), []]  # which `restore` brings back
    tx.emit(TRAIL, line.trail_id, "import", version=line.version, data=_encode(told))
    return CREATED


# --- stashes ---------------------------------------------------------------------------------------------------------


def put_stash(tx: Tx, line: StashLine, link: LinkLine | None, history: list[EntryLine]) -> str:
    """Put a stash with its scope and its history; an entry of its newest version is added if none is there."""
    line = _checked(line)
    row = tx.one(f"SELECT {COLUMNS}, s.deleted FROM {SOURCE} WHERE s.id = ?", (line.stash_id,))
    if row is not None:
        return UNCHANGED if stash_line(row) == line else DIFFERS
    if newest_version(tx, STASH, "", line.stash_id):
        return GONE
    if not any(entry.version == line.version for entry in history):
        history = [*history, _newest_entry(tx, line)]
    entries = [(entry, _entry_data(tx, entry)) for entry in history]
    scope = GLOBAL if link is None else _scope(tx, line, link)
    if line.deleted_at is None:
        check_free(tx, scope, line.name)
    elif scope == GLOBAL:
        raise errors.Invalid("deleted_at tells that it went with its trail, and it has none")
    _insert(tx, line, scope)
    for entry, data in entries:
        tx.emit(STASH, line.stash_id, entry.operation, version=entry.version, data=data)
    if link is not None:
        _put(tx, link)
    return CREATED


def _checked(line: StashLine) -> StashLine:
    """A line as an export would have it."""
    check_name(line.name, "name")
    value: Any = from_wire(line.value)
    if line.stash_type != LOCK:
        check_value(line.stash_type, value)
    elif value is not None:
        value = _held(value)
        if line.deleted_at is not None:
            raise errors.Invalid("a lock that is held cannot be deleted")
    if line.held_until is not None and (line.stash_type != LOCK or value is None):
        raise errors.Invalid("held_until tells of a lock that is held")
    times = {name: getattr(line, name) for name in ("held_until", "expires_at", "deleted_at")}
    times |= {"created_at": line.created_at, "updated_at": line.updated_at or line.created_at}
    shown = {name: time if time is None else as_time(_micros(time, name)) for name, time in times.items()}
    return msgspec.structs.replace(line, value=to_wire(value), **shown)


def _held(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or value.keys() != {"holder", "acquired_at"}:
        raise errors.InvalidValue("the value of a lock is null, or who holds it: holder and acquired_at", hint="")
    check_name(value["holder"], "holder")
    if value["holder"] in holding.NOBODY:
        raise errors.InvalidHolder(f"{value['holder']!r} cannot hold a lock")
    acquired = msgspec.convert(value["acquired_at"], Time)
    return held_value(value["holder"], _micros(acquired, "acquired_at"))


def _scope(tx: Tx, line: StashLine, link: LinkLine) -> str:
    trail = tx.one("SELECT state FROM trails WHERE id = ?", (link.to_id,))
    if trail is None:
        raise errors.Invalid(f"its link {link.link_id} leads to the trail {link.to_id!r}, which is not here")
    if line.deleted_at is not None and trail[0] != "abandoned":
        raise errors.Invalid(f"deleted_at tells that it went with its trail, which is {trail[0]}")
    if tx.one("SELECT 1 FROM links WHERE id = ?", (link.link_id,)):
        raise errors.Invalid(f"its link {link.link_id} is another one here")
    return link.to_id


def _newest_entry(tx: Tx, line: StashLine) -> EntryLine:
    op = "create" if line.version == 1 else "set"
    if line.stash_type == LOCK and line.version > 1:
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
    if entry.changed_by:
        check_id(entry.changed_by, "changed_by")
    value = msgspec.Raw(encode(from_wire(entry.value), tx.max_value_bytes))
    at = _micros(entry.created_at, "created_at")
    return _encode({"value": value, "changed_by": entry.changed_by or None, "id": entry.history_id, "at": at})


def _insert(tx: Tx, line: StashLine, scope: str) -> None:
    id, value = line.stash_id, from_wire(line.value)
    data = encode(None if line.stash_type == LOCK else value, tx.max_value_bytes)
    token = tx.new_token() if line.stash_type == LOCK and value is not None else None
    lease = _lease(tx, STASH, tx.actor, line.expires_at, f"{STASH}:{id}")
    times = [moment(each, "time") for each in (line.created_at, line.updated_at, line.deleted_at)]
    tx.run(
        "INSERT INTO stashes (id, name, type, trail, version, revision, created, updated, deleted, lease, value)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (id, line.name, line.stash_type, scope, line.version, tx.revision, *times, lease, data),
    )
    if token is not None and isinstance(value, dict):
        target, holder = lock_of(id), str(value["holder"])
        acquired = as_microseconds(msgspec.convert(value["acquired_at"], Time))
        bound = _lease(tx, target.kind, holder, line.held_until)
        tx.run(
            "INSERT INTO locks (kind, scope, name, holder, token, acquired, lease) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*target.key, holder, token, acquired, bound),
        )
        holding.emit(tx, target, "acquire", holder=[None, holder], token=[None, token])


def _lease(tx: Tx, kind: str, holder: str, end: Time | None, id: str | None = None) -> str | None:
    """What ends when the file says so; what should have ended before ends now, like all that does."""
    return None if end is None else leases.start(tx, kind, holder, max(1, as_microseconds(end) - tx.now), id)


def see_entry(tx: Tx, line: EntryLine) -> str:
    """What the history of a stash that was here before has of an entry."""
    row = tx.one(
        "SELECT id, version, op, time, data FROM events WHERE kind = ? AND scope = '' AND id = ? AND version = ?"
        " AND data IS NOT NULL",
        (STASH, line.stash_id, line.version),
    )
    if row is not None:
        return UNCHANGED if entry_line(row) == line else DIFFERS
    return _of_a_stash(tx, line.stash_id, f"the history here has no version {line.version}: left alone")


def _of_a_stash(tx: Tx, id: str, otherwise: str) -> str:
    if tx.one("SELECT 1 FROM stashes WHERE id = ?", (id,)):
        return otherwise
    if newest_version(tx, STASH, "", id):
        return GONE
    raise errors.Invalid(f"there is no stash {id!r}")


# --- links -----------------------------------------------------------------------------------------------------------


def see_scope(tx: Tx, line: LinkLine) -> str:
    """What there is of the scope of a stash that was here before."""
    row = tx.one(f"SELECT {LINK_COLUMNS} FROM links WHERE id = ?", (line.link_id,))
    if row is not None:
        return UNCHANGED if link_line(row) == line else DIFFERS
    return _of_a_stash(tx, line.from_id, "the stash is here already, in another scope: left alone")


def put_link(tx: Tx, line: LinkLine, made: set[str]) -> str:
    """Put a link that is no scope; `made` are the tasks of this import, whose links have ids that nobody has seen."""
    row = tx.one(f"SELECT {LINK_COLUMNS} FROM links WHERE id = ?", (line.link_id,))
    if row is not None:
        return UNCHANGED if link_line(row) == line else DIFFERS
    kind, source, target = line.link_type, line.from_id, line.to_id
    missing = [
        f"there is no {table[:-1]} {id!r}"
        for table, id in zip(ENDS[kind], (source, target), strict=True)
        if not tx.one(f"SELECT 1 FROM {table} WHERE id = ?", (id,))
    ]
    if missing:
        raise errors.Invalid("; ".join(missing))
    created = _micros(line.created_at, "created_at")
    there = tx.one("SELECT id FROM links WHERE kind = ? AND source = ? AND target = ?", (kind, source, target))
    if there is not None and source not in made:
        return f"here already, as {there[0]}: left alone"
    if kind in depending.KINDS:
        if there is None:
            depending.depend(tx, source, target, kind)
        tx.run(
            "UPDATE links SET id = ?, created = ? WHERE kind = ? AND source = ? AND target = ?",
            (line.link_id, created, kind, source, target),
        )
        return CREATED
    _check_fits(tx, kind, source, target)
    _put(tx, line)
    return CREATED


def _check_fits(tx: Tx, kind: str, source: str, target: str) -> None:
    if kind == "child_of":
        path = [source] if source == target else links.path(tx, kind, target, source)
        if path is not None:
            raise errors.Invalid(f"that would be a circle: {' -> '.join([source, *path])}")
    elif others := links.targets(tx, kind, source):
        raise errors.Invalid(f"{source} has a link of this type, to {others[0]}; it can have one")
    if kind == "belongs_to" and tx.one("SELECT 1 FROM trails WHERE id = ? AND state = 'completed'", (target,)):
        raise errors.Invalid(f"the trail {target} is completed: nothing belongs to it")


def _put(tx: Tx, line: LinkLine) -> None:
    created = _micros(line.created_at, "created_at")
    links.put(tx, line.link_id, line.link_type, line.from_id, line.to_id, created)


def _micros(time: Time, what: str) -> int:
    found = moment(time, what)
    assert found is not None
    return found
