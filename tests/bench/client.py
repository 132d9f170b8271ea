"""What a call of our own client costs its caller, against what the same call costs the server.

The callers run in this process and the server in one of its own, as users start it; both count their processor time.
Each call increments a counter, durable. Above the bar of 3 x a machine with many callers would run out of processor
time for them before it does for its server.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import holdfast
from holdfast import RemoteWorkspace
from tests.bench.load_server import Served
from tests.bench.measure import Bench, Row, alternate
from tests.http.running import command

CALLERS = 32
CALLS = 3_200  # of a round
TICK = 1 / os.sysconf("SC_CLK_TCK")  # how exactly the processor time of the server is known
ROUNDS = 3


def run(bench: Bench) -> list[Row]:
    """One caller that blocks, 32 threads and 32 tasks of an event loop."""
    count = bench.count(CALLS, CALLERS) // CALLERS * CALLERS
    folder = bench.folder / "client"
    with Served(command(folder, "--port", "0"), folder) as served:
        url = f"http://127.0.0.1:{served.port}"
        with holdfast.connect(url, token=served.token, actor="bench") as ws:
            ways: dict[str, Callable[[], None]] = {
                "one caller": lambda: one(ws, count // 4),
                f"{CALLERS} threads": lambda: threads(ws, count),
                f"{CALLERS} tasks": lambda: asyncio.run(tasks(url, served.token, count)),
            }
            for way in ways.values():
                way()  # connections are open, and both sides have loaded what they need
            costs = alternate({what: partial(cost, served, way) for what, way in ways.items()}, ROUNDS)
    for what, ratios in costs.items():
        bench.say(f"  {what:11} {statistics.median(ratios):.2f} x the processor time of the server")
    return [Row("client", f"{what} / server", statistics.median(some), at_most=3) for what, some in costs.items()]


def cost(served: Served, way: Callable[[], None]) -> float:
    """The processor time of this process in such a run, against that of the server."""
    theirs, ours = served.cpu, time.process_time()
    way()
    return (time.process_time() - ours) / max(served.cpu - theirs, TICK)


def one(ws: RemoteWorkspace, count: int) -> None:
    """One call after the other."""
    for number in range(count):
        ws.cells.increment("bench", f"cell-{number % CALLERS}")


def threads(ws: RemoteWorkspace, count: int) -> None:
    """As many from each thread."""
    with ThreadPoolExecutor(CALLERS) as pool:
        list(pool.map(lambda _: one(ws, count // CALLERS), range(CALLERS)))


async def tasks(url: str, token: str, count: int) -> None:
    """As many from each task of one event loop."""
    with holdfast.connect(url, token=token, actor="bench") as ws:

        async def some() -> None:
            for number in range(count // CALLERS):
                await ws.aio.cells.increment("bench", f"cell-{number % CALLERS}")

        await asyncio.gather(*(some() for _ in range(CALLERS)))
