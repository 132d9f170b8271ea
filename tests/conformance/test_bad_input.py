"""Bad input gets its typed error, and nothing has changed: not the revision, no cell, lock or lease, no event."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import errors
from holdfast.types import Op
from tests.worlds.kinds import World

pytestmark = pytest.mark.kinds("drawn")

Call = Callable[..., object]  # of a workspace, without types: they would refuse what is to be refused


def furnished(world: World) -> Any:
    """A workspace with something in it that could be damaged: cells, one of them with an end, a lock and a lease."""
    ws = world.open()
    ws.cells.set("run", "cell", 1)
    ws.cells.set("run", "text", "text", ttl=60)
    ws.locks.acquire("held", ttl=60)
    ws.leases.create(60)
    return ws


def state(ws: Any) -> list[Any]:
    """All there is to see in a workspace."""
    cells = [
        (run, cell, ws.cells.get(run, cell), ws.cells.ttl(run, cell))
        for run in ws.cells.runs()
        for cell in ws.cells.list(run)
    ]
    return [cells, ws.locks.list(), ws.leases.list(), ws.events.list(limit=1000), ws.check(), ws.revision]


def refuse(
    ws: Any, error: type[errors.HoldfastError], *calls: Call, given: tuple[Any, ...] = (), by: Any = None
) -> None:
    """Expect exactly this error of every call, and the state as before."""
    before = state(ws)
    assert [_outcome(call, by or ws, *given) for call in calls] == [error] * len(calls)
    assert state(ws) == before


def _outcome(call: Call, *args: Any) -> object:
    try:
        return call(*args)
    except Exception as error:
        return type(error)


# --- names -----------------------------------------------------------------------------------------------------------

BAD_NAMES: dict[str, Any] = {
    "empty": "",
    "NUL": "a\0b",
    "newline": "a\n",
    "escape": "\x1b[0m",
    "DEL": "\x7f",
    "C1": "\x85",
    "513 bytes": "x" * 513,
    "513 bytes of UTF-8": "é" * 256 + "x",
    "lone surrogate": "\ud800",
    "None": None,
    "int": 1,
    "bytes": b"cell",
    "list": ["cell"],
}
NAMED: tuple[Call, ...] = (
    lambda ws, name: ws.cells.set(name, "cell", 1),
    lambda ws, name: ws.cells.set("run", name, 1),
    lambda ws, name: ws.cells.get(name, "cell"),
    lambda ws, name: ws.cells.get("run", name),
    lambda ws, name: ws.cells.find("run", name),
    lambda ws, name: ws.cells.exists("run", name),
    lambda ws, name: ws.cells.info("run", name),
    lambda ws, name: ws.cells.ttl("run", name),
    lambda ws, name: ws.cells.refresh_ttl("run", name, 5),
    lambda ws, name: ws.cells.delete("run", name),
    lambda ws, name: ws.cells.cas("run", name, None, 1),
    lambda ws, name: ws.cells.compare_and_delete("run", name, 1),
    lambda ws, name: ws.cells.init("run", name, 1),
    lambda ws, name: ws.cells.get_or_init("run", name, 1),
    lambda ws, name: ws.cells.increment("run", name),
    lambda ws, name: ws.cells.history("run", name),
    lambda ws, name: ws.cells.at("run", name, 1),
    lambda ws, name: ws.cells.restore("run", name, 1),
    lambda ws, name: ws.cells.watch("run", name, timeout=0),
    lambda ws, name: ws.cells.list(name),
    lambda ws, name: ws.cells.delete_run(name),
    lambda ws, name: ws.cells.acquire_lock("run", name, "holder"),
    lambda ws, name: ws.locks.acquire(name, "holder"),
    lambda ws, name: ws.locks.release(name, "holder"),
    lambda ws, name: ws.txn([], [Op("cells.set", {"run": "run", "cell": name, "value": 1})]),
)


@pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES)
def test_c7_a_bad_name_is_refused_by_every_operation_and_nothing_changes(world: World, name: Any) -> None:
    refuse(furnished(world), errors.InvalidName, *NAMED, given=(name,))


@pytest.mark.parametrize("text", [None, 0, 5, b"", b"a", "a\n", "\ud800"], ids=repr)
def test_c7_a_bad_prefix_or_after_is_refused(world: World, text: Any) -> None:
    refuse(
        furnished(world),
        errors.InvalidName,
        lambda ws: ws.cells.list("run", prefix=text),
        lambda ws: ws.cells.list("run", after=text),
        lambda ws: ws.cells.runs(prefix=text),
        lambda ws: ws.cells.runs(after=text),
    )


# --- values ----------------------------------------------------------------------------------------------------------


def nested(depth: int) -> Any:
    """A list in a list in a list."""
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


class Subclass(str):
    """What would come back as something else."""


circle: list[Any] = []
circle.append(circle)
BAD_VALUES: dict[str, Any] = {
    "NaN": math.nan,
    "infinity": math.inf,
    "minus infinity": -math.inf,
    "NaN inside": {"deep": [1, math.nan]},
    "2**63": 2**63,
    "-2**63-1": -(2**63) - 1,
    "2**64 inside": [{"deep": 2**64}],
    "129 deep": nested(129),
    "contains itself": circle,
    "tuple": (1, 2),
    "tuple inside": {"deep": [(1, 2)]},
    "set": {1, 2},
    "bytearray": bytearray(b"x"),
    "complex": 1j,
    "object": object(),
    "datetime": datetime(2020, 1, 1, tzinfo=UTC),
    "Decimal": Decimal(1),
    "subclass of str": Subclass("x"),
    "int key": {1: "x"},
    "None key": {"a": {None: "x"}},
    "lone surrogate": "\ud800",
    "lone surrogate in a key": {"\udfff": 1},
}
LARGE = 1024 * 1024
TOO_LARGE: dict[str, Any] = {
    "str": "x" * (LARGE - 4),
    "str of UTF-8": "世" * (LARGE // 3),
    "bytes": bytes(LARGE - 4),
    "list": [0] * (LARGE - 4),
    "dict": {"x" * (LARGE // 2): "y" * (LARGE // 2)},
}
increment = Op("cells.increment", {"run": "run", "cell": "cell"})
WRITERS: tuple[Call, ...] = (
    lambda ws, value: ws.cells.set("run", "cell", value),
    lambda ws, value: ws.cells.set("run", "new", value, ttl=5),
    lambda ws, value: ws.cells.cas("run", "cell", 1, value),
    lambda ws, value: ws.cells.cas("run", "new", None, value),
    lambda ws, value: ws.cells.init("run", "new", value),
    lambda ws, value: ws.cells.get_or_init("run", "new", value),
    lambda ws, value: ws.txn([], [increment, Op("cells.set", {"run": "run", "cell": "new", "value": value})]),
    lambda ws, value: ws.using(key="key").cells.set("run", "cell", value),
)


@pytest.mark.parametrize("value", BAD_VALUES.values(), ids=BAD_VALUES)
def test_c11_what_is_no_value_is_refused_and_nothing_changes(world: World, value: Any) -> None:
    refuse(furnished(world), errors.InvalidValue, *WRITERS, given=(value,))


@pytest.mark.parametrize("value", TOO_LARGE.values(), ids=TOO_LARGE)
def test_c11_a_value_over_1_mib_is_too_large_and_nothing_changes(world: World, value: Any) -> None:
    refuse(furnished(world), errors.TooLarge, *WRITERS, given=(value,))


@pytest.mark.capability("callables")
@pytest.mark.parametrize("value", [math.nan, 2**63, nested(129), (1,)], ids=["NaN", "2**63", "129 deep", "tuple"])
def test_c11_what_a_function_answers_is_checked_like_a_value(world: World, value: Any) -> None:
    refuse(
        furnished(world),
        errors.InvalidValue,
        lambda ws: ws.cells.transition("run", "cell", lambda _: value),
        lambda ws: ws.cells.transition_or_init("run", "new", 1, lambda _: value),
        lambda ws: ws.cells.transition_or_init("run", "new", value, lambda _: 1),
        lambda ws: ws.cells.get_or_init("run", "new", lambda: value),
    )


def test_c11_the_cap_on_values_can_be_configured(tmp_path: Path) -> None:
    with holdfast.open(tmp_path, actor="tester", max_value_bytes=64) as ws:
        assert ws.cells.set("run", "cell", "x" * 62) == 1
        refuse(ws, errors.TooLarge, lambda ws: ws.cells.set("run", "cell", "x" * 63))


BAD_DELTAS = ["1", True, None, math.nan, math.inf, 2**63 - 1, 2**63]


@pytest.mark.parametrize(
    ("cell", "delta"),
    [("text", 1), ("new", 2**63), ("float", 1.7e308), ("float", 10**400), *(("cell", delta) for delta in BAD_DELTAS)],
    ids=lambda given: repr(given)[:20],
)
def test_c18_what_cannot_be_added_is_refused_and_nothing_changes(world: World, cell: str, delta: Any) -> None:
    ws = furnished(world)
    ws.cells.set("run", "float", 1.7e308)
    refuse(ws, errors.InvalidValue, lambda ws: ws.cells.increment("run", cell, delta))


# --- versions, limits, cursors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, -1, True, 1.0, "1", b"1", [1]], ids=repr)
def test_c4_what_is_no_version_is_refused(world: World, version: Any) -> None:
    ws = furnished(world)
    refuse(
        ws,
        errors.Invalid,
        lambda ws: ws.cells.cas("run", "cell", version, 2),
        lambda ws: ws.cells.compare_and_delete("run", "cell", version),
        lambda ws: ws.cells.at("run", "cell", version),
        lambda ws: ws.cells.restore("run", "cell", version),
    )
    refuse(ws, errors.InvalidFilter, lambda ws: ws.cells.history("run", "cell", before=version))


@pytest.mark.parametrize("cell", ["cell", "absent"])
def test_c18_compare_and_delete_needs_a_version(world: World, cell: str) -> None:
    refuse(furnished(world), errors.Invalid, lambda ws: ws.cells.compare_and_delete("run", cell, None))


@pytest.mark.parametrize("version", [2**63 - 1, 2**63, 10**400], ids=["2**63-1", "2**63", "10**400"])
def test_c9_a_version_that_no_cell_can_have_is_a_version_it_has_not(world: World, version: int) -> None:
    ws = furnished(world)
    refuse(
        ws,
        errors.NotFound,
        lambda ws: ws.cells.at("run", "cell", version),
        lambda ws: ws.cells.restore("run", "cell", version),
    )
    refuse(ws, errors.VersionMismatch, lambda ws: ws.cells.cas("run", "cell", version, 2))
    assert [step.version for step in ws.cells.history("run", "cell", before=version)] == [1]


LIMITED: tuple[Call, ...] = (
    lambda ws, limit: ws.cells.list("run", limit=limit),
    lambda ws, limit: ws.cells.runs(limit=limit),
    lambda ws, limit: ws.cells.history("run", "cell", limit=limit),
    lambda ws, limit: ws.events.list(limit=limit),
    lambda ws, limit: ws.locks.list(limit=limit),
    lambda ws, limit: ws.leases.list(limit=limit),
)


@pytest.mark.parametrize("limit", [0, -1, True, 1.0, "5", 2**40], ids=repr)
def test_c7_a_limit_that_cannot_be_used_is_refused(world: World, limit: Any) -> None:
    refuse(furnished(world), errors.InvalidFilter, *LIMITED, given=(limit,))


def watched(ws: Any, cursor: Any) -> object:
    """The first event after a cursor, or None."""
    return next(iter(ws.watch(after=cursor, timeout=0)), None)


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "-1", "1-", "-", "1-2-3", "1.5", " 1", "+1", "٣", f"1-{2**63}", "9" * 5000, -1, True, 1.0, b"1", [1]],
    ids=lambda cursor: repr(cursor)[:20],
)
def test_c17_a_malformed_cursor_is_refused(world: World, cursor: Any) -> None:
    refuse(
        furnished(world), errors.InvalidFilter, lambda ws: ws.events.list(after=cursor), lambda ws: watched(ws, cursor)
    )


@pytest.mark.kinds("every")
@pytest.mark.parametrize("ahead", [1, 1000, 2**63, 10**400], ids=["1", "1000", "2**63", "10**400"])
def test_c17_a_cursor_in_the_future_is_refused(world: World, ahead: int) -> None:
    ws = furnished(world)
    future = ws.revision + ahead
    refuse(
        ws,
        world.beyond if ahead < 2**62 else errors.InvalidFilter,
        lambda ws: ws.events.list(after=future),
        lambda ws: ws.events.list(after=f"{future}-0"),
        lambda ws: watched(ws, future),
    )
    refuse(ws, errors.InvalidFilter, lambda ws: ws.cells.watch("run", "cell", after_version=1 + ahead, timeout=0))


@pytest.mark.parametrize("version", [-1, True, 1.0, "1"], ids=repr)
def test_c17_a_malformed_after_version_is_refused(world: World, version: Any) -> None:
    refuse(
        furnished(world),
        errors.InvalidFilter,
        lambda ws: ws.cells.watch("run", "cell", after_version=version, timeout=0),
    )


# --- time, leases, holders, keys -------------------------------------------------------------------------------------

BAD_SECONDS = [-1, -0.5, math.nan, math.inf, -math.inf, True, False, "5", b"5", [5], 1e10, 10**400]
TIMED: tuple[Call, ...] = (
    lambda ws, ttl: ws.cells.set("run", "cell", 2, ttl=ttl),
    lambda ws, ttl: ws.cells.refresh_ttl("run", "cell", ttl),
    lambda ws, ttl: ws.cells.acquire_lock("run", "cell", ttl=ttl),
    lambda ws, ttl: ws.locks.acquire("free", ttl=ttl),
    lambda ws, ttl: ws.locks.acquire("held", ttl=ttl),
    lambda ws, ttl: ws.locks.acquire("free", ttl=ttl, wait=0),
    lambda ws, ttl: ws.locks.refresh("held", ttl=ttl),
    lambda ws, ttl: ws.leases.create(ttl),
)


@pytest.mark.parametrize("ttl", [0, 0.0, *BAD_SECONDS], ids=lambda ttl: repr(ttl)[:20])
def test_c12_a_ttl_that_is_no_time_is_refused_and_nothing_changes(world: World, ttl: Any) -> None:
    refuse(furnished(world), errors.Invalid, *TIMED, given=(ttl,))


@pytest.mark.parametrize("seconds", BAD_SECONDS, ids=lambda seconds: repr(seconds)[:20])
def test_c14_a_wait_or_timeout_that_is_no_time_is_refused_and_nothing_changes(world: World, seconds: Any) -> None:
    refuse(
        furnished(world),
        errors.Invalid,
        lambda ws: ws.locks.acquire("held", "another", wait=seconds),
        lambda ws: ws.cells.watch("run", "cell", timeout=seconds),
        lambda ws: ws.watch(timeout=seconds),
    )


BINDING: tuple[Call, ...] = (
    lambda ws, ttl, lease: ws.cells.set("run", "cell", 2, ttl=ttl, lease=lease),
    lambda ws, ttl, lease: ws.cells.acquire_lock("run", "cell", ttl=ttl, lease=lease),
    lambda ws, ttl, lease: ws.locks.acquire("free", ttl=ttl, lease=lease),
    lambda ws, ttl, lease: ws.locks.acquire("held", ttl=ttl, lease=lease),
    lambda ws, ttl, lease: ws.locks.acquire("free", wait=0, ttl=ttl, lease=lease),
)


def test_c13_an_unknown_lease_is_not_found_and_nothing_changes(world: World) -> None:
    ws = furnished(world)
    ended = ws.leases.create(60).id
    ws.leases.revoke(ended)
    refuse(ws, errors.NotFound, *BINDING, given=(None, "unknown"))
    refuse(ws, errors.NotFound, *BINDING, given=(None, ended))
    refuse(ws, errors.InvalidName, *BINDING, given=(None, ""))


def test_c13_a_ttl_and_a_lease_together_are_refused_and_nothing_changes(world: World) -> None:
    ws = furnished(world)
    refuse(ws, errors.Invalid, *BINDING, given=(5, ws.leases.list()[0].id))


def test_c13_an_unknown_lease_can_neither_be_refreshed_nor_revoked(world: World) -> None:
    refuse(
        furnished(world),
        errors.NotFound,
        lambda ws: ws.leases.refresh("unknown"),
        lambda ws: ws.leases.revoke("unknown"),
        lambda ws: ws.leases.get("unknown"),
    )


@pytest.mark.parametrize("wait", [None, 0], ids=["at once", "in line"])
def test_c14_a_derived_actor_must_name_a_holder(
    world: World, wait: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_ACTOR", raising=False)
    ws, derived = furnished(world), world.open(actor=None)
    refuse(
        ws,
        errors.InvalidHolder,
        lambda ws: ws.locks.acquire("free", wait=wait),
        lambda ws: ws.cells.acquire_lock("run", "cell", wait=wait),
        lambda ws: ws.locks.release("held"),
        lambda ws: ws.locks.refresh("held"),
        by=derived,
    )
    assert derived.locks.acquire("free", "named", wait=wait).holder == "named"
    assert derived.cells.set("run", "cell", 2) == 2  # it may write


@pytest.mark.kinds("every")
def test_a_key_used_again_with_other_arguments_is_refused_and_nothing_changes(world: World) -> None:
    ws = furnished(world)
    assert ws.using(key="key").cells.set("run", "cell", 1) == 2
    for arguments in (("run", "cell", 1.0), ("run", "cell", True), ("run", "other", 1), ("run", "cell", 1, 60)):
        refuse(ws, errors.Invalid, lambda ws, *given: ws.using(key="key").cells.set(*given), given=arguments)
    assert ws.using(key="key").cells.set("run", "cell", 1) == 2  # the first answer is still there


CONTEXTS: dict[str, tuple[type[errors.HoldfastError], dict[str, Any]]] = {
    "empty key": (errors.InvalidName, {"key": ""}),
    "key with a newline": (errors.InvalidName, {"key": "a\n"}),
    "key of 513 bytes": (errors.InvalidName, {"key": "x" * 513}),
    "key that is no str": (errors.InvalidName, {"key": 5}),
    "empty actor": (errors.InvalidName, {"actor": ""}),
    "actor with a newline": (errors.InvalidName, {"actor": "a\n"}),
    "fence without a token": (errors.Invalid, {"fence": ("held",)}),
    "fence that is a name": (errors.Invalid, {"fence": "held"}),
    "fence whose token is a str": (errors.Invalid, {"fence": ("held", "1")}),
    "fence with a bad name": (errors.InvalidName, {"fence": ("", 1)}),
    "negative at_least": (errors.Invalid, {"at_least": -1}),
    "at_least that is a bool": (errors.Invalid, {"at_least": True}),
}


@pytest.mark.parametrize(("error", "context"), CONTEXTS.values(), ids=CONTEXTS)
def test_a_context_that_cannot_work_is_refused(
    world: World, error: type[errors.HoldfastError], context: dict[str, Any]
) -> None:
    refuse(furnished(world), error, lambda ws: ws.using(**context).cells.set("run", "cell", 2))


# --- arguments that a call does not take -----------------------------------------------------------------------------

WRONG_CALLS: dict[str, Callable[[Any], Any]] = {
    "cells.set(): missing a required argument: 'value'; it takes (run, cell, value, ttl=None, lease=None)": (
        lambda ws: ws.cells.set("a", 1)
    ),
    "cells.get(): too many positional arguments; it takes (run, cell)": lambda ws: ws.cells.get("a", "b", "c"),
    "tasks.create(): got an unexpected keyword argument 'prio'; it takes (title, ": (
        lambda ws: ws.tasks.create("x", prio=1)
    ),
    "tasks.get(): missing a required argument: 'id'; it takes (id, ": lambda ws: ws.tasks.get(),
    "locks.acquire(): missing a required argument: 'name'; it takes (name, ": lambda ws: ws.locks.acquire(),
    "cells.watch(): missing a required argument: 'run'; it takes (run, ": lambda ws: ws.cells.watch(),
    "watch(): got an unexpected keyword argument 'kind'; it takes (kinds=None, ": lambda ws: ws.watch(kind="task"),
}


@pytest.mark.parametrize("message", WRONG_CALLS)
def test_arguments_that_a_call_does_not_take_are_a_type_error_about_the_call(world: World, message: str) -> None:
    ws, before = world.open("me"), world.open("me").revision
    calls = [ws, ws.using(key="key"), ws.using(at_least="latest")]
    for each in calls:
        with pytest.raises(TypeError) as refused:
            WRONG_CALLS[message](each)
        assert str(refused.value).startswith(message)
    if "watch" not in message and "interactive" in world.capabilities:
        with pytest.raises(TypeError) as refused, ws.transaction() as tx:
            WRONG_CALLS[message](tx)
        assert str(refused.value).startswith(message)
    assert ws.revision == before


@pytest.mark.kinds("drawn")
def test_a_misspelled_filter_is_refused_with_the_nearest_name(world: World) -> None:
    ws = world.open("me")
    with pytest.raises(TypeError, match=r"'statu'; it takes \(.*\); did you mean status\?$"):
        ws.tasks.list(statu="open")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"'afer'; it takes \(.*\); did you mean after\?$"):
        ws.channels.list("news", afer=3)  # type: ignore[call-arg]
    with pytest.raises(errors.Invalid, match="does not take prioritty") as refused:
        ws.txn([], [Op("tasks.create", {"title": "x", "prioritty": 1})])
    assert refused.value.hint == "did you mean priority?"
