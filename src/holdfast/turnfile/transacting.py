"""An edit of shared files as one transaction: the nine steps of the locking contract.

Acquire the lock and verify it, read the files, edit them in memory; then, in one turn to write: check that the lock
still holds and that nobody changed the files, check the invariants, and replace the files, the projection and the
ledger, without the lock and with the completion note, all or none. A file that changed meanwhile means that the edit
is made again on what it says now, at most three times; any other failure leaves every file as it was.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from holdfast.errors import Held, HoldfastError, Invalid, NotHolder, Outrun
from holdfast.turnfile.acquiring import Claim, Patience, acquire, claim_of, owned, release, verify
from holdfast.turnfile.failpoints import reach
from holdfast.turnfile.ledger import locks, notes
from holdfast.turnfile.ledger.codec import Ledger
from holdfast.turnfile.model import DEFAULT_LEASE_REVS, MAILBOX, PROJECTION, QUESTIONS, TURNFILE, WORKLOG, Lock, Problem
from holdfast.turnfile.papers.settling import projected, settle
from holdfast.turnfile.session import Session, outrun

REAPPLIED: Final = 3
_AGAIN: Final = 100  # turns of other processes of the same name
_SOON: Final = 0.5  # seconds
_CHECKED: Final = (MAILBOX, WORKLOG, QUESTIONS, PROJECTION)


class Completion(msgspec.Struct, frozen=True):
    """What a transaction did: under which lock, which files, and at which revision the ledger is now."""

    lock_id: str | None
    files: tuple[str, ...]
    revision: int
    signal_id: str | None = None
    warnings: tuple[Problem, ...] = ()
    result: Any = None


class _Unchanged(Exception):
    """A rehearsal changed nothing: there is no need for a lock."""

    def __init__(self, completion: Completion) -> None:
        super().__init__("nothing to write")
        self.completion = completion


class Transaction:
    """The files of one edit, as the edit sees them. `ledger` is what the ledger said when it began."""

    def __init__(self, session: Session, claim: Claim, lock: Lock | None, keep: bool) -> None:
        self.session = session
        self.claim = claim
        self.lock = lock
        self.keep = keep  # the lock was there before, and stays
        texts = session.texts([TURNFILE, *claim.files])
        self.ledger: Ledger = session.ledger(texts[TURNFILE])
        self._before = {path: texts[path] for path in claim.files}
        self._edits: dict[str, str] = {}
        self._result: Any = None
        self._made = False
        self.completion: Completion | None = None

    def read(self, path: str) -> str | None:
        """What a file says, with the edits made so far; None if it is not there."""
        path = self._named(path)
        return self._edits.get(path, self._before[path])

    def write(self, path: str, text: str) -> None:
        """Give a file a new text. Nothing is on disk before the transaction ends."""
        path = self._named(path)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise Invalid(f"{path}: half of a surrogate pair cannot be written") from error
        self._edits[path] = text

    def _named(self, path: str) -> str:
        normal = self.session.normal(path)
        if normal not in self._before:
            raise Invalid(f"{normal} is no file of this transaction", hint="name it when the transaction begins")
        return normal

    def rehearse(self, body: Callable[[Transaction], Any]) -> None:
        """Run a body and check what it makes, on a plain read. Raises what a commit would, or _Unchanged."""
        self._result = body(self)
        now = self.session.texts([*_CHECKED, *self._before])
        if any(now[path] != before for path, before in self._before.items()):
            return  # it is made again under the lock, and judged there
        workspace = self.session.workspace(self.ledger)
        texts, warnings = settle(self._edits, now, workspace, self.session.timestamp())
        if not texts:
            raise _Unchanged(Completion(None, (), self.ledger.revision, None, tuple(warnings), self._result))

    def adopt(self, rehearsed: Transaction) -> bool:
        """Make the edit of a rehearsal one's own; False if the files say something else now."""
        if rehearsed._before != self._before:
            return False
        self._edits, self._result, self._made = dict(rehearsed._edits), rehearsed._result, True
        return True

    def make(self, body: Callable[[Transaction], Any]) -> Any:
        """Run a body, unless its rehearsal was adopted; answers what it answered."""
        return self._result if self._made else body(self)

    def commit(self, result: Any = None) -> Completion:
        """Steps 5 to 9. Raises Outrun, NotHolder, or Invalid with `problems`; then nothing is written."""
        session, lock = self.session, self.lock
        with session.turn():
            ledger = session.fresh()
            if lock is not None and (other := verify(session, ledger, lock)) is not None:
                raise NotHolder(f"{other.id} of {other.holder} comes before {lock.id}", lock_id=lock.id)
            for path, before in self._before.items():
                if session.folder.read(path) != before:
                    raise outrun(path)
            now = {path: session.folder.read(path) for path in (*_CHECKED, *self._before)}
            texts, warnings = settle(self._edits, now, session.workspace(ledger), session.timestamp())
            after, signal = self._released(ledger, [path for path in texts if path != PROJECTION])
            reach("targets.checked")
            if after is not ledger:
                texts[TURNFILE] = after.stamped(ledger.revision + 1, self.claim.holder).text
            if texts:
                session.replace(texts, {**now, TURNFILE: ledger.text})
        reach("lock.released")
        changed = tuple(path for path in texts if path not in (TURNFILE, PROJECTION))
        revision = ledger.revision + (TURNFILE in texts)
        lock_id = lock.id if lock is not None else None
        self.completion = Completion(lock_id, changed, revision, signal, tuple(warnings), result)
        return self.completion

    def _released(self, ledger: Ledger, changed: list[str]) -> tuple[Ledger, str | None]:
        if self.lock is None:
            return ledger, None
        after, signal = (ledger if self.keep else ledger.without_locks(self.lock.id)), None
        if changed:
            after, note = notes.completed(after, self.lock.id, self.claim.holder, changed)
            signal = note.id
        return after, signal

    def abort(self) -> None:
        """Give the lock back and leave every file as it was; fine if the lock is gone."""
        lock = self.lock
        if lock is None or self.keep:
            return

        def change(ledger: Ledger) -> Ledger:
            return ledger.without_locks(lock.id) if ledger.turnfile.lock(lock.id) == lock else ledger

        self.session.write(change, self.claim.holder)


