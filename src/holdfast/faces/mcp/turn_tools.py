"""The profile `turn`: tools for locks, mail, reading and editing of turn files. It needs no workspace.

No edit is lost: a replacement is made on what the file says at that moment, and is refused where that is not what its
author saw. A whole text cannot be compared like that, so it is taken only under a lock of the same session, and in the
place of what that session read of the file, or wrote itself.

Only over standard input and output. The profile `all` of a workspace has the tools too, where its server was started
with a folder.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

import msgspec

from holdfast import errors, turnfile
from holdfast.faces.mcp import turn_session
from holdfast.faces.mcp.session import Caller
from holdfast.faces.mcp.text import LONG, LONGEST, cut, filled
from holdfast.faces.mcp.tool import MARKS, ServerDefinition, Tool, missing, parts_of, tool
from holdfast.faces.mcp.turn_session import MOST, Wait, acted, completed, doubts, files_of, some, waiting
from holdfast.turnfile import mail as mailing
from holdfast.turnfile import tasks
from holdfast.turnfile.ledger import newcomers, strangers
from holdfast.turnfile.mailbox.markdown import newline_of
from holdfast.turnfile.mailbox.steps import Disposition
from holdfast.turnfile.model import DEFAULT_LEASE_REVS, MAILBOX, SignalWord

OfMine = Annotated[str | None, "its id; all of this session without"]


async def turn_status(session: Caller) -> Any:
    """Who holds which shared file and for how many revisions, open tasks, what is unread, what is wrong."""
    found = await asyncio.to_thread(lambda: turnfile.status(files_of(session)))
    locks = [
        {
            "id": each.lock.id,
            "holder": each.lock.holder,
            "files": list(each.lock.files),
            "revisions_left": each.revisions_left,
            "stale": each.stale,
            **filled(reason=cut(each.lock.reason, LONG)),
        }
        for each in found.locks
    ]
    newest = sorted(found.signals, key=lambda signal: signal.rev, reverse=True)
    return {
        "revision": found.revision,
        "locks": locks,
        "unread": {each.agent: each.unread for each in found.unread if each.unread},
        "tasks": some(found.tasks),
        "signals": some(newest),
        "problems": some(found.problems),
        **filled(warnings=list(found.warnings) or None),
    }


async def turn_check(session: Caller) -> Any:
    """Check the shared files against each other."""
    problems = await asyncio.to_thread(lambda: turnfile.check(files_of(session)))
    return {"errors": sum(each.level == "error" for each in problems), "problems": some(problems)}


async def turn_lock(
    session: Caller,
    files: Annotated[list[str], "such as MAILBOX.md"],
    reason: str,
    lease_revs: Annotated[int, "how many revisions it outlives; 2"] = DEFAULT_LEASE_REVS,
    wait: Wait = None,
) -> Any:
    """Lock shared files before you read and edit them by hand. HELD tells who has one; turn_unlock gives them back."""

    def take(folder: turnfile.Session, actor: str, patience: turnfile.Patience | None) -> dict[str, Any]:
        claim = turnfile.claim_of(folder, files, actor, reason, lease_revs)
        lock = turnfile.acquire(folder, claim, patience)
        turn_session.take(session, folder, lock)
        return {**msgspec.to_builtins(lock), **doubts(claim.warnings)}

    return await waiting(session, take, wait)


async def turn_renew(session: Caller, lock: OfMine = None) -> Any:
    """Begin the lease of locks again, before they are stale."""

    def again(folder: turnfile.Session, actor: str) -> list[turnfile.Lock]:
        before = turn_session.named(folder, actor)
        done = turnfile.renew_all(folder, turn_session.chosen(session, folder, actor, lock), actor)
        turn_session.used(session, before, {each.id: each.acquired_rev for each in done})
        return done

    return {"renewed": msgspec.to_builtins(await acted(session, again))}


async def turn_unlock(session: Caller, lock: OfMine = None) -> Any:
    """Give locks back after the edit: MAILBOX.json is made fresh, and what is out of order is told."""

    def give_back(folder: turnfile.Session, actor: str) -> list[dict[str, Any]]:
        released: list[dict[str, Any]] = []
        lost: dict[str, errors.HoldfastError] = {}
        for id in turn_session.chosen(session, folder, actor, lock):
            try:
                released.append(completed(turnfile.unlock(folder, id, actor)))
            except (errors.NotHolder, errors.NotFound) as error:
                lost[id] = error
            session.taken.pop(id, None)
        for first in lost.values():  # whose details tell of all
            first.details |= {"released": released, "lost": list(lost)}
            raise first
        return released

    return {"released": await acted(session, give_back)}


async def turn_clear(session: Caller, lock: Annotated[str | None, "its id; all stale ones without"] = None) -> Any:
    """Remove stale locks, of anybody."""
    chosen = [lock] if lock else []
    gone = await acted(session, lambda folder, actor: turnfile.clear_stale(folder, actor, chosen))
    return {"cleared": [{"id": each.id, "holder": each.holder} for each in gone]}


async def turn_override(
    session: Caller,
    lock: Annotated[str, "its id"],
    reason: Annotated[str, "begins with P0, and says what is at stake"],
    take: Annotated[bool, "and get one on the same files"] = False,
) -> Any:
    """Only in an emergency: take somebody's valid lock away. The worklog says so."""

    def push(folder: turnfile.Session, actor: str) -> turnfile.Overridden:
        done = turnfile.override(folder, lock, reason, actor, take=take)
        if done.replaced_by is not None:
            turn_session.take(session, folder, done.replaced_by)
        return done

    done = await acted(session, push)
    return {
        "overridden": done.lock.id,
        "holder": done.lock.holder,
        **filled(mine=done.replaced_by and done.replaced_by.id),
        "files": list(done.files),
        "revision": done.revision,
        "problems": some(done.problems),
    }


