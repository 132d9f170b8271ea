"""Turn locks of a session: request, acquire, renew, release and clear them, or end one by hand.

A contender that finds a valid lock on its files writes nothing, because each write ages the holder's lease. It checks
again after an interval; if the revision is the same in two checks, the lock is escalated and the wait ends. After a
lock is written the ledger is read again, and a lock that another one precedes is removed. Only revisions count, no
clock.

`unlock` releases the holder's own lock, with the completion note and a fresh projection. `override` removes another's
for a stated P0 reason or hands it to the actor, repairs the mailbox's tables and projection if the lock covered them,
and logs actor, lock, revision and reason in the worklog. Each is one replacement of files. Called by transactions and
by the faces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from holdfast.errors import Held, Invalid, NotFound, NotHolder
from holdfast.turnfile import archive, damage, mailbox
from holdfast.turnfile.damage import unmerged
from holdfast.turnfile.escalation import escalate_lock, held_error
from holdfast.turnfile.files import reach
from holdfast.turnfile.invariants import check, render_projection
from holdfast.turnfile.ledger import Ledger, check_name, new_names, rules, suggestion, unknown_names
from holdfast.turnfile.mailbox import draft, projection
from holdfast.turnfile.mailbox.draft import agent_name
from holdfast.turnfile.model import (
    DEFAULT_LEASE_REVS,
    MAILBOX,
    PROJECTION,
    QUESTIONS,
    TURNFILE,
    WORKLOG,
    Completion,
    Lock,
    Problem,
    with_projection,
)
from holdfast.turnfile.session import Session
from holdfast.turnfile.worklog import note_override

_PATTERN: Final = re.compile(r"[*?\[\]]")
_LONGEST_WAIT: Final = 86400  # seconds between two checks


class LockRequest(msgspec.Struct, frozen=True):
    """The files that a holder wants to lock, and the reason; `warnings` list what may be mistyped."""

    files: tuple[str, ...]
    holder: str
    reason: str
    lease_revs: int = DEFAULT_LEASE_REVS
    transaction: bool = False
    warnings: tuple[Problem, ...] = ()


class WaitPolicy(msgspec.Struct, frozen=True):
    """How to wait for a lock: at most `checks` checks, `interval` seconds apart.

    `pause` sleeps between two checks; the default returns early when the ledger changes.
    """

    interval: float = 30.0
    checks: int = 20
    pause: Callable[[float], None] | None = None


class _Blocked(Exception):
    """A valid lock covers one of the files; nothing was written."""

    def __init__(self, lock: Lock, revision: int) -> None:
        super().__init__(lock.id)
        self.lock = lock
        self.revision = revision


_NEVER_LOCKED: Final = {
    TURNFILE: "every lock is a write to it",
    PROJECTION: f"it is generated from {MAILBOX}",
}


def lock_request(
    session: Session, files: Iterable[str], holder: str, reason: str, lease_revs: int = DEFAULT_LEASE_REVS
) -> LockRequest:
    """Validate a request and normalize its paths. Raises Invalid, or NotFound if there is no ledger.

    An unknown name, a missing file and a file that needs no lock are `warnings`, not errors.
    """
    files = [files] if isinstance(files, str) else files  # one file, not one for each of its letters
    paths = tuple(dict.fromkeys(session.normalize(path) for path in files))
    if not paths:
        raise Invalid("no file given", hint="name at least one file of the session's folder")
    if not reason.strip() or not reason.isprintable():
        raise Invalid("a lock needs a reason of one line")
    if not 1 <= lease_revs <= 1000:
        raise Invalid(f"lease_revs is {lease_revs}", hint="use a number of revisions from 1 to 1000; the default is 2")
    agent_name(check_name("holder", holder), "holder")
    ledger = session.read()
    for path in (path for path in paths if path in _NEVER_LOCKED):
        raise Invalid(f"{path} cannot be locked: {_NEVER_LOCKED[path]}", hint="lock the file that you edit", path=path)
    missing = [path for path in paths if not session.folder.has(path)]
    for path in missing:
        if _PATTERN.search(path):
            raise Invalid(f"{path!r} is a pattern, not a file", hint="name each file", path=path)
    warnings = (*new_names(ledger, holder), *_file_warnings(paths, missing, session.guarded(ledger)))
    return LockRequest(paths, holder, reason.strip(), lease_revs, warnings=warnings)


def _file_warnings(paths: Iterable[str], missing: Iterable[str], guarded: frozenset[str]) -> Iterator[Problem]:
    """Warn about files that may be mistyped: they do not exist, or need no lock."""
    for path in paths:
        like = "" if path in guarded else suggestion(path, sorted(guarded))
        if path in missing and path in guarded:
            make = "; turnfile.restore(session) creates an empty one" if path in rules.REGISTRY else ""
            yield Problem(path, 1, "warning", "missing", f"{path} does not exist{make}")
        elif path in missing:
            yield Problem(path, 1, "warning", "missing", f"{path} does not exist, and needs no lock{like}")
        elif path not in guarded:
            yield Problem(path, 1, "warning", "no-lock-needed", f"{path} needs no lock{like}")


def acquire(
    session: Session, request: LockRequest, wait: WaitPolicy | None = None, ready: Callable[[], None] | None = None
) -> Lock:
    """Lock files. Without `wait`, raises Held at once; with it, Held or Escalated after the wait.

    `ready` is called when no lock is in the way, before anything is written; if it raises, the ledger is unchanged.
    """
    if wait is not None and not 0 <= wait.interval <= _LONGEST_WAIT:
        hint = f"use 0 to {_LONGEST_WAIT}"
        raise Invalid(f"the interval of a wait is {wait.interval} seconds", hint=hint)
    seen: int | None = None
    checks = max(1, wait.checks) if wait is not None else 1
    _yield_beaten(session, request)
    for left in range(checks - 1, -1, -1):
        try:
            return _take(session, request, ready)
        except _Blocked as blocked:
            found = blocked
        if found.revision == seen:
            raise escalate_lock(session, found.lock, found.revision, request.holder)
        if wait is None or not left:
            break
        seen = found.revision
        if wait.pause is not None:
            wait.pause(wait.interval)
        else:
            session.await_change(wait.interval, found.revision)
    raise _held_error(found.lock, found.revision, request.holder)


def _yield_beaten(session: Session, request: LockRequest) -> None:
    """Remove the holder's own locks on these files that another lock precedes: the loser yields, then waits."""
    ledger = session.read()
    workspace = session.workspace(ledger)
    for lock in rules.blocking(ledger.turnfile.locks, request.files, ledger.revision, workspace):
        mine = lock.holder == request.holder and not lock.transaction
        if mine and rules.beaten_by(lock, ledger.turnfile.locks, ledger.revision, workspace) is not None:
            session.drop(lock)


