"""The steps of a message: what each actor may do with it, and how the mailbox records it.

Pure: text in, text out. A receiver acknowledges, actions or blocks; the sender or a maintainer closes. Nothing leaves
a terminal status. Each step adds an Ack line and refreshes snapshot and queue. A closed card moves to the closed
summary, or stays with a line that gives the reason. Called by `mail`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal

import msgspec

from holdfast import errors
from holdfast.turnfile.mailbox import Mailbox, add_entry, insert_row, parse, remove_card, set_field
from holdfast.turnfile.mailbox.cards import OPEN, TERMINAL, Card, fold, is_known, least_of
from holdfast.turnfile.mailbox.draft import Draft, check_date, compose, one_line, others_unchanged, spelled
from holdfast.turnfile.mailbox.markdown import Edit, row_text
from holdfast.turnfile.mailbox.projection import NOTHING, column, refresh, with_table

Operation = Literal["ack", "action", "block"]
Disposition = Literal["closed", "resolved", "superseded", "withdrawn", "abandoned"]

KEPT: Final = 200  # closed cards that stay, and rows of the closed summary

# The receiver's steps: from which statuses, to which.
STEPS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "ack": (("unread", "blocked"), "acknowledged"),
    "action": (("unread", "acknowledged", "blocked"), "actioned"),
    "block": (("acknowledged",), "blocked"),
}


class Actor(msgspec.Struct, frozen=True):
    """The actor of a step, and the date.

    `maintainers` are the maintainers' names besides `Maintainer`, `everyone` is whom a message to `all` means.
    """

    name: str
    date: str
    maintainers: tuple[str, ...] = ()
    everyone: tuple[str, ...] = ()

    @property
    def maintains(self) -> bool:
        """Whether the actor is a maintainer."""
        return fold(self.name) in self._maintainers

    def among(self, names: Collection[str]) -> bool:
        """Whether one of the names is the actor's; a maintainer has all of the maintainers' names."""
        own = self._maintainers if self.maintains else {fold(self.name)}
        return any(fold(name) in own for name in names)

    @property
    def _maintainers(self) -> set[str]:
        return {"maintainer", *(fold(name) for name in self.maintainers if name.strip())}


class Closed(msgspec.Struct, frozen=True):
    """A mailbox after a message was closed, and what left it: cards, and rows of the closed summary with their head."""

    text: str
    cards: tuple[str, ...] = ()
    head: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()


def step(text: str, id: str, operation: Operation, actor: Actor, note: str = "") -> str:
    """Acknowledge, action or block a message. Raises NotRecipient or InvalidTransition."""
    box = parse(text)
    card = box.card(id)
    sources, target = STEPS[operation]
    if not actor.among(card.receivers) and not _is_to_all(card, actor):
        message = f"{id} was sent to {card.receiver or 'nobody'}, not to {actor.name}"
        raise errors.NotRecipient(message, id=id, receiver=card.receiver)
    mine, states = _own_states(card, actor)
    if not all(state in sources for state in mine.values()):
        raise _illegal(card, operation, " or ".join(sources), mine)
    if operation == "block" and not note.strip():
        raise errors.InvalidValue("a blocked message needs a note", hint="name the dependency in the note", id=id)
    status = least_of({**states, **dict.fromkeys(mine, target)}.values()) if len(states) > 1 else target
    return refresh(_marked(box, card, status, target, actor, note, mine), actor.everyone).text


def close(
    text: str, id: str, actor: Actor, note: str = "", disposition: Disposition = "closed", keep: str = ""
) -> Closed:
    """Close a message: add a row to the closed summary and remove its card; with `keep` (a reason) the card stays.

    What is closed and older than the newest 200 leaves too: kept cards, and rows of the closed summary.
    """
    box = parse(text)
    card = box.card(id)
    _may_close(card, actor, disposition)
    marked = _marked(box, card, "closed", disposition, actor, note)
    if disposition != "closed":
        marked = marked.edited(set_field(marked, marked.card(id), "disposition", "Disposition", disposition))
    if keep.strip():
        reason = one_line(keep, "reason to keep it")
        kept = marked.edited(set_field(marked, marked.card(id), "retained", "Retained", reason))
        return _without_old(_harmless(box, kept, id), (), actor)
    after, left = _removed(marked, marked.card(id), actor, note, disposition)
    return _without_old(_harmless(box, after, id), (left,), actor)


def _removed(box: Mailbox, card: Card, actor: Actor, note: str, disposition: str) -> tuple[Mailbox, str]:
    """The mailbox with a row of the closed summary in place of a card, and the text of the card."""
    after = with_table(box.edited([remove_card(box, card)]), "closed")
    return after.edited([_closed_row(after, card, actor, note, disposition)]), card.content.text


def _without_old(box: Mailbox, cards: tuple[str, ...], actor: Actor) -> Closed:
    """The mailbox with its tables refreshed, without what is closed beyond the newest; and what left it."""
    terminal = sorted((card for card in box.cards if card.status in TERMINAL), key=lambda card: card.order)
    for old in [card.id for card in terminal[:-KEPT]]:
        card = next(card for card in box.cards if card.id == old and card.status in TERMINAL)
        box, left = _removed(box, card, actor, f"archived: {card.get('retained') or 'it is old'}", card.status)
        cards = (*cards, left)
    head: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    if (table := box.closed) is not None and len(table.rows) > KEPT:
        old_rows = [row.line for row in table.rows[KEPT:]]
        above = box.text.rfind("\n", 0, table.ruler.start - 1) + 1
        head, rows = (
            (box.text[above : table.ruler.start].rstrip(), table.ruler.text),
            tuple(row.text for row in old_rows),
        )
        box = box.edited([Edit(old_rows[0].start, old_rows[-1].after, "")])
    return Closed(refresh(box, actor.everyone).text, cards, head, rows)


def reply(text: str, id: str, actor: Actor, draft: Draft, *others: str) -> tuple[str, str]:
    """Reply to a message with a new one; an unread message becomes acknowledged.

    An empty receiver or subject of the draft is taken from the message.
    """
    box = parse(text)
    card = box.card(id)
    mine = actor.among([card.sender])
    if not mine and not actor.among(card.receivers) and not _is_to_all(card, actor) and not actor.maintains:
        message = f"{id} is from {card.sender} to {card.receiver}, not to {actor.name}"
        raise errors.NotRecipient(message, id=id, receiver=card.receiver)
    receiver = draft.receiver or (card.receiver if mine else card.sender)
    subject = card.get("subject") or id
    subject = draft.subject or (subject if subject.lower().startswith("re:") else f"Re: {subject}")
    draft = msgspec.structs.replace(draft, receiver=receiver, subject=subject, in_reply_to=id)
    text, new = compose(text, draft, *others, maintainers=actor.maintainers, everyone=actor.everyone)
    received = not mine and (actor.among(card.receivers) or _is_to_all(card, actor))
    if received and "unread" in _own_states(card, actor)[0].values():
        text = step(text, id, "ack", actor, f"answered in {new}")
    return text, new


def open_cards(box: Mailbox, actor: Actor | None = None, status: str | None = None) -> list[Card]:
    """The open cards, or those with a status; of everybody, or of one actor. Raises InvalidValue."""
    if status is not None and status not in (*OPEN, *TERMINAL):
        raise errors.InvalidValue(f"{status!r} is not a status", hint=f"statuses are {', '.join((*OPEN, *TERMINAL))}")
    return [
        card
        for card in box.cards
        if (actor is None or actor.among([card.sender, *card.receivers]) or _is_to_all(card, actor))
        and (card.status not in TERMINAL if status is None else status in _statuses(card, actor))
    ]


def _own_states(card: Card, actor: Actor) -> tuple[dict[str, str], dict[str, str]]:
    """The status of a message for the actor, by the name it was sent to; and for every receiver."""
    states = card.states(actor.everyone)
    mine = {name: state for name, state in states.items() if actor.among([name])}
    if not mine:  # of a message to all, to somebody whom the ledger does not list
        mine = {actor.name: card.acknowledged.get(fold(actor.name), "unread" if len(states) > 1 else card.status)}
    return mine, states


def _statuses(card: Card, actor: Actor | None) -> set[str]:
    """The statuses of a card: its own, or for one of several receivers theirs."""
    if actor is None or not is_known(card.status) or not (actor.among(card.receivers) or _is_to_all(card, actor)):
        return {card.status}
    return set(_own_states(card, actor)[0].values())


def _is_to_all(card: Card, actor: Actor) -> bool:
    return card.is_to_all and not actor.among([card.sender])


def _may_close(card: Card, actor: Actor, disposition: str) -> None:
    sent = actor.among([card.sender])
    # A notification asks for nothing, so anybody may close it.
    if not sent and not actor.maintains and card.get("type").lower() != "notify":
        raise errors.NotSender(
            f"{card.id} was sent by {card.sender}; {actor.name} cannot close it",
            hint="a receiver acknowledges or actions it; the sender or the maintainer closes it",
            id=card.id,
            sender=card.sender,
        )
    if card.status not in OPEN:
        raise _illegal(card, "close", "open")
    if disposition not in TERMINAL:
        hint = f"dispositions are {', '.join(TERMINAL)}"
        raise errors.InvalidValue(f"{disposition!r} is not a disposition", hint=hint)
    if disposition == "withdrawn" and not sent:
        raise errors.NotSender(f"only {card.sender} can withdraw {card.id}", id=card.id, sender=card.sender)
    if disposition == "abandoned" and not actor.maintains:
        raise errors.Forbidden(f"only the maintainer can abandon {card.id}", id=card.id)


def _illegal(card: Card, operation: str, needs: str, mine: dict[str, str] | None = None) -> errors.InvalidTransition:
    is_ = (next(iter(mine.values())) if mine else card.status) or "without a status"
    hint = (
        "acknowledge or action an unread or blocked message; action or block an acknowledged one; a closed message"
        " stays closed"
    )
    if card.status not in (*OPEN, *TERMINAL):
        hint = "turnfile.tidy(session, actor) gives it the status that its Ack lines say"
    message = f"cannot {operation} {card.id}: it is {is_}, not {needs}"
    return errors.InvalidTransition(message, hint=hint, id=card.id, status=is_)


def _marked(
    box: Mailbox, card: Card, status: str, word: str, actor: Actor, note: str, names: Collection[str] = ()
) -> Mailbox:
    """The mailbox with a card's status changed, and an Ack line with actor, date and note.

    `names` are those under which the actor received it; of a message to several, the Ack line has that name.
    """
    note = one_line(note, "note", empty=True)
    name = spelled(box, one_line(actor.name, "actor"))
    if len(card.addressees(actor.everyone)) > 1 and names:
        name = spelled(box, next(iter(names)))
    entry = f"{name} — {check_date(actor.date)} — {word}{f': {note}' if note else '.'}"
    edits = set_field(box, card, "status", "Status", status)
    if due := _typed_due(box, card, status):
        edits += set_field(box, card, "response_needed_by", "Response needed by", due)
    edits.append(add_entry(box, card, "ack", "Ack", entry))
    after = _harmless(box, box.edited(edits), card.id)
    changed = after.find(card.id)
    if changed is None or changed.status != status or changed.entries("ack")[-1:] != (entry,):
        hint = "change the note"
        raise errors.InvalidValue(f"{card.id} would not be parsed back with this note", hint=hint, id=card.id)
    return after


def _typed_due(box: Mailbox, card: Card, status: str) -> str:
    """When a response is needed as only the tables say it, whose cells go with this step; mostly nothing."""
    if card.get("response_needed_by"):
        return ""
    cells = [(box.snapshot, "oldest_unread", "needs_response_by")]
    if status in TERMINAL:  # its row leaves the queue
        cells += [(box.queue, "id", "response_needed_by"), (box.queue, "id", "due")]
    said = (
        table.value(row, name)
        for table, key, name in cells
        if table is not None
        for row in table.rows
        if fold(table.value(row, key)) == fold(card.id)
    )
    return "; ".join(dict.fromkeys(value for value in said if fold(value) not in NOTHING and "<!--" not in value))


def _harmless(before: Mailbox, after: Mailbox, id: str) -> Mailbox:
    if not others_unchanged(before, after, id):
        hint = "look for a code fence or comment that is not closed"
        raise errors.InvalidValue(f"changing {id} would change another card too", hint=hint, id=id)
    return after


def _closed_row(box: Mailbox, card: Card, actor: Actor, note: str, disposition: str) -> Edit:
    table = box.closed
    if table is None:
        raise errors.Invalid("the closed summary has no table", hint="add its head and ruler below the heading")
    said = {
        "date": check_date(actor.date),
        "final_status": disposition,
        "outcome": note.strip() or f"closed by {spelled(box, actor.name)}",
        "closed_by": spelled(box, actor.name),
    }
    values = [said.get(name) or column(card, name) or "none" for name in table.columns]
    there = next((row.line for row in table.rows if table.value(row, "id") == card.id), None)
    if there is not None:  # somebody added the row and left the card open
        return Edit(there.start, there.end, row_text(values))
    return insert_row(box, table, 0, values)
