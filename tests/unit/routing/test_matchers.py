"""Decisions: what holds, what is said, that `decide` and `report` agree, and how fast it is."""

from __future__ import annotations

import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.domains.routing.rules import Decision, Matcher, Rules, Subject, decide, report

patterns = st.sampled_from(["a", "b", "a*", "*", "**", "area/**", "area/*", "{a,b}", "[ab]?", "grimoire:*"])
tags = st.sampled_from(["a", "b", "ab", "area", "area/x", "area/x/y", "grimoire:x", "grimoire:"])
grimoires = st.sampled_from(["x", "y", "z"])
some_patterns = st.lists(patterns, max_size=2).map(tuple)
flags = st.none() | st.booleans()


@st.composite
def matchers(draw: st.DrawFn) -> Matcher:
    inherit = draw(st.booleans())
    return Matcher(
        name=draw(st.sampled_from(["one", "two", "three"])),
        grimoire=None if inherit else draw(grimoires),
        inherit=inherit,
        any_tags=draw(some_patterns),
        all_tags=draw(some_patterns),
        not_tags=draw(some_patterns),
        priority=draw(st.none() | st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple)),
        types=draw(st.none() | st.lists(st.sampled_from(["task", "bug"]), min_size=1, max_size=2).map(tuple)),
        body_contains=draw(st.lists(st.sampled_from(["a", "ss"]), max_size=2).map(tuple)),
        has_parent=draw(flags),
        require_review=draw(st.booleans()),
        needs=draw(st.lists(st.sampled_from(["p", "q"]), max_size=2, unique=True).map(tuple)),
        line=draw(st.integers(1, 9)),
    )


rulesets = st.builds(Rules, st.lists(matchers(), max_size=5).map(tuple), grimoires)
subjects = st.builds(
    Subject,
    tags=st.lists(tags, max_size=4, unique=True).map(tuple),
    priority=st.integers(0, 4),
    type=st.sampled_from(["task", "bug", "epic"]),
    body=st.sampled_from(["", "A", "xß", "nothing"]),
    has_parent=st.booleans(),
    hint=st.none() | st.just("") | grimoires,
    parent_grimoire=st.none() | grimoires,
)


@settings(max_examples=300, deadline=None)
@given(rulesets, subjects)
def test_m6_the_decision_and_the_report_never_disagree(rules: Rules, subject: Subject) -> None:
    decision, explained = decide(rules, subject), report(rules, subject)
    assert decision == Decision(
        explained.selected_grimoire,
        explained.matched_by,
        explained.reason,
        explained.require_review,
        explained.needs,
    )
    assert len(explained.evaluation) == len(rules.matchers)
    for test, verdict in zip(rules.tests, explained.evaluation, strict=True):
        assert test.holds(rules.case(subject)) is verdict.matched
        assert verdict.reason
    if not subject.hint and decision.matched_by == "default":
        assert not any(verdict.matched for verdict in explained.evaluation)


@settings(max_examples=50, deadline=None)
@given(rulesets)
def test_rules_come_back_equal_from_their_stored_form(rules: Rules) -> None:
    stored = msgspec.msgpack.encode(rules)
    assert len(rules.tests) == len(rules.matchers)  # what was made ready is not stored
    assert msgspec.msgpack.encode(rules) == stored
    assert msgspec.msgpack.decode(stored, type=Rules) == rules


def verdict_of(matcher: Matcher, subject: Subject) -> tuple[bool, str]:
    [verdict] = report(Rules((matcher,)), subject).evaluation
    return verdict.matched, verdict.reason


ALL = {
    "any_tags": ("auth*",),
    "all_tags": ("backend",),
    "priority": (0, 1),
    "types": ("bug",),
    "body_contains": ("cve-",),
    "has_parent": True,
    "not_tags": ("wip",),
}
FITS = Subject(("authentication", "backend"), 1, "bug", "CVE-1", True)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tags": ("backend",)}, "any_tags ['auth*'] matched no tag"),
        ({"tags": ("auth",)}, "all_tags 'backend' matched no tag"),
        ({"priority": 2}, "priority 2 not in [0, 1]"),
        ({"type": "task"}, "type 'task' not in ['bug']"),
        ({"body": ""}, "body contains none of ['cve-']"),
        ({"has_parent": False}, "the task has no parent"),
        ({"tags": ("auth", "backend", "wip")}, "not_tags matched 'wip' via tag 'wip'"),
        ({"tags": ("wip",), "priority": 4}, "any_tags ['auth*'] matched no tag"),  # the first reason; the veto is last
    ],
)
def test_m1_all_conditions_must_hold_and_the_first_that_does_not_is_named(
    change: dict[str, object], reason: str
) -> None:
    matcher = msgspec.convert({"name": "m", "grimoire": "g", **ALL}, Matcher)
    assert verdict_of(matcher, FITS)[0]
    assert verdict_of(matcher, msgspec.structs.replace(FITS, **change)) == (False, reason)


