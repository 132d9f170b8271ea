"""Turn locks as arithmetic: overlap, staleness, precedence.

Pure. Only revisions count, never a clock. A lock is stale when more than `lease_revs` revisions came after its own.
Among valid locks on the same file the one with the lower acquired_rev wins, then the one with the smaller id; so
everybody who reads the same file names the same winner, whoever wrote it and in whatever order it lists the locks.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.errors import Invalid
from holdfast.turnfile.model import FOLDER, Lock

REGISTRY: Final = ("MAILBOX.md", "WORKLOG.md", "OPEN_QUESTIONS.md", "docs/README.md")
"""The shared files that need a lock, as seen from the session's folder; every other file may be edited without."""

DEFAULT_WORKSPACE: Final = FOLDER


def normal(path: str, workspace: str = DEFAULT_WORKSPACE) -> str:
    """A path as seen from the session's folder, in one spelling. Raises Invalid for one that leaves it.

    `MAILBOX.md`, `./MAILBOX.md` and `working-session/docs/../MAILBOX.md` are the same file.
    """
    if not path or not path.isprintable() or len(path) > 1024:
        raise Invalid(f"{path[:40]!r} is not a path", path=path)
    found = posixpath.normpath(path.replace("\\", "/"))
    for name in (workspace or DEFAULT_WORKSPACE, DEFAULT_WORKSPACE):
        if found.startswith(prefix := posixpath.normpath(name) + "/"):
            found = found[len(prefix) :]
            break
    if found.startswith("/") or found in (".", "..") or found.startswith("../") or path.endswith("/"):
        raise Invalid(
            f"{path!r} is not a file of the session's folder",
            hint="name files as seen from that folder, such as MAILBOX.md",
            path=path,
        )
    return found


def written(path: str, workspace: str = DEFAULT_WORKSPACE) -> str:
    """The spelling for the ledger: as seen from the project, with the folder's name in front."""
    return f"{posixpath.normpath(workspace or DEFAULT_WORKSPACE)}/{normal(path, workspace)}"


def files_of(lock: Lock, workspace: str = DEFAULT_WORKSPACE) -> frozenset[str]:
    """The files of a lock in one spelling; a path that makes no sense stands for itself."""
    return frozenset(_lenient(path, workspace) for path in lock.files)


def _lenient(path: str, workspace: str) -> str:
    try:
        return normal(path, workspace)
    except Invalid:  # another tool wrote it: it names no file of ours
        return path


def is_stale(lock: Lock, revision: int) -> bool:
    """True once more than `lease_revs` revisions came after the lock's own: acquired at 7 for 2, from 10 on."""
    return revision - lock.acquired_rev > lock.lease_revs


def revisions_left(lock: Lock, revision: int) -> int:
    """How many more writes the lock outlives; below 0 once it is stale."""
    return lock.lease_revs - (revision - lock.acquired_rev)


def precedence(lock: Lock) -> tuple[int, str]:
    """The order in which locks win: the smallest first."""
    return lock.acquired_rev, lock.id


def overlapping(
    locks: Iterable[Lock], files: Iterable[str], workspace: str = DEFAULT_WORKSPACE, *, but: str | None = None
) -> list[Lock]:
    """The locks on any of the files, valid or stale, in order of precedence; `but` leaves one out."""
    wanted = {_lenient(path, workspace) for path in files}
    found = [lock for lock in locks if lock.id != but and files_of(lock, workspace) & wanted]
    return sorted(found, key=precedence)


def blocking(
    locks: Iterable[Lock],
    files: Iterable[str],
    revision: int,
    workspace: str = DEFAULT_WORKSPACE,
    *,
    but: str | None = None,
) -> list[Lock]:
    """The valid locks on any of the files, in order of precedence."""
    return [lock for lock in overlapping(locks, files, workspace, but=but) if not is_stale(lock, revision)]


def winner(locks: Iterable[Lock], path: str, revision: int, workspace: str = DEFAULT_WORKSPACE) -> Lock | None:
    """Who may edit a file: the valid lock on it that comes first."""
    return next(iter(blocking(locks, [path], revision, workspace)), None)


def beaten_by(lock: Lock, locks: Sequence[Lock], revision: int, workspace: str = DEFAULT_WORKSPACE) -> Lock | None:
    """The valid lock on one of this lock's files that comes before it, if there is one."""
    files = files_of(lock, workspace)
    others = [other for other in locks if other.id != lock.id and files_of(other, workspace) & files]
    return next(
        (
            other
            for other in sorted(others, key=precedence)
            if not is_stale(other, revision) and precedence(other) < precedence(lock)
        ),
        None,
    )


def next_lock_id(holder: str, text: str) -> str:
    """`LOCK-<agent>-<seq>`: one more than the highest that the ledger's text mentions, in notes of the past too."""
    numbers = re.findall(rf"LOCK-{re.escape(holder)}-([0-9]{{1,9}})(?![0-9])", text)
    return f"LOCK-{holder}-{max(map(int, numbers), default=0) + 1:03d}"
