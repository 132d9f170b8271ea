"""Whether two globs can match the same text: never no if one does, exact where nothing is wild, and bounded in work.

The proof is by generated pairs: each pattern is tried on many texts, and two that match one text must overlap. The
patterns are made of few characters, so that this happens often; the generator also serves the tests of path patterns.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import combinations_with_replacement
from typing import Any

import pytest

from holdfast.domains.paths import patterns as glob_overlap
from holdfast.domains.paths.patterns import MAX_WORK, alternatives, globs_overlap
from holdfast.domains.routing import globs

ROUNDS, PATTERNS, TEXTS = 20, 36, 120
SEED = 20_240_611


def _tokens_overlap(one: str, other: str) -> bool:
    return globs_overlap(alternatives(one), alternatives(other))


# Names of files and directories. Some are spelled like patterns, as a web framework has them, or like a trick.
PLAIN = ("a", "a", "a", "b", "b", "ab", "ba", ".a", "a.b", "é")
ODD = ("[a]", "[id]", "*", "a*", "{a,b}", "?", "\\*")
LETTERS = "aab.é"
SETS = ("[ab]", "[!a]", "[^b]", "[a-b]", "[^.]", "[a.]", "[!a-b]", "[*]", "[\\]-]", "[é-ü]")
ESCAPES = ("\\*", "\\?", "\\[", "\\]", "\\{", "\\}", "\\\\")


class Maker:
    """Patterns and paths by a seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)

    def path(self) -> str:
        """A path of one to four names."""
        return "/".join(
            self.dice.choice(ODD if self.dice.randrange(8) == 0 else PLAIN)
            for _ in range(self.dice.choice((1, 2, 2, 2, 3, 4)))
        )

    def paths(self, count: int) -> list[str]:
        """So many different paths, and the directories that they are in."""
        found: set[str] = set()
        while len(found) < count:
            path = self.path()
            found.update({path, *ancestors(path)})
        return sorted(found)

    def pattern(self, paths: list[str]) -> str:
        """A pattern: made up, made of a path by putting something wild into it, or a path as it is spelled."""
        match self.dice.randrange(10):
            case 0:
                return self.dice.choice(paths)
            case 1 | 2 | 3:
                parts = self.dice.choice(paths).split("/")
                at = self.dice.randrange(len(parts))
                parts[at : at + self.dice.randrange(2)] = [self.segment()]
                return "/".join(parts)
            case _:
                return "/".join(self.segment() for _ in range(self.dice.choice((1, 1, 2, 2, 3, 4))))

    def segment(self) -> str:
        """What stands between two slashes; braces may bring more of them."""
        match self.dice.randrange(8):
            case 0 | 1:
                return "**"
            case 2:
                return self.dice.choice(("*", "?", "*?", "??", "***", "*.a", "a*", "*b*"))
            case 3 | 4:
                return "".join(self.dice.choice(LETTERS) for _ in range(self.dice.choice((1, 1, 2))))
            case 5:
                return self.braces(2)
            case _:
                return "".join(self.token() for _ in range(self.dice.randint(1, 3)))

    def token(self) -> str:
        """A character, or what stands for some."""
        match self.dice.randrange(7):
            case 0:
                return self.dice.choice(ESCAPES)
            case 1 | 2:
                return self.dice.choice(SETS)
            case 3:
                return self.dice.choice("*?")
            case _:
                return self.dice.choice(LETTERS)

    def braces(self, depth: int) -> str:
        """Alternatives beside a letter: nested, empty, with a slash inside, but none that ends with one."""
        choices = ["", "a", "b", "*", "[ab]", "a/b", "b/**", "/a", "**/a", "\\,"]
        if depth:
            choices.append(self.braces(depth - 1))
        alternatives = [self.dice.choice(choices) for _ in range(self.dice.randint(1, 3))]
        return self.dice.choice("ab*") + "{" + ",".join(alternatives) + "}"

    def text(self, alphabet: str = "ab/*?[]{},\\!^-.") -> str:
        """Any text of a few characters."""
        return "".join(self.dice.choice(alphabet) for _ in range(self.dice.randint(1, 9)))


