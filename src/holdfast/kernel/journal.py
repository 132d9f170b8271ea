"""The interface between a batch and a shared log: what must happen before a replicated store may commit.

A workspace on one machine has no journal, and COMMIT is the truth. In a replicated one the log is the truth, and
`replication.replica` is the journal: the batch makes it catch up, records its changes, and commits only once they are
appended. Everything here is called under the turn, by the leader of the group, unless it says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import apsw

from holdfast.clock import Wakeable
from holdfast.ids import Ids
from holdfast.kernel.store import Store
from holdfast.types import NodeState


class LogMoved(Exception):
    """Another node appended first: the bodies did not see everything before them and must run again."""


class Journal(Protocol):
    """The replica's side of the log."""

    cure: str  # what to do about a damaged store, which a backup need not replace: the log has all of it

    def open(self, store: Store, ids: Ids) -> None:
        """Make the store, or migrate it."""

    def migrate(self, lock_out: bool) -> int:
        """Append the migrations that the workspace lacks, with `lock_out` all of them; returns the schema."""

    def catch_up(self, writing: bool) -> bool:
        """Apply the entries of other nodes. True if there were any. A `writing` node may let others go first."""

    def check_clock(self) -> None:
        """Raise ClockSkew if this node's clock is too wrong to write; called once a transaction has its time."""

    def record(self, connection: apsw.Connection) -> None:
        """Record the changes of a transaction that has begun, until `appended` or `forget`."""

    def append(self) -> bool:
        """Append the recorded changes unless another node was first. False if nothing has changed.

        Raises LogMoved or Unreachable (nothing is stored), or OutcomeUnknown. The caller commits after it.
        """

    def appended(self) -> None:
        """Called when the store has committed what was appended."""

    def forget(self) -> None:
        """Called when the transaction was rolled back."""

    def confirm(self) -> None:
        """Raise LogMoved unless this node had seen the whole log when the transaction began."""

    def has_news(self) -> bool:
        """From any thread: whether there are entries to apply."""

    def end(self) -> int:
        """From any thread: read the end of the log, waiting for a log that cannot be reached as a write would."""

    def looks(self) -> Iterable[None]:
        """From any thread: yield at once, and again after each pause, as long as a caller waits for the log."""

    def has_reached(self, end: int) -> bool:
        """From any thread: whether this node has applied everything up to `end`."""

    def needs_upkeep(self) -> bool:
        """From any thread: whether `maintain` has something to do."""

    def maintain(self) -> None:
        """From a thread of its own, without the turn: long-running upkeep, such as a snapshot."""

    def state(self, ask: bool) -> NodeState:
        """From any thread: how this node is; with `ask` the log says where it ends, and how durable it is."""

    def close(self) -> None:
        """Called once the workspace is closed."""

    def enroll(self, waiter: Wakeable) -> None:
        """Wake `waiter` when the log moves."""

    def dismiss(self, waiter: Wakeable) -> None:
        """Undo `enroll`."""
