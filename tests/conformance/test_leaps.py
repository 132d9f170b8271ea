"""A clock that leaps destroys nothing: retention, purges and keys act only on time that has passed (design 4, T16)."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

import holdfast
from holdfast.kernel import failpoints
from holdfast.testing import ManualClock
from holdfast.types.tasks import Retired
from tests.worlds.kinds import World

DAY = 24 * 3600.0


def there(ws: Any) -> list[str]:
    """Titles of all tasks, those deleted in brackets; looking is also a reason to sweep what is due."""
    tasks = ws.tasks.list(include_deleted=True, sort="created")
    return [f"({task.title})" if task.deleted_at else task.title for task in tasks]


def live(world: World, ws: Any, days: float) -> None:
    """Let days pass while somebody works now and then, and the backup that a purge waits for is made."""
    for _ in range(round(days * 2)):
        world.clock.advance(DAY / 2)
        there(ws)
        world.settle()
        if isinstance(ws, holdfast.Workspace):
            ws._engine.pulse.finish()


def closed(ws: Any, title: str = "closed") -> str:
    id: str = ws.tasks.create(title).id
    ws.tasks.cancel(id)
    return id


def backups(folder: Path) -> list[Path]:
    return sorted(folder.rglob("before-purge-*.backup"))


# --- leaps -----------------------------------------------------------------------------------------------------------


def test_t16_forty_days_for_three_seconds_delete_nothing(world: World) -> None:
    ws = world.open()
    closed(ws)
    live(world, ws, 1)
    world.clock.jump(40 * DAY)
    for _ in range(3):
        world.clock.advance(1)
        assert there(ws) == ["closed"]
        ws.cells.set("run", "cell", 1)
    world.clock.jump(-40 * DAY)
    live(world, ws, 3)  # the workspace's time is ahead now, so none of it is believed
    assert there(ws) == ["closed"]
    ws.clock.reset()
    live(world, ws, 3)
    assert there(ws) == ["closed"]
    live(world, ws, 26)
    assert there(ws) == ["(closed)"]


def test_t16_time_that_passes_deletes_and_purges_also_after_a_leap(world: World) -> None:
    ws = world.open()
    closed(ws)
    live(world, ws, 29.5)
    assert there(ws) == ["closed"]
    live(world, ws, 1.5)
    assert there(ws) == ["(closed)"]
    world.clock.jump(300 * DAY)  # and stays there
    assert there(ws) == ["(closed)"]
    live(world, ws, 0.5)
    assert there(ws) == ["(closed)"]
    live(world, ws, 2.5)
    world.live_until(lambda: there(ws) == [])


def test_t16_a_sweep_by_hand_acts_right_after_a_leap(world: World) -> None:
    ws = world.open()
    closed(ws)
    world.clock.jump(40 * DAY)
    assert ws.tasks.sweep_retention() == Retired(1, 0)
    world.clock.jump(40 * DAY)
    assert ws.tasks.sweep_retention() == Retired(0, 1)


def test_leases_end_early_in_a_leap_as_documented(world: World) -> None:
    ws = world.open()
    ws.tasks.claim(ws.tasks.create("claimed").id)
    ws.cells.set("run", "cell", 1, ttl=60)
    world.clock.jump(40 * DAY)
    assert ws.tasks.list()[0].status == "open"
    assert ws.cells.find("run", "cell") is None


def test_a_key_is_never_forgotten_early_because_of_a_leap(world: World) -> None:
    ws = world.open()
    keyed = ws.using(key="k1")
    assert keyed.cells.increment("run", "count") == 1
    world.clock.jump(40 * DAY)
    assert keyed.cells.increment("run", "count") == 1
    ws.using(key="other").cells.increment("run", "other")  # which tidies up
    assert keyed.cells.increment("run", "count") == 1
    world.clock.jump(-40 * DAY)
    world.clock.advance(DAY - 1)
    assert keyed.cells.increment("run", "count") == 1
    world.clock.advance(2)
    assert keyed.cells.increment("run", "count") == 2


def test_t16_what_was_retired_together_is_restored_together(world: World) -> None:
    ws = world.open()
    top = closed(ws, "top")
    other = ws.tasks.create("other").id
    below = [ws.tasks.create(f"{n}", parent_id=top).id for n in range(3)]
    deep = ws.tasks.create("deep", parent_id=below[0]).id
    lone = ws.tasks.create("lone", parent_id=other).id
    for id in (deep, *below, lone):
        ws.tasks.cancel(id)
    live(world, ws, 31)
    assert there(ws) == ["(top)", "other", "(0)", "(1)", "(2)", "(deep)", "(lone)"]
    ws.tasks.restore(top)
    assert there(ws) == ["top", "other", "0", "1", "2", "deep", "(lone)"]
    live(world, ws, 8)
    world.live_until(lambda: "(lone)" not in there(ws))
    assert there(ws) == ["top", "other", "0", "1", "2", "deep"]
    assert ws.check().ok


def test_an_abandoned_trail_keeps_its_stashes_in_a_leap(world: World) -> None:
    ws = world.open()
    trail = ws.trails.create("trail").id
    ws.stashes.create("notes", "context", value={"n": 1}, trail=trail)
    ws.trails.abandon(trail)
    world.clock.jump(40 * DAY)
    ws.cells.set("run", "cell", 1)
    ws.trails.restore(trail)
    assert [stash.name for stash in ws.stashes.list(trail=trail)] == ["notes"]
    ws.trails.abandon(trail)
    live(world, ws, 7)
    world.live_until(lambda: "purge" in [event.op for event in ws.events.list(kinds=["stash"])])
    ws.trails.restore(trail)
    assert ws.stashes.list(trail=trail) == []


# --- restarts --------------------------------------------------------------------------------------------------------


class Restarted:
    """A store that one command after the other opens."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock(folder / "clock")
        self.folder = folder / "store"

    def open(self) -> Any:
        return holdfast.open(self.folder, actor="me", clock=self.clock)

    def look(self) -> list[str]:
        with self.open() as ws:
            ws.cells.set("run", "cell", 1)
            return there(ws)


