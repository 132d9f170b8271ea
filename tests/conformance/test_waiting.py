"""Waiting for a lock (C14, `wait=`): in line, served in order, and nobody is blocked by the dead.

Waiters are real threads, tasks and processes; that one has queued is known from its `wait` event, never from time.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from typing import Any, Generic, TypeVar

import pytest

from holdfast import errors
from holdfast.types import Event, Grant, Op
from holdfast.workspace import Workspace
from tests.worlds.kinds import World

R = TypeVar("R")
PATIENCE = 180.0  # real seconds after which a thread that does not answer is called stuck


class Background(Generic[R]):
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], R]) -> None:
        self._future: Future[R] = Future()
        threading.Thread(target=self._run, args=(call,), daemon=True).start()

    def _run(self, call: Callable[[], R]) -> None:
        try:
            self._future.set_result(call())
        except BaseException as error:
            self._future.set_exception(error)

    def result(self) -> R:
        """What the call answered or raised."""
        return self._future.result(PATIENCE)


def heard(ws: Workspace, op: str, id: str | tuple[str, str], after: int, kind: str = "lock") -> Event:
    """Blocks until the log has an event `op` of a lock, after a revision."""
    watch: Any = ws.watch(kinds=[kind], id=id, after=after)
    try:
        found: Event = next(event for event in watch if event.op == op)
        return found
    finally:
        watch.close()


def queue_up(
    ws: Workspace, call: Callable[[], Grant], id: str | tuple[str, str] = "door", kind: str = "lock"
) -> Background[Grant]:
    """Start a waiting call; comes back once it stands in line."""
    after = ws.revision
    waiter = Background(call)
    heard(ws, "wait", id, after, kind)
    return waiter


def ops(ws: Workspace, id: str = "door", kind: str = "lock") -> list[str]:
    """What happened to a lock, in order."""
    return [event.op for event in ws.events.list(kinds=[kind], id=id, limit=1000)]


def comes_true(condition: Callable[[], bool], step: Callable[[], None], rounds: int) -> bool:
    """Whether the condition holds after some round of `step`; for what leaves no event, such as a renewal."""
    for _ in range(rounds):
        step()
        give_up = time.monotonic() + 0.25  # real time for a thread to act in; it decides nothing but when to go on
        while time.monotonic() < give_up:
            if condition():
                return True
            threading.Event().wait(0.001)
    return False


# --- order -----------------------------------------------------------------------------------------------------------


def test_c14_a_free_lock_is_granted_to_a_waiting_caller_at_once(world: World) -> None:
    ws = world.open()
    grant = ws.locks.acquire("door", "a", ttl=30, wait=5)
    assert (grant.holder, ws.locks.get("door")) == ("a", grant)
    assert ws.check().records["waiters"] == 0


def test_c14_release_wakes_the_waiter_and_its_token_is_greater(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    first = ws.locks.acquire("door", ttl=60)
    waiter = queue_up(ws, lambda: other.locks.acquire("door", ttl=60, wait=50))
    ws.locks.release("door")
    second = waiter.result()
    assert second.holder == "b"
    assert second.token > first.token
    assert ops(ws) == ["acquire", "wait", "release", "acquire"]


def test_c14_expiry_wakes_the_waiter_without_other_traffic(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    ws.locks.acquire("door", ttl=5)
    waiter = queue_up(ws, lambda: other.locks.acquire("door", wait=50))
    world.clock.advance(5)
    assert waiter.result().holder == "b"
    assert ops(ws) == ["acquire", "wait", "expire", "acquire"]


def test_c14_revoking_the_lease_wakes_the_waiter(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    lease = ws.leases.create(60)
    ws.locks.acquire("door", lease=lease.id)
    waiter = queue_up(ws, lambda: other.locks.acquire("door", wait=50))
    ws.leases.revoke(lease.id)
    assert waiter.result().holder == "b"
    assert ops(ws) == ["acquire", "wait", "revoke", "acquire"]


def test_c14_waiters_are_served_in_the_order_in_which_they_came(world: World) -> None:
    ws = world.open("first")
    ws.locks.acquire("door")
    served: list[str] = []

    def pass_through(name: str) -> Grant:
        handle = world.open(name)
        grant = handle.locks.acquire("door", wait=1000)
        served.append(name)  # alone inside: nobody else holds the lock
        handle.locks.release("door", token=grant.token)
        return grant

    names = [f"w{number}" for number in range(6)]
    waiters = [queue_up(ws, partial(pass_through, name)) for name in names]
    ws.locks.release("door")
    tokens = [waiter.result().token for waiter in waiters]
    assert served == names
    assert tokens == sorted(set(tokens))


def test_c14_only_the_oldest_live_waiter_may_take_a_free_lock_others_get_held(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    ws.locks.acquire("door")
    since = ws.events.list(kinds=["lock"])[-1].time
    waiter = queue_up(ws, lambda: other.locks.acquire("door", wait=1000))
    push_in = [Op("locks.release", {"name": "door"}), Op("locks.acquire", {"name": "door", "holder": "c"})]
    with pytest.raises(errors.Held) as refused:
        ws.txn([], push_in)
    assert refused.value.holder == "b"
    assert refused.value.message.startswith("door is free, but b is first in the queue until ")
    assert refused.value.until == since + timedelta(seconds=10)
    assert ws.locks.get("door").holder == "a", "the refused transaction released nothing"
    ws.locks.release("door")
    assert waiter.result().holder == "b"


def test_c14_the_holder_enters_again_although_others_wait(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    grant = ws.locks.acquire("door", ttl=60)
    waiter = queue_up(ws, lambda: other.locks.acquire("door", wait=1000))
    assert ws.locks.acquire("door", ttl=90).token == grant.token
    ws.locks.release("door")
    assert waiter.result().holder == "b"


def test_c14_who_waits_for_its_own_lock_enters_again_at_once(world: World) -> None:
    ws = world.open("a")
    grant = ws.locks.acquire("door", ttl=60)
    assert ws.locks.acquire("door", ttl=60, wait=5).token == grant.token
    assert ws.check().records["waiters"] == 0


def test_c14_waiting_for_the_lock_of_a_cell_works_alike(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    ws.cells.acquire_lock("run", "cell")
    ws.locks.acquire("cell", "somebody")  # a plain lock of that name is in nobody's way
    waiter = queue_up(ws, lambda: other.cells.acquire_lock("run", "cell", wait=100), ("run", "cell"), "cell-lock")
    ws.cells.release_lock("run", "cell")
    grant = waiter.result()
    assert (grant.scope, grant.name, grant.holder) == ("run", "cell", "b")


# --- leaving the line ------------------------------------------------------------------------------------------------


def test_c14_a_waiter_that_times_out_gets_held_and_leaves_the_line(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    ws.locks.acquire("door")
    waiter = queue_up(ws, lambda: other.locks.acquire("door", wait=5))
    assert ws.check().records["waiters"] == 1
    world.clock.advance(5)
    with pytest.raises(errors.Held) as refused:
        waiter.result()
    assert (refused.value.holder, refused.value.until) == ("a", None)
    records = ws.check().records
    assert (records["waiters"], records["leases"]) == (0, 0)
    assert ops(ws) == ["acquire", "wait", "leave"]
    ws.locks.release("door")
    assert world.open("c").locks.acquire("door").holder == "c"


def test_c14_wait_0_tries_once_and_leaves_nothing_behind(world: World) -> None:
    ws = world.open("a")
    ws.locks.acquire("door")
    with pytest.raises(errors.Held):
        world.open("b").locks.acquire("door", wait=0)
    records = ws.check().records
    assert (records["waiters"], records["leases"]) == (0, 0)
    ws.locks.release("door")
    assert world.open("c").locks.acquire("door").holder == "c"


def test_c14_a_waiter_behind_one_that_timed_out_moves_up(world: World) -> None:
    ws = world.open("a")
    ws.locks.acquire("door")
    short = queue_up(ws, lambda: world.open("b").locks.acquire("door", wait=2))
    long = queue_up(ws, lambda: world.open("c").locks.acquire("door", wait=1000))
    world.clock.advance(2)
    with pytest.raises(errors.Held):
        short.result()
    ws.locks.release("door")
    assert long.result().holder == "c"


@pytest.mark.parametrize("wait", [-1, float("nan"), float("inf"), "5", True])
def test_c14_a_wait_that_is_no_duration_is_invalid_and_changes_nothing(world: World, wait: Any) -> None:
    ws = world.open()
    before = ws.revision
    with pytest.raises(errors.Invalid):
        ws.locks.acquire("door", wait=wait)
    assert (ws.revision, ws.locks.find("door")) == (before, None)


@pytest.mark.parametrize(
    "bad", [{"ttl": -1}, {"lease": "no such lease"}, {"holder": ""}], ids=["ttl", "lease", "holder"]
)
def test_c14_a_bad_argument_is_refused_before_the_caller_queues(world: World, bad: dict[str, Any]) -> None:
    ws = world.open()
    before = ws.revision
    with pytest.raises((errors.Invalid, errors.NotFound)):
        ws.locks.acquire("door", wait=5, **bad)
    assert ws.revision == before
    assert ws.check().records["waiters"] == 0


def test_c14_waiting_inside_a_txn_is_invalid_and_the_txn_leaves_nothing(world: World) -> None:
    ws = world.open()
    before = ws.revision
    write = Op("cells.set", {"run": "run", "cell": "cell", "value": 1})
    with pytest.raises(errors.Invalid):
        ws.txn([], [write, Op("locks.acquire", {"name": "door", "wait": 1})])
    assert (ws.revision, ws.cells.find("run", "cell"), ws.locks.find("door")) == (before, None, None)


@pytest.mark.capability("callables")
@pytest.mark.parametrize("wait", [0, 1])
def test_c14_waiting_inside_a_body_is_invalid(world: World, wait: float) -> None:
    ws = world.open()
    with pytest.raises(errors.Invalid):
        ws.transact(lambda tx: tx.locks.acquire("door", wait=wait))
    with pytest.raises(errors.Invalid):
        ws.transact(lambda tx: tx.cells.acquire_lock("run", "cell", wait=wait))
    assert (ws.locks.find("door"), ws.revision) == (None, 0)


@pytest.mark.capability("interactive")
def test_c14_waiting_inside_a_block_is_invalid(world: World) -> None:
    ws = world.open()
    with ws.transaction() as tx, pytest.raises(errors.Invalid):
        tx.locks.acquire("door", wait=1)
    assert ws.locks.find("door") is None


# --- leases of waiters -----------------------------------------------------------------------------------------------


def test_c14_the_ticket_of_a_waiter_is_not_a_lease_that_users_can_reach(world: World) -> None:
    ws = world.open("a")
    ws.locks.acquire("door")
    waiter = queue_up(ws, lambda: world.open("b").locks.acquire("door", wait=100))
    ticket = ws.events.list(kinds=["lock"], id="door")[-1].data["ticket"][1]
    for call in (ws.leases.get, ws.leases.refresh, ws.leases.revoke):
        with pytest.raises(errors.NotFound):
            call(ticket)
    assert ws.leases.list() == []
    ws.locks.release("door")
    assert waiter.result().holder == "b"


def _deadlines(ws: Workspace) -> list[int]:
    rows: list[tuple[int]] = ws._engine.read(
        lambda snapshot: snapshot.all("SELECT deadline FROM leases WHERE kind = 'lock-waiter' ORDER BY id")
    )
    return [deadline for (deadline,) in rows]


@pytest.mark.capability("local")
def test_c14_a_living_waiter_renews_its_lease_and_keeps_its_place(world: World) -> None:
    ws = world.open("a")
    ws.locks.acquire("door")
    first = queue_up(ws, lambda: world.open("b").locks.acquire("door", wait=1000))
    last = queue_up(ws, lambda: world.open("c").locks.acquire("door", wait=1000))
    revision = ws.revision
    for _ in range(6):
        before = max(_deadlines(ws))
        assert comes_true(lambda: min(_deadlines(ws)) > before, lambda: world.clock.advance(3), 3)  # noqa: B023
    assert ws.revision == revision, "a renewal is no event"
    counted = {(each.actor, each.code): each.count for each in ws.events.refusals()}
    assert counted == {("b", "HELD"): 1, ("c", "HELD"): 1}, "and no refusal"
    ws.locks.release("door")
    assert first.result().holder == "b"
    world.open("b").locks.release("door")
    assert last.result().holder == "c"


@pytest.mark.capability("local")
def test_c14_a_waiter_renews_its_lease_also_while_events_on_the_lock_keep_it_awake(world: World) -> None:
    ws = world.open("a")
    ws.locks.acquire("door")
    waiter = queue_up(ws, lambda: world.open("b").locks.acquire("door", wait=1000))
    granted = max(_deadlines(ws))

    def noise() -> None:
        world.clock.advance(2)
        with pytest.raises(errors.Held):
            world.open("noise").locks.acquire("door", wait=0)

    assert comes_true(lambda: min(_deadlines(ws)) > granted, noise, 4)
    ws.locks.release("door")
    assert waiter.result().holder == "b"


def test_c14_a_keyed_retry_of_a_waiting_call_leaves_no_waiter_behind(world: World) -> None:
    ws = world.open("a")
    keyed = ws.using(key="k")
    first = keyed.locks.acquire("door", ttl=60, wait=5)
    assert keyed.locks.acquire("door", ttl=60, wait=5) == first
    assert ws.check().records["waiters"] == 0
    ws.locks.release("door")
    assert world.open("b").locks.acquire("door").holder == "b"


@pytest.mark.capability("local")
def test_c14_a_caller_whose_commit_failed_does_not_free_the_lock_of_who_came_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ws, other = world.open("a"), world.open("b")
    engine = ws._engine
    do = ws._runner.do
    taken: list[Grant] = []

    def fail_to_commit(batch: Any, calls: Any) -> bool:
        batch.rollback()
        for call in calls:
            call.error = errors.DiskFull()
        return True

    def fail_once_and_let_the_other_in(body: Any, actor: str) -> Any:
        monkeypatch.setattr(engine.group, "commit", fail_to_commit)
        try:
            return do(body, actor)
        finally:
            monkeypatch.undo()
            taken.append(other.locks.acquire("door"))  # gets the revision, hence the token, that was rolled back

    monkeypatch.setattr(ws._runner, "do", fail_once_and_let_the_other_in)
    with pytest.raises(errors.DiskFull):
        ws.locks.acquire("door", wait=5)
    (grant,) = taken
    assert other.locks.find("door") == grant


# --- the dead --------------------------------------------------------------------------------------------------------

_WAIT = """
import sys, holdfast
from holdfast.testing import ManualClock
folder, clock, actor = sys.argv[1:]
holdfast.open(folder, actor=actor, clock=ManualClock(clock)).locks.acquire("door", wait=100000)
"""


def _kill_a_waiter(world: World, ws: Workspace, actor: str) -> None:
    """A process queues for the door, then kill -9."""
    after = ws.revision
    place = (str(world.folder / "store"), str(world.folder / "clock"))
    process = subprocess.Popen([sys.executable, "-c", _WAIT, *place, actor])
    try:
        heard(ws, "wait", "door", after)
    finally:
        process.kill()
        process.wait()


def _need_processes(world: World) -> None:
    if world.kind not in ("file", "processes"):
        pytest.skip("another process cannot reach this store")


def test_c14_a_killed_waiter_blocks_nobody_once_its_lease_is_over(world: World) -> None:
    _need_processes(world)
    ws, other = world.open("a"), world.open("b")
    ws.locks.acquire("door")
    _kill_a_waiter(world, ws, "dead")
    ws.locks.release("door")
    with pytest.raises(errors.Held) as refused:
        other.locks.acquire("door")
    assert refused.value.holder == "dead"
    assert refused.value.message.startswith("door is free, but dead is first in the queue until ")
    world.clock.advance(10)
    assert other.locks.acquire("door").holder == "b"
    assert ws.check().records["waiters"] == 0


def test_c14_waiters_are_served_in_order_also_when_the_first_one_was_killed(world: World) -> None:
    _need_processes(world)
    ws = world.open("a")
    ws.locks.acquire("door")
    _kill_a_waiter(world, ws, "dead")
    world.clock.advance(6)
    second = queue_up(ws, lambda: world.open("b").locks.acquire("door", wait=1000))
    third = queue_up(ws, lambda: world.open("c").locks.acquire("door", wait=1000))
    ws.locks.release("door")
    after = ws.revision
    world.clock.advance(4)  # the dead one's ten seconds are over, nobody else's
    assert heard(ws, "acquire", "door", after).data["holder"] == [None, "b"]
    world.open("b").locks.release("door", token=second.result().token)
    assert third.result().holder == "c"
    assert ops(ws) == ["acquire", "wait", "wait", "wait", "release", "leave", "acquire", "release", "acquire"]


def test_c14_a_killed_holder_frees_its_lock_to_the_waiter_when_its_ttl_ends(world: World) -> None:
    _need_processes(world)
    ws = world.open("a")
    code = _WAIT.replace("wait=100000", "ttl=8") + "sys.stdin.read()\n"
    place = (str(world.folder / "store"), str(world.folder / "clock"))
    after = ws.revision
    process = subprocess.Popen([sys.executable, "-c", code, *place, "dead"], stdin=subprocess.PIPE)
    try:
        heard(ws, "acquire", "door", after)
    finally:
        process.kill()
        process.communicate()
    waiter = queue_up(ws, lambda: ws.locks.acquire("door", wait=100))
    world.clock.advance(8)
    assert waiter.result().holder == "a"


# --- on an event loop ------------------------------------------------------------------------------------------------


async def _queue_up(ws: Workspace, holder: str, wait: float = 1000) -> asyncio.Task[Grant]:
    watch = ws.aio.watch(kinds=["lock"], id="door")
    task = asyncio.ensure_future(ws.aio.locks.acquire("door", holder, wait=wait))
    async for event in watch:
        if event.op == "wait":
            break
    return task


@pytest.mark.capability("aio")
def test_c14_tasks_wait_in_order_and_release_wakes_them(world: World) -> None:
    ws = world.open("a")

    async def scene() -> list[str]:
        await ws.aio.locks.acquire("door")
        tasks = [await _queue_up(ws, name) for name in ("b", "c", "d")]
        holders = ["a"]
        for task in tasks:
            await ws.aio.locks.release("door", holders[-1])
            holders.append((await task).holder)
        return holders

    assert asyncio.run(scene()) == ["a", "b", "c", "d"]


@pytest.mark.capability("aio")
def test_c14_a_cancelled_task_leaves_the_line(world: World) -> None:
    ws = world.open("a")

    async def scene() -> str:
        await ws.aio.locks.acquire("door")
        cancelled = await _queue_up(ws, "b")
        next_one = await _queue_up(ws, "c")
        async with ws.aio.watch(kinds=["lock"], id="door") as watch:
            await ws.aio.revision()  # by now the watch is there, also over the wire
            cancelled.cancel()
            await asyncio.wait([cancelled], timeout=PATIENCE / 18)
            assert cancelled.cancelled(), "a cancellation that comes together with an event is not lost"
            assert (await anext(watch)).op == "leave"  # a server hears of it a moment later
        assert ws.check().records["waiters"] == 1
        await ws.aio.locks.release("door", "a")
        return (await next_one).holder

    assert asyncio.run(scene()) == "c"
    assert ops(ws) == ["acquire", "wait", "wait", "leave", "release", "acquire"]


@pytest.mark.capability("aio")
@pytest.mark.capability("callables")  # over the wire there is a connection to close, which must not be cancelled too
def test_c14_a_task_that_is_cancelled_again_and_again_leaves_the_line(world: World) -> None:
    ws = world.open("a")

    async def scene() -> None:
        await ws.aio.locks.acquire("door")
        cancelled = await _queue_up(ws, "b")
        async with ws.aio.watch(kinds=["lock"], id="door") as watch:
            await ws.aio.revision()
            while not cancelled.done():  # as a cancel scope does that is over: every further step is cancelled too
                cancelled.cancel()
                await asyncio.sleep(0)
            assert (await anext(watch)).op == "leave"

    asyncio.run(scene())
    assert ws.check().records["waiters"] == 0


@pytest.mark.capability("aio")
def test_c14_a_task_that_times_out_gets_held_and_leaves_the_line(world: World) -> None:
    ws = world.open("a")

    async def scene() -> None:
        await ws.aio.locks.acquire("door")
        task = await _queue_up(ws, "b", wait=5)
        world.clock.advance(5)
        with pytest.raises(errors.Held) as refused:
            await task
        assert refused.value.holder == "a"

    asyncio.run(scene())
    assert ws.check().records["waiters"] == 0
    assert ops(ws) == ["acquire", "wait", "leave"]


@pytest.mark.capability("aio")
def test_c14_tasks_and_threads_stand_in_one_line(world: World) -> None:
    ws = world.open("a")
    ws.locks.acquire("door")

    async def scene() -> tuple[str, str]:
        task = await _queue_up(ws, "task")
        thread = await asyncio.to_thread(
            lambda: queue_up(ws, lambda: world.open("thread").locks.acquire("door", wait=1000))
        )
        await ws.aio.locks.release("door", "a")
        first = (await task).holder
        await ws.aio.locks.release("door", first)
        return first, (await asyncio.to_thread(thread.result)).holder

    assert asyncio.run(scene()) == ("task", "thread")


@pytest.mark.capability("aio")
@pytest.mark.capability("local")
def test_c14_a_task_cancelled_in_the_moment_of_its_grant_does_not_keep_the_lock(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ws, other = world.open("a"), world.open("b")
    group = ws._engine.group
    commit = group.commit

    async def scene() -> None:
        loop = asyncio.get_running_loop()

        def commit_then_cancel(batch: Any, calls: Any) -> bool:
            done = commit(batch, calls)
            if other.locks.find("door") is not None:  # durable, but the task has not heard of it
                loop.call_soon_threadsafe(task.cancel)
            return done

        monkeypatch.setattr(group, "commit", commit_then_cancel)
        task = asyncio.ensure_future(ws.aio.locks.acquire("door", wait=1000))
        with pytest.raises(asyncio.CancelledError):
            await task
        monkeypatch.undo()

    asyncio.run(scene())
    assert other.locks.find("door") is None
    assert ws.check().records["waiters"] == 0
