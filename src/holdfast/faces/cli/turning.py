"""What the commands of `holdfast turn` have in common: whose folder, who acts, how long to wait.

They work on the files of a working session and on nothing else: no workspace is looked for or opened, and nothing of it
is imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any, Final

from holdfast import turnfile
from holdfast.faces.cli.output import printable
from holdfast.faces.cli.session import Session
from holdfast.faces.cli.words import Argument, Usage
from holdfast.turnfile.model import FOLDER, FOLDER_VARIABLE

DIR: Final = Argument("dir", option="--dir", of="FOLDER", help=f"of the session; else {FOLDER_VARIABLE}, ./{FOLDER}")
HOLDER: Final = Argument("holder", option="--holder", help="who edits; else --actor, HOLDFAST_ACTOR")
REASON: Final = Argument("reason", option="--reason", required=True, help="what for, in one line")
LEASE: Final = Argument("lease_revs", "int", "--lease-revs", of="N", help="how many revisions the lock outlives (2)")
WAITING: Final = (
    Argument("wait", "seconds", "--wait", of="SECONDS", help="between two looks at a lock in the way (30)"),
    Argument("no_wait", "flag", "--no-wait", help="do not wait, and ask nobody to decide"),
)
_OF_WORKSPACES: Final = ("url", "key", "fence", "at_least")


def session_of(session: Session, given: dict[str, Any]) -> turnfile.Session:
    """The working session that is meant; what there is to warn about is told."""
    for name in _OF_WORKSPACES:
        if session.given.get(name) is not None:
            option = name.replace("_", "-")
            raise Usage(f"--{option} is for workspaces, and holdfast turn works on files")
    chosen = given.pop("dir", None), session.given.get("dir")
    if "" in chosen:
        raise Usage("--dir is followed by a folder, and this one is empty")
    folder = chosen[0] or chosen[1] or session.environ.get(FOLDER_VARIABLE) or FOLDER
    found = turnfile.Session(os.path.join(session.folder, folder))
    for warning in found.warnings:
        print(f"holdfast: {printable(warning)}", file=sys.stderr)
    return found


def acting(session: Session, given: dict[str, Any], files: turnfile.Session, name: str = "holder") -> str:
    """Who acts, as the ledger spells the name."""
    who = given.pop(name, None) or session.actor
    if not who:
        also = f"--{name} NAME, " if name != "actor" else ""
        raise Usage("nobody said who acts", hint=f"{also}--actor NAME, or HOLDFAST_ACTOR=NAME in the environment")
    return files.read().turnfile.spelled(who)


def patience(given: dict[str, Any]) -> turnfile.Patience | None:
    """How to wait for a lock that is in the way; None is not at all."""
    wait, none = given.pop("wait", None), given.pop("no_wait", False)
    if none and wait is not None:
        raise Usage("--wait and --no-wait say the opposite of each other")
    if wait is not None and not 0 <= wait <= 86400:
        raise Usage("--wait is between 0 and a day")
    return None if none else turnfile.Patience() if wait is None else turnfile.Patience(wait=wait)


def completed(done: turnfile.Completion) -> dict[str, Any]:
    """What a transaction did, as data."""
    return {
        "lock_id": done.lock_id,
        "files": list(done.files),
        "revision": done.revision,
        "signal": done.signal_id,
        "warnings": [str(problem) for problem in done.warnings],
    }


def told(done: turnfile.Completion) -> str:
    """The completion note, as people read it."""
    files = ", ".join(done.files) or "nothing"
    under = f" under {done.lock_id}" if done.lock_id else ""
    return printable(f"wrote {files}{under}, revision {done.revision}")


def warn(problems: Iterable[turnfile.Problem]) -> list[str]:
    """Tell what was found beside, on standard error; answers it as data."""
    words = [str(problem) for problem in problems]
    for each in words:
        print(f"holdfast: {printable(each)}", file=sys.stderr)
    return words
