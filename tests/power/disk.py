"""A disk that remembers: every operation that reaches the files of one folder, in order, on a `Tape`.

Inside `recorded(folder)` a VFS of ours is SQLite's default, so that every connection of the process goes through it,
also those that know nothing of it; `os.open`, `link`, `unlink`, `replace`, `mkdir` and `fsync` are listened to as
well. Everything is passed on to real files: locks and shared memory work as always. That SQLite syncs a folder is not
assumed but seen, by the system call that opens it. Not on the tape are reads, `-shm` files, which no crash keeps, and
the content of files that are written without SQLite, which nothing rests on; except the note of the last commit, which
is never synced, so that it may be missing or older, but never newer than the store. Close every connection before the
end of the block.
"""

from __future__ import annotations

import ctypes
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import apsw

from holdfast.kernel.store_files import MARK

NAME = "recording"
SUM: Final = ".sha256"
FOLDER: Final = 0  # where the entry of a folder leads; files are numbered from 1


class Write(NamedTuple):
    """Bytes written to a file; files have numbers, because names come and go."""

    file: int
    offset: int
    data: bytes


class Truncate(NamedTuple):
    """A file's new size."""

    file: int
    size: int


class Entry(NamedTuple):
    """A name that leads to this file from now on, or to nothing."""

    path: str
    file: int | None


class Sync(NamedTuple):
    """A file was synced: what was recorded on it before this number is durable."""

    file: int
    before: int


class SyncFolder(NamedTuple):
    """A folder was synced: its entries recorded before this number are durable."""

    folder: str
    before: int


class Mark(NamedTuple):
    """A call has returned: the store must show this promise from now on, or the file of this name be there."""

    promise: int | str


Operation = Write | Truncate | Entry | Sync | SyncFolder | Mark


class Tape:
    """What has happened below a folder since the recording began. Its paths are relative to the folder."""

    def __init__(self, root: Path) -> None:
        self.root = os.path.realpath(root)
        self.start = contents(root)
        self.operations: list[Operation] = []
        self._names = {path: number for number, path in enumerate(self.start, FOLDER + 1)}
        self._newest = len(self.start)
        self._lock = threading.RLock()
        self._here = threading.local()

    def relative(self, path: str | os.PathLike[str]) -> str | None:
        """The path below the folder, or None if it lies elsewhere."""
        folder, name = os.path.split(os.fspath(path))
        full = os.path.join(os.path.realpath(folder), name)
        return os.path.relpath(full, self.root) if full.startswith(self.root + os.sep) else None

    def add(self, operation: Operation) -> None:
        """Record it."""
        with self._lock:
            self.operations.append(operation)

    def file_at(self, path: str) -> int:
        """The number of the file of this name, which was just made if it is new."""
        with self._lock:
            if path not in self._names:
                self._newest += 1
                self._names[path] = self._newest
                self.add(Entry(path, self._newest))
            return self._names[path]

    def linked(self, path: str, other: str) -> None:
        """A file has a second name."""
        with self._lock:
            self._names[other] = self.file_at(path)
            self.add(Entry(other, self._names[other]))

    def renamed(self, path: str, other: str) -> None:
        """A file has this name instead. A disk may keep only one of the two entries, as with a link."""
        self.linked(path, other)
        self.removed(path)

    def removed(self, path: str) -> None:
        """A name is gone."""
        with self._lock:
            if self._names.pop(path, None) is not None:
                self.add(Entry(path, None))

    @contextmanager
    def syncing(self, file: int | None) -> Iterator[None]:
        """Around a call of SQLite that syncs a file, or a folder; what is recorded meanwhile comes too late for it."""
        before, self._here.folder = len(self.operations), None
        yield
        if file is not None:
            self.add(Sync(file, before))
        if self._here.folder is not None:
            self.add(SyncFolder(self._here.folder, before))

    def opens_folder_of(self, path: str) -> None:
        """SQLite opens the folder of a file, which it does only to sync it."""
        found = self.relative(path)
        self._here.folder = None if found is None else os.path.dirname(found)

    def descriptor_synced(self, descriptor: int, before: int) -> None:
        """Python has synced a file or folder; it is recorded if it is one of ours."""
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            for folder, _, _ in os.walk(self.root):
                if os.path.samestat(found, os.stat(folder)):
                    self.add(SyncFolder("" if folder == self.root else os.path.relpath(folder, self.root), before))
            return
        for path, file in list(self._names.items()):
            if os.path.samestat(found, os.stat(os.path.join(self.root, path))):
                self.add(Sync(file, before))
                return


def contents(root: Path) -> dict[str, bytes]:
    """Every file below a folder that belongs on a tape."""
    names = {path.relative_to(root).as_posix(): path for path in sorted(root.rglob("*")) if path.is_file()}
    return {name: path.read_bytes() for name, path in names.items() if not name.endswith(("-shm", ".gitignore"))}


# --- SQLite ----------------------------------------------------------------------------------------------------------

_OPEN_DIRECTORY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, use_errno=True)


