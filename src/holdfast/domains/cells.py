"""State cells: versioned values under (run, cell) that never lose an update.

A cell's version starts at 1, adds 1 with each change and is never reset: a delete counts as a change, and a cell that
is created again continues from the last version in the log. History, old values and watch read the event log, whose
cell events carry the new value; the old one is in the event before. A cell lives until deleted, or as long as its
lease: its own (a ttl) or one that a user made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from holdfast import errors
from holdfast.domains import cell_history
from holdfast.domains.cell_history import CELL, VALUE_MAP, Stored, check_cell, find_cell, get_cell, load_cell
from holdfast.domains.leases import require_lease
from holdfast.domains.locks import Target, acquire_target, probe_target, release_target, renew_target
from holdfast.kernel import leases
from holdfast.kernel.tx import Tx, newest_version
from holdfast.kernel.validate import check_name, check_ttl
from holdfast.kernel.values import encode
from holdfast.operation import Do, Domain, Found, Look, M, Steps, first, procedure, read, stream, write
from holdfast.route import Held, example
from holdfast.types import Cell, Grant

RUN = "run"
CELL_LOCK = "cell-lock"


def put(tx: Tx, run: str, cell: str, data: bytes, old: Stored | None, op: str, lease: str | None) -> int:
    """Write the next version of a cell and its event."""
    if old is None:
        record = tx.key_of(CELL, cell, run)
        version = max(newest_version(tx, CELL, run, cell), newest_version(tx, RUN, "", run)) + 1
        tx.run(
            "INSERT INTO cells (record, version, revision, updated, size, lease, value, run, cell)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (record, version, tx.revision, tx.now, len(data), lease, data, run, cell),
        )
    else:
        record, version = old.record, old.version + 1
        tx.run(
            "UPDATE cells SET version = ?, revision = ?, updated = ?, size = ?, lease = ?, value = ?"
            " WHERE run = ? AND cell = ?",
            (version, tx.revision, tx.now, len(data), lease, data, run, cell),
        )
    tx.emit_of(record, op, version, VALUE_MAP + data)
    return version


def _keep(tx: Tx, run: str, cell: str, value: Any, old: Stored | None, op: str) -> int:
    """Write a value and keep the expiry."""
    return put(tx, run, cell, encode(value, tx.max_value_bytes), old, op, None if old is None else old.lease)


def remove(tx: Tx, run: str, cell: str, version: int, lease: str | None, op: str) -> int:
    """Delete a cell that is at a version, with its private lease; returns the version of the delete."""
    tx.run("DELETE FROM cells WHERE run = ? AND cell = ?", (run, cell))
    leases.drop(tx, lease, CELL)
    return tx.emit(CELL, cell, op, scope=run, version=version + 1)


def set_cell(tx: Tx, run: str, cell: str, value: Any, ttl: float | None = None, lease: str | None = None) -> int:
    """Write a value and return its version: 1 for a new cell, one more each time, also for an equal value.

    The cell expires after `ttl` seconds, or with `lease`; with neither it does not expire.
    """
    old = load_cell(tx, run, cell)
    data = encode(value, tx.max_value_bytes)
    return put(tx, run, cell, data, old, "set", _expiry(tx, old, ttl, lease))


def _expiry(tx: Tx, old: Stored | None, ttl: float | None, lease: str | None) -> str | None:
    """Return the lease to write a cell with; drops its old private one."""
    if lease is not None:
        if ttl is not None:
            raise errors.Invalid(
                "give ttl or lease, not both", hint="a cell bound to a lease lives as long as the lease"
            )
        require_lease(tx, lease)
    micros = None if ttl is None else check_ttl(ttl)
    if old is not None and old.lease is not None and old.lease != lease:
        leases.drop(tx, old.lease, CELL)
    return lease if micros is None else leases.start(tx, CELL, tx.actor, micros)


def delete_cell(tx: Tx, run: str, cell: str) -> bool:
    """Delete a cell; False if it did not exist. Its version and history stay."""
    old = load_cell(tx, run, cell)
    if old is None:
        return False
    remove(tx, run, cell, old.version, old.lease, "delete")
    return True


def _expect(tx: Tx, run: str, cell: str, expected: int | None, absent: str) -> Stored | None:
    """Return the cell if it is at the expected version; None expects it to be absent. `absent` is the hint if it is."""
    old = load_cell(tx, run, cell)
    if expected is not None and (type(expected) is not int or expected < 1):
        raise errors.Invalid(f"expected must be a version (1 or more) or None for 'absent', not {expected!r}")
    version = None if old is None else old.version
    if version != expected:
        found = "absent" if version is None else f"at version {version}"
        raise errors.VersionMismatch(
            f"cell {cell!r} in run {run!r} is {found}, expected {'absent' if expected is None else expected}",
            hint=absent if version is None else None,
            expected=expected,
            version=version,
            value=None if old is None else old.value,
        )
    return old


def cas_cell(tx: Tx, run: str, cell: str, expected: int | None, value: Any) -> int:
    """Write only if the cell is at version `expected`, or absent if None. Raises VersionMismatch."""
    absent = f"cells.cas({run!r}, {cell!r}, None, value) creates it"
    old = _expect(tx, run, cell, expected, absent)
    return _keep(tx, run, cell, value, old, "cas")


def compare_and_delete(tx: Tx, run: str, cell: str, expected: int) -> int:
    """Delete only if the cell is at version `expected`; returns the version of the delete. Raises VersionMismatch."""
    if expected is None:
        raise errors.Invalid("expected must be the version to delete")
    old = _expect(tx, run, cell, expected, "there is nothing to delete")
    assert old is not None
    return remove(tx, run, cell, old.version, old.lease, "delete")


def init_cell(tx: Tx, run: str, cell: str, value: Any) -> int:
    """Write only if the cell is absent. Raises Exists, and leaves the cell unchanged."""
    old = load_cell(tx, run, cell)
    if old is not None:
        raise errors.Exists(
            f"cell {cell!r} in run {run!r} exists at version {old.version}", version=old.version, value=old.value
        )
    return _keep(tx, run, cell, value, None, "init")


def get_or_init(run: str, cell: str, default: Any) -> Steps[Cell]:
    """Return the cell, created with `default` if absent. A function as default is called once per creation."""
    found = yield Look(lambda snapshot, _: find_cell(snapshot, run, cell))
    if found is None:
        found = yield Do(lambda tx: _get_or_init(tx, run, cell, default), keyed=True)
    cell_found: Cell = found
    return cell_found


def _get_or_init(tx: Tx, run: str, cell: str, default: Any) -> Cell:
    found = find_cell(tx, run, cell)
    if found is None:
        _keep(tx, run, cell, default() if callable(default) else default, None, "init")
        found = get_cell(tx, run, cell)
    return found


def transition(tx: Tx, run: str, cell: str, fn: Callable[[Any], Any]) -> Cell:
    """Replace the value by `fn(value)`; `fn` may be called again. If it raises, nothing is written.

    Raises NotFound if the cell is absent.
    """
    old = load_cell(tx, run, cell)
    if not callable(fn):
        raise errors.Invalid(f"fn must be a function of the value, not {type(fn).__name__}")
    if old is None:
        raise cell_history.missing(run, cell)
    _keep(tx, run, cell, fn(old.value), old, "transition")
    return get_cell(tx, run, cell)


def transition_or_init(tx: Tx, run: str, cell: str, initial: Any, fn: Callable[[Any], Any]) -> Cell:
    """Like `transition`, but an absent cell is first created with `initial`; both versions are in its history."""
    if load_cell(tx, run, cell) is None:
        _keep(tx, run, cell, initial, None, "init")
    return transition(tx, run, cell, fn)


def increment(tx: Tx, run: str, cell: str, delta: int | float = 1) -> int | float:
    """Add to a number and return the result; an absent cell counts as 0. Raises InvalidValue."""
    old = load_cell(tx, run, cell)
    value = 0 if old is None else old.value
    for number, what in ((value, f"cell {cell!r} holds"), (delta, "delta is")):
        if type(number) is not int and type(number) is not float:
            kind = number if number in (None, True, False) else f"a {type(number).__name__}"
            raise errors.InvalidValue(f"{what} {kind}; increment needs a number", hint="")
    try:
        value += delta
    except OverflowError as error:
        raise errors.InvalidValue(f"{delta!r:.40} cannot be added to {value!r}") from error
    _keep(tx, run, cell, value, old, "increment")
    return value


def refresh_ttl(tx: Tx, run: str, cell: str, ttl: float) -> bool:
    """Let the cell expire `ttl` seconds from now, whatever its expiry was; False if it does not exist."""
    old = load_cell(tx, run, cell)
    micros = check_ttl(ttl)
    if old is None:
        return False
    leases.drop(tx, old.lease, CELL)
    tx.run(
        "UPDATE cells SET lease = ? WHERE run = ? AND cell = ?", (leases.start(tx, CELL, tx.actor, micros), run, cell)
    )
    return True


def restore_cell(tx: Tx, run: str, cell: str, version: int) -> int:
    """Write the value of an old version as a new version. Raises NotFound, or Compacted."""
    value = cell_history.at_version(tx, run, cell, version).value
    return _keep(tx, run, cell, value, load_cell(tx, run, cell), "restore")


def delete_run(tx: Tx, run: str) -> int:
    """Delete every cell of a run and return how many; if created again, versions continue from the highest."""
    check_name(run, "run")
    rows = tx.all("SELECT cell, version, lease FROM cells WHERE run = ? ORDER BY cell", (run,))
    for cell, version, lease in rows:
        remove(tx, run, cell, version, lease, "delete")
    highest = tx.one("SELECT max(version) FROM events WHERE kind = ? AND scope = ?", (CELL, run))
    if highest is not None and (highest[0] or 0) > newest_version(tx, RUN, "", run):
        tx.emit(RUN, run, "delete", version=highest[0])
    return len(rows)


def end_lease(tx: Tx, lease: leases.Id, op: str) -> None:
    """Remove the cells bound to an ended lease."""
    bound = "SELECT run, cell, version FROM cells WHERE lease = ? ORDER BY run, cell"
    for run, cell, version in tx.all(bound, (lease,)):
        remove(tx, run, cell, version, None, op)


def locked(run: str, cell: str) -> Target:
    """Return the target of a lock on a cell."""
    check_cell(run, cell)
    return Target(CELL_LOCK, run, cell)


def acquire_lock(
    run: str,
    cell: str,
    holder: str | None = None,
    ttl: float | None = None,
    wait: float | None = None,
    lease: str | None = None,
) -> Steps[Grant]:
    """Acquire the lock of a cell, as `locks.acquire` does for a name. Raises Held."""
    return acquire_target(locked(run, cell), holder, ttl, wait, lease)


def release_lock(tx: Tx, run: str, cell: str, holder: str | None = None, token: int | None = None) -> bool:
    """Release the lock of a cell; False if it was not held. Raises NotHolder, or Fenced."""
    return release_target(tx, locked(run, cell), holder, token)


def refresh_lock(
    tx: Tx, run: str, cell: str, holder: str | None = None, ttl: float | None = None, token: int | None = None
) -> Grant:
    """Renew the lock of a cell. Raises Fenced if it was lost, or NotHolder."""
    return renew_target(tx, locked(run, cell), holder, ttl, token)


def probe(tx: Tx, run: str, cell: str) -> Found | None:
    """What a condition sees of a cell."""
    found = load_cell(tx, run, cell)
    return None if found is None else Found(found.version, found.value)


def probe_lock(tx: Tx, run: str, cell: str) -> Found | None:
    """What a condition sees of a cell's lock."""
    return probe_target(tx, locked(run, cell))


