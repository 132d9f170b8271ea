"""A lone writer beside a busy process: eight threads there write without a pause, one here now and then."""

from __future__ import annotations

import multiprocessing
import random
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import apsw

import holdfast
from holdfast import Workspace
from tests.bench.measure import Bench, Row, percentile

RUN = "bench"
THREADS = 8


def run(bench: Bench) -> list[Row]:
    """The lone writer's latency, and how long a commit of the busy process takes."""
    folder = bench.folder / "store"
    with holdfast.open(folder, actor="lone") as ws:
        alone = latencies(ws, bench.count(200, 5))
        busy = Busy(folder)
        lone = latencies(ws, bench.count(500, 5))
        commits, operations, seconds = busy.stop()
    commit = percentile(commits, 50)
    bench.say(f"  busy process: {operations / seconds:,.0f} sets/s, a commit takes {commit:.2f} ms (median)")
    for what, sample in (("alone", alone), ("beside it", lone)):
        p50, p99, worst = percentile(sample, 50), percentile(sample, 99), max(sample)
        bench.say(f"  lone writer {what:9}: median {p50:.2f} ms, p99 {p99:.2f} ms, worst {worst:.2f} ms")
    return [
        Row("fairness", "median (bar: 5 ms over its commit)", percentile(lone, 50), "ms", 5 + commit),
        Row("fairness", "p99 (bar: 50 ms over its commit)", percentile(lone, 99), "ms", 50 + commit),
    ]


def latencies(ws: Workspace, count: int) -> list[float]:
    """Milliseconds that each of so many writes took, made at random moments."""
    chance = random.Random(count)
    sample = []
    for number in range(count):
        time.sleep(chance.uniform(0, 0.01))
        start = time.perf_counter()
        ws.cells.set(RUN, "lone", number)
        sample.append((time.perf_counter() - start) * 1000)
    return sample


class Busy:
    """The busy process, from here."""

    def __init__(self, folder: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._child = context.Process(target=_write_without_pause, args=(theirs, str(folder)))
        self._child.start()
        theirs.close()
        self._pipe.recv()

    def stop(self) -> tuple[list[float], int, float]:
        """End it; answers milliseconds of each commit, how many writes, and in how many seconds."""
        self._pipe.send("stop")
        figures: tuple[list[float], int, float] = self._pipe.recv()
        self._child.join()
        self._pipe.close()
        return figures


def _write_without_pause(pipe: Connection, folder: str) -> None:
    stop = threading.Event()
    counts = [0] * THREADS
    with holdfast.open(folder, actor="busy") as ws:

        def work(number: int) -> None:
            while not stop.is_set():
                counts[number] += 1
                ws.cells.set(RUN, f"busy-{number}", counts[number])

        ws.cells.set(RUN, "busy", 0)  # the writer connection is there, before it is traced
        commits = _time_commits(ws._engine.store.writer)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        pipe.send("busy")
        pipe.recv()
        stop.set()
        for thread in threads:
            thread.join()
        pipe.send((commits, sum(counts), time.perf_counter() - start))


def _time_commits(writer: apsw.Connection) -> list[float]:
    times: list[float] = []
    begun = [0]

    def before(_: apsw.Cursor, sql: str, __: object) -> bool:
        if sql == "COMMIT":
            begun[0] = time.perf_counter_ns()
        return True

    def after(event: dict[str, Any]) -> None:
        if event["sql"] == "COMMIT":
            times.append((time.perf_counter_ns() - begun[0]) / 1e6)

    writer.exec_trace = before
    writer.trace_v2(apsw.SQLITE_TRACE_PROFILE, after)
    return times
