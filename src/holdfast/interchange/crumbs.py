"""Crumbs, trails and links of the original project, put into the store with their ids, times and versions.

Each answers CREATED, UPDATED, UNCHANGED or why it was left alone; what cannot be put raises before anything was
written. A trail that is here is brought to where the file has it, if its steps can lead there; that what belongs to it
comes along is `importing`'s matter.

What a task has no place for is kept by the import of tasks, in a note and with a warning: so is a state that no task
has. A crumb that is dust is a deleted task.

A trail is abandoned or restored with all that belongs to it, or not at all. A file tells of that in two places: the
line of the trail, and those of its tasks. `Families` says for each line of a task whether it has to wait because its
trail is left alone, or may be followed although the task was made here, because nothing but its end differs.
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
from holdfast.interchange.stash_export import LINK_COLUMNS, TRAIL_COLUMNS, LinkLine, Time, TrailLine, link_line
from holdfast.interchange.task_export import FORMAT, line_of, moment
from holdfast.interchange.task_import import parse
from holdfast.kernel.tx import Row, Tx, newest_version
from holdfast.kernel.validate import check_name

CREATED: Final = "created"
UPDATED: Final = "updated"
UNCHANGED: Final = "unchanged"
DIFFERS: Final = "here already, and not the same: left alone"
GONE: Final = "deleted here: what is deleted does not come back"
ENDS: Final[dict[str, tuple[str, str]]] = {  # the tables of what a link leads from and to
    "belongs_to": ("tasks", "trails"),
    "child_of": ("tasks", "tasks"),
    "branches_from": ("trails", "tasks"),
    "scoped_to": ("stashes", "trails"),
    **dict.fromkeys(tree.KINDS, ("tasks", "tasks")),
}
_encode = msgspec.msgpack.Encoder().encode


# --- trails ----------------------------------------------------------------------------------------------------------


def trail_row(line: TrailLine) -> Row:
    """The row of TRAIL_COLUMNS that a line stands for; Invalid if no trail can be so."""
    name = line.name or line.trail_id
    check_name(name, "name")
    created = micros(line.created_at, "created_at")
    updated = micros(line.updated_at or line.completed_at or line.created_at, "updated_at")
    ended = moment(line.completed_at, "completed_at")
    before: str = line.before or ""
    if line.state in ENDED:
        ended = updated if ended is None else ended
    elif ended is not None:
        raise errors.Invalid(f"it is {line.state} and has a completed_at")
    if line.state == ABANDONED:
        before = before or "active"
    if before in ENDED or ((before or line.tasks) and line.state != ABANDONED):
        raise errors.Invalid(
            "before and tasks tell of a trail that was abandoned, and before is where it can go back to"
        )
    return line.trail_id, name, line.state, line.version, created, updated, ended, before


def trail_here(tx: Tx, id: str) -> Row | None:
    """The row of a trail that is here."""
    return tx.one(f"SELECT {TRAIL_COLUMNS} FROM trails WHERE id = ?", (id,))


def can_follow(here: Row, there: Row) -> bool:
    """Whether a trail can have gone on from one row to the other: the same trail, and steps that lead there."""
    same = (here[0], here[1], here[4]) == (there[0], there[1], there[4])
    return same and there[3] > here[3] and leads((here[2], here[7]), (there[2], there[7]), there[3] - here[3])


def put_trail(tx: Tx, line: TrailLine, follow: bool) -> str:
    """Put a trail, or bring the one that is here to where the line has it, if it may `follow`."""
    wanted = trail_row(line)
    row = trail_here(tx, line.trail_id)
    if row == wanted:
        return UNCHANGED
    if row is not None and not follow:
        return DIFFERS
    if row is None and newest_version(tx, TRAIL, "", line.trail_id):
        return GONE
    stop_purge(tx, line.trail_id)
    tx.run(
        f"INSERT INTO trails ({TRAIL_COLUMNS}, revision) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE"
        " SET state = excluded.state, version = excluded.version, updated = excluded.updated, ended = excluded.ended,"
        " before = excluded.before, revision = excluded.revision",
        (*wanted, tx.revision),
    )
    if line.state == ABANDONED:
        plan_purge(tx, line.trail_id, wanted[6])
    told: dict[str, Any] = {"name": [None, wanted[1]]} if row is None else {}
    told["state"] = [None if row is None else row[2], line.state]
    if line.state == ABANDONED:
        told["tasks"] = [list(line.tasks), []]  # which `restore` brings back
    if line.state == COMPLETED:
        told["tasks"] = [_let_go(tx, line.trail_id), []]
    tx.emit(TRAIL, line.trail_id, "import", version=line.version, data=_encode(told))
    return CREATED if row is None else UPDATED


def _let_go(tx: Tx, trail: str) -> list[str]:
    """As when a trail is completed here: nothing belongs to it any more."""
    tasks = link_types.sources(tx, "belongs_to", trail)
    for task in tasks:
        link_types.untie(tx, "belongs_to", task, trail)
    return tasks


# --- links -----------------------------------------------------------------------------------------------------------


def put_link(tx: Tx, line: LinkLine, changed: Set[str], fresh: Set[str], left: Set[str]) -> str:
    """Put a link that is no scope.

    `changed` are the tasks of this import, whose links have ids that nobody has seen: the line's id takes their place.
    `fresh` are the links of this import: what contradicts one of them is wrong, what contradicts others is left alone.
    `left` are the trails that are left alone.
    """
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
    there = tx.one("SELECT id FROM links WHERE kind = ? AND source = ? AND target = ?", (kind, source, target))
    if there is not None and (there[0] in fresh or kind not in tree.KINDS or source not in changed):
        return f"here already, as {there[0]}: left alone"
    if kind in tree.KINDS:
        if there is None:
            tree.depend(tx, source, target, kind)
        tx.run(
            "UPDATE links SET id = ?, created = ? WHERE kind = ? AND source = ? AND target = ?",
            (line.link_id, micros(line.created_at, "created_at"), kind, source, target),
        )
        return CREATED
    if kind == "belongs_to" and (told := _ended(tx, target, left)) is not None:
        return told
    other = tx.one("SELECT id, target FROM links WHERE kind = ? AND source = ? LIMIT 1", (kind, source))
    if kind == "child_of":
        path = [source] if source == target else link_types.path(tx, kind, target, source)
        if path is not None:
            raise errors.Invalid(f"that would be a circle: {' -> '.join([source, *path])}")
    elif other is not None and other[0] in fresh:
        raise errors.Invalid(f"{source} has a link of this type, to {other[1]}; it can have one")
    elif other is not None:
        return f"{source} has a link of this type here, to {other[1]}: left alone"
    write_link(tx, line)
    return CREATED


def _ended(tx: Tx, trail: str, left: Set[str]) -> str | None:
    """Why nothing comes to belong to a trail: Invalid if the file has it so, otherwise it is left alone."""
    row = tx.one("SELECT state FROM trails WHERE id = ?", (trail,))
    if row is None or row[0] not in ENDED:
        return None
    if trail in left:
        return f"the trail {trail} is {row[0]} here: left alone"
    if row[0] == COMPLETED:
        raise errors.Invalid(f"the trail {trail} is completed: nothing belongs to it")
    return None


def write_link(tx: Tx, line: LinkLine) -> None:
    """Make a link as a file has it; the caller has seen that there is none."""
    created = micros(line.created_at, "created_at")
    link_types.put(tx, line.link_id, line.link_type, line.from_id, line.to_id, created)


def micros(time: Time, what: str) -> int:
    """A time of a file; Invalid if the store could not sort by it."""
    found = moment(time, what)
    assert found is not None
    return found


_STATUS: Final = {
    "draft": "open",
    "pending": "blocked",
    "ready": "open",
    "taken": "open",  # by whom, no file says
    "pebble": "closed",
    "dust": "open",
}
_WITHOUT: Final = ("draft", "taken")  # states that no task would have


def read_crumb(text: str) -> str:
    """The line of a task that a line of crumbs stands for; one of our own is that already."""
    raw = parse(text)
    if raw is None or "crumb_id" not in raw:
        return text
    id, state = raw.pop("crumb_id"), raw.get("state")
    if not is_uuid7(id):
        raise errors.InvalidID(f"no UUID v7: crumb_id {id!r}", id=id if isinstance(id, str) else None)
    if state not in tuple(_STATUS):
        raise errors.Invalid(f"a crumb is {', '.join(_STATUS)}, not {state!r}", id=id)
    line = {**raw, "format": FORMAT, "id": id, "title": raw.get("name"), "status": _STATUS[state]}
    del line["name" if "name" in line else "title"]
    if state not in _WITHOUT:
        del line["state"]
    if state == "dust":
        line["deleted_at"] = raw.get("updated_at", raw.get("created_at"))
    return msgspec.json.encode(line).decode()


_ENDING: Final = ("deleted_at", "deleted_with", "updated_at", "notes")  # what deleting and restoring change in a line


class Families:
    """The tasks of trails that a file changes: `left` are left alone, `moved` are followed."""

    def __init__(self, tx: Tx, tasks: Iterable[str], members: Iterable[LinkLine]) -> None:
        self._tx = tx
        self._lines: dict[str, dict[str, Any]] = {}
        for text in tasks:
            raw = _read(text)
            if isinstance(raw.get("id"), str):
                self._lines[raw["id"]] = raw
        self._members: dict[str, list[str]] = {}  # of each trail, there
        for link in members:
            self._members.setdefault(link.to_id, []).append(link.from_id)

    def of(self, id: str, line: TrailLine | None) -> set[str]:
        """The tasks whose end a trail decides, here or there; without a line that can be read, all that it has."""
        row = trail_here(self._tx, id)
        roots: set[str] = set()
        if line is not None and line.state == ABANDONED:
            roots |= {*line.tasks, *self._members.get(id, ())}
        if row is not None and (line is None or row[2] == ABANDONED):
            roots |= {*taken(self._tx, id, row[3]), *link_types.sources(self._tx, "belongs_to", id)}
        return {
            *roots,
            *(task for task, raw in self._lines.items() if raw.get("deleted_with") in roots),
            *(each for root in roots for each in self._deleted_with(root)),
        }

    def _deleted_with(self, root: str) -> list[str]:
        rows = self._tx.all("SELECT id FROM tasks WHERE deletion = (SELECT seq FROM tasks WHERE id = ?)", (root,))
        return [id for (id,) in rows]

    def ending(self, tasks: Iterable[str]) -> set[str]:
        """Those that a line would delete or bring back."""
        return {id for id in tasks if self._ends(id) is not None}

    def followed(self, tasks: Iterable[str]) -> set[str]:
        """Those of them that differ in nothing else, so that nothing done here is lost."""
        return {id for id in tasks if (task := self._ends(id)) is not None and self._same(task)}

    def id_of(self, text: str) -> str | None:
        """The task that a line is about."""
        found = _read(text).get("id")
        return found if isinstance(found, str) else None

    def known(self, id: str) -> bool:
        """Whether the file has a line of this task."""
        return id in self._lines

    def lives(self, id: str) -> bool:
        """Whether the file has the task, and not as a deleted one."""
        return id in self._lines and "deleted_at" not in self._lines[id]

    def _ends(self, id: str) -> Stored | None:
        if id not in self._lines or not self._tx.one("SELECT 1 FROM tasks WHERE id = ?", (id,)):
            return None
        task = require(self._tx, id, deleted=True)
        return task if (task.deleted is None) != self.lives(id) else None

    def _same(self, task: Stored) -> bool:
        ours, theirs = _read(line_of(self._tx, task)), self._lines[task.id]
        notes = theirs.get("notes", [])
        return _rest(ours) == _rest(theirs) and all(note in notes for note in ours.get("notes", []))


def _rest(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in raw.items() if name not in _ENDING}


def _read(text: str) -> dict[str, Any]:
    try:
        return parse(text) or {}
    except errors.Invalid:  # which the import of tasks tells
        return {}
