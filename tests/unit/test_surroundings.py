"""The tests hold wherever they are started, also in the background of a shell, and leave nothing behind at home."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.faces.cli.location import state_folder

ROOT = Path(__file__).parents[2]
INTERRUPTED = "tests/cli/test_output.py::test_ctrl_c_ends_it_quietly"


@pytest.mark.parametrize("workers", ["0", "1"])
def test_what_is_interrupted_ends_although_the_shell_ignores_ctrl_c(workers: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", workers, "--timeout", "30"]
    ignoring = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]
    done = subprocess.run(
        [*ignoring, *command, INTERRUPTED], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_no_test_writes_into_the_folders_of_the_person_who_runs_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    assert Path(state_folder(os.environ)).is_relative_to(tmp_path_factory.getbasetemp())
    assert Path(os.environ["XDG_CONFIG_HOME"]).is_relative_to(tmp_path_factory.getbasetemp())
