"""How long a watcher waits to hear of a commit, in the same process and in another one.

Two figures each: from the end of COMMIT in the engine (the bar's), and from the moment the writer called `set`, which
includes the commit itself. The clock is the machine's monotonic one, which all processes share. Writes come at random
moments, so that they do not fall in step with the pulse that looks for commits of other processes.
"""

from __future__ import annotations

import multiprocessing
import random
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import apsw

import holdfast
from holdfast import Workspace
from tests.bench.measure import Bench, Row, percentile

RUN = "bench"
CELL = "watched"
PATIENCE = 30.0


def run(bench: Bench) -> list[Row]:
    """Same process, then another one."""
    count = bench.count(400, 5)
    rows: list[Row] = []
    with holdfast.open(bench.folder / "store", actor="bench") as ws:
        for where, at_most, listen in (("same process", 1.0, in_thread), ("other process", 5.0, in_process)):
            called, committed, heard = trial(ws, count, listen)
            after_commit = [(b - a) / 1e6 for a, b in zip(committed, heard, strict=True)]
            after_call = [(b - a) / 1e6 for a, b in zip(called, heard, strict=True)]
            for what, sample in (("commit", after_commit), ("call", after_call)):
                p50, p99 = percentile(sample, 50), percentile(sample, 99)
                bench.say(f"  {where}, from the {what:6} median {p50:6.3f} ms, p99 {p99:6.3f} ms")
            rows.append(Row("watch", f"{where}, median from commit", percentile(after_commit, 50), "ms", at_most))
            rows.append(Row("watch", f"{where}, median from call", percentile(after_call, 50), "ms"))
    return rows


Finish = Callable[[], list[int]]


def trial(ws: Workspace, count: int, listen: Callable[[Workspace, int], Finish]) -> tuple[list[int], ...]:
    """When `set` was called, when the engine had committed, and when the watcher heard; nanoseconds."""
    finish = listen(ws, count)
    chance = random.Random(count)
    called: list[int] = []
    with commit_times(ws) as committed:
        for number in range(count):
            time.sleep(chance.uniform(0.005, 0.015))
            called.append(time.monotonic_ns())
            ws.cells.set(RUN, CELL, number)
        return called, committed, finish()


class commit_times:
    """Notes when each COMMIT of a workspace's writer ended."""

    def __init__(self, ws: Workspace) -> None:
        self._writer = ws._engine.store.writer
        self._times: list[int] = []

    def __enter__(self) -> list[int]:
        self._writer.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._note)
        return self._times

    def _note(self, event: dict[str, Any]) -> None:
        if event["sql"] == "COMMIT":
            self._times.append(time.monotonic_ns())

    def __exit__(self, *_: object) -> None:
        self._writer.trace_v2(0, None)


def follow(ws: Workspace, count: int, ready: Callable[[], object]) -> list[int]:
    """Watch the cell for so many events and answer when each came."""
    heard: list[int] = []
    with ws.watch(kinds=["cell"], id=(RUN, CELL), timeout=PATIENCE) as events:
        ready()
        for _ in events:
            heard.append(time.monotonic_ns())
            if len(heard) == count:
                break
    return heard


def in_thread(ws: Workspace, count: int) -> Finish:
    """A watcher in a thread of this process."""
    heard: list[int] = []
    ready = threading.Event()
    thread = threading.Thread(target=lambda: heard.extend(follow(ws, count, ready.set)))
    thread.start()
    ready.wait()

    def finish() -> list[int]:
        thread.join()
        return heard

    return finish


def in_process(ws: Workspace, count: int) -> Finish:
    """A watcher in another process."""
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    child = context.Process(target=_watcher, args=(theirs, str(ws._engine.folder), count))
    child.start()
    theirs.close()
    pipe.recv()

    def finish() -> list[int]:
        heard: list[int] = pipe.recv()
        child.join()
        pipe.close()
        return heard

    return finish


def _watcher(pipe: Connection, folder: str, count: int) -> None:
    with holdfast.open(folder, actor="watcher") as ws:
        pipe.send(follow(ws, count, lambda: pipe.send("ready")))
