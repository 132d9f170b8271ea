"""`set_status`: a status as the goal, for who thinks of a task as a card on a board; the step is found for them."""

from __future__ import annotations

from holdfast import errors
from holdfast.domains.tasks import claims, steps
from holdfast.domains.tasks.rows import require, to_task
from holdfast.kernel.tx import Tx
from holdfast.types.tasks import Task, TaskStatus


def set_status(
    tx: Tx,
    id: str,
    status: TaskStatus,
    agent: str | None = None,
    reason: str | None = None,
    token: int | None = None,
) -> Task:
    """Bring a task into a status by the one step that leads there, under the rules of that step."""
    task = require(tx, id)
    if status not in steps.STATUSES:
        raise errors.InvalidTransition(
            f"{status!r} is not a status",
            hint=f"statuses: {', '.join(steps.STATUSES)}",
            id=id,
            current_status=task.status,
            requested_status=status,
            valid_transitions=steps.targets(task.status),
        )
    match task.status, status:
        case "open", "in_progress":
            return claims.claim(tx, id, agent)
        case "in_progress", "in_progress":
            return claims.reclaim(tx, id, agent)
        case "in_progress", "open":
            return claims.release(tx, id, agent, token, reason)
        case "in_progress", "blocked":
            return claims.block(tx, id, agent, reason, token)
        case "in_progress", "pending_merge" | "closed":
            return claims.complete(tx, id, agent, None, reason, status == "pending_merge", token)
        case "pending_merge", "closed":
            return steps.approve(tx, id, reason)
        case "pending_merge", "blocked":
            return steps.reject(tx, id, reason)
        case "blocked", "open":
            return steps.unblock(tx, id, reason)
        case "blocked", "closed":
            return steps.close(tx, id, reason)
    if task.status == status:
        return to_task(task)
    raise steps.illegal(task, "set_status", status)
