"""What an export had to leave alone, told as one error that has all of it."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast import errors
from holdfast.carrying.places import Revision
from holdfast.types.cycles import CycleProblem


class Refusal(msgspec.Struct, frozen=True):
    """A cycle that was not written, and why; both sides, the revision that is there, and each place where they differ.

    `advice` says what to do where it is not to choose one of the two.
    """

    key: str
    message: str
    advice: str = ""
    revision: Revision | None = None
    mine: dict[str, Any] | None = None
    theirs: dict[str, Any] | None = None
    differences: list[CycleProblem] = []


def refused(refusals: list[Refusal], place: str, sent: Any) -> errors.CycleConflict:
    """The error for cycles that were left alone; its own sides are those of the first."""
    first = refusals[0]
    more = f"; and {len(refusals) - 1} more: {', '.join(each.key for each in refusals[1:])}" if refusals[1:] else ""
    choose = "compare the two: bring(..., theirs=[key]) takes what is there, send(..., mine=[key]) writes ours over it"
    return errors.CycleConflict(
        first.message + more,
        hint="; ".join(dict.fromkeys(each.advice or choose for each in refusals)),
        key=first.key,
        expected=None if first.mine is None else first.mine["sequence"],
        version=None if first.theirs is None else first.theirs["sequence"],
        value=first.theirs,
        mine=first.mine,
        theirs=first.theirs,
        revision=first.revision,
        place=place,
        conflicts=msgspec.to_builtins(refusals),
        sent=sent,
    )