async def turn_mail_send(
    session: Caller,
    body: str,
    to: Annotated[str | None, "an agent, several with commas, or all; not needed with reply_to"] = None,
    subject: str | None = None,
    reply_to: Annotated[str | None, "message id"] = None,
    type: Literal["notify", "request", "decision-required", "objection", "handoff-ready"] | None = None,
    priority: Literal["P0", "P1", "P2"] = "P1",
    wait: Wait = None,
) -> Any:
    """Send a message in MAILBOX.md, or answer one."""
    if reply_to is None and (not to or not subject):
        raise errors.Invalid("a message needs to and subject", hint="or reply_to, the id of the message it answers")

    def send(hand: turnfile.Mailing) -> turnfile.Mailed:
        more: dict[str, Any] = {"body": body, "priority": priority, **filled(type=type)}
        if reply_to is not None:
            return hand.reply(reply_to, subject=subject or "", **more)
        return hand.send(to or "", subject or "", **more)

    return await _mailed(session, send, wait)


async def turn_mail_list(
    session: Caller,
    id: Annotated[str | None, "instead: this message, whole"] = None,
    all: Annotated[bool, "also what is not from or to me"] = False,
) -> Any:
    """My messages in MAILBOX.md that are not closed, newest first. Reading is not acknowledging."""
    if id is not None:
        found = await asyncio.to_thread(lambda: mailing.message(files_of(session), id))
        return {**found, **filled(body=cut(found.get("body") or "", LONGEST))}
    who = None if all else session.actor
    messages = await asyncio.to_thread(lambda: mailing.messages(files_of(session), who))
    shown = [{**each, "body": cut(each["body"], LONG)} for each in messages[:MOST]]
    return {"messages": shown, **filled(more=len(messages) - len(shown) or None)}


async def turn_mail_step(
    session: Caller,
    id: str,
    step: Literal["ack", "action", "block", "close"],
    note: Annotated[str, "why; what you wait for"] = "",
    disposition: Annotated[Disposition | None, "of one you close"] = None,
    wait: Wait = None,
) -> Any:
    """Acknowledge a message, say that it is done or what it waits for; close one that you sent."""
    if disposition is not None and step != "close":
        raise errors.Invalid("only who closes a message says what became of it", hint="disposition goes with close")

    def do(hand: turnfile.Mailing) -> turnfile.Mailed:
        if step == "close":
            return hand.close(id, note, disposition=disposition or "closed")
        return {"ack": hand.ack, "action": hand.action, "block": hand.block}[step](id, note)

    return await _mailed(session, do, wait)


async def _mailed(
    session: Caller, change: Callable[[turnfile.Mailing], turnfile.Mailed], wait: float | None
) -> dict[str, Any]:
    def mail(folder: turnfile.Session, actor: str, patience: turnfile.Patience | None) -> turnfile.Mailed:
        before = turn_session.named(folder, actor, MAILBOX)
        mailed = change(turnfile.Mailing(folder, actor, patience=patience))
        turn_session.wrote(session, before, mailed.completion)
        return mailed

    done = await waiting(session, mail, wait)
    return {"id": done.id, "status": done.status, **completed(done.completion)}


