"""Which task comes next: the best ready one that matches, by priority, then oldest.

A task that is assigned is ready for its assignee alone, and has an index of its own: its entries are merged with those
that are ready for everybody.

Without filters, or with one tag, it is the first entry of an index. Other filters (globs, several tags, abilities) look
for a candidate in a snapshot, page by page, so that no writer waits for the search; the transaction claims it, or one
that follows it if others were first. The result is None only if no ready task matches.

SQLite seeks `(key, seq) > (?, ?)` by the key alone, because `seq` is the rowid, and scans over all rows before it. So a
page is read in two parts: the rest of its key, then the keys beyond.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, repeat
from typing import Any

import msgspec

from holdfast import errors
from holdfast.domains.routing import globs
from holdfast.domains.routing.config import Parents, Settings, set_parents, settings_of
from holdfast.domains.tasks.claims import check_abilities, registered_abilities, route, take
from holdfast.domains.tasks.creation import check_priority, check_tags, check_type
from holdfast.domains.tasks.rows import COLUMNS, READY_COLUMNS, Stored, find, to_task
from holdfast.domains.tasks.tags import READY, STARTABLE
from holdfast.kernel.leases import holder_of, name_of, next_deadline
from holdfast.kernel.tx import PAGE_BYTES, Row, Snapshot, Tx
from holdfast.kernel.validate import check_limit, check_name, check_ttl, several
from holdfast.operation import Do, Look, Steps
from holdfast.types import Page
from holdfast.types.tasks import Task, TaskType

Place = tuple[int, int]  # a key, and the seq of the last task with it on the page


def place_of(cursor: str | None, pattern: str, what: str, hint: str) -> Place | None:
    """The last task of the previous page, None on the first. Raises InvalidFilter."""
    if cursor is None:
        return None
    found = re.fullmatch(pattern, cursor) if isinstance(cursor, str) else None
    if found is None:
        raise errors.InvalidFilter(f"{cursor!r} is not a cursor of {what}", hint=hint)
    return int(found[1]), int(found[2])


def parts(key: str | None, seq: str, place: Place | None, backwards: bool) -> list[tuple[str, list[int]]]:
    """The conditions that, one after the other, select everything after a place in order."""
    way = "<" if backwards else ">"
    if place is None:
        return [("true", [])]
    if key is None:
        return [(f"{seq} {way} ?", [place[1]])]
    return [(f"{key} = ? AND {seq} {way} ?", [*place]), (f"{key} {way} ?", [place[0]])]


def read(
    snapshot: Snapshot,
    select: str,
    params: list[Any],
    key: str | None,
    seq: str,
    limit: int,
    place: Place | None = None,
    backwards: bool = False,
) -> Iterator[Row]:
    """Yield at most `limit` rows of a query that ends in its conditions, by key and seq, after a place."""
    order = ", ".join(f"{column} DESC" if backwards else column for column in (key, seq) if column is not None)
    left = limit
    for condition, values in parts(key, seq, place, backwards):
        rows = snapshot.all(f"{select} AND {condition} ORDER BY {order} LIMIT ?", (*params, *values, left))
        yield from rows
        left -= len(rows)
        if not left:
            return


PAGE = 200
_FIRST_PAGES = (4, 32)  # most searches end here
ROUNDS = 100  # attempts to claim a candidate before others do; after that the search runs in the transaction
# Whether anything at all is assigned and ready, which is rare: one look at the beginning of an index.
_OTHERS = (
    "EXISTS (SELECT 1 FROM tasks o INDEXED BY tasks_ready_assigned"
    f" WHERE o.assignee IS NOT NULL AND {STARTABLE.replace('t.', 'o.')})"
)
_BEST = (
    f"SELECT {READY_COLUMNS}, {_OTHERS} FROM tasks t INDEXED BY tasks_ready WHERE {READY}"
    " ORDER BY t.priority, t.seq LIMIT ?"
)
_OWN = (
    f"SELECT {COLUMNS} FROM tasks t INDEXED BY tasks_ready_assigned WHERE t.assignee = ? AND {STARTABLE}"
    "{} ORDER BY t.priority, t.seq LIMIT 1"
)
_WITH_TAG = " AND EXISTS (SELECT 1 FROM task_tags WHERE tag = ? AND priority = t.priority AND seq = t.seq)"
_BEST_TAGGED = (
    f"SELECT {READY_COLUMNS}, {_OTHERS} FROM ready_tags g CROSS JOIN tasks t ON t.seq = g.seq"
    f" WHERE g.tag = ? AND {READY} ORDER BY g.priority, g.seq LIMIT ?"
)
_AHEAD = 64  # tasks that are read at once for the claims of a group
_STEPPED_OVER = "DELETE FROM ready_tags WHERE tag = ? AND (priority, seq) < (?, ?)"


class Wanted(msgspec.Struct, frozen=True):
    """The filter for ready tasks."""

    tags: tuple[str, ...] = ()
    pattern: str | None = None
    types: tuple[TaskType, ...] = ()
    priorities: tuple[int, ...] = ()
    parent_id: str | None = None
    can: frozenset[str] | None = None

    @property
    def indexed(self) -> bool:
        """Whether the first entry of an index is the result."""
        return self is _ANY or (
            len(self.tags) <= 1
            and not (self.pattern or self.types or self.priorities)
            and self.parent_id is None
            and self.can is None
        )


_ANY = Wanted()


def check_pattern(pattern: str | None) -> str | None:
    """Return a valid glob, or None. Raises InvalidFilter."""
    if pattern is None:
        return None
    try:
        check_name(pattern, "it")
        problem = globs.check(pattern)
    except errors.InvalidName as error:
        problem = error.message
    if problem:
        raise errors.InvalidFilter(f"tag_pattern is not valid: {problem}", hint="such as area/** or {api,web}-*")
    return pattern


def _wanted(
    tags: Sequence[str] | None,
    pattern: str | None,
    type: Any,
    priority: Any,
    parent_id: str | None,
    can: Sequence[str] | None,
) -> Wanted:
    if tags is pattern is type is priority is parent_id is can is None:
        return _ANY
    checked = check_tags(() if tags is None else tags, 10_000)
    if pattern is not None and check_pattern(pattern) and globs.is_literal(pattern):
        checked, pattern = tuple(sorted({*checked, globs.literal_prefix(pattern)})), None  # an index knows it
    types = tuple(check_type(each) for each in several(type))
    priorities = tuple(check_priority(each) for each in several(priority))
    return Wanted(checked, pattern, types, priorities, parent_id, check_abilities(can))


# --- looking ---------------------------------------------------------------------------------------------------------


def candidates(
    snapshot: Snapshot,
    wanted: Wanted,
    settings: Settings,
    agent: str,
    after: Place | None = None,
    pages: Sequence[int] = (),
) -> Iterator[Stored]:
    """Yield the matching tasks that are ready for an agent, best first, after a place.

    They are read page by page, all or only so many rows each.
    """
    fits = _fits(snapshot, wanted, settings)
    found = [
        _walk(snapshot, query, fits, after, pages)
        for query in (_query(snapshot, wanted), _own(snapshot, wanted, agent))
    ]
    from heapq import merge  # most claims go along one index

    return merge(*found, key=lambda task: (task.priority, task.seq))


def _walk(
    snapshot: Snapshot,
    query: tuple[str, list[Any], str],
    fits: Callable[[Stored], bool],
    after: Place | None,
    pages: Sequence[int],
) -> Iterator[Stored]:
    select, params, at = query
    for size in pages or chain(_FIRST_PAGES, repeat(PAGE)):
        rows = list(read(snapshot, select, params, f"{at}.priority", f"{at}.seq", size, after))
        for row in rows:
            task = Stored(*row)
            if fits(task):
                yield task
        if len(rows) < size:
            return
        after = (task.priority, task.seq)


def _query(snapshot: Snapshot, wanted: Wanted) -> tuple[str, list[Any], str]:
    """The walk along the index with the fewest entries, and its table; filters what SQL can filter."""
    where: list[str] = []
    params: list[Any] = []
    tags = sorted(wanted.tags, key=lambda tag: (_how_many(snapshot, tag), tag))
    if tags:
        source, at = "ready_tags g JOIN tasks t ON t.seq = g.seq", "g"
        where += ["g.tag = ?", READY]
        params.append(tags[0])
        for tag in tags[1:]:
            where.append("EXISTS (SELECT 1 FROM ready_tags WHERE tag = ? AND priority = g.priority AND seq = g.seq)")
            params.append(tag)
    else:
        source, at = "tasks t INDEXED BY tasks_ready", "t"
        where.append(READY)
    return _select(snapshot, wanted, source, at, where, params)


def _own(snapshot: Snapshot, wanted: Wanted, agent: str) -> tuple[str, list[Any], str]:
    """The walk along what is assigned to an agent."""
    where = ["t.assignee = ?", STARTABLE + _WITH_TAG * len(wanted.tags)]
    return _select(snapshot, wanted, "tasks t INDEXED BY tasks_ready_assigned", "t", where, [agent, *wanted.tags])


def _select(
    snapshot: Snapshot, wanted: Wanted, source: str, at: str, where: list[str], params: list[Any]
) -> tuple[str, list[Any], str]:
    for column, values in (("t.type", wanted.types), (f"{at}.priority", wanted.priorities)):
        if values:
            where.append(f"{column} IN ({', '.join('?' * len(values))})")
            params += values
    if wanted.parent_id is not None:
        where.append("t.parent = ?")
        params.append(find(snapshot, wanted.parent_id).seq)
    return f"SELECT {COLUMNS} FROM {source} WHERE {' AND '.join(where)}", params, at


def _how_many(snapshot: Snapshot, tag: str) -> int:
    """The number of ready tasks with a tag, up to a page: the rarest tag leads the walk."""
    row = snapshot.one("SELECT count(*) FROM (SELECT 1 FROM ready_tags WHERE tag = ? LIMIT ?)", (tag, PAGE))
    return 0 if row is None else row[0]


def _fits(snapshot: Snapshot, wanted: Wanted, settings: Settings) -> Callable[[Stored], bool]:
    """The filter that needs Python: globs, and what a task's route needs."""
    matches = None if wanted.pattern is None else globs.compile(wanted.pattern)
    can = wanted.can if settings.rules.has_needs else None

    def fits(task: Stored) -> bool:
        if matches is not None and not any(matches(tag) for tag in task.tag_list):
            return False
        return can is None or can.issuperset(route(snapshot, task, settings).needs)

    return fits


