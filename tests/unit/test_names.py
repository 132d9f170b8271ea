"""Names, seconds and limits: the edges of what passes, and messages that say which argument is wrong and how."""

from __future__ import annotations

import math
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Invalid, InvalidFilter, InvalidName
from holdfast.kernel.validate import MAX_SECONDS, after_prefix, check_limit, check_name, check_seconds, check_ttl

text = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    "name",
    ["a", " ", "a-b_c.d:e/f@g", "x" * 512, "é" * 256, "世界🌍", "a\u200bb", "\ue000", "\u2028", "\U0010ffff", "$~"],
)
def test_any_text_without_control_characters_is_a_name(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "is empty"),
        ("x" * 513, "is 513 bytes"),
        ("é" * 256 + "x", "is 513 bytes"),
        ("a\0b", "U+0000 at position 1"),
        ("\n", "U+000A at position 0"),
        ("é\x7f", "U+007F"),
        ("a\x85", "U+0085 at position 1"),
        ("ab\ud800", "lone surrogate at position 2"),
        (None, "must be a str, not NoneType"),
        (b"a", "must be a str, not bytes"),
        (1, "must be a str, not int"),
    ],
)
def test_what_is_no_name_is_refused_by_argument_and_reason(name: object, problem: str) -> None:
    with pytest.raises(InvalidName) as caught:
        check_name(name, "run")
    assert caught.value.message.startswith("run ")
    assert problem in caught.value.message
    assert caught.value.what == "run"
    assert ("512" in caught.value.hint) == isinstance(name, str)


def test_a_subclass_of_str_is_no_name() -> None:
    class Label(str):
        __slots__ = ()

    with pytest.raises(InvalidName, match=r"not .*Label"):
        check_name(Label("a"))


def test_exactly_the_control_characters_are_refused() -> None:
    refused = set()
    for code in (*range(0xD800), *range(0xE000, 0x3000 + 0xE000), 0x1F600, 0xE0001, 0x10FFFF):
        try:
            check_name(chr(code))
        except InvalidName:
            refused.add(code)
    assert refused == {code for code in range(0x110000) if unicodedata.category(chr(code)) == "Cc"}


# --- prefixes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "after"),
    [
        ("", None),
        ("a", "b"),
        ("a/", "a0"),
        ("\x7f", "\x80"),
        ("a\ud7ff", "a\ue000"),
        ("\uffff", "\U00010000"),
        ("a\U0010ffff", "b"),
        ("a\ud7ff\U0010ffff\U0010ffff", "a\ue000"),
        ("\U0010ffff", None),
        ("\U0010ffff\U0010ffff", None),
    ],
)
def test_the_string_after_a_prefix_moves_its_last_character_on(prefix: str, after: str | None) -> None:
    assert after_prefix(prefix) == after


@given(text, text)
def test_the_string_after_a_prefix_divides_what_starts_with_it_from_what_is_greater(prefix: str, other: str) -> None:
    after = after_prefix(prefix)
    low, at = prefix.encode(), other.encode()
    inside = low <= at and (after is None or at < after.encode())
    assert inside == other.startswith(prefix)
    assert after is None or (prefix + other).encode() < after.encode()


# --- seconds ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ttl", "micros"),
    [(1, 1_000_000), (0.1, 100_000), (1e-9, 1), (5e-324, 1), (2.5, 2_500_000), (MAX_SECONDS, MAX_SECONDS * 1_000_000)],
)
def test_a_ttl_becomes_microseconds_and_at_least_one(ttl: float, micros: int) -> None:
    result = check_ttl(ttl)
    assert result == micros
    assert type(result) is int


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (0, "above 0"),
        (0.0, "above 0"),
        (-0.0, "above 0"),
        (-1, "above 0"),
        (-1e-300, "above 0"),
        (math.nan, "finite"),
        (math.inf, "finite"),
        (-math.inf, "finite"),
        (MAX_SECONDS + 1, "100 years"),
        (math.nextafter(MAX_SECONDS, math.inf), "100 years"),
        (10**400, "100 years"),
        (True, "not bool"),
        (None, "not NoneType"),
        ("5", "not str"),
    ],
)
def test_what_is_no_ttl_is_refused_by_argument_and_reason(bad: object, problem: str) -> None:
    with pytest.raises(Invalid) as caught:
        check_ttl(bad, "lease ttl")
    assert caught.value.message.startswith("lease ttl must be ")
    assert problem in caught.value.message


def test_a_number_of_seconds_may_be_zero_and_none_only_if_allowed() -> None:
    assert check_seconds(0, "timeout") == 0
    assert check_seconds(1.5, "timeout") == 1_500_000
    assert check_seconds(None, "timeout", allow_none=True) is None
    assert check_seconds(2, "timeout", allow_none=True) == 2_000_000
    with pytest.raises(Invalid, match="timeout must be a number of seconds, not NoneType"):
        check_seconds(None, "timeout")
    with pytest.raises(Invalid, match="timeout must be 0 or more"):
        check_seconds(-1, "timeout")


# --- limits ----------------------------------------------------------------------------------------------------------


def test_a_limit_is_one_to_its_maximum() -> None:
    assert check_limit(1, 100, "cursor") == 1
    assert check_limit(100, 100, "cursor") == 100


@pytest.mark.parametrize("bad", [0, -1, 101, True, 1.0, None, "5"])
def test_any_other_limit_is_an_invalid_filter(bad: object) -> None:
    with pytest.raises(InvalidFilter, match="limit must be"):
        check_limit(bad, 100, "cursor")
