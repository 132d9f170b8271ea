"""What grows with the number of tasks: claim_next, ready, list pages and search at 1,000,000 against 10,000.

A bare apsw select by random ids on the same two stores grows too, since fewer pages stay in the cache; ours may grow at
most 1.3 times as much. One task in ten waits for another and has a better priority than any that is ready; a tag has
ten tasks and a word twenty, whatever the size (see task_rows). A claim is measured twice: durable, which is mostly the
disk's sync, and inside a transaction, which is not. Reads come first, because a commit empties the caches of readers.
Of claims by 64 tasks of an event loop the processor time may grow to 1.4 times and the pages of a commit to 1.1,
whatever a bare select does.

Beside it the creation of 100,000 tasks in bulk, against raw `executemany` of the same rows, the search index included;
and what parents cost: claims and completions of tasks below one, against tasks at the top, in processor time.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import apsw

import holdfast
from holdfast import Transaction, Workspace
from tests.bench.baseline import SETTINGS
from tests.bench.claims import GROUP, agents, by_tasks
from tests.bench.growth import LARGE, SMALL, Samples, typical
from tests.bench.increments import spread
from tests.bench.measure import ROUNDS, Bench, Row, alternate, percentile, rate, ratio
from tests.bench.task_rows import HITS, RARE, RARE_TASKS, WORDS, Plan, make_store, statements

SELECT = "SELECT seq, id, status, priority, version, revision, tags, title FROM tasks WHERE id = ?"
READS = ("bare", "ready", "first page", "middle page", "search")
WRITES = ("claim_next", "claim_next by a rare tag", "claim_next in a transaction")
FEWEST = 1200  # tasks, at any scale: the tag, the words and ten groups of claims need room
CREATED, CALL = 100_000, 1000  # tasks made in bulk, and in each call


def run(bench: Bench) -> list[Row]:
    """Growth over the growth of a bare select, at the median and at the 99th percentile; then bulk creation."""
    stores = [
        Grown(bench.folder / "small", bench.count(SMALL, FEWEST)),
        Grown(bench.folder / "large", bench.count(LARGE, FEWEST)),
    ]
    try:
        bench.say(f"  {stores[0].plan.size:,} and {stores[1].plan.size:,} tasks")
        for store in stores:
            store.warm(bench)
        for phase in (Grown.read_phase, Grown.write_phase, Grown.group_phase):
            for _ in range(ROUNDS):
                for store in stores:
                    phase(store, bench)
        rows = [*compare(bench, stores[0].samples, stores[1].samples), *compare_groups(bench, *stores)]
    finally:
        for store in stores:
            store.close()
    return [*rows, creation(bench), *families(bench)]


def compare(bench: Bench, small: Samples, large: Samples) -> list[Row]:
    """The table's rows."""
    rows = []
    for percent in (50, 99):
        bare = typical(large["bare"], percent) / typical(small["bare"], percent)
        for name in small:
            few, many = typical(small[name], percent), typical(large[name], percent)
            bench.say(f"  {name:27} p{percent}  {few:9.1f} µs -> {many:9.1f} µs, grows {many / few:5.2f}")
            if name != "bare":
                rows.append(
                    Row("task_growth", f"{name} p{percent}, over a bare select's", many / few / bare, at_most=1.3)
                )
    return rows


def compare_groups(bench: Bench, small: Grown, large: Grown) -> list[Row]:
    """What the claims of groups cost, as it is."""
    rows = []
    for what, unit, most in (("processor time of a claim", "µs", 1.4), ("pages of a commit", "pages", 1.1)):
        few, many = (statistics.median(store.groups[what]) for store in (small, large))
        bench.say(f"  {what:27}      {few:9.1f} {unit} -> {many:9.1f} {unit}, 64 claims a commit")
        rows.append(Row("task_growth", f"{what}, 64 claims a commit", many / few, at_most=most))
    return rows


