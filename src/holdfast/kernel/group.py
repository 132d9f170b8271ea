"""Group commit: callers queue, the leader runs every queued body and pays one durable commit for all.

No timer and no delay for a lone caller: it leads at once. A thread that waits is given the lead; an event loop, which
leads through `kernel.loop` and feeds the same queue, is only offered it, because a loop may stop at any moment. A
leader answers every follower, also when it dies by KeyboardInterrupt: what it had not committed runs again under the
next. In a replicated workspace a group that another node has outrun runs again, a bounded number of times. A body that
calls the workspace instead of its `tx` gets Reentrant.

It never re-runs. If the block is not done in time, the watchdog rolls it back and frees the lock for the others; every
later statement of the block is refused, and leaving it raises Timeout. Called by the workspace.
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
from holdfast.kernel.batch import Batch, Call, Writer, fail, follow
from holdfast.kernel.clock import Signal
from holdfast.kernel.journal import Moved
from holdfast.kernel.process_lock import Turns
from holdfast.kernel.signals import SHIELD
from holdfast.kernel.tx import GuardedTx, Tx

# Which threads are inside a transaction of which domain, over all handles of this process: one that waited for another
# of the same thread would wait for itself.
_inside: set[tuple[str, int]] = set()

MAX_CALLS = 1024
MAX_RUNS = 3
MAX_OUTRUN = 500  # times that other nodes may be first before a group gives up


class SyncCall(Call):
    """A call whose thread sleeps until it is answered or told to lead."""

    __slots__ = ("_signal",)

    def __init__(self, body: Callable[[Tx], Any], actor: str) -> None:
        super().__init__(body, actor)
        self._signal = Signal()

    def lead(self) -> None:
        self._signal.set()

    def answer(self) -> None:
        self._signal.set()

    def wait(self) -> None:
        """Sleep until told."""
        with SHIELD.window():
            self._signal.wait()


class Exclusive(SyncCall):
    """A caller that wants the lead for itself: an interactive transaction, or closing."""

    __slots__ = ()


class Group:
    """The queue of one workspace in one process, and the lead over it."""

    def __init__(
        self,
        writer: Writer,
        turns: Turns,
        busy_timeout: float,
        committed: Callable[[bool, int | None], None],
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
        self._crowd = 0  # calls in the group before
        self.take_overs: dict[int, Callable[[], list[Call]]] = {}  # by thread: takes the lead off its event loop
        self.body_thread = 0  # the thread that runs bodies just now
        self._entered = ("", 0)

    # --- the queue and the lead over it ------------------------------------------------------------------------------

    def join(self, call: Call) -> None:
        """Queue a call; a thread leads at once if nobody does."""
        self.check_not_inside()
        self._check_open()  # before the mutex too: after a fork nobody may be left to release it
        with self._mutex:
            self._check_open()
            if isinstance(call, SyncCall):
                take_over = self.take_overs.pop(get_ident(), None)
                if take_over is not None:  # this thread's event loop leads and waits; blocked by us it would for ever
                    self._queue.extendleft(reversed(take_over()))
                    self._led = False
                call.leads, self._led = not self._led, True
            self._queue.append(call)

    def try_lead(self) -> bool:
        """For an event loop: lead, if nobody does and somebody is queued."""
        with self._mutex:
            if self._led or not self._queue:
                return False
            self._led = True
            return True

    def _check_open(self) -> None:
        if self.writer.store.closed:
            raise errors.Closed(self.writer.store.closed)

    def check_not_inside(self) -> None:
        """Raise Reentrant in a thread that is running a body of this workspace."""
        if self.body_thread == get_ident():
            raise errors.Reentrant()
        if (self.writer.store.domain, get_ident()) in _inside:
            raise errors.Reentrant("this thread is inside a transaction of another handle on the same workspace")

    def take(self, calls: list[Call]) -> list[Call]:
        """The calls that the leader runs, added to `calls`: those queued, up to one that wants the lead for itself."""
        with self._mutex:
            while self._queue and len(calls) < MAX_CALLS:
                if calls and isinstance(self._queue[0], Exclusive):
                    break
                calls.append(self._queue.popleft())
                if isinstance(calls[-1], Exclusive):
                    break
        return calls

    def pass_on(self, again: Iterable[Call] = ()) -> None:
        """Give up the lead to the next who can have it; `again` are calls that must run once more.

        If nobody can, whoever calls next leads, and runs what is queued here too.
        """
        with self._mutex:
            self._queue.extendleft(reversed(list(again)))
            # A thread first: it sleeps for nothing else, and may be the very thread of a loop that could lead.
            threads = (call for call in self._queue if isinstance(call, SyncCall))
            heir = next(threads, None) or next((call for call in self._queue if call.ready), None)
            self._led = isinstance(heir, SyncCall)
            if heir is not None:
                heir.leads = self._led
        if heir is not None:
            heir.lead()

    def shut(self) -> None:
        """For the leader that has closed the store: answer whoever is still queued, and lead nobody any more."""
        while calls := self.take([]):
            fail(calls, errors.Closed(self.writer.store.closed))
            for call in calls:
                call.answer()
        self._led = False

    def leave(self, call: Call) -> None:
        """Its caller was interrupted while it waited: forget the call, and pass on the lead if it had it."""
        with self._mutex:
            queued = call in self._queue  # otherwise somebody is running it already
            if queued:
                self._queue.remove(call)
        if queued and call.leads:
            self.pass_on()

    # --- running and committing, for whoever leads -------------------------------------------------------------------

    def run(self, calls: list[Call]) -> Batch | None:
        """Begin a batch and run the bodies; the caller has the turn. None if every call has failed.

        When the engine rolls back everything under one body, the others run again without it, a bounded number of
        times.
        """
        todo = calls
        self.enter()
        try:
            for _ in range(MAX_RUNS):
                writes = any(call.body is not follow for call in calls)
                batch = Batch(self.writer, any(call.asks for call in calls), writes)
                batch.begin()
                try:
                    lost = batch.run(todo)
                except BaseException:
                    self.undo(batch, calls)
                    raise
                if not lost:
                    return batch
                error = next(call.error for call in todo if call not in lost)
                todo = lost
            fail(todo, error or errors.Unavailable())
        except errors.ClockSkew as error:  # which keeps a node from writing, not from following
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
        """This thread runs a body from here on."""
        self.body_thread = get_ident()
        self._entered = (self.writer.store.domain, self.body_thread)
        _inside.add(self._entered)

    def exit(self) -> None:
        """And no longer."""
        self.body_thread = 0
        _inside.discard(self._entered)

    def perform(self, calls: list[Call]) -> Batch | None:
        """Run and commit, again and again while other nodes are first; the caller has the turn."""
        for _ in range(MAX_OUTRUN):
            batch = self.run(calls)
            if batch is None or self.commit(batch, calls):
                return batch
        fail(calls, outrun())
        return None

    def commit(self, batch: Batch, calls: list[Call]) -> bool:
        """Make a batch durable, or fail all its calls: even an error may rest on what another body wrote.

        False: another node was first, nothing of it counts, and all of it must run again.
        """
        try:
            batch.commit()
        except Moved:
            self.undo(batch, calls)
            return False
        except Exception as error:
            batch.rollback()
            fail(calls, error)
        except BaseException as stop:
            if stop.__context__ is not None:  # interrupted while a broken commit was being dealt with
                batch.rollback()
                fail(calls, errors.OutcomeUnknown())
            elif not batch.committed:
                self.undo(batch, calls)
            raise
        return True

    @staticmethod
    def undo(batch: Batch, calls: list[Call]) -> None:
        """Interrupted before the commit: nothing of it counts, and what has no answer can run again.

        Unless the log may have it by now: then nobody can say, and it must not happen twice.
        """
        batch.rollback()
        if batch.in_doubt:
            fail(calls, errors.OutcomeUnknown("interrupted between the log and this node's replica"))
            return
        for call in calls:
            call.reset()

    def turn_missed(self) -> errors.Busy:
        """The error for a turn that did not come."""
        return errors.Busy(f"other processes kept the turn to write for {self.busy_timeout:g} s; nothing was changed")

    # --- threads -----------------------------------------------------------------------------------------------------

    def submit(self, body: Callable[[Tx], Any], actor: str) -> Any:
        """Run a body in a transaction and return its result once that is durable."""
        call = SyncCall(body, actor)
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
        """Have the lead with nobody else's calls: what was queued before has run. Raises if the workspace closed.

        The caller is shielded, from before this until it has passed on the lead.
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
                self._requeue(again)
            else:
                own.leads = False
                self.pass_on(again)
        if batch is not None:
            self.committed(batch.emitted, batch.deadline)

    def _requeue(self, calls: list[Call]) -> None:
        """Put calls that must run again where they were."""
        with self._mutex:
            self._queue.extendleft(reversed(calls))

    def _gather(self) -> None:
        """Those whom the last group answered are about to call again: let them join, as long as they come."""
        for _ in range(self._crowd):
            if len(self._queue) >= self._crowd:
                return
            time.sleep(0)


