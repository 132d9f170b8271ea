"""A workspace on real engines, against the log in memory and against what people build on those engines by hand.

All servers run on this machine, sync every commit and share its cores with the callers; a network would add its round
trip to each append. R1 is one NATS server, R3 a cluster of three. For increments each engine has three nodes with
connections of their own, all in this process: what one writes the others apply beside it. Lone writes, and what is
compared with rivals, have one node: a rival has no other nodes either. Rivals: a compare-and-swap loop on a JetStream
bucket of three replicas, each caller on a key of its own, and claims by SELECT ... FOR UPDATE SKIP LOCKED, each in a
commit, on a connection for each thread.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

import psycopg

import holdfast
from holdfast import Workspace
from holdfast.replication.jetstream import JetStreamLog
from holdfast.replication.log import CommitLog, MemoryLog, Patience
from holdfast.replication.postgres import PostgresLog
from tests.bench.measure import Bench, Row, alternate, rate, ratio
from tests.worlds import nats, postgres

RUN = "bench"
NODES, CALLERS = 3, 32
ROUNDS = 5
INCREMENTS, LONE, CLAIMS = 3000, 300, 2000
GROUPED, SINGLE, EVERY, TASKS = 97_000, 3_000, 2_000, 64  # of the history that a node joins
MEMORY, R1, R3, POSTGRES = "memory", "R1", "R3", "PostgreSQL"
BARS = {R1: (0.6, 0.7), R3: (0.45, 0.7), POSTGRES: (0.65, 0.6)}  # of the memory log; three nodes of one


def run(bench: Bench) -> list[Row]:
    """All rows of the table of figures."""
    with ExitStack() as stack:
        engines = {name: Engine(bench, name, stack) for name in (MEMORY, R1, R3, POSTGRES)}
        rows = increments(bench, engines)
        sizes(bench, engines[MEMORY])
    with ExitStack() as stack:
        engines = {name: Engine(bench, name, stack, nodes=1) for name in BARS}
        rows += lone_writes(bench, engines)
        rows += [*against_bucket(bench, engines[R3]), *against_skip_locked(bench, engines[POSTGRES])]
    with ExitStack() as stack:
        return rows + [joining(bench, Engine(bench, name, stack, nodes=0)) for name in (R1, R3, POSTGRES)]


class Engine:
    """A log on one engine, and its nodes."""

    def __init__(self, bench: Bench, name: str, stack: ExitStack, nodes: int = NODES) -> None:
        self.name = name
        self.workspace = f"bench-{os.urandom(6).hex()}"
        self._stack = stack
        self._bench = bench
        self._memory = MemoryLog()
        self.nodes = [self.open(number) for number in range(nodes)]

    def open(self, number: int, snapshot_every: int = 10_000) -> Workspace:
        """A node with a client of its own."""
        folder, log = self._bench.folder / f"{self.workspace}-{number}", self.client(number)
        log.snapshot_every = snapshot_every
        return self._stack.enter_context(holdfast.open(folder, actor=f"n{number}", log=log))

    def client(self, number: int) -> CommitLog:
        """A client of the log, which can be reached."""
        if self.name == MEMORY:
            return self._memory
        log: CommitLog
        if self.name == POSTGRES:
            url = f"{postgres.shared_server().url}&application_name=n{number}"
            log = PostgresLog(url, self.workspace, create=True)
        else:
            servers = nats.shared_server() if self.name == R1 else nats.shared_cluster()
            url = servers.url.replace("nats://", f"nats://n{number}:any@")
            log = JetStreamLog(f"{url}?sync=always", self.workspace, create=True)
        self._stack.callback(log.close)
        Patience().outlast(log.head)
        return log


def in_threads(count: int, work: Callable[[int], object]) -> None:
    """Call in so many threads, with the number of each."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def increment_all(nodes: list[Workspace], callers: int, each: int) -> None:
    """So many callers in all, over these nodes, each with a cell of its own."""

    def work(number: int) -> None:
        increment = nodes[number % len(nodes)].cells.increment
        for _ in range(each):
            increment(RUN, f"counter-{number:03}")

    in_threads(callers, work)


