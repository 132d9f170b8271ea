"""The text of one card: its fields, its named blocks, its free text, in any of three dialects, which one card may mix.

    ### MSG-20260612-001       table: rows of Field and Value, then `**Summary**` and `**Ack**` with bullets;
    ### MSG-20260612-001       bold: lines `**From:** A -> B`, free text, `**Ack:**` lines;
    Message ID: MSG-...        plain (v0): lines `From: A`, then `Body:` and `Ack:`.

Pure, and by spans: a field knows where its value is, counted from the start of the card. So the same text is parsed
once, wherever it stands and however often: a mailbox of thousands of cards costs what changed. Only the fields at the
head of a card count; the text below is text whatever it looks like (headings, tables, fences, bold words), except for
its named blocks `Summary`, `Ack`, `Reply` and `Body`. Called by `cards`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from holdfast.turnfile.mailbox.markdown import Cell, Edit, Line, escape, fill, key_of, lines_of, table_in

Dialect = Literal["table", "bold", "plain"]

KNOWN: Final = frozenset(
    [
        *("message_id", "from", "to", "date", "type", "priority", "status", "subject", "closure_owner"),
        *("review_scope", "response_needed_by", "mode", "related", "revision_token", "thread"),
        *("in_reply_to", "disposition", "retained", "formerly", "payload"),
    ]
)
ARROW: Final = re.compile(r"->|→")

_NAMED_BOLD: Final = re.compile(
    r"\*\*(Summary|Ack|Reply)(?:[ \t]*\([^()*]{1,200}\))?(?::\*\*|\*\*:?)[ \t]*(.*)", re.IGNORECASE
)
_NAMED_PLAIN: Final = re.compile(r"(Body|Ack|Reply):[ \t]*(.*)")
_BULLET: Final = re.compile(r"[ \t]*(?:[-*+]|[0-9]{1,3}[.)])[ \t]+(.*)")
# The signature that an Ack begins with: `Ada — 2026-03-04`, `Ada | 2026-03-04`, `Ada 2026-03-04`.
_SIGNED: Final = re.compile(r"[^\W\d_][^.;:!?]{0,60}?[ \t]{0,2}[—–|,-]?[ \t]{0,2}[0-9]{4}-[0-9]{2}-[0-9]{2}\b")
_BOLD: Final = re.compile(r"\*\*([^*:]{1,60})(?::\*\*|\*\*:)[ \t]*(.*)")
_PLAIN: Final = re.compile(r"([A-Z][A-Za-z][A-Za-z -]{0,40}):(?:[ \t]+(.*))?")
# The usual card: a heading, a blank line, bold fields, and then a blank line or the end.
_USUAL: Final = re.compile(r"#[^\n]*\n\n((?:\*\*[^*:\n]{1,60}:\*\*[^\n]*\n)+)(?=\n|\Z)")
_FORMS: Final = 100
_USUAL_LABEL: Final = re.compile(r"^\*\*([^*:\n]{1,60}):\*\*", re.MULTILINE)
_BELOW: Final = re.compile(r"\s*(\||\*\*)")
_BLOCK_NAMES: Final = ("summary", "ack", "reply")
_BLOCK_LINE: Final = re.compile(r"^\*\*(?:Summary|Ack|Reply)", re.IGNORECASE | re.MULTILINE)


class Field(msgspec.Struct, frozen=True):
    """A field at the head of a card: its key, its dialect, its value and the span of that."""

    key: str
    dialect: Dialect
    value: str
    start: int
    end: int
    line: Line

    def set(self, value: str) -> Edit:
        """The edit that sets the field."""
        if self.dialect == "table":
            return fill(Cell(self.start, self.end, self.value), value)
        glued = self.start == self.end and not self.line.text.endswith((" ", "\t"))
        return Edit(self.start, self.end, f" {value}" if glued else value)


_PAYLOAD: Final = re.compile(r"(\S.{0,400}?) sha256:([0-9a-f]{64}) at revision ([0-9]{1,18})")


class Payload(msgspec.Struct, frozen=True):
    """A file that a message hands over: its path in the project, its SHA-256, and the revision of the ledger then."""

    path: str
    sha256: str
    revision: int

    def __str__(self) -> str:
        return f"{self.path} sha256:{self.sha256} at revision {self.revision}"


class Content:
    """The text of a card and what it says. Cards with the same text share it.

    What a card in the usual form says is known at once: every write of a mailbox needs it of every card.
    """

    is_plain: bool = False  # whether it has the usual form and no named block
    _below: int = 0  # where the text below its fields begins, if it has the usual form

    def __init__(self, text: str) -> None:
        self.text = text
        if (usual := _usual(text)) is not None:
            self._below, self.values = below, values = usual
            self.dialect = "bold"
            self.status = status_word(values.get("status", ""))
            self.route = _route(values.get("from", ""), values.get("to", ""))
            self.receivers = _names(self.route[1])
            self.is_plain = text.find("\n**", below - 1) < 0 or not _BLOCK_LINE.search(text, below)

    @functools.cached_property
    def lines(self) -> tuple[Line, ...]:
        """Its lines, counted from its start."""
        return tuple(lines_of(self.text))

    @functools.cached_property
    def _head(self) -> tuple[tuple[Field, ...], int]:
        heading = self.text.startswith("#")
        fields, at = _fields(self.lines, int(heading), not heading)
        return tuple(fields), at

    @property
    def fields(self) -> tuple[Field, ...]:
        """Its fields, with their spans counted from its start."""
        return self._head[0]

    @functools.cached_property
    def said(self) -> tuple[tuple[str, Dialect, str], ...]:
        """Key, dialect and value of each field."""
        if self._below:
            return tuple([(key, "bold", value) for key, value in self.values.items()])
        return tuple((field.key, field.dialect, field.value) for field in self.fields)

    @functools.cached_property
    def values(self) -> dict[str, str]:
        """The value of each field: a bold line wins over a table, the first over others of its dialect."""
        found: dict[str, str] = {}
        for dialect in ("bold", "table", "plain"):
            first = {key: value for key, one, value in reversed(self.said) if one == dialect}
            found |= {key: value for key, value in first.items() if not found.get(key)}
        return found

    @functools.cached_property
    def dialect(self) -> Dialect:
        """Its dialect; of a card that mixes them, the first of bold, table, plain."""
        used = {dialect for _, dialect, _ in self.said}
        return "bold" if "bold" in used or not used else "table" if "table" in used else "plain"

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Its named blocks, with lines counted from its start."""
        return () if self.is_plain else self._blocks

    @functools.cached_property
    def _blocks(self) -> tuple[Block, ...]:
        fields, at = self._head
        return tuple(blocks_in(self.lines, at, any(field.dialect == "plain" for field in fields)))

    @property
    def body(self) -> str:
        """Its free text."""
        return self.text[self._below :].strip("\n").rstrip() if self.is_plain else self._body

    @functools.cached_property
    def _body(self) -> str:
        named = next((block for block in self.blocks if block.key == "body"), None)
        if named is not None:
            return "\n".join(named.entries).strip("\n").rstrip()
        taken = {line.number for block in self.blocks for line in block.lines}
        text = "\n".join(line.text for line in self.lines[self._head[1] :] if line.number not in taken)
        return text.strip("\n").rstrip()

    @functools.cached_property
    def status(self) -> str:
        """Its status word in lower case: `Actioned (see below)` is `actioned`."""
        return status_word(self.values.get("status", ""))

    @functools.cached_property
    def route(self) -> tuple[str, str]:
        """Its sender, and its receivers as they are written."""
        said = (value for key, _, value in self.said if key == "from" and ARROW.search(value))
        return _route(next(said, self.values.get("from", "")), self.values.get("to", ""))

    @functools.cached_property
    def receivers(self) -> tuple[str, ...]:
        """The receivers' names."""
        return _names(self.route[1])

    @property
    def payload(self) -> tuple[Payload, ...]:
        """The files that the message carries, with their digests; what cannot be read as one is left out."""
        found = (_PAYLOAD.fullmatch(value) for key, _, value in self.said if key == "payload")
        return tuple(Payload(match[1], match[2], int(match[3])) for match in found if match)

    @property
    def damaged_payload(self) -> tuple[str, ...]:
        """What the fields for files say that cannot be read as one."""
        return tuple(value for key, _, value in self.said if key == "payload" and not _PAYLOAD.fullmatch(value))

    def entries(self, key: str) -> tuple[str, ...]:
        """The entries of its blocks of that name."""
        if self.is_plain:
            return ()
        return tuple([entry for block in self._blocks if block.key == key for entry in block.entries])


