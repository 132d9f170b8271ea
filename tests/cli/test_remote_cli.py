"""The same commands on a server (issue 7): HOLDFAST_URL in the environment, and nothing else is different."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.faces.http.auth import Tokens
from tests.cli.calling import Answer, Shell, ended
from tests.http.running import Running

Cli = Callable[..., Answer]
LONG = "180"


@pytest.fixture
def server(project: Path, tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path / "served")
    try:
        yield running
    finally:
        running.end()


@pytest.fixture
def remote(cli: Cli, server: Running, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Calls with a server and its token in the environment."""
    monkeypatch.setenv("HOLDFAST_URL", server.url)
    monkeypatch.setenv("HOLDFAST_TOKEN", server.token)
    return cli


def test_a_day_of_work_is_the_same_on_a_server(remote: Cli, project: Path) -> None:
    top = remote("create", "top", "-q").id
    first = remote("create", "first", "--parent", top, "--tag", "backend", "-p", "1", "-q").id
    second = remote("create", "second", "--parent", top, "-q").id
    remote("dep", "add", second, first)
    assert remote("ready", "-q").id == first
    assert remote("next", "--actor", "a", "-q").id == first
    assert remote("claim", first, "--actor", "b").code == 12
    assert remote("next", "--actor", "b").code == 4
    assert remote("done", first, "it works", "--actor", "a", "-q").id == first
    assert remote("next", "--actor", "b", "-q").id == second
    assert remote("block", second, "why", "--actor", "b").code == 0
    assert remote("show", first, "--json").data["status"] == "closed"
    assert [each["id"] for each in remote("list", "--status", "blocked", "--json").data] == [second]

    assert remote("lock", "acquire", "deploy", "--ttl", "60", "--actor", "a").code == 0
    assert remote("lock", "acquire", "deploy", "--actor", "b", "--json").error["details"]["holder"] == "a"
    assert remote("lock", "release", "deploy", "--actor", "a").code == 0

    remote("agent", "register", "b")
    mail = remote("mail", "send", "b", "subject", "-", "--actor", "a", "-q", stdin="a long\nbody\n").id
    assert remote("mail", "inbox", "--actor", "b", "-q").id == mail
    assert "  a long\n  body\n" in remote("mail", "get", mail).out

    assert remote("cell", "set", "r", "c", '{"$bytes": "aGk="}').out == "r c has version 1\n"
    assert remote("cell", "cas", "r", "c", "7", "1").code == 9
    assert remote("cell", "get", "r", "c", "--json").data["value"] == {"$bytes": "aGk="}
    assert remote("path", "lock", "src/**", "--actor", "a").code == 0
    assert remote("guard", "src/x", "--actor", "b").code == 12
    assert remote("guard", "src/x", "--actor", "a").code == 0
    assert first in remote("search", "first", "-q").out
    assert second in remote("tree", top, "-q").out
    assert "You are a" in remote("prime", "--actor", "a").out
    assert list(project.iterdir()) == [], "nothing is left in the project"


def test_an_answer_is_the_same_to_the_byte(remote: Cli, server: Running) -> None:
    task = remote("create", "é \u202e", "body", "--tag", "t", "-q").id
    remote("cell", "set", "r", "c", "[1.5, null]")
    local = {"HOLDFAST_URL": "", "HOLDFAST_DIR": str(server.folder)}
    for line in (f"show {task}", "list --total", "cell get r c", "log", "event list", "cell history r c", "export"):
        for more in ((), ("--json",), ("-q",)):
            assert remote(*line.split(), *more) == remote(*line.split(), *more, **local), (line, more)
    for line in ("show hf-0000", "cell get r nope", "cell cas r c 9 1", "claim x"):
        assert remote(*line.split(), "--json") == remote(*line.split(), "--json", **local), line


