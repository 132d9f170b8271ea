"""What follows from the cards: the snapshot and queue tables of MAILBOX.md, and MAILBOX.json. Never edited by hand.

Pure and deterministic. The cards are the truth; a count or row that differs is drift. `refresh` corrects both tables
cell by cell, so correct cells stay as they are written. `render` gives MAILBOX.json with every field of every card;
`generated_at` stays the same while nothing else changes, so that regenerating makes no diff, and staleness is judged
by content, not by time or folder. Called by `draft`, `steps`, `invariants`, `mail`, `locks` and `report`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from holdfast.turnfile.mailbox import Mailbox, insert_row, parse, set_field
from holdfast.turnfile.mailbox.cards import ALL, OPEN, PROGRESS, Card, fold, is_known, order_of
from holdfast.turnfile.mailbox.content import ARROW, Content, status_word
from holdfast.turnfile.mailbox.lost import LOST, Message, ids_of, still_lost
from holdfast.turnfile.mailbox.markdown import Edit, Row, Table, fill, row_text, table_in

NOTHING: Final = ("none", "", "-", "—", "n/a")
ALIASES: Final = {"pri": "priority", "message_id": "id", "message": "id", "due": "response_needed_by"}


class Inbox(msgspec.Struct, frozen=True):
    """The unread messages of one agent."""

    agent: str
    unread: int
    oldest: Card


def inboxes(cards: Iterable[Card], everyone: Sequence[str] = ()) -> dict[str, Inbox]:
    """The unread messages of each agent, by folded name, in the order of the cards; `everyone` is whom `all` means."""
    unread: dict[str, list[tuple[str, Card]]] = {}
    for card in cards:
        status, receivers = card.content.status, card.content.receivers
        if status not in OPEN:
            continue
        if len(receivers) == 1 and (folded := fold(receivers[0])) not in ALL:  # which says the status of them all
            if status == "unread":
                unread.setdefault(folded, []).append((receivers[0], card))
            continue
        for name, state in card.states(everyone).items():
            if state == "unread":
                unread.setdefault(fold(name), []).append((name, card))
    return {
        folded: Inbox(found[0][0], len(found), min([card for _, card in found], key=lambda card: order_of(card.id)))
        for folded, found in unread.items()
    }


def is_open(card: Card) -> bool:
    """Whether a card belongs in the queue."""
    return card.status in OPEN


def column(card: Card, name: str) -> str:
    """A card's value in a column of the queue; empty if the card has none."""
    name, content = ALIASES.get(name, name), card.content
    if name == "id":
        return card.id
    if name in ("from_to", "from", "to"):
        sender, receiver = content.route
        return f"{sender} -> {receiver}" if name == "from_to" else sender if name == "from" else receiver
    return content.status if name == "status" else content.values.get(name, "")


def is_as_written(table: Table, row: Row, card: Card) -> bool:
    """Whether a row says of a card what we write."""
    return row.values == _as_written(card.id, card.content, table.columns)


@functools.lru_cache(maxsize=20_000)
def _as_written(id: str, content: Content, columns: tuple[str, ...]) -> tuple[str, ...]:
    card = Card(id, 0, 1, content)
    return tuple([column(card, name) or "none" for name in columns])


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
    """The mailbox with snapshot and queue made to match the cards; a missing table is added.

    A message to all whose receivers have become more gets the status of the least advanced of them.
    """
    box = with_table(with_table(box, "snapshot"), "queue")
    if edits := _statuses(box, everyone):
        box = box.edited(edits)
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
    if key not in box.sections and _same_cards(box, headed := with_heading(box, key)) and getattr(headed, key):
        return headed
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


# Whether a table with these columns is that of a section.
_HEADED: Final[dict[str, Callable[[set[str]], bool]]] = {
    "snapshot": {"agent", "unread"}.issubset,
    "queue": lambda columns: "id" in columns and bool(columns & {"priority", "pri"}),
    "closed": lambda columns: "id" in columns and bool(columns & {"final_status", "outcome", "closed_by"}),
}


