"""The files of a store and their identities: whether connections are still on what others will open.

The write-ahead log and its index are parts of the store that SQLite makes and removes by itself, with the first and the
last connection of all processes. If somebody else removes or replaces one, or the file itself, connections continue on
what has no name any more, and what comes later does not see their commits. So the identity of all three is recorded
with the first connection of this process, and compared before and after each commit and by the pulse. They are only
looked at by name: opening and closing a file outside SQLite would release the locks that SQLite has on it.

After a crash SQLite reads the write-ahead log up to the first frame that is not as it was written, and takes that for
the end: one changed byte drops every later commit, and a log that is gone drops all. So each commit is noted in a file
beside the store before it is acknowledged, without a sync: it was on disk before, so the note never claims too much,
and a process that is killed leaves the newest. It is there twice, each in a sector of its own, so that a damaged one
leaves the other. A store that lacks what is noted is Corrupt. So is one whose note was removed since it was opened here
last, or cannot be read: nobody can say any more what it lacks. And so is a folder that has the note and no file.

Used by the store; maintenance knows the names.
"""

from __future__ import annotations

import os
from binascii import crc32

import msgspec

from holdfast import errors
from holdfast.filesystem import recorded_log, sync
from holdfast.kernel.process_lock import OPEN, Presence, Record, locked, looks

FILE = "holdfast.db"
PARTS = (FILE, f"{FILE}-wal", f"{FILE}-shm")
MARK = "commit.mark"
_MARK_BYTES = 512  # a sector, of which a loss of power leaves the old or the new one
_SPLIT_HINT = (
    "end the processes that have it open in the ordinary way, so that they save what they acknowledged; then open it"
    " again. Never remove or replace single files of a workspace"
)
_UNMARKED_HINT = (
    "put it back if you can; otherwise keep a copy of the folder, and restore the latest backup into a new folder, or"
    " accept a loss and restore what is left: holdfast.salvage(path, file) writes a backup of it"
)
_REMAINS_HINT = (
    "keep a copy of the folder; put the file back if it was moved, or restore the latest backup into a new folder; to"
    " begin anew, without what was there, remove the folder"
)
_MARKS = (MARK, OPEN)  # what is written only once the file is there
_SECOND = 1_000_000_000  # nanoseconds
_TICK, _COARSE_TICK = _SECOND // 40, 5 * _SECOND  # more than one tick, with and without fractions of seconds

Identity = tuple[int, int] | None
Identities = tuple[Identity, ...]


