"""`make smoke`: each extra of the wheel in dist/, installed into a clean environment of its own, and every face tried.

The environments know nothing of this checkout: each is a new venv in a scratch folder, and programs run there without
its variables. What an extra needs on the other side, a NATS or PostgreSQL server or an MCP client, comes from .venv.
`ARGS="server mcp"` tries these alone.
"""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import holdfast
from holdfast.faces.cli.commands.doctor import DEVELOPMENT
from tests.journal import ROOT
from tests.release.dist import DIST
from tests.worlds import nats, postgres

SECONDS: Final = 300
_FOREIGN: Final = ("PYTHON", "HOLDFAST", "VIRTUAL_ENV", "XDG_")
_LIBRARY: Final = """
import holdfast
with holdfast.open("library", actor="ada") as ws:
    task = ws.tasks.create("first")
    assert ws.tasks.claim_next().id == task.id
    with ws.transaction() as tx:
        tx.tasks.complete(task.id)
        tx.cells.increment("run", "done")
    assert [event.op for event in ws.watch(after=0, timeout=0)] == ["create", "claim", "complete", "increment"]
    assert ws.check().ok
print("ok")
"""
_CLIENT: Final = """
import sys, holdfast
with holdfast.connect(sys.argv[1], token=sys.argv[2], actor="ben") as ws:
    assert ws.tasks.claim_next().title == "over the network"
    assert ws.cells.set("run", "cell", {"a": 1}) == 1
print("ok")
"""


