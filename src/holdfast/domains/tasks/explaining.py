"""Why a task is ready, or why not: every reason, with the tasks that are in the way."""

from __future__ import annotations

from holdfast.domains.tasks.depending import unfinished
from holdfast.domains.tasks.rows import find
from holdfast.kernel.tx import Snapshot
from holdfast.types.base import as_time
from holdfast.types.tasks import Readiness, Reason


def explain(snapshot: Snapshot, id: str) -> Readiness:
    """Whether `claim_next` would consider the task, and if not, why."""
    task = find(snapshot, id, deleted=True)
    reasons: list[Reason] = []
    if task.deleted is not None:
        reasons.append(Reason("deleted", f"it was deleted at {as_time(task.deleted).isoformat()}"))
    if task.holder is not None:
        since = as_time(task.claimed or 0).isoformat()
        until = " and parked" if task.deadline is None else f", until {as_time(task.deadline).isoformat()}"
        reasons.append(Reason("claimed", f"it is claimed by {task.holder} since {since}{until}"))
    elif task.status != "open":
        reasons.append(Reason("status", f"it is {task.status}, not open"))
    waiting = unfinished(snapshot, task.id)
    if waiting:
        reasons.append(Reason("dependencies", f"it depends on {_several(waiting)}, not finished yet", tuple(waiting)))
    rows = snapshot.all(
        "SELECT id FROM tasks WHERE parent = ? AND deleted IS NULL AND status IN ('in_progress', 'pending_merge')"
        " ORDER BY seq",
        (task.seq,),
    )
    if rows:
        active = tuple(id for (id,) in rows)
        reasons.append(Reason("children", f"its children {_several(active)} are being worked on", active))
    return Readiness(task.id, not reasons, tuple(reasons))


def _several(ids: tuple[str, ...] | list[str]) -> str:
    return ", ".join(ids[:5]) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")
