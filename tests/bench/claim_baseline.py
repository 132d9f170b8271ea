"""The baselines of the claims: the statements of `tasks.claim_next` in a bare apsw loop, and a lean loop beside it.

Fixed on purpose, and importing nothing of ours but the settings: what a program would do that kept the same rows by
hand, without groups of callers, turns between processes, checks, routes or answers. The benchmark traces both and says
so when the statements are no longer the same. The lean loop keeps less: no lease that would end the claim, no tags, no
route; one row updated and one logged.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from tests.bench.baseline import EVENT, FOOTER, HEADER, apply

TTL = 1_800_000_000
GRIMOIRE = "implement-bead"
DOCUMENTS = "SELECT '', parents FROM meta UNION ALL SELECT name, digest FROM documents"
BEST = (
    "SELECT t.seq, t.record, t.id, 'open', t.priority, 0, 0, t.children, t.ended, t.type, t.parent, t.depth, t.version,"
    " t.revision, t.created, t.updated, NULL, NULL, NULL, NULL, NULL, NULL, 0, t.hint, t.grimoire, t.review,"
    " t.tags, t.title, (SELECT body FROM task_texts WHERE seq = t.seq), (SELECT id FROM tasks WHERE seq = t.parent),"
    " NULL, NULL, NULL, t.refs, t.imported, t.origin, EXISTS (SELECT 1 FROM tasks o INDEXED BY tasks_ready_assigned"
    " WHERE o.assignee IS NOT NULL AND o.status = 'open' AND o.waits = 0 AND o.busy = 0 AND o.deleted IS NULL)"
    " FROM tasks t INDEXED BY tasks_ready WHERE t.status = 'open' AND t.waits = 0 AND t.busy = 0"
    " AND t.deleted IS NULL AND t.assignee IS NULL ORDER BY t.priority, t.seq LIMIT ?"
)
LEASE = "INSERT INTO leases (id, kind, holder, ttl, deadline, created) VALUES (?, ?, ?, ?, ?, ?)"
CLAIM = (
    "UPDATE tasks SET status = 'in_progress', holder = ?1, claimed = ?2, token = ?3, ttl = ?4, grimoire = ?5,"
    " review = ?6, version = ?7, revision = ?8, updated = ?2 WHERE seq = ?9"
)
TIDIED = "SELECT tag, priority, seq FROM ready_tags_tidied"
SLICE = (
    "SELECT tag, priority, seq FROM ready_tags WHERE (tag, priority, seq) > (?, ?, ?)"
    " ORDER BY tag, priority, seq LIMIT 1 OFFSET ?"
)
TIDY = (
    "DELETE FROM ready_tags WHERE (tag, priority, seq) > (?, ?, ?) AND {}NOT EXISTS (SELECT 1 FROM tasks t"
    " INDEXED BY tasks_ready WHERE t.priority = ready_tags.priority AND t.seq = ready_tags.seq"
    " AND t.status = 'open' AND t.waits = 0 AND t.busy = 0 AND t.deleted IS NULL AND t.assignee IS NULL)"
)
TIDY_SLICE, TIDY_REST = TIDY.format("(tag, priority, seq) <= (?, ?, ?) AND "), TIDY.format("")
GO_ON = "UPDATE ready_tags_tidied SET tag = ?, priority = ?, seq = ? WHERE id = 1"
LEAN = (
    "UPDATE tasks SET status = 'in_progress', holder = ?, claimed = ?, version = version + 1, revision = ?, updated = ?"
    " WHERE seq = (SELECT seq FROM tasks WHERE status = 'open' AND waits = 0 AND busy = 0 AND deleted IS NULL"
    " AND assignee IS NULL ORDER BY priority, seq LIMIT 1) RETURNING record, version"
)
_encode = msgspec.msgpack.Encoder().encode
_tags = msgspec.json.Decoder(tuple[str, ...]).decode


class Claimer:
    """Claims the best ready tasks on a connection of its own."""

    def __init__(self, path: str) -> None:
        self.connection = apsw.Connection(path, statementcachesize=256)
        apply(self.connection)
        self._execute = self.connection.execute

    def one_by_one(self, agents: Sequence[str]) -> None:
        """One commit a claim."""
        execute = self._execute
        for agent in agents:
            execute("BEGIN IMMEDIATE")
            revision, now = self._begun()
            execute(DOCUMENTS).fetchall()
            self._tidy(self._claim(self._best(1)[0], agent, revision + 1, now))
            execute(FOOTER, (revision + 1, now))
            execute("COMMIT")

    def in_groups(self, agents: Sequence[str], size: int) -> None:
        """`size` claims a commit."""
        execute = self._execute
        for start in range(0, len(agents), size):
            execute("BEGIN IMMEDIATE")
            revision, now = self._begun()
            execute(DOCUMENTS).fetchall()
            litter = ahead = 0
            rows: list[Any] = []
            for number, agent in enumerate(agents[start : start + size]):
                revision += 1
                if not rows:
                    ahead = min(64, 2 * ahead or 1, size - number)
                    rows = self._best(ahead)
                litter += self._claim(rows.pop(), agent, revision, now)
            self._tidy(litter)
            execute(FOOTER, (revision, now))
            execute("COMMIT")

    def lean(self, agents: Sequence[str], size: int) -> None:
        """`size` claims a commit, each of one update and one entry in the log."""
        execute = self._execute
        for start in range(0, len(agents), size):
            execute("BEGIN IMMEDIATE")
            revision, now = self._begun()
            for agent in agents[start : start + size]:
                revision += 1
                row: Any = execute(LEAN, (agent, now, revision, now)).fetchone()
                data = _encode({"status": ("open", "in_progress"), "claimed_by": (None, agent)})
                execute(EVENT, (revision, 0, now, "bench", row[0], "claim", row[1], data))
            execute(FOOTER, (revision, now))
            execute("COMMIT")

    def _begun(self) -> tuple[int, int]:
        header: Any = self._execute(HEADER).fetchone()
        return header[1], time.time_ns() // 1000

    def _tidy(self, litter: int) -> None:
        execute = self._execute
        start: Any = execute(TIDIED).fetchone()
        end: Any = execute(SLICE, (*start, 2 * litter - 1)).fetchone()
        if end is None:
            execute(TIDY_REST, start)
        else:
            execute(TIDY_SLICE, (*start, *end))
        execute(GO_ON, end or ("", 0, 0))

    def _best(self, count: int) -> list[Any]:
        """The best tasks, the very best last."""
        return self._execute(BEST, (count,)).fetchall()[::-1]

    def _claim(self, row: Any, agent: str, revision: int, now: int) -> int:
        """Claim a task; returns how many rows of `ready_tags` are left behind."""
        execute = self._execute
        seq, record, version, token = row[0], row[1], row[12] + 1, revision * 4096
        execute(LEASE, (record, "task", agent, TTL, now + TTL, now))
        execute(CLAIM, (agent, now, token, TTL, GRIMOIRE, 0, version, revision, seq))
        data = _encode(
            {
                "status": ("open", "in_progress"),
                "claimed_by": (None, agent),
                "token": (None, token),
                "grimoire": (None, GRIMOIRE),
            }
        )
        execute(EVENT, (revision, 0, now, "bench", record, "claim", version, data))
        return len(_tags(row[26]))

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()
