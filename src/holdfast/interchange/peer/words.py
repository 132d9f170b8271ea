"""The words and keys of older PEER agents, and what each means in a v2 document.

`PREFIX:meta`, `PREFIX:cycle:current`, `PREFIX:cycle:N` and `PREFIX:cycle:N:SUFFIX`, with colons or dots, perhaps with
words before, as a file name has them, or with the `events` of the audit stream. Pure. Called by `legacy`.
"""

from __future__ import annotations

import re
import sys
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from holdfast.domains.cycles.rules import PHASE_STATUSES, PHASES, STATUSES, Key, find, find_prefix
from holdfast.kernel.values import encode

Document = dict[str, Any]
_SAME: Final = {"complete": "completed", "error": "failed", "running": "in_progress"}
_PHASES: Final[dict[str, str]] = {**{phase: phase for phase in PHASES}, "execution": "execute"}
_STATUSES: Final[dict[str, str]] = {**{status: status for status in STATUSES}, **_SAME}
_PHASE_STATUSES: Final[dict[str, str]] = {**{status: status for status in PHASE_STATUSES}, **_SAME}
# A status that says in which phase a cycle is.
_ACTIVITIES: Final = {"planning": "plan", "executing": "execute", "expressing": "express", "reviewing": "review"}
_EVENTS: Final = {
    **{f"phase_{word}": word for word in ("started", "completed", "failed")},
    **{"phase_complete": "completed", "phase_error": "failed"},
}


class Unreadable(ValueError):
    """It cannot be read as a cycle."""


def phase_name(word: Any) -> str | None:
    """The phase that a word means, or None."""
    return _PHASES.get(word.lower()) if isinstance(word, str) else None


def phase_status(word: Any) -> str | None:
    """What a word means as the status of a phase, or None."""
    return _PHASE_STATUSES.get(word.lower()) if isinstance(word, str) else None


def cycle_status(word: str) -> tuple[str, str | None]:
    """What a word means as the status of a cycle, and the phase that it tells besides; Unreadable if nothing."""
    activity = _ACTIVITIES.get(word.lower())
    if activity is not None:
        return "in_progress", activity
    if word.lower() not in _STATUSES:
        raise Unreadable(f"status is {word[:80]!r}, which is none that is known")
    return _STATUSES[word.lower()], None


def lowered(word: Any) -> Any:
    """A word for the status of a cycle as ours is written; what is none stays as it is."""
    return _STATUSES.get(word.lower(), word) if isinstance(word, str) else word


def event_word(word: str) -> str:
    """What an event of the audit stream is called in a history."""
    return _EVENTS.get(word.lower(), word)


def moment(value: Any) -> datetime | None:
    """The moment that a text tells with its zone, or None."""
    try:
        found = msgspec.convert(value, datetime) if isinstance(value, str) else None
    except (msgspec.ValidationError, ValueError):
        return None
    return found if found is not None and found.tzinfo is not None else None


def is_time(value: Any) -> bool:
    """Whether a value is a time as a document has it."""
    return moment(value) is not None


def alike(one: Any, other: Any) -> bool:
    """Whether two values are the same to the letter: true is not 1, and 1 is not 1.0."""
    return encode(one, sys.maxsize) == encode(other, sys.maxsize)


def unused(target: Document, place: str) -> str:
    """A name that is not taken yet: two of one kind, and neither takes the other's place."""
    while place in target:
        place += "_"
    return place


def put(target: Document, place: str, value: Any) -> bool:
    """Put a value where none is yet; answers whether it is there now."""
    if place not in target:
        target[place] = value
    return target[place] is value or alike(target[place], value)


def move(source: Document, name: str, target: Document, place: str) -> None:
    """Take a field out of its source if it can be put in its place, or is there already."""
    if put(target, place, source[name]):
        del source[name]


Kind = Literal["cycle", "fragment", "meta", "current"]
_SOURCE: Final = re.compile(
    r"(?:^|[.:/])peer[.:](?:events[.:](?!peer[.:]))?"
    r"((?:spec|instruction)[.:][^.:/]+|global)[.:](?:(meta)|cycle[.:](?:(current)|([0-9]+)(?:[.:](.+))?))",
    re.DOTALL,
)


class Source(msgspec.Struct, frozen=True):
    """What a key says: `number` of a cycle or of its fragment, `suffix` of the latter."""

    kind: Kind
    prefix: str
    number: int = 0
    suffix: str = ""

    @property
    def key(self) -> Key:
        """The key of the cycle."""
        return Key(self.prefix, self.number)


def by_name(text: str) -> Source | None:
    """What the key itself says, or None if it is none of a cycle."""
    for match in _SOURCE.finditer(text):
        prefix = find_prefix(f"peer.{match[1]}")
        if prefix is None or match.end() != len(text):
            continue
        if match[2] or match[3]:
            return Source("meta" if match[2] else "current", prefix)
        if find(f"{prefix}:cycle:{match[4]}") is not None:
            return Source("fragment" if match[5] else "cycle", prefix, int(match[4]), match[5] or "")
    return None


def by_content(value: Any) -> Source | None:
    """What a document says of itself, for those whose key says nothing."""
    if isinstance(value, list):
        return by_content(value[0]) if value else None
    if not isinstance(value, dict):
        return None
    key = find(value.get("cycle_id"))
    if key is not None:
        return Source("cycle", key.prefix, key.number)
    metadata = value.get("metadata")
    told = metadata if isinstance(metadata, dict) else value
    prefix, number = find_prefix(told.get("key_prefix")), told.get("cycle_number")
    if prefix is not None and type(number) is int and find(f"{prefix}:cycle:{number}") is not None:
        return Source("cycle", prefix, number)
    if "cycles" in value and "current_cycle" in value:
        prefix = find_prefix(f"peer.spec.{value.get('spec_name')}")
        return None if prefix is None else Source("meta", prefix)
    return None
