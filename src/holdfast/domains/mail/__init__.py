"""`ws.mail`: messages between agents, in threads, about tasks, with a status for each recipient.

A recipient acknowledges a message, acts on it, or says what it waits for; the sender or a maintainer closes it for all.
A closed message stays closed. Reading does not change the status. `messages` has how messages are stored and read; this
module has sending, the steps, and the table of operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, get_args

import msgspec

from holdfast import errors
from holdfast.domains import agents
from holdfast.domains.mail import messages
from holdfast.domains.mail.messages import (
    ALL,
    MESSAGE,
    Stored,
    change,
    encode_names,
    require,
    short_of,
    status_of,
    to_message,
)
from holdfast.domains.tasks.creation import check_line, check_note, check_priority, check_text
from holdfast.domains.tasks.rows import require as require_task
from holdfast.kernel.leases import holder_of
from holdfast.kernel.tx import Tx, index_text
from holdfast.kernel.validate import check_flag, check_name
from holdfast.operation import Domain, Found, M, read, read_as, write
from holdfast.route import example
from holdfast.types.agents import MailStatus, MailType, Message

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
    """Send a message to one agent, to several, or with `"*"` to all known agents.

    It starts a thread of its own unless `thread` names one, and may be about a `task`. `ack` asks for an answer. A
    recipient that has neither registered nor written is warned about: it may be mistyped.
    """
    sender = holder_of(tx, sender, "sender")
    named = None if thread is None else messages.thread_of(tx, thread, "thread")
    subject = check_line(subject, "subject", MAX_SUBJECT)
    about = None if task is None else require_task(tx, task).id
    return _send(tx, sender, _check_to(to), subject, body, named, about, priority, type, ack, None)


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
    """Reply to a message in its thread: to its sender, or for one's own to its recipients. Acknowledges nothing."""
    sender = holder_of(tx, sender, "sender")
    original = require(tx, id)
    if to is None:
        to = original.sender if original.sender != sender else tuple(to_message(tx, original).status)
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
        raise errors.InvalidType(f"type must be one of {', '.join(TYPES)}, not {str(type)[:80]!r}")
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
    tx.many(
        "INSERT INTO mailboxes (agent, unread) VALUES (?, 1) ON CONFLICT (agent) DO UPDATE SET unread = unread + 1",
        [(receiver,) for receiver in receivers],
    )
    tx.run("INSERT INTO message_texts (seq, subject, body) VALUES (?, ?, ?)", (seq, subject, body))
    index_text(tx.run, "message_texts", seq)
    warnings = () if to == (ALL,) else agents.unknown(tx, to, sender)
    data: dict[str, Any] = {"sender": sender, "to": receivers, "thread": thread, "task": task, "type": type}
    data |= {"priority": priority, "ack": ack, "answers": answers, "subject": subject, "body": body}
    data["short"] = short_of(seq)
    tx.emit(MESSAGE, id, "send", version=1, data=msgspec.msgpack.encode(data))
    return msgspec.structs.replace(to_message(tx, require(tx, id)), warnings=warnings)


def _check_to(to: Any) -> tuple[str, ...]:
    """Return the recipients, each once and in order; `*` stands alone."""
    given = (to,) if isinstance(to, str) else to
    if not isinstance(given, Sequence | set | frozenset) or isinstance(given, bytes):
        raise errors.Invalid(f"to must be a name or a list of names, not {to!r}", hint='"*" means all known agents')
    for name in given:
        check_name(name, "to")
    names = tuple(sorted(set(given)))
    if not names:
        raise errors.Invalid("the message has no recipient", hint='name one or more agents, or "*" for all')
    if ALL in names and len(names) > 1:
        raise errors.Invalid('"*" means all agents', hint="omit the other names")
    if len(names) > MAX_RECEIVERS:
        raise errors.TooLarge(f"a message has at most {MAX_RECEIVERS} recipients", limit=MAX_RECEIVERS)
    return names


def _everybody(tx: Tx, sender: str) -> tuple[str, ...]:
    """Return all known agents except the sender."""
    names = tuple(name for name in agents.known(tx) if name != sender)
    if not names:
        raise errors.NotFound("no other agent is known", hint="agents are known once they register or write")
    if len(names) > MAX_KNOWN:
        message = f"{len(names)} agents are known; a message reaches at most {MAX_KNOWN}"
        raise errors.TooLarge(message, hint="remove those that are gone: agents.forget(name)", limit=MAX_KNOWN)
    return names


# The recipient's operations: from which statuses each leads to which.
STEPS: Final[dict[str, tuple[tuple[MailStatus, ...], MailStatus]]] = {
    "ack": (("unread", "blocked"), "acknowledged"),
    "action": (("unread", "acknowledged", "blocked"), "actioned"),
    "block": (("acknowledged",), "blocked"),
}


