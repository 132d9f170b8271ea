"""The demo as a user starts it: it ends by itself, tells what happened, and its event log proves it."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast import Event

COMMAND = [sys.executable, "-m", "holdfast.demo"]
PATIENCE = 270


def field(output: str, name: str) -> str:
    """What the summary says under a name."""
    found = re.search(rf"^{re.escape(name)}  +(.*)$", output, re.MULTILINE)
    assert found, f"no {name!r} in\n{output}"
    return found[1].strip()


def agent_and_item(text: str) -> tuple[str, str]:
    found = re.match(r"(agent-\d+), in the middle of (item-\d+), which (agent-\d+) finished", text)
    assert found, text
    assert found[1] != found[3]
    return found[1], found[2]


def play(*arguments: str) -> str:
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def log_of(ws: holdfast.Workspace) -> list[Event]:
    events: list[Event] = []
    while page := ws.events.list(after=events[-1].cursor if events else 0, limit=1000):
        events += page
    return events


def test_the_demo_tells_that_every_item_was_done_once_although_one_agent_died_and_one_came_late(tmp_path: Path) -> None:
    output = play("--items", "6", "--dir", str(tmp_path / "ws"))
    assert field(output, "items done exactly once") == "6 of 6"
    assert field(output, "check") == "ok"
    killed, _ = agent_and_item(field(output, "killed with its lock"))
    paused, _ = agent_and_item(field(output, "paused past its lock"))
    assert killed != paused
    assert paused in field(output, "fenced").split(", ")
    assert killed not in field(output, "fenced").split(", ")


def test_the_event_log_of_the_demo_proves_what_it_told(tmp_path: Path) -> None:
    output = play("--items", "5", "--agents", "3", "--seed", "7", "--dir", str(tmp_path / "ws"))
    killed = agent_and_item(field(output, "killed with its lock"))
    paused = agent_and_item(field(output, "paused past its lock"))
    with holdfast.open(tmp_path / "ws", actor="tester") as ws:
        assert ws.check().problems == []
        assert field(output, "revision").startswith(f"{ws.revision},")
        assert ws.locks.list() == []
        log = log_of(ws)
        results = [event for event in log if event.scope.endswith("/results")]
        assert sorted(event.id for event in results) == [f"item-{number:02}" for number in range(1, 6)]
        for agent, item in (killed, paused):
            expired = expiry(log, agent, item)
            late = [e for e in log if e.actor == agent and e.revision > expired and e.id == item]
            assert late == [], f"{agent} changed {item} after its lock had expired"
            assert next(e.actor for e in results if e.id == item) != agent
        assert [e for e in log if e.actor == killed[0] and e.revision > expiry(log, *killed)] == []
        fenced = {event.id: event.data["value"] for event in log if event.scope.endswith("/fenced")}
        assert fenced[paused[0]]["item"] == paused[1]


def expiry(log: list[Event], agent: str, item: str) -> int:
    """The revision at which the lock that the agent had on the item ended by itself."""
    expired = [e for e in log if e.kind == "lock" and e.op == "expire" and e.id.endswith(item)]
    return [e.revision for e in expired if e.data["holder"] == [agent, None]][-1]


def test_a_second_demo_can_play_in_the_same_workspace(tmp_path: Path) -> None:
    for _ in range(2):
        output = play("--items", "1", "--agents", "3", "--dir", str(tmp_path / "ws"))
        assert field(output, "items done exactly once") == "1 of 1"


def test_on_a_terminal_the_demo_draws_a_live_picture_and_ends_with_the_summary(tmp_path: Path) -> None:
    terminal, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "--items", "3", "--dir", str(tmp_path / "ws")],
        stdout=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "140", "LINES": "50"},
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := read_terminal(terminal):
            shown += chunk
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    text = shown.decode().replace("\r\n", "\n")
    assert "lock held by" in text
    assert "\x1b[" in text
    assert field(text, "items done exactly once") == "3 of 3"


def read_terminal(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that the other side is gone
        return b""


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize(("stop", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_demo_leaves_no_process_behind(tmp_path: Path, stop: signal.Signals, code: int) -> None:
    folder = tmp_path / "ws"
    command = [*COMMAND, "--items", "18", "--dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert any("pauses agent" in line for line in process.stdout)  # by then one is dead and one is stopped
            assert agents_in(folder)
            process.send_signal(stop)
            process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == code
    assert agents_in(folder) == []
    with holdfast.open(folder, actor="tester") as ws:
        assert ws.check().problems == []


def agents_in(folder: Path) -> list[int]:
    """The processes of agents that work in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"holdfast.demo.agent" in command and os.fsencode(folder) in command:
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize("arguments", [["--agents", "2"], ["--items", "0"], ["--nonsense"]])
def test_the_demo_refuses_options_that_make_no_story(arguments: list[str]) -> None:
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert "usage:" in done.stderr
