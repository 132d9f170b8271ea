"""The values that Holdfast stores and their stored form, canonical msgpack. Their JSON form is in `holdfast.wire`.

A value is null, bool, int64, finite float, str, bytes, or a list or str-keyed dict of values. Types are matched
exactly: nothing is converted silently (msgspec alone would turn a tuple into a list and accept an int of 2^64).
Depth counts the lists and dicts around a scalar: 1 has depth 0, `[]` and `[1]` have 1; 128 is the maximum.
Invariant: equal values of equal types give equal bytes, whatever the insertion order of their dicts, and
`decode(encode(v))` is v exactly. Called by every domain that stores a value.
"""

from __future__ import annotations

import sys
from typing import Any, Final, TypeAlias

import msgspec

from holdfast.errors import Corrupt, InvalidValue, TooLarge

Value: TypeAlias = bool | int | float | str | bytes | list["Value"] | dict[str, "Value"] | None

MAX_VALUE_BYTES: Final = 1024 * 1024
MAX_DEPTH: Final = 128
INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1

# A list or dict on the way down: itself, its depth, and the node that holds it. Keys are not kept, since only an error
# needs them and can find them again by identity.
_Box: TypeAlias = list[Any] | dict[Any, Any]
Node: TypeAlias = tuple[_Box, int, "Node | None"]

_pack = msgspec.msgpack.Encoder(order="sorted").encode
_unpack = msgspec.msgpack.Decoder().decode


def encode(value: object, limit: int = MAX_VALUE_BYTES) -> bytes:
    """Return the stored form of `value`. Raises InvalidValue, or TooLarge if it exceeds `limit` bytes."""
    check(value, limit)
    try:
        data = _pack(value)
    except UnicodeEncodeError:
        check(value, limit, text=True)
        raise  # only if another thread changed the value meanwhile
    if len(data) > limit:
        raise _too_large(len(data), limit, "")
    return data


def decode(data: bytes) -> Value:
    """Return the value whose stored form is `data`. Raises Corrupt if `data` is not a form that `encode` makes."""
    try:
        return _unpack(data)  # type: ignore[no-any-return]
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as error:
        raise Corrupt(f"a stored value cannot be read: {error}") from error


def check(value: Any, limit: int = sys.maxsize, *, text: bool = False) -> None:
    """Raise InvalidValue unless `value` is a value, TooLarge as soon as it cannot fit into `limit` bytes.

    Lone surrogates are looked for only with `text`: the encoder finds them for free, but cannot say where.
    """
    kind = type(value)
    if kind is int:
        if not INT_MIN <= value <= INT_MAX:
            raise bad_scalar(None, value)
    elif kind is str or kind is bytes:
        if len(value) > limit:
            raise _too_large(len(value), limit, "at least ")
        if text and kind is str and not is_text(value):
            raise _bad_text(None, value)
    elif kind is list or kind is dict:
        _check_tree(value, limit, text)
    elif kind is float:
        if value - value != 0.0:  # true for NaN and the infinities only
            raise bad_scalar(None, value)
    elif value is not None and kind is not bool:
        raise bad_scalar(None, value)


# --- the walk --------------------------------------------------------------------------------------------------------


def _check_tree(root: _Box, limit: int, text: bool) -> None:
    # An explicit stack instead of recursion: a cycle ends at the depth limit, not in a RecursionError. The running
    # lower bound of the encoded size also ends values that are shallow but share parts so often that they cannot fit.
    stack: list[Node] = [(root, 1, None)]
    size = 0
    while stack:
        node = stack.pop()
        if node[1] > MAX_DEPTH:
            raise too_deep(node)
        if type(node[0]) is dict:
            size += _check_keys(node, text)
        size += _check_items(node, stack, text)
        if size > limit:
            raise _repeats(node) or _too_large(size, limit, "at least ")


def _check_keys(node: Node, text: bool) -> int:
    size = 0
    for key in node[0]:
        if type(key) is not str:
            raise _bad_key(node, key)
        if text and not is_text(key):
            raise _bad_text(node[2], node[0])
        size += len(key) + 1
    return size


