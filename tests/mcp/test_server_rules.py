"""MCP in a server keeps the server's rules: Host, Origin, tokens, roles, actors, workspaces, sizes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp.shared.exceptions import MCPError

import holdfast
from holdfast.faces.http.listener import Settings
from holdfast.faces.http.server import Server
from holdfast.faces.mcp import http
from holdfast.testing import ManualClock
from tests.http.inside import token_of
from tests.http.running import code_of
from tests.mcp.clients import ERAS, PATIENCE, Agent, Era, over_http, played

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
ACCEPT = "application/json, text/event-stream"


def post(server: Server, path: str = "/mcp", method: str = "POST", **headers: str) -> httpx.Response:
    """A request that would be a ping, with other headers than it should have."""
    usual = {"authorization": f"Bearer {token_of(server)}", "accept": ACCEPT}
    return httpx.request(method, server.url + path, json=PING, headers={**usual, **headers}, timeout=PATIENCE)


def test_a_request_that_keeps_the_rules_is_answered_and_kept_from_caches(server: Server) -> None:
    answer = post(server, origin=server.url)
    assert answer.status_code == 200
    assert '"id":1' in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "no-" in answer.headers["cache-control"]


@pytest.mark.parametrize(
    ("headers", "refusal"),
    [
        ({"authorization": ""}, (401, "UNAUTHORIZED")),
        ({"authorization": "Bearer hft_wrong"}, (401, "UNAUTHORIZED")),
        ({"host": "evil.example"}, (421, "MISDIRECTED")),
        ({"origin": "http://evil.example"}, (403, "FORBIDDEN")),
        ({"origin": "null"}, (403, "FORBIDDEN")),
        ({"content-type": "text/plain"}, (415, "NOT_JSON")),
        ({"mcp-session-id": "x" * 200}, (400, "INVALID")),
        ({"x-agent-id": "system"}, (400, "INVALID")),
    ],
)
def test_a_request_that_breaks_a_rule_is_refused_as_everywhere(
    server: Server, headers: dict[str, str], refusal: tuple[int, str]
) -> None:
    assert code_of(post(server, **headers)) == refusal


def test_other_methods_profiles_and_workspaces_are_refused(server: Server) -> None:
    answer = post(server, method="GET")
    assert code_of(answer) == (405, "METHOD_NOT_ALLOWED")
    assert answer.headers["allow"] == "POST, DELETE"
    assert code_of(post(server, method="PUT")) == (405, "METHOD_NOT_ALLOWED")
    assert code_of(post(server, path="/mcp?profile=none")) == (400, "INVALID")
    assert code_of(post(server, path="/nobody/mcp")) == (404, "NOT_FOUND")
    assert code_of(post(server, path="/mcp/more")) == (405, "METHOD_NOT_ALLOWED")


def test_bodies_that_are_too_large_too_deep_or_no_json_are_refused(server: Server) -> None:
    usual = {"authorization": f"Bearer {token_of(server)}", "accept": ACCEPT, "content-type": "application/json"}

    def send(body: bytes) -> httpx.Response:
        return httpx.post(f"{server.url}/mcp", content=body, headers=usual, timeout=PATIENCE)

    assert code_of(send(b" " * (4 * 1024 * 1024 + 1))) == (413, "TOO_LARGE")
    assert code_of(send(b'{"a":' * 200 + b"1" + b"}" * 200)) == (400, "INVALID")
    for nonsense in (b"", b"nonsense", b"[]", b"1", b'{"jsonrpc":"2.0"}', b"\xff\xfe"):
        answer = send(nonsense)
        assert code_of(answer) == (400, "INVALID")
        assert answer.json()["error"] == "the body is not a JSON-RPC message"
    assert post(server).status_code == 200


def test_a_token_is_good_for_its_workspace_alone(server: Server) -> None:
    (server.settings.folder / "workspaces" / "team").mkdir(parents=True)
    _, secret = server.tokens.create("agent", workspace="team")
    bearer = f"Bearer {secret}"
    assert code_of(post(server, authorization=bearer)) == (403, "FORBIDDEN")
    assert post(server, path="/team/mcp", authorization=bearer).status_code == 200


@pytest.mark.parametrize("era", ERAS)
def test_a_named_workspace_has_an_address_of_its_own(server: Server, era: Era) -> None:
    (server.settings.folder / "workspaces" / "team").mkdir(parents=True)

    @played
    async def play() -> None:
        token = token_of(server)
        async with (
            over_http(server.url, token, era=era) as main,
            over_http(server.url, token, era=era, path="/team/mcp") as team,
        ):
            await team.call("task_create", title="theirs")
            assert (await main.call("task_list"))["tasks"] == []
            assert len((await team.call("task_list"))["tasks"]) == 1

    play()


WRITES: list[tuple[str, dict[str, Any]]] = [
    ("task_create", {"title": "x"}),
    ("task_claim", {}),
    ("task_claim", {"id": "x"}),
    ("task_update", {"id": "x", "note": "y"}),
    ("task_update", {"id": "x"}),
    ("task_finish", {"id": "x"}),
    ("cell_set", {"run": "r", "cell": "c", "value": 1}),
    ("lock", {"name": "x"}),
    ("lock", {"name": "x", "action": "release"}),
    ("lock", {"name": "x", "action": "renew"}),
    ("paths", {"action": "lock", "paths": ["x"]}),
    ("mail_send", {"to": ["bob"], "subject": "x", "body": "y"}),
    ("mail_inbox", {"ack": ["x"]}),
]
READS: list[tuple[str, dict[str, Any]]] = [
    ("task_list", {}),
    ("cell_get", {"run": "r"}),
    ("lock", {"name": "x", "action": "check"}),
    ("paths", {"action": "check", "paths": ["x"]}),
    ("mail_inbox", {}),
    ("watch", {"timeout": 0}),
]


@pytest.mark.parametrize("era", ERAS)
def test_a_token_to_read_reads_and_does_nothing_else(server: Server, era: Era) -> None:
    _, secret = server.tokens.create("read")

    @played
    async def play() -> None:
        async with over_http(server.url, secret, era=era) as agent:
            for tool, given in WRITES:
                refused = await agent.refusal(tool, **given)
                assert (tool, refused.code) == (tool, "FORBIDDEN")
            for tool, given in READS:
                await agent.call(tool, **given)
            assert (await agent.read("holdfast://prime"))["unread"] == 0

    play()
    assert server.spaces.get("").workspace.revision == 0


@pytest.mark.parametrize("era", ERAS)
def test_a_token_that_binds_an_actor_acts_for_nobody_else(server: Server, era: Era) -> None:
    _, secret = server.tokens.create("agent", actor="ann")
    assert code_of(post(server, authorization=f"Bearer {secret}", **{"x-agent-id": "bob"})) == (403, "FORBIDDEN")

    @played
    async def play() -> None:
        async with over_http(server.url, secret, actor=None, era=era) as agent:
            await agent.call("task_create", title="work")
            assert (await agent.call("task_claim"))["task"]["holder"] == "ann"
        async with over_http(server.url, secret, actor=None, era=era, path="/mcp?profile=all") as agent:
            for tool, given in (
                ("locks_acquire", {"name": "x", "holder": "bob"}),
                ("mail_send", {"to": "ann", "subject": "x", "sender": "bob"}),
                ("mail_inbox", {"agent": "bob"}),
                ("agents_register", {"name": "bob"}),
                ("clock_reset", {}),
                ("txn", {"conditions": [], "then": [{"op": "locks.acquire", "args": {"name": "x", "holder": "bob"}}]}),
            ):
                assert (tool, (await agent.refusal(tool, **given)).code) == (tool, "FORBIDDEN")

    play()


@played
async def test_who_has_no_name_may_look_but_hold_nothing(server: Server) -> None:
    async with over_http(server.url, token_of(server), actor=None) as agent:
        await agent.call("task_create", title="work")
        assert (await agent.refusal("task_claim")).code == "INVALID_HOLDER"
        assert "hint" in await agent.read("holdfast://prime")


@pytest.mark.parametrize("era", ERAS)
def test_a_token_that_is_revoked_is_refused_in_the_middle_of_a_session(server: Server, era: Era) -> None:
    token, secret = server.tokens.create("agent")

    @played
    async def play() -> None:
        async with over_http(server.url, secret, era=era) as agent:
            await agent.call("task_list")
            server.tokens.revoke(token.id)
            with pytest.raises(MCPError):
                await agent.call("task_list")

    play()


# --- sessions --------------------------------------------------------------------------------------------------------


@pytest.fixture
def owned(tmp_path: Path, clock: ManualClock) -> Any:
    """A server whose time belongs to the test."""

    class Owned(Server):
        def _open(self, folder: Path) -> holdfast.Workspace:
            return holdfast.open(folder, actor="server", clock=clock)

    server = Owned(Settings(folder=tmp_path / "owned", port=0))
    with _running(server):
        yield server


class _running:
    """A server while a block lasts."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._thread = threading.Thread(target=server.run)

    def __enter__(self) -> Server:
        self._thread.start()
        assert self._server.ready.wait(PATIENCE)
        return self._server

    def __exit__(self, *_: object) -> None:
        self._server.stop()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


