"""The SQLite file: connections with verified settings, and the engine's errors translated into ours.

One writer connection, used by the leader of the group, and a pool of reader connections. Every connection is verified
to have the settings that the guarantees rest on. After a fork a store refuses every use in the child: SQLite
connections do not survive it. Called by the engine; nothing else opens a connection to the file.
"""

from __future__ import annotations

import errno
import os
import re
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import apsw

from holdfast import errors

FILE = "holdfast.db"
APPLICATION_ID = 0x484F4C44  # "HOLD"
_STATEMENT_CACHE = 256
_PAGE_CACHE_KIB = 65_536
_FORKED = "this workspace was opened before a fork"
_FORK_HINT = "fork before opening the workspace, or start children with spawn or exec"


def check_sqlite(version: str | None = None) -> None:
    """Refuse a SQLite library whose WAL can corrupt when two connections write and checkpoint at once."""
    version = version or apsw.sqlite_lib_version()
    number = tuple(int(part) for part in version.split(".")[:3])
    if number < (3, 51, 3) or number == (3, 52, 0):
        raise errors.Unsupported(
            f"SQLite {version} has the WAL-reset bug, which can corrupt the store",
            hint="install apsw with SQLite 3.51.3, or 3.53.0 and later: pip install --upgrade apsw",
        )


class NotReady(errors.IOFailed):
    """The store does not exist yet, or is just being made."""


class Store:
    """The connections of one process to one workspace file."""

    def __init__(
        self, folder: str, *, durable: bool, busy_timeout: float, vfs: str | None = None, replica: bool = False
    ) -> None:
        check_sqlite()
        self.folder = folder
        self.domain = folder  # the serial domain: a thread inside a transaction of it cannot begin another
        self.path = os.path.join(folder, FILE)
        self.closed = ""  # why no call is possible any more, if so
        self.broken: errors.HoldfastError | None = None  # why even reads would be wrong, if so; it can only be closed
        self.on_stop: Callable[[], None] = lambda: None
        self._identity: tuple[int, int] | None = None  # of the file, once it is there
        self._durable = durable
        self.replica = replica
        self._busy_ms = int(busy_timeout * 1000)
        self._vfs = vfs
        self._writer: apsw.Connection | None = None
        self._connections: weakref.WeakSet[apsw.Connection] = weakref.WeakSet()

    @property
    def writer(self) -> apsw.Connection:
        """The writer connection; only the leader of the group touches it."""
        if self._writer is None:
            self._writer = self.connect()
        return self._writer

    def connect(self, *, create: bool = False) -> apsw.Connection:
        """Open a new connection; every setting is made and read back.

        Only `create` makes the file or changes its journal mode: one process at a time may do that.
        """
        if self.closed:
            raise self.refusal()
        _refuse_inherited(self.path)
        try:
            connection = apsw.Connection(
                self.path,
                flags=apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0),
                vfs=self._vfs,
                statementcachesize=_STATEMENT_CACHE,
            )
        except apsw.Error as error:
            raise translate(error) from error
        try:
            self._connections.add(connection)
            self._identity = self._identity or _identity(self.path)
            self.check_kept()
            connection.set_busy_timeout(self._busy_ms)
            for pragma, wanted in self._settings().items():
                _set(connection, pragma, wanted, fixed=pragma == "journal_mode" and not create)
            _keep_plans(connection)
            return connection
        except BaseException as error:
            _give_up(connection)
            if isinstance(error, apsw.Error):
                raise translate(error) from error
            raise

    def create(self) -> apsw.Connection:
        """Return the writer connection of a store that may not exist yet; the caller has the turn."""
        self.reopen_writer()
        # Private to its owner, whatever the folder's mode; SQLite gives its other files the same mode.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._writer = self.connect(create=True)
        return self._writer

    def connect_reader(self) -> apsw.Connection:
        """Open a new connection that cannot write."""
        connection = self.connect()
        _set(connection, "query_only", 1)
        return connection

    def _settings(self) -> dict[str, object]:
        return {
            "journal_mode": "wal",
            # A replica that loses its newest commits in a power failure reads them from the log; NORMAL keeps it sound.
            "synchronous": 0 if not self._durable else 1 if self.replica else 2,
            "fullfsync": int(self._durable and not self.replica),
            "checkpoint_fullfsync": int(self._durable),
            "mmap_size": 0,  # with a mapping, a truncated or failing disk would crash the process
            "trusted_schema": 0,
            "cell_size_check": 1,
            "cache_size": -_PAGE_CACHE_KIB,
            "temp_store": 2,
            "foreign_keys": 0,
        }

    @property
    def is_lost(self) -> bool:
        """Whether the file was removed or replaced."""
        return _identity(self.path) != self._identity

    def check_kept(self) -> None:
        """Close for good if the file was removed or replaced: writes to it would be lost."""
        if not self.closed and self.is_lost:
            self.closed = "the store's file was removed or replaced while the workspace was open"
        if self.closed:
            raise self.refusal()

    def stop(self, error: errors.HoldfastError) -> None:
        """Stop: the store cannot be trusted any more. Every call, also a waiting one, raises this error."""
        self.broken = error
        self.on_stop()

    def check_sound(self) -> None:
        """Raise the error that stopped the store, if any."""
        if self.broken is not None:
            broken = self.broken
            raise type(broken)(broken.message, hint=broken.hint, **broken.details)

    def is_writer(self, connection: apsw.Connection) -> bool:
        """Whether this is still the writer connection, not one that was dropped."""
        return connection is self._writer

    def reopen_writer(self) -> None:
        """Drop the writer: after a failed COMMIT its view of the file cannot be trusted."""
        writer, self._writer = self._writer, None
        if writer is not None:
            _give_up(writer)

    def refusal(self) -> errors.Closed:
        """The error of a call once the store is closed. A forked child cannot open it again either."""
        return errors.Closed(self.closed, hint=_FORK_HINT if self.closed == _FORKED else None)

    def close(self) -> None:
        """Refuse new connections and close the writer; each reader is closed by its user."""
        self.closed = self.closed or "this workspace is closed"
        self.reopen_writer()

    def abandon(self) -> None:
        """In a forked child: neither use nor free the connections that belong to the parent."""
        from ctypes import py_object, pythonapi

        self.closed = _FORKED
        _inherited.add(_identity(self.path))
        for connection in self._connections:
            pythonapi.Py_IncRef(py_object(connection))
        self._writer = None


