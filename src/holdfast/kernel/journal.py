"""The waist between a batch and a shared log: what must happen before a replicated store may commit.

In a workspace of one machine there is no journal, and COMMIT is the truth. In a replicated one the truth is a log, and
`replication.replica` is the journal: the batch has it catch up, records its changes, and commits only once they are
appended. Everything here is called under the turn, by whoever leads the group, unless it says otherwise.
"""

from __future__ import annotations

from typing import Protocol

import apsw

from holdfast.kernel.clock import Wakeable
from holdfast.kernel.ids import Ids
from holdfast.kernel.store import Store


class Moved(Exception):
    """Somebody else was first: what was run did not see everything before it, so it must run again."""


class Journal(Protocol):
    """The replica's side of the log."""

    def open(self, store: Store, ids: Ids) -> None:
        """Make the store, or bring it up to date."""

    def migrate(self, lock_out: bool) -> int:
        """Append the migrations that the workspace lacks, with `lock_out` all of them; answers the schema."""

    def catch_up(self, writing: bool) -> bool:
        """Apply what others appended; True if there was anything. A node that is `writing` may let others go first."""

    def check_clock(self) -> None:
        """Raise ClockSkew if this node's clock is too wrong to write; asked once a transaction has its time."""

    def record(self, connection: apsw.Connection) -> None:
        """A transaction has begun: record its changes, until `appended` or `forget`."""

    def append(self) -> bool:
        """Append what was recorded, if nobody else was first; False if nothing has changed.

        Raises Moved, or Unreachable (nothing is there), or OutcomeUnknown. The caller commits after it.
        """

    def appended(self) -> None:
        """The store has committed what was appended."""

    def forget(self) -> None:
        """The transaction was rolled back."""

    def confirm(self) -> None:
        """Raise Moved unless this node had seen the whole log when the transaction began."""

    def has_news(self) -> bool:
        """From any thread: whether there is something to catch up with."""

    def end(self) -> int:
        """From any thread: ask the log for its end."""

    def has_reached(self, end: int) -> bool:
        """From any thread: whether this node is there."""

    def needs_upkeep(self) -> bool:
        """From any thread: whether `maintain` has something to do."""

    def maintain(self) -> None:
        """From a thread of its own, without the turn: what is due beside the work, such as a snapshot, for long."""

    def enroll(self, waiter: Wakeable) -> None:
        """Wake `waiter` when the log moves."""

    def dismiss(self, waiter: Wakeable) -> None:
        """Undo `enroll`."""
