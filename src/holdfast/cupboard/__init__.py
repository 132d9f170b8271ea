"""The cupboard: crumbs, trails, links and stashes as tables of entities, which are changed in memory and saved later.

    cupboard = Cupboard()
    cupboard.attach({"path": ".holdfast", "actor": "agent-1"})
    stashes = cupboard.table("stashes")
    stash = stashes.get(stashes.set("", Stash("visits", "counter")))
    stash.increment(1)
    stashes.set(stash.stash_id, stash)

A second way to the same records as `ws.tasks`, `ws.trails`, `ws.links` and `ws.stashes`, on any kind of workspace. What
was loaded is saved only if it has not been changed meanwhile (VersionMismatch), so saving late loses nothing: an
`acquire` that was decided on a free lock is written only if it is still that free lock, and an increment only on the
count that it was added to.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, get_args

from holdfast import errors
from holdfast.clock import SystemClock
from holdfast.cupboard.entities import Crumb, Crumbs, Link, Links, Trail, Trails
from holdfast.cupboard.tables import PAGE, Attachment, Entity, Table, also, go_name, stale
from holdfast.domains.stashes import SavedOperation, rows
from holdfast.kernel.values import encode
from holdfast.types import stashes as types

if TYPE_CHECKING:
    from holdfast.cupboard.tables import AnyWorkspace

ErrAlreadyAttached = errors.AlreadyAttached
ErrCupboardDetached = errors.Closed
ErrDuplicateName = errors.DuplicateName
ErrInvalidFilter = errors.InvalidFilter
ErrInvalidHolder = errors.InvalidHolder
ErrInvalidID = errors.InvalidID
ErrInvalidName = errors.InvalidName
ErrInvalidStashType = errors.InvalidStashType
ErrInvalidTransition = errors.InvalidTransition
ErrLockHeld = errors.Held
ErrNotFound = errors.NotFound
ErrNotLockHolder = errors.NotHolder
ErrTableNotFound = errors.TableNotFound

StashOpCreate: Final = "create"
StashOpSet: Final = "set"
StashOpIncrement: Final = "increment"
StashOpAcquire: Final = "acquire"
StashOpRelease: Final = "release"

_ANY_SIZE: Final = 2**62
_TRIES: Final = 16  # to read all pages of one revision


class Stash(Entity[types.Stash]):
    """A stash in memory. `version` counts its changes on from the one loaded; `changed_by` is the crumb they are by.

    `trail_id` makes a new one in a trail. Of one that is stored it tells the trail, which is a link and changes as one.
    """

    kind = "stash"
    name: str
    stash_type: str
    trail_id: str | None
    changed_by: str | None
    _value: Any

    def __init__(
        self,
        name: str = "",
        stash_type: str = "",
        value: Any = None,
        trail_id: str | None = None,
        changed_by: str | None = None,
        **go: Any,
    ) -> None:
        self.begin(go, name=name, stash_type=stash_type, _value=value, trail_id=trail_id, changed_by=changed_by)
        self.version = 0
        self.token: int | None = None
        self._data = b""  # the value as it was stored
        self._last: tuple[SavedOperation, str | None] | None = None  # the last change, and by which holder
        self._changes = 0  # since it was loaded
        self._released = False  # by whoever held it when it was loaded

    def become(self, stored: types.Stash) -> None:
        """Be as it is stored, with nothing left to save."""
        super().become(stored)
        self.name, self.stash_type, self.version = stored.name, stored.stash_type, stored.version
        self.trail_id, self.token, self._value, self._last = stored.trail, stored.token, stored.value, None
        self._changes, self._released = 0, False
        self._data = encode(stored.value, _ANY_SIZE)

    @property
    def value(self) -> Any:
        """Its value, or None; of a lock, the holder and since when. To assign is to `set_value`."""
        return dict(self._value) if self.stash_type == rows.LOCK and self._value else self._value

    @value.setter
    def value(self, value: Any) -> None:
        self.set_value(value)

    def get_value(self) -> Any:
        """Its value, None if none is set."""
        return self.value

    def set_value(self, value: Any) -> None:
        """Give it another value, in memory. Not for locks: InvalidStashType."""
        if self.stash_type == rows.LOCK:
            raise errors.InvalidStashType(f"{self.name!r} is a lock", hint="acquire or release it")
        rows.check_type(self.stash_type)
        rows.check_value(self.stash_type, value)
        self._change(value, StashOpSet)

    def increment(self, delta: int = 1) -> int:
        """Add to a counter, in memory, and answer its new value."""
        self._check_type(rows.COUNTER)
        if type(delta) is not int:
            raise errors.InvalidValue(f"a counter counts whole numbers, not {delta!r}", hint="")
        rows.check_value(rows.COUNTER, self._value)
        count = rows.checked_count(rows.count_of(self._value) + delta)
        self._change({"value": count}, StashOpIncrement)
        return count

    def acquire(self, holder: str) -> None:
        """Take a lock, or enter it again, in memory; Held if another has it. Nobody has it before it is saved."""
        self._check_type(rows.LOCK)
        if not isinstance(holder, str) or not holder:
            raise errors.InvalidHolder("the holder is empty", hint="pass the name of the holder")
        if self._holder not in (None, holder):
            raise errors.Held(
                f"{self.name!r} is held by {self._holder}", name=self.name, holder=self._holder, until=None
            )
        value = self._value if self._holder else rows.held_value(holder, SystemClock().wall())
        self._change(value, StashOpAcquire, holder)

    def release(self, holder: str) -> None:
        """Give a lock back, in memory; NotHolder unless `holder` has it."""
        self._check_type(rows.LOCK)
        if self._holder is None or self._holder != holder:
            raise errors.NotHolder(f"{self.name!r} is held by {self._holder or 'nobody'}", holder=self._holder)
        self._change(None, StashOpRelease, holder)
        self._released = True

    @property
    def _holder(self) -> str | None:
        return self._value["holder"] if self._value else None

    def _check_type(self, wanted: str) -> None:
        if self.stash_type != wanted:
            raise errors.InvalidStashType(
                f"the stash {self.name!r} is {rows.one(self.stash_type)}, not {rows.one(wanted)}"
            )

    def _change(self, value: Any, operation: SavedOperation, holder: str | None = None) -> None:
        self._value = value
        self.version += 1
        self._changes += 1
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
        value = None if self.stash_type == rows.LOCK else self._value
        before = stored.value["holder"] if self.stash_type == rows.LOCK and stored.value else None
        given_up = before if self._released else None
        saved = ws.stashes.save(
            self.id, stored.version, self.version, operation, value, holder, self.changed_by, given_up
        )
        self.become(saved)

    def _check_kept(self, stored: types.Stash) -> None:
        if self.name != stored.name:
            raise errors.InvalidName(f"the stash {stored.name!r} keeps its name", hint="make another one")
        if self.stash_type != stored.stash_type:
            raise errors.InvalidStashType(f"the stash {stored.name!r} stays {rows.one(stored.stash_type)}")
        if self.version != stored.version + self._changes:
            raise errors.Invalid(
                f"the version of the stash {stored.name!r} is {stored.version + self._changes}, not {self.version}",
                hint="do not set it: each change adds 1",
            )
        if self.trail_id != stored.trail:
            raise errors.Invalid("the trail of a stash is a link", hint="set or delete its scoped_to link")

    StashID = also("id")
    stash_id = also("id")
    Name = also("name")
    StashType = also("stash_type")
    Value = also("value")
    Version = also("version")
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
    **{"history_id": "id", "HistoryID": "id"},
    **{go_name(name): name for name in types.StashEntry.__struct_fields__},
}


class Stashes(Table[Stash]):
    """The table `stashes`."""

    entity = Stash
    domain = "stashes"
    filters: ClassVar[dict[str, type[Any]]] = {"stash_type": str, "name": str, "trail_id": str}

    def history(self, id: str) -> list[StashHistoryEntry]:
        """Every saved change of a stash, oldest first."""
        with self._attachment.running() as ws:
            return [StashHistoryEntry(entry) for entry in ws.stashes.history(id)]

    History = history

    def _create(self, ws: AnyWorkspace, entity: Stash) -> None:
        kind: Any = entity.stash_type
        made = ws.stashes.create(entity.name, kind, entity.value, entity.trail_id, changed_by=entity.changed_by)
        entity.become(made)

    def _fetch(self, ws: AnyWorkspace, wanted: dict[str, Any], limit: int, offset: int) -> list[Stash]:
        if wanted.get("stash_type", rows.COUNTER) not in get_args(types.StashType) or wanted.get("name") == "":
            return []  # there is none
        if "trail_id" in wanted:
            wanted["trail"] = wanted.pop("trail_id")
        return [Stash.of(stored) for stored in _read_all(ws, wanted, limit or None, offset)]


def _read_all(ws: AnyWorkspace, wanted: dict[str, Any], limit: int | None, offset: int) -> list[types.Stash]:
    """Every page. All of one revision, or read again: none is skipped because an earlier one was deleted."""
    for _ in range(_TRIES):
        revision, at, found = ws.revision, offset, list[types.Stash]()
        while True:
            left = PAGE if limit is None else limit - len(found)
            page = ws.stashes.list(**wanted, limit=min(left, PAGE), offset=at)
            found += page
            if page.cursor is None or len(found) == limit:
                break
            at = int(page.cursor)
        if at == offset or ws.revision == revision:
            return found
    raise errors.Busy("the stashes change while they are read", hint="fetch them in parts: limit and offset")


__all__ = ["Crumb", "Cupboard", "Link", "Stash", "StashHistoryEntry", "Table", "Trail"]
__all__ += ["StashOpAcquire", "StashOpCreate", "StashOpIncrement", "StashOpRelease", "StashOpSet"]
__all__ += ["ErrAlreadyAttached", "ErrCupboardDetached", "ErrDuplicateName", "ErrInvalidFilter", "ErrInvalidHolder"]
__all__ += ["ErrInvalidID", "ErrInvalidName", "ErrInvalidStashType", "ErrInvalidTransition", "ErrLockHeld"]
__all__ += ["ErrNotFound", "ErrNotLockHolder", "ErrTableNotFound"]

TABLES: Final[dict[str, type[Table[Any]]]] = {"crumbs": Crumbs, "trails": Trails, "links": Links, "stashes": Stashes}
PLACES: Final = ("path", "url", "workspace")  # where a workspace can be; a configuration names one of them


class Cupboard:
    """Tables on a workspace, from `attach` to `detach`; for use by any number of threads."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._attachment: Attachment | None = None

    def attach(self, config: Mapping[str, Any]) -> None:
        """Open the workspace that `config` names; AlreadyAttached if there is one.

        `path`: its folder, or ":memory:". `url` and `token`: a server. `workspace`: one that is open, and stays so.
        `actor`: the name to act under.
        """
        with self._mutex:
            if self._attachment is not None and not self._attachment.is_closed:
                raise errors.AlreadyAttached(hint="detach it first, or use another Cupboard")
            self._attachment = Attachment(*_open(config))

    def detach(self) -> None:
        """Wait for the operations that are running and let the workspace go; nothing happens if that is done."""
        attachment = self._attachment
        if attachment is not None:
            attachment.close()

    def table(self, name: str) -> Table[Any]:
        """The table `crumbs`, `trails`, `links` or `stashes`; TableNotFound for another, Closed if not attached."""
        attachment = self._attachment
        if attachment is None:
            raise errors.Closed("the cupboard is not attached", hint='attach it: attach({"path": ".holdfast"})')
        attachment.check_open()
        kind = TABLES.get(name) if isinstance(name, str) else None
        if kind is None:
            raise errors.TableNotFound(f"there is no table {name!r}", hint=f"tables: {', '.join(TABLES)}", name=name)
        return kind(attachment)

    get_table = table
    Attach = attach
    Detach = detach
    GetTable = table


