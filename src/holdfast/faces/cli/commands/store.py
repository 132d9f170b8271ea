"""`holdfast init`, `where`, `backup`, `restore` and `upgrade`; and rolling backups outside the tree.

A store inside a git worktree is copied into the user's state folder soon after a write. The writing command starts a
short-lived process for it, which waits for a pause, so that a call costs no more and a busy store is not copied over
and over. At most one such process runs for a workspace, it takes a hundredth of the time, and the last copy contains
the last write. HOLDFAST_ROLLING=0 turns it off.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from time import sleep
from typing import TYPE_CHECKING, Any, Final

from holdfast import errors
from holdfast.clock import SystemClock
from holdfast.faces.cli import location
from holdfast.faces.cli.args import Argument, Usage
from holdfast.faces.cli.call import Session
from holdfast.faces.cli.command import command
from holdfast.faces.cli.location import git_root, label, start_copying, state_folder
from holdfast.faces.cli.output import bar, folded, printable
from holdfast.faces.cli.relay import describe_use
from holdfast.filesystem import make_folder, recorded_log, write_private
from holdfast.private_socket import SERVER_LOCK
from holdfast.types import as_time

if TYPE_CHECKING:
    from holdfast.workspace import Workspace

KEPT: Final = 10  # newest, and the last of each day before, for a week
DAYS: Final = 7
PAUSE: Final = 1.0  # seconds without a write before a copy is made
MAX_DELAY: Final = 10.0  # seconds after the first write, if there is no pause
SHARE: Final = 100  # after a copy of n seconds, the next one comes n * SHARE seconds later at the earliest,
RAREST: Final = 600.0  # but this many seconds at the latest
LIFE: Final = 3600.0  # seconds; then another process continues
_LOCK: Final = "copying"
_WARNED: Final = "copy-warned"  # in the store's folder: when it was said last that no copy can be made
_LISTED: Final = "`holdfast restore` without a file lists the backups"
_ASKED_FOR: Final = ".manual.backup"  # ends the name of a backup that a user made: no rotation removes it
_clock = SystemClock()


def folder_of(store: str, environ: Mapping[str, str]) -> str:
    """Return the folder of a workspace's backups."""
    return os.path.join(state_folder(environ), "backups", label(store))


def backups_of(store: str, environ: Mapping[str, str]) -> list[str]:
    """Return the backups of a workspace, oldest first."""
    folder = folder_of(store, environ)
    with suppress(FileNotFoundError, NotADirectoryError):
        return sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".backup"))
    return []


def after_write(session: Session, store: str) -> None:
    """Start a copy soon, if `git clean` could remove the store and no copy is under way.

    The write is committed: where no copy can be made, in a sandbox say, this warns once a day, and raises nothing.
    """
    if needs_copying(store, session.environ):
        start_copying(store, session.environ)
    elif _is_rolling(store, session.environ) and (problem := copy_problem(store, session.environ)):
        warned = os.path.join(store, _WARNED)
        with suppress(OSError):  # where not even that can be noted, it warns again
            if os.path.exists(warned) and _clock.wall() / 1e6 - os.stat(warned).st_mtime < 86_400:
                return
            write_private(warned, b"")
        hint = "the change itself is stored; holdfast backup FILE copies it to where you may write"
        session.out.warn(f"no backup is kept outside the tree: {problem}", hint)


def needs_copying(store: str, environ: Mapping[str, str]) -> bool:
    """Whether `git clean` could remove the store, a copy can be made, and no process makes one."""
    possible = _is_rolling(store, environ) and not copy_problem(store, environ)
    return possible and not _is_running(folder_of(store, environ))


def _is_rolling(store: str, environ: Mapping[str, str]) -> bool:
    return environ.get("HOLDFAST_ROLLING") != "0" and git_root(os.path.dirname(store)) is not None


def copy_problem(store: str, environ: Mapping[str, str]) -> str:
    """Why no copy can be written outside the tree; empty if one can."""
    folder = folder_of(store, environ)
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    usable = os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)
    return "" if usable else f"{folder} cannot be written from here"


