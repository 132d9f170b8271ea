"""The load generator, `load_generator.c`: compiling it, rendering what it sends, reading what it tells.

It is a program of its own in C so that it takes little of the machine that the server is measured on; what share of a
core it took is part of what it tells.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from holdfast.operation import operation
from tests.bench.load_server import Served

SOURCE = Path(__file__).with_name("load_generator.c")


class Call(msgspec.Struct, frozen=True):
    """One call of an operation, by an agent."""

    op: str
    agent: str
    arguments: dict[str, Any] = {}

    def rendered(self, served: Served) -> bytes:
        """The request as it travels: some arguments in the path, the others in the body."""
        method, _, path = (operation(self.op).route.http or "").partition(" ")
        inside = {name: value for name, value in self.arguments.items() if f"{{{name}}}" in path}
        body = msgspec.json.encode({name: value for name, value in self.arguments.items() if name not in inside})
        head = [
            f"{method} {path.format(**inside)} HTTP/1.1",
            f"Host: 127.0.0.1:{served.port}",
            f"Authorization: Bearer {served.token}",
            f"X-Agent-ID: {self.agent}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        ]
        return "\r\n".join([*head, "", ""]).encode() + body


class Outcome(msgspec.Struct, frozen=True):
    """What a run found; latencies in milliseconds, `cpu` in seconds."""

    count: int
    errors: int
    empty: int  # answers of null, which are errors too
    status: dict[str, int]
    seconds: float
    p50: float
    p99: float
    worst: float
    cpu: float

    @property
    def rate(self) -> float:
        """Answers a second."""
        return self.count / self.seconds

    @property
    def share(self) -> float:
        """Of a core, that the generator itself took."""
        return self.cpu / self.seconds


class Generator:
    """The compiled program, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._program = folder / "load_generator"
        subprocess.run(["cc", "-O2", "-o", self._program, SOURCE], check=True)

    def start(
        self, served: Served, calls: Iterable[Call], connections: int, count: int, rate: float = 0
    ) -> subprocess.Popen[bytes]:
        """Send `count` of these calls in turn: as fast as they are answered, or at a fixed rate a second."""
        file = self._folder / "requests"
        file.write_bytes(b"".join(call.rendered(served) + b"\0" for call in calls))
        arguments = [str(each) for each in (served.port, connections, count, rate, file)]
        return subprocess.Popen([self._program, *arguments], stdout=subprocess.PIPE)

    def run(self, served: Served, calls: Iterable[Call], connections: int, count: int) -> Outcome:
        """Send them as fast as they are answered, and tell."""
        return outcome_of(self.start(served, calls, connections, count))


def outcome_of(process: subprocess.Popen[bytes]) -> Outcome:
    """What a run tells when it is over; an error if it broke, which it says itself."""
    told, _ = process.communicate()
    if process.returncode:
        raise AssertionError(f"the load generator ended with {process.returncode}")
    return msgspec.json.decode(told, type=Outcome)
