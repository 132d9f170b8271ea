"""The same work on Holdfast and on what people would use instead, in one run, in turns, durable before each answer.

    make peers                          all that is at hand, about three minutes
    make peers ARGS="Redis PostgreSQL"  some of it, beside Holdfast
    make peers ARGS="--loop asyncio Redis"

Clients and servers share this machine. Each has its best client form: a connection for each caller or one that all
share, on an event loop or by threads. The figures are medians of rounds taken in turns. `x` says how many times better
Holdfast is in the same form, as the median of the ratios of the rounds: more than 1 is in its favour.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import uvloop

from tests.bench.measure import sync_rate
from tests.peers.ours import ByServer, ByTasks, ByThreads
from tests.peers.peer import CLAIM, COUNT, GET, WATCH, Heard, Peer, rate, rate_of_threads
from tests.peers.servers import Etcd, Nats, Postgres, Redis
from tests.peers.threads import Huey, PostgresThreads, Sqlite

PEERS: tuple[type[Peer], ...] = (
    ByTasks,
    ByThreads,
    ByServer,
    Redis,
    Postgres,
    PostgresThreads,
    Nats,
    Etcd,
    Huey,
    Sqlite,
)
OURS = {"asyncio": ByTasks, "threads": ByThreads}
CALLERS = (1, 32, 64)
LOOPS = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
WORKS = {
    CLAIM: "claim with history, a second",
    COUNT: "one shared counter, increments a second",
    GET: "small get, a second",
    WATCH: "watch, ms from the call to each watcher, median",
}
BARS = {  # of Holdfast over the peer
    (CLAIM, Redis, 32): 1.1,
    (CLAIM, Redis, 64): 1.1,
    (CLAIM, PostgresThreads, 32): 2.0,
}


class Plan(NamedTuple):
    """How much is done."""

    tasks: int = 100_000
    seconds: float = 0.3  # of a measurement
    changes: int = 40  # that each watcher hears of
    rounds: int = 3
    claim_rounds: int = 5
    callers: tuple[int, ...] = CALLERS


Figures = dict[tuple[str, type[Peer], int], list[float]]


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0, whatever the figures."""
    parser = argparse.ArgumentParser(prog="make peers", description=(__doc__ or "").splitlines()[0])
    names = sorted({peer.name for peer in PEERS} - {peer.name for peer in OURS.values()})
    parser.add_argument("names", nargs="*", metavar="peer", help=f"which: {', '.join(names)} (default: all)")
    beside = Path(__file__).resolve().parents[3]
    parser.add_argument("--dir", type=Path, default=beside, help="a folder on the disk to measure")
    parser.add_argument("--loop", choices=LOOPS, default="uvloop", help="the event loop of all clients")
    chosen = parser.parse_args(argv)
    if unknown := set(chosen.names) - set(names):
        parser.error(f"no such peer: {', '.join(sorted(unknown))}")
    wanted = [peer for peer in PEERS if not chosen.names or peer in OURS.values() or peer.name in chosen.names]
    home = Path(tempfile.mkdtemp(prefix="holdfast-peers-", dir=chosen.dir))
    # What servers make elsewhere lies on the same disk.
    try:
        print("\n".join(run(home, wanted, Plan(), chosen.loop)))
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return 0


def run(home: Path, wanted: Iterable[type[Peer]], plan: Plan, loop: str = "uvloop") -> list[str]:
    """The report, in lines."""
    peers, lines = [], [f"{machine(home)}; clients on {loop}"]
    for peer in wanted:
        if missing := peer.missing():
            lines.append(f"missing: {peer.name}, {peer.form} ({', '.join(missing)}): {peer.needs}")
        else:
            peers.append(peer)
    start = time.perf_counter()
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        figures, versions = runner.run(measure(home, peers, plan))
    lines += [f"{peer.name}, {peer.form}: {said}" for peer, said in versions.items()]
    lines.append(f"measured in {time.perf_counter() - start:.0f} s")
    for work in WORKS:
        lines += ["", *table(work, peers, figures, plan.callers)]
    return [*lines, "", *bars(figures)]


