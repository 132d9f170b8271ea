"""The files of one folder, replaced safely: one at a time, or several as one through a journal.

In production `reach` finds no hook and does nothing. The names are listed here, so that a test can visit them all and
prove that each is reached.

Every path is walked from the folder's own descriptor, one name at a time, and no symlink is followed; what is no plain
file is refused. Writers take turns by an OS lock on a file beside the ledger, which the kernel frees when a process
dies; the wait for it is bounded. Only `journal` writes, through `Folder.temp` and `Folder.rename`.

The new contents are made durable under other names, then a journal that lists them: from that moment the replacement
happens, whoever dies. Each file is renamed into place, and the journal goes. Whoever comes next and finds a journal
finishes it. If somebody without our lock (an editor) has changed a file that was not replaced yet, its change is kept
and the others are put back. Guarantee: no reader that asks `recover` first sees some files new and others old, and
nobody's edit is overwritten. All calls need the turn of `Folder.turn`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from holdfast.errors import Busy, Corrupt, DiskFull, Invalid, IOFailed, NotFound, ReadOnly, TooLarge

NAMES: Final = (
    "file.locked",  # the turn to write is taken, nothing is read
    "commit.begun",  # all is decided, nothing is written
    "temp.written",  # the new content of one file is durable under another name
    "journal.written",  # the journal is durable: from here on the replacement happens
    "file.replaced",  # one file has its new content
    "files.replaced",  # all have
    "journal.removed",  # nothing is left to do
    "lock.acquired",  # the ledger says that the lock is ours
    "body.done",  # the edits are made in memory
    "targets.checked",  # lock, hashes and invariants are in order, nothing is written
    "lock.released",  # all is done, the caller does not know yet
)

hook: Callable[[str], None] | None = None


def reach(name: str) -> None:
    """Do nothing, unless a test says otherwise."""
    if hook is not None:
        hook(name)


MAX_BYTES: Final = 16 * 1024 * 1024
LOCK_FILE: Final = ".TURNFILE.lock"
TEMP_PREFIX: Final = ".turn-"
TEMP_SUFFIX: Final = ".tmp"
JOURNAL: Final = ".TURNFILE.journal"

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe must not make us wait
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_WALK: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MANY: Final = 1000  # far more files than a transaction has
_BETWEEN_TRIES: Final = 0.005  # seconds


def is_own(path: str) -> bool:
    """True for the files that writers take turns by, and replace others with: nobody edits them."""
    name = path.rsplit("/", 1)[-1].casefold()  # as a disk may see it
    return name in (LOCK_FILE.casefold(), JOURNAL.casefold()) or name.startswith(TEMP_PREFIX)


def digest(text: str | None) -> str | None:
    """The sha256 of a text as it stands in a file; None for no file."""
    return None if text is None else hashlib.sha256(text.encode()).hexdigest()


@contextlib.contextmanager
def told(what: str) -> Iterator[None]:
    """Turn an error of the operating system into one of ours."""
    try:
        yield
    except OSError as error:
        words = f"{what}: {error.strerror or error}"
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise Invalid(f"{what}: a symlink is not followed", hint="name the file itself") from error
        if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ENXIO):
            raise Invalid(words) from error
        if error.errno == errno.ENOENT:
            raise NotFound(f"{what}: no such file or folder") from error
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(words) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise ReadOnly(words) from error
        raise IOFailed(words) from error


class Folder:
    """A folder, and the files in and below it. Paths are relative, normal, and separated by slashes."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)

    @contextlib.contextmanager
    def parent(self, path: str) -> Iterator[tuple[int, str]]:
        """The descriptor of the folder that a path's file is in, and the file's name."""
        *folders, name = path.split("/")
        if not name or any(part in ("", ".", "..") for part in [*folders, name]):
            raise Invalid(f"{path!r} is not a file of the folder", path=path)
        with told(path):
            here = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                for part in folders:
                    below = os.open(part, _WALK, dir_fd=here)
                    os.close(here)
                    here = below
                yield here, name
            finally:
                os.close(here)

    def read(self, path: str) -> str | None:
        """The text of a file, with its line ends as they are; None if there is none."""
        try:
            with self.parent(path) as (here, name), _opened(name, _READ, here) as file:
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    raise Invalid(f"{path} is not a plain file", path=path)
                raw = _read_all(file, path)
        except NotFound:
            return None
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise Invalid(f"{path} is not UTF-8: byte {error.start}", hint="save it as UTF-8", path=path) from error

    def has(self, path: str) -> bool:
        """True if there is such a file. Raises Invalid for what is none, such as a folder or a symlink."""
        try:
            with self.parent(path) as (here, name), told(path):
                return _mode(here, name, path) is not None
        except NotFound:
            return False

    def signature(self, path: str) -> tuple[int, int, int] | None:
        """What changes when a file is replaced or edited; None if there is none."""
        try:
            with self.parent(path) as (here, name), told(path):
                status = os.stat(name, dir_fd=here, follow_symlinks=False)
        except NotFound:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def make(self, path: str) -> None:
        """Make the folders that a file needs, below this one."""
        parts = path.split("/")[:-1]
        for known in range(1, len(parts) + 1):
            with self.parent("/".join(parts[:known])) as (here, name), contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=here)
                os.fsync(here)

    def temp(self, path: str, text: str) -> str:
        """Write a text beside a file, durably, under a name that nobody uses; answers that path."""
        with self.parent(path) as (here, name), told(path):
            mode = _mode(here, name, path)
            temp, file = _new(here)
            try:
                if mode is not None:
                    os.fchmod(file, mode)
                _write_all(file, text.encode())
                os.fsync(file)
            finally:
                os.close(file)
        reach("temp.written")
        return path[: len(path) - len(name)] + temp

    def rename(self, old: str, new: str) -> None:
        """Put a file in the place of another of the same folder."""
        with self.parent(new) as (here, name), told(new):
            _mode(here, name, new)
            os.rename(old.rsplit("/", 1)[-1], name, src_dir_fd=here, dst_dir_fd=here)

    def remove(self, path: str) -> None:
        """Take a file away; fine if it is gone already."""
        with contextlib.suppress(NotFound), self.parent(path) as (here, name), told(path):
            os.unlink(name, dir_fd=here)

    def sync(self, path: str) -> None:
        """Make the names in a file's folder durable."""
        with self.parent(path) as (here, _), told(path):
            os.fsync(here)

    def sweep(self, path: str) -> None:
        """Remove what killed writers left in a file's folder. Only for who has the turn to write."""
        with self.parent(path) as (here, _), told(path):
            for name in os.listdir(here):
                if name.startswith(TEMP_PREFIX) and name.endswith(TEMP_SUFFIX):
                    os.unlink(name, dir_fd=here)

    @contextlib.contextmanager
    def turn(self, *, patience: float = 10.0, pause: Callable[[float], None] = time.sleep) -> Iterator[None]:
        """Hold the OS lock of this folder. Raises Busy when the turn does not come in time."""
        with self.parent(LOCK_FILE) as (here, name), told(LOCK_FILE):
            file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=here)
        try:
            for _ in range(max(1, round(patience / _BETWEEN_TRIES))):
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    pause(_BETWEEN_TRIES)
            else:
                raise Busy("another process is writing the session's files", hint="try again in a moment")
            reach("file.locked")
            yield
        finally:
            os.close(file)  # which frees the lock


