"""N7: the services of the compose files, started with the commands that they have, as processes: no containers here.

What a container gives is replaced and nothing else: folders for volumes, free ports of this machine for names and
ports. PostgreSQL is the server of the tests; the NATS servers have the configuration that the file has.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

import holdfast
from holdfast.testing.crowd import LONG
from tests.amounts import LONG as LONG_RUN
from tests.e2e.failpoint_worker import ROOT
from tests.logs.nodes import eventually
from tests.worlds.nats import free_ports, server_binary
from tests.worlds.postgres import shared_server

POSTGRES, NATS = "compose.yaml", "compose.nats.yaml"
SECRET = "s3cret"


def compose(name: str) -> dict[str, Any]:
    """A file, read as YAML."""
    from ruamel.yaml import YAML

    found: dict[str, Any] = YAML(typ="safe").load((ROOT / name).read_text())
    return found


def environment_of(service: dict[str, Any], **more: str) -> dict[str, str]:
    """The variables of a service: those of the file, with the secret that the file asks for."""
    given = {name: re.sub(r"\$\{\w+:\?.*\}", SECRET, value) for name, value in service["environment"].items()}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, **given, "PATH": path, **more}


class Process:
    """A service as a process, in a group of its own."""

    def __init__(self, command: str | list[str], environment: dict[str, str]) -> None:
        shell = isinstance(command, str)
        self.process = subprocess.Popen(
            command, shell=shell, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
        )

    def end(self) -> None:
        """Kill it, with the shell that started it."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.communicate(timeout=LONG)


class Node(Process):
    """A node: its folder, its address and its log are those of this test."""

    def __init__(self, service: dict[str, Any], folder: Path, log: str) -> None:
        line = service["command"].replace("$$", "$").replace("0.0.0.0", "127.0.0.1").replace("--port 4653", "--port 0")
        self.folder = folder
        super().__init__(line, environment_of(service, HOLDFAST_DIR=str(folder), HOLDFAST_LOG=log))

    @property
    def url(self) -> str:
        """Where it listens, once it does."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("listening on "):
                return line.split()[-1]
        raise AssertionError("it does not listen")

    @property
    def token(self) -> str:
        """Its first token."""
        return (self.folder / "token").read_text().strip()


def start_nats(found: dict[str, Any], folder: Path, ends: ExitStack) -> str:
    """Start the NATS servers of the file; returns the log of its nodes here."""
    names = sorted(name for name in found["services"] if name.startswith("nats-"))
    ports = {name: free_ports(3) for name in names}  # for clients, monitoring, and the other servers
    for name in names:
        service = found["services"][name]
        (config,) = service["configs"]
        text = found["configs"][config["source"]]["content"].replace("$$", "$")
        client, monitor, own = ports[name]
        replaced = {"/data": str(folder / name), "port: 4222": f"host: 127.0.0.1\nport: {client}"}
        replaced |= {"http: 8222": f"http: 127.0.0.1:{monitor}", "port: 6222": f"host: 127.0.0.1\nport: {own}"}
        replaced |= {f"//{other}:6222": f"//127.0.0.1:{ports[other][2]}" for other in names}
        for before, after in replaced.items():
            assert before in text
            text = text.replace(before, after)
        file = folder / f"{name}.conf"
        file.write_text(text)
        command = [file.as_posix() if part == config["target"] else part for part in service["command"]]
        server = Process([server_binary(), *command, "--log", f"{file}.log"], environment_of(service))
        ends.callback(server.end)
    for name in names:
        eventually(lambda port=ports[name][1]: is_healthy(port))  # type: ignore[misc]
    log: str = found["services"]["node-a"]["environment"]["HOLDFAST_LOG"]
    for name in names:
        log = re.sub(rf"{name}\b", f"127.0.0.1:{ports[name][0]}", log)
    assert "monitor=8222" in log
    return log.replace("monitor=8222", "sync=always")  # here each has a port of its own for that


def is_healthy(port: int) -> bool:
    """What the health check of the file asks."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.mark.parametrize("name", [POSTGRES, NATS] if LONG_RUN else [POSTGRES])  # a cluster beside all tests is too much
def test_n7_the_nodes_of_a_compose_file_are_one_workspace(name: str, tmp_path: Path) -> None:
    found = compose(name)
    services = found["services"]
    nodes = [services[each] for each in sorted(services) if each.startswith("node-")]
    assert len(nodes) == 3
    with ExitStack() as ends:
        if name == NATS:
            log = start_nats(found, tmp_path, ends)
        else:
            assert nodes[0]["environment"]["HOLDFAST_LOG"].startswith("postgresql://")
            log = f"{shared_server().url}&workspace=compose-{os.urandom(6).hex()}"
        running = []
        for number, service in enumerate(nodes):
            running.append(Node(service, tmp_path / str(number), log))
            ends.callback(running[-1].end)
        urls, tokens = [node.url for node in running], [node.token for node in running]
        certificates = [str(node.folder / "tls" / "cert.pem") for node in running]
        for url, token, certificate in zip(urls, tokens, certificates, strict=True):
            with holdfast.connect(url, token=token, actor="ann", verify=certificate) as ws:
                ws.cells.increment("run", "count")
        with holdfast.connect(urls, token=tokens, actor="ann", verify=certificates) as ws:
            assert ws.cells.get("run", "count").value == 3
            running[0].end()
            assert ws.cells.increment("run", "count") == 4


@pytest.mark.parametrize("name", [POSTGRES, NATS])
def test_n7_a_compose_file_keeps_what_its_services_need_and_no_secret(name: str) -> None:
    found = compose(name)
    text = (ROOT / name).read_text()
    secrets = re.findall(r"(?:PASSWORD|TOKEN): \"?(\S+)", text)
    assert secrets
    assert all(re.match(r"\$\{HOLDFAST_\w+:\?", secret) for secret in secrets)
    volumes = [service["volumes"][0].partition(":")[0] for service in found["services"].values()]
    assert sorted(volumes) == sorted(found["volumes"]), "every server has a volume of its own"
    assert not any("ports" in service for each, service in found["services"].items() if not each.startswith("node-"))


def test_n7_the_nats_servers_of_the_compose_file_sync_every_write() -> None:
    assert "sync_interval: always" in compose(NATS)["configs"]["nats"]["content"]
