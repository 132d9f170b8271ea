"""Tasks as JSON lines (T18): what an export says, and what an import makes of it, of beads, and of nonsense.

That the same lines change nothing the second time is tried on every kind of workspace in the conformance suite. After
each test the store must be sound, whatever was imported.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast
from holdfast import Transaction, Workspace, errors
from holdfast.domains.tasks import Tasks
from holdfast.faces.cli.views import view
from holdfast.testing import ManualClock
from holdfast.types import ImportPart, ImportProblem, ImportReport
from holdfast.types.tasks import Author, Origin, Retired, TaskStatus
from tests.worlds.contents import contents

SAMPLE = Path(__file__).resolve().parents[2] / "../shared/samples/tasks/beads-issues.jsonl"
THEN = "2024-02-03T04:05:06.789012Z"
LATER = "2024-02-04T00:00:00Z"

# Written from the requirement: where a task can go from where it is, `reopen` included.
STEPS = {
    ("open", "in_progress"),
    ("in_progress", "open"),
    ("in_progress", "pending_merge"),
    ("in_progress", "blocked"),
    ("in_progress", "closed"),
    ("pending_merge", "closed"),
    ("pending_merge", "blocked"),
    ("blocked", "open"),
    ("blocked", "closed"),
    ("closed", "open"),
}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ws(clock: ManualClock) -> Iterator[Workspace]:
    with holdfast.open(":memory:", actor="importer", clock=clock) as workspace:
        yield workspace
        sound(workspace)


def sound(ws: Workspace) -> None:
    """Nothing is wrong with the store, the search index least of all."""
    assert ws.check().problems == []
    ws._engine.submit(
        lambda tx: tx.run("INSERT INTO tasks_fts(tasks_fts, rank) VALUES('integrity-check', 1)"), "tester"
    )


def own(id: str, **fields: Any) -> str:
    """A line of our own format."""
    return json.dumps({"format": "holdfast.task/1", "id": id, "title": f"title of {id}", **fields})


def issue(id: str, **fields: Any) -> str:
    """A line of beads."""
    known = {"id": id, "title": f"title of {id}", "status": "open", "priority": 2, "issue_type": "task"}
    return json.dumps({**known, "created_at": "2024-02-02T21:05:06.789012-07:00", **fields})


def depends(id: str, on: str, type: str = "blocks", **more: Any) -> dict[str, Any]:
    """A dependency of beads."""
    return {"issue_id": id, "depends_on_id": on, "type": type, **more}


def notes(ws: Workspace, id: str) -> list[str]:
    """Its notes, oldest first."""
    return [entry.new_value for entry in reversed(ws.tasks.history(id, field="note"))]


def lines_of(problems: list[ImportProblem]) -> list[tuple[int, str | None]]:
    return [(problem.line, problem.id) for problem in problems]


def refused(ws: Workspace, lines: list[Any], **options: Any) -> list[ImportProblem]:
    """The import is refused and has changed nothing; answers its problems."""
    before = contents(ws)
    with pytest.raises(errors.Invalid) as caught:
        ws.tasks.import_(lines, **options)
    assert contents(ws) == before
    problems: list[ImportProblem] = caught.value.problems
    assert str(problems[0]) in caught.value.message
    assert all(problem.severity == "error" for problem in problems)
    return problems


# --- exporting -------------------------------------------------------------------------------------------------------


def test_t18_a_line_has_every_field_in_order_and_comes_back_byte_for_byte(ws: Workspace) -> None:
    line = (
        '{"assigned_to":"anna","body":"é\\n☃","claimed_at":null,"claimed_by":null,'
        '"created_at":"2024-02-03T04:05:06.789012Z","deferred_until":null,"deleted_at":null,"deleted_with":null,"depends_on":["b"],"depth":1,"discovered_from":["c"],'
        '"format":"holdfast.task/1","grimoire":"spell","grimoire_hint":"hint","id":"a","notes":[{"at":'
        '"2024-02-03T04:05:07Z","by":"anna","text":"first"},{"at":"2024-02-03T04:05:06.5Z","by":"bert","text":"second"}],'
        '"origin":{"closed_at":"2024-02-03T00:00:00Z","created_by":"carl"},"parent_id":"c","priority":0,'
        '"refs":[{"kind":"branch","value":"fix/it"}],"related":["b","c"],"result":{"pages":[1,2.5,null]},"status":"pending_merge","tags":["x","x/y"],"title":"Tëst",'
        '"type":"bug","updated_at":"2024-02-04T00:00:00Z"}'
    ).replace("06.5Z", "06.500000Z")
    ws.tasks.import_([line, own("b"), own("c")])
    assert ws.tasks.export()[0] == line
    assert list(json.loads(line)) == sorted(json.loads(line))


def test_t18_a_line_tells_what_only_this_workspace_can_know_nothing(ws: Workspace) -> None:
    task = ws.tasks.create("a")
    ws.tasks.claim(task.id, "agent")
    found = json.loads(ws.tasks.export()[0])
    assert {"token", "deadline", "version", "revision"}.isdisjoint(found)
    assert (found["status"], found["claimed_by"]) == ("in_progress", "agent")


def test_t18_pages_follow_each_other_in_the_order_of_creation(ws: Workspace) -> None:
    ids = [ws.tasks.create(f"task {number}", priority=number % 5).id for number in range(25)]
    pages = []
    after = None
    while page := ws.tasks.export(after=after, limit=7):
        pages.append(page)
        after = json.loads(page[-1])["id"]
    assert [len(page) for page in pages] == [7, 7, 7, 4]
    assert [json.loads(line)["id"] for page in pages for line in page] == ids
    assert ws.tasks.export() == list(itertools.chain(*pages))


def test_t18_an_export_refuses_limits_and_starts_that_make_no_sense(ws: Workspace) -> None:
    for limit in (0, 1001, True, "5"):
        with pytest.raises(errors.InvalidFilter):
            ws.tasks.export(limit=limit)  # type: ignore[arg-type]
    with pytest.raises(errors.TaskNotFound):
        ws.tasks.export(after="nobody")
    with pytest.raises(errors.InvalidName):
        ws.tasks.export(after="")


def test_t18_deleted_tasks_and_links_to_them_are_exported_only_on_request(ws: Workspace) -> None:
    one, other = ws.tasks.create("one").id, ws.tasks.create("other").id
    ws.tasks.depend(one, other)
    ws.tasks.delete(other)
    (line,) = ws.tasks.export()
    assert json.loads(line)["depends_on"] == []
    lines = [json.loads(line) for line in ws.tasks.export(include_deleted=True)]
    assert [line["id"] for line in lines] == [one, other]
    assert lines[0]["depends_on"] == [other]
    assert lines[1]["deleted_at"] is not None
    assert lines[1]["deleted_with"] == other


def test_t18_a_line_has_notes_and_the_reasons_of_steps_with_their_time_and_actor(
    ws: Workspace, clock: ManualClock
) -> None:
    task = ws.tasks.create("a")
    ws.using(actor="anna").tasks.note(task.id, "look here")
    clock.advance(60)
    ws.tasks.claim(task.id, "bert")
    ws.using(actor="bert").tasks.complete(task.id, "bert", summary="done")
    start = task.created_at
    assert json.loads(ws.tasks.export()[0])["notes"] == [
        {"at": start.isoformat().replace("+00:00", "Z"), "by": "anna", "text": "look here"},
        {"at": (start + timedelta(seconds=60)).isoformat().replace("+00:00", "Z"), "by": "bert", "text": "done"},
    ]


# --- the way there and back ------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
LINE = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=20)
TITLE = LINE.filter(lambda text: bool(text.strip()))
TAG = st.sampled_from(["a", "b", "area/x", "area/y", "ünï code"])
PICK = st.integers(0, 9)
STEP = st.one_of(
    st.tuples(st.just("create"), TITLE, TEXT, st.none() | PICK, st.lists(TAG, max_size=3), st.integers(0, 4)),
    st.tuples(st.just("depend"), PICK, PICK, st.sampled_from(["depends_on", "discovered_from", "related"])),
    st.tuples(st.just("note"), PICK, TITLE),
    st.tuples(st.just("finish"), PICK, st.booleans(), TEXT),
    st.tuples(st.just("block"), PICK, TEXT),
    st.tuples(st.sampled_from(["unblock", "approve", "reject", "reopen", "cancel", "delete", "restore"]), PICK),
    st.tuples(st.just("reparent"), PICK, st.none() | PICK),
    st.tuples(st.just("update"), PICK, TITLE, st.sampled_from(["", "spell"]), st.integers(0, 4)),
    st.tuples(st.just("tag"), PICK, st.lists(TAG, max_size=3)),
    st.tuples(st.just("wait"), st.integers(1, 100_000)),
)


def play(ws: Workspace, clock: ManualClock, steps: list[Any], known: list[str] | None = None) -> list[str]:
    """Make a store by trying every step; those that are refused are as good as any. Answers the ids."""
    ids = [*(known or ())]
    for name, *args in steps:
        if name == "wait":
            clock.advance(args[0] / 7)
        elif name == "create":
            title, body, parent, tags, priority = args
            under = None if parent is None or not ids else ids[parent % len(ids)]
            try:
                ids.append(ws.tasks.create(title, body, priority=priority, parent_id=under, tags=tags).id)
            except errors.ParentNotFound:
                ids.append(ws.tasks.create(title, body, priority=priority, tags=tags).id)
        elif ids:
            try:
                one_step(ws, ids, name, args)
            except (errors.Invalid, errors.Conflict, errors.NotFound):
                continue
    return ids


def finish(tx: Transaction, id: str, review: bool, text: str) -> None:
    """All of it or nothing: what stays claimed is not imported."""
    tx.tasks.claim(id, "agent")
    tx.tasks.complete(id, "agent", summary=text, review=review)


def block(tx: Transaction, id: str, text: str) -> None:
    tx.tasks.claim(id, "agent")
    tx.tasks.block(id, "agent", reason=text)


def one_step(ws: Workspace, ids: list[str], name: str, args: list[Any]) -> None:
    id = ids[args[0] % len(ids)]
    match name, args[1:]:
        case "depend", (on, kind):
            ws.tasks.depend(id, ids[on % len(ids)], kind)
        case "note", (text,):
            ws.using(actor="noter").tasks.note(id, text)
        case "finish", (review, text):
            ws.transact(lambda tx: finish(tx, id, review, text))
        case "block", (text,):
            ws.transact(lambda tx: block(tx, id, text))
        case "reparent", (parent,):
            ws.tasks.reparent(id, None if parent is None else ids[parent % len(ids)])
        case "update", (title, hint, priority):
            ws.tasks.update(id, title=title, grimoire_hint=hint, type="chore", priority=priority)
        case "tag", (tags,):
            ws.tasks.set_tags(id, tags)
        case _:
            getattr(ws.tasks, name)(id)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(STEP, min_size=5, max_size=40), st.booleans(), st.randoms(use_true_random=False))
def test_t18_whatever_is_exported_and_imported_elsewhere_exports_the_same_again(
    steps: list[Any], deleted: bool, random: Any
) -> None:
    clock = ManualClock()
    with (
        holdfast.open(":memory:", actor="source", clock=clock) as source,
        holdfast.open(":memory:", actor="target", clock=ManualClock()) as target,
    ):
        play(source, clock, steps)
        lines = source.tasks.export(include_deleted=deleted)
        report = target.tasks.import_(lines)
        assert report.created["tasks"] == [json.loads(line)["id"] for line in lines]
        assert (report.skipped, report.conflicts, report.warnings) == ([], [], [])
        sound(target)
        assert target.tasks.export(include_deleted=deleted) == lines
        revision = target.revision
        random.shuffle(lines)
        again = target.tasks.import_(lines)
        assert len(again.unchanged["tasks"]) == len(lines)
        assert target.revision == revision
        # and home again, where nothing has changed either
        assert len(source.tasks.import_(lines).unchanged["tasks"]) == len(lines)
        sound(source)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(STEP, min_size=5, max_size=25), st.lists(STEP, min_size=1, max_size=25))
def test_t18_a_copy_that_nobody_touches_follows_its_source(steps: list[Any], news: list[Any]) -> None:
    clock = ManualClock()
    with (
        holdfast.open(":memory:", actor="source", clock=clock) as source,
        holdfast.open(":memory:", actor="target", clock=ManualClock()) as target,
    ):
        ids = play(source, clock, steps)
        target.tasks.import_(source.tasks.export(include_deleted=True))
        play(source, clock, news, ids)
        lines = source.tasks.export(include_deleted=True)
        report = target.tasks.import_(lines)
        assert (report.skipped, report.conflicts, report.warnings) == ([], [], [])
        assert target.tasks.export(include_deleted=True) == lines
        sound(target)


def test_t18_the_order_of_the_lines_does_not_matter_for_parents_and_links(ws: Workspace) -> None:
    chain = [own("t0"), *(own(f"t{n}", parent_id=f"t{n - 1}", depends_on=[f"t{n - 1}"]) for n in range(1, 30))]
    ws.tasks.import_(chain[::-1])
    assert [ws.tasks.get(f"t{n}").depth for n in range(30)] == list(range(30))
    codes = [[reason.code for reason in ws.tasks.explain(id).reasons] for id in ("t0", "t1", "t29")]
    assert codes == [["children"], ["dependencies", "children"], ["dependencies"]]


def test_t18_a_restored_family_comes_back_whole_where_it_was_imported(ws: Workspace) -> None:
    root = ws.tasks.create("root").id
    child = ws.tasks.create("child", parent_id=root).id
    before = ws.tasks.create("gone before", parent_id=root).id
    ws.tasks.delete(before)
    ws.tasks.delete(root)
    lines = ws.tasks.export(include_deleted=True)
    with holdfast.open(":memory:", actor="other", clock=ManualClock()) as other:
        other.tasks.import_(lines)
        assert other.tasks.list() == []
        other.tasks.restore(root)
        assert {task.id for task in other.tasks.list()} == {root, child}
        sound(other)


# --- what an import makes --------------------------------------------------------------------------------------------


def test_t18_ids_and_times_are_kept_as_they_are_in_the_file(ws: Workspace) -> None:
    ws.tasks.import_([own("Some.odd_id-1", created_at="2024-02-03T06:05:06.789012+02:00", updated_at=LATER)])
    task = ws.tasks.get("Some.odd_id-1")
    assert task.created_at == datetime.fromisoformat(THEN)
    assert task.updated_at == datetime(2024, 2, 4, tzinfo=UTC)


def test_t18_a_line_without_times_is_of_the_time_of_its_import(ws: Workspace) -> None:
    now = ws.tasks.create("now").created_at
    ws.tasks.import_([own("a")])
    task = ws.tasks.get("a")
    assert (task.created_at, task.updated_at, task.priority, task.type) == (now, now, 2, "task")


def test_t18_a_child_keeps_that_it_has_no_hint_though_its_parent_has_one(ws: Workspace) -> None:
    ws.tasks.import_([own("p", grimoire_hint="spell"), own("c", parent_id="p")])
    assert ws.tasks.get("c").grimoire_hint is None


def test_t18_a_task_in_progress_becomes_open_and_a_note_says_who_had_it(ws: Workspace) -> None:
    report = ws.tasks.import_([own("a", status="in_progress", claimed_by="anna", claimed_at=THEN)])
    task = ws.tasks.get("a")
    assert (task.status, task.claimed_by, task.token) == ("open", None, None)
    assert lines_of(report.warnings) == [(1, "a")]
    assert notes(ws, "a") == [
        "in progress when it was exported, claimed by anna since 2024-02-03T04:05:06.789012+00:00"
    ]
    assert ws.tasks.claim("a", "bert").claimed_by == "bert"


def test_t18_an_imported_task_can_be_found_filtered_claimed_and_finished(ws: Workspace) -> None:
    note = {"at": THEN, "by": "anna", "text": "the xylophone"}
    ws.tasks.import_([own("a", body="a zebra", tags=["area/x"], notes=[note]), own("b", depends_on=["a"], tags=["z"])])
    assert [hit.task.id for hit in ws.tasks.search("zebra")] == ["a"]
    assert [hit.task.id for hit in ws.tasks.search("xylophone")] == ["a"]
    assert [task.id for task in ws.tasks.list(tag="area/x")] == ["a"]
    assert ws.tasks.claim_next("agent", tags=["z"]) is None
    assert ws.tasks.claim_next("agent") == ws.tasks.get("a")
    ws.tasks.complete("a", "agent")
    assert [task.id for task in ws.tasks.ready()] == ["b"]


def test_t18_an_id_may_be_the_name_of_anything_else(ws: Workspace) -> None:
    """Claims are leases, and so is the timer of retention, which a closed task sets."""
    ws.tasks.import_([own("retention"), own("lock", status="closed")])
    assert ws.tasks.claim("retention", "agent").claimed_by == "agent"
    ws.tasks.complete("retention", "agent")


def test_t18_new_tasks_never_get_an_imported_id(ws: Workspace) -> None:
    ws.tasks.import_([own(f"hf-{a}{b}00") for a in "0123456789" for b in "0123456789"])
    made = {ws.tasks.create("x").id for _ in range(50)}
    assert len(made) == 50


def test_t18_a_field_without_a_place_is_named_in_a_warning_and_kept_in_a_note(ws: Workspace) -> None:
    report = ws.tasks.import_([own("a", mood="good", size=[1, {"x": None}], claimed_by="anna")])
    (warning,) = report.warnings
    assert (warning.line, warning.id, warning.severity) == (1, "a", "warning")
    assert all(name in warning.message for name in ("mood", "size", "claimed_by"))
    assert [json.loads(text) for text in notes(ws, "a")] == [
        {"mood": "good", "size": [1, {"x": None}], "claimed_by": "anna"}
    ]


def test_t18_blank_lines_and_nothing_at_all_are_fine(ws: Workspace) -> None:
    assert ws.tasks.import_([]) == ImportReport({"tasks": []}, {"tasks": []}, {"tasks": []}, [], [], [])
    assert ws.tasks.import_(["", own("a") + "\n", "  \n"]).created["tasks"] == ["a"]


def test_t18_a_dry_run_tells_the_same_and_does_nothing(ws: Workspace) -> None:
    ws.tasks.import_([own("a"), own("b")])
    lines = [own("a", title="new"), own("b"), own("c", status="closed", mood="good"), "{"]
    before = contents(ws)
    trial = ws.tasks.import_(lines, dry_run=True, skip_bad=True)
    assert contents(ws) == before
    assert trial.dry_run
    report = ws.tasks.import_(lines, skip_bad=True)
    assert (report.created["tasks"], report.updated["tasks"], report.unchanged["tasks"]) == (["c"], ["a"], ["b"])
    assert (trial.created, trial.updated, trial.unchanged) == (report.created, report.updated, report.unchanged)
    assert (trial.skipped, trial.warnings) == (report.skipped, report.warnings)
    with pytest.raises(errors.Invalid):
        ws.tasks.import_(lines, dry_run=True)


def test_t18_an_import_is_part_of_the_transaction_around_it(ws: Workspace) -> None:
    def body(tx: Transaction) -> None:
        tx.tasks.import_([own("a")])
        assert tx.tasks.get("a").id == "a"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ws.transact(body)
    assert ws.tasks.list(include_deleted=True) == []
    revision = ws.revision
    ws.tasks.import_([own(f"t{n}", status="closed", notes=[{"at": THEN, "by": "x", "text": "y"}]) for n in range(20)])
    assert ws.revision == revision + 1


# --- the second time -------------------------------------------------------------------------------------------------


def test_t18_what_changed_only_in_the_file_is_followed_in_every_field(ws: Workspace) -> None:
    others = [own("p"), own("q"), own("r")]
    ws.tasks.import_([*others, own("a", body="old body", tags=["x", "y"], depends_on=["p"], parent_id="p")])
    news = own(
        "a",
        title="new",
        body="new body",
        type="epic",
        priority=4,
        tags=["y", "z"],
        depends_on=["q"],
        related=["r"],
        discovered_from=["p"],
        parent_id="q",
        grimoire_hint="hint",
        grimoire="spell",
        created_at=THEN,
        updated_at=LATER,
        notes=[{"at": THEN, "by": "anna", "text": "a note"}],
    )
    report = ws.tasks.import_([*others, news])
    assert (report.updated["tasks"], report.unchanged["tasks"], report.warnings) == (["a"], ["p", "q", "r"], [])
    exported = {json.loads(line)["id"]: json.loads(line) for line in ws.tasks.export()}["a"]
    assert {name: exported[name] for name in json.loads(news)} == json.loads(news)
    assert [hit.task.id for hit in ws.tasks.search("old")] == []
    assert [task.id for task in ws.tasks.list(tag="x")] == []
    assert {entry.op for entry in ws.tasks.history("a")} == {"create", "import"}
    assert ws.tasks.import_([*others, news]).unchanged["tasks"] == ["p", "q", "r", "a"]


def test_t18_a_task_that_has_to_wait_from_now_on_is_not_ready_by_any_of_its_new_tags(ws: Workspace) -> None:
    ws.tasks.import_([own("a", tags=["x"], priority=1), own("b", priority=4)])
    ws.tasks.import_([own("a", tags=["x", "y"], priority=3, depends_on=["b"]), own("b", priority=4)])
    assert [ws.tasks.claim_next("agent", tags=[tag]) for tag in ("x", "y")] == [None, None]
    ws.tasks.import_([own("a", tags=["y"], priority=0), own("b", priority=4)])
    assert [task.id for task in ws.tasks.ready()] == ["a", "b"]
    claimed = ws.tasks.claim_next("agent", tags=["y"])
    assert claimed is not None
    assert claimed.id == "a"


def test_t18_only_what_changed_is_in_the_history_of_an_update(ws: Workspace) -> None:
    ws.tasks.import_([own("a", tags=["x"])])
    version = ws.tasks.get("a").version
    ws.tasks.import_([own("a", tags=["x"], title="new")])
    fields = [(entry.op, entry.field) for entry in ws.tasks.history("a") if entry.version > version]
    assert fields == [("import", "title")]


def test_t18_a_record_that_lost_more_than_a_note_can_hold_is_refused(ws: Workspace) -> None:
    ids = [f"t{n}-{'x' * 50}" for n in range(1300)]
    ws.tasks.import_([own(id) for id in ids])
    ws.tasks.bulk("delete", ids)
    for id in ids:
        ws.tasks.purge(id)
    (problem,) = refused(ws, [own("a"), own("b", depends_on=ids)])
    assert (problem.line, problem.id) == (2, "b")


def test_t18_what_was_done_and_undone_there_still_moves_the_time_of_the_last_change(ws: Workspace) -> None:
    ws.tasks.import_([own("a", updated_at=THEN)])
    assert ws.tasks.import_([own("a", updated_at=LATER)]).updated["tasks"] == ["a"]
    assert ws.tasks.get("a").updated_at == datetime.fromisoformat(LATER)
    assert ws.tasks.history("a")[0].field == "updated_at"


@pytest.mark.parametrize("target", ["open", "pending_merge", "blocked", "closed"])
@pytest.mark.parametrize("source", ["open", "pending_merge", "blocked", "closed"])
def test_t18_a_status_is_reached_by_steps_that_exist(ws: Workspace, source: TaskStatus, target: TaskStatus) -> None:
    lines = [own("p"), own("w", depends_on=["a"])]
    ws.tasks.import_([*lines, own("a", parent_id="p", status=source)])
    assert ws.tasks.get("a").status == source
    sound(ws)
    ws.tasks.import_([*lines, own("a", parent_id="p", status=target)])
    assert ws.tasks.get("a").status == target
    taken = [entry for entry in reversed(ws.tasks.history("a", field="status")) if entry.op != "create"]
    assert {(entry.old_value, entry.new_value) for entry in taken} <= STEPS
    assert {entry.op for entry in taken} <= {"import"}
    assert ("w" in {task.id for task in ws.tasks.ready()}) == (target == "closed")
    assert ("p" in {task.id for task in ws.tasks.ready()}) == (target == "closed")


def test_t18_what_changed_only_here_stays(ws: Workspace) -> None:
    ws.tasks.import_([own("a"), own("b")])
    ws.tasks.update("a", title="ours")
    ws.tasks.delete("b")
    before = contents(ws)
    report = ws.tasks.import_([own("a"), own("b")])
    assert report.unchanged["tasks"] == ["a", "b"]
    assert contents(ws) == before


def test_t18_the_order_of_fields_and_nulls_is_no_change(ws: Workspace) -> None:
    ws.tasks.import_([own("a", tags=["x"], parent_id=None)])
    ws.tasks.update("a", title="ours")
    turned = json.dumps(dict(reversed(json.loads(own("a", tags=["x"], grimoire=None)).items())))
    assert ws.tasks.import_([turned]).unchanged["tasks"] == ["a"]


def test_t18_what_changed_on_both_sides_is_reported_and_left_alone(ws: Workspace) -> None:
    ws.tasks.import_([own("a"), own("b")])
    ws.tasks.update("a", title="ours")
    lines = [own("a", body="theirs"), own("b", body="theirs")]
    report = ws.tasks.import_(lines)
    assert (report.updated["tasks"], report.unchanged["tasks"]) == (["b"], [])
    (conflict,) = report.conflicts
    assert (conflict.line, conflict.id) == (1, "a")
    assert "body" in conflict.message
    assert "title" in conflict.message
    task = ws.tasks.get("a")
    assert (task.title, task.body) == ("ours", "")
    revision = ws.revision
    assert ws.tasks.import_(lines).conflicts == [conflict]
    assert ws.revision == revision


def test_t18_with_prefer_theirs_the_file_wins_and_the_report_says_so(ws: Workspace) -> None:
    ws.tasks.import_([own("a")])
    ws.tasks.update("a", title="ours", priority=0)
    report = ws.tasks.import_([own("a", body="theirs")], prefer="theirs")
    assert (report.updated["tasks"], report.conflicts) == (["a"], [])
    assert lines_of(report.warnings) == [(1, "a")]
    assert "priority" in report.warnings[0].message
    task = ws.tasks.get("a")
    assert (task.title, task.body, task.priority) == ("title of a", "theirs", 2)
    assert ws.tasks.import_([own("a", body="theirs")], prefer="theirs").unchanged["tasks"] == ["a"]


def test_t18_the_same_change_on_both_sides_is_no_conflict(ws: Workspace) -> None:
    ws.tasks.import_([own("a")])
    ws.tasks.update("a", title="better")
    revision = ws.revision
    assert ws.tasks.import_([own("a", title="better")]).unchanged["tasks"] == ["a"]
    assert ws.revision == revision
    assert ws.tasks.import_([own("a", title="best")]).updated["tasks"] == ["a"]


def test_t18_a_task_made_here_is_not_overwritten_by_a_file_that_has_its_id(ws: Workspace) -> None:
    id = ws.tasks.create("ours").id
    assert lines_of(ws.tasks.import_([own(id, title="theirs")]).conflicts) == [(1, id)]
    assert ws.tasks.get(id).title == "ours"
    assert ws.tasks.import_([own(id, title="theirs")], prefer="theirs").updated["tasks"] == [id]
    assert ws.tasks.get(id).title == "theirs"


def test_t18_one_s_own_export_changes_nothing_not_even_with_claims_and_deletions(ws: Workspace) -> None:
    one, other, third = (ws.tasks.create(title).id for title in ("one", "other", "third"))
    ws.tasks.depend(one, other)
    ws.tasks.delete(other)
    ws.tasks.claim(third, "agent")
    for deleted in (False, True):
        lines = ws.tasks.export(include_deleted=deleted)
        revision = ws.revision
        assert len(ws.tasks.import_(lines).unchanged["tasks"]) == len(lines)
        assert ws.revision == revision
    assert ws.tasks.get(third).claimed_by == "agent"
    ws.tasks.restore(other)
    assert ws.tasks.explain(one).reasons[0].ids == (other,)


def test_t18_an_edited_export_is_followed_once_the_store_has_seen_it(ws: Workspace) -> None:
    id = ws.tasks.create("a").id
    (line,) = ws.tasks.export()
    ws.tasks.import_([line])
    assert ws.tasks.import_([line.replace('"title":"a"', '"title":"b"')]).updated["tasks"] == [id]


def test_t18_a_claim_is_never_taken_away_not_even_for_theirs(ws: Workspace) -> None:
    ws.tasks.import_([own("a")])
    claimed = ws.tasks.claim("a", "agent")
    lines = [own("a", status="closed", title="theirs", deleted_at=THEN)]
    assert lines_of(ws.tasks.import_(lines).conflicts) == [(1, "a")]
    report = ws.tasks.import_(lines, prefer="theirs")
    task = ws.tasks.get("a")
    assert (task.title, task.status, task.claimed_by, task.token) == ("theirs", "in_progress", "agent", claimed.token)
    assert task.deadline == claimed.deadline
    assert any("agent" in warning.message for warning in report.warnings)
    ws.tasks.complete("a", "agent", token=claimed.token)


def test_t18_a_deletion_and_its_end_are_followed(ws: Workspace) -> None:
    ws.tasks.import_([own("a"), own("b", depends_on=["a"])])
    ws.tasks.import_([own("a", deleted_at=THEN), own("b", depends_on=["a"])])
    assert ws.tasks.get("a", include_deleted=True).deleted_at == datetime.fromisoformat(THEN)
    assert [task.id for task in ws.tasks.ready()] == ["b"]
    ws.tasks.import_([own("a"), own("b", depends_on=["a"])])
    assert [task.id for task in ws.tasks.ready()] == ["a"]


def test_t18_parents_can_be_turned_upside_down(ws: Workspace) -> None:
    ws.tasks.import_([own("a"), own("b", parent_id="a"), own("c", parent_id="b"), own("d", parent_id="c")])
    ws.tasks.import_([own("d", parent_id="a"), own("a", parent_id="b"), own("b", parent_id="c"), own("c")])
    assert [task.id for task in ws.tasks.ancestors("d")] == ["a", "b", "c"]
    assert ws.tasks.get("d").depth == 3


def test_t18_a_purged_task_stays_purged_and_nobody_waits_for_it(ws: Workspace) -> None:
    ws.tasks.import_([own("a"), own("b")])
    ws.tasks.purge("a")
    report = ws.tasks.import_([own("a"), own("c", depends_on=["a"], parent_id="a", related=["a", "b"])])
    assert (lines_of(report.skipped), report.created["tasks"]) == ([(1, "a")], ["c"])
    assert [task.id for task in ws.tasks.ready()] == ["b", "c"]
    (warning,) = report.warnings
    assert "depends_on" in warning.message
    assert json.loads(notes(ws, "c")[0]) == {"depends_on": ["a"], "parent_id": "a", "related": ["a"]}
    with pytest.raises(errors.TaskNotFound):
        ws.tasks.get("a", include_deleted=True)


# --- what is refused -------------------------------------------------------------------------------------------------

BAD: list[Any] = [
    ("{", "invalid JSON"),
    ("[1]", "not a JSON object"),
    ("[" * 5000 + "]" * 5000, "invalid JSON"),
    ('"\udc80"', "invalid JSON"),
    (7, "text"),
    ("{}", 'the field "id" is missing'),
    (json.dumps({"format": "holdfast.task/2", "id": "x", "title": "t"}), "holdfast.task/2"),
    (json.dumps({"id": "x", "title": "t"}), 'the field "format" is missing'),
    (json.dumps({"format": "holdfast.task/1", "id": "x"}), "title"),
    *((own(id), "cannot be one: ids are") for id in ("", "a b", "a/b", "ü", "x" * 65, "a\n")),
    (own("x", title=" "), "title is empty"),
    (own("x", title=5), "title"),
    (own("x", title="two\nlines"), "title"),
    (own("x", title="t" * 501), "title has 501"),
    (own("x", body="b" * 262_145), "body has"),
    (own("x", body="\0"), "NUL"),
    (own("x", priority=5), "priority"),
    (own("x", priority="2"), "priority"),
    (own("x", priority=True), "priority"),
    (own("x", type="story"), "type"),
    (own("x", status="done"), "status"),
    (own("x", tags=["/"]), "tag"),
    (own("x", tags="a"), "tags"),
    (own("x", tags=[f"t{n}" for n in range(65)]), "65 tags"),
    (own("x", created_at="yesterday"), "created_at"),
    (own("x", created_at="2024-02-03T04:05:06"), "created_at"),
    (own("x", created_at="0001-01-01T00:00:00+14:00"), "created_at"),
    (own("x", updated_at="1969-12-31T23:59:59Z"), "1970"),
    (own("x", notes=[{"at": THEN, "by": "x"}]), "notes"),
    (own("x", notes=[{"at": THEN, "by": "x", "text": "y", "z": 1}]), "notes"),
    (own("x", notes=[{"at": THEN, "by": "", "text": "y"}]), "author"),
    (own("x", notes=[{"at": THEN, "by": "x", "text": "y" * 65_537}]), "note has"),
    (own("x", grimoire_hint="\n"), "grimoire_hint"),
    (own("x", big="y" * 65_537), "the note that would keep big has"),
    (own("x", status="pending_merge", deleted_at=THEN), "pending merge"),
    (own("x", parent_id="nobody"), "nobody"),
    (own("x", depends_on=["good", "nobody", "nemo"]), "nemo, nobody"),
    (own("x", depends_on=["x"]), "itself"),
    (own("x", related=["x"]), "itself"),
    (own("x", parent_id="x"), "itself"),
    (own("x", parent_id="gone"), "gone is deleted"),
    (own("good"), "line 1 has the same id"),
]


@pytest.mark.parametrize(("line", "message"), BAD, ids=range(len(BAD)))
def test_t18_a_line_that_makes_no_sense_is_named_and_refuses_all_or_is_left_out(
    ws: Workspace, line: Any, message: str
) -> None:
    ws.tasks.import_([own("gone")])
    ws.tasks.delete("gone")
    (problem,) = refused(ws, [own("good"), "", line, own("better")])
    assert problem.line == 3
    assert message in problem.message
    report = ws.tasks.import_([own("good"), "", line, own("better")], skip_bad=True)
    assert (report.created["tasks"], report.skipped) == (["good", "better"], [problem])


def test_t18_every_bad_line_is_named_in_the_order_of_the_file_but_not_who_only_relied_on_it(ws: Workspace) -> None:
    lines = ["{", own("a", depends_on=["b"]), own("b", priority=9), own("c", parent_id="nobody"), "}"]
    assert lines_of(refused(ws, lines)) == [(1, None), (3, "b"), (4, "c"), (5, None)]
    report = ws.tasks.import_(lines, skip_bad=True)
    assert lines_of(report.skipped) == [(1, None), (2, "a"), (3, "b"), (4, "c"), (5, None)]


def test_t18_circles_are_refused_with_their_path(ws: Workspace) -> None:
    (problem,) = refused(ws, [own("a", depends_on=["b"]), own("b", depends_on=["c"]), own("c", depends_on=["a"])])
    assert (problem.line, problem.id) == (3, "c")
    assert "a -> b -> c -> a" in problem.message
    (problem,) = refused(ws, [own("a", parent_id="b"), own("b", parent_id="a")])
    assert "a -> b -> a" in problem.message
    assert problem.line == 2


def test_t18_a_circle_through_tasks_that_are_here_already_is_one_too(ws: Workspace) -> None:
    ws.tasks.import_([own("a"), own("b", depends_on=["a"], parent_id="a"), own("c", depends_on=["b"], parent_id="b")])
    (problem,) = refused(ws, [own("a", depends_on=["c"])])
    assert "a -> c -> b -> a" in problem.message
    (problem,) = refused(ws, [own("a", parent_id="c")])
    assert "a -> c -> b -> a" in problem.message


def test_t18_with_skip_bad_each_circle_loses_one_record_and_what_relied_on_it(ws: Workspace) -> None:
    lines = [
        *(own("a", depends_on=["b"]), own("b", depends_on=["a"])),
        *(own("c", depends_on=["d"]), own("d", depends_on=["c"]), own("e", parent_id="d")),
        own("f"),
    ]
    report = ws.tasks.import_(lines, skip_bad=True)
    assert report.created["tasks"] == ["f"]
    assert lines_of(report.skipped) == [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]


def test_t18_a_record_left_out_leaves_its_task_as_it_was_also_where_that_closes_a_circle(ws: Workspace) -> None:
    """The file turns a dependency round; half of that would be a circle."""
    ws.tasks.import_([own("a", depends_on=["b"]), own("b")])
    report = ws.tasks.import_([own("a", related=["nobody"]), own("b", depends_on=["a"])], skip_bad=True)
    assert lines_of(report.skipped) == [(1, "a"), (2, "b")]
    assert [task.id for task in ws.tasks.ready()] == ["b"]


def test_t18_a_circle_that_comes_of_leaving_out_another_is_found_too(ws: Workspace) -> None:
    ws.tasks.import_([own("a", depends_on=["b"]), own("b")])
    lines = [own("x", parent_id="a"), own("b", depends_on=["a"]), own("a", parent_id="x")]
    report = ws.tasks.import_(lines, skip_bad=True)
    assert (report.created["tasks"], lines_of(report.skipped)) == (["x"], [(2, "b"), (3, "a")])


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"priority": "high"}, "priority must be a number from 0 (critical) to 4 (backlog), not 'high'"),
        ({"type": "x"}, "'x' is not a type of task"),
        ({"status": "x"}, "'x' is not a status: statuses are open, in_progress, pending_merge, blocked, closed"),
        ({"title": 5}, "title must be a string, not a whole number"),
        ({"title": None}, 'the field "title" is missing'),
        ({"tags": "x"}, "tags must be a list, not 'x'"),
        ({"parent_id": 5}, "parent_id must be a string, not a whole number"),
        ({"created_at": "x"}, "created_at must be a time such as 2026-03-01T12:00:00Z"),
        ({"notes": [{"by": "a", "text": "x"}]}, 'notes[0] lacks "at"'),
    ],
)
def test_t18_a_bad_field_is_refused_with_the_words_of_create(ws: Workspace, fields: dict[str, Any], told: str) -> None:
    assert [problem.message for problem in refused(ws, [own("a", **fields)])] == [told]


def test_t18_a_bad_field_of_beads_is_refused_with_the_words_of_create(ws: Workspace) -> None:
    (problem,) = refused(ws, [issue("a", priority="high")], format="beads")
    assert problem.message == "priority must be a number from 0 (critical) to 4 (backlog), not 'high'"


def test_t18_a_long_chain_that_hangs_on_a_bad_line_goes_with_it(ws: Workspace) -> None:
    chain = [own(f"t{n}", depends_on=[f"t{n + 1}"]) for n in range(2000)]
    report = ws.tasks.import_([*chain, own("t2000", priority=7), own("free")], skip_bad=True)
    assert report.created["tasks"] == ["free"]
    assert len(report.skipped) == 2001


def test_t18_nothing_live_may_lie_under_what_the_file_deletes(ws: Workspace) -> None:
    ws.tasks.import_([own("p"), own("c", parent_id="p")])
    (problem,) = refused(ws, [own("p", deleted_at=THEN)])
    assert "c" in problem.message
    (problem,) = refused(ws, [own("p", deleted_at=THEN), own("c", parent_id="p", body="new")])
    assert problem.id == "c"
    report = ws.tasks.import_([own("p", deleted_at=THEN), own("c", parent_id="p", body="new")], skip_bad=True)
    assert lines_of(report.skipped) == [(1, "p"), (2, "c")]
    ws.tasks.import_([own("p", deleted_at=THEN), own("c", parent_id="p", deleted_at=THEN, deleted_with="p")])
    assert ws.tasks.list() == []
    ws.tasks.restore("p")
    assert [task.id for task in ws.tasks.list()] == ["p", "c"]


def test_t18_what_somebody_holds_here_stays_so_nothing_above_it_is_deleted_either(ws: Workspace) -> None:
    ws.tasks.import_([own("p"), own("c", parent_id="p")])
    ws.tasks.claim("c", "agent")
    (problem,) = refused(ws, [own("p", deleted_at=THEN), own("c", parent_id="p", deleted_at=THEN)], prefer="theirs")
    assert problem.id == "p"
    assert "live tasks are below it: c" in problem.message
    (conflict,) = ws.tasks.import_([own("c", parent_id="p", deleted_at=THEN)], prefer="theirs").conflicts
    assert "deleted in the file, claimed here by agent" in conflict.message


def test_t18_arguments_that_make_no_sense_are_refused(ws: Workspace) -> None:
    bad: list[dict[str, Any]] = [
        {"lines": own("a")},
        {"lines": None},
        {"lines": iter([own("a")])},
        {"lines": [], "format": "csv"},
        {"lines": [], "prefer": "both"},
    ]
    for arguments in bad:
        with pytest.raises(errors.Invalid):
            ws.tasks.import_(**arguments)
    assert ws.tasks.import_([""] * 10_001).created["tasks"] == []
    parts: list[Any] = [ImportPart({"tasks": [1]}), ImportPart(expect=["a"]), {"expect": []}]
    for part in parts:
        with pytest.raises(errors.Invalid, match="part"):
            ws.tasks.import_([], part=part)


@pytest.mark.parametrize(
    "line",
    [
        '{"format": "holdfast.task/1", "id": "a", "title": "one", "title": "two"}',
        '{"format": "holdfast.task/1", "id": "a", "title": "t", "notes": [{"at": "2025-01-01T00:00:00Z", "by": "b",'
        ' "text": "one", "text": "two"}]}',
        '{"format": "holdfast.task/1", "id": "a", "title": "t", "more": {"x": {"y": 1, "y": 2}}}',
    ],
)
def test_t18_a_line_that_has_a_key_twice_is_a_bad_line(ws: Workspace, line: str) -> None:
    with pytest.raises(errors.Invalid, match="duplicate key"):
        ws.tasks.import_([own("b"), line])
    report = ws.tasks.import_([own("b"), line], skip_bad=True)
    assert (report.created["tasks"], [each.line for each in report.skipped]) == (["b"], [2])


# --- beads -----------------------------------------------------------------------------------------------------------


def test_t18_an_issue_of_beads_finds_every_part_of_it_in_its_place(ws: Workspace) -> None:
    full = issue(
        "bd-1.2",
        description="What.",
        design="How.",
        acceptance_criteria="When.",
        notes="Why.",
        status="closed",
        priority=1,
        issue_type="feature",
        labels=["b", "a", "a"],
        dependencies=[
            depends("bd-1.2", "bd-1", "parent-child"),
            depends("bd-1.2", "bd-3"),
            depends("bd-1.2", "bd-4", "discovered-from"),
            depends("bd-1.2", "bd-5", "related"),
        ],
        comments=[{"id": 7, "issue_id": "bd-1.2", "author": "anna", "text": "Hm.", "created_at": THEN}],
        updated_at=THEN,
        closed_at=LATER,
        close_reason="Done.",
        assignee="bert",
        created_by="carl",
        estimated_minutes=90,
        external_ref="gh-9",
    )
    report = ws.tasks.import_([full, *(issue(f"bd-{n}") for n in (1, 3, 4, 5))], format="beads")
    assert report.created["tasks"] == ["bd-1.2", "bd-1", "bd-3", "bd-4", "bd-5"]
    task = ws.tasks.get("bd-1.2")
    assert task.body == "What.\n\n## Design\n\nHow.\n\n## Acceptance criteria\n\nWhen.\n\n## Notes\n\nWhy."
    assert (task.status, task.priority, task.type, task.tags) == ("closed", 1, "feature", ("a", "b"))
    assert (task.parent_id, task.depth) == ("bd-1", 1)
    assert {(link.kind, link.on) for link in ws.tasks.dependencies("bd-1.2")} == {
        ("depends_on", "bd-3"),
        ("discovered_from", "bd-4"),
        ("related", "bd-5"),
    }
    line = json.loads(ws.tasks.export(limit=1)[0])
    assert line["created_at"] == THEN
    assert [(note["at"], note["by"], note["text"]) for note in line["notes"][:2]] == [
        (THEN, "anna", "Hm."),
        (LATER, None, "Done."),
    ]
    assert line["origin"] == {"created_by": "carl", "updated_at": THEN, "closed_at": LATER}
    assert json.loads(line["notes"][2]["text"]) == {
        "comments": [{"id": 7}],
        "assignee": "bert",
        "estimated_minutes": 90,
        "external_ref": "gh-9",
    }
    (warning,) = report.warnings
    assert all(name in warning.message for name in ("assignee", "external_ref", "comments"))


@pytest.mark.parametrize(
    ("status", "becomes", "warns"),
    [
        ("open", "open", False),
        ("in_progress", "open", True),
        ("hooked", "open", True),
        ("blocked", "blocked", False),
        ("deferred", "blocked", True),
        ("pinned", "blocked", True),
        ("closed", "closed", False),
    ],
)
def test_t18_every_status_of_beads_becomes_one_of_ours(
    ws: Workspace, status: str, becomes: TaskStatus, warns: bool
) -> None:
    report = ws.tasks.import_([issue("a", status=status)], format="beads")
    assert ws.tasks.get("a").status == becomes
    assert bool(report.warnings) == warns
    assert len(notes(ws, "a")) == warns


def test_t18_an_issue_in_progress_says_who_had_it(ws: Workspace) -> None:
    ws.tasks.import_([issue("a", status="in_progress", assignee="anna")], format="beads")
    assert "in progress in beads, assigned to anna" in notes(ws, "a")


def test_t18_the_retention_of_an_old_closed_issue_begins_with_its_import(ws: Workspace, clock: ManualClock) -> None:
    then = "2001-01-01T00:00:00Z"
    ws.tasks.import_([issue("a", status="closed", updated_at=then)], format="beads")
    ws.tasks.import_([own("b", status="closed", updated_at=then), own("c", deleted_at=then, updated_at=then)])
    assert ws.tasks.get("a").updated_at == ws.tasks.get("b").updated_at == datetime(2001, 1, 1, tzinfo=UTC)
    assert ws.tasks.sweep_retention() == Retired(0, 0)
    for seconds, left in ((7 * 86400 - 1, "ab(c)"), (1, "ab"), (23 * 86400 - 1, "ab"), (1, "(a)(b)")):
        clock.advance(seconds)
        ws.tasks.sweep_retention()
        there = ws.tasks.list(include_deleted=True, sort="created")
        assert "".join(f"({task.id})" if task.deleted_at else task.id for task in there) == left


def test_t18_whoever_made_a_task_elsewhere_is_told_and_never_acts_here(ws: Workspace) -> None:
    """Foreign authors and times are data of the record: events have the importer as their actor."""
    text = {"author": "anna", "text": "Hm.", "created_at": THEN}
    full = issue("a", status="closed", created_by="carl", updated_at=LATER, closed_at=LATER, close_reason="Done.")
    ws.tasks.import_([json.dumps(json.loads(full) | {"comments": [text]})], format="beads")
    task = ws.tasks.get("a")
    at = {name: datetime.fromisoformat(when) for name, when in (("then", THEN), ("later", LATER))}
    now = ws.events.list(limit=1)[0].time
    assert task.origin == Origin("importer", now, "carl", at["later"], at["later"])
    assert task.updated_at == at["later"]
    assert {event.actor for event in ws.events.list()} == {"importer"}
    entries = {entry.note: entry for entry in ws.tasks.history("a") if entry.note}
    assert {note: (entry.changed_by, entry.author) for note, entry in entries.items()} == {
        "Hm.": ("importer", Author("anna", at["then"])),
        "Done.": ("importer", Author(None, at["later"])),
    }
    [told] = [event for event in ws.tasks.resume("a").events if event.note == "Hm."]
    assert (told.actor, told.author) == ("importer", Author("anna", at["then"]))
    assert {agent.name for agent in ws.agents.list()} <= {"importer"}
    assert any("carl, imported by importer" in line for line in view(Tasks.get, task))
    history = view(Tasks.history, ws.tasks.history("a"))
    assert any("anna (2024-02-03" in line and ", imported by importer" in line for line in history)
    assert any("somebody (2024-02-04" in line for line in history)
    with holdfast.open(":memory:", actor="dora") as other:
        other.tasks.import_(ws.tasks.export())
        assert other.tasks.export() == ws.tasks.export()
        copied = other.tasks.get("a").origin
        assert copied is not None
        assert (copied.imported_by, copied.created_by, copied.closed_at) == ("dora", "carl", at["later"])
        other.tasks.note("a", "seen")
        assert other.check().ok
    assert ws.check().ok


def test_t18_a_note_of_the_import_itself_has_no_other_author(ws: Workspace) -> None:
    ws.tasks.import_([issue("a", status="in_progress", assignee="anna")], format="beads")
    assert [entry.author for entry in ws.tasks.history("a") if entry.note] == [None, None]


def test_t18_what_a_file_says_of_the_past_later_is_followed(ws: Workspace) -> None:
    ws.tasks.import_([issue("a", created_by="carl")], format="beads")
    assert ws.tasks.import_([issue("a", created_by="cara")], format="beads").updated["tasks"] == ["a"]
    origin = ws.tasks.get("a").origin
    assert origin is not None
    assert origin.created_by == "cara"
    assert ws.tasks.history("a")[0].field == "origin"


def test_t18_the_result_of_a_completed_task_is_exported_and_comes_back(ws: Workspace) -> None:
    task = ws.tasks.create("work").id
    for result in ({"pages": 1}, {"pages": [1, 2.5, None], "ok": True}):
        ws.tasks.claim(task, "agent")
        ws.tasks.complete(task, "agent", result=result)
        ws.tasks.reopen(task)
    lines = ws.tasks.export()
    assert json.loads(lines[0])["result"] == {"pages": [1, 2.5, None], "ok": True}
    with holdfast.open(":memory:", actor="dora") as other:
        other.tasks.import_(lines)
        assert other.tasks.export() == lines
        assert [entry.new_value for entry in other.tasks.history(task, field="result")] == [result]
        other.events.compact(other.revision + 1)
        assert other.tasks.export() == lines
        assert other.tasks.import_(lines).unchanged["tasks"] == [task]


@pytest.mark.parametrize(
    "bad", [{"origin": {"created_by": ""}}, {"origin": {"made_by": "x"}}, {"origin": {"closed_at": "soon"}}]
)
def test_t18_an_origin_that_is_none_is_refused(ws: Workspace, bad: dict[str, Any]) -> None:
    refused(ws, [own("a", **bad)])


def test_t18_what_beads_knows_and_we_do_not_is_kept(ws: Workspace) -> None:
    strange = issue(
        "a",
        issue_type="molecule",
        labels=["fine", "not/", " x"],
        dependencies=[
            depends("a", "b", "parent-child"),
            depends("a", "c", "parent-child"),
            depends("a", "d", "waits-for", created_by="anna"),
        ],
    )
    report = ws.tasks.import_([strange, *(issue(id) for id in "bcd")], format="beads")
    task = ws.tasks.get("a")
    assert (task.type, task.tags, task.parent_id) == ("task", ("fine",), "b")
    assert [(link.kind, link.on) for link in ws.tasks.dependencies("a")] == [("related", "c"), ("related", "d")]
    kept = json.loads(notes(ws, "a")[0])
    assert kept == {
        "issue_type": "molecule",
        "labels": ["not/", " x"],
        "dependencies": [depends("a", "d", "waits-for", created_by="anna")],
    }
    assert len(report.warnings) == 3


def test_t18_issues_deleted_in_beads_are_skipped_and_nobody_waits_for_them(ws: Workspace) -> None:
    lines = [issue("a", status="tombstone", deleted_at=THEN), issue("b", dependencies=[depends("b", "a")])]
    report = ws.tasks.import_(lines, format="beads")
    assert (lines_of(report.skipped), report.created["tasks"]) == ([(1, "a")], ["b"])
    assert [task.id for task in ws.tasks.ready()] == ["b"]
    assert json.loads(notes(ws, "b")[0]) == {"depends_on": ["a"]}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (issue("x", priority=9), "priority"),
        (issue("x", priority="P1"), "priority"),
        (issue("x", status=3), "status"),
        (issue("x", labels="a"), "labels"),
        (issue("x", dependencies=[{"type": "blocks"}]), "dependencies[0]"),
        (issue("x", dependencies=[depends("y", "good")]), "belongs to 'y'"),
        (issue("x", dependencies=[depends("x", "x")]), "itself"),
        (issue("x", comments=[{"author": "anna"}]), "comments[0]"),
        (issue("x", comments=[{"text": "t", "issue_id": "y"}]), "belongs to 'y'"),
        (issue("x", created_at="now"), "created_at"),
        (issue("x", close_reason="y" * 65_537), "close_reason"),
    ],
)
def test_t18_an_issue_that_makes_no_sense_is_named(ws: Workspace, line: str, message: str) -> None:
    (problem,) = refused(ws, [issue("good"), line], format="beads")
    assert (problem.line, problem.id) == (2, "x")
    assert message in problem.message


def test_t18_beads_say_nothing_of_hints_so_ours_stay(ws: Workspace) -> None:
    ws.tasks.import_([issue("a")], format="beads")
    ws.tasks.update("a", grimoire_hint="spell", title="ours")
    ws.tasks.import_([issue("a", description="new")], format="beads", prefer="theirs")
    task = ws.tasks.get("a")
    assert (task.grimoire_hint, task.title, task.body) == ("spell", "title of a", "new")


def test_t18_an_export_between_two_imports_of_beads_is_no_change(ws: Workspace) -> None:
    lines = [issue("a", status="closed", close_reason="Done.", created_by="anna"), issue("b")]
    ws.tasks.import_(lines, format="beads")
    assert ws.tasks.import_(ws.tasks.export()).unchanged["tasks"] == ["a", "b"]
    ws.tasks.update("a", title="ours")
    assert ws.tasks.import_(lines, format="beads").unchanged["tasks"] == ["a", "b"]


def test_t18_a_changed_issue_is_followed_and_its_news_are_noted(ws: Workspace) -> None:
    ws.tasks.import_([issue("a", updated_at=THEN)], format="beads")
    news = issue("a", status="closed", close_reason="Done.", closed_at=LATER, updated_at=LATER)
    assert ws.tasks.import_([news], format="beads").updated["tasks"] == ["a"]
    assert ws.tasks.get("a").status == "closed"
    assert notes(ws, "a") == ["Done."]


@pytest.mark.skipif(not SAMPLE.exists(), reason="the samples are not here")
def test_t18_the_sample_of_beads_is_imported_twice_with_the_same_result_and_nothing_is_dropped_silently(
    ws: Workspace,
) -> None:
    lines = SAMPLE.read_text(encoding="utf-8").splitlines()
    ids = [json.loads(line)["id"] for line in lines]
    report = ws.tasks.import_(lines, format="beads")
    assert report.created["tasks"] == ids
    lacking = [problem for problem in report.warnings if "not here" in problem.message]
    assert [(problem.line, problem.id) for problem in lacking] == [(5, "coven-25f"), (8, "coven-2xf")]
    assert any("coven-z8y" in text for text in notes(ws, "coven-25f") + notes(ws, "coven-2xf"))
    assert ws.tasks.get("coven-34a.1").parent_id == "coven-34a"
    assert ws.tasks.get("coven-34a").tags == ("openspec:add-claude-agent-integration",)
    before = contents(ws)
    again = ws.tasks.import_(lines, format="beads")
    assert (again.unchanged["tasks"], again.conflicts) == (ids, [])
    assert (again.created["tasks"], again.updated["tasks"]) == ([], [])
    assert contents(ws) == before
    assert ws.check().ok


def test_t18_what_beads_left_out_of_a_file_is_not_waited_for_but_told_and_kept(ws: Workspace) -> None:
    depends = [{"issue_id": "a", "depends_on_id": id, "type": type} for id, type in (("x", "blocks"), ("y", "related"))]
    report = ws.tasks.import_([issue("a", dependencies=depends)], format="beads")
    (warning,) = report.warnings
    assert "not here" in warning.message
    assert [json.loads(text) for text in notes(ws, "a")] == [{"depends_on": ["x"], "related": ["y"]}]
    assert ws.tasks.explain("a").ready
