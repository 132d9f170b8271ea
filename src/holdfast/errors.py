"""The errors that Holdfast raises: one tree, the same in process and through a remote client.

    HoldfastError
    ├─ Invalid 400         InvalidName InvalidID InvalidValue InvalidPriority InvalidType InvalidTag InvalidTransition
    │                      CycleCompleted CycleFailed InvalidHolder InvalidFilter InvalidStashType WouldCreateCycle
    │                      Reentrant
    ├─ Unauthorized 401
    ├─ Forbidden 403       NotHolder NotClaimOwner NotRecipient NotSender NotCapable
    ├─ NotFound 404        TaskNotFound MessageNotFound ParentNotFound TableNotFound
    ├─ Conflict 409        VersionMismatch CycleConflict Exists Outrun FileChanged DuplicateName Held Escalated
    │                      AlreadyClaimed InvalidStatus TaskActive HasActiveChildren OpenThreads Fenced AlreadyAttached
    ├─ Compacted 410
    ├─ TooLarge 413
    ├─ Corrupt 500
    ├─ Unsupported 501
    └─ Unavailable 503     Busy Timeout Behind Closed ClockSkew OutcomeUnknown ReadOnly DiskFull IOFailed Unreachable

Each class has a stable `code`, an HTTP `status`, an `exit_code`, a `retryable` flag and a `hint` that says what to
do next. Data of an error (the current version, the holder) is in `details` and readable as attributes. No hint
proposes a destructive command.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

# Phrases of hints that each face puts into its own words (`holdfast.hints`).
NAME_YOURSELF: Final = 'holdfast.open(..., actor="agent-1")'
SEND_TOKEN: Final = 'holdfast.connect(url, token="...")'


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
        # Called only for names that are not ordinary attributes: the error's own data.
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
    """The request is not valid."""

    code = "INVALID"
    status = 400
    exit_code = 1


class InvalidName(Invalid):
    """A name is empty, too long or holds control characters."""

    code = "INVALID_NAME"
    default_hint = "names are 1 to 512 bytes of UTF-8 without control characters"


class InvalidID(Invalid):
    """An id does not have the form of this kind of record."""

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
    """The record's state does not allow this transition."""

    code = "INVALID_TRANSITION"
    exit_code = 11


class CycleCompleted(InvalidTransition):
    """The last cycle is completed; there is nothing to resume."""

    code = "CYCLE_COMPLETED"
    default_hint = "start another cycle"


class CycleFailed(InvalidTransition):
    """The last cycle has failed; carries `phase` and `reason`."""

    code = "CYCLE_FAILED"
    default_hint = "read the reason, then start another cycle"


class InvalidHolder(Invalid):
    """No holder was given, and the actor is only a name derived from user and host."""

    code = "INVALID_HOLDER"
    default_hint = f"name yourself: {NAME_YOURSELF}"


class InvalidFilter(Invalid):
    """A filter, cursor or limit is not valid."""

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
    """The request has no valid token."""

    code = "UNAUTHORIZED"
    status = 401


class Forbidden(HoldfastError):
    """The token or actor may not do this."""

    code = "FORBIDDEN"
    status = 403


class NotHolder(Forbidden):
    """Only the current holder may do this."""

    code = "NOT_HOLDER"
    exit_code = 13


class NotClaimOwner(NotHolder):
    """Only the agent that holds the claim may do this; carries `holder`."""

    code = "NOT_CLAIM_OWNER"


class NotRecipient(Forbidden):
    """The agent is not a recipient of the message."""

    code = "NOT_RECIPIENT"
    exit_code = 13


class NotSender(Forbidden):
    """Only the sender of a message, or a maintainer, may close it."""

    code = "NOT_SENDER"
    exit_code = 13


class NotCapable(Forbidden):
    """The task's route needs capabilities that the agent lacks; carries `needs` and `lacking`."""

    code = "NOT_CAPABLE"
    exit_code = 13
    default_hint = "leave it to an agent that has them, or claim another task: tasks.claim_next(agent, can=[...])"


class NotFound(HoldfastError):
    """The record does not exist."""

    code = "NOT_FOUND"
    status = 404
    exit_code = 10


class TaskNotFound(NotFound):
    """The task does not exist."""

    code = "TASK_NOT_FOUND"


class MessageNotFound(NotFound):
    """The message does not exist."""

    code = "MESSAGE_NOT_FOUND"


class ParentNotFound(NotFound):
    """The parent task does not exist."""

    code = "PARENT_NOT_FOUND"


class TableNotFound(NotFound):
    """The table does not exist."""

    code = "TABLE_NOT_FOUND"


# --- 409 -------------------------------------------------------------------------------------------------------------


class Conflict(HoldfastError):
    """The request conflicts with the current state of a record."""

    code = "CONFLICT"
    status = 409


class VersionMismatch(Conflict):
    """The record is not at the expected version; carries `expected`, `version` and `value`."""

    code = "VERSION_MISMATCH"
    exit_code = 9
    default_hint = "read it again, decide again, and retry with its current version"


