"""`ws.aio`: every operation awaitable, feeding the same group commit.

Bodies and reads run on the event loop, because each takes microseconds and a writer thread beside a busy loop would
starve; only the COMMIT, which waits for the disk, runs in a thread. Imported on first use of `ws.aio`: the rest of
Holdfast does without asyncio.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, TypeVar

from holdfast import errors
from holdfast.clock import Wakeable
from holdfast.kernel.batch import nothing
from holdfast.kernel.engine import CANNOT_WRITE
from holdfast.kernel.loop import LoopLeader, LoopSignal, leader_of, next_event
from holdfast.kernel.tx import SYSTEM
from holdfast.operation import Async, Following, Look, Next, Operation, drive_async
from holdfast.types import Report
from holdfast.workspace import Workspace, with_context
from holdfast.workspace.context import Context
from holdfast.workspace.runner import Bound, Runner
from holdfast.workspace.transaction import InContext, Transaction, user_body
from holdfast.workspace.watch import AsyncWatch

STOP_TIMEOUT: Final = 1.0  # seconds that a call which waits for others has to finish when its server stops
R = TypeVar("R")


def running_loop() -> asyncio.AbstractEventLoop:
    """The event loop of the caller; Invalid if there is none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError as error:
        raise errors.Invalid(
            "ws.aio needs a running event loop", hint="use it inside async def, or ws itself"
        ) from error


class LoopRunner(Runner):
    """Awaits operations on an event loop."""

    awaits: ClassVar[bool] = True
    drive: ClassVar[Callable[..., Any]] = staticmethod(drive_async)

    def __init__(self, threads: Runner, leader: LoopLeader) -> None:
        super().__init__(threads.engine, threads.context, threads.files)
        self.submit = leader.submit
        self.do = leader.call
        self.leader = leader

    def reload_rules(self, writing: bool = True) -> None:
        """Once for all tasks that run in the same turn of the loop."""
        if self.leader.is_new_turn():
            super().reload_rules(writing)

    def _read(self, op: Operation[..., Any]) -> Bound:
        read, engine, at_least = self._reader(op), self.engine, self.context.at_least

        async def fetch(*args: Any, **kwargs: Any) -> Any:
            if at_least is not None and engine.journal is not None:
                await asyncio.to_thread(self.catch_up)  # which may wait for the log
            if op.listing and engine.due():
                with contextlib.suppress(*CANNOT_WRITE):  # then the last sweep must do
                    await self.submit(nothing, SYSTEM)
            return read(*args, **kwargs)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.reload_rules(writing=False)
            return fetch(*args, **kwargs)

        return call if op.reloads_rules else fetch

    def _look(self, step: Look) -> Any:
        """In a thread if the read is needed: it may take a while."""
        return asyncio.to_thread(super()._look, step) if step.needed else super()._look(step)

    def watch(self, following: Following[Any]) -> AsyncWatch[Any]:
        """An async iterator over events."""
        return AsyncWatch(self.engine, following)

    def signal(self) -> Wakeable:
        """What wakes a task that waits for an event."""
        return LoopSignal()

    def _next(self, step: Next) -> Any:
        return next_event(self.engine, step.watcher, step.deadline)


class AsyncWorkspace(InContext[Async]):
    """The awaitable twin of a workspace, bound to the running event loop."""

    _runner: LoopRunner

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(LoopRunner(workspace._runner, leader_of(workspace._engine, running_loop())))
        self._workspace = workspace
        self._context = workspace._context
        self._loop = self._runner.leader.loop

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop it belongs to."""
        return self._loop

    def _is_here(self) -> bool:
        """Whether the caller's event loop is the one it belongs to."""
        return running_loop() is self._loop

    def _within(self, context: Context) -> AsyncWorkspace:
        return AsyncWorkspace(with_context(self._workspace, context))

    async def transact(self, body: Callable[[Transaction], R]) -> R:
        """Run `body(tx)`, a plain function, in one transaction; it runs on the loop and may run again."""
        runner = self._runner
        runner.reload_rules()
        result: R = await runner.submit(runner.guard_users(user_body(body)), runner.context.actor)
        return result

    if not TYPE_CHECKING:  # a type checker reports its use

        def transaction(self) -> NoReturn:
            """Raises Unsupported: a block that awaits would keep every other writer waiting."""
            raise errors.Unsupported(
                "a transaction around a block would hold up every other writer while the block awaits",
                hint="pass a plain function to transact, and await that",
            )

    async def check(self) -> Report:
        """`Workspace.check`, in a thread."""
        return await asyncio.to_thread(self._workspace.check)

    async def backup(self, path: str | Path) -> Path:
        """`Workspace.backup`, in a thread."""
        return await asyncio.to_thread(self._workspace.backup, path)

    async def revision(self) -> int:
        """The revision of the newest transaction."""
        return self._workspace.revision


async def while_serving(
    op: Operation[..., Any], work: Awaitable[R], stopping: asyncio.Event, gone: Awaitable[Any] | None = None
) -> R:
    """Await a call that may wait for others: no longer than its client does, nor than the server runs.

    `gone` is done when the client hangs up. The call has a task of its own, which is cancelled once, so that it can
    leave a line in order; one that is about to finish when the server stops may do so. A write that is cut off may
    have happened.
    """
    task = asyncio.ensure_future(work)
    stop = asyncio.ensure_future(stopping.wait())
    left = asyncio.ensure_future(gone) if gone is not None else asyncio.get_running_loop().create_future()
    try:
        await asyncio.wait((task, stop, left), return_when=asyncio.FIRST_COMPLETED)
        if not task.done() and not left.done():
            await asyncio.wait((task,), timeout=STOP_TIMEOUT)
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
        if not task.cancelled():
            return task.result()
    finally:
        for each in (task, stop, left):
            each.cancel()
    if not op.writes:
        raise errors.Unavailable("the server is stopping", hint="ask again in a moment")
    raise errors.OutcomeUnknown("the client has gone, or the server stops, while the call waited")
