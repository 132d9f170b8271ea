"""The rows of stashes: loading one, checking a value by its type, writing the next version; and the states of trails.

Every change goes through `write`, which emits the event that history is read from. The value of a lock is never stored:
it is the holder in the row of `locks`, so an expired lock needs no update here. The lock itself is like every other one
(`domains.locks`); each time it is acquired, released or expires, the version of its stash grows by one, in the same
transaction. Called by the stashes, by `trails`, and by imports.
"""

from __future__ import annotations

from typing import Any, Final, get_args

import msgspec

from holdfast import errors
from holdfast.domains import locks
from holdfast.domains.locks import LockAttempt, Target, acquire_by
from holdfast.domains.routing.config import settings_of
from holdfast.domains.tasks.rows import DAY
from holdfast.kernel import leases
from holdfast.kernel.events import Filter, compacted_to, gone, story_page
from holdfast.kernel.tx import Row, Snapshot, Tx
from holdfast.kernel.validate import check_id, check_limit, check_name
from holdfast.kernel.values import decode, encode
from holdfast.operation import Do, Found, Steps
from holdfast.route import LOADING
from holdfast.types import END_OF_REVISION, Grant, Page, as_time
from holdfast.types.stashes import Stash, StashEntry, StashType

TYPES: Final[tuple[StashType, ...]] = get_args(StashType)
COUNTER: Final = "counter"
MAX_HISTORY: Final = 10_000  # entries of a page
LOCK: Final = "lock"
QUEUE: Final = "queue"
CHANNEL: Final = "channel"
# Of what has items: its one setting, its default and its maximum.
_SETTINGS: Final = {QUEUE: ("max_deliveries", 5, 1000), CHANNEL: ("keep", 10_000, 1_000_000)}
_NEEDED: Final = {"resource": ("uri", "kind"), "artifact": ("path", "producer", "checksum"), "context": ()}
_LEAST, _MOST = -(2**63), 2**63 - 1


def one(stash_type: str) -> str:
    """Return a type with its article."""
    return f"an {stash_type}" if stash_type == "artifact" else f"a {stash_type}"


def check_type(stash_type: Any) -> None:
    """Raise InvalidStashType for an unknown type."""
    if stash_type not in TYPES:
        raise errors.InvalidStashType(
            f"{stash_type!r} is not a type of stash", hint=f"types: {', '.join(TYPES)}", types=list(TYPES)
        )


def check_value(stash_type: str, value: Any) -> None:
    """Raise InvalidValue unless a stash of this type can hold the value."""
    if value is None:
        return
    if stash_type == LOCK:
        raise errors.InvalidValue("a lock has no initial value", hint="create it without one, then acquire it")
    if not isinstance(value, dict):
        raise errors.InvalidValue(
            f"the value of {one(stash_type)} must be an object, not {type(value).__name__}", hint=""
        )
    if stash_type == COUNTER:
        count_of(value)
        return
    if stash_type in _SETTINGS:
        setting(stash_type, value)
        return
    for key in _NEEDED[stash_type]:
        if not isinstance(value.get(key), str):
            needed = " and ".join(_NEEDED[stash_type])
            raise errors.InvalidValue(f"{one(stash_type)} needs {needed}, each a str; {key} is not", hint="")


def setting(stash_type: str, value: Any) -> int:
    """Return how often a queue delivers an item, or how many messages a channel keeps. Raises InvalidValue."""
    name, default, most = _SETTINGS[stash_type]
    chosen = default if value is None else value.get(name, default)
    if type(chosen) is not int or not 1 <= chosen <= most or (value and set(value) != {name}):
        raise errors.InvalidValue(
            f'the value of {one(stash_type)} has one setting: "{name}", a whole number from 1 to {most}',
            hint=_ADDING[stash_type],
        )
    return chosen


_ADDING: Final = {
    QUEUE: "items do not go into the value: queues.put(id, value) adds one",
    CHANNEL: "messages do not go into the value: channels.publish(id, value) sends one",
}


def count_of(value: Any) -> int:
    """Return the number in a counter's value, 0 if missing. Raises InvalidValue."""
    count = 0 if value is None else value.get("value", 0)
    if type(count) is not int or (value and set(value) != {"value"}):
        raise errors.InvalidValue('the value of a counter is {"value": integer}', hint="")
    return checked_count(count)


