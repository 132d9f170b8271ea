"""A cycle here and a document of it from elsewhere: which goes on from the other, or whether they can be merged.

What was last exchanged is remembered by its digest: whoever still is at that has done nothing since, so the other goes
on from it. Otherwise a document goes on from one whose every part is in it; two that parted are merged from a document
that both come from, if each changed other parts. Guarantee: nothing that the one has and the other has not is given up
unless it is told as "refuse". Pure but for reading the log. Called by `exchanging` and `importing`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

import msgspec

from holdfast.domains.cycles.documents import Document
from holdfast.domains.cycles.keys import Key
from holdfast.domains.cycles.merging import combine
from holdfast.domains.cycles.rows import CONFLICT, differences, versions
from holdfast.domains.cycles.rules import PHASES, problems
from holdfast.kernel.tx import Snapshot
from holdfast.kernel.values import encode
from holdfast.types.cycles import CycleComparison, CycleProblem

_STANDING: Final = "its metadata"
_RANKS: Final = {"pending": 0, "in_progress": 1, "completed": 2, "failed": 2}
_unpack = msgspec.msgpack.Decoder(dict[str, Any]).decode


def digest(document: Document) -> str:
    """What a document says, whatever its sequence: formats without one do not tell it."""
    return sha256(encode({**document, "sequence": 0}, sys.maxsize)).hexdigest()


def shared_of(snapshot: Snapshot, key: Key) -> str:
    """The digest of the document that was last exchanged with another place; empty before that."""
    row = snapshot.one("SELECT shared FROM cycles WHERE prefix = ? AND number = ?", (key.prefix, key.number))
    return "" if row is None else str(row[0])


def compare(snapshot: Snapshot, key: Key, ours: Document, theirs: Document) -> CycleComparison:
    """Which of two documents of a cycle goes on from the other, and what has all of both."""
    shared = shared_of(snapshot, key)
    how, document, why = _compared(snapshot, key, ours, theirs, shared)
    if how in ("ours", "merge") and document["sequence"] <= theirs["sequence"]:
        document = {**document, "sequence": theirs["sequence"] + 1}
    apart = [CycleProblem(path, told) for path, told in differences(ours, theirs)] if how == "refuse" else []
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
        return "refuse", theirs, "it is another cycle that was begun under the same key"
    if mine == shared:
        return "theirs", theirs, "nothing was done here since"
    if goes_on(theirs, ours) and theirs["sequence"] > ours["sequence"]:
        return "theirs", theirs, "it is further there"
    if goes_on(ours, theirs) and theirs["sequence"] < ours["sequence"]:
        return "ours", ours, "it is further here"
    base = next(_bases(snapshot, key, ours, theirs, shared), None)
    if base is None:
        return "refuse", theirs, "no document is known that both come from"
    return _merged(base, ours, theirs)


# --- one after the other ---------------------------------------------------------------------------------------------


def goes_on(later: Document, earlier: Document) -> bool:
    """Whether all that one document has is in the other: its steps, its context, and what its phases have so far."""
    return (
        later["metadata"]["created_at"] == earlier["metadata"]["created_at"]
        and _begins(later, earlier)
        and _within(earlier["context"], later["context"])
        and all(_has(later["phases"][name], earlier["phases"][name]) for name in PHASES)
    )


def _begins(later: Document, earlier: Document) -> bool:
    return not differences(earlier["history"], later["history"][: len(earlier["history"])])


def _has(later: Document, earlier: Document) -> bool:
    """Whether a phase is the other or came after it: one that is over is the same but for errors that were noted."""
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


# --- two that parted -------------------------------------------------------------------------------------------------


def _bases(snapshot: Snapshot, key: Key, ours: Document, theirs: Document, shared: str) -> Iterator[Document]:
    """Documents that both come from, the best first.

    That which theirs was merged from here; the one that was last exchanged, if theirs has all of it; the one that wrote
    the last step that both tell of, or with which the log begins.
    """
    logged = list(versions(snapshot, key))
    merged = _merged_at(snapshot, key, digest(theirs))
    yield from (document for version, document in logged if version == merged)
    if shared:
        yield from (document for _, document in logged if digest(document) == shared and goes_on(theirs, document))
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
    """The sequence of ours with which a document was merged that has this digest."""
    rows = snapshot.all(
        "SELECT data FROM events WHERE kind = ? AND scope = '' AND id = ? AND op = 'merge' ORDER BY version DESC",
        (CONFLICT, str(key)),
    )
    for (data,) in rows:
        told = {} if data is None else _unpack(data)
        if told.get("digest") == found:
            return int(told["expected"])
    return None


def _merged(base: Document, ours: Document, theirs: Document) -> tuple[Any, Document, str]:
    """What two made of one document: each part as the one has it who changed it."""
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
    """What one can change without being in the way of who changes another."""
    standing = {name: value for name, value in document["metadata"].items() if name != "updated_at"}
    return {"context": document["context"], _STANDING: standing, **document["phases"]}


def _steps_of(document: Document, base: Document, other: Document) -> bool:
    """Whether the steps that one took since the base are told by the other too."""
    return all(entry in other["history"] for entry in document["history"][len(base["history"]) :])


def _moment(text: str) -> datetime:
    return msgspec.convert(text, datetime)


def _alike(one: Any, other: Any) -> bool:
    return not differences(one, other)
