"""Writer fairness: which node goes first, and how long the others wait."""

from __future__ import annotations

import pytest

from holdfast.replication.replica import WriterFairness
from holdfast.testing import ManualClock


def after(*nodes: str) -> WriterFairness:
    """What a node thinks after these have written."""
    fairness = WriterFairness(ManualClock())
    for node in nodes:
        fairness.saw(node)
    return fairness


def turns(fairness: WriterFairness, *nodes: str) -> list[str]:
    return [node for node in nodes if fairness.is_turn_of(node)]


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
    fairness = after("b", "a")
    fairness.forget_idle()
    assert turns(fairness, "a") == ["a"]
    fairness.saw("b")
    fairness.saw("a")
    assert turns(fairness, "a", "b") == ["b"]


def test_patience_is_some_times_what_a_group_of_our_own_takes_within_bounds() -> None:
    clock = ManualClock()
    fairness = WriterFairness(clock)

    def after_groups_of(seconds: float) -> float:
        for _ in range(50):
            fairness.begins()
            clock.advance(seconds)
            fairness.wrote("a")
            clock.advance(1)  # what lies between them does not count
        return fairness.max_wait

    assert fairness.max_wait == 0.0005
    assert after_groups_of(0.0001) == 0.0005
    assert after_groups_of(0.002) == pytest.approx(0.006, rel=0.01)
    assert after_groups_of(3600) == 0.02
