"""`holdfast tree`: a task with all below it, or all trees there are."""

from __future__ import annotations

from typing import Any, Final

from holdfast.faces.cli.command import Command
from holdfast.faces.cli.session import Session
from holdfast.faces.cli.words import Argument
from holdfast.kernel.names import check_limit
from holdfast.ops import operation

_ROOTS: Final = 100
_MOST: Final = 10_000


def tree(session: Session, given: dict[str, Any]) -> int:
    """Print a tree, or those of the tasks that are part of no other and not closed."""
    op = operation("tasks.subtree")
    limit = given.get("limit", _MOST)
    check_limit(limit, _MOST)
    with session.open() as workspace:
        if "id" in given:
            found = workspace.tasks.subtree(**given)
        else:
            waiting = ["open", "in_progress", "pending_merge", "blocked"]
            roots = [task for task in workspace.tasks.list(status=waiting, limit=1000) if task.parent_id is None]  # type: ignore[arg-type]  # words of ours
            found = [task for root in roots[:_ROOTS] for task in workspace.tasks.subtree(root.id)]
    session.out.result(op, found[:limit])
    return 0


COMMANDS = (
    Command(
        "tree",
        "Show a task and all below it; without an id, every tree that is not closed.",
        (
            Argument("id", option="--id", word=True, help="the task at its root"),
            Argument("limit", "int", "--limit", help="at most so many"),
        ),
        tree,
        op="tasks.subtree",
    ),
)
