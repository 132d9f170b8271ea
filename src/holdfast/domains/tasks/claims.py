"""Claims: exactly one agent works on a task, for as long as it renews its claim.

A claim is a lease of the kernel whose id is the key of the task's record, with a token that always grows. Every write
of its holder renews it; when it expires the task is open again, and later writes of the former holder are fenced.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from holdfast import errors
from holdfast.domains.routing.config import Settings, settings_of
from holdfast.domains.routing.rules import Decision, Subject, decide
from holdfast.domains.tasks import transitions
from holdfast.domains.tasks.creation import check_note
from holdfast.domains.tasks.renames import followed, held_by, is_now, others, require_held, warn
from holdfast.domains.tasks.rows import (
    NO_CLAIM,
    TASK,
    Stored,
    by_record,
    by_seq,
    change,
    end_deferral,
    require,
    start_claim,
    to_task,
)
from holdfast.domains.tasks.transitions import (
    ask_holder,
    check_children,
    check_closable,
    check_step,
    illegal,
    opened,
)
from holdfast.kernel import leases
from holdfast.kernel.events import history, to_event
from holdfast.kernel.leases import holder_of
from holdfast.kernel.tx import Snapshot, Tx
from holdfast.kernel.validate import check_flag, check_seconds, check_ttl
from holdfast.kernel.values import encode
from holdfast.operation import Do, Steps
from holdfast.route import LOADING
from holdfast.types import DerivedActor, as_microseconds, as_time
from holdfast.types.tasks import Task, TaskStatus


def route(snapshot: Snapshot, task: Stored, settings: Settings) -> Decision:
    """Return the task's route by the current rules. It is remembered: tasks that are alike come again and again."""
    rules = settings.rules
    if rules.reads_bodies:
        return decide(rules, subject_of(snapshot, task))
    assigned = _assigned(snapshot, task.parent) if task.parent is not None and rules.inherits else None
    likeness = task.tags, task.priority, task.type, task.hint, task.parent is not None, assigned
    found = rules.decided.get(likeness)
    if found is None:
        found = decide(rules, subject_of(snapshot, task))
        rules.remember(likeness, found)
    return found


def subject_of(snapshot: Snapshot, task: Stored) -> Subject:
    """Return the properties that matchers read."""
    assigned = None if task.parent is None else _assigned(snapshot, task.parent)
    return Subject(task.tag_list, task.priority, task.type, task.body, task.parent is not None, task.hint, assigned)


def _assigned(snapshot: Snapshot, parent: int) -> str | None:
    """The grimoire of a parent."""
    row = snapshot.one("SELECT grimoire FROM tasks WHERE seq = ?", (parent,))
    return None if row is None else row[0]


def check_abilities(can: Any) -> frozenset[str] | None:
    """Return the abilities that a call gives, None if it gives none. Raises Invalid."""
    if can is None:
        return None
    with LOADING:
        from holdfast.domains import agents  # here and below: few calls ask for them

    return agents.check_abilities(can)


def registered_abilities(snapshot: Snapshot, agent: str) -> frozenset[str] | None:
    """Return the abilities that an agent registered, None if unspecified."""
    with LOADING:
        from holdfast.domains import agents

    return agents.abilities(snapshot, agent)


_PAGE = 100

# --- taking ----------------------------------------------------------------------------------------------------------


