"""What the tables of a mailbox must say, derived from its cards: unread counts, oldest unread, the open queue.

Pure. The cards are the truth; a count or a row that says otherwise is drift. `refresh` gives the edits that put the
two tables right, cell by cell and row by row, so that what was right stays as it was written; `invariants` compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from holdfast.turnfile.mailbox.cards import OPEN, Card, order_of
from holdfast.turnfile.mailbox.document import Mailbox, insert_row
from holdfast.turnfile.mailbox.markdown import Edit, Row, Table, fill, row_text

NOTHING: Final = ("none", "", "-", "—", "n/a")
_ARROW: Final = re.compile(r"->|→")
_ALIASES: Final = {"pri": "priority", "message_id": "id", "message": "id", "due": "response_needed_by"}


class Inbox(msgspec.Struct, frozen=True):
    """The unread messages of one agent."""

    agent: str
    unread: int
    oldest: Card


def fold(name: str) -> str:
    """A name as it is compared: `Codex`, `codex` and `` `codex` `` are one."""
    return name.strip().strip("`").strip().casefold()


def inboxes(cards: Iterable[Card]) -> dict[str, Inbox]:
    """Who has unread messages, by folded name, in the order of the cards."""
    found: dict[str, Inbox] = {}
    for card in cards:
        for name in card.receivers if card.status == "unread" else ():
            before = found.get(fold(name))
            oldest = card if before is None else min(before.oldest, card, key=lambda card: card.order)
            found[fold(name)] = Inbox(
                name if before is None else before.agent, (before.unread if before else 0) + 1, oldest
            )
    return found


def is_open(card: Card) -> bool:
    """Whether a card belongs into the queue."""
    return card.status in OPEN


def route_of(card: Card) -> str:
    """From whom to whom, as the tables say it."""
    return f"{card.sender} -> {card.receiver}"


def column(card: Card, name: str) -> str:
    """What a column of the queue says of a card; nothing where the card says nothing."""
    name = _ALIASES.get(name, name)
    known = {"id": card.id, "from_to": route_of(card), "from": card.sender, "to": card.receiver, "status": card.status}
    return known[name] if name in known else card.get(name)


def same(name: str, one: str, other: str) -> bool:
    """Whether two cells of a column say the same, however the arrow or the status is written."""
    if name == "status":
        return re.findall(r"[a-z_-]+", one.lower())[:1] == re.findall(r"[a-z_-]+", other.lower())[:1]
    return [part.strip() for part in _ARROW.split(one)] == [part.strip() for part in _ARROW.split(other)]


def refresh(box: Mailbox) -> Mailbox:
    """The mailbox with its snapshot and its queue as the cards have it."""
    return box.edited([*_snapshot(box), *_queue(box)])


def _snapshot(box: Mailbox) -> list[Edit]:
    table = box.snapshot
    if table is None or "agent" not in table.columns:
        return []
    due = inboxes(box.cards)
    edits: list[Edit] = []
    for row in table.rows:
        inbox = due.pop(fold(table.value(row, "agent")), None)
        edits += _change(table, row, _inbox_row(table, row, inbox))
    for inbox in due.values():
        values = {"agent": inbox.agent, **_counts(inbox), "needs_response_by": _due(inbox)}
        edits.append(insert_row(box, table, len(table.rows), [values.get(name, "none") for name in table.columns]))
    return edits


def _inbox_row(table: Table, row: Row, inbox: Inbox | None) -> dict[str, str]:
    """What has to change in an agent's row; when an answer is due is only asked where something did."""
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


def _due(inbox: Inbox) -> str:
    return inbox.oldest.get("response_needed_by") or "none"


def _queue(box: Mailbox) -> list[Edit]:
    table = box.queue
    if table is None or "id" not in table.columns:
        return []
    waiting = {card.id: card for card in box.cards if is_open(card)}
    edits: list[Edit] = []
    for row in table.rows:
        card = waiting.pop(table.value(row, "id"), None)
        if card is None:
            edits.append(Edit(row.line.start, row.line.after, ""))
            continue
        # A subject may have been shortened by hand, and stays so.
        said = {name: column(card, name) for name in table.columns if name != "subject" or not table.value(row, name)}
        edits += _change(
            table,
            row,
            {name: value for name, value in said.items() if value and not same(name, table.value(row, name), value)},
        )
    for card in sorted(waiting.values(), key=lambda card: card.order, reverse=True):
        place = next(
            (n for n, row in enumerate(table.rows) if order_of(table.value(row, "id")) < card.order), len(table.rows)
        )
        edits.append(insert_row(box, table, place, [column(card, name) or "none" for name in table.columns]))
    return edits


def _change(table: Table, row: Row, wanted: dict[str, str]) -> list[Edit]:
    """The edits that make a row say what is wanted; a row that lacks a cell is written anew."""
    wanted = {
        name: value for name, value in wanted.items() if name in table.columns and table.value(row, name) != value
    }
    cells = {name: table.cell(row, name) for name in wanted}
    if any(cell is None for cell in cells.values()):
        values = [wanted.get(name) or table.value(row, name) or "none" for name in table.columns]
        return [Edit(row.line.start, row.line.end, row_text(values))]
    return [fill(cell, wanted[name]) for name, cell in cells.items() if cell is not None]
