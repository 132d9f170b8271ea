"""Courtesy: who lets whom go first, and for how long."""

from __future__ import annotations

import pytest

from holdfast.replication.replica import Courtesy
from holdfast.testing import ManualClock


def after(*nodes: str) -> Courtesy:
    """What a node thinks after these have written."""
    courtesy = Courtesy(ManualClock())
    for node in nodes:
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


def test_patience_is_some_times_what_a_group_of_our_own_takes_within_bounds() -> None:
    clock = ManualClock()
    courtesy = Courtesy(clock)

    def after_groups_of(seconds: float) -> float:
        for _ in range(50):
            courtesy.begins()
            clock.advance(seconds)
            courtesy.wrote("a")
            clock.advance(1)  # what lies between them does not count
        return courtesy.patience

    assert courtesy.patience == 0.0005
    assert after_groups_of(0.0001) == 0.0005
    assert after_groups_of(0.002) == pytest.approx(0.006, rel=0.01)
    assert after_groups_of(3600) == 0.02
