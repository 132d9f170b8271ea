"""The errors of SQLite and of the system as ours, and what a damaged store makes of our code.

A page in the place of another has a right checksum, and its rows are read as those of another table: code that expects
a text finds none. So an error that is neither ours nor the caller's has two possible causes, a defect of this program
and a damaged store. `Diagnosis` runs a check to tell which it is, and only then says Corrupt. Used by everything that
touches the store.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import apsw

from holdfast import errors
from holdfast.clock import Clock

if TYPE_CHECKING:
    from holdfast.kernel.maintenance import Checker
    from holdfast.kernel.tx import Snapshot

_PATIENCE = 2_000_000  # microseconds that a diagnosis may take
_AGAIN = 60_000_000  # microseconds for which a store that was found sound counts as such
_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
# What reading the wrong row can raise; a user's own error classes are none of them.
_SUSPECT = (TypeError, ValueError, LookupError, AttributeError, AssertionError, ArithmeticError, apsw.Error)

# Records that stay until they are purged.
_KINDS: dict[type[errors.HoldfastError], str] = {errors.TaskNotFound: "task", errors.MessageNotFound: "message"}
_NEWEST = (
    "SELECT (SELECT op FROM log WHERE record = key ORDER BY version DESC LIMIT 1) FROM records r"
    " WHERE kind = ? AND scope = '' AND id = ? AND NOT EXISTS (SELECT 1 FROM {}s t WHERE t.id = r.id)"
)


class NotReady(errors.IOFailed):
    """The store does not exist yet, or is just being made."""


def translate(error: apsw.Error) -> Exception:
    """Return the Holdfast error for an engine error that is known to have changed nothing.

    An error of any other type is a mistake in our own SQL, and is returned unchanged.
    """
    if isinstance(error, apsw.SQLError) and _lacks_table(str(error)):
        return errors.Behind(
            f"this store is older than this program: {error}",
            hint="run holdfast upgrade, or call holdfast.upgrade(path); older programs can then no longer write to it",
        )
    if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_DATA:
        return errors.Corrupt("the store is damaged: a page of its file does not have the checksum it was written with")
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


class Diagnosis:
    """Tells an error that a damaged store causes from one of this program. Costs nothing as long as there is none."""

    def __init__(self, open: Callable[[], Snapshot], clock: Clock) -> None:
        self.checkers: Sequence[Checker] = ()
        self.cure = ""  # what to do about a damaged store instead of restoring a backup
        self._open = open
        self._clock = clock
        self._damage = ""  # what was found once stays true
        self._sound_at: int | None = None

    def of(self, error: Exception, snapshot: Snapshot | None = None) -> Exception:
        """The error to raise: Corrupt if the store is damaged, else the same. A read passes what it read from."""
        found = self._of(error, snapshot)
        self.advise(found)
        return found

    def advise(self, error: BaseException) -> None:
        """Have an error that says to restore a backup say what this store needs instead."""
        if self.cure and isinstance(error, errors.Corrupt) and errors.RESTORE_BACKUP in error.hint:
            error.hint = self.cure

    def _of(self, error: Exception, snapshot: Snapshot | None) -> Exception:
        if isinstance(error, errors.HoldfastError):
            return error if snapshot is None else _missed(error, snapshot) or error
        ours = translate(error) if isinstance(error, apsw.Error) else error
        if ours is not error or not isinstance(error, _SUSPECT) or not _is_from_us(error):
            return ours
        if not self._damage and not self._was_sound():
            try:
                self._damage = self._look()
            except errors.Corrupt as damage:  # it cannot even be opened
                self._damage = damage.message
            self._sound_at = self._clock.monotonic()
        if not self._damage:
            return error
        return errors.Corrupt(f"the store is damaged: {self._damage}")

    def _was_sound(self) -> bool:
        return self._sound_at is not None and self._clock.monotonic() < self._sound_at + _AGAIN

    def _look(self) -> str:
        """The first problem that a check finds within the time it has, or nothing."""
        from holdfast.kernel.maintenance import check

        end = self._clock.monotonic() + _PATIENCE
        snapshot = self._open()
        try:
            snapshot.break_off_when(lambda: self._clock.monotonic() > end)
            snapshot.hold()
            problems = check(snapshot, self.checkers).problems
            return problems[0] if problems and self._clock.monotonic() <= end else ""
        finally:
            snapshot.close()


def _missed(error: errors.HoldfastError, snapshot: Snapshot) -> errors.Corrupt | None:
    """Corrupt if a record that was not found is in the log, and only its row is missing."""
    kind = _KINDS.get(type(error))
    if kind is None or "id" not in error.details:
        return None
    op = snapshot.one(_NEWEST.format(kind), (kind, error.details["id"]))
    if op is None or op[0] is None or op[0] == "purge":
        return None
    return errors.Corrupt(f"the store is damaged: {kind} {error.details['id']} is in the log, but not in the store")


def _is_from_us(error: Exception) -> bool:
    """Whether our code raised it, not a function that a user passed. SQLite adds frames of its own source files."""
    trace, file = error.__traceback__, ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        file = file if name.endswith(".c") else name
        trace = trace.tb_next
    return file.startswith(_OURS)