def checked_count(count: int) -> int:
    """Return the number. Raises InvalidValue if it is too large for a counter."""
    if not _LEAST <= count <= _MOST:
        raise errors.InvalidValue(f"{count} is outside of int64", hint="a counter holds -2^63 to 2^63 - 1")
    return count


STASH: Final = "stash"
STASH_LOCK: Final = "stash-lock"
GLOBAL: Final = ""
SCOPED_TO: Final = "scoped_to"
StashId = str | tuple[str | None, str]  # an id, or (trail, name); see `spelled`

COLUMNS: Final = (
    "s.id, s.name, s.type, s.value, s.version, s.trail, s.created, s.updated, s.revision, s.lease,"
    " k.holder, k.token, k.acquired, l.deadline, e.deadline"
)
SOURCE: Final = (
    "stashes s LEFT JOIN locks k ON k.kind = 'stash-lock' AND k.scope = '' AND k.name = s.id"
    " LEFT JOIN leases l ON l.id = k.lease LEFT JOIN leases e ON e.id = s.lease"
)
_encode = msgspec.msgpack.Encoder().encode


class Stored(msgspec.Struct, frozen=True):
    """A stash as stored, with its holder if it is a lock."""

    id: str
    name: str
    type: str
    data: bytes
    version: int
    trail: str
    created: int
    updated: int
    revision: int
    lease: str | None
    holder: str | None
    token: int | None
    acquired: int | None
    until: int | None
    deadline: int | None

    @property
    def value(self) -> Any:
        """Its value; for a lock, the holder and the time of acquisition."""
        if self.type != LOCK:
            return decode(self.data)
        if self.holder is None or self.acquired is None:
            return None
        return held_value(self.holder, self.acquired)


def held_value(holder: str, acquired: int) -> dict[str, str]:
    """The value of a held lock."""
    return {"holder": holder, "acquired_at": as_time(acquired).isoformat().replace("+00:00", "Z")}


def lock_of(id: str) -> Target:
    """Return the lock of a stash."""
    return Target(STASH_LOCK, "", id)


def to_stash(stored: Stored) -> Stash:
    """Return the public form."""
    return Stash(
        id=stored.id,
        name=stored.name,
        stash_type=stored.type,  # type: ignore[arg-type]  # checked when it was stored
        value=stored.value,
        version=stored.version,
        trail=stored.trail or None,
        created_at=as_time(stored.created),
        updated_at=as_time(stored.updated),
        revision=stored.revision,
        token=stored.token,
        held_until=None if stored.until is None else as_time(stored.until),
        expires_at=None if stored.deadline is None else as_time(stored.deadline),
    )


def find(snapshot: Snapshot, id: StashId) -> Stored | None:
    """Return a live stash by its id or by (trail, name), or None."""
    where, params = _by(id)
    row = snapshot.one(
        f"SELECT {COLUMNS}, (SELECT stamp FROM meta) FROM {SOURCE} WHERE {where} AND s.deleted IS NULL", params
    )
    return None if row is None else _alive(snapshot, row)


def id_of(snapshot: Snapshot, trail: str, name: str) -> str | None:
    """Return the id of the stash with a name in a scope, or None."""
    row = snapshot.one("SELECT id FROM stashes WHERE trail = ? AND name = ? AND deleted IS NULL", (trail, name))
    return None if row is None else str(row[0])


def spelled(id: StashId) -> str:
    """Return a stash's reference as one text: its id, TRAIL/NAME, or /NAME for a global one. Raises InvalidID.

    Used in addresses and on command lines; no id has a slash.
    """
    parts = id.split("/", 1) if isinstance(id, str) and "/" in id else id
    if not isinstance(parts, tuple | list):
        check_id(parts)
        return parts
    if len(parts) != 2:
        raise errors.InvalidID(f"a stash is given by its id or by (trail, name), not {id!r}")
    trail, name = parts
    check_id(name, "name")
    if trail is None or trail == GLOBAL:
        return f"/{name}"
    check_id(trail, "trail")
    if "/" in trail:
        raise errors.InvalidID(f"{trail!r} is not the id of a trail")
    return f"{trail}/{name}"


