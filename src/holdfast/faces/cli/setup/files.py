"""Files that belong to other programs: reading them, replacing them, and our marked blocks inside.

`look` rejects what cannot be edited safely. `write` first stores every new content beside the old file, checks that
none of the old ones has changed, and only then renames: a file is the old one or the new one, never half of it, and
none is touched unless all can be. Mode and symlinks stay.

The lines between `holdfast:begin` and `holdfast:end` are ours. The begin marker notes what else came with the block:
`sep=N`, that many line ends before it, or `made`, the whole file. So whatever the file was (empty, without a final line
end, with CRLF, with a byte order mark), `drop(put(text))` is `text`, and `put(put(text))` is `put(text)`. A block of
another version is replaced in place.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.errors import Conflict, Invalid, IOFailed
from holdfast.filesystem import sync


@dataclass(frozen=True)
class File:
    """A file as it was found; `text` is None if it does not exist."""

    path: Path
    real: Path
    text: str | None
    mode: int = 0o644
    owner: tuple[int, int] | None = None


@dataclass(frozen=True)
class Step:
    """A file and its new content; None: it is to be removed."""

    file: File
    new: str | None


def look(path: Path, within: Iterable[Path], *, writing: bool = True) -> File:
    """Read a file in one of the folders. Raises Invalid if it cannot be edited safely, or cannot be written now."""
    try:
        real = path.resolve()
    except (OSError, RuntimeError) as error:  # a loop of symlinks
        raise Invalid(f"{path} cannot be resolved: {error}", hint="correct the symlink by hand") from error
    if not any(real.is_relative_to(folder.resolve()) for folder in within):
        hint = "replace the symlink by a file of the project"
        raise Invalid(f"{path} leads out of the project, to {real}", hint=hint)
    if writing:
        _check_folder(real)
    if not real.exists():
        return File(path, real, None)
    found = real.stat()
    if not stat.S_ISREG(found.st_mode):
        raise Invalid(f"{path} is not a regular file", hint="move it out of the way")
    if writing and (not found.st_mode & 0o222 or not os.access(real, os.R_OK | os.W_OK)):
        raise Invalid(f"{path} is read-only", hint="make it writable for you first")
    try:
        text = real.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise Invalid(f"{path} is not UTF-8: {error}", hint="convert it to UTF-8 first") from error
    return File(path, real, text, stat.S_IMODE(found.st_mode), (found.st_uid, found.st_gid))


def _check_folder(file: Path) -> None:
    """Raise Invalid unless a file can be made or replaced where it lies."""
    folder = next(folder for folder in file.parents if folder.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        hint = "check its permissions; in the sandbox of an agent, run this outside of it"
        raise Invalid(f"{folder} is not a folder that can be written", hint=hint)


def write(steps: Sequence[Step]) -> None:
    """Carry out all steps; one without a change touches nothing."""
    steps = [step for step in steps if step.new != step.file.text]
    staged: list[str] = []
    made: list[Path] = []
    try:
        for step in steps:
            if step.new is not None:
                _make(step.file.real.parent, made)
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
        for folder in reversed(made):
            with suppress(OSError):  # it has files now
                folder.rmdir()


def _make(folder: Path, made: list[Path]) -> None:
    """Make a folder and those above it; `made` gets each that was missing."""
    if not folder.is_dir():
        _make(folder.parent, made)
        folder.mkdir()
        made.append(folder)


def _stage(file: File, new: str, staged: list[str]) -> None:
    """Store the new content beside the old file."""
    folder = file.real.parent
    descriptor, name = tempfile.mkstemp(prefix=f".{file.real.name}.", suffix=".holdfast", dir=folder)
    staged.append(name)
    with open(descriptor, "wb") as out:
        out.write(new.encode())
        out.flush()
        os.fchmod(descriptor, file.mode)
        if file.owner is not None and os.geteuid() == 0:
            os.fchown(descriptor, *file.owner)  # root must not take a file from its owner
        os.fsync(descriptor)


VERSION: Final = 1
_BOM: Final = "\ufeff"


@dataclass(frozen=True)
class Block:
    """Our block in a text file, and the comment syntax of that file."""

    body: str
    opening: str = "<!-- "
    closing: str = " -->"
    preamble: str = ""  # the start of a file that we make

    def put(self, old: str | None) -> str:
        """Return the text with the current block; None is a missing file."""
        if old is None:
            return self.preamble + self._render("made", "\n") + "\n"
        place = self._find(old)
        if place is not None:
            return old[: place.start] + self._render(place.notes, place.newline) + old[place.stop :]
        newline = newline_of(old)
        at, sep = self._where(old)
        return old[:at] + newline * sep + self._render(f"sep={sep}", newline) + newline + old[at:]

    def drop(self, old: str) -> str | None:
        """Return the text without the block; None if we made the file and nothing was added."""
        place = self._find(old)
        if place is None:
            return old
        head, tail = old[: place.start], old[place.stop :].removeprefix(place.newline)
        noted = re.search(r"\bsep=(\d+)", place.notes)
        for _ in range(int(noted[1]) if noted else 0):
            head = head.removesuffix(place.newline)
        if "made" in place.notes.split() and not tail and head.replace("\r\n", "\n") in ("", self.preamble):
            return None
        if tail and head.strip(_BOM) and not head.endswith("\n"):
            head += place.newline  # text was added below the block: lines stay lines
        return head + tail

    def _where(self, old: str) -> tuple[int, int]:
        """Where a new block goes, and the number of line ends before it."""
        bare = old.removeprefix(_BOM)
        return len(old), 0 if not bare else 1 if bare.endswith("\n") else 2

    def _render(self, notes: str, newline: str) -> str:
        said = f"{notes} (written by holdfast setup)"
        begin = f"{self.opening}holdfast:begin v{VERSION} {said}{self.closing}"
        end = f"{self.opening}holdfast:end{self.closing}"
        return newline.join([begin, *self.body.splitlines(), end])

    def _find(self, text: str) -> _Place | None:
        opening, closing = re.escape(self.opening), re.escape(self.closing)
        start = rf"(?:^|(?<={_BOM})){opening}holdfast:"
        begins = list(re.finditer(rf"{start}begin v\d+ ([^\r\n]*?){closing}(\r?\n)", text, re.MULTILINE))
        ends = list(re.finditer(rf"{start}end{closing}(?=\r?$)", text, re.MULTILINE))
        if not begins and not ends:
            return None
        if len(begins) != 1 or len(ends) != 1 or ends[0].start() < begins[0].end():
            raise Invalid(
                f"it has {len(begins)} line(s) holdfast:begin and {len(ends)} holdfast:end, not one of each in order",
                hint="correct the markers by hand; the lines between them are written by holdfast setup",
            )
        notes = begins[0][1].replace(" (written by holdfast setup)", "")
        return _Place(begins[0].start(), ends[0].end(), notes, begins[0][2])


@dataclass(frozen=True)
class _Place:
    start: int
    stop: int  # before the line end of the end marker
    notes: str
    newline: str


def newline_of(text: str) -> str:
    """Return the line end of a text, by its first line."""
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"
