"""The state machine of tasks against the plain model: thousands of steps, and every rule often enough to count.

Each seed is a run of some thousand steps; `FIRST` and `SEEDS` choose other seeds.
"""

from __future__ import annotations

import os
import tempfile
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as seeded
from hypothesis.stateful import run_state_machine_as_test

import holdfast
from holdfast.kernel.engine import Engine
from holdfast.testing import ManualClock
from holdfast.workspace import Workspace
from holdfast.workspace.context import Context
from tests.amounts import amount, first_seed
from tests.conformance.task_bench import DONE
from tests.conformance.task_machine import FIRED, RULES, TaskMachine
from tests.long.ledger import record
from tests.worlds.kinds import MemoryWorld, World

STEPS = amount(3_000, 20_000)
LEAST = amount(30, 100)  # times that every rule fires
DONE_LEAST = amount(6, 30)  # times that every operation is not refused
EXAMPLES = 20  # between two looks at the counts
MOST_LOOKS = 40
SEEDS = int(os.environ.get("SEEDS") or 0)  # of a slice; else until there are enough steps

SETTINGS = settings(
    max_examples=EXAMPLES,
    stateful_step_count=80,
    deadline=None,
    database=None,
    derandomize=False,
    report_multiple_bugs=False,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.early
@pytest.mark.timeout(600 + 60 * SEEDS)
def test_t1_to_t14_tasks_do_what_the_plain_model_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def make_world() -> World:
        return MemoryWorld(Path(tempfile.mkdtemp(dir=tmp_path)))

    FIRED.clear()
    DONE.clear()
    first = first_seed()
    for seed in range(first, first + (SEEDS or MOST_LOOKS)):
        machine = type("TaskMachine", (TaskMachine,), {"make_world": staticmethod(make_world)})
        run_state_machine_as_test(seeded(seed)(machine), settings=SETTINGS)
        often = min(FIRED[name] for name in RULES) >= LEAST and min(DONE.values()) >= DONE_LEAST
        if not SEEDS and FIRED.total() >= STEPS and often:
            break
    with capsys.disabled():
        record("machines", range(first, seed + 1), FIRED.total(), 0, of_tasks=FIRED.total())
        print(f"\nstate machine of tasks: {FIRED.total()} steps, every rule at least {min(FIRED.values())} times")
        print("  " + ", ".join(f"{name} {FIRED[name]}" for name in RULES))
        print("  not refused: " + ", ".join(f"{op} {count}" for op, count in sorted(DONE.items())))
    assert FIRED.total() >= STEPS
    assert min(FIRED[name] for name in RULES) >= LEAST
    assert min(DONE.values()) >= DONE_LEAST


# --- what machines and judges met, by force ---------------------------------------------------------------------------


def test_the_check_finds_nothing_however_often_a_sound_store_is_checked() -> None:
    """A connection that has looked at the search index once must not judge it by what it remembers."""
    with holdfast.open(":memory:", actor="ann", clock=ManualClock()) as ws:
        for number in range(40):
            ws.tasks.create(f"task {number}", body="text")
            assert ws.check().problems == []


def test_t6_a_claim_that_is_parked_until_a_time_is_not_stale_before_it() -> None:
    clock = ManualClock()
    with holdfast.open(":memory:", actor="ann", clock=clock) as ws:
        task = ws.tasks.create("ask a person")
        ws.tasks.claim(task.id, "ann", ttl=60)
        ws.tasks.park(task.id, task.created_at + timedelta(days=1), "ann")
        clock.advance(3600)
        assert ws.tasks.release_stale_claims(timeout=600) == 0
        assert ws.tasks.get(task.id).claimed_by == "ann"


def test_t8_explain_sees_no_claim_of_a_child_that_is_past_its_deadline(tmp_path: Path) -> None:
    """On a node that cannot sweep just now: whoever reads the child sees it open."""
    clock = ManualClock()
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "config.yaml").write_text("parents: independent\n")
    with Workspace(Engine(tmp_path / "store", clock=clock, pulse=False), Context("ann")) as ws:
        parent = ws.tasks.create("parent")
        child = ws.tasks.create("child", parent_id=parent.id)
        ws.tasks.claim(child.id, "ann", ttl=5)
        clock.advance(6)
        assert ws.tasks.get(child.id).status == "open"
        assert ws.tasks.explain(parent.id).reasons == ()


def test_t12_a_task_that_depends_on_its_deleted_parent_is_not_ready_in_that_moment() -> None:
    """Deleting the parent frees the child, which is deleted along with it: nobody may get it."""
    with holdfast.open(":memory:", actor="ann", clock=ManualClock()) as ws:
        parent = ws.tasks.create("parent")
        child = ws.tasks.create("child", parent_id=parent.id, tags=["api"])
        ws.tasks.depend(child.id, parent.id)
        assert ws.tasks.delete(parent.id) == 2
        assert ws.check().problems == []
        assert ws.tasks.ready(tags=["api"]) == []
        assert ws.tasks.claim_next("bob", tags=["api"]) is None


def test_t5_a_move_that_changes_nothing_answers_the_renewed_deadline() -> None:
    clock = ManualClock()
    with holdfast.open(":memory:", actor="ann", clock=clock) as ws:
        task = ws.tasks.create("stays where it is")
        ws.tasks.claim(task.id, "ann", ttl=60)
        clock.advance(10)
        moved = ws.tasks.reparent(task.id, None)
        assert moved == ws.tasks.get(task.id)
        assert moved.deadline == task.created_at + timedelta(seconds=70)