def _by(id: StashId) -> tuple[str, tuple[str, ...]]:
    first, slash, name = spelled(id).partition("/")
    return ("s.trail = ? AND s.name = ?", (first, name)) if slash else ("s.id = ?", (first,))


def _alive(snapshot: Snapshot, row: Row) -> Stored | None:
    """Treat an expired stash or lock as gone, even if it is not swept yet."""
    stored, stamp = Stored(*row[:-1]), row[-1]
    if stored.deadline is not None and snapshot.is_past(stored.deadline, stamp):
        return None
    if stored.until is not None and snapshot.is_past(stored.until, stamp):
        # The version that the sweep will write: it runs before any write, so a save will find that version.
        return msgspec.structs.replace(
            stored, version=stored.version + 1, holder=None, token=None, acquired=None, until=None
        )
    return stored


def require(snapshot: Snapshot, id: StashId) -> Stored:
    """Return a live stash. Raises NotFound."""
    stored = find(snapshot, id)
    if stored is None:
        named = spelled(id)
        what = f"global stash {named[1:]!r}" if named.startswith("/") else f"stash {named}"
        raise errors.NotFound(f"there is no {what}", hint="stashes.list() lists them", id=named)
    return stored


def check_version(stored: Stored, expected: int | None) -> None:
    """Raise VersionMismatch unless the stash is at the version that the caller has seen."""
    if expected is not None and (type(expected) is not int or expected < 1):
        raise errors.Invalid(f"expected must be a version (1 or more), not {expected!r}")
    if expected is not None and expected != stored.version:
        raise errors.VersionMismatch(
            f"the stash {stored.name!r} is at version {stored.version}, not {expected}",
            hint="load it again, and apply the change to the current value",
            expected=expected,
            version=stored.version,
            value=stored.value,
        )


def insert(tx: Tx, name: str, stash_type: str, trail: str, value: Any, ttl: int | None) -> str:
    """Insert a stash at version 0, for `write` to make it 1. Raises DuplicateName."""
    check_free(tx, trail, name)
    id = tx.new_id()
    lease = None if ttl is None else leases.start(tx, STASH, tx.actor, ttl, f"{STASH}:{id}")
    tx.run(
        "INSERT INTO stashes (id, name, type, trail, version, revision, created, updated, deleted, lease, value)"
        " VALUES (?, ?, ?, ?, 0, ?, ?, ?, NULL, ?, ?)",
        (id, name, stash_type, trail, tx.revision, tx.now, tx.now, lease, encode(value, tx.max_value_bytes)),
    )
    return id


def check_free(tx: Tx, trail: str, name: str) -> None:
    """Raise DuplicateName if a scope has a stash of this name."""
    check_name(name, "stash name")
    taken = id_of(tx, trail, name)
    if taken is not None:
        scope = f"the trail {trail}" if trail else "the global stashes"
        raise errors.DuplicateName(
            f"{scope} already has a stash {name!r}", hint="choose another name", name=name, id=taken
        )


def write(tx: Tx, id: str, op: str, version: int, value: Any, changed_by: str | None = None) -> None:
    """Write the next version of a stash and its history entry. The value of a lock is not stored."""
    if changed_by:
        _check_task(tx, changed_by)
    data = encode(value, tx.max_value_bytes)
    tx.run(
        "UPDATE stashes SET version = ?, revision = ?, updated = ?,"
        " value = CASE type WHEN 'lock' THEN value ELSE ? END WHERE id = ?",
        (version, tx.revision, tx.now, data, id),
    )
    entry = {"value": msgspec.Raw(data), "changed_by": changed_by or None, "id": tx.new_id()}
    tx.emit(STASH, id, op, version=version, data=_encode(entry))


def erase_items(tx: Tx, id: str, op: str) -> None:
    """Remove the items of a stash that has any."""
    row = tx.one("SELECT type FROM stashes WHERE id = ?", (id,))
    if row is not None and row[0] in _SETTINGS:
        with LOADING:
            from holdfast.domains.stashes import channels, queue_rows

        (queue_rows if row[0] == QUEUE else channels).erase(tx, id, op)


