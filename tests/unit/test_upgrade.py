"""`holdfast.upgrade`: past a migration that locks out older programs, never without a backup."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast import errors
from holdfast.clock import SystemClock
from holdfast.kernel import maintenance, migrations
from holdfast.kernel.migrations import Migration
from holdfast.kernel.store_files import FILE
from holdfast.testing import ManualClock

KNOWN = migrations.known()
LOCKING = Migration(
    KNOWN + 1, "CREATE TABLE extra (id INTEGER NOT NULL PRIMARY KEY);", oldest_writer=KNOWN + 1, oldest_reader=1
)
STEPS = [*migrations.load(), LOCKING]


def backups(folder: Path) -> list[Path]:
    return sorted(folder.glob("before-schema-*.backup"))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    with holdfast.open(folder, actor="me") as ws:
        ws.cells.set("run", "cell", "kept")
    return folder


def test_an_upgrade_writes_a_backup_that_can_be_restored_and_then_locks_others_out(store: Path, tmp_path: Path) -> None:
    assert maintenance.upgrade(store, SystemClock(), STEPS) == KNOWN + 1
    with holdfast.open(store, actor="me") as ws:
        assert ws.cells.get("run", "cell").value == "kept"
        with pytest.raises(errors.Behind):
            ws.cells.set("run", "cell", "by a program that is too old")
    (backup,) = backups(store)
    holdfast.restore(backup, tmp_path / "again")
    with holdfast.open(tmp_path / "again", actor="me") as ws:
        assert ws.cells.set("run", "cell", "as before") == 2
        assert ws.check().problems == []


def test_an_upgrade_with_nothing_to_do_writes_nothing(store: Path) -> None:
    before = sorted(path.name for path in store.iterdir())
    assert holdfast.upgrade(store) == KNOWN
    assert sorted(path.name for path in store.iterdir()) == before


def test_an_upgrade_whose_backup_cannot_be_written_does_nothing(store: Path) -> None:
    clock = ManualClock()
    (store / f"before-schema-{KNOWN + 1}-{clock.wall()}.backup").write_text("in the way")
    with pytest.raises(errors.Exists):
        maintenance.upgrade(store, clock, STEPS)
    with holdfast.open(store, actor="me") as ws:
        assert ws.cells.set("run", "cell", "still") == 2


def test_an_upgrade_that_fails_leaves_the_store_as_it_was(store: Path) -> None:
    broken = Migration(KNOWN + 1, "CREATE TABLE meta (id);", oldest_writer=KNOWN + 1, oldest_reader=1)
    with pytest.raises(Exception, match="meta"):
        maintenance.upgrade(store, SystemClock(), [*STEPS[:-1], broken])
    with holdfast.open(store, actor="me") as ws:
        assert ws.cells.set("run", "cell", "still") == 2


def test_there_is_nothing_to_upgrade_where_no_workspace_is(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFound):
        holdfast.upgrade(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_store_from_before_tasks_says_what_to_do_and_has_them_after_an_upgrade(tmp_path: Path) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    connection = apsw.Connection(str(folder / FILE))
    migrations.migrate(connection, migrations.load()[:1], "an old workspace")
    connection.close()
    with holdfast.open(folder, actor="me") as ws:
        assert ws.cells.set("run", "cell", 1) == 1
        for call in (lambda: ws.tasks.create("first"), ws.tasks.ready, ws.tasks.claim_next, lambda: ws.tasks.get("x")):
            with pytest.raises(errors.Behind, match=r"no such table.*holdfast\.upgrade"):
                call()
        assert ws.check().ok
    assert holdfast.upgrade(folder) == KNOWN
    with holdfast.open(folder, actor="me") as ws:
        assert ws.tasks.create("first").status == "open"
        assert ws.cells.get("run", "cell").value == 1
