"""Many machines: a shared commit log under SQLite, and the replicas that follow it.

`log` defines the interface that an engine implements, the entries, and a log in memory; `replica` is a node's side of
it, with `follower` and `snapshots`. Open a replicated workspace with `holdfast.open(folder, log=...)`. An
adapter needs only: `from holdfast.replication import CommitLog, Head, LogMoved, LostAnswer, Trimmed`.
"""

from holdfast.kernel.journal import LogMoved
from holdfast.replication.log import CommitLog, Head, LostAnswer, Trimmed

__all__ = ["CommitLog", "Head", "LogMoved", "LostAnswer", "Trimmed"]
