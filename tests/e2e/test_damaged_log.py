"""A byte of the write-ahead log changes after a crash: no acknowledged commit is dropped in silence.

SQLite takes the first frame with a wrong checksum for the end of what was written, and forgets the commits behind it.
A process writes and is killed; copies of what it leaves are damaged in one place each, drawn by a seed. Opening one
either shows everything that was acknowledged or raises Corrupt and changes nothing; a backup of what is left can be
made on request.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast import errors
from holdfast.faces.cli import main
from holdfast.kernel.store_files import FILE, MARK, StoreFiles
from tests.amounts import amount, chance

FLIPS = amount(60, 2000)
WRITES = 60
WAL = f"{FILE}-wal"
WORKER = """
import sys, holdfast
ws = holdfast.open(sys.argv[1], actor="me")
lock = ws.locks.acquire("deploy", ttl=86400)
for number in range(int(sys.argv[2])):
    ws.cells.increment("run", "count")
    if number % 7 == 0:
        ws.cells.set("run", f"cell-{number}", "x" * 9000)  # a commit of several pages
    if number % 5 == 0:
        ws.locks.refresh("deploy", ttl=86400 + number)  # one without an event
    print(number + 1, flush=True)
sys.stdin.read()
"""


def crashed(folder: Path, writes: int) -> int:
    """Have a process write and kill it; returns how many increments it had acknowledged."""
    command = [sys.executable, "-c", WORKER, str(folder), str(writes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        acknowledged = 0
        for _ in range(writes):
            acknowledged = int(process.stdout.readline())
        process.kill()
    return acknowledged


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a killed process leaves: some of it only in the write-ahead log."""
    folder = tmp_path_factory.mktemp("crashed") / "store"
    assert crashed(folder, WRITES) == WRITES
    assert (folder / WAL).stat().st_size > 100 * 4096
    return folder


@pytest.fixture
def folder(left: Path, tmp_path: Path) -> Path:
    return shutil.copytree(left, tmp_path / "store")


def count(folder: Path) -> int:
    with holdfast.open(folder, actor="auditor") as ws:
        assert ws.check().ok
        return int(ws.cells.get("run", "count").value)


def files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in (FILE, WAL, MARK) if (folder / name).exists()}


def flip(folder: Path, draw: random.Random) -> int:
    """Change one bit of the log; returns where."""
    data = bytearray((folder / WAL).read_bytes())
    at = draw.choice((draw.randrange(32), draw.randrange(len(data)), len(data) - 1 - draw.randrange(5 * 4120)))
    data[at] ^= 1 << draw.randrange(8)
    (folder / WAL).write_bytes(data)
    return at


def test_a_log_that_is_whole_opens_with_everything(folder: Path) -> None:
    assert count(folder) == WRITES


def test_a_changed_byte_of_the_log_loses_nothing_or_is_corrupt(left: Path, tmp_path: Path) -> None:
    seed = chance("damaged logs").randrange(10**6)
    found = {"whole": 0, "corrupt": 0}
    for number in range(FLIPS):
        folder = shutil.copytree(left, tmp_path / f"{number}")
        at = flip(folder, random.Random(f"{seed} {number}"))
        before = files(folder)
        try:
            assert count(folder) == WRITES, f"seed {seed}, damage {number} at byte {at}"
            found["whole"] += 1
        except errors.Corrupt:
            found["corrupt"] += 1
            assert files(folder) == before, "a damaged store was changed"
        shutil.rmtree(folder)
    assert found["corrupt"] > FLIPS // 2, found


@pytest.mark.parametrize("size", [0, 31, 32 + 4120, 32 + 20 * 4120 + 7])
def test_a_log_that_was_cut_is_corrupt(folder: Path, size: int) -> None:
    with (folder / WAL).open("r+b") as file:
        file.truncate(size)
    with pytest.raises(errors.Corrupt, match="acknowledged"):
        count(folder)


def test_a_log_that_was_removed_after_a_crash_is_missed(folder: Path) -> None:
    for name in (WAL, f"{FILE}-shm"):
        (folder / name).unlink()
    for _ in range(2):  # the refusal is not forgotten
        with pytest.raises(errors.Corrupt, match="acknowledged"):
            count(folder)


