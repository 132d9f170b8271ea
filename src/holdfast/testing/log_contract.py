"""The contract of `CommitLog` as pytest tests, for whoever writes an adapter.

Give a fixture `log` that is a fresh, empty log, and take the tests over with
`from holdfast.testing.log_contract import *`. Where a client of the log is an object of its own, as it is over a
network, give a fixture `peer` too: another client of the same log. The tests use nothing but what `replication.log`
promises: positions are opaque and increasing, the tail may lag behind the head but not for ever, a wake-up is a hint.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from holdfast.clock import Signal
from holdfast.kernel.journal import LogMoved
from holdfast.replication.log import START, CommitLog, Trimmed
from holdfast.testing.crowd import LONG, together

MANY = 3000
THREADS = 8
_DAY = 24 * 60 * 60 * 1_000_000
_LOOK_AGAIN = 0.01


@pytest.fixture
def peer(log: CommitLog) -> CommitLog:
    """Another client of the same log."""
    return log


def fill(log: CommitLog, count: int, prefix: str = "entry") -> list[tuple[int, bytes]]:
    """Append so many entries and answer them with their positions."""
    position, filled = log.head(), list[tuple[int, bytes]]()
    for number in range(count):
        entry = f"{prefix} {number}".encode()
        position = log.append(entry, position)
        filled.append((position, entry))
    return filled


def read(log: CommitLog, after: int, end: int | None = None) -> list[tuple[int, bytes]]:
    """Every entry after a position up to the end of the log, waiting for a tail that lags; a hang is a failure."""
    end = log.head() if end is None else end
    found: list[tuple[int, bytes]] = []
    signal = Signal()
    patience = int(LONG / _LOOK_AGAIN)
    while after < end and patience:
        page = log.tail(after)
        found += page
        if page:
            after = page[-1][0]
        else:
            patience -= 1
            signal.wait(_LOOK_AGAIN)
    assert after >= end, f"the tail ends at {after}, the log at {end}"
    return found


def trimmed_at(log: CommitLog, after: int) -> int:
    """Where a log says that it starts now, asked for what is gone."""
    with pytest.raises(Trimmed) as caught:
        log.tail(after)
    return caught.value.oldest


# --- appending -------------------------------------------------------------------------------------------------------


def test_an_empty_log_ends_at_the_start_and_has_no_tail(log: CommitLog) -> None:
    assert log.head() == START == 0
    assert list(log.tail(START)) == []


def test_append_answers_positions_that_grow_and_the_head_is_the_last_of_them(log: CommitLog) -> None:
    before = START
    for number in range(20):
        position = log.append(b"%d" % number, before)
        assert position > before
        assert log.head() == position
        before = position


def test_an_entry_comes_back_byte_for_byte(log: CommitLog) -> None:
    entry = bytes(range(256)) * 3
    position = log.append(entry, START)
    assert read(log, START) == [(position, entry)]


def test_an_append_that_expects_another_end_is_moved_and_appends_nothing(log: CommitLog) -> None:
    with pytest.raises(LogMoved):
        log.append(b"of a future that never was", START + 1000)
    filled = fill(log, 3)
    (old, _), (end, _) = filled[1:]
    for wrong in (START, old, end + 1, end + 1000):
        with pytest.raises(LogMoved):
            log.append(b"never", wrong)
        assert log.head() == end
    assert read(log, START) == filled
    assert log.append(b"next", end) > end


def test_an_entry_of_the_greatest_size_is_taken_and_a_larger_one_is_refused(log: CommitLog) -> None:
    largest = b"x" * log.max_entry
    position = log.append(largest, START)
    with pytest.raises(ValueError, match=str(log.max_entry)):
        log.append(largest + b"x", position)
    assert log.head() == position
    assert read(log, START) == [(position, largest)]


def test_of_threads_that_append_at_the_same_end_exactly_one_wins(log: CommitLog) -> None:
    won: list[tuple[int, bytes]] = []
    for number in range(20):
        end = log.head()

        def attempt(entry: bytes, end: int = end) -> Callable[[], tuple[int, bytes] | None]:
            def run() -> tuple[int, bytes] | None:
                try:
                    return log.append(entry, end), entry
                except LogMoved:
                    return None

            return run

        answers = together(*(attempt(b"%d of %d" % (thread, number)) for thread in range(THREADS)))
        winners = [answer for answer in answers if answer is not None]
        assert len(winners) == 1
        won += winners
    assert read(log, START) == won


def test_of_threads_that_race_every_success_is_one_entry_and_every_refusal_is_none(log: CommitLog) -> None:
    def racer(thread: int) -> Callable[[], list[tuple[int, bytes]]]:
        def run() -> list[tuple[int, bytes]]:
            won = []
            for number in range(50):
                entry = b"%d of thread %d" % (number, thread)
                try:
                    won.append((log.append(entry, log.head()), entry))
                except LogMoved:
                    continue
            return won

        return run

    won = [pair for pairs in together(*(racer(thread) for thread in range(THREADS))) for pair in pairs]
    found = read(log, START)
    assert found == sorted(won)
    assert len({position for position, _ in found}) == len({entry for _, entry in found}) == len(won) > 0


# --- reading ---------------------------------------------------------------------------------------------------------


def test_pages_of_the_tail_together_are_the_whole_log_in_order_and_without_gap(log: CommitLog) -> None:
    filled = fill(log, MANY)
    assert read(log, START) == filled
    for start in (0, 1, 998, 999, 1000, 1001, MANY - 2):
        assert read(log, filled[start][0]) == filled[start + 1 :]


def test_the_tail_after_the_end_is_empty_until_something_is_appended(log: CommitLog) -> None:
    (end, _) = fill(log, 3)[-1]
    assert list(log.tail(end)) == []
    position = log.append(b"next", end)
    assert read(log, end) == [(position, b"next")]


def test_the_tail_can_be_read_again(log: CommitLog) -> None:
    filled = fill(log, 5)
    assert read(log, START) == read(log, START) == filled


def test_the_time_of_the_log_is_that_of_a_clock_in_microseconds_and_does_not_go_back(log: CommitLog) -> None:
    before = log.time()
    assert abs(before - time.time_ns() // 1000) < _DAY
    for number in range(20):
        log.append(b"%d" % number, log.head())
        now = log.time()
        assert now >= before
        before = now


# --- blobs -----------------------------------------------------------------------------------------------------------


def test_a_blob_comes_back_byte_for_byte_however_large(log: CommitLog) -> None:
    blobs = [b"", b"\0", bytes(range(256)), bytes(range(256)) * 20_000]
    refs = [log.put(blob) for blob in blobs]
    assert [log.get(ref) for ref in refs] == blobs


def test_a_blob_appends_nothing_and_is_there_for_every_thread(log: CommitLog) -> None:
    (end, _) = fill(log, 1)[-1]
    refs = together(*(lambda number=number: log.put(b"%d" % number) for number in range(THREADS)))
    assert log.head() == end
    assert [log.get(ref) for ref in refs] == [b"%d" % number for number in range(THREADS)]


# --- trimming --------------------------------------------------------------------------------------------------------


def test_entries_up_to_the_trimmed_position_are_gone_and_those_after_it_are_not(log: CommitLog) -> None:
    filled = fill(log, 10)
    before = filled[5][0]
    log.trim(before)
    for gone in (START, filled[0][0], filled[4][0]):
        assert trimmed_at(log, gone) == before
    assert read(log, before) == filled[6:]
    assert read(log, filled[7][0]) == filled[8:]


def test_blobs_put_before_the_trimmed_position_are_gone_and_those_put_at_it_or_after_are_not(log: CommitLog) -> None:
    first = log.put(b"before everything")
    (one, _) = fill(log, 1)[-1]
    early = log.put(b"at one")
    (two, _) = fill(log, 1)[-1]
    at = log.put(b"at two")
    fill(log, 1)
    late = log.put(b"at three")
    log.trim(one)
    with pytest.raises(KeyError):
        log.get(first)
    assert [log.get(ref) for ref in (early, at, late)] == [b"at one", b"at two", b"at three"]
    log.trim(two)
    with pytest.raises(KeyError):
        log.get(early)
    assert [log.get(ref) for ref in (at, late)] == [b"at two", b"at three"]


def test_trimming_again_or_further_back_changes_nothing(log: CommitLog) -> None:
    filled = fill(log, 10)
    before = filled[5][0]
    log.trim(before)
    kept = log.put(b"kept")
    for position in (before, filled[2][0], START):
        log.trim(position)
        assert trimmed_at(log, START) == before
        assert read(log, before) == filled[6:]
    assert log.get(kept) == b"kept"


def test_trimming_to_the_start_of_an_empty_log_changes_nothing(log: CommitLog) -> None:
    log.trim(START)
    filled = fill(log, 2)
    log.trim(START)
    assert read(log, START) == filled


def test_a_log_trimmed_to_its_end_keeps_its_head_and_goes_on_above_it(log: CommitLog) -> None:
    (end, _) = fill(log, 5)[-1]
    log.trim(end)
    assert log.head() == end
    assert list(log.tail(end)) == []
    with pytest.raises(LogMoved):
        log.append(b"as if it were new", START)
    filled = fill(log, 2)
    assert filled[0][0] > end
    assert trimmed_at(log, START) == end
    assert read(log, end) == filled


def test_a_log_trimmed_beyond_its_end_forgets_nothing_that_is_appended_later(log: CommitLog) -> None:
    (end, _) = fill(log, 5)[-1]
    log.trim(end + 1000)
    assert log.head() == end
    filled = fill(log, 2)
    assert filled[0][0] > end
    assert read(log, end) == filled


def test_entries_appended_while_the_log_is_trimmed_stay(log: CommitLog) -> None:
    filled = fill(log, 200, "old")
    end = filled[-1][0]

    def trim() -> list[tuple[int, bytes]]:
        for position, _ in filled:
            log.trim(position)
        return []

    trimmed, appended = together(trim, lambda: fill(log, 200, "new"))
    assert trimmed == []
    assert read(log, end) == appended
    assert trimmed_at(log, START) == end


# --- waking ----------------------------------------------------------------------------------------------------------


def woken(log: CommitLog, signal: Signal) -> bool:
    """Append until a waiter was woken: each wake-up is a hint, but they cannot all be missed."""
    for number in range(10):
        log.append(b"%d" % number, log.head())
        if signal.wait(LONG / 10):
            return True
    return False


def test_an_append_wakes_whoever_is_enrolled(log: CommitLog) -> None:
    first, second = Signal(), Signal()
    log.enroll(first)
    log.enroll(second)
    log.enroll(first)
    assert woken(log, first)
    assert woken(log, second)
    log.dismiss(first)
    log.dismiss(second)


def test_whoever_is_dismissed_is_not_woken_any_more_and_others_still_are(log: CommitLog) -> None:
    gone, there = Signal(), Signal()
    log.enroll(gone)
    log.enroll(there)
    log.dismiss(gone)
    assert woken(log, there)
    assert not gone.wait(0)
    log.dismiss(gone)
    log.dismiss(there)


# --- clients ---------------------------------------------------------------------------------------------------------


def test_a_client_knows_at_once_where_another_one_has_brought_the_log(log: CommitLog, peer: CommitLog) -> None:
    filled = fill(log, 10)
    assert peer.head() == filled[-1][0]
    with pytest.raises(LogMoved):
        peer.append(b"late", START)
    assert read(peer, START) == filled
    position = peer.append(b"next", filled[-1][0])
    assert log.head() == position
    assert read(log, filled[-1][0]) == [(position, b"next")]


def test_a_blob_of_one_client_is_there_for_another(log: CommitLog, peer: CommitLog) -> None:
    assert peer.get(log.put(b"blob")) == b"blob"
    assert log.get(peer.put(b"other")) == b"other"


def test_a_client_is_woken_by_what_another_one_appends(log: CommitLog, peer: CommitLog) -> None:
    signal = Signal()
    peer.enroll(signal)
    assert woken(log, signal)
    peer.dismiss(signal)


def test_what_one_client_trims_is_gone_for_another(log: CommitLog, peer: CommitLog) -> None:
    """A client may have been pushed the entries before, and show them for a while; a blob that is gone ends that."""
    blob = log.put(b"of the start")
    filled = fill(log, 5)
    assert read(peer, START) == filled
    log.trim(filled[2][0])
    with pytest.raises(KeyError):
        peer.get(blob)
    assert trimmed_at(peer, START) == filled[2][0]
    assert read(peer, filled[2][0]) == filled[3:]


def test_a_client_sees_a_trim_sooner_or_later_also_if_it_asks_for_no_blob(log: CommitLog, peer: CommitLog) -> None:
    filled = fill(log, 5)
    assert read(peer, START) == filled
    log.trim(filled[2][0])
    signal = Signal()

    def look() -> None:
        for _ in range(int(LONG / _LOOK_AGAIN)):
            assert list(peer.tail(START)) == filled, "part of a trimmed log"
            signal.wait(_LOOK_AGAIN)

    with pytest.raises(Trimmed) as caught:
        look()
    assert caught.value.oldest == filled[2][0]
