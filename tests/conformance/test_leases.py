"""Leases (C13): cells and locks bound to one live and end with it, in one transaction."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from holdfast import errors
from holdfast.types import Event, Lease
from holdfast.workspace import Workspace
from tests.conformance.test_waiting import Background
from tests.worlds.kinds import World


def _bind(ws: Workspace, lease: Lease) -> None:
    """Two cells, a lock and a cell's lock on a lease."""
    ws.cells.set("run", "one", 1, lease=lease.id)
    ws.cells.set("run", "two", 2, lease=lease.id)
    ws.locks.acquire("door", lease=lease.id)
    ws.cells.acquire_lock("run", "one", lease=lease.id)


def _assert_all_gone_in_one_revision(ws: Workspace, lease: Lease, after: int, op: str, actor: str) -> None:
    events = ws.events.list(after=after)
    assert {(event.revision, event.actor, event.op) for event in events} == {(after + 1, actor, op)}
    assert sorted((event.kind, event.scope, event.id) for event in events) == [
        ("cell", "run", "one"),
        ("cell", "run", "two"),
        ("cell-lock", "run", "one"),
        ("lease", "", lease.id),
        ("lock", "", "door"),
    ]
    assert ws.revision == after + 1
    assert (ws.cells.list("run"), ws.locks.list(), ws.leases.list()) == ([], [], [])
    records = ws.check().records
    assert (records["cells"], records["locks"], records["leases"]) == (0, 0, 0)


# --- making and keeping ----------------------------------------------------------------------------------------------


def test_c13_create_answers_a_lease_with_its_holder_its_ttl_and_its_end(world: World) -> None:
    ws = world.open()
    lease = ws.leases.create(30, holder="agent-7")
    assert (lease.holder, lease.ttl) == ("agent-7", 30)
    assert lease.expires_at - lease.created_at == timedelta(seconds=30)
    assert ws.leases.get(lease.id) == lease
    assert [(event.kind, event.id, event.op) for event in ws.events.list()] == [("lease", lease.id, "create")]


def test_c13_the_holder_of_a_lease_is_the_actor_unless_one_is_named(world: World) -> None:
    assert world.open("agent-3").leases.create(30).holder == "agent-3"


def test_c13_list_shows_the_living_leases_oldest_first_in_full_pages(world: World) -> None:
    ws = world.open()
    made = []
    for number in range(5):
        made.append(ws.leases.create(30 + number))
        world.clock.advance(0.001)  # two processes cannot agree which of two leases of one millisecond is older
    assert ws.leases.list() == made
    page = ws.leases.list(limit=2)
    assert page == made[:2]
    assert ws.leases.list(limit=2, after=page[-1].id) == made[2:4]
    world.clock.advance(32)
    assert ws.leases.list() == made[3:], "what has ended is not listed"


def test_c13_refresh_lets_a_lease_run_for_its_ttl_again_from_now(world: World) -> None:
    ws = world.open()
    lease = ws.leases.create(30)
    world.clock.advance(20)
    renewed = ws.leases.refresh(lease.id)
    assert renewed.expires_at == lease.expires_at + timedelta(seconds=20)
    assert (renewed.id, renewed.ttl, renewed.created_at) == (lease.id, lease.ttl, lease.created_at)
    assert ws.leases.get(lease.id) == renewed


def test_c13_only_its_holder_refreshes_or_revokes_a_lease(world: World) -> None:
    ws, other = world.open("ann"), world.open("bob")
    lease = ws.leases.create(30)
    world.clock.advance(10)
    before = ws.revision
    for call in (other.leases.refresh, other.leases.revoke):
        with pytest.raises(errors.NotHolder) as refusal:
            call(lease.id)
        assert refusal.value.holder == "ann"
        with pytest.raises(errors.InvalidName):
            call(lease.id, "")
    with pytest.raises(errors.NotHolder):
        ws.leases.refresh(lease.id, "bob")
    assert (ws.leases.get(lease.id), ws.revision) == (lease, before)
    assert other.leases.refresh(lease.id, "ann").expires_at == lease.expires_at + timedelta(seconds=10)
    other.leases.revoke(lease.id, holder="ann")
    assert ws.leases.list() == []
    theirs = ws.leases.create(30, holder="bob")
    with pytest.raises(errors.NotHolder):
        ws.leases.revoke(theirs.id)
    other.leases.revoke(theirs.id)


