"""Claims (T4 to T6, T8): one holder at a time, kept by signs of life, lost by silence, fenced off afterwards.

Tasks are taken by id or as the best that is ready. What a claim is refused with leaves everything as it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Op, Transaction, ValueEquals, VersionEquals, errors
from holdfast.testing.crowd import finish
from holdfast.types.tasks import Task, TaskStatus
from holdfast.workspace import Workspace
from holdfast.workspace.context import derive_actor
from tests.conformance.test_task_status import brought, everything, refused
from tests.worlds.kinds import World

HALF_AN_HOUR = timedelta(minutes=30)
callables = pytest.mark.capability("callables")


def claimed(ws: Workspace, title: str = "task", **given: Any) -> Task:
    """A new task that `ws` has claimed."""
    return ws.tasks.claim(ws.tasks.create(title).id, **given)


def titles(tasks: list[Task]) -> list[str]:
    """What tasks are called in these tests."""
    return [task.title for task in tasks]


def lay_down(world: World, ws: Any, file: str, text: str) -> None:
    """Put a file into the workspace's folder, on every node, and have it loaded."""
    assert ws.revision >= 0  # the folder is there once something was asked
    places = [place for place in world.folder.iterdir() if place.is_dir()]
    for place in places or [Path(ws._engine.folder)]:
        (place / file).write_text(text)
    ws.tasks.ready()  # asks the rules


# --- T4: taking one --------------------------------------------------------------------------------------------------


def test_t4_a_claim_sets_holder_time_token_status_and_deadline_with_an_entry_for_each_field(world: World) -> None:
    ws = world.open("a")
    made = ws.tasks.create("task")
    world.clock.advance(5)
    task = ws.tasks.claim(made.id, "agent-7")
    assert (task.status, task.claimed_by, task.claimed_at) == ("in_progress", "agent-7", task.updated_at)
    assert (task.deadline, task.updated_at) == (
        task.updated_at + HALF_AN_HOUR,
        made.created_at + timedelta(seconds=5),
    )
    assert task.token is not None
    assert (task.version, task.revision) == (2, ws.revision)
    assert ws.tasks.get(made.id) == task
    entries = {entry.field: entry for entry in ws.tasks.history(made.id) if entry.version == 2}
    changes = {field: (entry.old_value, entry.new_value) for field, entry in entries.items()}
    assert changes.pop("grimoire") == (None, task.grimoire)
    assert changes == {"status": ("open", "in_progress"), "claimed_by": (None, "agent-7"), "token": (None, task.token)}
    assert {(entry.op, entry.changed_by, entry.changed_at) for entry in entries.values()} == {
        ("claim", "a", task.claimed_at)
    }


