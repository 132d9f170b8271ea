"""Cycles that are also kept elsewhere: compare, adopt, import; and recovering a damaged one from the log.

A workspace remembers of each cycle which document it last had in common with another place: the one that it imported,
adopted or sent. Whatever is refused, skipped or merged on the way is an event of the kind `cycle-conflict`.

One that is here already is left alone unless the other one surely goes on from it (`comparing`): nothing was done here
since it was exchanged, or nothing of ours is missing in it. What cannot be read is told by its key and keeps everything
out, unless it is to be left out.

The broken document is kept in the event, as it was found. What it said and the recovered one does not is told, so that
somebody can decide what of it was worth keeping.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import msgspec

from holdfast import errors
from holdfast.domains.cycles import merge, rules
from holdfast.domains.cycles.document import Document, Step, after
from holdfast.domains.cycles.merge import compare, digest
from holdfast.domains.cycles.rows import (
    CONFLICT,
    CYCLE,
    Found,
    corrupt,
    current_of,
    differences,
    look,
    missing,
    named,
    now_of,
    refused,
    require,
    set_current,
    to_cycle,
    versions,
    write,
)
from holdfast.domains.cycles.rules import LAST, Key, problems
from holdfast.kernel.tx import Snapshot, Tx, newest_version
from holdfast.kernel.validate import check_flag
from holdfast.operation import Do, Steps
from holdfast.types.cycles import Cycle, CycleComparison, CycleNote, CycleProblem, CycleReport, Recovery

if TYPE_CHECKING:
    from holdfast.interchange.peer import Reading

Sending = Literal["write", "merge", "skip", "refuse", "mine"]
_FROM_ELSEWHERE: Final = ("import", "adopt", "recover")  # after which ours need not have what was sent before
_MAX_TEXT: Final = 1000
_pack = msgspec.msgpack.Encoder().encode


def compare_document(snapshot: Snapshot, document: dict[str, Any]) -> CycleComparison:
    """Compare a document from elsewhere with ours: which goes on from the other, or whether they can be merged."""
    key = _key_of(document)
    return merge.compare(snapshot, key, require(snapshot, key), document)


def adopt(document: dict[str, Any], sequence: int) -> Steps[Cycle]:
    """Take a document from elsewhere in the place of ours, which must still be at `sequence`; ours stays in the log.

    It gets a sequence above ours. CycleConflict, with both, if ours is at another sequence by now.
    """
    key = _key_of(document)
    _check_sequence(sequence)
    try:
        cycle: Cycle = yield Do(lambda tx: _adopt(tx, key, document, sequence), keyed=True)
    except errors.CycleConflict as refusal:
        found = refusal.details["version"]  # the transaction that refused is undone: its conflict is logged by another
        yield Do(lambda tx: tell(tx, key, "refuse", sequence, found, "adopt"))
        raise
    return cycle


def _adopt(tx: Tx, key: Key, document: Document, sequence: int) -> Cycle:
    ours = require(tx, key)
    present = ours["sequence"]
    if present != sequence:
        raise errors.CycleConflict(
            f"{key} is at {present}, not at {sequence}: somebody went on with it meanwhile",
            key=str(key),
            expected=sequence,
            version=present,
            value=ours,
            mine=document,
            theirs=ours,
        )
    if digest(ours) != digest(document) or document["sequence"] > present:
        ours = write(tx, "adopt", {**document, "sequence": max(document["sequence"], present + 1)})
    share(tx, key, document)
    return to_cycle(ours)


def sent(
    tx: Tx, key: str, how: Sending, sequence: int, place: str, theirs: int = 0, digest: str = "", why: str = ""
) -> None:
    """Note what became of a cycle at another place: ours, at `sequence`, and theirs.

    "write": ours is there now, and what is done there goes on from it. The others are logged as conflicts; of a merge,
    before it is written, `digest` tells which document it is, so that it is known again whatever happens.
    """
    own = named(tx, key)
    _check_sequence(sequence)
    if not isinstance(how, str) or how not in get_args(Sending):
        raise errors.Invalid(f"{how!r} is not what becomes of a cycle", hint=f"one of {', '.join(get_args(Sending))}")
    if type(theirs) is not int or not 0 <= theirs < 2**62:
        raise errors.Invalid("theirs is the sequence of the other document, 0 if it has none")
    if not all(isinstance(text, str) and len(text) <= _MAX_TEXT for text in (place, digest, why)):
        raise errors.Invalid(f"place, digest and why are texts of at most {_MAX_TEXT} characters")
    require(tx, own)
    if how != "write":
        tell(tx, own, how, sequence, theirs, "export", place=place, why=why, digest=digest)
        return
    written = next((document for version, document in versions(tx, own) if version == sequence), None)
    row = tx.one(
        "SELECT max(version) FROM events WHERE kind = ? AND scope = '' AND id = ? AND op IN (?, ?, ?)",
        (CYCLE, str(own), *_FROM_ELSEWHERE),
    )
    if written is not None and (row is None or (row[0] or 0) <= sequence):
        share(tx, own, written)


def share(tx: Tx, key: Key, document: Document) -> None:
    """Remember a document as the one that is known elsewhere too."""
    found = digest(document)
    if merge.shared_of(tx, key) != found:
        tx.run("UPDATE cycles SET shared = ? WHERE prefix = ? AND number = ?", (found, key.prefix, key.number))


def tell(tx: Tx, key: Key, how: str, ours: int, theirs: int, step: str, **more: str) -> None:
    """Log a conflict with another place, also one that was resolved."""
    data = {"step": step, "phase": None, "expected": ours, "sequence": theirs}
    tx.emit(CONFLICT, str(key), how, data=_pack({**data, **{name: text for name, text in more.items() if text}}))


def _key_of(document: Any) -> Key:
    wrong = problems(document)
    if not wrong and document["sequence"] > LAST:
        wrong = [CycleProblem("$.sequence", f"is {document['sequence']}, and nothing could follow it")]
    if wrong:
        raise refused(document, wrong)
    return rules.parse(document["cycle_id"])


def _check_sequence(sequence: Any) -> None:
    if type(sequence) is not int or sequence < 1:
        raise errors.Invalid(f"sequence is the one that was read, a whole number from 1 on, not {sequence!r}")


MAX_ENTRIES = 10_000


def import_(tx: Tx, entries: dict[str, Any], skip_bad: bool = False, dry_run: bool = False) -> CycleReport:
    """Take in cycles of any format by their keys; all or nothing, unless what is bad is to be skipped."""
    check_flag(skip_bad=skip_bad, dry_run=dry_run)
    if not isinstance(entries, Mapping) or not all(isinstance(key, str) for key in entries):
        raise errors.Invalid("entries is a dict of documents by their keys")
    if len(entries) > MAX_ENTRIES:
        raise errors.TooLarge(f"{len(entries)} entries in one call; {MAX_ENTRIES} is the most", limit=MAX_ENTRIES)
    from holdfast.interchange import peer  # which only an import needs

    reading = peer.read(entries)
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


def _currents(reading: Reading) -> list[tuple[str, int]]:
    """Which cycle is the current one: as it is said, or the last."""
    last = {key.prefix: key.number for key in sorted(reading.documents)}
    return sorted({**last, **reading.current}.items())


_RECOVER = Step("recover", None, lambda document, now: "recovered", lambda document: False)


def recover(tx: Tx, key: str) -> Recovery:
    """Keep a copy of a broken document, write the last sound version anew, and tell what was lost.

    A document that is sound is left alone: then there are no `problems`. One that the log knows nothing of is taken as
    it is, if it keeps every rule. Corrupt if no version is sound.
    """
    own = named(tx, key)
    found = look(tx, own)
    if not found.there:
        raise missing(own)
    if not found.problems and found.document is not None:
        return Recovery(to_cycle(found.document), found.document["sequence"], [], [], None)
    version, sound = _last_sound(tx, found)
    raw = None if found.raw is None else found.raw.decode("utf-8", "backslashreplace")
    newest = newest_version(tx, CYCLE, "", str(own))
    document = after({**sound, "sequence": max(sound["sequence"], newest)}, _RECOVER, now_of(tx))
    write(tx, "recover", document, snapshot=raw, recovered_from=version)
    return Recovery(to_cycle(document), version, found.problems, _lost(found, sound), raw)


def _last_sound(tx: Snapshot, found: Found) -> tuple[int, Document]:
    """The newest document in the log that keeps every rule, and its version."""
    for version, document in versions(tx, found.key):
        if not problems(document):
            return version, document
    alone = found.document
    if alone is not None and not problems(alone) and alone["cycle_id"] == str(found.key):
        return 0, alone
    error = corrupt(found.key, [*found.problems, CycleProblem("$", "the log has no version that is sound")])
    error.hint = "cycles.delete(key, force=True) removes it; copy the document first if it matters"
    raise error


def _lost(found: Found, sound: Document) -> list[CycleProblem]:
    """What the broken document said, and the recovered one does not."""
    if found.document is not None:
        return [CycleProblem(path, told) for path, told in differences(found.document, sound)]
    size = 0 if found.raw is None else len(found.raw)
    return [CycleProblem("$", f"{size} bytes that nobody can read" if size else "nothing: the document was gone")]
