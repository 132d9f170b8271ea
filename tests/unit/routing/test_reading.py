"""Reading the rules: both shapes, every refusal with its line, and an answer for any text."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.domains.routing.files import read_rules
from holdfast.domains.routing.rules import Matcher, Rules
from holdfast.types.tasks import Problem

FILES = Path(__file__).parent / "files"


def read(text: str) -> tuple[Rules, list[tuple[int, str, str]]]:
    """The rules, and the problems as (line, severity, message)."""
    rules, problems = read_rules(text, "m.yaml")
    assert rules is not None, problems
    assert all(problem.file == "m.yaml" for problem in problems)
    return rules, [(problem.line, problem.severity, problem.message) for problem in problems]


def one(fields: str) -> tuple[Matcher | None, list[tuple[int, str, str]]]:
    """The one matcher of a file with these lines, the first of which is line 2."""
    lines = "\n".join(f"    {line}" for line in fields.splitlines())
    rules, problems = read(f"matchers:\n  -{lines[3:]}\n")
    return (rules.matchers[0] if rules.matchers else None), problems


FULL = """\
name: full
grimoire: g
require_review: true
needs: [python, review, python]
match:
  any_tags: [a, "b*"]
  all_tags: [c]
  not_tags: [d]
  priority: [1, 0, 1]
  type: [bug, task]
  body_contains: [CVE-, "STRASSE"]
  has_parent: true
