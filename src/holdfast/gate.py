"""`FileGate`: fencing for a resource outside the workspace, such as a file, a device or a deployment target.

The gate remembers, durably and beside the resource, the highest token it has let in, and refuses lower ones. A holder
that lost its lock while it was paused cannot get past a successor that has come through.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast import errors


class FileGate:
    """Guards whatever is done inside `with gate.admit(token):`; any number of processes may share the file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)

    @contextmanager
    def admit(self, token: int) -> Iterator[None]:
        """Let in the highest token so far, or one higher; a lower one gets Fenced. One caller at a time is inside."""
        if type(token) is not int or token < 0:
            raise errors.Invalid(f"a token is an integer as granted by a lock, not {token!r}")
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            highest = _read(descriptor)
            if token < highest:
                raise errors.Fenced(f"token {token} is older than {highest}, which has been let in", current=highest)
            if token > highest:
                _write(descriptor, token)
            yield
        finally:
            os.close(descriptor)

    @property
    def highest(self) -> int:
        """The highest token let in so far, 0 if none."""
        try:
            with open(self._path, "rb") as file:
                return _parse(file.read())
        except FileNotFoundError:
            return 0


# Two slots of fixed width: a write that is torn by a crash leaves the other one readable.
_SLOT = 24


def _read(descriptor: int) -> int:
    return _parse(os.pread(descriptor, 2 * _SLOT, 0))


def _parse(data: bytes) -> int:
    slots = [_parse_slot(data[start : start + _SLOT]) for start in (0, _SLOT)]
    if data and max(slots) < 0:
        raise errors.Corrupt("the gate's file is damaged", hint="find out the highest token let in before going on")
    return max(0, *slots)


def _parse_slot(slot: bytes) -> int:
    digits = slot[:-1]
    whole = len(slot) == _SLOT and slot[-1:] == b"\n" and digits.isdigit() and _check_digit(digits[:-1]) == digits[-1:]
    return int(digits[:-1]) if whole else -1


def _write(descriptor: int, token: int) -> None:
    data = os.pread(descriptor, 2 * _SLOT, 0)
    first, second = (_parse_slot(data[start : start + _SLOT]) for start in (0, _SLOT))
    digits = b"%022d" % token
    os.pwrite(descriptor, digits + _check_digit(digits) + b"\n", 0 if first <= second else _SLOT)
    os.fsync(descriptor)


def _check_digit(digits: bytes) -> bytes:
    return b"%d" % (sum((place + 1) * digit for place, digit in enumerate(digits)) % 10)
