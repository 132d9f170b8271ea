"""W1, W2, W14: the page is served, and signing in needs no cookie. Requests as any program could forge them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import pytest

from holdfast.faces import web
from holdfast.faces.http.auth import Tokens
from holdfast.faces.http.sessions import FILE, Sessions
from tests.http.running import PATIENCE, Running, code_of, command

POLICY = (
    "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; object-src 'none'; "
    "require-trusted-types-for 'script'"
)
BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8", "accept-encoding": "gzip"}


def sign_in(server: Running, **given: str) -> httpx.Response:
    """Ask for a session, as the page does."""
    return httpx.post(f"{server.url}/ui/session", json=given, timeout=PATIENCE)


def ticket_of(server: Running) -> str:
    """A ticket, as `holdfast ui` makes it in another process."""
    link = subprocess.run(
        [sys.executable, "-m", "holdfast", "ui", "--no-open", "--dir", str(server.folder)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    ).stdout.strip()
    found = re.fullmatch(re.escape(server.url) + r"/ui/#ticket=(hfu_\w+)", link)
    assert found, link
    return found[1]


# --- W1: where it is --------------------------------------------------------------------------------------------------


def test_w1_a_browser_at_the_root_is_sent_to_the_page_and_programs_are_not(server: Running) -> None:
    sent = httpx.get(server.url, headers=BROWSER)
    assert (sent.status_code, sent.headers["location"]) == (302, "/ui/")
    assert httpx.get(f"{server.url}/ui", headers=BROWSER).headers["location"] == "/ui/"
    assert code_of(httpx.get(server.url)) == (401, "UNAUTHORIZED")
    described = server.call("GET", "/", headers={"accept": "text/html"})
    assert described.status_code == 200
    assert "Every operation of this server" in described.text


def test_w1_every_address_of_a_view_is_the_page_and_a_missing_file_is_none(server: Running) -> None:
    for path in ("/ui/", "/ui/-/board", "/ui/team-a/task/hf-1.2"):
        assert httpx.get(server.url + path, headers=BROWSER).headers["content-type"] == "text/html; charset=utf-8"
    for path in (f"/ui/{web.digest()}/nothing.js", "/ui/0123456789abcdef/app.js", f"/ui/{web.digest()}/../index.html"):
        assert code_of(httpx.get(server.url + path)) == (404, "NO_ROUTE")
    assert code_of(httpx.post(f"{server.url}/ui/", headers={"authorization": f"Bearer {server.token}"}))[0] == 405


def test_w1_a_refused_host_is_told_how_to_allow_it(server: Running) -> None:
    refused = httpx.get(f"{server.url}/ui/", headers={**BROWSER, "host": "laptop.example:9000"})
    assert code_of(refused) == (421, "MISDIRECTED")
    assert "holdfast serve --allow-host laptop.example:9000" in refused.json()["hint"]
    hostile = httpx.get(f"{server.url}/ui/", headers={"host": "x;rm -rf ~"})
    assert "rm -rf" not in hostile.json()["hint"]


def test_w1_ui_starts_a_server_if_none_runs_and_prints_a_link_that_works(tmp_path: Path) -> None:
    started = [sys.executable, "-m", "holdfast", "ui", "--no-open", "--dir", str(tmp_path / "new")]
    with subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            link = process.stdout.readline().strip()
            base, _, ticket = link.partition("/ui/#ticket=")
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+", base)
            session = httpx.post(f"{base}/ui/session", json={"ticket": ticket}, timeout=PATIENCE)
            assert (session.status_code, session.json()["role"]) == (201, "admin")
        finally:
            process.terminate()


def test_w1_serve_prints_the_link_first_if_asked(tmp_path: Path) -> None:
    with subprocess.Popen(
        command(tmp_path / "store", "--port", "0", "--link"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert re.fullmatch(r"open http://127\.0\.0\.1:\d+/ui/#ticket=hfu_\w+\n", process.stdout.readline())
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE)


# --- W2: signing in ---------------------------------------------------------------------------------------------------


def test_w2_a_ticket_works_once_and_its_session_has_the_rights_of_its_token(server: Running) -> None:
    ticket = ticket_of(server)
    answer = sign_in(server, ticket=ticket)
    session = answer.json()
    assert answer.status_code == 201
    assert (session["role"], session["actor"], session["workspaces"]) == ("admin", None, [""])
    assert "set-cookie" not in answer.headers
    assert server.call("GET", "/api/whoami", token=session["secret"]).json()["role"] == "admin"
    again = sign_in(server, ticket=ticket)
    assert code_of(again) == (401, "UNAUTHORIZED")
    assert again.json()["error"] == "the link was used already, or has expired"
    kept = (server.folder / FILE).read_text()
    assert session["secret"] not in kept
    assert ticket not in kept


def test_w2_sessions_and_tickets_expire(server: Running) -> None:
    ticket, secret = ticket_of(server), sign_in(server, token=server.token).json()["secret"]
    path = server.folder / FILE
    aged = msgspec.json.decode(path.read_bytes())
    past = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    for each in (*aged["tickets"], *aged["sessions"]):
        each["expires_at"] = past
    path.write_bytes(msgspec.json.encode(aged))
    assert code_of(sign_in(server, ticket=ticket)) == (401, "UNAUTHORIZED")
    assert code_of(server.call("GET", "/api/tasks", token=secret)) == (401, "UNAUTHORIZED")


def test_w2_times_of_tickets_and_sessions_are_10_minutes_and_12_hours(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    sessions = Sessions(tmp_path, tokens)
    token, _ = tokens.create("agent")
    before = datetime.now(UTC)
    sessions.give_ticket(token)
    session, _ = sessions.begin(token)
    [ticket] = msgspec.json.decode((tmp_path / FILE).read_bytes())["tickets"]
    assert abs(datetime.fromisoformat(ticket["expires_at"]) - before - timedelta(minutes=10)) < timedelta(minutes=1)
    assert abs(session.expires_at - before - timedelta(hours=12)) < timedelta(minutes=1)
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_w2_a_session_ends_with_its_token_and_its_stream_too(server: Running) -> None:
    tokens = Tokens(server.folder)
    token, secret = tokens.create("agent")
    session = sign_in(server, token=secret).json()["secret"]
    headers = {"authorization": f"Bearer {session}", "accept": "text/event-stream"}
    with httpx.stream("GET", f"{server.url}/api/events", headers=headers, timeout=PATIENCE) as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: bookmark"
        tokens.revoke(token.id)
        assert any("UNAUTHORIZED" in line for line in lines)
    assert code_of(server.call("GET", "/api/tasks", token=session)) == (401, "UNAUTHORIZED")


def test_w2_sessions_are_listed_and_revoked_by_commands_and_by_signing_out(server: Running) -> None:
    first, second = (sign_in(server, token=server.token).json()["secret"] for _ in range(2))
    listed = [sys.executable, "-m", "holdfast", "session", "list", "--dir", str(server.folder), "--json"]
    said = subprocess.run(listed, capture_output=True, check=True, timeout=PATIENCE).stdout
    found = msgspec.json.decode(said)["data"]
    assert [sorted(each) for each in found] == [["created_at", "expires_at", "id", "token"]] * 2
    revoked = [sys.executable, "-m", "holdfast", "session", "revoke", found[0]["id"], "--dir", str(server.folder)]
    subprocess.run(revoked, check=True, timeout=PATIENCE, stdout=subprocess.DEVNULL)
    assert code_of(server.call("GET", "/api/tasks", token=first)) == (401, "UNAUTHORIZED")
    assert server.call("DELETE", "/ui/session", token=second).status_code == 204
    assert code_of(server.call("GET", "/api/tasks", token=second)) == (401, "UNAUTHORIZED")
    assert server.call("GET", "/api/tasks").status_code == 200, "the token itself goes on"


def test_w2_a_restart_of_the_server_ends_no_session(tmp_path: Path) -> None:
    first = Running(tmp_path / "store")
    secret = sign_in(first, token=first.token).json()["secret"]
    first.end()
    second = Running(tmp_path / "store")
    try:
        assert second.call("GET", "/api/tasks", token=secret).status_code == 200
    finally:
        second.end()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"{}", 400),
        (b'{"ticket": "a", "token": "b"}', 400),
        (b'{"token": 7}', 400),
        (b"\xff", 400),
        (b'{"token": "hft_wrong"}', 401),
        (b'{"token": "hfs_0000"}', 401),
        (b'{"ticket": ""}', 401),
        (b'{"token": "' + b"x" * 5000 + b'"}', 413),
    ],
)
def test_w2_forged_credentials_get_no_session(sites_server: Running, body: bytes, expected: int) -> None:
    headers = {"content-type": "application/json"}
    assert httpx.post(f"{sites_server.url}/ui/session", content=body, headers=headers).status_code == expected


def test_w2_signing_in_is_refused_from_a_foreign_page_and_without_json(sites_server: Running) -> None:
    url, body = f"{sites_server.url}/ui/session", b'{"token": "%b"}' % sites_server.token.encode()
    json = {"content-type": "application/json"}
    assert code_of(httpx.post(url, content=body, headers={**json, "origin": "http://evil.example"}))[0] == 403
    assert code_of(httpx.post(url, content=body, headers={"content-type": "text/plain"}))[0] == 415
    chunked = httpx.post(url, content=iter([body]), headers=json)
    assert code_of(chunked)[0] == 413, "somebody who is not known says first how much is coming"


def test_w2_roles_hold_for_sessions_and_other_workspaces_stay_closed(sites_server: Running) -> None:
    server = sites_server
    tokens = Tokens(server.folder)
    secrets = {role: sign_in(server, token=tokens.create(role)[1]).json()["secret"] for role in ("read", "agent")}
    named = {"x-agent-id": "maya"}
    title = {"title": "a task"}
    assert server.call("GET", "/api/tasks", token=secrets["read"]).status_code == 200
    assert code_of(server.call("POST", "/api/tasks", token=secrets["read"], headers=named, json=title))[0] == 403
    made = server.call("POST", "/api/tasks", token=secrets["agent"], headers=named, json=title)
    assert made.status_code == 201
    purged = server.call("POST", f"/api/tasks/{made.json()['id']}/purge", token=secrets["agent"], headers=named)
    assert code_of(purged)[0] == 403
    bound = tokens.create("agent", "elsewhere", "ada")[1]
    session = sign_in(server, token=bound).json()
    assert (session["actor"], session["workspaces"]) == ("ada", ["elsewhere"])
    assert code_of(server.call("GET", "/api/tasks", token=session["secret"]))[0] == 403
    ticket = server.call("POST", "/ui/ticket", token=session["secret"]).json()["ticket"]
    assert sign_in(server, ticket=ticket).json()["actor"] == "ada", "a link has the rights of its maker"


# What the page writes: each act with a body that would do; "force" are those of admins alone.
ACTS: Final[tuple[tuple[str, str, dict[str, Any]], ...]] = (
    ("POST", "/tasks", {"title": "forged"}),
    ("POST", "/agents", {"name": "forger", "role": "person"}),
    *(("POST", f"/tasks/{{task}}/{act}", {"reason": "x"}) for act in ("cancel", "close", "reopen", "release", "block")),
    *(("POST", f"/tasks/{{task}}/{act}", {}) for act in ("claim", "complete", "approve", "unblock")),
    ("POST", "/tasks/{task}/reject", {"reason": "x"}),
    ("POST", "/tasks/{task}/note", {"text": "x"}),
    ("POST", "/tasks/{task}/dependencies", {"on": "{task}"}),
    ("PUT", "/tasks/{task}/assignee", {"assignee": "ada"}),
    ("PUT", "/tasks/{task}/tags", {"tags": ["x"]}),
    ("PATCH", "/tasks/{task}", {"title": "x", "expected": 1}),
    ("POST", "/mail", {"to": ["*"], "subject": "x"}),
    ("POST", "/mail/{mail}/reply", {"body": "x"}),
    ("POST", "/mail/{mail}/ack", {}),
    ("POST", "/locks/door/release", {"holder": "zoe"}),
)
FORCED: Final[tuple[tuple[str, str, dict[str, Any]], ...]] = (
    ("POST", "/tasks/{task}/release", {"force": True, "reason": "x"}),
    ("POST", "/locks/door/release", {"force": True, "reason": "x"}),
    ("POST", "/paths/release", {"id": "{path}", "force": True, "reason": "x"}),
)


def test_w2_forged_requests_of_every_act_of_the_page_change_nothing(tmp_path: Path) -> None:
    server = Running(tmp_path / "store")
    try:
        tokens, ticket = Tokens(server.folder), ticket_of(server)
        sign_in(server, ticket=ticket)
        sessions = Sessions(server.folder, tokens)
        secret = {role: sign_in(server, token=tokens.create(role)[1]).json()["secret"] for role in ("read", "agent")}
        revoked = sign_in(server, token=server.token).json()["secret"]
        sessions.revoke(sessions.all()[-1].id)
        (server.folder / "workspaces" / "elsewhere").mkdir(parents=True)
        foreign = sign_in(server, token=tokens.create("admin", "elsewhere")[1]).json()["secret"]
        maya, zoe = {"x-agent-id": "maya"}, {"x-agent-id": "zoe"}

        def made(address: str, by: dict[str, str], **body: Any) -> str:
            answer = server.call("POST", f"/api/{address}", json=body, headers=by)
            return str(answer.raise_for_status().json().get("id"))

        ids = {
            "task": (task := made("tasks", maya, title="real")),
            "mail": made("mail", zoe, to=["maya"], subject="real"),
            "path": made("paths/lock", zoe, patterns=["src/**"], ttl=600),
        }
        made(f"tasks/{task}/claim", zoe)
        made("locks/door/acquire", zoe)
        before = server.call("GET", "/api/revision").json()["revision"]

        def statuses(acts: Sequence[tuple[str, str, dict[str, Any]]], headers: dict[str, str]) -> set[int]:
            found = set()
            with httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
                for method, address, body in acts:
                    given = {name: each.format(**ids) if isinstance(each, str) else each for name, each in body.items()}
                    answer = client.request(method, "/api" + address.format(**ids), headers=maya | headers, json=given)
                    found.add(answer.status_code)
            return found

        every = (*ACTS, *FORCED)
        assert statuses(every, {}) == {401}, "no Bearer"
        assert statuses(every, {"authorization": f"Bearer {ticket}"}) == {401}, "a ticket is no session, used or not"
        assert statuses(every, {"authorization": f"Bearer {revoked}"}) == {401}
        assert statuses(every, {"authorization": f"Bearer {server.token}", "origin": "http://evil.example"}) == {403}
        assert statuses(every, {"authorization": f"Bearer {foreign}"}) == {403}, "a session of another workspace"
        assert statuses(every, {"authorization": f"Bearer {secret['read']}"}) == {403}
        assert statuses(FORCED, {"authorization": f"Bearer {secret['agent']}"}) == {403}
        aged = msgspec.json.decode((server.folder / FILE).read_bytes())
        for each in aged["sessions"]:
            each["expires_at"] = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
        (server.folder / FILE).write_bytes(msgspec.json.encode(aged))
        assert statuses(every, {"authorization": f"Bearer {secret['agent']}"}) == {401}, "it has expired"
        assert server.call("GET", "/api/revision").json()["revision"] == before
    finally:
        server.end()


def test_w2_signed_out_nothing_of_a_workspace_is_shown(sites_server: Running) -> None:
    server = sites_server
    server.call("POST", "/api/tasks", json={"title": "a secret plan"}, headers={"x-agent-id": "maya"})
    for path in ["/ui/", "/ui/-/fleet", *(f"/ui/{web.digest()}/{_name(path)}" for path in web.files())]:
        shown = httpx.get(server.url + path, headers=BROWSER)
        assert shown.status_code == 200
        assert "secret plan" not in shown.text
        assert str(server.folder) not in shown.text
    for path in ("/ui/session", "/api/tasks", "/api/status", "/api/events", "/metrics", "/openapi.json"):
        assert code_of(httpx.get(server.url + path))[0] == 401


# --- W14: what it is made of ------------------------------------------------------------------------------------------


def test_w14_every_file_has_the_policy_and_a_long_life_and_travels_compressed(sites_server: Running) -> None:
    for path in web.files():
        answer = httpx.get(f"{sites_server.url}/ui/{web.digest()}/{_name(path)}", headers=BROWSER)
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["content-encoding"] == "gzip"
        if path.name != "index.html":
            assert "immutable" in answer.headers["cache-control"]
            source = path.read_bytes()
            assert answer.content == (web.lean(source) if path.suffix == ".js" else source)
    start = httpx.get(f"{sites_server.url}/ui/", headers=BROWSER)
    assert (start.headers["cache-control"], start.headers["content-security-policy"]) == ("no-cache", POLICY)
    plain = httpx.get(f"{sites_server.url}/ui/", headers={**BROWSER, "accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.text == start.text


def test_w14_the_scripts_are_at_most_200_kilobytes_and_views_at_most_250_lines() -> None:
    scripts = [path for path in web.files() if path.suffix == ".js"]
    sizes = {_name(path): len(web.lean(path.read_bytes())) for path in scripts}
    assert sum(sizes.values()) <= 200_000, sizes
    views = {path.name: path.read_text() for path in scripts if path.parent.name == "views"}
    assert {name: len(text.splitlines()) for name, text in views.items() if len(text.splitlines()) > 250} == {}
    others = {name: re.findall(r"from '(?:\./|\.\./views/)[^']*'", text) for name, text in views.items()}
    assert {name: found for name, found in others.items() if found} == {}, "no view imports another"


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("// it's said\nconst a = 1; // once\n", "const a=1;"),
        (
            "/** What\n * it is. */\nexport function f(a, b) { return a + b; }\n",
            "export function f(a,b){return a+b;}",
        ),
        ("const a = 'x = { y }', b = \"// no, it's not\";", "const a='x = { y }',b=\"// no, it's not\";"),
        (
            "const a = `p  ${ b ? `, ${ c }` : { d: ' }' }.d } = \\` q`; // `",
            "const a=`p  ${b?`, ${c}`:{d:' }'}.d} = \\` q`;",
        ),
        ("return /[\"'/ ]+ x/ .test(a) ;", "return/[\"'/ ]+ x/.test(a);"),
        ("x = a / b / c; y = (a) / 2; z = d[0] / 3 / e", "x=a/b/c;y=(a)/2;z=d[0]/3/e"),
        ("x = a + +b - -c + - d;", "x=a+ +b- -c+-d;"),
        ("f(\n  a,\n  [b],\n)\n  .then(c);\nlet d\n[e] = f\n", "f(a,[b],).then(c);let d\n[e]=f"),
        ("if (a)\n    b()\n\n  c()", "if(a)\nb()\nc()"),
        ("for (const a of [b]) typeof /x y/", "for(const a of[b])typeof/x y/"),
    ],
)
def test_w14_a_script_travels_without_what_is_for_readers_and_its_texts_stay(written: str, sent: str) -> None:
    assert web.lean(written.encode()).decode() == sent


FORBIDDEN = {
    "markup": r"\b(innerHTML|outerHTML|insertAdjacentHTML|createContextualFragment|DOMParser|srcdoc|document\.write)\b",
    "code from text": r"\beval\b|\bFunction\(|\b(setTimeout|setInterval)\(\s*['\"`]|javascript:",
    "style strings": r"cssText|setAttribute\(\s*['\"]style|\.style\s*=|insertRule|createElement\(['\"]style",
    "other origins": r"['\"`](https?:)?//(?!www\.w3\.org/)",
    "cookies": r"\bcookie\b(?!\.)(?=\s*=)|document\.cookie",
}


@pytest.mark.parametrize("path", web.files(), ids=lambda path: path.name)
def test_w14_no_file_has_markup_from_text_eval_or_style_strings(path: Path) -> None:
    text = path.read_text()
    found = {what: re.findall(pattern, text) for what, pattern in FORBIDDEN.items() if re.search(pattern, text)}
    assert found == {}
    if path.suffix == ".html":
        assert not re.search(r"<script(?![^>]*src=)|\sstyle=|\son\w+=", text), "nothing inline"


def _name(path: Path) -> str:
    return path.relative_to(web.FOLDER).as_posix()


@pytest.fixture(scope="module")
def sites_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp("page") / "store")
    yield running
    running.end()
