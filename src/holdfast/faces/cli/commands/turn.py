"""`holdfast turn init`, `status`, `check`, `tidy`, `lint`, `tasks` and `signal`; and what all turn commands share.

They work on the files of a working session alone: no workspace is looked for, opened or imported. `check` and `lint`
exit with 0 if there are no errors, 1 if there are, and 2 if the ledger cannot be read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, get_args

import msgspec

from holdfast import turnfile
from holdfast.errors import Invalid, NotFound
from holdfast.faces.cli.args import Argument, Usage
from holdfast.faces.cli.call import ONE_OF_SEVERAL, Session
from holdfast.faces.cli.command import command
from holdfast.faces.cli.output import place_options, printable
from holdfast.turnfile import tasks
from holdfast.turnfile.ledger import unknown_names
from holdfast.turnfile.model import FOLDER, FOLDER_VARIABLE, MAILBOX, PROJECTION, TURNFILE, SignalWord
from holdfast.turnfile.report import LockStatus

DIR: Final = Argument("dir", of="FOLDER", help=f"the session (default: {FOLDER_VARIABLE}, ./{FOLDER})")
HOLDER: Final = Argument("holder", help="who edits (default: --actor, HOLDFAST_ACTOR)")
REASON: Final = Argument("reason", required=True, help="what you edit, in one line")
LEASE: Final = Argument("lease_revs", "int", of="N", help="revisions that the lock stays valid (2)")
# The last arguments of a command that may wait for a lock.
WAITING: Final = (
    Argument("wait", "seconds", of="SECONDS", help="between two checks of a lock held by somebody else (30)"),
    Argument("no_wait", "flag", help="fail at once if a file is locked"),
    DIR,
)
_TASK: Final = Argument("task", word=True, required=True, help="its id")
_OF_WORKSPACES: Final = ("url", "key", "fence", "at_least")


def session_of(session: Session, given: dict[str, Any]) -> turnfile.Session:
    """The working session that the options name; prints its warnings."""
    for name in _OF_WORKSPACES:
        if session.given.get(name) is not None:
            option = name.replace("_", "-")
            raise Usage(f"--{option} is for workspaces; holdfast turn works on files")
    chosen = given.pop("dir", None), session.given.get("dir")
    if "" in chosen:
        raise Usage("--dir must not be empty")
    session.out.at = place_options({"dir": chosen[0] or chosen[1]})
    folder = chosen[0] or chosen[1] or session.environ.get(FOLDER_VARIABLE) or FOLDER
    found = turnfile.Session(os.path.join(session.folder, folder))
    print_warnings(session, found.warnings)
    return found


def session_and_actor(session: Session, given: dict[str, Any], name: str = "holder") -> tuple[turnfile.Session, str]:
    """The working session, and the actor that an option of this name gives, as the ledger spells it."""
    files = session_of(session, given)
    who = given.pop(name, None) or session.actor
    if not who:
        also = f"--{name} NAME, " if name != "actor" else ""
        if several := session.several:
            what = f"no actor given, and several sessions of this client act at once: {several}"
            raise Usage(what, hint=ONE_OF_SEVERAL)
        raise Usage("no actor given", hint=f"use {also}--actor NAME, or set HOLDFAST_ACTOR")
    return files, files.spelled(who)


def wait_policy(given: dict[str, Any]) -> turnfile.WaitPolicy | None:
    """How to wait for a lock; None with --no-wait."""
    wait, none = given.pop("wait", None), given.pop("no_wait", False)
    if none and wait is not None:
        raise Usage("--wait and --no-wait exclude each other")
    if wait is not None and not 0 <= wait <= 86400:
        raise Usage("--wait must be between 0 and 86400 seconds")
    return None if none else turnfile.WaitPolicy() if wait is None else turnfile.WaitPolicy(interval=wait)


def completion_data(session: Session, done: turnfile.Completion) -> dict[str, Any]:
    """The result of a transaction as data; prints its warnings."""
    return {
        "lock_id": done.lock_id,
        "files": list(done.files),
        "revision": done.revision,
        "signal": done.signal_id,
        "warnings": print_warnings(session, done.warnings),
    }


def completion_line(done: turnfile.Completion) -> str:
    """The result of a transaction as a line of text."""
    files = ", ".join(done.files) or "nothing"
    under = f" under {done.lock_id}" if done.lock_id else ""
    return printable(f"wrote {files}{under}, revision {done.revision}")


def with_commands(session: Session, text: str) -> str:
    """A text of `turnfile` with commands in place of its calls."""
    from holdfast.hints import turn_for_shell  # most sessions have no problems

    return turn_for_shell(text, session.out.at)


def problems_data(session: Session, problems: Iterable[turnfile.Problem]) -> list[turnfile.Problem]:
    """Problems with commands in place of calls."""
    return [msgspec.structs.replace(each, message=with_commands(session, each.message)) for each in problems]


def print_warnings(session: Session, warnings: Iterable[turnfile.Problem | str]) -> list[str]:
    """Print warnings on standard error; returns them as data."""
    words = [with_commands(session, str(warning)) for warning in warnings]
    for each in words:
        print(f"holdfast: {printable(each)}", file=sys.stderr)
    return words


ERRORS: Final = 1
FATAL: Final = 2
_SIGNALS: Final = 5  # the newest of them are shown
_WORDS: Final = get_args(SignalWord)
_TASKS: Final = 8
_PROBLEMS: Final = 8
_WIDTH: Final = 110  # columns where there is no terminal; problems are never shortened


@command(
    "turn init",
    DIR,
    Argument("project", help="its name (default: that of the parent folder)"),
    Argument("agents", "texts", help="who works here; repeatable"),
    Argument("maintainer", help="who decides escalations (maintainer)"),
    Argument("missing", "flag", help="only create the missing files, empty"),
    more="Existing files are never overwritten.",
)
def init(session: Session, given: dict[str, Any]) -> int:
    """Create a working session: ledger, mailbox, worklog, questions."""
    files = session_of(session, given)
    if given.pop("missing", False):
        return _restore(session, given, files)
    project = given.get("project") or os.path.basename(os.path.dirname(files.folder.path)) or "project"
    agents = [name for each in given.get("agents", ()) for name in each.split(",")]
    ledger = turnfile.init(files, project, agents, given.get("maintainer", "maintainer"))
    data = {"folder": files.folder.path, "project": project, "agents": agents, "revision": ledger.revision}
    session.out.say(data, f"created {printable(files.folder.path)}", f"next: holdfast turn status{session.out.place}")
    return 0


def _restore(session: Session, given: dict[str, Any], files: turnfile.Session) -> int:
    if given:
        raise Usage("--missing takes project and agents from the ledger", hint="give no other option than --dir")
    made, warnings = turnfile.restore(files), list[str]()
    if MAILBOX in made and PROJECTION not in made:
        lost = f"{MAILBOX} is new and empty, and {PROJECTION} still has the old messages"
        warnings = [f"{lost}: turnfile.tidy(session, actor) brings them back"]
    data = {"folder": files.folder.path, "files": made, "revision": files.read().revision}
    data["warnings"] = print_warnings(session, warnings)
    session.out.say(data, *(printable(f"created {path}") for path in made), *([] if made else ["no file is missing"]))
    return 0


@command("turn status", DIR)
def status(session: Session, given: dict[str, Any]) -> int:
    """Show locks and their leases, unread mail, tasks, signals and problems."""
    found = turnfile.status(session_of(session, given))
    found = msgspec.structs.replace(found, problems=tuple(problems_data(session, found.problems)))
    session.out.say(msgspec.to_builtins(found), *map(printable, _status_lines(found)))
    return 0


def _status_lines(found: turnfile.Status) -> Iterator[str]:
    yield f"{found.project} at revision {found.revision}, last modified by {found.modified_by or 'nobody'}"
    about = {"folder": found.folder, "phase": found.active_phase, "step": found.active_step}
    yield from (f"  {name}: {value}" for name, value in about.items() if value)
    yield from _section("locks", [_lock_line(each, found.folder) for each in found.locks] or ["none"])
    unread = [f"{each.agent}: {each.unread}, oldest {each.oldest}" for each in found.unread if each.unread]
    yield from _section("unread", unread or ["none"])
    yield from _section("tasks", _first([_short(task_line(task)) for task in found.tasks], _TASKS))
    newest = found.signals[:_SIGNALS]
    yield from _section("signals", [_short(_signal_line(each)) for each in newest])
    yield from _section("problems", _first([str(problem) for problem in found.problems], _PROBLEMS) or ["none"])


def _section(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield title
    for line in lines:
        yield f"  {line}"


def _first(lines: list[str], most: int) -> list[str]:
    return lines if len(lines) <= most else [*lines[:most], f"and {len(lines) - most} more"]


def _short(line: str) -> str:
    """The line, cut to the width of the terminal with its indent."""
    from shutil import get_terminal_size  # only for who looks

    width = max(20, get_terminal_size((_WIDTH, 24)).columns - 2)
    return line if len(line) <= width else f"{line[: width - 1]}…"


_LAST: Final = "stale with the next revision"


def _lock_line(holding: LockStatus, folder: str) -> str:
    lock, left = holding.lock, holding.revisions_left
    names = ", ".join(path.removeprefix(f"{os.path.basename(folder)}/") for path in lock.files)
    how = "stale" if holding.stale else f"{left} revision{'' if left == 1 else 's'} left" if left else _LAST
    how += f", preceded by {holding.beaten_by}" if holding.beaten_by else ""
    return f"{lock.id}  {lock.holder}  {names}  {how}  {lock.reason}".rstrip()


def task_line(task: turnfile.Task) -> str:
    """A task as a line of text."""
    return f"{task.id}  {task.priority}  {task.status}  {task.owner}  {task.description}".rstrip()


def _signal_line(signal: turnfile.Signal) -> str:
    what = f"{signal.signal}: {signal.detail}" if signal.detail else signal.signal
    return f"{signal.id}  {signal.sender} -> {signal.receiver}  {what}"


@command(
    "turn check", DIR, more="The exit code is 0 if there are no errors, 1 if there are, 2 if the ledger cannot be read."
)
def check(session: Session, given: dict[str, Any]) -> int:
    """Check all files of a session against each other."""
    try:
        problems = turnfile.check(session_of(session, given))
    except (NotFound, Invalid) as error:
        session.out.error(error)
        return FATAL
    fatal = any(p.file == TURNFILE and p.rule in ("missing", "unreadable", "conflict") for p in problems)
    return _report(session, problems, fatal)


@command(
    "turn tidy",
    Argument("dry_run", "flag", help="only print what would be done"),
    *WAITING,
    more="No line is lost: cards go to MAILBOX_ARCHIVE.md, every other old line to TIDY_LOG.md. The exit code is 1 if"
    " errors are left that a person must decide.",
)
def tidy(session: Session, given: dict[str, Any]) -> int:
    """Repair order, sections, duplicates, tables and MAILBOX.json."""
    waiting, dry = wait_policy(given), bool(given.pop("dry_run", False))
    files, actor = session_and_actor(session, given, "actor")
    done = turnfile.tidy(files, actor, dry_run=dry, wait=waiting)
    done = msgspec.structs.replace(done, problems=tuple(problems_data(session, done.problems)))
    would = "would write" if dry else "wrote"
    in_order = "all is in order" if not done.problems else "nothing here that tidy can repair"
    last = f"{would} {', '.join(done.files)}, revision {done.revision}" if done.files else in_order
    lines = [*map(str, done.repairs), *map(str, done.problems), last]
    session.out.say({**msgspec.to_builtins(done), "dry_run": dry}, *map(printable, lines))
    return ERRORS if any(problem.level == "error" for problem in done.problems) else 0


@command(
    "turn lint",
    DIR,
    Argument("file", word=True, help="a file other than that of the folder"),
    more="The exit code is 0 if there are no errors, 1 if there are, 2 if it cannot be read.",
)
def lint(session: Session, given: dict[str, Any]) -> int:
    """Check the ledger TURNFILE.yaml alone."""
    try:
        path = given.get("file")
        if path is None:
            files, name = session_of(session, given), TURNFILE
            text = files.texts([TURNFILE])[TURNFILE]
        else:
            name = os.path.basename(path)
            where = os.path.join(session.folder, os.path.dirname(path))
            files = turnfile.Session(where, worktree="own")
            text = files.folder.read(name)
        if text is None:
            raise files.no_ledger_error() if path is None else NotFound(f"there is no file {path}")
    except (NotFound, Invalid) as error:
        session.out.error(error)
        return FATAL
    problems = turnfile.lint(text, name)
    return _report(session, problems, any(problem.rule in ("unreadable", "conflict") for problem in problems))


def _report(session: Session, problems: Sequence[turnfile.Problem], fatal: bool) -> int:
    problems = problems_data(session, problems)
    wrong = sum(problem.level == "error" for problem in problems)
    if session.out.json:
        session.out.data({"problems": problems, "errors": wrong, "warnings": len(problems) - wrong})
    else:
        session.out.text(*(printable(str(problem)) for problem in problems))
    return FATAL if fatal else ERRORS if wrong else 0


@command("turn tasks list", Argument("all", "flag", help="include those that are done"), DIR)
def list_tasks(session: Session, given: dict[str, Any]) -> int:
    """List the tasks of the ledger that are not done."""
    found = session_of(session, given).read().turnfile.tasks
    found = tuple(task for task in found if given.get("all") or task.state != "done")
    session.out.say(msgspec.to_builtins(found), *(printable(task_line(task)) for task in found))
    return 0


@command(
    "turn tasks add",
    Argument("task", word=True, required=True, help="its id, not used yet"),
    Argument("description", word=True, required=True, help="what to do, in one line"),
    Argument("priority", of="P", help="P0, P1 or P2 (P1)"),
    Argument("depends_on", "texts", of="TASK", help="a task to be done first; repeatable"),
    DIR,
)
def add_task(session: Session, given: dict[str, Any]) -> int:
    """Add a task without an owner."""
    return _change_task(session, given, "add")


@command("turn tasks claim", _TASK, DIR)
def claim_task(session: Session, given: dict[str, Any]) -> int:
    """Claim a task whose dependencies are done."""
    return _change_task(session, given, "claim")


@command("turn tasks done", _TASK, DIR)
def finish_task(session: Session, given: dict[str, Any]) -> int:
    """Finish your task."""
    return _change_task(session, given, "done")


def _change_task(session: Session, given: dict[str, Any], step: tasks.Step) -> int:
    files, actor = session_and_actor(session, given, "actor")
    task, warnings = tasks.change(files, step, given.pop("task"), actor, **given)
    session.out.say(
        {**msgspec.to_builtins(task), "warnings": print_warnings(session, warnings)}, printable(task_line(task))
    )
    return 0


@command(
    "turn signal",
    Argument("word", word=True, required=True, choices=_WORDS, help=f"one of {', '.join(_WORDS)}"),
    Argument("detail", word=True, help="a line of text"),
    Argument("to", help="the receiver (all)"),
    Argument("from", help="the sender (default: --actor, HOLDFAST_ACTOR)"),
    DIR,
)
def signal(session: Session, given: dict[str, Any]) -> int:
    """Send a short signal in the ledger, to an agent or to all."""
    files, sender = session_and_actor(session, given, "from")
    receiver = given.get("to", "all")
    unknown = unknown_names(files.read(), sender, receiver)
    sent = tasks.signal(files, sender, receiver, given["word"], given.get("detail", ""))
    line = f"{sent.id}  {sent.sender} -> {sent.receiver}  {sent.signal}"
    session.out.say({**msgspec.to_builtins(sent), "warnings": print_warnings(session, unknown)}, printable(line))
    return 0
