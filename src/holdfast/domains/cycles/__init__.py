"""PEER cycles: plan, execute, express, review, as one document that is written whole or not at all.

Agents of four phases and their coordinator share a document. Every write takes the next `sequence`; one that says which
sequence it read is merged with what others did to other phases, skipped if its work is there already, and refused
otherwise. What is read is what was written, or the read is Corrupt, and `recover` brings back the last that was.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from holdfast import errors
from holdfast.domains.cycles import merge, rules
from holdfast.domains.cycles.document import (
    Document,
    Step,
    after,
    check_phase,
    completing,
    erring,
    failing,
    finishing,
    first,
    message_of,
    refused,
    starting,
    told_error,
    updating,
)
from holdfast.domains.cycles.exchange import adopt, compare_document, import_, recover, sent
from holdfast.domains.cycles.rows import (
    CYCLE,
    DELETE,
    current_of,
    list_cycles,
    look,
    missing,
    named,
    now_of,
    require,
    to_cycle,
    vanished,
    write,
)
from holdfast.domains.cycles.rows import check as check
from holdfast.domains.cycles.rows import set_current as _set_current
from holdfast.domains.cycles.rules import Key, parse, prefix_of
from holdfast.kernel import idempotency
from holdfast.kernel.events import gone, marks, previous, redact, to_event
from holdfast.kernel.tx import Snapshot, Tx, newest_version
from holdfast.kernel.validate import check_flag
from holdfast.kernel.values import check as check_value
from holdfast.operation import Do, Domain, Found, M, Steps, procedure, read
from holdfast.operation import write as writing
from holdfast.types.cycles import Cycle, CycleProblem, PhaseName, Resumption


def start(
    tx: Tx, spec: str | None = None, instruction: str | None = None, context: dict[str, Any] | None = None
) -> Cycle:
    """Begin the next cycle of a spec, or of an instruction, and make it the current one; Exists if it is there."""
    prefix = prefix_of(spec, instruction)
    if context is not None and not isinstance(context, dict):
        raise errors.InvalidValue(f"context is an object, not {type(context).__name__}")
    key = Key(prefix, current_of(tx, prefix) + 1)
    if look(tx, key).there or newest_version(tx, CYCLE, "", str(key)):
        raise errors.Exists(f"there was a cycle {key} before", hint="name another spec or instruction", key=str(key))
    given = {"peer_mode": "new", "spec_aware": spec is not None, **(context or {})}
    document = write(tx, "start", first(key, instruction, given, now_of(tx)))
    _set_current(tx, prefix, key.number)
    return to_cycle(document)


# --- steps -----------------------------------------------------------------------------------------------------------


def start_phase(key: str, phase: PhaseName, sequence: int | None = None) -> Steps[Cycle]:
    """Start a phase whose predecessor is completed with an output; nothing else may be in progress."""
    return _step(key, starting(check_phase(phase)), sequence)


def complete_phase(key: str, phase: PhaseName, output: Any = None, sequence: int | None = None) -> Steps[Cycle]:
    """Complete the phase that is in progress, with this output or with what it has so far."""
    check_value(output, rules.MAX_BYTES, text=True)
    return _step(key, completing(check_phase(phase), output), sequence)


def fail_phase(
    key: str, phase: PhaseName, error: str, details: dict[str, Any] | None = None, sequence: int | None = None
) -> Steps[Cycle]:
    """Let the phase that is in progress fail, and the cycle with it; `details` are more fields of the error."""
    return _step(key, failing(check_phase(phase), told_error(error, details)), sequence)


def update_phase(key: str, phase: PhaseName, output: Any, sequence: int | None = None) -> Steps[Cycle]:
    """Change the output of the phase that is in progress as a JSON merge patch does: null removes a field."""
    check_value(output, rules.MAX_BYTES, text=True)
    return _step(key, updating(check_phase(phase), output), sequence)


def add_error(
    key: str, phase: PhaseName, error: str, details: dict[str, Any] | None = None, sequence: int | None = None
) -> Steps[Cycle]:
    """Note an error of the phase that is in progress, which goes on; `details` are more fields of the error."""
    return _step(key, erring(check_phase(phase), told_error(error, details)), sequence)


def finish(
    key: str, error: str | None = None, details: dict[str, Any] | None = None, sequence: int | None = None
) -> Steps[Cycle]:
    """End a cycle: completed, after its review; or failed with an `error`, wherever it stands."""
    if error is None and details is not None:
        raise errors.Invalid("details are those of an error, and there is none")
    return _step(key, finishing(None if error is None else told_error(error, details)), sequence)


def _step(key: str, step: Step, sequence: int | None) -> Steps[Cycle]:
    if sequence is not None and (type(sequence) is not int or sequence < 1):
        raise errors.Invalid(f"sequence is the one that was read, a whole number from 1 on, not {sequence!r}")
    try:
        cycle: Cycle = yield Do(lambda tx: _take(tx, named(tx, key), step, sequence), keyed=True)
    except errors.CycleConflict as refusal:
        told = refusal  # the transaction that refused is undone: the conflict is logged by one of its own
        own, found = parse(told.key), told.details["version"]
        yield Do(lambda tx: merge.log_conflict(tx, own, "refuse", told.expected, found, step.op, step.phase))
        raise
    return cycle


def _take(tx: Tx, key: Key, step: Step, sequence: int | None) -> Cycle:
    document = require(tx, key)
    present = document["sequence"]
    if sequence is not None and sequence > present:
        raise errors.Invalid(f"{key} is at sequence {present}; {sequence} has not been written yet", key=str(key))
    if sequence is not None and sequence != present:
        others = merge.meanwhile(tx, key, sequence, present)
        how = merge.outcome(document, step, others)
        if how == "refuse":
            raise merge.conflict(key, document, step, sequence, others)
        merge.log_conflict(tx, key, how, sequence, present, step.op, step.phase)
        if how == "skip":
            return to_cycle(document)
    return to_cycle(write(tx, step.op, after(document, step, now_of(tx)), step.phase))


# --- reading ---------------------------------------------------------------------------------------------------------


def get(snapshot: Snapshot, key: str) -> Cycle:
    """A cycle by its key, or the current one of a prefix; NotFound if there is none, Corrupt if it is broken."""
    return to_cycle(require(snapshot, named(snapshot, key)))


def export(snapshot: Snapshot, key: str, sequence: int | None = None) -> dict[str, Any]:
    """The document of a cycle, as it is or as it was at a sequence; NotFound if there was none, or Compacted."""
    own = named(snapshot, key)
    if sequence is None:
        return require(snapshot, own)
    if type(sequence) is not int or not 1 <= sequence < 2**62:
        raise errors.Invalid(f"sequence is a whole number from 1 on, not {sequence!r}")
    row = previous(snapshot, CYCLE, "", str(own), sequence + 1)
    event = None if row is None else to_event(row)
    if event is not None and event.version == sequence and "document" in event.data:
        return cast(Document, event.data["document"])
    if event is None and marks(snapshot)[1] and newest_version(snapshot, CYCLE, "", str(own)) > sequence:
        raise gone(marks(snapshot)[1])
    raise errors.NotFound(f"the cycle {own} was never written with sequence {sequence}", key=str(own))


def validate(snapshot: Snapshot, document: Any) -> list[CycleProblem]:
    """Everything that is wrong with a document; of one that began here also each step that the log does not know."""
    wrong = rules.problems(document)
    if wrong:
        return wrong
    key = parse(document["cycle_id"])
    return [*_unknown_steps(snapshot, key, document)]


def _unknown_steps(snapshot: Snapshot, key: Key, document: Document) -> Iterator[CycleProblem]:
    rows = snapshot.all(
        "SELECT version, op FROM events WHERE kind = ? AND scope = '' AND id = ? ORDER BY version", (CYCLE, str(key))
    )
    if not rows or marks(snapshot)[1]:  # what was compacted may have been the step
        return
    known = {version for version, _ in rows}
    elsewhere = max((version for version, op in rows if op in ("import", "adopt")), default=0)  # up to there
    for number, entry in enumerate(document["history"]):
        if entry["sequence"] > elsewhere and entry["sequence"] not in known:
            yield CycleProblem(f"$.history[{number}].sequence", f"{entry['sequence']} was never written here")


def resume(snapshot: Snapshot, spec: str | None = None, instruction: str | None = None) -> Resumption:
    """Where to go on: the last cycle that is not at its end, and its first phase that is not completed.

    NotFound if there is no cycle; otherwise CycleCompleted or CycleFailed, as the last one ended.
    """
    prefix = prefix_of(spec, instruction)
    stored = snapshot.all("SELECT number FROM cycles WHERE prefix = ?", (prefix,))
    numbers = sorted([*(number for (number,) in stored), *(row[1] for row in vanished(snapshot, prefix))], reverse=True)
    if not numbers:
        raise errors.NotFound(f"there is no cycle of {prefix}", hint="cycles.start(...) makes one", key=prefix)
    last: Document | None = None
    for number in numbers:
        document = require(snapshot, Key(prefix, number))
        if document["metadata"]["status"] not in ("completed", "failed"):
            return _resumption(document)
        last = last or document
    assert last is not None
    if last["metadata"]["status"] == "completed":
        raise errors.CycleCompleted(f"{last['cycle_id']} is completed", key=last["cycle_id"])
    phase, reason = message_of(last)
    raise errors.CycleFailed(
        f"{last['cycle_id']} has failed{f' in {phase}' if phase else ''}: {reason}",
        key=last["cycle_id"],
        phase=phase,
        reason=reason,
    )


def _resumption(document: Document) -> Resumption:
    for phase in rules.PHASES:
        found = document["phases"][phase]
        if found["status"] != "completed":
            return Resumption(to_cycle(document), phase, found["status"] == "in_progress", found.get("output"))
    return Resumption(to_cycle(document), None, False)


def delete(tx: Tx, key: str, force: bool = False) -> None:
    """Delete a cycle that is at its end, and what its history said; the numbers of a prefix go on growing.

    `force` deletes it wherever it stands, also one whose document is broken.
    """
    check_flag(force=force)
    own = named(tx, key)
    if not force:
        document = require(tx, own)
        if document["metadata"]["status"] not in ("completed", "failed"):
            raise refused(document, "it is not at its end", "finish it first")
    elif not look(tx, own).there:
        raise missing(own)
    _set_current(tx, own.prefix, current_of(tx, own.prefix))  # so that its number is never given again
    tx.run("DELETE FROM cycles WHERE prefix = ? AND number = ?", (own.prefix, own.number))
    redact(tx, CYCLE, "", str(own))
    idempotency.redact(tx, [str(own)])
    tx.emit(CYCLE, str(own), DELETE)


# --- wired to the others ---------------------------------------------------------------------------------------------


def probe(tx: Tx, id: str) -> Found | None:
    """What a condition sees of a cycle: its sequence, and its document."""
    key = parse(id)
    if not look(tx, key).there:
        return None
    document = require(tx, key)
    return Found(document["sequence"], document)


class Cycles(Domain[M]):
    """`ws.cycles`."""

    prefix = "cycles"
    start = writing(start, http="POST /api/cycles", cli="cycle start", mcp=True)
    get = read(get, http="GET /api/cycles/{key}", cli="cycle get", mcp=True)
    list = read(list_cycles, http="GET /api/cycles", cli="cycle list", mcp=True)
    start_phase = procedure(start_phase, http="POST /api/cycles/{key}/start", cli="cycle start-phase", mcp=True)
    complete_phase = procedure(
        complete_phase, http="POST /api/cycles/{key}/complete", cli="cycle complete-phase", mcp=True
    )
    fail_phase = procedure(fail_phase, http="POST /api/cycles/{key}/fail", cli="cycle fail-phase", mcp=True)
    update_phase = procedure(update_phase, http="POST /api/cycles/{key}/update", cli="cycle update-phase", mcp=True)
    add_error = procedure(add_error, http="POST /api/cycles/{key}/errors", cli="cycle add-error", mcp=True)
    finish = procedure(finish, http="POST /api/cycles/{key}/finish", cli="cycle finish", mcp=True)
    validate = read(validate, http="POST /api/cycles/validate", cli="cycle validate")
    recover = writing(recover, http="POST /api/cycles/{key}/recover", cli="cycle recover")
    resume = read(resume, http="GET /api/cycles/resume", cli="cycle resume", mcp=True)
    delete = writing(delete, http="DELETE /api/cycles/{key}", cli="cycle delete")
    export = read(export, http="GET /api/cycles/{key}/document", cli="cycle document")
    import_ = writing(import_, http="POST /api/cycles/import", cli="cycle import", heavy=True)
    compare = read(compare_document, http="POST /api/cycles/compare")
    adopt = procedure(adopt, http="POST /api/cycles/adopt", cli="cycle adopt")
    sent = writing(sent, http="POST /api/cycles/{key}/sent")
