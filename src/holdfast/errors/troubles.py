"""What is forgotten, too large, broken or out of reach: 410 and above. Mostly not the caller's fault."""

from __future__ import annotations

from holdfast.errors.base import HoldfastError

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
