"""Reading files that belong to somebody else, and replacing them.

`look` refuses what cannot be edited safely. `write` first has every new content on disk beside the old one, looks once
more that nobody has changed the old one, and only then renames: a file is the old one or the new one, never half of it,
and none is touched unless all could be. Mode and symlinks stay. Called by `plan.py`.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import Conflict, Invalid, IOFailed
from holdfast.kernel.folders import sync


@dataclass(frozen=True)
class File:
    """A file as it was found; `text` is None if it is not there."""

    path: Path
    real: Path
    text: str | None
    mode: int = 0o644
    owner: tuple[int, int] | None = None


@dataclass(frozen=True)
class Step:
    """A file and what it shall hold; None: it shall not be there."""

    file: File
    new: str | None


def look(path: Path, within: Iterable[Path]) -> File:
    """Read a file in one of the folders; Invalid says why it cannot be edited."""
    try:
        real = path.resolve()
    except (OSError, RuntimeError) as error:  # a loop of symlinks
        raise Invalid(f"{path} leads nowhere: {error}", hint="put the symlink right by hand") from error
    if not any(real.is_relative_to(folder.resolve()) for folder in within):
        raise Invalid(
            f"{path} leads out of the project, to {real}", hint="replace the symlink by a file of the project"
        )
    for folder in real.parents:
        if folder.exists():
            if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
                raise Invalid(f"{folder} is not a folder that can be written", hint="check its permissions")
            break
    if not real.exists():
        return File(path, real, None)
    found = real.stat()
    if not stat.S_ISREG(found.st_mode):
        raise Invalid(f"{path} is not a file", hint="it is in the way: look what it is")
    if not found.st_mode & 0o222 or not os.access(real, os.R_OK | os.W_OK):
        raise Invalid(f"{path} is read-only", hint="make it writable for you first")
    try:
        text = real.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise Invalid(f"{path} is not UTF-8: {error}", hint="convert it to UTF-8 first") from error
    return File(path, real, text, stat.S_IMODE(found.st_mode), (found.st_uid, found.st_gid))


def write(steps: Sequence[Step]) -> None:
    """Carry out all steps; one that changes nothing touches nothing."""
    steps = [step for step in steps if step.new != step.file.text]
    staged: list[str] = []
    try:
        for step in steps:
            if step.new is not None:
                _stage(step.file, step.new, staged)
        for step in steps:
            now = step.file.real.read_bytes() if step.file.real.exists() else None
            if now != (None if step.file.text is None else step.file.text.encode()):
                raise Conflict(f"{step.file.path} was changed meanwhile; nothing was written", hint="run it again")
        for step in steps:
            if step.new is None:
                step.file.real.unlink()
            else:
                os.replace(staged[0], step.file.real)
                del staged[0]
            sync(step.file.real.parent)
    except OSError as error:
        raise IOFailed(f"{error.filename or 'a file'} cannot be written: {error.strerror}") from error
    finally:
        for left in staged:
            os.unlink(left)


def _stage(file: File, new: str, staged: list[str]) -> None:
    """Have the new content on disk beside the old one."""
    folder = file.real.parent
    folder.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{file.real.name}.", suffix=".holdfast", dir=folder)
    staged.append(name)
    with open(descriptor, "wb") as out:
        out.write(new.encode())
        out.flush()
        os.fchmod(descriptor, file.mode)
        if file.owner is not None and os.geteuid() == 0:
            os.fchown(descriptor, *file.owner)  # root must not take a file away from its owner
        os.fsync(descriptor)
