"""Group commit: callers queue, whoever leads runs every queued body and pays one durable commit for all.

No timer and no delay for a lone caller: it leads at once. Threads lead here; an event loop leads through
`holdfast.aio`, which feeds the same queue. A leader answers every follower, also when it dies by KeyboardInterrupt:
its followers' bodies then run again under the next leader. A body that calls the workspace instead of its `tx` gets
Reentrant.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from threading import get_ident
from typing import Any

from holdfast import errors
from holdfast.kernel.batch import Batch, Call, Writer, fail
from holdfast.kernel.clock import Signal
from holdfast.kernel.turns import Turns
from holdfast.kernel.tx import Tx

MAX_CALLS = 1024
MAX_RUNS = 3


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
        self._signal.wait()


class Exclusive(SyncCall):
    """A caller that wants the lead for itself: an interactive transaction, or closing."""

    __slots__ = ()


class Group:
    """The queue of one workspace in one process, and the lead over it."""

    def __init__(
        self, writer: Writer, turns: Turns, busy_timeout: float, committed: Callable[[bool, int | None], None]
    ) -> None:
        self.writer = writer
        self.turns = turns
        self.busy_timeout = busy_timeout
        self.committed = committed
        self._mutex = threading.Lock()
        self._queue: deque[Call] = deque()
        self._led = False
        self.in_flight: dict[int, int] = {}  # awaitable calls per thread of an event loop
        self.body_thread = 0  # the thread that runs bodies just now

    # --- the queue and the lead over it ------------------------------------------------------------------------------

    def join(self, call: Call) -> bool:
        """Queue a call; True if its caller leads."""
        self.check_not_inside()
        self._check_open()  # before the mutex too: after a fork nobody may be left to release it
        with self._mutex:
            self._check_open()
            if self._led and isinstance(call, SyncCall) and self.in_flight.get(get_ident()):
                raise errors.Reentrant(
                    "this thread's event loop has calls in flight: a blocking call would wait for them for ever",
                    hint="on an event loop use await ws.aio...., or call from a thread",
                )
            self._queue.append(call)
            call.leads, self._led = not self._led, True
            return call.leads

    def _check_open(self) -> None:
        if self.writer.store.closed:
            raise errors.Closed(self.writer.store.closed)

    def check_not_inside(self) -> None:
        """Raise Reentrant in a thread that is running a body of this workspace."""
        if self.body_thread == get_ident():
            raise errors.Reentrant()

    def take(self) -> list[Call]:
        """The calls that the leader runs: those queued, up to one that wants the lead for itself."""
        calls: list[Call] = []
        with self._mutex:
            while self._queue and len(calls) < MAX_CALLS:
                if calls and isinstance(self._queue[0], Exclusive):
                    break
                calls.append(self._queue.popleft())
                if isinstance(calls[-1], Exclusive):
                    break
        return calls

    def pass_on(self, again: Iterable[Call] = ()) -> None:
        """Give up the lead, to the first in the queue if there is one; `again` are calls that must run once more."""
        with self._mutex:
            self._queue.extendleft(reversed(list(again)))
            heir = self._queue[0] if self._queue else None
            self._led = heir is not None
            if heir is not None:
                heir.leads = True
        if heir is not None:
            heir.lead()

    def shut(self) -> None:
        """For the leader that has closed the store: answer whoever is still queued, and lead nobody any more."""
        while calls := self.take():
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
                leads, call.leads = call.leads, False
        if queued and leads:
            self.pass_on()

    # --- running and committing, for whoever leads -------------------------------------------------------------------

    def run(self, calls: list[Call]) -> Batch | None:
        """Begin a batch and run the bodies; the caller has the turn. None if every call has failed.

        When the engine rolls back everything under one body, the others run again without it, a bounded number of
        times.
        """
        todo = calls
        self.body_thread = get_ident()
        try:
            for _ in range(MAX_RUNS):
                batch = Batch(self.writer)
                batch.begin()
                try:
                    lost = batch.run(todo)
                except BaseException:
                    batch.rollback()
                    raise
                if not lost:
                    return batch
                error = next(call.error for call in todo if call not in lost)
                todo = lost
            fail(todo, error or errors.Unavailable())
        except Exception as error:
            fail(todo, error)
        finally:
            self.body_thread = 0
        return None

    def commit(self, batch: Batch, calls: list[Call]) -> None:
        """Make a batch durable, or fail all its calls: even an error may rest on what another body wrote."""
        try:
            batch.commit()
        except Exception as error:
            fail(calls, error)
        except BaseException as stop:
            if stop.__context__ is not None:  # interrupted while a broken commit was being dealt with
                fail(calls, errors.OutcomeUnknown())
            raise

    def turn_missed(self) -> errors.Busy:
        """The error for a turn that did not come."""
        return errors.Busy(f"other processes kept the turn to write for {self.busy_timeout:g} s; nothing was changed")

    # --- threads -----------------------------------------------------------------------------------------------------

    def submit(self, body: Callable[[Tx], Any], actor: str) -> Any:
        """Run a body in a transaction and answer its result once that is durable."""
        call = SyncCall(body, actor)
        self.await_lead(call)
        if call.leads:
            self._lead(call)
        if call.error is not None:
            raise call.error
        return call.result

    def await_lead(self, call: SyncCall) -> None:
        """Queue a call and sleep until it is answered or leads."""
        if not self.join(call):
            try:
                call.wait()
            except BaseException:
                self.leave(call)
                raise

    def _lead(self, own: SyncCall) -> None:
        calls = self.take()
        batch: Batch | None = None
        try:
            if self.turns.take(self.busy_timeout):
                try:
                    batch = self.run(calls)
                    if batch is not None:
                        self.commit(batch, calls)
                finally:
                    if batch is not None and not batch.finished:
                        batch.rollback()  # interrupted before the commit: followers run again
                        for call in calls:
                            call.reset()
                    self.turns.give()
            else:
                fail(calls, self.turn_missed())
        finally:
            followers = [call for call in calls if call is not own]
            self.pass_on(call for call in followers if call.pending)
            for call in followers:
                if not call.pending:
                    call.answer()
        if batch is not None:
            self.committed(batch.emitted, batch.deadline)
