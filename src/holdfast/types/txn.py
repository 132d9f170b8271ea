"""The conditions and operations of `txn`, and its result."""

from __future__ import annotations

from typing import Any

import msgspec


class Condition(msgspec.Struct, frozen=True, tag_field="if"):
    """A condition of `txn` on one record. `key` is its id, or its path such as (run, cell)."""

    kind: str
    key: str | tuple[str, ...]


class Exists(Condition, frozen=True, tag="exists"):
    """The record exists."""


class NotExists(Condition, frozen=True, tag="not_exists"):
    """The record does not exist."""


class VersionEquals(Condition, frozen=True, tag="version_equals"):
    """The record exists at exactly this version; for a lock, its token."""

    version: int


class ValueEquals(Condition, frozen=True, tag="value_equals"):
    """The record exists with exactly this value; for a lock, its holder. 1, 1.0 and True are different."""

    value: Any


AnyCondition = Exists | NotExists | VersionEquals | ValueEquals


class Op(msgspec.Struct, frozen=True):
    """An operation as data, for `txn`: its name and its arguments, as in `Op("cells.set", {"run": ..., ...})`."""

    op: str
    args: dict[str, Any] = {}


class TxnResult(msgspec.Struct, frozen=True):
    """What `txn` did: whether the conditions held, and the answer of each operation that ran."""

    succeeded: bool
    results: list[Any]
