"""Escalation: when a wait or a retry ends without success, the maintainer is asked to decide.

The question is a decision-required message with all that the decision needs, or a `blocked` signal in the ledger if
the mailbox is locked or cannot be written. Each question is asked once until it is closed: once per lock and
acquisition, or once per agent and files. It costs one write of the ledger, because each write ages the lease in
question (decision 0040). Called by `locks` and `transactions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from holdfast.errors import Conflict, Escalated, FileChanged, Forbidden, Held, Invalid
from holdfast.turnfile.invariants import validate_edits
from holdfast.turnfile.ledger import Ledger, rules, with_blocked_signal, with_completion_note, with_maintainer_signal
from holdfast.turnfile.mailbox import parse
from holdfast.turnfile.mailbox.cards import TERMINAL
from holdfast.turnfile.mailbox.draft import MAINTAINER, Draft, compose
from holdfast.turnfile.model import ARCHIVE, MAILBOX, PROJECTION, TURNFILE, Lock, Signal
from holdfast.turnfile.session import Session

WriteMessage = Callable[[str, Ledger], tuple[str, str]]
"""From a mailbox's text and the ledger: the text with the question, and the id of its message."""

WriteSignal = Callable[[Ledger], tuple[Ledger, Signal]]
"""From a ledger: the ledger with the question as a signal, and that signal."""


def lock_question(
    text: str, lock: Lock, revision: int, sender: str, date: str, *others: str, maintainers: Sequence[str] = ()
) -> tuple[str, str]:
    """Add the question about a lock that blocks the sender; returns the mailbox and the id of the message.

    If the question about this lock and acquisition is still open, returns the mailbox unchanged and that id.
    """
    lock = msgspec.convert(_flat(msgspec.to_builtins(lock)), Lock)
    facts = [f"- lock_id: {lock.id}", f"- holder: {lock.holder}", f"- acquired_rev: {lock.acquired_rev}"]
    if (before := _open_question(text, facts)) is not None:
        return text, before
    body = "\n".join(
        [
            f"**Decision needed:** who edits {', '.join(lock.files)} next",
            "",
            *facts,
            f"- last seen coordination.revision: {revision}",
            f"- lease_revs: {lock.lease_revs}",
            f"- reason: {lock.reason or 'none given'}",
            "",
            "**Options:**",
            f"1. Keep the lock: {lock.holder} finishes and releases it; {sender} keeps waiting.",
            f"2. Ask {lock.holder} to release it now, and to start its edit again later.",
            f"3. Override it (`turn override {lock.id}`): {lock.holder} loses it, and its unfinished edit is refused.",
            "",
            "**Recommended:** 2",
            f"**If delayed:** {sender} stays blocked; the revision has not moved over two checks.",
        ]
    )
    subject = f"Lock {lock.id} of {lock.holder} blocks {sender}"
    draft = Draft(sender, MAINTAINER, subject, date, "decision-required", "P0", body, response_by="next turn")
    return compose(text, draft, *others, maintainers=maintainers)


def edit_question(
    text: str,
    files: Sequence[str],
    why: str,
    lock_id: str,
    revision: int,
    sender: str,
    date: str,
    *others: str,
    maintainers: Sequence[str] = (),
) -> tuple[str, str]:
    """Add the question about an edit that failed at every retry; once for the same files and sender."""
    names = ", ".join(files)
    facts = [f"- files: {names}", f"- given up by: {sender}"]
    if (before := _open_question(text, facts)) is not None:
        return text, before
    body = "\n".join(
        [
            f"**Decision needed:** who edits {names} next",
            "",
            *facts,
            f"- lock_id: {lock_id}",
            f"- last seen coordination.revision: {revision}",
            f"- what happened: {' '.join(why.split())[:200]}",
            "",
            "**Options:**",
            f"1. Find out who edits {names} without a lock, and stop that; {sender} retries its edit.",
            f"2. Let {sender} wait until they are done.",
            "",
            "**Recommended:** 1",
            f"**If delayed:** the edit of {sender} is not made; nothing of it was written.",
        ]
    )
    draft = Draft(sender, MAINTAINER, f"{sender} gave up editing {names}"[:200], date, "decision-required", "P0", body)
    return compose(text, draft, *others, maintainers=maintainers)


def _open_question(text: str, facts: Sequence[str]) -> str | None:
    """The id of an open question with all these facts."""
    for card in parse(text).cards:
        if card.get("type") == "decision-required" and card.status not in TERMINAL:
            said = card.body.splitlines()
            if all(fact in said for fact in facts):
                return card.id
    return None


