"""Whether two globs can match the same text.

Guarantee: if some text matches both, the answer is yes. It may also be yes where none does: two sets of characters are
taken to share one, and a pair of patterns that would take too long to compare is taken to overlap.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, TypeAlias

from holdfast.domains.routing import globs

MAX_WORK: Final = 200_000  # comparisons of single tokens for one pair of patterns

_Segment: TypeAlias = "str | globs.Plain"  # text, or tokens
_GLOBSTAR: Final = None
Segments: TypeAlias = "tuple[_Segment | None, ...]"


class _TooMuch(Exception):
    """It would take too long to tell."""


class _Work:
    """What is left to spend on one pair."""

    def __init__(self) -> None:
        self._left = MAX_WORK

    def spend(self, steps: int) -> None:
        """Count steps; _TooMuch when there were too many."""
        self._left -= steps
        if self._left < 0:
            raise _TooMuch


@lru_cache(maxsize=16_384)
def overlap(one: str, other: str) -> bool:
    """Whether some text may match both patterns; ValueError for a bad one."""
    return meet(alternatives(one), alternatives(other))


def meet(one: Iterable[Segments], other: Iterable[Segments]) -> bool:
    """Whether some text may match an alternative of each."""
    work = _Work()
    there = tuple(other)
    try:
        return any(_segments_meet(a, b, work) for a in one for b in there)
    except _TooMuch:
        return True


@lru_cache(maxsize=4096)
def alternatives(pattern: str) -> tuple[Segments, ...]:
    """The patterns without braces that a pattern stands for, as segments."""
    found = []
    for plain in globs.plain_patterns(pattern):
        segments = _collapsed(map(_segment, globs.segments(plain)))
        found.append(segments)
        if segments[-2:] == (_GLOBSTAR, ""):  # `a/**/` also matches `a`
            found.append(segments[:-1])
    return tuple(found)


def literal(text: str, below: bool = False) -> Segments:
    """The pattern that matches one text, or with `below` also whatever follows it after a slash."""
    return (*text.split("/"), _GLOBSTAR) if below else tuple(text.split("/"))


def _collapsed(segments: Iterable[_Segment | None]) -> Segments:
    """Several `**` in a row are one."""
    found: list[_Segment | None] = []
    for segment in segments:
        if segment is not _GLOBSTAR or not found or found[-1] is not _GLOBSTAR:
            found.append(segment)
    return tuple(found)


def _segment(tokens: globs.Plain) -> _Segment | None:
    if globs.is_globstar(tokens):
        return _GLOBSTAR
    return "".join(tokens) if globs.is_text(tokens) else tokens


def _segments_meet(one: Segments, other: Segments, work: _Work) -> bool:
    """Walk through both at once: `row` says from which places of `other` the rest of `one` can go on."""
    row = {0}
    for segment in one:
        row = _skip_globstars(row, other)
        work.spend(len(row))
        if segment is _GLOBSTAR:
            row = set(range(min(row), len(other) + 1))
        else:
            row = {place for start in row for place in _after(segment, start, other, work)}
        if not row:
            return False
    return len(other) in _skip_globstars(row, other)


def _skip_globstars(row: set[int], other: Segments) -> set[int]:
    """A `**` may stand for nothing."""
    found = set(row)
    for place in sorted(row):
        while place < len(other) and other[place] is _GLOBSTAR:
            place += 1
            found.add(place)
    return found


def _after(segment: _Segment, start: int, other: Segments, work: _Work) -> set[int]:
    """The places of `other` after a segment of `one` was matched from `start` on."""
    if start == len(other):
        return set()
    there = other[start]
    if there is _GLOBSTAR:
        return {start}  # which takes one segment more
    return {start + 1} if _segment_meets(segment, there, work) else set()


def _segment_meets(one: _Segment, other: _Segment, work: _Work) -> bool:
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    row = {0}
    for token in one:
        row = _skip_stars(row, other)
        work.spend(1 + len(row))
        if isinstance(token, globs.Star):
            row = set(range(min(row), len(other) + 1))
        else:
            row = {place for start in row for place in _after_token(token, start, other)}
        if not row:
            return False
    return len(other) in _skip_stars(row, other)


def _skip_stars(row: set[int], other: _Segment) -> set[int]:
    found = set(row)
    for place in sorted(row):
        while place < len(other) and isinstance(other[place], globs.Star):
            place += 1
            found.add(place)
    return found


def _after_token(token: str, start: int, other: _Segment) -> set[int]:
    if start == len(other):
        return set()
    there = other[start]
    if isinstance(there, globs.Star):
        return {start}
    return {start + 1} if _share_character(token, there) else set()


def _share_character(one: str, other: str) -> bool:
    if isinstance(one, globs.Wild):
        return isinstance(other, globs.Wild) or re.fullmatch(one, other, re.DOTALL) is not None
    return re.fullmatch(other, one, re.DOTALL) is not None if isinstance(other, globs.Wild) else one == other
