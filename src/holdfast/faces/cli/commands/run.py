"""`holdfast next` and `holdfast run`: claim a task, and keep the claim alive while a command runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Container
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast import errors
from holdfast.domains.tasks import Tasks
from holdfast.faces.cli import location
from holdfast.faces.cli.args import Argument, Usage
from holdfast.faces.cli.call import NOTHING, Session, call, tell
from holdfast.faces.cli.command import Command, command
from holdfast.faces.cli.derive import arguments_of
from holdfast.workspace.tokens import without_numbers

if TYPE_CHECKING:
    import subprocess

_OF_THE_CLAIM: Final = {"agent", "ttl"}  # the other arguments choose among the tasks
_WAIT: Final = Argument("wait", "seconds", help="wait so long for one to become ready")


def claim_next(session: Session, given: dict[str, Any]) -> int:
    """Claim the best task that is ready; NOTHING if there is none, also after waiting."""
    wait = given.pop("wait", None)
    read_share(session, make=True)
    with session.open() as workspace:
        task = call(session, workspace, Tasks.claim_next, given)
        if task is None and wait is not None:
            task = _wait(session, workspace, given, wait)
        why = "" if task or session.out.json or session.out.quiet else _why(workspace, {*given} - _OF_THE_CLAIM)
    if task is None:
        if session.out.json:
            session.out.data(None)
        tell(session, why)
        return NOTHING
    session.out.result(Tasks.claim_next, task)
    session.wrote()
    return 0


def read_share(session: Session, *, make: bool = False) -> None:
    """Read the tasks that came with the repository, if there are new ones."""
    place = session.find_place()
    folder = location.home(session.folder) if place is None else place.folder
    if (place is not None or make) and location.unread_share(folder, session.folder) is not None:
        from holdfast.faces.cli.commands.share import read_file  # most calls have nothing to read

        read_file(session)


def _why(workspace: Any, filters: set[str]) -> str:
    from holdfast.faces.cli.commands.lists import why_none_ready  # most calls find a task

    return why_none_ready(workspace, filters)


def _wait(session: Session, workspace: Any, arguments: dict[str, Any], wait: float) -> Any:
    """Try again at every change of a task, until one was claimed or the time is over."""
    with workspace.watch(kinds=["task"], timeout=wait) as changes:
        task = call(session, workspace, Tasks.claim_next, arguments)  # what came before the watch began
        while task is None and next(changes, None) is not None:
            task = call(session, workspace, Tasks.claim_next, arguments)
    return task


TTL: Final = 60.0
_ASKED_TO_END: Final = {129, 130, 131, 143}  # by SIGHUP, SIGINT, SIGQUIT, SIGTERM, as a shell reports them
GRACE: Final = 10.0  # seconds that a command has to end when its claim is lost


FAILURES: Final = 3  # of a task in one loop, before it is blocked instead of released
_CHOICE: Final = tuple(each for each in arguments_of(Tasks.claim_next) if each.name not in _OF_THE_CLAIM)
_LOST: Final = (errors.Fenced, errors.Forbidden, errors.Conflict, errors.NotFound)  # said of a claim that has ended
_COMPLETED: Final = ("complete", "close")  # how a command may end the claim itself
_ENDS: Final = (*_COMPLETED, "block", "release", "approve", "undo")
_MOST: Final = 65_536  # bytes of a task in the environment: systems limit it


@command(
    "run",
    Argument("task", of="ID", help="the task; it is claimed if need be", names="task"),
    Argument("next", "flag", help="claim the best ready task instead, and complete or release it by the exit code"),
    Argument("loop", "flag", help="with --next: take the next one, until none is ready"),
    *_CHOICE,
    _WAIT,
    Argument("ttl", "seconds", help=f"how long the claim outlives a crash ({TTL:g})"),
    Argument("done", "flag", help="complete it if the command succeeds, release it if it fails"),
    Argument("command", "texts", word=True, rest=True, required=True, of="-- COMMAND", help="the command to run"),
    more="The command has HOLDFAST_TASK, HOLDFAST_TASK_TITLE, HOLDFAST_TASK_JSON, HOLDFAST_ACTOR and HOLDFAST_DIR in"
    " its environment. A command whose claim is lost is terminated; the exit code is then that of the refusal. If the"
    " command cannot be started, the task is as it was before. A task that fails three times in a loop is blocked. A"
    " loop ends with 0 when nothing is ready any more, however its tasks ended. Ctrl-C, SIGTERM and others ask the"
    " command of --next to end and release its task; a second one kills it.",
)
def run(session: Session, given: dict[str, Any]) -> int:
    """Run a command and keep the claim on a task alive while it lives.

    Claim the task if need be, run the command, renew the claim; the command's exit code.

    With `done` the task is completed if the command succeeds, and released if it fails. A command whose claim is lost
    is terminated, then killed: the exit code is that of the refusal. One that cannot be started changes nothing: a
    claim from before is kept, and one that this call took is released.

    With `next` the task is the best ready one, and `done` is implied; with `loop` others follow. Nothing is lost if
    this process or the command is killed: the claim expires, and the task is ready again.
    """
    _check(given)
    with session.open(writing=True, named=True) as workspace:
        if given.get("next"):
            return _take(session, workspace, given)
        before = workspace.tasks.get(given["task"])
        task = _claim(session, workspace, before, given["task"], given.get("ttl", TTL))
        code = _work(session, workspace, given, before, task)
    session.wrote()
    return code


def _check(given: dict[str, Any]) -> None:
    if ("task" in given) == bool(given.get("next")):
        raise Usage("holdfast run needs --task ID or --next, and not both", hint="holdfast help run")
    if not given.get("next"):
        wrong = [each.option for each in (*_CHOICE, _WAIT) if each.name in given] + ["--loop"] * bool(given.get("loop"))
        if wrong:
            raise Usage(f"{wrong[0]} needs --next", hint="it chooses among the ready tasks")


def _work(session: Session, workspace: Any, given: dict[str, Any], before: Any, task: Any, block: bool = False) -> int:
    """Run the command for a task that is claimed, and end it by the exit code if that is wanted; the exit code."""
    with _Ending(bool(given.get("next"))) as ending:
        code = _run(session, workspace, before, task, given["command"], given.get("ttl", TTL), ending)
    if code == 0 and (given.get("done") or given.get("next")):
        _complete(session, workspace, task, chosen=not given.get("next"))
    elif given.get("done") or given.get("next"):
        _give_back(session, workspace, task, code, block)
    return code


def _take(session: Session, workspace: Any, given: dict[str, Any]) -> int:
    """Work on the best ready task; in a loop until none is ready, or this process is asked to end."""
    chosen = {"ttl": TTL} | {name: given[name] for name in ("ttl", *(each.name for each in _CHOICE)) if name in given}
    failures: dict[str, int] = {}
    code = NOTHING
    while (task := _next(session, workspace, chosen, given.get("wait"))) is not None:
        before = msgspec.structs.replace(task, claimed_by=None)
        failed = failures.get(task.id, 0)
        try:
            code = _work(session, workspace, given, before, task, block=failed + 1 >= FAILURES)
        except (errors.Fenced, errors.Forbidden) as error:  # the claim was lost: the task is another's
            if not given.get("loop"):
                raise
            session.out.error(error)
            code = error.exit_code
        session.wrote()
        if code:
            failures[task.id] = failed + 1
        if not given.get("loop") or code in _ASKED_TO_END:
            return code
    if failures or code == 0:
        return 0
    if not session.out.quiet and not session.out.json:
        tell(session, _why(workspace, chosen.keys() - _OF_THE_CLAIM))
    return NOTHING


def _next(session: Session, workspace: Any, chosen: dict[str, Any], wait: float | None) -> Any:
    task = call(session, workspace, Tasks.claim_next, dict(chosen))
    return _wait(session, workspace, dict(chosen), wait) if task is None and wait is not None else task


class _Ending:
    """While in this block, signals to end go to the command too: it must not work on when nobody renews its claim.

    One that comes before the command has started is kept until then; a second one kills the command. Ctrl-C is such a
    signal for a worker. Else it is the command's own affair: a shell in it goes on.
    """

    def __init__(self, worker: bool) -> None:
        self._worker = worker
        self._process: subprocess.Popen[bytes] | None = None
        self.number = 0  # of the signal that came

    def __enter__(self) -> _Ending:
        import signal  # here, because `holdfast next` does not need it

        ending = [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]
        if self._worker and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as in the background of a shell
            ending.append(signal.SIGINT)
        self._before = {each: signal.signal(each, self._pass_on) for each in ending}
        return self

    def _pass_on(self, number: int, _: object) -> None:
        again, self.number = bool(self.number), number
        if self._process is not None:
            self._process.kill() if again else self._ask()

    def _ask(self) -> None:
        """Ask the command to end; Ctrl-C at a terminal has reached it already."""
        import signal

        if self._process is not None and not (self.number == signal.SIGINT and _is_foreground()):
            self._process.terminate()

    def attend(self, process: subprocess.Popen[bytes]) -> None:
        """From now on, signals go to this process."""
        self._process = process
        if self.number:
            self._ask()

    def __exit__(self, *_: object) -> None:
        import signal

        for each, handler in self._before.items():
            signal.signal(each, handler)


def _is_foreground() -> bool:
    """Whether a terminal sends Ctrl-C to the processes of this call."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:  # there is none
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    finally:
        os.close(terminal)


