"""Fencing (C15): tokens grow for ever, and a write under a fence passes only with exactly the live token."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import holdfast
from holdfast import errors
from holdfast.kernel.process_lock import Turns
from holdfast.operation import REGISTRY
from holdfast.types import Grant, Op
from holdfast.workspace import Workspace
from tests.conformance.test_waiting import Background, heard
from tests.worlds.kinds import World
from tests.worlds.write_cases import CASES

# --- tokens ----------------------------------------------------------------------------------------------------------


def _assert_growing(grants: list[Grant]) -> None:
    tokens = [grant.token for grant in grants]
    assert tokens == sorted(set(tokens))


def test_c15_tokens_grow_with_every_grant_over_all_locks(world: World) -> None:
    ws = world.open()
    grants = []
    for number in range(4):
        grants.append(ws.locks.acquire("door", f"agent-{number}"))
        grants.append(ws.cells.acquire_lock("run", "cell", f"agent-{number}"))
        grants.append(ws.locks.acquire(f"gate-{number}", ttl=5))
        ws.locks.release("door", f"agent-{number}")
        ws.cells.release_lock("run", "cell", f"agent-{number}")
        world.clock.advance(5)
    _assert_growing(grants)


def test_c15_tokens_grow_within_one_transaction(world: World) -> None:
    ws = world.open()
    first = ws.locks.acquire("first")
    plan = [Op("locks.acquire", {"name": f"door-{number}"}) for number in range(10)]
    plan += [Op("locks.release", {"name": "door-0"}), Op("locks.acquire", {"name": "door-0"})]
    results = ws.txn([], plan).results
    last = ws.locks.acquire("last")
    _assert_growing([first, *(one for one in results if isinstance(one, Grant)), last])
    assert ws.locks.get("door-0").token == results[-1].token


def test_c15_tokens_grow_after_the_workspace_was_opened_again(world: World) -> None:
    if world.kind == "memory":
        pytest.skip("the store is gone once it is closed")
    grants = []
    for number in range(3):
        ws = world.open()
        grants.append(ws.locks.acquire(f"door-{number}"))
        ws.close()
    _assert_growing(grants)


def _restored(world: World, backup: Any, name: str) -> Workspace:
    target = world.folder / name
    holdfast.restore(backup, target, clock=world.clock)
    ws = holdfast.open(target, actor="tester", clock=world.clock)
    world._closers.append(ws.close)
    return ws


@pytest.mark.capability("store")
def test_c15_tokens_and_cursors_of_a_lost_timeline_never_match_those_after_a_restore(world: World) -> None:
    ws = world.open()
    kept = ws.locks.acquire("kept")
    backup = ws.backup(world.folder / "backup")
    lost = [ws.locks.acquire(f"door-{number}") for number in range(5)]
    cursor = ws.revision
    restored = _restored(world, backup, "restored")
    assert restored.revision > cursor
    assert restored.locks.list() == [kept]
    new = [restored.locks.acquire(f"door-{number}") for number in range(5)]
    _assert_growing([kept, *lost, *new])
    for grant in lost:
        with pytest.raises(errors.Fenced):
            restored.using(fence=(grant.name, grant.token)).cells.set("run", "cell", "late")
    with pytest.raises(errors.Compacted):
        restored.events.list(after=cursor)
    assert restored.check().problems == []


@pytest.mark.capability("store")
@pytest.mark.parametrize("pause", [1, 3600, 86400 * 365])
def test_c15_the_same_backup_restored_twice_gives_two_timelines_that_share_no_token(world: World, pause: int) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", 1)
    backup = ws.backup(world.folder / "backup")
    world.clock.advance(pause)
    first = _restored(world, backup, "first")
    lost = [first.locks.acquire(f"door-{number}") for number in range(5)]
    cursor = first.revision
    world.clock.advance(pause)
    second = _restored(world, backup, "second")
    new = [second.locks.acquire(f"door-{number}") for number in range(5)]
    _assert_growing([*lost, *new])
    for grant in lost:
        with pytest.raises(errors.Fenced):
            second.using(fence=(grant.name, grant.token)).cells.set("run", "cell", "late")
    with pytest.raises(errors.Compacted):
        second.events.list(after=cursor)


@pytest.mark.capability("callables")
def test_c15_a_token_from_a_part_that_was_undone_is_not_given_again(world: World) -> None:
    ws = world.open()
    seen: list[int] = []

    def body(tx: Any) -> int:
        undone = [
            Op("locks.acquire", {"name": "door"}),
            Op("cells.cas", {"run": "r", "cell": "c", "expected": 7, "value": 0}),
        ]
        with pytest.raises(errors.VersionMismatch):
            tx.txn([], undone)
        seen.append(tx.revision)
        token: int = tx.locks.acquire("door").token
        return token

    token = ws.transact(body)
    ws.locks.check("door", token)
    assert token // 4096 == seen[-1]
    assert ws.locks.acquire("next").token > token


@pytest.mark.capability("callables")
def test_c15_a_transaction_grants_at_most_4096_locks_and_one_more_leaves_nothing(world: World) -> None:
    ws = world.open()

    def take(number: int) -> Callable[[Any], list[int]]:
        return lambda tx: [tx.locks.acquire(f"door-{each}").token for each in range(number)]

    with pytest.raises(errors.TooLarge):
        ws.transact(take(4097))
    assert (ws.locks.list(), ws.revision) == ([], 0)
    tokens = ws.transact(take(4096))
    assert tokens == list(range(4096, 8192))
    assert ws.locks.acquire("next").token > tokens[-1]


# --- what passes and what does not -----------------------------------------------------------------------------------


def _assert_fenced(ws: Workspace, fence: Any, current: int | None) -> None:
    """A write, and the check, are refused with the live token; nothing is written."""
    before, found = ws.revision, ws.cells.find("run", "cell")
    with pytest.raises(errors.Fenced) as refused:
        ws.using(fence=fence).cells.set("run", "cell", "late")
    assert refused.value.current == current
    assert (ws.revision, ws.cells.find("run", "cell")) == (before, found)
    if isinstance(fence[0], str):
        with pytest.raises(errors.Fenced) as refused:
            ws.locks.check(*fence)
        assert refused.value.current == current


def test_c15_the_live_token_passes_as_often_as_it_is_used(world: World) -> None:
    ws = world.open()
    grant = ws.locks.acquire("door", ttl=30)
    fenced = ws.using(fence=("door", grant.token))
    assert [fenced.cells.set("run", "cell", number) for number in range(3)] == [1, 2, 3]
    ws.locks.check("door", grant.token)
    world.clock.advance(29)
    ws.locks.refresh("door")
    world.clock.advance(29)
    assert fenced.cells.set("run", "cell", 4) == 4


def test_c15_the_token_of_a_fence_does_not_make_another_the_holder(world: World) -> None:
    """It proves freshness, never identity. Who has chosen no name claims to be nobody else, so its token counts."""
    grant = world.open("a").locks.acquire("door")
    fence = ("door", grant.token)
    other = world.open("b")
    with pytest.raises(errors.NotHolder, match="door is held by a, not by b") as refused:
        other.using(fence=fence).cells.set("run", "cell", 1)
    assert refused.value.holder == "a"
    with pytest.raises(errors.NotHolder):
        other.using(fence=fence).txn([], [Op("cells.set", {"run": "run", "cell": "cell", "value": 1})])
    with pytest.raises(errors.Fenced):
        other.using(fence=("door", grant.token + 1)).cells.set("run", "cell", 1)
    assert other.cells.find("run", "cell") is None
    assert other.locks.check("door", grant.token) is None, "anybody may ask"
    assert other.using(actor="a", fence=fence).cells.set("run", "cell", 1) == 1
    assert world.open(None).using(fence=fence).cells.set("run", "cell", 2) == 2


@pytest.mark.parametrize("off", [-4096, -1, 1, 4096])
def test_c15_a_lower_and_a_higher_token_are_fenced(world: World, off: int) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", 1)
    grant = ws.locks.acquire("door")
    _assert_fenced(ws, ("door", grant.token + off), grant.token)


def test_c15_a_token_of_another_lock_is_fenced(world: World) -> None:
    ws = world.open()
    grant, other = ws.locks.acquire("door"), ws.locks.acquire("gate")
    cell = ws.cells.acquire_lock("run", "door")
    _assert_fenced(ws, ("door", other.token), grant.token)
    _assert_fenced(ws, ("door", cell.token), grant.token)
    _assert_fenced(ws, ("nobody", grant.token), None)


def test_c15_a_token_after_release_is_fenced(world: World) -> None:
    ws = world.open()
    grant = ws.locks.acquire("door")
    ws.locks.release("door")
    _assert_fenced(ws, ("door", grant.token), None)


def test_c15_a_token_after_revoke_of_its_lease_is_fenced(world: World) -> None:
    ws = world.open()
    lease = ws.leases.create(30)
    grant = ws.locks.acquire("door", lease=lease.id)
    ws.leases.revoke(lease.id)
    _assert_fenced(ws, ("door", grant.token), None)


def test_c15_a_holder_that_took_its_lock_anew_is_fenced_with_its_old_token(world: World) -> None:
    ws = world.open()
    old = ws.locks.acquire("door")
    ws.locks.release("door")
    new = ws.locks.acquire("door")
    _assert_fenced(ws, ("door", old.token), new.token)


def test_c15_a_swept_holder_is_fenced_before_anybody_else_acquires(world: World) -> None:
    ws = world.open()
    grant = ws.locks.acquire("door", ttl=30)
    world.clock.advance(30)
    with pytest.raises(errors.Fenced):
        ws.using(fence=("door", grant.token)).cells.set("run", "cell", "late")
    assert ws.locks.list() == []  # swept by now in any case
    _assert_fenced(ws, ("door", grant.token), None)
    assert ws.cells.find("run", "cell") is None


def test_c15_check_is_fenced_at_the_deadline_before_any_sweep(world: World) -> None:
    ws = world.open()
    grant = ws.locks.acquire("door", ttl=30)
    world.clock.advance(29.999999)
    ws.locks.check("door", grant.token)
    world.clock.advance(0.000001)
    with pytest.raises(errors.Fenced) as refused:
        ws.locks.check("door", grant.token)
    assert refused.value.current is None


def test_c15_the_paused_holder_is_fenced_on_its_late_write(world: World) -> None:
    a, b = world.open("client-a"), world.open("client-b")
    first = a.locks.acquire("resource", ttl=10)
    a.using(fence=("resource", first.token)).cells.set("run", "data", "from a")
    world.clock.advance(10)
    second = b.locks.acquire("resource", ttl=10)
    assert second.token > first.token
    before = b.revision
    with pytest.raises(errors.Fenced) as refused:
        a.using(fence=("resource", first.token)).cells.set("run", "data", "late")
    assert refused.value.current == second.token
    assert (b.cells.get("run", "data").value, b.revision) == ("from a", before)
    assert b.using(fence=("resource", second.token)).cells.set("run", "data", "from b") == 2


_PAUSED = """
import sys, holdfast
from holdfast.testing import ManualClock
ws = holdfast.open(sys.argv[1], actor="client-a", clock=ManualClock(sys.argv[2]))
grant = ws.locks.acquire("resource", ttl=10)
print(ws.using(fence=("resource", grant.token)).cells.set("run", "data", "from a"), flush=True)
sys.stdin.readline()
try:
    ws.using(fence=("resource", grant.token)).cells.set("run", "data", "late")
