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
from holdfast.faces.cli.command import all_commands
from holdfast.hints import HTTP, OTHERWISE, SHELL, TOOLS, TURN_COMMANDS, for_http, for_shell, for_tools, in_json
from holdfast.operation import REGISTRY, find_operation
from tests.worlds.served import shared_server

SOURCE = Path(holdfast.__file__).parent
CALL = re.compile(r"\b(?:ws\.|tx\.)?([a-z]+)\.([a-z_]+)\(")
OTHER_CALLS = {"holdfast", "ws", "text"}  # the package, a workspace itself, a str
TIME = "a time such as 2026-03-01T12:00:00Z"
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
            "wait: paths action=lock a b.py c.py wait=60",
        ),
        (
            'tasks.release("hf-1", force=True) takes it away',
            "holdfast release hf-1 --force takes it away",
            "POST /api/tasks/hf-1/release with force=true takes it away",
            "`holdfast release hf-1 --force` (in a shell) takes it away",
        ),
        (
            'go on: channels.ack("0f", 3, subscriber="bob \\x28a=True\\x29")',
            "go on: holdfast channel ack 0f 3 --subscriber 'bob (a=True)'",
            'go on: POST /api/channels/0f/ack with number=3 and subscriber="bob (a=True)"',
            "go on: `holdfast channel ack 0f 3 --subscriber 'bob (a=True)'` (in a shell)",
        ),
        ("pass skip_bad=True", "pass --skip-bad", "pass skip_bad=true", "pass skip_bad=true"),
        (
            'such as tags=["backend"]',
            "such as --tag backend",
            'such as "tags": ["backend"]',
            'such as "tags": ["backend"]',
        ),
        (
            'use kinds=["cell", "lock"]',
            "use --kind cell --kind lock",
            'use "kinds": ["cell", "lock"]',
            'use "kinds": ["cell", "lock"]',
        ),
        (
            'give them: tasks=[{"title": "One"}]',
            """give them: --tasks '[{"title": "One"}]'""",
            'give them: "tasks": [{"title": "One"}]',
            'give them: "tasks": [{"title": "One"}]',
        ),
        (
            'declare it: parameters={"v": None}',
            """declare it: --parameters '{"v": null}'""",
            'declare it: "parameters": {"v": null}',
            'declare it: "parameters": {"v": null}',
        ),
        ("holdfast.open(path) opens it", *["holdfast.open(path) opens it"] * 3),
        ("holdfast.frob(path, log=log, force=True)", *["holdfast.frob(path, log=log, force=True)"] * 3),
        ("nothing to translate", *["nothing to translate"] * 3),
        ("such as https://h/db?workspace=a&name=b", *["such as https://h/db?workspace=a&name=b"] * 3),
    ],
)
def test_calls_become_commands_addresses_and_tools(hint: str, shell: str, http: str, tools: str) -> None:
    assert (for_shell(hint), for_http(hint), for_tools(hint)) == (shell, http, tools)


@pytest.mark.parametrize(
    ("python", "json"),
    [
        ("title must be a str, not int", "title must be a string, not a whole number"),
        ("limit must be an int, not str", "limit must be a whole number, not a string"),
        ("ttl must be a number of seconds, not NoneType", "ttl must be a number of seconds, not null"),
        ("offset must be an int of 0 or more, not 'x'", "offset must be a whole number of 0 or more, not 'x'"),
        ("tree must be a dict of fields, not list", "tree must be an object of fields, not a list"),
        ("total must be True or False, not 'no'", "total must be true or false, not 'no'"),
        ("since must be a datetime, not str", "since must be a time such as 2026-03-01T12:00:00Z"),
        ("cell 's' holds a str; increment needs a number", "cell 's' holds a string; increment needs a number"),
        ("the key of a cell is (run, cell), not ('x',)", "the key of a cell is [run, cell], not ['x']"),
        ("Expected `int`, got `str` - at `$[0].version`", "$[0].version must be a whole number, not a string"),
        ("Expected `array | null`, got `str` - at `$.tags`", "tags must be a list, not a string"),
        ("Expected `datetime`, got `int` - at `$.at`", f"at must be {TIME}, not a whole number"),
        ("Invalid RFC3339 encoded datetime - at `$.at`", f"at must be {TIME}"),
        ("Object missing required field `if` - at `$[1]`", '$[1] lacks "if"'),
        ("there is no run 'a str' or 'None'", "there is no run 'a str' or 'None'"),
    ],
)
def test_a_message_names_the_types_of_json_where_json_is_what_was_sent(python: str, json: str) -> None:
    assert {in_json(python, face) for face in (SHELL, HTTP, TOOLS)} == {json}


