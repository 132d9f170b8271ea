"""Cycles afterwards (P5-P7): listed, resumed, validated, exported as they were, recovered and deleted."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from holdfast import errors
from holdfast.types.cycles import CycleInfo, PhaseName
from tests.conformance.test_cycles import KEY, PHASES, bring_to
from tests.conformance.test_stashes import refused
from tests.worlds.kinds import World

pytestmark = pytest.mark.kinds("drawn")

SECRET = {"password": "hunter2"}


def keys(infos: list[CycleInfo]) -> list[str]:
    """The keys of a list, without their beginning."""
    return [info.key.removeprefix("peer:") for info in infos]


# --- lists -----------------------------------------------------------------------------------------------------------


def test_p11_a_list_is_by_prefix_and_number_filtered_by_all_that_is_given_and_cut_into_pages(world: World) -> None:
    ws = world.open()
    assert ws.cycles.list() == []
    for number in range(12):
        ws.cycles.start(spec="b")
        if number < 2:
            ws.cycles.start(spec="a")
            ws.cycles.start(instruction="a")
            ws.cycles.start()
    bring_to(ws, "peer:spec:b:cycle:10", "plan", "failed")
    bring_to(ws, "peer:spec:b:cycle:2", "execute")
    bring_to(ws, "peer:spec:a:cycle:1", None)
    ws.cycles.finish("peer:spec:a:cycle:1")
    every = [
        *("global:cycle:1", "global:cycle:2", "instruction:a:cycle:1", "instruction:a:cycle:2"),
        *("spec:a:cycle:1", "spec:a:cycle:2", *(f"spec:b:cycle:{number}" for number in range(1, 13))),
    ]
    assert keys(ws.cycles.list()) == every
    assert keys(ws.cycles.list(spec="a")) == every[4:6]
    assert keys(ws.cycles.list(instruction="a")) == every[2:4]
    assert keys(ws.cycles.list(status="failed")) == ["spec:b:cycle:10"]
    assert keys(ws.cycles.list(status="completed", spec="a")) == ["spec:a:cycle:1"]
    assert keys(ws.cycles.list(status="in_progress", limit=1)) == ["spec:b:cycle:2"]
    assert keys(ws.cycles.list(status="initialized", spec="b", limit=3)) == [f"spec:b:cycle:{n}" for n in (1, 3, 4)]
    assert ws.cycles.list(spec="nobody") == ws.cycles.list(spec="a", status="failed") == []
    for limit in (1, 2, 5, 18, 19):
        found: list[str] = []
        while page := ws.cycles.list(limit=limit, after=f"peer:{found[-1]}" if found else ""):
            assert len(page) <= limit
            found += keys(page)
        assert found == every
    assert keys(ws.cycles.list(spec="b", after="peer.spec.b.cycle.10")) == every[-2:]


def test_p11_a_line_of_the_list_says_where_a_cycle_stands(world: World) -> None:
    ws = world.open()
    made = ws.cycles.start(spec="feature")
    (info,) = ws.cycles.list()
    assert (info.key, info.number, info.sequence, info.status, info.revision) == (KEY, 1, 1, "initialized", 1)
    assert (info.current_phase, info.created_at) == (None, made.metadata.created_at)
    world.clock.advance(5)
    cycle = bring_to(ws, KEY, "execute")
    (info,) = ws.cycles.list()
    assert (info.sequence, info.status, info.current_phase) == (4, "in_progress", "execute")
    assert (info.created_at, info.updated_at) == (made.metadata.created_at, cycle.metadata.updated_at)
    assert info.revision == ws.revision == 4


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": 1001}, {"limit": "1"}, {"status": "broken"}, {"status": 7}])
def test_p11_a_filter_that_makes_no_sense_is_refused(world: World, wrong: dict[str, Any]) -> None:
    ws = world.open()
    refused(ws, errors.InvalidFilter, lambda: ws.cycles.list(**wrong))
    for after in ("peer:spec:a", "somewhere"):
        refused(ws, errors.InvalidID, partial(ws.cycles.list, after=after))


# --- continue --------------------------------------------------------------------------------------------------------


def test_p7_where_there_is_no_cycle_there_is_nothing_to_resume(world: World) -> None:
    ws = world.open()
    ws.cycles.start(spec="other")
    for args in ({}, {"spec": "feature"}, {"instruction": "other"}):
        refused(ws, errors.NotFound, partial(ws.cycles.resume, **args))
    ws.cycles.start(spec="gone")
    ws.cycles.finish("peer:spec:gone", "enough")
    ws.cycles.delete("peer:spec:gone:cycle:1")
    refused(ws, errors.NotFound, lambda: ws.cycles.resume(spec="gone"))


def test_p7_a_cycle_that_has_not_begun_is_resumed_with_its_plan(world: World) -> None:
    ws = world.open()
    made = ws.cycles.start(instruction="feature")
    found = ws.cycles.resume(instruction="feature")
    assert (found.cycle, found.phase, found.started, found.partial) == (made, "plan", False, None)


@pytest.mark.parametrize("phase", PHASES)
def test_p7_a_phase_in_progress_is_resumed_with_what_it_has_so_far(world: World, phase: PhaseName) -> None:
    ws, other = world.open("a"), world.open("b")
    ws.cycles.start(spec="feature")
    bring_to(ws, KEY, phase)
    found = other.cycles.resume(spec="feature")
    assert (found.phase, found.started, found.partial) == (phase, True, None)
    cycle = ws.cycles.update_phase(KEY, phase, {"so": ["far"]})
    found = other.cycles.resume(spec="feature")
    assert (found.cycle, found.phase, found.started, found.partial) == (cycle, phase, True, {"so": ["far"]})
    other.cycles.complete_phase(found.cycle.cycle_id, phase, sequence=found.cycle.sequence)


@pytest.mark.parametrize("phase", PHASES[:-1])
def test_p7_between_phases_the_next_one_is_resumed(world: World, phase: PhaseName) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    cycle = bring_to(ws, KEY, phase, "completed")
    found = ws.cycles.resume(spec="feature")
    then = PHASES[PHASES.index(phase) + 1]
    assert (found.cycle, found.phase, found.started, found.partial) == (cycle, then, False, None)


def test_p7_when_all_phases_are_completed_only_the_end_is_left(world: World) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    bring_to(ws, KEY, None)
    found = ws.cycles.resume(spec="feature")
    assert (found.phase, found.started, found.partial) == (None, False, None)
    ws.cycles.finish(found.cycle.cycle_id)
    error: Any = refused(ws, errors.CycleCompleted, lambda: ws.cycles.resume(spec="feature"))
    assert (error.details["key"], KEY in str(error)) == (KEY, True)


@pytest.mark.parametrize("phase", PHASES)
def test_p7_a_failed_cycle_is_not_resumed_and_its_phase_and_reason_are_told(world: World, phase: PhaseName) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    bring_to(ws, KEY, phase)
    ws.cycles.add_error(KEY, phase, "slow")
    ws.cycles.fail_phase(KEY, phase, "no disk left")
    error: Any = refused(ws, errors.CycleFailed, lambda: ws.cycles.resume(spec="feature"))
    assert (error.details["key"], error.details["phase"], error.details["reason"]) == (KEY, phase, "no disk left")
    assert "no disk left" in str(error)


def test_p7_a_cycle_that_was_ended_between_phases_tells_its_reason(world: World) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    bring_to(ws, KEY, "execute", "completed")
    ws.cycles.finish(KEY, "nobody wants it")
    error: Any = refused(ws, errors.CycleFailed, lambda: ws.cycles.resume(spec="feature"))
    assert (error.details["phase"], error.details["reason"]) == ("express", "nobody wants it")
    ws.cycles.start(spec="feature")
    ws.cycles.finish("peer:spec:feature", "before it began")
    error = refused(ws, errors.CycleFailed, lambda: ws.cycles.resume(spec="feature"))
    assert (error.details["key"], error.details["reason"]) == ("peer:spec:feature:cycle:2", "before it began")


def test_p7_an_older_cycle_that_is_not_at_its_end_is_resumed_also_behind_those_that_are(world: World) -> None:
    ws = world.open()
    for number in range(4):
        ws.cycles.start(spec="feature")
        bring_to(ws, "peer:spec:feature", (None, "express", "review", None)[number])
    ws.cycles.finish("peer:spec:feature:cycle:4")
    ws.cycles.fail_phase("peer:spec:feature:cycle:3", "review", "bad")
    found = ws.cycles.resume(spec="feature")
    assert (found.cycle.cycle_id, found.phase) == ("peer:spec:feature:cycle:2", "express")
    ws.cycles.finish("peer:spec:feature:cycle:2", "enough")
    assert ws.cycles.resume(spec="feature").cycle.cycle_id == KEY
    ws.cycles.finish(KEY)
    with pytest.raises(errors.CycleCompleted):
        ws.cycles.resume(spec="feature")


# --- validating and recovering ---------------------------------------------------------------------------------------


def test_p5_every_version_that_was_written_is_valid_and_what_is_wrong_is_told_by_its_path(world: World) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    bring_to(ws, KEY, None)
    for sequence in range(1, 10):
        assert ws.cycles.validate(ws.cycles.export(KEY, sequence)) == []
    document = ws.cycles.export(KEY)
    document["phases"]["plan"]["status"] = "pending"
    del document["version"]
    document["metadata"]["status"] = "COMPLETED"
    assert [problem.path for problem in ws.cycles.validate(document)] == ["$.version", "$.metadata.status"]
    nothing: Any
    for nothing in ({}, [], None, "text", 7):
        assert ws.cycles.validate(nothing)
    assert ws.revision == 9


def test_p5_a_step_that_was_never_written_here_is_told(world: World) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    document = ws.cycles.export(bring_to(ws, KEY, "plan").cycle_id)
    document["sequence"] = document["history"][0]["sequence"] = document["phases"]["plan"]["sequence_at_start"] = 40
    (problem,) = ws.cycles.validate(document)
    assert problem.path == "$.history[0].sequence"
    document |= {"cycle_id": "peer:spec:other:cycle:1"}
    document["metadata"] |= {"key_prefix": "peer:spec:other", "spec_name": "other"}
    assert ws.cycles.validate(document) == [], "of a cycle that is not ours nobody knows"


def test_p6_a_sound_document_is_left_alone_by_recover(world: World) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    cycle = bring_to(ws, KEY, "execute")
    before = ws.revision
    found = ws.cycles.recover(KEY)
    assert (found.cycle, found.recovered_from, found.problems, found.lost, found.snapshot) == (cycle, 4, [], [], None)
    assert ws.revision == before


# --- exporting -------------------------------------------------------------------------------------------------------


def test_p5_a_document_can_be_had_as_it_was_at_each_sequence(world: World) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    documents = [ws.cycles.export(KEY)]
    for call in (
        partial(ws.cycles.start_phase, KEY, "plan"),
        partial(ws.cycles.update_phase, KEY, "plan", {"a": 1}),
        partial(ws.cycles.add_error, KEY, "plan", "odd"),
        partial(ws.cycles.complete_phase, KEY, "plan"),
    ):
        world.clock.advance(1)
        call()
        documents.append(ws.cycles.export(KEY))
    assert [ws.cycles.export("peer.spec.feature", number + 1) for number in range(5)] == documents
    for sequence in (6, 2**61):
        refused(ws, errors.NotFound, partial(ws.cycles.export, KEY, sequence))
    wrong: Any
    for wrong in (0, -1, True, "1", 1.0, 2**63):
        with pytest.raises(errors.Invalid):
            ws.cycles.export(KEY, wrong)


def test_p5_a_version_that_was_compacted_is_told_so(world: World) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    bring_to(ws, KEY, "execute")
    ws.cycles.start(spec="later")
    ws.events.compact(4)
    documents = [ws.cycles.export(KEY, sequence)["sequence"] for sequence in (3, 4)]
    assert documents == [3, 4]
    for sequence in (1, 2):
        refused(ws, errors.Compacted, partial(ws.cycles.export, KEY, sequence))
    refused(ws, errors.NotFound, lambda: ws.cycles.export(KEY, 5))
    assert (ws.cycles.get(KEY).sequence, ws.cycles.validate(ws.cycles.export(KEY))) == (4, [])
    assert ws.cycles.resume(spec="feature").phase == "execute"


# --- deleting --------------------------------------------------------------------------------------------------------


@pytest.mark.kinds("every")
def test_p6_a_deleted_cycle_is_gone_with_what_its_history_said_and_its_number_is_not_used_again(world: World) -> None:
    ws = world.open()
    keyed = ws.using(key="k")
    keyed.cycles.start(spec="feature", context=SECRET)
    ws.cycles.start_phase(KEY, "plan")
    keyed.cycles.update_phase(KEY, "plan", SECRET)
    for call in (ws.cycles.delete, lambda key: ws.cycles.delete(key)):
        refused(ws, errors.InvalidTransition, partial(call, KEY))
    ws.cycles.fail_phase(KEY, "plan", "it broke")
    before = ws.revision
    ws.cycles.delete(KEY)
    assert (ws.revision, ws.cycles.list()) == (before + 1, [])
    for reading in (ws.cycles.get, ws.cycles.export, ws.cycles.recover, ws.cycles.delete):
        refused(ws, errors.NotFound, partial(reading, KEY))
        refused(ws, errors.NotFound, partial(reading, "peer:spec:feature"))
    refused(ws, errors.NotFound, lambda: ws.cycles.export(KEY, 2))
    log = ws.events.list(kinds=["cycle"], id=KEY)
    assert [(event.op, event.version, event.redacted) for event in log] == [
        *(("start", 1, True), ("start_phase", 2, True), ("update_phase", 3, True), ("fail_phase", 4, True)),
        ("delete", 5, False),
    ]
    assert "hunter2" not in str(ws.events.list(limit=1000))
    with pytest.raises(errors.NotFound):
        keyed.cycles.update_phase(KEY, "plan", SECRET)
    assert ws.cycles.start(spec="feature").cycle_id == "peer:spec:feature:cycle:2"


# --- a way out -------------------------------------------------------------------------------------------------------


def test_p3_a_cycle_that_is_full_can_still_be_brought_to_its_end(world: World) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    ws.cycles.start_phase(KEY, "plan")
    for size in (2**20 - 700, 2**20 - 65_000):
        error: Any = refused(ws, errors.TooLarge, partial(ws.cycles.complete_phase, KEY, "plan", {"a": "x" * size}))
        assert error.limit == 2**20 - 2**16
    ws.cycles.complete_phase(KEY, "plan", {"a": "x" * (2**20 - 2**16 - 1000)})
    ws.cycles.start_phase(KEY, "execute")
    assert ws.cycles.finish(KEY, "too large to go on").metadata.status == "failed"


def test_p6_a_cycle_is_deleted_wherever_it_stands_if_it_must_be(world: World) -> None:
    ws = world.open()
    ws.cycles.start(spec="feature")
    refused(ws, errors.InvalidTransition, lambda: ws.cycles.delete(KEY))
    ws.cycles.delete(KEY, force=True)
    assert ws.cycles.list() == []
    refused(ws, errors.NotFound, lambda: ws.cycles.delete(KEY, force=True))
    found = [(event.op, event.data) for event in ws.events.list(["cycle"])]
    assert found == [("start", {}), ("delete", {"forced": [False, True]})]
