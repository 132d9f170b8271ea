"""`holdfast init` and `holdfast where`: make a workspace, and say which one is meant."""

from __future__ import annotations

import os
from typing import Any

from holdfast import errors
from holdfast.context import derive_actor
from holdfast.faces.cli import place as places
from holdfast.faces.cli.command import Command
from holdfast.faces.cli.output import printable
from holdfast.faces.cli.rolling import backups_of
from holdfast.faces.cli.session import Session
from holdfast.kernel.tx import DerivedActor


def init(session: Session, given: dict[str, Any]) -> int:
    """Make a workspace where none is; one that is there stays as it is."""
    from holdfast.workspace import open_workspace

    if session.given.get("url") or (not session.given.get("dir") and session.environ.get("HOLDFAST_URL")):
        raise errors.Unsupported(
            "a workspace is made where it lies, and a server was named",
            hint="unset HOLDFAST_URL, or name a folder with --dir; holdfast serve makes its own",
        )
    named = session.given.get("dir") or session.environ.get("HOLDFAST_DIR")
    folder = os.path.abspath(os.path.expanduser(named)) if named else places.home(session.folder)
    found = places.has_store(folder)
    known = [] if found else backups_of(folder, session.environ)
    open_workspace(folder, actor=session.actor).close()
    lines = [f"{'there is a workspace in' if found else 'made a workspace in'} {folder}"]
    if known:
        lines.append(f"there are {len(known)} backups of one that was here; holdfast restore lists them")
    if not found:
        lines.append("next: holdfast create 'a first task'; holdfast help")
    session.out.say({"folder": folder, "made": not found, "backups": len(known)}, *lines)
    return 0


def where(session: Session, given: dict[str, Any]) -> int:
    """Say which workspace is meant and why, and who acts."""
    place = session.place
    actor = session.actor or derive_actor()
    reason = _why_actor(session)
    shown = printable(str(actor))
    told: dict[str, Any] = {"workspace": place.name, "why": place.why, "exists": place.exists}
    told |= {"actor": str(actor), "actor_from": reason, "may_hold": not isinstance(actor, DerivedActor)}
    lines = [f"workspace  {place.name}", f"           {place.why}{'' if place.exists else '; there is none yet'}"]
    lines += [f"actor      {shown}", f"           {reason}"]
    if place.folder is not None:
        root = places.git_root(session.folder)
        known = backups_of(place.folder, session.environ)
        told |= {"git_worktree": root, "backups": known}
        lines += [f"worktree   {root}"] if root else []
        lines += [f"backups    {len(known)} in {os.path.dirname(known[-1])}"] if known else []
    session.out.say(told, *lines)
    return 0


def _why_actor(session: Session) -> str:
    if session.given.get("actor"):
        return "--actor"
    if session.actor:
        return "HOLDFAST_ACTOR"
    return "derived from user and host; it may read, create and change, but not claim, lock or mail: see --actor"


COMMANDS = (
    Command("init", "Make a workspace in this project.", (), init),
    Command("where", "Say which workspace is meant, and why.", (), where),
)
