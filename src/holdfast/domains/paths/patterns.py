"""Patterns of paths: how they are checked, what they cover, and whether two of them can meet.

A path is relative to the root of the repository, with `/` between its parts. A pattern is a path or a glob; it covers
what it matches and everything below, because a path may be a directory. A pattern with wild characters also covers
the path that is spelled like it, and `[id]` in it a folder of that name: to some `app/[id]/page.tsx` is a file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from holdfast import errors
from holdfast.domains.routing import glob_overlap, globs
from holdfast.kernel.names import check_name

MAX_PATTERNS: Final = 100
EVERYTHING: Final = "**"
_BELOW: Final = "/**"
_SET: Final = re.compile(r"(?<!\\)\[[^\[\]/\\]+\]")


def check_patterns(patterns: Any) -> tuple[str, ...]:
    """One pattern or several, in their normal form, each once."""
    given = (patterns,) if isinstance(patterns, str) else patterns
    if not isinstance(given, Sequence) or isinstance(given, bytes):
        raise errors.Invalid(f"patterns is a path or a list of paths, not {patterns!r}", hint='such as ["src/**"]')
    if not given:
        raise errors.Invalid("no pattern was given", hint='such as ["src/**", "docs/index.md"]')
    checked = tuple(sorted({check_pattern(pattern) for pattern in given}))
    if len(checked) > MAX_PATTERNS:
        raise errors.TooLarge(f"a lock has at most {MAX_PATTERNS} patterns", limit=MAX_PATTERNS)
    return checked


def check_pattern(pattern: Any) -> str:
    """A pattern in its normal form: without `.` and empty parts."""
    check_name(pattern, "pattern")
    if re.search(r"\\[A-Za-z0-9_.]", pattern):
        raise errors.Invalid(
            f"the pattern {pattern!r} has a backslash before an ordinary character",
            hint="separate the parts of a path by /; a backslash only takes the meaning from * ? [ ] { }",
        )
    normal = _normal(pattern, "pattern") or EVERYTHING
    problem = globs.check(normal) or globs.check(normal + _BELOW) or _strange(normal)
    if problem:
        raise errors.Invalid(f"the pattern {pattern!r} cannot be used: {problem}")
    return normal


def _strange(pattern: str) -> str | None:
    """What no path has between two slashes, spelled out by braces."""
    for plain in globs.plain_patterns(pattern):
        for segment in globs.segments(plain):
            if globs.is_text(segment) and "".join(segment) in ("", ".", ".."):
                return "its braces spell out a part that is empty, . or .."
    return None


def check_path(path: Any) -> str:
    """A path in its normal form; nothing in it is wild."""
    check_name(path, "path")
    normal = _normal(path, "path")
    if not normal:
        raise errors.Invalid(f"{path!r} is the whole repository", hint="check one path")
    return normal


def _normal(path: str, what: str) -> str:
    if path.startswith(("/", "~")) or re.match(r"[A-Za-z]:[\\/]", path):
        raise errors.Invalid(
            f"the {what} {path!r} is absolute", hint="paths are relative to the root of the repository"
        )
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise errors.Invalid(f"the {what} {path!r} leads upwards", hint="write it without ..")
    return "/".join(parts)


def covers(pattern: str, path: str) -> bool:
    """Whether a pattern covers a path, both in their normal form."""
    return globs.any_of(_globs(pattern))(path) or path == pattern or path.startswith(f"{pattern}/")


@lru_cache(maxsize=16_384)
def meet(one: str, other: str) -> bool:
    """Whether some path may be covered by both; never no if one is."""
    return glob_overlap.meet(_readings(one), _readings(other))


def _readings(pattern: str) -> list[glob_overlap.Segments]:
    """What a pattern may mean: what it matches, and the path that is spelled like it; and all below."""
    found = [each for glob in _globs(pattern) for each in glob_overlap.alternatives(glob)]
    return [*found, glob_overlap.literal(pattern, below=True)]


@lru_cache(maxsize=4096)
def _globs(pattern: str) -> tuple[str, ...]:
    """What a pattern may mean as a glob, with all below: each `[id]` in it is a set, or a name with brackets."""
    plain = pattern + _BELOW
    if not _SET.search(pattern):
        return (plain,)
    either = _SET.sub(lambda found: f"{{{found[0]},{_escaped(found[0])}}}", pattern) + _BELOW
    if globs.check(either) is None:
        return (either,)
    names = _SET.sub(lambda found: _escaped(found[0]), pattern) + _BELOW  # too many to try each by itself
    return (plain, names) if globs.check(names) is None else (plain,)


def _escaped(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", r"\\\g<0>", text)
