"""A hint is written once, as Python calls, and every face shows it in its own words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

import pytest

import holdfast
from holdfast import errors, turnfile
from holdfast.hints import OTHERWISE, TURN_COMMANDS, for_http, for_shell, for_tools
from holdfast.operation import find_operation
from tests.worlds.served import shared_server

SOURCE = Path(holdfast.__file__).parent
CALL = re.compile(r"\b(?:ws\.|tx\.)?([a-z]+)\.([a-z_]+)\(")
OTHER_CALLS = {"holdfast", "ws", "text"}  # the package, a workspace itself, a str
TURN_CALL = re.compile(r"\bturnfile\.([A-Za-z_.]+)\(")


@pytest.mark.parametrize(
    ("hint", "shell", "http", "tools"),
    [
        (
            'possible now: tasks.claim("hf-1"), tasks.cancel("hf-1")',
            "possible now: holdfast claim hf-1, holdfast cancel hf-1",
            "possible now: POST /api/tasks/hf-1/claim, POST /api/tasks/hf-1/cancel",
            "possible now: task_claim hf-1, task_update step=cancel hf-1",
        ),
        (
            "tasks.history(id) says why",
            "holdfast history says why",
            "GET /api/tasks/{id}/history says why",
            "task_show says why",
        ),
        (
            'wait: paths.lock(["a b.py", "c.py"], wait=60)',
            "wait: holdfast path lock 'a b.py' c.py --wait 60",
            "wait: POST /api/paths/lock with wait=60",
            "wait: paths a b.py c.py wait=60",
        ),
        ("pass skip_bad=True", "pass --skip-bad", "pass skip_bad=True", "pass skip_bad=True"),
        ("holdfast.open(path) opens it", *["holdfast.open(path) opens it"] * 3),
        ("nothing to translate", *["nothing to translate"] * 3),
    ],
)
def test_calls_become_commands_addresses_and_tools(hint: str, shell: str, http: str, tools: str) -> None:
    assert (for_shell(hint), for_http(hint), for_tools(hint)) == (shell, http, tools)


def test_a_client_with_a_tool_for_each_operation_is_told_of_those() -> None:
    hint = 'tasks.cancel("hf-1") closes it'
    assert for_tools(hint, {"tasks_cancel"}) == "tasks_cancel hf-1 closes it"


def test_a_name_is_given_as_each_face_gives_one() -> None:
    hint = errors.InvalidHolder().hint
    assert "actor=" in hint
    assert "HOLDFAST_ACTOR" in for_shell(hint)
    assert "X-Agent-ID" in for_http(hint)
    assert "holdfast mcp --actor" in for_tools(hint)
    assert len({for_shell(hint), for_http(hint), for_tools(hint), hint}) == 4


def test_http_speaks_of_addresses_and_our_own_client_of_calls() -> None:
    import httpx

    server = shared_server()
    with holdfast.connect(server.url, token=server.token, actor="ada") as ws:
        task = ws.tasks.create("hints")
        with pytest.raises(errors.InvalidTransition) as refused:
            ws.tasks.complete(task.id)
    assert f'tasks.claim("{task.id}")' in refused.value.hint
    headers = {"authorization": f"Bearer {server.token}", "x-agent-id": "ada"}
    answer = httpx.post(f"{server.url}/api/tasks/{task.id}/complete", json={}, headers=headers)
    assert f"POST /api/tasks/{task.id}/claim" in answer.json()["hint"]


def hints() -> Iterator[tuple[str, str]]:
    """Every hint of the sources, with `X` for what is filled in."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            named = isinstance(node, ast.keyword) and node.arg == "hint"
            if named or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).endswith("hint")):
                for part in ast.walk(node):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield str(path.relative_to(SOURCE)), part.value


def test_every_call_that_a_hint_names_is_an_operation() -> None:
    named = [(file, call[1], call[2]) for file, hint in hints() for call in CALL.finditer(TURN_CALL.sub("", hint))]
    named = [each for each in named if each[1] not in OTHER_CALLS]
    assert len(named) > 20
    assert [each for each in named if find_operation(f"{each[1]}.{each[2]}") is None] == []


def test_every_call_on_turn_files_exists_and_has_a_command() -> None:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted((SOURCE / "turnfile").rglob("*.py"))]
    texts = [str(node.value) for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    named = {call for text in texts for call in TURN_CALL.findall(text)} - {"transaction"}  # an example of the package
    assert {"init", "restore", "tasks.claim", "mail.messages"} <= named
    assert named - {"Session"} <= set(TURN_COMMANDS)
    for name in (*named, *TURN_COMMANDS):
        assert callable(attrgetter(name)(turnfile)), name


def test_a_command_names_the_workspace_that_was_named() -> None:
    at = ("--dir", "a b")
    assert for_shell('tasks.claim("hf-1"), or ws.backup(path)', at) == (
        "holdfast claim hf-1 --dir 'a b', or holdfast backup --dir 'a b'"
    )
    assert (
        for_shell("turnfile.restore(session) creates it", at) == "`holdfast turn init --missing --dir 'a b'` creates it"
    )
    assert for_shell('name it: turnfile.Session("c")', at) == "name it: --dir c"


def test_no_hint_names_a_face_that_its_reader_may_not_use() -> None:
    """Outside the faces a hint speaks Python: options, variables and headers are the business of `hints`."""
    inside = [(file, hint) for file, hint in hints() if not file.startswith(("faces/", "turnfile/", "demo/"))]
    assert [each for each in inside if re.search(r"--actor|HOLDFAST_ACTOR|X-Agent-ID|over HTTP", each[1])] == []
    assert all(len(words) == 3 for words in OTHERWISE.values())
