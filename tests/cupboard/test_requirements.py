"""The specification of stashes, one test for each of its numbered requirements: what a stash is and does, R1 to R7.

The others, R8 to R13, are in test_table_requirements.py. A test carries its number: `test_r9_2_1_...` is 9.2.1.
"""

from __future__ import annotations

import ast
import re
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from holdfast import cupboard, errors
from holdfast.cupboard import Stash, StashHistoryEntry
from holdfast.cupboard.entities import Link
from tests.cupboard.conftest import Shelf

COUNTS = (7, 4, 4, 4, 3, 5, 5, 4, 6, 3, 6, 3, 6)  # how many requirements R1 to R13 have
NUMBERS = [*(f"{part}.{n}" for part, count in enumerate(COUNTS, 1) for n in range(1, count + 1)), "9.2.1"]
VALUES: dict[str, Any] = {
    "resource": {"uri": "https://example.org", "kind": "page", "note": "more"},
    "artifact": {"path": "out/a.txt", "producer": "hf-1234", "checksum": "abc", "size": 3},
    "context": {"timeout": 30, "deep": {"list": [1, None, "x"]}},
    "counter": {"value": 7},
    "lock": None,
}


def told(shelf: Shelf, stash: Stash) -> list[tuple[str, int, Any]]:
    """The history of a stash: operation, version and value of each entry."""
    return [(entry.operation, entry.version, entry.value) for entry in shelf.stashes.history(stash.id)]


def is_uuid7(text: str) -> bool:
    return str(UUID(text)) == text and UUID(text).version == 7


def test_every_numbered_requirement_has_a_test_that_carries_its_number() -> None:
    here = Path(__file__).parent
    trees = [ast.parse((here / name).read_text()) for name in ("test_requirements.py", "test_table_requirements.py")]
    names = [node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)]
    found = [match[1].strip("_").replace("_", ".") for name in names if (match := re.match(r"test_r((?:\d+_)+)", name))]
    assert sorted(found) == sorted(NUMBERS)


# --- R1: the struct --------------------------------------------------------------------------------------------------


def test_r1_1_a_stash_has_its_fields_in_both_spellings(shelf: Shelf) -> None:
    stash = shelf.stash("visits", "counter", {"value": 1})
    assert (stash.stash_id, stash.name, stash.stash_type, stash.value, stash.version, stash.created_at) == (
        *(stash.StashID, stash.Name, stash.StashType, stash.Value, stash.Version, stash.CreatedAt),
    )
    assert [type(each) for each in (stash.StashID, stash.Name, stash.StashType, stash.Version, stash.CreatedAt)] == [
        *(str, str, str, int, datetime),
    ]


def test_r1_2_the_id_is_a_uuid_v7_that_an_empty_id_asks_for(shelf: Shelf) -> None:
    first, second = shelf.stash("first"), shelf.stash("second")
    assert is_uuid7(first.stash_id)
    assert is_uuid7(second.stash_id)
    assert first.stash_id < second.stash_id


def test_r1_3_scope_is_a_link_and_a_global_stash_has_none(shelf: Shelf) -> None:
    trail, stash = shelf.trail(), shelf.stash()
    assert (stash.trail_id, shelf.links.fetch({"from_id": stash.id})) == (None, [])
    shelf.links.set("", Link("scoped_to", stash.id, trail.id))
    assert shelf.stashes.get(stash.id).trail_id == trail.id


def test_r1_4_a_name_is_unique_in_its_scope_and_only_there(shelf: Shelf) -> None:
    trail, other = shelf.trail("one"), shelf.trail("other")
    for scope in (None, trail.id, other.id):
        shelf.stash("same", trail_id=scope)
        with pytest.raises(errors.DuplicateName):
            shelf.stashes.set("", Stash("same", "context", trail_id=scope))
    assert len(shelf.stashes.fetch({"name": "same"})) == 3


def test_r1_5_an_empty_name_is_refused(shelf: Shelf) -> None:
    stash = shelf.stash()
    stash.name = ""
    for id, refused in (("", Stash("", "context")), (stash.id, stash)):
        with pytest.raises(errors.InvalidName):
            shelf.stashes.set(id, refused)
    assert [each.name for each in shelf.stashes.fetch()] == ["one"]


def test_r1_6_the_version_begins_at_1_and_grows_with_every_change(shelf: Shelf) -> None:
    stash = shelf.stash()
    versions = [stash.version]
    for _ in range(3):
        stash.increment(1)
        shelf.stashes.set(stash.id, stash)
        versions.append(shelf.stashes.get(stash.id).version)
    stash.set_value({"value": 0})
    shelf.stashes.set(stash.id, stash)
    assert [*versions, stash.version] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("stash_type", VALUES)
