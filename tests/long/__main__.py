"""`make long`: what takes too long for CI, one command after another, each at most an hour.

A second start skips the commands that passed for the same sources; `ARGS=--restart` runs all of them again.
`ARGS="power"` picks commands whose name holds one of the words. A command that fails does not stop the others.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from typing import NamedTuple

from tests.journal import ROOT, Journal, run, state_of

SECONDS = 3600
JOURNAL = ROOT / ".long" / "passed.jsonl"
RESTART = "--restart"
PYTEST = ("-m", "pytest", "-p", "no:randomly")
ALL = {"LONG": "1"}


class Step(NamedTuple):
    """A command for Python, with variables of its environment."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]


STEPS = (
    Step("every test on every kind", ("-m", "pytest", "-q", "-n", "auto", "tests/conformance"), ALL),
    Step("1,000 seeds", ("-m", "pytest", "-q", "-n", "auto", "tests/simulation"), ALL),
    Step("20,000 states after a loss of power", ("-m", "pytest", "-q", "-n", "auto", "tests/power"), ALL),
    Step("20,000 calls of the server", ("-m", "tests.http.schema_run", "--calls", "20000"), {}),
    Step("every race and every door", ("-m", "pytest", "-q", "-n", "auto", "tests/e2e", "tests/mcp"), ALL),
    Step("200 kills of the server", (*PYTEST, "tests/e2e/test_server_kill.py"), {"SERVER_KILL_CYCLES": "200"}),
    Step(
        "a storm of shells",
        (*PYTEST, "--timeout", "900", "-s", "tests/cli/test_storm.py"),
        {"CLI_STORM_TASKS": "1000", "CLI_STORM_LOOPS": "16"},
    ),
    Step("1,000 turns", (*PYTEST, "-s", "tests/turnfile/test_contention.py"), {"TURN_TRANSACTIONS": "1000"}),
    Step("200,000 mangled turn files", (*PYTEST, "-s", "tests/turnfile/test_turn_fuzz.py"), {"TURN_FUZZ": "200000"}),
)


def main(words: list[str]) -> int:
    """Run every step that was asked for; 0 if each has passed."""
    journal = Journal(JOURNAL, state_of())
    if RESTART in words:
        journal.restart()
    words = [word for word in words if word != RESTART]
    chosen = [step for step in STEPS if not words or any(word in step.name for word in words)]
    failed = [step.name for step in chosen if not passed(step, journal)]
    print(
        f"{len(chosen) - len(failed)} of {len(chosen)} long runs have passed" + "".join(f"; not: {it}" for it in failed)
    )
    return 0 if chosen and not failed else 1


def passed(step: Step, journal: Journal) -> bool:
    """Whether a step passes, or has passed before."""
    if known := journal.finished.get(step.name):
        print(f"{step.name}: passed before, in {known['seconds']:.0f} s", flush=True)
        return True
    print(f"{step.name}: begins", flush=True)
    began = time.monotonic()
    try:
        code = run([sys.executable, *step.command], step.environment, SECONDS, shown=True).returncode
    except subprocess.TimeoutExpired:
        print(f"{step.name}: did not end within {SECONDS} s", flush=True)
        return False
    seconds = time.monotonic() - began
    print(f"{step.name}: {'failed' if code else 'passed'} in {seconds:.0f} s", flush=True)
    if not code:
        journal.add(step.name, seconds=round(seconds, 1))
    return not code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
