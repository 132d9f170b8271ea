"""The server as a process: who is let in, what is refused before it is read, and how it starts and stops."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

import holdfast
from holdfast import errors
from holdfast.faces.http.auth import MAX_BODY, Tokens
from holdfast.faces.http.listener import Settings
from holdfast.operation import REGISTRY, find_operation
from holdfast.schema import is_page
from holdfast.wire import plan_of
from tests.http.inside import serving
from tests.http.running import PATIENCE, Running, code_of, command


def test_a_server_says_where_it_listens_keeps_its_token_private_and_stops_when_told(server: Running) -> None:
    assert httpx.get(f"{server.url}/healthz").json() == {"status": "ok"}
    for name in ("token", "tokens.json"):
        assert (server.folder / name).stat().st_mode & 0o777 == 0o600
    assert server.token not in (server.folder / "tokens.json").read_text()
    with holdfast.connect(server.url, token=server.token, actor="ann") as ws:
        watch = ws.watch()
        task = ws.tasks.create("task")
        assert next(watch).id == task.id
    assert server.stop() == 0
    with holdfast.open(server.folder, actor="ann") as here:
        assert here.tasks.get(task.id).title == "task"
        assert here.check().ok


def test_a_second_server_on_a_folder_is_refused_with_pid_and_address_of_the_first(server: Running) -> None:
    again = command(server.folder, "--port", "0")
    second = subprocess.run(again, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert second.returncode != 0
    assert f"pid {server.process.pid} at {server.url}" in second.stderr


def test_a_second_server_is_refused_although_the_lock_files_of_the_first_were_removed(server: Running) -> None:
    for path in server.folder.glob("*.lock"):
        path.unlink()
    again = command(server.folder, "--port", "0")
    second = subprocess.run(again, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert second.returncode != 0
    assert "is served by a process whose server.lock somebody has removed" in second.stderr
    assert httpx.get(f"{server.url}/healthz").status_code == 200


def test_a_server_that_has_stopped_can_be_told_to_stop_again(tmp_path: Path) -> None:
    others = set(threading.enumerate())
    with serving(tmp_path / "served") as server:
        [thread] = [each for each in set(threading.enumerate()) - others if each.name == "holdfast-server"]
        server.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()
        server.stop()
    with pytest.raises(httpx.ConnectError):
        httpx.get(server.url)


def test_who_stops_a_server_stops_its_watchers_with_a_place_to_resume(server: Running) -> None:
    with httpx.stream(
        "GET", f"{server.url}/api/events", headers={**bearer(server), "accept": "text/event-stream"}, timeout=PATIENCE
    ) as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: bookmark"
        server.process.send_signal(signal.SIGTERM)
        rest = list(lines)
    assert "event: stop" in rest
    assert rest[rest.index("event: stop") + 1].startswith("id: ")
    assert server.process.wait(PATIENCE) == 0


def bearer(server: Running) -> dict[str, str]:
    return {"authorization": f"Bearer {server.token}"}


def test_every_address_but_liveness_wants_a_token_and_a_revoked_one_is_refused_at_once(server: Running) -> None:
    described = server.call("GET", "/openapi.json").json()
    addresses = [(method, path) for path, methods in described["paths"].items() for method in methods]
    assert len(addresses) > 100
    before = server.call("GET", "/api/revision").json()["revision"]
    for method, path in [*addresses, ("get", "/"), ("get", "/metrics"), ("get", "/readyz"), ("get", "/openapi.json")]:
        answer = httpx.request(method.upper(), server.url + path.replace("{", "").replace("}", ""))
        assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHORIZED"), (method, path)
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert code_of(server.call("GET", "/api/tasks", token="wrong")) == (401, "UNAUTHORIZED")
    token, secret = Tokens(server.folder).create("agent")
    assert server.call("GET", "/api/tasks", token=secret).status_code == 200
    Tokens(server.folder).revoke(token.id)
    assert code_of(server.call("GET", "/api/tasks", token=secret)) == (401, "UNAUTHORIZED")
    assert server.call("GET", "/api/revision").json()["revision"] == before


def test_tokens_have_a_role_a_workspace_and_an_actor_that_a_call_cannot_leave(server: Running) -> None:
    tokens = Tokens(server.folder)
    _, reader = tokens.create("read")
    _, agent = tokens.create("agent", actor="ann")
    _, elsewhere = tokens.create("agent", workspace="other")
    (server.folder / "workspaces" / "other").mkdir(parents=True)
    new: dict[str, Any] = {"json": {"title": "task"}}
    assert code_of(server.call("POST", "/api/tasks", token=reader, **new)) == (403, "FORBIDDEN")
    assert server.call("GET", "/api/tasks", token=reader).json() == []
    assert code_of(server.call("POST", "/api/tasks", token=elsewhere, **new)) == (403, "FORBIDDEN")
    assert server.call("POST", "/other/api/tasks", token=elsewhere, **new).status_code == 201
    task = server.call("POST", "/api/tasks", token=agent, **new).json()
    claim = f"/api/tasks/{task['id']}/claim"
    as_bob: dict[str, Any] = {"headers": {"x-agent-id": "bob"}}
    assert code_of(server.call("POST", claim, token=agent, **as_bob)) == (403, "FORBIDDEN")
    assert code_of(server.call("POST", claim, token=agent, json={"agent": "bob"})) == (403, "FORBIDDEN")
    inner = {"conditions": [], "then": [{"op": "tasks.claim", "args": {"id": task["id"], "agent": "bob"}}]}
    assert code_of(server.call("POST", "/api/txn", token=agent, json=inner)) == (403, "FORBIDDEN")
    hidden = {"conditions": [], "then": [{"op": "events.compact", "args": {"before": 1}}]}
    assert code_of(server.call("POST", "/api/txn", token=agent, json=hidden)) == (403, "FORBIDDEN")
    assert code_of(server.call("POST", "/api/events/compact", token=agent, json={"before": 1})) == (403, "FORBIDDEN")
    assert server.call("GET", f"/api/tasks/{task['id']}").json()["claimed_by"] is None
    assert server.call("POST", claim, token=agent).json()["claimed_by"] == "ann"


@pytest.mark.parametrize("name", ["x-agent-id", "idempotency-key", "x-fence", "x-at-least"])
def test_a_header_that_is_sent_twice_is_refused_by_name(server: Running, name: str) -> None:
    headers = [("authorization", f"Bearer {server.token}"), (name, "1"), (name, "1")]
    answer = httpx.post(f"{server.url}/api/tasks", headers=headers, json={"title": "task"}, timeout=PATIENCE)
    assert code_of(answer) == (400, "INVALID")
    assert "duplicate header" in answer.json()["error"]
    assert name in answer.json()["error"]


def test_s10_a_lock_stash_is_named_by_its_scope_and_its_name_in_a_header(server: Running) -> None:
    trail = server.call("POST", "/api/trails", json={"name": "t"}).json()["id"]
    for scope, given in ((trail, {"trail": trail}), ("", {})):
        body = {"name": "the gate", "stash_type": "lock", **given}
        id = server.call("POST", "/api/stashes", json=body).json()["id"]
        token = server.call("POST", f"/api/stashes/{id}/acquire", json={"holder": "ann"}).json()["token"]
        for name, status in ((f"{scope}/the%20gate", 200), (id, 200), (f"{scope}/the%20gat", 409)):
            headers = {"x-fence": f"{token} {name}"}
            answer = server.call("PUT", "/api/cells/run/cell", json={"value": 1}, headers=headers)
            assert answer.status_code == status, answer.text


def test_s10_a_token_that_acts_as_one_takes_and_frees_no_lock_of_another_by_an_import(server: Running) -> None:
    _, agent = Tokens(server.folder).create("agent", actor="ann")
    made = {"stash_id": "01945a40-0000-7000-8000-000000000001", "name": "gate", "stash_type": "lock", "version": 2}
    made |= {"created_at": "2025-01-15T10:30:00Z"}
    entry = {"stash_id": made["stash_id"], "created_at": made["created_at"]}

    def lines(*values: Any) -> dict[str, Any]:
        history = [
            {
                **entry,
                "history_id": f"01945a42-0000-7000-8000-00000000000{version}",
                **{"version": version, "value": value, "operation": "acquire" if value else "release"},
            }
            for version, value in enumerate(values, 1)
        ]
        stash = {**made, "version": len(values), "value": values[-1]}
        return {"tables": {"stashes": [json.dumps(stash)], "stash_history": [json.dumps(each) for each in history]}}

    def bring(*values: Any, token: str | None = None) -> int:
        return int(server.call("POST", "/api/stashes/import", json=lines(*values), token=token or agent).status_code)

    bob, ann = ({"holder": name, "acquired_at": made["created_at"]} for name in ("bob", "ann"))
    inner = {"conditions": [], "then": [{"op": "stashes.import_", "args": lines(None, bob)}]}
    assert bring(None, bob) == 403
    assert server.call("POST", "/api/txn", token=agent, json=inner).status_code in (400, 403)
    assert server.call("GET", "/api/stashes").json() == []
    assert bring(None, bob, token=server.token) == 200
    assert bring(None, bob) == 200, "it is so already"
    assert bring(None, bob, None) == 403
    assert bring(None, bob, None, ann) == 403
    assert server.call("GET", "/api/stashes").json()[0]["value"] == bob
    assert bring(None, bob, None, token=server.token) == 200
    assert bring(None, bob, None, ann) == 200


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"host": "evil.example"}, 421, "MISDIRECTED"),
        ({"host": "127.0.0.1:evil"}, 421, "MISDIRECTED"),
        ({"host": "127.0.0.1"}, 421, "MISDIRECTED"),
        ({"origin": "http://evil.example"}, 403, "FORBIDDEN"),
        ({"origin": "null"}, 403, "FORBIDDEN"),
        ({"content-type": "text/plain"}, 415, "NOT_JSON"),
        ({"content-type": "application/x-www-form-urlencoded"}, 415, "NOT_JSON"),
        ({"x-fence": "deploy"}, 400, "INVALID"),
        ({"x-fence": "42 /"}, 400, "INVALID"),
        ({"x-fence": "42 a/b/c"}, 400, "INVALID"),
        ({"x-fence": "42 /gate"}, 409, "FENCED"),
        ({"x-at-least": "soon"}, 400, "INVALID"),
        ({"if-match": '"1"'}, 400, "INVALID"),
        ({"x-agent-id": "system"}, 400, "INVALID"),
    ],
)
def test_a_request_with_a_wrong_head_is_refused_and_nothing_changes(
    server: Running, headers: dict[str, str], status: int, code: str
) -> None:
    content: dict[str, Any] = {
        "content": b'{"title": "task"}',
        "headers": {"content-type": "application/json", **headers},
    }
    assert code_of(server.call("POST", "/api/tasks", **content)) == (status, code)
    assert server.call("GET", "/api/revision").json()["revision"] == 0


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "INVALID"),
        (b"[]", 400, "INVALID"),
        (b'{"title": "x", "colour": "red"}', 400, "INVALID"),
        (b"{}", 400, "INVALID"),
        (b'{"title": 5}', 400, "INVALID_VALUE"),
        (b'{"title": "x", "priority": 9}', 400, "INVALID_PRIORITY"),
        (b'{"title": "\\ud800"}', 400, "INVALID_VALUE"),
        (b'{"title": ' + b"[" * 161 + b"]" * 161 + b"}", 400, "INVALID"),
        (b'{"title": "' + b"x" * MAX_BODY + b'"}', 413, "TOO_LARGE"),
    ],
    ids=["no JSON", "no object", "unknown", "missing", "wrong type", "bad value", "surrogate", "deep", "oversize"],
)
def test_a_request_with_a_wrong_body_is_refused_and_nothing_changes(
    server: Running, body: bytes, status: int, code: str
) -> None:
    answer = server.call("POST", "/api/tasks", content=body, headers={"content-type": "application/json"})
    assert code_of(answer) == (status, code)
    assert server.call("GET", "/api/revision").json()["revision"] == 0


def test_an_address_that_is_not_there_and_a_method_that_is_not_possible_say_so(server: Running) -> None:
    assert code_of(server.call("GET", "/api/nothing")) == (404, "NO_ROUTE")
    assert code_of(server.call("GET", "/nowhere/api/tasks")) == (404, "NOT_FOUND")
    assert code_of(server.call("GET", "/..%2f..%2fetc/api/tasks")) == (400, "INVALID_NAME")
    answer = server.call("PUT", "/api/tasks")
    assert (code_of(answer), answer.headers["allow"]) == ((405, "METHOD_NOT_ALLOWED"), "GET, POST")
    answer = server.call("POST", "/api/tasks/claim_next")
    hint = "'claim_next' was read as an id; did you mean POST /api/tasks/claim-next?"
    assert (answer.status_code, answer.json()["hint"]) == (405, hint)


def test_versions_keys_cursors_and_compression_travel_in_headers(server: Running) -> None:
    made = [
        server.call("POST", "/api/tasks", json={"title": f"task {n}"}, headers={"idempotency-key": "k"}) for n in "aa"
    ]
    assert [answer.status_code for answer in made] == [201, 201]
    assert made[0].json() == made[1].json()
    id = made[0].json()["id"]
    assert made[0].headers["etag"] == '"1"'
    change: dict[str, Any] = {"json": {"title": "new"}, "headers": {"if-match": '"1"'}}
    assert server.call("PATCH", f"/api/tasks/{id}", **change).status_code == 200
    assert code_of(server.call("PATCH", f"/api/tasks/{id}", **change)) == (409, "VERSION_MISMATCH")
    server.call("POST", "/api/tasks", json={"title": "another", "body": "long " * 1000})
    page = server.call("GET", "/api/tasks?limit=1")
    assert len(page.json()) == 1
    assert len(server.call("GET", f"/api/tasks?limit=1&cursor={page.headers['x-next-cursor']}").json()) == 1
    whole = server.call("GET", "/api/tasks", headers={"accept-encoding": "gzip"})
    assert whole.headers["content-encoding"] == "gzip"
    assert whole.json() == server.call("GET", "/api/tasks", headers={"accept-encoding": "identity"}).json()
    assert server.call("HEAD", f"/api/tasks/{id}").content == b""
    assert server.call("DELETE", f"/api/tasks/{id}").status_code == 204


def test_s4_an_item_that_was_there_already_is_200_and_not_201(server: Running) -> None:
    jobs = server.call("POST", "/api/stashes", json={"name": "jobs", "stash_type": "queue"}).json()["id"]

    def put(key: str, **headers: str) -> tuple[int, int]:
        answer = server.call("POST", f"/api/queues/{jobs}/put", json={"value": 1, "key": key}, headers=headers)
        return answer.status_code, answer.json()

    assert [put("a"), put("a"), put("b"), put("b")] == [(201, 1), (200, 1), (201, 2), (200, 2)]
    once = {"idempotency-key": "once", "x-agent-id": "ann"}
    assert [put("c", **once), put("c", **once), put("c")] == [(201, 3), (201, 3), (200, 3)], "a key returns the first"
    known = {"idempotency-key": "known", "x-agent-id": "ann"}
    assert [put("c", **known), put("c", **known)] == [(200, 3), (200, 3)]
    with ThreadPoolExecutor(8) as threads:
        raced = [*threads.map(put, ["d"] * 8)]
    assert sorted(raced) == [(200, 4)] * 7 + [(201, 4)]
    op = {"op": "queues.put", "args": {"id": jobs, "value": 1, "key": "a"}}
    assert server.call("POST", "/api/txn", json={"conditions": [], "then": [op]}).json()["results"] == [1]
    described = server.call("GET", "/openapi.json").json()["paths"]["/api/queues/{id}/put"]["post"]["responses"]
    assert {"200", "201"} <= described.keys()


def test_every_page_is_followed_by_the_argument_that_its_cursor_is_for(server: Running) -> None:
    """Whatever sends X-Next-Cursor takes it back; a channel is read on without an acknowledgement."""
    pages = [op for op in map(find_operation, REGISTRY) if op is not None and op.route.http and is_page(op.name)]
    assert len(pages) > 20
    assert [
        op.name for op in pages if not {"cursor", "after", "before", "offset"} & op.accepted.parameters.keys()
    ] == []
    news = server.call("POST", "/api/stashes", json={"name": "news", "stash_type": "channel", "value": {"keep": 2}})
    address = f"/api/channels/{news.json()['id']}"
    assert server.call("POST", f"{address}/subscribe", json={"subscriber": "ann"}).status_code == 200
    for value in range(2):
        assert server.call("POST", f"{address}/publish", json={"value": value}).status_code == 201
    page = server.call("GET", f"{address}/read?subscriber=ann&limit=1")
    rest = server.call("GET", f"{address}/read?subscriber=ann&limit=1&after={page.headers['x-next-cursor']}")
    assert ([each["value"] for each in (*page.json(), *rest.json())], "x-next-cursor" in rest.headers) == (
        [0, 1],
        False,
    )
    for value in range(2, 4):
        server.call("POST", f"{address}/publish", json={"value": value})
    assert code_of(server.call("GET", f"{address}/read?subscriber=ann")) == (410, "MESSAGES_LOST")
    assert code_of(server.call("GET", f"{address}/messages?after=1")) == (410, "MESSAGES_LOST")
    described = server.call("GET", "/openapi.json").json()["paths"]
    for last in ("read", "messages"):
        assert "410" in described[f"/api/channels/{{id}}/{last}"]["get"]["responses"]


def test_t19_the_etag_of_a_template_is_its_version(server: Running) -> None:
    tree = {"tree": {"title": "One"}}
    assert [server.call("PUT", "/api/templates/a", json=tree).headers["etag"] for _ in "ab"] == ['"1"', '"2"']
    read = server.call("GET", "/api/templates/a")
    assert (read.json()["version"], read.headers["etag"].startswith('"2-')) == (2, True)
    same = server.call("GET", "/api/templates/a", headers={"if-none-match": read.headers["etag"]})
    assert same.status_code == 304


def test_the_description_has_every_operation_and_every_reference_leads_somewhere(server: Running) -> None:
    text = server.call("GET", "/openapi.json").text
    described = json.loads(text)
    assert described["openapi"] == "3.1.0"
    schemas = described["components"]["schemas"]
    references = {part.split('"')[0] for part in text.split('"#/components/schemas/')[1:]}
    assert references <= schemas.keys()
    page = server.call("GET", "/").text
    assert "/api/tasks/{id}/claim" in page
    assert "<script" not in page


def test_a_unix_socket_is_private_and_serves_the_same(tmp_path: Path) -> None:
    path = Path(os.path.relpath(tmp_path / "socket"))
    running = Running(tmp_path / "store", "--socket", str(tmp_path / "socket"))
    try:
        assert path.stat().st_mode & 0o777 == 0o600
        with holdfast.connect(running.url, token=running.token, actor="ann") as ws:
            assert ws.cells.set("run", "cell", 1) == 1
    finally:
        assert running.stop() == 0
        running.process.communicate(timeout=PATIENCE)
    assert not path.exists()


def test_a_server_is_not_reached_from_other_machines_without_tls(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
        with pytest.raises(errors.Invalid, match="TLS"):
            Settings(folder=tmp_path, host=host).check()
    for host in ("127.0.0.1", "::1", "localhost"):
        Settings(folder=tmp_path, host=host).check()


def test_a_call_whose_server_is_gone_says_what_is_known_of_it(server: Running) -> None:
    ws = holdfast.connect(server.url, token=server.token, actor="ann")
    ws.cells.set("run", "cell", 1)
    server.process.kill()
    server.process.wait(PATIENCE)
    with pytest.raises(errors.Unreachable):
        ws.cells.get("run", "cell")
    with pytest.raises(errors.Unavailable):
        ws.cells.set("run", "cell", 2)
    ws.close()


def test_a_watch_outlives_its_server_without_gap_or_repeat(server: Running) -> None:
    port = server.url.rpartition(":")[2]
    with holdfast.connect(server.url, token=server.token, actor="ann") as ws, ws.watch() as watch:
        ws.cells.set("run", "before", 1)
        assert next(watch).id == "before"
        server.process.kill()
        server.process.wait(PATIENCE)
        with holdfast.open(server.folder, actor="bob") as here:
            here.cells.set("run", "meanwhile", 1)
        second = Running(server.folder, "--port", port)
        try:
            ws.cells.set("run", "after", 1)
            assert [next(watch).id for _ in range(2)] == ["meanwhile", "after"]
        finally:
            second.process.kill()
            second.process.communicate(timeout=PATIENCE)


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        started = command(tmp_path / "s", "--port", port)
        found = subprocess.run(started, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert found.returncode != 0
    assert "cannot listen" in found.stderr


OBEYED = re.compile(r"[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")  # what JSON leaves bare and a terminal or reader obeys
NASTY = "größe \x7f\x80\x85\x9b2J\x9f\u2028\u202eback\u2066 日本"


def test_c9_no_answer_event_or_error_has_a_bare_control_character(server: Running) -> None:
    cells = {"value": NASTY}
    answers = [
        server.call("PUT", "/api/cells/run/cell", json=cells),
        server.call("GET", "/api/cells/run/cell"),
        server.call("GET", "/api/cells/run/cell/history"),
        server.call("GET", "/api/events"),
        server.call("GET", "/api/cells/run/none%C2%85%E2%80%AE"),
        server.call("POST", "/api/cells/run/cell/init", json=cells),
        server.call("GET", "/api/tasks/%E2%80%AE"),
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 400, 409, 404]
    assert not any(OBEYED.search(answer.content.decode()) for answer in answers)
    assert answers[1].json()["value"] == answers[2].json()[0]["value"] == answers[5].json()["value"] == NASTY
    assert "größe" in answers[1].content.decode()
    headers = {"Authorization": f"Bearer {server.token}", "Accept": "text/event-stream"}
    with httpx.stream("GET", f"{server.url}/api/events?after=0", headers=headers, timeout=PATIENCE) as stream:
        line = next(line for line in stream.iter_lines() if line.startswith('data: {"revision'))
    assert json.loads(line.removeprefix("data: "))["data"]["value"] == NASTY
    assert not OBEYED.search(line)


def test_a_read_that_the_client_has_already_is_304_and_follows_what_is_answered(server: Running) -> None:
    """C10: the ETag of a read covers its answer: a parent's progress changes without its version."""
    parent = server.call("POST", "/api/tasks", json={"title": "parent"}).json()["id"]
    child = server.call("POST", "/api/tasks", json={"title": "child", "parent_id": parent}).json()["id"]
    agent = {"x-agent-id": "ann"}

    def get(path: str, tag: str = "") -> httpx.Response:
        return server.call("GET", path, headers=agent | ({"if-none-match": tag} if tag else {}))

    for path in (f"/api/tasks/{parent}", "/api/tasks", "/api/tasks?limit=1&status=open,blocked"):
        first = get(path)
        tag = first.headers["etag"]
        again = get(path, f'"other", W/{tag}')
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        assert server.call("HEAD", path, headers=agent | {"if-none-match": "*"}).status_code == 304
        assert get(path, '"other"').status_code == 200
    before = get(f"/api/tasks/{parent}")
    assert server.call("POST", f"/api/tasks/{child}/claim", headers=agent).status_code == 200
    assert server.call("POST", f"/api/tasks/{child}/complete", headers=agent).status_code == 200
    after = get(f"/api/tasks/{parent}", before.headers["etag"])
    assert (after.status_code, after.json()["version"]) == (200, before.json()["version"])
    assert after.json() != before.json()
    match = {"if-match": after.headers["etag"]}
    assert server.call("PATCH", f"/api/tasks/{parent}", json={"title": "new"}, headers=match).status_code == 200
    assert code_of(server.call("PATCH", f"/api/tasks/{parent}", json={"title": "x"}, headers=match))[0] == 409
    packed = server.call("POST", "/api/tasks", json={"title": "long", "body": "word " * 2000}).json()["id"]
    tag = get(f"/api/tasks/{packed}").headers["etag"]
    assert tag.startswith('W/"')
    assert get(f"/api/tasks/{packed}", tag).status_code == 304
    assert (
        server.call("PATCH", f"/api/tasks/{packed}", json={"title": "y"}, headers={"if-match": tag}).status_code == 200
    )


