"""What clients ask of tasks, and what they remember of the answers: ids, claims, versions, statuses."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from holdfast import Op, ValueEquals
from holdfast.types.tasks import Task

AGENTS = ("ann", "bob")
TAGS = ("api", "web")
TYPES = ("task", "bug")
TTLS = (1, 5, 60, 3600)
RECENT = 8  # tasks that clients meet at

Args = dict[str, Any]
Maker = Callable[["TaskClients"], Args]


class TaskClients:
    """Makes operations on tasks by chance."""

    def __init__(self, chance: random.Random, value: Callable[[], Any]) -> None:
        self.chance = chance
        self.value = value
        self.ids: list[str] = []
        self.claims: dict[str, tuple[str, int]] = {}  # the last known one of each task: agent and token
        self.seen: dict[str, Task] = {}  # each as an answer last told of it
        self.deleted: list[str] = []

    def learn(self, op: str, args: Args, answer: Any) -> None:
        """Remember what an answer tells."""
        if op == "tasks.create":
            self.ids.append(answer.id)
        elif op == "tasks.delete":
            self.deleted.append(args["id"])
        if isinstance(answer, Task):
            self.seen[answer.id] = answer
            if answer.token is not None:
                self.claims[answer.id] = (str(answer.claimed_by), answer.token)

    def id(self) -> str:
        """One of the last tasks."""
        return self.chance.choice(self.ids[-RECENT:]) if self.ids else "hf-none"

    def id_in(self, status: str) -> str:
        """One that was in a status when last heard of, if there is any."""
        known = [id for id in self.ids[-2 * RECENT :] if id in self.seen and self.seen[id].status == status]
        return self.chance.choice(known) if known else self.id()

    def maybe(self, value: Any, chance: float) -> Any:
        return value if self.chance.random() < chance else None

    def create(self) -> Args:
        chance = self.chance
        args: Args = {
            "title": f"task {self.value()!s:.40}",
            "priority": chance.randrange(5),
            "type": chance.choice(TYPES),
        }
        args["tags"] = [tag for tag in TAGS if chance.random() < 0.4]
        if chance.random() < 0.4:
            args["parent_id"] = self.id()
        return args

    def claim_next(self) -> Args:
        args: Args = {"agent": self.chance.choice(AGENTS), "ttl": self.chance.choice(TTLS)}
        match self.chance.randrange(4):
            case 0:
                args["tags"] = [self.chance.choice(TAGS)]
            case 1:
                args["type"] = self.chance.choice(TYPES)
        return args

    def claimed(self) -> Args:
        """A task that was claimed not long ago; by its holder or another, with its token or without, live or stale."""
        id = self.id_in("in_progress") if self.chance.random() < 0.7 else self.id()
        if id not in self.claims:
            return {"id": id, "agent": self.chance.choice(AGENTS)}
        holder, token = self.claims[id]
        agent = holder if self.chance.random() < 0.7 else self.chance.choice(AGENTS)
        return {"id": id, "agent": agent, "token": self.maybe(token, 0.4)}

    def update(self) -> Args:
        id = self.id()
        version = self.seen[id].version if id in self.seen else 1
        expected = max(1, version + self.chance.choice((0, 0, 0, -1)))
        holder = self.claims.get(id)
        args: Args = {"id": id, "expected": self.maybe(expected, 0.6), "token": self.maybe(holder and holder[1], 0.3)}
        match self.chance.randrange(3):
            case 0:
                args["title"] = f"title {self.value()!s:.40}"
            case 1:
                args["body"] = str(self.value())
            case 2:
                args["priority"] = self.chance.randrange(5)
        return args

    def take_in_a_txn(self) -> Args:
        """Claim a task and write a cell, if the task is open still."""
        id = self.id()
        claim = Op("tasks.claim", {"id": id, "agent": self.chance.choice(AGENTS), "ttl": 60})
        note = Op("cells.set", {"run": "r1", "cell": "a", "value": self.value()})
        return {"conditions": [ValueEquals("task", id, "open")], "then": [claim, note], "otherwise": []}


# Together fewer than the operations on cells, locks and leases.
OPERATIONS: dict[str, tuple[int, Maker]] = {
    "tasks.create": (6, TaskClients.create),
    "tasks.claim_next": (4, TaskClients.claim_next),
    "tasks.claim": (3, lambda t: {"id": t.id(), "agent": t.chance.choice(AGENTS), "ttl": t.chance.choice(TTLS)}),
    "tasks.complete": (4, lambda t: {**t.claimed(), "review": t.maybe(True, 0.5)}),
    "tasks.heartbeat": (2, TaskClients.claimed),
    "tasks.release": (2, lambda t: {**t.claimed(), "force": t.chance.random() < 0.2}),
    "tasks.park": (1, TaskClients.claimed),
    "tasks.block": (2, TaskClients.claimed),
    "tasks.unblock": (1, lambda t: {"id": t.id_in("blocked")}),
    "tasks.approve": (4, lambda t: {"id": t.id_in("pending_merge")}),
    "tasks.close": (2, lambda t: {"id": t.id(), "force": t.chance.random() < 0.2}),
    "tasks.cancel": (1, lambda t: {"id": t.id(), "cascade": t.chance.random() < 0.5}),
    "tasks.assign": (1, lambda t: {"id": t.id(), "assignee": t.maybe(t.chance.choice(AGENTS), 0.5)}),
    "tasks.reopen": (1, lambda t: {"id": t.id_in("closed")}),
    "tasks.note": (1, lambda t: {"id": t.id(), "text": str(t.value())}),
    "tasks.update": (3, TaskClients.update),
    "tasks.add_tags": (1, lambda t: {"id": t.id(), "tags": [t.chance.choice(TAGS)]}),
    "tasks.depend": (2, lambda t: {"id": t.id(), "on": t.id()}),
    "tasks.reparent": (1, lambda t: {"id": t.id(), "parent_id": t.maybe(t.id(), 0.7)}),
    "tasks.delete": (1, lambda t: {"id": t.id()}),
    "tasks.restore": (1, lambda t: {"id": t.chance.choice(t.deleted) if t.deleted else t.id()}),
}
READS: dict[str, Maker] = {
    "tasks.get": lambda t: {"id": t.id()},
    "tasks.explain": lambda t: {"id": t.id(), "agent": t.chance.choice(AGENTS)},
    "tasks.ready": lambda t: (
        {"agent": t.chance.choice(AGENTS), **({"tags": [t.chance.choice(TAGS)]} if t.chance.random() < 0.5 else {})}
    ),
}
