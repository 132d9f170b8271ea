"""The plain model of mail: what a message is, who may do what with it, and who has what unread, in a few lists.

Written from the requirement (A3, F11), without a look at how messages are stored. Everything is found by walking over
all messages: nothing is kept beside them that could go wrong. The state machine of mail compares a workspace with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from holdfast import errors
from holdfast.types.agents import MailStep, Message

R = TypeVar("R")

# From where to where a receiver brings a message, by which call.
STEPS = {
    "ack": ({"unread", "blocked"}, "acknowledged"),
    "action": ({"unread", "acknowledged", "blocked"}, "actioned"),
    "block": ({"acknowledged"}, "blocked"),
}


@dataclass
class Letter:
    """A message, and every step in its life."""

    fields: dict[str, Any]
    status: dict[str, str]
    version: int
    revision: int
    closed_at: datetime | None = None
    steps: list[MailStep] = field(default_factory=list)

    @property
    def id(self) -> str:
        """As the store chose it."""
        return str(self.fields["id"])

    @property
    def sender(self) -> str:
        """Who sent it."""
        return str(self.fields["sender"])

    def message(self) -> Message:
        """The public form."""
        status: Any = dict(sorted(self.status.items()))
        rest = {"status": status, "version": self.version, "revision": self.revision, "closed_at": self.closed_at}
        return Message(**self.fields, **rest)


@dataclass
class State:
    """All that there is."""

    letters: list[Letter] = field(default_factory=list)
    roles: dict[str, str] = field(default_factory=dict)  # of those that registered
    writers: set[str] = field(default_factory=set)
    revision: int = 0


class MailModel:
    """A workspace in which there is only mail."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self.now = now
        self.state = State()
        self.next_ids: list[str] = []  # that the store has chosen for the messages to come

    # --- transactions ------------------------------------------------------------------------------------------------

    def transact(self, actor: str, body: Callable[[], R]) -> R:
        """All of it at one revision, or nothing."""
        before = deepcopy(self.state)
        self.actor, self.changed = actor, False
        try:
            answer = body()
        except BaseException:
            self.state = before
            raise
        if self.changed:
            self.state.revision += 1
            self.state.writers.add(actor)
        return answer

    def wrote(self, name: str) -> int:
        """Somebody has changed something; answers the revision it gets."""
        self.changed = True
        self.state.writers.add(name)
        return self.state.revision + 1

    # --- who is here -------------------------------------------------------------------------------------------------

    @property
    def known(self) -> list[str]:
        """Everybody that registered or wrote."""
        return sorted(self.state.writers | self.state.roles.keys())

    def register(self, name: str, role: str) -> None:
        if self.state.roles.get(name) != role:
            self.wrote(name)
            self.state.roles[name] = role

    def forget(self, name: str) -> bool:
        known = name in self.known
        if known:
            self.wrote(self.actor)
            self.state.roles.pop(name, None)
            self.state.writers.discard(name)
        return known

    # --- writing -----------------------------------------------------------------------------------------------------

    def send(
        self,
        to: str | list[str],
        subject: str,
        body: str,
        sender: str,
        thread: str | None = None,
        type: str = "notify",
        priority: int = 2,
        ack: bool = False,
        answers: str | None = None,
    ) -> Message:
        addressed = tuple(sorted({to} if isinstance(to, str) else set(to)))
        receivers = addressed
        if addressed == ("*",):
            looking_on = {name for name, role in self.state.roles.items() if role == "observer"}
            receivers = tuple(name for name in self.known if name != sender and name not in looking_on)
        if not receivers:
            raise errors.NotFound
        id = self.next_ids.pop(0) if self.next_ids else "none"
        fields: dict[str, Any] = {"id": id, "short": f"m{len(self.state.letters) + 1}"}
        fields |= {"thread": thread or id, "sender": sender, "to": addressed, "subject": subject, "body": body}
        fields |= {"type": type, "priority": priority, "ack": ack, "task": None, "answers": answers}
        letter = Letter(fields | {"sent_at": self.now()}, dict.fromkeys(receivers, "unread"), 0, 0)
        self.state.letters.append(letter)
        return self._step(letter, "send", sender, None, None)

    def reply(self, id: str, body: str, sender: str, type: str = "notify") -> Message:
        first = self.letter(id)
        of = first.fields
        to = [*first.status] if first.sender == sender else [first.sender]
        subject = of["subject"] if of["subject"].startswith("Re: ") else "Re: " + of["subject"]
        return self.send(to, subject, body, sender, of["thread"], type, of["priority"], False, id)

    def step(self, op: str, id: str, agent: str, note: str | None) -> Message:
        letter = self.letter(id)
        if agent not in letter.status:
            raise errors.NotRecipient(id=id, agent=agent)
        sources, target = STEPS[op]
        if letter.status[agent] not in sources:
            raise self._illegal(id, letter.status[agent], target)
        letter.status[agent] = target
        return self._step(letter, op, agent, target, note)

    def close(self, id: str, agent: str, note: str | None) -> Message:
        letter = self.letter(id)
        if letter.closed_at is not None:
            raise self._illegal(id, "closed", "closed")
        if agent != letter.sender and self.state.roles.get(agent) != "maintainer":
            raise errors.NotSender(id=id, sender=letter.sender)
        letter.status = dict.fromkeys(letter.status, "closed")
        letter.closed_at = self.now()
        return self._step(letter, "close", agent, "closed", note)

    def _illegal(self, id: str, status: str, target: str) -> errors.InvalidTransition:
        ways = sorted(goal for sources, goal in STEPS.values() if status in sources)
        return errors.InvalidTransition(id=id, current_status=status, requested_status=target, valid_transitions=ways)

    def _step(self, letter: Letter, op: str, agent: str, status: Any, note: str | None) -> Message:
        letter.revision, letter.version = self.wrote(agent), letter.version + 1
        taken = MailStep(letter.id, op, agent, self.actor, self.now(), status, note, letter.version, letter.revision)
        letter.steps.append(taken)
        return letter.message()

    # --- reading -----------------------------------------------------------------------------------------------------

    def letter(self, id: str) -> Letter:
        """A message by its id."""
        for letter in self.state.letters:
            if letter.id == id:
                return letter
        raise errors.MessageNotFound(id=id)

    def inbox(self, agent: str, unread: bool, closed: bool) -> list[Message]:
        def wanted(status: str) -> bool:
            return status == "unread" if unread else closed or status != "closed"

        mine = (letter for letter in self.state.letters if agent in letter.status)
        return messages(letter for letter in mine if wanted(letter.status[agent]))[::-1]

    def unread(self, agent: str) -> int:
        return sum(letter.status.get(agent) == "unread" for letter in self.state.letters)

    def sent(self, agent: str) -> list[Message]:
        return messages(letter for letter in self.state.letters if letter.sender == agent)[::-1]

    def thread(self, id: str) -> list[Message]:
        named = next((letter.fields["thread"] for letter in self.state.letters if letter.id == id), id)
        found = messages(letter for letter in self.state.letters if letter.fields["thread"] == named)
        if not found:
            raise errors.MessageNotFound(id=id)
        return found

    def search(self, word: str, agent: str | None) -> set[str]:
        """The ids of those in which a word occurs."""
        return {
            letter.id
            for letter in self.state.letters
            if word in f"{letter.fields['subject']} {letter.fields['body']}".split()
            and (agent is None or agent == letter.sender or agent in letter.status)
        }


def messages(letters: Iterable[Letter]) -> list[Message]:
    """Their public form, in order."""
    return [letter.message() for letter in letters]
