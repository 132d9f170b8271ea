"""What a session's hooks do besides (issue 22): renew what it holds, and say what is new, once and briefly."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.client_sessions import session_actor
from holdfast.clock import SystemClock
from holdfast.faces.cli.commands.reminders import FRESH
from holdfast.faces.cli.setup.line import DEADLINE
from holdfast.testing import ManualClock
from tests.cli.calling import Answer

Cli = Callable[..., Answer]
ME = session_actor("claude", "s")


def hook(cli: Cli, event: str, client: str = "claude", **more: Any) -> Answer:
    """A hook of the session."""
    command = "guard" if event == "PreToolUse" else "prime"
    told = {"hook_event_name": event, "session_id": "s", "tool_name": "Write", **more}
    done = cli(command, "--hook", client, stdin=json.dumps(told))
    assert done.code == 0, done
    return done


def edit(cli: Cli, project: Path) -> str:
    """The hook before an edit; what it tells the agent."""
    return heard(hook(cli, "PreToolUse", tool_input={"file_path": str(project / "x")}))


def heard(done: Answer) -> str:
    return heard_of(done.out)


def heard_of(out: str) -> str:
    """What the agent hears of what a hook printed."""
    said = json.loads(out or "{}")
    return str(said["hookSpecificOutput"]["additionalContext"]) if said else ""


def prompt(cli: Cli) -> str:
    """The hook before a prompt; what it tells the agent."""
    return heard(hook(cli, "UserPromptSubmit"))


def let_time_pass(project: Path) -> None:
    """The session renewed, and asked for news, longer ago."""
    (file,) = (project / ".holdfast" / "sessions").glob(".news.*")
    known = json.loads(file.read_text())
    file.write_text(json.dumps({**known, "renewed": known["renewed"] - FRESH, "asked": known["asked"] - FRESH}))


def ends(cli: Cli, task: str) -> datetime:
    return datetime.fromisoformat(cli("show", task, "--json").data["deadline"])


def test_i22_an_edit_renews_claims_and_path_locks_in_one_commit_and_not_while_fresh(made: Cli, project: Path) -> None:
    task = made("create", "x", "-q").id
    made("claim", task, "--ttl", "600", "--actor", ME)
    made("path", "lock", "docs/**", "--ttl", "600", "--actor", ME)
    made("path", "lock", "src/**", "--task", task, "--actor", ME)

    def locks() -> list[datetime]:
        return [datetime.fromisoformat(each["expires_at"]) for each in made("path", "list", "--json").data]

    first, held = ends(made, task), locks()
    assert edit(made, project) == ""
    renewed = ends(made, task)
    assert renewed > first
    assert all(after > before for before, after in zip(held, locks(), strict=True))
    edit(made, project)
    prompt(made)
    assert ends(made, task) == renewed, "one commit in 30 s at most"
    let_time_pass(project)
    prompt(made)
    assert ends(made, task) > renewed


def test_i22_mail_is_reported_once_at_the_next_prompt_or_edit(made: Cli, project: Path) -> None:
    made("agent", "register", ME)
    made("mail", "send", ME, "first", "x", "--actor", "bob")
    assert "1 new message(s), from bob" in prompt(made)
    assert prompt(made) == ""
    made("mail", "send", ME, "second", "x", "--actor", "eve")
    let_time_pass(project)
    assert "from eve" in edit(made, project)
    let_time_pass(project)
    assert edit(made, project) == ""


EDITS = {"claude": "PreToolUse", "codex": "PreToolUse", "cursor": "preToolUse", "gemini": "BeforeTool"}
AFTER = {"claude": "PostToolUse", "codex": "PostToolUse", "cursor": "postToolUse", "gemini": "AfterTool"}


@pytest.mark.parametrize("client", AFTER)
def test_i22_an_edit_that_the_agent_cannot_hear_keeps_the_news_for_the_end_of_the_tool(
    made: Cli, project: Path, client: str
) -> None:
    me = session_actor(client, "s")
    task = made("create", "x", "-q").id
    made("claim", task, "--ttl", "600", "--actor", me)
    before_edit, after_tool = EDITS[client], AFTER[client]
    patch = f"*** Begin Patch\n*** Add File: {project / 'x'}\n+x\n*** End Patch\n"
    call = {"command": patch} if client == "codex" else {"file_path": str(project / "x")}

    def around_an_edit() -> str:
        told = {"hook_event_name": before_edit, "session_id": "s", "tool_name": "apply_patch", "tool_input": call}
        before = made("guard", "--hook", client, stdin=json.dumps(told))
        assert before.code == 0, before
        after = json.loads(hook(made, after_tool, client, tool_input=call, tool_response="x").out or "{}")
        inside = after.get("hookSpecificOutput", {})
        assert inside.get("hookEventName", after_tool) == after_tool
        return heard_of(before.out) + str(inside.get("additionalContext", after.get("additional_context", "")))

    first = ends(made, task)
    assert around_an_edit() == "", "nothing is new, and what is held is recalled at prompts alone"
    renewed = ends(made, task)
    assert renewed > first
    made("mail", "send", me, "hello", "x", "--actor", "bob")
    made("release", task, "--force", "--actor", "boss")
    made("claim", task, "--actor", "bob")
    assert around_an_edit() == "", "asked a moment ago"
    let_time_pass(project)
    said = around_an_edit()
    assert said.count("1 new message(s), from bob") == 1
    assert said.count(f"you lost the claim on {task}") == 1
    let_time_pass(project)
    assert around_an_edit() == ""


def test_i22_a_shell_command_renews_and_lets_the_agent_hear_too(made: Cli, project: Path) -> None:
    task = made("create", "x", "-q").id
    made("claim", task, "--ttl", "600", "--actor", ME)
    before = ends(made, task)
    made("mail", "send", ME, "hello", "x", "--actor", "bob")
    assert "from bob" in heard(hook(made, "PostToolUse", tool_name="Bash", tool_input={"command": "make"}))
    assert ends(made, task) > before


def test_i22_a_lost_claim_is_reported_once_and_one_that_was_given_back_is_not(made: Cli, project: Path) -> None:
    lost, given_back = made("create", "x", "-q").id, made("create", "y", "-q").id
    for task in (lost, given_back):
        made("claim", task, "--actor", ME)
    told = prompt(made)
    assert f"you hold {lost} (x), {given_back} (y)" in told, "what is held is recalled"
    made("release", lost, "--force", "--actor", "boss")
    made("claim", lost, "--actor", "b")
    made("release", given_back, "--actor", ME)
    assert f"you lost the claim on {lost}" in (told := prompt(made))
    assert given_back not in told
    assert prompt(made) == ""


def test_i22_a_claim_is_lost_whoever_ends_it_and_one_that_its_holder_ended_never_is(made: Cli) -> None:
    ends = {
        "released": ["release", "--force", "--actor", "boss"],
        "closed": ["close", "--force", "--actor", "boss"],
        "purged": ["release", "--force", "--actor", "boss"],
        "mine, given on": ["release", "--actor", ME],
        "mine, purged": ["done", "--actor", ME],
    }
    tasks = {name: made("create", name, "-q").id for name in ends}
    for task in tasks.values():
        made("claim", task, "--actor", ME)
    prompt(made)
    for name, (command, *words) in ends.items():
        assert made(command, tasks[name], *words).code == 0
    made("claim", tasks["mine, given on"], "--actor", "bob")
    for name in ("purged", "mine, purged"):
        assert made("delete", tasks[name], "--actor", "boss").code == 0
        assert made("purge", tasks[name], "--yes", "--actor", "boss").code == 0
    made("mail", "send", ME, "hello", "x", "--actor", "bob")
    said = prompt(made)
    lost = {name: f"you lost the claim on {task}" in said for name, task in tasks.items()}
    assert lost == {name: not name.startswith("mine") for name in tasks}
    assert "1 new message(s)" in said, "which nothing keeps back"
    assert prompt(made) == ""


def test_i22_news_fit_into_400_bytes(made: Cli) -> None:
    for number in range(15):
        task = made("create", f"𝔘{number} " + "long " * 30, "-q").id
        made("claim", task, "--actor", ME)
        made("mail", "send", ME, "s" * 200, "x", "--actor", f"sender-{number}-" + "n" * 40)
    assert 200 < len(prompt(made).encode()) <= 400


@pytest.mark.parametrize(("client", "event"), [("codex", "UserPromptSubmit"), ("gemini", "BeforeAgent")])
def test_i22_the_prompt_hooks_of_other_clients_are_answered_in_their_form(made: Cli, client: str, event: str) -> None:
    task = made("create", "x", "-q").id
    made("claim", task, "--actor", session_actor(client, "s"))
    told = json.loads(hook(made, event, client).out)["hookSpecificOutput"]
    assert (told["hookEventName"], task in told["additionalContext"]) == (event, True)


def test_i22_doctor_lists_path_locks_of_agents_that_were_not_seen_for_long(made: Cli, project: Path) -> None:
    clock = ManualClock()
    clock.jump(SystemClock().wall() / 1e6 - clock.wall() / 1e6 - 7200)
    with holdfast.open(project / "old", actor="gone", clock=clock) as workspace:
        workspace.paths.lock("src/**", ttl=86_400)
    told = made("doctor", "--dir", str(project / "old")).out
    assert "src/** is locked by gone, not seen for an hour" in told


STOPS = [("claude", "Stop", "block"), ("codex", "Stop", "block"), ("gemini", "AfterAgent", "deny")]


@pytest.mark.parametrize(("client", "event", "word"), STOPS)
def test_i22_what_is_held_is_recalled_once_when_the_agent_wants_to_stop(
    made: Cli, client: str, event: str, word: str
) -> None:
    me = session_actor(client, "s")
    nothing = hook(made, event, client).out
    assert nothing in ("", "{}"), "nothing is held"
    task = made("create", "paint it", "-q").id
    made("claim", task, "--actor", me)
    told = json.loads(hook(made, event, client).out)
    assert told["decision"] == word
    assert f"you still hold {task} (paint it)" in told["reason"]
    assert len(told["reason"].encode()) <= 400
    assert hook(made, event, client).out == nothing, "once"
    other = made("create", "more", "-q").id
    made("claim", other, "--actor", me)
    assert hook(made, event, client, stop_hook_active=True).out == nothing, "it has just been sent on"
    told = json.loads(hook(made, event, client).out)
    assert (other in told["reason"], task in told["reason"]) == (True, False)


def test_i22_a_claim_that_only_the_stop_saw_is_reported_when_it_is_lost(made: Cli) -> None:
    task = made("create", "x", "-q").id
    made("claim", task, "--actor", ME)
    hook(made, "Stop")
    made("release", task, "--force", "--actor", "boss")
    made("claim", task, "--actor", "b")
    hook(made, "Stop")
    assert f"you lost the claim on {task}" in prompt(made)


def test_i22_cursor_is_sent_on_by_a_message(made: Cli) -> None:
    task = made("create", "x", "-q").id
    made("claim", task, "--actor", session_actor("cursor", "s"))
    assert task in json.loads(hook(made, "stop", "cursor").out)["followup_message"]


# Holds what a writer holds, until its input ends.
BUSY = {
    "the write lock": "import apsw; held = apsw.Connection(store); held.execute('BEGIN IMMEDIATE')",
    "its turn": "import holdfast; w = holdfast.open(store[:-12], actor='b'); held = w.transaction(); held.__enter__()",
}


@pytest.mark.early
@pytest.mark.parametrize("how", BUSY)
def test_i22_while_another_process_writes_an_edit_is_decided_and_the_renewal_is_left_for_later(
    made: Cli, project: Path, how: str
) -> None:
    task = made("create", "x", "-q").id
    made("claim", task, "--ttl", "600", "--actor", ME)
    made("path", "lock", "mine/**", "--task", task, "--actor", ME)
    made("path", "lock", "src/**", "--actor", "other")
    made("mail", "send", ME, "hello", "body", "--actor", "bob")
    before = ends(made, task)
    script = f"import sys; store = sys.argv[1]; {BUSY[how]}; print('held', flush=True); sys.stdin.read()"
    words = [sys.executable, "-c", script, str(project / ".holdfast" / "holdfast.db")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "held\n"
        for path, code in (("free.py", 0), ("mine/x", 0), ("src/a.py", 2)):
            begun = time.monotonic()
            told = {
                "hook_event_name": "PreToolUse",
                "session_id": "s",
                "tool_input": {"file_path": str(project / path)},
            }
            answer = made("guard", "--hook", "claude", stdin=json.dumps(told))
            assert answer.code == code, answer
            assert time.monotonic() - begun < DEADLINE - 1, "the line of the hook refuses what takes longer"
            assert ("were not renewed" in answer.out) is (code == 0)
            assert ("1 new message" in answer.out) is (path == "free.py"), "which is said all the same, and once"
        writer.kill()
    assert ends(made, task) == before
    assert edit(made, project) == ""
    assert ends(made, task) > before, "at the next call"


@pytest.mark.parametrize("until", [["1h"], ["20s"], []])
def test_i22_what_is_parked_stays_so_whatever_the_hooks_of_its_session_do(
    made: Cli, project: Path, until: list[str]
) -> None:
    task = made("create", "x", "-q").id
    made("claim", task, "--ttl", "60", "--actor", ME)
    assert made("park", task, *until, "--actor", ME).code == 0
    before = made("show", task, "--json").data
    assert before["parked"]
    prompt(made)
    let_time_pass(project)
    edit(made, project)
    assert hook(made, "Stop").out == "", "it waits for a person"
    made(
        "prime", "--hook", "claude", "--release", stdin=json.dumps({"hook_event_name": "SessionEnd", "session_id": "s"})
    )
    after = made("show", task, "--json").data
    assert (after["claimed_by"], after["deadline"], after["parked"]) == (ME, before["deadline"], True)
    made("note", task, "still waiting", "--actor", ME)
    with holdfast.open(project / ".holdfast", actor=ME) as workspace:
        assert workspace.tasks.get(task).parked
        workspace.tasks.heartbeat(task)
        assert not workspace.tasks.get(task).parked


def test_i22_the_end_of_a_session_releases_in_one_commit_and_keeps_what_was_parked(made: Cli) -> None:
    held, other, parked, theirs = (made("create", title, "-q").id for title in ("held", "other", "parked", "theirs"))
    for task in (held, other, parked):
        made("claim", task, "--actor", ME)
    made("park", parked, "--actor", ME)
    made("claim", theirs, "--actor", "bob")
    made("path", "lock", "docs/**", "--actor", ME)
    made("path", "lock", "src/**", "--task", held, "--actor", ME)
    made("path", "lock", "kept/**", "--task", parked, "--actor", ME)

    def end(*words: str) -> Answer:
        told = {"hook_event_name": "SessionEnd", "session_id": "s", "reason": "prompt_input_exit"}
        return made("prime", "--hook", "claude", *words, stdin=json.dumps(told))

    assert end() == (0, "", "")
    assert {each["claimed_by"] for each in made("list", "--json").data} == {ME, "bob"}, "only with --release"
    before = made("event", "list", "--json").data[-1]["revision"]
    assert end("--release") == (0, "", "")
    assert {each["revision"] for each in made("event", "list", "--json").data} - {*range(before + 1)} == {before + 1}
    holders = {each["id"]: each["claimed_by"] for each in made("list", "--json").data}
    assert holders == {held: None, other: None, parked: ME, theirs: "bob"}
    assert [each["patterns"] for each in made("path", "list", "--json").data] == [["kept/**"]]
    assert f"the session of {ME} ended" in made("history", held).out
    assert end("--release") == (0, "", ""), "nothing is left"
