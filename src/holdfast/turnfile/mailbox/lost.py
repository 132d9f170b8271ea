"""Messages that MAILBOX.json alone still has, because somebody removed their cards or lost the mailbox.

Pure. `lost_messages` finds them, and the projection keeps them in a list of that name, so no write drops them and no id
of theirs is given again; `card_text` makes a card of one, with which `repair` brings it back. Called by `archive`,
`draft`, `projection` and `repair`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from holdfast.turnfile.mailbox import Mailbox
from holdfast.turnfile.mailbox.content import Payload, field_text
from holdfast.turnfile.mailbox.markdown import key_of, unclosed

LOST: Final = "lost_messages"  # the member of the projection
_LISTS: Final = (LOST, "active_messages")
_ID: Final = re.compile(r"MSG-[A-Za-z0-9-]+")
_LABEL: Final = re.compile(r"[A-Za-z][A-Za-z0-9 ]{0,39}")

Message = dict[str, Any]
"""A message as the projection has it; of a file of another tool, of any shape."""


class _Named(msgspec.Struct):
    id: str = ""


class _Ids(msgspec.Struct):
    """The ids in a projection as we write it."""

    lost_messages: list[_Named] = []
    active_messages: list[_Named] = []


@functools.lru_cache(maxsize=2)
def ids_of(projected: str) -> frozenset[str]:
    """The ids of the messages in a projection; none if it cannot be parsed. What has none counts as the empty one."""
    try:
        said = msgspec.json.decode(projected, type=_Ids)
    except (msgspec.DecodeError, UnicodeError, RecursionError):  # of another tool: a message may have any shape
        return frozenset(str(each.get("id") or "") if isinstance(each, dict) else "" for each in _messages(projected))
    return frozenset([each.id for each in (*said.lost_messages, *said.active_messages)])


def lost_messages(projected: str, box: Mailbox) -> list[Message]:
    """The messages of a projection that a mailbox has neither as a card nor in its closed summary."""
    known = box.known_ids
    if ids_of(projected) <= known:
        return []
    found: dict[str, Message] = {}  # two messages may have one id
    for each in _messages(projected):
        if isinstance(each, dict) and str(each.get("id") or "") not in known:
            found.setdefault(repr(each), each)
    return [*found.values()]


def _messages(projected: str) -> Iterator[Any]:
    """What the lists of a projection hold; nothing of what cannot be parsed."""
    try:
        members = msgspec.json.decode(projected, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return
    for name in _LISTS:
        yield from _decoded(members[name]) if name in members else ()


def _decoded(raw: msgspec.Raw) -> list[Any]:
    try:
        said = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return []
    return said if isinstance(said, list) else []


def card_text(message: Message, newline: str, *, quoted: bool = False) -> str | None:
    """A message as the text of a card, its body behind `>` if wanted; None if its id cannot be that of a card."""
    id, said = str(message.get("id") or ""), message.get("fields")
    if not _ID.fullmatch(id):
        return None
    fields = {key: _flat(value) for key, value in said.items()} if isinstance(said, dict) else {"fields": _flat(said)}
    body = message.get("body")
    lines = (body if isinstance(body, str) else _flat(body)).replace("\r\n", "\n").strip("\n").split("\n")
    odd = {key: value for key, value in fields.items() if not _LABEL.fullmatch(_label(key))}
    lines += [f"> {_flat(key)}: {value}" for key, value in odd.items() if value]
    if quoted or unclosed("\n".join(lines)):
        lines = [f"> {line}".rstrip() for line in lines]
    head = [field_text("bold", *each) for each in _fields({key: fields[key] for key in fields if key not in odd})]
    if "payload" in fields and (carried := _payload(message.get("payload"))):
        head = [line for line in head if not line.startswith("**Payload:**")]
        head += [field_text("bold", "Payload", str(each)) for each in carried]
    text = [f"### {id}", "", *head, *(["", *lines] if any(lines) else [])]
    for name in ("summary", "ack", "reply"):
        entries = _entries(message.get(name))
        text += ["", *(f"**{name.title()}:** {entry}" for entry in entries)] if entries else []
    return "".join(line + newline for line in text)


def _fields(said: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Labels and values of a card's fields."""
    route = [said.get(name, "") for name in ("from", "to")]
    if any(route):
        yield "From", " -> ".join(part for part in route if part)
    rest = ((key, value) for key, value in said.items() if key not in ("from", "to", "message_id"))
    yield from ((_label(key), value) for key, value in rest if value)


def _label(key: str) -> str:
    """The label of a field, if `key_of` makes its key of that again; else nothing."""
    label = key.replace("_", " ").capitalize()
    return label if key_of(label) == key else ""


def _entries(said: object) -> list[str]:
    return [_flat(each) for each in (said if isinstance(said, list) else [said]) if each]


def _payload(said: object) -> list[Payload]:
    try:
        return msgspec.convert(said, list[Payload])
    except msgspec.ValidationError:
        return []  # the field itself is kept


def _flat(value: object) -> str:
    """Any value on one line."""
    text = value if isinstance(value, str) else "" if value is None else msgspec.json.encode(value).decode()
    return " ".join("".join(mark if mark.isprintable() else " " for mark in text).split())


def still_lost(messages: Iterable[Message], box: Mailbox) -> list[Message]:
    """Those of some lost messages that a mailbox does not have either."""
    return [each for each in messages if str(each.get("id") or "") not in box.known_ids]
