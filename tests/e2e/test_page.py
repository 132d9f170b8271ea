"""The page in a real browser: the core of tests/web, which `make web` runs whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.web.browser import MISSING, find_browser

ROOT = Path(__file__).parents[2]
PATIENCE = 900  # seconds, for a machine that does other things too


@pytest.mark.early
@pytest.mark.timeout(PATIENCE + 60)
@pytest.mark.skipif(find_browser() is None, reason=MISSING)
def test_a_person_finds_the_page_working_in_a_browser() -> None:
    # A process of its own: while Playwright runs, its thread has an event loop, and other tests here want theirs.
    command = [sys.executable, "-m", "pytest", "tests/web", "-m", "core", "-q", "--no-header", "--tb=short"]
    given = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
