"""The state machine against the plain model: thousands of steps, and every rule often enough to count.

Each seed is a run of some thousand steps; `FIRST` and `SEEDS` choose other seeds.
"""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as seeded
from hypothesis.stateful import run_state_machine_as_test

import holdfast
from holdfast.domains.cell_history import find_cell
from holdfast.kernel.tx import Snapshot
from holdfast.testing import ManualClock
from tests.amounts import amount, first_seed
from tests.conformance.machine import FIRED, RULES, Machine
from tests.long.ledger import record
from tests.worlds.kinds import FileWorld, MemoryWorld, World

STEPS = amount(3_000, 20_000)
LEAST = amount(30, 100)  # times that every rule fires
FILE_STEPS = 1_000
EXAMPLES = 20  # between two looks at the counts
MOST_LOOKS = 60
SEEDS = int(os.environ.get("SEEDS") or 0)  # of a slice; else until there are enough steps

SETTINGS = settings(
    max_examples=EXAMPLES,
    stateful_step_count=50,
    deadline=None,
    database=None,
    derandomize=False,
    report_multiple_bugs=False,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)


def drive(kind: type[World], folder: Path, steps: int, least: int) -> range:
    """Run machines on fresh workspaces of a kind until there were enough steps and every rule fired often enough."""

    def make_world() -> World:
        return kind(Path(tempfile.mkdtemp(dir=folder)))

    FIRED.clear()
    first = first_seed()
    for seed in range(first, first + (SEEDS or MOST_LOOKS)):
        machine = type("Machine", (Machine,), {"make_world": staticmethod(make_world)})
        run_state_machine_as_test(seeded(seed)(machine), settings=SETTINGS)
        if not SEEDS and FIRED.total() >= steps and min(FIRED[name] for name in RULES) >= least:
            break
    assert FIRED.total() >= steps
    assert min(FIRED[name] for name in RULES) >= least
    return range(first, seed + 1)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Machines put the clock back on purpose: the warnings about it would bury a failure."""
    caplog.set_level(logging.ERROR, logger="holdfast")


@pytest.mark.early
@pytest.mark.timeout(400 + 60 * SEEDS)
def test_a_workspace_does_what_the_plain_model_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seeds = drive(MemoryWorld, tmp_path, STEPS, LEAST)
    with capsys.disabled():
        record("machines", seeds, FIRED.total(), 0, of_cells=FIRED.total())
        print(f"\nstate machine on memory: {FIRED.total()} steps, every rule at least {min(FIRED.values())} times")
        print("  " + ", ".join(f"{name} {FIRED[name]}" for name in RULES))


def test_a_workspace_in_a_file_does_what_the_plain_model_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drive(FileWorld, tmp_path, FILE_STEPS, 1)
    with capsys.disabled():
        print(f"\nstate machine on file: {FIRED.total()} steps, every rule at least {min(FIRED.values())} times")


def test_c12_a_reader_on_an_old_snapshot_does_not_turn_the_time_back() -> None:
    """What a machine met once in a hundred thousand steps, by force: the wall clock is behind, a reader holds on."""
    clock = ManualClock()
    with holdfast.open(":memory:", actor="ann", clock=clock) as ws:
        ws.cells.set("run", "cell", 1, ttl=10 * 3600)
        clock.jump(-24 * 3600)

        def hold_on(snapshot: Snapshot) -> None:
            assert find_cell(snapshot, "run", "cell")
            clock.advance(600)
            ws.cells.set("run", "other", 1)
            clock.advance(3600)
            before = ws.cells.ttl("run", "cell")
            assert find_cell(snapshot, "run", "cell")
            assert ws.cells.ttl("run", "cell") == before == 10 * 3600 - 4200

        ws._engine.read_snapshot(hold_on)
