"""One identity for each client session (issue 22): hooks, the shell and MCP below one client are one agent.

The clients are real processes: a stand-in that does on command what a client does, start hooks and shells below it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import client_sessions
from holdfast.client_sessions import Several, actor_for, record, runs, session_actor
from holdfast.faces.cli.commands.mcp import codex_session
from tests.cli.calling import HOLDFAST, Answer, Shell
from tests.http.running import Running

# Runs what it is told, a line of JSON each, below itself, as clients do: by a shell.
CLIENT = """
import json, subprocess, sys
for line in sys.stdin:
    words, told = json.loads(line)
    done = subprocess.run(["sh", "-c", '"$@"; exit $?', "sh", *words], input=told, capture_output=True, text=True)
    print(json.dumps([done.returncode, done.stdout, done.stderr]), flush=True)
"""


class Client:
    """A client's process."""

    def __init__(self, shell: Shell) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CLIENT],
            cwd=shell.folder,
            env=shell.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *words: str, told: Any = None) -> Answer:
        """`holdfast WORDS` below the client."""
        return self.run([*HOLDFAST, *words], "" if told is None else json.dumps(told))

    def run(self, command: list[str], text: str) -> Answer:
        """Any command below the client, with a text on its standard input."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([command, text]) + "\n")
        self.process.stdin.flush()
        return Answer(*json.loads(self.process.stdout.readline()))

    def hook(self, event: str, session: str, **more: Any) -> Answer:
        """A hook of the client, for a session."""
        command = "guard" if event == "PreToolUse" else "prime"
        return self(command, "--hook", "claude", told={"hook_event_name": event, "session_id": session, **more})

    def edit(self, path: Path, session: str) -> Answer:
        """The hook before an edit."""
        return self.hook("PreToolUse", session, tool_name="Write", tool_input={"file_path": str(path)})

    def end(self) -> None:
        """End it."""
        self.process.communicate(timeout=180)


@pytest.fixture
def clients(shell: Shell, repository: Path) -> Iterator[Callable[[], Client]]:
    assert shell("init").code == 0
    made: list[Client] = []

    def make() -> Client:
        made.append(Client(shell))
        return made[-1]

    yield make
    for each in made:
        each.end()


def test_i22_the_shell_below_a_client_acts_as_its_session_and_others_do_not(
    clients: Callable[[], Client], shell: Shell, repository: Path
) -> None:
    one, two = clients(), clients()
    one.hook("SessionStart", "s-1")
    two.hook("SessionStart", "s-2")
    first, second = session_actor("claude", "s-1"), session_actor("claude", "s-2")
    assert one("path", "lock", "src/**").code == 0, "without a name, and allowed"
    assert shell("path", "list", "--json").data[0]["holder"] == first
    assert one.edit(repository / "src" / "x", "s-1").code == 0, "it does not lock itself out"
    refused = two.edit(repository / "src" / "x", "s-2")
    assert (refused.code, first in refused.err) == (2, True)
    assert two("where", "--json").data["actor"] == second
    assert one("--actor", "named", "where", "--json").data["actor"] == "named", "an explicit name goes first"
    assert shell("path", "lock", "docs/**").code != 0, "a process outside of the clients has no name"


def test_i22_a_session_that_is_resumed_in_another_process_keeps_its_name(
    clients: Callable[[], Client], repository: Path
) -> None:
    one = clients()
    one.hook("SessionStart", "s-1")
    assert one("path", "lock", "src/**").code == 0
    one.end()
    again = clients()
    again.hook("SessionStart", "s-new")
    assert again.edit(repository / "src" / "x", "s-new").code == 2
    again.hook("SessionStart", "s-1", source="resume")
    assert again.edit(repository / "src" / "x", "s-1").code == 0
    assert again("path", "release").code == 0, "in the shell too: the latest session of a process counts"


STARTS = {"claude": "SessionStart", "codex": "SessionStart", "cursor": "sessionStart", "gemini": "SessionStart"}


@pytest.mark.parametrize("name", STARTS)
def test_i22_of_several_sessions_in_one_process_none_is_guessed(
    clients: Callable[[], Client], repository: Path, name: str
) -> None:
    one = clients()

    def start(session: str, **more: Any) -> None:
        id = {"conversation_id": session, "cursor_version": "1"} if name == "cursor" else {"session_id": session}
        assert one("prime", "--hook", name, told={"hook_event_name": STARTS[name], **id, **more}).code == 0

    def who() -> str:
        return str(one("where", "--json").data["actor"])

    source = {} if name == "cursor" else {"source": "startup"}
    start("s-1", **source)
    assert who() == session_actor(name, "s-1")
    start("s-2", **source)
    refused = one("path", "lock", "src/**", "--json")
    assert refused.code != 0, "the first has not ended, and may be the one that calls"
    assert "--actor" in refused.error["hint"]
    assert "several sessions" in one("where").out
    assert one("path", "lock", "src/**", "--actor", session_actor(name, "s-1")).code == 0, "that was told to each"
    if name != "codex":  # which reports no end
        end = "sessionEnd" if name == "cursor" else "SessionEnd"
        told = {"hook_event_name": end, "session_id": "s-1", "cursor_version": "1"}
        assert one("prime", "--hook", name, told=told).code == 0
        assert who() == session_actor(name, "s-2")


def test_i22_a_session_that_follows_another_takes_its_place_until_that_acts_again(
    clients: Callable[[], Client], repository: Path
) -> None:
    one = clients()
    one.hook("SessionStart", "s-1", source="startup")
    one.hook("SessionStart", "s-1", source="compact")
    one.hook("SessionStart", "s-2", source="clear")
    assert one("where", "--json").data["actor"] == session_actor("claude", "s-2")
    one.edit(repository / "x", "s-1")
    assert one("path", "lock", "src/**", "--json").code != 0
    one.hook("SessionStart", "s-2", source="compact")
    one.hook("SessionStart", "s-3", source="resume")
    assert "several sessions" in one("where").out, "nobody knows which of the two it follows"
    for ended in ("s-1", "s-2"):
        one.hook("SessionEnd", ended)
    assert one("path", "lock", "src/**").code == 0


def test_i22_hooks_leave_a_record_that_check_and_doctor_show(clients: Callable[[], Client], shell: Shell) -> None:
    assert shell("setup", "claude").code == 0
    before = shell("setup", "claude", "--check")
    assert before.code == 0, before
    assert "claude guard: installed, never ran" in before.out
    assert "claude guard: installed, never ran" in shell("doctor").out
    one = clients()
    one.hook("SessionStart", "s-1")
    one.edit(shell.folder / "x", "s-1")
    after = shell("setup", "claude", "--check").out
    assert f"claude guard: last ran just now for {session_actor('claude', 's-1')}" in after
    assert "claude prime: last ran just now" in shell("doctor").out


@pytest.mark.parametrize("client", ["claude", "codex", "cursor", "gemini", "git"])
def test_i22_check_runs_the_hooks_and_reports_one_that_lets_through(
    shell: Shell, repository: Path, tmp_path: Path, client: str
) -> None:
    assert shell("init").code == 0
    set_up = shell("setup", client)
    assert set_up.code == 0
    assert ("trust" in set_up.err) == (client != "git"), "the one thing that the person must do"
    assert shell("setup", client, "--check").code == 0
    program = repository / ".holdfast" / "program"
    kept = program.read_text()
    lax = tmp_path / "lax"
    lax.write_text("#!/bin/sh\nexit 0\n")
    lax.chmod(0o755)
    program.write_text(f"{lax}\n")
    found = shell("setup", client, "--check")
    assert (found.code, "is let through" in found.out) == (1, True), found
    assert f"{client}: the guard does not work" in shell("doctor").out
    program.write_text("/nowhere\n")
    gone = shell.with_(PATH="/usr/bin:/bin")("setup", client, "--check")
    assert (gone.code, "no program holdfast" in gone.out) == (1, True), gone
    program.write_text(kept)
    assert shell("setup", client, "--check").code == 0
    assert shell("path", "list", "--json").data == [], "and nothing was written"


def test_setup_without_a_workspace_says_so(shell: Shell, repository: Path) -> None:
    said = "there is no workspace yet, so the hooks allow everything: holdfast init makes one"
    assert said in " ".join(shell("setup", "claude").err.split())
    assert shell("init").code == 0
    assert said not in " ".join(shell("setup", "claude").err.split())


def test_i22_a_text_that_changed_must_be_trusted_again(shell: Shell, repository: Path) -> None:
    shell("init")
    first = shell("setup", "codex")
    assert "trust" in first.err
    assert "again" not in first.err
    assert shell("setup", "codex").err == ""
    assert "trust it again" in shell("setup", "codex", "--lenient").err


# --- the record itself ------------------------------------------------------------------------------------------------


def test_i22_the_record_follows_the_sessions_of_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(tmp_path)
    found = client_sessions._process(os.getppid())
    assert found is not None
    me = found[1]
    monkeypatch.setattr(client_sessions, "_SHELLS", set())
    monkeypatch.setattr(client_sessions, "ancestors", lambda: iter([me]))

    def call(session: str, event: str = "edit") -> None:
        record(folder, "claude-guard", session, f"a-{session}", event)

    assert actor_for(folder) is None
    call("1")
    assert actor_for(folder) == "a-1", "also if its start was not seen"
    call("2", "next")
    assert actor_for(folder) == "a-2"
    call("3", "start")
    with pytest.raises(Several, match="a-2, a-3"):
        actor_for(folder)
    call("3", "end")
    assert actor_for(folder) == "a-2"
    call("2", "end")
    assert actor_for(folder) is None
    assert runs(folder)["claude-guard"][1] == "a-2"


def test_i22_the_processes_above_are_told_alike_with_and_without_proc() -> None:
    with_proc = client_sessions._process(os.getpid())
    without = client_sessions._asked(os.getpid())
    assert with_proc is not None
    if without is None:
        pytest.skip("there is no ps")
    assert (with_proc[0], with_proc[1][0]) == (without[0], without[1][0])
    assert without == client_sessions._asked(os.getpid()), "the start of a process does not change"


def test_i22_a_later_process_with_the_same_pid_is_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_sessions, "ancestors", lambda: iter([(4242, "7", "client")]))
    record(str(tmp_path), "claude-prime", "s", "a", "edit")
    monkeypatch.setattr(client_sessions, "ancestors", lambda: iter([(4242, "8", "client")]))
    assert actor_for(str(tmp_path)) is None
    record(str(tmp_path), "claude-prime", "s", "a", "start")
    assert not (tmp_path / "sessions" / "4242-7").exists(), "what has ended is forgotten"


def test_i22_relayed_commands_have_the_same_identity(
    clients: Callable[[], Client], shell: Shell, repository: Path
) -> None:
    """A server carries out commands of others: it knows the caller's session by what the caller says."""
    server = Running(repository / ".holdfast")
    try:
        one = clients()
        one.edit(repository / "src" / "x", "s-1")
        assert one("path", "lock", "src/**").code == 0
        assert shell("path", "list", "--json").data[0]["holder"] == session_actor("claude", "s-1")
        assert one.edit(repository / "src" / "x", "s-1").code == 0
        assert clients().edit(repository / "src" / "x", "s-2").code == 2
    finally:
        server.end()


