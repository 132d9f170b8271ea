"""`holdfast share`: tasks that travel with the repository, in holdfast.jsonl at the root of a worktree.

The workspace is the truth on a machine; the file is how two machines meet without a server. It is written by this
command and by the pre-commit hook, always as everything that is known here joined with everything that is in the file,
so a merge, or a clone without the hook, loses nothing. `init`, `next` and `prime` read it where it changed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast import errors
from holdfast.domains.tasks import Tasks
from holdfast.faces.cli import location
from holdfast.faces.cli.args import Argument, Usage
from holdfast.faces.cli.call import Session, perform
from holdfast.faces.cli.command import Command, command
from holdfast.faces.cli.commands.transfer import all_lines, read_lines, write_lines
from holdfast.faces.cli.derive import derive
from holdfast.faces.cli.output import bar, printable
from holdfast.filesystem import write_private
from holdfast.interchange.jsonl import refusal
from holdfast.interchange.slices import BYTES, LINES, problems_of
from holdfast.types import ImportProblem, counted
from holdfast.types.tasks import SharedReport, Sharing

if TYPE_CHECKING:
    import subprocess

_ATTRIBUTES: Final = ".gitattributes"
_UNION: Final = f"{location.SHARED} merge=union"
_MEND: Final = "correct the file, or lose what is damaged: holdfast {} --skip-bad"
_IN_THE_WAY: Final = "move it out of the way; holdfast share writes the file again"
_CHOSEN: Final = "next-index-"  # begins the name of the index of `git commit FILE`
_MOST: Final = 20  # warnings that are printed
_PUBLIC: Final = (
    "what becomes public with the repository: tasks with their titles,",
    "bodies, tags, links, references and dates, and templates{more};",
    "never claims, tokens, cells, mail or locks{never}",
)


@command(
    "share",
    Argument("skip_bad", "flag", help="lose the damaged lines of the file"),
    Argument("staged", "flag", help="called by the pre-commit hook: add the file to the commit too"),
    more="The file is read by init, next and prime. holdfast setup git installs the hook that writes it before each\n"
    "commit. What was committed once stays in git's history, also after off or purge.",
    op=Tasks.merge_shared,
)
def share(session: Session, given: dict[str, Any]) -> int:
    """Write the shared tasks to holdfast.jsonl now, joined with what is in it."""
    staged = bool(given.get("staged"))
    if staged and not _goes_along(session):
        return 0
    path = _file(session)
    with session.open() as workspace:
        if workspace.tasks.sharing().on is not True:
            if staged:
                return 0
            raise errors.Invalid("the tasks of this workspace are not shared", hint="holdfast share on")
        report = _merge(session, workspace, path, bool(given.get("skip_bad")))
        count = _write(session, workspace, path)
    if staged:
        _add(path)
    else:
        session.out.say(
            {"file": path, "lines": count, "report": report}, *_said(report), f"{counted(count, 'lines')} in {path}"
        )
    session.wrote()
    return 0


@command(
    "share on",
    Argument("notes", "flag", help="also notes and results"),
    Argument("no_notes", "flag", help="no more notes and results, from now on"),
    Argument("authors", "flag", help="also the names of authors and assignees"),
    Argument("no_authors", "flag", help="no more names, from now on"),
    Argument("skip_bad", "flag", help="lose the damaged lines of a file that came with the repository"),
    more="The first use lists what becomes public. What was shared once stays in the file, in the other clones and\n"
    "in git's history: --no-notes and --no-authors only keep back what is new.",
    op=Tasks.set_sharing,
)
def share_on(session: Session, given: dict[str, Any]) -> int:
    """Let the tasks of this workspace travel with the repository, from now on."""
    path = _file(session)
    notes, authors = _choice(given, "notes"), _choice(given, "authors")
    if os.path.exists(path):
        _make_workspace(session)
    with session.open(writing=True) as workspace:
        before = workspace.tasks.sharing()
        report = _merge(session, workspace, path, bool(given.get("skip_bad")), on="share on")
        after = workspace.tasks.set_sharing(True, notes=notes, authors=authors)
        workspace.tasks.merge_shared()
        count = _write(session, workspace, path)
    wrote_rule = _attribute(os.path.dirname(path))
    lines = [*(() if before.on else _public(after)), *_changed(before, after), *_said(report)]
    lines.append(f"{counted(count, 'lines')} in {path}")
    lines += [f"{_ATTRIBUTES} lets git keep the lines of both sides"] if wrote_rule else []
    lines += _left_to_do(os.path.dirname(path))
    session.out.say({"file": path, "lines": count, "report": report, "sharing": after}, *lines)
    session.wrote()
    return 0


@command("share off", op=Tasks.set_sharing)
def share_off(session: Session, given: dict[str, Any]) -> int:
    """Neither write nor read the file any more; git keeps what was committed."""
    with session.open() as workspace:
        found = workspace.tasks.set_sharing(False)
    session.out.say(found, "tasks are no longer shared; what was committed stays in git's history")
    session.wrote()
    return 0


def _left_to_do(root: str) -> list[str]:
    """What has to be done for the file to travel."""
    from pathlib import Path

    from holdfast.faces.cli.setup.probe import is_installed

    steps = [] if is_installed("git", Path(root)) else ["holdfast setup git"]
    if _git_says(root, "status", "--porcelain", "--", location.SHARED, _ATTRIBUTES):
        steps += [f"git add {location.SHARED} {_ATTRIBUTES}", "git commit"]
    return [f"next: {'; '.join(steps)}"] if steps else []


def _choice(given: dict[str, Any], name: str) -> bool | None:
    """What an option and its opposite say; None if neither was given."""
    if given.get(name) and given.get(f"no_{name}"):
        raise Usage(f"--{name} and --no-{name} exclude each other")
    return True if given.get(name) else False if given.get(f"no_{name}") else None


def _changed(before: Sharing, after: Sharing) -> list[str]:
    """What becomes public too, or no longer, and what of it stays public."""
    what = (("notes and results", before.notes, after.notes), ("names of authors", before.authors, after.authors))
    gone = [text for text, was, now in what if was and not now]
    new = [text for text, was, now in what if now and not was and before.on]
    lines = [f"{' and '.join(new)} become public too, also those from before"] if new else []
    if gone:
        lines.append(f"no new {' and '.join(gone)} become public;")
        lines.append("what was shared stays in the file and in git's history")
    return lines


def _public(sharing: Sharing) -> list[str]:
    """What everybody sees who sees the repository."""
    more = [text for text, on in (("notes and results", sharing.notes), ("names of authors", sharing.authors)) if on]
    never = [text for text, on in (("notes", sharing.notes), ("names of authors", sharing.authors)) if not on]
    words = {
        "more": f", with {' and '.join(more)}" if more else "",
        "never": ";" if never else "",
    }
    lines = [line.format_map(words) for line in _PUBLIC]
    return [*lines, f"{' and '.join(never)} only if asked for: holdfast help share"] if never else lines


@command("share status", op=Tasks.sharing)
def share_status(session: Session, given: dict[str, Any]) -> int:
    """Print whether tasks are shared, which were renamed, and what is left out."""
    root = location.git_root(session.folder)
    with session.open() as workspace:
        found = workspace.tasks.sharing()
    state = {True: "on", False: "off", None: "not decided: files are read, and none is written"}[found.on]
    more = [name for name, on in (("notes", found.notes), ("authors", found.authors)) if on]
    lines = [f"sharing    {state}{', with ' + ' and '.join(more) if more else ''}"]
    if root is not None:
        path = os.path.join(root, location.SHARED)
        there = "" if os.path.exists(path) else "; there is none yet"
        lines.append(f"file       {path}{there}")
    for old, new in found.renamed.items():
        lines.append(f"renamed    {old}: {', '.join(new)}, younger than the task that keeps the id")
    for id, said in found.left_out.items():
        lines += [f"left out   {id}: {each}" for each in said]
    session.out.say(found, *map(printable, lines))
    return 0


# --- the file --------------------------------------------------------------------------------------------------------


def _file(session: Session) -> str:
    root = location.git_root(session.folder)
    if root is None:
        raise Usage("holdfast share needs a git worktree", hint="run it inside one, or use holdfast export")
    return os.path.join(root, location.SHARED)


def read_file(session: Session) -> None:
    """Read the file of this worktree into the repository's own workspace, which is made if need be, and say so.

    A line that cannot be read stops nobody from working: the others are read, and it is reported until it is mended.
    """
    path = _file(session)
    _make_workspace(session)
    with session.open_local() as workspace:
        on = workspace.tasks.sharing().on
        if on is False:
            return
        try:
            report = _merge(session, workspace, path, True)
        except errors.HoldfastError as error:
            session.out.warn(f"{path} was not read: {error.message}", error.hint or "")
            return
    if report.problems:
        first = min(report.problems, key=lambda problem: problem.line)
        bad = f"{counted(len(report.problems), 'lines')} of {path} could not be read; {first}"
        session.out.warn(bad, _MEND.format("share" if on else "share on"))
        report.problems = []
    lines = _said(report)
    if lines:
        session.out.note(f"read {path}", "\n  ".join(lines))
        session.wrote()


def _make_workspace(session: Session) -> None:
    """Make the repository's own workspace, for the tasks that came with it, if there is none."""
    if session.find_place() is None:
        from holdfast.workspace import open_workspace

        folder = location.home(session.folder)
        open_workspace(folder, actor=session.actor).close()
        session.out.note(f"made a workspace in {folder}, for the tasks that came with the repository")