class Place:
    """A clean environment with one extra, and a folder to work in."""

    def __init__(self, extra: str, folder: Path) -> None:
        self.extra = extra
        self.folder = folder
        self.bin = folder / "venv" / "bin"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)},
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "HOME": str(folder),
            "HOLDFAST_ACTOR": "ada",
        }
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        wheel = next(DIST.glob(f"holdfast-{holdfast.__version__}-*.whl"))
        install = [str(self.bin / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        # An extra comes as the hint of an error says, which adds it to the Holdfast that is installed (decision 0073).
        for what in (str(wheel), *([f"holdfast[{extra}]"] if extra else [])):
            subprocess.run([*install, "-c", str(ROOT / "constraints.txt"), what], check=True, env=self.environment)
        assert f"version {holdfast.__version__}," in f"version {self.run('holdfast', 'version').split()[1]},"

    def run(self, *command: str, expected: int = 0, given: str | None = None, **more: str) -> str:
        """Run a command; returns what it printed, with its errors if it should fail."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**self.environment, **more},
            input=given,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        if done.returncode != expected:
            raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout + (done.stderr if expected else "")

    def python(self, code: str, *arguments: str) -> None:
        """Run a program that prints ok at its end."""
        assert self.run("python", "-c", code, *arguments).strip() == "ok"

    @contextmanager
    def serving(self, *arguments: str) -> Iterator[tuple[str, str]]:
        """A server on the workspace `served`: its address and a token."""
        command = ["holdfast", "serve", "--dir", "served", "--port", "0", *arguments]
        process = subprocess.Popen(
            command, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            assert process.stdout is not None
            said = ""
            while not said.startswith("listening on "):
                said = process.stdout.readline()
                if not said:
                    raise SystemExit("the server ended before it listened")
            yield said.split()[-1], (self.folder / "served" / "token").read_text().strip()
        finally:
            process.terminate()
            process.wait(SECONDS)


# --- what each extra promises ----------------------------------------------------------------------------------------


def try_base(place: Place) -> list[str]:
    """The library, the command line, turn files; what needs an extra names it."""
    place.python(_LIBRARY)
    place.run("holdfast", "init")
    task = place.run("holdfast", "create", "write the parser", "-q").strip()
    place.run("holdfast", "next")
    place.run("holdfast", "done", task, "it parses")
    assert json.loads(place.run("holdfast", "show", task, "--json"))["data"]["status"] == "closed"
    place.run("holdfast", "doctor")
    place.run("holdfast", "turn", "init")
    place.run("holdfast", "turn", "check")
    said = place.run("holdfast", "serve", "--port", "0", expected=holdfast.errors.Unsupported.exit_code)
    assert "pip install 'holdfast[server]'" in said, said
    return ["library", "command line", "turn files"]


def try_server(place: Place) -> list[str]:
    """The server, a client of it, its page, its figures, TLS."""
    place.run("holdfast", "create", "over the network", "--dir", "served", "-q")
    with place.serving() as (url, token):
        place.python(_CLIENT, url, token)
        page = _get(f"{url}/ui/")
        script = page.partition('src="')[2].partition('"')[0]
        assert "import" in _get(urllib.parse.urljoin(f"{url}/ui/", script)), page
        assert "holdfast_" in _get(f"{url}/metrics", token)
        listed = place.run("holdfast", "list", "--all", "--json", "--url", url, HOLDFAST_TOKEN=token)
        assert "over the network" in listed
    with place.serving("--tls", "auto") as (url, token):
        assert url.startswith("https://")
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        assert "</html>" in _get(f"{url}/ui/", context=context)
    return ["HTTP server", "remote client", "page", "metrics", "TLS"]


def _get(url: str, token: str = "", context: ssl.SSLContext | None = None) -> str:
    """What a browser gets, or a program with a token."""
    headers = {"authorization": f"Bearer {token}"} if token else {"accept": "text/html"}
    with urllib.request.urlopen(
        urllib.request.Request(url, headers=headers), timeout=SECONDS, context=context
    ) as answer:
        return str(answer.read().decode())


def try_mcp(place: Place) -> list[str]:
    """An MCP server on standard input and output, asked as a client asks it."""
    place.run("holdfast", "init", "--dir", "asked")
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "smoke", "version": "1"}}
    calls: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": about},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
        {"id": 3, "method": "tools/call", "params": {"name": "task_create", "arguments": {"title": "from a model"}}},
    ]
    command = ["holdfast", "mcp", "--dir", "asked"]
    process = subprocess.Popen(
        command, cwd=place.folder, env=place.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    answers: dict[Any, Any] = {}
    for call in calls:  # one at a time: the end of the input ends the server, also in the midst of a call
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **call}) + "\n")
        process.stdin.flush()
        while "id" in call and call["id"] not in answers:
            message = json.loads(process.stdout.readline())
            answers[message.get("id")] = message
    process.communicate(timeout=SECONDS)
    assert len(answers[2]["result"]["tools"]) > 5, answers[2]
    assert not answers[3]["result"].get("isError"), answers[3]
    assert "from a model" in place.run("holdfast", "list", "--dir", "asked")
    return [f"MCP with {len(answers[2]['result']['tools'])} tools"]


def try_jetstream(place: Place) -> list[str]:
    """A workspace that follows a log in NATS."""
    return _replicate(place, f"{nats.shared_server().url}/smoke-{time.time_ns()}")


def try_postgres(place: Place) -> list[str]:
    """A workspace that follows a log in PostgreSQL."""
    return _replicate(place, f"{postgres.shared_server().url}&workspace=smoke-{time.time_ns()}")


def _replicate(place: Place, log: str) -> list[str]:
    place.run("holdfast", "init", "--dir", "one", "--log", log, "--create")
    place.run("holdfast", "init", "--dir", "other", "--log", log)
    place.run("holdfast", "create", "on every machine", "--dir", "one")
    place.run("holdfast", "next", "--dir", "other")
    shown = place.run("holdfast", "list", "--dir", "one", "--at-least", "latest")
    assert "in_progress" in shown, shown
    return ["two nodes"]


def try_langgraph(place: Place) -> list[str]:
    """A run that is killed, and goes on in another process."""
    assert "deployed: yes" in place.run("python", str(ROOT / "examples" / "langgraph_thread.py"))
    return ["a run"]


def try_openai_agents(place: Place) -> list[str]:
    """A session that the SDK knows as one."""
    program = """
import asyncio, holdfast
from agents.memory import Session
from holdfast.integrations.openai_agents import HoldfastSession
with holdfast.open(".holdfast", actor="smoke") as ws:
    chat = HoldfastSession("chat", ws)
    assert isinstance(chat, Session)
    asyncio.run(chat.add_items([{"role": "user", "content": "hello"}]))
    print(asyncio.run(chat.get_items()))
"""
    assert "hello" in place.run("python", "-c", program)
    return ["HoldfastSession"]


def try_demo(place: Place) -> list[str]:
    """The demo, to its end."""
    assert "12 of 12" in place.run("holdfast", "demo")
    return ["demo"]


def try_otel(place: Place) -> list[str]:
    """Operations that are observed, with nobody who receives it."""
    place.python(_OBSERVED + _LIBRARY)
    return ["telemetry"]


_OBSERVED: Final = "from holdfast import telemetry\ntelemetry.enable()\n"
TRIALS: Final[Mapping[str, Callable[[Place], list[str]]]] = {
    "": try_base,
    "server": try_server,
    "mcp": try_mcp,
    "jetstream": try_jetstream,
    "postgres": try_postgres,
    "demo": try_demo,
    "otel": try_otel,
    "langgraph": try_langgraph,
    "openai-agents": try_openai_agents,
}


def extras() -> list[str]:
    """The extras that users install, and nothing: the base."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return ["", *(name for name in project["optional-dependencies"] if name not in DEVELOPMENT)]


def main(chosen: list[str]) -> None:
    """Try the chosen extras, or all; the first that fails ends it."""
    if not list(DIST.glob(f"holdfast-{holdfast.__version__}-*.whl")):
        sys.exit(f"dist/ has no wheel of {holdfast.__version__}: make dist")
    for extra in extras():
        if chosen and (extra or "base") not in chosen:
            continue
        began = time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix="hf-smoke-"))
        try:
            place = Place(extra, folder)
            found = json.loads(place.run("holdfast", "version", "--json"))["data"]
            assert found["holdfast"] == holdfast.__version__, found
            assert not extra or extra in found["extras"], found
            tried = TRIALS[extra](place)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        print(f"{extra or 'base':<10} {', '.join(tried)}: works ({time.monotonic() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
