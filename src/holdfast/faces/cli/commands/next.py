"""`holdfast next`: claim the best task that is ready. Exit code 4 says that there is none."""

from __future__ import annotations

import sys
from typing import Any, Final

from holdfast.faces.cli.command import Command
from holdfast.faces.cli.deriving import arguments_of, operation_called
from holdfast.faces.cli.performing import after_writing, arguments_from, call
from holdfast.faces.cli.session import Session
from holdfast.faces.cli.summaries import SUMMARIES
from holdfast.faces.cli.words import Argument
from holdfast.ops import operation

NOTHING: Final = 4
_WAIT: Final = Argument("wait", "seconds", "--wait", help="wait so long for one to become ready")


def claim_next(session: Session, given: dict[str, Any]) -> int:
    """Claim the best task that is ready; NOTHING if there is none, also after waiting."""
    op = operation("tasks.claim_next")
    wait = given.pop("wait", None)
    arguments = arguments_from(given)
    with session.open() as workspace:
        task = call(session, workspace, op, arguments)
        if task is None and wait is not None:
            task = _wait(session, workspace, arguments, wait)
    if task is None:
        if session.out.json:
            session.out.data(None)
        elif not session.out.quiet:
            print("holdfast: nothing is ready", file=sys.stderr)
        return NOTHING
    session.out.result(op, task)
    after_writing(session)
    return 0


def _wait(session: Session, workspace: Any, arguments: dict[str, Any], wait: float) -> Any:
    """Try again at every change of a task, until one was claimed or the time is over."""
    op = operation("tasks.claim_next")
    with workspace.watch(kinds=["task"], timeout=wait) as changes:
        task = call(session, workspace, op, arguments)  # what came before the watch began
        while task is None and next(changes, None) is not None:
            task = call(session, workspace, op, arguments)
    return task


_OP = operation_called("next", "tasks")
assert _OP is not None
COMMANDS = (Command("next", SUMMARIES["next"], (*arguments_of(_OP), _WAIT), claim_next, op="tasks.claim_next"),)
