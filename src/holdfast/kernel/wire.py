"""Values on the wire: the JSON form that HTTP, MCP and the command line use.

Bytes become `{"$bytes": base64}`, and an object whose only key begins with `$` travels with one more `$`, so that every
value comes back exactly. Called by the faces; the store itself never sees this form.
"""

from __future__ import annotations

import binascii
from typing import Any

from holdfast.errors import InvalidValue
from holdfast.kernel.values import MAX_DEPTH, Node, Value, bad_scalar, check, path_of, short, too_deep


def to_wire(value: object) -> Value:
    """`value` in a form that JSON can carry; InvalidValue if it is no value (JSON would turn NaN into null).

    Bytes become `{"$bytes": base64}`. To keep the two apart, an object whose only key begins with `$` gets one more.
    """
    check(value, text=True)
    return _wrap(value)


def _wrap(item: Any) -> Value:
    kind = type(item)
    if kind is list:
        return [_wrap(child) for child in item]
    if kind is dict:
        dollar = "$" if _marked(item) else ""
        return {dollar + key: _wrap(child) for key, child in item.items()}
    if kind is bytes:
        return {"$bytes": binascii.b2a_base64(item, newline=False).decode()}
    return item  # type: ignore[no-any-return]


def from_wire(obj: object, most: int = MAX_DEPTH) -> Value:
    """The value whose JSON form was parsed into `obj`; InvalidValue if that form is malformed or too deep.

    Looks at the shape only. The ranges and the text are checked when the value is encoded.
    """
    return _unwrap(obj, None, most)


def _unwrap(item: Any, parent: Node | None, most: int) -> Value:
    kind = type(item)
    if kind is not list and kind is not dict:
        if kind is str or kind is int or kind is float or kind is bool or item is None:
            return item  # type: ignore[no-any-return]
        raise bad_scalar(parent, item)
    if kind is dict and _marked(item) and not next(iter(item)).startswith("$$"):
        return _unwrap_bytes(item, parent)  # a scalar, so no level of depth
    node: Node = (item, parent[1] + 1 if parent else 1, parent)
    if node[1] > most:
        raise too_deep(node)
    if kind is list:
        return [_unwrap(child, node, most) for child in item]
    skip = 1 if _marked(item) else 0
    return {key[skip:] if skip else key: _unwrap(child, node, most) for key, child in item.items()}


def _unwrap_bytes(item: dict[str, object], parent: Node | None) -> bytes:
    ((key, text),) = item.items()
    where = path_of(parent, item)
    if key != "$bytes":
        hint = "an object whose only key begins with $ is sent with one more $"
        raise InvalidValue(f"{where} has the unknown marker {short(repr(key), 40)}", hint=hint, path=where)
    try:
        data = binascii.a2b_base64(text) if type(text) is str else None
    except ValueError:
        data = None
    # The decoder skips what is no base64; only what encodes to the same text again was well-formed.
    if data is None or binascii.b2a_base64(data, newline=False).decode() != text:
        raise InvalidValue(f"{where} has no base64 under $bytes", hint="standard alphabet, with padding", path=where)
    return data


def _marked(box: dict[Any, Any]) -> bool:
    if len(box) != 1:
        return False
    key = next(iter(box))
    return type(key) is str and key.startswith("$")
