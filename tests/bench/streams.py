"""A thousand clients that watch one workspace over HTTP while it changes a hundred times a second.

Every client must get every event, once and in order. The time is from the moment the writer sends a change until a
client has read its event. Then the same with some clients that stopped reading, which must not slow the others. The
clients are sockets in one loop of this process, the writer is a thread of it, the server is a process of its own.
"""

from __future__ import annotations

import http.client
import re
import selectors
import socket
import threading
import time

from tests.bench.load_server import Served
from tests.bench.measure import Bench, Row, percentile
from tests.http.running import command

CLIENTS = 1000
STOPPED = 10  # clients that do not read
RATE = 100  # changes a second
SECONDS = 20
PATIENCE = 30.0
_VERSION = re.compile(rb'"version":(\d+)')


def run(bench: Bench) -> list[Row]:
    """Without and with clients that have stopped reading."""
    clients, changes = bench.count(CLIENTS, 10), bench.count(SECONDS * RATE, 20)
    folder = bench.folder / "store"
    rows: list[Row] = []
    with Served(command(folder, "--port", "0"), folder) as served:
        for what, stopped in (("all read", 0), (f"{STOPPED} more do not read", STOPPED)):
            cpu, began = served.cpu, time.perf_counter()
            took = trial(served, what.replace(" ", "-"), clients, stopped, changes)
            share = (served.cpu - cpu) / (time.perf_counter() - began)
            p50, p99 = percentile(took, 50), percentile(took, 99)
            bench.say(
                f"  {clients} clients, {what}: {changes} events to each, none twice, none missing;"
                f" median {p50:.1f} ms, p99 {p99:.1f} ms; server {share:.0%} of a core"
            )
            rows.append(Row("streams", f"{clients} clients, {what}, median", p50, "ms", at_most=50.0))
            rows.append(Row("streams", f"{clients} clients, {what}, p99", p99, "ms"))
    return rows


def trial(served: Served, cell: str, clients: int, stopped: int, changes: int) -> list[float]:
    """Milliseconds from the sending of each change until each client had it; raises if one is missing or twice."""
    crowd = [Watching(served) for _ in range(clients)]
    idle = [Watching(served, small=True) for _ in range(stopped)]
    sent: dict[int, int] = {}
    writer = threading.Thread(target=write, args=(served, cell, changes, sent))
    writer.start()
    took: list[float] = []
    try:
        with selectors.DefaultSelector() as selector:
            for client in crowd:
                selector.register(client.socket, selectors.EVENT_READ, client)
            while any(len(client.seen) < changes for client in crowd):
                ready = selector.select(PATIENCE)
                if not ready:
                    raise AssertionError(f"nothing came for {PATIENCE} s")
                for key, _ in ready:
                    versions = key.data.read()
                    now = time.monotonic_ns()
                    took.extend((now - sent[version]) / 1e6 for version in versions)
        for client in crowd:
            if client.seen != list(range(1, changes + 1)):
                raise AssertionError("a client missed an event, or had one twice")
    finally:
        writer.join()
        for client in (*crowd, *idle):
            client.socket.close()
    return took


def write(served: Served, cell: str, changes: int, sent: dict[int, int]) -> None:
    """Change one cell at a steady rate, whatever the answers take."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port)
    headers = {"authorization": f"Bearer {served.token}", "x-agent-id": "writer", "content-type": "application/json"}
    began = time.monotonic()
    for number in range(1, changes + 1):
        time.sleep(max(0.0, began + number / RATE - time.monotonic()))
        sent[number] = time.monotonic_ns()
        connection.request("PUT", f"/api/cells/bench/{cell}", b'{"value": 1}', headers)
        answer = connection.getresponse()
        assert (answer.status, int(answer.read())) == (200, number)
    connection.close()


class Watching:
    """One client that watches; `small`: with little room for what it does not read."""

    def __init__(self, served: Served, small: bool = False) -> None:
        self.socket = socket.socket()
        if small:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect(("127.0.0.1", served.port))
        self.seen: list[int] = []  # versions, as they came
        self._rest = b""
        self.socket.sendall(
            f"GET /api/events?kinds=cell HTTP/1.1\r\nhost: 127.0.0.1:{served.port}\r\n"
            f"authorization: Bearer {served.token}\r\naccept: text/event-stream\r\n\r\n".encode()
        )
        while b"event: bookmark" not in self._rest:  # from here on it misses nothing
            self._rest += self.socket.recv(4096)
        self._rest = b""

    def read(self) -> list[int]:
        """The versions of the events that are there now."""
        received = self.socket.recv(65536)
        if not received:
            raise AssertionError("the server ended a watch")
        whole, _, self._rest = (self._rest + received).rpartition(b"\n\n")
        found = [int(each) for each in _VERSION.findall(whole)]
        self.seen += found
        return found
