"""The tree of tasks, the dependencies between them, and why a task is not ready.

`depends_on` is a graph without cycles; a task is not ready while a task it depends on is unfinished. `discovered_from`
and `related` are only information.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, get_args

import msgspec

from holdfast import errors
from holdfast.domains import link_types
from holdfast.domains.routing.config import settings_of
from holdfast.domains.tasks import rows
from holdfast.domains.tasks.claims import renew
from holdfast.domains.tasks.creation import require_parent
from holdfast.domains.tasks.queries import list_tasks
from holdfast.domains.tasks.readiness import place_of
from holdfast.domains.tasks.rows import Stored
from holdfast.kernel.tx import Snapshot, Tx, fill
from holdfast.kernel.validate import check_limit, check_offset
from holdfast.types import Page, as_time
from holdfast.types.tasks import LinkKind, Readiness, Reason, Task, TaskInTree, TaskLink

MAX_TREE = 10_000
MAX_IDS = 1000  # that a reason names; its text counts all

_BELOW = (
    "WITH RECURSIVE below(seq, level) AS (SELECT ?, 0 UNION ALL"
    " SELECT c.seq, below.level + 1 FROM below JOIN tasks c ON c.parent = below.seq{live} LIMIT {limit})"
)
_LIVE = " AND c.deleted IS NULL"
# In order, because its rows wait in a queue by level and seq: a page ends the walk, and nothing is sorted.
_WALK = _BELOW.replace(" LIMIT {limit})", " ORDER BY 2, 1)").format(live=_LIVE)


def below(snapshot: Snapshot, seq: int, *, deleted: bool = False) -> list[tuple[int, int]]:
    """Return the task and its descendants with their levels, parents first; with `deleted` also deleted ones."""
    query = _BELOW.format(live="" if deleted else _LIVE, limit=-1) + " SELECT seq, level FROM below ORDER BY level, seq"
    return [(seq, level) for seq, level in snapshot.all(query, (seq,))]


def subtree(snapshot: Snapshot, id: str, limit: int = MAX_TREE, cursor: str | None = None) -> Page[TaskInTree]:
    """List the task and all its descendants with their depth below it; by level, then oldest first."""
    check_limit(limit, MAX_TREE, "cursor")
    place = place_of(cursor, r"([0-9]{1,18})\.([0-9]{1,18})", "a tree", "pass the page's cursor unchanged")
    found, more = snapshot.page(
        f"{_WALK} SELECT below.level, {rows.COLUMNS}, (SELECT stamp FROM meta) FROM below"
        " CROSS JOIN tasks t ON t.seq = below.seq WHERE (below.level, below.seq) > (?, ?) LIMIT ?",
        (rows.find(snapshot, id).seq, *(place or (0, 0))),
        limit,
    )
    tasks = [(row[0], rows.as_seen(snapshot, row[1:])) for row in found]
    page = Page(TaskInTree(**msgspec.structs.asdict(rows.to_task(task)), relative_depth=at) for at, task in tasks)
    page.cursor = f"{tasks[-1][0]}.{tasks[-1][1].seq}" if more else None
    return page


def ancestors(snapshot: Snapshot, id: str, limit: int = 1000, after: str = "") -> Page[Task]:
    """List the ancestors of a task, from its parent up to the root; `after` is the last id of the previous page."""
    check_limit(limit, 1000, "after")
    page: Page[Task] = Page()
    above = rows.find(snapshot, id)
    if after != "":
        above = rows.find(snapshot, after, deleted=True)
    more = fill(page, _above(snapshot, above), limit)
    page.cursor = page[-1].id if more else None
    return page


def _above(snapshot: Snapshot, task: Stored) -> Iterator[Task]:
    while task.parent is not None:
        (task,) = rows.seen(snapshot, "tasks t WHERE t.seq = ?", (task.parent,))
        yield rows.to_task(task)


def children(snapshot: Snapshot, id: str, limit: int = 1000, cursor: str | None = None) -> Page[Task]:
    """List the tasks directly below a task, by priority, then oldest first."""
    return list_tasks(snapshot, parent_id=rows.find(snapshot, id).id, limit=limit, cursor=cursor)


def reparent(tx: Tx, id: str, parent_id: str | None) -> Task:
    """Move a task with its descendants under another parent, None for the top level. Raises WouldCreateCycle."""
    task = rows.require(tx, id)
    renew(tx, task)
    parent = require_parent(tx, parent_id)
    if parent is not None:
        _refuse_cycle(tx, task, parent)
    if parent_id != task.parent_id:
        move(tx, task, parent, "reparent")
    return rows.warned(tx, rows.require(tx, id))


def move(
    tx: Tx,
    task: Stored,
    parent: Stored | None,
    op: str,
    updated: int | None = None,
    columns: dict[str, Any] | None = None,
    more: dict[str, Any] | None = None,
) -> None:
    """Move a task with its descendants under a parent that is not below it; the rest is as in `rows.change`."""
    new, parent_id = (None, None) if parent is None else (parent.seq, parent.id)
    depth = 0 if parent is None else parent.depth + 1
    descendants = below(tx, task.seq, deleted=True)
    more = {"parent_id": (task.parent_id, parent_id), **(more or {})}
    rows.change(tx, task, op, {"parent": new, "depth": depth, **(columns or {})}, more=more, updated=updated)
    for seq, level in descendants[1:]:
        tx.run("UPDATE tasks SET depth = ? WHERE seq = ?", (depth + level, seq))
    if task.parent is not None:
        rows.count_child(tx, task.parent, task, None)
    if new is not None:
        rows.count_child(tx, new, None, task)


def _refuse_cycle(tx: Tx, task: Stored, parent: Stored) -> None:
    path = [parent.id]
    above: Stored | None = parent
    while above is not None:
        if above.seq == task.seq:
            message, hint = f"task {task.id} cannot be moved below itself", "choose another parent"
            if parent.seq != task.seq:
                below = " -> ".join(reversed(path))
                message = f"task {task.id} cannot be moved below {parent.id}, which is below it: {below}"
                hint = f"first move {parent.id} elsewhere"
            raise errors.WouldCreateCycle(message, hint=hint, id=task.id, path=list(reversed(path)))
        above = None if above.parent is None else rows.by_seq(tx, above.parent)
        if above is not None:
            path.append(above.id)


KINDS: Final[tuple[LinkKind, ...]] = get_args(LinkKind)


def _check_kind(kind: LinkKind) -> None:
    if kind not in KINDS:
        hint = f"kinds: {', '.join(KINDS)}"
        raise errors.InvalidType(f"{kind!r} is not a kind of link", hint=hint, kinds=list(KINDS))


def depend(tx: Tx, id: str, on: str, kind: LinkKind = "depends_on") -> Task:
    """Make a task depend on another, or only link them by `kind`. Raises WouldCreateCycle.

    Warns if it waits for a task above it, which is strict about its children: neither becomes ready.
    """
    _check_kind(kind)
    task, other = rows.require(tx, id), rows.require(tx, on)
    renew(tx, task)
    if task.seq == other.seq:
        hint = "name another task"
        raise errors.WouldCreateCycle(f"task {id} cannot depend on itself", hint=hint, id=id, path=[id, id])
    if kind == rows.DEPENDS_ON:
        path = link_types.path(tx, kind, on, id)
        if path is not None:
            around = [id, *path]
            cycle = " -> ".join(around)
            hint = f'first remove one of these dependencies, such as tasks.undepend("{around[1]}", "{around[2]}")'
            message = f"the dependency would close a cycle: {cycle}"
            raise errors.WouldCreateCycle(message, hint=hint, id=id, path=around)
    if link_types.add(tx, kind, id, on):
        _change(tx, task, other, "depend", kind, (None, on), waits=1)
    shown = rows.to_task(rows.require(tx, id))
    above = _awaited_above(tx, task, on) if kind == rows.DEPENDS_ON and not task.finished else None
    if above is None:
        return shown
    warning = f"it waits for {above}, which is above it and waits for it: neither becomes ready"
    return msgspec.structs.replace(shown, warnings=(*shown.warnings, warning))


def _awaited_above(tx: Tx, task: Stored, on: str) -> str | None:
    """Return the unfinished task above one that a dependency leads to, if parents wait for their children."""
    if task.parent is None or not settings_of(tx).strict:
        return None
    above: Stored | None = rows.by_seq(tx, task.parent)
    while above is not None:
        if not above.finished and (above.id == on or link_types.path(tx, rows.DEPENDS_ON, on, above.id) is not None):
            return above.id
        above = None if above.parent is None else rows.by_seq(tx, above.parent)
    return None


def undepend(tx: Tx, id: str, on: str, kind: LinkKind = "depends_on") -> Task:
    """Remove a link; does nothing if there is none."""
    _check_kind(kind)
    task, other = rows.require(tx, id), rows.require(tx, on, deleted=True)
    renew(tx, task)
    if link_types.remove(tx, kind, id, on):
        _change(tx, task, other, "undepend", kind, (on, None), waits=-1)
    return rows.to_task(rows.require(tx, id))


def _change(
    tx: Tx, task: Stored, other: Stored, op: str, kind: LinkKind, link: tuple[str | None, str | None], waits: int
) -> None:
    """Write the event of a link that was added or removed, and count what the task waits for."""
    if kind == rows.DEPENDS_ON and not other.finished:
        rows.adjust(tx, task.seq, waits=waits)
        task = rows.require(tx, task.id)
    rows.change(tx, task, op, {}, more={kind: link})


def dependencies(snapshot: Snapshot, id: str, limit: int = MAX_TREE, offset: int = 0) -> Page[TaskLink]:
    """List the links from and to a task."""
    check_limit(limit, MAX_TREE, "offset")
    check_offset(offset)
    id = rows.find(snapshot, id).id
    found = []
    for kind in KINDS:
        found += [TaskLink(kind, id, target) for target in link_types.targets(snapshot, kind, id)]
        found += [TaskLink(kind, source, id) for source in link_types.sources(snapshot, kind, id)]
    page: Page[TaskLink] = Page()
    more = fill(page, found[offset:], limit)
    page.cursor = str(offset + len(page)) if more else None
    return page


def unfinished(snapshot: Snapshot, id: str) -> list[str]:
    """Return the tasks that a task still waits for."""
    found = snapshot.all(
        "SELECT t.id FROM links k JOIN tasks t ON t.id = k.target WHERE k.kind = ? AND k.source = ?"
        " AND t.status <> 'closed' AND t.deleted IS NULL ORDER BY t.id",
        (rows.DEPENDS_ON, id),
    )
    return [other for (other,) in found]


def explain(snapshot: Snapshot, actor: str, id: str, agent: str | None = None) -> Readiness:
    """Return whether `claim_next` of an agent would consider the task, and all reasons if not. Raises TaskNotFound."""
    task = rows.find(snapshot, id, deleted=True)
    reasons: list[Reason] = []
    if task.deleted is not None:
        reasons.append(Reason("deleted", f"it was deleted at {as_time(task.deleted).isoformat()}"))
    if task.holder is not None:
        since = as_time(task.claimed or 0).isoformat()
        until = " and parked" if task.deadline is None else f", held until {as_time(task.deadline).isoformat()}"
        reasons.append(Reason("claimed", f"it has been claimed by {task.holder} since {since}{until}"))
    elif task.status != "open":
        reasons.append(Reason("status", f"it is {task.status}, not open"))
    others = awaited(snapshot, task)
    reasons += [reason for reason in others if reason.code == "dependencies"]
    if task.deferred is not None:
        reasons.append(Reason("deferred", f"it is deferred until {as_time(task.deferred).isoformat()}"))
    reasons += [reason for reason in others if reason.code == "children"]
    if task.assignee not in (None, actor if agent is None else agent):
        reasons.append(Reason("assigned", f"it is assigned to {task.assignee}, who alone may claim it"))
    return Readiness(task.id, not reasons, tuple(reasons))


def awaited(snapshot: Snapshot, task: rows.Stored) -> list[Reason]:
    """Return the reasons why a task is not ready that are other tasks: its dependencies, then its children."""
    reasons: list[Reason] = []
    waiting = unfinished(snapshot, task.id)
    if waiting:
        reasons.append(Reason("dependencies", f"it waits for {_several(waiting)}", tuple(waiting[:MAX_IDS])))
    strict = settings_of(snapshot).strict
    children = rows.awaited_children(snapshot, task.seq, strict)
    if children:
        of, state = ("child", "is") if len(children) == 1 else ("children", "are")
        state += " not finished" if strict else " being worked on"
        reasons.append(Reason("children", f"its {of} {_several(children)} {state}", tuple(children[:MAX_IDS])))
    return reasons


def _several(ids: tuple[str, ...] | list[str]) -> str:
    return ", ".join(ids[:5]) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")
