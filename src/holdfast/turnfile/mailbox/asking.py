"""Questions to the maintainer: messages of the type decision-required, with all that a decision needs.

Pure: a mailbox in, the mailbox with the question out. A question about the same thing is asked once until it is closed.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.turnfile.mailbox.cards import TERMINAL
from holdfast.turnfile.mailbox.composing import MAINTAINER, Draft, compose
from holdfast.turnfile.mailbox.document import parse
from holdfast.turnfile.model import Lock


def escalate(
    text: str, lock: Lock, revision: int, sender: str, date: str, *others: str, maintainers: Sequence[str] = ()
) -> tuple[str, str]:
    """Ask the maintainer to decide about a lock that blocks its contender; once per lock and acquisition.

    Gives the mailbox and the id of the message, which may be one that was sent before.
    """
    lock = msgspec.convert(_flat(msgspec.to_builtins(lock)), Lock)
    facts = [f"- lock_id: {lock.id}", f"- holder: {lock.holder}", f"- acquired_rev: {lock.acquired_rev}"]
    if (before := _asked(text, facts)) is not None:
        return text, before
    body = "\n".join(
        [
            f"**Decision needed:** who edits {', '.join(lock.files)} next",
            "",
            *facts,
            f"- last seen coordination.revision: {revision}",
            f"- lease_revs: {lock.lease_revs}",
            f"- reason: {lock.reason or 'none given'}",
            "",
            "**Options:**",
            f"1. Keep the lock: {lock.holder} finishes and releases it; {sender} goes on waiting.",
            f"2. Ask {lock.holder} to release it now: its edit is started again later.",
            f"3. Override it (`turn override {lock.id}`): {lock.holder} loses it, and its unfinished edit is refused.",
            "",
            "**Recommended:** 2",
            f"**If delayed:** {sender} stays blocked; the revision has not moved over two checks.",
        ]
    )
    subject = f"Lock {lock.id} of {lock.holder} blocks {sender}"
    draft = Draft(sender, MAINTAINER, subject, date, "decision-required", "P0", body, response_by="next turn")
    return compose(text, draft, *others, maintainers=maintainers)


def give_up(
    text: str,
    files: Sequence[str],
    why: str,
    lock_id: str,
    revision: int,
    sender: str,
    date: str,
    *others: str,
    maintainers: Sequence[str] = (),
) -> tuple[str, str]:
    """Tell the maintainer that an edit was made again and again in vain; once for the same files and agent."""
    names = ", ".join(files)
    facts = [f"- files: {names}", f"- given up by: {sender}"]
    if (before := _asked(text, facts)) is not None:
        return text, before
    body = "\n".join(
        [
            f"**Decision needed:** who edits {names} next",
            "",
            *facts,
            f"- lock_id: {lock_id}",
            f"- last seen coordination.revision: {revision}",
            f"- what happened: {' '.join(why.split())[:200]}",
            "",
            "**Options:**",
            f"1. Find who edits {names} without a lock, and stop that; {sender} makes its edit again.",
            f"2. Let {sender} wait until they are done.",
            "",
            "**Recommended:** 1",
            f"**If delayed:** the edit of {sender} is not made; nothing of it was written.",
        ]
    )
    draft = Draft(sender, MAINTAINER, f"{sender} gave up editing {names}"[:200], date, "decision-required", "P0", body)
    return compose(text, draft, *others, maintainers=maintainers)


def _asked(text: str, facts: Sequence[str]) -> str | None:
    """The id of a question that says all of this, and is not closed."""
    for card in parse(text).cards:
        if card.get("type") == "decision-required" and card.status not in TERMINAL:
            said = card.body.splitlines()
            if all(fact in said for fact in facts):
                return card.id
    return None


def _flat(value: object) -> object:
    """The same with every text on one line: what a TURNFILE.yaml says may go over many."""
    if isinstance(value, dict):
        return {key: _flat(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_flat(item) for item in value]
    return " ".join(value.split())[:200] if isinstance(value, str) else value
