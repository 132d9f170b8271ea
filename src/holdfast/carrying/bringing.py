"""From a place into a workspace: every cycle that is there, whatever format it has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast import errors
from holdfast.carrying.places import Entry, Place
from holdfast.domains.cycles.comparing import digest
from holdfast.domains.cycles.keys import Key, parse
from holdfast.domains.cycles.legacy import read
from holdfast.types.cycles import CycleReport


def bring(
    workspace: Any, place: Place, skip_bad: bool = False, dry_run: bool = False, theirs: Sequence[str] = ()
) -> CycleReport:
    """Import what a place has, all or nothing unless what is bad is to be skipped; the place is only read.

    Of cycles that are here already and went another way, those in `theirs` are taken as the place has them; ours stay
    in the log. The other ones are left alone, and told as conflicts.
    """
    entries = entries_of(place.read())
    chosen = {parse(key): None for key in theirs}
    documents = read(entries).documents if chosen else {}
    for key in chosen:
        if key not in documents:
            raise errors.NotFound(f"{place.name} has no cycle {key} that can be read", key=str(key))
    report: CycleReport = workspace.cycles.import_(entries, skip_bad=skip_bad, dry_run=dry_run)
    for key in chosen:
        if str(key) not in (*report.created, *report.updated):
            _adopt(workspace, key, documents[key], report)
    return report


def _adopt(workspace: Any, key: Key, document: dict[str, Any], report: CycleReport) -> None:
    """Take theirs; one that is broken or deleted here stays in conflict, which says what to do."""
    try:
        ours = workspace.cycles.export(str(key))
    except (errors.NotFound, errors.Corrupt):
        return
    if digest(ours) == digest(document):
        return
    if not report.dry_run:
        workspace.cycles.adopt(document, ours["sequence"])
    report.conflicts[:] = [note for note in report.conflicts if note.key != str(key)]
    report.unchanged[:] = [each for each in report.unchanged if each != str(key)]
    report.updated.append(str(key))


def entries_of(found: dict[str, Entry]) -> dict[str, Any]:
    """What a place has, as texts where they are some: bytes would travel to a server in a larger form."""
    return {key: _text(entry.value) for key, entry in found.items()}


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value  # the import tells what is wrong with it
