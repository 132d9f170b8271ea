"""The HTTP client: whatever a server sends, in whatever pieces, is one answer, or is Broken and says why."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from time import monotonic

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import errors
from holdfast.remote import ask_ticket
from holdfast.remote.aio_pool import AioPool
from holdfast.remote.failover import Address
from holdfast.remote.http1 import Broken, Incoming, Outgoing, Response, written
from holdfast.remote.pool import Lines, Peer, Pool
from holdfast.remote.protocol import Request, Send

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Two: a\r\nx-two: b\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nTrailer: t\r\n\r\n"
TO_THE_END = b"HTTP/1.0 200\r\n\r\nhello"
INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + PLAIN
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"


def read(*pieces: bytes) -> Incoming:
    """What these pieces are, after which the connection ends."""
    incoming = Incoming()
    for piece in pieces:
        incoming.feed(piece)
    if not incoming.done:
        incoming.ended()
    return incoming


@given(st.sampled_from([PLAIN, CHUNKED, TO_THE_END, INTERIM, EMPTY]), st.data())
def test_an_answer_is_the_same_however_it_is_cut(whole: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    edges = [0, *cuts, len(whole)]
    incoming = read(*(whole[a:b] for a, b in pairwise(edges)))
    assert incoming.head is not None
    assert incoming.take() == (b"" if whole is EMPTY else b"hello")
    assert incoming.reusable is (whole is not TO_THE_END)
    if whole in (PLAIN, INTERIM):
        assert incoming.head.headers["x-two"] == "a, b"


@given(st.sampled_from([PLAIN, CHUNKED]), st.data())
def test_an_answer_that_breaks_off_is_never_taken_for_one(whole: bytes, data: st.DataObject) -> None:
    with pytest.raises(Broken) as broken:
        read(whole[: data.draw(st.integers(0, len(whole) - 1))])
    assert broken.value.sent


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"SSH-2.0-OpenSSH_9\r\n", "begins with"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", "begins with"),
        (b"HTTP/1.1 OK\r\n\r\n", "begins with"),
        (b"HTTP/1.1 101 Switching\r\n\r\n", "another protocol"),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "no colon"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", "content-length"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello", "content-length"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: " + b"9" * 5_000 + b"\r\n\r\n", "content-length"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n", "longer than"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n", "transfer-encoding"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n", "a chunk begins"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"f" * 5_000 + b"\r\n", "a chunk begins"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffff\r\n", "longer than"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 200 + PLAIN, "interim"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n", "a chunk begins"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nhello\r\n", "longer than it says"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000, "do not end"),
    ],
)
def test_what_is_not_http_is_refused_with_its_reason(sent: bytes, said: str) -> None:
    with pytest.raises(Broken, match=said):
        read(sent)


def test_more_than_was_asked_for_ends_the_use_of_a_connection() -> None:
    assert read(PLAIN).reusable
    assert not read(PLAIN + b"HTTP/1.1").reusable
    assert not read(PLAIN, b"x").reusable
    assert not read(PLAIN.replace(b"X-Two: a", b"Connection: close")).reusable


def test_an_answer_with_two_lengths_is_the_last_of_its_connection() -> None:
    incoming = read(CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Length: 3\r\n\r\n", 1))
    assert incoming.take() == b"hello"
    assert not incoming.reusable


def test_headers_that_would_make_another_request_are_refused() -> None:
    for value in ("a\r\nx-fence: 9", "a\nb", "a\rb", "caf\xe9", "a\0"):
        with pytest.raises(errors.Invalid):
            written("GET", "/api/tasks", {"x-agent-id": value}, None)
    assert written("POST", "/x", {"host": "h"}, None) == b"POST /x HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n"


def test_lines_end_at_line_ends_alone() -> None:
    lines = Lines()
    assert lines.of(b"a\xe2\x80") == []
    assert lines.of(b"\xa8b\r\nc\x0bd\n\nrest") == ["a\u2028b", "c\x0bd", ""]


# --- over real sockets -----------------------------------------------------------------------------------------------

Play = Callable[[socket.socket], None]


@contextmanager
def a_server(*plays: Play) -> Iterator[Peer]:
    """A server that does the first of these with its first connection, the second with the next, and so on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve(play: Play, connection: socket.socket) -> None:
            with connection:
                play(connection)

        def accept() -> None:
            threads = []
            for play in plays:
                threads.append(threading.Thread(target=serve, args=(play, listening.accept()[0])))
                threads[-1].start()
            for thread in threads:
                thread.join()

        thread = threading.Thread(target=accept)
        thread.start()
        yield Peer("127.0.0.1", listening.getsockname()[1], None, None)
        thread.join(30)
        assert not thread.is_alive(), "not every connection came"