def _check_task(tx: Tx, changed_by: str) -> None:
    """Raise InvalidID or TaskNotFound unless a task has this id; it may be deleted."""
    check_id(changed_by, "changed_by")
    if not tx.one("SELECT 1 FROM tasks WHERE id = ?", (changed_by,)):
        hint = "give the exact id of the task that makes the change, or leave it out; the actor is in the log anyway"
        raise errors.TaskNotFound(f"changed_by {changed_by!r} is not the id of a task", hint=hint, id=changed_by)


TRAIL: Final = "trail"
COMPLETED: Final = "completed"
ABANDONED: Final = "abandoned"
ENDED: Final = (COMPLETED, ABANDONED)
# State -> the states that `set_state` leads to; `abandon` is possible from each of them, `complete` from active.
STEPS: Final[dict[str, tuple[str, ...]]] = {"draft": ("pending", "active"), "pending": ("active",), "active": ()}
# State -> the states that any step leads to.
WAYS: Final = {state: (*steps, *(ENDED if state == "active" else (ABANDONED,))) for state, steps in STEPS.items()}
_MANY: Final = 8  # steps, after which only abandoning and restoring remain, in pairs


def leads(start: tuple[str, str], end: tuple[str, str], steps: int) -> bool:
    """Whether `steps` steps can lead from one (state, before) to another; `before` is the state when abandoned."""
    places = {start}
    for _ in range(min(steps, _MANY + steps % 2)):
        places = {following for place in places for following in _following(*place)}
    return end in places


def _following(state: str, before: str) -> list[tuple[str, str]]:
    if state == ABANDONED:
        return [(before, "")]
    return [(following, state if following == ABANDONED else "") for following in WAYS.get(state, ())]


def taken(snapshot: Snapshot, id: str, version: int) -> list[str]:
    """Return the tasks deleted with an abandoned trail, according to its event: others were deleted before."""
    event = snapshot.one(
        "SELECT data FROM events WHERE kind = ? AND scope = '' AND id = ? AND version = ?", (TRAIL, id, version)
    )
    data: Any = {} if event is None else decode(event[0])
    found: list[str] = data.get("tasks", [[]])[0]
    return found


def plan_purge(tx: Tx, id: str) -> None:
    """Keep the stashes of an abandoned trail as long as deleted tasks are kept: the timer is a lease."""
    days = settings_of(tx).config.soft_delete_days
    if days is not None:
        leases.start(tx, TRAIL, tx.actor, max(1, round(days * DAY)), purge_of(id))


def stop_purge(tx: Tx, id: str) -> None:
    """Stop the timer of `plan_purge`."""
    leases.drop(tx, purge_of(id), TRAIL)


def purge_of(id: str) -> str:
    """Return the id of the lease that is the timer."""
    return f"{TRAIL}:{id}"


def history(snapshot: Snapshot, id: StashId, limit: int = MAX_HISTORY, after: int | None = None) -> Page[StashEntry]:
    """Return the saved changes of a stash, oldest first, above version `after`; of compacted ones what is left.

    Raises NotFound, or Compacted for an `after` below what is left.
    """
    check_limit(limit, MAX_HISTORY, "after a version")
    if after is not None and (type(after) is not int or not 0 <= after <= END_OF_REVISION):
        raise errors.InvalidFilter(f"after must be a version, not {after!r}")
    rows, more, compacted = story_page(snapshot, STASH, "", require(snapshot, id).id, after, limit)
    page = Page(to_entry((row[6], row[8], row[7], row[2], row[10])) for row in rows)
    page.cursor = str(page[-1].version) if more else None
    page.compacted = compacted
    return page


def entries(snapshot: Snapshot, id: str, version: int | None = None) -> list[StashEntry]:
    """The history of a stash, or of it the entry of a version."""
    where, params = ("", ()) if version is None else (" AND version = ?", (version,))
    rows = snapshot.all(
        f"SELECT id, version, op, time, data FROM events WHERE kind = ? AND scope = '' AND id = ?{where}"
        " AND data IS NOT NULL ORDER BY version",
        (STASH, id, *params),
    )
    return [to_entry(row) for row in rows]


def to_entry(row: Row) -> StashEntry:
    """The entry of an event: its id, version, op, time and data."""
    id, version, op, time, data = row
    entry: Any = decode(data)
    at = as_time(entry.get("at", time))  # an imported entry has its original time
    return StashEntry(entry["id"], id, version, entry["value"], op, entry["changed_by"], at)


