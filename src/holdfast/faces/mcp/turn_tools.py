"""The profile `turn`: tools for locks, mail, reading and editing of turn files. It needs no workspace.

No edit is lost: `old` is replaced in the text that the file has at that moment, and is refused if it is not there. A
whole text cannot be compared like that, so it is accepted only under a lock of the same session, and only if the file
still has the text that this session last read or wrote. Served over standard input and output alone; the profile
`all` of a workspace has these tools too if its server was started with a folder.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

import msgspec

from holdfast import errors, turnfile
from holdfast.faces.mcp import turn_session
from holdfast.faces.mcp.tool import (
    LONG,
    LONGEST,
    MARKS,
    Caller,
    ServerDefinition,
    Tool,
    cut,
    filled,
    missing,
    parts_of,
    picked,
    tool,
)
from holdfast.faces.mcp.turn_session import Wait, completion_data, files_of, first, run, run_waiting, warnings_data
from holdfast.turnfile import mail as mailing
from holdfast.turnfile import tasks
from holdfast.turnfile.ledger import unknown_names
from holdfast.turnfile.mailbox.markdown import newline_of
from holdfast.turnfile.mailbox.steps import Disposition
from holdfast.turnfile.model import DEFAULT_LEASE_REVS, MAILBOX, SignalWord

OfMine = Annotated[str | None, "its id; default: all of this session"]


async def turn_status(session: Caller) -> Any:
    """Locks and the revisions they have left, unread mail, open tasks, signals, problems."""
    found = await asyncio.to_thread(lambda: turnfile.status(files_of(session)))
    locks = [
        picked(each.lock, "id", "holder", "files")
        | picked(each, "revisions_left", "stale")
        | filled(reason=cut(each.lock.reason, LONG))
        for each in found.locks
    ]
    return {
        "revision": found.revision,
        "locks": locks,
        "unread": {each.agent: each.unread for each in found.unread if each.unread},
        "tasks": first(found.tasks),
        "signals": first(found.signals),
        "problems": first(found.problems),
        **filled(warnings=list(found.warnings) or None),
    }


async def turn_check(session: Caller) -> Any:
    """Check the shared files against each other."""
    problems = await asyncio.to_thread(lambda: turnfile.check(files_of(session)))
    return {"errors": sum(each.level == "error" for each in problems), "problems": first(problems)}


async def turn_tidy(
    session: Caller, dry_run: Annotated[bool, "only say what would be done"] = False, wait: Wait = None
) -> Any:
    """Repair order, sections, duplicates, tables and MAILBOX.json. No line is lost."""

    def do(folder: turnfile.Session, actor: str, wait: turnfile.WaitPolicy | None) -> turnfile.TidyResult:
        return turnfile.tidy(folder, actor, dry_run=dry_run, wait=wait)

    done = await run_waiting(session, do, wait)
    return {
        "repairs": first([str(each) for each in done.repairs]),
        "files": list(done.files),
        "revision": done.revision,
        "problems": first(done.problems),
    }


async def turn_lock(
    session: Caller,
    files: Annotated[list[str], "such as MAILBOX.md"],
    reason: str,
    lease_revs: Annotated[int, "revisions that it stays valid; 2"] = DEFAULT_LEASE_REVS,
    wait: Wait = None,
) -> Any:
    """Lock shared files before you read and edit them. HELD names the holder; turn_unlock releases them."""

    def take(folder: turnfile.Session, actor: str, wait: turnfile.WaitPolicy | None) -> dict[str, Any]:
        claim = turnfile.lock_request(folder, files, actor, reason, lease_revs)
        lock = turnfile.acquire(folder, claim, wait)
        turn_session.remember(session, folder, lock)
        return {**msgspec.to_builtins(lock), **warnings_data(claim.warnings)}

    return await run_waiting(session, take, wait)


async def turn_renew(session: Caller, lock: OfMine = None) -> Any:
    """Restart the lease of your locks before they are stale."""

    def renew(folder: turnfile.Session, actor: str) -> list[turnfile.Lock]:
        before = turn_session.locks_of(folder, actor)
        done = turnfile.renew_all(folder, turn_session.selected_locks(session, folder, actor, lock), actor)
        turn_session.remember_renewals(session, before, {each.id: each.acquired_rev for each in done})
        return done

    return {"renewed": msgspec.to_builtins(await run(session, renew))}


async def turn_unlock(session: Caller, lock: OfMine = None) -> Any:
    """Release your locks after the edit; rewrites MAILBOX.json and reports problems in the files."""

    def unlock(folder: turnfile.Session, actor: str) -> list[dict[str, Any]]:
        ids = turn_session.selected_locks(session, folder, actor, lock)
        done, lost = turnfile.unlock_all(folder, ids, actor)
        for id in ids:
            session.taken.pop(id, None)
        released = [completion_data(each) for each in done]
        for error in lost.values():  # the first is raised, with the outcome of all
            error.details |= {"released": released, "lost": list(lost)}
            raise error
        return released

    return {"released": await run(session, unlock)}


async def turn_clear(session: Caller, lock: Annotated[str | None, "its id; default: all stale locks"] = None) -> Any:
    """Remove stale locks of any holder."""
    chosen = [lock] if lock else []
    gone = await run(session, lambda folder, actor: turnfile.clear_stale(folder, actor, chosen))
    return {"cleared": [{"id": each.id, "holder": each.holder} for each in gone]}


async def turn_override(
    session: Caller,
    lock: Annotated[str, "its id, or id@revision: the one acquired then"],
    reason: Annotated[str, "starts with P0 and says what is at stake"],
    take: Annotated[bool, "take a lock on the same files"] = False,
) -> Any:
    """Only in an emergency: remove another's valid lock. It is logged in the worklog."""

    def override(folder: turnfile.Session, actor: str) -> turnfile.OverrideResult:
        done = turnfile.override(folder, lock, reason, actor, take=take)
        if done.replaced_by is not None:
            turn_session.remember(session, folder, done.replaced_by)
        return done

    done = await run(session, override)
    return {
        "overridden": done.lock.id,
        "holder": done.lock.holder,
        **filled(mine=done.replaced_by and done.replaced_by.id),
        "files": list(done.files),
        "revision": done.revision,
        "problems": first(done.problems),
    }


