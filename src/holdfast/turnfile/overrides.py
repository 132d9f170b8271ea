"""Giving back a lock taken by hand, and the emergency override for a stated P0 reason.

One replacement: the lock goes (or becomes the actor's), the mailbox's tables and projection are made to agree with its
cards if the lock covered them, and the worklog says who did it, to which lock, at which revision and why.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from holdfast.errors import Invalid, NotHolder
from holdfast.turnfile import mailbox
from holdfast.turnfile.edits import Completion, beside
from holdfast.turnfile.invariants import check, projected
from holdfast.turnfile.ledger import Ledger, check_name, completed, newcomers, next_signal_id, rules, strangers
from holdfast.turnfile.locks import known, owned, verify
from holdfast.turnfile.mailbox import composition, derived
from holdfast.turnfile.model import (
    DEFAULT_LEASE_REVS,
    MAILBOX,
    PROJECTION,
    QUESTIONS,
    TURNFILE,
    WORKLOG,
    Lock,
    Problem,
    Signal,
)
from holdfast.turnfile.session import Session
from holdfast.turnfile.worklog import note_override

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
        files = sorted(rules.files_of(lock, session.workspace(ledger)))
        lost = _lost(session, ledger, lock)
        if lock.transaction or lost is not None:
            after = ledger.without_locks(lock_id).stamped(ledger.revision + 1, holder)
            session.replace({TURNFILE: after.text}, {TURNFILE: ledger.text})
            if lock.transaction or lost is None:
                return Completion(lock_id, (), after.revision)
            raise lost
        now = {path: session.folder.read(path) for path in beside([path for path in _CHECKED if path in files])}
        there = {path: text for path, text in now.items() if text is not None}
        problems = [problem for problem in check(there) if problem.file in files]
        texts: dict[str, str] = {}
        if MAILBOX in files and MAILBOX in there:
            fresh = projected(there[MAILBOX], now[PROJECTION], session.workspace(ledger), session.timestamp())
            if fresh != now[PROJECTION]:
                texts[PROJECTION] = fresh
        broken = any(problem.level == "error" for problem in problems)
        after, signal = completed(ledger.without_locks(lock_id), lock_id, holder, files, broken=broken)
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


class Overridden(msgspec.Struct, frozen=True):
    """What an override did: to which lock, what took its place, which files it put in order, what is still wrong."""

    lock: Lock
    replaced_by: Lock | None
    files: tuple[str, ...]
    revision: int
    problems: tuple[Problem, ...]


def override(session: Session, lock_id: str, reason: str, actor: str, *, take: bool = False) -> Overridden:
    """Remove somebody's lock; with `take` the actor gets one on the same files. Raises Invalid without a P0 reason."""
    if not re.match(r"\s*P0\b\W*\w", reason):  # at the beginning, where nothing before it can deny it
        raise Invalid(
            "an override needs a P0 reason", hint="it begins with P0 and says what is at stake: --reason 'P0: ...'"
        )
    reason = composition.one_line(reason, "reason")
    check_name("actor", actor)
    with session.turn():
        ledger = session.fresh()
        lock = known(ledger, lock_id)
        workspace, revision = session.workspace(ledger), ledger.revision + 1
        now, unread = _read(session, lock, workspace)
        texts = {WORKLOG: note_override(now[WORKLOG] or "# Worklog\n", lock, revision, actor, reason, session.today())}
        if (mail := now.get(MAILBOX)) is not None:
            texts[MAILBOX] = derived.refresh(mailbox.parse(mail)).text
            if PROJECTION in now:
                texts[PROJECTION] = projected(texts[MAILBOX], now[PROJECTION], workspace, session.timestamp())
        after = ledger.without_locks(lock_id)
        mine = None
        if take:
            mine = Lock(rules.next_lock_id(actor, ledger.text), lock.files, actor, revision, DEFAULT_LEASE_REVS, reason)
            after = after.knowing(actor).with_lock(mine)
        detail = f"override of {lock_id} at revision {revision}: {reason}"
        number = next_signal_id(ledger.turnfile.signals)
        after = after.with_signal(Signal(number, actor, lock.holder, "notify", revision, detail))
        log_locks = rules.blocking(after.turnfile.locks, [WORKLOG], ledger.revision, workspace)
        busy = [each for each in log_locks if each.holder != actor]
        for each in busy:  # the log must be written all the same: who edits it is told, and so is the actor
            number = next_signal_id(after.turnfile.signals)
            words = f"{WORKLOG}, which you hold by {each.id}, has a new entry about {lock_id}: read it before you save"
            after = after.with_signal(Signal(number, actor, each.holder, "notify", revision, words))
        texts[TURNFILE] = after.stamped(revision, actor).text
        changed = {path: text for path, text in texts.items() if text != now.get(path)}
        session.replace(changed, {**now, TURNFILE: ledger.text})
    new = newcomers(ledger, actor) if take else strangers(ledger, actor)
    there = {path: text for path, text in {**now, **texts}.items() if text is not None}
    told = [Problem(WORKLOG, 1, "warning", "locked", _beside(each)) for each in busy]
    return Overridden(lock, mine, tuple(changed), revision, (*new, *told, *unread, *check(there)))


def _read(session: Session, lock: Lock, workspace: str) -> tuple[dict[str, str | None], list[Problem]]:
    """The worklog, and what the lock covers. A file that is no text stops nothing but its own repair."""
    try:
        now = {WORKLOG: session.folder.read(WORKLOG)}
    except Invalid as error:
        hint = f"an override is logged in {WORKLOG}: mend it first, or move it away"
        raise Invalid(error.message, hint=hint, path=WORKLOG) from error
    covered = rules.files_of(lock, workspace)
    wanted = [*((MAILBOX, PROJECTION) if MAILBOX in covered else ()), *((QUESTIONS,) if QUESTIONS in covered else ())]
    unread = []
    for path in wanted:
        try:
            now[path] = session.folder.read(path)
        except Invalid as error:
            unread.append(Problem(path, 1, "error", "unreadable", error.message))
    return now, unread


def _beside(lock: Lock) -> str:
    return f"{lock.holder} holds it by {lock.id}: what they save by hand may overwrite the entry about the override"
