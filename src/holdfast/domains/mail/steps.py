"""Where a message stands with each receiver, and who may move it: one table.

The receiver acknowledges, acts, or says what it waits for; the sender, or a maintainer, closes it for all. Nothing
leaves `closed`. Reading is no step: who has read has not acknowledged.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast import errors
from holdfast.domains import agents
from holdfast.domains.holding import holder_of
from holdfast.domains.mail.rows import Stored, change, require, status_of
from holdfast.domains.tasks.texts import check_note
from holdfast.kernel.tx import Tx
from holdfast.types.mail import MailStatus, Message

# The receiver's: from where each operation leads where.
STEPS: Final[dict[str, tuple[tuple[MailStatus, ...], MailStatus]]] = {
    "ack": (("unread", "blocked"), "acknowledged"),
    "action": (("unread", "acknowledged", "blocked"), "actioned"),
    "block": (("acknowledged",), "blocked"),
}


def ack(tx: Tx, id: str, agent: str | None = None, note: str | None = None) -> Message:
    """Say that one has taken notice of a message."""
    return _step(tx, id, "ack", agent, check_note(note))


def action(tx: Tx, id: str, agent: str | None = None, note: str | None = None) -> Message:
    """Say that one has done what a message asked for."""
    return _step(tx, id, "action", agent, check_note(note))


def block(tx: Tx, id: str, reason: str, agent: str | None = None) -> Message:
    """Say what one waits for before one can act; the message was acknowledged before."""
    if check_note(reason, "reason") is None or not reason.strip():
        raise errors.Invalid("a block says what it waits for", hint="give the reason")
    return _step(tx, id, "block", agent, reason)


def close(tx: Tx, id: str, agent: str | None = None, note: str | None = None) -> Message:
    """Close a message for all who received it; only its sender or a maintainer can."""
    check_note(note)
    agent = holder_of(tx, agent, "agent")
    stored = require(tx, id)
    if stored.closed is not None:
        raise _illegal(stored, "close", "closed", "closed")
    if agent != stored.sender and agents.role_of(tx, agent) != "maintainer":
        raise errors.NotSender(
            f"message {id} was sent by {stored.sender}: {agent} cannot close it",
            hint="its receivers acknowledge or action it; a maintainer can close it too",
            id=id,
            sender=stored.sender,
        )
    tx.run("UPDATE deliveries SET status = 'closed', updated = ? WHERE message = ?", (tx.now, stored.seq))
    return change(tx, stored, "close", _said(agent, note), closed=tx.now)


def _step(tx: Tx, id: str, op: str, agent: str | None, note: str | None) -> Message:
    agent = holder_of(tx, agent, "agent")
    stored = require(tx, id)
    status = status_of(tx, stored, agent)
    if status is None:
        raise errors.NotRecipient(f"message {id} was not sent to {agent}", id=id, agent=agent)
    sources, target = STEPS[op]
    if status not in sources:
        raise _illegal(stored, op, status, target)
    tx.run(
        "UPDATE deliveries SET status = ?, updated = ? WHERE message = ? AND agent = ?",
        (target, tx.now, stored.seq, agent),
    )
    return change(tx, stored, op, {**_said(agent, note), "status": [status, target]})


def _said(agent: str, note: str | None) -> dict[str, Any]:
    return {"agent": agent} if note is None else {"agent": agent, "note": note}


def _illegal(stored: Stored, op: str, status: MailStatus, target: MailStatus) -> errors.InvalidTransition:
    ways = [f"{goal} by {name}" for name, (sources, goal) in STEPS.items() if status in sources]
    return errors.InvalidTransition(
        f"{op} cannot bring message {stored.id} from {status} to {target}",
        hint=f"from {status}: {', '.join(ways)}" if ways else f"nothing leaves {status}",
        id=stored.id,
        current_status=status,
        requested_status=target,
        valid_transitions=[STEPS[name][1] for name in STEPS if status in STEPS[name][0]],
    )
