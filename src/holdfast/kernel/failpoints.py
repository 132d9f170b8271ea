"""Failpoints: named places in the kernel where a test can stop, crash or fail a process.

In production `reach` finds no hook and does nothing. A test sets `hook`, which is called with the name of each place
as it is reached, and may raise, kill the process, or let another process run first. The names are listed here, so that
a test can visit them all and prove that each is reached.
"""

from __future__ import annotations

from collections.abc import Callable

NAMES = (
    "batch.begin",  # the turn is taken, nothing has begun
    "batch.swept",  # expired leases are swept, no body has run
    "batch.ran",  # the bodies have run
    "batch.commit",  # before COMMIT
    "batch.committed",  # durable, no caller has its result
    "migration.apply",  # inside the transaction of a migration
    "migration.committed",
    "backup.copied",  # the copy is complete, without its name
    "backup.published",
    "log.append",  # the changes are recorded, nothing is appended
    "log.appended",  # appended, not committed
    "log.fetched",  # entries of other nodes are here, nothing is applied
    "log.applied",  # applied, not committed
    "snapshot.made",  # the copy is complete, on this node only
    "snapshot.put",  # the log stores it, no entry names it
    "snapshot.announced",  # nothing is trimmed yet
    "snapshot.fetched",  # a joining node has it, not installed
    "snapshot.installed",
    "move.noted",  # this folder is to go to a log, or to leave one; the log does not know
    "move.seeded",  # the log begins with the workspace, its folder is not yet a replica
    "move.ended",  # the log has ended, its folder is still a replica
    "move.stored",  # the store is what it shall be, its folder records the former state
    "move.recorded",  # all is done, but the note is still there
)

hook: Callable[[str], None] | None = None


def reach(name: str) -> None:
    """Call the hook, if a test has set one."""
    if hook is not None:
        hook(name)
