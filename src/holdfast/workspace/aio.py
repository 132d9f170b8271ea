"""`ws.aio`: every operation awaitable, feeding the same group commit.

Bodies and reads run on the event loop, because each takes microseconds and a writer thread beside a busy loop would
starve; only the COMMIT, which waits for the disk, runs in a thread. Imported on first use of `ws.aio`: the rest of
Holdfast does without asyncio.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from holdfast import errors
from holdfast.kernel.batch import nothing
from holdfast.kernel.engine import CANNOT_WRITE, Engine
from holdfast.kernel.loop import leader_of
from holdfast.kernel.tx import SYSTEM, Tx
from holdfast.kernel.validate import check_seconds
from holdfast.kernel.wake import Watcher
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
from holdfast.types import Event, Report
from holdfast.workspace import Workspace
from holdfast.workspace.context import Context, Fence
from holdfast.workspace.rulefiles import read_file
from holdfast.workspace.transaction import Root, Transaction


def running_loop() -> asyncio.AbstractEventLoop:
    """The event loop of the caller; Invalid if there is none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError as error:
        raise errors.Invalid(
            "ws.aio needs a running event loop", hint="use it inside async def, or ws itself"
        ) from error


R = TypeVar("R")
E = TypeVar("E")


class LoopSignal:
    """A wake-up for one task, set from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake the task; a loop that has gone has nobody to wake."""
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


class AsyncWatch(Generic[E]):
    """An async iterator over events as they come. It ends at its timeout; close it or just drop it."""

    def __init__(self, engine: Engine, following: Following[E]) -> None:
        timeout = check_seconds(following.timeout, "timeout", True)
        self._engine = engine
        self._convert = following.convert
        self._deadline = None if timeout is None else engine.clock.monotonic() + timeout
        self._watcher = engine.watch(following.wanted, following.after, LoopSignal(asyncio.get_running_loop()))

    def __aiter__(self) -> AsyncWatch[E]:
        return self

    async def __anext__(self) -> E:
        self._engine.check_usable()
        event = await next_event(self._engine, self._watcher, self._deadline)
        if event is None:
            self.close()
            raise StopAsyncIteration
        item: E = self._engine.read(lambda snapshot: self._convert(snapshot, event))
        return item

    def ready(self, limit: int) -> list[E]:
        """What has come already, at most `limit`; without waiting."""
        found: list[E] = []
        while len(found) < limit and (event := self._watcher.take()) is not None:
            found.append(self._engine.read(lambda snapshot, event=event: self._convert(snapshot, event)))  # type: ignore[misc]
        return found

    @property
    def bookmark(self) -> str:
        """A cursor after which it resumes without gap or repeat."""
        return self._watcher.bookmark

    def close(self) -> None:
        """Stop watching."""
        self._watcher.close()

    async def __aenter__(self) -> AsyncWatch[E]:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


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
                return await next_event(engine, watcher, deadline)
            case ReadFile(name=name):
                return read_file(engine.folder, name)
