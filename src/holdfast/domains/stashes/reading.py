"""The lines of an import, each by itself: what it says, or why it cannot be read.

A merge of two files may leave a line in both its forms. Of a trail or a stash the newer one counts, as its version
tells, of a task the one that was changed last, with a warning; lines that are the same are one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec

from holdfast import errors
from holdfast.domains.stashes import putting
from holdfast.domains.stashes.crumbs import read_crumb
from holdfast.domains.stashes.exporting import EntryLine, LinkLine, StashLine, Time, TrailLine
from holdfast.domains.tasks.importing import parse
from holdfast.kernel.ids import is_uuid7

L = TypeVar("L", TrailLine, LinkLine, StashLine, EntryLine)
Read = tuple[int, L]  # a line with its number
Told = Callable[[int, str | None, str], None]  # what is said of a line: its number, its id, why
REFUSALS: Final = (
    *(errors.Invalid, errors.NotFound, errors.DuplicateName, errors.Exists, errors.TooLarge),
    *(msgspec.ValidationError, RecursionError),
)


def read_tasks(lines: Sequence[str], refuse: Told, warn: Told) -> list[str]:
    """The lines of crumbs as lines of tasks, in their places; blank for what cannot be read, or counts no more."""
    texts: list[str] = []
    found: dict[str, tuple[int, datetime | None]] = {}  # of each task where its line is, and of when
    for number, text in enumerate(lines, 1):
        texts.append("")
        try:
            texts[-1] = read_crumb(text)
            id, updated = _moment_of(texts[-1])
        except errors.Invalid as error:
            refuse(number, error.details.get("id"), error.message)
            continue
        if id is None:
            continue
        first, before = found.setdefault(id, (number, updated))
        if first == number or updated is None or before is None:
            continue
        if texts[-1] == texts[first - 1]:
            texts[-1] = ""
        elif updated != before:
            older, newer = sorted((first, number), key=lambda each: updated if each == number else before)
            texts[older - 1] = ""
            found[id] = newer, max(updated, before)
            warn(older, id, f"line {newer} tells of the same task at a later time: this one is left out")
    return texts


def _moment_of(text: str) -> tuple[str | None, datetime | None]:
    """The id of the task that a line is about, and when it was changed last."""
    raw = parse(text) or {}
    id, updated = raw.get("id"), raw.get("updated_at")
    try:
        return (id if isinstance(id, str) else None), msgspec.convert(updated, Time | None)
    except msgspec.ValidationError:
        return None, None  # which the import of tasks tells


def read_table(lines: Sequence[str], kind: type[L], ids: Sequence[str], refuse: Told, warn: Told) -> list[Read[L]]:
    """The lines of a table that are well-formed by themselves, with their numbers; the first of `ids` is their own."""
    found: dict[str, Read[L]] = {}
    for number, text in enumerate(lines, 1):
        id: str | None = None
        try:
            raw = parse(text)
            if raw is None:
                continue
            id = raw[ids[0]] if isinstance(raw.get(ids[0]), str) else None
            _check_ids(raw, ids)
            line = msgspec.convert(raw, kind)
            if id in found and not _newer(line, found[str(id)][1]):
                if line != found[str(id)][1] and not _newer(found[str(id)][1], line):
                    raise errors.Invalid(f"line {found[str(id)][0]} has the same {ids[0]}, and neither is the newer")
                continue
        except REFUSALS as error:
            refuse(number, id, getattr(error, "message", str(error)))
            continue
        found[str(id)] = number, line
        left = sorted(raw.keys() - set(kind.__struct_fields__))
        if left:
            warn(number, id, f"no place for, left out: {', '.join(left)}")
    return list(found.values())


def _newer(one: Any, other: Any) -> bool:
    """Whether a line tells what became of a record after another did."""
    match one, other:
        case TrailLine(), TrailLine():
            return putting.can_follow(putting.trail_row(other), putting.trail_row(one))
        case StashLine(), StashLine():  # that the one comes from the other its history tells
            return one.version > other.version
    return False


def _check_ids(raw: dict[str, Any], names: Sequence[str]) -> None:
    ends = zip(("from_id", "to_id"), putting.ENDS.get(str(raw.get("link_type")), ()), strict=False)
    names = [*names, *(end for end, table in ends if table != "tasks")]  # a task may have any id
    wrong = [f"{name} {raw.get(name)!r}" for name in names if not is_uuid7(raw.get(name))]
    if wrong:
        raise errors.InvalidID(f"no UUID v7: {', '.join(wrong)}")
