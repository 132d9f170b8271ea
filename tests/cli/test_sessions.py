"""Twenty sessions at once on one repository (issue 22): the hooks of four clients, shells, MCP servers, and kills.

Each session is a process that does what a client does: it runs the lines that `setup` wrote into the client's own file,
with the input, the variables and the shell of that client, and edits a file only if that client would. Sessions lock
folders by shell and over MCP, claim tasks, edit where they hold the lock and where they do not, are killed with what
runs below them, resume, and end. The program of a hook is killed too, which must refuse.

The log judges: what was allowed while another session held the path all the time, what was refused while nobody else
held it, and whose name a lock got. A refusal because the program did not decide in time is no wrong decision.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import holdfast
from holdfast.client_sessions import session_actor
from holdfast.domains.paths.patterns import covers
from holdfast.testing import ManualClock
from tests.amounts import LONG, amount, chance
from tests.cli.calling import HOLDFAST, PATIENCE, Shell
from tests.http.running import Running

SESSIONS = amount(4, 20)
TURNS = amount(6, 40)
FOLDERS = amount(2, 8)  # that they want to have
FORMATS = ("claude", "codex", "cursor", "gemini")
SERVED = (False, True) if LONG else (chance("sessions at once").random() < 0.5,)

# Runs what it is told below itself, and keeps an MCP server; a line of JSON each. With `kill`, the program below the
# shell is killed after that many seconds.
CLIENT = """
import json, os, subprocess, sys, threading
server, number = None, 0

def below(pid):
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                rest = open(f"/proc/{name}/stat").read().rpartition(")")
            except OSError:
                continue
            parents.setdefault(int(rest[2].split()[1]), []).append((int(name), rest[0].partition("(")[2]))
    found = []
    for child, name in parents.get(pid, ()):
        found += [(child, name), *below(child)]
    return found

def strike(pid):
    for child, name in below(pid):
        if name not in ("sh", "dash", "bash", "sleep"):
            try:
                os.kill(child, 9)
            except ProcessLookupError:
                pass

def run(command, text, more, kill):
    how = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process = subprocess.Popen(command, env={**os.environ, **more}, **how)
    timer = threading.Timer(kill, strike, [process.pid])
    if kill:
        timer.start()
    out, err = process.communicate(text)
    timer.cancel()
    return [process.returncode, out, err]

def ask(method, params):
    global number
    number += 1
    server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\\n")
    server.stdin.flush()
    for line in server.stdout:
        answer = json.loads(line)
        if answer.get("id") == number:
            return answer
    raise SystemExit("the MCP server ended")

def talk(command, call):
    global server
    if server is None:
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        info = {"name": "stand-in", "version": "1"}
        ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info})
        server.stdin.write(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}) + "\\n")
    return ask("tools/call", call)

for line in sys.stdin:
    what, *given = json.loads(line)
    print(json.dumps({"run": run, "talk": talk}[what](*given)), flush=True)
if server is not None:
    server.stdin.close()
    server.wait()
