"""The rows of tasks: loading one, changing one, and updating what depends on it.

Every change of a task goes through `change`: it writes the row, emits the one event that history is read from, and
updates what readiness depends on: the counters of parent and dependents, and the tags of ready tasks. Invariant: after
each transaction the counters are what `check` would count.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains import link_types
from holdfast.domains.routing.config import settings_of
from holdfast.domains.tasks.tags import index_tags, tidy_tags
from holdfast.kernel import leases
from holdfast.kernel.tx import SYSTEM, Row, Snapshot, Tx, index_text, unindex_text
from holdfast.kernel.validate import after_prefix, check_name
from holdfast.route import LOADING
from holdfast.types import as_time
from holdfast.types.tasks import Origin, Ref, Task, TaskStatus, TaskType

TASK: Final = "task"
DEPENDS_ON: Final = "depends_on"
ACTIVE: Final = ("in_progress", "pending_merge")

DEFER: Final = "defer"
_DEFERRED: Final = "CASE WHEN t.waits > 0 THEN (SELECT deadline FROM leases WHERE id = -t.record) END"
COLUMNS: Final = (
    "t.seq, t.record, t.id, t.status, t.priority, t.waits, t.busy, t.children, t.ended, t.type, t.parent, t.depth,"
    " t.version, t.revision, t.created, t.updated, t.deleted, t.deletion, t.holder, t.claimed, t.token, t.ttl,"
    " t.parked, t.hint, t.grimoire, t.review, t.tags, t.title, (SELECT body FROM task_texts WHERE seq = t.seq),"
    " (SELECT id FROM tasks WHERE seq = t.parent),"
    " (SELECT deadline FROM leases WHERE id = t.record AND t.holder IS NOT NULL), t.assignee,"
    f" {_DEFERRED}, t.refs, t.imported, t.origin"
)
# The same of ready tasks: what is alike in all of them is not read.
READY_COLUMNS: Final = (
    "t.seq, t.record, t.id, 'open', t.priority, 0, 0, t.children, t.ended, t.type, t.parent, t.depth, t.version,"
    " t.revision, t.created, t.updated, NULL, NULL, NULL, NULL, NULL, NULL, 0, t.hint, t.grimoire, t.review,"
    " t.tags, t.title, (SELECT body FROM task_texts WHERE seq = t.seq), (SELECT id FROM tasks WHERE seq = t.parent),"
    " NULL, NULL, NULL, t.refs, t.imported, t.origin"
)
_BY_ID: Final = f"SELECT {COLUMNS} FROM tasks t WHERE t.id = ?"
_BY_ID_AND_STAMP: Final = f"SELECT {COLUMNS}, (SELECT stamp FROM meta) FROM tasks t WHERE t.id = ?"

# The columns whose changes are recorded in history, with their names there.
HISTORY: Final = {
    **{name: name for name in ("status", "priority", "type", "token", "grimoire", "title")},
    **{"holder": "claimed_by", "hint": "grimoire_hint", "assignee": "assigned_to"},
}
_CLAIM: Final = (
    "UPDATE tasks SET status = 'in_progress', holder = ?1, claimed = ?2, token = ?3, ttl = ?4, grimoire = ?5,"
    " review = ?6, version = ?7, revision = ?8, updated = ?2 WHERE seq = ?9"
)
_encode = msgspec.msgpack.Encoder().encode
_tags = lru_cache(10_000)(msgspec.json.Decoder(tuple[str, ...]).decode)  # the same ones come again and again
_shared_time = lru_cache(16)(as_time)  # all claims of a group begin at one time, and most end at one
_updates: dict[tuple[str, ...], str] = {}


class Stored(msgspec.Struct, frozen=True):
    """A task as stored."""

    seq: int
    record: int
    id: str
    status: TaskStatus
    priority: int
    waits: int
    busy: int
    children: int
    ended: int
    type: TaskType
    parent: int | None
    depth: int
    version: int
    revision: int
    created: int
    updated: int
    deleted: int | None
    deletion: int | None
    holder: str | None
    claimed: int | None
    token: int | None
    ttl: int | None
    parked: int
    hint: str | None
    grimoire: str | None
    review: int
    tags: str
    title: str
    body: str
    parent_id: str | None
    deadline: int | None
    assignee: str | None = None
    deferred: int | None = None
    refs: str | None = None
    imported: int | None = None
    origin: str | None = None

    @property
    def startable(self) -> bool:
        """Whether it is ready, for its assignee or for everybody."""
        return self.status == "open" and not self.waits and not self.busy and self.deleted is None

    @property
    def ready(self) -> bool:
        """Whether `claim_next` may claim it for anybody."""
        return self.startable and self.assignee is None

    @property
    def active(self) -> bool:
        """Whether it is in progress or under review: its parent must wait."""
        return self.status in ACTIVE

    @property
    def finished(self) -> bool:
        """Whether its dependents need not wait: it is closed or deleted."""
        return self.status == "closed" or self.deleted is not None

    def counts(self, strict: bool) -> tuple[int, int, int]:
        """What its parent counts of it: whether it must wait for it, whether it is there, whether it is done."""
        there, done = self.deleted is None, self.deleted is None and self.status == "closed"
        return (there and not done) if strict else self.active, there, done

    @property
    def tag_list(self) -> tuple[str, ...]:
        """Its tags."""
        return () if self.tags == "[]" else _tags(self.tags)


def to_task(task: Stored) -> Task:
    """Return the public form."""
    updated = as_time(task.updated)
    claimed = task.claimed
    return Task(
        task.id,
        task.title,
        task.body,
        task.type,
        task.status,
        task.priority,
        task.parent_id,
        task.depth,
        task.tag_list,
        task.holder,
        None if claimed is None else updated if claimed == task.updated else as_time(claimed),
        task.hint,
        task.grimoire,
        as_time(task.created),
        updated,
        None if task.deleted is None else as_time(task.deleted),
        task.version,
        task.revision,
        task.token,
        None if task.deadline is None else as_time(task.deadline),
        None if task.imported is None else origin_of(task),
        task.children,
        task.ended,
        task.assignee,
        None if task.deferred is None else as_time(task.deferred),
        () if task.refs is None else refs_of(task.refs),
        task.status == "open" and bool(task.waits or task.busy) and task.deleted is None,
        bool(task.parked),
    )


def refs_of(stored: str) -> tuple[Ref, ...]:
    """Return references from the form in which the row of a task stores them."""
    return tuple(Ref(*pair) for pair in msgspec.json.decode(stored))


_origin = msgspec.json.Decoder(dict[str, Any]).decode


def origin_of(task: Stored) -> Origin:
    """Return where an imported task comes from."""
    return msgspec.convert({**_origin(task.origin or ""), "imported_at": as_time(task.imported or 0)}, Origin)


# --- finding one -----------------------------------------------------------------------------------------------------


def missing(id: str, hint: str | None = None) -> errors.TaskNotFound:
    """The error for a task that does not exist."""
    return errors.TaskNotFound(f"there is no task {id!r}", hint=hint, id=id)


def require(tx: Tx, id: str, *, deleted: bool = False) -> Stored:
    """Return the task to change, by its exact id. Raises TaskNotFound if there is none, or if it is deleted."""
    check_name(id, "id")
    row = tx.one(_BY_ID, (id,))
    if row is None:
        found = _candidates(tx, id, deleted)
        raise missing(id, f"writes need the exact id: {', '.join(found)}" if found else None)
    task = Stored(*row)
    if task.deleted is not None and not deleted:
        raise missing(id, f'it is deleted; restore it with tasks.restore("{id}")')
    return task


def by_seq(tx: Tx, seq: int) -> Stored:
    """Return the task with this number, which must exist."""
    row = tx.one(f"SELECT {COLUMNS} FROM tasks t WHERE t.seq = ?", (seq,))
    assert row is not None
    return Stored(*row)


def by_record(tx: Tx, record: int) -> Stored:
    """Return the task of a claim, by the key of its record."""
    row = tx.one(f"SELECT {COLUMNS} FROM records r JOIN tasks t ON t.id = r.id WHERE r.key = ?", (record,))
    assert row is not None
    return Stored(*row)


def find(snapshot: Snapshot, id: str, *, deleted: bool = False) -> Stored:
    """Return a task by its id or an unambiguous prefix; an expired claim does not count. Raises TaskNotFound."""
    check_name(id, "id")
    row = snapshot.one(_BY_ID_AND_STAMP, (id,))
    if row is None:
        row = snapshot.one(_BY_ID_AND_STAMP, (_unabbreviated(snapshot, id, deleted),))
        if row is None:
            raise missing(id)
    task = as_seen(snapshot, row)
    if task.deleted is not None and not deleted:
        shows = f'tasks.get("{task.id}", include_deleted=True) shows it'
        raise missing(id, f'it is deleted; {shows}, tasks.restore("{task.id}") restores it')
    return task


def as_seen(snapshot: Snapshot, row: Row) -> Stored:
    """Return a row of COLUMNS and the stamp as a reader sees it: without a claim or a deferral that has ended."""
    task = Stored(*row[:-1])
    if task.deferred is not None and snapshot.is_past(task.deferred, row[-1]):
        task = msgspec.structs.replace(task, deferred=None, waits=task.waits - 1)
    if task.deadline is None or not snapshot.is_past(task.deadline, row[-1]):
        return task
    return msgspec.structs.replace(task, status="open", **NO_CLAIM, deadline=None)


def seen(snapshot: Snapshot, source: str, params: Sequence[Any]) -> list[Stored]:
    """Return the tasks `t` of a FROM clause as a reader sees them."""
    rows = snapshot.all(f"SELECT {COLUMNS}, (SELECT stamp FROM meta) FROM {source}", params)
    return [as_seen(snapshot, row) for row in rows]


NO_CLAIM: Final[dict[str, Any]] = {"holder": None, "claimed": None, "token": None, "ttl": None, "parked": 0}


def _unabbreviated(snapshot: Snapshot, id: str, deleted: bool) -> str:
    found = _candidates(snapshot, id, deleted)
    if len(found) > 1:
        hint = f"write more of it: {', '.join(found)}"
        raise errors.InvalidID(f"{id!r} matches several tasks", hint=hint, candidates=found)
    if not found:
        raise missing(id)
    return found[0]


def _candidates(snapshot: Snapshot, id: str, deleted: bool) -> list[str]:
    """The tasks that a prefix matches: of the part after the workspace's prefix, or of the whole id."""
    begins = [id] if "-" in id else [f"{settings_of(snapshot).config.prefix}-{id}", id]
    for begin in begins:
        rows = snapshot.all(
            f"SELECT id FROM tasks WHERE id >= ? AND id < ?{'' if deleted else ' AND deleted IS NULL'}"
            " ORDER BY id LIMIT 6",
            (begin, after_prefix(begin)),
        )
        if rows:
            return [found for (found,) in rows]
    return []