def test_an_older_file_in_the_place_of_the_store_is_not_taken_for_it(tmp_path: Path) -> None:
    """Its tokens would be granted a second time."""
    folder = tmp_path / "store"
    with holdfast.open(folder, actor="me") as ws:
        ws.cells.increment("run", "count")
    shutil.copy(folder / FILE, tmp_path / "older")
    with holdfast.open(folder, actor="me") as ws:
        ws.cells.increment("run", "count")
    (folder / FILE).unlink()
    shutil.move(tmp_path / "older", folder / FILE)
    with pytest.raises(errors.Corrupt, match="acknowledged"):
        holdfast.open(folder, actor="me")


def test_another_store_moved_into_the_folder_is_not_measured_by_the_first(folder: Path, tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "other", actor="me") as ws:
        ws.cells.increment("run", "count")
    for name in (FILE, WAL, f"{FILE}-shm"):
        (folder / name).unlink()
    shutil.move(tmp_path / "other" / FILE, folder / FILE)
    assert count(folder) == 1


@pytest.mark.parametrize("mark", [b"", b"\0" * 1024])
def test_a_note_that_a_loss_of_power_emptied_says_nothing(folder: Path, mark: bytes) -> None:
    (folder / MARK).write_bytes(mark)
    assert count(folder) == WRITES


# --- the note itself is damaged --------------------------------------------------------------------------------------


def test_a_changed_bit_of_the_note_hides_no_loss(left: Path, tmp_path: Path) -> None:
    """It is there twice: the other one tells, whether or not the log was removed too."""
    whole = (left / MARK).read_bytes()
    for at in (0, 40, 70, 511, 512, 550, 1023):
        folder = shutil.copytree(left, tmp_path / f"{at}")
        data = bytearray(whole)
        data[at] ^= 1
        (folder / MARK).write_bytes(data)
        (folder / WAL).unlink()
        (folder / f"{FILE}-shm").unlink()
        with pytest.raises(errors.Corrupt, match="lacks commits that it acknowledged"):
            holdfast.open(folder, actor="me")
    shutil.copytree(left, tmp_path / "store")
    (tmp_path / "store" / MARK).write_bytes(data)
    assert count(tmp_path / "store") == WRITES


@pytest.mark.parametrize("mark", [b"nonsense", b"\xff" * 200, b"half"])
@pytest.mark.parametrize("gone", [[], [WAL, f"{FILE}-shm"]])
def test_a_note_that_cannot_be_read_is_corrupt(
    folder: Path, gone: list[str], mark: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / MARK).write_bytes((folder / MARK).read_bytes()[:64] if mark == b"half" else mark)
    for name in gone:
        (folder / name).unlink()
    before = {name: (folder / name).read_bytes() for name in (FILE, MARK)}
    for _ in range(2):
        with pytest.raises(errors.Corrupt, match=f"{MARK} in .* is damaged"):
            holdfast.open(folder, actor="me")
    for command in (["list"], ["doctor"], ["create", "x"], ["init"]):
        assert main(["--dir", str(folder), *command]) == (1 if command == ["doctor"] else errors.Corrupt.exit_code)
        assert f"{MARK} in {folder} is damaged" in "".join(capsys.readouterr())
    assert {name: (folder / name).read_bytes() for name in (FILE, MARK)} == before


