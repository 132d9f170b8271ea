"""Watching from threads: an iterator that sleeps until something happens."""

from __future__ import annotations

from typing import Generic, TypeVar

from holdfast.kernel.clock import Signal
from holdfast.kernel.engine import Engine
from holdfast.kernel.names import check_seconds
from holdfast.kernel.wake import Watcher
from holdfast.ops import Following
from holdfast.types.base import Event

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
