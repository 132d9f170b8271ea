"""MAILBOX.json: what a MAILBOX.md says, for programs. It is derived, never edited.

Pure and deterministic: one mailbox gives one projection, but for `generated_at`, which stays as it was while nothing
else changes, so that regenerating makes no diff. Every field of every card is there, whatever its dialect. Whether a
projection is stale is told by what it says, not by when or from which folder it was made.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.turnfile.mailbox.cards import Card
from holdfast.turnfile.mailbox.document import Mailbox, parse
from holdfast.turnfile.mailbox.markdown import Row, Table

SCHEMA_ID: Final = "turnfile.mailbox"
SCHEMA_VERSION: Final = "1.0.0"
PROJECTION_KIND: Final = "mailbox"
FORMAT_VERSION: Final = "mailbox-compact-v1"

_METADATA: Final = ("date_initialized", "protocol", "last_format_migration", "full_history")
_ROW: Final = ("id", "date", "from_to", "type", "priority", "due", "status", "subject", "final_status", "outcome")
_INCIDENTAL: Final = ("generated_at", "source_file", "output_file")


def project(box: Mailbox) -> dict[str, Any]:
    """What the projection says of a mailbox, without when and from where."""
    return {
        "schema_id": SCHEMA_ID,
        "schema_version": SCHEMA_VERSION,
        "projection_kind": PROJECTION_KIND,
        "format_version": FORMAT_VERSION,
        "metadata": _metadata(box),
        "inbox_snapshot": [_inbox(box.snapshot, row) for row in box.snapshot.rows] if box.snapshot else [],
        "open_queue": [_row(box.queue, row) for row in box.queue.rows] if box.queue else [],
        "active_messages": [message(card) for card in box.cards],
        "closed_summary": [_row(box.closed, row) for row in box.closed.rows] if box.closed else [],
    }


def render(mailbox_text: str, source_file: str, generated_at: str, previous: str | None = None) -> str:
    """The text of MAILBOX.json; where `previous` (the old text) says the same, that text itself."""
    said = project(parse(mailbox_text))
    if previous is not None:
        old = _decode(previous)
        if old is not None and old.get("source_file") == source_file and _essence(old) == said:
            return previous
    first = {key: said[key] for key in ("schema_id", "schema_version", "projection_kind")}
    whole = {**first, "generated_at": generated_at, "source_file": source_file, **said}
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode() + "\n"


def is_stale(mailbox_text: str, projection_text: str) -> bool:
    """Whether a projection says something else than its mailbox; one that cannot be read is stale."""
    old = _decode(projection_text)
    return old is None or _essence(old) != project(parse(mailbox_text))


def message(card: Card) -> dict[str, Any]:
    """A message as programs see it."""
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
