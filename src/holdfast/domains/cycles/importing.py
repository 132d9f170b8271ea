"""Cycles from elsewhere: documents of any format under the keys that they came under, all or nothing.

One that is here already is left alone unless the other one surely goes on from it: it is the same cycle, further, and
nothing of ours is missing in it, or nothing was done here since it was imported. What cannot be read is told by its
key and keeps everything out, unless it is to be left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast import errors
from holdfast.domains.cycles import legacy
from holdfast.domains.cycles.documents import Document
from holdfast.domains.cycles.keys import Key
from holdfast.domains.cycles.rows import CYCLE, current_of, differences, look, set_current, versions, write
from holdfast.domains.cycles.rules import PHASES
from holdfast.kernel.names import check_flag
from holdfast.kernel.tx import Tx, newest_version
from holdfast.types.cycles import CycleNote, CycleReport

MAX_ENTRIES = 10_000


def import_(tx: Tx, entries: dict[str, Any], skip_bad: bool = False, dry_run: bool = False) -> CycleReport:
    """Take in cycles of any format by their keys; all or nothing, unless what is bad is to be skipped."""
    check_flag(skip_bad=skip_bad, dry_run=dry_run)
    if not isinstance(entries, Mapping) or not all(isinstance(key, str) for key in entries):
        raise errors.Invalid("entries is a dict of documents by their keys")
    if len(entries) > MAX_ENTRIES:
        raise errors.TooLarge(f"{len(entries)} entries in one call; {MAX_ENTRIES} is the most", limit=MAX_ENTRIES)
    reading = legacy.read(entries)
    bad = [CycleNote(key, message) for key, message in reading.problems]
    if bad and not (skip_bad or dry_run):
        raise errors.Invalid(
            f"{len(bad)} entries cannot be imported; {bad[0].key}: {bad[0].message}",
            hint="put them right, or pass skip_bad=True to leave them out",
            problems=[f"{note.key}: {note.message}" for note in bad],
        )
    report = CycleReport([], [], [], [], bad, [CycleNote(*note) for note in reading.notes], dry_run)
    for key, document in sorted(reading.documents.items()):
        _take(tx, key, document, reading.formats.get(key, "v2"), report)
    if not dry_run:
        for prefix, number in _currents(reading):
            set_current(tx, prefix, max(number, current_of(tx, prefix)))
    return report


def _take(tx: Tx, key: Key, document: Document, format: str, report: CycleReport) -> None:
    found = look(tx, key)
    if found.problems:
        report.conflicts.append(CycleNote(str(key), "its document here is broken: recover it first"))
    elif found.document is None and newest_version(tx, CYCLE, "", str(key)):
        report.conflicts.append(CycleNote(str(key), "was deleted here"))
    elif found.document is None:
        report.created.append(str(key))
        _write(tx, document, format, report)
    elif _is_ours(tx, key, document):
        report.unchanged.append(str(key))
    elif _continues(document, found.document, _is_import(tx, key)):
        report.updated.append(str(key))
        _write(tx, {**document, "sequence": max(document["sequence"], found.document["sequence"] + 1)}, format, report)
    else:
        report.conflicts.append(CycleNote(str(key), _apart(found.document, document)))


def _write(tx: Tx, document: Document, format: str, report: CycleReport) -> None:
    if not report.dry_run:
        write(tx, "import", document, format=format)


def _is_ours(tx: Tx, key: Key, document: Document) -> bool:
    """Whether a document is one that was written here, which is then the newest or has one that goes on from it."""
    told = {**document, "sequence": 0}  # which formats without one do not say
    return any(not differences({**logged, "sequence": 0}, told) for _, logged in versions(tx, key))


def _is_import(tx: Tx, key: Key) -> bool:
    """Whether nothing was done to a cycle here since it came from elsewhere."""
    row = tx.one(
        "SELECT op FROM events WHERE kind = ? AND scope = '' AND id = ? ORDER BY version DESC LIMIT 1",
        (CYCLE, str(key)),
    )
    return row is not None and row[0] == "import"


def _continues(document: Document, here: Document, untouched: bool) -> bool:
    """Whether one goes on from the other: the same cycle, its steps and more; and nothing of ours would be lost."""
    if document["metadata"]["created_at"] != here["metadata"]["created_at"]:
        return False
    if document["history"][: len(here["history"])] != here["history"]:
        return False
    further = document["sequence"] > here["sequence"]
    return untouched or (further and all(_has(document["phases"][name], here["phases"][name]) for name in PHASES))


def _has(phase: Document, ours: Document) -> bool:
    """Whether a phase is ours or one that came after it: all that ours has so far is in it."""
    if ours["status"] == "completed":
        return not differences(ours, phase)
    return _within(ours.get("output"), phase.get("output")) and _within(ours.get("errors"), phase.get("errors"))


def _within(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return all(name in theirs and _within(value, theirs[name]) for name, value in ours.items())
    if isinstance(ours, list) and isinstance(theirs, list):
        return not differences(ours, theirs[: len(ours)])
    return ours is None or not differences(ours, theirs)


def _apart(here: Document, other: Document) -> str:
    return (
        f"is here already at sequence {here['sequence']} ({here['metadata']['status']}), and the other at"
        f" {other['sequence']} ({other['metadata']['status']}) does not go on from it"
    )


def _currents(reading: legacy.Reading) -> list[tuple[str, int]]:
    """Which cycle is the current one: as it is said, or the last."""
    last = {key.prefix: key.number for key in sorted(reading.documents)}
    return sorted({**last, **reading.current}.items())
