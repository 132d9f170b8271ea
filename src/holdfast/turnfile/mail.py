"""Mail in a session's folder: each change is one transaction, with lock, invariants and projection.

`Mail(folder, actor)` sends and answers messages as one agent. `mailbox.steps` decides which steps are legal; this
module handles the files: the mailbox, its projection, and the archive, which gets each closed card whole. Called by
the faces.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

from holdfast.errors import Invalid, MessageNotFound, NotFound
from holdfast.turnfile import archive, damage, files
from holdfast.turnfile.files import Folder
from holdfast.turnfile.ledger import unknown_names
from holdfast.turnfile.locks import WaitPolicy
from holdfast.turnfile.mailbox import Mailbox, parse, projection, steps
from holdfast.turnfile.mailbox.cards import Card
from holdfast.turnfile.mailbox.content import Payload
from holdfast.turnfile.mailbox.draft import Draft, agent_name, compose
from holdfast.turnfile.model import MAILBOX, PROJECTION, Completion, Problem
from holdfast.turnfile.session import Session, SessionLike, as_session
from holdfast.turnfile.transactions import Transaction, transact

Change = Callable[[Transaction], tuple[str, str]]
"""Edits the mailbox; returns the id of the message and its status."""

_LIST: Final = "turnfile.mail.messages(session) lists the open messages"


class MailResult(msgspec.Struct, frozen=True):
    """The result of a change of the mailbox: the message, its status, and the transaction."""

    id: str
    status: str
    completion: Completion


class Mail:
    """The mailbox of a folder, as one agent uses it.

    `wait` is how to wait for the lock, None to raise Held at once; `under` names a lock that the actor already holds.
    Every change raises Held or Escalated if somebody else holds the mailbox, and Invalid with `problems` if the
    mailbox breaks an invariant.
    """

    def __init__(
        self,
        folder: SessionLike,
        actor: str,
        *,
        wait: WaitPolicy | None = WaitPolicy(),  # noqa: B008 - frozen
        under: str | None = None,
    ) -> None:
        self.session = as_session(folder)
        self.actor = agent_name(actor, "actor")
        self._wait = wait
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
        files: Sequence[str] = (),
    ) -> MailResult:
        """Send a message; its id is the next of the day. Unknown receivers are warnings.

        `files` of the project are handed over with it: the card has their digests and the revision of the ledger, and
        `verify` compares. One that is given twice counts once. Raises NotFound for one that does not exist.
        """
        draft = Draft(self.actor, to, subject, self.session.today(), type, priority, body, response_by)
        draft = msgspec.structs.replace(draft, payload=_payload(self.session, files))

        def body_(edit: Transaction) -> tuple[str, str]:
            people = edit.ledger.turnfile
            names = {"maintainers": people.maintainers, "everyone": edit.with_newcomers()}
            text, id = compose(_text(edit), draft, *self._archives(), **names)
            edit.write(MAILBOX, text)
            doubts[:] = _clock_warning(text, id)
            return id, "unread"

        doubts: list[Problem] = []
        warnings = [*unknown_names(self.session.read(), *to.split(",")), *_decision_warning(draft)]
        sent = self._transact(f"send mail to {to}", body_, warnings=warnings)
        return msgspec.structs.replace(sent, completion=_warned(sent.completion, doubts))

    def reply(
        self,
        id: str,
        *,
        body: str = "",
        subject: str = "",
        type: str = "notify",
        priority: str = "P1",
        disposition: str = "",
    ) -> MailResult:
        """Reply to a message's sender with a new message; an unread message becomes acknowledged."""
        draft = Draft(
            self.actor, "", subject, self.session.today(), type, priority, body, in_reply_to=id, disposition=disposition
        )

        def body_(edit: Transaction) -> tuple[str, str]:
            text, new = steps.reply(_text(edit), id, self._as(edit), draft, *self._archives())
            edit.write(MAILBOX, text)
            return new, "unread"

        return self._transact(f"reply to {id}", body_)

    def ack(self, id: str, note: str = "") -> MailResult:
        """Acknowledge a message. Raises NotRecipient or InvalidTransition, as do the next two."""
        return self.step(id, "ack", note)

    def action(self, id: str, note: str = "") -> MailResult:
        """Mark a message as actioned: what it asks for is done."""
        return self.step(id, "action", note)

    def block(self, id: str, note: str) -> MailResult:
        """Mark a message as blocked; the note names the dependency."""
        return self.step(id, "block", note)

    def close(
        self, id: str, note: str = "", *, disposition: steps.Disposition = "closed", keep: str = ""
    ) -> MailResult:
        """Close a message and archive its card; with `keep` (a reason) the card stays. Raises NotSender."""

        def body_(edit: Transaction) -> tuple[str, str]:
            closed = steps.close(_text(edit), id, self._as(edit), note, disposition, keep)
            edit.write(MAILBOX, closed.text)
            for card in closed.cards:
                edit.write(shelf, archive.with_card(edit.read(shelf), card))
            if closed.rows:
                edit.write(rows, archive.with_rows(edit.read(rows), closed.head, closed.rows))
            return id, "closed"

        shelf, rows = archive.shelves(self.session.folder)
        return self._transact(f"close {id}", body_, shelf, rows)

    def step(self, id: str, operation: steps.Operation, note: str = "") -> MailResult:
        """Acknowledge, action or block a message: see `ack`, `action`, `block`."""

        def body_(edit: Transaction) -> tuple[str, str]:
            edit.write(MAILBOX, steps.step(_text(edit), id, operation, self._as(edit), note))
            return id, steps.STEPS[operation][1]

        return self._transact(f"{operation} {id}", body_)

    def _transact(self, reason: str, body: Change, *others: str, warnings: Sequence[Problem] = ()) -> MailResult:
        try:
            completion = transact(
                [MAILBOX, *others],
                self.session.spelled(self.actor),
                reason[:200],
                body,
                folder=self.session,
                wait=self._wait,
                under=self._under,
                rehearse=True,
            )
        except MessageNotFound as error:
            raise _only_projected(self.session, error.details["id"]) or error from error
        completion = _warned(completion, warnings)
        id, status = completion.result
        return MailResult(id, status, completion)

    def _archives(self) -> list[str]:
        """The texts of the archives and of the projection; ids that they use are never given again."""
        return archive.with_ids(self.session.folder, self.session.archived)

    def _as(self, edit: Transaction) -> steps.Actor:
        maintainers = edit.ledger.turnfile.maintainers
        return steps.Actor(self.actor, self.session.today(), maintainers, edit.with_newcomers())


