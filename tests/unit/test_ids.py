"""Ids: valid UUID v7, strictly increasing whatever the clock does, never the same twice."""

from __future__ import annotations

import threading
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Invalid
from holdfast.ids import Ids, is_uuid7

NOW = 1_790_000_000_123_456


def millis_of(text: str) -> int:
    return int(text[:8] + text[9:13], 16)


def test_an_id_is_a_uuid_of_version_7_with_its_time() -> None:
    text = Ids().new(NOW)
    parsed = uuid.UUID(text)
    assert str(parsed) == text
    assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)
    assert millis_of(text) == NOW // 1000
    assert int(text[15:18], 16) == 456 * 4096 // 1000


@given(st.lists(st.integers(0, 2**48 * 1000 - 1_000_000), min_size=1, max_size=50))
def test_ids_increase_whatever_the_clock_does(clock: list[int]) -> None:
    ids = Ids()
    made = [ids.new(now) for now in clock]
    assert made == sorted(set(made))
    assert all(map(is_uuid7, made))


def test_ids_increase_beyond_what_one_millisecond_can_count() -> None:
    ids = Ids()
    made = [ids.new(NOW) for _ in range(10_000)]
    assert made == sorted(set(made))
    assert millis_of(made[-1]) == NOW // 1000 + 2


def test_ids_made_by_many_threads_are_all_different_and_in_order_for_each() -> None:
    ids = Ids()
    made: list[list[str]] = [[] for _ in range(8)]

    def work(mine: list[str]) -> None:
        mine.extend(ids.new(NOW) for _ in range(2_000))

    threads = [threading.Thread(target=work, args=(mine,)) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(mine == sorted(mine) for mine in made)
    assert len({text for mine in made for text in mine}) == 16_000
    assert len({text[:18] for mine in made for text in mine}) == 16_000


def test_two_sources_do_not_meet() -> None:
    assert Ids().new(NOW)[19:] != Ids().new(NOW)[19:]


@pytest.mark.parametrize("now", [-1, 2**48 * 1000])
def test_a_time_that_does_not_fit_is_refused(now: int) -> None:
    with pytest.raises(Invalid, match="clock"):
        Ids().new(now)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "01990b2c-1234-7abc-8def-0123456789a",
        "01990b2c-1234-7abc-8def-0123456789abc",
        "01990B2C-1234-7ABC-8DEF-0123456789AB",
        "01990b2c-1234-4abc-8def-0123456789ab",
        "01990b2c-1234-7abc-cdef-0123456789ab",
        "01990b2c-1234-7abc-8def-0123456789ag",
        "01990b2c-1234-7abc-8def-0123456789a-",
        "01990b2c01234-7abc-8def-0123456789ab",
        "01990b2c-1234-7abc-8def-01234567٣9ab",
        None,
        7,
        b"01990b2c-1234-7abc-8def-0123456789ab",
    ],
)
def test_what_is_no_uuid_of_version_7_is_told_apart(text: object) -> None:
    assert not is_uuid7(text)


def test_a_well_formed_uuid_of_version_7_is_recognised() -> None:
    assert is_uuid7("01990b2c-1234-7abc-8def-0123456789ab")
