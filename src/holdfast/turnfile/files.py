"""The files of one folder, replaced safely: one at a time, or several together through a journal.

Each path is walked from the folder's own descriptor, one name at a time; symlinks are not followed and only regular
files are opened. Writers exclude each other by an OS lock on a file in the folder, which the kernel frees when a
process dies; the wait for it is bounded.

To replace several files, their new contents are written and synced under temporary names, then a journal that lists
them: from that moment on the replacement happens, whoever dies. Each file is renamed into place and the journal is
removed. The next process that finds a journal finishes it. If an editor without our lock has changed a file that is
not replaced yet, its change is kept and the other files are restored. Guarantee: after `recover`, no reader sees some
files new and others old, and nobody's edit is overwritten.

`reach` marks the failpoints of the tests. Called by `session`, by `mail.export` and by the editor of the command line.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import itertools
import os
import stat
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final

import msgspec

from holdfast.errors import Busy, Corrupt, DiskFull, Invalid, IOFailed, NotFound, ReadOnly, TooLarge

NAMES: Final = (
    "file.locked",  # the write lock is held, nothing is read
    "commit.begun",  # the new texts are known, nothing is written
    "temp.written",  # the new content of one file is durable under another name
    "journal.written",  # the journal is durable: from here on the replacement happens
    "file.replaced",  # one file has its new content
    "files.replaced",  # all files have
    "journal.removed",  # nothing is left to do
    "lock.acquired",  # the ledger lists our lock
    "body.done",  # the edits are made in memory
    "targets.checked",  # lock, files and invariants are checked, nothing is written
    "lock.released",  # all is written, the call has not returned
)

hook: Callable[[str], None] | None = None


def reach(name: str) -> None:
    """Call the hook of a test, if there is one."""
    if hook is not None:
        hook(name)


MAX_BYTES: Final = 16 * 1024 * 1024
LOCK_FILE: Final = ".TURNFILE.lock"
TEMP_PREFIX: Final = ".turn-"
TEMP_SUFFIX: Final = ".tmp"
JOURNAL: Final = ".TURNFILE.journal"

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # opening a pipe must not block
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_WALK: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MANY: Final = 1000  # far more files than any transaction
_NO_LINKS: Final = (errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS, errno.EXDEV)
_BETWEEN_TRIES: Final = 0.005  # seconds


def is_internal(path: str) -> bool:
    """Whether a path is the lock, the journal or a temporary file, which nobody may edit."""
    name = path.rsplit("/", 1)[-1].casefold()  # some file systems ignore case
    return name in (LOCK_FILE.casefold(), JOURNAL.casefold()) or name.startswith(TEMP_PREFIX)


def digest(text: str | None) -> str | None:
    """The SHA-256 of a file's text; None for no file."""
    if text is None:
        return None
    found = hashlib.sha256()
    for part in _encoded(text):
        found.update(part)
    return found.hexdigest()


_PART: Final = 1 << 16  # characters


def _encoded(text: str) -> Iterator[bytes]:
    """The bytes of a text in parts: most of what a copy of a large one costs is fresh memory."""
    return (text[at : at + _PART].encode() for at in range(0, len(text), _PART))


def _has(file: BinaryIO, text: str) -> bool:
    """Whether a file that was just opened has this text."""
    return all(file.read(len(part)) == part for part in _encoded(text)) and not file.read(1)


@functools.lru_cache(maxsize=16)
def _latest(folder: str, path: str) -> list[str]:
    """The text that a file had when it was read last, if it was; mostly it still has the same, and is compared only."""
    return []


@contextlib.contextmanager
def os_errors(path: str) -> Iterator[None]:
    """Turn errors of the operating system about a path into ours."""
    try:
        yield
    except OSError as error:
        words = f"{path}: {error.strerror or error}"
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise Invalid(f"{path}: symlinks are not followed", hint="name the file itself") from error
        if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ENXIO):
            raise Invalid(words) from error
        if error.errno == errno.ENOENT:
            raise NotFound(f"{path}: no such file or folder") from error
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(words) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise ReadOnly(words) from error
        raise IOFailed(words) from error


