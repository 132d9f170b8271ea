"""The laws of trails and links as plain Python, on top of the model of stashes, queues and channels: S11 and S12.

A link between tasks is also a dependency of the model of tasks; its id is in no event, so it is known once an answer
has told it.
"""

from __future__ import annotations

from collections import deque

import msgspec

from holdfast import errors
from holdfast.testing import ManualClock
from holdfast.types import Condition, ValueEquals, VersionEquals, as_time
from holdfast.types.stashes import Link, LinkType, Trail, TrailState
from holdfast.types.tasks import LinkKind, Task
from tests.conformance.model_base import TrailRow
from tests.simulation.channel_model import ChannelModel

STEPS: dict[str, tuple[str, ...]] = {"draft": ("pending", "active"), "pending": ("active",)}
ENDED = ("completed", "abandoned")
BETWEEN_TASKS = ("depends_on", "discovered_from", "related")
UNTOLD = ""  # the id of a link that no answer has told


class TrailModel(ChannelModel):
    """A workspace with trails and links as its users imagine it."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.next_trails: deque[str] = deque()
        self.told: Link | None = None  # what the operation in progress answers, if it is a link

    # --- trails ------------------------------------------------------------------------------------------------------

    def _trail(self, id: str) -> TrailRow:
        if id not in self.state.trails:
            raise errors.NotFound()
        return self.state.trails[id]

    def _open_trail(self, id: str) -> None:
        state = self._trail(id).trail.state
        if state in ENDED:
            raise errors.InvalidStatus(state=state)

    def _members(self, trail: str) -> list[str]:
        return sorted(source for kind, source, target in self.state.ties if (kind, target) == ("belongs_to", trail))

    def trails_create(self, name: str, state: TrailState = "draft") -> Trail:
        id = self.next_trails.popleft() if self.next_trails else "of a refusal"
        trail = Trail(id, name, state, as_time(self.now), as_time(self.now), None, 1, self.revision + 1)
        self.state.trails[id] = TrailRow(trail)
        self.emit("trail", "", id, "create", {"name": [None, name], "state": [None, state]}, 1)
        return trail

    def _change_trail(
        self, id: str, op: str, state: str, before: str = "", taken: tuple[str, ...] = (), **more: object
    ) -> Trail:
        old = self.state.trails[id].trail
        new = msgspec.structs.replace(
            old,
            state=state,
            updated_at=as_time(self.now),
            ended_at=as_time(self.now) if state in ENDED else None,
            version=old.version + 1,
            revision=self.revision + 1,
        )
        self.state.trails[id] = TrailRow(new, before, taken)
        self.emit("trail", "", id, op, {"state": [old.state, state], **more}, new.version)
        return new

    def trails_set_state(self, id: str, state: TrailState) -> Trail:
        now = self._trail(id).trail.state
        if state not in STEPS.get(now, ()):
            raise errors.InvalidTransition(state=now)
        return self._change_trail(id, "state", state)

    def trails_add(self, trail: str, task: str) -> Trail:
        self._join(task, trail)
        return self._trail(trail).trail

    def _join(self, task: str, trail: str) -> None:
        self._open_trail(trail)
        self._only_one("belongs_to", self._task(task).id, trail)

    def _only_one(self, kind: str, source: str, target: str) -> None:
        """Such a link leads to one place only."""
        if any(tie[:2] == (kind, source) and tie[2] != target for tie in self.state.ties):
            raise errors.Exists()
        self._tie(kind, source, target)

    def trails_remove(self, trail: str, task: str) -> bool:
        self._trail(trail)
        return self._untie("belongs_to", self._task(task, deleted=True).id, trail)

    def trails_complete(self, id: str) -> Trail:
        """The tasks stay and belong to nothing, the stashes stay where they are."""
        state = self._trail(id).trail.state
        if state != "active":
            raise errors.InvalidTransition(state=state)
        members = self._members(id)
        for task in members:
            self._untie("belongs_to", task, id)
        return self._change_trail(id, "complete", "completed", tasks=[members, []])

    def trails_abandon(self, id: str, reason: str | None = None) -> Trail:
        """Tasks and stashes go with it, all or none."""
        state = self._trail(id).trail.state
        if state in ENDED:
            raise errors.InvalidTransition(state=state)
        stashes = sorted(row.id for row in self.state.stashes.values() if row.trail == id)
        for stash in stashes:
            lock = self.state.stashes[stash].lock
            if lock is not None:
                raise errors.Held(holder=lock.holder)
        taken = [task for task in self._members(id) if self.state.tasks[task].deleted is None]
        for task in taken:
            if self.state.tasks[task].deleted is None:
                self.tasks_delete(task, reason)
        for stash in stashes:
            self.state.stashes[stash].gone = True
        more = {"tasks": [taken, []], "stashes": [stashes, []]} | ({} if reason is None else {"note": reason})
        return self._change_trail(id, "abandon", "abandoned", state, tuple(taken), **more)

    def trails_restore(self, id: str) -> Trail:
        """What went with it is back, if it is a member still."""
        row = self._trail(id)
        if row.trail.state != "abandoned":
            raise errors.InvalidTransition(state=row.trail.state)
        members = [self.state.tasks[task] for task in self._members(id) if task in row.taken]
        for task in sorted(members, key=lambda member: len(self._above(member))):
            self.tasks_restore(task.id)
        for stash in self.state.stashes.values():
            stash.gone = stash.gone and stash.trail != id
        return self._change_trail(id, "restore", row.before)

    def trails_delete(self, id: str) -> None:
        trail = self._trail(id).trail
        stashes = [row for row in self.state.stashes.values() if row.trail == id]
        members = self._members(id)
        if any(not row.gone for row in stashes) or any(self.state.tasks[task].deleted is None for task in members):
            raise errors.Conflict()
        for row in sorted(stashes, key=lambda stash: stash.id):
            self._erase(row, "delete")
        for task in members:
            self._untie("belongs_to", task, id)
        for kind, source, target in [*self.state.ties]:
            if (kind, source) == ("branches_from", id):
                self._untie(kind, source, target)
        del self.state.trails[id]
        self.emit("trail", "", id, "delete", {"state": [trail.state, None]}, trail.version + 1)

    # --- links -------------------------------------------------------------------------------------------------------

    def links_create(self, link_type: LinkType, from_id: str, to_id: str) -> Link:
        """The link, also if it was there."""
        match link_type:
            case "belongs_to":
                self._join(from_id, to_id)
            case "scoped_to":
                self._scope(from_id, to_id)
            case "branches_from":
                self._trail(from_id)
                self._only_one(link_type, from_id, self._task(to_id).id)
            case "child_of":
                self._child(self._task(from_id).id, self._task(to_id).id)
            case _:
                self.tasks_depend(from_id, to_id, link_type)
        link = self.state.ties[link_type, from_id, to_id]
        if link.id == UNTOLD and self.told is not None:
            link = msgspec.structs.replace(link, id=self.told.id)
            self.state.ties[link_type, from_id, to_id] = link
        return link

    def _scope(self, stash: str, trail: str) -> None:
        row = self._stash(stash)
        self._open_trail(trail)
        if row.trail not in (None, trail):
            raise errors.Exists()
        if row.trail is None:
            self._check_free(trail, row.name)
            row.trail = trail
            self._tie("scoped_to", stash, trail)

    def _child(self, task: str, parent: str) -> None:
        """No task is below itself."""
        above, newest = {parent}, {parent}
        while newest:
            newest = {to for kind, source, to in self.state.ties if kind == "child_of" and source in newest} - above
            above |= newest
        if task in above:
            raise errors.WouldCreateCycle()
        self._tie("child_of", task, parent)

    def tasks_depend(self, id: str, on: str, kind: LinkKind = "depends_on") -> Task:
        task = super().tasks_depend(id, on, kind)
        self.state.ties.setdefault((kind, id, on), Link(UNTOLD, kind, id, on, as_time(self.now)))
        return task

    def tasks_undepend(self, id: str, on: str, kind: LinkKind = "depends_on") -> Task:
        task = super().tasks_undepend(id, on, kind)
        self.state.ties.pop((kind, id, on), None)
        return task

    def links_get(self, id: str) -> Link:
        for link in self.state.ties.values():
            if link.id == id:
                return link
        raise errors.NotFound()

    def links_delete(self, id: str) -> None:
        link = self.links_get(id)
        if link.link_type in BETWEEN_TASKS:
            self.tasks_undepend(link.from_id, link.to_id, link.link_type)  # type: ignore[arg-type]
            return
        if link.link_type == "scoped_to":
            row = self._stash(link.from_id)
            self._check_free(None, row.name)
            row.trail = None
        self._untie(link.link_type, link.from_id, link.to_id)

    # --- reading -----------------------------------------------------------------------------------------------------

    def trails_get(self, id: str) -> Trail:
        return self._trail(id).trail

    def trails_members(self, id: str) -> list[str]:
        self._trail(id)
        return [task for task in self._members(id) if self.state.tasks[task].deleted is None]

    def links_list(self, link_type: LinkType) -> list[Link]:
        return sorted((link for link in self.state.ties.values() if link.link_type == link_type), key=lambda x: x.id)

    def _holds(self, condition: Condition) -> bool:
        match condition:
            case VersionEquals(kind="stash", key=key, version=wanted):
                row = self._found(str(key))
                return row is not None and row.version == wanted
            case ValueEquals(kind="trail", key=key, value=wanted):
                return str(key) in self.state.trails and self.state.trails[str(key)].trail.state == wanted
        return super()._holds(condition)