def _is_running(folder: str) -> bool:
    if not os.path.exists(os.path.join(folder, _LOCK)):
        return False
    with _alone(folder) as alone:
        return not alone


# --- the copying process ---------------------------------------------------------------------------------------------


def roll(store: str, environ: Mapping[str, str]) -> str | None:
    """Copy whenever writing pauses, until nothing is new; returns the last copy, None if another process is copying.

    A write while this runs starts no other process, so the revision is compared once more after the lock is released.
    Raises NotFound if the workspace was removed meanwhile: opening it would make an empty one in its place.
    """
    from holdfast.workspace import open_workspace
    from holdfast.workspace.admin import check_there

    check_there(store)
    folder = folder_of(store, environ)
    make_folder(folder)
    end = _clock.monotonic() + LIFE * 1e6
    copy = None
    with open_workspace(store, actor="rolling-backup") as workspace:
        while workspace.revision != _last_revision(folder) and _clock.monotonic() < end and not workspace.is_lost:
            with _alone(folder) as alone:
                if not alone:
                    return copy
                copy = _copy_when_quiet(workspace, store, environ)
        if _clock.monotonic() >= end:
            start_copying(store, environ)  # the last writer may have seen this process and started none
    keep(store, environ)
    return copy


@contextmanager
def _alone(folder: str) -> Iterator[bool]:
    """Whether no other process copies; while in this block, none will."""
    import fcntl

    descriptor = os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(descriptor)


def _copy_when_quiet(workspace: Workspace, store: str, environ: Mapping[str, str]) -> str:
    folder = folder_of(store, environ)
    sleep(_until_due(folder))
    end = _clock.monotonic() + MAX_DELAY * 1e6
    revision = -1
    while revision != workspace.revision and _clock.monotonic() < end:
        revision = workspace.revision
        sleep(PAUSE)
    begun = _clock.monotonic()
    revision = workspace.revision  # at least this is in the copy
    target = new_name(store, environ)
    workspace.backup(target)
    cost = f"{_clock.wall() / 1e6} {(_clock.monotonic() - begun) / 1e6}"
    write_private(os.path.join(folder, "cost"), cost.encode())
    write_private(os.path.join(folder, "revision"), str(revision).encode())
    return target


def _until_due(folder: str) -> float:
    """Seconds until the next copy, by the cost of the last one."""
    try:
        with open(os.path.join(folder, "cost"), encoding="ascii") as file:
            finished, cost = map(float, file.read().split())
    except (FileNotFoundError, ValueError):
        return 0
    left = finished + min(cost * SHARE, RAREST) - _clock.wall() / 1e6
    return min(max(left, 0), RAREST)  # whatever the clock says


def new_name(store: str, environ: Mapping[str, str], ending: str = ".backup") -> str:
    """Return a file name for a new copy; names sort by time."""
    folder = folder_of(store, environ)
    make_folder(folder)
    return os.path.join(folder, f"{as_time(_clock.wall()):%Y%m%dT%H%M%S.%f}{ending}")


def keep(store: str, environ: Mapping[str, str]) -> None:
    """Remove old copies, except the newest, the last of each day for a week, and what a user asked for."""
    known = [path for path in backups_of(store, environ) if not path.endswith(_ASKED_FOR)]
    days: dict[str, str] = {os.path.basename(path)[:8]: path for path in known}  # the last of each day wins
    kept = {*known[-KEPT:], *(days[day] for day in sorted(days)[-DAYS:])}
    for path in known:
        if path not in kept:
            _remove(path)


def _remove(path: str) -> None:
    from holdfast.workspace.admin import remove_backup

    remove_backup(path)


def _last_revision(folder: str) -> int | None:
    try:
        with open(os.path.join(folder, "revision"), encoding="ascii") as file:
            return int(file.read())
    except (FileNotFoundError, ValueError):
        return None