def test_r1_7_a_value_comes_back_as_it_was_stored(shelf: Shelf, stash_type: str) -> None:
    stash = shelf.stash("it", stash_type, VALUES[stash_type])
    assert shelf.stashes.get(stash.id).value == VALUES[stash_type]


# --- R2: types -------------------------------------------------------------------------------------------------------


def test_r2_1_each_type_takes_only_values_of_its_schema(shelf: Shelf) -> None:
    bad: list[tuple[str, Any]] = [("resource", {"uri": "x"}), ("artifact", {"path": "x", "producer": "y"})]
    bad += [("context", [1]), ("counter", {"value": "1"}), ("counter", {"value": 2**63}), ("lock", {"holder": "me"})]
    for stash_type, value in bad:
        with pytest.raises(errors.InvalidValue):
            shelf.stashes.set("", Stash("bad", stash_type, value))
    for stash_type, value in VALUES.items():
        shelf.stash(stash_type, stash_type, value)
    assert [each.name for each in shelf.stashes.fetch()] == [*VALUES]


def test_r2_2_the_type_is_a_text(shelf: Shelf) -> None:
    assert [type(shelf.stashes.get(shelf.stash(each, each).id).stash_type) for each in VALUES] == [str] * 5


def test_r2_3_an_unknown_type_is_refused_and_a_type_stays(shelf: Shelf) -> None:
    for unknown in ("", "heap", "Lock"):
        with pytest.raises(errors.InvalidStashType):
            shelf.stashes.set("", Stash("it", unknown))
    stash = shelf.stash()
    stash.stash_type = "context"
    with pytest.raises(errors.InvalidStashType):
        shelf.stashes.set(stash.id, stash)
    assert [each.stash_type for each in shelf.stashes.fetch()] == ["counter"]


def test_r2_4_methods_of_one_type_refuse_the_others_and_change_nothing(shelf: Shelf) -> None:
    for stash_type in VALUES:
        stash = shelf.stash(stash_type, stash_type)
        wrong: list[Any] = [] if stash_type == "counter" else [partial(stash.increment, 1)]
        wrong += [] if stash_type == "lock" else [partial(stash.acquire, "me"), partial(stash.release, "me")]
        for call in wrong:
            with pytest.raises(errors.InvalidStashType):
                call()
        assert stash.version == 1


# --- R3: creating ----------------------------------------------------------------------------------------------------


def test_r3_1_a_stash_is_made_by_setting_it_under_an_empty_id(shelf: Shelf) -> None:
    stash = Stash(Name="shared-config", StashType="context", Value={"timeout": 30})
    id = shelf.stashes.Set("", stash)
    loaded = shelf.stashes.Get(id)
    assert (loaded.Name, loaded.StashType, loaded.Value) == ("shared-config", "context", {"timeout": 30})


def test_r3_2_creation_gives_id_version_and_time_and_writes_history(shelf: Shelf) -> None:
    stash = shelf.stash("cfg", "context", {"a": 1})
    assert is_uuid7(stash.stash_id)
    assert stash.version == 1
    assert stash.created_at == datetime.fromtimestamp(shelf.clock.wall() / 1e6, UTC)
    assert told(shelf, stash) == [("create", 1, {"a": 1})]
    refused = [(Stash("", "context"), errors.InvalidName), (Stash("cfg", "context"), errors.DuplicateName)]
    for bad, error in [*refused, (Stash("x", "bogus"), errors.InvalidStashType)]:
        with pytest.raises(error):
            shelf.stashes.set("", bad)
        assert (bad.stash_id, bad.version) == ("", 0)
    assert len(shelf.stashes.fetch()) == 1


def test_r3_3_a_lock_begins_free_and_a_counter_at_zero_or_as_told(shelf: Shelf) -> None:
    assert shelf.stash("lock", "lock").value is None
    assert shelf.stash("zero", "counter").value == {"value": 0}
    assert shelf.stash("five", "counter", {"value": 5}).value == {"value": 5}


def test_r3_4_after_creation_the_struct_is_as_it_is_stored(shelf: Shelf) -> None:
    stash = Stash("it", "counter")
    stash.increment(4)  # before it is stored: it begins at version 1 all the same
    assert shelf.stashes.set("", stash) == stash.stash_id
    loaded = shelf.stashes.get(stash.stash_id)
    assert (
        (stash.version, stash.created_at, stash.value)
        == (1, loaded.created_at, loaded.value)
        == (*(1, stash.created_at, {"value": 4}),)
    )


# --- R4: values ------------------------------------------------------------------------------------------------------


