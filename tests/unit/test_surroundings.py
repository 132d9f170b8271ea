"""The tests hold wherever they are started: in the background of a shell too, where SIGINT is ignored."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INTERRUPTED = "tests/cli/test_output.py::test_ctrl_c_ends_it_quietly"


@pytest.mark.parametrize("workers", ["0", "1"])
def test_what_is_interrupted_ends_although_the_shell_ignores_ctrl_c(workers: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", workers, "--timeout", "30"]
    ignoring = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]
    done = subprocess.run(
        [*ignoring, *command, INTERRUPTED], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
