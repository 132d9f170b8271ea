"""The files that people edit in the workspace's folder, and whether they have changed.

Their content enters the store by a transaction (`domains/routes.py`); here is only the reading. Looking whether a file
has changed is one call of the operating system, so it is done before every operation that asks the rules.
"""

from __future__ import annotations

import os
import stat
from threading import get_ident

from holdfast import errors
from holdfast.clock import SystemClock
from holdfast.domains.routing import FILES

MAX_BYTES = 1_048_576
_FRESH = 1_000  # microseconds
_real_time = SystemClock().monotonic  # also in tests that own the time: files are edited in ours
_Signature = tuple[int, int, int]


class Files:
    """The documents of one folder, and their signatures when last looked at."""

    def __init__(self, folder: str) -> None:
        self._paths = {name: os.path.join(folder, file) for name, file in FILES.items()}
        self._seen: dict[str, _Signature | None] = dict.fromkeys(FILES)
        self._asked_by = 0
        self._asked_at = 0

    def changed(self) -> list[str]:
        """The documents whose files exist and have changed since the last call.

        Of many threads that call at once one looks: what it saw within the last millisecond will do for the others.
        """
        me, now = get_ident(), _real_time()
        if me != self._asked_by and now - self._asked_at < _FRESH:
            return []
        self._asked_by, self._asked_at = me, now
        found = []
        for name, path in self._paths.items():
            signature = _signature(path)
            if signature != self._seen[name]:
                self._seen[name] = signature
                if signature is not None:
                    found.append(name)
        return found

    def forget(self, name: str) -> None:
        """Treat a document as changed at the next call."""
        self._seen[name] = None


def _signature(path: str) -> _Signature | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _is_plain(path: str) -> bool:
    return stat.S_ISREG(os.stat(path).st_mode)


def read_file(folder: str, name: str) -> tuple[str, str] | None:
    """A file's path and text; None if it does not exist. Raises Invalid or TooLarge for what cannot be a document."""
    path = os.path.join(folder, name)
    try:
        if not _is_plain(path):  # opening a pipe would wait for somebody to write into it
            raise errors.Invalid(f"{path} is not a file", hint="put a file there, or nothing")
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise errors.Invalid(f"{path} cannot be read: {error.strerror}", hint="check its permissions") from error
    if len(raw) > MAX_BYTES:
        raise errors.TooLarge(f"{path} has more than {MAX_BYTES} bytes", limit=MAX_BYTES)
    try:
        return path, raw.decode()
    except UnicodeDecodeError as error:
        raise errors.Invalid(f"{path} is not UTF-8: byte {error.start}", hint="save it as UTF-8") from error