def test_t14_filters_of_http_take_commas_null_and_an_offset(server: Running) -> None:
    ids = [server.call("POST", "/api/tasks", json={"title": f"task {n}", "priority": n}).json()["id"] for n in range(5)]
    server.call("POST", f"/api/tasks/{ids[0]}/claim", headers={"x-agent-id": "ann"})
    assert server.call("PUT", f"/api/tasks/{ids[1]}/assignee", json={"assignee": "bob"}).status_code == 200

    def found(query: str) -> list[str]:
        answer = server.call("GET", f"/api/tasks?{query}")
        assert answer.status_code == 200, answer.text
        return [task["id"] for task in answer.json()]

    assert found("status=in_progress,open&sort=priority") == ids
    assert found("priority=1,3") == [ids[1], ids[3]]
    assert found("priority=1&priority=3,4") == [ids[1], ids[3], ids[4]]
    assert found("claimed_by=null") == ids[1:]
    assert found("assigned_to=null&parent_id=null") == [ids[0], *ids[2:]]
    assert [found(f"offset={n}&limit=2") for n in (0, 1, 4, 5, 9)] == [ids[:2], ids[1:3], ids[4:], [], []]
    assert found("sort=-created&offset=3") == [ids[1], ids[0]]
    page = server.call("GET", "/api/tasks?offset=1&limit=2")
    assert found(f"cursor={page.headers['x-next-cursor']}") == ids[3:]
    assert code_of(server.call("GET", f"/api/tasks?offset=1&cursor={page.headers['x-next-cursor']}"))[0] == 400
    assert code_of(server.call("GET", "/api/tasks?status=open,"))[0] == 400
    wrong = server.call("GET", "/api/tasks?statsu=open")
    assert (wrong.status_code, wrong.json()["hint"].partition("?")[0]) == (400, "did you mean status")


