"""Three nodes of one workspace: increments of distinct cells a second when one, two or all of them write.

All three are always open, over one log in this process, and follow it; a node that writes has as many threads as any
other, and every thread a cell of its own. They share one interpreter, so three cannot do much more than one: the bar
says how much may go to running in vain. The same again with a log whose appends take 2 ms, as over a network. Then what
nodes cost each other that are not all busy. In the end all replicas must be equal, byte by byte.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import holdfast
from holdfast import Workspace, errors
from holdfast.kernel.journal import LogMoved
from tests.bench.measure import ROUNDS, Bench, Row, percentile, ratio
from tests.worlds.contents import fingerprint

RUN = "bench"
NODES = 3
LOGS = {"log at hand": 0.0, "log 2 ms away": 0.002}  # seconds that an append takes
THREADS = (32, 8)  # of each node that writes
BUSY, NOW_AND_THEN = 8, (0.05, 0.1)  # threads of the busy node, and seconds between the writes beside it
BURSTS, BURST, BETWEEN = 30, 5, 0.05  # of writes where nobody is busy: how many, of how many, seconds between them
SETTLE, MEASURE = 0.3, 0.5  # seconds of a round
PATIENCE = 1000  # hundredths of a second, for the first increment of a round


def run(bench: Bench) -> list[Row]:
    """Both logs, with many threads and with few; then a busy node beside a lone writer, and nodes that are not busy."""
    rows: list[Row] = []
    for where, seconds in LOGS.items():
        for threads in THREADS:
            with Cluster(bench, f"{where}-{threads}".replace(" ", "-"), seconds) as cluster:
                rows += together(cluster, f"{where}, {threads} threads a node", threads)
        with Cluster(bench, f"{where}-beside".replace(" ", "-"), seconds) as cluster:
            rows += beside(cluster, where)
            rows += in_turn(cluster, where)
    return rows


class CountedLog(holdfast.MemoryLog):
    """A log whose appends take so many seconds, and that counts those that came too late."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self.outrun = 0

    def append(self, entry: bytes, expected: int) -> int:
        if self._seconds:
            time.sleep(self._seconds)
        try:
            return super().append(entry, expected)
        except LogMoved:
            with self._lock:
                self.outrun += 1
            raise


class Sample(NamedTuple):
    """What happened in a round, each a second."""

    increments: float
    entries: float
    outrun: float
    refused: float


class Cluster:
    """Three nodes and their log; leaving it compares the replicas."""

    def __init__(self, bench: Bench, name: str, seconds: float) -> None:
        self.bench = bench
        self.log = CountedLog(seconds)
        self.nodes = [
            holdfast.open(bench.folder / f"{name}-{number}", actor=f"node-{number}", log=self.log)
            for number in range(NODES)
        ]

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        try:
            if failed is None:
                self._compare()
        finally:
            for node in self.nodes:
                node.close()

    def _compare(self) -> None:
        for node in self.nodes:
            node.using(at_least="latest").reach()
        found = {fingerprint(node) for node in self.nodes}
        if len(found) != 1:
            raise AssertionError("the replicas differ")
        self.bench.say(f"  replicas equal at revision {self.nodes[0].revision:,}: sha256 {found.pop()[:16]}")

    def measure(self, writing: int, threads: int) -> Sample:
        """A round in which so many nodes write: let it settle, then count for a while."""
        with writers(self.nodes[:writing], threads) as done:
            time.sleep(SETTLE * min(1.0, self.bench.scale))
            before, start = self._count(done), time.perf_counter()
            time.sleep(MEASURE * min(1.0, self.bench.scale))
            for _ in range(PATIENCE):  # at a tiny scale nobody may have come so far
                if sum(done.written) > before[0]:
                    break
                time.sleep(0.01)
            after, seconds = self._count(done), time.perf_counter() - start
        return Sample(*((b - a) / seconds for a, b in zip(before, after, strict=True)))

    def _count(self, done: Done) -> tuple[int, int, int, int]:
        return sum(done.written), self.log.head(), self.log.outrun, sum(done.refused)


class Done(NamedTuple):
    """What each thread has done so far."""

    written: list[int]
    refused: list[int]