def ack(tx: Tx, id: str, agent: str | None = None, note: str | None = None) -> Message:
    """Acknowledge a message. Raises NotRecipient, or InvalidTransition."""
    return _step(tx, id, "ack", agent, check_note(note))


def action(tx: Tx, id: str, agent: str | None = None, note: str | None = None) -> Message:
    """Mark a message as acted on. Raises NotRecipient, or InvalidTransition."""
    return _step(tx, id, "action", agent, check_note(note))


def block(tx: Tx, id: str, reason: str, agent: str | None = None) -> Message:
    """Say what prevents acting on an acknowledged message. Raises NotRecipient, or InvalidTransition."""
    if check_note(reason, "reason") is None or not reason.strip():
        raise errors.Invalid("block needs a reason", hint="say what it waits for")
    return _step(tx, id, "block", agent, reason)


def close(tx: Tx, id: str, agent: str | None = None, note: str | None = None) -> Message:
    """Close a message for all recipients. Raises NotSender unless called by its sender or a maintainer."""
    check_note(note)
    agent = holder_of(tx, agent, "agent")
    stored = require(tx, id)
    if stored.closed is not None:
        raise _illegal(stored, "close", "closed", "closed")
    if agent != stored.sender and agents.role_of(tx, agent) != "maintainer":
        message = f"message {id} was sent by {stored.sender}; {agent} may not close it"
        hint = "recipients acknowledge or action a message; its sender or a maintainer closes it"
        raise errors.NotSender(message, hint=hint, id=id, sender=stored.sender)
    tx.run(
        "UPDATE mailboxes SET unread = unread - 1 WHERE agent IN"
        " (SELECT agent FROM deliveries WHERE message = ? AND status = 'unread')",
        (stored.seq,),
    )
    tx.run("UPDATE deliveries SET status = 'closed', updated = ? WHERE message = ?", (tx.now, stored.seq))
    return change(tx, stored, "close", _said(agent, note), closed=tx.now)


def _step(tx: Tx, id: str, op: str, agent: str | None, note: str | None) -> Message:
    agent = holder_of(tx, agent, "agent")
    stored = require(tx, id)
    status = status_of(tx, stored, agent)
    if status is None:
        raise errors.NotRecipient(f"message {id} was not sent to {agent}", id=id, agent=agent)
    sources, target = STEPS[op]
    if status not in sources:
        raise _illegal(stored, op, status, target)
    tx.run(
        "UPDATE deliveries SET status = ?, updated = ? WHERE message = ? AND agent = ?",
        (target, tx.now, stored.seq, agent),
    )
    if status == "unread":
        tx.run("UPDATE mailboxes SET unread = unread - 1 WHERE agent = ?", (agent,))
    return change(tx, stored, op, {**_said(agent, note), "status": [status, target]})


def _said(agent: str, note: str | None) -> dict[str, Any]:
    return {"agent": agent} if note is None else {"agent": agent, "note": note}


def _illegal(stored: Stored, op: str, status: MailStatus, target: MailStatus) -> errors.InvalidTransition:
    ways = {name: goal for name, (sources, goal) in STEPS.items() if status in sources}
    known = ", ".join(f"{goal} by {name}" for name, goal in ways.items())
    hint = f"from {status}: {known}" if ways else f"{status} is final"
    message = f"{op} cannot change message {stored.id} from {status} to {target}"
    statuses = {"current_status": status, "requested_status": target, "valid_transitions": [*ways.values()]}
    return errors.InvalidTransition(message, hint=hint, id=stored.id, **statuses)


_ONE = "/api/mail/{id}"


def probe(tx: Tx, id: str) -> Found | None:
    """What a condition of `txn` sees of a message: whether it is open or closed."""
    try:
        stored = messages.require(tx, id)
    except errors.MessageNotFound:
        return None
    return Found(stored.version, "open" if stored.closed is None else "closed")


# What examples need.
_MAIL: Final = "holdfast mail send agent-1 'Which port?' '8080 is taken.' --task hf-7k2q --actor agent-2"
_READ: Final = (_MAIL, "holdfast mail ack $(holdfast mail inbox -q --limit 1)")
_SENT: Final = "holdfast mail send agent-2 'The API is frozen'"
_THEIRS: Final = "holdfast claim hf-7k2q --actor agent-2"
_NOTES: Final = "echo 'Comments begin with a hash.' > notes.md"


