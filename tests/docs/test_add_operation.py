"""CONTRIBUTING.md says that an operation is one line and one function: its diff is applied, the operation called.

The patched tree keeps the laws of the house too.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.cli.calling import PATIENCE, environment
from tests.docs.generate import ROOT

_DIFF = re.compile(r"^```diff\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_an_operation_is_one_line_and_one_function_in_every_face(tmp_path: Path) -> None:
    (diff,) = _DIFF.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert set(re.findall(r"^\+\+\+ b/(.*)$", diff, re.MULTILINE)) == {"src/holdfast/domains/leases.py"}
    for part in ("src", "tests/architecture"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    applied = subprocess.run(
        ["git", "apply", "--recount", "-"], input=diff, text=True, cwd=tmp_path, capture_output=True, timeout=PATIENCE
    )
    assert applied.returncode == 0, f"update the diff in CONTRIBUTING.md: {applied.stderr}"
    path = os.pathsep.join((str(tmp_path / "src"), str(tmp_path)))
    env = environment(tmp_path, PYTHONPATH=path, PATH=os.environ["PATH"])
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("toy.py")), str(tmp_path)],
        env=env,
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE,  # it starts a process for every call
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "laws": [],
        "python": [70, 80, 90],
        "command_line": 80,
        "http": 80,
        "mcp": 70,
    }
