"""The tree of tasks, and the dependencies between them.

`depends_on` is a graph without cycles; a task is not ready while a task it depends on is unfinished. `discovered_from`
and `related` are only information.
"""

from __future__ import annotations

from typing import Final, get_args

from holdfast import errors
from holdfast.domains import link_types
from holdfast.domains.tasks.claims import renew
from holdfast.domains.tasks.creation import require_parent
from holdfast.domains.tasks.rows import (
    COLUMNS,
    DEPENDS_ON,
    Stored,
    adjust,
    as_seen,
    by_seq,
    change,
    find,
    require,
    to_task,
)
from holdfast.kernel.tx import Snapshot, Tx
from holdfast.kernel.validate import check_limit
from holdfast.types.tasks import LinkKind, Task, TaskInTree, TaskLink

MAX_TREE = 10_000

_BELOW = (
    "WITH RECURSIVE below(seq, level) AS (SELECT ?, 0 UNION ALL"
    " SELECT c.seq, below.level + 1 FROM below JOIN tasks c ON c.parent = below.seq{live} LIMIT {limit})"
)
_LIVE = " AND c.deleted IS NULL"


def below(snapshot: Snapshot, seq: int, *, deleted: bool = False) -> list[tuple[int, int]]:
    """Return the task and its descendants with their levels, parents first; with `deleted` also deleted ones."""
    rows = snapshot.all(
        _BELOW.format(live="" if deleted else _LIVE, limit=-1) + " SELECT seq, level FROM below ORDER BY level, seq",
        (seq,),
    )
    return [(seq, level) for seq, level in rows]


def subtree(snapshot: Snapshot, id: str, limit: int = MAX_TREE) -> list[TaskInTree]:
    """Return the task and all its descendants with their depth below it; by level, then oldest first."""
    check_limit(limit, MAX_TREE)
    root = find(snapshot, id)
    rows = snapshot.all(
        _BELOW.format(live=_LIVE, limit=limit)
        + f" SELECT below.level, {COLUMNS}, (SELECT stamp FROM meta) FROM below JOIN tasks t ON t.seq = below.seq"
        " ORDER BY below.level, t.seq",
        (root.seq,),
    )
    return [_in_tree(as_seen(snapshot, row[1:]), row[0]) for row in rows]


def _in_tree(task: Stored, level: int) -> TaskInTree:
    plain = to_task(task)
    values = {name: getattr(plain, name) for name in plain.__struct_fields__}
    return TaskInTree(**values, relative_depth=level)


def ancestors(snapshot: Snapshot, id: str) -> list[Task]:
    """Return the ancestors of a task, from its parent up to the root."""
    found = []
    parent = find(snapshot, id).parent
    while parent is not None:
        row = snapshot.one(f"SELECT {COLUMNS}, (SELECT stamp FROM meta) FROM tasks t WHERE t.seq = ?", (parent,))
        assert row is not None
        task = as_seen(snapshot, row)
        found.append(to_task(task))
        parent = task.parent
    return found


def children(snapshot: Snapshot, id: str) -> list[Task]:
    """Return the tasks directly below a task, by priority, then oldest first."""
    rows = snapshot.all(
        f"SELECT {COLUMNS}, (SELECT stamp FROM meta) FROM tasks t WHERE t.parent = ? AND t.deleted IS NULL"
        " ORDER BY t.priority, t.seq",
        (find(snapshot, id).seq,),
    )
    return [to_task(as_seen(snapshot, row)) for row in rows]


def reparent(tx: Tx, id: str, parent_id: str | None) -> Task:
    """Move a task with its descendants under another parent, None for the top level. Raises WouldCreateCycle."""
    task = require(tx, id)
    renew(tx, task)
    parent = require_parent(tx, parent_id)
    if parent is not None:
        _refuse_cycle(tx, task, parent)
    if parent_id != task.parent_id:
        move(tx, task, parent, "reparent")
    return to_task(require(tx, id))