def _flat(value: object) -> object:
    """The value with every text on one line: texts of a TURNFILE.yaml may have several."""
    if isinstance(value, dict):
        return {key: _flat(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_flat(item) for item in value]
    return " ".join(value.split())[:200] if isinstance(value, str) else value


def escalate_lock(session: Session, lock: Lock, revision: int, sender: str) -> Held:
    """Ask the maintainer about a lock that blocks the sender; returns the error to raise.

    That is Escalated with the id of the question, or plain Held if the lock has changed in the meantime.
    """
    details: dict[str, Any] = {
        "holder": lock.holder,
        "lock_id": lock.id,
        "acquired_rev": lock.acquired_rev,
        "revision": revision,
    }
    words = f"{lock.holder} has held {', '.join(lock.files)} since revision {lock.acquired_rev} ({lock.id})"
    ledger = session.read()
    if ledger.turnfile.lock(lock.id) != lock:
        return Held(f"{words}, and that changed just now", hint="try again", **details)

    def write_message(mailbox: str, ledger: Ledger) -> tuple[str, str]:
        used, maintainers = _archive(session), ledger.turnfile.maintainers
        return lock_question(mailbox, lock, revision, sender, session.today(), used, maintainers=maintainers)

    def write_signal(ledger: Ledger) -> tuple[Ledger, Signal]:
        return with_blocked_signal(ledger, lock, revision, sender)

    _, signal = write_signal(ledger)
    by_mail = signal not in ledger.turnfile.signals and MAILBOX not in rules.files_of(lock, session.workspace(ledger))
    asked = _ask(session, sender, write_message if by_mail else None, write_signal)
    hint = f"do other work until `holdfast turn status` no longer lists {lock.id}, or the maintainer answers {asked}"
    if lock.holder == sender:
        hint = (
            "the lock is in your own name: if the process that took it was killed,"
            f" `holdfast turn unlock {lock.id}` releases it"
        )
    return Escalated(
        f"{words}, and the revision stayed at {revision} while you waited; {asked} asks the maintainer to decide",
        hint=hint,
        notice=asked,
        **details,
    )


def escalate_edit(
    session: Session, lock: Lock | None, files: Sequence[str], sender: str, cause: Conflict | Forbidden
) -> Escalated:
    """Ask the maintainer about an edit that failed at every retry, and release its lock; returns the error to raise."""
    under = lock.id if lock else "no lock"

    def write_message(mailbox: str, ledger: Ledger) -> tuple[str, str]:
        used, maintainers = _archive(session), ledger.turnfile.maintainers
        revision, date = ledger.revision, session.today()
        return edit_question(
            mailbox, files, cause.message, under, revision, sender, date, used, maintainers=maintainers
        )

    def write_signal(ledger: Ledger) -> tuple[Ledger, Signal]:
        detail = f"gave up editing {', '.join(files)} under {under}: {cause.message}"
        return with_maintainer_signal(ledger, sender, detail)

    asked = _ask(session, sender, write_message, write_signal, released=lock)
    return Escalated(
        f"{cause.message}, at every retry; {asked} asks the maintainer to decide",
        hint="nothing of this edit was written; find out who edits these files without a lock, then retry",
        notice=asked,
        holder=sender,
        lock_id=lock.id if lock else None,
        acquired_rev=lock.acquired_rev if lock else None,
        revision=session.read().revision,
    )


def _ask(
    session: Session, sender: str, message: WriteMessage | None, signal: WriteSignal, released: Lock | None = None
) -> str:
    """Ask by message if that can be written now, else by signal; returns its id. Also removes the lock `released`."""
    asked = _ask_by_mail(session, sender, message, released) if message is not None else None
    if asked is not None:
        return asked
    sent: list[Signal] = []

    def change(ledger: Ledger) -> Ledger:
        after, new = signal(_without_lock(ledger, released))
        sent[:] = [new]
        return after

    session.write(change, sender)
    return sent[0].id


def _ask_by_mail(session: Session, sender: str, write_message: WriteMessage, released: Lock | None) -> str | None:
    """Ask by message, new or still open; returns its id, or None if it cannot be written, and then nothing is.

    The lock that the mailbox needs is taken and released by the same write.
    """
    with session.write_lock():
        ledger = session.fresh()
        after = _without_lock(ledger, released)
        workspace = session.workspace(ledger)
        others = rules.blocking(after.turnfile.locks, [MAILBOX], ledger.revision, workspace)
        busy = any(other.holder != sender or other.transaction for other in others)
        try:
            now = {path: session.folder.read(path) for path in (MAILBOX, PROJECTION)}
            mailbox = now[MAILBOX]
            if mailbox is None:
                return None
            text, message = write_message(mailbox, ledger)
            if busy and text != mailbox:
                return None
            texts, _ = validate_edits({MAILBOX: text}, now, workspace, session.timestamp())
            if texts:
                lock_id = rules.next_lock_id(sender, ledger.text)
                after, _ = with_completion_note(after.with_agent(sender), lock_id, sender, [MAILBOX])
            if after.text != ledger.text:
                texts[TURNFILE] = after.stamped(ledger.revision + 1, sender).text
                session.replace(texts, {**now, TURNFILE: ledger.text})
        except (Invalid, FileChanged):  # the mailbox is broken, or was edited just now: the ledger still takes a signal
            return None
    return message


def _archive(session: Session) -> str:
    """The archive, whose message ids are in use. The caller holds the write lock."""
    return session.folder.read(ARCHIVE) or ""


def _without_lock(ledger: Ledger, lock: Lock | None) -> Ledger:
    return ledger.without_locks(lock.id) if lock is not None and ledger.turnfile.lock(lock.id) == lock else ledger
