"""The emergency way past a lock: for a P0 reason that is stated, and leaves a trace.

One replacement: the lock goes (or becomes the actor's), the mailbox's tables and projection are made to agree with its
cards if the lock covered them, and the worklog says who did it, to which lock, at which revision and why.
"""

from __future__ import annotations

import re

import msgspec

from holdfast.errors import Invalid
from holdfast.turnfile.acquiring import known
from holdfast.turnfile.ledger import locks
from holdfast.turnfile.ledger.codec import check_name, next_signal_id
from holdfast.turnfile.ledger.people import newcomers, strangers
from holdfast.turnfile.mailbox import composing, derived, document
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
from holdfast.turnfile.papers import invariants, worklog
from holdfast.turnfile.papers.settling import projected
from holdfast.turnfile.session import Session


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
    reason = composing.one_line(reason, "reason")
    check_name("actor", actor)
    with session.turn():
        ledger = session.fresh()
        lock = known(ledger, lock_id)
        workspace, revision = session.workspace(ledger), ledger.revision + 1
        now, unread = _read(session, lock, workspace)
        texts = {
            WORKLOG: worklog.note_override(
                now[WORKLOG] or "# Worklog\n", lock, revision, actor, reason, session.today()
            )
        }
        if (mail := now.get(MAILBOX)) is not None:
            texts[MAILBOX] = derived.refresh(document.parse(mail)).text
            if PROJECTION in now:
                texts[PROJECTION] = projected(texts[MAILBOX], now[PROJECTION], workspace, session.timestamp())
        after = ledger.without_locks(lock_id)
        mine = None
        if take:
            mine = Lock(locks.next_lock_id(actor, ledger.text), lock.files, actor, revision, DEFAULT_LEASE_REVS, reason)
            after = after.knowing(actor).with_lock(mine)
        detail = f"override of {lock_id} at revision {revision}: {reason}"
        number = next_signal_id(ledger.turnfile.signals)
        after = after.with_signal(Signal(number, actor, lock.holder, "notify", revision, detail))
        log_locks = locks.blocking(after.turnfile.locks, [WORKLOG], ledger.revision, workspace)
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
    return Overridden(lock, mine, tuple(changed), revision, (*new, *told, *unread, *invariants.check(there)))


def _read(session: Session, lock: Lock, workspace: str) -> tuple[dict[str, str | None], list[Problem]]:
    """The worklog, and what the lock covers. A file that is no text stops nothing but its own repair."""
    try:
        now = {WORKLOG: session.folder.read(WORKLOG)}
    except Invalid as error:
        hint = f"an override is logged in {WORKLOG}: mend it first, or move it away"
        raise Invalid(error.message, hint=hint, path=WORKLOG) from error
    covered = locks.files_of(lock, workspace)
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