async def turn_mail_send(
    session: Caller,
    body: str,
    to: Annotated[str | None, "an agent, several separated by commas, or all; omit with reply_to"] = None,
    subject: str | None = None,
    reply_to: Annotated[str | None, "message id"] = None,
    type: Literal["notify", "request", "decision-required", "objection", "handoff-ready"] | None = None,
    priority: Literal["P0", "P1", "P2"] = "P1",
    files: Annotated[list[str] | None, "files of the project to hand over by digest, from its root"] = None,
    wait: Wait = None,
) -> Any:
    """Send a message in MAILBOX.md, or reply to one."""
    if reply_to is not None and files:
        raise errors.Invalid("a reply carries no files", hint="send a message to hand files over")
    if reply_to is None and (not to or not subject):
        raise errors.Invalid("a message needs `to` and `subject`", hint="or `reply_to`, the id of a message")

    def send(mail: turnfile.Mail) -> turnfile.MailResult:
        more: dict[str, Any] = {"body": body, "priority": priority, **filled(type=type)}
        if reply_to is not None:
            return mail.reply(reply_to, subject=subject or "", **more)
        return mail.send(to or "", subject or "", files=files or (), **more)

    return await _change_mail(session, send, wait)


async def turn_mail_list(
    session: Caller,
    id: Annotated[str | None, "only this message, in full"] = None,
    all: Annotated[bool, "also messages that are not from or to me"] = False,
) -> Any:
    """My open messages in MAILBOX.md, newest first. Reading does not acknowledge them."""
    if id is not None:
        found = await asyncio.to_thread(lambda: mailing.message(files_of(session), id))
        return {**found, **filled(body=cut(found.get("body") or "", LONGEST))}
    who = None if all else session.actor
    messages = await asyncio.to_thread(lambda: mailing.messages(files_of(session), who))
    shown = [{**each, "body": cut(each["body"], LONG)} for each in messages[: turn_session.MOST]]
    return {"messages": shown, **filled(more=len(messages) - len(shown) or None)}


async def turn_mail_verify(session: Caller, id: str) -> Any:
    """What has become of the files that a message carries: same, changed or missing."""
    found = await asyncio.to_thread(lambda: mailing.verify(files_of(session), id))
    return {"same": all(each.state == "same" for each in found), "files": msgspec.to_builtins(found)}


