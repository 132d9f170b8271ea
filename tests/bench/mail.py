"""Mail, path locks and taking up work: a page of an inbox at 100,000 messages against 1,000, and what is not compared.

One message in five is for the agent whose inbox is read; it has acknowledged half of them, and a tenth is closed. Reads
of both stores take turns. Counting what is unread may grow by 3, and so may checking and taking a path lock among 1,000
of others against 10. Printed without a bar: how often a second agents claim a task, lock its paths and tell another in
one commit, each with the commit that completes it.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import holdfast
from holdfast import Transaction, Workspace
from tests.bench.growth import Samples, typical
from tests.bench.increments import spread
from tests.bench.measure import ROUNDS, Bench, Row, alternate, rate

SMALL, LARGE = 1_000, 100_000  # messages
FEW, MANY = 10, 1_000  # locks
PAGE = 50
ME, OTHERS = "me", [f"agent-{number:02}" for number in range(20)]
TEXT = "what was found and what is to be done about it " * 4
CHUNK = 500  # messages sent in one commit
THREADS, TASKS = 32, 64
BARRED = ("inbox, unread", "inbox, open")


def run(bench: Bench) -> list[Row]:
    """How the reads of mail grow, how locking grows with locks, and take-ups a second."""
    return [*inboxes(bench), *path_locks(bench), *taking_up(bench)]


# --- mail ------------------------------------------------------------------------------------------------------------


def inboxes(bench: Bench) -> list[Row]:
    """Pages and counts in a small store and a large one."""
    sizes = (SMALL, bench.count(LARGE, SMALL))
    stores = [mailbox(bench.folder / f"mail-{number}", size) for number, size in enumerate(sizes)]
    samples: list[Samples] = [{name: [] for name in (*BARRED, "unread")} for _ in stores]
    try:
        unread = [store.mail.unread() for store in stores]
        bench.say(
            f"  {sizes[0]:,} and {sizes[1]:,} messages, {unread[0]:,} and {unread[1]:,} of them unread by one agent"
        )
        for number in range(-1, ROUNDS):
            for store, found in zip(stores, samples, strict=True):
                for name, call in reads(store).items():
                    times = microseconds(call, bench.count(600, 5))
                    if number >= 0:  # the first round fills the caches
                        found[name].append(times)
    finally:
        for store in stores:
            store.close()
    return [row for percent in (50, 99) for row in compare(bench, samples[0], samples[1], percent)]


def mailbox(folder: Path, size: int) -> Workspace:
    """A store with so many messages."""
    ws = holdfast.open(folder, actor=ME)
    for start in range(0, size, CHUNK):
        ws.transact(partial(post_all, numbers=range(start, min(start + CHUNK, size))))
    return ws


def post_all(tx: Transaction, numbers: range) -> None:
    """The messages of these numbers, and what becomes of them."""
    for number in numbers:
        _post(tx, number)


def _post(tx: Transaction, number: int) -> None:
    mine = number % 5 == 0
    sender = OTHERS[number % len(OTHERS)]
    to = [ME, OTHERS[number // 5 % 20]] if mine else [OTHERS[number // 3 % 20]]
    message = tx.mail.send(to, f"about {number}", TEXT, sender=sender)
    if mine and number % 2:
        tx.mail.ack(message.id)
    if number % 10 in (3, 5) and number % 20 < 10:
        tx.mail.close(message.id, agent=sender)


def reads(store: Workspace) -> dict[str, Callable[[], object]]:
    """What is measured; a page is full, or the figures say nothing."""

    def page(**filters: Any) -> None:
        assert len(store.mail.inbox(limit=PAGE, **filters)) == PAGE

    return {"inbox, unread": lambda: page(unread=True), "inbox, open": page, "unread": store.mail.unread}


def compare(bench: Bench, small: Samples, large: Samples, percent: int) -> list[Row]:
    """The rows at a percentile."""
    rows = []
    for name in small:
        few, many = typical(small[name], percent), typical(large[name], percent)
        bench.say(f"  {name:27} p{percent}  {few:9.1f} µs -> {many:9.1f} µs, grows {many / few:5.2f}")
        bar = 1.5 if name in BARRED else 3.0
        rows.append(Row("mail", f"{name} p{percent}, {LARGE:,} / {SMALL:,} messages", many / few, at_most=bar))
    return rows


def microseconds(call: Callable[[], object], times: int) -> list[float]:
    """What each call took."""
    now, sample = time.perf_counter_ns, []
    for _ in range(times):
        start = now()
        call()
        sample.append((now() - start) / 1000)
    return sample


# --- paths -----------------------------------------------------------------------------------------------------------


def path_locks(bench: Bench) -> list[Row]:
    """Checking a path and taking a lock among few and among many of others."""
    stores = [locked(bench.folder / f"paths-{number}", number) for number in (FEW, bench.count(MANY, FEW))]
    samples: list[Samples] = [{"paths.check": [], "paths.lock + release": []} for _ in stores]
    pages = itertools.count()

    def lock(store: Workspace) -> None:
        store.paths.release(store.paths.lock(f"docs/page-{next(pages)}.md", ttl=60).id)

    try:
        for number in range(-1, ROUNDS):
            for store, found in zip(stores, samples, strict=True):
                check = partial(store.paths.check, "src/part-3/index.md", "agent-3")
                times = {
                    "paths.check": microseconds(check, bench.count(40, 5)),
                    "paths.lock + release": microseconds(partial(lock, store), bench.count(20, 3)),
                }
                for name in times if number >= 0 else ():
                    found[name].append(times[name])
    finally:
        for store in stores:
            store.close()
    rows = []
    for name in samples[0]:
        few, many = (typical(sample[name], 50) for sample in samples)
        bench.say(f"  {name:27} p50  {few:9.1f} µs -> {many:9.1f} µs with {FEW} and {MANY:,} locks of others")
        rows.append(Row("mail", f"{name} p50, {MANY:,} / {FEW} locks of others", many / few, at_most=3.0))
    return rows


def locked(folder: Path, count: int) -> Workspace:
    """A store with so many locks, each another's."""
    ws = holdfast.open(folder, actor=ME)
    ws.transact(lambda tx: [tx.paths.lock(f"src/part-{n}/**", holder=f"agent-{n}", ttl=3600) for n in range(count)])
    return ws


