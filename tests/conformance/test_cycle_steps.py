"""The steps of a PEER cycle (P3): the table of transitions, row by row, with what each step writes and what it refuses.

Each refusal leaves the document and the workspace as they were.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from holdfast import errors
from holdfast.types.cycles import PhaseName
from tests.conformance.test_cycles import KEY, PHASES, bring_to, statuses, told
from tests.conformance.test_stashes import refused
from tests.worlds.kinds import World

pytestmark = pytest.mark.kinds("drawn")

DEEP: Any = "leaf"
for _ in range(126):  # a value may be so deep, but not inside a document
    DEEP = [DEEP]


# --- the table of transitions ----------------------------------------------------------------------------------------


def test_p3_each_step_is_written_with_its_time_its_sequence_and_its_history(world: World) -> None:
    ws = world.open()
    made = ws.cycles.start(spec="feature")
    started_at = made.metadata.created_at
    expected: list[tuple[str, str, int]] = []
    sequence = 1
    for number, phase in enumerate(PHASES):
        world.clock.advance(10)
        cycle = ws.cycles.start_phase(KEY, phase)
        sequence += 1
        expected.append((phase, "started", sequence))
        found = getattr(cycle.phases, phase)
        begun = found.started_at
        assert (begun - started_at).total_seconds() == 20 * number + 10
        assert (found.status, found.completed_at, found.output, found.errors) == ("in_progress", None, None, [])
        assert (found.sequence_at_start, found.sequence_at_complete) == (sequence, None)
        assert (cycle.metadata.status, cycle.metadata.current_phase) == ("in_progress", phase)
        world.clock.advance(10)
        cycle = ws.cycles.complete_phase(KEY, phase, {"number": number})
        sequence += 1
        expected.append((phase, "completed", sequence))
        found = getattr(cycle.phases, phase)
        assert (found.started_at, (found.completed_at - begun).total_seconds()) == (begun, 10)
        assert (found.status, found.output) == ("completed", {"number": number})
        assert (found.sequence_at_start, found.sequence_at_complete) == (sequence - 1, sequence)
        assert (cycle.metadata.status, cycle.metadata.current_phase) == ("in_progress", phase)
        assert (cycle.metadata.updated_at, cycle.metadata.created_at) == (found.completed_at, started_at)
        assert (cycle.sequence, told(cycle), ws.cycles.get(KEY)) == (sequence, expected, cycle)
        assert cycle.history[-1].timestamp == found.completed_at
    world.clock.advance(10)
    cycle = ws.cycles.finish(KEY)
    assert (cycle.sequence, cycle.metadata.status, cycle.metadata.current_phase) == (10, "completed", "review")
    assert told(cycle) == [*expected, ("review", "finished", 10)]
    assert cycle.metadata.updated_at == cycle.history[-1].timestamp
    assert ws.cycles.validate(ws.cycles.export(KEY)) == []


@pytest.mark.parametrize("phase", PHASES)
def test_p3_a_phase_starts_only_from_pending_after_a_completed_one(world: World, phase: PhaseName) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    place = PHASES.index(phase)
    for before in PHASES[:place]:
        refused(ws, errors.InvalidTransition, partial(ws.cycles.start_phase, KEY, phase))
        ws.cycles.start_phase(KEY, before)
        error: Any = refused(ws, errors.InvalidTransition, partial(ws.cycles.start_phase, KEY, phase))
        assert error.details["phases"][before] == "in_progress"
        ws.cycles.complete_phase(KEY, before, {"by": before})
    ws.cycles.start_phase(KEY, phase)
    refused(ws, errors.InvalidTransition, partial(ws.cycles.start_phase, KEY, phase))
    for other in PHASES[place + 1 :]:
        refused(ws, errors.InvalidTransition, partial(ws.cycles.start_phase, KEY, other))
    ws.cycles.complete_phase(KEY, phase, {"by": phase})
    for other in PHASES[: place + 1]:
        refused(ws, errors.InvalidTransition, partial(ws.cycles.start_phase, KEY, other))
    assert statuses(ws.cycles.get(KEY)) == ["completed"] * (place + 1) + ["pending"] * (3 - place)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("status", ["pending", "completed", "failed"])
def test_p3_only_a_phase_that_is_in_progress_is_completed_updated_or_fails(
    world: World, phase: PhaseName, status: str
) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    before = bring_to(ws, KEY, phase, status)
    assert getattr(before.phases, phase).status == status
    for other in PHASES:
        for call in (
            partial(ws.cycles.complete_phase, KEY, other, {"a": 1}),
            partial(ws.cycles.update_phase, KEY, other, {"a": 1}),
            partial(ws.cycles.fail_phase, KEY, other, "why"),
            partial(ws.cycles.add_error, KEY, other, "why"),
        ):
            refused(ws, errors.InvalidTransition, call)
    assert ws.cycles.get(KEY) == before


def test_p3_a_phase_is_completed_with_an_output_given_now_or_before(world: World) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    ws.cycles.start_phase(KEY, "plan")
    refused(ws, errors.InvalidTransition, lambda: ws.cycles.complete_phase(KEY, "plan"))
    ws.cycles.update_phase(KEY, "plan", {"steps": [1, 2]})
    assert ws.cycles.complete_phase(KEY, "plan").phases.plan.output == {"steps": [1, 2]}
    ws.cycles.start_phase(KEY, "execute")
    ws.cycles.update_phase(KEY, "execute", {"so": "far"})
    assert ws.cycles.complete_phase(KEY, "execute", "all").phases.execute.output == "all"
    outputs: list[Any] = [0, False]
    for phase, output in zip(PHASES[2:], outputs, strict=True):
        ws.cycles.start_phase(KEY, phase)
        assert getattr(ws.cycles.complete_phase(KEY, phase, output).phases, phase).output is output


def test_p3_a_phase_does_not_start_on_one_that_came_from_elsewhere_without_an_output(world: World) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    document = ws.cycles.export(bring_to(ws, KEY, "plan", "completed").cycle_id)
    del document["phases"]["plan"]["output"]
    document |= {"cycle_id": "peer:spec:feature:cycle:2", "metadata": {**document["metadata"], "cycle_number": 2}}
    ws.cycles.import_({"peer.spec.feature.cycle.2": document})
    error: Any = refused(ws, errors.InvalidTransition, lambda: ws.cycles.start_phase("peer:spec:feature", "execute"))
    assert "no output" in str(error)


def test_p3_an_update_is_a_merge_patch_and_leaves_no_entry_in_the_history(world: World) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    ws.cycles.start_phase(KEY, "plan")
    table: list[tuple[Any, Any]] = [
        ({"a": 1, "b": {"c": 2, "d": [1, 2]}}, {"a": 1, "b": {"c": 2, "d": [1, 2]}}),
        ({"b": {"c": None, "d": [3]}}, {"a": 1, "b": {"d": [3]}}),
        ({"a": None, "never": None, "e": {"f": {"g": None}}}, {"b": {"d": [3]}, "e": {"f": {}}}),
        ({"b": "text"}, {"b": "text", "e": {"f": {}}}),
        ({"b": {"new": True}}, {"b": {"new": True}, "e": {"f": {}}}),
        ({}, {"b": {"new": True}, "e": {"f": {}}}),
        ([1, None], [1, None]),
        ({"a": {"b": None}}, {"a": {}}),
        ("text", "text"),
        (None, None),
    ]
    for number, (patch, output) in enumerate(table):
        world.clock.advance(1)
        cycle = ws.cycles.update_phase(KEY, "plan", patch)
        assert (cycle.phases.plan.output, cycle.sequence) == (output, number + 3)
        assert cycle.metadata.updated_at > cycle.metadata.created_at
        assert told(cycle) == [("plan", "started", 2)]
    assert ws.cycles.validate(ws.cycles.export(KEY)) == []


def test_p3_errors_are_added_with_their_time_and_the_phase_goes_on(world: World) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    ws.cycles.start_phase(KEY, "plan")
    times = []
    for details in (None, {"attempt": 2, "more": {"file": "a"}}):
        world.clock.advance(1)
        cycle = ws.cycles.add_error(KEY, "plan", "no answer", details)
        times.append(ws.cycles.export(KEY)["metadata"]["updated_at"])
    assert cycle.phases.plan.errors == [
        {"timestamp": times[0], "message": "no answer"},
        {"timestamp": times[1], "message": "no answer", "attempt": 2, "more": {"file": "a"}},
    ]
    assert (cycle.phases.plan.status, cycle.sequence, told(cycle)) == ("in_progress", 4, [("plan", "started", 2)])
    cycle = ws.cycles.fail_phase(KEY, "plan", "no answer at all", {"code": 7})
    assert [each["message"] for each in cycle.phases.plan.errors or ()] == [
        "no answer",
        "no answer",
        "no answer at all",
    ]


@pytest.mark.parametrize(
    ("error", "details"),
    [
        ("", None),
        (None, None),
        (7, None),
        ({"message": "a"}, None),
        ("a", []),
        ("a", {"message": "b"}),
        ("a", {"t": b"x"}),
    ],
    ids=repr,
)
def test_p3_an_error_that_says_nothing_is_refused(world: World, error: Any, details: Any) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    ws.cycles.start_phase(KEY, "plan")
    refused(ws, errors.InvalidValue, lambda: ws.cycles.add_error(KEY, "plan", error, details))
    refused(ws, errors.InvalidValue, lambda: ws.cycles.fail_phase(KEY, "plan", error, details))
    if error is not None:
        refused(ws, errors.InvalidValue, lambda: ws.cycles.finish(KEY, error, details))


@pytest.mark.parametrize("phase", PHASES)
def test_p3_a_phase_that_fails_takes_the_cycle_with_it_and_nothing_more_happens(world: World, phase: PhaseName) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    bring_to(ws, KEY, phase)
    ws.cycles.update_phase(KEY, phase, {"so": "far"})
    failed = ws.cycles.fail_phase(KEY, phase, "it broke")
    found = getattr(failed.phases, phase)
    assert (failed.metadata.status, failed.metadata.current_phase, found.status) == ("failed", phase, "failed")
    assert (found.output, found.completed_at, found.sequence_at_complete) == ({"so": "far"}, None, None)
    assert told(failed)[-1] == (phase, "failed", failed.sequence)
    calls: list[Callable[[], object]] = [partial(ws.cycles.start_phase, KEY, each) for each in PHASES]
    calls += [lambda: ws.cycles.finish(KEY), lambda: ws.cycles.finish(KEY, "again")]
    for call in calls:
        refused(ws, errors.InvalidTransition, call)
    assert (ws.cycles.get(KEY), ws.cycles.start(spec="feature").metadata.cycle_number) == (failed, 2)


@pytest.mark.parametrize(("phase", "status"), [("plan", "pending"), *((phase, "in_progress") for phase in PHASES)])
def test_p3_a_cycle_is_completed_only_after_its_review(world: World, phase: PhaseName, status: str) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    before = bring_to(ws, KEY, phase, status)
    refused(ws, errors.InvalidTransition, lambda: ws.cycles.finish(KEY))
    assert ws.cycles.get(KEY) == before


@pytest.mark.parametrize(
    ("phase", "status", "where"),
    [
        ("plan", "pending", "plan"),
        *((phase, "in_progress", phase) for phase in PHASES),
        *zip(PHASES, ["completed"] * 4, (*PHASES[1:], "review"), strict=True),  # between two it is the next one's
    ],
)
def test_p3_a_cycle_can_be_ended_with_an_error_wherever_it_stands(
    world: World, phase: PhaseName, status: str, where: PhaseName
) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    before = bring_to(ws, KEY, phase, status)
    ended = ws.cycles.finish(KEY, "nobody wants it", {"by": "coordinator"})
    assert (ended.metadata.status, ended.sequence) == ("failed", before.sequence + 1)
    assert told(ended) == [*told(before), (where, "failed", ended.sequence)]
    (error,) = getattr(ended.phases, where).errors
    assert (error["message"], error["by"]) == ("nobody wants it", "coordinator")
    then = "failed" if status == "in_progress" else status
    assert statuses(ended) == [
        then if each == phase else old for each, old in zip(PHASES, statuses(before), strict=True)
    ]
    assert ws.cycles.validate(ws.cycles.export(KEY)) == []
    refused(ws, errors.InvalidTransition, lambda: ws.cycles.start_phase(KEY, "plan"))


def test_p3_a_finished_cycle_is_finished(world: World) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    bring_to(ws, KEY, None)
    done = ws.cycles.finish(KEY)
    calls: list[Callable[[], object]] = [lambda: ws.cycles.finish(KEY), lambda: ws.cycles.finish(KEY, "late")]
    for phase in PHASES:
        calls += [partial(ws.cycles.start_phase, KEY, phase), partial(ws.cycles.update_phase, KEY, phase, {"a": 1})]
        calls += [partial(ws.cycles.add_error, KEY, phase, "late")]
    for call in calls:
        refused(ws, errors.InvalidTransition, call)
    refused(ws, errors.Invalid, lambda: ws.cycles.finish(KEY, details={"of": "no error"}))
    assert ws.cycles.get(KEY) == done


@pytest.mark.parametrize("phase", ["", "Plan", "planning", "finish", None, 7, ["plan"]], ids=repr)
def test_p3_what_is_no_phase_is_an_invalid_id(world: World, phase: Any) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    for call in (ws.cycles.start_phase, ws.cycles.complete_phase):
        refused(ws, errors.InvalidID, partial(call, KEY, phase))
    for call_with in (ws.cycles.update_phase, ws.cycles.fail_phase, ws.cycles.add_error):
        refused(ws, errors.InvalidID, partial(call_with, KEY, phase, "text"))


@pytest.mark.parametrize("output", [{"a": float("inf")}, {"a": 2**63}, {"a": [b"x"]}, "\ud800"], ids=repr)
def test_p3_an_output_that_no_document_can_have_is_refused(world: World, output: Any) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    before = ws.cycles.start_phase(KEY, "plan")
    for call in (ws.cycles.update_phase, ws.cycles.complete_phase):
        refused(ws, errors.InvalidValue, partial(call, KEY, "plan", output))
    assert ws.cycles.get(KEY) == before


def test_p3_an_output_that_fits_by_itself_and_not_into_the_document_is_refused(world: World) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    before = ws.cycles.start_phase(KEY, "plan")
    for output in (DEEP, "x" * (1024 * 1024 - 100)):
        refused(ws, errors.InvalidValue, partial(ws.cycles.complete_phase, KEY, "plan", output))
    assert ws.cycles.get(KEY) == before
    assert ws.cycles.complete_phase(KEY, "plan", "x" * 500_000).sequence == 3
