"""Every requirement on turn files, F1 to F14, and every rule of the locking contract, R1 to R8, has tests that say so.

A test names what it proves: `test_f2_f14_...`, `test_r2_1_...` for the rule R2.1.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.test_guarantees import names_in

TESTS = Path(__file__).resolve().parents[1]
FILES = [*sorted((TESTS / "turnfile").glob("test_*.py")), TESTS / "cli" / "test_turn_cli.py"]
NAMES = [name for file in FILES for name in names_in(file)]
RULES = ["r1", "r2", "r2_1", "r3", "r4", "r5", "r6", "r7", "r8"]
REQUIREMENTS = [f"f{number}" for number in range(1, 15)]


def proven(name: str) -> set[str]:
    """The numbers that a test carries."""
    found = re.match(r"test_((?:[fr]\d+_(?:\d+_)?)+)", name)
    return {number.rstrip("_") for number in re.findall(r"[fr]\d+_(?:\d+_)?", found[1])} if found else set()


@pytest.mark.parametrize("number", [*REQUIREMENTS, *RULES])
def test_every_requirement_and_rule_has_a_test(number: str) -> None:
    assert any(number in proven(name) for name in NAMES)


def test_no_test_names_a_number_that_there_is_not() -> None:
    assert set().union(*map(proven, NAMES)) == {*REQUIREMENTS, *RULES}


def test_the_numbers_of_a_test_are_read_from_its_name() -> None:
    assert proven("test_f2_f14_a_kill") == {"f2", "f14"}
    assert proven("test_r2_1_after_the_write") == {"r2_1"}
    assert proven("test_f10_0_a_b") == {"f10_0"}
    assert proven("test_the_rest") == set()
