"""Steps that were meant for an older document of a cycle (P4): merged, skipped or refused, and each of it is logged.

A step that says which sequence it read is never written over what somebody else did to the same phase. Without a
sequence a step is for the document as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from holdfast import Transaction, Workspace, errors
from holdfast.testing.crowd import together
from holdfast.types.cycles import Cycle, PhaseName
from tests.conformance.test_cycles import KEY, PHASES, bring_to, statuses, told
from tests.conformance.test_stashes import refused
from tests.worlds.kinds import World

pytestmark = pytest.mark.kinds("drawn")

callables = pytest.mark.capability("callables")


def conflicts(ws: Workspace, key: str = KEY) -> list[tuple[str, str, dict[str, Any]]]:
    """What the log says of conflicts: how each ended, whose it was, and what was wanted."""
    return [(event.op, event.actor, event.data) for event in ws.events.list(kinds=["cycle-conflict"], id=key)]


def conflicting(ws: Workspace, call: Callable[[], object]) -> errors.CycleConflict:
    """The refusal of a stale step, which leaves the document as it was and one event that tells of it."""
    before, known = ws.cycles.export(KEY), len(conflicts(ws))
    with pytest.raises(errors.CycleConflict) as caught:
        call()
    assert ws.cycles.export(KEY) == before
    assert len(conflicts(ws)) == known + 1
    return caught.value


def refusals(ws: Workspace, key: str = KEY) -> list[str]:
    """How the conflicts ended, in order."""
    return [how for how, _, _ in conflicts(ws, key)]


# --- nothing happened meanwhile --------------------------------------------------------------------------------------


def test_p4_a_step_with_the_sequence_that_is_there_is_taken_and_adds_1(world: World) -> None:
    ws = world.open()
    sequence = ws.cycles.start(spec="feature").sequence
    for phase in PHASES:
        for call in (
            partial(ws.cycles.start_phase, KEY, phase),
            partial(ws.cycles.update_phase, KEY, phase, {"a": 1}),
            partial(ws.cycles.add_error, KEY, phase, "odd"),
            partial(ws.cycles.complete_phase, KEY, phase, {"b": 2}),
        ):
            assert call(sequence=sequence).sequence == sequence + 1
            sequence += 1
    assert ws.cycles.finish(KEY, sequence=sequence).sequence == sequence + 1 == 18
    assert conflicts(ws) == []


@pytest.mark.parametrize("sequence", [0, -1, True, 1.0, "1"], ids=repr)
def test_p4_what_is_no_sequence_is_invalid(world: World, sequence: Any) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    with pytest.raises(errors.Invalid):
        ws.cycles.start_phase(KEY, "plan", sequence=sequence)
    with pytest.raises(errors.Invalid):
        ws.cycles.finish(KEY, "why", sequence=sequence)
    assert (ws.cycles.get(KEY).sequence, ws.revision) == (1, 1)


def test_p4_a_sequence_that_was_never_written_is_invalid_and_no_conflict(world: World) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    ws.cycles.start_phase(KEY, "plan")
    for sequence in (3, 42, 2**62):
        refused(ws, errors.Invalid, partial(ws.cycles.update_phase, KEY, "plan", {"a": 1}, sequence=sequence))
    assert conflicts(ws) == []


# --- merged ----------------------------------------------------------------------------------------------------------


def test_p4_a_step_is_merged_with_what_others_did_to_other_phases(world: World) -> None:
    coordinator, planner, executor = world.open("coordinator"), world.open("planner"), world.open("executor")
    coordinator.cycles.start(spec="feature")
    planner.cycles.start_phase(KEY, "plan", sequence=1)
    seen = executor.cycles.get(KEY).sequence
    coordinator.cycles.add_error(KEY, "plan", "slow")
    planner.cycles.complete_phase(KEY, "plan", {"steps": 3})
    merged = executor.cycles.start_phase(KEY, "execute", sequence=seen)
    assert (merged.sequence, statuses(merged)) == (5, ["completed", "in_progress", "pending", "pending"])
    assert merged.phases.plan.output == {"steps": 3}
    assert [error["message"] for error in merged.phases.plan.errors or ()] == ["slow"]
    assert told(merged) == [("plan", "started", 2), ("plan", "completed", 4), ("execute", "started", 5)]
    assert conflicts(coordinator) == [
        ("merge", "executor", {"step": "start_phase", "phase": "execute", "expected": 2, "sequence": 4})
    ]


@pytest.mark.parametrize("phase", PHASES[1:])
def test_p4_every_phase_can_be_started_by_one_who_read_before_the_last_was_completed(
    world: World, phase: PhaseName
) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    before = PHASES[PHASES.index(phase) - 1]
    seen = bring_to(ws, KEY, before).sequence
    for number in range(3):
        ws.cycles.update_phase(KEY, before, {"so far": number})
    ws.cycles.complete_phase(KEY, before)
    merged = ws.cycles.start_phase(KEY, phase, sequence=seen)
    assert (merged.sequence, getattr(merged.phases, before).output) == (seen + 5, {"so far": 2})
    assert refusals(ws) == ["merge"]


def test_p4_a_merge_obeys_the_table_of_transitions(world: World) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    seen = ws.cycles.start_phase(KEY, "plan").sequence
    ws.cycles.add_error(KEY, "plan", "slow")
    refused(ws, errors.InvalidTransition, lambda: ws.cycles.start_phase(KEY, "execute", sequence=seen))
    refused(ws, errors.InvalidTransition, lambda: ws.cycles.complete_phase(KEY, "execute", {"a": 1}, sequence=seen))
    ws.cycles.fail_phase(KEY, "plan", "it broke")
    refused(ws, errors.InvalidTransition, lambda: ws.cycles.start_phase(KEY, "execute", sequence=seen))
    assert conflicts(ws) == []


# --- skipped ---------------------------------------------------------------------------------------------------------


def test_p4_work_that_somebody_else_has_done_is_skipped_and_nothing_is_written(world: World) -> None:
    one, two = world.open("one"), world.open("two")
    one.cycles.start(spec="feature")
    skipped: list[Callable[..., Cycle]] = [
        partial(two.cycles.complete_phase, KEY, "plan", {"steps": 3}),
        partial(two.cycles.complete_phase, KEY, "plan"),
        partial(two.cycles.update_phase, KEY, "plan", {"steps": 3}),
        partial(two.cycles.update_phase, KEY, "plan", {"never": None}),
        partial(two.cycles.start_phase, KEY, "plan"),
    ]
    seen = one.cycles.start_phase(KEY, "plan").sequence
    done = one.cycles.complete_phase(KEY, "plan", {"steps": 3})
    for call in skipped:
        assert call(sequence=seen) == done
    assert one.cycles.get(KEY) == done
    assert refusals(one) == ["skip"] * len(skipped)
    assert conflicts(one)[0] == (
        *("skip", "two"),
        {"step": "complete_phase", "phase": "plan", "expected": 2, "sequence": 3},
    )


def test_p4_a_failure_and_an_end_that_are_there_already_are_skipped(world: World) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    seen = ws.cycles.start_phase(KEY, "plan").sequence
    failed = ws.cycles.fail_phase(KEY, "plan", "it broke", {"code": 7})
    assert ws.cycles.fail_phase(KEY, "plan", "it broke", {"code": 7}, sequence=seen) == failed
    assert ws.cycles.finish(KEY, "it broke", sequence=seen) == failed
    other = ws.cycles.start(spec="feature").cycle_id
    seen = bring_to(ws, other, None).sequence
    done = ws.cycles.finish(other)
    assert ws.cycles.finish(other, sequence=seen) == done
    assert (refusals(ws), refusals(ws, other)) == (["skip", "skip"], ["skip"])


def test_p4_what_is_only_nearly_the_same_is_not_skipped(world: World) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    seen = ws.cycles.start_phase(KEY, "plan").sequence
    ws.cycles.update_phase(KEY, "plan", {"ready": 1, "of": 2.0})
    patch: Any
    output: Any
    for patch in ({"ready": True}, {"ready": 1.0}, {"of": 2}, {"ready": None}, {"ready": {}}, {"more": 0}):
        conflicting(ws, partial(ws.cycles.update_phase, KEY, "plan", patch, sequence=seen))
    ws.cycles.complete_phase(KEY, "plan", {"ready": 1})
    for output in ({"ready": True}, {"ready": 1.0}, {"ready": 1, "more": 0}, {}, [1]):
        conflicting(ws, partial(ws.cycles.complete_phase, KEY, "plan", output, sequence=seen))
    assert set(refusals(ws)) == {"refuse"}


# --- refused ---------------------------------------------------------------------------------------------------------


def test_p4_what_others_did_to_the_same_phase_is_not_overwritten_and_both_sides_are_shown(world: World) -> None:
    one, two = world.open("one"), world.open("two")
    one.cycles.start(spec="feature")
    seen = one.cycles.start_phase(KEY, "plan").sequence
    one.cycles.update_phase(KEY, "plan", {"steps": 3})
    error = conflicting(two, lambda: two.cycles.update_phase(KEY, "plan", {"steps": 4}, sequence=seen))
    details = error.details
    assert (error.expected, details["version"], details["key"], details["phase"]) == (2, 3, KEY, "plan")
    assert (details["mine"], details["theirs"]["output"]) == ({"output": {"steps": 4}}, {"steps": 3})
    assert (KEY in str(error), "one changed plan" in str(error)) == (True, True)
    assert conflicts(one) == [
        ("refuse", "two", {"step": "update_phase", "phase": "plan", "expected": 2, "sequence": 3})
    ]
    again = two.cycles.update_phase(KEY, "plan", {"steps": 4}, sequence=details["version"])
    assert (again.phases.plan.output, again.sequence) == ({"steps": 4}, 4)


@pytest.mark.parametrize("step", ["start", "update", "complete", "fail", "error", "finish", "end"])
def test_p4_every_step_is_refused_if_its_phase_was_changed_meanwhile(world: World, step: str) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    seen = 1 if step == "start" else bring_to(ws, KEY, "review" if step == "finish" else "plan").sequence
    if step == "start":
        ws.cycles.start_phase(KEY, "plan")
    elif step == "finish":
        ws.cycles.complete_phase(KEY, "review", {"fine": True})
    else:
        ws.cycles.add_error(KEY, "plan", "slow")
    calls: dict[str, Callable[[], object]] = {
        "start": lambda: ws.cycles.start_phase(KEY, "plan", sequence=seen),
        "update": lambda: ws.cycles.update_phase(KEY, "plan", {"a": 1}, sequence=seen),
        "complete": lambda: ws.cycles.complete_phase(KEY, "plan", {"a": 1}, sequence=seen),
        "fail": lambda: ws.cycles.fail_phase(KEY, "plan", "why", sequence=seen),
        "error": lambda: ws.cycles.add_error(KEY, "plan", "slow", sequence=seen),
        "finish": lambda: ws.cycles.finish(KEY, sequence=seen),
        "end": lambda: ws.cycles.finish(KEY, "why", sequence=seen),
    }
    error = conflicting(ws, calls[step])
    theirs = error.details["theirs"]
    assert theirs["status"] == "in_progress"
    assert ("key_prefix" in theirs) == (step in ("finish", "end")), "of the whole cycle, its metadata"
    assert refusals(ws) == ["refuse"]


def test_p4_after_a_recovery_or_an_import_nobody_knows_which_phase_was_changed(world: World) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    seen = ws.cycles.start_phase(KEY, "plan").sequence
    document = ws.cycles.export(KEY)
    document["sequence"] += 1
    document["phases"]["plan"]["output"] = {"from": "elsewhere"}
    assert ws.cycles.import_({KEY: document}).updated["cycles"] == [KEY]
    ws.cycles.complete_phase(KEY, "plan")
    error = conflicting(ws, lambda: ws.cycles.start_phase(KEY, "execute", sequence=seen))
    assert error.details["theirs"] == {"status": "pending"}


def test_p4_what_the_log_does_not_tell_any_more_is_refused(world: World) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    seen = ws.cycles.start_phase(KEY, "plan").sequence
    ws.cycles.update_phase(KEY, "plan", {"a": 1})
    ws.cycles.complete_phase(KEY, "plan")
    ws.events.compact(ws.revision + 1)
    error = conflicting(ws, lambda: ws.cycles.start_phase(KEY, "execute", sequence=seen))
    assert "no longer has" in str(error)
    assert ws.cycles.start_phase(KEY, "execute", sequence=4).sequence == 5


@pytest.mark.kinds("every")
def test_p4_of_those_who_write_with_the_same_sequence_one_is_written(world: World) -> None:
    handles = [world.open(f"agent-{number}") for number in range(5)]
    handles[0].cycles.start(spec="feature")
    sequence = handles[0].cycles.start_phase(KEY, "plan").sequence

    def update(ws: Workspace, sequence: int) -> str | None:
        try:
            return str(
                ws.cycles.update_phase(KEY, "plan", {"by": ws.actor}, sequence=sequence).phases.plan.output["by"]
            )
        except errors.CycleConflict:
            return None

    for round in range(3):
        won = [name for name in together(*(partial(update, ws, sequence + round) for ws in handles)) if name]
        assert [handles[0].cycles.get(KEY).phases.plan.output["by"]] == won
    assert handles[0].cycles.get(KEY).sequence == sequence + 3
    assert refusals(handles[0]) == ["refuse"] * 12


@pytest.mark.kinds("every")
def test_p4_those_who_state_no_sequence_are_all_written(world: World) -> None:
    handles = [world.open(f"agent-{number}") for number in range(5)]
    handles[0].cycles.start(spec="feature")
    handles[0].cycles.start_phase(KEY, "plan")
    together(*(partial(ws.cycles.update_phase, KEY, "plan", {ws.actor: True}) for ws in handles))
    cycle = handles[0].cycles.get(KEY)
    assert (cycle.phases.plan.output, cycle.sequence) == ({ws.actor: True for ws in handles}, 7)
    assert conflicts(handles[0]) == []


@callables
def test_p4_a_conflict_inside_a_transaction_leaves_nothing_of_it(world: World) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    seen = ws.cycles.start_phase(KEY, "plan").sequence
    ws.cycles.update_phase(KEY, "plan", {"a": 1})

    def body(tx: Transaction) -> None:
        tx.cells.set("run", "cell", 1)
        tx.cycles.update_phase(KEY, "plan", {"a": 2}, sequence=seen)

    refused(ws, errors.CycleConflict, lambda: ws.transact(body))
    assert (ws.cells.list("run"), ws.cycles.get(KEY).phases.plan.output) == ([], {"a": 1})
