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
from holdfast.kernel import leases
from holdfast.kernel.tx import SYSTEM, Row, Snapshot, Tx, index_text, unindex_text
from holdfast.kernel.validate import after_prefix, check_name
from holdfast.route import LOADING
from holdfast.types import as_time
from holdfast.types.tasks import Origin, Task, TaskStatus, TaskType

TASK: Final = "task"
DEPENDS_ON: Final = "depends_on"
ACTIVE: Final = ("in_progress", "pending_merge")
READY: Final = "t.status = 'open' AND t.waits = 0 AND t.busy = 0 AND t.deleted IS NULL"

COLUMNS: Final = (
    "t.seq, t.record, t.id, t.status, t.priority, t.waits, t.busy, t.type, t.parent, t.depth, t.version, t.revision,"
    " t.created, t.updated, t.deleted, t.deletion, t.holder, t.claimed, t.token, t.ttl, t.parked, t.hint, t.grimoire,"
    " t.review, t.tags, t.title, (SELECT body FROM task_texts WHERE seq = t.seq),"
    " (SELECT id FROM tasks WHERE seq = t.parent),"
    " (SELECT deadline FROM leases WHERE id = t.record AND t.holder IS NOT NULL), t.imported, t.origin"
)
# The same of ready tasks: what is alike in all of them is not read.
READY_COLUMNS: Final = (
    "t.seq, t.record, t.id, 'open', t.priority, 0, 0, t.type, t.parent, t.depth, t.version, t.revision, t.created,"
    " t.updated, NULL, NULL, NULL, NULL, NULL, NULL, 0, t.hint, t.grimoire, t.review, t.tags, t.title,"
    " (SELECT body FROM task_texts WHERE seq = t.seq), (SELECT id FROM tasks WHERE seq = t.parent), NULL,"
    " t.imported, t.origin"
)
_BY_ID: Final = f"SELECT {COLUMNS} FROM tasks t WHERE t.id = ?"
_BY_ID_AND_STAMP: Final = f"SELECT {COLUMNS}, (SELECT stamp FROM meta) FROM tasks t WHERE t.id = ?"

# The columns whose changes are recorded in history, with their names there.
_HISTORY: Final = {
    **{name: name for name in ("status", "priority", "type", "token", "grimoire", "title")},
    **{"holder": "claimed_by", "hint": "grimoire_hint"},
}
_CLAIM: Final = (
    "UPDATE tasks SET status = 'in_progress', holder = ?1, claimed = ?2, token = ?3, ttl = ?4, grimoire = ?5,"
    " review = ?6, version = ?7, revision = ?8, updated = ?2 WHERE seq = ?9"
)
_encode = msgspec.msgpack.Encoder().encode
_tags = lru_cache(10_000)(msgspec.json.Decoder(tuple[str, ...]).decode)  # the same ones come again and again
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
    imported: int | None = None
    origin: str | None = None

    @property
    def ready(self) -> bool:
        """Whether `claim_next` may claim it."""
        return self.status == "open" and not self.waits and not self.busy and self.deleted is None

    @property
    def active(self) -> bool:
        """Whether it is in progress or under review: its parent must wait."""
        return self.status in ACTIVE

    @property
    def finished(self) -> bool:
        """Whether its dependents need not wait: it is closed or deleted."""
        return self.status == "closed" or self.deleted is not None

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
    )


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
    """Return a row of COLUMNS and the stamp as a reader sees it: without an expired claim."""
    task = Stored(*row[:-1])
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
    data: dict[str, Any] = {}
    for name, value in columns.items():
        field = _HISTORY.get(name)
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
        task, **columns, version=version, revision=tx.revision, updated=time, deadline=deadline
    )
    follow(tx, task, new)
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
    if task.parent is not None:
        adjust(tx, task.parent, busy=1)
    tx.emit_of(task.record, "claim", version, _encode(data))
    time = as_time(now)
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
        as_time(now + ttl),
        None if task.imported is None else origin_of(task),
    )


def _update_of(names: tuple[str, ...]) -> str:
    values = "".join(f"{name} = ?, " for name in names)
    sql = _updates[names] = f"UPDATE tasks SET {values}version = ?, revision = ?, updated = ? WHERE seq = ?"
    return sql


def follow(tx: Tx, old: Stored, new: Stored) -> None:
    """Update the counters of other tasks and the tags of ready tasks after a change of one."""
    if old.ready != new.ready or old.priority != new.priority or old.tags != new.tags:
        index_tags(tx, old, new)
    if old.active != new.active and new.parent is not None:
        adjust(tx, new.parent, busy=1 if new.active else -1)
    if old.finished != new.finished:
        if new.finished:
            plan_retention(tx)
        for dependent in link_types.sources(tx, DEPENDS_ON, new.id):
            adjust(tx, require(tx, dependent, deleted=True).seq, waits=-1 if new.finished else 1)


RETENTION: Final = "retention"
DAY: Final = 86_400_000_000