class Folder:
    """A folder, and the files in and below it. Paths are relative, normalized, and separated by slashes."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)

    @contextlib.contextmanager
    def parent(self, path: str) -> Iterator[tuple[int, str]]:
        """The descriptor of the folder that holds a file, and the file's name."""
        *folders, name = path.split("/")
        if not name or any(part in ("", ".", "..") for part in [*folders, name]):
            raise Invalid(f"{path!r} is not a file of this folder", path=path)
        with os_errors(path):
            here = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                for part in folders:
                    below = os.open(part, _WALK, dir_fd=here)
                    os.close(here)
                    here = below
                yield here, name
            finally:
                os.close(here)

    def read(self, path: str, *, strict: bool = True) -> str | None:
        """The text of a file with its line ends unchanged; None if it does not exist.

        Unless `strict`, what cannot be read as text is replaced or left out: the rest of the file still counts.
        """
        latest = _latest(self.path, path)
        try:
            with self.parent(path) as (here, name), _opened(name, _READ, here) as file:
                status = os.fstat(file)
                if not stat.S_ISREG(status.st_mode):
                    if not strict:
                        return None
                    raise _not_regular(path, status.st_mode)
                with open(file, "rb", closefd=False) as content:
                    for text in latest[:1]:
                        if _has(content, text):
                            return text
                        content.seek(0)
                    raw = content.read(min(status.st_size, MAX_BYTES) + 1)
                    if len(raw) > status.st_size:  # it has grown
                        raw += content.read(MAX_BYTES)
        except NotFound:
            return None
        if len(raw) > MAX_BYTES:
            if not strict:
                return raw[:MAX_BYTES].decode(errors="replace")
            raise TooLarge(f"{path} has more than {MAX_BYTES} bytes", limit=MAX_BYTES)
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            if not strict:
                return raw.decode(errors="replace")
            raise Invalid(f"{path} is not UTF-8 at byte {error.start}", hint="save it as UTF-8", path=path) from error
        latest[:] = [text]
        return text

    def digest(self, path: str) -> str | None:
        """The SHA-256 of a file of any size and content; None if it does not exist."""
        try:
            with self.parent(path) as (here, name), os_errors(path), _opened(name, _READ, here) as file:
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    raise _not_regular(path, os.fstat(file).st_mode)
                with open(file, "rb", closefd=False) as content:
                    return hashlib.file_digest(content, "sha256").hexdigest()
        except NotFound:
            return None

    def has(self, path: str) -> bool:
        """Whether the file exists. Raises Invalid if the path is not a regular file."""
        try:
            with self.parent(path) as (here, name), os_errors(path):
                return _mode(here, name, path) is not None
        except NotFound:
            return False

    def signature(self, path: str) -> tuple[int, int, int] | None:
        """A value that changes when the file is replaced or edited; None if it does not exist."""
        try:
            with self.parent(path) as (here, name), os_errors(path):
                status = os.stat(name, dir_fd=here, follow_symlinks=False)
        except NotFound:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def make(self, path: str) -> None:
        """Create the folders that a file needs, below this one."""
        parts = path.split("/")[:-1]
        for known in range(1, len(parts) + 1):
            with self.parent("/".join(parts[:known])) as (here, name), contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=here)
                os.fsync(here)

    def temp(self, path: str, text: str) -> str:
        """Write and sync a text under an unused name beside a file; returns that path."""
        with self.parent(path) as (here, name), os_errors(path):
            mode = _mode(here, name, path)
            temp, file = _new(here)
            with open(file, "wb") as out:
                if mode is not None:
                    os.fchmod(file, mode)
                out.writelines(_encoded(text))
                out.flush()
                os.fsync(file)
        reach("temp.written")
        return path[: len(path) - len(name)] + temp

    def keep(self, path: str, text: str) -> str:
        """Keep the content of a file, which is `text`, under an unused name beside it; returns that path.

        By a second link to the file, which costs nothing; by a copy where the file system has no links.
        """
        with self.parent(path) as (here, name), os_errors(path):
            for number in range(_MANY):
                temp = f"{TEMP_PREFIX}{os.getpid()}-{number}-old{TEMP_SUFFIX}"
                try:
                    os.link(name, temp, src_dir_fd=here, dst_dir_fd=here, follow_symlinks=False)
                except FileExistsError:
                    continue
                except OSError as error:
                    if error.errno not in _NO_LINKS:
                        raise
                    break
                return path[: len(path) - len(name)] + temp
        return self.temp(path, text)

    def rename(self, old: str, new: str) -> None:
        """Rename a file over another one of the same folder."""
        with self.parent(new) as (here, name), os_errors(new):
            _mode(here, name, new)
            os.rename(old.rsplit("/", 1)[-1], name, src_dir_fd=here, dst_dir_fd=here)

    def remove(self, path: str) -> None:
        """Remove a file; a missing one is no error."""
        with contextlib.suppress(NotFound), self.parent(path) as (here, name), os_errors(path):
            os.unlink(name, dir_fd=here)

    def sync(self, path: str) -> None:
        """Sync the folder of a file."""
        with self.parent(path) as (here, _), os_errors(path):
            os.fsync(here)

    def sweep(self, path: str) -> None:
        """Remove temporary files of killed writers beside a file. The caller holds the write lock."""
        with self.parent(path) as (here, _), os_errors(path):
            for name in os.listdir(here):
                if name.startswith(TEMP_PREFIX) and name.endswith(TEMP_SUFFIX):
                    os.unlink(name, dir_fd=here)

    @contextlib.contextmanager
    def write_lock(self, *, timeout: float = 10.0, pause: Callable[[float], None] = time.sleep) -> Iterator[None]:
        """Hold the OS lock of this folder. Raises Busy after `timeout` seconds."""
        with self.parent(LOCK_FILE) as (here, name), os_errors(LOCK_FILE):
            file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=here)
        try:
            for _ in range(max(1, round(timeout / _BETWEEN_TRIES))):
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    pause(_BETWEEN_TRIES)
            else:
                raise Busy("another process is writing the session's files", hint="retry in a moment")
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
    """Create a temporary file under an unused name: only the holder of the write lock creates such files."""
    for number in range(_MANY):
        name = f"{TEMP_PREFIX}{os.getpid()}-{number}{TEMP_SUFFIX}"
        with contextlib.suppress(FileExistsError):
            return name, os.open(name, _WRITE, 0o666, dir_fd=here)
    raise IOFailed(f"the folder has {_MANY} temporary files", hint=f"move {TEMP_PREFIX}*{TEMP_SUFFIX} away")


