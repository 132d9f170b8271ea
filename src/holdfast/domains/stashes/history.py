"""The history of a stash: its entries in the event log, one for each saved change, oldest first."""

from __future__ import annotations

from typing import Any

from holdfast import errors
from holdfast.domains.stashes.rows import STASH, StashId, require
from holdfast.kernel.tx import Snapshot
from holdfast.kernel.values import decode
from holdfast.types.base import as_time
from holdfast.types.stashes import StashEntry


def history(snapshot: Snapshot, id: StashId) -> list[StashEntry]:
    """Every saved change of a stash, oldest first; below a compacted revision only what is left."""
    own = require(snapshot, id).id
    rows = snapshot.all(
        "SELECT version, op, time, data FROM events WHERE kind = ? AND scope = '' AND id = ? AND data IS NOT NULL"
        " ORDER BY version",
        (STASH, own),
    )
    return [_entry(own, version, op, time, decode(data)) for version, op, time, data in rows]


def _entry(stash: str, version: int, op: str, time: int, told: Any) -> StashEntry:
    at = as_time(told.get("at", time))  # an imported one says when it was
    return StashEntry(told["id"], stash, version, told["value"], op, told["changed_by"], at)  # type: ignore[arg-type]  # as it was emitted


def value_at(snapshot: Snapshot, id: str, version: int) -> Any:
    """The value that a stash had at a version; NotFound if its history does not have that one."""
    if type(version) is not int or version < 1:
        raise errors.Invalid(
            f"version is a whole number, 1 or more, not {version!r}", hint="stashes.history(id) lists them"
        )
    for entry in history(snapshot, id):
        if entry.version == version:
            return entry.value
    raise errors.NotFound(f"the history of {id} has no version {version}", hint="stashes.history(id) lists them")