class _File(apsw.VFSFile):
    def __init__(self, vfs: str, tape: Tape, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__(vfs, name, flags)
        self._tape = tape
        text = name.filename() if isinstance(name, apsw.URIFilename) else name
        path = None if text is None else tape.relative(text)
        self._file = None if path is None else tape.file_at(path)
        self._read_only = bool(flags[0] & apsw.SQLITE_OPEN_READONLY)

    def xLock(self, level: int) -> None:
        try:
            super().xLock(level)
        except apsw.IOError as error:
            if not self._read_only:
                raise
            # SQLite tries it as it closes, and goes on without; APSW forgets a BusyError then, and raises all others.
            raise apsw.BusyError("a file opened for reading cannot be locked for writing") from error

    def xWrite(self, data: bytes, offset: int) -> None:
        if self._file is not None:
            self._tape.add(Write(self._file, offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        if self._file is not None:
            self._tape.add(Truncate(self._file, newsize))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        with self._tape.syncing(self._file):
            super().xSync(flags)


class _VFS(apsw.VFS):
    def __init__(self, tape: Tape) -> None:
        self._base = "unix"  # what is recorded is what reaches the disk
        self._tape = tape
        super().__init__(NAME, self._base, makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return _File(self._base, self._tape, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        path = self._tape.relative(filename)
        if path is not None:
            self._tape.removed(path)
        with self._tape.syncing(None):
            super().xDelete(filename, syncdir)


# --- Python ----------------------------------------------------------------------------------------------------------


def _listening(tape: Tape) -> dict[str, Callable[..., Any]]:
    """The functions of `os` that change folders or sync, made to tell the tape."""
    real_open, real_link, real_unlink, real_mkdir, real_fsync = os.open, os.link, os.unlink, os.mkdir, os.fsync
    real_pwrite, real_write, real_replace = os.pwrite, os.write, os.replace
    marks: dict[int, int] = {}  # the file of a descriptor
    sums: dict[int, int] = {}

    def open_(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        descriptor = real_open(path, flags, *args, **kwargs)
        found = tape.relative(path) if flags & os.O_CREAT else None
        marks.pop(descriptor, None)
        sums.pop(descriptor, None)
        if found is not None:
            file = tape.file_at(found)
            if os.path.basename(found) == MARK:
                marks[descriptor] = file
            elif SUM in os.path.basename(found):
                sums[descriptor] = file
        return descriptor

    def pwrite(descriptor: int, data: bytes, offset: int) -> int:
        if descriptor in marks:
            tape.add(Write(marks[descriptor], offset, bytes(data)))
        return real_pwrite(descriptor, data, offset)

    def write(descriptor: int, data: bytes) -> int:
        if descriptor in sums:  # which grow by each write
            tape.add(Write(sums[descriptor], os.fstat(descriptor).st_size, bytes(data)))
        return real_write(descriptor, data)

    def link(source: Any, target: Any, **kwargs: Any) -> None:
        real_link(source, target, **kwargs)
        old, new = tape.relative(source), tape.relative(target)
        if old is not None and new is not None:
            tape.linked(old, new)

    def unlink(path: Any, **kwargs: Any) -> None:
        real_unlink(path, **kwargs)
        found = None if "dir_fd" in kwargs else tape.relative(path)
        if found is not None:
            tape.removed(found)

    def replace(source: Any, target: Any, **kwargs: Any) -> None:
        real_replace(source, target, **kwargs)
        old, new = tape.relative(source), tape.relative(target)
        if old is not None and new is not None:
            tape.renamed(old, new)

    def mkdir(path: Any, *args: Any, **kwargs: Any) -> None:
        real_mkdir(path, *args, **kwargs)
        found = tape.relative(path)
        if found is not None:
            tape.add(Entry(found, FOLDER))

    def fsync(descriptor: int) -> None:
        before = len(tape.operations)
        real_fsync(descriptor)
        tape.descriptor_synced(descriptor, before)

    heard = (open_, link, unlink, replace, mkdir, fsync, pwrite, write)
    return {function.__name__.rstrip("_"): function for function in heard}


@contextmanager
def recorded(root: Path) -> Iterator[Tape]:
    """Record what happens below a folder."""
    tape = Tape(root)
    listening = _listening(tape)
    real = {name: getattr(os, name) for name in listening}
    vfs = _VFS(tape)
    real_open_directory = _OPEN_DIRECTORY(vfs.xGetSystemCall("openDirectory") or 0)

    def open_directory(path: bytes, descriptor: int) -> int:
        tape.opens_folder_of(os.fsdecode(path))
        return int(real_open_directory(path, descriptor))

    hook = _OPEN_DIRECTORY(open_directory)  # kept as long as SQLite may call it
    try:
        vfs.xSetSystemCall("openDirectory", ctypes.cast(hook, ctypes.c_void_p).value or 0)
        for name, function in listening.items():
            setattr(os, name, function)
        yield tape
    finally:
        for name, function in real.items():
            setattr(os, name, function)
        vfs.xSetSystemCall("openDirectory", 0)
        vfs.unregister()
