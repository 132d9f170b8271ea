"""`ws.paths`: locks on paths and globs, exclusive or shared, by which agents divide the files they edit.

They are locks like the others: token, lease, events, expiry. This module reads them and is the table; `taking` takes
and releases them, `patterns` says what a pattern covers, and how locks are stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast import errors
from holdfast.arguments import Meaning
from holdfast.domains import locks
from holdfast.domains.paths import patterns
from holdfast.domains.paths.patterns import PATH, Detail, clash, find, held, select, target_of
from holdfast.ids import is_uuid7
from holdfast.kernel.tx import Snapshot, Tx, fill
from holdfast.kernel.validate import check_limit, check_name
from holdfast.operation import Domain, Found, M, procedure, read, read_as, write
from holdfast.route import Held, Late, example
from holdfast.types import DerivedActor, Page
from holdfast.types.agents import PathLock

if TYPE_CHECKING:
    from holdfast.domains.paths import grants as _grants
else:  # whoever asks before an edit needs neither it nor the tasks that it asks
    _grants = Late("holdfast.domains.paths.grants")

LISTED: Final = "paths.list() lists the locks that are held"


def named(snapshot: Snapshot, name: str) -> list[PathLock]:
    """Return the lock of an id, or those with a pattern, oldest first."""
    check_name(name, "id")
    if is_uuid7(name):
        found = find(snapshot, name)
        return [] if found is None else [found]
    try:
        pattern = patterns.check_pattern(name, stored=True)
    except errors.Invalid:
        return []
    near = select(snapshot, *patterns.may_overlap((pattern,)), " ORDER BY k.token")
    return [lock for lock in near if pattern in lock.patterns]


def pick(found: list[PathLock], holder: str | None, name: str, entire: bool = False) -> PathLock | None:
    """Return the lock that an id or pattern means, of the holder unless None. Raises NotHolder, or Invalid for several.

    A lock with nothing but the pattern precedes others; with `entire` no other is meant.
    """
    if is_uuid7(name) or not found:
        return found[0] if found else None
    mine = [lock for lock in found if holder in (None, lock.holder)]
    if not mine:
        theirs, hint = found[0].holder, f"ask {found[0].holder} by mail, or wait until it is released or expires"
        raise errors.NotHolder(f"{name} is locked by {theirs}, not by {holder}", hint=hint, holder=theirs)
    alone = [lock for lock in mine if len(lock.patterns) == 1]
    if len(alone) == 1 or (len(mine) == 1 and not entire):
        return (alone or mine)[0]
    ids = [lock.id for lock in mine]
    if len(mine) == 1:
        message = f"the path lock on {name!r} has other patterns too: {', '.join(mine[0].patterns)}"
        raise errors.Invalid(message, hint=f"to release all of them, give its id: {ids[0]}", ids=ids)
    whose = ", ".join(f"{lock.id} of {lock.holder}" for lock in mine)
    raise errors.Invalid(f"{len(ids)} path locks have the pattern {name!r}", hint=f"give one id: {whose}", ids=ids)


def get(snapshot: Snapshot, id: str) -> PathLock:
    """Return a lock by its id or pattern. Raises NotFound if there is none, or it is no longer held."""
    found = pick(named(snapshot, id), None, id)
    if found is None:
        what, ended = (repr(id), "it expired or was released; ") if is_uuid7(id) else (f"with the pattern {id!r}", "")
        raise errors.NotFound(f"there is no path lock {what}", hint=f"{ended}{LISTED}", id=id)
    return found


def list_paths(
    snapshot: Snapshot,
    path: str | None = None,
    holder: str | None = None,
    task: str | None = None,
    limit: int = 1000,
    after: str = "",
) -> Page[PathLock]:
    """List the held locks by id, which is by age; only those that cover a path, of a holder, for a task."""
    check_limit(limit, 1000, "after")
    where, params = " AND k.name > ?", [after]
    if after != "":
        check_name(after, "after")
    for column, value in (("holder", holder), ("task", task)):
        if value is not None:
            check_name(value, column)
            where += f" AND k.{column} = ?"
            params.append(value)
    page: Page[PathLock] = Page()
    if path is None:
        more = fill(page, select(snapshot, where, [*params, limit + 1], " ORDER BY k.name LIMIT ?"), limit)
    else:
        wanted = patterns.check_path(path)
        near, prefixes = patterns.may_cover(wanted)
        found = select(snapshot, where + near, [*params, *prefixes], " ORDER BY k.name")
        covering = (lock for lock in found if any(patterns.covers(pattern, wanted) for pattern in lock.patterns))
        more = fill(page, covering, limit)
    page.cursor = page[-1].id if more else None
    return page


def check_path_for(snapshot: Snapshot, me: str, path: str, actor: str | None = None) -> PathLock | None:
    """Return the actor's lock on a path, None if nobody locks it. Raises Held if another agent does."""
    if actor is not None:
        check_name(actor, "actor")
    who = me if actor is None else actor
    wanted = patterns.check_path(path)
    mine: PathLock | None = None
    theirs: errors.Held | None = None
    for found, pattern in patterns.covering(snapshot, wanted):
        if found.holder == who and not (actor is None and isinstance(me, DerivedActor)):
            mine = mine or found
        else:
            theirs = theirs or held(found, wanted, pattern)
    if mine is None and theirs is not None:
        raise theirs
    return mine


