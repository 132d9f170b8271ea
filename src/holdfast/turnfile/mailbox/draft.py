"""New cards: their ids, their text in the dialect of the file, and the checks of their contents.

Pure. Guarantee: a composed card is parsed back exactly as it was meant, and every other card is parsed as before; a
subject, name or body that would break this is refused. The next id of a date is the highest in use plus one, so gaps
are not filled and no id is used twice; an id that a text only mentions is not in use. Called by `steps`, `mail` and
`escalation`.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from typing import Final, get_args

import msgspec

from holdfast import errors
from holdfast.turnfile.mailbox import Mailbox, insert_card, parse
from holdfast.turnfile.mailbox.cards import ALL, DECISIONS, ID, Card, fold, ids_in, numbers_of
from holdfast.turnfile.mailbox.content import Dialect, Payload, field_text
from holdfast.turnfile.mailbox.lost import ids_of
from holdfast.turnfile.mailbox.markdown import key_of, unclosed, values_of
from holdfast.turnfile.mailbox.projection import refresh
from holdfast.turnfile.model import Priority, next_number

MAINTAINER: Final = "Maintainer"
RECEIVER: Final = "receiver"
MAX_LINE: Final = 500
CLOSED_HEAD: Final = "# Closed messages"  # of a file of rows that left the closed summary
# Line breaks of any kind, lone surrogates, and characters that change the direction of the text.
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_FORMERLY: Final = re.compile(r"\bFormerly\W{1,9}(MSG-[0-9]{8}-[0-9]{3,9})\b")
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
    payload: tuple[Payload, ...] = ()


def next_id(date: str, text: str, *others: str) -> str:
    """The next id of a date (`2026-06-12`): the highest in use in the mailbox or a card of the others, plus one."""
    day = check_date(date).replace("-", "")
    archived = (id for other in others if f"MSG-{day}-" in other for id in used_ids(other))
    taken = parse(text).numbers.get(day, set()) | numbers_of(archived).get(day, set())
    return f"MSG-{day}-{next_number(taken):03d}"


def used_ids(text: str) -> Iterable[str]:
    """The ids in an archive of cards or of rows of the closed summary, or in a projection."""
    if text.startswith("{"):
        return ids_of(text)
    if not text.startswith(CLOSED_HEAD):
        return [*ids_in(text), *_FORMERLY.findall(text)]
    rows = (values_of(line) for line in text.splitlines() if line.startswith("|"))
    return (value for values in rows for value in values if ID.fullmatch(value))


def compose(
    text: str, draft: Draft, *others: str, maintainers: Sequence[str] = (), everyone: Sequence[str] = ()
) -> tuple[str, str]:
    """Add a new unread card, and refresh snapshot and queue; returns the mailbox and the card's id.

    `others` are further texts with ids, such as the archive; `maintainers` are the maintainers' names besides
    `Maintainer`, `everyone` is whom `all` means. Raises Invalid for contents that would not be parsed back the same.
    """
    box = parse(text)
    draft = _checked(box, draft, maintainers, everyone)
    id = next_id(draft.date, text, *others)
    dialect = _dialect(box)
    fields = _fields(draft, id, dialect)
    after = box.edited([insert_card(box, id, _card_text(box, id, dialect, fields, draft.body))])
    card = after.find(id)
    wanted = [(key_of(label), value) for label, value in fields]
    if (
        card is None
        or [(key, value) for key, _, value in card.content.said] != wanted
        or card.body != draft.body
        or [block.key for block in card.content.blocks if block.key != "body"]
        or not others_unchanged(box, after, id)
    ):
        raise errors.InvalidValue(
            "the message would not be parsed back as it is written",
            hint="put lines that look like parts of a mailbox (`### MSG-…`, `## Closed Summary`, `**Ack:** …`, a `---`"
            " at the end) into a closed code fence, or behind a `>`",
        )
    return refresh(after, everyone).text, id


def others_unchanged(before: Mailbox, after: Mailbox, id: str) -> bool:
    """Whether all other cards, and all sections, are unchanged."""
    one, other = ([card for card in box.cards if card.id != id] for box in (before, after))
    return (
        len(one) == len(other)
        and all(same_card(old, new) for old, new in zip(one, other, strict=True))
        and before.sections.keys() <= after.sections.keys()
    )


def same_card(one: Card, other: Card) -> bool:
    """Whether two cards have the same text; the line break of the last line does not count."""
    return one.content is other.content or one.content.text.rstrip() == other.content.text.rstrip()


def check_date(date: str) -> str:
    """Return a date of the form 2026-06-12, else raise Invalid."""
    try:
        return datetime.date.fromisoformat(date).isoformat()
    except ValueError as error:
        raise errors.Invalid(f"{date!r} is not a date", hint="write it as 2026-06-12") from error


def one_line(value: str, what: str, *, empty: bool = False) -> str:
    """Return a value that fits on one line of the file, else raise Invalid."""
    value = value.strip()
    if _CONTROL.search(value) or len(value) > MAX_LINE or (not value and not empty):
        hint = f"use 1 to {MAX_LINE} characters without line breaks or control characters"
        raise errors.InvalidValue(f"the {what} must be one line" if value else f"the {what} is missing", hint=hint)
    return value


def agent_name(name: str, what: str) -> str:
    """Return an agent's name that a card can hold, else raise Invalid."""
    name = one_line(name, what)
    if re.search(r"[|,*<>`→]|->", name) or len(name) > 80:
        hint = "use at most 80 characters, none of | , * < > ` and no arrow"
        raise errors.InvalidName(f"{name!r} is not a valid name ({what})", hint=hint)
    if fold(name) in ALL and what != RECEIVER:
        hint = f"use another name; {' and '.join(ALL)} mean every agent"
        raise errors.InvalidName(f"{name!r} is reserved ({what})", hint=hint)
    return name


