"""`ws.tasks`: work that exactly one agent does at a time. This module is the table of operations.

Every change of a task goes through `rows`. What is done to many tasks at once is in `sets`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast import errors
from holdfast.arguments import Meaning
from holdfast.domains.tasks import claims, creation, readiness, transitions
from holdfast.domains.tasks.rows import find, require, to_task
from holdfast.domains.tasks.sets import TaskSets
from holdfast.kernel.tx import Snapshot, Tx
from holdfast.kernel.validate import check_flag
from holdfast.operation import Found, M, procedure, read, read_as, write
from holdfast.route import ANY, Alias, Held, Late, example
from holdfast.types.tasks import Task

if TYPE_CHECKING:
    from holdfast.domains.tasks import changes as _changes
    from holdfast.domains.tasks import details as _details
    from holdfast.domains.tasks import graph as _graph
    from holdfast.domains.tasks import past as _past
    from holdfast.domains.tasks import queries as _queries
    from holdfast.domains.tasks import resume as _resume
    from holdfast.domains.tasks import tree as _tree
else:  # whoever claims and completes needs none of them
    _later = ("changes", "details", "graph", "past", "queries", "resume", "tree")
    _changes, _details, _graph, _past, _queries, _resume, _tree = (Late(f"holdfast.domains.tasks.{n}") for n in _later)

_ONE = "/api/tasks/{id}"


def get(snapshot: Snapshot, id: str, include_deleted: bool = False) -> Task:
    """Return a task by its id, or by any unambiguous prefix of it. Raises TaskNotFound, or InvalidID."""
    check_flag(include_deleted=include_deleted)
    return to_task(find(snapshot, id, deleted=include_deleted))


def probe(tx: Tx, id: str) -> Found | None:
    """What a condition of `txn` sees of a task: its status as value."""
    try:
        task = require(tx, id)
    except errors.TaskNotFound:
        return None
    return Found(task.version, task.status)


_CLAIM: Final = "holdfast claim hf-7k2q"
_BLOCKED: Final = (_CLAIM, "holdfast block hf-7k2q 'no grammar yet'")
_REVIEWED: Final = (_CLAIM, "holdfast done hf-7k2q --review")
_CLOSED: Final = (_CLAIM, "holdfast done hf-7k2q --no-review")
_REF: Final[dict[str, Meaning | str]] = {
    "value": Meaning("a name, a hash or an address", "text"),
    "kind": "branch, commit, pull_request or url; else guessed from the value",
}
_NOTES: Final = "echo 'Comments begin with a hash.' > notes.md"


class Tasks(TaskSets[M]):
    """`ws.tasks`."""

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
            "holdfast create 'Test the lexer' --depends-on hf-7k2q --assign agent-2 -p P1",
            "printf 'Write the parser\\n\\nSee the grammar.\\n' | holdfast create -",
        ),
        arguments={"assigned_to": Meaning("the agent who alone may claim it", option="--assign", names="agent")},
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
        help="List the unfinished tasks that fit every filter given.",
        examples=(
            "holdfast list --status open --status blocked --sort -updated",
            "holdfast list --mine",
            "holdfast list --claimed-by agent-1 --json",
        ),
        mcp="task_list",
    )
    ready = read_as(
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
        nothing=("no task has all of these words; word* finds what begins so",),
        examples=("holdfast search parser", "holdfast search 'pars*' --json"),
    )

    claim = write(
        claims.claim,
        http=f"POST {_ONE}/claim",
        reloads_rules=True,
        cli="claim",
        help="Claim a task by its id; exit code 12 if somebody has it.",
        arguments={"force": "although it is assigned to somebody else"},
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
    reclaim = write(
        claims.reclaim,
        http=f"POST {_ONE}/reclaim",
        cli="reclaim",
        help="Show a task that you still hold; exit code 12 if another agent does.",
        examples=(example("holdfast reclaim hf-7k2q", _CLAIM),),
        grants=True,
    )
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
        arguments={"force": "although children of it are not finished"},
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
        arguments={"force": "although children of it are not finished"},
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
        claims.close,
        http=f"POST {_ONE}/close",
        reloads_rules=True,
        cli="close ID [REASON]",
        help="Close a task that nobody else holds, whatever its status.",
        examples=("holdfast close hf-7k2q 'done by hand'", example("holdfast close hf-7k2q", *_BLOCKED)),
        frees=True,
        arguments={"force": "although somebody else holds it, or children of it are not finished"},
        mcp="task_update step=close",
    )
    cancel = write(
        transitions.cancel,
        http=f"POST {_ONE}/cancel",
        cli="cancel ID [REASON]",
        help="Close a task that nobody works on, such as a duplicate.",
        examples=("holdfast cancel hf-3m9x 'duplicate of hf-7k2q'", "holdfast cancel hf-7k2q --cascade"),
        arguments={
            "force": "although children of it are not finished",
            "cascade": "cancel also what is unfinished below it",
        },
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
    set_status = write(
        claims.set_status,
        http=f"PATCH {_ONE}/status",
        reloads_rules=True,
        cli="set-status ID STATUS",
        help="Move a task to a status, by the step that leads there.",
        examples=(
            "holdfast set-status hf-7k2q in_progress",
            example("holdfast set-status hf-7k2q closed --reason 'done by hand'", _CLAIM),
        ),
        arguments={"status": "open, in_progress, pending_merge, blocked or closed"},
    )
    release_stale_claims = procedure(
        claims.release_stale_claims,
        http="POST /api/tasks/release-stale-claims",
        admin_only={"timeout": ANY},
        cli="release-stale-claims",
        done=("reopened {result:tasks}",),
        help="Reopen the tasks whose claims have expired, and print how many.",
        examples=("holdfast release-stale-claims", "holdfast release-stale-claims --timeout 2h"),
        arguments={"timeout": Meaning("also claims not renewed for so long: 90, 90s, 15m, 2h", "seconds")},
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
        answers=True,
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

    assign = write(
        _details.assign,
        http=f"PUT {_ONE}/assignee",
        cli="assign ID ASSIGNEE",
        help="Let an agent alone claim a task.",
        examples=("holdfast assign hf-7k2q agent-2",),
        arguments={"assignee": Meaning("who is to do it", names="agent")},
    )
    unassign = write(
        _details.unassign,
        http=f"DELETE {_ONE}/assignee",
        cli="unassign",
        help="Let everybody claim a task again.",
        examples=(example("holdfast unassign hf-7k2q", "holdfast assign hf-7k2q agent-2"),),
    )
    defer = write(
        _details.defer,
        http=f"POST {_ONE}/defer",
        cli="defer ID UNTIL...",
        help="Let a task wait until a time; none ends the wait.",
        examples=("holdfast defer hf-7k2q 2d", example("holdfast defer hf-7k2q none", "holdfast defer hf-7k2q 2d")),
    )
    add_ref = write(
        _details.add_ref,
        http=f"POST {_ONE}/refs",
        cli="ref add ID VALUE",
        help="Note a branch, commit, pull request or address on a task.",
        examples=("holdfast ref add hf-7k2q parser/lexer", "holdfast ref add hf-7k2q 1a2b3c4 --kind commit"),
        arguments=_REF,
    )
    remove_ref = write(
        _details.remove_ref,
        http=f"DELETE {_ONE}/refs",
        answers=True,
        cli="ref remove ID VALUE",
        help="Remove a reference from a task.",
        examples=(example("holdfast ref remove hf-7k2q parser/lexer", "holdfast ref add hf-7k2q parser/lexer"),),
        arguments=_REF,
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
    ancestors = read(
        _tree.ancestors,
        http=f"GET {_ONE}/ancestors",
        cli="ancestors",
        help="List the tasks above a task, from its parent to the root.",
        examples=(example("holdfast ancestors hf-3m9x", "holdfast reparent hf-3m9x hf-7k2q"),),
    )
    children = read(
        _tree.children,
        http=f"GET {_ONE}/children",
        cli="children",
        help="List the tasks directly below a task.",
        examples=(example("holdfast children hf-7k2q", "holdfast reparent hf-3m9x hf-7k2q"),),
    )
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
        answers=True,
        cli="dep remove",
        help="Let a task wait for another no more.",
        examples=(example("holdfast dep remove hf-3m9x hf-7k2q", "holdfast dep add hf-3m9x hf-7k2q"),),
        mcp="task_update remove_depends_on",
    )
    dependencies = read(
        _tree.dependencies,
        http=f"GET {_ONE}/dependencies",
        cli="dep list",
        help="List what a task waits for, and what waits for it.",
        nothing=("{id} waits for nothing, and nothing waits for it",),
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
        _resume.resume,
        http=f"GET {_ONE}/resume",
        listing=True,
        cli="resume",
        help="Show where work on a task stopped: holder, notes, locks, mail, events.",
        examples=("holdfast resume hf-7k2q", "holdfast resume hf-7k2q --budget 2000 --json"),
        mcp="task_show",
    )
    explain = read_as(
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
        done=("deleted {result:tasks}; holdfast undelete {id} brings back what was deleted",),
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
        done=("purged {result:tasks}",),
        help="Remove a task and all below it for good, after a backup.",
        examples=("holdfast purge hf-3m9x --yes",),
        role="admin",
        irreversible="this removes {id} and all below it, with notes and history",
    )
