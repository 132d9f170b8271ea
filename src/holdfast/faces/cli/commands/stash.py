"""`holdfast stash export` and `import`: stashes, trails, links and tasks as a folder of JSON lines, a file per table.

The files are byte-stable, so git can compare and merge them; those of the original project can be imported too.
"""

from __future__ import annotations

import os
import stat
from functools import partial
from typing import Any, Final, get_args

from holdfast import errors
from holdfast.domains.stashes import Stashes
from holdfast.faces.cli.args import Argument
from holdfast.faces.cli.call import Session
from holdfast.faces.cli.command import command
from holdfast.faces.cli.commands.transfer import (
    ATOMIC,
    all_lines,
    conflict_code,
    decode_lines,
    import_all,
    records,
    write_lines,
)
from holdfast.types import ImportProblem
from holdfast.types.stashes import TransferTable

Tables = dict[str, list[str]]
_END: Final = ".jsonl"
_COMPARE: Final = "they stay as they are here; change one side so that it follows the other, and import again"


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
    ATOMIC,
    more="What changed here and in the folder is left alone, with exit code 9.",
    op=Stashes.import_,
)
def import_(session: Session, given: dict[str, Any]) -> int:
    """Import such a folder, after a backup, in slices of 500 lines.

    A dry run reports what would happen. Nothing is imported if a line is wrong. Run it again if it was interrupted.
    """
    from holdfast.interchange.slices import import_stashes

    tables, bad = _read(given.pop("folder"))
    report = import_all(
        session, given, bad, Stashes.import_, tables, import_stashes, lambda workspace: workspace.stashes
    )
    return conflict_code(session, report, _COMPARE)


def _read(folder: str) -> tuple[Tables, list[ImportProblem]]:
    """Every table of a folder, also unknown ones, which the import reports; and the lines that are not UTF-8."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(_END))
    except OSError as error:
        raise errors.NotFound(f"{folder} cannot be read: {error.strerror}") from error
    if not names:
        raise errors.NotFound(f"{folder} has no files of JSON lines", hint="stash export writes them")
    tables: Tables = {}
    bad: list[ImportProblem] = []
    for name in names:
        tables[name.removesuffix(_END)], wrong = decode_lines(_read_file(os.path.join(folder, name)), name)
        bad += wrong
    return tables, bad


def _read_file(path: str) -> bytes:
    """A regular file; reading a pipe could block."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise errors.Invalid(f"{path} is not a regular file", hint="take it out of the folder")
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise errors.NotFound(f"{path} cannot be read: {error.strerror}") from error
