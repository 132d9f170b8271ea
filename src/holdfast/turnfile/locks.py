"""Taking, keeping and giving back turn locks on a session.

A contender that finds a valid lock in its way writes nothing: each write would age the holder's lease. It looks again
after a while; when the revision has not moved between two looks, the lock is escalated and the waiting ends. After
taking a lock the ledger is read again, and who lost to a lock of another tool removes its own entry and yields.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from holdfast.errors import Held, NotFound, NotHolder
from holdfast.turnfile.escalation import Claim, escalate
from holdfast.turnfile.files import reach
from holdfast.turnfile.ledger import Ledger, rules
from holdfast.turnfile.model import Lock
from holdfast.turnfile.session import Session


class Patience(msgspec.Struct, frozen=True):
    """How to wait for a lock: looks `wait` seconds apart, and at most `checks` of them.

    `pause` does the waiting; by default it also ends when the ledger changes, since that is worth a look.
    """

    wait: float = 30.0
    checks: int = 20
    pause: Callable[[float], None] | None = None


class _Blocked(Exception):
    """A valid lock is in the way; the ledger was left alone."""

    def __init__(self, lock: Lock, revision: int) -> None:
        super().__init__(lock.id)
        self.lock = lock
        self.revision = revision


def acquire(
    session: Session, claim: Claim, patience: Patience | None = None, ready: Callable[[], None] | None = None
) -> Lock:
    """Lock files; waits as patience allows, and not at all without. Raises Held, or Escalated after a vain wait.

    `ready` is called when nobody is in the way, before anything is written: what it raises leaves the ledger alone.
    """
    seen: int | None = None
    checks = max(1, patience.checks) if patience is not None else 1
    for left in range(checks - 1, -1, -1):
        try:
            return _take(session, claim, ready)
        except _Blocked as blocked:
            found = blocked
        if found.revision == seen:
            raise escalate(session, found.lock, found.revision, claim)
        if patience is None or not left:
            break
        seen = found.revision
        if patience.pause is not None:
            patience.pause(patience.wait)
        else:
            session.await_change(patience.wait, found.revision)
    raise _held(found.lock, found.revision, claim.holder)


def release(session: Session, lock_id: str, holder: str) -> Ledger:
    """Remove a lock of one's own. Raises NotFound or NotHolder."""

    def change(ledger: Ledger) -> Ledger:
        return ledger.without_locks(owned(ledger, lock_id, holder).id)

    return session.write(change, holder)


def renew(session: Session, lock_id: str, holder: str) -> Lock:
    """Acquire a lock of one's own anew: its lease begins again. Raises Held if somebody took the files meanwhile."""
    return renew_all(session, [lock_id], holder)[0]


def renew_all(session: Session, lock_ids: Sequence[str], holder: str) -> list[Lock]:
    """Begin the leases of several locks again, all by one write, so that none ages another; or of none."""

    def change(ledger: Ledger) -> Ledger:
        for lock_id in lock_ids:
            ledger = renewed(session, ledger, owned(ledger, lock_id, holder))
        return ledger

    after = session.write(change, holder)
    return [owned(after, lock_id, holder) for lock_id in lock_ids]


def renewed(session: Session, ledger: Ledger, lock: Lock) -> Ledger:
    """The ledger with the lease of a lock begun again. Raises Held if another valid lock has one of its files."""
    workspace = session.workspace(ledger)
    others = rules.blocking(ledger.turnfile.locks, lock.files, ledger.revision, workspace, but=lock.id)
    if others:
        raise _held(others[0], ledger.revision, lock.holder)
    return ledger.with_lock(msgspec.structs.replace(lock, acquired_rev=ledger.revision + 1))


def clear_stale(session: Session, actor: str, lock_ids: Sequence[str] = ()) -> list[Lock]:
    """Remove stale locks, all of them or those named; anybody may. Raises Held for one that is still valid."""
    cleared: list[Lock] = []

    def change(ledger: Ledger) -> Ledger:
        named = [known(ledger, lock_id) for lock_id in lock_ids]
        for lock in named:
            if not rules.is_stale(lock, ledger.revision):
                left = rules.revisions_left(lock, ledger.revision)
                raise Held(
                    f"{lock.id} of {lock.holder} is valid for {left} more revisions",
                    hint="ask its holder, or the maintainer; `turn override` needs a P0 reason",
                    holder=lock.holder,
                    lock_id=lock.id,
                )
        stale = [lock for lock in named or ledger.turnfile.locks if rules.is_stale(lock, ledger.revision)]
        cleared[:] = stale
        return ledger.without_locks(*(lock.id for lock in stale))

    session.write(change, actor)
    return cleared


