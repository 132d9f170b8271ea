"""What a store holds, table by table, to tell whether two replicas are equal."""

from __future__ import annotations

import hashlib

import msgspec

from holdfast.kernel.tx import Row, Snapshot
from holdfast.replication.follower import is_shared
from holdfast.workspace import Workspace


def contents(workspace: Workspace) -> dict[str, list[Row]]:
    """Every row of every table that replicas share, in the order of the primary keys."""

    def read(snapshot: Snapshot) -> dict[str, list[Row]]:
        tables = snapshot.all("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
        return {name: _rows(snapshot, name) for (name,) in tables if is_shared(name)}

    found: dict[str, list[Row]] = workspace._engine.read_snapshot(read)
    return found


def fingerprint(workspace: Workspace) -> str:
    """The same as one hash, over the bytes of everything."""
    return hashlib.sha256(msgspec.msgpack.encode(contents(workspace))).hexdigest()


def _rows(snapshot: Snapshot, table: str) -> list[Row]:
    columns = snapshot.all(f"SELECT name FROM pragma_table_info('{table}') WHERE pk ORDER BY pk")
    return snapshot.all(f"SELECT * FROM {table} ORDER BY {', '.join(name for (name,) in columns)}")
