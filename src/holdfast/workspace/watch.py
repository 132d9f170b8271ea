"""Iterators over events: `Watch` for threads, `AsyncWatch` for event loops."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Generic, TypeVar

from holdfast.kernel.clock import Signal
from holdfast.kernel.engine import Engine
from holdfast.kernel.validate import check_seconds
from holdfast.kernel.wake import Watcher
from holdfast.operation import Following
from holdfast.types import Event

E = TypeVar("E")


def next_event(engine: Engine, watcher: Watcher, deadline: int | None) -> Event | None:
    """Sleep until the watcher has an event, or None at the deadline."""
    signal = watcher.signal
    assert isinstance(signal, Signal)
    while True:
        event = watcher.take()
        if event is not None or (deadline is not None and engine.clock.monotonic() >= deadline):
            return event
        engine.clock.wait_until(deadline, signal)


class Watch(Generic[E]):
    """An iterator over events as they come. It ends at its timeout; close it, use it in `with`, or just drop it."""

    def __init__(self, engine: Engine, following: Following[E]) -> None:
        timeout = check_seconds(following.timeout, "timeout", True)
        self._engine = engine
        self._convert = following.convert
        self._deadline = None if timeout is None else engine.clock.monotonic() + timeout
        engine.check_usable()
        self._watcher = engine.watch(following.wanted, following.after, Signal())

    def __iter__(self) -> Watch[E]:
        return self

    def __next__(self) -> E:
        self._engine.check_usable()
        event = next_event(self._engine, self._watcher, self._deadline)
        if event is None:
            self.close()
            raise StopIteration
        item: E = self._engine.read(lambda snapshot: self._convert(snapshot, event))
        return item

    def close(self) -> None:
        """Stop watching."""
        self._watcher.close()

    def __enter__(self) -> Watch[E]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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


async def next_event_async(engine: Engine, watcher: Watcher, deadline: int | None) -> Event | None:
    """Sleep until the watcher has an event, or None at the deadline."""
    clock, signal = engine.clock, watcher.signal
    assert isinstance(signal, LoopSignal)
    clock.enroll(signal)
    try:
        while True:
            event = watcher.take()
            if event is not None or (deadline is not None and clock.monotonic() >= deadline):
                return event
            await signal.wait(None if deadline is None else clock.patience(deadline))
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
        event = await next_event_async(self._engine, self._watcher, self._deadline)
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
