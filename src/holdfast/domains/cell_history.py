"""Reading cells as they are now and as they were, from their rows and their events.

A cell's event carries the new value; the old one is in the event of the version before. An event without a value is a
delete or an expiry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast import errors
from holdfast.kernel.events import (
    Filter,
    check_revision,
    compacted_to,
    cut_below,
    gone,
    history_page,
    marks,
    newest_at,
    previous,
    to_event,
)
from holdfast.kernel.tx import Snapshot, Tx, newest_version
from holdfast.kernel.validate import check_limit, check_name, page_bounds
from holdfast.kernel.values import decode
from holdfast.operation import Following
from holdfast.types import END_OF_REVISION, Cell, CellChange, CellInfo, CellVersion, Event, Page, as_time

CELL = "cell"
MAX_PAGE = 10_000
VALUE_MAP = b"\x81\xa5value"  # precedes a value in its event: a msgpack map of one entry, "value"

_GET = "SELECT value, version, revision, updated, lease FROM cells WHERE run = ? AND cell = ?"
_GET_LEASED = (
    "SELECT c.value, c.version, c.revision, c.updated, l.deadline, (SELECT stamp FROM meta)"
    " FROM cells c LEFT JOIN leases l ON l.id = c.lease WHERE c.run = ? AND c.cell = ?"
)
_INFO = (
    "SELECT c.version, c.revision, c.updated, c.size, l.deadline, (SELECT stamp FROM meta)"
    " FROM cells c LEFT JOIN leases l ON l.id = c.lease WHERE c.run = ? AND c.cell = ?"
)


def check_cell(run: str, cell: str) -> None:
    """Raise InvalidName unless both are names."""
    check_name(run, "run")
    check_name(cell, "cell")


def missing(run: str, cell: str) -> errors.NotFound:
    """The error for an absent cell."""
    hint = f'cells.list("{run}") lists the cells of run {run!r}'
    return errors.NotFound(f"there is no cell {cell!r} in run {run!r}", hint=hint, run=run, cell=cell)


class Stored(msgspec.Struct, frozen=True):
    """A cell as a transaction reads it; expired cells were swept before."""

    data: bytes
    record: int
    version: int
    lease: str | None

    @property
    def value(self) -> Any:
        return decode(self.data)


def load_cell(tx: Tx, run: str, cell: str) -> Stored | None:
    """The cell, in a transaction; None if it is absent. Raises InvalidName."""
    check_cell(run, cell)
    row = tx.one("SELECT value, record, version, lease FROM cells WHERE run = ? AND cell = ?", (run, cell))
    return None if row is None else Stored(*row)


def find_cell(snapshot: Snapshot, run: str, cell: str) -> Cell | None:
    """Return the cell, or None if it is absent."""
    check_cell(run, cell)
    row = snapshot.one(_GET, (run, cell))
    if row is not None and row[4] is not None:
        # It had a lease. The result is this statement's alone: between the two the cell may have changed.
        row = snapshot.one(_GET_LEASED, (run, cell))
        if row is not None and row[4] is not None and snapshot.is_past(row[4], row[5]):
            row = None
    return None if row is None else Cell(decode(row[0]), row[1], row[2], as_time(row[3]))


def get_cell(snapshot: Snapshot, run: str, cell: str) -> Cell:
    """Return the cell's value, version, revision and time. Raises NotFound if absent; a stored null is a value."""
    found = find_cell(snapshot, run, cell)
    if found is None:
        raise missing(run, cell)
    return found


def info(snapshot: Snapshot, run: str, cell: str) -> CellInfo:
    """Return what is known about a cell without reading its value; it may be absent."""
    check_cell(run, cell)
    row = snapshot.one(_INFO, (run, cell))
    if row is None or (row[4] is not None and snapshot.is_past(row[4], row[5])):
        return CellInfo(exists=False)
    version, revision, updated, size, deadline, _ = row
    return CellInfo(True, version, revision, as_time(updated), size, None if deadline is None else as_time(deadline))


def exists(snapshot: Snapshot, run: str, cell: str) -> bool:
    """Return whether the cell has a value."""
    return info(snapshot, run, cell).exists


def ttl(snapshot: Snapshot, run: str, cell: str) -> float | None:
    """Return the seconds until the cell expires, None if it does not. Raises NotFound if absent."""
    check_cell(run, cell)
    row = snapshot.one(_INFO, (run, cell))
    if row is None or (row[4] is not None and snapshot.is_past(row[4], row[5])):
        raise missing(run, cell)
    return None if row[4] is None else snapshot.left(row[4], row[5]) / 1e6


def list_cells(snapshot: Snapshot, run: str, prefix: str = "", limit: int = 1000, after: str = "") -> Page[str]:
    """List the names of the cells of a run in order; `after` is the last name of the previous page."""
    check_name(run, "run")
    check_limit(limit, MAX_PAGE, "after")
    bounds, params = page_bounds("cell", prefix, after)
    select = f"SELECT cell FROM cells WHERE run = ?{bounds} ORDER BY cell LIMIT ?"
    rows, more = snapshot.page(select, (run, *params), limit)
    return Page.of((name for (name,) in rows), more, str)


def list_runs(snapshot: Snapshot, prefix: str = "", limit: int = 1000, after: str = "") -> Page[str]:
    """List the names of the runs that have cells; `after` is the last name of the previous page."""
    check_limit(limit, MAX_PAGE, "after")
    bounds, params = page_bounds("run", prefix, after)
    # From one run to the next by the index, however many cells each has.
    rows, more = snapshot.page(
        f"WITH RECURSIVE found(run) AS (SELECT min(run) FROM cells WHERE true{bounds} UNION ALL"
        f" SELECT (SELECT min(run) FROM cells WHERE run > found.run{bounds}) FROM found WHERE found.run IS NOT NULL)"
        " SELECT run FROM found WHERE run IS NOT NULL LIMIT ?",
        (*params, *params),
        limit,
    )
    return Page.of((name for (name,) in rows), more, str)


