"""N7: the nodes of compose.yaml, started with the commands that it has, as processes: containers cannot run here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import holdfast
from holdfast.testing.crowd import LONG
from tests.e2e.failpoint_worker import ROOT
from tests.worlds.postgres import shared_server


def compose() -> dict[str, Any]:
    """The file, read as YAML."""
    from ruamel.yaml import YAML

    found: dict[str, Any] = YAML(typ="safe").load((ROOT / "compose.yaml").read_text())
    return found


class Node:
    """A service of the file, as a process: its folder, its address and its log are those of this test."""

    def __init__(self, service: dict[str, Any], folder: Path, log: str) -> None:
        assert service["environment"]["HOLDFAST_LOG"].startswith("postgresql://")
        line = service["command"].replace("$$", "$").replace("0.0.0.0", "127.0.0.1").replace("--port 4653", "--port 0")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "HOLDFAST_DIR": str(folder), "HOLDFAST_LOG": log, "PATH": path}
        self.folder = folder
        self.process = subprocess.Popen(
            line, shell=True, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
        )

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

    def end(self) -> None:
        """Kill it, with the shell that started it."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=LONG)


def test_n7_the_nodes_of_the_compose_file_are_one_workspace(tmp_path: Path) -> None:
    services = compose()["services"]
    nodes = [services[name] for name in sorted(services) if name.startswith("node-")]
    assert len(nodes) == 3
    log = f"{shared_server().url}&workspace=compose-{os.urandom(6).hex()}"
    with ExitStack() as ends:
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


def test_n7_the_compose_file_keeps_what_a_node_needs_and_no_secret() -> None:
    found = compose()
    assert found["services"]["db"]["environment"]["POSTGRES_PASSWORD"].startswith("${HOLDFAST_DB_PASSWORD:?")
    volumes = [service["volumes"][0].partition(":")[0] for service in found["services"].values()]
    assert sorted(volumes) == sorted(found["volumes"]), "every node and the database have a volume of their own"