def machine(home: Path) -> str:
    """What the figures depend on."""
    return (
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()},"
        f" uvloop {version('uvloop')}, {sync_rate(home, 0.5):,.0f} fdatasyncs a second"
    )


async def measure(home: Path, peers: Sequence[type[Peer]], plan: Plan) -> tuple[Figures, dict[type[Peer], str]]:
    """Start all of them, then measure in turns: a round has each work at each number of callers on each peer."""
    figures: Figures = {}
    async with contextlib.AsyncExitStack() as stack:
        running = []
        for kind in peers:
            folder = home / f"{kind.__name__}"
            folder.mkdir()
            peer = kind(folder, plan.tasks)
            print(f"starting {peer.name}, {peer.form}", file=sys.stderr, flush=True)
            await stack.enter_async_context(peer.running())
            running.append(peer)
        for number in range(plan.claim_rounds):
            print(f"round {number + 1} of {plan.claim_rounds}", file=sys.stderr, flush=True)
            for work in WORKS if number < plan.rounds else (CLAIM,):
                for callers in plan.callers:
                    for peer in running:
                        if peer.can(work):
                            figure = await one(peer, work, callers, plan)
                            figures.setdefault((work, type(peer), callers), []).append(figure)
    return figures, {type(peer): peer.version for peer in running}


async def one(peer: Peer, work: str, callers: int, plan: Plan) -> float:
    """One measurement."""
    gc.collect()
    if work == WATCH:
        heard = Heard(callers, plan.changes)
        await peer.watch(heard)  # type: ignore[attr-defined]
        return statistics.median(heard.milliseconds())
    limit = peer.tasks // (len(plan.callers) * plan.claim_rounds) - callers if work == CLAIM else sys.maxsize
    method = getattr(peer, work)
    if peer.form == "threads":
        return await asyncio.to_thread(rate_of_threads, method, callers, plan.seconds, limit)
    return await rate(method, callers, plan.seconds, limit)


def table(work: str, peers: Sequence[type[Peer]], figures: Figures, counts: Sequence[int] = CALLERS) -> list[str]:
    """The figures of a work as a table in Markdown."""
    heads = [f"{callers} {'watcher' if work == WATCH else 'caller'}{'s' * (callers > 1)}" for callers in counts]
    lines = [
        f"| {WORKS[work]} | form | {' | '.join(heads)}{' | x' * len(counts)} |",
        "|---" * (2 + 2 * len(counts)) + "|",
    ]
    for peer in peers:
        found = [figures.get((work, peer, callers)) for callers in counts]
        if None in found:
            lines.append(f"| {peer.name} | {peer.form} |{' - |' * 2 * len(counts)}")
            continue
        cells = [f"{statistics.median(values):,.{2 if work == WATCH else 0}f}" for values in found if values]
        against = ["" if peer in OURS.values() else _ratio(work, peer, callers, figures) for callers in counts]
        lines.append(f"| {peer.name} | {peer.form} | {' | '.join([*cells, *against])} |")
    return lines


def better(work: str, peer: type[Peer], callers: int, figures: Figures) -> list[float]:
    """How many times better Holdfast is in the same form, by rounds."""
    theirs, ours = figures[work, peer, callers], figures[work, OURS[peer.form], callers]
    pairs = zip(ours, theirs, strict=True)
    return [b / a if work == WATCH else a / b for a, b in pairs]


def _ratio(work: str, peer: type[Peer], callers: int, figures: Figures) -> str:
    return f"{statistics.median(better(work, peer, callers, figures)):.2f}"


def bars(figures: Figures) -> list[str]:
    """The bars, reached or not."""
    lines = []
    for (work, peer, callers), bar in BARS.items():
        if (work, peer, callers) in figures:
            ratios = better(work, peer, callers, figures)
            found = statistics.median(ratios)
            reached = "reached" if found >= bar else "NOT reached"
            spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
            lines.append(
                f"{work}, {callers} callers, {peer.form}, against {peer.name}: {found:.2f} x ({spread}),"
                f" bar {bar}: {reached}"
            )
    return lines


if __name__ == "__main__":
    sys.exit(main())
