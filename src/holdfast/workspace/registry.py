"""The registry: every domain, and what the kernel and the domains need of each other, wired in one place.

The kernel ends leases, `txn` looks at records and `check` compares them, whatever their domain; tasks ask mail and
paths. A domain is loaded when it is first used: a program that only reads a cell need not wait for tasks. The table
of operations (`holdfast.operation.REGISTRY`) loads domains through `load`, so it is whole for everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from holdfast.domains import task_hooks
from holdfast.kernel import leases as kernel_leases
from holdfast.kernel.tx import Snapshot, Tx
from holdfast.operation import Domain, Found
from holdfast.route import LOADING

if TYPE_CHECKING:
    from holdfast.types.agents import Message, PathLock

# --- domains ---------------------------------------------------------------------------------------------------------

# The domains on a workspace: where each is defined, and by which class.
DOMAINS: Final = {
    "cells": ("holdfast.domains.cells", "Cells"),
    "locks": ("holdfast.domains.named_locks", "Locks"),
    "leases": ("holdfast.domains.leases", "Leases"),
    "events": ("holdfast.domains.events", "Events"),
    "clock": ("holdfast.domains.events", "ClockOps"),
    "tasks": ("holdfast.domains.tasks", "Tasks"),
    "routes": ("holdfast.domains.routes", "Routes"),
    "agents": ("holdfast.domains.agents", "Agents"),
    "mail": ("holdfast.domains.mail", "Mail"),
    "paths": ("holdfast.domains.paths", "Paths"),
    "stashes": ("holdfast.domains.stashes", "Stashes"),
    "channels": ("holdfast.domains.stashes.channels", "Channels"),
    "queues": ("holdfast.domains.stashes.queues", "Queues"),
    "trails": ("holdfast.domains.trails", "Trails"),
    "links": ("holdfast.domains.links", "Links"),
    "cycles": ("holdfast.domains.cycles", "Cycles"),
    "threads": ("holdfast.domains.threads", "Threads"),
    "items": ("holdfast.domains.items", "Items"),
}
_ROOT: Final = "holdfast.workspace.transaction"  # defines the operations of a workspace itself


def load(domain: str | None = None) -> None:
    """Load a domain, "" for the workspace's own operations, None for all; an unknown name loads nothing."""
    homes = {"": _ROOT, **{name: module for name, (module, _) in DOMAINS.items()}}
    for name in homes if domain is None else homes.keys() & {domain}:
        with LOADING:
            import_module(homes[name])


def domain_class(name: str) -> type[Domain[Any]]:
    """The class of a domain, loaded if need be."""
    module, cls = DOMAINS[name]
    with LOADING:
        found: type[Domain[Any]] = getattr(import_module(module), cls)
    return found


def _late(home: str) -> Any:
    """A module of a domain that is loaded when first used."""
    with LOADING:
        return import_module(f"holdfast.domains.{home}")


# --- what ends with a lease ------------------------------------------------------------------------------------------


# Where the leases end that a domain keeps which is loaded when first used: those of tasks, whose ids are numbers (a
# claim's above 0, a deferral's below), and others by how their ids begin.
_CLAIMS: Final = "tasks.claims"
_DEFERRALS: Final = "tasks.details"
_LATE: Final = {
    "retention": "tasks.changes",
    "stash": "stashes",
    "queue": "stashes.queue_rows",
    "trail": "trails",
    "item": "items",
}


def _end_cells(tx: Tx, lease: kernel_leases.Id, op: str) -> None:
    _late("cells").end_lease(tx, lease, op)


def _end_locks(tx: Tx, lease: kernel_leases.Id, op: str) -> None:
    _late("locks").end_lease(tx, lease, op)


def _end_late_lease(tx: Tx, lease: kernel_leases.Id, op: str) -> None:
    if isinstance(lease, int):
        home: str | None = _CLAIMS if lease > 0 else _DEFERRALS
    else:
        home = _LATE.get(lease.partition(":")[0])
    if home is not None:
        _late(home).end_lease(tx, lease, op)


