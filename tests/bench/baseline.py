"""The baseline of the durable increments: the statements of `cells.increment` in a bare apsw loop.

Fixed on purpose, and importing nothing of ours: what a program would do that wrote the same rows by hand, without
groups of callers, turns between processes, checks or errors. The benchmark traces both and says so when the
statements or the settings are no longer the same.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

SETTINGS: dict[str, object] = {
    "journal_mode": "wal",
    "synchronous": 2,
    "fullfsync": 1,
    "checkpoint_fullfsync": 1,
    "mmap_size": 0,
    "trusted_schema": 0,
    "cell_size_check": 1,
    "cache_size": -16_384,
    "temp_store": 2,
    "foreign_keys": 0,
    "wal_autocheckpoint": 1000,
}
HEADER = "SELECT oldest_writer, revision, stamp, (SELECT min(deadline) FROM leases), workspace FROM meta WHERE id = 1"
LOAD = "SELECT value, record, version, lease FROM cells WHERE run = ? AND cell = ?"
UPDATE = (
    "UPDATE cells SET version = ?, revision = ?, updated = ?, size = ?, lease = ?, value = ? WHERE run = ? AND cell = ?"
)
KEY = "SELECT key FROM records WHERE kind = ? AND scope = ? AND id = ?"
EVENT = "INSERT INTO log (revision, position, time, actor, record, op, version, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
FOOTER = "UPDATE meta SET revision = ?, stamp = ? WHERE id = 1"


def apply(connection: apsw.Connection) -> None:
    """Give a connection our settings."""
    for pragma, value in SETTINGS.items():
        connection.pragma(pragma, value)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


class Loop:
    """Increments existing cells of one run on a connection of its own."""

    def __init__(self, path: str, run: str) -> None:
        self.connection = apsw.Connection(path, statementcachesize=256)
        apply(self.connection)
        self._execute = self.connection.execute
        self._run = run

    def one_by_one(self, cells: Sequence[str]) -> None:
        """One commit an increment."""
        execute = self._execute
        for cell in cells:
            execute("BEGIN IMMEDIATE")
            header: Any = execute(HEADER).fetchone()
            revision: int = header[1]
            now = time.time_ns() // 1000
            self._increment(cell, revision + 1, now)
            execute(FOOTER, (revision + 1, now))
            execute("COMMIT")

    def in_groups(self, cells: Sequence[str], size: int) -> None:
        """`size` increments a commit."""
        execute = self._execute
        for start in range(0, len(cells), size):
            execute("BEGIN IMMEDIATE")
            header: Any = execute(HEADER).fetchone()
            revision: int = header[1]
            now = time.time_ns() // 1000
            for cell in cells[start : start + size]:
                revision += 1
                self._increment(cell, revision, now)
            execute(FOOTER, (revision, now))
            execute("COMMIT")

    def _increment(self, cell: str, revision: int, now: int) -> None:
        execute, run = self._execute, self._run
        row: Any = execute(LOAD, (run, cell)).fetchone()
        value, record, version, lease = row
        data = msgspec.msgpack.encode(msgspec.msgpack.decode(value) + 1)
        version += 1
        execute(UPDATE, (version, revision, now, len(data), lease, data, run, cell))
        execute(EVENT, (revision, 0, now, "bench", record, "increment", version, b"\x81\xa5value" + data))

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()