def _open(config: Mapping[str, Any]) -> tuple[AnyWorkspace, bool]:
    """The workspace that a configuration names, and whether it was opened here."""
    if not isinstance(config, Mapping):
        raise errors.Invalid(f"a configuration is a dict, not {type(config).__name__}", hint='such as {"path": "..."}')
    given = {name: value for name, value in config.items() if value is not None}
    places = [name for name in PLACES if name in given]
    known = {"path": ("actor",), "url": ("actor", "token"), "workspace": ("actor",)}
    if len(places) != 1:
        raise errors.Invalid(f"a configuration names one of {', '.join(PLACES)}, not {', '.join(places) or 'none'}")
    (place,) = places
    unknown = sorted(str(name) for name in given.keys() - {place, *known[place]})
    if unknown:
        raise errors.Invalid(f"a configuration with {place} has no {', '.join(unknown)}")
    for name, value in given.items():
        kinds = (str, os.PathLike) if name == "path" else (str,)
        if name != "workspace" and not isinstance(value, kinds):
            raise errors.Invalid(f"{name} is a text, not {type(value).__name__}")
    if place == "workspace" and not hasattr(given[place], "using"):
        raise errors.Invalid(f"{type(given[place]).__name__} is not a workspace", hint="holdfast.open(...) returns one")
    if place == "workspace":
        workspace: AnyWorkspace = given["workspace"]
        return (workspace.using(actor=given["actor"]) if "actor" in given else workspace), False
    if not given[place]:
        raise errors.Invalid(f"{place} is empty", hint="name the folder, or the server's address")
    if place == "path":
        from holdfast.workspace import open_workspace

        return open_workspace(given["path"], actor=given.get("actor")), True
    from holdfast.remote import connect

    return connect(given["url"], token=given.get("token"), actor=given.get("actor")), True
