"""The rules of a coherent MAILBOX.md (R4): ids, cards, queue, snapshot, closed summary; each breach with its line.

Pure. What is compared is what the file says with what its cards say; a breach never stops the others from being
found. Called by `invariants`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Final

from holdfast.turnfile.mailbox.cards import ID, OPEN, TERMINAL, Card
from holdfast.turnfile.mailbox.derived import NOTHING, Inbox, fold, inboxes, is_open, same
from holdfast.turnfile.mailbox.document import Mailbox
from holdfast.turnfile.mailbox.markdown import Table, unclosed
from holdfast.turnfile.model import Level

Breach = tuple[int, Level, str, str]

_NEEDED: Final = ("from", "to", "status")
_CLOSED: Final = ("id", "date", "from_to", "final_status", "outcome", "subject", "closed_by")
_RATIONALE: Final = re.compile(
    r"(?:[-*|] *|\*\*)?(?:Retained|Retention|Rationale)[A-Za-z ]{0,30}[:|*]{1,3} *[^ |:*]", re.IGNORECASE
)
_DENSE: Final = re.compile(r"[ \t]*(?:`{3,}|~{3,})[ \t]*dense\b", re.IGNORECASE)


def breaches(box: Mailbox) -> Iterator[Breach]:
    """All that is wrong with a mailbox: line, level, rule, message."""
    yield from _ids(box)
    for card in box.cards:
        yield from _card(card)
    yield from _queue(box)
    yield from _snapshot(box)
    yield from _closed(box)
    for line in unclosed(box.lines):
        yield line.number, "warning", "fence-open", "a code fence or comment is opened here and never closed"


def changes(before: Mailbox, after: Mailbox) -> Iterator[Breach]:
    """What a change may not do: give a new message an id that is not the highest of its day, or lose an open one."""
    old = {card.id for card in before.cards} | _closed_ids(before)
    now = {card.id for card in after.cards} | _closed_ids(after)
    highest: dict[str, int] = {}
    for match in ID.finditer(before.text):
        highest[match[1]] = max(highest.get(match[1], 0), int(match[2]))
    for card in after.cards:
        date, sequence = card.order
        if card.id not in old and sequence <= highest.get(date, 0):
            yield card.line, "error", "id-reused", f"{card.id} is new, but not above the highest id of its day"
    for card in before.cards:
        if is_open(card) and card.id not in now:
            yield 1, "error", "message-lost", f"{card.id} was {card.status}, and is neither here nor closed any more"


def _closed_ids(box: Mailbox) -> set[str]:
    return {box.closed.value(row, "id") for row in box.closed.rows} if box.closed else set()


def _ids(box: Mailbox) -> Iterator[Breach]:
    seen: dict[str, Card] = {}
    for card in box.cards:
        if not ID.fullmatch(card.id):
            yield card.line, "error", "id-form", f"{card.id} is no id: MSG-YYYYMMDD-NNN"
        if card.id in seen:
            yield card.line, "error", "id-twice", f"{card.id} is also the card of line {seen[card.id].line}"
        seen.setdefault(card.id, card)
    heading = box.sections["active"].heading.text.lower() if "active" in box.sections else ""
    level: Level = "error" if "newest first" in heading else "warning"  # an order that nobody promised
    falling = level == "error" or not box.rising
    for one, other in itertools.pairwise(box.cards):
        if one.id != other.id and (one.order < other.order) == falling:
            order = "newest first" if falling else "oldest first"
            yield other.line, level, "id-order", f"{other.id} comes after {one.id}: the cards are not {order}"
    closed = _closed_ids(box)
    for card in box.cards:
        if card.id in closed and is_open(card):
            yield card.line, "error", "id-closed", f"{card.id} is open, and in the closed summary"


def _card(card: Card) -> Iterator[Breach]:
    said = {"from": card.sender, "to": card.receiver, "status": card.status}
    for name in _NEEDED:
        if not said[name]:
            yield card.line, "error", "card-field", f"{card.id} does not say its {name}"
    line = card.line_of("status")
    if card.status and card.status not in OPEN and card.status not in TERMINAL:
        yield line, "error", "status-unknown", f"{card.id} is {card.status!r}: one of {', '.join((*OPEN, 'closed'))}"
    if card.status in TERMINAL and not any(_RATIONALE.match(one.text) for one in card.lines if not one.hidden):
        message = (
            f"{card.id} is {card.status}, but neither moved to the closed summary nor kept with a line `Retained:`"
        )
        yield line, "error", "terminal-active", message
    for key in ("status", "priority", "type", "subject", "date"):
        values = {field.value.casefold(): field for field in card.fields if field.key == key and field.value}
        if len(values) > 1:
            where = list(values.values())[-1].line.number
            yield where, "error", "field-twice", f"{card.id} says its {key} twice, and not the same"
    dense = next((line for line in card.lines if _DENSE.match(line.text)), None)
    if dense and not any("paraphrase" in line.text.lower() for line in card.lines if not line.hidden):
        yield dense.number, "error", "dense", f"{card.id} has a dense block without a paraphrase"


def _queue(box: Mailbox) -> Iterator[Breach]:
    listed: set[str] = set()
    if box.queue is not None:
        yield from _rows(box, box.queue, listed)
    elif "queue" not in box.sections and "active" not in box.sections:
        return  # v0 knows no queue
    for card in box.cards:
        if is_open(card) and card.id not in listed:
            yield card.line, "error", "queue-missing", f"{card.id} is {card.status}, but not in the queue"


def _rows(box: Mailbox, table: Table, listed: set[str]) -> Iterator[Breach]:
    """What is wrong with the rows of the queue; fills in which messages they list."""
    cards = {card.id: card for card in reversed(box.cards)}
    for row in table.rows:
        id, line = table.value(row, "id"), row.line.number
        card = cards.get(id)
        if id in listed:
            yield line, "error", "queue-twice", f"{id} is in the queue twice"
        elif card is None:
            yield line, "error", "queue-orphan", f"{id or 'a row'} is in the queue, but there is no such card"
        elif card.status in TERMINAL:
            yield line, "error", "queue-terminal", f"{id} is in the queue, but it is {card.status}"
        elif "status" in table.columns and not same("status", table.value(row, "status"), card.status):
            yield line, "error", "queue-status", f"{id} is {card.status}, the queue says {table.value(row, 'status')!r}"
        listed.add(id)


def _snapshot(box: Mailbox) -> Iterator[Breach]:
    due = inboxes(box.cards)
    seen: set[str] = set()
    if box.snapshot is not None:
        yield from _counts(box.snapshot, due, seen)
    elif "snapshot" not in box.sections and "active" not in box.sections:
        return
    for name, inbox in due.items():
        if name not in seen:
            message = f"{inbox.agent} has {inbox.unread} unread, but is not in the snapshot"
            yield inbox.oldest.line, "error", "snapshot-missing", message


def _counts(table: Table, due: dict[str, Inbox], seen: set[str]) -> Iterator[Breach]:
    """What is wrong with the rows of the snapshot; fills in whom they name."""
    for row in table.rows:
        agent, line = table.value(row, "agent"), row.line.number
        if fold(agent) in seen:
            yield line, "error", "snapshot-twice", f"{agent} is in the snapshot twice"
            continue
        seen.add(fold(agent))
        inbox = due.get(fold(agent))
        count, said = inbox.unread if inbox else 0, table.value(row, "unread")
        if said != str(count):
            yield line, "error", "unread-count", f"{agent} has {count} unread, the snapshot says {said!r}"
        oldest = table.value(row, "oldest_unread")
        if inbox is None and fold(oldest) not in NOTHING:
            yield line, "error", "oldest-unread", f"{agent} has nothing unread, the snapshot says {oldest}"
        elif inbox is not None and fold(oldest) != fold(inbox.oldest.id):
            message = f"the oldest unread of {agent} is {inbox.oldest.id}, the snapshot says {oldest!r}"
            yield line, "error", "oldest-unread", message


def _closed(box: Mailbox) -> Iterator[Breach]:
    table = box.closed
    if table is None:
        return
    seen: set[str] = set()
    for row in table.rows:
        id, line = table.value(row, "id"), row.line.number
        if id in seen:
            yield line, "error", "closed-twice", f"{id} is in the closed summary twice"
        seen.add(id)
        for name in table.columns:
            if name in _CLOSED and not table.value(row, name):
                yield line, "error", "closed-field", f"the closed {id or 'message'} lacks its {name}"
