"""The cards of a mailbox: one message each, in any of three dialects, which one card may mix.

    ### MSG-20260612-001       table: rows of Field and Value, then `**Summary**` and `**Ack**` with bullets;
    ### MSG-20260612-001       bold: lines `**From:** A -> B`, free text, `**Ack:**` lines;
    Message ID: MSG-...        plain (v0): lines `From: A`, then `Body:` and `Ack:`.

Pure, and by spans: a field knows where its value is. Only the fields at the head of a card count; the text below is
text whatever it looks like (headings, tables, fences, bold words), except for its named blocks `Summary`, `Ack`,
`Reply` and `Body`. Called by `mailbox`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec

from holdfast.turnfile.mailbox.markdown import Cell, Edit, Line, escape, fill, key_of, table_in

_NAMED_BOLD: Final = re.compile(
    r"\*\*(Summary|Ack|Reply)(?:[ \t]*\([^()*]{1,200}\))?(?::\*\*|\*\*:?)[ \t]*(.*)", re.IGNORECASE
)
_NAMED_PLAIN: Final = re.compile(r"(Body|Ack|Reply):[ \t]*(.*)")
_BULLET: Final = re.compile(r"[ \t]*(?:[-*+]|[0-9]{1,3}[.)])[ \t]+(.*)")
# The signature that an Ack begins with: `Ada — 2026-03-04`, `Ada | 2026-03-04`, `Ada 2026-03-04`.
_SIGNED: Final = re.compile(r"[^\W\d_][^.;:!?]{0,60}?[ \t]{0,2}[—–|,-]?[ \t]{0,2}[0-9]{4}-[0-9]{2}-[0-9]{2}\b")


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


Dialect = Literal["table", "bold", "plain"]

ID: Final = re.compile(r"MSG-([0-9]{8})-([0-9]{3,9})")
OPEN: Final = ("unread", "acknowledged", "actioned", "blocked", "deferred")
DECISIONS: Final = ("approved", "rejected", "deferred", "needs-revision")
TERMINAL: Final = ("closed", "resolved", "superseded", "withdrawn", "abandoned")
KNOWN: Final = frozenset(
    [
        *("message_id", "from", "to", "date", "type", "priority", "status", "subject", "closure_owner"),
        *("review_scope", "response_needed_by", "mode", "related", "revision_token", "thread"),
        *("in_reply_to", "disposition", "retained", "formerly", "payload"),
    ]
)

_HEADING: Final = re.compile(r"###[ \t]+(MSG-[A-Za-z0-9-]+)(.*)")
_BOLD: Final = re.compile(r"\*\*([^*:]{1,60})(?::\*\*|\*\*:)[ \t]*(.*)")
_PLAIN: Final = re.compile(r"([A-Z][A-Za-z][A-Za-z -]{0,40}):(?:[ \t]+(.*))?")
ARROW: Final = re.compile(r"->|→")


# How far a receiver is with a message; a card says how far the last of them is.
PROGRESS: Final = ("unread", "acknowledged", "blocked", "actioned")
_ACK: Final = re.compile(r"(.{1,80}?)[ \t]{0,2}[—–|,:-]?[ \t]{0,2}[0-9]{4}-[0-9]{2}-[0-9]{2}\b(.*)", re.DOTALL)
ALL: Final = ("all", "everyone")


def fold(name: str) -> str:
    """A name for comparison: `Codex`, `codex` and `` `codex` `` are the same."""
    return name.strip().strip("`").strip().casefold()


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


class Card(msgspec.Struct, frozen=True):
    """One message: its lines, its fields, its named blocks, its free text."""

    id: str
    lines: tuple[Line, ...]
    fields: tuple[Field, ...]
    blocks: tuple[Block, ...]
    body: str

    @property
    def start(self) -> int:
        """Where its first line starts."""
        return self.lines[0].start

    @property
    def end(self) -> int:
        """Where the line after its last starts."""
        return self.lines[-1].after

    @property
    def line(self) -> int:
        """The number of its first line."""
        return self.lines[0].number

    @property
    def dialect(self) -> Dialect:
        """Its dialect; of a card that mixes them, the first of bold, table, plain."""
        used = {field.dialect for field in self.fields}
        return "bold" if "bold" in used or not used else "table" if "table" in used else "plain"

    def get(self, key: str) -> str:
        """The value of a field, or an empty string; a bold line wins over a table."""
        said = {field.dialect: field.value for field in reversed(self.fields) if field.key == key}
        return said.get("bold") or said.get("table") or said.get("plain") or ""

    def line_of(self, key: str) -> int:
        """The line number of a field, or of the card."""
        return next((field.line.number for field in self.fields if field.key == key), self.line)

    @property
    def status(self) -> str:
        """Its status word in lower case: `Actioned (see below)` is `actioned`."""
        return status_word(self.get("status"))

    @property
    def sender(self) -> str:
        """The sender's name."""
        return ARROW.split(self._route())[0].strip()

    @property
    def receiver(self) -> str:
        """The receivers as they are written."""
        parts = ARROW.split(self._route(), maxsplit=1)
        return (parts[1] if len(parts) > 1 else self.get("to")).strip()

    @property
    def receivers(self) -> tuple[str, ...]:
        """The receivers' names."""
        return tuple(name.strip() for name in self.receiver.split(",") if name.strip())

    def addressees(self, everyone: Sequence[str] = ()) -> tuple[str, ...]:
        """The receivers; for `all`, everyone but the sender, if they are known."""
        if fold(self.receiver) in ALL and everyone:
            return tuple(name for name in everyone if fold(name) != fold(self.sender))
        return self.receivers

    def states(self, everyone: Sequence[str] = ()) -> dict[str, str]:
        """The status for each receiver: of several, what their own Ack lines say.

        Without an Ack line of any of them the card's status counts for all.
        """
        names = self.addressees(everyone)
        said = self.acknowledged if len(names) > 1 and is_known(self.status) else {}
        if not any(fold(name) in said for name in names):
            return dict.fromkeys(names, self.status)
        return {name: said.get(fold(name), "unread") for name in names}

    def least(self, everyone: Sequence[str] = ()) -> str:
        """The least advanced status of its receivers, which is what its own should be."""
        return least_of(self.states(everyone).values()) or self.status

    @property
    def acknowledged(self) -> dict[str, str]:
        """The newest status in the Ack lines, by folded name."""
        found = {}
        for entry in self.entries("ack"):
            if signed := _ACK.match(entry):
                words = re.findall(r"[a-z]+", signed[2].lower())
                word = next((word for word in words if word in PROGRESS or word in TERMINAL), "acknowledged")
                if word not in TERMINAL:
                    found[fold(signed[1])] = word
        return found

    @property
    def order(self) -> tuple[str, int]:
        """The sort key: older cards first."""
        return order_of(self.id)

    @property
    def payload(self) -> tuple[Payload, ...]:
        """The files that the message carries, with their digests; what cannot be read as one is left out."""
        found = (_PAYLOAD.fullmatch(field.value) for field in self.fields if field.key == "payload")
        return tuple(Payload(match[1], match[2], int(match[3])) for match in found if match)

    def entries(self, key: str) -> tuple[str, ...]:
        """The entries of its blocks of that name."""
        return tuple(entry for block in self.blocks if block.key == key for entry in block.entries)

    def _route(self) -> str:
        said = [field.value for field in self.fields if field.key == "from"]
        return next((value for value in said if ARROW.search(value)), self.get("from"))


