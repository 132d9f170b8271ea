"""The words and keys of older PEER agents, and what each means in a v2 document.

Keys are `PREFIX:meta`, `PREFIX:cycle:current`, `PREFIX:cycle:N` and `PREFIX:cycle:N:SUFFIX`, with colons or dots,
perhaps after other words, as in a file name, or after the `events` of the audit stream. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from holdfast.domains.cycles.rules import PHASE_STATUSES, PHASES, STATUSES, Key, alike, find, find_prefix, moment

Document = dict[str, Any]
_SAME: Final = {"complete": "completed", "error": "failed", "running": "in_progress"}
_PHASES: Final[dict[str, str]] = {**{phase: phase for phase in PHASES}, "execution": "execute"}
_STATUSES: Final[dict[str, str]] = {**{status: status for status in STATUSES}, **_SAME}
_PHASE_STATUSES: Final[dict[str, str]] = {**{status: status for status in PHASE_STATUSES}, **_SAME}
# Statuses that name the phase a cycle is in.
_ACTIVITIES: Final = {"planning": "plan", "executing": "execute", "expressing": "express", "reviewing": "review"}
_EVENTS: Final = {
    **{f"phase_{word}": word for word in ("started", "completed", "failed")},
    **{"phase_complete": "completed", "phase_error": "failed"},
}


# Where documents have the name that their key has.
OWN_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "instruction": ("instruction", "instruction_name"),
    "spec_name": ("spec_name", "spec"),
}


class Unreadable(ValueError):
    """An entry that cannot be read as a cycle."""


def phase_name(word: Any) -> str | None:
    """The phase that a word means, or None."""
    return _PHASES.get(word.lower()) if isinstance(word, str) else None


def phase_status(word: Any) -> str | None:
    """The status of a phase that a word means, or None."""
    return _PHASE_STATUSES.get(word.lower()) if isinstance(word, str) else None


def cycle_status(word: str) -> tuple[str, str | None]:
    """The status of a cycle that a word means, and the phase if it names one. Raises Unreadable."""
    activity = _ACTIVITIES.get(word.lower())
    if activity is not None:
        return "in_progress", activity
    if word.lower() not in _STATUSES:
        raise Unreadable(f"unknown status {word[:80]!r}")
    return _STATUSES[word.lower()], None


def lowered(word: Any) -> Any:
    """The status of a cycle in our spelling; an unknown one is returned as it is."""
    return _STATUSES.get(word.lower(), word) if isinstance(word, str) else word


def event_word(word: str) -> str:
    """The name in a history for an event of the audit stream."""
    return _EVENTS.get(word.lower(), word)


def is_time(value: Any) -> bool:
    """Whether a value is a time with a zone."""
    return moment(value) is not None


def unused(target: Document, field: str) -> str:
    """A name like `field` that is not taken."""
    while field in target:
        field += "_"
    return field


def put(target: Document, field: str, value: Any) -> bool:
    """Set a field that is missing; returns whether it has this value now."""
    if field not in target:
        target[field] = value
    return target[field] is value or alike(target[field], value)


def move(source: Document, name: str, target: Document, field: str) -> None:
    """Move a field, unless the target has another value."""
    if put(target, field, source[name]):
        del source[name]


Kind = Literal["cycle", "fragment", "meta", "current"]
_SOURCE: Final = re.compile(
    r"(?:^|[.:/])peer[.:](?:events[.:](?!peer[.:]))?"
    r"((?:spec|instruction)[.:][^.:/]+|global)[.:](?:(meta)|cycle[.:](?:(current)|([0-9]+)(?:[.:](.+))?))",
    re.DOTALL,
)


class Source(msgspec.Struct, frozen=True):
    """The parts of a key: `number` of a cycle or of its fragment, `suffix` of a fragment."""

    kind: Kind
    prefix: str
    number: int = 0
    suffix: str = ""

    @property
    def key(self) -> Key:
        """The key of the cycle."""
        return Key(self.prefix, self.number)


_PEER: Final = re.compile(r"(?:^|[.:/])peer[.:]")


def is_peer(text: str) -> bool:
    """Whether a key is one of PEER agents, be it well-formed or not."""
    return _PEER.search(text) is not None


def by_name(text: str) -> Source | None:
    """The parts of a key, or None if it belongs to no cycle."""
    for match in _SOURCE.finditer(text):
        prefix = find_prefix(f"peer.{match[1]}")
        if prefix is None or match.end() != len(text):
            continue
        if match[2] or match[3]:
            return Source("meta" if match[2] else "current", prefix)
        if find(f"{prefix}:cycle:{match[4]}") is not None:
            return Source("fragment" if match[5] else "cycle", prefix, int(match[4]), match[5] or "")
    return None


def renamed(name: str, value: Any, prefixes: Mapping[str, str]) -> tuple[str, Any]:
    """An entry of other prefixes as one of ours: its key, and where its content names itself, its spec or instruction.

    `prefixes` maps a prefix there, with dots or colons, to one of ours. A prefix counts where it begins a key, is
    followed by the rest of one, and no longer one fits. Fragments other than the metadata keep their values.
    """
    for theirs in sorted(prefixes, key=len, reverse=True):
        found = _renamed(name, theirs, prefixes[theirs])
        if found is not None:
            source = by_name(found)
            names = source is None or source.kind != "fragment" or source.suffix == "metadata"
            return found, _renamed_within(value, theirs, prefixes[theirs], names)
    return name, value


def _renamed(text: str, theirs: str, ours: str) -> str | None:
    same = re.sub(r"[.:]", "[.:]", re.escape(theirs).replace(r"\.", "."))
    match = re.fullmatch(rf"(?:.*/)?{same}(?:[.:]((?:cycle|meta)\b.*))?", text, re.DOTALL)
    return None if match is None else f"{ours}:{match[1]}" if match[1] else ours


def _renamed_within(value: Any, theirs: str, ours: str, names: bool) -> Any:
    if not isinstance(value, dict):
        return value
    named = {name: _renamed(value[name], theirs, ours) for name in _NAMES if isinstance(value.get(name), str)}
    inner = {"metadata": _renamed_within(value["metadata"], theirs, ours, names)} if "metadata" in value else {}
    found = {**value, **{name: new for name, new in named.items() if new is not None}, **inner}
    return _with_our_names(found, theirs, ours) if names else found


_NAMES: Final = ("cycle_id", "key_prefix")


def _with_our_names(fields: Document, theirs: str, ours: str) -> Document:
    """These fields with the name of the spec or instruction that our prefix has.

    A name that their prefix does not end with is kept beside ours. One that contradicts a prefix of PEER is left alone.
    """
    there, here = Key(find_prefix(theirs) or "", 0), Key(ours, 0)
    kind, name, named = "spec_name", here.spec, there.spec
    if name is None:
        kind, name, named = "instruction", here.instruction, there.instruction
    found = dict(fields)
    for field in OWN_NAMES[kind]:
        value = found.get(field)
        if name is None or not isinstance(value, str) or named not in (None, value):
            continue
        if value != name and not _ends_with(theirs, value):
            found[unused(found, field)] = value
        found[field] = name
    return found


def _ends_with(prefix: str, name: str) -> bool:
    return f".{prefix.replace(':', '.')}".endswith(f".{name.replace(':', '.')}")


def by_content(value: Any) -> Source | None:
    """The parts of the key that a document names, for one under another name."""
    if isinstance(value, list):
        return by_content(value[0]) if value else None
    if not isinstance(value, dict):
        return None
    key = find(value.get("cycle_id"))
    if key is not None:
        return Source("cycle", key.prefix, key.number)
    metadata = value.get("metadata")
    fields = metadata if isinstance(metadata, dict) else value
    prefix, number = find_prefix(fields.get("key_prefix")), fields.get("cycle_number")
    if prefix is not None and type(number) is int and find(f"{prefix}:cycle:{number}") is not None:
        return Source("cycle", prefix, number)
    if "cycles" in value and "current_cycle" in value:
        prefix = find_prefix(f"peer.spec.{value.get('spec_name')}")
        return None if prefix is None else Source("meta", prefix)
    return None
