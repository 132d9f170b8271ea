"""Sending and replying."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, get_args

import msgspec

from holdfast import errors
from holdfast.domains import agents
from holdfast.domains.holding import holder_of
from holdfast.domains.mail.rows import MESSAGE, Stored, encode_names, require, to_message
from holdfast.domains.tasks.creating import check_priority
from holdfast.domains.tasks.rows import require as require_task
from holdfast.domains.tasks.texts import check_line, check_text
from holdfast.kernel import fts
from holdfast.kernel.names import check_flag, check_name
from holdfast.kernel.tx import Tx
from holdfast.types.mail import MailType, Message

ALL: Final = "*"
TYPES: Final[tuple[MailType, ...]] = get_args(MailType)
MAX_RECEIVERS: Final = 1000  # named
MAX_KNOWN: Final = 10_000  # by "*"
MAX_SUBJECT: Final = 500  # characters
MAX_BODY: Final = 262_144  # bytes


def send(
    tx: Tx,
    to: str | Sequence[str],
    subject: str,
    body: str = "",
    thread: str | None = None,
    task: str | None = None,
    priority: int = 2,
    type: MailType = "notify",
    ack: bool = False,
    sender: str | None = None,
) -> Message:
    """Send a message to one, to several, or with `"*"` to all agents that are known.

    It starts a thread of its own unless `thread` names one. It may hang on a `task`. `ack`: an answer is wanted.
    """
    sender = holder_of(tx, sender, "sender")
    named = None if thread is None else _thread(tx, thread)
    subject = check_line(subject, "subject", MAX_SUBJECT)
    about = None if task is None else require_task(tx, task).id
    return _send(tx, sender, _check_to(to), subject, body, named, about, priority, type, ack, None)


def _thread(tx: Tx, name: str) -> str:
    """The thread of that name, or that of the message with this id."""
    check_name(name, "thread")
    row = tx.one("SELECT thread FROM messages WHERE id = ?", (name,))
    return name if row is None else row[0]


def reply(
    tx: Tx,
    id: str,
    body: str,
    type: MailType = "notify",
    priority: int | None = None,
    ack: bool = False,
    to: str | Sequence[str] | None = None,
    subject: str | None = None,
    sender: str | None = None,
) -> Message:
    """Answer a message in its thread: to its sender, or of one's own to its receivers. It acknowledges nothing."""
    sender = holder_of(tx, sender, "sender")
    original = require(tx, id)
    if to is None:
        to = original.sender if original.sender != sender else _receivers(tx, original)
    if subject is None:
        subject = original.subject if original.subject.startswith("Re: ") else f"Re: {original.subject}"[:MAX_SUBJECT]
    subject = check_line(subject, "subject", MAX_SUBJECT)
    urgency = original.priority if priority is None else priority
    receivers = _check_to(to)
    return _send(tx, sender, receivers, subject, body, original.thread, original.task, urgency, type, ack, original.id)


def _send(
    tx: Tx,
    sender: str,
    to: tuple[str, ...],
    subject: str,
    body: str,
    thread: str | None,
    task: str | None,
    priority: int,
    type: MailType,
    ack: bool,
    answers: str | None,
) -> Message:
    check_text(body, "body", MAX_BODY)
    check_priority(priority)
    if type not in TYPES:
        raise errors.InvalidType(f"type is one of {', '.join(TYPES)}, not {str(type)[:80]!r}")
    check_flag(ack=ack)
    receivers = _everybody(tx, sender) if to == (ALL,) else to
    row = tx.one("SELECT coalesce(max(seq), 0) + 1 FROM messages")
    assert row is not None
    seq: int = row[0]
    id = tx.new_id()
    thread = id if thread is None else thread
    tx.run(
        "INSERT INTO messages (seq, id, thread, task, sender, type, priority, ack, answers, sent, closed, version,"
        " revision, receiver) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, 1, ?, ?)",
        (
            *(seq, id, thread, task, sender, type, priority, int(ack), answers, tx.now, tx.revision),
            encode_names(to).decode(),
        ),
    )
    tx.many(
        "INSERT INTO deliveries (message, agent, status, updated) VALUES (?, ?, 'unread', ?)",
        [(seq, receiver, tx.now) for receiver in receivers],
    )
    tx.run("INSERT INTO message_texts (seq, subject, body) VALUES (?, ?, ?)", (seq, subject, body))
    fts.learn(tx.run, "message_texts", seq)
    data: dict[str, Any] = {"sender": sender, "to": receivers, "thread": thread, "task": task, "type": type}
    data |= {"priority": priority, "ack": ack, "answers": answers, "subject": subject, "body": body}
    tx.emit(MESSAGE, id, "send", version=1, data=msgspec.msgpack.encode(data))
    return to_message(tx, require(tx, id))


def _check_to(to: Any) -> tuple[str, ...]:
    """Whom it is for, each once and in order; `*` stands alone."""
    given = (to,) if isinstance(to, str) else to
    if not isinstance(given, Sequence | set | frozenset) or isinstance(given, bytes):
        raise errors.Invalid(f"to is a name or a list of names, not {to!r}", hint='"*" is all agents that are known')
    for name in given:
        check_name(name, "to")
    names = tuple(sorted(set(given)))
    if not names:
        raise errors.Invalid("nobody to send it to", hint='name one or several agents, or "*" for all')
    if ALL in names and len(names) > 1:
        raise errors.Invalid('"*" is all agents: nobody else need be named')
    if len(names) > MAX_RECEIVERS:
        raise errors.TooLarge(f"a message has at most {MAX_RECEIVERS} receivers", limit=MAX_RECEIVERS)
    return names


def _everybody(tx: Tx, sender: str) -> tuple[str, ...]:
    """All that are known but the sender."""
    names = tuple(name for name in agents.known(tx) if name != sender)
    if not names:
        raise errors.NotFound("no other agent is known", hint="agents are known once they register or write")
    if len(names) > MAX_KNOWN:
        raise errors.TooLarge(
            f"{len(names)} agents are known, {MAX_KNOWN} is the most a message reaches",
            hint="agents.forget(name) drops those that are gone",
            limit=MAX_KNOWN,
        )
    return names


def _receivers(tx: Tx, stored: Stored) -> tuple[str, ...]:
    return tuple(to_message(tx, stored).status)
