"""Group commit: callers queue, and the leader runs every queued body with one durable commit for all.

No timer and no delay for a lone caller: it leads at once. A waiting thread is given the lead; an event loop, which
leads through `kernel.loop` and feeds the same queue, is only offered it, because a loop may stop at any moment. A
leader wakes every follower, even when it dies by KeyboardInterrupt: calls it had not committed run again under the
next. In a replicated workspace a group runs again when another node was first, a bounded number of times. A body that
calls the workspace instead of its `tx` gets Reentrant.

An `interactive` transaction never runs again. If its block exceeds the time limit, a watchdog rolls it back and frees
the lock; every later statement of the block fails, and leaving it raises Timeout. Called by the engine and workspace.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

from holdfast import errors
from holdfast.clock import Signal
from holdfast.kernel.batch import Batch, Call, Writer, fail, follow
from holdfast.kernel.journal import LogMoved
from holdfast.kernel.process_lock import Turns
from holdfast.kernel.signals import SHIELD
from holdfast.kernel.tx import GuardedTx, Tx

# (domain, thread) for each thread inside a transaction, over all handles of this process: a thread that waited for its
# own transaction would wait for ever.
_inside: set[tuple[str, int]] = set()

MAX_CALLS = 1024
MAX_RUNS = 4
LEAST_PATIENCE = 0.1  # seconds for SQLite's lock, however long the turn took
MAX_OUTRUN = 500  # times that other nodes may be first before a group fails


class SyncCall(Call):
    """A call whose thread sleeps until the call is answered or given the lead.

    `signal` wakes it; a call that leads from the beginning needs none.
    """

    __slots__ = ("signal",)

    def __init__(self, body: Callable[[Tx], Any], actor: str) -> None:
        super().__init__(body, actor)
        self.signal: Signal | None = None

    def lead(self) -> None:
        if self.signal is not None:
            self.signal.set()

    def answer(self) -> None:
        if self.signal is not None:
            self.signal.set()

    def wait(self) -> None:
        """Sleep until answered or given the lead."""
        assert self.signal is not None
        with SHIELD.window():
            self.signal.wait()


class Offer(SyncCall):
    """A call that can come later: it does not wait for a log that cannot be reached, for a reader waits for it."""

    __slots__ = ()

    @property
    def asks(self) -> bool:
        return False


class Exclusive(SyncCall):
    """A caller that needs the lead for itself: an interactive transaction, or close."""

    __slots__ = ()


class Group:
    """The queue of one workspace in one process, and the lead over it."""

    def __init__(
        self,
        writer: Writer,
        turns: Turns,
        busy_timeout: float,
        committed: Callable[[Batch], None],
        refused: Callable[[errors.HoldfastError, str], None],
    ) -> None:
        self.writer = writer
        self.turns = turns
        self.busy_timeout = busy_timeout
        self.committed = committed
        self.refused = refused
        self._mutex = threading.Lock()
        self._queue: deque[Call] = deque()
        self._led = False
        self._crowd = 0  # number of calls in the last group
        self.take_overs: dict[int, Callable[[], list[Call]]] = {}  # by thread: takes the lead from its event loop
        self.body_thread = 0  # the thread that is running bodies
        self._entered = ("", 0)

    # --- the queue and the lead over it ------------------------------------------------------------------------------

    def join(self, call: SyncCall) -> None:
        """Queue the call of a thread, which leads at once if nobody does."""
        self.check_open(call)  # before the mutex too: after a fork no thread may be left to release it
        with self._mutex:
            self.check_open(call)
            take_over = self.take_overs.pop(get_ident(), None)
            if take_over is not None:  # this thread's event loop leads and waits; we would block it for ever
                self._queue.extendleft(reversed(take_over()))
                self._led = False
            call.leads, self._led = not self._led, True
            if not call.leads:
                call.signal = Signal()
            self._queue.append(call)

    def queue(self, calls: Iterable[Call]) -> None:
        """Queue calls that others lead."""
        self.check_open()
        with self._mutex:
            self.check_open()
            self._queue.extend(calls)

    def try_lead(self) -> bool:
        """For an event loop: take the lead if nobody has it and a call is queued."""
        with self._mutex:
            if self._led or not self._queue:
                return False
            self._led = True
            return True

    def check_open(self, call: Call | None = None) -> None:
        """Raise Reentrant in a thread that is running a body of this workspace, or an error if it is closed."""
        if _inside:
            self.check_not_inside()
        store = self.writer.store
        if store.closed and not (store.lost and isinstance(call, Exclusive)):  # close() needs the lead of a lost store
            raise store.refusal()

    def check_not_inside(self) -> None:
        """Raise Reentrant in a thread that is running a body of this workspace."""
        if self.body_thread == get_ident():
            raise errors.Reentrant()
        if (self.writer.store.domain, get_ident()) in _inside:
            raise errors.Reentrant("this thread is inside a transaction of another handle on the same workspace")

    def take(self, calls: list[Call]) -> list[Call]:
        """Move queued calls to `calls` for the leader to run, up to one that needs the lead for itself."""
        with self._mutex:
            while self._queue and len(calls) < MAX_CALLS:
                call = self._queue[0]
                alone = isinstance(call, Exclusive)
                if alone and calls:
                    break
                self._queue.popleft()
                if not call.abandoned:
                    calls.append(call)
                if alone:
                    break
        return calls

    def pass_on(self, again: Iterable[Call] = ()) -> None:
        """Pass the lead to the next caller that can take it; the calls in `again` are queued once more.

        If no caller can, the next one to join leads, and runs what is queued here too.
        """
        with self._mutex:
            self._queue.extendleft(reversed(list(again)))
            if not self._queue:
                self._led = False
                return
            # A thread first: it waits for nothing else, and may be the very thread of a loop that could lead.
            threads = (call for call in self._queue if isinstance(call, SyncCall))
            heir = next(threads, None) or next((call for call in self._queue if call.ready), None)
            self._led = isinstance(heir, SyncCall)
            if heir is not None:
                heir.leads = self._led
        if heir is not None:
            heir.lead()

    def shut(self) -> None:
        """For the leader that has closed the store: fail all queued calls and drop the lead."""
        while calls := self.take([]):
            fail(calls, self.writer.store.refusal())
            for call in calls:
                call.answer()
        self._led = False

    def leave(self, call: Call) -> None:
        """Forget a call whose caller was interrupted while waiting, and pass on the lead if it had it."""
        with self._mutex:
            queued = call in self._queue  # otherwise it is running already
            if queued:
                self._queue.remove(call)
        if queued and call.leads:
            self.pass_on()

    # --- running and committing, for the leader ----------------------------------------------------------------------

    def run(self, calls: list[Call]) -> Batch | None:
        """Begin a batch and run the bodies; the caller has the turn. None if every call has failed.

        In a replicated workspace calls that are queued by the time the batch has begun join it, and `calls`.

        When the engine rolls back everything under one body, the others run again without it, and when one fails that
        has written, all run again, a bounded number of times.
        """
        todo = calls
        self.enter()
        try:
            for _ in range(MAX_RUNS):
                asked = writes = False
                for call in calls:
                    writes = writes or call.body is not follow
                    if asked := call.asks:
                        break
                batch = Batch(self.writer, asked, writes)
                batch.begin(self.patience)
                if asked and todo is calls and self.writer.journal is not None:
                    self.take(calls)  # those that came while the node waited for the log or for other nodes
                try:
                    lost = batch.run(todo)
                except BaseException:
                    self.undo(batch, calls)
                    raise
                if not lost:
                    return batch
                error = next((call.error for call in todo if call not in lost), None)
                todo = lost
            fail(todo, error or errors.Unavailable())
        except errors.ClockSkew as error:  # keeps a node from writing, not from following
            for call in todo:
                if call.body is follow:
                    call.result = None
                else:
                    call.error = error
        except Exception as error:
            fail(todo, error)
        finally:
            self.exit()
        return None

    def enter(self) -> None:
        """Mark this thread as running a body."""
        self.body_thread = get_ident()
        self._entered = (self.writer.store.domain, self.body_thread)
        _inside.add(self._entered)

    def exit(self) -> None:
        """Undo `enter`."""
        self.body_thread = 0
        _inside.discard(self._entered)

    def perform(self, calls: list[Call]) -> Batch | None:
        """Run and commit, again while other nodes are first; the caller has the turn."""
        for _ in range(MAX_OUTRUN):
            batch = self.run(calls)
            if batch is None or self.commit(batch, calls):
                return batch
        fail(calls, errors.Busy(f"other nodes were first {MAX_OUTRUN} times in a row; nothing was changed"))
        return None

    def commit(self, batch: Batch, calls: list[Call]) -> bool:
        """Commit a batch, or fail all its calls: even an error may depend on what another body wrote.

        False: another node was first, nothing was stored, and all of it must run again.
        """
        try:
            batch.commit()
        except LogMoved:
            self.undo(batch, calls)
            return False
        except Exception as error:
            batch.rollback()
            fail(calls, error)
        except BaseException as stop:
            if stop.__context__ is not None:  # interrupted while a failed commit was being handled
                batch.rollback()
                fail(calls, errors.OutcomeUnknown())
            elif not batch.committed:
                self.undo(batch, calls)
            raise
        return True

    @staticmethod
    def undo(batch: Batch, calls: list[Call]) -> None:
        """Roll back a batch that was interrupted before its commit; its calls can run again.

        If the log may already have it, all calls fail with OutcomeUnknown instead, so that nothing happens twice.
        """
        batch.rollback()
        if batch.in_doubt:
            fail(calls, errors.OutcomeUnknown("interrupted between the log and this node's replica"))
            return
        for call in calls:
            call.reset()

    def turn_missed(self) -> errors.Busy:
        """The error for a turn that did not come in time."""
        return self.turns.missed("nothing was changed")

    @property
    def patience(self) -> float | None:
        """The seconds that are left for SQLite's lock, if the turn took some of them; None: all of them."""
        waited = self.turns.waited
        return max(LEAST_PATIENCE, self.busy_timeout - waited) if waited else None

    # --- threads -----------------------------------------------------------------------------------------------------

    def submit(self, body: Callable[[Tx], Any], actor: str, kind: type[SyncCall] = SyncCall) -> Any:
        """Run a body in a transaction and return its result once that is durable."""
        call = kind(body, actor)
        try:
            with SHIELD:
                self.join(call)
                try:
                    while call.pending:
                        if call.leads:
                            self._lead(call)
                        else:
                            call.wait()
                except BaseException:
                    self.leave(call)
                    raise
            if call.error is not None:
                raise call.error
        except errors.HoldfastError as error:
            self.refused(error, actor)
            raise
        return call.result

    def lead_alone(self, call: Exclusive) -> None:
        """Take the lead with no other calls; everything queued before has run. Raises Closed if the workspace closed.

        The caller is shielded from before this call until it has passed on the lead.
        """
        self.join(call)
        try:
            while call.pending:
                if not call.leads:
                    call.wait()
                elif self._queue[0] is call:
                    self.take([])
                    return
                else:
                    self._lead(call)
        except BaseException:
            self.leave(call)
            raise
        raise call.error or errors.Closed()

    def _lead(self, own: SyncCall) -> None:
        """Take the turn, run what is queued, commit it and answer it; then give up the lead.

        A caller that wants the lead for itself keeps it, for what is queued before its own call.
        """
        calls: list[Call] = []
        batch: Batch | None = None
        try:
            self._gather()
            self.take(calls)
            self._crowd = len(calls)
            self.turns.actor = calls[0].actor if calls else ""
            if self.turns.take(self.busy_timeout):
                try:
                    batch = self.perform(calls)
                finally:
                    self.turns.give()
            else:
                fail(calls, self.turn_missed())
        finally:
            for call in calls:
                if not call.pending:
                    call.answer()
            again = [call for call in calls if call.pending and call is not own]
            if isinstance(own, Exclusive):
                with self._mutex:  # they go back where they were
                    self._queue.extendleft(reversed(again))
            else:
                own.leads = False
                if own.pending:  # it was queued behind more than one group, and may have to wait
                    own.signal = Signal()
                self.pass_on(again)
        if batch is not None:
            self.committed(batch)

    def _gather(self) -> None:
        """Let the callers of the last group join again, as long as they keep coming."""
        for _ in range(self._crowd):
            if len(self._queue) >= self._crowd:
                return
            time.sleep(0)


