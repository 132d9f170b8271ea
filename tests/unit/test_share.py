"""Sharing tasks (issue 25): workspaces that have read each other's lines agree, and nothing of one's own is taken."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Workspace
from holdfast.errors import Fenced, Invalid
from holdfast.replication.log import MemoryLog
from holdfast.testing import ManualClock
from holdfast.types.tasks import Author
from tests.amounts import seeds
from tests.unit.share_edits import Editor, agreed, lines_of, meet

Make = Callable[..., Workspace]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with ExitStack() as stack:

        def made(name: str, config: str = "prefix: hf\n", **more: Any) -> Workspace:
            folder = tmp_path / name
            folder.mkdir(exist_ok=True)
            (folder / "config.yaml").write_text(config)
            return stack.enter_context(holdfast.open(folder, actor="me", **more))

        yield made


def give(source: Workspace, target: Workspace) -> Any:
    return target.tasks.merge_shared(lines_of(source))


def of(ws: Workspace, id: str) -> Any:
    return next(line for line in map(json.loads, lines_of(ws)) if line["id"] == id)


@pytest.mark.parametrize("seed", seeds(2, 200))
def test_those_who_have_met_agree_in_every_field(make: Make, seed: int) -> None:
    rng = random.Random(seed)
    them = [make(name) for name in ("one", "two", "three")]
    them[0].tasks.set_sharing(True, notes=True, authors=True)
    them[1].tasks.set_sharing(True, notes=True)
    editors = [Editor(ws, f"n{number}", rng) for number, ws in enumerate(them)]
    seen: list[list[str]] = []
    for _ in range(12):
        editor = rng.choice(editors)
        for _ in range(rng.randrange(1, 12)):
            editor.edit()
        seen.append(lines_of(editor.ws))
        some = list(rng.choice(seen))  # perhaps long ago, in any order, and not all of it
        rng.shuffle(some)
        rng.choice(them).tasks.merge_shared(some[: rng.randrange(len(some) + 1)])
    meet(*them)
    first, second, third = (lines_of(ws) for ws in them)
    assert first == second == third
    assert agreed(them[0]) == agreed(them[1]) == agreed(them[2])
    assert {json.loads(line).get("uid") for lines in seen for line in lines} <= {
        json.loads(line).get("uid") for line in first
    }
    for ws in them:
        assert ws.check().problems == []
        report = ws.tasks.merge_shared(rng.choice(seen))  # an old branch turns nothing back
        assert [*report.created, *report.updated, *report.deleted, *report.renamed] == []


def test_what_travels_and_what_does_not(make: Make) -> None:
    one = make("one")
    first = one.tasks.create("First", "the body", tags=["a"], assigned_to="me").id
    second = one.tasks.create("Second", parent_id=first, depends_on=[first]).id
    one.tasks.claim(first)
    one.tasks.note(first, "a secret note")
    one.tasks.add_ref(first, "fix/parser")
    one.cells.set("run", "cell", "a secret cell")
    one.mail.send("bob", "a secret subject", task=first)
    one.tasks.set_template("release", {"title": "Release {version}"}, {"version": None})
    lines = lines_of(one)
    text = "\n".join(lines)
    assert not any(word in text for word in ("secret", '"me"', "in_progress", "token", "claimed"))
    ids = [json.loads(line).get("id", "~") for line in lines]
    assert ids == sorted(ids)
    two = make("two")
    report = give(one, two)
    assert sorted(report.created) == sorted([first, second])
    assert report.templates == ["release"]
    task = two.tasks.get(first)
    assert (task.title, task.body, task.tags, task.status) == ("First", "the body", ("a",), "open")
    assert task.origin is not None
    assert (task.refs[0].value, task.assigned_to) == ("fix/parser", None)
    assert two.tasks.get(second).parent_id == first
    assert two.tasks.from_template("release", version="1").title == "Release 1"
    one.tasks.set_sharing(True, notes=True, authors=True)
    give(one, two)
    assert two.tasks.get(first).assigned_to == "me"
    noted = next(each for each in two.tasks.history(first) if each.note == "a secret note")
    assert isinstance(noted.author, Author)
    assert noted.author.by == "me"
    give(two, one)
    give(one, two)
    assert [each.note for each in two.tasks.history(first) if each.note].count("a secret note") == 1


def test_of_two_changes_the_later_wins_and_the_other_stays_in_history(make: Make) -> None:
    clock = ManualClock()
    one, two = make("one", clock=clock), make("two", clock=clock)
    id = one.tasks.create("First").id
    give(one, two)
    clock.advance(10)
    one.tasks.update(id, title="of one")
    one.tasks.update(id, priority=0)
    clock.advance(10)
    two.tasks.update(id, title="of two")
    clock.advance(10)
    lines = lines_of(one)  # written later, but changed earlier
    two.tasks.merge_shared(lines)
    give(two, one)
    for ws in (one, two):
        assert (ws.tasks.get(id).title, ws.tasks.get(id).priority) == ("of two", 0)
    newest = one.tasks.history(id, field="title")[0]
    assert (newest.old_value, newest.new_value) == ("of one", "of two")


def test_of_one_id_the_older_keeps_it_and_the_younger_is_found(make: Make) -> None:
    clock = ManualClock()
    one, two = make("one", clock=clock), make("two", clock=clock)
    line = {"format": "holdfast.task/1", "id": "hf-1", "title": "older"}
    one.tasks.import_([json.dumps(line)])
    clock.advance(1)
    two.tasks.import_([json.dumps(line | {"title": "younger"})])
    below = two.tasks.create("below", parent_id="hf-1").id
    two.mail.send("bob", "about it", task="hf-1")
    trail = two.trails.create("trail").id
    two.trails.add(trail, "hf-1")
    report = give(one, two)
    new = report.renamed["hf-1"]
    assert (new[:4], len(new)) == ("hf-1", 8)
    give(two, one)
    for ws in (one, two):
        assert (ws.tasks.get("hf-1").title, ws.tasks.get(new).title) == ("older", "younger")
        assert ws.tasks.get(below).parent_id == new
        assert ws.tasks.sharing("hf-1").renamed == {"hf-1": [new]}
        assert ws.check().problems == []
    assert two.trails.members(trail) == [new]
    assert [each.task for each in two.mail.about(new)] == [new]


def test_a_closing_that_arrives_ends_the_claim(make: Make) -> None:
    one, two = make("one"), make("two")
    id = one.tasks.create("First").id
    give(one, two)
    token = two.tasks.claim(id).token
    one.tasks.claim(id)
    one.tasks.complete(id)
    report = give(one, two)
    assert report.ended == [id]
    assert f"{id} was held by me: closed elsewhere, so the claim has ended" in report.warnings
    assert two.tasks.get(id).status == "closed"
    with pytest.raises(Fenced):
        two.tasks.complete(id)
    with pytest.raises(Fenced):
        two.tasks.note(id, "still here", token=token)
    assert two.check().problems == []


def test_a_claim_here_is_nobody_elses_business(make: Make) -> None:
    one, two = make("one"), make("two")
    id = one.tasks.create("First").id
    give(one, two)
    before = lines_of(one)
    one.tasks.claim(id)
    assert lines_of(one) == before
    two.tasks.update(id, title="another")
    give(two, one)
    assert (one.tasks.get(id).status, one.tasks.get(id).title) == ("in_progress", "another")
    one.tasks.complete(id)
    give(one, two)
    assert two.tasks.get(id).status == "closed"


def test_of_a_circle_the_youngest_is_left_out_until_the_older_is_gone(make: Make) -> None:
    clock = ManualClock()
    one, two = make("one", clock=clock), make("two", clock=clock)
    a, b = one.tasks.create("A").id, one.tasks.create("B").id
    give(one, two)
    clock.advance(1)
    one.tasks.depend(a, b)
    one.tasks.reparent(a, b)
    clock.advance(1)
    two.tasks.depend(b, a)
    two.tasks.reparent(b, a)
    report = give(one, two)
    assert sorted(report.warnings) == [
        f"{b}: its dependency {a} would close a circle, and is left out",
        f"{b}: its parent {a} would close a circle, and is left out",
    ]
    give(two, one)
    for ws in (one, two):
        assert (ws.tasks.get(a).parent_id, ws.tasks.get(b).parent_id) == (b, None)
        assert [(link.id, link.on) for link in ws.tasks.dependencies(a)] == [(a, b)]
        assert ws.check().problems == []
        odd = [f"its dependency {a} would close a circle", f"its parent {a} would close a circle"]
        assert ws.tasks.sharing().left_out == {b: odd}
        assert (ws.tasks.sharing(a).left_out, ws.tasks.sharing(b).left_out) == ({}, {b: odd})
    assert give(two, one).warnings == []
    one.tasks.undepend(a, b)
    one.tasks.reparent(a, None)
    give(one, two)
    give(two, one)
    for ws in (one, two):
        assert (ws.tasks.get(a).parent_id, ws.tasks.get(b).parent_id) == (None, a)
        assert [(link.id, link.on) for link in ws.tasks.dependencies(a)] == [(b, a)]


def test_deletions_travel_and_what_was_purged_is_gone(make: Make) -> None:
    one, two = make("one"), make("two")
    id = one.tasks.create("First", "a secret body").id
    child = one.tasks.create("Child", parent_id=id).id
    give(one, two)
    below = two.tasks.create("Below", parent_id=child).id
    one.tasks.delete(id)
    assert sorted(give(one, two).deleted) == sorted([id, child])
    assert two.tasks.get(below).parent_id is None  # it is not what was deleted
    one.tasks.restore(id)
    give(two, one)
    give(one, two)
    assert two.tasks.get(below).parent_id == child
    one.tasks.delete(id)
    one.tasks.purge(id)
    assert "secret" not in "".join(lines_of(one))
    give(one, two)
    assert two.tasks.get(id, include_deleted=True).deleted_at is not None
    assert not give(two, one).created
    two.tasks.restore(id)  # whoever wants it back has a task of its own
    give(two, one)
    assert agreed(one) == agreed(two)
    assert one.check().problems == two.check().problems == []


def test_a_damaged_line_refuses_all_and_can_be_left_out(make: Make) -> None:
    one, two = make("one"), make("two")
    one.tasks.create("First")
    lines = [*lines_of(one), '{"format": "holdfast.sha']
    with pytest.raises(Invalid, match="1 line cannot be imported; line 2: error: invalid JSON") as refused:
        two.tasks.merge_shared(lines)
    assert [problem.line for problem in refused.value.problems] == [2]
    assert two.tasks.list() == []
    report = two.tasks.merge_shared(lines, skip_bad=True)
    assert (len(report.created), len(report.problems)) == (1, 1)


def test_what_cannot_be_a_task_here_travels_on(make: Make) -> None:
    one, two = make("one"), make("two", "prefix: hf\nlimits:\n  max_title: 10\n")
    long = one.tasks.create("A title that is too long").id
    report = give(one, two)
    assert report.created == []
    assert report.warnings[0].startswith(f"{long} cannot be a task here, its line is kept: title has 24 characters")
    assert lines_of(two) == lines_of(one)
    assert give(one, two).warnings == []
    one.tasks.update(long, title="short")
    assert give(one, two).created == [long]


def test_stamps_survive_compaction_backup_and_restore(make: Make, tmp_path: Path) -> None:
    one, two = make("one"), make("two")
    id = one.tasks.create("First").id
    give(one, two)
    one.tasks.update(id, title="another")
    one.tasks.update(id, priority=1)
    one.events.compact(before=one.revision)
    before = lines_of(one)
    assert {*of(one, id)["stamps"]} == {"title", "priority"}
    one.backup(tmp_path / "backup")
    holdfast.restore(tmp_path / "backup", tmp_path / "restored")
    restored = make("restored")
    assert lines_of(restored) == before
    restored.tasks.update(id, title="after the restore")
    give(restored, two)
    give(two, one)
    assert [ws.tasks.get(id).title for ws in (one, two)] == ["after the restore"] * 2
    assert one.check().problems == restored.check().problems == []


def test_a_replica_has_the_lines_of_its_log(tmp_path: Path) -> None:
    log = MemoryLog()
    with (
        holdfast.open(tmp_path / "a", log=log, actor="me") as a,
        holdfast.open(tmp_path / "b", log=log, actor="me") as b,
    ):
        id = a.tasks.create("First").id
        lines = lines_of(a)
        assert lines_of(b.using(at_least="latest")) == lines
        b.tasks.update(id, title="another")
        assert of(a.using(at_least="latest"), id)["title"] == "another"
        assert a.check().problems == []


def test_a_line_of_a_newer_program_keeps_what_is_unknown(make: Make) -> None:
    one, two = make("one"), make("two")
    id = one.tasks.create("First").id
    line = of(one, id) | {"colour": {"b": 1, "a": 2}}
    two.tasks.merge_shared([json.dumps(line)])
    two.tasks.update(id, title="another")
    assert of(two, id)["colour"] == {"a": 2, "b": 1}
    assert of(two, id)["stamps"].keys() == {"title"}


@pytest.mark.parametrize("purger", [0, 1])
def test_what_led_to_a_purged_task_leads_everywhere_to_the_one_that_was_restored(make: Make, purger: int) -> None:
    them = [make(name) for name in ("one", "two", "three")]
    one, two = them[purger], them[1 - purger]
    id = one.tasks.create("First").id
    waits, child = one.tasks.create("Waits", depends_on=[id]).id, one.tasks.create("Child", parent_id=id).id
    for kind in ("related", "discovered_from"):
        one.tasks.depend(waits, id, kind=kind)
    meet(*them)
    own = two.tasks.create("Own child", parent_id=id).id
    two.tasks.delete(own)
    one.tasks.reparent(child, None)
    one.tasks.delete(id)
    one.tasks.purge(id)
    give(one, two)
    two.tasks.restore(id)
    give(two, them[2])
    meet(*them)
    assert agreed(them[0]) == agreed(them[1]) == agreed(them[2])
    for ws in them:
        assert ws.check().problems == []
        (found,) = (task for task in ws.tasks.list() if task.title == "First")
        assert {(link.kind, link.on) for link in ws.tasks.dependencies(waits) if link.id == waits} == {
            (kind, found.id) for kind in ("depends_on", "related", "discovered_from")
        }


@pytest.mark.parametrize("older", ["one", "two"])
def test_a_purged_task_counts_among_those_with_one_id(make: Make, older: str) -> None:
    """Its reader, who never had it, and one who has it still, name the others as its owner does."""
    spaces = [make(name) for name in ("ann", "bob", "cyd")]
    years = {"one": 2025, "two": 2025, older: 2024}
    line = '{"format": "holdfast.task/1", "id": "t-1", "title": "%s", "created_at": "%d-01-01T00:00:00Z"}'
    ann, bob, cyd = spaces
    ann.tasks.import_([line % ("one", years["one"])])
    bob.tasks.merge_shared(lines_of(ann))
    ann.tasks.purge("t-1")
    cyd.tasks.import_([line % ("two", years["two"])])
    bob.tasks.merge_shared([*lines_of(ann), *lines_of(cyd)])
    meet(*spaces)
    assert lines_of(ann) == lines_of(bob) == lines_of(cyd)
    names = [[(task.id, task.title) for task in space.tasks.list()] for space in spaces]
    assert names[0] == names[1] == names[2]
    assert (names[0][0][0] == "t-1") == (older == "two")
    assert [space.check().problems for space in spaces] == [[], [], []]
