"""Transactions: whole or nothing, one revision each, alone while they run (design section 3)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NoReturn

import pytest

import holdfast
from holdfast import Transaction, Workspace, errors
from holdfast.testing.crowd import LONG, Line, start, together
from tests.worlds.kinds import World

callables = pytest.mark.capability("callables")
local = pytest.mark.capability("local")


def log(ws: Workspace) -> list[tuple[int, str]]:
    """Revision and id of every event."""
    return [(event.revision, event.id) for event in ws.events.list(limit=1000)]


# --- whole or nothing, one revision each -----------------------------------------------------------------------------


@callables
def test_transact_answers_the_result_of_the_body_after_it_is_there_for_others(world: World) -> None:
    ws, other = world.open(), world.open("other")
    assert ws.transact(lambda tx: (tx.cells.set("run", "cell", 7), "done")) == (1, "done")
    assert other.cells.get("run", "cell").value == 7


@callables
def test_a_body_that_raises_leaves_nothing_and_its_exception_arrives_as_it_is(world: World) -> None:
    ws = world.open()
    mistake = LookupError("mine")

    def body(tx: Transaction) -> None:
        tx.cells.set("run", "cell", 1)
        tx.locks.acquire("lock", ttl=10)
        tx.leases.create(10)
        raise mistake

    with pytest.raises(LookupError) as caught:
        ws.transact(body)
    assert caught.value is mistake
    assert (ws.revision, ws.cells.runs(), ws.locks.list(), ws.leases.list(), log(ws)) == (0, [], [], [], [])


@callables
def test_a_transaction_takes_one_revision_however_many_events_it_emits(world: World) -> None:
    ws = world.open()

    def body(tx: Transaction) -> int:
        for name in "abc":
            tx.cells.set("run", name, 0)
        return tx.revision

    assert ws.transact(body) == ws.revision == 1
    assert log(ws) == [(1, "a"), (1, "b"), (1, "c")]
    assert [event.position for event in ws.events.list()] == [0, 1, 2]


@callables
def test_a_transaction_that_emits_nothing_takes_no_revision(world: World) -> None:
    ws = world.open()
    lease = ws.leases.create(10)
    ws.transact(lambda tx: None)
    ws.transact(lambda tx: tx.cells.find("run", "cell"))
    ws.transact(lambda tx: tx.leases.refresh(lease.id))
    ws.transact(lambda tx: tx.cells.delete("run", "cell"))
    assert ws.revision == 1


@callables
def test_a_transaction_over_cells_locks_and_leases_is_seen_whole(world: World) -> None:
    ws = world.open()

    def body(tx: Transaction) -> None:
        lease = tx.leases.create(10)
        tx.cells.set("run", "cell", 1, lease=lease.id)
        tx.locks.acquire("lock", lease=lease.id)
        tx.cells.acquire_lock("run", "cell", ttl=5)

    ws.transact(body)
    assert {event.revision for event in ws.events.list()} == {1}
    assert {event.kind for event in ws.events.list()} == {"lease", "cell", "lock", "cell-lock"}
    ws.leases.revoke(ws.leases.list()[0].id)
    assert (ws.cells.find("run", "cell"), ws.locks.find("lock"), ws.revision) == (None, None, 2)


@callables
def test_a_transaction_sees_what_it_wrote_and_its_facts_do_not_move(world: World) -> None:
    ws = world.open("me")

    def body(tx: Transaction) -> None:
        now, revision = tx.now, tx.revision
        tx.cells.set("run", "cell", 1)
        world.clock.advance(1)
        assert tx.cells.get("run", "cell").value == 1
        assert tx.cells.get("run", "cell").updated_at == now == tx.now
        assert (tx.revision, tx.actor) == (revision, "me")

    ws.transact(body)


@callables
def test_an_operation_that_fails_and_is_caught_leaves_nothing_half_done(world: World) -> None:
    ws = world.open()

    def body(tx: Transaction) -> None:
        tx.cells.set("run", "kept", 1)
        with pytest.raises(ZeroDivisionError):  # the init inside it has been written when the function fails
            tx.cells.transition_or_init("run", "gone", 0, lambda value: 1 // value)
        with pytest.raises(errors.InvalidValue):
            tx.txn([], [holdfast.Op("cells.set", {"run": "run", "cell": "gone", "value": 1}), bad])
        tx.cells.set("run", "also", 1)

    bad = holdfast.Op("cells.set", {"run": "run", "cell": "bad", "value": float("nan")})
    ws.transact(body)
    assert ws.cells.list("run") == ["also", "kept"]
    assert [(event.id, event.position) for event in ws.events.list()] == [("kept", 0), ("also", 1)]


@callables
def test_a_refused_clock_reset_that_is_caught_does_not_turn_back_the_time(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", 1)
    world.clock.jump(-120)

    def body(tx: Transaction) -> None:
        with pytest.raises(errors.Invalid):
            tx.clock.reset()
        tx.cells.set("run", "cell", 2)

    ws.transact(body)
    ws.cells.set("run", "cell", 3)
    times = [event.time for event in ws.events.list()]
    assert times == sorted(times)


@local
@callables
def test_several_bodies_of_one_group_have_a_revision_each_and_a_failing_one_leaves_no_gap(world: World) -> None:
    ws = world.open()

    def body(name: str) -> Callable[[Transaction], int]:
        def run(tx: Transaction) -> int:
            tx.cells.set("run", name, 1)
            if name == "bad":
                raise ValueError(name)
            return tx.revision

        return run

    with Line(ws) as line:
        calls = {name: line.queue(lambda n=name: ws.transact(body(n))) for name in ("a", "bad", "b", "c")}  # type: ignore[misc]
    assert isinstance(calls.pop("bad").exception(LONG), ValueError)
    assert [call.result(LONG) for call in calls.values()] == [1, 2, 3]
    assert log(ws) == [(1, "a"), (2, "b"), (3, "c")]


def test_revisions_have_no_gap_under_many_threads_and_handles(world: World) -> None:
    handles = [world.open(f"actor-{number}") for number in range(3)]

    def work(number: int) -> Callable[[], None]:
        def run() -> None:
            for step in range(15):
                handles[number % 3].cells.set("run", f"cell-{number}", step)
                with pytest.raises(errors.VersionMismatch):
                    handles[number % 3].cells.cas("run", f"cell-{number}", 999, step)

        return run

    together(*(work(number) for number in range(6)))
    assert [revision for revision, _ in log(handles[0])] == list(range(1, 91))


def test_a_call_that_asks_for_a_revision_not_reached_yet_is_behind_and_changes_nothing(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", 1)
    assert ws.using(at_least=1).cells.get("run", "cell").value == 1
    ahead = ws.using(at_least=2)
    calls: list[Callable[[], object]] = [
        lambda: ahead.cells.get("run", "cell"),
        lambda: ahead.cells.list("run"),
        lambda: ahead.cells.set("run", "cell", 2),
        lambda: ahead.locks.acquire("lock", wait=5),
        lambda: ahead.txn([], []),
    ]
    for call in calls:
        with pytest.raises(errors.Behind) as refused:
            call()
        assert refused.value.revision == 1
    assert (ws.revision, ws.check().records["waiters"]) == (1, 0)
    ws.cells.set("run", "cell", 2)
    assert ahead.cells.get("run", "cell").value == 2
    assert ahead.cells.set("run", "cell", 3) == 3


# --- the wrong calls -------------------------------------------------------------------------------------------------

WRONG: dict[str, Callable[[Workspace], object]] = {
    "a read": lambda ws: ws.cells.find("run", "cell"),
    "a list": lambda ws: ws.cells.list("run"),
    "a write": lambda ws: ws.cells.set("run", "cell", 1),
    "a procedure": lambda ws: ws.locks.acquire("lock"),
    "the revision": lambda ws: ws.revision,
    "a watch": lambda ws: ws.watch(timeout=0),
    "a cell's watch": lambda ws: ws.cells.watch("run", "cell", timeout=0),
    "a check": lambda ws: ws.check(),
    "transact": lambda ws: ws.transact(lambda tx: None),
    "a block": lambda ws: ws.transaction().__enter__(),
    "close": lambda ws: ws.close(),
}


@callables
@pytest.mark.parametrize("what", WRONG)
def test_the_workspace_called_inside_a_body_is_reentrant(world: World, what: str) -> None:
    ws = world.open()
    with pytest.raises(errors.Reentrant, match="tx"):
        ws.transact(lambda tx: WRONG[what](ws))
    assert ws.cells.set("run", "cell", 1) == 1


@callables
def test_a_watch_followed_inside_a_body_is_reentrant_instead_of_waiting_for_ever(world: World) -> None:
    ws = world.open()
    watch = ws.watch(timeout=0)
    with pytest.raises(errors.Reentrant):
        ws.transact(lambda tx: next(watch))


@callables
def test_closing_inside_a_body_is_refused_and_expiry_goes_on(world: World) -> None:
    ws = world.open()
    with pytest.raises(errors.Reentrant):
        ws.transact(lambda tx: ws.close())
    watch = ws.watch(kinds=["cell"], timeout=100)
    ws.cells.set("run", "cell", 1, ttl=5)
    advancing = start(lambda: [event.op for event in watch])
    while not advancing.done():
        world.clock.advance(5)
        threading.Event().wait(0.01)
    assert advancing.result(LONG) == ["set", "expire"]


@callables
def test_a_coroutine_as_body_is_invalid_and_leaves_nothing(world: World) -> None:
    ws = world.open()

    async def body(tx: Transaction) -> None:
        tx.cells.set("run", "cell", 1)

    with pytest.raises(errors.Invalid, match="coroutine"):
        ws.transact(body)  # type: ignore[unused-coroutine]
    with pytest.raises(errors.Invalid):
        ws.transact("not a function")  # type: ignore[arg-type]
    assert ws.revision == 0


@callables
def test_a_transaction_cannot_be_used_after_its_body(world: World) -> None:
    ws = world.open()
    kept: list[Transaction] = []
    ws.transact(kept.append)
    with pytest.raises(errors.Closed):
        kept[0].cells.set("run", "cell", 1)
    with pytest.raises(errors.Closed):
        kept[0].cells.find("run", "cell")

    def fails(tx: Transaction) -> None:
        kept.append(tx)
        fail()

    with pytest.raises(ValueError, match="mine"):
        ws.transact(fails)
    with pytest.raises(errors.Closed):
        kept[1].cells.set("run", "cell", 1)
    assert ws.revision == 0


def fail() -> NoReturn:
    """Raise something of the user's own."""
    raise ValueError("mine")