def test_nothing_is_the_word_none_at_a_shell_and_null_in_json() -> None:
    message = "expected must be a version (1 or more) or None for 'absent', not 0"
    assert "or none for" in in_json(message, SHELL)
    assert "or null for" in in_json(message, HTTP)


LIMITED = sorted(name for name, op in REGISTRY.items() if op.takes("limit"))
SAMPLES = {"column": "ready", "run": "r", "cell": "c", "text": "x", "table": "crumbs"}


@pytest.mark.parametrize("name", LIMITED)
def test_who_asks_for_too_many_hears_of_an_argument_that_the_operation_has(name: str) -> None:
    op = find_operation(name)
    assert op is not None
    with holdfast.open(":memory:", actor="ada") as ws:
        task = ws.tasks.create("task")
        needed = [each.name for each in op.accepted.parameters.values() if each.default is each.empty]
        given = {each: SAMPLES.get(each, task.id) for each in needed}
        with pytest.raises(errors.InvalidFilter, match="limit must be 1 to") as refused:
            op.on(ws)(**given, limit=10**12)
    pages = {"after", "before", "cursor", "offset"} & op.accepted.parameters.keys()
    if "cursor" in pages:  # which misses nothing when the list changes, as an offset does
        pages.discard("offset")
    assert {each[1] for each in re.finditer(r"\b([a-z]+)=", refused.value.hint)} == pages


def test_a_client_with_a_tool_for_each_operation_is_told_of_those() -> None:
    hint = 'tasks.cancel("hf-1") closes it'
    assert for_tools(hint, {"tasks_cancel"}) == "tasks_cancel hf-1 closes it"
    every = {"tasks_release", "channels_ack"}
    told = for_tools('channels.ack("0f", 3, subscriber="bob")', every)
    assert told == 'channels_ack 0f 3 subscriber="bob"'
    assert for_tools('tasks.release("hf-1", force=True)', {"tasks_release"}) == "tasks_release hf-1 force=true"


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


def test_http_speaks_of_json_and_our_own_client_of_python() -> None:
    import httpx

    server = shared_server()
    headers = {"authorization": f"Bearer {server.token}", "x-agent-id": "ada"}

    def told(address: str, content: object) -> str:
        answer = httpx.post(f"{server.url}/api/{address}", json=content, headers=headers).json()
        return f"{answer['error']} {answer['hint']}"

    assert "title must be a string, not a whole number" in told("tasks", {"title": 5})
    assert '"tags": ["backend"]' in told("tasks", {"title": "x", "tags": "backend"})
    wrong = told("txn", {"conditions": [{"if": "nope"}], "then": []})
    assert "$[0].if cannot be 'nope'" in wrong
    assert all(f'"{each}"' in wrong for each in ("exists", "not_exists", "version_equals", "value_equals", "key"))
    assert "Exists(" not in wrong
    assert '{"op": ' in told("txn", {"conditions": [], "then": [{"op": 5}]})
    with holdfast.connect(server.url, token=server.token, actor="ada") as ws:
        with pytest.raises(errors.Invalid, match="title must be a str, not int"):
            ws.tasks.create(5)  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidFilter, match="Exists") as refused:
            ws.txn([5], [])  # type: ignore[list-item]
    assert "VersionEquals" in refused.value.hint


def test_http_says_which_part_of_a_request_is_wrong_and_what_was_sent() -> None:
    import httpx

    server = shared_server()
    headers = {"authorization": f"Bearer {server.token}"}
    with httpx.Client(base_url=f"{server.url}/api", headers=headers) as client:
        assert client.get("/tasks?limit=abc").json()["error"] == "limit must be a whole number, not 'abc'"
        broken = client.post("/tasks", content=b"{nope", headers={"content-type": "application/json"}).json()
        assert broken["error"].startswith("the body is not JSON: ")
        assert "malformed" not in broken["error"]
        id = client.post("/tasks", json={"title": "hints"}).json()["id"]
        moved = client.patch(f"/tasks/{id}", json={"status": "closed"}).json()
        assert "PATCH /api/tasks/{id}/status" in moved["hint"]
        fenced = client.post(f"/tasks/{id}/complete", json={"token": "5"}).json()
        assert fenced["error"] == "token must be the number of the claim, not '5'"
        unnamed = client.post("/tasks/claim-next").json()
        assert "is only the name of the token" in unnamed["error"]
        assert "X-Agent-ID" in unnamed["hint"]