"""


class Died(Exception):
    """The client was killed during a call."""


class Edit(NamedTuple):
    """An edit that a session asked for, with the revisions before and after its hook ran."""

    actor: str
    path: str
    before: int
    after: int
    allowed: bool
    said: str


class Got(NamedTuple):
    """A lock that a session was granted, with the revisions before and after."""

    actor: str
    folder: str
    before: int
    after: int


class Format:
    """A client: the lines that setup wrote for it, and how it speaks to them."""

    def __init__(self, name: str, root: Path) -> None:
        self.name = name
        self.root = root
        file = {"claude": "settings.json", "gemini": "settings.json"}.get(name, "hooks.json")
        hooks = json.loads((root / f".{name}" / file).read_text())["hooks"]
        # Names differ in case between clients only; each of ours has one entry with one command.
        self.lines = {event.lower(): self._line(*entries) for event, entries in hooks.items()}
        (self.edits,) = hooks["BeforeTool" if name == "gemini" else "preToolUse" if name == "cursor" else "PreToolUse"]

    def _line(self, entry: dict[str, Any]) -> str:
        (hook,) = entry.get("hooks", [entry])
        return str(hook["command"])

    def server(self) -> list[str]:
        """How the client starts the MCP server."""
        if self.name == "codex":
            found = tomllib.loads((self.root / ".codex" / "config.toml").read_text())["mcp_servers"]["holdfast"]
        else:
            file = {"claude": ".mcp.json", "cursor": ".cursor/mcp.json"}.get(self.name, ".gemini/settings.json")
            found = json.loads((self.root / file).read_text())["mcpServers"]["holdfast"]
        return [found["command"], *found["args"]]

    def command(self, event: str) -> list[str]:
        """How the client runs a line."""
        return ["bash" if self.name == "gemini" else "sh", "-c", self.lines[event]]

    def environ(self) -> dict[str, str]:
        """What the client adds to the environment."""
        return {"claude": {"CLAUDE_PROJECT_DIR": str(self.root)}, "gemini": {"GEMINI_PROJECT_DIR": str(self.root)}}.get(
            self.name, {}
        )

    def told(self, event: str, session: str, **more: Any) -> str:
        """The input of a hook."""
        id = {"conversation_id": session, "cursor_version": "1"} if self.name == "cursor" else {"session_id": session}
        where = {"workspace_roots": [str(self.root)]} if self.name == "cursor" else {"cwd": str(self.root)}
        return json.dumps({"hook_event_name": event, **id, **where, **more})

    def edit(self, path: str) -> dict[str, Any]:
        """What it tells of an edit."""
        if self.name == "codex":
            patch = f"*** Begin Patch\n*** Update File: {path}\n+x\n*** End Patch\n"
            tool, given = "apply_patch", {"command": patch}
        else:
            tool, given = "write_file" if self.name == "gemini" else "Write", {"file_path": str(self.root / path)}
        assert re.fullmatch(self.edits["matcher"], tool), "the client would not ask"
        return {"tool_name": tool, "tool_input": given}

    def allows(self, code: int, out: str) -> bool:
        """Whether the client edits after this answer: any exit code but 2 is consent, unless its own file forbids."""
        if self.name == "cursor" and (code not in (0, 2) and self.edits["failClosed"]):
            return False
        return code != 2 and '"deny"' not in out


class Session:
    """A session of a client, which lives in a process until it ends or is killed."""

    def __init__(self, format: Format, shell: Shell, id: str) -> None:
        self.format = format
        self.id = id
        self.actor = session_actor(format.name, id)
        self.folder: str | None = None  # that it holds
        self.task: str | None = None
        self.process = subprocess.Popen(
            [sys.executable, "-c", CLIENT],
            cwd=shell.folder,
            env=shell.environ | format.environ(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.hook("sessionstart")

    def _call(self, *words: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(words) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise Died from error
        line = self.process.stdout.readline()
        if not line:
            raise Died
        return json.loads(line)

    def hook(self, event: str, kill: float = 0.0, **more: Any) -> tuple[int, str, str]:
        """Run a hook, if the client has it."""
        names = {"gemini": {"pretooluse": "beforetool", "userpromptsubmit": "beforeagent", "stop": "afteragent"}}
        event = names.get(self.format.name, {}).get(event, event)
        if event not in self.format.lines:
            return 0, "", ""
        told = self.format.told(event, self.id, **more)
        code, out, err = self._call("run", self.format.command(event), told, {}, kill)
        return code, out, err

    def shell(self, *words: str) -> tuple[int, str]:
        """`holdfast WORDS` in the shell of the session, which names nobody."""
        code, out, _ = self._call("run", ["sh", "-c", '"$@"; exit $?', "sh", *HOLDFAST, *words], "", {}, 0.0)
        return code, out.strip()

    def tool(self, name: str, **given: Any) -> bool:
        """Call a tool over MCP; whether it was done."""
        meta = {"x-codex-turn-metadata": json.dumps({"session_id": self.id})} if self.format.name == "codex" else {}
        call = {"name": name, "arguments": given, "_meta": meta}
        answer = self._call("talk", self.format.server(), call)
        return not answer["result"].get("isError")

    def kill(self, whole: bool) -> None:
        """Kill the client, or all that runs below it too."""
        if whole:
            os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()
        self.close()

    def close(self) -> None:
        """Wait for its end."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):  # it was killed
            self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(PATIENCE)


