"""Patterns of paths: how they are checked and stored, and whether two of them can match the same path.

Guarantee: if some path matches both, the result is True. It may also be True where none does: two sets of characters
are assumed to share one, and patterns that would take too long to compare are assumed to overlap.

A path is relative to the root of the repository, with `/` between its parts. A pattern is a path or a glob; it covers
what it matches and everything below, because a path may be a directory. A pattern with wildcards also covers the path
that is spelled like it, and `[id]` in it a folder of that name: `app/[id]/page.tsx` may be a file.

What looks absolute is refused (`~/x`, `c:/x`), unless `./` before it says that it is a name in the repository.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final, TypeAlias

import msgspec

from holdfast import errors
from holdfast.domains.locks import Target
from holdfast.domains.routing import globs
from holdfast.kernel.tx import Row, Snapshot, Tx
from holdfast.kernel.validate import check_name
from holdfast.types import as_time
from holdfast.types.agents import PathLock, looks_absolute

MAX_WORK: Final = 200_000  # comparisons of single tokens for one pair of patterns

_Segment: TypeAlias = "str | globs.Plain"  # text, or tokens
_GLOBSTAR: Final = None
Segments: TypeAlias = "tuple[_Segment | None, ...]"


class _TooMuch(Exception):
    """The comparison would take too long."""


class _Work:
    """The remaining budget of one comparison."""

    def __init__(self) -> None:
        self._left = MAX_WORK

    def spend(self, steps: int) -> None:
        """Count steps. Raises _TooMuch when the budget is used up."""
        self._left -= steps
        if self._left < 0:
            raise _TooMuch


def globs_overlap(one: Iterable[Segments], other: Iterable[Segments]) -> bool:
    """Whether some text may match an alternative of each."""
    work = _Work()
    there = tuple(other)
    try:
        return any(_meet(a, b, _segments_meet, work) for a in one for b in there)
    except _TooMuch:
        return True


@lru_cache(maxsize=4096)
def alternatives(pattern: str) -> tuple[Segments, ...]:
    """The patterns without braces that a pattern stands for, as segments."""
    found = []
    for plain in globs.plain_patterns(pattern):
        segments = _collapsed(map(_segment, globs.segments(plain)))
        found.append(segments)
        if segments[-2:] == (_GLOBSTAR, ""):  # `a/**/` also matches `a`
            found.append(segments[:-1])
    return tuple(found)


def _collapsed(segments: Iterable[_Segment | None]) -> Segments:
    """Collapse several `**` in a row into one."""
    found: list[_Segment | None] = []
    for segment in segments:
        if segment is not _GLOBSTAR or not found or found[-1] is not _GLOBSTAR:
            found.append(segment)
    return tuple(found)


def _segment(tokens: globs.Plain) -> _Segment | None:
    if globs.is_globstar(tokens):
        return _GLOBSTAR
    return "".join(tokens) if globs.is_text(tokens) else tokens


_Comparison: TypeAlias = Callable[[Any, Any, _Work], bool]


def _is_run(item: _Segment | None) -> bool:
    """Whether it matches any number of items: `**` any segments, `*` any characters."""
    return item is _GLOBSTAR or isinstance(item, globs.Star)


def _meet(one: Sequence[Any], other: Sequence[Any], items_meet: _Comparison, work: _Work) -> bool:
    """Walk through both at once: `row` has the places of `other` from which the rest of `one` can match."""
    row = {0}
    for item in one:
        row = _skip_runs(row, other)
        work.spend(1 + len(row))
        if _is_run(item):
            row = set(range(min(row), len(other) + 1))
        else:
            row = {place for start in row for place in _after(item, start, other, items_meet, work)}
        if not row:
            return False
    return len(other) in _skip_runs(row, other)


def _skip_runs(row: set[int], other: Sequence[Any]) -> set[int]:
    """Let each run match nothing."""
    found = set(row)
    for place in sorted(row):
        while place < len(other) and _is_run(other[place]):
            place += 1
            found.add(place)
    return found


def _after(item: Any, start: int, other: Sequence[Any], items_meet: _Comparison, work: _Work) -> set[int]:
    """The places of `other` after matching an item of `one` from `start`."""
    if start == len(other):
        return set()
    there = other[start]
    if _is_run(there):
        return {start}  # it takes one more item
    return {start + 1} if items_meet(item, there, work) else set()


def _segments_meet(one: _Segment, other: _Segment, work: _Work) -> bool:
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    return _meet(one, other, _characters_meet, work)


def _characters_meet(one: str, other: str, _: _Work) -> bool:
    if isinstance(one, globs.Wild):
        return isinstance(other, globs.Wild) or re.fullmatch(one, other, re.DOTALL) is not None
    return re.fullmatch(other, one, re.DOTALL) is not None if isinstance(other, globs.Wild) else one == other


MAX_PATTERNS: Final = 100
EVERYTHING: Final = "**"
_BELOW: Final = "/**"
_SET: Final = r"(?<!\\)\[[^\[\]/\\]+\]"


def check_patterns(patterns: Any) -> tuple[str, ...]:
    """Return one or more patterns in normal form, each once. Raises Invalid or TooLarge."""
    given = (patterns,) if isinstance(patterns, str) else patterns
    if not isinstance(given, Sequence) or isinstance(given, bytes):
        raise errors.Invalid(f"patterns must be a path or a list of paths, not {patterns!r}", hint='such as ["src/**"]')
    if not given:
        raise errors.Invalid("no pattern was given", hint='such as ["src/**", "docs/index.md"]')
    checked = tuple(sorted({check_pattern(pattern) for pattern in given}))
    if len(checked) > MAX_PATTERNS:
        raise errors.TooLarge(f"a lock has at most {MAX_PATTERNS} patterns", limit=MAX_PATTERNS)
    return checked


def check_pattern(pattern: Any, *, stored: bool = False) -> str:
    """Return a pattern in normal form: without `.` and empty parts. Raises Invalid.

    `stored`: it is a lock's pattern in normal form already, which may look absolute.
    """
    check_name(pattern, "pattern")
    if re.search(r"(?<!\\)(?:\\\\)*\\[A-Za-z0-9_.]", pattern):
        hint = "separate the parts of a path by /; a backslash only escapes * ? [ ] { }"
        raise errors.Invalid(f"the pattern {pattern!r} has a backslash before an ordinary character", hint=hint)
    normal = _normal(pattern, "pattern", stored) or EVERYTHING
    problem = globs.check(normal) or globs.check(normal + _BELOW) or _strange(normal)
    if problem:
        raise errors.Invalid(f"the pattern {pattern!r} cannot be used: {problem}")
    return normal


def _strange(pattern: str) -> str | None:
    """Find a part that no path has, spelled out by braces."""
    for plain in globs.plain_patterns(pattern):
        for segment in globs.segments(plain):
            if globs.is_text(segment) and "".join(segment) in ("", ".", ".."):
                return "its braces expand to a part that is empty, . or .."
    return None


def check_path(path: Any) -> str:
    """Return a path in normal form, without wildcards. Raises Invalid."""
    check_name(path, "path")
    normal = _normal(path, "path")
    if not normal:
        raise errors.Invalid(f"{path!r} is the whole repository", hint="give one path")
    return normal


def _normal(path: str, what: str, stored: bool = False) -> str:
    if path.startswith("/") or (looks_absolute(path) and not stored):
        hint = "paths are relative to the root of the repository"
        if not path.startswith("/"):
            hint += f"; a name there that begins so is ./{path}"
        raise errors.Invalid(f"the {what} {path!r} is absolute", hint=hint)
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise errors.Invalid(f"the {what} {path!r} contains ..", hint="write it without ..")
    return "/".join(parts)


def covers(pattern: str, path: str) -> bool:
    """Whether a pattern covers a path, both in normal form."""
    return globs.any_of(_globs(pattern))(path) or path == pattern or path.startswith(f"{pattern}/")


@lru_cache(maxsize=16_384)
def overlap(one: str, other: str) -> bool:
    """Whether some path may be covered by both; never False if one is."""
    here, there = prefix_of(one), prefix_of(other)
    if not (here.startswith(there) or there.startswith(here)):
        return False
    return globs_overlap(_readings(one), _readings(other))


@lru_cache(maxsize=4096)
def prefix_of(pattern: str) -> str:
    """The segments that begin every path a pattern covers, each with its slash: "src/app/" for `src/app/*.py`."""
    shared = []
    for first, *others in zip(*_readings(pattern), strict=False):
        if not isinstance(first, str) or any(other != first for other in others):
            break
        shared.append(f"{first}/")
    return "".join(shared)


def _readings(pattern: str) -> list[Segments]:
    """All readings of a pattern: as a glob and as a literal path, each with everything below."""
    found = [each for glob in _globs(pattern) for each in alternatives(glob)]
    return [*found, (*pattern.split("/"), _GLOBSTAR)]


@lru_cache(maxsize=4096)
def _globs(pattern: str) -> tuple[str, ...]:
    """The readings of a pattern as globs, with everything below: each `[id]` is a set, or a name with brackets."""
    plain = pattern + _BELOW
    if "[" not in pattern or not re.search(_SET, pattern):
        return (plain,)
    either = re.sub(_SET, lambda found: f"{{{found[0]},{_escaped(found[0])}}}", pattern) + _BELOW
    if globs.check(either) is None:
        return (either,)
    names = re.sub(_SET, lambda found: _escaped(found[0]), pattern) + _BELOW  # too many to combine them all
    return (plain, names) if globs.check(names) is None else (plain,)


def _escaped(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", r"\\\g<0>", text)


PATH: Final = "path"
# It ends with its own lease or with the claim on its task, whichever comes first.
_COLUMNS = (
    "k.name, k.holder, k.token, k.acquired, k.task, k.detail,"
    " coalesce(min(l.deadline, c.deadline), l.deadline, c.deadline), (SELECT stamp FROM meta)"
)
_SOURCE = (
    "locks k LEFT JOIN leases l ON l.id = k.lease LEFT JOIN tasks t ON t.id = k.task"
    " LEFT JOIN leases c ON c.id = t.record"
    f" WHERE k.kind = '{PATH}' AND k.scope = ''"
)


class Detail(msgspec.Struct, frozen=True, array_like=True):
    """The columns that only path locks have; also of a lock that is waited for."""

    patterns: tuple[str, ...]
    shared: bool = False
    task: str | None = None
    reason: str | None = None


encode_detail = msgspec.msgpack.Encoder().encode


@lru_cache(maxsize=8192)
def decode_detail(stored: bytes) -> Detail:
    """The inverse. A decoder made here would resolve the annotations of each process that loads this module."""
    return msgspec.msgpack.decode(stored, type=Detail)


def target_of(id: str) -> Target:
    """Return the lock target of an id."""
    return Target(PATH, "", id)


def select(snapshot: Snapshot, where: str = "", params: Sequence[object] = (), tail: str = "") -> list[PathLock]:
    """Return the path locks that have not expired."""
    return [to_lock(row) for row in _live(snapshot, where, params, tail)]


def _live(snapshot: Snapshot, where: str, params: Sequence[object], tail: str) -> list[Row]:
    rows = snapshot.all(f"SELECT {_COLUMNS} FROM {_SOURCE}{where}{tail}", params)
    return [row for row in rows if row[6] is None or not snapshot.is_past(row[6], row[7])]


# --- the index of locks by the prefixes of their patterns ------------------------------------------------------------

_Condition: TypeAlias = "tuple[str, list[str]]"  # on the rows of `select`, with its parameters
_AT: Final = "SELECT lock FROM path_prefixes WHERE prefix IN (SELECT value FROM json_each(?))"
# `0` is the character after `/`: what begins with `src/` is less than `src0`.
_UNDER: Final = (
    "SELECT p.lock FROM json_each(?) w CROSS JOIN path_prefixes p"
    " WHERE p.prefix >= w.value AND p.prefix < substr(w.value, 1, length(w.value) - 1) || '0'"
)


def index(tx: Tx, id: str, patterns: Iterable[str]) -> None:
    """Make a new lock known by the prefixes of its patterns."""
    for prefix in sorted(set(map(prefix_of, patterns))):
        tx.run("INSERT INTO path_prefixes (prefix, lock) VALUES (?, ?)", (prefix, id))


def unindex(tx: Tx, id: str) -> None:
    """Forget the prefixes of a lock that has ended."""
    tx.run("DELETE FROM path_prefixes WHERE lock = ?", (id,))


def may_cover(path: str) -> _Condition:
    """The condition on locks that every lock which covers a path meets, and few others."""
    return f" AND k.name IN ({_AT})", [_json(_lineage(f"{path}/"))]


def may_overlap(wanted: Iterable[str]) -> _Condition:
    """The condition on locks that every lock which overlaps a pattern meets: its prefix is above, equal or below."""
    prefixes = set(map(prefix_of, wanted))
    if "" in prefixes:
        return "", []
    above = {each for prefix in prefixes for each in _lineage(prefix)}
    return f" AND k.name IN ({_AT} UNION ALL {_UNDER})", [_json(sorted(above)), _json(sorted(prefixes))]


def _lineage(prefix: str) -> list[str]:
    """A prefix and those above it, the empty one first."""
    return list(accumulate((f"{part}/" for part in prefix.split("/")[:-1]), initial=""))


def _json(texts: list[str]) -> str:
    return msgspec.json.encode(texts).decode()


def check_index(snapshot: Snapshot) -> Iterator[str]:
    """Report locks that a search would miss, and prefixes of locks that do not exist."""
    rows = snapshot.all("SELECT name, detail FROM locks WHERE kind = ? AND scope = ''", (PATH,))
    expected = {(prefix_of(each), id) for id, detail in rows for each in decode_detail(detail).patterns}
    stored = set(snapshot.all("SELECT prefix, lock FROM path_prefixes"))
    for prefix, id in sorted(expected - stored):
        yield f"path lock {id} is not indexed under {prefix!r}"
    for prefix, id in sorted(stored - expected):
        yield f"path lock {id} is indexed under {prefix!r}, where it has no pattern"


def covering(snapshot: Snapshot, path: str) -> Iterator[tuple[PathLock, str]]:
    """Yield the path locks that cover a path, oldest first, with the covering pattern."""
    for row in _live(snapshot, *may_cover(path), " ORDER BY k.token"):
        for pattern in decode_detail(row[5]).patterns:
            if covers(pattern, path):
                yield to_lock(row), pattern
                break


def to_lock(row: Row) -> PathLock:
    """Return the public form."""
    id, holder, token, acquired, task, detail, deadline, _ = row
    what = decode_detail(detail)
    until = None if deadline is None else as_time(deadline)
    return PathLock(id, what.patterns, holder, token, what.shared, task, what.reason, as_time(acquired), until)


def find(snapshot: Snapshot, id: str) -> PathLock | None:
    """Return a lock by its id, or None."""
    found = select(snapshot, " AND k.name = ?", (id,))
    return found[0] if found else None


def clash(lock: PathLock, wanted: Detail, holder: str) -> tuple[str, str] | None:
    """Return the patterns by which a held lock conflicts with a wanted one, or None."""
    if lock.holder == holder or (lock.shared and wanted.shared):
        return None
    return meeting(lock.patterns, wanted.patterns)


def meeting(there: Iterable[str], wanted: Iterable[str]) -> tuple[str, str] | None:
    """Return the first two patterns that overlap."""
    return next(((mine, theirs) for mine in wanted for theirs in there if overlap(mine, theirs)), None)


def held(lock: PathLock, mine: str, theirs: str, waits: bool = False) -> errors.Held:
    """The error: which patterns overlap, and who holds or waits for the lock, until when."""
    when = "until it is released" if lock.expires_at is None else f"until {lock.expires_at.isoformat()}"
    how = "already waited for by" if waits else "shared by" if lock.shared else "locked by"
    why = f" for {lock.reason}" if lock.reason else ""
    relation = "is covered by" if covers(theirs, mine) else "overlaps"
    what = f"{mine} is" if mine == theirs else f"{mine} {relation} {theirs},"
    message = f"{what} {how} {lock.holder} {when}{why}"
    from holdfast.hints import waiting  # most paths are free

    hint = f"work on something else, ask the holder by mail, or wait: {waiting(mine)}"
    about = {"lock": lock.id, "pattern": mine, "shared": lock.shared, "task": lock.task}
    return errors.Held(message, hint=hint, name=theirs, holder=lock.holder, until=lock.expires_at, **about)
