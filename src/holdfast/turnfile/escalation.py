"""When waiting for a lock ends: the maintainer is asked to decide, by a message with all that a decision needs.

What is no file is refused. What is merely odd is told as `warnings`: a name that the ledger does not know, a file that
is not there, one that needs no lock.

Pure: a mailbox in, the mailbox with the question out. A question about the same thing is asked once until it is closed.

By a decision-required message, or by a `blocked` signal in the ledger where the mailbox itself is what is locked, or
cannot be written for another reason. Once per lock and acquisition: who finds that somebody has asked asks no more. To
ask is one write of the ledger, since each ages the lease of the very lock that it is about. No clock: only that the
revision stood still over two looks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from holdfast.errors import Conflict, Escalated, Forbidden, Held, Invalid, Outrun
from holdfast.turnfile import ledger as notes
from holdfast.turnfile.invariants import settle
from holdfast.turnfile.ledger import Ledger, check_name, nearest, newcomers, rules
from holdfast.turnfile.mailbox import parse
from holdfast.turnfile.mailbox.cards import TERMINAL
from holdfast.turnfile.mailbox.composition import MAINTAINER, Draft, compose
from holdfast.turnfile.model import ARCHIVE, DEFAULT_LEASE_REVS, MAILBOX, PROJECTION, TURNFILE, Lock, Problem, Signal
from holdfast.turnfile.session import Session

_PATTERN: Final = re.compile(r"[*?\[\]]")


class Claim(msgspec.Struct, frozen=True):
    """What somebody wants to edit, and why; `warnings` tell what may have been mistyped."""

    files: tuple[str, ...]
    holder: str
    reason: str
    lease_revs: int = DEFAULT_LEASE_REVS
    transaction: bool = False
    warnings: tuple[Problem, ...] = ()


def claim_of(
    session: Session, files: Iterable[str], holder: str, reason: str, lease_revs: int = DEFAULT_LEASE_REVS
) -> Claim:
    """A claim with its parts checked and its paths normal. Raises Invalid, or NotFound where there is no ledger."""
    files = [files] if isinstance(files, str) else files  # one file, and not one for each letter of it
    paths = tuple(dict.fromkeys(session.normal(path) for path in files))
    if not paths:
        raise Invalid("no file is named", hint="name at least one file of the session's folder")
    if not reason.strip() or not reason.isprintable():
        raise Invalid("a lock needs a reason, in one line")
    if not 1 <= lease_revs <= 1000:
        raise Invalid(f"lease_revs is {lease_revs}", hint="it is a number of revisions from 1 to 1000; 2 is usual")
    check_name("holder", holder)
    ledger = session.read()
    missing = [path for path in paths if not session.folder.has(path)]
    for path in missing:
        if _PATTERN.search(path):
            raise Invalid(f"{path!r} is a pattern, and no file has that name", hint="name each file", path=path)
    warnings = (*newcomers(ledger, holder), *_doubts(paths, missing, session.guarded(ledger)))
    return Claim(paths, holder, reason.strip(), lease_revs, warnings=warnings)


def _doubts(paths: Iterable[str], missing: Iterable[str], guarded: frozenset[str]) -> Iterator[Problem]:
    """What to say about files that may not be those that were meant."""
    for path in paths:
        like = nearest(path, sorted(guarded))
        if path in missing and path in guarded:
            make = "; `turn init --missing` makes it, empty" if path in rules.REGISTRY else ""
            yield Problem(path, 1, "warning", "missing", f"there is no {path}{make}")
        elif path in missing:
            yield Problem(path, 1, "warning", "missing", f"there is no {path}, and it needs no lock{like}")
        elif path not in guarded:
            yield Problem(path, 1, "warning", "no-lock-needed", f"{path} needs no lock{like}")


def escalation_text(
    text: str, lock: Lock, revision: int, sender: str, date: str, *others: str, maintainers: Sequence[str] = ()
) -> tuple[str, str]:
    """Ask the maintainer to decide about a lock that blocks its contender; once per lock and acquisition.

    Gives the mailbox and the id of the message, which may be one that was sent before.
    """
    lock = msgspec.convert(_flat(msgspec.to_builtins(lock)), Lock)
    facts = [f"- lock_id: {lock.id}", f"- holder: {lock.holder}", f"- acquired_rev: {lock.acquired_rev}"]
    if (before := _question_in(text, facts)) is not None:
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
            f"1. Keep the lock: {lock.holder} finishes and releases it; {sender} goes on waiting.",
            f"2. Ask {lock.holder} to release it now: its edit is started again later.",
            f"3. Override it (`turn override {lock.id}`): {lock.holder} loses it, and its unfinished edit is refused.",
            "",
            "**Recommended:** 2",
            f"**If delayed:** {sender} stays blocked; the revision has not moved over two checks.",
        ]
    )
    subject = f"Lock {lock.id} of {lock.holder} blocks {sender}"
    draft = Draft(sender, MAINTAINER, subject, date, "decision-required", "P0", body, response_by="next turn")
    return compose(text, draft, *others, maintainers=maintainers)


def surrender_text(
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
    """Tell the maintainer that an edit was made again and again in vain; once for the same files and agent."""
    names = ", ".join(files)
    facts = [f"- files: {names}", f"- given up by: {sender}"]
    if (before := _question_in(text, facts)) is not None:
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
            f"1. Find who edits {names} without a lock, and stop that; {sender} makes its edit again.",
            f"2. Let {sender} wait until they are done.",
            "",
            "**Recommended:** 1",
            f"**If delayed:** the edit of {sender} is not made; nothing of it was written.",
        ]
    )
    draft = Draft(sender, MAINTAINER, f"{sender} gave up editing {names}"[:200], date, "decision-required", "P0", body)
    return compose(text, draft, *others, maintainers=maintainers)


def _question_in(text: str, facts: Sequence[str]) -> str | None:
    """The id of a question that says all of this, and is not closed."""
    for card in parse(text).cards:
        if card.get("type") == "decision-required" and card.status not in TERMINAL:
            said = card.body.splitlines()
            if all(fact in said for fact in facts):
                return card.id
    return None


def _flat(value: object) -> object:
    """The same with every text on one line: what a TURNFILE.yaml says may go over many."""
    if isinstance(value, dict):
        return {key: _flat(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_flat(item) for item in value]
    return " ".join(value.split())[:200] if isinstance(value, str) else value


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
        return escalation_text(mailbox, lock, revision, claim.holder, session.today(), used, maintainers=maintainers)

    def tell(ledger: Ledger) -> tuple[Ledger, Signal]:
        return notes.blocked(ledger, lock, revision, claim.holder)

    _, before = notes.blocked(ledger, lock, revision, claim.holder)
    by_mail = before not in ledger.turnfile.signals and MAILBOX not in rules.files_of(lock, session.workspace(ledger))
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
        return surrender_text(
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
        others = rules.blocking(after.turnfile.locks, [MAILBOX], ledger.revision, workspace)
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
                lock_id = rules.next_lock_id(sender, ledger.text)
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