def release(session: Session, lock_id: str, holder: str) -> Ledger:
    """Remove the holder's own lock. Raises NotFound or NotHolder."""

    def change(ledger: Ledger) -> Ledger:
        return ledger.without_locks(get_own_lock(ledger, lock_id, holder).id)

    return session.write(change, holder)


def renew_all(session: Session, lock_ids: Sequence[str], holder: str) -> list[Lock]:
    """Restart the leases of the holder's own locks in one write, so that none ages another: all of them, or none.

    Raises Held if another valid lock covers one of their files; a lock that the other one precedes is removed.
    """

    def change(ledger: Ledger) -> Ledger:
        for lock_id in lock_ids:
            ledger = renewed(session, ledger, get_own_lock(ledger, lock_id, holder))
        return ledger

    before = session.read()
    for lock in (get_own_lock(before, lock_id, holder) for lock_id in lock_ids):
        first = rules.beaten_by(lock, before.turnfile.locks, before.revision, session.workspace(before))
        if first is not None:
            session.drop(lock)
            raise _held_error(first, before.revision, holder)
    after = session.write(change, holder)
    return [get_own_lock(after, lock_id, holder) for lock_id in lock_ids]


def renewed(session: Session, ledger: Ledger, lock: Lock) -> Ledger:
    """The ledger with a lock's lease restarted. Raises Held if another valid lock covers one of its files."""
    workspace = session.workspace(ledger)
    others = rules.blocking(ledger.turnfile.locks, lock.files, ledger.revision, workspace, but=lock.id)
    if others:
        raise _held_error(others[0], ledger.revision, lock.holder)
    return ledger.with_lock(msgspec.structs.replace(lock, acquired_rev=ledger.revision + 1))


