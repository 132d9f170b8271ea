"""Disk full: nothing acknowledged that is not there, nothing there that was refused; reads go on, later writes too.

Once on a real file system of a few megabytes (a tmpfs, which needs the right to mount: without it the test is
skipped on a laptop and fails in CI), and once on a disk that says ENOSPC after a number of writes, at many numbers.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import DiskFull, OutcomeUnknown
from tests.e2e.faulty_vfs import faulty_disk

RUN = "run"
THREADS = 32
DISK_SIZE = "6m"
REFUSALS = 3  # after so many a thread stops

Told = dict[str, Exception | None]  # of each cell: None if its write was acknowledged


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of a few megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_SIZE}", "tmpfs", str(place)]
    try:
        made = subprocess.run(mount, capture_output=True, text=True)
        problem = made.stderr if made.returncode else ""
    except OSError as error:
        problem = str(error)
    if problem:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI must be able to mount a small disk: {problem}")
        pytest.skip(f"no right to mount a small disk: {problem}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def write_until_refused(ws: holdfast.Workspace, worker: str, size: int, start: threading.Barrier) -> Told:
    """Write cells of this size until it fails several times; only the two honest answers are let through."""
    told: Told = {}
    start.wait()
    refusals = 0
    while refusals < REFUSALS:
        cell = f"{worker}.{len(told)}"
        try:
            ws.cells.set(RUN, cell, "x" * size)
            told[cell] = None
        except (DiskFull, OutcomeUnknown) as error:
            told[cell] = error
            refusals += 1
    return told


def fill(ws: holdfast.Workspace, wave: str, size: int) -> Told:
    """32 threads write in groups until each has been refused."""
    start = threading.Barrier(THREADS)
    with ThreadPoolExecutor(THREADS) as pool:
        parts = pool.map(lambda n: write_until_refused(ws, f"{wave}.{n}", size, start), range(THREADS))
        return {cell: error for part in parts for cell, error in part.items()}


def judge(folder: Path, told: Told) -> Counter[str]:
    """Compare what was told with what a fresh opening finds; answers how often each was told."""
    with holdfast.open(folder, actor="judge") as ws:
        for cell, error in told.items():
            there = ws.cells.exists(RUN, cell)
            if error is None:
                assert there, f"{cell} was acknowledged and is not there"
            elif isinstance(error, DiskFull):
                assert not there, f"{cell} is there, but its caller was told that the disk is full"
        unknown = {cell for cell, error in told.items() if isinstance(error, OutcomeUnknown)}
        present = set(ws.cells.list(RUN, limit=10_000))
        assert present - unknown == {cell for cell, error in told.items() if error is None}
        assert ws.check().problems == []
    return Counter(type(error).__name__ if error else "acknowledged" for error in told.values())


def read_everything(ws: holdfast.Workspace, told: Told, size: int) -> None:
    for cell, error in told.items():
        if error is None:
            assert ws.cells.get(RUN, cell).value == "x" * size


def test_a_full_file_system_loses_and_invents_nothing(small_disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, ballast = small_disk / "store", small_disk / "ballast"
    ballast.write_bytes(bytes(3_000_000))
    with holdfast.open(folder, actor="writer") as ws:
        told = fill(ws, "first", 5_000)
        assert sum(isinstance(error, DiskFull) for error in told.values()) >= THREADS
        read_everything(ws, told, 5_000)
        assert ws.check().problems == []

        ballast.unlink()
        assert ws.cells.set(RUN, "afterwards", True) == 1
        told["afterwards"] = None
        more = fill(ws, "second", 1_000)
        assert None in more.values()
        told |= more
        assert ws.cells.get(RUN, "afterwards").value is True
    counts = judge(folder, told)
    with capsys.disabled():
        print(f"\ndisk full: {THREADS} threads on a {DISK_SIZE} tmpfs, filled twice: {dict(counts)}")


def test_a_disk_that_fills_up_at_any_write_loses_and_invents_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts: Counter[str] = Counter()
    with faulty_disk() as disk:
        for writes in range(0, 400, 20):
            folder = tmp_path / f"store-{writes}"
            with holdfast.open(folder, actor="writer") as ws:
                ws.cells.set(RUN, "before", True)
                assert ws.cells.exists(RUN, "before")
                with disk.with_room_for(writes + 1):
                    told = fill(ws, "only", 100)
                    read_everything(ws, told, 100)
                    assert ws.cells.get(RUN, "before").value is True
                assert ws.cells.set(RUN, "afterwards", True) == 1
            counts += judge(folder, told | {"before": None, "afterwards": None})
    with capsys.disabled():
        print(f"\ndisk full: {THREADS} threads on a disk that fills up at 20 different writes: {dict(counts)}")
    assert counts["DiskFull"] >= THREADS
