"""The files of one edit, as the edit sees them, and the last steps of the locking contract.

An edit happens in memory. `commit` takes the turn to write, checks that the lock still holds, that nobody changed the
files and that the invariants stay true, and replaces the files, the projection and the ledger as one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from holdfast.errors import Held, Invalid, NotHolder
from holdfast.turnfile.escalation import Claim
from holdfast.turnfile.files import reach
from holdfast.turnfile.invariants import settle
from holdfast.turnfile.ledger import Ledger, completed
from holdfast.turnfile.locks import renewed, verify
from holdfast.turnfile.model import MAILBOX, PROJECTION, TURNFILE, Lock, Problem
from holdfast.turnfile.session import Session, outrun


class Completion(msgspec.Struct, frozen=True):
    """What a transaction did: under which lock, which files, and at which revision the ledger is now."""

    lock_id: str | None
    files: tuple[str, ...]
    revision: int
    signal_id: str | None = None
    warnings: tuple[Problem, ...] = ()
    result: Any = None

    def warning(self, *problems: Problem) -> Completion:
        """The same, with more warnings."""
        return msgspec.structs.replace(self, warnings=(*self.warnings, *problems))


class Unchanged(Exception):
    """A rehearsal changed nothing: there is no need for a lock."""

    def __init__(self, completion: Completion) -> None:
        super().__init__("nothing to write")
        self.completion = completion


def beside(paths: Collection[str]) -> list[str]:
    """The files that an edit of some needs to know: the mailbox has its projection with it."""
    return [*paths, PROJECTION] if MAILBOX in paths else [*paths]


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
        """Run a body and check what it makes, on a plain read. Raises what a commit would, or Unchanged."""
        self._result = body(self)
        now = self.session.texts(beside(self._before))
        if any(now[path] != before for path, before in self._before.items()):
            return  # it is made again under the lock, and judged there
        workspace = self.session.workspace(self.ledger)
        texts, warnings = settle(self._edits, now, workspace, self.session.timestamp())
        if not texts:
            raise Unchanged(Completion(None, (), self.ledger.revision, None, tuple(warnings), self._result))

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
        session = self.session
        with session.turn():
            ledger = session.fresh()
            lock = self._held(ledger)
            for path, before in self._before.items():
                if session.folder.read(path) != before:
                    raise outrun(path)
            now = {path: session.folder.read(path) for path in beside(self._before)}
            texts, warnings = settle(self._edits, now, session.workspace(ledger), session.timestamp())
            after, signal = self._released(ledger, lock, [path for path in texts if path != PROJECTION])
            reach("targets.checked")
            if after is not ledger:
                texts[TURNFILE] = after.stamped(ledger.revision + 1, self.claim.holder).text
            if texts:
                session.replace(texts, {**now, TURNFILE: ledger.text})
        reach("lock.released")
        changed = tuple(path for path in texts if path not in (TURNFILE, PROJECTION))
        revision = ledger.revision + (TURNFILE in texts)
        lock_id = lock.id if lock is not None else None
        told = (*self.claim.warnings, *warnings)
        self.completion = Completion(lock_id, changed, revision, signal, told, result)
        return self.completion

    def _held(self, ledger: Ledger) -> Lock | None:
        """The lock as it stands in a ledger. Raises NotHolder if it holds no longer."""
        lock = self.lock
        if lock is None:
            return None
        there = ledger.turnfile.lock(lock.id)
        if self.keep and there is not None and there.holder == lock.holder:
            lock = there  # another edit under it has begun its lease again
        if (other := verify(self.session, ledger, lock)) is not None:
            raise NotHolder(f"{other.id} of {other.holder} comes before {lock.id}", lock_id=lock.id)
        return lock

    def _released(self, ledger: Ledger, lock: Lock | None, changed: list[str]) -> tuple[Ledger, str | None]:
        """The ledger with the note of this edit, and without its lock; one that stays begins its lease again."""
        if lock is None:
            return ledger, None
        after, signal = (ledger if self.keep else ledger.without_locks(lock.id)), None
        if changed:
            if self.keep:
                with contextlib.suppress(Held):  # another tool's lock comes after it: it must not come before
                    after = renewed(self.session, ledger, lock)
            after, note = completed(after, lock.id, self.claim.holder, changed)
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