def test_a_python_program_hears_of_calls_that_it_can_make(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_ACTOR", raising=False)
    server = shared_server()
    with holdfast.connect(server.url, token=server.token) as ws:
        with pytest.raises(errors.InvalidHolder, match="is derived from user and host") as refused:
            ws.tasks.claim_next()
        assert refused.value.hint == f"name yourself: {errors.NAME_YOURSELF_REMOTELY}"
        assert for_shell(refused.value.hint) == for_shell(errors.InvalidHolder().hint)
        task = ws.tasks.create("hints")
        with pytest.raises(errors.Invalid, match="id must be a str, not Task") as wrong:
            ws.tasks.get(task)  # type: ignore[arg-type]
        assert wrong.value.hint == "pass its id: task.id"
        with pytest.raises(errors.Invalid) as number:
            ws.tasks.get(5)  # type: ignore[arg-type]
        assert number.value.hint == ""
        with pytest.raises(TypeError, match="set_status"):
            ws.tasks.update(task.id, status="closed")  # type: ignore[call-arg]
        ws.tasks.delete(task.id)
        with pytest.raises(errors.TaskNotFound) as deleted:
            ws.tasks.get(task.id)
        assert f'tasks.restore("{task.id}")' in deleted.value.hint
        with pytest.raises(errors.InvalidFilter, match="'locks' is not a kind that a condition can name"):
            ws.txn([holdfast.NotExists("locks", "m")], [])


HINT = re.compile(r"[a-z_.]*hint|[A-Z_]*HINT|AHEAD|REBUILD")  # what a hint is called where it is said once


def hints() -> Iterator[tuple[str, str]]:
    """Every hint of the sources, with `X` for what is filled in."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            named = isinstance(node, ast.keyword) and node.arg == "hint"
            targets = node.targets if isinstance(node, ast.Assign) else []
            targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
            if named or any(HINT.fullmatch(ast.unparse(each)) for each in targets):
                yield from ((str(path.relative_to(SOURCE)), text) for text in texts_of(node))


def test_every_option_that_a_hint_names_at_a_shell_is_one_of_a_command() -> None:
    """Also the arguments that become options: what is no option is written otherwise."""
    options = {argument.option for command in all_commands() for argument in command.arguments}
    options |= {"--actor", "--dir", "--url", "--key"}
    ours = [(file, for_shell(hint)) for file, hint in set(hints()) if not re.search(r"\b(?:pip|diff) ", hint)]
    named = {(file, each, text) for file, text in ours for each in re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)}
    assert len(named) > 40
    assert sorted(each for each in named if each[1] not in options) == []


def texts_of(node: ast.AST) -> Iterator[str]:
    """The texts of an expression; those with parts to be filled in whole."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        inner: list[ast.AST] = [each.value for each in node.values if isinstance(each, ast.FormattedValue)]
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
        inner = []
    else:
        inner = list(ast.iter_child_nodes(node))
    for each in inner:
        yield from texts_of(each)


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


# What only a program in Python can meet, so it speaks Python in every face.
PYTHON_ONLY = {
    "holdfast.open(...) returns one",
    "inside a transaction use its tx: tx.cells.set(...), not ws.cells.set(...)",
    "text.splitlines() makes one",
    "do slow work before the block, or use ws.transact(body); nothing of the block was written",
    "use ws.aio of the one that runs",
    "read the cell, and use ws.using(key=...).cells.cas(...)",
    "use ws.txn(conditions, then)",
    'holdfast.open("X", folder=".holdfast")',
    "open the folder again where you need it: holdfast.open(path)",
    "use holdfast.connect(url)",
    "use ws.transact(body)",
    "holdfast.open(folder) opens a folder",
}
PYTHON = re.compile(r"\b(?:ws|tx)\.\w|\b[a-z]+\.[a-z_]+\(|\b(?:True|False|None)\b|\bturnfile\.")


def test_i22_no_hint_speaks_python_in_another_face() -> None:
    """Every hint of the sources, in the words of every face that can show it."""
    found = {
        (file, hint.replace(".X(", ".cancel("))
        for file, hint in hints()
        if not file.startswith(("demo/", "integrations/"))
    }
    assert {hint for _, hint in found} >= PYTHON_ONLY, "what is no longer said is no exception"
    strange = []
    for file, hint in sorted(found):
        if hint in PYTHON_ONLY:
            continue
        faces = {"cli": for_shell, "http": for_http, "mcp": for_tools}
        if file.startswith("faces/"):
            faces = {name: put for name, put in faces.items() if file.startswith(f"faces/{name}/")}
        if file.startswith("turnfile/"):
            del faces["http"]  # which has no turn files
        strange += [(file, name, put(hint)) for name, put in faces.items() if PYTHON.search(put(hint))]
    assert strange == []
