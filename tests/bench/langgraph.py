"""`HoldfastSaver` beside LangGraph's own savers for SQLite, in one run and at equal durability.

Both stores use a write-ahead log that is synced before a call returns. Callers are tasks of one event loop, each with a
thread of its own; a put brings one new value of 2 KB or 200 KB. The savers without async are compared when they read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import holdfast
from tests.bench.measure import ROUNDS, Bench, Row, alternate, rate, ratio

SMALL, LARGE = "x" * 2_000, "x" * 200_000
PUTS, LARGE_PUTS, READS = 400, 60, 600
MANY = 32


def run(bench: Bench) -> list[Row]:
    """Measure puts and reads; says what is missing where LangGraph is not installed."""
    try:
        import langgraph.checkpoint.sqlite  # noqa: F401
    except ImportError as error:
        bench.say(f"langgraph: not measured, {error}")
        return []
    names = ("langgraph-checkpoint", "langgraph-checkpoint-sqlite")
    bench.say("  " + ", ".join(f"{name} {version(name)}" for name in names))
    return asyncio.run(_awaited(bench)) + _plain(bench)


async def _awaited(bench: Bench) -> list[Row]:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    from holdfast.integrations.langgraph import HoldfastSaver

    folder = bench.folder
    with holdfast.open(folder / "ours", actor="bench") as ws:
        async with AsyncSqliteSaver.from_conn_string(str(folder / "theirs.db")) as theirs:
            await theirs.setup()
            synced = await (await theirs.conn.execute("PRAGMA synchronous")).fetchone()
            assert synced == (2,), "it syncs each commit"
            savers = {"ours": HoldfastSaver(ws), "theirs": theirs}
            rows = []
            for size, value, puts in (("2 KB", SMALL, PUTS), ("200 KB", LARGE, LARGE_PUTS)):
                for callers, bar in ((1, 0.9 if value is SMALL else 0.8), (MANY, 3.5 if value is SMALL else 1.2)):
                    count = bench.count(puts * (4 if callers > 1 and value is SMALL else 1), callers)
                    figures = await _rounds(savers, lambda saver, n=count, c=callers, v=value: _put(saver, n, c, v))  # type: ignore[misc]
                    rows += _rows(f"put {size}, {callers} at a time", figures, bar)
            count = bench.count(READS, 2)
            figures = await _rounds(savers, lambda saver: _get(saver, count))
            return rows + _rows("get_tuple 2 KB", figures, 2.0)


async def _rounds(savers: dict[str, Any], run: Callable[[Any], Awaitable[float]]) -> dict[str, list[float]]:
    """The rates of each saver, taken in turns."""
    figures: dict[str, list[float]] = {name: [] for name in savers}
    for saver in savers.values():
        await run(saver)  # warm
    for _ in range(ROUNDS):
        for name, saver in savers.items():
            figures[name].append(await run(saver))
    return figures


def _rows(what: str, figures: dict[str, list[float]], bar: float) -> list[Row]:
    ours, theirs = (sorted(figures[name])[len(figures[name]) // 2] for name in ("ours", "theirs"))
    return [
        Row("langgraph", f"{what}: ours", ours, "/s"),
        Row("langgraph", f"{what}: SQLite saver", theirs, "/s"),
        Row("langgraph", f"{what}: ours to theirs", ratio(figures["ours"], figures["theirs"]), at_least=bar),
    ]


def _checkpoint(saver: Any, value: str, last: str | None) -> tuple[Any, dict[str, str]]:
    from langgraph.checkpoint.base import empty_checkpoint
    from langgraph.checkpoint.base.id import uuid6

    versions = {"messages": saver.get_next_version(last, None) if last else f"{1:032}.{0:016}"}
    made = empty_checkpoint()
    made["id"] = str(uuid6(clock_seq=0))
    made["channel_values"] = {"messages": [value]}
    made["channel_versions"] = dict(versions)
    return made, versions


_THREADS = iter(range(10**9))


async def _put(saver: Any, count: int, callers: int, value: str) -> float:
    """Puts a second of so many callers at a time, each with a new thread."""

    async def puts(thread: str) -> None:
        at: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        for number in range(count // callers):
            versions = {"messages": f"{number:032}.{0:016}"}
            made, _ = _checkpoint(saver, value, None)
            made["channel_versions"] = versions
            at = await saver.aput(at, made, {"source": "loop", "step": number}, versions)

    loop = asyncio.get_running_loop()
    start = loop.time()
    await asyncio.gather(*(puts(f"thread-{next(_THREADS)}") for _ in range(callers)))
    return (count // callers) * callers / (loop.time() - start)


async def _get(saver: Any, count: int) -> float:
    """Reads a second of one caller, of the newest checkpoint of a thread."""
    at: Any = {"configurable": {"thread_id": "read", "checkpoint_ns": ""}}
    made, versions = _checkpoint(saver, SMALL, None)
    stored = await saver.aput(at, made, {"source": "loop", "step": 1}, versions)
    await saver.aput_writes(stored, [("messages", SMALL)], "task")
    loop = asyncio.get_running_loop()
    start = loop.time()
    for _ in range(count):
        await saver.aget_tuple(at)
    return count / (loop.time() - start)


def _plain(bench: Bench) -> list[Row]:
    """Reads without async."""
    from langgraph.checkpoint.sqlite import SqliteSaver

    from holdfast.integrations.langgraph import HoldfastSaver

    rows = []
    count = bench.count(READS, 2)
    with holdfast.open(bench.folder / "plain", actor="bench") as ws, _sqlite(SqliteSaver, bench.folder) as theirs:
        savers: dict[str, Any] = {"ours": HoldfastSaver(ws), "theirs": theirs}
        at: Any = {"configurable": {"thread_id": "read", "checkpoint_ns": ""}}
        for saver in savers.values():
            before = at
            for number in range(20):
                made, versions = _checkpoint(saver, SMALL, f"{number + 1:032}.{0:016}")
                before = saver.put(before, made, {"source": "loop", "step": number}, versions)
            saver.put_writes(before, [("messages", SMALL)], "task")

        def reads(saver: Any) -> float:
            return rate(count, lambda: [saver.get_tuple(at) for _ in range(count)])

        def lists(saver: Any) -> float:
            return rate(count, lambda: [list(saver.list(at)) for _ in range(count // 20 or 1)])

        for what, call in (("get_tuple 2 KB, without async", reads), ("list of 20, without async", lists)):
            runs: dict[str, Callable[[], float]] = {name: partial(call, saver) for name, saver in savers.items()}
            rows += _rows(what, alternate(runs), 0.9)
    return rows


def _sqlite(saver: Any, folder: Path) -> Any:
    return saver.from_conn_string(str(folder / "plain.db"))