def _run(
    session: Session, workspace: Any, before: Any, task: Any, command: list[str], ttl: float, ending: _Ending
) -> int:
    """Start the command and attend to it; its exit code."""
    try:
        process = _start(command, session, task)
    except errors.Invalid as error:
        error.hint = f"{_undo(session, workspace, before, task, ttl)}; check the command after --"
        raise
    ending.attend(process)
    try:
        code = _attend(session, workspace, task, process, ttl)
        return 128 + ending.number if ending.number else code  # also of a command that ends well when it is terminated
    except BaseException:
        _end(process)
        raise


def _claim(session: Session, workspace: Any, before: Any, id: str, ttl: float) -> Any:
    op = Tasks.heartbeat if before.claimed_by == workspace.actor else Tasks.claim
    return call(session, workspace, op, {"id": id, "ttl": ttl})


def _undo(session: Session, workspace: Any, before: Any, task: Any, ttl: float) -> str:
    """Bring the claim to what it was before this call; says what that is."""
    if before.claimed_by != task.claimed_by:
        call(session, workspace, Tasks.release, {"id": task.id, "reason": "the command could not be started"})
        return f"task {task.id} is open again"
    if before.parked:
        call(session, workspace, Tasks.park, {"id": task.id, "until": before.deadline})
    elif before.deadline > task.deadline:  # ours is shorter
        left = ttl + (before.deadline - task.deadline).total_seconds()
        call(session, workspace, Tasks.heartbeat, {"id": task.id, "ttl": left})
    return f"{task.claimed_by} still holds task {task.id}"