async def turn_mail_step(
    session: Caller,
    id: str,
    step: Literal["ack", "action", "block", "close"],
    note: Annotated[str, "the reason; for block, the dependency"] = "",
    disposition: Annotated[Disposition | None, "only with close"] = None,
    wait: Wait = None,
) -> Any:
    """Acknowledge, action or block a message to you; close one that you sent."""
    if disposition is not None and step != "close":
        raise errors.Invalid("`disposition` is only valid when closing a message", hint="use step `close`, or omit it")

    def do(mail: turnfile.Mail) -> turnfile.MailResult:
        if step == "close":
            return mail.close(id, note, disposition=disposition or "closed")
        return mail.step(id, step, note)

    return await _change_mail(session, do, wait)


async def _change_mail(
    session: Caller, change: Callable[[turnfile.Mail], turnfile.MailResult], wait: float | None
) -> dict[str, Any]:
    def mail(folder: turnfile.Session, actor: str, wait: turnfile.WaitPolicy | None) -> turnfile.MailResult:
        before = turn_session.locks_of(folder, actor, MAILBOX)
        mailed = change(turnfile.Mail(folder, actor, wait=wait))
        turn_session.remember_write(session, before, mailed.completion)
        return mailed

    done = await run_waiting(session, mail, wait)
    return {"id": done.id, "status": done.status, **completion_data(done.completion)}


async def turn_read(session: Caller, file: str, from_line: Annotated[int, "1"] = 1) -> Any:
    """Read a file of the folder; a long one in parts: continue at rest_from_line."""
    path, text = await text_of(session, file, seen=from_line == 1)
    lines = text.split("\n")
    count = len(lines) - (len(lines) > 1 and not lines[-1])
    if not 1 <= from_line <= count:
        raise errors.Invalid(f"{path} has {count} lines, not {from_line}", hint="lines are counted from 1")
    part, rest = _page(lines[from_line - 1 :])
    return {"file": path, "text": part, **filled(rest_from_line=len(lines) - rest + 1 if rest else None)}


async def text_of(session: Caller, file: str, *, seen: bool = True) -> tuple[str, str]:
    """The path and text of a file. Raises NotFound. `seen`: read from its first line, so that it may be replaced."""

    def read_text() -> tuple[str, str]:
        ((path, text),) = files_of(session).texts([file]).items()
        if text is None:
            raise errors.NotFound(f"there is no file {path}")
        return path, text

    path, text = await asyncio.to_thread(read_text)
    if seen:  # if it changes before its next part is read, the text no longer matches
        turn_session.remember_text(session, path, text)
    return path, text


def _page(lines: list[str]) -> tuple[str, int]:
    """As many lines as one result may have, at least one; and how many are left."""
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
    old: Annotated[str | None, "the text that new replaces; it must occur exactly once"] = None,
    append: Annotated[bool, "add new at the end of the file"] = False,
    wait: Wait = None,
) -> Any:
    """Edit a shared file in one transaction, with lock and checks. Without old and append, new is the whole file:
    turn_lock it before you read it."""
    if append and not new:
        raise errors.Invalid("`new` is empty", hint="with append, `new` is the text to add")
    if append and old is not None:
        raise errors.Invalid("`old` and `append` exclude each other", hint="replace `old`, or append")

    def edit(folder: turnfile.Session, actor: str, wait: turnfile.WaitPolicy | None) -> turnfile.Completion:
        path = folder.normalize(file)
        named = turn_session.locks_of(folder, actor, path)
        held = [each.id for each in named if turn_session.is_own(session, each)]

        def body(transaction: turnfile.Transaction) -> None:
            before = transaction.read(path)
            known = turn_session.has_seen(session, held, path, before)
            if append:
                after = _appended(before or "", new)
            elif old is not None:
                after = _replaced(path, before, old, new)
            elif before is None or known:
                after = _with_newlines_of(new, before or "")
            else:
                raise _unseen(path, [each.id for each in named], locked=bool(held))
            transaction.write(path, after)
            if known:
                turn_session.remember_text(session, path, after)

        under = held[0] if held and not append and old is None else None
        done = turnfile.transact([path], actor, reason, body, folder=folder, wait=wait, under=under, rehearse=True)
        return turn_session.remember_write(session, named, done)

    return completion_data(await run_waiting(session, edit, wait))


async def turn_task(
    session: Caller,
    id: str,
    step: Literal["add", "claim", "done"],
    description: Annotated[str | None, "of a new task, one line"] = None,
    priority: Literal["P0", "P1", "P2"] | None = None,
    depends_on: list[str] | None = None,
) -> Any:
    """Add a task to the ledger, claim one, or finish mine; turn_status lists them."""
    more = filled(description=description, priority=priority, depends_on=depends_on)
    if step != "add" and more:
        raise errors.Invalid(f"{', '.join(more)}: only valid when adding a task", hint=f"omit it with step {step}")

    def do(folder: turnfile.Session, actor: str) -> dict[str, Any]:
        task, warnings = tasks.change(folder, step, id, actor, **more)
        return {**msgspec.to_builtins(task), **warnings_data(warnings)}

    return await run(session, do)


