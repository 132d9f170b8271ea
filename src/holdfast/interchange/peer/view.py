"""A location as it was read: its entries, the cycles in them, what had to be recovered, and keys that are left over.

An entry that cannot be read is replaced by the newest older one that can, if the location keeps its history, with a
warning. Keys of older formats stay when a v2 document is written; `old_keys` finds them again, however many exports ago
that was, and `remove_old_keys` removes those whose content the workspace has imported. Called by `sync` and by the
commands.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import msgspec

from holdfast import errors
from holdfast.domains.cycles.merge import digest
from holdfast.domains.cycles.rules import Key, find
from holdfast.interchange.jsonl import decode_json
from holdfast.interchange.peer import Reading, read
from holdfast.interchange.peer.locations import Contents, Entry, Location, Revision
from holdfast.interchange.peer.words import by_name, renamed

Entries = dict[str, str | bytes]


def entries_of(found: Mapping[str, Entry]) -> Entries:
    """Decode entries to `str` where possible; raw bytes cost more on the wire."""
    return {key: _text(entry.value) for key, entry in found.items()}


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value  # reported by the import


class View(msgspec.Struct, frozen=True):
    """A location as it was read; an entry that was recovered has its older value, and the revision it is at now.

    `names` maps the keys of entries that came under our prefix to those that they have there.
    """

    entries: Contents
    reading: Reading
    recovered: set[str]
    warnings: list[tuple[str, str]]
    names: dict[str, str] = {}

    def name_there(self, name: str | None) -> str | None:
        """The key that an entry has there, by ours or by the cycle that was read from it."""
        sources = self.reading.sources.get(key, ()) if name not in self.names and (key := find(name)) else ()
        return self.names.get(sources[0] if sources else name or "", name)

    def home(self, key: Key) -> str:
        """The name under which the document of a cycle is written: its present one, if that is a key and it is v2.

        A file that only its content names is a copy of somebody's, which nothing writes over.
        """
        found = self.reading.sources[key][0] if self.reading.formats.get(key) == "v2" else key.dotted
        return found if by_name(found) is not None else key.dotted

    def revision(self, name: str) -> Revision | None:
        """The revision of an entry."""
        return self.entries[name].revision if name in self.entries else None

    def problem(self, key: Key) -> tuple[str, str] | None:
        """The name of an entry of a cycle that cannot be read, and why."""
        for name, message in self.reading.problems:
            source = by_name(name)
            if source is not None and source.number and source.key == key:
                return name, message
        return None


def look(location: Location, prefixes: Mapping[str, str] = MappingProxyType({})) -> View:
    """Read a location; what cannot be read is recovered from the history that the location keeps.

    `prefixes` maps prefixes there to ours: such entries get our keys.
    """
    there = location.read()
    found, names = _with_our_prefixes(there, prefixes) if prefixes else (there, {})
    reading = read(entries_of(found))
    recovered, warnings = set[str](), [(name, f"{why}; skipped") for name, why in sorted(found.unread.items())]
    for name, why in reading.problems:
        key = names.get(name, name)
        if name in found and by_name(name) is not None and (older := _sound(location, key, prefixes)) is not None:
            recovered.add(name)
            present = found[name].revision
            warnings.append((key, f"revision {present} cannot be read, so revision {older.revision} counts: {why}"))
            found[name] = Entry(older.value, present)
    return View(found, read(entries_of(found)) if recovered else reading, recovered, warnings, names)


def _with_our_prefixes(there: Contents, prefixes: Mapping[str, str]) -> tuple[Contents, dict[str, str]]:
    """The entries under our keys, and the names that they have there. Raises Invalid if two of them become one."""
    found, names = Contents(), dict[str, str]()
    found.deleted, found.unread = there.deleted, there.unread
    for name, entry in there.items():
        new, renewed = _with_our_prefix(name, entry, prefixes)
        if new in found:
            hint = "give each prefix a name of its own"
            raise errors.Invalid(f"two entries would be {new}; one of them is {name}", hint=hint)
        found[new] = renewed
        if new != name:
            names[new] = name
    return found, names


def _with_our_prefix(name: str, entry: Entry, prefixes: Mapping[str, str]) -> tuple[str, Entry]:
    new, _ = renamed(name, None, prefixes)
    if new == name:
        return name, entry
    text = entry.value.removeprefix(BOM_UTF8)
    mark = entry.value[: len(entry.value) - len(text)]
    with suppress(ValueError, RecursionError, errors.Invalid):  # what is not JSON names nothing, and is reported later
        _, value = renamed(name, decode_json(text.decode()), prefixes)
        entry = Entry(mark + msgspec.json.encode(value), entry.revision)
    return new, entry


def _sound(location: Location, name: str, prefixes: Mapping[str, str]) -> Entry | None:
    """The newest older value of an entry that can be read, under our prefix."""
    for older in location.history(name):
        ours, entry = _with_our_prefix(name, older, prefixes)
        if older.value and not read({ours: _text(entry.value)}).problems:
            return entry
    return None


# --- keys of older formats -------------------------------------------------------------------------------------------


class OldKey(msgspec.Struct, frozen=True):
    """A key of an older format whose cycle has a v2 document; `kept` why it should stay, empty if it may go."""

    name: str
    cycles: list[str]
    kept: str = ""


def old_keys(workspace: Any, location: Location) -> list[OldKey]:
    """The keys of older formats whose cycles have v2 documents now, however many exports ago those were written.

    One may go if the workspace has a version of each of its cycles with all that the older keys say.
    """
    return [*_old_keys(workspace, location, look(location))]


def remove_old_keys(workspace: Any, location: Location) -> list[OldKey]:
    """Remove the old keys that may go, each at the revision that was read; returns all, with why others stay."""
    view = look(location)
    found = []
    for old in _old_keys(workspace, location, view):
        if not old.kept:
            try:
                location.remove(old.name, view.entries[old.name].revision)
            except errors.VersionMismatch as late:
                old = msgspec.structs.replace(old, kept=late.message)
        found.append(old)
    return found


def _old_keys(workspace: Any, location: Location, view: View) -> Iterator[OldKey]:
    newest = {view.home(key): key for key, format in view.reading.formats.items() if format == "v2"}
    cycles: dict[str, list[Key]] = {}
    for key, names in view.reading.sources.items():
        for name in names:
            cycles.setdefault(name, []).append(key)
    before = {name: each for name, each in view.entries.items() if name not in newest}
    for name, key in newest.items():
        if len(view.reading.sources[key]) > 1 and (old := _before_v2(location, name)) is not None:
            before[name] = old
    older = read(entries_of(before))
    for name, keys in sorted(cycles.items()):
        source = by_name(name)
        if name in newest or name not in view.entries or not all(view.reading.formats[key] == "v2" for key in keys):
            continue
        if source is not None and source.kind != "current":
            kept = [f"{key}: {why}" for key in keys if (why := _lacking(workspace, key, older))]
            yield OldKey(name, [*map(str, keys)], "; ".join(kept))


def _before_v2(location: Location, name: str) -> Entry | None:
    """The newest value of another format that a key had, if the location keeps it: a part of what was imported."""
    for older in location.history(name):
        if "v2" not in read({name: _text(older.value)}).formats.values():
            return older if older.value else None
    return None


def _lacking(workspace: Any, key: Key, older: Reading) -> str:
    """Why what the older keys of a cycle say may be nowhere else; empty if the workspace has it."""
    document = older.documents.get(key)
    if document is None:
        return "its older keys cannot be read"
    try:
        ours = workspace.cycles.export(str(key), document["sequence"])
    except (errors.NotFound, errors.Corrupt, errors.Compacted):
        return "the workspace has no version that was imported from them"
    return "" if digest(ours) == digest(document) else "the workspace has imported something else"
