"""Lock stashes: one holder at a time, with an optional expiry, a queue of waiters, and a fencing token.

The lock itself is like every other one (`domains.locks`); each time it is acquired, released or expires, the version of
its stash grows by one, in the same transaction.
"""

from __future__ import annotations

from holdfast import errors
from holdfast.domains import locks
from holdfast.domains.locks import LockAttempt, Target, acquire_by
from holdfast.domains.stashes.rows import LOCK, STASH_LOCK, StashId, find, held_value, lock_of, one, require, write
from holdfast.kernel.events import Filter
from holdfast.kernel.tx import Snapshot, Tx
from holdfast.operation import Do, Steps
from holdfast.types import Grant


def acquire(
    id: StashId,
    holder: str | None = None,
    ttl: float | None = None,
    wait: float | None = None,
    changed_by: str | None = None,
) -> Steps[Grant]:
    """Acquire a lock stash, or enter it again, waiting for up to `wait` seconds. Raises Held if another holds it."""
    _check_holder(holder)
    own: str = yield Do(lambda tx: _require_lock(tx, id))
    attempt = _Attempt(lock_of(own), holder, ttl, changed_by)
    grant: Grant = yield from acquire_by(attempt, wait, Filter((STASH_LOCK,), "", own))
    return grant


def release(
    tx: Tx, id: StashId, holder: str | None = None, token: int | None = None, changed_by: str | None = None
) -> int:
    """Release a lock stash and return its version. Raises NotHolder, or Fenced for a wrong or lost token."""
    _check_holder(holder)
    own = _require_lock(tx, id)
    if not locks.release_target(tx, lock_of(own), holder, token, changed_by):
        raise errors.NotHolder(f"nobody holds the stash {own}", holder=None)
    return require(tx, own).version


def refresh(
    tx: Tx, id: StashId, holder: str | None = None, ttl: float | None = None, token: int | None = None
) -> Grant:
    """Renew a lock stash, by default for as long as it was granted, without a new version. Raises Fenced if lost."""
    _check_holder(holder)
    return locks.renew_target(tx, lock_of(_require_lock(tx, id)), holder, ttl, token)


def check_token(snapshot: Snapshot, id: StashId, token: int) -> None:
    """Raise Fenced unless a lock stash is held with exactly this token."""
    locks.check_fence(snapshot, lock_of(_require_lock(snapshot, id)), token)


class _Attempt(LockAttempt):
    """The attempt to take the lock of one stash."""

    def __init__(self, target: Target, holder: str | None, ttl: float | None, changed_by: str | None) -> None:
        super().__init__(target, holder, ttl, None)
        self._changed_by = changed_by

    def __call__(self, tx: Tx) -> Grant:
        _require_lock(tx, self._target.name)
        grant = super().__call__(tx)
        stored = require(tx, self._target.name)
        assert stored.holder is not None
        assert stored.acquired is not None
        value = held_value(stored.holder, stored.acquired)
        write(tx, stored.id, "acquire", stored.version + 1, value, self._changed_by)
        return grant


def freed(tx: Tx, target: Target, op: str, changed_by: str | None) -> None:
    """Add a version to the stash whose lock was released or has expired."""
    stored = find(tx, target.name)
    if stored is not None:
        write(tx, stored.id, op, stored.version + 1, None, changed_by)


def _require_lock(snapshot: Snapshot, id: StashId) -> str:
    stored = require(snapshot, id)
    if stored.type != LOCK:
        raise errors.InvalidStashType(f"the stash {stored.name!r} is {one(stored.type)}, not a lock", id=stored.id)
    return stored.id


def _check_holder(holder: str | None) -> None:
    if holder == "":
        raise errors.InvalidHolder("the holder is empty", hint="name the holder")
