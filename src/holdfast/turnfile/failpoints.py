"""Failpoints: named places where a test can stop or kill a process that changes a session's files.

In production `reach` finds no hook and does nothing. The names are listed here, so that a test can visit them all and
prove that each is reached.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

NAMES: Final = (
    "file.locked",  # the turn to write is taken, nothing is read
    "commit.begun",  # all is decided, nothing is written
    "temp.written",  # the new content of one file is durable under another name
    "journal.written",  # the journal is durable: from here on the replacement happens
    "file.replaced",  # one file has its new content
    "files.replaced",  # all have
    "journal.removed",  # nothing is left to do
    "lock.acquired",  # the ledger says that the lock is ours
    "body.done",  # the edits are made in memory
    "targets.checked",  # lock, hashes and invariants are in order, nothing is written
    "lock.released",  # all is done, the caller does not know yet
)

hook: Callable[[str], None] | None = None


def reach(name: str) -> None:
    """Do nothing, unless a test says otherwise."""
    if hook is not None:
        hook(name)
