"""A new node joins a workspace of 100,000 revisions while another one goes on writing.

The history is made fast: most of it in groups of 64, by tasks of an event loop, the rest by a lone caller, one revision
an entry, so that the tail after the newest snapshot is long (snapshots come every 10,000 entries). It counts from
`holdfast.open` of an empty folder until the node has the revision that was current when it began. The node that writes
shares the interpreter with the one that joins. At last, for information, the same history without any snapshot.
"""

from __future__ import annotations

import asyncio
import statistics
import time

import msgspec

import holdfast
from holdfast import Workspace
from holdfast.replication.log import Snapshotted, to_bytes
from tests.bench.measure import Bench, Row
from tests.bench.replicas import RUN, writers
from tests.logs.nodes import entries

IN_GROUPS = 90_000  # revisions
TASKS = 64
ENTRIES = 17_000  # of the history: one snapshot, and a tail of some 7,000
THREADS = 8  # that go on writing
JOINS = 3


def run(bench: Bench) -> list[Row]:
    """From a snapshot and its tail while writes go on, then from the whole history."""
    log = holdfast.MemoryLog()
    log.snapshot_every = bench.count(log.snapshot_every, 20)
    with holdfast.open(bench.folder / "first", actor="first", log=log) as first:
        seconds = make_history(first, log, bench.count(IN_GROUPS, TASKS), bench.count(ENTRIES, 34))
        bench.say(f"  {first.revision:,} revisions in {log.head():,} entries, made in {seconds:.0f} s")
        whole = without_snapshots(log)
        joins = [join(bench, first, log, number) for number in range(JOINS)]
    start = time.perf_counter()
    with holdfast.open(bench.folder / "whole", actor="whole", log=whole) as late:
        slowest = time.perf_counter() - start
        bench.say(
            f"  {late.revision:,} revisions reached in {slowest:.2f} s without a snapshot, from"
            f" {whole.head():,} entries; meanwhile nobody writes"
        )
    return [
        Row("joining", "snapshot and tail, while writes go on", statistics.median(joins), "s", at_most=5.0),
        Row("joining", "the whole history, without a snapshot", slowest, "s"),
    ]


def make_history(ws: Workspace, log: holdfast.MemoryLog, in_groups: int, end: int) -> float:
    """So many revisions in groups, then one an entry until the log has its length; answers the seconds it took."""

    async def by_tasks() -> None:
        increment = ws.aio.cells.increment

        async def work(task: int) -> None:
            for number in range(in_groups // TASKS):
                await increment(RUN, f"counter-{task}-{number % 16}")

        await asyncio.gather(*(work(task) for task in range(TASKS)))

    start = time.perf_counter()
    asyncio.run(by_tasks())
    while (position := log.head()) < end:
        ws.cells.increment(RUN, f"lone-{position % 1024}")
    return time.perf_counter() - start


def without_snapshots(log: holdfast.MemoryLog) -> holdfast.MemoryLog:
    """The same history in a log in which nobody ever made one."""
    copy, previous = holdfast.MemoryLog(), ""
    for entry in entries(log):
        if not isinstance(entry, Snapshotted):
            copy.append(to_bytes(msgspec.structs.replace(entry, previous=previous)), copy.head())
            previous = entry.id
    return copy


def join(bench: Bench, first: Workspace, log: holdfast.MemoryLog, number: int) -> float:
    """Seconds until a new node has what was there when it began, while the first one goes on."""
    snapshot, tail = newest_snapshot(log)
    with writers([first], THREADS) as done:
        before, wanted = sum(done.written), first.revision
        start = time.perf_counter()
        with holdfast.open(bench.folder / f"late-{number}", actor="late", log=log) as late:
            late.using(at_least=wanted).reach()
            seconds = time.perf_counter() - start
            rate = (sum(done.written) - before) / seconds
            if late.revision < wanted:
                raise AssertionError(f"joined at {late.revision}, not {wanted}")
    bench.say(
        f"  {wanted:,} revisions reached in {seconds:.2f} s from a snapshot of {snapshot / 1e6:.2f} MB and {tail:,}"
        f" entries; meanwhile {THREADS} threads write {rate:,.0f} increments/s"
    )
    return seconds


def newest_snapshot(log: holdfast.MemoryLog) -> tuple[int, int]:
    """Its bytes, and how many entries came after what it holds; 0 and all if there is none."""
    end = log.head()
    found = [entry for entry in entries(log) if isinstance(entry, Snapshotted)]
    return (len(log.get(found[-1].blob)), end - found[-1].position) if found else (0, end)