@command(
    "backup",
    Argument("file", word=True, help="the target; default: beside the rolling backups"),
    Argument("list", "flag", help="list the backups"),
    Argument("damaged", "flag", help="what is left of a workspace that lost commits and cannot be opened"),
    Argument("rolling", "flag", help="called after writes: copy when writing pauses"),
)
def backup(session: Session, given: dict[str, Any]) -> int:
    """Write a consistent, checked copy of the workspace while writes continue.

    Without a file, it is written beside the rolling copies.
    """
    folder = local_folder(session, "a backup is made where the store is")
    if given.get("rolling"):
        roll(folder, session.environ)
        return 0
    if given.get("list"):
        return _show(session, folder)
    target = os.path.abspath(given["file"]) if "file" in given else new_name(folder, session.environ, _ASKED_FOR)
    if given.get("damaged"):
        from holdfast.workspace.admin import salvage

        salvage(folder, target)
    else:
        with session.open_local() as workspace, bar("backup", workspace):
            workspace.backup(target)
    session.out.say({"file": target, "bytes": os.path.getsize(target)}, target)
    return 0


@contextmanager
def snapshot(session: Session) -> Iterator[None]:
    """Around what cannot be undone: a copy from before it, beside the rolling ones, if the store is local.

    A call that changes nothing leaves no copy: many refused imports must not push out copies that are needed.
    """
    place = session.place
    if place.folder is None or not place.exists:
        yield
        return
    copy = new_name(place.folder, session.environ)
    with session.open_local() as workspace, bar("backup", workspace):
        before = workspace.revision
        workspace.backup(copy)
    try:
        yield
    finally:
        if _revision(session) == before:
            _remove(copy)
        else:
            keep(place.folder, session.environ)


def _revision(session: Session) -> int | None:
    """The revision of the store; None if it cannot be read."""
    try:
        with session.open() as workspace:
            return workspace.revision
    except errors.HoldfastError:
        return None


@command(
    "restore",
    Argument("backup", word=True, help="a file, or latest"),
    Argument("unverified", "flag", help="also a backup without its .sha256 file, or with a wrong one"),
    Argument("log", of="URL", help="into an empty log, with this folder as its first replica"),
    Argument("create", "flag", help="make the workspace in the log if it is not there"),
)
def restore(session: Session, given: dict[str, Any]) -> int:
    """Make a workspace from a backup; without one, list the backups.

    A backup is compared with the SHA-256 in the file beside it first.
    """
    from holdfast.workspace.admin import restore as make

    folder, log = _target(session), given.get("log")
    if "create" in given and log is None:
        raise Usage("--create goes with --log", hint="without it the workspace is one of this machine")
    if "backup" not in given:
        return _show(session, folder)
    source = given["backup"]
    if source == "latest":
        known = backups_of(folder, session.environ) or backups_of(location.home(session.folder), session.environ)
        if not known:
            raise errors.NotFound(f"there is no backup of {folder}", hint="give a file")
        source = known[-1]
    if os.path.exists(os.path.join(folder, location.STORE)):
        raise errors.Exists(
            f"{folder} already holds a workspace; it was not changed",
            hint="restore into another folder with --dir, and look at both",
        )
    if not os.path.isfile(source):
        raise errors.NotFound(f"there is no backup {source}", hint=_LISTED)
    try:
        revision = make(source, folder, log=log, create="create" in given, verify="unverified" not in given)
    except errors.Invalid as error:
        if not error.message.endswith("is not a backup of a workspace"):
            raise
        also = "; holdfast import reads an export" if source.endswith(".jsonl") else ""
        raise errors.Invalid(error.message, hint=_LISTED + also) from error
    told = {"folder": folder, "backup": os.path.abspath(source), "log": recorded_log(folder), "revision": revision}
    text = f"restored {folder} from {source}, at revision {revision}; grants made after that backup are void"
    session.out.say(told, text, *([f"it is the first replica of {told['log']}"] if log else []))
    return 0


