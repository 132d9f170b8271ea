"""`make long`: what takes too long for CI, one command after another, each at most an hour.

A second start skips the commands that passed for the same sources; `ARGS=--restart` runs all of them again.
`ARGS="power"` picks commands whose name holds one of the words. A command that fails does not stop the others.

The figures of a release come from programmes that run in slices: each has seeds of its own, and writes what it did to
.long/slices.jsonl. `python -m tests.long.ledger .long/slices.jsonl` adds them to docs/reliability.md.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tests.journal import ROOT, Journal, run, state_of
from tests.long.ledger import LEDGER

SECONDS = 3600
JOURNAL = ROOT / ".long" / "passed.jsonl"
SLICES = ROOT / ".long" / "slices.jsonl"
RESTART = "--restart"
PYTEST = ("-m", "pytest", "-p", "no:randomly")
ALL = {"LONG": "1"}
MACHINES = ("machine", "task_machine")


class Step(NamedTuple):
    """A command for Python, with variables of its environment."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]


class Sliced(NamedTuple):
    """A programme of the ledger: how many seeds make the figure of a release, and how many a slice has."""

    name: str
    command: tuple[str, ...]
    seeds: int
    slice: int
    environment: Mapping[str, str] = {}

    def steps(self) -> Iterator[Step]:
        """Its slices."""
        for first in range(0, self.seeds, self.slice):
            count = min(self.slice, self.seeds - first)
            own = {"FIRST": str(first), "SEEDS": str(count), LEDGER: str(SLICES)}
            yield Step(f"{self.name}, seeds {first} to {first + count - 1}", self.command, {**self.environment, **own})


TIDY = "tests/turnfile/test_tidy.py"
FAST = ("-m", "pytest", "-q", "-s", "-n", "auto")
SLICED = (
    Sliced("kill", (*FAST, "tests/e2e/test_kill.py"), 10_000, 2_000),
    Sliced("power", (*FAST, "-k", "acknowledged_commit", "tests/power/test_power_loss.py"), 13, 2, ALL),
    Sliced("simulation", ("-m", "tests.simulation"), 5_000, 1_000),
    Sliced(
        "machines",
        (*FAST, "-k", "plain_model_does and not file", *(f"tests/conformance/test_{it}.py" for it in MACHINES)),
        110,
        22,
    ),
    Sliced("mixed", ("-m", "tests.mixed"), 42, 6),
    Sliced("generated", ("-m", "tests.http.schema_run", "--calls", "20000"), 1, 1),
    Sliced("stores", (*FAST, "-k", "damage_goes", "tests/unit/test_damaged_stores.py"), 1_000, 1_000),
    Sliced("backups", (*FAST, "-k", "damaged_backup", "tests/unit/test_damaged_stores.py"), 260, 260),
    Sliced("planted", (*PYTEST, "-q", "-s", "--timeout", "3600", "-k", "f10_planted", TIDY), 1_000, 125),
)
STEPS = (
    *(step for programme in SLICED for step in programme.steps()),
    Step("every test on every kind", ("-m", "pytest", "-q", "-n", "auto", "tests/conformance"), ALL),
    Step("replicas after a loss of power", (*PYTEST, "-q", "tests/power/test_replica_power_loss.py"), ALL),
    Step("faults of the engines", ("-m", "tests.faults"), ALL),
    Step("every race and every door", ("-m", "pytest", "-q", "-n", "auto", "tests/e2e", "tests/mcp"), ALL),
    Step("200 kills of the server", (*PYTEST, "tests/e2e/test_server_kill.py"), {"SERVER_KILL_CYCLES": "200"}),
    Step(
        "a storm of shells",
        (*PYTEST, "--timeout", "900", "-s", "tests/cli/test_storm.py"),
        {"CLI_STORM_TASKS": "1000", "CLI_STORM_LOOPS": "16"},
    ),
    Step("clones that share tasks", (*PYTEST, "-s", "tests/e2e/test_share_git.py"), ALL),
    Step("threads of LangGraph", (*PYTEST, "--timeout", "3000", "-s", "tests/langgraph/test_processes.py"), ALL),
    Step("20 sessions at once", (*PYTEST, "--timeout", "1800", "-s", "tests/cli/test_sessions.py"), ALL),
    Step("1,000 turns", (*PYTEST, "-s", "tests/turnfile/test_contention.py"), {"TURN_TRANSACTIONS": "1000"}),
    Step("advisories for the packages", ("-m", "tests.release.audit"), {}),
    Step("200,000 mangled turn files", (*PYTEST, "-s", "tests/turnfile/test_turn_fuzz.py"), {"TURN_FUZZ": "200000"}),
)


def main(words: list[str]) -> int:
    """Run every step that was asked for; 0 if each has passed."""
    journal = Journal(JOURNAL, state_of())
    JOURNAL.parent.mkdir(exist_ok=True)
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
