"""What somebody wants to lock or to edit: checked, in normal form, and with what there is to say about it.

What is no file is refused. What is merely odd is told as `warnings`: a name that the ledger does not know, a file that
is not there, one that needs no lock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from holdfast.errors import Invalid
from holdfast.turnfile.ledger import locks
from holdfast.turnfile.ledger.codec import check_name
from holdfast.turnfile.ledger.people import nearest, newcomers
from holdfast.turnfile.model import DEFAULT_LEASE_REVS, Problem
from holdfast.turnfile.session import Session

_PATTERN: Final = re.compile(r"[*?\[\]]")


class Claim(msgspec.Struct, frozen=True):
    """What somebody wants to edit, and why; `warnings` tell what may have been mistyped."""

    files: tuple[str, ...]
    holder: str
    reason: str
    lease_revs: int = DEFAULT_LEASE_REVS
    transaction: bool = False
    warnings: tuple[Problem, ...] = ()


def claim_of(
    session: Session, files: Iterable[str], holder: str, reason: str, lease_revs: int = DEFAULT_LEASE_REVS
) -> Claim:
    """A claim with its parts checked and its paths normal. Raises Invalid, or NotFound where there is no ledger."""
    files = [files] if isinstance(files, str) else files  # one file, and not one for each letter of it
    paths = tuple(dict.fromkeys(session.normal(path) for path in files))
    if not paths:
        raise Invalid("no file is named", hint="name at least one file of the session's folder")
    if not reason.strip() or not reason.isprintable():
        raise Invalid("a lock needs a reason, in one line")
    if not 1 <= lease_revs <= 1000:
        raise Invalid(f"lease_revs is {lease_revs}", hint="it is a number of revisions from 1 to 1000; 2 is usual")
    check_name("holder", holder)
    ledger = session.read()
    missing = [path for path in paths if not session.folder.has(path)]
    for path in missing:
        if _PATTERN.search(path):
            raise Invalid(f"{path!r} is a pattern, and no file has that name", hint="name each file", path=path)
    warnings = (*newcomers(ledger, holder), *_doubts(paths, missing, session.guarded(ledger)))
    return Claim(paths, holder, reason.strip(), lease_revs, warnings=warnings)


def _doubts(paths: Iterable[str], missing: Iterable[str], guarded: frozenset[str]) -> Iterator[Problem]:
    """What to say about files that may not be those that were meant."""
    for path in paths:
        like = nearest(path, sorted(guarded))
        if path in missing and path in guarded:
            make = "; `turn init --missing` makes it, empty" if path in locks.REGISTRY else ""
            yield Problem(path, 1, "warning", "missing", f"there is no {path}{make}")
        elif path in missing:
            yield Problem(path, 1, "warning", "missing", f"there is no {path}, and it needs no lock{like}")
        elif path not in guarded:
            yield Problem(path, 1, "warning", "no-lock-needed", f"{path} needs no lock{like}")
