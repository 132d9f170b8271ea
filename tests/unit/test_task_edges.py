"""Edges between tasks and the rest: keys and purges, limits that were lowered, claims in the way of an import."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import errors
from holdfast.testing import ManualClock
from tests.http.running import Running


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[holdfast.Workspace]:
    """A workspace of ann's in a folder."""
    with holdfast.open(tmp_path / "store", actor="ann") as workspace:
        yield workspace


def test_t12_a_purge_forgets_what_keyed_calls_answered_but_not_that_they_happened(ws: holdfast.Workspace) -> None:
    keyed = ws.using(key="k")
    task = keyed.tasks.create("SECRET", body="SECRET")
    other = ws.using(key="other").tasks.create("other")
    keyed.tasks.claim(task.id)
    ws.tasks.release(task.id)
    ws.tasks.purge(task.id)
    with pytest.raises(errors.NotFound, match="purged"):
        keyed.tasks.create("SECRET", body="SECRET")
    with pytest.raises(errors.NotFound, match="purged"):
        keyed.tasks.claim(task.id)
    assert [found.id for found in ws.tasks.list()] == [other.id]
    assert ws.using(key="other").tasks.create("other") == other
    rows = ws._engine.read(lambda snapshot: snapshot.all("SELECT answer FROM idempotency"))
    assert not any(b"SECRET" in answer for (answer,) in rows)


def test_t5_a_fenced_holder_is_told_what_became_of_the_task(ws: holdfast.Workspace) -> None:
    task = ws.tasks.claim(ws.tasks.create("task").id)
    hints = []
    for step in ("complete", "reopen", "claim"):
        getattr(ws.tasks, step)(task.id, "bob" if step == "claim" else None)
        with pytest.raises(errors.Fenced) as refused:
            ws.tasks.complete(task.id, token=task.token)
        hints.append(refused.value.hint)
    assert "is closed" in hints[0]
    assert "the task is open" in hints[1]
    assert "bob holds the task now" in hints[2]


def test_t13_history_below_what_was_compacted_is_not_a_silent_gap(ws: holdfast.Workspace) -> None:
    task = ws.tasks.create("first")
    for title in ("second", "third"):
        ws.tasks.update(task.id, title=title)
    ws.cells.set("run", "cell", 1)
    ws.events.compact(before=ws.revision)
    assert [entry.version for entry in ws.tasks.history(task.id)] == [3]
    for before in (3, 1):
        with pytest.raises(errors.Compacted):
            ws.tasks.history(task.id, before=before)
    for bad in (0, "3", True, -1):
        with pytest.raises(errors.InvalidFilter):
            ws.tasks.history(task.id, before=bad)  # type: ignore[arg-type]


def test_t18_a_status_that_a_claim_is_in_the_way_of_is_a_conflict_until_it_is_not(ws: holdfast.Workspace) -> None:
    task = ws.tasks.create("task")
    line = ws.tasks.export()[0]
    ws.tasks.import_([line])
    closed = json.dumps({**json.loads(line), "status": "closed"})
    ws.tasks.claim(task.id)
    for _ in range(2):
        report = ws.tasks.import_([closed], prefer="theirs")
        assert (report.updated["tasks"], report.unchanged["tasks"]) == ([], [])
        assert "claimed here by ann" in report.conflicts[0].message
    ws.tasks.release(task.id)
    assert ws.tasks.import_([closed], prefer="theirs").updated["tasks"] == [task.id]
    assert ws.tasks.get(task.id).status == "closed"


def test_limits_that_were_lowered_let_what_is_there_shrink_and_stay(ws: holdfast.Workspace, tmp_path: Path) -> None:
    task = ws.tasks.create("a long title", tags=["a", "b", "c", "d"])
    (tmp_path / "store" / "config.yaml").write_text("limits: {max_title: 5, max_tags: 2}\n")
    assert ws.tasks.update(task.id, title="a long title") == task
    assert ws.tasks.remove_tags(task.id, ["a"]).tags == ("b", "c", "d")
    with pytest.raises(errors.InvalidTag):
        ws.tasks.add_tags(task.id, ["e"])
    with pytest.raises(errors.TooLarge, match="7 characters; the maximum is 5"):
        ws.tasks.update(task.id, title="1234567")


def test_t12_whoever_restores_a_leaf_is_told_the_root_of_the_deletion(ws: holdfast.Workspace) -> None:
    root = ws.tasks.create("root")
    child = ws.tasks.create("child", parent_id=root.id)
    leaf = ws.tasks.create("leaf", parent_id=child.id)
    ws.tasks.delete(root.id)
    with pytest.raises(errors.ParentNotFound, match=root.id):
        ws.tasks.restore(leaf.id)
    with pytest.raises(errors.ParentNotFound, match="deleted"):
        ws.tasks.create("another", parent_id=root.id)


