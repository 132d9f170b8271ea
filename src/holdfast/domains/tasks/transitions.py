"""The states of a task and the steps between them: one table, which the code, the errors and the docs share.

No other step is possible. `cancel` is two steps in one transaction, because an open task cannot be closed in one;
`claims.close` takes whichever steps lead from a task's status to its end.
"""

from __future__ import annotations

from typing import Any, Final, get_args

import msgspec

from holdfast import errors
from holdfast.domains import task_hooks
from holdfast.domains.routing.config import settings_of
from holdfast.domains.tasks.creation import check_note
from holdfast.domains.tasks.rows import Stored, awaited_children, by_seq, change, require, to_task, warned
from holdfast.kernel.tx import Tx
from holdfast.kernel.validate import check_flag
from holdfast.types.tasks import Task, TaskStatus

MAX_IDS: Final = 1000  # that an error names; its text counts all
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
        ways += ["close", "cancel"]
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
    if op == "complete" and task.status in ("open", "blocked"):
        hint = f'nobody holds it: tasks.close("{task.id}") closes it, tasks.claim("{task.id}") begins it'
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


def check_children(tx: Tx, task: Stored, op: str, force: bool) -> dict[str, Any]:
    """Raise OpenChildren if parents are strict and the task has unfinished children, unless forced.

    Returns what the event has to say of those that it was forced over.
    """
    check_flag(force=force)
    settings = settings_of(tx)
    if not settings.strict or not task.busy:
        return {}
    children = awaited_children(tx, task.seq, True)[:MAX_IDS]
    if force:
        return {"open_children": (None, children)}
    count = f"{task.busy} children" if task.busy > 1 else "a child"
    message = f"task {task.id} has {count} that {'are' if task.busy > 1 else 'is'} not finished: "
    shown = ", ".join(children[:5]) + (f" and {task.busy - 5} more" if task.busy > 5 else "")
    hint = f'finish these first; tasks.{op}("{task.id}", force=True) ends it all the same'
    if task.holder is not None:
        hint = f'{hint}; tasks.release("{task.id}") gives it back until they are done'
    raise errors.OpenChildren(message + shown, hint=hint, id=task.id, children=children)


def _step(tx: Tx, id: str, op: str, target: TaskStatus, note: str | None, force: bool = False) -> Stored:
    task = require(tx, id)
    check_step(task, op, target, tx.actor)
    more = None
    if target == "closed":
        more = check_children(tx, task, op, force)
        check_closable(tx, task.id)
    return change(tx, task, op, {"status": target}, more=more, note=check_note(note))


def unblock(tx: Tx, id: str, note: str | None = None) -> Task:
    """Open a blocked task again. Raises InvalidTransition."""
    return to_task(_step(tx, id, "unblock", "open", note))


def approve(tx: Tx, id: str, note: str | None = None, force: bool = False) -> Task:
    """Close a task that is pending merge. Raises InvalidTransition; OpenChildren, unless forced."""
    return to_task(_step(tx, id, "approve", "closed", note, force))


def reject(tx: Tx, id: str, reason: str | None = None) -> Task:
    """Send a task that is pending merge to blocked. Raises InvalidTransition."""
    return to_task(_step(tx, id, "reject", "blocked", reason))


def reopen(tx: Tx, id: str, reason: str | None = None) -> Task:
    """Open a closed task again. Raises InvalidTransition."""
    return warned(tx, _step(tx, id, "reopen", "open", reason))


def cancel(tx: Tx, id: str, reason: str | None = None, force: bool = False, cascade: bool = False) -> Task:
    """Close an open or blocked task without doing it, such as a duplicate. Raises InvalidTransition.

    Raises OpenChildren if it has unfinished children, unless forced. `cascade` cancels these too, and all below them;
    HasActiveChildren if somebody works on one.
    """
    check_note(reason)
    check_flag(force=force, cascade=cascade)
    task = require(tx, id)
    if task.status not in ("open", "blocked"):
        raise illegal(task, "cancel", "closed", tx.actor)
    if cascade:
        _cancel_below(tx, task, reason)
        task = require(tx, id)
    return to_task(_cancel(tx, task, reason, check_children(tx, task, "cancel", force)))


def _cancel(tx: Tx, task: Stored, reason: str | None, more: dict[str, Any]) -> Stored:
    if task.status == "open":
        task = change(tx, task, "cancel", {"status": "in_progress"})
    return change(tx, task, "cancel", {"status": "closed"}, more=more, note=reason)


_UNFINISHED_BELOW: Final = (
    "WITH RECURSIVE below(seq, level) AS (SELECT ?, 0 UNION ALL SELECT c.seq, level + 1 FROM below"
    " JOIN tasks c ON c.parent = below.seq AND c.deleted IS NULL)"
    " SELECT t.seq FROM below JOIN tasks t ON t.seq = below.seq WHERE level > 0 AND t.status <> 'closed'"
    " ORDER BY level DESC, t.seq"
)


def _cancel_below(tx: Tx, task: Stored, reason: str | None) -> None:
    """Cancel what is unfinished below a task, the deepest first."""
    found = [seq for (seq,) in tx.all(_UNFINISHED_BELOW, (task.seq,))]
    active = [other for other in (by_seq(tx, seq) for seq in found) if other.active]
    if active:
        named = ", ".join(f"{other.id} ({other.holder or other.status})" for other in active[:5])
        message = f"tasks below task {task.id} are being worked on: {named}"
        hint = "finish or release these first, or ask those who hold them by mail"
        ids = [other.id for other in active]
        raise errors.HasActiveChildren(message, hint=hint, id=task.id, active_children=ids)
    for seq in found:
        _cancel(tx, by_seq(tx, seq), reason, {})
