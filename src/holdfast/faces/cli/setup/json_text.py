"""JSON as text: where the values are, so that one can be put in or taken out and no other byte changes.

`check` is strict first (comments, trailing commas, NaN are refused); after that the scanner need not be. It looks at
one container at a time and never recurses. Called by `entries.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from holdfast.errors import Invalid

SPACE: Final = " \t\r\n"
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')
_SCALAR: Final = re.compile(r"[^ \t\r\n,\]}]+")


@dataclass(frozen=True)
class Item:
    """An element of an array or a member of an object: its span, where its value starts, its key."""

    start: int
    value: int
    end: int
    key: str | None


def check(text: str) -> int:
    """Where the object starts that the text is; refuses what is not JSON, and JSON that is no object."""
    bare = text.removeprefix("\ufeff")
    try:
        found = json.loads(bare, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        comments = re.search(r"^\s*(//|/\*)", bare, re.MULTILINE)
        hint = "take the comments out: they are not JSON" if comments else "put it right by hand; {} is the least"
        raise Invalid(f"it is not JSON: {error}", hint=hint) from error
    if not isinstance(found, dict):
        raise Invalid("it is JSON, but no object", hint="put it right by hand; {} is the least")
    return text.index("{")


def items(text: str, at: int) -> list[Item]:
    """What is in the container that starts at `at`, in order; a scalar has nothing in it."""
    found: list[Item] = []
    if text[at] not in "{[":
        return found
    pos = _past_space(text, at + 1)
    while text[pos] not in "}]":
        start = value = pos
        key = None
        if text[at] == "{":
            colon = _past_space(text, _past_value(text, start))
            key = json.loads(text[start : _past_value(text, start)])
            value = _past_space(text, colon + 1)
        end = _past_value(text, value)
        found.append(Item(start, value, end, key))
        pos = _past_space(text, end)
        if text[pos] == ",":
            pos = _past_space(text, pos + 1)
    return found


def members(text: str, at: int, key: str) -> list[Item]:
    """The members of an object that have this key, however it is spelled."""
    return [item for item in items(text, at) if item.key == key]


def value_of(text: str, item: Item) -> Any:
    """The value of an item."""
    return json.loads(text[item.value : item.end])


def insert(text: str, at: int, new: str) -> str:
    """Put an item last into a container; into an empty one without a space, which tells it from one that we made."""
    there = items(text, at)
    if not there:
        return text[: at + 1] + new + text[at + 1 :]
    before = there[-2].end if len(there) > 1 else at
    lead = text[before : there[-1].start].lstrip("{[")
    lead = lead[lead.find(",") + 1 :] or " "
    return text[: there[-1].end] + "," + lead + new + text[there[-1].end :]


def take_out(text: str, there: Sequence[Item], index: int) -> str:
    """Take an item out with what separates it from its neighbour."""
    item = there[index]
    if index > 0:
        return text[: there[index - 1].end] + text[item.end :]
    return text[: item.start] + text[there[1].start if len(there) > 1 else item.end :]


def indent_at(text: str, at: int) -> str:
    """What the line of a place is indented with."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _past_space(text: str, pos: int) -> int:
    while text[pos] in SPACE:
        pos += 1
    return pos


def _past_value(text: str, pos: int) -> int:
    if text[pos] not in "{[":
        match = (_STRING if text[pos] == '"' else _SCALAR).match(text, pos)
        assert match, "checked before"
        return match.end()
    depth = 0
    for token in _TOKEN.finditer(text, pos):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(token[0], 0)
        if depth == 0:
            return token.end()
    raise AssertionError("checked before")


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
