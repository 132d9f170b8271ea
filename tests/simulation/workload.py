"""What clients ask for: a table of makers, one for each operation. A new domain joins by adding its lines.

Values are never used twice, so that no stale read can look right by accident.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

from holdfast import Exists, NotExists, Op, ValueEquals, VersionEquals
from holdfast.types import TxnResult
from tests.simulation import cycle_workload, mail_workload, stash_workload, task_workload, thread_workload
from tests.simulation.cycle_workload import CycleClients
from tests.simulation.mail_workload import MailClients
from tests.simulation.stash_workload import StashClients
from tests.simulation.task_workload import TaskClients
from tests.simulation.thread_workload import ThreadClients
from tests.simulation.undo_model import UNDOABLE

RUNS = ("r1", "r2")
CELLS = ("a", "b", "c")
LOCKS = ("x", "y")
HOLDERS = ("ann", "bob")
TTLS = (1, 5, 60, 3600)

Args = dict[str, Any]
Maker = Callable[["Workload"], Args]


class Workload:
    """Makes operations by chance, with what earlier ones answered: versions, tokens, lease ids."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.tokens: dict[str, int] = {}
        self.leases: list[str] = []
        self.holders: dict[str, str] = {}  # of leases
        self.versions: dict[tuple[str, str], int] = {}
        self.revision = 0
        self.undoable: list[int] = []  # revisions of late
        self._values = itertools.count(1)
        self.tasks = TaskClients(chance, self.value)
        self.mail = MailClients(self.tasks)
        self.stashes = StashClients(self.tasks)
        self.cycles = CycleClients(self.tasks)
        self.threads = ThreadClients(self.tasks)
        self._names = [name for name, (weight, _) in OPERATIONS.items() for _ in range(weight)]

    def next(self) -> tuple[str, Args]:
        """An operation and its arguments."""
        name = self.cycles.instead(self.stashes.instead(self.chance.choice(self._names)))
        return name, OPERATIONS[name][1](self)

    def value(self) -> Any:
        """One that never was before; now and then one that is large."""
        number = next(self._values)
        large = self.chance.random() < 0.05  # and no compression makes it small
        return {"n": number, "fill": f"{self.chance.getrandbits(24_000):x}"} if large else number

    def place(self) -> Args:
        return {"run": self.chance.choice(RUNS), "cell": self.chance.choice(CELLS)}

    def version(self, place: Args) -> int:
        return max(1, self.versions.get((place["run"], place["cell"]), 1) + self.chance.choice((0, 0, 0, -1)))

    def lock(self) -> Args:
        return {"name": self.chance.choice(LOCKS), "holder": self.chance.choice(HOLDERS)}

    def token(self, name: str) -> int | None:
        return self.tokens.get(name) if self.chance.random() < 0.5 else None

    def lease(self) -> str:
        return self.chance.choice(self.leases[-4:]) if self.leases else "no-such-lease"

    def fence(self) -> tuple[str, int] | None:
        """Now and then a call is fenced, by a token that may be old."""
        known = self.tokens | {id: token for id, (_, token) in self.stashes.tokens.items()}
        if known and self.chance.random() < 0.1:
            name = self.chance.choice(sorted(known))
            return name, known[name]
        return None

    def made(self, op: str, revision: int) -> None:
        """Remember what can be taken back, or what must be refused."""
        if op in UNDOABLE:
            self.undoable.append(revision)

    def learn(self, op: str, args: Args, answer: Any) -> None:
        """Remember what an answer tells."""
        if op == "locks.acquire":
            self.tokens[args["name"]] = answer.token
        elif op == "leases.create":
            self.leases.append(answer.id)
            self.holders[answer.id] = answer.holder
        elif op.startswith("tasks."):
            self.tasks.learn(op, args, answer)
        elif "run" in args and "cell" in args and type(answer) is int and op != "cells.increment":
            self.versions[args["run"], args["cell"]] = answer
        for part in answer.results if isinstance(answer, TxnResult) else [answer]:
            self.mail.learn(part)
            self.stashes.learn(op, args, part)
            self.cycles.learn(part)
            if op == "txn":
                self.tasks.learn(op, args, part)


def _set(w: Workload) -> Args:
    args = {**w.place(), "value": w.value()}
    chance = w.chance.random()
    if chance < 0.3:
        args["ttl"] = w.chance.choice(TTLS)
    elif chance < 0.4 and w.leases:
        args["lease"] = w.lease()
    return args


def _cas(w: Workload) -> Args:
    place = w.place()
    return {**place, "expected": w.version(place), "value": w.value()}


def _compare_and_delete(w: Workload) -> Args:
    place = w.place()
    return {**place, "expected": w.version(place)}


