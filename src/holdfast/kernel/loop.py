"""The kernel on an event loop: a `LoopLeader` runs bodies on its loop and commits in a thread; waiting for events.

Each body takes microseconds and a writer thread beside a busy loop would starve, so only the COMMIT, which waits for
the disk, runs in a thread. Imported with `ws.aio`: the rest of the kernel does without asyncio.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from holdfast import errors
from holdfast.kernel.batch import Batch, Call, fail
from holdfast.kernel.engine import Engine
from holdfast.kernel.process_lock import start_helper
from holdfast.kernel.signals import SHIELD
from holdfast.kernel.tx import Tx
from holdfast.kernel.wake import Watcher
from holdfast.types import Event

# Seconds for which a loop releases the interpreter after handing over a commit: the worker needs it for a moment to
# enter SQLite, and would otherwise wait until the loop is idle.
HAND_OVER = 0.00005


class AsyncCall(Call):
    """A call whose task waits on a future; its event loop leads for it."""

    __slots__ = ("future", "leader")

    def __init__(self, body: Callable[[Tx], Any], actor: str, leader: LoopLeader) -> None:
        super().__init__(body, actor)
        self.leader = leader
        self.future: asyncio.Future[Any] = asyncio.Future(loop=leader.loop)

    @property
    def ready(self) -> bool:
        return self.leader.loop.is_running()

    @property
    def abandoned(self) -> bool:
        return self.future.done()  # cancelled: nobody else ends it before its answer

    def lead(self) -> None:
        self.leader.soon(self.leader.lead_soon)

    def answer(self) -> None:
        self.leader.answer([self])


class LoopLeader:
    """Leads the group from one event loop."""

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._engine = engine
        self._group = engine.group
        self._answering = threading.Lock()
        self._answered: list[AsyncCall] = []
        self._calls: list[AsyncCall] = []  # of this turn of the loop, which join the group together
        self._coming = False  # `lead` has been scheduled
        self._asked = False  # in this turn of the loop
        self._commits: queue.SimpleQueue[Callable[[], None] | None] | None = None

    def call(self, body: Callable[[Tx], Any], actor: str) -> asyncio.Future[Any]:
        """Run a body in a transaction with everything else that this turn of the loop calls.

        The future has its result once that is durable. A call that is cancelled before its group runs is dropped.
        """
        self._group.check_open()
        call = AsyncCall(body, actor, self)
        self._calls.append(call)
        self.lead_soon()
        return call.future

    async def submit(self, body: Callable[[Tx], Any], actor: str) -> Any:
        """The same as a coroutine, which begins when it is awaited."""
        return await self.call(body, actor)

    def is_new_turn(self) -> bool:
        """Whether this is the first call in this turn of the loop."""
        if self._asked:
            return False
        self._asked = True
        self.loop.call_soon(self._next_turn)
        return True

    def _next_turn(self) -> None:
        self._asked = False

    def soon(self, function: Callable[..., None], *args: Any) -> bool:
        """Call `function` on the loop, from any thread. False if the loop is closed."""
        try:
            self.loop.call_soon_threadsafe(function, *args)
        except RuntimeError:  # closed
            return False
        return True

    def lead_soon(self) -> None:
        """On the loop: lead after the tasks that are ready now, so that they join the same group."""
        if not self._coming:
            self._coming = True
            self.loop.call_soon(self.lead)

    def lead(self) -> None:
        """On the loop: if nobody leads, run the queued calls."""
        self._coming = False
        group = self._group
        with SHIELD:
            calls, self._calls = self._calls, []
            try:
                group.queue(calls)
            except errors.HoldfastError as error:  # closed meanwhile
                fail(calls, error)
                self.answer(calls)
                return
            if not group.try_lead():
                return
            taken = group.take([])
            group.turns.actor = calls[0].actor if calls else ""
            if group.turns.try_take():
                self._run(taken)
            else:
                self._await_turn(taken)

    def _await_turn(self, calls: list[Call]) -> None:
        """Wait beside the loop for the turn that other processes have; the first of three outcomes decides."""
        group, thread = self._group, threading.get_ident()

        def taken() -> None:
            if not self.loop.is_running() or not self.soon(run):
                group.turns.give()
                group.pass_on(calls)

        def run() -> None:
            with SHIELD:
                if group.take_overs.pop(thread, None):
                    timer.cancel()
                    self._run(calls)

        def give_up() -> None:
            if abandon():  # otherwise the turn has just come, and `run` is on its way
                group.take_overs.pop(thread, None)
                fail(calls, group.turn_missed())
                self._end(calls)

        def take_over() -> list[Call]:
            timer.cancel()
            if not abandon():
                group.turns.give()  # it has just come; the blocking caller takes it again
            return calls

        group.take_overs[thread] = take_over
        timer = self.loop.call_later(group.busy_timeout, give_up)
        abandon = group.turns.take_later(taken)

    def _run(self, calls: list[Call]) -> None:
        if self._group.writer.journal is not None:  # it may wait for the log, so all of it runs in the worker
            self._worker().put(lambda: self._perform(calls))
            return
        try:
            batch = self._group.run(calls)
        except BaseException:
            self._group.turns.give()
            self._group.pass_on(calls)
            raise
        if batch is None or not batch.dirty:
            self._commit(batch, calls)  # nothing for the disk
        else:
            self._worker().put(lambda: self._commit(batch, calls))
            time.sleep(HAND_OVER)

    def _perform(self, calls: list[Call]) -> None:
        """In the worker: run and commit, and resolve every call even if a body raised what would end a thread."""
        batch: Batch | None = None
        try:
            batch = self._group.perform(calls)
        except BaseException as stop:
            ended = errors.Unavailable(f"a body of the same group raised {stop!r}; nothing was changed")
            ended.__cause__ = stop
            fail([call for call in calls if call.pending], ended)
        self._finish(batch, calls)

    def _commit(self, batch: Batch | None, calls: list[Call]) -> None:
        """In the worker: commit, then pass on the lead even if the loop has stopped."""
        if batch is not None:
            self._group.commit(batch, calls)
        self._finish(batch, calls)

    def _finish(self, batch: Batch | None, calls: list[Call]) -> None:
        self._group.turns.give()
        self._end(calls)
        if batch is not None:
            self._group.committed(batch)

    def _end(self, calls: list[Call]) -> None:
        """Answer every call and pass on the lead.

        The tasks of this loop are answered first, in one piece: what they call next joins the next group. Otherwise
        that would run without them, and the loop would go on with two half groups.
        """
        own = [call for call in calls if isinstance(call, AsyncCall) and call.leader is self]
        self.answer(own)
        self._group.pass_on()
        for call in calls if len(own) < len(calls) else ():
            if call not in own:
                call.answer()

    def answer(self, calls: Sequence[AsyncCall]) -> None:
        """From any thread: wake tasks of this loop. Calls answered together wake the loop once."""
        with self._answering:
            first = not self._answered
            self._answered += calls
        if first and calls:
            self.soon(self._resolve)

    def _resolve(self) -> None:
        """On the loop: wake the tasks."""
        with self._answering:
            answered, self._answered = self._answered, []
        for call in answered:
            future, error = call.future, call.error
            if future.done():
                continue  # cancelled meanwhile
            if error is None:
                future.set_result(call.result)
                continue
            if isinstance(error, errors.HoldfastError):
                self._engine.refused(error, call.actor)
            elif isinstance(error, StopIteration):  # which no future can carry
                error = RuntimeError(f"the body raised {error!r}")
            future.set_exception(error)

    def _worker(self) -> queue.SimpleQueue[Callable[[], None] | None]:
        if self._commits is None:
            self._commits = start_helper("holdfast-commit")
        return self._commits

    def __del__(self) -> None:
        if self._commits is not None:
            self._commits.put(None)


def leader_of(engine: Engine, loop: asyncio.AbstractEventLoop) -> LoopLeader:
    """Return the one leader of an engine on a loop."""
    leader: LoopLeader | None = engine.loop_leaders.get(id(loop))
    if leader is None:
        leader = engine.loop_leaders[id(loop)] = LoopLeader(engine, loop)
    return leader


class LoopSignal:
    """A wake-up for one task of the running loop, set from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake the task; a loop that has ended has no task to wake."""
        with contextlib.suppress(RuntimeError):  # closed
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, timeout: float | None) -> None:
        """Sleep until set, or for `timeout` real seconds."""
        try:
            # Not wait_for: that of Python 3.11 can lose a cancellation which comes together with the event.
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            return
        self._event.clear()


async def next_event(engine: Engine, watcher: Watcher, deadline: int | None) -> Event | None:
    """Sleep until the watcher has an event, or None at the deadline."""
    clock, signal = engine.clock, watcher.signal
    assert isinstance(signal, LoopSignal)
    clock.enroll(signal)
    try:
        while True:
            event = watcher.take()
            if event is not None or (deadline is not None and clock.monotonic() >= deadline):
                return event
            await signal.wait(None if deadline is None else clock.max_sleep(deadline))
    finally:
        clock.dismiss(signal)
