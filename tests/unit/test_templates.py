"""What conformance tests start from is what a program would make: a copied store differs from a new one in nothing."""

from __future__ import annotations

from pathlib import Path

import apsw

import holdfast
from holdfast.kernel.store_files import FILE
from holdfast.replication.log import MemoryLog
from holdfast.testing import ManualClock
from tests.worlds.contents import contents
from tests.worlds.templates import copy_nodes, copy_store


def schema(folder: Path) -> list[tuple[object, ...]]:
    connection = apsw.Connection(str(folder / FILE), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        settings = [connection.pragma(name) for name in ("application_id", "journal_mode", "page_size")]
        return [*connection.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY type, name"), tuple(settings)]
    finally:
        connection.close()


def rows(workspace: holdfast.Workspace) -> dict[str, list[object]]:
    """All of them but the id of the workspace, which is its own."""
    found = contents(workspace)
    return {name: [row[2:] if name == "meta" else row for row in table] for name, table in found.items()}


def test_a_copied_store_is_what_a_new_one_is(tmp_path: Path) -> None:
    new, copied = tmp_path / "new", tmp_path / "copied"
    copy_store(copied)
    with holdfast.open(new, actor="a", clock=ManualClock()) as one, holdfast.open(copied, actor="a") as other:
        assert rows(one) == rows(other)
        assert one.revision == other.revision == 0
        assert other.check().problems == []
    assert schema(new) == schema(copied)
    assert {path.name for path in new.iterdir()} == {path.name for path in copied.iterdir()}
    assert new.stat().st_mode == copied.stat().st_mode
    assert (new / FILE).stat().st_mode == (copied / FILE).stat().st_mode


def test_copied_nodes_are_what_nodes_are_that_have_joined_a_new_log(tmp_path: Path) -> None:
    clock = ManualClock()
    log, new_log = MemoryLog(clock=clock), MemoryLog(clock=clock)
    copy_nodes(tmp_path / "copied", log, 2)
    head = log.head()
    for number in range(2):
        new = holdfast.open(tmp_path / "new" / f"node-{number}", actor="a", clock=clock, log=new_log)
        copied = holdfast.open(tmp_path / "copied" / f"node-{number}", actor="a", clock=clock, log=log)
        with new, copied:
            assert rows(new) == rows(copied)
            assert copied.check().problems == []
    assert log.head() == head == new_log.head()
