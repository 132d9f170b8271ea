"""`make teeth`: plant one bug at a time in a copy of the source, and see a guarantee's test catch it.

A bug that survives, or whose place in the source is no longer found, fails the run. `ARGS="version fence"` picks bugs
whose name holds one of the words.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.teeth.bug import Bug
from tests.teeth.bugs import BUGS

ROOT = Path(__file__).parents[2]
SECONDS = 600


def main(words: list[str]) -> int:
    """Plant every bug that was asked for; 0 if each was caught."""
    chosen = [bug for bug in BUGS if not words or any(word in bug.name for word in words)]
    caught = 0
    for bug in chosen:
        began = time.monotonic()
        verdict, by = plant(bug)
        caught += verdict == "caught"
        print(f"{verdict:9} {time.monotonic() - began:5.1f} s  {bug.name}: {by}", flush=True)
    print(f"{caught} of {len(chosen)} planted bugs caught")
    return 0 if chosen and caught == len(chosen) else 1


def plant(bug: Bug) -> tuple[str, str]:
    """Run the guarantees against a copy of the source with the bug in it."""
    with tempfile.TemporaryDirectory(prefix="holdfast-teeth-") as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        try:
            apply(bug, source)
        except ValueError as error:
            return "STALE", str(error)
        return run(bug, source)


def apply(bug: Bug, source: Path) -> None:
    """Put the bug in; ValueError if its place is not there exactly once."""
    path = source / "holdfast" / bug.file
    text = path.read_text()
    if text.count(bug.good) != 1:
        raise ValueError(f"its place occurs {text.count(bug.good)} times in {bug.file}")
    path.write_text(text.replace(bug.good, bug.bad))


def run(bug: Bug, source: Path) -> tuple[str, str]:
    """The first test that fails, as a verdict; a run that breaks off otherwise has caught nothing."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "2", "-p", "no:cacheprovider", "--timeout", "60"]
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [*command, *bug.tests], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS
    )
    # An ERROR of a test is its fixture's: after each one `ws.check()` must find nothing.
    failed = re.search(r"^(?:FAILED|ERROR) (\S+::\S+)", done.stdout, re.MULTILINE)
    if done.returncode in (1, 2) and failed:  # xdist calls a run that stops at its first failure interrupted
        return "caught", failed.group(1)
    if done.returncode == 0:
        return "SURVIVED", "no test failed"
    return "BROKE", (done.stdout + done.stderr)[-400:].replace("\n", " ")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