class Mail(Domain[M]):
    """`ws.mail`."""

    prefix = "mail"
    send = write(
        send,
        http="POST /api/mail",
        cli="mail send TO SUBJECT [BODY]",
        help="Send a message to an agent, to several, or to all.",
        examples=(
            "holdfast mail send agent-2 'Which port?' '8080 is taken.' --type request --ack",
            "holdfast mail send agent-2,agent-3 'The API is frozen' --task hf-7k2q",
            example("holdfast mail send '*' 'Release at noon' - < notes.md", _NOTES, _THEIRS),
        ),
        arguments={"type": "notify, request, decision-required, objection or handoff-ready"},
        creates=True,
        mcp="mail_send",
    )
    reply = write(
        reply,
        http=f"POST {_ONE}/reply",
        cli="mail reply ID BODY...",
        help="Answer a message in its thread; this acknowledges nothing.",
        examples=(example("holdfast mail reply $(holdfast mail inbox -q --limit 1) 'Take 9090.'", _MAIL),),
        arguments={"type": "notify, request, decision-required, objection or handoff-ready"},
        creates=True,
        mcp="mail_send",
    )
    ack = write(
        ack,
        http=f"POST {_ONE}/ack",
        cli="mail ack ID [NOTE]",
        help="Say that you have taken notice of a message.",
        examples=(example("holdfast mail ack $(holdfast mail inbox -q --limit 1) 'will do'", _MAIL),),
        mcp="mail_inbox",
    )
    action = write(
        action,
        http=f"POST {_ONE}/action",
        cli="mail action ID [NOTE]",
        help="Say that you have done what a message asked for.",
        examples=(example("holdfast mail action $(holdfast mail inbox -q --limit 1) 'it is 9090'", _MAIL),),
    )
    block = write(
        block,
        http=f"POST {_ONE}/block",
        cli="mail block",
        help="Say what you wait for before you can act on a message.",
        examples=(example("holdfast mail block $(holdfast mail inbox -q --limit 1) 'no list of ports'", *_READ),),
    )
    close = write(
        close,
        http=f"POST {_ONE}/close",
        cli="mail close ID [NOTE]",
        help="Close a message for all; only its sender or a maintainer can.",
        examples=(example("holdfast mail close $(holdfast mail sent -q --limit 1) 'settled'", _SENT),),
        mcp="mail_inbox",
    )

    inbox = read_as(
        messages.inbox,
        http="GET /api/mail",
        cli="mail inbox",
        help="List your messages that are not closed, newest first.",
        examples=("holdfast mail inbox", example("holdfast mail inbox --unread --json", _MAIL)),
        private=True,
        mcp="mail_inbox",
    )
    unread = read_as(
        messages.unread,
        http="GET /api/mail/unread",
        cli="mail unread",
        help="Count the messages you have not acknowledged yet.",
        examples=("holdfast mail unread",),
        private=True,
    )
    sent = read_as(
        messages.sent,
        http="GET /api/mail/sent",
        cli="mail sent",
        help="List what you have sent, newest first.",
        examples=(example("holdfast mail sent --limit 5", _SENT),),
        private=True,
    )
    threads = read_as(
        messages.threads,
        http="GET /api/mail/threads",
        cli="mail threads",
        help="List the threads, the newest first.",
        examples=("holdfast mail threads", example("holdfast mail threads --box to", _MAIL)),
        arguments={"box": "all (which it is unless said), to, sent or closed"},
    )
    get = read(
        messages.get,
        http=f"GET {_ONE}",
        cli="mail get",
        help="Show a message; this acknowledges nothing.",
        examples=(example("holdfast mail get $(holdfast mail inbox -q --limit 1)", _MAIL),),
    )
    thread = read(
        messages.thread,
        http=f"GET {_ONE}/thread",
        cli="mail thread",
        help="Show the messages of a thread, oldest first.",
        whole=True,
        examples=(example("holdfast mail thread $(holdfast mail inbox -q --limit 1)", _MAIL),),
        mcp="mail_inbox",
    )
    about = read(
        messages.about,
        http="GET /api/tasks/{task}/mail",
        cli="mail about",
        help="List the messages about a task, oldest first.",
        examples=(example("holdfast mail about hf-7k2q", _MAIL),),
    )
    search = read(
        messages.search,
        http="GET /api/mail/search",
        cli="mail search TEXT...",
        help="Find the messages in which all words occur, best first.",
        examples=(example("holdfast mail search port", _MAIL),),
        private=True,
    )
    history = read(
        messages.history,
        http=f"GET {_ONE}/history",
        cli="mail history",
        help="List the steps in the life of a message, oldest first.",
        examples=(example("holdfast mail history $(holdfast mail inbox -q --limit 1)", _MAIL),),
    )