def is_known(status: str) -> bool:
    """Whether a status is one that a receiver can have."""
    return status in PROGRESS


def least_of(statuses: Iterable[str]) -> str:
    """The least advanced of some statuses, or an empty string."""
    return min((one for one in statuses if is_known(one)), key=PROGRESS.index, default="")


def status_word(text: str) -> str:
    """The first word of a text in lower case, or an empty string."""
    return next(iter(re.findall(r"[a-z_-]+", text.lower())), "")


def order_of(id: str) -> tuple[str, int]:
    """The date and sequence of an id; anything else sorts first."""
    match = ID.fullmatch(id)
    return (match[1], int(match[2])) if match else ("", 0)


def numbers_of(ids: Iterable[str]) -> dict[str, set[int]]:
    """The sequence numbers of ids, by date; anything else is left out."""
    found: dict[str, set[int]] = {}
    for id in ids:
        if match := ID.fullmatch(id):
            found.setdefault(match[1], set()).add(int(match[2]))
    return found


def cards_in(lines: Sequence[Line]) -> list[Card]:
    """The cards among the lines, in the order of the file."""
    starts = _starts(lines)
    cards = []
    for place, (at, id) in enumerate(starts):
        end = starts[place + 1][0] if place + 1 < len(starts) else len(lines)
        while end > at + 1 and (lines[end - 1].blank or lines[end - 1].rule):
            end -= 1
        cards.append(_card(id, lines[at:end]))
    return cards


def _starts(lines: Sequence[Line]) -> list[tuple[int, str]]:
    starts: list[tuple[int, str]] = []
    for at, line in enumerate(lines):
        if line.hidden:
            continue
        if heading := _HEADING.fullmatch(line.text):
            if not heading[2].strip() or _has_fields(lines, at + 1):
                starts.append((at, heading[1]))
        elif line.text.startswith("Message ID:"):
            id = line.text.partition(":")[2].strip()
            before = lines[at - 1] if at else None
            apart = before is None or before.blank or before.rule
            own = starts and starts[-1][1] == id and all(line.blank for line in lines[starts[-1][0] + 1 : at])
            if id and apart and not own and at + 1 < len(lines) and _field(lines[at + 1]):
                starts.append((at, id))
    return starts


def _has_fields(lines: Sequence[Line], at: int) -> bool:
    """Whether the next non-blank line is a field: a heading alone does not make a card."""
    first = next((line for line in lines[at : at + 4] if not line.blank), None)
    return first is not None and (_field(first) is not None or first.text.lower().startswith("| field"))


def _card(id: str, lines: Sequence[Line]) -> Card:
    heading = lines[0].text.startswith("#")
    fields, at = _fields(lines, int(heading), not heading)
    blocks = blocks_in(lines, at, any(field.dialect == "plain" for field in fields))
    taken = {line.number for block in blocks if block.key != "body" for line in block.lines}
    named = next((block for block in blocks if block.key == "body"), None)
    if named is not None:
        text = "\n".join(named.entries)
    else:
        text = "\n".join(line.text for line in lines[at:] if line.number not in taken)
    return Card(id, tuple(lines), tuple(fields), tuple(blocks), text.strip("\n").rstrip())


def _field(line: Line) -> Field | None:
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


def field_text(dialect: Dialect, label: str, value: str) -> str:
    """A field as a line of its dialect, without its newline."""
    if dialect == "table":
        return f"| {label} | {escape(value)} |"
    return f"**{label}:** {value}" if dialect == "bold" else f"{label}: {value}"
