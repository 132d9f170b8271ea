"""PEER cycles: plan, execute, express, review, as one document that is written whole or not at all.

The agents of four phases and their coordinator share a document. Every write takes the next `sequence`; one that names
the sequence it read is merged with changes to other phases, skipped if its work is already there, and refused
otherwise. A read returns what was written, or raises Corrupt, and `recover` restores the last good document.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, cast

import msgspec

from holdfast import errors
from holdfast.domains.cycles import document as steps
from holdfast.domains.cycles import merge, rows, rules
from holdfast.domains.cycles.document import Document, Step
from holdfast.domains.cycles.exchange import adopt, check_sequence, compare_document, import_, or_log, recover, sent
from holdfast.domains.cycles.rows import check as check
from holdfast.domains.cycles.rules import Key, parse, prefix_of
from holdfast.kernel import idempotency
from holdfast.kernel.events import compacted_to, gone, previous, redact, to_event
from holdfast.kernel.tx import Snapshot, Tx, newest_version
from holdfast.kernel.validate import check_flag
from holdfast.kernel.values import check as check_value
from holdfast.operation import Domain, Found, M, Steps, procedure, read, write
from holdfast.route import example
from holdfast.types.cycles import Cycle, CycleProblem, PhaseName, Resumption


def start(
    tx: Tx, spec: str | None = None, instruction: str | None = None, context: dict[str, Any] | None = None
) -> Cycle:
    """Start the next cycle of a spec, or of an instruction, and make it the current one. Raises Exists."""
    prefix = prefix_of(spec, instruction)
    if context is not None and not isinstance(context, dict):
        raise errors.InvalidValue(f"context must be an object, not {type(context).__name__}")
    key = Key(prefix, rows.current_of(tx, prefix) + 1)
    if rows.look(tx, key).there or newest_version(tx, rows.CYCLE, "", str(key)):
        raise errors.Exists(f"the cycle {key} existed before", hint="use another spec or instruction", key=str(key))
    given = {"peer_mode": "new", "spec_aware": spec is not None, **(context or {})}
    document = rows.write(tx, "start", steps.first(key, instruction, given, rows.now_of(tx)))
    rows.set_current(tx, prefix, key.number)
    return rows.to_cycle(document)


# --- steps -----------------------------------------------------------------------------------------------------------


def start_phase(key: str, phase: PhaseName, sequence: int | None = None) -> Steps[Cycle]:
    """Start a phase when the one before is completed with an output. Raises InvalidTransition."""
    return _step(key, steps.starting(steps.check_phase(phase)), sequence)


def complete_phase(key: str, phase: PhaseName, output: Any = None, sequence: int | None = None) -> Steps[Cycle]:
    """Complete the phase in progress, with this output or its partial one. Raises InvalidTransition."""
    check_value(output, rules.MAX_BYTES, text=True)
    return _step(key, steps.completing(steps.check_phase(phase), output), sequence)


def fail_phase(
    key: str, phase: PhaseName, error: str, details: dict[str, Any] | None = None, sequence: int | None = None
) -> Steps[Cycle]:
    """Fail the phase in progress and its cycle; `details` adds fields to the error. Raises InvalidTransition."""
    return _step(key, steps.failing(steps.check_phase(phase), steps.error_entry(error, details)), sequence)


def update_phase(key: str, phase: PhaseName, output: Any, sequence: int | None = None) -> Steps[Cycle]:
    """Patch the output of the phase in progress (JSON merge patch: null removes). Raises InvalidTransition."""
    check_value(output, rules.MAX_BYTES, text=True)
    return _step(key, steps.updating(steps.check_phase(phase), output), sequence)


def add_error(
    key: str, phase: PhaseName, error: str, details: dict[str, Any] | None = None, sequence: int | None = None
) -> Steps[Cycle]:
    """Record an error of the phase in progress, which continues; `details` adds fields. Raises InvalidTransition."""
    return _step(key, steps.erring(steps.check_phase(phase), steps.error_entry(error, details)), sequence)


def finish(
    key: str, error: str | None = None, details: dict[str, Any] | None = None, sequence: int | None = None
) -> Steps[Cycle]:
    """End a cycle: completed after its review, or failed with an `error` at any time. Raises InvalidTransition."""
    if error is None and details is not None:
        raise errors.Invalid("details need an error", hint="pass error=... too, or omit details")
    return _step(key, steps.finishing(None if error is None else steps.error_entry(error, details)), sequence)


def _step(key: str, step: Step, sequence: int | None) -> Steps[Cycle]:
    if sequence is not None:
        check_sequence(sequence)
    return or_log(lambda tx: _take(tx, rows.named(tx, key), step, sequence), step.op, step.phase)


def _take(tx: Tx, key: Key, step: Step, sequence: int | None) -> Cycle:
    document = rows.require(tx, key)
    present = document["sequence"]
    if sequence is not None and sequence > present:
        raise errors.Invalid(f"{key} is at sequence {present}, not yet at {sequence}", key=str(key))
    if sequence is not None and sequence != present:
        others = merge.meanwhile(tx, key, sequence, present)
        how = merge.outcome(document, step, others)
        if how == "refuse":
            raise merge.conflict(key, document, step, sequence, others)
        merge.log_conflict(tx, key, how, sequence, present, step.op, step.phase)
        if how == "skip":
            return rows.to_cycle(document)
    return rows.to_cycle(rows.write(tx, step.op, steps.after(document, step, rows.now_of(tx)), step.phase))


# --- reading ---------------------------------------------------------------------------------------------------------


def get(snapshot: Snapshot, key: str) -> Cycle:
    """Return a cycle by its key, or the current one of a prefix. Raises NotFound, or Corrupt if it is damaged."""
    return rows.to_cycle(rows.require(snapshot, rows.named(snapshot, key)))


def export(snapshot: Snapshot, key: str, sequence: int | None = None) -> dict[str, Any]:
    """Return the document of a cycle, as it is or at a sequence. Raises NotFound, Compacted or Corrupt."""
    own = rows.named(snapshot, key)
    if sequence is None:
        return rows.require(snapshot, own)
    if type(sequence) is not int or not 1 <= sequence < 2**62:
        raise errors.Invalid(f"sequence must be an int of 1 or more, not {sequence!r}")
    row = previous(snapshot, rows.CYCLE, "", str(own), sequence + 1)
    event = None if row is None else to_event(row)
    if event is not None and event.version == sequence and "document" in event.data:
        return cast(Document, event.data["document"])
    compacted = compacted_to(snapshot)
    if event is None and compacted and newest_version(snapshot, rows.CYCLE, "", str(own)) > sequence:
        raise gone(compacted)
    raise errors.NotFound(f"the cycle {own} was never written with sequence {sequence}", key=str(own))


def validate(snapshot: Snapshot, document: Any) -> list[CycleProblem]:
    """Return the problems of a document; for a cycle of this workspace also steps that the log does not have.

    If there are more than 1,000, the last says how many.
    """
    wrong = rules.unsound(document)
    if wrong:
        return wrong
    key = parse(document["cycle_id"])
    return rules.bounded([*_unknown_steps(snapshot, key, document)])


def _unknown_steps(snapshot: Snapshot, key: Key, document: Document) -> Iterator[CycleProblem]:
    written = snapshot.all(
        "SELECT version, op FROM events WHERE kind = ? AND scope = '' AND id = ? ORDER BY version",
        (rows.CYCLE, str(key)),
    )
    if not written or compacted_to(snapshot):  # the step may have been compacted
        return
    known = {version for version, _ in written}
    elsewhere = max((version for version, op in written if op in ("import", "adopt")), default=0)  # written elsewhere
    for number, entry in enumerate(document["history"]):
        if entry["sequence"] > elsewhere and entry["sequence"] not in known:
            yield CycleProblem(f"$.history[{number}].sequence", f"{entry['sequence']} was never written here")


def resume(snapshot: Snapshot, spec: str | None = None, instruction: str | None = None) -> Resumption:
    """Return where to resume: the last cycle that has not ended, and its first phase that is not completed.

    Raises NotFound if there is no cycle; CycleCompleted or CycleFailed if the last one has ended.
    """
    prefix = prefix_of(spec, instruction)
    stored = [number for (number,) in snapshot.all("SELECT number FROM cycles WHERE prefix = ?", (prefix,))]
    numbers = sorted([*stored, *(row[1] for row in rows.vanished(snapshot, prefix))], reverse=True)
    if not numbers:
        raise errors.NotFound(f"there is no cycle of {prefix}", hint="start one: cycles.start(...)", key=prefix)
    last: Document | None = None
    for number in numbers:
        document = rows.require(snapshot, Key(prefix, number))
        if document["metadata"]["status"] not in ("completed", "failed"):
            return _resumption(document)
        last = last or document
    assert last is not None
    if last["metadata"]["status"] == "completed":
        raise errors.CycleCompleted(f"{last['cycle_id']} is completed", key=last["cycle_id"])
    phase, reason = steps.message_of(last)
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
            return Resumption(rows.to_cycle(document), phase, found["status"] == "in_progress", found.get("output"))
    return Resumption(rows.to_cycle(document), None, False)


def delete(tx: Tx, key: str, force: bool = False) -> None:
    """Delete a cycle that has ended, and blank its history; its number is not used again. Raises InvalidTransition.

    `force` deletes it in any state, also if its document is damaged, and is logged.
    """
    check_flag(force=force)
    own = rows.named(tx, key)
    if not force:
        document = rows.require(tx, own)
        if document["metadata"]["status"] not in ("completed", "failed"):
            raise steps.refused(document, "it has not ended", "finish it first")
    elif not rows.look(tx, own).there:
        raise rows.missing(own)
    rows.set_current(tx, own.prefix, rows.current_of(tx, own.prefix))  # so that its number is never used again
    tx.run("DELETE FROM cycles WHERE prefix = ? AND number = ?", (own.prefix, own.number))
    redact(tx, rows.CYCLE, "", str(own))
    idempotency.redact(tx, [str(own)])
    data = msgspec.msgpack.encode({"forced": [False, True]}) if force else None
    tx.emit(rows.CYCLE, str(own), rows.DELETE, data=data)


# --- hooks for other domains -----------------------------------------------------------------------------------------


def probe(tx: Tx, id: str) -> Found | None:
    """What a condition of `txn` sees of a cycle: its sequence and its document."""
    key = parse(id)
    if not rows.look(tx, key).there:
        return None
    document = rows.require(tx, key)
    return Found(document["sequence"], document)


# What examples need.
_CYCLE: Final = "holdfast cycle start --spec login"
_PLANNING: Final = (_CYCLE, "holdfast cycle start-phase peer:spec:login plan")
_SAVED: Final = (*_PLANNING, "holdfast cycle export --dir peer-state")
_FAILED_CYCLE: Final = (*_PLANNING, "holdfast cycle fail-phase peer:spec:login plan 'no requirements'")
_REVIEWED_CYCLE: Final = (
    _CYCLE,
    *(
        f"holdfast cycle {step}"
        for phase in ("plan", "execute", "express", "review")
        for step in (f"start-phase peer:spec:login {phase}", f"complete-phase peer:spec:login {phase} '{{}}'")
    ),
)


class Cycles(Domain[M]):
    """`ws.cycles`."""

    prefix = "cycles"
    start = write(
        start,
        http="POST /api/cycles",
        cli="cycle start",
        help="Begin the next cycle of a spec or an instruction, and print its key.",
        examples=(
            "holdfast cycle start --spec login --instruction create-spec",
            """holdfast cycle start --instruction analyze-product --context '{"user_requirements": "faster"}'""",
        ),
        creates=True,
    )
    get = read(
        get,
        http="GET /api/cycles/{key}",
        cli="cycle get",
        help="Show a cycle field by field.",
        examples=(example("holdfast cycle get peer.spec.login.cycle.1", _CYCLE),),
    )
    list = read(
        rows.list_cycles,
        http="GET /api/cycles",
        cli="cycle list",
        help="List cycles by spec and number.",
        examples=(example("holdfast cycle list --spec login --json", _CYCLE),),
        arguments={"status": "initialized, in_progress, completed, failed or corrupt"},
    )
    start_phase = procedure(
        start_phase,
        http="POST /api/cycles/{key}/start",
        cli="cycle start-phase",
        help="Start a phase.",
        examples=(example("holdfast cycle start-phase peer:spec:login plan", _CYCLE),),
    )
    complete_phase = procedure(
        complete_phase,
        http="POST /api/cycles/{key}/complete",
        cli="cycle complete-phase KEY PHASE [OUTPUT]",
        help="Complete the phase in progress, with its output.",
        examples=(
            example("""holdfast cycle complete-phase peer:spec:login plan '{"steps": 3}' --sequence 2""", *_PLANNING),
            example(
                "holdfast cycle complete-phase peer:spec:login:cycle:1 plan - < plan.json",
                *_PLANNING,
                """echo '{"steps": 3}' > plan.json""",
            ),
        ),
    )
    fail_phase = procedure(
        fail_phase,
        http="POST /api/cycles/{key}/fail",
        cli="cycle fail-phase KEY PHASE ERROR",
        help="Let the phase in progress fail, and its cycle.",
        examples=(
            example(
                """holdfast cycle fail-phase peer:spec:login plan 'no requirements' --details '{"asked": 3}'""",
                *_PLANNING,
            ),
        ),
    )
    update_phase = procedure(
        update_phase,
        http="POST /api/cycles/{key}/update",
        cli="cycle update-phase",
        help="Change what the phase in progress has so far.",
        examples=(
            example("""holdfast cycle update-phase peer:spec:login plan '{"steps": ["ask", "write"]}'""", *_PLANNING),
        ),
        arguments={"output": "what to change of it, a JSON merge patch; - reads it from standard input"},
    )
    add_error = procedure(
        add_error,
        http="POST /api/cycles/{key}/errors",
        cli="cycle add-error KEY PHASE ERROR",
        help="Note an error of the phase in progress, which goes on.",
        examples=(example("holdfast cycle add-error peer:spec:login plan 'asked twice'", *_PLANNING),),
    )
    finish = procedure(
        finish,
        http="POST /api/cycles/{key}/finish",
        cli="cycle finish KEY",
        help="End a cycle after its review, or with an error.",
        examples=(
            example("holdfast cycle finish peer:spec:login", *_REVIEWED_CYCLE),
            example("holdfast cycle finish peer:spec:login --error 'the customer left'", *_PLANNING),
        ),
    )
    validate = read(
        validate,
        http="POST /api/cycles/validate",
        cli="cycle validate",
        nothing=("the cycle has no problems",),
    )
    recover = write(
        recover,
        http="POST /api/cycles/{key}/recover",
        cli="cycle recover",
        help="Bring a broken cycle back to its last sound version.",
        examples=(example("holdfast cycle recover peer:spec:login", _CYCLE),),
    )
    resume = read(
        resume,
        http="GET /api/cycles/resume",
        cli="cycle resume",
        help="Tell where to go on: the phase that comes next, with what it has so far.",
        examples=(
            example("holdfast cycle resume --spec login", *_PLANNING),
            example("holdfast cycle resume --spec login  # exit code 11: it has failed", *_FAILED_CYCLE),
        ),
    )
    delete = write(
        delete,
        http="DELETE /api/cycles/{key}",
        cli="cycle delete",
        done=("deleted {key}",),
        help="Delete a cycle that is at its end, and what its history says.",
        examples=(example("holdfast cycle delete peer:spec:login", *_FAILED_CYCLE),),
        arguments={"force": "wherever it stands, also a broken one"},
    )
    export = read(
        export,
        http="GET /api/cycles/{key}/document",
        cli="cycle document",
        help="Print the document of a cycle, also as it was.",
        examples=(
            example("holdfast cycle document peer:spec:login > login.json", _CYCLE),
            example("holdfast cycle document peer:spec:login --sequence 1", *_PLANNING),
        ),
        arguments={"sequence": "as it was then"},
    )
    import_ = write(import_, http="POST /api/cycles/import", heavy=True, cli="cycle import")
    compare = read(
        compare_document,
        http="POST /api/cycles/compare",
        cli="cycle compare",
        help="Compare a document from elsewhere with ours: which continues which.",
        examples=(example("holdfast cycle compare - < peer-state/peer.spec.login.cycle.1.json", *_SAVED),),
    )
    adopt = procedure(
        adopt,
        http="POST /api/cycles/adopt",
        cli="cycle adopt DOCUMENT",
        help="Take a document from elsewhere in the place of ours.",
        examples=(example("holdfast cycle adopt - --sequence 2 < peer-state/peer.spec.login.cycle.1.json", *_SAVED),),
        arguments={"sequence": "at which ours must still be"},
    )
    sent = write(
        sent,
        http="POST /api/cycles/{key}/sent",
        cli="cycle sent",
        done=("noted that {place} has sequence {sequence} of {key}",),
        help="Record what became of a cycle elsewhere, as cycle export does.",
        examples=(example("holdfast cycle sent peer:spec:login write 1 peer-state/login.json", _CYCLE),),
        arguments={
            "how": "write, or how it was in conflict",
            "sequence": "of ours",
            "place": "where the other document is",
            "theirs": "the sequence of the other one, 0 if it has none",
            "digest": "of the document that was merged",
            "why": "what was in the way",
        },
    )
