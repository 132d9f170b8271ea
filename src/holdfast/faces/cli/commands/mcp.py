"""`holdfast mcp`: serve the workspace, or turn files, to an MCP client over standard input and output.

Apart from the commands of the HTTP server, because turn files are served without loading anything of a workspace.
"""

from __future__ import annotations

import os
from typing import Any

from holdfast.faces.cli.args import Argument, Usage
from holdfast.faces.cli.call import Session
from holdfast.faces.cli.command import command


@command(
    "mcp",
    Argument(
        "profile", choices=("core", "all", "turn"), help="core; all: every operation; turn: turn files and no workspace"
    ),
    Argument(
        "turn_dir",
        of="FOLDER",
        help="tools for the turn files in that folder: alone, or with --profile all beside the workspace's",
    ),
    more="A server offers the workspace's tools at /mcp. The profile turn finds its folder as holdfast turn does.",
)
def mcp(session: Session, given: dict[str, Any]) -> int:
    """Serve the workspace, or turn files, to an MCP client over standard input and output.

    It serves one client until that disconnects.
    """
    turn_dir = given.get("turn_dir")
    profile = given.get("profile", "core" if turn_dir is None else "turn")
    if profile == "turn":
        return _serve_turns(session, turn_dir)
    if turn_dir is not None:
        if profile != "all":
            raise Usage(f"the profile {profile} has no tools for turn files", hint="omit it, or use --profile all")
        _actor(session)
        turn_dir = os.path.join(session.folder, turn_dir)
        _check_turns(session, turn_dir)
    from holdfast.faces.mcp import serve_stdio

    with session.open(writing=True) as workspace:
        serve_stdio(workspace, profile, turn_dir)
    return 0


def _serve_turns(session: Session, turn_dir: str | None) -> int:
    """Serve turn files alone: no workspace is looked for, opened or imported."""
    from holdfast.faces.cli.commands.turn import session_of
    from holdfast.faces.mcp import serve_turns

    if session.given.get("dir") is not None:  # in every other profile, that is the workspace
        raise Usage("the profile turn has no workspace", hint="use --turn-dir FOLDER, or --profile all for both")
    actor = _actor(session)
    folder = session_of(session, {} if turn_dir is None else {"dir": turn_dir}).folder.path
    _check_turns(session, folder)
    serve_turns(folder, actor)
    return 0


def _check_turns(session: Session, folder: str) -> None:
    """Say at once that there are no turn files: a client shows it, and the tools work as soon as there are some."""
    if not os.path.exists(os.path.join(folder, "TURNFILE.yaml")):
        session.out.note(
            f"there is no TURNFILE.yaml in {folder}", "holdfast turn init begins a session; check --turn-dir"
        )


def _actor(session: Session) -> str:
    if session.actor is None:  # two sessions would share a derived name, and so a lock
        raise Usage("turn files need an actor", hint="use --actor NAME, or set HOLDFAST_ACTOR")
    return session.actor