# --- changing one ----------------------------------------------------------------------------------------------------


def change(
    tx: Tx,
    task: Stored,
    op: str,
    columns: dict[str, Any],
    *,
    more: dict[str, Any] | None = None,
    note: str | None = None,
    updated: int | None = None,
    deadline: int | None = None,
) -> Stored:
    """Write new values of a task's columns with its one event, and update what depends on them.

    `more` are changes that are not in the columns (a text, a link), as field -> [old, new]. `updated` replaces the
    time, for an import; `deadline` is that of the claim, for the result.
    """
    deferred = task.deferred
    if deferred is not None and ("deleted" in columns or columns.get("status", "open") not in WAITING):
        deferred, columns, more = None, *end_deferral(tx, task, columns, more)
    data: dict[str, Any] = {}
    for name, value in columns.items():
        field = HISTORY.get(name)
        if field is not None:
            old = getattr(task, name)
            if old != value:
                data[field] = (old, value)
    if more is not None:
        data.update(more)
    if note is not None:
        data["note"] = note
    version = task.version + 1
    time = tx.now if updated is None else updated
    names = tuple(columns)
    tx.run(_updates.get(names) or _update_of(names), (*columns.values(), version, tx.revision, time, task.seq))
    new = msgspec.structs.replace(
        task, **columns, version=version, revision=tx.revision, updated=time, deadline=deadline, deferred=deferred
    )
    freed = follow(tx, task, new)
    if freed is not None:
        data["parent_ready"] = (None, freed)
    tx.emit_of(task.record, op, version, _encode(data) if data else None)
    if task.holder is not None and new.holder != task.holder:
        with LOADING:
            from holdfast.domains import locks  # a claim that begins needs none

        locks.end_claim(tx, task.id, "expire" if op == "expire" else "release")
    return new


