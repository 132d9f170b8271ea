"""The session of the OpenAI Agents SDK, with the real package: protocol, a real run, processes that share one."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from holdfast import errors
from holdfast.integrations.openai_agents import HoldfastSession
from tests.http.inside import serving, token_of

if importlib.util.find_spec("agents") is None and os.environ.get("CI") != "true":
    pytest.skip("openai-agents is not installed", allow_module_level=True)


def said(*texts: str) -> list[dict[str, str]]:
    """Messages of a user."""
    return [{"role": "user", "content": text} for text in texts]


@pytest.fixture(params=["embedded", "remote"])
def ws(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "embedded":
        with holdfast.open(tmp_path, actor="ann") as workspace:
            yield workspace
    else:
        with serving(tmp_path) as server, holdfast.connect(server.url, token=token_of(server), actor="ann") as remote:
            yield remote


def test_it_is_a_session_of_the_sdk(ws: Any) -> None:
    memory = importlib.import_module("agents.memory")
    assert isinstance(HoldfastSession("chat", ws), memory.Session)


@pytest.mark.parametrize("session", ["", 7])
def test_a_session_without_a_name_is_refused_at_once(ws: Any, session: Any) -> None:
    with pytest.raises(errors.InvalidName, match="session_id"):
        HoldfastSession(session, ws)


def test_items_are_added_read_limited_popped_and_cleared(ws: Any) -> None:
    settings = importlib.import_module("agents.memory").SessionSettings

    async def use() -> None:
        chat, other = HoldfastSession("chat", ws), HoldfastSession("other", ws)
        assert (await chat.get_items(), await chat.pop_item()) == ([], None)
        await chat.clear_session()
        await chat.add_items([])
        await chat.add_items(said("one", "two"))
        await chat.add_items(said("three"))
        await other.add_items(said("elsewhere"))
        assert await chat.get_items() == said("one", "two", "three")
        assert await chat.get_items(2) == said("two", "three")
        assert await chat.get_items(0) == []
        limited = HoldfastSession("chat", ws, session_settings=settings(limit=1))
        assert await limited.get_items() == said("three")
        assert await limited.get_items(3) == said("one", "two", "three")
        assert await chat.pop_item() == said("three")[0]
        assert await chat.get_items() == said("one", "two")
        await chat.clear_session()
        assert await chat.get_items() == []
        await chat.add_items(said("anew"))
        assert (await chat.get_items(), await other.get_items()) == (said("anew"), said("elsewhere"))
        with pytest.raises(errors.Invalid):
            await chat.get_items(-1)

    asyncio.run(use())
    assert ws.check().problems == []


def test_a_long_session_is_read_whole_and_its_end_alone(ws: Any) -> None:
    async def use() -> None:
        chat = HoldfastSession("chat", ws)
        for start in (0, 1000, 2000):
            await chat.add_items([{"n": start + number} for number in range(1000)])
        assert [item["n"] for item in await chat.get_items()] == list(range(3000))
        assert [item["n"] for item in await chat.get_items(3)] == [2997, 2998, 2999]
        with pytest.raises(errors.TooLarge):
            await chat.add_items([{}] * 1001)

    asyncio.run(use())


def test_what_was_popped_or_cleared_is_in_no_table_any_more(tmp_path: Path) -> None:
    async def use(ws: holdfast.Workspace) -> None:
        chat = HoldfastSession("chat", ws)
        await chat.add_items(said("the first secret", "the second secret"))
        await chat.pop_item()
        await chat.clear_session()

    with holdfast.open(tmp_path, actor="ann") as ws:
        asyncio.run(use(ws))
        assert [event.op for event in ws.events.list(kinds=["queue"])] == ["put", "pop", "delete"]
    store = apsw.Connection(str(tmp_path / "holdfast.db"), flags=apsw.SQLITE_OPEN_READONLY)
    tables = [name for (name,) in store.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    found = {name: repr(store.execute(f'SELECT * FROM "{name}"').fetchall()) for name in tables if "_fts" not in name}
    store.close()
    assert "queue_items" in found
    assert [name for name, rows in found.items() if "secret" in rows] == []


_ADDER = """
import asyncio, sys, holdfast
from holdfast.integrations.openai_agents import HoldfastSession
async def add(ws, name):
    chat = HoldfastSession("chat", ws)
    print("ready", flush=True)
    sys.stdin.readline()
    for turn in range(25):
        await chat.add_items([{"by": name, "turn": turn, "part": part} for part in ("question", "answer")])
with holdfast.open(sys.argv[1], actor=sys.argv[2]) as ws:
    asyncio.run(add(ws, sys.argv[2]))
"""


def test_two_processes_on_one_session_lose_nothing_and_keep_their_turns_together(tmp_path: Path) -> None:
    holdfast.open(tmp_path, actor="ann").close()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _ADDER, str(tmp_path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("ann", "ben")
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.communicate("go\n", timeout=120)
    assert [process.returncode for process in processes] == [0, 0]
    with holdfast.open(tmp_path, actor="ann") as ws:
        items = asyncio.run(HoldfastSession("chat", ws).get_items())
    turns = list(zip(items[::2], items[1::2], strict=True))
    assert all({**a, "part": "answer"} == b for a, b in turns)  # nobody came in between
    for name in ("ann", "ben"):
        assert [a["turn"] for a, _ in turns if a["by"] == name] == list(range(25))


def test_each_of_two_that_pop_gets_another_item(ws: Any) -> None:
    async def use() -> Any:
        chat = HoldfastSession("chat", ws)
        await chat.add_items([{"n": number} for number in range(20)])
        return await asyncio.gather(*(HoldfastSession("chat", ws).pop_item() for _ in range(21)))

    popped = asyncio.run(use())
    assert sorted(json.dumps(item) for item in popped) == sorted(["null", *(f'{{"n": {n}}}' for n in range(20))])


def test_who_has_lost_the_lock_of_the_session_writes_nothing(tmp_path: Path) -> None:
    with holdfast.open(tmp_path, actor="ann") as ws:
        late = ws.locks.acquire("chat", ttl=30)
        ws.locks.release("chat", token=late.token)
        ws.locks.acquire("chat", ttl=30)
        chat = HoldfastSession("chat", ws.using(fence=("chat", late.token)))
        asyncio.run(HoldfastSession("chat", ws).add_items(said("one")))
        with pytest.raises(errors.Fenced):
            asyncio.run(chat.add_items(said("two")))
        assert asyncio.run(chat.get_items()) == said("one")


def test_a_run_of_an_agent_continues_the_conversation_in_another_process(tmp_path: Path) -> None:
    """The SDK itself reads and writes the session; only the model behind it is a stand-in."""
    program = Path(__file__).with_name("conversation.py")
    heard = [
        json.loads(
            subprocess.run(
                [sys.executable, str(program), str(tmp_path), text], capture_output=True, text=True, check=True
            ).stdout
        )
        for text in ("my name is Ada", "what is my name?")
    ]
    assert heard[0] == ["my name is Ada"]
    assert heard[1] == ["my name is Ada", "heard 1", "what is my name?"]
