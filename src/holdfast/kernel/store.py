"""The SQLite file: connections with verified settings.

One writer connection, used by the leader of the group, and a pool of reader connections. Every connection is verified
to have the settings that the guarantees rest on. After a fork a store refuses every use in the child: SQLite
connections do not survive it. Called by the engine; nothing else opens a connection to the file.

The files and their identities are `store_files`.

Each page of the file ends in a checksum, which SQLite's checksum VFS writes with the page and compares whenever it
reads one: a byte that changed on the disk, or a row that another program altered, is Corrupt and never an answer.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import closing

import apsw

from holdfast import errors
from holdfast.clock import RESET
from holdfast.filesystem import sync
from holdfast.kernel.process_lock import Turns
from holdfast.kernel.store_files import Mark, StoreFiles, identity
from holdfast.kernel.translation import NotReady, translate
from holdfast.types import as_time

BEFORE_PURGE = "before-purge-"  # what the names of backups begin with that are made before a purge
APPLICATION_ID = 0x484F4C44  # "HOLD"
_STATEMENT_CACHE = 256
_PAGE_CACHE_KIB = 65_536
# A commit that splits a page of an index parks it under a number beyond the end of the file, and SQLite then looks
# through its whole cache for pages there: with 64 MiB that takes longer than reading again what 16 MiB cannot keep.
_WRITER_CACHE_KIB = 16_384
_FORKED = "this workspace was opened before a fork"
_FORK_HINT = "fork before opening the workspace, or start children with spawn or exec"
_LOST_HINT = (
    "close it in every process that has it open, then open it again; restore a backup if the data is gone. Never remove"
    " or replace single files of a workspace"
)
_LACKING_HINT = (
    "keep a copy of the folder, and restore the latest backup into a new folder; or accept the loss and restore what is"
    " left: holdfast.salvage(path, file) writes a backup of it"
)

# SQLite's shim that keeps checksums, a part of apsw. None: the default VFS, for tests with a disk of their own.
CHECKSUMS: str | None = "cksmvfs"
_RESERVED = 8  # bytes of a page for its checksum


def check_sqlite(version: str | None = None) -> None:
    """Refuse a SQLite library whose WAL can corrupt when two connections write and checkpoint at once."""
    version = version or apsw.sqlite_lib_version()
    number = tuple(int(part) for part in version.split(".")[:3])
    if number < (3, 51, 3) or number == (3, 52, 0):
        raise errors.Unsupported(
            f"SQLite {version} has the WAL-reset bug, which can corrupt the store",
            hint="install apsw with SQLite 3.51.3, or 3.53.0 and later: pip install --upgrade apsw",
        )


def connect_raw(path: str, flags: int, vfs: str | None = None, cache: int = 0) -> apsw.Connection:
    """Open a connection through the checksums, without any setting."""
    vfs = vfs or CHECKSUMS
    if vfs == CHECKSUMS is not None and CHECKSUMS not in apsw.vfs_names():
        _load_checksums()
    return apsw.Connection(path, flags=flags, vfs=vfs, statementcachesize=cache or 100)


def _load_checksums() -> None:
    shim = os.path.join(os.path.dirname(apsw.__file__), "sqlite_extra_binaries", "cksumvfs")
    with closing(apsw.Connection(":memory:")) as connection:
        connection.enable_load_extension(True)
        try:
            connection.load_extension(shim)
        except apsw.Error as error:
            raise errors.Unsupported(
                f"this apsw has no checksums for SQLite: {error}",
                hint="install apsw as PyPI has it: pip install --force-reinstall apsw",
            ) from error


def reserve_checksums(connection: apsw.Connection) -> None:
    """Have a file that is still empty keep checksums."""
    from ctypes import addressof, c_int

    count = c_int(_RESERVED)
    connection.file_control("main", apsw.SQLITE_FCNTL_RESERVE_BYTES, addressof(count))


class Store:
    """The connections of one process to one workspace file."""

    def __init__(
        self,
        folder: str,
        *,
        durable: bool,
        busy_timeout: float,
        vfs: str | None = None,
        replica: bool = False,
        salvage: bool = False,
    ) -> None:
        check_sqlite()
        self.folder = folder
        self.domain = folder  # the serial domain: a thread inside a transaction of it cannot begin another
        self.files = StoreFiles(folder)
        self.path = self.files.path
        self.closed = ""  # why no call is possible any more, if so
        self.broken: errors.HoldfastError | None = None  # why even reads would be wrong, if so; it can only be closed
        self.on_stop: Callable[[], None] = lambda: None
        self.lost = False  # its files were removed or replaced, and it is not closed yet
        self._counting = threading.RLock()  # while connections come and go
        self._durable = durable
        self.replica = replica
        self._salvage = salvage  # only read, also if commits are missing, and leave its files as they are
        self.busy_ms = int(busy_timeout * 1000)
        self._vfs = vfs
        self._writer: apsw.Connection | None = None
        self._connections: weakref.WeakSet[apsw.Connection] = weakref.WeakSet()

    @property
    def writer(self) -> apsw.Connection:
        """The writer connection; only the leader of the group, which has the turn, touches it."""
        return self._writer or self.open_writer(in_turn=True)

    def open_writer(self, in_turn: bool = False) -> apsw.Connection:
        """The writer connection, also for a caller without the turn."""
        self._writer = self._writer or _as_writer(self.connect(in_turn=in_turn))
        return self._writer

    def connect(self, *, in_turn: bool = False, create: bool = False) -> apsw.Connection:
        """Open a new connection; every setting is made and read back.

        The first one may need the turn, and takes it if the caller does not have it. Only `create` makes the file or
        changes its journal mode: it has the turn.
        """
        if self.closed:
            raise self.refusal()
        refuse_inherited(self.path)
        with self._counting:
            if self._is_connected():
                self.check_kept()
                return self._verified(self._open(create), self.check_kept)
            if in_turn or create:
                return self._join_in_turn(create)
            connection = self._join()
        if connection is not None:
            return connection
        with closing(Turns(self.folder)) as turns:
            if not turns.take(self.busy_ms / 1000):
                raise turns.missed("the workspace was not opened")
            try:
                return self.connect(in_turn=True)
            finally:
                turns.give()

    def _join(self) -> apsw.Connection | None:
        """Open the first connection without the turn: on the files that are there, if they are the recorded ones."""
        found = self.files.find()
        if None in found or (self._is_marked and not self.files.has_mark):
            return None
        try:
            connection = self._open_first()
        except errors.Corrupt:
            return None  # in the turn it is found out first whether somebody replaced the files
        # Present only once connected: SQLite may have removed the files meanwhile, with the last connection of others,
        # and a process that finds them missing must not take us for somebody who has them open.
        if self.files.join(found):
            return self._verified(connection, self.check_kept)
        _give_up(connection)
        return None

    def _join_in_turn(self, create: bool) -> apsw.Connection:
        self.files.check_whole(self._is_marked)
        if self._is_marked:
            self.files.check_mark()
        if create:
            # Private to its owner, whatever the folder's mode; SQLite gives its other files the same mode.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            sync(self.folder)  # no power loss may keep the names of the other parts and not this one
        connection = self._verified(self._open_first(create), lambda: self.files.join_in_turn(self._is_marked))
        return self._verified(connection, self.check_kept)

    def _open_first(self, create: bool = False) -> apsw.Connection:
        """Open the first connection, with which SQLite recovers the store; raise Corrupt if a commit is missing."""
        # Before the store is read: others go on committing.
        mark = self.files.marked() if self._is_marked else None
        connection = self._open(create)
        if mark is not None and not has_commit(connection, mark):
            _keep_log(connection)
            _give_up(connection)
            raise lacking(mark)
        return connection

    @property
    def _is_marked(self) -> bool:
        """Whether each commit is noted: a replica has the log, and a store in memory does not outlive its process."""
        return self._durable and not self.replica and not self._salvage

    def acknowledge(self, workspace: str, revision: int, stamp: int) -> None:
        """After a COMMIT: note it, so that its loss is found. A failure is logged: the older note is still true."""
        if not self._is_marked:
            return
        try:
            self.files.mark(workspace, revision, stamp)
        except OSError as error:
            errors.warn(f"the last commit could not be noted in {self.folder}: {error}")

    def _is_connected(self, besides: apsw.Connection | None = None) -> bool:
        return any(_is_open(connection) for connection in self._connections if connection is not besides)

    def _open(self, create: bool = False) -> apsw.Connection:
        try:
            flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
            connection = connect_raw(self.path, flags, self._vfs, _STATEMENT_CACHE)
        except apsw.Error as error:
            raise translate(error) from error

        def settle() -> None:
            self._connections.add(connection)
            connection.set_busy_timeout(self.busy_ms)
            if self._salvage:
                _keep_log(connection)
            if create and not self._vfs and CHECKSUMS and not os.path.getsize(self.path):
                reserve_checksums(connection)
            for pragma, wanted in self._settings().items():
                _set(connection, pragma, wanted, fixed=pragma == "journal_mode" and not create)
            _keep_plans(connection)
            connection.execute("SELECT 1 FROM sqlite_schema").fetchone()  # the first read makes the other parts

        return self._verified(connection, settle)

    def _verified(self, connection: apsw.Connection, check: Callable[[], None]) -> apsw.Connection:
        """Return the connection, or close it if the check raises."""
        try:
            check()
            return connection
        except BaseException as error:
            _give_up(connection)
            if isinstance(error, apsw.BusyError):
                raise self.files.locked("the workspace was not opened") from error
            if isinstance(error, apsw.Error):
                raise translate(error) from error
            raise

    def create(self) -> apsw.Connection:
        """Return the writer connection of a store that may not exist yet; the caller has the turn."""
        self.reopen_writer()
        self._writer = _as_writer(self.connect(create=True))
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
        """Whether a file of the store was removed or replaced."""
        return self.files.are_lost

    def check_kept(self) -> None:
        """Close for good if a file was removed or replaced: writes to it would be lost."""
        if not self.closed and self.is_lost:
            self.lost = True
            self.closed = f"{self.files.describe_loss()} was removed or replaced while the workspace was open"
        if self.closed:
            raise self.refusal()

    def check_committed(self) -> None:
        """After a COMMIT: raise OutcomeUnknown if it may have gone to a file that nobody else will read."""
        if not self.closed and not self.files.are_lost_meanwhile:
            return
        try:
            self.check_kept()
        except errors.Closed as error:
            raise errors.OutcomeUnknown(f"{error.message}; the commit may be lost", hint=error.hint) from error

    def rescue(self) -> None:
        """After a loss: bring what only a removed write-ahead log has into the file, which outlives this process.

        Not if somebody made a new one: another program may be using the file with that.
        """
        if self.files.can_be_rescued and self._writer is not None:
            self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

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
            with self._counting:
                if not self._is_connected(besides=writer):
                    # Before the connection: SQLite removes files with the last one, and we must not seem to have them.
                    self.files.leave()
                _give_up(writer)

    def refusal(self) -> errors.Closed:
        """The error of a call once the store is closed. A forked child cannot open it again either."""
        hint = _FORK_HINT if self.closed == _FORKED else _LOST_HINT if "removed or replaced" in self.closed else None
        return errors.Closed(self.closed, hint=hint)

    def shut(self) -> None:
        """Refuse new connections."""
        self.closed = self.closed or "this workspace is closed"

    def close(self) -> None:
        """Refuse new connections and close the writer; each reader is closed by its user."""
        self.shut()
        self.reopen_writer()
        self.files.leave()
        self.lost = False

    def abandon(self) -> None:
        """In a forked child: neither use nor free the connections that belong to the parent."""
        from ctypes import py_object, pythonapi

        self.closed = _FORKED
        self.files.leave()
        _inherited.add(identity(self.path))
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


def has_commit(connection: apsw.Connection, mark: Mark) -> bool:
    """Whether a store has what was acknowledged. That of another store says nothing about this one."""
    try:
        row = connection.execute("SELECT workspace, revision, stamp FROM meta").fetchone()
    except apsw.SQLError:  # no such table: the commit that made the store is missing too
        return False
    return row is not None and (row[0] != mark.workspace or (row[1] >= mark.revision and row[2] >= mark.stamp))


def lacking(mark: Mark) -> errors.Corrupt:
    """The error for a store that lacks a commit it acknowledged."""
    return errors.Corrupt(
        f"the store lacks commits that it acknowledged, up to revision {mark.revision} of"
        f" {as_time(mark.stamp % RESET):%Y-%m-%d %H:%M:%S} UTC: its files were damaged, removed or replaced",
        hint=_LACKING_HINT,
    )


def _is_open(connection: apsw.Connection) -> bool:
    try:
        connection.in_transaction  # noqa: B018
    except apsw.Error as error:  # unless it is closed, another thread is using it
        return not isinstance(error, apsw.ConnectionClosedError)
    return True


def refuse_inherited(path: str) -> None:
    """Raise Unsupported in a process forked from one that has the store open."""
    if _inherited and (found := identity(path)) is not None and found in _inherited:
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


def _as_writer(connection: apsw.Connection) -> apsw.Connection:
    _set(connection, "cache_size", -_WRITER_CACHE_KIB)
    return connection


def _keep_log(connection: apsw.Connection) -> None:
    """Let the last close leave the write-ahead log as it is, so that whoever looks later finds the same."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)


def _keep_plans(connection: apsw.Connection) -> None:
    """Let no bound value change a plan: otherwise SQLite prepares a statement with a bound LIMIT anew for each call."""
    if connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1) != 1:
        raise errors.Unsupported("SQLite did not accept SQLITE_DBCONFIG_ENABLE_QPSG")
