"""`holdfast stash export` and `holdfast stash import`: stashes with their history, trails, links and tasks as a folder.

The folder has a file of JSON lines for each table, byte-stable, as git likes them; also those of the original project.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Any, Final, get_args

from holdfast import errors
from holdfast.faces.cli.bars import bar
from holdfast.faces.cli.command import Command
from holdfast.faces.cli.commands.backups import snapshot
from holdfast.faces.cli.commands.transfer import write_lines
from holdfast.faces.cli.output import printable
from holdfast.faces.cli.parts import Tables, parts
from holdfast.faces.cli.performing import after_writing
from holdfast.faces.cli.session import Session
from holdfast.faces.cli.words import Argument
from holdfast.ops import operation
from holdfast.types.stashes import TransferTable
from holdfast.types.tasks import ImportProblem

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
    tables, bad = _read(given.pop("folder"))
    shares = parts(tables) if session.place.folder is None else [tables]
    if len(shares) > 1 and session.given.get("key"):
        raise errors.Invalid(f"--key is for one call, and this folder needs {len(shares)}", hint="leave it out")
    if not given.get("dry_run"):
        snapshot(session)
    with session.open(writing=True) as workspace, bar("import", workspace):
        if (bad or len(shares) > 1) and not given.get("skip_bad"):
            _check_all(workspace, shares, bad)
        report = _import(workspace, shares, given)
    report.skipped[:0] = bad
    if session.out.json or session.out.quiet:
        session.out.result(operation("stashes.import_"), report)
    else:
        session.out.text(*_told(report))
    if not report.dry_run:
        after_writing(session)
    return 0


def _check_all(workspace: Any, shares: list[Tables], bad: list[ImportProblem]) -> None:
    """Invalid with every bad line of a folder, before anything of it is imported."""
    problems = [*bad]
    for share in shares:
        try:
            workspace.stashes.import_(share, dry_run=True)
        except errors.Invalid as refusal:
            problems += refusal.details.get("problems") or []
            if not refusal.details.get("problems"):
                raise
    if problems:
        raise errors.Invalid(
            f"{len(problems)} lines cannot be imported; {problems[0]}",
            hint="put them right, or pass skip_bad=True to leave them out",
            problems=problems,
        )


def _import(workspace: Any, shares: list[Tables], given: dict[str, Any]) -> Any:
    """Import a folder, in parts if a server has to take it so; each is done whole, and doing all again does no harm."""
    whole: Any = None
    for done, share in enumerate(shares):
        try:
            report = workspace.stashes.import_(share, **given)
        except errors.HoldfastError as error:
            if done:
                error.message = f"{done} of {len(shares)} parts were imported, then: {error.message}"
            raise
        if whole is None:
            whole = report
            continue
        for name in ("created", "updated", "unchanged"):
            for table, ids in getattr(report, name).items():
                getattr(whole, name).setdefault(table, []).extend(ids)
        for name in ("conflicts", "skipped", "warnings"):
            getattr(whole, name).extend(getattr(report, name))
    return whole


def _read(folder: str) -> tuple[Tables, list[ImportProblem]]:
    """Every table of a folder, also those that have no place here: so that they are told of; and what is no text.

    Such a line is a blank one, so that those after it keep their numbers.
    """
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(_END))
    except OSError as error:
        raise errors.NotFound(f"{folder} cannot be read: {error.strerror}") from error
    if not names:
        raise errors.NotFound(f"{folder} has no files of JSON lines", hint="stash export writes them")
    tables: Tables = {}
    bad: list[ImportProblem] = []
    for name in names:
        lines = tables[name.removesuffix(_END)] = []
        for number, line in enumerate(_read_file(os.path.join(folder, name)), 1):
            try:
                lines.append(line.decode())
            except UnicodeDecodeError as error:
                lines.append("")
                bad.append(ImportProblem(number, None, "error", f"not UTF-8 at byte {error.start + 1}", name))
    return tables, bad


def _read_file(path: str) -> list[bytes]:
    """The lines of a file; anything else of that name, such as a pipe, would have us wait for whoever writes it."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise errors.Invalid(f"{path} is not a regular file", hint="take it out of the folder")
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise errors.NotFound(f"{path} cannot be read: {error.strerror}") from error
    return [line.removesuffix(b"\r") for line in data.removesuffix(b"\n").split(b"\n")] if data else []


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
