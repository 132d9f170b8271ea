"""Bytes that are not UTF-8, keys that stand twice, and times at the ends of the calendar: 400, and nothing is done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from tests.http.bare import Answer, Client, Request
from tests.http.running import Running

ENDS = ("9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp("raw") / "store")
    try:
        yield running
        assert running.stop() == 0
        assert running.process.communicate()[1] == "", "no request leaves a traceback"
    finally:
        running.end()


def ask(server: Running, method: str, path: str, body: bytes = b"", **headers: str | None) -> Answer:
    """One request with exactly these bytes."""
    given = {
        "Host": server.url.removeprefix("http://"),
        "Authorization": f"Bearer {server.token}",
        "Content-Type": "application/json",
        "X-Agent-ID": "ann",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    sent = tuple((name, value) for name, value in given.items() if value is not None)
    return Client(server.url).send_once(Request(method, path, sent, body))


def assert_refused(answer: Answer, code: str = "INVALID") -> None:
    assert (answer.status, answer.code) == (400, code), answer


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/tasks", b'{"title":"\xff"}'),
        ("/api/tasks", b'{"\xff":1}'),
        ("/api/tasks", b'{"title":"x"}\xff'),
        ("/api/mail", b'{"to":["bob"],"subject":"\xc3\x28"}'),
        ("/api/tasks/import", b'{"lines":["\xed\xa0\x80"]}'),
        ("/api/cells/run/raw/init", b'{"value":"\xff"}'),
        ("/api/txn", b'{"conditions":[],"then":[{"op":"\xff"}]}'),
    ],
)
def test_a_body_that_is_not_utf_8_is_refused(server: Running, path: str, body: bytes) -> None:
    assert_refused(ask(server, "POST", path, body))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/tasks", b'{"title":"one","title":"two"}'),
        ("/api/tasks", b'{"title":"one","t\\u0069tle":"two"}'),
        ("/api/tasks", b'{"title":"a: b","tags":[],"title":"two"}'),
        ("/api/cells/run/twice/init", b'{"value":{"a":1,"a":2}}'),
        ("/api/cells/run/twice/init", b'{"value":[{"deep":[{"a":1,"b":2,"a":1}]}]}'),
        ("/api/cells/run/twice/init", b'{"value":"\\ud800","value":1}'),
        ("/api/txn", b'{"conditions":[],"then":[{"op":"cells.set","args":{"run":"r","run":"s"}}]}'),
    ],
)
def test_a_key_that_stands_twice_is_refused_and_named(server: Running, path: str, body: bytes) -> None:
    answer = ask(server, "POST", path, body)
    assert_refused(answer)
    assert b"duplicate key" in answer.body


def test_colons_in_texts_are_no_keys(server: Running) -> None:
    body = b'{"value":{"a":"x: y, \\"b\\": 1","b":{"a":":::"}}}'
    assert ask(server, "POST", "/api/cells/run/colons/init", body).status == 200
    assert ask(server, "POST", "/api/tasks", b'{"title":"a: b: c"}').status == 201


@pytest.mark.parametrize(
    "headers",
    [
        {"Idempotency_Key": "{}"},
        {"X_Agent_ID": "{}"},
        {"X_Agent_ID": None, "X_Agent_Derived": "{}"},
        {"X_Fence": "1 {}"},
        {"X_Fence": "1 run/{}"},
        {"X_Fence": "1 {}/cell"},
        {"X_At_Least": "{}"},
    ],
    ids=str,
)
def test_a_header_that_is_not_utf_8_is_refused(server: Running, headers: dict[str, str | None]) -> None:
    for wrong in ("%ff", "%fe", "a%c3", "%ed%a0%80"):
        given = {name: None if value is None else value.format(wrong) for name, value in headers.items()}
        assert_refused(ask(server, "POST", "/api/cells/run/counter/increment", b"{}", **given))


def test_three_wrong_keys_do_not_become_one_increment_and_three_acknowledgements(server: Running) -> None:
    for wrong in ("%ff", "%fe", "%fd"):
        assert_refused(ask(server, "POST", "/api/cells/run/keyed/increment", b"{}", Idempotency_Key=wrong))
    with holdfast.connect(server.url, token=server.token, actor="ann") as ws:
        assert ws.cells.exists("run", "keyed") is False
        assert ws.using(key="schlüssel-100%").cells.increment("run", "keyed") == 1
        assert ws.using(key="schlüssel-100%").cells.increment("run", "keyed") == 1


def test_a_query_that_is_not_utf_8_is_refused(server: Running) -> None:
    assert_refused(ask(server, "GET", "/api/events?wait=%ff"))
    assert_refused(ask(server, "GET", "/api/tasks?status=%ff"))
    assert_refused(ask(server, "GET", '/api/cells/run/c?args={"run":"r","run":"run"}'.replace('"', "%22")))


@pytest.mark.parametrize("end", ENDS)
def test_times_beyond_the_calendar_are_refused(server: Running, end: str) -> None:
    quoted = end.replace("+", "%2B")
    with holdfast.connect(server.url, token=server.token, actor="ann") as ws:
        id = ws.tasks.create("task").id
        ws.tasks.claim(id)
    for path in (
        f"/api/events?since={quoted}",
        f"/api/tasks/{id}/history?since={quoted}",
        f"/api/events/refusals?since={quoted}",
    ):
        answer = ask(server, "GET", path)
        assert answer.status == 400, (path, answer)
    assert ask(server, "POST", f"/api/tasks/{id}/park", f'{{"until":"{end}"}}'.encode()).status == 400


def test_the_last_and_the_first_moment_of_the_calendar_are_times(server: Running) -> None:
    for end in ("9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00Z"):
        assert ask(server, "GET", f"/api/events?since={end}").status == 200


def test_tokens_that_are_not_utf_8_refuse_everybody_and_say_so(tmp_path: Path) -> None:
    running = Running(tmp_path / "store")
    try:
        (tmp_path / "store" / "tokens.json").write_bytes(b'[{"id":"\xff"}]')
        answer = ask(running, "GET", "/api/revision")
        assert (answer.status, answer.code) == (500, "CORRUPT")
    finally:
        running.end()


@pytest.mark.parametrize("escape", ["%zz", "%", "a%2", "%2g", "%%41", "100%"])
def test_a_percent_sign_that_encodes_nothing_is_refused(server: Running, escape: str) -> None:
    """Left as it is, it would be another spelling of %25zz, and two callers one agent, or two calls one."""
    body = b'{"title":"x"}'
    for name in ("X_Agent_ID", "Idempotency_Key", "X_At_Least"):
        assert_refused(ask(server, "POST", "/api/tasks", body, **{name: escape}))
    assert_refused(ask(server, "POST", "/api/tasks", body, X_Agent_ID=None, X_Agent_Derived=escape))
    assert_refused(ask(server, "POST", "/api/tasks", body, X_Fence=f"42 {escape}"))
    assert_refused(ask(server, "GET", f"/api/cells/{escape}/cell"), "INVALID_NAME")
    assert_refused(ask(server, "GET", f"/api/tasks?tags={escape}"))
    assert_refused(ask(server, "GET", f"/api/events?after=0&wait={escape}"))
    encoded = escape.replace("%", "%25")
    assert ask(server, "PUT", "/api/cells/run/percent", b'{"value":1}', X_Agent_ID=encoded).status == 200
    assert ask(server, "GET", f"/api/tasks?tags={encoded}").status in (200, 400)
