"""The past and the changes of a cell, as its events in the log tell them.

A cell's event carries the new value; the old one is in the event of the version before. An event without a value is a
delete, or an expiry.
"""

from __future__ import annotations

from holdfast import errors
from holdfast.domains.cell_reading import CELL, check_cell, missing
from holdfast.kernel.events import END_OF_REVISION, Filter, gone, history, marks, previous, to_event
from holdfast.kernel.names import check_limit
from holdfast.kernel.tx import Snapshot, newest_version
from holdfast.ops import Following
from holdfast.types.base import Event
from holdfast.types.cells import Cell, CellChange, CellVersion


def _is_delete(event: Event) -> bool:
    return "value" not in event.data


def cell_history(
    snapshot: Snapshot, run: str, cell: str, limit: int | None = None, before: int | None = None
) -> list[CellVersion]:
    """Versions newest first, below version `before`. A cell that never was: NotFound; forgotten history: Compacted."""
    check_cell(run, cell)
    if limit is not None:
        check_limit(limit, 2**31)
    if before is not None and (type(before) is not int or before < 1):
        raise errors.InvalidFilter(f"before must be a version (1 or more), not {before!r}")
    rows = history(snapshot, CELL, run, cell, None if before is None else min(before, END_OF_REVISION), limit)
    if not rows and not newest_version(snapshot, CELL, run, cell):
        raise missing(run, cell)
    return [_version(to_event(row)) for row in rows]


def _version(event: Event) -> CellVersion:
    return CellVersion(
        version=event.version,
        value=event.data.get("value"),
        deleted=_is_delete(event),
        op=event.op,
        revision=event.revision,
        time=event.time,
        actor=event.actor,
    )


def at_version(snapshot: Snapshot, run: str, cell: str, version: int) -> Cell:
    """The cell as it was at a version; NotFound if it had no value then, Compacted if that is forgotten."""
    check_cell(run, cell)
    if type(version) is not int or version < 1:
        raise errors.Invalid(f"version must be 1 or more, not {version!r}")
    row = previous(snapshot, CELL, run, cell, min(version + 1, END_OF_REVISION))
    event = None if row is None else to_event(row)
    if event is not None and event.version == version and not _is_delete(event):
        return Cell(event.data["value"], version, event.revision, event.time)
    compacted = marks(snapshot)[1]
    if event is None and compacted and newest_version(snapshot, CELL, run, cell) > version:
        raise gone(compacted)
    raise errors.NotFound(f"cell {cell!r} in run {run!r} has no value at version {version}", run=run, cell=cell)


def follow(
    snapshot: Snapshot, run: str, cell: str, after_version: int | None = None, timeout: float | None = None
) -> Following[CellChange]:
    """Changes of a cell after `after_version`, or from now on."""
    check_cell(run, cell)
    if after_version is None:
        return Following(Filter((CELL,), run, cell), None, timeout, _change)
    if type(after_version) is not int or not 0 <= after_version <= newest_version(snapshot, CELL, run, cell):
        raise errors.InvalidFilter(f"after_version {after_version!r} is not a version this cell has had, nor 0")
    return Following(
        Filter((CELL,), run, cell, after_version), _start(snapshot, run, cell, after_version), timeout, _change
    )


def _start(snapshot: Snapshot, run: str, cell: str, version: int) -> int:
    """The revision from which on everything after `version` is still there."""
    compacted = marks(snapshot)[1]
    following = snapshot.one(
        "SELECT min(revision) FROM events WHERE kind = ? AND scope = ? AND id = ? AND version > ?",
        (CELL, run, cell, version),
    )
    if following is not None and following[0] is not None:
        if following[0] <= compacted:
            raise gone(compacted)
        return int(following[0]) - 1
    return marks(snapshot)[0]


def _change(snapshot: Snapshot, event: Event) -> CellChange:
    row = previous(snapshot, CELL, event.scope, event.id, event.version)
    before = None if row is None else to_event(row)
    created = before is None or _is_delete(before)
    return CellChange(
        run=event.scope,
        cell=event.id,
        old=None if before is None else before.data.get("value"),
        new=event.data.get("value"),
        created=created,
        deleted=_is_delete(event),
        op=event.op,
        version=event.version,
        revision=event.revision,
        time=event.time,
        actor=event.actor,
    )
