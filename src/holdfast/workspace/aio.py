"""`ws.aio`: every operation awaitable, feeding the same group commit.

Bodies and reads run on the event loop, because each takes microseconds and a writer thread beside a busy loop would
starve; only the COMMIT, which waits for the disk, runs in a thread. Imported on first use of `ws.aio`: the rest of
Holdfast does without asyncio.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from holdfast import errors
from holdfast.kernel.batch import Batch, Call, fail, nothing
from holdfast.kernel.engine import CANNOT_WRITE, Engine
from holdfast.kernel.signals import SHIELD
from holdfast.kernel.tx import SYSTEM, Tx
from holdfast.operation import (
    Async,
    Deadline,
    Do,
    Following,
    Listen,
    Look,
    Next,
    Operation,
    ReadFile,
    Step,
    drive_async,
)
from holdfast.types import Report
from holdfast.workspace import Workspace
from holdfast.workspace.context import Context, Fence
from holdfast.workspace.rulefiles import read_file
from holdfast.workspace.transaction import Root, Transaction
from holdfast.workspace.watch import AsyncWatch, LoopSignal, next_event_async


def running_loop() -> asyncio.AbstractEventLoop:
    """The event loop of the caller; Invalid if there is none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError as error:
        raise errors.Invalid(
            "ws.aio needs a running event loop", hint="use it inside async def, or ws itself"
        ) from error


# Seconds for which a loop lets go of the interpreter when it has handed over a commit: the worker needs it for a moment
# to get into SQLite, and would otherwise have to wait until the loop has nothing left to do.
HAND_OVER = 0.00005

R = TypeVar("R")
E = TypeVar("E")


class AsyncCall(Call):
    """A call whose task sleeps on a future until it is answered; its loop leads for it."""

    __slots__ = ("_leader", "future")

    def __init__(self, body: Callable[[Tx], Any], actor: str, leader: LoopLeader) -> None:
        super().__init__(body, actor)
        self._leader = leader
        self.future: asyncio.Future[Any] = leader.loop.create_future()

    @property
    def ready(self) -> bool:
        return self._leader.loop.is_running()

    def lead(self) -> None:
        self._leader.soon(self._leader.lead)

    def answer(self) -> None:
        self._leader.answer(self)

    def resolve(self) -> None:
        """On the loop: wake the task."""
        if self.future.done():
            return  # cancelled meanwhile
        if isinstance(self.error, StopIteration):  # which no future can carry
            self.future.set_exception(RuntimeError(f"the body raised {self.error!r}"))
        elif self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class LoopLeader:
    """Leads the group from one event loop."""

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._engine = engine
        self._group = engine.group
        self._answering = threading.Lock()
        self._answered: list[AsyncCall] = []
        self._coming = False  # `lead` has been scheduled
        self._asked = False  # in this turn of the loop
        self._commits: queue.SimpleQueue[Callable[[], None] | None] | None = None

    async def submit(self, body: Callable[[Tx], Any], actor: str) -> Any:
        """Run a body in a transaction and answer its result once that is durable."""
        call = AsyncCall(body, actor, self)
        self._group.join(call)
        if not self._coming:
            self._coming = True
            self.loop.call_soon(self.lead)  # not at once: tasks that are ready now join the same group
        try:
            return await call.future
        except asyncio.CancelledError:
            self._group.leave(call)
            raise
        except errors.HoldfastError as error:
            self._engine.refused(error, actor)
            raise

    def is_new_turn(self) -> bool:
        """Whether this is asked for the first time in this turn of the loop."""
        if self._asked:
            return False
        self._asked = True
        self.loop.call_soon(self._next_turn)
        return True

    def _next_turn(self) -> None:
        self._asked = False

    def soon(self, function: Callable[..., None], *args: Any) -> bool:
        """Call on the loop, from any thread; False if the loop is gone."""
        try:
            self.loop.call_soon_threadsafe(function, *args)
        except RuntimeError:  # closed
            return False
        return True

    def lead(self) -> None:
        """On the loop: if nobody leads, run what is queued."""
        self._coming = False
        group = self._group
        with SHIELD:
            if not group.try_lead():
                return
            calls = group.take([])
            if group.turns.try_take():
                self._run(calls)
            else:
                self._await_turn(calls)

    def _await_turn(self, calls: list[Call]) -> None:
        """Other processes have the turn: wait for it beside the loop; the first of three ends decides."""
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
                group.pass_on()
                self._answer_all(calls)

        def take_over() -> list[Call]:
            timer.cancel()
            if not abandon():
                group.turns.give()  # it has just come; the blocking caller takes it again
            return calls

        group.take_overs[thread] = take_over
        timer = self.loop.call_later(group.busy_timeout, give_up)
        abandon = group.turns.take_later(taken)

    def _run(self, calls: list[Call]) -> None:
        if self._group.writer.journal is not None:  # it may wait for the log, so all of it runs beside the loop
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
        """In the worker: run and commit, and answer everyone even if a body raised what would end a thread."""
        batch: Batch | None = None
        try:
            batch = self._group.perform(calls)
        except BaseException as stop:
            ended = errors.Unavailable(f"a body of the same group raised {stop!r}; nothing was changed")
            ended.__cause__ = stop
            fail([call for call in calls if call.pending], ended)
        self._finish(batch, calls)

    def _commit(self, batch: Batch | None, calls: list[Call]) -> None:
        """In the worker: make it durable, then pass on the lead even if the loop is gone by now."""
        if batch is not None:
            self._group.commit(batch, calls)
        self._finish(batch, calls)

    def _finish(self, batch: Batch | None, calls: list[Call]) -> None:
        self._group.turns.give()
        self._group.pass_on()
        self._answer_all(calls)
        if batch is not None:
            self._group.committed(batch.emitted, batch.deadline)

    @staticmethod
    def _answer_all(calls: list[Call]) -> None:
        for call in calls:
            call.answer()

    def answer(self, call: AsyncCall) -> None:
        """From any thread: wake a task; those answered together wake the loop once."""
        with self._answering:
            self._answered.append(call)
            first = len(self._answered) == 1
        if first:
            self.soon(self._resolve)

    def _resolve(self) -> None:
        with self._answering:
            answered, self._answered = self._answered, []
        for call in answered:
            call.resolve()

    def _worker(self) -> queue.SimpleQueue[Callable[[], None] | None]:
        if self._commits is None:
            self._commits = queue.SimpleQueue()
            threading.Thread(target=_work, args=(self._commits,), name="holdfast-commit", daemon=True).start()
        return self._commits

    def __del__(self) -> None:
        if self._commits is not None:
            self._commits.put(None)


