"""What the tools cost and cover: the core profile in tokens, the profile `all` by the table; and who loads the SDK."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast import errors
from holdfast.faces.mcp import serve_stdio
from holdfast.faces.mcp.profiles import tools_of
from holdfast.operation import REGISTRY
from holdfast.schema import parameters
from tests.mcp.clients import PATIENCE, inside, played

ROOT = Path(__file__).parents[2]
BYTES_PER_TOKEN = 3.5  # English and JSON have about 4: the count is on the high side


async def listed(ws: holdfast.Workspace, profile: str) -> bytes:
    """The list of tools as a client gets it, as compact JSON."""
    async with inside(ws, profile) as agent:
        tools = (await agent.client.list_tools()).tools
        return msgspec.json.encode([tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools])


@played
async def test_the_list_of_core_tools_has_less_than_3000_tokens(
    ws: holdfast.Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {profile: len(await listed(ws, profile)) for profile in ("core", "all")}
    tokens = {profile: math.ceil(size / BYTES_PER_TOKEN) for profile, size in sizes.items()}
    with capsys.disabled():
        for profile in sizes:
            count = len(tools_of(profile))
            print(
                f"\n  profile {profile}: {count} tools, {sizes[profile]} bytes, at most {tokens[profile]} tokens",
                end="",
            )
    assert tokens["core"] < 3000
    assert sizes["core"] <= 12_000
    assert len(tools_of("core")) <= 14
    pages = {
        path.name: " ".join(path.read_text().split()) for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
    }
    stated = {name: re.findall(r"\b(2,\d{3}) tokens", page) for name, page in pages.items()}
    stated = {name: figures for name, figures in stated.items() if figures}
    assert {"README.md", "mcp.md", "benchmarks.md", "compare.md"} <= stated.keys()
    wrong = {name: figures for name, figures in stated.items() if {*figures} != {f"{tokens['core']:,}"}}
    assert wrong == {}, f"the list of tools has {tokens['core']:,} tokens"
    for name in ("mcp.md", "benchmarks.md"):
        assert f"{sizes['core']:,} bytes" in pages[name], name
    for name, words in (("README.md", "13 MCP tools in"), ("mcp.md", "13 tools and")):
        assert words.replace("13", str(len(tools_of("core")))) in pages[name], name
    assert f"{len(tools_of('all'))} tools, about {round(tokens['all'], -2):,} tokens" in pages["mcp.md"]


@pytest.mark.parametrize("profile", ["core", "all"])
def test_every_tool_has_a_name_and_a_schema_that_all_clients_take(profile: str) -> None:
    for tool in tools_of(profile).values():
        assert re.fullmatch(r"[a-z][a-z0-9_]{0,63}", tool.name)
        assert tool.description
        assert tool.schema["type"] == "object"
        assert "$ref" not in tool.schema
        assert set(tool.schema.get("required", ())) <= set(tool.schema["properties"])


def test_the_profile_all_is_the_table_of_operations() -> None:
    able = {op.name: op for op in REGISTRY.values() if op.route.http is not None and op.kind != "stream"}
    tools = tools_of("all")
    assert tools.keys() == {name.replace(".", "_") for name in able} | {"watch"}
    for name, op in able.items():
        assert set(tools[name.replace(".", "_")].schema["properties"]) == {each.name for each in parameters(op)}


@played
async def test_the_profile_all_does_what_the_operations_do(ws: holdfast.Workspace) -> None:
    async with inside(ws, "all") as agent:
        task = (await agent.call("tasks_create", title="work", tags=["x"]))["result"]
        assert task == msgspec.to_builtins(ws.tasks.get(task["id"])) | {"tags": ["x"], "refs": [], "warnings": []}
        claimed = (await agent.call("tasks_claim_next", tags=["x"]))["result"]
        assert claimed["claimed_by"] == "ann"
        page = await agent.call("tasks_list", limit=1)
        assert ([row["id"] for row in page["result"]], page["cursor"]) == ([task["id"]], None)
        done = await agent.call("tasks_complete", id=task["id"], summary="done", result={"n": [1]})
        assert done["result"]["status"] == "closed"
        await agent.call("cells_set", run="r", cell="c", value={"$bytes": "AAE="})
        assert (await agent.call("cells_get", run="r", cell="c"))["result"]["value"] == {"$bytes": "AAE="}
        steps = [{"op": "cells.increment", "args": {"run": "r", "cell": "n"}}]
        gone = [{"if": "not_exists", "kind": "cell", "key": ["r", "n"]}]
        assert (await agent.call("txn", conditions=gone, then=steps))["result"] == {"succeeded": True, "results": [1]}
        assert (await agent.call("txn", conditions=gone, then=steps))["result"] == {"succeeded": False, "results": []}
        await agent.call("tasks_set_template", name="t", tree={"title": "do {what}"}, parameters={"what": None})
        made = await agent.call("tasks_from_template", name="t", values={"what": "it"})
        assert made["result"]["title"] == "do it"
        assert (await agent.refusal("tasks_get", id="hf-none")).code == "TASK_NOT_FOUND"
        assert (await agent.refusal("tasks_get", colour="red")).code == "INVALID"
        assert (await agent.call("watch", since_revision="0", timeout=0))["events"]


@played
async def test_the_profile_all_takes_a_text_for_a_number_where_nothing_else_can_be_meant(
    ws: holdfast.Workspace,
) -> None:
    async with inside(ws, profile="all") as agent:
        task = (await agent.call("tasks_create", title="x", priority="1"))["result"]
        assert task["priority"] == 1
        assert len((await agent.call("tasks_list", limit="1"))["result"]) == 1
        assert (await agent.call("undo", last="true", dry_run="true"))["result"]["undone"] == 1
        assert (await agent.call("undo", revision="1"))["result"]["undone"] == 1
        await agent.call("cells_set", run="r", cell="c", value="1")
        assert (await agent.call("cells_get", run="r", cell="c"))["result"]["value"] == "1", "any value stays as it is"
        refused = await agent.refusal("tasks_create", title="x", priority="high")
        assert "priority" in refused.content["message"]
        assert (await agent.refusal("undo", revision="0")).code == "NOT_FOUND", "as the schema says"


@played
async def test_what_the_profile_all_takes_without_a_time_ends_and_nobody_waits_for_long(ws: holdfast.Workspace) -> None:
    task = ws.tasks.create("work")
    lease = ws.leases.create(3600)
    gate = ws.stashes.create("gate", "lock").id
    taking: dict[str, dict[str, Any]] = {
        "locks_acquire": {"name": "deploy"},
        "cells_acquire_lock": {"run": "r", "cell": "c"},
        "stashes_acquire": {"id": gate},
        "paths_lock": {"patterns": ["src/**"]},
    }
    async with inside(ws, "all") as agent:
        for tool, given in taking.items():
            assert (await agent.refusal(tool, **given, wait=61)).code == "INVALID"
            taken = (await agent.call(tool, **given, wait=60))["result"]
            since, until = (datetime.fromisoformat(taken[name]) for name in ("acquired_at", "expires_at"))
            assert (until - since).total_seconds() == 600, tool
        assert (await agent.call("locks_acquire", name="bound", lease=lease.id))["result"]["expires_at"]
        longer = (await agent.call("locks_acquire", name="long", ttl=1200))["result"]
        assert longer["expires_at"] > longer["acquired_at"]
        await agent.call("tasks_claim", id=task.id, ttl=3600)
        tied = (await agent.call("paths_lock", patterns=["docs/**"], task=task.id))["result"]
        assert tied["expires_at"] != taken["expires_at"]


@played
async def test_the_profile_all_remembers_tokens_too(ws: holdfast.Workspace) -> None:
    task = ws.tasks.create("work")
    async with inside(ws, "all") as first, inside(ws, "all") as second:
        await first.call("tasks_claim", id=task.id)
        await first.call("locks_acquire", name="deploy")
        path = (await first.call("paths_lock", patterns=["src/**"]))["result"]["id"]
        gate = (await first.call("stashes_create", name="gate", stash_type="lock"))["result"]["id"]
        await first.call("stashes_acquire", id=[None, "gate"])
        ws.tasks.release(task.id, force=True)
        ws.locks.release("deploy")
        ws.paths.release(path)
        ws.stashes.release(gate)
        await second.call("tasks_claim", id=task.id)
        await second.call("locks_acquire", name="deploy")
        await second.call("stashes_acquire", id=gate)
        assert (await first.refusal("tasks_complete", id=task.id)).code == "FENCED"
        assert (await first.refusal("locks_release", name="deploy")).code == "FENCED"
        assert (await first.refusal("paths_release", id=path)).code == "FENCED"
        assert (await first.refusal("stashes_release", id="/gate")).code == "FENCED"
        await second.call("stashes_release", id=[None, "gate"])
        await second.call("locks_release", name="deploy")
        await second.call("tasks_complete", id=task.id)
        await second.call("tasks_note", id=task.id, text="as anybody may")


def test_a_profile_that_does_not_exist_is_refused_before_anything_is_served(ws: holdfast.Workspace) -> None:
    with pytest.raises(errors.Invalid, match="profile"):
        serve_stdio(ws, "none")


# --- who loads the SDK -----------------------------------------------------------------------------------------------

_SERVED = """
import sys, httpx
from pathlib import Path
from tests.http.inside import serving, token_of