def test_t16_single_commands_years_ahead_purge_nothing(tmp_path: Path) -> None:
    store = Restarted(tmp_path)
    with store.open() as ws:
        closed(ws)
        ws.tasks.delete(ws.tasks.create("deleted").id)
    for days in (730, 739, 746):
        store.clock.jump(days * DAY)
        assert store.look() == ["closed", "(deleted)"]
        store.clock.jump(-days * DAY)
    assert backups(tmp_path) == []


def test_t16_idle_weeks_count_once_a_process_has_been_there_for_a_day(tmp_path: Path) -> None:
    store = Restarted(tmp_path)
    with store.open() as ws:
        closed(ws)
    store.clock.advance(40 * DAY)
    with store.open() as ws:
        ws.cells.set("run", "cell", 1)
        assert there(ws) == ["closed"]
        store.clock.advance(DAY - 1)
        assert there(ws) == ["closed"]
    store.clock.advance(1)
    assert store.look() == ["(closed)"]


# --- the backup before a purge ---------------------------------------------------------------------------------------


@pytest.mark.capability("local")
def test_t16_a_purge_leaves_a_backup_that_has_what_it_removed(world: World, tmp_path: Path) -> None:
    ws: Any = world.open()
    folder = Path(ws._engine.folder)
    id = closed(ws)
    live(world, ws, 31)
    assert (there(ws), backups(folder)) == (["(closed)"], [])
    ws.tasks.delete(ws.tasks.create("later").id)
    live(world, ws, 9)
    assert there(ws) == []
    [backup] = backups(folder)
    assert backup.stat().st_mode & 0o777 == 0o600
    holdfast.restore(backup, tmp_path / "restored", clock=world.clock)
    with holdfast.open(tmp_path / "restored", actor="me", clock=world.clock) as restored:
        assert restored.tasks.restore(id).status == "closed"
    other = closed(ws, "other")
    ws.tasks.delete(other)
    live(world, ws, 9)  # deleted after that backup
    assert (there(ws), len(backups(folder))) == ([], 2)
    live(world, ws, 23)
    ws._engine.age_out()
    assert len(backups(folder)) == 1
    live(world, ws, 8)
    ws._engine.age_out()
    assert backups(folder) == []


@pytest.mark.capability("local")
def test_t16_nothing_is_purged_if_the_backup_fails_and_somebody_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ws: Any = world.open()
    closed(ws)
    live(world, ws, 31)

    def fail(name: str) -> None:
        if name == "backup.copied":
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(failpoints, "hook", fail)
    live(world, ws, 9)
    assert there(ws) == ["(closed)"]
    assert "nothing is purged, because the backup before it failed" in caplog.text
    assert backups(Path(ws._engine.folder)) == []
    monkeypatch.setattr(failpoints, "hook", None)
    live(world, ws, 1.5)
    assert there(ws) == []


@pytest.mark.capability("local")
def test_t16_nobody_waits_for_the_backup_before_a_purge(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ws: Any = world.open()
    closed(ws)
    live(world, ws, 36)
    copying, go_on, written = Event(), Event(), Event()

    def hold(name: str) -> None:
        if name == "backup.copied":
            copying.set()
            assert go_on.wait(60)

    def write() -> None:
        ws.cells.set("run", "cell", 1)
        written.set()

    monkeypatch.setattr(failpoints, "hook", hold)
    for _ in range(20):
        world.clock.advance(DAY / 2)
        there(ws)
        if copying.wait(1):
            break
    Thread(target=write, daemon=True).start()
    try:
        assert written.wait(30), "a write waits for the copy"
        assert there(ws) == ["(closed)"], "purged before there is a backup"
    finally:
        go_on.set()
    world.live_until(lambda: there(ws) == [])
    assert len(backups(Path(ws._engine.folder))) == 1


def test_t16_short_commands_make_the_backup_before_they_end(tmp_path: Path) -> None:
    store = Restarted(tmp_path)
    with store.open() as ws:
        ws.tasks.delete(ws.tasks.create("deleted").id)
    for _ in range(10):
        store.clock.advance(DAY * 0.9)  # less than a leap
        left = store.look()
        assert left == ["(deleted)"] or backups(tmp_path)
    assert left == []
    assert len(backups(tmp_path)) == 1


@pytest.mark.capability("local")
def test_backups_do_not_age_in_a_leap(world: World) -> None:
    ws: Any = world.open()
    ws.tasks.delete(ws.tasks.create("deleted").id)
    live(world, ws, 8)
    world.clock.jump(400 * DAY)
    ws.cells.set("run", "cell", 1)
    ws._engine.age_out()
    assert len(backups(Path(ws._engine.folder))) == 1


def test_every_node_knows_of_a_leap(world: World) -> None:
    """`calm` is in the log: a node that has not witnessed a leap does not act on it either."""
    ws, other = world.open("ann"), world.open("bob")
    closed(ws)
    live(world, ws, 1)
    world.clock.jump(40 * DAY)
    ws.cells.set("run", "cell", 1)
    world.settle()
    for _ in range(3):
        world.clock.advance(3600)
        other.cells.set("run", "cell", 2)
        assert there(other) == ["closed"]