def test_m3_inherit_needs_a_parent_that_was_assigned_a_grimoire() -> None:
    matcher = Matcher("follow", inherit=True)
    assert verdict_of(matcher, Subject()) == (False, "there is no parent to inherit from")
    assert verdict_of(matcher, Subject(has_parent=True)) == (False, "the parent has no grimoire assigned")
    assert verdict_of(matcher, Subject(has_parent=True, parent_grimoire="p")) == (True, "inherits 'p' from the parent")


def test_m6_matchers_after_the_winner_are_still_asked() -> None:
    rules = Rules((Matcher("review", "audit", any_tags=("auth*",)), Matcher("fast", "track", priority=(0, 1))))
    explained = report(rules, Subject(("authentication", "backend")))
    assert explained.selected_grimoire == "audit"
    assert [(v.name, v.matched, v.reason) for v in explained.evaluation] == [
        ("review", True, "any_tags matched 'auth*' via tag 'authentication'"),
        ("fast", False, "priority 2 not in [0, 1]"),
    ]
    assert explained.task_properties == {
        "tags": ["authentication", "backend"],
        "priority": 2,
        "type": "task",
        "has_parent": False,
    }
    assert msgspec.json.decode(msgspec.json.encode(explained))["task_properties"]["tags"] == [
        "authentication",
        "backend",
    ]


def test_m6_a_hint_decides_though_the_matchers_are_reported() -> None:
    explained = report(Rules((Matcher("all", "x"),)), Subject(hint="mine"))
    assert (explained.selected_grimoire, explained.matched_by) == ("mine", "grimoire_hint")
    assert explained.evaluation[0].matched


def test_a_hint_is_no_way_around_a_review() -> None:
    strict = Matcher("strict", "audit", any_tags=("auth*",), require_review=True, needs=("security",))
    loose = Matcher("loose", "audit", any_tags=("docs",))
    rules = Rules((strict, loose))
    for subject in (Subject(hint="audit"), Subject(("grimoire:audit",)), Subject(("auth",), hint="audit")):
        decision = decide(rules, subject)
        assert (decision.require_review, decision.needs) == (True, ("security",))
    held = decide(rules, Subject(("docs",), hint="audit"))
    assert (held.require_review, held.needs) == (False, ())
    unknown = decide(rules, Subject(hint="elsewhere"))
    assert (unknown.require_review, unknown.needs) == (False, ())


def test_a_child_that_inherits_has_the_terms_of_its_workflow_and_of_the_matcher() -> None:
    rules = Rules(
        (
            Matcher("follow", inherit=True, needs=("python", "git")),
            Matcher("strict", "audit", any_tags=("auth*",), require_review=True, needs=("security", "git")),
        )
    )
    decision = decide(rules, Subject(has_parent=True, parent_grimoire="audit"))
    assert decision.require_review
    assert decision.needs == ("python", "git", "security")


def test_rules_say_whether_they_look_at_bodies_or_capabilities() -> None:
    plain = Rules((Matcher("a", "x"),))
    assert not plain.reads_bodies
    assert not plain.has_needs
    assert Rules((Matcher("a", "x", body_contains=("t",)),)).reads_bodies
    assert Rules((Matcher("a", "x", needs=("t",)),)).has_needs


def test_no_file_is_no_matchers_and_the_built_in_default() -> None:
    assert decide(Rules(), Subject()) == Decision("implement-bead", "default", "no matcher matched")


def test_tags_are_remembered_only_up_to_a_number() -> None:
    rules = Rules((Matcher("a", "x", any_tags=("t*9",)),))
    for at in range(25_000):
        assert decide(rules, Subject((f"t{at}",))).matched_by == ("a" if at % 10 == 9 else "default")
    assert decide(rules, Subject(("t9",))).matched_by == "a"
    assert len(rules._ready[1]._known) <= 10_000


def test_how_many_decisions_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    rules = Rules(
        tuple(
            Matcher(
                f"m{at}",
                f"g{at}",
                any_tags=(f"area{at}/**", f"team-{at}*", f"exact{at}"),
                not_tags=("wip", "hold/*") if at % 2 else (),
                body_contains=(f"needle {at}",) if at % 5 == 0 else (),
                priority=(0, 1) if at % 4 == 0 else None,
            )
            for at in range(20)
        )
    )
    subjects = [
        Subject(("python", "backend", f"area{at % 25}/api", "sprint/12"), at % 5, "task", "Some words. " * 40)
        for at in range(100)
    ]
    chosen = {decide(rules, subject).matched_by for subject in subjects}
    assert len(chosen) > 5
    rounds = 30
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(rounds):
        for subject in subjects:
            decide(rules, subject)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    done = rounds * len(subjects)
    with capsys.disabled():
        print(f"\n{done / wall:,.0f} decisions/s over 20 matchers ({done / cpu:,.0f} a second of one core)")
