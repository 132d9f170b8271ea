"""Time (design, section 4): it enters in one place, never goes back, and expiry is a write like any other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import errors
from holdfast.clock import FAR_AHEAD
from holdfast.types import Op, as_time
from holdfast.workspace import Workspace
from tests.conformance.test_waiting import comes_true, heard
from tests.worlds.kinds import World

HOUR = 3600


def _wall(world: World) -> datetime:
    return as_time(world.clock.wall())


def _now(ws: Workspace) -> datetime:
    """The workspace's time, as a write finds it."""
    version = ws.cells.set("time", "now", None)
    return ws.cells.at("time", "now", version).updated_at


# --- one now ---------------------------------------------------------------------------------------------------------


def test_times_are_aware_and_those_of_the_clock(world: World) -> None:
    ws = world.open()
    now = _now(ws)
    assert now == _wall(world)
    assert now.tzinfo is UTC
    world.clock.advance(1.5)
    assert _now(ws) == now + timedelta(seconds=1.5)


@pytest.mark.capability("callables")
def test_the_time_of_a_transaction_does_not_move(world: World) -> None:
    ws = world.open()

    def body(tx: Any) -> list[datetime]:
        times = [tx.now]
        tx.cells.set("run", "one", 1)
        world.clock.advance(10)
        tx.cells.set("run", "two", 1, ttl=5)
        times += [tx.now, tx.cells.get("run", "one").updated_at, tx.cells.get("run", "two").updated_at]
        return times

    times = ws.transact(body)
    assert len(set(times)) == 1
    assert {event.time for event in ws.events.list(kinds=["cell"], after=0)[:2]} == set(times)
    assert ws.cells.find("run", "two") is None, "its five seconds were over when it was committed"


@pytest.mark.capability("aio")
@pytest.mark.capability("local")
def test_all_bodies_of_a_group_have_one_now(world: World) -> None:
    ws = world.open()

    def body(tx: Any) -> datetime:
        world.clock.advance(1)
        now: datetime = tx.now
        tx.cells.increment("run", "cell")
        return now

    async def scene() -> list[datetime]:
        return await asyncio.gather(*(ws.aio.transact(body) for _ in range(5)))

    start = _wall(world)
    assert set(asyncio.run(scene())) == {start}
    assert _now(ws) == start + timedelta(seconds=5)


# --- the wall clock jumps --------------------------------------------------------------------------------------------


def test_time_never_goes_back_when_the_wall_clock_does(world: World) -> None:
    ws = world.open()
    times = [_now(ws)]
    for jump in (-1, -60, HOUR, -2 * HOUR, -86400 * 365 * 30, 10):
        world.clock.jump(jump)
        times.append(_now(ws))
        times.append(_now(world.open()))
    assert times == sorted(times)
    stamps = [event.time for event in ws.events.list()]
    assert stamps == sorted(stamps)


def test_after_a_jump_back_time_goes_on_at_the_monotonic_pace(world: World) -> None:
    ws = world.open()
    ws.locks.acquire("door", ttl=30)
    for _ in range(6):
        ws.cells.set("run", "cell", 1)  # whichever process it is, it has seen the last commit
    before = _now(ws)
    world.clock.jump(-HOUR)
    world.clock.advance(29)
    assert ws.locks.find("door") is not None
    world.clock.advance(1)
    assert ws.locks.find("door") is None
    assert _now(ws) == before + timedelta(seconds=30)


def test_a_process_that_only_reads_sees_deadlines_pass_after_a_jump_back(world: World) -> None:
    if world.kind == "memory":
        pytest.skip("the store is gone once it is closed")
    ws = world.open()
    ws.cells.set("run", "cell", 1, ttl=30)
    token = ws.locks.acquire("door", ttl=30).token
    ws.close()
    world.clock.jump(-HOUR)
    reader = world.open()
    for _ in range(6):
        assert reader.cells.exists("run", "cell"), "every process counts from when it first saw the last commit"
    world.clock.advance(30)
    for _ in range(3):
        with pytest.raises(errors.Fenced):
            reader.locks.check("door", token)
        assert not reader.cells.exists("run", "cell")
        assert reader.locks.list() == []


def test_what_expired_after_a_jump_back_is_heard_of_without_other_traffic(world: World) -> None:
    if world.kind == "memory":
        pytest.skip("the store is gone once it is closed")
    ws = world.open()
    ws.locks.acquire("door", ttl=30)
    ws.close()
    world.clock.jump(-60)
    reader = world.open()
    after = reader.revision
    world.clock.advance(90)  # by then also the wall clock has come past the deadline
    assert heard(reader, "expire", "door", after).actor == "system"


