"""The names that the specification of the cupboard gives to refusals and to the operations of a stash's history.

Each refusal is a class of `errors`; where the specification has one name, we may have several classes below it.
"""

from __future__ import annotations

from typing import Final

from holdfast import errors

ErrAlreadyAttached = errors.AlreadyAttached
ErrCupboardDetached = errors.Closed
ErrDuplicateName = errors.DuplicateName
ErrInvalidFilter = errors.InvalidFilter
ErrInvalidHolder = errors.InvalidHolder
ErrInvalidID = errors.InvalidID
ErrInvalidName = errors.InvalidName
ErrInvalidStashType = errors.InvalidStashType
ErrInvalidTransition = errors.InvalidTransition
ErrLockHeld = errors.Held
ErrNotFound = errors.NotFound
ErrNotLockHolder = errors.NotHolder
ErrTableNotFound = errors.TableNotFound

StashOpCreate: Final = "create"
StashOpSet: Final = "set"
StashOpIncrement: Final = "increment"
StashOpAcquire: Final = "acquire"
StashOpRelease: Final = "release"