# --- leaders that are interrupted ------------------------------------------------------------------------------------


def interrupted_once(name: str) -> Callable[[Transaction], int]:
    """A body that is interrupted where it first runs, and writes when it runs again."""
    runs: list[int] = []

    def body(tx: Transaction) -> int:
        version = tx.cells.set("run", name, 1)
        runs.append(version)
        if len(runs) == 1:
            raise KeyboardInterrupt
        return version

    return body


@local
@callables
def test_a_leader_that_is_interrupted_in_its_own_body_answers_its_followers(world: World) -> None:
    ws = world.open()
    with Line(ws) as line:
        leader = line.queue(lambda: ws.transact(interrupted_once("leader")))
        followers = [line.queue(lambda n=name: ws.cells.set("run", n, 1)) for name in "ab"]  # type: ignore[misc]
    assert isinstance(leader.exception(LONG), KeyboardInterrupt)
    assert [follower.result(LONG) for follower in followers] == [1, 1]
    assert log(ws) == [(1, "a"), (2, "b")]


@local
@callables
def test_a_leader_that_is_interrupted_between_its_followers_bodies_acknowledges_only_what_is_there(
    world: World,
) -> None:
    ws = world.open()
    with Line(ws) as line:
        leader = line.queue(lambda: ws.cells.set("run", "leader", 1))
        before = line.queue(lambda: ws.cells.set("run", "before", 1))
        during = line.queue(lambda: ws.transact(interrupted_once("during")))
        after = line.queue(lambda: ws.cells.set("run", "after", 1))
    assert isinstance(leader.exception(LONG), KeyboardInterrupt)
    assert [call.result(LONG) for call in (before, during, after)] == [1, 1, 1]
    assert ws.cells.list("run") == ["after", "before", "during"]
