"""Migrations: additive ones run at open, others wait; an old program cannot write to a newer store."""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast import errors
from holdfast.kernel import migrations
from holdfast.kernel.store_files import FILE
from holdfast.testing import ManualClock
from holdfast.testing.crowd import together

ADDITIVE = "CREATE TABLE extra (id INTEGER NOT NULL PRIMARY KEY);"
LOCKING = "-- A table that old writers would not keep in step.\n-- oldest writer: 3\n-- oldest reader: 2\n"


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    """A copy of the schema folder, to which a test adds migrations."""
    folder = tmp_path / "schema"
    shutil.copytree(migrations.SCHEMA_FOLDER, folder, ignore=lambda *_: [])
    return folder


def add(folder: Path, sql: str) -> int:
    number = len(list(folder.glob("*.sql"))) + 1
    (folder / f"{number:04}_test.sql").write_text(sql)
    return number


def learn(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Make this program know the migrations of a folder."""
    found = migrations.load(folder)
    monkeypatch.setattr(migrations, "load", lambda: found)
    monkeypatch.setattr(migrations, "known", lambda: len(found))


def tables(folder: Path) -> set[str]:
    connection = apsw.Connection(str(folder / FILE))
    found = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    connection.close()
    return found


def meta(folder: Path, columns: str) -> tuple[object, ...]:
    connection = apsw.Connection(str(folder / FILE))
    row = connection.execute(f"SELECT {columns} FROM meta").fetchone()
    connection.close()
    assert row is not None
    return tuple(row)


def change_meta(folder: Path, **columns: int) -> None:
    """Do to the store what a newer program's upgrade would."""
    connection = apsw.Connection(str(folder / FILE))
    connection.execute(f"UPDATE meta SET {', '.join(f'{name} = ?' for name in columns)}", tuple(columns.values()))
    connection.close()


NEXT = migrations.known() + 1
WRITER = max(migration.oldest_writer for migration in migrations.load())  # who may write to a store of today


def test_a_new_store_has_the_newest_schema(tmp_path: Path) -> None:
    holdfast.open(tmp_path / "store", actor="me").close()
    assert meta(tmp_path / "store", "schema") == (migrations.known(),)


def test_an_additive_migration_runs_at_open_and_locks_nobody_out(
    tmp_path: Path, schema: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = holdfast.open(tmp_path / "store", actor="old")
    old.cells.set("run", "cell", 1)
    add(schema, ADDITIVE)
    learn(monkeypatch, schema)
    with holdfast.open(tmp_path / "store", actor="new") as new:
        assert new.cells.get("run", "cell").value == 1
    assert "extra" in tables(tmp_path / "store")
    assert meta(tmp_path / "store", "schema, oldest_writer, oldest_reader") == (NEXT, WRITER, 1)
    monkeypatch.undo()
    assert old.cells.set("run", "cell", 2) == 2
    old.close()
    with holdfast.open(tmp_path / "store", actor="old") as old:  # one that knows less opens it too
        assert old.cells.set("run", "cell", 3) == 3


def test_a_migration_that_locks_others_out_waits_and_so_do_those_behind_it(
    tmp_path: Path, schema: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holdfast.open(tmp_path / "store", actor="me").close()
    add(schema, ADDITIVE)
    add(schema, f"-- oldest writer: {NEXT + 1}\nCREATE TABLE locking (id INTEGER NOT NULL PRIMARY KEY);")
    add(schema, "CREATE TABLE behind (id INTEGER NOT NULL PRIMARY KEY);")
    learn(monkeypatch, schema)
    with holdfast.open(tmp_path / "store", actor="me") as ws:
        assert ws.cells.set("run", "cell", 1) == 1
    assert meta(tmp_path / "store", "schema, oldest_writer") == (NEXT, WRITER)
    assert tables(tmp_path / "store") & {"extra", "locking", "behind"} == {"extra"}


def test_with_leave_a_locking_migration_runs_and_the_store_remembers_whom_it_locks_out(
    tmp_path: Path, schema: Path
) -> None:
    holdfast.open(tmp_path / "store", actor="me").close()
    add(schema, f"-- oldest writer: {NEXT}\n-- oldest reader: {NEXT - 1}\n{ADDITIVE}")
    connection = apsw.Connection(str(tmp_path / "store" / FILE))
    assert migrations.migrate(connection, migrations.load(schema), "", lock_out=True) == NEXT
    connection.close()
    assert meta(tmp_path / "store", "schema, oldest_writer, oldest_reader") == (NEXT, NEXT, NEXT - 1)


def test_a_new_store_runs_all_migrations_also_those_that_would_lock_others_out(
    tmp_path: Path, schema: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(schema, f"-- oldest writer: {NEXT}\n{ADDITIVE}")
    learn(monkeypatch, schema)
    holdfast.open(tmp_path / "store", actor="me").close()
    assert meta(tmp_path / "store", "schema, oldest_writer") == (NEXT, NEXT)


def test_a_process_that_was_open_cannot_write_once_the_store_needs_newer_writers(tmp_path: Path) -> None:
    with holdfast.open(tmp_path, actor="me") as ws:
        ws.cells.set("run", "cell", 1)
        change_meta(tmp_path, schema=NEXT, oldest_writer=NEXT)
        for write in (
            lambda: ws.cells.set("run", "cell", 2),
            lambda: ws.transact(lambda tx: tx.cells.find("run", "cell")),
            lambda: ws.transaction().__enter__(),
        ):
            with pytest.raises(errors.Behind, match=f"schema {NEXT}"):
                write()
        assert (ws.cells.get("run", "cell").value, ws.revision) == (1, 1)
        change_meta(tmp_path, schema=NEXT - 1, oldest_writer=1)
        assert ws.cells.set("run", "cell", 2) == 2


def test_a_program_that_is_too_old_to_write_may_open_and_read(tmp_path: Path) -> None:
    with holdfast.open(tmp_path, actor="me") as ws:
        ws.cells.set("run", "cell", 1)
    change_meta(tmp_path, schema=NEXT, oldest_writer=NEXT)
    with holdfast.open(tmp_path, actor="me") as ws:
        assert ws.cells.get("run", "cell").value == 1
        assert ws.cells.list("run") == ["cell"]
        with pytest.raises(errors.Behind):
            ws.cells.set("run", "cell", 2)


def test_a_list_answers_as_of_the_last_sweep_where_the_store_may_not_be_written(tmp_path: Path) -> None:
    clock = ManualClock()
    with holdfast.open(tmp_path, actor="me", clock=clock) as ws:
        ws.cells.set("run", "cell", 1, ttl=5)
        change_meta(tmp_path, schema=NEXT, oldest_writer=NEXT)
        clock.advance(5)
        assert ws.cells.list("run") == ["cell"]
        assert ws.cells.find("run", "cell") is None


def test_a_program_that_is_too_old_to_read_cannot_open(tmp_path: Path) -> None:
    holdfast.open(tmp_path, actor="me").close()
    change_meta(tmp_path, schema=NEXT, oldest_writer=NEXT, oldest_reader=NEXT)
    with pytest.raises(errors.Behind, match="to read"):
        holdfast.open(tmp_path, actor="me")
    change_meta(tmp_path, schema=NEXT - 1, oldest_writer=1, oldest_reader=1)
    holdfast.open(tmp_path, actor="me").close()


def test_the_first_lines_of_a_migration_say_whom_it_locks_out(schema: Path) -> None:
    add(schema, LOCKING + ADDITIVE)
    add(schema, "CREATE TABLE more (id INTEGER NOT NULL PRIMARY KEY);")
    locking, additive = migrations.load(schema)[-2:]
    assert (locking.oldest_writer, locking.oldest_reader) == (3, 2)
    assert [locking.locks_out(schema) for schema in (1, 2, 3)] == [True, True, False]
    assert (additive.oldest_writer, additive.oldest_reader, additive.locks_out(1)) == (1, 1, False)


def test_numbers_with_a_gap_or_twice_the_same_are_refused(schema: Path) -> None:
    (schema / f"{NEXT + 1:04}_too_far.sql").write_text(ADDITIVE)
    with pytest.raises(errors.Corrupt):
        migrations.load(schema)
    (schema / f"{NEXT:04}_fills_it.sql").write_text(ADDITIVE)
    assert len(migrations.load(schema)) == NEXT + 1
    (schema / f"{NEXT:04}_again.sql").write_text(ADDITIVE)
    with pytest.raises(errors.Corrupt):
        migrations.load(schema)


def test_a_migration_that_fails_leaves_the_store_as_it_was(
    tmp_path: Path, schema: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holdfast.open(tmp_path / "store", actor="me") as ws:
        ws.cells.set("run", "cell", 1)
    add(schema, ADDITIVE)
    add(schema, "CREATE TABLE good (id INTEGER NOT NULL PRIMARY KEY); CREATE TABLE cells (x);")
    learn(monkeypatch, schema)
    with pytest.raises(apsw.SQLError):
        holdfast.open(tmp_path / "store", actor="me")
    assert meta(tmp_path / "store", "schema") == (NEXT - 1,)
    assert tables(tmp_path / "store") & {"extra", "good"} == set()
    monkeypatch.undo()
    with holdfast.open(tmp_path / "store", actor="me") as ws:
        assert ws.cells.set("run", "cell", 2) == 2


def test_many_that_open_a_new_store_at_once_make_one(tmp_path: Path) -> None:
    opened = together(*[lambda: holdfast.open(tmp_path / "store", actor="me")] * 8)
    assert sorted(ws.cells.set("run", "cell", 1) for ws in opened) == list(range(1, 9))
    for ws in opened:
        ws.close()
