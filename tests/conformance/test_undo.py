"""Undo: one transaction is taken back by another, all of it or nothing; what cannot be taken back is named."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast import Op, errors
from tests.worlds.kinds import World

pytestmark = pytest.mark.kinds("drawn")
HELD = {"version", "revision", "updated_at", "claimed_by", "claimed_at", "token", "deadline"}


def seen(ws: Any, id: str) -> dict[str, Any]:
    """What readers see of a task, but for versions, times and holds."""
    task = ws.tasks.get(id, include_deleted=True)
    fields = {name: getattr(task, name) for name in task.__struct_fields__ if name not in HELD}
    return {**fields, "deleted_at": task.deleted_at is not None, "links": list(ws.tasks.dependencies(id))}


def newest(ws: Any) -> int:
    """The revision of the newest transaction."""
    return int([*ws.watch(after=0, timeout=0)][-1].revision)


def test_every_change_of_a_task_is_undone_and_redone(world: World) -> None:
    ws = world.open("ann")
    top, other = ws.tasks.create("top").id, ws.tasks.create("other").id
    id = ws.tasks.create("old", "text", tags=["a"], parent_id=top, grimoire_hint="careful").id
    later = ws.tasks.get(id).created_at
    steps: list[Any] = [
        lambda: ws.tasks.update(id, title="new", body="other", priority=0, type="bug", grimoire_hint=""),
        lambda: ws.tasks.set_tags(id, ["b", "c"]),
        lambda: ws.tasks.reparent(id, other),
        lambda: ws.tasks.depend(id, other),
        lambda: ws.tasks.assign(id, "bob"),
        lambda: ws.tasks.add_ref(id, "https://example.org/7"),
        lambda: ws.tasks.defer(id, later + timedelta(days=9)),
        lambda: ws.tasks.cancel(id),
        lambda: ws.tasks.reopen(id),
        lambda: ws.tasks.delete(top),
    ]
    for step in steps:
        before = seen(ws, id)
        step()
        after, version = seen(ws, id), ws.tasks.get(id, include_deleted=True).version
        assert after != before or step is steps[-1]
        undone = ws.undo(last=True)
        assert undone.undone == newest(ws) - 1
        assert seen(ws, id) == before
        assert ws.tasks.get(id, include_deleted=True).version in (version, version + 1)
        ws.undo(undone.revision)
        assert seen(ws, id) == after


def test_undoing_a_claim_or_a_completion_gives_an_open_task_that_nobody_holds(world: World) -> None:
    ws = world.open("ann")
    id, waiting = ws.tasks.create("a").id, ws.tasks.create("b").id
    ws.tasks.depend(waiting, id)
    before = seen(ws, id)
    claimed = ws.tasks.claim(id)
    undone = ws.undo(claimed.revision)
    assert [(record.kind, record.id, record.version) for record in undone.records] == [
        ("task", id, claimed.version + 1)
    ]
    assert seen(ws, id) == before
    assert ws.tasks.get(id).claimed_by is None
    with pytest.raises(errors.Fenced):
        ws.tasks.complete(id, token=claimed.token)
    with pytest.raises(errors.NotUndoable) as refused:
        ws.undo(undone.revision)  # which would be a claim
    assert refused.value.details["events"][0] | {"reason": ""} == {
        **{"kind": "task", "scope": "", "id": id, "op": "undo", "reason": ""}
    }
    ws.tasks.claim(id)
    assert ws.paths.lock(["src/**"], task=id).task == id
    done = ws.tasks.complete(id, result={"n": 1}, summary="did it")
    claim = ws.using(actor="bob").tasks.claim(waiting)
    undone = ws.undo(done.revision)
    assert (ws.tasks.get(id).status, ws.tasks.get(id).claimed_by) == ("open", None)
    assert ws.tasks.get(waiting).claimed_by == "bob"
    assert ws.using(actor="bob").tasks.heartbeat(waiting, token=claim.token).waiting is False
    assert any(f"{waiting} depends on {id}; bob holds it" in warning for warning in undone.warnings)
    assert any("stays in its history" in warning for warning in undone.warnings)
    ws.using(actor="bob").tasks.release(waiting)
    assert ws.tasks.get(waiting).waiting
    ws.undo(undone.revision)
    assert (ws.tasks.get(id).status, ws.tasks.get(waiting).waiting) == ("closed", False)


def test_undoing_a_creation_deletes_softly_and_not_while_something_hangs_on_it(world: World) -> None:
    ws = world.open("ann")
    task = ws.tasks.create("a")
    child = ws.tasks.create("child", parent_id=task.id)
    with pytest.raises(errors.Conflict) as refused:
        ws.undo(task.revision)
    assert refused.value.details["children"] == [child.id]
    ws.undo(child.revision)
    waiting = ws.tasks.create("waits", depends_on=[task.id])
    with pytest.raises(errors.Conflict) as refused:
        ws.undo(task.revision)
    assert refused.value.details["dependents"] == [waiting.id]
    ws.undo(waiting.revision)
    ws.undo(task.revision)
    assert ws.tasks.list() == []
    assert ws.tasks.restore(task.id).title == "a"


def test_a_tree_of_a_template_goes_and_comes_back_as_one(world: World) -> None:
    ws = world.open("ann")
    tree = {"title": "root", "children": [{"title": "one", "key": "one"}, {"title": "two", "depends_on": ["one"]}]}
    ws.tasks.set_template("plan", tree)
    root = ws.tasks.from_template("plan")
    ids = [task.id for task in ws.tasks.subtree(root.id)]
    before = [seen(ws, id) for id in ids]
    undone = ws.undo(root.revision)
    assert ws.tasks.list() == []
    ws.undo(undone.revision)
    assert [seen(ws, id) for id in ids] == before
    ws.undo(last=True)
    assert ws.tasks.restore(root.id).id == root.id
    assert len(ws.tasks.list()) == 3


def test_cells_and_values_of_stashes_go_back(world: World) -> None:
    ws = world.open("ann")
    ws.cells.set("run", "a", {"n": 1})
    undone = ws.undo(last=True)
    assert not ws.cells.exists("run", "a")
    ws.undo(undone.revision)
    assert (ws.cells.get("run", "a").value, ws.cells.get("run", "a").version) == ({"n": 1}, 3)
    ws.cells.set("run", "b", None)
    ws.cells.delete_run("run")
    undone = ws.undo(last=True)
    assert {record.id: record.changes for record in undone.records} == {
        "a": {"value": [None, {"n": 1}], "deleted": [True, False]},
        "b": {"value": [None, None], "deleted": [True, False]},
    }
    assert ws.cells.list("run") == ["a", "b"]
    ws.cells.set("run", "a", 5, ttl=60)
    ws.undo(last=True)
    assert ws.cells.get("run", "a").value == {"n": 1}
    assert ws.cells.ttl("run", "a") == 60  # the time it has left is not taken back
    stash = ws.stashes.create("count", "counter")
    ws.stashes.increment(stash.id, 5)
    assert str(ws.undo(last=True).records[0].changes) == str({"value": [{"value": 5}, {"value": 0}]})
    assert ws.stashes.get(stash.id).value == {"value": 0}
    with pytest.raises(errors.NotUndoable):
        ws.undo(stash.revision)


def test_a_transaction_with_mail_or_a_hold_is_not_undoable_but_for_its_rest(world: World) -> None:
    ws = world.open("ann")
    steps = [
        Op("cells.set", {"run": "run", "cell": "cell", "value": 1}),
        Op("mail.send", {"to": ["bob"], "subject": "read me"}),
        Op("leases.create", {"ttl": 60}),
    ]
    ws.txn([], steps)
    revision = newest(ws)
    with pytest.raises(errors.NotUndoable) as refused:
        ws.undo(revision)
    assert [event["kind"] for event in refused.value.details["events"]] == ["message", "lease"]
    assert ws.cells.get("run", "cell").value == 1
    undone = ws.undo(revision, partial=True)
    assert ([record.kind for record in undone.records], len(undone.left)) == (["cell"], 2)
    assert not ws.cells.exists("run", "cell")
    id = ws.tasks.create("a task").id
    for step in (lambda: ws.mail.send(["bob"], "alone"), lambda: ws.tasks.release(ws.tasks.claim(id).id)):
        step()
        with pytest.raises(errors.NotUndoable):
            ws.undo(last=True)


def test_last_goes_back_step_by_step_and_never_redoes(world: World) -> None:
    ws = world.open("ann")
    id = ws.tasks.create("first").id
    titles = ["first", "second", "third", "fourth"]
    for title in titles[1:]:
        ws.tasks.update(id, title=title)
    for title in titles[-2::-1]:
        undone = ws.undo(last=True)
        assert ws.tasks.get(id).title == title
    redone = ws.undo(undone.revision)
    assert ws.tasks.get(id).title == "second"
    assert ws.undo(last=True).undone == redone.revision  # what was done again is one's newest change
    ws.cells.set("run", "a", 1)
    ws.undo(last=True)
    ws.undo(last=True)
    with pytest.raises(errors.NotFound, match="that is not taken back"):
        ws.undo(last=True)
    assert ws.tasks.list() == []


def test_what_others_took_back_is_not_taken_back_again(world: World) -> None:
    ws, bob = world.open("ann"), world.open("bob")
    first = ws.tasks.create("first")
    second = ws.tasks.update(first.id, priority=0)
    bob.undo(second.revision, others=True)
    with pytest.raises(errors.NotFound):
        bob.undo(last=True)
    with pytest.raises(errors.Conflict):
        ws.undo(second.revision)
    assert ws.undo(last=True).undone == first.revision


def test_a_note_stays_and_is_no_change(world: World) -> None:
    ws = world.open("ann")
    task = ws.tasks.create("first")
    changed = ws.tasks.update(task.id, title="second")
    note = ws.tasks.note(task.id, "said")
    with pytest.raises(errors.NotUndoable, match=f"only noted something on {task.id}") as refused:
        ws.undo(last=True)
    assert refused.value.hint == f"revision {changed.revision} is your change before it"
    with pytest.raises(errors.NotUndoable):
        ws.undo(note.revision)
    assert ws.undo(changed.revision).records[0].changes == {"title": ["second", "first"]}
    assert ws.tasks.get(task.id).title == "first"
    assert [entry.note for entry in ws.tasks.history(task.id) if entry.note] == ["said"]


def test_a_change_that_was_redone_is_a_change(world: World) -> None:
    ws = world.open("ann")
    task = ws.tasks.create("first")
    changed = ws.tasks.update(task.id, title="second")
    other = ws.tasks.update(task.id, priority=0)
    ws.undo(ws.undo(other.revision).revision)
    with pytest.raises(errors.Conflict):
        ws.undo(changed.revision)
    ws.undo(last=True)
    ws.undo(last=True)
    assert (ws.tasks.get(task.id).title, ws.tasks.get(task.id).priority) == ("first", 2)


def test_what_is_taken_back_and_done_again_is_taken_back_by_its_number(world: World) -> None:
    ws = world.open("ann")
    changed = ws.cells.set("run", "a", 1)
    assert changed == 1
    first = newest(ws)
    undone = ws.undo(first)
    with pytest.raises(errors.NotUndoable, match=f"revision {first} is already taken back, by") as refused:
        ws.undo(first)
    assert refused.value.hint == f"undo revision {undone.revision} to do it again"
    redone = ws.undo(undone.revision)
    with pytest.raises(errors.NotUndoable, match=f"revision {undone.revision} is already taken back, by"):
        ws.undo(undone.revision, force=True)
    again = ws.undo(first)
    assert ws.cells.find("run", "a") is None
    with pytest.raises(errors.NotUndoable, match=f"already taken back, by revision {again.revision}"):
        ws.undo(first)
    with pytest.raises(errors.Conflict):  # the later ones first
        ws.undo(redone.revision)


@pytest.mark.parametrize("ending", ["release", "expire"])
def test_a_claim_that_came_and_went_is_no_change(world: World, ending: str) -> None:
    ws = world.open("ann")
    task = ws.tasks.create("first")
    changed = ws.tasks.update(task.id, title="second")
    claim = ws.tasks.claim(task.id, ttl=5)
    ws.tasks.park(task.id, until=claim.updated_at + timedelta(seconds=5))
    if ending == "release":
        ws.tasks.release(task.id)
    else:
        world.clock.advance(6)
        ws.tasks.release_stale_claims()
    with pytest.raises(errors.NotUndoable) as refused:
        ws.undo(last=True)
    assert refused.value.hint == f"revision {changed.revision} is your change before it"
    with pytest.raises(errors.NotUndoable, match=f"only claimed {task.id}, and that claim has ended"):
        ws.undo(claim.revision)
    world.open("bob").tasks.claim(task.id)
    with pytest.raises(errors.Conflict, match="by bob"):  # who works on what it says now
        ws.undo(changed.revision)
    world.open("bob").tasks.release(task.id)
    assert ws.undo(changed.revision).records[0].changes == {"title": ["second", "first"]}


def test_a_note_is_refused_at_once_whoever_changed_the_task_since(world: World) -> None:
    ws = world.open("ann")
    task = ws.tasks.create("first")
    other = ws.cells.set("run", "a", 1)
    assert other == 1
    ws.tasks.note(task.id, "said")
    world.open("bob").tasks.update(task.id, title="second")
    with pytest.raises(errors.NotUndoable, match="only noted something") as refused:
        ws.undo(last=True)
    assert refused.value.hint.endswith("is your change before it")
    ws.undo(int(refused.value.hint.split()[1]))
    assert ws.cells.find("run", "a") is None


def test_reading_shared_tasks_is_nothing_that_one_did(world: World) -> None:
    ws = world.open("ann")
    task = ws.tasks.create("first")
    changed = ws.tasks.update(task.id, title="second")
    line = '{"format":"holdfast.shared/1","id":"%s","uid":"abcdefgh1234","title":"of others","made":"5@abcd"%s}'
    read = ws.tasks.merge_shared([line % ("hf-7k2q", "")])
    assert read.created == ["hf-7k2q"]
    with pytest.raises(errors.NotUndoable, match="others made what came with the repository"):
        ws.undo(newest(ws))
    older = line % (task.id, ',"created_at":"2001-01-01T00:00:00+00:00"')
    assert ws.tasks.merge_shared([older]).renamed.keys() == {task.id}
    undone = ws.undo(last=True)
    assert (undone.undone, undone.records[0].changes) == (changed.revision, {"title": ["second", "first"]})


def test_what_was_changed_since_is_a_conflict_unless_forced(world: World) -> None:
    ws, bob = world.open("ann"), world.open("bob")
    task = ws.tasks.create("first")
    mine = ws.tasks.update(task.id, title="mine", priority=0)
    theirs = bob.tasks.update(task.id, title="theirs")
    with pytest.raises(errors.Conflict) as refused:
        ws.undo(mine.revision)
    (changed,) = refused.value.details["changed"]
    assert (changed["actor"], changed["revision"], changed["id"]) == ("bob", theirs.revision, task.id)
    assert "by bob" in refused.value.message
    ws.undo(mine.revision, force=True)
    assert (ws.tasks.get(task.id).title, ws.tasks.get(task.id).priority) == ("first", 2)


def test_a_dry_run_shows_the_difference_and_changes_nothing(world: World) -> None:
    ws = world.open("ann")
    task = ws.tasks.create("first")
    ws.tasks.update(task.id, title="second", priority=0)
    before = newest(ws)
    shown = ws.undo(last=True, dry_run=True)
    assert (shown.dry_run, shown.revision, newest(ws)) == (True, None, before)
    assert shown.records[0].changes == {"title": ["second", "first"], "priority": [0, 2]}
    done = ws.undo(last=True)
    assert (done.records, done.revision) == (shown.records, before + 1)
    entry = next(entry for entry in ws.tasks.history(task.id) if entry.field == "undoes")
    assert entry.new_value == before


def test_only_ones_own_transactions_unless_asked_for_others(world: World) -> None:
    ws, bob = world.open("ann"), world.open("bob")
    revision = bob.tasks.create("of bob").revision
    with pytest.raises(errors.NotUndoable, match="of bob, not of ann"):
        ws.undo(revision)
    with pytest.raises(errors.NotFound):
        ws.undo(last=True)
    assert ws.undo(revision, others=True).records[0].kind == "task"
    for wrong in ({}, {"revision": 1, "last": True}, {"revision": 10**6}, {"revision": "x"}, {"revision": -1}):
        with pytest.raises((errors.Invalid, errors.Behind)):
            ws.undo(**wrong)


def test_below_the_mark_of_compaction_nothing_is_undone(world: World) -> None:
    ws = world.open("ann")
    ws.cells.set("run", "a", 1)
    ws.cells.set("run", "a", 2)
    ws.cells.set("run", "b", 1)
    ws.events.compact(3)
    with pytest.raises(errors.Compacted) as compacted:
        ws.undo(2)
    assert compacted.value.hint == "what it changed is no longer known: set by hand what should be there"
    with pytest.raises(errors.NotFound):
        ws.undo(0)
    ws.undo(3)
    assert ws.cells.list("run") == ["a"]


def test_imports_are_not_undone(world: World) -> None:
    ws = world.open("ann")
    ws.tasks.import_(['{"id": "bd-1", "title": "from beads", "comments": [{"text": "hm", "author": "x"}]}'], "beads")
    with pytest.raises(errors.NotUndoable):
        ws.undo(newest(ws))


def test_a_move_is_not_undone_into_a_circle(world: World) -> None:
    ws = world.open("ann")
    a, b = ws.tasks.create("a"), ws.tasks.create("b")
    a1 = ws.tasks.create("a1", parent_id=a.id)
    moved = ws.tasks.reparent(a1.id, b.id)
    ws.tasks.reparent(a.id, a1.id)
    with pytest.raises(errors.WouldCreateCycle):
        ws.undo(moved.revision)
    gone = ws.tasks.undepend(ws.tasks.depend(a.id, b.id).id, b.id)
    ws.tasks.depend(b.id, a.id)
    with pytest.raises(errors.WouldCreateCycle):
        ws.undo(gone.revision)


def test_a_key_runs_an_undo_once(world: World) -> None:
    ws = world.open("ann")
    ws.cells.set("run", "a", 1)
    first = ws.using(key="k").undo(1)
    assert ws.using(key="k").undo(1) == first
    assert ws.cells.history("run", "a")[0].op == "undo"
    assert newest(ws) == 2
