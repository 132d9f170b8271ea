"""`holdfast export` and `holdfast import`: tasks as JSON lines, byte-stable; also those of beads."""

from __future__ import annotations

import codecs
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from holdfast import errors
from holdfast.domains.tasks import Tasks
from holdfast.faces.cli.args import Argument
from holdfast.faces.cli.call import Session
from holdfast.faces.cli.command import command
from holdfast.faces.cli.commands.store import snapshot
from holdfast.faces.cli.output import MOST_PROBLEMS, bar, printable
from holdfast.types import ImportProblem, Page, counted

if TYPE_CHECKING:
    from holdfast.operation import Operation


_OPENED: Final = ("/dev/fd/", "/proc/self/fd/", "/dev/stdin")
_INSTEAD: Final = "name a file, or - for standard input"
_PAGE: Final = 1000
_DIFFERENCES: Final = 20  # of a conflict
_PREFER: Final = "import --prefer theirs takes those in the file, --prefer ours keeps those here"
_CLAIMED: Final = "they are claimed here: import again when the claims have ended"


@command(
    "export",
    Argument("file", word=True, help="a new file; else, or with -, standard output"),
    Argument("include_deleted", "flag", help="also what was deleted"),
    Argument("format", choices=("holdfast", "beads"), help="holdfast or beads"),
    op=Tasks.export,
)
def export(session: Session, given: dict[str, Any]) -> int:
    """Write every task as a line of JSON.

    The same tasks make the same bytes.
    """
    with session.open() as workspace:
        how = {"include_deleted": bool(given.get("include_deleted")), "format": given.get("format", "holdfast")}
        lines = all_lines(partial(workspace.tasks.export, **how))
        if given.get("file", "-") == "-":
            for line in lines:
                print(line)
            return 0
        count = write_lines(given["file"], lines)
    session.out.say({"file": given["file"], "tasks": count}, f"{records(count, 'tasks')} in {given['file']}")
    return 0


def all_lines(export: Callable[..., Page[str]]) -> Iterator[str]:
    """Every line of an export, page by page."""
    page = export(limit=_PAGE)
    yield from page
    while page.cursor is not None:
        page = export(after=page.cursor, limit=_PAGE)
        yield from page


def write_lines(path: str, lines: Iterator[str], replace: bool = False) -> int:
    """Write a file whole or not at all; an existing one is an error unless `replace` is set."""
    if not replace and os.path.exists(path):
        raise errors.Exists(f"{path} exists", hint="choose a new file name")
    if not os.path.isdir(folder := os.path.dirname(os.path.abspath(path))):
        raise errors.NotFound(f"there is no folder {folder}", hint="make it first")
    partial, count = f"{path}.{os.getpid()}.partial", 0
    try:
        with open(partial, "x", encoding="utf-8", newline="\n") as file:
            for line in lines:
                file.write(f"{line}\n")
                count += 1
            file.flush()
            os.fsync(file.fileno())
        if replace:
            os.replace(partial, path)
        else:
            os.link(partial, path)
    except OSError as error:
        raise errors.IOFailed(f"{path} could not be written: {error.strerror}") from error
    finally:
        if os.path.exists(partial):
            os.unlink(partial)
    return count


ATOMIC: Final = Argument("atomic", "flag", help="in one transaction, which other writers wait for")


@command(
    "import",
    Argument("file", word=True, required=True, help="the file, or a folder of beads; - is standard input"),
    Argument(
        "format",
        choices=("holdfast", "beads", "github", "linear"),
        help="holdfast, beads, github or linear; else by what is in the file",
    ),
    Argument("prefer", choices=("ours", "theirs"), help="who wins if both have changed: ours or theirs"),
    Argument("dry_run", "flag", help="report what would happen, and change nothing"),
    Argument("skip_bad", "flag", help="leave out what is wrong"),
    ATOMIC,
    more="A task that changed here and in the file is left alone, with exit code 9. --prefer theirs takes the one in\n"
    "the file, --prefer ours keeps the one here, with exit code 0.",
    op=Tasks.import_,
)
def import_(session: Session, given: dict[str, Any]) -> int:
    """Import tasks from JSON lines or a file of another tracker, after a backup, in slices of 500.

    A dry run reports what would happen. Nothing is imported if a line is wrong. Run it again if it was interrupted.
    """
    from holdfast.interchange.slices import import_tasks

    lines, bad = _read_tracker(given.pop("file"), given)
    report = import_all(session, given, bad, Tasks.import_, lines, import_tasks, lambda workspace: workspace.tasks)
    prefer = given.get("prefer")
    return 0 if prefer == "ours" else conflict_code(session, report, _CLAIMED if prefer else _PREFER)


def import_all(
    session: Session,
    given: dict[str, Any],
    bad: list[ImportProblem],
    op: Operation[..., Any],
    what: Any,
    in_slices: Callable[..., Any],
    domain: Callable[[Any], Any],
) -> Any:
    """Import files in slices, or in one call; `bad` are lines that cannot be sent. Prints and returns the report."""
    atomic = given.pop("atomic", False) or "key" in session.given  # a key belongs to one call
    before = nullcontext() if given.get("dry_run") else snapshot(session)
    with before, session.open(writing=True) as workspace, bar("import", workspace):

        def call(**how: Any) -> Any:
            return domain(workspace).import_(what, **how, atomic=True) if atomic else in_slices(workspace, what, **how)

        if bad and not given.get("skip_bad"):
            from holdfast.interchange.jsonl import refusal

            raise refusal([*bad, *_refused(call, given)])
        report = call(**given)
    report.skipped[:0] = bad
    report_import(session, op, report)
    return report


