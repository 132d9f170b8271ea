"""The files of one folder, touched safely.

Every path is walked from the folder's own descriptor, one name at a time, and no symlink is followed; what is no plain
file is refused. Writers take turns by an OS lock on a file beside the ledger, which the kernel frees when a process
dies; the wait for it is bounded. Only `journal` writes, through `Folder.temp` and `Folder.rename`.
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

from holdfast.errors import Busy, DiskFull, Invalid, IOFailed, NotFound, ReadOnly, TooLarge
from holdfast.turnfile.failpoints import reach

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
