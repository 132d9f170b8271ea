"""State cells: writing, reading, deciding, listing, and their values (C1 to C8, C11, C18).

What cells remember, tell about themselves and how they end is in cell_history.py; many at once in cell_races.py.
"""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any

import pytest

from holdfast import errors
from tests.worlds.kinds import World

pytestmark = pytest.mark.kinds("drawn")

# In the order of their UTF-8 bytes; UTF-16 would put the astral ones before "Ａ".
NAMES = ["A", "a", "a-b", "a.b", "a/b", "a:b", "a@b", "a_b", "aé", "a世", "aＡ", "a🌍", "b", "ö", "世", "🌍"]


def counted(values: list[Any]) -> Any:
    """A function that answers the next of `values`, and keeps count by what is left."""
    return lambda: values.pop(0)


class Refusal(Exception):
    """What a user's function raises."""


def refuse(_: Any = None) -> Any:
    """A user's function that gives up."""
    raise Refusal


# --- writing, reading, deleting --------------------------------------------------------------------------------------


def test_c1_set_creates_at_version_1_and_adds_1_each_time_also_for_an_equal_value(world: World) -> None:
    ws = world.open()
    assert [ws.cells.set("run", "cell", 7) for _ in range(3)] == [1, 2, 3]


def test_c1_cells_of_the_same_name_in_two_runs_are_two_cells(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", "first")
    assert ws.cells.set("other", "cell", "second") == 1
    assert [ws.cells.get(run, "cell").value for run in ("run", "other")] == ["first", "second"]


def test_c2_get_answers_value_version_revision_and_time_of_the_last_write(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", "old")
    before = ws.cells.get("run", "cell")
    world.clock.advance(90)
    ws.cells.set("run", "cell", "new")
    found = ws.cells.get("run", "cell")
    assert (found.value, found.version, found.revision) == ("new", 2, ws.revision)
    assert found.revision == before.revision + 1
    assert found.updated_at - before.updated_at == timedelta(seconds=90)
    assert found.updated_at.tzinfo is UTC
    assert ws.cells.find("run", "cell") == found


def test_c2_a_stored_null_is_a_value_and_an_absent_cell_is_not_found(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", None)
    assert ws.cells.get("run", "cell").value is None
    assert ws.cells.exists("run", "cell")
    assert ws.cells.find("run", "other") is None
    with pytest.raises(errors.NotFound):
        ws.cells.get("run", "other")


def test_c2_what_one_handle_wrote_the_next_one_reads(world: World) -> None:
    one, other = world.open("one"), world.open("other")
    for number in range(5):
        one.cells.set("run", "cell", number)
        assert other.cells.get("run", "cell").value == number


def test_c3_delete_tells_whether_there_was_a_cell(world: World) -> None:
    ws = world.open()
    assert not ws.cells.exists("run", "cell")
    assert ws.cells.delete("run", "cell") is False
    ws.cells.set("run", "cell", 1)
    assert ws.cells.delete("run", "cell") is True
    assert not ws.cells.exists("run", "cell")
    assert ws.cells.find("run", "cell") is None
    assert ws.cells.delete("run", "cell") is False


def test_c3_delete_run_removes_every_cell_of_the_run_and_no_other(world: World) -> None:
    ws = world.open()
    for name in NAMES:
        ws.cells.set("run", name, name)
    ws.cells.set("run-2", "cell", "stays")
    assert ws.cells.delete_run("run") == len(NAMES)
    assert ws.cells.list("run") == []
    assert ws.cells.runs() == ["run-2"]
    assert ws.cells.get("run-2", "cell").value == "stays"
    assert ws.cells.delete_run("run") == ws.cells.delete_run("never was") == 0


# --- deciding --------------------------------------------------------------------------------------------------------


def test_c4_cas_writes_at_the_expected_version_and_none_expects_an_absent_cell(world: World) -> None:
    ws = world.open()
    assert ws.cells.cas("run", "cell", None, "a") == 1
    assert ws.cells.cas("run", "cell", 1, "b") == 2
    assert ws.cells.get("run", "cell").value == "b"


@pytest.mark.parametrize("expected", [None, 1, 3], ids=["absent", "older", "newer"])
def test_c4_a_mismatch_carries_the_current_version_and_value(world: World, expected: int | None) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", "old")
    ws.cells.set("run", "cell", {"present": b"value"})
    revision = ws.revision
    with pytest.raises(errors.VersionMismatch) as caught:
        ws.cells.cas("run", "cell", expected, "mine")
    error = caught.value
    assert (error.expected, error.version, error.value) == (expected, 2, {"present": b"value"})
    assert (ws.cells.get("run", "cell").version, ws.revision) == (2, revision)
    assert ws.cells.cas("run", "cell", error.version, "mine") == 3  # a retry needs no second read


def test_c4_a_mismatch_on_an_absent_cell_carries_no_version(world: World) -> None:
    ws = world.open()
    with pytest.raises(errors.VersionMismatch) as caught:
        ws.cells.cas("run", "cell", 1, "mine")
    assert (caught.value.expected, caught.value.version, caught.value.value) == (1, None, None)
    assert not ws.cells.exists("run", "cell")


def test_c5_init_creates_only_an_absent_cell_and_leaves_another_untouched(world: World) -> None:
    ws = world.open()
    assert ws.cells.init("run", "cell", None) == 1  # a null is there, too
    before = ws.cells.get("run", "cell")
    revision = ws.revision
    with pytest.raises(errors.Exists) as caught:
        ws.cells.init("run", "cell", "second")
    assert (caught.value.version, caught.value.value) == (1, None)
    assert ws.cells.get("run", "cell") == before
    assert ws.revision == revision


def test_c6_get_or_init_makes_an_absent_cell_and_answers_a_present_one(world: World) -> None:
    ws = world.open()
    made = ws.cells.get_or_init("run", "cell", ["default"])
    assert (made.value, made.version) == (["default"], 1)
    assert ws.cells.get_or_init("run", "cell", "another") == made == ws.cells.get("run", "cell")
    assert ws.cells.get_or_init("run", "null", None).value is None
    assert ws.cells.get_or_init("run", "null", "another").value is None


@pytest.mark.capability("callables")
def test_c6_a_callable_default_is_called_only_when_the_cell_is_absent_and_once_per_creation(world: World) -> None:
    """Where several nodes share a log a creation that another node overtakes runs again, and calls it again."""
    ws = world.open()
    values = [f"value {number}" for number in range(1000)]
    first = ws.cells.get_or_init("run", "cell", counted(values)).value
    left = len(values)
    assert ws.cells.get_or_init("run", "cell", counted(values)).value == first
    ws.cells.delete("run", "cell")
    second = ws.cells.get_or_init("run", "cell", counted(values)).value
    assert (first, second) == (f"value {999 - left}", f"value {999 - len(values)}")  # the last call counts
    assert "local" not in world.capabilities or (left, len(values)) == (999, 998)


@pytest.mark.capability("transitions")
def test_c6_what_a_callable_default_raises_propagates_and_nothing_is_written(world: World) -> None:
    ws = world.open()
    with pytest.raises(Refusal):
        ws.cells.get_or_init("run", "cell", refuse)
    assert (ws.cells.exists("run", "cell"), ws.revision) == (False, 0)


@pytest.mark.capability("transitions")
def test_c8_transition_replaces_the_value_by_what_the_function_makes_of_it(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", [1])
    changed = ws.cells.transition("run", "cell", lambda value: [*value, 2])
    assert (changed.value, changed.version) == ([1, 2], 2)
    assert ws.cells.get("run", "cell") == changed


@pytest.mark.capability("transitions")
def test_c8_transition_of_an_absent_cell_is_not_found_and_calls_nothing(world: World) -> None:
    ws = world.open()
    with pytest.raises(errors.NotFound):
        ws.cells.transition("run", "cell", refuse)
    assert (ws.cells.exists("run", "cell"), ws.revision) == (False, 0)


@pytest.mark.capability("transitions")
def test_c8_what_the_function_raises_propagates_and_nothing_is_written(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", ["kept"])
    before = ws.cells.get("run", "cell")

    def change_then_refuse(value: Any) -> Any:
        value.append("lost")
        raise Refusal

    with pytest.raises(Refusal):
        ws.cells.transition("run", "cell", change_then_refuse)
    with pytest.raises(Refusal):
        ws.cells.transition_or_init("run", "cell", 0, change_then_refuse)
    with pytest.raises(Refusal):
        ws.cells.transition_or_init("run", "fresh", 0, refuse)
    assert ws.cells.get("run", "cell") == before
    assert (ws.cells.exists("run", "fresh"), ws.revision) == (False, before.revision)


@pytest.mark.capability("transitions")
def test_c8_transition_or_init_leaves_a_fresh_cell_at_version_2_with_both_versions_in_history(world: World) -> None:
    ws = world.open()
    made = ws.cells.transition_or_init("run", "cell", 10, lambda value: value + 1)
    assert (made.value, made.version) == (11, 2)
    assert [(step.version, step.value) for step in ws.cells.history("run", "cell")] == [(2, 11), (1, 10)]
    again = ws.cells.transition_or_init("run", "cell", 10, lambda value: value + 1)
    assert (again.value, again.version) == (12, 3)


def test_c18_increment_adds_to_a_number_and_an_absent_cell_counts_from_0(world: World) -> None:
    ws = world.open()
    assert [ws.cells.increment("run", "cell") for _ in range(3)] == [1, 2, 3]
    assert ws.cells.increment("run", "cell", -10) == -7
    assert ws.cells.increment("run", "cell", 0) == -7
    found = ws.cells.get("run", "cell")
    assert (found.value, found.version) == (-7, 5)


def test_c18_increment_of_an_int_by_a_float_is_a_float_and_by_an_int_stays_an_int(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", 2**53)
    assert ws.cells.increment("run", "cell") == 2**53 + 1  # no detour over float
    raised = ws.cells.increment("run", "other", 0.5)
    assert (raised, type(raised)) == (0.5, float)
    assert ws.cells.increment("run", "other", 1) == 1.5


def test_c18_compare_and_delete_deletes_only_the_expected_version(world: World) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", "old")
    ws.cells.set("run", "cell", "new")
    with pytest.raises(errors.VersionMismatch) as caught:
        ws.cells.compare_and_delete("run", "cell", 1)
    assert (caught.value.version, caught.value.value) == (2, "new")
    assert ws.cells.get("run", "cell").version == 2
    assert ws.cells.compare_and_delete("run", "cell", 2) == 3
    assert not ws.cells.exists("run", "cell")
    with pytest.raises(errors.VersionMismatch) as caught:
        ws.cells.compare_and_delete("run", "cell", 2)
    assert caught.value.version is None


# --- names and lists -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [*NAMES, " ", "'; DROP TABLE cells; --", "%", "*", "../..", "x" * 512, "é" * 256, "\U0010ffff"]
)
def test_c7_names_may_hold_punctuation_and_unicode_up_to_512_bytes(world: World, name: str) -> None:
    ws = world.open()
    ws.cells.set(name, name, name)
    assert ws.cells.get(name, name).value == name
    assert (ws.cells.runs(), ws.cells.list(name)) == ([name], [name])
    assert ws.cells.history(name, name)[0].value == name
    assert ws.cells.delete(name, name)


def test_c7_names_that_only_look_alike_are_different_names(world: World) -> None:
    ws = world.open()
    alike = [("a", "b/c"), ("a/b", "c"), ("A", "b/c"), ("a ", "b/c"), ("\u00e9", "c"), ("e\u0301", "c")]
    for run, cell in alike:
        assert ws.cells.set(run, cell, [run, cell]) == 1
    assert [ws.cells.get(run, cell).value for run, cell in alike] == [[run, cell] for run, cell in alike]


def test_c7_list_names_cells_in_the_order_of_their_bytes(world: World) -> None:
    ws = world.open()
    for name in reversed(NAMES):
        ws.cells.set("run", name, 1)
    ws.cells.set("run 2", "elsewhere", 1)
    assert ws.cells.list("run") == NAMES
    assert ws.cells.list("never was") == []


@pytest.mark.parametrize("prefix", ["a", "a-", "aé", "a🌍", "世", "%", "a_", "\U0010ffff", "z"])
def test_c7_list_with_a_prefix_answers_exactly_the_names_that_begin_with_it(world: World, prefix: str) -> None:
    ws = world.open()
    names = [*NAMES, "%", "\U0010ffff", "\U0010ffffa", "\U0010ffff\U0010ffff"]
    for name in names:
        ws.cells.set("run", name, 1)
    assert ws.cells.list("run", prefix=prefix) == sorted(name for name in names if name.startswith(prefix))


@pytest.mark.parametrize("prefix", ["", "a"])
@pytest.mark.parametrize("limit", [1, 3, 16])
def test_c7_pages_of_a_list_are_full_and_together_the_whole_list(world: World, limit: int, prefix: str) -> None:
    ws = world.open()
    for name in NAMES:
        ws.cells.set("run", name, 1)
    pages = [ws.cells.list("run", prefix=prefix, limit=limit)]
    while pages[-1]:
        pages.append(ws.cells.list("run", prefix=prefix, limit=limit, after=pages[-1][-1]))
    assert [name for page in pages for name in page] == [name for name in NAMES if name.startswith(prefix)]
    assert all(len(page) == limit for page in pages[:-2])


def test_c7_after_need_not_exist_nor_lie_in_the_prefix(world: World) -> None:
    ws = world.open()
    for name in NAMES:
        ws.cells.set("run", name, 1)
    assert ws.cells.list("run", after="a~", limit=2) == ["aé", "a世"]
    assert ws.cells.list("run", prefix="a", after="A", limit=2) == ["a", "a-b"]
    assert ws.cells.list("run", prefix="a", after="b") == []


def test_c7_runs_names_every_run_that_has_cells_once_and_in_pages(world: World) -> None:
    ws = world.open()
    for name in NAMES:
        ws.cells.set(name, "one", 1)
        ws.cells.set(name, "two", 2)
    ws.cells.set("deleted", "cell", 1)
    ws.cells.delete("deleted", "cell")
    assert ws.cells.runs() == NAMES
    assert ws.cells.runs(prefix="a", limit=3) == ["a", "a-b", "a.b"]
    assert ws.cells.runs(prefix="a", limit=3, after="a.b") == ["a/b", "a:b", "a@b"]
    assert ws.cells.runs(after="世") == ["🌍"]


# --- values ----------------------------------------------------------------------------------------------------------

VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2**63 - 1,
    -(2**63),
    0.0,
    -0.0,
    1.0,
    0.1,
    5e-324,
    1.7976931348623157e308,
    "",
    "text",
    "世🌍\u0000\n",
    b"",
    b"\x00\xff",
    [],
    {},
    [1, 1.0, True, None, "1", b"1", [1], {"1": 1}],
    {"": 0, "b": 1, "a": {"nested": [b"\x01"]}, "$bytes": "AA=="},
    {"$bytes": "AA=="},
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_c11_a_value_comes_back_as_it_went_in(world: World, value: Any) -> None:
    ws = world.open()
    ws.cells.set("run", "cell", value)
    found = ws.cells.get("run", "cell").value
    assert repr(found) == (repr(value) if type(value) is not dict else repr({key: value[key] for key in found}))
    assert (found, type(found)) == (value, type(value))
    assert ws.cells.history("run", "cell")[0].value == value


def test_c11_1_and_1_point_0_and_true_stay_three_different_values(world: World) -> None:
    ws = world.open()
    for value in (1, 1.0, True):
        ws.cells.set("run", "cell", value)
        ws.cells.set("run", "list", [value, {"deep": value}])
        assert type(ws.cells.get("run", "cell").value) is type(value)
        listed = ws.cells.get("run", "list").value
        assert type(listed[0]) is type(listed[1]["deep"]) is type(value)
    assert [type(step.value) for step in ws.cells.history("run", "cell")] == [bool, float, int]


def test_c11_a_value_may_be_128_deep_and_1_mib_large(world: World) -> None:
    ws = world.open()
    deep: list[Any] = []
    for _ in range(127):
        deep = [deep]
    ws.cells.set("run", "deep", deep)
    assert ws.cells.get("run", "deep").value == deep
    large = b"\xa5" * (1024 * 1024 - 5)  # five bytes say what and how long
    ws.cells.set("run", "large", large)
    assert ws.cells.get("run", "large").value == large
    assert ws.cells.info("run", "large").size == 1024 * 1024
