"""Turn files through MCP: only over pipes, only in the folder the server began with, with a workspace or without."""

from __future__ import annotations

import asyncio
import math
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError

import holdfast
from holdfast import errors, turnfile
from holdfast.faces.mcp.client import Session
from holdfast.faces.mcp.profiles import WORKSPACE, tools_of
from holdfast.faces.mcp.server import build
from holdfast.faces.mcp.tool import Caller
from holdfast.faces.mcp.turn_tools import TURNS
from holdfast.workspace.tokens import MemoryTokens
from tests.cli.calling import Shell, environment
from tests.mcp.clients import Agent, Refused, inside, over_stdio, played
from tests.mcp.test_profiles import BYTES_PER_TOKEN, ROOT

TOOLS = {
    *("turn_status", "turn_check", "turn_tidy", "turn_read", "turn_edit", "turn_task", "turn_signal"),
    *("turn_lock", "turn_renew", "turn_unlock", "turn_clear", "turn_override"),
    *("turn_mail_send", "turn_mail_list", "turn_mail_verify", "turn_mail_step"),
}


@asynccontextmanager
async def agent_of(ws: holdfast.Workspace, files: turnfile.Session) -> AsyncIterator[Agent]:
    """An agent whose server has turn files; it acts as ann."""
    session = Session(ws.aio, ws.actor, "all", MemoryTokens(), turn_dir=files.folder.path)
    async with Client(build(WORKSPACE, lambda _: session), mode="legacy") as client:
        yield Agent(client)


@asynccontextmanager
async def alone(files: turnfile.Session, actor: str = "ann") -> AsyncIterator[Agent]:
    """An agent whose server has turn files, and no workspace."""
    caller = Caller(actor, files.folder.path)
    async with Client(build(TURNS, lambda _: caller), mode="legacy") as client:
        yield Agent(client)


@asynccontextmanager
async def started_in(folder: Path, *options: str) -> AsyncIterator[Agent]:
    """An agent whose server is a process in a folder, and knows of nothing else."""
    env = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    command = [sys.executable, "-m", "holdfast", "mcp", *options]
    server = StdioServerParameters(command=command[0], args=command[1:], cwd=folder, env=env)
    async with Client(server, mode="auto") as client:
        yield Agent(client)


async def names(agent: Agent) -> set[str]:
    return {tool.name for tool in (await agent.client.list_tools()).tools}


def test_of_a_workspace_only_the_profile_all_with_a_folder_has_them() -> None:
    assert {name for name in tools_of("all", True) if name.startswith("turn_")} == TOOLS
    assert tools_of("all", True).keys() - TOOLS == tools_of("all").keys()
    assert tools_of("core", True) == tools_of("core")
    with pytest.raises(errors.Invalid, match="no profile 'turn'"):  # so that no address of a server has it
        tools_of("turn")


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
    turnfile.acquire(files, turnfile.lock_request(files, ["WORKLOG.md"], "bob", "long work", 9))
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


# --- without a workspace ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("", "need an actor"),
        ("--profile turn", "need an actor"),
        ("--profile all --dir store", "need an actor"),
        ("--profile core --actor ann", "use --profile all"),
        ("--actor ann --dir store", "--profile all"),
        ("--actor ann --url http://127.0.0.1:1", "--url is for workspaces"),
    ],
)
def test_a_folder_needs_somebody_who_acts_and_a_profile_that_fits(tmp_path: Path, options: str, told: str) -> None:
    shell = Shell(tmp_path, environment(tmp_path))
    answer = shell("mcp", "--turn-dir", "working-session", *options.split())
    assert answer.code == 2
    assert told in answer.err
    assert os.listdir(tmp_path) == []


@played
async def test_f13_turn_files_are_served_where_nothing_but_them_is(tmp_path: Path, files: turnfile.Session) -> None:
    there = sorted(os.listdir(files.folder.path))
    async with (
        started_in(tmp_path, "--turn-dir", "working-session", "--actor", "ann") as ann,
        started_in(tmp_path, "--profile", "turn", "--actor", "bob") as bob,  # in the usual folder
    ):
        assert await names(ann) == await names(bob) == TOOLS
        done = await ann.call("turn_edit", file="WORKLOG.md", new="- fired", append=True, reason="log it")
        assert (done["files"], done["revision"]) == (["WORKLOG.md"], 3)
        status = await bob.call("turn_status")
        assert (status["revision"], status["problems"]) == (3, [])
        assert await bob.read("holdfast://turn") == status
    assert Path(files.folder.path, "WORKLOG.md").read_text().endswith("\n- fired\n")
    assert os.listdir(tmp_path) == ["working-session"]
    assert [name for name in sorted(os.listdir(files.folder.path)) if not name.startswith(".")] == [
        name for name in there if not name.startswith(".")
    ]


