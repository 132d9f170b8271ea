"""What follows from the cards: the snapshot and queue tables of MAILBOX.md, and MAILBOX.json. Never edited by hand.

Pure and deterministic. The cards are the truth; a count or row that differs is drift. `refresh` corrects both tables
cell by cell, so correct cells stay as they are written. `render` gives MAILBOX.json with every field of every card;
`generated_at` stays the same while nothing else changes, so that regenerating makes no diff, and staleness is judged
by content, not by time or folder. Called by `draft`, `steps`, `invariants`, `mail`, `locks` and `report`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from holdfast.turnfile.mailbox import Mailbox, insert_row, parse
from holdfast.turnfile.mailbox.cards import ARROW, OPEN, Card, fold, order_of, status_word
from holdfast.turnfile.mailbox.markdown import Edit, Row, Table, fill, row_text

NOTHING: Final = ("none", "", "-", "—", "n/a")
ALIASES: Final = {"pri": "priority", "message_id": "id", "message": "id", "due": "response_needed_by"}


class Inbox(msgspec.Struct, frozen=True):
    """The unread messages of one agent."""

    agent: str
    unread: int
    oldest: Card


def inboxes(cards: Iterable[Card], everyone: Sequence[str] = ()) -> dict[str, Inbox]:
    """The unread messages of each agent, by folded name, in the order of the cards; `everyone` is whom `all` means."""
    found: dict[str, Inbox] = {}
    for card in cards:
        states = card.states(everyone) if is_open(card) else {}
        for name in (name for name, state in states.items() if state == "unread"):
            before = found.get(fold(name), Inbox(name, 0, card))
            oldest = min(before.oldest, card, key=lambda card: card.order)
            found[fold(name)] = Inbox(before.agent, before.unread + 1, oldest)
    return found


def is_open(card: Card) -> bool:
    """Whether a card belongs in the queue."""
    return card.status in OPEN


def column(card: Card, name: str) -> str:
    """A card's value in a column of the queue; empty if the card has none."""
    name = ALIASES.get(name, name)
    route = f"{card.sender} -> {card.receiver}"
    known = {"id": card.id, "from_to": route, "from": card.sender, "to": card.receiver, "status": card.status}
    return known[name] if name in known else card.get(name)


def same_value(name: str, one: str, other: str) -> bool:
    """Whether two cells of a column mean the same, however arrow or status are written."""
    if name == "status":
        return status_word(one) == status_word(other)
    return [part.strip() for part in ARROW.split(one)] == [part.strip() for part in ARROW.split(other)]


def drifted(key: str, said: str, value: str) -> bool:
    """Whether a cell of the queue says something else than its card; a subject may be shortened by hand."""
    said, value = " ".join(said.split()).casefold(), " ".join(value.split()).casefold()
    if not value or said == value:
        return False
    short = said.rstrip(".… ")  # by its beginning, or to some of its words
    return not (key == "subject" and short and (value.startswith(short) or {*short.split()} <= {*value.split()}))


def refresh(box: Mailbox, everyone: Sequence[str] = ()) -> Mailbox:
    """The mailbox with snapshot and queue made to match the cards; a missing table is added."""
    box = with_table(with_table(box, "snapshot"), "queue")
    return box.edited([*_snapshot(box, everyone), *_queue(box)])


# Heading, columns and key column of each table.
_TABLES: Final = {
    "snapshot": ("## Inbox Snapshot", ("Agent", "Unread", "Oldest unread", "Needs response by"), "agent"),
    "queue": ("## Open Queue (Newest First)", ("ID", "From -> To", "Priority", "Subject"), "id"),
    "closed": ("## Closed Summary (Newest First)", ("ID", "Date", "From -> To", "Final status", "Outcome"), "id"),
}