def start_claim(tx: Tx, task: Stored, agent: str, ttl: int, grimoire: str, review: bool) -> Task:
    """Give an open task that nobody holds to an agent.

    This is `change` followed by `to_task`, written out for the one change that comes thousands of times a second.
    """
    now, revision, version, token = tx.now, tx.revision, task.version + 1, tx.new_token()
    leases.start_as(tx, task.record, TASK, agent, ttl)
    tx.run(_CLAIM, (agent, now, token, ttl, grimoire, review, version, revision, task.seq))
    data: dict[str, Any] = {"status": ("open", "in_progress"), "claimed_by": (None, agent), "token": (None, token)}
    if task.grimoire != grimoire:
        data["grimoire"] = (task.grimoire, grimoire)
    tags = task.tag_list
    if tags and task.ready:
        tx.leave(len(tags), tidy_tags)
    if task.parent is not None and not settings_of(tx).strict:
        adjust(tx, task.parent, busy=1)
    tx.emit_of(task.record, "claim", version, _encode(data))
    time = _shared_time(now)
    return Task(
        task.id,
        task.title,
        task.body,
        task.type,
        "in_progress",
        task.priority,
        task.parent_id,
        task.depth,
        tags,
        agent,
        time,
        task.hint,
        grimoire,
        as_time(task.created),
        time,
        None,
        version,
        revision,
        token,
        _shared_time(now + ttl),
        None if task.imported is None else origin_of(task),
        task.children,
        task.ended,
        task.assignee,
        None,
        () if task.refs is None else refs_of(task.refs),
    )