class Driver:
    """What one after another of the sessions of a thread does, at random."""

    def __init__(self, number: int, shell: Shell, workspace: holdfast.Workspace) -> None:
        self.dice = random.Random(f"{chance('sessions').random()} {number}")
        self.number = number
        self.shell = shell
        self.workspace = workspace
        self.format = Format(FORMATS[number % len(FORMATS)], shell.folder)
        self.mcp = number % 4 == (number // 4) % 4  # each format has some that lock over MCP
        self.edits: list[Edit] = []
        self.locks: list[Got] = []
        self.kills = self.count = 0
        self.ended: list[str] = []
        self.session = self.begin()

    def begin(self) -> Session:
        """Another session."""
        self.count += 1
        return Session(self.format, self.shell, f"session-{self.number}-{self.count}")

    def resume(self) -> None:
        """The same session in another process."""
        old, self.session = self.session, Session(self.format, self.shell, self.session.id)
        self.session.folder, self.session.task = old.folder, old.task

    def work(self) -> None:
        """All its turns; the last session ends if its number is even, and is killed otherwise."""
        for turn in range(TURNS):
            try:
                self.turn(turn)
            except Died:
                self.after_kill()
        if self.number % 2:
            self.session.kill(True)
            return
        self.session.hook("stop")
        code, _, _ = self.session.hook("sessionend", reason="exit")
        self.session.close()
        if "sessionend" in self.format.lines and code == 0:  # else it was too slow, and what is held expires
            self.ended.append(self.session.actor)

    def after_kill(self) -> None:
        """Another session, or the same again."""
        self.kills += 1
        self.session.close()
        if self.dice.random() < 0.6:
            self.resume()
        else:
            self.session = self.begin()

    def turn(self, turn: int) -> None:
        """One turn."""
        draw = self.dice.random()
        if self.session.folder is None:
            self.lock()
        if draw < 0.45:
            self.edit(self.session.folder or self.any_folder())
        elif draw < 0.7:
            self.edit(self.any_folder())
        elif draw < 0.8:
            self.edit(self.any_folder(), kill=self.dice.uniform(0.005, 0.3))
        elif draw < 0.85:
            self.session.hook("userpromptsubmit", prompt="go on")
        elif draw < 0.92:
            self.release()
        else:
            timer = threading.Timer(self.dice.uniform(0, 0.3), self.strike, [self.session, self.dice.random() < 0.5])
            timer.start()
            try:
                self.edit(self.any_folder())
            finally:
                timer.join()
            raise Died

    def strike(self, session: Session, whole: bool) -> None:
        """Kill a session during its call."""
        if whole:
            os.killpg(session.process.pid, signal.SIGKILL)
        else:
            session.process.kill()

    def any_folder(self) -> str:
        return f"area-{self.dice.randrange(FOLDERS)}"

    def lock(self) -> None:
        """Lock a folder, for a task or for a time, by shell or over MCP; somebody may have it."""
        folder, session = self.any_folder(), self.session
        before = self.workspace.revision
        if self.mcp and self.dice.random() < 0.5:
            done = session.tool("paths", action="lock", paths=[f"{folder}/**"], ttl=600)
        else:
            if session.task is None and self.dice.random() < 0.5:
                code, task = session.shell("next", "-q")
                session.task = task if code == 0 else None
            words = ["--task", session.task] if session.task else ["--ttl", "600"]
            done = session.shell("path", "lock", f"{folder}/**", *words)[0] == 0
        if done:
            session.folder = folder
            self.locks.append(Got(session.actor, folder, before, self.workspace.revision))

    def release(self) -> None:
        """Give back what it holds."""
        session = self.session
        if session.task:
            session.shell("done", session.task, "finished")
        session.shell("path", "release")
        session.task = session.folder = None

    def edit(self, folder: str, kill: float = 0.0) -> None:
        """Ask for an edit, and make it if the client would."""
        path = f"{folder}/file-{self.dice.randrange(3)}"
        before = self.workspace.revision
        code, out, err = self.session.hook("pretooluse", kill, **self.format.edit(path))
        after = self.workspace.revision
        allowed = self.format.allows(code, out)
        self.edits.append(Edit(self.session.actor, path, before, after, allowed, (err + out).strip()))
        if allowed:
            with open(self.shell.folder / path, "a", encoding="utf-8") as file:
                file.write(f"{self.session.actor}\n")


class Held(NamedTuple):
    """A lock of the log, from one revision until before another."""

    holder: str
    patterns: Sequence[str]
    begin: int
    end: float

    def covers(self, path: str) -> bool:
        return any(covers(pattern, path) for pattern in self.patterns)


def held_in(log: Sequence[holdfast.Event]) -> list[Held]:
    """Every lock of a log."""
    found: dict[str, Held] = {}
    for event in log:
        if event.op == "acquire":
            found[event.id] = Held(event.data["holder"][1], event.data["patterns"][1], event.revision, float("inf"))
        elif event.op in ("release", "expire"):
            found[event.id] = found[event.id]._replace(end=event.revision)
    return list(found.values())


def log_of(workspace: holdfast.Workspace) -> list[holdfast.Event]:
    """All that happened to locks of paths."""
    found: list[holdfast.Event] = []
    after = None
    while True:
        page = workspace.events.list(kinds=["path"], after=after, limit=1000)
        found += page
        if page.cursor is None:
            return found
        after = page.cursor


@contextmanager
def server(shell: Shell, served: bool) -> Iterator[None]:
    """With a server on the folder, which then decides, or without."""
    running = Running(shell.folder / ".holdfast") if served else None
    try:
        yield
    finally:
        if running is not None:
            running.end()


@pytest.mark.early
@pytest.mark.timeout(amount(600, 1800))
@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="kills programs by what /proc tells")
@pytest.mark.parametrize("served", SERVED)
def test_i22_sessions_at_once_edit_only_what_no_other_holds_and_never_lock_themselves_out(
    shell: Shell, repository: Path, served: bool
) -> None:
    assert shell("init").code == 0
    for name in FORMATS:
        done = shell("setup", name, *(["--release"] if name != "codex" else []))
        assert done.code == 0, done
    for folder in range(FOLDERS):
        (repository / f"area-{folder}").mkdir()
    with holdfast.open(repository / ".holdfast", actor="boss") as workspace:
        for number in range(SESSIONS * TURNS // 8):
            workspace.tasks.create(f"task {number}")
        failures: list[BaseException] = []
        drivers: list[Driver] = []

        def work(number: int) -> None:
            try:
                driver = Driver(number, shell, workspace)
                drivers.append(driver)
                driver.work()
            except BaseException as error:  # of a thread: raised below
                failures.append(error)
                raise

        with server(shell, served):
            threads = [threading.Thread(target=work, args=[number]) for number in range(SESSIONS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert not failures
        locks = held_in(log_of(workspace))
        judge(drivers, locks)
        for actor in (name for driver in drivers for name in driver.ended):
            assert not [lock for lock in workspace.paths.list() if lock.holder == actor], "the end of a session"
            assert not workspace.tasks.list(claimed_by=actor), "releases what it holds"
    ends(repository)


def judge(drivers: Sequence[Driver], locks: Sequence[Held]) -> None:
    """No edit of what another held all the time, no refusal without another's lock, each lock in its session's name."""
    edits = [edit for driver in drivers for edit in driver.edits]
    for edit in edits:
        others = [lock for lock in locks if lock.holder != edit.actor and lock.covers(edit.path)]
        if edit.allowed:
            kept = [lock for lock in others if lock.begin <= edit.before and lock.end > edit.after]
            assert not kept, f"{edit} was allowed, against {kept}"
        elif "decided nothing" not in edit.said:
            assert [lock for lock in others if lock.begin <= edit.after and lock.end > edit.before], edit
            assert "locked by" in edit.said, edit
    for got in (got for driver in drivers for got in driver.locks):
        own = [lock for lock in locks if lock.holder == got.actor and lock.covers(f"{got.folder}/x")]
        assert [lock for lock in own if lock.begin <= got.after and lock.end > got.before], f"{got} has another name"
    kinds = Counter(
        "allowed" if edit.allowed else "undecided" if "decided nothing" in edit.said else "refused" for edit in edits
    )
    sessions, kills = sum(driver.count for driver in drivers), sum(driver.kills for driver in drivers)
    granted = sum(len(driver.locks) for driver in drivers)
    print(f"\n{sessions} sessions, {kills} killed, {granted} locks granted, {len(edits)} edits: {dict(kinds)}")
    assert {driver.format.name for driver in drivers} == set(FORMATS)


def ends(repository: Path) -> None:
    """When time has passed, nothing that a killed session held is left."""
    clock = ManualClock()
    clock.advance(time.time() + 2 * 3600 - clock.wall() / 1e6)
    with holdfast.open(repository / ".holdfast", actor="boss", clock=clock) as workspace:
        assert list(workspace.paths.list()) == []
        assert {task.claimed_by for task in workspace.tasks.list(limit=1000)} == {None}
        workspace.cells.set("run", "cell", 1)  # a write, which clears away what has ended
        assert {lock.end for lock in held_in(log_of(workspace))} <= {*range(workspace.revision + 1)}
        assert workspace.check().ok