def _start(command: list[str], session: Session, task: Any) -> subprocess.Popen[bytes]:
    import subprocess  # here, because `holdfast next` does not need it

    from holdfast.faces.cli.setup.line import beyond_path
    from holdfast.wire import json_text, wired

    whole = json_text(wired(task))
    if len(whole.encode()) > _MOST:
        whole = json_text({name: value for name, value in wired(task).items() if name != "body"})
    more = {"HOLDFAST_TASK": task.id, "HOLDFAST_ACTOR": task.claimed_by}
    more |= {"HOLDFAST_TASK_TITLE": task.title, "HOLDFAST_TASK_JSON": whole}
    if session.place.folder is not None:
        more["HOLDFAST_DIR"] = session.place.folder
    if (program := beyond_path(session.environ, session.place.folder)) is not None:  # the command may call holdfast too
        more["PATH"] = os.pathsep.join([session.environ.get("PATH", os.defpath), os.path.dirname(program)])
    try:
        return subprocess.Popen(command, env={**session.environ, **more})
    except OSError as error:
        raise errors.Invalid(f"{command[0]} could not be started: {error.strerror}") from error


def _attend(session: Session, workspace: Any, task: Any, process: subprocess.Popen[bytes], ttl: float) -> int:
    """Renew the claim three times in its life, until the command has ended."""
    import subprocess

    while True:
        try:
            code = process.wait(ttl / 3)
            return 128 - code if code < 0 else code  # as a shell reports signals
        except subprocess.TimeoutExpired:
            _renew(session, workspace, task)
        except KeyboardInterrupt:  # the command has got it too: it decides when it ends
            continue