def verify(session: Session, ledger: Ledger, lock: Lock) -> Lock | None:
    """Which lock comes before one; None while its files are its own. Raises NotHolder for a lock that ended."""
    there = ledger.turnfile.lock(lock.id)
    mine = there is not None and (there.holder, there.acquired_rev) == (lock.holder, lock.acquired_rev)
    if not mine or rules.is_stale(lock, ledger.revision):
        words = "it went stale" if mine else "somebody removed or replaced it"
        raise NotHolder(
            f"{lock.id} is no longer held: {words}",
            hint="`turn lock` the files again, and edit what they say now",
            lock_id=lock.id,
            revision=ledger.revision,
        )
    return rules.beaten_by(lock, ledger.turnfile.locks, ledger.revision, session.workspace(ledger))


def _take(session: Session, claim: Claim, ready: Callable[[], None] | None) -> Lock:
    taken: list[Lock] = []
    if ready is not None:
        _need_free(session, session.read(), claim)
        ready()

    def change(ledger: Ledger) -> Ledger:
        workspace = session.workspace(ledger)
        _need_free(session, ledger, claim)
        others = rules.overlapping(ledger.turnfile.locks, claim.files, workspace)
        lock = Lock(
            rules.next_lock_id(claim.holder, ledger.text),
            tuple(rules.written(path, workspace) for path in claim.files),
            claim.holder,
            ledger.revision + 1,
            claim.lease_revs,
            claim.reason,
            claim.transaction,
        )
        taken[:] = [lock]
        return ledger.without_locks(*(other.id for other in others)).knowing(claim.holder).with_lock(lock)

    session.write(change, claim.holder)
    [lock] = taken
    reach("lock.acquired")
    fresh = session.read()
    try:
        before = verify(session, fresh, lock)
    except NotHolder:
        before = next(iter(rules.overlapping(fresh.turnfile.locks, claim.files, session.workspace(fresh))), None)
        raise _Blocked(before or lock, fresh.revision) from None
    if before is not None:
        release(session, lock.id, claim.holder)
        raise _Blocked(before, fresh.revision)
    return lock


def _need_free(session: Session, ledger: Ledger, claim: Claim) -> None:
    """Raises _Blocked where somebody is in the way, and Held at once for a lock that the claimant took by hand.

    Nobody waits for oneself; but a transaction of another process of the same name ends without one's doing.
    """
    others = rules.blocking(ledger.turnfile.locks, claim.files, ledger.revision, session.workspace(ledger))
    for lock in others:
        if lock.holder == claim.holder and not lock.transaction:
            raise _held(lock, ledger.revision, claim.holder)
    if others:
        raise _Blocked(others[0], ledger.revision)


def _held(lock: Lock, revision: int, wanted_by: str) -> Held:
    """The error for a lock that is in the way of somebody."""
    since = f"by {lock.id} since revision {lock.acquired_rev}"
    hint = "wait for the release, or for the lock to become stale; `turn status` shows how long"
    if lock.holder == wanted_by:
        hint = f"it is your own: `turn unlock {lock.id}` gives it back, so that you can lock all that you need at once;"
        hint += f" `turn renew {lock.id}` begins its lease again"
    if lock.holder == wanted_by and lock.transaction:
        hint = f"a process of that name is at it; if it was killed, `turn unlock {lock.id}` gives the lock back"
    return Held(
        f"{lock.holder} holds {', '.join(lock.files)} {since}",
        hint=hint,
        holder=lock.holder,
        lock_id=lock.id,
        acquired_rev=lock.acquired_rev,
        revision=revision,
    )


def known(ledger: Ledger, lock_id: str) -> Lock:
    """A lock by its id. Raises NotFound."""
    lock = ledger.turnfile.lock(lock_id)
    if lock is None:
        raise NotFound(f"there is no lock {lock_id!r}", hint="`turn status` shows the locks", lock_id=lock_id)
    return lock


def owned(ledger: Ledger, lock_id: str, holder: str) -> Lock:
    """A lock of one's own. Raises NotFound or NotHolder."""
    lock = known(ledger, lock_id)
    if lock.holder != holder:
        raise NotHolder(f"{lock_id} is held by {lock.holder}, not by {holder}", holder=lock.holder, lock_id=lock_id)
    return lock
