"""One durable commit: begin, sweep expired leases, run the bodies, commit.

A body that raises is rolled back alone. Few raise after they have written, so the bodies first run without savepoints;
if one did, all are rolled back and run again, each in its own. If the engine rolled back the whole transaction (disk
full, interrupt), all other bodies run again. A COMMIT that failed midway is OutcomeUnknown for every body, and the
connection is reopened. In a replicated workspace the batch first catches up with the log, and appends its changes there
before COMMIT; LogMoved means that another node was first, and everything runs again. The caller holds the turn from
`begin` to `commit` or `rollback`. Called by the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import apsw

from holdfast import errors
from holdfast.clock import RESET, Now
from holdfast.ids import Ids
from holdfast.kernel.activity import Actors
from holdfast.kernel.failpoints import reach
from holdfast.kernel.journal import Journal, LogMoved
from holdfast.kernel.leases import BACKED_UP, BACKUP_TIME, LATER, doomed, sweep
from holdfast.kernel.migrations import check_writer
from holdfast.kernel.store import Store
from holdfast.kernel.translation import Diagnosis, translate
from holdfast.kernel.tx import STEPS_BETWEEN_LOOKS, SYSTEM, GuardedTx, Snapshot, Tidy, Tx
from holdfast.types import DerivedActor

_NAMED = 5  # in one line of the log
_HEADER = "SELECT oldest_writer, revision, stamp, (SELECT min(deadline) FROM leases), workspace FROM meta WHERE id = 1"
_CALM = "UPDATE meta SET calm = ? WHERE id = 1"
_FOOTER = "UPDATE meta SET revision = ?, stamp = ? WHERE id = 1"


_PENDING: Any = object()
CAUTION = 16  # groups that use a savepoint for each body, after a group that needed them


class Call:
    """A queued body, then its outcome: `result` or `error`."""

    __slots__ = ("actor", "body", "error", "leads", "result")

    def __init__(self, body: Callable[[Tx], Any], actor: str) -> None:
        self.body = body
        self.actor = actor
        self.leads = False  # its caller leads the group
        self.result: Any = _PENDING
        self.error: BaseException | None = None

    def reset(self) -> None:
        """Discard the outcome, so that the body can run again."""
        self.result = _PENDING
        self.error = None

    @property
    def pending(self) -> bool:
        """Whether there is no outcome yet."""
        return self.result is _PENDING and self.error is None

    @property
    def ready(self) -> bool:
        """Whether its caller could lead now: a waiting thread can, a stopped event loop cannot."""
        return True

    @property
    def abandoned(self) -> bool:
        """Whether its caller has gone: then its body need not run."""
        return False

    @property
    def asks(self) -> bool:
        """Whether its outcome depends on the state: then the body must have seen everything before it."""
        return self.body is not nothing and self.body is not follow

    def lead(self) -> None:
        """Make the caller lead: a thread has the lead already, an event loop is offered it."""
        raise NotImplementedError

    def answer(self) -> None:
        """Wake the caller: result or error is set."""
        raise NotImplementedError


class Writer:
    """What a batch needs: the store, the time, the ids, and the journal of a replicated workspace."""

    def __init__(
        self,
        store: Store,
        time: Now,
        ids: Ids,
        max_value_bytes: int,
        journal: Journal | None,
        diagnosis: Diagnosis,
    ) -> None:
        self.store = store
        self.journal = journal
        self.time = time
        self.ids = ids
        self.max_value_bytes = max_value_bytes
        self.diagnosis = diagnosis
        self.actors = Actors()
        self.caution = 0  # groups yet to run with a savepoint for each body
        self.tx: Tx | None = None  # the newest one, which a forked child must not use


class Batch:
    """One BEGIN IMMEDIATE ... COMMIT."""

    def __init__(self, writer: Writer, asked: bool = True, writes: bool = True) -> None:
        self._writer = writer
        self._journal = writer.journal
        self._asked = asked  # an outcome depends on the state that the bodies saw
        self._writes = writes  # otherwise it only follows the log
        self._memo: dict[str, Any] = {}
        self._ahead: dict[str, tuple[int, Any]] = {}
        self._writers: set[str] = set()  # names to record as active
        self._litter: dict[Tidy, int] = {}
        self.committed = False
        self.in_doubt = False  # the log may have it: nothing of it may run again
        self.unsecured: int | None = None  # a purge waits for a backup of what was deleted up to this time

    def begin(self, patience: float | None = None) -> None:
        """Open the transaction and sweep. Raises a typed error and leaves nothing open if that fails.

        `patience`: wait for SQLite's lock only so many seconds.
        """
        reach("batch.begin")
        self._writer.store.check_kept()
        self.emitted = caught_up = self._journal is not None and self._journal.catch_up(self._asked)
        self._connection = self._writer.store.writer
        self._change = self._connection.cursor().execute
        self.deadline: int | None = None
        self._notices: dict[str, list[str]] = {}
        self.dirty = self.swept = self._committing = False
        self._execute_begin(patience)
        try:
            header = self._connection.execute(_HEADER).fetchone()
            oldest_writer, self.revision, self._stamp, due, self._workspace = header  # type: ignore[misc]
            check_writer(oldest_writer)
            self._began = self.revision
            time = self._writer.time
            if self._journal is not None and self._writes:
                self._journal.check_clock()  # before the time is read: it may wait, and a clock be corrected meanwhile
            self.now = time.read(self._stamp)
            time.check_storable(self.now)
            time.warn_if_far_ahead(self.now)
            leaped = time.has_leaped(self._stamp, self.now)
            if due is not None and due <= self.now and self._writes and not leaped:
                self._secure()
            if self._journal is not None and self._writes:
                self._journal.record(self._connection)
            if leaped and self._writes:
                self._connection.execute(_CALM, (self.now,))  # stored if anything else is
            if caught_up:
                self.deadline = due
            if due is not None and due <= self.now and self._writes:
                self._sweep()
                reach("batch.swept")
        except BaseException as error:
            self.rollback()
            found = self._as_ours(error)
            if found is error:
                raise
            raise found from error

    def _as_ours(self, error: BaseException) -> BaseException:
        """Translate an error of the engine, or one that a damaged store causes; return any other unchanged."""
        found = self._writer.diagnosis.of(error) if isinstance(error, Exception) else error
        if found is not error:
            found.__cause__ = error
        return found

    def _execute_begin(self, patience: float | None = None) -> None:
        store = self._writer.store
        try:
            if patience is None:
                self._connection.execute("BEGIN IMMEDIATE")
                return
            self._connection.set_busy_timeout(int(patience * 1000))
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            finally:
                self._connection.set_busy_timeout(store.busy_ms)
        except apsw.BusyError as error:  # whoever has the lock does not have the turn: it is no writer of ours
            raise store.files.locked("nothing was changed") from error
        except apsw.Error as error:
            store.reopen_writer()
            raise translate(error) from error

    def _secure(self) -> None:
        """Find out whether a backup has what the sweep would remove for good; the sweep passes over what none has.

        The backup is made after the commit, outside the turn: nobody waits for it.
        """
        wall = self._writer.time.clock.wall()
        newest = doomed(Snapshot(self._connection, self._writer.time), self.now, wall)
        if newest is None:
            return
        from holdfast.kernel import maintenance

        self._memo[BACKED_UP] = maintenance.newest_before_purge(self._writer.store.folder)
        if self._memo[BACKED_UP] <= newest:
            self._memo[LATER] = BACKUP_TIME
            self.unsecured = newest

    def _sweep(self) -> None:
        more = True
        while more:
            tx = self.transaction(SYSTEM)
            more = sweep(tx)
            self.absorb(tx)
        self.swept = True

    def transaction(self, actor: str, kind: type[Tx] = Tx, to_come: int = 0) -> Tx:
        """Return a Tx on this batch, after those before it and before so many others."""
        writer = self._writer
        writer.tx = tx = kind(
            self._connection,
            self._change,
            writer.time,
            writer.ids,
            self.now,
            self.revision + 1,
            actor,
            writer.max_value_bytes,
            self._began,
            self._memo,
            self._ahead,
            self._litter,
            to_come,
        )
        return tx

    def guarded(self, actor: str) -> GuardedTx:
        """Return a Tx that a watchdog may end."""
        tx = self.transaction(actor, GuardedTx)
        assert isinstance(tx, GuardedTx)
        return tx

    def absorb(self, tx: Tx) -> None:
        """Count the transaction: the next one comes after it.

        Raises Unavailable if its body hid that the engine had rolled back everything.
        """
        tx.end()
        if self.finished:
            raise rolled_back()
        if tx.dirty:
            self.dirty = True
            if tx.notices:
                for what, whom in tx.notices.items():
                    self._notices.setdefault(what, []).extend(whom)
            writers, actor = self._writers, tx.actor
            if tx.seen:
                writers.update(tx.seen)
            if actor not in writers and actor != SYSTEM and not isinstance(actor, DerivedActor):
                writers.add(actor)
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

        Returns the calls to run again in a new batch, because the whole transaction was rolled back: all of them if one
        failed after it had written, or all but the one under which the engine did that, which has its error.
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
                call.error = self._as_ours(error)
                if tx.dirty or self.finished:
                    self.rollback()  # a lone body needs no savepoint: taking it back is taking all back
            return []
        writer = self._writer
        lost = self._run_all(calls, apart=writer.caution > 0)
        writer.caution = max(0, writer.caution - 1)
        if lost is None:  # in a new batch each has its savepoint
            self.rollback()
            writer.caution = 1 + CAUTION  # this group, and so many after it
            lost = list(calls)
        for call in lost:
            call.reset()
        return lost

    def _run_all(self, calls: Sequence[Call], apart: bool) -> list[Call] | None:
        """Run the bodies in order. None if one failed after it had written, so that all must be rolled back.

        A body that fails before it writes, such as a late claim, leaves nothing to roll back. With `apart` each body
        has its own savepoint and is rolled back alone.
        """
        execute = self._connection.execute
        for number, call in enumerate(calls):
            tx = self.transaction(call.actor, to_come=len(calls) - 1 - number)
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
                call.error = self._as_ours(error)
                if self.finished:
                    return self._lost(calls, number)
                if apart:
                    self._ahead.clear()
                    execute("ROLLBACK TO body")
                    execute("RELEASE body")
                elif tx.dirty:
                    return None
        return []

    def _lost(self, calls: Sequence[Call], number: int) -> list[Call]:
        """The engine has rolled back everything under one body: return all others."""
        if isinstance(calls[number].error, apsw.SQLError):  # "no such savepoint" means nothing to a user
            calls[number].error = rolled_back()
        self._writer.store.reopen_writer()
        self.dirty = False  # the sweep is gone too
        return [*calls[:number], *calls[number + 1 :]]

    def commit(self) -> None:
        """Commit durably. Raises DiskFull, Busy, Unreachable or LogMoved (nothing is stored), or OutcomeUnknown."""
        reach("batch.ran")
        if not self.dirty:
            self._commit_nothing()
            return
        self._tidy()
        try:
            stamp = self._stamp // RESET * RESET + self.now
            news = self._writer.actors.record(self._writers, stamp, self._connection.execute)
            self._connection.execute(_FOOTER, (self.revision, stamp))
            if self._journal is not None and not self._append(self._journal):
                self._commit_nothing()
                return
            reach("batch.commit")
            self._committing = True
            self._connection.execute("COMMIT")
            self.committed = True
            self._writer.store.check_committed()
            self._writer.store.acknowledge(self._workspace, self.revision, stamp)
            self._writer.time.witness(stamp)
            self._writer.actors.remember(news)
            reach("batch.committed")
        except (apsw.FullError, apsw.BusyError) as error:
            # The commit frame is written last, so a write that found no space has committed nothing.
            self.rollback()
            raise self._not_committed(translate(error)) from error
        except apsw.Error as error:
            known = not self._committing
            self._writer.store.reopen_writer()
            if known:
                raise self._not_committed(translate(error)) from error
            raise errors.OutcomeUnknown(f"the commit failed midway: {error}") from error
        if self._journal is not None:
            self._journal.appended()
        if self._notices:
            log_notices(self._notices)

    def _tidy(self) -> None:
        """Let the domains tidy up what the bodies left behind."""
        try:
            for tidy, count in self._litter.items():
                tidy(self.transaction(SYSTEM), count)
        except BaseException as error:
            self.rollback()
            found = self._as_ours(error)
            if found is error:
                raise
            raise found from error

    def _append(self, journal: Journal) -> bool:
        self.in_doubt = True
        try:
            appended = journal.append()
        except BaseException as error:
            self.in_doubt = not isinstance(error, LogMoved | errors.HoldfastError)
            self.rollback()
            raise
        self.in_doubt = appended
        return appended

    def _commit_nothing(self) -> None:
        """Nothing has changed, but an outcome may still depend on a state that was not the newest."""
        self.rollback()
        if self._asked:
            self.confirm()

    def confirm(self) -> None:
        """Raise LogMoved if the log had moved before the bodies ran; without a log it cannot have."""
        if self._journal is not None and not self.in_doubt:
            self._journal.confirm()

    def _not_committed(self, error: Exception) -> Exception:
        """The error for the callers: once the log has the changes they happened, and only this replica lacks them."""
        if not self.in_doubt:
            return error
        return errors.OutcomeUnknown(f"the log may have the changes, but this node's replica failed: {error}")

    def rollback(self) -> None:
        """Roll back everything."""
        if self._journal is not None:
            self._journal.forget()
        if not self.finished:
            try:
                self._connection.execute("ROLLBACK")
            except apsw.Error:
                self._writer.store.reopen_writer()  # closing rolls back

    def break_off_when(self, late: Callable[[], bool] | None) -> None:
        """Interrupt running statements once `late` returns True; None removes that."""
        if self._writer.store.is_writer(self._connection):
            self._connection.set_progress_handler(late, STEPS_BETWEEN_LOOKS)

    @property
    def finished(self) -> bool:
        """Whether nothing is left to roll back: committed, rolled back, or the connection dropped."""
        return not self._writer.store.is_writer(self._connection) or not self._connection.in_transaction


def log_notices(notices: dict[str, list[str]]) -> None:
    """Say what was committed and somebody should know."""
    for what, whom in notices.items():
        more = f" and {len(whom) - _NAMED} more" if len(whom) > _NAMED else ""
        errors.warn(f"{what}: {', '.join(whom[:_NAMED])}{more}")


def nothing(_: Tx) -> None:
    """The empty body: the group only catches up and sweeps."""


def follow(_: Tx) -> None:
    """The body that only catches up, which a node with a wrong clock may do."""


def rolled_back() -> errors.Unavailable:
    """The error of a body under which the engine rolled back everything without a reason."""
    return errors.Unavailable("the engine rolled back the transaction; nothing was changed")


def fail(calls: Iterable[Call], error: BaseException) -> None:
    """Give every call the same error, even if its body succeeded."""
    for call in calls:
        call.error = error
