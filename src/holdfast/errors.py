"""Every error Holdfast raises: one tree, drawn here, raised alike in process and by remote clients.

    HoldfastError
    ├─ Invalid 400         InvalidName InvalidID InvalidValue InvalidPriority InvalidType InvalidTag InvalidTransition
    │                      CycleCompleted CycleFailed InvalidHolder InvalidFilter InvalidStashType WouldCreateCycle
    │                      Reentrant
    ├─ Unauthorized 401
    ├─ Forbidden 403       NotHolder NotClaimOwner NotRecipient NotSender NotCapable
    ├─ NotFound 404        TaskNotFound MessageNotFound ParentNotFound TableNotFound
    ├─ Conflict 409        VersionMismatch CycleConflict Exists Outrun DuplicateName Held Escalated AlreadyClaimed
    │                      InvalidStatus TaskActive HasActiveChildren OpenThreads Fenced AlreadyAttached
    ├─ Compacted 410
    ├─ TooLarge 413
    ├─ Corrupt 500
    ├─ Unsupported 501
    └─ Unavailable 503     Busy Timeout Behind Closed ClockSkew OutcomeUnknown ReadOnly DiskFull IOFailed Unreachable

Each class has a stable `code`, an HTTP `status`, an `exit_code`, a `retryable` flag and a `hint` that says what to
do next. Data that belongs to an error (the current version, the holder) lives on the instance as attributes and in
`details`. No hint proposes a destructive command.
"""

from __future__ import annotations

from typing import Any, ClassVar


class HoldfastError(Exception):
    """Anything Holdfast refuses or fails to do."""

    code: ClassVar[str] = "ERROR"
    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False
    default_hint: ClassVar[str] = ""

    def __init__(self, message: str = "", *, hint: str | None = None, **details: Any) -> None:
        self.message = message or (type(self).__doc__ or self.code).strip().splitlines()[0]
        self.hint = self.default_hint if hint is None else hint
        self.details = details
        super().__init__(self.message)

    def __getattr__(self, name: str) -> Any:
        # Only reached for names that are no ordinary attribute: the error's own data.
        details = self.__dict__.get("details", {})
        if name in details:
            return details[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.hint, self.details)


def _rebuild(cls: type[HoldfastError], message: str, hint: str, details: dict[str, Any]) -> HoldfastError:
    return cls(message, hint=hint, **details)


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


# --- 410 to 501 ------------------------------------------------------------------------------------------------------


class Compacted(HoldfastError):
    """The history asked for has been compacted; carries `compacted`, the revision up to which it is gone."""

    code = "COMPACTED"
    status = 410
    exit_code = 17
    default_hint = "read the present state, then watch from its revision"


class TooLarge(HoldfastError):
    """A value, request or transaction exceeds its limit."""

    code = "TOO_LARGE"
    status = 413


class Corrupt(HoldfastError):
    """The store contradicts itself."""

    code = "CORRUPT"
    status = 500
    exit_code = 18
    default_hint = "stop writing, keep a copy of the folder, and restore the latest backup into a new folder"


class Unsupported(HoldfastError):
    """This kind of workspace cannot do that."""

    code = "UNSUPPORTED"
    status = 501


# --- 503 -------------------------------------------------------------------------------------------------------------


class Unavailable(HoldfastError):
    """Not possible just now; nothing was changed."""

    code = "UNAVAILABLE"
    status = 503
    exit_code = 16
    retryable = True
    default_hint = "try again"


class Busy(Unavailable):
    """The turn to write did not come in time; nothing was changed."""

    code = "BUSY"


class Timeout(Unavailable):
    """The time allowed ran out; nothing was changed."""

    code = "TIMEOUT"
    exit_code = 3


class Behind(Unavailable):
    """This workspace has not reached the revision or schema asked for."""

    code = "BEHIND"


class Closed(Unavailable):
    """The workspace is closed, or was opened before a fork."""

    code = "CLOSED"
    retryable = False
    default_hint = "open the workspace again; after a fork only where the parent did not have it open"


class ClockSkew(Unavailable):
    """This machine's clock is too far from the log's."""

    code = "CLOCK_SKEW"
    default_hint = "put this machine's clock right (NTP); it may differ from the log's by one second"


class OutcomeUnknown(Unavailable):
    """The commit broke midway: it may or may not be there."""

    code = "OUTCOME_UNKNOWN"
    default_hint = "retry with the same idempotency key, or read before deciding"


class ReadOnly(Unavailable):
    """The store cannot be written from here."""

    code = "READ_ONLY"
    retryable = False
    default_hint = "check the folder's permissions and mount"


class DiskFull(Unavailable):
    """The disk is full; nothing was changed."""

    code = "DISK_FULL"
    default_hint = "free some space and try again; reads go on"


class IOFailed(Unavailable):
    """The operating system failed to read or write the store; nothing was acknowledged."""

    code = "IO_FAILED"
    default_hint = "check the disk and try again"


class Unreachable(Unavailable):
    """The log of a replicated workspace, or the server, cannot be reached; nothing was changed."""

    code = "UNREACHABLE"
    default_hint = "retry; reads go on from this node's replica meanwhile"


# this module is all of them


class MethodNotAllowed(Invalid):
    """There is something at this address, but not for this method."""

    code = "METHOD_NOT_ALLOWED"
    status = 405


class NotJSON(Invalid):
    """A body is JSON, and says so."""

    code = "NOT_JSON"
    status = 415
    default_hint = "send Content-Type: application/json"


class Misdirected(Forbidden):
    """The request was meant for another host."""

    code = "MISDIRECTED"
    status = 421


class NoRoute(NotFound):
    """There is nothing at this address."""

    code = "NO_ROUTE"
    default_hint = "GET /openapi.json lists every address"


class TooManyWatchers(Unavailable):
    """As many watch under this token as may."""

    code = "TOO_MANY_WATCHERS"
    status = 429
    default_hint = "end a watch, or start the server with a larger --max-watchers"
