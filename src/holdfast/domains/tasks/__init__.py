"""`ws.tasks`: work that exactly one agent does at a time. This module is the table of operations.

Every change of a task goes through `rows`. Import and export as JSON lines live in `interchange`, which is loaded by
the first call that needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast import errors
from holdfast.domains.tasks import (
    changes,
    claims,
    creation,
    handover,
    queries,
    readiness,
    retention,
    templates,
    transitions,
    tree,
)
from holdfast.domains.tasks.rows import find, require, to_task
from holdfast.kernel.tx import Snapshot, Tx
from holdfast.kernel.validate import check_flag
from holdfast.operation import Alias, Domain, Found, M, procedure, read, write
from holdfast.types import ImportReport
from holdfast.types.tasks import ImportFormat, Side, Task

_ONE = "/api/tasks/{id}"
MAX_EXPORT: Final = 1000  # lines of a page


def get(snapshot: Snapshot, id: str, include_deleted: bool = False) -> Task:
    """Return a task by its id, or by any unambiguous prefix of it. Raises TaskNotFound, or InvalidID."""
    check_flag(include_deleted=include_deleted)
    return to_task(find(snapshot, id, deleted=include_deleted))


def export(
    snapshot: Snapshot, after: str | None = None, limit: int = MAX_EXPORT, include_deleted: bool = False
) -> list[str]:
    """Return a page of tasks as JSON lines in the order of creation; `after` is the last id of the previous page.

    Links to deleted tasks are included only if the deleted tasks are.
    """
    from holdfast.interchange import task_export

    return task_export.export(snapshot, after, limit, include_deleted)


def import_(
    tx: Tx,
    lines: Sequence[str],
    format: ImportFormat = "holdfast",
    prefer: Side = "ours",
    dry_run: bool = False,
    skip_bad: bool = False,
) -> ImportReport:
    """Import tasks from JSON lines, with their ids; the same lines again change nothing.

    A task that changed here and in the file is left alone, or with prefer="theirs" becomes what the file says. A line
    that cannot be imported refuses all (Invalid, with `problems`); with `skip_bad` it is left out, and what needs it.
    Claims are not imported.
    """
    from holdfast.interchange import task_import

    return task_import.import_(tx, lines, format, prefer, dry_run, skip_bad)


def probe(tx: Tx, id: str) -> Found | None:
    """What a condition of `txn` sees of a task: its status as value."""
    try:
        task = require(tx, id)
    except errors.TaskNotFound:
        return None
    return Found(task.version, task.status)


class Tasks(Domain[M]):
    """`ws.tasks`."""

    prefix = "tasks"
    create = write(
        creation.create,
        http="POST /api/tasks",
        also=("POST /api/tasks/{parent_id}/subtasks",),
        cli="create",
        mcp=True,
        routed=True,
    )
    get = read(get, http=f"GET {_ONE}", cli="show", mcp=True, plain=True)
    list = read(queries.list_tasks, http="GET /api/tasks", cli="list", mcp=True, listing=True)
    ready = read(readiness.ready, http="GET /api/tasks/ready", cli="ready", mcp=True, listing=True, routed=True)
    search = read(queries.search, http="GET /api/tasks/search", cli="search", listing=True)

    claim = write(claims.claim, http=f"POST {_ONE}/claim", cli="claim", mcp=True, routed=True)
    claim_next = procedure(readiness.claim_next, http="POST /api/tasks/claim-next", cli="next", mcp=True, routed=True)
    reclaim = write(claims.reclaim, http=f"POST {_ONE}/reclaim")
    heartbeat = write(claims.heartbeat, http=f"POST {_ONE}/heartbeat", cli="heartbeat")
    park = write(claims.park, http=f"POST {_ONE}/park", cli="park")
    release = write(claims.release, http=f"POST {_ONE}/release", cli="release", mcp=True)
    complete = write(
        claims.complete,
        http=f"POST {_ONE}/complete",
        aliases=(Alias("skip_review", "review", opposite=True),),
        cli="done",
        mcp=True,
    )
    block = write(claims.block, http=f"POST {_ONE}/block", cli="block", mcp=True)
    unblock = write(transitions.unblock, http=f"POST {_ONE}/unblock", cli="unblock")
    approve = write(transitions.approve, http=f"POST {_ONE}/approve", cli="approve")
    reject = write(transitions.reject, http=f"POST {_ONE}/reject", cli="reject")
    close = write(transitions.close, http=f"POST {_ONE}/close", cli="close")
    cancel = write(transitions.cancel, http=f"POST {_ONE}/cancel", cli="cancel")
    reopen = write(transitions.reopen, http=f"POST {_ONE}/reopen", cli="reopen")
    set_status = write(claims.set_status, http=f"PATCH {_ONE}/status", routed=True)
    release_stale_claims = procedure(claims.release_stale_claims, http="POST /api/tasks/release-stale-claims")

    update = write(changes.update, http=f"PATCH {_ONE}", cli="update", mcp=True, routed=True)
    note = write(changes.note, http=f"POST {_ONE}/note", cli="note", mcp=True)
    add_tags = write(changes.add_tags, http=f"POST {_ONE}/tags", cli="tag add", routed=True)
    remove_tags = write(changes.remove_tags, http=f"DELETE {_ONE}/tags", cli="tag remove")
    set_tags = write(changes.set_tags, http=f"PUT {_ONE}/tags", cli="tag set", routed=True)

    reparent = write(
        tree.reparent,
        http=f"POST {_ONE}/reparent",
        aliases=(Alias("new_parent_id", "parent_id"),),
        cli="reparent",
    )
    subtree = read(tree.subtree, http=f"GET {_ONE}/subtree", cli="tree")
    ancestors = read(tree.ancestors, http=f"GET {_ONE}/ancestors")
    children = read(tree.children, http=f"GET {_ONE}/children")
    depend = write(tree.depend, http=f"POST {_ONE}/dependencies", cli="dep add")
    undepend = write(tree.undepend, http=f"DELETE {_ONE}/dependencies", cli="dep remove")
    dependencies = read(tree.dependencies, http=f"GET {_ONE}/dependencies", cli="dep list")

    history = read(queries.history, http=f"GET {_ONE}/history", cli="history")
    resume = read(handover.resume, http=f"GET {_ONE}/resume", cli="resume", mcp=True, listing=True)
    explain = read(queries.explain, http=f"GET {_ONE}/explain", cli="explain", listing=True)
    delete = write(changes.delete, http=f"DELETE {_ONE}", cli="delete")
    restore = write(changes.restore, http=f"POST {_ONE}/restore", cli="undelete")
    purge = write(changes.purge, http=f"POST {_ONE}/purge", cli="purge")
    sweep_retention = procedure(
        retention.sweep_retention, http="POST /api/tasks/sweep-retention", routed=True, heavy=True
    )

    export = read(export, http="GET /api/tasks/export", cli="export", listing=True, heavy=True)
    import_ = write(import_, http="POST /api/tasks/import", cli="import", routed=True, heavy=True)
    bulk = write(changes.bulk, http="POST /api/tasks/bulk", cli="bulk", routed=True, heavy=True)
    set_template = write(templates.set_template, http="PUT /api/templates/{name}", cli="template set", routed=True)
    get_template = read(templates.get_template, http="GET /api/templates/{name}", cli="template show", plain=True)
    delete_template = write(templates.delete_template, http="DELETE /api/templates/{name}", cli="template delete")
    from_template = write(
        templates.from_template, http="POST /api/templates/{name}/tasks", cli="template use", routed=True
    )
    templates = read(templates.list_templates, http="GET /api/templates", cli="template list", plain=True)
