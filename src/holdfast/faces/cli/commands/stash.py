"""`holdfast stash export` and `holdfast stash import`: stashes with their history, trails, links and tasks as a folder.

The folder has a file of JSON lines for each table, byte-stable, as git likes them; also those of the original project.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final, get_args

from holdfast import errors
from holdfast.faces.cli.bars import bar
from holdfast.faces.cli.command import Command
from holdfast.faces.cli.commands.backups import snapshot
from holdfast.faces.cli.commands.transfer import read_lines, write_lines
from holdfast.faces.cli.output import printable
from holdfast.faces.cli.performing import after_writing
from holdfast.faces.cli.session import Session
from holdfast.faces.cli.words import Argument
from holdfast.ops import operation
from holdfast.types.stashes import TransferTable

_PAGE: Final = 1000
_END: Final = ".jsonl"
_ATTRIBUTES: Final = ".gitattributes"
_KEYS: Final = {  # what a page goes on after
    "crumbs": ("id",),
    "trails": ("trail_id",),
    "links": ("link_id",),
    "stashes": ("stash_id",),
    "stash_history": ("stash_id", "version"),
}


def export(session: Session, given: dict[str, Any]) -> int:
    """Write every table into a file of its own."""
    folder, replace = given["folder"], bool(given.get("replace"))
    files = {table: os.path.join(folder, f"{table}{_END}") for table in get_args(TransferTable)}
    there = [file for file in files.values() if os.path.exists(file)]
    if there and not replace:
        raise errors.Exists(f"{there[0]} exists", hint="choose a new folder, or --replace what an export wrote before")
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise errors.IOFailed(f"{folder} could not be made: {error.strerror}") from error
    with session.open() as workspace:
        counts = {table: write_lines(file, _lines(workspace, table), replace) for table, file in files.items()}
    _write_attributes(os.path.join(folder, _ATTRIBUTES))
    told = ", ".join(f"{count} {table.replace('_', ' ')}" for table, count in counts.items())
    session.out.say({"folder": folder, **counts}, f"{told} in {folder}")
    return 0


def _write_attributes(file: str) -> None:
    """Have git keep the lines of both sides of a merge; what the folder says about itself already is left alone."""
    if not os.path.lexists(file):
        write_lines(file, iter([f"*{_END} merge=union"]))


def _lines(workspace: Any, table: str) -> Iterator[str]:
    import msgspec

    after: str | None = None
    while page := workspace.stashes.export(table, after=after, limit=_PAGE):
        yield from page
        if len(page) < _PAGE:
            return
        last = msgspec.json.decode(page[-1])
        after = "/".join(str(last[key]) for key in _KEYS[table])


def take_in(session: Session, given: dict[str, Any]) -> int:
    """Import a folder, or tell what would happen; nothing is imported if a line is wrong."""
    tables = _read(given.pop("folder"))
    if not given.get("dry_run"):
        snapshot(session)
    with session.open(writing=True) as workspace, bar("import", workspace):
        report = workspace.stashes.import_(tables, **given)
    if session.out.json or session.out.quiet:
        session.out.result(operation("stashes.import_"), report)
    else:
        session.out.text(*_told(report))
    if not report.dry_run:
        after_writing(session)
    return 0


def _read(folder: str) -> dict[str, list[str]]:
    """Every table of a folder, also those that have no place here: so that they are told of."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(_END))
    except OSError as error:
        raise errors.NotFound(f"{folder} cannot be read: {error.strerror}") from error
    if not names:
        raise errors.NotFound(f"{folder} has no files of JSON lines", hint="stash export writes them")
    return {name.removesuffix(_END): read_lines(os.path.join(folder, name)) for name in names}


def _told(report: Any) -> list[str]:
    would = "would be " if report.dry_run else ""
    lines = []
    for name in ("created", "updated", "unchanged"):
        counts = [f"{len(ids)} {table.replace('_', ' ')}" for table, ids in getattr(report, name).items()]
        lines += [f"{would}{name}: {', '.join(counts)}"] if counts else []
    said = (*report.conflicts, *report.skipped, *report.warnings)
    return [*(lines or ["nothing to import"]), *(printable(str(each)) for each in said)]


COMMANDS = (
    Command(
        "stash export",
        "Write stashes, trails, links and tasks into a folder, a file for each table.",
        (
            Argument("folder", option="--folder", word=True, required=True, help="the folder; it is made if need be"),
            Argument("replace", "flag", "--replace", help="write over the files of an export before"),
        ),
        export,
    ),
    Command(
        "stash import",
        "Take in such a folder, after a backup; all of it or nothing.",
        (
            Argument("folder", option="--folder", word=True, required=True, help="the folder"),
            Argument("dry_run", "flag", "--dry-run", help="say what would happen, and do nothing"),
            Argument("skip_bad", "flag", "--skip-bad", help="leave out what is wrong, and what has no place here"),
        ),
        take_in,
        op="stashes.import_",
    ),
)
