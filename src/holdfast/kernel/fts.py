"""Full-text indexes: kept beside the tables they index, on every node by itself.

FTS5 tables never travel in the log. Whoever changes a row of an indexed table, be it a domain in a transaction or a
replica that applies an entry, has the index forget the row before and learn it after; both by the same statements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

# The indexed table, whose key is `seq`: its index and the columns in it.
INDEXES = {"message_texts": ("messages_fts", "subject, body"), "task_texts": ("tasks_fts", "title, body, notes")}

Run = Callable[[str, Sequence[Any]], Any]


def forget(run: Run, table: str, seq: int) -> None:
    """Take a row out of its index, while the row is still there as it was indexed; nothing if there is none."""
    index, columns = INDEXES[table]
    run(
        f"INSERT INTO {index} ({index}, rowid, {columns}) SELECT 'delete', seq, {columns} FROM {table} WHERE seq = ?",
        (seq,),
    )


def learn_new(many: Callable[[str, Iterable[Sequence[Any]]], Any], table: str, rows: Iterable[Sequence[Any]]) -> None:
    """Put new rows, given as (seq, columns...), into their index: several times quicker than reading them back."""
    index, columns = INDEXES[table]
    holes = ", ".join("?" * (columns.count(",") + 2))
    many(f"INSERT INTO {index} (rowid, {columns}) VALUES ({holes})", rows)


def learn(run: Run, table: str, seq: int) -> None:
    """Put a row into its index as it is now; nothing if there is none."""
    index, columns = INDEXES[table]
    run(f"INSERT INTO {index} (rowid, {columns}) SELECT seq, {columns} FROM {table} WHERE seq = ?", (seq,))
