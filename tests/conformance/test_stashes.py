"""Stashes (S2-S7, S9, S14): typed and versioned, named within their scope, with a history that nobody rewrites.

Each refusal leaves the workspace as it was. How stashes end, and those that are locks, have modules of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from holdfast import Workspace, errors
from holdfast.ids import is_uuid7
from holdfast.testing.crowd import together
from holdfast.types.stashes import Stash
from tests.conformance.test_waiting import Background
from tests.worlds.kinds import World

pytestmark = pytest.mark.kinds("drawn")

VALUES: dict[Any, Any] = {
    "resource": {"uri": "https://example.org/db", "kind": "database", "port": 5432},
    "artifact": {"path": "out/a.bin", "producer": "hf-1", "checksum": "sha256:00", "size": 7},
    "context": {"timeout": 30, "nested": {"list": [1, 1.5, True, None, "text"]}},
    "counter": {"value": 41},
    "lock": None,
}
LEAST, MOST = -(2**63), 2**63 - 1


def refused(ws: Workspace, error: type[errors.HoldfastError], call: Callable[[], object]) -> Any:
    """The refusal of a call, which is exactly this error and leaves no trace."""
    before = ws.revision
    with pytest.raises(error) as caught:
        call()
    assert caught.type is error
    assert ws.revision == before
    return caught.value


def entries(ws: Workspace, id: Any) -> list[tuple[str, int, Any]]:
    """The history of a stash: operation, version and value of each entry."""
    return [(entry.operation, entry.version, entry.value) for entry in ws.stashes.history(id)]


def names(stashes: list[Stash]) -> list[str]:
    """Their names, in order."""
    return [stash.name for stash in stashes]


# --- making and reading ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stash_type", VALUES)
def test_s3_s4_a_stash_of_each_type_begins_at_version_1_with_the_value_given(world: World, stash_type: Any) -> None:
    ws = world.open()
    made = ws.stashes.create("it", stash_type, VALUES[stash_type])
    assert (made.name, made.stash_type, made.value) == ("it", stash_type, VALUES[stash_type])
    assert (made.version, made.trail, made.revision, made.updated_at) == (1, None, 1, made.created_at)
    assert (made.token, made.held_until, made.expires_at) == (None, None, None)
    assert made == ws.stashes.get(made.id) == ws.stashes.get((None, "it")) == ws.stashes.find("it")
    assert entries(ws, made.id) == [("create", 1, VALUES[stash_type])]


def test_s3_every_operation_takes_an_id_or_a_trail_and_a_name(world: World) -> None:
    ws = world.open()
    trail = ws.trails.create("trail").id
    inside, outside = ws.stashes.create("n", "counter", trail=trail), ws.stashes.create("n", "counter")
    assert (ws.stashes.increment((trail, "n"), 5), ws.stashes.increment((None, "n"), 7)) == (5, 7)
    assert ws.stashes.find("n", trail) == ws.stashes.get((trail, "n")) == ws.stashes.get(inside.id)
    assert ws.stashes.set_value((None, "n"), {"value": 1}).id == outside.id
    assert ws.stashes.restore((trail, "n"), 1).value == {"value": 0}
    assert entries(ws, (trail, "n")) == entries(ws, inside.id)
    ws.stashes.delete((None, "n"))
    assert (ws.stashes.find("n"), ws.stashes.get(inside.id).version) == (None, 3)


def test_s3_get_of_no_stash_is_not_found_and_find_answers_none(world: World) -> None:
    ws = world.open()
    trail = ws.trails.create("trail").id
    ws.stashes.create("n", "counter", trail=trail)
    assert (ws.stashes.find("n"), ws.stashes.find("m", trail), ws.stashes.find("n", "elsewhere")) == (None, None, None)
    calls: list[Callable[[Any], object]] = [ws.stashes.get, ws.stashes.history, ws.stashes.delete, ws.stashes.increment]
    calls += [ws.stashes.acquire, ws.stashes.release, lambda id: ws.stashes.set_value(id, None)]
    for id in ("00000000-0000-7000-8000-000000000000", (None, "n"), (trail, "m"), trail):
        for call in (*calls, lambda id: ws.stashes.restore(id, 1)):
            refused(ws, errors.NotFound, partial(call, id))


@pytest.mark.parametrize("id", ["", 7, None, "a\0b", "\ud800", ("a",), ("a", "b", "c"), (7, "n"), ("t", "")], ids=repr)
def test_s3_what_is_no_id_is_an_invalid_id(world: World, id: Any) -> None:
    ws = world.open()
    for call in (ws.stashes.get, ws.stashes.history, ws.stashes.delete, ws.stashes.increment, ws.stashes.acquire):
        refused(ws, errors.InvalidID, partial(call, id))


# --- types and values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stash_type", ["", "heap", "Lock", None, 7, ["lock"]], ids=repr)
def test_s4_an_unknown_type_is_refused(world: World, stash_type: Any) -> None:
    ws = world.open()
    refused(ws, errors.InvalidStashType, lambda: ws.stashes.create("it", stash_type))
    refused(ws, errors.InvalidStashType, lambda: ws.stashes.create("it", stash_type, {"any": 1}))
    assert ws.stashes.list() == []


WRONG: dict[str, list[Any]] = {
    "resource": [{}, {"uri": "u"}, {"kind": "k"}, {"uri": 7, "kind": "k"}, {"uri": "u", "kind": None}, "u", []],
    "artifact": [{"path": "p", "producer": "x"}, {"path": "p", "producer": "x", "checksum": 1}, {}, 7],
    "context": [[], "text", 7, True, [["a", 1]]],
    "counter": [7, {"value": "7"}, {"value": 1.0}, {"value": True}, {"value": None}, {"value": 1, "more": 2}, {"v": 1}],
}


@pytest.mark.parametrize("stash_type", WRONG)
def test_s4_a_value_that_the_type_does_not_have_is_refused_at_its_creation_and_later(
    world: World, stash_type: Any
) -> None:
    ws = world.open()
    made = ws.stashes.create("it", stash_type, VALUES[stash_type])
    for wrong in (*WRONG[stash_type], {"uri": float("nan")}):
        refused(ws, errors.InvalidValue, partial(ws.stashes.create, "other", stash_type, wrong))
        refused(ws, errors.InvalidValue, partial(ws.stashes.set_value, made.id, wrong))
    assert ws.stashes.list() == [made]


def test_s4_a_lock_has_no_value_that_could_be_set(world: World) -> None:
    ws = world.open()
    lock = ws.stashes.create("door", "lock")
    held = {"holder": "me", "acquired_at": "2024-01-01T00:00:00Z"}
    refused(ws, errors.InvalidValue, lambda: ws.stashes.create("gate", "lock", held))
    for value in (None, held):
        refused(ws, errors.InvalidStashType, partial(ws.stashes.set_value, lock.id, value))
    refused(ws, errors.InvalidStashType, lambda: ws.stashes.restore(lock.id, 1))
    assert ws.stashes.get(lock.id) == lock


def test_s4_null_means_that_no_value_is_set_and_is_one_for_every_type_but_a_counters_first(world: World) -> None:
    ws = world.open()
    for stash_type in [each for each in VALUES if each != "lock"]:
        made = ws.stashes.create(stash_type, stash_type)
        assert made.value == ({"value": 0} if stash_type == "counter" else None)
        ws.stashes.set_value(made.id, VALUES[stash_type])
        assert ws.stashes.set_value(made.id, None).value is None
        assert [value for _, _, value in entries(ws, made.id)] == [made.value, VALUES[stash_type], None]


def test_s4_a_counter_counts_from_what_it_has_and_what_is_missing_is_0(world: World) -> None:
    ws = world.open()
    counter = ws.stashes.create("n", "counter", {"value": 40}).id
    assert [ws.stashes.increment(counter), ws.stashes.increment(counter, -50), ws.stashes.increment(counter, 0)] == [
        *(41, -9, -9)
    ]
    nothing: Any
    for nothing in (None, {}):
        ws.stashes.set_value(counter, nothing)
        assert ws.stashes.increment(counter, 3) == 3
    assert ws.stashes.get(counter).value == {"value": 3}


def test_s4_a_counter_that_would_leave_int64_is_refused_and_stays(world: World) -> None:
    ws = world.open()
    high = ws.stashes.create("high", "counter", {"value": MOST}).id
    low = ws.stashes.create("low", "counter", {"value": LEAST}).id
    for call in (partial(ws.stashes.increment, high), partial(ws.stashes.increment, low, -1)):
        refused(ws, errors.InvalidValue, call)
    refused(ws, errors.InvalidValue, lambda: ws.stashes.set_value(high, {"value": MOST + 1}))
    refused(ws, errors.InvalidValue, lambda: ws.stashes.create("more", "counter", {"value": LEAST - 1}))
    assert (ws.stashes.increment(high, -1), ws.stashes.increment(low, MOST)) == (MOST - 1, -1)


@pytest.mark.parametrize("delta", [1.0, "1", True, None], ids=repr)
def test_s4_a_counter_counts_whole_numbers_only_and_nothing_else_counts(world: World, delta: Any) -> None:
    ws = world.open()
    counter, other = ws.stashes.create("n", "counter"), ws.stashes.create("c", "context")
    refused(ws, errors.InvalidValue, lambda: ws.stashes.increment(counter.id, delta))
    refused(ws, errors.InvalidStashType, lambda: ws.stashes.increment(other.id))
    assert (ws.stashes.get(counter.id), ws.stashes.get(other.id)) == (counter, other)


# --- versions and history --------------------------------------------------------------------------------------------


def test_s2_a_stale_version_is_refused_with_the_present_one_and_nothing_is_lost(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    id = ws.stashes.create("config", "context", {"n": 1}).id
    assert other.stashes.set_value(id, {"n": 2}, expected=1).version == 2
    for expected in (1, 3):
        error = refused(ws, errors.VersionMismatch, partial(ws.stashes.set_value, id, {"n": 3}, expected=expected))
        assert (error.expected, error.version, error.value) == (expected, 2, {"n": 2})
    wrong: Any
    for wrong in (0, -1, True, "2", 2.0):
        refused(ws, errors.Invalid, partial(ws.stashes.set_value, id, {"n": 3}, expected=wrong))
    assert ws.stashes.set_value(id, {"n": 3}, expected=2).version == 3


@pytest.mark.kinds("every")
def test_s2_of_those_who_save_what_they_loaded_at_the_same_version_one_succeeds(world: World) -> None:
    handles = [world.open(f"agent-{number}") for number in range(6)]
    id = handles[0].stashes.create("config", "context", {"by": None}).id

    def save(ws: Workspace, version: int) -> str | None:
        try:
            return str(ws.stashes.set_value(id, {"by": ws.actor}, expected=version).value["by"])
        except errors.VersionMismatch:
            return None

    for version in (1, 2, 3):
        won = [name for name in together(*(partial(save, ws, version) for ws in handles)) if name]
        assert [ws.stashes.get(id).value["by"] for ws in handles[:2]] == won * 2
    assert [version for _, version, _ in entries(handles[0], id)] == [1, 2, 3, 4]


@pytest.mark.kinds("every")
def test_s2_s5_increments_by_many_at_once_are_all_there_each_with_its_entry(world: World) -> None:
    handles = [world.open(f"agent-{number}") for number in range(4)]
    id = handles[0].stashes.create("n", "counter").id

    def add(ws: Workspace) -> list[int]:
        return [ws.stashes.increment(id) for _ in range(12)]

    adding = [Background(partial(add, ws)) for ws in handles]
    answers = [answer for each in adding for answer in each.result()]
    assert sorted(answers) == list(range(1, 49))
    assert entries(handles[0], id)[1:] == [("increment", n + 1, {"value": n}) for n in range(1, 49)]


def test_s5_each_mutation_adds_1_to_the_version_also_one_that_changes_nothing(world: World) -> None:
    ws = world.open()
    id = ws.stashes.create("n", "counter", {"value": 1}).id
    ws.stashes.set_value(id, {"value": 1})
    ws.stashes.increment(id, 0)
    restored = ws.stashes.restore(id, 1)
    assert (restored.version, ws.stashes.get(id)) == (4, restored)
    assert [(op, version) for op, version, _ in entries(ws, id)] == [
        *(("create", 1), ("set", 2), ("increment", 3), ("set", 4))
    ]


def test_s9_the_history_tells_oldest_first_what_was_done_when_and_by_which_crumb(world: World) -> None:
    ws = world.open()
    crumb = ws.tasks.create("a crumb").id
    made = ws.stashes.create("config", "context", {"n": 1}, changed_by=crumb)
    world.clock.advance(5)
    ws.stashes.set_value(made.id, {"n": 2}, changed_by="")
    world.clock.advance(5)
    restored = ws.stashes.restore(made.id, 1, changed_by=crumb)
    history = ws.stashes.history(made.id)
    assert [(each.operation, each.version, each.value, each.changed_by) for each in history] == [
        ("create", 1, {"n": 1}, crumb),
        ("set", 2, {"n": 2}, None),
        ("set", 3, {"n": 1}, crumb),
    ]
    times = [made.created_at + timedelta(seconds=seconds) for seconds in (0, 5, 10)]
    assert [each.created_at for each in history] == times
    assert (restored.created_at, restored.updated_at) == (times[0], times[2])
    assert {each.stash_id for each in history} == {made.id}
    ws.stashes.set_value(made.id, {"n": 4})
    assert ws.stashes.history(made.id)[:3] == history, "what is written there stays"


@pytest.mark.parametrize("changed_by", [7, ["hf-1"], "a\0b", "x" * 513], ids=["int", "list", "control", "long"])
def test_s9_what_cannot_be_a_crumbs_id_has_changed_nothing(world: World, changed_by: Any) -> None:
    ws = world.open()
    counter, lock = ws.stashes.create("n", "counter"), ws.stashes.create("door", "lock")
    refused(ws, errors.InvalidID, lambda: ws.stashes.create("other", "context", changed_by=changed_by))
    refused(ws, errors.InvalidID, lambda: ws.stashes.set_value(counter.id, None, changed_by=changed_by))
    refused(ws, errors.InvalidID, lambda: ws.stashes.increment(counter.id, changed_by=changed_by))
    refused(ws, errors.InvalidID, lambda: ws.stashes.acquire(lock.id, changed_by=changed_by))
    assert (ws.stashes.get(counter.id), ws.stashes.get(lock.id)) == (counter, lock)
    assert len(ws.stashes.list()) == 2


@pytest.mark.parametrize("changed_by", ["agent-1", "hf-none", "any text at all"])
def test_s9_what_is_no_tasks_id_is_refused_wherever_a_change_names_one(world: World, changed_by: str) -> None:
    ws = world.open("a")
    made = ws.stashes.create("config", "context", {"n": 1})
    counter, lock = ws.stashes.create("n", "counter"), ws.stashes.create("door", "lock")
    ws.stashes.acquire(lock.id)
    held = ws.stashes.get(lock.id)
    for call in (
        lambda: ws.stashes.create("other", "context", changed_by=changed_by),
        lambda: ws.stashes.set_value(made.id, {"n": 2}, changed_by=changed_by),
        lambda: ws.stashes.restore(made.id, 1, changed_by=changed_by),
        lambda: ws.stashes.save(made.id, 1, 2, "set", {"n": 2}, changed_by=changed_by),
        lambda: ws.stashes.increment(counter.id, changed_by=changed_by),
        lambda: ws.stashes.acquire(lock.id, changed_by=changed_by),
        lambda: ws.stashes.release(lock.id, changed_by=changed_by),
    ):
        refused(ws, errors.TaskNotFound, call)
        with pytest.raises(errors.TaskNotFound, match=f"changed_by '{changed_by}' is not the id of a task"):
            call()
    assert [ws.stashes.get(each.id) for each in (made, counter, lock)] == [made, counter, held]
    assert len(ws.stashes.list()) == 3


def test_s9_a_deleted_task_can_be_the_one_that_made_a_change(world: World) -> None:
    ws = world.open("a")
    crumb, counter = ws.tasks.create("a crumb").id, ws.stashes.create("n", "counter")
    ws.tasks.delete(crumb)
    ws.stashes.increment(counter.id, changed_by=crumb)
    assert ws.stashes.history(counter.id)[-1].changed_by == crumb


def test_s9_a_version_that_the_history_does_not_have_cannot_be_restored(world: World) -> None:
    ws = world.open()
    made = ws.stashes.create("config", "context", {"n": 1})
    for version in (0, 2, -1, 2**70, None):
        with pytest.raises((errors.NotFound, errors.Invalid)):
            ws.stashes.restore(made.id, version)  # type: ignore[arg-type]
    assert ws.stashes.get(made.id) == made


@pytest.mark.kinds("every")
def test_s14_ids_of_stashes_trails_links_and_entries_are_uuids_of_version_7_in_the_order_of_time(world: World) -> None:
    ws = world.open()
    trail = ws.trails.create("trail").id
    ids = [trail]
    for number in range(8):
        ids.append(ws.stashes.create(f"s-{number}", "counter", trail=trail).id)
        ws.stashes.increment(ids[-1])
    stashes = ids[1:]
    links = [link.id for link in ws.links.list(link_type="scoped_to")]
    told = [[entry.id for entry in ws.stashes.history(id)] for id in stashes]
    every = {*ids, *links, *(id for entries in told for id in entries)}
    assert all(is_uuid7(id) for id in every)
    assert len(every) == 1 + 8 + 8 + 16
    if world.kind in ("memory", "file", "remote"):  # one source of ids: in order within one microsecond
        assert ids == sorted(ids)
        assert all(id < first < second for id, (first, second) in zip(stashes, told, strict=True))
    world.clock.advance(0.001)
    assert ws.stashes.create("later", "counter").id > max(stashes)


# --- names and scopes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "tab\t", "x" * 513, "\ud800", 7, None], ids=repr)
def test_s6_a_bad_name_is_refused(world: World, name: Any) -> None:
    ws = world.open()
    refused(ws, errors.InvalidName, lambda: ws.stashes.create(name, "context"))
    refused(ws, errors.InvalidName, lambda: ws.stashes.find(name))


def test_s6_a_name_is_taken_once_among_the_global_stashes_and_once_in_each_trail(world: World) -> None:
    ws = world.open()
    one, two = ws.trails.create("same").id, ws.trails.create("same").id
    made = [ws.stashes.create("n", "counter", trail=trail) for trail in (None, one, two)]
    for trail in (None, one, two):
        error = refused(ws, errors.DuplicateName, partial(ws.stashes.create, "n", "context", trail=trail))
        assert error.id in [stash.id for stash in made]
    assert [stash.trail for stash in made] == [None, one, two]
    ws.stashes.create("N", "counter")
    ws.stashes.delete(made[1].id)
    assert ws.stashes.create("n", "lock", trail=one).version == 1


def test_s6_a_name_collides_where_a_link_leads_when_it_is_made_and_when_it_is_deleted(world: World) -> None:
    ws = world.open()
    trail = ws.trails.create("trail").id
    inside, outside = ws.stashes.create("n", "counter", trail=trail), ws.stashes.create("n", "counter")
    (link,) = ws.links.list(from_id=inside.id)
    refused(ws, errors.DuplicateName, lambda: ws.links.create("scoped_to", outside.id, trail))
    refused(ws, errors.DuplicateName, lambda: ws.links.delete(link.id))
    ws.stashes.delete(outside.id)
    ws.links.delete(link.id)
    assert (ws.stashes.get(inside.id).trail, ws.stashes.find("n", trail)) == (None, None)
    again = ws.stashes.create("n", "counter", trail=trail)
    refused(ws, errors.DuplicateName, lambda: ws.links.create("scoped_to", inside.id, trail))
    ws.stashes.delete(again.id)
    ws.links.create("scoped_to", inside.id, trail)
    assert (ws.stashes.find("n"), ws.stashes.get((trail, "n")).id) == (None, inside.id)
    assert ws.stashes.get(inside.id).version == 1, "where it is found is not what it says"


def test_s6_a_stash_is_made_with_its_link_or_not_at_all(world: World) -> None:
    ws = world.open()
    trail = ws.trails.create("trail", "active").id
    before = ws.revision
    made = ws.stashes.create("n", "counter", trail=trail)
    (link,) = ws.links.list()
    assert (link.link_type, link.from_id, link.to_id, made.trail) == ("scoped_to", made.id, trail, trail)
    assert (ws.revision, made.revision) == (before + 1, before + 1)
    refused(ws, errors.NotFound, lambda: ws.stashes.create("m", "counter", trail=made.id))
    bad: Any
    for bad in ("", 7):
        refused(ws, errors.InvalidID, partial(ws.stashes.create, "m", "counter", trail=bad))
    ws.trails.complete(trail)
    refused(ws, errors.InvalidStatus, lambda: ws.stashes.create("m", "counter", trail=trail))
    assert (names(ws.stashes.list()), ws.links.list()) == (["n"], [link])


# --- lists -----------------------------------------------------------------------------------------------------------


def test_s7_a_list_is_oldest_first_filtered_by_all_that_is_given_and_cut_into_pages(world: World) -> None:
    ws = world.open()
    assert ws.stashes.list() == []
    trail = ws.trails.create("trail").id
    for number, name in enumerate(("d", "b", "a", "c")):
        world.clock.advance(1)
        ws.stashes.create(name, "counter" if number % 2 else "context", trail=trail if number < 3 else None)
    ws.stashes.set_value((trail, "d"), {"touched": "last"})
    assert names(ws.stashes.list()) == ["d", "b", "a", "c"]
    assert names(ws.stashes.list(stash_type="counter")) == ["b", "c"]
    assert names(ws.stashes.list(trail=trail)) == ["d", "b", "a"]
    assert names(ws.stashes.list(trail="")) == ["c"]
    assert names(ws.stashes.list("context", trail=trail, limit=1)) == ["d"]
    assert names(ws.stashes.list("context", trail=trail, limit=1, offset=1)) == ["a"]
    assert names(ws.stashes.list(name="b")) == ["b"]
    assert names(ws.stashes.list(limit=2, offset=1)) == ["b", "a"]
    assert ws.stashes.list(name="b", trail="") == ws.stashes.list("lock") == ws.stashes.list(offset=4) == []
    assert ws.stashes.list(trail="no such trail") == []


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": "1"}, {"offset": -1}, {"offset": 1.0}, {"offset": 2**70}])
def test_s7_a_filter_of_the_wrong_type_or_name_is_refused(world: World, wrong: dict[str, Any]) -> None:
    ws = world.open()
    refused(ws, errors.InvalidFilter, lambda: ws.stashes.list(**wrong))
    for more in ({"name": 7}, {"trail": ["t"]}):
        refused(ws, errors.InvalidFilter, partial(ws.stashes.list, **more))
    with pytest.raises(errors.InvalidStashType):
        ws.stashes.list("heap")  # type: ignore[arg-type]
    with pytest.raises((errors.Invalid, TypeError)):
        ws.stashes.list(colour="red")  # type: ignore[call-arg]


def test_s4_a_refusal_speaks_of_each_type_as_one_does(world: World) -> None:
    ws = world.open()
    artifact = ws.stashes.create("out", "artifact").id
    for refuse in (
        lambda: ws.stashes.set_value(artifact, {}),
        lambda: ws.stashes.set_value(artifact, 3),
        lambda: ws.stashes.increment(artifact),
        lambda: ws.stashes.acquire(artifact),
    ):
        with pytest.raises(errors.Invalid, match="an artifact"):
            refuse()


@pytest.mark.parametrize("version", ["1", 1.0, True, 0, -1])
def test_s3_what_is_no_version_is_told_as_that(world: World, version: Any) -> None:
    ws = world.open()
    made = ws.stashes.create("config", "context", {})
    with pytest.raises(errors.Invalid, match="version"):
        ws.stashes.restore(made.id, version)
    assert ws.stashes.get(made.id).version == 1
