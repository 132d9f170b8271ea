"""Routing: decisions a second by a file of 20 matchers, as a claim asks for them; and beside it what people ask.

The bar is an absolute figure, so the decisions are counted by the second of processor time: a busy neighbour does not
change it. What the clock on the wall said is printed too.
"""

from __future__ import annotations

import random
import statistics
import time

import holdfast
from holdfast.domains.routing.files import read_rules
from holdfast.domains.routing.rules import Rules, Subject, decide
from tests.bench.increments import spread
from tests.bench.measure import Bench, Row, alternate, rate

MATCHERS = 20
TYPES = ("task", "feature", "bug", "epic", "chore")
AREAS = ("api", "web", "docs", "infra", "data", "auth", "billing", "search", "mobile", "tools")
# Two kinds of matchers, for ten areas each; none takes everything, so that some tasks ask all twenty.
TAGGED = """
  - name: {area}-tagged
    grimoire: {area}-work
    match:
      any_tags: ["{area}/**", "{area}-*"]
      not_tags: [wip]
      priority_range: [{low}, 4]
"""
TOLD = """
  - name: {area}-told
    grimoire: {area}-review
    require_review: true
    match:
      all_tags: ["team-*", "{{q1,q2}}"]
      type: [task, bug]
      body_contains: ["{area} is broken", "CVE-"]
"""


def run(bench: Bench) -> list[Row]:
    """Decisions a second over tasks of all sorts: by tag, by body, by hint, and by no matcher at all."""
    rules, problems = read_rules(file(), "grimoire-matchers.yaml")
    assert problems == []
    assert rules is not None
    assert len(rules.matchers) == MATCHERS
    subjects = some_subjects(bench.count(10_000, 500))
    by = [decide(rules, subject).matched_by for subject in subjects]
    bench.say(
        f"  {len(subjects)} tasks, {len({*by})} ways to be routed, {by.count('default') / len(by):.0%} by default"
    )
    folder = bench.folder / "store"
    folder.mkdir()
    (folder / "grimoire-matchers.yaml").write_text(file(), encoding="utf-8")
    with holdfast.open(folder, actor="bench") as ws:
        tasks = [
            {"title": "x", "body": each.body, "type": each.type, "priority": each.priority, "tags": list(each.tags)}
            for each in subjects[: bench.count(400, 20)]
        ]
        figures = alternate(
            {
                "decide": lambda: rate(len(subjects), lambda: _decide_all(rules, subjects)),
                "decide, processor time": lambda: _rate_of_processor(rules, subjects),
                "routes.decide": lambda: rate(len(tasks), lambda: [ws.routes.decide(task) for task in tasks]),
            }
        )
    for name, values in figures.items():
        bench.say(f"  {name:22} {statistics.median(values):10,.0f} a second  {spread(values)}")
    return [
        Row(
            "routing",
            "decisions by 20 matchers, processor time",
            statistics.median(figures["decide, processor time"]),
            "/s",
            at_least=20_000,
        ),
        Row("routing", "routes.decide, with its reasons", statistics.median(figures["routes.decide"]), "/s"),
    ]


def _decide_all(rules: Rules, subjects: list[Subject]) -> None:
    for subject in subjects:
        decide(rules, subject)


def _rate_of_processor(rules: Rules, subjects: list[Subject]) -> float:
    start = time.process_time()
    _decide_all(rules, subjects)
    return len(subjects) / (time.process_time() - start)


def file() -> str:
    """The text of `grimoire-matchers.yaml`."""
    parts = [kind.format(area=area, low=number % 3) for kind in (TAGGED, TOLD) for number, area in enumerate(AREAS)]
    return "matchers:" + "".join(parts)


def some_subjects(count: int) -> list[Subject]:
    """Tasks as they come: most with a tag or two, bodies of some lines, a hint now and then."""
    chance = random.Random(7)
    return [_subject(chance) for _ in range(count)]


def _subject(chance: random.Random) -> Subject:
    area = chance.choice(AREAS)
    pool = ["team-blue", "q1", "wip", "later", "good first task"]
    own = [f"{area}/part-{chance.randint(1, 9)}"] if chance.random() < 0.7 else []
    words = [chance.choice(("look", "at", "the", "module", "and", "mend", "what", "fails", "there")) for _ in range(60)]
    ending = chance.choice((f"{area} is broken", "see CVE-2024-1", "", ""))
    return Subject(
        tags=tuple(sorted([*own, *chance.sample(pool, chance.randint(0, 3))])),
        priority=chance.randint(0, 4),
        type=chance.choice(TYPES),
        body=" ".join([*words, ending]),
        hint="by-hand" if chance.random() < 0.02 else None,
    )
