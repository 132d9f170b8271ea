"""Deleting tasks: softly, with all below them, recoverable; and purging, which leaves nothing but that they were."""

from __future__ import annotations

from holdfast import errors
from holdfast.domains import links
from holdfast.domains.tasks.rows import ACTIVE, TASK, Stored, by_seq, change, index_tags, require, to_task
from holdfast.domains.tasks.texts import check_note
from holdfast.domains.tasks.tree import below
from holdfast.kernel import fts, idempotency
from holdfast.kernel.events import redact
from holdfast.kernel.tx import Tx
from holdfast.types.tasks import Task


def _refuse_active(task: Stored, family: list[Stored]) -> None:
    """Nobody's work is deleted under its hands."""
    if task.active:
        raise errors.TaskActive(
            f"task {task.id} is {task.status}",
            hint="release or complete it first" if task.status == "in_progress" else "approve or reject it first",
            id=task.id,
            status=task.status,
        )
    active = [other.id for other in family if other.status in ACTIVE]
    if active:
        raise errors.HasActiveChildren(
            f"below task {task.id} there is work going on: {', '.join(active)}",
            hint="finish or release these first",
            id=task.id,
            active_children=active,
        )


def delete(tx: Tx, id: str, reason: str | None = None) -> int:
    """Delete a task and all below it, so that `restore` can bring them back; answers how many."""
    check_note(reason, "reason")
    task = require(tx, id)
    family = [by_seq(tx, seq) for seq, _ in below(tx, task.seq)]
    _refuse_active(task, family)
    for other in family:  # as it is by now: the one before may have been what it waited for
        remove(tx, by_seq(tx, other.seq), task.seq, reason if other.seq == task.seq else None)
    return len(family)


def remove(tx: Tx, task: Stored, deletion: int, reason: str | None = None) -> None:
    """Mark one task as deleted, together with the task `deletion`."""
    columns = {"deleted": tx.now, "deletion": deletion}
    change(tx, task, "delete", columns, more={"deleted": (False, True)}, note=reason)


def restore(tx: Tx, id: str) -> Task:
    """Bring back a deleted task, with what was deleted along with it."""
    task = require(tx, id, deleted=True)
    if task.deleted is None:
        return to_task(task)
    if task.parent is not None and by_seq(tx, task.parent).deleted is not None:
        raise errors.ParentNotFound(
            f"the parent of {id} is deleted",
            hint=f"restore {_root(tx, task).id} first, which it was deleted with or after",
            id=id,
            parent_id=task.parent_id,
        )
    for seq, _ in below(tx, task.seq, deleted=True):
        other = by_seq(tx, seq)
        if other.deleted is not None and other.deletion == task.deletion:
            change(tx, other, "restore", {"deleted": None, "deletion": None}, more={"deleted": (True, False)})
    return to_task(require(tx, id))


def _root(tx: Tx, task: Stored) -> Stored:
    """The highest deleted task above one."""
    while task.parent is not None and (above := by_seq(tx, task.parent)).deleted is not None:
        task = above
    return task


def purge(tx: Tx, id: str) -> int:
    """Remove a task and all below it for good, and blank their events; answers how many. Nothing brings them back."""
    task = require(tx, id, deleted=True)
    family = [by_seq(tx, seq) for seq, _ in below(tx, task.seq, deleted=True)]
    _refuse_active(task, family)
    for other in reversed(family):  # children first: a parent that is gone has none
        erase(tx, by_seq(tx, other.seq))
    idempotency.redact(tx, [other.id for other in family])
    return len(family)


def erase(tx: Tx, task: Stored) -> None:
    """Remove one task without children: its row, texts, tags and links. The log goes on saying only that it was."""
    if not task.finished:  # who depends on it waits no longer
        remove(tx, task, task.seq)
        task = by_seq(tx, task.seq)
    fts.forget(tx.run, "task_texts", task.seq)
    index_tags(tx, task, None)
    for table in ("task_texts", "task_imports", "tasks"):
        tx.run(f"DELETE FROM {table} WHERE seq = ?", (task.seq,))
    links.forget(tx, task.id, links.TYPES)
    redact(tx, TASK, "", task.id)
    tx.emit(TASK, task.id, "purge", version=task.version + 1)
