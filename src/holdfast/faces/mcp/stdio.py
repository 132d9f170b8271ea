"""MCP over the standard streams: what `holdfast mcp` runs, one process for one program."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.faces.mcp.loading import load_protocol
from holdfast.faces.mcp.sessions import Memory, Session
from holdfast.faces.mcp.tools import tools_of

if TYPE_CHECKING:
    from holdfast.remote import RemoteWorkspace
    from holdfast.workspace import Workspace


def serve_stdio(workspace: Workspace | RemoteWorkspace, profile: str = "core", turn_dir: str | None = None) -> None:
    """Serve until the other end closes; the workspace's own actor acts. What was claimed stays so until it expires.

    `turn_dir` is the folder of a working session, whose turn files the profile `all` then has tools for.
    """
    tools_of(profile)  # which refuses a profile that does not exist
    protocol = load_protocol()

    async def serve() -> None:
        await protocol.over_stdio(Session(workspace.aio, workspace.actor, profile, Memory(), turn_dir=turn_dir))

    with _interruptible():
        asyncio.run(serve())


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end the process at once, as SIGTERM does.

    The SDK reads in a thread that cannot be interrupted, so an orderly end would wait for the other side to close.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
