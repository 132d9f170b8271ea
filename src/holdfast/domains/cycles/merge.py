"""Two versions of one cycle: which continues the other, and whether they can be merged.

A step for an older document is applied to the present one if others changed other phases only, and skipped if its work
is done already; otherwise it is refused with both sides. Each of these is an event.

A document from elsewhere: the workspace remembers the digest of the last document that both sides had, and a side that
still has it did nothing since, so the other continues it. Otherwise a document continues one whose every part it has;
two that diverged are merged from a common base if each changed other parts. Guarantee: nothing that only one side has
is given up, except by "refuse". Pure but for reading the log. Called by the steps of cycles and by `exchange`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, Literal

import msgspec

from holdfast import errors
from holdfast.domains.cycles.document import Document, Step
from holdfast.domains.cycles.rows import CONFLICT, CYCLE, differences, versions
from holdfast.domains.cycles.rules import PHASES, Key, problems
from holdfast.kernel.tx import Snapshot, Tx
from holdfast.kernel.values import encode
from holdfast.types.cycles import CycleComparison, CycleProblem

Outcome = Literal["merge", "skip", "refuse"]
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(dict[str, Any]).decode


class Meanwhile(msgspec.Struct, frozen=True):
    """The phases and actors of the changes after a sequence; `known` is False if the log lacks some of them."""

    phases: frozenset[str | None]
    actors: tuple[str, ...]
    known: bool


def meanwhile(snapshot: Snapshot, key: Key, sequence: int, present: int) -> Meanwhile:
    """The changes in the log between two sequences."""
    rows = snapshot.all(
        "SELECT actor, data FROM events WHERE kind = ? AND scope = '' AND id = ? AND version > ? AND version <= ?"
        " ORDER BY version",
        (CYCLE, str(key), sequence, present),
    )
    phases = [phase for _, data in rows for phase in _phases(data)]
    actors = tuple(dict.fromkeys(actor for actor, _ in rows))
    return Meanwhile(frozenset(phases), actors, known=len(phases) == present - sequence)


def _phases(data: bytes | None) -> list[str | None]:
    """The phase that an event changed, as a list; empty if that cannot be read."""
    try:
        return [] if data is None else [_unpack(data)["phase"]]
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError):
        return []


def outcome(document: Document, step: Step, others: Meanwhile) -> Outcome:
    """What to do with a step for an older document."""
    if step.done(document):
        return "skip"
    if others.known and step.phase is not None and not others.phases & {step.phase, None}:
        return "merge"
    return "refuse"


def log_conflict(
    tx: Tx, key: Key, how: str, expected: int, found: int, step: str, phase: str | None = None, **more: str
) -> None:
    """Log a conflict with another writer or location, also a resolved one."""
    data = {"step": step, "phase": phase, "expected": expected, "sequence": found}
    tx.emit(CONFLICT, str(key), how, data=_pack({**data, **{name: text for name, text in more.items() if text}}))


def conflict(key: Key, document: Document, step: Step, expected: int, others: Meanwhile) -> errors.CycleConflict:
    """The error of a refused step, with both sides."""
    theirs = document["phases"][step.phase] if step.phase else document["metadata"]
    who = ", ".join(others.actors) or "somebody"
    what = step.phase or "the cycle"
    why = f"{who} changed {what} meanwhile" if others.known else "the log no longer has the changes since"
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
    """Combine two continuations of one document; None if both changed the same phase or the context."""
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
    """The steps of both in the order of their times, with growing sequences, which the phases get too."""
    entries = []
    for entry in sorted(added, key=lambda each: (each["timestamp"], each["sequence"])):
        last = max(last + 1, entry["sequence"])
        entries.append({**entry, "sequence": last})
        field = {"started": "sequence_at_start", "completed": "sequence_at_complete"}.get(entry["event"])
        if field is not None:
            phases[entry["phase"]][field] = last
    return entries


_STANDING: Final = "its metadata"
_RANKS: Final = {"pending": 0, "in_progress": 1, "completed": 2, "failed": 2}


def digest(document: Document) -> str:
    """A digest of a document without its sequence, which some formats lack."""
    return sha256(encode({**document, "sequence": 0}, sys.maxsize)).hexdigest()


def shared_of(snapshot: Snapshot, key: Key) -> str:
    """The digest of the document that was last exchanged with another location; empty before that."""
    row = snapshot.one("SELECT shared FROM cycles WHERE prefix = ? AND number = ?", (key.prefix, key.number))
    return "" if row is None else str(row[0])


def compare(snapshot: Snapshot, key: Key, ours: Document, theirs: Document) -> CycleComparison:
    """Compare two documents of a cycle: which continues the other, and the document that has all of both."""
    shared = shared_of(snapshot, key)
    how, document, why = _compared(snapshot, key, ours, theirs, shared)
    if how in ("ours", "merge") and document["sequence"] <= theirs["sequence"]:
        document = {**document, "sequence": theirs["sequence"] + 1}
    apart = [CycleProblem(*each) for each in differences(ours, theirs)] if how == "refuse" else []
    return CycleComparison(str(key), how, why, ours, document, digest(ours) == shared, apart)


def _compared(snapshot: Snapshot, key: Key, ours: Document, theirs: Document, shared: str) -> tuple[Any, Document, str]:
    mine, other = digest(ours), digest(theirs)
    if mine == other:
        return "same", ours, ""
    if other == shared:
        return "ours", ours, "nothing was done there since"
    if theirs["sequence"] <= ours["sequence"] and any(digest(each) == other for _, each in versions(snapshot, key)):
        return "ours", ours, "it was written here, and is older"
    if theirs["metadata"]["created_at"] != ours["metadata"]["created_at"]:
        return "refuse", theirs, "it is another cycle that was started under the same key"
    if mine == shared:
        return "theirs", theirs, "nothing was done here since"
    if continues(theirs, ours) and theirs["sequence"] > ours["sequence"]:
        return "theirs", theirs, "it is further there"
    if continues(ours, theirs) and theirs["sequence"] < ours["sequence"]:
        return "ours", ours, "it is further here"
    base = next(_bases(snapshot, key, ours, theirs, shared), None)
    if base is None:
        return "refuse", theirs, "no common base is known"
    return _merged(base, ours, theirs)


# --- one after the other ---------------------------------------------------------------------------------------------


def continues(later: Document, earlier: Document) -> bool:
    """Whether a document has everything of another: its steps, its context, and its phases so far."""
    return (
        later["metadata"]["created_at"] == earlier["metadata"]["created_at"]
        and _begins(later, earlier)
        and _within(earlier["context"], later["context"])
        and all(_has(later["phases"][name], earlier["phases"][name]) for name in PHASES)
    )


def _begins(later: Document, earlier: Document) -> bool:
    return not differences(earlier["history"], later["history"][: len(earlier["history"])])


def _has(later: Document, earlier: Document) -> bool:
    """Whether a phase is the other or a later state of it: one that ended only gets further errors."""
    if not _within(earlier.get("errors"), later.get("errors")):
        return False
    if _RANKS[earlier["status"]] == 2:
        return not differences({**earlier, "errors": None}, {**later, "errors": None})
    return _RANKS[later["status"]] >= _RANKS[earlier["status"]] and _within(earlier.get("output"), later.get("output"))


def _within(earlier: Any, later: Any) -> bool:
    if isinstance(earlier, dict) and isinstance(later, dict):
        return all(name in later and _within(value, later[name]) for name, value in earlier.items())
    if isinstance(earlier, list) and isinstance(later, list):
        return not differences(earlier, later[: len(earlier)])
    return earlier is None or not differences(earlier, later)


# --- two that diverged -----------------------------------------------------------------------------------------------


def _bases(snapshot: Snapshot, key: Key, ours: Document, theirs: Document, shared: str) -> Iterator[Document]:
    """Common bases of both, the best first.

    The one that theirs was merged from here; the last one exchanged, if theirs has all of it; the one that wrote the
    last step that both have, or the first of the log.
    """
    logged = list(versions(snapshot, key))
    merged = _merged_at(snapshot, key, digest(theirs))
    yield from (document for version, document in logged if version == merged)
    if shared:
        yield from (document for _, document in logged if digest(document) == shared and continues(theirs, document))
    common = 0
    for mine, other in zip(ours["history"], theirs["history"], strict=False):
        if mine != other:
            break
        common += 1
    last = ours["history"][common - 1]["sequence"] if common else 1
    for document in [each for version, each in logged if version == last] or [each for _, each in logged[-1:]]:
        same = document["metadata"]["created_at"] == theirs["metadata"]["created_at"]
        if same and document["sequence"] <= theirs["sequence"] and _begins(theirs, document):
            yield document


def _merged_at(snapshot: Snapshot, key: Key, found: str) -> int | None:
    """The sequence of ours from which the document with this digest was merged."""
    rows = snapshot.all(
        "SELECT data FROM events WHERE kind = ? AND scope = '' AND id = ? AND op = 'merge' ORDER BY version DESC",
        (CONFLICT, str(key)),
    )
    for (data,) in rows:
        entry = {} if data is None else _unpack(data)
        if entry.get("digest") == found:
            return int(entry["expected"])
    return None


def _merged(base: Document, ours: Document, theirs: Document) -> tuple[Any, Document, str]:
    """Merge two continuations of a document: each part from the side that changed it."""
    before, mine, other = _parts(base), _parts(ours), _parts(theirs)
    changed = [name for name in before if not _alike(mine[name], before[name])]
    if all(_alike(mine[name], other[name]) for name in changed) and _steps_of(ours, base, theirs):
        return "theirs", theirs, "all that was done here is there already"
    moved = [name for name in before if not _alike(other[name], before[name])]
    if all(_alike(mine[name], other[name]) for name in moved) and _steps_of(theirs, base, ours):
        return "ours", ours, "all that was done there is here already"
    clashes = [name for name in changed if name in moved and not _alike(mine[name], other[name])]
    if clashes:
        return "refuse", theirs, f"both changed {' and '.join(clashes)}"
    merged = combine(base, ours, theirs)
    if merged is None:
        return "refuse", theirs, "their steps do not fit together"
    updated = max((each["metadata"]["updated_at"] for each in (ours, theirs)), key=_moment)
    merged["metadata"] = {**(mine if _STANDING in changed else other)[_STANDING], "updated_at": updated}
    merged["sequence"] = max(merged["sequence"], *(entry["sequence"] for entry in merged["history"]), 1)
    wrong = problems(merged)
    if wrong:
        return "refuse", theirs, f"together they would break a rule: {wrong[0].path} {wrong[0].message}"
    return "merge", merged, f"with what others did there since sequence {base['sequence']}"


def _parts(document: Document) -> Document:
    """The parts of a document that can be merged independently."""
    standing = {name: value for name, value in document["metadata"].items() if name != "updated_at"}
    return {"context": document["context"], _STANDING: standing, **document["phases"]}


def _steps_of(document: Document, base: Document, other: Document) -> bool:
    """Whether the other document has every step that one took since the base."""
    return all(entry in other["history"] for entry in document["history"][len(base["history"]) :])


def _moment(text: str) -> datetime:
    return msgspec.convert(text, datetime)


def _alike(one: Any, other: Any) -> bool:
    return not differences(one, other)