class Grown:
    """A store of so many tasks, and what its operations took."""

    def __init__(self, folder: Path, size: int) -> None:
        self.plan = Plan(size)
        self._chance = random.Random(size)
        make_store(folder, self.plan)
        self.ws: Workspace = holdfast.open(folder, actor="bench")
        self._raw = self.ws._engine.store.connect_reader()
        self.samples: Samples = {name: [] for name in (*READS, *WRITES)}
        self.groups: dict[str, list[float]] = {"processor time of a claim": [], "pages of a commit": []}

    def warm(self, bench: Bench) -> None:
        """Fill the page caches: the raw reader's, ours, and the writer's."""
        for id in self._some_ids(bench.count(30_000)):
            self._bare(id)
        for cursor in self._some_places(bench.count(600)):
            self._middle(cursor)
        self.ws.transact(lambda tx: [tx.tasks.get(id) for id in self._some_ids(bench.count(30_000))])

    def read_phase(self, bench: Bench) -> None:
        """Chunks of each read, in turns."""
        tasks = self.ws.tasks
        self._time("bare", self._bare, self._some_ids(bench.count(4000, 20)))
        self._time("ready", lambda _: tasks.ready(limit=100), range(bench.count(300, 5)))
        self._time("first page", lambda _: tasks.list(status="open", limit=100), range(bench.count(300, 5)))
        self._time("middle page", self._middle, self._some_places(bench.count(300, 5)))
        self._time("search", self._search, self._chance.choices(WORDS, k=bench.count(300, 5)))

    def write_phase(self, bench: Bench) -> None:
        """Claims; those by tag give the ten tasks back, so that they can be claimed again."""
        tasks = self.ws.tasks
        self._time("claim_next", lambda _: self._taken(tasks.claim_next("agent")), range(bench.count(200, 2)))
        taken: list[str] = []
        sample: list[float] = []
        for _ in range(bench.count(20)):
            self._time_into(
                sample, lambda _: taken.append(self._taken(tasks.claim_next("agent", tags=[RARE]))), range(RARE_TASKS)
            )
            self.ws.transact(lambda tx: [tx.tasks.release(id, "agent") for id in taken])
            taken.clear()
        self.samples["claim_next by a rare tag"].append(sample)
        self.ws.transact(lambda tx: self._within(tx, range(bench.count(200, 2))))

    def group_phase(self, bench: Bench) -> None:
        """Claims by 64 tasks of an event loop, after a group that brings back what the other store's turn displaced."""
        groups = bench.count(10)
        by_tasks(self.ws, agents(GROUP))
        pages = self.ws._engine.store.writer.status
        written, start = pages(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0], time.process_time()
        by_tasks(self.ws, agents(groups * GROUP))
        took, written = time.process_time() - start, pages(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0] - written
        self.groups["processor time of a claim"].append(took / groups / GROUP * 1e6)
        self.groups["pages of a commit"].append(written / groups)

    def _within(self, tx: Transaction, times: range) -> None:
        self._time("claim_next in a transaction", lambda _: self._taken(tx.tasks.claim_next("agent")), times)

    @staticmethod
    def _taken(task: holdfast.Task | None) -> str:
        assert task is not None, "no task was left"
        return task.id

    def _bare(self, id: str) -> object:
        return self._raw.execute(SELECT, (id,)).fetchone()

    def _middle(self, cursor: str) -> None:
        assert self.ws.tasks.list(status="open", limit=100, cursor=cursor), "no page lies there"

    def _search(self, word: str) -> None:
        assert len(self.ws.tasks.search(word)) == HITS

    def _some_ids(self, count: int) -> list[str]:
        return [self.plan.id(self._chance.randint(1, self.plan.size)) for _ in range(count)]

    def _some_places(self, count: int) -> list[str]:
        """Cursors somewhere in the list by priority."""
        half = self.plan.size // 2
        return [f"priority.{self._chance.randint(1, 3)}.{self._chance.randint(1, half)}" for _ in range(count)]

    def _time(self, what: str, call: Callable[[Any], object], arguments: Iterable[Any]) -> None:
        sample: list[float] = []
        self._time_into(sample, call, arguments)
        self.samples[what].append(sample)

    @staticmethod
    def _time_into(sample: list[float], call: Callable[[Any], object], arguments: Iterable[Any]) -> None:
        now = time.perf_counter_ns
        for argument in arguments:
            start = now()
            call(argument)
            sample.append((now() - start) / 1000)

    def close(self) -> None:
        """Close both."""
        self._raw.close()
        self.ws.close()


# --- parents ---------------------------------------------------------------------------------------------------------

FAMILIES, CHILDREN = 500, 20  # parents of a store, and the tasks below each