def test_f13_a_server_of_turn_files_loads_nothing_of_a_workspace(tmp_path: Path, files: turnfile.Session) -> None:
    code = (
        "import sys; from holdfast.faces.cli import main; main(['mcp', *sys.argv[1:]]);"
        "print(*(name for name in sys.modules if name == 'apsw'"
        " or name.startswith(('holdfast.kernel', 'holdfast.domains', 'holdfast.workspace', 'holdfast.operation'))))"
        "; print('mcp.server' in sys.modules, 'holdfast.faces.mcp.turn_tools' in sys.modules)"
    )
    shell = Shell(tmp_path, environment(tmp_path))
    answer = shell.run([sys.executable, "-c", code, "--turn-dir", files.folder.path, "--actor", "ann"])
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines() == ["", "True True"]
    assert not (tmp_path / ".holdfast").exists()


@played
async def test_without_a_workspace_nothing_speaks_of_one(files: turnfile.Session) -> None:
    async with alone(files) as agent:
        told = agent.client.instructions or ""
        assert "turn_edit" in told
        assert "never instructions" in told
        for word in re.findall(r"\b[a-z]+_[a-z_]+\b", told):
            assert word in TOOLS, word
        assert [str(each.uri) for each in (await agent.client.list_resources()).resources] == ["holdfast://turn"]
        assert [each.uri_template for each in (await agent.client.list_resource_templates()).resource_templates] == [
            "holdfast://turn/{file}"
        ]
        with pytest.raises(MCPError, match="NOT_FOUND"):
            await agent.read("holdfast://prime")
        with pytest.raises(MCPError, match="no tool"):
            await agent.client.call_tool("task_list", {})


@played
async def test_a_shared_file_is_a_resource_and_no_other_file_is(tmp_path: Path, files: turnfile.Session) -> None:
    (tmp_path / "secret").write_text("x")
    async with alone(files) as agent:
        for name in ("docs/README.md", "docs%2FREADME.md"):
            found = await agent.read(f"holdfast://turn/{name}")
            assert found == {"file": "docs/README.md", "text": Path(files.folder.path, "docs/README.md").read_text()}
        for name in ("../secret", "..%2Fsecret", "%2Fetc%2Fpasswd"):
            with pytest.raises(MCPError, match="INVALID"):
                await agent.read(f"holdfast://turn/{name}")
        with pytest.raises(MCPError, match="NOT_FOUND"):
            await agent.read("holdfast://turn/none.md")


@played
async def test_a_server_whose_folder_is_not_there_says_how_it_is_made(tmp_path: Path) -> None:
    async with alone(turnfile.Session(tmp_path / "none")) as agent:
        refused = await agent.refusal("turn_status")
        hint = "`holdfast turn init` begins a session here; if there is one, go to the folder that has it"
    assert (refused.code, refused.content["hint"]) == ("NOT_FOUND", hint)


@played
async def test_the_list_of_turn_tools_has_less_than_2000_tokens(
    files: turnfile.Session, capsys: pytest.CaptureFixture[str]
) -> None:
    async with alone(files) as agent:
        tools = (await agent.client.list_tools()).tools
    size = len(msgspec.json.encode([tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]))
    tokens = math.ceil(size / BYTES_PER_TOKEN)
    with capsys.disabled():
        print(f"\n  profile turn: {len(tools)} tools, {size} bytes, at most {tokens} tokens", end="")
    assert tokens < 2000
    document = (ROOT / "docs" / "mcp.md").read_text()
    assert f"{len(tools)} tools, {size:,} bytes, at most {tokens:,} tokens" in " ".join(document.split())


# --- edits -----------------------------------------------------------------------------------------------------------


def say(files: turnfile.Session, name: str, text: str) -> None:
    Path(files.folder.path, name).write_text(text, newline="")


def said(files: turnfile.Session, name: str) -> str:
    return Path(files.folder.path, name).read_bytes().decode()