def with_heading(box: Mailbox, key: str) -> Mailbox:
    """The mailbox with a heading that was deleted above the table that it headed, the last of those with its columns.

    Unchanged if no table that belongs to no section has them.
    """
    known = {table.ruler.number for table in (box.snapshot, box.queue, box.closed) if table is not None}
    place = None
    for above, ruler in itertools.pairwise(box.lines):
        if ruler.hidden or ruler.number in known or not ruler.text.lstrip().startswith("|"):
            continue
        table = table_in([above, ruler])
        if table is not None and _HEADED[key](set(table.columns)):
            place = above.start
    if place is None:
        return box
    lead = box.newline if place else ""
    return box.edited([Edit(place, place, f"{lead}{_TABLES[key][0]}{2 * box.newline}")])


def has_lost_headings(box: Mailbox) -> bool:
    """Whether a mailbox has lost all of its headings: there is a queue above the cards, which v0 does not have."""
    if box.sections.keys() & {"snapshot", "queue", "active"}:
        return False
    above = parse(box.text[: box.cards[0].start]) if box.cards else box
    return with_heading(above, "queue") is not above


def _same_cards(one: Mailbox, other: Mailbox) -> bool:
    texts = ([card.content.text.rstrip() for card in box.cards] for box in (one, other))
    return next(texts) == next(texts)


def _statuses(box: Mailbox, everyone: Sequence[str]) -> list[Edit]:
    """The edits that set back the status of a message to all: somebody of everyone has not got as far."""
    edits: list[Edit] = []
    for card in box.cards:
        if is_known(card.status) and card.status != "unread" and card.is_to_all:
            least = card.least(everyone)
            if PROGRESS.index(least) < PROGRESS.index(card.status):
                edits += set_field(box, card, "status", "Status", least)
    return edits


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
    for row, id in zip(table.rows, table.values("id"), strict=True):
        card = waiting.pop(id, None)
        if card is None:
            edits.append(Edit(row.line.start, row.line.after, ""))
            continue
        if is_as_written(table, row, card):
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
_FIXED: Final = {
    "schema_id": "turnfile.mailbox",
    "schema_version": "1.0.0",
    "projection_kind": "mailbox",
    "format_version": "mailbox-compact-v1",
}
_INCIDENTAL: Final = ("generated_at", "source_file", "output_file")


def project(box: Mailbox) -> dict[str, Any]:
    """The contents of the projection, without time and source file."""
    return {key: _decoded("".join(pieces)) for key, pieces in _parts(box).items()}


def render(
    mailbox_text: str,
    source_file: str,
    generated_at: str,
    previous: str | None = None,
    lost: Sequence[Message] = (),
) -> str:
    """The text of MAILBOX.json; `previous`, the old text, is returned if its content is the same.

    `lost` are messages that only the old text has: those that are not in the mailbox now are kept apart.
    """
    box = parse(mailbox_text)
    parts = _parts(box)
    if left := still_lost(lost, box):
        parts[LOST] = _list(map(_item, left))
    ids = {card.id for card in box.cards}.union([str(each.get("id") or "") for each in left])
    if previous is not None and ids_of(previous) == ids:  # else it is another one, which is known sooner that way
        old = _members(previous)
        if old is not None and _same(old.get("source_file"), source_file) and _agree(old, parts):
            return previous
    first = {key: parts.pop(key) for key in ("schema_id", "schema_version", "projection_kind")}
    about = {"generated_at": [_member(generated_at)], "source_file": [_member(source_file)]}
    text: list[str] = []
    for key, pieces in {**first, **about, **parts}.items():
        text += (",\n  " if text else "{\n  ", f'"{key}": ', *pieces)
    return "".join((*text, "\n}\n"))


def is_stale(mailbox_text: str, projection_text: str) -> bool:
    """Whether a projection differs from its mailbox, or cannot be parsed."""
    old = _members(projection_text)
    if old is not None:
        old.pop(LOST, None)
    return old is None or not _agree(old, _parts(parse(mailbox_text)))


def _parts(box: Mailbox) -> dict[str, list[str]]:
    """The members of the projection as they are written there, in pieces: what a card says is formatted once."""
    tables = {"inbox_snapshot": box.snapshot, "open_queue": box.queue, "closed_summary": box.closed}
    found = {key: [_member(value)] for key, value in {**_FIXED, "metadata": _metadata(box)}.items()}
    for key in ("inbox_snapshot", "open_queue", "active_messages", "closed_summary"):
        table, said = tables.get(key), _inbox if key == "inbox_snapshot" else _row
        if key == "active_messages":
            found[key] = _list([_message(card.id, card.content) for card in box.cards])
        else:
            found[key] = [_member([said(table.columns, row.values) for row in table.rows] if table else [])]
    return found


