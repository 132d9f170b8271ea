"""Exports and imports of tasks on every kind of workspace (T18): the same lines again change nothing, anywhere.

What a line may hold and what is refused is tried in the unit tests; here it is one handle after another, and node after
node, that must agree on what was imported.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast import errors
from holdfast.types import ImportReport
from tests.worlds.kinds import World

pytestmark = pytest.mark.kinds("drawn")

THEN = "2024-02-03T04:05:06.789012Z"


def own(id: str, **fields: Any) -> str:
    """A line of our own format."""
    return json.dumps({"format": "holdfast.task/1", "id": id, "title": f"title of {id}", **fields})


def issue(id: str, **fields: Any) -> str:
    """A line of beads."""
    return json.dumps({"id": id, "title": f"title of {id}", "status": "open", "issue_type": "task", **fields})


OWN = [
    own("a", status="closed", tags=["x"], notes=[{"at": THEN, "by": "anna", "text": "the zebra"}]),
    own("b", depends_on=["a", "c"], created_at=THEN, updated_at=THEN),
    own("c", parent_id="b", status="blocked", mood="good"),
    own("d", status="in_progress", claimed_by="bert", claimed_at=THEN),
    own("e", deleted_at=THEN),
]
BEADS = [
    issue("bd-1", status="closed", close_reason="Done.", priority=0, created_by="anna"),
    issue("bd-2", dependencies=[{"issue_id": "bd-2", "depends_on_id": "bd-1", "type": "blocks"}], labels=["x"]),
    issue("bd-2.1", dependencies=[{"issue_id": "bd-2.1", "depends_on_id": "bd-2", "type": "parent-child"}]),
]


@pytest.mark.parametrize(("format", "lines"), [("holdfast", OWN), ("beads", BEADS)])
def test_t18_the_same_lines_again_change_nothing(world: World, format: Any, lines: list[str]) -> None:
    ids = [json.loads(line)["id"] for line in lines]
    ws = world.open()
    first = ws.tasks.import_(lines, format=format)
    assert (first.created["tasks"], first.skipped, first.conflicts) == (ids, [], [])
    revision, exported = ws.revision, ws.tasks.export(include_deleted=True)
    other = world.open("another")
    world.clock.advance(10)
    none: dict[str, list[str]] = {"tasks": []}
    assert other.tasks.import_(lines, format=format) == ImportReport(none, none, {"tasks": ids}, [], [], [])
    assert other.tasks.import_(lines[::-1], format=format, prefer="theirs").unchanged["tasks"] == ids[::-1]
    assert other.revision == revision
    assert other.tasks.export(include_deleted=True) == exported


def test_t18_an_export_imported_where_it_came_from_changes_nothing(world: World) -> None:
    ws = world.open()
    parent = ws.tasks.create("parent", tags=["x"]).id
    child = ws.tasks.create("child", "body", parent_id=parent).id
    ws.tasks.depend(parent, child)
    ws.tasks.claim(child, "agent")
    ws.tasks.note(child, "a note")
    lines, revision = ws.tasks.export(), ws.revision
    assert ws.tasks.import_(lines).unchanged["tasks"] == [parent, child]
    assert ws.tasks.import_(lines).unchanged["tasks"] == [parent, child]
    assert ws.revision == revision
    assert ws.tasks.export() == lines


def test_t18_what_is_imported_through_one_handle_the_others_find_and_follow(world: World) -> None:
    one, other = world.open("one"), world.open("other")
    one.tasks.import_(OWN)
    assert [hit.task.id for hit in other.tasks.search("zebra")] == ["a"]
    assert [task.id for task in other.tasks.list(tag="x")] == ["a"]
    assert [task.id for task in other.tasks.ready()] == ["d"]
    report = other.tasks.import_([own("a", status="closed", tags=["y"], body="a yak"), *OWN[1:]])
    assert (report.updated["tasks"], report.unchanged["tasks"]) == (["a"], ["b", "c", "d", "e"])
    assert [hit.task.id for hit in one.tasks.search("yak")] == ["a"]
    assert [task.id for task in one.tasks.list(tag="x")] == []


def test_t18_what_changed_on_both_sides_is_left_alone_unless_told(world: World) -> None:
    one, other = world.open("one"), world.open("other")
    one.tasks.import_(BEADS, format="beads")
    other.tasks.update("bd-1", title="ours")
    revision = one.revision
    changed = [issue("bd-1", title="theirs", status="closed"), *BEADS[1:]]
    report = one.tasks.import_(changed, format="beads")
    assert [conflict.id for conflict in report.conflicts] == ["bd-1"]
    assert one.revision == revision
    assert other.tasks.get("bd-1").title == "ours"
    assert other.tasks.import_(changed, format="beads", prefer="theirs").updated["tasks"] == ["bd-1"]
    assert one.tasks.get("bd-1").title == "theirs"


def test_t18_a_bad_line_refuses_all_of_an_import_and_says_which(world: World) -> None:
    ws = world.open()
    revision = ws.revision
    with pytest.raises(errors.Invalid) as caught:
        ws.tasks.import_([own("a"), own("b", depends_on=["nobody"])])
    assert [(problem.line, problem.id, problem.severity) for problem in caught.value.problems] == [(2, "b", "error")]
    assert ws.tasks.list(include_deleted=True) == []
    assert ws.revision == revision


def test_t18_a_dry_run_leaves_nothing_behind(world: World) -> None:
    ws = world.open()
    revision = ws.revision
    trial = ws.tasks.import_(OWN, dry_run=True)
    assert trial.dry_run
    assert len(trial.created["tasks"]) == len(OWN)
    assert ws.tasks.list(include_deleted=True) == []
    assert ws.revision == revision


@pytest.mark.kinds("every")
def test_t18_an_import_with_a_key_happens_once(world: World) -> None:
    ws = world.open().using(key="import-1")
    first = ws.tasks.import_(OWN)
    assert ws.tasks.import_(OWN) == first
    assert len(first.created["tasks"]) == len(OWN)
