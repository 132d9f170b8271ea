"""Locks (C14): one holder at a time, entered again, refreshed, released, expired; plain names and cells apart."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from holdfast import errors
from holdfast.workspace import Workspace
from holdfast.workspace.context import derive_actor
from tests.conformance.test_waiting import Background
from tests.worlds.kinds import World

# --- taking ----------------------------------------------------------------------------------------------------------


def test_c14_a_grant_says_name_holder_token_and_times(world: World) -> None:
    ws = world.open()
    grant = ws.locks.acquire("door", "agent-1", ttl=30)
    assert (grant.name, grant.holder, grant.scope) == ("door", "agent-1", "")
    assert grant.token > 0
    assert grant.expires_at == grant.acquired_at + timedelta(seconds=30)
    assert ws.locks.get("door") == ws.locks.find("door") == grant


def test_c14_a_lock_held_by_another_is_held_at_once_with_holder_and_until(world: World) -> None:
    ws = world.open("a")
    grant = ws.locks.acquire("door", ttl=30)
    before = ws.revision
    with pytest.raises(errors.Held) as refused:
        world.open("b").locks.acquire("door", ttl=30)
    assert (refused.value.holder, refused.value.until) == ("a", grant.expires_at)
    assert (ws.revision, ws.locks.get("door")) == (before, grant)


def test_c14_a_lock_without_a_ttl_is_held_until_it_is_released(world: World) -> None:
    ws = world.open("a")
    assert ws.locks.acquire("door").expires_at is None
    world.clock.advance(50 * 365 * 86400)
    with pytest.raises(errors.Held) as refused:
        world.open("b").locks.acquire("door")
    assert (refused.value.holder, refused.value.until) == ("a", None)
    assert ws.locks.release("door")
    assert world.open("b").locks.acquire("door").holder == "b"


def test_c14_the_holder_is_the_actor_unless_one_is_named(world: World) -> None:
    ws = world.open("agent-3")
    assert ws.locks.acquire("door").holder == "agent-3"
    assert ws.locks.acquire("gate", "agent-4").holder == "agent-4"


def test_c14_an_actor_that_was_only_derived_must_name_its_holder(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_ACTOR", raising=False)
    ws = world.open().using(actor=derive_actor())
    for call in (ws.locks.acquire, ws.locks.release, ws.locks.refresh):
        with pytest.raises(errors.InvalidHolder):
            call("door")
    with pytest.raises(errors.InvalidHolder):
        ws.cells.acquire_lock("run", "cell")
    assert ws.revision == 0
    assert ws.locks.acquire("door", "named").holder == "named"


def test_c14_of_many_who_try_at_once_exactly_one_gets_the_lock_in_every_round(world: World) -> None:
    handles = [world.open(f"agent-{number}") for number in range(8)]

    def attempt(handle: Workspace) -> int | None:
        try:
            return handle.locks.acquire("door", ttl=60).token
        except errors.Held:
            return None

    tokens = []
    for _ in range(10):
        agents = [Background(partial(attempt, handle)) for handle in handles]
        (token,) = (token for token in [agent.result() for agent in agents] if token is not None)
        tokens.append(token)
        holder = handles[0].locks.get("door").holder
        assert handles[0].locks.release("door", holder, token)
    assert tokens == sorted(set(tokens))


# --- entering again --------------------------------------------------------------------------------------------------


def test_c14_entering_again_keeps_the_token_and_the_later_deadline(world: World) -> None:
    ws = world.open()
    first = ws.locks.acquire("door", ttl=30)
    world.clock.advance(10)
    shorter = ws.locks.acquire("door", ttl=5)
    assert shorter == first, "an earlier end changes nothing"
    longer = ws.locks.acquire("door", ttl=60)
    assert (longer.token, longer.acquired_at) == (first.token, first.acquired_at)
    assert longer.expires_at == first.acquired_at + timedelta(seconds=70)
    assert ws.locks.get("door") == longer


def test_c14_entering_again_counts_nothing_one_release_frees(world: World) -> None:
    ws = world.open("a")
    for _ in range(3):
        ws.locks.acquire("door", ttl=30)
    assert ws.locks.release("door")
    assert ws.locks.find("door") is None
    assert world.open("b").locks.acquire("door").holder == "b"


def test_c14_a_lock_until_released_stays_so_when_entered_with_a_ttl(world: World) -> None:
    ws = world.open()
    first = ws.locks.acquire("door")
    assert ws.locks.acquire("door", ttl=5) == first
    world.clock.advance(5)
    assert ws.locks.get("door") == first


def test_c14_a_lock_with_a_ttl_entered_without_one_is_held_until_released(world: World) -> None:
    ws = world.open()
    first = ws.locks.acquire("door", ttl=30)
    again = ws.locks.acquire("door")
    assert (again.token, again.expires_at) == (first.token, None)
    world.clock.advance(30)
    ws.locks.check("door", first.token)


def test_c14_a_handle_of_the_same_actor_is_the_same_holder(world: World) -> None:
    assert world.open("a").locks.acquire("door").token == world.open("a").locks.acquire("door").token


def test_c14_after_its_expiry_the_old_holder_gets_a_new_token(world: World) -> None:
    ws = world.open()
    first = ws.locks.acquire("door", ttl=30)
    world.clock.advance(30)
    second = ws.locks.acquire("door", ttl=30)
    assert second.token > first.token
    assert second.acquired_at == first.expires_at


# --- releasing -------------------------------------------------------------------------------------------------------


def test_c14_release_frees_the_lock_with_and_without_its_token(world: World) -> None:
    ws = world.open()
    ws.locks.acquire("door")
    assert ws.locks.release("door") is True
    grant = ws.locks.acquire("door")
    assert ws.locks.release("door", token=grant.token) is True
    assert (ws.locks.find("door"), ws.locks.release("door")) == (None, False)


def test_c14_release_by_another_is_refused_and_names_the_holder(world: World) -> None:
    ws = world.open("a")
    grant = ws.locks.acquire("door", ttl=30)
    with pytest.raises(errors.NotHolder) as refused:
        world.open("b").locks.release("door")
    assert refused.value.holder == "a"
    assert ws.locks.get("door") == grant


def test_c14_knowing_the_token_does_not_make_another_the_holder(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    grant = ws.locks.acquire("door", ttl=30)
    with pytest.raises(errors.NotHolder):
        other.locks.release("door", token=grant.token)
    with pytest.raises(errors.NotHolder):
        other.locks.refresh("door", token=grant.token)
    assert ws.locks.get("door") == grant


@pytest.mark.parametrize("off", [-1, 1])
def test_c14_release_and_refresh_with_a_token_that_is_not_the_live_one_are_fenced(world: World, off: int) -> None:
    ws = world.open()
    grant = ws.locks.acquire("door", ttl=30)
    for call in (ws.locks.release, ws.locks.refresh):
        with pytest.raises(errors.Fenced) as refused:
            call("door", token=grant.token + off)
        assert refused.value.current == grant.token
        assert "if that is you, send the token of your latest grant" in refused.value.hint
    assert ws.locks.get("door") == grant


def test_c14_after_its_expiry_release_finds_nothing_and_a_token_is_fenced(world: World) -> None:
    ws = world.open()
    grant = ws.locks.acquire("door", ttl=30)
    world.clock.advance(30)
    with pytest.raises(errors.Fenced) as refused:
        ws.locks.release("door", token=grant.token)
    assert refused.value.current is None
    assert ws.locks.release("door") is False


def test_c14_a_late_release_does_not_free_the_next_holders_lock(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    late = ws.locks.acquire("door", ttl=30)
    world.clock.advance(30)
    grant = other.locks.acquire("door", ttl=30)
    with pytest.raises(errors.Fenced) as refused:
        ws.locks.release("door", token=late.token)
    assert refused.value.current == grant.token
    with pytest.raises(errors.NotHolder):
        ws.locks.release("door")
    assert other.locks.get("door") == grant


# --- refreshing ------------------------------------------------------------------------------------------------------


def test_c14_refresh_renews_by_the_granted_ttl_or_by_a_given_one(world: World) -> None:
    ws = world.open()
    grant = ws.locks.acquire("door", ttl=30)
    world.clock.advance(20)
    renewed = ws.locks.refresh("door", token=grant.token)
    assert renewed.expires_at == grant.acquired_at + timedelta(seconds=50)
    assert (renewed.token, renewed.acquired_at) == (grant.token, grant.acquired_at)
    assert ws.locks.refresh("door", ttl=100).expires_at == grant.acquired_at + timedelta(seconds=120)
    assert ws.locks.refresh("door", ttl=1).expires_at == grant.acquired_at + timedelta(seconds=21)


def test_c14_a_refreshed_lock_outlives_its_first_deadline(world: World) -> None:
    ws = world.open("a")
    grant = ws.locks.acquire("door", ttl=10)
    for _ in range(5):
        world.clock.advance(9)
        ws.locks.refresh("door", token=grant.token)
    ws.locks.check("door", grant.token)
    with pytest.raises(errors.Held):
        world.open("b").locks.acquire("door")


def test_c14_refresh_by_another_is_refused(world: World) -> None:
    ws = world.open("a")
    grant = ws.locks.acquire("door", ttl=30)
    with pytest.raises(errors.NotHolder) as refused:
        world.open("b").locks.refresh("door", ttl=1000)
    assert refused.value.holder == "a"
    assert ws.locks.get("door") == grant


def test_c14_refresh_after_expiry_or_release_is_fenced_and_takes_nothing(world: World) -> None:
    ws = world.open()
    expired = ws.locks.acquire("door", ttl=30)
    world.clock.advance(30)
    released = ws.locks.acquire("gate", ttl=30)
    ws.locks.release("gate")
    for name, token in (("door", expired.token), ("gate", released.token), ("door", None), ("gate", None)):
        with pytest.raises(errors.Fenced) as refused:
            ws.locks.refresh(name, ttl=30, token=token)
        assert refused.value.current is None
    assert ws.locks.list() == []


def test_c14_a_lock_until_released_gets_an_end_only_by_refreshing_with_a_ttl(world: World) -> None:
    ws = world.open()
    grant = ws.locks.acquire("door")
    assert ws.locks.refresh("door") == grant
    assert ws.locks.refresh("door", ttl=5).expires_at == grant.acquired_at + timedelta(seconds=5)
    world.clock.advance(5)
    assert ws.locks.find("door") is None


# --- on a lease ------------------------------------------------------------------------------------------------------


def test_c14_a_lock_on_a_lease_ends_with_the_lease_and_is_refreshed_through_it(world: World) -> None:
    ws = world.open()
    lease = ws.leases.create(30)
    grant = ws.locks.acquire("door", lease=lease.id)
    assert grant.expires_at == lease.expires_at
    for call in (ws.locks.refresh, ws.locks.acquire):
        with pytest.raises(errors.Invalid):
            call("door", ttl=60)
    assert ws.locks.get("door") == grant
    world.clock.advance(20)
    ws.leases.refresh(lease.id)
    assert ws.locks.get("door").expires_at == lease.expires_at + timedelta(seconds=20)


# --- finding ---------------------------------------------------------------------------------------------------------


def test_c14_get_of_a_lock_nobody_holds_is_not_found_and_find_answers_none(world: World) -> None:
    ws = world.open()
    assert ws.locks.find("door") is None
    with pytest.raises(errors.NotFound):
        ws.locks.get("door")


def test_c14_list_shows_held_locks_by_name_with_prefix_and_pages(world: World) -> None:
    ws = world.open()
    for name in ("b-2", "a", "b-1", "c", "b-3"):
        ws.locks.acquire(name, ttl=5 if name == "b-2" else 30)
    ws.cells.acquire_lock("run", "b-4")
    assert [grant.name for grant in ws.locks.list()] == ["a", "b-1", "b-2", "b-3", "c"]
    assert [grant.name for grant in ws.locks.list(prefix="b-", limit=2)] == ["b-1", "b-2"]
    assert [grant.name for grant in ws.locks.list(prefix="b-", limit=2, after="b-2")] == ["b-3"]
    assert ws.locks.list(prefix="d") == []
    world.clock.advance(5)
    assert [grant.name for grant in ws.locks.list(prefix="b-")] == ["b-1", "b-3"]


def test_c14_the_log_tells_who_took_and_left_a_lock(world: World) -> None:
    ws = world.open("a")
    first = ws.locks.acquire("door", ttl=30)
    ws.locks.release("door")
    second = ws.locks.acquire("door", "x", ttl=30)
    world.clock.advance(30)
    events = ws.events.list(kinds=["lock"], id="door")
    assert [(event.op, event.actor, event.version) for event in events] == [
        ("acquire", "a", 1),
        ("release", "a", 2),
        ("acquire", "a", 3),
        ("expire", "system", 4),
    ]
    assert [event.data["holder"] for event in events] == [[None, "a"], ["a", None], [None, "x"], ["x", None]]
    tokens = [first.token, first.token, second.token, second.token]
    assert [max(token or 0 for token in event.data["token"]) for event in events] == tokens


# --- locks of cells --------------------------------------------------------------------------------------------------


def test_c14_the_lock_of_a_cell_is_taken_refreshed_and_released_like_a_name(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    grant = ws.cells.acquire_lock("run", "cell", "a", 30)
    assert (grant.scope, grant.name, grant.holder) == ("run", "cell", "a")
    with pytest.raises(errors.Held) as refused:
        other.cells.acquire_lock("run", "cell", "b", 30)
    assert (refused.value.holder, refused.value.until) == ("a", grant.expires_at)
    assert ws.cells.acquire_lock("run", "cell", ttl=5) == grant
    renewed = ws.cells.refresh_lock("run", "cell", ttl=60, token=grant.token)
    assert (renewed.token, renewed.expires_at) == (grant.token, grant.acquired_at + timedelta(seconds=60))
    with pytest.raises(errors.NotHolder):
        other.cells.refresh_lock("run", "cell", ttl=60)
    with pytest.raises(errors.NotHolder):
        other.cells.release_lock("run", "cell")
    with pytest.raises(errors.Fenced):
        ws.cells.release_lock("run", "cell", token=grant.token + 1)
    assert ws.cells.release_lock("run", "cell", token=grant.token) is True
    assert ws.cells.release_lock("run", "cell") is False
    with pytest.raises(errors.Fenced):
        ws.cells.refresh_lock("run", "cell")


def test_c14_locks_of_cells_and_of_names_are_independent(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    ws.cells.acquire_lock("run", "cell")
    assert other.locks.acquire("cell").holder == "b"
    assert other.locks.acquire("run/cell").holder == "b"
    assert other.cells.acquire_lock("other", "cell").holder == "b"
    assert other.locks.release("cell")
    with pytest.raises(errors.Held):
        other.cells.acquire_lock("run", "cell")


def test_c14_run_and_cell_are_never_joined_into_one_name(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    ws.cells.acquire_lock("a/b", "c")
    assert other.cells.acquire_lock("a", "b/c").holder == "b"


def test_c14_a_cell_can_be_locked_before_it_exists_and_stays_writable(world: World) -> None:
    ws = world.open("a")
    grant = ws.cells.acquire_lock("run", "cell", ttl=30)
    assert world.open("b").cells.set("run", "cell", 1) == 1, "a lock binds those who use it as a fence"
    ws.cells.delete("run", "cell")
    assert ws.cells.acquire_lock("run", "cell", ttl=30).token == grant.token


def test_c14_the_lock_of_a_cell_expires_by_itself(world: World) -> None:
    ws = world.open("a")
    first = ws.cells.acquire_lock("run", "cell", ttl=30)
    world.clock.advance(30)
    assert world.open("b").cells.acquire_lock("run", "cell").token > first.token


# --- bad arguments ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf"), "30", True, 1e12])
def test_c14_a_ttl_that_is_no_duration_is_invalid_and_changes_nothing(world: World, ttl: Any) -> None:
    ws = world.open()
    grant = ws.locks.acquire("mine", ttl=30)
    before = ws.revision
    for call in (
        partial(ws.locks.acquire, "door"),
        partial(ws.locks.acquire, "mine"),
        partial(ws.locks.refresh, "mine"),
        partial(ws.cells.acquire_lock, "run", "cell"),
    ):
        with pytest.raises(errors.Invalid):
            call(ttl=ttl)
    assert (ws.revision, ws.locks.list()) == (before, [grant])


@pytest.mark.parametrize("name", ["", "a\0b", "tab\t", "x" * 513, 7, None])
def test_c14_a_bad_name_or_holder_is_refused_and_changes_nothing(world: World, name: Any) -> None:
    ws = world.open()
    with pytest.raises(errors.InvalidName):
        ws.locks.acquire(name)
    with pytest.raises(errors.InvalidName):
        ws.cells.acquire_lock("run", name)
    if name is not None:
        with pytest.raises(errors.InvalidName):
            ws.locks.acquire("door", name)
    assert ws.revision == 0
