"""The store: settings that the guarantees rest on, library versions and files that are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast import errors
from holdfast.kernel import store as stores
from holdfast.kernel.migrations import LAYOUT
from holdfast.kernel.store import APPLICATION_ID, Store, check_sqlite
from holdfast.kernel.store_files import FILE
from holdfast.kernel.translation import translate

DURABLE = {
    "journal_mode": "wal",
    "synchronous": 2,
    "fullfsync": 1,
    "checkpoint_fullfsync": 1,
    "mmap_size": 0,
    "trusted_schema": 0,
    "cell_size_check": 1,
}


def settings(connection: apsw.Connection) -> dict[str, object]:
    assert connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, -1) == 1
    return {pragma: connection.pragma(pragma) for pragma in DURABLE}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """The store of a workspace that was made and closed."""
    holdfast.open(tmp_path, actor="me").close()
    store = Store(str(tmp_path), durable=True, busy_timeout=1)
    yield store
    store.close()


def test_every_connection_has_every_setting(store: Store) -> None:
    readers = [store.connect_reader(), store.connect_reader()]
    assert [settings(connection) for connection in (store.writer, *readers)] == [DURABLE] * 3
    store.reopen_writer()
    assert settings(store.writer) == DURABLE
    for reader in readers:
        reader.close()


def test_the_connections_of_an_open_workspace_have_every_setting(tmp_path: Path) -> None:
    with holdfast.open(tmp_path, actor="me") as ws:
        ws.cells.set("run", "cell", 1)
        ws.cells.get("run", "cell")
        list(ws.watch(timeout=0))
        ws._engine.pulse.pause()  # its thread uses one of them now and then
        try:
            connections = list(ws._engine.store._connections)
            assert len(connections) >= 3
            assert [settings(connection) for connection in connections] == [DURABLE] * len(connections)
        finally:
            ws._engine.pulse.resume()


def test_a_memory_workspace_does_not_wait_for_the_disk_and_leaves_no_folder() -> None:
    with holdfast.open(":memory:", actor="me") as ws:
        folder = Path(ws._engine.folder)
        assert settings(ws._engine.store.writer)["synchronous"] == 0
        assert folder.is_dir()
    assert not folder.exists()


def test_a_reader_cannot_write(store: Store) -> None:
    reader = store.connect_reader()
    with pytest.raises(apsw.ReadOnlyError):
        reader.execute("UPDATE meta SET revision = 7")
    reader.close()


def test_a_setting_that_sqlite_does_not_take_over_is_refused() -> None:
    with pytest.raises(errors.Unsupported, match="journal_mode"):
        stores._set(apsw.Connection(":memory:"), "journal_mode", "wal")  # memory databases have no WAL


@pytest.mark.parametrize("version", ["3.51.2", "3.40.1", "3.7.0", "3.51.2.1", "3.52.0", "2.8.17"])
def test_a_sqlite_with_the_wal_reset_bug_is_refused(version: str) -> None:
    with pytest.raises(errors.Unsupported, match=version):
        check_sqlite(version)


@pytest.mark.parametrize("version", ["3.51.3", "3.51.10", "3.52.1", "3.53.0", "3.100.0", "4.0.0"])
def test_a_sqlite_without_it_is_fine(version: str) -> None:
    check_sqlite(version)


def test_the_sqlite_in_use_is_checked_before_anything_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    with pytest.raises(errors.Unsupported):
        holdfast.open(tmp_path / "store", actor="me")
    assert not (tmp_path / "store" / FILE).exists()


def test_a_closed_store_gives_no_connection(store: Store) -> None:
    store.close()
    for connect in (store.connect, store.connect_reader, lambda: store.writer):
        with pytest.raises(errors.Closed):
            connect()


# --- files of others -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["somebody_elses", "meta"])
def test_a_database_of_somebody_else_is_refused_and_not_touched(tmp_path: Path, table: str) -> None:
    file = tmp_path / FILE
    connection = apsw.Connection(str(file))
    connection.execute(f"CREATE TABLE {table} (x)")
    connection.close()
    before = file.read_bytes()
    with pytest.raises(errors.Invalid, match="not a Holdfast workspace"):
        holdfast.open(tmp_path, actor="me")
    assert file.read_bytes() == before


def test_a_store_of_another_layout_is_refused_and_not_touched(tmp_path: Path) -> None:
    holdfast.open(tmp_path, actor="me").close()
    file = tmp_path / FILE
    connection = apsw.Connection(str(file))
    connection.pragma("user_version", LAYOUT - 1)
    connection.pragma("wal_checkpoint")
    connection.close()
    before = file.read_bytes()
    with pytest.raises(errors.Unsupported, match=rf"before 0\.2 .*layout {LAYOUT - 1}, not {LAYOUT}") as refused:
        holdfast.open(tmp_path, actor="me")
    assert "import them into a new workspace" in refused.value.hint
    assert file.read_bytes() == before


def test_a_file_that_is_no_database_is_corrupt_and_not_touched(tmp_path: Path) -> None:
    file = tmp_path / FILE
    file.write_bytes(b"not a database, but somebody may need it" * 100)
    before = file.read_bytes()
    with pytest.raises(errors.Corrupt):
        holdfast.open(tmp_path, actor="me")
    assert file.read_bytes() == before


def test_a_file_where_the_folder_should_be_is_invalid(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("text")
    with pytest.raises(errors.Invalid, match="is a file"):
        holdfast.open(file, actor="me")
    assert file.read_text() == "text"


def test_a_workspace_is_marked_as_one_and_private_to_its_user(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "store"
    with holdfast.open(folder, actor="me") as ws:
        assert ws._engine.store.writer.pragma("application_id") == APPLICATION_ID
    assert folder.stat().st_mode & 0o077 == 0
    assert (folder / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize(
    ("engine", "ours"),
    [
        (apsw.BusyError, errors.Busy),
        (apsw.FullError, errors.DiskFull),
        (apsw.ReadOnlyError, errors.ReadOnly),
        (apsw.CorruptError, errors.Corrupt),
        (apsw.NotADBError, errors.Corrupt),
        (apsw.IOError, errors.IOFailed),
        (apsw.CantOpenError, errors.IOFailed),
        (apsw.InterruptError, errors.Timeout),
        (apsw.TooBigError, errors.TooLarge),
    ],
)
def test_an_error_of_the_engine_becomes_one_of_ours(engine: type[apsw.Error], ours: type[Exception]) -> None:
    translated = translate(engine("the reason"))
    assert isinstance(translated, ours)
    assert "the reason" in str(translated)


def test_a_mistake_in_our_own_sql_stays_what_it_is() -> None:
    mistake = apsw.SQLError("no such table")
    assert translate(mistake) is mistake
