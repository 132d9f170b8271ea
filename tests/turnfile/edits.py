"""Locks and edits for tests of turn files."""

from __future__ import annotations

from collections.abc import Callable

from holdfast import turnfile
from holdfast.turnfile import Session, Transaction
from holdfast.turnfile.ledger import Ledger
from holdfast.turnfile.ledger.yaml_edit import Put
from holdfast.turnfile.mailbox.draft import Draft, compose
from holdfast.turnfile.model import MAILBOX, Lock


def lock(session: Session, *files: str, holder: str = "ada", lease_revs: int = 2) -> Lock:
    """Take a lock without waiting."""
    return turnfile.acquire(session, turnfile.lock_request(session, files, holder, "test", lease_revs))


def write(session: Session, times: int = 1) -> Ledger:
    """Writes of somebody else, which have nothing to do with locks."""
    for _ in range(times):
        after = session.write(
            lambda ledger: ledger.changed([Put(("coordination", "active_step"), f"s{ledger.revision}")]), "mia"
        )
    return after


def append(path: str, line: str) -> Callable[[Transaction], str]:
    """An edit that adds a line."""

    def body(edit: Transaction) -> str:
        edit.write(path, (edit.read(path) or "") + line + "\n")
        return line

    return body


def send(subject: str, sender: str = "ada", receiver: str = "bob") -> Callable[[Transaction], str]:
    """An edit that sends a message."""

    def body(edit: Transaction) -> str:
        draft = Draft(sender, receiver, subject, "2026-06-12")
        text, message = compose(edit.read(MAILBOX) or "", draft)
        edit.write(MAILBOX, text)
        return message

    return body


def nothing(edit: Transaction) -> None:
    """An edit that edits nothing."""
