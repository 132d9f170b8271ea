"""A workspace that is used through several processes at once, for the conformance suite.

`ProcessWorkspace` has the operations of a workspace; each call is sent to the next of a few worker processes, all of
which have the same folder open. So every test that runs on it proves that what one process did the next one sees.
"""

from __future__ import annotations

import itertools
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import holdfast
from holdfast.operation import Operation, Sync, operation
from holdfast.testing.clock import ManualClock
from holdfast.types import Report
from holdfast.workspace.context import Context, check_context, derive_actor
from holdfast.workspace.transaction import Root

_Request = tuple[int, str, tuple[Any, ...]]


class ProcessPool:
    """Worker processes that serve any folder; they end with this one."""

    def __init__(self, size: int) -> None:
        self._workers = [_Worker() for _ in range(size)]
        self._turn = itertools.count()

    @property
    def pids(self) -> list[int]:
        """The workers' process ids."""
        return [worker.pid for worker in self._workers]

    def next_worker(self) -> _Worker:
        """The worker whose turn it is."""
        return self._workers[next(self._turn) % len(self._workers)]

    def everywhere(self, what: str, *args: Any) -> None:
        """Ask every worker the same."""
        for worker in self._workers:
            worker.ask(what, *args)


class _Worker:
    """One process, the pipe to it, and the answers that are awaited from it."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self._numbers = itertools.count()
        self._waiting: dict[int, tuple[threading.Event, list[Any]]] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def ask(self, what: str, *args: Any) -> Any:
        """Have the worker do something; what it raises is raised here."""
        number = next(self._numbers)
        done = threading.Event()
        box: list[Any] = []
        with self._lock:
            self._waiting[number] = (done, box)
            self._pipe.send((number, what, args))
        done.wait()
        failed, answer = box[0]
        if failed:
            raise answer
        return answer

    def _listen(self) -> None:
        while True:
            try:
                number, failed, answer = self._pipe.recv()
            except (EOFError, OSError) as error:
                for done, box in self._waiting.values():
                    box.append((True, RuntimeError(f"a worker process ended: {error}")))
                    done.set()
                return
            done, box = self._waiting.pop(number)
            box.append((failed, answer))
            done.set()


class ProcessWorkspace(Root[Sync]):
    """The operations of a workspace, each in the next process."""

    def __init__(
        self, pool: ProcessPool, folder: Path, clock: Path, actor: str | None, context: Context | None = None
    ) -> None:
        super().__init__(self)
        self._pool = pool
        self._place = (str(folder), str(clock))
        self._context = check_context(context or Context(derive_actor() if actor is None else actor))

    def using(self, actor: Any = None, fence: Any = None, key: Any = None, at_least: Any = None) -> ProcessWorkspace:
        """The same with another call context."""
        context = self._context.with_(actor=actor, fence=fence, key=key, at_least=at_least)
        return ProcessWorkspace(self._pool, Path(self._place[0]), Path(self._place[1]), None, context)

    @property
    def actor(self) -> str:
        """Who acts."""
        return str(self._context.actor)

    @property
    def revision(self) -> int:
        """The revision, as the next process sees it."""
        return int(self._ask("revision"))

    def check(self) -> Report:
        """`Workspace.check` in the next process."""
        report: Report = self._ask("check")
        return report

    def backup(self, path: Any) -> Path:
        """`Workspace.backup` in the next process."""
        return Path(self._ask("backup", str(path)))

    def close(self) -> None:
        """Close the folder in every process."""
        self._pool.everywhere("close", self._place)

    def bind(self, op: Operation[..., Any]) -> Callable[..., Any]:
        """An operation, sent away."""
        if op.kind == "stream":
            return lambda *args, **kwargs: _Stream(
                self._pool.next_worker(), self._place, self._context, op, args, kwargs
            )
        return lambda *args, **kwargs: self._ask("call", self._context, op.name, args, kwargs)

    def _ask(self, what: str, *args: Any) -> Any:
        return self._pool.next_worker().ask(what, self._place, *args)


class _Stream:
    """An iterator that lives in one worker."""

    def __init__(
        self, worker: _Worker, place: Any, context: Any, op: Operation[..., Any], args: Any, kwargs: Any
    ) -> None:
        self._worker = worker
        self._handle = worker.ask("open stream", place, context, op.name, args, kwargs)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        found, item = self._worker.ask("next", self._handle)
        if not found:
            raise StopIteration
        return item

    def close(self) -> None:
        """Stop."""
        self._worker.ask("close stream", self._handle)


# --- in the worker ---------------------------------------------------------------------------------------------------


class _Server:
    """What a worker does: one thread per request, so that a waiting one holds up nobody."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._sending = threading.Lock()
        self._opening = threading.Lock()
        self._open: dict[tuple[str, str], holdfast.Workspace] = {}
        self._streams: dict[int, Any] = {}

    def run(self) -> None:
        """Serve until the other side is gone."""
        while True:
            try:
                request: _Request = self._pipe.recv()
            except (EOFError, OSError):
                return
            threading.Thread(target=self._answer, args=request, daemon=True).start()

    def _answer(self, number: int, what: str, args: tuple[Any, ...]) -> None:
        try:
            reply = (number, False, self._perform(what, *args))
        except BaseException as error:
            reply = (number, True, error)
        with self._sending:
            self._pipe.send(reply)

    def _perform(self, what: str, *args: Any) -> Any:
        match what, args:
            case "call", (place, context, name, args_, kwargs):
                return self._method(place, context, name)(*args_, **kwargs)
            case "open stream", (place, context, name, args_, kwargs):
                stream = self._method(place, context, name)(*args_, **kwargs)
                self._streams[id(stream)] = stream
                return id(stream)
            case "next", (handle,):
                try:
                    return True, next(self._streams[handle])
                except StopIteration:
                    return False, None
            case "close stream", (handle,):
                return self._streams.pop(handle).close()
            case "close", (place,):
                with self._opening:
                    workspace = self._open.pop(place, None)
                if workspace is not None:
                    workspace.close()
                return None
            case "revision", (place,):
                return self._workspace(place).revision
            case "check", (place,):
                return self._workspace(place).check()
            case "backup", (place, path):
                return str(self._workspace(place).backup(path))
        raise ValueError(what)

    def _workspace(self, place: tuple[str, str]) -> holdfast.Workspace:
        with self._opening:
            if place not in self._open:
                folder, clock = place
                self._open[place] = holdfast.open(folder, actor="worker", clock=ManualClock(clock))
            return self._open[place]

    def _method(self, place: tuple[str, str], context: Context, name: str) -> Callable[..., Any]:
        using = self._workspace(place).using(context.actor, context.fence, context.key, context.at_least)
        return operation(name).on(using)


def _serve(pipe: Connection) -> None:
    _Server(pipe).run()
