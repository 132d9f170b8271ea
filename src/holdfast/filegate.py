"""`FileGate`: fencing for a resource outside the workspace, such as a file, a device or a deployment target.

The gate stores durably, beside the resource, the highest token it has admitted, and refuses lower ones. A holder that
lost its lock while it was paused cannot pass after its successor has.
"""

from __future__ import annotations

import fcntl
import os
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast import errors
from holdfast.filesystem import sync
from holdfast.kernel.translation import system_error

_inside = threading.local()  # the gates that the current thread is inside


class FileGate:
    """Guards the body of `with gate.admit(token):`; any number of processes may share the file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.path.abspath(path)

    @contextmanager
    def admit(self, token: int) -> Iterator[None]:
        """Admit the highest token so far or a higher one, one caller at a time. Raises Fenced for a lower one."""
        if type(token) is not int or not 0 <= token < 2**63:
            raise errors.Invalid(f"a token is an integer as granted by a lock, not {token!r:.40}")
        inside = _inside.__dict__.setdefault("paths", set())
        if self._path in inside:
            raise errors.Reentrant("this thread is already inside the gate", hint="leave it first")
        descriptor = self._open()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            highest = _parse(os.pread(descriptor, 2 * _SLOT, 0))
            if token < highest:
                raise errors.Fenced(f"token {token} is older than the admitted {highest}", current=highest)
            if token > highest:
                _write(descriptor, token)
            inside.add(self._path)
            yield
        except OSError as error:
            raise system_error(error, f"the gate {self._path} cannot be used") from error
        finally:
            inside.discard(self._path)
            os.close(descriptor)

    def _open(self) -> int:
        try:
            new = not os.path.exists(self._path)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            if new:
                sync(os.path.dirname(os.path.abspath(self._path)))
            return descriptor
        except FileNotFoundError as error:
            folder = os.path.dirname(self._path)
            raise errors.NotFound(f"there is no folder {folder} for the gate", hint="create it first") from error
        except OSError as error:
            raise system_error(error, f"the gate {self._path} cannot be used") from error

    @property
    def highest(self) -> int:
        """The highest token admitted so far, 0 if none."""
        if not os.path.lexists(self._path):
            return 0
        descriptor = self._open()
        try:
            return _parse(os.pread(descriptor, 2 * _SLOT, 0))
        finally:
            os.close(descriptor)


# Two slots of fixed width, each a token and its checksum, written in turn: if a crash tears one, the other is intact.
_SLOT = 32


def _parse(data: bytes) -> int:
    slots = [_parse_slot(data[start : start + _SLOT]) for start in (0, _SLOT)]
    if len(data) > _SLOT and max(slots) < 0:
        raise errors.Corrupt("the gate's file is damaged", hint="find out the highest admitted token first")
    return max(0, *slots)  # a single torn slot was never acknowledged


def _parse_slot(slot: bytes) -> int:
    digits = slot[:23]
    return int(digits) if digits.isdigit() and slot == _slot(digits) else -1


def _slot(digits: bytes) -> bytes:
    return digits + b"%08x\n" % zlib.crc32(digits)


def _write(descriptor: int, token: int) -> None:
    data = os.pread(descriptor, 2 * _SLOT, 0)
    first, second = (_parse_slot(data[start : start + _SLOT]) for start in (0, _SLOT))
    os.pwrite(descriptor, _slot(b"%023d" % token), 0 if first <= second else _SLOT)
    os.fsync(descriptor)
