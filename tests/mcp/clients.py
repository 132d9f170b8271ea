"""Agents that speak MCP through the official client: in this process, over pipes, over HTTP, in both eras of it."""

from __future__ import annotations

import asyncio
import functools
import json
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent, TextResourceContents

import holdfast
from holdfast.faces.mcp import server
from holdfast.faces.mcp.client import Session
from holdfast.faces.mcp.profiles import WORKSPACE
from holdfast.faces.mcp.tool import CLOSING, OPENING
from holdfast.workspace.tokens import MemoryTokens

PATIENCE: Final = 180
Era = Literal["legacy", "auto"]  # with a handshake and a session; the newest, without either
ERAS: Final[tuple[Era, ...]] = ("legacy", "auto")


def played(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine, on a loop of its own and within a time."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def in_time() -> None:
            async with asyncio.timeout(PATIENCE):
                await test(*args, **kwargs)

        asyncio.run(in_time())

    return run


def unmarked(text: str) -> Any:
    """What stands between the marks, of which there is one pair."""
    first, *content, last = text.split("\n")
    assert (first, last) == (OPENING, CLOSING)
    assert text.count(CLOSING) == 1
    assert text.count("<") == 2
    return json.loads("\n".join(content))


class Refused(Exception):
    """A tool said no."""

    def __init__(self, result: CallToolResult, content: dict[str, Any]) -> None:
        super().__init__(content)
        self.result = result
        self.content = content
        self.code: str = content["code"]
        self.details: dict[str, Any] = content["details"]


class Agent:
    """A client, and what its tools answer."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, /, **given: Any) -> Any:
        """Use a tool."""
        result = await self.client.call_tool(tool, given)
        (block,) = result.content
        assert isinstance(block, TextContent)
        content = unmarked(block.text)
        if result.is_error:
            raise Refused(result, content)
        assert result.structured_content is None  # it would be read twice, and paid for
        return content

    async def refusal(self, tool: str, /, **given: Any) -> Refused:
        """Use a tool that must say no."""
        with pytest.raises(Refused) as raised:
            await self.call(tool, **given)
        refused = raised.value
        assert refused.content.keys() == {"code", "message", "hint", "retryable", "details"}
        marks = {"untrusted": ["message", "hint", "details"]}
        assert refused.result.structured_content == {**refused.content, **marks}
        return refused

    async def read(self, uri: str) -> Any:
        """Read a resource."""
        (content,) = (await self.client.read_resource(uri)).contents
        assert isinstance(content, TextResourceContents)
        return unmarked(content.text)


@asynccontextmanager
async def inside(ws: holdfast.Workspace, profile: str = "core", era: Era = "legacy") -> AsyncIterator[Agent]:
    """A session in this process, which acts as the workspace's actor."""
    session = Session(ws.aio, ws.actor, profile, MemoryTokens())
    async with Client(server.build(WORKSPACE, lambda _: session), mode=era) as client:
        yield Agent(client)


@asynccontextmanager
async def over_stdio(
    where: Path | str, actor: str, *more: str, era: Era = "auto", env: dict[str, str] | None = None
) -> AsyncIterator[Agent]:
    """A session with a process that has the folder open, or a connection to the server at the URL."""
    place = {"HOLDFAST_URL": where} if isinstance(where, str) else {"HOLDFAST_DIR": str(where)}
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "holdfast", "mcp", "--actor", actor, *more], env={**place, **(env or {})}
    )
    async with Client(command, mode=era) as client:
        yield Agent(client)


@asynccontextmanager
async def over_http(
    url: str, token: str, actor: str | None = "ann", era: Era = "auto", path: str = "/mcp"
) -> AsyncIterator[Agent]:
    """A session with a server."""
    headers = {"authorization": f"Bearer {token}", **({} if actor is None else {"x-agent-id": actor})}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=PATIENCE) as http,
        Client(streamable_http_client(url + path, http_client=http), mode=era) as client,
    ):
        yield Agent(client)
