"""Many machines: a shared commit log under SQLite, and the replicas that follow it.

`log` defines the interface that an engine implements, the entries, and a log in memory; `replica` is a node's side of
it, with `follower` and `snapshots`. Open a replicated workspace with `holdfast.open(folder, log=...)`. An
adapter needs only: `from holdfast.replication import CommitLog, LogMoved, LostAnswer, Trimmed`.
"""

from holdfast.kernel.journal import LogMoved
from holdfast.replication.log import CommitLog, LostAnswer, Trimmed

__all__ = ["CommitLog", "LogMoved", "LostAnswer", "Trimmed"]
