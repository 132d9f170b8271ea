"""`holdfast turn lock`, `unlock`, `renew`, `clear` and `override`: locks on shared files, by hand.

After an edit with an editor of your own, `unlock` releases the lock, rewrites the projection and adds the completion
note; `turn edit` does all of that in one command.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast import turnfile
from holdfast.errors import NotFound
from holdfast.faces.cli.args import Argument
from holdfast.faces.cli.call import Session
from holdfast.faces.cli.command import command
from holdfast.faces.cli.commands import turn
from holdfast.faces.cli.output import printable
from holdfast.turnfile.model import DEFAULT_LEASE_REVS

_LOCKS: Final = Argument("locks", "texts", word=True, rest=True, help="their ids (default: all of yours)")


@command(
    "turn lock",
    Argument("files", "texts", "--files", word=True, rest=True, required=True, help="such as MAILBOX.md"),
    *(turn.HOLDER, turn.REASON, turn.LEASE, *turn.WAITING),
    more="While somebody else holds a file, checks again every --wait seconds. If the revision is the same in two"
    " checks, asks the maintainer to decide and stops waiting.",
)
def lock(session: Session, given: dict[str, Any]) -> int:
    """Lock shared files before you edit them; exit code 12 if one is locked."""
    waiting = turn.wait_policy(given)
    files, holder = turn.session_and_actor(session, given)
    lease_revs = given.get("lease_revs", DEFAULT_LEASE_REVS)
    claim = turnfile.lock_request(files, given["files"], holder, given["reason"], lease_revs)
    taken = turnfile.acquire(files, claim, waiting)
    data = {**_lock_data(taken), "warnings": turn.print_warnings(session, claim.warnings)}
    session.out.say(data, printable(f"{taken.id}: {', '.join(taken.files)}, {_validity(taken)}"))
    return 0


def _lock_data(lock: turnfile.Lock) -> dict[str, Any]:
    return {**msgspec.to_builtins(lock), "revision": lock.acquired_rev}


def _validity(lock: turnfile.Lock) -> str:
    return f"valid through revision {lock.acquired_rev + lock.lease_revs}"


@command(
    "turn unlock",
    *(_LOCKS, turn.HOLDER, turn.DIR),
    more="The exit code is 1 if your edit left errors in a file, and 13 if the lock went stale before: it is then"
    " removed, but the edit is not noted as complete, because others may have edited the file too.",
)
def unlock(session: Session, given: dict[str, Any]) -> int:
    """Release your locks, with a completion note and a fresh MAILBOX.json."""
    files, holder = turn.session_and_actor(session, given)
    done, lost = turnfile.unlock_all(files, _wanted(given, files, holder), holder)
    if done or not lost:
        lines = [printable(_release_line(each)) for each in done]
        session.out.say([turn.completion_data(session, each) for each in done], *lines)
    for error in lost.values():
        raise error
    return int(any(problem.level == "error" for each in done for problem in each.warnings))


def _wanted(given: dict[str, Any], files: turnfile.Session, holder: str) -> list[str]:
    """The given locks, or all that the holder took by hand. Raises NotFound if there is none.

    Those of transactions end by themselves.
    """
    if given.get("locks"):
        return list(given["locks"])
    held = [each for each in files.read().turnfile.locks if each.holder == holder]
    mine = [each.id for each in held if not each.transaction]
    if not mine:
        at_work = ", ".join(each.id for each in held)
        hint = f"a process of that name is working under {at_work}; if it was killed, name the id"
        message = f"{holder} holds no lock that was taken with `holdfast turn lock`"
        raise NotFound(message, hint=hint if held else "turnfile.status(session) lists the locks")
    return mine


def _release_line(done: turnfile.Completion) -> str:
    files = f" ({', '.join(done.files)})" if done.files else ""
    return f"released {done.lock_id}{files}, revision {done.revision}"


@command("turn renew", _LOCKS, turn.HOLDER, turn.DIR)
def renew(session: Session, given: dict[str, Any]) -> int:
    """Restart the leases of your locks."""
    files, holder = turn.session_and_actor(session, given)
    done = turnfile.renew_all(files, _wanted(given, files, holder), holder)
    lines = [printable(f"{each.id}: {_validity(each)}") for each in done]
    session.out.say([_lock_data(each) for each in done], *lines)
    return 0


@command(
    "turn clear",
    Argument("locks", "texts", word=True, rest=True, help="their ids, or ID@REV (default: all stale locks)"),
    turn.DIR,
)
def clear(session: Session, given: dict[str, Any]) -> int:
    """Remove stale locks of any holder."""
    files, actor = turn.session_and_actor(session, given, "actor")
    gone = turnfile.clear_stale(files, actor, given.get("locks", ()))
    lines = [printable(f"cleared {each.id}, held by {each.holder}") for each in gone] or ["no lock is stale"]
    session.out.say(msgspec.to_builtins(gone), *lines)
    return 0


@command(
    "turn override",
    Argument("lock", word=True, required=True, help="its id, or ID@REV: the one acquired at that revision"),
    Argument("reason", required=True, help="starts with P0 and says what is at stake"),
    Argument("take", "flag", help="take a lock on the same files"),
    turn.DIR,
)
def override(session: Session, given: dict[str, Any]) -> int:
    """Remove another's lock in an emergency; it is logged in the worklog."""
    files, actor = turn.session_and_actor(session, given, "actor")
    done = turnfile.override(files, given["lock"], given["reason"], actor, take=bool(given.get("take")))
    done = msgspec.structs.replace(done, problems=tuple(turn.problems_data(session, done.problems)))
    instead = f"; {done.replaced_by.id} locks its files" if done.replaced_by else ""
    line = f"removed {done.lock.id}, held by {done.lock.holder}, revision {done.revision}{instead}"
    session.out.say(msgspec.to_builtins(done), printable(line), *(printable(str(each)) for each in done.problems))
    return 0
