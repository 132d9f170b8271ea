"""When waiting ends: the maintainer is asked to decide.

By a decision-required message, or by a `blocked` signal in the ledger where the mailbox itself is what is locked, or
cannot be written for another reason. Once per lock and acquisition: who finds that somebody has asked asks no more.
No clock: only that the revision stood still over two looks.
"""

from __future__ import annotations

from typing import Any

from holdfast.errors import Conflict, Escalated, Forbidden, Held, Invalid
from holdfast.turnfile.claiming import Claim
from holdfast.turnfile.editing import Transaction
from holdfast.turnfile.ledger import locks, notes
from holdfast.turnfile.ledger.codec import Ledger
from holdfast.turnfile.mailbox import composing
from holdfast.turnfile.model import MAILBOX, Lock
from holdfast.turnfile.session import Session
from holdfast.turnfile.transacting import transact


def escalate(session: Session, lock: Lock, revision: int, claim: Claim) -> Held:
    """Ask the maintainer about a lock that blocks a claim; the error to raise, which says where that was asked."""
    details: dict[str, Any] = {
        "holder": lock.holder,
        "lock_id": lock.id,
        "acquired_rev": lock.acquired_rev,
        "revision": revision,
    }
    words = f"{lock.holder} holds {', '.join(lock.files)} by {lock.id} since revision {lock.acquired_rev}"
    ledger = session.read()
    if ledger.turnfile.lock(lock.id) != lock:
        return Held(f"{words}, and that changed just now", hint="try again", **details)
    message = None
    if MAILBOX not in locks.files_of(lock, session.workspace(ledger)):
        message = _by_mail(session, ledger, lock, revision, claim)
    asked = message or _by_signal(session, lock, revision, claim.holder)
    return Escalated(
        f"{words}, and revision {revision} stood still: {asked} asks the maintainer",
        hint=f"do other work until {lock.id} is gone from `turn status`, or the maintainer has answered {asked}",
        told=asked,
        **details,
    )


def give_up(session: Session, lock: Lock | None, claim: Claim, cause: Conflict | Forbidden) -> Escalated:
    """Tell the maintainer that an edit was tried again and again in vain; the error to raise."""
    asked: list[str] = []

    def change(ledger: Ledger) -> Ledger:
        detail = f"gave up editing {', '.join(claim.files)} under {lock.id if lock else 'no lock'}: {cause.message}"
        if lock is not None and ledger.turnfile.lock(lock.id) == lock:
            ledger = ledger.without_locks(lock.id)
        after, signal = notes.told(ledger, claim.holder, detail)
        asked[:] = [signal.id]
        return after

    after = session.write(change, claim.holder)
    return Escalated(
        f"{cause.message}, again and again: {asked[0]} asks the maintainer",
        hint="nothing of this edit was written; find out who edits these files without a lock, then make it again",
        told=asked[0],
        holder=claim.holder,
        lock_id=lock.id if lock else None,
        acquired_rev=lock.acquired_rev if lock else None,
        revision=after.revision,
    )


def _by_mail(session: Session, ledger: Ledger, lock: Lock, revision: int, claim: Claim) -> str | None:
    """The id of the message that asks, new or old; None if it cannot be sent now."""
    sender, today, maintainers = claim.holder, session.today(), ledger.turnfile.maintainers

    def asking(mailbox: str) -> tuple[str, str]:
        return composing.escalate(mailbox, lock, revision, sender, today, maintainers=maintainers)

    def body(edit: Transaction) -> str:
        text, message = asking(edit.read(MAILBOX) or "")
        edit.write(MAILBOX, text)
        return message

    try:
        mailbox = session.texts([MAILBOX])[MAILBOX]
        if mailbox is None:
            return None
        text, message = asking(mailbox)
        if text == mailbox:  # asked already: no write, which would age the lease
            return message
        return str(transact([MAILBOX], sender, f"escalate {lock.id}", body, folder=session, patience=None).result)
    except (Conflict, Forbidden, Invalid):  # the mailbox is locked, or not in order: the ledger still takes a signal
        return None


def _by_signal(session: Session, lock: Lock, revision: int, sender: str) -> str:
    asked: list[str] = []

    def change(ledger: Ledger) -> Ledger:
        after, signal = notes.blocked(ledger, lock, revision, sender)
        asked[:] = [signal.id]
        return after

    session.write(change, sender)
    return asked[0]
