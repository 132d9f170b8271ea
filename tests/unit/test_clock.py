"""The clock waist: the system's clock, the clock of tests, signals, and the workspace's own time."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import holdfast
from holdfast import errors
from holdfast.clock import RESET, Clock, Now, Signal, SystemClock
from holdfast.testing import ManualClock

SECOND = 1_000_000


def test_a_store_opens_also_where_the_clock_is_before_1970(tmp_path: Path) -> None:
    """Its time is that of its last commit, and what goes on from there."""
    with holdfast.open(tmp_path / "store", actor="me") as ws:
        ws.cells.set("run", "cell", 1)
    clock = ManualClock()
    clock.jump(-100 * 365 * 86400)
    assert clock.wall() < 0
    with holdfast.open(tmp_path / "store", actor="me", clock=clock) as ws:
        assert ws.cells.get("run", "cell").value == 1
        ws.cells.set("run", "cell", 2)
        assert ws.check().ok


def test_a_clock_past_what_python_can_count_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise OverflowError("timestamp too large to convert to C _PyTime_t")

    monkeypatch.setattr(time, "time_ns", fail)
    with pytest.raises(errors.ClockSkew, match="past the year 2255"):
        SystemClock().wall()


# --- ManualClock -----------------------------------------------------------------------------------------------------


def test_a_manual_clock_stands_still_until_it_is_advanced() -> None:
    clock = ManualClock()
    wall, monotonic = clock.wall(), clock.monotonic()
    assert (clock.wall(), clock.monotonic()) == (wall, monotonic)
    clock.advance(1.5)
    assert (clock.wall() - wall, clock.monotonic() - monotonic) == (1_500_000, 1_500_000)


def test_a_jump_moves_the_wall_clock_alone_in_both_directions() -> None:
    clock = ManualClock()
    wall, monotonic = clock.wall(), clock.monotonic()
    clock.jump(-60)
    assert (clock.wall(), clock.monotonic()) == (wall - 60 * SECOND, monotonic)
    clock.jump(120)
    assert (clock.wall(), clock.monotonic()) == (wall + 60 * SECOND, monotonic)


def test_a_manual_clock_does_not_run_backwards() -> None:
    with pytest.raises(ValueError, match="backwards"):
        ManualClock().advance(-1)


def test_advance_wakes_whoever_waits_to_look_at_the_clock_again() -> None:
    clock, signal = ManualClock(), Signal()
    deadline = clock.monotonic() + 10 * SECOND
    ended: list[int] = []

    def wait() -> None:
        while clock.wait_until(deadline, signal):  # woken by every move, as the callers expect
            assert clock.monotonic() <= deadline
        ended.append(clock.monotonic())

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    for _ in range(10):
        assert ended == []
        clock.advance(1)
    thread.join(300)
    assert ended == [deadline]


def test_a_set_signal_ends_the_wait_although_time_stands_still() -> None:
    clock, signal = ManualClock(), Signal()
    signal.set()
    assert clock.wait_until(clock.monotonic() + SECOND, signal) is True
    assert clock.wait_until(clock.monotonic(), signal) is False


def test_clocks_on_one_file_show_the_same_time_and_keep_it(tmp_path: Path) -> None:
    first = ManualClock(tmp_path / "clock")
    first.advance(10)
    second = ManualClock(tmp_path / "clock")
    assert (second.wall(), second.monotonic()) == (first.wall(), first.monotonic())
    second.advance(5)
    second.jump(-100)
    assert (second.wall(), second.monotonic()) == (first.wall(), first.monotonic())


def test_advancing_a_clock_on_a_file_wakes_a_waiter_in_another_process(tmp_path: Path) -> None:
    code = (
        "import sys; from holdfast.testing import ManualClock; from holdfast.clock import Signal\n"
        "clock = ManualClock(sys.argv[1]); deadline = clock.monotonic() + 10_000_000\n"
        "print('waiting', flush=True)\n"
        "print(clock.wait_until(deadline, Signal()), clock.monotonic() >= deadline, flush=True)\n"
    )
    clock = ManualClock(tmp_path / "clock")
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "clock")], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        clock.advance(10)
        assert process.stdout.readline() == "False True\n"


# --- Signal and SystemClock ------------------------------------------------------------------------------------------


def test_a_signal_set_twice_wakes_once() -> None:
    signal = Signal()
    signal.set()
    signal.set()
    assert signal.wait(0) is True
    assert signal.wait(0) is False


def test_a_signal_wakes_a_thread_that_waits_already() -> None:
    signal = Signal()
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(signal.wait(30)), daemon=True)
    thread.start()
    signal.set()
    thread.join(300)
    assert answers == [True]


def test_the_system_clock_is_the_machines_in_microseconds() -> None:
    clock = SystemClock()
    before = time.time_ns() // 1000
    wall = clock.wall()
    assert before <= wall <= time.time_ns() // 1000
    ticks = [clock.monotonic() for _ in range(100)]
    assert ticks == sorted(ticks)


def test_waiting_on_the_system_clock_ends_at_the_deadline_and_not_before() -> None:
    clock = SystemClock()
    deadline = clock.monotonic() + 2_000
    assert clock.wait_until(deadline, Signal()) is False
    assert clock.monotonic() >= deadline
    assert clock.max_sleep(deadline) == 0


def test_the_waist_itself_has_no_time() -> None:
    clock = Clock()
    for call in (clock.wall, clock.monotonic):
        with pytest.raises(NotImplementedError):
            call()
    with pytest.raises(NotImplementedError):
        clock.max_sleep(0)


# --- Now -------------------------------------------------------------------------------------------------------------


def test_now_is_the_wall_clock_while_that_is_ahead_of_the_last_commit() -> None:
    clock = ManualClock()
    now = Now(clock)
    committed = clock.wall() - SECOND
    assert now.read(committed) == clock.wall()
    clock.advance(5)
    assert now.read(committed) == clock.wall()
    assert now.ahead(committed) == 0


def test_now_goes_on_from_the_last_commit_at_the_monotonic_pace_after_a_jump_back() -> None:
    clock = ManualClock()
    now = Now(clock)
    committed = clock.wall()
    now.read(committed)
    clock.jump(-3600)
    clock.advance(10)
    assert now.read(committed) == committed + 10 * SECOND
    assert now.ahead(committed) == 3600 * SECOND


def test_a_commit_of_the_future_is_believed_and_counted_on_from_when_it_was_first_seen() -> None:
    clock = ManualClock()
    now = Now(clock)
    clock.advance(100)
    future = clock.wall() + 3600 * SECOND
    assert now.read(future) == future
    clock.advance(7)
    assert now.read(future) == future + 7 * SECOND


def test_a_reader_on_a_newer_commit_is_never_behind_it() -> None:
    clock = ManualClock()
    now = Now(clock)
    future = clock.wall() + 3600 * SECOND
    assert now.read(future) == future


def test_a_reader_on_an_older_snapshot_does_not_turn_back_the_time() -> None:
    clock = ManualClock()
    now = Now(clock)
    future = clock.wall() + 3600 * SECOND
    now.read(future)
    assert now.read(future - SECOND) == future


def test_now_does_not_go_back_when_another_process_commits_an_earlier_time() -> None:
    clock = ManualClock()
    now = Now(clock)
    committed = clock.wall()
    now.read(committed)
    clock.jump(-3600)
    clock.advance(30)
    seen = now.read(committed)
    # A process that saw the last commit only later has counted fewer seconds since, and commits first.
    assert now.read(committed + 10 * SECOND) >= seen


def test_a_reset_is_followed_and_an_older_snapshot_does_not_undo_it() -> None:
    clock = ManualClock()
    now = Now(clock)
    before = clock.wall() + 3600 * SECOND
    now.read(before)
    reset = RESET + clock.wall()
    assert now.read(reset) == clock.wall()
    assert now.read(before) == clock.wall()
    assert now.ahead(reset) == 0


def test_a_signal_that_comes_just_before_the_wait_is_handled_all_the_same() -> None:
    script = """
import _thread, threading
from holdfast.clock import Signal
signal = Signal()
# As if it came when the main thread blocks already: that is noted, and does not end the wait.
threading.Timer(0.3, _thread.interrupt_main).start()
try:
    signal.wait()
except KeyboardInterrupt:
    print("handled")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("handled\n", "")
