"""MAILBOX.md: its metadata, sections, tables and cards, parsed and edited by spans.

Pure. `parse` accepts any text and loses no byte: `parse(text).text` is the text. An edit is a list of spans and their
replacements; everything else stays as it was written. A heading ends a card only if it names a section of the mailbox,
because messages may contain whole documents.

Below are `markdown` and `cards` (three dialects); above are `projection` (the tables and MAILBOX.json), `draft` (new
cards) and `steps` (legal steps of a message). Called by those, and by all that reads or writes mail.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from holdfast import errors
from holdfast.turnfile.mailbox.cards import Card, Dialect, Field, any_field, cards_in, field_text, order_of
from holdfast.turnfile.mailbox.markdown import Edit, Line, Table, apply, lines_of, newline_of, row_text, table_in

_SECTIONS: Final = {
    "snapshot": re.compile(r"##[ \t]+Inbox (?:Snapshot|Status)\b.*", re.IGNORECASE),
    "queue": re.compile(r"##[ \t]+Open Queue\b.*", re.IGNORECASE),
    "active": re.compile(r"##[ \t]+Active Messages\b.*", re.IGNORECASE),
    "closed": re.compile(r"##[ \t]+Closed Summary\b.*", re.IGNORECASE),
    "help": re.compile(r"##[ \t]+Quick Reply\b.*", re.IGNORECASE),
}


class Section(msgspec.Struct, frozen=True):
    """A section: its heading and the lines below, up to the next one."""

    heading: Line
    lines: tuple[Line, ...]

    @property
    def end(self) -> int:
        """Where the line after its last non-blank line starts."""
        full = [line for line in self.lines if not line.blank]
        return full[-1].after if full else self.heading.after


class Mailbox(msgspec.Struct, frozen=True):
    """A parsed MAILBOX.md."""

    text: str
    lines: tuple[Line, ...]
    metadata: tuple[Field, ...]
    sections: dict[str, Section]
    snapshot: Table | None
    queue: Table | None
    closed: Table | None
    cards: tuple[Card, ...]
    outside: tuple[Card, ...] = ()  # cards in other sections than that for cards
    repeated: tuple[Line, ...] = ()  # headings of sections that come a second time

    @property
    def newline(self) -> str:
        """The line break of the file."""
        return newline_of(self.text)

    @property
    def rising(self) -> bool:
        """Whether the oldest card comes first, as in v0; not if the heading promises the newest first."""
        if "active" in self.sections and "newest first" in self.sections["active"].heading.text.lower():
            return False
        if len(self.cards) > 1:
            return self.cards[0].order < self.cards[-1].order
        return "active" not in self.sections

    @property
    def ids(self) -> set[str]:
        """The ids in use: of cards, of the queue and of the closed summary. Prose only mentions ids."""
        tables = (table for table in (self.queue, self.closed) if table is not None)
        cards = (*self.cards, *self.outside)
        return {card.id for card in cards} | {table.value(row, "id") for table in tables for row in table.rows}

    def find(self, id: str) -> Card | None:
        """The card with that id, or None."""
        return next((card for card in self.cards if card.id == id), None)

    def card(self, id: str) -> Card:
        """The card with that id. Raises MessageNotFound, or Invalid if several cards have it."""
        cards = [card for card in self.cards if card.id == id]
        if len(cards) > 1:
            lines = ", ".join(str(card.line) for card in cards)
            hint = "turnfile.tidy(session, actor) archives a copy, and gives any other card an id of its own"
            raise errors.Invalid(f"{id} is the id of several cards (lines {lines})", hint=hint, id=id)
        if not cards:
            closed = self.closed
            gone = closed and any(closed.value(row, "id") == id for row in closed.rows)
            where = "is closed" if gone else "is not in the mailbox"
            hint = "turnfile.mail.messages(session) lists the open messages"
            raise errors.MessageNotFound(f"{id} {where}", hint=hint, id=id)
        return cards[0]

    def edited(self, edits: Iterable[Edit]) -> Mailbox:
        """The mailbox with some spans replaced."""
        return parse(apply(self.text, edits))


@functools.lru_cache(maxsize=4)  # a transaction parses the same texts several times
def parse(text: str) -> Mailbox:
    """Parse a mailbox; accepts any text."""
    lines = lines_of(text)
    places, repeated = _places(lines)
    ends = [*(at for at, _ in places[1:]), len(lines)]
    sections = {
        key: Section(lines[at], tuple(lines[at + 1 : end])) for (at, key), end in zip(places, ends, strict=False)
    }
    outside: list[Card] = []
    if "active" in sections:
        cards, first = cards_in(sections["active"].lines), len(text)
        head = lines[: places[0][0]]
        others = [section.lines for key, section in sections.items() if key != "active"]
        outside = [card for part in (head, *others) for card in cards_in(_below_table(part)) if card.fields]
        inside = range(sections["active"].heading.start, sections["active"].end)
        repeated = [line for line in repeated if line.start not in inside]  # a message may quote a mailbox
    else:  # v0: cards anywhere above the closed summary, and the tables before the cards
        cards = cards_in(lines[: sections["closed"].heading.number - 1] if "closed" in sections else lines)
        first = cards[0].start if cards else len(text)
        repeated = []
    tables: dict[str, Table | None] = {}
    for key in ("snapshot", "queue", "closed"):
        below = sections[key].lines if key in sections else ()
        tables[key] = table_in([line for line in below if line.start < first or key == "closed"])
    return Mailbox(
        text,
        tuple(lines),
        tuple(_metadata(lines)),
        sections,
        **tables,
        cards=tuple(cards),
        outside=tuple(outside),
        repeated=tuple(repeated),
    )


def _below_table(lines: Sequence[Line]) -> Sequence[Line]:
    """The lines after the first table, which would else belong to a card above it."""
    table = table_in(lines)
    return lines if table is None else [line for line in lines if line.start >= table.end]


def _places(lines: Sequence[Line]) -> tuple[list[tuple[int, str]], list[Line]]:
    """Where sections start, and the headings that do not count.

    Of duplicate sections the first counts, of closed summaries the last.
    """
    found: dict[str, int] = {}
    repeated = []
    for at, line in enumerate(lines):
        if line.hidden or not line.text.startswith("## "):
            continue
        key = next((key for key, heading in _SECTIONS.items() if heading.fullmatch(line.text)), None)
        if key == "closed" or (key and key not in found):
            if key in found:
                repeated.append(lines[found[key]])
            found[key] = at
        elif key:
            repeated.append(line)
    return sorted((at, key) for key, at in found.items()), repeated


def _metadata(lines: Sequence[Line]) -> list[Field]:
    found = []
    for line in lines:
        if line.text.startswith(("## ", "### ", "---", "Message ID:")):
            break
        field = any_field(line)
        if field is not None:
            found.append(field)
    return found


def insert_card(box: Mailbox, id: str, text: str) -> Edit:
    """Insert a card (its lines, each with its newline) in the order of ids. Raises Invalid without a section for it."""
    rule = "---" + 2 * box.newline if _ruled(box) else ""
    if box.rising:
        later = [card for card in box.cards if card.order <= order_of(id)]
        if later:
            return _at(box, later[-1].end, box.newline + rule + text)
    for card in box.cards:
        if box.rising or card.order <= order_of(id):
            return Edit(card.start, card.start, text + box.newline + rule)
    if box.cards:
        return _at(box, box.cards[-1].end, box.newline + rule + text)
    if "active" not in box.sections:
        hint = "turnfile.tidy(session, actor) adds the sections that are missing"
        raise errors.Invalid("the mailbox has no section `## Active Messages`", hint=hint)
    return _at(box, box.sections["active"].end, box.newline + rule + text)


def remove_card(box: Mailbox, card: Card) -> Edit:
    """Remove a card, and one of the rules that separate it from its neighbours."""
    place = box.cards.index(card)
    after = box.cards[place + 1] if place + 1 < len(box.cards) else None
    if after is not None and not box.text[card.end : after.start].replace("---", "").strip():
        return Edit(card.start, after.start, "")
    start = card.start
    for line in reversed(box.lines[: card.line - 1]):
        if not line.blank and not line.rule:
            break
        start = line.start
    return Edit(start, card.end, "")


def set_field(box: Mailbox, card: Card, key: str, label: str, value: str) -> list[Edit]:
    """Set a field wherever the card has it; a new field is added after the last one."""
    there = [field for field in card.fields if field.key == key]
    if there:
        return [field.set(value) for field in there]
    line = card.fields[-1].line if card.fields else card.lines[0]
    dialect: Dialect = card.fields[-1].dialect if card.fields else "bold"
    return [_at(box, line.after, field_text(dialect, label, value) + box.newline)]


def add_entry(box: Mailbox, card: Card, key: str, label: str, entry: str) -> Edit:
    """Add a line to the card's last block of that name, in its style; a new block is added at the card's end."""
    block = next((block for block in reversed(card.blocks) if block.key == key), None)
    nl = box.newline
    if block is None:
        if card.dialect == "bold":
            return _at(box, card.end, f"{nl}**{label}:** {entry}{nl}")
        name, lead = (f"**{label}**", "- ") if card.dialect == "table" else (f"{label}:", "")
        return _at(box, card.end, f"{nl}{name}{nl}{lead}{entry}{nl}")
    last = block.lines[-1]
    if len(block.lines) > 1 or not block.entries:
        bulleted = last.text.lstrip()[:2] in ("- ", "* ") or (block.bold and len(block.lines) == 1)
        indent = last.text[: len(last.text) - len(last.text.lstrip())] if bulleted else ""
        mark = "* " if last.text.lstrip().startswith("* ") else "- "
        return _at(box, last.after, f"{indent}{mark if bulleted else ''}{entry}{nl}")
    return _at(box, last.after, f"**{label}:** {entry}{nl}" if block.bold else f"{entry}{nl}")


def insert_row(box: Mailbox, table: Table, place: int, values: Sequence[str]) -> Edit:
    """Insert a row before the one at that index, or after the last."""
    at = table.rows[place].line.start if place < len(table.rows) else table.end
    return _at(box, at, row_text(values) + box.newline)


def _ruled(box: Mailbox) -> bool:
    """Whether rules separate the cards; in a file without cards, yes."""
    if not box.cards:
        return True
    first, last = box.cards[0].line - 1, box.cards[-1].line
    inside = {line.number for card in box.cards for line in card.lines}
    start = max(0, first - 3)
    return any(line.rule and line.number not in inside for line in box.lines[start:last])


def _at(box: Mailbox, place: int, new: str) -> Edit:
    """Insert whole lines at the start of a line; a last line without a newline gets one first."""
    if place and not box.text[:place].endswith("\n"):
        return Edit(place, place, box.newline + new.removesuffix(box.newline))
    return Edit(place, place, new)
