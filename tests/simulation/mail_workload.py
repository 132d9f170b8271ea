"""What clients ask of agents, mail and path locks, and what they remember of the answers: messages, locks, tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast import Op, ValueEquals
from holdfast.types.agents import Message, PathLock
from tests.simulation.path_model import COVERS, PATHS
from tests.simulation.task_workload import AGENTS, TTLS, TaskClients

NAMES = (*AGENTS, "cyd")  # who writes to whom; the first two also claim
EVERYBODY = "*"
THREAD = "plans"
TYPES = ("notify", "request", "objection")
ROLES = ("agent", "agent", "maintainer", "observer")
RECENT = 8  # messages, and locks, that clients meet at
PAGE = 3

Args = dict[str, Any]
Maker = Callable[["MailClients"], Args]


class MailClients:
    """Makes operations on agents, mail and paths by chance."""

    def __init__(self, tasks: TaskClients) -> None:
        self.tasks = tasks
        self.chance = tasks.chance
        self.messages: dict[str, Message] = {}  # each as an answer last told of it
        self.locks: dict[str, PathLock] = {}

    def learn(self, answer: Any) -> None:
        """Remember what an answer tells."""
        if isinstance(answer, Message):
            self.messages[answer.id] = answer
        elif isinstance(answer, PathLock):
            self.locks[answer.id] = answer

    def name(self) -> str:
        return self.chance.choice(NAMES)

    # --- agents and mail ---------------------------------------------------------------------------------------------

    def register(self) -> Args:
        args: Args = {"name": self.name()}
        if self.chance.random() < 0.6:
            args["role"] = self.chance.choice(ROLES)
        if self.chance.random() < 0.4:
            args["can"] = self.chance.choice((["python"], ["python", "review"]))
        if self.chance.random() < 0.4:
            args["program"] = self.chance.choice(("one", "two"))
        return args

    def send(self) -> Args:
        """To one, to two or to all; in a thread of its own or a shared one, about a task or not."""
        chance = self.chance
        args: Args = {"to": chance.sample(NAMES, chance.choice((1, 2))), **self._letter()}
        if chance.random() < 0.1:
            args["to"] = EVERYBODY
        if chance.random() < 0.2:
            args["thread"] = THREAD
        if chance.random() < 0.3:
            args["task"] = self.tasks.id()
        return args

    def _letter(self) -> Args:
        chance = self.chance
        args: Args = {"subject": f"about {self.tasks.value()!s:.40}", "type": chance.choice(TYPES)}
        args |= {"body": f"letter {self.tasks.value()!s:.2000}", "ack": chance.random() < 0.5}
        if chance.random() < 0.9:  # otherwise it is the actor, whom nobody else is
            args["sender"] = self.name()
        return args

    def message(self) -> str:
        """One of the last messages."""
        return self.chance.choice(list(self.messages)[-RECENT:]) if self.messages else "no-such-message"

    def step(self, *sources: str) -> Args:
        """A message and mostly a receiver for whom it was in one of these statuses when last heard of."""
        known = [
            {"id": message.id, "agent": agent}
            for message in list(self.messages.values())[-2 * RECENT :]
            for agent, status in message.status.items()
            if status in sources and agent in NAMES
        ]
        if known and self.chance.random() < 0.8:
            return self.chance.choice(known)
        return {"id": self.message(), "agent": self.name()}

    def close(self) -> Args:
        """Mostly by its sender."""
        id = self.message()
        mine = id in self.messages and self.chance.random() < 0.6
        return {"id": id, "agent": self.messages[id].sender if mine else self.name()}

    # --- paths -------------------------------------------------------------------------------------------------------

    def patterns(self) -> list[str]:
        return self.chance.sample(sorted(COVERS), self.chance.choice((1, 1, 2)))

    def lock(self) -> Args:
        """Shared or not, with an end or none; for a task, mostly by who has claimed it, or for none."""
        chance = self.chance
        args: Args = {"patterns": self.patterns(), "holder": self.name(), "shared": chance.random() < 0.5}
        args["ttl"] = chance.choice((None, *TTLS))
        if chance.random() < 0.5:
            args["task"] = self.tasks.id_in("in_progress")
            claim = self.tasks.claims.get(args["task"])
            if claim is not None and chance.random() < 0.8:
                args["holder"] = claim[0]
        return args

    def held(self) -> Args:
        """A lock of late; by its holder or another, with its token, with an old one or without."""
        if not self.locks:
            return {"id": "no-such-lock", "holder": self.name()}
        lock = self.locks[self.chance.choice(list(self.locks)[-RECENT:])]
        holder = lock.holder if self.chance.random() < 0.7 else self.name()
        return {"id": lock.id, "holder": holder, "token": self.chance.choice((None, None, lock.token, 1))}

    def release(self) -> Args:
        """By id, by task or by holder; now and then by force."""
        force = self.chance.random() < 0.2
        match self.chance.randrange(4):
            case 0:
                return {"holder": self.name(), "force": force}
            case 1:
                args: Args = {"task": self.tasks.id_in("in_progress"), "force": force}
                return args if force else {**args, "holder": self.name()}
        return {**self.held(), "force": True, "token": None} if force else self.held()

    # --- all at once -------------------------------------------------------------------------------------------------

    def take_up_in_a_txn(self) -> Args:
        """Claim a task, lock its paths, tell the others and write a cell: all of it or nothing."""
        id, agent = self.tasks.id_in("open"), self.chance.choice(AGENTS)
        ttl = self.chance.choice((None, *TTLS))
        parts = [
            Op("paths.lock", {"patterns": self.patterns(), "holder": agent, "task": id, "ttl": ttl}),
            Op("mail.send", {"to": [self.name()], **self._letter(), "task": id, "sender": agent}),
            Op("cells.set", {"run": "r1", "cell": "a", "value": self.tasks.value()}),
        ]
        self.chance.shuffle(parts)  # whatever comes before a refusal must not have happened
        claim = Op("tasks.claim", {"id": id, "agent": agent, "ttl": self.chance.choice(TTLS)})
        return {"conditions": [ValueEquals("task", id, "open")], "then": [claim, *parts], "otherwise": []}


# Together fewer than the operations on tasks.
OPERATIONS: dict[str, tuple[int, Maker]] = {
    "agents.register": (1, MailClients.register),
    "mail.send": (4, MailClients.send),
    "mail.reply": (2, lambda m: {"id": m.message(), "body": str(m.tasks.value()), "sender": m.name()}),
    "mail.ack": (3, lambda m: m.step("unread", "blocked")),
    "mail.action": (2, lambda m: m.step("unread", "acknowledged", "blocked")),
    "mail.block": (2, lambda m: {**m.step("acknowledged"), "reason": "waits"}),
    "mail.close": (2, MailClients.close),
    "paths.lock": (5, MailClients.lock),
    "paths.release": (2, MailClients.release),
    "paths.refresh": (2, lambda m: {**m.held(), "ttl": m.chance.choice((None, *TTLS))}),
}
READS: dict[str, Maker] = {
    "agents.get": lambda m: {"name": m.name()},
    "mail.inbox": lambda m: {"agent": m.name(), m.chance.choice(("unread", "closed")): True, "limit": PAGE},
    "mail.thread": lambda m: {"id": m.message()},
    "mail.unread": lambda m: {"agent": m.name()},
    "paths.check": lambda m: {"path": m.chance.choice(PATHS), "actor": m.name()},
}
