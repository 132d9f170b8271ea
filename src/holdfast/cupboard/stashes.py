"""Stashes of a cupboard: changed in memory, version by version, and saved as one change by `stashes.save`.

Saving compares the version that was loaded. So an `acquire` that was decided on a free lock is written only if it is
still that free lock, and an increment only on the count that it was added to.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, get_args

from holdfast import errors
from holdfast.clock import SystemClock
from holdfast.cupboard.tables import (
    PAGE,
    Entity,
    StashOpAcquire,
    StashOpIncrement,
    StashOpRelease,
    StashOpSet,
    Table,
    also,
    stale,
)
from holdfast.domains.stashes.rows import (
    COUNTER,
    LOCK,
    check_type,
    check_value,
    checked_count,
    count_of,
    held_value,
    one,
)
from holdfast.kernel.values import encode
from holdfast.types import Op
from holdfast.types import stashes as types

if TYPE_CHECKING:
    from holdfast.cupboard.tables import AnyWorkspace

_ANY_SIZE: Final = 2**62
_MOST_PAGES: Final = 128  # as many as one txn can read


class Stash(Entity):
    """A stash in memory. `version` counts its changes on from the one loaded; `changed_by` is the crumb they are by.

    `trail_id` makes a new one in a trail. Of one that is stored it tells the trail, which is a link and changes as one.
    """

    kind = "stash"

    def __init__(
        self,
        name: str = "",
        stash_type: str = "",
        value: Any = None,
        trail_id: str | None = None,
        changed_by: str | None = None,
        **go: Any,
    ) -> None:
        given = self.given(go, name=name, stash_type=stash_type, value=value, trail_id=trail_id, changed_by=changed_by)
        self.id = ""
        self.name: str = given["name"]
        self.stash_type: str = given["stash_type"]
        self.version = 0
        self.trail_id: str | None = given["trail_id"]
        self.created_at: datetime | None = None
        self.changed_by: str | None = given["changed_by"]
        self.token: int | None = None
        self._value = given["value"]
        self._stored: types.Stash | None = None
        self._data = b""  # the value as it was stored
        self._last: tuple[str, str | None] | None = None  # the last change: its operation, and by which holder

    @classmethod
    def of(cls, stored: types.Stash) -> Stash:
        """A stash as it is stored."""
        stash = cls()
        stash.become(stored)
        return stash

    def become(self, stored: types.Stash) -> None:
        """Be as it is stored, with nothing left to save."""
        self.id, self.name, self.stash_type, self.version = stored.id, stored.name, stored.stash_type, stored.version
        self.trail_id, self.created_at, self.token = stored.trail, stored.created_at, stored.token
        self._value, self._stored, self._last = stored.value, stored, None
        self._data = encode(stored.value, _ANY_SIZE)

    @property
    def value(self) -> Any:
        """Its value, or None; of a lock, the holder and since when. To assign is to `set_value`."""
        return dict(self._value) if self.stash_type == LOCK and self._value else self._value

    @value.setter
    def value(self, value: Any) -> None:
        self.set_value(value)

    def get_value(self) -> Any:
        """Its value, None if none is set."""
        return self.value

    def set_value(self, value: Any) -> None:
        """Give it another value, in memory. Not for locks: InvalidStashType."""
        if self.stash_type == LOCK:
            raise errors.InvalidStashType(f"{self.name!r} is a lock", hint="acquire or release it")
        check_type(self.stash_type)
        check_value(self.stash_type, value)
        self._change(value, StashOpSet)

    def increment(self, delta: int = 1) -> int:
        """Add to a counter, in memory, and answer its new value."""
        self._check_type(COUNTER)
        if type(delta) is not int:
            raise errors.InvalidValue(f"a counter counts whole numbers, not {delta!r}", hint="")
        check_value(COUNTER, self._value)
        count = checked_count(count_of(self._value) + delta)
        self._change({"value": count}, StashOpIncrement)
        return count

    def acquire(self, holder: str) -> None:
        """Take a lock, or enter it again, in memory; Held if another has it. Nobody has it before it is saved."""
        self._check_type(LOCK)
        if not isinstance(holder, str) or not holder:
            raise errors.InvalidHolder("the holder is empty", hint="pass the name of the holder")
        if self._holder not in (None, holder):
            raise errors.Held(
                f"{self.name!r} is held by {self._holder}", name=self.name, holder=self._holder, until=None
            )
        value = self._value if self._holder else held_value(holder, SystemClock().wall())
        self._change(value, StashOpAcquire, holder)

    def release(self, holder: str) -> None:
        """Give a lock back, in memory; NotHolder unless `holder` has it."""
        self._check_type(LOCK)
        if self._holder is None or self._holder != holder:
            raise errors.NotHolder(f"{self.name!r} is held by {self._holder or 'nobody'}", holder=self._holder)
        self._change(None, StashOpRelease, holder)

    @property
    def _holder(self) -> str | None:
        return self._value["holder"] if self._value else None

    def _check_type(self, wanted: str) -> None:
        if self.stash_type != wanted:
            raise errors.InvalidStashType(f"the stash {self.name!r} is {one(self.stash_type)}, not {one(wanted)}")

    def _change(self, value: Any, operation: str, holder: str | None = None) -> None:
        self._value = value
        self.version += 1
        self._last = (operation, holder)

    def save(self, ws: AnyWorkspace) -> None:
        """Write what was changed since it was loaded, as one change."""
        stored = self._stored
        assert stored is not None
        self._check_kept(stored)
        if self._last is None and encode(self._value, _ANY_SIZE) != self._data:  # somebody changed it in place
            self._change(self._value, StashOpSet)
        if self._last is None:
            current = ws.stashes.get(self.id)
            if current.version != stored.version:
                raise stale(self, stored.version, current.version)
            return
        operation, holder = self._last
        value = None if self.stash_type == LOCK else self._value
        self.become(
            ws.stashes.save(self.id, stored.version, self.version, operation, value, holder, self.changed_by)  # type: ignore[arg-type]  # one of ours
        )

    def _check_kept(self, stored: types.Stash) -> None:
        if self.name != stored.name:
            raise errors.InvalidName(f"the stash {stored.name!r} keeps its name", hint="make another one")
        if self.stash_type != stored.stash_type:
            raise errors.InvalidStashType(f"the stash {stored.name!r} stays {one(stored.stash_type)}")
        if self.trail_id != stored.trail:
            raise errors.Invalid("the trail of a stash is a link", hint="set or delete its scoped_to link")

    StashID = also("id")
    stash_id = also("id")
    Name = also("name")
    StashType = also("stash_type")
    Value = also("value")
    Version = also("version")
    CreatedAt = also("created_at")
    TrailID = also("trail_id")
    ChangedBy = also("changed_by")
    SetValue = set_value
    GetValue = get_value
    Increment = increment
    Acquire = acquire
    Release = release


class StashHistoryEntry:
    """One saved change of a stash, which never changes: the version and value after it, and by which operation."""

    __slots__ = ("_entry",)

    def __init__(self, entry: types.StashEntry) -> None:
        self._entry = entry

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._entry, _ENTRY.get(name, name))

    def __repr__(self) -> str:
        return repr(self._entry)


_ENTRY: Final = {
    "history_id": "id",
    "HistoryID": "id",
    "StashID": "stash_id",
    "Version": "version",
    "Value": "value",
    "Operation": "operation",
    "ChangedBy": "changed_by",
    "CreatedAt": "created_at",
}


class Stashes(Table[Stash]):
    """The table `stashes`."""

    entity = Stash
    filters: ClassVar[dict[str, type[Any]]] = {"stash_type": str, "name": str, "trail_id": str}

    def history(self, id: str) -> list[StashHistoryEntry]:
        """Every saved change of a stash, oldest first."""
        with self._attachment.running() as ws:
            return [StashHistoryEntry(entry) for entry in ws.stashes.history(id)]

    History = history

    def _get(self, ws: AnyWorkspace, id: str) -> Stash:
        return Stash.of(ws.stashes.get(id))

    def _create(self, ws: AnyWorkspace, entity: Stash) -> None:
        stash_type: Any = entity.stash_type
        entity.become(
            ws.stashes.create(
                entity.name, stash_type, entity.value, trail=entity.trail_id, changed_by=entity.changed_by
            )
        )

    def _save(self, ws: AnyWorkspace, entity: Stash) -> None:
        entity.save(ws)

    def _delete(self, ws: AnyWorkspace, id: str) -> None:
        ws.stashes.delete(id)

    def _fetch(self, ws: AnyWorkspace, wanted: dict[str, Any], limit: int, offset: int) -> list[Stash]:
        if wanted.get("stash_type", COUNTER) not in get_args(types.StashType) or wanted.get("name") == "":
            return []  # there is none
        if "trail_id" in wanted:
            wanted["trail"] = wanted.pop("trail_id")
        size = min(limit or PAGE, PAGE)
        found = ws.stashes.list(**wanted, limit=size, offset=offset)
        if len(found) == PAGE != limit:
            found = _read_on(ws, wanted, offset)
        return [Stash.of(stored) for stored in found[: limit or None]]


def _read_on(ws: AnyWorkspace, wanted: dict[str, Any], offset: int) -> list[types.Stash]:
    """More than a page: all pages in one transaction, so that none is skipped because an earlier one was deleted."""
    pages = 2
    while True:
        reads = [Op("stashes.list", {**wanted, "limit": PAGE, "offset": offset + PAGE * page}) for page in range(pages)]
        answers = ws.txn([], reads).results
        if len(answers[-1]) < PAGE:
            return [stored for page in answers for stored in page]
        if pages == _MOST_PAGES:
            raise errors.TooLarge(f"more than {PAGE * pages} stashes", hint="fetch them in parts: limit and offset")
        pages = min(2 * pages, _MOST_PAGES)
