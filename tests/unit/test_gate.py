"""`FileGate`: the highest token let in is remembered durably, and lower ones are refused."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast import FileGate, errors
from holdfast.testing import ManualClock
from holdfast.workspace import open_workspace


def admit(gate: FileGate, token: Any) -> bool:
    with gate.admit(token):
        return True


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gate"


def test_c15_the_gate_admits_equal_and_higher_tokens_and_refuses_lower_ones(path: Path) -> None:
    gate = FileGate(path)
    assert gate.highest == 0
    for token in (5, 5, 6, 4096, 4096):
        assert admit(gate, token)
        assert gate.highest == token
    for token in (0, 5, 4095):
        with pytest.raises(errors.Fenced) as refused:
            admit(gate, token)
        assert refused.value.current == 4096
    assert gate.highest == 4096


def test_c15_the_gate_remembers_over_objects_and_processes(path: Path) -> None:
    assert admit(FileGate(path), 7)
    code = "import sys, holdfast\nwith holdfast.FileGate(sys.argv[1]).admit(int(sys.argv[2])): print('in')"
    higher = subprocess.run([sys.executable, "-c", code, str(path), "8"], capture_output=True, text=True, check=True)
    assert higher.stdout == "in\n"
    with pytest.raises(errors.Fenced):
        admit(FileGate(path), 7)
    lower = subprocess.run([sys.executable, "-c", code, str(path), "7"], capture_output=True, text=True, check=False)
    assert lower.stdout == ""
    assert "Fenced" in lower.stderr


def test_c15_the_token_of_a_process_killed_inside_counts(path: Path) -> None:
    code = (
        "import sys, holdfast\nwith holdfast.FileGate(sys.argv[1]).admit(9): print('in', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        process.kill()
    with pytest.raises(errors.Fenced):
        admit(FileGate(path), 8)
    assert admit(FileGate(path), 9), "its lock died with it"


def test_c15_one_caller_at_a_time_is_inside_over_processes(path: Path, tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    code = (
        "import sys, holdfast\n"
        "gate, diary = holdfast.FileGate(sys.argv[1]), open(sys.argv[2], 'a', buffering=1)\n"
        "for _ in range(50):\n"
        "    with gate.admit(5): diary.write('in\\n'); diary.write('out\\n')\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code, str(path), str(diary)]) for _ in range(3)]
    assert [process.wait(300) for process in processes] == [0, 0, 0]
    assert diary.read_text() == "in\nout\n" * 150


def test_c15_of_threads_that_come_in_any_order_the_highest_token_wins(path: Path) -> None:
    start = threading.Barrier(8)
    admitted: list[int] = []
    refusals: list[tuple[int, int]] = []

    def enter(token: int) -> None:
        start.wait()
        try:
            with FileGate(path).admit(token):
                admitted.append(token)
        except errors.Fenced as refused:
            refusals.append((token, refused.current))

    threads = [threading.Thread(target=enter, args=(token,)) for token in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert admitted == sorted(admitted)
    assert len(admitted) + len(refusals) == 8
    assert all(token < current for token, current in refusals)
    assert FileGate(path).highest == 8 == admitted[-1]


def test_c15_what_raises_inside_the_gate_propagates_and_its_token_counts(path: Path) -> None:
    gate = FileGate(path)
    with pytest.raises(LookupError), gate.admit(5):
        raise LookupError
    assert gate.highest == 5
    assert admit(gate, 5)


def test_c15_tokens_of_a_workspace_go_through_the_gate_in_their_order(path: Path) -> None:
    clock = ManualClock()
    gate = FileGate(path)
    with open_workspace(":memory:", actor="a", clock=clock) as ws:
        first = ws.locks.acquire("deploy", ttl=10)
        assert admit(gate, first.token)
        clock.advance(10)
        second = ws.locks.acquire("deploy", "b", ttl=10)
        assert admit(gate, second.token)
        with pytest.raises(errors.Fenced) as refused:
            admit(gate, first.token)
        assert refused.value.current == second.token


@pytest.mark.parametrize("token", [-1, "5", 5.0, None, True])
def test_c15_what_is_no_token_is_invalid(path: Path, token: Any) -> None:
    with pytest.raises(errors.Invalid):
        admit(FileGate(path), token)
    assert FileGate(path).highest == 0


def test_c15_the_largest_token_there_can_be_fits(path: Path) -> None:
    assert admit(FileGate(path), 2**63 - 1)
    assert FileGate(path).highest == 2**63 - 1
    with pytest.raises(errors.Fenced):
        admit(FileGate(path), 2**63 - 2)


# --- crashes ---------------------------------------------------------------------------------------------------------


def _states(path: Path, tokens: list[int]) -> list[bytes]:
    """The file after each token."""
    states = []
    for token in tokens:
        admit(FileGate(path), token)
        states.append(path.read_bytes())
    return states


@pytest.mark.parametrize(
    "tokens",
    [[5, 6], [5, 6, 7], [7, 8, 9, 10], [4096, 8191, 8192, 12288], [99, 100, 199, 200], [1, 10**9 * 4096, 10**15]],
)
def test_c15_a_write_torn_at_any_byte_leaves_the_old_or_the_new_token_and_nothing_else(
    path: Path, tokens: list[int]
) -> None:
    before, after = _states(path, tokens)[-2:]
    before = before.ljust(len(after), b"\0") if len(before) < len(after) else before
    for cut in range(len(after) + 1):
        path.write_bytes(after[:cut] + before[cut:])
        assert FileGate(path).highest in tokens[-2:], cut
        assert admit(FileGate(path), tokens[-1])
        with pytest.raises(errors.Fenced):
            admit(FileGate(path), tokens[-2])


def test_c15_a_write_torn_at_any_byte_is_never_taken_for_a_third_token(path: Path) -> None:
    wrong = []
    for step in range(1, 400):
        path.unlink(missing_ok=True)
        tokens = [4096 * 7, 4096 * 8, 4096 * 8 + step * 4096]  # the third overwrites the first
        before, after = _states(path, tokens)[-2:]
        for cut in range(len(after) + 1):
            path.write_bytes(after[:cut] + before[cut:])
            if FileGate(path).highest not in tokens[1:]:
                wrong.append((tokens, cut, FileGate(path).highest))
    assert wrong == []


def test_c15_the_very_first_write_torn_by_a_crash_let_nobody_in_and_bars_nobody(path: Path) -> None:
    (whole,) = _states(path, [5])
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        assert admit(FileGate(path), 3), cut
        assert FileGate(path).highest == 3


def test_c15_a_damaged_file_is_corrupt_and_admits_nobody(path: Path) -> None:
    _states(path, [5, 6])
    path.write_bytes(b"x" * len(path.read_bytes()))
    with pytest.raises(errors.Corrupt):
        admit(FileGate(path), 7)
    with pytest.raises(errors.Corrupt):
        _ = FileGate(path).highest


def test_c15_the_token_is_on_disk_before_its_holder_is_let_in(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def spy(descriptor: int) -> None:
        fsync(descriptor)
        synced.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")

    monkeypatch.setattr(os, "fsync", spy)
    with FileGate(path).admit(5):
        assert "file" in synced
        assert "folder" in synced, "else a new file may be forgotten together with its token"
    synced.clear()
    with FileGate(path).admit(6):
        assert "file" in synced


# --- the file --------------------------------------------------------------------------------------------------------


def test_c15_a_symbolic_link_is_refused_and_its_target_left_alone(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("precious")
    path.symlink_to(target)
    with pytest.raises((OSError, errors.HoldfastError)):
        admit(FileGate(path), 5)
    assert target.read_text() == "precious"
    target.unlink()
    with pytest.raises((OSError, errors.HoldfastError)):
        admit(FileGate(path), 5)
    assert not target.exists()


def test_c15_the_gates_file_is_private(path: Path) -> None:
    assert admit(FileGate(path), 5)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_gate_in_a_folder_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFound, match=r"there is no folder .*nowhere") as refused:
        admit(FileGate(tmp_path / "nowhere" / "gate"), 1)
    assert refused.value.hint == "create it first"