@played
async def test_f6_a_replacement_is_one_transaction_with_its_note(files: turnfile.Session) -> None:
    say(files, "docs/README.md", "# Glazes\n\n- blue\n- green\n")
    async with alone(files) as agent:
        edit = {"file": "docs/README.md", "reason": "blue is out"}
        done = await agent.call("turn_edit", old="- blue\n", new="- red\n", **edit)
        assert done == {"lock": "LOCK-ann-001", "files": ["docs/README.md"], "revision": 3}
        assert said(files, "docs/README.md") == "# Glazes\n\n- red\n- green\n"
        status = await agent.call("turn_status")
        assert status["locks"] == []
        assert status["signals"][0]["detail"] == "completed LOCK-ann-001: docs/README.md, revision 3"
        same = await agent.call("turn_edit", old="- red", new="- red", **edit)
        assert (same["files"], same["revision"]) == ([], 3)  # what changes nothing costs nothing


@pytest.mark.parametrize(
    ("old", "told"),
    [("- blue", "does not occur"), ("- red", "more than once"), ("aa", "more than once"), ("", "empty")],
)
@played
async def test_f6_a_replacement_of_what_is_not_there_once_is_refused_and_writes_nothing(
    files: turnfile.Session, old: str, told: str
) -> None:
    say(files, "docs/README.md", text := "- red\n- red\naaa\n")
    async with alone(files) as agent:
        refused = await agent.refusal("turn_edit", file="docs/README.md", old=old, new="x", reason="r")
        assert (refused.code, told in refused.content["message"]) == ("INVALID", True)
        assert (await agent.refusal("turn_edit", file="docs/x.md", old="a", new="b", reason="r")).code == "NOT_FOUND"
        both = await agent.refusal("turn_edit", file="docs/README.md", old="aaa", new="b", append=True, reason="r")
        assert both.code == "INVALID"
    assert said(files, "docs/README.md") == text
    assert files.read().revision == 1


@played
async def test_f6_a_whole_file_is_written_only_under_ones_own_lock(files: turnfile.Session) -> None:
    before = said(files, "docs/README.md")
    whole = {"file": "docs/README.md", "new": "# Glazes\n", "reason": "anew"}
    async with alone(files) as ann, alone(files, "bob") as bob:
        refused = await ann.refusal("turn_edit", **whole)
        assert (refused.code, "turn_lock" in refused.content["hint"]) == ("NOT_HOLDER", True)
        lock = await ann.call("turn_lock", files=["docs/README.md"], reason="anew")
        assert (await bob.refusal("turn_edit", **whole)).code == "HELD"
        assert (await bob.refusal("turn_edit", **{**whole, "append": True})).code == "HELD"
        assert said(files, "docs/README.md") == before
        await ann.call("turn_read", file="docs/README.md")
        assert (await ann.call("turn_edit", **whole))["lock"] == lock["id"]
        assert said(files, "docs/README.md") == "# Glazes\n"
        for _ in range(3):
            await bob.call("turn_signal", word="notify")
        assert (await ann.refusal("turn_edit", **{**whole, "new": "late\n"})).code == "NOT_HOLDER"  # it went stale
        assert said(files, "docs/README.md") == "# Glazes\n"
        os.unlink(Path(files.folder.path, "OPEN_QUESTIONS.md"))
        await ann.call("turn_edit", file="OPEN_QUESTIONS.md", new="# Open questions\n", reason="there was none")
        assert said(files, "OPEN_QUESTIONS.md") == "# Open questions\n"


@played
async def test_f6_an_edit_keeps_the_line_ends_of_its_file(files: turnfile.Session) -> None:
    say(files, "docs/README.md", "a\r\nb\r\nc")
    async with alone(files) as agent:
        edit = {"file": "docs/README.md", "reason": "r"}
        await agent.call("turn_edit", old="a\nb", new="a\nB", **edit)
        await agent.call("turn_edit", new="d\ne", append=True, **edit)
    assert said(files, "docs/README.md") == "a\r\nB\r\nc\r\nd\r\ne\r\n"


@played
async def test_f10_an_edit_that_breaks_the_mailbox_is_refused_and_costs_no_revision(files: turnfile.Session) -> None:
    before = said(files, "MAILBOX.md")
    async with alone(files) as agent:
        edit = {"file": "MAILBOX.md", "old": "| bob | 0 |", "new": "| bob | 7 |", "reason": "r"}
        refused = await agent.refusal("turn_edit", **edit)
        assert (refused.code, "unread-count" in str(refused.details)) == ("INVALID", True)
        for name in ("TURNFILE.yaml", "MAILBOX.json", "../secret"):
            assert (await agent.refusal("turn_edit", file=name, new="x", reason="r")).code == "INVALID"
    assert said(files, "MAILBOX.md") == before
    assert files.read().revision == 1