@contextmanager
def interactive(group: Group, actor: str, timeout: float) -> Iterator[GuardedTx]:
    """Hold the lead and the turn for the block; commit at its end, roll back if it raises."""
    with SHIELD:
        group.lead_alone(Exclusive(_no_body, actor))
        try:
            group.turns.actor = actor
            if not group.turns.take(group.busy_timeout):
                raise group.turn_missed()
            batch = _begin(group)
        except BaseException:
            group.pass_on()
            raise
        yield from _watched(group, batch, batch.guarded(actor), timeout)


def _begin(group: Group) -> Batch:
    try:
        batch = Batch(group.writer)
        batch.begin(group.patience)
        return batch
    except BaseException:
        group.turns.give()
        raise


def _watched(group: Group, batch: Batch, tx: GuardedTx, timeout: float) -> Iterator[GuardedTx]:
    late = threading.Event()

    def free() -> None:
        batch.rollback()
        batch.break_off_when(None)
        tx.end()
        group.exit()
        group.turns.give()
        group.pass_on()

    def bark() -> None:
        late.set()  # interrupts a running statement
        with tx.guard:
            if not tx.ended:
                free()

    watchdog = threading.Timer(timeout, bark)
    watchdog.daemon = True
    group.enter()
    batch.break_off_when(late.is_set)
    watchdog.start()
    try:
        with SHIELD.window():
            yield tx
        with tx.guard:
            if tx.ended and late.is_set():
                raise _too_late(timeout)
            batch.break_off_when(None)  # from here on it cannot be too late
            batch.absorb(tx)
            batch.commit()
    except LogMoved as moved:
        raise errors.Outrun() from moved
    except errors.HoldfastError as error:
        if late.is_set() and isinstance(error, errors.Timeout | errors.Closed):
            raise _too_late(timeout) from error
        _confirm(batch, error)
        raise
    finally:
        watchdog.cancel()
        with tx.guard:
            if group.body_thread == get_ident():  # the watchdog has not freed it
                free()
    group.committed(batch)


def _confirm(batch: Batch, refusal: errors.HoldfastError) -> None:
    """On a replica: an error that leaves the block must rest on the whole log, as a result must."""
    try:
        batch.confirm()
    except LogMoved:
        raise errors.Outrun() from refusal


def _too_late(timeout: float) -> errors.Timeout:
    return errors.Timeout(
        f"the transaction was open for more than {timeout:g} s and was rolled back",
        hint="do slow work before the block, or use ws.transact(body); nothing of the block was written",
    )


def _no_body(_: object) -> None:
    raise errors.Reentrant()