@contextlib.contextmanager
def _opened(name: str, flags: int, here: int) -> Iterator[int]:
    file = os.open(name, flags, dir_fd=here)
    try:
        yield file
    finally:
        os.close(file)


def _new(here: int) -> tuple[str, int]:
    """A new file under a name that nobody uses: who has the turn is the only one to make such files."""
    for number in range(_MANY):
        name = f"{TEMP_PREFIX}{os.getpid()}-{number}{TEMP_SUFFIX}"
        with contextlib.suppress(FileExistsError):
            return name, os.open(name, _WRITE, 0o666, dir_fd=here)
    raise IOFailed(f"{_MANY} temporary files are in the way", hint=f"remove {TEMP_PREFIX}*{TEMP_SUFFIX}")


def _mode(here: int, name: str, path: str) -> int | None:
    """The permissions of the plain file that is there; None for no file."""
    try:
        status = os.stat(name, dir_fd=here, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        raise Invalid(f"{path} is a symlink, which is not followed", hint="name the file itself", path=path)
    if not stat.S_ISREG(status.st_mode):
        raise Invalid(f"{path} is not a plain file", path=path)
    return stat.S_IMODE(status.st_mode)


def _read_all(file: int, path: str) -> bytes:
    parts = []
    size = 0
    while part := os.read(file, 1 << 20):
        parts.append(part)
        size += len(part)
        if size > MAX_BYTES:
            raise TooLarge(f"{path} has more than {MAX_BYTES} bytes", limit=MAX_BYTES)
    return b"".join(parts)


def _write_all(file: int, raw: bytes) -> None:
    while raw:
        raw = raw[os.write(file, raw) :]


class Step(msgspec.Struct, frozen=True):
    """One file's replacement: the temporary file that has its new content, and what it replaces."""

    path: str
    temp: str
    new: str  # sha256
    old: str | None  # sha256; None where there was no file
    old_text: str | None


class _Journal(msgspec.Struct, frozen=True):
    steps: list[Step]


def replace(folder: Folder, texts: dict[str, str], before: dict[str, str | None]) -> None:
    """Give files new contents. `before` is what was read of each, and is what an undoing restores."""
    reach("commit.begun")
    for path in texts:
        folder.sweep(path)
    steps = [
        Step(path, folder.temp(path, text), digest(text) or "", digest(before[path]), before[path])
        for path, text in texts.items()
    ]
    if len(steps) == 1:  # one rename is all or nothing by itself
        folder.rename(steps[0].temp, steps[0].path)
        reach("file.replaced")
        folder.sync(steps[0].path)
        return
    for path in texts:
        folder.sync(path)
    folder.rename(folder.temp(JOURNAL, msgspec.json.encode(_Journal(steps)).decode()), JOURNAL)
    folder.sync(JOURNAL)
    reach("journal.written")
    _finish(folder, steps)


def recover(folder: Folder) -> bool:
    """Finish or undo what a killed writer began; True if there was something."""
    text = folder.read(JOURNAL)
    if text is None:
        return False
    try:
        steps = msgspec.json.decode(text, type=_Journal).steps
    except msgspec.DecodeError as error:
        raise Corrupt(
            f"{JOURNAL} cannot be read: {error}", hint="look at the session's files, then move the journal away"
        ) from error
    if any(_foreign(folder, step) for step in steps):
        _undo(folder, steps)
    else:
        _finish(folder, steps)
    return True


def is_pending(folder: Folder) -> bool:
    """True where a replacement is under way, or was left unfinished."""
    return folder.signature(JOURNAL) is not None


def _foreign(folder: Folder, step: Step) -> bool:
    """True if the file was not replaced yet and is no longer what was to be replaced."""
    return folder.signature(step.temp) is not None and digest(folder.read(step.path)) not in (step.old, step.new)


def _finish(folder: Folder, steps: list[Step]) -> None:
    for step in steps:
        if folder.signature(step.temp) is not None:
            folder.rename(step.temp, step.path)
            reach("file.replaced")
    _end(folder, steps)


def _undo(folder: Folder, steps: list[Step]) -> None:
    for step in steps:
        if folder.signature(step.temp) is not None:
            continue  # not replaced: it is as it was, or as somebody else made it
        if digest(folder.read(step.path)) != step.new:
            continue  # somebody edited the new content: that stays
        if step.old_text is None:
            folder.remove(step.path)
        else:
            folder.rename(folder.temp(step.path, step.old_text), step.path)
    _end(folder, steps)


def _end(folder: Folder, steps: list[Step]) -> None:
    for step in steps:
        folder.sync(step.path)
    reach("files.replaced")
    folder.remove(JOURNAL)
    folder.sync(JOURNAL)
    for step in steps:
        folder.remove(step.temp)
    reach("journal.removed")