def _acquire(w: Workload) -> Args:
    args = {**w.lock(), "ttl": w.chance.choice((None, *TTLS))}
    if args["ttl"] is None and w.leases and w.chance.random() < 0.3:
        args["lease"] = w.lease()
    return args


def _held(w: Workload) -> Args:
    lock = w.lock()
    return {**lock, "token": w.token(lock["name"])}


def _leased(w: Workload) -> Args:
    """A lease of late, by its holder or whoever calls."""
    id = w.lease()
    holder = w.holders.get(id) if w.chance.random() < 0.8 else None
    return {"id": id} if holder is None else {"id": id, "holder": holder}


def _undo(w: Workload) -> Args:
    """One of the last transactions; the older it is, the more may have changed since."""
    return {"revision": w.chance.choice(w.undoable[-6:] if w.undoable else [1]), "others": True}


def _txn(w: Workload) -> Args:
    chance = w.chance.random()
    if chance < 0.2:
        return w.tasks.take_in_a_txn()
    if chance < 0.5:
        return w.mail.take_up_in_a_txn()
    if chance < 0.7:
        return w.stashes.work_in_a_txn()
    place = w.place()
    key = (place["run"], place["cell"])
    conditions = {
        "exists": Exists("cell", key),
        "absent": NotExists("cell", key),
        "version": VersionEquals("cell", key, w.version(place)),
        "holder": ValueEquals("lock", w.chance.choice(LOCKS), w.chance.choice(HOLDERS)),
    }
    return {
        "conditions": [conditions[w.chance.choice(sorted(conditions))]],
        "then": [Op("cells.set", {**place, "value": w.value()}), Op("cells.set", {**w.place(), "value": w.value()})],
        "otherwise": [Op("cells.delete", w.place())] if w.chance.random() < 0.5 else [],
    }


def _for_tasks(maker: task_workload.Maker) -> Maker:
    return lambda w: maker(w.tasks)


def _for_mail(maker: mail_workload.Maker) -> Maker:
    return lambda w: maker(w.mail)


def _for_stashes(maker: stash_workload.Maker) -> Maker:
    return lambda w: maker(w.stashes)


def _for_threads(maker: thread_workload.Maker) -> Maker:
    return lambda w: maker(w.threads)


def _for_cycles(maker: cycle_workload.Maker) -> Maker:
    return lambda w: maker(w.cycles)


OPERATIONS: dict[str, tuple[int, Maker]] = {
    "cells.set": (6, _set),
    "cells.cas": (4, _cas),
    "cells.init": (2, lambda w: {**w.place(), "value": w.value()}),
    "cells.get_or_init": (2, lambda w: {**w.place(), "default": w.value()}),
    "cells.increment": (4, lambda w: {"run": "counters", "cell": w.chance.choice(CELLS)}),
    "cells.delete": (2, lambda w: w.place()),
    "cells.compare_and_delete": (1, _compare_and_delete),
    "cells.delete_run": (1, lambda w: {"run": w.chance.choice(RUNS)}),
    "cells.refresh_ttl": (1, lambda w: {**w.place(), "ttl": w.chance.choice(TTLS)}),
    "locks.acquire": (4, _acquire),
    "locks.release": (3, _held),
    "locks.refresh": (2, _held),
    "leases.create": (1, lambda w: {"ttl": w.chance.choice(TTLS)}),
    "leases.refresh": (1, _leased),
    "leases.revoke": (1, _leased),
    "txn": (3, _txn),
    "undo": (4, _undo),
    "events.compact": (1, lambda w: {"before": max(1, w.revision - w.chance.randrange(40))}),
    **{name: (weight, _for_tasks(maker)) for name, (weight, maker) in task_workload.OPERATIONS.items()},
    **{name: (weight, _for_mail(maker)) for name, (weight, maker) in mail_workload.OPERATIONS.items()},
    **{name: (weight, _for_stashes(maker)) for name, (weight, maker) in stash_workload.OPERATIONS.items()},
    **{name: (weight, _for_cycles(maker)) for name, (weight, maker) in cycle_workload.OPERATIONS.items()},
    **{name: (weight, _for_threads(maker)) for name, (weight, maker) in thread_workload.OPERATIONS.items()},
}
READS: dict[str, Maker] = {
    "cells.find": lambda w: w.place(),
    "cells.exists": lambda w: w.place(),
    "locks.find": lambda w: {"name": w.chance.choice(LOCKS)},
    **{name: _for_tasks(maker) for name, maker in task_workload.READS.items()},
    **{name: _for_mail(maker) for name, maker in mail_workload.READS.items()},
    **{name: _for_stashes(maker) for name, maker in stash_workload.READS.items()},
    **{name: _for_cycles(maker) for name, maker in cycle_workload.READS.items()},
    **{name: _for_threads(maker) for name, maker in thread_workload.READS.items()},
}
