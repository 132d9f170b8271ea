"""`holdfast turn mail`: messages in MAILBOX.md, each change one transaction with lock, checks and projection."""

from __future__ import annotations

import os
from typing import Any, get_args

from holdfast.faces.cli.args import Argument, Usage
from holdfast.faces.cli.call import Session
from holdfast.faces.cli.command import Command
from holdfast.faces.cli.commands.turn import DIR, WAITING, acting, completed, patience, session_of, warn
from holdfast.faces.cli.output import printable, printable_lines
from holdfast.turnfile import mail
from holdfast.turnfile.mail import Mailed, Mailing
from holdfast.turnfile.mailbox.steps import Disposition
from holdfast.turnfile.model import MAILBOX, PROJECTION


def _hand(session: Session, given: dict[str, Any], name: str = "actor") -> Mailing:
    waiting = patience(given)
    files = session_of(session, given)
    return Mailing(files, acting(session, given, files, name), patience=waiting)


def _did(session: Session, mailed: Mailed) -> int:
    warn(mailed.completion.warnings)
    data = {"id": mailed.id, "status": mailed.status, **completed(mailed.completion)}
    session.out.say(data, f"{mailed.id} is {mailed.status}, revision {mailed.completion.revision}")
    return 0


def send(session: Session, given: dict[str, Any]) -> int:
    """Send a message."""
    hand = _hand(session, given, "from")
    return _did(session, hand.send(given.pop("to"), given.pop("subject"), **given))


def reply(session: Session, given: dict[str, Any]) -> int:
    """Answer a message."""
    hand = _hand(session, given)
    return _did(session, hand.reply(given.pop("id"), **given))


def ack(session: Session, given: dict[str, Any]) -> int:
    """Say that one has taken notice."""
    return _did(session, _hand(session, given).ack(given["id"], given.get("note", "")))


def action(session: Session, given: dict[str, Any]) -> int:
    """Say that one has done what was asked."""
    return _did(session, _hand(session, given).action(given["id"], given.get("note", "")))


def block(session: Session, given: dict[str, Any]) -> int:
    """Say what one waits for."""
    return _did(session, _hand(session, given).block(given["id"], given["note"]))


def close(session: Session, given: dict[str, Any]) -> int:
    """Close a message."""
    hand = _hand(session, given)
    return _did(session, hand.close(given.pop("id"), given.pop("note", ""), **given))


def listed(session: Session, given: dict[str, Any]) -> int:
    """The messages that are not closed, of all or of one agent."""
    files = session_of(session, given)
    found = mail.messages(files, session.given.get("actor"), given.get("status"))
    session.out.say(found, *(printable(_line(message)) for message in found))
    return 0


def show(session: Session, given: dict[str, Any]) -> int:
    """One message, open or archived."""
    found = mail.message(session_of(session, given), given["id"])
    fields = [f"{name}: {value}" for name, value in found["fields"].items() if name not in ("from", "to", "status")]
    lines = [_line(found), *(f"  {field}" for field in fields)]
    body = printable_lines(found.get("body") or "")
    acks = [f"ack: {entry}" for entry in found.get("ack", ())]
    session.out.say(found, *map(printable, lines), *(["", *body] if body else []), *map(printable, acks))
    return 0


def _line(message: dict[str, Any]) -> str:
    fields = message["fields"]
    way = f"{fields['from']} -> {fields['to']}" if "from" in fields else fields.get("from_to", "")
    parts = [message["id"], message["status"], fields.get("priority"), way, fields.get("subject")]
    return "  ".join(part for part in parts if part)


def export(session: Session, given: dict[str, Any]) -> int:
    """Write the projection of a mailbox by hand."""
    source, target = given.get("source"), given.get("target")
    if source is None:
        folder = session_of(session, given).folder.path
        source, target = os.path.join(folder, MAILBOX), os.path.join(folder, PROJECTION)
    elif target is None:
        raise Usage("holdfast turn mail export needs both files, or none", hint=f"such as {MAILBOX} {PROJECTION}")
    wrote = mail.export(os.path.join(session.folder, source), os.path.join(session.folder, target))
    session.out.say({"file": target, "changed": wrote}, printable(f"{target} {'is written' if wrote else 'is fresh'}"))
    return 0


_ID = Argument("id", option="--id", word=True, required=True, help="such as MSG-20260612-001")
_NOTE = Argument("note", option="--note", word=True, help="what the Ack line says")
_BODY = Argument("body", "content", "--body", help="what is said, or - to read it")
_PRIORITY = Argument("priority", option="--priority", of="P", help="P0, P1 or P2 (P1)")
_TYPES = "notify, request, decision-required, objection, handoff-ready"

COMMANDS = (
    Command(
        "turn mail send",
        "Send a message to an agent, to several, or to the maintainer.",
        (
            Argument("from", option="--from", help="who sends it; else --actor, HOLDFAST_ACTOR"),
            Argument("to", option="--to", required=True, help="who it is for; several with commas, or all"),
            Argument("subject", option="--subject", required=True, help="what about, in one line"),
            _BODY,
            Argument("type", option="--type", help=f"{_TYPES} (request)"),
            _PRIORITY,
            Argument("response_by", option="--response-by", of="WHEN", help="when an answer is needed"),
            *WAITING,
            DIR,
        ),
        send,
    ),
    Command(
        "turn mail list",
        "List the messages that are not closed, of all or of one --actor.",
        (
            Argument(
                "status", option="--status", help="only those that are unread, acknowledged, actioned, blocked, ..."
            ),
            DIR,
        ),
        listed,
    ),
    Command("turn mail show", "Show a message, also one that was closed.", (_ID, DIR), show),
    Command(
        "turn mail reply",
        "Answer a message; an unread one is thereby acknowledged.",
        (
            _ID,
            _BODY,
            Argument("subject", option="--subject", help="else that of the message"),
            Argument("type", option="--type", help=f"{_TYPES} (notify)"),
            _PRIORITY,
            Argument("disposition", option="--disposition", help="of a decision: approved, rejected, ..."),
            *WAITING,
            DIR,
        ),
        reply,
    ),
    Command("turn mail ack", "Say that you have taken notice of a message.", (_ID, _NOTE, *WAITING, DIR), ack),
    Command("turn mail action", "Say that you have done what it asked for.", (_ID, _NOTE, *WAITING, DIR), action),
    Command(
        "turn mail block",
        "Say what you wait for before you can act on a message.",
        (
            _ID,
            Argument("note", option="--note", word=True, required=True, help="what you wait for"),
            *WAITING,
            DIR,
        ),
        block,
    ),
    Command(
        "turn mail close",
        "Close a message; its card goes to the archive.",
        (
            _ID,
            _NOTE,
            Argument(
                "disposition", option="--disposition", choices=get_args(Disposition), help="how it ended (closed)"
            ),
            Argument("keep", option="--keep", of="WHY", help="leave its card where it is, and say why"),
            *WAITING,
            DIR,
        ),
        close,
    ),
    Command(
        "turn mail export",
        "Write MAILBOX.json by hand; other commands do it by themselves.",
        (
            Argument("source", option="--source", word=True, help="a MAILBOX.md; else that of the folder"),
            Argument("target", option="--target", word=True, help="the MAILBOX.json to write"),
            DIR,
        ),
        export,
    ),
)
