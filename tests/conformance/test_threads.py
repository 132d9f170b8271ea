"""Threads: checkpoints of graphs, each value once, written by one run at a time, and gone when they are deleted."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast import Op, Workspace, errors
from holdfast.clock import SystemClock
from tests.conformance.test_stashes import refused
from tests.worlds.kinds import World

TEXT = "a value that no event may show"


def put(ws: Workspace, id: str, *numbers: str, **more: Any) -> None:
    """A line of checkpoints, each the parent of the next, whose channel `log` has a new version each time."""
    before = None
    for number in numbers:
        ws.threads.put(
            id, number, number, {"log": number}, {"log": [TEXT, number]}, {"n": number}, parent=before, **more
        )
        before = number


def ids(ws: Workspace, id: str, **more: Any) -> list[str]:
    """The checkpoints of a thread, newest first."""
    return [each.id for each in ws.threads.history(id, **more)]


def made_at(moment: datetime, end: str = "8000-000000000001") -> str:
    """The id of a checkpoint that was made at a moment: a UUID of version 6."""
    ticks = int(moment.timestamp() * 10_000_000) + 0x01B21DD213814000
    digits = f"{ticks:015x}"
    return f"{digits[:8]}-{digits[8:12]}-6{digits[12:]}-{end}"


# --- putting and reading ---------------------------------------------------------------------------------------------


def test_a_checkpoint_comes_back_whole_and_the_newest_is_the_greatest(world: World) -> None:
    ws = world.open()
    put(ws, "chat", "01", "02")
    ws.threads.put(
        "chat", "03", {"b": b"\0"}, {"log": "02", "new": "1"}, {"new": {"x": [1.5, None]}}, {"n": 3}, parent="02"
    )
    found = ws.threads.get("chat")
    assert (found.thread, found.ns, found.id, found.parent, found.run) == ("chat", "", "03", "02", None)
    assert (found.value, found.metadata, found.channels) == ({"b": b"\0"}, {"n": 3}, {"log": "02", "new": "1"})
    assert found.values == {"log": [TEXT, "02"], "new": {"x": [1.5, None]}}
    assert ws.threads.find("chat", "01") == ws.threads.get("chat", "01")
    assert ws.threads.find("chat", "04") is ws.threads.find("none") is None
    assert (ws.threads.info("chat").checkpoints, ws.threads.info("chat").version) == (3, 3)
    with pytest.raises(errors.ThreadNotFound):
        ws.threads.get("none")
    with pytest.raises(errors.NotFound):
        ws.threads.get("chat", ns="sub")


def test_a_version_that_the_thread_does_not_have_must_come_with_its_value(world: World) -> None:
    ws = world.open()
    put(ws, "chat", "01")
    error = refused(ws, errors.InvalidValue, lambda: ws.threads.put("chat", "02", None, {"log": "01", "new": "1"}))
    assert error.missing == ["new"]
    refused(ws, errors.Conflict, lambda: ws.threads.put("chat", "02", None, {"log": "01"}, {"log": "another"}))
    refused(ws, errors.InvalidValue, lambda: ws.threads.put("chat", "02", None, {}, {"log": 1}))


def test_an_event_has_ids_and_sizes_and_never_a_value(world: World) -> None:
    ws = world.open()
    put(ws, "chat", "01")
    ws.threads.put_writes("chat", "01", "task", [["log", TEXT], ["__interrupt__", {"ask": TEXT}, -3]])
    ws.items.put("users/ada", "note", {"text": TEXT})
    events = ws.events.list(kinds=["thread", "interrupt", "item"])
    assert [(each.kind, each.id, each.op) for each in events] == [
        ("thread", "chat", "put"),
        ("thread", "chat", "write"),
        ("interrupt", "chat", "interrupt"),
        ("item", "users/ada//note", "create"),
    ]
    assert TEXT not in str(events)
    assert events[0].data["bytes"] > len(TEXT)
    assert events[2].data.items() >= {"checkpoint": "01", "ns": "", "task": "task"}.items()


def test_writes_may_come_before_their_checkpoint_and_each_number_is_written_once(world: World) -> None:
    ws = world.open()
    ws.threads.put_writes("chat", "01", "b", [["log", 1], ["log", 2]], path="~b")
    ws.threads.put_writes("chat", "01", "a", [["log", 3], ["__error__", "first", -1]], path="~a")
    ws.threads.put_writes("chat", "01", "a", [["log", 4], ["__error__", "second", -1]], path="~a")
    assert ws.threads.find("chat") is None
    put(ws, "chat", "01")
    writes = ws.threads.get("chat").writes
    assert [(each.task, each.number, each.value) for each in writes] == [
        ("a", -1, "second"),
        ("a", 0, 3),
        ("b", 0, 1),
        ("b", 1, 2),
    ]


def test_a_list_goes_through_threads_namespaces_and_metadata(world: World) -> None:
    ws = world.open()
    put(ws, "one", "01", "03", "05")
    put(ws, "two", "02", "04", ns="sub")
    assert [each.id for each in ws.threads.history()] == ["05", "04", "03", "02", "01"]
    assert ids(ws, "two", ns="") == []
    assert ids(ws, "one", older_than="05", limit=1) == ["03"]
    assert ids(ws, "one", where={"n": "03"}) == ["03"]
    light, whole = ws.threads.history("one", limit=1)[0], ws.threads.history("one", limit=1, values=True)[0]
    assert (light.values, light.value, whole) == ({}, None, ws.threads.get("one"))
    assert [each.id for each in ws.threads.list()] == ["one", "two"]


@pytest.mark.kinds("drawn")
def test_a_list_by_metadata_reads_on_until_it_finds_what_it_looks_for(world: World) -> None:
    ws = world.open()
    parts = [Op("threads.put", {"id": "chat", "checkpoint": f"{n:03}", "metadata": {"n": n}}) for n in range(300)]
    for at in range(0, 300, 100):
        ws.txn([], parts[at : at + 100])
    assert ids(ws, "chat", where={"n": 0}) == ids(ws, "chat", where={"n": 0}, limit=1) == ["000"]
    assert ids(ws, "chat", where={"n": 300}) == []


# --- one run at a time -----------------------------------------------------------------------------------------------


def test_a_held_thread_is_changed_with_its_token_alone(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    put(ws, "chat", "01")
    grant = ws.threads.hold("chat", ttl=60)
    for change in (
        lambda: other.threads.put("chat", "02"),
        lambda: ws.threads.put("chat", "02"),
        lambda: other.threads.put_writes("chat", "01", "t", [["log", 1]]),
        lambda: other.threads.delete("chat"),
        lambda: other.threads.prune("chat"),
        lambda: ws.threads.hold("chat", ttl=60),
    ):
        refused(ws, errors.Held, change)
    refused(ws, errors.NotHolder, lambda: other.threads.put("chat", "02", token=grant.token))
    ws.threads.put("chat", "02", token=grant.token)
    ws.locks.release("thread:chat", token=grant.token)
    later = other.threads.hold("chat", ttl=60)
    refused(ws, errors.Fenced, lambda: ws.threads.put("chat", "03", token=grant.token))
    refused(ws, errors.Fenced, lambda: ws.threads.put_writes("chat", "02", "t", [["log", 1]], token=grant.token))
    other.threads.put("chat", "03", token=later.token)
    other.locks.release("thread:chat")
    refused(ws, errors.Fenced, lambda: ws.threads.put("chat", "04", token=later.token))
    assert ids(ws, "chat") == ["03", "02", "01"]


def test_a_claim_and_a_checkpoint_are_one_commit(world: World) -> None:
    ws = world.open("a")
    task = ws.tasks.create("task").id
    then = [
        Op("tasks.claim", {"id": task}),
        Op("threads.put", {"id": "chat", "checkpoint": "01", "value": {"task": task}}),
    ]
    ws.txn([], then)
    assert ws.tasks.get(task).revision == ws.threads.info("chat").revision
    again = [Op("threads.put", {"id": "chat", "checkpoint": "02"}), Op("tasks.claim", {"id": "hf-none"})]
    refused(ws, errors.TaskNotFound, lambda: ws.txn([], again))


# --- taking away -----------------------------------------------------------------------------------------------------


def test_what_is_deleted_is_gone_and_a_late_write_does_not_bring_it_back(world: World) -> None:
    ws = world.open()
    put(ws, "chat", "01", "02")
    ws.threads.put_writes("chat", "02", "task", [["log", TEXT]])
    assert ws.threads.delete("chat")
    assert not ws.threads.delete("chat")
    assert (ws.threads.list(), ws.threads.history()) == ([], [])
    for late in (
        lambda: ws.threads.put("chat", "03", parent="02"),
        lambda: ws.threads.put("chat", "03", ns="sub"),
        lambda: ws.threads.put_writes("chat", "02", "task", [["log", 1]]),
    ):
        refused(ws, errors.ThreadNotFound, late)
    put(ws, "chat", "04")
    refused(ws, errors.ThreadNotFound, lambda: ws.threads.put("chat", "05", parent="02"))
    refused(ws, errors.ThreadNotFound, lambda: ws.threads.put_writes("chat", "03", "task", [["log", 1]]))
    assert (ids(ws, "chat"), ws.threads.info("chat").version) == (["04"], 5)


def test_writes_of_a_run_that_begins_a_deleted_thread_anew_may_come_first(world: World) -> None:
    ws = world.open()
    put(ws, "chat", "01")
    ws.threads.delete("chat")
    deleted = ws.events.list(kinds=["thread"])[-1].time
    old, new = made_at(deleted.replace(year=deleted.year - 1)), made_at(deleted.replace(year=deleted.year + 1))
    refused(ws, errors.ThreadNotFound, lambda: ws.threads.put_writes("chat", old, "task", [["log", 1]]))
    ws.threads.put_writes("chat", new, "task", [["log", 1]])
    ws.threads.put("chat", new)
    assert [each.value for each in ws.threads.get("chat").writes] == [1]


def test_deleting_runs_takes_their_checkpoints_in_all_threads(world: World) -> None:
    ws = world.open()
    put(ws, "one", "01", run="r1")
    ws.threads.put("one", "02", None, {"log": "01", "other": "1"}, {"other": [1]}, run="r2", parent="01")
    put(ws, "two", "03", run="r2")
    assert ws.threads.delete_runs(["r2", "none"]) == 2
    assert [each.id for each in ws.threads.history()] == ["01"]
    assert ws.threads.get("one").values == {"log": [TEXT, "01"]}


def test_pruning_keeps_the_newest_and_what_its_channels_are_read_from(world: World) -> None:
    ws = world.open()
    put(ws, "chat", "01", "02")
    for before, number, deltas in (("02", "03", ["sum"]), ("03", "04", ["sum"]), ("04", "05", ["sum", "none"])):
        values = {"sum": [number]} if number == "03" else {}
        ws.threads.put("chat", number, None, dict.fromkeys(values, "1"), values, parent=before, deltas=deltas)
        ws.threads.put_writes("chat", number, "task", [["sum", 1]])
    put(ws, "chat", "06", "07", ns="sub")
    assert ws.threads.prune("none") == 0
    ws.threads.put("chat", "08", None, parent="05", deltas=["sum"])
    assert ws.threads.prune("chat", keep=1) == 3
    assert (ids(ws, "chat", ns=""), ids(ws, "chat", ns="sub")) == (["08", "05", "04", "03"], ["07"])
    assert [len(each.writes) for each in ws.threads.history("chat", ns="", values=True)] == [0, 1, 1, 1]
    refused(ws, errors.Invalid, lambda: ws.threads.prune("chat", keep=0))


def test_a_copy_is_whole_and_leads_a_life_of_its_own(world: World) -> None:
    ws = world.open()
    put(ws, "chat", "01", "02")
    ws.threads.put_writes("chat", "02", "task", [["log", 1]])
    ws.threads.copy("chat", "copy")
    source, copy = ws.threads.history("chat", values=True), ws.threads.history("copy", values=True)
    assert [(each.id, each.value, each.values, each.writes) for each in source] == [
        (each.id, each.value, each.values, each.writes) for each in copy
    ]
    refused(ws, errors.Exists, lambda: ws.threads.copy("chat", "copy"))
    refused(ws, errors.ThreadNotFound, lambda: ws.threads.copy("none", "new"))
    ws.threads.delete("chat")
    assert ids(ws, "copy") == ["02", "01"]


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.kinds("drawn")
def test_values_beyond_64_mib_are_refused_and_those_beyond_1_mib_are_not(world: World) -> None:
    ws = world.open()
    large = "x" * (3 * 1024 * 1024)
    ws.threads.put("chat", "01", None, {"log": "1"}, {"log": large})
    ws.items.put("users", "large", {"text": large})
    assert ws.threads.get("chat").values == {"log": large}
    assert ws.items.get("users", "large").value == {"text": large}


def test_a_call_takes_64_mib(tmp_path: Path) -> None:
    import holdfast

    with holdfast.open(":memory:", actor="me") as ws:
        part = b"x" * (33 * 1024 * 1024)
        for call in (
            lambda: ws.threads.put("chat", "01", None, {"a": "1", "b": "1"}, {"a": part, "b": part}),
            lambda: ws.threads.put_writes("chat", "01", "task", [["a", part], ["b", part]]),
            lambda: ws.items.put("users", "large", {"a": part, "b": part}),
        ):
            refused(ws, errors.TooLarge, call)


@pytest.mark.kinds("drawn")
def test_names_and_forms_that_are_wrong_are_refused(world: World) -> None:
    ws: Any = world.open()
    for call in (
        lambda: ws.threads.put("", "01"),
        lambda: ws.threads.put("a\n", "01"),
        lambda: ws.threads.put("a", ""),
        lambda: ws.threads.put("a", "01", ns="a\0b"),
        lambda: ws.threads.put("a", "01", None, {"c": ""}),
        lambda: ws.threads.put_writes("a", "01", "", [["c", 1]]),
        lambda: ws.items.put("users//ada", "key", {}),
        lambda: ws.items.put("users", "", {}),
    ):
        refused(ws, errors.InvalidName, call)
    for call in (
        lambda: ws.threads.put("a", "01", None, ["c"]),
        lambda: ws.threads.put("a", "01", metadata=[1]),
        lambda: ws.threads.put_writes("a", "01", "t", [["c"]]),
        lambda: ws.threads.put_writes("a", "01", "t", [["c", 1, "x"]]),
        lambda: ws.items.put("users", "key", [1]),
    ):
        refused(ws, errors.InvalidValue, call)
    for call in (lambda: ws.threads.history(cursor="x"), lambda: ws.items.search(cursor="[1]")):
        refused(ws, errors.InvalidFilter, call)


def test_the_clock_of_this_machine_makes_ids_that_are_understood() -> None:
    """`made_at` is what LangGraph makes."""
    pytest.importorskip("langgraph")
    from langgraph.checkpoint.base.id import uuid6

    now = SystemClock().wall() / 1e6
    assert abs(int(str(uuid6())[:8], 16) - int(made_at(datetime.fromtimestamp(now, UTC))[:8], 16)) < 100
