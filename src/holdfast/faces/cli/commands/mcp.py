"""`holdfast mcp`: serve the workspace, or turn files, to an MCP client over standard input and output.

Apart from the commands of the HTTP server, because turn files are served without loading anything of a workspace.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from holdfast.faces.cli.args import Argument, Usage
from holdfast.faces.cli.call import Session
from holdfast.faces.cli.command import command
from holdfast.faces.cli.location import private_folder


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
    from holdfast.faces.cli.commands.server import trace_if_wanted
    from holdfast.faces.mcp import serve_stdio

    trace_if_wanted(session.environ)
    session.recorded = None  # who it is may change from call to call
    with session.open(writing=True) as workspace:
        if session.chosen:
            serve_stdio(workspace, profile, turn_dir)
        else:
            bound = None if session.place.url is None else lambda: session.bound
            serve_stdio(workspace, profile, turn_dir, _identify(session), bound)
    return 0


def _identify(session: Session) -> Callable[[Any], str | None]:
    """The actor of a request, if none was named: by its `_meta`, which Codex sends, or else by the client's process.

    The function raises Several if several sessions act from that.
    """
    from holdfast.client_sessions import actor_for, session_actor

    folder = private_folder(session.place, session.environ)

    def identify(meta: Any) -> str | None:
        id = codex_session(meta)
        return actor_for(folder) if id is None else session_actor("codex", id)

    return identify


def codex_session(meta: Any) -> str | None:
    """The session of Codex that made a request; None if its `_meta` names none. Sub-agents have their session's."""
    told = meta.get("x-codex-turn-metadata") if isinstance(meta, dict) else None
    if isinstance(told, str):
        try:
            told = json.loads(told)
        except ValueError:
            return None
    found = [told.get(name) for name in ("session_id", "thread_id")] if isinstance(told, dict) else []
    return next((id for id in found if isinstance(id, str) and id), None)


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