# --- taking up work --------------------------------------------------------------------------------------------------


def taking_up(bench: Bench) -> list[Row]:
    """Take-ups a second by threads and by the tasks of an event loop."""
    count = bench.count(800, TASKS)
    with holdfast.open(bench.folder / "together", actor="bench") as ws, asyncio.Runner() as runner:
        figures = alternate(
            {
                f"{THREADS} threads": lambda: take_ups(ws, count, by_threads),
                f"{TASKS} tasks": lambda: take_ups(ws, count, lambda ws, ids: runner.run(by_tasks(ws, ids))),
            }
        )
    for name, values in figures.items():
        bench.say(f"  {name:27} {statistics.median(values):9,.0f} take-ups/s  {spread(values)}")
    return [Row("mail", f"take-ups by {name}", statistics.median(each), "/s") for name, each in figures.items()]


def take_ups(ws: Workspace, count: int, work: Callable[[Workspace, list[str]], None]) -> float:
    """How many a second of so many, on tasks of their own."""
    made = ws.tasks.bulk("create", tasks=[{"title": f"task {number}"} for number in range(count)])
    ids = [result.id for result in made.results]
    return rate(count, lambda: work(ws, ids))


def take_up(tx: Transaction, id: str, agent: str) -> None:
    """The combined transaction."""
    tx.tasks.claim(id, agent)
    tx.paths.lock(f"src/{id}/**", holder=agent, task=id)
    tx.mail.send("lead", f"{id} is taken", TEXT, task=id, sender=agent)


def by_threads(ws: Workspace, ids: list[str]) -> None:
    """Each thread is an agent that takes up its share, one after the other."""

    def work(agent: str, share: Iterator[str]) -> None:
        for id in share:
            ws.transact(partial(take_up, id=id, agent=agent))
            ws.tasks.complete(id, agent)

    threads = [threading.Thread(target=work, args=(f"a-{n}", iter(ids[n::THREADS]))) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


async def by_tasks(ws: Workspace, ids: list[str]) -> None:
    """So is each task of one event loop."""

    async def work(agent: str, share: list[str]) -> None:
        for id in share:
            await ws.aio.transact(partial(take_up, id=id, agent=agent))
            await ws.aio.tasks.complete(id, agent)

    await asyncio.gather(*(work(f"a-{n}", ids[n::TASKS]) for n in range(TASKS)))
