"""The errors that Holdfast raises: one tree, the same in process and through a remote client.

    HoldfastError
    ├─ Invalid 400         InvalidName InvalidID InvalidValue InvalidPriority InvalidType InvalidTag InvalidTransition
    │                      CycleCompleted CycleFailed InvalidHolder InvalidFilter InvalidStashType WouldCreateCycle
    │                      Reentrant
    ├─ Unauthorized 401
    ├─ Forbidden 403       NotHolder NotClaimOwner NotRecipient NotSender NotCapable
    ├─ NotFound 404        TaskNotFound MessageNotFound ParentNotFound TableNotFound
    ├─ Conflict 409        VersionMismatch CycleConflict Exists Outrun FileChanged DuplicateName Held Escalated
    │                      AlreadyClaimed Assigned InvalidStatus TaskActive HasActiveChildren OpenChildren OpenThreads
    │                      Fenced AlreadyAttached
    ├─ Compacted 410       MessagesLost
    ├─ TooLarge 413
    ├─ Corrupt 500
    ├─ Unsupported 501
    └─ Unavailable 503     Busy Timeout Behind Closed ClockSkew OutcomeUnknown ReadOnly DiskFull IOFailed Unreachable
                           LogRefused

Each class has a stable `code`, an HTTP `status`, an `exit_code`, a `retryable` flag and a `hint` that says what to
do next. Data of an error (the current version, the holder) is in `details` and readable as attributes. No hint
proposes a destructive command. A warning is no error: `warn` logs it, unless a face shows it to whoever called.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, Final

if TYPE_CHECKING:  # making a TypedDict takes longer than all the classes below
    from collections.abc import Callable
    from typing import TypedDict, Unpack

    class Facts(TypedDict, total=False):
        """What the line of a class says of its errors; the rest is inherited."""

        code: str
        status: int
        exit_code: int
        retryable: bool


HEARS: ContextVar[Callable[[str, str], None] | None] = ContextVar("holdfast-hears", default=None)


def warn(message: str, hint: str = "") -> None:
    """Say what somebody should know: to the face that hears warnings of this call, otherwise to the log."""
    heard = HEARS.get()
    if heard is not None:
        return heard(message, hint)
    log(message, hint)


def log(message: str, hint: str = "") -> None:
    """Log a warning."""
    from logging import getLogger  # hardly ever needed

    getLogger("holdfast").warning("%s", f"{message}; {hint}" if hint else message)


# Phrases of hints that each face puts into its own words (`holdfast.hints`).
NAME_YOURSELF: Final = 'holdfast.open(..., actor="agent-1")'
NAME_YOURSELF_REMOTELY: Final = 'holdfast.connect(..., actor="agent-1")'
RESTORE_BACKUP: Final = "restore the latest backup into a new folder"  # what a replica of a log need not do
LEAVE_OUT_ACTOR: Final = "holdfast.connect(...) without actor="
SEND_TOKEN: Final = 'holdfast.connect(url, token="...")'


class HoldfastError(Exception):
    """Anything Holdfast refuses or fails to do."""

    code: ClassVar[str] = "ERROR"
    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False
    default_hint: ClassVar[str] = ""

    def __init_subclass__(cls, **facts: Unpack[Facts]) -> None:
        for name, fact in facts.items():
            setattr(cls, name, fact)

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


class Invalid(HoldfastError, code="INVALID", status=400):
    """The request is not valid."""


class InvalidName(Invalid, code="INVALID_NAME"):
    """A name is empty, too long or holds control characters."""

    default_hint = "names are 1 to 512 bytes of UTF-8 without control characters"


class InvalidID(Invalid, code="INVALID_ID"):
    """An id does not have the form of this kind of record."""


class InvalidValue(Invalid, code="INVALID_VALUE"):
    """A value is of a type, range or depth that cannot be stored."""

    default_hint = (
        "values are null, bool, int64, finite float, str, bytes, list and dict with str keys, at most 128 deep"
    )


class InvalidPriority(Invalid, code="INVALID_PRIORITY"):
    """A priority is not 0 to 4."""


class InvalidType(Invalid, code="INVALID_TYPE"):
    """A record type is unknown."""


class InvalidTag(Invalid, code="INVALID_TAG"):
    """A tag is empty or malformed."""


class InvalidTransition(Invalid, code="INVALID_TRANSITION", exit_code=11):
    """The record's state does not allow this transition."""


