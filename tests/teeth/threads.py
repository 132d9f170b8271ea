"""Bugs in threads and items: runs that write over each other, what comes back, what is lost when others are deleted."""

from __future__ import annotations

from tests.teeth.bug import Bug

THREADS = ("tests/conformance/test_threads.py", "--kinds", "memory")
ITEMS = ("tests/conformance/test_items.py", "--kinds", "memory")

BUGS = [
    Bug(
        "a run without the lock writes to a thread that another holds",
        "domains/threads/rows.py",
        "    elif row is not None:\n        raise locks.held(target, row[1], row[5])\n",
        "",
        THREADS,
    ),
    Bug(
        "a run brings back a thread that was deleted under it",
        "domains/threads/rows.py",
        "    if deleted and (ns or",
        "    if False and (ns or",
        THREADS,
    ),
    Bug(
        "pruning takes the ancestors that a channel is read from",
        "domains/threads/removal.py",
        "            needed.add(parent)\n",
        "",
        THREADS,
    ),
    Bug(
        "a value goes while a checkpoint still has its version",
        "domains/threads/removal.py",
        '" (SELECT j.key, j.value FROM checkpoints c',
        '" (SELECT j.key, j.key FROM checkpoints c',
        THREADS,
    ),
    Bug(
        "an event of an interrupt is not there for who waits",
        "domains/threads/__init__.py",
        "            tx.emit(INTERRUPT, id, mark, data=_encode(facts))\n",
        "            pass\n",
        THREADS,
    ),
    Bug(
        "two runs of one actor hold a thread at once",
        "domains/threads/__init__.py",
        "        if row is not None:\n            raise locks.held(self._target, row[1], row[5])\n",
        "",
        THREADS,
    ),
    Bug(
        "a search finds what only begins like its namespace",
        "domains/items.py",
        " AND (i.namespace = ? OR substr(i.namespace, 1, ?) = ?)",
        " AND (i.namespace = ? OR ? OR ?)",
        ITEMS,
    ),
    Bug(
        "an item that was renewed expires all the same",
        "domains/items.py",
        "row[0] is not None and leases.renew(tx, row[0])",
        "row[0] is not None",
        ITEMS,
    ),
]
