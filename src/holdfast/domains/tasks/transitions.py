"""The states of a task and the steps between them: one table, from which the code, the errors and the docs are made.

Nothing else is possible. `cancel` is two steps in one transaction, because an open task cannot be closed in one.
"""

from __future__ import annotations

from typing import Final, get_args

import msgspec

from holdfast import errors
from holdfast.domains import task_hooks
from holdfast.domains.routing.config import settings_of
from holdfast.domains.tasks.creation import check_note
from holdfast.domains.tasks.rows import Stored, change, require, to_task
from holdfast.kernel.tx import Tx
from holdfast.types.tasks import Task, TaskStatus

STATUSES: Final[tuple[TaskStatus, ...]] = get_args(TaskStatus)


class Step(msgspec.Struct, frozen=True):
    """One allowed change of status, and the operation that makes it."""

    source: TaskStatus
    op: str
    target: TaskStatus


STEPS: Final = (
    Step("open", "claim", "in_progress"),
    Step("in_progress", "release", "open"),
    Step("in_progress", "expire", "open"),
    Step("in_progress", "complete", "pending_merge"),
    Step("in_progress", "complete", "closed"),
    Step("in_progress", "block", "blocked"),
    Step("pending_merge", "approve", "closed"),
    Step("pending_merge", "reject", "blocked"),
    Step("blocked", "unblock", "open"),
    Step("blocked", "close", "closed"),
    Step("closed", "reopen", "open"),
)


def targets(status: TaskStatus) -> list[TaskStatus]:
    """Where a task in this status can go, by any operation but `reopen`, which is meant to be rare."""
    return list(dict.fromkeys(step.target for step in STEPS if step.source == status and step.op != "reopen"))


def check_step(task: Stored, op: str, target: TaskStatus) -> None:
    """InvalidTransition unless the table has this step."""
    if Step(task.status, op, target) not in STEPS:
        raise illegal(task, op, target)


def illegal(task: Stored, op: str, target: TaskStatus) -> errors.InvalidTransition:
    """The error: where the task is, where it should have gone, and where it can go by which operation."""
    ways = [f"{step.target} by {step.op}" for step in STEPS if step.source == task.status and step.op != "expire"]
    if task.status in ("open", "blocked"):
        ways.append("closed by cancel")
    return errors.InvalidTransition(
        f"{op} cannot bring task {task.id} from {task.status} to {target};"
        f" {task.status} can become {' or '.join(targets(task.status)) or 'open again, by reopen'}",
        hint=f"from {task.status}: {', '.join(ways)}",
        id=task.id,
        current_status=task.status,
        requested_status=target,
        valid_transitions=targets(task.status),
    )


def check_closable(tx: Tx, id: str) -> None:
    """OpenThreads if the workspace wants the messages about a task closed before the task is, and some are not."""
    if not settings_of(tx).config.close_threads_first:
        return
    messages = task_hooks.ask().open_messages(tx, id)
    if messages:
        raise errors.OpenThreads(
            f"messages about task {id} are open, {', '.join(messages[:3])} among them", id=id, messages=messages
        )


def _step(tx: Tx, id: str, op: str, target: TaskStatus, note: str | None) -> Task:
    task = require(tx, id)
    check_step(task, op, target)
    if target == "closed":
        check_closable(tx, task.id)
    return to_task(change(tx, task, op, {"status": target}, note=check_note(note)))


def unblock(tx: Tx, id: str, note: str | None = None) -> Task:
    """Open a blocked task again."""
    return _step(tx, id, "unblock", "open", note)


def approve(tx: Tx, id: str, note: str | None = None) -> Task:
    """Close a task that was pending merge."""
    return _step(tx, id, "approve", "closed", note)


def reject(tx: Tx, id: str, reason: str | None = None) -> Task:
    """Send a task that was pending merge to blocked."""
    return _step(tx, id, "reject", "blocked", reason)


def close(tx: Tx, id: str, reason: str | None = None) -> Task:
    """Close a blocked task. One in progress is completed, one pending merge approved, an open one cancelled."""
    return _step(tx, id, "close", "closed", reason)


def reopen(tx: Tx, id: str, reason: str | None = None) -> Task:
    """Open a closed task again."""
    return _step(tx, id, "reopen", "open", reason)


def cancel(tx: Tx, id: str, reason: str | None = None) -> Task:
    """Close a task that nobody works on, a duplicate say: an open one in two steps, a blocked one in one."""
    task = require(tx, id)
    check_note(reason)
    if task.status == "open":
        task = change(tx, task, "cancel", {"status": "in_progress"})
    elif task.status != "blocked":
        raise illegal(task, "cancel", "closed")
    return to_task(change(tx, task, "cancel", {"status": "closed"}, note=reason))
