"""The kinds that a conformance test runs on: always the same for a seed, all of them over the seeds, or those named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.worlds.drawing import DRAWN_ENGINES, choose, draw
from tests.worlds.kinds import KINDS

SUITE = Path(__file__).parents[1] / "conformance"
TEST = "tests/conformance/test_cells.py::test_something"


def names(test: str, wanted: str, needed: list[str], seed: int) -> list[str]:
    """The kinds without engines."""
    return [kind.kind for kind in draw(test, wanted, needed, seed) if kind not in DRAWN_ENGINES]


def test_a_test_about_order_runs_on_every_kind_and_three_nodes_stand_for_two() -> None:
    assert names(TEST, "every", [], 1) == ["memory", "file", "processes", "replicated-3", "remote"]


def test_another_runs_on_a_file_over_http_and_on_one_more_kind() -> None:
    for seed in range(100):
        found = names(TEST, "drawn", [], seed)
        assert len(found) == 3
        assert {"file", "remote"} < set(found)


def test_a_seed_draws_the_same_kinds_again_and_the_seeds_together_draw_all() -> None:
    drawn = [names(TEST, "drawn", [], seed) for seed in range(50)]
    assert drawn == [names(TEST, "drawn", [], seed) for seed in range(50)]
    assert {kind for found in drawn for kind in found} == {"memory", "file", "processes", "replicated-3", "remote"}


@pytest.mark.parametrize("wanted", ["every", "drawn"])
def test_one_test_in_so_many_meets_an_engine_as_well(wanted: str) -> None:
    met = [kind for number in range(1200) for kind in draw(f"{TEST}_{number}", wanted, [], 1) if kind in DRAWN_ENGINES]
    assert 50 < len(met) < 200
    assert set(met) == set(DRAWN_ENGINES)
    again = [
        kind for number in range(1200) for kind in draw(f"{TEST}_{number}", wanted, [], 1) if kind in DRAWN_ENGINES
    ]
    assert again == met
    assert not any(kind in DRAWN_ENGINES for n in range(99) for kind in draw(f"{TEST}_{n}", wanted, ["folder"], 1))


def test_each_test_of_a_run_draws_for_itself() -> None:
    assert len({tuple(names(f"{TEST}_{number}", "drawn", [], 1)) for number in range(50)}) == 3


def test_only_kinds_that_can_have_what_the_test_needs_are_drawn() -> None:
    for seed in range(20):
        assert names(TEST, "drawn", ["folder"], seed) == ["file", "processes"]
        assert set(names(TEST, "drawn", ["callables"], seed)) in ({"memory", "file"}, {"file", "replicated-3"})


def test_all_kinds_or_some_can_be_asked_for() -> None:
    assert choose("all", []) == list(KINDS)
    assert [kind.kind for kind in choose("remote,memory", [])] == ["memory", "remote"]
    assert choose("remote", ["callables"]) == []
    with pytest.raises(ValueError, match="no such kind: tape; there are memory, file"):
        choose("memory,tape", [])


def test_every_mark_says_every_or_drawn() -> None:
    said = [word for path in SUITE.glob("*.py") for word in re.findall(r"mark\.kinds\((.*?)\)", path.read_text())]
    assert set(said) == {'"every"', '"drawn"'}
