"""How stashes end (S8, S10): deleted with their link and the words of their history, or by themselves after their ttl.

And how they take part in what belongs to every write: transactions, conditions, keys, the log and those who watch it.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from holdfast import Exists, NotExists, Op, Transaction, ValueEquals, VersionEquals, Workspace, errors
from tests.conformance.test_stashes import entries, names, refused
from tests.conformance.test_waiting import heard
from tests.worlds.kinds import World

callables = pytest.mark.capability("callables")
SECRET = {"password": "hunter2"}


def told(ws: Workspace, id: str, kind: str = "stash") -> list[tuple[str, int, bool]]:
    """What the log says of a stash: operation, version, and whether its words are gone."""
    return [(event.op, event.version, event.redacted) for event in ws.events.list(kinds=[kind], id=id, limit=1000)]


# --- deleting --------------------------------------------------------------------------------------------------------


def test_s8_a_deleted_stash_is_gone_with_its_link_and_its_history_is_blank(world: World) -> None:
    ws = world.open()
    trail = ws.trails.create("trail").id
    made = ws.stashes.create("config", "context", SECRET, trail=trail)
    ws.stashes.set_value(made.id, {**SECRET, "more": 1})
    before = ws.revision
    ws.stashes.delete(made.id)
    assert ws.revision == before + 1
    assert (ws.stashes.list(), ws.links.list(), ws.stashes.find("config", trail)) == ([], [], None)
    for call in (ws.stashes.get, ws.stashes.history, ws.stashes.delete):
        refused(ws, errors.NotFound, partial(call, made.id))
    assert told(ws, made.id) == [("create", 1, True), ("set", 2, True), ("delete", 3, False)]
    assert "hunter2" not in str(ws.events.list(limit=1000))


def test_s8_a_name_that_is_free_again_belongs_to_another_stash(world: World) -> None:
    ws = world.open()
    old = ws.stashes.create("config", "context", SECRET)
    ws.stashes.delete(old.id)
    new = ws.stashes.create("config", "counter")
    assert (new.id != old.id, new.version, entries(ws, new.id)) == (True, 1, [("create", 1, {"value": 0})])
    refused(ws, errors.NotFound, lambda: ws.stashes.get(old.id))


def test_s8_a_lock_that_is_held_is_not_deleted(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    trail = ws.trails.create("trail").id
    lock = ws.stashes.create("door", "lock", trail=trail)
    grant = ws.stashes.acquire(lock.id, ttl=30)
    for handle in (ws, other):
        error = refused(ws, errors.Held, partial(handle.stashes.delete, lock.id))
        assert (error.holder, error.until) == ("a", grant.expires_at)
    assert ws.stashes.get(lock.id).value["holder"] == "a"
    assert len(ws.links.list()) == 1
    ws.stashes.release(lock.id)
    other.stashes.delete(lock.id)
    assert (ws.stashes.list(), ws.links.list()) == ([], [])


def test_s8_a_lock_whose_holder_has_expired_is_deleted(world: World) -> None:
    ws = world.open("a")
    lock = ws.stashes.create("door", "lock")
    ws.stashes.acquire(lock.id, ttl=30)
    world.clock.advance(30)
    world.open("b").stashes.delete(lock.id)
    assert ws.stashes.list() == []
    assert [op for op, _, _ in told(ws, lock.id)] == ["create", "acquire", "expire", "delete"]


# --- ttl -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stash_type", ["resource", "artifact", "context", "counter", "lock"])
def test_s10_a_stash_with_a_ttl_ends_by_itself_with_its_link_and_its_words(world: World, stash_type: Any) -> None:
    ws = world.open()
    trail = ws.trails.create("trail").id
    made = ws.stashes.create("it", stash_type, trail=trail, ttl=30)
    assert made.expires_at == made.created_at + timedelta(seconds=30)
    world.clock.advance(29.999999)
    assert ws.stashes.get(made.id) == made
    world.clock.advance(0.000001)
    assert ws.stashes.find("it", trail) is None
    refused_by_time = (ws.stashes.get, ws.stashes.history, ws.stashes.delete)
    for call in refused_by_time:
        with pytest.raises(errors.NotFound):
            call(made.id)
    assert (ws.stashes.list(), ws.links.list()) == ([], [])
    assert told(ws, made.id) == [("create", 1, True), ("expire", 2, False)]
    assert ws.stashes.create("it", "counter", trail=trail).version == 1


def test_s10_a_change_does_not_prolong_a_stash(world: World) -> None:
    ws = world.open()
    made = ws.stashes.create("n", "counter", ttl=30)
    world.clock.advance(20)
    ws.stashes.increment(made.id)
    assert ws.stashes.get(made.id).expires_at == made.expires_at
    world.clock.advance(10)
    assert ws.stashes.list() == []


def test_s10_a_lock_that_ends_by_itself_takes_its_holder_along(world: World) -> None:
    ws = world.open("a")
    lock = ws.stashes.create("door", "lock", ttl=30)
    grant = ws.stashes.acquire(lock.id)
    world.clock.advance(30)
    assert ws.stashes.find("door") is None
    assert ws.stashes.list() == []
    with pytest.raises(errors.NotFound):
        ws.stashes.release(lock.id, token=grant.token)
    assert told(ws, lock.id, "stash-lock") == [("acquire", 1, False), ("expire", 2, False)]
    assert ws.check().records["locks"] == 0


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), "30", True, 1e12], ids=repr)
def test_s10_a_ttl_that_is_no_duration_is_refused(world: World, ttl: Any) -> None:
    ws = world.open()
    refused(ws, errors.Invalid, lambda: ws.stashes.create("it", "context", ttl=ttl))
    lock = ws.stashes.create("door", "lock")
    refused(ws, errors.Invalid, lambda: ws.stashes.acquire(lock.id, ttl=ttl))
    assert ws.stashes.list() == [lock]


# --- in transactions -------------------------------------------------------------------------------------------------


@callables
def test_s3_a_transaction_over_stashes_trails_and_links_is_one_revision_or_nothing(world: World) -> None:
    ws = world.open()
    fails = [True]

    def body(tx: Transaction) -> tuple[str, int]:
        trail = tx.trails.create("trail").id
        task = tx.tasks.create("task").id
        tx.trails.add(trail, task)
        counter = tx.stashes.create("n", "counter", trail=trail)
        tx.stashes.acquire(tx.stashes.create("door", "lock", trail=trail).id, "me")
        with pytest.raises(errors.DuplicateName):
            tx.stashes.create("n", "context", trail=trail)
        with pytest.raises(errors.Held):
            tx.trails.abandon(trail)
        if fails.pop():
            raise ValueError("not yet")
        return trail, tx.stashes.increment(counter.id, 3)

    with pytest.raises(ValueError, match="not yet"):
        ws.transact(body)
    assert (ws.revision, ws.stashes.list(), ws.trails.list(), ws.links.list()) == (0, [], [], [])
    fails.append(False)
    trail, count = ws.transact(body)
    assert (count, names(ws.stashes.list(trail=trail)), ws.revision) == (3, ["n", "door"], 1)
    assert len(ws.trails.members(trail)) == 1


def test_s3_a_txn_does_what_the_calls_do_and_one_refusal_undoes_all(world: World) -> None:
    ws = world.open("a")
    lock, counter = ws.stashes.create("door", "lock"), ws.stashes.create("n", "counter")
    plan = [
        Op("stashes.increment", {"id": counter.id, "delta": 2}),
        Op("stashes.acquire", {"id": lock.id, "ttl": 30}),
        Op("stashes.set_value", {"id": counter.id, "value": {"value": 9}, "expected": 2}),
        Op("stashes.release", {"id": lock.id}),
        Op("stashes.get", {"id": counter.id}),
    ]
    count, grant, changed, version, found = ws.txn([], plan).results
    assert (count, grant.holder, changed.version, version, found) == (2, "a", 3, 3, ws.stashes.get(counter.id))
    before = entries(ws, counter.id)
    refused(ws, errors.NotHolder, lambda: ws.txn([], [*plan[:1], Op("stashes.release", {"id": lock.id})]))
    wait = Op("stashes.acquire", {"id": lock.id, "wait": 1})
    refused(ws, errors.Invalid, lambda: ws.txn([], [*plan[:1], wait]))
    assert entries(ws, counter.id) == before


def test_s3_conditions_see_version_and_value_of_a_stash_and_the_state_of_a_trail(world: World) -> None:
    ws = world.open()

    def true(*conditions: Any) -> bool:
        return ws.txn(list(conditions), []).succeeded

    trail = ws.trails.create("trail").id
    stash = ws.stashes.create("config", "context", {"n": 1}, trail=trail, ttl=30).id
    assert true(Exists("stash", stash), VersionEquals("stash", stash, 1), ValueEquals("stash", stash, {"n": 1}))
    assert true(ValueEquals("trail", trail, "draft"), VersionEquals("trail", trail, 1), NotExists("stash", trail))
    ws.stashes.set_value(stash, None)
    ws.trails.set_state(trail, "active")
    assert true(
        VersionEquals("stash", stash, 2), ValueEquals("stash", stash, None), ValueEquals("trail", trail, "active")
    )
    assert not true(VersionEquals("stash", stash, 1))
    world.clock.advance(30)
    assert true(NotExists("stash", stash))


# --- keys, the log, watching -----------------------------------------------------------------------------------------


def test_s3_a_call_repeated_with_its_key_happens_once_and_answers_the_same(world: World) -> None:
    ws = world.open("a")
    keyed = ws.using(key="k")
    made = keyed.stashes.create("n", "counter")
    assert keyed.stashes.create("n", "counter") == made
    assert [keyed.stashes.increment(made.id) for _ in range(3)] == [1, 1, 1]
    lock = ws.stashes.create("door", "lock")
    grant = keyed.stashes.acquire(lock.id, ttl=30)
    assert keyed.stashes.acquire(lock.id, ttl=30) == grant
    assert ws.stashes.get(lock.id).version == 2
    assert [keyed.stashes.release(lock.id) for _ in range(2)] == [3, 3]
    trail = keyed.trails.create("trail")
    assert keyed.trails.create("trail") == trail
    assert keyed.trails.abandon(trail.id) == keyed.trails.abandon(trail.id)
    refused(ws, errors.Invalid, lambda: keyed.stashes.increment(made.id, 2))
    assert len(ws.trails.list()) == 1


def test_s8_a_key_does_not_keep_what_a_deleted_stash_said(world: World) -> None:
    ws = world.open()
    keyed = ws.using(key="k")
    made = keyed.stashes.create("config", "context", SECRET)
    keyed.stashes.delete(made.id)
    assert keyed.stashes.delete(made.id) is None
    with pytest.raises(errors.NotFound):
        keyed.stashes.create("config", "context", SECRET)
    assert ws.stashes.list() == []


def test_s9_the_log_tells_each_change_of_a_stash_once_and_a_watcher_hears_it(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    trail = ws.trails.create("trail").id
    made = other.stashes.create("n", "counter", trail=trail, changed_by=ws.tasks.create("count").id)
    link = ws.links.list(from_id=made.id)[0]
    ws.stashes.increment(made.id, 5)
    event = heard(ws, "increment", made.id, made.revision, "stash")
    assert (event.actor, event.version, event.data["value"], event.data["changed_by"]) == ("a", 2, {"value": 5}, None)
    assert event.data["id"] == ws.stashes.history(made.id)[1].id
    assert told(ws, made.id) == [("create", 1, False), ("increment", 2, False)]
    (tied,) = ws.events.list(kinds=["link"], id=link.id)
    assert tied.data == {"link_type": "scoped_to", "from_id": made.id, "to_id": trail}
    assert (tied.actor, tied.revision) == ("b", made.revision)
    ws.stashes.delete(made.id)
    gone = heard(ws, "delete", made.id, made.revision, "stash")
    assert heard(ws, "delete", link.id, made.revision, "link").revision == gone.revision