def test_t4_a_pattern_without_a_wildcard_is_a_tag(ws: holdfast.Workspace) -> None:
    task = ws.tasks.create("task", tags=["a*b"])
    assert ws.tasks.claim_next(tag_pattern="a") is None
    taken = ws.tasks.claim_next(tag_pattern=r"a\*b")
    assert taken is not None
    assert taken.id == task.id


def test_t19_a_name_that_cannot_be_stored_is_refused_in_a_template(ws: holdfast.Workspace) -> None:
    for tree in ({"title": "x", "\ud800": 1}, "\ud800"):
        with pytest.raises(errors.Invalid):
            ws.tasks.set_template("name", tree)  # type: ignore[arg-type]


# --- what a dependency costs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("backwards", [False, True], ids=["at its end", "at its start"])
def test_t9_a_dependency_at_either_end_of_a_chain_costs_the_same_however_long_it_is(backwards: bool) -> None:
    """Counted in statements: the search for a cycle does not walk along the chain."""
    with holdfast.open(":memory:", actor="me") as ws:
        made = ws.tasks.bulk("create", tasks=[{"title": "link"}] * 203).results
        ids = [item.id for item in made]
        counts = []
        statements: list[str] = []

        def note(_: Any, sql: str, __: Any) -> bool:
            statements.append(sql)
            return True

        ws._engine.store.writer.exec_trace = note
        for one, other in itertools.pairwise(ids):
            before = len(statements)
            ws.tasks.depend(*((one, other) if backwards else (other, one)))
            counts.append(len(statements) - before)
        assert counts[200] <= counts[2] + 2
        with pytest.raises(errors.WouldCreateCycle) as refused:
            ws.tasks.depend(*((ids[-1], ids[0]) if backwards else (ids[0], ids[-1])))
        assert len(refused.value.path) == len(ids) + 1
        assert ws.check().ok


@pytest.mark.parametrize("seed", range(20))
def test_t9_a_cycle_is_found_by_a_shortest_path(seed: int) -> None:
    chance = random.Random(seed)
    with holdfast.open(":memory:", actor="me") as ws:
        ids = [item.id for item in ws.tasks.bulk("create", tasks=[{"title": "node"}] * 12).results]
        on: dict[str, set[str]] = {id: set() for id in ids}
        for _ in range(40):
            one, other = chance.sample(ids, 2)
            found = _shortest(on, other, one)
            if found is None:
                ws.tasks.depend(one, other)
                on[one].add(other)
            else:
                with pytest.raises(errors.WouldCreateCycle) as refused:
                    ws.tasks.depend(one, other)
                path = refused.value.path
                assert (path[0], path[1], path[-1], len(path)) == (one, other, one, found + 2)
                assert all(b in on[a] for a, b in itertools.pairwise(path[1:]))


def _shortest(on: dict[str, set[str]], start: str, end: str) -> int | None:
    """How many steps lead from one to the other."""
    reached, steps = {start}, 0
    while end not in reached:
        more = reached.union(*(on[id] for id in reached))
        if more == reached:
            return None
        reached, steps = more, steps + 1
    return steps


def test_t6_claims_that_expire_are_one_warning_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    with holdfast.open(":memory:", actor="ann", clock=clock) as ws:
        tasks = [ws.tasks.claim(ws.tasks.create(f"task {number}").id, ttl=60).id for number in range(7)]
        ws.tasks.release(tasks.pop())
        clock.advance(60)
        ws.cells.set("run", "cell", 1)
        assert {ws.tasks.get(id).status for id in tasks} == {"open"}
        named = ", ".join(f"{id} of ann" for id in tasks[:5])
        said = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "holdfast"]
        assert said == [("WARNING", f"claims expired, and their tasks are open again: {named} and 1 more")]
        ws.tasks.claim(tasks[0])
        caplog.clear()
        clock.advance(10)
        assert ws.tasks.release_stale_claims(timeout=5) == 1
        assert [record.getMessage().split(": ")[1] for record in caplog.records] == [f"{tasks[0]} of ann"]


def test_t6_a_server_logs_the_claims_that_expire(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "store", actor="ann", clock=ManualClock()) as ws:  # whose time is long past
        task = ws.tasks.claim(ws.tasks.create("task").id, ttl=60).id
    running = Running(tmp_path / "store")
    try:
        assert running.stop() == 0
        assert running.process.stderr is not None
        assert f"claims expired, and their tasks are open again: {task} of ann" in running.process.stderr.read()
    finally:
        running.end()
