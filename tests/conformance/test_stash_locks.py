"""Stashes that are locks (S2, S5, S10): one holder at a time, entered again, waited for, expired, and fenced.

They are locks like any other; what is theirs alone is that every step of a lock is a version of its stash.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from holdfast import Op, ValueEquals, VersionEquals, Workspace, errors
from holdfast.types import Grant
from holdfast.types.stashes import Stash
from holdfast.workspace.context import derive_actor
from tests.conformance.test_stashes import entries, refused
from tests.conformance.test_waiting import Background, queue_up
from tests.worlds.kinds import World


def lock(ws: Workspace, name: str = "door", **more: Any) -> Stash:
    """A lock that nobody holds."""
    return ws.stashes.create(name, "lock", **more)


def steps(ws: Workspace, id: Any) -> list[tuple[str, str | None]]:
    """What was done with a lock, and who held it then."""
    return [(op, value and value["holder"]) for op, _, value in entries(ws, id)]


# --- taking and giving back ------------------------------------------------------------------------------------------


def test_s10_a_lock_that_is_held_says_by_whom_since_when_until_when_and_with_which_token(world: World) -> None:
    ws = world.open("a")
    door = lock(ws)
    assert door.value is None
    world.clock.advance(5)
    grant = ws.stashes.acquire(door.id, ttl=30)
    held = ws.stashes.get(door.id)
    since = grant.acquired_at.isoformat().replace("+00:00", "Z")
    assert (grant.holder, grant.expires_at) == ("a", grant.acquired_at + timedelta(seconds=30))
    assert held.value == {"holder": "a", "acquired_at": since}
    assert (held.token, held.held_until, held.version) == (grant.token, grant.expires_at, 2)
    assert ws.stashes.list("lock") == [held]
    assert ws.stashes.release(door.id) == 3
    free = ws.stashes.get(door.id)
    assert (free.value, free.token, free.held_until, free.version) == (None, None, None, 3)


def test_s10_a_lock_of_another_is_held_and_only_the_holder_gives_it_back(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    door = lock(ws)
    grant = ws.stashes.acquire(door.id)
    error = refused(ws, errors.Held, lambda: other.stashes.acquire(door.id))
    assert (error.holder, error.until) == ("a", None)
    for token in (None, grant.token):
        error = refused(ws, errors.NotHolder, partial(other.stashes.release, door.id, token=token))
        assert error.holder == "a"
    ws.stashes.release(door.id)
    for handle in (ws, other):
        refused(ws, errors.NotHolder, partial(handle.stashes.release, door.id))
    assert other.stashes.acquire(door.id).token > grant.token
    assert steps(ws, door.id) == [("create", None), ("acquire", "a"), ("release", None), ("acquire", "b")]


def test_s5_s10_entering_again_is_a_version_keeps_the_token_and_the_later_end_and_one_release_frees(
    world: World,
) -> None:
    ws = world.open("a")
    door = lock(ws)
    first = ws.stashes.acquire(door.id, ttl=30)
    world.clock.advance(10)
    assert ws.stashes.acquire(door.id, ttl=5) == first
    longer = ws.stashes.acquire(door.id, ttl=60)
    assert (longer.token, longer.acquired_at) == (first.token, first.acquired_at)
    assert longer.expires_at == first.acquired_at + timedelta(seconds=70)
    assert ws.stashes.get(door.id).version == 4
    assert ws.stashes.release(door.id, token=first.token) == 5
    assert [value for _, _, value in entries(ws, door.id)[1:4]] == [entries(ws, door.id)[1][2]] * 3


def test_s9_the_history_of_a_lock_names_the_crumb_that_took_it_and_the_one_that_gave_it_back(world: World) -> None:
    ws = world.open("a")
    crumbs = [ws.tasks.create(f"crumb {number}").id for number in range(4)]
    door = lock(ws, changed_by=crumbs[0])
    ws.stashes.acquire(door.id, changed_by=crumbs[1])
    ws.stashes.release(door.id, changed_by=crumbs[2])
    ws.stashes.acquire(door.id, ttl=5, changed_by=crumbs[3])
    world.clock.advance(5)
    assert [(each.operation, each.changed_by) for each in ws.stashes.history(door.id)][:4] == list(
        zip(("create", "acquire", "release", "acquire"), crumbs, strict=True)
    )
    ws.stashes.list()  # by now its end is in the log
    assert [(each.operation, each.changed_by) for each in ws.stashes.history(door.id)][4:] == [("expire", None)]


def test_s10_the_holder_is_the_actor_or_the_one_named_and_never_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_ACTOR", raising=False)
    ws = world.open("a")
    door = lock(ws)
    unnamed = ws.using(actor=derive_actor()).stashes
    for call in (unnamed.acquire, unnamed.release):
        refused(ws, errors.InvalidHolder, partial(call, door.id))
    for call in (ws.stashes.acquire, ws.stashes.release):
        refused(ws, errors.InvalidHolder, partial(call, door.id, ""))
        bad: Any
        for bad in (7, "a\0b", "x" * 513, "system"):
            with pytest.raises(errors.InvalidName):
                call(door.id, bad)
    assert ws.stashes.acquire(door.id, "worker-1").holder == "worker-1"
    refused(ws, errors.NotHolder, lambda: ws.stashes.release(door.id))
    assert ws.stashes.release(door.id, "worker-1") == 3


@pytest.mark.parametrize("stash_type", ["resource", "artifact", "context", "counter"])
def test_s4_only_a_lock_can_be_taken_or_given_back(world: World, stash_type: Any) -> None:
    ws = world.open()
    made = ws.stashes.create("it", stash_type)
    refused(ws, errors.InvalidStashType, lambda: ws.stashes.acquire(made.id))
    refused(ws, errors.InvalidStashType, lambda: ws.stashes.acquire(made.id, wait=5))
    refused(ws, errors.InvalidStashType, lambda: ws.stashes.release(made.id))
    assert ws.stashes.get(made.id) == made


def test_s10_a_lock_of_a_stash_is_no_plain_lock_of_that_name(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    door = lock(ws)
    ws.stashes.acquire(door.id)
    assert other.locks.acquire(door.id).holder == "b"
    assert other.locks.acquire("door").holder == "b"
    refused(ws, errors.Held, lambda: other.stashes.acquire(door.id))
    assert [grant.name for grant in ws.locks.list()] == sorted([door.id, "door"])


def test_s2_of_many_who_try_at_once_exactly_one_gets_the_lock_in_every_round(world: World) -> None:
    handles = [world.open(f"agent-{number}") for number in range(6)]
    door = lock(handles[0])

    def attempt(ws: Workspace) -> Grant | None:
        try:
            return ws.stashes.acquire(door.id, ttl=60)
        except errors.Held:
            return None

    tokens = []
    for _ in range(5):
        agents = [Background(partial(attempt, ws)) for ws in handles]
        (grant,) = (grant for grant in [agent.result() for agent in agents] if grant is not None)
        assert handles[0].stashes.get(door.id).token == grant.token
        handles[0].stashes.release(door.id, grant.holder, grant.token)
        tokens.append(grant.token)
    assert tokens == sorted(set(tokens))
    assert [op for op, _, _ in entries(handles[0], door.id)] == ["create", *("acquire", "release") * 5]


# --- expiry and zombies ----------------------------------------------------------------------------------------------


def test_s10_a_holder_that_expired_is_swept_and_the_history_says_so(world: World) -> None:
    ws = world.open("a")
    door = lock(ws)
    ws.stashes.acquire(door.id, ttl=30)
    world.clock.advance(29.999999)
    assert ws.stashes.get(door.id).value["holder"] == "a"
    world.clock.advance(0.000001)
    seen = ws.stashes.get(door.id)
    assert (seen.value, seen.token, seen.held_until) == (None, None, None)
    (swept,) = ws.stashes.list()
    assert (swept.value, swept.version) == (None, 3)
    assert steps(ws, door.id) == [("create", None), ("acquire", "a"), ("expire", None)]
    assert ws.events.list(kinds=["stash"], id=door.id)[-1].actor == "system"


def test_s10_a_zombie_is_fenced_when_it_gives_back_what_another_holds(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    door, data = lock(ws), ws.stashes.create("data", "context", {"by": None})
    late = ws.stashes.acquire(door.id, ttl=10)
    seen = ws.stashes.get(door.id).version
    world.clock.advance(10)
    grant = other.stashes.acquire(door.id, ttl=10)
    error = refused(other, errors.Fenced, lambda: ws.stashes.release(door.id, token=late.token))
    assert error.current == grant.token
    refused(other, errors.NotHolder, lambda: ws.stashes.release(door.id))
    write = [Op("stashes.set_value", {"id": data.id, "value": {"by": "a"}})]
    for condition in (VersionEquals("stash", door.id, seen), ValueEquals("stash", door.id, {"holder": "a"})):
        assert not ws.txn([condition], write).succeeded
    assert (other.stashes.get(door.id).token, other.stashes.get(data.id)) == (grant.token, data)


def test_s10_a_token_that_is_lost_or_another_is_fenced_and_takes_nothing(world: World) -> None:
    ws = world.open("a")
    door = lock(ws)
    first = ws.stashes.acquire(door.id, ttl=30)
    for off in (-1, 1):
        error = refused(ws, errors.Fenced, partial(ws.stashes.release, door.id, token=first.token + off))
        assert error.current == first.token
    ws.stashes.release(door.id)
    error = refused(ws, errors.Fenced, lambda: ws.stashes.release(door.id, token=first.token))
    assert error.current is None
    second = ws.stashes.acquire(door.id, ttl=30)
    refused(ws, errors.Fenced, lambda: ws.stashes.release(door.id, token=first.token))
    assert ws.stashes.get(door.id).token == second.token > first.token


# --- waiting ---------------------------------------------------------------------------------------------------------


def waiter(ws: Workspace, door: Stash, handle: Workspace, wait: float = 1000) -> Background[Grant]:
    """Somebody who stands in line for a lock."""
    return queue_up(ws, lambda: handle.stashes.acquire(door.id, wait=wait), door.id, "stash-lock")


def test_s10_who_waits_gets_the_lock_in_order_when_it_is_given_back_or_expires(world: World) -> None:
    ws, second, third = world.open("a"), world.open("b"), world.open("c")
    door = lock(ws)
    ws.stashes.acquire(door.id)
    waiters = [waiter(ws, door, second), waiter(ws, door, third)]
    refused(ws, errors.Held, lambda: world.open("d").stashes.acquire(door.id))
    ws.stashes.release(door.id)
    grant = waiters[0].result()
    second.stashes.acquire(door.id, ttl=5)  # the end is not until then: the lock stays until it is given back
    second.stashes.release(door.id, token=grant.token)
    assert waiters[1].result().holder == "c"
    assert ws.stashes.get(door.id).value["holder"] == "c"
    assert steps(ws, door.id) == [
        *(("create", None), ("acquire", "a"), ("release", None), ("acquire", "b"), ("acquire", "b")),
        *(("release", None), ("acquire", "c")),
    ]


def test_s10_the_end_of_its_holder_wakes_who_waits(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    door = lock(ws)
    ws.stashes.acquire(door.id, ttl=5)
    waiting = waiter(ws, door, other)
    world.clock.advance(5)
    assert waiting.result().holder == "b"
    assert steps(ws, door.id) == [("create", None), ("acquire", "a"), ("expire", None), ("acquire", "b")]


def test_s10_who_has_waited_long_enough_gets_held_and_leaves_no_trace_in_the_stash(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    door = lock(ws)
    ws.stashes.acquire(door.id)
    waiting = waiter(ws, door, other, wait=5)
    world.clock.advance(5)
    with pytest.raises(errors.Held):
        waiting.result()
    with pytest.raises(errors.Held):
        other.stashes.acquire(door.id, wait=0)
    assert (ws.stashes.get(door.id).version, ws.check().records["waiters"]) == (2, 0)


def test_s8_s10_who_waits_for_a_lock_that_ends_with_its_holder_is_told_that_it_is_gone(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    door = lock(ws, ttl=5)
    ws.stashes.acquire(door.id)
    waiting = waiter(ws, door, other)
    world.clock.advance(5)
    with pytest.raises(errors.NotFound):
        waiting.result()
    assert ws.check().records["waiters"] == 0


@pytest.mark.parametrize("wait", [-1, float("nan"), "5", True], ids=repr)
def test_s10_a_wait_that_is_no_duration_is_refused(world: World, wait: Any) -> None:
    ws = world.open()
    door = lock(ws)
    refused(ws, errors.Invalid, lambda: ws.stashes.acquire(door.id, wait=wait))
    assert ws.stashes.get(door.id) == door


def test_s2_s10_a_lock_that_has_expired_is_read_as_a_save_will_find_it(world: World) -> None:
    """Also if nobody has swept it yet: the value that is read and the version belong together."""
    ws = world.open()
    door = lock(ws)
    ws.stashes.acquire(door.id, "ann", ttl=5)
    world.clock.advance(6)
    for read in (ws.stashes.get(door.id), ws.stashes.find("door"), *ws.stashes.list()):
        assert read is not None
        assert (read.value, read.version, read.token, read.held_until) == (None, 3, None, None)
    read = ws.stashes.get(door.id)
    saved = ws.stashes.save(door.id, read.version, read.version + 1, "acquire", holder="bob")
    assert (saved.version, saved.value["holder"]) == (4, "bob")
    assert [(op, version) for op, version, _ in entries(ws, door.id)] == [
        *(("create", 1), ("acquire", 2), ("expire", 3), ("acquire", 4))
    ]
