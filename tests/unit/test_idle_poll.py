"""A process with many open workspaces has no more threads for them, and none holds up another."""

from __future__ import annotations

import threading
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import holdfast
from holdfast.kernel import pulse as pulses
from holdfast.kernel.engine import Engine
from holdfast.kernel.process_lock import Turns
from holdfast.kernel.pulse import IDLE_POLL, IDLE_SHARE, TICKER, WATCHED_POLL, Ticker
from holdfast.kernel.store import BEFORE_PURGE
from holdfast.testing import ManualClock
from holdfast.testing.crowd import LONG
from holdfast.workspace import open_briefly
from holdfast.workspace.context import Context
from tests.logs.nodes import eventually

MANY = round(IDLE_POLL / IDLE_SHARE) + 10


def test_idle_workspaces_share_what_a_process_polls_and_a_watched_one_does_not_wait() -> None:
    with ExitStack() as opened:
        ws = opened.enter_context(holdfast.open(":memory:", actor="ann"))
        pulse = ws._engine.pulse
        assert len(TICKER) < MANY
        assert pulse.patience() == IDLE_POLL
        for _ in range(MANY - len(TICKER)):
            opened.enter_context(holdfast.open(":memory:", actor="ann"))
        assert pulse.patience() == IDLE_SHARE * len(TICKER) > IDLE_POLL
        eventually(lambda: TICKER._threads <= 2)
        with ws.watch():
            assert pulse.patience() == WATCHED_POLL
    assert pulse not in TICKER


def test_workspaces_that_cannot_be_written_hold_up_no_other(tmp_path: Path) -> None:
    """Three wait for a turn that another process does not give; what expires in a fourth is still noticed."""
    clock = ManualClock()
    with ExitStack() as opened:
        names = ("a", "b", "c", "free")
        spaces = [opened.enter_context(holdfast.open(tmp_path / name, actor="ann", clock=clock)) for name in names]
        watch = opened.enter_context(spaces[-1].watch(["lock"], timeout=3600))
        for ws in spaces:
            ws.locks.acquire("door", ttl=30)
        for name in names[:-1]:
            turns = opened.enter_context(closing(Turns(str(tmp_path / name))))
            assert turns.take(LONG)
            opened.callback(turns.give)
        clock.advance(60)
        eventually(lambda: all(ws._engine.pulse.working for ws in spaces[:-1]))
        assert any(event.op == "expire" for event in watch)


def test_a_workspace_without_a_pulse_is_left_alone_by_those_of_others(tmp_path: Path) -> None:
    clock = ManualClock()
    still = holdfast.Workspace(Engine(tmp_path / "still", clock=clock, pulse=False), Context("ann"))
    with still, holdfast.open(tmp_path / "beating", actor="ann", clock=clock) as beating:
        for ws in (still, beating):
            ws.leases.create(ttl=1)
        clock.advance(2)
        TICKER.wake(still._engine.pulse)  # as a commit of its own does, whose deadline is the next
        beating._engine.pulse.set()
        eventually(lambda: beating.events.list()[-1].op == "expire")
        assert still._engine.read(lambda snapshot: snapshot.all("SELECT op FROM events")) == [("create",)]


def test_a_workspace_that_is_open_for_one_call_starts_no_thread_before_somebody_watches(tmp_path: Path) -> None:
    alone = threading.active_count()
    with open_briefly(str(tmp_path / "brief"), "ann") as brief:
        task = brief.tasks.create("one")
        brief.tasks.claim(task.id, ttl=30)
        assert threading.active_count() == alone
        assert brief._engine.pulse not in TICKER
        with brief.watch(["task"], timeout=LONG) as watch, holdfast.open(tmp_path / "brief", actor="bob") as other:
            assert brief._engine.pulse in TICKER
            other.tasks.create("two")
            assert next(watch).op == "create"
    assert brief._engine.pulse not in TICKER


def test_a_call_that_commits_deletes_old_backups_although_nothing_beats(tmp_path: Path) -> None:
    old = tmp_path / f"{BEFORE_PURGE}1.backup"
    with open_briefly(str(tmp_path), "ann") as brief:
        old.write_bytes(b"")
        brief.tasks.list()
    assert old.exists(), "a call that reads deletes nothing"
    with open_briefly(str(tmp_path), "ann") as brief:
        brief.tasks.claim(brief.tasks.create("one").id)
    assert not old.exists()


class Beat:
    """What the ticker needs of a pulse."""

    def __init__(self) -> None:
        self.due: int | None = None
        self.working = self.again = False
        self.looks = 0
        self.busy = True  # has work
        self.began, self.go = threading.Event(), threading.Event()

    def patience(self) -> float:
        return LONG

    def look(self) -> bool:
        self.looks += 1
        return self.busy

    def work(self) -> None:
        self.busy = False
        self.began.set()
        assert self.go.wait(LONG)


def test_a_call_during_work_is_looked_at_afterwards_and_the_threads_end_with_the_last_pulse() -> None:
    ticker, beat = Ticker(), Beat()
    ticker.add(beat)  # type: ignore[arg-type]
    ticker.wake(beat)  # type: ignore[arg-type]
    assert beat.began.wait(LONG)
    ticker.wake(beat)  # type: ignore[arg-type]
    eventually(lambda: beat.again)
    assert beat.looks == 1, "one thread at a time"
    beat.go.set()
    eventually(lambda: beat.looks == 2)
    ticker.discard(beat)  # type: ignore[arg-type]
    eventually(lambda: ticker._threads == 0)
    ticker.add(beat)  # type: ignore[arg-type]
    ticker.wake(beat)  # type: ignore[arg-type]
    eventually(lambda: beat.looks == 3)
    ticker.discard(beat)  # type: ignore[arg-type]
    eventually(lambda: ticker._threads == 0)


def test_work_for_which_there_is_no_thread_waits_for_one_and_looking_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulses, "MAX_THREADS", 2)
    ticker, beats = Ticker(), [Beat() for _ in range(3)]
    for beat in beats:
        ticker.add(beat)  # type: ignore[arg-type]
    beats[2].busy = False
    ticker.wake(beats[0])  # type: ignore[arg-type]
    assert beats[0].began.wait(LONG)
    ticker.wake(beats[1])  # type: ignore[arg-type]
    ticker.wake(beats[2])  # type: ignore[arg-type]
    eventually(lambda: beats[2].looks == 1)
    assert not beats[1].began.is_set()
    beats[0].go.set()
    assert beats[1].began.wait(LONG), "the thread that is free goes on with what waits"
    beats[1].go.set()
    for beat in beats:
        ticker.discard(beat)  # type: ignore[arg-type]
    eventually(lambda: ticker._threads == 0)
