"""What a page asks of a fleet: its status, the graph of 10,000 tasks, a day with 1,000,000 events (G1 to G3).

Each in seconds of processor time, the median of five calls. The day goes by on a clock of its own: 50 agents claim and
complete tasks, so that a task leaves three events.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import holdfast
from holdfast.testing import ManualClock
from tests.bench.measure import ROUNDS, Bench, Row

TASKS, LINKS = 10_000, 20_000
EVENTS = 1_000_000
AGENTS = 50
CHUNK = 500  # tasks in a commit
NEAR = 400  # a task waits for one of so many before it


def run(bench: Bench) -> list[Row]:
    """The graph and the status of many open tasks, the status and the activity of a busy day."""
    return [*graphs(bench), *day(bench)]


def seconds(call: Callable[[], object]) -> float:
    """Processor time of a call, the median of several."""
    found = []
    for _ in range(ROUNDS):
        start = time.process_time()
        call()
        found.append(time.process_time() - start)
    return statistics.median(found)


def graphs(bench: Bench) -> list[Row]:
    """Many tasks that wait for each other."""
    count = bench.count(TASKS, 20)
    ws = holdfast.open(bench.folder / "graph", actor="bench")
    try:
        ids = _make(ws, count)
        _link(ws, ids, bench.count(LINKS, 20))
        return [
            Row("fleet", f"graph of {count:,} tasks", seconds(ws.tasks.graph), "s", at_most=1),
            Row("fleet", f"graph around one of {count:,}", seconds(lambda: ws.tasks.graph(ids[count // 2])), "s"),
            Row("fleet", f"status with {count:,} open tasks", seconds(ws.status), "s"),
        ]
    finally:
        ws.close()


def _make(ws: Any, count: int) -> list[str]:
    ids: list[str] = []
    for start in range(0, count, CHUNK):
        tasks = [{"title": f"task {number}"} for number in range(start, min(count, start + CHUNK))]
        ids += [item.id for item in ws.tasks.bulk("create", tasks=tasks).results]
    return ids


def _link(ws: Any, ids: list[str], count: int) -> None:
    chance = random.Random(2)
    pairs: set[tuple[str, str]] = set()
    while len(pairs) < min(count, 2 * len(ids)):
        high = chance.randrange(1, len(ids))
        pairs.add((ids[high], ids[chance.randrange(max(0, high - NEAR), high)]))
    for start in range(0, len(pairs), CHUNK):
        some = sorted(pairs)[start : start + CHUNK]
        ws.transact(lambda tx, some=some: [tx.tasks.depend(*pair) for pair in some] and None)


def day(bench: Bench) -> list[Row]:
    """A day with many events."""
    count = bench.count(EVENTS, 3 * CHUNK) // 3
    clock = ManualClock(Path(bench.folder) / "clock")
    ws = holdfast.open(bench.folder / "day", actor="bench", clock=clock)
    try:
        start = ws.status().time
        handles = [ws.using(actor=f"agent-{number:02}") for number in range(AGENTS)]
        rounds = max(1, count // CHUNK)
        for number in range(rounds):
            _make(ws, CHUNK)
            handles[number % AGENTS].transact(_work)
            clock.advance(86_000 / rounds)
        until = start + timedelta(days=1)
        bench.say(f"  {rounds * CHUNK * 3:,} events in a day")
        return [
            Row("fleet", "activity of that day", seconds(lambda: ws.activity(start, until, 300)), "s", at_most=1),
            Row("fleet", "status after it", seconds(ws.status), "s"),
        ]
    finally:
        ws.close()


def _work(tx: Any) -> None:
    while (task := tx.tasks.claim_next()) is not None:
        tx.tasks.complete(task.id, review=False)
