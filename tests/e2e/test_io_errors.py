"""I/O errors injected below SQLite, inside groups: the answers are honest and the workspace recovers by itself.

Each test plays one scenario over and over, failing the first call of a kind, then a later one, and so on, until the
scenario makes no more calls than that; the long run fails every call. After each play the store is judged through a
clean reopening: whatever was acknowledged is there, whatever was refused is not (OutcomeUnknown may be either), each
transaction is whole, the revisions have no gap. While the fault lasts only typed errors come out and reads go on; once
it is gone the next write of the same process works.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

import holdfast
from holdfast.errors import HoldfastError, OutcomeUnknown
from tests.amounts import amount
from tests.e2e.faulty_vfs import NAME, Call, Disk, Fault, faulty_disk

RUN = "run"
MOST_CALLS = 60
GROUP = 8
ROUNDS = 2
BALLAST = {"big-1": 900_000, "big-2": 900_000, "big-3": 180_000}  # together just below SQLite's 1000 pages of WAL

Body = Callable[[holdfast.Transaction, str], list[str]]  # answers the cells that it was told are written
Run = Callable[[Callable[[holdfast.Transaction], None]], None]


class Told(NamedTuple):
    """What the caller of a transaction knows: the cells its body wrote, and the error if it was not acknowledged."""

    written: list[str]
    error: HoldfastError | None


Outcomes = dict[str, Told]
Scenario = Callable[[holdfast.Workspace], Outcomes]


# --- what transactions do --------------------------------------------------------------------------------------------


def both(tx: holdfast.Transaction, name: str) -> list[str]:
    """Two cells: there is no half of it."""
    cells = [f"{name}.left", f"{name}.right"]
    for cell in cells:
        tx.cells.set(RUN, cell, name)
    return cells


def swallowing(tx: holdfast.Transaction, name: str) -> list[str]:
    """Goes on whatever happens, as careless code does."""
    written = []
    for cell in [f"{name}.{number}" for number in range(4)]:
        with contextlib.suppress(HoldfastError):
            tx.cells.set(RUN, cell, name)
            written.append(cell)
    return written


def attempt(run: Run, name: str, body: Body) -> Told:
    """One transaction; any error that is not ours goes through and fails the test."""
    written: list[str] = []

    def recording(tx: holdfast.Transaction) -> None:
        written[:] = body(tx, name)

    try:
        run(recording)
    except HoldfastError as error:
        return Told(written, error)
    return Told(written, None)


# --- who does them ---------------------------------------------------------------------------------------------------


def lone_caller(ws: holdfast.Workspace, body: Body = both) -> Outcomes:
    return {name: attempt(ws.transact, name, body) for name in ("a", "b", "c")}


def group_of_threads(ws: holdfast.Workspace, body: Body = both) -> Outcomes:
    start = threading.Barrier(GROUP)

    def work(number: int) -> Outcomes:
        start.wait()
        return {name: attempt(ws.transact, name, body) for name in (f"t{number}r{round}" for round in range(ROUNDS))}

    with ThreadPoolExecutor(GROUP) as pool:
        return {name: told for part in pool.map(work, range(GROUP)) for name, told in part.items()}


def group_of_tasks(ws: holdfast.Workspace) -> Outcomes:
    outcomes: Outcomes = {}

    async def work(number: int) -> None:
        for name in [f"t{number}r{round}" for round in range(ROUNDS)]:
            written = [f"{name}.left", f"{name}.right"]
            try:
                await ws.aio.transact(partial(both, name=name))
                outcomes[name] = Told(written, None)
            except HoldfastError as error:
                outcomes[name] = Told(written, error)

    async def everybody() -> None:
        await asyncio.gather(*(work(number) for number in range(GROUP)))

    asyncio.run(everybody())
    return outcomes


def checkpoint(ws: holdfast.Workspace) -> Outcomes:
    """The WAL is nearly long enough for SQLite to move it into the file: one of these writes makes it so."""
    return lone_caller(ws)


def block(ws: holdfast.Workspace, body: Body = both) -> Outcomes:
    def run(inside: Callable[[holdfast.Transaction], None]) -> None:
        with ws.transaction() as tx:
            inside(tx)

    return {name: attempt(run, name, body) for name in ("a", "b", "c")}


def watched(ws: holdfast.Workspace) -> Outcomes:
    """A watcher makes the process read after each commit."""
    try:
        watch = ws.watch(timeout=0)
    except HoldfastError:
        return lone_caller(ws)
    outcomes = lone_caller(ws)
    try:
        seen = {event.id for event in watch}
    except HoldfastError:
        return outcomes
    assert seen >= {cell for told in outcomes.values() if told.error is None for cell in told.written}
    return outcomes


def swallowing_caller(ws: holdfast.Workspace) -> Outcomes:
    return lone_caller(ws, swallowing)


def swallowing_threads(ws: holdfast.Workspace) -> Outcomes:
    return group_of_threads(ws, swallowing)


def swallowing_block(ws: holdfast.Workspace) -> Outcomes:
    return block(ws, swallowing)


SCENARIOS: tuple[Scenario, ...] = (
    lone_caller,
    group_of_threads,
    group_of_tasks,
    checkpoint,
    block,
    watched,
    swallowing_caller,
    swallowing_threads,
    swallowing_block,
)
FAULTS = (
    Fault("write", 1),
    Fault("write", 1, lasting=True),
    Fault("write", 1, errno.ENOSPC),
    Fault("write", 1, errno.ENOSPC, lasting=True),
    Fault("sync", 1),
    Fault("sync", 1, lasting=True),
    Fault("read", 1),  # SQLite calls this one Corrupt
    Fault("read", 1, errno.ENODEV),  # and this one an I/O error, which ends the whole transaction
    Fault("read", 1, errno.ENODEV, lasting=True),
    Fault("truncate", 1),
)


def name_of(fault: Fault) -> str:
    return f"{fault.call}-{errno.errorcode[fault.errno]}-{'lasting' if fault.lasting else 'once'}"


# --- judging ---------------------------------------------------------------------------------------------------------


def judge(folder: Path, outcomes: Outcomes) -> None:
    """Compare what the callers were told with what a clean reopening finds."""
    with holdfast.open(folder, actor="judge") as ws:
        for name, (written, error) in outcomes.items():
            there = ws.cells.list(RUN, prefix=f"{name}.")
            if error is None:
                assert there == written, f"{name} was acknowledged with {written}, there is {there}"
            elif isinstance(error, OutcomeUnknown):
                assert there in ([], written), f"of {name} a part is there: {there} of {written}"
            else:
                assert not there, f"{there} is there, but its caller was told {error!r}"
        assert ws.check().problems == []


@pytest.fixture
def disk() -> Iterator[Disk]:
    with faulty_disk() as disk:
        yield disk


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store of many pages, so that a fresh connection must read."""
    folder = tmp_path_factory.mktemp("filled") / "store"
    with holdfast.open(folder, actor="writer") as ws:

        def fill(tx: holdfast.Transaction) -> None:
            for number in range(400):
                tx.cells.set(RUN, f"cell-{number:03}", "x" * 100)

        ws.transact(fill)
    return folder


