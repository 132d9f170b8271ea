"""What grows with the items of a queue and the messages of a channel: each operation at 1,000,000 against 1,000.

A bare apsw select by random keys on the same stores grows too; ours may grow at most 1.3 times as much. Each sample
of a write is one transaction of many operations, and time is that of the processor: the disk's sync is none of it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import apsw

import holdfast
from holdfast import Transaction
from tests.bench.growth import Samples, typical
from tests.bench.measure import ROUNDS, Bench, Row

SMALL, LARGE = 1_000, 1_000_000
BATCH = 50  # operations of a sample
SAMPLES = 40


class Grown:
    """A store with something of so many parts, and what its operations took."""

    select: str  # by record and number

    def __init__(self, folder: Path, size: int) -> None:
        self.size = size
        self.ws = holdfast.open(folder, actor="bench")
        record = self.fill()
        self._bare = apsw.Connection(str(folder / "holdfast.db"), flags=apsw.SQLITE_OPEN_READONLY)
        self._record = self._bare.execute(record).get
        self.chance = random.Random(size)
        self.samples: Samples = {}

    def fill(self) -> str:
        """Put in what there shall be; returns a select of its record."""
        raise NotImplementedError

    def operations(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """The operations, each a BATCH of times, which leave the store as it was."""
        raise NotImplementedError

    def measure(self, bench: Bench) -> None:
        """A round of every operation."""
        for name, call in (("bare", self._select), *self.operations()):
            taken = []
            for _ in range(bench.count(SAMPLES, 2)):
                start = time.process_time()
                call()
                taken.append((time.process_time() - start) * 1e6 / BATCH)
            self.samples.setdefault(name, []).append(taken)

    def _select(self) -> None:
        for _ in range(BATCH):
            self._bare.execute(self.select, (self._record, self.chance.randrange(1, self.size))).fetchone()

    def close(self) -> None:
        """Close the store."""
        self._bare.close()
        self.ws.close()


def often(call: Callable[[], object]) -> Callable[[], None]:
    """A call, a BATCH of times."""

    def calls() -> None:
        for _ in range(BATCH):
            call()

    return calls


class Queue(Grown):
    """A queue of so many items."""

    select = "SELECT number, state, value FROM queue_items WHERE queue = ? AND number = ?"

    def fill(self) -> str:
        self.queue = self.ws.stashes.create("jobs", "queue").id
        for at in range(0, self.size, 1000):
            self.ws.queues.put_all(self.queue, [{"job": number} for number in range(at, min(at + 1000, self.size))])
        return "SELECT record FROM queues"

    def operations(self) -> Iterator[tuple[str, Callable[[], object]]]:
        queues, id = self.ws.queues, self.queue
        yield "list", often(lambda: queues.list(id, "ready", limit=10, after=self.chance.randrange(self.size)))
        yield "size", often(lambda: queues.size(id))
        yield "put", lambda: self.ws.transact(self._put)
        yield "take and ack", lambda: self.ws.transact(self._take)

    def _put(self, tx: Transaction) -> None:
        for number in range(BATCH):
            tx.queues.put(self.queue, {"job": number})

    def _take(self, tx: Transaction) -> None:
        for _ in range(BATCH):
            item = tx.queues.take(self.queue)
            assert item is not None
            assert item.token is not None
            tx.queues.ack(self.queue, item.token)


class Channel(Grown):
    """A channel that keeps so many messages, and has a subscriber who has read half of them."""

    select = "SELECT number, sender, value FROM channel_messages WHERE channel = ? AND number = ?"

    def fill(self) -> str:
        self.channel = self.ws.stashes.create("news", "channel", {"keep": self.size}).id
        for at in range(0, self.size, 1000):
            self.ws.transact(partial(self._publish, count=min(1000, self.size - at)))
        self.end = 0
        return "SELECT record FROM channels"

    def operations(self) -> Iterator[tuple[str, Callable[[], object]]]:
        channels, id = self.ws.channels, self.channel
        channels.unsubscribe(id)
        self.end = channels.subscribe(id).cursor
        channels.unsubscribe(id)
        channels.subscribe(id, after=self.end - self.size // 2)
        yield "list", often(lambda: channels.list(id, limit=10, after=self.end - self.chance.randrange(self.size)))
        yield "read", often(lambda: channels.read(id, limit=10))
        yield "subscribers", often(lambda: channels.subscribers(id))
        yield "publish", lambda: self.ws.transact(self._publish)
        yield "subscribe, ack and leave", lambda: self.ws.transact(self._ack)

    def _publish(self, tx: Transaction, count: int = BATCH) -> None:
        for number in range(count):
            tx.channels.publish(self.channel, {"job": number})

    def _ack(self, tx: Transaction) -> None:
        for _ in range(BATCH):
            tx.channels.subscribe(self.channel, "late", after=self.end - 1)
            tx.channels.ack(self.channel, self.end, "late")
            tx.channels.unsubscribe(self.channel, "late")


def run(bench: Bench) -> list[Row]:
    """Growth of the processor time of each operation over that of a bare select, at the median."""
    return [*_grown(bench, Queue), *_grown(bench, Channel)]


def _grown(bench: Bench, kind: type[Grown]) -> list[Row]:
    what = kind.__name__.lower()
    stores = [
        kind(bench.folder / f"small-{what}", bench.count(SMALL, BATCH * 4)),
        kind(bench.folder / f"large-{what}", bench.count(LARGE, BATCH * 4)),
    ]
    try:
        bench.say(f"  {what}: {stores[0].size:,} and {stores[1].size:,}")
        for _ in range(ROUNDS):
            for store in stores:
                store.measure(bench)
        small, large = (store.samples for store in stores)
        bare = typical(large["bare"], 50) / typical(small["bare"], 50)
        rows = []
        for name in small:
            few, many = typical(small[name], 50), typical(large[name], 50)
            bench.say(f"  {name:24} {few:9.1f} µs -> {many:9.1f} µs, grows {many / few:5.2f}")
            if name != "bare":
                rows.append(Row("queues", f"{what}: {name}, over a bare select's", many / few / bare, at_most=1.3))
        return rows
    finally:
        for store in stores:
            store.close()
