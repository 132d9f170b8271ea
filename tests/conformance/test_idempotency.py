"""Idempotency keys: a repeated call gets the first answer and happens once (design sections 3 and 10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Cell, Grant, Lease, Op, Transaction, TxnResult, Workspace, errors
from holdfast.testing.crowd import Line, finish, together
from tests.worlds.kinds import World

DAY = 24 * 3600.0
callables = pytest.mark.capability("callables")


def keys(ws: Workspace) -> int:
    """How many keys the store remembers."""
    return ws.check().records["idempotency"]


# --- once ------------------------------------------------------------------------------------------------------------


def test_the_same_key_and_arguments_give_the_first_answer_and_happen_once(world: World) -> None:
    ws, again = world.open(), world.open()
    assert ws.using(key="k").cells.increment("run", "count", 5) == 5
    ws.cells.increment("run", "count", 1)
    assert again.using(key="k").cells.increment("run", "count", 5) == 5
    assert again.using(key="k").cells.increment(run="run", cell="count", delta=5) == 5
    assert (ws.cells.get("run", "count").value, ws.revision) == (6, 2)


def test_many_that_use_one_key_at_the_same_moment_get_one_answer_and_it_happens_once(world: World) -> None:
    handles = [world.open() for _ in range(4)]
    for round in range(3):
        answers = together(
            *(lambda n=n, r=round: handles[n % 4].using(key=f"k{r}").cells.increment("run", "count") for n in range(16))
        )
        assert answers == [round + 1] * 16
    assert handles[0].revision == 3


def test_other_arguments_under_the_same_key_are_invalid_and_nothing_changes(world: World) -> None:
    ws = world.open()
    keyed = ws.using(key="k")
    keyed.cells.set("run", "cell", 1)
    for value in (2, 1.0, True, "1", [1], None):
        with pytest.raises(errors.Invalid) as caught:
            keyed.cells.set("run", "cell", value)
        assert caught.value.key == "k"
    with pytest.raises(errors.Invalid):
        keyed.cells.set("run", "cell", 1, ttl=5)
    with pytest.raises(errors.Invalid):
        keyed.cells.set("run", "other", 1)
    assert keyed.cells.set("run", "cell", 1, None, None) == 1
    assert ws.revision == 1


def test_the_order_of_an_objects_keys_makes_no_other_argument(world: World) -> None:
    keyed = world.open().using(key="k")
    assert keyed.cells.set("run", "cell", {"a": 1, "b": {"x": 1, "y": 2}}) == 1
    assert keyed.cells.set("run", "cell", {"b": {"y": 2, "x": 1}, "a": 1}) == 1


def test_a_key_belongs_to_its_actor_and_its_operation(world: World) -> None:
    ws = world.open("me")
    assert ws.using(key="k").cells.increment("run", "count") == 1
    assert ws.using(key="k", actor="you").cells.increment("run", "count") == 2
    assert ws.using(key="k").cells.set("run", "other", 1) == 1
    assert ws.using(key="k").cells.init("run", "third", 1) == 1
    assert ws.using(key="l").cells.increment("run", "count") == 3
    assert keys(ws) == 5


def test_an_error_stores_nothing_so_the_call_may_be_repeated_when_its_cause_is_gone(world: World) -> None:
    ws = world.open()
    keyed = ws.using(key="k")
    with pytest.raises(errors.VersionMismatch):
        keyed.cells.cas("run", "cell", 1, "mine")
    assert keys(ws) == 0
    ws.cells.set("run", "cell", 0)
    assert keyed.cells.cas("run", "cell", 1, "mine") == 2
    assert keyed.cells.cas("run", "cell", 1, "mine") == 2


def test_an_answer_is_kept_for_24_hours_and_then_forgotten(world: World) -> None:
    ws = world.open()
    keyed = ws.using(key="k")
    assert keyed.cells.increment("run", "count") == 1
    world.clock.advance(DAY - 0.000001)
    assert keyed.cells.increment("run", "count") == 1
    world.clock.advance(0.000001)
    assert keyed.cells.increment("run", "count") == 2
    assert keyed.cells.increment("run", "count") == 2


def test_after_24_hours_a_key_may_be_used_with_other_arguments(world: World) -> None:
    keyed = world.open().using(key="k")
    keyed.cells.set("run", "cell", 1)
    world.clock.advance(DAY)
    assert keyed.cells.set("run", "cell", 2) == 2


def test_keys_that_are_over_are_cleaned_up_by_those_who_use_keys(world: World) -> None:
    ws = world.open()
    for number in range(70):
        ws.using(key=f"old-{number}").cells.set("run", "cell", number)
    assert keys(ws) == 70
    world.clock.advance(DAY)
    ws.cells.set("run", "cell", 0)
    ws.using(key="a").cells.set("run", "cell", 1)
    ws.using(key="b").cells.set("run", "cell", 2)
    assert keys(ws) == 2


def test_an_expiry_in_between_does_not_change_the_answer(world: World) -> None:
    keyed = world.open().using(key="k")
    first = keyed.locks.acquire("lock", "me", ttl=5)
    world.clock.advance(6)
    assert keyed.locks.acquire("lock", "me", ttl=5) == first
    assert keyed.locks.find("lock") is None


@pytest.mark.parametrize("key", ["", "x" * 513, "a\0b", 7])
def test_a_key_that_is_no_name_is_invalid(world: World, key: Any) -> None:
    with pytest.raises(errors.Invalid):
        world.open().using(key=key)


# --- answers of every type -------------------------------------------------------------------------------------------

TYPED: dict[str, tuple[type, Callable[[Workspace], object]]] = {
    "grant": (Grant, lambda ws: ws.locks.acquire("lock", "me", ttl=5)),
    "grant for ever": (Grant, lambda ws: ws.locks.acquire("lock", "me")),
    "grant on a cell": (Grant, lambda ws: ws.cells.acquire_lock("run", "cell", "me", 5)),
    "lease": (Lease, lambda ws: ws.leases.create(5, "me")),
    "cell": (Cell, lambda ws: ws.cells.get_or_init("run", "cell", {"a": [1, 1.0, True, None, b"\0x"]})),
    "version": (int, lambda ws: ws.cells.set("run", "cell", b"bytes")),
    "number": (float, lambda ws: ws.cells.increment("run", "cell", 0.5)),
    "bool": (bool, lambda ws: ws.cells.delete("run", "absent")),
    "txn": (TxnResult, lambda ws: ws.txn([], [Op("cells.set", {"run": "run", "cell": "cell", "value": 1})])),
    "txn with a grant": (TxnResult, lambda ws: ws.txn([], [Op("locks.acquire", {"name": "lock", "holder": "me"})])),
}


@pytest.mark.parametrize("what", TYPED)
def test_a_repeated_answer_is_equal_to_the_first_and_of_the_same_type(world: World, what: str) -> None:
    ws = world.open()
    type_, call = TYPED[what]
    first = call(ws.using(key="k"))
    before = ws.revision
    world.clock.advance(1)
    again = call(ws.using(key="k"))
    assert type(first) is type(again) is type_
    assert repr(again) == repr(first)  # repr tells 1 from 1.0 and a Grant from a dict of the same data
    assert ws.revision == before


def test_a_repeated_revoke_is_answered_though_the_lease_is_gone(world: World) -> None:
    ws = world.open()
    lease = ws.leases.create(5)
    for _ in range(2):
        assert ws.using(key="k").leases.revoke(lease.id) is None
    with pytest.raises(errors.NotFound):
        ws.leases.revoke(lease.id)


def test_get_or_init_with_a_key_repeats_its_answer_though_the_cell_has_moved_on(world: World) -> None:
    ws = world.open()
    first = ws.using(key="k").cells.get_or_init("run", "cell", 1)
    ws.cells.set("run", "cell", 2)
    assert ws.using(key="k").cells.get_or_init("run", "cell", 1) == first
    with pytest.raises(errors.Invalid):
        ws.using(key="k").cells.get_or_init("run", "cell", 3)


def test_a_repeated_acquire_that_waits_leaves_nobody_in_line(world: World) -> None:
    ws = world.open()
    keyed = ws.using(key="k")
    first = keyed.locks.acquire("lock", "me", wait=5)
    before = ws.revision
    assert keyed.locks.acquire("lock", "me", wait=5) == first
    assert ws.revision == before
    ws.locks.release("lock", "me")
    assert ws.locks.acquire("lock", "you").holder == "you"


def test_a_repeated_call_is_answered_whatever_became_of_its_fence(world: World) -> None:
    ws = world.open("me")
    grant = ws.locks.acquire("lock")
    fenced = ws.using(key="k", fence=("lock", grant.token))
    assert fenced.cells.increment("run", "count") == 1
    ws.locks.release("lock", "me")
    assert fenced.cells.increment("run", "count") == 1
    with pytest.raises(errors.Fenced):
        ws.using(key="other", fence=("lock", grant.token)).cells.increment("run", "count")
    assert keys(ws) == 1


@pytest.mark.parametrize(
    "value", [float("nan"), 2**64, object, {1, 2}, "\ud800"], ids=["nan", "int", "type", "set", "text"]
)
def test_a_value_that_cannot_be_stored_is_invalid_with_a_key_too(world: World, value: Any) -> None:
    ws = world.open()
    with pytest.raises(errors.InvalidValue):
        ws.using(key="k").cells.set("run", "cell", value)
    assert (ws.revision, keys(ws)) == (0, 0)


def test_a_value_that_is_too_deep_is_invalid_with_a_key_too(world: World) -> None:
    ws = world.open()
    value: list[Any] = []
    for _ in range(5000):
        value = [value]
    if world.kind == "processes":
        pytest.skip("a value this deep cannot be sent to another process")
    with pytest.raises(errors.InvalidValue):
        ws.using(key="k").cells.set("run", "cell", value)
    assert keys(ws) == 0


# --- with transactions -----------------------------------------------------------------------------------------------


@callables
def test_a_keyed_body_runs_once_and_its_plain_answer_is_kept(world: World) -> None:
    ws = world.open()
    answer = {"list": [1, 1.0, True, None, "text", b"bytes"]}

    def body(tx: Transaction) -> object:
        tx.cells.increment("run", "count")
        return answer

    assert [repr(ws.using(key="k").transact(body)) for _ in range(3)] == [repr(answer)] * 3
    assert ws.cells.get("run", "count").value == 1


@callables
def test_a_keyed_body_whose_answer_is_no_plain_data_happens_all_the_same_and_once(world: World) -> None:
    ws = world.open()

    class Mine:
        pass

    def body(tx: Transaction) -> Mine:
        tx.cells.increment("run", "count")
        return Mine()

    assert isinstance(ws.using(key="k").transact(body), Mine)
    assert ws.using(key="k").transact(body) is None
    assert ws.cells.get("run", "count").value == 1


@callables
def test_a_key_rolls_back_with_its_transaction(world: World) -> None:
    ws = world.open()
    failing = [True]
    attempts = []

    def body(tx: Transaction) -> int:
        value = int(tx.cells.increment("run", "count"))
        attempts.append(value)
        if failing:
            raise ValueError("not yet")
        return value

    with pytest.raises(ValueError, match="not yet"):
        ws.using(key="k").transact(body)
    assert keys(ws) == 0
    failing.clear()
    assert [ws.using(key="k").transact(body) for _ in range(2)] == [1, 1]
    assert set(attempts) == {1}, "a body may run again where nodes share a log, but never on top of itself"
    assert "local" not in world.capabilities or len(attempts) == 2


@callables
@pytest.mark.capability("local")
def test_a_key_rolls_back_alone_in_a_group(world: World) -> None:
    ws = world.open()

    def bad(tx: Transaction) -> None:
        tx.cells.set("run", "bad", 1)
        raise ValueError("bad")

    with Line(ws) as line:
        before = line.queue(lambda: ws.using(key="before").cells.set("run", "before", 1))
        failing = line.queue(lambda: ws.using(key="bad").transact(bad))
        after = line.queue(lambda: ws.using(key="after").cells.set("run", "after", 1))
    assert isinstance(failing.exception(60), ValueError)
    assert (before.result(60), after.result(60), keys(ws)) == (1, 1, 2)


@pytest.mark.capability("aio")
def test_a_key_given_to_a_thread_holds_on_an_event_loop(world: World) -> None:
    ws = world.open()

    async def main() -> tuple[object, Grant]:
        keyed = ws.aio.using(key="k")
        return await keyed.cells.increment("run", "count"), await keyed.locks.acquire("lock", "me")

    assert ws.using(key="k").cells.increment("run", "count") == 1
    count, grant = finish(main())
    assert (count, grant) == (1, ws.using(key="k").locks.acquire("lock", "me"))
    assert isinstance(grant, Grant)


def test_a_keyed_call_that_changes_nothing_takes_no_revision_but_is_remembered(world: World) -> None:
    ws = world.open()
    assert ws.using(key="k").cells.delete("run", "cell") is False
    ws.cells.set("run", "cell", 1)
    assert ws.using(key="k").cells.delete("run", "cell") is False
    assert ws.revision == 1
