"""Holdfast: shared memory and traffic control for fleets of agents.

    import holdfast
    ws = holdfast.open(".holdfast", actor="agent-1")
    ws.cells.set("run-1", "status", {"phase": "plan"})

Names are loaded when they are first used: a program that needs only the errors, or one part, pays for no other.
"""

TYPE_CHECKING = False  # type checkers take it for true; importing `typing` takes as long as starting Python

if TYPE_CHECKING:
    from holdfast import errors
    from holdfast.cupboard import Cupboard
    from holdfast.errors import HoldfastError
    from holdfast.filegate import FileGate
    from holdfast.remote import RemoteWorkspace, connect
    from holdfast.remote.aio import AsyncRemoteWorkspace
    from holdfast.replication.log import CommitLog, MemoryLog
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
        Page,
        Report,
        TxnResult,
        ValueEquals,
        VersionEquals,
    )
    from holdfast.types.tasks import Task
    from holdfast.workspace import Workspace
    from holdfast.workspace import open_workspace as open
    from holdfast.workspace.admin import detach, rebuild, replicate, restore, salvage, upgrade
    from holdfast.workspace.aio import AsyncWorkspace
    from holdfast.workspace.transaction import Transaction

__version__ = "0.2.0"  # the one place: pyproject.toml reads it

__all__ = [
    "AsyncRemoteWorkspace",
    "AsyncWorkspace",
    "Cell",
    "CellChange",
    "CellInfo",
    "CellVersion",
    "CommitLog",
    "Cupboard",
    "Event",
    "Exists",
    "FileGate",
    "Grant",
    "HoldfastError",
    "Lease",
    "MemoryLog",
    "NotExists",
    "Op",
    "Page",
    "RemoteWorkspace",
    "Report",
    "Task",
    "Transaction",
    "TxnResult",
    "ValueEquals",
    "VersionEquals",
    "Workspace",
    "connect",
    "detach",
    "errors",
    "open",
    "rebuild",
    "replicate",
    "restore",
    "salvage",
    "upgrade",
]

# Where a name comes from.
_HOMES = {
    **dict.fromkeys(("Event", "Grant", "Lease", "Page", "Report"), "types"),
    **dict.fromkeys(("Cell", "CellChange", "CellInfo", "CellVersion"), "types"),
    **dict.fromkeys(("Exists", "NotExists", "Op", "TxnResult", "ValueEquals", "VersionEquals"), "types"),
    "Task": "types.tasks",
    "AsyncRemoteWorkspace": "remote.aio",
    "AsyncWorkspace": "workspace.aio",
    "CommitLog": "replication.log",
    "Cupboard": "cupboard",
    "FileGate": "filegate",
    "HoldfastError": "errors",
    "MemoryLog": "replication.log",
    "RemoteWorkspace": "remote",
    "Transaction": "workspace.transaction",
    "Workspace": "workspace",
    "connect": "remote",
    **dict.fromkeys(("detach", "rebuild", "replicate", "restore", "salvage", "upgrade"), "workspace.admin"),
}


if not TYPE_CHECKING:  # a type checker sees the imports above, and complains about any other name

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
        from importlib import import_module

        if name == "errors":
            value = import_module("holdfast.errors")
        elif name == "open":
            value = import_module("holdfast.workspace").open_workspace
        else:
            value = getattr(import_module(f"holdfast.{_HOMES[name]}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted([*globals(), *__all__])
