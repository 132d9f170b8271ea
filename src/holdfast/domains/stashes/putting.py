"""Putting imported trails and links into the store: with their ids, times and versions; and following a trail.

Each answers CREATED, UPDATED, UNCHANGED or why it was left alone; what cannot be put raises before anything was
written. A trail that is here is brought to where the file has it, if its steps can lead there; that what belongs to it
comes along is `importing`'s matter.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains import links
from holdfast.domains.stashes.exporting import LINK_COLUMNS, TRAIL_COLUMNS, LinkLine, Time, TrailLine, link_line
from holdfast.domains.stashes.states import ABANDONED, COMPLETED, ENDED, TRAIL, leads, plan_purge, stop_purge
from holdfast.domains.tasks import depending
from holdfast.domains.tasks.records import moment
from holdfast.kernel.names import check_name
from holdfast.kernel.tx import Row, Tx, newest_version

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
    **dict.fromkeys(depending.KINDS, ("tasks", "tasks")),
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
    tasks = links.sources(tx, "belongs_to", trail)
    for task in tasks:
        links.untie(tx, "belongs_to", task, trail)
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
    if there is not None and (there[0] in fresh or kind not in depending.KINDS or source not in changed):
        return f"here already, as {there[0]}: left alone"
    if kind in depending.KINDS:
        if there is None:
            depending.depend(tx, source, target, kind)
        tx.run(
            "UPDATE links SET id = ?, created = ? WHERE kind = ? AND source = ? AND target = ?",
            (line.link_id, micros(line.created_at, "created_at"), kind, source, target),
        )
        return CREATED
    if kind == "belongs_to" and (told := _ended(tx, target, left)) is not None:
        return told
    other = tx.one("SELECT id, target FROM links WHERE kind = ? AND source = ? LIMIT 1", (kind, source))
    if kind == "child_of":
        path = [source] if source == target else links.path(tx, kind, target, source)
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
    links.put(tx, line.link_id, line.link_type, line.from_id, line.to_id, created)


def micros(time: Time, what: str) -> int:
    """A time of a file; Invalid if the store could not sort by it."""
    found = moment(time, what)
    assert found is not None
    return found
