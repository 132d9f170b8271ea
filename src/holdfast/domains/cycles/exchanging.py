"""Cycles that are also kept elsewhere: comparing with a document from there, taking it over, noting what was sent.

A workspace remembers of each cycle which document it last had in common with another place: the one that it imported,
adopted or sent. Whatever is refused, skipped or merged on the way is an event of the kind `cycle-conflict`.
"""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

import msgspec

from holdfast import errors
from holdfast.domains.cycles import comparing, keys
from holdfast.domains.cycles.comparing import digest
from holdfast.domains.cycles.documents import Document
from holdfast.domains.cycles.keys import Key
from holdfast.domains.cycles.legacy.words import LAST
from holdfast.domains.cycles.rows import CONFLICT, CYCLE, named, refused, require, to_cycle, versions, write
from holdfast.domains.cycles.rules import problems
from holdfast.kernel.tx import Snapshot, Tx
from holdfast.ops import Do, Steps
from holdfast.types.cycles import Cycle, CycleComparison, CycleProblem

Sending = Literal["write", "merge", "skip", "refuse", "mine"]
_FROM_ELSEWHERE: Final = ("import", "adopt", "recover")  # after which ours need not have what was sent before
_MAX_TEXT: Final = 1000
_pack = msgspec.msgpack.Encoder().encode


def compare(snapshot: Snapshot, document: dict[str, Any]) -> CycleComparison:
    """Compare a document from elsewhere with ours: which goes on from the other, or whether they can be merged."""
    key = _key_of(document)
    return comparing.compare(snapshot, key, require(snapshot, key), document)


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
    if comparing.shared_of(tx, key) != found:
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
    return keys.parse(document["cycle_id"])


def _check_sequence(sequence: Any) -> None:
    if type(sequence) is not int or sequence < 1:
        raise errors.Invalid(f"sequence is the one that was read, a whole number from 1 on, not {sequence!r}")
