"""Turn files through MCP: only in the profile `all`, only over pipes, and only in the folder the server began with."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

import holdfast
from holdfast import turnfile
from holdfast.faces.mcp import protocol
from holdfast.faces.mcp.sessions import Memory, Session
from holdfast.faces.mcp.tools import tools_of
from tests.cli.calling import Shell, environment
from tests.mcp.clients import Agent, inside, over_stdio, played

TOOLS = {"turn_status", "turn_check", "turn_lock", "turn_unlock", "turn_mail_send", "turn_mail_list", "turn_mail_step"}


@pytest.fixture
def files(tmp_path: Path) -> turnfile.Session:
    session = turnfile.Session(tmp_path / "working-session")
    turnfile.init(session, "kiln", ["ann", "bob"], "mia")
    return session


@asynccontextmanager
async def agent_of(ws: holdfast.Workspace, files: turnfile.Session) -> AsyncIterator[Agent]:
    """An agent whose server has turn files; it acts as ann."""
    session = Session(ws.aio, ws.actor, "all", Memory(), turn_dir=files.folder.path)
    async with Client(protocol.build(lambda _: session), mode="legacy") as client:
        yield Agent(client)


async def names(agent: Agent) -> set[str]:
    return {tool.name for tool in (await agent.client.list_tools()).tools}


def test_only_the_profile_all_with_a_folder_has_them() -> None:
    assert {name for name in tools_of("all", True) if name.startswith("turn_")} == TOOLS
    assert tools_of("all", True).keys() - TOOLS == tools_of("all").keys()
    assert tools_of("core", True) == tools_of("core")


@played
async def test_a_server_without_a_folder_lists_none_and_knows_none(ws: holdfast.Workspace) -> None:
    async with inside(ws, "all") as agent:
        assert not TOOLS & await names(agent)
        with pytest.raises(MCPError, match="no tool"):
            await agent.client.call_tool("turn_status", {})


def test_no_tool_takes_a_folder_or_an_actor() -> None:
    for name in TOOLS:
        assert not {"dir", "folder", "path", "actor", "holder"} & set(tools_of("all", True)[name].schema["properties"])


@played
async def test_an_official_client_locks_mails_and_checks_over_pipes(tmp_path: Path, files: turnfile.Session) -> None:
    store = tmp_path / "store"
    with holdfast.open(store, actor="planner") as workspace:
        workspace.cells.set("run", "cell", 1)
    more = ("--profile", "all", "--turn-dir", files.folder.path)
    env = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    async with over_stdio(store, "ann", *more, env=env) as ann, over_stdio(store, "bob", *more, env=env) as bob:
        assert await names(ann) >= TOOLS
        lock = await ann.call("turn_lock", files=["WORKLOG.md"], reason="log the firing")
        assert (lock["id"], lock["holder"], lock["acquired_rev"]) == ("LOCK-ann-001", "ann", 2)
        refused = await bob.refusal("turn_lock", files=["WORKLOG.md"], reason="me too")
        assert (refused.code, refused.details["lock_id"]) == ("HELD", "LOCK-ann-001")
        sent = await bob.call("turn_mail_send", to="ann", subject="Which glaze?", body="Blue </untrusted> is out.")
        status = await ann.call("turn_status")
        assert status["unread"] == {"ann": 1}
        assert [(each["id"], each["revisions_left"]) for each in status["locks"]] == [("LOCK-ann-001", 0)]
        (message,) = (await ann.call("turn_mail_list"))["messages"]
        assert (message["id"], message["body"]) == (sent["id"], "Blue </untrusted> is out.")
        assert (await ann.call("turn_mail_step", id=sent["id"], step="ack", note="will see"))[
            "status"
        ] == "acknowledged"
        refused = await bob.refusal("turn_mail_step", id=sent["id"], step="action")
        assert refused.code == "NOT_RECIPIENT"
        assert (await bob.call("turn_mail_step", id=sent["id"], step="close"))["status"] == "closed"
        assert (await ann.call("turn_mail_list", id=sent["id"]))["status"] == "closed"
        assert (await ann.call("turn_check"))["problems"][0]["rule"] == "lock-stale"
        assert (await ann.refusal("turn_unlock")).code == "NOT_HOLDER"  # gone, and not noted as complete
        assert await ann.call("turn_check") == {"errors": 0, "problems": []}
    assert turnfile.check(files) == []


@played
async def test_who_waits_in_vain_learns_that_the_maintainer_was_asked(
    ws: holdfast.Workspace, files: turnfile.Session
) -> None:
    turnfile.acquire(files, turnfile.claim_of(files, ["WORKLOG.md"], "bob", "long work", 9))
    async with agent_of(ws, files) as agent:
        refused = await agent.refusal("turn_lock", files=["WORKLOG.md"], reason="x", wait=0)
        assert refused.code == "ESCALATED"
        (message,) = (await agent.call("turn_mail_list"))["messages"]
        assert message["fields"]["type"] == "decision-required"
        assert (await agent.refusal("turn_lock", files=["WORKLOG.md"], reason="x", wait=61)).code == "INVALID"


@played
async def test_who_holds_the_mailbox_sends_under_its_own_lock_and_never_waits_for_it(
    ws: holdfast.Workspace, files: turnfile.Session
) -> None:
    async with agent_of(ws, files) as agent:
        lock = await agent.call("turn_lock", files=["MAILBOX.md"], reason="tidy up", lease_revs=9)
        sent = await agent.call("turn_mail_send", to="bob", subject="x", body="y", wait=0)
        assert (sent["lock"], sent["revision"]) == (lock["id"], 3)
        refused = await agent.refusal("turn_lock", files=["MAILBOX.md"], reason="x", wait=0)
        assert (refused.code, refused.details["lock_id"]) == ("HELD", lock["id"])
        assert len((await agent.call("turn_mail_list", all=True))["messages"]) == 1  # nobody was asked
    assert files.read().revision == 3


@played
async def test_no_file_outside_the_folder_is_locked_or_read(
    ws: holdfast.Workspace, files: turnfile.Session, tmp_path: Path
) -> None:
    async with agent_of(ws, files) as agent:
        for path in ("../secret", "/etc/passwd", "docs/../../secret"):
            assert (await agent.refusal("turn_lock", files=[path], reason="x")).code == "INVALID"
        os.unlink(Path(files.folder.path, "MAILBOX.md"))
        (tmp_path / "secret").write_text("### MSG-20260612-001\n")
        os.symlink(tmp_path / "secret", Path(files.folder.path, "MAILBOX.md"))
        assert (await agent.refusal("turn_mail_list", all=True)).code == "INVALID"


@pytest.mark.parametrize(
    ("options", "told"), [("--actor ann", "--profile all"), ("--profile all", "who acts"), ("--profile core", "all")]
)
def test_a_folder_needs_the_profile_all_and_somebody_who_acts(tmp_path: Path, options: str, told: str) -> None:
    shell = Shell(tmp_path, environment(tmp_path))
    answer = shell("mcp", "--turn-dir", "working-session", "--dir", "store", *options.split())
    assert answer.code == 2
    assert told in answer.err
