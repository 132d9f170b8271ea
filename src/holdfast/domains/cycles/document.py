"""Documents of cycles: the first one, and the steps from one to the next.

A step is a function from a document to the next, which rejects what the table of transitions does not allow: a phase
starts when the one before is completed with an output and no other is in progress; a phase in progress can be completed
or fail; a cycle is finished when its review is completed. Pure: nothing is stored here.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains.cycles.rules import PHASES, Key, alike
from holdfast.types.cycles import PhaseName

Document = dict[str, Any]
_ENDED: Final = ("completed", "failed")


class Step(msgspec.Struct, frozen=True):
    """A change of a document. `take` makes it in place and returns the word for the history, or None.

    `done` says whether another writer's document already contains the work; `wanted` is what to show in a conflict.
    `phase` None: the step concerns the whole cycle.
    """

    op: str
    phase: PhaseName | None
    take: Callable[[Document, str], str | None]
    done: Callable[[Document], bool]
    wanted: Any = None


def first(key: Key, instruction: str | None, context: dict[str, Any], now: str) -> Document:
    """Return the document of a new cycle."""
    metadata: Document = {"instruction": instruction, "spec_name": key.spec, "key_prefix": key.prefix}
    metadata |= {"cycle_number": key.number, "created_at": now, "updated_at": now, "status": "initialized"}
    return {
        "version": 2,
        "cycle_id": str(key),
        "sequence": 1,
        "metadata": {name: value for name, value in metadata.items() if value is not None},
        "context": context,
        "phases": {phase: {"status": "pending"} for phase in PHASES},
        "history": [],
    }


def after(document: Document, step: Step, now: str) -> Document:
    """Return the document after a step. Raises InvalidTransition."""
    changed = deepcopy(document)
    changed["sequence"] += 1
    changed["metadata"]["updated_at"] = now
    word = step.take(changed, now)
    if word is not None:
        phase = step.phase or changed["metadata"].get("current_phase") or PHASES[0]
        changed["history"].append({"timestamp": now, "phase": phase, "event": word, "sequence": changed["sequence"]})
    return changed


def refused(document: Document, message: str, hint: str) -> errors.InvalidTransition:
    """The error for a step that is not allowed."""
    statuses = {phase: document["phases"][phase]["status"] for phase in PHASES}
    return errors.InvalidTransition(
        f"{document['cycle_id']}: {message}", hint=hint, status=document["metadata"]["status"], phases=statuses
    )


def check_phase(phase: Any) -> PhaseName:
    """Return the name of a phase. Raises InvalidID."""
    if not isinstance(phase, str) or phase not in PHASES:
        raise errors.InvalidID(f"{phase!r} is not a phase", hint=f"phases: {', '.join(PHASES)}")
    return phase


def _open(document: Document) -> None:
    status = document["metadata"]["status"]
    if status in _ENDED:
        raise refused(document, f"it is {status}", "start another cycle")


def _going(document: Document, phase: PhaseName) -> Document:
    """Return a phase in progress. Raises InvalidTransition."""
    _open(document)
    found: Document = document["phases"][phase]
    if found["status"] != "in_progress":
        hint = "call start_phase first" if found["status"] == "pending" else "it has ended; work on the next phase"
        raise refused(document, f"{phase} is {found['status']}, not in progress", hint)
    return found


# --- the steps -------------------------------------------------------------------------------------------------------


def starting(name: PhaseName) -> Step:
    """Start a phase."""

    def take(document: Document, now: str) -> str:
        _open(document)
        phases, place = document["phases"], PHASES.index(name)
        if phases[name]["status"] != "pending":
            raise refused(document, f"{name} is {phases[name]['status']}, not pending", "a phase is started once")
        before = PHASES[place - 1] if place else None
        if before is not None:
            if phases[before]["status"] != "completed":
                raise refused(
                    document, f"{before} is {phases[before]['status']}", f"complete {before} before {name} starts"
                )
            if phases[before].get("output") is None:
                raise refused(document, f"{before} has no output", f"{name} needs it")
        phases[name] |= {"status": "in_progress", "started_at": now, "sequence_at_start": document["sequence"]}
        phases[name].setdefault("errors", [])
        document["metadata"] |= {"status": "in_progress", "current_phase": name}
        return "started"

    return Step("start_phase", name, take, lambda document: document["phases"][name]["status"] == "completed")


def completing(name: PhaseName, output: Any) -> Step:
    """Complete a phase, with this output or its partial one."""

    def take(document: Document, now: str) -> str:
        phase = _going(document, name)
        if output is not None:
            phase["output"] = output
        if phase.get("output") is None:
            raise refused(document, f"{name} has no output", "complete it with one")
        phase |= {"status": "completed", "completed_at": now, "sequence_at_complete": document["sequence"]}
        return "completed"

    def done(document: Document) -> bool:
        phase = document["phases"][name]
        return phase["status"] == "completed" and (output is None or alike(phase.get("output"), output))

    return Step("complete_phase", name, take, done, {"status": "completed", "output": output})


def updating(name: PhaseName, patch: Any) -> Step:
    """Patch the output of a phase, as a JSON merge patch."""

    def take(document: Document, now: str) -> None:
        phase = _going(document, name)
        phase["output"] = merge_patch(phase.get("output"), patch)

    def done(document: Document) -> bool:
        output = document["phases"][name].get("output")
        return alike(merge_patch(deepcopy(output), patch), output)

    return Step("update_phase", name, take, done, {"output": patch})


def merge_patch(value: Any, patch: Any) -> Any:
    """RFC 7396: objects are merged, null removes, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(value) if isinstance(value, dict) else {}
    for name, change in patch.items():
        if change is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), change)
    return merged