def _as_holder(session: Session, workspace: Any, op: Any, task: Any, **more: Any) -> Any:
    """Call an operation by the token of this call's claim: it means the task whatever its id is by now."""
    try:
        found = call(session, workspace, op, {"id": task.id, "token": task.token, **more})
    except errors.Fenced as error:
        raise without_numbers(error, {}, task.claimed_by, {"token": task.token}) from error
    for warning in found.warnings if found.id != task.id else ():
        session.out.note(warning)
    return found


def _ending_of(workspace: Any, task: Any) -> Any:
    """What ended this call's claim, from the history of the task that had its id then; None if nothing did."""
    for id in (task.id, *workspace.tasks.sharing(task.id).renamed.get(task.id, ())):
        try:
            changes = workspace.tasks.history(id, field="token")
        except errors.NotFound:  # purged
            continue
        for change in changes:
            if change.old_value == task.token:
                return change
    return None


def _has_ended_it(workspace: Any, task: Any, ways: Container[str]) -> bool:
    """Whether the command has ended the claim itself, in one of these ways."""
    ending = _ending_of(workspace, task)
    return ending is not None and ending.changed_by == task.claimed_by and ending.op in ways


def _renew(session: Session, workspace: Any, task: Any) -> None:
    try:
        _as_holder(session, workspace, Tasks.heartbeat, task)
    except errors.Unavailable as error:  # the claim is still ours; the next time may be better
        print(f"holdfast: the claim on {task.id} was not renewed: {error}", file=sys.stderr)
    except _LOST:
        if not _has_ended_it(workspace, task, _ENDS):
            raise


def _end(process: subprocess.Popen[bytes]) -> None:
    import subprocess

    process.terminate()
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _complete(session: Session, workspace: Any, task: Any, chosen: bool) -> None:
    """Complete the task, unless the command has done that. Raises what stands against it.

    A task that the command blocked or released itself is left so: if the task was `chosen`, that is a refusal.
    """
    try:
        _as_holder(session, workspace, Tasks.complete, task)
    except _LOST:
        if _has_ended_it(workspace, task, _COMPLETED if chosen else _ENDS):
            return
        if not _has_ended_it(workspace, task, _ENDS):
            raise
        message = f"the command ended well, but {task.id} was not completed: the command gave it back"
        raise errors.InvalidStatus(message, hint=f"holdfast history {task.id} says more", id=task.id) from None


def _give_back(session: Session, workspace: Any, task: Any, code: int, block: bool) -> None:
    """Release the task of a command that failed, or block it; one that the claim was lost on is left as it is."""
    how = f"with {code}" if code <= 128 or code > 128 + 64 else f"by signal {code - 128}"
    blocks = block and code not in _ASKED_TO_END
    why = f"the command ended {how}{f', as the {FAILURES - 1} times before' * blocks}"
    try:
        task = _as_holder(session, workspace, Tasks.block if blocks else Tasks.release, task, reason=why)
    except _LOST as error:
        if not _has_ended_it(workspace, task, _ENDS):
            session.out.warn(f"{task.id} was not given back: {error.message}", error.hint or "")
        return
    if blocks:
        session.out.warn(f"{task.id} is blocked: {why}", f"holdfast show {task.id}; holdfast unblock {task.id}")
    else:
        session.out.warn(f"{task.id} is ready again: the command ended {how}", f"holdfast history {task.id} says more")


next_task: Final = Command(
    "next",
    Tasks.claim_next.route.help,
    (*arguments_of(Tasks.claim_next), _WAIT),
    claim_next,
    op=Tasks.claim_next,
    relayed=True,
)
