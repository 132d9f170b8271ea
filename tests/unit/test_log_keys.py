"""The numbers by which the log knows its records and events: never used again, whatever happens to what had them."""

from __future__ import annotations

from pathlib import Path

import holdfast
from holdfast.testing import ManualClock

YEAR = 365 * 86_400


def keys(ws: holdfast.Workspace) -> dict[int, str]:
    return dict(ws._engine.read(lambda snapshot: snapshot.all("SELECT key, id FROM records ORDER BY key")))


def order(ws: holdfast.Workspace) -> list[tuple[int, int]]:
    """The positions of all events, by their numbers."""
    return ws._engine.read(lambda snapshot: snapshot.all("SELECT revision, position FROM log ORDER BY seq"))  # type: ignore[no-any-return]


def test_the_history_of_a_purged_task_falls_to_no_other() -> None:
    with holdfast.open(":memory:", actor="ann") as ws:
        old = ws.tasks.create("old")
        ws.tasks.delete(old.id)
        ws.tasks.purge(old.id)
        new = ws.tasks.create("new")
        assert list(keys(ws).values()) == [old.id, new.id]
        assert [event.op for event in ws.events.list(id=new.id)] == ["create"]
        assert [event.op for event in ws.events.list(id=old.id)] == ["create", "delete", "purge"]
        assert ws.check().problems == []


def test_what_is_deleted_and_made_again_goes_on_with_its_versions() -> None:
    with holdfast.open(":memory:", actor="ann") as ws:
        ws.cells.set("run", "cell", 1)
        ws.cells.delete("run", "cell")
        before = keys(ws)
        ws.cells.set("run", "cell", 2)
        assert keys(ws) == before
        assert ws.cells.info("run", "cell").version == 3


def test_no_number_comes_back_after_a_compaction() -> None:
    with holdfast.open(":memory:", actor="ann") as ws:
        for number in range(5):
            ws.cells.set("run", "cell", number)
        last = max(keys(ws))
        ws.events.compact(before=ws.revision + 1)
        ws.cells.set("run", "other", 1)
        assert max(keys(ws)) > last
        assert order(ws) == sorted(order(ws))
        assert ws.check().problems == []


def test_a_backup_of_twenty_years_ago_can_be_restored_twice(tmp_path: Path) -> None:
    """A restore leaps the revision by the microseconds since: whatever multiplies a revision must hold that."""
    clock = ManualClock()
    with holdfast.open(tmp_path / "first", actor="ann", clock=clock) as ws:
        ws.cells.set("run", "cell", 1)
        backup = ws.backup(tmp_path / "backup-1")
    for number in (2, 3):
        clock.advance(20 * YEAR)
        holdfast.restore(backup, tmp_path / f"store-{number}", clock=clock)
        with holdfast.open(tmp_path / f"store-{number}", actor="ann", clock=clock) as ws:
            cursor = ws.revision
            task = ws.tasks.create("task", tags=["web"])
            token = ws.tasks.claim(task.id).token
            assert token is not None
            assert cursor < token < 2**63
            assert [event.op for event in ws.events.list(id=task.id)] == ["create", "claim"]
            assert ws.events.list(after=cursor)[-1].id == task.id
            assert order(ws) == sorted(order(ws))
            assert ws.check().problems == []
            backup = ws.backup(tmp_path / f"backup-{number}")
