"""The figures of the page are measured at a tiny size, so that their code stays alive."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.bench import ui
from tests.bench.measure import Bench
from tests.web.browser import MISSING, find_browser

ROWS = 10


@pytest.mark.skipif(find_browser() is None, reason=MISSING)
def test_the_benchmark_of_the_page_yields_its_rows_with_positive_figures(tmp_path: Path) -> None:
    rows = ui.run(Bench(tmp_path, 0.005, lambda words: None))
    assert len(rows) == ROWS
    assert all(math.isfinite(row.figure) and row.figure > 0 for row in rows), rows