def test_a_server_that_is_stopped_is_given_up_and_a_write_is_settled_by_its_key(remote: Cli, server: Running) -> None:
    """What its socket has got it carries out once it goes on: the caller cannot know, and repeats it under its key."""
    first = remote("create", "first", "-q").id
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        read = remote("list", "--json", HOLDFAST_TIMEOUT="1s").error
        write = remote("create", "second", "--json", HOLDFAST_TIMEOUT="1s").error
        told = remote("create", "third", HOLDFAST_TIMEOUT="1s").err
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    assert (read["code"], write["code"]) == ("UNREACHABLE", "OUTCOME_UNKNOWN")
    assert "did not answer within 1 s" in read["error"]
    assert "it may carry it out later" in write["error"]
    key = write["details"]["key"]
    assert f"--key {key}" in write["hint"]
    again = [remote("create", "second", "-q", "--key", key).id for _ in range(2)]
    third = re.findall(r"--key (auto-\w+)", told)
    again += [remote("create", "third", "-q", "--key", third[0]).id]
    assert {first, *again} == {each["id"] for each in remote("list", "--json").data}
    assert len({*again}) == 2, "each happened once"
    assert remote("list", HOLDFAST_TIMEOUT="soon").code == 2


def test_any_write_that_was_given_up_is_settled_by_its_key_also_where_the_command_has_a_key_of_its_own(
    remote: Cli, server: Running
) -> None:
    """A queue's item has a key and a cycle is named by one: `--key` names the call all the same."""
    remote("stash", "create", "jobs", "--type", "queue")
    cycle = remote("cycle", "start", "--spec", "login", "-q").id
    remote("cycle", "start-phase", cycle, "plan")
    writes = [
        ("queue", "put", "jobs", '"x"'),
        ("queue", "put", "jobs", '"y"', "--item-key", "y1"),
        ("cycle", "add-error", cycle, "plan", "asked twice"),
    ]
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        told = [remote(*write, HOLDFAST_TIMEOUT="1s").err for write in writes]
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    for write, words in zip(writes, told, strict=True):
        (key,) = re.findall(r"--key (auto-\w+)", words)
        assert remote(*write, "--key", key).code == 0
    items = remote("queue", "list", "jobs", "--json").data
    assert [(each["value"], each["key"]) for each in items] == [("x", None), ("y", "y1")]
    assert len(remote("cycle", "get", cycle, "--json").data["phases"]["plan"]["errors"]) == 1


def test_a_key_of_the_commands_own_leaves_nothing_where_nothing_changed(remote: Cli, server: Running) -> None:
    assert remote("next", "--actor", "a").code == 4
    with holdfast.open(server.folder, actor="judge") as workspace:
        assert workspace.agents.list() == []
        assert workspace.check().records["idempotency"] == 0


def test_watch_is_woken_through_a_server(remote: Cli, shell: Shell, started: Any) -> None:
    over = shell.with_(HOLDFAST_URL=os.environ["HOLDFAST_URL"], HOLDFAST_TOKEN=os.environ["HOLDFAST_TOKEN"])
    watch = started("watch", "--for", "lock.deploy", "--after", "0", "--once", "--timeout", LONG, "--json", by=over)
    remote("lock", "acquire", "other", "--actor", "a")
    remote("lock", "acquire", "deploy", "--actor", "a")
    answer = ended(watch)
    assert (answer.code, answer.data["id"]) == (0, "deploy"), answer.err
    assert remote("watch", "--timeout", "0.1").code == 3


def test_next_waits_on_a_server(remote: Cli, shell: Shell) -> None:
    over = shell.with_(HOLDFAST_URL=os.environ["HOLDFAST_URL"], HOLDFAST_TOKEN=os.environ["HOLDFAST_TOKEN"])
    create = over.start("create", "late")
    assert remote("next", "--wait", LONG, "--actor", "a", "--json").data["title"] == "late"
    assert ended(create).code == 0
    assert remote("next", "--wait", "0.2", "--actor", "b").code == 4


def test_the_log_and_its_summary_are_the_servers(remote: Cli) -> None:
    remote("lock", "acquire", "deploy", "--actor", "a")
    remote("lock", "acquire", "deploy", "--actor", "b")
    assert [each["id"] for each in remote("log", "--json").data] == ["deploy"]
    told = remote("log", "--summary", "--json").data
    assert told["b"]["refusals"] == {"HELD": 1}


