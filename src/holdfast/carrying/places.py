"""What a place is: keys with values, each at a revision, and writes that state the revision they go on from."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

from holdfast import errors

Revision: TypeAlias = int | str


class Entry(NamedTuple):
    """A value as it was found, and its revision."""

    value: bytes
    revision: Revision


class Place(Protocol):
    """Where PEER agents keep their cycles. `name` is what people call it; `indent` how documents are laid out there."""

    @property
    def indent(self) -> int:
        """By how many spaces the parts of a document are indented: 0 where programs alone read it."""
        ...

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    def read(self) -> dict[str, Entry]:
        """Everything that is there."""
        ...

    def write(self, key: str, value: bytes, expected: Revision | None) -> Revision:
        """Write a value over the one at revision `expected`, or where none is; VersionMismatch if it is another."""
        ...


def moved(place: str, key: str, expected: Revision | None, present: Revision | None) -> errors.VersionMismatch:
    """The refusal of a write: somebody else was there first."""
    there = "is gone" if present is None else f"is at revision {present}"
    before = "there was none" if expected is None else f"it was at {expected}"
    return errors.VersionMismatch(
        f"{key} of {place} {there}, and {before} when it was read",
        hint="read it again and decide again",
        key=key,
        expected=expected,
        version=present,
    )
