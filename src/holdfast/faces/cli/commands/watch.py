"""`holdfast watch`: wait until something happens, and print it."""

from __future__ import annotations

from typing import Any

from holdfast import errors
from holdfast.faces.cli.command import Command
from holdfast.faces.cli.session import Session
from holdfast.faces.cli.words import KINDS, Argument, Usage
from holdfast.ops import operation


def watch(session: Session, given: dict[str, Any]) -> int:
    """Print events as they come; with `once`, the first. Timeout if the time was over before it came."""
    wanted = _wanted(given)
    seen = 0
    with (
        session.open() as workspace,
        workspace.watch(after=given.get("after"), timeout=given.get("timeout"), **wanted) as events,
    ):
        for event in events:
            seen += 1
            session.out.line(operation("watch"), event)
            if given.get("once"):
                return 0
    if not seen:
        raise errors.Timeout(f"nothing happened in {given['timeout']:g} s", hint="wait longer with --timeout")
    return 0


def _wanted(given: dict[str, Any]) -> dict[str, Any]:
    """What is listened to: kinds, and with --for one thing, `task.hf-7k2q` or `cell.RUN/NAME`."""
    kinds = list(given.get("kinds", ()))
    if "thing" not in given:
        return {"kinds": kinds or None}
    kind, dot, name = given["thing"].partition(".")
    if not dot or not name or kind not in KINDS:
        raise Usage(f"--for is KIND.NAME, not {given['thing']!r}", hint=f"kinds are {', '.join(KINDS)}")
    run, slash, cell = name.partition("/")
    return {"kinds": [kind], "id": (run, cell) if kind == "cell" and slash else name}


COMMANDS = (
    Command(
        "watch",
        "Wait until something happens, and print it.",
        (
            Argument(
                "thing", option="--for", of="KIND.NAME", help="one thing: task.hf-7k2q, lock.deploy, cell.RUN/NAME"
            ),
            Argument("kinds", "texts", "--kind", choices=KINDS, help="of this kind alone; may be repeated"),
            Argument("after", option="--after", of="REVISION", help="also what came after this revision or cursor"),
            Argument("once", "flag", "--once", help="end with the first event"),
            Argument("timeout", "seconds", "--timeout", help="end after so long; exit code 3 if nothing came"),
        ),
        watch,
        op="watch",
    ),
)
