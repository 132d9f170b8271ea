"""Drive real agent clients with a stand-in for the model, and say which of the door's promises they keep.

    make clients                        the three clients, the sandboxes, and the conformance suite of MCP
    make clients ARGS="claude sandbox"  some of them: claude, codex, gemini, sandbox, conformance

The clients come from npm, pinned in `packages.json`, into a folder beside the repository's .venv that is kept. Each
case has a scratch repository of its own. Needs Node; prints one line for each case, and exits with 1 if one failed.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable

from tests.clients import claude, codex, conformance, gemini, sandbox

GROUPS: dict[str, Callable[[], Iterable[tuple[str, Callable[[], None]]]]] = {
    "claude": claude.cases,
    "codex": codex.cases,
    "gemini": gemini.cases,
    "sandbox": sandbox.cases,
    "conformance": conformance.cases,
}


def main(chosen: list[str]) -> int:
    """Run the groups; returns the exit code."""
    failed = 0
    for group in chosen or GROUPS:
        for name, case in GROUPS[group]():
            try:
                case()
            except Exception as error:  # any: the other cases still run
                failed += 1
                last = traceback.extract_tb(error.__traceback__)[-1]
                print(
                    f"FAILED  {group:<11} {name}\n        {type(error).__name__}: {error} ({last.name}:{last.lineno})"
                )
            else:
                print(f"ok      {group:<11} {name}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