except holdfast.errors.Fenced as refused:
    print("fenced", refused.current, flush=True)
"""


def _stop_between_transactions(process: subprocess.Popen[str], folder: str) -> None:
    """Stop a process; not while its upkeep has the write lock, for nobody could pass it then."""
    turns = Turns(folder)
    try:
        for _ in range(1000):
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            if turns.try_take():
                turns.give()
                return
            process.send_signal(signal.SIGCONT)
        pytest.fail("the process always has the write lock")
    finally:
        turns.close()


@pytest.mark.capability("folder")
def test_c15_a_process_that_was_really_stopped_is_fenced_when_it_goes_on(world: World) -> None:
    ws = world.open("client-b")
    place = (str(world.folder / "store"), str(world.folder / "clock"))
    with subprocess.Popen(
        [sys.executable, "-c", _PAUSED, *place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "1\n"
            _stop_between_transactions(process, place[0])
            world.clock.advance(10)
            grant = ws.locks.acquire("resource", ttl=10)
            ws.using(fence=("resource", grant.token)).cells.set("run", "data", "from b")
            process.stdin.write("go on\n")
            process.stdin.flush()
            process.send_signal(signal.SIGCONT)
            assert process.stdout.readline() == f"fenced {grant.token}\n"
        finally:
            process.kill()
    assert [version.value for version in ws.cells.history("run", "data")] == ["from b", "from a"]


def test_c15_the_lock_of_a_cell_is_a_fence_too(world: World) -> None:
    ws = world.open()
    grant = ws.cells.acquire_lock("run", "cell", ttl=30)
    fence = (("run", "cell"), grant.token)
    assert ws.using(fence=fence).cells.set("run", "cell", 1) == 1
    _assert_fenced(ws, (("run", "cell"), grant.token + 1), grant.token)
    _assert_fenced(ws, (("other", "cell"), grant.token), None)
    _assert_fenced(ws, ("cell", grant.token), None)
    ws.cells.release_lock("run", "cell")
    _assert_fenced(ws, fence, None)


def test_c15_a_fence_stays_when_more_of_the_context_is_given(world: World) -> None:
    ws = world.open()
    grant = ws.locks.acquire("door")
    fenced = ws.using(fence=("door", grant.token)).using(actor=ws.actor).using(key="k")
    assert fenced.cells.increment("run", "cell") == 1
    ws.locks.release("door")
    with pytest.raises(errors.Fenced):
        ws.using(fence=("door", grant.token)).using(key="other").cells.increment("run", "cell")
    assert ws.cells.get("run", "cell").value == 1


@pytest.mark.parametrize(
    "fence", ["door", ("door",), ("door", "7"), ("door", 1.0), (7, 7), ("", 7), (("run",), 7), (("run", ""), 7)]
)
def test_c15_what_is_no_fence_is_invalid_at_once(world: World, fence: Any) -> None:
    with pytest.raises(errors.Invalid):
        world.open().using(fence=fence)


# --- around every write ----------------------------------------------------------------------------------------------


WRITES = [
    pytest.param(name, marks=pytest.mark.capability("callables") if operation.route.local else ())
    for name, operation in sorted(REGISTRY.items())
    if operation.writes
]


@pytest.mark.kinds("drawn")
@pytest.mark.parametrize("name", WRITES)
def test_c15_every_write_there_is_passes_its_fence_or_leaves_nothing(world: World, name: str) -> None:
    case = CASES[name]  # a new operation needs a new case
    ws = world.open()
    lost = ws.locks.acquire("fence")
    ws.locks.release("fence")
    state = case.prepare(world, ws)
    before = ws.check()
    with pytest.raises(errors.Fenced) as refused:
        case.call(ws.using(fence=("fence", lost.token)), state)
    assert refused.value.current is None
    assert ws.check() == before, "nothing was written"
    live = ws.locks.acquire("fence")
    with pytest.raises(errors.Fenced) as refused:
        case.call(ws.using(fence=("fence", lost.token)), state)
    assert refused.value.current == live.token
    case.call(ws.using(fence=("fence", live.token)), state)


def test_c15_get_or_init_of_a_cell_that_exists_is_fenced_too(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", 1)
    with pytest.raises(errors.Fenced):
        ws.using(fence=("door", 1)).cells.get_or_init("run", "cell", 2)


@pytest.mark.parametrize("free", [True, False])
def test_c15_a_waiting_acquire_under_a_lost_fence_is_fenced_without_queueing(world: World, free: bool) -> None:
    ws = world.open()
    if not free:
        ws.locks.acquire("door", "somebody", ttl=60)
    before = ws.check()
    with pytest.raises(errors.Fenced):
        ws.using(fence=("fence", 1)).locks.acquire("door", wait=0)
    assert ws.check() == before


def test_c15_a_fence_around_a_txn_covers_both_branches(world: World) -> None:
    ws = world.open()
    grant = ws.locks.acquire("door")
    absent = [holdfast.Exists("cell", ("run", "cell"))]
    write = [Op("cells.set", {"run": "run", "cell": "cell", "value": 1})]
    for fence in (("door", grant.token + 1), ("gate", grant.token)):
        with pytest.raises(errors.Fenced):
            ws.using(fence=fence).txn([], write)
        with pytest.raises(errors.Fenced):
            ws.using(fence=fence).txn(absent, [], write)
    assert ws.cells.find("run", "cell") is None
    assert ws.using(fence=("door", grant.token)).txn(absent, [], write).results == [1]


@pytest.mark.capability("callables")
def test_c15_a_fenced_body_does_not_run_without_the_live_token(world: World) -> None:
    ws = world.open()
    grant = ws.locks.acquire("door", ttl=30)
    ran: list[int] = []

    def body(tx: Any) -> int:
        ran.append(1)
        version: int = tx.cells.set("run", "cell", 1)
        return version

    fenced = ws.using(fence=("door", grant.token))
    assert fenced.transact(body) == 1
    world.clock.advance(30)
    with pytest.raises(errors.Fenced):
        fenced.transact(body)
    assert (ran, ws.cells.get("run", "cell").version) == ([1], 1)


@pytest.mark.capability("interactive")
def test_c15_a_fenced_block_is_not_entered_without_the_live_token(world: World) -> None:
    ws = world.open()
    grant = ws.locks.acquire("door", ttl=30)
    with ws.using(fence=("door", grant.token)).transaction() as tx:
        tx.cells.set("run", "cell", 1)
    world.clock.advance(30)
    assert ws.locks.list() == []  # what is due has ended, so no other node will write now
    entered = []
    with pytest.raises(errors.Fenced), ws.using(fence=("door", grant.token)).transaction() as tx:
        entered.append(tx)
    assert (entered, ws.cells.get("run", "cell").version) == ([], 1)
    assert ws.cells.set("run", "cell", 2) == 2, "the refused block holds up nobody"


@pytest.mark.capability("aio")
def test_c15_an_awaited_write_is_fenced_alike(world: World) -> None:
    ws = world.open()
    grant = ws.locks.acquire("door", ttl=30)

    async def scene() -> None:
        fenced = ws.aio.using(fence=("door", grant.token))
        assert await fenced.cells.set("run", "cell", 1) == 1
        assert await fenced.cells.set("run", "cell", 2) == 2
        await ws.aio.locks.check("door", grant.token)
        world.clock.advance(30)
        for call in (
            lambda: fenced.cells.set("run", "cell", 3),
            lambda: fenced.txn([], [Op("cells.set", {"run": "run", "cell": "cell", "value": 3})]),
            lambda: ws.aio.locks.check("door", grant.token),
        ):
            with pytest.raises(errors.Fenced):
                await call()

    asyncio.run(scene())
    assert ws.cells.get("run", "cell").version == 2


@pytest.mark.capability("aio")
@pytest.mark.capability("callables")
def test_c15_an_awaited_transact_is_fenced_alike(world: World) -> None:
    ws = world.open()
    grant = ws.locks.acquire("door", ttl=30)

    async def scene() -> None:
        fenced = ws.aio.using(fence=("door", grant.token))
        assert await fenced.transact(lambda tx: tx.cells.set("run", "cell", 1)) == 1
        world.clock.advance(30)
        with pytest.raises(errors.Fenced):
            await fenced.transact(lambda tx: tx.cells.set("run", "cell", 2))

    asyncio.run(scene())
    assert ws.cells.get("run", "cell").version == 1


def _for_ever(call: Callable[[], Any]) -> None:
    while True:
        call()


def test_c15_of_writes_that_race_with_the_loss_of_their_lock_none_is_written_after_it(world: World) -> None:
    ws = world.open("a")
    grant = ws.locks.acquire("door", ttl=30)
    after = ws.revision

    def write(handle: Workspace) -> None:
        fenced = handle.using(fence=("door", grant.token))
        with pytest.raises(errors.Fenced):
            _for_ever(lambda: fenced.cells.increment("run", "cell"))

    writers = [Background(partial(write, world.open("a"))) for _ in range(4)]
    heard(ws, "increment", ("run", "cell"), after, "cell")
    world.clock.advance(30)
    for writer in writers:
        writer.result()
    (end,) = (event for event in ws.events.list(kinds=["lock"]) if event.op == "expire")
    assert ws.events.list(kinds=["cell"], after=end.revision) == []
    assert ws.cells.get("run", "cell").revision < end.revision


# --- keys and fences -------------------------------------------------------------------------------------------------


def test_c15_a_retry_with_a_known_key_gets_the_stored_answer_although_the_fence_is_lost(world: World) -> None:
    ws = world.open()
    grant = ws.locks.acquire("door", ttl=30)
    call = ws.using(fence=("door", grant.token), key="k")
    assert call.cells.increment("run", "cell", 5) == 5
    world.clock.advance(30)
    ws.locks.list()
    before = ws.revision
    assert call.cells.increment("run", "cell", 5) == 5
    assert ws.revision == before
    with pytest.raises(errors.Fenced):
        ws.using(fence=("door", grant.token), key="other").cells.increment("run", "cell", 5)
    with pytest.raises(errors.Invalid):
        call.cells.increment("run", "cell", 6)
    assert (ws.cells.get("run", "cell").value, ws.revision) == (5, before)


def test_c15_a_refusal_by_the_fence_is_not_kept_under_the_key(world: World) -> None:
    ws = world.open()
    with pytest.raises(errors.Fenced):
        ws.using(fence=("door", 1), key="k").cells.increment("run", "cell")
    grant = ws.locks.acquire("door")
    assert ws.using(fence=("door", grant.token), key="k").cells.increment("run", "cell") == 1


@pytest.mark.capability("callables")
def test_c15_a_keyed_body_is_answered_from_its_key_although_the_fence_is_lost(world: World) -> None:
    ws = world.open()
    grant = ws.locks.acquire("door")
    call = ws.using(fence=("door", grant.token), key="k")
    assert call.transact(lambda tx: tx.cells.increment("run", "cell")) == 1
    ws.locks.release("door")
    assert call.transact(lambda tx: tx.cells.increment("run", "cell")) == 1
    assert ws.cells.get("run", "cell").version == 1
