"""Issues of other trackers: beads both ways, GitHub and Linear one way, each recognised by what is in the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

import holdfast
from holdfast import errors
from holdfast.interchange import trackers
from holdfast.testing import ManualClock
from holdfast.workspace import Workspace
from tests.amounts import chance

SAMPLES = Path(__file__).resolve().parents[2] / "../shared/samples/tasks"
THEN, LATER = "2024-01-06T18:27:48+00:00", "2024-01-07T10:00:00+00:00"


@pytest.fixture
def ws() -> Iterator[Workspace]:
    with holdfast.open(":memory:", actor="ann", clock=ManualClock()) as opened:
        yield opened
        assert opened.check().problems == []


# --- beads both ways -------------------------------------------------------------------------------------------------


def known(line: str) -> dict[str, Any]:
    """What an issue says: the order of lists, the way to write a time and empty fields say nothing."""
    found: dict[str, Any] = {}
    for name, value in json.loads(line).items():
        if name.endswith("_at") or name == "defer_until":
            found[name] = datetime.fromisoformat(value)
        elif name == "comments":
            found[name] = [{**each, "created_at": datetime.fromisoformat(each["created_at"])} for each in value]
        elif name in ("labels", "dependencies"):
            found[name] = sorted(json.dumps(each, sort_keys=True) for each in value)
        else:
            found[name] = value
    return {name: value for name, value in found.items() if value not in (None, "", [])}


def drawn_issue(draw: Random, number: int) -> str:
    """An issue with any of the fields of beads."""
    id = f"bd-{number}"
    status = draw.choice(["open", "closed", "blocked", "in_progress", "hooked", "deferred", "pinned"])
    raw: dict[str, Any] = {"id": id, "title": f"Issue {number}", "status": status, "priority": draw.randrange(5)}
    raw |= {"issue_type": draw.choice(["task", "bug", "epic", "molecule"]), "created_at": THEN, "updated_at": LATER}
    for name in ("description", "design", "acceptance_criteria", "notes", "created_by", "external_ref"):
        if draw.randrange(2):
            raw[name] = f"{name} {number}\n\n## Design\n\nwhat" if name == "description" else f"{name} {number}"
    if status == "closed":
        raw |= {"closed_at": LATER, "close_reason": "Done." if draw.randrange(2) else ""}
    elif draw.randrange(4) == 0:
        raw |= {"closed_at": THEN, "close_reason": "Too early."}  # it is open again
    if status in ("in_progress", "hooked"):
        raw["assignee"] = "zed"
    if draw.randrange(2):
        raw["defer_until"] = draw.choice([THEN, "2091-01-01T00:00:00+00:00"])
    raw["labels"] = draw.sample(["needs review", "a", " odd", "b/c"], draw.randrange(4))
    kinds = draw.sample(["blocks", "related", "discovered-from", "parent-child", "waits-for"], draw.randrange(4))
    others = draw.sample(range(number), min(number, len(kinds)))
    raw["dependencies"] = [
        {"issue_id": id, "depends_on_id": f"bd-{other}", "type": kind}
        | ({"created_at": THEN, "created_by": "zed"} if draw.randrange(2) else {})
        for kind, other in zip(kinds, others, strict=False)
    ]
    raw["comments"] = [
        {"issue_id": id, "author": draw.choice(["zed", "kim"]), "text": f"comment {at}", "created_at": THEN}
        for at in range(draw.randrange(3))
    ]
    return json.dumps(raw)


def test_every_field_of_beads_is_equal_after_a_round_trip(ws: Workspace) -> None:
    draw = chance("beads")
    lines = [drawn_issue(draw, number) for number in range(60)]
    ws.tasks.import_(lines, "beads")
    back = list(ws.tasks.export(format="beads"))
    assert [known(line) for line in back] == [known(line) for line in lines]
    with holdfast.open(":memory:", actor="bob") as other:
        other.tasks.import_(back, "beads")
        assert list(other.tasks.export(format="beads")) == back
        assert other.tasks.import_(back, "beads").unchanged["tasks"] == [json.loads(line)["id"] for line in back]


@pytest.mark.skipif(not SAMPLES.exists(), reason="no samples here")
def test_the_sample_of_beads_comes_back_as_it_was(ws: Workspace) -> None:
    lines = (SAMPLES / "beads-issues.jsonl").read_text().splitlines()
    ws.tasks.import_(lines, "beads")
    back = list(ws.tasks.export(format="beads"))
    assert [known(line) for line in back] == [known(line) for line in lines]
    again = ws.tasks.import_(back, "beads")
    assert (again.conflicts, again.updated["tasks"]) == ([], [])


def test_tasks_become_issues_that_say_the_same(ws: Workspace) -> None:
    top = ws.tasks.create("top", "text", type="epic", priority=0, tags=["needs review"])
    task = ws.tasks.create("below", parent_id=top.id, depends_on=[ws.tasks.create("first").id])
    ws.tasks.note(task.id, "said")
    ws.tasks.defer(task.id, task.created_at + timedelta(days=3))
    ws.tasks.close(top.id, "why", force=True)
    ws.tasks.claim(ws.tasks.create("held").id, "zed")
    lines = list(ws.tasks.export(format="beads"))
    issues = {raw["title"]: raw for raw in map(json.loads, lines)}
    assert (issues["top"]["close_reason"], issues["top"]["labels"]) == ("why", ["needs review"])
    assert {each["type"] for each in issues["below"]["dependencies"]} == {"blocks", "parent-child"}
    assert (issues["below"]["status"], issues["below"]["comments"][0]["author"]) == ("deferred", "ann")
    assert (issues["held"]["status"], issues["held"]["assignee"]) == ("in_progress", "zed")
    with holdfast.open(":memory:", actor="bob", clock=ManualClock()) as other:
        other.tasks.import_(lines, "beads")
        assert list(other.tasks.export(format="beads")) == lines
        assert other.tasks.get(task.id).deferred_until == task.created_at + timedelta(days=3)


def test_what_changed_here_since_the_import_is_what_beads_reads(ws: Workspace) -> None:
    ws.tasks.import_(['{"id": "bd-1", "title": "x", "status": "in_progress", "assignee": "zed"}'], "beads")
    ws.tasks.close("bd-1", "not needed")
    (line,) = ws.tasks.export(format="beads")
    assert {name: json.loads(line)[name] for name in ("status", "close_reason")} == {
        "status": "closed",
        "close_reason": "not needed",
    }
    with pytest.raises(errors.Invalid, match="format is holdfast or beads"):
        ws.tasks.export(format="github")  # type: ignore[arg-type]


def test_an_export_of_ones_own_changes_nothing_here(ws: Workspace) -> None:
    comment = {"id": 5, "issue_id": "bd-2", "author": "zed", "text": "said", "created_at": THEN}
    first = {"id": "bd-1", "title": "x", "status": "closed", "close_reason": "Done."}
    second = {"id": "bd-2", "title": "y", "external_ref": "X-1", "comments": [comment]}
    ws.tasks.import_([json.dumps(first), json.dumps(second)], "beads")
    back = list(ws.tasks.export(format="beads"))
    before = [len(ws.tasks.history(id)) for id in ("bd-1", "bd-2")]
    again = ws.tasks.import_(back, "beads")
    assert (again.unchanged["tasks"], again.conflicts) == (["bd-1", "bd-2"], [])
    assert [len(ws.tasks.history(id)) for id in ("bd-1", "bd-2")] == before


@pytest.mark.parametrize(
    ("status", "until", "ours", "waits", "named"),
    [
        ("open", "2091-01-01T00:00:00Z", "open", True, "status"),
        ("deferred", "2091-01-01T00:00:00Z", "open", True, None),
        ("blocked", "2091-01-01T00:00:00Z", "blocked", True, None),
        ("closed", "2091-01-01T00:00:00Z", "closed", False, "defer_until"),
        ("in_progress", "2091-01-01T00:00:00Z", "open", False, "defer_until"),
        ("deferred", "2001-01-01T00:00:00Z", "open", False, "defer_until, status"),
        ("open", "2001-01-01T00:00:00Z", "open", False, "defer_until"),
    ],
)
def test_an_issue_that_waits_is_not_ready_and_goes_back_as_it_was(
    ws: Workspace, status: str, until: str, ours: str, waits: bool, named: str | None
) -> None:
    line = json.dumps({"id": "bd-1", "title": "x", "status": status, "defer_until": until})
    report = ws.tasks.import_([line], "beads")
    task = ws.tasks.get("bd-1")
    assert (task.status, task.deferred_until is not None) == (ours, waits)
    assert [each.id for each in ws.tasks.ready()] == (["bd-1"] if ours == "open" and not waits else [])
    kept = [str(each).partition("kept in a note: ")[2] for each in report.warnings if "kept in a note" in str(each)]
    assert kept == ([] if named is None else [named])
    (back,) = ws.tasks.export(format="beads")
    assert {name: known(back)[name] for name in ("status", "defer_until")} == {
        "status": status,
        "defer_until": datetime.fromisoformat(until),
    }
    again = ws.tasks.import_([back], "beads")
    assert (again.updated["tasks"], again.conflicts) == ([], [])


def test_what_github_says_more_of_an_issue_is_kept(ws: Workspace) -> None:
    more = {"isPinned": True, "projectItems": [{"title": "Board"}], "reactionGroups": [{"content": "HEART"}]}
    report = ws.tasks.import_([json.dumps({**ISSUE, **more, "closed": True, "isDraft": False, "id": "N1"})], "github")
    (warning,) = map(str, report.warnings)
    assert warning.endswith("kept in a note: assignees, isPinned, projectItems, reactionGroups, stateReason")
    assert any(more.items() <= json.loads(e.note).items() for e in ws.tasks.history(ID) if e.note and "{" in e.note)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"state": "WEIRD"}, "'WEIRD' is not a state of GitHub: OPEN, CLOSED or MERGED"),
        ({"number": 9}, "its number is 9, but its address is that of 12"),
    ],
)
def test_an_issue_of_github_that_contradicts_itself_is_refused(
    ws: Workspace, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(errors.Invalid, match=message):
        ws.tasks.import_([json.dumps({**ISSUE, **wrong})], "github")
    assert ws.tasks.list() == []


def test_a_row_of_linear_with_a_priority_that_it_has_not_is_refused(ws: Workspace) -> None:
    with pytest.raises(errors.Invalid, match="issue ENG-1: 'Soon' is not a priority of Linear: urgent, high"):
        ws.tasks.import_(ROWS.replace("Urgent", "Soon").splitlines(), "linear")


def test_a_folder_of_beads_has_issues_and_deletions(tmp_path: Path) -> None:
    folder = tmp_path / ".beads"
    folder.mkdir()
    with pytest.raises(errors.NotFound):
        trackers.beads_file(str(tmp_path))
    (folder / "issues.jsonl").write_text('{"id": "bd-1", "title": "x"}\n')
    assert trackers.beads_file(str(tmp_path)) == trackers.beads_file(str(folder)) == str(folder / "issues.jsonl")


def test_an_issue_that_beads_deleted_is_not_imported_although_it_has_a_line(ws: Workspace) -> None:
    issues = ['{"id": "bd-1", "title": "deleted"}', "", '{"id": "bd-2", "title": "alive"}']
    deletions = ['{"id": "bd-1", "ts": "2025-01-15T10:00:00Z", "by": "zed"}', '{"id": "bd-3"}', ""]
    report = ws.tasks.import_(trackers.without_deleted(issues, deletions), "beads")
    assert report.created["tasks"] == ["bd-2"]
    assert [(each.line, each.id) for each in report.skipped] == [(1, "bd-1"), (4, "bd-3")]
    for wrong in ("{", "[]", '{"ts": "2025-01-15T10:00:00Z"}', '{"id": 3}'):
        with pytest.raises(errors.Invalid, match="line 2 of the deletions of beads"):
            trackers.without_deleted(issues, [deletions[0], wrong])


def test_a_tombstone_needs_nothing_but_its_id(ws: Workspace) -> None:
    report = ws.tasks.import_(['{"id": "bd-1", "status": "tombstone", "priority": "none"}'], "beads")
    assert ([each.id for each in report.skipped], report.created["tasks"]) == (["bd-1"], [])


@pytest.mark.parametrize("format", ["beads", "holdfast"])
def test_an_array_of_records_is_read_as_their_lines_are(ws: Workspace, format: Any) -> None:
    records: list[dict[str, Any]] = [{"id": "hf-1", "title": "one"}, {"id": "hf-2", "title": "two"}]
    if format == "holdfast":
        records = [{"format": "holdfast.task/1", **record} for record in records]
    lines = json.dumps(records, indent=2).splitlines()
    assert trackers.recognise(lines) == format
    assert ws.tasks.import_(lines, format).created["tasks"] == ["hf-1", "hf-2"]
    assert ws.tasks.import_([json.dumps(record) for record in records], format).unchanged["tasks"] == ["hf-1", "hf-2"]


# --- GitHub ----------------------------------------------------------------------------------------------------------

ISSUE: dict[str, Any] = {
    "number": 12,
    "title": "It breaks",
    "body": "How it breaks.",
    "state": "CLOSED",
    "stateReason": "NOT_PLANNED",
    "url": "https://github.com/some-one/pro.ject/issues/12",
    "labels": [{"id": "L1", "name": "bug"}, {"id": "L2", "name": "good first issue"}, {"id": "L3", "name": "P1"}],
    "milestone": {"number": 1, "title": "1.0"},
    "author": {"login": "zed", "is_bot": False},
    "assignees": [{"login": "kim"}],
    "createdAt": THEN,
    "updatedAt": LATER,
    "closedAt": LATER,
    "comments": [{"id": "C1", "author": {"login": "kim"}, "body": "Me too.", "createdAt": THEN}],
}
ID = "gh-some-one.pro.ject-12"


def test_an_issue_of_github_becomes_a_task_once(ws: Workspace) -> None:
    text = json.dumps([ISSUE, {**ISSUE, "number": 13, "state": "OPEN", "url": ISSUE["url"][:-2] + "13"}], indent=2)
    assert trackers.recognise(text.splitlines()) == "github"
    report = ws.tasks.import_(text.splitlines(), "github")
    assert report.created["tasks"] == [ID, f"{ID[:-2]}13"]
    task = ws.tasks.get(ID)
    assert (task.title, task.body, task.type, task.priority) == ("It breaks", "How it breaks.", "bug", 1)
    assert (task.status, ws.tasks.get(f"{ID[:-2]}13").status) == ("closed", "open")
    assert task.tags == ("P1", "bug", "good first issue", "milestone/1.0")
    assert [(ref.kind, ref.value) for ref in task.refs] == [("url", ISSUE["url"])]
    assert task.origin is not None
    assert (task.origin.created_by, task.created_at.isoformat()) == ("zed", THEN)
    notes = [entry.note for entry in ws.tasks.history(ID) if entry.note]
    assert "Me too." in notes
    assert any(
        json.loads(note) == {"assignees": ["kim"], "stateReason": "NOT_PLANNED"} for note in notes if "{" in note
    )
    assert ws.tasks.import_(text.splitlines(), "github").unchanged["tasks"] == report.created["tasks"]
    news = json.dumps([{**ISSUE, "title": "It broke"}])
    assert ws.tasks.import_([news], "github").updated["tasks"] == [ID]
    ws.tasks.add_ref(ID, "https://example.org/mine")
    assert ws.tasks.import_([json.dumps({**ISSUE, "title": "Again"})], "github", prefer="theirs").updated["tasks"] == [
        ID
    ]
    assert (ws.tasks.get(ID).title, len(ws.tasks.get(ID).refs)) == ("Again", 2)


@pytest.mark.parametrize("wrong", ['{"number": 1, "title": "x"}', "[3]", '{"url": "elsewhere", "title": "x"}', "no"])
def test_what_is_no_issue_of_github_is_refused(ws: Workspace, wrong: str) -> None:
    with pytest.raises(errors.Invalid) as refused:
        ws.tasks.import_([wrong], "github")
    assert len(refused.value.details["problems"]) == 1
    assert ws.tasks.list() == []


def test_a_long_address_still_makes_one_id() -> None:
    url = f"https://github.com/{'o' * 39}/{'r' * 100}/issues/7"
    (line,) = trackers.lines_of([json.dumps({**ISSUE, "number": 7, "url": url})], "github")
    assert len(json.loads(line)["id"]) <= 64
    assert trackers.lines_of([line], "github") == [line]


# --- Linear ----------------------------------------------------------------------------------------------------------

ROWS = """"ID","Team","Title","Description","Status","Priority","Creator","Assignee","Labels","Created","Updated",\
"Completed","Canceled","Parent issue","UUID","Related to","Blocked by"
"ENG-1","Eng","Epic one","Two
lines","In Progress","Urgent","zed@example.org","","epic, needs review","2024-01-06T18:27:48Z","","","","","u1","",""
"ENG-2","Eng","Step","","Done","No priority","zed@example.org","kim","Bug",\
"Sat Jan 06 2024 18:27:48 GMT+0000 (GMT)","","2024-01-07T10:00:00Z","","ENG-1","u2","ENG-1",""
"ENG-3","Eng","Last","","Todo","Low","","","","2024-01-06T18:27:48Z","","","","ENG-9","u3","","ENG-1, ENG-2"
"""
NODE = {
    **{"identifier": "ENG-4", "title": "From the API", "priority": 2, "url": "https://linear.app/x/issue/ENG-4/y"},
    **{
        "state": {"name": "Canceled", "type": "canceled"},
        "labels": {"nodes": [{"name": "Feature"}]},
        "createdAt": THEN,
    },
    **{"parent": {"identifier": "ENG-5"}, "canceledAt": LATER, "creator": {"name": "Zed"}, "estimate": 3},
    "comments": {"nodes": [{"body": "Why?", "user": {"name": "Kim"}, "createdAt": LATER}]},
}


def test_rows_of_linear_become_tasks(ws: Workspace) -> None:
    lines = ROWS.splitlines()
    assert trackers.recognise(lines) == "linear"
    report = ws.tasks.import_(lines, "linear")
    assert report.created["tasks"] == ["ENG-1", "ENG-2", "ENG-3"]
    one, two, three = (ws.tasks.get(f"ENG-{number}") for number in (1, 2, 3))
    assert (one.type, one.priority, one.status, one.body) == ("epic", 0, "open", "Two\nlines")
    assert one.tags == ("epic", "needs review")
    assert (two.type, two.priority, two.status, two.parent_id) == ("bug", 2, "closed", "ENG-1")
    assert two.created_at.isoformat() == THEN
    assert (three.priority, three.parent_id, three.waiting) == (3, None, True)  # ENG-9 is not in the file
    assert {link.on for link in ws.tasks.dependencies("ENG-3")} == {"ENG-1", "ENG-2"}
    assert ws.tasks.import_(lines, "linear").unchanged["tasks"] == report.created["tasks"]


@pytest.mark.parametrize("priority", [-1, 5, 9, 1.5, "high", 1e308])
def test_a_priority_that_linear_has_not_is_refused_with_its_line(ws: Workspace, priority: object) -> None:
    with pytest.raises(errors.Invalid, match="ENG-1"):
        ws.tasks.import_([json.dumps({"identifier": "ENG-1", "title": "a", "priority": priority})], "linear")


def test_answers_of_linear_become_tasks(ws: Workspace) -> None:
    whole = json.dumps({"data": {"issues": {"nodes": [NODE, {**NODE, "identifier": "ENG-5", "parent": None}]}}})
    assert trackers.recognise([whole]) == "linear"
    ws.tasks.import_([whole], "linear")
    task = ws.tasks.get("ENG-4")
    assert (task.status, task.type, task.priority, task.parent_id) == ("closed", "feature", 1, "ENG-5")
    assert task.refs[0].value == NODE["url"]
    assert {"Why?"} <= {entry.note for entry in ws.tasks.history("ENG-4")}


@pytest.mark.parametrize(
    ("line", "format"),
    [
        ('{"format": "holdfast.task/1", "id": "hf-1", "title": "x"}', "holdfast"),
        ('{"id": "bd-1", "title": "x", "status": "open"}', "beads"),
        ("", "holdfast"),
        ("[]", "holdfast"),
    ],
)
def test_a_file_is_recognised_by_what_is_in_it(line: str, format: str) -> None:
    assert trackers.recognise([line]) == format
    assert trackers.recognise(["", line]) == format


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no JSON", "it is neither JSON nor a CSV"),
        ("ID;Title\nA-1;x", "it is neither JSON nor a CSV"),
        ('"a quote that never ends', "it is neither JSON nor a CSV"),
        ('{"message": "Not Found", "status": "404"}', "its first record has message, status"),
        ('{"message": "Not Found"}', "its first record has message"),
        ('{"errors": [{"code": 7}]}', "its first record has code"),
        ("{}", "its first record has no fields"),
        ('[{"number": 7, "title": "x"}, {"numb', "begins as an array of JSON and is none: .* line 1 column"),
        ('[\n {"number": 7,\n "title": "x"}', "begins as an array of JSON and is none: .* line 3 column"),
    ],
)
def test_a_file_that_is_nothing_known_says_what_it_is(text: str, message: str) -> None:
    with pytest.raises(errors.Invalid, match=message):
        trackers.recognise(text.split("\n"))


@pytest.mark.parametrize(
    ("format", "text", "message"),
    [
        ("github", json.dumps([{"number": 8, "title": "y"}]), 'issue 8: it lacks "url"'),
        (
            "github",
            json.dumps([{**ISSUE, "url": "https://gitlab.com/a/b/-/issues/7"}]),
            "issue 12: 'https://gitlab.com",
        ),
        ("github", json.dumps([{**ISSUE, "labels": "bug"}]), "issue 12: labels must be a list"),
        ("github", json.dumps([{**ISSUE, "comments": [{"author": None}]}]), 'issue 12: comments[0] lacks "body"'),
        ("github", json.dumps([{**ISSUE, "milestone": "1.0"}]), "issue 12: milestone must be an object"),
        ("linear", "ID,Title,Created\nA-1,x,gestern", "issue A-1: 'gestern' is not a time"),
        ("linear", "ID,Title\nA-1,", 'issue A-1: the field "Title" is missing'),
        ("linear", "ID,Title\n,x", 'issue x: the field "ID" is missing'),
        ("linear", json.dumps([{"number": 7, "title": "x"}]), 'issue 7: it lacks "identifier"'),
        ("linear", json.dumps({**NODE, "comments": {"nodes": [{"user": None}]}}), 'the field "body" is missing'),
    ],
)
def test_an_issue_that_cannot_be_read_says_what_is_wrong_with_it(
    ws: Workspace, format: Any, text: str, message: str
) -> None:
    with pytest.raises(errors.Invalid) as refused:
        ws.tasks.import_(text.split("\n"), format)
    (problem,) = refused.value.details["problems"]
    assert message in problem.message


def test_a_record_of_another_format_of_ours_says_where_it_belongs(ws: Workspace) -> None:
    for format, message in (("holdfast.task/2", "update Holdfast"), ("holdfast.shared/1", "holdfast share reads")):
        with pytest.raises(errors.Invalid) as refused:
            ws.tasks.import_([json.dumps({"format": format, "id": "hf-1", "title": "x"})])
        assert message in refused.value.details["problems"][0].message


def test_a_csv_that_cannot_be_read_is_refused(ws: Workspace) -> None:
    with pytest.raises(errors.Invalid, match="the CSV cannot be read"):
        ws.tasks.import_(["ID,Title,Description", f"A-1,x,{'y' * 200_000}"], "linear")
    with pytest.raises(errors.Invalid, match="list of str"):
        ws.tasks.import_(5, "linear")  # type: ignore[arg-type]
