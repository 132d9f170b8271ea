"""Many machines: a shared commit log under SQLite, and the replicas that follow it.

`base` is the waist that a log must fill, `memory` a log inside this process, `replica` the node's side of it, made of
`entries` (what is in the log), `snapshots` (how a node joins without the whole history) and `courtesy` (how nodes that
write at once stay out of each other's way). Open a replicated workspace with `holdfast.open(folder, log=...)`.
What an adapter needs is here: `from holdfast.replication import CommitLog, Head, LostAnswer, Moved, Trimmed`.
"""

from holdfast.kernel.journal import Moved
from holdfast.replication.log import CommitLog, Head, LostAnswer, Trimmed

__all__ = ["CommitLog", "Head", "LostAnswer", "Moved", "Trimmed"]
