"""Mail on a session's folder: each change is one transaction, with lock, invariants and projection.

`Mailing(folder, actor)` is one agent's hand on the mailbox. What may be done says `mailbox.steps`; here are only the
files: the mailbox, its projection, and the archive, which gets each closed card whole, so that nothing is lost.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast.errors import Invalid, MessageNotFound, NotFound
from holdfast.turnfile import files
from holdfast.turnfile.edits import Completion, Transaction
from holdfast.turnfile.files import Folder
from holdfast.turnfile.ledger import Ledger, strangers
from holdfast.turnfile.locks import Patience
from holdfast.turnfile.mailbox import Mailbox, composition, derived, parse, steps
from holdfast.turnfile.mailbox.composition import Draft
from holdfast.turnfile.mailbox.markdown import newline_of
from holdfast.turnfile.model import ARCHIVE, MAILBOX
from holdfast.turnfile.session import Place, Session, session_at
from holdfast.turnfile.transactions import transact

_ARCHIVE_HEAD: Final = "# Mailbox Archive"


class Mailed(msgspec.Struct, frozen=True):
    """What a change of the mailbox did: which message, how it stands now, and the transaction."""

    id: str
    status: str
    completion: Completion


class Mailing:
    """One agent's hand on the mailbox of a folder.

    `patience` says how to wait for the lock, `under` names a lock that the actor holds already. Every change raises
    Held or Escalated where somebody else holds the mailbox, and Invalid with `problems` where it is not in order.
    """

    def __init__(
        self,
        folder: Place,
        actor: str,
        *,
        patience: Patience | None = Patience(),  # noqa: B008 - frozen
        under: str | None = None,
    ) -> None:
        self.session = session_at(folder)
        self.actor = composition.agent_name(actor, "actor")
        self._patience = patience
        self._under = under

    def send(
        self,
        to: str,
        subject: str,
        *,
        body: str = "",
        type: str = "request",
        priority: str = "P1",
        response_by: str = "",
    ) -> Mailed:
        """Send a message; its id is the next of the day. Receivers whom nobody knows are told as warnings."""
        draft = Draft(self.actor, to, subject, self.session.today(), type, priority, body, response_by)

        def body_(edit: Transaction) -> tuple[str, str]:
            maintainers = edit.ledger.turnfile.maintainers
            text, id = composition.compose(_text(edit), draft, archive(self.session), maintainers=maintainers)
            edit.write(MAILBOX, text)
            return id, "unread"

        unknown = strangers(self.session.read(), *to.split(","))
        mailed = self._transact(f"send mail to {to}", body_)
        return msgspec.structs.replace(mailed, completion=mailed.completion.warning(*unknown))

    def reply(
        self,
        id: str,
        *,
        body: str = "",
        subject: str = "",
        type: str = "notify",
        priority: str = "P1",
        disposition: str = "",
    ) -> Mailed:
        """Answer a message: a new one to whoever sent it, which says so; an unread one is thereby acknowledged."""
        draft = Draft(
            self.actor, "", subject, self.session.today(), type, priority, body, in_reply_to=id, disposition=disposition
        )

        def body_(edit: Transaction) -> tuple[str, str]:
            text, new = steps.reply(_text(edit), id, self._as(edit.ledger), draft, archive(self.session))
            edit.write(MAILBOX, text)
            return new, "unread"

        return self._transact(f"reply to {id}", body_)

    def ack(self, id: str, note: str = "") -> Mailed:
        """Say that one has taken notice; raises NotRecipient or InvalidTransition, as the next two do."""
        return self._step(id, "ack", note)

    def action(self, id: str, note: str = "") -> Mailed:
        """Say that one has done what was asked."""
        return self._step(id, "action", note)

    def block(self, id: str, note: str) -> Mailed:
        """Say what one waits for."""
        return self._step(id, "block", note)

    def close(self, id: str, note: str = "", *, disposition: steps.Disposition = "closed", keep: str = "") -> Mailed:
        """Close a message; its card goes to the archive, or with `keep` (why) stays. Raises NotSender."""

        def body_(edit: Transaction) -> tuple[str, str]:
            closed = steps.close(_text(edit), id, self._as(edit.ledger), note, disposition, keep)
            edit.write(MAILBOX, closed.text)
            if closed.card:
                edit.write(ARCHIVE, archived(edit.read(ARCHIVE), closed.card))
            return id, "closed"

        return self._transact(f"close {id}", body_, ARCHIVE)

    def _step(self, id: str, operation: steps.Operation, note: str) -> Mailed:
        def body_(edit: Transaction) -> tuple[str, str]:
            edit.write(MAILBOX, steps.step(_text(edit), id, operation, self._as(edit.ledger), note))
            return id, steps.STEPS[operation][1]

        return self._transact(f"{operation} {id}", body_)

    def _transact(self, reason: str, body: Callable[[Transaction], tuple[str, str]], *others: str) -> Mailed:
        holder = self.session.read().turnfile.spelled(self.actor)
        completion = transact(
            [MAILBOX, *others],
            holder,
            reason[:200],
            body,
            folder=self.session,
            patience=self._patience,
            under=self._under,
            rehearse=True,
        )
        id, status = completion.result
        return Mailed(id, status, completion)

    def _as(self, ledger: Ledger) -> steps.Actor:
        return steps.Actor(self.actor, self.session.today(), ledger.turnfile.maintainers)


def messages(folder: Place, actor: str | None = None, status: str | None = None) -> list[dict[str, Any]]:
    """The messages that are not closed, as programs see them: of all, or from and to one agent."""
    session, box = _mailbox(folder)
    who = steps.Actor(actor, session.today(), session.read().turnfile.maintainers) if actor is not None else None
    return [derived.message(card) for card in steps.listing(box, who, status)]


def message(folder: Place, id: str) -> dict[str, Any]:
    """One message, from the mailbox or from the archive; raises MessageNotFound."""
    session, box = _mailbox(folder)
    card = box.find(id)
    if card is None:
        card = parse(archive(session)).find(id)
    if card is not None:
        return derived.message(card)
    closed = [row for row in derived.project(box)["closed_summary"] if row["id"] == id]
    if not closed:
        raise MessageNotFound(f"{id} is not in the mailbox", hint="`turn mail list` shows the open messages", id=id)
    return {"id": id, "status": "closed", "fields": closed[0]}


def export(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> bool:
    """Write the projection of one file into another by hand; False if that says the same already."""
    source, target = os.path.abspath(source), os.path.abspath(target)
    if source == target or not target.endswith(".json"):
        raise Invalid(f"a projection goes into a .json file, not into {os.path.basename(target)}")
    text = Folder(os.path.dirname(source)).read(os.path.basename(source))
    if text is None:
        raise NotFound(f"there is no {source}")
    folder, name = Folder(os.path.dirname(target)), os.path.basename(target)
    place = f"{os.path.basename(os.path.dirname(source))}/{os.path.basename(source)}"
    with folder.turn():
        files.recover(folder)
        previous = folder.read(name)
        fresh = derived.render(text, place, Session(folder.path).timestamp(), previous)
        if fresh == previous:
            return False
        files.replace(folder, {name: fresh}, {name: previous})
    return True


def archived(before: str | None, card: str) -> str:
    """The archive with one more card at its end."""
    before = before or _ARCHIVE_HEAD + newline_of(card)
    nl = newline_of(before)
    end = "" if before.endswith("\n") else nl
    lines = card.rstrip("\r\n").replace("\r\n", "\n").replace("\n", nl)
    return f"{before}{end}{nl}---{nl}{nl}{lines}{nl}"


def archive(session: Session) -> str:
    """What is archived: an id that is used there is never given again, whatever became of the mailbox."""
    return session.texts([ARCHIVE])[ARCHIVE] or ""


def _text(edit: Transaction) -> str:
    text = edit.read(MAILBOX)
    if text is None:
        raise NotFound(f"there is no {MAILBOX}", hint="make it with: holdfast turn init --missing")
    return text


def _mailbox(folder: Place) -> tuple[Session, Mailbox]:
    session = session_at(folder)
    text = session.texts([MAILBOX])[MAILBOX]
    if text is None:
        raise NotFound(f"there is no {MAILBOX}", hint="make it with: holdfast turn init --missing")
    return session, parse(text)
