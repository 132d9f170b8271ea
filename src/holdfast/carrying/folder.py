"""A folder of files `KEY.json`, as a place; the revision of a file is the digest of what it holds.

A file is replaced whole or not at all, under a lock that everybody takes who writes through this module; who does not
is noticed unless it writes in the very moment between the last look and the replacement. Links are not followed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Final

from holdfast import errors
from holdfast.carrying.places import Entry, Revision, moved

_END: Final = ".json"
_LOCK: Final = ".lock"
_KEY: Final = re.compile(r"[^./\x00-\x1f][^/\x00-\x1f]{0,240}")
_TRIES: Final = 50  # for the lock, each a tenth of a second after the other


class Folder:
    """The files of a folder; with `create` it is made if need be."""

    indent: Final = 2

    def __init__(self, path: str, create: bool = False, sleep: Callable[[float], None] = time.sleep) -> None:
        self.path = os.path.abspath(path)
        self._sleep = sleep
        if create:
            try:
                os.makedirs(self.path, exist_ok=True)
            except OSError as error:
                raise errors.IOFailed(f"{path} could not be made: {error.strerror}") from error
        if not os.path.isdir(self.path):
            raise errors.NotFound(f"there is no folder {path}", hint="name one that is there, or have it made")

    @property
    def name(self) -> str:
        """What people call it."""
        return self.path

    def read(self) -> dict[str, Entry]:
        """Every file of the folder that is JSON by its name."""
        try:
            names = sorted(name for name in os.listdir(self.path) if name.endswith(_END) and name[0] != ".")
        except OSError as error:
            raise errors.IOFailed(f"{self.path} cannot be read: {error.strerror}") from error
        found = {name.removesuffix(_END): self._entry(name) for name in names}
        return {key: entry for key, entry in found.items() if entry is not None}

    def write(self, key: str, value: bytes, expected: Revision | None) -> Revision:
        """Replace a file that still is at revision `expected`, or make it where none is."""
        if not _KEY.fullmatch(key):
            raise errors.InvalidID(f"{key!r} cannot be the name of a file")
        name = f"{key}{_END}"
        try:
            with self._locked():
                present = self._entry(name)
                revision = None if present is None else present.revision
                if revision != expected:
                    raise moved(self.name, key, expected, revision)
                self._replace(name, value)
        except OSError as error:
            raise errors.IOFailed(f"{name} in {self.path} could not be written: {error.strerror}") from error
        return _revision(value)

    def _entry(self, name: str) -> Entry | None:
        path = os.path.join(self.path, name)
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                value = file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise errors.Invalid(f"{path} is a link, which is not followed", hint="put the file itself") from error
            raise errors.IOFailed(f"{path} cannot be read: {error.strerror}") from error
        return Entry(value, _revision(value))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One writer at a time, in this process and others."""
        lock = os.open(os.path.join(self.path, _LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            for left in reversed(range(_TRIES)):
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if not left:
                        raise errors.Busy(f"somebody else has been writing in {self.path} for seconds") from error
                    self._sleep(0.1)
            yield
        finally:
            os.close(lock)

    def _replace(self, name: str, value: bytes) -> None:
        partial = os.path.join(self.path, f".{name}.{os.getpid()}.partial")
        try:
            with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644), "wb") as file:
                file.write(value)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, os.path.join(self.path, name))
        finally:
            if os.path.lexists(partial):
                os.unlink(partial)
        folder = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _revision(value: bytes) -> str:
    return sha256(value).hexdigest()