@command("upgrade")
def upgrade(session: Session, given: dict[str, Any]) -> int:
    """Migrate the store to the newest schema, after a backup."""
    from holdfast.workspace.admin import upgrade as bring

    folder = local_folder(session, "a store is upgraded where it is")
    schema = bring(folder)
    session.out.say({"folder": folder, "schema": schema}, f"{folder} has schema {schema}, the newest")
    return 0


def local_folder(session: Session, why: str) -> str:
    """Return the folder of a local workspace. Raises Unsupported for a server."""
    place = session.place
    if place.folder is None:
        raise errors.Unsupported(f"{why}, but this one is behind {place.url}", hint="run it there, with --dir")
    return place.folder


def _target(session: Session) -> str:
    """The folder to restore into; for a project, the folder of its own workspace."""
    place = session.find_place()
    if place is not None and place.url is not None:
        raise errors.Unsupported(
            "a store is restored where it is, but a server was given", hint="run it there, with --dir"
        )
    named = session.given.get("dir") or session.environ.get("HOLDFAST_DIR")
    if not named:
        return location.home(session.folder)
    folder = os.path.abspath(os.path.expanduser(named))
    inner = os.path.join(folder, location.FOLDER)
    return inner if backups_of(inner, session.environ) or location.has_store(inner) else folder


def _show(session: Session, folder: str) -> int:
    known = backups_of(folder, session.environ)
    listed = [{"file": path, "bytes": os.path.getsize(path)} for path in known]
    lines = [f"{each['file']}  {each['bytes']:,} bytes" for each in listed]
    again = f"restore one: holdfast restore latest{session.out.place}, or a file"
    lines.append(again if known else f"no backups of {folder}")
    session.out.say(listed, *lines)
    return 0


@command(
    "init",
    Argument(
        "log",
        of="URL",
        help="share it with other machines: postgresql://host/db?workspace=NAME or nats://h1,h2,h3/NAME",
    ),
    Argument("create", "flag", help="make the workspace in the log if it is not there"),
)
def init(session: Session, given: dict[str, Any]) -> int:
    """Make a workspace in this project.

    If there is one, it is left as it is.
    """
    from holdfast.hints import options_of
    from holdfast.workspace import open_workspace

    if session.given.get("url") or (not session.given.get("dir") and session.environ.get("HOLDFAST_URL")):
        raise errors.Unsupported(
            "a workspace is made where it is stored, but a server was given",
            hint="unset HOLDFAST_URL, or name a folder with --dir; holdfast serve makes its own",
        )
    named = session.given.get("dir") or session.environ.get("HOLDFAST_DIR")
    if named:
        location.check_folder(named, "--dir" if session.given.get("dir") else "HOLDFAST_DIR")
    folder = os.path.abspath(os.path.expanduser(named)) if named else location.home(session.folder)
    found = location.Place("", folder=folder).exists
    above = None if named or found or given.get("log") else location.find({}, {}, lambda: session.folder)
    above = None if above is None or above.folder == folder else above  # what is left of one here is none above
    if above is not None and location.git_root(session.folder) is None:
        return _there_already(session, above)
    if not found:
        check_unserved(folder)
    known = [] if found else backups_of(folder, session.environ)
    text = f"{'there is a workspace in' if found else 'made a workspace in'} {folder}"
    if given.get("log"):
        recorded = recorded_log(folder)
        with open_workspace(given["log"], folder=folder, actor=session.actor, create=bool(given.get("create"))) as node:
            if not found or recorded is None:
                revision, did = node.revision, "joined" if not found else "recorded the log of this replica:"
                text = f"{did} {recorded_log(folder)}, at revision {revision}; this node's replica is in {folder}"
    elif given.get("create"):
        raise Usage("--create goes with --log", hint="holdfast init makes a workspace of this machine without it")
    else:
        open_workspace(folder, actor=session.actor).close()
    if location.unread_share(folder, session.folder) is not None:
        from holdfast.faces.cli.commands.share import read_file

        read_file(session)
    lines = [text]
    at = session.out.place
    root = None if named else location.git_root(session.folder)
    if root is not None and not location.has_store(shared := location.home(root)):
        another = f"holdfast init{options_of(('--dir', shared))}"
        lines.append(f"commands here use it; make another one for the whole repository: {another}")
    if above is not None:
        lines.append(f"the one above, in {above.name}, is not used in this repository any more")
    if known:
        lines.append(f"backups of a workspace that was here: {len(known)}; holdfast restore{at} lists them")
    if not found:
        lines.append(f"next: holdfast create 'a first task'{at}; holdfast help")
    session.out.say({"folder": folder, "made": not found, "backups": len(known)}, *lines)
    return 0