def claim(
    tx: Tx,
    id: str,
    agent: str | None = None,
    ttl: float | None = None,
    can: Sequence[str] | None = None,
    force: bool = False,
) -> Task:
    """Claim an open task; exactly one caller wins. Raises AlreadyClaimed, or InvalidStatus if it is not open.

    Raises Assigned if it is another agent's, unless forced, which is logged. A deferral ends. A task that waits for
    others can be claimed too, with a warning that names them.

    The claim expires after `ttl` seconds (default: `claim_timeout`) without a heartbeat or another write of its holder.
    `can` lists the agent's abilities, by default those it registered. Raises NotCapable if the route needs more.
    """
    agent = holder_of(tx, agent, "agent")
    micros = None if ttl is None else check_ttl(ttl)
    abilities = check_abilities(can)
    task = require(tx, id)
    if task.holder is not None:
        raise already_claimed(task, agent)
    if task.status != "open":
        message = f"task {id} is {task.status}, not open"
        raise errors.InvalidStatus(message, hint=opened(task), id=id, status=task.status)
    check_flag(force=force)
    if task.assignee not in (None, agent) and not force:
        message = f"task {id} is assigned to {task.assignee}"
        hint = f"claim another one: tasks.claim_next(); or ask {task.assignee}, or whoever assigned it"
        raise errors.Assigned(message, hint=hint, id=id, assigned_to=task.assignee)
    if task.deferred is not None:
        columns, more = end_deferral(tx, task, {})
        task = change(tx, task, "undefer", columns, more=more)
    settings = settings_of(tx)
    if abilities is None and settings.rules.has_needs:
        abilities = registered_abilities(tx, agent)
    claimed = take(tx, task, agent, micros, abilities, settings)
    if (mine := held_by(tx, id, agent)) is not None:
        claimed = warn(claimed, (f"{mine.id}, which {agent} holds too, had the id {id} before",))
    if not task.waits and not task.busy:
        return claimed
    with LOADING:
        from holdfast.domains.tasks.tree import awaited  # most claims are of tasks that wait for nothing
    return warn(claimed, [f"{reason.text}; the claim counts all the same" for reason in awaited(tx, task)])


def take(tx: Tx, task: Stored, agent: str, ttl: int | None, can: frozenset[str] | None, settings: Settings) -> Task:
    """Give an open task to an agent, with its route."""
    decision = route(tx, task, settings)
    if can is not None and not can.issuperset(decision.needs):
        lacking = sorted(set(decision.needs) - can)
        needs = f"task {task.id} is routed to {decision.grimoire}, which needs {', '.join(decision.needs)}"
        message = f"{needs}; {agent} lacks {', '.join(lacking)}"
        raise errors.NotCapable(message, id=task.id, needs=list(decision.needs), lacking=lacking)
    length = settings.config.claim_timeout if ttl is None else ttl
    return start_claim(tx, task, agent, length, decision.grimoire, decision.require_review)


def already_claimed(task: Stored, agent: str = "") -> errors.AlreadyClaimed:
    """The error with the holder and the time of the claim."""
    since = as_time(task.claimed or 0)
    own = f'it is yours: continue with it; tasks.heartbeat("{task.id}") renews the claim'
    hint = own if task.holder == agent else "claim another one: tasks.claim_next()"
    message = f"task {task.id} has been claimed by {task.holder} since {since.isoformat()}"
    claim = {"holder": task.holder, "since": since, "claimed_by": task.holder, "claimed_at": since}
    return errors.AlreadyClaimed(message, hint=hint, id=task.id, **claim)


def reclaim(tx: Tx, id: str, agent: str | None = None) -> Task:
    """Return the task if `agent` still holds it; changes nothing.

    Raises TaskNotFound if it is not in progress, AlreadyClaimed if another agent holds it.
    """
    agent = holder_of(tx, agent, "agent")
    task = require(tx, id)
    if task.status != "in_progress" or task.holder is None:
        hint = f'tasks.claim("{id}") claims it' if task.status == "open" else opened(task)
        raise errors.TaskNotFound(f"{agent} does not hold task {id}: it is {task.status}", hint=hint, id=id)
    if task.holder != agent:
        raise already_claimed(task)
    return to_task(task)


# --- keeping ---------------------------------------------------------------------------------------------------------


def authorise(
    tx: Tx, task: Stored, agent: str | None, token: int | None, op: str, target: TaskStatus | None = None
) -> None:
    """Check that the acting agent holds the claim; a token is checked in addition, and proves nobody's identity.

    Raises Fenced for a token of another claim, or if the agent's claim expired or was taken; InvalidTransition if
    nobody holds the task; NotClaimOwner if another agent does.
    """
    if token is not None:
        check_token(tx, task, token)
    if agent is None and isinstance(tx.actor, DerivedActor) and task.holder is None and target is not None:
        raise illegal(task, op, target, tx.actor)
    agent = holder_of(tx, agent, "agent")
    if task.holder == agent:
        return
    mine = held_by(tx, task.id, agent)
    if mine is None and _lost(tx, task, agent):
        raise _fenced(tx, task, f"the claim of {agent} on task {task.id} was lost")
    if mine is None and task.holder is None and target is not None:
        raise illegal(task, op, target, agent)
    message, hint = f"task {task.id} is {task.status}: nobody holds it", opened(task)
    if task.holder:
        message = f"task {task.id} is held by {task.holder}, not by {agent}"
        hint = f"claim another one: tasks.claim_next(); or ask {task.holder} by mail"
        if op == "release":
            hint = ask_holder(task)
        elif op == "edit":
            hint = "omit the token: everybody may change fields, tags and notes; only the holder proves its claim by it"
    if mine is not None:
        hint = f"{agent} holds {mine.id}: {is_now(task.id, mine.id)}"
    raise errors.NotClaimOwner(message, hint=hint, id=task.id, holder=task.holder, claimed_by=task.holder)


