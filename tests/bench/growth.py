"""What grows with the data: set, get, watch and a page of a list at 1,000,000 cells against 10,000.

A bare apsw select by random keys on the same two stores grows too, since fewer pages stay in the cache; ours may grow
at most 1.3 times as much. Reads come first and writes last, because a commit empties the page caches of readers: this
measures warm stores.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec

import holdfast
from holdfast import Workspace
from tests.bench.measure import ROUNDS, Bench, Row, percentile

RUN = "bench"
SMALL, LARGE = 10_000, 1_000_000
SELECT = "SELECT value, version, revision, updated FROM cells WHERE run = ? AND cell = ?"
FIRST = 1_700_000_000_000_000  # the time of the first event, in microseconds
Samples = dict[str, list[list[float]]]  # microseconds of each call, by operation and round


def run(bench: Bench) -> list[Row]:
    """Growth of each operation over the growth of a bare select, at the median and at the 99th percentile."""
    stores = [
        Grown(bench.folder / "small", bench.count(SMALL), seed=1),
        Grown(bench.folder / "large", bench.count(LARGE), seed=2),
    ]
    try:
        report = stores[0].ws.check()
        bench.say(
            f"  {stores[0].size:,} and {stores[1].size:,} cells; check of the small store: {report.problems or 'ok'}"
        )
        for store in stores:
            store.warm(bench.count(30_000))
        for phase in (Grown.read_phase, Grown.write_phase):
            for _ in range(ROUNDS):
                for store in stores:
                    phase(store, bench)
        return compare(bench, stores[0].samples, stores[1].samples)
    finally:
        for store in stores:
            store.close()


def compare(bench: Bench, small: Samples, large: Samples) -> list[Row]:
    """The table's rows."""
    rows = []
    for percent in (50, 99):
        bare = typical(large["bare"], percent) / typical(small["bare"], percent)
        for name in small:
            few, many = typical(small[name], percent), typical(large[name], percent)
            bench.say(f"  {name:5} p{percent}  {few:9.1f} µs -> {many:9.1f} µs, grows {many / few:5.2f}")
            if name != "bare":
                rows.append(Row("growth", f"{name} p{percent}, over a bare select's", many / few / bare, at_most=1.3))
    return rows


def typical(rounds: list[list[float]], percent: float) -> float:
    """The median over the rounds of each one's percentile."""
    return statistics.median(percentile(sample, percent) for sample in rounds)


class Grown:
    """A store of so many cells with random names, and what its operations took."""

    def __init__(self, folder: Path, size: int, seed: int) -> None:
        self.size = size
        self._chance = random.Random(seed)
        self._names = [f"{self._chance.getrandbits(80):020x}" for _ in range(size)]
        holdfast.open(folder, actor="bench").close()
        fill(str(folder / "holdfast.db"), self._names)
        self.ws: Workspace = holdfast.open(folder, actor="bench")
        self._raw = self.ws._engine.store.connect_reader()
        self._revision = self.ws.revision
        self.samples: Samples = {name: [] for name in ("bare", "get", "list", "watch", "set")}

    def warm(self, count: int) -> None:
        """Fill the page caches: the raw reader's, ours, and the writer's."""
        names = self._some(count)
        for name in names:
            self._bare(name)
            self.ws.cells.get(RUN, name)

        def look(tx: holdfast.Transaction) -> None:
            for name in names:
                tx.cells.get(RUN, name)
                tx.cells.history(RUN, name, limit=1)

        self.ws.transact(look)

    def read_phase(self, bench: Bench) -> None:
        """Chunks of each read, in turns."""
        cells = self.ws.cells
        self._time("bare", self._bare, self._some(bench.count(4000, 20)))
        self._time("get", lambda name: cells.get(RUN, name), self._some(bench.count(4000, 20)))
        self._time("list", lambda name: cells.list(RUN, limit=100, after=name), self._some(bench.count(1000, 20)))
        self._time("watch", self._resume, range(bench.count(1000, 20)))

    def write_phase(self, bench: Bench) -> None:
        """Durable writes."""
        self._time("set", lambda name: self.ws.cells.set(RUN, name, _value(7)), self._some(bench.count(600, 20)))

    def _bare(self, name: str) -> object:
        return self._raw.execute(SELECT, (RUN, name)).fetchone()

    def _resume(self, number: int) -> None:
        """A watch that goes on from a recent cursor and reads the next event."""
        after = self._revision - 1 - number % min(100, self.size)
        with self.ws.watch(after=after, timeout=10) as events:
            next(events)

    def _some(self, count: int) -> list[str]:
        return self._chance.choices(self._names, k=count)

    def _time(self, what: str, call: Callable[[Any], object], arguments: Iterable[Any]) -> None:
        sample: list[float] = []
        now = time.perf_counter_ns
        for argument in arguments:
            start = now()
            call(argument)
            sample.append((now() - start) / 1000)
        self.samples[what].append(sample)

    def close(self) -> None:
        """Close both."""
        self._raw.close()
        self.ws.close()


# --- filling a store -------------------------------------------------------------------------------------------------


def fill(path: str, names: list[str]) -> None:
    """The rows that as many `cells.set` would leave, written without them: a million take seconds, not minutes."""
    connection = apsw.Connection(path)
    for pragma, value in (("journal_mode", "off"), ("synchronous", 0), ("cache_size", -1_000_000)):
        connection.pragma(pragma, value)
    with connection:
        connection.executemany(
            "INSERT INTO cells (run, cell, record, version, revision, updated, size, value)"
            " VALUES (?, ?, ?, 1, ?, ?, ?, ?)",
            _cells(names),
        )
        connection.executemany(
            "INSERT INTO records (key, kind, scope, id) VALUES (?, 'cell', ?, ?)",
            ((key, RUN, name) for key, name in enumerate(names, 1)),
        )
        connection.executemany(
            "INSERT INTO log (revision, position, time, actor, record, op, version, data)"
            " VALUES (?, 0, ?, 'bench', ?, 'set', 1, ?)",
            _events(names),
        )
        connection.execute("UPDATE meta SET revision = ?, stamp = ?", (len(names), FIRST + len(names)))
    connection.pragma("journal_mode", "wal")
    connection.close()


def _value(number: int) -> dict[str, object]:
    return {"phase": "plan", "step": number}


def _cells(names: list[str]) -> Iterator[tuple[Any, ...]]:
    for revision, name in enumerate(names, 1):
        data = msgspec.msgpack.encode(_value(revision), order="sorted")
        yield RUN, name, revision, revision, FIRST + revision, len(data), data


def _events(names: list[str]) -> Iterator[tuple[Any, ...]]:
    for revision, _ in enumerate(names, 1):
        data = msgspec.msgpack.encode({"value": _value(revision)}, order="sorted")
        yield revision, FIRST + revision, revision, data