def _check_items(node: Node, stack: list[Node], text: bool) -> int:
    box: Any = node[0]
    size = len(box)
    for item in box if type(box) is list else box.values():
        kind = type(item)
        if kind is str:
            size += len(item)
            if text and not is_text(item):
                raise _bad_text(node, item)
        elif kind is int:
            if not INT_MIN <= item <= INT_MAX:
                raise bad_scalar(node, item)
        elif kind is list or kind is dict:
            stack.append((item, node[1] + 1, node))
        elif kind is float:
            if item - item != 0.0:
                raise bad_scalar(node, item)
        elif kind is bytes:
            size += len(item)
        elif item is not None and kind is not bool:
            raise bad_scalar(node, item)
    return size


def is_text(text: str) -> bool:
    """Whether a str can be stored: it has no lone surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# --- errors, with the path to the value ------------------------------------------------------------------------------

_HINTS: Final[tuple[tuple[type | tuple[type, ...], str], ...]] = (
    (tuple, "use a list"),
    ((set, frozenset), "use a list, sorted if the order has no meaning"),
    ((bytearray, memoryview), "use bytes(...)"),
    ((int, float, str, bytes, list, dict), "subclasses would be read back as the plain type: convert it first"),
)
# By name, so that their modules are not imported for this.
_HINTS_BY_NAME: Final = {
    "datetime": "store .isoformat() or an int of microseconds",
    "timedelta": "store an int of microseconds",
    **dict.fromkeys(("date", "time"), "store .isoformat()"),
    **dict.fromkeys(("Decimal", "Fraction", "UUID", "PosixPath"), "store str(...)"),
}


def _hint(value: object) -> str | None:
    from enum import Enum

    for types, hint in ((Enum, "store its .value"), *_HINTS):
        if isinstance(value, types):
            return hint
    return _HINTS_BY_NAME.get(type(value).__name__)


def bad_scalar(parent: Node | None, item: object) -> InvalidValue:
    """The error for an item of an unknown type."""
    where = path_of(parent, item)
    if type(item) is int:
        return InvalidValue(f"{where} is an int outside of int64", hint="store a larger number as a string", path=where)
    if type(item) is float:
        return InvalidValue(f"{where} is {item}, not a finite float", hint="store null or a str instead", path=where)
    kind = type(item)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return InvalidValue(f"{where} is of type {name}, which cannot be stored", hint=_hint(item), path=where)


def _bad_key(node: Node, key: object) -> InvalidValue:
    where = path_of(node[2], node[0])
    message = f"{where} has a key of type {type(key).__qualname__}: {short(repr(key), 40)}"
    return InvalidValue(message, hint="keys are plain str", path=where)


def _bad_text(parent: Node | None, item: object) -> InvalidValue:
    where = path_of(parent, item)
    what = "has a key" if type(item) is dict else "is a str"
    hint = "text is Unicode: store data that is not text as bytes"
    return InvalidValue(f"{where} {what} with a lone surrogate", hint=hint, path=where)


def too_deep(node: Node) -> InvalidValue:
    """The error for nesting past the limit."""
    where = path_of(node[2], node[0])
    return _repeats(node) or InvalidValue(f"{where} is nested more than {MAX_DEPTH} deep", path=where)


def _repeats(node: Node) -> InvalidValue | None:
    # The error for a list or dict that is its own ancestor, if one is on the way down to this node.
    below: dict[int, Node] = {}
    at: Node | None = node
    while at is not None:
        inner = below.setdefault(id(at[0]), at)
        if inner is not at:
            where = path_of(inner[2], inner[0])
            return InvalidValue(f"{where} contains itself", hint="values are trees without cycles", path=where)
        at = at[2]
    return None


def _too_large(size: int, limit: int, at_least: str) -> TooLarge:
    message = f"the value takes {at_least}{size} bytes encoded; the limit is {limit}"
    return TooLarge(message, hint="store large data elsewhere and a reference here", size=size, limit=limit)


def path_of(parent: Node | None, item: object) -> str:
    """The path of an item, such as `$.a[3]`."""
    steps: list[str] = []
    while parent is not None:
        steps.append(_step(parent[0], item))
        item, parent = parent[0], parent[2]
    return short("$" + "".join(reversed(steps)), 200)


def _step(box: _Box, item: object) -> str:
    if isinstance(box, list):
        return f"[{next((at for at, child in enumerate(box) if child is item), '?')}]"
    key = next((key for key, child in box.items() if child is item), "?")
    return f".{key}" if type(key) is str and key.isidentifier() else f"[{short(repr(key), 40)}]"


def short(text: str, most: int) -> str:
    """Shorten text for a message."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-most // 4 :]}"
