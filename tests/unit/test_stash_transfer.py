"""Stashes, trails, links and crumbs as files of JSON lines: what is exported comes back exactly, or not at all."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

import holdfast
from holdfast import Workspace, errors
from holdfast.faces import cli
from holdfast.interchange.stash_export import TABLES
from holdfast.testing import ManualClock
from holdfast.types import ImportReport

SAMPLES: Final = Path(__file__).resolve().parents[2] / "../shared/samples/stash"
STASH: Final = "01945a40-0000-7000-8000-000000000001"
OTHER: Final = "01945a40-0000-7000-8000-000000000002"
TRAIL: Final = "01945a3c-0000-7000-8000-000000000001"
CRUMB: Final = "01945a3b-0000-7000-8000-000000000001"
ENTRY: Final = "01945a42-0000-7000-8000-000000000001"
LINK: Final = "01945a3a-0000-7000-8000-000000000001"
WHEN: Final = "2025-01-15T10:30:00Z"
LATER: Final = "2025-01-15T11:45:00.250000Z"
Tables = dict[str, list[str]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ws(clock: ManualClock) -> Iterator[Workspace]:
    with holdfast.open(":memory:", actor="ann", clock=clock) as workspace:
        fill(workspace, clock)
        assert workspace.check().problems == []
        yield workspace


@pytest.fixture
def copy(clock: ManualClock) -> Iterator[Workspace]:
    with holdfast.open(":memory:", actor="bob", clock=clock) as workspace:
        yield workspace


def fill(ws: Workspace, clock: ManualClock) -> None:
    """Something of everything."""
    trails = {name: ws.trails.create(name, "active").id for name in ("open", "done", "gone")}
    ws.trails.create("a draft")
    tasks = [ws.tasks.create(f"task {number}").id for number in range(6)]
    for trail, task in zip(trails.values(), tasks, strict=False):
        ws.trails.add(trail, task)
        clock.advance(1.5)
        counter = ws.stashes.create("hits", "counter", trail=trail).id
        ws.stashes.increment(counter, 5, changed_by=task)
        ws.stashes.increment(counter, -2)
    ws.trails.add(trails["gone"], tasks[3])
    ws.tasks.delete(tasks[3])  # before its trail went
    ws.links.create("branches_from", trails["open"], tasks[4])
    ws.links.create("child_of", tasks[1], tasks[0])
    ws.links.create("depends_on", tasks[4], tasks[5])
    ws.links.create("related", tasks[5], tasks[4])
    ws.links.create("discovered_from", tasks[0], tasks[4])
    ws.stashes.create("hits", "context", {"z": [1, 1.0, None, True], "ä": {"$bytes": "no bytes"}})
    ws.stashes.create("empty", "context")
    resource = ws.stashes.create("src", "resource", {"uri": "file:///tmp", "kind": "directory"}).id
    ws.stashes.set_value(resource, {"uri": "file:///srv", "kind": "directory", "raw": b"\x00\xff"})
    ws.stashes.create("out", "artifact", {"path": "a", "producer": "b", "checksum": "c"}, ttl=3600)
    for name, ttl in (("free", None), ("held", None), ("leased", 600)):
        lock = ws.stashes.create(name, "lock").id
        ws.stashes.acquire(lock, "ann", ttl=ttl)
        clock.advance(0.25)
        if name == "free":
            ws.stashes.release(lock, "ann")
        else:
            ws.stashes.acquire(lock, "ann", ttl=ttl, changed_by=tasks[0])
    ws.trails.complete(trails["done"])
    clock.advance(1)
    ws.trails.abandon(trails["gone"], "enough")


def exported(ws: Workspace, limit: int = 1000) -> Tables:
    """Every table, page by page."""
    found: Tables = {}
    for table in TABLES:
        lines: list[str] = []
        while page := ws.stashes.export(table, after=key(table, lines[-1]) if lines else None, limit=limit):
            lines += page
        found[table] = lines
    return found


def key(table: str, line: str) -> str:
    """What the page after a line goes on after."""
    record = json.loads(line)
    if table == "stash_history":
        return f"{record['stash_id']}/{record['version']}"
    ids = {"trails": "trail_id", "links": "link_id", "stashes": "stash_id"}
    id: str = record[ids.get(table, "id")]
    return id


def counts(ids: dict[str, list[str]]) -> dict[str, int]:
    return {table: len(found) for table, found in filled(ids).items()}


def filled(ids: dict[str, list[str]]) -> dict[str, list[str]]:
    """Without the tables that have none."""
    return {table: found for table, found in ids.items() if found}


# --- there and back --------------------------------------------------------------------------------------------------


def test_s13_what_is_exported_and_imported_elsewhere_exports_the_same_bytes_again(
    ws: Workspace, copy: Workspace
) -> None:
    before = exported(ws)
    assert {table: len(lines) for table, lines in before.items()} == {
        **{"crumbs": 6, "trails": 4, "links": 11, "stashes": 10, "stash_history": 23, "tombstones": 1}
    }
    report = copy.stashes.import_(before)
    assert counts(report.created) == {table: len(lines) for table, lines in before.items()}
    assert (report.conflicts, report.skipped, report.warnings, filled(report.unchanged)) == ([], [], [], {})
    assert exported(copy) == before
    assert copy.check().problems == []


def test_s13_lines_are_sorted_and_their_keys_have_one_order(ws: Workspace) -> None:
    tables = exported(ws)
    for table in ("crumbs", "trails", "links", "stashes"):
        assert tables[table] == sorted(tables[table], key=lambda line, table=table: key(table, line))  # type: ignore[misc]
    history = [json.loads(line) for line in tables["stash_history"]]
    assert history == sorted(history, key=lambda entry: (entry["stash_id"], entry["version"]))
    for table, lines in tables.items():
        assert len({tuple(json.loads(line)) for line in lines}) == 1, table
        assert all("\n" not in line for line in lines)


def test_s13_lines_in_any_order_make_the_same(ws: Workspace, copy: Workspace, clock: ManualClock) -> None:
    for number in range(8):
        clock.advance(0.5)
        parent = ws.tasks.list(limit=100)[-1].id
        made = ws.tasks.create(f"below {number}", parent_id=parent if number % 2 else None)
        if not number % 2:
            ws.tasks.depend(made.id, parent)
    clock.advance(1)
    tables = exported(ws)
    mixed = {table: lines[::-1] for table, lines in tables.items()}
    report = copy.stashes.import_(mixed)
    assert (report.conflicts, report.skipped, report.warnings) == ([], [], [])
    assert exported(copy) == tables
    theirs, ours = ([task.title for task in each.tasks.ready() if "below" in task.title] for each in (copy, ws))
    assert theirs == ours, "the oldest first"
    assert copy.check().problems == []


@pytest.mark.parametrize("limit", [1, 3])
def test_s13_pages_have_every_line_once(ws: Workspace, limit: int) -> None:
    assert exported(ws, limit) == exported(ws)


def test_s13_the_copy_is_as_good_as_the_original(ws: Workspace, copy: Workspace, clock: ManualClock) -> None:
    copy.stashes.import_(exported(ws))
    for stash in ws.stashes.list():
        assert copy.stashes.history(stash.id) == ws.stashes.history(stash.id)
        theirs = copy.stashes.get(stash.id)
        assert (theirs.value, theirs.version, theirs.trail) == (stash.value, stash.version, stash.trail)
        assert (theirs.created_at, theirs.updated_at) == (stash.created_at, stash.updated_at)
        assert (theirs.held_until, theirs.expires_at) == (stash.held_until, stash.expires_at)
    assert copy.links.list() == ws.links.list()
    assert [each.state for each in copy.trails.list()] == [each.state for each in ws.trails.list()]
    for each in (ws, copy):
        src = each.stashes.find("src")
        assert src is not None
        assert each.stashes.restore(src.id, 1).value == {"uri": "file:///tmp", "kind": "directory"}
        assert each.stashes.increment((each.trails.list()[0].id, "hits"), 1) == 4
        assert each.check().problems == []
    ready = [{task.id: each.tasks.explain(task.id).ready for task in each.tasks.list(limit=10)} for each in (ws, copy)]
    assert ready[0] == ready[1]
    assert set(ready[0].values()) == {True, False}


def test_s13_a_held_lock_is_held_on_and_ends_when_it_would_have(
    ws: Workspace, copy: Workspace, clock: ManualClock
) -> None:
    copy.stashes.import_(exported(ws))
    for name in ("held", "leased"):
        theirs, ours = copy.stashes.find(name), ws.stashes.find(name)
        assert theirs is not None
        assert ours is not None
        assert theirs.value == ours.value
        assert theirs.value["holder"] == "ann"
        assert theirs.token is not None
        with pytest.raises(errors.Held):
            copy.stashes.acquire(theirs.id, "bob")
    leased = copy.stashes.get((None, "leased"))
    assert leased.held_until is not None
    clock.advance(601)
    assert copy.stashes.acquire((None, "leased"), "bob").holder == "bob"
    assert [entry.operation for entry in copy.stashes.history(leased.id)] == [
        *("create", "acquire", "acquire", "expire", "acquire")
    ]
    copy.stashes.release((None, "held"), "ann")
    clock.advance(3600)
    assert copy.stashes.find("out") is None
    assert copy.check().problems == []


def test_s13_an_abandoned_trail_can_be_restored_where_it_was_imported(ws: Workspace, copy: Workspace) -> None:
    copy.stashes.import_(exported(ws))
    (gone,) = ws.trails.list(state="abandoned")
    for each in (ws, copy):
        assert each.trails.restore(gone.id).state == "active"
        assert each.stashes.get((gone.id, "hits")).value == {"value": 3}
        assert each.check().problems == []
    alive = [task for task in ws.trails.members(gone.id) if task in {each.id for each in ws.tasks.list(limit=100)}]
    assert len(alive) == 1
    assert copy.tasks.get(alive[0]).deleted_at is None
    assert {each.id for each in copy.tasks.list(limit=100)} == {each.id for each in ws.tasks.list(limit=100)}


def test_s13_the_same_lines_again_change_nothing(ws: Workspace, copy: Workspace) -> None:
    tables = exported(ws)
    for each in (copy, ws):
        each.stashes.import_(tables)
        revision = each.revision
        report = each.stashes.import_(tables)
        assert counts(report.unchanged) == {table: len(lines) for table, lines in tables.items()}
        assert (filled(report.created), report.conflicts, report.skipped) == ({}, [], [])
        assert each.revision == revision
        assert exported(each) == tables


def test_s13_what_changed_here_is_reported_and_left_alone(ws: Workspace) -> None:
    tables = exported(ws)
    counter = ws.stashes.get((ws.trails.list()[0].id, "hits"))
    ws.stashes.increment(counter.id)
    ws.trails.set_state(ws.trails.list()[3].id, "pending")
    after = exported(ws)
    report = ws.stashes.import_(tables)
    assert [(problem.file, problem.id) for problem in report.conflicts] == [
        ("trails.jsonl", ws.trails.list()[3].id),
        ("stashes.jsonl", counter.id),
    ]
    assert filled(report.created) == {}
    assert exported(ws) == after


def test_s13_what_was_deleted_here_does_not_come_back(ws: Workspace) -> None:
    tables = exported(ws)
    stash = ws.stashes.get((ws.trails.list()[0].id, "hits"))
    ws.stashes.delete(stash.id)
    report = ws.stashes.import_(tables)
    told = [(problem.file, problem.message.partition(":")[0]) for problem in report.conflicts]
    assert (
        told
        == [("links.jsonl", "deleted here"), ("stashes.jsonl", "deleted here")]
        + [("stash_history.jsonl", "deleted here")] * 3
    )
    assert ws.stashes.find("hits", stash.trail) is None
    assert ws.check().problems == []


def test_s13_a_dry_run_says_the_same_and_does_nothing(ws: Workspace, copy: Workspace) -> None:
    tables = exported(ws)
    trial = copy.stashes.import_(tables, dry_run=True)
    assert trial.dry_run
    assert copy.revision == 0
    assert exported(copy) == {table: [] for table in TABLES}
    assert copy.stashes.import_(tables).created == trial.created


def test_s13_an_import_with_a_key_happens_once(ws: Workspace, copy: Workspace) -> None:
    tables = exported(ws)
    first = copy.using(key="k").stashes.import_(tables)
    revision = copy.revision
    assert copy.using(key="k").stashes.import_(tables) == first
    assert copy.revision == revision


# --- what is wrong ---------------------------------------------------------------------------------------------------


def stash(id: str = STASH, **more: Any) -> dict[str, Any]:
    return {
        **{"stash_id": id, "name": "hits", "stash_type": "counter", "value": {"value": 3}, "version": 2},
        **{"created_at": WHEN, "updated_at": LATER},
        **more,
    }


def entry(version: int = 2, **more: Any) -> dict[str, Any]:
    id = ENTRY[:-1] + str(version)
    return {
        **{"history_id": id, "stash_id": STASH, "version": version, "value": {"value": 3}, "operation": "increment"},
        **{"changed_by": None, "created_at": LATER},
        **more,
    }


def link(kind: str, source: str, target: str, id: str = LINK, **more: Any) -> dict[str, Any]:
    return {"link_id": id, "link_type": kind, "from_id": source, "to_id": target, "created_at": WHEN, **more}


def trail(id: str = TRAIL, **more: Any) -> dict[str, Any]:
    return {"trail_id": id, "state": "active", "created_at": WHEN, "completed_at": None, **more}


def crumb(id: str = CRUMB, **more: Any) -> dict[str, Any]:
    return {"crumb_id": id, "name": "Do it", "state": "ready", "created_at": WHEN, "updated_at": LATER, **more}


def files(**tables: Sequence[dict[str, Any] | str]) -> Tables:
    return {
        table: [line if isinstance(line, str) else json.dumps(line) for line in lines]
        for table, lines in tables.items()
    }


def told(report: ImportReport) -> list[tuple[str, int]]:
    return [(problem.file.removesuffix(".jsonl"), problem.line) for problem in report.skipped]


LOCK: Final[dict[str, Any]] = {"stash_type": "lock", "value": {"holder": "w1", "acquired_at": "2025-01-15T11:00:00Z"}}
CIRCLE: Final = [crumb(), crumb(CRUMB[:-1] + "2")]
BAD: Final[dict[str, tuple[Tables, list[tuple[str, int]], str]]] = {
    "no JSON": (files(stashes=["{", stash()]), [("stashes", 1)], "JSON"),
    "no object": (files(trails=["[]"]), [("trails", 1)], "object"),
    "a foreign table": (files(properties=[{}], stashes=[stash()]), [("properties", 1)], "unknown table"),
    "a bad id": (files(stashes=[stash("1"), stash()]), [("stashes", 1)], "UUID v7"),
    "an id in upper case": (files(trails=[trail(TRAIL.upper())]), [("trails", 1)], "UUID v7"),
    "a crumb's bad id": (files(crumbs=[crumb("hf-1")]), [("crumbs", 1)], "UUID v7"),
    "a crumb's state": (files(crumbs=[crumb(state="asleep")]), [("crumbs", 1)], "asleep"),
    "a crumb without a name": (files(crumbs=[crumb(name=None)]), [("crumbs", 1)], "title"),
    "a field is missing": (files(stashes=[{"stash_id": STASH}]), [("stashes", 1)], 'lacks "name"'),
    "the same id twice": (files(stashes=[stash(), stash(name="x")]), [("stashes", 2)], "line 1"),
    "the same name twice": (files(stashes=[stash(), stash(OTHER)]), [("stashes", 2)], "hits"),
    "no such type": (files(stashes=[stash(stash_type="heap")]), [("stashes", 1)], "heap"),
    "the wrong value": (files(stashes=[stash(value={"value": "3"})]), [("stashes", 1)], "counter"),
    "no name": (files(stashes=[stash(name="")]), [("stashes", 1)], "name"),
    "version 0": (files(stashes=[stash(version=0)]), [("stashes", 1)], "version"),
    "half a holder": (files(stashes=[stash(**LOCK | {"value": {"holder": "w1"}})]), [("stashes", 1)], "acquired_at"),
    "held, and no lock": (files(stashes=[stash(held_until=WHEN)]), [("stashes", 1)], "held_until"),
    "deleted, and global": (files(stashes=[stash(deleted_at=WHEN)]), [("stashes", 1)], "deleted_at"),
    "deleted, but its trail is not": (
        files(stashes=[stash(deleted_at=WHEN)], trails=[trail()], links=[link("scoped_to", STASH, TRAIL)]),
        [("stashes", 1), ("links", 1)],
        "active",
    ),
    "a time without a zone": (files(stashes=[stash(created_at="2025-01-15T10:30:00")]), [("stashes", 1)], "created_at"),
    "a time before 1970": (files(trails=[trail(created_at="1969-01-15T10:30:00Z")]), [("trails", 1)], "1970"),
    "a trail that cannot have ended": (files(trails=[trail(completed_at=WHEN)]), [("trails", 1)], "completed_at"),
    "a trail's bad state": (files(trails=[trail(state="asleep")]), [("trails", 1)], "asleep"),
    "a way back that is none": (files(trails=[trail(before="draft")]), [("trails", 1)], "before"),
    "history of no stash": (files(stash_history=[entry()]), [("stash_history", 1)], "no stash"),
    "history after the stash": (
        files(stashes=[stash()], stash_history=[entry(), entry(3)]),
        [("stash_history", 2)],
        "version 2",
    ),
    "a version twice": (
        files(stashes=[stash()], stash_history=[entry(), entry(history_id=ENTRY)]),
        [("stash_history", 2)],
        "line 1",
    ),
    "an entry that the type cannot hold": (
        files(stashes=[stash()], stash_history=[entry(1, value={"value": "no number"}), entry()]),
        [("stash_history", 1)],
        "counter",
    ),
    "an entry that a lock cannot hold": (
        files(
            stashes=[stash(**LOCK)], stash_history=[entry(1, value=3), entry(operation="acquire", value=LOCK["value"])]
        ),
        [("stash_history", 1)],
        "holder",
    ),
    "a value that its history does not have": (
        files(stashes=[stash(value={"value": 4})], stash_history=[entry()]),
        [("stashes", 1), ("stash_history", 1)],
        "newest entry",
    ),
    "a version that its history does not have": (
        files(stashes=[stash(version=3)], stash_history=[entry()]),
        [("stashes", 1), ("stash_history", 1)],
        "ends at version 2",
    ),
    "what names a bad line comes after it": (
        files(
            crumbs=[crumb(state="asleep")],
            trails=[trail(name="", state="asleep")],
            links=[link("belongs_to", CRUMB, TRAIL), link("scoped_to", STASH, TRAIL, LINK[:-1] + "2")],
            stashes=[stash(OTHER, name=""), stash()],
        ),
        [("crumbs", 1), ("trails", 1), ("stashes", 1), ("links", 1), ("links", 2), ("stashes", 2)],
        "cannot be imported",
    ),
    "a bad stash takes its history and its link along": (
        files(
            stashes=[stash(name="")],
            stash_history=[entry()],
            trails=[trail()],
            links=[link("scoped_to", STASH, TRAIL)],
        ),
        [("stashes", 1), ("links", 1), ("stash_history", 1)],
        "name",
    ),
    "a trail that is not there": (
        files(stashes=[stash()], links=[link("scoped_to", STASH, TRAIL)]),
        [("stashes", 1), ("links", 1)],
        "not here",
    ),
    "two scopes": (
        files(
            stashes=[stash()],
            trails=[trail()],
            links=[link("scoped_to", STASH, TRAIL), link("scoped_to", STASH, TRAIL, LINK[:-1] + "2")],
        ),
        [("links", 2)],
        "line 1",
    ),
    "no such link": (files(links=[link("knows", CRUMB, CRUMB)]), [("links", 1)], "knows"),
    "ends that are not there": (files(links=[link("child_of", CRUMB, "hf-1")]), [("links", 1)], "no task 'hf-1'"),
    "a circle": (
        files(
            crumbs=CIRCLE,
            links=[
                link("child_of", CRUMB, CRUMB[:-1] + "2"),
                link("child_of", CRUMB[:-1] + "2", CRUMB, LINK[:-1] + "2"),
            ],
        ),
        [("links", 2)],
        "close a cycle",
    ),
    "a circle of dependencies": (
        files(
            crumbs=CIRCLE,
            links=[
                link("depends_on", CRUMB, CRUMB[:-1] + "2"),
                link("depends_on", CRUMB[:-1] + "2", CRUMB, LINK[:-1] + "2"),
            ],
        ),
        [("links", 2)],
        "close a cycle",
    ),
    "a task in two trails": (
        files(
            crumbs=[crumb()],
            trails=[trail(), trail(TRAIL[:-1] + "2")],
            links=[
                link("belongs_to", CRUMB, TRAIL),
                link("belongs_to", CRUMB, TRAIL[:-1] + "2", LINK[:-1] + "2"),
            ],
        ),
        [("links", 2)],
        "can have one",
    ),
    "a task of a completed trail": (
        files(crumbs=[crumb()], trails=[trail(state="completed")], links=[link("belongs_to", CRUMB, TRAIL)]),
        [("links", 1)],
        "completed",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_s13_a_bad_line_refuses_all_and_says_which_and_can_be_left_out(copy: Workspace, name: str) -> None:
    tables, where, word = BAD[name]
    with pytest.raises(errors.Invalid) as refused:
        copy.stashes.import_(tables)
    problems = refused.value.details["problems"]
    assert [(problem.file, problem.line) for problem in problems] == [(f"{table}.jsonl", line) for table, line in where]
    assert all(problem.severity == "error" for problem in problems)
    assert any(word in str(problem) for problem in problems), problems
    assert str(problems[0]) in str(refused.value)
    assert copy.revision == 0

    report = copy.stashes.import_(tables, skip_bad=True)
    assert told(report) == where
    lines = sum(len(lines) for lines in tables.values())
    assert sum(counts(report.created).values()) == lines - len(where)
    assert copy.check().problems == []
    again = holdfast.open(":memory:", actor="carl", clock=ManualClock())
    with again:
        again.stashes.import_(exported(copy))
        assert exported(again) == exported(copy)


@pytest.mark.parametrize("tables", [[], "stashes", {"stashes": "text"}, {"stashes": 3}, {1: []}])
def test_s13_what_is_no_table_of_lines_is_refused(copy: Workspace, tables: Any) -> None:
    with pytest.raises(errors.Invalid):
        copy.stashes.import_(tables)
    assert copy.revision == 0


def test_s13_lines_that_are_no_text_are_bad_lines_and_blank_ones_are_none(copy: Workspace) -> None:
    report = copy.stashes.import_({"stashes": [3, "", " "], "properties": ["", 4]}, skip_bad=True)  # type: ignore[list-item]
    assert told(report) == [("stashes", 1), ("properties", 2)]


@pytest.mark.parametrize("table", ["properties", "", None, 1])
def test_s13_what_is_no_table_cannot_be_exported(ws: Workspace, table: Any) -> None:
    with pytest.raises(errors.TableNotFound):
        ws.stashes.export(table)


@pytest.mark.parametrize("after", ["", "x", f"{STASH}/", f"{STASH}/x", f"{STASH}/9{'9' * 30}"])
def test_s13_a_page_of_history_goes_on_after_a_stash_and_a_version(ws: Workspace, after: str) -> None:
    with pytest.raises(errors.InvalidID):
        ws.stashes.export("stash_history", after=after)


# --- files of the original project -----------------------------------------------------------------------------------


def original() -> Tables:
    """What the original project writes, with whole ids."""
    return files(
        crumbs=[crumb(), crumb(CRUMB[:-1] + "2", state="draft"), crumb(CRUMB[:-1] + "3", state="dust")],
        trails=[trail()],
        links=[link("belongs_to", CRUMB, TRAIL), link("scoped_to", OTHER, TRAIL, LINK[:-1] + "2")],
        stashes=[stash(), stash(OTHER, name="gate", version=5, **LOCK)],
        stash_history=[
            entry(1, operation="create", changed_by=CRUMB, created_at=WHEN, value={"value": 0}),
            entry(),
        ],
        properties=[],
    )


def test_s13_files_of_the_original_project_are_taken_in(copy: Workspace) -> None:
    report = copy.stashes.import_(original())
    assert counts(report.created) == {"crumbs": 3, "trails": 1, "links": 2, "stashes": 2, "stash_history": 2}
    warned = [(problem.file, problem.line) for problem in report.warnings]
    assert warned == [("crumbs.jsonl", 2), ("stashes.jsonl", 2)], "a state that no task has; a history without its end"
    assert copy.trails.get(TRAIL).name == TRAIL
    assert copy.trails.members(TRAIL) == [CRUMB]
    assert [(each.version, each.operation, each.changed_by) for each in copy.stashes.history(STASH)] == [
        (1, "create", CRUMB),
        (2, "increment", None),
    ]
    gate = copy.stashes.get((TRAIL, "gate"))
    assert (gate.version, gate.value) == (5, {"holder": "w1", "acquired_at": "2025-01-15T11:00:00Z"})
    assert [(each.version, each.operation) for each in copy.stashes.history(gate.id)] == [(5, "acquire")]
    assert [task.id for task in copy.tasks.list(limit=10)] == [CRUMB, CRUMB[:-1] + "2"]
    assert copy.stashes.increment(STASH) == 4
    assert copy.check().problems == []


def test_s13_a_field_without_a_place_is_told_of(copy: Workspace) -> None:
    report = copy.stashes.import_(files(stashes=[stash(colour="red", owner=1)], stash_history=[entry()]))
    assert [str(problem) for problem in report.warnings] == [
        f"stashes.jsonl line 1 ({STASH}): warning: unknown fields, left out: colour, owner"
    ]


def test_s13_the_original_samples_are_refused_whole_with_file_and_line(copy: Workspace) -> None:
    if not SAMPLES.is_dir():
        pytest.skip("the original samples are not here")
    tables = {file.stem: file.read_text().splitlines() for file in sorted(SAMPLES.glob("*.jsonl"))}
    every = {(f"{table}.jsonl", number) for table, lines in tables.items() for number in range(1, len(lines) + 1)}
    with pytest.raises(errors.Invalid) as refused:
        copy.stashes.import_(tables)
    problems = refused.value.details["problems"]
    assert len(problems) == len(every)
    assert {(problem.file, problem.line) for problem in problems} == every, "each has a bad id, or no place here"
    for problem in problems:
        foreign = problem.file.removesuffix(".jsonl") not in TABLES
        assert ("unknown table" if foreign else "no UUID v7") in problem.message
    assert filled(copy.stashes.import_(tables, skip_bad=True).created) == {}
    assert copy.revision == 0


# --- the commands ----------------------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_ACTOR", "ann")
    monkeypatch.setenv("HOLDFAST_ROLLING", "0")
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    monkeypatch.delenv("HOLDFAST_DIR", raising=False)
    with holdfast.open(tmp_path / ".holdfast", actor="ann") as ws:
        trail = ws.trails.create("t").id
        counter = ws.stashes.create("hits", "counter", trail=trail).id
        ws.transact(lambda tx: [tx.stashes.increment(counter) for _ in range(1200)])
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_s13_a_folder_comes_back_through_the_commands(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["stash", "export", "one"]) == 0
    assert "1201 stash history" in capsys.readouterr().out
    first = contents(project / "one")
    assert sorted(first) == sorted([".gitattributes", *(f"{table}.jsonl" for table in TABLES)])
    assert first["stash_history.jsonl"].count(b"\n") == 1201
    assert cli.main(["stash", "import", "one", "--dry-run", "--dir", "copy"]) == 0
    counts = capsys.readouterr().out.strip().removeprefix("would be created: ").split(", ")
    assert {*counts} == {"1 trail", "1 link", "1 stash", "1201 stash history entries"}
    assert cli.main(["stash", "import", "one", "--dir", "copy"]) == 0
    assert cli.main(["stash", "export", "two", "--dir", "copy"]) == 0
    assert contents(project / "two") == first


def test_s13_an_export_takes_the_place_of_no_file_unless_told(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "one").mkdir()
    (project / "one" / "links.jsonl").write_text("mine")
    assert cli.main(["stash", "export", "one"]) != 0
    assert contents(project / "one") == {"links.jsonl": b"mine"}
    assert cli.main(["stash", "export", "one", "--replace"]) == 0
    assert (project / "one" / "links.jsonl").read_bytes().count(b"\n") == 1
    capsys.readouterr()


def test_s13_a_folder_with_a_foreign_table_is_refused_until_told_to_skip(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["stash", "export", "one"])
    (project / "one" / "properties.jsonl").write_text('{"property_id": "1"}\n')
    capsys.readouterr()
    assert cli.main(["stash", "import", "one", "--dir", "copy"]) == 1
    assert "properties.jsonl line 1: error" in capsys.readouterr().err
    assert cli.main(["stash", "list", "--dir", "copy", "-q"]) == 0
    assert capsys.readouterr().out == ""
    assert cli.main(["stash", "import", "one", "--skip-bad", "--dir", "copy"]) == 0
    assert "properties.jsonl line 1: error: unknown table" in capsys.readouterr().out
    assert cli.main(["stash", "list", "--dir", "copy", "-q"]) == 0
    assert capsys.readouterr().out != ""


@pytest.mark.parametrize("trial", [[], ["--dry-run"]])
def test_s13_every_bad_line_is_told_causes_first(
    project: Path, capsys: pytest.CaptureFixture[str], trial: list[str]
) -> None:
    cli.main(["stash", "export", "one"])
    stashes = project / "one" / "stashes.jsonl"
    stashes.write_text(stashes.read_text().replace('"hits"', '""'))
    (project / "one" / "properties.jsonl").write_text("{}\n")
    capsys.readouterr()
    assert cli.main(["stash", "import", "one", "--dir", "copy", *trial]) == 1
    *_, head, told = capsys.readouterr().err.partition("holdfast: 1204")
    first, *lines = (head + told).splitlines()
    assert first == "holdfast: 1204 lines cannot be imported"
    assert [line.partition(":")[0].partition(" (")[0] for line in lines[:3]] == [
        *("stashes.jsonl line 1", "properties.jsonl line 1", "links.jsonl line 1")
    ]
    assert "cannot be imported" in lines[2]
    assert lines[20] == "and 1184 more; --json has all"
    assert "--skip-bad" in lines[21]
    assert cli.main(["stash", "import", "one", "--dir", "copy", "--json", *trial]) == 1
    assert len(json.loads(capsys.readouterr().err)["details"]["problems"]) == 1204


def test_s13_two_exports_are_merged_by_git_and_imported(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both have added lines at the end of every file, and each has changed what the other has not."""
    git = shutil.which("git")
    if git is None:
        pytest.skip("git is not here")

    def run(*words: str) -> None:
        named = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "init.defaultBranch=one"]
        subprocess.run([git, *named, *words], cwd=project, check=True, capture_output=True)

    def export(source: str, branch: str) -> None:
        assert cli.main(["stash", "export", "shared", "--replace", "--dir", source]) == 0
        run("add", "shared")
        run("commit", "-m", branch)

    run("init")
    places = {"one": ".holdfast", "two": "second"}
    with holdfast.open(project / ".holdfast", actor="ann") as ws:
        trail = ws.trails.list()[0].id
        ws.stashes.create("quiet", "counter")
        ws.trails.create("other")
        task = ws.tasks.create("base").id
    export(".holdfast", "base")
    assert cli.main(["stash", "import", "shared", "--dir", "second"]) == 0
    run("branch", "two")
    for branch, place in places.items():
        run("checkout", branch)
        with holdfast.open(project / place, actor=branch) as ws:
            own = ws.trails.create(branch).id
            ws.trails.add(own, ws.tasks.create(branch).id)
            ws.stashes.increment(ws.stashes.create(branch, "counter", trail=own).id)
            if branch == "one":
                ws.stashes.increment((trail, "hits"))
            else:
                ws.stashes.increment((None, "quiet"))
                ws.trails.set_state(ws.trails.list()[1].id, "active")
                ws.tasks.note(task, "seen")
        export(place, branch)
    run("checkout", "one")
    run("merge", "two")
    for place in (*places.values(), "third"):
        code = 9 if place == ".holdfast" else 0  # where the task was created, the other's note on it is a conflict
        assert cli.main(["stash", "import", "shared", "--dir", place]) == code, capsys.readouterr().err
        with holdfast.open(project / place, actor="ann") as ws:
            assert sorted(each.name for each in ws.trails.list()) == ["one", "other", "t", "two"]
            assert ws.trails.list()[1].state == "active"
            assert ws.stashes.get((trail, "hits")).value == {"value": 1201}
            assert ws.stashes.get((None, "quiet")).value == {"value": 1}
            assert {each.title for each in ws.tasks.list(limit=10)} == {"base", "one", "two"}
            assert ws.check().problems == []
    capsys.readouterr()
    assert cli.main(["stash", "export", "last", "--dir", "third"]) == 0
    assert cli.main(["stash", "export", "own"]) == 0
    left, right = contents(project / "last"), contents(project / "own")
    assert {name for name in left if left[name] != right[name]} <= {"crumbs.jsonl"}, "a note to a task made here"