def test_run_keeps_a_claim_on_a_server(remote: Cli, shell: Shell) -> None:
    over = shell.with_(HOLDFAST_URL=os.environ["HOLDFAST_URL"], HOLDFAST_TOKEN=os.environ["HOLDFAST_TOKEN"])
    task = remote("create", "x", "-q").id
    inner = [sys.executable, "-m", "holdfast", "note", task, "from inside"]
    answer = over("run", "--task", task, "--done", "--actor", "a", "--", *inner)
    assert answer.code == 0, answer.err
    history = remote("history", task, "--json").data
    assert {each["changed_by"] for each in history if each["op"] == "note"} == {"a"}
    assert remote("show", task, "--json").data["status"] == "closed"


def test_a_zombie_is_fenced_on_a_server_too(remote: Cli) -> None:
    task = remote("create", "x", "-q").id
    assert remote("next", "--actor", "a", "--ttl", "0.2").code == 0
    assert remote("next", "--actor", "b", "--wait", LONG).code == 0
    assert remote("done", task, "--actor", "a").code == 15
    assert remote("done", task, "--actor", "b").code == 0


def test_a_token_belongs_to_the_server_not_to_the_folder_of_the_call(
    remote: Cli, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "deeper").mkdir()
    remote("lock", "acquire", "deploy", "--actor", "a")
    monkeypatch.chdir(project / "deeper")
    assert remote("lock", "release", "deploy", "--actor", "a").code == 0
    kept = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert remote("lock", "acquire", "deploy", "--actor", "a").code == 0
    monkeypatch.chdir(project)
    assert remote("lock", "refresh", "deploy", "--actor", "a").code == 0, "its holder is not fenced by an old token"
    assert kept == [], "what was given back is not remembered"


def test_two_servers_do_not_share_tokens(remote: Cli, server: Running, tmp_path: Path) -> None:
    other = Running(tmp_path / "other")
    try:
        remote("lock", "acquire", "deploy", "--actor", "a")
        there = {"HOLDFAST_URL": other.url, "HOLDFAST_TOKEN": other.token}
        remote("cell", "set", "r", "c", "1", **there)
        assert remote("lock", "acquire", "deploy", "--actor", "a", **there).code == 0
        assert remote("lock", "release", "deploy", "--actor", "a").code == 0
        assert remote("lock", "release", "deploy", "--actor", "a", **there).code == 0
    finally:
        other.end()


# --- where, doctor, backup ---------------------------------------------------------------------------------------


def test_where_names_the_server(remote: Cli, server: Running) -> None:
    told = remote("where", "--json").data
    assert (told["workspace"], told["why"], told["exists"]) == (server.url, "HOLDFAST_URL", True)
    assert server.token not in remote("where").out


def test_doctor_looks_at_a_server(remote: Cli) -> None:
    remote("create", "x")
    answer = remote("doctor", "--actor", "a", "--json")
    assert answer.code == 0, answer.out
    assert {each["level"] for each in answer.data} <= {"ok", "note"}
    assert {"integrity", "clock", "writable", "stuck"} <= {each["about"] for each in answer.data}


def test_i22_a_token_bound_to_an_actor_is_who_one_is(remote: Cli, server: Running) -> None:
    """`where`, `doctor` and `prime` ask the server; without an actor of one's own, and as somebody else."""
    _, bound = Tokens(server.folder).create("agent", actor="ada")
    told = remote("where", "--json", HOLDFAST_TOKEN=bound).data
    assert (told["actor"], told["may_hold"], told["role"]) == ("ada", True, "agent")
    assert told["actor_from"] == "bound to the token for this server"
    assert "You are ada." in remote("prime", HOLDFAST_TOKEN=bound).out
    answer = remote("doctor", "--json", HOLDFAST_TOKEN=bound)
    assert answer.code == 0, answer.out
    levels = {each["about"]: each["level"] for each in answer.data}
    assert (levels["actor"], levels["writable"], levels["integrity"]) == ("ok", "ok", "note")

    assert "refuses calls as bob" in remote("where", "--actor", "bob", HOLDFAST_TOKEN=bound).out
    other = remote("doctor", "--actor", "bob", "--json", HOLDFAST_TOKEN=bound)
    assert (other.code, {each["about"]: each["level"] for each in other.data}["actor"]) == (1, "bad")

    _, reader = Tokens(server.folder).create("read", actor="eve")
    assert remote("where", "--json", HOLDFAST_TOKEN=reader).data["may_hold"] is False
    assert remote("doctor", HOLDFAST_TOKEN=reader).code == 0
    assert "unknown token" in remote("where", HOLDFAST_TOKEN="hft_none").out, "where works whatever the server says"


