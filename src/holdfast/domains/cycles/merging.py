"""When two have read the same document: what others did meanwhile, and what that means for a step.

Whoever changed other phases is in nobody's way: the step is taken on what is there now. A step whose work is there
already is skipped. Otherwise both sides are shown and nobody is overwritten. Each of these is an event of its own.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from holdfast import errors
from holdfast.domains.cycles.documents import Document, Step
from holdfast.domains.cycles.keys import Key
from holdfast.domains.cycles.rows import CONFLICT, CYCLE
from holdfast.kernel.tx import Snapshot, Tx

Outcome = Literal["merge", "skip", "refuse"]
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(dict[str, Any]).decode


class Meanwhile(msgspec.Struct, frozen=True):
    """What was written after a sequence: by whom, to which phases; `known` False: the log does not tell any more."""

    phases: frozenset[str | None]
    actors: tuple[str, ...]
    known: bool


def meanwhile(snapshot: Snapshot, key: Key, sequence: int, present: int) -> Meanwhile:
    """What the log says of the time between two sequences."""
    rows = snapshot.all(
        "SELECT actor, data FROM events WHERE kind = ? AND scope = '' AND id = ? AND version > ? AND version <= ?"
        " ORDER BY version",
        (CYCLE, str(key), sequence, present),
    )
    told = [phase for _, data in rows for phase in _phases(data)]
    actors = tuple(dict.fromkeys(actor for actor, _ in rows))
    return Meanwhile(frozenset(told), actors, known=len(told) == present - sequence)


def _phases(data: bytes | None) -> list[str | None]:
    """The phase that an event changed, as a list: nothing if nobody can tell any more."""
    try:
        return [] if data is None else [_unpack(data)["phase"]]
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError):
        return []


def outcome(document: Document, step: Step, others: Meanwhile) -> Outcome:
    """What becomes of a step that was meant for an older document."""
    if step.done(document):
        return "skip"
    if others.known and step.phase is not None and not others.phases & {step.phase, None}:
        return "merge"
    return "refuse"


def tell(tx: Tx, key: Key, how: Outcome, step: Step, expected: int, found: int) -> None:
    """Log a conflict, also one that was resolved."""
    data = {"step": step.op, "phase": step.phase, "expected": expected, "sequence": found}
    tx.emit(CONFLICT, str(key), how, data=_pack(data))


def conflict(key: Key, document: Document, step: Step, expected: int, others: Meanwhile) -> errors.CycleConflict:
    """The refusal, with both sides."""
    theirs = document["phases"][step.phase] if step.phase else document["metadata"]
    who = ", ".join(others.actors) or "somebody"
    what = step.phase or "the cycle"
    why = f"{who} changed {what} meanwhile" if others.known else "the log no longer tells what was changed meanwhile"
    return errors.CycleConflict(
        f"{key} is at {document['sequence']}, not at {expected}: {why}",
        expected=expected,
        version=document["sequence"],
        value=theirs,
        key=str(key),
        phase=step.phase,
        mine=step.wanted,
        theirs=theirs,
    )


# --- documents from elsewhere ----------------------------------------------------------------------------------------


def combine(base: Document, ours: Document, theirs: Document) -> Document | None:
    """What two made of one document, if they changed different phases of it; None if they are in each other's way."""
    phases: Document = {}
    for name, before in base["phases"].items():
        mine, other = ours["phases"][name], theirs["phases"][name]
        if mine != before and other not in (before, mine):
            return None
        phases[name] = mine if mine != before else other
    if ours["context"] != base["context"] and theirs["context"] not in (base["context"], ours["context"]):
        return None
    known = len(base["history"])
    added = [*ours["history"][known:], *(each for each in theirs["history"][known:] if each not in ours["history"])]
    if ours["history"][:known] != base["history"] or theirs["history"][:known] != base["history"]:
        return None
    later = max(ours, theirs, key=lambda document: len([p for p in document["phases"].values() if "started_at" in p]))
    combined = {**later, "sequence": max(ours["sequence"], theirs["sequence"]) + 1}
    combined["phases"] = {name: dict(phase) for name, phase in phases.items()}
    combined["context"] = ours["context"] if ours["context"] != base["context"] else theirs["context"]
    combined["history"] = [*base["history"], *_renumbered(added, base["sequence"], combined["phases"])]
    return combined


def _renumbered(added: list[Document], last: int, phases: Document) -> list[Document]:
    """Steps of two in the order of their times, their sequences growing; the phases say the same."""
    told = []
    for entry in sorted(added, key=lambda each: (each["timestamp"], each["sequence"])):
        last = max(last + 1, entry["sequence"])
        told.append({**entry, "sequence": last})
        field = {"started": "sequence_at_start", "completed": "sequence_at_complete"}.get(entry["event"])
        if field is not None:
            phases[entry["phase"]][field] = last
    return told
