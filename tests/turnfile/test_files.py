"""F2, F3: no path leaves the folder, no symlink is followed, a file is replaced whole and keeps its permissions."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from holdfast.errors import Busy, Invalid, NotFound, TooLarge
from holdfast.turnfile import files
from holdfast.turnfile import files as journal
from holdfast.turnfile.files import Folder

OUTSIDE = ["../x", "a/../../x", "/etc/passwd", "", ".", "..", "a//b", "a/./b", "a/"]


def replace(folder: Folder, path: str, text: str) -> None:
    """Replace one file."""
    with folder.write_lock():
        journal.replace(folder, {path: text}, {path: folder.read(path)})


@pytest.mark.parametrize("strict", [True, False])
def test_f2_a_file_that_was_read_before_is_read_as_it_is_now(tmp_path: Path, strict: bool) -> None:
    folder, file = Folder(str(tmp_path)), tmp_path / "f"
    long = "é" * 100_000
    for text in ("one", "two", "two and more", "two", "", long, long[:-1] + "e", long, f"{long}x", long[1:]):
        file.write_text(text)
        os.utime(file, (0, 0))  # whatever its times say
        for _ in range(2):
            assert folder.read("f", strict=strict) == text
    file.write_bytes(long[1:].encode() + b"\xff")
    with pytest.raises(Invalid, match="UTF-8"):
        folder.read("f")
    assert folder.read("f", strict=False) == f"{long[1:]}\ufffd"
    file.unlink()
    assert folder.read("f", strict=strict) is None


@pytest.mark.parametrize("path", OUTSIDE)
def test_f3_a_path_that_leaves_the_folder_is_refused(tmp_path: Path, path: str) -> None:
    folder = Folder(str(tmp_path))
    with pytest.raises(Invalid):
        folder.read(path)
    with pytest.raises(Invalid):
        folder.temp(path, "x")
    assert list(tmp_path.iterdir()) == []


def test_f2_text_is_kept_byte_for_byte(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    text = "\ufeffa\r\nb\rc\n\u2028é\U0001f600"
    replace(folder, "f", text)
    assert (tmp_path / "f").read_bytes() == text.encode()
    assert folder.read("f") == text
    assert folder.read("none") is None
    assert folder.read("none/none") is None


def test_f2_a_symlink_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("old")
    inside = tmp_path / "folder"
    inside.mkdir()
    (inside / "link").symlink_to(target)
    (inside / "sub").symlink_to(tmp_path)
    folder = Folder(str(inside))
    for path in ("link", "sub/target"):
        with pytest.raises(Invalid):
            folder.read(path)
        with pytest.raises(Invalid):
            replace_blindly(folder, path)
    assert target.read_text() == "old"
    assert (inside / "link").is_symlink()
    assert sorted(path.name for path in inside.iterdir()) == [".TURNFILE.lock", "link", "sub"]


def replace_blindly(folder: Folder, path: str) -> None:
    """Replace a file without reading it."""
    with folder.write_lock():
        journal.replace(folder, {path: "new"}, {path: None})


def test_f2_the_lock_file_is_no_way_out_either(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / files.LOCK_FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Invalid), Folder(str(tmp_path / "folder")).write_lock():
        pass
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_f2_what_is_no_plain_file_is_refused_without_waiting(tmp_path: Path, kind: str) -> None:
    if kind == "folder":
        (tmp_path / "x").mkdir()
    else:
        os.mkfifo(tmp_path / "x")
    folder = Folder(str(tmp_path))
    with pytest.raises(Invalid):
        folder.read("x")
    with pytest.raises(Invalid):
        replace_blindly(folder, "x")


def test_f2_a_replaced_file_keeps_its_permissions(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    os.chmod(tmp_path / "f", 0o640)
    replace(Folder(str(tmp_path)), "f", "new")
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o640
    assert (tmp_path / "f").read_text() == "new"


def test_f2_who_does_not_get_the_turn_is_told_after_a_bounded_wait(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    waits: list[float] = []
    with folder.write_lock(), pytest.raises(Busy), Folder(str(tmp_path)).write_lock(timeout=1.0, pause=waits.append):
        pass
    assert len(waits) == 200
    with Folder(str(tmp_path)).write_lock(timeout=0.0, pause=waits.append):
        assert len(waits) == 200


def test_f2_a_file_that_is_no_text_or_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "raw").write_bytes(b"\xff\xfe")
    with pytest.raises(Invalid, match="not UTF-8"):
        Folder(str(tmp_path)).read("raw")
    monkeypatch.setattr(files, "MAX_BYTES", 1)
    with pytest.raises(TooLarge):
        Folder(str(tmp_path)).read("raw")


def test_f2_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFound), Folder(str(tmp_path / "none")).write_lock():
        pass


def test_f2_what_killed_writers_left_is_swept_by_the_next(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    folder.temp("f", "of a writer that died")
    (tmp_path / ".turn-mine").write_text("of somebody else")
    replace(folder, "f", "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".TURNFILE.lock", ".turn-mine", "f"]
