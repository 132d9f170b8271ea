"""What clients ask of stashes, trails and links, and what they remember of the answers: ids, versions, tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast import Op, ValueEquals, VersionEquals
from holdfast.types import Grant
from holdfast.types.stashes import Link, QueueItem, Stash, Trail
from tests.simulation.task_workload import AGENTS, TTLS, TaskClients

NAMES = ("n1", "n2", "n3")  # few, so that they meet
TYPES = ("counter", "counter", "lock", "lock", "queue", "queue", "channel", "context", "artifact")
OPEN = ("draft", "pending", "active")
STATES = ("active", "active", "draft", "pending")
LINKS = ("belongs_to", "scoped_to", "scoped_to", "child_of", "branches_from", "depends_on")
NEEDED = {
    "stashes.increment": "counter",
    "stashes.acquire": "lock",
    "stashes.release": "lock",
    "stashes.refresh": "lock",
    **dict.fromkeys((f"channels.{op}" for op in ("publish", "subscribe", "ack", "unsubscribe")), "channel"),
    **dict.fromkeys(
        (f"queues.{op}" for op in ("put", "put_all", "take", "refresh", "ack", "nack", "pop", "retry", "discard")),
        "queue",
    ),
}
LISTED = ("belongs_to", "scoped_to", "child_of", "branches_from")  # whose ids the log tells
RECENT = 5  # stashes and links that clients meet at
RECENT_TRAILS = 2
MOST = 2**63 - 1

Args = dict[str, Any]
Maker = Callable[["StashClients"], Args]


class StashClients:
    """Makes operations on stashes, trails and links by chance."""

    def __init__(self, tasks: TaskClients) -> None:
        self.tasks = tasks
        self.chance = tasks.chance
        self.stashes: dict[str, Stash] = {}  # each as an answer last told of it
        self.trails: dict[str, Trail] = {}
        self.links: dict[str, Link] = {}
        self.tokens: dict[str, tuple[str, int]] = {}  # the last known holder of a lock, and its token
        self.items: list[QueueItem] = []  # those that were taken

    def learn(self, op: str, args: Args, answer: Any) -> None:
        """Remember what an answer tells; what is deleted is forgotten, mostly."""
        if op in ("stashes.delete", "trails.delete") and self.chance.random() < 0.8:
            self.stashes.pop(str(args["id"]), None)
            self.trails.pop(str(args["id"]), None)
        match answer:
            case Stash():
                self.stashes[answer.id] = answer
            case Trail():
                self.trails[answer.id] = answer
            case Link():
                self.links[answer.id] = answer
            case QueueItem() if answer.token is not None:  # one that was popped has none
                self.items.append(answer)
            case Grant() if answer.name in self.stashes:
                self.tokens[answer.name] = (answer.holder, answer.token)

    # --- what there is -----------------------------------------------------------------------------------------------

    def instead(self, op: str) -> str:
        """What is done as long as there is nothing to do an operation to."""
        if op.startswith(("stashes.", "queues.", "channels.")) and not self._live(NEEDED.get(op)):
            return "stashes.create"
        none_open = not any(trail.state in OPEN for trail in self.trails.values())
        return "trails.create" if op.startswith("trails.") and op != "trails.restore" and none_open else op

    def _live(self, type: str | None = None) -> list[str]:
        """The stashes of a type that did not go with their trail, as far as is known."""
        gone = [id for id, trail in self.trails.items() if trail.state == "abandoned"]
        return [id for id, each in self.stashes.items() if type in (None, each.stash_type) and each.trail not in gone]

    def stash(self, type: str | None = None) -> str:
        """One of the last stashes, mostly of this type."""
        known = self._live(type)
        if not known or self.chance.random() < 0.1:
            known = [*self.stashes]
        return self.chance.choice(known[-RECENT:]) if known else "no-such-stash"

    def named(self, id: str) -> Any:
        """A stash by its id, or by where it was when last heard of."""
        stash = self.stashes.get(id)
        return id if stash is None or self.chance.random() < 0.8 else (stash.trail, stash.name)

    def trail(self, *states: str) -> str:
        """One of the last trails, mostly one that was in one of these states."""
        known = [id for id, trail in self.trails.items() if not states or trail.state in states]
        if not known or self.chance.random() < 0.1:
            known = [*self.trails]
        return self.chance.choice(known[-RECENT_TRAILS:]) if known else "no-such-trail"

    def open_trail(self) -> str:
        return self.trail(*OPEN)

    def link(self) -> str:
        return self.chance.choice([*self.links][-RECENT:]) if self.links else "no-such-link"

    # --- stashes -----------------------------------------------------------------------------------------------------

    def create(self) -> Args:
        """In a trail or global, with an end or none; names are taken now and then."""
        chance = self.chance
        args: Args = {"name": chance.choice(NAMES), "stash_type": chance.choice(TYPES)}
        if args["stash_type"] != "lock" and chance.random() < 0.7:
            args["value"] = self.value(args["stash_type"])
        if chance.random() < 0.7:
            args["trail"] = self.open_trail()
        if chance.random() < 0.15:
            args["ttl"] = chance.choice(TTLS)
        return {**args, **self.changed_by()}

    def value(self, type: str) -> Any:
        """Mostly one that fits."""
        if type == "counter":
            return self.chance.choice(({"value": self.chance.randrange(100)}, {"value": MOST}, {}, None))
        if type == "queue":
            return self.chance.choice((None, {"max_deliveries": 1}, {"max_deliveries": 2}, {"items": 1}))
        if type == "channel":
            return self.chance.choice((None, {"keep": 1}, {"keep": 2}, {"keep": 3}))
        text = str(self.tasks.value())
        fits = {"path": text, "producer": "p", "checksum": "c"} if type == "artifact" else {"note": text}
        return fits if self.chance.random() < 0.9 else [text]

    def changed_by(self) -> Args:
        return {"changed_by": self.tasks.id()} if self.chance.random() < 0.3 else {}

    def version(self, id: str) -> int:
        stash = self.stashes.get(id)
        return max(1, (1 if stash is None else stash.version) + self.chance.choice((0, 0, 0, -1)))

    def set_value(self) -> Args:
        id = self.stash()
        type = self.stashes[id].stash_type if id in self.stashes else "context"
        args: Args = {"id": self.named(id), "value": self.value(type), **self.changed_by()}
        if self.chance.random() < 0.5:
            args["expected"] = self.version(id)
        return args

    def increment(self) -> Args:
        return {
            "id": self.named(self.stash("counter")),
            "delta": self.chance.choice((1, 1, 5, -3)),
            **self.changed_by(),
        }

    def save(self) -> Args:
        """Up to three changes at once, on what may have gone on."""
        id = self.stash()
        type = self.stashes[id].stash_type if id in self.stashes else "context"
        expected = self.version(id)
        args: Args = {"id": id, "expected": expected, "version": expected + self.chance.choice((1, 1, 2, 3))}
        if type == "lock":
            holder = self.chance.choice(AGENTS)
            before = self.tokens.get(id, (None, 0))[0]
            released_by = self.chance.choice((None, before, before, *AGENTS))
            operation = self.chance.choice(("acquire", "release"))
            return {**args, "operation": operation, "holder": holder, "released_by": released_by}
        operation = "increment" if type == "counter" and self.chance.random() < 0.5 else "set"
        return {**args, "operation": operation, "value": self.value(type), **self.changed_by()}

    def acquire(self) -> Args:
        args = {"id": self.named(self.stash("lock")), "holder": self.chance.choice(AGENTS)}
        return {**args, "ttl": self.chance.choice((None, None, *TTLS)), **self.changed_by()}

    def release(self) -> Args:
        """By its holder or another, with its token, with an old one or without."""
        id = self.stash("lock")
        holder, token = self.tokens.get(id, (self.chance.choice(AGENTS), 1))
        if self.chance.random() < 0.2:
            holder = self.chance.choice(AGENTS)
        return {"id": self.named(id), "holder": holder, "token": self.chance.choice((None, token))}

    def refresh(self) -> Args:
        return {**self.release(), "ttl": self.chance.choice((None, *TTLS))}

    # --- queues ------------------------------------------------------------------------------------------------------

    def queue(self) -> Any:
        return self.named(self.stash("queue"))

    def put(self) -> Args:
        key = self.tasks.maybe(self.chance.choice(NAMES), 0.3)
        return {"id": self.queue(), "value": self.tasks.value(), "key": key}

    def take(self) -> Args:
        return {"id": self.queue(), "holder": self.chance.choice(AGENTS), "ttl": self.chance.choice(TTLS)}

    def taken(self) -> Args:
        """One of the last items that were taken, which may be lost or acknowledged by now."""
        if not self.items or self.chance.random() < 0.1:
            return {"id": self.queue(), "token": 1, "holder": self.chance.choice(AGENTS)}
        item = self.chance.choice(self.items[-RECENT:])
        holder = item.holder if self.chance.random() < 0.8 else self.chance.choice(AGENTS)
        return {"id": item.queue, "token": item.token, "holder": holder}

    def dead(self) -> Args:
        return {"id": self.queue(), "number": self.tasks.maybe(self.chance.randrange(1, 9), 0.4)}

    # --- channels ----------------------------------------------------------------------------------------------------

    def channel(self) -> Any:
        return self.named(self.stash("channel"))

    def subscriber(self, number: str, chance: float = 1) -> Args:
        """Somebody, and mostly a message that there may be."""
        given = {number: self.chance.randrange(6)} if self.chance.random() < chance else {}
        return {"id": self.channel(), "subscriber": self.chance.choice(AGENTS), **given}

    # --- trails and links --------------------------------------------------------------------------------------------

    def create_trail(self) -> Args:
        return {"name": f"trail {self.tasks.value()!s:.40}", "state": self.chance.choice(STATES)}

    def create_link(self) -> Args:
        kind = self.chance.choice(LINKS)
        ends = {
            "belongs_to": (self.tasks.id, self.open_trail),
            "scoped_to": (self.stash, self.open_trail),
            "branches_from": (self.trail, self.tasks.id),
        }
        source, target = ends.get(kind, (self.tasks.id, self.tasks.id))
        return {"link_type": kind, "from_id": source(), "to_id": target()}

    def work_in_a_txn(self) -> Args:
        """Count, add a task to a trail, take a lock and write a cell, if a stash or a trail is what it was."""
        counter, trail = self.stash("counter"), self.trail("active")
        parts = [
            Op("stashes.increment", {"id": counter}),
            Op("trails.add", {"trail": trail, "task": self.tasks.id()}),
            Op("stashes.acquire", {"id": self.stash("lock"), "holder": self.chance.choice(AGENTS), "ttl": 60}),
            Op("cells.set", {"run": "r1", "cell": "a", "value": self.tasks.value()}),
        ]
        self.chance.shuffle(parts)  # whatever comes before a refusal must not have happened
        conditions = [VersionEquals("stash", counter, self.version(counter)), ValueEquals("trail", trail, "active")]
        return {"conditions": [self.chance.choice(conditions)], "then": parts, "otherwise": []}


# Together fewer than the operations on tasks.
OPERATIONS: dict[str, tuple[int, Maker]] = {
    "stashes.create": (5, StashClients.create),
    "stashes.set_value": (2, StashClients.set_value),
    "stashes.increment": (3, StashClients.increment),
    "stashes.save": (3, StashClients.save),
    "stashes.acquire": (4, StashClients.acquire),
    "stashes.release": (2, StashClients.release),
    "stashes.refresh": (1, StashClients.refresh),
    "stashes.delete": (1, lambda s: {"id": s.named(s.stash())}),
    "queues.put": (4, StashClients.put),
    "queues.put_all": (
        1,
        lambda s: {"id": s.queue(), "values": [s.tasks.value() for _ in range(s.chance.randrange(3))]},
    ),
    "queues.take": (5, StashClients.take),
    "queues.ack": (2, StashClients.taken),
    "queues.nack": (2, lambda s: {**s.taken(), "delay": s.chance.choice((None, None, *TTLS))}),
    "queues.refresh": (1, lambda s: {**s.taken(), "ttl": s.chance.choice((None, *TTLS))}),
    "queues.pop": (1, lambda s: {"id": s.queue()}),
    "queues.retry": (1, StashClients.dead),
    "queues.discard": (1, StashClients.dead),
    "channels.publish": (4, lambda s: {"id": s.channel(), "value": s.tasks.value()}),
    "channels.subscribe": (2, lambda s: s.subscriber("after", 0.5)),
    "channels.ack": (2, lambda s: s.subscriber("number")),
    "channels.unsubscribe": (1, lambda s: s.subscriber("", 0)),
    "trails.create": (1, StashClients.create_trail),
    "trails.set_state": (1, lambda s: {"id": s.trail("draft", "pending"), "state": s.chance.choice(STATES)}),
    "trails.add": (4, lambda s: {"trail": s.open_trail(), "task": s.tasks.id()}),
    "trails.remove": (1, lambda s: {"trail": s.trail(), "task": s.tasks.id()}),
    "trails.complete": (1, lambda s: {"id": s.trail("active")}),
    "trails.abandon": (2, lambda s: {"id": s.open_trail(), "reason": s.tasks.maybe("lost", 0.3)}),
    "trails.restore": (2, lambda s: {"id": s.trail("abandoned")}),
    "trails.delete": (1, lambda s: {"id": s.trail()}),
    "links.create": (3, StashClients.create_link),
    "links.delete": (1, lambda s: {"id": s.link()}),
}
READS: dict[str, Maker] = {
    "stashes.get": lambda s: {"id": s.named(s.stash())},
    "stashes.find": lambda s: {"name": s.chance.choice(NAMES), "trail": s.tasks.maybe(s.trail(), 0.7)},
    "stashes.history": lambda s: {"id": s.stash()},
    "queues.size": lambda s: {"id": s.queue()},
    "queues.list": lambda s: {"id": s.queue()},
    "channels.list": lambda s: {"id": s.channel()},
    "channels.subscribers": lambda s: {"id": s.channel()},
    "trails.get": lambda s: {"id": s.trail()},
    "trails.members": lambda s: {"id": s.trail()},
    "links.list": lambda s: {"link_type": s.chance.choice(LISTED)},
}
