"""Where a replica stands in its log: one row of a local table, committed together with what was applied.

`local_` tables are a node's own: no changeset carries them. So a replica that loses its newest commits, with the power
say, also forgets that it had them, and reads them in the log again.
"""

from __future__ import annotations

from typing import NamedTuple

import apsw

from holdfast.logs.base import START


class Place(NamedTuple):
    """The last entry applied, and what the next snapshot depends on."""

    position: int = START
    before: int = START  # the position of the entry before that
    entry: str = ""  # its id
    entries: int = 0  # since the last snapshot
    snapshot: int = START  # the position of that


def read(connection: apsw.Connection) -> Place | None:
    """The place of a store; None if it is no replica, or empty."""
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'local_replica'").fetchone():
        return None
    row = connection.execute("SELECT position, before, entry, entries, snapshot FROM local_replica").fetchone()
    return None if row is None else Place(*row)


def write(connection: apsw.Connection, place: Place) -> None:
    """Remember the place; the caller commits."""
    connection.execute(
        "INSERT OR REPLACE INTO local_replica (id, position, before, entry, entries, snapshot)"
        " VALUES (1, ?, ?, ?, ?, ?)",
        place,
    )