def test_c13_what_is_bound_lives_on_as_long_as_the_lease_is_refreshed(world: World) -> None:
    ws = world.open()
    lease = ws.leases.create(10)
    _bind(ws, lease)
    token = ws.locks.get("door").token
    for _ in range(5):
        world.clock.advance(9)
        ws.leases.refresh(lease.id)
    assert ws.cells.list("run") == ["one", "two"]
    ws.locks.check("door", token)
    assert ws.locks.get("door").expires_at == ws.leases.get(lease.id).expires_at
    assert ws.cells.info("run", "one").expires_at == ws.leases.get(lease.id).expires_at


# --- the end ---------------------------------------------------------------------------------------------------------


def test_c13_revoke_removes_everything_bound_in_one_transaction(world: World) -> None:
    ws = world.open("boss")
    lease = ws.leases.create(30)
    _bind(ws, lease)
    after = ws.revision
    ws.leases.revoke(lease.id)
    _assert_all_gone_in_one_revision(ws, lease, after, "revoke", "boss")


def test_c13_expiry_removes_everything_bound_in_one_transaction(world: World) -> None:
    ws = world.open()
    lease = ws.leases.create(30)
    _bind(ws, lease)
    after = ws.revision
    world.clock.advance(30)
    _assert_all_gone_in_one_revision(ws, lease, after, "expire", "system")


def test_c13_before_the_end_everything_is_there_and_at_the_end_nothing(world: World) -> None:
    ws = world.open()
    lease = ws.leases.create(30)
    _bind(ws, lease)
    world.clock.advance(29.999999)
    assert ws.cells.exists("run", "one")
    assert ws.locks.find("door") is not None
    assert ws.leases.get(lease.id) == lease
    world.clock.advance(0.000001)
    assert not ws.cells.exists("run", "one")
    assert ws.cells.find("run", "two") is None
    assert ws.locks.find("door") is None
    with pytest.raises(errors.NotFound):
        ws.leases.get(lease.id)


def test_c13_of_many_leases_that_end_at_once_each_goes_whole(world: World) -> None:
    ws = world.open()
    for number in range(300):
        lease = ws.leases.create(30)
        ws.cells.set("run", f"{number:03}-a", number, lease=lease.id)
        ws.cells.set("run", f"{number:03}-b", number, lease=lease.id)
    after = ws.revision
    world.clock.advance(30)
    assert ws.cells.list("run") == []
    events: list[Event] = []
    while page := ws.events.list(after=events[-1].cursor if events else after, limit=1000):
        events += page
    assert len(events) == 900
    assert {(event.op, event.actor) for event in events} == {("expire", "system")}
    revisions: dict[str, set[int]] = defaultdict(set)
    for event in events:
        if event.kind == "cell":
            revisions[event.id[:3]].add(event.revision)
    assert len(revisions) == 300
    assert all(len(where) == 1 for where in revisions.values())


def test_c13_only_the_lease_that_ends_takes_its_own_along(world: World) -> None:
    ws = world.open()
    short, long = ws.leases.create(10), ws.leases.create(20)
    ws.cells.set("run", "short", 1, lease=short.id)
    ws.cells.set("run", "long", 1, lease=long.id)
    ws.cells.set("run", "free", 1)
    world.clock.advance(10)
    assert ws.cells.list("run") == ["free", "long"]
    assert ws.leases.list() == [long]


# --- never again -----------------------------------------------------------------------------------------------------


def test_c13_refreshing_an_expired_lease_always_fails_also_when_nobody_swept_it_yet(world: World) -> None:
    ws = world.open()
    lease = ws.leases.create(30)
    _bind(ws, lease)
    world.clock.advance(30)
    for _ in range(3):
        with pytest.raises(errors.NotFound):
            ws.leases.refresh(lease.id)
    assert (ws.cells.list("run"), ws.locks.list(), ws.leases.list()) == ([], [], [])


def test_c13_a_revoked_lease_can_be_neither_refreshed_nor_revoked_nor_bound_to(world: World) -> None:
    ws = world.open()
    lease = ws.leases.create(30)
    ws.leases.revoke(lease.id)
    before = ws.revision
    for call in (ws.leases.refresh, ws.leases.revoke, ws.leases.get):
        with pytest.raises(errors.NotFound):
            call(lease.id)
    with pytest.raises(errors.NotFound):
        ws.cells.set("run", "cell", 1, lease=lease.id)
    with pytest.raises(errors.NotFound):
        ws.locks.acquire("door", lease=lease.id)
    assert ws.revision == before


