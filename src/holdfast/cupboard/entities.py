"""The links, trails and crumbs of a cupboard.

What is done to a crumb in memory is saved as the operations of tasks that mean the same, in one transaction, if nobody
else has changed the task meanwhile. A crumb that is dust is a deleted task, which `ws.tasks.restore` brings back.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, get_args

from holdfast import errors
from holdfast.cupboard.tables import PAGE, Entity, Table, also, part, stale
from holdfast.domains.stashes.rows import ENDED, STEPS
from holdfast.types import Op, VersionEquals
from holdfast.types import stashes as types
from holdfast.types.tasks import Task, TaskStatus

if TYPE_CHECKING:
    from holdfast.cupboard.tables import AnyWorkspace


class Link(Entity):
    """A link in memory: from one record to another."""

    kind = "link"

    def __init__(self, link_type: str = "", from_id: str = "", to_id: str = "", **go: Any) -> None:
        given = self.given(go, link_type=link_type, from_id=from_id, to_id=to_id)
        self.id = ""
        self.link_type: str = given["link_type"]
        self.from_id: str = given["from_id"]
        self.to_id: str = given["to_id"]
        self.created_at: datetime | None = None

    @classmethod
    def of(cls, stored: types.Link) -> Link:
        """A link as it is stored."""
        link = cls()
        link.become(stored)
        return link

    def become(self, stored: types.Link) -> None:
        """Be as it is stored."""
        self.id, self.created_at = stored.id, stored.created_at
        self.link_type, self.from_id, self.to_id = stored.link_type, stored.from_id, stored.to_id

    LinkID = also("id")
    link_id = also("id")
    LinkType = also("link_type")
    FromID = also("from_id")
    ToID = also("to_id")
    CreatedAt = also("created_at")


class Links(Table[Link]):
    """The table `links`."""

    entity = Link
    filters: ClassVar[dict[str, type[Any]]] = {"link_type": str, "from_id": str, "to_id": str}

    def _get(self, ws: AnyWorkspace, id: str) -> Link:
        return Link.of(ws.links.get(id))

    def _create(self, ws: AnyWorkspace, entity: Link) -> None:
        link_type: Any = entity.link_type
        entity.become(ws.links.create(link_type, entity.from_id, entity.to_id))

    def _save(self, ws: AnyWorkspace, entity: Link) -> None:
        stored = ws.links.get(entity.id)
        if (entity.link_type, entity.from_id, entity.to_id) != (stored.link_type, stored.from_id, stored.to_id):
            raise errors.Invalid("a link never changes", hint="delete it, and set another one")

    def _delete(self, ws: AnyWorkspace, id: str) -> None:
        ws.links.delete(id)

    def _fetch(self, ws: AnyWorkspace, wanted: dict[str, Any], limit: int, offset: int) -> list[Link]:
        if "" in wanted.values() or wanted.get("link_type", "related") not in get_args(types.LinkType):
            return []  # there is none
        found: list[types.Link] = []
        while page := ws.links.list(**wanted, limit=PAGE, after=found[-1].id if found else ""):
            found += page
        return [Link.of(stored) for stored in part(found, limit, offset)]


# From each state, where a trail can go.
WAYS: Final = {state: (*steps, *(ENDED if state == "active" else ("abandoned",))) for state, steps in STEPS.items()}


class Trail(Entity):
    """A trail in memory. Completing and abandoning one does what that does when it is saved."""

    kind = "trail"

    def __init__(self, name: str = "", state: str = "draft", **go: Any) -> None:
        given = self.given(go, name=name, state=state)
        self.id = ""
        self.name: str = given["name"]
        self.version = 0
        self.created_at: datetime | None = None
        self.completed_at: datetime | None = None
        self._state: str = given["state"]
        self._stored: types.Trail | None = None
        self._steps: list[str] = []

    @classmethod
    def of(cls, stored: types.Trail) -> Trail:
        """A trail as it is stored."""
        trail = cls()
        trail.become(stored)
        return trail

    def become(self, stored: types.Trail) -> None:
        """Be as it is stored, with nothing left to save."""
        self.id, self.name, self.version = stored.id, stored.name, stored.version
        self.created_at, self.completed_at = stored.created_at, stored.ended_at
        self._state, self._stored, self._steps = stored.state, stored, []

    @property
    def state(self) -> str:
        """draft, pending, active, completed or abandoned. To assign is to `set_state`."""
        return self._state

    @state.setter
    def state(self, state: str) -> None:
        self.set_state(state)

    def set_state(self, state: str) -> None:
        """Bring it on, in memory; InvalidTransition where no step leads."""
        if self._stored is None or state == self._state:
            self._state = state  # how it begins is judged when it is made
            return
        ways = WAYS.get(self._state, ())
        if state not in ways:
            raise errors.InvalidTransition(
                f"the trail {self.id} is {self._state} and cannot become {state!r}",
                hint=f"from {self._state}: {', '.join(ways) or 'nothing'}",
                state=self._state,
            )
        self._state = state
        self._steps.append(state)

    def complete(self) -> None:
        """End it well, in memory."""
        self.set_state("completed")

    def abandon(self) -> None:
        """End it with all that belongs to it, in memory."""
        self.set_state("abandoned")

    def save(self, ws: AnyWorkspace) -> None:
        """Take the steps that were taken in memory."""
        stored = self._stored
        assert stored is not None
        if self.name != stored.name:
            raise errors.InvalidName(f"the trail {stored.name!r} keeps its name", hint="make another one")
        steps = [Op("trails.set_state", {"id": self.id, "state": state}) for state in self._steps]
        done = ws.txn([VersionEquals("trail", self.id, stored.version)], [*steps, Op("trails.get", {"id": self.id})])
        if not done.succeeded:
            raise stale(self, stored.version, ws.trails.get(self.id).version)
        self.become(done.results[-1])

    TrailID = also("id")
    trail_id = also("id")
    Name = also("name")
    State = also("state")
    Version = also("version")
    CreatedAt = also("created_at")
    CompletedAt = also("completed_at")
    SetState = set_state
    Complete = complete
    Abandon = abandon


class Trails(Table[Trail]):
    """The table `trails`."""

    entity = Trail
    filters: ClassVar[dict[str, type[Any]]] = {"state": str, "name": str}

    def _get(self, ws: AnyWorkspace, id: str) -> Trail:
        return Trail.of(ws.trails.get(id))

    def _create(self, ws: AnyWorkspace, entity: Trail) -> None:
        state: Any = entity.state
        entity.become(ws.trails.create(entity.name, state))

    def _save(self, ws: AnyWorkspace, entity: Trail) -> None:
        entity.save(ws)

    def _delete(self, ws: AnyWorkspace, id: str) -> None:
        ws.trails.delete(id)

    def _fetch(self, ws: AnyWorkspace, wanted: dict[str, Any], limit: int, offset: int) -> list[Trail]:
        found: list[types.Trail] = []
        while page := ws.trails.list(limit=PAGE, after=found[-1].id if found else ""):
            found += page
        fitting = [each for each in found if all(getattr(each, name) == value for name, value in wanted.items())]
        return [Trail.of(stored) for stored in part(fitting, limit, offset)]


STATES: Final[dict[TaskStatus, str]] = {
    "open": "ready",
    "in_progress": "taken",
    "pending_merge": "taken",
    "blocked": "pending",
    "closed": "pebble",
}
BEGIN: Final = ("", "ready")  # as which a crumb is made
# From one state to another, by which operations.
CRUMB_STEPS: Final = {
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
        steps = CRUMB_STEPS.get((self._state, state))
        if steps is None:
            ways = [target for source, target in CRUMB_STEPS if source == self._state]
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
