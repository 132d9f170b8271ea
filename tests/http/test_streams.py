"""Watching over HTTP: shared channels, slow and late clients, tickets, limits, long polls, progress."""

from __future__ import annotations

import threading
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest

import holdfast
from holdfast import errors
from holdfast.faces.http import auth, sse
from holdfast.faces.http.auth import Tokens
from holdfast.faces.http.server import Server
from holdfast.testing.crowd import LONG, start
from tests.http.inside import Watching, serving, token_of
from tests.http.running import PATIENCE

STARTS = (0, 5, 40)


def call(server: Server, method: str, path: str, token: str | None = None, **given: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {token or token_of(server)}", "x-agent-id": "ann", **given.pop("headers", {})}
    return httpx.request(method, server.url + path, headers=headers, timeout=PATIENCE, **given)


def connected(server: Server) -> holdfast.RemoteWorkspace:
    return holdfast.connect(server.url, token=token_of(server), actor="ann")


def test_clients_that_share_a_channel_and_one_that_comes_late_get_the_same_without_gap_or_repeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "REACH", 8)  # so that the channel itself forgets what the late one needs
    with serving(tmp_path) as server, connected(server) as ws:
        early = [Watching(server, "?kinds=cell") for _ in range(3)]
        for number in range(60):
            ws.cells.set("run", "cell", number)
        writer = threading.Thread(target=lambda: [ws.cells.set("run", "cell", number) for number in range(140)])
        writer.start()
        late = [Watching(server, f"?kinds=cell&after={after}") for after in STARTS]
        seen = [[event["version"] for event in client.events(200)] for client in early]
        caught_up = [[event["version"] for event in c.events(200 - n)] for c, n in zip(late, STARTS, strict=True)]
        writer.join()
        for client in (*early, *late):
            client.close()
    assert seen == [list(range(1, 201))] * 3
    assert caught_up == [list(range(n + 1, 201)) for n in STARTS]


def test_a_watch_ends_when_another_thread_closes_its_workspace(tmp_path: Path) -> None:
    ended, begun = list[type[BaseException]](), threading.Event()

    def read(ws: holdfast.RemoteWorkspace) -> None:
        try:
            for _ in ws.watch(after=0):
                begun.set()
        except errors.HoldfastError as error:
            ended.append(type(error))

    with serving(tmp_path) as server:
        ws = connected(server)
        ws.cells.set("run", "cell", 1)
        reader = threading.Thread(target=read, args=(ws,), daemon=True)
        reader.start()
        assert begun.wait(PATIENCE)
        ws.close()
        reader.join(PATIENCE)
    assert ended == [errors.Closed]


def test_a_client_that_does_not_read_slows_nobody_is_let_go_and_resumes_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "READ_TIMEOUT", 500_000)
    big = "x" * 200_000
    with serving(tmp_path) as server, connected(server) as ws:
        with closing(Watching(server, room=4096)) as slow, closing(Watching(server)) as quick:
            reading = start(lambda: quick.events(40))
            for number in range(40):  # more than all buffers between here and there
                ws.cells.set("run", "cell", f"{number}{big}")
            assert [event["version"] for event in reading.result(LONG)] == list(range(1, 41))
            for _ in range(PATIENCE * 10):
                if "holdfast_watchers_cut_total 1" in call(server, "GET", "/metrics").text:
                    break
                threading.Event().wait(0.1)
            else:
                raise AssertionError("it was never let go")
            got: list[str] = []
            with suppress(OSError, ValueError):  # the connection ends in the middle of something
                got.extend(frame["id"] for frame in slow.frames() if "event" not in frame)
        assert len(got) < 40
        after = got[-1] if got else "0"
        with closing(Watching(server, f"?after={after}")) as again:
            rest = [event["version"] for event in again.events(40 - len(got))]
        assert rest == list(range(len(got) + 1, 41))


@pytest.mark.parametrize("query", ["?after=0", "?after=0&timeout=60"], ids=["shared", "direct"])
def test_large_events_are_sent_a_few_at_a_time_and_kept_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    monkeypatch.setattr(sse, "REACH_BYTES", 2_000_000)
    big = "x" * 900_000
    with serving(tmp_path) as server, connected(server) as ws, closing(Watching(server)) as early:
        for number in range(12):
            ws.cells.set("run", "cell", f"{number}{big}")
        with closing(Watching(server, query)) as late:
            assert [event["version"] for event in late.events(12)] == list(range(1, 13))
        assert [event["version"] for event in early.events(12)] == list(range(1, 13))
        assert max(early.largest, late.largest) < 3_000_000
        kept = [channel for space in server.spaces.open() for channel in space.channels._open.values()]
        assert max(sum(len(frame) for _, frame in channel._events) for channel in kept) < 3_000_000


def test_a_bookmark_comes_when_nothing_does_and_moves_on_over_what_was_filtered_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "HEARTBEAT", 1000)
    with serving(tmp_path) as server, connected(server) as ws, closing(Watching(server, "?kinds=lock")) as watch:
        coming = watch.frames()
        assert next(coming)["event"] == "bookmark"
        ws.cells.set("run", "cell", 1)
        assert any(frame == {"event": "bookmark", "id": "1", "data": "{}"} for frame in islice(coming, 5))