class CycleCompleted(InvalidTransition, code="CYCLE_COMPLETED"):
    """The last cycle is completed; there is nothing to resume."""

    default_hint = "start another cycle"


class CycleFailed(InvalidTransition, code="CYCLE_FAILED"):
    """The last cycle has failed; carries `phase` and `reason`."""

    default_hint = "read the reason, then start another cycle"


class InvalidHolder(Invalid, code="INVALID_HOLDER"):
    """No holder was given, and the actor is only a name derived from user and host."""

    default_hint = f"name yourself: {NAME_YOURSELF}"

    def among(self, sessions: str, hint: str) -> InvalidHolder:
        """The same where one of several sessions of a client calls, and nobody knows which.

        It is this error if a name was given, which is not valid.
        """
        if not self.hint.startswith(self.default_hint.partition(":")[0]):
            return self
        message = f"this needs a name, and several sessions of this client act at once: {sessions}"
        return InvalidHolder(message, hint=hint, **self.details)


class InvalidFilter(Invalid, code="INVALID_FILTER"):
    """A filter, cursor or limit is not valid."""


class InvalidStashType(Invalid, code="INVALID_STASH_TYPE"):
    """A stash type is unknown."""


class WouldCreateCycle(Invalid, code="WOULD_CREATE_CYCLE", exit_code=14):
    """The link would close a cycle."""


class Reentrant(Invalid, code="REENTRANT"):
    """The workspace was called from inside one of its own transactions."""

    default_hint = "inside a transaction use its tx: tx.cells.set(...), not ws.cells.set(...)"


# --- 401, 403, 404 ---------------------------------------------------------------------------------------------------


class Unauthorized(HoldfastError, code="UNAUTHORIZED", status=401):
    """The request has no valid token."""


class Forbidden(HoldfastError, code="FORBIDDEN", status=403):
    """The token or actor may not do this."""


class NotHolder(Forbidden, code="NOT_HOLDER", exit_code=13):
    """Only the current holder may do this."""


class NotClaimOwner(NotHolder, code="NOT_CLAIM_OWNER"):
    """Only the agent that holds the claim may do this; carries `holder`."""


class NotRecipient(Forbidden, code="NOT_RECIPIENT", exit_code=13):
    """The agent is not a recipient of the message."""


class NotSender(Forbidden, code="NOT_SENDER", exit_code=13):
    """Only the sender of a message, or a maintainer, may close it."""


class NotCapable(Forbidden, code="NOT_CAPABLE", exit_code=13):
    """The task's route needs capabilities that the agent lacks; carries `needs` and `lacking`."""

    default_hint = "leave it to an agent that has them, or claim another task: tasks.claim_next(agent, can=[...])"


class NotFound(HoldfastError, code="NOT_FOUND", status=404, exit_code=10):
    """The record does not exist."""


class TaskNotFound(NotFound, code="TASK_NOT_FOUND"):
    """The task does not exist."""

    default_hint = "tasks.list() lists the tasks"


class MessageNotFound(NotFound, code="MESSAGE_NOT_FOUND"):
    """The message does not exist."""


class ParentNotFound(NotFound, code="PARENT_NOT_FOUND"):
    """The parent task does not exist."""


class ThreadNotFound(NotFound, code="THREAD_NOT_FOUND"):
    """There is no thread with this id, or it was deleted after the run that writes to it had begun."""

    default_hint = "threads.list() lists the threads"


