"""Cycles from elsewhere: documents of any format under the keys that they came under, all or nothing.

One that is here already is left alone unless the other one surely goes on from it (`comparing`): nothing was done here
since it was exchanged, or nothing of ours is missing in it. What cannot be read is told by its key and keeps everything
out, unless it is to be left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast import errors
from holdfast.domains.cycles import legacy
from holdfast.domains.cycles.comparing import compare
from holdfast.domains.cycles.documents import Document
from holdfast.domains.cycles.exchanging import share, tell
from holdfast.domains.cycles.keys import Key
from holdfast.domains.cycles.rows import CYCLE, current_of, look, set_current, write
from holdfast.kernel.names import check_flag
from holdfast.kernel.tx import Tx, newest_version
from holdfast.types.cycles import CycleComparison, CycleNote, CycleReport

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
        _write(tx, key, document, format, report)
    else:
        compared = compare(tx, key, found.document, document)
        if compared.how in ("same", "ours"):
            report.unchanged.append(str(key))
        elif compared.how == "theirs":
            report.updated.append(str(key))
            sequence = max(document["sequence"], found.document["sequence"] + 1)
            _write(tx, key, {**document, "sequence": sequence}, format, report)
        else:
            report.conflicts.append(_apart(compared, document))
            if not report.dry_run:
                tell(tx, key, "refuse", found.document["sequence"], document["sequence"], "import", why=compared.why)


def _write(tx: Tx, key: Key, document: Document, format: str, report: CycleReport) -> None:
    if not report.dry_run:
        write(tx, "import", document, format=format)
        share(tx, key, document)


def _apart(compared: CycleComparison, other: Document) -> CycleNote:
    here = compared.mine
    told = (
        f"is here already at sequence {here['sequence']} ({here['metadata']['status']}), and the other at"
        f" {other['sequence']} ({other['metadata']['status']}) does not go on from it: "
    )
    if compared.how == "merge":
        return CycleNote(str(compared.key), f"{told}each changed another part, and an export merges them")
    return CycleNote(str(compared.key), told + compared.why, compared.differences)


def _currents(reading: legacy.Reading) -> list[tuple[str, int]]:
    """Which cycle is the current one: as it is said, or the last."""
    last = {key.prefix: key.number for key in sorted(reading.documents)}
    return sorted({**last, **reading.current}.items())
