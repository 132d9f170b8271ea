"""Every benchmark runs at a tiny size: their code stays alive between the days somebody looks at the figures."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import holdfast
from tests.bench import increments
from tests.bench.__main__ import SUBJECTS, main
from tests.bench.baseline import Loop
from tests.bench.measure import Bench, Row

EXPECTED = {
    "increments": 3,
    "get": 1,
    "watch": 4,
    "fairness": 2,
    "imports": 3,
    "growth": 8,
    "replicas": 14,
    "joining": 2,
}


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_subject_yields_its_rows_with_positive_figures(name: str, tmp_path: Path) -> None:
    said: list[str] = []
    rows = SUBJECTS[name](Bench(tmp_path, 0.005, said.append))
    assert len(rows) == EXPECTED[name]
    assert {row.subject for row in rows} == {name}
    assert all(math.isfinite(row.figure) and row.figure > 0 for row in rows), rows
    assert any(row.at_most or row.at_least for row in rows)
    assert said


def test_the_baseline_of_the_increments_runs_our_statements_with_our_settings(tmp_path: Path) -> None:
    ours = increments.open_store(tmp_path / "ours")
    increments.open_store(tmp_path / "bare").close()
    loop = Loop(str(tmp_path / "bare" / "holdfast.db"), increments.RUN)
    try:
        assert increments.compare(ours, loop) == []
        assert increments.statements_per_increment(ours) == (7.0, 5 + 4 / 64)
    finally:
        ours.close()
        loop.close()


def test_what_the_baseline_wrote_is_sound(tmp_path: Path) -> None:
    increments.open_store(tmp_path).close()
    loop = Loop(str(tmp_path / "holdfast.db"), increments.RUN)
    loop.one_by_one(increments.some_cells(10))
    loop.in_groups(increments.some_cells(128), 64)
    loop.close()
    with holdfast.open(tmp_path, actor="bench") as ws:
        assert ws.check().problems == []
        assert ws.cells.get(increments.RUN, increments.CELLS[0]).value == 2


def test_a_row_is_reached_on_the_right_side_of_its_bar_only() -> None:
    assert Row("s", "w", 1.0, at_least=0.6).reached
    assert not Row("s", "w", 0.5, at_least=0.6).reached
    assert Row("s", "w", 1.3, at_most=1.3).reached
    assert not Row("s", "w", 1.4, at_most=1.3).reached


def test_the_command_runs_what_is_named_and_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["get", "--dir", str(tmp_path), "--scale", "0.002"]) == 0
    printed = capsys.readouterr().out
    assert "cells.get / raw select" in printed
    assert "fdatasyncs a second" in printed
    assert list(tmp_path.iterdir()) == []
