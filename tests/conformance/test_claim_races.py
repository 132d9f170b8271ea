"""Many at once on the same tasks (T4 to T6): one winner, and always an outcome that some order of the calls explains.

Threads drive the handles, each its own, so that in a file they are as many programs as threads, and where there are
several processes or nodes the calls go to all of them. Each race is run several times; each time the store is sound.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from holdfast import errors
from holdfast.testing.crowd import together
from holdfast.types.tasks import Task
from holdfast.workspace import Workspace
from tests.conformance.test_cell_races import at_once, handles
from tests.worlds.kinds import World

ROUNDS = range(8)
READS = 6


def tried(call: Callable[..., Any], *args: Any, **given: Any) -> Any:
    """The answer of a call, or the class of what it was refused with."""
    try:
        return call(*args, **given)
    except errors.HoldfastError as error:
        return type(error)


def race(ws: Workspace, number: int, *calls: Callable[[], Any]) -> list[Any]:
    """What each call answers, or the class of its refusal, when all start at the same moment.

    All but one have something to read before, more from round to round: so each comes first in some of them.
    """

    def run(place: int, call: Callable[[], Any]) -> Any:
        if place != number % len(calls):
            for _ in range(number // len(calls) * READS):
                assert ws.revision
        return tried(call)

    return together(*(partial(run, place, call) for place, call in enumerate(calls)))


def ops(ws: Workspace, id: str) -> list[str]:
    """What happened to a task, in order."""
    return [event.op for event in ws.events.list(kinds=["task"], id=id, limit=1000)]


def sound(ws: Workspace) -> bool:
    """Whether the store is what its log says, and all counters are right."""
    assert ws.check().problems == []
    return True


# --- many claims -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [True, False], ids=["one handle", "a handle each"])
def test_t4_of_8_threads_that_claim_one_task_one_wins_and_7_learn_who(world: World, shared: bool) -> None:
    ws = handles(world, 8, shared)

    def work(number: int, id: str) -> Task | errors.AlreadyClaimed:
        try:
            return ws[number].tasks.claim(id, f"agent-{number}")
        except errors.AlreadyClaimed as error:
            return error

    tokens = []
    for _ in ROUNDS:
        task = ws[0].tasks.create("task")
        outcomes = at_once(8, work, task.id)
        (won,) = (outcome for outcome in outcomes if isinstance(outcome, Task))
        lost = [outcome for outcome in outcomes if isinstance(outcome, errors.AlreadyClaimed)]
        assert {(error.holder, error.since) for error in lost} == {(won.claimed_by, won.claimed_at)}
        assert (len(lost), outcomes.index(won)) == (7, int(str(won.claimed_by)[-1]))
        assert (ws[0].tasks.get(task.id), ops(ws[0], task.id)) == (won, ["create", "claim"])
        tokens.append(won.token or 0)
    assert tokens == sorted(set(tokens))
    assert sound(ws[0])


FILTERS: dict[str, dict[str, Any]] = {
    "without a filter": {},
    "by a tag": {"tags": ["api"]},
    "by a glob": {"tag_pattern": "area/*"},
    "by type and priority": {"type": ["task", "bug"], "priority": [0, 1, 2]},
}


@pytest.mark.parametrize("wanted", FILTERS)
def test_t4_8_threads_that_claim_the_next_of_50_tasks_get_each_once(world: World, wanted: str) -> None:
    ws = handles(world, 8)
    tasks = [{"title": f"task {n}", "priority": n % 3, "tags": ["api", f"area/{n}"]} for n in range(50)]
    made = [item.id for item in ws[0].tasks.bulk("create", tasks=tasks, atomic=True).results]

    def work(number: int) -> list[Task]:
        return list(iter(lambda: ws[number].tasks.claim_next(f"agent-{number}", **FILTERS[wanted]), None))

    taken = at_once(8, work)
    assert Counter(task.id for mine in taken for task in mine) == Counter(made)
    for number, mine in enumerate(taken):
        assert {task.claimed_by for task in mine} <= {f"agent-{number}"}
        assert [task.priority for task in mine] == sorted(task.priority for task in mine), "the best first"
    claims = [event for event in ws[0].events.list(kinds=["task"], limit=1000) if event.op == "claim"]
    assert Counter(event.id for event in claims) == Counter(made)
    tokens = [event.data["token"][1] for event in claims]
    assert tokens == sorted(set(tokens))
    assert sound(ws[0])


def test_t4_tasks_that_go_back_and_forth_between_8_threads_are_never_held_twice(world: World) -> None:
    ws = handles(world, 8)
    for number in range(3):
        ws[0].tasks.create(f"task {number}")

    def work(number: int) -> int:
        mine, agent = 0, f"agent-{number}"
        for give_back in itertools.islice(itertools.cycle(["release", "block", "complete"]), 12):
            task = ws[number].tasks.claim_next(agent)
            if task is None:
                continue
            mine += 1
            getattr(ws[number].tasks, give_back)(task.id, agent, token=task.token)
            if give_back == "block":
                ws[number].tasks.unblock(task.id)
            elif give_back == "complete":
                ws[number].tasks.reopen(task.id)
        return mine

    counts = at_once(8, work)
    events = ws[0].events.list(kinds=["task"], limit=1000)
    assert sum(counts) == sum(event.op == "claim" for event in events) > 0
    holders: dict[str, str | None] = {}
    for event in events:
        if "claimed_by" in event.data:
            was, holder = event.data["claimed_by"]
            assert holders.get(event.id) == was, "nobody takes what another has"
            holders[event.id] = holder
    assert set(holders.values()) == {None}
    assert len(ws[0].tasks.ready()) == 3


# --- two calls, two outcomes -----------------------------------------------------------------------------------------


def test_t6_a_claim_against_an_expiry_comes_before_it_or_after_it(world: World) -> None:
    a, b = handles(world, 2)
    for number in ROUNDS:
        task = a.tasks.claim(a.tasks.create("task").id, "a", ttl=60)
        outcome, _ = race(b, number, partial(b.tasks.claim, task.id, "b"), partial(world.clock.advance, 60))
        found = a.tasks.get(task.id)
        assert (a.tasks.release_stale_claims() in (0, 1), ops(a, task.id)[:3]) == (True, ["create", "claim", "expire"])
        if outcome is errors.AlreadyClaimed:
            assert (found.status, found.claimed_by, ops(a, task.id)[3:]) == ("open", None, [])
        else:
            assert (found, found.claimed_by, ops(a, task.id)[3:]) == (outcome, "b", ["claim"])
            assert outcome.token > (task.token or 0)
        assert sound(a)


@pytest.mark.parametrize("step", ["complete", "heartbeat", "note", "release", "block", "park"])
def test_t5_a_write_of_the_holder_against_the_expiry_of_its_claim_is_in_time_or_fenced(world: World, step: str) -> None:
    a, b = handles(world, 2)
    a = a.using(actor="a")
    for number in ROUNDS:
        task = a.tasks.claim(a.tasks.create("task").id, "a", ttl=60)
        given: dict[str, Any] = {"text": "a note"} if step == "note" else {"agent": "a"}
        if number % 4 < 2 or step == "note":  # anybody may make a note, unless it is fenced
            given["token"] = task.token
        world.clock.advance(59)
        outcome, _ = race(b, number, partial(getattr(a.tasks, step), task.id, **given), partial(world.clock.advance, 1))
        found = b.tasks.get(task.id)
        assert b.tasks.release_stale_claims() in (0, 1)
        what = ops(b, task.id)[2:]
        if outcome is errors.Fenced:
            assert (found.status, found.claimed_by, what) == ("open", None, ["expire"])
        else:
            assert found == outcome
            assert what == ([] if step == "heartbeat" else [step]), "it was in time, so nothing expired"
            if step in ("heartbeat", "note"):
                assert (found.claimed_by, found.deadline is None or found.deadline > found.created_at) == ("a", True)
                b.tasks.release(task.id, force=True)
        assert sound(b)


def test_t4_a_claim_against_a_delete_one_of_them_is_refused(world: World) -> None:
    a, b = handles(world, 2)
    for number in ROUNDS:
        parent = a.tasks.create("parent")
        task = a.tasks.create("task", parent_id=parent.id)
        for id, active in ((task.id, errors.TaskActive), (parent.id, errors.HasActiveChildren)):
            claimed, deleted = race(b, number, partial(a.tasks.claim, task.id, "a"), partial(b.tasks.delete, id))
            found = a.tasks.get(task.id, include_deleted=True)
            if claimed is errors.TaskNotFound:
                assert (deleted, found.status, found.claimed_by) == (1 if id == task.id else 2, "open", None)
                assert found.deleted_at is not None
                b.tasks.restore(id)
            else:
                assert (deleted, found) == (active, claimed)
                a.tasks.release(task.id, "a")
            assert sound(a)


@pytest.mark.parametrize("by_token", [True, False], ids=["by token", "by name"])
def test_t5_of_two_completes_one_is_done_and_the_other_finds_nothing_to_complete(world: World, by_token: bool) -> None:
    a, b = handles(world, 2)
    for number in ROUNDS:
        task = a.tasks.claim(a.tasks.create("task").id, "a")
        given: dict[str, Any] = {"agent": "a"} | ({"token": task.token} if by_token else {})
        outcomes = race(
            b,
            number,
            partial(a.tasks.complete, task.id, result=1, **given),
            partial(b.tasks.complete, task.id, result=2, **given),
        )
        (won,) = (at for at, outcome in enumerate(outcomes) if isinstance(outcome, Task))
        assert outcomes[1 - won] is (errors.Fenced if by_token else errors.InvalidTransition)
        assert (a.tasks.get(task.id), outcomes[won].status) == (outcomes[won], "closed")
        assert [entry.new_value for entry in a.tasks.history(task.id, field="result")] == [won + 1]
    assert sound(a)


def test_t5_a_complete_against_a_forced_release_is_done_or_fenced(world: World) -> None:
    a, b = handles(world, 2)
    for number in ROUNDS:
        task = a.tasks.claim(a.tasks.create("task").id, "a")
        done, forced = race(
            b,
            number,
            partial(a.tasks.complete, task.id, "a", token=task.token),
            partial(b.tasks.release, task.id, force=True),
        )
        found = a.tasks.get(task.id)
        if done is errors.Fenced:
            assert (found, found.status) == (forced, "open")
        else:
            assert (found, found.status, forced) == (done, "closed", errors.InvalidTransition)
    assert sound(a)


def test_t7_a_reparent_against_a_claim_leaves_only_the_parent_it_has_waiting(world: World) -> None:
    a, b = handles(world, 2)
    old, new = a.tasks.create("old parent"), a.tasks.create("new parent")
    for number in ROUNDS:
        task = a.tasks.create("task", parent_id=old.id, priority=4)
        claimed, moved = race(
            b, number, partial(a.tasks.claim, task.id, "a"), partial(b.tasks.reparent, task.id, new.id)
        )
        found = a.tasks.get(task.id)
        assert (found.parent_id, found.claimed_by, found.version) == (new.id, "a", 3)
        assert {claimed.version, moved.version} == {2, 3}
        assert found == max(claimed, moved, key=lambda task: task.version)
        assert (a.tasks.explain(old.id).ready, a.tasks.explain(new.id).reasons[0].ids) == (True, (task.id,))
        a.tasks.complete(task.id, "a")
        assert a.tasks.explain(new.id).ready
        assert sound(a)


def test_t3_a_claim_against_a_cancel_one_of_them_is_refused(world: World) -> None:
    a, b = handles(world, 2)
    for number in ROUNDS:
        task = a.tasks.create("task")
        claimed, cancelled = race(
            b, number, partial(a.tasks.claim, task.id, "a"), partial(b.tasks.cancel, task.id, "not wanted")
        )
        found = a.tasks.get(task.id)
        if claimed is errors.InvalidStatus:
            assert (found, found.status) == (cancelled, "closed")
        else:
            assert (found, found.claimed_by, cancelled) == (claimed, "a", errors.InvalidTransition)
    assert sound(a)


def test_t8_claim_next_against_a_new_dependency_never_takes_what_waits_already(world: World) -> None:
    a, b = handles(world, 2)
    first = a.tasks.claim(a.tasks.create("first").id, "somebody")
    for number in ROUNDS:
        task = a.tasks.create("task")
        taken, linked = race(
            b, number, partial(a.tasks.claim_next, "a", type="task"), partial(b.tasks.depend, task.id, first.id)
        )
        before = ["create", "claim", "depend"] if taken else ["create", "depend"]
        assert (ops(a, task.id), linked.id) == (before, task.id)
        assert a.tasks.get(task.id).claimed_by == ("a" if taken else None)
        assert a.tasks.explain(task.id).reasons[-1].ids == (first.id,)
    assert sound(a)


def test_t9_finishing_a_task_against_claim_next_gives_its_dependent_out_once(world: World) -> None:
    ws = handles(world, 4)
    for number in ROUNDS:
        first, then = ws[0].tasks.create("first"), ws[0].tasks.create("then")
        ws[0].tasks.depend(then.id, first.id)
        ws[0].tasks.claim(first.id, "somebody")
        outcomes = race(
            ws[0],
            number,
            partial(ws[0].tasks.complete, first.id, "somebody"),
            *(partial(ws[n].tasks.claim_next, f"agent-{n}") for n in range(1, 4)),
        )
        taken = [task for task in outcomes[1:] if task is not None]
        assert [task.id for task in taken] in ([], [then.id])
        late = ws[0].tasks.claim_next("late")
        assert (late is None) == bool(taken), "it was ready as soon as the first was done"
    assert sound(ws[0])
