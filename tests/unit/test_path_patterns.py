"""Patterns of paths (A5): what they cover, when two meet, their normal form, and what is refused.

The bar: two patterns that cover one path meet, whoever is asked first. It is proved by generated pairs over generated
trees, and by a table in which each answer has its reason. What a pattern covers is compared with a second definition.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from itertools import combinations, combinations_with_replacement, product
from typing import Any

import pytest

import holdfast
from holdfast import errors
from holdfast.domains.paths import patterns as path_patterns
from holdfast.domains.paths.patterns import (
    MAX_PATTERNS,
    check_path,
    check_pattern,
    check_patterns,
    covers,
    globs_overlap,
    overlap,
    prefix_of,
)
from holdfast.domains.routing import globs
from tests.unit.routing.test_glob_overlap import Maker, ancestors, ends_below_globstar

ROUNDS, PATTERNS, PATHS = 20, 40, 120
SEED = 5


def valid(pattern: str) -> bool:
    """Whether a lock may have it, in this very form."""
    try:
        return check_pattern(pattern) == pattern
    except errors.HoldfastError:
        return False


def pattern(maker: Maker, tree: list[str]) -> str:
    """A valid pattern in its normal form: a made one, a path of the tree as it is spelled, or any text."""
    while True:
        found = maker.text() if maker.dice.randrange(6) == 0 else maker.pattern(tree)
        if valid(found):
            return found


# --- never no if one path is covered by both -------------------------------------------------------------------------


def test_a5_two_patterns_that_cover_one_path_meet_in_either_order(capsys: pytest.CaptureFixture[str]) -> None:
    maker, counts = Maker(SEED), Counter[str]()
    for _ in range(ROUNDS):
        tree = maker.paths(PATHS)
        patterns = sorted({pattern(maker, tree) for _ in range(PATTERNS)})
        covered = {pattern: {path for path in tree if covers(pattern, path)} for pattern in patterns}
        for one, other in combinations_with_replacement(patterns, 2):
            common, said = covered[one] & covered[other], overlap(one, other)
            assert said or not common, f"{one} and {other} both cover {sorted(common)[0]!r}"
            assert overlap(other, one) is said, f"{one} and {other}: it depends on who is asked first"
            counts["common" if common else "overlapping" if said else "apart"] += 1
    with capsys.disabled():
        print(
            f"\npath overlap: {counts.total()} pairs, {counts['common']} with a common path, {counts['apart']} told"
            f" apart, {counts['overlapping']} called overlapping without a common path in the tree"
        )
    assert counts.total() >= 10_000
    assert min(counts["common"], counts["apart"]) >= counts.total() // 10, "the pairs prove little"


def test_a5_the_index_of_locks_misses_none_that_a_path_or_pattern_meets() -> None:
    maker, counts = Maker(SEED + 2), Counter[str]()
    for _ in range(5):
        tree = maker.paths(60)
        patterns = sorted({pattern(maker, tree) for _ in range(PATTERNS)})
        with holdfast.open(":memory:", actor="a") as ws:
            for each in patterns:
                ws.paths.lock(each, shared=True)
            for path in tree:
                plain = {each for each in patterns if covers(each, path)}
                assert {each for lock in ws.paths.list(path=path) for each in lock.patterns} == plain, path
                near = found(ws, path_patterns.may_cover(path))
                assert plain <= near, f"{path}: the index misses {plain - near}"
                counts.update({"cover": len(plain), "few": len(near), "all": len(patterns)})
            for each in patterns:
                readings = path_patterns._readings(each)
                plain = {other for other in patterns if globs_overlap(readings, path_patterns._readings(other))}
                near = found(ws, path_patterns.may_overlap((each,)))
                assert plain <= near, f"{each}: the index misses {plain - near}"
                assert {other for other in patterns if overlap(each, other)} == plain, each
                counts["overlap"] += len(plain)
            assert ws.check().ok
    assert counts["few"] < counts["all"] * 0.8, "it finds nearly all, and the test proves little"
    assert min(counts["cover"], counts["overlap"]) >= 1000


def found(ws: holdfast.Workspace, condition: tuple[str, list[str]]) -> set[str]:
    """The patterns of the locks that meet a condition."""
    locks = ws._engine.read(lambda snapshot: path_patterns.select(snapshot, *condition))
    return {each for lock in locks for each in lock.patterns}


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [
        ("src/a.py", "src/a.py/"),
        ("src/app/*.py", "src/app/"),
        ("src/**/deep/x", "src/"),
        ("**", ""),
        ("*.py", ""),
        ("a?/b", ""),
        ("app/[id]/page", "app/"),
        ("src/{a,b}/c", "src/"),
        ("src/a{b,c/d}", "src/"),
        ("é/ü*", "é/"),
    ],
)
def test_a5_a_prefix_is_the_whole_segments_before_anything_wild(pattern: str, prefix: str) -> None:
    assert prefix_of(pattern) == prefix


def test_a5_two_literal_paths_meet_exactly_if_one_is_the_other_or_a_directory_above_it() -> None:
    tree = [path for path in Maker(SEED).paths(150) if globs.is_literal(path) if "\\" not in path]
    met = 0
    for one, other in combinations(tree, 2):
        related = one in ancestors(other) or other in ancestors(one)
        assert overlap(one, other) is overlap(other, one) is related, f"{one} and {other}"
        met += related
    assert met >= 100
    assert all(overlap(path, path) for path in tree)


def test_a5_a_pattern_of_one_name_meets_exactly_the_names_that_it_covers() -> None:
    maker, counts = Maker(SEED + 1), Counter[bool]()
    names = sorted({name for path in maker.paths(100) for name in path.split("/") if globs.is_literal(name)} - {"\\*"})
    while counts.total() < 5000:
        made = "".join(maker.token() for _ in range(maker.dice.randint(1, 3)))
        if not valid(made) or made in ("**", "\\"):
            continue
        for name in names:
            assert overlap(made, name) is overlap(name, made) is covers(made, name), f"{made} and {name}"
            counts[covers(made, name)] += 1
    assert min(counts.values()) >= 500


# one, other, whether they meet, why
TABLE: list[tuple[str, str, bool, str]] = [
    # paths
    ("a", "a", True, "the same file"),
    ("a", "b", False, "two files"),
    ("src", "src/a.py", True, "a directory and a file in it"),
    ("src/a.py", "src", True, "the same, asked the other way"),
    ("src/a", "src/b", False, "two files of one directory"),
    ("src", "srcs", False, "a name that only begins alike"),
    ("src", "src.py", False, "a name that only begins alike, with a dot"),
    ("src/a", "src/a/b/c/d", True, "deep below"),
    ("src/a/b", "src/b/a", False, "the same names in another order"),
    ("A", "a", False, "case matters"),
    ("café", "cafe\u0301", False, "nothing is normalised: these are two names"),
    (".env", "env", False, "a dot is an ordinary character"),
    ("a b", "a", False, "so is a blank"),
    # a star
    ("*", "a", True, "any name"),
    ("*", "a/b", True, "what is below any name"),
    ("*", ".git", True, "a dot is an ordinary character"),
    ("*.py", "a.py", True, "the pattern matches the file"),
    ("*.py", "a.pyc", False, "one character more"),
    ("*.py", "src/a.py", False, "a star does not cross a slash"),
    ("*.py", "src", False, "the directory src is no *.py"),
    ("*.py", "a.py/b", True, "a directory may be called a.py"),
    ("*.py", "*.md", False, "no name ends in both"),
    ("*.py", "test_*", True, "test_.py"),
    ("a*", "*b", True, "ab"),
    ("a*c", "ab*", True, "abc"),
    ("a*c", "b*", False, "they begin otherwise"),
    ("src/*", "src", True, "who has the directory has what is in it"),
    ("src/*", "src/a/b", True, "below what the star matches"),
    ("src/*", "docs/*", False, "two directories"),
    ("src/*/a", "src/b", True, "src/b/a"),
    ("src/*/a", "src/b/c", False, "below src/b only a is locked"),
    ("*/a", "*/b", False, "the second name differs"),
    ("*/a", "b/*", True, "b/a"),
    # a question mark
    ("?", "a", True, "one character"),
    ("?", "ab", False, "two characters"),
    ("??", "?", False, "two against one"),
    ("a?", "?b", True, "ab"),
    ("a?c", "a/c", False, "a question mark is no slash"),
    ("?*", "ab", True, "at least one character"),
    # sets
    ("[ab]", "b", True, "b is in the set"),
    ("[ab]", "c", False, "c is not"),
    ("[!a]", "a", False, "all but a"),
    ("[^a]", "b", True, "b is not a"),
    ("[a-c].py", "b.py", True, "b is in the range"),
    ("[a-c].py", "d.py", False, "d is not"),
    ("[ab]", "[cd]", True, "two sets are taken to share a character"),
    ("[ab]x", "[cd]y", False, "but what stands beside them is compared"),
    ("[ab]", "[ab]", True, "the same"),
    # two stars
    ("**", "a", True, "everything"),
    ("**", ".git/hooks", True, "everything, dots included"),
    ("**", "*.md", True, "everything"),
    ("src/**", "src", True, "the directory itself"),
    ("src/**", "src/a/b", True, "below"),
    ("src/**", "srcs/a", False, "another directory"),
    ("src/**", "docs/**", False, "two trees"),
    ("src/**/a.py", "src/a.py", True, "two stars may stand for nothing"),
    ("src/**/a.py", "src/x/y/a.py", True, "or for several names"),
    ("src/**/a.py", "src/b.py", True, "b.py may be a directory with an a.py in it"),
    ("src/**/a.py", "docs", False, "another tree"),
    ("**/a.py", "**/b.py", True, "one may be a directory above the other"),
    ("**/a.py", "src/**", True, "src/a.py"),
    ("**/tests/**", "src/**", True, "src/tests"),
    ("a/**/b", "a/**/c", True, "a/b/c is below both"),
    ("a/**/b", "c/**/b", False, "they begin otherwise"),
    ("a**b", "axb", True, "inside a name two stars are one"),
    ("a**b", "a/b", False, "inside a name two stars cross no slash"),
    # braces
    ("{a,b}", "b", True, "the second alternative"),
    ("{a,b}", "c", False, "neither"),
    ("src/{a,b}.py", "src/{b,c}.py", True, "src/b.py"),
    ("src/{a,b}.py", "src/{c,d}.py", False, "four files"),
    ("src/{a,b/c}", "src/b", True, "a slash in braces is one"),
    ("a{,b}", "a", True, "an alternative may be empty"),
    ("a{,b}", "ab", True, "or not"),
    ("a{,b}", "abb", False, "once at most"),
    ("{a,{b,c}}", "c", True, "braces nest"),
    ("{a,{b,c}}", "d", False, "and name no more than they say"),
    ("{src,docs}/**", "docs/a", True, "one of the trees"),
    # spelled like a pattern
    ("app/[id]/page.tsx", "app/[id]/page.tsx", True, "the file that is spelled like this"),
    ("app/[id]/page.tsx", "app/\\[id\\]/page.tsx", True, "the same file, escaped"),
    ("app/[id]/page.tsx", "app/i/page.tsx", True, "what the set matches"),
    ("app/[id]/page.tsx", "app/x/page.tsx", False, "neither in the set nor the spelling"),
    ("app/[id]", "app/[id]/page.tsx", True, "the directory that is spelled like this"),
    ("app/[id]/a.tsx", "app/[id]/b.tsx", False, "two files of it"),
    ("app/[id]/a", "app/[slug]/b", False, "two files in two of them"),
    ("app/[...all]/page.tsx", "app/*/page.tsx", True, "a star matches that name too"),
    ("{a,b}", "\\{a,b\\}", True, "a file may be called {a,b}"),
    # escapes
    ("\\*", "a", False, "only the file that is called *"),
    ("\\*", "*", True, "which a star matches"),
    ("a\\?", "ab", False, "only a?"),
    ("\\{a\\}", "a", False, "only {a}"),
    ("\\\\", "a", False, "only the file that is called \\"),
]


def test_a5_the_table_has_at_least_sixty_pairs_and_a_reason_for_each() -> None:
    assert len({frozenset(row[:2]) for row in TABLE}) >= 60
    assert all(reason for *_, reason in TABLE)


@pytest.mark.parametrize(("one", "other", "expected", "reason"), TABLE)
def test_a5_patterns_that_people_write_meet_or_do_not(one: str, other: str, expected: bool, reason: str) -> None:
    assert (check_pattern(one), check_pattern(other)) == (one, other)
    assert overlap(one, other) is expected, reason
    assert overlap(other, one) is expected, reason


# --- what a pattern covers -------------------------------------------------------------------------------------------


@cache
def covers_by_definition(pattern: str, path: str) -> bool:
    """It matches the path or a directory above it, or one is spelled like it; a set may be a name in brackets."""
    parts = re.split(r"((?<!\\)\[[^\[\]/\\]+\])", pattern)  # each second one is a set
    escaped = [re.sub(r"[^A-Za-z0-9_]", r"\\\g<0>", part) for part in parts]
    ways = [(part, escaped[at]) if at % 2 else (part,) for at, part in enumerate(parts)]
    matches = [globs.compile("".join(way)) for way in product(*ways)]
    return any(match(each) or each == pattern for each in (path, *ancestors(path)) for match in matches)


def test_a5_a_pattern_covers_what_it_matches_what_is_spelled_like_it_and_all_below() -> None:
    maker, counts = Maker(SEED + 2), Counter[bool]()
    for _ in range(10):
        tree = maker.paths(PATHS)
        for _ in range(60):
            made = pattern(maker, tree)
            if made.endswith("\\") or ends_below_globstar(made):
                continue  # these have tests of their own
            for path in tree:
                assert covers(made, path) is covers_by_definition(made, path), (made, path)
                counts[covers(made, path)] += 1
    assert min(counts.values()) >= 5000


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("src", "src", True),
        ("src", "src/a/b", True),
        ("app/[id]/**", "app/[id]/page.tsx", True),
        ("app/[id]/*.tsx", "app/[id]/page.tsx", True),
        ("app/[id]/[name]/x", "app/[id]/n/x", True),
        ("app/[id]/[name]/x", "app/i/[name]/x", True),
        ("app/[id]/x", "app/[name]/x", False),
        ("src", "srcs", False),
        ("src/a", "src", False),  # a file does not cover the directory it is in
        ("**", "a/b", True),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/a.py/b", True),
        ("src/*.py", "src/x/a.py", False),
        ("app/[id]/page.tsx", "app/[id]/page.tsx", True),
        ("app/[id]", "app/[id]/page.tsx", True),
        ("app/[id]", "app/i/page.tsx", True),
        ("app/[id]", "app/[id", False),
        ("a\\*", "a*", True),
        ("a\\*", "ab", False),
        ("a\\*", "a\\*", True),
        ("**/a", "x/y/a/b", True),
    ],
)
def test_a5_a_path_is_covered_or_not(pattern: str, path: str, expected: bool) -> None:
    assert covers(pattern, path) is expected


@pytest.mark.parametrize("pattern", ["{src/,docs/}", "{src/**/,docs}", "{./src,docs}", "src/{.,x}", "src/{,x}"])
def test_a5_a_directory_spelled_in_braces_is_covered_as_it_is_outside_of_them(pattern: str) -> None:
    """Or the pattern is refused: a lock that protects nothing of what it names must not be granted."""
    try:
        normal = check_pattern(pattern)
    except errors.Invalid:
        return
    assert covers(normal, "src/a")
    assert overlap(normal, "src/a")


@pytest.mark.parametrize("pattern", ["[a]" * 150, "?" * 300, "*a" * 200, "\\*" * 200], ids=["sets", "?", "*", "\\*"])
def test_a5_a_pattern_that_is_taken_can_be_compared_with_any_other(pattern: str) -> None:
    normal = check_pattern(pattern)
    assert overlap(normal, normal)
    assert overlap(normal, "**")
    assert not overlap(normal, "elsewhere/x") or covers(normal, "elsewhere/x")


# --- normal form and refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("src", "src"),
        ("src/", "src"),
        ("./src", "src"),
        ("src/./a", "src/a"),
        ("src//a", "src/a"),
        ("././src///a/./", "src/a"),
        (".", "**"),
        ("./", "**"),
        ("./././", "**"),
        ("**", "**"),
        ("**/", "**"),
        ("./**", "**"),
        (".github/*", ".github/*"),
        ("...", "..."),
        ("a..b", "a..b"),
        ("..a", "..a"),
        ("a~", "a~"),
        (" a ", " a "),
        ("a\\*b", "a\\*b"),
        ("app/[id]/page.tsx", "app/[id]/page.tsx"),
        ("日本/*", "日本/*"),
    ],
)
def test_a5_a_pattern_gets_its_normal_form_and_keeps_it(given: str, normal: str) -> None:
    assert check_pattern(given) == normal
    assert check_pattern(normal) == normal
    if normal != "**":
        assert check_path(given) == normal


BAD_NAMES: list[Any] = ["", None, 1, b"src", ["src"], "a\0", "a\n", "a\x7f", "\ud800", "x" * 513, "é" * 257]
OUTSIDE = {
    "/": "absolute",
    "/etc/passwd": "absolute",
    "~": "absolute",
    "~/a": "absolute",
    "~me/a": "absolute",
    "C:/a": "absolute",
    "c:\\a": "absolute",
    "..": "contains ..",
    "../a": "contains ..",
    "a/../b": "contains ..",
    "a/..": "contains ..",
    "./..": "contains ..",
}
BAD_GLOBS = {
    "[": "'[' is never closed",
    "a[b": "'[' is never closed",
    "a[]": "empty set",
    "[b-a]": "backwards",
    "{a": "'{' is never closed",
    "a}": "'}' without a '{'",
    "{a,b}" * 7: "more than 100 alternatives",
    "{a,b}" * 6 + "x" * 100: "more than 5000 characters",
    "{" * 9 + "}" * 9: "nested more than 8",
    "x" * 510: "513 characters",
    "a/" * 255 + "b": "514 characters",
    "src\\a": "backslash before an ordinary character",
    "src\\main\\*": "backslash before an ordinary character",
    "a\\.b": "backslash before an ordinary character",
    "a\\_b": "backslash before an ordinary character",
    "[\\a]": "backslash before an ordinary character",
}


@pytest.mark.parametrize("name", BAD_NAMES, ids=repr)
def test_a5_what_is_no_name_is_neither_a_pattern_nor_a_path(name: Any) -> None:
    for check in (check_pattern, check_path):
        with pytest.raises(errors.InvalidName):
            check(name)


@pytest.mark.parametrize("pattern", OUTSIDE)
def test_a5_what_lies_outside_of_the_repository_is_refused_with_what_to_write_instead(pattern: str) -> None:
    for check in (check_pattern, check_path):
        with pytest.raises(errors.Invalid) as refused:
            check(pattern)
        if "\\" not in pattern or check is check_path:
            assert OUTSIDE[pattern] in refused.value.message
        assert refused.value.hint


@pytest.mark.parametrize("name", ["~", "~/a", "~me/a", "C:/a"])
def test_what_looks_absolute_is_a_name_in_the_repository_behind_a_dot(name: str) -> None:
    for given in (f"./{name}", f".//./{name}/"):
        assert check_pattern(given) == check_path(given) == name
    assert check_pattern(name, stored=True) == name
    assert overlap("**", name)
    assert covers(name, f"{name}/b")


def test_a_backslash_that_is_escaped_is_one_of_the_name() -> None:
    pattern = check_pattern("./c:\\\\a")
    assert covers(pattern, check_path("./c:\\a"))
    with pytest.raises(errors.Invalid):
        check_pattern("./c:\\\\\\a")


@pytest.mark.parametrize("pattern", BAD_GLOBS, ids=lambda pattern: pattern[:20])
def test_a5_a_bad_glob_is_refused_with_the_reason(pattern: str) -> None:
    with pytest.raises(errors.Invalid) as refused:
        check_pattern(pattern)
    assert BAD_GLOBS[pattern] in refused.value.message
    assert repr(pattern) in refused.value.message


def test_a5_a_backslash_at_the_end_takes_the_meaning_from_nothing_and_is_refused() -> None:
    for pattern in ("src\\", "src/*\\", "\\"):
        assert globs.check(pattern) is not None
        with pytest.raises(errors.Invalid):
            check_pattern(pattern)


@pytest.mark.parametrize("path", ["[", "a{", "a}", "\\", "*", "[]", "a\\b", "x" * 512])
def test_a5_in_a_path_nothing_is_wild_and_nothing_is_a_bad_glob(path: str) -> None:
    assert check_path(path) == path


@pytest.mark.parametrize("path", [".", "./", "./."])
def test_a5_the_whole_repository_is_a_pattern_but_no_path(path: str) -> None:
    with pytest.raises(errors.Invalid, match="the whole repository"):
        check_path(path)
    assert check_pattern(path) == "**"


def test_a5_patterns_are_one_or_several_each_once_and_in_order() -> None:
    assert check_patterns("src/") == ("src",)
    assert check_patterns(["b", "./a", "a/", "a"]) == ("a", "b")
    assert check_patterns(("a", "**")) == ("**", "a")
    assert check_patterns([f"p{number}" for number in range(MAX_PATTERNS)])[-1] == "p99"
    assert len(check_patterns(["a", "./a"] * MAX_PATTERNS)) == 1, "what is the same is counted once"


@pytest.mark.parametrize(
    "patterns", [None, 1, {"a"}, {"a": 1}, b"a", iter(["a"]), object(), [], ()], ids=lambda given: type(given).__name__
)
def test_a5_what_is_no_list_of_patterns_is_refused(patterns: Any) -> None:
    with pytest.raises(errors.Invalid) as refused:
        check_patterns(patterns)
    assert "src/**" in refused.value.hint


def test_a5_more_patterns_than_a_lock_can_have_are_refused_and_so_is_a_list_with_a_bad_one() -> None:
    with pytest.raises(errors.TooLarge) as refused:
        check_patterns([f"p{number}" for number in range(MAX_PATTERNS + 1)])
    assert refused.value.limit == MAX_PATTERNS
    for bad in ("", "/a", "..", "[", 1, None, ["a"]):
        with pytest.raises(errors.Invalid):
            check_patterns(["a", bad])
