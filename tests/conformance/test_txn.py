"""Conditional transactions as plain data (C16)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import holdfast
from holdfast import Exists, Grant, NotExists, Op, TxnResult, ValueEquals, VersionEquals, Workspace, errors
from holdfast.testing.crowd import finish, together
from holdfast.types import Condition
from tests.worlds.kinds import World


def put(cell: str, value: Any = 1) -> Op:
    """A set in the run "run", as data."""
    return Op("cells.set", {"run": "run", "cell": cell, "value": value})


def true(ws: Workspace, *conditions: Condition) -> bool:
    """Whether the conditions hold; nothing is done either way."""
    return ws.txn(list(conditions), []).succeeded


# --- conditions ------------------------------------------------------------------------------------------------------


def test_c16_conditions_on_a_cell_see_its_existence_version_and_value(world: World) -> None:
    ws = world.open()
    key = ("run", "cell")
    assert not true(ws, Exists("cell", key))
    assert true(ws, NotExists("cell", key))
    assert not true(ws, VersionEquals("cell", key, 0))
    assert not true(ws, ValueEquals("cell", key, None))
    ws.cells.set("run", "cell", None)
    ws.cells.set("run", "cell", {"a": [1, b"x", None]})
    assert true(ws, Exists("cell", key), VersionEquals("cell", key, 2))
    assert true(ws, ValueEquals("cell", key, {"a": [1, b"x", None]}))
    assert not true(ws, NotExists("cell", key))
    assert not true(ws, VersionEquals("cell", key, 1))
    assert not true(ws, ValueEquals("cell", key, {"a": [1, "x", None]}))
    ws.cells.delete("run", "cell")
    assert true(ws, NotExists("cell", key))


def test_c16_conditions_on_a_lock_see_its_token_and_its_holder(world: World) -> None:
    ws = world.open()
    assert true(ws, NotExists("lock", "deploy"))
    grant = ws.locks.acquire("deploy", "me", ttl=10)
    assert true(ws, Exists("lock", "deploy"), VersionEquals("lock", ("deploy",), grant.token))
    assert true(ws, ValueEquals("lock", "deploy", "me"))
    assert not true(ws, ValueEquals("lock", "deploy", "you"))
    assert not true(ws, VersionEquals("lock", "deploy", grant.token + 1))
    world.clock.advance(10)
    assert true(ws, NotExists("lock", "deploy"))


def test_c16_conditions_on_the_lock_of_a_cell_are_not_those_on_the_cell(world: World) -> None:
    ws = world.open()
    key = ("run", "cell")
    grant = ws.cells.acquire_lock("run", "cell", "me", 10)
    assert true(ws, NotExists("cell", key), Exists("cell-lock", key), ValueEquals("cell-lock", key, "me"))
    assert true(ws, VersionEquals("cell-lock", key, grant.token), NotExists("lock", "cell"))
    ws.cells.release_lock("run", "cell", "me")
    assert true(ws, NotExists("cell-lock", key))


@pytest.mark.kinds("drawn")
def test_c16_conditions_on_a_lock_stash_see_its_token_and_its_holder_and_not_its_version(world: World) -> None:
    ws = world.open()
    trail = ws.trails.create("trail").id
    door = ws.stashes.create("door", "lock", trail=trail).id
    assert true(ws, Exists("stash", door), NotExists("stash-lock", door), NotExists("stash-lock", "/door"))
    grant = ws.stashes.acquire(door, "me", ttl=10)
    for key in (door, f"{trail}/door"):
        assert true(ws, VersionEquals("stash-lock", key, grant.token), ValueEquals("stash-lock", key, "me"))
    assert not true(ws, VersionEquals("stash-lock", door, ws.stashes.get(door).version))
    world.clock.advance(10)
    assert true(ws, NotExists("stash-lock", door))


@pytest.mark.kinds("drawn")
def test_c16_conditions_on_a_link_know_it_by_what_it_links_and_those_on_a_template_by_its_name(world: World) -> None:
    ws = world.open()
    trail, task = ws.trails.create("trail").id, ws.tasks.create("task").id
    key = ("belongs_to", task, trail)
    assert true(ws, NotExists("link", key))
    link = ws.links.create(*key)  # type: ignore[arg-type]
    assert true(ws, Exists("link", key), VersionEquals("link", key, 1), ValueEquals("link", key, link.id))
    assert not true(ws, Exists("link", ("belongs_to", trail, task)))
    result = ws.txn([Exists("link", key)], [Op("trails.remove", {"trail": trail, "task": task})])
    assert (result.succeeded, true(ws, NotExists("link", key))) == (True, True)
    assert true(ws, NotExists("template", "review"))
    for title in ("Review {what}", "Read {what}"):
        ws.tasks.set_template("review", {"title": title}, {"what": None})
    template = msgspec.json.decode(msgspec.json.encode(ws.tasks.get_template("review")))
    del template["name"], template["version"]
    assert true(ws, VersionEquals("template", "review", 2), ValueEquals("template", "review", template))
    assert not true(ws, VersionEquals("template", "review", 1))
    ws.tasks.delete_template("review")
    assert true(ws, NotExists("template", "review"))
    for bad in (Exists("link", "id"), Exists("link", ("belongs_to", task)), Exists("template", ("a", "b"))):
        with pytest.raises(errors.InvalidFilter):
            true(ws, bad)
    with pytest.raises(errors.InvalidType):
        true(ws, Exists("link", ("likes", task, trail)))


def test_c16_a_condition_does_not_see_what_is_past_its_deadline(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", 1, ttl=5)
    world.clock.advance(4.999999)
    assert true(ws, Exists("cell", ("run", "cell")))
    world.clock.advance(0.000001)
    assert true(ws, NotExists("cell", ("run", "cell")))


@pytest.mark.parametrize("stored", [1, 1.0, True, "1", b"1", [1], 0, False, None, ""], ids=repr)
def test_c16_equal_values_are_of_the_same_type(world: World, stored: Any) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", stored)
    others = [1, 1.0, True, "1", b"1", [1], 0, False, None, "", [True], {"1": 1}]
    equal = [value for value in others if true(ws, ValueEquals("cell", ("run", "cell"), value))]
    assert [(type(value), value) for value in equal] == [(type(stored), stored)]


def test_c16_equal_objects_may_have_their_keys_in_any_order(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", {"b": 2, "a": {"y": 1, "x": 0}})
    assert true(ws, ValueEquals("cell", ("run", "cell"), {"a": {"x": 0, "y": 1}, "b": 2}))


# --- branches --------------------------------------------------------------------------------------------------------


def test_c16_then_runs_if_all_conditions_hold_and_otherwise_runs_if_one_does_not(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "a", 1)
    there, absent = Exists("cell", ("run", "a")), Exists("cell", ("run", "b"))
    assert ws.txn([there], [put("then")], [put("otherwise")]) == TxnResult(True, [1])
    assert ws.txn([there, absent], [put("then")], [put("otherwise")]) == TxnResult(False, [1])
    assert ws.txn([absent, there], [put("then")]) == TxnResult(False, [])
    assert ws.txn([], [put("then")]) == TxnResult(True, [2])
    assert ws.cells.list("run") == ["a", "otherwise", "then"]


def test_c16_the_results_are_what_the_operations_answer_and_they_see_each_other(world: World) -> None:
    ws = world.open()
    where = {"run": "run", "cell": "a"}
    result = ws.txn(
        [],
        [
            put("a", 5),
            Op("cells.get", where),
            Op("cells.increment", {**where, "delta": 2}),
            Op("locks.acquire", {"name": "deploy", "holder": "me"}),
            Op("cells.delete", where),
            Op("cells.find", where),
            Op("cells.list", {"run": "run"}),
        ],
    )
    assert result.succeeded
    version, cell, total, grant, deleted, found, names = result.results
    assert (version, cell.value, total, deleted, found, names) == (1, 5, 7, True, None, [])
    assert isinstance(grant, Grant)
    assert grant == ws.locks.get("deploy")
    assert {event.revision for event in ws.events.list()} == {1}


def test_c16_an_operation_that_raises_undoes_everything(world: World) -> None:
    ws = world.open()
    ws.locks.acquire("deploy", "somebody else")
    ws.cells.set("run", "a", 1)
    ops = [put("a", 2), put("b"), Op("leases.create", {"ttl": 5}), Op("locks.acquire", {"name": "deploy"})]
    with pytest.raises(errors.Held) as caught:
        ws.txn([], ops)
    assert caught.value.holder == "somebody else"
    assert (ws.cells.list("run"), ws.cells.get("run", "a").value, ws.leases.list()) == (["a"], 1, [])
    assert ws.revision == 2


def test_c16_of_many_that_expect_the_same_version_one_wins_each_round(world: World) -> None:
    handles = [world.open(f"actor-{number}") for number in range(3)]

    def claim(number: int, version: int) -> bool:
        condition = VersionEquals("cell", ("run", "cell"), version)
        return handles[number % 3].txn([condition], [put("cell", number)], [put(f"lost-{version}-{number}")]).succeeded

    handles[0].cells.set("run", "cell", 0)
    for version in range(1, 6):
        won = together(*(lambda n=number, v=version: claim(n, v) for number in range(6)))
        assert won.count(True) == 1
    assert handles[0].cells.get("run", "cell").version == 6
    assert len(handles[0].cells.list("run", prefix="lost-")) == 25


@pytest.mark.capability("aio")
def test_c16_txn_is_awaitable(world: World) -> None:
    ws = world.open()

    async def main() -> TxnResult:
        return await ws.aio.txn([NotExists("cell", ("run", "a"))], [put("a")])

    assert finish(main()) == TxnResult(True, [1])


@pytest.mark.capability("callables")
def test_c16_txn_inside_a_transaction_is_part_of_it(world: World) -> None:
    ws = world.open()

    def body(tx: holdfast.Transaction) -> TxnResult:
        tx.cells.set("run", "a", 1)
        return tx.txn([Exists("cell", ("run", "a"))], [put("b")])

    assert ws.transact(body).succeeded
    assert ws.revision == 1


# --- limits and mistakes ---------------------------------------------------------------------------------------------


def test_c16_128_conditions_and_operations_are_the_most(world: World) -> None:
    ws = world.open()
    conditions = [NotExists("cell", ("run", "none"))] * 28
    assert ws.txn(conditions, [put(f"cell-{n}") for n in range(60)], [put("other")] * 40).succeeded
    for sizes in ((1, 128, 0), (129, 0, 0), (0, 64, 65), (0, 0, 129)):
        with pytest.raises(errors.TooLarge):
            ws.txn(conditions[:1] * sizes[0], [put("more")] * sizes[1], [put("more")] * sizes[2])
    assert len(ws.cells.list("run")) == 60
    assert ws.revision == 1


BAD_OPS: dict[str, Any] = {
    "unknown": Op("cells.explode", {}),
    "empty": Op("", {}),
    "txn itself": Op("txn", {"conditions": [], "then": []}),
    "a stream": Op("watch", {}),
    "a watch": Op("cells.watch", {"run": "run", "cell": "cell", "timeout": 0}),
    "takes a function": Op("cells.transition", {"run": "run", "cell": "cell", "fn": None}),
    "takes a function too": Op("cells.transition_or_init", {"run": "run", "cell": "cell", "initial": 0, "fn": None}),
    "waits": Op("locks.acquire", {"name": "lock", "holder": "me", "wait": 1}),
    "waits not long": Op("locks.acquire", {"name": "lock", "holder": "me", "wait": 0}),
    "waits for a cell": Op("cells.acquire_lock", {"run": "run", "cell": "cell", "holder": "me", "wait": 1}),
    "unknown argument": Op("cells.set", {"run": "run", "cell": "cell", "value": 1, "colour": "red"}),
    "missing argument": Op("cells.set", {"run": "run"}),
    "no mapping": Op("cells.set", ["run", "cell", 1]),  # type: ignore[arg-type]
    "no operation": "cells.set",
}


@pytest.mark.parametrize("what", BAD_OPS)
def test_c16_an_operation_that_cannot_run_in_a_txn_is_invalid_and_nothing_changes(world: World, what: str) -> None:
    ws = world.open()
    with pytest.raises(errors.Invalid):
        ws.txn([], [put("a"), BAD_OPS[what]])
    assert (ws.revision, ws.cells.runs(), ws.locks.list()) == (0, [], [])


@pytest.mark.parametrize("what", ["unknown", "txn itself", "takes a function", "no operation"])
def test_c16_a_mistake_in_the_branch_that_would_not_run_is_a_mistake_too(world: World, what: str) -> None:
    ws = world.open()
    with pytest.raises(errors.Invalid):
        ws.txn([], [put("a")], [BAD_OPS[what]])
    assert ws.revision == 0


BAD_CONDITIONS: dict[str, Any] = {
    "unknown kind": Exists("cupboard", "x"),
    "key too short": Exists("cell", "run"),
    "key too long": Exists("cell", ("run", "cell", "more")),
    "key no string": Exists("cell", (1, 2)),  # type: ignore[arg-type]
    "key no path": Exists("lock", 7),  # type: ignore[arg-type]
    "bad name": Exists("cell", ("run", "")),
    "value that cannot be": ValueEquals("cell", ("run", "there"), float("nan")),
    "no condition": "cell",
    "no kind of condition": Condition("cell", ("run", "there")),
}


@pytest.mark.parametrize("what", BAD_CONDITIONS)
def test_c16_a_condition_that_makes_no_sense_is_invalid_and_nothing_changes(world: World, what: str) -> None:
    ws = world.open()
    ws.cells.set("run", "there", 1)
    with pytest.raises(errors.Invalid):
        ws.txn([BAD_CONDITIONS[what]], [put("a")], [put("b")])
    assert ws.revision == 1


def test_c16_conditions_look_at_leases_too(world: World) -> None:
    ws = world.open()
    lease = ws.leases.create(30)
    made = ws.txn([Exists("lease", lease.id), ValueEquals("lease", lease.id, "tester")], [put("cell")])
    assert made.succeeded
    ws.leases.revoke(lease.id)
    assert not ws.txn([Exists("lease", lease.id)], [put("cell")]).succeeded
    assert ws.txn([NotExists("lease", lease.id)], [put("cell")]).succeeded
