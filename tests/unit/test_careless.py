"""What careless use meets: a clear error at once, and nobody's files or data harmed."""

from __future__ import annotations

import asyncio
import copy
import os
import pickle
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import FileGate, VersionEquals, Workspace, errors
from holdfast.filesystem import check_place
from holdfast.testing import ManualClock


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Workspace]:
    with holdfast.open(tmp_path / "store", actor="agent") as workspace:
        yield workspace


def test_a_workspace_whose_folder_was_removed_acknowledges_nothing_more(ws: Workspace, tmp_path: Path) -> None:
    token = ws.locks.acquire("deploy").token
    shutil.rmtree(tmp_path / "store")
    with pytest.raises(errors.Closed, match="removed or replaced"):
        ws.using(fence=("deploy", token)).cells.set("run", "cell", 1)
    with pytest.raises(errors.Closed):
        ws.cells.find("run", "cell")


def test_a_workspace_whose_folder_was_replaced_does_not_mix_the_two(ws: Workspace, tmp_path: Path) -> None:
    ws.cells.set("run", "cell", "old")
    shutil.rmtree(tmp_path / "store")
    with holdfast.open(tmp_path / "store", actor="other") as other:
        with pytest.raises(errors.Closed, match="removed or replaced"):
            ws.cells.set("run", "cell", "lost")
        assert other.cells.find("run", "cell") is None
        assert other.cells.set("run", "cell", "new") == 1


def test_who_watches_a_workspace_whose_folder_was_removed_is_told(ws: Workspace, tmp_path: Path) -> None:
    with ws.watch(timeout=60) as watch:
        shutil.rmtree(tmp_path / "store")
        with pytest.raises(errors.Closed, match="removed or replaced"):
            next(watch)


def test_a_folder_with_files_of_others_gets_no_ignore_file(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("x = 1\n")
    holdfast.open(tmp_path, actor="agent").close()
    assert not (tmp_path / ".gitignore").exists()
    holdfast.open(tmp_path / "own", actor="agent").close()
    assert (tmp_path / "own" / ".gitignore").read_text() == "*\n"


def test_the_store_is_private_also_in_a_folder_that_is_not(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with holdfast.open(tmp_path, actor="agent") as ws:
        ws.cells.set("run", "cell", 1)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    modes.pop(".gitignore")
    assert len(modes) >= 5
    assert set(modes.values()) == {0o600}


@pytest.mark.parametrize("actor", [5, b"a", ["x"], {"x": 1}, "", "a\tb", "system"])
def test_an_actor_is_a_name_and_not_that_of_the_workspace(ws: Workspace, actor: Any, tmp_path: Path) -> None:
    with pytest.raises(errors.Invalid):
        ws.using(actor=actor)
    with pytest.raises(errors.Invalid):
        holdfast.open(tmp_path / "other", actor=actor)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_a_path_that_cannot_be_one_is_refused(path: str) -> None:
    with pytest.raises(errors.Invalid):
        holdfast.open(path, actor="agent")


def test_a_second_handle_inside_a_transaction_of_the_first_is_reentrant_at_once(ws: Workspace, tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "store", actor="agent") as other:

        def body(tx: Any) -> None:
            with pytest.raises(errors.Reentrant):
                other.cells.set("run", "cell", 1)

        ws.transact(body)
        assert other.cells.set("run", "cell", 1) == 1


def test_a_generator_as_body_is_refused_instead_of_never_running(ws: Workspace) -> None:
    def body(tx: Any) -> Iterator[None]:
        tx.cells.set("run", "cell", 1)
        yield

    with pytest.raises(errors.Invalid, match="generator"):
        ws.transact(body)


def test_a_version_to_compare_with_is_an_int(ws: Workspace) -> None:
    ws.cells.set("run", "cell", 1)
    for version in ("1", True, 1.0):
        with pytest.raises(errors.InvalidFilter):
            ws.txn([VersionEquals("cell", ("run", "cell"), version)], [])  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["\ud800", None, 5])
def test_a_filter_that_no_event_can_match_is_refused(ws: Workspace, text: Any) -> None:
    with pytest.raises(errors.InvalidFilter):
        ws.events.list(kinds=[text])
    if text is not None:
        with pytest.raises(errors.InvalidFilter):
            ws.watch(id=text)


@pytest.mark.parametrize("way", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_workspace_that_is_pickled_or_copied_says_what_to_do(ws: Workspace, way: Callable[[object], object]) -> None:
    with pytest.raises(errors.Unsupported, match=r"holdfast\.open"):
        way(ws)


def test_the_awaitable_twin_wants_a_running_loop(ws: Workspace) -> None:
    with pytest.raises(errors.Invalid, match="event loop"):
        _ = ws.aio

    async def inside() -> int:
        return await ws.aio.cells.set("run", "cell", 1)

    assert asyncio.run(inside()) == 1


def test_what_is_no_clock_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.Invalid):
        holdfast.open(tmp_path, actor="agent", clock=5)  # type: ignore[arg-type]
    holdfast.open(tmp_path, actor="agent", clock=ManualClock()).close()


def test_a_gate_entered_twice_by_one_thread_is_reentrant_and_a_token_is_an_int64(tmp_path: Path) -> None:
    gate = FileGate(tmp_path / "gate")
    with gate.admit(100), pytest.raises(errors.Reentrant), FileGate(tmp_path / "gate").admit(100):
        pass
    for token in (2**63, 2**200, -1, True):
        with pytest.raises(errors.Invalid), gate.admit(token):
            pass
    with gate.admit(101):
        assert gate.highest == 101


def test_a_place_is_judged_before_anything_is_made(tmp_path: Path) -> None:
    check_place(os.fspath(tmp_path / "not yet"))
    assert not (tmp_path / "not yet").exists()
