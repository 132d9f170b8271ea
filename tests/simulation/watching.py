"""Watchers of the simulation, and the nine laws of a watch.

A watcher follows the log through one node, and goes on through another when that one dies or when it pleases. What it
heard is judged by the truth: filter, ordered, unique, atomic, bookmark, resumable, is-create, reliable, previous value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from holdfast import errors
from holdfast.clock import Signal
from holdfast.kernel.events import Filter
from holdfast.kernel.tx import Snapshot
from holdfast.kernel.wake import Watcher
from holdfast.operation import REGISTRY
from holdfast.types import END_OF_REVISION, CellChange, Event
from holdfast.workspace import Workspace
from tests.simulation.truth import Truth

Position = tuple[int, int]
_change = REGISTRY["cells.watch_stream"].function


@dataclass
class Heard:
    """One stretch of listening on one node: from where, what came, and up to where it was known to be complete."""

    start: Position
    node: str
    events: list[Event] = field(default_factory=list)
    changes: dict[Position, CellChange] = field(default_factory=dict)
    bookmark: Position = (0, 0)


class Listener:
    """A client that watches, through whichever node is up."""

    def __init__(self, wanted: Filter) -> None:
        self.wanted = wanted
        self.heard: list[Heard] = []
        self.cursor: Position | None = None  # where it got to; None: wherever the first node stands
        self._watcher: Watcher | None = None
        self._workspace: Workspace | None = None

    @property
    def listening(self) -> bool:
        return self._watcher is not None

    def listen(self, workspace: Workspace, node: str) -> None:
        """Go on where it stopped; Behind if this node has not got that far, and a new start after Compacted."""
        engine = workspace._engine
        after = None if self.cursor is None else _written(self.cursor)
        try:
            watcher = engine.hub.watch(self.wanted, after, Signal())
        except errors.Behind:
            return
        except errors.Compacted as error:
            self.cursor = (error.compacted, END_OF_REVISION)
            return
        self._watcher, self._workspace = watcher, workspace
        self.cursor = watcher.cursor
        self.heard.append(Heard(watcher.cursor, node, bookmark=watcher.cursor))

    def hear(self, most: int) -> None:
        """Take what has come, at most so many events."""
        assert self._watcher is not None
        assert self._workspace is not None
        heard = self.heard[-1]
        for _ in range(most):
            head = self._workspace._engine.hub._head  # all up to here has been handed over
            try:
                event = self._watcher.take()
            except errors.Compacted as error:
                self.cursor = (error.compacted, END_OF_REVISION)
                self.stop()
                return
            if event is None:
                heard.bookmark = max(heard.bookmark, head if self._watcher.live else heard.bookmark)
                return
            self.cursor = (event.revision, event.position)
            heard.events.append(event)
            if self.wanted.kinds == ("cell",):
                heard.changes[self.cursor] = self._as_change(event)

    def _as_change(self, event: Event) -> Any:
        assert self._workspace is not None

        def read(snapshot: Snapshot) -> Any:
            return _change(snapshot, event.scope, event.id).convert(snapshot, event)

        return self._workspace._engine.read_snapshot(read)

    def stop(self) -> None:
        """Stop listening; what was heard stays."""
        if self._watcher is not None:
            self._watcher.close()
        self._watcher = self._workspace = None


def _written(cursor: Position) -> int | str:
    revision, position = cursor
    return revision if position == END_OF_REVISION else f"{revision}-{position}"


def judge(listeners: list[Listener], truth: Truth) -> None:
    """The nine laws."""
    everything = truth.all()
    first: dict[tuple[str, str, str], Event] = {}
    for event in everything:
        first.setdefault((event.kind, event.scope, event.id), event)
    by_version = {(e.kind, e.scope, e.id, e.version): e for e in everything}
    for listener in listeners:
        last: Position = (-1, -1)
        for heard in listener.heard:
            wanted = [event for event in everything if _matches(listener.wanted, event)]
            heard.events = [_as_it_was(event, truth) for event in heard.events]
            at = [(event.revision, event.position) for event in heard.events]
            assert all(_matches(listener.wanted, event) for event in heard.events), "filter: an event nobody asked for"
            assert at == sorted(at), f"ordered: {at}"
            assert len(at) == len(set(at)), f"unique: {at}"
            assert heard.start >= last, f"resumable: went on at {heard.start} after {last}"
            end = max([heard.bookmark, *at])
            due = [event for event in wanted if heard.start < (event.revision, event.position) <= end]
            _check_atomic(heard, wanted)
            assert [e for e in due if (e.revision, e.position) <= heard.bookmark] == [
                e for e in heard.events if (e.revision, e.position) <= heard.bookmark
            ], f"bookmark: not everything up to {heard.bookmark} was heard"
            assert heard.events == due, f"reliable: heard {at} of {[(e.revision, e.position) for e in due]}"
            for event in heard.events:
                if event.version == 1:
                    assert first[event.kind, event.scope, event.id] == event, f"is-create: {event} is not the first"
            for position, change in heard.changes.items():
                _check_previous(change, by_version, position, truth)
            last = at[-1] if at else heard.start


def _as_it_was(event: Event, truth: Truth) -> Event:
    """An event as it was before it was blanked, if it was."""
    if not event.redacted or not truth.is_blanked(event):
        return event
    was = truth.at(event.revision)[event.position]
    return was if msgspec.structs.replace(was, data={}, redacted=True) == event else event


def _check_atomic(heard: Heard, wanted: list[Event]) -> None:
    """Once a later revision was heard of, nothing of an earlier one is missing."""
    revisions = [event.revision for event in heard.events]
    for revision in sorted(set(revisions))[:-1]:
        whole = [e for e in wanted if e.revision == revision and (e.revision, e.position) > heard.start]
        assert [e for e in heard.events if e.revision == revision] == whole, f"atomic: half of revision {revision}"


def _check_previous(
    change: CellChange, by_version: dict[tuple[str, str, str, int], Event], position: Position, truth: Truth
) -> None:
    before = by_version.get(("cell", change.run, change.cell, change.version - 1))
    if before is None or any(mark >= before.revision for mark in truth.compacted.values()):
        return  # a new cell, a run that was deleted before it, or an event that may have been compacted meanwhile
    deleted = before.op in ("delete", "expire", "revoke") or (before.op == "undo" and "value" not in before.data)
    assert change.created == deleted, f"previous value: {change} at {position} after {before}"
    assert change.old == before.data.get("value"), f"previous value: {change} at {position} after {before}"


def _matches(wanted: Filter, event: Event) -> bool:
    return (
        (wanted.kinds is None or event.kind in wanted.kinds)
        and (wanted.scope is None or event.scope == wanted.scope)
        and (wanted.id is None or event.id == wanted.id)
    )
