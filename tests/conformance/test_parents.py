"""Parents that wait for their children (T3, T7, T8), on every kind: `parents: strict`, the default, and `independent`.

Besides what else decides who may begin a task and when: assignees and deferrals; and the references of a task.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import errors
from holdfast.types.tasks import Ref
from tests.worlds.kinds import World


def family(ws: Any) -> tuple[str, str, str]:
    """An epic with two children."""
    epic = ws.tasks.create("epic", type="epic").id
    return epic, ws.tasks.create("one", parent_id=epic).id, ws.tasks.create("two", parent_id=epic).id


def set_parents(world: World, ws: Any, value: str) -> None:
    """Write the setting into every config.yaml of the world, and load it."""
    assert ws.revision >= 0  # the folder is there once something was asked
    for folder in [path for path in world.folder.iterdir() if path.is_dir()] or [Path(ws._engine.folder)]:
        (folder / "config.yaml").write_text(f"parents: {value}\n")
    ws.routes.reload()


def ready(ws: Any, **filters: Any) -> list[str]:
    return [task.title for task in ws.tasks.ready(**filters)]


# --- strict parents --------------------------------------------------------------------------------------------------


def test_t8_a_parent_is_ready_with_the_event_of_its_last_child_and_its_version_stays(world: World) -> None:
    ws: Any = world.open("ann")
    epic, one, two = family(ws)
    before = ws.tasks.get(epic)
    assert (ready(ws), before.children, before.children_done) == (["one", "two"], 2, 0)
    assert (before.waiting, ws.tasks.get(one).waiting) == (True, False)
    reason = ws.tasks.explain(epic).reasons[0]
    assert (reason.code, reason.ids) == ("children", (one, two))
    ws.tasks.complete(ws.tasks.claim_next().id)
    assert ready(ws) == ["two"]
    ws.tasks.close(two)
    assert ready(ws) == ["epic"]
    after = ws.tasks.get(epic)
    assert (after.version, after.revision, after.children_done) == (before.version, before.revision, 2)
    assert not after.waiting
    newest = ws.events.list(limit=1000)[-1]
    assert (newest.id, newest.data["parent_ready"]) == (two, [None, epic])
    assert ws.tasks.claim_next().id == epic


@pytest.mark.kinds("drawn")
def test_t8_a_child_that_is_deleted_or_moved_away_is_not_waited_for(world: World) -> None:
    ws: Any = world.open("ann")
    epic, one, two = family(ws)
    ws.tasks.delete(one)
    ws.tasks.reparent(two, None)
    assert ready(ws) == ["epic", "two"]
    ws.tasks.restore(one)
    assert ready(ws) == ["one", "two"]
    assert ws.tasks.get(epic).children == 1
    ws.tasks.purge(one)
    assert (ready(ws), ws.tasks.get(epic).children) == (["epic", "two"], 0)


@pytest.mark.parametrize("step", ["complete", "close", "approve", "cancel"])
def test_t8_a_parent_does_not_end_before_its_children_unless_forced(world: World, step: str) -> None:
    ws: Any = world.open("ann")
    epic = ws.tasks.create("epic").id
    if step != "cancel":
        ws.tasks.claim(epic)  # by its id, that works
    if step == "approve":
        ws.tasks.complete(epic, review=True)
    child = ws.tasks.create("child", parent_id=epic).id
    end = getattr(ws.tasks, step)
    with pytest.raises(errors.OpenChildren) as caught:
        end(epic)
    assert (caught.value.children, caught.value.status, caught.value.exit_code) == ([child], 409, 11)
    assert ("tasks.release" in caught.value.hint) == (step in ("complete", "close"))
    ended = end(epic, force=True)
    assert (ended.status, ended.children, ended.children_done) == ("closed", 1, 0)
    assert ws.events.list(limit=1000)[-1].data["open_children"] == [None, [child]]
    assert ws.tasks.get(child).status == "open"


@pytest.mark.kinds("drawn")
def test_t3_cancel_with_cascade_cancels_what_is_unfinished_below_or_nothing(world: World) -> None:
    ws: Any = world.open("ann")
    epic, one, two = family(ws)
    below = ws.tasks.create("below", parent_id=one).id
    held = ws.tasks.claim(below)
    with pytest.raises(errors.HasActiveChildren) as caught:
        ws.tasks.cancel(epic, "not wanted", cascade=True)
    assert caught.value.active_children == [below]
    assert ws.tasks.get(two).status == "open"
    ws.tasks.release(held.id)
    ws.tasks.cancel(epic, "not wanted", cascade=True)
    assert {ws.tasks.get(id).status for id in (epic, one, two, below)} == {"closed"}


@pytest.mark.kinds("drawn")
def test_t7_a_child_under_a_closed_parent_is_allowed_with_a_warning(world: World) -> None:
    ws: Any = world.open("ann")
    epic = ws.tasks.close(ws.tasks.create("epic").id).id
    child = ws.tasks.create("late", parent_id=epic)
    assert child.warnings == (f"its parent {epic} is closed, and stays closed",)
    assert ws.tasks.get(child.id).warnings == ()
    ws.tasks.close(child.id)
    assert ws.tasks.reopen(child.id).warnings
    assert not ws.tasks.reparent(child.id, None).warnings
    assert ws.tasks.reparent(child.id, epic).warnings
    assert ws.tasks.get(epic).status == "closed"


def test_t9_a_child_that_waits_for_its_own_parent_is_warned_of(world: World) -> None:
    ws: Any = world.open("ann")
    epic, one, _ = family(ws)
    other = ws.tasks.create("other").id
    assert ws.tasks.depend(one, other).warnings == ()
    warning = f"it waits for {epic}, which is above it and waits for it: neither becomes ready"
    assert ws.tasks.depend(one, epic).warnings == (warning,)
    ws.tasks.undepend(one, epic)
    ws.tasks.depend(other, epic)
    assert ws.tasks.depend(one, other).warnings == (warning,)
    set_parents(world, ws, "independent")
    assert ws.tasks.depend(one, other).warnings == ()


@pytest.mark.kinds("drawn")
def test_t18_an_import_is_not_refused_by_open_children(world: World) -> None:
    ws: Any = world.open("ann")
    line = '{{"format": "holdfast.task/1", "id": "x-{}", "title": "{}", "status": "{}"{}}}'
    lines = [line.format(1, "epic", "closed", ""), line.format(2, "child", "open", ', "parent_id": "x-1"')]
    assert ws.tasks.import_(lines).skipped == []
    assert [ws.tasks.get(id).status for id in ("x-1", "x-2")] == ["closed", "open"]


def test_t8_independent_parents_end_freely_and_the_setting_rebuilds_readiness_both_ways(world: World) -> None:
    ws: Any = world.open("ann")
    epic, one, two = family(ws)
    ws.tasks.add_tags(epic, ["big"])
    revision = ws.revision
    set_parents(world, ws, "independent")
    assert ws.revision == revision + 1
    assert (ready(ws), ready(ws, tags=["big"])) == (["epic", "one", "two"], ["epic"])
    ws.tasks.claim(one)
    assert ready(ws) == ["two"]
    ws.tasks.release(one)
    set_parents(world, ws, "strict")
    assert (ready(ws), ready(ws, tags=["big"])) == (["one", "two"], [])
    assert ws.check().problems == []
    set_parents(world, ws, "independent")
    assert ws.tasks.close(epic).status == "closed"
    assert ws.tasks.get(two).status == "open"


# --- closing whatever is unfinished ----------------------------------------------------------------------------------


@pytest.mark.kinds("drawn")
def test_t3_close_takes_the_steps_in_between_for_every_actor_and_holds_nothing(world: World) -> None:
    anybody: Any = world.open(None)  # nobody chose this name
    task = anybody.tasks.create("done by hand")
    closed = anybody.tasks.close(task.id, "by hand")
    assert (closed.status, closed.claimed_by, closed.token) == ("closed", None, None)
    steps = [(entry.op, entry.new_value) for entry in anybody.tasks.history(task.id, field="status")]
    assert steps == [("complete", "closed"), ("claim", "in_progress"), ("create", "open")]
    held = world.open("ann").tasks.claim(anybody.tasks.create("held").id)
    with pytest.raises(errors.NotClaimOwner) as caught:
        anybody.tasks.close(held.id)
    assert caught.value.holder == "ann"
    assert anybody.tasks.close(held.id, force=True).status == "closed"
    assert anybody.tasks.history(held.id, field="forced")[0].new_value is True


@pytest.mark.kinds("drawn")
def test_t5_close_with_the_token_of_an_earlier_claim_is_fenced(world: World) -> None:
    ws: Any = world.open("ann")
    id = ws.tasks.create("a task").id
    first = ws.tasks.claim(id)
    ws.tasks.release(id)
    second = ws.tasks.claim(id)
    with pytest.raises(errors.Fenced):
        ws.tasks.close(id, token=first.token)
    assert ws.tasks.close(id, token=second.token).status == "closed"


def test_t3_close_waits_for_a_review_where_the_route_wants_one_and_then_approves(world: World) -> None:
    ws: Any = world.open("ann")
    assert ws.revision >= 0
    rules = "matchers:\n  - {name: careful, grimoire: careful, require_review: true, any_tags: [risky]}\n"
    for folder in [path for path in world.folder.iterdir() if path.is_dir()] or [Path(ws._engine.folder)]:
        (folder / "grimoire-matchers.yaml").write_text(rules)
    task = ws.tasks.create("risky", tags=["risky"])
    assert ws.tasks.close(task.id).status == "pending_merge"
    assert ws.tasks.close(task.id).status == "closed"
    with pytest.raises(errors.InvalidTransition):
        ws.tasks.close(task.id)


@pytest.mark.kinds("drawn")
def test_t3_complete_of_a_task_that_nobody_holds_points_to_close(world: World) -> None:
    ws: Any = world.open("ann")
    task = ws.tasks.create("open")
    with pytest.raises(errors.InvalidTransition, match="open") as caught:
        ws.tasks.complete(task.id)
    assert caught.value.hint.startswith(f'nobody holds it: tasks.close("{task.id}") closes it')


# --- assignees -------------------------------------------------------------------------------------------------------


def test_t8_an_assigned_task_is_ready_for_its_assignee_alone(world: World) -> None:
    ann: Any = world.open("ann")
    bob: Any = world.open("bob")
    task = ann.tasks.create("for bob", priority=0, tags=["api"], assigned_to="bob")
    other = ann.tasks.create("for all", tags=["api"])
    assert (ready(ann), ready(bob), ready(ann, agent="bob")) == (["for all"], ["for bob", "for all"], ready(bob))
    assert [reason.code for reason in ann.tasks.explain(task.id).reasons] == ["assigned"]
    assert bob.tasks.explain(task.id).ready
    with pytest.raises(errors.Assigned) as caught:
        ann.tasks.claim(task.id)
    assert (caught.value.assigned_to, caught.value.status, caught.value.exit_code) == ("bob", 409, 12)
    assert ann.tasks.claim_next(tags=["api"]).id == other.id
    assert ann.tasks.claim_next() is None
    assert ann.tasks.claim_next(type="task") is None
    assert bob.tasks.claim_next(tags=["api"]).id == task.id
    bob.tasks.release(task.id)
    assert bob.tasks.claim_next(type="task").id == task.id
    bob.tasks.release(task.id)
    assert ann.tasks.claim(task.id, force=True).claimed_by == "ann"
    ann.tasks.release(task.id)
    assert [found.id for found in ann.tasks.list(assigned_to="bob")] == [task.id]
    assert [(card.title, card.assigned_to) for card in ann.board("ready")] == [("for bob", "bob")]
    assert ann.tasks.unassign(task.id).assigned_to is None
    assert ready(ann, tags=["api"]) == ["for bob"]


# --- deferrals -------------------------------------------------------------------------------------------------------


def test_t8_a_deferred_task_waits_until_its_time_and_says_when_it_is_due(world: World) -> None:
    ws: Any = world.open("ann")
    task = ws.tasks.create("later", tags=["api"])
    until = task.created_at + timedelta(hours=1)
    assert ws.tasks.defer(task.id, until).deferred_until == until
    assert (ready(ws), ready(ws, tags=["api"])) == ([], [])
    assert [reason.code for reason in ws.tasks.explain(task.id).reasons] == ["deferred"]
    world.clock.advance(3600)
    assert ready(ws, tags=["api"]) == ["later"]
    newest = ws.events.list(limit=1000)[-1]
    assert (newest.op, newest.actor, newest.id) == ("due", "system", task.id)
    assert ws.tasks.get(task.id).deferred_until is None


@pytest.mark.kinds("drawn")
def test_t8_a_deferral_ends_by_hand_by_a_claim_and_with_the_task(world: World) -> None:
    ws: Any = world.open("ann")
    later = ws.tasks.create("clock").created_at + timedelta(hours=1)
    ends: tuple[Callable[[str], object], ...] = (
        lambda id: ws.tasks.defer(id, None),
        lambda id: ws.tasks.release(ws.tasks.claim(id).id),
        lambda id: ws.tasks.close(id),
        lambda id: ws.tasks.purge(id),
    )
    for end in ends:
        task = ws.tasks.create("task")
        ws.tasks.defer(task.id, later)
        end(task.id)
        assert [found for found in ws.tasks.list() if found.deferred_until] == []
    busy = ws.tasks.claim(ws.tasks.create("busy").id)
    with pytest.raises(errors.InvalidStatus):
        ws.tasks.defer(busy.id, later)
    with pytest.raises(errors.Invalid):
        ws.tasks.defer(ws.tasks.create("past").id, busy.created_at - timedelta(hours=1))
    world.clock.advance(7200)
    assert "due" not in {event.op for event in ws.events.list(limit=1000)}


# --- references ------------------------------------------------------------------------------------------------------


@pytest.mark.kinds("drawn")
def test_t1_references_are_typed_found_by_a_search_and_kept_by_an_export(world: World) -> None:
    ws: Any = world.open("ann")
    task = ws.tasks.create("fix the login")
    for value in ("https://example.org/team/app/pull/7", "https://example.org/x", "1a2b3c4d", "fix/login", "#7"):
        found = ws.tasks.add_ref(task.id, value)
    assert [ref.kind for ref in found.refs] == ["pull_request", "url", "commit", "branch", "pull_request"]
    assert ws.tasks.add_ref(task.id, "fix/login").version == found.version
    assert [hit.task.id for hit in ws.tasks.search("fix/login")] == [task.id]
    assert '"value":"1a2b3c4d"' in ws.tasks.export()[0]
    left = ws.tasks.remove_ref(task.id, "https://example.org/x")
    assert Ref("url", "https://example.org/x") not in left.refs
    assert ws.tasks.search("example.org/x") == []
    with pytest.raises(errors.InvalidType):
        ws.tasks.add_ref(task.id, "x", "colour")


@pytest.mark.kinds("drawn")
def test_t9_a_task_is_created_with_what_it_waits_for_and_what_waits_for_it(world: World) -> None:
    ws: Any = world.open("ann")
    first, last = ws.tasks.create("first").id, ws.tasks.create("last").id
    ws.tasks.create("between", depends_on=[first], blocks=[last])
    assert ready(ws) == ["first"]
    revision = ws.revision
    with pytest.raises(errors.TaskNotFound):
        ws.tasks.create("lost", depends_on=["hf-none"])
    assert ws.revision == revision


# --- what a claim or an assignment should say ------------------------------------------------------------------------


@pytest.mark.kinds("drawn")
def test_t4_a_claim_of_a_task_that_waits_counts_and_names_what_it_waits_for(world: World) -> None:
    ws: Any = world.open("ann")
    epic, one, two = family(ws)
    ws.tasks.depend(two, one)
    assert ws.tasks.claim(two).warnings == (f"it waits for {one}; the claim counts all the same",)
    (warning,) = ws.tasks.claim(epic).warnings
    assert warning == f"its children {one}, {two} are not finished; the claim counts all the same"
    assert ws.tasks.claim(one).warnings == ()
    ws.tasks.complete(one)
    ws.tasks.complete(two)
    ws.tasks.release(epic)
    assert ws.tasks.claim(epic).warnings == ()


@pytest.mark.kinds("drawn")
def test_t8_an_assignment_to_a_name_that_nobody_has_seen_warns_with_the_nearest(world: World) -> None:
    ws: Any = world.open("ann")
    ws.agents.register("maya")
    id = ws.tasks.create("one").id
    assert ws.tasks.assign(id, "maja").warnings == (
        "maja has not been seen here; known: ann, maya (did you mean maya?)",
    )
    assert ws.tasks.get(id).assigned_to == "maja", "a warning is no refusal"
    assert ws.tasks.assign(id, "maya").warnings == ws.tasks.unassign(id).warnings == ()
    assert "maja has not been seen here" in ws.tasks.create("two", assigned_to="maja").warnings[0]
    assert ws.tasks.create("three", assigned_to="ann").warnings == ()
