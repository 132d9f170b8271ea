"""What must hold before edited files are written: the control plane is coherent, and the projection is fresh.

Pure but for the time that a projection is stamped with, which it is given. Only the files that an edit changes must be
in order: what somebody else left broken elsewhere does not stop it.
"""

from __future__ import annotations

import re

from holdfast.errors import Invalid
from holdfast.turnfile.mailbox import projection
from holdfast.turnfile.model import MAILBOX, PROJECTION, Problem
from holdfast.turnfile.papers import invariants


def settle(
    edits: dict[str, str], texts: dict[str, str | None], workspace: str, timestamp: str
) -> tuple[dict[str, str], list[Problem]]:
    """The files to write, with the projection among them if the mailbox is; and what there is to warn about.

    `texts` has what the files say now. Raises Invalid with `problems` if an edited file breaks an invariant: those of
    the edit, or where it has none of its own those that were there before, with their lines in the file.
    """
    changed = {path: text for path, text in edits.items() if text != texts.get(path)}
    there = {path: text for path, text in texts.items() if text is not None}
    problems = invariants.check(changed, there)
    broken = [problem for problem in problems if problem.level == "error"]
    if broken:
        known = {_same(old): old for old in invariants.check({path: there[path] for path in changed if path in there})}
        if fresh := [problem for problem in broken if _same(problem) not in known]:
            hint = "nothing was written; make the edit so that the file stays in order"
            raise _refusal(f"the edit would break {fresh[0].file}", fresh, hint)
        hint = "nothing was written; put the file in order first: an edit that does so is accepted"
        old = [known[_same(problem)] for problem in broken]
        raise _refusal(f"{old[0].file} is out of order already", old, hint)
    if MAILBOX in changed:
        changed[PROJECTION] = projected(changed[MAILBOX], texts.get(PROJECTION), workspace, timestamp)
    return changed, problems


def _same(problem: Problem) -> tuple[str, str, str]:
    """What a problem keeps when lines move."""
    return problem.file, problem.rule, re.sub(r"\bline [0-9]+", "line", problem.message)


def _refusal(words: str, problems: list[Problem], hint: str) -> Invalid:
    first, more = problems[0], f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return Invalid(f"{words}: line {first.line}: {first.message}{more}", hint=hint, problems=problems, line=first.line)


def projected(mailbox: str, previous: str | None, workspace: str, timestamp: str) -> str:
    """The projection of a mailbox; the previous one itself where it says the same."""
    return projection.render(mailbox, f"{workspace}/{MAILBOX}", timestamp, previous)
