"""Several real processes, each with several threads, on one folder and the machine's clock: totals are exact.

Each thread does three kinds of work on shared state: increments, read-modify-write under a lock whose token fences
the write, and `txn` with a condition that it retries until it wins.
"""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.queues import Queue
from pathlib import Path

import holdfast
from holdfast import Op, VersionEquals

PROCESSES = 4
THREADS = 4
INCREMENTS = 25
LOCKED = 10
TXNS = 10
WORKERS = PROCESSES * THREADS
PATIENCE = 180.0  # for a lock; far more than a turn of everybody takes


def increment(ws: holdfast.Workspace) -> None:
    for _ in range(INCREMENTS):
        ws.cells.increment("sums", "incremented")


def add_under_lock(ws: holdfast.Workspace, worker: str) -> list[int]:
    """Read outside any transaction, write fenced: only the lock keeps an update from being lost."""
    tokens = []
    for _ in range(LOCKED):
        grant = ws.locks.acquire("sum", worker, wait=PATIENCE)
        value = ws.cells.get("sums", "locked").value
        ws.using(actor=worker, fence=("sum", grant.token)).cells.set("sums", "locked", value + 1)
        assert ws.locks.release("sum", worker, token=grant.token)
        tokens.append(grant.token)
    return tokens


def add_by_txn(ws: holdfast.Workspace, worker: str) -> None:
    """Count in two cells at once if nobody else did meanwhile; otherwise try again."""
    done = 0
    while done < TXNS:
        seen = ws.cells.get("sums", "conditional")
        answer = ws.txn(
            [VersionEquals("cell", ("sums", "conditional"), seen.version)],
            [
                Op("cells.set", {"run": "sums", "cell": "conditional", "value": seen.value + 1}),
                Op("cells.increment", {"run": "shares", "cell": worker}),
            ],
        )
        done += answer.succeeded


def work(ws: holdfast.Workspace, worker: str, start: threading.Barrier) -> list[int]:
    """Everything one thread does; answers the tokens it was granted."""
    start.wait()
    increment(ws)
    add_by_txn(ws, worker)
    return add_under_lock(ws, worker)


def process(folder: str, number: int, ready: threading.Barrier, answers: Queue[list[int]]) -> None:
    """One process: its threads share a workspace, and begin when every process is ready."""
    start = threading.Barrier(THREADS)
    with holdfast.open(folder, actor=f"process-{number}") as ws, ThreadPoolExecutor(THREADS) as pool:
        ready.wait()
        names = [f"worker-{number}-{thread}" for thread in range(THREADS)]
        granted = pool.map(lambda name: work(ws, name, start), names)
        answers.put([token for tokens in granted for token in tokens])


def run_all(folder: Path) -> list[int]:
    """Let them all work, and answer every token that was granted."""
    context = multiprocessing.get_context("spawn")
    ready, answers = context.Barrier(PROCESSES), context.Queue()
    processes = [
        context.Process(target=process, args=(str(folder), number, ready, answers)) for number in range(PROCESSES)
    ]
    for one in processes:
        one.start()
    tokens = [token for _ in processes for token in answers.get(timeout=300)]
    for one in processes:
        one.join()
        assert one.exitcode == 0
    return tokens


def test_four_processes_with_four_threads_each_lose_no_update(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with holdfast.open(folder, actor="judge") as ws:
        ws.cells.set("sums", "locked", 0)
        ws.cells.set("sums", "conditional", 0)
        tokens = run_all(folder)

        assert ws.cells.get("sums", "incremented").value == WORKERS * INCREMENTS
        assert ws.cells.get("sums", "incremented").version == WORKERS * INCREMENTS
        assert ws.cells.get("sums", "locked").value == WORKERS * LOCKED
        assert ws.cells.get("sums", "conditional").value == WORKERS * TXNS
        shares = [ws.cells.get("shares", name).value for name in ws.cells.list("shares")]
        assert shares == [TXNS] * WORKERS

        assert len(set(tokens)) == WORKERS * LOCKED
        grants = [event for event in every_event(ws) if event.kind == "lock" and event.op == "acquire"]
        assert [event.data["token"][1] for event in grants] == sorted(tokens)
        assert ws.locks.list() == []
        assert ws.check().problems == []


def every_event(ws: holdfast.Workspace) -> list[holdfast.Event]:
    """The whole log, of which every revision must be there."""
    events: list[holdfast.Event] = []
    while page := ws.events.list(after=events[-1].cursor if events else 0, limit=1000):
        events += page
    assert sorted({event.revision for event in events}) == list(range(1, ws.revision + 1))
    return events


FOLDERS = 25


def open_each(folders: list[str], number: int, together: threading.Barrier, answers: Queue[list[str]]) -> None:
    """Open one new folder after the other at the same moment as everybody else; answers what went wrong."""
    problems = []
    for folder in folders:
        together.wait()
        try:
            with holdfast.open(folder, actor=f"process-{number}") as ws:
                ws.cells.increment("openings", "count")
        except holdfast.HoldfastError as error:
            problems.append(repr(error))
    answers.put(problems)


def test_processes_that_make_the_same_workspace_at_the_same_moment_all_get_in(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    together, answers = context.Barrier(PROCESSES), context.Queue()
    folders = [str(tmp_path / f"store-{number}") for number in range(FOLDERS)]
    processes = [
        context.Process(target=open_each, args=(folders, number, together, answers)) for number in range(PROCESSES)
    ]
    for one in processes:
        one.start()
    problems = [problem for _ in processes for problem in answers.get(timeout=300)]
    for one in processes:
        one.join()
    assert problems == []
    for folder in folders:
        with holdfast.open(folder, actor="judge") as ws:
            assert ws.cells.get("openings", "count").value == PROCESSES
            assert ws.check().problems == []
