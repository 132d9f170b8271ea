"""Calls of the command line, inside this process or in one of their own, and the environment they get.

Nothing of the user's reaches them: no HOLDFAST_* variable, and folders for state and configuration of their own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

PATIENCE: Final = 180  # seconds until a process that should have ended is taken for stuck
HOLDFAST: Final = [sys.executable, "-m", "holdfast"]


class Answer(NamedTuple):
    """What a call left behind."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """What a successful call answered as JSON, out of its envelope."""
        told = json.loads(self.out)
        assert told["schema_version"] == 1, told
        return told["data"]

    @property
    def error(self) -> Any:
        """The error that a call told as JSON."""
        told = json.loads(self.err)
        assert told["schema_version"] == 1, told
        return told

    @property
    def id(self) -> str:
        """The id alone, as -q prints it."""
        assert self.code == 0, self
        return self.out.strip()


def environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of a call: folders in `home`, no rolling backups unless they are asked for."""
    # The first makes every process compile everything again, the second hides what was not flushed.
    left = {"PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "NO_COLOR"}
    own = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_") and name not in left}
    own |= {"XDG_STATE_HOME": str(home / "state"), "XDG_CONFIG_HOME": str(home / "config"), "HOLDFAST_ROLLING": "0"}
    return own | more


class Shell:
    """Calls in processes of their own."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder = folder
        self.environ = environ

    def at(self, folder: Path) -> Shell:
        """The same, in another folder."""
        return Shell(folder, self.environ)

    def with_(self, **more: str) -> Shell:
        """The same, with more in its environment."""
        return Shell(self.folder, self.environ | more)

    def __call__(self, *words: str, stdin: str = "", timeout: float = PATIENCE) -> Answer:
        """`holdfast WORDS`, to its end."""
        return self.run([*HOLDFAST, *words], stdin, timeout)

    def run(self, command: Sequence[str], stdin: str = "", timeout: float = PATIENCE) -> Answer:
        """Any command, to its end."""
        done = subprocess.run(
            command, cwd=self.folder, env=self.environ, input=stdin, capture_output=True, text=True, timeout=timeout
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def start(self, *words: str, **how: Any) -> subprocess.Popen[str]:
        """`holdfast WORDS`, which goes on while the test does, in a process group of its own."""
        how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | how
        command = [*HOLDFAST, *words]
        return subprocess.Popen(command, cwd=self.folder, env=self.environ, text=True, start_new_session=True, **how)

    def git(self, *words: str) -> str:
        """A git command that must go well; answers what it printed."""
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "protocol.file.allow=always")
        done = self.run(["git", *who, *words])
        assert done.code == 0, done
        return done.out


def ended(process: subprocess.Popen[str], timeout: float = PATIENCE) -> Answer:
    """What a process printed and ended with; it has a bounded time to end, with all that it started."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        end(process)
        raise
    return Answer(process.returncode, out, err)


def end(process: subprocess.Popen[str]) -> None:
    """Kill a process and all that it started, which may hold its output open."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
