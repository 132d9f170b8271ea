"""Cells as operations answer them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec


class Cell(msgspec.Struct, frozen=True):
    """A cell's value, and when and as what version it was written."""

    value: Any
    version: int
    revision: int
    updated_at: datetime


class CellInfo(msgspec.Struct, frozen=True):
    """What is known about a cell without reading its value; absent: `exists` is False, the rest None."""

    exists: bool
    version: int | None = None
    revision: int | None = None
    updated_at: datetime | None = None
    size: int | None = None
    expires_at: datetime | None = None


class CellVersion(msgspec.Struct, frozen=True):
    """One step in a cell's history; `value` is None and `deleted` True where it was deleted or expired."""

    version: int
    value: Any
    deleted: bool
    op: str
    revision: int
    time: datetime
    actor: str


class CellChange(msgspec.Struct, frozen=True):
    """What a watcher of a cell hears. `created`: there was no value before; `deleted`: there is none after."""

    run: str
    cell: str
    old: Any
    new: Any
    created: bool
    deleted: bool
    op: str
    version: int
    revision: int
    time: datetime
    actor: str