def identity(path: str) -> Identity:
    """The device and inode that a name stands for, None if it stands for nothing."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


class Mark(msgspec.Struct, frozen=True):
    """The commit that was acknowledged last. Its stamp grows with each commit, its revision with most."""

    workspace: str
    revision: int
    stamp: int


class StoreFiles:
    """The files that the connections of this process are on."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.path = os.path.join(folder, FILE)
        self._paths = tuple(os.path.join(folder, part) for part in PARTS)
        self._first: Identity = None  # of the file, once it is there
        self._kept: Identities | None = None  # of all parts, while there are connections
        self._calm: tuple[int, int, int] | None = None  # the folder, when its files were compared last
        self._descriptor: int | None = None  # of the folder, while there are connections
        self._presence = Presence(folder)
        self._mark_path = os.path.join(folder, MARK)
        self._mark: int | None = None  # the descriptor
        self._marked_in: Identity = None  # the file that it is of
        self._mark_moved = False  # that file has been removed or replaced

    def find(self) -> Identities:
        """What the names stand for now."""
        return tuple(map(identity, self._paths))

    def locked(self, effect: str) -> errors.Busy:
        """The error for files that another program has locked, and what was not done because of that."""
        return locked(self._paths, effect)

    # --- connections come and go -------------------------------------------------------------------------------------

    def join(self, found: Identities) -> bool:
        """Keep the files of a first connection, made without the turn. False: opening them needs the turn."""
        if not self._presence.join(_text(found)):
            return False
        if self.find() != found:
            self._presence.leave()
            return False
        self._keep(found)
        return True

    def join_in_turn(self, marks: bool) -> None:
        """Keep the files of a first connection; raise if others have other files open. The caller has the turn.

        `marks`: commits are noted. The note is there before the files are recorded: one that is missing was removed.
        """
        found = self.find()
        marked = self.has_mark
        if not marked:
            record = self._presence.recorded()
            if marks and not record.present:
                self._make_mark()
            marked = marks or self._was_marked(record, found)
        for _ in looks():
            if None not in found and self._presence.join_in_turn(_text(found), marked):
                self._keep(found)
                return
            found = self.find()
        raise self._split(found)

    def _keep(self, found: Identities) -> None:
        self._first = self._first or found[0]
        self._kept = (self._first, *found[1:])
        self._calm = None
        self._close_folder()
        self._descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def _close_folder(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def leave(self) -> None:
        """Keep nothing: the last connection is about to close, or belongs to the parent of this process."""
        self._presence.leave()
        self._close_folder()
        self._kept = None
        self._close_mark()

    def _close_mark(self) -> None:
        descriptor, self._mark = self._mark, None
        if descriptor is not None:
            os.close(descriptor)

    def check_alone(self) -> None:
        """Before the first connection, in the turn: raise Busy if others have the store open."""
        self._presence.check_alone()

    def seclude(self) -> None:
        """Let no other process open the store until the caller, which is alone and has the turn, closes it."""
        self._presence.seclude()

    def check_whole(self, marks: bool) -> None:
        """Before the first connection, in the turn: raise if the store, or a part of it, was removed or replaced.

        `marks`: commits are noted. A replica has no note of its own, and comes back from its log.
        """
        for _ in looks():
            found, record = self.find(), self._presence.recorded()
            if not record.present or record.files == _text(found):
                break
        else:
            raise self._split(found)
        if found[0] is None and (any(found) or (marks and has_store(self.folder))):
            require_store(self.folder)

    def _split(self, found: Identities) -> errors.Unavailable:
        missing = [part for part, there in zip(PARTS, found, strict=True) if there is None]
        what = f"removed {' and '.join(missing)} from" if missing else "replaced files in"
        return errors.Unavailable(
            f"other processes have the workspace open, but somebody has {what} {self.folder}",
            hint=_SPLIT_HINT,
            missing=missing,
        )

    # --- while it is open --------------------------------------------------------------------------------------------

    @property
    def are_lost(self) -> bool:
        """Whether a file of the store was removed or replaced."""
        kept = self._kept
        if kept is None:
            return self._first is not None and identity(self.path) != self._first
        try:
            folder = os.stat(self.folder)
            seen = _seen(folder)
            if seen == self._calm:  # no name in the folder has changed since all were compared
                return False
            parts = [os.stat(path) for path in self._paths]
        except (FileNotFoundError, NotADirectoryError):
            return True
        if tuple((part.st_dev, part.st_ino) for part in parts) != kept:
            return True
        if self._mark is not None and identity(self._mark_path) != self._marked_in:
            self._mark_moved = True
        # What happens later in the same tick of the file system's clock would not show, so remember only a folder that
        # changed some time ago. By that clock it is at least as late as the last commit.
        tick = _TICK if seen[2] % _SECOND else _COARSE_TICK
        self._calm = seen if parts[1].st_mtime_ns - seen[2] > tick else None
        return False

    @property
    def are_lost_meanwhile(self) -> bool:
        """The same again, soon after `are_lost`.

        Looks at the folder without its path, at half the cost: it does not see if a folder above was moved meanwhile,
        with all files.
        """
        if self._descriptor is not None and _seen(os.fstat(self._descriptor)) == self._calm:
            return False
        return self.are_lost

    def describe_loss(self) -> str:
        """Say which files were removed or replaced."""
        if identity(self.folder) is None:
            return f"the folder {self.folder}"
        lost = [part for part, was, now in zip(PARTS, self._kept or (), self.find(), strict=False) if was != now]
        return " and ".join(lost) if lost and FILE not in lost else "the store's file"

    @property
    def can_be_rescued(self) -> bool:
        """Whether the file is still there, and nobody made a new log, which another program may be using with it."""
        found, kept = self.find(), self._kept
        made = kept is None or any(now not in (was, None) for was, now in zip(kept, found, strict=True))
        return not made and found[0] is not None

    # --- what was acknowledged ---------------------------------------------------------------------------------------

    def mark(self, workspace: str, revision: int, stamp: int) -> None:
        """Note a commit that is on disk, before anybody hears of it."""
        if self._mark is None or self._mark_moved:
            self._close_mark()
            self._make_mark()
            self._mark = os.open(self._mark_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            found = os.fstat(self._mark)
            self._marked_in, self._mark_moved = (found.st_dev, found.st_ino), False
        text = b"%s %d %d" % (workspace.encode(), revision, stamp)
        os.pwrite(self._mark, (b"%s %08x" % (text, crc32(text))).ljust(_MARK_BYTES) * 2, 0)

    def marked(self) -> Mark | None:
        """The commit that was noted last, None if nothing is noted."""
        return max(map(_read, self._notes()), key=lambda mark: -1 if mark is None else mark.stamp, default=None)

    def _notes(self) -> list[bytes]:
        """What was noted, each time that it was: a loss of power may leave an empty file, or one full of zeros."""
        try:
            with open(self._mark_path, "rb") as file:
                notes = file.read(_MARK_BYTES), file.read(_MARK_BYTES)
        except FileNotFoundError:
            return []
        return [note for each in notes if (note := each.strip(b"\0 "))]

    @property
    def has_mark(self) -> bool:
        """Whether the note is there and can be read, or nothing was noted yet."""
        if not os.path.exists(self._mark_path):
            return False
        notes = self._notes()
        return not notes or any(map(_read, notes))

    def _make_mark(self) -> None:
        """Make sure that the note is there, also after a loss of power."""
        if not os.path.exists(self._mark_path):
            empty_mark(self.folder)
            sync(self.folder)

    def check_mark(self) -> None:
        """Before the first connection, in the turn: raise Corrupt if the note was removed since, or is damaged.

        Not while others have the store open: they saw it whole, and make the note again with their next commit. A store
        that was copied here, or moved without the note, is another file than was open here before.
        """
        if self.has_mark or (record := self._presence.recorded()).present:
            return
        if self._notes():
            raise errors.Corrupt(
                f"{MARK} in {self.folder} is damaged, which has the last commit that was acknowledged: if {PARTS[1]}"
                " was damaged or removed too after a crash, commits are lost, and nobody can tell",
                hint=_UNMARKED_HINT,
            )
        if self._was_marked(record, self.find()):
            raise errors.Corrupt(
                f"{MARK} in {self.folder} was removed, which has the last commit that was acknowledged: if {PARTS[1]}"
                " was removed too after a crash, commits are lost, and nobody can tell",
                hint=_UNMARKED_HINT,
            )

    @staticmethod
    def _was_marked(record: Record, found: Identities) -> bool:
        """Whether the note was there when this very file was opened last."""
        return record.marked and record.files.partition(" ")[0] == _text(found[:1])


def _read(note: bytes) -> Mark | None:
    """What a note says, None if it is damaged."""
    text, _, checksum = note.rpartition(b" ")
    if checksum != b"%08x" % crc32(text):
        return None
    workspace, revision, stamp = text.decode().rsplit(" ", 2)
    return Mark(workspace, int(revision), int(stamp))


def has_store(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder holds a store, or what is left of one."""
    return bool(_found(folder))


def _found(folder: str | os.PathLike[str]) -> list[str]:
    """The parts of the store in a folder; if there is none, what tells that it was there.

    Not of a replica: that comes back from its log.
    """
    parts = [part for part in PARTS if os.path.exists(os.path.join(folder, part))]
    if parts or recorded_log(folder) is not None:
        return parts
    return [name for name in _MARKS if _has_content(os.path.join(folder, name))]


def _has_content(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except (FileNotFoundError, NotADirectoryError):
        return False


def require_store(folder: str | os.PathLike[str]) -> None:
    """Raise NotFound if a folder holds no store, Corrupt if its file is gone and something of it is left."""
    found = _found(folder)
    if not found:
        raise errors.NotFound(f"there is no workspace in {os.fspath(folder)}")
    if FILE not in found:
        left = f"{' and '.join(found)} {'are' if len(found) > 1 else 'is'} left"
        raise errors.Corrupt(
            f"{FILE} in {os.fspath(folder)} is gone, but {left}: the store was removed, and nothing is made in its"
            " place",
            hint=_REMAINS_HINT,
        )


def empty_mark(folder: str | os.PathLike[str]) -> None:
    """Make the note of the last commit in a folder, or empty it: there has been none."""
    os.close(os.open(os.path.join(folder, MARK), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))


def _seen(folder: os.stat_result) -> tuple[int, int, int]:
    return folder.st_dev, folder.st_ino, folder.st_ctime_ns


def _text(found: Identities) -> str:
    return " ".join("-" if each is None else f"{each[0]}:{each[1]}" for each in found)
