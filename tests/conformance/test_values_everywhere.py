"""What is not a value is refused wherever a call takes one, alike on every kind: nothing travels as something else."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from holdfast import errors
from holdfast.operation import REGISTRY
from holdfast.types import Op, ValueEquals
from holdfast.wire import plan_of
from tests.worlds.kinds import World

pytestmark = pytest.mark.kinds("drawn")

BAD: dict[str, Any] = {
    "tuple": (1, 2),
    "set": {1, 2},
    "int key": {1: "a"},
    "two keys alike": {1: "a", "1": "b"},
    "datetime": datetime(2020, 1, 1, tzinfo=UTC),
    "date": date(2020, 1, 1),
    "time": time(12),
    "timedelta": timedelta(1),
    "UUID": UUID(int=1),
    "Decimal": Decimal("1.5"),
    "object": object(),
    "NaN": float("nan"),
    "2**64": 2**64,
    "lone surrogate": "\ud800",
}
QUEUE, CHANNEL = (None, "queue"), (None, "channel")
Call = Callable[[Any, Any], object]
# By operation and argument: a call that would succeed with a value in this place.
CALLS: dict[tuple[str, str], Call] = {
    ("cells.set", "value"): lambda ws, bad: ws.cells.set("run", "cell", [bad]),
    ("cells.cas", "value"): lambda ws, bad: ws.cells.cas("run", "cell", 1, {"a": bad}),
    ("cells.init", "value"): lambda ws, bad: ws.cells.init("run", "new", bad),
    ("cells.get_or_init", "default"): lambda ws, bad: ws.cells.get_or_init("run", "new", bad),
    ("channels.publish", "value"): lambda ws, bad: ws.channels.publish(CHANNEL, bad),
    ("cycles.add_error", "details"): lambda ws, bad: ws.cycles.add_error(_cycle(ws), "plan", "E", {"a": bad}),
    ("cycles.complete_phase", "output"): lambda ws, bad: ws.cycles.complete_phase(_cycle(ws), "plan", {"a": bad}),
    ("cycles.fail_phase", "details"): lambda ws, bad: ws.cycles.fail_phase(_cycle(ws), "plan", "E", {"a": bad}),
    ("cycles.finish", "details"): lambda ws, bad: ws.cycles.finish(_cycle(ws), "E", {"a": bad}),
    ("cycles.start", "context"): lambda ws, bad: ws.cycles.start(spec="two", context={"a": bad}),
    ("cycles.update_phase", "output"): lambda ws, bad: ws.cycles.update_phase(_cycle(ws), "plan", {"a": bad}),
    ("items.put", "value"): lambda ws, bad: ws.items.put("notes", "key", {"v": bad}),
    ("items.search", "where"): lambda ws, bad: ws.items.search("notes", where={"v": bad}),
    ("queues.put", "value"): lambda ws, bad: ws.queues.put(QUEUE, bad),
    ("queues.put_all", "values"): lambda ws, bad: ws.queues.put_all(QUEUE, [1, bad]),
    ("stashes.create", "value"): lambda ws, bad: ws.stashes.create("new", "context", value={"a": bad}),
    ("stashes.set_value", "value"): lambda ws, bad: ws.stashes.set_value((None, "context"), {"a": bad}),
    ("stashes.save", "value"): lambda ws, bad: ws.stashes.save(_stash(ws), 1, 2, "set", {"a": bad}),
    ("tasks.complete", "result"): lambda ws, bad: ws.tasks.complete(ws.tasks.list()[0].id, result=bad),
    ("threads.history", "where"): lambda ws, bad: ws.threads.history("chat", where={"a": bad}),
    ("threads.put", "value"): lambda ws, bad: ws.threads.put("chat", "02", {"a": bad}),
    ("threads.put", "metadata"): lambda ws, bad: ws.threads.put("chat", "02", {}, metadata={"a": bad}),
    ("threads.put", "values"): lambda ws, bad: ws.threads.put("chat", "02", {}, channels={"x": "1"}, values={"x": bad}),
    ("threads.put_writes", "writes"): lambda ws, bad: ws.threads.put_writes("chat", "01", "task", [("x", bad)]),
    ("txn", "conditions"): lambda ws, bad: ws.txn([ValueEquals("cell", ("run", "cell"), bad)], []),
    ("txn", "then"): lambda ws, bad: ws.txn([], [_put(bad)]),
    ("txn", "otherwise"): lambda ws, bad: ws.txn([ValueEquals("cell", ("run", "cell"), 2)], [], [_put(bad)]),
}
# What these take is not stored as it is: a document that they judge, or objects of arguments.
JUDGED = {
    *(("cycles.adopt", "document"), ("cycles.compare", "document"), ("cycles.validate", "document")),
    *(
        ("cycles.import_", "entries"),
        ("routes.decide", "task"),
        ("tasks.bulk", "tasks"),
        ("tasks.set_template", "tree"),
    ),
}


def _put(bad: Any) -> Op:
    return Op("items.put", {"namespace": "notes", "key": "key", "value": {"v": bad}})


def _cycle(ws: Any) -> str:
    return str(ws.cycles.list()[0].key)


def _stash(ws: Any) -> str:
    return str(ws.stashes.get((None, "context")).id)


def furnished(world: World) -> Any:
    ws = world.open()
    ws.cells.set("run", "cell", 1)
    ws.stashes.create("queue", "queue")
    ws.stashes.create("channel", "channel")
    ws.stashes.create("context", "context", value={})
    ws.tasks.claim(ws.tasks.create("a task").id)
    ws.threads.put("chat", "01", {})
    ws.cycles.start(spec="feature")
    ws.cycles.start_phase(_cycle(ws), "plan")
    return ws


def test_every_place_for_a_value_has_a_case() -> None:
    places = {
        (name, argument)
        for name, op in REGISTRY.items()
        if not op.route.local and op.kind != "stream"
        for argument in plan_of(name).values
    }
    assert places == CALLS.keys() | JUDGED


@pytest.mark.parametrize("value", BAD.values(), ids=BAD)
def test_what_is_no_value_is_refused_in_every_place(world: World, value: Any) -> None:
    ws = furnished(world)
    before = ws.revision
    outcomes = {place: _outcome(call, ws, value) for place, call in CALLS.items()}
    assert {place: said for place, said in outcomes.items() if said != "INVALID_VALUE"} == {}
    assert ws.revision == before


def _outcome(call: Call, ws: Any, value: Any) -> str:
    try:
        return f"returned {call(ws, value)!r}"
    except errors.HoldfastError as error:
        return error.code if error.hint else f"{error} has no hint"


@pytest.mark.parametrize("title", [UUID(int=1), datetime(2020, 1, 1, tzinfo=UTC), Decimal(1), float("nan")], ids=str)
def test_a_text_is_not_made_of_something_else(world: World, title: Any) -> None:
    ws = furnished(world)
    task = ws.tasks.list()[0]
    with pytest.raises(errors.InvalidValue, match="title "):
        ws.tasks.update(task.id, title=title)
    assert ws.tasks.get(task.id).title == task.title


@pytest.mark.parametrize("given", [{"title": "a", "tags": ("x", "y")}, {"title": "a", "tags": ["x", "y"]}], ids=str)
def test_objects_of_arguments_take_a_tuple_for_a_list(world: World, given: dict[str, Any]) -> None:
    ws = world.open()
    assert ws.tasks.bulk("create", tasks=[given]).results[0].success
    assert [*ws.tasks.list()[0].tags] == ["x", "y"]


def test_a_lone_surrogate_in_place_of_an_object_is_refused(world: World) -> None:
    ws = furnished(world)
    with pytest.raises(errors.Invalid):
        ws.routes.decide("\ud800")
    with pytest.raises(errors.InvalidFilter):
        ws.items.search("notes", where="\ud800")
