"""Watches: iterators over events as they come, for threads and for event loops; and over all pages of a list.

A watch starts where the call that made it says, and misses nothing from there on. It ends at its timeout.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, Generic, TypeVar

from holdfast.clock import Signal, Wakeable
from holdfast.kernel.engine import Engine
from holdfast.kernel.validate import check_seconds
from holdfast.kernel.wake import Watcher
from holdfast.operation import Following, Next, operation_of
from holdfast.types import Event
from holdfast.workspace.context import Closing

E = TypeVar("E")


class _Watch(Generic[E]):
    """What both kinds share: the watcher, the deadline, and what becomes of an event."""

    def __init__(self, engine: Engine, following: Following[E], signal: Wakeable) -> None:
        timeout = check_seconds(following.timeout, "timeout", True)
        self._engine = engine
        self._convert = following.convert
        self._deadline = None if timeout is None else engine.clock.monotonic() + timeout
        engine.check_usable()
        self._watcher = engine.watch(following.wanted, following.after, signal)

    def _item(self, event: Event) -> E:
        item: E = self._engine.read(lambda snapshot: self._convert(snapshot, event))
        return item

    def close(self) -> None:
        """Stop watching."""
        self._watcher.close()


class Watch(_Watch[E], Closing):
    """An iterator over events as they come. It ends at its timeout; close it, use it in `with`, or just drop it."""

    def __init__(self, engine: Engine, following: Following[E]) -> None:
        super().__init__(engine, following, Signal())

    def __iter__(self) -> Watch[E]:
        return self

    def __next__(self) -> E:
        self._engine.check_usable()
        event = next_event(self._engine, self._watcher, self._deadline)
        if event is None:
            self.close()
            raise StopIteration
        return self._item(event)


class AsyncWatch(_Watch[E]):
    """An async iterator over events as they come. It ends at its timeout; close it or just drop it."""

    def __init__(self, engine: Engine, following: Following[E]) -> None:
        from holdfast.kernel import loop  # asyncio, which threads do without

        super().__init__(engine, following, loop.LoopSignal())
        self._next_event = loop.next_event

    def __aiter__(self) -> AsyncWatch[E]:
        return self

    async def __anext__(self) -> E:
        self._engine.check_usable()
        event = await self._next_event(self._engine, self._watcher, self._deadline)
        if event is None:
            self.close()
            raise StopAsyncIteration
        return self._item(event)

    def ready(self, limit: int) -> list[E]:
        """What has come already, at most `limit`; without waiting."""
        found: list[E] = []
        while len(found) < limit and (event := self._watcher.take()) is not None:
            found.append(self._item(event))
        return found

    @property
    def bookmark(self) -> str:
        """A cursor after which it resumes without gap or repeat."""
        return self._watcher.bookmark

    async def __aenter__(self) -> AsyncWatch[E]:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


def next_event(engine: Engine, watcher: Watcher, deadline: int | None) -> Event | None:
    """Sleep until the watcher has an event, or None at the deadline."""
    signal = watcher.signal
    assert isinstance(signal, Signal)
    while True:
        event = watcher.take()
        if event is not None or (deadline is not None and engine.clock.monotonic() >= deadline):
            return event
        engine.clock.wait_until(deadline, signal)


def first_of(watch: _Watch[E]) -> Generator[Next, Any, E | None]:
    """The steps to a watch's first item, None at its timeout; the watch is closed afterwards."""
    try:
        event = yield Next(watch._watcher, watch._deadline)
        return None if event is None else watch._item(event)
    finally:
        watch.close()


def every(call: Callable[..., Any], **given: Any) -> Iterator[Any]:
    """Yield all that an operation such as `ws.tasks.list` lists, page after page."""
    types = operation_of(call).function.__annotations__
    by = next(name for name in ("cursor", "after", "before", "offset") if name in types)
    while True:
        page = call(**given)
        yield from page
        if page.cursor is None:
            return
        given[by] = page.cursor if "str" in types[by] else int(page.cursor)
