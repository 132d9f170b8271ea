"""The status of a task (T3): every operation in every status, what it leads to, and what it is refused with.

`TABLE` is written from the requirement, not taken from the code: whatever is not in it must be refused, must say where
the task is, where it should have gone and where it can go, and must leave everything as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from holdfast import errors
from holdfast.types.tasks import HistoryEntry, Task, TaskStatus
from holdfast.workspace import Workspace
from tests.worlds.kinds import World

pytestmark = pytest.mark.kinds("drawn")

Call = Callable[[Any, str], object]  # of a workspace and a task's id

STATUSES: tuple[TaskStatus, ...] = ("open", "in_progress", "pending_merge", "blocked", "closed")

# Where a task can go from each status; a closed one only by `reopen`, which is not offered.
NEXT: dict[TaskStatus, set[TaskStatus]] = {
    "open": {"in_progress"},
    "in_progress": {"open", "pending_merge", "blocked", "closed"},
    "pending_merge": {"closed", "blocked"},
    "blocked": {"open", "closed"},
    "closed": set(),
}

# Each operation, the status it wants, and the statuses from which it gets there.
TABLE: dict[str, tuple[Call, TaskStatus, set[TaskStatus]]] = {
    "claim": (lambda ws, id: ws.tasks.claim(id), "in_progress", {"open"}),
    "release": (lambda ws, id: ws.tasks.release(id), "open", {"in_progress"}),
    "release by force": (lambda ws, id: ws.tasks.release(id, force=True), "open", {"in_progress"}),
    "complete": (lambda ws, id: ws.tasks.complete(id), "closed", {"in_progress"}),
    "complete unreviewed": (lambda ws, id: ws.tasks.complete(id, review=False), "closed", {"in_progress"}),
    "complete for review": (lambda ws, id: ws.tasks.complete(id, review=True), "pending_merge", {"in_progress"}),
    "block": (lambda ws, id: ws.tasks.block(id), "blocked", {"in_progress"}),
    "approve": (lambda ws, id: ws.tasks.approve(id), "closed", {"pending_merge"}),
    "reject": (lambda ws, id: ws.tasks.reject(id), "blocked", {"pending_merge"}),
    "unblock": (lambda ws, id: ws.tasks.unblock(id), "open", {"blocked"}),
    "close": (lambda ws, id: ws.tasks.close(id), "closed", {"open", "in_progress", "pending_merge", "blocked"}),
    "cancel": (lambda ws, id: ws.tasks.cancel(id), "closed", {"open", "blocked"}),
    "reopen": (lambda ws, id: ws.tasks.reopen(id), "open", {"closed"}),
}


BOTH = {("cancel", "open"), ("close", "open")}  # claimed, or begun, in passing
CLOSED_BY = {"open": "complete", "in_progress": "complete", "pending_merge": "approve", "blocked": "close"}


def brought(ws: Workspace, status: TaskStatus) -> Task:
    """A new task in a status; in progress, `ws` holds it."""
    task = ws.tasks.create(f"a task {status}")
    if status != "open":
        task = ws.tasks.claim(task.id)
    if status == "pending_merge":
        task = ws.tasks.complete(task.id, review=True)
    elif status == "blocked":
        task = ws.tasks.block(task.id)
    elif status == "closed":
        task = ws.tasks.complete(task.id)
    assert task.status == status
    return task


def everything(ws: Any) -> list[Any]:
    """All there is to see of tasks, and what could change along with them."""
    tasks = ws.tasks.list(include_deleted=True, limit=1000)
    each = [(ws.tasks.get(task.id, True), ws.tasks.history(task.id), ws.tasks.explain(task.id)) for task in tasks]
    return [tasks, each, ws.cells.runs(), ws.locks.list(), ws.events.list(limit=1000), ws.revision]


def refused(ws: Any, error: type[errors.HoldfastError], call: Callable[..., object], *args: Any) -> Any:
    """Expect exactly this error, and everything as it was before; answers the error."""
    before = everything(ws)
    with pytest.raises(errors.HoldfastError) as caught:
        call(*args)
    assert type(caught.value) is error, repr(caught.value)
    assert everything(ws) == before
    return caught.value


def steps_of(ws: Workspace, id: str) -> list[HistoryEntry]:
    """The changes of a task's status, newest first."""
    return ws.tasks.history(id, field="status")


