"""`holdfast mcp`: the workspace as tools for an MCP client, over standard input and output."""

from __future__ import annotations

from typing import Any

from holdfast.faces.cli.command import Command
from holdfast.faces.cli.session import Session
from holdfast.faces.cli.words import Argument


def mcp(session: Session, given: dict[str, Any]) -> int:
    """Serve one client until it hangs up."""
    from holdfast.faces.mcp import serve_stdio

    with session.open(writing=True) as workspace:
        serve_stdio(workspace, given.get("profile", "core"))
    return 0


COMMANDS = (
    Command(
        "mcp",
        "Serve the workspace to an MCP client over standard input and output.",
        (Argument("profile", option="--profile", choices=("core", "all"), help="core, or every operation"),),
        mcp,
        "A server has the same at /mcp.",
    ),
)