# --- MCP --------------------------------------------------------------------------------------------------------------


def call_lock(client: Client, session: str, **meta: Any) -> Any:
    """Lock src over an MCP server that the client starts, which has no name of its own; its answer."""
    return call_tool(client, "paths", LOCK, meta)


def call_tool(client: Client, name: str, arguments: dict[str, Any], meta: dict[str, Any] | None = None) -> Any:
    """Call a tool likewise."""
    sent = [
        {"method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": INFO}},
        {"method": "tools/call", "params": {"name": name, "arguments": arguments, "_meta": meta or {}}},
    ]
    lines = [json.dumps({"jsonrpc": "2.0", "id": number, **each}) for number, each in enumerate(sent)]
    lines.insert(1, json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}))
    done = client.run([sys.executable, "-c", TALK, *HOLDFAST, "mcp"], "".join(f"{line}\n" for line in lines))
    return json.loads(done.out)["result"]


# Starts a server, sends it all and waits for the answer to the last: a server whose input ends answers no more.
TALK = """
import json, subprocess, sys
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
server.stdin.write(sys.stdin.read())
server.stdin.flush()
for line in server.stdout:
    if json.loads(line).get("id") == 1:
        print(line)
        break
server.stdin.close()
server.wait(30)
"""
INFO = {"name": "stand-in", "version": "1"}
LOCK = {"action": "lock", "paths": ["src/**"]}


