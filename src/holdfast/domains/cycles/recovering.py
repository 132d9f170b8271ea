"""Bringing back a cycle whose document is broken: the last version that the log has whole.

The broken document is kept in the event, as it was found. What it said and the recovered one does not is told, so that
somebody can decide what of it was worth keeping.
"""

from __future__ import annotations

from holdfast.domains.cycles.documents import Document, Step, after
from holdfast.domains.cycles.rows import (
    CYCLE,
    Found,
    corrupt,
    differences,
    look,
    missing,
    named,
    now_of,
    to_cycle,
    versions,
    write,
)
from holdfast.domains.cycles.rules import problems
from holdfast.kernel.tx import Snapshot, Tx, newest_version
from holdfast.types.cycles import CycleProblem, Recovery

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