def ready(
    snapshot: Snapshot,
    actor: str,
    limit: int = 100,
    tags: Sequence[str] | None = None,
    can: Sequence[str] | None = None,
    tag_pattern: str | None = None,
    type: TaskType | Sequence[TaskType] | None = None,
    priority: int | Sequence[int] | None = None,
    parent_id: str | None = None,
    cursor: str | None = None,
    agent: str | None = None,
) -> Page[Task]:
    """List the tasks that `claim_next` would claim for an agent, best first, with the same filters."""
    check_limit(limit, 1000, "cursor")
    wanted = _wanted(tags, tag_pattern, type, priority, parent_id, can)
    if agent is not None:
        check_name(agent, "agent")
    after = place_of(cursor, r"([0-4])\.([0-9]{1,18})", "ready", "pass the page's cursor unchanged")
    page: Page[Task] = Page()
    left, last = PAGE_BYTES, None
    for task in candidates(snapshot, wanted, settings_of(snapshot), actor if agent is None else agent, after):
        left -= len(task.body.encode())
        if last is not None and (len(page) == limit or left < 0):
            page.cursor = f"{last.priority}.{last.seq}"
            break
        page.append(to_task(task))
        last = task
    return page


# --- taking ----------------------------------------------------------------------------------------------------------


def claim_next(
    agent: str | None = None,
    tags: Sequence[str] | None = None,
    can: Sequence[str] | None = None,
    ttl: float | None = None,
    tag_pattern: str | None = None,
    type: TaskType | Sequence[TaskType] | None = None,
    priority: int | Sequence[int] | None = None,
    parent_id: str | None = None,
) -> Steps[Task | None]:
    """Claim the best ready task that has all `tags` and matches the other filters; None if there is none.

    `can` lists the agent's abilities, by default those it registered: tasks whose route needs more are skipped.
    """
    wanted = _wanted(tags, tag_pattern, type, priority, parent_id, can)
    micros = None if ttl is None else check_ttl(ttl)
    if not wanted.indexed:
        for _ in range(ROUNDS):
            place = yield Look(lambda snapshot, actor: _look(snapshot, actor, agent, wanted), whole=True)
            if place is None:
                break
            if not place:
                return None
            taken = yield Do(partial(_take_from, place=place, agent=agent, ttl=micros, wanted=wanted), keyed=True)
            if taken is not None:
                task: Task = taken
                return task
    best: Task | None = yield Do(partial(_take_best, agent=agent, ttl=micros, wanted=wanted), keyed=True)
    return best


