"""The plain model of where stashes are: a dict of stashes, a dict of trails, and the rule that names collide in scopes.

No tables, no links: a stash knows its trail. Whatever is refused changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast import errors

GLOBAL = ""
ENDED = ("completed", "abandoned")


@dataclass
class Place:
    """A stash: its name, its trail or GLOBAL, whether it went with its trail, who holds it, when it ends."""

    name: str
    trail: str
    lock: bool = False
    end: float | None = None
    gone: bool = False
    holder: str | None = None


@dataclass
class Way:
    """A trail: its state, and that which it was abandoned in."""

    state: str
    before: str = ""


@dataclass
class StashModel:
    """Where everything is."""

    trails: dict[str, Way] = field(default_factory=dict)
    stashes: dict[str, Place] = field(default_factory=dict)

    def pass_time(self, now: float) -> None:
        """What has ended is no more, also where it was deleted."""
        ended = [id for id, stash in self.stashes.items() if stash.end is not None and stash.end <= now]
        for id in ended:
            del self.stashes[id]

    # --- asking ------------------------------------------------------------------------------------------------------

    def found(self, name: str, trail: str) -> str | None:
        """The stash of a name in a scope."""
        live = {(stash.trail, stash.name): id for id, stash in self.stashes.items() if not stash.gone}
        return live.get((trail, name))

    def within(self, trail: str) -> list[str]:
        """The stashes in a scope."""
        return sorted(id for id, stash in self.stashes.items() if stash.trail == trail and not stash.gone)

    @property
    def scoped(self) -> dict[str, str]:
        """The trail of each stash that has one, also of those that went with it."""
        return {id: stash.trail for id, stash in self.stashes.items() if stash.trail}

    def stash(self, id: str) -> Place:
        """A stash that is there."""
        if id not in self.stashes or self.stashes[id].gone:
            raise errors.NotFound("no stash")
        return self.stashes[id]

    def trail(self, id: str) -> Way:
        """A trail."""
        if id not in self.trails:
            raise errors.NotFound("no trail")
        return self.trails[id]

    def _open(self, id: str) -> None:
        if self.trail(id).state in ENDED:
            raise errors.InvalidStatus("it has ended")

    def _free(self, name: str, trail: str) -> None:
        taken = self.found(name, trail)
        if taken is not None:
            raise errors.DuplicateName("taken", id=taken)

    # --- stashes -----------------------------------------------------------------------------------------------------

    def create(self, id: str, place: Place) -> None:
        """A new stash."""
        if place.trail:
            self._open(place.trail)
        self._free(place.name, place.trail)
        self.stashes[id] = place

    def scope(self, id: str, trail: str) -> None:
        """A link to a trail."""
        stash = self.stash(id)
        self._open(trail)
        if stash.trail == trail:
            return
        if stash.trail:
            raise errors.Exists("it has one")
        self._free(stash.name, trail)
        stash.trail = trail

    def unscope(self, id: str) -> None:
        """The link of a stash is deleted."""
        stash = self.stash(id)
        self._free(stash.name, GLOBAL)
        stash.trail = GLOBAL

    def delete(self, id: str) -> None:
        """A stash is deleted."""
        if self.stash(id).holder is not None:
            raise errors.Held("held")
        del self.stashes[id]

    def acquire(self, id: str, holder: str) -> None:
        """A lock is taken."""
        stash = self.stash(id)
        if not stash.lock:
            raise errors.InvalidStashType("no lock")
        if stash.holder not in (None, holder):
            raise errors.Held("held")
        stash.holder = holder

    def release(self, id: str, holder: str) -> None:
        """A lock is given back."""
        stash = self.stash(id)
        if not stash.lock:
            raise errors.InvalidStashType("no lock")
        if stash.holder != holder:
            raise errors.NotHolder("not held")
        stash.holder = None

    # --- trails ------------------------------------------------------------------------------------------------------

    def activate(self, id: str) -> None:
        """A trail becomes active."""
        if self.trail(id).state not in ("draft", "pending"):
            raise errors.InvalidTransition("no")
        self.trails[id].state = "active"

    def complete(self, id: str) -> None:
        """A trail ends well, and its stashes stay where they are."""
        if self.trail(id).state != "active":
            raise errors.InvalidTransition("no")
        self.trails[id].state = "completed"

    def abandon(self, id: str) -> None:
        """A trail ends, and takes its stashes along."""
        trail = self.trail(id)
        if trail.state in ENDED:
            raise errors.InvalidTransition("no")
        own = [self.stashes[each] for each in self.within(id)]
        if any(stash.holder is not None for stash in own):
            raise errors.Held("held")
        for stash in own:
            stash.gone = True
        trail.before, trail.state = trail.state, "abandoned"

    def restore(self, id: str) -> None:
        """And is back, with them."""
        trail = self.trail(id)
        if trail.state != "abandoned":
            raise errors.InvalidTransition("no")
        for stash in self.stashes.values():
            stash.gone = stash.gone and stash.trail != id
        trail.state = trail.before

    def delete_trail(self, id: str) -> None:
        """A trail is deleted, and what went with it for good."""
        self.trail(id)
        if self.within(id):
            raise errors.Conflict("not empty")
        self.stashes = {each: stash for each, stash in self.stashes.items() if stash.trail != id}
        del self.trails[id]
