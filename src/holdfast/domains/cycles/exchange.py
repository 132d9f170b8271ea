"""Cycles that are also kept elsewhere: comparing, adopting, importing; and recovering a damaged one from the log.

A workspace remembers for each cycle the document that it last had in common with another location: the one that it
imported, adopted or sent. What is refused, skipped or merged is logged as an event of the kind `cycle-conflict`. An
import leaves a cycle alone unless the other document surely continues it (`merge`).

`recover` keeps the damaged document in its event and reports what the recovered one lacks, so that somebody can decide
what of it was worth keeping.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from holdfast import errors
from holdfast.domains.cycles import merge, rows, rules
from holdfast.domains.cycles.document import Document, Step, after
from holdfast.domains.cycles.merge import compare, digest, log_conflict
from holdfast.domains.cycles.rules import LAST, Key, problems
from holdfast.kernel.tx import Snapshot, Tx, newest_version
from holdfast.kernel.validate import check_flag
from holdfast.operation import Do, Steps
from holdfast.route import LOADING
from holdfast.types import ImportReport
from holdfast.types.cycles import Cycle, CycleComparison, CycleProblem, Recovery

if TYPE_CHECKING:
    from holdfast.interchange.jsonl import Import, Place
    from holdfast.interchange.peer import Reading

Sending = Literal["write", "merge", "skip", "refuse", "mine"]
_FROM_ELSEWHERE: Final = ("import", "adopt", "recover")  # after which ours need not have what was sent before
_MAX_TEXT: Final = 1000


def compare_document(snapshot: Snapshot, document: dict[str, Any]) -> CycleComparison:
    """Compare a document from elsewhere with ours: which continues the other, or whether they can be merged."""
    key = _key_of(document)
    return merge.compare(snapshot, key, rows.require(snapshot, key), document)


def adopt(document: dict[str, Any], sequence: int) -> Steps[Cycle]:
    """Replace our document, which must still be at `sequence`, by one from elsewhere; ours stays in the log.

    The new one gets a sequence above ours. Raises CycleConflict, with both, if ours is at another sequence by now.
    """
    key = _key_of(document)
    check_sequence(sequence)
    return or_log(lambda tx: _adopt(tx, key, document, sequence), "adopt")


def or_log(work: Callable[[Tx], Cycle], op: str, phase: str | None = None) -> Steps[Cycle]:
    """Do a change of a cycle; a refusal rolls its transaction back, so the conflict is logged in another."""
    try:
        cycle: Cycle = yield Do(work, keyed=True)
    except errors.CycleConflict as refusal:
        key, expected, found = rules.parse(refusal.key), refusal.expected, refusal.details["version"]
        yield Do(lambda tx: log_conflict(tx, key, "refuse", expected, found, op, phase))
        raise
    return cycle


def _adopt(tx: Tx, key: Key, document: Document, sequence: int) -> Cycle:
    ours = rows.require(tx, key)
    present = ours["sequence"]
    if present != sequence:
        raise errors.CycleConflict(
            f"{key} is at {present}, not at {sequence}: somebody changed it meanwhile",
            key=str(key),
            expected=sequence,
            version=present,
            value=ours,
            mine=document,
            theirs=ours,
        )
    if digest(ours) != digest(document) or document["sequence"] > present:
        ours = rows.write(tx, "adopt", {**document, "sequence": max(document["sequence"], present + 1)})
    share(tx, key, document)
    return rows.to_cycle(ours)


def sent(
    tx: Tx, key: str, how: Sending, sequence: int, place: str, theirs: int = 0, digest: str = "", why: str = ""
) -> None:
    """Record what an export did with a cycle at another place: ours, at `sequence`, and theirs.

    "write": ours is there now, and what is done there continues it. The others are logged as conflicts; before a merged
    document is written, its `digest` is logged, by which it is recognized whatever happens.
    """
    own = rows.named(tx, key)
    check_sequence(sequence)
    if not isinstance(how, str) or how not in get_args(Sending):
        raise errors.Invalid(f"how cannot be {how!r}", hint=f"one of {', '.join(get_args(Sending))}")
    if type(theirs) is not int or not 0 <= theirs < 2**62:
        raise errors.Invalid("theirs is the sequence of the other document, 0 if it has none")
    if not all(isinstance(text, str) and len(text) <= _MAX_TEXT for text in (place, digest, why)):
        raise errors.Invalid(f"place, digest and why are texts of at most {_MAX_TEXT} characters")
    rows.require(tx, own)
    if how != "write":
        log_conflict(tx, own, how, sequence, theirs, "export", place=place, why=why, digest=digest)
        return
    written = next((document for version, document in rows.versions(tx, own) if version == sequence), None)
    row = tx.one(
        "SELECT max(version) FROM events WHERE kind = ? AND scope = '' AND id = ? AND op IN (?, ?, ?)",
        (rows.CYCLE, str(own), *_FROM_ELSEWHERE),
    )
    if written is not None and (row is None or (row[0] or 0) <= sequence):
        share(tx, own, written)


def share(tx: Tx, key: Key, document: Document) -> None:
    """Remember a document as the one that another location has too."""
    found = digest(document)
    if merge.shared_of(tx, key) != found:
        tx.run("UPDATE cycles SET shared = ? WHERE prefix = ? AND number = ?", (found, key.prefix, key.number))


def _key_of(document: Any) -> Key:
    wrong = problems(document)
    if not wrong and document["sequence"] > LAST:
        wrong = [CycleProblem("$.sequence", f"is {document['sequence']}; the limit is {LAST}")]
    if wrong:
        raise rows.refused(document, wrong)
    return rules.parse(document["cycle_id"])


def check_sequence(sequence: Any) -> None:
    """Raise Invalid unless a document can have this sequence."""
    if type(sequence) is not int or sequence < 1:
        raise errors.Invalid(f"sequence must be the one that was read, an int of 1 or more, not {sequence!r}")


# --- importing -------------------------------------------------------------------------------------------------------


def import_(tx: Tx, entries: dict[str, Any], dry_run: bool = False, skip_bad: bool = False) -> ImportReport:
    """Import cycles of any format by their keys.

    What continues a cycle here is updated; what changed on both sides is left alone. An entry that cannot be read
    refuses all (Invalid, with `problems`); with `skip_bad` it is left out.
    """
    check_flag(skip_bad=skip_bad, dry_run=dry_run)
    if not isinstance(entries, Mapping) or not all(isinstance(key, str) for key in entries):
        raise errors.Invalid("entries is a dict of documents by their keys")
    with LOADING:
        from holdfast.interchange import jsonl, peer  # only an import needs them

    def work() -> ImportReport:
        found, reading = jsonl.Import("cycles", unit="entries"), peer.read(entries)
        for key, message in reading.problems:
            found.refuse(jsonl.Place("cycles", 0, key), message)
        for key, message in reading.notes:
            found.warn(jsonl.Place("cycles", 0, key), message)
        for own, document in sorted(reading.documents.items()):
            place = jsonl.Place("cycles", 0, str(own))
            bad = len(found.bad)
            outcome = found.attempt(place, _put, tx, own, document, reading.formats.get(own, "v2"), found, place)
            if outcome is not None:
                found.count(outcome, place)
            elif len(found.bad) > bad:
                del reading.documents[own]
        for prefix, number in _currents(reading):
            rows.set_current(tx, prefix, max(number, rows.current_of(tx, prefix)))
        found.check(skip_bad)
        return found.report

    return jsonl.run(tx, dry_run, work)


def _put(tx: Tx, key: Key, document: Document, format: str, found: Import, place: Place) -> str | None:
    """Write a cycle if that loses nothing; returns the outcome, or None after reporting a conflict."""
    own = rows.look(tx, key)
    if own.problems:
        found.conflict(place, "its document here is damaged; skipped, recover it first")
        return None
    if own.document is None:
        if newest_version(tx, rows.CYCLE, "", str(key)):
            found.conflict(place, "deleted here: not created again; skipped")
            return None
        rows.write(tx, "import", document, format=format)
        share(tx, key, document)
        return "created"
    compared = compare(tx, key, own.document, document)
    if compared.how in ("same", "ours"):
        return "unchanged"
    if compared.how == "theirs":
        document = {**document, "sequence": max(document["sequence"], own.document["sequence"] + 1)}
        rows.write(tx, "import", document, format=format)
        share(tx, key, document)
        return "updated"
    found.conflict(place, _divergence(compared, document), {each.path: each.message for each in compared.differences})
    log_conflict(tx, key, "refuse", own.document["sequence"], document["sequence"], "import", why=compared.why)
    return None


def _divergence(compared: CycleComparison, other: Document) -> str:
    mine, theirs = (f"sequence {each['sequence']} ({each['metadata']['status']})" for each in (compared.mine, other))
    why = "each changed other parts, and an export merges them" if compared.how == "merge" else compared.why
    return f"diverged: {mine} here, {theirs} in the import, which does not continue it: {why}; skipped"


def _currents(reading: Reading) -> list[tuple[str, int]]:
    """The current cycle of each prefix: the one that an entry names, or the last."""
    last = {key.prefix: key.number for key in sorted(reading.documents)}
    return sorted({**last, **reading.current}.items())


# --- recovering ------------------------------------------------------------------------------------------------------

_RECOVER = Step("recover", None, lambda document, now: "recovered", lambda document: False)


def recover(tx: Tx, key: str) -> Recovery:
    """Keep a copy of a damaged document, write the last sound version again, and report what was lost.

    A sound document is left alone: then there are no `problems`. One that the log does not know is accepted if it
    breaks no rule. Raises Corrupt if no version is sound.
    """
    own = rows.named(tx, key)
    found = rows.look(tx, own)
    if not found.there:
        raise rows.missing(own)
    if not found.problems and found.document is not None:
        return Recovery(rows.to_cycle(found.document), found.document["sequence"], [], [], None)
    version, sound = _last_sound(tx, found)
    raw = None if found.raw is None else found.raw.decode("utf-8", "backslashreplace")
    newest = newest_version(tx, rows.CYCLE, "", str(own))
    document = after({**sound, "sequence": max(sound["sequence"], newest)}, _RECOVER, rows.now_of(tx))
    rows.write(tx, "recover", document, snapshot=raw, recovered_from=version)
    return Recovery(rows.to_cycle(document), version, found.problems, _lost(found, sound), raw)


def _last_sound(tx: Snapshot, found: rows.Found) -> tuple[int, Document]:
    """The newest document in the log that breaks no rule, and its version."""
    for version, document in rows.versions(tx, found.key):
        if not problems(document):
            return version, document
    alone = found.document
    if alone is not None and not problems(alone) and alone["cycle_id"] == str(found.key):
        return 0, alone
    error = rows.corrupt(found.key, [*found.problems, CycleProblem("$", "the log has no version that is sound")])
    error.hint = "cycles.delete(key, force=True) removes it; copy the document first if it matters"
    raise error


def _lost(found: rows.Found, sound: Document) -> list[CycleProblem]:
    """What the damaged document has and the recovered one lacks."""
    if found.document is not None:
        return [CycleProblem(*each) for each in rows.differences(found.document, sound)]
    size = 0 if found.raw is None else len(found.raw)
    return [CycleProblem("$", f"{size} bytes that nobody can read" if size else "nothing: the document was gone")]
