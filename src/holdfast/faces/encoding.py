"""Any result of an operation as JSON, without loss: what HTTP, the command line and MCP answer with."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

import msgspec

from holdfast import errors


def wired(result: Any) -> Any:
    """Any result in a form that JSON can carry: bytes marked as `kernel.wire` marks them."""
    return _wrap(msgspec.to_builtins(result, builtin_types=(bytes, datetime)))


def _wrap(item: Any) -> Any:
    kind = type(item)
    if kind is dict:
        if len(item) == 1 and str(next(iter(item))).startswith("$"):
            return {f"${key}": _wrap(value) for key, value in item.items()}
        return {key: _wrap(value) for key, value in item.items()}
    if kind is list or kind is tuple:
        return [_wrap(value) for value in item]
    if kind is bytes:
        return {"$bytes": msgspec.to_builtins(item)}
    if kind is float and not math.isfinite(item):
        raise errors.InvalidValue(f"{item!r} is not a number that JSON has")
    return item