def clear_stale(session: Session, actor: str, lock_ids: Sequence[str] = ()) -> list[Lock]:
    """Remove stale locks of any holder, all or those named. Raises Held for a named one that is still valid."""
    agent_name(check_name("actor", actor), "actor")
    cleared: list[Lock] = []

    def change(ledger: Ledger) -> Ledger:
        named = [get_lock(ledger, lock_id) for lock_id in lock_ids]
        for lock in named:
            if not rules.is_stale(lock, ledger.revision):
                left = rules.revisions_left(lock, ledger.revision)
                message = (
                    f"{lock.id}, held by {lock.holder}, is valid at revision {ledger.revision};"
                    f" it is stale from revision {ledger.revision + left + 1} on"
                )
                hint = "ask its holder or the maintainer; turnfile.override(...) needs a P0 reason"
                raise Held(message, hint=hint, holder=lock.holder, lock_id=lock.id)
        stale = [lock for lock in named or ledger.turnfile.locks if rules.is_stale(lock, ledger.revision)]
        cleared[:] = stale
        return ledger.without_locks(*(lock.id for lock in stale))

    session.write(change, actor)
    return cleared


def verify(session: Session, ledger: Ledger, lock: Lock) -> Lock | None:
    """The lock that precedes this one, or None if none does. Raises NotHolder if this one is stale or gone."""
    there = ledger.turnfile.lock(lock.id)
    mine = there is not None and (there.holder, there.acquired_rev) == (lock.holder, lock.acquired_rev)
    if not mine or rules.is_stale(lock, ledger.revision):
        words = "it went stale" if mine else "somebody removed or replaced it"
        hint = "lock the files again with turnfile.acquire(session, request), and edit their current text"
        raise NotHolder(f"{lock.id} is no longer held: {words}", hint=hint, lock_id=lock.id, revision=ledger.revision)
    return rules.beaten_by(lock, ledger.turnfile.locks, ledger.revision, session.workspace(ledger))


def _take(session: Session, request: LockRequest, ready: Callable[[], None] | None) -> Lock:
    taken: list[Lock] = []
    if ready is not None:
        _check_free(session, session.read(), request)
        ready()

    def change(ledger: Ledger) -> Ledger:
        workspace = session.workspace(ledger)
        _check_free(session, ledger, request)
        stale = rules.overlapping(ledger.turnfile.locks, request.files, workspace)
        lock = Lock(
            rules.next_lock_id(request.holder, ledger.turnfile),
            tuple(rules.ledger_path(path, workspace) for path in request.files),
            request.holder,
            ledger.revision + 1,
            request.lease_revs,
            request.reason,
            request.transaction,
        )
        taken[:] = [lock]
        return ledger.without_locks(*(other.id for other in stale)).with_agent(request.holder).with_lock(lock)

    session.write(change, request.holder)
    [lock] = taken
    reach("lock.acquired")
    fresh = session.read()
    try:
        before = verify(session, fresh, lock)
    except NotHolder:
        before = next(iter(rules.overlapping(fresh.turnfile.locks, request.files, session.workspace(fresh))), None)
        raise _Blocked(before or lock, fresh.revision) from None
    if before is not None:
        release(session, lock.id, request.holder)
        raise _Blocked(before, fresh.revision)
    return lock


