"""A writer that is meant to be killed: `python -m tests.e2e.kill_worker FOLDER NAME SEED`.

Several threads write without end, so that group commits are always in flight; the seed draws how many, and how large
each value is. Each transaction sets a cell to a value nobody else writes and counts in a shared cell. As soon as it is
durable, its thread reports one line to stdout: cell, version, value without what only makes it larger, revision, count.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import threading

import holdfast

THREADS = (2, 10)
LARGEST = 20_000  # characters of a value: several pages
RUN = "kill"
COUNT = "count"


def write(ws: holdfast.Workspace, name: str, seed: str, thread: int) -> None:
    """Write and report for ever."""
    cell, draw = f"cell-{thread}", random.Random(f"{seed} {thread}")
    for number in itertools.count():
        value = f"{name}.{thread}.{number}"

        def body(tx: holdfast.Transaction, value: str = f"{value} {filling(draw)}") -> tuple[int, int, int]:
            return tx.cells.set(RUN, cell, value), tx.revision, int(tx.cells.increment(RUN, COUNT))

        version, revision, count = ws.transact(body)
        # One write of a short line is atomic: what the other side reads of it is whole.
        os.write(1, f"{cell} {version} {value} {revision} {count}\n".encode())


def filling(draw: random.Random) -> str:
    """Mostly little, now and then more than a page, so that commits differ in what they write."""
    return "x" * draw.choice((0, 0, 0, 10, 500, draw.randrange(LARGEST)))


def main() -> None:
    folder, name, seed = sys.argv[1:]
    count = random.Random(f"threads {seed}").randint(*THREADS)
    ws = holdfast.open(folder, actor=name)
    threads = [threading.Thread(target=write, args=(ws, name, seed, number)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