def check(snapshot: Snapshot) -> Iterator[str]:
    """Report rows that differ from the newest event of their cell, and events without their row."""
    newest = (
        "SELECT scope, id, version, revision, time, data, max(version) FROM events WHERE kind = 'cell'"
        " GROUP BY scope, id"
    )
    for run, cell in snapshot.all(
        f"SELECT c.run, c.cell FROM cells c LEFT JOIN ({newest}) e ON e.scope = c.run AND e.id = c.cell"
        " WHERE e.version IS NULL OR e.version <> c.version OR e.revision <> c.revision"
        " OR e.time <> c.updated"
        " OR e.data IS NULL OR e.data <> CAST(? || c.value AS BLOB) OR c.size <> length(c.value)",
        (VALUE_MAP,),
    ):
        yield f"cell {run}/{cell} differs from its newest event"
    for run, cell in snapshot.all(
        f"SELECT e.scope, e.id FROM ({newest}) e LEFT JOIN cells c ON e.scope = c.run AND e.id = c.cell"
        " WHERE e.data IS NOT NULL AND c.run IS NULL"
    ):
        yield f"cell {run}/{cell} is in the log, but not in the store"
    for run, cell in snapshot.all(
        "SELECT run, cell FROM cells LEFT JOIN records ON key = record"
        " WHERE (kind, scope, id) IS NOT ('cell', run, cell)"
    ):
        yield f"cell {run}/{cell} does not know its key in the log"
    for run, cell in snapshot.all(
        "SELECT run, cell FROM cells WHERE lease IS NOT NULL AND NOT EXISTS (SELECT 1 FROM leases WHERE id = lease)"
    ):
        yield f"cell {run}/{cell} is bound to a lease that does not exist"
    for (id,) in snapshot.all(
        "SELECT id FROM leases l WHERE kind = ? AND NOT EXISTS (SELECT 1 FROM cells WHERE lease = l.id)", (CELL,)
    ):
        yield f"lease {id} belongs to a cell that does not exist"


def _is_delete(event: Event) -> bool:
    return "value" not in event.data


def cell_history(
    snapshot: Snapshot, run: str, cell: str, limit: int | None = None, before: int | None = None
) -> Page[CellVersion]:
    """Return versions newest first, below version `before`. Raises NotFound, or Compacted if they are gone."""
    check_cell(run, cell)
    if limit is not None:
        check_limit(limit, 2**31, "before")
    if before is not None and (type(before) is not int or before < 1):
        raise errors.InvalidFilter(f"before must be a version (1 or more), not {before!r}")
    below = None if before is None else min(before, END_OF_REVISION)
    rows, more = history_page(snapshot, CELL, run, cell, below, 2**31 if limit is None else limit)
    if not rows and not newest_version(snapshot, CELL, run, cell):
        raise missing(run, cell)
    page = Page(_version(to_event(row)) for row in rows)
    page.compacted = None if more or not rows else cut_below(snapshot, CELL, run, cell)
    page.cursor = str(page[-1].version) if more or page.compacted else None
    return page


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
    """Return the cell as it was at a version. Raises NotFound if it had no value then, or Compacted."""
    check_cell(run, cell)
    if type(version) is not int or version < 1:
        raise errors.Invalid(f"version must be 1 or more, not {version!r}")
    row = previous(snapshot, CELL, run, cell, min(version + 1, END_OF_REVISION))
    event = None if row is None else to_event(row)
    if event is not None and event.version == version and not _is_delete(event):
        return Cell(event.data["value"], version, event.revision, event.time)
    compacted = compacted_to(snapshot)
    if event is None and compacted and newest_version(snapshot, CELL, run, cell) > version:
        raise gone(compacted)
    raise errors.NotFound(f"cell {cell!r} in run {run!r} has no value at version {version}", run=run, cell=cell)


def as_of(snapshot: Snapshot, run: str, cell: str, revision: int) -> Cell:
    """Return the cell as it was at a revision.

    Raises NotFound if it had no value then, Invalid for a revision to come, or Compacted.
    """
    check_cell(run, cell)
    check_revision(snapshot, revision)
    row = newest_at(snapshot, CELL, run, cell, revision)
    event = None if row is None else to_event(row)
    if event is None or _is_delete(event):
        message = f"cell {cell!r} in run {run!r} had no value at revision {revision}"
        raise errors.NotFound(message, run=run, cell=cell, revision=revision)
    return Cell(event.data["value"], event.version, event.revision, event.time)


def follow(
    snapshot: Snapshot, run: str, cell: str, after_version: int | None = None, timeout: float | None = None
) -> Following[CellChange]:
    """Yield the changes of a cell after `after_version`, or from now on."""
    check_cell(run, cell)
    if after_version is None:
        return Following(Filter((CELL,), run, cell), None, timeout, _change)
    if type(after_version) is not int or not 0 <= after_version <= newest_version(snapshot, CELL, run, cell):
        raise errors.InvalidFilter(f"after_version {after_version!r} is neither 0 nor a version of this cell")
    return Following(
        Filter((CELL,), run, cell, after_version), _start(snapshot, run, cell, after_version), timeout, _change
    )


def _start(snapshot: Snapshot, run: str, cell: str, version: int) -> int:
    """The revision after which everything since `version` is still there."""
    compacted = compacted_to(snapshot)
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