def names_the_three(error: errors.HoldfastError, status: str, wanted: str) -> bool:
    """Whether a refusal says where the task is, where it should have gone and where it can go."""
    details = error.details
    allowed = NEXT[status]  # type: ignore[index]  # a parameter is a plain str for mypy
    assert (details["current_status"], details["requested_status"]) == (status, wanted)
    assert set(details["valid_transitions"]) == allowed
    assert len(details["valid_transitions"]) == len(allowed)
    return all(word in error.message for word in (status, wanted, *allowed))


# --- every cell of the table -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", STATUSES)
def test_t3_every_step_of_the_table_leads_where_it_says(world: World, status: TaskStatus) -> None:
    ws = world.open()
    for name, (call, target, sources) in TABLE.items():
        if status not in sources:
            continue
        before, revision = brought(ws, status), ws.revision
        answer = call(ws, before.id)
        after = ws.tasks.get(before.id)
        assert answer == after, name
        assert (after.status, ws.revision, after.revision) == (target, revision + 1, revision + 1), name
        assert after.version - before.version == (2 if (name, status) in BOTH else 1), name
        claim = (after.claimed_by, after.claimed_at, after.token, after.deadline)
        assert (None in claim, any(claim)) == ((False, True) if target == "in_progress" else (True, False)), name
        newest = steps_of(ws, before.id)[0]
        op = CLOSED_BY[status] if name == "close" else name.split()[0]
        assert (newest.new_value, newest.op, newest.changed_by) == (target, op, ws.actor), name


@pytest.mark.parametrize("status", STATUSES)
def test_t3_every_step_that_is_not_in_the_table_is_refused_and_changes_nothing(
    world: World, status: TaskStatus
) -> None:
    ws = world.open()
    task = brought(ws, status)
    for name, (call, wanted, sources) in TABLE.items():
        if status in sources:
            continue
        if name != "claim":
            error = refused(ws, errors.InvalidTransition, call, ws, task.id)
            assert names_the_three(error, status, wanted), f"{name}: {error}"
            assert (error.code, error.status, error.exit_code) == ("INVALID_TRANSITION", 400, 11)
            assert error.hint
        elif status == "in_progress":
            error = refused(ws, errors.AlreadyClaimed, call, ws, task.id)
            assert (error.holder, error.since) == (ws.actor, task.claimed_at)
        else:
            error = refused(ws, errors.InvalidStatus, call, ws, task.id)
            assert error.details["status"] == status
            assert status in error.message


@pytest.mark.parametrize("status", STATUSES)
def test_t3_set_status_takes_the_step_of_the_table_that_leads_there_or_none(world: World, status: TaskStatus) -> None:
    ws = world.open()
    for wanted in STATUSES:
        task = brought(ws, status)
        if wanted in NEXT[status]:
            assert ws.tasks.set_status(task.id, wanted, reason="so be it").status == wanted
            newest = steps_of(ws, task.id)[0]
            assert (newest.old_value, newest.new_value, newest.version) == (status, wanted, task.version + 1)
            if wanted != "in_progress":
                assert newest.note == "so be it"
            assert TABLE[newest.op][2] >= {status}, "it is the step that the operation makes"
        elif wanted == status:
            before = everything(ws)
            assert ws.tasks.set_status(task.id, wanted) == task
            assert everything(ws) == before
        else:
            error = refused(ws, errors.InvalidTransition, ws.tasks.set_status, task.id, wanted)
            assert names_the_three(error, status, wanted)


@pytest.mark.parametrize("status", STATUSES)
def test_t3_what_is_no_step_leaves_the_status_alone(world: World, status: TaskStatus) -> None:
    ws = world.open()
    task, other = brought(ws, status), ws.tasks.create("another")
    ws.tasks.update(task.id, title="new title", priority=0)
    ws.tasks.note(task.id, "a note")
    ws.tasks.add_tags(task.id, ["tag"])
    ws.tasks.set_tags(task.id, [])
    ws.tasks.reparent(task.id, other.id)
    ws.tasks.depend(task.id, other.id, "related")
    if status == "in_progress":
        ws.tasks.heartbeat(task.id)
        ws.tasks.park(task.id)
    else:
        assert ws.tasks.release_stale_claims(timeout=0) == 0
        for call in (ws.tasks.heartbeat, ws.tasks.park):
            assert refused(ws, errors.NotClaimOwner, call, task.id).holder is None
        assert refused(ws, errors.TaskNotFound, ws.tasks.reclaim, task.id).id == task.id
    found = ws.tasks.get(task.id)
    assert (found.status, found.claimed_by, found.token) == (status, task.claimed_by, task.token)
    assert steps_of(ws, other.id)[0].new_value == "open"