@played
async def test_f14_agents_that_append_at_the_same_time_lose_nothing(files: turnfile.Session) -> None:
    async with alone(files) as ann, alone(files, "bob") as bob:
        lines = [f"- {who} {number}" for number in range(5) for who in ("ann", "bob")]

        async def log(agent: Agent, mine: list[str]) -> None:
            for line in mine:
                for _ in range(20):
                    try:
                        await agent.call("turn_edit", file="docs/README.md", new=line, append=True, reason="r", wait=1)
                        break
                    except Refused as refused:
                        if refused.code not in ("HELD", "ESCALATED"):
                            raise

        await asyncio.gather(log(ann, lines[::2]), log(bob, lines[1::2]))
    assert sorted(said(files, "docs/README.md").splitlines()[-10:]) == sorted(lines)
    assert turnfile.check(files) == []


# --- locks, tasks, signals -------------------------------------------------------------------------------------------


@played
async def test_f3_a_lease_begins_again_by_renew(files: turnfile.Session) -> None:
    async with alone(files) as ann, alone(files, "bob") as bob:
        lock = await ann.call("turn_lock", files=["WORKLOG.md"], reason="long")
        await bob.call("turn_signal", word="notify")
        (renewed,) = (await ann.call("turn_renew", lock=lock["id"]))["renewed"]
        assert (renewed["id"], renewed["acquired_rev"]) == (lock["id"], 4)
        assert (await bob.refusal("turn_renew", lock=lock["id"])).code == "NOT_HOLDER"
        assert (await ann.refusal("turn_renew", lock="LOCK-none")).code == "NOT_FOUND"


@played
async def test_f4_anybody_clears_a_stale_lock_and_nobody_a_valid_one(files: turnfile.Session) -> None:
    async with alone(files) as ann, alone(files, "bob") as bob:
        lock = await ann.call("turn_lock", files=["WORKLOG.md"], reason="forgotten")
        assert (await bob.refusal("turn_clear", lock=lock["id"])).code == "HELD"
        assert await bob.call("turn_clear") == {"cleared": []}
        for _ in range(3):
            await bob.call("turn_signal", word="notify")
        assert await bob.call("turn_clear") == {"cleared": [{"id": lock["id"], "holder": "ann"}]}
        assert (await bob.call("turn_check"))["errors"] == 0


@played
async def test_f8_an_override_needs_a_p0_reason_and_is_logged(files: turnfile.Session) -> None:
    async with alone(files) as ann, alone(files, "bob") as bob:
        lock = await ann.call("turn_lock", files=["MAILBOX.md"], reason="asleep", lease_revs=9)
        assert (await bob.refusal("turn_override", lock=lock["id"], reason="hurry")).code == "INVALID"
        done = await bob.call("turn_override", lock=lock["id"], reason="P0: the kiln burns", take=True)
        assert (done["overridden"], done["holder"], done["mine"]) == (lock["id"], "ann", "LOCK-bob-001")
        (now,) = (await ann.call("turn_status"))["locks"]
        assert (now["id"], now["holder"]) == ("LOCK-bob-001", "bob")
    assert lock["id"] in said(files, "WORKLOG.md")
    assert "P0: the kiln burns" in said(files, "WORKLOG.md")


@played
async def test_f13_tasks_of_the_ledger_are_added_listed_claimed_and_done(files: turnfile.Session) -> None:
    async with alone(files) as ann, alone(files, "bob") as bob:
        added = await bob.call("turn_task", id="glaze", step="add", description="choose one", priority="P0")
        assert (added["owner"], added["priority"], added["created_by"]) == ("unassigned", "P0", "bob")
        await ann.call("turn_task", id="fire", step="add", description="light it", depends_on=["glaze"])
        assert [each["id"] for each in (await ann.call("turn_status"))["tasks"]] == ["glaze", "fire"]
        assert (await ann.refusal("turn_task", id="fire", step="claim")).code == "INVALID_STATUS"
        claimed = await ann.call("turn_task", id="glaze", step="claim")
        assert (claimed["owner"], claimed["status"], claimed["claim_rev"]) == ("ann", "claimed", 4)
        assert (await bob.refusal("turn_task", id="glaze", step="claim")).code == "ALREADY_CLAIMED"
        assert (await bob.refusal("turn_task", id="glaze", step="done")).code == "NOT_HOLDER"
        assert (await ann.call("turn_task", id="glaze", step="done"))["status"] == "done"
        assert [each["id"] for each in (await bob.call("turn_status"))["tasks"]] == ["fire"]
        assert (await bob.refusal("turn_task", id="none", step="claim")).code == "TASK_NOT_FOUND"
        assert (await bob.refusal("turn_task", id="new", step="add")).code == "INVALID"
        assert (await bob.refusal("turn_task", id="fire", step="claim", description="x")).code == "INVALID"