@contextmanager
def writers(nodes: list[Workspace], threads: int) -> Iterator[Done]:
    """So many threads on each of these nodes that increment without a pause, each its own cell."""
    stop = threading.Event()
    done = Done([0] * (len(nodes) * threads), [0] * (len(nodes) * threads))

    def work(number: int) -> None:
        increment, cell = nodes[number // threads].cells.increment, f"counter-{number:03}"
        while not stop.is_set():
            try:
                increment(RUN, cell)
                done.written[number] += 1
            except errors.Busy:  # other nodes were always first
                done.refused[number] += 1

    workers = [threading.Thread(target=work, args=(number,)) for number in range(len(done.written))]
    for worker in workers:
        worker.start()
    try:
        yield done
    finally:
        stop.set()
        for worker in workers:
            worker.join()


def together(cluster: Cluster, what: str, threads: int) -> list[Row]:
    """One, two and three nodes that write, in turns."""
    samples: dict[int, list[Sample]] = {writing: [] for writing in range(1, NODES + 1)}
    for _ in range(cluster.bench.count(ROUNDS)):
        for writing in samples:
            samples[writing].append(cluster.measure(writing, threads))
    cluster.bench.say(f"  {what}:")
    for writing, rounds in samples.items():
        increments, entries, outrun, refused = (statistics.median(column) for column in zip(*rounds, strict=True))
        lowest, highest = min(rounds).increments, max(rounds).increments
        cluster.bench.say(
            f"    {writing} writing {increments:7,.0f} increments/s ({lowest:,.0f} to {highest:,.0f}),"
            f" {entries:5,.0f} entries/s of {increments / max(entries, 1):4.1f}, {outrun:4,.0f} outrun/s,"
            f" {refused:.0f} refused/s"
        )
    one, two, three = ([sample.increments for sample in rounds] for rounds in samples.values())
    return [
        Row("replicas", f"{what}, 2 writing / 1", ratio(two, one)),
        Row("replicas", f"{what}, 3 writing / 1", ratio(three, one), at_least=0.7),
    ]


def beside(cluster: Cluster, where: str) -> list[Row]:
    """A busy node without and with somebody who writes on another one now and then."""
    lone = LoneWriter(cluster.nodes[1])
    alone: list[float] = []
    accompanied: list[float] = []
    for _ in range(cluster.bench.count(ROUNDS)):
        alone.append(cluster.measure(1, BUSY).increments)
        with lone.writing():
            accompanied.append(cluster.measure(1, BUSY).increments)
    median = percentile(lone.waits, 50)
    cluster.bench.say(
        f"  {where}, a busy node of {BUSY} threads: {statistics.median(alone):,.0f} increments/s alone,"
        f" {statistics.median(accompanied):,.0f} beside a lone writer on another node, who waits {median:.1f} ms"
        f" (median), {max(lone.waits):.1f} ms (worst), and was refused {lone.refused} times of {len(lone.waits)}"
    )
    return [
        Row("replicas", f"{where}, busy node beside a lone writer / alone", ratio(accompanied, alone)),
        Row("replicas", f"{where}, the lone writer's median", median, "ms"),
    ]


class LoneWriter:
    """Somebody who writes on a node now and then; milliseconds that each write took."""

    def __init__(self, node: Workspace) -> None:
        self._node = node
        self._chance = random.Random(1)
        self.waits: list[float] = []
        self.refused = 0

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Meanwhile, and at least once."""
        stop = threading.Event()
        thread = threading.Thread(target=self._work, args=(stop,))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _work(self, stop: threading.Event) -> None:
        while not (self.waits and stop.wait(self._chance.uniform(*NOW_AND_THEN))):
            start = time.perf_counter()
            try:
                self._node.cells.increment(RUN, "lone")
            except errors.Busy:
                self.refused += 1
            self.waits.append((time.perf_counter() - start) * 1000)


def in_turn(cluster: Cluster, where: str) -> list[Row]:
    """Two nodes by turns, some writes each, one after the other and with time between: nobody has to wait."""
    waits: list[float] = []
    for number in range(cluster.bench.count(BURSTS, 2)):
        for _ in range(BURST):
            start = time.perf_counter()
            cluster.nodes[number % 2].cells.increment(RUN, "turn")
            waits.append((time.perf_counter() - start) * 1000)
        time.sleep(BETWEEN * min(1.0, cluster.bench.scale))
    median, most = percentile(waits, 50), percentile(waits, 90)
    cluster.bench.say(
        f"  {where}, two nodes by turns and nobody busy: a write takes {median:.1f} ms, p90 {most:.1f} ms"
    )
    return [Row("replicas", f"{where}, nobody busy, p90 of a write", most, "ms")]