@played
async def test_a_paused_session_is_fenced_even_if_another_one_has_its_name(owned: Server, clock: ManualClock) -> None:
    token = token_of(owned)
    async with over_http(owned.url, token, era="legacy") as paused, over_http(owned.url, token, era="legacy") as other:
        task = await paused.call("task_create", title="work")
        await paused.call("task_claim", ttl=60)
        clock.advance(61)
        await other.call("task_claim")
        assert (await paused.refusal("task_finish", id=task["id"])).code == "FENCED"
        await other.call("task_finish", id=task["id"])


@played
async def test_without_sessions_a_lost_claim_is_fenced_by_its_token_too(owned: Server, clock: ManualClock) -> None:
    token = token_of(owned)
    async with over_http(owned.url, token, "ann") as ann, over_http(owned.url, token, "bob") as bob:
        task = await ann.call("task_create", title="work")
        await ann.call("task_claim", ttl=60)
        clock.advance(61)
        await bob.call("task_claim")
        assert (await ann.refusal("task_update", id=task["id"], note="late")).code == "FENCED"
        await bob.call("task_finish", id=task["id"])


def test_of_a_token_with_many_sessions_the_oldest_are_forgotten_and_still_work(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "SESSIONS", 2)
    kept: list[int] = []
    remember = http.Mounted._session

    def counting(self: http.Mounted, *given: Any) -> Any:
        found = remember(self, *given)
        kept.append(max(len(sessions) for sessions in self._sessions.values()))
        return found

    monkeypatch.setattr(http.Mounted, "_session", counting)

    async def claim(agent: Agent, title: str) -> str:
        task = await agent.call("task_create", title=title)
        await agent.call("task_claim", id=task["id"])
        return str(task["id"])

    @played
    async def play() -> None:
        token = token_of(server)
        async with (
            over_http(server.url, token, "ann", "legacy") as ann,
            over_http(server.url, token, "bob", "legacy") as bob,
            over_http(server.url, token, "cid", "legacy") as cid,
        ):
            agents = ann, bob, cid
            tasks = [await claim(agent, f"work {number}") for number, agent in enumerate(agents)]
            for agent, task in zip(agents, tasks, strict=True):
                assert (await agent.call("task_finish", id=task))["status"] == "closed"

    play()
    assert max(kept) == 2


@pytest.mark.parametrize("era", ERAS)
def test_a_session_goes_on_when_the_server_was_started_anew(tmp_path: Path, era: Era) -> None:
    first = Server(Settings(folder=tmp_path / "s", port=0))

    @played
    async def play() -> None:
        async with over_http(url, token, era=era) as agent:
            task = await agent.call("task_create", title="work")
            await agent.call("task_claim")
            running.__exit__()
            with _running(Server(Settings(folder=tmp_path / "s", port=first.port))):
                assert (await agent.call("task_finish", id=task["id"]))["status"] == "closed"

    running = _running(first)
    running.__enter__()
    url, token = first.url, token_of(first)
    play()
    with holdfast.open(tmp_path / "s", actor="me") as ws:
        assert ws.check().ok
