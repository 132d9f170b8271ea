"""A process that fights others for tasks, and its parent's end: `python -m tests.e2e.claim_worker NUMBER`.

It does what it reads from stdin: `open FOLDER [CLOCK]`, answered by `ready`; then `go HOW`, upon which its threads,
each an agent of its own, begin at the same moment, and `end` is said when all are through. HOW is `next` (claim_next
until there is none), `ids` (claim by id, see `claim_ids`) or `work` (claim a handful, complete them, until there are
none). Each agent, `PROCESS.THREAD`, says `won AGENT ID TOKEN` when it is told that it has a task, `done AGENT ID` when
that is completed, and `lost COUNT` for the claims that were refused.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import holdfast
from holdfast import errors
from holdfast.testing import ManualClock
from holdfast.testing.crowd import LONG

ROOT = Path(__file__).parents[2]
THREADS = 4
IDS = ("race", "ids")  # the cell in which the ids are
WINDOW = 50  # ids are shuffled within so many: rivals are after the same tasks at the same time, in another order
PARTIES = 4  # as which the agents of all processes are after the tasks, two neighbouring threads in the same
HANDFUL = 5
TTL = 60.0  # of a claim by `work`, on a clock that stands still


# --- in the parent ---------------------------------------------------------------------------------------------------


class Fighter:
    """The parent's end of one such process; it is killed at the end of `with`, if it is still there."""

    def __init__(self, number: int) -> None:
        self.number = number
        command = [sys.executable, "-m", "tests.e2e.claim_worker", str(number)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)

    def tell(self, *words: object) -> None:
        """Have it do something."""
        assert self._process.stdin is not None
        self._process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self._process.stdin.flush()

    def hear(self, last: str) -> list[list[str]]:
        """All it says before a line with this one word; of one that is killed, all that it has said."""
        assert self._process.stdout is not None
        heard: list[list[str]] = []
        for line in self._process.stdout:
            assert line.endswith(b"\n"), f"half a line: {line!r}"
            if line.split() == [last.encode()]:
                return heard
            heard.append(line.decode().split())
        assert self._process.wait(LONG) == -9
        return heard

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


# --- in the process --------------------------------------------------------------------------------------------------


def say(*words: object) -> None:
    """One write of a short line is atomic: what the other side reads of it is whole."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def claim_next(ws: holdfast.Workspace, agent: str) -> None:
    """Take one task after the other."""
    while task := ws.tasks.claim_next(agent):
        say("won", agent, task.id, task.token)


def claim_ids(ws: holdfast.Workspace, agent: str) -> None:
    """Try to take every task of one's party; the same ones as the other thread of it, and as those elsewhere."""
    process, thread = map(int, agent.split("."))
    party = (process * THREADS + thread) // 2 % PARTIES
    ids: list[str] = ws.cells.get(*IDS).value
    lost = 0
    for first in range(party * WINDOW, len(ids), PARTIES * WINDOW):
        window = ids[first : first + WINDOW]
        random.shuffle(window)
        for id in window:
            try:
                task = ws.tasks.claim(id, agent)
                say("won", agent, task.id, task.token)
            except errors.AlreadyClaimed:
                lost += 1
    say("lost", lost)


def work(ws: holdfast.Workspace, agent: str) -> None:
    """Take a handful at a time, so that there is always something to lose, and complete them."""
    while True:
        held = []
        for _ in range(HANDFUL):
            if task := ws.tasks.claim_next(agent, ttl=TTL):
                say("won", agent, task.id, task.token)
                held.append(task)
        if not held:
            return
        for task in held:
            ws.tasks.complete(task.id, agent, token=task.token)
            say("done", agent, task.id)


HOW = {"next": claim_next, "ids": claim_ids, "work": work}


def fight(ws: holdfast.Workspace, process: str, how: str) -> None:
    """All threads at the same moment."""
    barrier = threading.Barrier(THREADS)

    def run(thread: int) -> None:
        barrier.wait()
        HOW[how](ws, f"{process}.{thread}")

    with ThreadPoolExecutor(THREADS) as pool:
        for future in [pool.submit(run, thread) for thread in range(THREADS)]:
            future.result()


def main() -> None:
    (process,) = sys.argv[1:]
    ws: holdfast.Workspace | None = None
    for line in sys.stdin:
        match line.split():
            case "open", folder, *clock:
                if ws is not None:
                    ws.close()
                own = ManualClock(*clock) if clock else None
                ws = holdfast.open(folder, actor=f"process-{process}", clock=own, busy_timeout=LONG)
                say("ready")
            case "go", how:
                assert ws is not None
                fight(ws, process, how)
                say("end")
            case words:
                raise AssertionError(words)


if __name__ == "__main__":
    main()
