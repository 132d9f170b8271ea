"""`holdfast turn init`, `status`, `check`, `lint`, `tasks` and `signal`; and what all turn commands share.

They work on the files of a working session and on nothing else: no workspace is looked for or opened, and nothing of it
is imported.

`check` and `lint` end with 0 when all is in order (warnings are), 1 when there are errors, and 2 when the ledger cannot
be read at all.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, get_args

import msgspec

from holdfast import turnfile
from holdfast.errors import HoldfastError, Invalid, NotFound
from holdfast.faces.cli.args import Argument, Usage
from holdfast.faces.cli.call import Session
from holdfast.faces.cli.command import Command
from holdfast.faces.cli.output import printable
from holdfast.turnfile import tasks
from holdfast.turnfile.ledger import newcomers, strangers
from holdfast.turnfile.model import FOLDER, FOLDER_VARIABLE, MAILBOX, PROJECTION, TURNFILE, SignalWord, Task
from holdfast.turnfile.report import Holding

DIR: Final = Argument("dir", option="--dir", of="FOLDER", help=f"of the session; else {FOLDER_VARIABLE}, ./{FOLDER}")
HOLDER: Final = Argument("holder", option="--holder", help="who edits; else --actor, HOLDFAST_ACTOR")
REASON: Final = Argument("reason", option="--reason", required=True, help="what for, in one line")
LEASE: Final = Argument("lease_revs", "int", "--lease-revs", of="N", help="how many revisions the lock outlives (2)")
WAITING: Final = (
    Argument("wait", "seconds", "--wait", of="SECONDS", help="between two looks at a lock in the way (30)"),
    Argument("no_wait", "flag", "--no-wait", help="do not wait, and ask nobody to decide"),
)
_OF_WORKSPACES: Final = ("url", "key", "fence", "at_least")


def session_of(session: Session, given: dict[str, Any]) -> turnfile.Session:
    """The working session that is meant; what there is to warn about is told."""
    for name in _OF_WORKSPACES:
        if session.given.get(name) is not None:
            option = name.replace("_", "-")
            raise Usage(f"--{option} is for workspaces, and holdfast turn works on files")
    chosen = given.pop("dir", None), session.given.get("dir")
    if "" in chosen:
        raise Usage("--dir is followed by a folder, and this one is empty")
    folder = chosen[0] or chosen[1] or session.environ.get(FOLDER_VARIABLE) or FOLDER
    found = turnfile.Session(os.path.join(session.folder, folder))
    for warning in found.warnings:
        print(f"holdfast: {printable(warning)}", file=sys.stderr)
    return found


def acting(session: Session, given: dict[str, Any], files: turnfile.Session, name: str = "holder") -> str:
    """Who acts, as the ledger spells the name."""
    who = given.pop(name, None) or session.actor
    if not who:
        also = f"--{name} NAME, " if name != "actor" else ""
        raise Usage("nobody said who acts", hint=f"{also}--actor NAME, or HOLDFAST_ACTOR=NAME in the environment")
    return files.read().turnfile.spelled(who)


def patience(given: dict[str, Any]) -> turnfile.Patience | None:
    """How to wait for a lock that is in the way; None is not at all."""
    wait, none = given.pop("wait", None), given.pop("no_wait", False)
    if none and wait is not None:
        raise Usage("--wait and --no-wait say the opposite of each other")
    if wait is not None and not 0 <= wait <= 86400:
        raise Usage("--wait is between 0 and a day")
    return None if none else turnfile.Patience() if wait is None else turnfile.Patience(wait=wait)


def completed(done: turnfile.Completion) -> dict[str, Any]:
    """What a transaction did, as data."""
    return {
        "lock_id": done.lock_id,
        "files": list(done.files),
        "revision": done.revision,
        "signal": done.signal_id,
        "warnings": [str(problem) for problem in done.warnings],
    }


def told(done: turnfile.Completion) -> str:
    """The completion note, as people read it."""
    files = ", ".join(done.files) or "nothing"
    under = f" under {done.lock_id}" if done.lock_id else ""
    return printable(f"wrote {files}{under}, revision {done.revision}")


def warn(problems: Iterable[turnfile.Problem]) -> list[str]:
    """Tell what was found beside, on standard error; answers it as data."""
    words = [str(problem) for problem in problems]
    for each in words:
        print(f"holdfast: {printable(each)}", file=sys.stderr)
    return words


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


def listed(session: Session, given: dict[str, Any]) -> int:
    """The tasks of the ledger."""
    found = session_of(session, given).read().turnfile.tasks
    found = tuple(task for task in found if given.get("all") or task.status != "done")
    session.out.say([msgspec.to_builtins(task) for task in found], *(printable(task_line(task)) for task in found))
    return 0


def add(session: Session, given: dict[str, Any]) -> int:
    """Add a task."""
    more = {name: given[name] for name in ("priority", "depends_on") if name in given}
    return _change(session, given, lambda files, id, who: tasks.add(files, id, given["description"], who, **more))


def claim(session: Session, given: dict[str, Any]) -> int:
    """Take a task."""
    return _change(session, given, tasks.claim)


def done(session: Session, given: dict[str, Any]) -> int:
    """Finish a task."""
    return _change(session, given, tasks.done)


def _change(session: Session, given: dict[str, Any], change: Callable[[turnfile.Session, str, str], Task]) -> int:
    files = session_of(session, given)
    actor = acting(session, given, files, "actor")
    new = newcomers(files.read(), actor)
    task = change(files, given["task"], actor)
    session.out.say({**msgspec.to_builtins(task), "warnings": warn(new)}, printable(task_line(task)))
    return 0


def signal(session: Session, given: dict[str, Any]) -> int:
    """Leave a signal."""
    files = session_of(session, given)
    sender, receiver = acting(session, given, files, "from"), given.get("to", "all")
    unknown = strangers(files.read(), sender, receiver)
    sent = tasks.signal(files, sender, receiver, given["word"], given.get("detail", ""))
    line = f"{sent.id}  {sent.sender} -> {sent.receiver}  {sent.signal}"
    session.out.say({**msgspec.to_builtins(sent), "warnings": warn(unknown)}, printable(line))
    return 0


_TASK = Argument("task", option="--task", word=True, required=True, help="its id in the ledger")


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
    Command(
        "turn tasks list",
        "List the tasks of the ledger that are not done.",
        (Argument("all", "flag", "--all", help="also those that are"), DIR),
        listed,
    ),
    Command(
        "turn tasks add",
        "Add a task that nobody owns yet.",
        (
            Argument("task", option="--task", word=True, required=True, help="its id: a new one"),
            Argument("description", option="--description", word=True, required=True, help="what to do, in one line"),
            Argument("priority", option="--priority", of="P", help="P0, P1 or P2 (P1)"),
            Argument(
                "depends_on", "texts", "--depends-on", of="TASK", help="done before it; may be given several times"
            ),
            DIR,
        ),
        add,
    ),
    Command("turn tasks claim", "Take a task whose dependencies are done.", (_TASK, DIR), claim),
    Command("turn tasks done", "Finish your task.", (_TASK, DIR), done),
    Command(
        "turn signal",
        "Leave a short word in the ledger, to an agent or to all.",
        (
            Argument("word", option="--word", word=True, required=True, choices=get_args(SignalWord), help="which"),
            Argument("detail", option="--detail", word=True, help="what about, in one line"),
            Argument("to", option="--to", help="who it is for (all)"),
            Argument("from", option="--from", help="who says it; else --actor, HOLDFAST_ACTOR"),
            DIR,
        ),
        signal,
    ),
)