_CACHED: Final = 20_000
_LARGE: Final = 8_000  # characters; such a text is not worth the memory


@functools.lru_cache(maxsize=_CACHED)
def _shared(text: str) -> Content:
    return Content(text)


def content_of(text: str) -> Content:
    """The text of a card, parsed; the same one for the same text."""
    return _shared(text) if len(text) < _LARGE else Content(text)


def _usual(text: str) -> tuple[int, dict[str, str]] | None:
    """Where the text of a card in the usual form begins, and the value of each field; None for any other form.

    What `_fields` finds, at a tenth of its cost.
    """
    layout = _latest[0] if _latest else None
    found = layout and layout.pattern.match(text)
    if layout is None or found is None:
        layout = _layout_of(text)
        found = layout and layout.pattern.match(text)
        if layout is None or found is None:
            return None
        _latest[:] = [layout]
    end = found.end()
    below = _BELOW.match(text, end)
    if "\r" in text or (below and (below[1] == "|" or not _NAMED_BOLD.match(text, below.start(1)))):
        return None  # perhaps more fields
    return end, dict(zip(layout.keys, map(str.rstrip, found.groups()), strict=True))


class _Layout(NamedTuple):
    """The fields that a card has, in their order, and a pattern with a group for each value."""

    keys: tuple[str, ...]
    pattern: re.Pattern[str]


