"""Repair of a mailbox in disorder: sections, tables, duplicates, cards in the wrong place, order.

Pure: text in, text out. The cards are the truth. An open card stays open whatever a table says, a terminal card goes to
the archive, a copy of a card goes, and any other card whose id is taken gets the next id of its day, with its old one
in the field `Formerly`. What nobody can know (a missing sender) gets a word that says so. Guarantee: `repair`
of a repaired mailbox changes nothing. Called by `repairs`.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

import msgspec

from holdfast.turnfile.mailbox import Mailbox, gap_before, insert_card, insert_row, parse, remove_card, set_field
from holdfast.turnfile.mailbox.cards import ID, OPEN, TERMINAL, Card, cards_of, ids_in, is_known, numbers_of
from holdfast.turnfile.mailbox.content import status_word
from holdfast.turnfile.mailbox.draft import others_unchanged
from holdfast.turnfile.mailbox.lost import Message, card_text
from holdfast.turnfile.mailbox.markdown import Edit, Line, Table, apply, fill, row_text, table_in
from holdfast.turnfile.mailbox.projection import column, has_lost_headings, refresh, with_heading, with_table
from holdfast.turnfile.mailbox.rules import CLOSED_COLUMNS, TITLES, UNIQUE_FIELDS, has_rationale, needs_paraphrase
from holdfast.turnfile.model import PROJECTION, next_number

_ACTIVE: Final = "## Active Messages (Newest First)"
_UNKNOWN: Final = "unknown"
_MAINTAINER: Final = "Maintainer"
# What people write for a status of ours.
_WORDS: Final = {
    **dict.fromkeys(("new", "open", "sent", "pending", "todo"), "unread"),
    **dict.fromkeys(("ack", "acked", "read", "seen", "noted"), "acknowledged"),
    **dict.fromkeys(("done", "complete", "completed", "fixed", "answered"), "actioned"),
    **dict.fromkeys(("waiting", "stuck", "paused"), "blocked"),
}


class Repaired(msgspec.Struct, frozen=True):
    """A mailbox after its repair, the cards that left it for the archive, and what was done, with the old lines."""

    text: str
    archived: tuple[str, ...]
    done: tuple[tuple[int, str], ...]


class _Repair:
    """A mailbox under repair."""

    def __init__(self, text: str, archive: str, today: str, everyone: Sequence[str]) -> None:
        self.box = parse(text)
        self.archive = archive
        self.today = today
        self.everyone = everyone
        self.archived: list[str] = []
        self.done: list[tuple[int, str]] = []

    def edit(self, edits: Sequence[Edit]) -> None:
        self.box = self.box.edited(edits)

    def note(self, line: int, words: str) -> None:
        self.done.append((line, words))

    def shelve(self, card: Card, words: str) -> None:
        """Move a card to the archive."""
        self.note(card.line, words)
        self.archived.append(self.box.text[card.start : card.end])
        self.edit([_cut(self.box, card)])


def repair(
    text: str,
    archive: str,
    today: str,
    everyone: Sequence[str] = (),
    lost: Sequence[Message] = (),
    renamed: Mapping[str, str] = MappingProxyType({}),
) -> Repaired:
    """Repair a mailbox.

    `archive` is the text of the archive, whose ids stay in use; `today` dates what has no date; `lost` are the messages
    that only the projection has, and `renamed` the ids by which it knows cards that have another one now.
    """
    work = _Repair(text, archive, today, everyone)
    steps: tuple[Callable[[_Repair], None], ...] = (
        *(
            _headings,
            _sections,
            partial(_lost, messages=lost),
            _repeated,
            _outside,
            _copies,
            partial(_formerly, renamed=renamed),
            _ids,
            _fields,
            _paraphrases,
        ),
        *(_terminal, _reopened, _closed_rows, _order, _sections, _tables),  # the last card of v0 may have gone
    )
    for step in steps:
        step(work)
    return Repaired(work.box.text, tuple(work.archived), tuple(work.done))


def repair_archive(text: str, seen: dict[str, set[str]], used: dict[str, set[int]], today: str) -> Repaired:
    """Give each card of an archive an id of its own; a copy of another card goes.

    `seen` are the cards that have an id already, by id, and `used` the numbers of each day; both grow.
    """
    box, done, edits = parse(text), list[tuple[int, str]](), list[Edit]()
    for card in cards_of(text):
        same = card.content.text.strip()
        if same in seen.get(card.id, ()):
            done.append((card.line, f"removed a copy of {card.id}"))
            edits.append(Edit(gap_before(text, card.start), card.end, ""))
        elif card.id in seen:
            new = _free_id(card, used, today)
            done.append((card.line, f"{card.id} is now {new}: its id was taken"))
            edits += _renamed(box, card, new)
            seen.setdefault(new, set())
        seen.setdefault(card.id, set()).add(same)
    return Repaired(apply(text, edits), (), tuple(done))


def _cut(box: Mailbox, card: Card) -> Edit:
    return remove_card(box, card) if card in box.cards else Edit(card.start, card.end, "")


def _headings(work: _Repair) -> None:
    """Put back a heading that was deleted, above the table or the cards that it headed."""
    if not work.box.sections.keys() & {"active", "queue"} and not has_lost_headings(work.box):
        return  # v0 has neither
    for key in [key for key in TITLES if key not in work.box.sections]:
        box = work.box
        after = with_heading(box, key) if key != "active" else _above_cards(box)
        if key in after.sections and after.ids >= box.ids:
            work.note(after.sections[key].heading.number, f"put back the heading {TITLES[key]}")
            work.box = after


def _above_cards(box: Mailbox) -> Mailbox:
    if not box.cards:
        return box
    place = gap_before(box.text, box.cards[0].start)
    return box.edited([Edit(place, place, f"{box.newline if place else ''}{_ACTIVE}{box.newline}")])


def _sections(work: _Repair) -> None:
    """Add the section for cards where there is neither that nor a card; the others get theirs with their tables."""
    box = work.box
    if "active" not in box.sections and not box.cards:
        nl = box.newline
        place = box.sections["closed"].heading.start if "closed" in box.sections else len(box.text)
        lead = "" if not place or box.text[:place].endswith(2 * nl) else nl if box.text[:place].endswith(nl) else 2 * nl
        work.note(1, "added the section Active Messages")
        work.edit([Edit(place, place, f"{lead}{_ACTIVE}{nl}{nl if place < len(box.text) else ''}")])
    for key in ("snapshot", "queue", "closed"):
        after = with_table(work.box, key) if key != "closed" or "active" in work.box.sections else work.box
        if after is not work.box:
            work.note(1, f"added the table of the section {after.sections[key].heading.text.strip('# ')}")
            work.box = after


def _lost(work: _Repair, messages: Sequence[Message]) -> None:
    """Bring back the messages of which no card is left; what cannot become a card stays where it is."""
    for message in messages:
        for quoted in (False, True):
            text = card_text(message, work.box.newline, quoted=quoted)
            id = str(message.get("id"))
            after = work.box.edited([insert_card(work.box, id, text)]) if text is not None else work.box
            if after.find(id) is not None and others_unchanged(work.box, after, id):
                work.note(1, f"brought back {id} from {PROJECTION}")
                work.box = after
                break


def _repeated(work: _Repair) -> None:
    """Remove the heading and the table of a section that comes a second time; rows of closed messages move."""
    while work.box.repeated:
        box, heading = work.box, work.box.repeated[0]
        rest = box.lines[heading.number :]
        end = next((n for n, line in enumerate(rest) if line.text.startswith("#") and not line.hidden), len(rest))
        table = table_in(rest[:end])
        edits = [Edit(heading.start, heading.after, "")]
        if table is not None:
            head = box.lines[table.ruler.number - 2]
            edits.append(Edit(head.start, table.end, ""))
            if box.closed is not None and "closed" in heading.text.lower():
                edits += _moved_rows(box, table, box.closed)
        work.note(heading.number, f"removed the second section {heading.text.strip('# ')}")
        work.edit(edits)


def _moved_rows(box: Mailbox, source: Table, target: Table) -> list[Edit]:
    """The rows of a table that another one lacks, as rows of that."""
    there = {target.value(row, "id") for row in target.rows}
    lost = [row for row in source.rows if source.value(row, "id") not in there]
    return [
        insert_row(box, target, len(target.rows), [source.value(row, name) or _UNKNOWN for name in target.columns])
        for row in lost
    ]


def _outside(work: _Repair) -> None:
    while work.box.outside:
        box, card = work.box, work.box.outside[0]
        text = box.text[card.start : card.lines[-1].end] + box.newline
        work.note(card.line, f"moved {card.id} to Active Messages")
        work.edit([_cut(box, card)])
        work.edit([insert_card(work.box, card.id, text)])


def _copies(work: _Repair) -> None:
    """Remove each card that repeats another one word for word."""
    seen: set[str] = set()
    copies = []
    for card in work.box.cards:
        text = work.box.text[card.start : card.end].strip()
        copies += [card.line] if text in seen else []
        seen.add(text)
    for line in reversed(copies):
        card = next(card for card in work.box.cards if card.line == line)
        work.note(card.line, f"removed a copy of {card.id}")
        work.edit([_cut(work.box, card)])


def _formerly(work: _Repair, renamed: Mapping[str, str]) -> None:
    """Say on each card whose id somebody changed which one it had: that is given to no other."""
    for at in range(len(work.box.cards)):
        card = work.box.cards[at]
        if (old := renamed.get(card.id)) is not None and not card.get("formerly"):
            work.note(card.line, f"{card.id} was {old} before")
            work.edit(set_field(work.box, card, "formerly", "Formerly", old))


def _ids(work: _Repair) -> None:
    """Give each card an id of its own: of cards that share one, the oldest open card keeps it."""
    box = work.box
    taken = numbers_of([*box.ids, *ids_in(work.archive)])
    groups: dict[str, list[Card]] = {}
    for card in box.cards:
        groups.setdefault(card.id, []).append(card)
    edits: list[Edit] = []
    for id, cards in groups.items():
        last = cards if box.rising else list(reversed(cards))
        keeps = next((card for card in last if card.status not in TERMINAL), last[0]) if ID.fullmatch(id) else None
        for card in cards:
            if card is keeps:
                continue
            new = _free_id(card, taken, work.today)
            work.note(card.line, f"{id} is now {new}: its id was {'taken' if keeps else 'not valid'}")
            edits += _renamed(box, card, new)
    work.edit(edits)


def _free_id(card: Card, taken: dict[str, set[int]], today: str) -> str:
    """The next id of the day of a card; it is taken then."""
    day = _day(card, today)
    number = next_number(taken.get(day, ()))
    taken.setdefault(day, set()).add(number)
    return f"MSG-{day}-{number:03d}"


def _day(card: Card, today: str) -> str:
    for date in (card.order[0], card.get("date")[:10].replace("-", ""), today.replace("-", "")):
        try:
            return datetime.datetime.strptime(date, "%Y%m%d").strftime("%Y%m%d")
        except ValueError:
            continue
    return today.replace("-", "")


def _renamed(box: Mailbox, card: Card, new: str) -> list[Edit]:
    edits = [field.set(new) for field in card.fields if field.key == "message_id"]
    first = card.lines[0]
    if first.text.startswith("#"):
        start = first.start + first.text.index(card.id)
        edits.append(Edit(start, start + len(card.id), new))
    return [*edits, *set_field(box, card, "formerly", "Formerly", card.id)]


def _fields(work: _Repair) -> None:
    """Fill what a card must have, and settle fields with two values: the one that counts stays."""
    for at in range(len(work.box.cards)):
        card = work.box.cards[at]
        for key in UNIQUE_FIELDS:
            value = card.get(key)
            losers = [one for one in card.fields if one.key == key and one.value and one.value != value]
            if any(one.value.casefold() != value.casefold() for one in losers):
                work.note(card.line, f"{key} of {card.id} is {value!r}, which counted before")
                work.edit([one.set(value) for one in losers])
                card = work.box.cards[at]
        if not card.sender or not card.receiver:
            _route(work, card)
            card = work.box.cards[at]
        if card.status not in (*OPEN, *TERMINAL):
            status = _status(card)
            work.note(card.line, f"status of {card.id} is {status!r}, was {card.get('status')!r}")
            work.edit(set_field(work.box, card, "status", "Status", status))
            card = work.box.cards[at]
        if is_known(card.status) and (least := card.least(work.everyone)) != card.status:
            work.note(card.line, f"status of {card.id} is {least!r}, as for the last of its receivers")
            work.edit(set_field(work.box, card, "status", "Status", least))


def _route(work: _Repair, card: Card) -> None:
    known = _row_route(work.box, card)
    sender, receiver = known or (card.sender or _UNKNOWN, card.receiver or _MAINTAINER)
    lacks = "as the queue says" if known else f"it named no {'receiver' if card.sender else 'sender'}"
    work.note(card.line, f"{card.id} is from {sender} to {receiver}: {lacks}")
    arrow = card.dialect == "bold" or any(one.key == "from" and "->" in one.value for one in card.fields)
    if arrow:
        work.edit(set_field(work.box, card, "from", "From", f"{sender} -> {receiver}"))
        return
    work.edit(set_field(work.box, card, "from", "From", sender))
    card = next(one for one in work.box.cards if one.line == card.line)
    work.edit(set_field(work.box, card, "to", "To", receiver))


def _row_route(box: Mailbox, card: Card) -> tuple[str, str] | None:
    """Sender and receiver of a card as its row in the queue has them, if they do not contradict what it says itself."""
    table = box.queue
    rows = [row for row in table.rows if table.value(row, "id") == card.id] if table is not None else []
    if table is None or not rows:
        return None
    row = rows[0]
    sender, _, receiver = table.value(row, "from_to").replace("→", "->").partition("->")
    sender, receiver = (sender or table.value(row, "from")).strip(), (receiver or table.value(row, "to")).strip()
    said, known = ({*f"{one} {other}".casefold().split()} for one, other in (card.content.route, (sender, receiver)))
    return (sender, receiver) if sender and receiver and said <= known else None


def _status(card: Card) -> str:
    """The status of a card whose own word is unknown: a usual word for it, else the last one of its Ack lines."""
    said = status_word(card.get("status"))
    known = (*OPEN, *TERMINAL)
    words = [
        word for entry in card.entries("ack") for word in entry.lower().replace(".", " ").replace(":", " ").split()
    ]
    return _WORDS.get(said) or next((word for word in reversed(words) if word in known), "unread")


def _paraphrases(work: _Repair) -> None:
    edits = []
    for card in work.box.cards:
        if needs_paraphrase(card):
            work.note(card.line, f"{card.id} says that the paraphrase of its dense block is missing")
            edits.append(Edit(card.lines[-1].end, card.lines[-1].end, f"{2 * work.box.newline}Paraphrase: missing"))
    work.edit(edits)


def _terminal(work: _Repair) -> None:
    """Archive each terminal card that gives no reason to stay, with a row of the closed summary."""
    while True:
        cards = [card for card in work.box.cards if card.status in TERMINAL and not has_rationale(card)]
        if not cards:
            return
        card = cards[0]
        work.shelve(card, f"archived {card.id}, which is {card.status}")
        work.box = with_table(work.box, "closed")
        table = work.box.closed
        if table is not None and card.id not in {table.value(row, "id") for row in table.rows}:
            said = {
                "date": card.get("date")[:10] or work.today,
                "final_status": card.status,
                "outcome": "archived by turn tidy",
                "closed_by": card.sender,
            }
            values = [said.get(name) or column(card, name) or _UNKNOWN for name in table.columns]
            work.edit([insert_row(work.box, table, 0, values)])


def _reopened(work: _Repair) -> None:
    """Remove the rows of the closed summary whose card is open."""
    table = work.box.closed
    opened = {card.id for card in work.box.cards if card.status not in TERMINAL}
    rows = [row for row in table.rows if table.value(row, "id") in opened] if table is not None else []
    for row in rows:
        id = table.value(row, "id") if table else ""
        work.note(row.line.number, f"removed the row of {id} from the closed summary: its card is open")
    work.edit([_gone(row.line) for row in rows])


def _closed_rows(work: _Repair) -> None:
    table = work.box.closed
    if table is None:
        return
    seen: set[str] = set()
    edits = []
    for row in table.rows:
        id, line = table.value(row, "id"), row.line.number
        if not id or id in seen:
            work.note(line, f"removed a row of the closed summary: {id + ' has another' if id else 'it has no id'}")
            edits.append(_gone(row.line))
            continue
        seen.add(id)
        missing = [name for name in table.columns if name in CLOSED_COLUMNS and not table.value(row, name)]
        if missing:
            work.note(line, f"{', '.join(missing)} of the closed {id} is unknown")
            cells = [table.cell(row, name) for name in missing]
            if all(cells):
                edits += [fill(cell, _UNKNOWN) for cell in cells if cell]
            else:
                values = [table.value(row, name) or _UNKNOWN for name in table.columns]
                edits.append(Edit(row.line.start, row.line.end, row_text(values)))
    work.edit(edits)


def _gone(line: Line) -> Edit:
    return Edit(line.start, line.after, "")


def _order(work: _Repair) -> None:
    """Sort the cards as their section promises."""
    box = work.box
    heading = box.sections["active"].heading.text.lower() if "active" in box.sections else ""
    cards = sorted(box.cards, key=lambda card: card.order, reverse=True)
    if "newest first" not in heading or [card.order for card in cards] == [card.order for card in box.cards]:
        return
    moved = sum(one.order < other.order for one, other in itertools.pairwise(box.cards))
    work.note(box.cards[0].line, f"sorted the cards, newest first; out of order: {moved}")
    places = zip(box.cards, cards, strict=True)
    texts = [(old, box.text[new.start : new.lines[-1].end]) for old, new in places if old is not new]
    work.edit([Edit(old.start, old.lines[-1].end, text) for old, text in texts])


def _tables(work: _Repair) -> None:
    after = refresh(work.box, work.everyone)
    if after.text != work.box.text:
        work.note(
            after.sections["snapshot"].heading.number if "snapshot" in after.sections else 1, "rewrote the tables"
        )
    work.box = after
