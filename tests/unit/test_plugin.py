"""The pytest plugin, tried as a user has it: in a project of its own, outside of this repository."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "python.md"
INCONSISTENT = """
def test_it_breaks_the_store(workspace):
    workspace.tasks.create("bake")
    workspace.transact(lambda tx: tx._tx.run("UPDATE tasks SET waits = 7"))
"""
CLOSES = """
def test_it_closes_the_workspace(workspace):
    with workspace:
        workspace.tasks.create("bake")
"""


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a project that knows nothing of ours but the installed package."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *arguments]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=300)


def test_the_example_of_the_reference_passes_in_a_project_of_its_own(tmp_path: Path) -> None:
    example = re.search(
        r"```python\n# not run: it is a file of tests.*?\n(def .*?)```", DOCUMENT.read_text(), re.DOTALL
    )
    assert example
    (tmp_path / "test_mine.py").write_text(example[1])
    done = run(tmp_path)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_test_that_leaves_an_inconsistent_store_fails(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(INCONSISTENT)
    done = run(tmp_path)
    assert done.returncode == 1
    assert "the store is inconsistent after the test" in done.stdout


def test_code_under_test_may_close_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(CLOSES)
    done = run(tmp_path)
    assert "1 passed" in done.stdout, done.stdout
    assert "error" not in done.stdout


def test_the_fixtures_are_listed_with_what_they_are(tmp_path: Path) -> None:
    listed = run(tmp_path, "--fixtures", "-v").stdout
    assert "workspace" in listed
    assert "A private workspace in memory" in listed


def test_loading_the_plugin_loads_nothing_else_of_holdfast() -> None:
    code = "import sys, holdfast.testing.plugin; print(*sorted(m for m in sys.modules if m.startswith('holdfast')))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert loaded == ["holdfast", "holdfast.testing", "holdfast.testing.plugin"]