def transact(
    folder: Session | str | os.PathLike[str],
    files: Iterable[str],
    holder: str,
    reason: str,
    body: Callable[[Transaction], Any],
    *,
    lease_revs: int = DEFAULT_LEASE_REVS,
    patience: Patience | None = Patience(),  # noqa: B008 - frozen
    under: str | None = None,
    rehearse: bool = False,
) -> Completion:
    """Run `body` on the files, again if they changed under it; what it returns is the completion's `result`.

    `under` names a lock that the holder has already, and that stays; a valid one on all the files is found without
    it. With `rehearse` the body runs once before the lock
    is taken, so that an edit that is refused, or changes nothing, costs no revision and ages nobody's lock; what it
    made counts if the files say the same under the lock. Raises Held or Escalated, or what the body raises.
    """
    from holdfast.turnfile.escalation import give_up

    session = _session(folder)
    claim = _claim(session, files, holder, reason, lease_revs)
    rehearsed: list[Transaction] = []

    def ready() -> None:
        rehearsed[:] = [Transaction(session, claim, None, False)]
        rehearsed[0].rehearse(body)

    try:
        edit = _begin(session, claim, patience, under, ready if rehearse else None)
    except _Unchanged as unchanged:
        return unchanged.completion
    drifted = bool(rehearsed) and not edit.adopt(rehearsed[0])
    left, again = REAPPLIED - drifted, _AGAIN
    while True:
        with _aborting(edit):
            result = edit.make(body)
        reach("body.done")
        try:
            with _aborting(edit, but=(Outrun, NotHolder)):
                return edit.commit(result)
        except (Outrun, NotHolder) as error:
            if edit.keep and under is None and again and isinstance(error, NotHolder):
                again -= 1  # the lock was that of another process of this name, which has ended its turn
            elif left:
                left -= 1
            else:
                raise give_up(session, None if edit.keep else edit.lock, claim, error) from error
            if isinstance(error, NotHolder):
                edit.abort()
                edit = _begin(session, claim, patience, under)
            else:
                edit = Transaction(session, claim, edit.lock, edit.keep)


@contextlib.contextmanager
def transaction(
    folder: Session | str | os.PathLike[str],
    files: Iterable[str],
    holder: str,
    reason: str,
    *,
    lease_revs: int = DEFAULT_LEASE_REVS,
    patience: Patience | None = Patience(),  # noqa: B008 - frozen
    under: str | None = None,
) -> Iterator[Transaction]:
    """A block that edits files: written as one when it ends, not at all when it raises.

    A block cannot run twice: a file that changed meanwhile raises Outrun. `transact` makes the edit again instead.
    """
    session = _session(folder)
    edit = _begin(session, _claim(session, files, holder, reason, lease_revs), patience, under)
    with _aborting(edit):
        yield edit
        reach("body.done")
        edit.commit()


