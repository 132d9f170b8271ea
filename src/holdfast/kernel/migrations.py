"""Numbered migrations, and the check that keeps an old process from writing to a newer store.

A file `schema/NNNN_name.sql` is migration NNNN. Its first lines may say `-- oldest writer: N` and `-- oldest
reader: N`, the oldest schema that may still work beside it; without them it is additive and locks nobody out.
Opening a workspace runs additive migrations; one that locks others out waits for `upgrade`, which takes a snapshot
first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import cache

import apsw
import msgspec

from holdfast import errors
from holdfast.kernel.failpoints import reach
from holdfast.kernel.store import APPLICATION_ID

# Until 0.2, the first release, the schema files were rewritten in place, and this number said which ones made a store.
# Since then both are frozen: a file of a released version never changes (tests/stores), what is new has a new number.
LAYOUT = 12
SCHEMA_FOLDER = os.path.join(os.path.dirname(__file__), "schema")


class Migration(msgspec.Struct, frozen=True):
    """One step of the schema."""

    number: int
    sql: str
    oldest_writer: int
    oldest_reader: int

    def locks_out(self, schema: int) -> bool:
        """Whether a process that knows only `schema` could not continue beside it."""
        return schema < max(self.oldest_writer, self.oldest_reader)


def load(folder: str | os.PathLike[str] = SCHEMA_FOLDER) -> list[Migration]:
    """Return the migrations of a folder in order; their numbers have no gap."""
    found = [_parse(os.path.join(folder, name)) for name in _files(folder)]
    if [migration.number for migration in found] != list(range(1, len(found) + 1)):
        raise errors.Corrupt(
            f"the migrations in {os.fspath(folder)} are not numbered 1 to {len(found)}", hint="reinstall holdfast"
        )
    return found


def _files(folder: str | os.PathLike[str]) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name[:1].isdigit() and name.endswith(".sql"))


def _parse(path: str) -> Migration:
    with open(path, encoding="utf-8") as file:
        sql = file.read()
    limits = dict(re.findall(r"^-- oldest (writer|reader): (\d+)$", sql, re.MULTILINE))
    return Migration(_number(os.path.basename(path)), sql, int(limits.get("writer", 1)), int(limits.get("reader", 1)))


def _number(name: str) -> int:
    return int(name.split("_")[0])


@cache
def known() -> int:
    """The newest schema this program knows."""
    return max(_number(name) for name in _files(SCHEMA_FOLDER))


def check_writer(oldest_writer: int) -> None:
    """Raise Behind if the store is too new for this program to write. Called by every batch after BEGIN."""
    if known() < oldest_writer:
        raise errors.Behind(
            f"this store needs schema {oldest_writer} to write, this program knows {known()}",
            hint="upgrade holdfast in this process and start it again",
        )


def schema_of(connection: apsw.Connection) -> int:
    """Return the schema number of a store, 0 if the file is new. Raises Invalid for any other database."""
    tables, ours = connection.execute("SELECT count(*), total(name = 'meta') FROM sqlite_schema").fetchone()  # type: ignore[misc]
    if not tables:
        return 0
    if not ours or connection.pragma("application_id") != APPLICATION_ID:
        raise errors.Invalid(
            "the file is a SQLite database, but not a Holdfast workspace", hint="choose another folder"
        )
    layout = connection.pragma("user_version")
    if layout < LAYOUT:
        raise errors.Unsupported(
            f"a version before 0.2 made this store (layout {layout}, not {LAYOUT}): it cannot be upgraded",
            hint="export its tasks and stashes with the version that made it, and import them into a new workspace",
        )
    if layout > LAYOUT:
        raise errors.Behind(
            f"a newer version made this store: its layout is {layout}, this program knows {LAYOUT}",
            hint="upgrade holdfast",
        )
    row = connection.execute("SELECT schema, oldest_reader FROM meta").fetchone()
    if row is None or not all(isinstance(number, int) for number in row):
        raise errors.Corrupt("the store is damaged: it does not say which schema it has")
    schema, reader = row
    if known() < reader:
        raise errors.Behind(
            f"this store needs schema {reader} to read, this program knows {known()}", hint="upgrade holdfast"
        )
    return int(schema)


def refuse_replica(connection: apsw.Connection) -> None:
    """Raise Invalid if the store is a node's replica of a log: written without the log it would diverge."""
    if connection.execute("SELECT 1 FROM local_replica").fetchone():
        raise logless()


def logless() -> errors.Invalid:
    """The error of a replica whose log is not given, and not recorded in its folder."""
    return errors.Invalid(
        "this folder is a replica of a log, but does not record which one",
        hint="open it with the log it belongs to: holdfast.open(path, log=...)",
    )


def migrate(
    connection: apsw.Connection, migrations: Sequence[Migration], workspace: str, *, lock_out: bool = False
) -> int:
    """Run the missing migrations in one transaction; returns the schema afterwards.

    Migrations that lock out processes of the current schema run only with `lock_out`.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        schema = found = schema_of(connection)
        for migration in migrations[found:]:
            if found and migration.locks_out(found) and not lock_out:
                break
            apply(connection, migration, workspace)
            schema = migration.number
        reach("migration.apply")
        connection.execute("COMMIT")
        reach("migration.committed")
        return schema
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def apply(connection: apsw.Connection, migration: Migration, workspace: str) -> None:
    """Run one migration; the caller commits."""
    connection.execute(migration.sql)
    if migration.number == 1:
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", LAYOUT)
        connection.execute("INSERT INTO meta VALUES (1, ?, 1, 1, 1, 0, 0, 0, 0, 0, 'strict')", (workspace,))
    connection.execute(
        "UPDATE meta SET schema = ?, oldest_writer = max(oldest_writer, ?), oldest_reader = max(oldest_reader, ?)",
        (migration.number, migration.oldest_writer, migration.oldest_reader),
    )
