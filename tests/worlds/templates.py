"""Fresh stores, made once in each process and copied for each test: running every migration again proves nothing new.

That a workspace is made as it should be is the business of other tests, which open folders that are not there yet.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import NamedTuple

import apsw

import holdfast
from holdfast.kernel.store_files import FILE
from holdfast.replication.log import START, CommitLog, MemoryLog
from holdfast.testing.clock import ManualClock


class Nodes(NamedTuple):
    """The folders of nodes that have joined a new log, and what is in the log."""

    folder: Path
    entries: Sequence[bytes]


def copy_store(folder: Path) -> None:
    """Put a fresh store where a folder is not there yet."""
    shutil.copytree(_store(os.getpid()), folder)


def copy_nodes(folder: Path, log: CommitLog, count: int) -> None:
    """Have nodes join a new log; their folders are called node-0, node-1 and so on."""
    template = _nodes(os.getpid(), count)
    positions = [START]
    for entry in template.entries:
        positions.append(log.append(entry, positions[-1]))
    shutil.copytree(template.folder, folder, dirs_exist_ok=True)
    if positions != list(range(len(positions))):  # as an engine counts that has more than entries
        for number in range(count):
            with closing(apsw.Connection(str(folder / f"node-{number}" / FILE))) as store:
                place = "UPDATE local_replica SET position = ?, before = ?"
                store.execute(place, (positions[-1], positions[-2]))


@cache
def _store(_: int) -> Path:
    folder = _folder()
    holdfast.open(folder / "store", actor="template", clock=ManualClock()).close()
    return folder / "store"


@cache
def _nodes(_: int, count: int) -> Nodes:
    folder, clock = _folder(), ManualClock()
    log = MemoryLog(clock=clock)
    for number in range(count):
        holdfast.open(folder / f"node-{number}", actor="template", clock=clock, log=log).close()
    return Nodes(folder, [entry for _, entry in log.tail(0)])


def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="holdfast-template-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
