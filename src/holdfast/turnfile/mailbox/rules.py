"""The rules of a mailbox (R4): tables that agree with the cards, unique ids in order, cards that have what they need.

Pure: a parsed mailbox in, problems with line numbers out. `breaches` finds what is wrong with a mailbox, all of it;
`illegal_changes` what is wrong with a change from one to another. Called by `invariants` and `repair`.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.turnfile.mailbox import Mailbox
from holdfast.turnfile.mailbox.cards import (
    ALL,
    DECISIONS,
    OPEN,
    TERMINAL,
    Card,
    fold,
    is_known,
    order_of,
)
from holdfast.turnfile.mailbox.content import Content, status_word
from holdfast.turnfile.mailbox.lost import Message
from holdfast.turnfile.mailbox.markdown import Row, Table, unclosed
from holdfast.turnfile.mailbox.projection import (
    ALIASES,
    NOTHING,
    Inbox,
    drifted,
    has_lost_headings,
    inboxes,
    is_as_written,
    is_open,
    same_value,
)
from holdfast.turnfile.model import Level, next_number

Breach = tuple[int, Level, str, str]
"""A problem of one file: line, level, rule, message."""

TITLES: Final = {
    **{"snapshot": "Inbox Snapshot", "queue": "Open Queue (Newest First)"},
    **{"active": "Active Messages (Newest First)", "closed": "Closed Summary (Newest First)"},
}
CLOSED_COLUMNS: Final = ("id", "date", "from_to", "final_status", "outcome", "subject", "closed_by")
_RATIONALE: Final = re.compile(
    r"(?:[-*|] *|\*\*)?(?:Retained|Retention|Rationale)[A-Za-z ]{0,30}[:|*]{1,3} *[^ |:*]", re.IGNORECASE
)
UNIQUE_FIELDS: Final = ("status", "priority", "type", "subject", "date")
_DENSE: Final = re.compile(r"[ \t]*(?:`{3,}|~{3,})[ \t]*dense\b", re.IGNORECASE)


def breaches(box: Mailbox, everyone: Sequence[str] = ()) -> Iterator[Breach]:
    """The problems of a mailbox; `everyone` is whom `all` means."""
    if not box.sections and not box.cards and not has_lost_headings(box):
        message = "this is not a mailbox: it has no section Active Messages and no card"
        yield 1, "error", "no-sections", f"{message}; turnfile.tidy(session, actor) adds the sections"
    for heading in box.repeated:
        yield heading.number, "error", "section-twice", f"{heading.text.strip('# ')} is a section for the second time"
    headed = box.sections.keys() & {"active", "queue"} or has_lost_headings(box)
    for key, title in TITLES.items() if headed else ():  # v0 has neither
        if key not in box.sections:
            yield 1, "error", "section-missing", f"{title} is missing; turnfile.tidy(session, actor) brings it back"
    yield from _ids(box)
    names = tuple(everyone)
    for card in box.cards:
        if not _is_fine(card.content, names):
            yield from _card(card, everyone)
    yield from _queue(box)
    yield from _snapshot(box, everyone)
    yield from _closed(box)
    for line in unclosed(box.text):
        yield line.number, "warning", "fence-open", "this code fence or comment is never closed"


def illegal_changes(before: Mailbox, after: Mailbox, lost: Sequence[Message] = ()) -> Iterator[Breach]:
    """Problems of a change: a new message whose id is not the highest of its day, or an open message that is lost.

    Messages that were lost before may come back.
    """
    old = before.closed_ids.union([card.id for card in (*before.cards, *before.outside)])
    old |= {str(each.get("id")) for each in lost}
    new = [card for card in after.cards if card.id not in old]
    used = before.numbers if new else {}
    for card in new:
        date, sequence = card.order
        if sequence < next_number(used.get(date, ())):
            yield card.line, "error", "id-reused", f"{card.id} is new, but its id is not above the highest of its day"
    now = after.closed_ids.union([card.id for card in after.cards])
    gone = [card for card in before.cards if card.id not in now and is_open(card)]
    renamed = {card.get("formerly") for card in after.cards if gone}
    for card in gone:
        if card.id not in renamed:
            yield 1, "error", "message-lost", f"{card.id} was {card.status}, and is now neither active nor closed"


def _ids(box: Mailbox) -> Iterator[Breach]:
    seen: dict[str, Card] = {}
    ordered = [(order_of(card.id), card) for card in box.cards]
    for (date, _), card in ordered:
        if not date:
            yield card.line, "error", "id-form", f"{card.id} is not an id of the form MSG-YYYYMMDD-NNN"
        if card.id in seen:
            yield card.line, "error", "id-twice", f"{card.id} is a duplicate of the card in line {seen[card.id].line}"
        seen.setdefault(card.id, card)
    heading = box.sections["active"].heading.text.lower() if "active" in box.sections else ""
    level: Level = "error" if "newest first" in heading else "warning"  # the file promises no order
    falling = not box.rising
    for (before, one), (after, other) in itertools.pairwise(ordered):
        if (before < after) == falling and one.id != other.id:
            order = "newest first" if falling else "oldest first"
            yield other.line, level, "id-order", f"{other.id} follows {one.id}: the cards are not {order}"
    for card in box.outside:
        message = f"{card.id} is a card outside the section Active Messages, where nobody finds it"
        yield card.line, "error", "card-outside", message
    for card in box.cards if box.closed_ids else ():
        if card.id in box.closed_ids and is_open(card):
            yield card.line, "error", "id-closed", f"{card.id} is open, but is in the closed summary"


@functools.lru_cache(maxsize=20_000)  # most cards of a mailbox are as they were
def _is_fine(content: Content, everyone: tuple[str, ...]) -> bool:
    """Whether a card has no problem of its own."""
    if content.is_plain and content.status in OPEN and content.route[0] and len(content.receivers) == 1:
        values, lone = content.values, fold(content.receivers[0]) not in ALL
        fenced = "```" in content.text or "~~~" in content.text
        if lone and not fenced and "disposition" not in values and "payload" not in values:
            return True  # nothing that `_card` looks for
    return not any(_card(Card("", 0, 1, content), everyone))


def _card(card: Card, everyone: Sequence[str]) -> Iterator[Breach]:
    for name, value in (("from", card.sender), ("to", card.receiver), ("status", card.status)):
        if not value:
            yield card.line, "error", "card-field", f"{card.id} has no {name}"
    if card.status and card.status not in OPEN and card.status not in TERMINAL:
        message = f"{card.id} has status {card.status!r}; use {', '.join((*OPEN, 'closed'))}"
        yield card.line_of("status"), "error", "status-unknown", message
    if card.status in TERMINAL and not has_rationale(card):
        repair = "move it to the closed summary, or add a line `Retained:` with the reason"
        yield card.line_of("status"), "error", "terminal-active", f"{card.id} is {card.status}: {repair}"
    if is_known(card.status) and (least := card.least(everyone)) != card.status:
        late = ", ".join(name for name, state in card.states(everyone).items() if state == least)
        yield card.line_of("status"), "error", "status-receivers", f"{card.id} is {card.status}, but {least} for {late}"
    disposition = status_word(card.get("disposition"))
    if disposition and disposition not in (*TERMINAL, *DECISIONS):
        message = f"{card.id} has disposition {disposition!r}; use {', '.join((*DECISIONS, *TERMINAL))}"
        yield card.line_of("disposition"), "warning", "disposition-unknown", message
    keys = [key for key, _, _ in card.content.said]
    for key in UNIQUE_FIELDS if len(keys) > len(card.content.values) else ():
        values = {field.value.casefold(): field for field in card.fields if field.key == key and field.value}
        if len(values) > 1:
            where = list(values.values())[-1].line.number
            yield where, "error", "field-twice", f"{card.id} has two different values of {key}"
    for value in card.content.damaged_payload:
        message = f"{card.id} carries a file whose line cannot be read: {value[:80]!r}"
        yield card.line_of("payload"), "warning", "payload", message
    if needs_paraphrase(card):
        dense = next(line for line in card.lines if _DENSE.match(line.text))
        yield dense.number, "error", "dense", f"{card.id} has a dense block without a paraphrase"


def has_rationale(card: Card) -> bool:
    """Whether a card has a line that says why it stays although it is closed."""
    return any(_RATIONALE.match(one.text) for one in card.lines if not one.hidden)


def needs_paraphrase(card: Card) -> bool:
    """Whether a card has a dense block and no paraphrase of it."""
    if "dense" not in card.content.text.lower() or not any(_DENSE.match(line.text) for line in card.lines):
        return False
    return not any("paraphrase" in line.text.lower() for line in card.lines if not line.hidden)


def _queue(box: Mailbox) -> Iterator[Breach]:
    listed: set[str] = set()
    if box.queue is not None:
        yield from _rows(box, box.queue, listed)
    elif "queue" not in box.sections and "active" not in box.sections:
        return  # v0 has no queue
    for card in box.cards:
        if card.id not in listed and is_open(card):
            yield card.line, "error", "queue-missing", f"{card.id} is {card.status}, but not in the queue"


def _rows(box: Mailbox, table: Table, listed: set[str]) -> Iterator[Breach]:
    """Problems of the queue's rows; adds the messages that they list to `listed`."""
    cards = {card.id: card for card in reversed(box.cards)}
    for row, id in zip(table.rows, table.values("id"), strict=True):
        card = cards.get(id)
        line = row.line.number
        if id in listed:
            yield line, "error", "queue-twice", f"{id} is in the queue twice"
        elif card is not None and is_open(card) and is_as_written(table, row, card):
            pass
        elif card is None:
            yield line, "error", "queue-orphan", f"{id or 'a row'} is in the queue, but has no card"
        elif card.status in TERMINAL:
            yield line, "error", "queue-terminal", f"{id} is {card.status}, but still in the queue"
        elif "status" in table.columns and not same_value("status", table.value(row, "status"), card.status):
            message = f"{id} is {card.status}, but the queue says {table.value(row, 'status')!r}"
            yield line, "error", "queue-status", message
        else:
            yield from _drift(table, row, card)
        listed.add(id)