loaded = lambda: sorted(name for name in sys.modules if name.split(".")[0] in ("mcp", "mcp_types", "pydantic"))
body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
with serving(Path(sys.argv[1])) as server:
    bearer = {"authorization": f"Bearer {token_of(server)}", "accept": "application/json, text/event-stream"}
    def post(**headers):
        return httpx.post(f"{server.url}/mcp", json=body, headers={**bearer, **headers}, timeout=60)
    assert httpx.get(f"{server.url}/api/tasks", headers=bearer).status_code == 200
    wrong = ("authorization", "Bearer no"), ("origin", "http://evil"), ("host", "evil"), ("x-agent-id", "\\x7f")
    refused = [post(**{name: value}) for name, value in wrong]
    print(*(answer.status_code for answer in refused), loaded())
    if len(sys.argv) > 2:
        sys.modules["mcp"] = None  # as if it were not installed
    answer = post()
    print(answer.status_code, "mcp.server" in loaded(), answer.json() if len(sys.argv) > 2 else "")
"""


def run(code: str, *arguments: str) -> str:
    """What a program prints."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_server_loads_the_sdk_for_the_first_request_that_it_lets_in(tmp_path: Path) -> None:
    first, second = run(_SERVED, str(tmp_path / "s")).splitlines()
    assert first == "401 403 421 400 []"
    assert second.split() == ["200", "True"]


def test_without_the_sdk_a_server_says_what_to_install(tmp_path: Path) -> None:
    _, second = run(_SERVED, str(tmp_path / "s"), "without").splitlines()
    assert second.startswith("501 False")
    assert "pip install 'holdfast[mcp]'" in second
    assert "UNSUPPORTED" in second


def test_without_the_sdk_the_command_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['mcp'] = None; from holdfast.faces.cli import main; print(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "mcp", "--dir", str(tmp_path / "s"), "--actor", "ann"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.stdout == "1\n"
    assert "pip install 'holdfast[mcp]'" in done.stderr
