"""From a workspace to a place: v2 documents, each written over the revision that was read, and never over another.

First everything is compared, and nothing is written if something must be refused. A write that comes too late reads
again, after 100, 300 and 900 ms, and decides again; then it fails with the revision that is there. Older keys of a
cycle stay where they are, and are told; `PREFIX.cycle.current` follows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.carrying.bringing import entries_of
from holdfast.carrying.comparing import Decision, Document, decide
from holdfast.carrying.places import Entry, Place, Revision
from holdfast.domains.cycles.keys import Key, parse
from holdfast.domains.cycles.legacy import Reading, read
from holdfast.domains.cycles.legacy.keys import by_name
from holdfast.types.cycles import CycleNote

BACK_OFF: Final = (0.1, 0.3, 0.9)  # seconds
_PAGE: Final = 1000


class Sent(msgspec.Struct):
    """What became of every cycle, or would: their keys. `old_keys` are those that v2 documents have taken the place of.

    `skipped` were not written, because the place has all of it; `notes` tells of merges and of races that were lost.
    """

    created: list[str] = []
    updated: list[str] = []
    unchanged: list[str] = []
    merged: list[str] = []
    skipped: list[CycleNote] = []
    notes: list[CycleNote] = []
    old_keys: list[str] = []
    dry_run: bool = False


class _View(msgspec.Struct, frozen=True):
    """A place as it was read."""

    entries: dict[str, Entry]
    reading: Reading

    def home(self, key: Key) -> str:
        """Under which name the document of a cycle is written: where it is, if it is v2 already."""
        return self.reading.sources[key][0] if self.reading.formats.get(key) == "v2" else key.dotted

    def revision(self, name: str) -> Revision | None:
        """The revision of what has a name."""
        return self.entries[name].revision if name in self.entries else None


def send(
    workspace: Any,
    place: Place,
    keys: Sequence[str] | None = None,
    dry_run: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> Sent:
    """Write cycles, all or those named, as v2 documents; CycleConflict, with both sides, if one went another way."""
    wanted = [workspace.cycles.export(key) for key in (_all(workspace) if keys is None else keys)]
    ours = {parse(document["cycle_id"]): document for document in wanted}
    view, sent = _look(place), Sent(dry_run=dry_run)
    decisions = {key: _decide(workspace, place, key, document, view) for key, document in ours.items()}
    for key, decision in decisions.items():
        if not dry_run:
            decision = _write(workspace, place, key, ours[key], decision, view, sent, sleep)
        _note(sent, key, decision)
        home = view.home(key)
        old = (name for name in view.reading.sources.get(key, ()) if name != home)
        sent.old_keys += [name for name in old if name not in sent.old_keys]
    if not dry_run:
        for prefix, number in sorted({key.prefix: key.number for key in sorted(ours)}.items()):
            _point(place, prefix, _current(workspace, prefix, number), view, sleep)
    return sent


def _all(workspace: Any) -> Iterator[str]:
    after = ""
    while page := workspace.cycles.list(limit=_PAGE, after=after):
        yield from (info.key for info in page)
        if len(page) < _PAGE:
            return
        after = page[-1].key


def _look(place: Place) -> _View:
    found = place.read()
    return _View(found, read(entries_of(found)))


def _decide(workspace: Any, place: Place, key: Key, ours: Document, view: _View) -> Decision:
    """What to do with a cycle; CycleConflict if nothing can be done."""
    for name, message in view.reading.problems:
        source = by_name(name)
        if source is not None and source.number and source.key == key:
            raise _conflict(place, key, ours, None, view.revision(name), f"what is there cannot be read: {message}")
    theirs = view.reading.documents.get(key)
    decision = decide(workspace, ours, theirs, newest=view.reading.formats.get(key) == "v2")
    if decision.how == "refuse":
        raise _conflict(place, key, ours, theirs, view.revision(view.home(key)), decision.why)
    return decision


def _write(
    workspace: Any,
    place: Place,
    key: Key,
    ours: Document,
    decision: Decision,
    view: _View,
    sent: Sent,
    sleep: Callable[[float], None],
) -> Decision:
    """Do what was decided; who comes too late looks and decides again, a few times."""
    for pause in (*BACK_OFF, None):
        if decision.how not in ("create", "update", "merge"):
            break
        home = view.home(key)
        try:
            place.write(home, _encoded(decision.document), view.revision(home))
            break
        except errors.VersionMismatch as late:
            present: Revision | None = late.version
            if pause is None:
                theirs = view.reading.documents.get(key)
                why = f"others were faster {len(BACK_OFF) + 1} times"
                raise _conflict(place, key, ours, theirs, present, why) from late
            sent.notes.append(CycleNote(str(key), f"somebody else wrote it, revision {present}: read again"))
            sleep(pause)
            view = _look(place)
            decision = _decide(workspace, place, key, ours, view)
    return decision


def _note(sent: Sent, key: Key, decision: Decision) -> None:
    if decision.how == "skip":
        sent.skipped.append(CycleNote(str(key), decision.why))
        return
    if decision.how == "merge":
        sent.notes.append(CycleNote(str(key), f"merged {decision.why}"))
    kinds = {"create": sent.created, "update": sent.updated, "unchanged": sent.unchanged, "merge": sent.merged}
    kinds[decision.how].append(str(key))


def _current(workspace: Any, prefix: str, last: int) -> int:
    """The number of the current cycle; of those that are there if it was deleted."""
    try:
        return int(workspace.cycles.get(prefix).metadata.cycle_number)
    except errors.NotFound:
        return last


def _point(place: Place, prefix: str, number: int, view: _View, sleep: Callable[[float], None]) -> None:
    """Let the place know which cycle is the current one; a higher number stays."""
    for pause in (*BACK_OFF, None):
        if view.reading.current.get(prefix, 0) >= number:
            return
        name = next((name for name in view.entries if _is_current(name, prefix)), f"{prefix}:cycle:current")
        name = name if name in view.entries else name.replace(":", ".")
        try:
            place.write(name, str(number).encode(), view.revision(name))
            return
        except errors.VersionMismatch:
            if pause is None:
                raise
            sleep(pause)
            view = _look(place)


def _is_current(name: str, prefix: str) -> bool:
    source = by_name(name)
    return source is not None and (source.kind, source.prefix) == ("current", prefix)


def _encoded(document: Document) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def _conflict(
    place: Place, key: Key, ours: Document, theirs: Document | None, revision: Revision | None, why: str
) -> errors.CycleConflict:
    at = "" if theirs is None else f", sequence {theirs['sequence']}"
    return errors.CycleConflict(
        f"{key} in {place.name} is at revision {revision}{at}: {why}; nothing was written over it",
        hint="import what is there and compare; the error has both documents and the revision",
        key=str(key),
        expected=ours["sequence"],
        version=None if theirs is None else theirs["sequence"],
        value=theirs,
        mine=ours,
        theirs=theirs,
        revision=revision,
    )
