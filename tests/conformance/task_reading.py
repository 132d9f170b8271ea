"""What the model answers to who only looks at tasks."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast import errors
from holdfast.types.tasks import (
    HistoryEntry,
    LinkKind,
    Readiness,
    Reason,
    Task,
    TaskInTree,
    TaskLink,
    TaskStatus,
    TaskType,
)
from tests.conformance.model_base import TaskRow
from tests.conformance.task_ledger import TaskLedger

KINDS: tuple[LinkKind, ...] = ("depends_on", "discovered_from", "related")


class TaskReading(TaskLedger):
    """The reads of tasks."""

    def tasks_get(self, id: str, include_deleted: bool = False) -> Task:
        return self.shown(self._task(id, include_deleted))

    def tasks_ready(
        self, tags: Sequence[str] = (), type: TaskType | None = None, agent: str | None = None
    ) -> list[Task]:
        return [self.shown(row) for row in self._fitting(tags, type, agent)]

    def tasks_list(self, status: TaskStatus | None = None, include_deleted: bool = False) -> list[Task]:
        rows = sorted(self.state.tasks.values(), key=lambda row: (row.priority, row.number))
        live = [row for row in rows if include_deleted or row.deleted is None]
        return [self.shown(row) for row in live if status is None or row.status == status]

    def tasks_children(self, id: str) -> list[Task]:
        rows = sorted(self._children(self._task(id).id), key=lambda row: (row.priority, row.number))
        return [self.shown(row) for row in rows]

    def tasks_subtree(self, id: str) -> list[TaskInTree]:
        family = self._family(self._task(id))
        return [TaskInTree(**msgspec.structs.asdict(self.shown(one)), relative_depth=level) for one, level in family]

    def tasks_ancestors(self, id: str) -> list[Task]:
        return [self.shown(row) for row in self._above(self._task(id))]

    def tasks_explain(self, id: str, agent: str | None = None) -> Readiness:
        """Without the words. Of others, as for a list, it knows what the last sweep left."""
        row = self.as_seen(self._task(id, deleted=True))
        reasons = [Reason("deleted", "")] if row.deleted is not None else []
        if row.claimed_by is not None:
            reasons.append(Reason("claimed", ""))
        elif row.status != "open":
            reasons.append(Reason("status", ""))
        waiting = tuple(self._unfinished(id))
        if waiting:
            reasons.append(Reason("dependencies", "", waiting))
        if self.deferral_of(id):
            reasons.append(Reason("deferred", ""))
        busy = tuple(self.awaited(id))
        if busy:
            reasons.append(Reason("children", "", busy))
        if row.assigned_to not in (None, agent or self.actor):
            reasons.append(Reason("assigned", ""))
        return Readiness(id, not reasons, tuple(reasons))

    def tasks_history(self, id: str) -> list[HistoryEntry]:
        """An entry a changed field, newest first."""
        if id not in self.state.tasks and id not in self.state.purged:
            raise errors.TaskNotFound(id=id)
        found = []
        for event in reversed(self.log()):
            if (event.kind, event.id) != ("task", id):
                continue
            note = event.data.get("note")
            fields = {name: pair for name, pair in event.data.items() if name != "note"}
            if not fields:
                fields = {event.op: (None, None)} if note is None else {"note": (None, note)}
            for name, (old, new) in sorted(fields.items()):
                facts = (event.time, event.actor, note, event.op, event.version, event.revision)
                found.append(HistoryEntry(id, name, old, new, *facts))
        return found

    def tasks_dependencies(self, id: str) -> list[TaskLink]:
        self._task(id)
        links = sorted(self.state.links)
        return [
            TaskLink(kind, source, target)
            for kind in KINDS
            for near in (1, 2)
            for link in links
            if (link[0], link[near]) == (kind, id)
            for source, target in [link[1:]]
        ]

    def _fitting(self, tags: Sequence[str], type: TaskType | None, agent: str | None = None) -> list[TaskRow]:
        wanted = clean_tags(tags)
        return [
            row
            for row in self.ready_rows(agent)
            if all(tag in row.tags for tag in wanted) and (type is None or row.type == type)
        ]


def clean_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """In order, each once; none is empty."""
    if not all(tags):
        raise errors.InvalidTag()
    return tuple(sorted({*tags}))
