"""What the model's operations on tasks stand on: finding and changing one, who holds it, whether it is ready.

Readiness is worked out anew from all tasks and links each time, depth from the parents: nothing is counted ahead.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import Any

import msgspec

from holdfast import errors
from holdfast.testing import ManualClock
from holdfast.types import Event, as_time
from holdfast.types.tasks import Task, TaskStatus
from tests.conformance.model import Model
from tests.conformance.model_base import LeaseRow, TaskRow

# The fields whose changes are history.
FIELDS = (
    "status",
    "title",
    "body",
    "type",
    "priority",
    "parent_id",
    "tags",
    "grimoire_hint",
    "assigned_to",
    "grimoire",
    "claimed_by",
    "token",
)
ACTIVE = ("in_progress", "pending_merge")
# Where a task can go from each status, but for `reopen`.
STEPS: dict[TaskStatus, tuple[TaskStatus, ...]] = {
    "open": ("in_progress",),
    "in_progress": ("open", "pending_merge", "closed", "blocked"),
    "pending_merge": ("closed", "blocked"),
    "blocked": ("open", "closed"),
    "closed": (),
}
CLAIM_TIMEOUT = 30 * 60 * 1_000_000
NO_CLAIM: dict[str, Any] = {"claimed_by": None, "claimed": None, "token": None, "ttl": None, "parked": False}


class TaskLedger(Model):
    """The model of the other domains, and the rows of tasks."""

    strict = True  # parents wait for their children

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.next_tasks: deque[str] = deque()  # ids are random: the store chooses

    # --- finding -----------------------------------------------------------------------------------------------------

    def _task(self, id: str, deleted: bool = False) -> TaskRow:
        row = self.state.tasks.get(id)
        if row is None or (row.deleted is not None and not deleted):
            raise errors.TaskNotFound(id=id)
        return row

    def _parent(self, id: str | None) -> None:
        if id is not None and (id not in self.state.tasks or self.state.tasks[id].deleted is not None):
            raise errors.ParentNotFound(parent_id=id)

    def _children(self, id: str, deleted: bool = False) -> list[TaskRow]:
        """In the order of creation."""
        rows = self.state.tasks.values()
        return [row for row in rows if row.parent_id == id and (deleted or row.deleted is None)]

    def _family(self, row: TaskRow, deleted: bool = False) -> list[tuple[TaskRow, int]]:
        """The task and all below it with their levels; level by level, each in the order of creation."""
        found, level, depth = [(row, 0)], [row], 0
        while level:
            depth += 1
            level = [child for parent in level for child in self._children(parent.id, deleted)]
            level.sort(key=lambda child: child.number)
            found += [(child, depth) for child in level]
        return found

    def _above(self, row: TaskRow) -> list[TaskRow]:
        """From the parent to the root."""
        found = []
        while row.parent_id is not None:
            row = self.state.tasks[row.parent_id]
            found.append(row)
        return found

    def _linked(self, source: str, kind: str = "depends_on") -> list[str]:
        return sorted(target for of, start, target in self.state.links if (of, start) == (kind, source))

    # --- as seen -----------------------------------------------------------------------------------------------------

    def lease_on(self, id: str) -> LeaseRow | None:
        """What would end the claim; None: parked for ever, or not claimed."""
        return next((lease for lease in self.state.leases if lease.task == id), None)

    def as_seen(self, row: TaskRow) -> TaskRow:
        """A claim past its deadline is no claim, though it may not have been swept."""
        lease = self.lease_on(row.id)
        if lease is None or lease.deadline > self.time():
            return row
        return dataclasses.replace(row, status="open", **NO_CLAIM)

    def shown(self, row: TaskRow) -> Task:
        """A task as its readers see it."""
        row = self.as_seen(row)
        lease = self.lease_on(row.id) if row.claimed_by is not None else None
        wait = self.deferral_of(row.id)
        deferred = wait is not None and wait.deadline > self.time()
        waits = bool(self._unfinished(row.id) or deferred or self.awaited(row.id))
        return Task(
            id=row.id,
            title=row.title,
            body=row.body,
            type=row.type,
            status=row.status,
            priority=row.priority,
            parent_id=row.parent_id,
            depth=len(self._above(row)),
            tags=row.tags,
            claimed_by=row.claimed_by,
            claimed_at=None if row.claimed is None else as_time(row.claimed),
            grimoire_hint=row.grimoire_hint,
            grimoire=row.grimoire,
            created_at=as_time(row.created),
            updated_at=as_time(row.updated),
            deleted_at=None if row.deleted is None else as_time(row.deleted),
            version=row.version,
            revision=row.revision,
            token=row.token,
            deadline=None if lease is None else as_time(lease.deadline),
            children=len(children := self._children(row.id)),
            children_done=sum(child.status == "closed" for child in children),
            assigned_to=row.assigned_to,
            deferred_until=as_time(wait.deadline) if wait is not None and deferred else None,
            waiting=row.status == "open" and row.deleted is None and waits,
            parked=row.parked,
        )

    def warned(self, row: TaskRow) -> Task:
        """The same of a child that was added or opened."""
        shown = self.shown(row)
        finished = row.status == "closed" or row.deleted is not None
        if row.parent_id is None or finished or self.state.tasks[row.parent_id].status != "closed":
            return shown
        return msgspec.structs.replace(shown, warnings=(f"its parent {row.parent_id} is closed, and stays closed",))

    def deferral_of(self, id: str) -> LeaseRow | None:
        """What a deferred task waits for."""
        return next((lease for lease in self.state.leases if lease.defers == id), None)

    def _unfinished(self, id: str) -> list[str]:
        """What the task waits for: neither done nor given up."""
        targets = [self.state.tasks[target] for target in self._linked(id)]
        return [row.id for row in targets if row.status != "closed" and row.deleted is None]

    def awaited(self, id: str) -> list[str]:
        """The children that a task waits for."""
        children = self._children(id)
        return [child.id for child in children if child.status in ACTIVE or (self.strict and child.status != "closed")]

    def startable(self, row: TaskRow) -> bool:
        """Whether its assignee, or everybody, may begin it."""
        waits = self._unfinished(row.id) or self.deferral_of(row.id) or self.awaited(row.id)
        return row.status == "open" and row.deleted is None and not waits

    def ready_rows(self, agent: str | None = None) -> list[TaskRow]:
        """What claim_next may take for an agent, best first."""
        rows = self.state.tasks.values()
        found = [row for row in rows if self.startable(row) and row.assigned_to in (None, agent or self.actor)]
        return sorted(found, key=lambda row: (row.priority, row.number))

    def refuse_open_children(self, row: TaskRow, force: bool) -> dict[str, Any]:
        """What a strict parent says before it ends."""
        children = self.awaited(row.id) if self.strict else []
        if children and not force:
            raise errors.OpenChildren(id=row.id, children=children)
        return {"open_children": [None, children]} if children else {}

    def log(self) -> list[Event]:
        """The events as they are told now: of what was purged only that it was."""
        return [self.as_told(event) for event in self.events]

    def as_told(self, event: Event) -> Event:
        """One of them."""
        if event.kind != "task" or event.version >= self.state.purged.get(event.id, 0):
            return event
        return msgspec.structs.replace(event, data={}, redacted=True)

    # --- changing ----------------------------------------------------------------------------------------------------

    def _change(
        self, row: TaskRow, op: str, note: str | None = None, more: dict[str, Any] | None = None, **fields: Any
    ) -> TaskRow:
        """One event, with old and new of every field that changed."""
        values: dict[str, Any] = {"version": row.version + 1, "revision": self.revision + 1, "updated": self.now}
        new = dataclasses.replace(row, **values, **fields)
        parent = None if row.parent_id is None else self.state.tasks[row.parent_id]
        waited = parent is not None and not self.startable(parent)
        self.state.tasks[row.id] = new
        wait = self.deferral_of(row.id)
        if wait is not None and (new.status not in ("open", "blocked") or new.deleted is not None):
            more = {**(more or {}), **self.end_deferral(wait)}
        old, after = fields_of(row), fields_of(new)
        data = {name: [old[name], after[name]] for name in FIELDS if old[name] != after[name]}
        if (row.deleted is None) != (new.deleted is None):
            data["deleted"] = [row.deleted is not None, new.deleted is not None]
        if self.strict and waited and parent is not None and {"status", "deleted"} & {*data} and self.startable(parent):
            data["parent_ready"] = [None, parent.id]
        self.emit("task", "", row.id, op, data | (more or {}) | ({} if note is None else {"note": note}), new.version)
        return new

    def end_deferral(self, wait: LeaseRow, at: int | None = None) -> dict[str, Any]:
        """The wait is over; what the event says of it."""
        self._drop(wait)
        return {"deferred_until": [as_time(wait.deadline if at is None else at).isoformat(), None]}

    def _step(
        self, id: str, op: str, source: TaskStatus, target: TaskStatus, note: str | None, force: bool = False
    ) -> TaskRow:
        row = self._task(id)
        if row.status != source:
            raise self._illegal(row, target)
        more = self.refuse_open_children(row, force) if target == "closed" else {}
        return self._change(row, op, note, more, status=target)

    @staticmethod
    def _illegal(row: TaskRow, target: TaskStatus) -> errors.InvalidTransition:
        return errors.InvalidTransition(
            id=row.id, current_status=row.status, requested_status=target, valid_transitions=list(STEPS[row.status])
        )

    # --- claims ------------------------------------------------------------------------------------------------------

    def _give(self, row: TaskRow, agent: str, ttl: float | None) -> Task:
        micros = CLAIM_TIMEOUT if ttl is None else round(ttl * 1e6)
        token = (self.revision + 1) * 4096 + self._grants
        self._grants += 1
        self._hold(row.id, agent, micros)
        fields: dict[str, Any] = {"claimed_by": agent, "claimed": self.now, "token": token, "ttl": micros}
        fields["grimoire"] = row.grimoire_hint or "implement-bead"
        return self.shown(self._change(row, "claim", status="in_progress", **fields))

    def _hold(self, id: str, agent: str, ttl: int) -> None:
        self.state.leases.append(LeaseRow("", agent, ttl, self.now + ttl, self.now, task=id))

    def _let_go(self, row: TaskRow, op: str, target: TaskStatus, note: str | None = None, **more: Any) -> Task:
        self._drop(self.lease_on(row.id))
        return self.shown(self._change(row, op, note, more, status=target, **NO_CLAIM))

    def _finish(self, lease: LeaseRow, op: str) -> None:
        super()._finish(lease, op)
        if lease.task:
            self._let_go(self.state.tasks[lease.task], op, "open")
        if lease.defers:
            over = {"deferred_until": [as_time(self.now).isoformat(), None]}
            self._change(self.state.tasks[lease.defers], "due", more=over)

    @staticmethod
    def _already_claimed(row: TaskRow) -> errors.AlreadyClaimed:
        return errors.AlreadyClaimed(id=row.id, holder=row.claimed_by, since=as_time(row.claimed or 0))

    def _own_claim(self, row: TaskRow, agent: str | None, token: int | None, target: TaskStatus | None) -> None:
        """The name counts; a token must be the live claim's in addition, or Fenced."""
        if token is not None:
            self._check_claim(row, token)
        agent = agent or self.actor
        if row.claimed_by == agent:
            return
        if self._lost(row.id, agent):
            raise errors.Fenced(id=row.id, current=row.token, holder=row.claimed_by)
        if row.claimed_by is None and target is not None:
            raise self._illegal(row, target)
        raise errors.NotClaimOwner(id=row.id, holder=row.claimed_by)

    @staticmethod
    def _check_claim(row: TaskRow, token: int) -> None:
        if token != row.token:
            raise errors.Fenced(id=row.id, current=row.token, holder=row.claimed_by)

    def _lost(self, id: str, agent: str) -> bool:
        """Whether the agent's last claim on the task ended against its will, as far as the log still knows."""
        above, passed = 0, False
        for event in reversed(self.events):
            if (event.kind, event.id) == ("task", id) and self.remembers(event):
                if passed and event.version != above - 1:
                    return False
                was, _ = event.data.get("claimed_by", (None, None))
                if was == agent:
                    return event.op == "expire" or "forced" in event.data
                above, passed = event.version, passed or was is not None
        return False

    def remembers(self, event: Event) -> bool:
        """Whether the event has not been compacted."""
        return True

    def _to_edit(self, id: str, token: int | None = None) -> TaskRow:
        """A task that anybody may change; with a token only its holder. The holder's change renews the claim."""
        row = self._task(id)
        if token is not None:
            self._own_claim(row, self.actor, token, None)
        lease = self.lease_on(id)
        if lease is not None and row.claimed_by == self.actor:
            assert row.ttl is not None
            if self.now + row.ttl > lease.deadline:
                lease.ttl, lease.deadline = row.ttl, self.now + row.ttl
        return row


def fields_of(row: TaskRow) -> dict[str, Any]:
    """The fields of a task as history tells them."""
    return {name: getattr(row, name) for name in FIELDS} | {"tags": list(row.tags)}
