"""Disks that fail on purpose: SQLite's own system calls made to answer an error at the n-th call.

Writes, reads and truncations are failed below SQLite, through the table of system calls that its unix VFS lets one
replace: SQLite sees a real errno and reacts as it would on a real disk. `fdatasync` is not in that table, so syncs are
failed by a VFS of ours, named `NAME`; open the workspace with it. The table belongs to the process: one `Disk` at a
time, and its faults reach every SQLite file of the process while they are armed.
"""

from __future__ import annotations

import ctypes
import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import apsw

NAME = "faulty"
Call = Literal["write", "read", "truncate", "sync"]

_TRANSFER = ctypes.CFUNCTYPE(
    ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_longlong, use_errno=True
)
_TRUNCATE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_longlong, use_errno=True)
# SQLite uses one of each pair, whichever the platform has.
_SYSTEM_CALLS: tuple[tuple[str, Call, Any], ...] = (
    ("pwrite", "write", _TRANSFER),
    ("pwrite64", "write", _TRANSFER),
    ("pread", "read", _TRANSFER),
    ("pread64", "read", _TRANSFER),
    ("ftruncate", "truncate", _TRUNCATE),
)


class Fault(NamedTuple):
    """What fails: the n-th call of its kind, alone or with all that follow until it is lifted."""

    call: Call
    number: int
    errno: int = errno.EIO
    lasting: bool = False


class Disk:
    """Counts SQLite's calls and fails those that the armed fault names."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fault: Fault | None = None
        self._calls = 0
        self.hits = 0

    @contextmanager
    def failing(self, fault: Fault) -> Iterator[None]:
        """Arm a fault for the block; `hits` says how often it struck."""
        with self._lock:
            self._fault, self._calls, self.hits = fault, 0, 0
        try:
            yield
        finally:
            self.lift()

    @contextmanager
    def with_room_for(self, writes: int) -> Iterator[None]:
        """A disk on which so many writes succeed before it is full."""
        with self.failing(Fault("write", writes + 1, errno.ENOSPC, lasting=True)):
            yield

    def lift(self) -> None:
        """The cause is gone: every call works again."""
        with self._lock:
            self._fault = None

    def error(self, call: Call) -> int:
        """The errno that this call shall fail with, or 0."""
        with self._lock:
            fault = self._fault
            if fault is None or fault.call != call:
                return 0
            self._calls += 1
            if self._calls == fault.number or (fault.lasting and self._calls > fault.number):
                self.hits += 1
                return fault.errno
            return 0


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._disk = disk

    def xSync(self, flags: int) -> None:
        if self._disk.error("sync"):
            error = apsw.IOError("the disk failed to sync")
            error.extendedresult = apsw.SQLITE_IOERR_FSYNC  # type: ignore[attr-defined]  # apsw hands it to SQLite
            raise error
        super().xSync(flags)


class _VFS(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        super().__init__(NAME, "")
        self._disk = disk

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return _File(self._disk, name, flags)


@contextmanager
def faulty_disk() -> Iterator[Disk]:
    """Put a Disk under SQLite for the block; close every workspace that uses it before the end."""
    disk = Disk()
    vfs = _VFS(disk)
    kept: list[Any] = []  # as long as SQLite may call them
    try:
        for name, call, prototype in _SYSTEM_CALLS:
            address = vfs.xGetSystemCall(name)
            if address:
                hook = prototype(_failing(disk, call, prototype(address)))
                kept.append(hook)
                vfs.xSetSystemCall(name, ctypes.cast(hook, ctypes.c_void_p).value or 0)
        yield disk
    finally:
        for name, _, _ in _SYSTEM_CALLS:
            vfs.xSetSystemCall(name, 0)
        vfs.unregister()


def _failing(disk: Disk, call: Call, real: Callable[..., int]) -> Callable[..., int]:
    def system_call(*args: int) -> int:
        wrong = disk.error(call)
        if wrong:
            ctypes.set_errno(wrong)
            return -1
        return real(*args)

    return system_call