def _check_free(session: Session, ledger: Ledger, request: LockRequest) -> None:
    """Raises _Blocked if a valid lock covers one of the files, and Held at once for the holder's own manual lock.

    A holder never waits for its own manual lock; a transaction of another process of the same name ends by itself.
    """
    others = rules.blocking(ledger.turnfile.locks, request.files, ledger.revision, session.workspace(ledger))
    for lock in others:
        if lock.holder == request.holder and not lock.transaction:
            covered = rules.files_of(lock, session.workspace(ledger)).issuperset(request.files)
            raise _held_error(lock, ledger.revision, request.holder, covered)
    if others:
        raise _Blocked(others[0], ledger.revision)


def _held_error(lock: Lock, revision: int, wanted_by: str, covered: bool = False) -> Held:
    """The error for files that a lock covers; `covered`: all that were asked for."""
    hint = "wait until it is released or stale; turnfile.status(session) shows the revisions left"
    if lock.holder == wanted_by:
        renew = f'turnfile.renew_all(session, ["{lock.id}"], holder) restarts its lease'
        release = f'turnfile.unlock(session, "{lock.id}", holder) releases it'
        hint = f"this lock is your own: {release}, so that you can lock all files at once; {renew}"
        if covered:
            hint = f"this lock is your own: edit the file; {renew}, {release}"
    if lock.holder == wanted_by and lock.transaction:
        hint = f'another process of that name holds it; if it was killed, turnfile.unlock(session, "{lock.id}", holder)'
        hint += " releases it"
    return held_error(lock, revision, hint)


def get_lock(ledger: Ledger, lock_id: str) -> Lock:
    """A lock by its id, or by id and revision: `LOCK-ada-001@7` is the one acquired at revision 7. Raises NotFound.

    An id may be used again, by other tools at least; the revision says which lock is meant.
    """
    lock = ledger.turnfile.lock(lock_id)
    hint = "turnfile.status(session) lists the locks"
    if lock is not None:
        return lock
    id, _, revision = lock_id.rpartition("@")
    lock = ledger.turnfile.lock(id) if revision.isdecimal() else None
    if lock is None:
        raise NotFound(f"there is no lock {lock_id!r}", hint=hint, lock_id=lock_id)
    if lock.acquired_rev != int(revision):
        words = f"{id} is not the lock of revision {revision} any more"
        if int(revision) > lock.acquired_rev:
            words = f"{id} was not acquired at revision {revision}"
        words += f": {lock.holder} acquired it at {lock.acquired_rev}"
        raise NotFound(words, hint=hint, lock_id=lock_id)
    return lock


