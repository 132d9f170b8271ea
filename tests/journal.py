"""What a long programme has finished, so that a second start goes on where the first one was interrupted.

A journal is a file of one JSON line for each finished step. Each line names the state of the sources, a digest of all
that the tests run: what was finished for another state counts no more. Used by `make teeth` and `make long`.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCES = ("src", "tests", "pyproject.toml", "constraints.txt", "locks")


def state_of(root: Path = ROOT) -> str:
    """A digest of the sources."""
    digest = hashlib.sha256()
    for name in SOURCES:
        paths = sorted((root / name).rglob("*")) if (root / name).is_dir() else [root / name]
        for path in paths:
            if path.is_file() and "__pycache__" not in path.parts and ".egg-info" not in str(path):
                digest.update(f"{path.relative_to(root)}\0{path.stat().st_size}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


class Journal:
    """The finished steps of one state."""

    def __init__(self, path: Path, state: str) -> None:
        self._path = path
        self._state = state
        self.finished: dict[str, dict[str, Any]] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                step = json.loads(line)
            except ValueError:
                continue  # blank, or the run was killed while it wrote the line
            if step["state"] == state:
                self.finished[step["step"]] = step

    def add(self, step: str, **facts: Any) -> None:
        """A step is finished."""
        self.finished[step] = {"state": self._state, "step": step, **facts}
        self._path.parent.mkdir(exist_ok=True)
        with self._path.open("a") as file:
            file.write(f"\n{json.dumps(self.finished[step])}\n")  # on a line of its own, whatever stands before it

    def restart(self) -> None:
        """Forget everything."""
        self._path.unlink(missing_ok=True)
        self.finished.clear()


def run(
    command: Sequence[str], environment: Mapping[str, str], seconds: float, *, shown: bool
) -> subprocess.CompletedProcess[str]:
    """Run a command with all its children; TimeoutExpired if it takes longer, and then none of them is left."""
    pipe = None if shown else subprocess.PIPE
    everything = {**os.environ, **environment}
    with subprocess.Popen(
        command, cwd=ROOT, env=everything, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out or "", err or "")