async def turn_read(session: Caller, file: str, from_line: Annotated[int, "1"] = 1) -> Any:
    """A file of the folder; a long one in parts: go on at rest_from_line."""
    path, text = await text_of(session, file, seen=from_line == 1)
    lines = text.split("\n")
    count = len(lines) - (len(lines) > 1 and not lines[-1])
    if not 1 <= from_line <= count:
        raise errors.Invalid(f"{path} has {count} lines, and none is {from_line}", hint="lines are counted from 1")
    part, rest = _part(lines[from_line - 1 :])
    return {"file": path, "text": part, **filled(rest_from_line=len(lines) - rest + 1 if rest else None)}


async def text_of(session: Caller, file: str, *, seen: bool = True) -> tuple[str, str]:
    """The path of a file and what it says. Raises NotFound. `seen`: from its beginning, so that it may be replaced."""

    def look() -> tuple[str, str]:
        ((path, text),) = files_of(session).texts([file]).items()
        if text is None:
            raise errors.NotFound(f"there is no {path}")
        return path, text

    path, text = await asyncio.to_thread(look)
    if seen:  # if it changes before its next part is read, then what was read is not what it says
        turn_session.saw(session, path, text)
    return path, text


def _part(lines: list[str]) -> tuple[str, int]:
    """As many lines as an answer may have, at least one, and how many are left."""
    size = 0
    for count, line in enumerate(lines):
        size += len(line) + 1
        if size > LONGEST and count:
            return "\n".join([*lines[:count], ""]), len(lines) - count
    return cut("\n".join(lines), LONGEST), 0


async def turn_edit(
    session: Caller,
    file: str,
    new: str,
    reason: str,
    old: Annotated[str | None, "what new replaces: text that is in the file exactly once"] = None,
    append: Annotated[bool, "add new at the end"] = False,
    wait: Wait = None,
) -> Any:
    """Edit a shared file as one transaction, with lock and checks. Without old and append, new is the whole file: then
    turn_lock it before you read it."""
    if append and not new:
        raise errors.Invalid("there is nothing to append", hint="new is what goes to the end of the file")
    if append and old is not None:
        raise errors.Invalid("old and append exclude each other", hint="new takes the place of old, or goes to the end")

    def edit(folder: turnfile.Session, actor: str, patience: turnfile.Patience | None) -> turnfile.Completion:
        path = folder.normal(file)
        named = turn_session.named(folder, actor, path)
        held = [each.id for each in named if turn_session.is_mine(session, each)]

        def body(transaction: turnfile.Transaction) -> None:
            before = transaction.read(path)
            known = turn_session.has_seen(session, held, path, before)
            if append:
                after = _appended(before or "", new)
            elif old is not None:
                after = _replaced(path, before, old, new)
            elif before is None or known:
                after = _ended(new, before or "")
            else:
                raise _unseen(path, [each.id for each in named], locked=bool(held))
            transaction.write(path, after)
            if known:
                turn_session.saw(session, path, after)

        under = held[0] if held and not append and old is None else None
        done = turnfile.transact(
            [path], actor, reason, body, folder=folder, patience=patience, under=under, rehearse=True
        )
        return turn_session.wrote(session, named, done)

    return completed(await waiting(session, edit, wait))


async def turn_task(
    session: Caller,
    id: str,
    step: Literal["add", "claim", "done"],
    description: Annotated[str | None, "of a new one, in one line"] = None,
    priority: Literal["P0", "P1", "P2"] | None = None,
    depends_on: list[str] | None = None,
) -> Any:
    """Add a task to the ledger, claim one, or say that mine is done; turn_status lists them."""
    more = filled(description=description, priority=priority, depends_on=depends_on)
    if step != "add" and more:
        raise errors.Invalid(
            f"{', '.join(more)} of a task is said when it is added", hint=f"leave it out to {step} one"
        )

    def do(folder: turnfile.Session, actor: str) -> dict[str, Any]:
        new = newcomers(folder.read(), actor)
        if step == "add":
            task = tasks.add(folder, id, more.pop("description", ""), actor, **more)
        else:
            task = {"claim": tasks.claim, "done": tasks.done}[step](folder, id, actor)
        return {**msgspec.to_builtins(task), **doubts(new)}

    return await acted(session, do)


