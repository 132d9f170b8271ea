"""`cells.get` in process, against a raw apsw select of the same row on a connection with the same settings."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable

import holdfast
from tests.bench.measure import Bench, Row, alternate, ratio

RUN = "bench"
SELECT = "SELECT value, version, revision, updated FROM cells WHERE run = ? AND cell = ?"


def run(bench: Bench) -> list[Row]:
    """Microseconds a read, ours and raw, in turns."""
    names = [f"cell-{number:05}" for number in range(bench.count(10_000))]
    with holdfast.open(bench.folder / "store", actor="bench") as ws:
        ws.transact(lambda tx: [tx.cells.set(RUN, name, {"phase": "plan", "step": 7}) for name in names])
        asked = random.Random(1).choices(names, k=bench.count(40_000))
        raw = ws._engine.store.connect_reader()
        execute, get = raw.execute, ws.cells.get
        figures = alternate(
            {
                "raw select": lambda: each(lambda name: execute(SELECT, (RUN, name)).fetchone(), asked),
                "cells.get": lambda: each(lambda name: get(RUN, name), asked),
            }
        )
        raw.close()
    for name, values in figures.items():
        bench.say(f"  {name:12} {statistics.median(values):6.2f} µs  ({min(values):.2f} to {max(values):.2f})")
    return [Row("get", "cells.get / raw select", ratio(figures["cells.get"], figures["raw select"]), at_most=2.0)]


def each(read: Callable[[str], object], names: list[str]) -> float:
    """Microseconds a call."""
    start = time.perf_counter_ns()
    for name in names:
        read(name)
    return (time.perf_counter_ns() - start) / len(names) / 1000