def _mode(here: int, name: str, path: str) -> int | None:
    """The permissions of a regular file; None if it does not exist."""
    try:
        status = os.stat(name, dir_fd=here, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        raise Invalid(f"{path} is a symlink; symlinks are not followed", hint="name the file itself", path=path)
    if not stat.S_ISREG(status.st_mode):
        raise _not_regular(path, status.st_mode)
    return stat.S_IMODE(status.st_mode)


def _not_regular(path: str, mode: int) -> Invalid:
    if stat.S_ISDIR(mode):
        return Invalid(f"{path} is a folder", hint="name each file in it", path=path)
    return Invalid(f"{path} is not a regular file", path=path)


def numbered(folder: Folder, first: str) -> Iterator[str]:
    """The files of a series that exist (`A.md`, `A_2.md`, `A_3.md`), in order."""
    return itertools.takewhile(lambda path: folder.signature(path) is not None, _series(first))


def not_full(folder: Folder, first: str, full: int, check: Callable[[str, str], None]) -> str:
    """The first file of a series with fewer bytes than that to which lines can be added, or that does not exist.

    A file that cannot be read, or for which `check` raises Invalid, takes no more: the next number begins.
    """
    return next(path for path in _series(first) if _takes_more(folder, path, full, check))


def _takes_more(folder: Folder, path: str, full: int, check: Callable[[str, str], None]) -> bool:
    found = folder.signature(path)
    if found is None or found[1] >= full:
        return found is None
    try:
        check(path, folder.read(path) or "")
    except Invalid:
        return False
    return True


def _series(first: str) -> Iterator[str]:
    return (first if number == 1 else first.replace(".", f"_{number}.") for number in itertools.count(1))


class Replacement(msgspec.Struct, frozen=True):
    """The replacement of one file: the temporary files with its new content and with the old."""

    path: str
    temp: str
    new: str  # sha256
    old: str | None  # sha256; None where there was no file
    kept: str | None


class _Journal(msgspec.Struct, frozen=True):
    steps: list[Replacement]


def replace(folder: Folder, texts: dict[str, str], before: dict[str, str | None]) -> None:
    """Give files new contents. `before` has their current texts, which an undo restores."""
    reach("commit.begun")
    for path in texts:
        folder.sweep(path)
    steps = [
        Replacement(path, folder.temp(path, text), digest(text) or "", digest(before[path]), None)
        for path, text in texts.items()
    ]
    if len(steps) == 1:  # a single rename is atomic by itself
        folder.rename(steps[0].temp, steps[0].path)
        reach("file.replaced")
        folder.sync(steps[0].path)
        return
    steps = [_with_old(folder, step, before[step.path]) for step in steps]
    for path in texts:
        folder.sync(path)
    folder.rename(folder.temp(JOURNAL, msgspec.json.encode(_Journal(steps)).decode()), JOURNAL)
    folder.sync(JOURNAL)
    reach("journal.written")
    _finish(folder, steps)


def _with_old(folder: Folder, step: Replacement, text: str | None) -> Replacement:
    """The replacement with the old content of its file under another name, for an undo."""
    return step if text is None else msgspec.structs.replace(step, kept=folder.keep(step.path, text))


def recover(folder: Folder) -> bool:
    """Finish or undo the replacement of a killed writer; True if there was one."""
    text = folder.read(JOURNAL)
    if text is None:
        return False
    try:
        steps = msgspec.json.decode(text, type=_Journal).steps
    except msgspec.DecodeError as error:
        hint = "inspect the session's files, then move the journal away"
        raise Corrupt(f"{JOURNAL} cannot be read: {error}", hint=hint) from error
    if any(_edited_by_others(folder, step) for step in steps):
        _undo(folder, steps)
    else:
        _finish(folder, steps)
    return True


def is_pending(folder: Folder) -> bool:
    """Whether a replacement is under way or unfinished."""
    return folder.signature(JOURNAL) is not None


def _edited_by_others(folder: Folder, step: Replacement) -> bool:
    """Whether a file that is not replaced yet has been changed since the journal was written."""
    return folder.signature(step.temp) is not None and digest(folder.read(step.path)) not in (step.old, step.new)


def _finish(folder: Folder, steps: list[Replacement]) -> None:
    for step in steps:
        if folder.signature(step.temp) is not None:
            folder.rename(step.temp, step.path)
            reach("file.replaced")
    _end(folder, steps)


def _undo(folder: Folder, steps: list[Replacement]) -> None:
    for step in steps:
        if folder.signature(step.temp) is not None:
            continue  # not replaced: it has its old text, or somebody else's edit
        if digest(folder.read(step.path)) != step.new:
            continue  # somebody edited the new text: keep that
        if step.kept is None:
            folder.remove(step.path)
        else:
            folder.rename(step.kept, step.path)
    _end(folder, steps)


def _end(folder: Folder, steps: list[Replacement]) -> None:
    for step in steps:
        folder.sync(step.path)
    reach("files.replaced")
    folder.remove(JOURNAL)
    folder.sync(JOURNAL)
    for path in (path for step in steps for path in (step.temp, step.kept) if path is not None):
        folder.remove(path)
    reach("journal.removed")
