"""YAML as plain values with their lines.

Only the part of YAML that a settings file needs: one document of mappings with text keys, lists, and plain scalars of
the YAML 1.2 core schema (`yes` and dates are text). Anchors, aliases and tags are rejected: no settings file needs
them, and without them no text can grow while it is read. So are duplicate keys, more than 1 MiB, and nesting deeper
than 16. Guarantee: `parse` returns, or raises Unreadable with a line, for any text. Called by the readers of the
routing rules and the configuration. ruamel.yaml is imported when first needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from holdfast.errors import InvalidName
from holdfast.kernel.validate import check_name
from holdfast.types.tasks import Problem

MAX_BYTES: Final = 1024 * 1024
MAX_DEPTH: Final = 16

_WORDS: Final = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INT: Final = r"[-+]?[0-9]{1,18}"
_FLOAT: Final = r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"


class Node(msgspec.Struct, frozen=True):
    """A value and its line: for a value in a mapping, the line of its key.

    It is None, a bool, int, float or str, a list of nodes, or a dict of them.
    """

    value: Any
    line: int

    def __iter__(self) -> Iterator[Any]:
        return iter((self.value, self.line))


class Unreadable(Exception):
    """The text is not YAML, or uses a part of it that is not supported."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


class Findings:
    """The problems found in one file."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._problems: list[Problem] = []
        self.errors = 0  # number of errors so far

    def error(self, line: int, message: str) -> None:
        """Note a problem that rejects the part it is in."""
        self.errors += 1
        self._problems.append(Problem(self._file, line, "error", message))

    def warn(self, line: int, message: str) -> None:
        """Note a problem that changes nothing."""
        self._problems.append(Problem(self._file, line, "warning", message))

    def in_order(self) -> list[Problem]:
        """Return all problems, by line."""
        return sorted(self._problems, key=lambda problem: problem.line)


def parse(text: str) -> Node:
    """Return the one document of a text; None for an empty text. Raises Unreadable."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        raise Unreadable(1, f"the file has {size} bytes; the maximum is {MAX_BYTES}")
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError
    from ruamel.yaml.reader import ReaderError

    events = YAML(typ="safe", pure=True).parse(text)
    try:
        return _document(events)
    except Unreadable:
        raise
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        words = ", ".join(part for part in (error.context, error.problem) if part)
        if "flow" in words and "stream end" in words:
            words = "a [ or { is not closed before the end of the file"
        last = len(text.splitlines())
        raise Unreadable(min(mark.line + 1, last) if mark else 1, words or "this is not YAML") from error
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise Unreadable(line, "a character that YAML does not allow; write it as an escape in quotes") from error
    except Exception as error:  # ruamel raises internal errors for some texts, such as "\U00110000"
        raise Unreadable(1, f"this is not YAML: {error}") from error


def close_to(name: str, known: Iterable[str]) -> str:
    """Return "did you mean ...?" for an unknown name, to append to a message; empty if no known name is close."""
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), n=1, cutoff=0.75)
    return f"; did you mean {near[0]!r}?" if near else ""


def show(value: object) -> str:
    """Return a value as it would be written, shortened for a message."""
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    if value is None or isinstance(value, bool):
        return {None: "nothing", True: "true", False: "false"}[value]
    words = repr(value)
    return words if len(words) <= 60 else f"{words[:57]}..."


def read_name(found: Findings, what: str, node: Node) -> str | None:
    """Return a text that can be a name; for anything else note an error and return None."""
    if not isinstance(node.value, str):
        found.error(node.line, f"{what} must be text, not {show(node.value)}{quote(node.value)}")
        return None
    try:
        check_name(node.value, what)
    except InvalidName as error:
        found.error(node.line, error.message)
        return None
    if node.value != node.value.strip():
        found.error(node.line, f"{what} {show(node.value)} begins or ends with a space")
        return None
    return node.value


def read_flag(found: Findings, what: str, node: Node) -> bool | None:
    """Return a bool; for anything else note an error and return None."""
    if isinstance(node.value, bool):
        return node.value
    found.error(node.line, f"{what} must be true or false, not {show(node.value)}")
    return None


def quote(value: object) -> str:
    """Return the advice for a value that YAML does not read as text."""
    return "; put it in quotes" if isinstance(value, bool | int | float) else ""


# --- from events to nodes --------------------------------------------------------------------------------------------


def _document(events: Iterator[Any]) -> Node:
    from ruamel.yaml.events import DocumentStartEvent, StreamEndEvent

    next(events)  # the start of the stream
    if isinstance(next(events), StreamEndEvent):
        return Node(None, 1)
    root = _node(next(events), events, 1)
    next(events)  # the end of the document
    following = next(events)
    if isinstance(following, DocumentStartEvent):
        raise Unreadable(_line(following), "a second document starts here; only one is allowed")
    return root


def _node(event: Any, events: Iterator[Any], depth: int) -> Node:
    from ruamel.yaml.events import AliasEvent, MappingStartEvent, ScalarEvent, SequenceEndEvent

    line = _line(event)
    if isinstance(event, AliasEvent) or event.anchor is not None:
        raise Unreadable(line, "anchors and aliases (&, *) are not supported; put a text that starts so in quotes")
    if event.tag is not None:
        raise Unreadable(line, "tags (!) are not supported; put a text that starts so in quotes")
    if depth > MAX_DEPTH:
        raise Unreadable(line, f"nested more than {MAX_DEPTH} deep")
    if isinstance(event, ScalarEvent):
        return Node(_scalar(event, line), line)
    if isinstance(event, MappingStartEvent):
        return Node(_mapping(events, depth), line)
    items = []
    while not isinstance(following := next(events), SequenceEndEvent):
        items.append(_node(following, events, depth + 1))
    return Node(items, line)


def _mapping(events: Iterator[Any], depth: int) -> dict[str, Node]:
    from ruamel.yaml.events import MappingEndEvent

    entries: dict[str, Node] = {}
    while not isinstance(following := next(events), MappingEndEvent):
        key, line = _node(following, events, depth + 1)
        if not isinstance(key, str):
            raise Unreadable(line, f"a key must be text, not {show(key)}{quote(key)}")
        if key in entries:
            raise Unreadable(line, f"duplicate key {show(key)}; the first is in line {entries[key].line}")
        value = _node(next(events), events, depth + 1).value
        entries[key] = Node(value, line)
    return entries


def _scalar(event: Any, line: int) -> str | int | float | bool | None:
    value: str = event.value
    if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
        raise Unreadable(line, "the text has a lone surrogate")
    if event.style is not None:
        return value
    if value in _WORDS:
        return _WORDS[value]
    if re.fullmatch(_INT, value):
        return int(value)
    return float(value) if re.fullmatch(_FLOAT, value) else value


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1
