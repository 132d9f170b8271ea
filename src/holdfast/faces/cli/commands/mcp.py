"""`holdfast mcp`: the workspace as tools for an MCP client, over standard input and output."""

from __future__ import annotations

import os
from typing import Any

from holdfast.faces.cli.command import Command
from holdfast.faces.cli.session import Session
from holdfast.faces.cli.words import Argument, Usage


def mcp(session: Session, given: dict[str, Any]) -> int:
    """Serve one client until it hangs up."""
    from holdfast.faces.mcp import serve_stdio

    profile, turn_dir = given.get("profile", "core"), given.get("turn_dir")
    if turn_dir is not None:
        if profile != "all":
            raise Usage("--turn-dir gives tools to the profile all alone", hint="add --profile all")
        if session.actor is None:  # two sessions would have the same name, and one lock
            raise Usage("turn files want to know who acts", hint="--actor NAME, or HOLDFAST_ACTOR=NAME")
        turn_dir = os.path.join(session.folder, turn_dir)
    with session.open(writing=True) as workspace:
        serve_stdio(workspace, profile, turn_dir)
    return 0


COMMANDS = (
    Command(
        "mcp",
        "Serve the workspace to an MCP client over standard input and output.",
        (
            Argument("profile", option="--profile", choices=("core", "all"), help="core, or every operation"),
            Argument("turn_dir", option="--turn-dir", of="FOLDER", help="with all: tools for the turn files there"),
        ),
        mcp,
        "A server has the same at /mcp.",
    ),
)
