"""Escalation: when a wait or a retry ends without success, the maintainer is asked to decide.

The question is a decision-required message with all that the decision needs, or a `blocked` signal in the ledger if
the mailbox is locked or cannot be written. Each question is asked once until it is closed: once per lock and
acquisition, or once per agent and files. It costs one write of the ledger, because each write ages the lease in
question (decision 0040). Called by `locks` and `transactions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from holdfast.errors import Conflict, Escalated, FileChanged, Forbidden, Held, Invalid
from holdfast.turnfile import archive
from holdfast.turnfile.invariants import validate_edits
from holdfast.turnfile.ledger import Ledger, rules
from holdfast.turnfile.mailbox import parse
from holdfast.turnfile.mailbox.cards import TERMINAL
from holdfast.turnfile.mailbox.draft import MAINTAINER, Draft, compose
from holdfast.turnfile.model import MAILBOX, PROJECTION, TURNFILE, Lock, Signal
from holdfast.turnfile.session import Session

WriteSignal = Callable[[Ledger], tuple[Ledger, Signal]]
"""From a ledger: the ledger with the question as a signal, and that signal."""


class Question(msgspec.Struct, frozen=True):
    """Which agent edits some files next. `facts` identify the question, `more` is what else a decision needs."""

    subject: str
    files: str
    facts: tuple[str, ...]
    more: tuple[str, ...]
    options: tuple[str, ...]
    recommended: int
    if_delayed: str
    response_by: str = ""

    @property
    def body(self) -> str:
        """The text of its message."""
        options = (f"{number}. {option}" for number, option in enumerate(self.options, 1))
        lines = [f"**Decision needed:** who edits {self.files} next", "", *self.facts, *self.more]
        lines += ["", "**Options:**", *options, "", f"**Recommended:** {self.recommended}"]
        return "\n".join([*lines, f"**If delayed:** {self.if_delayed}"])


def lock_question(lock: Lock, revision: int, sender: str) -> Question:
    """The question about a lock that blocks the sender; once per lock and acquisition."""
    id, holder, files = _flat(lock.id), _flat(lock.holder), ", ".join(map(_flat, lock.files))
    return Question(
        f"Lock {id} of {holder} blocks {sender}",
        files,
        facts=(f"- lock_id: {id}", f"- holder: {holder}", f"- acquired_rev: {lock.acquired_rev}"),
        more=(
            f"- last seen coordination.revision: {revision}",
            f"- lease_revs: {lock.lease_revs}",
            f"- reason: {_flat(lock.reason) or 'none given'}",
        ),
        options=(
            f"Keep the lock: {holder} finishes and releases it; {sender} keeps waiting.",
            f"Ask {holder} to release it now, and to start its edit again later.",
            f"Override it (`turn override {id}@{lock.acquired_rev}`): {holder} loses it, and its edit is refused.",
        ),
        recommended=2,
        if_delayed=f"{sender} stays blocked; the revision has not moved over two checks.",
        response_by="next turn",
    )


def edit_question(files: Sequence[str], why: str, lock_id: str, revision: int, sender: str) -> Question:
    """The question about an edit that failed at every retry; once for the same files and sender."""
    names = ", ".join(files)
    return Question(
        f"{sender} gave up editing {names}"[:200],
        names,
        facts=(f"- files: {names}", f"- given up by: {sender}"),
        more=(
            f"- lock_id: {lock_id}",
            f"- last seen coordination.revision: {revision}",
            f"- what happened: {_flat(why)}",
        ),
        options=(
            f"Find out who edits {names} without a lock, and stop that; {sender} retries its edit.",
            f"Let {sender} wait until they are done.",
        ),
        recommended=1,
        if_delayed=f"the edit of {sender} is not made; nothing of it was written.",
    )


def _flat(text: str) -> str:
    """A text on one line: those of a TURNFILE.yaml may have several."""
    return " ".join(text.split())[:200]


def with_question(
    text: str,
    question: Question,
    sender: str,
    date: str,
    *others: str,
    maintainers: Sequence[str] = (),
    everyone: Sequence[str] = (),
) -> tuple[str, str]:
    """Add a question to a mailbox; returns the mailbox and the id of the message.

    If the same question is still open, returns the mailbox unchanged and that id.
    """
    for card in parse(text).cards:
        if card.get("type") == "decision-required" and card.status not in TERMINAL:
            said = card.body.splitlines()
            if all(fact in said for fact in question.facts):
                return text, card.id
    words, due = question.body, question.response_by
    draft = Draft(sender, MAINTAINER, question.subject, date, "decision-required", "P0", words, due)
    return compose(text, draft, *others, maintainers=maintainers, everyone=everyone)


def escalate_lock(session: Session, lock: Lock, revision: int, sender: str) -> Held:
    """Ask the maintainer about a lock that blocks the sender; returns the error to raise.

    That is Escalated with the id of the question, or plain Held if the lock has changed in the meantime.
    """
    ledger = session.read()
    if ledger.turnfile.lock(lock.id) != lock:
        return held_error(lock, revision, "try again", ", and that changed just now")
    facts = f"blocked by {lock.id}: holder {lock.holder}, acquired_rev {lock.acquired_rev}, "
    seen = f"last seen revision {revision}"
    write_signal = partial(Ledger.with_blocked_signal, sender=sender, detail=seen, facts=facts)
    _, signal = write_signal(ledger)
    by_mail = signal not in ledger.turnfile.signals and MAILBOX not in rules.files_of(lock, session.workspace(ledger))
    asked = _ask(session, sender, lock_question(lock, revision, sender) if by_mail else None, write_signal)
    hint = (
        f"do other work until turnfile.status(session) shows {lock.id} as stale or not at all, then try again;"
        f" or until the maintainer answers {asked}"
    )
    if rules.is_stale(lock, session.read().revision):  # it was in its last revision
        hint = f"the question made a revision, so {lock.id} is stale now: try again, and {asked} needs no answer"
    if lock.holder == sender:
        hint = (
            "the lock is in your own name: if the process that took it was killed,"
            f' turnfile.unlock(session, "{lock.id}", holder) releases it'
        )
    waited = f", and the revision stayed at {revision} while you waited; {asked} asks the maintainer to decide"
    return held_error(lock, revision, hint, waited, Escalated, notice=asked)


def held_error(lock: Lock, revision: int, hint: str, more: str = "", kind: type[Held] = Held, **details: Any) -> Held:
    """The error for a file that somebody locks."""
    return kind(
        f"{lock.holder} has held {', '.join(lock.files)} since revision {lock.acquired_rev} ({lock.id}){more}",
        hint=hint,
        holder=lock.holder,
        lock_id=lock.id,
        acquired_rev=lock.acquired_rev,
        revision=revision,
        **details,
    )


def escalate_edit(
    session: Session, lock: Lock | None, files: Sequence[str], sender: str, cause: Conflict | Forbidden
) -> Escalated:
    """Ask the maintainer about an edit that failed at every retry, and release its lock; returns the error to raise."""
    under = lock.id if lock else "no lock"
    question = edit_question(files, cause.message, under, session.read().revision, sender)
    detail = f"gave up editing {', '.join(files)} under {under}: {cause.message}"
    write_signal = partial(Ledger.with_blocked_signal, sender=sender, detail=detail)
    asked = _ask(session, sender, question, write_signal, released=lock)
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
    session: Session, sender: str, question: Question | None, signal: WriteSignal, released: Lock | None = None
) -> str:
    """Ask by message if that can be written now, else by signal; returns its id. Also removes the lock `released`."""
    asked = _ask_by_mail(session, sender, question, released) if question is not None else None
    if asked is not None:
        return asked
    sent: list[Signal] = []

    def change(ledger: Ledger) -> Ledger:
        after, new = signal(ledger.without(released))
        sent[:] = [new]
        return after

    session.write(change, sender)
    return sent[0].id


def _ask_by_mail(session: Session, sender: str, question: Question, released: Lock | None) -> str | None:
    """Ask by message, new or still open; returns its id, or None if it cannot be written, and then nothing is.

    The lock that the mailbox needs is taken and released by the same write.
    """
    with session.write_lock():
        ledger = session.fresh()
        after = ledger.without(released)
        workspace = session.workspace(ledger)
        others = rules.blocking(after.turnfile.locks, [MAILBOX], ledger.revision, workspace)
        busy = any(other.holder != sender or other.transaction for other in others)
        try:
            now = {path: session.folder.read(path) for path in (MAILBOX, PROJECTION)}
            mailbox = now[MAILBOX]
            if mailbox is None:
                return None
            read = partial(session.folder.read, strict=False)
            used = archive.with_ids(session.folder, read)  # whose ids are not given again
            maintainers = ledger.turnfile.maintainers
            joining = ledger.turnfile.joining(sender)
            everyone = ledger.turnfile.everyone_with(joining)
            names = {"maintainers": maintainers, "everyone": everyone}
            text, message = with_question(mailbox, question, sender, session.today(), *used, **names)
            if busy and text != mailbox:
                return None
            lost = archive.lost(session.folder, mailbox, now[PROJECTION])
            texts, _ = validate_edits({MAILBOX: text}, now, workspace, session.timestamp(), everyone, lost)
            if texts:
                lock_id = rules.next_lock_id(sender, ledger.turnfile)
                after, _ = after.with_receivers(joining).with_completion_note(lock_id, sender, [MAILBOX])
            if after.text != ledger.text:
                texts[TURNFILE] = after.stamped(ledger.revision + 1, sender).text
                session.replace(texts, {**now, TURNFILE: ledger.text})
        except (Invalid, FileChanged):  # the mailbox is broken, or was edited just now: the ledger still takes a signal
            return None
    return message
