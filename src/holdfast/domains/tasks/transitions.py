"""The states of a task and the steps between them: one table, which the code, the errors and the docs share.

No other step is possible. `cancel` is two steps in one transaction, because an open task cannot be closed in one.
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
# What a task is after an operation, where that is not the status.
_DONE: Final = {
    **{"claim": "claimed", "complete": "completed", "release": "released", "block": "blocked", "approve": "approved"},
    **{"reject": "rejected", "unblock": "unblocked", "reopen": "reopened", "cancel": "cancelled", "park": "parked"},
}
_OPENED: Final = {
    "closed": 'tasks.reopen("{id}") opens it again',
    "blocked": 'tasks.unblock("{id}") opens it again',
    "pending_merge": 'it waits for approval: tasks.approve("{id}") closes it, tasks.reject("{id}") blocks it',
}
_UNFINISHED: Final = {"in_progress": "{holder} works on it", "pending_merge": "it waits for approval"}


def targets(status: TaskStatus) -> list[TaskStatus]:
    """Return the statuses that follow a status, by any operation except `reopen`, which is meant to be rare."""
    return list(dict.fromkeys(step.target for step in STEPS if step.source == status and step.op != "reopen"))


def check_step(task: Stored, op: str, target: TaskStatus, agent: str) -> None:
    """Raise InvalidTransition unless the table has this step."""
    if Step(task.status, op, target) not in STEPS:
        raise illegal(task, op, target, agent)


def illegal(task: Stored, op: str, target: TaskStatus, agent: str) -> errors.InvalidTransition:
    """The error: the task's status, the requested one, and which operations are possible for the agent."""
    ways = [step.op for step in STEPS if step.source == task.status and step.op != "expire"]
    if task.status in ("open", "blocked"):
        ways.append("cancel")
    sources = ("open", "blocked") if op == "cancel" else tuple(step.source for step in STEPS if step.op == op)
    done, needed = _DONE.get(op, target), " or ".join(dict.fromkeys(sources))
    made = "" if done == target else f" (made {target})"
    why = _UNFINISHED.get(task.status, "").replace("{holder}", task.holder or "somebody")
    state = f"{task.status} ({why})" if why and op in ("cancel", "close") else task.status
    wrong = f"{state}, but only a task that is {needed} can be {done}{made}"
    if not needed:  # no step of this name: a status was asked for
        wrong = f"{state}, and no step leads from there to {target}"
    if task.status == target:
        wrong = f"already {target}"
    *others, last = list[str](targets(task.status)) or ["open again by reopen"]
    allowed = f"one that is {task.status} can become {', '.join(others)}{' or ' if others else ''}{last}"
    hint = "possible now: " + ", ".join(f'tasks.{way}("{task.id}")' for way in dict.fromkeys(ways))
    if op == "close" and task.status == "open":
        hint = f'tasks.cancel("{task.id}") closes it undone; tasks.claim("{task.id}") begins it'
    if task.holder not in (None, agent):
        hint = ask_holder(task)
    return refused(task, target, f"task {task.id} is {wrong}; {allowed}", hint)


def opened(task: Stored) -> str:
    """How a task that nobody holds can be claimed, or what it waits for."""
    return _OPENED.get(task.status, 'claim it first: tasks.claim("{id}")').replace("{id}", task.id)


def ask_holder(task: Stored) -> str:
    """What an agent can do about a task that another one holds."""
    force = f'tasks.release("{task.id}", force=True)'
    return f"{task.holder} holds it: ask {task.holder} by mail; {force} takes it away, which is logged"


def refused(task: Stored, target: TaskStatus, message: str, hint: str) -> errors.InvalidTransition:
    """The error with the task's status, the requested one, and those that can follow."""
    statuses = {"current_status": task.status, "requested_status": target, "valid_transitions": targets(task.status)}
    return errors.InvalidTransition(message, hint=hint, id=task.id, **statuses)


def check_closable(tx: Tx, id: str) -> None:
    """Raise OpenThreads if the workspace requires a task's messages to be closed first, and some are open."""
    if not settings_of(tx).config.close_threads_first:
        return
    messages = task_hooks.ask().open_messages(tx, id)
    if messages:
        message = f"task {id} has open messages: {', '.join(messages[:3])}"
        hint = "close them first: " + ", ".join(f'mail.close("{each}")' for each in messages[:3])
        raise errors.OpenThreads(message, hint=hint, id=id, messages=messages)


def _step(tx: Tx, id: str, op: str, target: TaskStatus, note: str | None) -> Task:
    task = require(tx, id)
    check_step(task, op, target, tx.actor)
    if target == "closed":
        check_closable(tx, task.id)
    return to_task(change(tx, task, op, {"status": target}, note=check_note(note)))


def unblock(tx: Tx, id: str, note: str | None = None) -> Task:
    """Open a blocked task again. Raises InvalidTransition."""
    return _step(tx, id, "unblock", "open", note)


def approve(tx: Tx, id: str, note: str | None = None) -> Task:
    """Close a task that is pending merge. Raises InvalidTransition."""
    return _step(tx, id, "approve", "closed", note)


def reject(tx: Tx, id: str, reason: str | None = None) -> Task:
    """Send a task that is pending merge to blocked. Raises InvalidTransition."""
    return _step(tx, id, "reject", "blocked", reason)


def close(tx: Tx, id: str, reason: str | None = None) -> Task:
    """Close a blocked task. Complete one in progress, approve one pending merge, and cancel an open one instead."""
    return _step(tx, id, "close", "closed", reason)


def reopen(tx: Tx, id: str, reason: str | None = None) -> Task:
    """Open a closed task again. Raises InvalidTransition."""
    return _step(tx, id, "reopen", "open", reason)


def cancel(tx: Tx, id: str, reason: str | None = None) -> Task:
    """Close an open or blocked task without doing it, such as a duplicate. Raises InvalidTransition."""
    task = require(tx, id)
    check_note(reason)
    if task.status == "open":
        task = change(tx, task, "cancel", {"status": "in_progress"})
    elif task.status != "blocked":
        raise illegal(task, "cancel", "closed", tx.actor)
    return to_task(change(tx, task, "cancel", {"status": "closed"}, note=reason))