def families(bench: Bench) -> list[Row]:
    """What a claim and a completion of a child cost, over those of a task without a parent."""
    count = bench.count(FAMILIES * CHILDREN, ROUNDS * CHILDREN)
    spent: dict[str, dict[str, list[float]]] = {}
    with Families(bench.folder / "top", count, below=False) as top, Families(bench.folder / "below", count) as below:
        for what in ("claim", "completion"):
            spent[what] = {"top": [], "below": []}
        for _ in range(ROUNDS):
            for name, store in (("top", top), ("below", below)):
                claimed, completed = store.work(count // ROUNDS)
                spent["claim"][name].append(claimed)
                spent["completion"][name].append(completed)
    rows = []
    for what, took in spent.items():
        few, many = (statistics.median(took[name]) for name in ("top", "below"))
        bench.say(f"  {what:27}      {few:9.1f} µs -> {many:9.1f} µs, of a task at the top and of a child")
        most = 1.1 if what == "claim" else 1.6
        figure = ratio(took["below"], took["top"])
        rows.append(Row("task_growth", f"{what} of a child, over one at the top", figure, at_most=most))
    return rows


class Families:
    """A store of tasks that are ready: below parents, or at the top."""

    def __init__(self, folder: Path, count: int, below: bool = True) -> None:
        self._ws = holdfast.open(folder, actor="bench")
        parents = [f"p{number}" for number in range(count // CHILDREN)] if below else []
        tasks = [{"title": name, "priority": 4} for name in parents]
        made = self._ws.tasks.bulk("create", tasks=tasks).results if tasks else []
        for start in range(0, count, CHILDREN):
            place = {"parent_id": made[start // CHILDREN].id} if below else {}
            self._ws.tasks.bulk("create", tasks=[{"title": f"t{start + n}", **place} for n in range(CHILDREN)])

    def __enter__(self) -> Families:
        return self

    def __exit__(self, *_: object) -> None:
        self._ws.close()

    def work(self, count: int) -> tuple[float, float]:
        """Claim so many tasks, then complete them, each in one transaction; microseconds of the processor for one."""
        start = time.process_time()
        ids = self._ws.transact(lambda tx: [task.id for _ in range(count) if (task := tx.tasks.claim_next("agent"))])
        between = time.process_time()
        self._ws.transact(lambda tx: [tx.tasks.complete(id, "agent") and None for id in ids])
        assert len(ids) == count, "no task was left"
        return (between - start) / count * 1e6, (time.process_time() - between) / count * 1e6


# --- creating in bulk ------------------------------------------------------------------------------------------------


def creation(bench: Bench) -> Row:
    """Tasks made a second by `tasks.bulk`, against raw `executemany` of as many rows of the same kind."""
    count = bench.count(CREATED // ROUNDS, 20)
    plan = Plan(max(count * ROUNDS, FEWEST), plain=True)
    with holdfast.open(bench.folder / "ours", actor="bench") as ws:
        holdfast.open(bench.folder / "raw", actor="bench").close()
        raw = Raw(str(bench.folder / "raw" / "holdfast.db"))
        parts = {
            name: [_calls(range(start + 1, start + count + 1)) for start in range(0, count * ROUNDS, count)]
            for name in ("ours", "raw")
        }

        def ours() -> float:
            calls = [specs(plan, numbers) for numbers in parts["ours"].pop(0)]
            return rate(count, lambda: [ws.tasks.bulk("create", tasks=tasks) for tasks in calls])

        def theirs() -> float:
            calls = [raw.rows(plan, numbers) for numbers in parts["raw"].pop(0)]
            return rate(count, lambda: raw.insert_all(calls))

        figures = alternate({"raw": theirs, "ours": ours})
        raw.close()
    for name, values in figures.items():
        bench.say(f"  creation, {name:5} {percentile(values, 50):9,.0f} tasks/s  {spread(values)}")
    return Row("task_growth", "bulk creation / raw executemany", ratio(figures["ours"], figures["raw"]), at_least=0.3)


def _calls(numbers: range) -> list[range]:
    return [numbers[start : start + CALL] for start in range(0, len(numbers), CALL)]


def specs(plan: Plan, numbers: range) -> list[dict[str, Any]]:
    """What `tasks.bulk` is given."""
    tasks = [plan.task(seq) for seq in numbers]
    return [
        {"title": task.title, "body": task.body, "priority": task.priority, "tags": list(task.tags)} for task in tasks
    ]


class Raw:
    """A connection with our settings that writes rows by table."""

    FOUND = "INSERT INTO tasks_fts (rowid, title, body, notes, refs) VALUES (?, ?, ?, '', '')"

    def __init__(self, path: str) -> None:
        self._connection = apsw.Connection(path)
        for pragma, value in SETTINGS.items():
            self._connection.pragma(pragma, value)

    def rows(self, plan: Plan, numbers: range) -> list[tuple[str, list[tuple[Any, ...]]]]:
        """The rows of these tasks, all made before the clock runs."""
        tables = [(sql, list(rows)) for sql, rows in statements(plan, numbers)]
        texts = next(rows for sql, rows in tables if "task_texts" in sql)
        return [*tables, (self.FOUND, texts)]

    def insert_all(self, calls: list[list[tuple[str, list[tuple[Any, ...]]]]]) -> None:
        """A durable commit for each call."""
        for tables in calls:
            self._connection.execute("BEGIN IMMEDIATE")
            for sql, rows in tables:
                self._connection.executemany(sql, rows)
            self._connection.execute("UPDATE meta SET revision = revision + 1, stamp = stamp + 1 WHERE id = 1")
            self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
