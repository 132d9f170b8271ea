"""Bugs in PEER cycles: documents that are believed too easily, steps that overwrite others, ends that are missed."""

from __future__ import annotations

from tests.teeth.bug import Bug

STEPS = ("tests/conformance/test_cycle_steps.py", "--kinds", "memory")
CONFLICTS = ("tests/conformance/test_cycle_conflicts.py", "--kinds", "memory")
WRITES = ("tests/conformance/test_cycle_writes.py", "--kinds", "memory")
ENDS = ("tests/conformance/test_cycle_ends.py", "--kinds", "memory")
RULES = ("tests/unit/test_cycle_rules.py",)
CORRUPTION = ("tests/e2e/test_cycle_corruption.py",)
BUCKET = ("tests/cycles/test_bucket.py",)

BUGS = [
    Bug(
        "the first end marker ends the reading of a bucket",
        "interchange/peer/locations.py",
        "                if entry is None:\n                    continue\n",
        "                if entry is None:\n                    break\n",
        BUCKET,
    ),
    Bug(
        "a corrupt entry of a bucket is not recovered from its earlier revisions",
        "interchange/peer/view.py",
        "        if older.value and not read({ours: _text(entry.value)}).problems:\n            return entry\n",
        "        if older.value and not read({ours: _text(entry.value)}).problems:\n            return None\n",
        BUCKET,
    ),
    Bug(
        "a key that was deleted from a bucket is created again",
        "interchange/peer/sync.py",
        "home in self._view.entries.deleted",
        "home in ()",
        BUCKET,
    ),
    Bug(
        "a cycle that somebody else rewrote is believed if it keeps the rules",
        "domains/cycles/rows.py",
        """    if not wrong:
        wrong = [CycleProblem(path, f"is not""",
        """    if not wrong and logged is None:
        wrong = [CycleProblem(path, f"is not""",
        CORRUPTION,
    ),
    Bug(
        "a broken cycle is recovered and nobody keeps what it said",
        "domains/cycles/exchange.py",
        "snapshot=raw, recovered_from=version)",
        "snapshot=None, recovered_from=version)",
        CORRUPTION,
    ),
    Bug(
        "a step overwrites what others did to its phase",
        "domains/cycles/merge.py",
        "step.phase is not None and not others.phases & {step.phase, None}:",
        "step.phase is not None and None not in others.phases:",
        CONFLICTS,
    ),
    Bug(
        "what the log has forgotten is taken for nothing",
        "domains/cycles/merge.py",
        "known=len(phases) == present - sequence)",
        "known=True)",
        CONFLICTS,
    ),
    Bug(
        "a phase starts on one that made nothing",
        "domains/cycles/document.py",
        """            if phases[before].get("output") is None:
""",
        """            if "output" in phases[before] and phases[before]["output"] is None:
""",
        STEPS,
    ),
    Bug(
        "a step of a cycle passes its fence",
        "domains/cycles/exchange.py",
        "yield Do(work, keyed=True)",
        "yield Do(work)",
        WRITES,
    ),
    Bug(
        "the history of a cycle may stand still",
        "domains/cycles/rules.py",
        """        if entry["sequence"] <= last:
""",
        """        if entry["sequence"] < last:
""",
        RULES,
    ),
    Bug(
        "the oldest cycle is resumed in place of the last",
        "domains/cycles/__init__.py",
        "reverse=True)",
        "reverse=False)",
        ENDS,
    ),
]
