"""Unified diffs: reading them, applying them to texts, making one.

Pure. A hunk fits where all its old lines stand, at the line it names or nearest to it; it is never bent to fit. A patch
applies as a whole or not at all.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from holdfast.errors import Invalid

_HUNK: Final = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_NOWHERE: Final = "/dev/null"


class Hunk(msgspec.Struct, frozen=True):
    """Old lines, what takes their place, and the line (from 0) where they stood. Lines have their line ends."""

    start: int
    old: tuple[str, ...]
    new: tuple[str, ...]


def parse(patch: str) -> dict[str, list[Hunk]]:
    """The hunks of a patch, by file. Raises Invalid with `line`."""
    lines = _lines(patch)
    found: dict[str, list[Hunk]] = {}
    path, at = "", 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ "):
            path = _path(lines[at + 1], at + 2)
            found.setdefault(path, [])
            at += 2
        elif (match := _HUNK.match(line)) is not None:
            if not path:
                raise Invalid(f"line {at + 1}: a hunk before any file", line=at + 1)
            hunk, at = _hunk(lines, at + 1, match)
            found[path].append(hunk)
        else:
            at += 1  # what git and mailers write between files
    if not any(found.values()):
        raise Invalid("the patch changes nothing", hint="it must be a unified diff, as diff -u and git diff write it")
    return found


def apply(text: str, hunks: Sequence[Hunk], path: str) -> str:
    """A text with all hunks applied. Raises Invalid for one that does not fit."""
    lines = _lines(text)
    shift, floor = 0, 0
    for hunk in hunks:
        place = _place(lines, hunk, hunk.start + shift, floor)
        if place is None:
            raise Invalid(
                f"the patch does not fit {path}: the lines at {hunk.start + 1} are not there",
                hint="make it again from what the file says now",
                path=path,
                line=hunk.start + 1,
            )
        lines[place : place + len(hunk.old)] = hunk.new
        shift = place - hunk.start + len(hunk.new) - len(hunk.old)
        floor = place + len(hunk.new)
    return "".join(lines)


def between(before: str, after: str) -> list[Hunk]:
    """What leads from one text to another."""
    old, new = _lines(before), _lines(after)
    hunks = []
    for group in difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(3):
        first, last = group[0], group[-1]
        hunks.append(Hunk(first[1], tuple(old[first[1] : last[2]]), tuple(new[first[3] : last[4]])))
    return hunks


def _place(lines: list[str], hunk: Hunk, wanted: int, floor: int) -> int | None:
    """Where the old lines stand: nearest to where they should."""
    size = len(hunk.old)
    if not size:  # it only adds: there is nothing to look for
        return min(max(wanted, floor), len(lines))
    places = [at for at in range(floor, len(lines) - size + 1) if tuple(lines[at : at + size]) == hunk.old]
    return min(places, key=lambda at: (abs(at - wanted), at), default=None)


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _path(line: str, number: int) -> str:
    name = line[4:].split("\t")[0].rstrip("\r\n").strip()
    if name == _NOWHERE:
        raise Invalid(f"line {number}: a patch may not remove a file", line=number)
    return name[2:] if name.startswith(("a/", "b/")) else name


def _hunk(lines: list[str], at: int, match: re.Match[str]) -> tuple[Hunk, int]:
    begin = at
    old_left, new_left = int(match[2] or 1), int(match[4] or 1)
    start = int(match[1]) - (1 if old_left else 0)
    old: list[str] = []
    new: list[str] = []
    while old_left > 0 or new_left > 0:
        line = lines[at] if at < len(lines) else ""
        mark, content = line[:1], line[1:]
        if mark in ("\n", "\r"):  # an empty line of context, from which an editor cut the space
            mark, content = " ", line
        if mark not in (" ", "-", "+") or not content:
            raise Invalid(f"line {at + 1}: the hunk ends too early", line=at + 1)
        if mark in (" ", "-"):
            old.append(content)
            old_left -= 1
        if mark in (" ", "+"):
            new.append(content)
            new_left -= 1
        at += 1
        if at < len(lines) and lines[at].startswith("\\"):  # No newline at end of file
            for side, touched in ((old, mark in (" ", "-")), (new, mark in (" ", "+"))):
                if touched:
                    side[-1] = side[-1].rstrip("\r\n")
            at += 1
    if old_left or new_left:
        raise Invalid(f"line {begin}: the hunk has other lines than it says", line=begin)
    return Hunk(max(start, 0), tuple(old), tuple(new)), at
