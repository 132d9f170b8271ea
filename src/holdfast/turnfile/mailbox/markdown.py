"""As much Markdown as the files of a working session need: lines, code fences and comments, and tables.

Pure. Everything carries its span of the text, so that an edit replaces that span and nothing else. A line inside a
code fence or an HTML comment is hidden: it is text, whatever it looks like. A fence or comment that is never closed
hides nothing, so that one slip in a message cannot hide the rest of the file. Called by `mailbox`, `cards`,
`projection` and `worklog`.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

_FENCE: Final = re.compile(r"[ \t]*(`{3,}|~{3,})(.*)")
_RULER: Final = re.compile(r"\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-+:?[ \t]*)*\|?")
_PIPE: Final = re.compile(r"(?<!\\)\|")
_NO_WORD: Final = re.compile(r"[^a-z0-9]+")


class Edit(NamedTuple):
    """A span of the text and its replacement."""

    start: int
    end: int
    new: str


class Line(msgspec.Struct, frozen=True, gc=False):
    """A line: its number from 1, its start, its end without the line break, and the start of the next line."""

    number: int
    start: int
    end: int
    after: int
    text: str
    hidden: bool = False

    @property
    def blank(self) -> bool:
        """Whether it is empty or white space."""
        return not self.text.strip()

    @property
    def rule(self) -> bool:
        """Whether it is a `---` between cards."""
        return not self.hidden and self.text.rstrip() == "---"


class Cell(msgspec.Struct, frozen=True):
    """A cell: its span without surrounding white space, and its text with `\\|` unescaped."""

    start: int
    end: int
    text: str


class Row(msgspec.Struct, frozen=True, gc=False):
    """A row of a table, which is one line of the file, and the texts of its cells."""

    line: Line
    values: tuple[str, ...]

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Its cells with their spans, for an edit."""
        return cells_of(self.line)


def moved(line: Line, by: int, lines: int) -> Line:
    """A line of a part of a text as a line of the whole."""
    return Line(line.number + lines, line.start + by, line.end + by, line.after + by, line.text, line.hidden)


class Table(msgspec.Struct, frozen=True):
    """A table: the keys of its columns (`key_of` their heads), its ruler and its rows."""

    columns: tuple[str, ...]
    ruler: Line
    rows: tuple[Row, ...]

    @property
    def end(self) -> int:
        """Where the line after the table starts."""
        return self.rows[-1].line.after if self.rows else self.ruler.after

    def moved(self, by: int, lines: int) -> Table:
        """The same table at another place."""
        if not by and not lines:
            return self
        rows = tuple([Row(moved(row.line, by, lines), row.values) for row in self.rows])
        return Table(self.columns, moved(self.ruler, by, lines), rows)

    def cell(self, row: Row, column: str) -> Cell | None:
        """The row's cell in that column, or None."""
        cells = row.cells
        place = self.columns.index(column) if column in self.columns else len(cells)
        return cells[place] if place < len(cells) else None

    def values(self, column: str) -> list[str]:
        """The texts of all cells in that column, empty for a row that lacks it."""
        if column not in self.columns:
            return [""] * len(self.rows)
        place = self.columns.index(column)
        return [row.values[place] if place < len(row.values) else "" for row in self.rows]

    def value(self, row: Row, column: str) -> str:
        """The text of the row's cell in that column, or an empty string."""
        place = self.columns.index(column) if column in self.columns else len(row.values)
        return row.values[place] if place < len(row.values) else ""


@functools.lru_cache(maxsize=512)
def key_of(head: str) -> str:
    """The name of a field or column as a key: `From -> To` is `from_to`."""
    return _NO_WORD.sub("_", head.lower()).strip("_")


def newline_of(text: str) -> str:
    """How the file ends its lines: as it ends its first."""
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"


def apply(text: str, edits: Iterable[Edit]) -> str:
    """Apply edits, which must not overlap; insertions at one position keep their order."""
    parts: list[str] = []
    done = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        if edit.start < done:
            raise ValueError(f"edits overlap at {edit.start}")
        parts += (text[done : edit.start], edit.new)
        done = edit.end
    return "".join((*parts, text[done:]))


class Part(NamedTuple):
    """A part of a text."""

    text: str
    start: int
    stop: int

    @property
    def size(self) -> int:
        """Its characters."""
        return self.stop - self.start


def same_ends(one: Part, other: Part) -> tuple[int, int]:
    """How many characters two parts have in common at their beginnings, and then at their ends."""
    text, start, last = one
    beside, begin, end = other
    most = min(one.size, other.size)
    head = _same(lambda at, size: text[start + at : start + at + size] == beside[begin + at : begin + at + size], most)
    tail = _same(lambda at, size: text[last - at - size : last - at] == beside[end - at - size : end - at], most - head)
    return head, tail


