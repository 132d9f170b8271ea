"""Locks that were taken by hand, given back after the edit: with a note, and what it left out of order is told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from holdfast.errors import NotHolder
from holdfast.turnfile.acquiring import owned, verify
from holdfast.turnfile.editing import Completion, beside
from holdfast.turnfile.ledger import locks, notes
from holdfast.turnfile.ledger.codec import Ledger
from holdfast.turnfile.model import MAILBOX, PROJECTION, QUESTIONS, TURNFILE, WORKLOG, Lock
from holdfast.turnfile.papers import invariants
from holdfast.turnfile.papers.settling import projected
from holdfast.turnfile.session import Session

_CHECKED: Final = (MAILBOX, WORKLOG, QUESTIONS)


def unlock(session: Session, lock_id: str, holder: str) -> Completion:
    """Release a lock of one's own after editing by hand: with the completion note and a fresh projection.

    What the edit left out of order is told as `warnings`, and in the note; the lock goes all the same. Raises NotFound,
    or NotHolder: a lock that went stale, or that another comes before, goes without a note, as its edit may be lost. So
    does one of a transaction whose process was killed: of its edit nothing was written.
    """
    with session.turn():
        ledger = session.fresh()
        lock = owned(ledger, lock_id, holder)
        files = sorted(locks.files_of(lock, session.workspace(ledger)))
        lost = _lost(session, ledger, lock)
        if lock.transaction or lost is not None:
            after = ledger.without_locks(lock_id).stamped(ledger.revision + 1, holder)
            session.replace({TURNFILE: after.text}, {TURNFILE: ledger.text})
            if lock.transaction or lost is None:
                return Completion(lock_id, (), after.revision)
            raise lost
        now = {path: session.folder.read(path) for path in beside([path for path in _CHECKED if path in files])}
        there = {path: text for path, text in now.items() if text is not None}
        problems = [problem for problem in invariants.check(there) if problem.file in files]
        texts: dict[str, str] = {}
        if MAILBOX in files and MAILBOX in there:
            fresh = projected(there[MAILBOX], now[PROJECTION], session.workspace(ledger), session.timestamp())
            if fresh != now[PROJECTION]:
                texts[PROJECTION] = fresh
        broken = any(problem.level == "error" for problem in problems)
        after, signal = notes.completed(ledger.without_locks(lock_id), lock_id, holder, files, broken=broken)
        texts[TURNFILE] = after.stamped(ledger.revision + 1, holder).text
        session.replace(texts, {**now, TURNFILE: ledger.text})
    return Completion(lock_id, tuple(files), ledger.revision + 1, signal.id, tuple(problems))


def unlock_all(session: Session, lock_ids: Iterable[str], holder: str) -> tuple[list[Completion], list[NotHolder]]:
    """Release several locks: what became of those that held, and the errors of those that did not."""
    done: list[Completion] = []
    lost: list[NotHolder] = []
    for lock_id in lock_ids:
        try:
            done.append(unlock(session, lock_id, holder))
        except NotHolder as error:
            lost.append(error)
    return done, lost


def _lost(session: Session, ledger: Ledger, lock: Lock) -> NotHolder | None:
    """The error for a lock that no longer protected its files."""
    try:
        other = verify(session, ledger, lock)
    except NotHolder:
        why = "went stale"
    else:
        if other is None:
            return None
        why = f"lost to {other.id} of {other.holder}, which came before it"
    files = ", ".join(lock.files)
    return NotHolder(
        f"{lock.id} {why}: it is removed, and nothing is noted as complete",
        hint=f"others may have edited {files} beside you: lock it again, look at what it says now, and `turn check`",
        lock_id=lock.id,
        revision=ledger.revision + 1,
    )
