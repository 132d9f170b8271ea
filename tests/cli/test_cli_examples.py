"""Every example of the command line runs: those of `holdfast help COMMAND`, which docs/cli.md has too.

Each runs in a git repository with a fresh workspace that has the tasks hf-7k2q and hf-3m9x. A line that only calls
holdfast runs inside this process, which takes a tenth of the time; every other line, and every command that starts
processes of its own, runs in a shell, as a reader would type it. What does not end by itself, or needs more than that,
is in `CARE`; nothing is skipped.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Final

import pytest

import holdfast
from holdfast.clock import SystemClock
from holdfast.faces.cli import main
from holdfast.faces.cli.command import all_commands
from holdfast.faces.cli.examples import EXAMPLES as HAND_MADE
from holdfast.faces.cli.examples import examples_of
from holdfast.route import Example
from tests.cli.calling import PATIENCE, environment
from tests.http.running import Running
from tests.worlds.postgres import shared_server

SERVER: Final = "http://127.0.0.1:4653"  # where examples think a server is
LOG: Final = "postgresql://db.example.com/fleet?workspace=a"  # and a log
_BEGUN: Final = "2026-01-01T00:00:00Z"
_TASKS: Final = {"hf-7k2q": "Write the parser", "hf-3m9x": "Test the parser"}


# Commands that start a process or a server, or replace what this process has for signals and streams.
_APART: Final = ("bench", "completion", "demo", "login", "mcp", "run", "serve", "setup", "turn transact", "ui", "watch")
_CALL: Final = re.compile(r"\$\((holdfast [^()|<>&;$]*)\)")
_QUOTED: Final = re.compile(r"'[^']*'")
_COMMENT: Final = re.compile(r"\s#.*$")
_SOURCE: Final = re.compile(r" < [\w./-]+$")
_SHELL: Final = re.compile(r"[$|<>&;*`(){}~\\\"\n]")


def is_plain(line: str) -> bool:
    """Whether a line does nothing but call holdfast, with what other such calls print and with a file as its input."""
    apart = any(line.startswith(f"holdfast {name}") for name in _APART)
    bare = _SOURCE.sub("", _CALL.sub("", _COMMENT.sub("", _QUOTED.sub("", line))))
    return line.startswith("holdfast ") and not apart and not _SHELL.search(bare)


class Playground:
    """A project with a workspace, and a shell in it."""

    def __init__(self, folder: Path, empty: bool = False) -> None:
        self.project = folder / "project"
        self.store = self.project / ".holdfast"
        self.project.mkdir()
        subprocess.run(["git", "init", "-q", str(self.project)], check=True, timeout=PATIENCE)
        if not empty:
            with holdfast.open(self.store, actor="planner") as workspace:
                workspace.tasks.import_([_line(id, title) for id, title in _TASKS.items()])
        program = folder / "bin" / "holdfast"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m holdfast "$@"\n')
        program.chmod(0o755)
        path = f"{program.parent}:{os.environ['PATH']}"
        self.env = environment(folder, HOLDFAST_ACTOR="agent-1", HOME=str(folder), PATH=path)

    def start(self, script: str) -> subprocess.Popen[str]:
        """A shell that runs a script; what ends a pipe badly counts."""
        pipe = subprocess.PIPE
        command = ["bash", "-o", "pipefail", "-c", script]
        return subprocess.Popen(
            command, cwd=self.project, env=self.env, stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )

    def call(self, line: str) -> tuple[int, str, str]:
        """Run a line to its end: inside this process if it only calls holdfast, otherwise in a shell."""
        return self._call_here(line) if is_plain(line) else self.run(line)

    def _call_here(self, line: str) -> tuple[int, str, str]:
        line = _CALL.sub(lambda found: self._call_here(found[1])[1].strip(), line)
        line, _, source = line.partition(" < ")
        given = (self.project / source).read_bytes() if source else b""
        streams = {
            "stdin": TextIOWrapper(BytesIO(given), encoding="utf-8"),
            "stdout": TextIOWrapper(BytesIO(), encoding="utf-8", write_through=True),
            "stderr": TextIOWrapper(BytesIO(), encoding="utf-8", write_through=True),
        }
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.project)
            for name in set(os.environ) - set(self.env):
                patch.delenv(name)
            for name, value in self.env.items():
                patch.setenv(name, value)
            for name, stream in streams.items():
                patch.setattr(sys, name, stream)
            code = main(shlex.split(line, comments=True)[1:])
        out, errors = (streams[name].detach().getvalue().decode() for name in ("stdout", "stderr"))
        return code, out, errors

    def run(self, script: str) -> tuple[int, str, str]:
        """Run a script to its end: exit code, output and errors."""
        with self.start(script) as shell:
            out, errors = shell.communicate(timeout=PATIENCE)
        return shell.returncode, out, errors


def _line(id: str, title: str) -> str:
    told = {"format": "holdfast.task/1", "id": id, "title": title, "created_at": _BEGUN, "updated_at": _BEGUN}
    return json.dumps(told)


@pytest.fixture
def playground(tmp_path: Path) -> Playground:
    return Playground(tmp_path)


# --- what needs care -------------------------------------------------------------------------------------------------


def _plainly(ground: Playground, line: str) -> tuple[int, str, str]:
    return ground.call(line)


def _stirred(ground: Playground, line: str) -> tuple[int, str, str]:
    """It waits for what others do: somebody goes on writing until it has seen that."""
    end = time.monotonic() + PATIENCE
    with ground.start(line) as shell, holdfast.open(ground.store, actor="agent-2") as other:
        try:
            while shell.poll() is None and time.monotonic() < end:
                other.tasks.note("hf-7k2q", "still here")
                other.cells.set("run-1", "status", "tested")
                try:
                    shell.wait(0.2)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            shell.kill()
        out, errors = shell.communicate(timeout=PATIENCE)
    assert "agent-2" in out
    return shell.returncode, out, errors


def _until_it_listens(ground: Playground, line: str) -> tuple[int, str, str]:
    """It runs until it is told to stop: it must come up, and end in peace."""
    with ground.start(f"exec {line}") as shell:
        try:
            assert shell.stdout is not None
            first = shell.stdout.readline()
            assert first.startswith("listening on http"), (first, shell.stderr and shell.stderr.read())
            shell.terminate()
            out, errors = shell.communicate(timeout=PATIENCE)
        finally:
            shell.kill()
    return shell.returncode, out, errors


def _until_it_is_hung_up_on(ground: Playground, line: str) -> tuple[int, str, str]:
    """It serves a client: it must answer the first call, and end when the client does."""
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}
    with ground.start(f"exec {line}") as shell:
        try:
            assert shell.stdin is not None
            assert shell.stdout is not None
            shell.stdin.write(json.dumps(hello) + "\n")
            shell.stdin.flush()
            assert "serverInfo" in json.loads(shell.stdout.readline())["result"]
            out, errors = shell.communicate(timeout=PATIENCE)
        finally:
            shell.kill()
    return shell.returncode, out, errors


def _with_a_server(ground: Playground, line: str) -> tuple[int, str, str]:
    """It calls a server, which has another address in every run."""
    server = Running(ground.store)
    try:
        return ground.run(line.replace(SERVER, server.url))
    finally:
        server.end()


def new_log() -> str:
    """The address of a log, on a server of this process."""
    return f"{shared_server().url}&workspace=team-{os.urandom(6).hex()}"


def _with_a_log(ground: Playground, line: str) -> tuple[int, str, str]:
    """It needs a database, or a workspace that is in one."""
    log = new_log()
    if "replicate" not in line:
        holdfast.replicate(ground.store, log, create=True)
    return ground.call(line.replace(LOG, log))


def _an_hour_ahead(ground: Playground, line: str) -> tuple[int, str, str]:
    """It puts a workspace right that a wrong clock has brought out of time."""

    class Wrong(SystemClock):
        def wall(self) -> int:
            return super().wall() + 3600 * 1_000_000

    with holdfast.open(ground.store, actor="agent-2", clock=Wrong()) as workspace:
        workspace.tasks.note("hf-7k2q", "written by a machine whose clock is wrong")
    return ground.run(line)


# By command, or by line where only that one needs it.
CARE: Final[dict[str, Callable[[Playground, str], tuple[int, str, str]]]] = {
    "serve": _until_it_listens,
    "mcp": _until_it_is_hung_up_on,
    "login": _with_a_server,
    "ui": _with_a_server,
    "replicate": _with_a_log,
    "detach": _with_a_log,
    "rebuild": _with_a_log,
    "clock reset": _an_hour_ahead,
    "holdfast watch --for task.hf-7k2q --once --timeout 10m": _stirred,
    "holdfast cell watch run-1 status --timeout 10m": _stirred,
}


# --- the tests -------------------------------------------------------------------------------------------------------

EXAMPLES: Final = {command.name: examples_of(command) for command in all_commands()}
_ALL: Final = [(name, example) for name, examples in EXAMPLES.items() for example in examples]


def test_i7_every_command_has_an_example_and_every_example_a_command() -> None:
    assert HAND_MADE.keys() <= EXAMPLES.keys()
    assert [name for name, examples in EXAMPLES.items() if not examples] == []


def test_i7_an_example_shows_the_command_that_it_stands_under() -> None:
    assert [example.line for name, example in _ALL if f"holdfast {name}" not in example.line] == []


def test_i7_what_is_handled_with_care_exists() -> None:
    assert CARE.keys() <= {*EXAMPLES, *(example.line for _, example in _ALL)}


def test_i7_most_examples_run_here_and_a_shell_runs_what_needs_one() -> None:
    lines = [example.line for _, example in _ALL]
    assert len([line for line in lines if is_plain(line)]) > len(lines) * 3 // 4
    assert is_plain("holdfast mail get $(holdfast mail inbox -q --limit 1)  # exit code 0; nothing else")
    assert is_plain("holdfast note hf-7k2q 'a; b | c > d' < notes.md")
    for line in ("holdfast export | grep x", "holdfast guard x && echo y", "id=$(holdfast next -q)", "holdfast serve"):
        assert not is_plain(line)


@pytest.mark.parametrize(("name", "example"), _ALL, ids=[example.line for _, example in _ALL])
def test_i7_an_example_runs_and_ends_with_its_exit_code(playground: Playground, name: str, example: Example) -> None:
    for line in example.after:
        code, out, errors = playground.call(line)
        assert code == 0, (line, out, errors)
    run = CARE.get(example.line) or CARE.get(name) or _plainly
    code, out, errors = run(playground, example.line)
    _, stated, rest = example.line.partition("# exit code ")
    assert code == (int(rest.partition(":")[0]) if stated else 0), (out, errors)
    assert "Traceback" not in errors