def _warned(completion: Completion, warnings: Sequence[Problem]) -> Completion:
    return msgspec.structs.replace(completion, warnings=(*completion.warnings, *warnings))


def _clock_warning(text: str, id: str) -> Iterator[Problem]:
    """Warn about a new card with cards of a later day: this machine's clock may be behind, and nobody looks there."""
    box = parse(text)
    newest = box.newest
    if newest is not None and newest.id != id:
        words = f"{id} is below {newest.id}, which is of a later day: is the clock of this machine behind?"
        yield Problem(MAILBOX, box.card(id).line, "warning", "clock-behind", words)


_PARTS: Final = ("decision needed", "options", "recommended", "if delayed")


def _decision_warning(draft: Draft) -> Iterator[Problem]:
    """Warn about a decision-required message that does not say what to decide between."""
    said = draft.body.lower()
    missing = [part for part in _PARTS if part not in said] if draft.type == "decision-required" else []
    if missing:
        words = f"a decision-required message names {', '.join(_PARTS)}; this one lacks {', '.join(missing)}"
        yield Problem(MAILBOX, 1, "warning", "decision", words)


def messages(folder: SessionLike, actor: str | None = None, status: str | None = None) -> list[dict[str, Any]]:
    """The open messages as data: all, or those from and to one agent."""
    session, box = _mailbox(folder)
    people = session.read().turnfile
    who = None
    if actor is not None:
        who = steps.Actor(actor, session.today(), people.maintainers, people.everyone)
    return [projection.message(card) for card in steps.open_cards(box, who, status)]


def message(folder: SessionLike, id: str) -> dict[str, Any]:
    """One message as data, from the mailbox or the archive. Raises MessageNotFound."""
    session, box = _mailbox(folder)
    card = _card(session, box, id)
    if card is not None:
        return projection.message(card)
    row = projection.closed_row(box, id) or archive.find_row(session.folder, session.archived, id)
    if row is None:
        raise _only_projected(session, id) or MessageNotFound(f"{id} is not in the mailbox", hint=_LIST, id=id)
    return {"id": id, "status": "closed", "fields": row}


def _card(session: Session, box: Mailbox, id: str) -> Card | None:
    """The card of an id, from the mailbox or an archive, or None. Raises Invalid if several cards have it."""
    return box.card(id) if box.find(id) else archive.find_card(session.folder, session.archived, id)