def _there_already(session: Session, above: location.Place) -> int:
    """Say that commands in this folder use a workspace above it, and how to make another one all the same."""
    from holdfast.hints import options_of

    own = os.path.join(session.folder, location.FOLDER)
    another = f"holdfast init{options_of(('--dir', os.path.relpath(own, session.folder)))}"
    lines = [
        f"there is a workspace above this folder, in {above.name}, and commands here use it",
        f"make another one for this folder alone: {another}",
    ]
    session.out.say({"folder": above.name, "made": False, "backups": 0}, *lines)
    return 0


@command("where")
def where(session: Session, given: dict[str, Any]) -> int:
    """Print which workspace is used, and why.

    The same for the actor.
    """
    from holdfast.faces.cli.identity import identify

    place, who = session.place, identify(session)
    facts: dict[str, Any] = {"workspace": place.name, "why": place.why, "exists": place.exists}
    facts |= {"actor": str(who.actor), "actor_from": who.why, "may_hold": who.may_hold, "role": who.role}
    lines = [f"workspace  {place.name}", f"           {place.why}{'' if place.exists else '; there is none yet'}"]
    lines += [f"actor      {printable(str(who.actor))}", f"           {who.why}"]
    if place.folder is not None:
        root = location.git_root(session.folder)
        known = backups_of(place.folder, session.environ)
        facts |= {"git_worktree": root, "backups": known}
        lines += [f"worktree   {root}"] if root else []
        lines += _server_lines(place.folder, facts, bool(session.given.get("direct")))
        facts |= {"log": recorded_log(place.folder), "node": None}
        if facts["log"]:
            from holdfast.faces.cli.commands.nodes import node_of

            facts["node"], words = node_of(session)
            lines += [f"log        {facts['log']}", *(f"           {each}" for each in words)]
        lines += [f"backups    {len(known)} in {os.path.dirname(known[-1])}"] if known else []
    session.out.say(facts, *(folded(line, session.out.stdout, 11) for line in lines))
    return 0


def _server_lines(folder: str, facts: dict[str, Any], direct: bool) -> list[str]:
    """The server that runs on a folder, and whether commands go through it."""
    address = server_of(folder)
    used, words = describe_use(folder) if address else (False, "")
    if direct and used:
        used, words = False, f"{words}, but not with --direct"
    facts["server"] = {"address": address, "used": used, "why": words} if address else None
    return [f"server     {address}", f"           {words}"] if address else []


def server_of(folder: str) -> str:
    """The pid and address of the server that runs on a folder, as its lock file has them; empty if there is none."""
    import fcntl

    try:
        with open(os.path.join(folder, SERVER_LOCK), encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except BlockingIOError:
        with open(os.path.join(folder, SERVER_LOCK), encoding="utf-8") as file:
            return file.read().strip() or "somewhere"
    return ""


def check_unserved(folder: str) -> None:
    """Raise Closed if a server runs on a folder without a store: it has another open than would be made."""
    address = server_of(folder)
    if address:
        raise errors.Closed(
            f"the store in {folder} was removed or moved while a server runs on it ({address})",
            hint="stop the server, put the files back or restore a backup (see holdfast restore), and start it again",
        )
