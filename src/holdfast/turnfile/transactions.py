"""An edit of shared files as one transaction: the nine steps of the locking contract (R3).

Acquire the lock and verify it, read the files, edit them in memory. Then, under the folder's write lock: verify the
lock again, check that nobody changed the files, check the invariants, and replace the files, the projection and the
ledger (without the lock, with the completion note): all of them or none. If a file changed in the meantime, the edit
is retried on its current text, at most three times; any other failure leaves every file as it was. Called by `mail`
and by the faces.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from holdfast.errors import FileChanged, Held, HoldfastError, Invalid, NotHolder
from holdfast.turnfile import archive
from holdfast.turnfile.escalation import escalate_edit
from holdfast.turnfile.files import reach
from holdfast.turnfile.invariants import disorder, validate_edits
from holdfast.turnfile.ledger import Ledger, rules
from holdfast.turnfile.locks import LockRequest, WaitPolicy, acquire, get_own_lock, lock_request, renewed, verify
from holdfast.turnfile.model import (
    DEFAULT_LEASE_REVS,
    MAILBOX,
    PROJECTION,
    TURNFILE,
    Completion,
    Lock,
    Problem,
    with_projection,
)
from holdfast.turnfile.session import Session, SessionLike, as_session, file_changed

_BY_HAND: Final = (
    "change it with an editor while nobody else writes, leave `revision` as it is, and run turnfile.check(session)"
)


class NothingToWrite(Exception):
    """A rehearsal changed nothing, so no lock is needed."""

    def __init__(self, completion: Completion) -> None:
        super().__init__("nothing to write")
        self.completion = completion


class Transaction:
    """The files of one edit, with the changes made so far; `ledger` is the ledger as it was at the beginning."""

    def __init__(self, session: Session, request: LockRequest, lock: Lock | None, keep: bool) -> None:
        self.session = session
        self.request = request
        self.files = request.files  # what it may edit, as seen from the session's folder
        self.lock = lock
        self.keep = keep  # the holder took the lock by hand, and keeps it
        texts = session.texts([TURNFILE, *request.files])
        self.ledger: Ledger = session.ledger(texts[TURNFILE])
        self._before = {path: texts[path] for path in request.files}
        self._edits: dict[str, str] = {}
        self._result: Any = None
        self._adopted = False
        self._joining: tuple[str, ...] = ()
        self._checked: tuple[tuple[Any, ...], tuple[dict[str, str], list[Problem]]] | None = None
        self.completion: Completion | None = None

    def read(self, path: str) -> str | None:
        """The text of a file with the changes made so far; None if it does not exist."""
        path = self._named(path)
        return self._edits.get(path, self._before[path])

    def write(self, path: str, text: str) -> None:
        """Give a file a new text. Nothing is on disk before the transaction commits."""
        path = self._named(path)
        if not isinstance(text, str):
            raise Invalid(f"text must be a str, not {type(text).__name__}", path=path)
        try:
            _ = text.isascii() or text.encode()
        except UnicodeEncodeError as error:
            raise Invalid(f"{path}: the text has a lone surrogate, which UTF-8 cannot encode") from error
        self._edits[path] = text

    def with_newcomers(self) -> tuple[str, ...]:
        """Whom a message to `all` means from this edit on: the newcomers and the holder too.

        The edit counts them in the mailbox; the commit then takes the mark of newcomers off them, and off no other.
        """
        self._joining = self.ledger.turnfile.joining(self.request.holder)
        return self.ledger.turnfile.everyone_with(self._joining)

    def _named(self, path: str) -> str:
        normal = self.session.normalize(path)
        if normal not in self._before:
            raise Invalid(f"{normal} is not part of this transaction", hint="name it when the transaction begins")
        return normal

    def rehearse(self, body: Callable[[Transaction], Any]) -> None:
        """Run a body without the lock and check its edits. Raises what a commit would raise, or NothingToWrite."""
        self._result = body(self)
        now = self.session.texts(with_projection(self._before))
        if any(now[path] != before for path, before in self._before.items()):
            return  # the body runs again under the lock, and is checked there
        workspace = self.session.workspace(self.ledger)
        texts, warnings = self._validated(now, workspace, self.ledger.turnfile.everyone_with(self._joining))
        if not texts:
            raise NothingToWrite(Completion(None, (), self.ledger.revision, None, tuple(warnings), self._result))

    def adopt(self, rehearsed: Transaction) -> bool:
        """Take over the edits of a rehearsal; False if the files have changed since."""
        if rehearsed._before != self._before:
            return False
        self._edits, self._result, self._adopted = dict(rehearsed._edits), rehearsed._result, True
        self._checked = rehearsed._checked
        self._joining = rehearsed._joining
        return True

    def run(self, body: Callable[[Transaction], Any]) -> Any:
        """Run a body and return its result; that of an adopted rehearsal is returned as it is."""
        return self._result if self._adopted else body(self)

    def commit(self, result: Any = None) -> Completion:
        """Steps 5 to 9. Raises FileChanged, NotHolder, or Invalid with `problems`, and then writes nothing."""
        session = self.session
        with session.write_lock():
            ledger = session.fresh()
            lock = self._verified(ledger)
            now = {path: session.folder.read(path) for path in with_projection(self._before)}
            for path, before in self._before.items():
                if now[path] != before:
                    raise file_changed(path)
            everyone = ledger.turnfile.everyone_with(self._joining)
            texts, warnings = self._validated(now, session.workspace(ledger), everyone)
            after, signal = self._released(ledger, lock, [path for path in texts if path != PROJECTION])
            after = after.with_receivers(self._joining)
            reach("targets.checked")
            if after is not ledger:
                texts[TURNFILE] = after.stamped(ledger.revision + 1, self.request.holder).text
            if texts:
                session.replace(texts, {**now, TURNFILE: ledger.text})
        reach("lock.released")
        changed = tuple(path for path in texts if path not in (TURNFILE, PROJECTION))
        revision = ledger.revision + (TURNFILE in texts)
        lock_id = lock.id if lock is not None else None
        ailing = rules.lint(ledger.text) if after is not ledger else []
        wrong = [problem for problem in ailing if problem.level == "error"]
        found = (*self.request.warnings, *warnings, *disorder(wrong))
        self.completion = Completion(lock_id, changed, revision, signal, found, result)
        return self.completion

    def _validated(
        self, now: dict[str, str | None], workspace: str, everyone: tuple[str, ...]
    ) -> tuple[dict[str, str], list[Problem]]:
        """The files to write, and the warnings; what a rehearsal on the same texts found still holds."""
        asked = (dict(self._edits), now, workspace, everyone)
        if self._checked is None or self._checked[0] != asked:
            lost = archive.lost(self.session.folder, now[MAILBOX], now[PROJECTION]) if MAILBOX in self._edits else ()
            timestamp = self.session.timestamp()
            self._checked = (asked, validate_edits(self._edits, now, workspace, timestamp, everyone, lost))
        texts, warnings = self._checked[1]
        return dict(texts), warnings

    def _verified(self, ledger: Ledger) -> Lock | None:
        """The lock as the ledger has it now. Raises NotHolder if it is no longer held."""
        lock = self.lock
        if lock is None:
            return None
        there = ledger.turnfile.lock(lock.id)
        if self.keep and there is not None and there.holder == lock.holder:
            lock = there  # another edit under it has restarted its lease
        return _first(self.session, ledger, lock)

    def _released(self, ledger: Ledger, lock: Lock | None, changed: list[str]) -> tuple[Ledger, str | None]:
        """The ledger with this edit's completion note, and without its lock; a kept lock restarts its lease."""
        if lock is None:
            return ledger, None
        after, signal = (ledger if self.keep else ledger.without_locks(lock.id)), None
        if changed:
            if self.keep:
                with contextlib.suppress(Held):  # a later lock of another tool overlaps: it must not get precedence
                    after = renewed(self.session, ledger, lock)
            after, note = after.with_completion_note(lock.id, self.request.holder, changed)
            signal = note.id
        return after, signal

    def abort(self) -> None:
        """Release the lock and leave every file as it was; a lock that is gone is no error."""
        if self.lock is not None and not self.keep:
            self.session.drop(self.lock)


