"""The states of a trail: which lead where, what an abandoned one took along, and for how long that is kept.

Asked by `trails`, and by imports, which bring a trail to where it is elsewhere.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.domains.routing.settings import settings_of
from holdfast.domains.tasks.rows import DAY
from holdfast.kernel import leases
from holdfast.kernel.tx import Snapshot, Tx
from holdfast.kernel.values import decode

TRAIL: Final = "trail"
COMPLETED: Final = "completed"
ABANDONED: Final = "abandoned"
ENDED: Final = (COMPLETED, ABANDONED)
# From each state, those that `set_state` leads to; from each of them `abandon` leads away, from active `complete`.
STEPS: Final[dict[str, tuple[str, ...]]] = {"draft": ("pending", "active"), "pending": ("active",), "active": ()}
_MANY: Final = 8  # steps, after which only abandoning and restoring can go on, two by two


def leads(start: tuple[str, str], end: tuple[str, str], steps: int) -> bool:
    """Whether so many steps can lead from one (state, before) to another; `before` is what a trail was abandoned in."""
    places = {start}
    for _ in range(min(steps, _MANY + steps % 2)):
        places = {following for place in places for following in _following(*place)}
    return end in places


def _following(state: str, before: str) -> list[tuple[str, str]]:
    if state == ABANDONED:
        return [(before, "")]
    if state == COMPLETED:
        return []
    done = [(COMPLETED, "")] if state == "active" else []
    return [*done, *((step, "") for step in STEPS[state]), (ABANDONED, state)]


def taken(snapshot: Snapshot, id: str, version: int) -> list[str]:
    """The tasks that went with an abandoned trail, as the event says by which it was: others were deleted before."""
    told = snapshot.one(
        "SELECT data FROM events WHERE kind = ? AND scope = '' AND id = ? AND version = ?", (TRAIL, id, version)
    )
    data: Any = {} if told is None else decode(told[0])
    found: list[str] = data.get("tasks", [[]])[0]
    return found


def plan_purge(tx: Tx, id: str, since: int) -> None:
    """What went with a trail is kept as long as deleted tasks are: its timer is a lease like any other."""
    days = settings_of(tx).config.soft_delete_days
    if days is not None:
        leases.start(tx, TRAIL, tx.actor, max(1, since + round(days * DAY) - tx.now), purge_of(id))


def stop_purge(tx: Tx, id: str) -> None:
    """What went with a trail stays, or is gone already."""
    leases.drop(tx, purge_of(id), TRAIL)


def purge_of(id: str) -> str:
    """The lease that is the timer."""
    return f"{TRAIL}:{id}"