"""
EXPECTED = Matcher(
    name="full",
    grimoire="g",
    any_tags=("a", "b*"),
    all_tags=("c",),
    not_tags=("d",),
    priority=(0, 1),
    types=("bug", "task"),
    body_contains=("cve-", "strasse"),
    has_parent=True,
    require_review=True,
    needs=("python", "review"),
    line=2,
)


def test_m1_every_field_is_read_in_the_nested_shape() -> None:
    assert one(FULL) == (EXPECTED, [])


def test_m1_every_field_is_read_in_the_flat_shape() -> None:
    assert one(FULL.replace("match:\n", "").replace("\n  ", "\n")) == (EXPECTED, [])


def test_m1_both_shapes_may_be_mixed_also_in_one_matcher() -> None:
    matcher, problems = one("grimoire: g\nany_tags: [a]\nmatch:\n  type: bug")
    assert matcher == Matcher("matcher 1", "g", any_tags=("a",), types=("bug",), line=2)
    assert problems == []


def test_m1_a_list_of_one_may_be_a_single_value() -> None:
    matcher, problems = one("grimoire: g\nany_tags: a\npriority: 0\ntype: epic\nneeds: python\nbody_contains: X")
    assert matcher == Matcher(
        "matcher 1",
        "g",
        any_tags=("a",),
        priority=(0,),
        types=("epic",),
        body_contains=("x",),
        needs=("python",),
        line=2,
    )
    assert problems == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("priority_range: [1, 3]", (1, 2, 3)),
        ("priority_range: [2, 2]", (2,)),
        ("priority_range: [0, 4]", (0, 1, 2, 3, 4)),
        ("priority: [0, 1, 2]\npriority_range: [2, 4]", (2,)),
    ],
)
def test_m1_a_range_of_priorities_includes_its_ends(fields: str, expected: tuple[int, ...]) -> None:
    matcher, problems = one(f"grimoire: g\n{fields}")
    assert matcher is not None
    assert (matcher.priority, problems) == (expected, [])


def test_m1_labels_are_read_as_any_tags_with_a_warning() -> None:
    matcher, [(line, severity, message)] = one("grimoire: g\nany_tags: [a]\nlabels: ['grimoire:x']")
    assert matcher is not None
    assert matcher.any_tags == ("a", "grimoire:x")
    assert (line, severity) == (4, "warning")
    assert "deprecated" in message


@pytest.mark.parametrize(
    ("fields", "line", "words"),
    [
        ("name: x", 2, "needs 'grimoire'"),
        ("inherit: false", 2, "needs 'grimoire'"),
        ("grimoire: g\ninherit: true", 2, "not both"),
        ("grimoire: ''", 2, "grimoire is empty"),
        ("grimoire:", 2, "must be text, not nothing"),
        ("grimoire: 7", 2, "must be text, not 7; put it in quotes"),
        ("grimoire: [a]", 2, "must be text, not a list"),
        ('grimoire: "a\\tb"', 2, "control character"),
        ("grimoire: ' a'", 2, "begins or ends with a space"),
        ("grimoire: g\nname: true", 3, "name must be text, not true"),
        ("grimoire: g\ninherit: yes", 3, "true or false, not 'yes'"),
        ("grimoire: g\nrequire_review: 1", 3, "true or false, not 1"),
        ("grimoire: g\nhas_parent:", 3, "true or false, not nothing"),
        ("grimoire: g\nneeds: [1]", 3, "needs must be text, not 1"),
        ("grimoire: g\nneeds: {a: b}", 3, "needs must be text, not a mapping"),
        ("grimoire: g\nany_tags: ['[a']", 3, "bad glob '[a': '[' is never closed"),
        ("grimoire: g\nmatch:\n  all_tags:\n    - ok\n    - '{a'", 6, "bad glob '{a'"),
        ("grimoire: g\nnot_tags: ['a}']", 3, "bad glob 'a}'"),
        ("grimoire: g\nlabels: ['[']", 3, "bad glob '['"),
        ("grimoire: g\nany_tags: []", 3, "any_tags is empty"),
        ("grimoire: g\nall_tags:", 3, "all_tags is empty"),
        ("grimoire: g\nany_tags: ['']", 3, "empty text"),
        ("grimoire: g\nany_tags: [a, 2024]", 3, "must be text, not 2024; put it in quotes"),
        ("grimoire: g\nbody_contains: ['  ']", 3, "empty text"),
        ("grimoire: g\nbody_contains: []", 3, "body_contains is empty"),
        ("grimoire: g\npriority: []", 3, "priority is empty"),
        ("grimoire: g\npriority: [1, 5]", 3, "0 to 4, not 5"),
        ("grimoire: g\npriority: -1", 3, "0 to 4, not -1"),
        ("grimoire: g\npriority: [true]", 3, "0 to 4, not true"),
        ("grimoire: g\npriority: [1.0]", 3, "0 to 4, not 1.0"),
        ("grimoire: g\npriority: high", 3, "0 to 4, not 'high'"),
        ("grimoire: g\npriority_range: [3, 1]", 3, "[3, 1] is reversed"),
        ("grimoire: g\npriority_range: [1]", 3, "must be [least, most]"),
        ("grimoire: g\npriority_range: 1", 3, "must be [least, most], not 1"),
        ("grimoire: g\npriority_range: [0, 5]", 3, "0 to 4, not 5"),
        ("grimoire: g\npriority: 0\npriority_range: [1, 2]", 3, "no priority in common"),
        ("grimoire: g\ntype: story", 3, "task, feature, bug, epic, chore, not 'story'"),
        ("grimoire: g\ntype: []", 3, "type is empty"),
        ("grimoire: g\nmatch: [a]", 3, "match must be a mapping, not a list"),
        ("grimoire: g\ntype: bug\nmatch:\n  type: bug", 5, "both under 'match' and beside it"),
        ("match:\n  grimoire: g", 3, "belongs beside 'match'"),
    ],
)
def test_m4_a_bad_matcher_is_refused_with_its_line_and_the_others_stay(fields: str, line: int, words: str) -> None:
    lines = "\n".join(f"    {each}" for each in fields.splitlines())
    text = f"matchers:\n  -{lines[3:]}\n  - grimoire: after\n    any_tags: [z]\n"
    rules, problems = read(text)
    assert [matcher.grimoire for matcher in rules.matchers] == ["after"]
    assert rules.matchers[0].name == "matcher 2"
    errors = [(at, message) for at, severity, message in problems if severity == "error"]
    assert any(at == line and words in message for at, message in errors), errors


def test_m4_all_errors_of_a_matcher_are_reported_in_the_order_of_lines() -> None:
    matcher, problems = one("grimoire: ''\nany_tags: ['[']\npriority: 9")
    assert matcher is None
    assert [line for line, _, _ in problems] == [2, 3, 4]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("matchers: []\nother: 1\n", 2, "unknown field 'other' is ignored"),
        ("matchers: []\ndefaults: x\n", 2, "did you mean 'default'?"),
        ("matchers:\n  - grimoire: g\n    type: bug\n    colour: red\n", 4, "unknown field 'colour' is ignored"),
        ("matchers:\n  - grimoire: g\n    match: {type: bug}\n    any_tag: [a]\n", 4, "unknown field 'any_tag'"),
        ("matchers:\n  - inherit: true\n", 2, "has_parent: true"),
        ("matchers:\n  - inherit: true\n    has_parent: false\n", 2, "has_parent: true"),
        (
            "matchers:\n  - {name: a, grimoire: x, type: bug}\n  - {name: a, grimoire: y, type: task}\n",
            3,
            "is also that of the matcher in line 2",
        ),
    ],
)
def test_m4_what_is_odd_warns_and_changes_nothing(text: str, line: int, words: str) -> None:
    rules, problems = read(text)
    [(at, severity, message)] = problems
    assert (at, severity) == (line, "warning")
    assert words in message
    assert len(rules.matchers) == text.count("  - ")


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("    match:\n      any_tag: [a]\n", 4, "unknown condition 'any_tag'; did you mean 'any_tags'?"),
        ("    match:\n      colour: red\n", 4, "unknown condition 'colour'"),
        ("    match:\n      type: bug\n      colour: red\n", 5, "unknown condition 'colour'"),
        ("    any_tag: [a]\n", 3, "unknown condition 'any_tag'; did you mean 'any_tags'?"),
        ("    type: bug\n    body_contain: x\n", 4, "unknown condition 'body_contain'; did you mean 'body_contains'?"),
    ],
)
def test_m4_a_matcher_with_an_unknown_condition_is_refused(text: str, line: int, words: str) -> None:
    rules, problems = read(f"matchers:\n  - grimoire: g\n{text}  - {{grimoire: other, type: task}}\n")
    [(at, severity, message)] = problems
    assert (at, severity) == (line, "error")
    assert words in message
    assert [matcher.grimoire for matcher in rules.matchers] == ["other"]


@pytest.mark.parametrize(
    "everything", ["match: {}", "match:", "priority: [0, 1, 2, 3, 4]", "type: [task, feature, bug, epic, chore]"]
)
def test_m4_each_matcher_after_a_catch_all_is_never_reached(everything: str) -> None:
    first = f"matchers:\n  - grimoire: a\n    {everything}\n"
    text = first + "  - {name: b, grimoire: b}\n  - {name: c, grimoire: c, type: bug}\n"
    rules, problems = read(text)
    assert len(rules.matchers) == 3
    assert [(line, severity) for line, severity, _ in problems] == [(4, "warning"), (5, "warning")]
    assert all("never reached" in message and "'matcher 1' in line 2" in message for _, _, message in problems)


@pytest.mark.parametrize("conditions", ["inherit: true\n    has_parent: true", "grimoire: g\n    not_tags: [a]"])
def test_m4_what_does_not_take_everything_hides_nobody(conditions: str) -> None:
    _, problems = read(f"matchers:\n  - {conditions}\n  - grimoire: z\n")
    assert problems == []


def test_m4_the_broken_file_reports_lines_and_keeps_what_is_good() -> None:
    rules, problems = read_rules((FILES / "broken.yaml").read_text(encoding="utf-8"), "broken.yaml")
    assert rules is not None
    assert [matcher.name for matcher in rules.matchers] == ["good", "also-good"]
    assert [(problem.line, problem.severity) for problem in problems] == [
        (10, "error"),
        (13, "error"),
        (16, "error"),
        (17, "error"),
        (21, "warning"),
        (22, "warning"),
    ]
    assert str(problems[0]).startswith(
        "broken.yaml:10: error: any_tags has a bad glob '[unclosed': '[' is never closed"
    )


def test_the_default_is_the_built_in_one_unless_the_file_names_another() -> None:
    assert read("matchers: []")[0] == Rules((), "implement-bead")
    assert read("default: other")[0] == Rules((), "other")
    rules, [(line, severity, message)] = read("matchers: []\ndefault: [a]\n")
    assert rules.default == "implement-bead"
    assert (line, severity) == (2, "error")
    assert "default must be text" in message


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "must be a mapping with the key 'matchers', not nothing"),
        ("# all commented out\n", 1, "not nothing"),
        ("just text", 1, "not 'just text'"),
        ("- a\n- b\n", 1, "not a list"),
        ("{}", 1, "neither 'matchers' nor 'default'"),
        ("matcher: []", 1, "neither 'matchers' nor 'default'"),
        ("default: x\nmatchers:\n", 2, "matchers must be a list, not nothing"),
        ("matchers: {a: b}", 1, "matchers must be a list, not a mapping"),
        ("matchers: [\n", 1, "not closed before the end"),
        ("matchers:\n  - a: b: c\n", 2, "mapping values are not allowed here"),
        ("matchers:\n\t- a\n", 2, "cannot start any token"),
        ("matchers: []\nmatchers: []\n", 2, "duplicate key 'matchers'; the first is in line 1"),
        (
            "matchers:\n  - grimoire: a\n    name: b\n    grimoire: c\n",
            4,
            "duplicate key 'grimoire'; the first is in line 2",
        ),
        ("matchers: &a []\n", 1, "anchors and aliases"),
        ("default: x\nmatchers: *a\n", 2, "anchors and aliases"),
        ("matchers: !!seq []\n", 1, "tags (!)"),
        ("matchers: []\n---\nmatchers: []\n", 2, "second document"),
        ("1: a\n", 1, "a key must be text, not 1"),
        ("[a]: b\n", 1, "a key must be text, not a list"),
        ("matchers: []\nx: \x00\n", 2, "a character that YAML does not allow"),
        ("matchers: []\nx: \ud800\n", 2, "a character that YAML does not allow"),
        ('matchers: []\nx: "\\ud800"\n', 2, "a lone surrogate"),
        ('x: "\\U00110000"', 1, "not YAML"),
        ("%YAML 1.3\n---\na: b\n", 1, "not YAML"),
        ("matchers: " + "[" * 100_000, 1, "nested more than 16 deep"),
        ("x" * (1024 * 1024 + 1), 1, "the maximum is 1048576"),
        ("é" * (512 * 1024 + 1), 1, "the maximum is 1048576"),
    ],
    ids=range(27),
)
def test_m5_a_file_that_cannot_be_read_gives_no_rules_but_line_and_reason(text: str, line: int, words: str) -> None:
    rules, problems = read_rules(text, "m.yaml")
    assert rules is None
    assert [(problem.file, problem.line, problem.severity) for problem in problems] == [("m.yaml", line, "error")]
    assert words in problems[0].message


def test_a_bomb_of_aliases_is_refused_at_its_first_anchor() -> None:
    levels = "\n".join(f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 9)}]" for at in range(1, 30))
    rules, [problem] = read_rules(f"matchers: []\na0: &a0 [x]\n{levels}\n", "m.yaml")
    assert rules is None
    assert (problem.line, problem.severity) == (2, "error")


def has_a_sound_answer(text: str) -> None:
    rules, problems = read_rules(text, "m.yaml")
    assert rules is not None or any(problem.severity == "error" for problem in problems)
    assert all(isinstance(problem, Problem) and problem.line >= 1 and problem.message for problem in problems)
    if rules is not None:
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(rules), type=Rules) == rules
        assert len(rules.tests) == len(rules.matchers)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60))
def test_any_text_has_an_answer(text: str) -> None:
    has_a_sound_answer(text)


KEYS = ["matchers: ", "default: ", "name: ", "grimoire: ", "match: ", "any_tags: ", "priority: ", "type: ", "inherit: "]
SIGNS = [
    "- ",
    "  ",
    "\n",
    "[",
    "]",
    "{",
    "}",
    ",",
    "'",
    '"',
    "&a ",
    "*a",
    "!x ",
    "# ",
    "? ",
    ": ",
    "---",
    "%YAML",
    "<<: ",
    ">",
]
VALUES = ["a", "1", "true", "null", "\\u", "\t", "é", "~", "[a*]", "\U0001f600"]
words = st.sampled_from([*KEYS, *SIGNS, *VALUES])


@settings(max_examples=500, deadline=None)
@given(st.lists(words, max_size=25).map("".join))
def test_any_text_that_looks_like_rules_has_an_answer(text: str) -> None:
    has_a_sound_answer(text)
    has_a_sound_answer("matchers:\n  - grimoire: g\n    " + text)
