"""The laws of agents and mail as plain Python, on top of the model of tasks and path locks.

Spelled out from the requirements, A1 to A4 and F11; nothing is shared with the implementation but the types of the
answers and errors. `seen_at` is not modelled: it may lag.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from holdfast import errors
from holdfast.testing import ManualClock
from holdfast.types import DerivedActor, Page, as_time
from holdfast.types.agents import Agent, MailStatus, MailType, Message, Role
from holdfast.types.tasks import Task
from tests.conformance.model_base import TaskRow
from tests.simulation.path_model import PathModel

# What a receiver may do: where it leads, and from where.
STEPS: dict[str, tuple[MailStatus, tuple[MailStatus, ...]]] = {
    "ack": ("acknowledged", ("unread", "blocked")),
    "action": ("actioned", ("unread", "acknowledged", "blocked")),
    "block": ("blocked", ("acknowledged",)),
}


class MailModel(PathModel):
    """A workspace with agents and mail as its users imagine it."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.next_messages: deque[tuple[str, tuple[str, ...]]] = deque()  # ids, and who received it

    # --- agents ------------------------------------------------------------------------------------------------------

    def transact(self, actor: str, body: Callable[[], Any]) -> Any:
        """Who has changed something under a chosen name is known."""
        result = super().transact(str(actor), body)
        if len(self.events) > self._first and actor != "system" and not isinstance(actor, DerivedActor):
            self.state.actors.setdefault(actor, self.now)
        return result

    def _named(self, name: str | None) -> str:
        """Who is meant, and so acts."""
        self.state.actors.setdefault(name or self.actor, self.now)
        return name or self.actor

    def _give(self, row: TaskRow, agent: str, ttl: float | None) -> Task:
        return super()._give(row, self._named(agent), ttl)

    def agents_register(
        self,
        name: str,
        program: str | None = None,
        model: str | None = None,
        can: Sequence[str] | None = None,
        role: Role | None = None,
    ) -> Agent:
        self._named(name)
        old = self.state.agents.get(name)
        before = old or Agent(name, "", "", "agent", (), None, None, 0, 0)
        abilities = None if can is None else tuple(sorted({*can}))
        given = {"program": program, "model": model, "role": role, "can": abilities}
        changes = {
            field: [getattr(before, field), value]
            for field, value in given.items()
            if value is not None and getattr(before, field) != value
        }
        if old is not None and not changes:
            return old
        version = self.emit("agent", "", name, "register", changes)
        fields: dict[str, Any] = {field: value for field, (_, value) in changes.items()}
        registered = before.registered_at or as_time(self.now)
        new = msgspec.structs.replace(
            before, **fields, registered_at=registered, version=version, revision=self.revision + 1
        )
        self.state.agents[name] = new
        return new

    def agents_get(self, name: str) -> Agent:
        if name not in self.state.agents:
            raise errors.NotFound(name=name)
        return self.state.agents[name]

    def role(self, name: str) -> Role:
        """Who has not registered is an agent."""
        return self.state.agents[name].role if name in self.state.agents else "agent"

    def everybody(self, sender: str) -> tuple[str, ...]:
        """Who is known and takes part, but the sender; who acts in the same moment need not be known yet."""
        acted = [name for name, first in self.state.actors.items() if first < self.now]
        known = {*acted, *self.state.agents} - {sender}
        return tuple(sorted(name for name in known if self.role(name) != "observer"))

    # --- sending -----------------------------------------------------------------------------------------------------

    def mail_send(
        self,
        to: str | Sequence[str],
        subject: str,
        body: str = "",
        thread: str | None = None,
        task: str | None = None,
        priority: int = 2,
        type: MailType = "notify",
        ack: bool = False,
        sender: str | None = None,
    ) -> Message:
        sender = self._named(sender)
        if task is not None:
            self._task(task)
        receivers = (to,) if isinstance(to, str) else tuple(sorted({*to}))
        return self._deliver(sender, receivers, subject, body, thread, task, priority, type, ack, None)

    def mail_reply(self, id: str, body: str, sender: str | None = None) -> Message:
        sender = self._named(sender)
        original = self._message(id)
        to = (original.sender,) if original.sender != sender else tuple(sorted(original.status))
        subject = original.subject if original.subject.startswith("Re: ") else f"Re: {original.subject}"
        facts = (original.thread, original.task, original.priority)
        return self._deliver(sender, to, subject, body, *facts, "notify", False, original.id)

    def _deliver(
        self,
        sender: str,
        to: tuple[str, ...],
        subject: str,
        body: str,
        thread: str | None,
        task: str | None,
        priority: int,
        type: MailType,
        ack: bool,
        answers: str | None,
    ) -> Message:
        id, received = self.next_messages.popleft() if self.next_messages else ("of a refusal", ())
        receivers = self._broadcast(sender, received) if to == ("*",) else to
        message = Message(
            id=id,
            thread=thread or id,
            sender=sender,
            to=to,
            subject=subject,
            body=body,
            type=type,
            priority=priority,
            ack=ack,
            task=task,
            answers=answers,
            sent_at=as_time(self.now),
            closed_at=None,
            status=dict.fromkeys(receivers, "unread"),
            version=1,
            revision=self.revision + 1,
            short=f"m{len(self.state.messages) + 1}",
        )
        self.state.messages[id] = message
        fields = ("sender", "thread", "task", "type", "priority", "ack", "answers", "subject", "body")
        told = {name: getattr(message, name) for name in fields}
        self.emit("message", "", id, "send", {**told, "to": receivers, "short": message.short}, 1)
        return message

    def _broadcast(self, sender: str, received: tuple[str, ...]) -> tuple[str, ...]:
        """All that are known: as the store says, if it was sent."""
        everybody = self.everybody(sender)
        if not everybody and not received:
            raise errors.NotFound()
        return received or everybody

    # --- the life of a message ---------------------------------------------------------------------------------------

    def _message(self, id: str) -> Message:
        if id not in self.state.messages:
            raise errors.MessageNotFound(id=id)
        return self.state.messages[id]

    def mail_ack(self, id: str, agent: str | None = None, note: str | None = None) -> Message:
        return self._take_step("ack", id, agent, note)

    def mail_action(self, id: str, agent: str | None = None, note: str | None = None) -> Message:
        return self._take_step("action", id, agent, note)

    def mail_block(self, id: str, reason: str, agent: str | None = None) -> Message:
        return self._take_step("block", id, agent, reason)

    def _take_step(self, op: str, id: str, agent: str | None, note: str | None) -> Message:
        agent, message = self._named(agent), self._message(id)
        if agent not in message.status:
            raise errors.NotRecipient(id=id)
        status, (target, sources) = message.status[agent], STEPS[op]
        if status not in sources:
            raise errors.InvalidTransition(id=id, current_status=status, requested_status=target)
        told: dict[str, Any] = {"agent": agent, "status": [status, target]}
        return self._log_step(message, op, told, note, status={**message.status, agent: target})

    def mail_close(self, id: str, agent: str | None = None, note: str | None = None) -> Message:
        agent, message = self._named(agent), self._message(id)
        if message.closed_at is not None:
            raise errors.InvalidTransition(id=id, current_status="closed", requested_status="closed")
        if agent != message.sender and self.role(agent) != "maintainer":
            raise errors.NotSender(id=id, sender=message.sender)
        closed = dict.fromkeys(message.status, "closed")
        return self._log_step(message, "close", {"agent": agent}, note, status=closed, closed_at=as_time(self.now))

    def _log_step(self, message: Message, op: str, told: dict[str, Any], note: str | None, **fields: Any) -> Message:
        version = self.emit(
            "message", "", message.id, op, told | {"short": message.short} | ({} if note is None else {"note": note})
        )
        new = msgspec.structs.replace(message, **fields, version=version, revision=self.revision + 1)
        self.state.messages[message.id] = new
        return new

    # --- reading -----------------------------------------------------------------------------------------------------

    def mail_inbox(self, agent: str, unread: bool = False, closed: bool = False, limit: int = 50) -> Page[Message]:
        """Newest first; the cursor is the number of the last."""
        wanted = [
            (number, message)
            for number, message in enumerate(self.state.messages.values(), 1)
            for status in [message.status.get(agent)]
            if status is not None and (status == "unread" if unread else closed or status != "closed")
        ][::-1]
        page = Page(message for _, message in wanted[:limit])
        page.cursor = str(wanted[limit - 1][0]) if len(wanted) > limit else None
        return page

    def mail_unread(self, agent: str) -> int:
        return sum(message.status.get(agent) == "unread" for message in self.state.messages.values())

    def mail_thread(self, id: str) -> Page[Message]:
        name = self.state.messages[id].thread if id in self.state.messages else id
        found = [message for message in self.state.messages.values() if message.thread == name]
        if not found:
            raise errors.MessageNotFound(id=id)
        return Page(found)
