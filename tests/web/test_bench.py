"""The figures of the page are measured at a tiny size, so that their code stays alive."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.web.browser import MISSING, find_browser

ROOT = Path(__file__).parents[2]
ROWS = 16


@pytest.mark.skipif(find_browser() is None, reason=MISSING)
def test_the_benchmark_of_the_page_yields_its_rows_with_positive_figures(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.bench", "ui", "--scale", "0.005", "--dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = re.findall(r"^ui +.+? +([\d.,]+) ", done.stdout, re.MULTILINE)
    assert len(figures) == ROWS, done.stdout
    assert all(float(figure.replace(",", "")) > 0 for figure in figures), done.stdout
