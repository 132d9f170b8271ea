"""`holdfast stash export` and `import`: stashes, trails, links and tasks as a folder of JSON lines, a file per table.

The files are byte-stable, so git can compare and merge them; those of the original project can be imported too. A
server takes a large folder in parts: records that name each other are in one part, and every part has all lines of
every table, those of other parts blank, so that problems name a line by its number in the file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, Final, get_args

import msgspec

from holdfast import errors
from holdfast.domains.stashes import Stashes
from holdfast.faces.cli.args import Argument
from holdfast.faces.cli.call import Session
from holdfast.faces.cli.command import command
from holdfast.faces.cli.commands.store import snapshot
from holdfast.faces.cli.commands.transfer import all_lines, records, report_import, write_lines
from holdfast.faces.cli.output import bar
from holdfast.types import ImportProblem, counted
from holdfast.types.stashes import TransferTable

MOST: Final = 3_500_000  # bytes of a part: a server takes 4 MiB, and a call has more than its lines
_NAMES: Final = (  # fields that name a record
    *("id", "crumb_id", "trail_id", "link_id", "stash_id", "from_id", "to_id", "parent_id", "deleted_with"),
    *("tasks", "depends_on", "discovered_from", "related"),
)
Tables = dict[str, list[str]]


def parts(tables: Tables, most: int = MOST) -> list[Tables]:
    """Split tables into parts. Raises TooLarge if lines that belong together are too large for one."""
    sizes = {(table, at): len(msgspec.json.encode(text)) for table, at, text in _part_lines(tables)}
    blank = 3 * len(sizes)
    if sum(sizes.values()) + blank <= most:
        return [tables]
    shares: list[list[tuple[str, int]]] = []
    left = 0  # bytes that the last share has room for
    for group in _groups(tables):
        size = sum(sizes[where] for where in group)
        if size + blank > most:
            table, at = group[0]
            raise errors.TooLarge(
                f"{len(group)} lines from {table}.jsonl line {at + 1} on belong together: too many for one request",
                hint="import them on the machine of the workspace, with --dir",
                limit=most,
            )
        if size > left:
            shares.append([])
            left = most - blank
        shares[-1] += group
        left -= size
    made = []
    for group in shares:
        part = {table: [""] * len(lines) for table, lines in tables.items()}
        for table, at in group:
            part[table][at] = tables[table][at]
        made.append(part)
    return made


def _part_lines(tables: Tables) -> Iterator[tuple[str, int, str]]:
    for table, lines in tables.items():
        for at, text in enumerate(lines):
            yield table, at, text


def _groups(tables: Tables) -> list[list[tuple[str, int]]]:
    """The lines that name each other, directly or by others."""
    leaders: dict[str, str] = {}

    def leader(name: str) -> str:
        while (above := leaders.setdefault(name, name)) != name:
            leaders[name] = leaders[above]
            name = above
        return name

    keys: dict[tuple[str, int], str] = {}
    for table, at, text in _part_lines(tables):
        names = [*_named(text)] or [f"{table}\n{at}"]
        keys[table, at] = names[0]
        for other in names[1:]:
            leaders[leader(other)] = leader(names[0])
    groups: dict[str, list[tuple[str, int]]] = {}
    for where, name in keys.items():
        groups.setdefault(leader(name), []).append(where)
    return list(groups.values())


def _named(text: str) -> Iterator[str]:
    try:
        raw: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return  # reported by the import
    if isinstance(raw, Mapping):
        for field in _NAMES:
            value = raw.get(field)
            yield from (each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str))


_END: Final = ".jsonl"


@command(
    "stash export",
    Argument("folder", word=True, required=True, help="the folder; it is made if need be"),
    Argument("replace", "flag", help="write over the files of an export before"),
)
def export(session: Session, given: dict[str, Any]) -> int:
    """Write stashes, trails, links and tasks into a folder, a file for each table."""
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
        pages = {table: partial(workspace.stashes.export, table) for table in files}
        lines = {table: all_lines(pages[table]) for table in files}
        counts = {table: write_lines(file, lines[table], replace) for table, file in files.items()}
    attributes = os.path.join(folder, ".gitattributes")
    if not os.path.lexists(attributes):  # git then keeps the lines of both sides of a merge
        write_lines(attributes, iter([f"*{_END} merge=union"]))
    summary = ", ".join(records(count, table) for table, count in counts.items())
    session.out.say({"folder": folder, **counts}, f"{summary} in {folder}")
    return 0


@command(
    "stash import",
    Argument("folder", word=True, required=True, help="the folder"),
    Argument("dry_run", "flag", help="report what would happen, and change nothing"),
    Argument("skip_bad", "flag", help="leave out bad lines and unknown tables"),
    op=Stashes.import_,
)
def import_(session: Session, given: dict[str, Any]) -> int:
    """Import such a folder, after a backup; all of it or nothing.

    A dry run reports what would happen. Nothing is imported if a line is wrong.
    """
    tables, bad = _read(given.pop("folder"))
    shares = parts(tables) if session.place.folder is None else [tables]
    if len(shares) > 1 and session.given.get("key"):
        raise errors.Invalid(f"--key is for one call, and this folder needs {len(shares)}", hint="leave it out")
    before = nullcontext() if given.get("dry_run") else snapshot(session)
    with before, session.open(writing=True) as workspace, bar("import", workspace):
        if (bad or len(shares) > 1) and not given.get("skip_bad"):
            _check_all(workspace, shares, bad)
        report = _import(workspace, shares, given)
    report.skipped[:0] = bad
    report_import(session, Stashes.import_, report)
    return 0


def _check_all(workspace: Any, shares: list[Tables], bad: list[ImportProblem]) -> None:
    """Raise Invalid with every bad line of a folder, before anything is imported."""
    problems = [*bad]
    for share in shares:
        try:
            workspace.stashes.import_(share, dry_run=True)
        except errors.Invalid as refusal:
            problems += refusal.details.get("problems") or []
            if not refusal.details.get("problems"):
                raise
    if problems:
        those = "it" if len(problems) == 1 else "them"
        raise errors.Invalid(
            f"{counted(len(problems), 'lines')} cannot be imported; {problems[0]}",
            hint=f"correct {those}, or pass skip_bad=True to leave {those} out",
            problems=problems,
        )


def _import(workspace: Any, shares: list[Tables], given: dict[str, Any]) -> Any:
    """Import a folder part by part, each whole or not at all; importing it again is harmless."""
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
                getattr(whole, name)[table].extend(ids)
        for name in ("conflicts", "skipped", "warnings"):
            getattr(whole, name).extend(getattr(report, name))
    return whole


def _read(folder: str) -> tuple[Tables, list[ImportProblem]]:
    """Every table of a folder, also unknown ones, which the import reports; and the lines that are not UTF-8.

    Such a line is replaced by a blank one, so that those after it keep their numbers.
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
    """The lines of a regular file; reading a pipe could block."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise errors.Invalid(f"{path} is not a regular file", hint="take it out of the folder")
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise errors.NotFound(f"{path} cannot be read: {error.strerror}") from error
    return [line.removesuffix(b"\r") for line in data.removesuffix(b"\n").split(b"\n")] if data else []
