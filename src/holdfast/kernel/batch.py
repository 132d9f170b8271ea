"""One durable commit: begin, sweep what is due, run the bodies, commit.

A body that raises is rolled back alone. Few raise after they have written, so the bodies first run without savepoints;
if one did, all of them are taken back and run again, each in its own. If the engine rolled back the whole transaction
underneath (disk full, interrupt), no body of the batch counts: all others run again. A COMMIT that broke midway is
OutcomeUnknown for every body, and the connection is opened anew. In a replicated workspace the batch first
catches up with the log, and its changes are appended there before COMMIT; Moved means that somebody else was first, and
everything must run again. The caller holds the turn from `begin` to `commit` or `rollback`. Called by the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import apsw

from holdfast import errors
from holdfast.kernel.activity import Actors
from holdfast.kernel.clock import RESET, Now
from holdfast.kernel.failpoints import reach
from holdfast.kernel.ids import Ids
from holdfast.kernel.journal import Journal, Moved
from holdfast.kernel.leases import sweep
from holdfast.kernel.migrations import check_writer
from holdfast.kernel.store import Store, translate
from holdfast.kernel.tx import SYSTEM, DerivedActor, GuardedTx, Tx

_HEADER = "SELECT oldest_writer, revision, stamp, (SELECT min(deadline) FROM leases) FROM meta WHERE id = 1"
_FOOTER = "UPDATE meta SET revision = ?, stamp = ? WHERE id = 1"


_STEPS_BETWEEN_LOOKS = 20_000  # of SQLite's machine: well under a millisecond
_PENDING: Any = object()
CAUTION = 16  # groups that run with a savepoint for each body, after one that would have needed them


class Call:
    """A body waiting for its turn, then its answer: `result`, or `error`."""

    __slots__ = ("actor", "body", "error", "leads", "result")

    def __init__(self, body: Callable[[Tx], Any], actor: str) -> None:
        self.body = body
        self.actor = actor
        self.leads = False  # its caller has the lead over the group
        self.reset()

    def reset(self) -> None:
        """Nothing of what the body did counts."""
        self.result: Any = _PENDING
        self.error: BaseException | None = None

    @property
    def pending(self) -> bool:
        """Neither done nor failed."""
        return self.result is _PENDING and self.error is None

    @property
    def ready(self) -> bool:
        """Whether its caller could lead now: a thread that waits can, an event loop that has stopped cannot."""
        return True

    @property
    def asks(self) -> bool:
        """Whether its answer, or its error, tells of the state: then it must have seen everything before it."""
        return self.body is not nothing and self.body is not follow

    def lead(self) -> None:
        """Tell the caller to lead: a thread has the lead by now, an event loop is offered it."""
        raise NotImplementedError

    def answer(self) -> None:
        """Tell the caller that result or error is there."""
        raise NotImplementedError


class Writer:
    """What a batch needs: the store, the time, the ids, and the journal of a replicated workspace."""

    def __init__(self, store: Store, time: Now, ids: Ids, max_value_bytes: int, journal: Journal | None) -> None:
        self.store = store
        self.journal = journal
        self.time = time
        self.ids = ids
        self.max_value_bytes = max_value_bytes
        self.actors = Actors()
        self.caution = 0  # groups yet to run with a savepoint for each body
        self.tx: Tx | None = None  # the newest one, which a forked child must not go on with


class Batch:
    """One BEGIN IMMEDIATE ... COMMIT."""

    def __init__(self, writer: Writer, asked: bool = True, writes: bool = True) -> None:
        self._writer = writer
        self._journal = writer.journal
        self._asked = asked  # an answer, or an error, rests on the state that the bodies saw
        self._writes = writes  # otherwise it only follows the log
        self._memo: dict[str, Any] = {}
        self._writers: set[str] = set()  # who has written
        self.committed = False
        self.in_doubt = False  # the log may have it: nothing of it may run again

    def begin(self) -> None:
        """Open the transaction and sweep; raises a typed error and leaves nothing open if that fails."""
        reach("batch.begin")
        self._writer.store.check_kept()
        self.emitted = caught_up = self._journal is not None and self._journal.catch_up(self._asked)
        self._connection = self._writer.store.writer
        self.deadline: int | None = None
        self.dirty = self.swept = self._committing = False
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            if not isinstance(error, apsw.BusyError):
                self._writer.store.reopen_writer()
            raise translate(error) from error
        try:
            oldest_writer, self.revision, self._stamp, due = self._connection.execute(_HEADER).fetchone()  # type: ignore[misc]
            check_writer(oldest_writer)
            self._began = self.revision
            self.now = self._writer.time.read(self._stamp)
            self._writer.time.warn_if_far_ahead(self.now)
            if self._journal is not None and self._writes:
                self._journal.check_clock()
                self._journal.record(self._connection)
            if caught_up:
                self.deadline = due
            if due is not None and due <= self.now and self._writes:
                self._sweep()
                reach("batch.swept")
        except BaseException as error:
            self.rollback()
            if isinstance(error, apsw.Error):
                raise translate(error) from error
            raise

    def _sweep(self) -> None:
        more = True
        while more:
            tx = self.transaction(SYSTEM)
            more = sweep(tx)
            self.absorb(tx)
        self.swept = True

    def transaction(self, actor: str, kind: type[Tx] = Tx) -> Tx:
        """A Tx on this batch, after those before it."""
        writer = self._writer
        writer.tx = tx = kind(
            self._connection,
            writer.time,
            writer.ids,
            self.now,
            self.revision + 1,
            actor,
            writer.max_value_bytes,
            self._began,
            self._memo,
        )
        return tx

    def guarded(self, actor: str) -> GuardedTx:
        """A Tx that a watchdog may end."""
        tx = self.transaction(actor, GuardedTx)
        assert isinstance(tx, GuardedTx)
        return tx

    def absorb(self, tx: Tx) -> None:
        """The transaction counts: the next one comes after it.

        Unless its body hid that the engine had rolled back everything: then there is nothing left to count.
        """
        tx.end()
        if self.finished:
            raise rolled_back()
        if tx.dirty:
            self.dirty = True
            self._writers.update(tx.seen)
            if tx.actor != SYSTEM and not isinstance(tx.actor, DerivedActor):
                self._writers.add(tx.actor)
        if tx.events:
            self.revision += 1
            self.emitted = True
        if tx.now != self.now:  # the clock was reset
            self.now = tx.now
            self._stamp += RESET
        if tx.deadline is not None and (self.deadline is None or tx.deadline < self.deadline):
            self.deadline = tx.deadline

    def run(self, calls: Sequence[Call]) -> list[Call]:
        """Run each body; afterwards each call has a result or an error.

        Answers the calls to run again in a new batch, because the engine rolled back the whole transaction under one
        of them; that one has its error.
        """
        if len(calls) == 1 and not self.swept:
            call, tx = calls[0], self.transaction(calls[0].actor)
            try:
                call.result = call.body(tx)
                self.absorb(tx)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                tx.end()
                call.error = as_ours(error)
                if tx.dirty or self.finished:
                    self.rollback()  # a lone body needs no savepoint: taking it back is taking all back
            return []
        before = self.revision, self._stamp, self.now, self.deadline, self.emitted, self.dirty
        writer = self._writer
        self._connection.execute("SAVEPOINT bodies")
        lost = self._run_all(calls, apart=writer.caution > 0)
        writer.caution = max(0, writer.caution - 1)
        if lost is None:  # as if none of them had run
            self._connection.execute("ROLLBACK TO bodies")
            self.revision, self._stamp, self.now, self.deadline, self.emitted, self.dirty = before
            writer.caution = CAUTION
            lost = self._run_all(calls, apart=True)
        return lost or []

    def _run_all(self, calls: Sequence[Call], apart: bool) -> list[Call] | None:
        """Run the bodies one after the other; None if one failed that had written, and so all must be taken back.

        One that fails before it has written leaves nothing to take back: a claim that comes too late, say. `apart`:
        each in a savepoint of its own, so that any is taken back alone.
        """
        execute = self._connection.execute
        for number, call in enumerate(calls):
            call.reset()
            tx = self.transaction(call.actor)
            try:
                if apart:
                    execute("SAVEPOINT body")
                call.result = call.body(tx)
                if apart:
                    execute("RELEASE body")
                self.absorb(tx)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                tx.end()
                call.error = as_ours(error)
                if self.finished:
                    return self._lost(calls, number)
                if apart:
                    execute("ROLLBACK TO body")
                    execute("RELEASE body")
                elif tx.dirty:
                    return None
        return []

    def _lost(self, calls: Sequence[Call], number: int) -> list[Call]:
        """The engine has rolled back everything under one body: all others."""
        if isinstance(calls[number].error, apsw.SQLError):  # a savepoint that is gone says nothing to a user
            calls[number].error = rolled_back()
        self._writer.store.reopen_writer()
        self.dirty = False  # the sweep is gone too
        return [*calls[:number], *calls[number + 1 :]]

    def commit(self) -> None:
        """Make it durable; raises DiskFull, Busy, Unreachable or Moved (nothing is there), or OutcomeUnknown."""
        reach("batch.ran")
        if not self.dirty:
            self._commit_nothing()
            return
        try:
            news = self._writer.actors.record(self._writers, self.now, self._connection.execute)
            stamp = self._stamp // RESET * RESET + self.now
            self._connection.execute(_FOOTER, (self.revision, stamp))
            if self._journal is not None and not self._append(self._journal):
                self._commit_nothing()
                return
            reach("batch.commit")
            self._committing = True
            self._connection.execute("COMMIT")
            self.committed = True
            self._writer.time.read(stamp)
            self._writer.actors.remember(news)
            reach("batch.committed")
        except (apsw.FullError, apsw.BusyError) as error:
            # The commit frame is written last, so a write that found no room has committed nothing.
            self.rollback()
            raise self._not_committed(translate(error)) from error
        except apsw.Error as error:
            known = not self._committing
            self._writer.store.reopen_writer()
            if known:
                raise self._not_committed(translate(error)) from error
            raise errors.OutcomeUnknown(f"the commit broke midway: {error}") from error
        if self._journal is not None:
            self._journal.appended()

    def _append(self, journal: Journal) -> bool:
        self.in_doubt = True
        try:
            appended = journal.append()
        except BaseException as error:
            self.in_doubt = not isinstance(error, Moved | errors.HoldfastError)
            self.rollback()
            raise
        self.in_doubt = appended
        return appended

    def _commit_nothing(self) -> None:
        """Nothing has changed, but an answer or an error may still rest on a state that was no longer the newest."""
        self.rollback()
        if self._asked:
            self.confirm()

    def confirm(self) -> None:
        """Raise Moved if the log had moved before the bodies ran; without a log nothing can have."""
        if self._journal is not None and not self.in_doubt:
            self._journal.confirm()

    def _not_committed(self, error: Exception) -> Exception:
        """What to tell the callers: once the log has it, it happened, and only this replica has not got it yet."""
        if not self.in_doubt:
            return error
        return errors.OutcomeUnknown(f"the log may have it, but this node could not write its replica: {error}")

    def rollback(self) -> None:
        """Leave nothing."""
        if self._journal is not None:
            self._journal.forget()
        if not self.finished:
            try:
                self._connection.execute("ROLLBACK")
            except apsw.Error:
                self._writer.store.reopen_writer()  # closing rolls back

    def break_off_when(self, late: Callable[[], bool] | None) -> None:
        """Have statements that run on and on give up once `late` says so; None takes that back."""
        if self._writer.store.is_writer(self._connection):
            self._connection.set_progress_handler(late, _STEPS_BETWEEN_LOOKS)

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to take back: committed, rolled back, or the connection given up."""
        return not self._writer.store.is_writer(self._connection) or not self._connection.in_transaction


def nothing(_: Tx) -> None:
    """The empty body: what remains of a group is catching up, and its sweep."""


def follow(_: Tx) -> None:
    """Not even that: only catching up, which a node may do whose clock is wrong."""


def rolled_back() -> errors.Unavailable:
    """The error of a body under which the engine rolled back everything, and that did not say why."""
    return errors.Unavailable("the engine rolled back the transaction underneath; nothing was changed")


def as_ours(error: BaseException) -> BaseException:
    """An engine error becomes the Holdfast error that says the same; others stay as they are."""
    if not isinstance(error, apsw.Error):
        return error
    ours = translate(error)
    if ours is not error:
        ours.__cause__ = error
    return ours


def fail(calls: Iterable[Call], error: BaseException) -> None:
    """Give every call the same bad news, also those whose body had gone well."""
    for call in calls:
        call.error = error
