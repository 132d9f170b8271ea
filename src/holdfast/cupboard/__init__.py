"""The cupboard: crumbs, trails, links and stashes as tables of entities, which are changed in memory and saved later.

    cupboard = Cupboard()
    cupboard.attach({"path": ".holdfast", "actor": "agent-1"})
    stashes = cupboard.table("stashes")
    stash = stashes.get(stashes.set("", Stash("visits", "counter")))
    stash.increment(1)
    stashes.set(stash.stash_id, stash)

A second way to the same records as `ws.tasks`, `ws.trails`, `ws.links` and `ws.stashes`, on any kind of workspace. What
was loaded is saved only if it has not been changed meanwhile (VersionMismatch), so saving late loses nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from holdfast import errors
from holdfast.cupboard.entities import Crumb, Crumbs, Link, Links, Trail, Trails
from holdfast.cupboard.stashes import Stash, Stashes, StashHistoryEntry
from holdfast.cupboard.tables import (
    Attachment,
    ErrAlreadyAttached,
    ErrCupboardDetached,
    ErrDuplicateName,
    ErrInvalidFilter,
    ErrInvalidHolder,
    ErrInvalidID,
    ErrInvalidName,
    ErrInvalidStashType,
    ErrInvalidTransition,
    ErrLockHeld,
    ErrNotFound,
    ErrNotLockHolder,
    ErrTableNotFound,
    StashOpAcquire,
    StashOpCreate,
    StashOpIncrement,
    StashOpRelease,
    StashOpSet,
    Table,
)

if TYPE_CHECKING:
    from holdfast.cupboard.tables import AnyWorkspace

__all__ = [
    "Crumb",
    "Cupboard",
    "ErrAlreadyAttached",
    "ErrCupboardDetached",
    "ErrDuplicateName",
    "ErrInvalidFilter",
    "ErrInvalidHolder",
    "ErrInvalidID",
    "ErrInvalidName",
    "ErrInvalidStashType",
    "ErrInvalidTransition",
    "ErrLockHeld",
    "ErrNotFound",
    "ErrNotLockHolder",
    "ErrTableNotFound",
    "Link",
    "Stash",
    "StashHistoryEntry",
    "StashOpAcquire",
    "StashOpCreate",
    "StashOpIncrement",
    "StashOpRelease",
    "StashOpSet",
    "Table",
    "Trail",
]

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
