"""What must hold before edited files are written: the control plane is coherent, and the projection is fresh.

Pure but for the time that a projection is stamped with, which it is given. Only the files that an edit changes must be
in order: what somebody else left broken elsewhere does not stop it.
"""

from __future__ import annotations

from holdfast.errors import Invalid
from holdfast.turnfile.mailbox import projection
from holdfast.turnfile.model import MAILBOX, PROJECTION, Problem
from holdfast.turnfile.papers import invariants


def settle(
    edits: dict[str, str], texts: dict[str, str | None], workspace: str, timestamp: str
) -> tuple[dict[str, str], list[Problem]]:
    """The files to write, with the projection among them if the mailbox is; and what there is to warn about.

    `texts` has what the files say now. Raises Invalid with `problems` if an edited file breaks an invariant.
    """
    changed = {path: text for path, text in edits.items() if text != texts.get(path)}
    problems = invariants.check(changed, {path: text for path, text in texts.items() if text is not None})
    broken = [problem for problem in problems if problem.level == "error"]
    if broken:
        raise Invalid(
            f"the edit would break {broken[0].file}: line {broken[0].line}: {broken[0].message}"
            + (f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""),
            hint="nothing was written; make the edit so that the file stays in order",
            problems=broken,
            line=broken[0].line,
        )
    if MAILBOX in changed:
        changed[PROJECTION] = projected(changed[MAILBOX], texts.get(PROJECTION), workspace, timestamp)
    return changed, problems


def projected(mailbox: str, previous: str | None, workspace: str, timestamp: str) -> str:
    """The projection of a mailbox; the previous one itself where it says the same."""
    return projection.render(mailbox, f"{workspace}/{MAILBOX}", timestamp, previous)
