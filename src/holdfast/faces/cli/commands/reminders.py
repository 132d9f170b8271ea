"""What the hooks of a client's session do besides their answers: renew, report news once, recall, release at the end.

What a session has heard already is in a file beside the records of sessions, so that nothing is reported twice.
Nothing that fails here stops an edit. Called by `holdfast prime --hook` and `holdfast guard --hook`.
"""

from __future__ import annotations

import os
from typing import Any, Final

import msgspec

from holdfast import client_sessions, errors
from holdfast.clock import SystemClock
from holdfast.faces.cli import location
from holdfast.faces.cli.call import Session
from holdfast.faces.cli.output import printable, short
from holdfast.filesystem import write_private
from holdfast.types import Op

_MOST: Final = 20
FRESH: Final = 30.0  # seconds in which nothing is renewed again, and no tool asks for news
_PATIENCE: Final = 1.0  # seconds that a renewal waits for its turn: nobody who edits waits for another's transaction
_NEWS: Final = 400  # bytes
_LEFT: Final = 50  # claims, or locks, that the end of a session releases


class _Known(msgspec.Struct):
    """What a session knows: the claims it had, the mail that was reported, the claims recalled at its stop.

    And when its claims were renewed and its news were asked for, in seconds since 1970.
    """

    claims: list[str] = []
    mail: list[str] = []
    recalled: list[str] = []
    renewed: float = 0.0
    asked: float = 0.0

    @classmethod
    def read(cls, path: str) -> _Known:
        """What is written down; nothing if that cannot be read."""
        try:
            with open(path, "rb") as file:
                return msgspec.json.decode(file.read(), type=cls)
        except (OSError, msgspec.DecodeError):
            return cls()

    def write(self, path: str) -> bool:
        """Write it down; False in a place that can only be read."""
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            write_private(path, msgspec.json.encode(self))
        except OSError:
            return False
        return True


def _news_file(session: Session, actor: str) -> str:
    folder = os.path.join(location.private_folder(session.place, session.environ), client_sessions.FOLDER)
    return os.path.join(folder, f".news.{actor.replace('/', '%2F')}")


def attend(session: Session, actor: str | None, *, heard: bool = True, at_once: bool = False) -> str:
    """Renew what the session holds, in one commit, and return what is new for it; each at most once in FRESH seconds.

    With `at_once` the news are asked for anyway. Where the agent does not hear (`heard`) they are kept for the next
    place where it does. Nothing that fails here stops an edit, or keeps it waiting: while another process is in a
    transaction, the renewal is left to the next call, and the agent hears that.
    """
    if actor is None:
        return ""
    path = _news_file(session, actor)
    known = _Known.read(path)
    now = SystemClock().wall() / 1e6
    renews = not 0 <= now - known.renewed < FRESH
    asks = heard and (at_once or not 0 <= now - known.asked < FRESH)
    if not renews and not asks:
        return ""
    session.timeout = _PATIENCE
    try:
        with session.open(writing=True) as workspace:
            claims = list(workspace.tasks.list(claimed_by=actor, limit=_MOST))
            late = _renew(workspace, actor, claims) if renews else ""
            lost = [id for id in known.claims if _lost(workspace, id, actor)] if asks else []
            inbox = workspace.mail.inbox(actor, unread=True, limit=_MOST) if asks else ()
    except errors.HoldfastError as error:
        return _late(error)
    mail = [each for each in inbox if each.id not in known.mail]
    after = msgspec.structs.replace(
        known,
        claims=[task.id for task in claims] if asks else _with(known.claims, claims),
        mail=[*known.mail, *(each.id for each in mail)][-100:],
        renewed=now if renews and not late else known.renewed,
        asked=now if asks else known.asked,
    )
    after.write(path)  # else it is all said again
    return _news(late, lost, mail, claims if at_once else [])


def _with(before: list[str], claims: list[Any]) -> list[str]:
    """The claims a session had, and has: what it has lost is still to be reported."""
    return list(dict.fromkeys([*before, *(task.id for task in claims)]))


