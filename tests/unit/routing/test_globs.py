"""Globs as doublestar v4 has them: a table of cases, bad patterns, a slow matcher to compare with, and no blow-up."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.domains.routing import globs

# pattern, what it matches, what it does not
CASES: list[tuple[str, list[str], list[str]]] = [
    # text
    ("security", ["security"], ["Security", "securit", "security2", "area/security", ""]),
    ("a/b", ["a/b"], ["a", "a/b/", "a//b", "b"]),
    ("a/", ["a/"], ["a", "a/b"]),
    ("/a", ["/a"], ["a", "//a"]),
    ("a,b", ["a,b"], ["a", "b"]),  # a comma outside braces is text
    ("a-b", ["a-b"], ["aab"]),
    ("a]", ["a]"], ["a"]),
    ("a.b", ["a.b"], ["aXb"]),
    ("(a|b)+$", ["(a|b)+$"], ["a"]),
    ("!a", ["!a"], ["b"]),
    ("~", ["~"], ["a"]),
    ("grün", ["grün"], ["gru\u0308n", "GRÜN"]),  # no normalisation
    # one star
    ("*", ["a", "", ".a", "a b", "日本"], ["a/b", "/"]),
    ("auth*", ["auth", "authentication", "auth-service", "auth.v2"], ["Auth", "auth/x", "oauth"]),
    ("*auth", ["auth", "oauth"], ["auth2", "x/auth"]),
    ("a*b", ["ab", "axb", "a*b", "aabb"], ["a/b", "abx", "ax"]),
    ("*a*", ["a", "bab", "aaa"], ["b", "a/b"]),
    ("a*b*c", ["abc", "aXbYc", "abbcc", "abcbc"], ["acb", "ab/c"]),
    ("a*a", ["aa", "aba", "aaa"], ["a", "ab"]),
    ("*.py", [".py", "a.py", "a.b.py"], ["py", "a.pyc", "x/a.py"]),
    ("a/*", ["a/", "a/b", "a/.b"], ["a", "a/b/c"]),
    ("*/b", ["/b", "a/b"], ["b", "a/x/b"]),
    ("a/*/c", ["a/b/c", "a//c"], ["a/c", "a/b/b/c"]),
    ("*/*", ["/", "a/b", "/a"], ["a", "a/b/c"]),
    ("a*/b", ["a/b", "ax/b"], ["a/x/b"]),
    ("***", ["", "a"], ["a/b"]),  # three stars are one
    # question mark
    ("?", ["a", "é", "日", "."], ["", "ab", "/"]),
    ("a?c", ["abc", "a.c", "a?c"], ["ac", "a/c", "abbc"]),
    ("??", ["ab"], ["a", "abc", "a/"]),
    ("?*", ["a", "ab"], ["", "a/b"]),
    ("*?b", ["ab", "aab", "bb"], ["b", "a/b"]),
    # two stars
    ("**", ["", "a", "a/b", "a/b/c", "/", ".a/.b", "a\nb"], []),
    (
        "area/**",
        ["area", "area/", "area/frontend", "area/backend/api", "area/.x"],
        ["areas", "area2/x", "x/area", "Area"],
    ),
    ("**/api", ["api", "a/api", "a/b/api", "/api"], ["xapi", "a/xapi", "api/", "a/api/b"]),
    ("a/**/b", ["a/b", "a/x/b", "a/x/y/b", "a//b"], ["ab", "a/xb", "ax/b", "a/b/c", "a"]),
    ("**/b/**", ["b", "a/b", "b/c", "a/x/b/c/d", "b/"], ["ab", "a/bc", "a", "bc/d"]),
    ("a/**/**", ["a", "a/b", "a/b/c"], ["b", "ab"]),
    ("**/**", ["", "a", "a/b"], []),
    ("**/**/c", ["c", "a/c", "a/b/c"], ["a", "ac"]),
    ("a/**/b/**/c", ["a/b/c", "a/x/b/y/c", "a/b/b/c", "a/b/c/c"], ["a/c", "a/b", "a/b/cx"]),
    ("a/**/b/**", ["a/b", "a/b/c", "a/x/b", "a/x/b/y"], ["a", "a/x", "b", "a/bb"]),
    ("a**", ["a", "ab"], ["a/b"]),  # not a whole segment: as one star
    ("**a", ["a", "ba"], ["b/a"]),
    ("a/**b", ["a/b", "a/xb"], ["a/x/b"]),
    ("a/b**/c", ["a/b/c", "a/bx/c"], ["a/b/x/c"]),
    ("**/*.md", ["a.md", "x/y/a.md", ".md"], ["a.mdx", "a.md/b"]),
    ("**/a*/**", ["a", "x/ab", "ax/y"], ["b", "b/c"]),
    ("a/**/", ["a", "a/", "a/b/"], ["a/b", "b/"]),
    ("**/", ["", "a/", "a/b/"], ["a"]),
    ("a/**/b/**/", ["a/b", "a/x/b/", "a/b/c/"], ["a/b/c", "a"]),
    ("/**", ["/", "/a", "/a/b", ""], ["a"]),
    ("*/**", ["a", "a/b", "a/b/c"], []),
    ("**/*", ["", "a", "a/b"], []),
    ("?/**", ["a", "a/b"], ["", "ab", "ab/c"]),
    # sets
    ("[abc]", ["a", "b", "c"], ["d", "", "ab", "A"]),
    ("[a-c]x", ["ax", "cx"], ["dx", "-x"]),
    ("[^a]", ["b", ".", "^"], ["a", "/", ""]),
    ("[!a]", ["b", "!"], ["a", "/"]),
    ("[a^!]", ["a", "^", "!"], ["b"]),
    ("[a-]", ["a", "-"], ["b"]),
    ("[-a]", ["a", "-"], ["b"]),
    ("[a-b-d]", ["a", "b", "-", "d"], ["c"]),
    ("[a-cx-z]", ["b", "y"], ["d", "-"]),
    ("[\\]]", ["]"], ["\\", "["]),
    ("[\\^a]", ["^", "a"], ["b", "\\"]),
    ("[a\\-c]", ["a", "-", "c"], ["b"]),
    ("[[]", ["["], ["]"]),
    ("[*?]", ["*", "?"], ["a"]),
    ("[{,}]", ["{", ",", "}"], ["a"]),
    ("[.-0]", [".", "0"], ["/"]),  # the separator is in the range, but never matched
    ("a[/]b", [], ["a/b", "a[/]b"]),
    ("[^/]", ["a"], ["/"]),
    ("[α-ω]*", ["λόγος"], ["logos", "Λ"]),
    ("[&&a||~~b-]", ["&", "a", "|", "~", "b", "-"], ["c"]),
    ("p[0-4]", ["p0", "p4"], ["p5", "p", "p00"]),
    # braces
    ("{a,b}", ["a", "b"], ["c", "a,b", "{a,b}", ""]),
    ("{a}", ["a"], ["{a}"]),
    ("{}", [""], ["{}", "a"]),
    ("{,a}b", ["b", "ab"], ["a"]),
    ("x{a,}", ["x", "xa"], ["xb"]),
    ("{a,b}{c,d}", ["ac", "ad", "bc", "bd"], ["ab", "cd"]),
    ("{a{b,c},d}", ["ab", "ac", "d"], ["a", "abc"]),
    ("{{a,b},{c}}", ["a", "b", "c"], ["d"]),
    ("{a*,?b}", ["a", "ax", "xb"], ["bb/", "x"]),
    ("area/{front,back}end", ["area/frontend", "area/backend"], ["area/end", "area/front"]),
    ("{a/b,c}/d", ["a/b/d", "c/d"], ["a/d", "b/d"]),
    ("{a/**,b}/c", ["a/c", "a/x/c", "b/c"], ["b/x/c", "c"]),
    ("{**/a,b}", ["a", "x/a", "b"], ["x/b"]),
    ("a{/**,}", ["a", "a/b"], ["ab"]),
    ("a{**,b}", ["a", "ax", "ab"], ["a/x"]),  # spelled out: `a**` and `ab`
    ("{1..3}", ["1..3"], ["1", "2", "3"]),
    ("v{1,2}.*", ["v1.0", "v2."], ["v3.0", "v1"]),
    ("{a,[,]}", ["a", ","], ["["]),
    ("{a\\,b,c}", ["a,b", "c"], ["a", "b"]),
    ("*.{js,ts{,x}}", ["a.js", "a.ts", "a.tsx"], ["a.jsx", "a/b.js"]),
    # escapes
    ("\\*", ["*"], ["a", "\\*"]),
    ("a\\?", ["a?"], ["ab"]),
    ("\\[a\\]", ["[a]"], ["a"]),
    ("\\{a,b\\}", ["{a,b}"], ["a"]),
    ("\\a", ["a"], ["\\a"]),
    ("\\\\", ["\\"], ["\\\\"]),
    ("a\\/**", ["a", "a/b"], ["a\\"]),  # an escaped separator is still one
    ("a/\\**", ["a/*", "a/*b"], ["a/b", "a", "a/b/c"]),
]
PAIRS = [
    (pattern, name, expected)
    for pattern, yes, no in CASES
    for names, expected in ((yes, True), (no, False))
    for name in names
]

BAD = {
    "": "empty",
    "[": "'[' is never closed",
    "a[": "'[' is never closed",
    "[a": "'[' is never closed",
    "[^": "'[' is never closed",
    "[a\\]": "'[' is never closed",
    "[]": "empty set",
    "[]a]": "empty set",
    "[^]": "empty set",
    "[!]a]": "empty set",
    "[b-a]": "backwards",
    "{": "'{' is never closed",
    "{a": "'{' is never closed",
    "{a,": "'{' is never closed",
    "{a,{b}": "'{' is never closed",
    "{a,b\\}": "'{' is never closed",
    "{[}": "'[' is never closed",
    "}": "'}' without a '{'",
    "a}": "'}' without a '{'",
    "{a}}": "'}' without a '{'",
    "\\": "backslash at the end",
    "a\\": "backslash at the end",
    "[a\\": "backslash at the end",
    "x" * 513: "513 characters",
    "{a,b}" * 7: "more than 100 alternatives",
    "{a,b}" * 6 + "x" * 100: "more than 5000 characters",
    "{" * 9 + "}" * 9: "nested more than 8",
    "{" * 500: "nested more than 8",
}


def test_m2_the_table_has_at_least_eighty_patterns() -> None:
    assert len({pattern for pattern, _, _ in CASES}) >= 80


def test_m2_a_glob_matches_as_in_doublestar() -> None:
    def holds(pattern: str, name: str, expected: bool) -> bool:
        return (
            globs.check(pattern) is None
            and globs.compile(pattern)(name) is expected
            and globs.any_of(("no/such", pattern))(name) is expected
            and (not expected or name.startswith(globs.literal_prefix(pattern)))
        )

    assert [pair for pair in PAIRS if not holds(*pair)] == []


@pytest.mark.parametrize("pattern", BAD, ids=lambda pattern: pattern[:20] or "empty")
def test_m4_a_bad_glob_is_refused_with_the_reason(pattern: str) -> None:
    problem = globs.check(pattern)
    assert problem is not None
    assert BAD[pattern] in problem
    for function in (globs.compile, globs.is_literal, globs.literal_prefix):
        with pytest.raises(ValueError, match=r"."):
            function(pattern)


@pytest.mark.parametrize(
    ("pattern", "literal", "prefix"),
    [
        ("area", True, "area"),
        ("area/front", True, "area/front"),
        ("a\\*b", True, "a*b"),
        ("{a}", True, "a"),
        ("{a,b}", False, ""),
        ("{ab,ac}x", False, "a"),
        ("area/*", False, "area/"),
        ("area/**", False, "area"),
        ("area/**/x", False, "area"),
        ("area/f*", False, "area/f"),
        ("auth*", False, "auth"),
        ("*", False, ""),
        ("**/a", False, ""),
        ("a?b", False, "a"),
        ("a[bc]", False, "a"),
        ("a{/**,}", False, "a"),
    ],
)
def test_what_a_pattern_begins_with_can_be_looked_up_in_an_index(pattern: str, literal: bool, prefix: str) -> None:
    assert globs.is_literal(pattern) is literal
    assert globs.literal_prefix(pattern) == prefix
    if literal:
        assert globs.compile(pattern)(prefix)


def slowly(pattern: str, name: str) -> bool:
    """A matcher for patterns of text, `*`, `?` and `**`, written from the definition."""
    parts, names = pattern.split("/"), name.split("/")

    @cache
    def segment(p: str, n: str) -> bool:
        if not p:
            return not n
        if p[0] == "*":
            return segment(p[1:], n) or (n != "" and segment(p, n[1:]))
        return n != "" and p[0] in ("?", n[0]) and segment(p[1:], n[1:])

    @cache
    def path(i: int, j: int) -> bool:
        if i == len(parts):
            return j == len(names)
        if parts[i] == "**":
            if all(part == "**" for part in parts[i:]):
                return True
            return path(i + 1, j) or (j < len(names) and path(i, j + 1))
        return j < len(names) and segment(parts[i], names[j]) and path(i + 1, j + 1)

    return path(0, 0)


pieces = st.sampled_from(["a", "b", "*", "?", "**", "a*b", "*a*", "a?", ".", "ab*"])


@settings(max_examples=500, deadline=None)
@given(st.lists(pieces, min_size=1, max_size=6), st.lists(st.text("ab.", max_size=4), min_size=1, max_size=6))
def test_m2_the_translation_agrees_with_a_matcher_written_from_the_definition(
    pattern: list[str], name: list[str]
) -> None:
    glob, path = "/".join(pattern), "/".join(name)
    assert globs.compile(glob)(path) is slowly(glob, path)


@settings(max_examples=500, deadline=None)
@given(st.text("ab/*?[]{},\\!^-.é", max_size=14), st.text("ab/,-.é", max_size=8))
def test_any_text_is_a_pattern_or_refused_and_what_matches_begins_with_its_prefix(pattern: str, name: str) -> None:
    if globs.check(pattern) is not None:
        with pytest.raises(ValueError, match=r"."):
            globs.compile(pattern)
        return
    if globs.compile(pattern)(name):
        assert name.startswith(globs.literal_prefix(pattern))
    if globs.is_literal(pattern):
        assert globs.compile(pattern)(name) is (name == globs.literal_prefix(pattern))


@pytest.mark.timeout(60)  # the guard against a blow-up: each of these takes milliseconds, or longer than anybody waits
@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("**/" * 160 + "x", "a/" * 2000),
        ("**/a/" * 90 + "x", "a/" * 2000),
        ("**/*a/" * 80 + "x", "a/" * 1000),
        ("*a" * 200 + "b", "a" * 2000),
        ("*?" * 200 + "b", "a" * 2000),
        ("**/" + "*a" * 100 + "b", ("a" * 100 + "/") * 40),
        ("*a/" * 150 + "b", ("a" * 20 + "/") * 150),
        ("**/*a*a*a*a/" * 40 + "x", ("a" * 40 + "/") * 40),
        ("*" * 512, "a" * 2000 + "/"),
        ("{a,b}" * 5 + "*" + "a*" * 60 + "c", "a" * 2000),
        ("{*a,*b}" * 6 + "c", "ab" * 500),
        ("[^b]*" * 100 + "c", "a" * 2000),
    ],
)
def test_no_pattern_blows_up(pattern: str, name: str) -> None:
    assert globs.check(pattern) is None
    assert not globs.compile(pattern)(name)


def test_the_module_brings_no_glob_library() -> None:
    code = "import sys, holdfast.domains.routing.globs; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"wcmatch", "ruamel", "fnmatch", "glob"}.isdisjoint(loaded)
