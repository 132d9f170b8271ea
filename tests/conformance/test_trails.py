"""Trails (S12): what belongs together, from a draft to its end.

An end is one transaction: its tasks, its stashes and its links go or stay together, and an abandoned trail comes back.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import pytest

from holdfast import Workspace, errors
from holdfast.types.stashes import Trail
from tests.conformance.test_stashes import entries, names, refused
from tests.conformance.test_waiting import heard
from tests.worlds.kinds import World

pytestmark = pytest.mark.kinds("drawn")

STATES: Any = ("draft", "pending", "active", "completed", "abandoned")


def trail_in(ws: Workspace, state: Any) -> Trail:
    """A trail that has come to a state."""
    if state in ("draft", "pending", "active"):
        return ws.trails.create(state, state)
    made = ws.trails.create(state, "active")
    return ws.trails.complete(made.id) if state == "completed" else ws.trails.abandon(made.id)


def furnished(ws: Workspace, state: Any = "active") -> tuple[str, list[str], list[str]]:
    """A trail with two tasks, a counter and a lock: its id, and theirs."""
    trail = ws.trails.create("trail", state).id
    tasks = [ws.tasks.create(title).id for title in ("one", "two")]
    for task in tasks:
        ws.trails.add(trail, task)
    stashes = [ws.stashes.create("n", "counter", {"value": 7}, trail=trail).id]
    stashes.append(ws.stashes.create("door", "lock", trail=trail).id)
    return trail, tasks, stashes


# --- states ----------------------------------------------------------------------------------------------------------


def test_s12_a_trail_is_made_as_a_draft_and_its_name_need_not_be_its_own(world: World) -> None:
    ws = world.open()
    made = ws.trails.create("trail")
    assert (made.name, made.state, made.version, made.ended_at) == ("trail", "draft", 1, None)
    assert (made.updated_at, made.revision, ws.trails.get(made.id)) == (made.created_at, 1, made)
    assert ws.trails.create("trail").id != made.id
    name: Any
    for name in ("", "tab\t", 7, None):
        refused(ws, errors.InvalidName, partial(ws.trails.create, name))
    state: Any
    for state in ("completed", "abandoned", "new", None, ["draft"]):
        refused(ws, errors.InvalidTransition, partial(ws.trails.create, "trail", state))


WAYS = {
    *product(["draft"], ["pending", "active", "abandoned"]),
    *product(["pending"], ["active", "abandoned"]),
    *product(["active"], ["completed", "abandoned"]),
}


@pytest.mark.parametrize("state", STATES)
def test_s12_a_trail_goes_from_draft_by_pending_to_active_and_to_one_of_two_ends(world: World, state: Any) -> None:
    ws = world.open()
    for to in (*STATES, "new", None, ["active"]):
        trail = trail_in(ws, state)
        world.clock.advance(5)
        if (state, str(to)) in WAYS:
            changed = ws.trails.set_state(trail.id, to)
            assert (changed.state, changed.version, ws.trails.get(trail.id)) == (to, trail.version + 1, changed)
            assert (changed.ended_at is not None) == (to in ("completed", "abandoned"))
            assert changed.updated_at > trail.updated_at
        else:
            refused(ws, errors.InvalidTransition, partial(ws.trails.set_state, trail.id, to))
            assert ws.trails.get(trail.id) == trail


def test_s12_a_trail_ends_once(world: World) -> None:
    ws = world.open()
    for trail in (trail_in(ws, "completed"), trail_in(ws, "abandoned")):
        for call in (ws.trails.complete, ws.trails.abandon):
            refused(ws, errors.InvalidTransition, partial(call, trail.id))
    for trail in (trail_in(ws, "draft"), trail_in(ws, "completed")):
        refused(ws, errors.InvalidTransition, partial(ws.trails.restore, trail.id))


def test_s12_what_is_no_trail_is_not_found(world: World) -> None:
    ws = world.open()
    task, stash = ws.tasks.create("task").id, ws.stashes.create("n", "counter").id
    calls: list[Any] = [ws.trails.get, ws.trails.members, ws.trails.complete, ws.trails.abandon, ws.trails.restore]
    calls += [ws.trails.delete, lambda id: ws.trails.set_state(id, "active"), lambda id: ws.trails.add(id, task)]
    id: Any
    for call in (*calls, lambda id: ws.trails.remove(id, task)):
        for id in (task, stash, "nothing"):
            refused(ws, errors.NotFound, partial(call, id))
        for id in ("", 7, None, "\ud800"):
            refused(ws, errors.InvalidID, partial(call, id))


def test_s12_trails_are_listed_by_state_and_in_pages(world: World) -> None:
    ws = world.open()
    made = []
    for state in (*STATES, "active"):
        world.clock.advance(1)
        made.append(trail_in(ws, state))
    assert ws.trails.list() == made
    assert ws.trails.list("active") == [made[2], made[5]]
    assert ws.trails.list(limit=2) == made[:2]
    assert ws.trails.list(limit=2, after=made[1].id) == made[2:4]
    assert ws.trails.list("active", after=made[5].id) == []
    for wrong in ({"state": "new"}, {"limit": 0}, {"limit": "1"}):
        refused(ws, errors.InvalidFilter, partial(ws.trails.list, **wrong))


# --- members ---------------------------------------------------------------------------------------------------------


def test_s11_s12_a_task_belongs_to_one_trail_at_a_time(world: World) -> None:
    ws = world.open()
    one, two = ws.trails.create("one").id, ws.trails.create("two").id
    task = ws.tasks.create("task").id
    ws.trails.add(one, task)
    before = ws.revision
    ws.trails.add(one, task)
    assert (ws.revision, ws.trails.members(one)) == (before, [task])
    for call in (partial(ws.trails.add, two, task), partial(ws.links.create, "belongs_to", task, two)):
        assert refused(ws, errors.Exists, call).trail == one
    removed = [ws.trails.remove(trail, task) for trail in (two, one, one)]
    assert removed == [False, True, False]
    link = ws.links.create("belongs_to", task, two)
    assert (ws.trails.members(one), ws.trails.members(two)) == ([], [task])
    ws.links.delete(link.id)
    assert ws.trails.members(two) == []
    refused(ws, errors.TaskNotFound, lambda: ws.trails.add(one, "hf-none"))


@pytest.mark.parametrize("state", ["completed", "abandoned"])
def test_s12_nothing_joins_a_trail_that_has_ended(world: World, state: Any) -> None:
    ws = world.open()
    task, stash = ws.tasks.create("task").id, ws.stashes.create("n", "counter").id
    trail = trail_in(ws, state).id
    refused(ws, errors.InvalidStatus, lambda: ws.trails.add(trail, task))
    refused(ws, errors.InvalidStatus, lambda: ws.links.create("belongs_to", task, trail))
    refused(ws, errors.InvalidStatus, lambda: ws.links.create("scoped_to", stash, trail))
    refused(ws, errors.InvalidStatus, lambda: ws.stashes.create("n", "counter", trail=trail))
    assert ws.links.list() == []


# --- ends ------------------------------------------------------------------------------------------------------------


def test_s12_a_completed_trail_lets_its_tasks_go_and_keeps_its_stashes(world: World) -> None:
    ws = world.open()
    trail, tasks, stashes = furnished(ws)
    ws.tasks.claim(tasks[0], ttl=60)
    ws.stashes.acquire(stashes[1])
    before, revision = [ws.stashes.get(id) for id in stashes], ws.revision
    done = ws.trails.complete(trail)
    assert (done.state, done.revision, ws.revision) == ("completed", revision + 1, revision + 1)
    assert (ws.trails.members(trail), ws.links.list(link_type="belongs_to")) == ([], [])
    assert [ws.tasks.get(id).status for id in tasks] == ["in_progress", "open"]
    assert [ws.stashes.get(id) for id in stashes] == before
    assert ws.stashes.increment((trail, "n")) == 8
    other = ws.trails.create("other").id
    ws.trails.add(other, tasks[0])
    assert ws.trails.members(other) == [tasks[0]]


def test_s12_an_abandoned_trail_takes_its_tasks_and_stashes_along_in_one_transaction(world: World) -> None:
    ws = world.open()
    trail, tasks, stashes = furnished(ws, "draft")
    child = ws.tasks.create("below", parent_id=tasks[0]).id
    kept = ws.tasks.create("bystander").id, ws.stashes.create("n", "counter").id
    revision = ws.revision
    ended = ws.trails.abandon(trail, "enough")
    assert (ended.state, ended.revision, ws.revision) == ("abandoned", revision + 1, revision + 1)
    for id in (*tasks, child):
        refused(ws, errors.TaskNotFound, partial(ws.tasks.get, id))
    stash: Any
    for stash in (*stashes, (trail, "n")):
        for call in (ws.stashes.get, ws.stashes.history, ws.stashes.delete):
            refused(ws, errors.NotFound, partial(call, stash))
    assert (ws.stashes.find("n", trail), ws.stashes.list(trail=trail)) == (None, [])
    assert (ws.tasks.get(kept[0]).id, [stash.id for stash in ws.stashes.list()]) == (kept[0], [kept[1]])


def test_s12_an_abandoned_trail_comes_back_as_it_was(world: World) -> None:
    ws = world.open()
    trail, tasks, stashes = furnished(ws, "pending")
    child = ws.tasks.create("below", parent_id=tasks[0]).id
    ws.stashes.increment(stashes[0])
    before = [ws.stashes.get(id) for id in stashes], entries(ws, stashes[0]), ws.trails.members(trail), ws.links.list()
    ws.trails.abandon(trail)
    world.clock.advance(3600)
    back = ws.trails.restore(trail)
    assert (back.state, back.ended_at, back.version) == ("pending", None, 3)
    after = [ws.stashes.get(id) for id in stashes], entries(ws, stashes[0]), ws.trails.members(trail), ws.links.list()
    assert after == before
    assert {ws.tasks.get(id).status for id in (*tasks, child)} == {"open"}
    assert ws.stashes.increment(stashes[0]) == 9
    assert ws.trails.abandon(trail).version == 4


def test_s12_only_what_went_with_a_trail_comes_back_with_it(world: World) -> None:
    ws = world.open()
    trail, tasks, stashes = furnished(ws)
    ws.tasks.delete(tasks[0])
    ws.stashes.delete(stashes[1])
    ws.trails.abandon(trail)
    ws.trails.restore(trail)
    refused(ws, errors.TaskNotFound, lambda: ws.tasks.get(tasks[0]))
    assert (ws.tasks.get(tasks[1]).status, names(ws.stashes.list(trail=trail))) == ("open", ["n"])


def test_s12_a_trail_comes_back_whichever_of_a_parent_and_its_child_joined_or_was_made_first(world: World) -> None:
    ws = world.open()
    for order in (1, -1):
        trail = ws.trails.create("trail").id
        for _ in range(4):  # ids of tasks are at random: either comes first among some of these
            family = [ws.tasks.create(title).id for title in ("grandchild", "child", "parent")]
            ws.tasks.reparent(family[1], family[2])
            ws.tasks.reparent(family[0], family[1])
            for id in (family[0], family[2])[::order]:
                ws.trails.add(trail, id)
        ws.trails.abandon(trail)
        ws.trails.restore(trail)
        assert [ws.tasks.get(id).status for id in ws.trails.members(trail)] == ["open"] * 8


@pytest.mark.kinds("every")
def test_s12_a_trail_is_not_abandoned_while_a_lock_of_it_is_held(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    trail, tasks, stashes = furnished(ws)
    other.stashes.acquire(stashes[1], ttl=30)
    for call in (ws.trails.abandon, lambda id: ws.trails.set_state(id, "abandoned")):
        error = refused(ws, errors.Held, partial(call, trail))
        assert error.holder == "b"
    assert (ws.trails.get(trail).state, ws.tasks.get(tasks[0]).status) == ("active", "open")
    world.clock.advance(30)
    other.stashes.acquire(stashes[1])  # without an end
    refused(ws, errors.Held, partial(ws.trails.abandon, trail))
    other.stashes.release(stashes[1])
    assert ws.trails.abandon(trail).state == "abandoned"


def test_s12_a_trail_is_not_abandoned_while_a_task_of_it_is_claimed(world: World) -> None:
    ws = world.open("a")
    trail, tasks, stashes = furnished(ws)
    child = ws.tasks.create("below", parent_id=tasks[1]).id
    for claimed, error in (
        (tasks[0], errors.TaskActive),
        (tasks[1], errors.TaskActive),
        (child, errors.HasActiveChildren),
    ):
        ws.tasks.claim(claimed, ttl=30)
        refused(ws, error, lambda: ws.trails.abandon(trail))
        assert {ws.tasks.get(id).deleted_at for id in (*tasks, child)} == {None}
        assert ws.stashes.get(stashes[0]).value == {"value": 7}
        ws.tasks.release(claimed)
    assert ws.trails.abandon(trail).state == "abandoned"


def test_s12_a_trail_is_deleted_when_nothing_belongs_to_it_or_with_what_was_abandoned(world: World) -> None:
    ws = world.open()
    trail, tasks, stashes = furnished(ws)
    origin = ws.tasks.create("origin").id
    ws.links.create("branches_from", trail, origin)
    refused(ws, errors.Conflict, lambda: ws.trails.delete(trail))
    ws.trails.abandon(trail)
    ws.trails.delete(trail)
    assert (ws.trails.list(), ws.links.list(), ws.stashes.list()) == ([], [], [])
    refused(ws, errors.NotFound, lambda: ws.trails.restore(trail))
    assert ws.tasks.restore(tasks[0]).status == "open"
    assert [event.redacted for event in ws.events.list(kinds=["stash"], id=stashes[0])] == [True, False]
    empty = ws.trails.create("empty").id
    ws.trails.delete(empty)
    assert ws.trails.list() == []


@pytest.mark.kinds("every")
def test_s12_the_log_tells_the_life_of_a_trail_and_a_watcher_hears_of_its_end(world: World) -> None:
    ws = world.open("a")
    trail, tasks, stashes = furnished(ws, "draft")
    after = ws.revision
    ws.trails.set_state(trail, "active")
    ws.trails.abandon(trail, "enough")
    end = heard(ws, "abandon", trail, after, "trail")
    assert end.data["state"] == ["active", "abandoned"]
    assert (sorted(end.data["tasks"][0]), sorted(end.data["stashes"][0])) == (sorted(tasks), sorted(stashes))
    assert (end.data["note"], end.actor) == ("enough", "a")
    ws.trails.restore(trail)
    told = ws.events.list(kinds=["trail"], id=trail)
    assert [(event.op, event.version) for event in told] == [
        *(("create", 1), ("state", 2), ("abandon", 3), ("restore", 4))
    ]


def test_s12_what_went_with_a_trail_is_kept_as_long_as_deleted_tasks_are(world: World) -> None:
    ws = world.open("me")
    trail = ws.trails.create("trail")
    stash = ws.stashes.create("plan", "context", {"a": 1}, trail=trail.id)
    ws.trails.abandon(trail.id)
    world.clock.advance(6 * 86_400)
    ws.trails.restore(trail.id)
    assert ws.stashes.get(stash.id).value == {"a": 1}
    ws.trails.abandon(trail.id)
    world.clock.advance(8 * 86_400)
    world.live_until(lambda: "purge" in [event.op for event in ws.events.list(kinds=["stash"])])
    ws.trails.restore(trail.id)
    with pytest.raises(errors.NotFound):
        ws.stashes.get(stash.id)
    assert ws.check().problems == []


def test_s12_a_deleted_task_is_no_member_until_it_is_restored(world: World) -> None:
    ws = world.open()
    trail, tasks, _ = furnished(ws)
    ws.tasks.delete(tasks[0])
    assert ws.trails.members(trail) == [tasks[1]]
    ws.tasks.restore(tasks[0])
    assert sorted(ws.trails.members(trail)) == sorted(tasks)
    ws.trails.abandon(trail)
    assert ws.trails.members(trail) == []
    ws.trails.restore(trail)
    assert sorted(ws.trails.members(trail)) == sorted(tasks)
