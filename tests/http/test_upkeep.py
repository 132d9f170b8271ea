"""What a server does beside answering: giving back claims, backups, its access log, refusing to start, stopping."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

import holdfast
from holdfast import errors
from holdfast.faces.http import operations
from holdfast.faces.http.auth import Tokens
from holdfast.faces.http.listener import Settings
from holdfast.faces.http.operations import AccessLog
from holdfast.testing import ManualClock
from tests.http.inside import Watching, serving, token_of
from tests.http.running import PATIENCE, Running, command

GRACEFUL = 15  # seconds for a stop: less than the server would give to a request that hangs


def wait_until(true: Callable[[], bool], what: str) -> None:
    for _ in range(PATIENCE * 20):
        if true():
            return
        threading.Event().wait(0.05)
    raise AssertionError(f"{what}: never")


def statuses(folder: Path) -> list[tuple[str, str]]:
    """The tasks of a store, by a look into its file that wakes nobody."""
    with closing(sqlite3.connect(f"file:{folder / 'holdfast.db'}?mode=ro", uri=True)) as store:
        return store.execute("SELECT id, status FROM tasks ORDER BY seq").fetchall()


def spaces(folder: Path, *names: str) -> list[Path]:
    return [folder, *(folder / "workspaces" / name for name in names)]


@contextmanager
def process(folder: Path, *arguments: str) -> Iterator[Running]:
    """A server in a process of its own, which has ended when the block has."""
    running = Running(folder, *arguments)
    try:
        yield running
    finally:
        running.end()


def stopped(server: Running) -> str:
    """End a server kindly; answers what it has said on its standard error, which is no traceback."""
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(GRACEFUL) == 0
    said = server.process.communicate(timeout=PATIENCE)[1]
    assert "Traceback" not in said, said
    return said


def test_t6_claims_that_ended_while_no_server_ran_are_given_back_at_its_start(tmp_path: Path) -> None:
    kept = {}
    for folder in spaces(tmp_path, "one", "two"):
        with holdfast.open(folder, actor="dead", clock=ManualClock()) as ws:  # whose time is long past
            lost, parked = ws.tasks.create("lost").id, ws.tasks.create("parked").id
            ws.tasks.claim(lost, ttl=60)
            ws.tasks.claim(parked)
            ws.tasks.park(parked)
        assert statuses(folder) == [(lost, "in_progress"), (parked, "in_progress")]
        kept[folder] = [(lost, "open"), (parked, "in_progress")]
    with serving(tmp_path):  # nobody asks it anything
        assert {folder: statuses(folder) for folder in kept} == kept


def test_t6_a_claim_ends_without_any_traffic_in_every_workspace(tmp_path: Path) -> None:
    folders = spaces(tmp_path, "named")
    for folder in folders:
        with holdfast.open(folder, actor="ann") as ws:
            ws.tasks.claim(ws.tasks.create("task").id, ttl=1.5)
    with serving(tmp_path):
        for folder in folders:
            wait_until(lambda folder=folder: statuses(folder)[0][1] == "open", "the claim ends")  # type: ignore[misc]


def test_a_stop_leaves_a_private_backup_with_all_that_was_acknowledged(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "backups"
    (tmp_path / "store" / "workspaces" / "lab").mkdir(parents=True)
    with process(tmp_path / "store", "--backup-dir", str(target)) as running:
        for path in ("", "/lab"):
            with holdfast.connect(running.url + path, token=running.token, actor="ann") as ws:
                for number in range(20):
                    ws.cells.set("run", f"cell-{number}", path)
        stopped(running)
    assert target.stat().st_mode & 0o777 == 0o700
    found = sorted(target.glob("*.backup"))
    assert len([*target.glob("*.backup.sha256")]) == len(found)
    assert [path.name.split("-")[0] for path in found] == ["lab", "main"]
    for file, value in zip(found, ("/lab", ""), strict=True):
        assert file.stat().st_mode & 0o777 == 0o600
        holdfast.restore(file, tmp_path / file.stem)
        with holdfast.open(tmp_path / file.stem, actor="ann") as ws:
            assert [ws.cells.get("run", f"cell-{number}").value for number in range(20)] == [value] * 20
            assert ws.check().ok


def test_a_stop_leaves_a_backup_outside_the_tree_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOLDFAST_ROLLING", "1")
    store, folder = tmp_path / "store", tmp_path / "state" / "holdfast" / "backups"
    with process(store) as running:
        with holdfast.connect(running.url, token=running.token, actor="ann") as ws:
            ws.cells.set("run", "cell", 7)
        stopped(running)
    (made,) = folder.glob("*/*.stop.backup")
    holdfast.restore(made, tmp_path / "restored")
    with holdfast.open(tmp_path / "restored", actor="ann") as ws:
        assert ws.cells.get("run", "cell").value == 7
    monkeypatch.setenv("HOLDFAST_ROLLING", "0")
    with process(store) as running:
        stopped(running)
    assert [*folder.glob("*/*.stop.backup")] == [made]


def test_three_backups_of_a_stop_are_kept_and_one_that_takes_too_long_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    target = tmp_path / "backups"
    for number in range(5):
        with serving(tmp_path / "store", stop_folder=lambda folder: target):
            pass
        change(tmp_path / "store", number)
    kept = sorted(target.glob("*.stop.backup"))
    assert len(kept) == 3
    monkeypatch.setattr(operations, "STOP_COPY", -1.0)
    with serving(tmp_path / "store", stop_folder=lambda folder: target):
        pass
    assert sorted(target.glob("*.stop.backup")) == kept
    assert [*target.glob("*.partial")] == []
    assert "it was not done after" in caplog.text


def change(store: Path, value: int) -> None:
    """Write into a store that no server serves."""
    with holdfast.open(store, actor="ann") as ws:
        ws.cells.set("run", "cell", value)


@pytest.mark.parametrize("chosen", [False, True], ids=["beside the rolling ones", "--backup-dir"])
def test_a_stop_after_which_a_backup_would_say_the_same_makes_none(tmp_path: Path, chosen: bool) -> None:
    """Idle restarts push out no older backup; what changed, a claim that was renewed too, makes another."""
    store, target = tmp_path / "store", tmp_path / "backups"
    wanted: dict[str, Any] = {"backup_folder": target} if chosen else {"stop_folder": lambda folder: target}

    def stop() -> int:
        with serving(store, **wanted):
            pass
        return len([*target.glob("*.backup")])

    change(store, 1)
    assert [stop(), stop(), stop()] == [1, 1, 1]
    with holdfast.open(store, actor="ann") as ws:
        ws.tasks.claim(ws.tasks.create("task").id)
    assert [stop(), stop()] == [2, 2]
    with holdfast.open(store, actor="ann") as ws:
        ws.tasks.heartbeat(ws.tasks.list()[0].id)
    assert [stop(), stop()] == [3, 3]
    newest = max(target.glob("*.backup"))
    newest.write_bytes(newest.read_bytes()[:-1] + b"x")
    (count,) = {stop(), stop()}
    assert count == (4 if chosen else 3), "one that is damaged is none"
    assert max(target.glob("*.backup")) != newest


def test_a_stop_that_cannot_write_its_backup_says_why_and_names_no_option_that_was_not_given(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "backups").touch()
    with serving(tmp_path / "store", stop_folder=lambda folder: tmp_path / "backups"):
        pass
    (told,) = [record.getMessage() for record in caplog.records if "at the stop" in record.getMessage()]
    assert told.startswith("the backup at the stop failed: ")
    assert (str(tmp_path / "backups") in told, "--backup-dir" in told) == (True, False)


def test_a_stop_without_time_for_all_backups_says_once_how_many_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(operations, "STOP_COPY", -1.0)
    for folder in spaces(tmp_path / "store", "a", "b", "c"):
        folder.mkdir(parents=True, exist_ok=True)
    with serving(tmp_path / "store", stop_folder=lambda folder: tmp_path / "backups"):
        pass
    told = [record.getMessage() for record in caplog.records if "at the stop" in record.getMessage()]
    assert len(told) == 2, told
    assert told[1].startswith("3 of 4 workspaces were not backed up at the stop")


def test_backups_are_made_while_it_runs_and_counted(tmp_path: Path) -> None:
    target = tmp_path / "backups"
    with process(tmp_path / "store", "--backup-dir", str(target), "--backup-every", "1") as server:
        wait_until(lambda: "holdfast_backups_total 0\n" not in server.call("GET", "/metrics").text, "a backup")
        assert any(target.glob("main-*.backup"))
        told = server.call("GET", "/metrics").text
        assert "holdfast_upkeep_failures_total 0\n" in told
        newest = re.search(r'holdfast_newest_backup_timestamp_seconds{file="(.*)"} (\S+)\n', told)
        assert newest
        assert Path(newest[1]).parent == target
        assert abs(time.time() - float(newest[2])) < 60
        assert f'holdfast_info{{version="{holdfast.__version__}"}} 1\n' in told


def test_only_the_newest_backups_of_a_workspace_are_kept_and_other_files_are_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "backups"
    target.mkdir()
    old = [f"a-202001{day:02}T000000.000000.backup" for day in range(1, 6)]
    others = ["a-b-20200101T000000.000000.backup", "a-notes.backup", "a-20200101T000000.000000.backup.txt", "a-.backup"]
    others += ["aa-20200101T000000.000000.backup", "a-2020-01-01T00:00:00.0.backup", "readme"]
    for name in (*old, *others):
        (target / name).touch()
    for folder in spaces(tmp_path / "store", "a"):
        folder.mkdir(parents=True, exist_ok=True)
    with serving(tmp_path / "store", backup_folder=target, backups_kept=3):
        pass
    left = {path.name for path in target.iterdir() if not path.name.startswith("main-")}
    left -= {name for name in left if name.endswith(".sha256")}
    assert left >= {*others}
    assert sorted(left - {*others})[:2] == old[3:]
    assert len(left - {*others}) == 3


def test_a_workspace_that_is_called_main_has_backups_of_its_own(tmp_path: Path) -> None:
    """Whatever they are called: with one kept of each, there is one of each."""
    target = tmp_path / "backups"
    for number, folder in enumerate(spaces(tmp_path / "store", "main")):
        with holdfast.open(folder, actor="ann") as ws:
            ws.cells.set("run", "cell", number)
    with serving(tmp_path / "store", backup_folder=target, backups_kept=1):
        pass
    found = set()
    for file in target.glob("*.backup"):
        holdfast.restore(file, tmp_path / file.stem)
        with holdfast.open(tmp_path / file.stem, actor="ann") as ws:
            found.add(ws.cells.get("run", "cell").value)
    assert found == {0, 1}


@pytest.mark.parametrize("kind", ["a file", "read-only"])
def test_a_backup_that_fails_is_logged_and_counted_and_stops_nothing(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "backups"
    if kind == "read-only" and os.geteuid() == 0:
        pytest.skip("nothing is read-only for root")
    target.touch() if kind == "a file" else target.mkdir(mode=0o500)
    with process(tmp_path / "store", "--backup-dir", str(target), "--backup-every", "1") as running:
        never = "holdfast_upkeep_failures_total 0\n"
        wait_until(lambda: never not in running.call("GET", "/metrics").text, "a failure that is counted")
        assert running.call("POST", "/api/tasks", json={"title": "task"}).status_code == 201
        assert stopped(running).count("backup failed") >= 2


def test_a_workspace_that_cannot_be_opened_keeps_no_other_from_being_served(tmp_path: Path) -> None:
    bad, good = spaces(tmp_path, "bad", "good")[1:]
    for folder in (bad, good):
        folder.mkdir(parents=True)
    (bad / "holdfast.db").write_bytes(b"no database" * 1000)
    with process(tmp_path) as running:
        for path in ("", "/good"):
            assert running.call("POST", f"{path}/api/tasks", json={"title": "task"}).status_code == 201
        refused = running.call("GET", "/bad/api/tasks")
        assert (refused.status_code, refused.json()["code"]) == (500, "CORRUPT")
        assert "holdfast_upkeep_failures_total 1\n" in running.call("GET", "/metrics").text
        assert "the start of bad failed" in stopped(running)


def test_the_access_log_has_a_line_for_every_request_with_who_asked_and_never_a_secret(tmp_path: Path) -> None:
    asked: Counter[tuple[Any, ...]] = Counter()
    with serving(tmp_path / "store", access_log=tmp_path / "log") as server:
        tokens = Tokens(tmp_path / "store")
        (first,), admin = tokens.all(), token_of(server)
        reader, reading = tokens.create("read")
        bound, binding = tokens.create("agent", actor="bob")

        def ask(where: str, status: int, secret: str | None, *who: str | None, body: Any = None, **more: str) -> Any:
            method, path = where.split()
            headers = {name.replace("_", "-"): value for name, value in more.items()}
            headers |= {} if secret is None else {"authorization": f"Bearer {secret}"}
            answer = httpx.request(method, server.url + path, headers=headers, json=body, timeout=PATIENCE)
            assert answer.status_code == status, answer.text
            asked[method, path.partition("?")[0], status, *who] += 1
            return answer

        new = {"title": "task"}
        ask("GET /healthz", 200, None, None, None)
        ask("GET /api/tasks?limit=5", 200, admin, first.id, "ann", x_agent_id="ann")
        ask("POST /api/tasks", 201, binding, bound.id, "bob", body=new)
        ask("HEAD /api/tasks", 200, reading, reader.id, "eve", x_agent_id="eve")
        ask("POST /api/tasks", 400, admin, first.id, "ann", body={"title": 5}, x_agent_id="ann")
        ask("POST /api/tasks", 403, reading, reader.id, None, body=new)
        ask("POST /api/tasks", 401, "hft_wrong", None, None, body=new)
        ask("POST /api/tasks", 401, None, None, None, body=new)
        ask(f"GET /api/tasks?token={admin}", 401, None, None, None)
        ask("GET /api/tasks", 421, admin, None, None, host="elsewhere")
        ask("GET /api/tasks", 403, admin, None, None, origin="http://elsewhere")
        ask("GET /nothing", 404, admin, first.id, None)
        ask("DELETE /api/tasks", 405, admin, first.id, None)
        ticket = ask("POST /api/ticket", 201, binding, bound.id, None).json()["ticket"]
        with closing(Watching(server, f"?ticket={ticket}", token=None)) as watch:
            assert watch.status == 200
        asked["GET", "/api/events", 200, bound.id, "bob"] += 1
    text = (tmp_path / "log").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert Counter((e["method"], e["path"], e["status"], e["token"], e["actor"]) for e in lines) == asked
    assert {line["client"] for line in lines} == {"127.0.0.1"}
    assert not any(hidden in text for hidden in (admin, reading, binding, ticket, "hft_", "hfk_", "limit=5"))


def test_a_request_of_nobody_in_particular_does_not_break_the_access_log(tmp_path: Path) -> None:
    """Neither a header nor the token names an actor."""
    with process(tmp_path / "store", "--access-log", "-") as server:
        assert server.call("GET", "/api/tasks").status_code == 200
        assert [json.loads(line)["path"] for line in stopped(server).splitlines()] == ["/api/tasks"]


def test_a_line_that_comes_while_others_are_written_is_not_lost(tmp_path: Path) -> None:
    log = AccessLog(tmp_path / "log")

    class Served(SimpleNamespace):
        """A request during whose last step the thread that writes comes along, as it may at any step."""

        @property
        def actor(self) -> None:
            writing = threading.Thread(target=log._flush)
            writing.start()
            writing.join()

    async def scene() -> None:
        log.open()
        served: Any = Served(method="GET", path=b"/api/tasks", token=None, connection=SimpleNamespace(peer=None))
        log.add(served, 200, 0.0)
        log.close()

    asyncio.run(scene())
    assert len((tmp_path / "log").read_text().splitlines()) == 1


def refused(folder: Path, *arguments: str) -> tuple[int, str]:
    """The exit code of a server that does not start, and what it says: plain words."""
    started = [*command(folder), *arguments]
    with subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        if process.stdout.readline():
            process.kill()
            raise AssertionError("it has started")
        said = process.communicate(timeout=PATIENCE)[1]
    assert "Traceback" not in said, said
    return process.returncode, said


@pytest.mark.parametrize("option", ["--port 70000", "--port none", "--colour red", "--host 0.0.0.0"])
def test_a_server_with_bad_options_does_not_start_and_says_why(tmp_path: Path, option: str) -> None:
    code, said = refused(tmp_path / "store", *option.split())
    assert code == (2 if option in ("--port none", "--colour red") else 1)
    assert option.split()[0] in said or option.split()[1] in said


@pytest.mark.parametrize("option", ["--access-log", "--socket"])
@pytest.mark.parametrize("name", ["missing/file", "folder", "x" * 300])
def test_a_file_that_cannot_be_made_is_told_when_a_server_starts(tmp_path: Path, option: str, name: str) -> None:
    (tmp_path / "folder").mkdir()
    code, said = refused(tmp_path / "store", "--port", "0", option, str(tmp_path / name))
    assert code in {1, 16}
    assert str(tmp_path / name) in said


@pytest.mark.parametrize("name", ["store", "store/workspaces"])
def test_a_file_where_a_folder_should_be_is_told(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("mine")
    code, said = refused(tmp_path / "store", "--port", "0")
    assert code in {1, 16}
    assert str(file) in said
    assert file.read_text() == "mine"


def test_a_port_in_use_is_unavailable_and_a_damaged_store_is_corrupt(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        code, said = refused(tmp_path / "store", "--port", str(other.getsockname()[1]))
    assert code == errors.Unavailable.exit_code
    assert "--port" in said
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "holdfast.db").write_bytes(b"no database" * 1000)
    assert refused(tmp_path / "bad", "--port", "0")[0] == errors.Corrupt.exit_code


def test_a_file_that_is_no_socket_is_not_replaced_by_one(tmp_path: Path) -> None:
    file = tmp_path / "precious"
    file.write_text("work of years")
    with suppress(AssertionError):  # whatever it says
        refused(tmp_path / "store", "--socket", str(file))
    assert file.is_file()
    assert file.read_text() == "work of years"


@pytest.mark.parametrize("folder", ["store", "another"])
def test_a_server_that_is_refused_leaves_the_socket_of_the_one_that_runs(tmp_path: Path, folder: str) -> None:
    path = tmp_path / "socket"
    with serving(tmp_path / "store", socket=path):
        with suppress(AssertionError):  # whatever it says
            refused(tmp_path / folder, "--socket", str(path))
        with closing(socket.socket(socket.AF_UNIX)) as client:
            client.settimeout(PATIENCE)
            client.connect(str(path))
            client.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 200 ")


BACKUPS = {"backup_folder": Path("b")}
ALONE: dict[str, list[Any]] = {"host": ["0.0.0.0", "::", "192.0.2.1", ""], "port": [-1, 65536], "max_watchers": [0]}
ALONE |= {"backup_every": [60.0], "tls_cert": [Path("c")], "tls_key": [Path("k")], "allow_hosts": [("",)]}
TOGETHER: list[dict[str, Any]] = [{**BACKUPS, "backup_every": each} for each in (0.5, -1.0, float("nan"))]
TOGETHER += [{**BACKUPS, "backups_kept": 0}, {"tls_auto": True, "socket": Path("s")}]
TOGETHER += [{"tls_auto": True, "tls_cert": Path("c"), "tls_key": Path("k")}]


@pytest.mark.parametrize("wrong", [*({n: value} for n in ALONE for value in ALONE[n]), *TOGETHER], ids=str)
def test_settings_that_make_no_sense_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(errors.Invalid):
        Settings(folder=tmp_path, **wrong).check()


class Client(threading.Thread):
    """Somebody who writes as fast as it can until the server is gone."""

    def __init__(self, server: Running, name: str) -> None:
        super().__init__(name=name)
        self._server = server
        self.acknowledged: list[str] = []
        self.refused: BaseException | None = None
        self.busy = threading.Event()

    def run(self) -> None:
        with holdfast.connect(self._server.url, token=self._server.token, actor=self.name) as ws:
            try:
                while True:
                    cell = f"{self.name}-{len(self.acknowledged)}"
                    ws.cells.set("load", cell, self.name)
                    self.acknowledged.append(cell)
                    if len(self.acknowledged) == 50:
                        self.busy.set()
            except errors.HoldfastError as error:
                self.refused = error


def test_a_stop_under_load_loses_no_acknowledged_write_and_waits_for_nobody(tmp_path: Path) -> None:
    answers: list[Any] = []
    with process(tmp_path) as server, holdfast.connect(server.url, token=server.token, actor="ann") as ann:

        def poll() -> None:
            answers.append(server.call("GET", "/api/events?wait=60&kinds=message").status_code)

        def wait() -> None:
            try:
                ann.using(actor="bob").locks.acquire("door", wait=60)
            except errors.HoldfastError as error:
                answers.append(type(error))

        ann.locks.acquire("door", ttl=600)
        clients = [Client(server, f"client-{number}") for number in range(4)]
        waiting = [threading.Thread(target=poll), threading.Thread(target=wait)]
        headers = {"authorization": f"Bearer {server.token}", "accept": "text/event-stream"}
        with httpx.stream("GET", f"{server.url}/api/events", headers=headers, timeout=PATIENCE) as watch:
            for thread in waiting:
                thread.start()
            wait_until(lambda: "holdfast_requests_active 4\n" in server.call("GET", "/metrics").text, "all are waiting")
            for client in clients:
                client.start()
            assert all(client.busy.wait(PATIENCE) for client in clients)
            stopped(server)
            assert "event: stop" in list(watch.iter_lines())
        for each in (*clients, *waiting):
            each.join(PATIENCE)
    assert len(answers) == 2
    assert {*answers} <= {200, 503, errors.OutcomeUnknown}
    assert all(isinstance(client.refused, errors.Unavailable) for client in clients), [c.refused for c in clients]
    with holdfast.open(tmp_path, actor="ann") as ws:
        there = set(ws.cells.list("load"))
        acknowledged = {cell for client in clients for cell in client.acknowledged}
        assert acknowledged <= there
        assert len(there - acknowledged) <= len(clients)  # the last of each may have happened
        assert ws.check().ok