def vfs_for(fault: Fault) -> str | None:
    """Our VFS only where it is needed: an error that SQLite swallows would come out of its Python methods after all."""
    return NAME if fault.call == "sync" else None


def open_for(scenario: Scenario, folder: Path, fault: Fault) -> holdfast.Workspace:
    ws = holdfast.open(folder, actor="writer", vfs=vfs_for(fault))
    assert ws.cells.exists(RUN, "cell-007")  # a process that has read can go on reading
    if scenario is checkpoint:
        for name, size in BALLAST.items():
            ws.cells.set(RUN, name, "x" * size)
    return ws


def play(disk: Disk, folder: Path, scenario: Scenario, fault: Fault, told: Counter[str]) -> bool:
    """Play a scenario with one fault; False if it struck nothing."""
    with open_for(scenario, folder, fault) as ws:
        with disk.failing(fault):
            outcomes = scenario(ws)
            if fault.call in ("write", "sync", "truncate"):
                assert ws.cells.get(RUN, "cell-007").value == "x" * 100
        struck = disk.hits > 0
        outcomes["afterwards"] = attempt(ws.transact, "afterwards", both)
        assert outcomes["afterwards"].error is None, "the fault is gone, but the next write does not work"
        assert ws.cells.exists(RUN, "afterwards.left")
    judge(folder, outcomes)
    told.update(type(error).__name__ if error else "acknowledged" for _, error in outcomes.values())
    return struck


@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_failing_disk_gets_honest_answers_and_is_survived(
    disk: Disk, filled: Path, tmp_path: Path, scenario: Scenario, fault: Fault
) -> None:
    told: Counter[str] = Counter()
    struck = 0
    for number in range(1, MOST_CALLS + 1, 4 if fault.lasting else amount(2, 1)):
        folder = tmp_path / f"store-{number}"
        shutil.copytree(filled, folder)
        if not play(disk, folder, scenario, fault._replace(number=number), told):
            break
        struck += 1
        shutil.rmtree(folder)
    print(f"{scenario.__name__}: {struck} times {name_of(fault)}, {dict(told)}")
    assert struck or (fault.call == "truncate" and scenario is not checkpoint)  # nothing else truncates


def test_opening_on_a_failing_disk_raises_a_typed_error_and_leaves_the_store_whole(
    disk: Disk, filled: Path, tmp_path: Path
) -> None:
    calls: tuple[Call, ...] = ("read", "write", "sync")
    for call in calls:
        for number in range(1, MOST_CALLS + 1):
            folder = tmp_path / f"{call}-{number}"
            shutil.copytree(filled, folder)
            with disk.failing(Fault(call, number)), contextlib.suppress(HoldfastError):
                holdfast.open(folder, actor="writer", vfs=vfs_for(Fault(call, number))).close()
            judge(folder, {})
            if not disk.hits:
                break


READS: dict[str, Callable[[holdfast.Workspace], object]] = {
    "get": lambda ws: ws.cells.get(RUN, "cell-123").value,
    "info": lambda ws: ws.cells.info(RUN, "cell-321").version,
    "history": lambda ws: ws.cells.history(RUN, "cell-200"),
    "list": lambda ws: ws.cells.list(RUN),
    "events": lambda ws: ws.events.list(after=0, limit=1000),
    "revision": lambda ws: ws.revision,
    "watch": lambda ws: list(ws.watch(after=0, timeout=0)),
    "locks": lambda ws: ws.locks.list(),
}


@pytest.mark.parametrize("wrong", [errno.EIO, errno.ENODEV], ids=errno.errorcode.get)
@pytest.mark.parametrize("read", READS)
def test_a_read_that_fails_raises_a_typed_error_and_works_once_the_fault_is_gone(
    disk: Disk, filled: Path, read: str, wrong: int
) -> None:
    with holdfast.open(filled, actor="reader") as ws:
        expected = READS[read](ws)
    struck = failed = 0
    for number in range(1, MOST_CALLS + 1):
        with holdfast.open(filled, actor="reader") as ws:
            with disk.failing(Fault("read", number, wrong)):
                try:
                    assert READS[read](ws) == expected
                except HoldfastError:
                    failed += 1
            assert READS[read](ws) == expected
        if not disk.hits:
            break
        struck += 1
    assert struck
    assert failed