def test_c13_a_lease_never_renews_after_it_was_swept_however_many_try(world: World) -> None:
    ws = world.open()
    lease = ws.leases.create(1)
    handles = [world.open(f"agent-{number}") for number in range(6)]

    def keep_refreshing(handle: Workspace) -> list[Lease]:
        renewed = []
        while True:
            try:
                renewed.append(handle.leases.refresh(lease.id, lease.holder))
            except errors.NotFound:
                break
        for _ in range(5):
            with pytest.raises(errors.NotFound):
                handle.leases.refresh(lease.id, lease.holder)
        return renewed

    agents = [Background(partial(keep_refreshing, handle)) for handle in handles]
    world.clock.advance(0.5)
    world.clock.advance(1)  # a refresh after the first step may save it from this one
    world.clock.advance(1000)  # but nothing from this
    renewed = [one for agent in agents for one in agent.result()]
    (end,) = (event for event in ws.events.list(kinds=["lease"]) if event.op == "expire")
    assert all(one.expires_at - timedelta(seconds=1) < end.time for one in renewed)
    assert [event.op for event in ws.events.list(kinds=["lease"])] == ["create", "expire"]


# --- binding ---------------------------------------------------------------------------------------------------------


def test_c13_binding_to_an_expired_lease_fails_and_writes_nothing(world: World) -> None:
    ws = world.open()
    lease = ws.leases.create(30)
    ws.cells.set("run", "cell", "old")
    world.clock.advance(30)
    with pytest.raises(errors.NotFound):
        ws.cells.set("run", "cell", "new", lease=lease.id)
    with pytest.raises(errors.NotFound):
        ws.locks.acquire("door", lease=lease.id)
    assert (ws.cells.get("run", "cell").value, ws.locks.list()) == ("old", [])


def test_c13_a_ttl_and_a_lease_together_are_invalid_and_write_nothing(world: World) -> None:
    ws = world.open()
    lease = ws.leases.create(30)
    before = ws.revision
    with pytest.raises(errors.Invalid):
        ws.cells.set("run", "cell", 1, ttl=5, lease=lease.id)
    with pytest.raises(errors.Invalid):
        ws.locks.acquire("door", ttl=5, lease=lease.id)
    assert ws.revision == before


def test_c13_a_cell_written_without_the_lease_is_free_of_it(world: World) -> None:
    ws = world.open()
    lease = ws.leases.create(30)
    ws.cells.set("run", "kept", 1, lease=lease.id)
    ws.cells.set("run", "kept", 2)
    ws.cells.set("run", "timed", 1, lease=lease.id)
    ws.cells.refresh_ttl("run", "timed", 60)
    ws.leases.revoke(lease.id)
    assert ws.cells.list("run") == ["kept", "timed"]
    world.clock.advance(60)
    assert ws.cells.list("run") == ["kept"]


def test_c13_a_cell_that_is_changed_in_place_stays_on_its_lease(world: World) -> None:
    ws = world.open()
    lease = ws.leases.create(30)
    ws.cells.set("run", "cell", 1, lease=lease.id)
    ws.cells.cas("run", "cell", 1, 2)
    ws.cells.increment("run", "cell")
    ws.leases.revoke(lease.id)
    assert ws.cells.find("run", "cell") is None


def test_c13_a_released_lock_and_a_deleted_cell_leave_their_lease_alive(world: World) -> None:
    ws = world.open()
    lease = ws.leases.create(30)
    _bind(ws, lease)
    ws.locks.release("door")
    ws.cells.delete("run", "one")
    assert ws.leases.list() == [lease]
    after = ws.revision
    ws.leases.revoke(lease.id)
    assert sorted((event.kind, event.id) for event in ws.events.list(after=after)) == sorted(
        [("cell", "two"), ("cell-lock", "one"), ("lease", lease.id)]
    )


def test_c13_the_version_of_a_cell_counts_its_expiry_and_goes_on(world: World) -> None:
    ws = world.open()
    lease = ws.leases.create(30)
    ws.cells.set("run", "cell", 1, lease=lease.id)
    ws.leases.revoke(lease.id)
    assert ws.cells.set("run", "cell", 1) == 3


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf"), "30", None, True, 1e12])
def test_c13_a_ttl_that_is_no_duration_is_invalid_and_changes_nothing(world: World, ttl: Any) -> None:
    ws = world.open()
    with pytest.raises(errors.Invalid):
        ws.leases.create(ttl)
    assert (ws.revision, ws.leases.list()) == (0, [])


@pytest.mark.capability("callables")
def test_c13_a_revoke_that_is_rolled_back_takes_nothing_along(world: World) -> None:
    ws = world.open()
    lease = ws.leases.create(30)
    _bind(ws, lease)
    before = ws.revision

    def body(tx: Any) -> None:
        tx.leases.revoke(lease.id)
        assert tx.cells.find("run", "one") is None
        raise LookupError("never mind")

    with pytest.raises(LookupError):
        ws.transact(body)
    assert (ws.revision, ws.cells.list("run"), ws.leases.list()) == (before, ["one", "two"], [lease])
    assert ws.locks.find("door") is not None
