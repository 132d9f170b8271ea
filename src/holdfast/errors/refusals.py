"""What is refused: 4xx. The caller asked for something that cannot be, or not now; nothing was changed."""

from __future__ import annotations

from holdfast.errors.base import HoldfastError

# --- 400 -------------------------------------------------------------------------------------------------------------


class Invalid(HoldfastError):
    """The request makes no sense as it stands."""

    code = "INVALID"
    status = 400
    exit_code = 1


class InvalidName(Invalid):
    """A name is empty, too long or holds control characters."""

    code = "INVALID_NAME"
    default_hint = "names are 1 to 512 bytes of UTF-8 without control characters"


class InvalidID(Invalid):
    """An id is not of the form this kind of record has."""

    code = "INVALID_ID"


class InvalidValue(Invalid):
    """A value is of a type, range or depth that cannot be stored."""

    code = "INVALID_VALUE"
    default_hint = (
        "values are null, bool, int64, finite float, str, bytes, list and dict with str keys, at most 128 deep"
    )


class InvalidPriority(Invalid):
    """A priority is not 0 to 4."""

    code = "INVALID_PRIORITY"


class InvalidType(Invalid):
    """A record type is unknown."""

    code = "INVALID_TYPE"


class InvalidTag(Invalid):
    """A tag is empty or malformed."""

    code = "INVALID_TAG"


class InvalidTransition(Invalid):
    """The record's state does not allow this step."""

    code = "INVALID_TRANSITION"
    exit_code = 11


class CycleCompleted(InvalidTransition):
    """The last cycle is completed: there is nothing to go on with."""

    code = "CYCLE_COMPLETED"
    default_hint = "start another cycle"


class CycleFailed(InvalidTransition):
    """The last cycle has failed; carries `phase` and `reason`."""

    code = "CYCLE_FAILED"
    default_hint = "look at the reason, then start another cycle"


class InvalidHolder(Invalid):
    """A holder was not named, and the actor was only derived from user and host."""

    code = "INVALID_HOLDER"
    default_hint = "name yourself: actor=... in Python, --actor or HOLDFAST_ACTOR, X-Agent-ID over HTTP"


class InvalidFilter(Invalid):
    """A filter, cursor or limit cannot be used."""

    code = "INVALID_FILTER"


class InvalidStashType(Invalid):
    """A stash type is unknown."""

    code = "INVALID_STASH_TYPE"


class WouldCreateCycle(Invalid):
    """The link would close a cycle."""

    code = "WOULD_CREATE_CYCLE"
    exit_code = 14


class Reentrant(Invalid):
    """The workspace was called from inside one of its own transactions."""

    code = "REENTRANT"
    default_hint = "inside a transaction use its tx: tx.cells.set(...), not ws.cells.set(...)"


# --- 401, 403, 404 ---------------------------------------------------------------------------------------------------


class Unauthorized(HoldfastError):
    """No valid token was given."""

    code = "UNAUTHORIZED"
    status = 401


class Forbidden(HoldfastError):
    """The token or actor may not do this."""

    code = "FORBIDDEN"
    status = 403


class NotHolder(Forbidden):
    """Only the present holder may do this."""

    code = "NOT_HOLDER"
    exit_code = 13


class NotClaimOwner(NotHolder):
    """Only the agent that holds the claim may do this; carries `holder`."""

    code = "NOT_CLAIM_OWNER"


class NotRecipient(Forbidden):
    """The message was not sent to this agent."""

    code = "NOT_RECIPIENT"
    exit_code = 13


class NotSender(Forbidden):
    """Only who sent a message, or a maintainer, can close it."""

    code = "NOT_SENDER"
    exit_code = 13


class NotCapable(Forbidden):
    """The task's route needs abilities that the agent does not have; carries `needs` and `lacking`."""

    code = "NOT_CAPABLE"
    exit_code = 13
    default_hint = "leave it to an agent that can, or take another: tasks.claim_next(agent, can=[...])"


class NotFound(HoldfastError):
    """There is no such record."""

    code = "NOT_FOUND"
    status = 404
    exit_code = 10


class TaskNotFound(NotFound):
    """There is no such task."""

    code = "TASK_NOT_FOUND"


class MessageNotFound(NotFound):
    """There is no such message."""

    code = "MESSAGE_NOT_FOUND"


class ParentNotFound(NotFound):
    """The parent task does not exist."""

    code = "PARENT_NOT_FOUND"


class TableNotFound(NotFound):
    """There is no such table."""

    code = "TABLE_NOT_FOUND"


# --- 409 -------------------------------------------------------------------------------------------------------------


class Conflict(HoldfastError):
    """Somebody else was first, or the record is in the way."""

    code = "CONFLICT"
    status = 409


class VersionMismatch(Conflict):
    """The record is not at the expected version; carries `expected`, `version` and `value`."""

    code = "VERSION_MISMATCH"
    exit_code = 9
    default_hint = "the error carries the current version and value: decide again and retry with them"


class CycleConflict(VersionMismatch):
    """Others changed the same phase of the cycle meanwhile; carries `mine` and `theirs` besides."""

    code = "CYCLE_CONFLICT"
    default_hint = "compare `mine` and `theirs`, then decide again with the sequence that the error carries"


class Exists(Conflict):
    """The record exists already; it was left untouched."""

    code = "EXISTS"


class Outrun(Conflict):
    """Another node, or another hand on a turn file, wrote while a block was open; nothing of the block was written."""

    code = "OUTRUN"
    retryable = True
    default_hint = "run the block again, or use transact with a function, which is run again by itself"


class DuplicateName(Conflict):
    """The name is taken in this scope."""

    code = "DUPLICATE_NAME"


class Held(Conflict):
    """Somebody else holds the lock; carries `holder` and `until`."""

    code = "HELD"
    exit_code = 12
    retryable = True
    default_hint = "wait for it with wait=seconds, or watch the lock and try again"


class Escalated(Held):
    """The lock did not move while we waited, so the maintainer was asked; carries `lock_id`, `holder` and `told`."""

    code = "ESCALATED"
    default_hint = "do not try again before the maintainer has answered, or the lock has gone; work on something else"


class AlreadyClaimed(Conflict):
    """Somebody else has claimed the task; carries `holder` and `since`."""

    code = "ALREADY_CLAIMED"
    exit_code = 12


class InvalidStatus(Conflict):
    """The task's status does not allow this."""

    code = "INVALID_STATUS"
    exit_code = 11


class TaskActive(Conflict):
    """The task is being worked on."""

    code = "TASK_ACTIVE"


class HasActiveChildren(Conflict):
    """A descendant of the task is being worked on."""

    code = "HAS_ACTIVE_CHILDREN"


class OpenThreads(Conflict):
    """The task cannot be closed while messages about it are open; carries `messages`."""

    code = "OPEN_THREADS"
    default_hint = "close them first: mail.close(id)"


class Fenced(Conflict):
    """The token is not the one of the present holder; carries `current`, the live token or None."""

    code = "FENCED"
    exit_code = 15
    default_hint = "the lock was lost: stop the work done under it, acquire it again and start from fresh state"


class AlreadyAttached(Conflict):
    """The cupboard is attached already."""

    code = "ALREADY_ATTACHED"
