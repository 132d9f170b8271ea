"""The audit of `make long`: whether an advisory is known for a package that make installs, or that a user gets.

pip-audit asks an index of advisories for each pinned package. Where there is none, it reports that nothing is known,
and says only of each package that it was skipped. So a package counts as audited only if it was looked up: if none
was, this says that it cannot audit, and passes; if some were, each other one is named, and it fails.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.release.lock import LOCKS

AUDIT: Final = LOCKS.parent / ".venv" / "tools" / "bin" / "pip-audit"
_OPTIONS: Final = ("--disable-pip", "--require-hashes", "-f", "json", "--progress-spinner", "off")
CANNOT: Final = "cannot be audited, no index of advisories can be reached here"


class Outcome(NamedTuple):
    """What an audit says, and whether it passes."""

    passes: bool
    lines: list[str]


def judge(name: str, report: dict[str, Any] | None, error: str) -> Outcome:
    """The outcome for one lock: its report, None if pip-audit made none and an error instead."""
    found = report["dependencies"] if report else []
    audited = [each for each in found if "skip_reason" not in each]
    if not audited:
        why = found[0]["skip_reason"] if found else error.strip().rpartition("\n")[2] or "pip-audit says nothing"
        return Outcome(True, [f"{name}: {CANNOT}: {why}"])
    skipped = [
        f"{name}: {each['name']} was not audited: {each['skip_reason']}" for each in found if each not in audited
    ]
    known = [
        f"{name}: {each['name']} {each['version']}: {', '.join(one['id'] for one in each['vulns'])}"
        for each in audited
        if each["vulns"]
    ]
    about = f"{name}: {len(audited)} packages audited, {len(known)} with an advisory"
    return Outcome(not known and not skipped, [about, *known, *skipped])


def run(lock: Path) -> Outcome:
    """Audit one lock."""
    done = subprocess.run([AUDIT, "-r", lock, *_OPTIONS], capture_output=True, text=True)
    report = json.loads(done.stdout) if done.stdout.startswith("{") else None
    return judge(lock.name, report, done.stderr)


def main() -> int:
    """Audit every lock; 0 if no advisory is known, or none can be asked for."""
    outcomes = [run(lock) for lock in sorted(LOCKS.glob("*.txt"))]
    print(*(line for outcome in outcomes for line in outcome.lines), sep="\n")
    return 0 if all(outcome.passes for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
