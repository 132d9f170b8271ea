"""What a careless client might do, and must neither destroy nor reveal anything: names, tokens, versions, folders."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

import holdfast
from holdfast import errors
from holdfast.faces.http.auth import Tokens
from tests.http.inside import serving, token_of
from tests.http.running import PATIENCE, Running, command

ODD = (".", "..", "...", "ready", "export", "search", "unread", "check", "find", "a/b", "%2e", "ü", "a b", "?", "#")


def connected(server: Any, **given: Any) -> holdfast.RemoteWorkspace:
    return holdfast.connect(server.url, token=token_of(server), actor="ann", **given)


@pytest.mark.parametrize("name", ODD)
def test_a_name_is_a_name_however_much_it_looks_like_a_place_or_a_word_of_an_address(tmp_path: Path, name: str) -> None:
    with serving(tmp_path) as server, connected(server) as ws:
        ws.cells.set("run", "keep", 0)
        assert ws.cells.set("run", name, 1) == 1
        assert ws.cells.set(name, "cell", 2) == 1
        assert (ws.cells.get("run", name).value, ws.cells.get(name, "cell").value) == (1, 2)
        assert ws.cells.delete("run", name) is True
        assert ws.cells.list("run") == ["keep"]
        assert ws.cells.delete_run(name) == 1
        assert ws.locks.acquire(name).name == name
        assert ws.locks.get(name).holder == "ann"
        for look, missing in ((ws.tasks.get, errors.NotFound), (ws.mail.get, errors.NotFound)):
            with pytest.raises((missing, errors.Invalid)):
                look(name)
        assert ws.cells.get("run", "keep").value == 0


def test_a_token_may_end_with_a_line_and_is_never_in_a_message(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        secret = token_of(server)
        with holdfast.connect(server.url, token=f" {secret}\n", actor="ann") as ws:
            assert ws.revision == 0
        for wrong in (f"{secret}\n{secret}", f"{secret} x", "tök", "", 5):
            with pytest.raises(errors.Unauthorized) as refused:
                holdfast.connect(server.url, token=wrong, actor="ann")  # type: ignore[arg-type]
            assert secret not in str(refused.value)


@pytest.mark.parametrize("url", ["ftp://x", "127.0.0.1:1", "", "unix://", "http://", 5])
def test_what_is_no_address_is_refused_before_anything_is_sent(url: Any) -> None:
    with pytest.raises(errors.Invalid):
        holdfast.connect(url, token="hft_x", actor="ann")
    with pytest.raises(errors.Invalid):
        holdfast.connect("http://127.0.0.1:1", token="hft_x", actor="ann", timeout=-1)


@pytest.mark.parametrize("url", ["http://10.0.0.7:4653", "http://build.example", "http://[2001:db8::1]:4653/lab"])
def test_plain_http_to_another_machine_is_refused_with_what_to_do(url: str) -> None:
    with pytest.raises(errors.Invalid, match="in the clear") as refused:
        holdfast.connect(url, token="hft_x", actor="ann")
    assert "https://" in refused.value.hint
    assert "ssh -L" in refused.value.hint
    assert "hft_x" not in str(refused.value)
    for here in ("http://127.0.0.1:9", "http://localhost:9", "http://[::1]:9"):
        holdfast.connect(here, token="hft_x", actor="ann").close()


async def awaited(ws: holdfast.RemoteWorkspace) -> Any:
    return await ws.aio.cells.get("r", "c")


PAGES: Final = [
    (200, "text/html", b"<html>Sign in</html>"),
    (200, "application/json", b'{"unknown": [1]}'),
    (200, "application/json", b'"\xff"'),
    (502, "text/html", b"<html>Bad gateway</html>"),
]


@pytest.mark.parametrize(("status", "kind", "body"), PAGES, ids=["a page", "other JSON", "no UTF-8", "a bad gateway"])
def test_an_answer_that_is_not_ours_is_an_error_that_says_so(status: int, kind: str, body: bytes) -> None:
    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PUT = do_GET

        def log_message(self, *_: object) -> None:
            pass

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    thread = threading.Thread(target=proxy.serve_forever)
    thread.start()
    try:
        with holdfast.connect(f"http://127.0.0.1:{proxy.server_port}", token="hft_x", actor="ann") as ws:
            reads: list[Callable[[], Any]] = [
                lambda: ws.cells.get("r", "c"),
                lambda: ws.tasks.list(),
                lambda: ws.revision,
                lambda: next(ws.watch(timeout=1)),
                lambda: asyncio.run(awaited(ws)),
            ]
            for read in reads:
                with pytest.raises(errors.Unavailable) as refused:
                    read()
                assert type(refused.value) is errors.Unavailable
                assert "check the address" in refused.value.hint
            expected = errors.OutcomeUnknown if status == 200 else errors.Unavailable
            with pytest.raises(expected, match="Holdfast") as unknown:
                ws.cells.set("r", "c", 1)
            assert "check the address" in unknown.value.hint
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()


def test_a_token_file_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_TOKEN_FILE", "/nowhere/token")
    monkeypatch.delenv("HOLDFAST_TOKEN", raising=False)
    with pytest.raises(errors.Unauthorized, match="/nowhere/token"):
        holdfast.connect("http://127.0.0.1:1", actor="ann")


def test_a_client_without_a_token_says_so_and_nothing_about_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOLDFAST_TOKEN", "HOLDFAST_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(errors.Unauthorized, match="no token was given") as refused:
        holdfast.connect("http://127.0.0.1:9", actor="ann")
    assert refused.value.hint == 'holdfast.connect(url, token="..."), or set HOLDFAST_TOKEN'


def test_arguments_that_are_too_long_for_an_address_travel_too(tmp_path: Path) -> None:
    tags = [f"{'x' * 60}{number}" for number in range(40)]
    with serving(tmp_path) as server, connected(server) as ws:
        task = ws.tasks.create("task", tags=tags)
        assert [found.id for found in ws.tasks.ready(tags=tags[:30])] == [task.id]
        assert len(ws.tasks.remove_tags(task.id, tags[5:]).tags) == 5
        with ws.watch(kinds=["cell"] * 2000) as watch:
            ws.cells.set("run", "cell", 1)
            assert next(watch).id == "cell"


def test_if_match_is_the_expected_version_and_never_ignored(tmp_path: Path) -> None:
    with serving(tmp_path) as server, connected(server) as ws:
        ws.cells.set("run", "cell", 1)

        def send(method: str, path: str, body: Any, **headers: str) -> tuple[int, Any]:
            own = {"authorization": f"Bearer {token_of(server)}", "x-agent-id": "ann"}
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            answer = httpx.request(method, f"{server.url}/api/cells/run/cell{path}", headers=own | named, json=body)
            return answer.status_code, answer.json()

        assert send("POST", "/cas", {"value": 2}, if_match='"1"') == (200, 2)
        assert send("POST", "/cas", {"value": 3}, if_match='"1"')[0] == 409
        assert send("POST", "/cas", {"value": 3, "expected": 2}, if_match='"1"')[0] == 400
        assert send("POST", "/cas", {"value": 3}, if_match="soon")[0] == 400
        assert send("PUT", "", {"value": 3}, if_match='"2"')[0] == 400
        assert send("PUT", "", {"value": 3}, if_none_match="*")[0] == 400
        assert ws.cells.get("run", "cell").version == 2
        assert send("POST", "/compare-and-delete", {}, if_match='"2"')[0] == 200


def test_a_header_that_says_who_acts_is_ascii_and_said_once(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        own = (b"authorization", f"Bearer {token_of(server)}".encode())
        for given in ([(b"x-agent-id", "ünï".encode())], [(b"x-agent-id", b"a"), (b"x-agent-id", b"b")]):
            answer = httpx.post(f"{server.url}/api/locks/door/acquire", headers=[own, *given])
            assert answer.status_code == 400, given
        with connected(server) as ws:
            assert ws.using(actor="ünï").locks.acquire("door").holder == "ünï"


def test_a_bound_token_asks_for_nobody_elses_mail(tmp_path: Path) -> None:
    with serving(tmp_path) as server, connected(server) as ws:
        ws.mail.send(["al"], "subject", "a secret")
        _, secret = Tokens(tmp_path).create("agent", actor="bob")
        with holdfast.connect(server.url, token=secret, actor="bob") as bob:
            for ask in (
                bob.mail.inbox,
                bob.mail.unread,
                bob.mail.sent,
                lambda agent: bob.mail.search("secret", agent=agent),
            ):
                with pytest.raises(errors.Forbidden):
                    ask(agent="al")


def test_a_folder_that_a_server_makes_is_kept_out_of_git(server: Running) -> None:
    assert (server.folder / ".gitignore").read_text() == "*\n"


def test_a_workspace_whose_folder_is_removed_harms_no_other_and_can_be_made_again(tmp_path: Path) -> None:
    lab = tmp_path / "workspaces" / "lab"
    lab.mkdir(parents=True)
    with (
        serving(tmp_path) as server,
        holdfast.connect(f"{server.url}/lab", token=token_of(server), actor="ann") as ws,
    ):
        ws.cells.set("run", "cell", 1)
        shutil.rmtree(lab)
        with pytest.raises(errors.NotFound):
            ws.cells.set("run", "cell", 2)
        own = {"authorization": f"Bearer {token_of(server)}"}
        assert httpx.get(f"{server.url}/metrics", headers=own).status_code == 200
        assert httpx.get(f"{server.url}/readyz", headers=own).status_code == 200
        lab.mkdir()
        assert ws.cells.set("run", "cell", 3) == 1
        (tmp_path / "holdfast.db").rename(tmp_path / "elsewhere.db")
        assert httpx.get(f"{server.url}/readyz", headers=own).status_code == 503
        assert 'holdfast_workspace_up{workspace=""} 0' in httpx.get(f"{server.url}/metrics", headers=own).text
        (tmp_path / "elsewhere.db").rename(tmp_path / "holdfast.db")


@pytest.mark.parametrize("what", ["folder", "db"])
def test_a_server_whose_files_are_gone_says_so_at_every_address(tmp_path: Path, what: str) -> None:
    """Not that the token is unknown: nobody can know that any more."""
    folder, away = tmp_path / "store", tmp_path / "away"
    with serving(folder) as server:
        own = {"authorization": f"Bearer {token_of(server)}", "x-agent-id": "ann"}
        assert httpx.get(f"{server.url}/healthz").status_code == 200
        gone = folder if what == "folder" else folder / "holdfast.db"
        gone.rename(away)
        asked = [httpx.get(f"{server.url}/{path}", headers=own) for path in ("healthz", "readyz")]
        asked.append(httpx.post(f"{server.url}/api/tasks", json={"title": "x"}, headers=own))
        for answer in asked:
            assert (answer.status_code, answer.json()["code"]) == (503, "CLOSED"), answer.text
            assert re.search("was removed", answer.json()["error"]), answer.text
            assert "restart the server" in answer.json()["hint"]
        away.rename(gone)


def test_a_server_removes_its_own_socket_and_none_that_took_its_place(tmp_path: Path) -> None:
    path = tmp_path / "store" / "server.sock"
    with serving(tmp_path / "store"):
        assert path.is_socket()
    assert not path.exists()
    with serving(tmp_path / "store"):
        path.unlink()
        path.write_text("mine")
    assert path.read_text() == "mine"


def test_a_folder_that_cannot_be_written_is_named_when_a_server_starts(tmp_path: Path) -> None:
    (tmp_path / "token").mkdir()
    done = subprocess.run(command(tmp_path, "--port", "0"), capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == errors.ReadOnly.exit_code
    assert f"the server cannot write its token to {tmp_path}" in done.stderr


def test_a_workspace_is_a_folder_of_the_server_and_no_way_to_another(tmp_path: Path) -> None:
    (tmp_path / "store" / "workspaces").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "store" / "workspaces" / "link").symlink_to(tmp_path / "other")
    with serving(tmp_path / "store") as server:
        own = {"authorization": f"Bearer {token_of(server)}"}
        assert httpx.get(f"{server.url}/link/api/revision", headers=own).status_code == 404
    assert list((tmp_path / "other").iterdir()) == []


def test_a_server_goes_on_when_nobody_reads_what_it_says(tmp_path: Path) -> None:
    started = " ".join(command(tmp_path / "store", "--port", "0"))
    shell = subprocess.Popen(["bash", "-c", f"{started} | head -1"], stdout=subprocess.PIPE, text=True)
    assert shell.stdout is not None
    url = shell.stdout.readline().split()[-1]
    try:
        for _ in range(20):
            assert httpx.get(f"{url}/healthz", timeout=PATIENCE).json() == {"status": "ok"}
    finally:
        subprocess.run(["pkill", "-TERM", "-f", str(tmp_path / "store")], check=True)
        shell.communicate(timeout=PATIENCE)
