"""Connections that say nothing, too little or too much: each has a deadline, and none keeps out those that send."""

from __future__ import annotations

import re
import resource
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from select import select

import pytest

import holdfast
from holdfast.faces.http import connection
from holdfast.faces.http.server import Server
from tests.http.bare import Client
from tests.http.inside import serving, token_of
from tests.http.running import PATIENCE

SOON = 0.3  # seconds


@pytest.fixture
def hasty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server whose deadlines are short."""
    monkeypatch.setattr("holdfast.faces.http.server.TICK", 0.02)
    for name in ("HEADER_TIMEOUT", "BODY_TIMEOUT", "READ_TIMEOUT", "KEEP_ALIVE"):
        monkeypatch.setattr(connection, name, SOON)
    with serving(tmp_path) as server:
        yield server


def connect(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), PATIENCE)


def head(server: Server, method: str, path: str, *lines: str) -> bytes:
    own = (f"Host: 127.0.0.1:{server.port}", f"Authorization: Bearer {token_of(server)}", "X-Agent-ID: ann", *lines)
    return "\r\n".join([f"{method} {path} HTTP/1.1", *own, "", ""]).encode()


def drip(connection: socket.socket, content: bytes) -> bytes:
    """Send one byte at a time, faster than any deadline, until there is an answer; returns all of it."""
    for number in range(100_000):
        if select([connection], [], [], 0.01)[0]:
            break
        connection.sendall(content[number % len(content) :][:1])
    else:
        raise AssertionError("the server listens for ever")
    return rest(connection)


def rest(connection: socket.socket) -> bytes:
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


# --- deadlines -------------------------------------------------------------------------------------------------------


def test_a_connection_that_sends_nothing_is_closed(hasty: Server) -> None:
    with connect(hasty) as silent:
        assert rest(silent) == b""


def test_headers_that_drip_do_not_extend_their_deadline(hasty: Server) -> None:
    with connect(hasty) as slow:
        assert drip(slow, b"GET / HTTP/1.1\r\nX: " + b"x" * 1000).startswith(b"HTTP/1.1 408 ")


def test_headers_that_stop_after_another_request_have_the_same_deadline(hasty: Server) -> None:
    with connect(hasty) as slow:
        slow.sendall(head(hasty, "GET", "/api/revision") + b"GET /api/rev")
        answers = rest(slow)
    assert answers.startswith(b"HTTP/1.1 200 ")
    assert b"HTTP/1.1 408 " in answers


@pytest.mark.parametrize("line", ["Content-Length: 100000", "Transfer-Encoding: chunked"])
def test_a_body_that_drips_does_not_extend_its_deadline(hasty: Server, line: str) -> None:
    with connect(hasty) as slow:
        slow.sendall(head(hasty, "POST", "/api/tasks", "Content-Type: application/json", line))
        slow.sendall(b"" if line.startswith("Content") else b"ffff\r\n")
        answer = drip(slow, b" ")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"the body did not come in time" in answer


def test_the_body_of_a_refused_request_is_not_listened_to_for_ever(hasty: Server) -> None:
    with connect(hasty) as slow:
        slow.sendall(head(hasty, "POST", "/api/nothing", "Content-Length: 100000"))
        assert drip(slow, b" ").startswith(b"HTTP/1.1 404 ")


def test_a_connection_that_was_used_is_closed_when_it_is_not_any_more(hasty: Server) -> None:
    with connect(hasty) as idle:
        idle.sendall(head(hasty, "GET", "/api/revision"))
        assert rest(idle).startswith(b"HTTP/1.1 200 ")


def test_a_client_that_does_not_read_its_answers_is_cut_and_not_served_meanwhile(hasty: Server) -> None:
    with holdfast.connect(hasty.url, token=token_of(hasty), actor="ann") as ws:
        ws.cells.set("run", "big", "x" * 1_000_000)
        with connect(hasty) as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.sendall(head(hasty, "GET", "/api/cells/run/big") * 200)
            while len(hasty.connections) > 1:
                ws.cells.set("run", "small", 1)  # so that this connection stays
            metrics = Client(hasty.url).exchange(head(hasty, "GET", "/metrics", "Connection: close")).decode()
    served = re.search(r'holdfast_requests_total{method="GET",status="200"} (\d+)', metrics)
    assert served is not None
    assert int(served[1]) < 100, "of the 200 that it asked for"


def test_a_call_that_takes_its_time_is_not_cut(hasty: Server) -> None:
    with connect(hasty) as waiting:
        waiting.sendall(head(hasty, "GET", f"/api/events?after=0&wait={4 * SOON}", "Connection: close"))
        assert rest(waiting).startswith(b"HTTP/1.1 200 ")


# --- order -----------------------------------------------------------------------------------------------------------


def test_requests_that_come_at_once_are_answered_in_order(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        sets = b"".join(_set(server, number) for number in range(200))
        reads = head(server, "GET", "/api/cells/run/cell") * 200
        last = head(server, "GET", "/api/cells/run/cell/history?limit=500", "Connection: close")
        answers = Client(server.url).exchange(sets + reads + last)
    bodies = [part.partition(b"\r\n\r\n")[2] for part in answers.split(b"HTTP/1.1 200 OK\r\n")[1:]]
    assert [int(body) for body in bodies[:200]] == list(range(1, 201))
    assert len(bodies) == 401
    assert all(b'"value":199,"version":200' in body for body in bodies[200:400])


def _set(server: Server, number: int) -> bytes:
    body = b'{"value":%d}' % number
    lines = ("Content-Type: application/json", f"Content-Length: {len(body)}")
    return head(server, "PUT", "/api/cells/run/cell", *lines) + body


def test_a_client_that_has_sent_all_of_it_gets_its_answers(tmp_path: Path) -> None:
    with serving(tmp_path) as server, connect(server) as client:
        client.sendall(b"".join(_set(server, number) for number in range(3)))
        client.shutdown(socket.SHUT_WR)
        assert rest(client).count(b"HTTP/1.1 200 ") == 3


def test_what_is_not_http_is_refused_in_its_turn_and_ends_the_connection(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        sent = _set(server, 1) + head(server, "GET", "/healthz") + b"NOT HTTP\r\n\r\n" + _set(server, 2)
        assert Client(server.url).statuses(sent) == [200, 200, 400]
        with holdfast.connect(server.url, token=token_of(server), actor="ann") as ws:
            assert ws.cells.get("run", "cell").value == 1


def test_a_body_is_asked_for_only_if_its_sender_may_call(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        lines = ("Expect: 100-continue", "Content-Type: application/json", "Content-Length: 11")
        with connect(server) as asking:
            asking.sendall(head(server, "PUT", "/api/cells/run/cell", *lines))
            assert asking.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
            asking.sendall(b'{"value":1}')
            assert asking.recv(1000).startswith(b"HTTP/1.1 200 ")
        refused = head(server, "PUT", "/api/cells/run/cell", *lines).replace(b"Bearer hft_", b"Bearer no_")
        with connect(server) as asking:
            asking.sendall(refused)
            answer = rest(asking)
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"\r\nconnection: close\r\n" in answer


# --- room ------------------------------------------------------------------------------------------------------------

FEW = 256  # descriptors
LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]),) * 2)
os.execv(sys.argv[2], sys.argv[2:])
"""