def _same(agree: Callable[[int, int], bool], most: int) -> int:
    """How far two texts agree, at most so far; pieces that fit into a processor's cache are compared faster."""
    at, size = 0, 1 << 15
    while size:
        while at + size <= most and agree(at, size):
            at += size
        size >>= 1
    return at


Spans = Sequence[tuple[int, int]]
"""Parts of a text, in order: where each starts, and where the line after it starts."""


def lines_of(text: str, place: int = 0, number: int = 1) -> list[Line]:
    """The lines of a text that starts at a place of a file, with a line of that number.

    Those inside a fence or comment are marked hidden.
    """
    return lines_between(text, 0, len(text), hidden_spans(text), number, place)


def lines_between(text: str, start: int, stop: int, hidden: Spans, number: int = 1, place: int = 0) -> list[Line]:
    """The lines of a part of a text, whose first line has that number; `hidden` are the hidden parts of the text.

    The text itself starts at that place of its file.
    """
    lines: list[Line] = []
    while start < stop:
        lines.append(line_at(text, start, number, bool(hidden) and is_hidden(hidden, start), place))
        start, number = lines[-1].after - place, number + 1
    return lines


def line_at(text: str, start: int, number: int, hidden: bool = False, place: int = 0) -> Line:
    """The line that starts there, in a text that starts at that place of its file."""
    stop = text.find("\n", start)
    after = len(text) if stop < 0 else stop + 1
    end = after if stop < 0 else stop
    if end > start and text[end - 1] == "\r":
        end -= 1
    return Line(number, place + start, place + end, place + after, text[start:end], hidden)


def is_hidden(spans: Spans, at: int) -> bool:
    """Whether a place lies in one of the spans."""
    place = bisect.bisect_right(spans, at, key=lambda span: span[0]) - 1
    return place >= 0 and at < spans[place][1]


def sections_of(lines: Sequence[Line], mark: str) -> Iterator[Sequence[Line]]:
    """The sections whose headings begin with a mark, such as `## `: each heading and the lines up to the next."""
    heads = [at for at, line in enumerate(lines) if not line.hidden and line.text.startswith(mark)]
    for at, end in itertools.pairwise([*heads, len(lines)]):
        yield lines[at:end]


def marks_in(text: str) -> list[Line]:
    """The lines that may open or close a fence or comment. No other line matters for what is hidden."""
    if not _may_hide(text):
        return []
    starts = {start for mark in (*_OPENING, "-->") for start in _lines_with(text, mark)}
    marks: list[Line] = []
    number, done = 1, 0
    for start in sorted(starts):
        number, done = number + text.count("\n", done, start), start
        line = line_at(text, start, number)
        if "-->" in line.text or line.text.strip().startswith(_OPENING):
            marks.append(line)
    return marks


_OPENING: Final = ("```", "~~~", "<!--")
_MAY_HIDE: Final = [(mark, re.compile(mark)) for mark in _OPENING]  # a pattern without choices is found twice as fast


def _may_hide(text: str) -> bool:
    """Whether a text may have a fence or comment; a text without their first characters is searched fastest."""
    return any(mark[0] in text and pattern.search(text) for mark, pattern in _MAY_HIDE)


def _lines_with(text: str, part: str) -> Iterator[int]:
    """Where the lines start that contain a part; each is searched once."""
    at = text.find(part)
    while at >= 0:
        yield text.rfind("\n", 0, at) + 1
        end = text.find("\n", at)
        at = text.find(part, end) if end >= 0 else -1


def hidden_spans(text: str) -> Spans:
    """The fences and comments of a text, with the lines that open and close them."""
    marks = marks_in(text)
    return [(marks[first].start, marks[last].after) for first, last in _pairs(marks)]


def _pairs(lines: Sequence[Line]) -> Iterator[tuple[int, int]]:
    """The indexes of lines that open and close a fence or comment.

    One pass: a mark once found unclosed is not searched for again.
    """
    unclosed = {"`": 1 << 30, "~": 1 << 30, "<": 1}
    at = 0
    while at < len(lines):
        text = lines[at].text
        last: int | None = None
        if text.startswith("<!--") and unclosed["<"]:
            last = next((n for n in range(at, len(lines)) if "-->" in lines[n].text[4 * (n == at) :]), None)
            unclosed["<"] = 0 if last is None else 1
        elif (mark := _fence(text)) and len(mark) < unclosed[mark[0]]:
            last = next((n for n in range(at + 1, len(lines)) if _closes(lines[n].text, mark)), None)
            if last is None:
                unclosed[mark[0]] = len(mark)
        if last is not None:
            yield at, last
            at = last
        at += 1


