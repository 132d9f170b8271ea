"""A server in a process of its own, and calls as any program would send them."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import httpx

PATIENCE: Final = 180


def command(folder: Path, *arguments: str) -> list[str]:
    """How a server is started."""
    return [sys.executable, "-m", "holdfast", "serve", "--dir", str(folder), *arguments]


class Running:
    """A server in a process of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        started = command(folder, "--port", "0", *arguments)
        self.process = subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        assert said.startswith("listening on "), (said, self.process.communicate(timeout=PATIENCE))
        self.url = said.split()[-1]
        token = folder / "token"  # none where tokens of another server are
        self.token = token.read_text().strip() if token.exists() else ""

    def call(self, method: str, path: str, token: str | None = None, **given: Any) -> httpx.Response:
        """A request as any program would send it."""
        headers = {"authorization": f"Bearer {token or self.token}", **given.pop("headers", {})}
        return httpx.request(method, self.url + path, headers=headers, timeout=PATIENCE, **given)

    def stop(self) -> int:
        """End it kindly; answers its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def end(self) -> None:
        """Kill it if it still runs, and free what it held."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=PATIENCE)


def code_of(answer: httpx.Response) -> tuple[int, str]:
    """The status and the code of a refusal, which has all that every error has."""
    body = answer.json()
    assert {"error", "code", "details", "hint", "retryable"} <= body.keys()
    return answer.status_code, body["code"]
