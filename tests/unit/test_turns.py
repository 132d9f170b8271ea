"""Turns between processes: one that does not come in time is Busy, and nothing has happened."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

import holdfast
from holdfast import Workspace, errors
from holdfast.kernel.process_lock import GATE, Turns
from holdfast.testing.crowd import LONG, finish

SOON = 0.05


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Workspace]:
    with holdfast.open(tmp_path, actor="me") as ws:
        yield ws


@pytest.fixture
def elsewhere(ws: Workspace, tmp_path: Path) -> Iterator[Turns]:
    """The turn in other hands, as another process has it."""
    turns = Turns(str(tmp_path))
    assert turns.take(LONG)
    ws._engine.group.busy_timeout = SOON
    yield turns
    turns.close()


def block(ws: Workspace) -> None:
    with ws.transaction() as tx:
        tx.cells.set("run", "cell", 1)


def in_a_task(ws: Workspace) -> None:
    async def main() -> None:
        await ws.aio.cells.set("run", "cell", 1)

    finish(main())


WRITES = {
    "a call": lambda ws: ws.cells.set("run", "cell", 1),
    "a block": block,
    "a task": in_a_task,
}


@pytest.mark.parametrize("write", WRITES)
def test_a_turn_that_does_not_come_in_time_is_busy_and_nothing_has_changed(
    ws: Workspace, elsewhere: Turns, write: str
) -> None:
    with pytest.raises(errors.Busy):
        WRITES[write](ws)
    assert (ws.revision, ws.cells.find("run", "cell")) == (0, None)
    elsewhere.give()
    ws._engine.group.busy_timeout = LONG
    WRITES[write](ws)
    assert ws.cells.get("run", "cell").version == 1


def test_reads_go_on_while_another_process_has_the_turn(ws: Workspace, elsewhere: Turns) -> None:
    assert (ws.cells.find("run", "cell"), ws.revision, ws.check().problems) == (None, 0, [])
    with pytest.raises(errors.Busy):
        ws.cells.set("run", "cell", 1)


def someone_is_at(gate: Path) -> bool:
    with gate.open("r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def test_whoever_waits_for_the_turn_is_next_however_quick_its_holder_comes_again(tmp_path: Path) -> None:
    busy, lone = Turns(str(tmp_path)), Turns(str(tmp_path))
    assert busy.take(LONG)
    taken = threading.Event()
    lone.take_later(taken.set)  # `take` looks first: who is seen at the gate then may be gone again
    while not someone_is_at(tmp_path / GATE):
        os.sched_yield()
    busy.give()
    assert not busy.try_take()
    assert taken.wait(LONG)
    assert not busy.try_take()
    lone.give()
    assert busy.try_take()
    busy.close()
    lone.close()


# --- who is in the way (C4) ------------------------------------------------------------------------------------------


def test_c4_opening_and_upgrading_name_who_has_the_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.kernel.maintenance.BUSY_TIMEOUT", SOON)
    (tmp_path / "new").mkdir()
    holdfast.open(tmp_path / "old", actor="me").close()
    attempts: dict[str, Callable[[], object]] = {
        "new": lambda: holdfast.open(tmp_path / "new", busy_timeout=SOON),
        "old": lambda: holdfast.upgrade(tmp_path / "old"),
    }
    for folder, attempt in attempts.items():
        with closing(Turns(str(tmp_path / folder))) as turns:
            turns.actor = "ann"
            assert turns.take(LONG)
            with pytest.raises(
                errors.Busy, match=rf"process {os.getpid()} \(ann\) has had the write lock since"
            ) as busy:
                attempt()
        told = busy.value.details
        assert (told["pid"], told["actor"], told["stopped"]) == (os.getpid(), "ann", False)
        assert datetime.fromisoformat(told["since"]) <= datetime.now(UTC)
        assert busy.value.hint == f"retry; if it never ends, look at process {os.getpid()}"


TOOL = """
import apsw, signal, sys
connection = apsw.Connection(sys.argv[1])
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
signal.pause()
"""


@contextmanager
def tool(folder: Path) -> Iterator[int]:
    """A database tool in the middle of a transaction, in a process of its own; its pid."""
    process = subprocess.Popen([sys.executable, "-c", TOOL, str(folder / "holdfast.db")], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        yield process.pid
    finally:
        process.kill()
        process.communicate()


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="the system does not tell who has a lock")
def test_c4_a_program_that_locks_the_database_without_the_turn_is_named(ws: Workspace, tmp_path: Path) -> None:
    ws._engine.store.writer.set_busy_timeout(0)
    with tool(tmp_path) as pid:
        with pytest.raises(errors.Busy, match=f"process {pid} has locked the database") as busy:
            ws.cells.set("run", "cell", 1)
        assert (busy.value.details["pid"], busy.value.details["stopped"]) == (pid, False)
        os.kill(pid, signal.SIGSTOP)
        os.waitpid(pid, os.WUNTRACED)
        with pytest.raises(errors.Busy) as busy:
            ws.cells.set("run", "cell", 1)
        assert busy.value.hint is not None
        assert f"kill -CONT {pid}" in busy.value.hint
    assert ws.cells.set("run", "cell", 1) == 1


def test_c4_what_the_turn_took_is_not_waited_for_again(ws: Workspace, tmp_path: Path) -> None:
    """Otherwise a call waits twice as long as it says; here that would be two hours."""
    group = ws._engine.group
    group.busy_timeout = 3600
    ws._engine.store.busy_ms = 3_600_000
    ws._engine.store.writer.set_busy_timeout(3_600_000)
    taken = group.turns.try_take

    def late() -> bool:
        group.turns.waited = 3600.0 if (came := taken()) else 0.0
        return came

    group.turns.try_take = late  # type: ignore[method-assign]
    with tool(tmp_path), pytest.raises(errors.Busy):
        ws.cells.set("run", "cell", 1)
    group.turns.try_take = taken  # type: ignore[method-assign]
    assert ws.cells.set("run", "cell", 1) == 1
    assert ws._engine.store.writer.pragma("busy_timeout") == 3_600_000
