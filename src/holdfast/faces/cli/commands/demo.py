"""`holdfast demo` and `holdfast bench`: watch a fleet of agents, measure this machine."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, Final

from holdfast.clock import SystemClock
from holdfast.faces.cli.args import Argument
from holdfast.faces.cli.call import Session
from holdfast.faces.cli.command import command


@command(
    "demo",
    Argument("agents", "int", help="number of agents, at least 3"),
    Argument("items", "int", help="number of pieces of work"),
    Argument("seed", "int", help="for the order and length of the work"),
)
def demo(session: Session, given: dict[str, Any]) -> int:
    """Watch a fleet of agents share a workspace.

    Returns 0 if every item was done exactly once.
    """
    main = import_module("holdfast.demo.__main__").main
    chosen = given | ({"dir": session.given["dir"]} if session.given.get("dir") else {})
    return int(main([word for name, value in chosen.items() for word in (f"--{name}", str(value))]))


_THREADS: Final = 16


@command("bench", Argument("count", "int", help="number of claims and syncs (500)"))
def bench(session: Session, given: dict[str, Any]) -> int:
    """Measure how fast agents can work on this machine's disk.

    It measures durable claims by one and by many threads, and the disk's rate of syncs.
    """
    import tempfile
    from concurrent.futures import ThreadPoolExecutor

    from holdfast.workspace import open_workspace

    count = given.get("count", 500)
    with tempfile.TemporaryDirectory(dir=session.folder, prefix=".holdfast-bench-") as folder:
        syncs = count / _timed(lambda: _sync(os.path.join(folder, "file"), count))
        with open_workspace(os.path.join(folder, "store"), actor="bench") as workspace:
            many = count * _THREADS
            for _ in range(0, count + many, 1000):
                workspace.tasks.bulk("create", tasks=[{"title": f"task {n}"} for n in range(1000)])
            one = count / _timed(lambda: [workspace.tasks.claim_next("agent") for _ in range(count)])
            with ThreadPoolExecutor(_THREADS) as pool:
                agents = [f"agent-{n % _THREADS}" for n in range(many)]
                crowd = many / _timed(lambda: list(pool.map(workspace.tasks.claim_next, agents)))
    result = {"syncs": round(syncs), "claims": round(one), "claims_by_16": round(crowd), "cores": os.cpu_count()}
    session.out.say(
        result,
        f"disk syncs            {syncs:>8,.0f}/s",
        f"claims by one         {one:>8,.0f}/s",
        f"claims by {_THREADS} threads  {crowd:>8,.0f}/s",
    )
    return 0


def _sync(path: str, count: int) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        for n in range(count):
            os.pwrite(descriptor, b"x" * 4096, 4096 * n)
            os.fdatasync(descriptor) if hasattr(os, "fdatasync") else os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _timed(work: Any) -> float:
    clock = SystemClock()
    begun = clock.monotonic()
    work()
    return (clock.monotonic() - begun) / 1e6
