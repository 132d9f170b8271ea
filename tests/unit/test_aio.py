"""The event-loop side: nothing of a loop is kept once it is over."""

from __future__ import annotations

import asyncio
import gc
import threading

import holdfast


def test_a_loop_that_is_over_leaves_no_thread_behind() -> None:
    others = {*threading.enumerate()}  # such as those of a server that other tests share

    def committers() -> list[threading.Thread]:
        return [each for each in threading.enumerate() if each.name == "holdfast-commit" and each not in others]

    with holdfast.open(":memory:", actor="agent") as ws:

        async def write() -> None:
            await ws.aio.cells.increment("run", "count")

        for _ in range(5):
            asyncio.run(write())
        gc.collect()
        for thread in committers()[:-1]:  # the newest may belong to the workspace's last loop
            thread.join(60)
        assert len(committers()) <= 1
        assert ws.cells.get("run", "count").value == 5