def with_table(box: Mailbox, key: str) -> Mailbox:
    """The mailbox with the table of a section, and with the section.

    v0, which has no sections, stays as it is, and so does a file in which the new table would become part of a card. A
    table without its key column cannot be read: a new one is put above it.
    """
    heading, columns, name = _TABLES[key]
    table: Table | None = getattr(box, key)
    if table is not None and name in table.columns:
        return box
    if key not in box.sections and key != "closed" and "active" not in box.sections:
        return box
    nl = box.newline
    new = f"{nl}{row_text(columns)}{nl}|{'|'.join('-' * (len(column) + 2) for column in columns)}|{nl}"
    if key in box.sections:
        place = box.sections[key].heading.after
    else:
        before = box.sections["active"].heading if key != "closed" else None
        if key == "snapshot" and "queue" in box.sections:
            before = min(before or box.lines[0], box.sections["queue"].heading, key=lambda line: line.start)
        place = before.start if before else len(box.text)
        new = f"{'' if before else nl}{heading}{nl}{new}{nl if before else ''}"
    lead = "" if not place or box.text[:place].endswith("\n") else nl
    after = box.edited([Edit(place, place, lead + new)])
    return after if _same_cards(box, after) else box


def _same_cards(one: Mailbox, other: Mailbox) -> bool:
    texts = ([box.text[card.start : card.end].rstrip() for card in box.cards] for box in (one, other))
    return next(texts) == next(texts)


def _snapshot(box: Mailbox, everyone: Sequence[str]) -> list[Edit]:
    table = box.snapshot
    if table is None or "agent" not in table.columns:
        return []
    due = inboxes(box.cards, everyone)
    edits: list[Edit] = []
    seen: set[str] = set()
    for row in table.rows:
        agent = fold(table.value(row, "agent"))
        if agent in seen:
            edits.append(Edit(row.line.start, row.line.after, ""))
            continue
        seen.add(agent)
        inbox = due.pop(agent, None)
        edits += _change(table, row, _inbox_row(table, row, inbox))
    for inbox in due.values():
        due_by = inbox.oldest.get("response_needed_by") or "none"
        values = {"agent": inbox.agent, **_counts(inbox), "needs_response_by": due_by}
        edits.append(insert_row(box, table, len(table.rows), [values.get(name, "none") for name in table.columns]))
    return edits


def _inbox_row(table: Table, row: Row, inbox: Inbox | None) -> dict[str, str]:
    """The changes of an agent's row; the response date is only updated if the counts change."""
    wanted = _counts(inbox)
    was = {name: table.value(row, name) for name in wanted}
    if was["unread"] == wanted["unread"] and fold(was["oldest_unread"]) in (
        NOTHING if inbox is None else (fold(wanted["oldest_unread"]),)
    ):
        return {}
    kept = table.value(row, "needs_response_by") if was["oldest_unread"] == wanted["oldest_unread"] else "none"
    return {**wanted, "needs_response_by": "none" if inbox is None else inbox.oldest.get("response_needed_by") or kept}


def _counts(inbox: Inbox | None) -> dict[str, str]:
    if inbox is None:
        return {"unread": "0", "oldest_unread": "none"}
    return {"unread": str(inbox.unread), "oldest_unread": inbox.oldest.id}


def _queue(box: Mailbox) -> list[Edit]:
    table = box.queue
    if table is None or "id" not in table.columns:
        return []
    waiting = {card.id: card for card in reversed(box.cards) if is_open(card)}
    edits: list[Edit] = []
    for row in table.rows:
        card = waiting.pop(table.value(row, "id"), None)
        if card is None:
            edits.append(Edit(row.line.start, row.line.after, ""))
            continue
        said = {name: column(card, name) for name in table.columns}
        was = {name: table.value(row, name) for name in said}
        if not drifted("subject", was.get("subject", ""), card.get("subject")):
            said.pop("subject", None)
        wanted = {name: said[name] for name in said if said[name] and not same_value(name, was[name], said[name])}
        edits += _change(table, row, wanted)
    for card in sorted(waiting.values(), key=lambda card: card.order, reverse=True):
        older = (n for n, row in enumerate(table.rows) if order_of(table.value(row, "id")) < card.order)
        place = next(older, len(table.rows))
        edits.append(insert_row(box, table, place, [column(card, name) or "none" for name in table.columns]))
    return edits


