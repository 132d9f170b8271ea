"""What grows with the items of a queue: put, take with ack, list and size at 1,000,000 items against 1,000.

A bare apsw select by random keys on the same two stores grows too; ours may grow at most 1.3 times as much. Each sample
of a write is one transaction of many operations, and time is that of the processor: the disk's sync is none of it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import apsw

import holdfast
from holdfast import Transaction
from tests.bench.growth import Samples, typical
from tests.bench.measure import ROUNDS, Bench, Row

SMALL, LARGE = 1_000, 1_000_000
BATCH = 50  # operations of a sample
SAMPLES = 40
SELECT = "SELECT number, state, value FROM queue_items WHERE queue = ? AND number = ?"


class Grown:
    """A store with a queue of so many items, and what its operations took."""

    def __init__(self, folder: Path, size: int) -> None:
        self.size = size
        self.ws = holdfast.open(folder, actor="bench")
        self.queue = self.ws.stashes.create("jobs", "queue").id
        for at in range(0, size, 1000):
            self.ws.queues.put_all(self.queue, [{"job": number} for number in range(at, min(at + 1000, size))])
        self._bare = apsw.Connection(str(folder / "holdfast.db"), flags=apsw.SQLITE_OPEN_READONLY)
        self._record = self._bare.execute("SELECT record FROM queues").get
        self._chance = random.Random(size)
        self.samples: Samples = {name: [] for name in ("bare", "put", "take and ack", "list", "size")}

    def measure(self, bench: Bench) -> None:
        """A round of every operation; each leaves the queue as long as it was."""
        for name, call in {"bare": self._select, "list": self._list, "size": self._size}.items():
            self._time(bench, name, call)
        self._time(bench, "put", lambda: self.ws.transact(self._put))
        self._time(bench, "take and ack", lambda: self.ws.transact(self._take))

    def _time(self, bench: Bench, name: str, call: Callable[[], object]) -> None:
        taken = []
        for _ in range(bench.count(SAMPLES, 2)):
            start = time.process_time()
            call()
            taken.append((time.process_time() - start) * 1e6 / BATCH)
        self.samples[name].append(taken)

    def _select(self) -> None:
        for _ in range(BATCH):
            self._bare.execute(SELECT, (self._record, self._chance.randrange(1, self.size))).fetchone()

    def _list(self) -> None:
        for _ in range(BATCH):
            self.ws.queues.list(self.queue, "ready", limit=10, after=self._chance.randrange(self.size))

    def _size(self) -> None:
        for _ in range(BATCH):
            self.ws.queues.size(self.queue)

    def _put(self, tx: Transaction) -> None:
        for number in range(BATCH):
            tx.queues.put(self.queue, {"job": number})

    def _take(self, tx: Transaction) -> None:
        for _ in range(BATCH):
            item = tx.queues.take(self.queue)
            assert item is not None
            assert item.token is not None
            tx.queues.ack(self.queue, item.token)

    def close(self) -> None:
        """Close the store."""
        self._bare.close()
        self.ws.close()


def run(bench: Bench) -> list[Row]:
    """Growth of the processor time of each operation over that of a bare select, at the median."""
    stores = [
        Grown(bench.folder / "small", bench.count(SMALL, BATCH * 4)),
        Grown(bench.folder / "large", bench.count(LARGE, BATCH * 4)),
    ]
    try:
        bench.say(f"  {stores[0].size:,} and {stores[1].size:,} items")
        for _ in range(ROUNDS):
            for store in stores:
                store.measure(bench)
        small, large = (store.samples for store in stores)
        bare = typical(large["bare"], 50) / typical(small["bare"], 50)
        rows = []
        for name in small:
            few, many = typical(small[name], 50), typical(large[name], 50)
            bench.say(f"  {name:13} {few:9.1f} µs -> {many:9.1f} µs, grows {many / few:5.2f}")
            if name != "bare":
                rows.append(Row("queues", f"{name}, over a bare select's", many / few / bare, at_most=1.3))
        return rows
    finally:
        for store in stores:
            store.close()