def test_r4_1_there_are_methods_to_set_and_get_the_value(shelf: Shelf) -> None:
    stash = shelf.stash("it", "context")
    stash.SetValue({"a": 1})
    assert stash.GetValue() == stash.get_value() == stash.value == {"a": 1}


def test_r4_2_setting_counts_a_version_is_not_for_locks_and_waits_for_the_save(shelf: Shelf) -> None:
    stash, lock = shelf.stash("it", "context"), shelf.stash("lock", "lock")
    stash.set_value({"a": 1})
    assert (stash.version, shelf.stashes.get(stash.id).version, shelf.stashes.get(stash.id).value) == (2, 1, None)
    shelf.stashes.set(stash.id, stash)
    assert (shelf.stashes.get(stash.id).version, shelf.stashes.get(stash.id).value) == (2, {"a": 1})
    with pytest.raises(errors.InvalidStashType):
        lock.set_value(None)
    assert lock.version == 1


def test_r4_3_a_stash_without_a_value_gives_none(shelf: Shelf) -> None:
    stash = shelf.stash("it", "resource")
    assert shelf.stashes.get(stash.id).get_value() is None


def test_r4_4_load_set_and_save(shelf: Shelf) -> None:
    id = shelf.stash("it", "context", {"timeout": 30}).id
    stash = shelf.stashes.Get(id)
    stash.SetValue({"timeout": 60})
    shelf.stashes.Set(stash.StashID, stash)
    assert told(shelf, stash) == [("create", 1, {"timeout": 30}), ("set", 2, {"timeout": 60})]


# --- R5: counters ----------------------------------------------------------------------------------------------------


def test_r5_1_increment_answers_the_new_value(shelf: Shelf) -> None:
    stash = shelf.stash("it", "counter", {"value": 40})
    assert (stash.Increment(2), stash.increment()) == (42, 43)


def test_r5_2_increments_of_two_loads_never_collapse_into_one(shelf: Shelf) -> None:
    id = shelf.stash().id
    one, two = shelf.stashes.get(id), shelf.stashes.get(id)
    assert (one.increment(5), one.version, two.increment(-3), two.version) == (5, 2, -3, 2)
    shelf.stashes.set(id, one)
    with pytest.raises(errors.VersionMismatch):
        shelf.stashes.set(id, two)
    two = shelf.stashes.get(id)
    two.increment(-3)
    shelf.stashes.set(id, two)
    assert shelf.stashes.get(id).value == {"value": 2}
    with pytest.raises(errors.InvalidValue):
        two.increment(2**63 - 1 - 1)
    assert (two.value, two.version) == ({"value": 2}, 3)


def test_r5_3_three_increments_saved_once_are_one_entry_at_the_version_reached(shelf: Shelf) -> None:
    stash = shelf.stash()
    for _ in range(3):
        stash.increment(1)
    shelf.stashes.set(stash.id, stash)
    assert stash.version == shelf.stashes.get(stash.id).version == 4
    assert told(shelf, stash) == [("create", 1, {"value": 0}), ("increment", 4, {"value": 3})]
    assert shelf.ws.check().problems == []


# --- R6: locks -------------------------------------------------------------------------------------------------------


def test_r6_1_a_lock_is_acquired_and_released(shelf: Shelf) -> None:
    lock = shelf.stash("lock", "lock")
    lock.Acquire("w1")
    assert lock.value["holder"] == "w1"
    lock.Release("w1")
    assert lock.value is None


def test_r6_2_of_two_that_acquire_a_free_lock_one_has_it(shelf: Shelf) -> None:
    lock = shelf.stash("lock", "lock")
    one, two = shelf.stashes.get(lock.id), shelf.stashes.get(lock.id)
    one.acquire("w1")
    two.acquire("w2")
    shelf.stashes.set(lock.id, one)
    with pytest.raises(errors.VersionMismatch):
        shelf.stashes.set(lock.id, two)
    loaded = shelf.stashes.get(lock.id)
    assert (loaded.value["holder"], loaded.version) == ("w1", 2)
    assert datetime.fromisoformat(loaded.value["acquired_at"]) - loaded.created_at < timedelta(seconds=1)
    with pytest.raises(errors.Held):
        loaded.acquire("w2")
    with pytest.raises(errors.InvalidHolder):
        loaded.acquire("")
    loaded.acquire("w1")
    shelf.stashes.set(lock.id, loaded)
    assert (loaded.value["holder"], loaded.version) == ("w1", 3)
    assert [(operation, version) for operation, version, _ in told(shelf, lock)] == [
        *(("create", 1), ("acquire", 2), ("acquire", 3)),
    ]


