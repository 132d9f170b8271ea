"""`holdfast token` as a process: who may come in, told once, stored as a digest, heeded by a server that runs."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast import errors
from holdfast.faces.cli import main
from holdfast.faces.http.auth import Tokens
from holdfast.workspace.context import ROLES
from tests.http.inside import serving, token_of
from tests.http.running import PATIENCE, Running, code_of


def command(folder: Path, *arguments: str | bytes) -> list[str | bytes]:
    return [sys.executable, "-m", "holdfast", "token", *arguments, "--dir", str(folder)]


def run(folder: Path, *arguments: str | bytes) -> tuple[int, str, str]:
    """The exit code of `holdfast token`, what it says, and what it says is wrong: never with a traceback."""
    found = subprocess.run(command(folder, *arguments), capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert "Traceback" not in found.stderr, found.stderr
    return found.returncode, found.stdout, found.stderr


def done(folder: Path, *arguments: str) -> str:
    code, said, wrong = run(folder, *arguments)
    assert (code, wrong) == (0, "")
    return said


def done_json(folder: Path, *arguments: str) -> Any:
    answer = json.loads(done(folder, *arguments, "--json"))
    assert answer.keys() == {"schema_version", "data"}
    assert answer["schema_version"] == 1
    return answer["data"]


def test_a_token_is_made_listed_and_revoked_in_plain_text(tmp_path: Path) -> None:
    secret = done(tmp_path, "create", "--role", "read", "--workspace", "lab", "--actor", "ann", "--note", "a laptop")
    _, other = Tokens(tmp_path).create("agent")
    assert secret.startswith("hft_")
    assert secret.count("\n") == 1
    lines = done(tmp_path, "list").splitlines()
    assert [line.split()[1:4] for line in lines] == [["read", "lab", "ann"], ["agent", "*", "-"]]
    assert lines[0].endswith("a laptop")
    id = lines[0].split()[0]
    assert done(tmp_path, "revoke", id) == f"revoked {id}\n"
    assert [token.role for token in Tokens(tmp_path).all()] == ["agent"]
    assert Tokens(tmp_path).find(other).role == "agent"
    with pytest.raises(errors.Unauthorized):
        Tokens(tmp_path).find(secret.strip())


def test_a_token_is_made_listed_and_revoked_as_json(tmp_path: Path) -> None:
    made = done_json(tmp_path, "create", "--role", "admin", "--workspace", "", "--actor", "ann", "--note", "mine")
    secret, created = made.pop("secret"), made["created_at"]
    assert made == {
        "id": made["id"],
        "role": "admin",
        "workspace": "",
        "actor": "ann",
        "note": "mine",
        "created_at": created,
    }
    assert done_json(tmp_path, "list") == [made]
    assert Tokens(tmp_path).find(secret).id == made["id"]
    assert done_json(tmp_path, "revoke", made["id"]) == {"id": made["id"]}
    assert done_json(tmp_path, "list") == []


def test_a_secret_is_shown_once_and_only_its_digest_is_stored(tmp_path: Path) -> None:
    secret = done(tmp_path, "create").strip()
    digest = hashlib.sha256(secret.encode()).hexdigest()
    assert len(secret) > 40
    assert digest in (tmp_path / "tokens.json").read_text()
    for path in tmp_path.iterdir():
        assert secret not in path.read_text()
        assert path.stat().st_mode & 0o077 == 0
    for form in ([], ["--json"]):
        listed = done(tmp_path, "list", *form)
        assert secret not in listed
        assert digest not in listed


def test_a_server_that_runs_heeds_what_is_made_and_revoked(tmp_path: Path) -> None:
    (tmp_path / "workspaces" / "lab").mkdir(parents=True)
    with serving(tmp_path) as server, httpx.Client(base_url=server.url, timeout=PATIENCE) as client:

        def ask(method: str, path: str, secret: str, **given: Any) -> int:
            headers = {"authorization": f"Bearer {secret}", **given.pop("headers", {})}
            return client.request(method, path, headers=headers, **given).status_code

        made = {role: done_json(tmp_path, "create", "--role", role) for role in ROLES}
        new: dict[str, Any] = {"json": {"title": "task"}}
        asked = [("GET", "/api/tasks", {}), ("POST", "/api/tasks", new), ("GET", "/api/check", {})]
        found = {role: [ask(m, p, made[role]["secret"], **given) for m, p, given in asked] for role in ROLES}
        assert found == {"read": [200, 403, 403], "agent": [200, 201, 403], "admin": [200, 201, 200]}
        lab = done_json(tmp_path, "create", "--workspace", "lab", "--actor", "ann")["secret"]
        assert [ask("GET", path, lab) for path in ("/lab/api/tasks", "/api/tasks")] == [200, 403]
        as_bob: dict[str, Any] = {**new, "headers": {"x-agent-id": "bob"}}
        assert [ask("POST", "/lab/api/tasks", lab, **given) for given in (new, as_bob)] == [201, 403]
        done(tmp_path, "revoke", made["agent"]["id"])
        assert ask("GET", "/api/tasks", made["agent"]["secret"]) == 401
        assert ask("GET", "/api/tasks", made["read"]["secret"]) == 200


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["revoke", "20200101000000000000"], errors.NotFound.exit_code),
        (["create", "--role", "root"], 2),
        (["create", "--workspace", "../elsewhere"], errors.InvalidName.exit_code),
        (["create", "--actor", "system"], errors.Invalid.exit_code),
        (["create", "--actor", ""], errors.Invalid.exit_code),
        (["revoke"], 2),
        (["paint"], 2),
        ([], 2),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_told_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int
) -> None:
    Tokens(tmp_path).create("agent")
    before = (tmp_path / "tokens.json").read_bytes()
    try:
        found = main(["token", *arguments, "--dir", str(tmp_path)])
    except SystemExit as ended:  # a mistake in the command line itself
        found = int(ended.code or 0)
    said, wrong = capsys.readouterr()
    assert (found, said) == (code, "")
    assert wrong.startswith(("holdfast: ", "usage: "))
    assert (tmp_path / "tokens.json").read_bytes() == before


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("missing", "file"):
        code, said, wrong = run(tmp_path / name, "create")
        assert (code, said) == (errors.NotFound.exit_code, "")
        assert str(tmp_path / name) in wrong
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_error_is_json_where_json_is_asked_for(tmp_path: Path) -> None:
    code, said, wrong = run(tmp_path, "revoke", "20200101000000000000", "--json")
    assert (code, said) == (errors.NotFound.exit_code, "")
    assert json.loads(wrong)["code"] == "NOT_FOUND"


@pytest.mark.parametrize("note", [b"\xff", b"two\nlines", "grün".encode()], ids=["no UTF-8", "lines", "UTF-8"])
def test_whatever_a_note_says_a_token_is_one_line_of_the_list(tmp_path: Path, note: bytes) -> None:
    """It may be refused instead, in plain words."""
    code, said, wrong = run(tmp_path, "create", "--note", note)
    assert (code == 0) == said.startswith("hft_")
    assert (code == 0) == (wrong == "")
    assert len(done(tmp_path, "list").splitlines()) <= 1


def test_tokens_that_several_processes_make_at_once_are_all_there(tmp_path: Path) -> None:
    gone = Tokens(tmp_path).create("agent")[0].id
    started = [command(tmp_path, "create", "--note", f"number {number}") for number in range(6)]
    started.append(command(tmp_path, "revoke", gone))
    processes = [subprocess.Popen(each, stdout=subprocess.PIPE, text=True) for each in started]
    said = [process.communicate(timeout=PATIENCE)[0].strip() for process in processes]
    assert [process.returncode for process in processes] == [0] * 7
    tokens = Tokens(tmp_path)
    assert {token.note for token in tokens.all()} == {f"number {number}" for number in range(6)}
    assert len({token.id for token in tokens.all()}) == 6
    assert [tokens.find(secret).note for secret in said[:6]] == [f"number {number}" for number in range(6)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tokens.json", "tokens.lock"]


@pytest.mark.parametrize(
    "damage", [b"", b"[{", b"\xff\xfe", b"{}", b"null", b'[{"id": "1", "digest": "x", "role": "root"}]'], ids=repr
)
def test_a_damaged_file_lets_nobody_in_says_so_and_is_left_as_it_is(tmp_path: Path, damage: bytes) -> None:
    with serving(tmp_path) as server, httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
        headers = {"authorization": f"Bearer {token_of(server)}"}
        assert client.get("/api/tasks", headers=headers).status_code == 200
        good = (tmp_path / "tokens.json").read_bytes()
        (tmp_path / "tokens.json").write_bytes(damage)
        for path in ("/api/tasks", "/metrics", "/openapi.json"):
            assert code_of(client.get(path, headers=headers)) == (500, "CORRUPT")
        assert client.get("/healthz").status_code == 200
        with pytest.raises(errors.Corrupt, match=r"tokens\.json"):
            Tokens(tmp_path).create("admin")
        assert (tmp_path / "tokens.json").read_bytes() == damage
        (tmp_path / "tokens.json").write_bytes(good)
        assert client.get("/api/tasks", headers=headers).status_code == 200
        (tmp_path / "tokens.json").unlink()
        assert client.get("/api/tasks", headers=headers).status_code == 401


def test_a_damaged_file_is_told_on_the_command_line_and_when_a_server_starts(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hft_old\n")
    (tmp_path / "tokens.json").write_bytes(b"[{")
    code, said, wrong = run(tmp_path, "list")
    assert (code, said) == (errors.Corrupt.exit_code, "")
    assert str(tmp_path / "tokens.json") in wrong
    assert main(["token", "revoke", "1", "--dir", str(tmp_path)]) == errors.Corrupt.exit_code
    assert (tmp_path / "tokens.json").read_bytes() == b"[{"
    running = Running(tmp_path)  # it may also refuse to start; but not make new tokens of its own
    try:
        assert code_of(running.call("GET", "/api/tasks")) == (500, "CORRUPT")
        assert (tmp_path / "tokens.json").read_bytes() == b"[{"
    finally:
        running.end()


def test_a_server_with_the_tokens_of_another_makes_none_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with serving(tmp_path / "a") as server:
        secret = token_of(server)
    (tmp_path / "b").mkdir()
    shutil.copy(tmp_path / "a" / "tokens.json", tmp_path / "b")
    running = Running(tmp_path / "b")
    try:
        assert running.call("GET", "/api/whoami", token=secret).json()["role"] == "admin"
        assert not (tmp_path / "b" / "token").exists()
        assert len(Tokens(tmp_path / "b").all()) == 1
        assert running.stop() == 0
        assert running.process.stdout is not None
        said = running.process.stdout.read()
    finally:
        running.end()
    assert "send a token as Authorization: Bearer TOKEN; make one: holdfast token create" in said
    assert "the first token" not in said
    assert "$(cat" not in said


def test_the_first_token_that_a_server_tells_of_is_there(tmp_path: Path) -> None:
    """Also if somebody has made another before the first start."""
    Tokens(tmp_path).create("read")
    with serving(tmp_path) as server:
        assert (tmp_path / "token").exists()
        headers = {"authorization": f"Bearer {token_of(server)}"}
        assert httpx.get(f"{server.url}/api/whoami", headers=headers).json()["role"] == "admin"
