"""Calls from many threads in a known order, without a sleep anywhere; for tests.

`start` and `together` put calls into threads. `Line` holds the lead of a workspace's group with a body that waits, and
knows when others have queued up behind it. `finish` runs a coroutine on a loop of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from holdfast.workspace import Workspace
from holdfast.workspace.transaction import Transaction

R = TypeVar("R")
LONG = 180.0  # how long a test waits before it says that something hangs


def start(work: Callable[[], R]) -> Future[R]:
    """Do it in a thread of its own; the future has its answer or what it raised."""
    future: Future[R] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def together(*works: Callable[[], R]) -> list[R]:
    """Do all at the same moment, each in its own thread, and return their results."""
    barrier = threading.Barrier(len(works))

    def at_once(work: Callable[[], R]) -> Callable[[], R]:
        def run() -> R:
            barrier.wait()
            return work()

        return run

    return [future.result(LONG) for future in [start(at_once(work)) for work in works]]


def finish(awaitable: Awaitable[R]) -> R:
    """Run a coroutine on a loop of its own; a hang is a failure."""

    async def main() -> R:
        return await asyncio.wait_for(awaitable, LONG)

    return asyncio.run(main())


class Line:
    """Holds the lead of a workspace's group in `with`, and lets calls queue up behind it one after the other."""

    def __init__(self, ws: Workspace) -> None:
        self._inside, self._go = threading.Event(), threading.Event()
        self._arrived = arrived = threading.Semaphore(0)
        self._blocker = start(lambda: ws.transact(self._block))
        assert self._inside.wait(LONG)

        class Queue(deque[Any]):
            def append(self, call: Any) -> None:
                super().append(call)
                arrived.release()

        group = ws._engine.group
        with group._mutex:
            group._queue = Queue(group._queue)

    def _block(self, _: Transaction) -> None:
        self._inside.set()
        assert self._go.wait(LONG)

    def queue(self, work: Callable[[], R]) -> Future[R]:
        """Start it, and answer once its call waits in line."""
        future = start(work)
        assert self._arrived.acquire(timeout=LONG)
        return future

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self._go.set()
        self._blocker.result(LONG)