# --- cancel and reopen -----------------------------------------------------------------------------------------------


def test_t3_cancel_of_an_open_task_is_one_transaction_whose_history_shows_both_steps(world: World) -> None:
    ws = world.open("a")
    parent = ws.tasks.create("parent")
    task = ws.tasks.create("a duplicate", parent_id=parent.id, tags=["tag"])
    waiting = ws.tasks.create("waiting")
    ws.tasks.depend(waiting.id, task.id)
    closed = ws.tasks.cancel(task.id, "a duplicate of another")
    last, first = steps_of(ws, task.id)[:2]
    assert [(entry.old_value, entry.new_value) for entry in (first, last)] == [
        ("open", "in_progress"),
        ("in_progress", "closed"),
    ]
    assert first.revision == last.revision == closed.revision == ws.revision
    assert (last.note, last.op, first.op, last.changed_by) == ("a duplicate of another", "cancel", "cancel", "a")
    assert ws.tasks.history(task.id, field="claimed_by") == [], "nobody ever held it"
    assert [found.id for found in ws.tasks.ready()] == [parent.id, waiting.id]
    assert ws.tasks.claim_next(tags=["tag"]) is None


def test_t3_cancel_of_a_blocked_task_simply_closes_it(world: World) -> None:
    ws = world.open()
    task = brought(ws, "blocked")
    closed = ws.tasks.cancel(task.id, "no longer wanted")
    (newest, before, *_) = steps_of(ws, task.id)
    assert (newest.old_value, newest.new_value, newest.note) == ("blocked", "closed", "no longer wanted")
    assert (closed.version, before.new_value) == (task.version + 1, "blocked")


