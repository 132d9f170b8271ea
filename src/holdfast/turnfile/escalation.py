"""When waiting ends: the maintainer is asked to decide.

By a decision-required message, or by a `blocked` signal in the ledger where the mailbox itself is what is locked, or
cannot be written for another reason. Once per lock and acquisition: who finds that somebody has asked asks no more. To
ask is one write of the ledger, since each ages the lease of the very lock that it is about. No clock: only that the
revision stood still over two looks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.errors import Conflict, Escalated, Forbidden, Held, Invalid, Outrun
from holdfast.turnfile.claiming import Claim
from holdfast.turnfile.ledger import locks, notes
from holdfast.turnfile.ledger.codec import Ledger
from holdfast.turnfile.mailbox import asking
from holdfast.turnfile.model import ARCHIVE, MAILBOX, PROJECTION, TURNFILE, Lock, Signal
from holdfast.turnfile.papers.settling import settle
from holdfast.turnfile.session import Session

Asking = Callable[[str, Ledger], tuple[str, str]]
Telling = Callable[[Ledger], tuple[Ledger, Signal]]


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

    def ask(mailbox: str, ledger: Ledger) -> tuple[str, str]:
        used, maintainers = _archive(session), ledger.turnfile.maintainers
        return asking.escalate(mailbox, lock, revision, claim.holder, session.today(), used, maintainers=maintainers)

    def tell(ledger: Ledger) -> tuple[Ledger, Signal]:
        return notes.blocked(ledger, lock, revision, claim.holder)

    _, before = notes.blocked(ledger, lock, revision, claim.holder)
    by_mail = before not in ledger.turnfile.signals and MAILBOX not in locks.files_of(lock, session.workspace(ledger))
    asked = _asked(session, claim.holder, ask if by_mail else None, tell)
    hint = f"do other work until {lock.id} is gone from `turn status`, or the maintainer has answered {asked}"
    if lock.holder == claim.holder:
        hint = f"it is of your own name: if the process that took it was killed, `turn unlock {lock.id}` gives it back"
    return Escalated(
        f"{words}, and revision {revision} stood still: {asked} asks the maintainer", hint=hint, told=asked, **details
    )


def give_up(session: Session, lock: Lock | None, claim: Claim, cause: Conflict | Forbidden) -> Escalated:
    """Tell the maintainer that an edit was made again and again in vain; its lock goes. The error to raise."""
    under = lock.id if lock else "no lock"

    def ask(mailbox: str, ledger: Ledger) -> tuple[str, str]:
        used, maintainers = _archive(session), ledger.turnfile.maintainers
        files, revision, date = claim.files, ledger.revision, session.today()
        return asking.give_up(
            mailbox, files, cause.message, under, revision, claim.holder, date, used, maintainers=maintainers
        )

    def tell(ledger: Ledger) -> tuple[Ledger, Signal]:
        detail = f"gave up editing {', '.join(claim.files)} under {under}: {cause.message}"
        return notes.told(ledger, claim.holder, detail)

    asked = _asked(session, claim.holder, ask, tell, gone=lock)
    return Escalated(
        f"{cause.message}, again and again: {asked} asks the maintainer",
        hint="nothing of this edit was written; find out who edits these files without a lock, then make it again",
        told=asked,
        holder=claim.holder,
        lock_id=lock.id if lock else None,
        acquired_rev=lock.acquired_rev if lock else None,
        revision=session.read().revision,
    )


def _asked(session: Session, sender: str, ask: Asking | None, tell: Telling, gone: Lock | None = None) -> str:
    """The id of what asks: a message if that can be written now, else a signal. The lock `gone` goes with it."""
    message = _by_mail(session, sender, ask, gone) if ask is not None else None
    if message is not None:
        return message
    told: list[Signal] = []

    def change(ledger: Ledger) -> Ledger:
        after, signal = tell(_without(ledger, gone))
        told[:] = [signal]
        return after

    session.write(change, sender)
    return told[0].id


def _by_mail(session: Session, sender: str, ask: Asking, gone: Lock | None) -> str | None:
    """The id of the message that asks, new or old; None if it cannot be written: nothing is, then.

    The lock that the mailbox needs is taken and given back by the same write.
    """
    with session.turn():
        ledger = session.fresh()
        after = _without(ledger, gone)
        workspace = session.workspace(ledger)
        others = locks.blocking(after.turnfile.locks, [MAILBOX], ledger.revision, workspace)
        busy = any(other.holder != sender or other.transaction for other in others)
        try:
            now = {path: session.folder.read(path) for path in (MAILBOX, PROJECTION)}
            mailbox = now[MAILBOX]
            if mailbox is None:
                return None
            text, message = ask(mailbox, ledger)
            if busy and text != mailbox:
                return None
            texts, _ = settle({MAILBOX: text}, now, workspace, session.timestamp())
            if texts:
                lock_id = locks.next_lock_id(sender, ledger.text)
                after, _ = notes.completed(after.knowing(sender), lock_id, sender, [MAILBOX])
            if after.text != ledger.text:
                texts[TURNFILE] = after.stamped(ledger.revision + 1, sender).text
                session.replace(texts, {**now, TURNFILE: ledger.text})
        except (Invalid, Outrun):  # not in order, or edited just now: the ledger still takes a signal
            return None
    return message


def _archive(session: Session) -> str:
    """What is archived, whose ids are used; for who has the turn."""
    return session.folder.read(ARCHIVE) or ""


def _without(ledger: Ledger, lock: Lock | None) -> Ledger:
    return ledger.without_locks(lock.id) if lock is not None and ledger.turnfile.lock(lock.id) == lock else ledger
