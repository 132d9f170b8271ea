"""Cycles from elsewhere (P8): read in any format, and never over what was done here."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from holdfast import Workspace, errors
from holdfast.types import ImportReport
from tests.worlds.kinds import World

pytestmark = pytest.mark.kinds("drawn")

KEY = "peer:spec:feature:cycle:1"
OLD: dict[str, Any] = {
    "version": 1.1,
    "cycle_id": "peer.spec.feature.cycle.1",
    "metadata": {"created_at": "2025-08-01T08:00:00Z", "status": "PLANNING", "owner": "ann"},
    "phases": {"plan": {"status": "in_progress"}},
}


def outcome(report: ImportReport) -> tuple[int, int, int, int]:
    """How many were created, updated, left as they are, and in conflict."""
    ids = (report.created, report.updated, report.unchanged)
    created, updated, unchanged = (len(found["cycles"]) for found in ids)
    return created, updated, unchanged, len(report.conflicts)


def begun(ws: Workspace) -> dict[str, Any]:
    """A cycle with its plan in progress, as a document."""
    ws.cycles.start(spec="feature")
    ws.cycles.start_phase(KEY, "plan")
    return ws.cycles.export(KEY)


def moved(document: dict[str, Any], output: Any, by: int = 1) -> dict[str, Any]:
    """The document after updates elsewhere, which leave no history."""
    other = deepcopy(document)
    other["sequence"] += by
    other["phases"]["plan"]["output"] = output
    return other


def test_p8_a_document_of_an_old_format_reads_as_v2_and_the_first_step_writes_v2(world: World) -> None:
    ws = world.open()
    report = ws.cycles.import_({"peer.spec.feature.cycle.1": OLD})
    assert (report.created["cycles"], report.dry_run) == ([KEY], False)
    document = ws.cycles.export(KEY)
    assert (document["version"], document["metadata"]["status"]) == (2, "in_progress")
    assert document["context"]["legacy"]["document"] == {"version": 1.1, "metadata": {"owner": "ann"}}
    cycle = ws.cycles.complete_phase("peer.spec.feature", "plan", {"steps": 1})
    assert (cycle.sequence, cycle.history[-1].event) == (document["sequence"] + 1, "completed")
    assert ws.cycles.validate(ws.cycles.export(KEY)) == []


def test_p8_the_current_cycle_is_the_one_that_is_said_or_the_last(world: World) -> None:
    ws = world.open()
    ws.cycles.import_({"peer:spec:feature:cycle:current": "7", KEY: OLD})
    assert ws.cycles.start(spec="feature").cycle_id == "peer:spec:feature:cycle:8"


def test_p8_the_same_again_and_what_is_older_than_ours_change_nothing(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    document = begun(ws)
    ws.cycles.update_phase(KEY, "plan", {"ours": 1})
    revision = other.revision
    assert outcome(other.cycles.import_({KEY: document})) == (0, 0, 1, 0)
    assert outcome(other.cycles.import_({KEY: ws.cycles.export(KEY)})) == (0, 0, 1, 0)
    assert other.revision == revision


def test_p8_what_goes_on_from_ours_is_taken_over(world: World) -> None:
    ws = world.open()
    document = begun(ws)
    ws.cycles.update_phase(KEY, "plan", {"ours": 1})
    further = moved(document, {"ours": 1, "theirs": 2}, by=5)
    assert outcome(ws.cycles.import_({KEY: further}, dry_run=True)) == (0, 1, 0, 0)
    assert ws.cycles.get(KEY).phases.plan.output == {"ours": 1}
    assert outcome(ws.cycles.import_({KEY: further})) == (0, 1, 0, 0)
    cycle = ws.cycles.get(KEY)
    assert (cycle.sequence, cycle.phases.plan.output) == (7, {"ours": 1, "theirs": 2})


def test_p8_an_update_that_the_other_does_not_have_is_never_lost(world: World) -> None:
    ws = world.open()
    document = begun(ws)
    ws.cycles.update_phase(KEY, "plan", {"ours": 1})
    for output in ({"theirs": 2}, {"ours": 2}, {"ours": True}, None):
        report = ws.cycles.import_({KEY: moved(document, output, by=9)})
        assert outcome(report) == (0, 0, 0, 1)
        assert ws.cycles.get(KEY).phases.plan.output == {"ours": 1}


def test_p8_another_cycle_of_the_same_key_is_left_alone(world: World) -> None:
    ws = world.open()
    document = begun(ws)
    other = moved(document, {"theirs": 1}, by=3)
    other["metadata"]["created_at"] = "2020-01-01T00:00:00Z"
    assert outcome(ws.cycles.import_({KEY: other})) == (0, 0, 0, 1)
    assert ws.cycles.export(KEY) == document


def test_p8_what_was_only_imported_here_follows_what_it_came_from(world: World) -> None:
    ws = world.open()
    ws.cycles.import_({KEY: OLD})
    changed = deepcopy(OLD)
    changed["phases"]["plan"]["output"] = {"steps": 1}
    assert outcome(ws.cycles.import_({KEY: changed})) == (0, 1, 0, 0)
    assert (ws.cycles.get(KEY).sequence, ws.cycles.get(KEY).phases.plan.output) == (2, {"steps": 1})
    assert outcome(ws.cycles.import_({KEY: changed})) == (0, 0, 1, 0)
    ws.cycles.update_phase(KEY, "plan", {"ours": 1})
    assert outcome(ws.cycles.import_({KEY: {**changed, "insights": ["new"]}})) == (0, 0, 0, 1)


def test_p4_who_did_nothing_since_the_exchange_follows_the_other(world: World) -> None:
    ws = world.open()
    document = begun(ws)
    ws.cycles.update_phase(KEY, "plan", {"ours": 1})
    ws.cycles.sent(KEY, "write", 3, "a bucket")
    assert outcome(ws.cycles.import_({KEY: moved(document, {"theirs": 2}, by=2)})) == (0, 1, 0, 0)
    cycle = ws.cycles.get(KEY)
    assert (cycle.sequence, cycle.phases.plan.output) == (4, {"theirs": 2})
    ws.cycles.update_phase(KEY, "plan", {"ours": 3})
    assert outcome(ws.cycles.import_({KEY: moved(document, {"theirs": 2}, by=9)})) == (0, 0, 1, 0), "it is no news"
    report = ws.cycles.import_({KEY: moved(document, {"theirs": 4}, by=9)})
    assert outcome(report) == (0, 0, 0, 1)
    assert "both changed plan" in report.conflicts[0].message
    assert report.conflicts[0].differences.keys() >= {"$.phases.plan.output.theirs"}
    told = ws.events.list(kinds=["cycle-conflict"], id=KEY)
    assert [(event.op, event.data["step"]) for event in told] == [("refuse", "import")]


def test_p4_what_was_sent_is_forgotten_if_ours_came_from_elsewhere_since(world: World) -> None:
    ws = world.open()
    document = begun(ws)
    ws.cycles.adopt(moved(document, {"theirs": 1}), 2)
    ws.cycles.sent(KEY, "write", 2, "a bucket")
    assert ws.cycles.compare(ws.cycles.export(KEY)).shared, (
        "what was adopted is what both have, not what was sent before"
    )


def test_p4_a_document_from_elsewhere_takes_the_place_of_ours_at_its_sequence(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    document = begun(ws)
    theirs = moved(document, {"theirs": 1}, by=-1)
    theirs["history"], theirs["phases"]["plan"]["sequence_at_start"] = [{**document["history"][0], "sequence": 1}], 1
    ws.cycles.update_phase(KEY, "plan", {"ours": 1})
    with pytest.raises(errors.CycleConflict) as refused:
        other.cycles.adopt(theirs, 2)
    assert (refused.value.expected, refused.value.version) == (2, 3)
    assert (refused.value.mine, refused.value.theirs) == (theirs, ws.cycles.export(KEY))
    cycle = other.cycles.adopt(theirs, 3)
    assert (cycle.sequence, cycle.phases.plan.output) == (4, {"theirs": 1})
    assert ws.cycles.export(KEY, sequence=3)["phases"]["plan"]["output"] == {"ours": 1}
    told = ws.events.list(kinds=["cycle-conflict"], id=KEY)
    assert [(event.op, event.actor, event.data["step"]) for event in told] == [("refuse", "b", "adopt")]
    assert ws.events.list(kinds=["cycle"], id=KEY)[-1].op == "adopt"
    with pytest.raises(errors.InvalidValue):
        ws.cycles.adopt({**theirs, "sequence": 2**52 + 1}, 4)
    with pytest.raises(errors.InvalidValue):
        ws.cycles.adopt({**theirs, "phases": {}}, 4)
    with pytest.raises(errors.NotFound):
        ws.cycles.adopt({**theirs, **_other_key(theirs)}, 4)


def _other_key(document: dict[str, Any]) -> dict[str, Any]:
    metadata = {**document["metadata"], "cycle_number": 2}
    return {"cycle_id": "peer:spec:feature:cycle:2", "metadata": metadata}


def test_p4_two_are_compared_by_what_each_did_since_they_were_one(world: World) -> None:
    ws = world.open()
    document = begun(ws)
    assert ws.cycles.compare(document).how == "same"
    ws.cycles.complete_phase(KEY, "plan", {"steps": 1})
    planned = ws.cycles.export(KEY)
    assert ws.cycles.compare(document).how == "ours"
    noted = deepcopy(planned)
    noted["sequence"] += 1
    noted["phases"]["plan"]["errors"] = [{"message": "late"}]
    assert ws.cycles.compare(noted).how == "theirs"
    ws.cycles.start_phase(KEY, "execute")
    merged = ws.cycles.compare(noted)
    assert (merged.how, merged.mine) == ("merge", ws.cycles.export(KEY))
    assert merged.document["phases"]["plan"]["errors"] == [{"message": "late"}]
    assert merged.document["phases"]["execute"]["status"] == "in_progress"
    assert (merged.document["sequence"], ws.cycles.validate(merged.document)) == (5, [])
    noted["phases"]["plan"]["output"] = {"steps": 2}
    assert ws.cycles.compare(noted).how == "merge", "the plan is theirs alone since the step that both tell of"
    ws.cycles.fail_phase(KEY, "execute", "why")
    noted["phases"]["execute"] |= {"status": "in_progress", "started_at": "2026-01-01T00:00:00Z"}
    noted["metadata"]["current_phase"] = "execute"
    apart = ws.cycles.compare(noted)
    assert (apart.how, apart.why, apart.document) == ("refuse", "both changed its metadata and execute", noted)


@pytest.mark.parametrize(
    "given",
    [
        {"how": "lost"},
        {"how": None},
        {"sequence": 0},
        {"sequence": "1"},
        {"theirs": -1},
        {"place": 7},
        {"why": "x" * 1001},
    ],
)
def test_p4_what_cannot_be_noted_of_an_exchange_is_refused(world: World, given: dict[str, Any]) -> None:
    ws = world.open()
    begun(ws)
    with pytest.raises(errors.Invalid):
        ws.cycles.sent(**{"key": KEY, "how": "skip", "sequence": 2, "place": "a bucket", **given})
    assert ws.events.list(kinds=["cycle-conflict"]) == []


def test_p8_one_that_was_deleted_here_does_not_come_back(world: World) -> None:
    ws = world.open()
    begun(ws)
    ws.cycles.fail_phase(KEY, "plan", "why")
    document = ws.cycles.export(KEY)
    ws.cycles.delete(KEY)
    assert outcome(ws.cycles.import_({KEY: document})) == (0, 0, 0, 1)
    with pytest.raises(errors.NotFound):
        ws.cycles.get(KEY)


def test_p8_what_cannot_be_read_keeps_all_out_unless_it_is_to_be_skipped(world: World) -> None:
    ws = world.open()
    entries = {KEY: OLD, "peer:spec:other:cycle:1": "no document"}
    revision = ws.revision
    with pytest.raises(errors.Invalid) as refused:
        ws.cycles.import_(entries)
    assert [problem.id for problem in refused.value.problems] == ["peer:spec:other:cycle:1"]
    assert ws.revision == revision
    report = ws.cycles.import_(entries, skip_bad=True)
    assert (report.created["cycles"], [note.id for note in report.skipped]) == ([KEY], ["peer:spec:other:cycle:1"])


@pytest.mark.parametrize("entries", [None, [], "no dict"])
def test_p8_what_is_no_dict_of_documents_is_refused(world: World, entries: Any) -> None:
    ws = world.open()
    with pytest.raises(errors.Invalid):
        ws.cycles.import_(entries)
