"""Ending a lock by hand: `unlock` releases the holder's own, `override` removes another's for a stated P0 reason.

Each is one replacement of files. `unlock` adds the completion note and a fresh projection. `override` removes the lock
or hands it to the actor, repairs the mailbox's tables and projection if the lock covered them, and logs actor, lock,
revision and reason in the worklog. Called by the faces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from holdfast.errors import Invalid, NotFound, NotHolder
from holdfast.turnfile import mailbox
from holdfast.turnfile.invariants import check, render_projection
from holdfast.turnfile.ledger import (
    Ledger,
    check_name,
    new_names,
    next_signal_id,
    rules,
    unknown_names,
    with_completion_note,
)
from holdfast.turnfile.locks import get_lock, get_own_lock, verify
from holdfast.turnfile.mailbox import draft, projection
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
from holdfast.turnfile.transactions import Completion, with_projection
from holdfast.turnfile.worklog import note_override

_CHECKED: Final = (MAILBOX, WORKLOG, QUESTIONS)


def unlock(session: Session, lock_id: str, holder: str) -> Completion:
    """Release the holder's own lock after an edit by hand, with the completion note and a fresh projection.

    Problems that the edit left are `warnings`, and the note mentions them; the lock is released all the same. Raises
    NotFound, or NotHolder if the lock went stale or another one precedes it: it is then removed without a note,
    because others may have edited the files. A transaction's lock, left by a killed process, gets no note either:
    nothing of its edit was written.
    """
    with session.write_lock():
        ledger = session.fresh()
        lock = get_own_lock(ledger, lock_id, holder)
        files = sorted(rules.files_of(lock, session.workspace(ledger)))
        lost = _lost_lock_error(session, ledger, lock)
        if lock.transaction or lost is not None:
            after = ledger.without_locks(lock_id).stamped(ledger.revision + 1, holder)
            session.replace({TURNFILE: after.text}, {TURNFILE: ledger.text})
            if lock.transaction or lost is None:
                return Completion(lock_id, (), after.revision)
            raise lost
        now = {
            path: session.folder.read(path) for path in with_projection([path for path in _CHECKED if path in files])
        }
        there = {path: text for path, text in now.items() if text is not None}
        problems = [problem for problem in check(there) if problem.file in files]
        texts: dict[str, str] = {}
        if MAILBOX in files and MAILBOX in there:
            fresh = render_projection(there[MAILBOX], now[PROJECTION], session.workspace(ledger), session.timestamp())
            if fresh != now[PROJECTION]:
                texts[PROJECTION] = fresh
        broken = any(problem.level == "error" for problem in problems)
        after, signal = with_completion_note(ledger.without_locks(lock_id), lock_id, holder, files, broken=broken)
        texts[TURNFILE] = after.stamped(ledger.revision + 1, holder).text
        session.replace(texts, {**now, TURNFILE: ledger.text})
    return Completion(lock_id, tuple(files), ledger.revision + 1, signal.id, tuple(problems))


def unlock_all(
    session: Session, lock_ids: Iterable[str], holder: str
) -> tuple[list[Completion], dict[str, NotHolder | NotFound]]:
    """Release several locks; returns the completions, and the error of each lock that was lost, by its id."""
    done: list[Completion] = []
    lost: dict[str, NotHolder | NotFound] = {}
    for lock_id in lock_ids:
        try:
            done.append(unlock(session, lock_id, holder))
        except (NotHolder, NotFound) as error:
            lost[lock_id] = error
    return done, lost


def _lost_lock_error(session: Session, ledger: Ledger, lock: Lock) -> NotHolder | None:
    """The error for a lock that no longer protects its files; None if it does."""
    try:
        other = verify(session, ledger, lock)
    except NotHolder:
        why = "went stale"
    else:
        if other is None:
            return None
        why = f"lost to {other.id} of {other.holder}, which precedes it"
    files = ", ".join(lock.files)
    return NotHolder(
        f"{lock.id} {why}: it is removed, and the edit is not noted as complete",
        hint=f"others may have edited {files} too: lock it again, read it, and run `holdfast turn check`",
        lock_id=lock.id,
        revision=ledger.revision + 1,
    )


class OverrideResult(msgspec.Struct, frozen=True):
    """The result of an override: the lock, its replacement, the files it changed, and the remaining problems."""

    lock: Lock
    replaced_by: Lock | None
    files: tuple[str, ...]
    revision: int
    problems: tuple[Problem, ...]


def override(session: Session, lock_id: str, reason: str, actor: str, *, take: bool = False) -> OverrideResult:
    """Remove another's lock; with `take`, the actor gets one on the same files. Raises Invalid without a P0 reason."""
    if not re.match(r"\s*P0\b\W*\w", reason):  # at the start, where no earlier word can negate it
        raise Invalid(
            "an override needs a P0 reason", hint="start it with P0 and say what is at stake: --reason 'P0: ...'"
        )
    reason = draft.one_line(reason, "reason")
    check_name("actor", actor)
    with session.write_lock():
        ledger = session.fresh()
        lock = get_lock(ledger, lock_id)
        workspace, revision = session.workspace(ledger), ledger.revision + 1
        now, unread = _read(session, lock, workspace)
        texts = {WORKLOG: note_override(now[WORKLOG] or "# Worklog\n", lock, revision, actor, reason, session.today())}
        if (mail := now.get(MAILBOX)) is not None:
            texts[MAILBOX] = projection.refresh(mailbox.parse(mail)).text
            if PROJECTION in now:
                texts[PROJECTION] = render_projection(texts[MAILBOX], now[PROJECTION], workspace, session.timestamp())
        after = ledger.without_locks(lock_id)
        mine = None
        if take:
            mine = Lock(rules.next_lock_id(actor, ledger.text), lock.files, actor, revision, DEFAULT_LEASE_REVS, reason)
            after = after.with_agent(actor).with_lock(mine)
        detail = f"override of {lock_id} at revision {revision}: {reason}"
        number = next_signal_id(ledger.turnfile.signals)
        after = after.with_signal(Signal(number, actor, lock.holder, "notify", revision, detail))
        log_locks = rules.blocking(after.turnfile.locks, [WORKLOG], ledger.revision, workspace)
        busy = [each for each in log_locks if each.holder != actor]
        for each in busy:  # the log is written all the same: signal its editor, and warn the actor
            number = next_signal_id(after.turnfile.signals)
            words = f"{WORKLOG}, which you lock by {each.id}, has a new entry about {lock_id}: read it before you save"
            after = after.with_signal(Signal(number, actor, each.holder, "notify", revision, words))
        texts[TURNFILE] = after.stamped(revision, actor).text
        changed = {path: text for path, text in texts.items() if text != now.get(path)}
        session.replace(changed, {**now, TURNFILE: ledger.text})
    names = new_names(ledger, actor) if take else unknown_names(ledger, actor)
    there = {path: text for path, text in {**now, **texts}.items() if text is not None}
    locked = [Problem(WORKLOG, 1, "warning", "locked", _busy_log_warning(each)) for each in busy]
    return OverrideResult(lock, mine, tuple(changed), revision, (*names, *locked, *unread, *check(there)))


def _read(session: Session, lock: Lock, workspace: str) -> tuple[dict[str, str | None], list[Problem]]:
    """The worklog and the files that the lock covers; an unreadable file only prevents its own repair."""
    try:
        now = {WORKLOG: session.folder.read(WORKLOG)}
    except Invalid as error:
        hint = f"an override is logged in {WORKLOG}: repair it first, or move it away"
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


def _busy_log_warning(lock: Lock) -> str:
    return f"{lock.holder} locks it by {lock.id}, and may overwrite the entry about the override when saving"
