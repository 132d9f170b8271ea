"""docs/sources.md names for each statement of the source documents a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs/sources.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| section ")
]


def test_every_test_that_the_sources_name_exists() -> None:
    defined = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)\(", path.read_text(), re.MULTILINE)
    }
    named = {name for row in ROWS for name in re.findall(r"`(test_\w+)`", row[3])}
    assert len(named) > 50
    assert named - defined == set()


def test_every_statement_says_how_it_is_met_and_what_shows_it() -> None:
    assert len(ROWS) > 200
    assert [row for row in ROWS if len(row) != 5 or not all(row[:4])] == []


def test_what_the_guarantees_say_of_a_bucket_is_no_difference_to_the_sources() -> None:
    """A statement that two pages make rests on the same tests in both."""
    promised = (ROOT / "docs/guarantees.md").read_text()
    for test in (
        "test_p9_a_corrupt_entry_is_recovered_from_the_history_of_the_bucket",
        "test_p9_a_key_that_was_deleted_is_a_conflict_and_not_made_again",
        "test_p9_a_bucket_is_never_read_as_empty_whenever_the_end_marker_comes",
    ):
        assert test in promised
        assert any(test in row[3] for row in ROWS), test
