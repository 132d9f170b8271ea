"""Cases of a public test set of state cells, where it lies beside the repository: values, init and cas sequences."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Workspace, errors
from holdfast.testing import ManualClock

FILE = Path(__file__).resolve().parents[2] / "../shared/samples/cells/statecell-cases.jsonl"
TYPES = {"null": type(None), "bool": bool, "int": int, "float": float, "str": str, "list": list, "dict": dict}

pytestmark = pytest.mark.skipif(not FILE.exists(), reason="the samples are not here")


def _cases(kind: str | None) -> list[Any]:
    """The cases of a kind, each with its name as the id; values are those without a kind."""
    if not FILE.exists():
        return []
    cases = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
    return [pytest.param(case, id=case["cell_name"]) for case in cases if case.get("type") == kind]


@pytest.fixture(scope="module")
def ws() -> Iterator[Workspace]:
    """One workspace for all cases: each has a cell of its own."""
    with holdfast.open(":memory:", actor="tester", clock=ManualClock()) as workspace:
        yield workspace


def test_the_samples_have_cases_of_every_kind() -> None:
    assert all(_cases(kind) for kind in (None, "init_test", "cas_test"))


@pytest.mark.parametrize("case", _cases(None))
def test_a_sample_value_comes_back_as_it_went_in(ws: Workspace, case: dict[str, Any]) -> None:
    run, cell, value = f"run-{case['run_index']}", case["cell_name"], case["value"]
    assert type(value) is TYPES[case["value_type"]]
    assert ws.cells.set(run, cell, value) == 1
    found = ws.cells.get(run, cell)
    # As JSON, because == takes 1, 1.0 and True for the same.
    assert json.dumps(found.value, sort_keys=True) == json.dumps(value, sort_keys=True)
    assert found.version == 1
    assert cell in ws.cells.list(run)


@pytest.mark.parametrize("case", _cases("init_test"))
def test_a_sample_init_conflicts_with_a_cell_that_exists(ws: Workspace, case: dict[str, Any]) -> None:
    assert case["expected"] == "conflict_if_exists"
    cell, value = case["cell_name"], case["initial_value"]
    assert ws.cells.init("init", cell, value) == 1
    before = ws.cells.get("init", cell)
    with pytest.raises(errors.Exists):
        ws.cells.init("init", cell, "another")
    assert ws.cells.get("init", cell) == before
    assert before.value == value


@pytest.mark.parametrize("case", _cases("cas_test"))
def test_a_sample_sequence_of_cas_succeeds_once_step_by_step(ws: Workspace, case: dict[str, Any]) -> None:
    cell = case["cell_name"]
    for number, step in enumerate(case["sequence"], start=1):
        assert ws.cells.cas("cas", cell, step["expected_counter"], step["value"]) == number
        with pytest.raises(errors.VersionMismatch) as caught:
            ws.cells.cas("cas", cell, step["expected_counter"], "late")
        assert (caught.value.version, caught.value.value) == (number, step["value"])
    history = [step.value for step in ws.cells.history("cas", cell)]
    assert history == [step["value"] for step in reversed(case["sequence"])]