def test_t3_cancel_takes_no_task_from_whoever_works_on_it(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    task = ws.tasks.claim(ws.tasks.create("mine").id)
    parked = ws.tasks.park(ws.tasks.claim(ws.tasks.create("waits for a person").id).id)
    for held in (task, parked):
        error = refused(ws, errors.InvalidTransition, other.tasks.cancel, held.id, "not wanted")
        assert names_the_three(error, "in_progress", "closed")
        assert "in_progress (a works on it)" in error.message
    assert ws.tasks.complete(task.id, token=task.token).status == "closed"


@pytest.mark.parametrize("name", ["approve", "reject", "unblock", "close", "cancel", "reopen"])
def test_t3_who_does_not_hold_the_task_hears_who_does_and_what_works(world: World, name: str) -> None:
    ws, other = world.open("a"), world.open("b")
    task = brought(ws, "in_progress")
    call, target, _ = TABLE[name]
    kind = errors.NotClaimOwner if name == "close" else errors.InvalidTransition
    error = refused(ws, kind, call, other, task.id)
    assert name == "close" or names_the_three(error, "in_progress", target)
    force = f'tasks.release("{task.id}", force=True)'
    assert error.hint == f"a holds it: ask a by mail; {force} takes it away, which is logged"
    if name != "close":
        own = refused(ws, errors.InvalidTransition, call, ws, task.id)
        assert own.hint.startswith(f'possible now: tasks.release("{task.id}")'), "its holder can do these"
    gone = refused(ws, errors.TaskActive, other.tasks.delete, task.id)
    assert force in gone.hint
    assert "tasks.complete" in refused(ws, errors.TaskActive, ws.tasks.delete, task.id).hint
    assert force in refused(ws, errors.NotClaimOwner, other.tasks.release, task.id).hint
    other.tasks.release(task.id, force=True)
    assert other.tasks.cancel(task.id).status == "closed"


def test_t3_reopen_is_a_history_entry_of_its_own_and_makes_the_task_what_it_was_before(world: World) -> None:
    ws = world.open()
    task, waiting = brought(ws, "closed"), ws.tasks.create("waiting")
    ws.tasks.depend(waiting.id, task.id)
    assert [found.id for found in ws.tasks.ready()] == [waiting.id]
    ws.tasks.reopen(task.id, "not done after all")
    newest = ws.tasks.history(task.id)[0]
    assert (newest.op, newest.field, newest.old_value, newest.new_value) == ("reopen", "status", "closed", "open")
    assert newest.note == "not done after all"
    assert [found.id for found in ws.tasks.ready()] == [task.id], "and what depends on it waits again"
    assert ws.tasks.claim(task.id).status == "in_progress"


# --- bad input -------------------------------------------------------------------------------------------------------

NOTED: dict[TaskStatus, tuple[tuple[str, str], ...]] = {
    "open": (("cancel", "reason"),),
    "in_progress": (("release", "reason"), ("complete", "summary"), ("block", "reason")),
    "pending_merge": (("approve", "note"), ("reject", "reason")),
    "blocked": (("unblock", "note"), ("close", "reason"), ("cancel", "reason")),
    "closed": (("reopen", "reason"),),
}


@pytest.mark.parametrize("status", STATUSES)
def test_t3_a_reason_that_cannot_be_stored_is_refused_before_the_step(world: World, status: TaskStatus) -> None:
    ws = world.open()
    task = brought(ws, status)
    for name, parameter in NOTED[status]:
        call: Any = getattr(ws.tasks, name)
        for bad, error in ((7, errors.InvalidValue), ("\ud800", errors.InvalidValue), ("x" * 65_537, errors.TooLarge)):
            refused(ws, error, partial(call, task.id, **{parameter: bad}))


def test_t3_a_task_that_is_missing_deleted_or_abbreviated_takes_no_step(world: World) -> None:
    ws = world.open()
    task, gone = ws.tasks.create("here"), ws.tasks.create("gone")
    ws.tasks.delete(gone.id)
    for id in ("hf-none", gone.id, task.id[:-1]):
        before = everything(ws)
        for name, (call, _, _) in TABLE.items():
            with pytest.raises(errors.TaskNotFound) as caught:
                call(ws, id)
            assert caught.value.id == id, name
        with pytest.raises(errors.TaskNotFound):
            ws.tasks.set_status(id, "in_progress")
        assert everything(ws) == before
    error = refused(ws, errors.TaskNotFound, ws.tasks.claim, task.id[:-1])
    assert task.id in error.hint, "it says which one may have been meant"


def test_t3_a_status_that_does_not_exist_is_one_that_no_step_leads_to(world: World) -> None:
    ws = world.open()
    task = ws.tasks.create("task")
    bad: Any
    for bad in ("done", "OPEN", "", None, 1, ["open"]):
        error = refused(ws, errors.InvalidTransition, ws.tasks.set_status, task.id, bad)
        assert (error.current_status, error.requested_status, error.valid_transitions) == ("open", bad, ["in_progress"])


def test_t3_set_status_keeps_the_rules_of_the_step_it_takes(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    task = ws.tasks.set_status(ws.tasks.create("task").id, "in_progress")
    assert task.claimed_by == "a"
    assert task.token is not None
    for wanted in ("open", "blocked", "pending_merge", "closed"):
        refused(ws, errors.NotClaimOwner, other.tasks.set_status, task.id, wanted)
        refused(ws, errors.Fenced, partial(ws.tasks.set_status, task.id, wanted, token=task.token + 1))
    assert ws.tasks.set_status(task.id, "pending_merge", token=task.token).status == "pending_merge"


@pytest.mark.parametrize("end", ["closed", "pending_merge", "blocked"])
def test_t3_set_status_lets_no_agent_that_lost_its_claim_pass(world: World, end: TaskStatus) -> None:
    """Another one has made the task what it asks for: it hears of that, and what it says is not dropped."""
    ws, other = world.open("a"), world.open("b")
    task = ws.tasks.claim(ws.tasks.create("task").id, ttl=60)
    world.clock.advance(61)
    other.tasks.claim(task.id)
    taken = other.tasks.set_status(task.id, end, reason="theirs")
    before = everything(ws)
    refused(ws, errors.Fenced, ws.tasks.set_status, task.id, end)
    refused(ws, errors.Fenced, partial(ws.tasks.set_status, task.id, end, reason="mine"))
    for wanted in STATUSES:  # nor does its token lead anywhere
        refused(ws, errors.Fenced, partial(ws.tasks.set_status, task.id, wanted, token=task.token))
        refused(ws, errors.Fenced, partial(other.tasks.set_status, task.id, wanted, token=task.token))
    refused(other, errors.InvalidTransition, partial(other.tasks.set_status, task.id, end, reason="once more"))
    assert other.tasks.set_status(task.id, end) == taken
    assert everything(ws) == before


def test_t3_set_status_does_not_tell_an_agent_that_it_has_a_task_that_is_anothers(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    task = ws.tasks.claim(ws.tasks.create("task").id)
    assert refused(ws, errors.AlreadyClaimed, other.tasks.set_status, task.id, "in_progress").holder == "a"
