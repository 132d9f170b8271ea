"""Reading tasks: lists, searches and history.

A cursor names the last task of its page by its sort key, so pages neither skip nor repeat tasks that stay unchanged
while others write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains.routing import globs
from holdfast.domains.tasks import readiness
from holdfast.domains.tasks.creation import check_priority, check_tag, check_type
from holdfast.domains.tasks.readiness import check_pattern
from holdfast.domains.tasks.rows import COLUMNS, TASK, as_seen, find, missing, to_task
from holdfast.domains.tasks.transitions import STATUSES
from holdfast.kernel import events
from holdfast.kernel.tx import PAGE_BYTES, Row, Snapshot, newest_version, weight
from holdfast.kernel.validate import check_flag, check_limit, check_name, check_offset, several
from holdfast.types import END_OF_REVISION, Event, Page, as_microseconds
from holdfast.types.tasks import Author, HistoryEntry, Hit, Task, TaskStatus, TaskType

MAX_QUERY: Final = 1000
MAX_WORDS: Final = 32
_WEIGHTS = "10.0, 2.0, 1.0, 1.0"  # a word in the title counts most, then the body, then notes and references


def search(snapshot: Snapshot, text: str, limit: int = 20, include_deleted: bool = False, offset: int = 0) -> Page[Hit]:
    """Search tasks that contain all words; `word*` matches prefixes, "in quotes" a phrase."""
    check_limit(limit, 100, "offset")
    check_offset(offset)
    check_flag(include_deleted=include_deleted)
    live = "" if include_deleted else " AND t.deleted IS NULL"
    rows, more = snapshot.page(
        f"SELECT snippet(tasks_fts, -1, '**', '**', '…', 16), bm25(tasks_fts, {_WEIGHTS}) AS score, {COLUMNS},"
        " (SELECT stamp FROM meta) FROM tasks_fts f JOIN tasks t ON t.seq = f.rowid"
        f" WHERE tasks_fts MATCH ?{live} ORDER BY score, t.seq LIMIT ?, ?",
        (match_of(text), offset),
        limit,
    )
    hits = (Hit(to_task(as_seen(snapshot, row[2:])), row[0], row[1]) for row in rows)
    return Page.of(hits, more, lambda _: offset + len(rows))


def match_of(text: str) -> str:
    """Turn typed text into an FTS5 query without operators. Raises InvalidFilter."""
    if type(text) is not str or not text.strip():
        raise errors.InvalidFilter("the search is empty", hint="give one or more words")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise errors.InvalidFilter(f"the search has a lone surrogate at position {error.start}") from error
    if len(text) > MAX_QUERY:
        raise errors.InvalidFilter(f"a search has at most {MAX_QUERY} characters")
    terms = []
    for number, part in enumerate(text.replace("\0", " ").split('"')):
        terms += [(part, False)] * bool(part.strip()) if number % 2 else [_word(word) for word in part.split()]
    terms = [(word, begins) for word, begins in terms if any(char.isalnum() for char in word)]
    if not terms:
        raise errors.InvalidFilter(f"{text!r} has no word to search for", hint="words contain letters or digits")
    if len(terms) > MAX_WORDS:
        raise errors.InvalidFilter(f"a search has at most {MAX_WORDS} words")
    return " ".join(f'"{word}"*' if begins else f'"{word}"' for word, begins in terms)


def _word(word: str) -> tuple[str, bool]:
    return (word.rstrip("*"), True) if word.endswith("*") else (word, False)


MAX_TOTAL: Final = 10_000
_CHUNK: Final = 128  # tasks read at once: a page may end by its bytes
NONE: Final = "none"
RARE: Final = {"in_progress", "pending_merge", "blocked"}  # few tasks at a time, so fast to sort
# Sort name -> the first column of its key; the task's seq comes last.
SORTS: Final = {"priority": "t.priority", "created": None, "updated": "t.updated"}


class Walk(msgspec.Struct):
    """A query being built."""

    source: str = "tasks t"
    where: list[str] = msgspec.field(default_factory=list)
    params: list[Any] = msgspec.field(default_factory=list)

    def add(self, condition: str, *params: Any) -> None:
        """Add a condition."""
        self.where.append(condition)
        self.params += params

    def equal(self, column: str, value: Any) -> None:
        """Add the condition that a column has a value, or none."""
        if value is None:
            self.add(f"{column} IS NULL")
        else:
            self.add(f"{column} = ?", value)

    def among(self, column: str, given: Any, check: Callable[[Any], Any]) -> None:
        """Add the condition that a column has the value of a filter, or one of several; None is no filter."""
        values = [check(value) for value in several(given)]
        if len(values) == 1:
            self.equal(column, values[0])
        elif values:
            self.add(f"{column} IN ({', '.join('?' * len(values))})", *values)

    @property
    def text(self) -> str:
        """The FROM and WHERE clauses."""
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
    assigned_to: str | None = None,
    offset: int = 0,
) -> Page[Task]:
    """List the tasks that match every filter; `parent_id`, `claimed_by` and `assigned_to` may be "none" or "null".

    Sorted by `priority` (then oldest), `created` or `updated`, with a minus in reverse. `cursor` is that of the
    previous page, `offset` how many to skip; `total=True` counts, up to 10,000.
    """
    check_limit(limit, 1000, "cursor")
    check_offset(offset)
    parent_id, claimed_by, assigned_to = (
        NONE if one == "null" else one for one in (parent_id, claimed_by, assigned_to)
    )
    check_flag(include_deleted=include_deleted, total=total)
    name, backwards = _check_sort(sort)
    walk = Walk()
    walk.among("t.status", status, _check_status)
    walk.among("t.priority", priority, check_priority)
    walk.among("t.type", type, check_type)
    if tag is not None:
        walk.source = "task_tags g JOIN tasks t ON t.seq = g.seq"
        walk.add("g.tag = ?", check_tag(tag))
    if tag_pattern is not None:
        walk.add(
            "t.seq IN (SELECT seq FROM task_tags WHERE tag IN (SELECT value FROM json_each(?)))",
            msgspec.json.encode(_tags_like(snapshot, check_pattern(tag_pattern) or "")).decode(),
        )
    if parent_id is not None:
        walk.equal("t.parent", None if parent_id == NONE else find(snapshot, parent_id, deleted=True).seq)
    if claimed_by is not None:
        check_name(claimed_by, "claimed_by")
        walk.equal("t.holder", None if claimed_by == NONE else claimed_by)
    if assigned_to is not None:
        check_name(assigned_to, "assigned_to")
        walk.equal("t.assignee", None if assigned_to == NONE else assigned_to)
    if text is not None:
        walk.add("t.seq IN (SELECT rowid FROM tasks_fts WHERE tasks_fts MATCH ?)", match_of(text))
    if not include_deleted:
        walk.add("t.deleted IS NULL")
    walks = [walk]
    if tag is None and text is None:
        walks = _choose_index(walk, name, {*several(status)}, claimed_by, parent_id, assigned_to)
    page: Page[Task] = Page()
    if total:
        count = sum(_count(snapshot, each) for each in walks)
        page.total, page.more = min(count, MAX_TOTAL), count > MAX_TOTAL
    key, seq = _keys(name, walk)
    cursors, hint = rf"{sort}\.([0-9]{{1,18}})\.([0-9]{{1,18}})", "pass the page's cursor, and the same sort"
    place = readiness.place_of(cursor, cursors, f"a list sorted by {sort}", hint)
    if offset:
        if place is not None:
            raise errors.InvalidFilter("cursor and offset exclude each other", hint="pass the page's cursor alone")
        place = _place_at(snapshot, walks, key, seq, offset, backwards)
        if place is None:
            return page
    left = PAGE_BYTES
    while True:
        size = min(_CHUNK, limit + 1 - len(page))
        found = [_read(snapshot, each, key, seq, size, place, backwards) for each in walks]
        rows = found[0] if len(found) == 1 else sorted(chain(*found), key=_by_priority, reverse=backwards)[:size]
        for row in rows:
            left -= weight(row)
            if len(page) == limit or (page and left < 0):
                assert place is not None
                page.cursor = f"{sort}.{place[0]}.{place[1]}"
                return page
            task = as_seen(snapshot, row)
            page.append(to_task(task))
            place = {"priority": task.priority, "created": 0, "updated": task.updated}[name], task.seq
        if len(rows) < size:
            return page


def _count(snapshot: Snapshot, walk: Walk) -> int:
    row = snapshot.one(f"SELECT count(*) FROM (SELECT 1 {walk.text} LIMIT {MAX_TOTAL + 1})", walk.params)
    return 0 if row is None else int(row[0])


def _read(
    snapshot: Snapshot, walk: Walk, key: str | None, seq: str, size: int, place: Any, backwards: bool
) -> list[Row]:
    select = f"SELECT {COLUMNS}, (SELECT stamp FROM meta) {walk.text}"
    return list(readiness.read(snapshot, select, walk.params, key, seq, size, place, backwards))


def _by_priority(row: Row) -> tuple[int, int]:
    """The order of a list by priority."""
    return row[4], row[0]


def _place_at(
    snapshot: Snapshot, walks: list[Walk], key: str | None, seq: str, offset: int, backwards: bool
) -> readiness.Place | None:
    """Where the page after the first `offset` tasks begins; None if there are no more than those."""
    order = ", ".join(f"{column} DESC" if backwards else column for column in (key, seq) if column is not None)
    skipped = offset - 1 if len(walks) == 1 else 0  # rows of several walks are merged before any is skipped
    found: list[readiness.Place] = []
    for walk in walks:
        places = f"SELECT {key or 0}, {seq} {walk.text} ORDER BY {order} LIMIT {skipped}, {offset - skipped}"
        found += [(row[0], row[1]) for row in snapshot.all(places, walk.params)]
    return next(iter(sorted(found, reverse=backwards)[offset - skipped - 1 :]), None)


_HELD: Final = "t.seq IN (SELECT seq FROM tasks INDEXED BY tasks_held WHERE holder IS NOT NULL UNION ALL"
_REST: Final = "SELECT seq FROM tasks INDEXED BY tasks_status WHERE holder IS NULL AND status IN ({}))"


def _choose_index(
    walk: Walk, sort: str, statuses: set[Any], claimed_by: str | None, parent_id: str | None, assigned_to: str | None
) -> list[Walk]:
    """Choose the index of the walk: the one that narrows most and, if possible, has the order already.

    A task is in progress if somebody holds it: those have an index of their own. Several statuses by priority are
    several walks, whose rows are merged: nobody reads all closed tasks to find the others.
    """
    if claimed_by is not None and claimed_by != NONE:
        walk.source += " INDEXED BY tasks_held"
    elif parent_id is not None and parent_id != NONE:
        walk.source += " INDEXED BY tasks_parent"
    elif assigned_to is not None and assigned_to != NONE:
        walk.source += " INDEXED BY tasks_assigned"
    elif statuses == {"in_progress"}:
        walk.source += " INDEXED BY tasks_held"
        walk.add("t.holder IS NOT NULL")
    elif statuses and ((len(statuses) == 1 and sort == "priority") or statuses <= RARE - {"in_progress"}):
        walk.source += " INDEXED BY tasks_status"
        walk.add("t.holder IS NULL")
    elif statuses and statuses <= RARE:
        rest = sorted(statuses - {"in_progress"})
        walk.add(f"{_HELD} {_REST.format(', '.join('?' * len(rest)))}", *rest)
    elif statuses and sort == "priority" and len(statuses) < len(STATUSES):
        return [_of_status(walk, status) for status in sorted(statuses)]
    else:
        walk.source += " NOT INDEXED" if sort == "created" else f" INDEXED BY tasks_{sort}"
    return [walk]


def _of_status(walk: Walk, status: str) -> Walk:
    """The walk along the tasks of one status, by priority."""
    held = status == "in_progress"
    part = Walk(f"{walk.source} INDEXED BY tasks_{'held' if held else 'status'}", [*walk.where], [*walk.params])
    if held:
        part.add("t.holder IS NOT NULL")
    else:
        part.add("t.holder IS NULL AND t.status = ?", status)
    return part


# What other programs call a status, or what shows the tasks that are meant.
_NEAR: Final = {
    **dict.fromkeys(("done", "completed", "finished", "resolved", "cancelled"), "closed"),
    **dict.fromkeys(("todo", "new", "pending", "backlog"), "open"),
    **dict.fromkeys(("doing", "active", "claimed", "started", "in-progress", "inprogress"), "in_progress"),
    **dict.fromkeys(("review", "in_review"), "pending_merge"),
    "stuck": "blocked",
    "waiting": "board('waiting')",
    "ready": "tasks.ready()",
}


def _check_status(status: TaskStatus) -> TaskStatus:
    if status not in STATUSES:
        near = _NEAR.get(status) if isinstance(status, str) else None
        hint = f"{'' if near is None else f'did you mean {near}? '}statuses: {', '.join(STATUSES)}"
        raise errors.InvalidFilter(f"{status!r} is not a status", hint=hint)
    return status


def _check_sort(sort: str) -> tuple[str, bool]:
    name = sort.removeprefix("-") if isinstance(sort, str) else ""
    if name not in SORTS:
        ways = ", ".join(f"{name}, -{name}" for name in SORTS)
        raise errors.InvalidFilter(f"{sort!r} is not a sort order", hint=f"sort by {ways}")
    return name, sort.startswith("-")


def _keys(name: str, walk: Walk) -> tuple[str | None, str]:
    """The columns of the order; if a tag leads the walk, those of its table."""
    if name == "priority" and walk.source.startswith("task_tags"):
        return "g.priority", "g.seq"
    return SORTS[name], "t.seq"


def _tags_like(snapshot: Snapshot, pattern: str) -> list[str]:
    """The tags in use that a glob matches, by steps along the index, however many tasks have each."""
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


MAX_HISTORY = 10_000


def history(
    snapshot: Snapshot,
    id: str,
    field: str | None = None,
    since: datetime | None = None,
    limit: int = MAX_HISTORY,
    before: int | None = None,
) -> Page[HistoryEntry]:
    """Return the changes of a task, newest first, below version `before`; `field` and `since` filter them.

    A page ends between versions, unless one alone has more changes than `limit`. Works for deleted tasks too. If some
    were compacted, the cursor of the last page leads to Compacted. Raises TaskNotFound, Compacted if nothing is left.
    """
    if field is not None:
        check_name(field, "field")
    if since is not None and not isinstance(since, datetime):
        raise errors.InvalidFilter(f"since must be a datetime, not {type(since).__name__}")
    check_limit(limit, MAX_HISTORY, "before")
    found: Page[HistoryEntry] = Page()
    oldest, left = None if since is None else as_microseconds(since), PAGE_BYTES
    if before is not None and (type(before) is not int or not 1 <= before <= END_OF_REVISION):
        raise errors.InvalidFilter(f"before must be a version (1 or more), not {before!r}")
    id = _exact(snapshot, id)
    reached = 0  # the newest version that is too old
    for row in events.history(snapshot, TASK, "", id, before):
        if oldest is not None and row[2] < oldest:
            reached = row[8]
            break
        entries = [entry for entry in _entries(events.to_event(row)) if field is None or entry.field == field]
        left -= weight(row) if entries else 0
        if found and entries and (len(found) + len(entries) > limit or left < 0):
            found.cursor = str(found[-1].version)
            return found
        found += entries[:limit]
    found.compacted = gap(snapshot, id, reached)
    if found.compacted and not found:
        raise events.gone(found.compacted)
    found.cursor = str(found[-1].version) if found.compacted else None
    return found


def gap(snapshot: Snapshot, id: str, above: int = 0) -> int | None:
    """The mark of compaction, if events of a task above a version are gone: it keeps some of the older ones."""
    compacted = events.compacted_to(snapshot)
    counted = compacted and snapshot.one(
        "SELECT count(*), max(version) FROM log WHERE version > ?"
        " AND record = (SELECT key FROM records WHERE kind = ? AND scope = '' AND id = ?)",
        (above, TASK, id),
    )
    return compacted if counted and counted[1] and counted[0] < counted[1] - above else None


def _exact(snapshot: Snapshot, id: str) -> str:
    """The full id; a purged task is still known by its events."""
    try:
        return find(snapshot, id, deleted=True).id
    except errors.TaskNotFound:
        if not newest_version(snapshot, TASK, "", id):
            raise missing(id) from None
        return id


def _entries(event: Event) -> list[HistoryEntry]:
    """An event as entries: one per field, one for a bare note, one for a step without fields (a purge)."""
    data = dict(event.data)
    note, author = data.pop("note", None), author_of(data.pop("author", None))
    if not data:
        data = {"note": (None, note)} if note is not None else {event.op: (None, None)}
    return [
        HistoryEntry(
            event.id, field, old, new, event.time, event.actor, note, event.op, event.version, event.revision, author
        )
        for field, (old, new) in data.items()
    ]


def author_of(change: Any) -> Author | None:
    """The author of an imported note."""
    return None if change is None else msgspec.convert(change[1], Author)