# Files that were open when this process was forked. SQLite keeps the parent's file locks in memory, so a new connection
# here would believe that it holds them: the parent's close could then remove the log it writes to.
_inherited: set[tuple[int, int] | None] = set()


def _give_up(connection: apsw.Connection) -> None:
    """Close a failed connection now, not when it is freed: an exception raised there cannot be caught."""
    try:
        connection.close()
    except apsw.Error:  # a failed statement raises once more as it is closed
        connection.close(True)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _refuse_inherited(path: str) -> None:
    if _inherited and (identity := _identity(path)) is not None and identity in _inherited:
        raise errors.Unsupported(
            "the parent of this process had the workspace open when it forked, so file locks do not work here",
            hint=_FORK_HINT,
        )


def _set(connection: apsw.Connection, pragma: str, wanted: object, *, fixed: bool = False) -> None:
    found = connection.pragma(pragma)
    if found == wanted:
        return
    if fixed:
        raise NotReady(f"the store's {pragma} is {found!r}, not {wanted!r}")
    connection.pragma(pragma, wanted)
    found = connection.pragma(pragma)
    # mmap_size returns nothing where a VFS has no memory mapping.
    if found != wanted and not (found is None and pragma == "mmap_size"):
        raise errors.Unsupported(f"SQLite did not accept PRAGMA {pragma}={wanted}; it is {found!r}")


def _keep_plans(connection: apsw.Connection) -> None:
    """Let no bound value change a plan: otherwise SQLite prepares a statement with a bound LIMIT anew for each call."""
    if connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1) != 1:
        raise errors.Unsupported("SQLite did not accept SQLITE_DBCONFIG_ENABLE_QPSG")


def translate(error: apsw.Error) -> Exception:
    """Return the Holdfast error for an engine error that is known to have changed nothing.

    An error of any other type is a mistake in our own SQL, and is returned unchanged.
    """
    if isinstance(error, apsw.SQLError) and _lacks_table(str(error)):
        return errors.Behind(
            f"this store is older than this program: {error}",
            hint="run holdfast upgrade, or call holdfast.upgrade(path); older programs can then no longer write to it",
        )
    for kinds, ours in _TRANSLATIONS.items():
        if isinstance(error, kinds):
            return ours(f"{(ours.__doc__ or '').strip().rstrip('.')}: {error}")
    return error


@contextmanager
def translated() -> Iterator[None]:
    """Translate engine errors that the block raises. Not for the hottest paths, which do it themselves."""
    try:
        yield
    except apsw.Error as error:
        raise translate(error) from error


def _lacks_table(message: str) -> bool:
    """Whether a statement missed a table that this program knows: the store needs `upgrade`."""
    from holdfast.kernel.migrations import load

    found = re.fullmatch(r"no such table: (?:main\.)?(\w+)", message)
    return found is not None and any(f" TABLE {found[1]} " in migration.sql for migration in load())


def system_error(error: OSError, what: str) -> errors.HoldfastError:
    """Return the Holdfast error for an operating system error."""
    kind: type[errors.HoldfastError] = errors.IOFailed
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        kind = errors.DiskFull
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        kind = errors.ReadOnly
    return kind(f"{what}: {error.strerror or error}")


_TRANSLATIONS: dict[tuple[type[apsw.Error], ...], type[errors.HoldfastError]] = {
    (apsw.BusyError, apsw.LockedError): errors.Busy,
    (apsw.FullError,): errors.DiskFull,
    (apsw.ReadOnlyError, apsw.PermissionsError): errors.ReadOnly,
    (apsw.CorruptError, apsw.NotADBError): errors.Corrupt,
    (apsw.IOError,): errors.IOFailed,
    (apsw.CantOpenError,): NotReady,
    (apsw.InterruptError,): errors.Timeout,
    (apsw.TooBigError,): errors.TooLarge,
}
