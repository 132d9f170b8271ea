"""What to do with a cycle that a workspace and a place both have: write it, leave it, merge the two, or refuse.

Ours goes on from theirs if theirs is what our log has at its sequence; where the log does not reach, if theirs is v2,
older, and its history the beginning of ours. Two that parted are merged from the last document that both had, if each
changed other phases. Guarantee: a document is only written over one whose every change is in it.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from holdfast import errors
from holdfast.domains.cycles.legacy.words import alike
from holdfast.domains.cycles.merging import combine
from holdfast.domains.cycles.rules import PHASES, problems

Document = dict[str, Any]
How = Literal["create", "update", "unchanged", "merge", "skip", "refuse"]


class Decision(msgspec.Struct, frozen=True):
    """What to do, with which document, and why."""

    how: How
    document: Document
    why: str = ""


def decide(workspace: Any, ours: Document, theirs: Document | None, newest: bool) -> Decision:
    """What becomes of our document where theirs is; `newest`: theirs is v2 already."""
    if theirs is None:
        return Decision("create", ours)
    if alike(theirs, ours):
        return Decision("unchanged" if newest else "update", ours)
    if theirs["sequence"] < ours["sequence"] and _continues(workspace, ours, theirs, newest):
        return Decision("update", ours)
    if theirs["sequence"] > ours["sequence"] and _begins(theirs, ours) and _same(theirs, ours):
        return Decision("skip", theirs, f"it is further there, at sequence {theirs['sequence']}: import it")
    base = _base(workspace, ours, theirs)
    if base is None:
        return Decision("refuse", theirs, "no document is known that both come from")
    parts = [(each["context"], *(each["phases"][phase] for phase in PHASES)) for each in (ours, base, theirs)]
    if all(mine in (before, other) for mine, before, other in zip(*parts, strict=True)):
        return Decision("skip", theirs, "all that was done here is there already")
    merged = combine(base, ours, theirs)
    if merged is None or problems(merged):
        return Decision("refuse", theirs, "both changed the same part of it")
    return Decision("merge", merged, f"with what others did there since sequence {base['sequence']}")


def _begins(longer: Document, shorter: Document) -> bool:
    return bool(longer["history"][: len(shorter["history"])] == shorter["history"])


def _continues(workspace: Any, ours: Document, theirs: Document, newest: bool) -> bool:
    known = _version(workspace, ours["cycle_id"], theirs["sequence"])
    return alike(known, theirs) if known is not None else newest and _begins(ours, theirs) and _same(ours, theirs)


def _base(workspace: Any, ours: Document, theirs: Document) -> Document | None:
    """The last document that surely both come from: the one that wrote the last step that both tell of."""
    common = 0
    for mine, other in zip(ours["history"], theirs["history"], strict=False):
        if mine != other:
            break
        common += 1
    sequence = ours["history"][common - 1]["sequence"] if common else 1
    found = _version(workspace, ours["cycle_id"], sequence) or _first(workspace, ours["cycle_id"])
    if found is None or found["sequence"] > theirs["sequence"] or not _begins(theirs, found):
        return None
    return found if _same(found, theirs) else None


def _same(one: Document, other: Document) -> bool:
    """Whether two are of one cycle: two that were begun apart may have the same key."""
    return bool(one["metadata"]["created_at"] == other["metadata"]["created_at"])


def _version(workspace: Any, key: str, sequence: int) -> Document | None:
    try:
        found: Document = workspace.cycles.export(key, sequence=sequence)
    except (errors.NotFound, errors.Compacted):
        return None
    return found


def _first(workspace: Any, key: str) -> Document | None:
    """The document with which the log begins: an import, if it did not start here."""
    events = workspace.events.list(kinds=["cycle"], id=key, limit=1)
    return _version(workspace, key, events[0].version) if events else None
