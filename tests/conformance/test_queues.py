"""Queues (S4): items in order, taken by one worker at a time under a lease, delivered at least once, then dead letters.

A queue is a stash; what happens to its items is no version of it. Each refusal leaves the workspace as it was.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from holdfast import NotExists, Op, Workspace, errors
from holdfast.route import hearing_existed
from holdfast.testing.crowd import together
from holdfast.types.stashes import QueueItem, QueueSize
from tests.conformance.test_stashes import entries, refused
from tests.conformance.test_waiting import Background, ops
from tests.worlds.kinds import World

callables = pytest.mark.capability("callables")


def queue(ws: Workspace, *values: Any, name: str = "jobs", **more: Any) -> str:
    """The id of a queue with these items."""
    made = ws.stashes.create(name, "queue", **more).id
    ws.queues.put_all(made, values)
    return made


def taken(ws: Workspace, id: Any, **more: Any) -> QueueItem:
    """The first item that is ready."""
    item = ws.queues.take(id, **more)
    assert item is not None
    return item


def values(items: list[QueueItem]) -> list[Any]:
    """Their values, in order."""
    return [item.value for item in items]


# --- order -----------------------------------------------------------------------------------------------------------


def test_s4_items_are_taken_in_the_order_they_were_put_and_leave_when_they_are_acknowledged(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    jobs = ws.stashes.create("jobs", "queue").id
    assert ws.queues.take(jobs) is None
    assert [ws.queues.put(jobs, {"n": 1}), ws.queues.put_all((None, "jobs"), ["two", None])] == [1, [2, 3]]
    first, second = taken(ws, jobs, ttl=60), taken(other, (None, "jobs"))
    assert (first.number, first.value, first.state, first.deliveries) == (1, {"n": 1}, "taken", 1)
    assert (first.queue, first.holder, first.until) == (jobs, "a", first.created_at + timedelta(seconds=60))
    assert (second.number, second.holder, second.token is not None) == (2, "b", True)
    assert second.token > first.token  # type: ignore[operator]
    assert ws.queues.size(jobs) == QueueSize(ready=1, delayed=0, taken=2, dead=0)
    error = refused(ws, errors.NotHolder, lambda: ws.queues.ack(jobs, second.token))  # type: ignore[arg-type]
    assert error.holder == "b"
    assert [ws.queues.ack(jobs, second.token, "b"), ws.queues.ack(jobs, first.token)] == [2, 1]  # type: ignore[arg-type]
    assert values(ws.queues.list(jobs)) == [None]
    assert ws.queues.put(jobs, 4) == 4
    assert [taken(ws, jobs).number for _ in range(2)] == [3, 4]
    assert ws.queues.take(jobs) is None


def test_s4_no_number_is_used_again_and_the_stash_has_no_version_of_its_items(world: World) -> None:
    ws = world.open()
    jobs = queue(ws, "a")
    ws.queues.ack(jobs, taken(ws, jobs).token)  # type: ignore[arg-type]
    assert (ws.queues.size(jobs), ws.queues.put(jobs, "b")) == (QueueSize(0, 0, 0, 0), 2)
    assert (ws.stashes.get(jobs).version, entries(ws, jobs)) == (1, [("create", 1, None)])
    assert ops(ws, jobs, "queue") == ["put", "take", "ack", "put"]
    put = ws.events.list(kinds=["queue"], id=jobs)[0]
    assert put.data == {"last": [0, 1], "ready": [0, 1], "bytes": 2}


@pytest.mark.kinds("drawn")
def test_s4_a_key_is_put_once_while_its_item_is_in_the_queue(world: World) -> None:
    ws = world.open()
    jobs = queue(ws, "x")
    assert [ws.queues.put(jobs, "a", key="k"), ws.queues.put(jobs, "other", key="k")] == [2, 2]
    ws.queues.ack(jobs, taken(ws, jobs).token)  # type: ignore[arg-type]
    item = taken(ws, jobs)
    assert (item.key, item.value, ws.queues.put(jobs, "again", key="k")) == ("k", "a", 2)
    ws.queues.ack(jobs, item.token)  # type: ignore[arg-type]
    assert ws.queues.put(jobs, "new", key="k") == 3
    assert values(ws.queues.list(jobs)) == ["new"]


@pytest.mark.capability("transitions")  # a caller in another process hears it there
def test_s4_whoever_puts_an_item_that_is_there_already_hears_of_it(world: World) -> None:
    """The faces hear of it, also under an idempotency key; the call itself returns the number, as ever."""
    ws = world.open()
    jobs = queue(ws)

    def put(ws: Workspace, key: str | None) -> tuple[int, bool]:
        with hearing_existed() as existed:
            number = ws.queues.put(jobs, "x", key=key)
        return number, bool(existed)

    assert [put(ws, key) for key in (None, "k", "k", None)] == [(1, False), (2, False), (2, True), (3, False)]
    once, known = ws.using(key="once"), ws.using(key="known")
    assert [put(once, "l"), put(once, "l"), put(ws, "l")] == [(4, False), (4, False), (4, True)]
    assert [put(known, "l"), put(known, "l")] == [(4, True), (4, True)]
    with hearing_existed() as existed:
        done = ws.txn([], [Op("queues.put", {"id": jobs, "value": 1, "key": "k"})])
    assert (done.results, existed) == ([2], [])


# --- leases ----------------------------------------------------------------------------------------------------------


def test_s4_an_item_whose_lease_ends_goes_back_to_its_place_and_its_token_is_fenced(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    jobs = queue(ws, 1, 2, 3)
    lost = taken(ws, jobs, ttl=10)
    kept = taken(ws, jobs, ttl=60)
    world.clock.advance(10)
    assert ws.queues.size(jobs) == QueueSize(2, 0, 1, 0)
    again = taken(other, jobs)
    assert (again.number, again.deliveries, again.holder) == (1, 2, "b")
    call: Any
    for call in (ws.queues.ack, ws.queues.nack, ws.queues.refresh):
        error = refused(ws, errors.Fenced, partial(call, jobs, lost.token))
        assert error.current is None
        for token in (2**63, 10**30):  # larger than any that SQLite can hold
            refused(ws, errors.Fenced, partial(call, jobs, token))
        refused(ws, errors.Fenced, partial(ws.using(fence=(jobs, 2**63)).queues.put, jobs, 4))
    assert other.queues.ack(jobs, again.token) == 1  # type: ignore[arg-type]
    assert ws.queues.ack(jobs, kept.token) == 2  # type: ignore[arg-type]
    refused(ws, errors.Fenced, lambda: ws.queues.ack(jobs, kept.token))  # type: ignore[arg-type]
    expiry = next(event for event in ws.events.list(kinds=["queue"], id=jobs) if event.op == "expire")
    assert (expiry.actor, expiry.data["item"]) == ("system", 1)


def test_s4_a_lease_that_is_refreshed_goes_on_and_a_renewal_is_no_event(world: World) -> None:
    ws = world.open("a")
    jobs = queue(ws, 1)
    item = taken(ws, jobs, ttl=10)
    before = ws.revision
    for _ in range(3):
        world.clock.advance(8)
        renewed = ws.queues.refresh(jobs, item.token)  # type: ignore[arg-type]
        assert (renewed.token, renewed.deliveries) == (item.token, 1)
    longer = ws.queues.refresh(jobs, item.token, ttl=100)  # type: ignore[arg-type]
    assert (longer.until, ws.revision) == (item.created_at + timedelta(seconds=124), before)
    world.clock.advance(99)
    assert ws.queues.take(jobs) is None
    assert ws.queues.ack(jobs, item.token) == 1  # type: ignore[arg-type]


def test_s4_an_item_given_back_is_ready_at_its_place_now_or_after_its_delay(world: World) -> None:
    ws = world.open("a")
    jobs = queue(ws, 1, 2, 3)
    first, second = taken(ws, jobs), taken(ws, jobs)
    assert ws.queues.nack(jobs, second.token) == "ready"  # type: ignore[arg-type]
    assert ws.queues.nack(jobs, first.token, delay=30) == "delayed"  # type: ignore[arg-type]
    listed = ws.queues.list(jobs)
    assert [(item.number, item.state, item.token, item.holder) for item in listed] == [
        (1, "delayed", None, None),
        (2, "ready", None, None),
        (3, "ready", None, None),
    ]
    assert listed[0].until == first.created_at + timedelta(seconds=30)
    assert taken(ws, jobs).number == 2
    world.clock.advance(30)
    assert [item.number for item in ws.queues.list(jobs, "ready")] == [1, 3]
    assert (taken(ws, jobs).number, ws.queues.size(jobs)) == (1, QueueSize(1, 0, 2, 0))


# --- dead letters ----------------------------------------------------------------------------------------------------


def test_s4_an_item_delivered_max_deliveries_times_is_a_dead_letter_until_it_is_retried_or_discarded(
    world: World,
) -> None:
    ws = world.open("a")
    jobs = queue(ws, "poison", "bad", "good", value={"max_deliveries": 2})
    for number, end in ((1, "ready"), (1, "dead"), (2, "ready")):
        item = taken(ws, jobs)
        assert (item.number, ws.queues.nack(jobs, item.token, delay=0)) == (number, end)  # type: ignore[arg-type]
    taken(ws, jobs, ttl=5)
    world.clock.advance(5)
    assert [(item.value, item.deliveries) for item in ws.queues.list(jobs, "dead")] == [("poison", 2), ("bad", 2)]
    assert (ws.queues.size(jobs), values(ws.queues.list(jobs, "ready"))) == (QueueSize(1, 0, 0, 2), ["good"])
    assert ws.queues.retry(jobs, 2) == 1
    item = taken(ws, jobs)
    assert (item.value, item.deliveries) == ("bad", 1)
    refused(ws, errors.NotFound, lambda: ws.queues.discard(jobs, 2))
    assert (ws.queues.discard(jobs), ws.queues.discard(jobs), ws.queues.retry(jobs)) == (1, 0, 0)
    assert ws.queues.size(jobs) == QueueSize(1, 0, 1, 0)


def test_s4_five_deliveries_unless_the_queue_says_otherwise_which_is_a_version_of_its_stash(world: World) -> None:
    ws = world.open("a")
    jobs = queue(ws, "x", "y")
    states = [ws.queues.nack(jobs, taken(ws, jobs).token) for _ in range(5)]  # type: ignore[arg-type]
    assert states == ["ready"] * 4 + ["dead"]
    assert ws.stashes.set_value(jobs, {"max_deliveries": 1}).version == 2
    assert ws.queues.nack(jobs, taken(ws, jobs).token) == "dead"  # type: ignore[arg-type]
    assert ws.queues.retry(jobs) == 2
    assert [item.number for item in ws.queues.list(jobs)] == [1, 2]


# --- waiting ---------------------------------------------------------------------------------------------------------


def test_s4_a_caller_that_waits_gets_what_is_put_given_back_or_expires(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    jobs = queue(ws)
    waiter = Background(lambda: other.queues.take(jobs, wait=600))
    ws.queues.put(jobs, "fresh")
    first = waiter.result()
    assert first is not None
    assert (first.value, first.holder) == ("fresh", "b")
    waiter = Background(lambda: ws.queues.take(jobs, wait=600))
    other.queues.nack(jobs, first.token)  # type: ignore[arg-type]
    second = waiter.result()
    assert second is not None
    assert (second.number, second.deliveries, second.holder) == (1, 2, "a")
    assert other.queues.take(jobs, wait=0) is None


def test_s4_a_caller_that_waits_in_vain_gets_nothing_and_one_in_a_transaction_may_not_wait(world: World) -> None:
    ws = world.open("a")
    jobs = queue(ws)
    assert ws.queues.take(jobs, wait=0) is None
    refused(ws, errors.Invalid, lambda: ws.txn([], [Op("queues.take", {"id": jobs, "wait": 1})]))
    refused(ws, errors.NotFound, lambda: ws.queues.take("no-such-queue", wait=1))
    refused(ws, errors.Invalid, lambda: ws.queues.take(jobs, wait=-1))


def test_s4_callers_at_once_never_get_the_same_item(world: World) -> None:
    ws = world.open("a")
    jobs = queue(ws, *range(12))
    handles = [world.open(f"agent-{number}") for number in range(4)]

    def work(handle: Workspace) -> list[int]:
        got = []
        while (item := handle.queues.take(jobs)) is not None:
            got.append(item.number)
            handle.queues.ack(jobs, item.token)  # type: ignore[arg-type]
        return got

    answers = together(*(partial(work, handle) for handle in handles))
    assert sorted(number for each in answers for number in each) == list(range(1, 13))
    assert all(each == sorted(each) for each in answers)
    assert ws.queues.size(jobs) == QueueSize(0, 0, 0, 0)


# --- with the rest ---------------------------------------------------------------------------------------------------


def test_s4_a_queue_takes_part_in_transactions_keys_and_fences(world: World) -> None:
    ws = world.open("a")
    jobs = queue(ws)
    result = ws.txn(
        [NotExists("cell", ("run", "done"))],
        [Op("queues.put", {"id": jobs, "value": 1}), Op("cells.set", {"run": "run", "cell": "done", "value": 1})],
    )
    assert result.results == [1, 1]
    keyed = ws.using(key="once")
    first = keyed.queues.take(jobs)
    assert first is not None
    assert keyed.queues.take(jobs) == first
    with pytest.raises(errors.HoldfastError):
        ws.txn([], [Op("queues.ack", {"id": jobs, "token": first.token}), Op("cells.get", {"run": "x", "cell": "y"})])
    assert ws.queues.size(jobs).taken == 1
    grant = ws.locks.acquire("door", ttl=10)
    fenced = ws.using(fence=("door", grant.token))
    assert fenced.queues.ack(jobs, first.token) == 1  # type: ignore[arg-type]
    world.clock.advance(10)
    with pytest.raises(errors.Fenced):
        fenced.queues.put(jobs, 2)
    assert ws.queues.size(jobs) == QueueSize(0, 0, 0, 0)


def test_s4_a_fence_by_a_queue_with_a_token_of_no_item_says_so(world: World) -> None:
    ws = world.open("a")
    jobs = queue(ws, 1)
    item = taken(ws, jobs)
    assert item.token is not None
    token = item.token + 1
    refusal = refused(ws, errors.Fenced, lambda: ws.using(fence=(jobs, token)).cells.set("run", "x", 1))
    assert refusal.message == f"no item of the queue 'jobs' is taken with the token {token}"


def test_s4_c15_an_item_that_is_taken_is_a_fence_for_any_write_of_its_holder(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    trail = ws.trails.create("trail").id
    jobs = queue(ws, 1, 2, trail=trail)
    item, theirs = taken(ws, jobs, ttl=10), taken(other, jobs)
    assert item.token is not None
    for name in (jobs, (trail, "jobs"), f"{trail}/jobs"):
        assert ws.using(fence=(name, item.token)).cells.increment("run", "done") > 0
    refused(ws, errors.NotHolder, lambda: other.using(fence=(jobs, item.token)).cells.set("run", "x", 1))  # type: ignore[arg-type]
    refused(ws, errors.NotHolder, lambda: ws.using(fence=(jobs, theirs.token)).cells.set("run", "x", 1))  # type: ignore[arg-type]
    world.clock.advance(10)
    assert ws.queues.size(jobs).taken == 1
    refused(ws, errors.Fenced, lambda: ws.using(fence=(jobs, item.token)).cells.set("run", "x", 1))  # type: ignore[arg-type]
    assert ws.cells.get("run", "done").value == 3


@pytest.mark.kinds("drawn")
def test_s4_s12_a_queue_goes_with_its_trail_and_comes_back_with_its_items(world: World) -> None:
    ws = world.open("a")
    trail = ws.trails.create("trail", "active").id
    jobs = queue(ws, 1, 2, trail=trail)
    item = taken(ws, (trail, "jobs"), ttl=10)
    ws.trails.abandon(trail)
    refused(ws, errors.NotFound, lambda: ws.queues.ack(jobs, item.token))  # type: ignore[arg-type]
    world.clock.advance(10)
    ws.trails.restore(trail)
    assert [(each.number, each.state, each.deliveries) for each in ws.queues.list((trail, "jobs"))] == [
        (1, "ready", 1),
        (2, "ready", 0),
    ]


@pytest.mark.kinds("drawn")
def test_s8_s10_a_queue_that_is_deleted_or_expires_takes_its_items_along_and_blanks_its_events(world: World) -> None:
    ws = world.open("a")
    jobs, brief = queue(ws, "secret", "b"), queue(ws, "c", name="brief", ttl=5)
    taken(ws, jobs)
    taken(ws, brief)
    ws.stashes.delete(jobs)
    world.clock.advance(5)
    assert ws.stashes.list() == []
    for id, end in ((jobs, "delete"), (brief, "expire")):
        refused(ws, errors.NotFound, partial(ws.queues.put, id, 1))
        told = [(event.op, event.redacted) for event in ws.events.list(kinds=["queue"], id=id)]
        assert told == [("put", True), ("take", True), (end, False)]
    assert ws.check().records["queue_items"] == 0
    again = queue(ws, "new")
    assert [item.number for item in ws.queues.list(again)] == [1]


@pytest.mark.kinds("drawn")
def test_s4_pop_removes_the_last_ready_item_for_good(world: World) -> None:
    ws = world.open("a")
    jobs = queue(ws, 1, 2, 3)
    first = taken(ws, jobs)
    assert [(item.number, item.value, item.state) for item in [ws.queues.pop(jobs)] if item] == [(3, 3, "ready")]
    ws.queues.put(jobs, 4)  # numbers are not given twice
    assert [item.number for item in ws.queues.list(jobs)] == [1, 2, 4]
    assert [item and item.value for item in (ws.queues.pop(jobs), ws.queues.pop(jobs), ws.queues.pop(jobs))] == [
        4,
        2,
        None,
    ]
    ws.queues.nack(jobs, first.token)  # type: ignore[arg-type]
    assert [item.value for item in [ws.queues.pop(jobs)] if item] == [1]
    assert ws.queues.size(jobs) == QueueSize(0, 0, 0, 0)
    assert ws.queues.pop(queue(ws, name="never-used")) is None
    assert "pop" in {event.op for event in ws.events.list(kinds=["queue"], id=jobs)}
    assert ws.check().problems == []


@pytest.mark.kinds("drawn")
def test_s4_what_is_no_queue_and_what_is_no_item_is_refused(world: World) -> None:
    ws = world.open("a")
    jobs, counter = queue(ws, 1), ws.stashes.create("n", "counter").id
    calls: list[Any] = [
        partial(ws.queues.put, value=1),
        partial(ws.queues.put_all, values=[1]),
        ws.queues.take,
        partial(ws.queues.ack, token=1),
        ws.queues.size,
        ws.queues.list,
        ws.queues.pop,
        ws.queues.retry,
        ws.queues.discard,
    ]
    for call in calls:
        refused(ws, errors.InvalidStashType, partial(call, counter))
        refused(ws, errors.NotFound, partial(call, (None, "none")))
    refused(ws, errors.InvalidStashType, lambda: ws.stashes.increment(jobs))
    bad: Any
    for bad in ([], {"max_deliveries": 0}, {"max_deliveries": "5"}, {"items": []}, {"max_deliveries": 1001}):
        refused(ws, errors.InvalidValue, partial(ws.stashes.set_value, jobs, bad))
    for bad in (float("nan"), 2**64):
        refused(ws, errors.InvalidValue, partial(ws.queues.put, jobs, bad))
    refused(ws, errors.InvalidValue, lambda: ws.queues.put_all(jobs, [1, 2**64]))
    refused(ws, errors.TooLarge, lambda: ws.queues.put_all(jobs, [0] * 1001))
    refused(ws, errors.InvalidName, lambda: ws.queues.put(jobs, 1, key=""))
    for bad in (0, -1):
        refused(ws, errors.Invalid, partial(ws.queues.take, jobs, ttl=bad))
        refused(ws, errors.Invalid, partial(ws.queues.discard, jobs, bad))
    refused(ws, errors.InvalidFilter, lambda: ws.queues.list(jobs, "lost"))  # type: ignore[arg-type]
    refused(ws, errors.InvalidFilter, lambda: ws.queues.list(jobs, after=-1))
    assert (ws.queues.size(jobs), ws.queues.put_all(jobs, [])) == (QueueSize(1, 0, 0, 0), [])


@pytest.mark.kinds("drawn")
def test_s4_a_list_goes_on_after_its_last_number_and_an_old_log_says_what_is_left(world: World) -> None:
    ws = world.open("a")
    jobs = queue(ws, *range(5))
    page = ws.queues.list(jobs, limit=2)
    assert (values(page), page.cursor) == ([0, 1], "2")
    assert values(ws.queues.list(jobs, after=2)) == [2, 3, 4]
    for _ in range(3):
        ws.queues.ack(jobs, taken(ws, jobs).token)  # type: ignore[arg-type]
    ws.events.compact(ws.revision + 1)
    assert (ws.check().problems, values(ws.queues.list(jobs))) == ([], [3, 4])
    assert ws.queues.put(jobs, 5) == 6
