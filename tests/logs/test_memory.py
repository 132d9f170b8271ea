"""The contract of a log on `MemoryLog`, and what is its own."""

from __future__ import annotations

import gc

import pytest

from holdfast import errors
from holdfast.clock import Signal
from holdfast.replication.log import MAX_ENTRY, MemoryLog
from holdfast.testing import ManualClock
from holdfast.testing.log_contract import *  # noqa: F403


@pytest.fixture
def log() -> MemoryLog:
    """A fresh log."""
    return MemoryLog()


def test_the_time_of_the_log_is_that_of_the_clock_it_was_given() -> None:
    clock = ManualClock()
    log = MemoryLog(clock=clock)
    assert (log.head(), log.time()) == (0, clock.wall())
    clock.advance(2.5)
    log.append(b"one", 0)
    assert (log.head(), log.time()) == (1, clock.wall())


def test_the_greatest_size_of_an_entry_can_be_chosen() -> None:
    assert MemoryLog().max_entry == MAX_ENTRY == 65536
    log = MemoryLog(max_entry=10)
    assert log.append(b"x" * 10, 0) == 1
    with pytest.raises(ValueError, match="10 bytes"):
        log.append(b"x" * 11, 1)


@pytest.mark.parametrize("size", [0, -1])
def test_a_size_that_nothing_fits_into_is_refused(size: int) -> None:
    with pytest.raises(errors.Invalid, match=f"not {size}"):
        MemoryLog(max_entry=size)


def test_a_waiter_that_nobody_holds_any_more_is_forgotten() -> None:
    log = MemoryLog()
    log.enroll(Signal())
    gc.collect()
    assert len(log._waiters) == 0
    assert log.append(b"one", 0) == 1