def plan_retention(tx: Tx, after: int = DAY) -> None:
    """Make sure that retention runs once a day while there is something to retire; its timer is a lease."""
    if not tx.one("SELECT 1 FROM leases WHERE id = ?", (RETENTION,)):
        leases.start(tx, RETENTION, SYSTEM, after, RETENTION)


def adjust(tx: Tx, seq: int, *, waits: int = 0, busy: int = 0) -> None:
    """Adjust the counts of what a task waits for; its version stays, because no field of it changed."""
    old = by_seq(tx, seq)
    new = msgspec.structs.replace(old, waits=old.waits + waits, busy=old.busy + busy)
    tx.run("UPDATE tasks SET waits = ?, busy = ? WHERE seq = ?", (new.waits, new.busy, seq))
    if old.ready != new.ready:
        index_tags(tx, old, new)


def index_tags(tx: Tx, old: Stored | None, new: Stored | None) -> None:
    """Update the two tables of tags from an old to a new state of a task; None is a task that does not exist.

    A task that is ready no more leaves its rows in `ready_tags` for `tidy_tags`.
    """
    same = old is not None and new is not None and old.tags == new.tags and old.priority == new.priority
    if same and new is not None and not new.ready:  # as every claim does
        if new.tags != "[]":
            tx.leave(len(new.tag_list), tidy_tags)
        return
    after = _entries(new)
    before = after if same else _entries(old)
    for entry in sorted(before - after):
        for table in ("task_tags", "ready_tags"):
            tx.run(f"DELETE FROM {table} WHERE tag = ? AND priority = ? AND seq = ?", entry)
    for entry in sorted(after - before):
        tx.run("INSERT INTO task_tags (tag, priority, seq) VALUES (?, ?, ?)", entry)
    if new is not None and new.ready:
        for entry in sorted(after):
            tx.run("INSERT OR IGNORE INTO ready_tags (tag, priority, seq) VALUES (?, ?, ?)", entry)
    elif old is not None and old.ready and after:
        tx.leave(len(before & after), tidy_tags)


def _entries(task: Stored | None) -> set[tuple[str, int, int]]:
    if task is None or task.tags == "[]":
        return set()
    return {(tag, task.priority, task.seq) for tag in task.tag_list}


_TIDIED: Final = "SELECT tag, priority, seq FROM ready_tags_tidied"
_SLICE_END: Final = (
    "SELECT tag, priority, seq FROM ready_tags WHERE (tag, priority, seq) > (?, ?, ?)"
    " ORDER BY tag, priority, seq LIMIT 1 OFFSET ?"
)
_TIDY: Final = (
    "DELETE FROM ready_tags WHERE (tag, priority, seq) > (?, ?, ?) AND {} NOT EXISTS"
    " (SELECT 1 FROM tasks t INDEXED BY tasks_ready"
    f" WHERE t.priority = ready_tags.priority AND t.seq = ready_tags.seq AND {READY})"
)
_TIDY_SLICE: Final = _TIDY.format("(tag, priority, seq) <= (?, ?, ?) AND")
_TIDY_REST: Final = _TIDY.format("")


def tidy_tags(tx: Tx, litter: int) -> None:
    """Delete the rows of tasks that are not ready from a slice of `ready_tags`, twice as long as what was left there.

    The slices go round the table in the order of its keys. While they go round once, rows are left for at most half of
    what they pass: so no more than that are of tasks that are not ready, and a slice changes few pages.
    """
    start = tx.one(_TIDIED)
    if start is None:
        raise errors.Corrupt("the store is damaged: nothing says how far ready_tags is tidied")
    end = tx.one(_SLICE_END, (*start, 2 * litter - 1))
    if end is None:
        tx.run(_TIDY_REST, start)
    else:
        tx.run(_TIDY_SLICE, (*start, *end))
    tx.run("UPDATE ready_tags_tidied SET tag = ?, priority = ?, seq = ? WHERE id = 1", end or ("", 0, 0))


def write_texts(tx: Tx, seq: int, **texts: str) -> None:
    """Change title, body or notes of a task in the table for search, and its index."""
    unindex_text(tx.run, "task_texts", seq)
    values = ", ".join(f"{name} = ?" for name in texts)
    tx.run(f"UPDATE task_texts SET {values} WHERE seq = ?", (*texts.values(), seq))
    index_text(tx.run, "task_texts", seq)


_SHORT = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's 32: no two look alike


def new_record(tx: Tx, prefix: str, count: int) -> tuple[str, int]:
    """Return an id that no task here has or had, as short as `count` tasks allow, and its key in the log."""
    length = 4
    while 32**length < 64 * count:
        length += 1
    for attempt in range(64):
        bits = int(tx.new_id().replace("-", "")[-15:], 16)
        size = length + attempt // 16
        id = f"{prefix}-{''.join(_SHORT[bits >> 5 * place & 31] for place in range(size))}"
        key = tx.new_record(TASK, id)
        if key is not None:
            return id, key
    raise errors.Unavailable("no unused task id was found")