def test_doctor_says_so_when_the_server_is_gone(remote: Cli, server: Running) -> None:
    server.stop()
    answer = remote("doctor", "--actor", "a", "--json")
    assert answer.code == 1
    assert "Traceback" not in answer.err
    assert remote("list").code == 16


@pytest.mark.parametrize("line", ["backup", "backup file", "upgrade", "backup --list"])
def test_what_works_where_the_store_is_says_so(remote: Cli, project: Path, line: str) -> None:
    answer = remote(*line.split(), "--json")
    assert (answer.code, answer.error["code"]) == (1, "UNSUPPORTED")
    assert "--dir" in answer.error["hint"]
    assert list(project.iterdir()) == []


def test_export_and_import_work_over_a_server(remote: Cli, project: Path) -> None:
    for n in range(3):
        remote("create", f"task {n}")
    before = remote("export").out
    assert remote("import", "-", "--dir", "copy", stdin=before).code == 0
    assert remote("export", "--dir", "copy").out == before
    changed = before.replace("task 1", "task one")
    report = remote("import", "-", "--prefer", "theirs", "--json", stdin=changed)
    assert report.code == 0, report.err
    assert "task one" in remote("list").out


# --- tokens ------------------------------------------------------------------------------------------------------


def credentials(tmp_path: Path) -> Path:
    return tmp_path / "config" / "holdfast" / "credentials.json"


def test_login_by_file_or_standard_input_is_good_for_every_later_call(
    cli: Cli, server: Running, project: Path, tmp_path: Path
) -> None:
    assert cli("list", HOLDFAST_URL=server.url).code == 1, "without a token nobody is let in"
    for how in ("file", "stdin"):
        words = ("--token-file", str(server.folder / "token")) if how == "file" else ()
        answer = cli("login", server.url, *words, stdin="" if words else f"{server.token}\n")
        assert answer.code == 0, answer.err
        assert server.token not in answer.out + answer.err
        file = credentials(tmp_path)
        assert os.stat(file).st_mode & 0o777 == 0o600
        assert os.stat(file.parent).st_mode & 0o077 == 0
        assert cli("create", "x", HOLDFAST_URL=server.url).code == 0
        assert cli("list", "--url", f"{server.url}/").code == 0
        file.unlink()


def test_a_token_that_is_not_good_is_not_put_down(cli: Cli, server: Running, tmp_path: Path) -> None:
    answer = cli("login", server.url, "--json", stdin="not-a-token\n")
    assert (answer.code, answer.error["code"]) == (1, "UNAUTHORIZED")
    assert not credentials(tmp_path).exists()
    assert cli("login", server.url, stdin="\n").code == 1
    assert cli("login", server.url, "--token-file", "missing").code == 10
    assert cli("login", "http://127.0.0.1:9", stdin="x\n").code == 16
    assert not credentials(tmp_path).exists()


def test_logins_at_several_servers_are_kept_apart(cli: Cli, server: Running, tmp_path: Path) -> None:
    other = Running(tmp_path / "other")
    try:
        for each in (server, other):
            assert cli("login", each.url, stdin=f"{each.token}\n").code == 0
        for each in (server, other):
            assert cli("list", HOLDFAST_URL=each.url).code == 0
        assert json.loads(credentials(tmp_path).read_text()).keys() == {server.url, other.url}
    finally:
        other.end()


def test_the_environment_goes_before_a_login(cli: Cli, server: Running, tmp_path: Path) -> None:
    cli("login", server.url, stdin=f"{server.token}\n")
    _, reading = Tokens(server.folder).create("read", "*", None, "")
    (tmp_path / "secret").write_text(f"{reading}\n")
    for environ in ({"HOLDFAST_TOKEN": reading}, {"HOLDFAST_TOKEN_FILE": str(tmp_path / "secret")}):
        assert cli("list", HOLDFAST_URL=server.url, **environ).code == 0
        refused = cli("create", "x", "--json", HOLDFAST_URL=server.url, **environ)
        assert (refused.code, refused.error["code"]) == (1, "FORBIDDEN")
        assert reading not in refused.err
    assert cli("create", "x", HOLDFAST_URL=server.url).code == 0


