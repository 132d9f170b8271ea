"""`holdfast watch`: what happens, as it happens; with --needs-me only what concerns one actor.

That is mail to it, a claim it lost, and work that waits for it. Reviews and blocked tasks concern people: whoever
registered as person or maintainer, and whoever gave no name. A task that was sent back concerns the agent that
completed it.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast import errors
from holdfast.faces.cli.args import Argument, Usage
from holdfast.faces.cli.call import Session
from holdfast.faces.cli.command import command
from holdfast.faces.cli.output import printable
from holdfast.operation import operation
from holdfast.types import EVENT_KINDS, DerivedActor, Event

PEOPLE: Final = ("person", "maintainer")


class Concerns:
    """Judges events for one actor."""

    def __init__(self, workspace: Any, actor: str) -> None:
        self._workspace = workspace
        self._actor = actor
        self._person = isinstance(actor, DerivedActor) or self._role() in PEOPLE

    def _role(self) -> str:
        try:
            return str(self._workspace.agents.get(self._actor).role)
        except errors.NotFound:
            return "agent"

    def why(self, event: Event) -> str | None:
        """Why an event concerns the actor, as a sentence; None if it does not."""
        if event.actor == self._actor:
            return None
        if event.kind == "message":
            return self._mail(event) if event.op in ("send", "reply") else None
        return self._task(event) if event.kind == "task" else None

    def _mail(self, event: Event) -> str | None:
        message = self._workspace.mail.get(event.id)
        if self._actor not in message.status:
            return None
        wants = f", a {message.type}" if message.type != "notify" else ""
        return f"mail from {message.sender}{wants}: {message.subject}"

    def _task(self, event: Event) -> str | None:
        was, now = event.data.get("claimed_by", (None, None))
        _, status = event.data.get("status", (None, None))
        said = f": {event.data['note']}" if event.data.get("note") else ""
        if was == self._actor and now != self._actor:
            how = "expired" if event.op == "expire" else f"was ended by {event.actor}"
            return f"your claim on {event.id} {how}{said}"
        if event.data.get("assigned_to", (None, None))[1] == self._actor:
            return f"{event.actor} assigned {event.id} to you"
        if status == "pending_merge" and self._person:
            return f"{event.id} waits for a review: {event.actor} completed it{said}"
        if status == "blocked" and (self._person or (event.op == "reject" and self._completed(event))):
            return f"{event.id} is {'sent back' if event.op == 'reject' else 'blocked'} by {event.actor}{said}"
        return None

    def _completed(self, event: Event) -> bool:
        """Whether the actor completed the task that was sent back."""
        try:
            entries = self._workspace.tasks.history(event.id, field="status")
        except errors.Compacted:
            return False
        done = next((entry for entry in entries if entry.op == "complete" and entry.version < event.version), None)
        return done is not None and done.changed_by == self._actor


@command(
    "watch",
    Argument("thing", option="--for", of="KIND.NAME", help="one thing: task.hf-7k2q, lock.deploy, cell.RUN/NAME"),
    Argument("kinds", "texts", choices=EVENT_KINDS, help="of this kind alone; may be repeated"),
    Argument("after", of="REVISION", help="also what came after this revision or cursor"),
    Argument("once", "flag", help="end with the first event"),
    Argument("timeout", "seconds", help="end after so long; exit code 3 if nothing came"),
    Argument("needs_me", "flag", help="only what concerns you: mail, lost claims, what is assigned to you, reviews"),
    Argument("exec", of="COMMAND", help="run this for each event, with HOLDFAST_EVENT (JSON) and HOLDFAST_WHY"),
    op=operation("watch"),
    more="The number at the end of a row is its revision; --json has what changed. Reviews and blocked"
    " tasks concern people: a registered person or maintainer, and whoever has no name.",
)
def watch(session: Session, given: dict[str, Any]) -> int:
    """Wait until something happens, and print it.

    With `once`, only the first event. Raises Timeout if the time was over before one came.
    """
    wanted = _wanted(given)
    seen = 0
    with (
        session.open(named=bool(given.get("needs_me"))) as workspace,
        workspace.watch(after=given.get("after"), timeout=given.get("timeout"), **wanted) as events,
    ):
        concerns = Concerns(workspace, workspace.actor) if given.get("needs_me") else None
        for event in events:
            why = None if concerns is None else concerns.why(event)
            if concerns is not None and why is None:
                continue
            seen += 1
            if why is None or session.out.json or session.out.quiet:
                session.out.line(operation("watch"), event)
            else:
                session.out.text(printable(why))
                session.out.stdout.flush()
            if "exec" in given:
                _execute(given["exec"], event, why or "")
            if given.get("once"):
                return 0
    if not seen:
        raise errors.Timeout(f"nothing happened in {given['timeout']:g} s", hint="wait longer with --timeout")
    return 0


def _execute(command: str, event: Any, why: str) -> None:
    """Run a command of the user's shell for an event; what it prints, it prints itself."""
    import os
    import subprocess

    from holdfast.wire import json_text, wired

    known = {"HOLDFAST_EVENT": json_text(wired(event)), "HOLDFAST_WHY": why, "HOLDFAST_ID": event.id}
    subprocess.run(command, shell=True, check=False, env={**os.environ, **known})


def _wanted(given: dict[str, Any]) -> dict[str, Any]:
    """What is listened to: kinds, and with --for one thing, `task.hf-7k2q` or `cell.RUN/NAME`."""
    kinds = list(given.get("kinds", ()))
    if "thing" not in given:
        return {"kinds": kinds or None}
    kind, dot, name = given["thing"].partition(".")
    if not dot or not name or kind not in EVENT_KINDS:
        raise Usage(f"--for is KIND.NAME, not {given['thing']!r}", hint=f"kinds are {', '.join(EVENT_KINDS)}")
    run, slash, cell = name.partition("/")
    return {"kinds": [kind], "id": (run, cell) if kind == "cell" and slash else name}