async def turn_signal(
    session: Caller,
    word: SignalWord,
    detail: Annotated[str, "one line"] = "",
    to: Annotated[str, "an agent, or all"] = "all",
) -> Any:
    """Send a short signal in the ledger."""

    def send(folder: turnfile.Session, actor: str) -> dict[str, Any]:
        unknown = unknown_names(folder.read(), actor, to)
        return {**msgspec.to_builtins(tasks.signal(folder, actor, to, word, detail)), **warnings_data(unknown)}

    return await run(session, send)


# --- edits -----------------------------------------------------------------------------------------------------------


def _replaced(path: str, before: str | None, old: str, new: str) -> str:
    if before is None:
        raise errors.NotFound(f"there is no file {path}", hint="omit `old` to create it; `new` is then the whole file")
    old, new = _with_newlines_of(old, before), _with_newlines_of(new, before)
    at = before.find(old)
    if not old or at < 0:
        words = f"`old` does not occur in {path}" if old else "`old` is empty"
        raise errors.Invalid(words, hint="turn_read the file again, and copy `old` exactly", path=path)
    if before.find(old, at + 1) >= 0:
        words = f"`old` occurs more than once in {path}"
        raise errors.Invalid(words, hint="include more of the surrounding text", path=path)
    return before[:at] + new + before[at + len(old) :]


def _appended(before: str, new: str) -> str:
    end = newline_of(before)
    glue = end if before and not before.endswith("\n") else ""
    added = _with_newlines_of(new, before)
    return before + glue + added + ("" if added.endswith("\n") else end)


def _unseen(path: str, named: list[str], *, locked: bool) -> errors.NotHolder:
    """The error for replacing a whole file that may have somebody else's edit."""
    if locked:
        message = f"{path} is not as this session last read it, or the session has not read it"
        return errors.NotHolder(message, hint="turn_read it, then write it; or use `old` or `append`", path=path)
    hint = "turn_lock it, turn_read it, then write it; or use `old` or `append`"
    if named:
        hint = (
            f"another session with your name took or used {named[0]}: use `old` or `append`; or, if that session has"
            f" ended, turn_unlock {named[0]} and turn_lock the file again"
        )
    words = "can be replaced as a whole only under a lock of this session: others may have edited it"
    return errors.NotHolder(f"{path} {words}", hint=hint, path=path)


def _with_newlines_of(text: str, before: str) -> str:
    """The text with the line ends of the file, which a model rarely knows."""
    return text.replace("\r\n", "\n").replace("\n", "\r\n") if newline_of(before) == "\r\n" else text


INSTRUCTIONS: Final = (
    "Shared files of a repository (MAILBOX.md, WORKLOG.md, OPEN_QUESTIONS.md) that others edit too. Start with"
    " turn_status and turn_mail_list. turn_read shows a file, turn_edit changes it; or turn_lock it, read it, edit it,"
    " turn_unlock it. Each write adds a revision, and a lock is stale after a few of them: release it soon. HELD:"
    f" somebody else has the file; do other work, or wait. After NOT_HOLDER read the file again. {MARKS}"
)
TOOLS: Final[tuple[Tool, ...]] = (
    tool(turn_status, reads=True),
    tool(turn_check, reads=True),
    tool(turn_tidy),
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
    tool(turn_mail_verify, reads=True),
    tool(turn_mail_step),
)
FIXED: Final = {"turn": "Locks, open tasks, unread mail, problems."}
TEMPLATES: Final = {"turn/{file}": "A shared file in full."}
_NAMED: Final = {each.name: each for each in TOOLS}


async def read(session: Caller, uri: str) -> Any:
    """The content of a resource. Raises NotFound."""
    match parts_of(uri):
        case ["turn"]:
            return await turn_status(session)
        case ["turn", *names] if path := "/".join(names):
            file, text = await text_of(session, path)
            return {"file": file, "text": text}
    raise missing(uri, (*FIXED, *TEMPLATES))


TURNS: Final = ServerDefinition(INSTRUCTIONS, lambda _: _NAMED, FIXED, TEMPLATES, read)
