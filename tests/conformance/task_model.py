"""The laws of tasks as plain Python, on top of the model of the other domains.

Spelled out from the requirements, T1 to T14; nothing is shared with the implementation but the types of the answers
and errors. What is read is in `task_reading`, what both stand on in `task_ledger`. An operation `tasks.claim` is the
method `tasks_claim`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from holdfast import errors
from holdfast.types import Condition, ValueEquals, VersionEquals, as_microseconds, as_time
from holdfast.types.tasks import LinkKind, Task, TaskStatus, TaskType
from tests.conformance.model_base import LeaseRow, TaskRow
from tests.conformance.task_ledger import ACTIVE, fields_of
from tests.conformance.task_reading import TaskReading, clean_tags


class TaskModel(TaskReading):
    """A workspace with tasks as its users imagine it."""

    # --- making and editing ------------------------------------------------------------------------------------------

    def tasks_create(
        self,
        title: str,
        body: str = "",
        type: TaskType = "task",
        priority: int = 2,
        parent_id: str | None = None,
        tags: Sequence[str] = (),
        grimoire_hint: str | None = None,
        assigned_to: str | None = None,
    ) -> Task:
        kept = clean_tags(tags)
        self._parent(parent_id)
        if grimoire_hint is None and parent_id is not None:
            grimoire_hint = self.state.tasks[parent_id].grimoire_hint
        number = max((row.number for row in self.state.tasks.values()), default=0) + 1
        row = TaskRow(
            number=number,
            id=self.next_tasks.popleft(),
            title=title,
            body=body,
            type=type,
            priority=priority,
            parent_id=parent_id,
            tags=kept,
            grimoire_hint=grimoire_hint,
            assigned_to=assigned_to,
            created=self.now,
            updated=self.now,
            version=1,
            revision=self.revision + 1,
        )
        self.state.tasks[row.id] = row
        data = {name: [None, value] for name, value in fields_of(row).items() if value not in (None, "", [])}
        self.emit("task", "", row.id, "create", data, 1)
        return self.warned(row)

    def tasks_update(self, id: str, expected: int | None = None, token: int | None = None, **fields: Any) -> Task:
        before = self.shown(self._task(id))
        row = self._to_edit(id, token)
        if expected is not None and row.version != expected:
            raise errors.VersionMismatch(id=id, expected=expected, version=row.version, value=before)
        if "grimoire_hint" in fields:
            fields["grimoire_hint"] = fields["grimoire_hint"] or None
        if any(getattr(row, name) != value for name, value in fields.items()):
            row = self._change(row, "update", **fields)
        return self.shown(row)

    def tasks_note(self, id: str, text: str, token: int | None = None) -> Task:
        if not text.strip():
            raise errors.InvalidValue()
        return self.shown(self._change(self._to_edit(id, token), "note", text))

    def tasks_add_tags(self, id: str, tags: Sequence[str], token: int | None = None) -> Task:
        given = _some(tags)
        row = self._to_edit(id, token)
        return self._retag(row, "add_tags", row.tags + given)

    def tasks_remove_tags(self, id: str, tags: Sequence[str], token: int | None = None) -> Task:
        given = _some(tags)
        row = self._to_edit(id, token)
        return self._retag(row, "remove_tags", tuple(tag for tag in row.tags if tag not in given))

    def tasks_set_tags(self, id: str, tags: Sequence[str], token: int | None = None) -> Task:
        given = clean_tags(tags)
        return self._retag(self._to_edit(id, token), "set_tags", given)

    def _retag(self, row: TaskRow, op: str, tags: tuple[str, ...]) -> Task:
        new = clean_tags(tags)
        return self.shown(row if new == row.tags else self._change(row, op, tags=new))

    # --- claims ------------------------------------------------------------------------------------------------------

    def tasks_assign(self, id: str, assignee: str | None) -> Task:
        row = self._to_edit(id)
        return self.shown(row if assignee == row.assigned_to else self._change(row, "assign", assigned_to=assignee))

    def tasks_defer(self, id: str, until: datetime | None) -> Task:
        row, wait = self._task(id), self.deferral_of(id)
        if row.status not in ("open", "blocked"):
            raise errors.InvalidStatus(id=id, status=row.status)
        end = None if until is None else as_microseconds(until)
        if end is not None and end <= self.now:
            raise errors.Invalid()
        if end == (None if wait is None else wait.deadline):
            return self.shown(row)
        times = [None if wait is None else as_time(wait.deadline).isoformat(), None]
        self._drop(wait)
        if end is not None:
            self.state.leases.append(LeaseRow("", "system", end - self.now, end, self.now, defers=id))
            times[1] = as_time(end).isoformat()
        return self.shown(self._change(row, "defer", more={"deferred_until": times}))

    def tasks_claim(self, id: str, agent: str, ttl: float | None = None, force: bool = False) -> Task:
        row = self._task(id)
        if row.claimed_by is not None:
            raise self._already_claimed(row)
        if row.status != "open":
            raise errors.InvalidStatus(id=id, status=row.status)
        if row.assigned_to not in (None, agent) and not force:
            raise errors.Assigned(id=id, assigned_to=row.assigned_to)
        wait = self.deferral_of(id)
        if wait is not None:
            row = self._change(row, "undefer", more=self.end_deferral(wait))
        return self._give(row, agent, ttl)

    def tasks_claim_next(
        self, agent: str, tags: Sequence[str] = (), type: TaskType | None = None, ttl: float | None = None
    ) -> Task | None:
        fits = self._fitting(tags, type, agent)
        return self._give(fits[0], agent, ttl) if fits else None

    def tasks_reclaim(self, id: str, agent: str) -> Task:
        row = self._task(id)
        if row.status != "in_progress":
            raise errors.TaskNotFound(id=id)
        if row.claimed_by != agent:
            raise self._already_claimed(row)
        return self.shown(row)

    def tasks_heartbeat(self, id: str, agent: str, token: int | None = None, ttl: float | None = None) -> Task:
        row = self._task(id)
        self._own_claim(row, agent, token, None)
        length = row.ttl if ttl is None else round(ttl * 1e6)
        assert length is not None
        assert row.claimed_by is not None
        self._drop(self.lease_on(id))
        self._hold(id, row.claimed_by, length)
        self.state.tasks[id] = dataclasses.replace(row, ttl=length, parked=False)
        return self.shown(self.state.tasks[id])

    def tasks_park(self, id: str, agent: str, until: datetime | None = None, token: int | None = None) -> Task:
        row = self._task(id)
        self._own_claim(row, agent, token, None)
        assert row.claimed_by is not None
        left = None if until is None else as_microseconds(until) - self.now
        if left is not None and left <= 0:
            raise errors.Invalid()
        self._drop(self.lease_on(id))
        if left is not None:
            self._hold(id, row.claimed_by, left)
        told = {"parked_until": [None, None if until is None else until.isoformat()]}
        return self.shown(self._change(row, "park", more=told, parked=True))

    def tasks_release(self, id: str, agent: str, token: int | None = None, force: bool = False) -> Task:
        row = self._task(id)
        if force and token is None:
            if row.status != "in_progress":
                raise self._illegal(row, "open")
            return self._let_go(row, "release", "open", forced=[False, True])
        self._own_claim(row, agent, token, "open")
        return self._let_go(row, "release", "open")

    def tasks_complete(
        self,
        id: str,
        agent: str,
        result: Any = None,
        summary: str | None = None,
        review: bool | None = None,
        token: int | None = None,
        force: bool = False,
    ) -> Task:
        row = self._task(id)
        target: TaskStatus = "pending_merge" if review else "closed"
        self._own_claim(row, agent, token, target)
        over = self.refuse_open_children(row, force)
        more = over if result is None else {"result": [None, result], **over}
        return self._let_go(row, "complete", target, summary, **more)

    def tasks_block(self, id: str, agent: str, reason: str | None = None, token: int | None = None) -> Task:
        row = self._task(id)
        self._own_claim(row, agent, token, "blocked")
        return self._let_go(row, "block", "blocked", reason)

    def tasks_release_stale_claims(self, timeout: float) -> int:
        """Reopen what has shown no sign of life for so long; what is parked waits for a person."""
        due = [lease for lease in self.state.leases if lease.task and not self.state.tasks[lease.task].parked]
        due = [lease for lease in due if lease.deadline - lease.ttl <= self.now - round(timeout * 1e6)]
        self.actor = "system"
        for lease in sorted(due, key=self.place_of):
            self._finish(lease, "expire")
        return len(due)

    # --- steps that need no claim ------------------------------------------------------------------------------------

    def tasks_unblock(self, id: str, note: str | None = None) -> Task:
        return self.shown(self._step(id, "unblock", "blocked", "open", note))

    def tasks_approve(self, id: str, note: str | None = None, force: bool = False) -> Task:
        return self.shown(self._step(id, "approve", "pending_merge", "closed", note, force))

    def tasks_reject(self, id: str, reason: str | None = None) -> Task:
        return self.shown(self._step(id, "reject", "pending_merge", "blocked", reason))

    def tasks_close(self, id: str, reason: str | None = None, force: bool = False) -> Task:
        """Whatever leads to the end, for everybody; nothing stays held."""
        row = self._task(id)
        if row.status == "closed":
            raise self._illegal(row, "closed")
        foreign = row.claimed_by not in (None, self.actor)
        if foreign and not force:
            raise errors.NotClaimOwner(id=id, holder=row.claimed_by)
        more = {"forced": [False, True]} if foreign else {}
        more |= self.refuse_open_children(row, force)
        if row.status == "open":
            token = (self.revision + 1) * 4096 + self._grants
            self._grants += 1
            fields: dict[str, Any] = {"claimed_by": self.actor, "claimed": self.now, "token": token}
            fields["grimoire"] = row.grimoire_hint or "implement-bead"
            row = self._change(row, "claim", status="in_progress", **fields)
        op = {"in_progress": "complete", "pending_merge": "approve", "blocked": "close"}[row.status]
        return self._let_go(row, op, "closed", reason, **more)

    def tasks_reopen(self, id: str, reason: str | None = None) -> Task:
        return self.warned(self._step(id, "reopen", "closed", "open", reason))

    def tasks_cancel(self, id: str, reason: str | None = None, force: bool = False, cascade: bool = False) -> Task:
        row = self._task(id)
        if row.status not in ("open", "blocked"):
            raise self._illegal(row, "closed")
        if cascade:
            below = [(one, level) for one, level in self._family(row)[1:] if one.status != "closed"]
            active = [one.id for one, _ in sorted(below, key=_deepest_first) if one.status in ACTIVE]
            if active:
                raise errors.HasActiveChildren(id=id, active_children=active)
            for one, _ in sorted(below, key=_deepest_first):
                self._cancel(one, reason, {})
        return self.shown(self._cancel(row, reason, self.refuse_open_children(row, force)))

    def _cancel(self, row: TaskRow, reason: str | None, more: dict[str, Any]) -> TaskRow:
        if row.status == "open":
            row = self._change(row, "cancel", status="in_progress")
        return self._change(row, "cancel", reason, more, status="closed")

    # --- tree and links ----------------------------------------------------------------------------------------------

    def tasks_reparent(self, id: str, parent_id: str | None) -> Task:
        row = self._to_edit(id)
        self._parent(parent_id)
        if parent_id is not None:
            parent = self.state.tasks[parent_id]
            above = [parent, *self._above(parent)]
            if row in above:
                path = [one.id for one in above[: above.index(row) + 1]]
                raise errors.WouldCreateCycle(id=id, path=path[::-1])
        return self.warned(row if parent_id == row.parent_id else self._change(row, "reparent", parent_id=parent_id))

    def tasks_depend(self, id: str, on: str, kind: LinkKind = "depends_on") -> Task:
        row, _ = self._to_edit(id), self._task(on)
        path = [] if kind != "depends_on" and id != on else self._way(on, id)
        if path:
            raise errors.WouldCreateCycle(id=id, path=[id, *path])
        if (kind, id, on) not in self.state.links:
            self.state.links[kind, id, on] = None
            row = self._change(row, "depend", more={kind: [None, on]})
        shown, above = self.shown(row), row.parent_id
        while kind == "depends_on" and self.strict and row.status != "closed" and above is not None:
            parent = self.state.tasks[above]
            if parent.status != "closed" and parent.deleted is None and self._way(on, above):
                warning = f"it waits for {above}, which is above it and waits for it: neither becomes ready"
                return msgspec.structs.replace(shown, warnings=(warning,))
            above = parent.parent_id
        return shown

    def _way(self, start: str, end: str) -> list[str]:
        """A shortest way along dependencies; empty if there is none."""
        ways = {start: [start]}
        newest = [start]
        while newest and end not in ways:
            came, newest = newest, []
            for place in came:
                for target in self._linked(place):
                    if target not in ways:
                        ways[target] = [*ways[place], target]
                        newest.append(target)
        return ways.get(end, [])

    def tasks_undepend(self, id: str, on: str, kind: LinkKind = "depends_on") -> Task:
        row, _ = self._to_edit(id), self._task(on, deleted=True)
        if (kind, id, on) in self.state.links:
            del self.state.links[kind, id, on]
            row = self._change(row, "undepend", more={kind: [on, None]})
        return self.shown(row)

    # --- deleting ----------------------------------------------------------------------------------------------------

    def _refuse_active(self, row: TaskRow, family: list[TaskRow]) -> None:
        if row.status in ACTIVE:
            raise errors.TaskActive(id=row.id, status=row.status)
        active = [one.id for one in family if one.status in ACTIVE]
        if active:
            raise errors.HasActiveChildren(id=row.id, active_children=active)

    def tasks_delete(self, id: str, reason: str | None = None) -> int:
        row = self._task(id)
        family = [one for one, _ in self._family(row)]
        self._refuse_active(row, family)
        for one in family:
            self._change(one, "delete", reason if one is row else None, deleted=self.now, deletion=id)
        return len(family)

    def tasks_restore(self, id: str) -> Task:
        row = self._task(id, deleted=True)
        if row.deleted is None:
            return self.shown(row)
        if row.parent_id is not None and self.state.tasks[row.parent_id].deleted is not None:
            raise errors.ParentNotFound(id=id, parent_id=row.parent_id)
        for one, _ in self._family(row, deleted=True):
            if one.deletion == row.deletion:
                self._change(one, "restore", deleted=None, deletion=None)
        return self.shown(self._task(id))

    def tasks_purge(self, id: str) -> int:
        row = self._task(id, deleted=True)
        family = [one for one, _ in self._family(row, deleted=True)]
        self._refuse_active(row, family)
        for one in reversed(family):
            if one.status != "closed" and one.deleted is None:
                one = self._change(one, "delete", deleted=self.now)
            self._drop(self.deferral_of(one.id))
            del self.state.tasks[one.id]
            for link in [link for link in self.state.links if one.id in link[1:]]:
                del self.state.links[link]
            self.state.purged[one.id] = self.emit("task", "", one.id, "purge", {}, one.version + 1)
        return len(family)

    # --- conditions ---------------------------------------------------------------------------------------------------

    def _holds(self, condition: Condition) -> bool:
        if condition.kind != "task":
            return super()._holds(condition)
        row = self.state.tasks.get(str(condition.key))
        row = None if row is None or row.deleted is not None else row
        match condition:
            case VersionEquals(version=wanted):
                return row is not None and row.version == wanted
            case ValueEquals(value=wanted):
                return row is not None and row.status == wanted
        raise AssertionError(condition)


def _deepest_first(found: tuple[TaskRow, int]) -> tuple[int, int]:
    return -found[1], found[0].number


def _some(tags: Sequence[str]) -> tuple[str, ...]:
    if not tags:
        raise errors.InvalidTag()
    return clean_tags(tags)
