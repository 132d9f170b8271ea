"""`holdfast turn init`, `status`, `check` and `lint`: a new working session, and how one stands.

`check` and `lint` end with 0 when all is in order (warnings are), 1 when there are errors, and 2 when the ledger cannot
be read at all.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from holdfast import turnfile
from holdfast.errors import HoldfastError, Invalid, NotFound
from holdfast.faces.cli.command import Command
from holdfast.faces.cli.output import printable
from holdfast.faces.cli.session import Session
from holdfast.faces.cli.turning import DIR, session_of
from holdfast.faces.cli.words import Argument, Usage
from holdfast.turnfile.model import MAILBOX, PROJECTION, TURNFILE
from holdfast.turnfile.reporting import Holding

ERRORS: Final = 1
FATAL: Final = 2
_SIGNALS: Final = 5  # so many of the newest are shown
_TASKS: Final = 8
_PROBLEMS: Final = 8
_WIDE: Final = 110  # characters of a line that only reminds; the problems are whole


def init(session: Session, given: dict[str, Any]) -> int:
    """Make the files of a new session, or those that are missing."""
    files = session_of(session, given)
    if given.pop("missing", False):
        return _restore(session, given, files)
    project = given.get("project") or os.path.basename(os.path.dirname(files.folder.path)) or "project"
    agents = [name for each in given.get("agents", ()) for name in each.split(",")]
    ledger = turnfile.init(files, project, agents, given.get("maintainer", "maintainer"))
    told = {"folder": files.folder.path, "project": project, "agents": agents, "revision": ledger.revision}
    session.out.say(told, f"made {printable(files.folder.path)}: holdfast turn status shows it")
    return 0


def _restore(session: Session, given: dict[str, Any], files: turnfile.Session) -> int:
    if given:
        raise Usage("with --missing the names are those of the ledger", hint="holdfast turn init --missing")
    made = turnfile.restore(files)
    if MAILBOX in made and PROJECTION not in made:
        note = f"{PROJECTION} still tells what {MAILBOX} said; the next mail, or `turn mail export`, makes it anew"
        print(f"holdfast: {note}", file=sys.stderr)
    data = {"folder": files.folder.path, "files": made, "revision": files.read().revision}
    session.out.say(data, *(printable(f"made {path}") for path in made or ()), *([] if made else ["none missing"]))
    return 0


def status(session: Session, given: dict[str, Any]) -> int:
    """Who holds what, what is unread, what is wrong."""
    found = turnfile.status(session_of(session, given))
    data = {**msgspec.to_builtins(found), "problems": [_told(problem) for problem in found.problems]}
    session.out.say(data, *map(printable, _screen(found)))
    return 0


def _screen(found: turnfile.Status) -> Iterator[str]:
    yield f"{found.project} at revision {found.revision}, by {found.modified_by or 'nobody'}; {found.folder}"
    if found.active_phase or found.active_step:
        yield f"  now: {', '.join(part for part in (found.active_phase, found.active_step) if part)}"
    yield from _part("locks", [_lock_line(each, found.folder) for each in found.locks] or ["none"])
    unread = [f"{each.agent}: {each.unread}, the oldest {each.oldest}" for each in found.unread if each.unread]
    yield from _part("unread", unread or ["none"])
    yield from _part("tasks", _some([_short(task_line(task)) for task in found.tasks], _TASKS))
    newest = sorted(found.signals, key=lambda signal: signal.rev, reverse=True)[:_SIGNALS]
    signals = [f"{each.id}  {each.sender} -> {each.receiver}  {_said(each)}" for each in newest]
    yield from _part("signals", [_short(line) for line in signals])
    yield from _part("problems", _some([str(problem) for problem in found.problems], _PROBLEMS) or ["none"])


def _part(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield title
    for line in lines:
        yield f"  {line}"


def _some(lines: list[str], most: int) -> list[str]:
    return lines if len(lines) <= most else [*lines[:most], f"and {len(lines) - most} more"]


def _short(line: str) -> str:
    return line if len(line) <= _WIDE else f"{line[: _WIDE - 1]}…"


def _lock_line(holding: Holding, folder: str) -> str:
    lock, left = holding.lock, holding.revisions_left
    names = ", ".join(path.removeprefix(f"{os.path.basename(folder)}/") for path in lock.files)
    how = "stale: anybody may clear it" if holding.stale else f"{left} revision{'' if left == 1 else 's'} left"
    how += f", after {holding.beaten_by}" if holding.beaten_by else ""
    return f"{lock.id}  {lock.holder}  {names}  {how}  {lock.reason}".rstrip()


def task_line(task: turnfile.Task) -> str:
    """A task as one line."""
    return f"{task.id}  {task.priority}  {task.status}  {task.owner}  {task.description}".rstrip()


def _said(signal: turnfile.Signal) -> str:
    return f"{signal.signal}: {signal.detail}" if signal.detail else signal.signal


def check(session: Session, given: dict[str, Any]) -> int:
    """All that is wrong in the files of a session."""
    try:
        problems = turnfile.check(session_of(session, given))
    except (NotFound, Invalid) as error:
        return _fatal(session, error)
    fatal = any(p.file == TURNFILE and p.rule in ("missing", "unreadable") for p in problems)
    return _report(session, problems, fatal)


def lint(session: Session, given: dict[str, Any]) -> int:
    """All that is wrong in a ledger."""
    try:
        path = given.get("file")
        if path is None:
            files, name = session_of(session, given), TURNFILE
            text = files.texts([TURNFILE])[TURNFILE]
        else:
            name = os.path.basename(path)
            where = os.path.join(session.folder, os.path.dirname(path))
            text = turnfile.Session(where, worktree="own").folder.read(name)
        if text is None:
            raise NotFound(f"there is no {path or TURNFILE}", hint="holdfast turn init makes one")
    except (NotFound, Invalid) as error:
        return _fatal(session, error)
    problems = turnfile.lint(text, name)
    return _report(session, problems, any(problem.rule == "unreadable" for problem in problems))


def _fatal(session: Session, error: HoldfastError) -> int:
    session.out.error(error)
    return FATAL


def _report(session: Session, problems: Sequence[turnfile.Problem], fatal: bool) -> int:
    wrong = sum(problem.level == "error" for problem in problems)
    data = {"problems": [_told(problem) for problem in problems], "errors": wrong, "warnings": len(problems) - wrong}
    if session.out.json:
        session.out.data(data)
    else:
        session.out.text(*(printable(str(problem)) for problem in problems))
    return FATAL if fatal else ERRORS if wrong else 0


def _told(problem: turnfile.Problem) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(problem)
    return told


COMMANDS = (
    Command(
        "turn init",
        "Make a working session: ledger, mailbox, worklog, questions.",
        (
            DIR,
            Argument("project", option="--project", help="its name; else that of the folder above"),
            Argument("agents", "texts", "--agent", help="who works here; may be given several times"),
            Argument("maintainer", option="--maintainer", help="who decides (maintainer)"),
            Argument("missing", "flag", "--missing", help="only make, empty, the files that a session has lost"),
        ),
        init,
        "Files that are there already are never overwritten.",
    ),
    Command(
        "turn status",
        "Show who holds what and for how long, what is unread, what is wrong.",
        (DIR,),
        status,
    ),
    Command(
        "turn check",
        "Check all files of a session against each other.",
        (DIR,),
        check,
        "The exit code is 0 if all is in order, 1 if there are errors, 2 if the ledger cannot be read.",
    ),
    Command(
        "turn lint",
        "Check the ledger TURNFILE.yaml by itself.",
        (DIR, Argument("file", option="--file", word=True, help="another file than that of the folder")),
        lint,
        "The exit code is 0 if all is in order, 1 if there are errors, 2 if it cannot be read.",
    ),
)
