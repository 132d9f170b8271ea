"""kill -9 of writing processes: what was acknowledged is there, what is there is whole, and nothing else is.

Two writers at a time work on one folder, the same over all cycles, and each is killed while its threads commit. This
process records their acknowledgements. Every second round nobody reopens the store in between, so that a crash
also falls on what an earlier crash left behind. The number of a cycle is the seed of what its writer does and when it
is killed: `FIRST=500 SEEDS=1000` is a slice of its own.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

import holdfast
from tests.amounts import seeds
from tests.e2e.kill_worker import COUNT, RUN
from tests.long.ledger import record

ROOT = Path(__file__).parents[2]
CYCLES = seeds(120, 500)
AT_ONCE = 2
LEAST = 20
MOST_EXTRA = 10
LONGEST = 0.02  # seconds from the last acknowledgement that was waited for to the kill
TOGETHER = 500  # cycles on one folder


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


def run_and_kill(folder: Path, cycle: int) -> list[Ack]:
    """One cycle: start a writer, kill it after some acknowledgements, and answer all it has given."""
    draw = random.Random(f"kill {cycle}")
    acks_before_death = LEAST + draw.randint(0, MOST_EXTRA)
    command = [sys.executable, "-m", "tests.e2e.kill_worker", str(folder), f"writer-{cycle}", str(cycle)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as writer:
        assert writer.stdout is not None
        try:
            acks = [parse(writer.stdout.readline()) for _ in range(acks_before_death)]
            time.sleep(draw.choice((0, draw.uniform(0, LONGEST))))  # waits for nothing: it draws the moment of the kill
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
                assert (old.value.split()[0], old.revision) == (ack.value, ack.revision), f"lost: {ack}"
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
        assert (ack.cell, ack.version, ack.value) == (event.id, event.version, event.data["value"].split()[0])
        assert ack.total == event.revision


def pairs(events: list[holdfast.Event]) -> list[tuple[holdfast.Event, holdfast.Event]]:
    """The two events of each transaction; a page has an even number of them."""
    return list(zip(events[::2], events[1::2], strict=True))


@pytest.mark.early
@pytest.mark.timeout(400 + 2 * len(CYCLES))
@pytest.mark.parametrize("first", CYCLES[::TOGETHER])
def test_what_a_killed_writer_acknowledged_is_never_lost(
    first: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cycles = range(first, min(first + TOGETHER, CYCLES.stop))
    found = Record(tmp_path / "store")
    least = sys.maxsize
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for number in cycles[::AT_ONCE]:
            pair = range(number, min(number + AT_ONCE, cycles.stop))
            for acks in pool.map(run_and_kill, [found.folder] * len(pair), pair):
                assert len(acks) >= LEAST
                least = min(least, len(acks))
                found.add(acks)
            done = number - first
            if done // AT_ONCE % 2:
                found.verify(everything=done % 100 < 4)
    found.verify(everything=True)
    lost = set(found.acks) - set(range(1, found.revision + 1))
    with capsys.disabled():
        print(
            f"\nkill -9: {len(cycles)} cycles, {len(found.acks)} acknowledgements (at least {least} a cycle), "
            f"{found.found} commits found, {found.beyond} of them not acknowledged, "
            f"{len(found.cut)} cycles cut between commit and acknowledgement, {len(lost)} lost"
        )
        record(
            "kill",
            cycles,
            len(cycles),
            len(lost),
            acknowledged=len(found.acks),
            commits=found.found,
            cut=len(found.cut),
        )
    assert not lost
    assert found.found == len(found.acks) + found.beyond
    assert found.cut, "no writer died in mid-commit: the test has lost its point"