def test_what_expires_while_the_wall_clock_is_behind_is_heard_of_without_other_traffic(world: World) -> None:
    if world.kind == "memory":
        pytest.skip("the store is gone once it is closed")
    ws = world.open()
    ws.locks.acquire("door", ttl=30)
    ws.close()
    world.clock.jump(-HOUR)
    reader = world.open()
    after = reader.revision
    # A process counts from when it first saw the last commit, which may be after the first step.
    assert comes_true(lambda: reader.revision > after, lambda: world.clock.advance(30), 4)
    assert heard(reader, "expire", "door", after).actor == "system"


def test_a_jump_forward_ends_leases_early_and_the_fence_keeps_that_safe(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    grant = ws.locks.acquire("door", ttl=HOUR)
    world.clock.jump(2 * HOUR)
    taken = other.locks.acquire("door", ttl=HOUR)
    with pytest.raises(errors.Fenced) as refused:
        ws.using(fence=("door", grant.token)).cells.set("run", "cell", "late")
    assert refused.value.current == taken.token
    world.clock.jump(-2 * HOUR)  # the clock was wrong and is put right: what was taken stays taken
    with pytest.raises(errors.Fenced):
        ws.using(fence=("door", grant.token)).cells.set("run", "cell", "late")
    assert other.using(fence=("door", taken.token)).cells.set("run", "cell", 1) == 1


def test_a_jump_by_years_forward_and_back_leaves_a_sound_store(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "timed", 1, ttl=HOUR)
    ws.cells.set("run", "kept", 1)
    world.clock.jump(20 * 365 * 86400)
    assert ws.cells.list("run") == ["kept"]
    world.clock.jump(-25 * 365 * 86400)
    assert ws.cells.set("run", "timed", 2, ttl=10) == 3
    world.clock.advance(10)
    assert _now(ws) > as_time(world.clock.wall())
    assert ws.cells.list("run") == ["kept"]


# --- far ahead -------------------------------------------------------------------------------------------------------


def test_a_clock_past_every_time_that_can_be_stored_is_refused_for_writes(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", 1)
    now = ws.cells.get("run", "cell").updated_at
    world.clock.jump(400 * 365 * 24 * HOUR)
    with pytest.raises(errors.ClockSkew):
        ws.cells.set("run", "cell", 2)
    assert ws.cells.get("run", "cell").value == 1
    world.clock.jump(-400 * 365 * 24 * HOUR)
    assert ws.cells.set("run", "cell", 3) == 2
    assert ws.cells.get("run", "cell").updated_at >= now
    assert ws.check().ok


@pytest.mark.capability("local")
def test_a_workspace_says_how_far_its_time_is_ahead_of_the_clock(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", 1)
    assert ws.clock_ahead == 0
    world.clock.jump(-HOUR)
    assert ws.clock_ahead == HOUR
    world.clock.advance(100)
    assert ws.clock_ahead == HOUR, "both clocks go on at the same pace"


@pytest.mark.capability("local")
def test_a_workspace_just_opened_says_how_far_its_time_is_ahead(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", 1)
    world.clock.jump(-HOUR)
    assert world.open().clock_ahead == HOUR


def test_reset_accepts_the_present_as_an_event_and_shifts_the_deadlines(world: World) -> None:
    ws = world.open("admin")
    ws.cells.set("run", "cell", 1, ttl=30)
    lease = ws.leases.create(60)
    grant = ws.locks.acquire("door", ttl=HOUR)
    before = _now(ws)
    world.clock.jump(-HOUR)
    left = ws.cells.ttl("run", "cell")
    revision = ws.revision
    assert ws.clock.reset() == _wall(world) == before - timedelta(seconds=HOUR)
    (event,) = ws.events.list(after=revision)
    assert (event.kind, event.op, event.actor) == ("clock", "reset", "admin")
    shift = timedelta(seconds=HOUR)
    for _ in range(3):
        assert ws.locks.get("door").expires_at == (grant.expires_at or before) - shift
        assert ws.leases.get(lease.id).expires_at == lease.expires_at - shift
        assert ws.cells.ttl("run", "cell") == left == 30
        assert _now(ws) == _wall(world)
    ws.locks.check("door", grant.token)
    world.clock.advance(30)
    assert ws.cells.find("run", "cell") is None
    assert ws.locks.find("door") is not None


def test_after_a_reset_with_living_leases_the_store_is_sound(world: World) -> None:
    ws = world.open()
    ws.leases.create(30)
    world.clock.jump(-HOUR)
    ws.clock.reset()
    assert ws.check().problems == []


@pytest.mark.capability("local")
def test_a_reset_is_seen_at_once_by_every_handle(world: World) -> None:
    ws, other = world.open(), world.open()
    ws.cells.set("run", "cell", 1, ttl=30)
    other.cells.set("run", "other", 1)
    world.clock.jump(-HOUR)
    assert (ws.clock_ahead, other.clock_ahead) == (HOUR, HOUR)
    ws.clock.reset()
    assert other.cells.ttl("run", "cell") == 30
    assert (ws.clock_ahead, other.clock_ahead) == (0, 0)


@pytest.mark.parametrize("back", [0, 1, FAR_AHEAD // 1_000_000])
def test_reset_is_refused_when_time_is_not_far_ahead(world: World, back: int) -> None:
    ws = world.open()
    grant = ws.locks.acquire("door", ttl=30)
    before = _now(ws)
    world.clock.jump(-back)
    revision = ws.revision
    with pytest.raises(errors.Invalid):
        ws.clock.reset()
    assert (ws.revision, ws.locks.get("door")) == (revision, grant)
    assert _now(ws) == before


@pytest.mark.capability("callables")
def test_a_refused_reset_leaves_the_time_alone_also_if_the_body_goes_on(world: World) -> None:
    ws = world.open()
    before = _now(ws)
    world.clock.jump(-60)

    def body(tx: Any) -> None:
        with pytest.raises(errors.Invalid):
            tx.clock.reset()
        tx.cells.set("run", "cell", 1)

    ws.transact(body)
    assert _now(ws) == before


@pytest.mark.capability("callables")
def test_inside_the_transaction_of_a_reset_what_is_leased_is_still_there(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", 1, ttl=30)
    world.clock.jump(-HOUR)

    def body(tx: Any) -> float | None:
        tx.clock.reset()
        assert tx.cells.exists("run", "cell")
        left: float | None = tx.cells.ttl("run", "cell")
        return left

    assert ws.transact(body) == 30


def test_a_reset_that_does_not_come_first_in_its_transaction_is_refused_and_nothing_changes(world: World) -> None:
    ws = world.open()
    before = _now(ws)
    world.clock.jump(-HOUR)
    revision = ws.revision
    reset, write = Op("clock.reset", {}), Op("cells.set", {"run": "run", "cell": "cell", "value": 1})
    with pytest.raises(errors.Invalid):
        ws.txn([], [write, reset])
    assert (ws.revision, ws.cells.find("run", "cell"), _now(ws)) == (revision, None, before)
    assert ws.txn([], [reset, write]).succeeded
    assert ws.cells.get("run", "cell").updated_at == _wall(world)


@pytest.mark.capability("local")
def test_every_commit_warns_while_time_is_more_than_5_minutes_ahead(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    ws = world.open()

    def warned() -> int:
        caplog.clear()
        ws.cells.set("run", "cell", 1)
        return sum("ahead of this machine's clock" in record.getMessage() for record in caplog.records)

    assert warned() == 0
    world.clock.jump(-FAR_AHEAD / 1e6)
    assert warned() == 0
    world.clock.jump(-1)
    assert (warned(), warned()) == (1, 1)
    ws.clock.reset()
    assert warned() == 0


# --- expiry ----------------------------------------------------------------------------------------------------------


def test_expiry_is_a_transaction_of_its_own_by_the_system_before_the_write_that_finds_it(world: World) -> None:
    ws = world.open("a")
    ws.cells.set("run", "timed", 1, ttl=30)
    ws.locks.acquire("door", ttl=30)
    after = ws.revision
    world.clock.advance(30)
    ws.cells.set("run", "other", 1)
    events = ws.events.list(after=after)
    assert [(event.revision - after, event.actor, event.op) for event in events] == [
        (1, "system", "expire"),
        (1, "system", "expire"),
        (2, "a", "set"),
    ]
    assert {event.time for event in events} == {_wall(world)}


def test_expiry_is_heard_of_without_other_traffic(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", 1, ttl=30)
    after = ws.revision
    world.clock.advance(30)
    event = heard(ws, "expire", ("run", "cell"), after, "cell")
    assert (event.actor, event.revision, event.version, event.data) == ("system", after + 1, 2, {})


def test_each_deadline_has_its_own_sweep(world: World) -> None:
    ws = world.open()
    after = 3
    for number in (1, 2, 3):
        ws.cells.set("run", f"cell-{number}", 1, ttl=10 * number)
    for number in (1, 2, 3):
        world.clock.advance(10)
        event = heard(ws, "expire", ("run", f"cell-{number}"), after, "cell")
        assert (event.revision, event.time) == (3 + number, _wall(world))


def test_a_write_that_fails_does_not_take_the_sweep_before_it_back(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "timed", 1, ttl=30)
    ws.cells.set("run", "cell", 1)
    after = ws.revision
    world.clock.advance(30)
    with pytest.raises(errors.VersionMismatch):
        ws.cells.cas("run", "cell", 7, 2)
    assert [(event.id, event.op) for event in ws.events.list(after=after)] == [("timed", "expire")]


def test_a_read_of_one_record_past_its_deadline_finds_nothing(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", 1, ttl=30)
    ws.locks.acquire("door", ttl=30)
    lease = ws.leases.create(30)
    world.clock.advance(30)
    assert ws.cells.find("run", "cell") is None
    assert not ws.cells.exists("run", "cell")
    assert not ws.cells.info("run", "cell").exists
    assert ws.locks.find("door") is None
    for missing in (
        lambda: ws.cells.get("run", "cell"),
        lambda: ws.cells.ttl("run", "cell"),
        lambda: ws.locks.get("door"),
        lambda: ws.leases.get(lease.id),
    ):
        with pytest.raises(errors.NotFound):
            missing()


@pytest.mark.capability("local")
def test_a_read_of_one_record_past_its_deadline_finds_nothing_before_any_sweep(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", 1, ttl=30)
    grant = ws.locks.acquire("door", ttl=30)
    lease = ws.leases.create(30)
    ws._engine.pulse.stop()  # nobody sweeps by itself now
    before = ws.revision
    world.clock.advance(30)
    assert (ws.cells.find("run", "cell"), ws.cells.info("run", "cell").exists) == (None, False)
    assert ws.locks.find("door") is None
    with pytest.raises(errors.Fenced):
        ws.locks.check("door", grant.token)
    with pytest.raises(errors.NotFound):
        ws.leases.get(lease.id)
    assert ws.revision == before, "nothing was swept meanwhile"


@pytest.mark.capability("local")
def test_every_list_sweeps_first(world: World) -> None:
    ws = world.open()
    ws._engine.pulse.stop()
    looks: list[Callable[[], list[Any]]] = [
        lambda: ws.cells.list("run"),
        ws.cells.runs,
        ws.locks.list,
        ws.leases.list,
        lambda: [event for event in ws.events.list()[-3:] if event.op != "expire"],
    ]
    for look in looks:
        ws.cells.set("run", "cell", 1, ttl=30)
        ws.locks.acquire("door", ttl=30)
        ws.leases.create(30)
        after = ws.revision
        world.clock.advance(30)
        assert look() == []
        assert ws.revision == after + 1


def test_renewals_emit_nothing_and_take_no_revision(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", 1, ttl=30)
    ws.locks.acquire("door", ttl=30)
    ws.cells.acquire_lock("run", "cell", ttl=30)
    lease = ws.leases.create(30)
    before, events = ws.revision, ws.events.list()
    for _ in range(3):
        world.clock.advance(20)
        assert ws.cells.refresh_ttl("run", "cell", 30)
        ws.locks.refresh("door")
        ws.locks.acquire("door", ttl=30)
        ws.cells.refresh_lock("run", "cell")
        ws.leases.refresh(lease.id)
    assert (ws.revision, ws.events.list()) == (before, events)
    assert ws.cells.get("run", "cell").version == 1


def test_history_is_as_of_now_even_if_it_is_the_first_look_after_an_expiry(world: World) -> None:
    ws = world.open()
    id = ws.tasks.create("claimed").id
    ws.tasks.claim(id, ttl=60)
    ws.cells.set("run", "cell", 1, ttl=60)
    lock = ws.stashes.create("lock", "lock").id
    ws.stashes.acquire(lock, ttl=60)
    world.clock.advance(61)
    assert (ws.tasks.history(id)[0].op, ws.tasks.history(id, field="status")[0].new_value) == ("expire", "open")
    assert ws.cells.history("run", "cell")[0].op == "expire"
    assert ws.stashes.history(lock)[-1].operation == "expire"