def test_s13_what_a_folder_tells_git_already_is_left_alone(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "one").mkdir()
    (project / "one" / ".gitattributes").write_text("mine")
    assert cli.main(["stash", "export", "one"]) == 0
    assert (project / "one" / ".gitattributes").read_text() == "mine"
    capsys.readouterr()


def test_s13_a_line_that_is_no_utf8_is_a_bad_line_with_a_number(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["stash", "export", "one"])
    with (project / "one" / "stashes.jsonl").open("ab") as file:
        file.write(b'\n{"name": "\xff"}\n{}\n')
    capsys.readouterr()
    assert cli.main(["stash", "import", "one", "--dir", "copy", "--json"]) == 1
    problems = json.loads(capsys.readouterr().err.splitlines()[-1])["details"]["problems"]
    assert [(each["file"], each["line"]) for each in problems] == [("stashes.jsonl", 3), ("stashes.jsonl", 4)]
    assert "not UTF-8 at byte 11" in problems[0]["message"]
    assert cli.main(["stash", "import", "one", "--dir", "copy", "--skip-bad"]) == 0
    assert "stashes.jsonl line 3: error: not UTF-8" in capsys.readouterr().out
    assert cli.main(["stash", "list", "--dir", "copy", "-q"]) == 0
    assert capsys.readouterr().out.count("\n") == 1


def test_s13_what_is_no_file_is_told_and_not_waited_for(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["stash", "export", "one"])
    os.mkfifo(project / "one" / "categories.jsonl")
    assert cli.main(["stash", "import", "one", "--dir", "copy"]) == 1
    assert "categories.jsonl is not a regular file" in capsys.readouterr().err


@pytest.mark.parametrize("folder", ["none", "empty"])
def test_s13_a_folder_without_tables_is_told(project: Path, capsys: pytest.CaptureFixture[str], folder: str) -> None:
    (project / "empty").mkdir()
    assert cli.main(["stash", "import", folder]) == 10
    assert folder in capsys.readouterr().err