def test_a_note_damaged_while_somebody_has_the_store_open_is_written_again(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with holdfast.open(folder, actor="me") as ws:
        ws.cells.increment("run", "count")
        (folder / MARK).write_bytes(b"nonsense")
        assert count(folder) == 1
        ws.cells.increment("run", "count")
    assert count(folder) == 2


# --- the note itself is removed --------------------------------------------------------------------------------------


@pytest.fixture
def killed(on_disk: Path) -> Path:
    """What a killed process leaves, where it was: a copy would be other files."""
    crashed(on_disk / "store", 5)
    return on_disk / "store"


@pytest.mark.parametrize("gone", [[WAL, MARK], [WAL, f"{FILE}-shm", MARK], [MARK]])
def test_a_note_that_was_removed_after_a_crash_is_missed(
    killed: Path, gone: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the log it takes every commit since the last checkpoint, and nothing else would tell."""
    for name in gone:
        (killed / name).unlink()
    for _ in range(2):  # the refusal is not forgotten
        with pytest.raises(errors.Corrupt, match=f"{MARK} in .* was removed.*commits are lost"):
            holdfast.open(killed, actor="me")
    for command in (["list"], ["doctor"], ["create", "x"], ["init"], ["upgrade"]):
        assert main(["--dir", str(killed), *command]) == (1 if command == ["doctor"] else errors.Corrupt.exit_code)
        told = "".join(capsys.readouterr())
        assert f"{MARK} in {killed} was removed" in told
        assert "holdfast backup --damaged FILE" in told
    assert not (killed / MARK).exists()
    if gone != [MARK]:  # not even the commit that made the store is left
        with pytest.raises(errors.Corrupt, match="nothing is left to save"):
            holdfast.salvage(killed, tmp_path / "saved")
    else:
        holdfast.salvage(killed, tmp_path / "saved")
        holdfast.restore(tmp_path / "saved", tmp_path / "restored")
        assert count(tmp_path / "restored") == 5
    with pytest.raises(errors.Corrupt, match="was removed"):  # nor by saving what is left
        holdfast.open(killed, actor="me")


def test_stores_that_come_without_a_note_are_not_refused(killed: Path, tmp_path: Path) -> None:
    """A fresh one, a restored one, one that was copied or moved without it, one put in the place of another."""
    fresh = tmp_path / "fresh"
    with holdfast.open(fresh, actor="me") as ws:
        ws.cells.set("run", "count", 5)
        ws.backup(tmp_path / "backup")
    for name in (FILE, MARK):  # started anew by hand: only the locks are left
        (fresh / name).unlink()
    holdfast.restore(tmp_path / "backup", fresh)
    assert (fresh / MARK).exists()
    assert count(fresh) == 5
    moved, copied = tmp_path / "moved", tmp_path / "copied"
    shutil.copytree(fresh, copied)
    (copied / MARK).unlink()
    assert count(copied) == 5
    moved.mkdir()
    (fresh / FILE).rename(moved / FILE)
    assert count(moved) == 5
    shutil.copy(moved / FILE, killed / "another")
    for name in (FILE, WAL, f"{FILE}-shm", MARK):
        (killed / name).unlink()
    (killed / "another").rename(killed / FILE)
    assert count(killed) == 5


def test_a_note_removed_while_somebody_has_the_store_open_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with holdfast.open(folder, actor="me") as ws, holdfast.open(folder, actor="me") as other:
        ws.cells.increment("run", "count")
        other.cells.increment("run", "count")
        (folder / MARK).unlink()
        assert count(folder) == 2  # a third one may open it: these two saw it whole
        for each in (ws, other):
            each.cells.increment("run", "count")
            noted = StoreFiles(str(folder)).marked()
            assert noted is not None
            assert noted.revision == ws.revision
    assert count(folder) == 4


def test_nothing_left_to_save_is_said_of_a_store_whose_first_log_is_gone(
    killed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not that an older program made it."""
    for name in (WAL, f"{FILE}-shm"):
        (killed / name).unlink()
    for empty in (False, True):
        if empty:
            (killed / FILE).write_bytes(b"")
        with pytest.raises(errors.Corrupt, match="lacks commits"):
            holdfast.open(killed, actor="me")
        with pytest.raises(errors.Corrupt, match=r"is empty: all commits were in .*, so nothing is left to save"):
            holdfast.salvage(killed, tmp_path / "saved")
        assert main(["--dir", str(killed), "backup", "--damaged", str(tmp_path / "saved")]) == errors.Corrupt.exit_code
        assert main(["--dir", str(killed), "doctor"]) == 1
        told = "".join(capsys.readouterr())
        assert "nothing is left to save" in told
        assert "upgrade" not in told
    assert not (tmp_path / "saved").exists()


def test_what_is_left_can_be_saved_and_no_token_is_granted_again(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = bytearray((folder / WAL).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / WAL).write_bytes(data)
    before = files(folder)
    assert main(["--dir", str(folder), "list"]) == errors.Corrupt.exit_code
    assert "holdfast backup --damaged FILE" in capsys.readouterr().err
    holdfast.salvage(folder, tmp_path / "saved")
    assert main(["--dir", str(folder), "backup", "--damaged", str(tmp_path / "again")]) == 0
    assert files(folder) == before
    for number, backup in enumerate(("saved", "again")):
        holdfast.restore(tmp_path / backup, tmp_path / f"restored-{number}")
        with holdfast.open(tmp_path / f"restored-{number}", actor="me") as ws:
            assert 0 < ws.cells.get("run", "count").value < WRITES
            assert ws.locks.acquire("other", ttl=60).token > 10**9 * 4096
            assert ws.check().ok
