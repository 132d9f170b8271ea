"""Our hooks and our MCP server in JSON files of other programs, edited as text so that no other byte changes.

`check` is strict (comments, trailing commas and NaN are rejected), so the scanner need not be: it reads one container
at a time and never recurses.

An entry is ours by its command: a line of `line` that has `--hook CLIENT`. Containers that we make (the list,
`hooks`, the file) have a space after their bracket, and an entry put into an existing empty container has none: so
`drop(put(text))` is `text` for any JSON object, whatever its formatting, and `put(put(text))` is `put(text)`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from holdfast.errors import Invalid
from holdfast.faces.cli.setup.files import newline_of
from holdfast.faces.cli.setup.line import words_of

SPACE: Final = " \t\r\n"
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')
_SCALAR: Final = re.compile(r"[^ \t\r\n,\]}]+")


_Chain = tuple[tuple[int, int], ...]  # from the root down: the start of a container, the index of its item


@dataclass(frozen=True)
class Item:
    """An element of an array or a member of an object: its span, where its value starts, its key."""

    start: int
    value: int
    end: int
    key: str | None


def check(text: str) -> int:
    """Return where the text's object starts. Raises Invalid for anything but a JSON object."""
    bare = text.removeprefix("\ufeff")
    try:
        found = json.loads(bare, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        comments = re.search(r"^\s*(//|/\*)", bare, re.MULTILINE)
        hint = "remove the comments: JSON has none" if comments else "correct it by hand; {} is enough"
        raise Invalid(f"it is not JSON: {error}", hint=hint) from error
    if not isinstance(found, dict):
        raise Invalid("it is JSON, but not an object", hint="correct it by hand; {} is enough")
    return text.index("{")


def items(text: str, at: int) -> list[Item]:
    """Return the items of the container that starts at `at`, in order; a scalar has none."""
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
    """Add an item to the end of a container; into an empty one without a space, unlike one that we make."""
    there = items(text, at)
    if not there:
        return text[: at + 1] + new + text[at + 1 :]
    before = there[-2].end if len(there) > 1 else at
    lead = text[before : there[-1].start].lstrip("{[")
    lead = lead[lead.find(",") + 1 :] or " "
    return text[: there[-1].end] + "," + lead + new + text[there[-1].end :]


def take_out(text: str, there: Sequence[Item], index: int) -> str:
    """Remove an item with the separator to its neighbour."""
    item = there[index]
    if index > 0:
        return text[: there[index - 1].end] + text[item.end :]
    return text[: item.start] + text[there[1].start if len(there) > 1 else item.end :]


def indent_at(text: str, at: int) -> str:
    """Return the indentation of the line at a position."""
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
    raise ValueError(f"{name} is not a number in JSON")


@dataclass(frozen=True)
class Entries:
    """The hooks of a client: our one entry for each event."""

    client: str
    wanted: Mapping[str, Any]
    needs: Mapping[str, Any] = field(default_factory=dict)  # what else the client expects in the file

    def put(self, old: str | None) -> str:
        """Return the text with our current entries; None is a missing file."""
        if old is None:
            return self._whole()
        self._check(old)
        text: str | None = old
        while text is not None and (stale := self._stale(text)):
            text = self._remove(text, stale)
        if text is None:
            return self._whole()
        for found in reversed(self._found(text)):
            if found.value != self.wanted[found.event]:
                text = text[: found.start] + json.dumps(self.wanted[found.event]) + text[found.end :]
        return self._add(text)

    def drop(self, old: str) -> str | None:
        """Return the text without our entries; None if we made the file and nothing was added."""
        check(old)
        text: str | None = old
        while text is not None and (found := self._found(text)):
            text = self._remove(text, found[0])
        return text

    def _check(self, text: str) -> None:
        """Raise Invalid for a file whose structure has no place for our entries."""
        root = check(text)
        hint = "correct it by hand: see the client's documentation about hooks"
        for key, value in self.needs.items():
            if [value_of(text, item) for item in members(text, root, key)] != [value]:
                raise Invalid(f"it lacks {json.dumps(key)}: {json.dumps(value)}", hint=hint)
        for hooks in (found := members(text, root, "hooks")):
            if len(found) > 1 or text[hooks.value] != "{":
                raise Invalid('its "hooks" is not one object', hint=hint)
            for event in self.wanted:
                lists = members(text, hooks.value, event)
                if len(lists) > 1 or any(text[item.value] != "[" for item in lists):
                    raise Invalid(f"its hooks for {event} are not one list", hint=hint)

    def _add(self, text: str) -> str:
        """Add every missing entry."""
        root = check(text)
        if not members(text, root, "hooks"):
            layout = _Layout.of(text, root)
            return insert(text, root, f'"hooks": {layout.made("{}", [self._list(e, layout) for e in self.wanted])}')
        there = {found.event for found in self._found(text)}
        for event in self.wanted:
            hooks = members(text, root, "hooks")[0].value
            if not (lists := members(text, hooks, event)):
                text = insert(text, hooks, self._list(event, _Layout.of(text, root, hooks), depth=0))
            elif event not in there:
                text = insert(text, lists[0].value, json.dumps(self.wanted[event]))
        return text

    def _list(self, event: str, layout: _Layout, depth: int = 1) -> str:
        return f"{json.dumps(event)}: {layout.made('[]', [json.dumps(self.wanted[event])], depth)}"

    def _whole(self) -> str:
        layout = _Layout("  ", "\n", "")
        hooks = f'"hooks": {layout.made("{}", [self._list(e, layout, 2) for e in self.wanted], 1)}'
        others = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in self.needs.items()]
        return layout.made("{}", [hooks, *others]) + "\n"  # hooks before the others: see _remove

    def _found(self, text: str) -> list[_Found]:
        """Return all our entries, in the order of the text."""
        found = []
        root = check(text)
        for i, hooks in enumerate(items(text, root)):
            if hooks.key != "hooks" or text[hooks.value] != "{":
                continue
            for j, event in enumerate(items(text, hooks.value)):
                if text[event.value] != "[":
                    continue
                above = ((root, i), (hooks.value, j))
                for k, entry in enumerate(items(text, event.value)):
                    chain = (*above, (event.value, k))
                    inner = members(text, entry.value, "hooks")
                    nested = items(text, inner[0].value) if inner else []
                    ours = [n for n, item in enumerate(nested) if self._is_ours(value_of(text, item))]
                    value = value_of(text, entry)
                    if self._is_ours(value) or (ours and len(ours) == len(nested)):
                        found.append(_Found(str(event.key), value, entry.value, entry.end, chain))
                    else:  # ours among others in a group: it was moved there
                        found += [
                            _Found("", None, nested[n].value, nested[n].end, (*chain, (inner[0].value, n)))
                            for n in ours
                        ]
        return found

    def _is_ours(self, value: Any) -> bool:
        command = value.get("command") if isinstance(value, dict) else None
        words = words_of(command) if isinstance(command, str) else None
        return words is not None and bool(re.search(rf"--hook {self.client}\b", words))

    def _stale(self, text: str) -> _Found | None:
        """One of our entries that should not be there: for another event, a duplicate, or in a group of others."""
        seen: set[str] = set()
        for found in self._found(text):
            if found.event not in self.wanted or found.event in seen:
                return found
            seen.add(found.event)
        return None

    def _remove(self, text: str, found: _Found) -> str | None:
        """Remove one entry; None if the file is one that we made."""
        return _take_out(text, found.chain, self.needs)