def ancestors(path: str) -> Iterator[str]:
    """The directories that a path is in."""
    parts = path.split("/")
    return ("/".join(parts[:end]) for end in range(1, len(parts)))


# --- never no if one text matches both -------------------------------------------------------------------------------


def glob(maker: Maker, paths: list[str]) -> str:
    """A valid glob, sometimes one that begins or ends with a slash, or any text that happens to be one."""
    while True:
        pattern = maker.text() if maker.dice.randrange(6) == 0 else maker.pattern(paths)
        if maker.dice.randrange(12) == 0:
            pattern = maker.dice.choice((f"/{pattern}", f"{pattern}//a"))
        if not globs.check(pattern) and not ends_below_globstar(pattern):
            return pattern


def ends_below_globstar(pattern: str) -> bool:
    """Whether a pattern means `.../**/`, which has a test of its own."""
    spelled = [globs.segments(plain) for plain in globs.plain_patterns(pattern)]
    return any(len(parts) > 1 and not parts[-1] and globs.is_globstar(parts[-2]) for parts in spelled)


def test_a5_two_globs_that_match_one_text_overlap_in_either_order(capsys: pytest.CaptureFixture[str]) -> None:
    maker, counts = Maker(SEED), Counter[str]()
    for _ in range(ROUNDS):
        texts = [*maker.paths(TEXTS), "", "/", "a/", "a//a", "/a"]
        patterns = sorted({glob(maker, texts) for _ in range(PATTERNS)})
        matched = {pattern: set(filter(globs.compile(pattern), texts)) for pattern in patterns}
        for one, other in combinations_with_replacement(patterns, 2):
            common, said = matched[one] & matched[other], _tokens_overlap(one, other)
            assert said or not common, f"{one} and {other} both match {sorted(common)[0]!r}"
            assert _tokens_overlap(other, one) is said, f"{one} and {other}: it depends on who is asked first"
            counts["common" if common else "overlapping" if said else "apart"] += 1
    with capsys.disabled():
        print(
            f"\nglob overlap: {counts.total()} pairs, {counts['common']} with a common text, {counts['apart']} told"
            f" apart, {counts['overlapping']} called overlapping without a common text among those tried"
        )
    assert counts.total() >= 10_000
    assert min(counts["common"], counts["apart"]) >= counts.total() // 20, "the pairs prove little"


@pytest.mark.parametrize("text", ["a", "a/", "a/b/"])
@pytest.mark.parametrize("pattern", ["a/**/", "?/**/", "{a/**/,c}", "a/**/**/"])
def test_a5_a_globstar_before_a_last_slash_may_match_no_slash_at_all(pattern: str, text: str) -> None:
    assert globs.compile(pattern)(text)
    assert _tokens_overlap(pattern, text)
    assert _tokens_overlap(text, pattern)


# --- exact where it can be -------------------------------------------------------------------------------------------


def test_a5_two_texts_overlap_exactly_if_they_are_one() -> None:
    maker = Maker(SEED)
    texts = [path for path in maker.paths(80) if not set(path) & set("*?[]{}\\")]
    for one, other in combinations_with_replacement(texts, 2):
        assert _tokens_overlap(one, other) is (one == other)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("a*", "*b", True),  # ab
        ("a*b", "b*a", False),  # they begin otherwise
        ("*a*", "*b*", True),  # ab
        ("??", "???", False),  # the length differs
        ("?*", "??", True),
        ("*.py", "*.md", False),
        ("*.py", "test_*", True),  # test_.py
        ("[ab]", "b", True),
        ("[!ab]", "b", False),
        ("[a-c]", "[x-z]", True),  # two sets are taken to share a character
        ("[a-c]x", "[a-c]y", False),  # but what stands beside them is compared
        ("a/**", "a", True),  # nothing below
        ("a/**/b", "a/b", True),
        ("a/**/b", "**/c", False),
        ("**/b/**", "a/**", True),
        ("a/**/z", "**/b/**", True),  # a/b/z
        ("a/*/c", "a/**/d", False),
        ("{a,b}/c", "{b,d}/*", True),
        ("{a,b}/c", "{d,e}/*", False),
        ("\\*", "a", False),  # an escaped star is a star
        ("\\*", "*", True),
        ("\\*", "[*]", True),
        ("a**b", "a/b", False),  # inside a segment two stars are one
        ("", "*", None),  # no pattern at all
        ("[", "*", None),
    ],
)
def test_a5_globs_that_people_write(one: str, other: str, expected: bool | None) -> None:
    for first, second in ((one, other), (other, one)):
        if expected is None:
            with pytest.raises(ValueError, match=r"."):
                _tokens_overlap(first, second)
        else:
            assert _tokens_overlap(first, second) is expected