class TableNotFound(NotFound, code="TABLE_NOT_FOUND"):
    """The table does not exist."""


# --- 409 -------------------------------------------------------------------------------------------------------------


class Conflict(HoldfastError, code="CONFLICT", status=409):
    """The request conflicts with the current state of a record."""


class VersionMismatch(Conflict, code="VERSION_MISMATCH", exit_code=9):
    """The record is not at the expected version; carries `expected`, `version` and `value`."""

    default_hint = "read it again, decide again, and retry with its current version"


class CycleConflict(VersionMismatch, code="CYCLE_CONFLICT"):
    """The same phase of the cycle was changed meanwhile; also carries `mine` and `theirs`."""

    default_hint = "compare `mine` and `theirs`, then retry with the sequence that the error carries"


class Exists(Conflict, code="EXISTS"):
    """The record already exists; it was not changed."""


class Outrun(Conflict, code="OUTRUN", retryable=True):
    """Another node wrote while a block was open; nothing of the block was written."""

    default_hint = "run the block again, or pass a function to transact, which retries by itself"


class FileChanged(Outrun):
    """A turn file changed while it was being edited; nothing of the edit was written. Carries `path`."""


class DuplicateName(Conflict, code="DUPLICATE_NAME"):
    """The name is taken in this scope."""


class Held(Conflict, code="HELD", exit_code=12, retryable=True):
    """Another holder has the lock, or is first in the queue for it; carries `holder` and `until`."""

    again = False  # raised to somebody who stands in the queue already: it was counted as a refusal then
    default_hint = "wait for it with wait=SECONDS, or watch the lock and retry"


class Escalated(Held, code="ESCALATED"):
    """The wait for the lock ended and the maintainer was asked by `notice`; carries `lock_id` and `holder` too."""

    default_hint = "retry only after the maintainer has answered or the lock is gone; meanwhile work on something else"


class AlreadyClaimed(Conflict, code="ALREADY_CLAIMED", exit_code=12):
    """Another agent has claimed the task; carries `holder` and `since`."""


class Assigned(Conflict, code="ASSIGNED", exit_code=12):
    """The task is assigned to another agent, which alone may claim it; carries `assigned_to`."""


class InvalidStatus(Conflict, code="INVALID_STATUS", exit_code=11):
    """The task's status does not allow this."""


class TaskActive(Conflict, code="TASK_ACTIVE"):
    """The task is being worked on."""


class HasActiveChildren(Conflict, code="HAS_ACTIVE_CHILDREN"):
    """A descendant of the task is being worked on."""


class NotUndoable(Conflict, code="NOT_UNDOABLE", exit_code=11):
    """The transaction did what cannot be taken back; carries these `events`."""

    default_hint = "partial=True takes back the rest of it"


class OpenChildren(Conflict, code="OPEN_CHILDREN", exit_code=11):
    """The task has children that are not finished; carries their ids as `children`."""


class OpenThreads(Conflict, code="OPEN_THREADS"):
    """The task cannot be closed while messages about it are open; carries their ids as `messages`."""

    default_hint = "close them first: mail.close(id)"


class Fenced(Conflict, code="FENCED", exit_code=15):
    """The token is not that of the current holder; carries `current`, the valid token or None."""

    default_hint = "the lock was lost: stop the work done under it, acquire it again and read the state anew"


class AlreadyAttached(Conflict, code="ALREADY_ATTACHED"):
    """The cupboard is already attached."""


# --- 410 to 501 ------------------------------------------------------------------------------------------------------


class Compacted(HoldfastError, code="COMPACTED", status=410, exit_code=17):
    """The requested history has been compacted; carries `compacted`, the last revision that is gone."""

    default_hint = "read the current state, then watch from its revision"


