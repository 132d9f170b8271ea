"""Bugs in path locks: files that two edit, waiters that are passed by, claims that leave their locks behind."""

from __future__ import annotations

from tests.teeth.bug import Bug

PATHS = ("tests/conformance/test_paths.py", "tests/conformance/test_path_lines.py", "--kinds", "memory")
CLAIMED = ("tests/conformance/test_one_commit.py", *PATHS)
PATTERNS = ("tests/unit/routing/test_glob_overlap.py", "tests/unit/test_path_patterns.py")

BUGS = [
    Bug(
        "shared locks exclude each other",
        "domains/paths/patterns.py",
        """    if lock.holder == holder or (lock.shared and wanted.shared):
""",
        """    if lock.holder == holder:
""",
        PATHS,
    ),
    Bug(
        "an exclusive lock does not exclude shared ones",
        "domains/paths/patterns.py",
        """    if lock.holder == holder or (lock.shared and wanted.shared):
""",
        """    if lock.holder == holder or lock.shared or wanted.shared:
""",
        PATHS,
    ),
    Bug(
        "patterns meet only if they are the same",
        "domains/paths/patterns.py",
        """    return globs_overlap(_readings(one), _readings(other))
""",
        """    return one == other
""",
        PATTERNS,
    ),
    Bug(
        "overlap looks at literal prefixes only",
        "domains/paths/patterns.py",
        """        return any(_meet(a, b, _segments_meet, work) for a in one for b in there)
""",
        """        return any(a[:1] == b[:1] for a in one for b in there)
""",
        PATTERNS,
    ),
    Bug(
        "two stars are one segment",
        "domains/paths/patterns.py",
        """        if _is_run(item):
            row = set(range(min(row), len(other) + 1))
""",
        """        if item is _GLOBSTAR:
            row = {place + 1 for place in row if place < len(other)}
        elif isinstance(item, globs.Star):
            row = set(range(min(row), len(other) + 1))
""",
        PATTERNS,
    ),
    Bug(
        "a star in a segment is one character",
        "domains/paths/patterns.py",
        """        if _is_run(item):
            row = set(range(min(row), len(other) + 1))
""",
        """        if isinstance(item, globs.Star):
            row = {place + 1 for place in row if place < len(other)}
        elif item is _GLOBSTAR:
            row = set(range(min(row), len(other) + 1))
""",
        PATTERNS,
    ),
    Bug(
        "what takes too long to compare does not overlap",
        "domains/paths/patterns.py",
        """    except _TooMuch:
        return True
""",
        """    except _TooMuch:
        return False
""",
        PATTERNS,
    ),
    Bug(
        "a directory does not cover what is below",
        "domains/paths/patterns.py",
        """    return globs.any_of(_globs(pattern))(path) or path == pattern or path.startswith(f"{pattern}/")
""",
        """    return globs.compile(pattern)(path) or path == pattern
""",
        PATTERNS,
    ),
    Bug(
        "a pattern is never a path that is spelled like it",
        "domains/paths/patterns.py",
        """    return [*found, (*pattern.split("/"), _GLOBSTAR)]
""",
        """    return found
""",
        PATTERNS,
    ),
    Bug(
        "a claim's end does not free its path locks",
        "domains/tasks/rows.py",
        """        locks.end_claim(tx, task.id, "expire" if op == "expire" else "release")
""",
        """        assert locks
""",
        CLAIMED,
    ),
    Bug(
        "a claim's end frees only locks without an end of their own",
        "domains/tasks/rows.py",
        """    if task.holder is not None and new.holder != task.holder:
        with LOADING:""",
        """    if task.holder is not None and new.holder != task.holder and op != "expire":
        with LOADING:""",
        CLAIMED,
    ),
    Bug(
        "paths are locked for a task without a claim",
        "domains/paths/grants.py",
        """    authorise(tx, task, holder, None, "lock paths for it")
    return task
""",
        """    return task
""",
        PATHS,
    ),
    Bug(
        "who waits for a directory is overtaken",
        "domains/paths/grants.py",
        """        if met is not None and not _waits_for(tx, holder, name, first):
""",
        """        if first.patterns == wanted.patterns and met is not None and not _waits_for(tx, holder, name, first):
""",
        PATHS,
    ),
    Bug(
        "a lock is indexed by the text before the first wildcard of its spelling",
        "domains/paths/patterns.py",
        """        if not isinstance(first, str) or any(other != first for other in others):
""",
        """        if not isinstance(first, str):
""",
        PATTERNS,
    ),
    Bug(
        "locks below a wanted directory are not looked at",
        "domains/paths/patterns.py",
        """    return f" AND k.name IN ({_AT} UNION ALL {_UNDER})", [_json(sorted(above)), _json(sorted(prefixes))]
""",
        """    return f" AND k.name IN ({_AT})", [_json(sorted(above))]
""",
        PATTERNS,
    ),
    Bug(
        "the index of path locks keeps those that have ended",
        "workspace/registry.py",
        """    patterns.unindex(tx, name)
""",
        """    assert patterns
""",
        PATHS,
    ),
    Bug(
        "readers wait behind readers in line",
        "domains/paths/grants.py",
        """        met = clash(expected, wanted, holder)
""",
        """        met = None if name == holder else patterns.meeting(first.patterns, wanted.patterns)
""",
        PATHS,
    ),
    Bug(
        "locking again shortens a lock",
        "domains/paths/grants.py",
        """            leases.renew(tx, bound, micros, shorten=False)
""",
        """            leases.renew(tx, bound, micros)
""",
        PATHS,
    ),
    Bug(
        "locking again is another lock",
        "domains/paths/grants.py",
        """        if again is not None:
""",
        """        if again is not None and self._ticket is not None:
""",
        PATHS,
    ),
    Bug(
        "a check passes where another shares",
        "domains/paths/__init__.py",
        """            theirs = theirs or held(found, wanted, pattern)
""",
        """            theirs = theirs or (None if found.shared else held(found, wanted, pattern))
""",
        PATHS,
    ),
    Bug(
        "a check refuses the holder where another shares",
        "domains/paths/__init__.py",
        """    if mine is None and theirs is not None:
""",
        """    if theirs is not None:
""",
        PATHS,
    ),
    Bug(
        "a check sees locks that have ended",
        "domains/paths/patterns.py",
        """    return [row for row in rows if row[6] is None or not snapshot.is_past(row[6], row[7])]
""",
        """    return rows
""",
        PATHS,
    ),
    Bug(
        "a release by task takes others' locks",
        "domains/paths/grants.py",
        """    if not force or holder is not None or task is None:
""",
        """    if task is None:
""",
        PATHS,
    ),
    Bug(
        "a release by force is not told",
        "domains/paths/grants.py",
        """    locks.free(tx, target, locks.require(tx, target), "release", forced=forced, reason=reason)
""",
        """    locks.free(tx, target, locks.require(tx, target), "release")
""",
        PATHS,
    ),
    Bug(
        "a lock of a claim is refreshed by itself",
        "domains/paths/grants.py",
        " and row[4] == _claim_lease(tx, found.task):\n",
        " and False:\n",
        PATHS,
    ),
]
