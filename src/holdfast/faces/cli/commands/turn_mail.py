"""`holdfast turn mail`: messages in MAILBOX.md. Each change is one transaction, with lock, checks and projection."""

from __future__ import annotations

import os
from functools import partial
from typing import Any, Final, get_args

from holdfast.faces.cli.args import Argument, Usage
from holdfast.faces.cli.call import Session
from holdfast.faces.cli.command import Command
from holdfast.faces.cli.commands import turn
from holdfast.faces.cli.output import printable, printable_lines
from holdfast.turnfile import mail
from holdfast.turnfile.mail import Mail, MailResult
from holdfast.turnfile.mailbox.steps import Disposition, Operation
from holdfast.turnfile.model import MAILBOX, PROJECTION


def _mail(session: Session, given: dict[str, Any], name: str = "actor") -> Mail:
    waiting = turn.wait_policy(given)
    return Mail(*turn.session_and_actor(session, given, name), wait=waiting)


def _report(session: Session, mailed: MailResult, verb: str | None = None) -> int:
    turn.print_warnings(mailed.completion.warnings)
    data = {"id": mailed.id, "status": mailed.status, **turn.completion_data(mailed.completion)}
    session.out.say(data, f"{mailed.id} {verb or mailed.status}, revision {mailed.completion.revision}")
    return 0


def send(session: Session, given: dict[str, Any]) -> int:
    """Send a message."""
    mail = _mail(session, given, "from")
    return _report(session, mail.send(given.pop("to"), given.pop("subject"), **given), "sent")


def reply(session: Session, given: dict[str, Any]) -> int:
    """Reply to a message."""
    mail = _mail(session, given)
    return _report(session, mail.reply(given.pop("id"), **given), "sent")


def step(session: Session, given: dict[str, Any], operation: Operation) -> int:
    """Acknowledge, action or block a message."""
    return _report(session, _mail(session, given).step(given["id"], operation, given.get("note", "")))


def close(session: Session, given: dict[str, Any]) -> int:
    """Close a message."""
    mail = _mail(session, given)
    return _report(session, mail.close(given.pop("id"), given.pop("note", ""), **given))


def list_messages(session: Session, given: dict[str, Any]) -> int:
    """List the open messages, of everybody or of one agent."""
    files = turn.session_of(session, given)
    found = mail.messages(files, session.given.get("actor"), given.get("status"))
    session.out.say(found, *(printable(_line(message)) for message in found))
    return 0


def show(session: Session, given: dict[str, Any]) -> int:
    """Show one message, open or archived."""
    found = mail.message(turn.session_of(session, given), given["id"])
    rest = {name: value for name, value in found["fields"].items() if name not in _IN_LINE and value}
    lines = [_line(found), *(f"  {name.replace('_', ' ')}: {value}" for name, value in rest.items())]
    acks = [printable(f"ack: {entry}") for entry in found.get("ack", ())]
    blocks = [part for part in (printable_lines(found.get("body") or ""), acks) if part]
    session.out.say(found, *map(printable, lines), *(line for block in blocks for line in ("", *block)))
    return 0


_IN_LINE: Final = ("id", "from", "to", "from_to", "status", "priority", "subject")


def _line(message: dict[str, Any]) -> str:
    fields = message["fields"]
    way = f"{fields['from']} -> {fields['to']}" if "from" in fields else fields.get("from_to", "")
    parts = [message["id"], message["status"], fields.get("priority"), way, fields.get("subject")]
    return "  ".join(part for part in parts if part)


def export(session: Session, given: dict[str, Any]) -> int:
    """Write the projection of a mailbox."""
    source, target = given.get("source"), given.get("target")
    if source is None:
        folder = turn.session_of(session, given).folder.path
        source, target = os.path.join(folder, MAILBOX), os.path.join(folder, PROJECTION)
    elif target is None:
        raise Usage("name both files, or none", hint=f"holdfast turn mail export {MAILBOX} {PROJECTION}")
    wrote = mail.export(os.path.join(session.folder, source), os.path.join(session.folder, target))
    session.out.say({"file": target, "changed": wrote}, printable(f"{'wrote' if wrote else 'unchanged:'} {target}"))
    return 0


_ID = Argument("id", option="--id", word=True, required=True, help="such as MSG-20260612-001")
_NOTE = Argument("note", option="--note", word=True, help="text of the Ack line")
_BODY = Argument("body", "content", "--body", help="the text; - reads standard input")
_PRIORITY = Argument("priority", option="--priority", of="P", help="P0, P1 or P2 (P1)")
_TYPES = "notify, request, decision-required, objection, handoff-ready"

COMMANDS = (
    Command(
        "turn mail send",
        "Send a message to an agent, to several, or to the maintainer.",
        (
            Argument("from", option="--from", help="the sender (default: --actor, HOLDFAST_ACTOR)"),
            Argument("to", option="--to", required=True, help="the receiver; several separated by commas, or all"),
            Argument("subject", option="--subject", required=True, help="one line"),
            _BODY,
            Argument("type", option="--type", help=f"{_TYPES} (request)"),
            _PRIORITY,
            Argument("response_by", option="--response-by", of="WHEN", help="when a response is needed"),
            *turn.WAITING,
        ),
        send,
    ),
    Command(
        "turn mail list",
        "List the open messages, of everybody or of one --actor.",
        (Argument("status", option="--status", help="only unread, acknowledged, actioned, blocked, ..."), turn.DIR),
        list_messages,
    ),
    Command("turn mail show", "Show a message, open or closed.", (_ID, turn.DIR), show),
    Command(
        "turn mail reply",
        "Reply to a message; an unread one becomes acknowledged.",
        (
            _ID,
            _BODY,
            Argument("subject", option="--subject", help="default: that of the message"),
            Argument("type", option="--type", help=f"{_TYPES} (notify)"),
            _PRIORITY,
            Argument("disposition", option="--disposition", help="of a decision: approved, rejected, ..."),
            *turn.WAITING,
        ),
        reply,
    ),
    Command("turn mail ack", "Acknowledge a message.", (_ID, _NOTE, *turn.WAITING), partial(step, operation="ack")),
    Command(
        "turn mail action",
        "Mark a message as actioned.",
        (_ID, _NOTE, *turn.WAITING),
        partial(step, operation="action"),
    ),
    Command(
        "turn mail block",
        "Mark a message as blocked, and name what you wait for.",
        (_ID, Argument("note", option="--note", word=True, required=True, help="what you wait for"), *turn.WAITING),
        partial(step, operation="block"),
    ),
    Command(
        "turn mail close",
        "Close a message and archive its card.",
        (
            _ID,
            _NOTE,
            Argument("disposition", option="--disposition", choices=get_args(Disposition), help="the outcome (closed)"),
            Argument("keep", option="--keep", of="WHY", help="keep its card in the mailbox, for this reason"),
            *turn.WAITING,
        ),
        close,
    ),
    Command(
        "turn mail export",
        "Write MAILBOX.json; all other commands do so automatically.",
        (
            Argument("source", option="--source", word=True, help="a MAILBOX.md (default: that of the folder)"),
            Argument("target", option="--target", word=True, help="the MAILBOX.json to write"),
            turn.DIR,
        ),
        export,
    ),
)
