"""What a planted bug is, and the tests that are there to notice."""

from __future__ import annotations

from typing import NamedTuple

GUARANTEES = ("tests/conformance", "--kinds", "memory")  # the kind that is quickest to notice


class Bug(NamedTuple):
    """One change to the source that breaks a promise; `good` must occur exactly once in the file."""

    name: str
    file: str
    good: str
    bad: str
    tests: tuple[str, ...] = GUARANTEES
