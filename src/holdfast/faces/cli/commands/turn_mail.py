"""`holdfast turn mail`: messages in MAILBOX.md. Each change is one transaction, with lock, checks and projection."""

from __future__ import annotations

import os
import sys
from typing import Any, Final, get_args

import msgspec

from holdfast.faces.cli.args import Argument, Usage
from holdfast.faces.cli.call import Session
from holdfast.faces.cli.command import command
from holdfast.faces.cli.commands import turn
from holdfast.faces.cli.output import printable, printable_lines
from holdfast.turnfile import mail
from holdfast.turnfile.mail import Mail, MailResult
from holdfast.turnfile.mailbox.steps import Disposition, Operation
from holdfast.turnfile.model import MAILBOX, PROJECTION

_ID: Final = Argument("id", word=True, required=True, help="such as MSG-20260612-001")
_NOTE: Final = Argument("note", word=True, help="text of the Ack line")
_BODY: Final = Argument("body", "content", help="the text; - reads standard input")
_PRIORITY: Final = Argument("priority", of="P", help="P0, P1 or P2 (P1)")
_TYPES: Final = "notify, request, decision-required, objection, handoff-ready"
_IN_LINE: Final = ("id", "from", "to", "from_to", "status", "priority", "subject")


def _mail(session: Session, given: dict[str, Any], name: str = "actor") -> Mail:
    waiting = turn.wait_policy(given)
    return Mail(*turn.session_and_actor(session, given, name), wait=waiting)


def _warn_of_empty_body(given: dict[str, Any]) -> None:
    """A message without a text may be meant; one whose text is empty lost it on the way here."""
    if not given.get("body", "some").strip():
        print("holdfast: the body of this message is empty", file=sys.stderr)


def _report(session: Session, mailed: MailResult, verb: str | None = None) -> int:
    data = {"id": mailed.id, "status": mailed.status, **turn.completion_data(session, mailed.completion)}
    session.out.say(data, f"{mailed.id} {verb or mailed.status}, revision {mailed.completion.revision}")
    return 0


@command(
    "turn mail send",
    Argument("from", help="the sender (default: --actor, HOLDFAST_ACTOR)"),
    Argument("to", required=True, help="the receiver; several separated by commas, or all"),
    Argument("subject", required=True, help="one line"),
    _BODY,
    Argument("type", help=f"{_TYPES} (request)"),
    _PRIORITY,
    Argument("response_by", of="WHEN", help="when a response is needed"),
    Argument("files", "texts", "--attach", of="FILE", help="hand a file over, by its digest; repeatable"),
    *turn.WAITING,
)
def send(session: Session, given: dict[str, Any]) -> int:
    """Send a message to an agent, to several, or to the maintainer."""
    mail = _mail(session, given, "from")
    _warn_of_empty_body(given)
    if "files" in given:
        given["files"] = [os.path.abspath(os.path.join(session.folder, name)) for name in given["files"]]
    return _report(session, mail.send(given.pop("to"), given.pop("subject"), **given), "sent")


@command(
    "turn mail reply",
    _ID,
    _BODY,
    Argument("subject", help="default: that of the message"),
    Argument("type", help=f"{_TYPES} (notify)"),
    _PRIORITY,
    Argument("disposition", help="of a decision: approved, rejected, ..."),
    *turn.WAITING,
)
def reply(session: Session, given: dict[str, Any]) -> int:
    """Reply to a message; an unread one becomes acknowledged."""
    mail = _mail(session, given)
    _warn_of_empty_body(given)
    return _report(session, mail.reply(given.pop("id"), **given), "sent")


@command("turn mail ack", _ID, _NOTE, *turn.WAITING)
def acknowledge(session: Session, given: dict[str, Any]) -> int:
    """Acknowledge a message."""
    return _step(session, given, "ack")


@command("turn mail action", _ID, _NOTE, *turn.WAITING)
def action(session: Session, given: dict[str, Any]) -> int:
    """Mark a message as actioned."""
    return _step(session, given, "action")