def value_at(snapshot: Snapshot, id: str, version: int) -> Any:
    """Return the value that a stash had at a version. Raises NotFound if it never had that version, or Compacted."""
    hint = "stashes.history(id) lists them"
    if type(version) is not int or version < 1:
        raise errors.Invalid(f"version must be an int of 1 or more, not {version!r}", hint=hint)
    for entry in entries(snapshot, id, min(version, END_OF_REVISION)):
        return entry.value
    oldest = next(iter(entries(snapshot, id)), None)
    if oldest is not None and version < oldest.version:
        raise gone(compacted_to(snapshot))
    raise errors.NotFound(f"the history of {id} has no version {version}", hint=hint)


def acquire(
    id: StashId,
    holder: str | None = None,
    ttl: float | None = None,
    wait: float | None = None,
    changed_by: str | None = None,
) -> Steps[Grant]:
    """Acquire a lock stash, or enter it again, waiting for up to `wait` seconds. Raises Held if another holds it."""
    _check_holder(holder)
    own: str = yield Do(lambda tx: _require_lock(tx, id))
    attempt = _Attempt(lock_of(own), holder, ttl, changed_by)
    grant: Grant = yield from acquire_by(attempt, wait, Filter((STASH_LOCK,), "", own))
    return grant


def release(
    tx: Tx, id: StashId, holder: str | None = None, token: int | None = None, changed_by: str | None = None
) -> int:
    """Release a lock stash and return its version. Raises NotHolder, or Fenced for a wrong or lost token."""
    _check_holder(holder)
    own = _require_lock(tx, id)
    if not locks.release_target(tx, lock_of(own), holder, token, changed_by):
        raise errors.NotHolder(f"nobody holds the stash {own}", holder=None)
    return require(tx, own).version


def refresh(
    tx: Tx, id: StashId, holder: str | None = None, ttl: float | None = None, token: int | None = None
) -> Grant:
    """Renew a lock stash, by default for as long as it was granted, without a new version. Raises Fenced if lost."""
    _check_holder(holder)
    return locks.renew_target(tx, lock_of(_require_lock(tx, id)), holder, ttl, token)


def check_token(snapshot: Snapshot, id: StashId, token: int) -> None:
    """Raise Fenced unless a lock stash is held with exactly this token."""
    locks.check_fence(snapshot, lock_of(_require_lock(snapshot, id)), token)


class _Attempt(LockAttempt):
    """The attempt to take the lock of one stash."""

    def __init__(self, target: Target, holder: str | None, ttl: float | None, changed_by: str | None) -> None:
        super().__init__(target, holder, ttl, None)
        self._changed_by = changed_by

    def __call__(self, tx: Tx) -> Grant:
        _require_lock(tx, self._target.name)
        grant = super().__call__(tx)
        stored = require(tx, self._target.name)
        write(tx, stored.id, "acquire", stored.version + 1, stored.value, self._changed_by)
        return grant


def freed(tx: Tx, id: str, op: str, changed_by: str | None) -> None:
    """Add a version to the stash whose lock was released or has expired."""
    stored = find(tx, id)
    if stored is not None:
        write(tx, stored.id, op, stored.version + 1, None, changed_by)


def probe_lock(tx: Tx, id: str) -> Found | None:
    """What a condition sees of the lock that a stash is, while it is held."""
    stored = find(tx, id)
    return None if stored is None else locks.probe_target(tx, lock_of(stored.id))


def _require_lock(snapshot: Snapshot, id: StashId) -> str:
    return require_type(snapshot, id, LOCK).id


def require_type(snapshot: Snapshot, id: StashId, wanted: str) -> Stored:
    """Return a live stash of a type. Raises NotFound or InvalidStashType."""
    stored = require(snapshot, id)
    if stored.type != wanted:
        raise errors.InvalidStashType(
            f"the stash {stored.name!r} is {one(stored.type)}, not {one(wanted)}", id=stored.id
        )
    return stored


def _check_holder(holder: str | None) -> None:
    if holder == "":
        raise errors.InvalidHolder("the holder is empty", hint="name the holder")
