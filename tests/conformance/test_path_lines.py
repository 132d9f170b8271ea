"""Path locks over time (A5): waiting in line, locks that live with a claim, and many callers at once."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from holdfast import errors
from holdfast.domains.paths.grants import _PathAttempt
from holdfast.domains.paths.patterns import Detail, covers
from holdfast.types import Event, Op
from holdfast.types.agents import PathLock
from holdfast.workspace import Workspace
from tests.conformance.test_cell_races import at_once, handles
from tests.conformance.test_paths import by_id, claimed, events, held, ops, queued, waiting
from tests.conformance.test_waiting import PATIENCE
from tests.worlds.kinds import World

# --- in line ---------------------------------------------------------------------------------------------------------


def test_a5_release_wakes_the_waiter_and_its_token_is_greater(world: World) -> None:
    a, b = world.open("a"), world.open("b")
    first = a.paths.lock("src/**")
    waiter = queued(a, lambda: b.paths.lock("src/x", wait=50))
    a.paths.release(first.id)
    second = waiter.result()
    assert (second.holder, second.token > first.token, waiting(a)) == ("b", True, 0)
    assert ops(a) == ["acquire", "wait", "release", "acquire"]
    assert ops(a, second.id) == ["wait", "acquire"], "it waited for the lock that it got"


def test_a5_a_free_path_is_granted_to_a_waiting_caller_at_once(world: World) -> None:
    ws = world.open("a")
    lock = ws.paths.lock("src", ttl=30, wait=5)
    assert ws.paths.lock("src", ttl=30, wait=5) == lock
    assert (ops(ws), waiting(ws)) == (["acquire"], 0)


def test_a5_waiters_for_the_same_path_are_served_in_the_order_in_which_they_came(world: World) -> None:
    ws = world.open("first")
    lock = ws.paths.lock("src")
    served: list[str] = []

    def pass_through(name: str) -> PathLock:
        handle = world.open(name)
        found = handle.paths.lock("src/*", wait=1000)
        served.append(name)
        handle.paths.release(found.id, token=found.token)
        return found

    names = [f"w{number}" for number in range(5)]
    waiters = [queued(ws, partial(pass_through, name)) for name in names]
    ws.paths.release(lock.id)
    tokens = [waiter.result().token for waiter in waiters]
    assert (served, tokens) == (names, sorted(set(tokens)))


def test_a5_who_waits_for_a_directory_is_not_overtaken_by_those_who_want_a_file_of_it(world: World) -> None:
    a, b, c = world.open("a"), world.open("b"), world.open("c")
    one = a.paths.lock("src/one", ttl=60)
    waiter = queued(a, lambda: b.paths.lock("src/**", wait=1000))
    error = held(c.paths.lock, "src/two")
    assert (error.holder, error.name, error.pattern) == ("b", "src/**", "src/two")
    assert error.until == one.acquired_at + timedelta(seconds=10), "the end of its place in line, which it renews"
    behind = queued(a, lambda: c.paths.lock("src/two", wait=1000))
    assert c.paths.lock("docs").holder == "c", "who wants something else passes"
    assert a.paths.lock("src/one", ttl=90).token == one.token, "who has a lock keeps it"
    a.paths.release(one.id)
    whole = waiter.result()
    assert held(a.paths.check, "src/two").holder == "b"
    b.paths.release(whole.id)
    assert (whole.holder, behind.result().holder, waiting(a)) == ("b", "c", 0)


def test_a5_those_who_want_to_share_do_not_stand_in_line_behind_each_other(world: World) -> None:
    a, b, c = world.open("a"), world.open("b"), world.open("c")
    lock = a.paths.lock("src/one")
    waiter = queued(a, lambda: b.paths.lock("src", shared=True, wait=1000))
    assert c.paths.lock("src/two", shared=True).holder == "c"
    assert held(c.paths.lock, "src/three").holder == "b"
    a.paths.release(lock.id)
    assert waiter.result().shared


def test_a5_a_waiter_that_times_out_gets_held_and_leaves_the_line_to_those_behind(world: World) -> None:
    a, b, c = world.open("a"), world.open("b"), world.open("c")
    lock = a.paths.lock("src/one")
    short = queued(a, lambda: b.paths.lock("src", wait=2))
    behind = queued(a, lambda: c.paths.lock("src/two", wait=1000))
    world.clock.advance(2)
    error = held(short.result)
    assert (error.holder, error.lock, error.until) == ("a", lock.id, lock.expires_at)
    assert behind.result().holder == "c", "nothing was in its way but the one who gave up"
    assert (waiting(a), ops(a)) == (0, ["acquire", "wait", "wait", "leave", "acquire"])


def test_a5_wait_0_tries_once_and_leaves_nothing_behind(world: World) -> None:
    a, b = world.open("a"), world.open("b")
    a.paths.lock("src")
    assert held(b.paths.lock, "src", wait=0).holder == "a"
    records = a.check().records
    assert (records["waiters"], records["leases"], records["locks"]) == (0, 1, 1)


def test_a5_expiry_of_the_lock_or_of_the_claim_it_lives_with_wakes_the_waiter(world: World) -> None:
    a, b = world.open("a"), world.open("b")
    task = claimed(a, ttl=5)
    a.paths.lock("src", task=task.id)
    a.paths.lock("docs", ttl=5)
    first = queued(a, lambda: b.paths.lock("src/x", wait=8))
    second = queued(a, lambda: b.paths.lock("docs/x", wait=8))
    world.clock.advance(5)
    assert (first.result().holder, second.result().holder) == ("b", "b")
    assert sorted(ops(a)[4:]) == ["acquire", "acquire", "expire", "expire"]


def test_a5_complete_wakes_who_waits_for_the_paths_of_the_task(world: World) -> None:
    a, b = world.open("a"), world.open("b")
    task = claimed(a)
    a.paths.lock("src", task=task.id)
    waiter = queued(a, lambda: b.paths.lock("src/x", wait=1000))
    a.tasks.complete(task.id)
    assert waiter.result().holder == "b"


def test_a5_who_loses_its_claim_while_it_waits_is_fenced_and_leaves_the_line(world: World) -> None:
    a, b = world.open("a"), world.open("b")
    lock = a.paths.lock("src")
    task = claimed(b)
    waiter = queued(a, lambda: b.paths.lock("src", task=task.id, wait=1000))
    a.tasks.release(task.id, force=True)
    a.paths.release(lock.id)
    with pytest.raises(errors.Fenced):
        waiter.result()
    assert (waiting(a), a.paths.list()) == (0, [])


@pytest.mark.capability("callables")
def test_a5_a_waiter_that_is_gone_blocks_nobody_once_its_lease_is_over(world: World) -> None:
    a, b = world.open("a"), world.open("b")
    dead = _PathAttempt(Detail(("src/**",)), "dead", None)
    a.transact(lambda tx: dead.stay_in_queue(tx._tx))  # and never again
    assert held(b.paths.lock, "src/x").holder == "dead"
    waiter = queued(a, lambda: b.paths.lock("src/x", wait=1000))
    world.clock.advance(10)
    assert waiter.result().holder == "b"
    assert waiting(a) == 0


_WAIT = """
import sys, holdfast
from holdfast.testing import ManualClock
folder, clock = sys.argv[1:]
holdfast.open(folder, actor="dead", clock=ManualClock(clock)).paths.lock("src/**", wait=100000)
"""


@pytest.mark.capability("folder")
def test_a5_a_killed_waiter_blocks_nobody_once_its_lease_is_over(world: World) -> None:
    a, b = world.open("a"), world.open("b")
    lock = a.paths.lock("src/one")
    watch: Any = a.watch(kinds=["path"], after=a.revision)
    place = (str(world.folder / "store"), str(world.folder / "clock"))
    process = subprocess.Popen([sys.executable, "-c", _WAIT, *place])
    try:
        assert next(event for event in watch if event.op == "wait").data["waiter"] == [None, "dead"]
    finally:
        watch.close()
        process.kill()
        process.wait()
    a.paths.release(lock.id)
    assert held(b.paths.lock, "src/two").holder == "dead"
    world.clock.advance(10)
    assert b.paths.lock("src/two").holder == "b"
    assert (waiting(a), ops(a)) == (0, ["acquire", "wait", "release", "leave", "acquire"])


async def _queued(ws: Workspace, pattern: str, holder: str, wait: float = 1000) -> asyncio.Task[PathLock]:
    watch = ws.aio.watch(kinds=["path"])
    task = asyncio.ensure_future(ws.aio.paths.lock(pattern, holder, wait=wait))
    async for event in watch:
        if event.op == "wait":
            break
    return task


@pytest.mark.capability("aio")
def test_a5_tasks_of_an_event_loop_wait_in_order_and_leave_when_cancelled_or_too_late(world: World) -> None:
    ws = world.open("a")

    async def scene() -> list[str]:
        lock = await ws.aio.paths.lock("src/one")
        whole = await _queued(ws, "src", "b")
        cancelled = await _queued(ws, "src/two", "c")
        behind = await _queued(ws, "src/**/x", "d")
        late = await _queued(ws, "src/one", "e", 2)
        cancelled.cancel()
        await asyncio.wait([cancelled], timeout=PATIENCE / 6)
        assert cancelled.cancelled()
        world.clock.advance(2)
        with pytest.raises(errors.Held):
            await late
        await ws.aio.paths.release(lock.id)
        first = await whole
        assert await ws.aio.paths.check("src/x", "b") == first
        await ws.aio.paths.release(first.id, holder="b")
        return [first.holder, (await behind).holder]

    assert asyncio.run(scene()) == ["b", "d"]
    assert waiting(ws) == 0


def test_a5_waiting_inside_a_txn_is_invalid_and_leaves_nothing(world: World) -> None:
    ws = world.open("a")
    write = Op("cells.set", {"run": "run", "cell": "cell", "value": 1})
    with pytest.raises(errors.Invalid):
        ws.txn([], [write, Op("paths.lock", {"patterns": "src", "wait": 1})])
    assert (ws.revision, ws.paths.list(), ws.cells.find("run", "cell")) == (0, [], None)


# --- for a task ------------------------------------------------------------------------------------------------------

ENDS: dict[str, Callable[[World, Workspace, str], object]] = {
    "complete": lambda world, ws, id: ws.tasks.complete(id),
    "complete for review": lambda world, ws, id: ws.tasks.complete(id, review=True),
    "release": lambda world, ws, id: ws.tasks.release(id),
    "block": lambda world, ws, id: ws.tasks.block(id),
    "force": lambda world, ws, id: world.open("b").tasks.release(id, force=True),
    "set_status": lambda world, ws, id: ws.tasks.set_status(id, "blocked"),
    "expire": lambda world, ws, id: world.clock.advance(60),
}


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("ttl", [None, 1000], ids=["as the claim", "a ttl of its own"])
def test_a5_the_locks_for_a_task_end_with_its_claim_in_the_same_commit(world: World, how: str, ttl: int | None) -> None:
    ws = world.open("a")
    task, other = claimed(ws, ttl=60), claimed(ws, ttl=1000)
    lock = ws.paths.lock("src", task=task.id, ttl=ttl)
    stays = by_id(ws.paths.lock("docs", task=other.id), ws.paths.lock("lib"))
    ENDS[how](world, ws, task.id)
    assert ws.paths.list() == stays
    last = events(ws, lock.id)[-1]
    ended = ws.events.list(kinds=["task"], id=task.id)[-1]
    assert (last.op, last.revision) == ("expire" if how == "expire" else "release", ended.revision)
    assert world.open("b").paths.lock("src").token > lock.token
    assert ws.check().problems == []


def test_a5_a_lock_for_a_task_lives_as_long_as_the_claim_is_kept(world: World) -> None:
    ws = world.open("a")
    task = claimed(ws, ttl=60)
    lock = ws.paths.lock("src", task=task.id)
    assert (lock.task, lock.expires_at) == (task.id, task.deadline)
    world.clock.advance(50)
    assert ws.tasks.heartbeat(task.id).deadline == ws.paths.get(lock.id).expires_at
    world.clock.advance(50)
    ws.tasks.park(task.id)
    assert ws.paths.get(lock.id).expires_at is None
    world.clock.advance(100_000)
    assert ws.paths.check("src") == ws.paths.get(lock.id)
    assert held(world.open("b").paths.lock, "src").until is None
    assert ws.tasks.heartbeat(task.id, ttl=60).deadline == ws.paths.get(lock.id).expires_at
    ws.tasks.park(task.id, lock.acquired_at + timedelta(days=9))
    assert ws.paths.get(lock.id).token == lock.token
    world.clock.advance(9 * 86400)
    assert ws.paths.list() == []
    assert ops(ws, lock.id) == ["acquire", "expire"]


def test_a5_a_lock_that_lives_with_a_claim_is_renewed_through_it(world: World) -> None:
    ws = world.open("a")
    task = claimed(ws, ttl=60)
    lock = ws.paths.lock("src", task=task.id)
    for given in ({}, {"ttl": 500}, {"token": lock.token}):
        with pytest.raises(errors.Invalid) as refused:
            ws.paths.refresh(lock.id, **given)  # type: ignore[arg-type]  # plain arguments, mixed
        assert "tasks.heartbeat" in refused.value.hint
    assert ws.paths.lock("src", task=task.id, ttl=500) == lock
    own = ws.paths.lock("docs", task=task.id, ttl=10)
    assert ws.paths.refresh(own.id, ttl=20).expires_at == own.acquired_at + timedelta(seconds=20)
    world.clock.advance(20)
    assert ws.paths.list() == [lock], "its own end came first"
    assert ws.tasks.get(task.id).claimed_by == "a"


def test_a5_a_lock_with_a_ttl_that_is_taken_again_without_one_lives_with_the_claim(world: World) -> None:
    ws = world.open("a")
    task = claimed(ws, ttl=60)
    first = ws.paths.lock("src", task=task.id, ttl=5)
    again = ws.paths.lock("src", task=task.id)
    assert (again.id, again.token, again.expires_at) == (first.id, first.token, task.deadline)
    world.clock.advance(5)
    assert ws.paths.list() == [again]
    world.clock.advance(55)
    assert ws.paths.list() == []


def test_a5_only_who_holds_the_claim_may_lock_for_a_task(world: World) -> None:
    a, b = world.open("a"), world.open("b")
    task = claimed(a, ttl=60)
    free = a.tasks.create("free")
    before = a.revision
    for call, error in (
        (partial(b.paths.lock, "src", task=task.id), errors.NotClaimOwner),
        (partial(a.paths.lock, "src", "c", task=task.id), errors.NotClaimOwner),
        (partial(a.paths.lock, "src", task=free.id), errors.NotClaimOwner),
        (partial(a.paths.lock, "src", task="hf-none"), errors.TaskNotFound),
        (partial(a.paths.lock, "src", task="hf-none", wait=5), errors.TaskNotFound),
    ):
        with pytest.raises(error):
            call()
    assert (a.revision, a.paths.list(), waiting(a)) == (before, [], 0)
    world.clock.advance(60)
    b.tasks.claim(task.id)
    with pytest.raises(errors.Fenced):
        a.paths.lock("src", task=task.id)
    assert b.paths.lock("src", task=task.id).holder == "b"


# --- many at once ----------------------------------------------------------------------------------------------------

TREE = ["src/a/x.py", "src/a/y.md", "src/b/x.py", "src/b/z", "docs/x.md", "docs/a/y.md", "README.md"]
CHOICES = [
    "src/**",
    "src/a",
    "src/a/x.py",
    "src/*/x.py",
    "**/*.md",
    "docs",
    "docs/?.md",
    "{src/b,README.md}",
    "src/b/z",
]
THREADS, TURNS = 5, 8


def conflicts(held: Iterable[tuple[str, Iterable[str], bool]]) -> list[str]:
    """Paths of the tree that two holders have at once, one of them for itself: by what is covered, not by `meet`."""
    found = []
    for path in TREE:
        holders = {
            (holder, shared) for holder, patterns, shared in held if any(covers(pattern, path) for pattern in patterns)
        }
        if len({holder for holder, _ in holders}) > 1 and not all(shared for _, shared in holders):
            found.append(path)
    return found


def replay(log: list[Event]) -> tuple[int, int]:
    """Follow who held what; answers how many locks there were, and the most at one time. Nobody kept another out."""
    held: dict[str, tuple[str, list[str], bool]] = {}
    locks = most = 0
    for event in log:
        if event.op == "acquire":
            held[event.id] = (event.data["holder"][1], event.data["patterns"][1], event.data["shared"][1])
            assert conflicts(held.values()) == []
            locks, most = locks + 1, max(most, len(held))
        elif event.op in ("release", "expire"):
            assert held.pop(event.id)[0] == event.data["holder"][0]
    assert not held
    return locks, most


def test_a5_threads_that_lock_overlapping_patterns_never_hold_one_path_together(world: World) -> None:
    ws = handles(world, THREADS)
    inside: list[tuple[str, str, tuple[str, ...], bool]] = []

    def work(number: int) -> int:
        dice, name, refused = random.Random(number), f"agent-{number}", 0
        for turn in range(TURNS):
            patterns = dice.sample(CHOICES, dice.choice((1, 1, 2)))
            try:
                wait = 1000 if (number + turn) % 2 else None
                lock = ws[number].paths.lock(patterns, ttl=60, shared=dice.randrange(4) == 0, wait=wait)
            except errors.Held:
                refused += 1
                continue
            inside.append(("in", name, lock.patterns, lock.shared))
            assert ws[number].paths.check(next(path for path in TREE if covers(lock.patterns[0], path))) is not None
            inside.append(("out", name, lock.patterns, lock.shared))
            assert ws[number].paths.release(lock.id, token=lock.token) == 1
        return refused

    refused = at_once(THREADS, work)
    locks, most = replay(events(ws[0]))
    assert locks == THREADS * TURNS - sum(refused)
    assert locks > THREADS
    held: dict[str, tuple[str, tuple[str, ...], bool]] = {}
    for what, name, patterns, shared in inside:  # as the threads themselves saw it
        if what == "out":
            del held[name]
        else:
            held[name] = (name, patterns, shared)
            assert conflicts(held.values()) == []
    assert most >= 1
    assert (ws[0].paths.list(), waiting(ws[0])) == ([], 0)
