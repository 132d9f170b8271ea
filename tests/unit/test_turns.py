"""Turns between processes: one that does not come in time is Busy, and nothing has happened."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
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