def test_a_watch_ends_when_its_token_is_revoked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "TOKEN_CHECK_EVERY", 0)
    with serving(tmp_path) as server, connected(server) as ws:
        token, secret = Tokens(tmp_path).create("read")
        with closing(Watching(server, token=secret)) as watch:
            ws.cells.set("run", "cell", 1)
            assert watch.events(1)[0]["version"] == 1
            Tokens(tmp_path).revoke(token.id)
            ws.cells.set("run", "cell", 2)
            last = list(watch.frames())[-1]
    assert last["event"] == "error"
    assert "UNAUTHORIZED" in last["data"]


def test_a_token_has_so_many_watchers_and_no_more(tmp_path: Path) -> None:
    with serving(tmp_path, max_watchers=2) as server:
        first, second = Watching(server), Watching(server)
        refused = Watching(server)
        assert (first.status, second.status, refused.status) == (200, 200, 429)
        assert refused.body()["code"] == "TOO_MANY_WATCHERS"
        _, other = Tokens(tmp_path).create("read")
        with closing(Watching(server, token=other)) as elsewhere:
            assert elsewhere.status == 200
        for client in (first, second, refused):
            client.close()


def test_a_ticket_is_good_for_one_watch_of_its_workspace_and_for_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "workspaces" / "other").mkdir(parents=True)
    with serving(tmp_path) as server:

        def ticket() -> str:
            answer = call(server, "POST", "/api/ticket")
            assert (answer.status_code, answer.json()["expires_in"]) == (201, 30)
            return str(answer.json()["ticket"])

        good = ticket()
        with closing(Watching(server, f"?ticket={good}&kinds=cell", token=None)) as watch:
            assert watch.status == 200
        with closing(Watching(server, f"?ticket={good}", token=None)) as again:
            assert (again.status, again.body()["code"]) == (401, "UNAUTHORIZED")
        for path in ("/api/tasks", "/api/events", "/other/api/events", "/metrics", "/api/whoami"):
            accept = {"accept": "text/event-stream"} if "other" in path else {}
            refused = httpx.get(f"{server.url}{path}?ticket={ticket()}", headers=accept)
            assert refused.status_code == 401, path
        posted = httpx.post(f"{server.url}/api/tasks?ticket={ticket()}", json={"title": "x"})
        assert posted.status_code == 401


def test_a_ticket_is_worth_what_its_token_is_and_no_longer_than_30_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path) as server:
        token, secret = Tokens(tmp_path).create("read")
        lost = call(server, "POST", "/api/ticket", token=secret).json()["ticket"]
        Tokens(tmp_path).revoke(token.id)
        old = call(server, "POST", "/api/ticket").json()["ticket"]
        now = auth._now()
        monkeypatch.setattr(auth, "_now", lambda: now + 31_000_000)
        for spoiled in (lost, old, "hfk_invented"):
            with closing(Watching(server, f"?ticket={spoiled}", token=None)) as watch:
                assert watch.status == 401


def test_a_long_poll_answers_what_came_waits_for_what_comes_and_ends_in_time(tmp_path: Path) -> None:
    with serving(tmp_path) as server, connected(server) as ws:
        ws.cells.set("run", "cell", 1)
        at_once = call(server, "GET", "/api/events?after=0&wait=20")
        assert [event["version"] for event in at_once.json()] == [1]
        cursor = at_once.headers["x-next-cursor"]
        answers: list[httpx.Response] = []
        waiting = threading.Thread(
            target=lambda: answers.append(call(server, "GET", f"/api/events?after={cursor}&wait=20&kinds=cell"))
        )
        waiting.start()
        ws.locks.acquire("door")  # not asked for
        ws.cells.set("run", "cell", 2)
        waiting.join()
        assert [event["version"] for event in answers[0].json()] == [2]
        empty = call(server, "GET", "/api/events?wait=0.05")
        assert (empty.json(), empty.headers["x-next-cursor"]) == ([], str(ws.revision))
        for wrong in ("soon", "-1", "61", "nan"):
            assert call(server, "GET", f"/api/events?wait={wrong}").status_code == 400, wrong


def test_long_work_tells_its_progress_to_whoever_watches(tmp_path: Path) -> None:
    with serving(tmp_path) as server, connected(server) as ws, closing(Watching(server, "?kinds=task")) as watch:
        task = ws.tasks.create("task")
        assert watch.events(1)[0]["id"] == task.id
        (line,) = ws.tasks.export()
        ws.tasks.import_([line.replace(task.id, f"t-{number}") for number in range(300)])
        told = []
        for frame in watch.frames():
            if frame.get("event") == "progress":
                told.append(frame["data"])
            elif "event" not in frame:
                break
    assert told[0] == '{"work":"import","done":0,"total":600}'
    assert told[-1] == '{"work":"import","done":600,"total":600}'


def test_a_call_that_waits_is_ended_when_the_server_stops(tmp_path: Path) -> None:
    refused: list[BaseException] = []
    with serving(tmp_path) as server, connected(server) as ws:
        ws.locks.acquire("door")

        def wait() -> None:
            try:
                ws.using(actor="bob").locks.acquire("door", wait=60)
            except holdfast.HoldfastError as error:
                refused.append(error)

        with ws.watch(kinds=["lock"]) as watch:
            waiting = threading.Thread(target=wait)
            waiting.start()
            assert next(watch).op == "wait"
        server.stop()
        waiting.join(PATIENCE)
        assert not waiting.is_alive()
    assert [type(error) for error in refused] == [holdfast.errors.OutcomeUnknown]