def _fence(text: str) -> str:
    """The mark of a line that opens a fence, or an empty string; ``` with later backticks is inline code."""
    fence = _FENCE.fullmatch(text)
    return fence[1] if fence and not (fence[1][0] == "`" and "`" in fence[2]) else ""


def _closes(text: str, mark: str) -> bool:
    text = text.strip()
    return len(text) >= len(mark) and text == mark[0] * len(text)


def unclosed(text: str) -> list[Line]:
    """Lines that open a fence or comment that is never closed."""
    marks = marks_in(text)
    hidden = {n for first, last in _pairs(marks) for n in range(first, last + 1)}
    found = (line for n, line in enumerate(marks) if n not in hidden)
    return [line for line in found if line.text.startswith("<!--") or _fence(line.text)]


def table_in(lines: Sequence[Line]) -> Table | None:
    """The first table among the lines: a head, a ruler, and the rows that follow."""
    for place in range(len(lines) - 1):
        head, ruler = lines[place], lines[place + 1]
        if head.hidden or ruler.hidden or not _is_row(head) or not _is_row(ruler):
            continue
        if not _RULER.fullmatch(ruler.text.strip()):
            continue
        rows = tuple(_rows(lines[place + 2 :]))
        return Table(tuple(key_of(cell.text) for cell in cells_of(head)), ruler, rows)
    return None


def _rows(lines: Iterable[Line]) -> Iterator[Row]:
    """The rows with which some lines begin."""
    for line in lines:
        if line.hidden or not _is_row(line):
            return
        yield Row(line, values_of(line.text))


def _is_row(line: Line) -> bool:
    return line.text.startswith("|") or line.text.lstrip().startswith("|")


def spliced_table(before: str, table: Table, after: str, start: int) -> Table | None:
    """The table of a part of which only some rows differ from that of another part; None if more may differ.

    Both parts start there in their files.
    """
    head, tail = same_ends(Part(before, 0, len(before)), Part(after, 0, len(after)))
    by, rows = len(after) - len(before), table.rows
    first = bisect.bisect_right(rows, start + head, key=lambda row: row.line.after)
    last = bisect.bisect_right(rows, start + len(before) - tail, key=lambda row: row.line.start)
    if table.ruler.after > start + head or last == len(rows) or _may_hide(before) or _may_hide(after):
        return None
    above = rows[first - 1].line if first else table.ruler
    there = (above.after - start, rows[last].line.start + by - start)
    lines = lines_between(after, *there, (), above.number + 1, start)
    new = [*_rows(lines)]
    if len(new) < len(lines):
        return None
    below = above.number + 1 + len(lines) - rows[last].line.number
    moved_on = [Row(moved(row.line, by, below), row.values) for row in rows[last:]]
    return Table(table.columns, table.ruler, (*rows[:first], *new, *moved_on))


def values_of(text: str) -> tuple[str, ...]:
    """The texts of a row's cells."""
    if "\\" in text:
        return tuple(cell.text for cell in cells_of(Line(1, 0, len(text), len(text), text)))
    parts = text.split("|")
    if len(parts) > 1 and not parts[-1].strip():  # the last pipe is optional
        parts.pop()
    return tuple(map(str.strip, parts[1:]))


def cells_of(line: Line) -> tuple[Cell, ...]:
    """The cells of a row."""
    pipes = [pipe.start() for pipe in _PIPE.finditer(line.text)]
    if pipes and line.text[pipes[-1] + 1 :].strip():
        pipes.append(len(line.text))  # the last pipe is optional
    cells = []
    for left, right in itertools.pairwise(pipes):
        inside = line.text[left + 1 : right]
        start = line.start + left + 1 + len(inside) - len(inside.lstrip())
        text = inside.strip()
        # An empty cell spans all between its pipes, so that a new value does not touch them.
        span = (start, start + len(text)) if text else (line.start + left + 1, line.start + right)
        cells.append(Cell(*span, text.replace("\\|", "|")))
    return tuple(cells)


def escape(value: str) -> str:
    """A value escaped for a cell."""
    return value.replace("|", "\\|")


def row_text(values: Iterable[str]) -> str:
    """A row with these values, without its newline."""
    return "| " + " | ".join(escape(value) for value in values) + " |"


def fill(cell: Cell, value: str) -> Edit:
    """The edit that sets a cell."""
    return Edit(cell.start, cell.end, escape(value) if cell.text else f" {escape(value)} ")