def test_i22_a_lock_over_mcp_is_the_sessions_own_to_its_hooks_and_shell(
    clients: Callable[[], Client], shell: Shell, repository: Path
) -> None:
    one, two = clients(), clients()
    nobody = call_lock(one, "s-1")
    assert nobody["isError"], "before any hook ran nobody knows who it is"
    one.hook("SessionStart", "s-1")
    assert not call_lock(one, "s-1").get("isError")
    assert shell("path", "list", "--json").data[0]["holder"] == session_actor("claude", "s-1")
    assert one.edit(repository / "src" / "x", "s-1").code == 0
    assert one("guard", "src/x").code == 0
    assert two.edit(repository / "src" / "x", "s-2").code == 2


def test_over_mcp_none_of_several_sessions_is_guessed_and_the_refusal_names_them(
    clients: Callable[[], Client], shell: Shell
) -> None:
    one = clients()
    one.hook("SessionStart", "s-1", source="startup")
    one.hook("SessionStart", "s-2", source="startup")
    refused = json.loads(call_lock(one, "s-1")["content"][0]["text"].split("\n")[1])
    assert refused["code"] == "INVALID_HOLDER"
    both = ", ".join(sorted(session_actor("claude", each) for each in ("s-1", "s-2")))
    assert f"several sessions of this client act at once: {both}" in refused["message"]
    assert "end the others, or start this server with `holdfast mcp --actor NAME`" in refused["hint"]
    assert not call_tool(one, "task_list", {}).get("isError"), "what needs no name is not refused"
    one.hook("SessionEnd", "s-1")
    assert not call_lock(one, "s-2").get("isError"), "as it was told"
    assert shell("path", "list", "--json").data[0]["holder"] == session_actor("claude", "s-2")