RETRIES: Final = 3


def transact(
    files: Iterable[str],
    holder: str,
    reason: str,
    body: Callable[[Transaction], Any],
    *,
    folder: SessionLike = None,
    lease_revs: int = DEFAULT_LEASE_REVS,
    wait: WaitPolicy | None = WaitPolicy(),  # noqa: B008 - frozen
    under: str | None = None,
    rehearse: bool = False,
) -> Completion:
    """Run `body` on the files, and retry it if they change; its return value is the completion's `result`.

    `folder` is a session or its path; the default is HOLDFAST_TURN_DIR, else `./working-session`. `under` names a lock
    that the holder took by hand and keeps; one that covers all the files is found without it. With `rehearse` the body
    first runs before the lock is taken: an edit that is refused or changes nothing then costs no revision and ages no
    lease, and its result is used if the files are the same under the lock. Raises Held or Escalated, or whatever the
    body raises.
    """
    session = as_session(folder)
    request = _edit_request(session, files, holder, reason, lease_revs)
    rehearsed: list[Transaction] = []

    def ready() -> None:
        rehearsed[:] = [Transaction(session, request, None, False)]
        rehearsed[0].rehearse(body)

    try:
        edit = _begin(session, request, wait, under, ready if rehearse else None)
    except NothingToWrite as unchanged:
        return unchanged.completion
    drifted = bool(rehearsed) and not edit.adopt(rehearsed[0])
    left = RETRIES - drifted
    while True:
        with _aborting(edit):
            result = edit.run(body)
        reach("body.done")
        try:
            with _aborting(edit, but=(FileChanged, NotHolder)):
                return edit.commit(result)
        except (FileChanged, NotHolder) as error:
            if not left:
                released = None if edit.keep else edit.lock
                raise escalate_edit(session, released, request.files, holder, error) from error
            left -= 1
            if isinstance(error, NotHolder):
                edit.abort()
                edit = _begin(session, request, wait, under)
            else:
                edit = Transaction(session, request, edit.lock, edit.keep)