def _update_of(names: tuple[str, ...]) -> str:
    values = "".join(f"{name} = ?, " for name in names)
    sql = _updates[names] = f"UPDATE tasks SET {values}version = ?, revision = ?, updated = ? WHERE seq = ?"
    return sql


def follow(tx: Tx, old: Stored, new: Stored) -> str | None:
    """Update the counters of other tasks and the tags of ready tasks after a change of one.

    Returns the id of its parent if that is strict and ready now.
    """
    if old.ready != new.ready or old.priority != new.priority or old.tags != new.tags:
        index_tags(tx, old, new)
    freed = None
    if new.parent is not None and (old.status != new.status or old.deleted != new.deleted):
        freed = count_child(tx, new.parent, old, new)
    if old.finished != new.finished:
        if new.finished:
            plan_retention(tx)
        for dependent in link_types.sources(tx, DEPENDS_ON, new.id):
            ready = adjust(tx, require(tx, dependent, deleted=True).seq, waits=-1 if new.finished else 1)
            if ready is not None and ready == new.parent_id and settings_of(tx).strict:
                freed = ready
    return freed


def awaited_children(snapshot: Snapshot, seq: int, strict: bool) -> list[str]:
    """Return the ids of the children that a task must wait for."""
    state = "status <> 'closed'" if strict else "status IN ('in_progress', 'pending_merge')"
    found = snapshot.all(f"SELECT id FROM tasks WHERE parent = ? AND deleted IS NULL AND {state} ORDER BY seq", (seq,))
    return [id for (id,) in found]


def warned(tx: Tx, task: Stored) -> Task:
    """Return the public form of a child that was added or opened, with a warning if its parent is closed."""
    shown = to_task(task)
    if task.parent is None or task.finished or by_seq(tx, task.parent).status != "closed":
        return shown
    return msgspec.structs.replace(shown, warnings=(f"its parent {task.parent_id} is closed, and stays closed",))


def count_child(tx: Tx, parent: int, old: Stored | None, new: Stored | None) -> str | None:
    """Count a child anew from its old to its new state, None for a child that was not there or is not any more.

    Returns the parent's id if it waited for this child alone and is strict.
    """
    strict = settings_of(tx).strict
    before = (0, 0, 0) if old is None else old.counts(strict)
    after = (0, 0, 0) if new is None else new.counts(strict)
    if before == after:
        return None
    busy, children, ended = (now - then for then, now in zip(before, after, strict=True))
    freed = adjust(tx, parent, busy=busy, children=children, ended=ended)
    return freed if strict else None


RETENTION: Final = "retention"
DAY: Final = 86_400_000_000


def plan_retention(tx: Tx, after: int = DAY) -> None:
    """Make sure that retention runs once a day while there is something to retire; its timer is a lease."""
    if not tx.one("SELECT 1 FROM leases WHERE id = ?", (RETENTION,)):
        leases.start(tx, RETENTION, SYSTEM, after, RETENTION)


def adjust(tx: Tx, seq: int, *, waits: int = 0, busy: int = 0, children: int = 0, ended: int = 0) -> str | None:
    """Adjust what a task counts of others; its version stays, because no field of it changed.

    Returns its id if it is ready now and was not before.
    """
    old = by_seq(tx, seq)
    new = msgspec.structs.replace(
        old,
        waits=old.waits + waits,
        busy=old.busy + busy,
        children=old.children + children,
        ended=old.ended + ended,
    )
    tx.run(
        "UPDATE tasks SET waits = ?, busy = ?, children = ?, ended = ? WHERE seq = ?",
        (new.waits, new.busy, new.children, new.ended, seq),
    )
    if old.ready != new.ready:
        index_tags(tx, old, new)
    return new.id if new.startable and not old.startable else None


WAITING: Final = ("open", "blocked")  # what can be deferred


def deferral(task: Stored) -> int:
    """The id of the lease that ends a deferral; that of a claim is the key itself."""
    return -task.record


def end_deferral(
    tx: Tx, task: Stored, columns: dict[str, Any], more: dict[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Stop the timer of a deferred task, and return a change that says so too: it has begun, is over or is due."""
    leases.drop(tx, deferral(task), DEFER)
    ended = {"deferred_until": (as_time(task.deferred or tx.now).isoformat(), None)}
    return {**columns, "waits": task.waits - 1}, {**(more or {}), **ended}


def write_texts(tx: Tx, seq: int, **texts: str) -> None:
    """Change title, body or notes of a task in the table for search, and its index."""
    unindex_text(tx.run, "task_texts", seq)
    values = ", ".join(f"{name} = ?" for name in texts)
    tx.run(f"UPDATE task_texts SET {values} WHERE seq = ?", (*texts.values(), seq))
    index_text(tx.run, "task_texts", seq)