def _work(commits: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (commit := commits.get()) is not None:
        commit()
        del commit  # which holds the leader, whose end ends this thread


class AsyncWorkspace(Root[Async]):
    """The awaitable twin of a workspace, bound to the running event loop."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(self)
        self._workspace = workspace
        self._engine = workspace._engine
        self._context: Context = workspace._context
        self._leader = leader_of(self._engine, running_loop())

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop it belongs to."""
        return self._leader.loop

    def using(
        self,
        actor: str | None = None,
        fence: Fence | None = None,
        key: str | None = None,
        at_least: int | Literal["latest"] | None = None,
    ) -> AsyncWorkspace:
        """The same workspace with another call context."""
        return AsyncWorkspace(self._workspace.using(actor, fence, key, at_least))

    async def transact(self, body: Callable[[Transaction], R]) -> R:
        """Run `body(tx)`, a plain function, in one transaction; it runs on the loop and may run again."""
        self._load_files()
        result: R = await self._submit(self._workspace.transact_body(body))
        return result

    async def check(self) -> Report:
        """`Workspace.check`, in a thread."""
        return await asyncio.to_thread(self._workspace.check)

    async def backup(self, path: str | Path) -> Path:
        """`Workspace.backup`, in a thread."""
        return await asyncio.to_thread(self._workspace.backup, path)

    async def revision(self) -> int:
        """The revision of the newest transaction."""
        return self._workspace.revision

    async def _submit(self, body: Callable[[Tx], Any]) -> Any:
        return await self._leader.submit(body, self._context.actor)

    # how operations run

    def bind(self, op: Operation[..., Any]) -> Callable[..., Any]:
        """An operation as an awaitable call."""
        call = self._bind(op)
        return self._after_loading(call) if op.routed else call

    def _after_loading(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            self._load_files()
            return call(*args, **kwargs)

        return run

    def _load_files(self) -> None:
        """`Workspace.load_files`, once for all tasks that run in the same turn of the loop."""
        if self._leader.is_new_turn():
            self._workspace.load_files()

    def _bind(self, op: Operation[..., Any]) -> Callable[..., Any]:
        workspace = self._workspace
        match op.kind:
            case "read":
                return self._bind_read(op)
            case "write":
                submit, actor = self._leader.submit, self._context.actor
                return lambda *args, **kwargs: submit(workspace.body_of(op, args, kwargs), actor)
            case "procedure":
                return lambda *args, **kwargs: drive_async(
                    op.function(*args, **kwargs), lambda step: self._perform(op, args, kwargs, step)
                )
            case "first":
                return lambda *args, **kwargs: self._first(workspace.following(op, args, kwargs))
        return lambda *args, **kwargs: AsyncWatch(self._engine, workspace.following(op, args, kwargs))

    def _bind_read(self, op: Operation[..., Any]) -> Callable[..., Any]:
        read = self._workspace.bind_read(op)

        async def call(*args: Any, **kwargs: Any) -> Any:
            if self._context.at_least is not None and self._engine.journal is not None:
                await asyncio.to_thread(self._workspace.reach)  # which may wait for the log
            if op.listing and self._engine.due():
                with contextlib.suppress(*CANNOT_WRITE):  # then the last sweep must do
                    await self._leader.submit(nothing, SYSTEM)
            return read(*args, **kwargs)

        return call

    async def _first(self, following: Following[E]) -> E | None:
        async with AsyncWatch(self._engine, following) as watch:
            return await anext(watch, None)

    async def _perform(self, op: Operation[..., Any], args: Sequence[Any], kwargs: dict[str, Any], step: Step) -> Any:
        workspace, engine = self._workspace, self._engine
        match step:
            case Do() as do:
                return await self._submit(workspace.step_body(op, args, kwargs, do))
            case Look() as look:
                return workspace.look(look)
            case Deadline(seconds=seconds):
                return engine.clock.monotonic() + round(seconds * 1e6)
            case Listen(wanted=wanted):
                return engine.watch(wanted, None, LoopSignal(self.loop))
            case Next(watcher=watcher, deadline=deadline):
                return await next_event_async(engine, watcher, deadline)
            case ReadFile(name=name):
                return read_file(engine.folder, name)


def leader_of(engine: Engine, loop: asyncio.AbstractEventLoop) -> LoopLeader:
    """The one leader of an engine on a loop."""
    leader: LoopLeader | None = engine.loop_leaders.get(id(loop))
    if leader is None:
        leader = engine.loop_leaders[id(loop)] = LoopLeader(engine, loop)
    return leader
