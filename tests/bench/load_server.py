"""A server under load, in a process of its own: where it listens, and what it takes of the machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path
from types import TracebackType

PATIENCE = 60  # seconds


class Served:
    """A server that a command has started on a folder; it runs until the block ends."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        found = re.match(r"listening on http://127\.0\.0\.1:(\d+)$", said)
        if found is None:
            self._end()
            raise AssertionError(f"the server did not start: {said!r}")
        self.port = int(found[1])
        self.token = (folder / "token").read_text().strip()

    def __enter__(self) -> Served:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def memory(self) -> int:
        """What it has in memory, in bytes (RSS)."""
        found = re.search(r"^VmRSS:\s+(\d+) kB$", self._read("status"), re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024

    @property
    def cpu(self) -> float:
        """The processor time that it has taken, in seconds."""
        fields = self._read("stat").rpartition(")")[2].split()  # from the third field on
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _read(self, name: str) -> str:
        return Path(f"/proc/{self._process.pid}/{name}").read_text()