def _look(snapshot: Snapshot, actor: str, agent: str | None, wanted: Wanted) -> Place | tuple[()] | None:
    """The best candidate's place, () if there is none; None if claims have expired: only a transaction can sweep."""
    agent = name_of(actor, agent, "agent")
    due, stamp = next_deadline(snapshot)
    if due is not None and snapshot.is_past(due, stamp):
        return None
    settings = settings_of(snapshot)
    best = next(candidates(snapshot, _as_registered(snapshot, wanted, agent, settings), settings, agent), None)
    return () if best is None else (best.priority, best.seq)


def _take_from(tx: Tx, place: Place, agent: str | None, ttl: int | None, wanted: Wanted) -> Task | None:
    """Claim the candidate at a place or, if others were first, one of those that follow; None if none is near."""
    agent = holder_of(tx, agent, "agent")
    settings = settings_of(tx)
    wanted = _as_registered(tx, wanted, agent, settings)
    priority, seq = place
    best = next(candidates(tx, wanted, settings, agent, (priority, seq - 1), _FIRST_PAGES), None)
    return None if best is None else take(tx, best, agent, ttl, None, settings)


def _as_registered(snapshot: Snapshot, wanted: Wanted, agent: str, settings: Settings) -> Wanted:
    """Use the abilities that the agent registered if it gives none."""
    if wanted.can is not None or not settings.rules.has_needs:
        return wanted
    can = registered_abilities(snapshot, agent)
    return wanted if can is None else msgspec.structs.replace(wanted, can=can)