def _take_out(text: str, chain: _Chain, needs: Mapping[str, Any]) -> str | None:
    """Remove an item with the containers that we made for it; None if the file is one of them."""
    for level, (at, index) in reversed(list(enumerate(chain))):
        there = items(text, at)
        made = index == 0 and text[at + 1] in SPACE
        others = {item.key: value_of(text, item) for item in there if item is not there[index]}
        if level == 0 and made and others.items() <= needs.items():
            return None
        if len(there) > 1 or not made:
            return take_out(text, there, index)
    raise AssertionError("the root is taken out or not made")


_SERVERS: Final = "mcpServers"
_NAME: Final = "holdfast"


@dataclass(frozen=True)
class McpServer:
    """Our server in a client's JSON file of MCP servers. One of this name that somebody else wrote is left alone."""

    wanted: Mapping[str, Any]

    def put(self, old: str | None) -> str:
        """Return the text with our server; None is a missing file."""
        entry = f"{json.dumps(_NAME)}: {json.dumps(self.wanted)}"
        if old is None:
            layout = _Layout("  ", "\n", "")
            return layout.made("{}", [f'"{_SERVERS}": {layout.made("{}", [entry], 1)}']) + "\n"
        root = check(old)
        servers = members(old, root, _SERVERS)
        if not servers:
            layout = _Layout.of(old, root)
            return insert(old, root, f'"{_SERVERS}": {layout.made("{}", [entry])}')
        if len(servers) > 1 or old[servers[0].value] != "{":
            raise Invalid(f'its "{_SERVERS}" is not one object', hint="correct it by hand")
        there = members(old, servers[0].value, _NAME)
        if not there:
            return insert(old, servers[0].value, entry)
        if self._is_ours(value_of(old, there[0])) and value_of(old, there[0]) != self.wanted:
            return old[: there[0].value] + json.dumps(self.wanted) + old[there[0].end :]
        return old

    def drop(self, old: str) -> str | None:
        """Return the text without our server; None if we made the file and nothing was added."""
        root = check(old)
        for i, servers in enumerate(items(old, root)):
            if servers.key == _SERVERS and old[servers.value] == "{":
                for j, each in enumerate(items(old, servers.value)):
                    if each.key == _NAME and self._is_ours(value_of(old, each)):
                        return _take_out(old, ((root, i), (servers.value, j)), {})
        return old

    def _is_ours(self, value: Any) -> bool:
        given = value.get("args") if isinstance(value, dict) else None
        return isinstance(given, list) and given[2:] == self.wanted["args"][2:]


@dataclass(frozen=True)
class _Found:
    event: str
    value: Any
    start: int
    end: int
    chain: _Chain


@dataclass(frozen=True)
class _Layout:
    """How a file is indented, so that our entries match it."""

    unit: str
    newline: str  # empty: everything is on one line
    pad: str

    @classmethod
    def of(cls, text: str, root: int, at: int | None = None) -> _Layout:
        first = items(text, root)
        unit = indent_at(text, first[0].start) if first else ""
        newline = newline_of(text) if "\n" in text[root:].rstrip(SPACE) else ""
        there = items(text, root if at is None else at)
        return cls(unit or "  ", newline, indent_at(text, there[-1].start if there else root if at is None else at))

    def made(self, brackets: str, inside: list[str], depth: int = 0) -> str:
        """A container that we make, with a space after its bracket."""
        if not self.newline:
            return f"{brackets[0]} {', '.join(inside)} {brackets[1]}"
        outer = self.newline + self.pad + self.unit * depth
        inner = outer + self.unit
        return brackets[0] + inner + f",{inner}".join(inside) + outer + brackets[1]
