"""An asyncio worker pool that loses no work: sixteen workers, one of which dies in the middle of a task.

Shows: claiming without a queue server, a claim that ends when its worker is silent, results and completion in one
transaction, and that every task is done exactly once. Needs only `pip install holdfast`.

    python examples/worker_pool.py
"""

from __future__ import annotations

import asyncio
import tempfile
from typing import Any

import holdfast

WORKERS, TASKS = 16, 60


def finish(task: Any, worker: str) -> Any:
    """A transaction: count the work and complete the task, both or neither."""

    def body(tx: Any) -> None:
        tx.cells.increment("pool", f"done by {worker}")
        tx.tasks.complete(task.id, agent=worker, token=task.token)  # Fenced if the claim was lost meanwhile

    return body


async def work(ws: holdfast.Workspace, worker: str, dies: bool = False) -> None:
    """Claim and finish until nothing is ready."""
    while (task := await ws.aio.tasks.claim_next(worker, ttl=2.0)) is not None:
        if dies:
            return  # like a process that was killed: it has the task, and never says so again
        await asyncio.sleep(0.001)  # the work
        await ws.aio.transact(finish(task, worker))


async def main(folder: str) -> None:
    """Fill the workspace, let the workers at it, and count."""
    with holdfast.open(folder, actor="pool") as ws:
        await ws.aio.tasks.bulk("create", tasks=[{"title": f"item {n}"} for n in range(TASKS)])
        await asyncio.gather(work(ws, "worker-0", dies=True), *(work(ws, f"worker-{n}") for n in range(1, WORKERS)))
        left = await ws.aio.tasks.list(status=["in_progress"])
        print(f"after the first pass {len(left)} task is held by a worker that died")
        async with ws.aio.watch(kinds=["task"], timeout=30) as events:  # its claim ends after two seconds
            async for event in events:
                if event.op == "expire":
                    break
        await work(ws, "worker-1")
        closed = await ws.aio.tasks.list(status=["closed"], limit=1000)
        counted = sum([(await ws.aio.cells.get("pool", name)).value for name in await ws.aio.cells.list("pool")])
        print(f"done exactly once: {len(closed)} of {TASKS}, counted {counted}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(main(scratch))
