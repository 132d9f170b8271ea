"""YAML text as a tree in which each value knows its span of the text.

Pure. Accepts the part of YAML that a turn file may use: one document of mappings with text keys, lists, and scalars of
the YAML 1.2 core schema (`yes` and dates are text). Refused, each with its line: tabs, anchors, aliases, tags,
duplicate keys, a second document, more than 1 MiB, more than 16 levels, line breaks other than LF and CRLF. Guarantee:
`parse` returns or raises Invalid with `line`, for any text. ruamel.yaml tokenizes, and is loaded when first needed.
Called by `ledger` and `yaml_edit`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, Literal, NoReturn

import msgspec

from holdfast.errors import Invalid

MAX_BYTES: Final = 1024 * 1024
MAX_DEPTH: Final = 16
BOM: Final = "\ufeff"

Kind = Literal["scalar", "map", "list"]
Path = tuple[str | int, ...]

_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INT: Final = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_STRANGE_BREAK: Final = re.compile("\r(?!\n)|[\x85\u2028\u2029]")


class Node(msgspec.Struct, eq=False):
    """A value and its span of the text; a block ends where its last value ends."""

    kind: Kind
    start: int
    end: int
    line: int
    value: Any = None  # of a scalar: None, bool, int, float or str
    style: str | None = None  # of a scalar: None for plain, or ' " | >
    flow: bool = False  # of a map or list: in brackets
    entries: dict[str, Entry] = {}  # of a map
    items: list[Node] = []  # of a list

    @property
    def is_null(self) -> bool:
        """Whether it is a scalar without a value."""
        return self.kind == "scalar" and self.value is None

    def plain(self) -> Any:
        """The value as plain Python data."""
        if self.kind == "map":
            return {key: entry.value.plain() for key, entry in self.entries.items()}
        return [item.plain() for item in self.items] if self.kind == "list" else self.value

    def find(self, path: Path) -> Node | None:
        """The node at a path, or None."""
        node = self
        for step in path:
            if isinstance(step, str) and node.kind == "map" and step in node.entries:
                node = node.entries[step].value
            elif isinstance(step, int) and node.kind == "list" and -len(node.items) <= step < len(node.items):
                node = node.items[step]
            else:
                return None
        return node

    def depth(self) -> int:
        """How many levels of maps and lists are nested."""
        inner = self.items if self.kind == "list" else [entry.value for entry in self.entries.values()]
        return 0 if self.kind == "scalar" else 1 + max((node.depth() for node in inner), default=0)


class Entry(msgspec.Struct, eq=False):
    """A key and its value in a map."""

    key: Node
    value: Node


def refuse(line: int, message: str) -> NoReturn:
    """Raise Invalid for a line of the file."""
    raise _invalid(line, message)


def _invalid(line: int, message: str) -> Invalid:
    return Invalid(f"line {line}: {message}", line=line)


@lru_cache(maxsize=4)  # one write parses the same text several times; trees are never changed
def parse(text: str) -> Node:
    """Parse a text. Raises Invalid with `line`."""
    _check_text(text)
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    skipped = len(BOM) if text.startswith(BOM) else 0
    try:
        return _Reader(text, skipped).document(YAML(typ="safe", pure=True).parse(text[skipped:]))
    except Invalid:
        raise
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        words = ", ".join(part for part in (error.context, error.problem) if part)
        if "flow" in words and "stream end" in words:
            words = "a [ or { is not closed before the end of the file"
        last = len(text.splitlines())
        raise _invalid(min(mark.line + 1, last) if mark else 1, words or "this is not YAML") from error
    except YAMLError as error:  # a character that YAML does not allow
        line = text.count("\n", 0, getattr(error, "position", 0)) + 1
        raise _invalid(line, "YAML does not allow this character; write it as an escape in double quotes") from error
    except Exception as error:  # ruamel leaks internal errors for some texts, such as "\U00110000"
        raise _invalid(1, f"this is not YAML: {error}") from error


def _check_text(text: str) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        refuse(1 + text.count("\n", 0, MAX_BYTES), f"the file has {size} bytes; the limit is {MAX_BYTES}")
    if (tab := text.find("\t")) >= 0:
        refuse(_line_of(text, tab), "tabs are not allowed; indent with spaces, and write \\t in double quotes")
    if strange := _STRANGE_BREAK.search(text):
        refuse(_line_of(text, strange.start()), "a line break that is neither LF nor CRLF")
    if not text.isascii() and (half := re.search("[\ud800-\udfff]", text)):
        refuse(_line_of(text, half.start()), "a lone surrogate")


def _line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


class _Reader:
    """Builds nodes from ruamel's events."""

    def __init__(self, text: str, skipped: int) -> None:
        self._text = text
        self._skipped = skipped

    def document(self, events: Iterator[Any]) -> Node:
        from ruamel.yaml.events import DocumentStartEvent, StreamEndEvent

        next(events)  # the start of the stream
        if isinstance(next(events), StreamEndEvent):
            return Node("scalar", len(self._text), len(self._text), 1)
        root = self._node(next(events), events, 1)
        next(events)  # the end of the document
        if isinstance(following := next(events), DocumentStartEvent):
            refuse(_line(following), "a second document begins here; a turn file has one")
        return root

    def _node(self, event: Any, events: Iterator[Any], depth: int) -> Node:
        from ruamel.yaml.events import AliasEvent, CollectionEndEvent, MappingStartEvent, ScalarEvent

        line = _line(event)
        if isinstance(event, AliasEvent) or event.anchor is not None:
            refuse(line, "anchors and aliases (&, *) are not allowed; quote a text that begins with one")
        if event.tag is not None:
            refuse(line, "tags (!) are not allowed; quote a text that begins with !")
        if depth > MAX_DEPTH:
            refuse(line, f"more than {MAX_DEPTH} levels are nested here")
        start, end = event.start_mark.index + self._skipped, event.end_mark.index + self._skipped
        if isinstance(event, ScalarEvent):
            return Node("scalar", start, end, line, value=_scalar(event, line), style=event.style)
        kind: Kind = "map" if isinstance(event, MappingStartEvent) else "list"
        node = Node(kind, start, end, line, flow=bool(event.flow_style), entries={}, items=[])
        while not isinstance(following := next(events), CollectionEndEvent):
            child = self._node(following, events, depth + 1)
            if kind == "map":
                child = self._entry(node, child, self._node(next(events), events, depth + 1))
            else:
                node.items.append(child)
            node.end = child.end
        if node.flow:
            node.end = following.end_mark.index + self._skipped
        return node

    def _entry(self, node: Node, key: Node, value: Node) -> Node:
        """Add an entry to a map; returns its value."""
        if not isinstance(key.value, str):
            refuse(key.line, "a key must be text; quote a number, true, false or null")
        if key.value in node.entries:
            first = node.entries[key.value].key.line
            refuse(key.line, f"the key {key.value!r} is a duplicate; the first is in line {first}")
        if value.kind == "scalar" and value.start == value.end:  # no value: its place is after the colon
            colon = self._text.find(":", key.end)
            value.start = value.end = colon + 1 if colon >= 0 else key.end
        value.line = key.line if value.kind == "scalar" else value.line
        node.entries[key.value] = Entry(key, value)
        return value


def _scalar(event: Any, line: int) -> str | int | float | bool | None:
    value: str = event.value
    if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
        refuse(line, "a text with a lone surrogate")
    if event.style is not None:
        return value
    if value in _WORDS:
        return _WORDS[value]
    if _INT.fullmatch(value):
        return int(value)
    return float(value) if _FLOAT.fullmatch(value) else value


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1