def get_own_lock(ledger: Ledger, lock_id: str, holder: str) -> Lock:
    """A lock by its id. Raises NotFound, or NotHolder if it is not the holder's own."""
    lock = get_lock(ledger, lock_id)
    if lock.holder != holder:
        hint = f"ask {lock.holder}, or wait until it is stale; turnfile.status(session) shows the revisions left"
        message = f"{lock_id} is held by {lock.holder}, not by {holder}"
        raise NotHolder(message, hint=hint, holder=lock.holder, lock_id=lock_id)
    return lock


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
        checked = [path for path in (MAILBOX, WORKLOG, QUESTIONS) if path in files]
        now = {path: session.folder.read(path) for path in with_projection(checked)}
        there = {path: text for path, text in now.items() if text is not None}
        problems = [problem for problem in check(there, None, ledger.turnfile.everyone) if problem.file in files]
        texts: dict[str, str] = {}
        if MAILBOX in files and MAILBOX in there and unmerged(MAILBOX, there[MAILBOX]) is None:
            gone = archive.lost(session.folder, there[MAILBOX], now[PROJECTION])
            place = session.workspace(ledger)
            fresh = render_projection(there[MAILBOX], now[PROJECTION], place, session.timestamp(), gone)
            if fresh != now[PROJECTION]:
                texts[PROJECTION] = fresh
        broken = any(problem.level == "error" for problem in problems)
        after, signal = ledger.without_locks(lock_id).with_completion_note(lock_id, holder, files, broken=broken)
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
    message = f"{lock.id} {why}: it is removed, and the edit is not noted as complete"
    hint = f"others may have edited {files} too: lock it again, read it, and run turnfile.check(session)"
    return NotHolder(message, hint=hint, lock_id=lock.id, revision=ledger.revision + 1)


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
        hint = "start it with P0 and say what is at stake, such as 'P0: the release waits for it'"
        raise Invalid("an override needs a P0 reason", hint=hint)
    reason = draft.one_line(reason, "reason")
    agent_name(check_name("actor", actor), "actor")
    with session.write_lock():
        ledger = session.fresh()
        lock = get_lock(ledger, lock_id)
        workspace, revision = session.workspace(ledger), ledger.revision + 1
        now, unread = _read(session, lock, workspace)
        texts = {WORKLOG: note_override(now[WORKLOG] or "# Worklog\n", lock, revision, actor, reason, session.today())}
        if (mail := now.get(MAILBOX)) is not None:
            texts[MAILBOX] = projection.refresh(mailbox.parse(mail), ledger.turnfile.everyone).text
            if PROJECTION in now:
                gone, at = archive.lost(session.folder, mail, now[PROJECTION]), session.timestamp()
                texts[PROJECTION] = render_projection(texts[MAILBOX], now[PROJECTION], workspace, at, gone)
        lock_id = lock.id
        after = ledger.without_locks(lock_id)
        mine = None
        if take:
            mine = Lock(
                rules.next_lock_id(actor, ledger.turnfile), lock.files, actor, revision, DEFAULT_LEASE_REVS, reason
            )
            after = after.with_agent(actor).with_lock(mine)
        detail = f"override of {lock_id} at revision {revision}: {reason}"
        after, _ = after.with_new_signal(actor, lock.holder, "notify", detail)
        log_locks = rules.blocking(after.turnfile.locks, [WORKLOG], ledger.revision, workspace)
        busy = [each for each in log_locks if each.holder != actor]
        for each in busy:  # the log is written all the same: signal its editor, and warn the actor
            words = f"{WORKLOG}, which you lock by {each.id}, has a new entry about {lock_id}: read it before you save"
            after, _ = after.with_new_signal(actor, each.holder, "notify", words)
        texts[TURNFILE] = after.stamped(revision, actor).text
        changed = {path: text for path, text in texts.items() if text != now.get(path)}
        session.replace(changed, {**now, TURNFILE: ledger.text})
    names = new_names(ledger, actor) if take else unknown_names(ledger, actor)
    there = {path: text for path, text in {**now, **texts}.items() if text is not None}
    locked = [Problem(WORKLOG, 1, "warning", "locked", _busy_log_warning(each)) for each in busy]
    return OverrideResult(
        lock, mine, tuple(changed), revision, (*names, *locked, *unread, *check(there, None, ledger.turnfile.everyone))
    )


def _read(session: Session, lock: Lock, workspace: str) -> tuple[dict[str, str | None], list[Problem]]:
    """The worklog and the files that the lock covers; an unreadable file only prevents its own repair."""
    try:
        now = {WORKLOG: session.folder.read(WORKLOG)}
        damage.refuse(WORKLOG, now[WORKLOG] or "")
    except Invalid as error:
        hint = f"an override is logged in {WORKLOG}: repair it first, or move it away"
        raise Invalid(error.message, hint=hint, path=WORKLOG) from error
    covered = rules.files_of(lock, workspace)
    wanted = [*((MAILBOX, PROJECTION) if MAILBOX in covered else ()), *((QUESTIONS,) if QUESTIONS in covered else ())]
    unread = []
    for path in wanted:
        try:
            text = session.folder.read(path)
            if (line := unmerged(path, text or "")) is not None:
                unread.append(Problem(path, line, "error", damage.CONFLICT, damage.WORDS))
            else:
                now[path] = text
        except Invalid as error:
            unread.append(Problem(path, 1, "error", "unreadable", error.message))
    return now, unread


def _busy_log_warning(lock: Lock) -> str:
    return f"{lock.holder} locks it by {lock.id}, and may overwrite the entry about the override when saving"
