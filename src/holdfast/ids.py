"""Ids of records: UUID version 7 (RFC 9562), which sort by the time they were made:
    48 bits  milliseconds since 1970        ┐ the stamp: 60 bits that never repeat
     4 bits  version, 7                     │ and never go back within one `Ids`
    12 bits  fraction of the millisecond    ┘
     2 bits  variant, 10
    62 bits  random, fresh from the system for every id, so that forks and machines do not collide

Invariant: each id of one `Ids` is greater than all before it; within a microsecond, or when the clock goes back, the
stamp advances by one, into the milliseconds if necessary. Called by the kernel for each new record.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final

from holdfast.errors import Invalid

_END_US: Final = 2**48 * 1000  # the year 10889, where the 48 bits end
_HEX: Final = frozenset("0123456789abcdef")
_VARIANT: Final = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))  # sets the first two bits of a digit to 10


class Ids:
    """A source of ids. Thread-safe; ids are ordered only within one source, so a workspace has one."""

    __slots__ = ("_entropy", "_last", "_lock")

    def __init__(self, entropy: Callable[[int], bytes] = os.urandom) -> None:
        self._entropy = entropy  # a simulation passes its own, to be repeatable
        self._last = 0
        self._lock = threading.Lock()

    def new(self, now_us: int) -> str:
        """Return a new id, lower case with hyphens, for a time in microseconds since 1970."""
        if not 0 <= now_us < _END_US:
            raise Invalid(f"no id can be made for the time {now_us} µs", hint="check this machine's clock")
        stamp = now_us * 512 // 125  # 4096 to the millisecond
        with self._lock:
            if stamp <= self._last:
                stamp = self._last + 1
            self._last = stamp
        # Not buffered: after a fork both processes would use the same bits.
        low = self._entropy(8).hex("-", 6)
        high = (stamp << 4).to_bytes(8, "big").hex()
        return f"{high[:8]}-{high[8:12]}-7{high[12:15]}-{_VARIANT[low[0]]}{low[1:]}"


def is_uuid7(text: object) -> bool:
    """Whether `text` is a UUID v7 as written here: lower case, hyphenated."""
    return (
        type(text) is str
        and len(text) == 36
        and text[8] == text[13] == text[18] == text[23] == "-"
        and text[14] == "7"
        and text[19] in "89ab"
        and len(digits := text.replace("-", "")) == 32
        and _HEX.issuperset(digits)
    )


def new_secret() -> str:
    """Return 256 random bits as text, for tokens."""
    return os.urandom(32).hex()