def _merge(session: Session, workspace: Any, path: str, skip_bad: bool, on: str = "share") -> SharedReport:
    """Join what the file says with what is known here, in slices that let others write; returns what that changed."""
    whole = SharedReport()
    state = location.share_state(path)
    lines, bad = ([], []) if state is None else read_lines(path, _IN_THE_WAY)
    whole.problems += bad
    known = set(all_lines(workspace.tasks.shared_lines)) if lines else set()
    new = [(number, line) for number, line in enumerate(lines, 1) if line not in known]
    problems = [] if skip_bad else list(bad)
    with bar("share", workspace):
        for part in _slices(new) or [[]]:
            try:
                report = workspace.tasks.merge_shared([line for _, line in part], skip_bad=skip_bad)
            except errors.Invalid as error:
                problems += [_placed(problem, part) for problem in problems_of(error)]
                continue
            report.problems = [_placed(problem, part) for problem in report.problems]
            for field in whole.__struct_fields__:
                old = getattr(whole, field)
                old.update(report.renamed) if field == "renamed" else old.extend(getattr(report, field))
    if problems:
        refused = refusal(sorted(problems, key=lambda problem: problem.line))
        refused.hint = _MEND.format(on)
        raise refused
    if state is not None and session.place.folder is not None and not whole.problems:
        write_private(location.share_mark(session.place.folder, path), state.encode())
    return whole


