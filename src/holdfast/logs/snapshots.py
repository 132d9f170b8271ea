"""Snapshots: a whole store as one blob, so that a node can join without the whole history, and the log can be trimmed.

The position in the log is a row of the store itself, read in the same transaction as everything else: a snapshot
cannot say it is elsewhere than it is. Installing is one SQLite transaction too; readers of the node see the old state
until it is done. The log is trimmed up to the last snapshot but one: a node that is somewhat behind reads on.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

import apsw

from holdfast import errors
from holdfast.kernel.failpoints import reach
from holdfast.logs import place as places
from holdfast.logs.base import CommitLog, Trimmed
from holdfast.logs.entries import AnyEntry, Snapshotted, from_bytes, seal, unseal
from holdfast.logs.place import Place

_LEVEL = 1  # of compression: most of the gain for little time
_TRIES = 5
_LOOKS = 50  # in vain, at a log that shows less than it has
_WRITE_VERSIONS = slice(18, 20)  # of the file format, in SQLite's header
_ROLLBACK_JOURNAL = b"\x01\x01"  # a database in memory cannot be opened as a write-ahead log


class Announcement(NamedTuple):
    """A snapshot that is in the log's keeping, and that nobody knows of yet."""

    position: int
    revision: int
    blob: str


class Snapshots:
    """When this node makes a snapshot: after it has appended every so manieth entry."""

    def __init__(self, log: CommitLog, every: int | None) -> None:
        self._log = log
        self._every = log.snapshot_every if every is None else every
        self.due = False
        self._missed = False  # the last one could not be put
        self.announcement: Announcement | None = None

    def consider(self, place: Place) -> None:
        """This node has appended an entry: whoever appends the one that makes it due makes the snapshot."""
        self.due |= self._missed or (place.entries > 0 and place.entries % self._every == 0)

    def make(self, connection: apsw.Connection) -> None:
        """Put a snapshot of what the connection sees into the log's keeping."""
        connection.execute("BEGIN")
        try:
            place = places.read(connection)
            row = connection.execute("SELECT revision FROM meta").fetchone()
            assert place is not None
            assert row is not None
            blob = serialize(connection)
        finally:
            connection.execute("ROLLBACK")
        reach("snapshot.made")
        self.due, self._missed = False, True  # if it fails, not again before there is more to say
        ref = self._log.put(blob)
        reach("snapshot.put")
        self._missed = False
        self.announcement = Announcement(place.position, row[0], ref)


def place_after(place: Place, position: int, entry: AnyEntry) -> Place:
    """The place of a replica once an entry was applied."""
    if isinstance(entry, Snapshotted):
        return Place(position, place.position, entry.id, 0, entry.position)
    return Place(position, place.position, entry.id, place.entries + 1, place.snapshot)


def join(log: CommitLog, connection: apsw.Connection, oldest: int) -> None:
    """Install the newest snapshot of the log, if it has one; without one its history must be whole."""
    for _ in range(_TRIES):
        try:
            found = _newest(log, oldest)
            if found is None:
                if oldest:
                    raise errors.Corrupt(f"the log starts at {oldest} and holds no snapshot to start from")
                return
            blob = log.get(found.blob)
        except Trimmed as trimmed:  # a newer one was made meanwhile
            oldest = trimmed.oldest
        except KeyError:  # likewise
            continue
        else:
            reach("snapshot.fetched")
            install(connection, blob, found.position)
            reach("snapshot.installed")
            return
    raise errors.Unreachable("the log was trimmed again and again while this node tried to join")


def _newest(log: CommitLog, oldest: int) -> Snapshotted | None:
    """The newest snapshot between `oldest` and the end; Unreachable if the log does not show that much."""
    newest: Snapshotted | None = None
    end, after, looks = log.head().position, oldest, 0
    while after < end and looks < _LOOKS:
        page = [(position, raw) for position, raw in log.tail(after) if position > after]
        looks = 0 if page else looks + 1
        for position, raw in page:
            entry = from_bytes(raw, position)
            newest = entry if isinstance(entry, Snapshotted) else newest
            after = position
    if after < end:
        raise errors.Unreachable("the log does not show what it holds")
    return newest


def serialize(connection: apsw.Connection) -> bytes:
    """What the connection sees, as one blob."""
    copy = apsw.Connection(":memory:")
    try:
        with copy.backup("main", connection, "main") as progress:
            while not progress.done:
                progress.step(-1)
        image = bytearray(copy.serialize("main"))
    finally:
        copy.close()
    image[_WRITE_VERSIONS] = _ROLLBACK_JOURNAL
    return seal(zlib.compress(bytes(image), _LEVEL))


def install(connection: apsw.Connection, blob: bytes, position: int) -> None:
    """Put a snapshot in the place of everything in the store; Corrupt unless it is one of this position."""
    image = apsw.Connection(":memory:")
    try:
        image.deserialize("main", zlib.decompress(unseal(blob, "a snapshot")))
        found = places.read(image)
        if found is None or found.position != position:
            raise errors.Corrupt(f"the snapshot of position {position} says it is of {found and found.position}")
        with connection.backup("main", image, "main") as progress:
            while not progress.done:
                progress.step(-1)
    except (zlib.error, apsw.NotADBError, apsw.CorruptError) as error:
        raise errors.Corrupt(f"the snapshot in the log is damaged: {error}") from error
    finally:
        image.close()