def recall(session: Session, actor: str | None) -> str:
    """What the session still holds when its agent wants to stop; each claim once, or it could never stop."""
    if actor is None:
        return ""
    path = _news_file(session, actor)
    known = _Known.read(path)
    try:
        with session.open() as workspace:
            claims = list(workspace.tasks.list(claimed_by=actor, limit=_MOST))
    except errors.HoldfastError:
        return ""  # it is no reason to go on
    after = msgspec.structs.replace(known, claims=_with(known.claims, claims), recalled=[task.id for task in claims])
    news = [task for task in claims if task.id not in known.recalled and not task.parked]
    if (after != known and not after.write(path)) or not news:
        return ""
    held = ", ".join(f"{task.id} ({short(printable(task.title), 40)})" for task in news)
    text = (
        f"Holdfast: you still hold {held}. Finished? holdfast done ID. Not yet? Say where you are with holdfast note"
        " ID, or give it back with holdfast release ID. Then stop."
    )
    return text.encode()[:_NEWS].decode(errors="ignore")


def release(session: Session, actor: str | None) -> None:
    """Release what a session that ends holds, in one commit; what it parked stays its own."""
    if actor is None:
        return
    from holdfast.domains.paths import Paths
    from holdfast.domains.tasks import Tasks

    with session.open(writing=True) as workspace:
        claims = workspace.tasks.list(claimed_by=actor, limit=_LEFT)
        steps = [
            Op(Tasks.release.name, {"id": task.id, "reason": f"the session of {actor} ended"})
            for task in claims
            if not task.parked
        ]
        kept = {task.id for task in claims if task.parked}
        ended = {step.args["id"] for step in steps}
        locks = workspace.paths.list(holder=actor, limit=_LEFT)
        steps += [
            Op(Paths.release.name, {"id": lock.id})
            for lock in locks
            if lock.task not in kept and lock.task not in ended  # those end with the claim
        ]
        if steps:
            workspace.txn([], steps)
            session.wrote()


def _late(error: errors.HoldfastError) -> str:
    return f"Holdfast: your claims were not renewed: {error.message}"


def _renew(workspace: Any, actor: str, claims: list[Any]) -> str:
    """Renew claims and path locks that end, in one commit; those for a task live as long as its claim.

    Returns why it could not be done, if there was no time.
    """
    from holdfast.domains.paths import Paths  # once in a while, and not for every edit
    from holdfast.domains.tasks import Tasks

    steps = [Op(Tasks.heartbeat.name, {"id": task.id}) for task in claims if not task.parked]
    locks = workspace.paths.list(holder=actor, limit=_MOST)
    steps += [Op(Paths.refresh.name, {"id": lock.id}) for lock in locks if lock.task is None]
    if not steps:
        return ""
    try:
        workspace.txn([], steps)
    except errors.Unavailable as error:
        return _late(error)
    return ""


def _lost(workspace: Any, id: str, actor: str) -> bool:
    """Whether the claim that a session had was ended by somebody else, or expired."""
    for change in workspace.tasks.history(id):  # the newest first
        if change.field == "claimed_by":
            if change.new_value == actor:
                return False
            if change.old_value == actor:
                return bool(change.changed_by != actor)
        elif change.op == change.field and change.op in _ENDINGS:  # of a purged task the log keeps only what was done
            return bool(change.changed_by != actor)
    return False


_ENDINGS: Final = ("expire", "release", "complete", "block", "close", "cancel")


def _news(late: str, lost: list[str], mail: list[Any], claims: list[Any]) -> str:
    """The news as text, cut to what a prompt can bear."""
    lines = [late] if late else []
    lines += [f"Holdfast: you lost the claim on {id}: stop that work, and look with holdfast show {id}" for id in lost]
    if mail:
        senders = ", ".join(dict.fromkeys(printable(each.sender) for each in mail))
        lines.append(f"Holdfast: {len(mail)} new message(s), from {senders}: holdfast mail inbox")
    if claims:
        held = ", ".join(f"{task.id} ({short(printable(task.title), 40)})" for task in claims)
        lines.append(f"Holdfast: you hold {held}; end with holdfast done, block or release")
    return "\n".join(lines).encode()[:_NEWS].decode(errors="ignore")
