"""MCP over the standard streams, which `holdfast mcp` runs: one process for one client.

It serves a workspace, or the turn files of a folder alone, without loading anything of a workspace.

`profiles` has the core profile, a few tools made by hand so that their list costs few tokens, and derives the profile
`all` from the table of operations; `turn_tools` has the profile `turn`. `http` serves the clients of `holdfast serve`.
`server` alone imports the SDK, which takes a second to load, so it is imported only to serve.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from holdfast import errors

if TYPE_CHECKING:
    from holdfast.faces.mcp.tool import Caller, ServerDefinition
    from holdfast.remote import RemoteWorkspace
    from holdfast.workspace import Workspace


def load_protocol() -> ModuleType:
    """The module that uses the SDK. Raises Unsupported if it is not installed."""
    try:
        return import_module("holdfast.faces.mcp.server")
    except ImportError as error:
        raise errors.not_installed("MCP", "mcp", error) from error


def serve_stdio(
    workspace: Workspace | RemoteWorkspace,
    profile: str = "core",
    turn_dir: str | None = None,
    identify: Callable[[Any], str | None] | None = None,
    bound: Callable[[], str | None] | None = None,
) -> None:
    """Serve until the client closes the streams. Claims stay until they expire.

    `identify` returns the actor of a request, from its `_meta`; where it returns None, or is not given, the actor is
    that of the workspace. Where it raises Several, nobody can tell which of these sessions asks: what needs a name is
    refused. `bound` asks the server, in a thread, for the actor that its token is bound to: if there is one, every
    request acts as that. `turn_dir` is the folder of a working session; the profile `all` then has tools for its turn
    files.
    """
    from holdfast.client_sessions import Several
    from holdfast.faces.mcp.client import BoundActor, OneOfSeveral, Session
    from holdfast.faces.mcp.profiles import WORKSPACE, tools_of
    from holdfast.workspace.tokens import MemoryTokens

    tools_of(profile)  # raises Invalid if there is none of this name

    only = BoundActor(bound)

    def callers() -> Callable[[Any], Caller]:
        sessions: dict[str, Session] = {}  # each has the tokens of what its actor holds

        def caller_of(context: Any) -> Session:
            try:
                found = only.name or (None if identify is None else identify(context.meta))
            except Several as several:  # it has taken nothing that a session would remember
                return OneOfSeveral(str(several), workspace.aio, workspace.actor, profile, MemoryTokens())
            actor = workspace.actor if found is None else found
            if actor not in sessions:
                acting = workspace if found is None else workspace.using(actor=found)
                sessions[actor] = Session(acting.aio, actor, profile, MemoryTokens(), turn_dir=turn_dir)
            return sessions[actor]

        return caller_of

    _serve(WORKSPACE, callers, only.settle)


def serve_turns(turn_dir: str, actor: str) -> None:
    """Serve the turn files of a folder, and nothing else, until the client closes the streams."""
    from holdfast.faces.mcp.tool import Caller
    from holdfast.faces.mcp.turn_tools import TURNS

    caller = Caller(actor, turn_dir)
    _serve(TURNS, lambda: lambda _: caller)


def _serve(
    offer: ServerDefinition,
    callers: Callable[[], Callable[[Any], Caller]],
    settle: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve the callers of requests; what finds them is made once the loop runs."""
    protocol = load_protocol()

    async def serve() -> None:
        await protocol.over_stdio(offer, callers(), settle)

    with _interruptible():
        asyncio.run(serve())


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end the process at once, as SIGTERM does.

    The SDK reads in a thread that cannot be interrupted, so an orderly end would wait for the client to close.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