def _change(table: Table, row: Row, wanted: dict[str, str]) -> list[Edit]:
    """The edits that set a row's cells; a row that lacks a cell is rewritten."""
    wanted = {name: new for name, new in wanted.items() if name in table.columns and table.value(row, name) != new}
    cells = {name: table.cell(row, name) for name in wanted}
    if any(cell is None for cell in cells.values()):
        values = [wanted.get(name) or table.value(row, name) or "none" for name in table.columns]
        return [Edit(row.line.start, row.line.end, row_text(values))]
    return [fill(cell, wanted[name]) for name, cell in cells.items() if cell is not None]


_METADATA: Final = ("date_initialized", "protocol", "last_format_migration", "full_history")
_ROW: Final = ("id", "date", "from_to", "type", "priority", "due", "status", "subject", "final_status", "outcome")
_INCIDENTAL: Final = ("generated_at", "source_file", "output_file")


def project(box: Mailbox) -> dict[str, Any]:
    """The contents of the projection, without time and source file."""
    return {
        "schema_id": "turnfile.mailbox",
        "schema_version": "1.0.0",
        "projection_kind": "mailbox",
        "format_version": "mailbox-compact-v1",
        "metadata": _metadata(box),
        "inbox_snapshot": [_inbox(box.snapshot, row) for row in box.snapshot.rows] if box.snapshot else [],
        "open_queue": [_row(box.queue, row) for row in box.queue.rows] if box.queue else [],
        "active_messages": [message(card) for card in box.cards],
        "closed_summary": [_row(box.closed, row) for row in box.closed.rows] if box.closed else [],
    }


def render(mailbox_text: str, source_file: str, generated_at: str, previous: str | None = None) -> str:
    """The text of MAILBOX.json; `previous`, the old text, is returned if its content is the same."""
    said = project(parse(mailbox_text))
    if previous is not None:
        old = _decode(previous)
        if old is not None and old.get("source_file") == source_file and _essence(old) == said:
            return previous
    first = {key: said[key] for key in ("schema_id", "schema_version", "projection_kind")}
    whole = {**first, "generated_at": generated_at, "source_file": source_file, **said}
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode() + "\n"


def is_stale(mailbox_text: str, projection_text: str) -> bool:
    """Whether a projection differs from its mailbox, or cannot be parsed."""
    old = _decode(projection_text)
    return old is None or _essence(old) != project(parse(mailbox_text))


def only_there(mailbox_text: str, projection_text: str) -> int:
    """How many messages a projection has that its mailbox lacks."""
    messages = (_decode(projection_text) or {}).get("active_messages")
    listed = {each.get("id") for each in messages if isinstance(each, dict)} if isinstance(messages, list) else set()
    return len(listed - {card.id for card in parse(mailbox_text).cards})


def message(card: Card) -> dict[str, Any]:
    """A message as data."""
    fields = {field.key: field.value for field in card.fields if field.dialect != "bold" and field.key != "message_id"}
    fields |= {field.key: field.value for field in card.fields if field.dialect == "bold"}
    fields |= {"from": card.sender, "to": card.receiver}
    return {
        "id": card.id,
        "dialect": card.dialect,
        "status": card.status,
        "fields": fields,
        "summary": list(card.entries("summary")),
        "body": card.body,
        "ack": list(card.entries("ack")),
        "reply": list(card.entries("reply")),
        **({"payload": msgspec.to_builtins(card.payload)} if card.payload else {}),
    }


def _metadata(box: Mailbox) -> dict[str, str | None]:
    said: dict[str, str | None] = dict.fromkeys(_METADATA)
    for field in box.metadata:
        value = field.value
        said[field.key] = value[1:-1] if value[:1] == value[-1:] == "`" and value.count("`") == 2 else value
    return said


def _inbox(table: Table, row: Row) -> dict[str, Any]:
    said: dict[str, Any] = {name: table.value(row, name) for name in table.columns}
    unread = said.get("unread", "")
    if unread.isascii() and unread.isdigit() and len(unread) < 10:
        said["unread"] = int(unread)
    return said


def _row(table: Table, row: Row) -> dict[str, str]:
    return dict.fromkeys(_ROW, "") | {name: table.value(row, name) for name in table.columns}


def _decode(text: str) -> dict[str, Any] | None:
    try:
        said = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def _essence(said: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in said.items() if key not in _INCIDENTAL}