@command("turn mail block", _ID, Argument("note", word=True, required=True, help="what you wait for"), *turn.WAITING)
def block(session: Session, given: dict[str, Any]) -> int:
    """Mark a message as blocked, and name what you wait for."""
    return _step(session, given, "block")


def _step(session: Session, given: dict[str, Any], operation: Operation) -> int:
    return _report(session, _mail(session, given).step(given["id"], operation, given.get("note", "")))


@command(
    "turn mail close",
    _ID,
    _NOTE,
    Argument("disposition", choices=get_args(Disposition), help="the outcome (closed)"),
    Argument("keep", of="WHY", help="keep its card in the mailbox, for this reason"),
    *turn.WAITING,
)
def close(session: Session, given: dict[str, Any]) -> int:
    """Close a message and archive its card."""
    mail = _mail(session, given)
    return _report(session, mail.close(given.pop("id"), given.pop("note", ""), **given))


@command("turn mail list", Argument("status", help="only unread, acknowledged, actioned, blocked, ..."), turn.DIR)
def list_messages(session: Session, given: dict[str, Any]) -> int:
    """List the open messages, of everybody or of one --actor."""
    files = turn.session_of(session, given)
    found = mail.messages(files, session.given.get("actor"), given.get("status"))
    session.out.say(found, *(printable(_line(message)) for message in found))
    return 0


@command("turn mail show", _ID, turn.DIR)
def show(session: Session, given: dict[str, Any]) -> int:
    """Show a message, open or closed."""
    found = mail.message(turn.session_of(session, given), given["id"])
    carried = [*(f"{each['path']} at revision {each['revision']}" for each in found.get("payload", ()))]
    carried += [f"{value} (damaged)" for value in found.get("damaged_payload", ())]
    rest = {name: value for name, value in found["fields"].items() if name not in (*_IN_LINE, "payload") and value}
    fields = [*((name.replace("_", " "), value) for name, value in rest.items()), *(("file", one) for one in carried)]
    lines = [_line(found), *(f"  {name}: {value}" for name, value in fields)]
    acks = [printable(f"ack: {entry}") for entry in found.get("ack", ())]
    blocks = [part for part in (printable_lines(found.get("body") or ""), acks) if part]
    session.out.say(found, *map(printable, lines), *(line for block in blocks for line in ("", *block)))
    return 0


@command(
    "turn mail verify",
    _ID,
    turn.DIR,
    more="The exit code is 1 if a file has changed or is missing since it was sent, or its line is damaged.",
)
def verify(session: Session, given: dict[str, Any]) -> int:
    """Say what has become of the files that a message carries."""
    found = mail.verify(turn.session_of(session, given), given["id"])
    lines = [
        f"{each.path}: {each.state} since revision {each.revision}"
        if each.state != "damaged"
        else f"{each.path}: this line of the card is damaged"
        for each in found
    ]
    session.out.say(msgspec.to_builtins(found), *map(printable, lines))
    return int(any(each.state != "same" for each in found))


def _line(message: dict[str, Any]) -> str:
    fields = message["fields"]
    way = f"{fields['from']} -> {fields['to']}" if "from" in fields else fields.get("from_to", "")
    parts = [message["id"], message["status"], fields.get("priority"), way, fields.get("subject")]
    return "  ".join(part for part in parts if part)


@command(
    "turn mail export",
    Argument("source", word=True, help="a MAILBOX.md (default: that of the folder)"),
    Argument("target", word=True, help="the MAILBOX.json to write"),
    turn.DIR,
)
def export(session: Session, given: dict[str, Any]) -> int:
    """Write MAILBOX.json; all other commands do so automatically."""
    source, target = given.get("source"), given.get("target")
    if source is None:
        folder = turn.session_of(session, given).folder.path
        source, target = os.path.join(folder, MAILBOX), os.path.join(folder, PROJECTION)
    elif target is None:
        raise Usage("name both files, or none", hint=f"holdfast turn mail export {MAILBOX} {PROJECTION}")
    wrote = mail.export(os.path.join(session.folder, source), os.path.join(session.folder, target))
    session.out.say({"file": target, "changed": wrote}, printable(f"{'wrote' if wrote else 'unchanged:'} {target}"))
    return 0