def ask(seconds: float | None = 30.0) -> Outgoing:
    """A request."""
    until = None if seconds is None else monotonic() + seconds
    return Outgoing(written("GET", "/", {"host": "h"}, None), 30.0, 30.0, until)


def request(peer: Peer, times: int, awaits: bool, seconds: float = 30.0) -> list[Response]:
    """Ask so often, one after another, over the connections of one pool."""
    if not awaits:
        pool = Pool(peer)
        try:
            return [pool.request(ask(seconds)) for _ in range(times)]
        finally:
            pool.close()

    async def run() -> list[Response]:
        pool = AioPool(peer)
        try:
            return [await pool.request(ask(seconds)) for _ in range(times)]
        finally:
            await pool.close()

    return asyncio.run(run())


def heard(connection: socket.socket) -> bytes:
    """A whole request, or nothing if the client has closed the connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(4096)
        if not piece:
            return b""
        data += piece
    return data


def answering(*answers: bytes) -> Play:
    """Answer so many requests, then close the connection."""

    def play(connection: socket.socket) -> None:
        for answer in answers:
            assert heard(connection)
            connection.sendall(answer)

    return play


@pytest.mark.parametrize("awaits", [False, True])
def test_a_connection_carries_one_request_after_another(awaits: bool) -> None:
    with a_server(answering(PLAIN, CHUNKED, INTERIM)) as peer:
        assert [each.content for each in request(peer, 3, awaits)] == [b"hello"] * 3


@pytest.mark.parametrize("awaits", [False, True])
def test_a_connection_that_its_server_closes_is_not_used_again(awaits: bool) -> None:
    last = PLAIN.replace(b"X-Two: a", b"Connection: close")
    with a_server(answering(last), answering(TO_THE_END), answering(PLAIN)) as peer:
        assert [each.content for each in request(peer, 3, awaits)] == [b"hello"] * 3


@pytest.mark.parametrize("awaits", [False, True])
@pytest.mark.parametrize(
    ("play", "said"),
    [
        (answering(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello"), "in the middle of"),
        (answering(b""), "before its answer"),
        (answering(b"\x15\x03\x01 TLS"), "does not speak HTTP"),
    ],
)
def test_an_answer_that_does_not_come_is_broken_and_was_sent(awaits: bool, play: Play, said: str) -> None:
    with a_server(play) as peer, pytest.raises(Broken, match=said) as broken:
        request(peer, 1, awaits)
    assert broken.value.sent
    assert not broken.value.late


@pytest.mark.parametrize("awaits", [False, True])
def test_a_silent_server_is_given_up_when_time_is_up(awaits: bool) -> None:
    def silent(connection: socket.socket) -> None:
        assert heard(connection)
        assert connection.recv(1) == b"", "the client closes what it gives up"

    with a_server(silent) as peer, pytest.raises(Broken) as broken:
        request(peer, 1, awaits, seconds=0.05)
    assert broken.value.late
    assert broken.value.sent


@pytest.mark.parametrize("awaits", [False, True])
def test_a_server_that_is_not_there_has_got_nothing(awaits: bool, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for peer in (Peer("127.0.0.1", port, None, None), Peer("", 0, str(tmp_path / "none.sock"), None)):
        with pytest.raises(Broken) as broken:
            request(peer, 1, awaits)
        assert not broken.value.sent


def test_a_call_that_is_cancelled_ends_its_connection() -> None:
    asked = threading.Event()

    def silent(connection: socket.socket) -> None:
        assert heard(connection)
        asked.set()
        assert connection.recv(1) == b""

    async def run(peer: Peer) -> bytes:
        pool = AioPool(peer)
        call = asyncio.ensure_future(pool.request(ask()))
        await asyncio.to_thread(asked.wait, 30)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        response = await pool.request(ask())
        await pool.close()
        return response.content

    with a_server(silent, answering(PLAIN)) as peer:
        assert asyncio.run(run(peer)) == b"hello"


def test_a_stream_that_nobody_reads_waits_and_loses_nothing() -> None:
    lines = [b"line %d" % number for number in range(20_000)]

    def streaming(connection: socket.socket) -> None:
        assert heard(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for line in lines:
            connection.sendall(b"%x\r\n%s\n\r\n" % (len(line) + 1, line))
        connection.sendall(b"0\r\n\r\n")

    async def run(peer: Peer) -> list[str]:
        pool = AioPool(peer)
        async with pool.stream(ask()) as stream:
            for _ in range(100):
                await asyncio.sleep(0)
            found = [line async for line in stream.lines()]
        await pool.close()
        return found

    expected = [line.decode() for line in lines]
    with a_server(streaming) as peer:
        assert asyncio.run(run(peer)) == expected
    with a_server(streaming) as peer, closing(Pool(peer)) as pool, pool.stream(ask()) as stream:
        assert list(stream.lines()) == expected


@pytest.mark.parametrize("awaits", [False, True])
def test_a_connection_that_was_closed_while_nobody_looked_is_not_used_again(awaits: bool) -> None:
    closed = threading.Event()

    def once(connection: socket.socket) -> None:
        answering(PLAIN)(connection)
        connection.close()
        closed.set()

    async def run(peer: Peer) -> list[bytes]:
        pool = AioPool(peer)
        first = await pool.request(ask())
        assert closed.wait(30)  # in the thread of the loop, which sees nothing meanwhile
        second = await pool.request(ask())
        await pool.close()
        return [first.content, second.content]

    with a_server(once, answering(PLAIN)) as peer:
        if awaits:
            assert asyncio.run(run(peer)) == [b"hello"] * 2
            return
        with closing(Pool(peer)) as pool:
            assert pool.request(ask()).content == b"hello"
            assert closed.wait(30)
            assert pool.request(ask()).content == b"hello"


def test_what_comes_while_a_line_is_handled_is_not_lost() -> None:
    more = threading.Event()

    def streaming(connection: socket.socket) -> None:
        assert heard(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")
        assert more.wait(30)
        connection.sendall(b"4\r\ntwo\n\r\n" + end)
        assert connection.recv(1) == b"", "the client has read enough"

    async def run(peer: Peer, count: int) -> list[str]:
        pool, found = AioPool(peer), list[str]()
        async with pool.stream(ask()) as stream:
            async for line in stream.lines():
                found.append(line)
                more.set()
                while len(found) == 1 and not stream._incoming.waiting:
                    await asyncio.sleep(0)
                if len(found) == count:
                    break
        await pool.close()
        return found

    for end in (b"0\r\n\r\n", b""):  # the last piece, and one after which nothing comes
        more.clear()
        with a_server(streaming) as peer:
            assert asyncio.run(run(peer, 3 if end else 2)) == ["one", "two"]


@pytest.mark.parametrize("awaits", [False, True])
def test_a_refusal_of_a_request_that_is_not_taken_whole_is_heard(awaits: bool) -> None:
    refusal = b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig"
    huge = Outgoing(written("POST", "/", {"host": "h"}, bytes(64_000_000)), 30.0, 30.0, monotonic() + 30)

    def refuses(connection: socket.socket) -> None:
        assert heard(connection)
        connection.sendall(refusal)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1_000_000)  # it reads a little, and closes what it has not read

    async def run(peer: Peer) -> Response:
        pool = AioPool(peer)
        try:
            return await pool.request(huge)
        finally:
            await pool.close()

    with a_server(refuses) as peer:
        if awaits:
            assert asyncio.run(run(peer)).status == 413
            return
        with closing(Pool(peer)) as pool:
            assert pool.request(huge).status == 413


@pytest.mark.parametrize("awaits", [False, True])
def test_an_address_that_does_not_answer_leaves_time_for_the_next(
    awaits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):  # those that fit, and one that waits: nobody is let in any more
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(silent.getsockname())
        peer = stack.enter_context(a_server(answering(PLAIN)))
        places = [silent.getsockname(), ("127.0.0.1", peer.port)]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", place) for place in places]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        assert request(peer, 1, awaits, seconds=2.0)[0].content == b"hello"


def test_a_forked_child_makes_its_own_connections_whatever_threads_of_its_parent_held() -> None:
    def child(pool: Pool) -> None:
        os._exit(0 if pool.request(ask()).content == b"hello" else 1)

    with a_server(answering(PLAIN, PLAIN), answering(PLAIN)) as peer, closing(Pool(peer)) as pool:
        assert pool.request(ask()).content == b"hello"
        with pool._lock:  # as a thread may that the child does not have
            process = get_context("fork").Process(target=child, args=(pool,))
            process.start()
        process.join(30)
        try:
            assert process.exitcode == 0
        finally:
            process.kill()
        assert pool.request(ask()).content == b"hello"


def test_a_stream_ends_when_its_pool_is_closed_by_another_thread() -> None:
    begun = threading.Event()

    def streaming(connection: socket.socket) -> None:
        assert heard(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")
        assert connection.recv(1) == b"", "the client closes it"

    def read_all(pool: Pool, told: list[object]) -> None:
        try:
            with pool.stream(Outgoing(ask().content, 30.0, None, None)) as stream:
                for line in stream.lines():
                    told.append(line)
                    begun.set()
        except Broken as broken:
            told.append(broken)

    with a_server(streaming) as peer:
        pool, told = Pool(peer), list[object]()
        reader = threading.Thread(target=read_all, args=(pool, told), daemon=True)
        reader.start()
        assert begun.wait(30)
        pool.close()
        reader.join(10)
        assert not reader.is_alive()
        assert told[0] == "one"
        assert isinstance(told[1], Broken)


# --- addresses -------------------------------------------------------------------------------------------------------


def sent_to(url: str, path: str = "/api/tasks", query: tuple[tuple[str, str], ...] = ()) -> list[str]:
    """The lines of a request to an address."""
    step = Send(Request("GET", path, list(query), None, True, 0.0), {})
    return Address(url, "secret", 1.0, True).outgoing(step).content.decode().split("\r\n")


def test_an_address_says_where_a_request_goes() -> None:
    lines = sent_to("http://127.0.0.1:4653/team", "/api/tasks/a%2Fb", (("args", '{"a": "b c&d"}'),))
    assert lines[0] == "GET /team/api/tasks/a%2Fb?args=%7B%22a%22%3A+%22b+c%26d%22%7D HTTP/1.1"
    assert "host: 127.0.0.1:4653" in lines
    assert "authorization: Bearer secret" in lines
    assert sent_to("unix:///tmp/a b.sock")[0] == "GET /api/tasks HTTP/1.1"
    assert "host: [::1]:80" in sent_to("http://[::1]:80")
    assert Address("https://example.org", "t", 1.0, True).peer[:2] == ("example.org", 443)


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999", "http://127.0.0.1:x", "https://[::1", "https://" + "a" * 64])
def test_an_address_that_cannot_be_is_refused(url: str) -> None:
    with pytest.raises(errors.Invalid):
        Address(url, "t", 1.0, True)


def test_a_ticket_is_only_taken_from_a_server_that_gives_one() -> None:
    def said(answer: bytes) -> str:
        with a_server(answering(answer)) as peer:
            return ask_ticket(f"http://127.0.0.1:{peer.port}/team", "t", True)

    made = b'{"ticket": "abc"}'
    assert said(b"HTTP/1.1 201 Created\r\ncontent-length: %d\r\n\r\n%s" % (len(made), made)) == "abc"
    with pytest.raises(errors.Unauthorized):
        said(b"HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n")
    for answer in (EMPTY, b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n[]", CHUNKED):
        with pytest.raises(errors.Unavailable):
            said(answer)
    with pytest.raises(errors.Unreachable):
        said(b"")
