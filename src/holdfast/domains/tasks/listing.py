"""Lists of tasks: filters, orders, pages and totals, each walk along an index.

A cursor names the last task of its page by the key it was sorted by, so pages neither skip nor repeat what stays as it
is while others write.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains.routing import globs
from holdfast.domains.tasks import paging
from holdfast.domains.tasks.choosing import check_pattern, several
from holdfast.domains.tasks.creating import check_priority, check_type
from holdfast.domains.tasks.paging import Place
from holdfast.domains.tasks.rows import COLUMNS, as_seen, find, to_task
from holdfast.domains.tasks.searching import match_of
from holdfast.domains.tasks.steps import STATUSES
from holdfast.domains.tasks.tags import check_tag
from holdfast.kernel.names import check_flag, check_limit, check_name
from holdfast.kernel.tx import Snapshot
from holdfast.types.base import Page
from holdfast.types.tasks import Task, TaskStatus, TaskType

MAX_TOTAL: Final = 10_000
NONE: Final = "none"
RARE: Final = {"in_progress", "pending_merge", "blocked"}  # few tasks at a time, so quickly sorted
# What a list can be sorted by: the columns of its key, the task's seq last.
SORTS: Final = {"priority": "t.priority", "created": None, "updated": "t.updated"}


class Walk(msgspec.Struct):
    """A query in the making."""

    source: str = "tasks t"
    where: list[str] = msgspec.field(default_factory=list)
    params: list[Any] = msgspec.field(default_factory=list)

    def add(self, condition: str, *params: Any) -> None:
        """One more condition."""
        self.where.append(condition)
        self.params += params

    def among(self, column: str, values: Sequence[Any]) -> None:
        """One of several values."""
        self.add(f"{column} IN ({', '.join('?' * len(values))})", *values)

    @property
    def text(self) -> str:
        """From where and under which conditions."""
        return f"FROM {self.source} WHERE {' AND '.join(self.where) or 'true'}"


def list_tasks(
    snapshot: Snapshot,
    status: TaskStatus | Sequence[TaskStatus] | None = None,
    priority: int | Sequence[int] | None = None,
    type: TaskType | Sequence[TaskType] | None = None,
    tag: str | None = None,
    tag_pattern: str | None = None,
    parent_id: str | None = None,
    claimed_by: str | None = None,
    text: str | None = None,
    include_deleted: bool = False,
    sort: str = "priority",
    limit: int = 100,
    cursor: str | None = None,
    total: bool = False,
) -> Page[Task]:
    """Tasks that fit every filter given; `parent_id` and `claimed_by` may be "none".

    Sorted by `priority` (then oldest), `created` or `updated`, with a minus the other way round. `cursor` is that of
    the page before; `total=True` counts, up to 10,000.
    """
    check_limit(limit, 1000)
    check_flag(include_deleted=include_deleted, total=total)
    name, backwards = _check_sort(sort)
    walk = _filtered(snapshot, status, priority, type, tag, tag_pattern, parent_id, claimed_by, text, include_deleted)
    _along(walk, name, several(status), claimed_by, parent_id, tag, text)
    page: Page[Task] = Page()
    if total:
        row = snapshot.one(f"SELECT count(*) FROM (SELECT 1 {walk.text} LIMIT {MAX_TOTAL + 1})", walk.params)
        count = 0 if row is None else row[0]
        page.total, page.more = min(count, MAX_TOTAL), count > MAX_TOTAL
    key, seq = _keys(name, walk)
    place = None if cursor is None else _place(sort, cursor)
    select = f"SELECT {COLUMNS}, (SELECT stamp FROM meta) {walk.text}"
    rows = list(paging.read(snapshot, select, walk.params, key, seq, limit + 1, place, backwards))
    found = [as_seen(snapshot, row) for row in rows[:limit]]
    page.extend(to_task(task) for task in found)
    if len(rows) > limit:
        last = found[-1]
        value = {"priority": last.priority, "created": 0, "updated": last.updated}[name]
        page.cursor = f"{sort}.{value}.{last.seq}"
    return page


def _filtered(
    snapshot: Snapshot,
    status: Any,
    priority: Any,
    type: Any,
    tag: str | None,
    tag_pattern: str | None,
    parent_id: str | None,
    claimed_by: str | None,
    text: str | None,
    include_deleted: bool,
) -> Walk:
    walk = Walk()
    for column, given, check in (
        ("t.status", status, _check_status),
        ("t.priority", priority, check_priority),
        ("t.type", type, check_type),
    ):
        values = [check(value) for value in several(given)]
        if values:
            walk.among(column, values) if len(values) > 1 else walk.add(f"{column} = ?", values[0])
    if tag is not None:
        walk.source = "task_tags g JOIN tasks t ON t.seq = g.seq"
        walk.add("g.tag = ?", check_tag(tag))
    if tag_pattern is not None:
        matching = _tags_like(snapshot, check_pattern(tag_pattern) or "")
        walk.add(
            "t.seq IN (SELECT seq FROM task_tags WHERE tag IN (SELECT value FROM json_each(?)))",
            msgspec.json.encode(matching).decode(),
        )
    for column, given in (("t.parent", parent_id), ("t.holder", claimed_by)):
        if given == NONE:
            walk.add(f"{column} IS NULL")
        elif given is not None:
            walk.add(f"{column} = ?", _meant(snapshot, column, given))
    if text is not None:
        walk.add("t.seq IN (SELECT rowid FROM tasks_fts WHERE tasks_fts MATCH ?)", match_of(text))
    if not include_deleted:
        walk.add("t.deleted IS NULL")
    return walk


def _meant(snapshot: Snapshot, column: str, given: str) -> int | str:
    if column == "t.parent":
        return find(snapshot, given, deleted=True).seq
    check_name(given, "claimed_by")
    return given


def _along(
    walk: Walk,
    sort: str,
    statuses: tuple[Any, ...],
    claimed_by: str | None,
    parent_id: str | None,
    tag: str | None,
    text: str | None,
) -> None:
    """Which index the walk goes along: the one that narrows most and, where it can, has the order already."""
    if tag is not None or text is not None:
        return
    if claimed_by is not None and claimed_by != NONE:
        walk.source += " INDEXED BY tasks_holder"
    elif parent_id is not None and parent_id != NONE:
        walk.source += " INDEXED BY tasks_parent"
    elif statuses and ((len(statuses) == 1 and sort == "priority") or RARE.issuperset(statuses)):
        walk.source += " INDEXED BY tasks_status"
    else:
        walk.source += " NOT INDEXED" if sort == "created" else f" INDEXED BY tasks_{sort}"


def _check_status(status: TaskStatus) -> TaskStatus:
    if status not in STATUSES:
        raise errors.InvalidFilter(f"{status!r} is not a status", hint=f"statuses: {', '.join(STATUSES)}")
    return status


def _check_sort(sort: str) -> tuple[str, bool]:
    name = sort.removeprefix("-") if isinstance(sort, str) else ""
    if name not in SORTS:
        ways = ", ".join(f"{name}, -{name}" for name in SORTS)
        raise errors.InvalidFilter(f"{sort!r} is not something to sort by", hint=f"sort by {ways}")
    return name, sort.startswith("-")


def _keys(name: str, walk: Walk) -> tuple[str | None, str]:
    """The columns of the order; where a tag leads the walk, those of its table."""
    if name == "priority" and walk.source.startswith("task_tags"):
        return "g.priority", "g.seq"
    return SORTS[name], "t.seq"


def _place(sort: str, cursor: str) -> Place:
    """The last task of the page before."""
    found = re.fullmatch(rf"{sort}\.([0-9]{{1,18}})\.([0-9]{{1,18}})", cursor) if isinstance(cursor, str) else None
    if found is None:
        raise errors.InvalidFilter(
            f"{cursor!r} is not a cursor of a list sorted by {sort}", hint="pass the page's cursor, and the same sort"
        )
    return int(found[1]), int(found[2])


def _tags_like(snapshot: Snapshot, pattern: str) -> list[str]:
    """The tags in use that a glob matches, from one to the next by the index, however many tasks have each."""
    matches = globs.compile(pattern)
    found: list[str] = []
    row = snapshot.one("SELECT min(tag) FROM task_tags WHERE tag >= ?", (globs.literal_prefix(pattern),))
    while row is not None and row[0] is not None:
        if not row[0].startswith(globs.literal_prefix(pattern)):
            break
        if matches(row[0]):
            found.append(row[0])
        row = snapshot.one("SELECT min(tag) FROM task_tags WHERE tag > ?", (row[0],))
    return found
