"""An edit of shared files as one transaction: the nine steps of the locking contract.

Acquire the lock and verify it, read the files, edit them in memory; then, in one turn to write: check that the lock
still holds and that nobody changed the files, check the invariants, and replace the files, the projection and the
ledger, without the lock and with the completion note, all or none. A file that changed meanwhile means that the edit
is made again on what it says now, at most three times; any other failure leaves every file as it was.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from holdfast.errors import HoldfastError, Invalid, NotHolder, Outrun
from holdfast.turnfile.edits import Completion, Transaction, Unchanged
from holdfast.turnfile.escalation import Claim, claim_of, give_up
from holdfast.turnfile.files import reach
from holdfast.turnfile.ledger import Ledger, rules
from holdfast.turnfile.locks import Patience, acquire, owned, release, verify
from holdfast.turnfile.model import DEFAULT_LEASE_REVS, MAILBOX, PROJECTION, TURNFILE, Lock
from holdfast.turnfile.session import Place, Session, session_at

REAPPLIED: Final = 3


def transact(
    files: Iterable[str],
    holder: str,
    reason: str,
    body: Callable[[Transaction], Any],
    *,
    folder: Place = None,
    lease_revs: int = DEFAULT_LEASE_REVS,
    patience: Patience | None = Patience(),  # noqa: B008 - frozen
    under: str | None = None,
    rehearse: bool = False,
) -> Completion:
    """Run `body` on the files, again if they changed under it; what it returns is the completion's `result`.

    The files are those of `folder`, or of the session that HOLDFAST_TURN_DIR names, else of `./working-session`.
    `under` names a lock that the holder took by hand, and that stays; one on all the files is found without it. With
    `rehearse` the body runs once before the lock is taken, so that an edit that is refused, or changes nothing, costs
    no revision and ages nobody's lock; what it made counts if the files say the same under the lock. Raises Held or
    Escalated, or what the body raises.
    """
    session = session_at(folder)
    claim = _claim(session, files, holder, reason, lease_revs)
    rehearsed: list[Transaction] = []

    def ready() -> None:
        rehearsed[:] = [Transaction(session, claim, None, False)]
        rehearsed[0].rehearse(body)

    try:
        edit = _begin(session, claim, patience, under, ready if rehearse else None)
    except Unchanged as unchanged:
        return unchanged.completion
    drifted = bool(rehearsed) and not edit.adopt(rehearsed[0])
    left = REAPPLIED - drifted
    while True:
        with _aborting(edit):
            result = edit.make(body)
        reach("body.done")
        try:
            with _aborting(edit, but=(Outrun, NotHolder)):
                return edit.commit(result)
        except (Outrun, NotHolder) as error:
            if not left:
                raise give_up(session, None if edit.keep else edit.lock, claim, error) from error
            left -= 1
            if isinstance(error, NotHolder):
                edit.abort()
                edit = _begin(session, claim, patience, under)
            else:
                edit = Transaction(session, claim, edit.lock, edit.keep)


@contextlib.contextmanager
def transaction(
    files: Iterable[str],
    holder: str,
    reason: str,
    *,
    folder: Place = None,
    lease_revs: int = DEFAULT_LEASE_REVS,
    patience: Patience | None = Patience(),  # noqa: B008 - frozen
    under: str | None = None,
) -> Iterator[Transaction]:
    """A block that edits files of a folder: written as one when it ends, not at all when it raises.

    A block cannot run twice: a file that changed meanwhile raises Outrun. `transact` makes the edit again instead.
    """
    session = session_at(folder)
    edit = _begin(session, _claim(session, files, holder, reason, lease_revs), patience, under)
    with _aborting(edit):
        yield edit
        reach("body.done")
        edit.commit()


def _claim(session: Session, files: Iterable[str], holder: str, reason: str, lease_revs: int) -> Claim:
    claim = claim_of(session, files, holder, reason, lease_revs)
    for path in claim.files:
        if path in (TURNFILE, PROJECTION):
            words = "is written by every transaction" if path == TURNFILE else f"is derived from {MAILBOX}"
            raise Invalid(f"{path} {words}: it cannot be edited in one", path=path)
    # An edit may make a file, and needs no lock for some: only the name can be wrong.
    return msgspec.structs.replace(claim, warnings=tuple(each for each in claim.warnings if each.rule == "new-agent"))


def _begin(
    session: Session,
    claim: Claim,
    patience: Patience | None,
    under: str | None,
    ready: Callable[[], None] | None = None,
) -> Transaction:
    """Steps 1 and 2; only files of the registry need a lock."""
    ledger = session.read()
    guarded = session.guarded(ledger)
    needed = tuple(path for path in claim.files if path in guarded)
    if under is not None:
        return Transaction(session, claim, _own_lock(session, ledger, under, claim.holder, needed), True)
    if not needed:  # and so nobody joins the ledger
        return Transaction(session, msgspec.structs.replace(claim, warnings=()), None, False)
    if (mine := _held_already(session, ledger, claim.holder, needed)) is not None:
        return Transaction(session, claim, mine, True)
    lock = acquire(session, msgspec.structs.replace(claim, files=needed, transaction=True), patience, ready)
    try:
        return Transaction(session, claim, lock, False)
    except BaseException:
        release(session, lock.id, claim.holder)
        raise


def _held_already(session: Session, ledger: Ledger, holder: str, needed: tuple[str, ...]) -> Lock | None:
    """A valid lock that the holder took by hand on all these files; one that lost to another's is removed."""
    workspace = session.workspace(ledger)
    for lock in rules.blocking(ledger.turnfile.locks, needed, ledger.revision, workspace):
        mine = lock.holder == holder and not lock.transaction
        if mine and rules.files_of(lock, workspace).issuperset(needed):
            if verify(session, ledger, lock) is None:
                return lock
            release(session, lock.id, holder)  # who lost yields: the other's is in the way like any
    return None  # a stale one is cleared, one with some of the files refused, by who takes the lock


def _own_lock(session: Session, ledger: Ledger, lock_id: str, holder: str, needed: tuple[str, ...]) -> Lock:
    lock = owned(ledger, lock_id, holder)
    missing = set(needed) - rules.files_of(lock, session.workspace(ledger))
    if missing:
        raise NotHolder(f"{lock_id} does not cover {', '.join(sorted(missing))}", lock_id=lock_id)
    if (other := verify(session, ledger, lock)) is not None:
        raise NotHolder(f"{other.id} of {other.holder} comes before {lock_id}", lock_id=lock_id)
    return lock


@contextlib.contextmanager
def _aborting(edit: Transaction, but: tuple[type[HoldfastError], ...] = ()) -> Iterator[None]:
    """Give the lock back if something goes wrong; a failure to do so is told with what went wrong."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, but):
            try:
                edit.abort()
            except HoldfastError as failed:
                error.add_note(f"the lock {edit.lock.id if edit.lock else ''} was not given back: {failed}")
        raise
