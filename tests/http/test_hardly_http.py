"""Requests that are hardly HTTP, or mean two things, and names that are paths: refused, or understood as what they are.

Never more answers than requests, never a failure of the server, never a file, and nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.http.attacks import EVIL
from tests.http.bare import Request
from tests.http.matrix import OTHER, Site

BODY: Final = b'{"title":"smuggled"}'
CHUNKED: Final = b"14\r\n" + BODY + b"\r\n0\r\n\r\n"


def create(site: Site, *lines: str, without: str = "") -> bytes:
    """The head of a request that would make a task, up to its body, with these lines in it."""
    head = site.call("tasks.create").having(without)._replace(body=b"").encoded()
    return head[:-2] + "".join(f"{line}\r\n" for line in lines).encode("latin-1") + b"\r\n"


def last(site: Site) -> bytes:
    """A question after which the server closes the connection."""
    return site.open_row.request.having("Connection", "close").encoded()


# --- where a request ends --------------------------------------------------------------------------------------------

LENGTHS: Final = ("+20", "20,20", "0x14", "-1", "20 20", "2e1", "", "9" * 30, "2_0", "\xb2")
CODINGS: Final = (
    "xchunked",
    "identity",
    "chunked, identity",
    "chunked, chunked",
    '"chunked"',
    "chunked;q=1",
    "",
    "gzip",
)
ENCODED: Final = (
    "gzip, chunked",
    "deflate,chunked",
    "identity, chunked",
)  # whose end is clear, and whose content is not
SIZES: Final = (b"zz", b"-1", b"+14", b"0x14", b"F" * 17, b" 14", b"14 ", b"", b"14;\n")
CODED: Final = "Transfer-Encoding: chunked"
UNCLEAR: Final[dict[str, tuple[tuple[str, ...], bytes]]] = {
    "a length and a coding": (("Content-Length: 31", CODED), CHUNKED),
    "a coding and a length": ((CODED, "Content-Length: 31"), CHUNKED),
    "a length of nothing and a coding": (("Content-Length: 0", CODED), CHUNKED),
    "two lengths": (("Content-Length: 20", "Content-Length: 0"), BODY),
    "two other lengths": (("Content-Length: 0", "Content-Length: 20"), BODY),
    "the same length twice": (("Content-Length: 20", "Content-Length: 20"), BODY),
    "two codings": ((CODED, "Transfer-Encoding: identity"), CHUNKED),
    "a space before a colon": (("Content-Length : 20",), BODY),
    "a space before another colon": (("Transfer-Encoding : chunked",), CHUNKED),
    "a folded line": (("X-Long: a\r\n Content-Length: 20",), BODY),
    "a folded coding": (("Transfer-Encoding:\r\n chunked",), CHUNKED),
    "a bare CR": (("X-Long: a\rContent-Length: 20",), BODY),
    "a bare LF": (("X-Long: a\nContent-Length: 20",), BODY),
    "a NUL": (("X-Long: a\0b", "Content-Length: 20"), BODY),
    **{f"length {length!r}": ((f"Content-Length: {length}",), BODY) for length in LENGTHS},
    **{f"coding {coding!r}": ((f"Transfer-Encoding: {coding}",), CHUNKED) for coding in CODINGS},
    **{f"size {size!r}": ((CODED,), CHUNKED.replace(b"14", size, 1)) for size in SIZES},
    "chunks without CR": ((CODED,), CHUNKED.replace(b"\r", b"")),
    "chunks without an end": ((CODED,), b"14\r\n" + BODY + b"0\r\n\r\n"),
}


def test_a_request_whose_end_is_not_clear_is_refused_with_all_that_follows(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    before = site.state()
    hidden = create(site, "Content-Length: 20") + BODY + last(site)
    told = {
        name: site.client.statuses(create(site, *lines) + content + hidden)
        for name, (lines, content) in UNCLEAR.items()
    }
    assert {name: statuses for name, statuses in told.items() if statuses != [400]} == {}
    assert site.state() == before
    with capsys.disabled():
        print(f"\n  requests without a clear end: {len(UNCLEAR)}, all refused")


def test_a_body_in_another_coding_is_refused_with_all_that_follows(site: Site) -> None:
    before = site.state()
    hidden = create(site, "Content-Length: 20") + BODY + last(site)
    for coding in ENCODED:
        assert site.client.statuses(create(site, f"Transfer-Encoding: {coding}") + CHUNKED + hidden) == [501], coding
    assert site.state() == before


def test_the_body_of_a_refused_request_is_not_the_next_request(site: Site) -> None:
    before = site.state()
    hidden = create(site, "Content-Length: 20") + BODY
    for without, status in (("Authorization", 401), ("Host", 421), ("Content-Type", 415)):
        outer = create(site, f"Content-Length: {len(hidden)}", without=without)
        assert site.client.statuses(outer + hidden + last(site)) == [status, 200], without
        coded = create(site, CODED, without=without)
        assert site.client.statuses(coded + b"%x\r\n%s\r\n0\r\n\r\n" % (len(hidden), hidden) + last(site)) == [
            status,
            200,
        ]
    assert site.state() == before


def test_what_follows_a_body_in_chunks_is_no_header(site: Site) -> None:
    """A trailer must not say who asks, from where, or in which form, whatever the head said of it."""
    before = site.state()
    right = dict(site.right)
    told = {}
    for name, said, status in (
        ("Host", EVIL, 421),
        ("Host", None, 421),
        ("Authorization", "Bearer wrong", 401),
        ("Authorization", None, 401),
        ("Origin", f"http://{EVIL}", 403),
        ("Content-Type", "text/plain", 415),
        ("Content-Type", None, 415),
    ):
        good = {"Origin": f"http://{site.host}", "Content-Type": "application/json", **right}[name]
        lines = [CODED] if said is None else [CODED, f"{name}: {said}"]
        trailed = CHUNKED[:-2] + f"{name}: {good}\r\n\r\n".encode()
        statuses = site.client.statuses(create(site, *lines, without=name) + trailed + last(site))
        if statuses != [status, 200]:
            told[f"{name}: {said}"] = statuses
    assert told == {}
    assert site.state() == before


# --- what is hardly a request ----------------------------------------------------------------------------------------


def odd(site: Site) -> Iterator[tuple[str, bytes, set[int]]]:
    """Strange requests, and the statuses that would be right."""
    nobody = f"Host: {site.host}\r\nConnection: close\r\n"
    friend = f"{nobody}Authorization: Bearer {site.running.token}\r\n"
    astray = friend.replace(site.host, EVIL)

    def asked(line: str, headers: str = friend, more: str = "") -> bytes:
        return f"{line}\r\n{headers}{more}\r\n".encode("latin-1")

    get, ours, theirs = "GET /api/revision HTTP/1.1", f"http://{site.host}/api/revision", f"http://{EVIL}/api/revision"
    yield "an absolute target", asked(f"GET {ours} HTTP/1.1"), {200}
    yield "an absolute target and a foreign Host", asked(f"GET {ours} HTTP/1.1", astray), {421}
    yield "a foreign target", asked(f"GET {theirs} HTTP/1.1"), {421}
    yield "an absolute target without a path", asked(f"GET http://{site.host} HTTP/1.1"), {400}
    yield "an absolute target of no Host", asked(f"GET {ours} HTTP/1.1", friend.partition("\r\n")[2]), {421}
    yield "an absolute target of two Hosts", asked(f"GET {ours} HTTP/1.1", astray + f"Host: {site.host}\r\n"), {421}
    yield "a target in capitals", asked(f"GET {ours.replace('http', 'HTTP')} HTTP/1.1"), {200}
    yield "a foreign target with a query", asked(f"GET http://{EVIL}?x=/{site.host}/ HTTP/1.1"), {400, 421}
    yield "another scheme", asked(f"GET {ours.replace('http', 'ftp')} HTTP/1.1"), {400}
    yield "a foreign target and Host", asked(f"GET {theirs} HTTP/1.1", astray), {421}
    inside = ours.replace("//", f"//x:{site.running.token}@")
    yield "a token in the target", asked(f"GET {inside} HTTP/1.1", nobody), {400, 401}
    for target in (
        "",
        "api/revision",
        f"http://{EVIL}",
        "/api/re\0vision",
        "/api/re\xffvision",
        "/api/re vision",
        "?x",
    ):
        yield f"target {target!r}", asked(f"GET {target} HTTP/1.1"), {400}
    yield "everything", asked("GET * HTTP/1.1"), {400, 404}
    yield "options of everything", asked("OPTIONS * HTTP/1.1"), {400, 404, 405}
    yield "two slashes", asked(f"GET //{EVIL}/api/revision HTTP/1.1"), {404}
    for method in ("get", "FOO", "G ET", "X" * 10_000, ""):
        yield f"method {method[:20]!r}", asked(f"{method} /api/revision HTTP/1.1"), {400}
    for method in ("TRACE", "CONNECT", "PATCH", "PROPFIND", "DELETE"):
        yield method, asked(f"{method} /api/revision HTTP/1.1"), {405}
    yield "a tunnel", asked(f"CONNECT {EVIL}:443 HTTP/1.1"), {400, 405}
    yield "HTTP/1.0 without a Host", asked("GET /api/revision HTTP/1.0", ""), {421}
    yield "HTTP/0.9", b"GET /api/revision\r\n\r\n", {400, 505}
    yield "HTTP/1.0", asked("GET /api/revision HTTP/1.0"), {200}
    yield "HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400, 505}
    for version in ("2.0", "0.9", "3.0", "1.2", "0.0", "9.9"):
        yield f"HTTP/{version} in the line", asked(f"GET /api/revision HTTP/{version}"), {505}
    for version in ("1.10", "1", "3", "1.1.1", "11", ".1", "x.1"):  # which are no versions
        yield f"HTTP/{version} in the line", asked(f"GET /api/revision HTTP/{version}"), {400}
    for coding in ("gzip, chunked", "deflate,chunked", "chunked , chunked", "identity, chunked", "gzip,\tChunked"):
        yield (
            f"coding {coding!r}",
            asked("POST /api/tasks HTTP/1.1", friend, f"Transfer-Encoding: {coding}\r\n"),
            {
                400,
                501,
            },
        )
    yield "a coding in HTTP/1.0", asked("POST /api/tasks HTTP/1.0", friend, f"{CODED}\r\n") + CHUNKED, {400}
    yield "TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", {400}
    socket = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\n"
    yield "a web socket", asked(get, friend, socket), {200, 400}
    yield "a web socket for nobody", asked(get, nobody, socket), {401}
    yield "another HTTP", asked(get, friend, "Upgrade: h2c\r\n"), {200, 400}
    waiting = "Expect: 100-continue\r\nContent-Length: 20\r\n"
    yield "a body that is waited for", asked("POST /api/tasks HTTP/1.1", nobody, waiting), {401}
    refused, handled = {400, 401, 413, 414, 431}, {200, 400, 431}
    for size in (1 << 16, 1 << 20):
        long = "a" * size
        yield f"a line of {size}", asked(get, nobody, f"X: {long}\r\n"), refused
        yield f"a line of {size} from a friend", asked(get, friend, f"X: {long}\r\n"), handled
        yield f"a name of {size}", asked(get, nobody, f"{long}: a\r\n"), refused
        yield f"a target of {size}", asked(f"GET /{long} HTTP/1.1", nobody), refused
        yield f"a token of {size}", asked(get, nobody, f"Authorization: Bearer {long}\r\n"), refused
    for count in (1_000, 10_000):
        many = "".join(f"X-{number}: a\r\n" for number in range(count))
        yield f"{count} headers", asked(get, nobody, many), refused
        yield f"{count} headers from a friend", asked(get, friend, many), handled


def test_a_strange_request_has_one_answer_and_never_a_failure(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    before = site.state()
    wrong, count = {}, 0
    for name, content, right in odd(site):
        count += 1
        statuses = site.client.statuses(content)
        if len(statuses) != 1 or statuses[0] not in right:
            wrong[name] = statuses
    assert wrong == {}
    assert site.client.send(site.open_row.request).status == 200
    assert site.state() == before
    with capsys.disabled():
        print(f"\n  strange requests: {count}, each with one answer")


# --- names that are paths --------------------------------------------------------------------------------------------

NO_NAMES: Final = (
    *("..", ".", "%2e%2e", "%2e", "..%2f..%2fetc", "%2Fetc", "%2f", f"{OTHER}%2f..", f"{OTHER}%2F", "..%5c..", "%5c"),
    *("..\\..", f"{OTHER}\\", "%00", f"{OTHER}%00", "oth%65r", "OTHER", f".{OTHER}", f"-{OTHER}", f"{OTHER}..", "~"),
    *("a" * 65, "a..b", "*", "%2a", "%20", f"{OTHER}%20", "%c3%a9", "%ff", "%zz", "c:", "con:", f"{OTHER};x", "$HOME"),
)
FILES: Final = (
    *("/token", "/tokens.json", "/holdfast.db", "/store/token", "/etc/passwd", "/../token", "/%2e%2e/token", "/x"),
    *("/..%2ftoken", "/docs/../token", "/docs/..%2f..%2ftoken", "/docs/token", "/openapi.json/../token", "//token"),
    *("/./token", "/token/", f"/workspaces/{OTHER}/api/tasks", f"/../workspaces/{OTHER}/api/tasks", "//api/tasks"),
    *("/api/../token", "/api/", f"/api/..%2f{OTHER}%2fapi%2ftasks", f"/{OTHER}/../api/tasks", "/healthz/.."),
)


def test_a_name_that_is_a_path_is_no_workspace_and_never_a_file(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    before = site.state()
    asked = [(method, f"/{name}/api/tasks", 400, "INVALID_NAME") for name in NO_NAMES for method in ("GET", "POST")]
    asked += [("GET", path, 404, "NO_ROUTE") for path in FILES]
    asked.append(("POST", "/missing/api/tasks", 404, "NOT_FOUND"))
    wrong = []
    for method, target, status, code in asked:
        answer = site.client.send(Request(method, target, site.right))
        if [*answer.flaws(site.secrets)] or (answer.status, answer.code) != (status, code):
            wrong.append((method, target, answer.status, answer.code))
    assert wrong == []
    assert site.state() == before
    with capsys.disabled():
        print(f"\n  names that are paths: {len(asked)} requests, none reached a workspace or a file")
