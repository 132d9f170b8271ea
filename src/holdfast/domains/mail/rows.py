"""Messages as they are stored: one row each, a row for every receiver, and the text apart, where a search looks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.kernel.names import check_name
from holdfast.kernel.tx import Row, Snapshot, Tx
from holdfast.types.base import as_time
from holdfast.types.mail import MailStatus, MailType, Message

MESSAGE: Final = "message"
COLUMNS: Final = (
    "m.seq, m.id, m.thread, m.task, m.sender, m.type, m.priority, m.ack, m.answers, m.sent, m.closed, m.version,"
    " m.revision, m.receiver, x.subject, x.body"
)
SOURCE: Final = "messages m JOIN message_texts x ON x.seq = m.seq"
_names = msgspec.json.Decoder(tuple[str, ...]).decode
encode_names = msgspec.json.Encoder().encode


class Stored(msgspec.Struct, frozen=True):
    """A row of `messages` with its texts, as COLUMNS name them."""

    seq: int
    id: str
    thread: str
    task: str | None
    sender: str
    type: MailType
    priority: int
    ack: int
    answers: str | None
    sent: int
    closed: int | None
    version: int
    revision: int
    receiver: str
    subject: str
    body: str


def to_message(snapshot: Snapshot, stored: Stored) -> Message:
    """The public form, with where it stands for each receiver."""
    rows = snapshot.all("SELECT agent, status FROM deliveries WHERE message = ? ORDER BY agent", (stored.seq,))
    return Message(
        stored.id,
        stored.thread,
        stored.sender,
        _names(stored.receiver),
        stored.subject,
        stored.body,
        stored.type,
        stored.priority,
        bool(stored.ack),
        stored.task,
        stored.answers,
        as_time(stored.sent),
        None if stored.closed is None else as_time(stored.closed),
        dict(rows),
        stored.version,
        stored.revision,
    )


def require(snapshot: Snapshot, id: str) -> Stored:
    """A message by its id; MessageNotFound if there is none."""
    check_name(id, "id")
    row = snapshot.one(f"SELECT {COLUMNS} FROM {SOURCE} WHERE m.id = ?", (id,))
    if row is None:
        raise errors.MessageNotFound(f"there is no message {id!r}", hint="mail.inbox() has yours", id=id)
    return Stored(*row)


def select(snapshot: Snapshot, where: str, params: Sequence[Any]) -> list[Stored]:
    """Messages under a condition."""
    return [Stored(*row) for row in snapshot.all(f"SELECT {COLUMNS} FROM {SOURCE} WHERE {where}", params)]


def status_of(snapshot: Snapshot, stored: Stored, agent: str) -> MailStatus | None:
    """Where a message stands for one receiver; None if it was not sent to that."""
    row: Row | None = snapshot.one("SELECT status FROM deliveries WHERE message = ? AND agent = ?", (stored.seq, agent))
    return None if row is None else row[0]


def change(tx: Tx, stored: Stored, op: str, data: dict[str, Any], closed: int | None = None) -> Message:
    """Log a step in the life of a message; its rows of receivers have been changed."""
    version = stored.version + 1
    tx.run(
        "UPDATE messages SET version = ?, revision = ?, closed = ? WHERE seq = ?",
        (version, tx.revision, closed, stored.seq),
    )
    tx.emit(MESSAGE, stored.id, op, version=version, data=msgspec.msgpack.encode(data))
    return to_message(tx, require(tx, stored.id))
