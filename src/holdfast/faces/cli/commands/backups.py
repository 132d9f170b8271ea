"""`holdfast backup`, `holdfast restore` and `holdfast upgrade`: whole workspaces, and copies of them."""

from __future__ import annotations

import os
from typing import Any

from holdfast import errors
from holdfast.faces.cli import place as places
from holdfast.faces.cli.bars import bar
from holdfast.faces.cli.command import Command
from holdfast.faces.cli.rolling import backups_of, keep, new_name, roll
from holdfast.faces.cli.session import Session
from holdfast.faces.cli.words import Argument


def backup(session: Session, given: dict[str, Any]) -> int:
    """Write a consistent, checked copy while others go on; without a file, beside the rolling ones."""
    folder = local_folder(session, "a backup is made where the store is")
    if given.get("rolling"):
        roll(folder, session.environ)
        return 0
    if given.get("list"):
        return _show(session, folder)
    target = os.path.abspath(given["file"]) if "file" in given else new_name(folder, session.environ)
    with session.open() as workspace, bar("backup", workspace):
        workspace.backup(target)
    session.out.say({"file": target, "bytes": os.path.getsize(target)}, target)
    return 0


def snapshot(session: Session) -> None:
    """Before something that cannot be undone: a copy beside the rolling ones, where the store is ours to copy."""
    place = session.place
    if place.folder is not None and place.exists:
        with session.open() as workspace, bar("backup", workspace):
            workspace.backup(new_name(place.folder, session.environ))
        keep(place.folder, session.environ)


def restore(session: Session, given: dict[str, Any]) -> int:
    """Make a workspace from a backup, where none is; without one, tell which there are."""
    from holdfast.stores import restore as make

    folder = _target(session)
    if "backup" not in given:
        return _show(session, folder)
    source = given["backup"]
    if source == "latest":
        known = backups_of(folder, session.environ) or backups_of(places.home(session.folder), session.environ)
        if not known:
            raise errors.NotFound(f"there is no backup of {folder}", hint="name a file")
        source = known[-1]
    if places.has_store(folder):
        raise errors.Exists(
            f"{folder} holds a workspace, which stays as it is",
            hint="restore into another folder with --dir, and look at both",
        )
    revision = make(source, folder)
    told = f"restored {folder} from {source}, at revision {revision}; what was granted after that backup is void"
    session.out.say({"folder": folder, "backup": os.path.abspath(source), "revision": revision}, told)
    return 0


def upgrade(session: Session, given: dict[str, Any]) -> int:
    """Bring a store to the newest schema, after a backup beside it."""
    from holdfast.stores import upgrade as bring

    folder = local_folder(session, "a store is upgraded where it is")
    schema = bring(folder)
    session.out.say({"folder": folder, "schema": schema}, f"{folder} has schema {schema}, the newest")
    return 0


def local_folder(session: Session, why: str) -> str:
    """The folder of a workspace of this machine."""
    place = session.place
    if place.folder is None:
        raise errors.Unsupported(f"{why}, and this one is behind {place.url}", hint="call it there, with --dir")
    return place.folder


def _target(session: Session) -> str:
    """Where a workspace is made from a backup; of a project that is named, where its own was."""
    place = session.find_place()
    if place is not None and place.url is not None:
        raise errors.Unsupported(
            "a store is restored where it lies, and a server was named", hint="call it there, with --dir"
        )
    named = session.given.get("dir") or session.environ.get("HOLDFAST_DIR")
    if not named:
        return places.home(session.folder)
    folder = os.path.abspath(os.path.expanduser(named))
    inner = os.path.join(folder, places.FOLDER)
    return inner if backups_of(inner, session.environ) or places.has_store(inner) else folder


def _show(session: Session, folder: str) -> int:
    known = backups_of(folder, session.environ)
    told = [{"file": path, "bytes": os.path.getsize(path)} for path in known]
    lines = [f"{each['file']}  {each['bytes']:,} bytes" for each in told]
    lines.append("holdfast restore latest, or a file, makes a workspace of one" if known else f"no backups of {folder}")
    session.out.say(told, *lines)
    return 0


COMMANDS = (
    Command(
        "backup",
        "Write a consistent copy of the workspace, checked, while others go on.",
        (
            Argument("file", option="--file", word=True, help="where to; else beside the rolling backups"),
            Argument("list", "flag", "--list", help="tell which there are"),
            Argument("rolling", "flag", "--rolling", help="called after writes: copy when the writing pauses"),
        ),
        backup,
    ),
    Command(
        "restore",
        "Make a workspace from a backup, where none is; without one, list them.",
        (Argument("backup", option="--backup", word=True, help="a file, or latest"),),
        restore,
    ),
    Command("upgrade", "Bring the store to the newest schema, after a backup.", (), upgrade),
)