async def turn_signal(
    session: Caller,
    word: SignalWord,
    detail: Annotated[str, "what about, in one line"] = "",
    to: Annotated[str, "an agent; all"] = "all",
) -> Any:
    """Leave a short word in the ledger."""

    def say(folder: turnfile.Session, actor: str) -> dict[str, Any]:
        unknown = strangers(folder.read(), actor, to)
        return {**msgspec.to_builtins(tasks.signal(folder, actor, to, word, detail)), **doubts(unknown)}

    return await acted(session, say)


# --- edits -----------------------------------------------------------------------------------------------------------


def _replaced(path: str, before: str | None, old: str, new: str) -> str:
    if before is None:
        raise errors.NotFound(f"there is no {path}", hint="without old, new is the whole file")
    old, new = _ended(old, before), _ended(new, before)
    at = before.find(old)
    if not old or at < 0:
        words = f"{path} does not have the old text" if old else "the old text is empty"
        raise errors.Invalid(words, hint="read the file again, and give old exactly as it stands there", path=path)
    if before.find(old, at + 1) >= 0:
        words = f"{path} has the old text more than once"
        raise errors.Invalid(words, hint="give more of what stands around it", path=path)
    return before[:at] + new + before[at + len(old) :]


def _appended(before: str, new: str) -> str:
    end = newline_of(before)
    glue = end if before and not before.endswith("\n") else ""
    added = _ended(new, before)
    return before + glue + added + ("" if added.endswith("\n") else end)


def _unseen(path: str, named: list[str], *, locked: bool) -> errors.NotHolder:
    """The error for a whole text in the place of one that may have another's edit."""
    if locked:
        return errors.NotHolder(
            f"{path} does not say what this session last read of it, or it never read it",
            hint="turn_read it, then write it; or give old, or append",
            path=path,
        )
    hint = "turn_lock it, read it, then write it; or give old, or append"
    if named:
        hint = (
            f"another session of your name took or used {named[0]}: give old, or append; or, if that session has"
            f" ended, turn_unlock {named[0]} and turn_lock the file again"
        )
    words = "is written whole only under a lock of this session: others may have edited it since you read it"
    return errors.NotHolder(f"{path} {words}", hint=hint, path=path)


def _ended(text: str, before: str) -> str:
    """A text whose lines end as those of the file do: a model rarely knows."""
    return text.replace("\r\n", "\n").replace("\n", "\r\n") if newline_of(before) == "\r\n" else text


INSTRUCTIONS: Final = (
    "Turns at the shared files of a repository (MAILBOX.md, WORKLOG.md, OPEN_QUESTIONS.md) that others edit too. Begin"
    " with turn_status and turn_mail_list. turn_read shows a file, turn_edit changes it; or turn_lock it, read it, edit"
    " it, turn_unlock it. Each write adds a revision, and a lock is stale after so many: give it back soon. HELD:"
    f" another has the file; do something else, or wait. After NOT_HOLDER read the file again. {MARKS}"
)
TOOLS: Final[tuple[Tool, ...]] = (
    tool(turn_status, reads=True),
    tool(turn_check, reads=True),
    tool(turn_read, reads=True),
    tool(turn_edit),
    tool(turn_lock),
    tool(turn_renew),
    tool(turn_unlock),
    tool(turn_clear),
    tool(turn_override, takes=True),
    tool(turn_task),
    tool(turn_signal),
    tool(turn_mail_send),
    tool(turn_mail_list, reads=True),
    tool(turn_mail_step),
)
FIXED: Final = {"turn": "Who holds what, open tasks, what is unread, what is wrong."}
TEMPLATES: Final = {"turn/{file}": "A shared file, whole."}
_NAMED: Final = {each.name: each for each in TOOLS}


async def read(session: Caller, uri: str) -> Any:
    """The content of a resource; NotFound if there is none of this name."""
    match parts_of(uri):
        case ["turn"]:
            return await turn_status(session)
        case ["turn", *names] if path := "/".join(names):
            file, text = await text_of(session, path)
            return {"file": file, "text": text}
    raise missing(uri, (*FIXED, *TEMPLATES))


TURNS: Final = ServerDefinition(INSTRUCTIONS, lambda _: _NAMED, FIXED, TEMPLATES, read)