def _stash_freed(tx: Tx, name: str, op: str, changed_by: str | None) -> None:
    with LOADING:
        from holdfast.domains.stashes import rows

    rows.freed(tx, name, op, changed_by)


def _path_freed(tx: Tx, name: str, op: str, changed_by: str | None) -> None:
    with LOADING:
        from holdfast.domains.paths import patterns

    patterns.unindex(tx, name)


def _doomed_of(home: str) -> kernel_leases.Doomed:
    return lambda *args: _late(home).doomed(*args)


kernel_leases.wire(_end_cells, _end_locks, _end_late_lease)
kernel_leases.wire_purge(_doomed_of("tasks.changes"), _doomed_of("trails"))
kernel_leases.FREED.update({"stash-lock": _stash_freed, "path": _path_freed})

# --- what tasks ask mail and paths -----------------------------------------------------------------------------------


class _TaskHooks:
    """Messages about a task, and the paths that are locked for it."""

    def messages(self, snapshot: Snapshot, task: str, limit: int) -> tuple[list[Message], int]:
        with LOADING:
            from holdfast.domains.mail import messages

        return messages.newest_about(snapshot, task, limit)

    def open_messages(self, snapshot: Snapshot, task: str) -> list[str]:
        with LOADING:
            from holdfast.domains.mail import messages

        return messages.open_about(snapshot, task)

    def locks(self, snapshot: Snapshot, task: str) -> list[PathLock]:
        with LOADING:
            from holdfast.domains import paths

        return paths.of_task(snapshot, task)

    def freed(self, snapshot: Snapshot, task: str, revision: int) -> list[str]:
        with LOADING:
            from holdfast.domains import paths

        return paths.freed(snapshot, task, revision)


task_hooks.wire(_TaskHooks())

# --- what `txn` looks at, and what `check` compares ------------------------------------------------------------------

Probe = Callable[..., Found | None]  # looks at one record: its key is a tuple such as (run, cell) or (name,)


def _late_probe(module: str) -> Probe:
    """The probe of a domain that is loaded when first used."""
    return lambda tx, id: _late(module).probe(tx, id)


def _late_check(module: str, table: str) -> Callable[[Snapshot], Iterable[str]]:
    """The checker of such a domain; a store from before its tables has nothing to compare."""

    def check(snapshot: Snapshot) -> Iterable[str]:
        if not snapshot.one("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (table,)):
            return ()
        found: Iterable[str] = _late(module).check(snapshot)
        return found

    return check


PROBES: Final[dict[str, Probe]] = {
    "cell": lambda tx, run, cell: _late("cells").probe(tx, run, cell),
    "cell-lock": lambda tx, run, cell: _late("cells").probe_lock(tx, run, cell),
    "cycle": _late_probe("cycles"),
    "lease": _late_probe("leases"),
    "link": lambda tx, link_type, from_id, to_id: _late("links").probe(tx, link_type, from_id, to_id),
    "lock": _late_probe("locks"),
    "agent": _late_probe("agents"),
    "message": _late_probe("mail"),
    "path": _late_probe("paths"),
    "stash": _late_probe("stashes"),
    "stash-lock": lambda tx, id: _late("stashes.rows").probe_lock(tx, id),
    "trail": _late_probe("trails"),
    "task": _late_probe("tasks"),
    "template": _late_probe("tasks.templates"),
}
CHECKERS: Final = (
    _late_check("cell_history", "cells"),
    _late_check("locks", "locks"),
    *(
        _late_check(module, "messages")
        for module in ("tasks.check", "tasks.templates", "routing.config", "agents", "mail.messages", "paths")
    ),
    *(
        _late_check(module, "stashes")
        for module in ("stashes", "stashes.queue_rows", "stashes.channels", "trails", "links")
    ),
    _late_check("cycles", "cycles"),
    _late_check("threads.rows", "threads"),
    _late_check("items", "items"),
)