class CycleConflict(VersionMismatch):
    """The same phase of the cycle was changed meanwhile; also carries `mine` and `theirs`."""

    code = "CYCLE_CONFLICT"
    default_hint = "compare `mine` and `theirs`, then retry with the sequence that the error carries"


class Exists(Conflict):
    """The record already exists; it was not changed."""

    code = "EXISTS"


class Outrun(Conflict):
    """Another node wrote while a block was open; nothing of the block was written."""

    code = "OUTRUN"
    retryable = True
    default_hint = "run the block again, or pass a function to transact, which retries by itself"


class FileChanged(Outrun):
    """A turn file changed while it was being edited; nothing of the edit was written. Carries `path`."""


class DuplicateName(Conflict):
    """The name is taken in this scope."""

    code = "DUPLICATE_NAME"


class Held(Conflict):
    """Another holder has the lock; carries `holder` and `until`."""

    code = "HELD"
    exit_code = 12
    retryable = True
    default_hint = "wait for it with wait=seconds, or watch the lock and retry"


class Escalated(Held):
    """The wait for the lock ended and the maintainer was asked by `notice`; carries `lock_id` and `holder` too."""

    code = "ESCALATED"
    default_hint = "retry only after the maintainer has answered or the lock is gone; meanwhile work on something else"


class AlreadyClaimed(Conflict):
    """Another agent has claimed the task; carries `holder` and `since`."""

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
    """The task cannot be closed while messages about it are open; carries their ids as `messages`."""

    code = "OPEN_THREADS"
    default_hint = "close them first: mail.close(id)"


class Fenced(Conflict):
    """The token is not that of the current holder; carries `current`, the valid token or None."""

    code = "FENCED"
    exit_code = 15
    default_hint = "the lock was lost: stop the work done under it, acquire it again and read the state anew"


class AlreadyAttached(Conflict):
    """The cupboard is already attached."""

    code = "ALREADY_ATTACHED"


# --- 410 to 501 ------------------------------------------------------------------------------------------------------


class Compacted(HoldfastError):
    """The requested history has been compacted; carries `compacted`, the last revision that is gone."""

    code = "COMPACTED"
    status = 410
    exit_code = 17
    default_hint = "read the current state, then watch from its revision"


class TooLarge(HoldfastError):
    """A value, request or transaction exceeds its limit."""

    code = "TOO_LARGE"
    status = 413


class Corrupt(HoldfastError):
    """The store is inconsistent or damaged."""

    code = "CORRUPT"
    status = 500
    exit_code = 18
    default_hint = "stop writing, keep a copy of the folder, and restore the latest backup into a new folder"


class Unsupported(HoldfastError):
    """This kind of workspace does not support the operation."""

    code = "UNSUPPORTED"
    status = 501


# --- 503 -------------------------------------------------------------------------------------------------------------


class Unavailable(HoldfastError):
    """Temporarily unavailable; nothing was changed."""

    code = "UNAVAILABLE"
    status = 503
    exit_code = 16
    retryable = True
    default_hint = "retry"


class Busy(Unavailable):
    """The write lock was not free in time; nothing was changed."""

    code = "BUSY"


class Timeout(Unavailable):
    """The time limit was exceeded; nothing was changed."""

    code = "TIMEOUT"
    exit_code = 3


class Behind(Unavailable):
    """This workspace has not reached the requested revision or schema."""

    code = "BEHIND"


class Closed(Unavailable):
    """The workspace is closed, or was opened before a fork."""

    code = "CLOSED"
    retryable = False
    default_hint = "open the workspace again; a forked child cannot use what its parent has open"


class ClockSkew(Unavailable):
    """This machine's clock differs too much from the log's."""

    code = "CLOCK_SKEW"
    default_hint = "synchronize this machine's clock (NTP); it may differ from the log's by one second at most"


class OutcomeUnknown(Unavailable):
    """The commit was interrupted and may or may not have been stored."""

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
    default_hint = "free some space and retry; reads still work"


class IOFailed(Unavailable):
    """The operating system failed to read or write the store; nothing was acknowledged."""

    code = "IO_FAILED"
    default_hint = "check the disk and retry"


class Unreachable(Unavailable):
    """The server, or the log of a replicated workspace, cannot be reached; nothing was changed."""

    code = "UNREACHABLE"
    default_hint = "retry; this node's replica still answers reads"


# --- raised by the HTTP server only ----------------------------------------------------------------------------------


class MethodNotAllowed(Invalid):
    """The address exists, but not for this method."""

    code = "METHOD_NOT_ALLOWED"
    status = 405


class NotJSON(Invalid):
    """The body is not declared as JSON."""

    code = "NOT_JSON"
    status = 415
    default_hint = "send Content-Type: application/json"


class Misdirected(Forbidden):
    """The request names a host that this server does not serve."""

    code = "MISDIRECTED"
    status = 421


class NoRoute(NotFound):
    """The address does not exist."""

    code = "NO_ROUTE"
    default_hint = "GET /openapi.json lists every address"


class TooManyWatchers(Unavailable):
    """The token has reached its limit of watchers."""

    code = "TOO_MANY_WATCHERS"
    status = 429
    default_hint = "end a watch, or start the server with a larger --max-watchers"