@contextlib.contextmanager
def transaction(
    files: Iterable[str],
    holder: str,
    reason: str,
    *,
    folder: SessionLike = None,
    lease_revs: int = DEFAULT_LEASE_REVS,
    wait: WaitPolicy | None = WaitPolicy(),  # noqa: B008 - frozen
    under: str | None = None,
) -> Iterator[Transaction]:
    """A `with` block that edits files: written together when it ends, not at all if it raises.

    A block cannot run twice: if a file changes in the meantime, it raises FileChanged; `transact` retries instead.
    """
    session = as_session(folder)
    edit = _begin(session, _edit_request(session, files, holder, reason, lease_revs), wait, under)
    with _aborting(edit):
        yield edit
        reach("body.done")
        edit.commit()


def _edit_request(session: Session, files: Iterable[str], holder: str, reason: str, lease_revs: int) -> LockRequest:
    request = lock_request(session, files, holder, reason, lease_revs)
    for path in request.files:
        if path in (TURNFILE, PROJECTION):
            words = "every transaction writes it" if path == TURNFILE else f"it is derived from {MAILBOX}"
            hint = _BY_HAND if path == TURNFILE else f"edit {MAILBOX}"
            raise Invalid(f"{path} cannot be edited in a transaction: {words}", hint=hint, path=path)
    # An edit may create a file, or need no lock: only warnings about the name matter here.
    warnings = tuple(each for each in request.warnings if each.rule == "new-agent")
    return msgspec.structs.replace(request, warnings=warnings)


def _begin(
    session: Session,
    request: LockRequest,
    wait: WaitPolicy | None,
    under: str | None,
    ready: Callable[[], None] | None = None,
) -> Transaction:
    """Steps 1 and 2; only files of the registry need a lock."""
    ledger = session.read()
    guarded = session.guarded(ledger)
    needed = tuple(path for path in request.files if path in guarded)
    if under is not None:
        return Transaction(session, request, _own_lock(session, ledger, under, request.holder, needed), True)
    if not needed:  # nothing is written to the ledger, so nobody is added to it
        return Transaction(session, msgspec.structs.replace(request, warnings=()), None, False)
    if (mine := _held_already(session, ledger, request.holder, needed)) is not None:
        return Transaction(session, request, mine, True)
    lock = acquire(session, msgspec.structs.replace(request, files=needed, transaction=True), wait, ready)
    try:
        return Transaction(session, request, lock, False)
    except BaseException:
        session.drop(lock)
        raise


def _held_already(session: Session, ledger: Ledger, holder: str, needed: tuple[str, ...]) -> Lock | None:
    """A valid lock by hand of the holder that covers all these files; one that another lock precedes is removed."""
    workspace = session.workspace(ledger)
    for lock in rules.blocking(ledger.turnfile.locks, needed, ledger.revision, workspace):
        mine = lock.holder == holder and not lock.transaction
        if mine and rules.files_of(lock, workspace).issuperset(needed):
            if verify(session, ledger, lock) is None:
                return lock
            session.drop(lock)  # the loser yields, and then waits for the other lock
    return None  # `acquire` clears a stale one, and refuses one that covers only some of the files


def _own_lock(session: Session, ledger: Ledger, lock_id: str, holder: str, needed: tuple[str, ...]) -> Lock:
    lock = get_own_lock(ledger, lock_id, holder)
    missing = set(needed) - rules.files_of(lock, session.workspace(ledger))
    if missing:
        raise NotHolder(f"{lock_id} does not cover {', '.join(sorted(missing))}", lock_id=lock_id)
    if verify(session, ledger, lock) is not None:
        session.drop(lock)  # the loser yields
    return _first(session, ledger, lock)


def _first(session: Session, ledger: Ledger, lock: Lock) -> Lock:
    """Return a lock that is held, and that no other precedes; else raise NotHolder."""
    if (other := verify(session, ledger, lock)) is not None:
        raise NotHolder(f"{other.id}, held by {other.holder}, precedes {lock.id}", lock_id=lock.id)
    return lock


@contextlib.contextmanager
def _aborting(edit: Transaction, but: tuple[type[HoldfastError], ...] = ()) -> Iterator[None]:
    """Release the lock if the block raises; a failure to release it becomes a note of that error."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, but):
            try:
                edit.abort()
            except HoldfastError as failed:
                error.add_note(f"the lock {edit.lock.id if edit.lock else ''} was not released: {failed}")
        raise
