"""Documents of older PEER agents made into v2: every field gets its place, or is kept under `context.legacy`.

The old formats share their words, so one reader does for all: a `Draft` takes in the entries of a cycle, the best
source first. A known field is moved to its place in v2; an unknown one, or one whose place is taken, is kept as it was.
Guarantee: nothing is dropped, and nothing is made up. A draft that contradicts itself is Unreadable. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any, Final

from holdfast.domains.cycles.rules import PHASES, Key, find, find_prefix, moment, problems
from holdfast.interchange.peer import words
from holdfast.interchange.peer.words import Document, Unreadable

NO_TIME: Final = "1970-01-01T00:00:00Z"  # for a cycle without any time
_PARTS: Final = ("metadata", "context", "phases")
_TIMES: Final[dict[str, tuple[str, ...]]] = {
    "created_at": ("created_at", "started_at"),
    "updated_at": ("updated_at", "last_updated_at", "last_update", "completed_at"),
}
_PHASE_FIELDS: Final = ("status", "started_at", "completed_at", "output", "errors", "error", "error_info")


class Draft:
    """A v2 document in the making."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self._sequence: int | None = None
        self._metadata: Document = {}
        self._context: Document = {}
        self._phases: dict[str, Document] = {phase: {} for phase in PHASES}
        self._legacy: Document = {}
        self._events: list[Document] = []
        self._ended = False  # whether it has a time of completion
        self._listed: list[str | None] | None = None  # the phases that a list names as completed

    # --- taking in ---------------------------------------------------------------------------------------------------

    def take(self, where: str, source: Document) -> None:
        """Take in a document, or a part of one; the fields that are left are kept under `where`."""
        rest = deepcopy(source)
        if find(rest.pop("cycle_id", str(self.key))) != self.key:
            raise Unreadable(f"cycle_id is {source['cycle_id']!r}, but the key is {self.key}")
        if self._sequence is None and type(rest.get("sequence")) is int and rest["sequence"] >= 1:
            self._sequence = rest.pop("sequence")
        for part in _PARTS:
            if not isinstance(rest.get(part, {}), dict):
                raise Unreadable(f"{part} is not an object")
        self._take_fields(rest.get("metadata", {}))
        self._take_fields(rest)
        for name in [name for name in rest.get("context", ()) if name != "legacy"]:
            words.move(rest["context"], name, self._context, name)
        for name in list(rest.get("phases", ())):
            self._take_phase(rest["phases"], name)
        self._take_error(rest)
        for part in _PARTS:
            if part in rest and not rest[part]:
                del rest[part]
        if rest:
            self.keep(where, rest)

    def take_event(self, event: Document) -> None:
        """Take in an event of the audit stream, which is also kept whole."""
        if find(event.get("cycle_id", str(self.key))) != self.key:
            raise Unreadable(f"cycle_id is {event['cycle_id']!r}, but the key is {self.key}")
        self._events.append(event)

    def keep(self, where: str, rest: Any) -> None:
        """Keep fields that v2 does not have."""
        self._legacy[words.unused(self._legacy, where)] = rest

    def _take_fields(self, fields: Document) -> None:
        """Take in fields of the metadata, which may also be at the top level."""
        if find_prefix(fields.get("key_prefix", self.key.prefix)) != self.key.prefix:
            raise Unreadable(f"key_prefix is {fields['key_prefix']!r}, but the key has {self.key.prefix}")
        if str(fields.get("cycle_number", self.key.number)) != str(self.key.number):
            raise Unreadable(f"cycle_number is {fields['cycle_number']!r}, but the key has {self.key.number}")
        for name in ("key_prefix", "cycle_number"):
            fields.pop(name, None)
        own = {"instruction": self.key.instruction, "spec_name": self.key.spec}
        for field, names in words.OWN_NAMES.items():
            for name in names:
                if isinstance(fields.get(name), str) and own[field] in (None, fields[name]):
                    words.move(fields, name, self._metadata, field)
        self._ended |= words.is_time(fields.get("completed_at"))
        for field, names in _TIMES.items():
            for name in names:
                if words.is_time(fields.get(name)):
                    words.move(fields, name, self._metadata, field)
        self._take_status(fields)
        listed = fields.get("phases_completed")
        if isinstance(listed, list):
            self._listed = [*(self._listed or ()), *map(words.phase_name, listed)]
            if not listed:
                del fields["phases_completed"]

    def _take_status(self, fields: Document) -> None:
        """Take in the status: a word, or an object with a phase, a time and an error."""
        given, activity = fields.get("status"), None
        if isinstance(given, dict):
            phase = words.phase_name(given.get("error_phase"))
            if phase is not None and isinstance(given.get("error_message"), str):
                self._add_error(phase, given.pop("error_message"))
                del given["error_phase"]
            if isinstance(given.get("status"), dict):
                raise Unreadable("status.status is not a word")
            self._take_fields(given)
            if not given:
                del fields["status"]
        elif isinstance(given, str):
            status, activity = words.cycle_status(given)
            if words.put(self._metadata, "status", status) and activity is None:
                del fields["status"]
        elif given is not None:
            raise Unreadable(f"status is {given!r}, not a word")
        self._take_current(fields)
        if (
            activity
            and self._metadata["status"] == "in_progress"
            and words.put(self._metadata, "current_phase", activity)
        ):
            del fields["status"]

    def _take_current(self, fields: Document) -> None:
        word = fields.get("current_phase")
        name = words.phase_name(word)
        if name is not None:
            if words.put(self._metadata, "current_phase", name):
                del fields["current_phase"]
        elif words.phase_status(word) == "completed" and words.put(self._metadata, "status", "completed"):
            del fields["current_phase"]

    def _take_phase(self, phases: Document, name: str) -> None:
        known = words.phase_name(name)
        if known is None:
            return
        given = {"status": phases[name]} if isinstance(phases[name], str) else phases[name]
        if not isinstance(given, dict):
            raise Unreadable(f"phases.{name} is not an object")
        phase = self._phases[known]
        if given.get("status") is not None:
            status = words.phase_status(given["status"])
            if status is None:
                raise Unreadable(f"unknown phases.{name}.status {given['status']!r}")
            if words.put(phase, "status", status):
                del given["status"]
        for field in ("started_at", "completed_at"):
            if words.is_time(given.get(field)):
                words.move(given, field, phase, field)
        if given.get("output") is not None:
            words.move(given, "output", phase, "output")
        if isinstance(given.get("errors"), list):
            phase["errors"] = [*phase.get("errors", ()), *given.pop("errors")]
        for field in ("error", "error_info"):
            if given.get(field) is not None:
                self._add_error(known, given.pop(field))
        phases[name] = {field: each for field, each in given.items() if not (each is None and field in _PHASE_FIELDS)}
        if not phases[name]:
            del phases[name]

    def _take_error(self, fields: Document) -> None:
        """Take in an error of the cycle that names its phase."""
        error = fields.get("error_info")
        phase = words.phase_name(error.get("phase")) if isinstance(error, dict) else None
        if phase is not None:
            self._add_error(phase, fields.pop("error_info"))

    def _add_error(self, phase: str, error: Any) -> None:
        entry = error if isinstance(error, dict) else {"message": error}
        self._phases[phase].setdefault("errors", []).append(entry)

    # --- the document ------------------------------------------------------------------------------------------------

    def document(self) -> Document:
        """The document. Raises Unreadable if it breaks a rule.

        Events become its history only if that agrees with the rest: they may be newer, or have gaps.
        """
        if self._events:
            document = deepcopy(self)._finish(deepcopy(self._events))
            if not problems(document):
                return document
        document = deepcopy(self)._finish([])
        found = problems(document)
        if found:
            raise Unreadable("; ".join(f"{each.path} {each.message}" for each in found))
        return document

    def _finish(self, events: list[Document]) -> Document:
        history = self._history_of(events)
        self._settle_phases()
        self._settle_status()
        self._settle_times()
        own = {"instruction": self.key.instruction, "spec_name": self.key.spec}
        own |= {name: self._metadata.pop(name) for name in words.OWN_NAMES if name in self._metadata}
        own_key: Document = {"key_prefix": self.key.prefix, "cycle_number": self.key.number}
        if self._events:
            self.keep("events", self._events)
        if self._legacy:
            self._context["legacy"] = self._legacy
        return {
            "version": 2,
            "cycle_id": str(self.key),
            "sequence": self._sequence or 1,
            "metadata": {name: word for name, word in own.items() if word is not None} | own_key | self._metadata,
            "context": self._context,
            "phases": self._phases,
            "history": history,
        }

    def _history_of(self, events: list[Document]) -> list[Document]:
        """The history from events, which also fill phases that nothing else describes."""
        history: list[Document] = []
        unknown = {name for name, phase in self._phases.items() if not phase}
        numbered = [event for event in events if type(event.get("sequence_after")) is int]
        for event in sorted(numbered, key=lambda event: int(event["sequence_after"])):
            name, word, time = words.phase_name(event.get("phase")), event.get("event_type"), event.get("timestamp")
            if name is None or not isinstance(word, str) or not words.is_time(time):
                continue
            word, sequence = words.event_word(word), event["sequence_after"]
            history.append({"timestamp": time, "phase": name, "event": word, "sequence": sequence})
            known: Document = {}
            if word == "started":
                self._phases[name]["sequence_at_start"] = sequence
                known = {"status": "in_progress", "started_at": time}
            elif word == "completed":
                self._phases[name]["sequence_at_complete"] = sequence
                known = {"status": word, "completed_at": time}
            elif word == "failed":
                known = {"status": word}
            self._phases[name] |= known if name in unknown else {}
        if self._sequence is None and history:
            self._sequence = history[-1]["sequence"]
        return history

    # --- filling gaps ------------------------------------------------------------------------------------------------

    def _settle_phases(self) -> None:
        """Give a status to phases that have none, by what else is known of them."""
        status, later = self._metadata.get("status"), False
        for name in reversed(PHASES):
            phase = self._phases[name]
            done = later or status == "completed" or "completed_at" in phase
            if "status" in phase:
                pass
            elif name in (self._listed or ()):
                phase["status"] = "completed"
            elif not phase:
                phase["status"] = "pending"
            elif status == "failed" and not done:
                phase["status"] = "failed"
            else:  # an output was written at the end of its phase, unless a list names the completed ones
                phase["status"] = "completed" if done or ("output" in phase and self._listed is None) else "in_progress"
            later |= phase["status"] != "pending"

    def _settle_status(self) -> None:
        """Give the cycle a status that agrees with its phases; one that does not is kept under `legacy`."""
        statuses = [self._phases[name]["status"] for name in PHASES]
        given = self._metadata.get("status")
        status = given or ("completed" if self._ended and statuses == ["completed"] * 4 else "initialized")
        if status == "initialized" and (statuses != ["pending"] * 4 or self._events):
            status = "in_progress"
        if status == "completed" and "in_progress" in statuses:
            status = "in_progress"
        if status in ("completed", "in_progress") and "failed" in statuses:
            status = "failed"
        if given not in (None, status):
            self.keep("status", given)
        self._metadata["status"] = status
        going = [name for name in PHASES if self._phases[name]["status"] == "in_progress"]
        current = self._metadata.get("current_phase")
        if going and current != going[0]:
            if current is not None:
                self.keep("current_phase", current)
            self._metadata["current_phase"] = going[0]

    def _settle_times(self) -> None:
        """Set missing times of creation and update from the other times of the cycle."""
        times = [phase.get(name) for phase in self._phases.values() for name in ("started_at", "completed_at")]
        times += [event.get("timestamp") for event in self._events]
        times += [self._metadata.get(name) for name in _TIMES]
        found = sorted((when, time) for time in times if (when := moment(time)) is not None)
        found = found or sorted(_times_in(self._legacy)) or [(datetime.fromtimestamp(0, UTC), NO_TIME)]
        self._metadata.setdefault("created_at", found[0][1])
        self._metadata.setdefault("updated_at", found[-1][1])


def _times_in(value: Any) -> Iterator[tuple[datetime, str]]:
    """Every time in a value."""
    if isinstance(value, str):
        when = moment(value)
        if when is not None:
            yield when, value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _times_in(each)
