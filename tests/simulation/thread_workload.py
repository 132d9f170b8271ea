"""What clients ask of threads and items, which are few, so that they meet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulation.task_workload import TaskClients

THREADS = ("g1", "g2", "g3")
CHANNELS = ("log", "sum")
ITEMS = (("users/ada", "theme"), ("users/bob", "theme"), ("users", "all"))
RECENT = 4  # checkpoints that clients go on from

Args = dict[str, Any]
Maker = Callable[["ThreadClients"], Args]


class ThreadClients:
    """Makes operations on threads and items by chance."""

    def __init__(self, tasks: TaskClients) -> None:
        self.tasks = tasks
        self.chance = tasks.chance
        self.made: dict[str, list[str]] = {thread: [] for thread in THREADS}  # checkpoints that were asked for
        self._count = 0

    def thread(self) -> Args:
        return {"id": self.chance.choice(THREADS)}

    def checkpoint(self, thread: str) -> str:
        """One of the last, which may be gone, or never was stored."""
        return self.chance.choice(self.made[thread][-RECENT:] or ["none"])

    def put(self) -> Args:
        """Goes on from a checkpoint or from none; some channels keep the version that it may have."""
        thread = self.chance.choice(THREADS)
        again = bool(self.made[thread]) and self.chance.random() < 0.1
        self._count += 1
        id = self.checkpoint(thread) if again else f"{self._count:06}"
        parent = None if not self.made[thread] or self.chance.random() < 0.3 else self.checkpoint(thread)
        values = {channel: [self.tasks.value()] for channel in CHANNELS if self.chance.random() < 0.6}
        channels = {channel: f"{id}.{self._count}" for channel in values}
        deltas = [channel for channel in CHANNELS if channel not in values and self.chance.random() < 0.5]
        self.made[thread].append(id)
        args = {"id": thread, "checkpoint": id, "value": self._count, "channels": channels, "values": values}
        return {**args, "parent": parent, "deltas": deltas}

    def write(self) -> Args:
        """By one of two tasks, now and then a question to a person."""
        thread = self.chance.choice(THREADS)
        channel = self.chance.choice((*CHANNELS, "__interrupt__"))
        checkpoint, task = self.checkpoint(thread), self.chance.choice(("t1", "t2"))
        return {"id": thread, "checkpoint": checkpoint, "task": task, "writes": [[channel, self.tasks.value()]]}

    def item(self) -> Args:
        namespace, key = self.chance.choice(ITEMS)
        return {"namespace": namespace, "key": key}


OPERATIONS: dict[str, tuple[int, Maker]] = {
    "threads.put": (6, ThreadClients.put),
    "threads.put_writes": (4, ThreadClients.write),
    "threads.delete": (1, ThreadClients.thread),
    "threads.copy": (2, lambda c: {**c.thread(), "to": c.chance.choice(THREADS)}),
    "threads.prune": (1, lambda c: {**c.thread(), "keep": c.chance.choice((1, 2))}),
    "items.put": (3, lambda c: {**c.item(), "value": {"n": c.tasks.value()}}),
    "items.delete": (1, ThreadClients.item),
}
READS: dict[str, Maker] = {"threads.find": ThreadClients.thread, "items.find": ThreadClients.item}
