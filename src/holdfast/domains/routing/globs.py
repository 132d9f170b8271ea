"""Globs on tags and paths, as doublestar v4 has them.

`*` any run inside a segment, `?` one character, `[abc]` `[a-z]` `[^x]` `[!x]` one of a set, none of them `/`; `**` as
a whole segment any number of segments, none included (`area/**` matches `area`), elsewhere the same as `*`; `{a,b}`
alternatives, which may nest and be empty and hold `/`; a backslash escapes the next character. A dot is ordinary, case
matters, `{1..3}` is not a range. Where doublestar's code has quirks (`a{**,b}`), its README decides: a
pattern with braces means each of the patterns that they spell out.

The translation to `re` is our own. wcmatch differs in all the corners above and reads unclosed brackets as text, so a
wrapper would have to parse the pattern anyway.

Guarantee: no pattern blows up. Braces expand to at most 100 plain patterns. In each, whatever follows a star up to the
next star is matched where it first fits and never tried again (an atomic group): having a fixed width, it cannot fit
better later. The same holds between two `**`. So the time is at most length of pattern × text².
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final, TypeAlias

MAX_LENGTH: Final = 512
MAX_ALTERNATIVES: Final = 100
MAX_SPELLED_OUT: Final = 5_000  # all alternatives together; above that, compiling takes a second
MAX_NESTING: Final = 8

_SEGMENTS: Final = "(?:[^/]*/)*"  # any number of segments, each with its slash


class Wild(str):
    """A piece of `re` that matches one character other than the separator."""

    __slots__ = ()


class Star(str):
    """A star, as opposed to an escaped one, which is text."""

    __slots__ = ()


class _Braces(tuple[list["_Token"], ...]):
    """Alternatives, each a list of tokens."""

    __slots__ = ()


_Token: TypeAlias = "str | _Braces"  # a plain str is one character of text
Plain: TypeAlias = list[str]  # a pattern without braces


def check(pattern: str) -> str | None:
    """Return what is wrong with a pattern, or None."""
    try:
        plain_patterns(pattern)
    except ValueError as error:
        return str(error)
    return None


@lru_cache(maxsize=4096)
def compile(pattern: str) -> Callable[[str], bool]:
    """Return a function that tests a tag or path against a pattern. Raises ValueError for a bad pattern."""
    return any_of((pattern,))


@lru_cache(maxsize=4096)
def any_of(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """Return a function that tests against several patterns. Raises ValueError for a bad one."""
    plain = [each for pattern in patterns for each in plain_patterns(pattern)]
    texts = frozenset("".join(each) for each in plain if is_text(each))
    wild = "|".join(_translate(each) for each in plain if not is_text(each))
    if not wild:
        return texts.__contains__
    match = re.compile(rf"(?:{wild})\Z", re.DOTALL).match
    if not texts:
        return lambda name: match(name) is not None
    return lambda name: name in texts or match(name) is not None


def is_literal(pattern: str) -> bool:
    """Whether it matches one text only, which then is its `literal_prefix`. Raises ValueError for a bad pattern."""
    plain = plain_patterns(pattern)
    return len(plain) == 1 and is_text(plain[0])


def literal_prefix(pattern: str) -> str:
    """Return the common prefix of all matches, such as "area" for `area/**`. Raises ValueError for a bad pattern."""
    prefixes = sorted(_prefix(plain) for plain in plain_patterns(pattern))
    first, last = prefixes[0], prefixes[-1]  # where these two agree, all between them do
    return first[: next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))]


# --- reading a pattern -----------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def plain_patterns(pattern: str) -> list[Plain]:
    """Return the patterns without braces that a pattern expands to. Raises ValueError."""
    if not pattern:
        raise ValueError("the pattern is empty")
    if len(pattern) > MAX_LENGTH:
        raise ValueError(f"the pattern has {len(pattern)} characters; the maximum is {MAX_LENGTH}")
    tokens, end = _sequence(pattern, enumerate(pattern), 0)
    if end:
        raise ValueError("'}' without a '{' before it; write '\\}' for the character")
    if _count(tokens) > MAX_ALTERNATIVES:
        raise ValueError(f"the braces expand to more than {MAX_ALTERNATIVES} alternatives")
    plain = list(_spell_out(tokens))
    if len(plain) > 1 and sum(map(len, plain)) > MAX_SPELLED_OUT:
        raise ValueError(f"the expanded alternatives have more than {MAX_SPELLED_OUT} characters")
    return plain


def _sequence(pattern: str, chars: Iterator[tuple[int, str]], depth: int) -> tuple[list[_Token], str]:
    """Read tokens up to the end or, inside braces, to the `,` or `}` after this alternative; and what ended them."""
    tokens: list[_Token] = []
    for at, char in chars:
        if char == "}" or (char == "," and depth):
            return tokens, char
        match char:
            case "\\":
                tokens.append(_escaped(chars))
            case "*":
                tokens.append(Star("*"))
            case "?":
                tokens.append(Wild("[^/]"))
            case "[":
                tokens.append(Wild(_set(pattern, at, chars)))
            case "{":
                tokens.append(_braces(pattern, chars, depth + 1))
            case _:
                tokens.append(char)
    return tokens, ""


def _escaped(chars: Iterator[tuple[int, str]]) -> str:
    following = next(chars, None)
    if following is None:
        raise ValueError("a backslash at the end escapes nothing")
    return following[1]


def _braces(pattern: str, chars: Iterator[tuple[int, str]], depth: int) -> _Braces:
    if depth > MAX_NESTING:
        raise ValueError(f"braces are nested more than {MAX_NESTING} deep")
    alternatives, end = [], ","
    while end == ",":
        tokens, end = _sequence(pattern, chars, depth)
        alternatives.append(tokens)
    if not end:
        raise ValueError("'{' is never closed; write '\\{' for the character")
    return _Braces(alternatives)


def _set(pattern: str, start: int, chars: Iterator[tuple[int, str]]) -> str:
    """A set such as `[a-z_]` as a piece of `re`; `start` is the position of its bracket."""
    negated = pattern[start + 1 : start + 2] in ("^", "!")
    if negated:
        next(chars)
    # Each member is a character, or the start of a range: an unescaped "-" after a character that ended no range.
    ranges: list[tuple[str, str]] = []
    open_range, can_open = False, False
    for at, char in chars:
        if char == "]":
            if at == start + 1 + negated:
                raise ValueError("'[]' is an empty set; write '\\[' for the character")
            if open_range:
                ranges.append(("-", "-"))
            return f"(?!/)[{'^' if negated else ''}{''.join(_range(*each) for each in ranges)}]"
        if char == "-" and can_open and not open_range:
            open_range = True
            continue
        text = _escaped(chars) if char == "\\" else char
        if open_range:
            low = ranges.pop()[0]
            if text < low:
                raise ValueError(f"the range {low}-{text} is backwards")
            ranges.append((low, text))
        else:
            ranges.append((text, text))
        can_open, open_range = not open_range, False
    raise ValueError("'[' is never closed; write '\\[' for the character")


def _range(low: str, high: str) -> str:
    return re.escape(low) if low == high else f"{re.escape(low)}-{re.escape(high)}"


# --- braces ----------------------------------------------------------------------------------------------------------


def _count(tokens: list[_Token]) -> int:
    count = 1
    for token in tokens:
        if isinstance(token, _Braces):
            count *= sum(_count(alternative) for alternative in token)
    return count


def _spell_out(tokens: list[_Token]) -> Iterator[Plain]:
    """Every combination of alternatives, in order."""
    at = next((at for at, token in enumerate(tokens) if isinstance(token, _Braces)), None)
    if at is None:
        yield [token for token in tokens if isinstance(token, str)]
        return
    for alternative in tokens[at]:
        assert isinstance(alternative, list)
        yield from _spell_out([*tokens[:at], *alternative, *tokens[at + 1 :]])


# --- translating a pattern without braces ----------------------------------------------------------------------------


def is_text(plain: Plain) -> bool:
    """Whether it has no wildcards."""
    return not any(isinstance(token, Wild | Star) for token in plain)


def segments(plain: Plain) -> list[Plain]:
    """Split a pattern at its slashes."""
    segments: list[Plain] = [[]]
    for token in plain:
        if token == "/":
            segments.append([])
        else:
            segments[-1].append(token)
    return segments


def is_globstar(segment: Plain) -> bool:
    """Whether it is `**`, any number of segments."""
    return len(segment) == 2 and all(isinstance(token, Star) for token in segment)


def _prefix(plain: Plain) -> str:
    """The text before the first wildcard; a slash before `**` is not part of it, for both can be absent."""
    parts: list[str] = []
    for segment in segments(plain):
        text = "".join(_leading_text(segment))
        if is_globstar(segment):
            return "/".join(parts)
        parts.append(text)
        if len(text) < len(segment):
            break
    return "/".join(parts)


def _leading_text(segment: Plain) -> Iterable[str]:
    for token in segment:
        if isinstance(token, Wild | Star):
            return
        yield token


def _translate(plain: Plain) -> str:
    """The `re` of a pattern without braces, to which \\Z is appended."""
    groups: list[list[str]] = [[]]  # the segments between one `**` and the next
    for segment in segments(plain):
        if not is_globstar(segment):
            groups[-1].append(_translate_segment(segment))
        elif groups[-1] or len(groups) == 1:
            groups.append([])  # several `**` in a row are one
    below = ""
    if len(groups) > 1 and groups[-1] in ([], [""]):  # `a/**` is a and what is below, `a/**/` a and directories below
        below = _SEGMENTS if groups.pop() else ".*"
        if groups == [[]]:
            return below
        below = f"(?:/{below})?"
    first, *between = ["/".join(group) for group in groups]
    if not between:
        return first + below
    last = between.pop()
    start = f"{first}/" if groups[0] else ""
    return start + "".join(f"(?>{_SEGMENTS}?{group}/)" for group in between) + _SEGMENTS + last + below


def _translate_segment(segment: Plain) -> str:
    chunks: list[list[str]] = [[]]
    for token in segment:
        if not isinstance(token, Star):
            chunks[-1].append(token if isinstance(token, Wild) else re.escape(token))
        elif chunks[-1] or len(chunks) == 1:
            chunks.append([])
    first, *rest = ["".join(chunk) for chunk in chunks]
    if not rest:
        return first
    return first + "".join(f"(?>[^/]*?{chunk})" for chunk in rest[:-1]) + f"[^/]*{rest[-1]}"
