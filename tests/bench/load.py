"""A server under load, durable: claim-next and cell set at 32 and 128 connections, against one that does nothing.

The baseline (`load_baseline.py`) takes a request the same way and answers as much, without an operation. Both run in
processes of their own, ours as users start it, and take turns; the requests come from a program in C, which tells what
share of a core it needs. At last five minutes of both operations at 80 % of what was measured, at a fixed rate, which
shows whether every call is answered and whether the server grows.

`python -m tests.bench.load ../before` compares the server of another tree, with its own .venv, with the one of this.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import msgspec

import holdfast
from tests.bench.increments import spread
from tests.bench.load_generator import Call, Generator, Outcome, outcome_of
from tests.bench.load_server import Served
from tests.bench.measure import ROUNDS, Bench, Row, alternate, ratio, sync_rate
from tests.http.running import command

FEW, MANY = 32, 128  # connections
SLICE = 5_000  # tasks made in one call
REQUESTS = 10_000  # of a round
WARMING = 2_000  # before the first round
AGENTS = [f"agent-{number:02}" for number in range(64)] * 16
CALLS = {
    "claim-next": [Call("tasks.claim_next", agent) for agent in AGENTS],
    "cell set": [
        Call("cells.set", agent, {"run": "bench", "cell": f"cell-{number:04}", "value": {"step": number}})
        for number, agent in enumerate(AGENTS)
    ],
}
OURS, HOLLOW = "ours", "baseline"
BASELINE = "tests.bench.load_baseline"
# Seconds of the long run, and of it those in which the server may grow: SQLite's page cache, 64 MiB, is full by then if
# there are 1,500 calls a second. A slower machine shows growth that ends a little later.
LONG, FIRST = 300, 60
SHARE = 0.8  # of the throughput, that the long run asks for


class Taken(msgspec.Struct, frozen=True):
    """One round: what the generator found, and what the server took for it."""

    outcome: Outcome
    cost: float  # processor time of the server for each request, in microseconds


def run(bench: Bench) -> list[Row]:
    """Rounds of both operations at both numbers of connections, then the long run."""
    generator = Generator(bench.folder)
    syncs = sync_rate(bench.folder, 0.5 * bench.scale)
    bench.say(f"  {os.cpu_count()} cores; the disk makes {syncs:,.0f} fdatasyncs a second")
    rows, found = rounds(bench, generator)
    # As many of one as of the other take as long as one of each after the other.
    rate = SHARE * len(found) / sum(1 / each for each in found.values())
    rows += long_run(bench, generator, rate)
    return rows


@contextmanager
def ours(folder: Path, tasks: int) -> Iterator[Served]:
    """Our server, on a store with so many tasks that are ready."""
    make_tasks(folder, tasks)
    with Served(command(folder, "--port", "0"), folder) as served:
        yield served


@contextmanager
def hollow(folder: Path) -> Iterator[Served]:
    """The baseline."""
    make_tasks(folder, 1)
    with Served([sys.executable, "-m", BASELINE, str(folder)], folder) as served:
        yield served


def make_tasks(folder: Path, count: int) -> None:
    """Tasks as users make them: through the workspace, with ids of ours, some tags and all priorities."""
    with holdfast.open(folder, actor="bench") as ws:
        for start in range(0, count, SLICE):
            numbers = range(start, min(start + SLICE, count))
            drafts = [{"title": f"task {n}", "priority": n % 5, "tags": [f"area-{n % 8}"]} for n in numbers]
            ws.tasks.bulk("create", tasks=drafts, atomic=True)


# --- as fast as it can -----------------------------------------------------------------------------------------------


def rounds(bench: Bench, generator: Generator) -> tuple[list[Row], dict[str, float]]:
    """The ratios as rows, and our throughput of each operation at 32 connections."""
    count, warming = bench.count(REQUESTS, MANY), bench.count(WARMING, MANY)
    rows: list[Row] = []
    found: dict[str, float] = {}
    share = 0.0
    tasks = warming + 2 * ROUNDS * count
    with hollow(bench.folder / HOLLOW) as theirs, ours(bench.folder / OURS, tasks) as mine:
        servers = {HOLLOW: theirs, OURS: mine}
        for name, calls in CALLS.items():
            for served in servers.values():
                check(generator.run(served, calls, FEW, warming))
            for connections in (FEW, MANY):
                taken = in_turns(generator, servers, calls, connections, count)
                for which, some in taken.items():
                    bench.say(f"  {name:10} {connections:4} connections  {which:8} {described(some)}")
                    share = max(share, *(one.outcome.share for one in some))
                rates = {which: [one.outcome.rate for one in some] for which, some in taken.items()}
                if connections == FEW:
                    found[name] = statistics.median(rates[OURS])
                what, bar = f"{name}, {connections} connections / baseline", 0.45 if connections == FEW else None
                rows.append(Row("load", what, ratio(rates[OURS], rates[HOLLOW]), at_least=bar))
    rows.append(Row("load", "generator, share of a core at most", share, at_most=0.5))
    return rows, found


def in_turns(
    generator: Generator, servers: dict[str, Served], calls: list[Call], connections: int, count: int
) -> dict[str, list[Taken]]:
    """Rounds of one operation, with the baseline and with ours."""
    taken: dict[str, list[Taken]] = {which: [] for which in servers}

    def take(which: str, served: Served) -> float:
        before = served.cpu
        outcome = check(generator.run(served, calls, connections, count))
        taken[which].append(Taken(outcome, (served.cpu - before) / count * 1e6))
        return outcome.rate

    alternate({which: partial(take, which, served) for which, served in servers.items()})
    return taken


def check(outcome: Outcome) -> Outcome:
    """A throughput of errors says nothing."""
    if outcome.errors:
        raise AssertionError(
            f"{outcome.errors} of {outcome.count} calls were not answered as they should be: {outcome}"
        )
    return outcome


def described(taken: list[Taken]) -> str:
    """The medians of the rounds, in words."""
    outcomes = [one.outcome for one in taken]
    rates = [one.rate for one in outcomes]
    p50, p99 = (statistics.median(values) for values in zip(*((one.p50, one.p99) for one in outcomes), strict=True))
    cost, share = statistics.median(one.cost for one in taken), statistics.median(one.share for one in outcomes)
    return (
        f"{statistics.median(rates):7,.0f}/s  {spread(rates):18} p50 {p50:6.2f} ms  p99 {p99:6.2f} ms"
        f"  {cost:4.0f} µs of processor time each; generator {share:.2f} cores"
    )


# --- for a long time -------------------------------------------------------------------------------------------------


def long_run(bench: Bench, generator: Generator, rate: float) -> list[Row]:
    """Both operations by turns, at a fixed rate: whether all are answered, and what the server's memory does."""
    seconds = LONG * bench.scale
    count = max(FEW, round(rate * seconds))
    pairs = zip(*CALLS.values(), strict=True)
    with ours(bench.folder / "long", count // 2 + 1) as served:
        memory = [(0.0, served.memory)]
        start = time.perf_counter()
        process = generator.start(served, [call for pair in pairs for call in pair], FEW, count, rate)
        while not ended(process, seconds / 60):
            memory.append((time.perf_counter() - start, served.memory))
        outcome = outcome_of(process)
    grown = [size for at, size in memory if at >= seconds * FIRST / LONG] or [memory[-1][1]]
    bench.say(
        f"  long run: {outcome.count:,} calls in {outcome.seconds:.1f} s, {rate:,.0f}/s were due, {outcome.rate:,.0f}/s"
        f" answered, {outcome.errors} errors {outcome.status}; from when each was due: p50 {outcome.p50:.2f} ms,"
        f" p99 {outcome.p99:.2f} ms, worst {outcome.worst:.0f} ms; generator {outcome.share:.2f} cores"
    )
    bench.say("  memory, MB: " + " ".join(f"{size / 1e6:.0f}" for _, size in memory[:: max(1, len(memory) // 20)]))
    growth = max(grown) / grown[0]
    return [
        Row("load", "long run, calls answered without error", 1 - outcome.errors / outcome.count, at_least=1.0),
        Row("load", "long run, most memory / after a minute", growth, at_most=1.05, applies=bench.scale >= 1),
    ]


def ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether a process ends within so many seconds."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


# --- two trees -------------------------------------------------------------------------------------------------------

# The other tree makes its own store: -P keeps the current folder, with this tree's library, out of the path.
MAKE = """
import sys, holdfast
with holdfast.open(sys.argv[1], actor="bench") as ws:
    for start in range(0, int(sys.argv[2]), 5000):
        numbers = range(start, start + 5000)
        drafts = [{"title": f"task {n}", "priority": n % 5, "tags": [f"area-{n % 8}"]} for n in numbers]
        ws.tasks.bulk("create", tasks=drafts, atomic=True)
"""


def compare(before: Path, folder: Path, count: int = 6_000) -> None:
    """Print how many requests a second each tree serves, for how much processor time, in alternating rounds."""
    generator = Generator(folder)
    with ExitStack() as stack:
        servers: dict[str, Served] = {}
        for which, tree in (("before", before), ("now", Path(__file__).parents[2])):
            store, python = folder / which, str(tree / ".venv" / "bin" / "python")
            subprocess.run([python, "-P", "-c", MAKE, store, str(2 * ROUNDS * count + WARMING)], check=True)
            started = [python, "-P", "-m", "holdfast", "serve", "--dir", str(store), "--port", "0"]
            servers[which] = stack.enter_context(Served(started, store))
        for name, calls in CALLS.items():
            for served in servers.values():
                check(generator.run(served, calls, FEW, WARMING))
            for connections in (FEW, MANY):
                taken = in_turns(generator, servers, calls, connections, count)
                old, new = ([one.outcome.rate for one in some] for some in taken.values())
                costs = [statistics.median(one.cost for one in some) for some in taken.values()]
                figures = f"{ratio(new, old):.2f} x, processor time {costs[0] / costs[1]:.2f} x"
                print(f"{name}, {connections} connections: {figures}")
                for which, some in taken.items():
                    print(f"  {which:7} {described(some)}", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as place:
        compare(Path(sys.argv[1]).resolve(), Path(place))
