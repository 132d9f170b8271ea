"""Changes of YAML text that leave every other byte as it was.

Pure. A change sets, inserts or removes one value by replacing the span of text that the value takes, so comments,
order, quoting and line ends elsewhere stay. Guarantee: the result, parsed again, is exactly the old tree with that
change; a layout for which this fails is refused as Invalid, never guessed. Decision 0042 says why ruamel's round trip
does not do. Called by `ledger`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from holdfast.errors import Invalid
from holdfast.turnfile.ledger.yaml_tree import Entry, Node, Path, parse, refuse

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
# Some YAML parsers do not read these words as text.
_TAKEN: Final = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n"))
_STEP: Final = 2


class Put(msgspec.Struct, frozen=True):
    """Set the value at a path; missing keys and maps on the way are added."""

    path: Path
    value: Any


class Remove(msgspec.Struct, frozen=True):
    """Remove the entry at a path; a map or list that becomes empty stays, as {} or []."""

    path: Path


class Insert(msgspec.Struct, frozen=True):
    """Insert a value into a list, as its first or last item."""

    path: Path
    value: Any
    first: bool = True


Change = Put | Remove | Insert


def apply(text: str, changes: Sequence[Change], finish: Callable[[str], str] | None = None) -> str:
    """Apply the changes in order. Raises Invalid if the layout does not allow one.

    `finish` may change comments of the result before it is parsed again.
    """
    tree = parse(text)
    waiting = list(changes)
    while waiting:
        together = _apart(tree, waiting)
        expected = tree.plain()
        spans = []
        for change in waiting[:together]:
            expected = _meant(expected, change)
            spans += _Edit(text, tree).spans(change)
        for start, end, new in sorted(spans, key=lambda span: span[:2], reverse=True):
            text = text[:start] + new + text[end:]
        if finish is not None and together == len(waiting):
            text = finish(text)
        try:
            tree = parse(text)
        except Invalid as error:
            raise _unable(waiting[0], error.line) from error
        if tree.plain() != expected:
            raise _unable(waiting[0], 1)
        del waiting[:together]
    return text


def _apart(tree: Node, changes: Sequence[Change]) -> int:
    """How many changes, from the first, are in different sections, so that one parse serves them all."""
    seen: set[str | int] = set()
    for change in changes:
        if change.path[0] in seen or change.path[0] not in tree.entries:
            break
        seen.add(change.path[0])
    return max(1, len(seen))


def _unable(change: Change, line: int) -> Invalid:
    words = ".".join(str(step) for step in change.path)
    hint = "write it as an indented block with one key per line"
    return Invalid(f"line {line}: {words} has a layout that cannot be changed safely", hint=hint, line=line)


def _meant(plain: Any, change: Change) -> Any:
    """The value of the whole document after the change."""
    parent = plain
    for step in change.path[:-1]:
        if isinstance(parent, dict) and parent.get(str(step)) is None:
            parent[str(step)] = {}
        parent = parent[step]
    last: Any = change.path[-1]
    if isinstance(change, Put):
        parent[last] = change.value
    elif isinstance(change, Remove):
        del parent[last]
    else:
        items = parent.get(last) or []
        parent[last] = [change.value, *items] if change.first else [*items, change.value]
    return plain


class _Edit:
    """Finds the spans to replace for one change of one text."""

    def __init__(self, text: str, tree: Node) -> None:
        self._text = text
        self._tree = tree
        self._eol = "\r\n" if "\r\n" in text else "\n"

    def spans(self, change: Change) -> list[tuple[int, int, str]]:
        if isinstance(change, Remove):
            return self._remove(change.path)
        node = self._tree.find(change.path)
        if isinstance(change, Insert) and node is not None and node.kind == "list" and node.items:
            return self._insert(node, change.value, change.first)
        value = [change.value] if isinstance(change, Insert) else change.value
        if node is not None:
            return self._replace(change.path, node, value)
        return self._add(change.path, value)

    def _replace(self, path: Path, node: Node, value: Any) -> list[tuple[int, int, str]]:
        if isinstance(value, dict | list) and value:
            return self._fill(path, node, value)
        new = _scalar(value, node.style, node.value) if node.kind == "scalar" else _scalar(value)
        if node.start == node.end:
            return [(node.start, node.end, " " + new)]
        if node.kind == "scalar" and node.style in ("|", ">"):
            new += self._eol
        return [(node.start, node.end, new)]

    def _fill(self, path: Path, node: Node, value: Any) -> list[tuple[int, int, str]]:
        """Replace nothing, {} or [] by a block; a comment on that line stays on it."""
        if node.plain() not in (None, {}, []):
            raise _unable(Put(path, value), node.line)
        if self._in_flow(path) or (node.flow and "\n" in self._text[node.start : node.end]):
            return [(node.start, node.end, _flow(value))]
        indent = self._indent_of(path) + _STEP
        line_end = self._line_end(node.end)
        start = node.start
        while self._text[start - 1] == " ":
            start -= 1
        return [(start, node.end, ""), (line_end, line_end, self._eol + self._block(value, indent))]

    def _add(self, path: Path, value: Any) -> list[tuple[int, int, str]]:
        """Add a key to the deepest existing map of the path."""
        known = len(path) - 1
        while known and ((found := self._tree.find(path[:known])) is None or found.kind != "map"):
            known -= 1
            if found is not None and found.value is not None:
                raise _unable(Put(path, value), found.line)
        for step in reversed(path[known + 1 :]):
            value = {str(step): value}
        parent = self._tree.find(path[: known + 1])
        if parent is not None and parent.kind == "scalar":  # a key without a value
            return self._fill(path[: known + 1], parent, value)
        parent = self._tree.find(path[:known])
        if parent is None or parent.kind != "map":
            refuse(1, "the file is not a mapping")
        new = {str(path[known]): value}
        if not parent.entries:
            return self._fill(path[:known], parent, new)
        last = list(parent.entries.values())[-1]
        if parent.flow:
            return [(last.value.end, last.value.end, ", " + _flow(new)[1:-1])]
        indent = self._column(next(iter(parent.entries.values())).key.start)
        at = self._line_end(self._content_end(last.value.end))
        return [(at, at, self._eol + self._block(new, indent))]

    def _insert(self, node: Node, value: Any, first: bool) -> list[tuple[int, int, str]]:
        if node.flow:
            if first:
                return [(node.items[0].start, node.items[0].start, _flow(value) + ", ")]
            return [(node.items[-1].end, node.items[-1].end, ", " + _flow(value))]
        lines = self._block([value], self._column(node.start))
        if first:
            at = self._line_start(node.start)
            return [(at, at, lines + self._eol)]
        at = self._line_end(self._content_end(node.items[-1].end))
        return [(at, at, self._eol + lines)]

    def _remove(self, path: Path) -> list[tuple[int, int, str]]:
        parent = self._tree.find(path[:-1])
        node = self._tree.find(path)
        if parent is None or node is None:
            raise KeyError(path)
        if parent.kind == "map":
            members = [(entry.key.start, entry.value.end) for entry in parent.entries.values()]
            place = list(parent.entries).index(str(path[-1]))
        else:
            members = [(item.start, item.end) for item in parent.items]
            place = int(path[-1]) % len(members)
        start, end = members[place]
        if parent.flow:
            if place:
                return [(members[place - 1][1], end, "")]
            return [(start, members[1][0] if len(members) > 1 else end, "")]
        first, last = self._line_start(start), self._line_end(self._content_end(end))
        if self._text[last : last + 1]:
            last += len(self._eol) if self._text.startswith(self._eol, last) else 1
        elif first:  # the last line of a file that ends without a line break: keep it so
            first -= len(self._eol) if self._text[:first].endswith(self._eol) else 1
        cut = [(first, last, "")]
        if len(members) == 1 and (entry := self._entry(path[:-1])) is not None:
            after_colon = self._text.index(":", entry.key.end) + 1
            cut.append((after_colon, after_colon, " {}" if parent.kind == "map" else " []"))
        return cut

    def _entry(self, path: Path) -> Entry | None:
        parent = self._tree.find(path[:-1]) if path else None
        return parent.entries.get(str(path[-1])) if parent is not None else None

    def _indent_of(self, path: Path) -> int:
        entry = self._entry(path)
        return self._column(entry.key.start) if entry is not None else -_STEP

    def _in_flow(self, path: Path) -> bool:
        return any((node := self._tree.find(path[:known])) is not None and node.flow for known in range(len(path)))

    def _block(self, value: Any, indent: int) -> str:
        return self._eol.join(_lines(value, indent))

    def _column(self, position: int) -> int:
        return position - self._line_start(position)

    def _line_start(self, position: int) -> int:
        return self._text.rfind("\n", 0, position) + 1

    def _line_end(self, position: int) -> int:
        """Where the line ends, before its line break."""
        end = self._text.find("\n", position)
        if end < 0:
            return len(self._text)
        return end - 1 if self._text[end - 1] == "\r" and end > position else end

    def _content_end(self, end: int) -> int:
        """The end without the line breaks that belong to a block scalar."""
        return len(self._text[:end].rstrip("\r\n "))


# --- writing values --------------------------------------------------------------------------------------------------


def _lines(value: Any, indent: int) -> list[str]:
    """A non-empty map or list as an indented block."""
    pad = " " * indent
    lines: list[str] = []
    pairs = [(f"{_key(key)}:", item) for key, item in value.items()] if isinstance(value, dict) else []
    for head, item in pairs or [("-", item) for item in value]:
        if not isinstance(item, dict | list) or not item:
            lines.append(f"{pad}{head} {_scalar(item)}")
        elif head == "-":
            first, *rest = _lines(item, indent + _STEP)
            lines += [f"{pad}- {first.lstrip(' ')}", *rest]
        else:
            lines += [pad + head, *_lines(item, indent + _STEP)]
    return lines


def dump(values: Sequence[dict[str, Any]]) -> str:
    """A list of mappings as YAML."""
    return "".join(f"{line}\n" for line in _lines(list(values), 0))


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)}: {_flow(item)}" for key, item in value.items()) + "}"
    return "[" + ", ".join(map(_flow, value)) + "]" if isinstance(value, list) else _scalar(value)


def _scalar(value: Any, style: str | None = '"', old: Any = None) -> str:
    """A scalar as text, quoted like the one that it replaces."""
    if isinstance(value, str):
        if style is None and isinstance(old, str) and _is_plain(value):
            return value
        if style == "'" and value.isprintable() and "'" not in value:
            return f"'{value}'"
        return _quoted(value)
    if isinstance(value, bool) or value is None:
        return {None: "null", True: "true", False: "false"}[value]
    return "{}" if isinstance(value, dict) else "[]" if isinstance(value, list) else str(value)


def _key(key: str) -> str:
    return key if _is_plain(key) else _quoted(key)


def _is_plain(value: str) -> bool:
    return _PLAIN.fullmatch(value) is not None and value.lower() not in _TAKEN


def _quoted(value: str) -> str:
    return '"' + "".join(map(_escaped, value)) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if char == "\n":
        return "\\n"
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