def test_filters_of_stashes_trails_links_and_items_take_commas_and_null(server: Running) -> None:
    def made(path: str, **body: Any) -> str:
        answer = server.call("POST", path, json=body)
        assert answer.status_code == 201, answer.text
        id: str = answer.json()["id"]
        return id

    def found(path: str) -> list[Any]:
        answer = server.call("GET", path)
        assert answer.status_code == 200, answer.text
        return [each.get("number") or each["id"] for each in answer.json()]

    trails = [made("/api/trails", name=state, state=state) for state in ("draft", "pending", "active")]
    assert found("/api/trails?state=draft,active") == [trails[0], trails[2]]
    assert found("/api/trails?state=draft&state=pending") == trails[:2]
    scoped = made("/api/stashes", name="scoped", stash_type="context", trail=trails[2])
    jobs = made("/api/stashes", name="jobs", stash_type="queue")
    hits = made("/api/stashes", name="hits", stash_type="counter")
    assert found("/api/stashes?stash_type=queue,counter") == [jobs, hits]
    assert found("/api/stashes?trail=null") == found("/api/stashes?trail=none") == [jobs, hits]
    assert found(f"/api/stashes?stash_type=context,queue&trail={trails[2]}") == [scoped]
    task = made("/api/tasks", title="task")
    links = [
        found("/api/links?link_type=scoped_to")[0],
        made("/api/links", link_type="belongs_to", from_id=task, to_id=trails[2]),
    ]
    links.append(made("/api/links", link_type="branches_from", from_id=trails[1], to_id=task))
    assert found("/api/links?link_type=scoped_to,branches_from") == [links[0], links[2]]
    for value in range(3):
        server.call("POST", f"/api/queues/{jobs}/put", json={"value": value})
    assert server.call("POST", f"/api/queues/{jobs}/take", json={"holder": "ann"}).status_code == 200
    assert found(f"/api/queues/{jobs}/items?state=taken,ready") == [1, 2, 3]
    assert found(f"/api/queues/{jobs}/items?state=taken,dead") == [1]
    for wrong in (
        "trails?state=x,draft",
        "stashes?stash_type=queue,",
        "links?link_type=",
        f"queues/{jobs}/items?state=x",
    ):
        assert code_of(server.call("GET", f"/api/{wrong}"))[0] == 400, wrong


