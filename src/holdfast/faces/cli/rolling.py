"""Rolling backups outside the tree, because agents run `git clean`.

A store inside a git worktree is copied into the user's state folder soon after it was written: the command that wrote
starts a short-lived process for it, which waits until the writing pauses, so that a call costs no more and a busy store
is not copied over and over. At most one such process runs for a workspace, and it never takes more than a hundredth of
the time. HOLDFAST_ROLLING=0 turns it off.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from time import sleep
from typing import Final

from holdfast.faces.cli.place import git_root, label, state_folder
from holdfast.kernel.clock import SystemClock
from holdfast.types.base import as_time

KEPT: Final = 10  # newest, and one of each day before, for a week
DAYS: Final = 7
PAUSE: Final = 1.0  # seconds without a write before a copy is made
PATIENCE: Final = 10.0  # or so long after the first
SHARE: Final = 100  # a copy that took a second is made again after a hundred at the earliest
_LOCK: Final = "copying"
_clock = SystemClock()


def folder_of(store: str, environ: Mapping[str, str]) -> str:
    """Where the backups of a workspace lie."""
    return os.path.join(state_folder(environ), "backups", label(store))


def backups_of(store: str, environ: Mapping[str, str]) -> list[str]:
    """The backups of a workspace, oldest first."""
    folder = folder_of(store, environ)
    with suppress(FileNotFoundError):
        return sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".backup"))
    return []


def after_write(store: str, environ: Mapping[str, str]) -> None:
    """Have a copy made soon, if the store lies where `git clean` could take it and nobody is at it."""
    if environ.get("HOLDFAST_ROLLING") == "0" or git_root(os.path.dirname(store)) is None:
        return
    folder = folder_of(store, environ)
    if _is_due(folder) and not _is_running(folder):
        _start(store, environ)


def _is_due(folder: str) -> bool:
    """Whether enough time has passed since the last copy, for what it cost."""
    try:
        with open(os.path.join(folder, "cost"), encoding="ascii") as file:
            finished, cost = map(float, file.read().split())
    except (FileNotFoundError, ValueError):
        return True
    return not 0 <= _clock.wall() / 1e6 - finished < cost * SHARE


def _is_running(folder: str) -> bool:
    import fcntl

    try:
        descriptor = os.open(os.path.join(folder, _LOCK), os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _start(store: str, environ: Mapping[str, str]) -> None:
    """Start the copying process, which outlives this one and has nothing of its terminal."""
    import subprocess
    import sys

    command = [sys.executable, "-m", "holdfast", "backup", "--rolling", "--dir", store]
    quiet = subprocess.DEVNULL
    subprocess.Popen(
        command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True, cwd="/", env=dict(environ)
    )


# --- the copying process ---------------------------------------------------------------------------------------------


def roll(store: str, environ: Mapping[str, str]) -> str | None:
    """Wait until the writing pauses, and copy; answers the copy, None if another is at it or nothing is new."""
    import fcntl

    from holdfast.kernel.folders import make_folder

    folder = folder_of(store, environ)
    make_folder(folder)
    descriptor = os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    try:
        return _copy_when_quiet(store, folder, environ)
    finally:
        os.close(descriptor)


def _copy_when_quiet(store: str, folder: str, environ: Mapping[str, str]) -> str | None:
    from holdfast.workspace import open_workspace

    with open_workspace(store, actor="rolling-backup") as workspace:
        end = _clock.monotonic() + PATIENCE * 1e6
        revision = -1
        while revision != workspace.revision and _clock.monotonic() < end:
            revision = workspace.revision
            sleep(PAUSE)
        if _last_revision(folder) == workspace.revision:
            return None
        begun = _clock.monotonic()
        revision = workspace.revision  # at least this is in the copy
        target = new_name(store, environ)
        workspace.backup(target)
    _note(folder, "cost", f"{_clock.wall() / 1e6} {(_clock.monotonic() - begun) / 1e6}")
    _note(folder, "revision", str(revision))
    keep(store, environ)
    return target


def new_name(store: str, environ: Mapping[str, str]) -> str:
    """A file for a new copy, named so that names sort by time."""
    from holdfast.kernel.folders import make_folder

    folder = folder_of(store, environ)
    make_folder(folder)
    return os.path.join(folder, f"{as_time(_clock.wall()):%Y%m%dT%H%M%S.%f}.backup")


def keep(store: str, environ: Mapping[str, str]) -> None:
    """Remove old copies: the newest stay, and the last of each day for a week."""
    known = backups_of(store, environ)
    days: dict[str, str] = {os.path.basename(path)[:8]: path for path in known}  # the last of each day wins
    kept = {*known[-KEPT:], *(days[day] for day in sorted(days)[-DAYS:])}
    for path in known:
        if path not in kept:
            os.unlink(path)


def _last_revision(folder: str) -> int | None:
    try:
        with open(os.path.join(folder, "revision"), encoding="ascii") as file:
            return int(file.read())
    except (FileNotFoundError, ValueError):
        return None


def _note(folder: str, name: str, text: str) -> None:
    partial = os.path.join(folder, f"{name}.{os.getpid()}")
    with open(partial, "w", encoding="ascii") as file:
        file.write(text)
    os.replace(partial, os.path.join(folder, name))