def test_r6_3_only_the_holder_gives_a_lock_back(shelf: Shelf) -> None:
    lock = shelf.stash("lock", "lock")
    with pytest.raises(errors.NotHolder):
        lock.release("w1")
    lock.acquire("w1")
    shelf.stashes.set(lock.id, lock)
    with pytest.raises(errors.NotHolder):
        lock.release("w2")
    assert lock.version == 2
    lock.release("w1")
    shelf.stashes.set(lock.id, lock)
    loaded = shelf.stashes.get(lock.id)
    assert (loaded.value, loaded.version) == (None, 3)
    assert told(shelf, lock)[-1] == ("release", 3, None)


def test_r6_4_acquire_save_work_release_save(shelf: Shelf) -> None:
    lock = shelf.stashes.get(shelf.stash("lock", "lock").id)
    lock.acquire("worker-1")
    shelf.stashes.set(lock.stash_id, lock)
    assert shelf.ws.stashes.get(lock.id).token == lock.token is not None
    lock.release("worker-1")
    shelf.stashes.set(lock.stash_id, lock)
    assert (shelf.ws.stashes.get(lock.id).value, lock.token) == (None, None)
    assert shelf.ws.check().problems == []


def test_r6_5_who_comes_too_late_is_told_at_once(shelf: Shelf) -> None:
    lock = shelf.stash("lock", "lock")
    shelf.ws.stashes.acquire(lock.id, "w1")
    with pytest.raises(errors.Held) as refusal:
        shelf.stashes.get(lock.id).acquire("w2")
    assert refusal.value.holder == "w1"


# --- R7: history -----------------------------------------------------------------------------------------------------


def test_r7_1_history_is_kept_by_the_store_and_is_no_method_of_a_stash(shelf: Shelf) -> None:
    stash = shelf.stash()
    stash.increment(1)
    assert len(shelf.stashes.history(stash.id)) == 1  # nothing was saved yet
    shelf.stashes.set(stash.id, stash)
    assert len(shelf.stashes.history(stash.id)) == 2
    assert not hasattr(stash, "history")


def test_changed_by_is_the_id_of_a_crumb(shelf: Shelf) -> None:
    stash = shelf.stash("it", "context", {"a": 1})
    stash.set_value({"a": 2})
    stash.changed_by = "somebody"
    with pytest.raises(errors.TaskNotFound, match="changed_by 'somebody' is not the id of a task"):
        shelf.stashes.set(stash.id, stash)
    assert [entry.version for entry in shelf.stashes.history(stash.id)] == [1]


def test_r7_2_an_entry_has_its_fields(shelf: Shelf) -> None:
    crumb = shelf.ws.tasks.create("do it").id
    stash = shelf.stash("it", "context", {"a": 1}, changed_by=crumb)
    stash.set_value({"a": 2})
    stash.changed_by = None
    shelf.stashes.set(stash.id, stash)
    first, second = shelf.stashes.history(stash.id)
    assert is_uuid7(first.HistoryID)
    assert first.history_id < second.history_id
    assert (first.Version, first.Value, first.Operation, first.ChangedBy) == (1, {"a": 1}, "create", crumb)
    assert (second.version, second.value, second.operation, second.changed_by) == (2, {"a": 2}, "set", None)
    assert first.CreatedAt == stash.created_at


def test_r7_3_the_operations_have_constants_and_each_is_written(shelf: Shelf) -> None:
    counter, lock = shelf.stash(), shelf.stash("lock", "lock")
    for change in (partial(counter.set_value, {"value": 3}), partial(counter.increment, 1)):
        change()
        shelf.stashes.set(counter.id, counter)
    for change in (partial(lock.acquire, "w1"), partial(lock.release, "w1")):
        change()
        shelf.stashes.set(lock.id, lock)
    assert [operation for operation, _, _ in told(shelf, counter)] == [
        *(cupboard.StashOpCreate, cupboard.StashOpSet, cupboard.StashOpIncrement),
    ]
    assert [operation for operation, _, _ in told(shelf, lock)] == [
        *(cupboard.StashOpCreate, cupboard.StashOpAcquire, cupboard.StashOpRelease),
    ]


def test_r7_4_the_table_and_the_workspace_tell_the_same_history(shelf: Shelf) -> None:
    stash = shelf.stash()
    stash.increment(1)
    shelf.stashes.set(stash.id, stash)
    assert [entry.history_id for entry in shelf.stashes.history(stash.id)] == [
        entry.id for entry in shelf.ws.stashes.history(stash.id)
    ]


def test_r7_5_an_entry_is_a_type_of_its_own_and_never_changes(shelf: Shelf) -> None:
    stash = shelf.stash()
    (entry,) = shelf.stashes.history(stash.id)
    assert isinstance(entry, StashHistoryEntry)
    with pytest.raises(AttributeError):
        setattr(entry, "version", 7)  # noqa: B010  # it has no such field to assign