def move(tx: Tx, task: Stored, parent: Stored | None, op: str, updated: int | None = None) -> None:
    """Move a task with its descendants under a parent that is not below it; `updated` as in `rows.change`."""
    new, parent_id = (None, None) if parent is None else (parent.seq, parent.id)
    depth = 0 if parent is None else parent.depth + 1
    descendants = below(tx, task.seq, deleted=True)
    more = {"parent_id": (task.parent_id, parent_id)}
    change(tx, task, op, {"parent": new, "depth": depth}, more=more, updated=updated)
    for seq, level in descendants[1:]:
        tx.run("UPDATE tasks SET depth = ? WHERE seq = ?", (depth + level, seq))
    if task.active:
        for other, by in ((task.parent, -1), (new, 1)):
            if other is not None:
                adjust(tx, other, busy=by)


def _refuse_cycle(tx: Tx, task: Stored, parent: Stored) -> None:
    path = [parent.id]
    above: Stored | None = parent
    while above is not None:
        if above.seq == task.seq:
            raise errors.WouldCreateCycle(
                f"{parent.id} is {task.id} itself or below it: {' -> '.join(reversed(path))}",
                hint="move the descendant out first",
                id=task.id,
                path=list(reversed(path)),
            )
        above = None if above.parent is None else by_seq(tx, above.parent)
        if above is not None:
            path.append(above.id)


KINDS: Final[tuple[LinkKind, ...]] = get_args(LinkKind)


def _check_kind(kind: LinkKind) -> None:
    if kind not in KINDS:
        raise errors.InvalidType(
            f"{kind!r} is not a kind of link", hint=f"kinds: {', '.join(KINDS)}", kinds=list(KINDS)
        )


def depend(tx: Tx, id: str, on: str, kind: LinkKind = "depends_on") -> Task:
    """Make a task depend on another, or only link them by `kind`. Raises WouldCreateCycle."""
    _check_kind(kind)
    task, other = require(tx, id), require(tx, on)
    renew(tx, task)
    if task.seq == other.seq:
        raise errors.WouldCreateCycle(f"task {id} cannot depend on itself", id=id, path=[id, id])
    if kind == DEPENDS_ON:
        path = link_types.path(tx, kind, on, id)
        if path is not None:
            around = [id, *path]
            cycle = " -> ".join(around)
            raise errors.WouldCreateCycle(f"the dependency would close a cycle: {cycle}", id=id, path=around)
    if link_types.add(tx, kind, id, on):
        if kind == DEPENDS_ON and not other.finished:
            adjust(tx, task.seq, waits=1)
            task = require(tx, id)
        change(tx, task, "depend", {}, more={kind: (None, on)})
    return to_task(require(tx, id))


def undepend(tx: Tx, id: str, on: str, kind: LinkKind = "depends_on") -> Task:
    """Remove a link; does nothing if there is none."""
    _check_kind(kind)
    task, other = require(tx, id), require(tx, on, deleted=True)
    renew(tx, task)
    if link_types.remove(tx, kind, id, on):
        if kind == DEPENDS_ON and not other.finished:
            adjust(tx, task.seq, waits=-1)
            task = require(tx, id)
        change(tx, task, "undepend", {}, more={kind: (on, None)})
    return to_task(require(tx, id))


def dependencies(snapshot: Snapshot, id: str) -> list[TaskLink]:
    """Return every link from and to a task."""
    id = find(snapshot, id).id
    found = []
    for kind in KINDS:
        found += [TaskLink(kind, id, target) for target in link_types.targets(snapshot, kind, id)]
        found += [TaskLink(kind, source, id) for source in link_types.sources(snapshot, kind, id)]
    return found


def unfinished(snapshot: Snapshot, id: str) -> list[str]:
    """Return the tasks that a task still waits for."""
    rows = snapshot.all(
        "SELECT t.id FROM links k JOIN tasks t ON t.id = k.target WHERE k.kind = ? AND k.source = ?"
        " AND t.status <> 'closed' AND t.deleted IS NULL ORDER BY t.id",
        (DEPENDS_ON, id),
    )
    return [found for (found,) in rows]
