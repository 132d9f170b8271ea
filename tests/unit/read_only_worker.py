"""What a process sees that may only read: `python -m tests.unit.read_only_worker FOLDER...` prints one line for each.

Before it opens anything it gives up what lets root pass over the modes of files, so that they mean the same to all.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import holdfast

_DROP, _OVERRIDE, _SEARCH = 24, 1, 2  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH of Linux


def obey_modes() -> None:
    """Let the modes of files count for what is executed from here, also for root."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (_OVERRIDE, _SEARCH):
            if libc.prctl(_DROP, capability, 0, 0, 0) != 0:
                raise OSError(ctypes.get_errno(), "root cannot give up a capability here")


def refusal(call: Callable[[], Any]) -> str:
    """The code of the error that a call raises, or nothing."""
    try:
        call()
    except holdfast.errors.HoldfastError as error:
        return error.code
    return ""


def look(folder: str) -> dict[str, Any]:
    """What can be read and done in a workspace."""
    with holdfast.open(folder, actor="reader") as ws:

        async def later() -> list[Any]:
            listed = [task.title for task in await ws.aio.tasks.ready()]
            try:
                await ws.aio.tasks.create("no")
            except holdfast.errors.HoldfastError as error:
                return [listed, error.code]
            return [listed, ""]

        def block() -> None:
            with ws.transaction() as tx:
                tx.tasks.create("no")

        listed = [task.title for task in ws.tasks.list()]
        ready = [task.title for task in ws.tasks.ready()]
        refused = [
            *(refusal(lambda: ws.tasks.create("no")), refusal(lambda: ws.transact(lambda tx: tx.tasks.create("no")))),
            *(refusal(block), refusal(lambda: next(ws.watch(timeout=1)))),
        ]
        found = ws.tasks.get(ws.tasks.list(limit=1)[0].id).title
        return {
            **{"list": listed, "ready": ready, "get": found, "check": ws.check().problems},
            **{"refused": refused, "aio": asyncio.run(later())},
        }


def follow(folder: str) -> None:
    """Read until there is a task of the name "end"; each commit makes two tasks, so no read sees an odd number."""
    while True:
        try:
            with holdfast.open(folder, actor="reader") as ws:
                titles = [task.title for task in ws.tasks.list(limit=1000)]
        except holdfast.errors.Busy:
            continue
        if len(titles) % 2:
            sys.exit(f"half of a commit: {len(titles)}")
        if "end" in titles:
            return


if __name__ == "__main__":
    if sys.argv[1] != "again":
        obey_modes()
        os.execv(sys.executable, [sys.executable, "-m", "tests.unit.read_only_worker", "again", *sys.argv[1:]])
    if sys.argv[2] == "follow":
        follow(sys.argv[3])
    else:
        for each in sys.argv[2:]:
            print(json.dumps(look(each)))