def _only_projected(session: Session, id: str) -> MessageNotFound | None:
    """The error for a message whose card is lost, while the projection still has it; None for any other."""
    texts = session.texts([MAILBOX, PROJECTION])
    if all(each.get("id") != id for each in archive.lost(session.folder, texts[MAILBOX], texts[PROJECTION])):
        return None
    hint = "turnfile.tidy(session, actor) brings it back"
    return MessageNotFound(f"{id} has no card in {MAILBOX}: {PROJECTION} alone has it", hint=hint, id=id)


class PayloadState(msgspec.Struct, frozen=True):
    """A file of a handoff now: `same`, `changed` or `missing` since the message was sent at that revision.

    A line of the card that cannot be read is `damaged`: `path` is what it says.
    """

    path: str
    state: Literal["same", "changed", "missing", "damaged"]
    sha256: str
    now: str | None
    revision: int


def verify(folder: SessionLike, id: str) -> list[PayloadState]:
    """What has become of the files that a message carries. Raises MessageNotFound, or Invalid if it carries none."""
    session, box = _mailbox(folder)
    card = _card(session, box, id)
    if card is None:
        raise MessageNotFound(f"{id} is not in the mailbox", hint=_LIST, id=id)
    damaged = [PayloadState(value, "damaged", "", None, 0) for value in card.content.damaged_payload]
    if not card.payload and not damaged:
        raise Invalid(f"{id} carries no files", hint="attach files when you send the message", id=id)
    project = _project(session)
    found = []
    for each in card.payload:
        now = project.digest(each.path)
        state: Literal["same", "changed", "missing"] = "same" if now == each.sha256 else "changed" if now else "missing"
        found.append(PayloadState(each.path, state, each.sha256, now, each.revision))
    return [*found, *damaged]


def _payload(session: Session, files: Sequence[str]) -> tuple[Payload, ...]:
    """The digests of files of the project, named from its root, from the session's folder, or by absolute path."""
    project, revision = _project(session), session.read().revision
    found: dict[str, Payload] = {}
    for name in [files] if isinstance(files, str) else files:
        path = os.path.relpath(name, project.path) if os.path.isabs(name) else os.path.normpath(name)
        if path.startswith("..") or not path.isprintable() or len(path) > 400:
            hint = f"name files below {project.path}"
            raise Invalid(f"{name!r} is not a file of the project", hint=hint, path=name)
        sha256 = project.digest(path)
        if sha256 is None:
            raise NotFound(f"there is no file {path} in {project.path}", hint="name it from there", path=path)
        if path != path.lstrip():
            hint = "rename the file, then attach it"
            raise Invalid(f"{path!r} begins with a blank, which the line of a card loses", hint=hint, path=path)
        found[path] = Payload(path, sha256, revision)
    return tuple(found.values())


def _project(session: Session) -> Folder:
    return Folder(os.path.dirname(session.folder.path))


def export(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> bool:
    """Write the projection of a mailbox file into another file; False if that is already up to date."""
    source, target = os.path.abspath(source), os.path.abspath(target)
    if source == target or not target.endswith(".json"):
        raise Invalid(f"{os.path.basename(target)} is not a .json file", hint="name the JSON file to write")
    text = Folder(os.path.dirname(source)).read(os.path.basename(source))
    if text is None:
        raise NotFound(f"there is no file {source}")
    damage.refuse(os.path.basename(source), text)
    folder, name = Folder(os.path.dirname(target)), os.path.basename(target)
    source_file = f"{os.path.basename(os.path.dirname(source))}/{os.path.basename(source)}"
    with folder.write_lock():
        files.recover(folder)
        previous = folder.read(name)
        lost = archive.lost(Folder(os.path.dirname(source)), text, previous)
        fresh = projection.render(text, source_file, Session(folder.path).timestamp(), previous, lost)
        if fresh == previous:
            return False
        files.replace(folder, {name: fresh}, {name: previous})
    return True


def _text(edit: Transaction) -> str:
    text = _existing(edit.read(MAILBOX))
    damage.refuse(MAILBOX, text)
    return text


def _mailbox(folder: SessionLike) -> tuple[Session, Mailbox]:
    session = as_session(folder)
    return session, parse(_existing(session.texts([MAILBOX])[MAILBOX]))


def _existing(text: str | None) -> str:
    if text is None:
        raise NotFound(f"there is no {MAILBOX}", hint="turnfile.restore(session) creates an empty one")
    return text
