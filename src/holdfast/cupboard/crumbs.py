"""Crumbs of a cupboard: a crumb is a task, its name the title, its state what the task's status says.

What is done to a crumb in memory is saved as the operations of tasks that mean the same, in one transaction, if nobody
else has changed the task meanwhile. A crumb that is dust is a deleted task, which `ws.tasks.restore` brings back.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

from holdfast import errors
from holdfast.cupboard.links import Links
from holdfast.cupboard.table import PAGE, Entity, Table, also, part, stale
from holdfast.types.tasks import Task, TaskStatus
from holdfast.types.txn import Op, VersionEquals

if TYPE_CHECKING:
    from holdfast.cupboard.attachment import AnyWorkspace

STATES: Final[dict[TaskStatus, str]] = {
    "open": "ready",
    "in_progress": "taken",
    "pending_merge": "taken",
    "blocked": "pending",
    "closed": "pebble",
}
BEGIN: Final = ("", "ready")  # as which a crumb is made
# From one state to another, by which operations.
STEPS: Final = {
    ("ready", "taken"): ("tasks.claim",),
    ("taken", "ready"): ("tasks.release",),
    ("taken", "pending"): ("tasks.block",),
    ("taken", "pebble"): ("tasks.complete",),
    ("pending", "ready"): ("tasks.unblock",),
    ("pebble", "ready"): ("tasks.reopen",),
    ("ready", "dust"): ("tasks.delete",),
    ("pending", "dust"): ("tasks.delete",),
    ("pebble", "dust"): ("tasks.delete",),
    ("taken", "dust"): ("tasks.release", "tasks.delete"),
}


class Crumb(Entity):
    """A crumb in memory."""

    kind = "crumb"

    def __init__(self, name: str = "", state: str = "", **go: Any) -> None:
        given = self.given(go, name=name, state=state)
        self.id = ""
        self.name: str = given["name"]
        self.version = 0
        self.created_at: datetime | None = None
        self.updated_at: datetime | None = None
        self._state: str = given["state"]
        self._stored: Task | None = None
        self._steps: list[str] = []

    @classmethod
    def of(cls, stored: Task) -> Crumb:
        """A crumb as its task is stored."""
        crumb = cls()
        crumb.become(stored)
        return crumb

    def become(self, stored: Task) -> None:
        """Be as the task is stored, with nothing left to save."""
        self.id, self.name, self.version = stored.id, stored.title, stored.version
        self.created_at, self.updated_at = stored.created_at, stored.updated_at
        self._state = STATES[stored.status] if stored.deleted_at is None else "dust"
        self._stored, self._steps = stored, []

    @property
    def state(self) -> str:
        """ready, taken, pending, pebble or dust. To assign is to `set_state`."""
        return self._state

    @state.setter
    def state(self, state: str) -> None:
        self.set_state(state)

    def set_state(self, state: str) -> None:
        """Bring it into a state, in memory; InvalidTransition where no step leads."""
        if self._stored is None or state == self._state:
            self._state = state  # how it begins is judged when it is made
            return
        steps = STEPS.get((self._state, state))
        if steps is None:
            ways = [target for source, target in STEPS if source == self._state]
            raise errors.InvalidTransition(
                f"the crumb {self.id} is {self._state} and cannot become {state!r}",
                hint=f"from {self._state}: {', '.join(ways) or 'nothing'}",
                state=self._state,
            )
        self._state = state
        self._steps += steps

    def pebble(self) -> None:
        """It is done, in memory; only of one that is taken."""
        self.set_state("pebble")

    def dust(self) -> None:
        """It is given up, in memory."""
        self.set_state("dust")

    def save(self, ws: AnyWorkspace) -> None:
        """Do to the task what was done in memory."""
        stored = self._stored
        assert stored is not None
        own = {"id": self.id}
        renamed = [Op("tasks.update", {**own, "title": self.name})] if self.name != stored.title else []
        steps = [Op(step, own) for step in self._steps]
        last = Op("tasks.get", {**own, "include_deleted": True})
        done = ws.txn([VersionEquals("task", self.id, stored.version)], [*renamed, *steps, last])
        if not done.succeeded:
            raise stale(self, stored.version, ws.tasks.get(self.id).version)
        self.become(done.results[-1])

    CrumbID = also("id")
    crumb_id = also("id")
    Name = also("name")
    State = also("state")
    Version = also("version")
    CreatedAt = also("created_at")
    UpdatedAt = also("updated_at")
    SetState = set_state
    Pebble = pebble
    Dust = dust


class Crumbs(Table[Crumb]):
    """The table `crumbs`."""

    entity = Crumb
    filters: ClassVar[dict[str, type[Any]]] = {
        **{"states": list, "state": str, "name": str},
        **{"trail_id": str, "parent_id": str},
    }

    def _get(self, ws: AnyWorkspace, id: str) -> Crumb:
        return Crumb.of(ws.tasks.get(id))

    def _create(self, ws: AnyWorkspace, entity: Crumb) -> None:
        if entity.state not in BEGIN:
            raise errors.InvalidTransition(
                f"a crumb begins as ready, not as {entity.state!r}", hint="bring it on later"
            )
        if not entity.name:
            raise errors.InvalidName("the name is empty", hint="say what is to be done")
        entity.become(ws.tasks.create(entity.name))

    def _save(self, ws: AnyWorkspace, entity: Crumb) -> None:
        entity.save(ws)

    def _delete(self, ws: AnyWorkspace, id: str) -> None:
        ws.tasks.delete(id)

    def _fetch(self, ws: AnyWorkspace, wanted: dict[str, Any], limit: int, offset: int) -> list[Crumb]:
        tasks = _tasks(ws)
        if "trail_id" in wanted:
            belonging = {"link_type": "belongs_to", "to_id": wanted["trail_id"]}
            own = {link.from_id for link in Links(self._attachment)._fetch(ws, belonging, 0, 0)}
            tasks = [task for task in tasks if task.id in own]
        if "parent_id" in wanted:
            tasks = [task for task in tasks if task.parent_id == wanted["parent_id"]]
        crumbs = [Crumb.of(task) for task in tasks]
        for name in ("name", "state"):
            if name in wanted:
                crumbs = [crumb for crumb in crumbs if getattr(crumb, name) == wanted[name]]
        if "states" in wanted:
            crumbs = [crumb for crumb in crumbs if crumb.state in wanted["states"]]
        return part(crumbs, limit, offset)


def _tasks(ws: AnyWorkspace) -> list[Task]:
    """Every task, oldest first."""
    page = ws.tasks.list(sort="created", limit=PAGE)
    found = list(page)
    while page.cursor is not None:
        page = ws.tasks.list(sort="created", limit=PAGE, cursor=page.cursor)
        found += page
    return found
