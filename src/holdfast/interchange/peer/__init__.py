"""Reading the cycles of PEER agents, in any format that they ever used; returns v2 documents.

    meta + cycle    `PREFIX.meta`, `PREFIX.cycle.N`, with dots
    fragmented      `PREFIX:cycle:current`, `PREFIX:cycle:N:metadata|plan|execution|…|context.FIELD`, colons or dots
    1.0             one document with `schema_version` and a sequence; its events, from a stream of their own
    1.1             one document with `version` 1 or 1.1, without a sequence
    v2              the seed's, which is checked; unknown fields are kept
    {"keys": {…}}   a collection of any of them

Guarantee: every value is in the document, in its field or under `context.legacy`, grouped by where it was. What cannot
be read is a problem, and then the document of that cycle is left out. An entry that names no cycle, neither by its key
nor by its content, belongs to somebody else: a note. A v2 document replaces older ones of its cycle, with a note.
Pure. Called by the import of cycles and by `view`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains.cycles.rules import LAST, PHASES, Key, alike, find, find_prefix, problems
from holdfast.interchange.jsonl import decode_json
from holdfast.interchange.peer import words
from holdfast.interchange.peer.drafts import NO_TIME, Draft
from holdfast.interchange.peer.words import Document, Source, Unreadable
from holdfast.kernel.values import check
from holdfast.types.cycles import Cycle, CycleEntry, CycleMetadata, CyclePhase

_MARK: Final = "\ufeff"


def decoded(value: Any, plain: bool) -> Any:
    """Decode a value that may be JSON text; with `plain`, other text is a value too."""
    if isinstance(value, bytes | bytearray | memoryview):
        try:
            value = bytes(value).decode()
        except UnicodeDecodeError as error:
            raise Unreadable(f"it is not UTF-8: {error.reason} at byte {error.start}") from error
    if isinstance(value, str):
        value = _parsed(value.removeprefix(_MARK), plain)
    try:
        check(value, text=True)
    except errors.HoldfastError as error:
        raise Unreadable(error.message) from error
    return value


def _has_mark(value: Any) -> bool:
    return value[:3] == _MARK.encode() if isinstance(value, bytes) else str(value)[:1] == _MARK


def _parsed(text: str, plain: bool) -> Any:
    """Parse JSON. With `plain`, text that is not JSON, or a number such as 1.10, is kept as text."""
    try:
        value = decode_json(text)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        if plain and text.lstrip()[:1] not in ("{", "[", '"'):
            return text
        raise Unreadable(f"it is not JSON: {error}") from error
    except errors.Invalid as error:
        raise Unreadable(f"it has a {error.message}") from error
    same = isinstance(value, dict | list | str) or msgspec.json.encode(value).decode() == text.strip()
    return value if same or not plain else text


def as_object(value: Any) -> Document:
    """Raise Unreadable unless the value is an object."""
    if not isinstance(value, dict):
        raise Unreadable(f"it is {'text' if isinstance(value, str) else type(value).__name__}, not an object")
    return value


def tidied(document: Document) -> Document:
    """A v2 document in the form that we write, with unknown fields under `context.legacy`."""
    tidy, extra = _split(document, Cycle.__struct_fields__)
    key = find(tidy.get("cycle_id"))
    if key is not None:
        tidy["cycle_id"] = str(key)
    for name, kind, split in (("metadata", dict, _metadata), ("phases", dict, _phases), ("history", list, _history)):
        if isinstance(tidy.get(name), kind):
            tidy[name], rest = split(tidy[name])
            extra |= {name: rest} if rest else {}
    if extra and isinstance(tidy.get("context"), dict):
        legacy = tidy["context"].get("legacy", {})
        if not isinstance(legacy, dict):
            legacy = {"context": legacy}
        if not any(alike(kept, extra) for kept in legacy.values()):  # the last writer may have kept them already
            legacy = {**legacy, words.unused(legacy, "document"): extra}
        tidy["context"] = {**tidy["context"], "legacy": legacy}
    return tidy


def _split(value: Document, known: tuple[str, ...]) -> tuple[Document, Document]:
    """The known fields of an object, and the others."""
    rest = {name: each for name, each in value.items() if name not in known}
    return {name: each for name, each in value.items() if name in known}, rest


def _metadata(value: Document) -> tuple[Document, Document]:
    metadata, rest = _split(value, CycleMetadata.__struct_fields__)
    prefix = find_prefix(metadata.get("key_prefix"))
    if prefix is not None:
        metadata["key_prefix"] = prefix
    if "status" in metadata:
        metadata["status"] = words.lowered(metadata["status"])
    if metadata.get("current_phase") is not None:
        metadata["current_phase"] = words.phase_name(metadata["current_phase"]) or metadata["current_phase"]
    return metadata, rest


def _phases(value: Document) -> tuple[Document, Document]:
    phases, rest = _split(value, PHASES)
    for name, phase in phases.items():
        if isinstance(phase, dict):
            phases[name], unknown = _split(phase, CyclePhase.__struct_fields__)
            if "status" in phase:
                phases[name]["status"] = words.phase_status(phase["status"]) or phase["status"]
            rest |= {name: unknown} if unknown else {}
    return phases, rest


def _history(value: list[Any]) -> tuple[list[Any], Document]:
    history, rest = [*value], Document()
    for number, entry in enumerate(value):
        if isinstance(entry, dict):
            history[number], unknown = _split(entry, CycleEntry.__struct_fields__)
            if "phase" in entry:
                history[number]["phase"] = words.phase_name(entry["phase"]) or entry["phase"]
            rest |= {str(number): unknown} if unknown else {}
    return history, rest


_NO_KEY: Final = "neither its name nor its content names a cycle"
Messages = list[tuple[str, str]]


class Reading(msgspec.Struct):
    """The documents of every cycle. `current` is by prefix; `problems` and `notes` are pairs of key and message.

    `sources` are the keys that a document was read from; that of a v2 document comes first.
    """

    documents: dict[Key, Document] = {}
    current: dict[str, int] = {}
    formats: dict[Key, str] = {}
    sources: dict[Key, list[str]] = {}
    problems: Messages = []
    notes: Messages = []


class _Parts(msgspec.Struct):
    """All entries of one cycle, each with its source key; `bad` if one of them cannot be read."""

    newest: list[tuple[str, Document]] = []
    documents: list[tuple[str, Document]] = []
    fragments: dict[str, tuple[str, Any]] = {}
    mentions: list[tuple[str, str, Document]] = []
    events: list[tuple[str, Document]] = []
    extras: list[tuple[str, str, Document]] = []
    bad: bool = False

    def older(self) -> Iterator[str]:
        """The source keys of older formats."""
        yield from (source for source, _ in (*self.documents, *self.fragments.values(), *self.events))
        yield from (source for source, _, _ in (*self.mentions, *self.extras))


def read(entries: Mapping[str, Any]) -> Reading:
    """Read every cycle of these entries: keys or names of files, with JSON values, or their text or bytes."""
    reading, parts = Reading(), dict[Key, _Parts]()
    metas: list[tuple[str, str, Document]] = []
    found_parts: list[tuple[str, Source, Any, Document]] = []
    for name, value, extra in _flat(entries):
        source = words.by_name(name)
        try:
            found = decoded(value, plain=source is not None and source.kind in ("fragment", "current"))
            source = source or words.by_content(found)
            if _has_mark(value):
                reading.notes.append((name, "it begins with a byte order mark, which is left out"))
            if source is None:
                raise Unreadable(_NO_KEY)
            if source.kind == "current":
                _current(reading, source.prefix, name, found)
            elif source.kind == "meta":
                metas.append((name, source.prefix, as_object(found)))
            else:
                found_parts.append((name, source, found, extra))
        except Unreadable as error:
            if source is None and not words.is_peer(name):
                reading.notes.append((name, f"of something else, by its key; skipped: {error}"))
                continue
            reading.problems.append((name, str(error)))
            if source is not None and source.kind in ("cycle", "fragment"):
                parts.setdefault(source.key, _Parts()).bad = True
    for name, source, value, extra in sorted(found_parts, key=lambda each: _distance(each[0], each[1])):
        part = parts.setdefault(source.key, _Parts())
        try:
            _sort(reading, part, source, name, value, extra)
        except Unreadable as error:
            reading.problems.append((name, str(error)))
            part.bad = True
    for name, prefix, meta in metas:
        try:
            _mention(reading, parts, name, prefix, meta)
        except Unreadable as error:
            reading.problems.append((name, str(error)))
    for key in sorted(parts):
        if not parts[key].bad:
            _build(reading, key, parts[key])
        if key not in reading.documents:
            _leave(reading, key, parts[key])
    return reading


# --- sorting entries -------------------------------------------------------------------------------------------------


def _flat(entries: Mapping[str, Any]) -> Iterator[tuple[str, Any, Document]]:
    """Every entry, those of collections too, with the other fields of the collection."""
    for name, value in sorted(entries.items()):
        try:
            found = decoded(value, plain=True)
        except Unreadable:
            found = None  # reported later
        if words.by_name(name) is None and isinstance(found, dict) and isinstance(found.get("keys"), dict):
            extra = {field: each for field, each in found.items() if field != "keys"}
            yield from ((inner, each, extra) for inner, each in sorted(found["keys"].items()))
        else:
            yield name, value, {}


def _current(reading: Reading, prefix: str, name: str, value: Any) -> None:
    key = find(f"{prefix}:cycle:{value.strip() if isinstance(value, str) else value}")
    if key is None or isinstance(value, bool):
        raise Unreadable(f"not the number of a cycle: {str(value)[:80]!r}")
    reading.current[prefix] = key.number


def _distance(name: str, source: Source) -> int:
    """How far a name is from the key of its cycle: 0 the key, 1 a longer one, 2 if the content alone names it."""
    if source.kind == "cycle" and name not in (source.key.dotted, str(source.key)):
        return 1 if words.by_name(name) is not None else 2
    return 0


def _sort(reading: Reading, parts: _Parts, source: Source, name: str, value: Any, extra: Document) -> None:
    """Add a value to the others of its cycle. A v2 document beside that of a nearer name is a copy: a note."""
    if source.kind == "fragment" and source.suffix.startswith("event") and _are_events(value):
        parts.events += [(name, event) for event in (value if isinstance(value, list) else [value])]
    elif source.kind == "fragment":
        if source.suffix in parts.fragments:
            raise Unreadable(f"{parts.fragments[source.suffix][0]} is the same key")
        parts.fragments[source.suffix] = (name, value)
    elif isinstance(value, list) and value:
        parts.events += [(name, as_object(event)) for event in value]
    elif "event_type" in as_object(value) or "event_id" in value:
        parts.events.append((name, value))
    else:
        version = value.get("version")
        same = parts.newest if version == 2 else parts.documents
        if version not in (None, 1, 1.0, 1.1, "1", "1.0", "1.1", 2) or version is True:
            raise Unreadable(f"unknown version {version!r}")
        if same and version == 2 and _distance(same[0][0], source) < _distance(name, source):
            reading.notes.append((name, f"a copy; skipped: {same[0][0]} is the document of its cycle"))
            return
        if same and not alike(same[0][1], value):
            raise Unreadable(f"{same[0][0]} is another document of the same cycle")
        same.append((name, value))
    if extra:
        parts.extras.append((name, "collection", extra))


def _are_events(value: Any) -> bool:
    """Whether a fragment holds events of the audit stream, which have fields of their own."""
    found = value if isinstance(value, list) else [value]
    return bool(found) and all(isinstance(each, dict) and {"event_type", "timestamp"} <= each.keys() for each in found)


def _mention(reading: Reading, parts: dict[Key, _Parts], name: str, prefix: str, meta: Document) -> None:
    """Give every cycle of a meta document its part of it; the rest goes to the current one."""
    cycles = meta.get("cycles", {})
    keys = {number: find(f"{prefix}:cycle:{number}") for number in as_object(cycles)}
    unknown = [number for number, key in keys.items() if key is None]
    if unknown:
        raise Unreadable(f"cycles has {unknown[0]!r}, which is not the number of a cycle")
    parts_of = {key: as_object(cycles[number]) for number, key in keys.items() if key is not None}
    number = meta.get("current_cycle")
    current = None if number is None else find(f"{prefix}:cycle:{number}")
    if current is None and number not in (None, 0, "0"):
        raise Unreadable(f"current_cycle is {number!r}")
    if current is None and not parts_of:
        reading.notes.append((name, "it names no cycle; skipped"))
        return
    rest = {field: each for field, each in meta.items() if field != "cycles"}
    if current is not None and reading.current.setdefault(prefix, current.number) == current.number:
        del rest["current_cycle"]
    for key, mention in parts_of.items():
        parts.setdefault(key, _Parts()).mentions.append((name, "meta_cycle", mention))
    about = current if current is not None else max(parts_of)
    whole = parts.setdefault(about, _Parts())
    if "created_at" in rest:  # of the spec, not of the cycle
        whole.extras.append((name, "spec", {"created_at": rest.pop("created_at")}))
    whole.mentions.append((name, "meta", rest))


# --- one cycle -------------------------------------------------------------------------------------------------------


def _build(reading: Reading, key: Key, parts: _Parts) -> None:
    if parts.newest:
        source, document = parts.newest[0]
        document = tidied(document)
        found = [f"{each.path} {each.message}" for each in problems(document)] or _too_high(document)
        if not found and find(document["cycle_id"]) != key:
            found = [f"$.cycle_id is {document['cycle_id']}, but the key is {key}"]
        if found:
            reading.problems.append((source, "; ".join(found)))
            return
        reading.documents[key], reading.formats[key] = document, "v2"
        reading.sources[key] = list(dict.fromkeys((source, *parts.older())))
        for old in reading.sources[key][1:]:
            reading.notes.append((old, f"skipped: {source} is the document of its cycle"))
        return
    try:
        draft, formats = _draft(key, parts)
        document = draft.document()
        if _too_high(document):
            raise Unreadable(*_too_high(document))
        reading.documents[key] = document
        reading.formats[key] = " + ".join(formats)
        reading.sources[key] = list(dict.fromkeys(parts.older()))
    except Unreadable as error:
        reading.problems.append((next(parts.older()), str(error)))
        return
    if reading.documents[key]["metadata"]["created_at"] == NO_TIME:
        note = f"{key} has no time with a zone, so its time is {NO_TIME}"
        reading.notes.append((next(parts.older()), note))


def _leave(reading: Reading, key: Key, parts: _Parts) -> None:
    """Note the other entries of a cycle of which one cannot be read."""
    bad = {name for name, _ in reading.problems}
    left = dict.fromkeys((*(source for source, _ in parts.newest), *parts.older()))
    note = f"skipped: another part of {key} cannot be read"
    reading.notes += [(name, note) for name in left if name not in bad]


def _too_high(document: Document) -> list[str]:
    return [f"$.sequence is {document['sequence']}; the limit is {LAST}"] if document["sequence"] > LAST else []


def _draft(key: Key, parts: _Parts) -> tuple[Draft, list[str]]:
    """A draft of all entries of a cycle, the best source first, and their formats."""
    draft, formats = Draft(key), []
    for _, document in parts.documents[:1]:
        where = "1.0" if "schema_version" in document else "1.1" if "version" in document else "cycle"
        formats.append(where)
        draft.take("document", document)
    if parts.fragments:
        formats.append("fragmented")
        for document in _joined({suffix: value for suffix, (_, value) in parts.fragments.items()}):
            draft.take("fragments", document)
    for _, where, mention in parts.mentions:
        formats.append("meta")
        draft.take(where, mention)
    for _, event in parts.events:
        formats.append("events")
        draft.take_event(event)
    for where, extra in {id(extra): (where, extra) for _, where, extra in parts.extras}.values():
        draft.keep(where, extra)
    return draft, list(dict.fromkeys(formats))


def _joined(fragments: Document) -> Iterator[Document]:
    """The fragments of a cycle as one document, after those that are a whole part of it (`context`, `phases`)."""
    document: Document = {"context": {}, "phases": {}}
    for suffix, value in sorted(fragments.items()):
        first, _, field = suffix.replace(":", ".").partition(".")
        if suffix in ("context", "phases"):
            yield {suffix: value}
        elif first == "context" and field:
            document["context"][field] = value
        elif words.phase_name(suffix) is not None:
            whole = isinstance(value, dict) and words.phase_status(value.get("status")) is not None
            document["phases"][suffix] = value if whole else {"output": value}
        else:
            document[suffix] = value
    yield document
