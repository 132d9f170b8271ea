"""Trails, links and crumbs of an import, written to the store with their ids, times and versions.

A put function returns an outcome of `jsonl` or why the record is in conflict; it raises before it writes anything. A
trail that is here is updated if its steps can lead to the state in the file. A crumb is a task: a state that tasks do
not have is kept in a note, and dust is a deleted task.

A trail is abandoned or restored with all that belongs to it, or not at all, which a file tells in two tables: the line
of the trail and those of its tasks. `TrailTasks` finds the tasks whose line has to wait because their trail is left
alone, and those that may be updated although they were created here, because nothing but their deletion differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains import link_types
from holdfast.domains.stashes.rows import ABANDONED, COMPLETED, ENDED, TRAIL, leads, plan_purge, stop_purge, taken
from holdfast.domains.tasks import tree
from holdfast.domains.tasks.rows import Stored, require
from holdfast.ids import is_uuid7
from holdfast.interchange.jsonl import CREATED, DELETED, DIFFERS, UNCHANGED, UPDATED, micros, moment, parse
from holdfast.interchange.stash_export import LINK_COLUMNS, TRAIL_COLUMNS, LinkLine, TrailLine, link_line
from holdfast.interchange.task_export import FORMAT, line_of
from holdfast.kernel.tx import Row, Tx, newest_version
from holdfast.kernel.validate import check_name

ENDS: Final[dict[str, tuple[str, str]]] = {  # the tables that a link leads from and to
    "belongs_to": ("tasks", "trails"),
    "child_of": ("tasks", "tasks"),
    "branches_from": ("trails", "tasks"),
    "scoped_to": ("stashes", "trails"),
    **dict.fromkeys(tree.KINDS, ("tasks", "tasks")),
}
_encode = msgspec.msgpack.Encoder().encode


# --- trails ----------------------------------------------------------------------------------------------------------


def trail_row(line: TrailLine) -> Row:
    """The row of TRAIL_COLUMNS for a line. Raises Invalid if no trail can be so."""
    name = line.name or line.trail_id
    check_name(name, "name")
    created = micros(line.created_at, "created_at")
    updated = micros(line.updated_at or line.completed_at or line.created_at, "updated_at")
    ended = moment(line.completed_at, "completed_at")
    before: str = line.before or ""
    if line.state in ENDED:
        ended = updated if ended is None else ended
    elif ended is not None:
        raise errors.Invalid(f"completed_at is set, but the trail is {line.state}")
    if line.state == ABANDONED:
        before = before or "active"
    if before in ENDED or ((before or line.tasks) and line.state != ABANDONED):
        raise errors.Invalid("before and tasks are only for an abandoned trail, and before is a state to return to")
    return line.trail_id, name, line.state, line.version, created, updated, ended, before


def trail_here(tx: Tx, id: str) -> Row | None:
    """The row of a trail of this workspace."""
    return tx.one(f"SELECT {TRAIL_COLUMNS} FROM trails WHERE id = ?", (id,))


def can_follow(here: Row, there: Row) -> bool:
    """Whether it is the same trail, and steps exist that lead from one row to the other."""
    same = (here[0], here[1], here[4]) == (there[0], there[1], there[4])
    return same and there[3] > here[3] and leads((here[2], here[7]), (there[2], there[7]), there[3] - here[3])


def put_trail(tx: Tx, line: TrailLine, follow: bool) -> str:
    """Create a trail, or update the one that is here if it may `follow`."""
    wanted = trail_row(line)
    row = trail_here(tx, line.trail_id)
    if row == wanted:
        return UNCHANGED
    if row is not None and not follow:
        return DIFFERS
    if row is None and newest_version(tx, TRAIL, "", line.trail_id):
        return DELETED
    stop_purge(tx, line.trail_id)
    tx.run(
        f"INSERT INTO trails ({TRAIL_COLUMNS}, revision) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE"
        " SET state = excluded.state, version = excluded.version, updated = excluded.updated, ended = excluded.ended,"
        " before = excluded.before, revision = excluded.revision",
        (*wanted, tx.revision),
    )
    if line.state == ABANDONED:
        plan_purge(tx, line.trail_id)
    data: dict[str, Any] = {"name": [None, wanted[1]]} if row is None else {}
    data["state"] = [None if row is None else row[2], line.state]
    if line.state == ABANDONED:
        data["tasks"] = [list(line.tasks), []]  # `restore` needs them
    if line.state == COMPLETED:
        data["tasks"] = [link_types.untie_sources(tx, "belongs_to", line.trail_id), []]  # as completing it does
    tx.emit(TRAIL, line.trail_id, "import", version=line.version, data=_encode(data))
    return CREATED if row is None else UPDATED


# --- links -----------------------------------------------------------------------------------------------------------


def put_link(
    tx: Tx, line: LinkLine, changed: Set[str], created: Set[str], left: Set[str], expect: Set[str] = frozenset()
) -> str:
    """Create a link that is no scope.

    `changed` are the tasks of this import, whose links have ids that nobody knows yet: the line's id replaces them.
    `created` are the links of this import: a contradiction to one of them is an error, to others a conflict. `left` are
    the trails that are left alone. A link to one of `expect`, which is not here yet, is created with it.
    """
    row = tx.one(f"SELECT {LINK_COLUMNS} FROM links WHERE id = ?", (line.link_id,))
    if row is not None:
        return UNCHANGED if link_line(row) == line else DIFFERS
    kind, source, target = line.link_type, line.from_id, line.to_id
    missing = [
        f"there is no {table[:-1]} {id!r}"
        for table, id in zip(ENDS[kind], (source, target), strict=True)
        if id not in expect and not tx.one(f"SELECT 1 FROM {table} WHERE id = ?", (id,))
    ]
    if missing:
        raise errors.Invalid("; ".join(missing))
    if not expect.isdisjoint((source, target)):
        return CREATED
    if kind not in tree.KINDS and newest_version(tx, link_types.LINK, "", line.link_id):
        return DELETED
    there = link_types.find(tx, kind, source, target)
    if there is not None and (there in created or kind not in tree.KINDS or source not in changed):
        return f"differs: the link exists as {there}; skipped"
    if kind in tree.KINDS:
        if there is None:
            tree.depend(tx, source, target, kind)
        tx.run(
            "UPDATE links SET id = ?, created = ? WHERE kind = ? AND source = ? AND target = ?",
            (line.link_id, micros(line.created_at, "created_at"), kind, source, target),
        )
        return CREATED
    if kind == "belongs_to" and (why := _ended(tx, target, left)) is not None:
        return why
    other = tx.one("SELECT id, target FROM links WHERE kind = ? AND source = ? LIMIT 1", (kind, source))
    if kind == "child_of":
        path = [source] if source == target else link_types.path(tx, kind, target, source)
        if path is not None:
            raise errors.Invalid(f"it would close a cycle: {' -> '.join([source, *path])}")
    elif other is not None and other[0] in created:
        raise errors.Invalid(f"{source} already has a link of this type, to {other[1]}; it can have one")
    elif other is not None:
        return f"differs: {source} has a link of this type to {other[1]}; skipped"
    write_link(tx, line)
    return CREATED


def _ended(tx: Tx, trail: str, left: Set[str]) -> str | None:
    """Why no task can be added to a trail that ended here. Raises Invalid if the file ended it."""
    row = tx.one("SELECT state FROM trails WHERE id = ?", (trail,))
    if row is None or row[0] not in ENDED:
        return None
    if trail in left:
        return f"differs: the trail {trail} is {row[0]} here; skipped"
    if row[0] == COMPLETED:
        raise errors.Invalid(f"the trail {trail} is completed, so no task belongs to it")
    return None


def write_link(tx: Tx, line: LinkLine) -> None:
    """Create a link as a file has it; the caller made sure that there is none."""
    created = micros(line.created_at, "created_at")
    link_types.put(tx, line.link_id, line.link_type, line.from_id, line.to_id, created)


# --- crumbs ----------------------------------------------------------------------------------------------------------

_STATUS: Final = {
    "draft": "open",
    "pending": "blocked",
    "ready": "open",
    "taken": "open",  # no file has the holder
    "pebble": "closed",
    "dust": "open",
}
_UNKNOWN: Final = ("draft", "taken")  # states that tasks do not have
_OF_DELETION: Final = ("deleted_at", "deleted_with", "updated_at", "notes")  # fields that deleting and restoring change


def task_fields(raw: dict[str, Any]) -> dict[str, Any]:
    """The fields of a task for those of a crumb; a line of a task has them already."""
    if "crumb_id" not in raw:
        return raw
    fields = dict(raw)
    id, state = fields.pop("crumb_id"), raw.get("state")
    if not is_uuid7(id):
        raise errors.InvalidID(f"no UUID v7: crumb_id {id!r}")
    if state not in tuple(_STATUS):
        raise errors.Invalid(f"a crumb is {', '.join(_STATUS)}, not {state!r}")
    fields |= {"format": FORMAT, "id": id, "status": _STATUS[state]}
    if "name" in fields:
        fields["title"] = fields.pop("name")
    if state not in _UNKNOWN:
        del fields["state"]
    if state == "dust" and ("updated_at" in raw or "created_at" in raw):
        fields["deleted_at"] = raw.get("updated_at", raw.get("created_at"))
    return fields


class TrailTasks:
    """The tasks of trails that an import changes. `tasks` are the fields of tasks in the file, `links` its links."""

    def __init__(self, tx: Tx, tasks: Iterable[dict[str, Any]], links: Iterable[LinkLine]) -> None:
        self._tx = tx
        self._tasks = {raw["id"]: raw for raw in tasks if isinstance(raw.get("id"), str)}
        self._members: dict[str, list[str]] = {}  # of each trail, in the file
        for link in links:
            if link.link_type == "belongs_to":
                self._members.setdefault(link.to_id, []).append(link.from_id)

    def of(self, id: str, line: TrailLine | None) -> set[str]:
        """The tasks whose deletion a trail decides, here or in the file; without a readable line, all of its tasks."""
        row = trail_here(self._tx, id)
        roots: set[str] = set()
        if line is not None and line.state == ABANDONED:
            roots |= {*line.tasks, *self._members.get(id, ())}
        if row is not None and (line is None or row[2] == ABANDONED):
            roots |= {*taken(self._tx, id, row[3]), *link_types.sources(self._tx, "belongs_to", id)}
        return {
            *roots,
            *(task for task, raw in self._tasks.items() if raw.get("deleted_with") in roots),
            *(each for root in roots for each in self._deleted_with(root)),
        }

    def _deleted_with(self, root: str) -> list[str]:
        rows = self._tx.all("SELECT id FROM tasks WHERE deletion = (SELECT seq FROM tasks WHERE id = ?)", (root,))
        return [id for (id,) in rows]

    def ending(self, tasks: Iterable[str]) -> set[str]:
        """Those that their line deletes or restores."""
        return {id for id in tasks if self._ends(id) is not None}

    def only_ending(self, tasks: Iterable[str]) -> set[str]:
        """Those of them that differ in nothing else, so that nothing done here is lost."""
        return {id for id in tasks if (task := self._ends(id)) is not None and self._is_same(task)}

    def known(self, id: str) -> bool:
        """Whether the file has this task."""
        return id in self._tasks

    def _ends(self, id: str) -> Stored | None:
        if id not in self._tasks or not self._tx.one("SELECT 1 FROM tasks WHERE id = ?", (id,)):
            return None
        task = require(self._tx, id, deleted=True)
        return task if (task.deleted is None) == ("deleted_at" in self._tasks[id]) else None

    def _is_same(self, task: Stored) -> bool:
        ours, theirs = parse(line_of(self._tx, task)) or {}, self._tasks[task.id]
        notes = theirs.get("notes", [])
        return _rest(ours) == _rest(theirs) and all(note in notes for note in ours.get("notes", []))


def _rest(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in raw.items() if name not in _OF_DELETION}
