"""Backup and restore: a consistent copy while others write, and a revision that no lost timeline ever had."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast import Transaction, Workspace, errors
from holdfast.kernel.maintenance import sum_of
from holdfast.kernel.store_files import FILE
from holdfast.testing import ManualClock
from holdfast.testing.crowd import LONG, finish, start, together
from holdfast.types import Event

LEAP = 10**9


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ws(tmp_path: Path, clock: ManualClock) -> Iterator[Workspace]:
    with holdfast.open(tmp_path / "store", actor="me", clock=clock) as workspace:
        yield workspace


def test_a_store_larger_than_a_page_cache_is_backed_up_while_its_pages_are_in_the_write_ahead_log(
    tmp_path: Path,
) -> None:
    text = "x" * 16_000
    with holdfast.open(tmp_path / "store", actor="ann") as ws:
        for number in range(200):
            ws.cells.set("run", f"cell-{number}", text)
        ws.backup(tmp_path / "one.backup")
        assert ws.check().problems == []
    holdfast.restore(tmp_path / "one.backup", tmp_path / "restored")
    with holdfast.open(tmp_path / "restored", actor="ann") as again:
        assert again.check().problems == []
        assert all(again.cells.get("run", f"cell-{number}").value == text for number in range(200))


def test_a_restored_workspace_has_everything_and_goes_on_counting(
    ws: Workspace, tmp_path: Path, clock: ManualClock
) -> None:
    ws.cells.set("run", "cell", {"a": b"bytes"})
    ws.cells.set("run", "cell", 2)
    grant = ws.locks.acquire("lock", "me", ttl=1000)
    backup = ws.backup(tmp_path / "backup")
    ws.cells.set("run", "cell", "after the backup")
    revision = holdfast.restore(backup, tmp_path / "new", clock=clock)
    with holdfast.open(tmp_path / "new", actor="me", clock=clock) as new:
        assert new.revision == revision >= 3 + LEAP
        assert (new.cells.get("run", "cell").value, new.cells.get("run", "cell").version) == (2, 2)
        assert new.locks.get("lock") == grant
        assert new.cells.set("run", "cell", 3) == 3
        assert new.revision == revision + 1
        assert new.locks.acquire("other", "me").token > grant.token
        assert new.check().problems == []


def test_a_restore_leaps_by_a_microsecond_for_each_that_passed_and_by_a_thousand_million_at_least(
    ws: Workspace, tmp_path: Path, clock: ManualClock
) -> None:
    ws.cells.set("run", "cell", 1)
    backup = ws.backup(tmp_path / "backup")
    leaps = []
    for number, passed in enumerate((0, 1, 999, 1000, 100_000)):
        clock.advance(passed)
        leaps.append(holdfast.restore(backup, tmp_path / f"new-{number}", clock=clock) - 1)
    assert all(leap >= least for leap, least in zip(leaps, (LEAP, LEAP, LEAP, 2 * LEAP, 102 * LEAP), strict=True))
    assert leaps == sorted(set(leaps))  # each restore lies above those before it
    clock.jump(-1_000_000)
    assert holdfast.restore(backup, tmp_path / "clock-went-back", clock=clock) >= 1 + LEAP


def test_tokens_of_a_lost_timeline_are_fenced_in_every_restore_of_the_same_backup(
    ws: Workspace, tmp_path: Path, clock: ManualClock
) -> None:
    backup = ws.backup(tmp_path / "backup")
    lost = [ws.locks.acquire("lock", "me").token]
    for number in range(2):
        clock.advance(2000)
        holdfast.restore(backup, tmp_path / f"new-{number}", clock=clock)
        with holdfast.open(tmp_path / f"new-{number}", actor="me", clock=clock) as new:
            token = new.locks.acquire("lock", "me").token
            assert token > max(lost)
            for old in lost:
                with pytest.raises(errors.Fenced):
                    new.using(fence=("lock", old)).cells.set("run", "cell", 1)
            lost.append(token)


def test_cursors_of_the_lost_timeline_are_compacted_and_new_ones_work(
    ws: Workspace, tmp_path: Path, clock: ManualClock
) -> None:
    for value in range(3):
        ws.cells.set("run", "cell", value)
    backup = ws.backup(tmp_path / "backup")
    ws.cells.set("run", "cell", "lost")
    revision = holdfast.restore(backup, tmp_path / "new", clock=clock)
    with holdfast.open(tmp_path / "new", actor="me", clock=clock) as new:
        for cursor in (4, "4-0", 5, revision - 1):
            with pytest.raises(errors.Compacted):
                list(new.watch(after=cursor, timeout=0))
            with pytest.raises(errors.Compacted):
                new.events.list(after=cursor)
        new.cells.set("run", "cell", "new")
        assert [event.data for event in new.watch(after=revision, timeout=0)] == [{"value": "new"}]
        assert new.cells.get("run", "cell").version == 4
        for cursor, left in ((0, 4), (1, 3), ("2-0", 2), (3, 1)):  # from before the backup: they are of this history
            assert len([*new.watch(after=cursor, timeout=0)]) == len(new.events.list(after=cursor)) == left, cursor


@pytest.mark.parametrize("damage", ["flip", "cut"])
def test_a_damaged_backup_is_named_whatever_finds_it(ws: Workspace, tmp_path: Path, damage: str) -> None:
    for number in range(50):
        ws.cells.set("run", f"cell-{number}", "x" * 500)
    backup = ws.backup(tmp_path / "backup")
    data = bytearray(backup.read_bytes())
    data[len(data) // 2] ^= 1
    backup.write_bytes(data if damage == "flip" else data[:20_000])
    for verify, why in ((True, "SHA-256 is not the one in backup.sha256"), (False, "checksum|malformed")):
        with pytest.raises(errors.Corrupt, match=f"{backup} is damaged: .*({why})") as caught:
            holdfast.restore(backup, tmp_path / "new", verify=verify)
        assert "the store" not in caught.value.message.lower()
        assert "restore another backup" in caught.value.hint
    assert not (tmp_path / "new").exists()


def test_the_log_of_a_restored_workspace_has_what_was_before(ws: Workspace, tmp_path: Path, clock: ManualClock) -> None:
    """Nothing was compacted, and nothing says so: the log, its pages, a summary of a time, a timeline, undo."""
    for value in range(6):
        ws.cells.set("run", "cell", value)
        ws.tasks.create(f"task {value}")
    before = ws.events.list()
    holdfast.restore(ws.backup(tmp_path / "first"), tmp_path / "restored", clock=clock)
    with holdfast.open(tmp_path / "restored", actor="me", clock=clock) as new:
        new.cells.set("run", "other", "restored")
        before.append(new.events.list(kinds=["cell"], id=("run", "other"))[0])
        holdfast.restore(new.backup(tmp_path / "second"), tmp_path / "again", clock=clock)
    with holdfast.open(tmp_path / "again", actor="me", clock=clock) as new:
        assert new.events.list() == before
        assert new.events.list().compacted is None
        found: list[Event] = []
        page = new.events.list(limit=5)
        while page.cursor:
            found += page
            page = new.events.list(limit=5, after=page.cursor)
        assert [*found, *page] == before
        assert new.activity()
        assert new.cells.history("run", "cell").compacted is None
        assert new.tasks.history(new.tasks.list()[0].id).compacted is None
        with pytest.raises(errors.Compacted, match="of a time that was left out"):
            new.events.list(after=before[-1].revision - 5)
        new.cells.set("run", "new", 1)
        assert new.events.list()[-1].id == "new"
        assert new.check().ok


def test_a_restored_log_is_compacted_where_it_is_said(ws: Workspace, tmp_path: Path, clock: ManualClock) -> None:
    for value in range(6):
        ws.cells.set("run", "cell", value)
    holdfast.restore(ws.backup(tmp_path / "backup"), tmp_path / "new", clock=clock)
    with holdfast.open(tmp_path / "new", actor="me", clock=clock) as new:
        leap = new.revision
        assert new.events.compact(5) == 3
        assert new.events.list().compacted == 4
        assert [event.revision for event in new.events.list()] == [5, 6, leap + 1]
        with pytest.raises(errors.Compacted, match="up to revision 4"):
            new.events.list(after=3)
        assert new.events.compact(leap) == 2  # in between is nothing to go on from
        assert new.events.list().compacted == 6
        for cursor in (7, leap - 1):
            with pytest.raises(errors.Compacted):
                new.events.list(after=cursor)
        assert len(new.events.list(after=6)) == 2
        assert new.check().ok


def test_a_backup_taken_while_others_write_is_consistent(ws: Workspace, tmp_path: Path, clock: ManualClock) -> None:
    stop = threading.Event()

    def body(tx: Transaction) -> None:
        for name in "ab":  # always equal, in every state that there ever was
            tx.cells.increment("run", name)

    def write() -> int:
        count = 0
        while not stop.is_set():
            ws.transact(body)
            count += 1
        return count

    ws.transact(body)
    writers = [start(write) for _ in range(2)]
    watch = ws.watch(id=("run", "a"))
    backups = []
    for number in range(5):
        next(watch)
        backups.append(ws.backup(tmp_path / f"backup-{number}"))
    stop.set()
    assert all(writer.result(LONG) > 0 for writer in writers)
    seen = []
    for number, backup in enumerate(backups):
        holdfast.restore(backup, tmp_path / f"new-{number}", clock=clock)
        with holdfast.open(tmp_path / f"new-{number}", actor="me", clock=clock) as new:
            seen.append(new.cells.get("run", "a").value)
            assert new.cells.get("run", "b").value == seen[-1]
            assert new.check().problems == []
    assert seen == sorted(seen)
    assert seen[-1] > seen[0]


def test_what_was_due_at_the_backup_expires_after_the_restore(
    ws: Workspace, tmp_path: Path, clock: ManualClock
) -> None:
    ws.cells.set("run", "cell", 1, ttl=10)
    backup = ws.backup(tmp_path / "backup")
    clock.advance(10)
    holdfast.restore(backup, tmp_path / "new", clock=clock)
    with holdfast.open(tmp_path / "new", actor="me", clock=clock) as new:
        assert new.cells.find("run", "cell") is None
        assert new.cells.list("run") == []


# --- nothing is overwritten ------------------------------------------------------------------------------------------


def test_a_backup_never_overwrites(ws: Workspace, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("precious")
    with pytest.raises(errors.Exists):
        ws.backup(taken)
    assert taken.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store", "taken"]


def test_of_several_backups_to_one_name_one_wins_and_it_is_whole(
    ws: Workspace, tmp_path: Path, clock: ManualClock
) -> None:
    for number in range(50):
        ws.cells.set("run", f"cell-{number}", "x" * 10_000)

    def attempt() -> bool:
        try:
            ws.backup(tmp_path / "backup")
            return True
        except errors.Exists:
            return False

    for turn in range(10):
        assert together(*[attempt] * 4).count(True) == 1
        holdfast.restore(tmp_path / "backup", tmp_path / f"new-{turn}", clock=clock)
        assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []
        assert len((tmp_path / "backup.sha256").read_text().splitlines()) == 1
        (tmp_path / "backup").unlink()  # its sum stays, for the next to replace


def test_a_restore_never_overwrites_a_workspace(ws: Workspace, tmp_path: Path, clock: ManualClock) -> None:
    ws.cells.set("run", "cell", 1)
    backup = ws.backup(tmp_path / "backup")
    ws.cells.set("run", "cell", 2)
    with pytest.raises(errors.Exists):
        holdfast.restore(backup, tmp_path / "store", clock=clock)
    assert ws.cells.get("run", "cell").value == 2


def test_a_backup_into_a_folder_that_is_not_there_fails_and_leaves_nothing(ws: Workspace, tmp_path: Path) -> None:
    with pytest.raises(errors.HoldfastError):
        ws.backup(tmp_path / "missing" / "backup")
    assert not (tmp_path / "missing").exists()
    assert ws.cells.set("run", "cell", 1) == 1


def test_a_backup_is_taken_on_an_event_loop_too(ws: Workspace, tmp_path: Path, clock: ManualClock) -> None:
    async def main() -> Path:
        await ws.aio.cells.set("run", "cell", 1)
        return await ws.aio.backup(tmp_path / "backup")

    assert holdfast.restore(finish(main()), tmp_path / "new", clock=clock) >= 1 + LEAP


# --- only backups are restored ---------------------------------------------------------------------------------------


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFound):
        holdfast.restore(tmp_path / "missing", tmp_path / "new")
    with pytest.raises(errors.NotFound):
        holdfast.restore(tmp_path, tmp_path / "new")


def test_a_file_that_is_no_backup_is_refused_and_makes_no_workspace(ws: Workspace, tmp_path: Path) -> None:
    ws.cells.set("run", "cell", 1)
    ws.close()
    foreign = apsw.Connection(str(tmp_path / "foreign"))
    foreign.execute("CREATE TABLE x (y)")
    foreign.close()
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_text("hello" * 1000)
    for name in ("foreign", "empty", "text", f"store/{FILE}"):
        with pytest.raises((errors.Invalid, errors.Corrupt)):
            holdfast.restore(tmp_path / name, tmp_path / "new")
        assert not (tmp_path / "new" / FILE).exists()
        assert list((tmp_path / "new").glob("*")) == []


def test_a_backup_with_another_byte_than_was_written_is_not_restored(ws: Workspace, tmp_path: Path) -> None:
    ws.tasks.create("task", body="agreed")
    backup = ws.backup(tmp_path / "backup")
    backup.write_bytes(backup.read_bytes().replace(b"agreed", b"argued"))
    with pytest.raises(errors.Corrupt, match="damaged"):
        holdfast.restore(backup, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_backup_without_its_sum_needs_a_word(ws: Workspace, tmp_path: Path, clock: ManualClock) -> None:
    ws.cells.set("run", "cell", 1)
    backup = ws.backup(tmp_path / "backup")
    (tmp_path / "backup.sha256").unlink()
    with pytest.raises(errors.Invalid, match=r"verify=False"):
        holdfast.restore(backup, tmp_path / "new", clock=clock)
    assert not (tmp_path / "new").exists()
    assert holdfast.restore(backup, tmp_path / "new", clock=clock, verify=False) >= 1 + LEAP


def test_a_workspace_is_not_restored_beside_the_log_of_another(ws: Workspace, tmp_path: Path) -> None:
    ws.cells.set("run", "cell", 1)
    backup = ws.backup(tmp_path / "backup")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / f"{FILE}-wal").write_bytes(b"commits of another")
    with pytest.raises(errors.Exists, match="of another workspace"):
        holdfast.restore(backup, tmp_path / "new")


def test_a_damaged_backup_is_corrupt_and_makes_no_workspace(ws: Workspace, tmp_path: Path) -> None:
    for number in range(50):
        ws.cells.set("run", f"cell-{number}", "x" * 1000)
    backup = ws.backup(tmp_path / "backup")
    data = bytearray(backup.read_bytes())
    for at in range(4096 * 3, len(data) - 4096, 4096):
        data[at : at + 200] = b"\xff" * 200
    backup.write_bytes(data)
    with pytest.raises(errors.Corrupt):
        holdfast.restore(backup, tmp_path / "new")
    assert not (tmp_path / "new" / FILE).exists()


def test_a_backup_is_one_file_that_is_not_changed_by_restoring_it(
    ws: Workspace, tmp_path: Path, clock: ManualClock
) -> None:
    ws.cells.set("run", "cell", 1)
    backup = ws.backup(tmp_path / "backup")
    before = backup.read_bytes()
    holdfast.restore(backup, tmp_path / "new", clock=clock)
    assert backup.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "backup.sha256", "new", "store"]


@pytest.mark.parametrize(
    "spoilt", [b"", b"\n", b"nonsense", b"\xff\xfe", b"0" * 63, b"0" * 65, b"g" * 64, b"x" * 10**6]
)
def test_a_sum_that_is_none_says_so_and_what_to_do(tmp_path: Path, spoilt: bytes) -> None:
    backup = made_backup(tmp_path)
    sum_of(backup).write_bytes(spoilt)
    with pytest.raises(errors.Corrupt, match="does not begin with a SHA-256") as caught:
        holdfast.restore(backup, tmp_path / "new")
    assert "copy it again" in caught.value.hint
    assert not (tmp_path / "new").exists()


def test_a_sum_in_upper_case_is_the_same(tmp_path: Path) -> None:
    backup = made_backup(tmp_path)
    digest, name = sum_of(backup).read_text().split()
    sum_of(backup).write_text(f"{digest.upper()} *{name}\r\n")
    assert holdfast.restore(backup, tmp_path / "new") > 0


@pytest.mark.parametrize("there", ["nothing", "the parent", "the folder", "a file in it"])
def test_a_restore_that_fails_leaves_no_folder_behind(tmp_path: Path, there: str) -> None:
    backup = made_backup(tmp_path)
    data = bytearray(backup.read_bytes())
    data[-100] ^= 1  # on its last page, which only the copy reads
    backup.write_bytes(data)
    folder = tmp_path / "parent" / "new"
    if there != "nothing":
        (folder if there != "the parent" else folder.parent).mkdir(parents=True)
    if there == "a file in it":
        (folder / "notes").write_text("mine")
    before = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))
    with pytest.raises(errors.Corrupt):
        holdfast.restore(backup, folder, verify=False)
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")) == before


def made_backup(folder: Path) -> Path:
    with holdfast.open(folder / "store", actor="me") as ws:
        for number in range(20):
            ws.cells.set("run", f"cell-{number}", "x" * 3000)
        return ws.backup(folder / "backup")