def failing(name: PhaseName, error: Document) -> Step:
    """Fail a phase, and the cycle with it."""

    def take(document: Document, now: str) -> str:
        phase = _going(document, name)
        phase["status"] = "failed"
        _note(phase, error, now)
        document["metadata"]["status"] = "failed"
        return "failed"

    def done(document: Document) -> bool:
        phase = document["phases"][name]
        return phase["status"] == "failed" and _has(phase, error)

    return Step("fail_phase", name, take, done, {"status": "failed", "error": error})


def erring(name: PhaseName, error: Document) -> Step:
    """Record an error of a phase that continues."""

    def take(document: Document, now: str) -> None:
        _note(_going(document, name), error, now)

    return Step("add_error", name, take, lambda document: False, {"error": error})


def finishing(error: Document | None) -> Step:
    """End a cycle: completed after its review, or failed at any time."""

    def take(document: Document, now: str) -> str:
        _open(document)
        metadata, phases = document["metadata"], document["phases"]
        if error is None:
            if phases[PHASES[-1]]["status"] != "completed":
                raise refused(document, f"review is {phases[PHASES[-1]]['status']}", "complete the review first")
            metadata["status"] = "completed"
            return "finished"
        phase = next((phase for phase in PHASES if phases[phase]["status"] != "completed"), PHASES[-1])
        _note(phases[phase], error, now)
        if phases[phase]["status"] == "in_progress":
            phases[phase]["status"] = "failed"
        metadata |= {"status": "failed", "current_phase": phase}
        return "failed"

    status = "completed" if error is None else "failed"

    def done(document: Document) -> bool:
        ended = document["metadata"]["status"] == status
        return ended and (error is None or any(error["message"] in _messages(document["phases"][p]) for p in PHASES))

    return Step("finish", None, take, done, {"status": status})


def _note(phase: Document, error: Document, now: str) -> None:
    phase["errors"] = [*(phase.get("errors") or ()), {"timestamp": now, **error}]


def _messages(phase: Document) -> list[Any]:
    return [each.get("message") for each in phase.get("errors") or () if isinstance(each, dict)]


def _has(phase: Document, error: Document) -> bool:
    kept = [each for each in phase.get("errors") or () if isinstance(each, dict)]
    return error in [{name: value for name, value in each.items() if name != "timestamp"} for each in kept]


def error_entry(message: Any, details: Any) -> Document:
    """Return an error as documents store it, without its time. Raises InvalidValue."""
    if not isinstance(message, str) or not message:
        raise errors.InvalidValue(f"error must be a text that says what went wrong, not {message!r}", hint="")
    if details is None:
        return {"message": message}
    if not isinstance(details, dict) or {"message", "timestamp"} & details.keys():
        raise errors.InvalidValue("details must be an object without the fields message and timestamp", hint="")
    return {"message": message, **details}


def message_of(document: Document) -> tuple[str | None, str]:
    """Return the phase in which a cycle failed, if any, and the last error message."""
    for phase in (document["metadata"].get("current_phase"), *PHASES):
        noted = document["phases"][phase].get("errors") if phase else None
        if noted:
            last = noted[-1]
            return phase, str(last.get("message", last)) if isinstance(last, dict) else str(last)
    return document["metadata"].get("current_phase"), "no reason was given"
