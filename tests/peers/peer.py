"""What every peer brings: how it is started and filled, and the same four works in the client form that suits it best.

A work is durable before it returns, wherever it writes:
    claim    take the best of the open tasks by priority and age, note its holder and deadline, append to the history
             of claims, and return the task
    count    add one to the one counter that all callers share, and return it
    get      read a small value
    watch    hear of a change of a value, from the call that makes it to the watcher
What a peer cannot do it leaves out. Libraries of peers are loaded by name: they are not part of the dev extra.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import importlib
import importlib.util
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from tests.bench.task_rows import Plan

CALLERS = 64  # at most
TTL = 1800  # seconds that a claim holds
VALUE = b"twenty bytes or so .."
CLAIM, COUNT, GET, WATCH = "claim", "count", "get", "watch"
_READY = 60.0


class Todo(NamedTuple):
    """A task that a peer is filled with."""

    number: int
    id: str
    priority: int
    title: str
    body: str


def todos(count: int) -> list[Todo]:
    """The tasks that `make_store` writes, for those that are filled in another way."""
    plan = Plan(count, plain=True)
    made = (plan.task(number) for number in range(1, count + 1))
    return [Todo(task.seq, task.id, task.priority, task.title, task.body) for task in made]


class Peer:
    """One way of doing the works. A subclass has `claim`, `count` and `get` of a caller's number, and `watch`."""

    name: ClassVar[str]
    form: ClassVar[str] = "asyncio"
    needs: ClassVar[str]  # how to get what it needs
    modules: ClassVar[tuple[str, ...]] = ()
    programs: ClassVar[tuple[str, ...]] = ()
    most: ClassVar[int] = 100_000  # tasks it is filled with: those that claim by what they have seen need fewer

    version = ""

    def __init__(self, home: Path, tasks: int) -> None:
        self.home = home
        self.tasks = min(tasks, self.most)

    @classmethod
    def missing(cls) -> list[str]:
        """What is not installed."""
        modules = [name for name in cls.modules if importlib.util.find_spec(name.partition(".")[0]) is None]
        return modules + [name for name in cls.programs if shutil.which(name) is None]

    def can(self, work: str) -> bool:
        """Whether it does this work at all."""
        return hasattr(self, work)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Started, filled and connected."""
        yield


def library(name: str) -> Any:
    """A module that may not be installed, and whose types we therefore do not know."""
    return importlib.import_module(name)


@contextlib.contextmanager
def process(command: list[str], home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A server, ended by its process id."""
    with open(home / "server.log", "ab") as log:
        started = subprocess.Popen(command, stdout=log, stderr=log, cwd=home)
    try:
        yield started
    finally:
        started.send_signal(signal.SIGTERM)
        try:
            started.wait(_READY)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


async def until(ready: Callable[[], Awaitable[object]], errors: tuple[type[Exception], ...]) -> None:
    """Call until it raises none of these errors."""
    deadline = time.monotonic() + _READY
    while True:
        try:
            await ready()
            return
        except errors:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)


class Seen:
    """The open tasks as a process that watches them knows them: which to try next, in order."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Any]] = []

    def add(self, todo: Todo, what: Any) -> None:
        """Put a task in, with what it takes to claim it."""
        heapq.heappush(self._heap, (todo.priority, todo.number, what))

    def pop(self) -> Any:
        """Take the best out."""
        if not self._heap:
            raise AssertionError("all tasks are claimed: give it more")
        return heapq.heappop(self._heap)[2]


async def rate(work: Callable[[int], Any], callers: int, seconds: float, limit: int) -> float:
    """Calls a second of so many tasks of this event loop, for this long or until the limit is reached."""
    done, end = 0, 0.0

    async def caller(number: int) -> None:
        nonlocal done
        while done < limit and time.perf_counter() < end:
            done += 1
            await work(number)

    start = time.perf_counter()
    end = start + seconds
    await asyncio.gather(*(caller(number) for number in range(callers)))
    return done / (time.perf_counter() - start)


def rate_of_threads(work: Callable[[int], Any], callers: int, seconds: float, limit: int) -> float:
    """The same by threads."""
    counts = [0] * callers
    share = max(1, limit // callers)
    gate = threading.Barrier(callers + 1)
    end = 0.0
    failures: list[BaseException] = []

    def caller(number: int) -> None:
        gate.wait()
        try:
            for _ in range(share):
                if time.perf_counter() >= end:
                    break
                work(number)
                counts[number] += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    start = time.perf_counter()
    end = start + seconds
    gate.wait()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return sum(counts) / (time.perf_counter() - start)


class Heard:
    """When changes were made, and how long after it each watcher heard of them."""

    def __init__(self, watchers: int, changes: int) -> None:
        self.changes = changes
        self.called: list[float] = []
        self.heard: list[list[float]] = [[] for _ in range(watchers)]

    def note(self, watcher: int) -> bool:
        """A watcher has heard of the next change; true if that was the last."""
        self.heard[watcher].append(time.perf_counter())
        return len(self.heard[watcher]) == self.changes

    async def make(self, change: Callable[[], Awaitable[object]]) -> None:
        """Make the changes, with pauses in between."""
        for _ in range(self.changes):
            await asyncio.sleep(0.004)
            self.called.append(time.perf_counter())
            await change()

    def milliseconds(self) -> list[float]:
        """All of them; a watcher that missed a change is an error."""
        if any(len(heard) != len(self.called) for heard in self.heard):
            raise AssertionError("a watcher has not heard of every change")
        return [(b - a) * 1000 for heard in self.heard for a, b in zip(self.called, heard, strict=True)]
