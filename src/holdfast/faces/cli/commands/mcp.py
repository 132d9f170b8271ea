"""`holdfast mcp`: the workspace, or turn files alone, as tools for an MCP client, over standard input and output."""

from __future__ import annotations

import os
from typing import Any

from holdfast.faces.cli.command import Command
from holdfast.faces.cli.session import Session
from holdfast.faces.cli.words import Argument, Usage


def mcp(session: Session, given: dict[str, Any]) -> int:
    """Serve one client until it hangs up."""
    turn_dir = given.get("turn_dir")
    profile = given.get("profile", "core" if turn_dir is None else "turn")
    if profile == "turn":
        return _turns(session, turn_dir)
    if turn_dir is not None:
        if profile != "all":
            raise Usage(f"the profile {profile} has no tools for turn files", hint="leave out --profile, or take all")
        _actor(session)
        turn_dir = os.path.join(session.folder, turn_dir)
    from holdfast.faces.mcp import serve_stdio

    with session.open(writing=True) as workspace:
        serve_stdio(workspace, profile, turn_dir)
    return 0


def _turns(session: Session, turn_dir: str | None) -> int:
    """Serve turn files alone: no workspace is looked for, and nothing of it is imported."""
    from holdfast.faces.cli.turning import session_of
    from holdfast.faces.mcp import serve_turns

    if session.given.get("dir") is not None:  # which is the workspace's, in every other profile
        raise Usage("the profile turn has no workspace", hint="--turn-dir FOLDER; or --profile all for both")
    actor = _actor(session)
    serve_turns(session_of(session, {} if turn_dir is None else {"dir": turn_dir}).folder.path, actor)
    return 0


def _actor(session: Session) -> str:
    if session.actor is None:  # two sessions would have the same name, and one lock
        raise Usage("turn files want to know who acts", hint="--actor NAME, or HOLDFAST_ACTOR=NAME")
    return session.actor


COMMANDS = (
    Command(
        "mcp",
        "Serve the workspace, or turn files, to an MCP client over standard input and output.",
        (
            Argument(
                "profile",
                option="--profile",
                choices=("core", "all", "turn"),
                help="core; all, every operation; turn, turn files and no workspace",
            ),
            Argument(
                "turn_dir",
                option="--turn-dir",
                of="FOLDER",
                help="tools for the turn files there: alone, or with --profile all beside the workspace's",
            ),
        ),
        mcp,
        "A server has the workspace's at /mcp. The profile turn finds its folder as holdfast turn does.",
    ),
)
