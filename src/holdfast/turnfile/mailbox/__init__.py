"""MAILBOX.md: its metadata, sections, tables and cards, parsed and edited by spans.

Pure. `parse` accepts any text and loses no byte: `parse(text).text` is the text. An edit is a list of spans and their
replacements; everything else stays as it was written. A heading ends a card only if it names a section of the mailbox,
because messages may contain whole documents.

Below are `markdown`, `content` (the text of a card, in three dialects) and `cards`; above are `projection` (the tables
and MAILBOX.json), `draft` (new cards) and `steps` (legal steps of a message). Called by those, and by all that reads or
writes mail.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from holdfast import errors
from holdfast.turnfile.mailbox.cards import Card, cards_in, fold, may_have_cards, numbers_of, order_of
from holdfast.turnfile.mailbox.content import Dialect, Field, any_field, field_text
from holdfast.turnfile.mailbox.markdown import (
    Edit,
    Line,
    Part,
    Spans,
    Table,
    apply,
    hidden_spans,
    is_hidden,
    line_at,
    lines_between,
    lines_of,
    newline_of,
    row_text,
    spliced_table,
    table_in,
)

_SECTIONS: Final = {
    "snapshot": re.compile(r"##[ \t]+Inbox (?:Snapshot|Status)\b.*", re.IGNORECASE),
    "queue": re.compile(r"##[ \t]+Open Queue\b.*", re.IGNORECASE),
    "active": re.compile(r"##[ \t]+Active Messages\b.*", re.IGNORECASE),
    "closed": re.compile(r"##[ \t]+Closed Summary\b.*", re.IGNORECASE),
    "help": re.compile(r"##[ \t]+Quick Reply\b.*", re.IGNORECASE),
}


_LEVEL_TWO: Final = re.compile("\n## ")  # which is found twice as fast as by the methods of a text
_BODY: Final = re.compile(r"^(?:###? |---|Message ID:)", re.MULTILINE)  # what ends the metadata


class Section(msgspec.Struct, frozen=True):
    """A section: its heading, where the line after its last non-blank line starts, and where the next one starts."""

    heading: Line
    end: int
    stop: int


class Mailbox(msgspec.Struct, frozen=True, dict=True):
    """A parsed MAILBOX.md."""

    text: str
    metadata: tuple[Field, ...]
    sections: dict[str, Section]
    snapshot: Table | None
    queue: Table | None
    closed: Table | None
    cards: tuple[Card, ...]
    outside: tuple[Card, ...] = ()  # cards in other sections than that for cards
    repeated: tuple[Line, ...] = ()  # headings of sections that come a second time

    @functools.cached_property
    def lines(self) -> tuple[Line, ...]:
        """All lines of the file."""
        return tuple(lines_of(self.text))

    @functools.cached_property
    def people(self) -> dict[str, str]:
        """How names are spelled, by folded name: as in the snapshot, else as in the first card."""
        rows = [self.snapshot.value(row, "agent") for row in self.snapshot.rows] if self.snapshot else []
        routes = {card.content.route: card.content.receivers for card in self.cards}  # few, and each where it is first
        people = [one for (sender, _), names in reversed(routes.items()) for one in (sender, *names)]
        return {fold(one): one for one in (*people, *reversed(rows))}

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

    @functools.cached_property
    def known_ids(self) -> frozenset[str]:
        """The ids of the messages: of cards, also formerly, and of the closed summary; a row of the queue is none."""
        cards = (*self.cards, *self.outside)
        formerly = {card.get("formerly") for card in cards} - {""}
        return self.closed_ids.union(formerly, [card.id for card in cards])

    @functools.cached_property
    def closed_ids(self) -> frozenset[str]:
        """The ids in the closed summary."""
        return frozenset(self.closed.values("id") if self.closed else ())

    @functools.cached_property
    def ids(self) -> frozenset[str]:
        """The ids in use: those of the messages, and of the queue. Prose only mentions ids."""
        return self.known_ids.union(self.queue.values("id") if self.queue else ())

    @functools.cached_property
    def numbers(self) -> dict[str, set[int]]:
        """The sequence numbers of the ids in use, by date."""
        return numbers_of(self.ids)

    @functools.cached_property
    def newest(self) -> Card | None:
        """The newest card; of several with one id the first."""
        orders = [order_of(card.id) for card in self.cards]
        return self.cards[orders.index(max(orders))] if orders else None

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
            where, hint = "is not in the mailbox", "turnfile.mail.messages(session) lists the open messages"
            if outside := next((card for card in self.outside if card.id == id), None):
                where = f"is in line {outside.line}, outside the section Active Messages"
                hint = "turnfile.tidy(session, actor) moves it there"
            elif gone:
                where = "is closed"
            elif self.queue and any(self.queue.value(row, "id") == id for row in self.queue.rows):
                where = "is in the queue, but no card has this heading"
                hint = "turnfile.check(session) says what is wrong; turnfile.tidy(session, actor) repairs it"
            raise errors.MessageNotFound(f"{id} {where}", hint=hint, id=id)
        return cards[0]

    def edited(self, edits: Iterable[Edit]) -> Mailbox:
        """The mailbox with some spans replaced."""
        return parse(apply(self.text, edits))


@functools.lru_cache(maxsize=8)  # a transaction parses the same texts several times
def parse(text: str) -> Mailbox:
    """Parse a mailbox; accepts any text."""
    hidden = hidden_spans(text)
    found, repeated = _places(text, hidden)
    stops = [*(heading.start for _, heading in found[1:]), len(text)]
    sections = {
        key: Section(heading, _end(text, heading.after, stop), stop)
        for (key, heading), stop in zip(found, stops, strict=False)
    }
    outside: list[Card] = []
    if "active" in sections:
        active = sections["active"]
        cards, first = cards_in(Part(text, active.heading.after, active.stop), hidden), len(text)
        parts = [(0, found[0][1].start)]
        parts += [(one.heading.after, one.stop) for key, one in sections.items() if key != "active"]
        outside = [card for part in parts for card in _below_table(Part(text, *part), hidden) if card.content.said]
        repeated = [line for line in repeated if line.start not in range(active.heading.start, active.end)]
    else:  # v0: cards anywhere above the closed summary, and the tables before the cards
        stop = sections["closed"].heading.start if "closed" in sections else len(text)
        cards = cards_in(Part(text, 0, stop), hidden)
        first = cards[0].start if cards else len(text)
        repeated = []
    tables: dict[str, Table | None] = {}
    for key in ("snapshot", "queue", "closed"):
        tables[key] = None
        if key in sections:
            heading, stop = sections[key].heading, sections[key].stop
            part = text[heading.after : stop if key == "closed" else min(stop, first)]
            tables[key] = _table_of(part, heading.after, heading.number)
    return Mailbox(
        text,
        tuple(_metadata(text, hidden)),
        sections,
        **tables,
        cards=cards,
        outside=tuple(outside),
        repeated=tuple(repeated),
    )


def _end(text: str, start: int, stop: int) -> int:
    """Where the line after the last non-blank line of a part starts; its start if all is blank."""
    last = max(start, stop - 4096)
    if not text[last:stop].strip():  # blank, as far as can be seen from its end
        last = start
    full = last + len(text[last:stop].rstrip())
    end = text.find("\n", full, stop) + 1
    return start if full == start else end or stop


_LARGE: Final = 50_000  # characters; a smaller table is parsed whole
_latest: list[tuple[str, int, int, Table]] = []  # the large table parsed last: the next is mostly that with other rows


@functools.lru_cache(maxsize=16)  # a new card changes few tables
def _table_of(text: str, start: int, lines: int) -> Table | None:
    """The first table of a part that starts there, below so many lines."""
    for before, place, above, like in _latest[:1] if len(text) > _LARGE else ():
        moved = like.moved(start - place, lines - above)
        table = moved if before == text else spliced_table(before, moved, text, start)
        if table is not None:
            break
    else:
        table = table_in(lines_of(text, start, lines + 1))
    if table is not None and len(text) > _LARGE:
        _latest[:] = [(text, start, lines, table)]
    return table


def _below_table(part: Part, hidden: Spans) -> Sequence[Card]:
    """The cards after the first table of a part, which would else belong to a card above it."""
    text, start, stop = part
    if not may_have_cards(part):
        return ()
    table = _table_of(text[start:stop], start, text.count("\n", 0, start))
    return cards_in(Part(text, start if table is None else table.end, stop), hidden)


def _places(text: str, hidden: Spans) -> tuple[list[tuple[str, Line]], list[Line]]:
    """The headings of sections in order, with their keys; and the headings that do not count.

    Of duplicate sections the first counts, of closed summaries the last.
    """
    found: dict[str, Line] = {}
    repeated = []
    number, done = 1, 0
    for start in _headings(text):
        number, done = number + text.count("\n", done, start), start
        if is_hidden(hidden, start):
            continue
        line = line_at(text, start, number)
        key = next((key for key, heading in _SECTIONS.items() if heading.fullmatch(line.text)), None)
        if key == "closed" or (key and key not in found):
            if key in found:
                repeated.append(found[key])
            found[key] = line
        elif key:
            repeated.append(line)
    return sorted(found.items(), key=lambda item: item[1].start), repeated


def _headings(text: str) -> Iterator[int]:
    """Where lines that begin with `## ` start."""
    if text.startswith("## "):
        yield 0
    yield from (found.end() - len("## ") for found in _LEVEL_TWO.finditer(text))


def _metadata(text: str, hidden: Spans) -> list[Field]:
    first = _BODY.search(text)
    lines = lines_between(text, 0, first.start() if first else len(text), hidden)
    return [field for line in lines if (field := any_field(line)) is not None]


def insert_card(box: Mailbox, id: str, text: str) -> Edit:
    """Insert a card (its lines, each with its newline) in the order of ids. Raises Invalid without a section for it."""
    rule = "---" + 2 * box.newline if _ruled(box) else ""
    order = order_of(id)
    if box.rising:
        later = [card for card in box.cards if card.order <= order]
        if later:
            return _at(box, later[-1].end, box.newline + rule + text)
    for card in box.cards:
        if box.rising or card.order <= order:
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
    return Edit(gap_before(box.text, card.start), card.end, "")


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


def gap_before(text: str, start: int) -> int:
    """Where the blank lines and rules above a line start."""
    while start:
        above = text.rfind("\n", 0, start - 1) + 1
        line = text[above:start].rstrip()
        if line and line != "---":
            break
        start = above
    return start


def _ruled(box: Mailbox) -> bool:
    """Whether rules separate the cards; in a file without cards, yes."""
    if not box.cards:
        return True
    first = box.cards[0].start
    gaps = ((one.end, other.start) for one, other in itertools.pairwise(box.cards))
    above = [(gap_before(box.text, first), first)]
    return any("---" in box.text[start:end] for start, end in itertools.chain(above, gaps))


def _at(box: Mailbox, place: int, new: str) -> Edit:
    """Insert whole lines at the start of a line; a last line without a newline gets one first."""
    if place and not box.text[:place].endswith("\n"):
        return Edit(place, place, box.newline + new.removesuffix(box.newline))
    return Edit(place, place, new)
