"""A process that is struck at a failpoint, and its parent's end: what it has said, and whether it still runs.

The process: threads write without end; if the place is one of a backup the main thread makes backups; at a place of a
migration it makes one workspace after the other instead. When the place is reached for the last of so many times, the
process sends itself the signal. One line to stdout for each: `try` before a call, `durable` with the keys of a group
as soon as COMMIT has returned, `ack` when its caller is answered, `at` before the signal; `open`, `backup`, `saved`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import holdfast
from holdfast.kernel import failpoints
from holdfast.testing.crowd import LONG, start

ROOT = Path(__file__).parents[2]
RUN = "failpoints"
COUNT = "count"
MOST = 3000  # calls of a thread: a process that is never struck comes to an end, and its exit code tells
AT_ONCE = 0.0005  # seconds: so that the next group finds something to sweep
LATER = 3600.0


def ttl_at(place: str) -> float:
    """How long the lease of each call lasts: groups are to sweep, but nothing may happen beside a backup."""
    return AT_ONCE if place.startswith("batch.") else LATER


def call(ws: holdfast.Workspace, key: str, ttl: float, ran: list[str]) -> list[int]:
    """One transaction under its key: two cells and a lease. Answers version, revision and count."""

    def body(tx: holdfast.Transaction) -> list[int]:
        ran.append(key)
        version = tx.cells.set(RUN, key.rpartition(".")[0], key)
        tx.leases.create(ttl=ttl)
        return [version, tx.revision, int(tx.cells.increment(RUN, COUNT))]

    return ws.using(key=key).transact(body)


# --- in the parent ---------------------------------------------------------------------------------------------------


@dataclass
class Told:
    """What a process has said so far."""

    tried: list[str] = field(default_factory=list)
    durable: set[str] = field(default_factory=set)
    acks: dict[str, list[int]] = field(default_factory=dict)
    opened: list[str] = field(default_factory=list)
    backups: dict[str, set[str]] = field(default_factory=dict)  # with what was acknowledged before each
    saved: list[str] = field(default_factory=list)
    at: str = ""

    def add(self, line: bytes) -> None:
        """One line more."""
        assert line.endswith(b"\n"), f"half a line: {line!r}"
        match line.decode().split():
            case "try", key:
                self.tried.append(key)
            case "durable", *keys:
                self.durable.update(keys)
            case "ack", key, *answer:
                self.acks[key] = [int(number) for number in answer]
            case "open", key:
                self.opened.append(key)
            case "backup", key:
                self.backups[key] = set(self.acks)
            case "saved", key:
                self.saved.append(key)
            case "at", place:
                self.at = place
            case words:
                raise AssertionError(words)


class Child:
    """The parent's end of one such process; it is killed at the end of `with`, if it is still there."""

    def __init__(self, folder: Path, name: str, place: str, times: int, strike: signal.Signals, threads: int) -> None:
        given = (folder, name, place, times, strike.name, threads)
        command = [sys.executable, "-m", "tests.e2e.failpoint_worker", *map(str, given)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
        self._told = Told()
        self._heard = threading.Condition()
        self._reading = start(self._read)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._heard:
                self._told.add(line)
                self._heard.notify_all()

    def hear(self, wanted: Callable[[Told], object]) -> Told:
        """Listen until it has said what is wanted."""
        with self._heard:
            assert self._heard.wait_for(lambda: wanted(self._told), LONG)
            return self._told

    def end(self) -> Told:
        """Wait until it has died by the signal KILL; answers all it has said."""
        self._reading.result(LONG)
        assert self._process.wait(LONG) == -signal.SIGKILL
        return self._told

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    @property
    def is_stopped(self) -> bool:
        """Whether the system has stopped it."""
        return Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait(LONG)
        self._reading.result(LONG)
        self._process.stdout.close()


# --- in the process --------------------------------------------------------------------------------------------------


class Failpoint:
    """The hook: says what is durable, and strikes once."""

    def __init__(self, place: str, times: int, strike: signal.Signals) -> None:
        self._place, self._left, self._strike = place, times, strike
        self.ran: list[str] = []  # in the group at hand

    def __call__(self, name: str) -> None:
        if name == "batch.begin":
            self.ran.clear()
        if name == "batch.committed":
            say("durable", *self.ran)
        if name == self._place:
            self._left -= 1
            if self._left == 0:
                say("at", name)
                # To this very thread: not one instruction more of it runs.
                signal.pthread_kill(threading.get_ident(), self._strike)


def say(*words: object) -> None:
    """One write of a short line is atomic: what the other side reads of it is whole."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


class Worker:
    """What the threads do."""

    def __init__(self, name: str, place: str, failpoint: Failpoint) -> None:
        self._name, self._ttl, self._failpoint = name, ttl_at(place), failpoint

    def _keys(self, thread: int | str) -> Iterator[str]:
        return (f"{self._name}.{thread}.{number}" for number in range(MOST))

    def _call(self, ws: holdfast.Workspace, key: str) -> None:
        say("try", key)
        say("ack", key, *call(ws, key, self._ttl, self._failpoint.ran))

    def write(self, ws: holdfast.Workspace, thread: int) -> None:
        """Write."""
        for key in self._keys(thread):
            self._call(ws, key)

    def back_up(self, ws: holdfast.Workspace, folder: Path) -> None:
        """Write and back up."""
        for key in self._keys("backup"):
            self._call(ws, key)
            say("backup", key)
            ws.backup(folder / key)
            say("saved", key)

    def make(self, folder: Path) -> None:
        """Make workspaces, and write to each."""
        for key in self._keys("made"):
            say("open", key)
            with holdfast.open(folder / key, actor=self._name) as ws:
                self._call(ws, key)


def main() -> None:
    folder, name, place, times, strike, threads = sys.argv[1:]
    failpoints.hook = failpoint = Failpoint(place, int(times), signal.Signals[strike])
    worker = Worker(name, place, failpoint)
    if place.startswith("migration."):
        return worker.make(Path(folder))
    ws = holdfast.open(folder, actor=name)
    for number in range(int(threads)):
        threading.Thread(target=worker.write, args=(ws, number)).start()
    if place.startswith("backup."):
        worker.back_up(ws, Path(folder).parent)
    return None


if __name__ == "__main__":
    main()