def unlock(session: Session, lock_id: str, holder: str) -> Completion:
    """Release a lock of one's own after editing by hand: with the completion note and a fresh projection.

    What the edit left out of order is told as `warnings`, and in the note; the lock goes all the same. Raises NotFound,
    or NotHolder: a lock that went stale, or that another comes before, goes without a note, as its edit may be lost.
    """
    from holdfast.turnfile.papers import invariants

    with session.turn():
        ledger = session.fresh()
        lock = owned(ledger, lock_id, holder)
        files = sorted(locks.files_of(lock, session.workspace(ledger)))
        if (lost := _lost(session, ledger, lock)) is not None:
            after = ledger.without_locks(lock_id).stamped(ledger.revision + 1, holder)
            session.replace({TURNFILE: after.text}, {TURNFILE: ledger.text})
            raise lost
        now = {path: session.folder.read(path) for path in _CHECKED}
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


def _session(folder: Session | str | os.PathLike[str]) -> Session:
    return folder if isinstance(folder, Session) else Session(folder)


def _claim(session: Session, files: Iterable[str], holder: str, reason: str, lease_revs: int) -> Claim:
    claim = claim_of(session, files, holder, reason, lease_revs)
    for path in claim.files:
        if path in (TURNFILE, PROJECTION):
            words = "is written by every transaction" if path == TURNFILE else f"is derived from {MAILBOX}"
            raise Invalid(f"{path} {words}: it cannot be edited in one", path=path)
    return claim


def _begin(
    session: Session,
    claim: Claim,
    patience: Patience | None,
    under: str | None,
    ready: Callable[[], None] | None = None,
) -> Transaction:
    """Steps 1 and 2; only files of the registry need a lock."""
    needed = tuple(path for path in claim.files if path in session.registry)
    if under is not None:
        return Transaction(session, claim, _own_lock(session, under, claim.holder, needed), True)
    lock = None
    for left in range(_AGAIN if needed else 0, -1, -1):
        revision = session.read().revision
        if (mine := _held_already(session, claim.holder, needed)) is not None:
            if left and patience is not None:  # a lock by hand stays; one of another process's transaction goes soon
                session.await_change(_SOON, revision)
                if session.read().revision != revision:
                    continue
            return Transaction(session, claim, mine, True)
        try:
            lock = acquire(session, msgspec.structs.replace(claim, files=needed), patience, ready) if needed else None
            break
        except Held as error:  # another process of this name may have taken it just now
            if error.holder != claim.holder or not left or _partly_held(session, claim.holder, needed):
                raise
    try:
        return Transaction(session, claim, lock, False)
    except BaseException:
        if lock is not None:
            release(session, lock.id, claim.holder)
        raise


def _partly_held(session: Session, holder: str, needed: tuple[str, ...]) -> bool:
    """True if a lock of the holder has some of these files, and none has all."""
    ledger = session.read()
    workspace = session.workspace(ledger)
    mine = [lock for lock in locks.overlapping(ledger.turnfile.locks, needed, workspace) if lock.holder == holder]
    return bool(mine) and not any(locks.files_of(lock, workspace).issuperset(needed) for lock in mine)


def _held_already(session: Session, holder: str, needed: tuple[str, ...]) -> Lock | None:
    """A valid lock that the holder has on all these files. Raises NotHolder where another's comes before it."""
    ledger = session.read()
    workspace = session.workspace(ledger)
    mine = [lock for lock in locks.overlapping(ledger.turnfile.locks, needed, workspace) if lock.holder == holder]
    for lock in mine:
        if not locks.is_stale(lock, ledger.revision) and locks.files_of(lock, workspace).issuperset(needed):
            if (other := verify(session, ledger, lock)) is not None:
                raise NotHolder(f"{other.id} of {other.holder} comes before {lock.id}", lock_id=lock.id)
            return lock
    return None  # a stale one is cleared, one with some of the files refused, by who takes the lock


def _own_lock(session: Session, lock_id: str, holder: str, needed: tuple[str, ...]) -> Lock:
    ledger = session.read()
    lock = owned(ledger, lock_id, holder)
    missing = set(needed) - locks.files_of(lock, session.workspace(ledger))
    if missing:
        raise NotHolder(f"{lock_id} does not cover {', '.join(sorted(missing))}", lock_id=lock_id)
    if (other := verify(session, ledger, lock)) is not None:
        raise NotHolder(f"{other.id} of {other.holder} comes before {lock_id}", lock_id=lock_id)
    return lock


@contextlib.contextmanager
def _aborting(edit: Transaction, but: tuple[type[HoldfastError], ...] = ()) -> Iterator[None]:
    """Give the lock back if something goes wrong; a failure to do so is told with what went wrong."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, but):
            try:
                edit.abort()
            except HoldfastError as failed:
                error.add_note(f"the lock {edit.lock.id if edit.lock else ''} was not given back: {failed}")
        raise
