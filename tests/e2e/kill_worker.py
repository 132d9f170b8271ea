"""A writer that is meant to be killed: `python -m tests.e2e.kill_worker FOLDER NAME`.

Several threads write without end, so that group commits are always in flight. Each transaction sets a cell to a value
nobody else writes and counts in a shared cell. As soon as it is durable, its thread reports one line to stdout: cell,
version, value, revision, count.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading

import holdfast

THREADS = 6
RUN = "kill"
COUNT = "count"


def write(ws: holdfast.Workspace, name: str, thread: int) -> None:
    """Write and report for ever."""
    cell = f"cell-{thread}"
    for number in itertools.count():
        value = f"{name}.{thread}.{number}"

        def body(tx: holdfast.Transaction, value: str = value) -> tuple[int, int, int]:
            return tx.cells.set(RUN, cell, value), tx.revision, int(tx.cells.increment(RUN, COUNT))

        version, revision, count = ws.transact(body)
        # One write of a short line is atomic: what the other side reads of it is whole.
        os.write(1, f"{cell} {version} {value} {revision} {count}\n".encode())


def main() -> None:
    folder, name = sys.argv[1:]
    ws = holdfast.open(folder, actor=name)
    threads = [threading.Thread(target=write, args=(ws, name, number)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