def check_token(snapshot: Snapshot, id: str, token: int) -> None:
    """Raise Fenced unless the lock, by its id or pattern, is held with exactly this token."""
    tokens = [found.token for found in named(snapshot, id)]
    locks.refuse_other(f"the path lock {id}", token if token in tokens else next(iter(tokens), None), token)


# --- for other domains, and the whole workspace ----------------------------------------------------------------------


def of_task(snapshot: Snapshot, task: str) -> list[PathLock]:
    """Return the locks held for a task."""
    return select(snapshot, " AND k.task = ?", (task,), " ORDER BY k.name")


def freed(snapshot: Snapshot, task: str, revision: int) -> list[str]:
    """Return the patterns of a task's locks that ended at a revision."""
    rows = snapshot.all(
        "SELECT a.data FROM log e JOIN records r ON r.key = e.record JOIN log a ON a.record = e.record"
        " AND a.op = 'acquire' WHERE e.revision = ? AND r.kind = ? AND e.op IN ('expire', 'release')",
        (revision, PATH),
    )
    said = [msgspec.msgpack.decode(data) for (data,) in rows]
    return sorted({pattern for each in said if each["task"][1] == task for pattern in each["patterns"][1]})


def probe(tx: Tx, id: str) -> Found | None:
    """What a condition of `txn` sees of a path lock: its token as version, its holder as value."""
    check_name(id, "id")
    return locks.probe_target(tx, target_of(id))


def check(snapshot: Snapshot) -> Iterator[str]:
    """Report locks that overlap, outlive the claim they were taken for, or are not indexed by their prefixes."""
    taken = select(snapshot, tail=" ORDER BY k.token")
    for number, one in enumerate(taken):
        for other in taken[number + 1 :]:
            met = clash(one, Detail(other.patterns, other.shared), other.holder)
            if met is not None:
                yield f"path locks {one.id} of {one.holder} and {other.id} of {other.holder} overlap"
    for (id,) in snapshot.all(
        "SELECT name FROM locks k WHERE kind = ? AND task IS NOT NULL AND NOT EXISTS"
        " (SELECT 1 FROM tasks t WHERE t.id = k.task AND t.holder = k.holder)",
        (PATH,),
    ):
        yield f"path lock {id} was taken for a claim that has ended"
    yield from patterns.check_index(snapshot)


# What examples need.
_CLAIM: Final = "holdfast claim hf-7k2q"
_PATH: Final = "holdfast path lock 'src/parser/**' --ttl 1h"
_THEIRS: Final = f"{_PATH} --actor agent-2"
_EITHER: Final = {"id": Meaning("its id, or its pattern from the current folder", "lock")}


class Paths(Domain[M]):
    """`ws.paths`."""

    prefix = "paths"
    held = Held("path", ("id",), ("id",))
    lock = procedure(
        _grants.lock,
        http="POST /api/paths/lock",
        cli="path lock PATTERNS...",
        help="Lock paths and all below them; exit code 12 if somebody has one.",
        examples=(
            _PATH,
            example("holdfast path lock src/lexer.py docs --task hf-7k2q --reason 'new tokens'", _CLAIM),
            example("holdfast path lock src/parser/rules.py  # exit code 12: agent-2 has it", _THEIRS),
        ),
        grants=True,
        mcp="paths action=lock",
    )
    release = write(
        _grants.release,
        http="POST /api/paths/release",
        cli="path release [ID]",
        done=("released {result:path locks}",),
        help="Free a path lock, or all of yours, or those taken for a task.",
        examples=(
            example("holdfast path release 'src/parser/**'", _PATH),
            example("holdfast path release  # all of mine", _PATH),
            example("holdfast path release --task hf-7k2q", _CLAIM, "holdfast path lock docs --task hf-7k2q"),
        ),
        frees=True,
        nothing=(
            "there is no path lock with the id or pattern {id}, so nothing was released",
            "{holder} holds no path locks for {task}, so nothing was released",
            "{holder} holds no path locks, so nothing was released",
        ),
        arguments=_EITHER,
        mcp="paths action=release",
    )
    refresh = write(
        _grants.refresh,
        http="POST /api/paths/{id}/refresh",
        cli="path refresh",
        help="Renew a path lock; exit code 15 if it was lost meanwhile.",
        examples=(example("holdfast path refresh 'src/parser/**'", _PATH),),
        grants=True,
        arguments=_EITHER,
    )
    check = read_as(
        check_path_for,
        http="GET /api/paths/check",
        cli="path check",
        help="Pass if you may edit a path; exit code 12 if somebody has locked it.",
        examples=(example("holdfast path check src/parser/rules.py", _PATH),),
        mcp="paths action=check",
    )
    check_token = read(
        check_token,
        http="GET /api/paths/{id}/check",
        plain=True,
        cli="path check-token",
        done=("{id} is held with the token {token}",),
        help="Pass if a path lock is held with this token; exit code 15 if not.",
        examples=(example("holdfast path check-token 'src/parser/**' 1  # exit code 15: it has another", _PATH),),
        arguments={**_EITHER, "token": "the fencing token"},
    )
    get = read(
        get,
        http="GET /api/paths/{id}",
        plain=True,
        cli="path get",
        help="Show a path lock.",
        examples=(example("holdfast path get 'src/parser/**'", _PATH),),
        arguments=_EITHER,
    )
    list = read(
        list_paths,
        http="GET /api/paths",
        listing=True,
        cli="path list [PATH]",
        help="List path locks, oldest first.",
        examples=("holdfast path list", example("holdfast path list src/parser/rules.py", _PATH)),
        arguments={"holder": "held by this one alone"},
        mcp="paths",
    )
