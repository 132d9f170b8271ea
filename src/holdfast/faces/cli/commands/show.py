"""`holdfast show`: a task, and all that somebody who looks at it asks next: what it waits for, why it stands still."""

from __future__ import annotations

from typing import Any, Final

from holdfast.faces.cli.command import Command
from holdfast.faces.cli.deriving import arguments_of, operation_called
from holdfast.faces.cli.output import printable
from holdfast.faces.cli.session import Session
from holdfast.faces.cli.summaries import SUMMARIES
from holdfast.faces.cli.views import view
from holdfast.ops import operation

_NAMES: Final = {"depends_on": ("waits for", "needed by"), "related": ("related", "related")}


def show(session: Session, given: dict[str, Any]) -> int:
    """Print a task; as text with its links, the reason if it is not ready, and the paths that are locked for it."""
    op = operation("tasks.get")
    with session.open() as workspace:
        task = workspace.tasks.get(**given)
        if session.out.json or session.out.quiet:
            session.out.result(op, task)
            return 0
        around = [*_reasons(workspace, task), *_links(workspace, task), *_locks(workspace, task)]
    told = view(op.name, task, session.out.colour)
    end = told.index("") if "" in told else len(told)  # where the body begins
    session.out.text(*told[:end], *(f"  {name:<11}{printable(what)}" for name, what in around), *told[end:])
    return 0


def _reasons(workspace: Any, task: Any) -> list[tuple[str, str]]:
    """Why it stands still: what its readiness says, and what was said when it was blocked or sent back."""
    if task.status == "open":
        return [("not ready", reason.text) for reason in workspace.tasks.explain(task.id).reasons]
    if task.status in ("blocked", "closed"):
        last = workspace.tasks.history(task.id, field="status", limit=1)
        return [("because", last[0].note)] if last and last[0].note else []
    return []


def _links(workspace: Any, task: Any) -> list[tuple[str, str]]:
    found: dict[str, list[str]] = {}
    for link in workspace.tasks.dependencies(task.id):
        from_here, to_here = _NAMES.get(link.kind, ("found in", "led to"))
        found.setdefault(from_here if link.id == task.id else to_here, []).append(
            link.on if link.id == task.id else link.id
        )
    return [(name, " ".join(ids)) for name, ids in found.items()]


def _locks(workspace: Any, task: Any) -> list[tuple[str, str]]:
    return [("locked", " ".join(lock.patterns)) for lock in workspace.paths.list(task=task.id)]


_OP = operation_called("show", "tasks")
assert _OP is not None
COMMANDS = (Command("show", SUMMARIES["show"], arguments_of(_OP), show, op="tasks.get"),)
