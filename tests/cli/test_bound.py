"""A token that is bound to an actor: sessions of clients act as that one, in their hooks, their shell and over MCP."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.client_sessions import session_actor
from holdfast.faces.cli.setup.hooks import PROBE
from holdfast.faces.http.auth import Tokens
from holdfast.remote import RemoteWorkspace
from tests.cli.calling import Answer, Shell
from tests.cli.test_identity import Client, call_tool
from tests.http.running import Running

Clients = Callable[..., Client]
HINT = "act as ada: leave out --actor, and unset HOLDFAST_ACTOR; or use a token that is bound to no actor"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path / "served")
    try:
        yield running
    finally:
        running.end()


@pytest.fixture
def over(server: Running, shell: Shell, repository: Path) -> Shell:
    """Commands on a server, whose token is bound to ada."""
    _, secret = Tokens(server.folder).create("agent", actor="ada")
    return shell.with_(HOLDFAST_URL=server.url, HOLDFAST_TOKEN=secret)


@pytest.fixture
def clients() -> Iterator[Clients]:
    """Clients that are started in the environment of a shell."""
    made: list[Client] = []

    def make(shell: Shell) -> Client:
        made.append(Client(shell))
        return made[-1]

    yield make
    for each in made:
        each.end()


def content(answer: Any) -> Any:
    """What a tool answered."""
    return json.loads(answer["content"][0]["text"].split("\n")[1])


def test_a_session_acts_as_the_actor_of_a_bound_token_in_hooks_shell_and_mcp(
    over: Shell, clients: Clients, server: Running, repository: Path
) -> None:
    one = clients(over)
    begun = one.hook("SessionStart", "s-1", source="startup")
    assert (begun.code, "You are ada, in this shell and over MCP" in begun.out) == (0, True), begun
    assert one.edit(repository / "free", "s-1").code == 0
    assert one("path", "lock", "src/**").code == 0
    assert over("path", "list", "--json").data[0]["holder"] == "ada"
    assert one.edit(repository / "src" / "x", "s-1").code == 0, "its own lock"
    assert one("guard", "src/x").code == 0
    task = one("create", "x", "-q").id
    assert one("next", "-q").id == task
    assert one("where", "--json").data["actor"] == "ada"
    assert one("list", "--mine", "-q").id == task
    assert [each["id"] for each in content(call_tool(one, "task_list", {"mine": True}))["tasks"]] == [task]
    assert not call_tool(one, "task_update", {"id": task, "note": "on the way"}).get("isError")
    assert "you hold" in one.hook("UserPromptSubmit", "s-1").out
    assert "you still hold" in one.hook("Stop", "s-1").out
    assert one.hook("SessionEnd", "s-1").code == 0
    free = over.with_(HOLDFAST_TOKEN=server.token)
    assert free("path", "lock", "docs/**", "--actor", "bob").code == 0
    refused = one.edit(repository / "docs" / "x", "s-1")
    assert (refused.code, "locked by bob" in refused.err) == (2, True), "and what others hold is refused"


def test_a_session_of_a_token_that_is_not_bound_keeps_its_own_name(
    over: Shell, clients: Clients, server: Running
) -> None:
    one = clients(over.with_(HOLDFAST_TOKEN=server.token))
    one.hook("SessionStart", "s-1")
    me = session_actor("claude", "s-1")
    assert one("lock", "acquire", "deploy").code == 0
    assert one("lock", "get", "deploy", "--json").data["holder"] == me
    assert not call_tool(one, "lock", {"name": "mine"}).get("isError")
    assert over("lock", "get", "mine", "--json").data["holder"] == me


def test_sessions_that_share_a_bound_token_are_not_several_names(over: Shell, clients: Clients) -> None:
    one = clients(over)
    one.hook("SessionStart", "s-1", source="startup")
    one.hook("SessionStart", "s-2", source="startup")
    assert one("lock", "acquire", "deploy").code == 0
    assert not call_tool(one, "lock", {"name": "mine"}).get("isError")
    assert one("where", "--json").data["actor"] == "ada"


def test_a_session_whose_token_was_changed_acts_as_the_new_ones_actor(
    over: Shell, clients: Clients, server: Running, shell: Shell, tmp_path: Path, repository: Path
) -> None:
    for secret in (server.token, over.environ["HOLDFAST_TOKEN"]):
        (tmp_path / "secret").write_text(secret)
        one = clients(shell.with_(HOLDFAST_URL=server.url, HOLDFAST_TOKEN_FILE=str(tmp_path / "secret")))
        one.hook("SessionStart", "s-1", source="startup")
        (tmp_path / "secret").write_text(over.environ["HOLDFAST_TOKEN"])
        assert one("cell", "set", "r", "c", "1").code == 0
        assert one("where", "--json").data["actor"] == "ada"
        assert one.edit(repository / "x", "s-1").code == 0


def test_another_actor_than_a_bound_tokens_is_refused_with_what_to_do(
    over: Shell, clients: Clients, repository: Path
) -> None:
    bob = over.with_(HOLDFAST_ACTOR="bob")
    for refused in (over("next", "--actor", "bob", "--json"), bob("next", "--json")):
        assert (refused.error["code"], refused.error["hint"]) == ("FORBIDDEN", HINT)
    assert bob("where", "--json").data["actor"] == "ada", "which asks whatever name was chosen"
    one = clients(bob)
    edit = one.edit(repository / "x", "s-1")
    assert (edit.code, f"this token acts as ada, not as bob ({HINT})" in edit.err) == (2, True), edit
    told = content(call_tool(one, "task_claim", {}))
    assert (told["code"], "without --actor and HOLDFAST_ACTOR" in told["hint"]) == ("FORBIDDEN", True)
    other = over("mail", "inbox", "--agent", "bob", "--json").error
    assert (other["code"], other["hint"]) == ("FORBIDDEN", "leave out agent, or use a token that is bound to no actor")


def test_the_server_is_asked_once_by_each_call_and_not_where_a_name_is_known(
    cli: Callable[..., Answer], server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, secret = Tokens(server.folder).create("agent", actor="ada")
    monkeypatch.setenv("HOLDFAST_URL", server.url)
    monkeypatch.setenv("HOLDFAST_TOKEN", secret)
    asked: list[str] = []
    whoami = RemoteWorkspace.whoami

    def counted(workspace: RemoteWorkspace) -> dict[str, Any]:
        asked.append(workspace.actor)
        return whoami(workspace)

    monkeypatch.setattr(RemoteWorkspace, "whoami", counted)

    def questions(*words: str, told: Any = None) -> int:
        asked.clear()
        assert cli(*words, stdin="" if told is None else json.dumps(told)).code == 0
        return len(asked)

    def hook(event: str, **more: Any) -> int:
        command = "guard" if event == "PreToolUse" else "prime"
        return questions(command, "--hook", "claude", told={"hook_event_name": event, "session_id": "s-1", **more})

    assert questions("create", "x") == 0, "the server decides"
    assert hook("SessionStart") == 1
    assert hook("PreToolUse", tool_input={"file_path": "x"}) == 1
    assert hook("UserPromptSubmit") == 0, "it is recorded"
    assert questions("list", "--mine") == 1
    assert questions("doctor") == 1
    assert questions("next", "--actor", "ada") == 0


def test_without_a_session_a_bound_token_says_whose_tasks_are_mine(over: Shell, clients: Clients) -> None:
    task = over("create", "x", "-q").id
    assert "ada holds no task" in " ".join(over("list", "--mine").err.split())
    assert over("next", "-q").id == task
    assert over("list", "--mine", "-q").id == task
    one = clients(over)
    assert [each["id"] for each in content(call_tool(one, "task_list", {"mine": True}))["tasks"]] == [task]
    assert "ada holds no path locks" in over("path", "release").err


def test_mcp_starts_and_lists_its_tools_although_the_server_is_away(
    over: Shell, clients: Clients, server: Running
) -> None:
    server.stop()
    one = clients(over)
    assert content(call_tool(one, "task_claim", {}))["code"] == "UNREACHABLE"


def test_what_holds_up_no_work_is_not_held_up_by_a_server(over: Shell, clients: Clients, server: Running) -> None:
    one = clients(over)
    one.hook("SessionStart", "s-1", source="startup")
    server.stop()
    for event in ("UserPromptSubmit", "Stop", "SessionEnd"):
        assert one.hook(event, "s-1").code == 0, event
    assert one.hook("SessionEnd", "s-new").code == 0
    assert one.edit(over.folder / "x", "s-1").code != 0, "but nobody knows whether this is free"


# --- setup --check ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", ["claude", "codex", "cursor", "gemini"])
def test_check_tries_the_guard_as_a_session_and_leaves_no_record(
    over: Shell, shell: Shell, tmp_path: Path, client: str
) -> None:
    assert over("setup", client).code == 0
    well = over("setup", client, "--check")
    assert (well.code, f"{client} guard: installed, never ran" in well.out) == (0, True), well
    assert not [*(tmp_path / "state").rglob("sessions")]
    wrong = over.with_(HOLDFAST_ACTOR="bob")("setup", client, "--check")
    assert (wrong.code, "this token acts as ada, not as bob" in wrong.out) == (1, True), wrong
    assert shell("init").code == 0
    local = shell("setup", client, "--check")
    assert (local.code, f"{client} guard: installed, never ran" in local.out) == (0, True), local


def test_the_session_of_a_check_acts_as_any_other_and_leaves_nothing(over: Shell, clients: Clients) -> None:
    state = Path(over.environ["XDG_STATE_HOME"])
    one = clients(over)
    assert one.edit(over.folder / "free", PROBE).code == 0
    assert one("path", "lock", "src/**", "--actor", "ada").code == 0
    assert one.edit(over.folder / "src" / "x", PROBE).code == 0, "it acts as the token's actor"
    assert not [*state.rglob("sessions")]


@pytest.mark.parametrize("how", ["HOLDFAST_TOKEN", "HOLDFAST_TOKEN_FILE", "login"])
def test_check_has_the_token_that_the_hooks_will_have(
    over: Shell, shell: Shell, server: Running, tmp_path: Path, how: str
) -> None:
    (tmp_path / "secret").write_text(over.environ["HOLDFAST_TOKEN"])
    given = {"HOLDFAST_TOKEN": over.environ["HOLDFAST_TOKEN"], "HOLDFAST_TOKEN_FILE": str(tmp_path / "secret")}
    if how == "login":
        assert shell("login", server.url, "--token-file", str(tmp_path / "secret")).code == 0
    there = shell.with_(HOLDFAST_URL=server.url, **{name: value for name, value in given.items() if name == how})
    assert there("setup", "claude").code == 0
    checked = there("setup", "claude", "--check")
    assert checked.code == 0, checked
