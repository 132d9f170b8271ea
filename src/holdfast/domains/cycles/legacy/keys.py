"""The keys under which older PEER agents kept cycles: what each says of the cycle that its value belongs to.

`PREFIX:meta`, `PREFIX:cycle:current`, `PREFIX:cycle:N` and `PREFIX:cycle:N:SUFFIX`, with colons or dots, perhaps with
words before, as a file name has them, or with the `events` of the audit stream. Pure. Called by `legacy`.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

import msgspec

from holdfast.domains.cycles.keys import Key, find, find_prefix

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
