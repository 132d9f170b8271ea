"""Trails of a cupboard: their steps are taken in memory and saved in one transaction, if nobody else took one."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

from holdfast import errors
from holdfast.cupboard.table import PAGE, Entity, Table, also, part, stale
from holdfast.domains.stashes.states import ENDED, STEPS
from holdfast.types import stashes as types
from holdfast.types.txn import Op, VersionEquals

if TYPE_CHECKING:
    from holdfast.cupboard.attachment import AnyWorkspace

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
