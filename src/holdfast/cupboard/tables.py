"""What all tables of a cupboard share: `get`, `set`, `delete`, `fetch`, filters, and the workspace behind them.

Each refusal is a class of `errors`; where the specification has one name, we may have several classes below it.

Once it is closed every use is Closed, also of tables that were taken before; closing waits for what is running.

Names are accepted in both spellings, `stash_type` and `StashType`: in filters, in fields and in methods.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Self, TypeAlias, TypeVar

from holdfast import errors

if TYPE_CHECKING:
    from holdfast.remote import RemoteWorkspace
    from holdfast.types import stashes, tasks
    from holdfast.workspace import Workspace

    AnyWorkspace: TypeAlias = Workspace | RemoteWorkspace


class Attachment:
    """A workspace in use, until it is closed; `owned`: it was opened for this, and is closed with it."""

    def __init__(self, workspace: AnyWorkspace, owned: bool) -> None:
        self._workspace = workspace
        self._owned = owned
        self._idle = threading.Condition()
        self._running = 0
        self.is_closed = False

    @contextmanager
    def running(self) -> Iterator[AnyWorkspace]:
        """The workspace, for one operation; Closed if there is none any more."""
        with self._idle:
            self.check_open()
            self._running += 1
        try:
            yield self._workspace
        finally:
            with self._idle:
                self._running -= 1
                self._idle.notify_all()

    def check_open(self) -> None:
        """Closed once the cupboard is detached."""
        if self.is_closed:
            raise errors.Closed("the cupboard is detached", hint="attach it again, and take the table from it anew")

    def close(self) -> None:
        """Refuse what comes, wait for what is running, and let the workspace go; again it only waits."""
        with self._idle:
            first = not self.is_closed
            self.is_closed = True
            self._idle.wait_for(lambda: self._running == 0)
        if first and self._owned:
            self._workspace.close()


S = TypeVar("S", bound="stashes.Stash | stashes.Link | stashes.Trail | tasks.Task")
E = TypeVar("E", bound="Entity[Any]")
R = TypeVar("R")
_KINDS: Final = {str: "a text", int: "a whole number", list: "a list"}
PAGE = 1000  # how many records a list of the workspace has at most


def go_name(name: str) -> str:
    """The other spelling of a name: `StashID` for `stash_id`."""
    return "".join("ID" if part == "id" else part.capitalize() for part in name.split("_"))


def also(name: str) -> Any:
    """The other spelling of a field."""
    return property(lambda self: getattr(self, name), lambda self, value: setattr(self, name, value))


class Entity(Generic[S]):
    """A record in memory. `id` is empty until it is stored."""

    kind: ClassVar[str]  # what it is called

    def begin(self, go: Mapping[str, Any], **fields: Any) -> None:
        """Be a new record with the fields of a constructor, some of them in the other spelling."""
        names = {go_name(name): name for name in fields}
        for spelled, value in go.items():
            if spelled not in names:
                raise TypeError(f"{type(self).__name__} has no field {spelled!r}")
            fields[names[spelled]] = value
        self.id = ""
        self.created_at: datetime | None = None
        self._stored: S | None = None
        for name, value in fields.items():
            setattr(self, name, value)

    @classmethod
    def of(cls, stored: S) -> Self:
        """A record as it is stored."""
        entity = cls()
        entity.become(stored)
        return entity

    def become(self, stored: S) -> None:
        """Be as it is stored, with nothing left to save."""
        self.id, self.created_at, self._stored = stored.id, stored.created_at, stored

    def save(self, ws: AnyWorkspace) -> None:
        """Write what was changed since it was loaded."""
        raise NotImplementedError

    CreatedAt = also("created_at")

    def __repr__(self) -> str:
        names = [name.lstrip("_") for name in vars(self) if name[0] != "_" or name in ("_value", "_state")]
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__name__}({shown})"


class Table(Generic[E]):
    """A table of a cupboard. Every call is one transaction; Closed once the cupboard is detached."""

    entity: type[E]
    domain: ClassVar[str]  # of the workspace
    filters: ClassVar[dict[str, type[Any]]]  # beside limit and offset

    def __init__(self, attachment: Attachment) -> None:
        self._attachment = attachment

    def get(self, id: str) -> E:
        """An entity by its id, to be changed and saved; NotFound if there is none, InvalidID for an empty id."""
        with self._attachment.running() as ws:
            return self.entity.of(getattr(ws, self.domain).get(_checked(id)))

    def set(self, id: str, entity: E) -> str:
        """Save an entity and answer its id; an empty id makes a new one. The entity is then as it is stored.

        What was loaded must not have changed meanwhile: otherwise VersionMismatch, and nothing is written. Under an id
        that does not exist: NotFound.
        """
        with self._attachment.running() as ws:
            if not isinstance(entity, self.entity):
                raise errors.Invalid(f"{type(entity).__name__} is not a {self.entity.__name__}", hint="")
            if id == "" and not entity.id:
                self._create(ws, entity)
            else:
                if id and not entity.id:
                    getattr(ws, self.domain).get(_checked(id))  # NotFound if there is none
                _check_own(_checked(id) if id else id, entity)
                entity.save(ws)
            return entity.id

    def delete(self, id: str) -> None:
        """Delete by id; NotFound if there is none, InvalidID for an empty id."""
        with self._attachment.running() as ws:
            getattr(ws, self.domain).delete(_checked(id))

    def fetch(self, filter: Mapping[str, Any] | None = None) -> list[E]:
        """Entities that fit every key of the filter, oldest first; all of them without one.

        Keys that this table does not know are ignored, values of the wrong type are InvalidFilter. `limit` 0 is none.
        """
        with self._attachment.running() as ws:
            wanted = self._read(filter)
            limit, offset = wanted.pop("limit", 0), wanted.pop("offset", 0)
            return self._fetch(ws, wanted, limit, offset)

    def _read(self, filter: Mapping[str, Any] | None) -> dict[str, Any]:
        """The filter in our spelling, with what it does not say left out."""
        if not isinstance(filter, Mapping | None):
            raise errors.InvalidFilter(f"a filter is a dict, not {type(filter).__name__}")
        wanted: dict[str, Any] = {}
        kinds: dict[str, type[Any]] = {**self.filters, "limit": int, "offset": int}
        for name, kind in kinds.items():
            for spelled in (name, go_name(name)):
                value = (filter or {}).get(spelled)
                if value is None:
                    continue
                if not isinstance(value, kind) or isinstance(value, bool):
                    raise errors.InvalidFilter(f"{spelled} is {_KINDS[kind]}, not {type(value).__name__}")
                if kind is int and value < 0:
                    raise errors.InvalidFilter(f"{spelled} is 0 or more, not {value}")
                if wanted.setdefault(name, value) != value:
                    raise errors.InvalidFilter(f"{name} and {spelled} are the same, and differ")
        return wanted

    # what each table does

    def _create(self, ws: AnyWorkspace, entity: E) -> None:
        raise NotImplementedError

    def _fetch(self, ws: AnyWorkspace, wanted: dict[str, Any], limit: int, offset: int) -> list[E]:
        raise NotImplementedError

    Get = get
    Set = set
    Delete = delete
    Fetch = fetch


def _checked(id: Any) -> str:
    if not isinstance(id, str) or not id:
        raise errors.InvalidID(f"an id is a text that is not empty, not {id!r}")
    return id


def _check_own(id: str, entity: Entity[Any]) -> None:
    """What is saved under an id is what was loaded under it."""
    if id == entity.id:
        return
    if entity.id:
        raise errors.InvalidID(
            f"this {entity.kind} is stored as {entity.id}, not as {id!r}", hint="save it under its id"
        )
    raise errors.VersionMismatch(
        f"this {entity.kind} was not loaded from {id}",
        hint="get it, change it and save that; an empty id makes a new one",
    )


def every(listing: Callable[..., list[Any]], **wanted: Any) -> list[Any]:
    """All pages of a list of the workspace, by id."""
    found: list[Any] = []
    while page := listing(**wanted, limit=PAGE, after=found[-1].id if found else ""):
        found += page
    return found


def part(found: list[R], limit: int, offset: int) -> list[R]:
    """The part of a list that was asked for."""
    return found[offset : offset + limit if limit else None]


def stale(entity: Entity[Any], expected: int, version: int) -> errors.VersionMismatch:
    """The refusal to save what others have changed."""
    return errors.VersionMismatch(
        f"the {entity.kind} {entity.id} is at version {version}, not {expected}",
        hint="load it again, and do the change on what is there now",
        expected=expected,
        version=version,
    )
