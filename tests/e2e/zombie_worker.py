"""A process that does what it is told with tasks, and its parent's end, which can stop it and let it go on.

`python -m tests.e2e.zombie_worker FOLDER CLOCK NAME` reads a JSON list from each line of stdin, `[operation,
arguments]`, and answers each with a line: the code of the error, or `ok`, and the token that the task then has.
`["stop at", place]` has the process stop itself in the next operation, at that failpoint.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple, Self

import holdfast
from holdfast import errors
from holdfast.kernel import failpoints
from holdfast.testing import ManualClock
from tests.logs.nodes import eventually

ROOT = Path(__file__).parents[2]


class Answer(NamedTuple):
    """What became of an operation."""

    code: str
    token: int | None = None


def attempt(ws: holdfast.Workspace, op: str, arguments: dict[str, Any]) -> Answer:
    """Do something with a task; a refusal is an answer too."""
    try:
        return Answer("ok", getattr(ws.tasks, op)(**arguments).token)
    except errors.HoldfastError as error:
        return Answer(error.code)


# --- in the parent ---------------------------------------------------------------------------------------------------


class Zombie:
    """The parent's end of one such process; it is killed at the end of `with`."""

    def __init__(self, folder: Path, clock: Path, name: str) -> None:
        command = [sys.executable, "-m", "tests.e2e.zombie_worker", str(folder), str(clock), name]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True)

    def tell(self, op: str, arguments: Any) -> None:
        """Have it do something, once it runs."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([op, arguments]) + "\n")
        self._process.stdin.flush()

    def hear(self) -> Answer:
        """Its next answer."""
        assert self._process.stdout is not None
        return Answer(*json.loads(self._process.stdout.readline()))

    def __call__(self, op: str, **arguments: Any) -> Answer:
        """Have it do something now."""
        self.tell(op, arguments)
        return self.hear()

    def stop(self) -> None:
        """Stop it, wherever it is."""
        self._process.send_signal(signal.SIGSTOP)
        self.wait_until_stopped()

    def wait_until_stopped(self) -> None:
        """Answer when the system has stopped it."""
        stat = Path(f"/proc/{self._process.pid}/stat")
        eventually(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")

    def go_on(self) -> None:
        """Let it run again."""
        self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


# --- in the process --------------------------------------------------------------------------------------------------


def stop_at(place: str) -> None:
    """Stop at a failpoint, once; only in this thread, which is the one that does what it is told."""
    worker = threading.get_ident()

    def hook(name: str) -> None:
        if name == place and threading.get_ident() == worker:
            failpoints.hook = None
            signal.pthread_kill(worker, signal.SIGSTOP)

    failpoints.hook = hook


def main() -> None:
    folder, clock, name = sys.argv[1:]
    with holdfast.open(folder, actor=name, clock=ManualClock(clock)) as ws:
        for line in sys.stdin:
            op, arguments = json.loads(line)
            if op == "stop at":
                stop_at(arguments)
            else:
                print(json.dumps(attempt(ws, op, arguments)), flush=True)


if __name__ == "__main__":
    main()
