"""Holdfast: shared memory and traffic control for fleets of agents.

import holdfast
ws = holdfast.open(".holdfast", actor="agent-1")
ws.cells.set("run-1", "status", {"phase": "plan"})
"""

from holdfast import errors
from holdfast.errors import HoldfastError
from holdfast.gate import FileGate
from holdfast.transaction import Transaction
from holdfast.types import (
    Cell,
    CellChange,
    CellInfo,
    CellVersion,
    Event,
    Exists,
    Grant,
    Lease,
    NotExists,
    Op,
    Report,
    TxnResult,
    ValueEquals,
    VersionEquals,
)
from holdfast.workspace import Workspace, restore, upgrade
from holdfast.workspace import open_workspace as open

__version__ = "0.1.0"

__all__ = [
    "Cell",
    "CellChange",
    "CellInfo",
    "CellVersion",
    "Event",
    "Exists",
    "FileGate",
    "Grant",
    "HoldfastError",
    "Lease",
    "NotExists",
    "Op",
    "Report",
    "Transaction",
    "TxnResult",
    "ValueEquals",
    "VersionEquals",
    "Workspace",
    "errors",
    "open",
    "restore",
    "upgrade",
]