def _take_best(tx: Tx, agent: str | None, ttl: int | None, wanted: Wanted) -> Task | None:
    """Claim the best match. The entries of an index that follow it are kept for the next claims of the group.

    Each time they are used up, twice as many are read, but no more than there are bodies to come: a lone claim reads
    one task, and a group of claims as many as it takes. A body that claims several reads at most twice what it needs.
    """
    agent = holder_of(tx, agent, "agent")
    settings = settings_of(tx)
    wanted = _as_registered(tx, wanted, agent, settings)
    if not wanted.indexed:
        best = next(candidates(tx, wanted, settings, agent), None)
        return None if best is None else take(tx, best, agent, ttl, None, settings)
    tags = wanted.tags
    key = f"ready {tags[0]}" if tags else "ready"
    size, rows = tx.read_ahead(key) or (0, [])
    fresh = not rows
    if fresh:
        size = min(_AHEAD, 2 * size or 1)
        if not tx.events:
            size = min(size, tx.to_come + 1)
        rows = tx.all(_BEST_TAGGED if tags else _BEST, (*tags, size))
        rows.reverse()
    if not rows or rows[-1][-1]:
        own = tx.one(_OWN.format(_WITH_TAG if tags else ""), (agent, *tags))
        if own is not None and (not rows or (own[4], own[0]) < (rows[-1][4], rows[-1][0])):
            return take(tx, Stored(*own), agent, ttl, None, settings)
        if not rows:
            return None
    best = Stored(*rows[-1][:-1])
    if tags and fresh:
        tx.run(_STEPPED_OVER, (*tags, best.priority, best.seq))
    task = take(tx, best, agent, ttl, None, settings)
    rows.pop()
    if best.parent is None or settings.strict:  # otherwise the parent, which must wait now, may be one of them
        tx.keep_ahead(key, (size, rows))
    return task


def rebuild(tx: Tx, parents: Parents) -> None:
    """Have all tasks wait for their children in another way, from this transaction on; nothing if it is the same."""
    strict = parents == "strict"
    if settings_of(tx).strict == strict:
        return
    set_parents(tx, parents)
    active = (
        "(SELECT count(*) FROM tasks c WHERE c.parent = tasks.seq AND c.status IN ('in_progress', 'pending_merge'))"
    )
    tx.run(f"UPDATE tasks SET busy = {'children - ended' if strict else active} WHERE children > 0")
    tx.run("DELETE FROM ready_tags")
    tx.run(
        "INSERT INTO ready_tags (tag, priority, seq) SELECT j.value, t.priority, t.seq"
        f" FROM tasks t INDEXED BY tasks_ready, json_each(t.tags) j WHERE {READY} ORDER BY 1, 2, 3"
    )