def _drift(table: Table, row: Row, card: Card) -> Iterator[Breach]:
    """Problems of a row whose priority or subject is not that of its card; a shortened subject is fine."""
    for name in table.columns:
        key, said = ALIASES.get(name, name), table.value(row, name)
        if key in ("priority", "subject") and drifted(key, said, card.get(key)):
            yield row.line.number, "error", f"queue-{key}", f"{card.id} has {key} {card.get(key)!r}, the queue {said!r}"


def _snapshot(box: Mailbox, everyone: Sequence[str]) -> Iterator[Breach]:
    due = inboxes(box.cards, everyone)
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
    """Problems of the snapshot's rows; adds the agents that they name to `seen`."""
    for row in table.rows:
        agent, line = table.value(row, "agent"), row.line.number
        if fold(agent) in seen:
            yield line, "error", "snapshot-twice", f"{agent} is in the snapshot twice"
            continue
        seen.add(fold(agent))
        inbox = due.get(fold(agent))
        count, said = inbox.unread if inbox else 0, table.value(row, "unread")
        if said != str(count):
            yield line, "error", "unread-count", f"{agent} has {count} unread, but the snapshot says {said!r}"
        oldest = table.value(row, "oldest_unread")
        if inbox is None and fold(oldest) not in NOTHING:
            yield line, "error", "oldest-unread", f"{agent} has nothing unread, but the snapshot says {oldest}"
        elif inbox is not None and fold(oldest) != fold(inbox.oldest.id):
            message = f"{agent} has {inbox.oldest.id} as its oldest unread, but the snapshot says {oldest!r}"
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
            if name in CLOSED_COLUMNS and not table.value(row, name):
                yield line, "error", "closed-field", f"the closed {id or 'message'} has no {name}"
