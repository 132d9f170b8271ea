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
        now = {path: session.folder.read(path) for path in (MAILBOX, PROJECTION, WORKLOG, QUESTIONS)}
        texts = {
            WORKLOG: worklog.note_override(
                now[WORKLOG] or "# Worklog\n", lock, revision, actor, reason, session.today()
            )
        }
        mail = now[MAILBOX]
        if mail is not None and MAILBOX in locks.files_of(lock, workspace):
            texts[MAILBOX] = derived.refresh(document.parse(mail)).text
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
    return Overridden(lock, mine, tuple(changed), revision, (*new, *told, *invariants.check(there)))


def _beside(lock: Lock) -> str:
    return f"{lock.holder} holds it by {lock.id}: what they save by hand may overwrite the entry about the override"
