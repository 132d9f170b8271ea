"""An agent of the demo: a process that takes items, works on them and writes the results, until all are done.

What makes this safe although no agent trusts another: an item belongs to the holder of its lock; the lock expires if
its holder dies; and every write is fenced with the lock's token, so a holder that was away too long can change nothing.
"""

from __future__ import annotations

import random
import sys
import time
from typing import Any

import holdfast
from holdfast import errors
from holdfast.workspace.watch import every

TTL = 1.5  # seconds until a lock expires unless it is refreshed
STEPS = 4
STEP_SECONDS = (0.15, 0.45)


def items_of(run: str) -> str:
    """Return the run whose cells are the items."""
    return f"{run}/items"


def results_of(run: str) -> str:
    """Return the run of the results, one for each item."""
    return f"{run}/results"


def fenced_of(run: str) -> str:
    """Return the run in which agents report that they were fenced."""
    return f"{run}/fenced"


def lock_of(run: str, item: str) -> str:
    """Return the lock of an item."""
    return f"{run}/items/{item}"


class Agent:
    """One agent, named by its workspace's actor."""

    def __init__(self, ws: holdfast.Workspace, run: str, chance: random.Random) -> None:
        self._ws = ws
        self._run = run
        self._chance = chance

    def work(self) -> None:
        """Until nothing is left: take a free item, or wait for an event."""
        while True:
            seen = self._ws.revision
            left = self._unfinished()
            if not left:
                return
            if not any(self._try_item(item) for item in left):
                # An expired lock is an event too, so this ends when a dead agent's item becomes free.
                next(iter(self._ws.watch(after=seen, timeout=1.0)), None)

    def _unfinished(self) -> list[str]:
        items = every(self._ws.cells.list, run=items_of(self._run))
        left = [item for item in items if self._item(item).value["state"] != "done"]
        self._chance.shuffle(left)
        return left

    def _item(self, item: str) -> holdfast.Cell:
        return self._ws.cells.get(items_of(self._run), item)

    def _try_item(self, item: str) -> bool:
        """Take the lock and claim the item, work, and finish; False if another agent has it."""
        lock = lock_of(self._run, item)
        try:
            grant = self._ws.locks.acquire(lock, ttl=TTL)
        except errors.Held:
            return False
        try:
            self._do(item, lock, grant.token)
        except errors.Fenced as refusal:
            late = {"item": item, "token": grant.token, "current": refusal.current}
            self._ws.cells.set(fenced_of(self._run), self._ws.actor, late)
        return True

    def _do(self, item: str, lock: str, token: int) -> None:
        found = self._item(item)
        if found.value["state"] == "done":
            self._ws.locks.release(lock, token=token)
            return
        fenced = self._ws.using(fence=(lock, token))
        value = {"state": "working", "by": self._ws.actor, "tries": found.value["tries"] + 1, "step": 0}
        version = fenced.cells.cas(items_of(self._run), item, found.version, value)
        for step in range(1, STEPS + 1):
            time.sleep(self._chance.uniform(*STEP_SECONDS))  # the work itself
            value = {**value, "step": step}
            version = fenced.transact(lambda tx, v=version, new=value: self._progress(tx, item, lock, token, v, new))  # type: ignore[misc]
        fenced.transact(lambda tx: self._finish(tx, item, lock, token, version, value))

    def _progress(
        self, tx: holdfast.Transaction, item: str, lock: str, token: int, version: int, value: dict[str, Any]
    ) -> int:
        """Write the progress, and refresh the lock."""
        tx.locks.refresh(lock, token=token)
        return tx.cells.cas(items_of(self._run), item, version, value)

    def _finish(
        self, tx: holdfast.Transaction, item: str, lock: str, token: int, version: int, value: dict[str, Any]
    ) -> None:
        """Write the result and the state and release the lock, all at once; `init` would refuse a second result."""
        tx.cells.init(results_of(self._run), item, {"by": tx.actor, "token": token})
        tx.cells.cas(items_of(self._run), item, version, {**value, "state": "done"})
        tx.locks.release(lock, token=token)


def main(folder: str, name: str, run: str, seed: str) -> None:
    """Run one agent."""
    with holdfast.open(folder, actor=name) as ws:
        Agent(ws, run, random.Random(f"{seed} {name}")).work()


if __name__ == "__main__":
    main(*sys.argv[1:])
