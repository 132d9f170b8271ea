"""Saving what was done to a stash in memory since it was loaded: any number of changes, one transaction, one entry.

The version it was loaded with must still be there. So what the changes were decided on still holds when they are
written, and of two that were decided on the same version one is refused. `cupboard` is who saves this way.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from holdfast import errors
from holdfast.domains import holding
from holdfast.domains.stashes.rows import StashId, Stored, check_version, lock_of, require, to_stash, write
from holdfast.domains.stashes.values import COUNTER, LOCK, check_value, one
from holdfast.kernel.tx import Tx
from holdfast.types.stashes import Stash

SavedOperation = Literal["set", "increment", "acquire", "release"]
MOST: Final = 1_000_000  # changes in one save: a version has room for many of them


def save(
    tx: Tx,
    id: StashId,
    expected: int,
    version: int,
    operation: SavedOperation,
    value: Any = None,
    holder: str | None = None,
    changed_by: str | None = None,
) -> Stash:
    """Write the version that a stash has reached in memory since `expected`; VersionMismatch if it has gone on.

    `operation` is the last of the changes. A lock takes no value: `holder` is who took it, or gave it back.
    """
    stored = require(tx, id)
    _check_operation(stored, operation)
    check_reached(stored, expected, version)
    if stored.type == LOCK:
        _move(tx, stored, operation, holder, version - expected)
        value = require(tx, stored.id).value
    else:
        check_value(stored.type, value)
    write(tx, stored.id, operation, version, value, changed_by)
    return to_stash(require(tx, stored.id))


def _check_operation(stored: Stored, operation: str) -> None:
    own = {LOCK: ("acquire", "release"), COUNTER: ("set", "increment")}.get(stored.type, ("set",))
    if operation not in own:
        raise errors.InvalidStashType(
            f"the stash {stored.name!r} is {one(stored.type)}: {operation!r} does nothing to it",
            hint=f"what can be saved of it: {', '.join(own)}",
            id=stored.id,
        )


def check_reached(stored: Stored, expected: int, version: int) -> None:
    """VersionMismatch unless the stash is where it was loaded; Invalid for a version that no change leads to."""
    if type(expected) is not int:
        raise errors.Invalid(f"expected is the version that was loaded, not {expected!r}")
    check_version(stored, expected)
    if type(version) is not int or not expected < version <= expected + MOST:
        raise errors.Invalid(
            f"no saved change leads from version {expected} to {version!r}",
            hint=f"a save goes on by one version for each change, {MOST} at most",
        )


def _move(tx: Tx, stored: Stored, operation: str, holder: str | None, changes: int) -> None:
    """Bring a lock to where it is in memory, if so many changes can lead there."""
    if not holder:
        raise errors.InvalidHolder("the holder is empty", hint="name who holds it")
    target, row = lock_of(stored.id), holding.load(tx, lock_of(stored.id))
    if changes < _least_changes(stored.holder, operation, holder):
        if operation == "acquire" and stored.holder is not None:
            raise holding.held(target, stored.holder, stored.until)
        raise errors.NotHolder(f"{stored.name!r} is held by {stored.holder or 'nobody'}", holder=stored.holder)
    if row is not None and (operation == "release" or row[1] != holder):
        holding.end(tx, target, row, "release")
    if operation == "acquire":
        holding.take(tx, target, holder, None, None)


def _least_changes(before: str | None, operation: str, holder: str) -> int:
    """How many changes it takes at least: who does not hold a lock takes it first, which another gives back before."""
    if operation == "acquire":
        return 1 if before in (None, holder) else 2
    return 1 if before == holder else 2 if before is None else 3
