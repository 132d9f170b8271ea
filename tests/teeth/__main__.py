"""`make teeth`: plant one bug at a time in a copy of the source, and see a guarantee's test catch it.

A bug that survives, or whose place in the source is no longer found, fails the run. `ARGS="version fence"` picks bugs
whose name holds one of the words. A second start skips the bugs that were judged for the same sources; `ARGS=--restart`
judges all of them again.

The test that caught a bug in the last whole run (`caught_by.json`) is tried first, alone; only if it passes now do the
others run. A whole run writes that file anew.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.journal import ROOT, Journal, run, state_of
from tests.teeth.bug import Bug
from tests.teeth.bugs import BUGS

SECONDS = 600
JOURNAL = ROOT / ".teeth" / "judged.jsonl"
CATCHERS = Path(__file__).with_name("caught_by.json")
RESTART = "--restart"
# The bugs of a kind are found on that kind, and the seeds are those that are known to meet the bugs.
CHOICE = ("--kinds", "all")
SEEDS = {"FIRST": "0"}


def main(words: list[str]) -> int:
    """Plant every bug that was asked for; 0 if each was caught."""
    journal = Journal(JOURNAL, state_of())
    if RESTART in words:
        journal.restart()
    words = [word for word in words if word != RESTART]
    chosen = [bug for bug in BUGS if not words or any(word in bug.name for word in words)]
    catchers = json.loads(CATCHERS.read_text())
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # a bug at a time on each core
        verdicts = list(pool.map(lambda bug: judged(bug, journal, catchers.get(bug.name)), chosen))
    caught = verdicts.count("caught")
    print(f"{caught} of {len(chosen)} planted bugs caught")
    if not words:  # last, because it changes the state of the sources
        found = {bug.name: journal.finished[bug.name]["by"] for bug in BUGS if bug.name in journal.finished}
        CATCHERS.write_text(json.dumps(found, indent=0, sort_keys=True) + "\n")
    return 0 if chosen and caught == len(chosen) else 1


def judged(bug: Bug, journal: Journal, catcher: str | None = None) -> str:
    """The verdict on a bug, from the journal if it was judged before; a run that broke off is no judgement."""
    if known := journal.finished.get(bug.name):
        print(f"{known['verdict']:9} before   {bug.name}: {known['by']}", flush=True)
        return str(known["verdict"])
    began = time.monotonic()
    verdict, by = plant(bug, catcher)
    print(f"{verdict:9} {time.monotonic() - began:5.1f} s  {bug.name}: {by}", flush=True)
    if verdict != "BROKE":
        journal.add(bug.name, verdict=verdict, by=by)
    return verdict


def plant(bug: Bug, catcher: str | None = None) -> tuple[str, str]:
    """Run the guarantees against a copy of the source with the bug in it, first the test that is known to catch it."""
    with tempfile.TemporaryDirectory(prefix="holdfast-teeth-") as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        try:
            apply(bug, source)
        except ValueError as error:
            return "STALE", str(error)
        if catcher and (judgement := judge((catcher,), source))[0] == "caught":
            return judgement
        return judge(bug.tests, source)


def apply(bug: Bug, source: Path) -> None:
    """Put the bug in; ValueError if its place is not there exactly once."""
    path = source / "holdfast" / bug.file
    text = path.read_text()
    if text.count(bug.good) != 1:
        raise ValueError(f"its place occurs {text.count(bug.good)} times in {bug.file}")
    path.write_text(text.replace(bug.good, bug.bad))


def judge(tests: tuple[str, ...], source: Path) -> tuple[str, str]:
    """The first test that fails, as a verdict; a run that breaks off otherwise has caught nothing."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
        "-n",
        "0",
        "--timeout",
        "60",
    ]
    environment = {**SEEDS, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}"}
    try:
        done = run([*command, *CHOICE, *tests], environment, SECONDS, shown=False)
    except subprocess.TimeoutExpired:
        return "BROKE", f"the tests did not end within {SECONDS} s"
    # An ERROR of a test is its fixture's: after each one `ws.check()` must find nothing.
    failed = re.search(r"^(?:FAILED|ERROR) (\S+::\S+)", done.stdout, re.MULTILINE)
    if done.returncode == 1 and failed:
        return "caught", failed.group(1)
    if done.returncode == 0:
        return "SURVIVED", "no test failed"
    return "BROKE", (done.stdout + done.stderr)[-400:].replace("\n", " ")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
