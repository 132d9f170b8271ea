"""Who joins a store without the turn is present for an instant: nobody takes that for a store that was split."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import errors
from holdfast.kernel.process_lock import OPEN, Presence


class Passing:
    """A process that found the recorded files, joined, and has not looked at the files again yet."""

    def __init__(self, folder: Path) -> None:
        self._descriptor = os.open(folder / OPEN, os.O_RDWR)
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def leave(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with holdfast.open(tmp_path / "store", actor="ann") as workspace:
        workspace.cells.set("run", "cell", 1)
    assert not (tmp_path / "store" / "holdfast.db-wal").exists(), "gone with the last connection"
    return tmp_path / "store"


def test_who_is_present_for_an_instant_before_the_store_is_opened_splits_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passing = Passing(folder)
    look = Presence.recorded

    def recorded(self: Presence) -> Any:
        found = look(self)
        passing.leave()
        return found

    monkeypatch.setattr(Presence, "recorded", recorded)
    with holdfast.open(folder, actor="bob") as workspace:
        assert workspace.cells.get("run", "cell").value == 1


def test_who_is_present_for_an_instant_while_the_store_is_opened_splits_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    join = Presence.join_in_turn
    tried: list[bool] = []

    def join_in_turn(self: Presence, files: str, marked: bool) -> bool:
        passing = None if tried else Passing(folder)
        tried.append(join(self, files, marked))
        if passing is not None:
            passing.leave()
        return tried[-1]

    monkeypatch.setattr(Presence, "join_in_turn", join_in_turn)
    with holdfast.open(folder, actor="bob") as workspace:
        assert workspace.cells.get("run", "cell").value == 1
    assert tried == [False, True]


def test_who_stays_present_on_other_files_splits_the_store(folder: Path) -> None:
    passing = Passing(folder)
    try:
        with pytest.raises(errors.Unavailable, match="has removed"):
            holdfast.open(folder, actor="bob").close()
    finally:
        passing.leave()
    with holdfast.open(folder, actor="bob") as workspace:
        assert workspace.cells.get("run", "cell").value == 1
