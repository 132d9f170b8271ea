"""What a stash of each type may hold. None is always allowed: no value is set."""

from __future__ import annotations

from typing import Any, Final, get_args

from holdfast import errors
from holdfast.types.stashes import StashType

TYPES: Final[tuple[StashType, ...]] = get_args(StashType)
COUNTER: Final = "counter"
LOCK: Final = "lock"
_NEEDED: Final = {"resource": ("uri", "kind"), "artifact": ("path", "producer", "checksum"), "context": ()}
_LEAST, _MOST = -(2**63), 2**63 - 1


def one(stash_type: str) -> str:
    """A type with its article."""
    return f"an {stash_type}" if stash_type == "artifact" else f"a {stash_type}"


def check_type(stash_type: Any) -> None:
    """InvalidStashType for what is none."""
    if stash_type not in TYPES:
        raise errors.InvalidStashType(
            f"{stash_type!r} is not a type of stash", hint=f"types: {', '.join(TYPES)}", types=list(TYPES)
        )


def check_value(stash_type: str, value: Any) -> None:
    """InvalidValue unless a stash of this type can hold the value."""
    if value is None:
        return
    if stash_type == LOCK:
        raise errors.InvalidValue("a lock is made free", hint="acquire it, with a holder")
    if not isinstance(value, dict):
        raise errors.InvalidValue(f"the value of {one(stash_type)} is an object, not {type(value).__name__}", hint="")
    if stash_type == COUNTER:
        count_of(value)
        return
    for key in _NEEDED[stash_type]:
        if not isinstance(value.get(key), str):
            needed = " and ".join(_NEEDED[stash_type])
            raise errors.InvalidValue(f"{one(stash_type)} needs {needed}, each a text; {key} is not one", hint="")


def count_of(value: Any) -> int:
    """The number in a counter's value; what is missing is 0."""
    count = 0 if value is None else value.get("value", 0)
    if type(count) is not int or (value and set(value) != {"value"}):
        raise errors.InvalidValue('the value of a counter is {"value": a whole number}', hint="")
    return checked_count(count)


def checked_count(count: int) -> int:
    """InvalidValue for a number that is too large for a counter."""
    if not _LEAST <= count <= _MOST:
        raise errors.InvalidValue(f"{count} is outside of int64", hint="a counter counts from -2^63 to 2^63 - 1")
    return count