def check_token(tx: Tx, task: Stored, token: int) -> None:
    """Raise Fenced unless the token is that of the current claim."""
    if type(token) is not int:
        raise errors.Invalid(f"token must be the number of the claim, not {token!r}")
    if task.token != token:
        wrong = "that of the current claim on" if task.holder else "valid: nobody holds"
        raise _fenced(tx, task, f"the token {token} is not {wrong} task {task.id}")


def _fenced(tx: Tx, task: Stored, message: str) -> errors.Fenced:
    if task.holder is not None:
        hint = f"stop: {task.holder} holds the task now; if that is you, send the token of your latest claim"
    elif task.status == "open":
        hint = "stop: the task is open. Claim it, and start from its current state"
    else:
        hint = f'stop: the task is {task.status}; tasks.history("{task.id}") shows the reason'
    if younger := others(tx, task.id):
        hint = f"{hint}; had this id before, and may be meant: {', '.join(younger)}"
    return errors.Fenced(message, hint=hint, id=task.id, current=task.token, holder=task.holder)


def _lost(tx: Tx, task: Stored, agent: str) -> bool:
    """Whether the last claim of `agent` on the task expired or was taken by force."""
    before, passed = task.version + 1, False  # compaction keeps the end of the last claim, not of those before
    try:
        for row in history(tx, TASK, "", task.id, before, _PAGE):
            event = to_event(row)
            was, _ = event.data.get("claimed_by", (None, None))
            if passed and event.version != before - 1:
                return False  # compacted between
            if was == agent:
                return event.op == "expire" or "forced" in event.data
            before, passed = event.version, passed or was is not None
    except errors.Compacted:
        return False  # too long ago to know
    return False


def renew(tx: Tx, task: Stored) -> None:
    """Renew the claim, as any write by its holder does; a parked claim stays parked."""
    if task.holder is not None and task.holder == tx.actor and not isinstance(tx.actor, DerivedActor):
        leases.renew(tx, task.record, task.ttl, shorten=False)


def heartbeat(tx: Tx, id: str, agent: str | None = None, token: int | None = None, ttl: float | None = None) -> Task:
    """Renew one's claim, by default for as long as it was granted; ends parking. Emits nothing. Raises Fenced."""
    micros = None if ttl is None else check_ttl(ttl)
    task = require_held(tx, id, token)
    authorise(tx, task, agent, token, "heartbeat")
    length = micros or task.ttl or settings_of(tx).config.claim_timeout
    assert task.holder is not None
    if not leases.renew(tx, task.record, length):
        leases.start_as(tx, task.record, TASK, task.holder, length)
    if task.parked or task.ttl != length:
        tx.run("UPDATE tasks SET parked = 0, ttl = ? WHERE seq = ?", (length, task.seq))
    return followed(to_task(by_seq(tx, task.seq)), id)


def park(tx: Tx, id: str, until: datetime | None = None, agent: str | None = None, token: int | None = None) -> Task:
    """Keep one's claim without heartbeats, for ever or until a time, while the agent waits for a person.

    A heartbeat ends the parking. Raises Fenced, or NotClaimOwner.
    """
    task = require_held(tx, id, token)
    authorise(tx, task, agent, token, "park")
    assert task.holder is not None
    left = None if until is None else time_left(tx, until)
    leases.drop(tx, task.record, TASK)
    if left is not None:
        leases.start_as(tx, task.record, TASK, task.holder, left)
    more = {"parked_until": (None, None if until is None else as_time(as_microseconds(until)).isoformat())}
    change(tx, task, "park", {"parked": 1}, more=more)
    return followed(to_task(by_seq(tx, task.seq)), id)


