"""The figures of a release in docs/reliability.md add up, and no seed is counted twice."""

from __future__ import annotations

import json

import pytest

from tests.long.__main__ import SLICED, STEPS
from tests.long.ledger import PAGE, PROGRAMMES, Slice, merged, overlaps, slices, with_slices

LISTED = slices(PAGE.read_text())


def test_the_sums_of_the_ledger_are_those_of_its_slices() -> None:
    page = PAGE.read_text()
    assert LISTED
    assert with_slices(page, LISTED) == page


def test_no_seed_is_counted_twice_and_nothing_was_wrong() -> None:
    assert overlaps(LISTED) == []
    assert [each for each in LISTED if each.wrong or each.first > each.last or each.done < 1] == []


def test_the_long_run_has_every_programme_of_the_ledger_in_slices() -> None:
    assert [each.name for each in SLICED] == list(PROGRAMMES)
    assert len({step.name for step in STEPS}) == len(STEPS)


def test_parts_of_a_slice_and_adjoining_seeds_are_one_row() -> None:
    def part(first: int, last: int, count: int, at: str = "0123456", **figures: int) -> str:
        return json.dumps(
            {
                "programme": "power",
                "commit": at,
                "first": first,
                "last": last,
                "count": count,
                "wrong": 0,
                "figures": figures,
            }
        )

    lines = [part(0, 0, 5, opened=1), part(0, 0, 6, opened=2), part(1, 2, 7), part(4, 4, 1), part(5, 5, 1, "fedcba9")]
    assert merged(lines) == [
        Slice("power", "0123456", 0, 2, 18, 0, "opened 3"),
        Slice("power", "0123456", 4, 4, 1, 0),
        Slice("power", "fedcba9", 5, 5, 1, 0),
    ]


@pytest.mark.parametrize(("second", "shared"), [(range(5, 9), True), (range(10, 12), False)])
def test_seeds_that_two_slices_share_are_found(second: range, shared: bool) -> None:
    one, two = (Slice("kill", "0123456", it.start, it.stop - 1, 1, 0) for it in (range(10), second))
    assert bool(overlaps([two, one])) == shared