_latest: list[_Layout] = []  # that of the card before, which most cards share
_layouts: dict[tuple[str, ...], _Layout] = {}  # by the names of the fields


def _layout_of(text: str) -> _Layout | None:
    """The layout of a card in the usual form; None for any other, and if there are too many."""
    usual = _USUAL.match(text)
    if usual is None:
        return None
    labels = tuple(_USUAL_LABEL.findall(usual[1]))
    layout = _layouts.get(labels)
    if layout is None and len(_layouts) < _FORMS and (layout := _layout(labels)) is not None:
        _layouts[labels] = layout
    return layout


def _layout(labels: tuple[str, ...]) -> _Layout | None:
    """The layout with these fields; None if one names a block or is repeated."""
    keys = tuple(key_of(label) for label in labels)
    if len(set(keys)) < len(keys) or any(label.lower().startswith(_BLOCK_NAMES) for label in labels):
        return None
    lines = (rf"\*\*{re.escape(label)}:\*\*[ \t]*([^\n]*)\n" for label in labels)
    return _Layout(keys, re.compile(rf"#[^\n]*\n\n{''.join(lines)}(?=\n|\Z)"))


@functools.lru_cache(maxsize=4096)
def _route(sender: str, receiver: str) -> tuple[str, str]:
    """Sender and receivers of the fields From, which may have both, and To."""
    parts = ARROW.split(sender, maxsplit=1)
    return parts[0].strip(), (parts[1] if len(parts) > 1 else receiver).strip()


@functools.lru_cache(maxsize=4096)
def _names(receivers: str) -> tuple[str, ...]:
    return tuple([name.strip() for name in receivers.split(",") if name.strip()])


@functools.lru_cache(maxsize=4096)
def status_word(text: str) -> str:
    """The first word of a text in lower case, or an empty string."""
    return next(iter(re.findall(r"[a-z_-]+", text.lower())), "")


def known_field(line: Line) -> Field | None:
    """The field on a line, if its name is known."""
    field = any_field(line)
    return field if field and field.key in KNOWN else None


def any_field(line: Line) -> Field | None:
    """The field on a line, whatever its name, or None."""
    match = _BOLD.fullmatch(line.text) or _PLAIN.fullmatch(line.text)
    begins_block = _NAMED_BOLD.fullmatch(line.text) or _NAMED_PLAIN.fullmatch(line.text)
    if match is None or line.hidden or begins_block:
        return None
    value = (match[2] or "").rstrip()
    start = line.start + (match.start(2) if match[2] is not None else len(line.text))
    return Field(key_of(match[1]), "bold" if line.text[0] == "*" else "plain", value, start, start + len(value), line)


def _fields(lines: Sequence[Line], at: int, plain: bool) -> tuple[list[Field], int]:
    """The fields at the head of a card, and where its text begins.

    The first run of field lines may have any name; after a blank line only a known name that its dialect has not used
    yet still belongs to the head.
    """
    fields: list[Field] = []
    end, gap = at, False
    while at < len(lines) and not lines[at].hidden:
        line = lines[at]
        if line.blank:
            gap = bool(fields)
            at += 1
            continue
        found = _table_fields(lines, at) if not any(field.dialect == "table" for field in fields) else []
        if found:
            fields += found
            at += 2 + len(found)
        else:
            field = any_field(line)
            if field is None or not _fits(field, fields, gap, plain):
                break
            fields.append(field)
            at += 1
        end, gap = at, False
    return fields, end