def outrun() -> errors.Busy:
    """The error of a group that never was first."""
    return errors.Busy(f"other nodes were first {MAX_OUTRUN} times in a row; nothing was changed")


@contextmanager
def interactive(group: Group, actor: str, timeout: float) -> Iterator[GuardedTx]:
    """Hold the lead and the turn for the block; commit at its end, roll back if it raises."""
    with SHIELD:
        group.lead_alone(Exclusive(_no_body, actor))
        try:
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
        batch.begin()
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
        late.set()  # breaks off a statement that is running
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
            batch.break_off_when(None)  # from here on it is not too late any more
            batch.absorb(tx)
            batch.commit()
    except Moved as moved:
        raise errors.Outrun() from moved
    except errors.HoldfastError as error:
        if late.is_set() and isinstance(error, errors.Timeout | errors.Closed):
            raise _too_late(timeout) from error
        _confirm(batch, error)
        raise
    finally:
        watchdog.cancel()
        with tx.guard:
            if group.body_thread == get_ident():  # the watchdog has not been here
                free()
    group.committed(batch.emitted, batch.deadline)


def _confirm(batch: Batch, refusal: errors.HoldfastError) -> None:
    """On a replica: a refusal that left the block must have seen everything, as an answer must."""
    try:
        batch.confirm()
    except Moved:
        raise errors.Outrun() from refusal


def _too_late(timeout: float) -> errors.Timeout:
    return errors.Timeout(
        f"the transaction was open for more than {timeout:g} s and was rolled back",
        hint="do slow work before the block, or use ws.transact(body); nothing of the block was written",
    )


def _no_body(_: object) -> None:
    raise errors.Reentrant()