def increments(bench: Bench, engines: dict[str, Engine]) -> list[Row]:
    """32 callers on one node, on each engine in turn; as many on each of three nodes, and as many spread over them.

    A third of the callers on one node says what the last form can reach: its nodes take turns, each with its third.
    """
    each = bench.count(INCREMENTS // CALLERS, 2)
    runs: dict[str, Callable[[], float]] = {}
    for name, engine in engines.items():
        for form, nodes, callers in (
            ("one", engine.nodes[:1], CALLERS),
            ("each", engine.nodes, CALLERS * NODES),
            ("spread", engine.nodes, CALLERS),
            ("third", engine.nodes[:1], CALLERS // NODES),
        ):
            runs[f"{name} {form}"] = lambda nodes=nodes, callers=callers: rate(  # type: ignore[misc]
                callers * each, lambda: increment_all(nodes, callers, each)
            )
    figures = alternate(runs, bench.count(ROUNDS))
    rows = []
    for name in engines:
        one, on_each, spread, third = (figures[f"{name} {form}"] for form in ("one", "each", "spread", "third"))
        bench.say(
            f"  {name}: {statistics.median(one):,.0f} increments/s by {CALLERS} callers on one node,"
            f" {statistics.median(on_each):,.0f} by as many on each of three,"
            f" {statistics.median(spread):,.0f} by as many spread over three,"
            f" {statistics.median(third):,.0f} by a third on one ({ratio(third, one):.2f} x)"
        )
        if name in BARS:
            least, together = BARS[name]
            of_memory = ratio(one, figures[f"{MEMORY} one"])
            rows.append(Row("engines", f"{name}, {CALLERS} callers / memory log", of_memory, at_least=least))
            for form, three in ((f"{CALLERS} callers on each", on_each), (f"{CALLERS} callers spread", spread)):
                rows.append(Row("engines", f"{name}, three nodes, {form} / one", ratio(three, one), at_least=together))
    return rows


def lone_writes(bench: Bench, engines: dict[str, Engine]) -> list[Row]:
    """A caller alone, against bare appends of entries of the same size."""
    rows, count = [], bench.count(LONE, 5)
    for name in BARS:
        bare = Engine(bench, name, engines[name]._stack, nodes=0).client(9)
        node, end = engines[name].nodes[0], bare.head()
        appends, writes = list[float](), list[float]()
        for _ in range(count):
            start = time.perf_counter()
            end = bare.append(bytes(400), end)
            middle = time.perf_counter()
            node.cells.increment(RUN, "lone")
            appends.append((middle - start) * 1000)
            writes.append((time.perf_counter() - middle) * 1000)
        append, write = statistics.median(appends), statistics.median(writes)
        bench.say(f"  {name}: a lone write takes {write:.2f} ms (median), a bare append {append:.2f} ms")
        rows.append(Row("engines", f"{name}, a lone write", write, "ms", at_most=append + 1))
    return rows


def against_bucket(bench: Bench, engine: Engine) -> list[Row]:
    """Increments on three replicas, against a compare-and-swap loop on a bucket with as many; both by asyncio tasks."""
    each = bench.count(INCREMENTS // CALLERS, 2)

    async def loop() -> float:
        import nats as client
        from nats.js.api import KeyValueConfig

        connection = await client.connect(nats.shared_cluster().url.split(","))
        try:
            stream = connection.jetstream(timeout=30)
            bucket = await stream.create_key_value(KeyValueConfig(bucket=f"bench-{os.urandom(4).hex()}", replicas=3))
            keys = [f"counter-{number}" for number in range(CALLERS)]
            for key in keys:
                await bucket.put(key, b"0")

            async def work(key: str) -> None:
                for _ in range(each):
                    entry = await bucket.get(key)
                    assert entry.value is not None
                    assert entry.revision is not None
                    await bucket.update(key, b"%d" % (int(entry.value) + 1), last=entry.revision)

            start = time.perf_counter()
            await asyncio.gather(*(work(key) for key in keys))
            return CALLERS * each / (time.perf_counter() - start)
        finally:
            await connection.close()

    async def ours() -> float:
        increment = engine.nodes[0].aio.cells.increment

        async def work(cell: str) -> None:
            for _ in range(each):
                await increment(RUN, cell)

        start = time.perf_counter()
        await asyncio.gather(*(work(f"counter-{number:03}") for number in range(CALLERS)))
        return CALLERS * each / (time.perf_counter() - start)

    figures = alternate(
        {
            "ours": lambda: asyncio.run(ours()),
            "bucket": lambda: asyncio.run(loop()),
        },
        bench.count(ROUNDS),
    )
    mine, theirs = figures["ours"], figures["bucket"]
    bench.say(f"  R3: ours {statistics.median(mine):,.0f} increments/s, a bucket {statistics.median(theirs):,.0f}")
    return [Row("engines", "R3, increments / compare-and-swap in a bucket", ratio(mine, theirs), at_least=1.4)]


def against_skip_locked(bench: Bench, engine: Engine) -> list[Row]:
    """Claims by 32 threads, against a table and SKIP LOCKED in the same server."""
    each = bench.count(CLAIMS // CALLERS, 2)
    node, url = engine.nodes[0], postgres.shared_server().url
    table = f"tasks_{os.urandom(4).hex()}"

    def fill(connection: psycopg.Connection[tuple[object, ...]]) -> None:
        connection.execute(f"DROP TABLE IF EXISTS {table}".encode())
        connection.execute(
            f"CREATE TABLE {table} (id serial PRIMARY KEY, title text, priority int, status text, holder text)".encode()
        )
        connection.execute(f"CREATE INDEX ON {table} (priority, id) WHERE status = 'open'".encode())
        connection.execute(
            f"INSERT INTO {table} (title, priority, status) SELECT 'task', 2, 'open'"
            f" FROM generate_series(1, {CALLERS * each})".encode()
        )

    claim = (
        f"UPDATE {table} SET status = 'in_progress', holder = %s WHERE id = (SELECT id FROM {table}"
        " WHERE status = 'open' ORDER BY priority, id FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING id"
    ).encode()

    def theirs() -> float:
        with ExitStack() as stack:
            connections = [stack.enter_context(psycopg.connect(url, autocommit=True)) for _ in range(CALLERS)]
            fill(connections[0])

            def work(number: int) -> None:
                for _ in range(each):
                    connections[number].execute(claim, (f"agent-{number}",)).fetchone()

            return rate(CALLERS * each, lambda: in_threads(CALLERS, work))

    def ours() -> float:
        left = CALLERS * each
        while left:
            size = min(left, 500)
            node.tasks.bulk("create", tasks=[{"title": "task"} for _ in range(size)])
            left -= size

        def work(number: int) -> None:
            for _ in range(each):
                node.tasks.claim_next(f"agent-{number}")

        return rate(CALLERS * each, lambda: in_threads(CALLERS, work))

    figures = alternate({"ours": ours, "theirs": theirs}, bench.count(ROUNDS))
    bench.say(
        f"  PostgreSQL: ours {statistics.median(figures['ours']):,.0f} claims/s,"
        f" SKIP LOCKED {statistics.median(figures['theirs']):,.0f}"
    )
    result = ratio(figures["ours"], figures["theirs"])
    return [Row("engines", "PostgreSQL, claims / SKIP LOCKED", result, at_least=0.7)]


def sizes(bench: Bench, engine: Engine) -> None:
    """What an entry weighs, for information."""
    log, node = engine.client(0), engine.nodes[0]

    def size(write: Callable[[], object]) -> int:
        before = log.head()
        write()
        return sum(len(entry) for _, entry in log.tail(before))

    single = size(lambda: node.cells.increment(RUN, "lone"))
    many = size(lambda: node.transact(lambda tx: [tx.cells.increment(RUN, f"cell-{n}") for n in range(TASKS)]))
    bench.say(f"  an entry has {single:,} bytes for one increment, {many / TASKS:,.0f} for each of {TASKS}")


def joining(bench: Bench, engine: Engine) -> Row:
    """A node that joins 100,000 revisions."""
    first = engine.open(0, bench.count(EVERY, 20))

    async def by_tasks() -> None:
        async def work(task: int) -> None:
            for number in range(bench.count(GROUPED, TASKS) // TASKS):
                await first.aio.cells.increment(RUN, f"counter-{task}-{number % 16}")

        await asyncio.gather(*(work(task) for task in range(TASKS)))

    asyncio.run(by_tasks())
    for number in range(bench.count(SINGLE, 20)):
        first.cells.increment(RUN, f"lone-{number % 1024}")
    start = time.perf_counter()
    late = engine.open(1)
    late.using(at_least=first.revision).reach()
    seconds = time.perf_counter() - start
    if late.revision < first.revision:
        raise AssertionError(f"joined at {late.revision}, not {first.revision}")
    bench.say(f"  {engine.name}: {late.revision:,} revisions reached in {seconds:.2f} s")
    return Row("engines", f"{engine.name}, joining 100,000 revisions", seconds, "s", at_most=5.0)