def _fits(field: Field, fields: Sequence[Field], gap: bool, plain: bool) -> bool:
    known = field.key in KNOWN
    if field.dialect == "plain":  # prose may look like one
        return not gap and (known or plain or any(other.dialect == "plain" for other in fields))
    return not gap or (known and not any(field.key == other.key for other in fields if other.dialect == "bold"))


def _table_fields(lines: Sequence[Line], at: int) -> list[Field]:
    begins = lines[at].text.startswith("|") and table_in(lines[at : at + 2]) is not None
    table = table_in(lines[at:]) if begins else None
    if table is None or table.columns[:2] != ("field", "value"):
        return []
    fields = []
    for row in table.rows:
        if len(row.cells) < 2:
            break
        name, cell = row.cells[:2]
        fields.append(Field(key_of(name.text), "table", cell.text, cell.start, cell.end, row.line))
    return fields


class Block(msgspec.Struct, frozen=True):
    """A named block below the fields (`ack`, `reply`, `summary`, `body`): its lines and its entries."""

    key: str
    bold: bool
    lines: tuple[Line, ...]
    entries: tuple[str, ...]


def blocks_in(lines: Sequence[Line], at: int, plain: bool) -> list[Block]:
    """The named blocks below the fields. A block ends at a blank line; the `Body:` of v0 at the next name."""
    blocks: list[Block] = []
    while at < len(lines):
        name = None if lines[at].hidden else _NAMED_BOLD.fullmatch(lines[at].text)
        bold = name is not None
        if name is None and plain and not lines[at].hidden:
            name = _NAMED_PLAIN.fullmatch(lines[at].text)
        if name is None:
            at += 1
            continue
        key = name[1].lower()
        end = _end_of(lines, at, key, bool(name[2]))
        said = [name[2], *(line.text for line in lines[at + 1 : end])]
        entries = ["\n".join(said).strip("\n")] if key == "body" else _entries(said)
        blocks.append(Block(key, bold, tuple(lines[at:end]), tuple(entry for entry in entries if entry)))
        at = end
    return blocks


def _end_of(lines: Sequence[Line], at: int, key: str, filled: bool) -> int:
    """Where a block ends: a reply or a v0 body at the next name or rule, the others at a blank line."""
    end = at + 1
    if key in ("body", "reply"):
        while end < len(lines) and (lines[end].hidden or not _ends_text(lines[end], key)):
            end += 1
        while lines[end - 1].blank:
            end -= 1
        return end
    if not filled:  # the bullets may follow a blank line
        below = next((n for n in range(end, len(lines)) if not lines[n].blank), end)
        if below < len(lines) and _BULLET.fullmatch(lines[below].text):
            end = below
    while end < len(lines) and not lines[end].blank and not _NAMED_BOLD.fullmatch(lines[end].text):
        end += 1
    return end


def _ends_text(line: Line, key: str) -> bool:
    if _NAMED_PLAIN.fullmatch(line.text):
        return True
    return key == "reply" and (line.rule or _NAMED_BOLD.fullmatch(line.text) is not None)


def _entries(said: Sequence[str]) -> list[str]:
    """The entries of a block.

    An entry begins with a signature, after a blank line, or with a bullet of a list that began with one. Other lines
    continue the entry, as do bullets below a signed line.
    """
    entries: list[str] = []
    listed, fresh = False, True
    for text in said:
        bullet = _BULLET.fullmatch(text)
        words = (bullet[1] if bullet else text).strip()
        if not words:
            fresh = True
            continue
        if fresh:
            listed = bullet is not None
        if fresh or _SIGNED.match(words) or (bullet and listed and text[0] not in " \t"):
            entries.append(words)
        else:
            entries[-1] = f"{entries[-1]} {text.strip()}"
        fresh = False
    return entries


def field_text(dialect: Dialect, label: str, value: str) -> str:
    """A field as a line of its dialect, without its newline."""
    if dialect == "table":
        return f"| {label} | {escape(value)} |"
    return f"**{label}:** {value}" if dialect == "bold" else f"{label}: {value}"
