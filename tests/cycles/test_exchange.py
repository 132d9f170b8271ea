"""Workspaces that hand a cycle to each other through a place (P4, P9): nothing is lost, and nobody is stuck."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from holdfast import errors
from holdfast.interchange.peer.locations import Folder
from holdfast.interchange.peer.sync import bring, send
from holdfast.workspace import Workspace
from tests.conformance.test_cycle_conflicts import conflicts as told
from tests.cycles.test_carrying import DOTTED, KEY, Shelf, merged_ids

OTHER = "peer:spec:other:cycle:1"


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def a() -> Iterator[Workspace]:
    with holdfast.open(":memory:", actor="a") as workspace:
        yield workspace


@pytest.fixture
def b() -> Iterator[Workspace]:
    with holdfast.open(":memory:", actor="b") as workspace:
        yield workspace


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


def planning(ws: Workspace) -> None:
    ws.cycles.start(spec="search")
    ws.cycles.start_phase(KEY, "plan")


def output(ws: Workspace, phase: str = "plan") -> Any:
    return getattr(ws.cycles.get(KEY).phases, phase).output


def parted(a: Workspace, b: Workspace, shelf: Shelf) -> None:
    """Both have changed the plan that both had; the place has that of b."""
    planning(a)
    send(a, shelf)
    bring(b, shelf)
    a.cycles.update_phase(KEY, "plan", {"draft": "a"})
    b.cycles.update_phase(KEY, "plan", {"draft": "b"})
    send(b, shelf)


# --- taking turns ----------------------------------------------------------------------------------------------------


def test_p9_two_that_take_turns_at_one_phase_follow_each_other(a: Workspace, b: Workspace, tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    planning(a)
    send(a, folder)
    for draft in range(1, 8):
        mover = b if draft % 2 else a
        bring(mover, folder)
        mover.cycles.update_phase(KEY, "plan", {"draft": draft, f"of {draft}": None if draft % 3 else 1})
        assert send(mover, folder).updated["cycles"] == [KEY]
    assert bring(a, folder).updated["cycles"] == [KEY]
    assert a.cycles.export(KEY) == b.cycles.export(KEY)
    assert output(a)["draft"] == 7
    assert told(a, KEY) == told(b, KEY) == []


def test_p9_what_was_done_elsewhere_is_followed_also_if_it_took_something_away(
    a: Workspace, b: Workspace, shelf: Shelf
) -> None:
    planning(a)
    a.cycles.update_phase(KEY, "plan", {"wrong": 1})
    send(a, shelf)
    bring(b, shelf)
    b.cycles.update_phase(KEY, "plan", {"wrong": None, "right": 1})
    send(b, shelf)
    assert bring(a, shelf).updated["cycles"] == [KEY]
    assert output(a) == {"right": 1}


def test_p9_who_has_gone_on_does_not_take_back_what_was_exchanged(a: Workspace, shelf: Shelf) -> None:
    planning(a)
    send(a, shelf)
    a.cycles.update_phase(KEY, "plan", {"draft": 1})
    assert bring(a, shelf).unchanged["cycles"] == [KEY]
    assert output(a) == {"draft": 1}


def test_p9_a_place_that_somebody_set_back_on_purpose_is_followed(a: Workspace, b: Workspace, shelf: Shelf) -> None:
    planning(a)
    send(a, shelf)
    bring(b, shelf)
    a.cycles.update_phase(KEY, "plan", {"draft": 1})
    send(a, shelf)
    assert send(b, shelf, mine=[KEY]).updated["cycles"] == [KEY]
    assert bring(a, shelf).updated["cycles"] == [KEY]
    assert output(a) is None


def test_p5_steps_that_were_taken_elsewhere_are_no_problem_of_a_cycle_that_began_here(
    a: Workspace, b: Workspace, shelf: Shelf
) -> None:
    planning(a)
    send(a, shelf)
    bring(b, shelf)
    b.cycles.complete_phase(KEY, "plan", {"steps": 1})
    b.cycles.start_phase(KEY, "execute")
    send(b, shelf)
    bring(a, shelf)
    assert a.cycles.validate(a.cycles.export(KEY)) == []


# --- merging ---------------------------------------------------------------------------------------------------------


def test_p4_what_was_merged_is_in_the_workspace_too_and_both_go_on(a: Workspace, shelf: Shelf) -> None:
    planning(a)
    a.cycles.complete_phase(KEY, "plan", {"steps": 2})
    send(a, shelf)
    for number in range(1, 4):
        shelf.change(phases__plan__errors=[{"message": f"error {each}"} for each in range(number)])
        if number == 1:
            a.cycles.start_phase(KEY, "execute")
        else:
            a.cycles.update_phase(KEY, "execute", {"draft": number})
        assert merged_ids(send(a, shelf)) == [KEY]
        assert a.cycles.export(KEY) == shelf.document()
    assert (output(a, "execute"), len(a.cycles.get(KEY).phases.plan.errors or ())) == ({"draft": 3}, 3)
    assert [how for how, _, _ in told(a, KEY)] == ["merge"] * 3
    assert [event.op for event in a.events.list(kinds=["cycle"], id=KEY)].count("adopt") == 3
    assert a.cycles.validate(a.cycles.export(KEY)) == []


def test_p4_the_end_of_a_cycle_is_not_lost_in_a_merge(a: Workspace, shelf: Shelf) -> None:
    a.cycles.start(spec="search")
    for phase in ("plan", "execute", "express", "review"):
        a.cycles.start_phase(KEY, phase)
        a.cycles.complete_phase(KEY, phase, {"done": phase})
    send(a, shelf)
    shelf.change(phases__review__errors=[{"message": "a typo"}])
    a.cycles.finish(KEY)
    assert merged_ids(send(a, shelf)) == [KEY]
    assert shelf.document()["metadata"]["status"] == a.cycles.get(KEY).metadata.status == "completed"
    assert shelf.document()["phases"]["review"]["errors"] == [{"message": "a typo"}]


@pytest.mark.parametrize("working", [False, True], ids=["idle", "working on"])
@pytest.mark.parametrize("first", [send, bring], ids=["export", "import"])
def test_p4_who_is_killed_between_a_merge_and_taking_it_over_goes_on(
    a: Workspace, shelf: Shelf, first: Any, working: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    planning(a)
    a.cycles.complete_phase(KEY, "plan", {"steps": 2})
    send(a, shelf)
    shelf.change(phases__plan__errors=[{"message": "late"}])
    a.cycles.start_phase(KEY, "execute")
    with monkeypatch.context() as patch:
        patch.setattr(type(a.cycles), "adopt", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            send(a, shelf)
    assert shelf.document()["phases"]["execute"]["status"] == "in_progress", "it was written there"
    if working:
        a.cycles.update_phase(KEY, "execute", {"draft": 1})
    first(a, shelf)
    bring(a, shelf)
    send(a, shelf)
    assert a.cycles.export(KEY) == shelf.document()
    assert output(a, "execute") == ({"draft": 1} if working else None)
    assert a.cycles.get(KEY).phases.plan.errors == [{"message": "late"}]


def test_p4_who_works_on_here_while_a_merge_is_written_there_is_merged_too(a: Workspace, shelf: Shelf) -> None:
    planning(a)
    a.cycles.complete_phase(KEY, "plan", {"steps": 2})
    send(a, shelf)
    shelf.change(phases__plan__errors=[{"message": "late"}])
    a.cycles.start_phase(KEY, "execute")
    shelf.others = [lambda: [a.cycles.update_phase(KEY, "execute", {"draft": 1})].clear()]
    pauses: list[float] = []
    assert merged_ids(send(a, shelf, sleep=pauses.append)) == [KEY]
    assert pauses == [0.1]
    assert a.cycles.export(KEY) == shelf.document()
    assert (output(a, "execute"), a.cycles.get(KEY).phases.plan.errors) == ({"draft": 1}, [{"message": "late"}])


# --- conflicts -------------------------------------------------------------------------------------------------------


def test_p4_a_conflict_is_told_with_both_sides_and_logged(a: Workspace, b: Workspace, shelf: Shelf) -> None:
    parted(a, b, shelf)
    report = bring(a, shelf)
    assert [(note.id, "both changed plan" in note.message) for note in report.conflicts] == [(KEY, True)]
    assert report.conflicts[0].differences["$.phases.plan.output.draft"] == '"a" became "b"'
    with pytest.raises(errors.CycleConflict):
        send(a, shelf)
    assert [(how, data["step"], data["expected"]) for how, _, data in told(a, KEY)] == [
        ("refuse", "import", 3),
        ("refuse", "export", 3),
    ]
    assert told(a, KEY)[1][2]["place"] == shelf.name


def test_p4_theirs_takes_what_is_there_and_ours_stays_in_the_log(a: Workspace, b: Workspace, shelf: Shelf) -> None:
    parted(a, b, shelf)
    assert bring(a, shelf, theirs=[KEY], dry_run=True).updated["cycles"] == [KEY]
    assert output(a) == {"draft": "a"}
    report = bring(a, shelf, theirs=[DOTTED])
    assert (report.updated["cycles"], report.conflicts) == ([KEY], [])
    assert (output(a), a.cycles.get(KEY).sequence) == ({"draft": "b"}, 4)
    assert a.cycles.export(KEY, sequence=3)["phases"]["plan"]["output"] == {"draft": "a"}
    assert send(a, shelf).unchanged["cycles"] == [KEY]
    a.cycles.update_phase(KEY, "plan", {"draft": "both"})
    assert send(a, shelf).updated["cycles"] == [KEY]
    assert bring(b, shelf).updated["cycles"] == [KEY]
    assert output(b) == {"draft": "both"}
    with pytest.raises(errors.NotFound):
        bring(a, shelf, theirs=[OTHER])


def test_p4_mine_writes_ours_over_what_is_there_now(a: Workspace, b: Workspace, shelf: Shelf) -> None:
    parted(a, b, shelf)
    b.cycles.update_phase(KEY, "plan", {"draft": "b again"})
    send(b, shelf)
    assert send(a, shelf, mine=[KEY], dry_run=True).updated["cycles"] == [KEY]
    assert shelf.document()["sequence"] == 4
    assert send(a, shelf, mine=[KEY]).updated["cycles"] == [KEY]
    assert shelf.document() == a.cycles.export(KEY)
    assert (shelf.document()["sequence"], output(a)) == (5, {"draft": "a"})
    assert told(a, KEY)[-1][0] == "mine"
    assert bring(b, shelf).updated["cycles"] == [KEY], "nothing was done there since, so it follows"
    assert output(b) == {"draft": "a"}


def test_p4_mine_is_not_written_blindly_either(a: Workspace, b: Workspace, shelf: Shelf) -> None:
    parted(a, b, shelf)
    shelf.others = [lambda: shelf.change(phases__plan__output={"draft": "c"})] * 9
    with pytest.raises(errors.CycleConflict, match="faster 4 times"):
        send(a, shelf, mine=[KEY], sleep=lambda _: None)
    assert shelf.document()["phases"]["plan"]["output"] == {"draft": "c"}


def test_p4_mine_also_replaces_what_cannot_be_read(a: Workspace, shelf: Shelf) -> None:
    planning(a)
    shelf.put(DOTTED, b"{broken")
    assert send(a, shelf, mine=[KEY]).updated["cycles"] == [KEY]
    assert shelf.document() == a.cycles.export(KEY)


def test_p6_a_broken_cycle_is_told_and_does_not_keep_the_others_back(shelf: Shelf, tmp_path: Path) -> None:
    with holdfast.open(tmp_path, actor="a") as ws:
        planning(ws)
        ws.cycles.start(spec="other")
        (store,) = tmp_path.rglob("*.db")
        behind = apsw.Connection(str(store))
        behind.execute("UPDATE cycles SET document = '{' WHERE prefix = 'peer:spec:search'")
        for keys in (None, [KEY, OTHER], ["peer:spec:search", OTHER]):
            shelf.entries.clear()
            with pytest.raises(errors.CycleConflict, match="damaged") as refused:
                send(ws, shelf, keys=keys)
            assert [each["key"] for each in refused.value.conflicts] == [KEY]
            assert "recover" in refused.value.hint
            assert refused.value.sent["created"]["cycles"] == [OTHER]
            assert list(shelf.entries) == ["peer.spec.other.cycle.1", "peer.spec.other.cycle.current"]


# --- how it is written -----------------------------------------------------------------------------------------------


def test_p9_a_document_is_compact_where_programs_read_it_and_indented_in_files(
    a: Workspace, shelf: Shelf, tmp_path: Path
) -> None:
    planning(a)
    send(a, shelf)
    assert shelf.entries[DOTTED].value == json.dumps(a.cycles.export(KEY), separators=(",", ":")).encode()
    send(a, Folder(str(tmp_path)))
    assert b'\n  "version": 2' in (tmp_path / f"{DOTTED}.json").read_bytes()


def test_p8_old_entries_may_go_only_if_a_document_was_made_from_them(a: Workspace, shelf: Shelf) -> None:
    shelf.put(f"{DOTTED}.metadata", b'{"created_at": "2025-08-01T08:00:00Z", "status": "running"}')
    shelf.put("peer.spec.search.meta", b'{"current_cycle": 2, "cycles": {"1": {}, "2": {"status": "running"}}}')
    bring(a, shelf)
    only = send(a, shelf, keys=[KEY])
    assert only.old_keys == [f"{DOTTED}.metadata"], "the other cycle is in the meta document alone"
    assert send(a, shelf).old_keys == [], "they are superseded by now, and nobody knows whether anybody changed them"