def time_left(tx: Tx, until: datetime) -> int:
    """Return the microseconds until a time. Raises Invalid if it has passed."""
    if not isinstance(until, datetime):
        raise errors.Invalid(f"until must be a datetime, or None for no end, not {until!r}")
    left = as_microseconds(until) - tx.now
    if left <= 0:
        raise errors.Invalid(f"{until.isoformat()} has passed", hint="choose a time in the future")
    return left


# --- giving back -----------------------------------------------------------------------------------------------------


def _end(tx: Tx, task: Stored, op: str, target: TaskStatus, more: dict[str, Any] | None, note: str | None) -> Task:
    """End the claim: the task takes its step and has no holder."""
    leases.drop(tx, task.record, TASK)
    return to_task(change(tx, task, op, {"status": target, **NO_CLAIM}, more=more, note=note))


def release(
    tx: Tx, id: str, agent: str | None = None, token: int | None = None, reason: str | None = None, force: bool = False
) -> Task:
    """Release a task. `force` takes it from its holder, which is logged. Raises Fenced, or NotClaimOwner."""
    check_flag(force=force)
    task = require_held(tx, id, token)
    check_note(reason, "reason")
    by_force = force and token is None
    if by_force:
        check_step(task, "release", "open", tx.actor)
    else:
        authorise(tx, task, agent, token, "release", "open")
    return followed(_end(tx, task, "release", "open", {"forced": (False, True)} if by_force else None, reason), id)


def complete(
    tx: Tx,
    id: str,
    agent: str | None = None,
    result: Any = None,
    summary: str | None = None,
    review: bool | None = None,
    token: int | None = None,
    force: bool = False,
) -> Task:
    """Complete one's task: closed, or pending merge if it needs a review (None: as its route says). Raises Fenced.

    Raises OpenChildren if it has unfinished children, unless forced.
    """
    if review is not None and type(review) is not bool:
        raise errors.Invalid(f"review must be True, False or None (as the route says), not {review!r}")
    if result is not None:
        encode(result, tx.max_value_bytes)  # raises for a result that cannot be stored
    more = None if result is None else {"result": (None, result)}
    task = require_held(tx, id, token)
    check_note(summary, "summary")
    target: TaskStatus = "pending_merge" if (task.review if review is None else review) else "closed"
    authorise(tx, task, agent, token, "complete", target)
    over = check_children(tx, task, "complete", force)
    if target == "closed":
        check_closable(tx, task.id)
    return followed(_end(tx, task, "complete", target, {**(more or {}), **over}, summary), id)


def close(tx: Tx, id: str, reason: str | None = None, force: bool = False, token: int | None = None) -> Task:
    """Close an unfinished task that nobody else holds, whatever its status, by the steps that lead there.

    An open one is claimed in passing and completed; where its route wants a review, it then waits for that. One that
    waits for it is approved. Nothing stays held. Raises NotClaimOwner if another agent holds it, and OpenChildren, both
    unless forced; Fenced for the token of another claim than the one that holds it.
    """
    check_flag(force=force)
    check_note(reason, "reason")
    task = require_held(tx, id, token)
    if token is not None and task.holder is not None:
        check_token(tx, task, token)
    if task.status == "closed":
        raise illegal(task, "close", "closed", tx.actor)
    actor = str(tx.actor)
    more = {"forced": (False, True)} if task.holder not in (None, actor) else {}
    if more and not force:
        message = f"task {task.id} is held by {task.holder}"
        raise errors.NotClaimOwner(
            message, hint=ask_holder(task), id=task.id, holder=task.holder, claimed_by=task.holder
        )
    more |= check_children(tx, task, "close", force)
    if task.status == "open":
        decision = route(tx, task, settings_of(tx))
        passing = {"status": "in_progress", "holder": actor, "claimed": tx.now, "token": tx.new_token()}
        task = change(
            tx, task, "claim", {**passing, "grimoire": decision.grimoire, "review": int(decision.require_review)}
        )
    target: TaskStatus = "pending_merge" if task.status == "in_progress" and task.review else "closed"
    if target == "closed":
        check_closable(tx, task.id)
    op = {"in_progress": "complete", "pending_merge": "approve", "blocked": "close"}[task.status]
    return followed(_end(tx, task, op, target, more, reason), id)


