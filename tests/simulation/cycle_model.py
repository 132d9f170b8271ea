"""The laws of cycles as plain Python, on top of the model of trails: P2 to P5 and P7.

Spelled out from the requirements: a document is what it is after its steps, one after the other. Nothing is shared with
the implementation but the types of the answers and errors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from holdfast import errors
from holdfast.types import Event, as_time
from holdfast.types.cycles import Cycle, Resumption
from tests.simulation.trail_model import TrailModel

PHASES = ("plan", "execute", "express", "review")
Document = dict[str, Any]


class Written(NamedTuple):
    """One version of a cycle, and the phase that it changed."""

    phase: str | None
    document: Document


class CycleModel(TrailModel):
    """A workspace with cycles as its users imagine it."""

    def remembers(self, event: Event) -> bool:
        """Whether the log still has an event."""
        return True

    def _text(self) -> str:
        return as_time(self.now).isoformat().replace("+00:00", "Z")

    def _versions(self, key: str) -> dict[int, Written]:
        if key not in self.state.cycles:
            raise errors.NotFound()
        return self.state.cycles[key]

    def _document(self, key: str) -> Document:
        versions = self._versions(key)
        return versions[max(versions)].document

    def _store(self, key: str, op: str, phase: str | None, document: Document) -> Cycle:
        older = self.state.cycles.get(key, {})
        self.state.cycles[key] = {**older, document["sequence"]: Written(phase, document)}
        self.emit("cycle", "", key, op, {"phase": phase, "document": document}, document["sequence"])
        return msgspec.convert(document, Cycle)

    def cycles_start(self, spec: str, instruction: str | None = None) -> Cycle:
        number = 1 + sum(key.startswith(f"peer:spec:{spec}:") for key in self.state.cycles)
        key, now = f"peer:spec:{spec}:cycle:{number}", self._text()
        metadata: Document = {"spec_name": spec, "key_prefix": f"peer:spec:{spec}", "cycle_number": number}
        metadata |= {"created_at": now, "updated_at": now, "status": "initialized"}
        document = {"version": 2, "cycle_id": key, "sequence": 1, "history": []}
        document |= {"metadata": metadata if instruction is None else {"instruction": instruction, **metadata}}
        document |= {"context": {"peer_mode": "new", "spec_aware": True}}
        document |= {"phases": {phase: {"status": "pending"} for phase in PHASES}}
        return self._store(key, "start", None, document)

    # --- steps -------------------------------------------------------------------------------------------------------

    def cycles_start_phase(self, key: str, phase: str, sequence: int | None = None) -> Any:
        def step(document: Document, phases: Document) -> str:
            before = PHASES[PHASES.index(phase) - 1]
            self._allow(document, phases[phase]["status"] == "pending")
            if phase != PHASES[0]:
                self._allow(document, phases[before]["status"] == "completed" and phases[before]["output"] is not None)
            phases[phase] |= {"status": "in_progress", "started_at": self._text(), "errors": []}
            phases[phase]["sequence_at_start"] = document["sequence"]
            document["metadata"] |= {"status": "in_progress", "current_phase": phase}
            return "started"

        return self._cycle_step(key, "start_phase", phase, sequence, step, lambda d: _status(d, phase) == "completed")

    def cycles_complete_phase(self, key: str, phase: str, output: Any = None, sequence: int | None = None) -> Any:
        def step(document: Document, phases: Document) -> str:
            self._going(document, phase)
            made = phases[phase].get("output") if output is None else output
            self._allow(document, made is not None)
            phases[phase] |= {"status": "completed", "completed_at": self._text(), "output": made}
            phases[phase]["sequence_at_complete"] = document["sequence"]
            return "completed"

        def done(document: Document) -> bool:
            same = output is None or document["phases"][phase].get("output") == output
            return _status(document, phase) == "completed" and same

        return self._cycle_step(key, "complete_phase", phase, sequence, step, done)

    def cycles_update_phase(self, key: str, phase: str, output: Any, sequence: int | None = None) -> Any:
        def merged(old: Any) -> Document:
            return {name: value for name, value in {**(old or {}), **output}.items() if value is not None}

        def step(document: Document, phases: Document) -> None:
            self._going(document, phase)
            phases[phase]["output"] = merged(phases[phase].get("output"))

        def done(document: Document) -> bool:
            old = document["phases"][phase].get("output")
            return bool(merged(old) == old)

        return self._cycle_step(key, "update_phase", phase, sequence, step, done)

    def cycles_add_error(self, key: str, phase: str, error: str, sequence: int | None = None) -> Any:
        def step(document: Document, phases: Document) -> None:
            self._going(document, phase)
            phases[phase]["errors"] = [*phases[phase]["errors"], {"timestamp": self._text(), "message": error}]

        return self._cycle_step(key, "add_error", phase, sequence, step, lambda _: False)

    def cycles_fail_phase(self, key: str, phase: str, error: str, sequence: int | None = None) -> Any:
        def step(document: Document, phases: Document) -> str:
            self._going(document, phase)
            phases[phase]["errors"] = [*phases[phase]["errors"], {"timestamp": self._text(), "message": error}]
            phases[phase]["status"] = document["metadata"]["status"] = "failed"
            return "failed"

        def done(document: Document) -> bool:
            told = [each["message"] for each in document["phases"][phase].get("errors", ())]
            return _status(document, phase) == "failed" and error in told

        return self._cycle_step(key, "fail_phase", phase, sequence, step, done)

    def cycles_finish(self, key: str, error: str | None = None, sequence: int | None = None) -> Any:
        def step(document: Document, phases: Document) -> str:
            self._allow(document, error is not None or phases["review"]["status"] == "completed")
            if error is None:
                document["metadata"]["status"] = "completed"
                return "finished"
            phase = next((each for each in PHASES if phases[each]["status"] != "completed"), "review")
            told = {"timestamp": self._text(), "message": error}
            phases[phase]["errors"] = [*phases[phase].get("errors", ()), told]
            if phases[phase]["status"] == "in_progress":
                phases[phase]["status"] = "failed"
            document["metadata"] |= {"status": "failed", "current_phase": phase}
            return "failed"

        def done(document: Document) -> bool:
            told = [each["message"] for phase in document["phases"].values() for each in phase.get("errors", ())]
            if error is None:
                return bool(document["metadata"]["status"] == "completed")
            return document["metadata"]["status"] == "failed" and error in told

        return self._cycle_step(key, "finish", None, sequence, step, done)

    def _allow(self, document: Document, allowed: bool) -> None:
        if not allowed or document["metadata"]["status"] in ("completed", "failed"):
            raise errors.InvalidTransition(status=document["metadata"]["status"])

    def _going(self, document: Document, phase: str) -> None:
        self._allow(document, _status(document, phase) == "in_progress")

    def _cycle_step(self, key: str, op: str, phase: str | None, read: int | None, step: Any, done: Any) -> Any:
        document = self._document(key)
        found = document["sequence"]
        if read is not None and read > found:
            raise errors.Invalid()
        if read is not None and read != found:
            how = self._outcome(key, phase, read, found, done)
            if how == "refuse":
                raise self._conflict(key, phase, read, found)
            self._tell(key, how, op, phase, read, found)
            if how == "skip":
                return msgspec.convert(document, Cycle)
        new = msgspec.json.decode(msgspec.json.encode(document))
        new["sequence"] += 1
        new["metadata"]["updated_at"] = self._text()
        word = step(new, new["phases"])
        if word is not None:
            entry = {"timestamp": self._text(), "phase": phase or new["metadata"]["current_phase"], "event": word}
            new["history"].append({**entry, "sequence": new["sequence"]})
        return self._store(key, op, phase, new)

    # --- two who read the same ---------------------------------------------------------------------------------------

    def _outcome(self, key: str, phase: str | None, read: int, found: int, done: Any) -> str:
        if done(self._versions(key)[found].document):
            return "skip"
        between = range(read + 1, found + 1)
        kept = {
            event.version
            for event in self.events
            if (event.kind, event.id) == ("cycle", key) and event.version in between and self.remembers(event)
        }
        touched = {self._versions(key)[each].phase for each in between}
        return "merge" if kept == {*between} and phase is not None and not touched & {phase, None} else "refuse"

    def _conflict(self, key: str, phase: str | None, read: int, found: int) -> errors.CycleConflict:
        document = self._versions(key)[found].document
        theirs = document["metadata"] if phase is None else document["phases"][phase]
        return errors.CycleConflict(expected=read, version=found, value=theirs)

    def _tell(self, key: str, how: str, op: str, phase: str | None, read: int, found: int) -> None:
        data = {"step": op, "phase": phase, "expected": read, "sequence": found}
        self.emit("cycle-conflict", "", key, how, data)

    # --- reading -----------------------------------------------------------------------------------------------------

    def cycles_get(self, key: str) -> Cycle:
        return msgspec.convert(self._document(key), Cycle)

    def cycles_resume(self, spec: str) -> Resumption:
        documents = [self._document(key) for key in self.state.cycles if key.startswith(f"peer:spec:{spec}:")]
        if not documents:
            raise errors.NotFound()
        going = [each for each in documents if each["metadata"]["status"] not in ("completed", "failed")]
        if not going:
            ended = documents[-1]["metadata"]["status"]
            raise errors.CycleCompleted() if ended == "completed" else errors.CycleFailed()
        document = going[-1]
        for phase in PHASES:
            found = document["phases"][phase]
            if found["status"] != "completed":
                started = found["status"] == "in_progress"
                return Resumption(msgspec.convert(document, Cycle), phase, started, found.get("output"))  # type: ignore[arg-type]
        return Resumption(msgspec.convert(document, Cycle), None, False)


def _status(document: Document, phase: str) -> str:
    status: str = document["phases"][phase]["status"]
    return status
