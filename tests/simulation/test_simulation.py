"""The simulation in CI: a thousand seeds hold, every kind of fault was met, and a seed repeats itself exactly."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.kernel import failpoints
from tests.simulation.campaign import KINDS, campaign
from tests.simulation.run import FAULTS, OPERATIONS, play
from tests.simulation.workload import OPERATIONS as WORKLOAD

FIRST = 70
SEEDS = 1000
ROOT = Path(__file__).parents[2]
# Reached only where there is no log, so by other tests.
NOT_HERE = {"backup.copied", "backup.published"}


def test_the_first_seeds_hold(caplog: pytest.LogCaptureFixture) -> None:
    """Stops at the first that does not, so that a mistake in the source shows at once."""
    caplog.set_level(logging.CRITICAL, logger="holdfast")
    for seed in range(FIRST):
        play(seed)


@pytest.mark.timeout(1800)
def test_a_thousand_seeds_hold(capsys: pytest.CaptureFixture[str]) -> None:
    tally = campaign(range(SEEDS))
    with capsys.disabled():
        print(f"\nsimulation: {tally}")
    assert tally.failures == {}
    assert tally.seeds == SEEDS
    assert tally.fewest_operations >= OPERATIONS >= 200
    assert tally.fewest_faults >= FAULTS >= 10
    assert [kind for kind in KINDS if not tally.faults[kind]] == []
    assert set(tally.faults) == set(KINDS)
    assert set(tally.done) == set(WORKLOAD)
    assert set(failpoints.NAMES) - NOT_HERE <= set(tally.reached)


@pytest.mark.parametrize("seed", [3, 1003])
def test_a_seed_replays_byte_for_byte_in_another_process(seed: int) -> None:
    def show(hash_seed: str) -> str:
        environment = {**os.environ, "SEED": str(seed), "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-m", "tests.simulation"]
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=100
        ).stdout

    first = show("1")
    assert f"seed {seed} holds" in first
    assert len(first.splitlines()) > OPERATIONS
    assert show("2") == first
