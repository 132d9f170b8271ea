"""v2 documents as others write them, made into ours: keys with colons, words in lower case, and no other fields.

What a document has beyond is kept under `context.legacy`, grouped by where it was, as that of older ones is. Nothing
else is put right: what breaks a rule is told by `rules`. Pure. Called by `legacy`.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.domains.cycles.keys import find, find_prefix
from holdfast.domains.cycles.legacy.words import Document, alike, lowered, phase_name, phase_status, unused
from holdfast.domains.cycles.rules import PHASES
from holdfast.types.cycles import Cycle, CycleEntry, CycleMetadata, CyclePhase

_WHERE: Final = "document"


def tidied(document: Document) -> Document:
    """The document as we would have written it, and all that it says."""
    extra: Document = {}
    tidy = _part(document, Cycle.__struct_fields__, extra)
    key = find(tidy.get("cycle_id"))
    if key is not None:
        tidy["cycle_id"] = str(key)
    if isinstance(tidy.get("metadata"), dict):
        tidy["metadata"] = _metadata(tidy["metadata"], extra)
    if isinstance(tidy.get("phases"), dict):
        tidy["phases"] = _phases(tidy["phases"], extra)
    if isinstance(tidy.get("history"), list):
        tidy["history"] = _history(tidy["history"], extra)
    if extra and isinstance(tidy.get("context"), dict):
        legacy = tidy["context"].get("legacy", {})
        if not isinstance(legacy, dict):
            legacy = {"context": legacy}
        if not any(alike(kept, extra) for kept in legacy.values()):  # who wrote it last may have kept what we kept
            legacy = {**legacy, unused(legacy, _WHERE): extra}
        tidy["context"] = {**tidy["context"], "legacy": legacy}
    return tidy


def _part(value: Document, known: tuple[str, ...], extra: Document) -> Document:
    """What is known of an object; the rest of it goes to `extra`."""
    extra |= {name: each for name, each in value.items() if name not in known}
    return {name: each for name, each in value.items() if name in known}


def _metadata(value: Document, extra: Document) -> Document:
    rest: Document = {}
    metadata = _part(value, CycleMetadata.__struct_fields__, rest)
    prefix = find_prefix(metadata.get("key_prefix"))
    if prefix is not None:
        metadata["key_prefix"] = prefix
    if "status" in metadata:
        metadata["status"] = lowered(metadata["status"])
    if metadata.get("current_phase") is not None:
        metadata["current_phase"] = phase_name(metadata["current_phase"]) or metadata["current_phase"]
    if rest:
        extra["metadata"] = rest
    return metadata


def _phases(value: Document, extra: Document) -> Document:
    rest: Document = {}
    phases = _part(value, PHASES, rest)
    for name, phase in phases.items():
        if isinstance(phase, dict):
            beyond: Document = {}
            phases[name] = _part(phase, CyclePhase.__struct_fields__, beyond)
            if "status" in phase:
                phases[name]["status"] = phase_status(phase["status"]) or phase["status"]
            if beyond:
                rest[name] = beyond
    if rest:
        extra["phases"] = rest
    return phases


def _history(value: list[Any], extra: Document) -> list[Any]:
    rest: Document = {}
    history: list[Any] = []
    for number, entry in enumerate(value):
        if isinstance(entry, dict):
            beyond: Document = {}
            entry = _part(entry, CycleEntry.__struct_fields__, beyond)
            if "phase" in entry:
                entry["phase"] = phase_name(entry["phase"]) or entry["phase"]
            if beyond:
                rest[str(number)] = beyond
        history.append(entry)
    if rest:
        extra["history"] = rest
    return history
