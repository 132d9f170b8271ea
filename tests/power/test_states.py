"""The model of a failing disk: what was synced is there, the rest in any part, and names are apart from bytes."""

from __future__ import annotations

from pathlib import Path

from tests.power.disk import FOLDER, Entry, Mark, Operation, Sync, SyncFolder, Tape, Truncate, Write
from tests.power.states import SECTOR, Files, crashes

A, B = b"a" * SECTOR, b"b" * SECTOR
DRAWS = 40


def states(folder: Path, operations: list[Operation], start: Files | None = None) -> list[Files]:
    """The states after the last operation."""
    for path, content in (start or {}).items():
        (folder / path).write_bytes(content)
    tape = Tape(folder)
    tape.operations += operations
    last = f"after operation {len(operations) - 1},"
    return [crash.files for draw in range(DRAWS) for crash in crashes(tape, "test", 1, draw) if last in crash.name]


def test_what_was_synced_is_there_and_what_was_not_may_be(tmp_path: Path) -> None:
    found = states(tmp_path, [Write(1, 0, A), Sync(1, 1), Write(1, SECTOR, B)], {"file": b""})
    assert {state["file"] for state in found} == {A, A + B, A + bytes(SECTOR)}


def test_unsynced_writes_are_there_in_any_combination_and_leave_holes(tmp_path: Path) -> None:
    found = states(tmp_path, [Write(1, 0, A), Write(1, SECTOR, B), Truncate(1, SECTOR)], {"file": b""})
    hole = bytes(SECTOR)
    assert {b"", A, A + B, hole, hole + B, A + hole} <= {state["file"] for state in found}


def test_a_sync_covers_only_what_was_written_before_it_began(tmp_path: Path) -> None:
    found = states(tmp_path, [Write(1, 0, A), Write(1, 0, B), Sync(1, 1)], {"file": b""})
    assert {state["file"] for state in found} == {A, B}


def test_a_write_is_torn_at_the_sectors_of_the_disk_only(tmp_path: Path) -> None:
    found = states(tmp_path, [Write(1, 100, b"n" * 3 * SECTOR)], {"file": b"o" * 5 * SECTOR})
    pieces = {
        tuple(state["file"][low:high] for low, high in ((0, 100), (100, 512), (512, 1024), (1024, 1536), (1536, 1636)))
        for state in found
    }
    assert all(set(piece) in ({ord("o")}, {ord("n")}) for state in pieces for piece in state)
    assert all(set(state[0]) == {ord("o")} for state in pieces)
    assert len(pieces) > 8
    assert all(state["file"].endswith(b"o" * (5 * SECTOR - 1636)) for state in found)


def test_a_synced_file_has_its_name_only_once_the_folder_is_synced(tmp_path: Path) -> None:
    made: list[Operation] = [Entry("folder", FOLDER), Entry("folder/file", 1), Write(1, 0, A), Sync(1, 3)]
    assert {"folder/file" in state for state in states(tmp_path, made)} == {True, False}
    inner: list[Operation] = [*made, SyncFolder("folder", 4)]
    assert {"folder/file" in state for state in states(tmp_path, inner)} == {True, False}
    assert states(tmp_path, [*inner, SyncFolder("", 5)]) == [{"folder/file": A}]


def test_a_removed_file_may_be_back_until_the_folder_is_synced(tmp_path: Path) -> None:
    removed: list[Operation] = [Entry("file", None)]
    assert {"file" in state for state in states(tmp_path, removed, {"file": A})} == {True, False}
    assert states(tmp_path, [*removed, SyncFolder("", 1)]) == [{}]


def test_a_state_knows_what_had_been_promised_and_can_be_made_again(tmp_path: Path) -> None:
    tape = Tape(tmp_path)
    tape.operations += [Entry("file", 1), Write(1, 0, A + B), Mark(1), Mark("file"), Write(1, 0, B)]
    first, again = (list(crashes(tape, "test", 7, 3)) for _ in range(2))
    assert first == again
    assert {(crash.least, crash.required) for crash in first} == {
        (0, frozenset()),
        (1, frozenset()),
        (1, frozenset({"file"})),
    }
    assert [crash.files for crash in crashes(tape, "test", 8, 3)] != [crash.files for crash in first]