@pytest.mark.parametrize("served", [False, True], ids=["store", "server"])
def test_in_a_shell_the_refusal_names_the_sessions_and_proposes_the_name_of_ones_own(
    clients: Callable[[], Client], repository: Path, served: bool
) -> None:
    server = Running(repository / ".holdfast") if served else None
    try:
        one = clients()
        one.hook("SessionStart", "s-1", source="startup")
        one.hook("SessionStart", "s-2", source="startup")
        both = ", ".join(sorted(session_actor("claude", each) for each in ("s-1", "s-2")))
        for words in (("path", "lock", "w/**"), ("next",)):
            refused = one(*words, "--json")
            assert refused.error["code"] == "INVALID_HOLDER"
            assert f"several sessions of this client act at once: {both}" in refused.error["error"]
            assert refused.error["hint"].startswith("add --actor NAME with the name of your own session")
            assert "HOLDFAST_ACTOR" not in refused.error["hint"], "both would take the same name"
        assert one("list").code == 0, "what needs no name is not refused"
        own = session_actor("claude", "s-1")
        assert one("path", "lock", "w/**", "--actor", own).code == 0
        assert one.edit(repository / "w" / "f", "s-1").code == 0
    finally:
        if server is not None:
            server.end()


def test_turn_files_name_the_sessions_too(clients: Callable[[], Client], repository: Path) -> None:
    one = clients()
    assert one("turn", "init", "--actor", "ann").code == 0
    one.hook("SessionStart", "s-1", source="startup")
    one.hook("SessionStart", "s-2", source="startup")
    refused = one("turn", "lock", "src/file", "--reason", "why", "--json")
    assert session_actor("claude", "s-1") in refused.error["error"]
    assert "--actor NAME with the name of your own session" in refused.error["hint"]


def test_i22_codex_names_its_session_in_each_call(
    clients: Callable[[], Client], shell: Shell, repository: Path
) -> None:
    one = clients()
    one.hook("SessionStart", "another")
    told = {"x-codex-turn-metadata": json.dumps({"session_id": "c-1", "thread_id": "t-9"})}
    assert not call_lock(one, "s-1", **told).get("isError")
    assert shell("path", "list", "--json").data[0]["holder"] == session_actor("codex", "c-1")


@pytest.mark.parametrize(
    ("meta", "session"),
    [
        (None, None),
        ({}, None),
        ({"x-codex-turn-metadata": "{"}, None),
        ({"x-codex-turn-metadata": 7}, None),
        ({"x-codex-turn-metadata": {"session_id": 7, "thread_id": ""}}, None),
        ({"x-codex-turn-metadata": {"session_id": "s", "thread_id": "t"}}, "s"),
        ({"x-codex-turn-metadata": '{"thread_id": "t"}'}, "t"),
    ],
)
def test_i22_the_session_in_a_calls_meta(meta: Any, session: str | None) -> None:
    assert codex_session(meta) == session
