"""Durable increments of distinct cells, against the same statements in a bare apsw loop (baseline.py)."""

from __future__ import annotations

import asyncio
import statistics
import threading
from collections.abc import Callable
from pathlib import Path

import apsw

import holdfast
from holdfast import Workspace
from tests.bench.baseline import SETTINGS, Loop
from tests.bench.measure import Bench, Row, alternate, rate, ratio, sync_rate

RUN = "bench"
CELLS = [f"counter-{number:04}" for number in range(1024)]
THREADS = 32
TASKS = GROUP = 64
SLOW_DISK = 5000  # syncs a second; above it a lone writer hardly waits, and there is little to share


def run(bench: Bench) -> list[Row]:
    """One caller, 32 threads and 64 tasks, against one and 64 increments a commit."""
    syncs = sync_rate(bench.folder, 0.5 * bench.scale)
    ours = open_store(bench.folder / "ours")
    open_store(bench.folder / "bare").close()
    loop = Loop(str(bench.folder / "bare" / "holdfast.db"), RUN)
    try:
        differences = compare(ours, loop)
        for line in differences or ["statements and settings are those of the baseline"]:
            bench.say(f"  {line}")
        alone, grouped = statements_per_increment(ours)
        bench.say(f"  statements an increment: {alone:.0f} alone, {grouped:.2f} in a group of 64")
        figures = measure(bench, ours, loop)
    finally:
        ours.close()
        loop.close()
    return report(bench, figures, syncs)


def open_store(folder: Path) -> Workspace:
    """A workspace in which every cell exists."""
    workspace = holdfast.open(folder, actor="bench")
    workspace.transact(lambda tx: [tx.cells.init(RUN, cell, 0) for cell in CELLS])
    return workspace


def measure(bench: Bench, ours: Workspace, loop: Loop) -> dict[str, list[float]]:
    """Increments a second of each way, in turns."""
    few = some_cells(bench.count(1000, GROUP))
    many = some_cells(bench.count(8000, GROUP) // GROUP * GROUP)
    increment = ours.cells.increment
    with asyncio.Runner() as runner:

        def in_tasks() -> None:
            runner.run(by_tasks(ours, many))

        return alternate(
            {
                "bare, 1 a commit": lambda: rate(len(few), lambda: loop.one_by_one(few)),
                "ours, 1 caller": lambda: rate(len(few), lambda: [increment(RUN, cell) for cell in few]),
                "ours, 32 threads": lambda: rate(len(many), lambda: by_threads(ours, many)),
                "bare, 64 a commit": lambda: rate(len(many), lambda: loop.in_groups(many, GROUP)),
                "ours, 64 tasks": lambda: rate(len(many), in_tasks),
            }
        )


def report(bench: Bench, figures: dict[str, list[float]], syncs: float) -> list[Row]:
    """Absolute figures, and the ratios as rows."""
    bench.say(f"  the disk makes {syncs:,.0f} fdatasyncs a second")
    for name, values in figures.items():
        bench.say(f"  {name:18} {statistics.median(values):9,.0f} increments/s  {spread(values)}")
    one, group = figures["bare, 1 a commit"], figures["bare, 64 a commit"]
    return [
        Row("increments", "1 caller / bare, 1 a commit", ratio(figures["ours, 1 caller"], one), at_least=0.6),
        Row(
            "increments",
            "32 threads / bare, 1 a commit (bar: < 5,000 syncs/s)",
            ratio(figures["ours, 32 threads"], one),
            at_least=2.0,
            applies=syncs < SLOW_DISK,
        ),
        Row("increments", "64 tasks / bare, 64 a commit", ratio(figures["ours, 64 tasks"], group), at_least=0.35),
    ]


def spread(values: list[float]) -> str:
    """Lowest to highest."""
    return f"({min(values):,.0f} to {max(values):,.0f})"


def some_cells(count: int) -> list[str]:
    """So many cells, all different within any group."""
    return [CELLS[number % len(CELLS)] for number in range(count)]


def by_threads(workspace: Workspace, cells: list[str]) -> None:
    """Each thread increments its share."""

    def work(share: list[str]) -> None:
        for cell in share:
            workspace.cells.increment(RUN, cell)

    threads = [threading.Thread(target=work, args=(cells[number::THREADS],)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


async def by_tasks(workspace: Workspace, cells: list[str]) -> None:
    """Each task increments its share."""
    increment = workspace.aio.cells.increment

    async def work(share: list[str]) -> None:
        for cell in share:
            await increment(RUN, cell)

    await asyncio.gather(*(work(cells[number::TASKS]) for number in range(TASKS)))


# --- are both doing the same? ----------------------------------------------------------------------------------------


def compare(ours: Workspace, loop: Loop) -> list[str]:
    """What differs between our statements and settings and the baseline's, in words; nothing if they are the same."""
    writer = ours._engine.store.writer
    group = some_cells(GROUP)
    pairs = (
        (
            "one increment",
            traced(writer, lambda: ours.cells.increment(RUN, CELLS[0])),
            traced(loop.connection, lambda: loop.one_by_one(CELLS[:1])),
        ),
        (
            "a group of 64",
            traced(writer, lambda: asyncio.run(by_tasks(ours, group))),
            traced(loop.connection, lambda: loop.in_groups(group, GROUP)),
        ),
    )
    found = [
        f"{what}: NOT the same statements; ours {len(mine)}, baseline {len(theirs)}, first difference: "
        + next((f"{a!r} / {b!r}" for a, b in zip(mine, theirs, strict=False) if a != b), "one is longer")
        for what, mine, theirs in pairs
        if mine != theirs
    ]
    for pragma in SETTINGS:
        mine, theirs = writer.pragma(pragma), loop.connection.pragma(pragma)
        if mine != theirs:
            found.append(f"NOT the same setting: {pragma} is {mine!r}, in the baseline {theirs!r}")
    return found


def traced(connection: apsw.Connection, run: Callable[[], object]) -> list[str]:
    """The statements that a connection executes meanwhile, but for the one that notes once a second who has written."""
    statements: list[str] = []

    def note(_: apsw.Cursor, sql: str, __: object) -> bool:
        if "actors" not in sql:
            statements.append(sql)
        return True

    connection.exec_trace = note
    try:
        run()
    finally:
        connection.exec_trace = None
    return statements


def statements_per_increment(ours: Workspace) -> tuple[float, float]:
    """Statements an increment takes alone, and as one of a group of 64."""
    writer = ours._engine.store.writer
    alone = traced(writer, lambda: ours.cells.increment(RUN, CELLS[0]))
    group = traced(writer, lambda: asyncio.run(by_tasks(ours, some_cells(GROUP))))
    return float(len(alone)), len(group) / GROUP
