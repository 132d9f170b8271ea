"""`ws.tasks`: work that exactly one agent does at a time. This module is the table of operations.

Every change of a task goes through `rows`. Import and export as JSON lines live in `interchange`, which is loaded by
the first call that needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from holdfast import errors
from holdfast.domains.tasks import claims, creation, readiness, transitions
from holdfast.domains.tasks.rows import find, require, to_task
from holdfast.kernel.tx import Snapshot, Tx
from holdfast.kernel.validate import check_flag
from holdfast.operation import Domain, Found, M, Steps, procedure, read, write
from holdfast.route import ANY, LOADING, Alias, Held, Late, example
from holdfast.types import ImportPart, ImportReport, Page
from holdfast.types.tasks import ImportFormat, Side, Task, TemplateNode

if TYPE_CHECKING:
    from holdfast.domains.tasks import changes as _changes
    from holdfast.domains.tasks import graph as _graph
    from holdfast.domains.tasks import past as _past
    from holdfast.domains.tasks import queries as _queries
    from holdfast.domains.tasks import templates as _templates
    from holdfast.domains.tasks import tree as _tree
else:  # whoever claims and completes needs none of them
    _changes, _graph, _past, _queries, _templates, _tree = (
        Late(f"holdfast.domains.tasks.{name}") for name in ("changes", "graph", "past", "queries", "templates", "tree")
    )

_ONE = "/api/tasks/{id}"
MAX_EXPORT: Final = 1000  # lines of a page


def get(snapshot: Snapshot, id: str, include_deleted: bool = False) -> Task:
    """Return a task by its id, or by any unambiguous prefix of it. Raises TaskNotFound, or InvalidID."""
    check_flag(include_deleted=include_deleted)
    return to_task(find(snapshot, id, deleted=include_deleted))


def export(
    snapshot: Snapshot, after: str | None = None, limit: int = MAX_EXPORT, include_deleted: bool = False
) -> Page[str]:
    """Return a page of tasks as JSON lines in the order of creation; `after` is the cursor of the page before: an id.

    Links to deleted tasks are included only if the deleted tasks are.
    """
    with LOADING:
        from holdfast.interchange import task_export

    return task_export.export(snapshot, after, limit, include_deleted)


def import_(
    lines: Sequence[str],
    format: ImportFormat = "holdfast",
    prefer: Side = "ours",
    dry_run: bool = False,
    skip_bad: bool = False,
    part: ImportPart | None = None,
    atomic: bool = False,
) -> Steps[ImportReport]:
    """Import tasks from JSON lines, with their ids; the same lines again change nothing.

    More than 500 lines go in transactions of at most 500; with `atomic`, a fence, a key or in a transaction it is one.
    A task changed here and in the file is left alone, or with prefer="theirs" becomes that of the file; no claims are
    imported. A bad line refuses all (Invalid, with `problems`); `skip_bad` leaves it out. `part` is for slices.
    """
    with LOADING:
        from holdfast.interchange import slices
        from holdfast.interchange.task_import import import_ as import_in
    return slices.steps(partial(import_in, format=format, prefer=prefer), lines, dry_run, skip_bad, part, atomic)


def probe(tx: Tx, id: str) -> Found | None:
    """What a condition of `txn` sees of a task: its status as value."""
    try:
        task = require(tx, id)
    except errors.TaskNotFound:
        return None
    return Found(task.version, task.status)


# What examples need.
_CLAIM: Final = "holdfast claim hf-7k2q"
_BLOCKED: Final = (_CLAIM, "holdfast block hf-7k2q 'no grammar yet'")
_REVIEWED: Final = (_CLAIM, "holdfast done hf-7k2q --review")
_CLOSED: Final = (_CLAIM, "holdfast done hf-7k2q --no-review")
_TEMPLATE: Final = (
    """holdfast template set release '{"title": "Release {version}", "children": [{"title": "Tag {version}"}]}'"""
    """ --parameters '{"version": null}'"""
)
_NOTES: Final = "echo 'Comments begin with a hash.' > notes.md"


class Tasks(Domain[M]):
    """`ws.tasks`."""

    prefix = "tasks"
    held = Held("task", ("id",), ("id",), holder="claimed_by")
    create = write(
        creation.create,
        http="POST /api/tasks",
        also=("POST /api/tasks/{parent_id}/subtasks",),
        reloads_rules=True,
        cli="create TITLE [BODY]",
        help="Make a task.",
        examples=(
            "holdfast create 'Write the lexer' --priority 1 --tag core",
            example("holdfast create 'Handle comments' --parent hf-7k2q --body - < notes.md", _NOTES),
            "id=$(holdfast create 'The build is broken' --type bug -q)",
        ),
        creates=True,
        mcp="task_create",
    )
    get = read(
        get,
        http=f"GET {_ONE}",
        plain=True,
        cli="show",
        help="Show a task; here an unambiguous part of its id is enough.",
        examples=("holdfast show hf-7k2q", "holdfast show 7k2"),
        mcp="task_show",
    )
    list = read(
        _queries.list_tasks,
        http="GET /api/tasks",
        listing=True,
        cli="list",
        help="List the tasks that fit every filter given.",
        examples=(
            "holdfast list --status open --status blocked --sort -updated",
            "holdfast list --claimed-by agent-1 --json",
        ),
        mcp="task_list",
    )
    ready = read(
        readiness.ready,
        http="GET /api/tasks/ready",
        listing=True,
        reloads_rules=True,
        cli="ready",
        help="List the tasks that are ready to be claimed, best first.",
        examples=("holdfast ready", "holdfast ready --tag core --limit 5 --json"),
        mcp="task_list",
    )
    search = read(
        _queries.search,
        http="GET /api/tasks/search",
        listing=True,
        cli="search TEXT...",
        help="Find the tasks in which all words occur; word* finds what begins so.",
        examples=("holdfast search parser", "holdfast search 'pars*' --json"),
    )

    claim = write(
        claims.claim,
        http=f"POST {_ONE}/claim",
        reloads_rules=True,
        cli="claim",
        help="Claim a task by its id; exit code 12 if somebody has it.",
        examples=(_CLAIM, "holdfast claim hf-7k2q --ttl 2h"),
        grants=True,
        mcp="task_claim",
    )
    claim_next = procedure(
        readiness.claim_next,
        http="POST /api/tasks/claim-next",
        reloads_rules=True,
        cli="next",
        help="Claim the best task that is ready; exit code 4 if there is none.",
        examples=(
            "holdfast next",
            "holdfast next --tag backend --wait 1s  # exit code 4: nothing is ready",
            'while id=$(holdfast next -q); do holdfast done "$id"; done',
        ),
        grants=True,
        mcp="task_claim",
    )
    reclaim = write(claims.reclaim, http=f"POST {_ONE}/reclaim", grants=True)
    heartbeat = write(
        claims.heartbeat,
        http=f"POST {_ONE}/heartbeat",
        cli="heartbeat",
        help="Extend your claim on a task; a parked one runs again.",
        examples=(example("holdfast heartbeat hf-7k2q --ttl 1h", _CLAIM),),
        grants=True,
        mcp="task_update",
    )
    park = write(
        claims.park,
        http=f"POST {_ONE}/park",
        cli="park ID [UNTIL]",
        help="Keep your claim while you wait for a person.",
        examples=(example("holdfast park hf-7k2q 2h", _CLAIM), example("holdfast park hf-7k2q", _CLAIM)),
        grants=True,
    )
    release = write(
        claims.release,
        http=f"POST {_ONE}/release",
        cli="release ID [REASON]",
        help="Give your task back, so that somebody else can claim it.",
        examples=(
            example("holdfast release hf-7k2q 'out of time'", _CLAIM),
            example("holdfast release hf-7k2q 'agent-2 is gone' --force", "holdfast claim hf-7k2q --actor agent-2"),
        ),
        frees=True,
        mcp="task_finish action=release",
    )
    complete = write(
        claims.complete,
        http=f"POST {_ONE}/complete",
        aliases=(Alias("skip_review", "review", opposite=True),),
        cli="done ID [SUMMARY]",
        help="Finish your task: it is closed, or waits for approval.",
        examples=(
            example("holdfast done hf-7k2q 'parses every sample'", _CLAIM),
            example("""holdfast done hf-7k2q --review --result '{"commit": "1a2b3c4"}'""", _CLAIM),
        ),
        frees=True,
        mcp="task_finish action=done",
    )
    block = write(
        claims.block,
        http=f"POST {_ONE}/block",
        cli="block ID [REASON]",
        help="Stop work on your task until somebody unblocks it; the claim ends.",
        examples=(example("holdfast block hf-7k2q 'waits for the grammar'", _CLAIM),),
        frees=True,
        mcp="task_finish action=block",
    )
    unblock = write(
        transitions.unblock,
        http=f"POST {_ONE}/unblock",
        cli="unblock ID [NOTE]",
        help="Open a blocked task again.",
        examples=(example("holdfast unblock hf-7k2q 'the grammar is there'", *_BLOCKED),),
        mcp="task_update step=unblock",
    )
    approve = write(
        transitions.approve,
        http=f"POST {_ONE}/approve",
        cli="approve ID [NOTE]",
        help="Close a task that was done and waited for approval.",
        examples=(example("holdfast approve hf-7k2q 'merged'", *_REVIEWED),),
        mcp="task_update step=approve",
    )
    reject = write(
        transitions.reject,
        http=f"POST {_ONE}/reject",
        cli="reject ID [REASON]",
        help="Send a task that waits for approval to blocked.",
        examples=(example("holdfast reject hf-7k2q 'comments are missing'", *_REVIEWED),),
        mcp="task_update step=reject",
    )
    close = write(
        transitions.close,
        http=f"POST {_ONE}/close",
        cli="close ID [REASON]",
        help="Close a blocked task for good.",
        examples=(example("holdfast close hf-7k2q 'nobody needs it any more'", *_BLOCKED),),
        mcp="task_update step=close",
    )
    cancel = write(
        transitions.cancel,
        http=f"POST {_ONE}/cancel",
        cli="cancel ID [REASON]",
        help="Close a task that nobody works on, such as a duplicate.",
        examples=("holdfast cancel hf-3m9x 'duplicate of hf-7k2q'",),
        mcp="task_update step=cancel",
    )
    reopen = write(
        transitions.reopen,
        http=f"POST {_ONE}/reopen",
        cli="reopen ID [REASON]",
        help="Open a closed task again.",
        examples=(example("holdfast reopen hf-7k2q 'it fails again'", *_CLOSED),),
        mcp="task_update step=reopen",
    )
    set_status = write(claims.set_status, http=f"PATCH {_ONE}/status", reloads_rules=True)
    release_stale_claims = procedure(
        claims.release_stale_claims, http="POST /api/tasks/release-stale-claims", admin_only={"timeout": ANY}
    )

    update = write(
        _changes.update,
        http=f"PATCH {_ONE}",
        reloads_rules=True,
        cli="update",
        help="Change fields of a task; what is not given stays.",
        examples=(
            "holdfast update hf-7k2q --priority 0 --type feature",
            example("holdfast update hf-7k2q --body - --expected 1 < notes.md", _NOTES),
        ),
        mcp="task_update",
    )
    note = write(
        _changes.note,
        http=f"POST {_ONE}/note",
        cli="note ID TEXT...",
        help="Add a note to a task's history, where a search finds it.",
        examples=(
            "holdfast note hf-7k2q 'half of the grammar is done'",
            example("git status --short | holdfast note hf-7k2q -", _NOTES),
        ),
        mcp="task_update",
    )
    add_tags = write(
        _changes.add_tags,
        http=f"POST {_ONE}/tags",
        reloads_rules=True,
        cli="tag add ID TAGS...",
        help="Add tags to a task.",
        examples=("holdfast tag add hf-7k2q core parser",),
        mcp="task_update",
    )
    remove_tags = write(
        _changes.remove_tags,
        http=f"DELETE {_ONE}/tags",
        cli="tag remove ID TAGS...",
        help="Remove tags from a task.",
        examples=(example("holdfast tag remove hf-7k2q core", "holdfast tag add hf-7k2q core"),),
        mcp="task_update",
    )
    set_tags = write(
        _changes.set_tags,
        http=f"PUT {_ONE}/tags",
        reloads_rules=True,
        cli="tag set ID [TAGS...]",
        help="Replace all tags of a task.",
        examples=("holdfast tag set hf-7k2q core urgent",),
    )

    reparent = write(
        _tree.reparent,
        http=f"POST {_ONE}/reparent",
        aliases=(Alias("new_parent_id", "parent_id"),),
        cli="reparent",
        help="Move a task and all below it under another one, or to the top.",
        examples=("holdfast reparent hf-3m9x hf-7k2q", "holdfast reparent hf-3m9x none"),
    )
    subtree = read(_tree.subtree, http=f"GET {_ONE}/subtree", cli="tree")
    ancestors = read(_tree.ancestors, http=f"GET {_ONE}/ancestors")
    children = read(_tree.children, http=f"GET {_ONE}/children")
    depend = write(
        _tree.depend,
        http=f"POST {_ONE}/dependencies",
        cli="dep add",
        help="Let a task wait for another, or only refer to it.",
        examples=("holdfast dep add hf-3m9x hf-7k2q", "holdfast dep add hf-3m9x hf-7k2q --kind discovered_from"),
        mcp="task_update",
    )
    undepend = write(
        _tree.undepend,
        http=f"DELETE {_ONE}/dependencies",
        cli="dep remove",
        help="Let a task wait for another no more.",
        examples=(example("holdfast dep remove hf-3m9x hf-7k2q", "holdfast dep add hf-3m9x hf-7k2q"),),
    )
    dependencies = read(
        _tree.dependencies,
        http=f"GET {_ONE}/dependencies",
        cli="dep list",
        help="List what a task waits for, and what waits for it.",
        examples=("holdfast dep list hf-3m9x",),
    )

    graph = read(
        _graph.graph,
        http="GET /api/tasks/graph",
        heavy=True,
        listing=True,
        cli="graph [ROOT]",
        help="Show what waits for what: the longest chain, what holds up most.",
        examples=(example("holdfast graph", "holdfast dep add hf-3m9x hf-7k2q"), "holdfast graph hf-7k2q --json"),
        arguments={"root": "only the tasks around this one", "include_closed": "also closed tasks"},
    )
    as_of = read(
        _past.as_of,
        http=f"GET {_ONE}/as-of",
        listing=True,
        cli="as-of ID REVISION",
        help="Show a task as it was at a revision.",
        examples=(example("holdfast as-of hf-7k2q 2", _CLAIM),),
        arguments={"revision": "the revision, as `history` and `log` print it"},
    )
    history = read(
        _queries.history,
        http=f"GET {_ONE}/history",
        listing=True,
        cli="history",
        help="List what changed in a task, newest first.",
        examples=(example("holdfast history hf-7k2q --field status", _CLAIM), "holdfast history hf-7k2q --since 12h"),
        mcp="task_show",
    )
    resume = read(
        _queries.resume,
        http=f"GET {_ONE}/resume",
        listing=True,
        cli="resume",
        help="Show where work on a task stopped: holder, notes, locks, mail, events.",
        examples=("holdfast resume hf-7k2q", "holdfast resume hf-7k2q --budget 2000 --json"),
        mcp="task_show",
    )
    explain = read(
        _tree.explain,
        http=f"GET {_ONE}/explain",
        listing=True,
        cli="explain",
        help="Say whether a task is ready, and if not, why.",
        examples=(example("holdfast explain hf-3m9x", "holdfast dep add hf-3m9x hf-7k2q"),),
        mcp="task_show",
    )
    delete = write(
        _changes.delete,
        http=f"DELETE {_ONE}",
        cli="delete ID [REASON]",
        help="Delete a task and all below it; undelete brings them back.",
        examples=("holdfast delete hf-3m9x 'made by mistake'",),
    )
    restore = write(
        _changes.restore,
        http=f"POST {_ONE}/restore",
        cli="undelete",
        help="Bring back a deleted task, with what was deleted along with it.",
        examples=(example("holdfast undelete hf-3m9x", "holdfast delete hf-3m9x"),),
        mcp="task_update",
    )
    purge = write(
        _changes.purge,
        http=f"POST {_ONE}/purge",
        cli="purge",
        help="Remove a task and all below it for good, after a backup.",
        examples=("holdfast purge hf-3m9x",),
        role="admin",
        irreversible=True,
    )
    sweep_retention = procedure(
        _changes.sweep_retention, http="POST /api/tasks/sweep-retention", heavy=True, reloads_rules=True, role="admin"
    )

    export = read(export, http="GET /api/tasks/export", heavy=True, listing=True, cli="export")
    import_ = procedure(import_, http="POST /api/tasks/import", heavy=True, reloads_rules=True, cli="import")
    bulk = write(
        _changes.bulk,
        http="POST /api/tasks/bulk",
        heavy=True,
        reloads_rules=True,
        cli="bulk ACTION [TASK_IDS...]",
        help="Do the same to many tasks, or create many; tell what became of each.",
        examples=(
            "holdfast bulk add_tags hf-7k2q hf-3m9x --tag core --tag parser",
            """holdfast bulk create --tasks '[{"title": "One"}, {"title": "Two"}]' --atomic""",
        ),
        shapes={"tasks": "tasks.create"},
    )
    set_template = write(
        _templates.set_template,
        http="PUT /api/templates/{name}",
        reloads_rules=True,
        cli="template set",
        help="Keep a tree of tasks as a template.",
        examples=(_TEMPLATE,),
        shapes={"tree": TemplateNode},
    )
    get_template = read(
        _templates.get_template,
        http="GET /api/templates/{name}",
        plain=True,
        cli="template show",
        help="Show a template.",
        examples=(example("holdfast template show release", _TEMPLATE),),
    )
    delete_template = write(
        _templates.delete_template,
        http="DELETE /api/templates/{name}",
        cli="template delete",
        help="Forget a template; tasks made from it stay.",
        examples=(example("holdfast template delete release", _TEMPLATE),),
    )
    from_template = write(
        _templates.from_template,
        http="POST /api/templates/{name}/tasks",
        reloads_rules=True,
        cli="template use NAME [VALUES...]",
        help="Make the tasks of a template; all of them, or none.",
        examples=(example("holdfast template use release version=1.2", _TEMPLATE),),
    )
    templates = read(
        _templates.list_templates,
        http="GET /api/templates",
        plain=True,
        cli="template list",
        help="List the templates.",
        examples=("holdfast template list",),
    )
