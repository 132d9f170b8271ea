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
FRESH: Final = 30.0  # seconds in which nothing is renewed again, and no edit asks for news
_PATIENCE: Final = 1.0  # seconds that a renewal waits for its turn: nobody who edits waits for another's transaction
_NEWS: Final = 400  # bytes
_LEFT: Final = 50  # claims, or locks, that the end of a session releases


class _Known(msgspec.Struct):
    """What a session knows already: the claims it had, the mail that was reported, the claims recalled at its stop."""

    claims: list[str] = []
    mail: list[str] = []
    recalled: list[str] = []

    @classmethod
    def read(cls, path: str) -> _Known:
        """What is written down; nothing if that cannot be read."""
        try:
            with open(path, "rb") as file:
                return msgspec.json.decode(file.read(), type=cls)
        except (OSError, msgspec.DecodeError):
            return cls()

    def write(self, path: str, due: bool = False) -> bool:
        """Write it down; False in a place that can only be read. `due`: it does not count as a renewal."""
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            write_private(path, msgspec.json.encode(self))
            if due:
                os.utime(path, (0, 0))
        except OSError:
            return False
        return True


def _news_file(session: Session, actor: str) -> str:
    folder = os.path.join(location.private_folder(session.place, session.environ), client_sessions.FOLDER)
    return os.path.join(folder, f".news.{actor.replace('/', '%2F')}")


def attend(session: Session, actor: str | None, at_once: bool = False) -> str:
    """Renew what the session holds, in one commit, and return what is new for it; at most once in FRESH seconds.

    With `at_once` the news are asked for anyway. Nothing that fails here stops an edit, or keeps it waiting: while
    another process is in a transaction, the renewal is left to the next call, and the agent hears that.
    """
    if actor is None:
        return ""
    path = _news_file(session, actor)
    fresh = os.path.exists(path) and SystemClock().wall() / 1e6 - os.stat(path).st_mtime < FRESH
    if fresh and not at_once:
        return ""
    known = _Known.read(path)
    session.timeout = _PATIENCE
    try:
        with session.open(writing=True) as workspace:
            claims = list(workspace.tasks.list(claimed_by=actor, limit=_MOST))
            late = "" if fresh else _renew(workspace, actor, claims)
            lost = [task for id in known.claims if (task := _lost(workspace, id, actor)) is not None]
            mail = [each for each in workspace.mail.inbox(actor, unread=True, limit=_MOST) if each.id not in known.mail]
    except errors.HoldfastError as error:
        return _late(error)
    told = _Known([task.id for task in claims], [*known.mail, *(each.id for each in mail)][-100:], known.recalled)
    if not fresh or told != known:
        told.write(path, due=bool(late))  # else it is told again
    return _news(late, lost, mail, claims if at_once else [])


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
    held_now = [task.id for task in claims]
    told = msgspec.structs.replace(
        known, claims=list(dict.fromkeys([*known.claims, *held_now])), recalled=held_now
    )  # what it had before is kept: if it is lost, that is still to be reported
    news = [task for task in claims if task.id not in known.recalled and not task.parked]
    if (told != known and not told.write(path)) or not news:
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


def _lost(workspace: Any, id: str, actor: str) -> Any:
    """The task, if the session held it and lost it: another has claimed it, or the claim expired."""
    task = workspace.tasks.get(id)
    if task.claimed_by == actor:
        return None
    ended = [event.op for event in workspace.tasks.history(id) if event.op in _ENDINGS]
    return task if task.claimed_by is not None or ended[-1:] == ["expire"] else None


_ENDINGS: Final = ("expire", "release", "complete", "block", "park", "close", "cancel")


def _news(late: str, lost: list[Any], mail: list[Any], claims: list[Any]) -> str:
    """The news as text, cut to what a prompt can bear."""
    lines = [late] if late else []
    lines += [
        f"Holdfast: you lost the claim on {task.id}: stop that work, and look with holdfast show" for task in lost
    ]
    if mail:
        senders = ", ".join(dict.fromkeys(printable(each.sender) for each in mail))
        lines.append(f"Holdfast: {len(mail)} new message(s), from {senders}: holdfast mail inbox")
    if claims:
        held = ", ".join(f"{task.id} ({short(printable(task.title), 40)})" for task in claims)
        lines.append(f"Holdfast: you hold {held}; end with holdfast done, block or release")
    return "\n".join(lines).encode()[:_NEWS].decode(errors="ignore")
