"""What really happened: the events of every revision, read from the entries as the log took them.

Nothing here comes from a replica, and trimming or compacting takes nothing away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from holdfast.kernel.events import to_event
from holdfast.replication.log import Changes, MemoryLog, from_bytes, unseal
from holdfast.replication.replica import ALLOWED
from holdfast.types import Event, as_microseconds
from holdfast.workspace import Workspace
from tests.simulation.cluster import Timeline

BLANKED = (
    "stash",
    "queue",
    "channel",
    "thread",
    "interrupt",
    "item",
)  # whose events say nothing any more once they have ended


class Truth:
    """Every entry that was ever appended, and the events in it."""

    def __init__(self, log: MemoryLog, timeline: Timeline) -> None:
        self._timeline = timeline
        self._blobs: dict[str, bytes] = {}
        self.revisions: dict[int, list[Event]] = {}
        self.compacted: dict[int, int] = {}  # revision -> the mark it set
        self._ends: dict[str, int] = {}  # of stashes
        self._names: dict[Any, tuple[Any, ...]] = {}  # by key: kind, scope and id of a record
        self.problems: list[str] = []  # not raised where they are found: that is inside the code under test
        append, put = log.append, log.put

        def recorded_append(entry: bytes, expected: int) -> int:
            position = append(entry, expected)
            self._take(entry, position)
            return position

        def recorded_put(blob: bytes) -> str:
            ref = put(blob)
            self._blobs[ref] = blob
            return ref

        log.append, log.put = recorded_append, recorded_put  # type: ignore[method-assign]

    def _take(self, raw: bytes, position: int) -> None:
        entry = from_bytes(raw, position)
        if isinstance(entry, Changes):
            changeset = unseal(self._blobs[entry.blob], "a blob") if entry.blob else entry.changeset
            rows = [
                (change.name, *(change.new or ())) for change in apsw.Changeset.iter(changeset) if change.op == "INSERT"
            ]
            self._names |= {row[1]: row[2:] for row in rows if row[0] == "records"}
            for _, _, revision, place, time, actor, record, *rest in (row for row in rows if row[0] == "log"):
                self._keep(to_event((revision, place, time, actor, *self._names[record], *rest)))
        self._check_newest(position)

    def _keep(self, event: Event) -> None:
        early = as_microseconds(event.time) - self._timeline.shown
        if early > ALLOWED:
            self.problems.append(f"{event} is {early / 1e6} s ahead of its time: a wrong clock has written")
        self.revisions.setdefault(event.revision, []).append(event)
        if event.kind in BLANKED and not event.data and not event.redacted:
            self._ends[event.id] = event.revision
        if (event.kind, event.op) == ("log", "compact"):
            self.compacted[event.revision] = event.data["compacted"][1]

    def _check_newest(self, position: int) -> None:
        if self.revisions and max(self.revisions) != len(self.revisions):
            self.problems.append(f"the entry at {position} leaves a gap in the revisions")

    def at(self, revision: int) -> Sequence[Event]:
        """The events of a revision, in order."""
        return sorted(self.revisions[revision], key=lambda event: event.position)

    def is_blanked(self, event: Event) -> bool:
        """Whether the record of an event has ended for good, later on or with it: then it tells nothing any more."""
        return event.kind in BLANKED and event.revision <= self._ends.get(event.id, 0)

    def still_told(self, workspace: Workspace) -> list[str]:
        """The records that have ended, and of whose past before that the log of a workspace says something."""
        told = f"SELECT id, min(revision) FROM events WHERE kind IN {BLANKED} AND data IS NOT NULL GROUP BY id"
        found = workspace._engine.read_snapshot(lambda snapshot: snapshot.all(told))
        return [id for id, revision in found if revision <= self._ends.get(id, 0)]

    @property
    def newest(self) -> int:
        """The last revision."""
        return len(self.revisions)

    def all(self) -> list[Event]:
        """Every event, in order."""
        return [event for revision in range(1, self.newest + 1) for event in self.at(revision)]