@played
async def test_what_may_be_mistyped_is_told_with_the_answer(files: turnfile.Session) -> None:
    async with alone(files, "adda") as agent:
        lock = await agent.call("turn_lock", files=["WORKLGO.md"], reason="x")
        assert [each["rule"] for each in lock["problems"]] == ["new-agent", "missing"]
        sent = await agent.call("turn_mail_send", to="bbo", subject="x", body="y")
        assert [each["rule"] for each in sent["problems"]] == ["unknown-name"]
        word = await agent.call("turn_signal", word="ready", to="bbo")
        assert [each["rule"] for each in word["problems"]] == ["unknown-name"]
    async with alone(files, "new") as agent:
        task = await agent.call("turn_task", id="t", step="add", description="d")
        assert [each["rule"] for each in task["problems"]] == ["new-agent"]


@played
async def test_f8_clients_are_told_that_an_override_takes_something_away(files: turnfile.Session) -> None:
    async with alone(files) as agent:
        tools = (await agent.client.list_tools()).tools
    hints = {tool.name: tool.annotations and tool.annotations.destructive_hint for tool in tools}
    assert [name for name, hint in hints.items() if hint] == ["turn_override"]


@played
async def test_f13_a_signal_reaches_the_ledger(files: turnfile.Session) -> None:
    async with alone(files) as agent:
        sent = await agent.call("turn_signal", word="handoff", detail="the kiln is yours", to="bob")
        assert (sent["from"], sent["to"], sent["rev"]) == ("ann", "bob", 2)
        assert (await agent.call("turn_status"))["signals"] == [sent]
        assert (await agent.refusal("turn_signal", word="shout")).code == "INVALID"
        assert (await agent.refusal("turn_signal", word="notify", detail="two\nlines")).code == "INVALID"
    assert [each.detail for each in files.read().turnfile.signals] == ["the kiln is yours"]


@played
async def test_f10_disorder_is_tidied_by_a_tool_that_first_says_what_it_would_do(files: turnfile.Session) -> None:
    path = Path(files.folder.path, "MAILBOX.md")
    async with alone(files) as ann:
        await ann.call("turn_mail_send", to="bob", subject="Which glaze?", body="Blue.")
        path.write_text(path.read_text().replace("| bob | 1 |", "| bob | 7 |"))
        assert (await ann.call("turn_check"))["errors"] == 2  # the count, and the JSON
        text = path.read_text()
        planned = await ann.call("turn_tidy", dry_run=True)
        assert (path.read_text(), len(planned["repairs"]) > 0) == (text, True)
        done = await ann.call("turn_tidy")
        assert (done["repairs"], done["problems"]) == (planned["repairs"], [])
        assert "MAILBOX.md" in done["files"]
        assert (await ann.call("turn_check"))["errors"] == 0
        assert (await ann.call("turn_tidy"))["repairs"] == []


@played
async def test_f11_a_handoff_is_verified_by_a_tool(files: turnfile.Session) -> None:
    plan = Path(files.folder.path).parent / "plan.md"
    plan.write_text("one")
    async with alone(files) as ann:
        sent = await ann.call("turn_mail_send", to="bob", subject="The plan", body="As agreed.", files=["plan.md"])
        found = await ann.call("turn_mail_verify", id=sent["id"])
        assert (found["same"], [each["state"] for each in found["files"]]) == (True, ["same"])
        plan.write_text("two")
        assert (await ann.call("turn_mail_verify", id=sent["id"]))["files"][0]["state"] == "changed"
        plan.unlink()
        found = await ann.call("turn_mail_verify", id=sent["id"])
        assert (found["same"], found["files"][0]["state"]) == (False, "missing")
        plain = await ann.call("turn_mail_send", to="bob", subject="x", body="y")
        assert (await ann.refusal("turn_mail_verify", id=plain["id"])).code == "INVALID"
        assert (await ann.refusal("turn_mail_verify", id="MSG-20200101-001")).code == "MESSAGE_NOT_FOUND"