def spelled(box: Mailbox, name: str, maintainers: Sequence[str] = ()) -> str:
    """A name as the mailbox spells it; a maintainer's name as the mailbox names the maintainer."""
    known, names = box.people, [fold(name)]
    aliases = [fold(MAINTAINER), *(fold(one) for one in maintainers)]
    if fold(name) in aliases:
        names += aliases
    return next((known[one] for one in names if known.get(one)), name)


def _checked(box: Mailbox, draft: Draft, maintainers: Sequence[str], everyone: Sequence[str]) -> Draft:
    receivers = [spelled(box, agent_name(name, RECEIVER), maintainers) for name in draft.receiver.split(",")]
    if any(fold(name) in ALL for name in receivers):  # which means everyone of them already
        others = {*map(fold, everyone), *ALL}
        receivers = ["all", *(name for name in receivers if fold(name) not in others)]
    priority = one_line(draft.priority, "priority").upper()
    if priority not in PRIORITIES:
        hint = f"priorities are {', '.join(PRIORITIES)}"
        raise errors.InvalidPriority(f"{draft.priority!r} is not a priority", hint=hint)
    if draft.type not in TYPES:
        raise errors.InvalidType(f"{draft.type!r} is not a message type", hint=f"types are {', '.join(TYPES)}")
    if draft.disposition and draft.disposition not in DECISIONS:
        hint = f"dispositions of a reply are {', '.join(DECISIONS)}"
        raise errors.InvalidValue(f"{draft.disposition!r} is not a disposition", hint=hint)
    body = draft.body.replace("\r\n", "\n").replace("\r", "\n").strip("\n").rstrip()
    if _CONTROL.search(body.replace("\n", "").replace("\t", "")):
        raise errors.InvalidValue("the body has control characters", hint="use text and line breaks only")
    if opened := unclosed(body):
        message = f"line {opened[0].number} of the body opens a code fence or comment and never closes it"
        raise errors.InvalidValue(message, hint="close it in the body, or it would hide the rest of the mailbox")
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
    """The dialect of the newest card; bold if there is no card."""
    return box.newest.dialect if box.newest else "bold"


def _fields(draft: Draft, id: str, dialect: Dialect) -> list[tuple[str, str]]:
    if dialect == "bold":
        fields = [("From", f"{draft.sender} -> {draft.receiver}"), ("Date", draft.date)]
    else:
        fields = [("Message ID", id)] if dialect == "plain" else []
        fields += [("Date", draft.date), ("From", draft.sender), ("To", draft.receiver)]
    fields += [("Type", draft.type), ("Priority", draft.priority), ("Status", "unread"), ("Subject", draft.subject)]
    fields += [("Closure owner", draft.sender), ("Response needed by", draft.response_by)]
    fields += [("In reply to", draft.in_reply_to), ("Disposition", draft.disposition)]
    fields += [("Payload", str(each)) for each in draft.payload]
    return [(label, value) for label, value in fields if value]


def _card_text(box: Mailbox, id: str, dialect: Dialect, fields: list[tuple[str, str]], body: str) -> str:
    lines = [field_text(dialect, label, value) for label, value in fields]
    if dialect == "plain":  # two spaces at the end keep the lines apart when Markdown is rendered
        lines = [*(f"{line}  " for line in lines[:-1]), lines[-1], *(["", "Body:"] if body else [])]
    else:
        head = ["| Field | Value |", "|-------|-------|"] if dialect == "table" else []
        lines = [f"### {id}", "", *head, *lines, *([""] if body else [])]
    lines += body.split("\n") if body else []
    return "".join(line + box.newline for line in lines)
