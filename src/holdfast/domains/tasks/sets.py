"""Operations on many tasks at once: export and import, bulk, templates, retention.

Import and export as JSON lines live in `interchange`, which is loaded by the first call that needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from holdfast import errors
from holdfast.arguments import Meaning
from holdfast.kernel.tx import Snapshot, Tx
from holdfast.kernel.validate import check_flag, check_limit
from holdfast.operation import Domain, M, Steps, procedure, read, write
from holdfast.route import LOADING, Late, example
from holdfast.types import ImportPart, ImportReport, Page
from holdfast.types.tasks import ExportFormat, ImportFormat, SharedReport, Sharing, Side, TemplateNode

if TYPE_CHECKING:
    from holdfast.domains.tasks import changes as _changes
    from holdfast.domains.tasks import templates as _templates
else:  # whoever claims and completes needs none of them
    _changes, _templates = (Late(f"holdfast.domains.tasks.{name}") for name in ("changes", "templates"))

MAX_EXPORT: Final = 1000  # lines of a page


def export(
    snapshot: Snapshot,
    after: str | None = None,
    limit: int = MAX_EXPORT,
    include_deleted: bool = False,
    format: ExportFormat = "holdfast",
) -> Page[str]:
    """Return a page of tasks as JSON lines in the order of creation; `after` is the cursor of the page before: an id.

    Links to deleted tasks are included only if the deleted tasks are. With format="beads" the lines are issues as beads
    reads them.
    """
    with LOADING:
        from holdfast.interchange import task_export

    return task_export.export(snapshot, after, limit, include_deleted, format)


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

        if format in ("github", "linear") or (part is None and _is_array(lines)):
            from holdfast.interchange.trackers import lines_of

            lines = lines_of(lines, format)
    return slices.steps(partial(import_in, format=format, prefer=prefer), lines, dry_run, skip_bad, part, atomic)


def _is_array(lines: Sequence[str]) -> bool:
    """Whether lines are those of one array of JSON, as some trackers print them."""
    return isinstance(lines, list | tuple) and bool(lines) and isinstance(lines[0], str) and lines[0][:1] == "["


def sharing(snapshot: Snapshot, id: str | None = None) -> Sharing:
    """Return how tasks travel with a repository, and what of them is not as the shared lines say.

    `id` asks only about the younger tasks that once had this id.
    """
    with LOADING:
        from holdfast.interchange import share_state

    return share_state.sharing(snapshot, id)


def set_sharing(tx: Tx, on: bool, notes: bool | None = None, authors: bool | None = None) -> Sharing:
    """Let tasks travel with a repository, or no more. What was written once, git keeps.

    Tasks, links, bodies, references and templates become public; with `notes` also notes and results, with `authors`
    the names of authors and assignees; None leaves these as they are. Claims, tokens, cells and mail never do.
    """
    check_flag(on=on)
    for name, flag in (("notes", notes), ("authors", authors)):
        if flag is not None:
            check_flag(**{name: flag})
    with LOADING:
        from holdfast.interchange import share_state

    return share_state.set_sharing(tx, on, notes, authors)


def shared_lines(snapshot: Snapshot, after: str = "", limit: int = MAX_EXPORT) -> Page[str]:
    """Return a page of the lines of holdfast.jsonl as of the last `merge_shared`; `after` is the cursor of a page."""
    check_limit(limit, MAX_EXPORT, "after")
    if not isinstance(after, str):
        raise errors.InvalidFilter(f"after must be the cursor of a page, not {after!r}")
    with LOADING:
        from holdfast.interchange import share_state

    return share_state.shared_lines(snapshot, after, limit)


def merge_shared(tx: Tx, lines: Sequence[str] = (), skip_bad: bool = False) -> SharedReport:
    """Join lines of holdfast.jsonl with what is here: the newer value of each field wins, whatever the order.

    Lines that were read before change nothing; without any, what changed here is made ready for `shared_lines`. A task
    that was finished elsewhere is taken from its holder, who is fenced. A damaged line refuses all (Invalid, with
    `problems`); `skip_bad` leaves it out.
    """
    with LOADING:
        from holdfast.interchange import share_merge

    return share_merge.merge_shared(tx, lines, skip_bad)


# What examples need.
_TEMPLATE: Final = (
    """holdfast template set release '{"title": "Release {version}", "children": [{"title": "Tag {version}"}]}'"""
    """ --parameters '{"version": null}'"""
)


class TaskSets(Domain[M]):
    """The part of `ws.tasks` that is about many tasks."""

    prefix = "tasks"
    sweep_retention = procedure(
        _changes.sweep_retention,
        http="POST /api/tasks/sweep-retention",
        heavy=True,
        reloads_rules=True,
        role="admin",
        cli="sweep-retention",
        help="Delete and purge the tasks whose time is over; print how many.",
        examples=("holdfast sweep-retention --dry-run",),
    )

    export = read(export, http="GET /api/tasks/export", heavy=True, listing=True, cli="export")
    import_ = procedure(import_, http="POST /api/tasks/import", heavy=True, reloads_rules=True, cli="import")
    sharing = read(sharing, http="GET /api/sharing", cli="share status")
    set_sharing = write(set_sharing, http="PUT /api/sharing", role="admin", cli="share on")
    shared_lines = read(
        shared_lines,
        http="GET /api/sharing/lines",
        heavy=True,
        listing=True,
        cli="share lines",
        help="Print the lines of the shared file as they were last joined.",
        examples=("holdfast share lines --limit 10",),
    )
    merge_shared = write(merge_shared, http="POST /api/sharing/lines", heavy=True, reloads_rules=True, cli="share")
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
        nothing=("there is no template {name}, so nothing was deleted",),
        done=("deleted the template {name}",),
        help="Forget a template; tasks made from it stay.",
        examples=(example("holdfast template delete release", _TEMPLATE),),
    )
    from_template = write(
        _templates.from_template,
        http="POST /api/templates/{name}/tasks",
        creates=True,
        reloads_rules=True,
        cli="template use NAME [VALUES...]",
        help="Make the tasks of a template; all of them, or none.",
        examples=(example("holdfast template use release version=1.2", _TEMPLATE),),
        arguments={"values": Meaning("NAME=VALUE for each parameter", "pairs")},
    )
    templates = read(
        _templates.list_templates,
        http="GET /api/templates",
        plain=True,
        cli="template list",
        nothing=("there are no templates",),
        help="List the templates.",
        examples=("holdfast template list",),
    )