def _placed(problem: ImportProblem, part: list[tuple[int, str]]) -> ImportProblem:
    """A problem with the number that its line has in the file."""
    return msgspec.structs.replace(problem, line=part[problem.line - 1][0])


def _slices(lines: list[tuple[int, str]]) -> list[list[tuple[int, str]]]:
    """Lines in parts that are small enough for a request, and for others who wait to write."""
    parts: list[list[tuple[int, str]]] = []
    size = 0
    for line in lines:
        size += len(line[1]) * 2
        if not parts or len(parts[-1]) == LINES or size > BYTES:
            parts.append([])
            size = len(line[1]) * 2
        parts[-1].append(line)
    return parts


def _write(session: Session, workspace: Any, path: str) -> int:
    """Replace the file at once, unless it is what it has to be already."""
    lines = [*all_lines(workspace.tasks.shared_lines)]
    content = "".join(f"{line}\n" for line in lines).encode()
    try:
        with open(path, "rb") as file:
            same = file.read() == content
    except FileNotFoundError:
        same = False
    if not same:
        _remove_drafts(path)
        write_lines(path, iter(lines), replace=True)
    state = location.share_state(path)
    if session.place.folder is not None and state is not None:
        write_private(location.share_mark(session.place.folder, path), state.encode())
    return len(lines)


