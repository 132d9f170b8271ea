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

from holdfast.errors.base import *  # noqa: F403  # this module is all of them
from holdfast.errors.refusals import *  # noqa: F403
from holdfast.errors.troubles import *  # noqa: F403
