"""The links, trails and crumbs of a cupboard.

What is done to a crumb in memory is saved as the operations of tasks that mean the same, in one transaction, if nobody
else has changed the task meanwhile. A crumb that is dust is a deleted task, which `ws.tasks.restore` brings back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, get_args

from holdfast import errors
from holdfast.cupboard.tables import PAGE, Entity, Table, also, every, part, stale
from holdfast.domains.stashes.rows import WAYS
from holdfast.types import Op, VersionEquals
from holdfast.types import stashes as types
from holdfast.types.tasks import Task, TaskStatus

if TYPE_CHECKING:
    from holdfast.cupboard.tables import AnyWorkspace


class Link(Entity[types.Link]):
    """A link in memory: from one record to another."""

    kind = "link"
    link_type: str
    from_id: str
    to_id: str

    def __init__(self, link_type: str = "", from_id: str = "", to_id: str = "", **go: Any) -> None:
        self.begin(go, link_type=link_type, from_id=from_id, to_id=to_id)

    def become(self, stored: types.Link) -> None:
        """Be as it is stored."""
        super().become(stored)
        self.link_type, self.from_id, self.to_id = stored.link_type, stored.from_id, stored.to_id

    def save(self, ws: AnyWorkspace) -> None:
        """Refuse every change: a link has none."""
        stored = ws.links.get(self.id)
        if (self.link_type, self.from_id, self.to_id) != (stored.link_type, stored.from_id, stored.to_id):
            raise errors.Invalid("a link never changes", hint="delete it, and set another one")

    LinkID = also("id")
    link_id = also("id")
    LinkType = also("link_type")
    FromID = also("from_id")
    ToID = also("to_id")


class Links(Table[Link]):
    """The table `links`."""

    entity = Link
    domain = "links"
    filters: ClassVar[dict[str, type[Any]]] = {"link_type": str, "from_id": str, "to_id": str}

    def _create(self, ws: AnyWorkspace, entity: Link) -> None:
        link_type: Any = entity.link_type
        entity.become(ws.links.create(link_type, entity.from_id, entity.to_id))

    def _fetch(self, ws: AnyWorkspace, wanted: dict[str, Any], limit: int, offset: int) -> list[Link]:
        if "" in wanted.values() or wanted.get("link_type", "related") not in get_args(types.LinkType):
            return []  # there is none
        return [Link.of(stored) for stored in part(every(ws.links.list, **wanted), limit, offset)]


W = TypeVar("W", bound=types.Trail | Task)


class Walker(Entity[W]):
    """A record that goes from state to state: in memory first, then by operations of the workspace in one txn."""

    domain: ClassVar[str]  # of the workspace
    record: ClassVar[str]  # what the workspace calls it
    ways: ClassVar[Mapping[str, Collection[str]]]  # from each state, where it can go
    reading: ClassVar[dict[str, Any]] = {}  # how it is read after the steps
    name: str
    _state: str

    def begin(self, go: Mapping[str, Any], **fields: Any) -> None:
        """Be a new record, at no version."""
        super().begin(go, **fields)
        self.version = 0
        self._steps: list[Op] = []

    def become(self, stored: W) -> None:
        """Be as it is stored, with nothing left to save."""
        super().become(stored)
        self.version, self._steps = stored.version, []

    @property
    def state(self) -> str:
        """Where it stands. To assign is to `set_state`."""
        return self._state

    @state.setter
    def state(self, state: str) -> None:
        self.set_state(state)

    def set_state(self, state: str) -> None:
        """Bring it into a state, in memory; InvalidTransition where no step leads."""
        if self._stored is not None and state != self._state:  # how it begins is judged when it is made
            ways = self.ways.get(self._state, ())
            if state not in ways:
                raise errors.InvalidTransition(
                    f"the {self.kind} {self.id} is {self._state} and cannot become {state!r}",
                    hint=f"from {self._state}: {', '.join(ways) or 'nothing'}",
                    state=self._state,
                )
            self._steps += self._way(state)
        self._state = state

    def save(self, ws: AnyWorkspace) -> None:
        """Take the steps that were taken in memory."""
        stored = self._stored
        assert stored is not None
        steps = [*self._renaming(stored), *self._steps, Op(f"{self.domain}.get", {"id": self.id, **self.reading})]
        done = ws.txn([VersionEquals(self.record, self.id, stored.version)], steps)
        if not done.succeeded:
            raise stale(self, stored.version, getattr(ws, self.domain).get(self.id).version)
        self.become(done.results[-1])

    def _way(self, state: str) -> list[Op]:
        """The operations that lead to a state."""
        raise NotImplementedError

    def _renaming(self, stored: W) -> list[Op]:
        """The operations that give it its present name."""
        raise NotImplementedError

    Name = also("name")
    State = also("state")
    Version = also("version")
    SetState = set_state


class Trail(Walker[types.Trail]):
    """A trail in memory: draft, pending, active, completed or abandoned.

    Completing and abandoning one does what that does when it is saved.
    """

    kind = record = "trail"
    domain = "trails"
    ways = WAYS

    def __init__(self, name: str = "", state: str = "draft", **go: Any) -> None:
        self.begin(go, name=name, state=state)
        self.completed_at: datetime | None = None

    def become(self, stored: types.Trail) -> None:
        """Be as it is stored, with nothing left to save."""
        super().become(stored)
        self.name, self._state, self.completed_at = stored.name, stored.state, stored.ended_at

    def complete(self) -> None:
        """End it well, in memory."""
        self.set_state("completed")

    def abandon(self) -> None:
        """End it with all that belongs to it, in memory."""
        self.set_state("abandoned")

    def _way(self, state: str) -> list[Op]:
        return [Op("trails.set_state", {"id": self.id, "state": state})]

    def _renaming(self, stored: types.Trail) -> list[Op]:
        if self.name != stored.name:
            raise errors.InvalidName(f"the trail {stored.name!r} keeps its name", hint="make another one")
        return []

    TrailID = also("id")
    trail_id = also("id")
    CompletedAt = also("completed_at")
    Complete = complete
    Abandon = abandon


class Trails(Table[Trail]):
    """The table `trails`."""

    entity = Trail
    domain = "trails"
    filters: ClassVar[dict[str, type[Any]]] = {"state": str, "name": str}

    def _create(self, ws: AnyWorkspace, entity: Trail) -> None:
        state: Any = entity.state
        entity.become(ws.trails.create(entity.name, state))

    def _fetch(self, ws: AnyWorkspace, wanted: dict[str, Any], limit: int, offset: int) -> list[Trail]:
        found = every(ws.trails.list)
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
# From each state to others, by which operations.
CRUMB_STEPS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "ready": {"taken": ("tasks.claim",), "dust": ("tasks.delete",)},
    "taken": {
        "ready": ("tasks.release",),
        "pending": ("tasks.block",),
        "pebble": ("tasks.complete",),
        "dust": ("tasks.release", "tasks.delete"),
    },
    "pending": {"ready": ("tasks.unblock",), "dust": ("tasks.delete",)},
    "pebble": {"ready": ("tasks.reopen",), "dust": ("tasks.delete",)},
}


class Crumb(Walker[Task]):
    """A crumb in memory: ready, taken, pending, pebble or dust."""

    kind = "crumb"
    domain = "tasks"
    record = "task"
    ways = CRUMB_STEPS
    reading: ClassVar[dict[str, Any]] = {"include_deleted": True}

    def __init__(self, name: str = "", state: str = "", **go: Any) -> None:
        self.begin(go, name=name, state=state)
        self.updated_at: datetime | None = None

    def become(self, stored: Task) -> None:
        """Be as the task is stored, with nothing left to save."""
        super().become(stored)
        self.name, self.updated_at = stored.title, stored.updated_at
        self._state = STATES[stored.status] if stored.deleted_at is None else "dust"

    def pebble(self) -> None:
        """It is done, in memory; only of one that is taken."""
        self.set_state("pebble")

    def dust(self) -> None:
        """It is given up, in memory."""
        self.set_state("dust")

    def _way(self, state: str) -> list[Op]:
        return [Op(step, {"id": self.id}) for step in CRUMB_STEPS[self._state][state]]

    def _renaming(self, stored: Task) -> list[Op]:
        return [Op("tasks.update", {"id": self.id, "title": self.name})] if self.name != stored.title else []

    CrumbID = also("id")
    crumb_id = also("id")
    UpdatedAt = also("updated_at")
    Pebble = pebble
    Dust = dust


class Crumbs(Table[Crumb]):
    """The table `crumbs`."""

    entity = Crumb
    domain = "tasks"
    filters: ClassVar[dict[str, type[Any]]] = {
        **{"states": list, "state": str, "name": str},
        **{"trail_id": str, "parent_id": str},
    }

    def _create(self, ws: AnyWorkspace, entity: Crumb) -> None:
        if entity.state not in BEGIN:
            raise errors.InvalidTransition(
                f"a crumb begins as ready, not as {entity.state!r}", hint="bring it on later"
            )
        if not entity.name:
            raise errors.InvalidName("the name is empty", hint="say what is to be done")
        entity.become(ws.tasks.create(entity.name))

    def _fetch(self, ws: AnyWorkspace, wanted: dict[str, Any], limit: int, offset: int) -> list[Crumb]:
        tasks = _tasks(ws)
        if "trail_id" in wanted:
            belonging = {"link_type": "belongs_to", "to_id": wanted["trail_id"]}
            own = {link.from_id for link in Links(self._attachment)._fetch(ws, belonging, 0, 0)}
            tasks = [task for task in tasks if task.id in own]
        if "parent_id" in wanted:
            tasks = [task for task in tasks if task.parent_id == wanted["parent_id"]]
        crumbs = [
            crumb
            for crumb in map(Crumb.of, tasks)
            if crumb.name == wanted.get("name", crumb.name)
            and crumb.state == wanted.get("state", crumb.state)
            and crumb.state in wanted.get("states", (crumb.state,))
        ]
        return part(crumbs, limit, offset)


def _tasks(ws: AnyWorkspace) -> list[Task]:
    """Every task, oldest first."""
    page = ws.tasks.list(sort="created", limit=PAGE)
    found = list(page)
    while page.cursor is not None:
        page = ws.tasks.list(sort="created", limit=PAGE, cursor=page.cursor)
        found += page
    return found
