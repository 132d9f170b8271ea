"""What observing calls costs: off, against a program without a word of it; on, with nobody to receive it, and with one.

A call through `using` binds its operation anew, which is the only place that asks whether anybody observes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import holdfast
from holdfast.operation import Operation
from tests.bench.measure import Bench, Row, alternate, ratio

CALLS = 20_000


def run(bench: Bench) -> list[Row]:
    """Microseconds a read, bound once and bound for each call."""
    count = bench.count(CALLS)
    rows = []
    with holdfast.open(bench.folder / "store", actor="bench") as ws:
        ws.cells.set("run", "cell", {"phase": "plan"})
        for what, read in (("a call", _bound), ("a call that is bound anew", _anew)):
            figures = alternate(
                {
                    "absent": partial(_each, _absent, read, ws, count),
                    "off": partial(_each, _off, read, ws, count),
                    "API alone": partial(_each, _api, read, ws, count),
                    "SDK": partial(_each, _sdk, read, ws, count),
                }
            )
            for name, values in figures.items():
                bench.say(f"  {what}, {name:10} {statistics.median(values):6.2f} µs")
            rows.append(
                Row("telemetry", f"{what}: off / absent", ratio(figures["off"], figures["absent"]), at_most=1.03)
            )
            for name in ("API alone", "SDK"):
                rows.append(Row("telemetry", f"{what}: {name} / off", ratio(figures[name], figures["off"])))
    return rows


def _bound(ws: holdfast.Workspace) -> Callable[[], object]:
    get = ws.using(actor="bench").cells.get
    return lambda: get("run", "cell")


def _anew(ws: holdfast.Workspace) -> Callable[[], object]:
    return lambda: ws.using(actor="bench").cells.get("run", "cell")


def _each(
    state: Callable[[], Any],
    make: Callable[[holdfast.Workspace], Callable[[], object]],
    ws: holdfast.Workspace,
    count: int,
) -> float:
    with state():
        read = make(ws)
        start = time.perf_counter_ns()
        for _ in range(count):
            read()
        return (time.perf_counter_ns() - start) / count / 1000


@contextmanager
def _absent() -> Iterator[None]:
    """`bind` as it would be without telemetry: its own code, without the question."""
    import inspect
    import textwrap

    import holdfast.operation as module

    lines = textwrap.dedent(inspect.getsource(Operation.bind))
    asked = "runner.bind(self) if OBSERVED.by is None else OBSERVED.by.bind(self, runner)"
    if asked not in lines:
        raise ValueError("Operation.bind asks in other words now: change the bench")
    found: dict[str, Any] = {}
    exec(lines.replace(asked, "runner.bind(self)"), vars(module), found)
    with mock.patch.object(Operation, "bind", found["bind"]):
        yield


@contextmanager
def _off() -> Iterator[None]:
    yield


@contextmanager
def _api() -> Iterator[None]:
    from holdfast import telemetry

    telemetry.enable()
    try:
        yield
    finally:
        telemetry.disable()


@contextmanager
def _sdk() -> Iterator[None]:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider

    from holdfast import telemetry

    telemetry.enable(TracerProvider(), MeterProvider())
    try:
        yield
    finally:
        telemetry.disable()