def test_a_token_file_that_cannot_be_read_is_told(cli: Cli, server: Running) -> None:
    answer = cli("list", "--json", HOLDFAST_URL=server.url, HOLDFAST_TOKEN_FILE="missing")
    assert answer.code != 0
    assert answer.out == ""
    assert "missing" in answer.error["error"]


def test_credentials_that_were_cut_short_are_told_not_overwritten(cli: Cli, server: Running, tmp_path: Path) -> None:
    cli("login", server.url, stdin=f"{server.token}\n")
    credentials(tmp_path).write_text('{"http')
    answer = cli("list", "--json", HOLDFAST_URL=server.url)
    assert (answer.code, answer.error["code"]) == (1, "INVALID")
    assert credentials(tmp_path).read_text() == '{"http'


def test_a_token_that_is_bound_to_an_actor_acts_for_nobody_else(remote: Cli, server: Running) -> None:
    _, secret = Tokens(server.folder).create("agent", "*", "bound", "")
    task = remote("create", "x", "-q").id
    refused = remote("claim", task, "--actor", "other", HOLDFAST_TOKEN=secret)
    assert refused.code == 1
    assert remote("claim", task, "--actor", "bound", HOLDFAST_TOKEN=secret).code == 0


def test_a_token_never_stands_in_an_error(remote: Cli, server: Running) -> None:
    server.stop()
    for line in ("list", "create x", "watch --once", "next --actor a", "doctor"):
        answer = remote(*line.split(), HOLDFAST_TIMEOUT="0.3s")
        assert server.token not in answer.out + answer.err
        assert "Traceback" not in answer.err


def test_s13_a_folder_that_is_too_large_for_one_request_is_sent_in_parts(remote: Cli, project: Path) -> None:
    with holdfast.open(project / "source", actor="ann") as ws:
        for number in range(12):
            ws.stashes.create(f"stash {number}", "context", {"text": str(number) * 250_000})
    assert remote("stash", "export", "folder", "--dir", "source", HOLDFAST_URL="").code == 0
    properties = project / "folder" / "properties.jsonl"
    properties.write_text("{}\n")
    refused = remote("stash", "import", "folder", "--json")
    assert (refused.code, refused.error["code"]) == (1, "INVALID")
    assert [(each["file"], each["line"]) for each in refused.error["details"]["problems"]] == [("properties.jsonl", 1)]
    assert remote("stash", "list", "-q").out == "", "nothing was imported"
    properties.unlink()
    told = remote("stash", "import", "folder", "--json").data
    assert {table: len(ids) for table, ids in told["created"].items() if ids} == {"stashes": 12, "stash_history": 12}
    assert remote("stash", "export", "back").code == 0
    for name in ("stashes.jsonl", "stash_history.jsonl"):
        assert (project / "back" / name).read_bytes() == (project / "folder" / name).read_bytes()
    assert "12 stashes" in remote("stash", "import", "folder").out


def test_t18_tasks_that_are_too_large_for_one_request_are_sent_in_slices(remote: Cli, project: Path) -> None:
    head = {"format": "holdfast.task/1", "body": "b" * 1500}
    lines = [json.dumps({**head, "id": f"t-{at}", "title": "x", "parent_id": "t-3500"}) for at in range(3500)]
    lines.append(json.dumps({**head, "id": "t-3500", "title": "the parent of all"}))
    file = project / "tasks.jsonl"
    file.write_text("\n".join([*lines, "{", ""]))
    assert file.stat().st_size > 4 * 1024 * 1024
    refused = remote("import", "tasks.jsonl", "--json")
    assert (refused.code, [each["line"] for each in refused.error["details"]["problems"]]) == (1, [3502])
    assert remote("list", "-q").out == "", "nothing was imported"
    file.write_text("\n".join([*lines, ""]))
    assert remote("import", "tasks.jsonl", "--atomic", "--json").error["code"] == "TOO_LARGE"
    assert len(remote("import", "tasks.jsonl", "--json").data["created"]["tasks"]) == 3501
    assert len(remote("import", "tasks.jsonl", "--json").data["unchanged"]["tasks"]) == 3501
