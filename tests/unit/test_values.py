"""Values: what is accepted comes back exactly, the rest is refused with its place, equal values have equal bytes."""

from __future__ import annotations

import collections
import datetime
import enum
import json
import math
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Corrupt, InvalidValue, TooLarge
from holdfast.kernel.values import (
    INT_MAX,
    INT_MIN,
    MAX_DEPTH,
    MAX_VALUE_BYTES,
    Value,
    check,
    decode,
    encode,
)
from holdfast.wire import from_wire, to_wire

SAMPLES = Path(__file__).parents[3] / "shared" / "samples" / "cells" / "statecell-cases.jsonl"

scalars = (
    st.none()
    | st.booleans()
    | st.integers(INT_MIN, INT_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.binary()
)
# Keys that begin with $ are what the JSON form has to keep apart, so they come often.
keys = st.text() | st.text("$b", max_size=3) | st.sampled_from(["$bytes", "$$bytes", "$"])
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(keys, inner, max_size=4), max_leaves=30)


def same(left: object, right: object) -> bool:
    """Equality that tells 1 from 1.0 from True and 0.0 from -0.0."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, float) and isinstance(right, float):
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    return left == right


def nested(depth: int, innermost: Any = 1, kind: str = "list") -> Any:
    value = innermost
    for _ in range(depth):
        value = [value] if kind == "list" else {"a": value}
    return value


def shuffled(value: Any, by: random.Random) -> Any:
    if isinstance(value, list):
        return [shuffled(item, by) for item in value]
    if isinstance(value, dict):
        pairs = list(value.items())
        by.shuffle(pairs)
        return {key: shuffled(item, by) for key, item in pairs}
    return value


# --- stored form -----------------------------------------------------------------------------------------------------


@given(values)
def test_a_value_comes_back_exactly_as_it_went_in(value: Value) -> None:
    assert same(decode(encode(value)), value)


@given(values, st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_change_the_bytes(value: Value, by: random.Random) -> None:
    assert encode(shuffled(value, by)) == encode(value)


@given(values, values)
def test_different_values_have_different_bytes(left: Value, right: Value) -> None:
    assert (encode(left) == encode(right)) == same(left, right)


def test_one_and_one_point_zero_and_true_stay_apart() -> None:
    kinds: list[Value] = [1, 1.0, True, "1", b"1"]
    assert len({encode(value) for value in kinds}) == len(kinds)
    assert [type(decode(encode(value))) for value in kinds] == [int, float, bool, str, bytes]


def test_minus_zero_keeps_its_sign() -> None:
    assert math.copysign(1, decode(encode(-0.0))) == -1  # type: ignore[arg-type]
    assert math.copysign(1, decode(encode([-0.0]))[0]) == -1  # type: ignore[index, arg-type]


@pytest.mark.parametrize("value", [INT_MIN, INT_MAX, 5e-324, 1.7976931348623157e308, "", b"", [], {}, {"": None}, "\0"])
def test_the_edges_of_every_type_come_back(value: Value) -> None:
    assert same(decode(encode(value)), value)
    assert same(decode(encode([value])), [value])


def test_one_object_may_appear_twice() -> None:
    shared = [1, {"a": b"x"}]
    assert decode(encode([shared, shared, {"a": shared}])) == [shared, shared, {"a": shared}]


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x01\x02", b"\xa1\xff", b"\x92\x01"])
def test_bytes_that_are_no_stored_value_are_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt, match="cannot be read"):
        decode(data)


# --- refusals --------------------------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


class Name(str):
    __slots__ = ()


class Ratio(float):
    pass


NOT_VALUES: list[tuple[object, str, str]] = [
    ((1, 2), "tuple", "use a list"),
    ({1, 2}, "set", "use a list"),
    (frozenset(), "frozenset", "use a list"),
    (bytearray(b"x"), "bytearray", "bytes"),
    (memoryview(b"x"), "memoryview", "bytes"),
    (Colour.RED, "Colour", ".value"),
    (Level.LOW, "Level", ".value"),
    (Name("x"), "Name", "plain type"),
    (Ratio(1.0), "Ratio", "plain type"),
    (collections.OrderedDict(a=1), "OrderedDict", "plain type"),
    (collections.defaultdict(list), "defaultdict", "plain type"),
    (datetime.datetime.now(datetime.UTC), "datetime.datetime", "isoformat"),
    (msgspec.UNSET, "UnsetType", ""),
    (object(), "object", "values are null, bool"),
    (1j, "complex", "values are null, bool"),
    (int, "type", "values are null, bool"),
]


@pytest.mark.parametrize(("bad", "kind", "hint"), NOT_VALUES, ids=[kind for _, kind, _ in NOT_VALUES])
def test_other_types_are_refused_with_their_place_and_a_hint(bad: object, kind: str, hint: str) -> None:
    for value, where in ((bad, "$"), ([0, 1, [2, bad]], "$[2][1]"), ({"a": [0, {"b c": bad}]}, "$.a[1]['b c']")):
        for refuse in (encode, to_wire):
            with pytest.raises(InvalidValue) as caught:
                refuse(value)
            assert caught.value.message.startswith(f"{where} is of type ")
            assert kind in caught.value.message
            assert hint in caught.value.hint
            assert caught.value.path == where


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, INT_MAX + 1, INT_MIN - 1, 2**64, 10**400])
def test_numbers_that_cannot_be_kept_are_refused(bad: float) -> None:
    for value, where in ((bad, "$"), ({"a": [0, 1, 2, bad]}, "$.a[3]")):
        for refuse in (encode, to_wire):
            with pytest.raises(InvalidValue) as caught:
                refuse(value)
            assert caught.value.path == where


@pytest.mark.parametrize("key", [1, None, True, b"a", 1.5, ("a",), Name("a")])
def test_keys_other_than_plain_str_are_refused(key: object) -> None:
    with pytest.raises(InvalidValue, match=r"^\$\.a\[0\] has a key of type "):
        encode({"a": [{key: 1}]})


def test_lone_surrogates_are_refused_with_their_place() -> None:
    for value, where in (
        ("\ud800", "$"),
        (["fine", "é", {"a": "x\udfff"}], "$[2].a"),
        ({"a": [{"\ud800": 1}]}, "$.a[0]"),
    ):
        for refuse in (encode, to_wire):
            with pytest.raises(InvalidValue, match="lone surrogate") as caught:
                refuse(value)
            assert caught.value.path == where


@pytest.mark.parametrize("kind", ["list", "dict"])
@pytest.mark.parametrize("innermost", [1, b"x", "x"])
def test_depth_counts_lists_and_dicts_and_128_is_the_most(kind: str, innermost: Value) -> None:
    deepest = nested(MAX_DEPTH, innermost, kind)
    assert MAX_DEPTH == 128
    assert same(decode(encode(deepest)), deepest)
    assert same(from_wire(json.loads(json.dumps(to_wire(deepest)))), deepest)
    for refuse in (encode, to_wire):
        with pytest.raises(InvalidValue, match="more than 128 deep"):
            refuse(nested(MAX_DEPTH + 1, innermost, kind))


def test_an_empty_list_is_a_level_of_depth() -> None:
    encode(nested(MAX_DEPTH - 1, []))
    with pytest.raises(InvalidValue, match="deep"):
        encode(nested(MAX_DEPTH, []))


def test_cycles_of_any_shape_are_refused_and_named() -> None:
    straight: list[Any] = [1]
    straight.append(straight)
    doubled: list[Any] = []
    doubled += [doubled, doubled]
    wide: list[Any] = []
    wide += [wide] * 1_000
    through: dict[str, Any] = {}
    through["a"] = [0, {"b": through}]
    for value, where in (
        (straight, "$[1]"),
        (doubled, "$["),
        (wide, "$["),
        (through, "$.a[1].b"),
        ([[through]], "$[0]"),
    ):
        for refuse in (encode, check):
            with pytest.raises(InvalidValue, match="contains itself") as caught:
                refuse(value, 20_000)  # which the wide one exceeds before it is too deep
            assert where in caught.value.message


def test_a_very_deep_value_is_refused_without_a_recursion_error() -> None:
    for refuse in (encode, to_wire, from_wire):
        with pytest.raises(InvalidValue, match="deep"):
            refuse(nested(100_000))


def test_a_long_place_is_shortened_in_the_message() -> None:
    with pytest.raises(InvalidValue) as caught:
        encode(nested(100, {"k" * 10_000: {1}}))
    assert len(caught.value.message) < 300


# --- size ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", ["text", "bytes", "list", "object"])
def test_the_limit_is_on_the_encoded_size_to_the_byte(make: str) -> None:
    cases: dict[str, Value] = {
        "text": "é" * 400,
        "bytes": b"x" * 700,
        "list": [1] * 700,
        "object": {"a" * 300: "b" * 300},
    }
    value = cases[make]
    size = len(encode(value))
    assert encode(value, size)
    with pytest.raises(TooLarge) as caught:
        encode(value, size - 1)
    assert caught.value.limit == size - 1
    assert caught.value.size == size


def test_a_scalar_has_to_fit_too() -> None:
    with pytest.raises(TooLarge) as caught:
        encode(2**40, 4)
    assert (caught.value.size, caught.value.limit) == (9, 4)


def test_the_default_limit_is_one_mebibyte() -> None:
    assert len(encode(b"x" * (MAX_VALUE_BYTES - 5))) == MAX_VALUE_BYTES == 1024 * 1024
    with pytest.raises(TooLarge):
        encode(b"x" * (MAX_VALUE_BYTES - 4))


@given(values)
def test_no_value_is_refused_before_its_size_is_sure_to_exceed_the_limit(value: Value) -> None:
    check(value, len(encode(value)))


def test_a_value_that_is_small_only_by_sharing_is_refused_without_being_spelled_out() -> None:
    bomb: Value = 1
    for _ in range(100):
        bomb = [bomb, bomb]
    with pytest.raises(TooLarge) as caught:
        encode(bomb)
    assert caught.value.size > caught.value.limit == MAX_VALUE_BYTES
    with pytest.raises(TooLarge):
        encode(["x" * 1_000_000] * 100_000)


# --- inside JSON -----------------------------------------------------------------------------------------------------


@given(values)
def test_a_value_comes_back_exactly_from_json(value: Value) -> None:
    wire = to_wire(value)
    assert same(from_wire(json.loads(json.dumps(wire))), value)
    assert same(from_wire(msgspec.json.decode(msgspec.json.encode(wire))), value)


def test_the_json_form_is_as_documented() -> None:
    assert to_wire(b"\x00\xff") == {"$bytes": "AP8="}
    assert to_wire({"$bytes": "AP8="}) == {"$$bytes": "AP8="}
    assert to_wire({"$$x": [b""]}) == {"$$$x": [{"$bytes": ""}]}
    assert to_wire({"$": 1}) == {"$$": 1}
    assert to_wire({"$a": 1, "$b": 2}) == {"$a": 1, "$b": 2}
    assert to_wire({"a$": {"b": [1, 1.0, None]}}) == {"a$": {"b": [1, 1.0, None]}}


@pytest.mark.parametrize(
    "form",
    ["AP8", "AP8=\n", " AP8=", "AP8==", "A", "=", "AP9=", "A_-=", "AP8=AP8=", "é", "\ud800", 1, None, [], {}, b"AP8="],
)
def test_malformed_base64_is_refused(form: object) -> None:
    with pytest.raises(InvalidValue, match=r"^\$bytes of \$\.a\[1\] is not base64") as caught:
        from_wire({"a": [0, {"$bytes": form}]})
    assert caught.value.path == "$.a[1]"


@pytest.mark.parametrize("key", ["$", "$x", "$byte", "$bytes2", "$Bytes"])
def test_an_unknown_marker_is_refused(key: str) -> None:
    with pytest.raises(InvalidValue, match="unknown marker"):
        from_wire([{key: "AP8="}])


@pytest.mark.parametrize("bad", [b"x", (1,), {1}, Level.LOW])
def test_what_no_json_parser_returns_is_refused(bad: object) -> None:
    with pytest.raises(InvalidValue, match=r"^\$\.a\[0\] is of type"):
        from_wire({"a": [bad]})


@pytest.mark.skipif(not SAMPLES.exists(), reason="the sample data is not at hand")
def test_the_sample_values_come_back_exactly() -> None:
    cases = [json.loads(line) for line in SAMPLES.read_text(encoding="utf-8").splitlines()]
    found = [case[field] for case in cases for field in ("value", "initial_value") if field in case]
    found += [step["value"] for case in cases for step in case.get("sequence", ())]
    assert found
    for value in found:
        assert same(decode(encode(value)), value)
        assert same(from_wire(to_wire(value)), value)