def _remove_drafts(path: str) -> None:
    """Remove what processes left that were killed while they wrote."""
    folder, name = os.path.split(path)
    for each in os.listdir(folder):
        if each.startswith(f"{name}.") and each.endswith(".partial"):
            number = each.removeprefix(f"{name}.").removesuffix(".partial")
            if number.isdigit() and not _lives(int(number)):
                os.unlink(os.path.join(folder, each))


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        return True
    return True


def _attribute(root: str) -> bool:
    """Have git keep the lines of both sides when it merges, in a file that is replaced at once; False if it does so."""
    from pathlib import Path

    from holdfast.faces.cli.setup import files

    file = files.look(Path(root, _ATTRIBUTES), [Path(root)])
    old = file.text or ""
    if _UNION in (line.strip() for line in old.splitlines()):
        return False
    end = "" if not old or old.endswith("\n") else "\n"
    files.write([files.Step(file, f"{old}{end}{_UNION}\n")])
    return True


def _goes_along(session: Session) -> bool:
    """Whether the commit that is being made takes the file along: it is tracked there, and no file was chosen.

    A branch that never had it, such as one without a past, stays without. `git commit FILE` commits just what it names,
    from an index of its own; git would not know of a file that a hook adds to that one.
    """
    place, root = session.find_place(), location.git_root(session.folder)
    if place is None or not place.exists or root is None:
        return False
    index = os.path.basename(session.environ.get("GIT_INDEX_FILE", ""))
    return not index.startswith(_CHOSEN) and _git(root, "ls-files", "--error-unmatch", "--", location.SHARED) is None


def _git(folder: str, *words: str) -> str | None:
    """What git says if it fails; None if it does not."""
    done = _run_git(folder, *words)
    return done.stderr.decode(errors="replace").strip() if done.returncode else None


def _git_says(folder: str, *words: str) -> str:
    """What git prints."""
    return _run_git(folder, *words).stdout.decode(errors="replace").strip()


def _run_git(folder: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    import subprocess

    return subprocess.run(["git", *words], cwd=folder, capture_output=True, check=False)


def _add(path: str) -> None:
    """Make the file a part of the commit that is being made."""
    folder, name = os.path.split(path)
    failed = _git(folder, "add", "--", name)
    if failed is not None:
        raise errors.Unavailable(
            f"git cannot add {name}: {failed}", hint="holdfast share off stops this, and correct what git says"
        )


def _said(report: SharedReport) -> list[str]:
    """What reading a file changed, in words."""
    counts = [
        f"{len(ids)} {what}"
        for what, ids in (("created", report.created), ("updated", report.updated), ("deleted", report.deleted))
        if ids
    ]
    lines = [f"tasks: {', '.join(counts)}"] if counts else []
    lines += [f"templates: {', '.join(report.templates)}"] if report.templates else []
    lines += [f"{old} is {new} now: an older task has its id" for old, new in report.renamed.items()]
    problems = [*report.warnings, *map(str, report.problems)]
    lines += problems[:_MOST]
    lines += [f"and {len(problems) - _MOST} more"] if len(problems) > _MOST else []
    return [printable(line) for line in lines]


# --- purge -----------------------------------------------------------------------------------------------------------


def _purge(session: Session, given: dict[str, Any]) -> int:
    code = perform(session, Tasks.purge, given)
    with session.open() as workspace:
        shared = workspace.tasks.sharing().on is not None
    if shared:
        session.out.warn(
            "git keeps what was committed of it", "only rewriting the history of the repository removes that"
        )
    return code


purge: Final[Command] = msgspec.structs.replace(derive(Tasks.purge), run=_purge)