# --- the work --------------------------------------------------------------------------------------------------------

DEEP = "/".join("x" * 22)
# Two patterns, and whether they can be told apart within the bound. None of the pairs has a text in common.
ADVERSARIES: dict[str, tuple[str, str, bool]] = {
    "stars": ("*a" * 250 + "b", "*a" * 250 + "c", False),
    "stars and question marks": ("*?" * 250 + "b", "*?" * 250 + "c", False),
    "stars and sets": ("*[ab]" * 100 + "b", "*[bc]" * 100 + "c", True),
    "stars against a text": ("*a" * 250 + "b", "a" * 511, True),
    "only globstars": ("**/" * 160 + "b", "**/" * 160 + "c", True),
    "globstars and names": ("**/a/" * 100 + "b", "**/a/" * 100 + "c", True),
    "globstars and stars": ("**/*a*/" * 70 + "b", "**/*a*/" * 70 + "c", True),
    "100 x 100 alternatives": ("{a,b,c,d,e,f,g,h,i,j}{0,1,2,3,4,5,6,7,8,9}/x", "{0,1,2,3,4,5,6,7,8,9}" * 2, True),
    "100 x 100 alternatives that differ late": (
        f"{DEEP}/{{a,b,c,d,e,f,g,h,i,j}}{{0,1,2,3,4,5,6,7,8,9}}",
        f"{DEEP}/{{k,l,m,n,o,p,q,r,s,t}}{{0,1,2,3,4,5,6,7,8,9}}",
        False,
    ),
    "alternatives of globstars": ("{**/a,**/b,**/c/**}" * 3 + "/y", "{**/a,**/b,**/c/**}" * 3 + "/z", True),
}


class Meter(glob_overlap._Work):
    """Counts what is spent on one pair."""

    spent = 0
    most = 0  # at once

    def spend(self, steps: int) -> None:
        type(self).spent += steps
        type(self).most = max(type(self).most, steps)
        super().spend(steps)


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Meter]]:
    """A meter in the place of the budget."""
    monkeypatch.setattr(glob_overlap, "_Work", Meter)
    yield Meter
    Meter.spent = Meter.most = 0


@pytest.mark.parametrize("name", ADVERSARIES)
def test_a5_the_work_on_one_pair_is_bounded_and_a_doubt_is_an_overlap(name: str, meter: Any) -> None:
    one, other, tellable = ADVERSARIES[name]
    for first, second in ((one, other), (other, one)):
        meter.spent = 0
        said = _tokens_overlap(first, second)
        assert meter.most <= 2 + globs.MAX_LENGTH
        assert meter.spent <= MAX_WORK + meter.most, "it stops as soon as the budget is spent"
        assert said is (meter.spent > MAX_WORK), "it says yes only because it ran out"
        assert said is not tellable


@pytest.mark.parametrize("name", ADVERSARIES)
def test_a5_no_step_touches_more_places_than_the_other_pattern_has(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    places = calls = 0
    after = glob_overlap._after

    def count(item: Any, start: int, *others: Any) -> set[int]:
        nonlocal places, calls
        found = after(item, start, *others)
        places, calls = places + len(found), calls + 1
        return found

    monkeypatch.setattr(glob_overlap, "_after", count)
    one, other, _ = ADVERSARIES[name]
    _tokens_overlap(one, other)
    assert calls <= MAX_WORK + 1
    assert places <= calls * (globs.MAX_LENGTH // 2 + 1)
