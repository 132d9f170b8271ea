"""Turn tools for work: a shared file edited in one transaction, tasks of the ledger, signals.

No edit is lost: a replacement is made on what the file says at that moment, and is refused where that is not what its
author saw. A whole text cannot be compared like that, so it is taken only under a lock of the same session, and in the
place of what that session read of the file, or wrote itself.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from holdfast import errors, turnfile
from holdfast.faces.mcp import turn_holding
from holdfast.faces.mcp.callers import Caller
from holdfast.faces.mcp.marking import filled
from holdfast.faces.mcp.turn_calls import Wait, acted, completed, doubts, waiting
from holdfast.turnfile import tasks
from holdfast.turnfile.ledger.people import newcomers, strangers
from holdfast.turnfile.mailbox.markdown import newline_of
from holdfast.turnfile.model import SignalWord


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
        named = turn_holding.named(folder, actor, path)
        held = [each.id for each in named if turn_holding.is_mine(session, each)]

        def body(transaction: turnfile.Transaction) -> None:
            before = transaction.read(path)
            known = turn_holding.has_seen(session, held, path, before)
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
                turn_holding.saw(session, path, after)

        under = held[0] if held and not append and old is None else None
        done = turnfile.transact(
            [path], actor, reason, body, folder=folder, patience=patience, under=under, rehearse=True
        )
        return turn_holding.wrote(session, named, done)

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
