"""kill -9 of writing processes: what was acknowledged is there, what is there is whole, and nothing else is.

Two writers at a time work on one folder, the same over all cycles, and each is killed while its threads commit. This
process records their acknowledgements. Every second round nobody reopens the store in between, so that a crash
also falls on what an earlier crash left behind.
"""

from __future__ import annotations

import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

import holdfast
from tests.amounts import amount
from tests.e2e.kill_worker import COUNT, RUN

ROOT = Path(__file__).parents[2]
CYCLES = amount(120, 500)
AT_ONCE = 2
LEAST = 20
MOST_EXTRA = 10


class Ack(NamedTuple):
    """What a writer was told when its transaction was durable."""

    cell: str
    version: int
    value: str
    revision: int
    total: int


def parse(line: bytes) -> Ack:
    assert line.endswith(b"\n"), f"half an acknowledgement: {line!r}"
    cell, version, value, revision, total = line.decode().split()
    return Ack(cell, int(version), value, int(revision), int(total))


def run_and_kill(folder: Path, name: str, acks_before_death: int) -> list[Ack]:
    """One cycle: start a writer, kill it after so many acknowledgements, and answer all it has given."""
    command = [sys.executable, "-m", "tests.e2e.kill_worker", str(folder), name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as writer:
        assert writer.stdout is not None
        try:
            acks = [parse(writer.stdout.readline()) for _ in range(acks_before_death)]
        finally:
            writer.kill()
        acks += [parse(line) for line in writer.stdout]
    assert writer.returncode == -9
    return acks


@dataclass
class Record:
    """Everything that was acknowledged, and what reading the store found."""

    folder: Path
    acks: dict[int, Ack] = field(default_factory=dict)  # by revision
    unread: list[Ack] = field(default_factory=list)
    revision: int = 0
    found: int = 0
    beyond: int = 0
    cut: set[str] = field(default_factory=set)  # writers that died between a commit and its acknowledgement

    def add(self, acks: list[Ack]) -> None:
        for ack in acks:
            assert ack.revision not in self.acks, "two transactions were told the same revision"
            self.acks[ack.revision] = ack
        self.unread += acks

    def verify(self, *, everything: bool = False) -> None:
        """Open the store anew and compare what has come since the last time with the acknowledgements."""
        with holdfast.open(self.folder, actor="judge") as ws:
            for ack in self.unread:
                old = ws.cells.at(RUN, ack.cell, ack.version)
                assert (old.value, old.revision) == (ack.value, ack.revision), f"lost: {ack}"
            self.unread.clear()
            self._read_log(ws)
            if everything:
                report = ws.check()
                assert report.problems == []
                assert report.revision == self.revision

    def _read_log(self, ws: holdfast.Workspace) -> None:
        last = ws.revision
        while self.revision < last:
            for event, counted in pairs(ws.events.list(after=self.revision, limit=1000)):
                self.revision += 1
                # Both halves of each transaction are there, in order, without a gap; one more each in the count.
                assert (event.revision, counted.revision) == (self.revision, self.revision)
                assert (counted.id, counted.data["value"], counted.version) == (COUNT, self.revision, self.revision)
                self._judge(event)

    def _judge(self, event: holdfast.Event) -> None:
        self.found += 1
        ack = self.acks.get(event.revision)
        if ack is None:
            self.beyond += 1
            self.cut.add(event.actor)
            return
        assert (ack.cell, ack.version, ack.value) == (event.id, event.version, event.data["value"])
        assert ack.total == event.revision


def pairs(events: list[holdfast.Event]) -> list[tuple[holdfast.Event, holdfast.Event]]:
    """The two events of each transaction; a page has an even number of them."""
    return list(zip(events[::2], events[1::2], strict=True))


@pytest.mark.early
@pytest.mark.timeout(400)
def test_what_a_killed_writer_acknowledged_is_never_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = Record(tmp_path / "store")
    least = sys.maxsize
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for first in range(0, CYCLES, AT_ONCE):
            names = [f"writer-{number}" for number in range(first, first + AT_ONCE)]
            lengths = [LEAST + random.randint(0, MOST_EXTRA) for _ in names]
            for acks in pool.map(run_and_kill, [record.folder] * AT_ONCE, names, lengths):
                assert len(acks) >= LEAST
                least = min(least, len(acks))
                record.add(acks)
            if first // AT_ONCE % 2:
                record.verify(everything=first % 100 < 4)
    record.verify(everything=True)
    lost = set(record.acks) - set(range(1, record.revision + 1))
    with capsys.disabled():
        print(
            f"\nkill -9: {CYCLES} cycles, {len(record.acks)} acknowledgements (at least {least} a cycle), "
            f"{record.found} commits found, {record.beyond} of them not acknowledged, "
            f"{len(record.cut)} cycles cut between commit and acknowledgement, {len(lost)} lost"
        )
    assert not lost
    assert record.found == len(record.acks) + record.beyond
    assert record.cut, "no writer died in mid-commit: the test has lost its point"