_CELL: Final = """holdfast cell set run-1 status '"building"'"""
_LOCK: Final = "holdfast lock acquire deploy --ttl 60"


class Cells(Domain[M]):
    """`ws.cells`."""

    prefix = "cells"
    held = Held("cell", ("run", "cell"), ("scope", "name"))
    set = write(
        set_cell,
        http="PUT /api/cells/{run}/{cell}",
        cli="cell set",
        done=("{run} {cell} has version {result}",),
        help="Write a cell, and print its new version.",
        examples=(
            _CELL,
            example("""holdfast cell set run-1 status '"live"' --fence deploy:8192""", _LOCK),
            example("holdfast cell set run-1 plan - --ttl 1d < plan.json", """echo '{"steps": 3}' > plan.json"""),
        ),
        mcp="cell_set",
    )
    get = read(
        get_cell,
        http="GET /api/cells/{run}/{cell}",
        plain=True,
        cli="cell get",
        help="Print the value of a cell.",
        examples=(example("holdfast cell get run-1 status", _CELL),),
        mcp="cell_get",
    )
    find = read(
        find_cell,
        http="GET /api/cells/{run}/{cell}/find",
        plain=True,
        cli="cell find",
        help="Print the value of a cell; nothing if there is none.",
        examples=(example("holdfast cell find run-1 status --json", _CELL),),
    )
    exists = read(
        cell_history.exists,
        http="GET /api/cells/{run}/{cell}/exists",
        plain=True,
        cli="cell exists",
        help="Print true or false: whether a cell has a value.",
        examples=("holdfast cell exists run-1 status",),
    )
    delete = write(
        delete_cell,
        http="DELETE /api/cells/{run}/{cell}",
        cli="cell delete",
        done=("deleted {run} {cell}; its history stays",),
        help="Delete a cell; its history stays.",
        nothing=("there is no cell {run} {cell}, so nothing was deleted",),
        examples=(example("holdfast cell delete run-1 status", _CELL),),
    )
    cas = write(
        cas_cell,
        http="POST /api/cells/{run}/{cell}/cas",
        cli="cell cas",
        done=("{run} {cell} has version {result}",),
        help="Write a cell only if it is at the version you expect.",
        examples=(
            example("""holdfast cell cas run-1 status 1 '"done"'""", _CELL),
            """holdfast cell cas run-1 status none '"first"'""",
        ),
        mcp="cell_set",
        arguments={"expected": "the version that the cell must have, or none if it must not exist"},
    )
    init = write(
        init_cell,
        http="POST /api/cells/{run}/{cell}/init",
        cli="cell init",
        done=("{run} {cell} has version {result}",),
        help="Write a cell only if it has no value yet.",
        examples=("""holdfast cell init run-1 owner '"agent-1"'""",),
    )
    get_or_init = procedure(
        get_or_init,
        http="POST /api/cells/{run}/{cell}/get-or-init",
        cli="cell get-or-init",
        help="Print the value of a cell; write one first if there is none.",
        examples=("""holdfast cell get-or-init run-1 limits '{"most": 3}'""",),
    )
    transition = write(transition, local=True)
    transition_or_init = write(transition_or_init, local=True)
    increment = write(
        increment,
        http="POST /api/cells/{run}/{cell}/increment",
        cli="cell increment RUN CELL [DELTA]",
        help="Add to a number and print the new one; a new cell counts from 0.",
        examples=("holdfast cell increment run-1 done", "holdfast cell increment run-1 budget -250"),
    )
    compare_and_delete = write(
        compare_and_delete,
        http="POST /api/cells/{run}/{cell}/compare-and-delete",
        cli="cell compare-and-delete",
        done=("deleted {run} {cell}; its history stays",),
        help="Delete a cell only if it is at the version you expect.",
        examples=(example("holdfast cell compare-and-delete run-1 status 1", _CELL),),
    )
    as_of = read(
        cell_history.as_of,
        http="GET /api/cells/{run}/{cell}/as-of",
        listing=True,
        cli="cell as-of RUN CELL REVISION",
        help="Read a cell as it was at a revision.",
        examples=(example("holdfast cell as-of run-1 status 2", _CELL),),
        arguments={"revision": "the revision, as `cell history` and `log` print it"},
    )
    history = read(
        cell_history.cell_history,
        http="GET /api/cells/{run}/{cell}/history",
        listing=True,
        cli="cell history",
        help="List the versions of a cell, newest first.",
        examples=(example("holdfast cell history run-1 status --limit 10", _CELL),),
    )
    at = read(
        cell_history.at_version,
        http="GET /api/cells/{run}/{cell}/versions/{version}",
        cli="cell at",
        help="Print the value that a cell had at a version.",
        examples=(example("holdfast cell at run-1 status 1", _CELL),),
    )
    restore = write(
        restore_cell,
        http="POST /api/cells/{run}/{cell}/restore",
        cli="cell restore",
        done=("{run} {cell} has the value of version {version} again, as version {result}",),
        help="Write the value of an old version back, as a new version.",
        examples=(example("holdfast cell restore run-1 status 1", _CELL, _CELL),),
    )
    info = read(
        cell_history.info,
        http="GET /api/cells/{run}/{cell}/info",
        plain=True,
        cli="cell info",
        help="Show version, time and size of a cell without its value.",
        examples=(example("holdfast cell info run-1 status", _CELL),),
    )
    list = read(
        cell_history.list_cells,
        http="GET /api/cells/{run}",
        listing=True,
        cli="cell list RUN [PREFIX]",
        nothing=("no cell of {run} has a name that begins with {prefix}", "{run} has no cells"),
        help="List the cells of a run.",
        examples=("holdfast cell list run-1", "holdfast cell list run-1 sta --json"),
        mcp="cell_get",
    )
    runs = read(
        cell_history.list_runs,
        http="GET /api/cells",
        listing=True,
        cli="cell runs [PREFIX]",
        nothing=("there are no runs whose names begin with {prefix}", "there are no runs"),
        help="List the runs that have cells.",
        examples=("holdfast cell runs",),
    )
    delete_run = write(
        delete_run,
        http="DELETE /api/cells/{run}",
        cli="cell delete-run",
        done=("deleted the run {run}: {result:cells}",),
        help="Delete every cell of a run, and print how many.",
        nothing=("the run {run} has no cells, so nothing was deleted",),
        examples=(example("holdfast cell delete-run run-1", _CELL),),
    )
    refresh_ttl = write(
        refresh_ttl,
        http="POST /api/cells/{run}/{cell}/refresh-ttl",
        cli="cell refresh-ttl",
        help="Set how long a cell lasts from now on.",
        nothing=("there is no cell {run} {cell}, so nothing was changed",),
        examples=(example("holdfast cell refresh-ttl run-1 status 2h", _CELL),),
    )
    ttl = read(
        cell_history.ttl,
        http="GET /api/cells/{run}/{cell}/ttl",
        plain=True,
        cli="cell ttl",
        help="Print the seconds until a cell ends; nothing if it does not.",
        examples=(example("holdfast cell ttl run-1 status", _CELL),),
    )
    watch = first(
        cell_history.follow,
        http="GET /api/cells/{run}/{cell}/watch",
        cli="cell watch",
        help="Wait for one change of a cell, and print it.",
        examples=(
            "holdfast cell watch run-1 status --timeout 10m",
            example("holdfast cell watch run-1 status --after-version 0", _CELL),
        ),
    )
    watch_stream = stream(
        cell_history.follow,
        http="GET /api/cells/{run}/{cell}/watch",
        cli="cell stream",
        help="Print the changes of a cell as they come.",
        examples=(example("holdfast cell stream run-1 status --after-version 0 --timeout 1s", _CELL),),
    )
    acquire_lock = procedure(
        acquire_lock,
        http="POST /api/cells/{run}/{cell}/lock/acquire",
        cli="cell lock",
        help="Take the lock of a cell.",
        examples=("holdfast cell lock run-1 status --ttl 30 --wait 10",),
        grants=True,
    )
    release_lock = write(
        release_lock,
        http="POST /api/cells/{run}/{cell}/lock/release",
        cli="cell unlock",
        help="Free your lock of a cell.",
        nothing=("nobody holds {run} {cell}, so nothing was released",),
        examples=(example("holdfast cell unlock run-1 status", "holdfast cell lock run-1 status"),),
        frees=True,
    )
    refresh_lock = write(
        refresh_lock,
        http="POST /api/cells/{run}/{cell}/lock/refresh",
        cli="cell refresh-lock",
        help="Renew your lock of a cell.",
        examples=(example("holdfast cell refresh-lock run-1 status", "holdfast cell lock run-1 status"),),
        grants=True,
    )
