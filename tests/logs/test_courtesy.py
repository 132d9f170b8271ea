"""Courtesy: who lets whom go first, and for how long."""

from __future__ import annotations

from holdfast.logs.courtesy import Courtesy
from holdfast.testing import ManualClock


def after(*nodes: str) -> Courtesy:
    """What a node thinks after these have written, a millisecond apart."""
    clock = ManualClock()
    courtesy = Courtesy(clock)
    for node in nodes:
        clock.advance(0.001)
        courtesy.saw(node)
    return courtesy


def turns(courtesy: Courtesy, *nodes: str) -> list[str]:
    return [node for node in nodes if courtesy.is_turn_of(node)]


def test_of_those_who_write_the_one_goes_first_who_wrote_longest_ago() -> None:
    assert turns(after("a", "b", "c"), "a", "b", "c") == ["a"]
    assert turns(after("a", "b", "c", "a"), "a", "b", "c") == ["b"]
    assert turns(after("a", "b", "a", "b", "a"), "a", "b") == ["b"]


def test_nobody_waits_alone_and_a_newcomer_waits_for_nobody() -> None:
    assert turns(after(), "a", "b") == ["a", "b"]
    assert turns(after("a", "a", "a"), "a") == ["a"]
    assert turns(after("a", "b"), "new") == ["new"]


def test_who_stopped_writing_is_forgotten_after_some_entries_or_once_waited_for_in_vain() -> None:
    assert turns(after("b", *["a"] * 3), "a") == []
    assert turns(after("b", *["a"] * 8), "a") == ["a"]
    courtesy = after("b", "a")
    courtesy.waited_in_vain()
    assert turns(courtesy, "a") == ["a"]
    courtesy.saw("b")
    courtesy.saw("a")
    assert turns(courtesy, "a", "b") == ["b"]


def test_patience_follows_the_pace_of_the_log_within_bounds() -> None:
    slow, quick = ManualClock(), ManualClock()
    for_slow, for_quick = Courtesy(slow), Courtesy(quick)
    for _ in range(50):
        slow.advance(0.002)
        quick.advance(0.0005)
        for_slow.saw("a")
        for_quick.saw("a")
    assert 0.0005 <= for_quick.patience < for_slow.patience <= 0.02
    slow.advance(3600)
    for_slow.saw("a")
    assert for_slow.patience <= 0.02
