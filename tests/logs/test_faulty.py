"""Each fault of `FaultyLog` does what it says, once it is asked for and not before."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast import errors
from holdfast.clock import Signal
from holdfast.kernel.journal import LogMoved
from holdfast.replication.log import LostAnswer, MemoryLog, Trimmed
from holdfast.testing import FaultyLog
from holdfast.testing.log_contract import *  # noqa: F403
from tests.logs.nodes import Wire, raw_entries


@pytest.fixture
def real() -> MemoryLog:
    """The log itself."""
    return MemoryLog()


@pytest.fixture
def log(real: MemoryLog) -> Wire:
    """The line to it, which keeps the whole contract while nothing is wrong."""
    return Wire(real)


def test_a_cut_line_is_unreachable_for_every_method_and_changes_nothing(log: Wire, real: MemoryLog) -> None:
    ref = log.put(b"blob")
    log.append(b"one", 0)
    log.cut()
    calls: tuple[Callable[[], object], ...] = (
        log.head,
        log.time,
        lambda: log.append(b"two", 1),
        lambda: log.tail(0),
        lambda: log.put(b"another"),
        lambda: log.get(ref),
        lambda: log.trim(1),
    )
    for call in calls:
        with pytest.raises(errors.Unreachable):
            call()
    assert raw_entries(real) == [(1, b"one")]
    log.heal()
    assert (log.head(), log.append(b"two", 1), log.get(ref)) == (1, 2, b"blob")


def test_a_conflict_is_refused_although_nobody_was_first(log: Wire, real: MemoryLog) -> None:
    log.once("append", "conflict")
    with pytest.raises(LogMoved):
        log.append(b"one", 0)
    assert raw_entries(real) == []
    assert log.append(b"one", 0) == 1


def test_a_lost_request_never_arrives(log: Wire, real: MemoryLog) -> None:
    log.once("append", "request lost")
    with pytest.raises(LostAnswer):
        log.append(b"one", 0)
    log.deliver()
    assert raw_entries(real) == []


def test_a_lost_answer_is_of_an_append_that_arrived_if_it_was_first(log: Wire, real: MemoryLog) -> None:
    log.once("append", "answer lost", "answer lost")
    for entry in (b"one", b"too late"):
        with pytest.raises(LostAnswer):
            log.append(entry, 0)
    assert raw_entries(real) == [(1, b"one")]


def test_a_late_append_arrives_when_it_is_delivered_unless_others_have_moved_on(log: Wire, real: MemoryLog) -> None:
    log.once("append", "late", "late")
    for entry in (b"one", b"other"):
        with pytest.raises(LostAnswer):
            log.append(entry, 0)
    assert raw_entries(real) == []
    log.deliver()
    assert raw_entries(real) == [(1, b"one")]
    log.once("append", "late")
    with pytest.raises(LostAnswer):
        log.append(b"two", 1)
    real.append(b"of others", 1)
    log.deliver()
    log.deliver()
    assert raw_entries(real) == [(1, b"one"), (2, b"of others")]


def test_an_append_that_arrives_twice_is_there_once_and_answered_with_the_refusal(log: Wire, real: MemoryLog) -> None:
    log.once("append", "twice")
    with pytest.raises(LogMoved):
        log.append(b"one", 0)
    assert raw_entries(real) == [(1, b"one")]


def test_a_lagging_tail_shows_less_than_there_is_and_never_a_gap(log: Wire) -> None:
    for number in range(5):
        log.append(b"%d" % number, number)
    log.once("tail", "lagging", "lagging")
    assert list(log.tail(0)) == [(1, b"0"), (2, b"1")]
    assert list(log.tail(4)) == []
    assert list(log.tail(4)) == [(5, b"4")]


def test_a_repeated_tail_shows_again_what_was_shown_before(log: Wire) -> None:
    log.always("tail", "repeated")
    for number in range(3):
        log.append(b"%d" % number, number)
    assert list(log.tail(0)) == [(1, b"0"), (2, b"1"), (3, b"2")]
    assert list(log.tail(3)) == [(3, b"2")]
    log.append(b"3", 3)
    assert list(log.tail(3)) == [(3, b"2"), (4, b"3")]


def test_faults_of_the_tail_hide_no_trimmed_log(log: Wire) -> None:
    log.append(b"one", 0)
    log.append(b"two", 1)
    log.trim(1)
    log.once("tail", "lagging", "repeated")
    for _ in range(2):
        with pytest.raises(Trimmed):
            log.tail(0)


def test_waiters_are_woken_also_over_a_cut_line(log: Wire, real: MemoryLog) -> None:
    signal = Signal()
    log.enroll(signal)
    log.cut()
    real.append(b"one", 0)
    assert signal.wait(0)
    log.dismiss(signal)
    real.append(b"two", 1)
    assert not signal.wait(0)


def test_a_fault_that_does_not_exist_is_refused() -> None:
    line = FaultyLog(MemoryLog(), lambda _: "unreachabel")  # type: ignore[arg-type,return-value]
    with pytest.raises(ValueError, match=r"unreachabel.*unreachable"):
        line.head()