def test_t4_a_claim_is_refused_in_the_order_not_found_already_claimed_invalid_status(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    deleted = ws.tasks.create("deleted")
    ws.tasks.delete(deleted.id)
    for id in ("hf-none", deleted.id):
        assert refused(ws, errors.TaskNotFound, other.tasks.claim, id).id == id
    task = claimed(ws)
    world.clock.advance(60)
    for caller in (other, ws):  # who holds it already has nothing to win either
        error = refused(ws, errors.AlreadyClaimed, caller.tasks.claim, task.id)
        assert (error.holder, error.since) == (error.claimed_by, error.claimed_at) == ("a", task.claimed_at)
        assert (error.code, error.status, error.exit_code) == ("ALREADY_CLAIMED", 409, 12)
    ws.tasks.park(task.id)
    assert refused(ws, errors.AlreadyClaimed, other.tasks.claim, task.id).holder == "a"
    error = refused(ws, errors.InvalidStatus, other.tasks.claim, brought(ws, "blocked").id)
    assert (error.code, error.details["status"]) == ("INVALID_STATUS", "blocked")


BAD_CLAIMS: dict[str, tuple[type[errors.HoldfastError], dict[str, Any]]] = {
    "an agent without a name": (errors.InvalidName, {"agent": ""}),
    "an agent that is a number": (errors.InvalidName, {"agent": 7}),
    "a ttl of nothing": (errors.Invalid, {"ttl": 0}),
    "a ttl below nothing": (errors.Invalid, {"ttl": -1}),
    "a ttl that is text": (errors.Invalid, {"ttl": "60"}),
    "a ttl of more than 100 years": (errors.Invalid, {"ttl": 1e10}),
    "abilities in one word": (errors.Invalid, {"can": "python"}),
    "an ability without a name": (errors.InvalidName, {"can": [""]}),
}
BAD_FILTERS: dict[str, tuple[type[errors.HoldfastError], dict[str, Any]]] = {
    "tags in one word": (errors.InvalidTag, {"tags": "backend"}),
    "an empty tag": (errors.InvalidTag, {"tags": [""]}),
    "an empty pattern": (errors.InvalidFilter, {"tag_pattern": ""}),
    "a pattern that is never closed": (errors.InvalidFilter, {"tag_pattern": "area/["}),
    "a pattern that is a number": (errors.InvalidFilter, {"tag_pattern": 7}),
    "an unknown type": (errors.InvalidType, {"type": "story"}),
    "a priority out of range": (errors.InvalidPriority, {"priority": [1, 5]}),
    "a priority that is a truth": (errors.InvalidPriority, {"priority": True}),
    "a parent that is not there": (errors.TaskNotFound, {"parent_id": "hf-none"}),
}


@pytest.mark.parametrize(
    ("status", "ways"),
    [("open", ["claim"]), ("closed", ["reopen"]), ("blocked", ["unblock"]), ("pending_merge", ["approve", "reject"])],
)
def test_t4_who_does_not_hold_a_task_that_nobody_holds_is_told_the_step_that_is_possible(
    world: World, status: TaskStatus, ways: list[str]
) -> None:
    ws = world.open("a")
    task = brought(ws, status)
    expected = {"heartbeat": errors.NotClaimOwner, "park": errors.NotClaimOwner, "reclaim": errors.TaskNotFound}
    for name, error in (expected if status == "open" else {**expected, "claim": errors.InvalidStatus}).items():
        refusal = refused(ws, error, getattr(ws.tasks, name), task.id)
        assert status in refusal.message
        assert all(f'tasks.{way}("{task.id}")' in refusal.hint for way in ways), refusal


def test_t4_a_claim_with_bad_arguments_is_refused(world: World) -> None:
    ws = world.open()
    task = ws.tasks.create("task", tags=["backend"])
    for error, given in BAD_CLAIMS.values():
        refused(ws, error, lambda given=given: ws.tasks.claim(task.id, **given))
        refused(ws, error, lambda given=given: ws.tasks.claim_next(**given))


def test_t4_a_bad_filter_is_refused_by_claim_next_and_by_ready(world: World) -> None:
    ws = world.open()
    ws.tasks.create("task", tags=["backend"])
    for error, given in BAD_FILTERS.values():
        refused(ws, error, lambda given=given: ws.tasks.ready(**given))
        refused(ws, error, lambda given=given: ws.tasks.claim_next(**given))


def test_t4_a_parent_without_an_id_is_not_taken_for_any_parent(world: World) -> None:
    ws = world.open()
    ws.tasks.create("task")
    refused(ws, errors.InvalidName, lambda: ws.tasks.ready(parent_id=""))
    refused(ws, errors.InvalidName, lambda: ws.tasks.claim_next(parent_id=""))


def test_t4_an_actor_that_was_only_derived_must_name_its_agent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_ACTOR", raising=False)
    ws = world.open("a")
    free, held = ws.tasks.create("free"), claimed(ws)
    nobody = ws.using(actor=derive_actor())
    refused(ws, errors.InvalidHolder, nobody.tasks.claim_next)
    refused(ws, errors.InvalidHolder, nobody.tasks.claim, free.id)
    for name in ("reclaim", "heartbeat", "park", "release", "complete", "block"):
        refused(ws, errors.InvalidHolder, getattr(nobody.tasks, name), held.id)
    assert nobody.tasks.claim(free.id, "named").claimed_by == "named"


def test_t4_a_token_grows_with_every_claim_and_every_lock(world: World) -> None:
    ws = world.open()
    task = ws.tasks.create("task")
    tokens = []
    for _ in range(3):
        tokens += [ws.tasks.claim(task.id).token, ws.locks.acquire("door").token]
        ws.tasks.release(task.id)
        ws.locks.release("door")
    assert tokens == sorted(set(tokens))  # type: ignore[type-var]  # a claim has one


def test_t4_a_claim_is_not_a_lease_that_others_could_touch(world: World) -> None:
    ws = world.open()
    task = claimed(ws)
    assert ws.leases.list() == []
    for call in (ws.leases.get, ws.leases.refresh, ws.leases.revoke):
        refused(ws, errors.NotFound, call, task.id)
    refused(ws, errors.NotFound, lambda: ws.cells.set("run", "cell", 1, lease=task.id))


def test_t4_reclaim_asks_whether_one_holds_a_task_and_changes_nothing(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    task = claimed(ws, ttl=60)
    world.clock.advance(30)
    before = everything(ws)
    assert ws.tasks.reclaim(task.id) == other.tasks.reclaim(task.id, "a") == task
    assert everything(ws) == before, "it is no sign of life either"
    assert refused(ws, errors.AlreadyClaimed, other.tasks.reclaim, task.id).holder == "a"
    refused(ws, errors.TaskNotFound, ws.tasks.reclaim, "hf-none")
    world.clock.advance(30)
    with pytest.raises(errors.TaskNotFound):
        ws.tasks.reclaim(task.id)


# --- T4, T8: taking the next one -------------------------------------------------------------------------------------

# Each filter, and what it means for a task; `parent` is named at run time.
FILTERS: dict[str, tuple[dict[str, Any], Callable[[Task], bool]]] = {
    "none": ({}, lambda task: True),
    "empty": ({"tags": [], "can": []}, lambda task: True),
    "a tag": ({"tags": ["api"]}, lambda task: "api" in task.tags),
    "two tags": ({"tags": ["api", "area/web"]}, lambda task: {"api", "area/web"} <= {*task.tags}),
    "a tag nobody has": ({"tags": ["none"]}, lambda task: False),
    "a glob": ({"tag_pattern": "area/*"}, lambda task: any(tag.startswith("area/") for tag in task.tags)),
    "a glob and a tag": ({"tag_pattern": "area/*", "tags": ["api"]}, lambda task: len(task.tags) == 2),
    "a type": ({"type": "bug"}, lambda task: task.type == "bug"),
    "types": ({"type": ["bug", "epic"]}, lambda task: task.type in ("bug", "epic")),
    "a priority": ({"priority": 0}, lambda task: task.priority == 0),
    "priorities": ({"priority": [1, 3]}, lambda task: task.priority in (1, 3)),
    "a parent": ({"parent_id": "parent"}, lambda task: task.parent_id is not None),
    "all of them": (
        {"tags": ["api"], "tag_pattern": "a*", "type": "bug", "priority": [0, 1, 2], "parent_id": "parent"},
        lambda task: bool("api" in task.tags and task.type == "bug" and task.priority < 3 and task.parent_id),
    ),
}


def test_t8_claim_next_takes_what_ready_lists_under_every_filter_by_priority_then_oldest(world: World) -> None:
    ws = world.open()
    parent = ws.tasks.claim(ws.tasks.create("parent").id)  # held, so that it is not among them itself
    made = [
        ws.tasks.create(
            f"task {number}",
            priority=(3, 1, 2, 0, 1)[number % 5],
            type="bug" if number % 3 else "epic",
            tags=([], ["api"], ["area/web"], ["api", "area/web"])[number % 4],
            parent_id=parent.id if number % 2 else None,
        )
        for number in range(12)
    ]
    for name, (given, fits) in FILTERS.items():
        given = {key: parent.id if value == "parent" else value for key, value in given.items()}
        wanted = sorted(filter(fits, made), key=lambda task: task.priority)  # stable: the oldest of each come first
        assert titles(ws.tasks.ready(**given)) == titles(wanted), name
        taken = [ws.tasks.claim_next(**given) for _ in wanted]
        assert titles([task for task in taken if task]) == titles(wanted), name
        before = everything(ws)
        assert (ws.tasks.claim_next(**given), everything(ws)) == (None, before), name
        for task in wanted:
            ws.tasks.release(task.id)


def test_t8_what_is_not_ready_is_neither_listed_nor_taken_by_claim_next_and_explain_says_why(world: World) -> None:
    ws = world.open("a")
    blocker = ws.tasks.park(claimed(ws, "blocker").id)
    waiting, parent = ws.tasks.create("waiting", priority=0), ws.tasks.create("parent", priority=0)
    ws.tasks.depend(waiting.id, blocker.id)
    child = ws.tasks.claim(ws.tasks.create("child", parent_id=parent.id).id)
    reviewed = ws.tasks.create("reviewed", parent_id=parent.id)
    ws.tasks.complete(ws.tasks.claim(reviewed.id).id, review=True)
    deleted = ws.tasks.create("deleted")
    ws.tasks.delete(deleted.id)
    others = [brought(ws, status) for status in ("pending_merge", "blocked", "closed")]
    free = ws.tasks.create("free", priority=4)
    assert titles(ws.tasks.ready()) == ["free"]
    told = {
        id: ws.tasks.explain(id) for id in [t.id for t in (blocker, waiting, parent, child, deleted, *others, free)]
    }
    assert {id: [reason.code for reason in found.reasons] for id, found in told.items()} == {
        blocker.id: ["claimed"],
        waiting.id: ["dependencies"],
        parent.id: ["children"],
        child.id: ["claimed"],
        deleted.id: ["deleted"],
        **{task.id: ["status"] for task in others},
        free.id: [],
    }
    assert [id for id, found in told.items() if found.ready] == [free.id]
    assert told[waiting.id].reasons[0].ids == (blocker.id,)
    assert told[parent.id].reasons[0].ids == (child.id, reviewed.id)
    assert "parked" in told[blocker.id].reasons[0].text
    assert child.deadline is not None
    assert all(word in told[child.id].reasons[0].text for word in ("a", child.deadline.isoformat()))
    for task in others:
        assert task.status in told[task.id].reasons[0].text
    assert (ws.tasks.claim_next() or blocker).id == free.id
    assert ws.tasks.claim_next() is None
    assert ws.tasks.claim(waiting.id).claimed_by == "a", "by its id a person may take it all the same"
    ws.tasks.depend(parent.id, blocker.id)
    assert [reason.code for reason in ws.tasks.explain(parent.id[3:]).reasons] == ["dependencies", "children"]
    refused(ws, errors.TaskNotFound, ws.tasks.explain, "hf-none")


def test_t8_a_task_is_ready_in_the_same_transaction_that_ends_what_it_waited_for(world: World) -> None:
    """With independent parents, as the tasks document has it to the letter."""
    ws = world.open()
    lay_down(world, ws, "config.yaml", "parents: independent\n")
    parent, before = ws.tasks.create("parent", priority=3), ws.tasks.create("before")
    after = ws.tasks.create("after", priority=0)
    child = ws.tasks.create("child", priority=4, parent_id=parent.id)
    ws.tasks.depend(after.id, before.id)
    assert titles(ws.tasks.ready()) == ["before", "parent", "child"]
    ws.tasks.claim(child.id, ttl=60)
    ws.tasks.claim(before.id)
    assert titles(ws.tasks.ready()) == []
    assert ws.tasks.complete(before.id, review=True).status == "pending_merge"
    assert titles(ws.tasks.ready()) == []
    ws.tasks.approve(before.id)
    assert titles(ws.tasks.ready()) == ["after"]
    world.clock.advance(60)
    assert titles(ws.tasks.ready()) == ["after", "parent", "child"]


def test_t8_explain_does_not_name_a_child_whose_claim_is_past_its_deadline(world: World) -> None:
    ws = world.open()
    lay_down(world, ws, "config.yaml", "parents: independent\n")
    parent = ws.tasks.create("parent")
    child = ws.tasks.create("child", parent_id=parent.id)
    for _ in range(10):  # whoever sweeps may be faster
        ws.tasks.claim(child.id, ttl=60)
        world.clock.advance(60)
        assert ws.tasks.explain(parent.id).reasons == ()


# --- T5: what the holder writes --------------------------------------------------------------------------------------

Write = Callable[..., object]  # of a workspace and a task's id; token= may be given
STEPS: dict[str, Write] = {
    "complete": lambda ws, id, **given: ws.tasks.complete(id, **given),
    "release": lambda ws, id, **given: ws.tasks.release(id, **given),
    "block": lambda ws, id, **given: ws.tasks.block(id, **given),
}
SIGNS: dict[str, Write] = {
    "heartbeat": lambda ws, id, **given: ws.tasks.heartbeat(id, **given),
    "park": lambda ws, id, **given: ws.tasks.park(id, **given),
}
EDITS: dict[str, Write] = {
    "update": lambda ws, id, **given: ws.tasks.update(id, title="new title", **given),
    "update of nothing": lambda ws, id, **given: ws.tasks.update(id, **given),
    "note": lambda ws, id, **given: ws.tasks.note(id, "a note", **given),
    "add_tags": lambda ws, id, **given: ws.tasks.add_tags(id, ["tag"], **given),
    "remove_tags": lambda ws, id, **given: ws.tasks.remove_tags(id, ["other"], **given),
    "set_tags": lambda ws, id, **given: ws.tasks.set_tags(id, ["tag"], **given),
}


def test_t5_a_token_that_is_not_the_live_claims_is_fenced_and_one_that_is_proves_no_identity(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    for write in (STEPS | SIGNS | EDITS).values():
        task, free = claimed(ws), ws.tasks.create("free")
        assert task.token is not None
        for off in (-1, 1):
            error = refused(
                ws, errors.Fenced, lambda write=write, id=task.id, t=task.token + off: write(ws, id, token=t)
            )
            assert (error.current, error.code, error.status, error.exit_code) == (task.token, "FENCED", 409, 15)
        error = refused(ws, errors.Fenced, lambda write=write, id=free.id, t=task.token: write(ws, id, token=t))
        assert error.current is None
        refused(ws, errors.Invalid, lambda write=write, id=task.id: write(ws, id, token="1"))
        mine = {"token": task.token}
        taken = refused(ws, errors.NotClaimOwner, lambda write=write, id=task.id, m=mine: write(other, id, **m))
        assert (taken.holder, taken.code, taken.status, taken.exit_code) == ("a", "NOT_CLAIM_OWNER", 403, 13)
        write(ws, task.id, token=task.token)


def test_t5_the_token_of_another_holder_does_not_make_up_for_a_claim_that_was_lost(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    task = claimed(ws, ttl=60)
    world.clock.advance(60)
    theirs = other.tasks.claim(task.id).token
    for write in (STEPS | SIGNS | EDITS).values():
        refused(ws, errors.Fenced, lambda write=write: write(ws, task.id, token=theirs))


def test_t5_without_a_token_another_is_not_the_claims_owner_but_may_edit_which_renews_nothing(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    task = claimed(ws)
    world.clock.advance(60)
    for write in (STEPS | SIGNS).values():
        error = refused(ws, errors.NotClaimOwner, write, other, task.id)
        assert isinstance(error, errors.NotHolder)
        assert (error.holder, error.claimed_by) == ("a", "a")
        assert (error.code, error.status, error.exit_code) == ("NOT_CLAIM_OWNER", 403, 13)
    for name, write in EDITS.items():
        write(other, task.id)
        found = ws.tasks.get(task.id)
        assert (found.claimed_by, found.token, found.deadline) == ("a", task.token, task.deadline), name


@pytest.mark.parametrize("notes", [98, 99, 100])
def test_t5_another_is_not_the_claims_owner_however_much_of_the_history_was_compacted(world: World, notes: int) -> None:
    ws, other = world.open("a"), world.open("b")
    task = claimed(ws)
    ws.tasks.note(task.id, "before the cut")
    ws.txn([], [Op("tasks.note", {"id": task.id, "text": "after the cut"})] * notes)
    assert ws.events.compact(ws.revision) > 0
    for write in (STEPS | SIGNS).values():
        with pytest.raises(errors.NotClaimOwner):
            write(other, task.id)


@pytest.mark.parametrize("forced", [False, True], ids=["by silence", "by force"])
def test_t5_who_lost_a_claim_is_fenced_by_token_and_by_name_and_the_next_holder_untouched(
    world: World, forced: bool
) -> None:
    ws, other = world.open("a"), world.open("b")
    task = claimed(ws, ttl=60)
    if forced:
        other.tasks.release(task.id, force=True, reason="it hangs")
    else:
        world.clock.advance(60)
    assert ws.tasks.release_stale_claims() in (0, 1)  # swept by now, by whomever
    mine = None
    for _ in range(2):
        for write in (STEPS | SIGNS).values():
            assert refused(ws, errors.Fenced, write, ws, task.id).current == mine
        for write in (STEPS | SIGNS | EDITS).values():
            error = refused(ws, errors.Fenced, lambda write=write: write(ws, task.id, token=task.token))
            assert error.current == mine
        if mine is None:
            mine = other.tasks.claim(task.id, ttl=60).token
    held = other.tasks.get(task.id)
    for write in EDITS.values():
        write(ws, task.id)
    found = other.tasks.get(task.id)
    assert (found.claimed_by, found.token, found.deadline) == ("b", mine, held.deadline)
    assert other.tasks.complete(task.id, token=mine).status == "closed"
    assert ws.tasks.claim(ws.tasks.reopen(task.id).id).claimed_by == "a", "who was fenced off may start afresh"


def test_t5_any_accepted_write_of_the_holder_renews_its_claim_and_a_refused_one_does_not(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    task = claimed(ws, ttl=60)
    by_token = {"token": task.token}
    for name, write in ({"heartbeat": SIGNS["heartbeat"]} | EDITS).items():
        for given in ({}, by_token):
            world.clock.advance(1)
            refused(ws, errors.VersionMismatch, lambda: ws.tasks.update(task.id, title="x", expected=999))
            now = ws.tasks.create("the time").created_at
            write(ws, task.id, **given)
            deadline = ws.tasks.get(task.id).deadline
            assert deadline == now + timedelta(seconds=60), (name, given)
            world.clock.advance(1)
            refused(ws, errors.NotClaimOwner, lambda write=write: write(other, task.id, **by_token))
            assert ws.tasks.get(task.id).deadline == deadline, name


@pytest.mark.parametrize("name", ["depend", "undepend", "reparent"])
def test_t5_linking_and_moving_a_task_are_writes_of_its_holder_too(world: World, name: str) -> None:
    ws = world.open("a")
    task, other = claimed(ws, ttl=60), ws.tasks.create("other")
    ws.tasks.depend(task.id, other.id) if name == "undepend" else None
    world.clock.advance(1)
    getattr(ws.tasks, name)(task.id, other.id)
    found = ws.tasks.get(task.id)
    assert found.deadline == found.updated_at + timedelta(seconds=60)


def test_t5_a_heartbeat_extends_by_the_granted_or_a_given_ttl_and_leaves_no_trace(world: World) -> None:
    ws = world.open()
    task = claimed(ws, ttl=60)
    assert task.claimed_at is not None
    revision = ws.revision
    world.clock.advance(50)
    assert ws.tasks.heartbeat(task.id).deadline == task.claimed_at + timedelta(seconds=110)
    assert ws.tasks.heartbeat(task.id, ttl=600, token=task.token).deadline == task.claimed_at + timedelta(seconds=650)
    world.clock.advance(50)
    found = ws.tasks.heartbeat(task.id)
    assert found.deadline == task.claimed_at + timedelta(seconds=700), "the given one is the granted one from then on"
    assert (found.version, found.updated_at, ws.revision) == (task.version, task.updated_at, revision)
    for bad in (0, -1, "60"):
        refused(ws, errors.Invalid, lambda bad=bad: ws.tasks.heartbeat(task.id, ttl=bad))


def test_t5_a_forced_release_is_logged_as_such_and_an_ordinary_one_is_not(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    task = claimed(ws)
    assert ws.tasks.release(task.id, reason="too hard").status == "open"
    assert ws.tasks.history(task.id, field="forced") == []
    ws.tasks.claim(task.id)
    assert other.tasks.release(task.id, force=True, reason="it hangs").claimed_by is None
    (entry,) = ws.tasks.history(task.id, field="forced")
    assert (entry.new_value, entry.op, entry.changed_by, entry.note) == (True, "release", "b", "it hangs")


def test_t5_complete_keeps_result_and_summary_and_waits_for_review_as_the_route_says(world: World) -> None:
    ws = world.open()
    rule = "{grimoire: careful, any_tags: [risky], require_review: true}"
    lay_down(world, ws, "grimoire-matchers.yaml", f"matchers:\n  - {rule}\n")
    statuses = []
    for tags in ([], ["risky"]):
        for review in (None, True, False):
            task = ws.tasks.claim(ws.tasks.create("task", tags=tags).id)
            for bad in ({"review": 1}, {"result": float("nan")}, {"summary": 7}):
                with pytest.raises(errors.Invalid):
                    ws.tasks.complete(task.id, **bad)
            assert ws.tasks.get(task.id) == task
            done = ws.tasks.complete(task.id, result={"files": [1, None]}, summary="all done", review=review)
            statuses.append(done.status)
            assert (done.claimed_by, done.claimed_at, done.token, done.deadline) == (None, None, None, None)
            (entry,) = ws.tasks.history(task.id, field="result")
            assert (entry.new_value, entry.note, entry.op) == ({"files": [1, None]}, "all done", "complete")
    assert statuses == ["closed", "pending_merge", "closed", "pending_merge", "pending_merge", "closed"]


def test_m7_an_agent_is_refused_and_passed_over_for_tasks_whose_route_needs_more_than_it_can(world: World) -> None:
    ws = world.open()
    lay_down(world, ws, "grimoire-matchers.yaml", "matchers:\n  - {grimoire: g, any_tags: [hard], needs: [c, rust]}\n")
    hard, easy = ws.tasks.create("hard", tags=["hard"], priority=0), ws.tasks.create("easy")
    error = refused(ws, errors.NotCapable, lambda: ws.tasks.claim(hard.id, can=["rust", "go"]))
    assert (error.needs, error.lacking, error.status) == (["c", "rust"], ["c"], 403)
    assert titles(ws.tasks.ready(can=["rust"])) == ["easy"]
    taken = [ws.tasks.claim_next(can=["rust"]) for _ in range(2)]
    assert [task and task.id for task in taken] == [easy.id, None]
    assert (ws.tasks.claim_next(can=["rust", "c"]) or easy).id == hard.id


# --- T6: what ends by itself, and what does not -----------------------------------------------------------------------


def test_t6_at_its_deadline_a_claim_is_over_and_the_system_reopens_the_task(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    task = claimed(ws, ttl=60)
    watch: Any = ws.watch(kinds=["task"], id=task.id)
    world.clock.advance(59.999999)
    assert ws.tasks.get(task.id) == task
    refused(ws, errors.AlreadyClaimed, other.tasks.claim, task.id)
    world.clock.advance(0.000001)
    found = ws.tasks.get(task.id)
    assert (found.status, found.claimed_by, found.claimed_at, found.token) == ("open", None, None, None)
    event = next(watch)  # nobody else has to do anything for it
    watch.close()
    assert (event.op, event.actor, event.version) == ("expire", "system", task.version + 1)
    entries = ws.tasks.history(task.id)[:3]
    assert {(entry.field, entry.old_value, entry.new_value, entry.changed_by) for entry in entries} == {
        ("status", "in_progress", "open", "system"),
        ("claimed_by", "a", None, "system"),
        ("token", task.token, None, "system"),
    }
    assert titles(ws.tasks.ready()) == ["task"]
    again = other.tasks.claim(task.id)
    assert (again.claimed_by, (again.token or 0) > (task.token or 0)) == ("b", True)


def test_t6_a_claim_lasts_half_an_hour_or_as_configured_and_its_own_ttl_wins(world: World) -> None:
    ws = world.open()
    assert claimed(ws).deadline == claimed(ws).updated_at + HALF_AN_HOUR
    lay_down(world, ws, "config.yaml", "claim_timeout: 10m\n")
    task, own = claimed(ws), claimed(ws, ttl=7200)
    assert (task.deadline, own.deadline) == (
        task.updated_at + timedelta(minutes=10),
        own.updated_at + timedelta(hours=2),
    )


def test_t6_release_stale_claims_counts_and_reopens_what_has_been_silent_for_so_long(world: World) -> None:
    ws, sweeper = world.open("a"), world.open("sweeper")
    assert sweeper.tasks.release_stale_claims() == sweeper.tasks.release_stale_claims(timeout=0) == 0
    silent, noted, parked = claimed(ws, "silent"), claimed(ws, "noted"), claimed(ws, "parked")
    ws.tasks.park(parked.id)
    world.clock.advance(600)
    ws.tasks.note(noted.id, "still at it")
    young = claimed(ws, "young")
    before = everything(ws)
    assert (sweeper.tasks.release_stale_claims(), sweeper.tasks.release_stale_claims(timeout=601)) == (0, 0)
    assert everything(ws) == before
    for bad in (-1, "60"):
        refused(ws, errors.Invalid, lambda bad=bad: sweeper.tasks.release_stale_claims(timeout=bad))
    assert sweeper.tasks.release_stale_claims(timeout=600) == 1
    assert ws.tasks.get(silent.id).status == "open"
    assert {entry.changed_by for entry in ws.tasks.history(silent.id)[:3]} == {"system"}
    assert titles(ws.tasks.list(claimed_by="a")) == ["noted", "parked", "young"]
    assert sweeper.tasks.release_stale_claims(timeout=0) == 2
    assert titles(ws.tasks.list(claimed_by="a")) == ["parked"]
    with pytest.raises(errors.Fenced):
        ws.tasks.complete(young.id)


def test_t6_a_parked_claim_does_not_end_until_a_heartbeat_lets_it_run_again(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    task = claimed(ws, ttl=60)
    parked = ws.tasks.park(task.id, token=task.token)
    assert (parked.deadline, parked.token, parked.version) == (None, task.token, task.version + 1)
    ws.tasks.note(task.id, "waiting for an answer")
    world.clock.advance(10 * 365 * 86400)
    refused(ws, errors.AlreadyClaimed, other.tasks.claim, task.id)
    running = ws.tasks.heartbeat(task.id, token=task.token)
    assert running.deadline == ws.tasks.create("now").created_at + timedelta(seconds=60)
    world.clock.advance(60)
    assert other.tasks.claim(task.id).claimed_by == "b"


def test_t6_a_claim_parked_until_a_time_is_held_until_then_whatever_its_ttl(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    task = claimed(ws, ttl=60)
    until = task.updated_at + timedelta(days=3)
    for bad in (task.updated_at, datetime(2001, 1, 1, tzinfo=UTC), "tomorrow", 5):
        refused(ws, errors.Invalid, lambda bad=bad: ws.tasks.park(task.id, bad))
    assert ws.tasks.park(task.id, until).deadline == until
    world.clock.advance(2 * 86400)
    ws.tasks.note(task.id, "still waiting")
    assert ws.tasks.get(task.id).deadline == until
    refused(ws, errors.AlreadyClaimed, other.tasks.claim, task.id)
    world.clock.advance(86400)
    assert other.tasks.claim(task.id).claimed_by == "b"


def test_t6_a_claim_parked_until_a_time_is_not_stale_before(world: World) -> None:
    ws = world.open()
    task = claimed(ws, ttl=60)
    ws.tasks.park(task.id, task.updated_at + timedelta(days=3))
    world.clock.advance(86400)
    assert ws.tasks.release_stale_claims(timeout=600) == 0
    assert ws.tasks.get(task.id).claimed_by == ws.actor


@callables
def test_t6_inside_a_transaction_what_is_read_as_released_can_be_claimed(world: World) -> None:
    ws = world.open()
    task = claimed(ws)

    def body(tx: Transaction) -> tuple[int, str, str | None]:
        count = tx.tasks.release_stale_claims(timeout=0)
        return count, tx.tasks.get(task.id).status, tx.tasks.claim(task.id, "next").claimed_by

    assert ws.transact(body) == (1, "open", "next")


# --- claims among other things ----------------------------------------------------------------------------------------


@callables
def test_t4_claim_tags_cell_and_lock_are_one_transaction_all_or_nothing(world: World) -> None:
    ws = world.open("a")
    task = ws.tasks.create("task")

    def body(tx: Transaction, fail: bool) -> Task:
        mine = tx.tasks.claim_next()
        assert mine is not None
        tx.tasks.add_tags(mine.id, ["taken"], token=mine.token)
        tx.cells.set("run", "task", mine.id)
        tx.locks.acquire(f"task/{mine.id}", ttl=60)
        if fail:
            tx.tasks.approve(mine.id)
        return tx.tasks.get(mine.id)

    refused(ws, errors.InvalidTransition, lambda: ws.transact(lambda tx: body(tx, True)))
    revision = ws.revision
    done = ws.transact(lambda tx: body(tx, False))
    assert (done, ws.revision) == (ws.tasks.get(task.id), revision + 1)
    assert (done.claimed_by, done.tags, done.deadline) == ("a", ("taken",), done.updated_at + HALF_AN_HOUR)
    events = ws.events.list(after=revision)
    assert [(event.kind, event.op) for event in events] == [
        ("task", "claim"),
        ("task", "add_tags"),
        ("cell", "set"),
        ("lock", "acquire"),
    ]
    assert {event.revision for event in events} == {revision + 1}


def test_t4_a_claim_in_txn_is_done_if_the_task_is_what_it_was_thought_to_be_or_nothing_is(world: World) -> None:
    ws = world.open("a")
    task = ws.tasks.create("task")
    mark = Op("cells.set", {"run": "run", "cell": "task", "value": task.id})
    claim = Op("tasks.claim", {"id": task.id, "ttl": 60})
    as_made = [VersionEquals("task", task.id, 1), ValueEquals("task", task.id, "open")]
    refused(ws, errors.AlreadyClaimed, lambda: ws.txn(as_made, [mark, claim, claim]))
    done = ws.txn(as_made, [mark, claim])
    assert (done.succeeded, done.results) == (True, [1, ws.tasks.get(task.id)])
    before = everything(ws)
    assert not ws.txn(as_made, [mark, claim]).succeeded
    assert everything(ws) == before


def test_t4_a_claim_repeated_under_its_key_gets_the_first_answer_and_takes_nothing_more(world: World) -> None:
    ws = world.open("a")
    tasks = [ws.tasks.create(f"task {number}") for number in range(4)]
    first = ws.using(key="k-1").tasks.claim(tasks[0].id, ttl=60)
    second = ws.using(key="k-1").tasks.claim_next(tag_pattern=None, ttl=60)
    third = ws.using(key="k-2").tasks.claim_next(type="task")
    world.clock.advance(60)
    assert [task and task.title for task in (first, second, third)] == ["task 0", "task 1", "task 2"]
    before = everything(ws)
    assert ws.using(key="k-1").tasks.claim(tasks[0].id, ttl=60) == first, "also when the claim is over"
    assert ws.using(key="k-1").tasks.claim_next(ttl=60) == second
    assert ws.using(key="k-2").tasks.claim_next(type="task") == third
    refused(ws, errors.Invalid, lambda: ws.using(key="k-1").tasks.claim(tasks[1].id, ttl=60))
    assert everything(ws) == before
    refused(ws, errors.AlreadyClaimed, ws.using(key="k-3").tasks.claim, tasks[2].id)
    ws.tasks.release(tasks[2].id)
    assert ws.using(key="k-3").tasks.claim(tasks[2].id).title == "task 2", "a refusal is not remembered"
    done = [ws.using(key="k-4").tasks.complete(tasks[2].id, summary="done") for _ in range(2)]
    assert done[0] == done[1] == ws.tasks.get(tasks[2].id)


def test_t4_a_claim_under_a_lost_lock_is_fenced(world: World) -> None:
    ws = world.open("a")
    task, grant = ws.tasks.create("task"), ws.locks.acquire("crew", ttl=60)
    assert ws.using(fence=("crew", grant.token)).tasks.claim(task.id).claimed_by == "a"
    ws.tasks.release(task.id)
    ws.locks.release("crew")
    fenced = ws.using(fence=("crew", grant.token))
    for call in (lambda: fenced.tasks.claim(task.id), lambda: fenced.tasks.claim_next(type="task")):
        refused(ws, errors.Fenced, call)


@pytest.mark.capability("aio")
def test_t4_claims_awaited_on_an_event_loop_keep_the_same_laws(world: World) -> None:
    ws = world.open("a")
    tasks = [ws.tasks.create(f"task {number}", tags=["x/y"]) for number in range(10)]

    async def main() -> None:
        tried = [ws.aio.tasks.claim(tasks[0].id, f"agent-{number}") for number in range(4)]
        outcomes = await asyncio.gather(*tried, return_exceptions=True)
        won = [outcome for outcome in outcomes if isinstance(outcome, Task)]
        assert [type(outcome) for outcome in outcomes].count(errors.AlreadyClaimed) == 3
        assert len(won) == 1
        await ws.aio.tasks.heartbeat(tasks[0].id, won[0].claimed_by, ttl=99)
        wanted: list[dict[str, Any]] = [{}, {"tag_pattern": "x/*"}, {"tags": ["x/y"]}, {"can": []}] * 3
        taken = await asyncio.gather(*(ws.aio.tasks.claim_next(**given) for given in wanted))
        assert sorted(titles([task for task in taken if task])) == sorted(titles(tasks[1:]))
        with pytest.raises(errors.Fenced):
            await ws.aio.tasks.complete(tasks[1].id, token=won[0].token)
        done = await ws.aio.tasks.complete(tasks[0].id, won[0].claimed_by, token=won[0].token)
        assert done.status == "closed"
        assert await ws.aio.tasks.release_stale_claims(timeout=0) == 9

    finish(main())
    assert len(ws.tasks.ready()) == 9