def conflict_code(session: Session, report: Any, advice: str) -> int:
    """The exit code of an import, dry or not: 9 if something is in conflict, which is left alone; says what to do."""
    if not report.conflicts:
        return 0
    if not session.out.json:
        print(f"holdfast: {len(report.conflicts)} in conflict; {advice}", file=sys.stderr)
    return errors.VersionMismatch.exit_code


def _refused(call: Callable[..., Any], given: dict[str, Any]) -> list[ImportProblem]:
    """The problems that a dry run finds."""
    try:
        call(**given | {"dry_run": True})
    except errors.Invalid as refused:
        return list(refused.details.get("problems") or ())
    return []


def report_import(session: Session, op: Operation[..., Any], report: Any) -> None:
    """Print the report of an import, which has changed the workspace unless it was a dry run."""
    if session.out.json or session.out.quiet:
        session.out.result(op, report)
    else:
        session.out.text(*report_lines(report))
    if not report.dry_run:
        session.wrote()


def read_lines(path: str, instead: str = _INSTEAD) -> tuple[list[str], list[ImportProblem]]:
    """The lines of a file, and those of them that are not UTF-8; - is standard input.

    Raises Invalid for what is no regular file: a named pipe without a writer would never answer. What the shell opened,
    as in <(command), has one.
    """
    try:
        if path == "-":
            return decode_lines(sys.stdin.buffer.read())
        if not stat.S_ISREG(os.stat(path).st_mode) and not path.startswith(_OPENED):
            raise errors.Invalid(f"{path} is not a regular file", hint=instead)
        with open(path, "rb") as file:
            return decode_lines(file.read())
    except OSError as error:
        raise errors.NotFound(f"{path} cannot be read: {error.strerror}") from error


def _read_tracker(path: str, given: dict[str, Any]) -> tuple[list[str], list[ImportProblem]]:
    """The lines of a file or of a folder of beads; the format is recognised if none was given."""
    from holdfast.interchange import trackers

    if os.path.isdir(path):
        if given.setdefault("format", "beads") != "beads":
            raise errors.Invalid(f"{path} is a folder, and only beads has those", hint="name a file")
        path = trackers.beads_file(path)
    lines, bad = read_lines(path)
    given["format"] = given.get("format") or trackers.recognise(lines)
    deletions = os.path.join(os.path.dirname(os.path.abspath(path)), trackers.DELETIONS)
    if given["format"] == "beads" and path != "-" and os.path.isfile(deletions):
        gone, wrong = read_lines(deletions)
        if wrong:
            raise errors.Invalid(f"{deletions}: {wrong[0]}", hint="correct it, or move it elsewhere")
        return trackers.without_deleted(lines, gone), bad
    return trackers.lines_of(lines, given["format"]), bad


def decode_lines(data: bytes, name: str = "") -> tuple[list[str], list[ImportProblem]]:
    """The lines of a file, and a problem for each that is not UTF-8; a blank one replaces it.

    Lines end with a newline alone: texts hold other separators. A byte order mark is no part of the first.
    """
    lines, bad = list[str](), list[ImportProblem]()
    data = data.removeprefix(codecs.BOM_UTF8)
    for number, line in enumerate(data.removesuffix(b"\n").split(b"\n") if data else (), 1):
        try:
            lines.append(line.removesuffix(b"\r").decode())
        except UnicodeDecodeError as error:
            lines.append("")
            bad.append(ImportProblem(number, None, "error", f"not UTF-8 at byte {error.start + 1}", name))
    return lines, bad


def report_lines(report: Any) -> list[str]:
    """The report of an import as text: counts by table, of what was left out, then every problem."""
    would = "would be " if report.dry_run else ""
    lines = []
    for name in ("created", "updated", "unchanged"):
        counts = [records(len(ids), table) for table, ids in getattr(report, name).items() if ids]
        lines += [f"{would}{name}: {', '.join(counts)}"] if counts else []
    lines += left_out(report)
    return [*(lines or ["nothing to import"]), *problem_lines(report)]


def records(count: int, table: str) -> str:
    """A number of records of a table."""
    return counted(count, "stash history entries" if table == "stash_history" else table)


def left_out(report: Any, unit: str = "lines") -> list[str]:
    """How much was skipped or is in conflict, in a line; none if nothing is."""
    would = "would be " if report.dry_run else ""
    skipped, conflicts = len(report.skipped), len(report.conflicts)
    counts = [f"{counted(skipped, unit)} {would}skipped"] if skipped else []
    counts += [counted(conflicts, "conflicts")] if conflicts else []
    return [", ".join(counts)] if counts else []


def problem_lines(report: Any) -> Iterator[str]:
    """Conflicts, with their differences, what was skipped, and warnings: of each the first, and how many more."""
    for name in ("conflicts", "skipped", "warnings"):
        problems = getattr(report, name)
        for problem in problems[:MOST_PROBLEMS]:
            yield printable(str(problem))
            yield from difference_lines(problem.differences)
        if len(problems) > MOST_PROBLEMS:
            yield f"and {len(problems) - MOST_PROBLEMS} more {name}; --json has all"


def difference_lines(differences: dict[str, str]) -> Iterator[str]:
    """Where the two sides of a conflict differ."""
    yield from (printable(f"  {path}: {message}") for path, message in [*differences.items()][:_DIFFERENCES])
    if len(differences) > _DIFFERENCES:
        yield f"  and {len(differences) - _DIFFERENCES} more; --json has all"