def test_t10_the_page_names_the_arguments_that_take_several_values_with_commas_between() -> None:
    page = " ".join(Path("docs/http.md").read_text().split())
    (said,) = re.findall(r"In a query, ([^.]*?) take several values, with commas between", page)
    served = [op for op in REGISTRY.values() if (op.route.http or "").startswith(("GET ", "DELETE "))]
    lists = {name for op in served for name in plan_of(op.name).lists}
    assert {*re.findall("`([a-z_]+)`", said)} == lists - {"id"}  # which is a pair of a run and a cell, or of a trail


def test_t10_a_query_that_is_not_utf_8_is_refused_in_those_words(server: Running) -> None:
    refused = server.call("GET", "/api/tasks?tag=%ff")
    assert (refused.status_code, refused.json()["error"]) == (400, "the query is not UTF-8")
    assert refused.json()["hint"]


def test_t10_a_delete_of_tags_answers_with_the_task_and_a_template_used_with_201(server: Running) -> None:
    id = server.call("POST", "/api/tasks", json={"title": "task", "tags": ["a", "b"]}).json()["id"]
    server.call("POST", f"/api/tasks/{id}/tags", json={"tags": ["c", "d", "e", "f,g"]})
    for query in ("tags=c,d", "tags=e&tags=e", 'args={"tags":["f,g"]}'):
        server.call("DELETE", f"/api/tasks/{id}/tags?{query}")
    gone = server.call("DELETE", f"/api/tasks/{id}/tags?tags=b")
    assert (gone.status_code, gone.json()["tags"], gone.json()["id"]) == (200, ["a"], id)
    server.call("PUT", "/api/templates/release", json={"tree": {"title": "Release"}})
    used = server.call("POST", "/api/templates/release/tasks", json={})
    assert used.status_code == 201, used.text
