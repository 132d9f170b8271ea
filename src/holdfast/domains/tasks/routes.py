"""How a task is routed: the rules of the workspace, asked about one task."""

from __future__ import annotations

from holdfast.domains.routing.matchers import Decision, Subject, decide
from holdfast.domains.routing.settings import Settings
from holdfast.domains.tasks.rows import Stored
from holdfast.kernel.tx import Snapshot


def route(snapshot: Snapshot, task: Stored, settings: Settings) -> Decision:
    """Where the task goes by the rules as they are now."""
    return decide(settings.rules, subject_of(snapshot, task))


def subject_of(snapshot: Snapshot, task: Stored) -> Subject:
    """What the matchers look at."""
    return Subject(
        task.tag_list,
        task.priority,
        task.type,
        task.body,
        task.parent is not None,
        task.hint,
        None if task.parent is None else _assigned(snapshot, task.parent),
    )


def _assigned(snapshot: Snapshot, parent: int) -> str | None:
    row = snapshot.one("SELECT grimoire FROM tasks WHERE seq = ?", (parent,))
    return None if row is None else row[0]