class MessagesLost(Compacted, code="MESSAGES_LOST"):
    """Messages after a cursor, or after a number, are not kept any more; carries `lost`, `cursor` and `first`."""

    default_hint = "read the state anew, then acknowledge the last lost message and read on"


class TooLarge(HoldfastError, code="TOO_LARGE", status=413):
    """A value, request or transaction exceeds its limit."""


class Corrupt(HoldfastError, code="CORRUPT", exit_code=18):
    """The store is inconsistent or damaged."""

    default_hint = f"stop writing, keep a copy of the folder, and {RESTORE_BACKUP}"


class Unsupported(HoldfastError, code="UNSUPPORTED", status=501):
    """This kind of workspace does not support the operation."""


def not_installed(what: str, extra: str, error: ImportError) -> Unsupported:
    """The error for what needs the packages of an extra, with the line that installs them."""
    return Unsupported(
        f"{what} needs a package that is not installed: {error}", hint=f"pip install 'holdfast[{extra}]'"
    )


# --- 503 -------------------------------------------------------------------------------------------------------------


class Unavailable(HoldfastError, code="UNAVAILABLE", status=503, exit_code=16, retryable=True):
    """Temporarily unavailable; nothing was changed."""

    default_hint = "retry"


class Busy(Unavailable, code="BUSY"):
    """The write lock was not free in time; nothing was changed."""


class Timeout(Unavailable, code="TIMEOUT", exit_code=3):
    """The time limit was exceeded; nothing was changed."""


class Behind(Unavailable, code="BEHIND"):
    """This workspace has not reached the requested revision or schema."""


class Closed(Unavailable, code="CLOSED", retryable=False):
    """The workspace is closed, or was opened before a fork."""

    default_hint = "open the workspace again"


class ClockSkew(Unavailable, code="CLOCK_SKEW"):
    """This machine's clock differs too much from the log's."""

    default_hint = "synchronize this machine's clock (NTP); it may differ from the log's by one second at most"


class OutcomeUnknown(Unavailable, code="OUTCOME_UNKNOWN"):
    """The commit was interrupted and may or may not have been stored."""

    default_hint = "retry with the same idempotency key, or read before deciding"


class ReadOnly(Unavailable, code="READ_ONLY", retryable=False):
    """The store cannot be written from here."""

    default_hint = "check the folder's permissions and mount"


class DiskFull(Unavailable, code="DISK_FULL"):
    """The disk is full; nothing was changed."""

    default_hint = "free some space and retry; reads still work"


class IOFailed(Unavailable, code="IO_FAILED"):
    """The operating system failed to read or write the store; nothing was acknowledged."""

    default_hint = "check the disk and retry"


class Unreachable(Unavailable, code="UNREACHABLE"):
    """The server, or the log of a replicated workspace, cannot be reached; nothing was changed."""

    default_hint = "retry; this node's replica still answers reads"


class LogRefused(Unreachable, code="LOG_REFUSED", retryable=False):
    """The engine of the log refuses this node's login, its rights or the address; nothing was changed."""

    default_hint = "correct the address or the login, see docs/engines.md; this node's replica still answers reads"


# --- raised by the HTTP server only ----------------------------------------------------------------------------------


class MethodNotAllowed(Invalid, code="METHOD_NOT_ALLOWED", status=405):
    """The address exists, but not for this method."""


class NotJSON(Invalid, code="NOT_JSON", status=415):
    """The body is not declared as JSON."""

    default_hint = "send Content-Type: application/json"


class Misdirected(Forbidden, code="MISDIRECTED", status=421):
    """The request names a host that this server does not serve."""


class NoRoute(NotFound, code="NO_ROUTE"):
    """The address does not exist."""

    default_hint = "GET /openapi.json lists every address"


class TooManyWatchers(Unavailable, code="TOO_MANY_WATCHERS", status=429):
    """The token has reached its limit of watchers."""

    default_hint = "end a watch, or start the server with a larger --max-watchers"
