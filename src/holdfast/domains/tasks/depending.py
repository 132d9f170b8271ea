"""What a task waits for and where it comes from: links between tasks.

`depends_on` is a graph without cycles; a task is not ready while one it depends on is unfinished. `discovered_from` and
`related` only tell.
"""

from __future__ import annotations

from typing import Final, get_args

from holdfast import errors
from holdfast.domains import links
from holdfast.domains.tasks.claims import renew
from holdfast.domains.tasks.rows import DEPENDS_ON, adjust, change, find, require, to_task
from holdfast.kernel.tx import Snapshot, Tx
from holdfast.types.tasks import LinkKind, Task, TaskLink

KINDS: Final[tuple[LinkKind, ...]] = get_args(LinkKind)


def _check_kind(kind: LinkKind) -> None:
    if kind not in KINDS:
        raise errors.InvalidType(
            f"{kind!r} is not a kind of link", hint=f"kinds: {', '.join(KINDS)}", kinds=list(KINDS)
        )


def depend(tx: Tx, id: str, on: str, kind: LinkKind = "depends_on") -> Task:
    """Let a task wait for another, or only refer to it; WouldCreateCycle if the other waits for it in turn."""
    _check_kind(kind)
    task, other = require(tx, id), require(tx, on)
    renew(tx, task)
    if task.seq == other.seq:
        raise errors.WouldCreateCycle(f"task {id} cannot depend on itself", id=id, path=[id, id])
    if kind == DEPENDS_ON:
        path = links.path(tx, kind, on, id)
        if path is not None:
            around = [id, *path]
            raise errors.WouldCreateCycle(f"that would be a circle: {' -> '.join(around)}", id=id, path=around)
    if links.add(tx, kind, id, on):
        if kind == DEPENDS_ON and not other.finished:
            adjust(tx, task.seq, waits=1)
            task = require(tx, id)
        change(tx, task, "depend", {}, more={kind: (None, on)})
    return to_task(require(tx, id))


def undepend(tx: Tx, id: str, on: str, kind: LinkKind = "depends_on") -> Task:
    """Remove a link; nothing changes if there is none."""
    _check_kind(kind)
    task, other = require(tx, id), require(tx, on, deleted=True)
    renew(tx, task)
    if links.remove(tx, kind, id, on):
        if kind == DEPENDS_ON and not other.finished:
            adjust(tx, task.seq, waits=-1)
            task = require(tx, id)
        change(tx, task, "undepend", {}, more={kind: (on, None)})
    return to_task(require(tx, id))


def dependencies(snapshot: Snapshot, id: str) -> list[TaskLink]:
    """Every link of a task, from it and to it."""
    id = find(snapshot, id).id
    found = []
    for kind in KINDS:
        found += [TaskLink(kind, id, target) for target in links.targets(snapshot, kind, id)]
        found += [TaskLink(kind, source, id) for source in links.sources(snapshot, kind, id)]
    return found


def unfinished(snapshot: Snapshot, id: str) -> list[str]:
    """The tasks that a task still waits for."""
    rows = snapshot.all(
        "SELECT t.id FROM links k JOIN tasks t ON t.id = k.target WHERE k.kind = ? AND k.source = ?"
        " AND t.status <> 'closed' AND t.deleted IS NULL ORDER BY t.id",
        (DEPENDS_ON, id),
    )
    return [found for (found,) in rows]
