"""Checks of the small arguments every call takes: names, seconds and limits.

A name is 1 to 512 bytes of UTF-8 without control characters, compared byte by byte without normalization. Durations
come in as seconds and leave as whole microseconds, the kernel's only unit. Invariant: what passes here can be stored
and compared without another check. Called by the domains and the kernel before they use an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, overload

from holdfast.errors import Invalid, InvalidFilter, InvalidID, InvalidName

MAX_NAME_BYTES: Final = 512
MAX_SECONDS: Final = 100 * 31_557_600  # a hundred years of 365.25 days

_CONTROL: Final = frozenset(chr(code) for code in (*range(0x20), *range(0x7F, 0xA0)))  # the category Cc
_LAST: Final = "\U0010ffff"
_INFINITE: Final = float("inf")


def check_name(name: object, what: str = "name") -> None:
    """Raise InvalidName unless `name` is a valid name; `what` is the argument in the message."""
    # Printable ASCII has one byte per character and no control characters: nearly every name ends here.
    if type(name) is str and name.isascii() and name.isprintable() and 0 < len(name) <= MAX_NAME_BYTES:
        return
    problem = _problem(name)
    if problem:
        raise InvalidName(f"{what} {problem}", hint=_advice(name), what=what)


def check_id(id: object, what: str = "id") -> None:
    """Raise InvalidID unless `id` can be the id of a record; `what` is the argument in the message."""
    problem = _problem(id)
    if problem:
        raise InvalidID(f"{what} {problem}", hint=_advice(id), what=what)


def _advice(name: object) -> str | None:
    """The hint for what is no name: its form helps only who gave a text."""
    if isinstance(name, str):
        return None
    kind = type(name).__name__
    return f"pass its id: {kind.lower()}.id" if isinstance(getattr(name, "id", None), str) else ""


def _problem(name: object) -> str:
    if type(name) is not str:
        return f"must be a str, not {type(name).__qualname__}"
    if not name:
        return "is empty"
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        return f"has a lone surrogate at position {error.start}"
    if size > MAX_NAME_BYTES:
        return f"is {size} bytes of UTF-8; the maximum is {MAX_NAME_BYTES}"
    if not _CONTROL.isdisjoint(name):
        at = next(at for at, char in enumerate(name) if char in _CONTROL)
        return f"has the control character U+{ord(name[at]):04X} at position {at}"
    return ""


def after_prefix(prefix: str) -> str | None:
    """Return the smallest string greater than all that start with `prefix`, in UTF-8 byte order, or None."""
    kept = prefix.rstrip(_LAST)  # the last code point has no successor: the one before it is incremented
    if not kept:
        return None
    code = ord(kept[-1]) + 1
    return kept[:-1] + chr(0xE000 if 0xD800 <= code <= 0xDFFF else code)


def page_bounds(column: str, prefix: str, after: str) -> tuple[str, list[str]]:
    """SQL, beginning with AND, for the names with `prefix` after the last one of the previous page."""
    for text, what in ((prefix, "prefix"), (after, "after")):
        if text != "":
            check_name(text, what)
    bounds, params = f" AND {column} > ?", [after]
    if prefix > after:
        bounds, params = f" AND {column} >= ?", [prefix]
    end = after_prefix(prefix)
    return (bounds, params) if end is None else (f"{bounds} AND {column} < ?", [*params, end])


@overload
def check_seconds(value: object, what: str, allow_none: Literal[False] = False) -> int: ...
@overload
def check_seconds(value: object, what: str, allow_none: bool) -> int | None: ...
def check_seconds(value: object, what: str, allow_none: bool = False) -> int | None:
    """Return a duration of 0 seconds to 100 years, such as a timeout, in microseconds; None if allowed."""
    if value is None and allow_none:
        return None
    return _microseconds(value, what, "0 or more")


def check_ttl(ttl: object, what: str = "ttl") -> int:
    """Return a duration above 0 and up to 100 years in microseconds, at least one."""
    micros = _microseconds(ttl, what, "above 0")
    if ttl == 0:
        raise Invalid(f"{what} must be above 0 seconds, not {ttl!r}", what=what)
    return max(micros, 1)


def _microseconds(value: object, what: str, least: str) -> int:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise Invalid(f"{what} must be a number of seconds, not {type(value).__qualname__}", what=what)
    if isinstance(value, float) and not -_INFINITE < value < _INFINITE:
        raise Invalid(f"{what} must be a finite number of seconds, not {value!r}", what=what)
    if value < 0:
        raise Invalid(f"{what} must be {least} seconds, not {value!r}", what=what)
    if value > MAX_SECONDS:
        raise Invalid(f"{what} must be at most 100 years ({MAX_SECONDS} seconds)", what=what)
    return round(value * 1_000_000)


def check_flag(**flags: object) -> None:
    """Raise Invalid unless each value is True or False: a text such as "no" is not False."""
    for name, value in flags.items():
        if value is not True and value is not False:
            raise Invalid(f"{name} must be True or False, not {value!r}")


# How a caller gets what is beyond a limit, by the argument that its operation has for it.
_NEXT_PAGE: Final = {
    "": "",
    "after": "after=LAST continues after the last one of a page",
    "after a version": "after=VERSION continues after the entry that has this version",
    "before": "before=VERSION continues with what is older",
    "after an event": "after=CURSOR continues after the event that has this cursor",
    "cursor": "cursor=CURSOR continues with the next page",
    "offset": "offset=COUNT skips those of the pages before",
}


def check_offset(offset: object) -> int:
    """Return `offset` if it is an int of 0 or more. Raises InvalidFilter."""
    if type(offset) is not int or not 0 <= offset < 2**63:
        raise InvalidFilter(f"offset must be an int of 0 or more, not {offset!r}")
    return offset


def check_limit(
    limit: object,
    maximum: int,
    by: Literal["after", "after a version", "after an event", "before", "cursor", "offset", ""],
) -> int:
    """Return `limit` if it is an int of 1 to `maximum`. Raises InvalidFilter.

    `by` is the argument with which the operation continues after a page, or "" if it has no pages.
    """
    if type(limit) is not int:
        wrong = repr(limit[:80]) if isinstance(limit, str) else type(limit).__qualname__
        raise InvalidFilter(f"limit must be an int, not {wrong}")
    if not 1 <= limit <= maximum:
        raise InvalidFilter(f"limit must be 1 to {maximum}, not {limit}", hint=_NEXT_PAGE[by], maximum=maximum)
    return limit


def several(given: Any) -> tuple[Any, ...]:
    """Return the values of a filter: one, or a list of alternatives. Raises InvalidFilter."""
    if given is None:
        return ()
    if isinstance(given, list | tuple | set | frozenset) and not given:
        raise InvalidFilter("an empty list matches nothing", hint="omit the filter to match everything")
    return tuple(given) if isinstance(given, list | tuple | set | frozenset) else (given,)


def any_of(column: str, given: Any, check: Callable[[Any], object]) -> tuple[str, tuple[Any, ...]]:
    """The condition that a column has the value of a filter, or one of several, with its values; None is no filter."""
    values = several(given)
    for value in values:
        check(value)
    return (f" AND {column} IN ({', '.join('?' * len(values))})" if values else ""), values
