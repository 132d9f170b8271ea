"""The rules for the document of a cycle, and the keys of cycles.

Dots count as colons everywhere, because a key of a NATS bucket may not have colons; so a name has neither. A key
without `:cycle:N` is a *prefix*, and means the current cycle of that prefix. Pure: a document in, problems out. No
document that breaks a rule is ever written, and reading one raises Corrupt.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from typing import Any, Final, get_args

import msgspec

from holdfast import errors
from holdfast.kernel.values import MAX_VALUE_BYTES, encode
from holdfast.types import cycles as types
from holdfast.types.cycles import Cycle, CycleEntry, CycleMetadata, CyclePhase, CyclePhases, CycleProblem, PhaseName

GLOBAL: Final = "peer:global"
_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9_=-]{0,199}"
_PREFIX: Final = re.compile(rf"peer:(?:(spec|instruction):({_NAME})|global)")
_KEY: Final = re.compile(rf"({_PREFIX.pattern}):cycle:([1-9][0-9]{{0,17}})")
_HINT: Final = (
    "such as peer:spec:NAME:cycle:1, peer:instruction:NAME:cycle:1 or peer:global:cycle:1;"
    " dots instead of colons also work"
)


class Key(msgspec.Struct, frozen=True, order=True):
    """The key of a cycle: its prefix, with colons, and its number."""

    prefix: str
    number: int

    def __str__(self) -> str:
        return f"{self.prefix}:cycle:{self.number}"

    @property
    def dotted(self) -> str:
        """The key with dots, as in a bucket."""
        return str(self).replace(":", ".")

    @property
    def spec(self) -> str | None:
        """The name of the spec, if the key has one."""
        return self._name_of("spec")

    @property
    def instruction(self) -> str | None:
        """The name of the instruction, if the key has one."""
        return self._name_of("instruction")

    def _name_of(self, kind: str) -> str | None:
        found = _PREFIX.fullmatch(self.prefix)
        return found[2] if found is not None and found[1] == kind else None


def find(text: object) -> Key | None:
    """Return the key in a text, or None."""
    found = _KEY.fullmatch(text.replace(".", ":")) if isinstance(text, str) else None
    return None if found is None else Key(found[1], int(found[4]))


def parse(text: object) -> Key:
    """Return the key in a text. Raises InvalidID."""
    key = find(text)
    if key is None:
        raise errors.InvalidID(f"{text!r} is not the key of a cycle", hint=_HINT)
    return key


def find_prefix(text: object) -> str | None:
    """Return the prefix in a text, with colons, or None."""
    plain = text.replace(".", ":") if isinstance(text, str) else ""
    return plain if _PREFIX.fullmatch(plain) else None


def prefix_of(spec: str | None, instruction: str | None) -> str:
    """Return the prefix of a spec's cycles, else of an instruction's, else the global one. Raises InvalidName."""
    for kind, name in (("spec", spec), ("instruction", instruction)):
        if name is None:
            continue
        if not isinstance(name, str) or not re.fullmatch(_NAME, name):
            raise errors.InvalidName(
                f"{str(name)[:80]!r} cannot be the name of {'a spec' if kind == 'spec' else 'an instruction'}",
                hint="at most 200 ASCII letters, digits, - and _, beginning with a letter or digit",
                what=kind,
            )
    if spec is not None:
        return f"peer:spec:{spec}"
    return GLOBAL if instruction is None else f"peer:instruction:{instruction}"


PHASES: Final[tuple[PhaseName, ...]] = get_args(PhaseName)
LAST: Final = 2**52  # the highest sequence of an imported document: steps must be able to follow it
STATUSES: Final = get_args(types.CycleStatus)
PHASE_STATUSES: Final = get_args(types.PhaseStatus)
MAX_BYTES: Final = MAX_VALUE_BYTES
ROOM: Final = 64 * 1024  # of MAX_BYTES, kept free by steps with an output, so that a cycle can always end
MAX_SEQUENCE: Final = 2**53  # exact in every JSON reader
# The fields of each part, and whether it must have them.
_FIELDS: Final[dict[type[msgspec.Struct], dict[str, bool]]] = {
    part: {field.name: field.required for field in msgspec.structs.fields(part)}
    for part in (Cycle, CycleMetadata, CyclePhases, CyclePhase, CycleEntry)
}

Problems = Iterator[CycleProblem]


MAX_PROBLEMS: Final = 1000


def problems(document: Any) -> list[CycleProblem]:
    """Return the problems of a document; if it has more than 1,000, the last says how many."""
    if not isinstance(document, dict):
        return [CycleProblem("$", f"must be an object, not {type(document).__name__}")]
    found = [*_fields(document, "$", Cycle), *_storable(document)]
    found += [*_top(document), *_metadata(document), *_phases(document), *_history(document)]
    return bounded(found or [*_agreement(document)])


def unsound(document: Any) -> list[CycleProblem]:
    """The problems of a document, and completed phases without an output on which the next phase was started.

    A step refuses to start on such a phase; documents from elsewhere may have one, and are taken in.
    """
    found = problems(document)
    if found:
        return found
    phases = document["phases"]
    return [
        CycleProblem(f"$.phases.{phase}.output", f"is missing, although {later} has begun")
        for phase, later in pairwise(PHASES)
        if phases.get(phase, {}).get("output") is None and phases.get(later, {}).get("status", "pending") != "pending"
    ]


def bounded(found: list[CycleProblem]) -> list[CycleProblem]:
    """The first problems, and how many more there are."""
    if len(found) <= MAX_PROBLEMS:
        return found
    return [*found[:MAX_PROBLEMS], CycleProblem("$", f"and {len(found) - MAX_PROBLEMS} more problems")]


def _fields(value: dict[str, Any], path: str, part: type[msgspec.Struct]) -> Problems:
    for name, required in _FIELDS[part].items():
        if required and name not in value:
            yield CycleProblem(f"{path}.{name}", "is missing")
    for name in value:
        if name not in _FIELDS[part]:
            yield CycleProblem(f"{path}.{name}", "is not a field of a document")


def alike(one: Any, other: Any) -> bool:
    """Whether two values are exactly the same: true is not 1, and 1 is not 1.0."""
    return encode(one, sys.maxsize) == encode(other, sys.maxsize)


def _storable(document: dict[str, Any]) -> Problems:
    try:
        encode(document, MAX_BYTES)
    except errors.HoldfastError as error:
        yield CycleProblem("$", error.message)
    else:
        yield from _bytes(document, "$")


def _bytes(value: Any, path: str) -> Problems:
    """A cell can hold bytes, a document cannot: JSON has none."""
    if isinstance(value, bytes):
        yield CycleProblem(path, "must not be bytes, which JSON does not have")
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _bytes(each, f"{path}.{name}")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _bytes(each, f"{path}[{number}]")


def _top(document: dict[str, Any]) -> Problems:
    if "version" in document and (type(document["version"]) is not int or document["version"] != 2):
        yield CycleProblem("$.version", f"must be 2, not {document['version']!r}")
    if "cycle_id" in document and find(document["cycle_id"]) is None:
        yield CycleProblem("$.cycle_id", f"must be like peer:spec:NAME:cycle:1, not {document['cycle_id']!r}")
    yield from _positive(document, "$", "sequence")
    for name in ("metadata", "context", "phases"):
        if not isinstance(document.get(name, {}), dict):
            yield CycleProblem(f"$.{name}", "must be an object")
    if not isinstance(document.get("history", []), list):
        yield CycleProblem("$.history", "must be a list")


def _positive(value: dict[str, Any], path: str, name: str, optional: bool = False) -> Problems:
    number = value.get(name)
    if name not in value or (optional and number is None):
        return
    if type(number) is not int or not 1 <= number <= MAX_SEQUENCE:
        yield CycleProblem(f"{path}.{name}", f"must be an integer from 1 to 2**53, not {number!r}")


def _metadata(document: dict[str, Any]) -> Problems:
    metadata, path = document.get("metadata"), "$.metadata"
    if not isinstance(metadata, dict):
        return
    yield from _fields(metadata, path, CycleMetadata)
    if "key_prefix" in metadata and find_prefix(metadata["key_prefix"]) is None:
        yield CycleProblem(f"{path}.key_prefix", f"must be like peer:spec:NAME, not {metadata['key_prefix']!r}")
    yield from _positive(metadata, path, "cycle_number")
    for name in ("created_at", "updated_at"):
        yield from _time(metadata, path, name)
    if "status" in metadata:
        yield from _one_of(metadata["status"], STATUSES, f"{path}.status")
    if metadata.get("current_phase") is not None:
        yield from _one_of(metadata["current_phase"], PHASES, f"{path}.current_phase")
    for name in ("instruction", "spec_name"):
        if not isinstance(metadata.get(name), str | None):
            yield CycleProblem(f"{path}.{name}", "must be a text")


def _one_of(value: Any, allowed: tuple[str, ...], path: str) -> Problems:
    if not isinstance(value, str) or value not in allowed:
        yield CycleProblem(path, f"must be one of {', '.join(allowed)}, not {value!r}")


def moment(value: Any) -> datetime | None:
    """Return the time that a text with a zone means, or None."""
    try:
        found = msgspec.convert(value, datetime) if isinstance(value, str) else None
    except (msgspec.ValidationError, ValueError):
        return None
    return found if found is not None and found.tzinfo is not None else None


def _time(value: dict[str, Any], path: str, name: str, optional: bool = False) -> Problems:
    given = value.get(name)
    if name not in value or (optional and given is None):
        return
    if moment(given) is None:
        yield CycleProblem(f"{path}.{name}", f"must be a time such as 2026-03-01T12:00:00Z, not {given!r}")


def _phases(document: dict[str, Any]) -> Problems:
    phases = document.get("phases")
    if not isinstance(phases, dict):
        return
    yield from _fields(phases, "$.phases", CyclePhases)
    for name in PHASES:
        if name in phases:
            yield from _phase(phases[name], f"$.phases.{name}")


def _phase(phase: Any, path: str) -> Problems:
    if not isinstance(phase, dict):
        yield CycleProblem(path, "must be an object")
        return
    yield from _fields(phase, path, CyclePhase)
    if "status" in phase:
        yield from _one_of(phase["status"], PHASE_STATUSES, f"{path}.status")
    for name in ("started_at", "completed_at"):
        yield from _time(phase, path, name, optional=True)
    for name in ("sequence_at_start", "sequence_at_complete"):
        yield from _positive(phase, path, name, optional=True)
    if not isinstance(phase.get("errors"), list | None):
        yield CycleProblem(f"{path}.errors", "must be a list")


def _history(document: dict[str, Any]) -> Problems:
    history = document.get("history")
    if not isinstance(history, list):
        return
    for number, entry in enumerate(history):
        path = f"$.history[{number}]"
        if not isinstance(entry, dict):
            yield CycleProblem(path, "must be an object")
            continue
        yield from _fields(entry, path, CycleEntry)
        yield from _time(entry, path, "timestamp")
        yield from _positive(entry, path, "sequence")
        if "phase" in entry:
            yield from _one_of(entry["phase"], PHASES, f"{path}.phase")
        if "event" in entry and (not isinstance(entry["event"], str) or not entry["event"]):
            yield CycleProblem(f"{path}.event", "must be a word such as started")


# --- consistency of a document whose parts are well formed -----------------------------------------------------------


def _agreement(document: dict[str, Any]) -> Problems:
    yield from _same_key(document)
    yield from _order(document)
    yield from _standing(document)
    yield from _sequences(document)
    for phase in PHASES:
        yield from _phase_sequences(document, phase)


def _same_key(document: dict[str, Any]) -> Problems:
    key, metadata = find(document["cycle_id"]), document["metadata"]
    assert key is not None
    if key.prefix != find_prefix(metadata["key_prefix"]):
        yield CycleProblem("$.cycle_id", f"must begin with metadata.key_prefix, {metadata['key_prefix']}")
    if key.number != metadata["cycle_number"]:
        yield CycleProblem("$.cycle_id", f"must end with metadata.cycle_number, {metadata['cycle_number']}")
    if key.spec is not None and metadata.get("spec_name") not in (None, key.spec):
        yield CycleProblem("$.metadata.spec_name", f"must be {key.spec}, as in the key")
    if key.instruction is not None and metadata.get("instruction") not in (None, key.instruction):
        yield CycleProblem("$.metadata.instruction", f"must be {key.instruction}, as in the key")


def _order(document: dict[str, Any]) -> Problems:
    statuses = {phase: document["phases"][phase]["status"] for phase in PHASES}
    for before, phase in pairwise(PHASES):
        if statuses[phase] != "pending" and statuses[before] != "completed":
            why = f"is {statuses[phase]}, but {before} is {statuses[before]}: it must be completed first"
            yield CycleProblem(f"$.phases.{phase}.status", why)
    if [*statuses.values()].count("in_progress") > 1:
        yield CycleProblem("$.phases", "has more than one phase in progress")


def _standing(document: dict[str, Any]) -> Problems:
    metadata = document["metadata"]
    by_status: dict[str, list[str]] = {status: [] for status in PHASE_STATUSES}
    for phase in PHASES:
        by_status[document["phases"][phase]["status"]].append(phase)
    begun = len(by_status["pending"]) < len(PHASES)
    if metadata["status"] == "initialized" and begun:
        yield CycleProblem("$.metadata.status", "is initialized, but a phase has started")
    if metadata["status"] == "completed" and (by_status["in_progress"] or by_status["failed"]):
        yield CycleProblem("$.metadata.status", "is completed, but a phase is not")
    if metadata["status"] in ("initialized", "in_progress") and by_status["failed"]:
        yield CycleProblem("$.metadata.status", f"must be failed, because {by_status['failed'][0]} is")
    current = metadata.get("current_phase")
    if by_status["in_progress"] and current not in (None, by_status["in_progress"][0]):
        yield CycleProblem("$.metadata.current_phase", f"must be {by_status['in_progress'][0]}, which is in progress")


def _sequences(document: dict[str, Any]) -> Problems:
    last = 0
    for number, entry in enumerate(document["history"]):
        if entry["sequence"] <= last:
            yield CycleProblem(f"$.history[{number}].sequence", f"is {entry['sequence']}, but the one before is {last}")
        last = entry["sequence"]
    if last > document["sequence"]:
        yield CycleProblem("$.sequence", f"is {document['sequence']}, but the history has {last}")


def _phase_sequences(document: dict[str, Any], name: PhaseName) -> Problems:
    phase, path = document["phases"][name], f"$.phases.{name}"
    for field, event in (("sequence_at_start", "started"), ("sequence_at_complete", "completed")):
        noted = [e["sequence"] for e in document["history"] if (e["phase"], e["event"]) == (name, event)]
        if len(noted) > 1:
            yield CycleProblem("$.history", f"has {name} {event} more than once")
        elif phase.get(field) != (noted[0] if noted else None):
            yield CycleProblem(f"{path}.{field}", f"is {phase.get(field)}, but the history has {noted or 'nothing'}")
    start, complete = phase.get("sequence_at_start"), phase.get("sequence_at_complete")
    if start is not None and complete is not None and complete <= start:
        yield CycleProblem(f"{path}.sequence_at_complete", "must be above sequence_at_start")
    if phase["status"] == "pending" and (start is not None or complete is not None):
        yield CycleProblem(f"{path}.status", "is pending, but it has started")
    if phase["status"] != "completed" and complete is not None:
        yield CycleProblem(f"{path}.status", f"is {phase['status']}, but it was completed")
