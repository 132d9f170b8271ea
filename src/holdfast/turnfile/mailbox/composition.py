"""New cards: their ids, how they are written in the dialect of the file, and what may not go into them.

Pure. The guarantee: a card that was composed is read back exactly as it was meant, and no other card is read
otherwise than before; a subject, a name or a body that would break that is refused. The next id of a date is the
highest anywhere in the texts plus one, whoever mentions it: a gap is not filled, a message never gets the id of
another.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from typing import Final, get_args

import msgspec

from holdfast import errors
from holdfast.turnfile.mailbox import Mailbox, insert_card, parse
from holdfast.turnfile.mailbox.cards import ID, Card, Dialect, field_text
from holdfast.turnfile.mailbox.derived import fold, refresh
from holdfast.turnfile.mailbox.markdown import key_of, lines_of, unclosed
from holdfast.turnfile.model import Priority

MAINTAINER: Final = "Maintainer"
MAX_LINE: Final = 500
_MENTIONED: Final = re.compile(ID.pattern + "(?![0-9])")
# Line breaks of any kind, half characters, and what turns the direction of the text around it.
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
TYPES: Final = ("notify", "request", "decision-required", "objection", "handoff-ready")
PRIORITIES: Final[tuple[str, ...]] = get_args(Priority)


class Draft(msgspec.Struct, frozen=True):
    """A message to be sent."""

    sender: str
    receiver: str
    subject: str
    date: str
    type: str = "request"
    priority: str = "P1"
    body: str = ""
    response_by: str = ""
    in_reply_to: str = ""
    disposition: str = ""


def next_id(date: str, *texts: str) -> str:
    """The next id of a date (`2026-06-12`): one more than the highest that any of the texts mentions."""
    day = check_date(date).replace("-", "")
    taken = (int(match[2]) for text in texts for match in _MENTIONED.finditer(text) if match[1] == day)
    return f"MSG-{day}-{max(taken, default=0) + 1:03d}"


def compose(text: str, draft: Draft, *others: str, maintainers: Sequence[str] = ()) -> tuple[str, str]:
    """The mailbox with a new unread card, its snapshot and queue refreshed; and the card's id.

    `others` are texts whose ids are taken too, such as the archive; `maintainers` the names that maintainers go by
    beside `Maintainer`. Raises Invalid for what cannot be written so that it is read back the same.
    """
    box = parse(text)
    draft = _checked(box, draft, maintainers)
    id = next_id(draft.date, text, *others)
    if len(id) > 22:
        raise errors.Invalid(f"the mailbox has no id left for {draft.date}: some text in it uses them up", id=id)
    dialect = _dialect(box)
    fields = _fields(draft, id, dialect)
    after = box.edited([insert_card(box, id, _card_text(box, id, dialect, fields, draft.body))])
    card = after.find(id)
    wanted = [(key_of(label), value) for label, value in fields]
    if (
        card is None
        or [(field.key, field.value) for field in card.fields] != wanted
        or card.body != draft.body
        or [block.key for block in card.blocks if block.key != "body"]
        or not unharmed(box, after, id)
    ):
        raise errors.InvalidValue(
            "the message would not be read back as it was written",
            hint="lines that look like parts of a mailbox (`### MSG-…`, `## Closed Summary`, `**Ack:** …`, an open"
            " fence, a `---` at the end) belong inside a closed code fence, or behind a `>`",
        )
    return refresh(after).text, id


def unharmed(before: Mailbox, after: Mailbox, id: str) -> bool:
    """Whether all cards but that one, and all sections, are as they were."""

    def rest(box: Mailbox) -> list[tuple[str, str]]:
        return [(card.id, box.text[card.start : card.end].rstrip()) for card in box.cards if card.id != id]

    return rest(before) == rest(after) and before.sections.keys() <= after.sections.keys()


def check_date(date: str) -> str:
    """A date of the form 2026-06-12; raises Invalid."""
    try:
        return datetime.date.fromisoformat(date).isoformat()
    except ValueError as error:
        raise errors.Invalid(f"{date!r} is no date", hint="dates are written 2026-06-12") from error


def one_line(value: str, what: str, *, empty: bool = False) -> str:
    """A value that fits on a line of the file; raises Invalid."""
    value = value.strip()
    if _CONTROL.search(value) or len(value) > MAX_LINE or (not value and not empty):
        raise errors.InvalidValue(
            f"the {what} must be one line" if value else f"the {what} is missing",
            hint=f"{what}: 1 to {MAX_LINE} characters without line breaks or control characters",
        )
    return value


def agent_name(name: str, what: str) -> str:
    """A name of an agent that a card can hold; raises Invalid."""
    name = one_line(name, what)
    if re.search(r"[|,*<>`→]|->", name) or len(name) > 80:
        hint = "names hold none of | , * < > ` and no arrow, and at most 80 characters"
        raise errors.InvalidName(f"{name!r} cannot be a name ({what})", hint=hint)
    return name


def spelled(box: Mailbox, name: str, maintainers: Sequence[str] = ()) -> str:
    """A name as the mailbox spells it: `codex` is `Codex` where it has it so, a maintainer what it calls one."""
    rows = [box.snapshot.value(row, "agent") for row in box.snapshot.rows] if box.snapshot else []
    known = {fold(one): one for one in (*_people(box.cards), *reversed(rows))}
    names = [fold(name)]
    aliases = [fold(MAINTAINER), *(fold(one) for one in maintainers)]
    if fold(name) in aliases:
        names += aliases
    return next((known[one] for one in names if known.get(one)), name)


def _people(cards: Sequence[Card]) -> list[str]:
    return [one for card in reversed(cards) for one in (card.sender, *card.receivers)]


def _checked(box: Mailbox, draft: Draft, maintainers: Sequence[str]) -> Draft:
    receivers = [spelled(box, agent_name(name, "receiver"), maintainers) for name in draft.receiver.split(",")]
    priority = one_line(draft.priority, "priority").upper()
    if priority not in PRIORITIES:
        hint = f"priorities are {', '.join(PRIORITIES)}"
        raise errors.InvalidPriority(f"{draft.priority!r} is no priority", hint=hint)
    if draft.type not in TYPES:
        raise errors.InvalidType(f"{draft.type!r} is no type of message", hint=f"types are {', '.join(TYPES)}")
    body = draft.body.replace("\r\n", "\n").replace("\r", "\n").strip("\n").rstrip()
    if _CONTROL.search(body.replace("\n", "").replace("\t", "")):
        raise errors.InvalidValue("the body holds control characters", hint="text and line breaks only")
    if opened := unclosed(lines_of(body)):
        raise errors.InvalidValue(
            f"line {opened[0].number} of the body opens a code fence or a comment that is never closed",
            hint="close it in the body: it would hide what comes after the message",
        )
    return msgspec.structs.replace(
        draft,
        sender=spelled(box, agent_name(draft.sender, "sender")),
        receiver=", ".join(dict.fromkeys(receivers)),
        subject=one_line(draft.subject, "subject"),
        date=check_date(draft.date),
        priority=priority,
        body=body,
        response_by=one_line(draft.response_by, "time of response", empty=True),
        in_reply_to=one_line(draft.in_reply_to, "message answered", empty=True),
        disposition=one_line(draft.disposition, "disposition", empty=True),
    )


def _dialect(box: Mailbox) -> Dialect:
    """How the file writes its newest card; bold lines where it has none."""
    newest: Card | None = max(box.cards, key=lambda card: card.order, default=None)
    return newest.dialect if newest else "bold"


def _fields(draft: Draft, id: str, dialect: Dialect) -> list[tuple[str, str]]:
    if dialect == "bold":
        fields = [("From", f"{draft.sender} -> {draft.receiver}"), ("Date", draft.date)]
    else:
        fields = [("Message ID", id)] if dialect == "plain" else []
        fields += [("Date", draft.date), ("From", draft.sender), ("To", draft.receiver)]
    fields += [("Type", draft.type), ("Priority", draft.priority), ("Status", "unread"), ("Subject", draft.subject)]
    fields += [("Closure owner", draft.sender), ("Response needed by", draft.response_by)]
    fields += [("In reply to", draft.in_reply_to), ("Disposition", draft.disposition)]
    return [(label, value) for label, value in fields if value]


def _card_text(box: Mailbox, id: str, dialect: Dialect, fields: list[tuple[str, str]], body: str) -> str:
    lines = [field_text(dialect, label, value) for label, value in fields]
    if dialect == "plain":  # two spaces keep the lines apart where the file is shown
        lines = [*(f"{line}  " for line in lines[:-1]), lines[-1], *(["", "Body:"] if body else [])]
    else:
        head = ["| Field | Value |", "|-------|-------|"] if dialect == "table" else []
        lines = [f"### {id}", "", *head, *lines, *([""] if body else [])]
    lines += body.split("\n") if body else []
    return "".join(line + box.newline for line in lines)
