"""`tasks.claim_next` among 100,000 open tasks, durable, against the same statements in a bare apsw loop."""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

import holdfast
from holdfast import Workspace
from tests.bench.claim_baseline import Claimer
from tests.bench.increments import spread, traced
from tests.bench.measure import Bench, Row, alternate, rate, ratio, sync_rate
from tests.bench.task_rows import Plan, make_store

OPEN = 100_000
THREADS = 32
TASKS = GROUP = 64
ONE, GROUPS, LEAN = "bare, 1 a commit", "bare, 64 a commit", "lean, 64 a commit"
BY_THREADS, BY_TASKS = "ours, 32 threads", "ours, 64 tasks"
WARMING = GROUP  # claims before each measurement, which fill the caches of pages and statements


def run(bench: Bench) -> list[Row]:
    """32 threads and 64 tasks, against one and 64 claims a commit; each on a fresh copy of one file."""
    syncs = sync_rate(bench.folder, 0.5 * bench.scale)
    original = bench.folder / "original"
    make_store(original, Plan(bench.count(OPEN, 4 * GROUP), plain=True))
    copies = Copies(original, bench.folder / "copy")
    for line in compare(copies) or ["the statements are those of the baseline"]:
        bench.say(f"  {line}")
    return [*report(bench, measure(bench, copies), syncs), pages(bench, copies)]


class Copies:
    """One store, copied for each measurement: all begin with the same file."""

    def __init__(self, original: Path, folder: Path) -> None:
        self._original = original
        self._folder = folder

    @contextmanager
    def bare(self) -> Iterator[Claimer]:
        """A copy with the bare loop on it."""
        with self._copied() as folder:
            claimer = Claimer(str(folder / "holdfast.db"))
            try:
                claimer.in_groups(agents(WARMING), GROUP)
                yield claimer
            finally:
                claimer.close()

    @contextmanager
    def ours(self) -> Iterator[Workspace]:
        """A copy with a workspace on it."""
        with self._copied() as folder, holdfast.open(folder, actor="bench") as workspace:
            workspace.transact(lambda tx: [tx.tasks.claim_next(agent) for agent in agents(WARMING)])
            yield workspace

    @contextmanager
    def _copied(self) -> Iterator[Path]:
        shutil.copytree(self._original, self._folder)
        for file in self._folder.iterdir():  # else the copy is still on its way to the disk while claims want it
            descriptor = os.open(file, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
        try:
            yield self._folder
        finally:
            shutil.rmtree(self._folder)


def agents(count: int) -> list[str]:
    """Who claims: a name for each claim, of as many as there are tasks at once."""
    return [f"agent-{number % TASKS:02}" for number in range(count)]


def measure(bench: Bench, copies: Copies) -> dict[str, list[float]]:
    """Claims a second of each way, in turns; what each costs in processor time is said beside it."""
    few = agents(bench.count(1000, GROUP))
    many = agents(bench.count(6400, GROUP) // GROUP * GROUP)

    costs: dict[str, list[float]] = {}

    def timed(name: str, names: list[str], claim: Callable[[], None]) -> float:
        start = time.process_time()
        found = rate(len(names), claim)
        costs.setdefault(name, []).append((time.process_time() - start) / len(names) * 1e6)
        return found

    def bare(name: str, names: list[str], claim: Callable[[Claimer], None]) -> float:
        with copies.bare() as claimer:
            return timed(name, names, lambda: claim(claimer))

    def ours(name: str, claim: Callable[[Workspace, list[str]], None]) -> float:
        with copies.ours() as workspace:
            return timed(name, many, lambda: claim(workspace, many))

    figures = alternate(
        {
            ONE: lambda: bare(ONE, few, lambda claimer: claimer.one_by_one(few)),
            BY_THREADS: lambda: ours(BY_THREADS, by_threads),
            GROUPS: lambda: bare(GROUPS, many, lambda claimer: claimer.in_groups(many, GROUP)),
            BY_TASKS: lambda: ours(BY_TASKS, by_tasks),
            LEAN: lambda: bare(LEAN, many, lambda claimer: claimer.lean(many, GROUP)),
        }
    )
    for name, values in figures.items():
        claims, cost = statistics.median(values), statistics.median(costs[name])
        bench.say(f"  {name:18} {claims:9,.0f} claims/s  {spread(values):20} {cost:6.0f} µs of processor time each")
    return figures


def report(bench: Bench, figures: dict[str, list[float]], syncs: float) -> list[Row]:
    """The ratios as rows."""
    bench.say(f"  {os.cpu_count()} cores; the disk makes {syncs:,.0f} fdatasyncs a second")
    threads, tasks, groups, lean = (figures[name] for name in (BY_THREADS, BY_TASKS, GROUPS, LEAN))
    return [
        Row("claims", "32 threads / bare, 1 a commit", ratio(threads, figures[ONE]), at_least=2.0),
        Row("claims", "64 tasks / bare, 64 a commit", ratio(tasks, groups), at_least=0.35),
        Row("claims", "64 tasks / lean, 64 a commit", ratio(tasks, lean)),
        Row("claims", "bare, 64 a commit / lean", ratio(groups, lean)),
    ]


def pages(bench: Bench, copies: Copies) -> Row:
    """How many pages a commit of 64 claims writes: what the layout of the tables costs, whatever the machine."""
    groups = bench.count(20, 2)
    with copies.ours() as workspace:
        written = workspace._engine.store.writer.status
        before = written(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0]
        for _ in range(groups):
            workspace.transact(lambda tx: [tx.tasks.claim_next(agent) for agent in agents(GROUP)])
        found = (written(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0] - before) / groups
    return Row("claims", "pages written by a commit of 64 claims", found, "", at_most=60)


def by_threads(workspace: Workspace, names: list[str]) -> None:
    """Each thread claims its share, one after the other."""
    claim = workspace.tasks.claim_next

    def work(share: list[str]) -> None:
        for agent in share:
            claim(agent)

    threads = [threading.Thread(target=work, args=(names[number::THREADS],)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def by_tasks(workspace: Workspace, names: list[str]) -> None:
    """Each task of one event loop claims its share, one after the other."""

    async def all_of_them() -> None:
        claim = workspace.aio.tasks.claim_next

        async def work(share: list[str]) -> None:
            for agent in share:
                await claim(agent)

        await asyncio.gather(*(work(names[number::TASKS]) for number in range(TASKS)))

    asyncio.run(all_of_them())


def compare(copies: Copies) -> list[str]:
    """What differs between our statements and the baseline's, in words; nothing if they are the same."""
    group = agents(GROUP)
    with copies.ours() as workspace:
        writer = workspace._engine.store.writer
        mine = [
            traced(writer, lambda: workspace.tasks.claim_next("agent")),
            traced(writer, lambda: by_tasks(workspace, group)),
        ]
    with copies.bare() as claimer:
        theirs = [
            traced(claimer.connection, lambda: claimer.one_by_one(["agent"])),
            traced(claimer.connection, lambda: claimer.in_groups(group, GROUP)),
        ]
    return [
        f"{what}: NOT the same statements; ours {len(a)}, baseline {len(b)}, first difference: "
        + next((f"{x!r} / {y!r}" for x, y in zip(a, b, strict=False) if x != y), "one is longer")
        for what, a, b in zip(("one claim", "a group of 64"), mine, theirs, strict=True)
        if a != b
    ]