def block(tx: Tx, id: str, agent: str | None = None, reason: str | None = None, token: int | None = None) -> Task:
    """Stop work on a task until it is unblocked; the claim is released. Raises Fenced, or NotClaimOwner."""
    task = require_held(tx, id, token)
    check_note(reason, "reason")
    authorise(tx, task, agent, token, "block", "blocked")
    return followed(_end(tx, task, "block", "blocked", None, reason), id)


def end_lease(tx: Tx, lease: int, op: str) -> None:
    """The claim has expired: open the task again."""
    task = by_record(tx, lease)
    change(tx, task, op, {"status": "open", **NO_CLAIM})
    if op == "expire":
        tx.notify("claims expired, and their tasks are open again", f"{task.id} of {task.holder}")


# Claims whose last renewal, which is a ttl before the deadline, is too old.
_AGED = (
    "SELECT l.id FROM tasks t JOIN leases l ON l.id = t.record WHERE t.holder IS NOT NULL AND NOT t.parked"
    " AND l.deadline - l.ttl <= ? AND l.deadline > ? ORDER BY l.id"
)
_SWEPT = "SELECT count(*) FROM events WHERE +kind = ? AND op = 'expire' AND revision > ?"


def release_stale_claims(timeout: float | None = None) -> Steps[int]:
    """Reopen the tasks whose claims have expired or were not renewed for `timeout` seconds; returns how many.

    Claims expire by themselves; call this only to avoid waiting. The actor is `system`.
    """
    age = check_seconds(timeout, "timeout", allow_none=True)
    count: int = yield Do(lambda tx: _mark(tx, age), keyed=True)
    yield Do(_finish)
    return count


def _mark(tx: Tx, age: int | None) -> int:
    """Make claims that are too old expire now; those already due were swept at the start of the group."""
    row = tx.one(_SWEPT, (TASK, tx.began))
    swept = 0 if row is None else row[0]
    aged = [] if age is None else tx.all(_AGED, (tx.now - age, tx.now))
    for (id,) in aged:
        tx.run("UPDATE leases SET deadline = ? WHERE id = ?", (tx.now, id))
    return int(swept) + len(aged)


def _finish(tx: Tx) -> None:
    """End what is due. The sweep has done that already, except inside a transaction, where there is none."""
    for (id,) in tx.all("SELECT id FROM leases WHERE kind = ? AND deadline <= ? ORDER BY deadline, id", (TASK, tx.now)):
        leases.finish(tx, id, TASK, "expire")


def set_status(
    tx: Tx, id: str, status: TaskStatus, agent: str | None = None, reason: str | None = None, token: int | None = None
) -> Task:
    """Move a task to a status by the transition that leads there, under its rules. Raises InvalidTransition.

    One that has the status already stays as it is; with a reason, which would be lost, InvalidTransition too. Fenced
    for a token of another claim, also where nobody holds the task.
    """
    task = require_held(tx, id, token)
    if token is not None and (task.holder is None or status == "in_progress"):
        check_token(tx, task, token)
    if status not in transitions.STATUSES:
        hint = f"statuses: {', '.join(transitions.STATUSES)}"
        raise transitions.refused(task, status, f"{status!r} is not a status", hint)
    match task.status, status:
        case "open", "in_progress":
            return claim(tx, id, agent)
        case "in_progress", "in_progress":
            return reclaim(tx, id, agent)
        case "in_progress", "open":
            return release(tx, id, agent, token, reason)
        case "in_progress", "blocked":
            return block(tx, id, agent, reason, token)
        case "in_progress", "pending_merge" | "closed":
            return complete(tx, id, agent, None, reason, status == "pending_merge", token)
        case "pending_merge", "closed":
            return transitions.approve(tx, id, reason)
        case "pending_merge", "blocked":
            return transitions.reject(tx, id, reason)
        case "blocked", "open":
            return transitions.unblock(tx, id, reason)
        case "blocked", "closed":
            return close(tx, id, reason)
    if task.status == status:
        who = str(tx.actor if agent is None else agent)
        if _lost(tx, task, who):
            raise _fenced(tx, task, f"the claim of {who} on task {task.id} was lost")
        if reason is None:
            return to_task(task)
    raise transitions.illegal(task, "set_status", status, tx.actor if agent is None else agent)
