"""`holdfast turn lock`, `unlock`, `renew`, `clear` and `override`: turns at shared files, by hand.

Who takes a lock and edits with an editor of their own gives it back with `unlock`, which makes the projection fresh and
leaves the completion note; `turn edit` does all of that in one go.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast import turnfile
from holdfast.errors import NotFound
from holdfast.faces.cli.args import Argument
from holdfast.faces.cli.call import Session
from holdfast.faces.cli.command import Command
from holdfast.faces.cli.commands.turn import (
    DIR,
    HOLDER,
    LEASE,
    REASON,
    WAITING,
    acting,
    completed,
    patience,
    session_of,
    warn,
)
from holdfast.faces.cli.output import printable


def lock(session: Session, given: dict[str, Any]) -> int:
    """Lock files."""
    waiting = patience(given)
    files = session_of(session, given)
    holder = acting(session, given, files)
    lease = {name: given[name] for name in ("lease_revs",) if name in given}
    claim = turnfile.claim_of(files, given["files"], holder, given["reason"], **lease)
    taken = turnfile.acquire(files, claim, waiting)
    data = {**_told(taken), "warnings": warn(claim.warnings)}
    line = f"{taken.id}: {', '.join(taken.files)} for {taken.lease_revs} revisions from {taken.acquired_rev}"
    session.out.say(data, printable(line))
    return 0


def _told(lock: turnfile.Lock) -> dict[str, Any]:
    return {**msgspec.to_builtins(lock), "revision": lock.acquired_rev}


def unlock(session: Session, given: dict[str, Any]) -> int:
    """Give locks back, with the completion note of each."""
    files = session_of(session, given)
    holder = acting(session, given, files)
    wanted = given.get("locks") or [each.id for each in _own(files, holder)]
    done, lost = turnfile.unlock_all(files, wanted, holder)
    for each in done:
        warn(each.warnings)
    if done or not lost:
        session.out.say([completed(each) for each in done], *(printable(_released(each)) for each in done))
    if lost:
        raise lost[0]
    return int(any(problem.level == "error" for each in done for problem in each.warnings))


def _own(files: turnfile.Session, holder: str) -> list[turnfile.Lock]:
    """The locks that somebody took by hand: those of transactions end by themselves. Raises NotFound for none."""
    held = [each for each in files.read().turnfile.locks if each.holder == holder]
    mine = [each for each in held if not each.transaction]
    if not mine:
        at_work = ", ".join(each.id for each in held)
        hint = f"a process of that name is at work under {at_work}; if it was killed, name the id"
        raise NotFound(f"{holder} holds no lock by hand", hint=hint if held else "`turn status` shows who holds what")
    return mine


def _released(done: turnfile.Completion) -> str:
    files = f" ({', '.join(done.files)})" if done.files else ""
    return f"released {done.lock_id}{files}, revision {done.revision}"


def renew(session: Session, given: dict[str, Any]) -> int:
    """Acquire locks anew; one of a transaction belongs to the process that took it."""
    files = session_of(session, given)
    holder = acting(session, given, files)
    wanted = given.get("locks") or [each.id for each in _own(files, holder)]
    done = turnfile.renew_all(files, wanted, holder)
    lines = [f"{each.id} for {each.lease_revs} revisions from {each.acquired_rev}" for each in done]
    session.out.say([_told(each) for each in done], *map(printable, lines))
    return 0


def clear(session: Session, given: dict[str, Any]) -> int:
    """Remove stale locks."""
    files = session_of(session, given)
    gone = turnfile.clear_stale(files, acting(session, given, files, "actor"), given.get("locks", ()))
    lines = [printable(f"cleared {each.id} of {each.holder}") for each in gone] or ["no lock is stale"]
    session.out.say([msgspec.to_builtins(each) for each in gone], *lines)
    return 0


def override(session: Session, given: dict[str, Any]) -> int:
    """Take somebody's lock away, for a P0 reason."""
    files = session_of(session, given)
    actor = acting(session, given, files, "actor")
    done = turnfile.override(files, given["lock"], given["reason"], actor, take=bool(given.get("take")))
    data = {
        "lock": msgspec.to_builtins(done.lock),
        "replaced_by": done.replaced_by and msgspec.to_builtins(done.replaced_by),
        "files": list(done.files),
        "revision": done.revision,
        "problems": [msgspec.to_builtins(problem) for problem in done.problems],
    }
    instead = f"; {done.replaced_by.id} has its files" if done.replaced_by else ""
    line = f"{done.lock.id} of {done.lock.holder} is gone at revision {done.revision}{instead}"
    session.out.say(data, printable(line), *(printable(str(problem)) for problem in done.problems))
    return 0


_LOCK = Argument("lock", option="--lock", word=True, required=True, help="its id")
_LOCKS = Argument("locks", "texts", "--lock", word=True, rest=True, help="their ids; all of yours without")

COMMANDS = (
    Command(
        "turn lock",
        "Lock shared files before you edit them; exit code 12 if somebody has one.",
        (
            Argument("files", "texts", "--files", word=True, rest=True, required=True, help="such as MAILBOX.md"),
            HOLDER,
            REASON,
            LEASE,
            *WAITING,
            DIR,
        ),
        lock,
        "While another has a file, this looks again every --wait seconds. When the ledger did not move between two"
        " looks, the maintainer is asked to decide and the waiting ends.",
    ),
    Command(
        "turn unlock",
        "Give your locks back: with a note, and a fresh MAILBOX.json.",
        (_LOCKS, HOLDER, DIR),
        unlock,
        "The exit code is 1 if your edit left a file out of order, and 13 if the lock went stale before: it is removed"
        " then, but the edit is not noted as complete, as others may have edited the file too.",
    ),
    Command("turn renew", "Begin the leases of your locks again.", (_LOCKS, HOLDER, DIR), renew),
    Command(
        "turn clear",
        "Remove stale locks; anybody may.",
        (Argument("locks", "texts", "--lock", word=True, rest=True, help="their ids; all stale ones without"), DIR),
        clear,
    ),
    Command(
        "turn override",
        "Take somebody's lock away in an emergency; the worklog says so.",
        (_LOCK, REASON, Argument("take", "flag", "--take", help="and get one on the same files"), DIR),
        override,
        "The reason must begin with P0, and say what is at stake.",
    ),
)
