"""A table of tasks, where each goes, by what, and why: over the sample files, where they are, and files of our own."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.domains.routing.files import read_rules
from holdfast.domains.routing.rules import Rules, Subject, decide, report

OWN = Path(__file__).parent / "files"
SAMPLES = Path(__file__).resolve().parents[3] / "../shared/samples/tasks"
FILES = {
    "nested": SAMPLES / "grimoire-matchers.nested.yaml",
    "flat": SAMPLES / "grimoire-matchers.flat.yaml",
    "own": OWN / "own.yaml",
    "broken": OWN / "broken.yaml",
}


class Row(NamedTuple):
    """A task, and what is expected of the rules in `file`."""

    file: str
    subject: Subject
    grimoire: str
    by: str
    reason: str
    review: bool = False
    needs: tuple[str, ...] = ()


def task(*tags: str, priority: int = 2, type: str = "task", body: str = "", parent: str | bool = False) -> Subject:
    """A task; `parent` is True for a parent without a grimoire, else the grimoire it was assigned."""
    assigned = parent if isinstance(parent, str) else None
    return Subject(tags, priority, type, body, parent is not False, None, assigned)


def hinted(hint: str, *tags: str, priority: int = 2, type: str = "task") -> Subject:
    return Subject(tags, priority, type, hint=hint)


EVERY = "matches every task"
NONE = "no matcher matched"
ROWS = [
    # the nested sample
    Row("nested", task(), "implement-bead", "default", EVERY),
    Row(
        "nested",
        task("authentication", body="see cve-2024-1"),
        "security-audit",
        "security-review",
        "any_tags matched 'auth*' via tag 'authentication'; body contains 'cve-'",
    ),
    Row(
        "nested",
        task("security", body="A Vulnerability"),
        "security-audit",
        "security-review",
        "any_tags matched 'security' via tag 'security'; body contains 'vulnerability'",
    ),
    Row("nested", task("security", body="nothing of note"), "implement-bead", "default", EVERY),
    Row("nested", task(body="CVE-1 without a tag"), "implement-bead", "default", EVERY),
    Row(
        "nested",
        task(priority=0),
        "fast-track",
        "critical-non-docs",
        "priority 0 in [0, 1]; not_tags ['docs', 'wip'] matched no tag",
    ),
    Row("nested", task("wip", priority=1), "implement-bead", "default", EVERY),
    Row(
        "nested",
        task("docs", priority=1),
        "documentation",
        "docs-only",
        "any_tags matched 'docs' via tag 'docs'; type 'task' in ['task']",
    ),
    Row("nested", task("docs", type="bug"), "implement-bead", "default", EVERY),
    Row(
        "nested",
        task("performance", "frontend"),
        "perf-audit",
        "frontend-and-performance",
        "all_tags matched 'frontend' via tag 'frontend', 'performance' via tag 'performance'",
    ),
    Row("nested", task("frontend"), "implement-bead", "default", EVERY),
    Row(
        "nested",
        task(parent="mother"),
        "mother",
        "inherit-parent",
        "the task has a parent; inherits 'mother' from the parent",
    ),
    Row("nested", task(parent=True), "implement-bead", "default", EVERY),
    Row("nested", task("docs", parent="mother"), "documentation", "docs-only", "any_tags matched 'docs'"),
    Row("nested", hinted("mine", "docs", priority=0), "mine", "grimoire_hint", "grimoire_hint is 'mine'"),
    Row(
        "nested", task("docs", "grimoire:other"), "other", "tag grimoire:other", "the task has the tag 'grimoire:other'"
    ),
    Row("nested", hinted("mine", "grimoire:other"), "mine", "grimoire_hint", "grimoire_hint is 'mine'"),
    # the flat sample
    Row("flat", task("crypto-lib"), "security-audit", "matcher 1", "any_tags matched 'crypto*' via tag 'crypto-lib'"),
    Row("flat", task("auth"), "security-audit", "matcher 1", "any_tags matched 'auth*' via tag 'auth'"),
    Row(
        "flat",
        task("bug", priority=0),
        "urgent-bugfix",
        "matcher 2",
        "any_tags matched 'bug' via tag 'bug'; priority 0 in",
    ),
    Row("flat", task("bug", priority=2), "implement", "default", NONE),
    Row("flat", task("bug", "security", priority=0), "security-audit", "matcher 1", "any_tags matched 'security'"),
    Row("flat", task("feature", "needs-tests"), "implement-with-tests", "matcher 3", "all_tags matched 'feature' via"),
    Row("flat", task("feature"), "implement", "default", NONE),
    Row("flat", task("auth/login"), "implement", "default", NONE),  # a star stays in its segment
    Row("flat", task("Security"), "implement", "default", NONE),  # case matters
    Row("flat", task(), "implement", "default", NONE),
    # our own
    Row(
        "own",
        task(priority=0, type="bug"),
        "hotfix",
        "hotfix",
        "priority 0 in [0]; type 'bug' in ['bug']; not_tags ['{wip,blocked}', 'env/dev/**'] matched no tag",
        True,
        ("deploy", "python"),
    ),
    Row("own", task("blocked", priority=0, type="bug"), "general", "default", NONE),
    Row("own", task("env/dev", priority=0, type="bug"), "general", "default", NONE),
    Row("own", task("env/dev/box", priority=0, type="bug"), "general", "default", NONE),
    Row("own", task("env/prod", priority=0, type="bug"), "hotfix", "hotfix", "priority 0", True, ("deploy", "python")),
    Row(
        "own",
        task("credentials", body="the TOKEN leaked"),
        "leak-response",
        "leak",
        "any_tags matched 'credential?' via tag 'credentials'; body contains 'token'",
        True,
    ),
    Row("own", task("secrets", body="HAUPTSTRASSE 1"), "leak-response", "leak", "any_tags matched 'secret*'", True),
    Row("own", task("credential", body="token"), "general", "default", NONE),
    Row(
        "own",
        task("ui/button/large", "platform/ios"),
        "mobile",
        "mobile",
        "all_tags matched 'platform/{ios,android}' via tag 'platform/ios', 'ui/**' via tag 'ui/button/large'",
        False,
        ("swift",),
    ),
    Row("own", task("ui", "platform/android"), "mobile", "mobile", "all_tags matched", False, ("swift",)),
    Row("own", task("ui", "platform/web"), "general", "default", NONE),
    Row(
        "own",
        task(priority=3),
        "batch",
        "mid",
        "priority 3 in [3, 4]; type 'task' in ['chore', 'task']; the task has no",
    ),
    Row("own", task(priority=4, type="chore"), "batch", "mid", "priority 4 in [3, 4]"),
    Row("own", task(priority=4, type="bug"), "general", "default", NONE),
    Row("own", task(priority=4, parent=True), "general", "default", NONE),
    Row("own", task("release/2.1"), "hotfix", "matcher 5", "any_tags matched 'release/[0-9]*'", False, ("deploy",)),
    Row("own", task("release/next"), "general", "default", NONE),
    Row("own", task(parent="planning"), "planning", "follow", "the task has a parent; inherits 'planning'", True),
    Row(
        "own",
        task(parent="mobile"),
        "mobile",
        "follow",
        "the task has a parent; inherits 'mobile' from the parent; not_tags ['standalone'] matched no tag",
        True,
        ("swift",),
    ),
    Row("own", task("standalone", type="epic", parent="mobile"), "planning", "orphan-epic", "type 'epic' in ['epic']"),
    Row("own", task(type="epic", parent=True), "planning", "orphan-epic", "type 'epic' in ['epic']"),
    Row("own", hinted("hotfix"), "hotfix", "grimoire_hint", "grimoire_hint is", True, ("deploy", "python")),
    Row("own", hinted("hotfix", "release/3"), "hotfix", "grimoire_hint", "grimoire_hint is", False, ("deploy",)),
    Row("own", task("grimoire:mobile"), "mobile", "tag grimoire:mobile", "the task has", False, ("swift",)),
    Row(
        "own", task("grimoire:", "grimoire:a", "grimoire:b"), "a", "tag grimoire:a", "the task has the tag 'grimoire:a'"
    ),
    Row("own", task("grimoire:"), "general", "default", NONE),
    Row("own", task("Grimoire:a"), "general", "default", NONE),
    # one whose bad matchers are left out
    Row("broken", task("abc"), "one", "good", "any_tags matched 'a*' via tag 'abc'"),
    Row("broken", task("fine", priority=1), "implement-bead", "default", NONE),
    Row("broken", task("x"), "five", "also-good", "any_tags matched 'x' via tag 'x'"),
]


def rules_of(name: str) -> Rules:
    if not FILES[name].exists():
        pytest.skip("the samples are not here")
    rules, _ = read_rules(FILES[name].read_text(encoding="utf-8"), FILES[name].name)
    assert rules is not None
    return rules


def test_the_table_has_at_least_forty_tasks_and_every_file() -> None:
    assert len(ROWS) >= 40
    assert {row.file for row in ROWS} == set(FILES)
    assert sum(row.file in ("own", "broken") for row in ROWS) >= 20


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.file}-{at}" for at, row in enumerate(ROWS)])
def test_m1_m3_a_task_goes_where_the_table_says_for_the_reason_it_says(row: Row) -> None:
    rules = rules_of(row.file)
    decision = decide(rules, row.subject)
    assert (decision.grimoire, decision.matched_by) == (row.grimoire, row.by)
    assert decision.reason.startswith(row.reason)
    assert (decision.require_review, decision.needs) == (row.review, row.needs)
    explained = report(rules, row.subject)
    assert (explained.selected_grimoire, explained.matched_by, explained.reason) == (
        decision.grimoire,
        decision.matched_by,
        decision.reason,
    )
    assert [verdict.name for verdict in explained.evaluation] == [matcher.name for matcher in rules.matchers]


@pytest.mark.parametrize("name", ["nested", "flat"])
def test_m1_the_sample_files_have_nothing_wrong(name: str) -> None:
    if not FILES[name].exists():
        pytest.skip("the samples are not here")
    rules, problems = read_rules(FILES[name].read_text(encoding="utf-8"), name)
    assert rules is not None
    assert problems == []