def _list(items: Iterable[str]) -> list[str]:
    """The pieces of a member that is a list of such items."""
    pieces = [piece for item in items for piece in (",\n    ", item)]
    return ["[\n    ", *pieces[1:], "\n  ]"] if pieces else ["[]"]


def _item(value: object) -> str:
    """A value as it is written two levels deep."""
    return _formatted(((value,),))[len("[\n  [\n    ") : -len("\n  ]\n]")].decode()


def _member(value: object) -> str:
    """A value as it is written one level deep."""
    return _formatted((value,))[len("[\n  ") : -len("\n]")].decode()


def _formatted(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2)


def _members(text: str) -> dict[str, msgspec.Raw] | None:
    """The members of a projection, not decoded; None if it is not a JSON object."""
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _agree(old: dict[str, msgspec.Raw], parts: dict[str, list[str]]) -> bool:
    """Whether a projection says what a mailbox says, however it is formatted."""
    if old.keys() - {*_INCIDENTAL} != parts.keys():
        return False
    try:
        return all(_agrees(old[key], "".join(pieces)) for key, pieces in parts.items())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False


def _agrees(raw: msgspec.Raw, text: str) -> bool:
    return bytes(raw) == text.encode() or bool(_decoded(raw) == _decoded(text))


def _same(raw: msgspec.Raw | None, value: str) -> bool:
    return raw is not None and _decoded(raw) == value


def _decoded(raw: msgspec.Raw | str) -> Any:
    return msgspec.json.decode(raw)


def message(card: Card) -> dict[str, Any]:
    """A message as data."""
    content = card.content
    fields = content.values
    if not content.is_plain:
        fields = {key: value for key, dialect, value in content.said if dialect != "bold" and key != "message_id"}
        fields |= {key: value for key, dialect, value in content.said if dialect == "bold"}
    sender, receiver = content.route
    said = {
        "id": card.id,
        "dialect": content.dialect,
        "status": content.status,
        "fields": {**fields, "from": sender, "to": receiver},
        "summary": [*content.entries("summary")],
        "body": content.body,
        "ack": [*content.entries("ack")],
        "reply": [*content.entries("reply")],
    }
    if "payload" in fields and content.payload:
        said["payload"] = msgspec.to_builtins(content.payload)
    if "payload" in fields and content.damaged_payload:
        said["damaged_payload"] = [*content.damaged_payload]
    return said


@functools.lru_cache(maxsize=20_000)
def _message(id: str, content: Content) -> str:
    return _item(message(Card(id, 0, 1, content)))


def closed_row(box: Mailbox, id: str) -> dict[str, str] | None:
    """The row of a message in the closed summary as data, or None."""
    rows = box.closed.rows if box.closed else ()
    found = (_row(box.closed.columns, row.values) for row in rows if box.closed and box.closed.value(row, "id") == id)
    return next(found, None)


def _metadata(box: Mailbox) -> dict[str, str | None]:
    said: dict[str, str | None] = dict.fromkeys(_METADATA)
    for field in box.metadata:
        value = field.value
        said[field.key] = value[1:-1] if value[:1] == value[-1:] == "`" and value.count("`") == 2 else value
    return said


@functools.lru_cache(maxsize=1_000)
def _inbox(columns: tuple[str, ...], values: tuple[str, ...]) -> dict[str, Any]:
    said: dict[str, Any] = dict.fromkeys(columns, "") | _named(columns, values)
    unread = said.get("unread", "")
    if unread.isascii() and unread.isdigit() and len(unread) < 10:
        said["unread"] = int(unread)
    return said


@functools.lru_cache(maxsize=40_000)
def _row(columns: tuple[str, ...], values: tuple[str, ...]) -> dict[str, str]:
    return _empty_row(columns) | _named(columns, values)


@functools.lru_cache(maxsize=64)
def _empty_row(columns: tuple[str, ...]) -> dict[str, str]:
    return dict.fromkeys((*_ROW, *columns), "")


def _named(columns: tuple[str, ...], values: tuple[str, ...]) -> dict[str, str]:
    """The values by their columns; of two columns with one name the first counts."""
    named = dict(zip(columns, values, strict=False))
    if len(named) < min(len(columns), len(values)):
        named = dict(reversed([*zip(columns, values, strict=False)]))
    return named
