"""Whom a ledger knows, and what to say about a name that it does not.

Pure. A new name may act: a ledger need not list anybody beforehand. But it may also be a name mistyped, so it is told
with the names that are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.turnfile.ledger.codec import Ledger
from holdfast.turnfile.model import TURNFILE, Problem

EVERYBODY: Final = ("all", "everyone")
_SHOWN: Final = 10


def newcomers(ledger: Ledger, *names: str) -> list[Problem]:
    """A warning for each name that joins the ledger with its first act, exactly as it is spelled."""
    return [
        _problem(ledger, name, "new-agent", "was not in the ledger, and joins it")
        for name in _once(names)
        if not ledger.turnfile.lists(name)
    ]


def strangers(ledger: Ledger, *names: str) -> list[Problem]:
    """A warning for each name, of who is told something or says it, that the ledger has in no spelling."""
    known = {one.casefold() for one in (*ledger.turnfile.people, "maintainer", *EVERYBODY)}
    return [
        _problem(ledger, name, "unknown-name", "is not in the ledger")
        for name in _once(names)
        if name.casefold() not in known
    ]


def nearest(name: str, known: Sequence[str]) -> str:
    """` (did you mean …?)`, or nothing if no name is like it."""
    from difflib import get_close_matches  # only for who mistyped something

    spelled = {one.casefold(): one for one in reversed(known)}
    found = get_close_matches(name.casefold(), spelled, 1)
    return f" (did you mean {spelled[found[0]]}?)" if found else ""


def _problem(ledger: Ledger, name: str, rule: str, words: str) -> Problem:
    known = ledger.turnfile.people
    shown = ", ".join(known[:_SHOWN]) + (", …" if len(known) > _SHOWN else "")
    message = f"{name} {words}; known: {shown or 'nobody'}{nearest(name, known)}"
    return Problem(TURNFILE, ledger.line("agents"), "warning", rule, message)


def _once(names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(each.strip() for each in names) if name]