@pytest.mark.parametrize(("workspaces", "enough"), [(12, True), (13, False)])
def test_a_server_that_may_open_too_few_files_says_so(tmp_path: Path, workspaces: int, enough: bool) -> None:
    for number in range(workspaces - 1):  # and its own
        (tmp_path / "workspaces" / f"w{number}").mkdir(parents=True)
    command = [sys.executable, "-m", "holdfast", "serve", "--dir", str(tmp_path), "--port", "0"]
    started = [sys.executable, "-c", LIMITED, str(FEW), *command]
    with subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("listening on ")
        process.terminate()
        said = process.communicate(timeout=PATIENCE)[1]
    assert ("13 workspaces take 130 descriptors when all are open, and this process may have 256" in said) is not enough
    assert ("ulimit -n" in said) is not enough


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_silent_connections_keep_nobody_out_and_cut_nobody_who_is_known(tmp_path: Path, tls: bool) -> None:
    command = [sys.executable, "-m", "holdfast", "serve", "--dir", str(tmp_path), "--port", "0"]
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 2 * FEW
    started = [sys.executable, "-c", LIMITED, str(FEW), *command, *(["--tls", "auto"] if tls else [])]
    with ExitStack() as stack:
        process = stack.enter_context(subprocess.Popen(started, stdout=subprocess.PIPE, text=True))
        stack.callback(process.kill)
        assert process.stdout is not None
        host, _, port = process.stdout.readline().split()[-1].partition("//")[2].rpartition(":")
        secured = ssl.create_default_context(cafile=str(tmp_path / "tls" / "cert.pem")) if tls else None
        own = {"Authorization": f"Bearer {(tmp_path / 'token').read_text().strip()}", "Host": f"{host}:{port}"}

        def call(connection: HTTPConnection) -> int:
            connection.request("GET", "/api/revision", headers=own)
            answer: HTTPResponse = connection.getresponse()
            answer.read()
            return answer.status

        def opened() -> HTTPConnection:
            raw = socket.create_connection(("127.0.0.1", int(port)), PATIENCE)
            connection = HTTPConnection("127.0.0.1", int(port), timeout=PATIENCE)
            connection.sock = raw if secured is None else secured.wrap_socket(raw, server_hostname="127.0.0.1")
            return stack.enter_context(closing(connection))

        fleet = [opened() for _ in range(40)]
        assert [call(each) for each in fleet] == [200] * 40
        silent = [socket.create_connection(("127.0.0.1", int(port)), PATIENCE) for _ in range(400)]
        for each in silent:
            stack.callback(each.close)
        assert [call(opened()) for _ in range(20)] == [200] * 20, "who sends gets in"
        assert [call(each) for each in fleet] == [200] * 40, "who is known stays"
        process.terminate()
        assert process.wait(PATIENCE) == 0
