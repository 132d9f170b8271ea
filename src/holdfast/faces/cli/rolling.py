"""Rolling backups outside the tree, because agents run `git clean`.

A store inside a git worktree is copied into the user's state folder soon after it was written: the command that wrote
starts a short-lived process for it, which waits until the writing pauses, so that a call costs no more and a busy store
is not copied over and over. At most one such process runs for a workspace, it takes a hundredth of the time, and what
was written last is in the last copy. HOLDFAST_ROLLING=0 turns it off.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from time import sleep
from typing import TYPE_CHECKING, Final

from holdfast.faces.cli.place import git_root, label, state_folder
from holdfast.kernel.clock import SystemClock
from holdfast.types.base import as_time

if TYPE_CHECKING:
    from holdfast.workspace import Workspace

KEPT: Final = 10  # newest, and one of each day before, for a week
DAYS: Final = 7
PAUSE: Final = 1.0  # seconds without a write before a copy is made
PATIENCE: Final = 10.0  # or so long after the first
SHARE: Final = 100  # a copy that took a second is made again after a hundred at the earliest,
RAREST: Final = 600.0  # but not later than after this
LIFE: Final = 3600.0  # seconds; then another goes on
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
    if not _is_running(folder_of(store, environ)):
        _start(store, environ)


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
    """Copy whenever the writing pauses, until nothing is new; answers the last copy, None if another is at it.

    What is written while this runs starts no other process; so it looks once more after it has let go of the lock.
    """
    from holdfast.kernel.folders import make_folder
    from holdfast.workspace import open_workspace

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
            _start(store, environ)  # what was written last may have seen this one at it
    keep(store, environ)
    return copy


@contextmanager
def _alone(folder: str) -> Iterator[bool]:
    """Whether nobody else copies; while in this block, nobody else will."""
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
    end = _clock.monotonic() + PATIENCE * 1e6
    revision = -1
    while revision != workspace.revision and _clock.monotonic() < end:
        revision = workspace.revision
        sleep(PAUSE)
    begun = _clock.monotonic()
    revision = workspace.revision  # at least this is in the copy
    target = new_name(store, environ)
    workspace.backup(target)
    _note(folder, "cost", f"{_clock.wall() / 1e6} {(_clock.monotonic() - begun) / 1e6}")
    _note(folder, "revision", str(revision))
    return target


def _until_due(folder: str) -> float:
    """Seconds until the next copy, for what the last one cost."""
    try:
        with open(os.path.join(folder, "cost"), encoding="ascii") as file:
            finished, cost = map(float, file.read().split())
    except (FileNotFoundError, ValueError):
        return 0
    left = finished + min(cost * SHARE, RAREST) - _clock.wall() / 1e6
    return min(max(left, 0), RAREST)  # whatever the clock says


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
