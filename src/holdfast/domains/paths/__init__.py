"""`ws.paths`: locks on paths and globs, exclusive or shared, by which agents divide the files they edit.

A lock is refused while it overlaps another holder's lock, or paths that an earlier waiter waits for: a waiter for a
directory is not overtaken by later waiters for files inside it. They are locks like the others: token, lease, events,
expiry; one taken for a task ends with the claim on it. `patterns` says what a pattern covers, and how locks are stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from holdfast import errors
from holdfast.arguments import Meaning
from holdfast.domains import locks
from holdfast.domains.named_locks import check_force
from holdfast.domains.paths import patterns
from holdfast.domains.paths.patterns import PATH, Detail, check_patterns, clash, find, held, select, target_of
from holdfast.domains.routing.config import settings_of
from holdfast.domains.tasks.claims import authorise
from holdfast.domains.tasks.creation import check_line
from holdfast.domains.tasks.rows import Stored
from holdfast.domains.tasks.rows import require as require_task
from holdfast.ids import is_uuid7
from holdfast.kernel import leases
from holdfast.kernel.events import Filter
from holdfast.kernel.leases import holder_of
from holdfast.kernel.tx import Snapshot, Tx, fill
from holdfast.kernel.validate import check_flag, check_limit, check_name, check_ttl
from holdfast.operation import Domain, Found, M, Steps, procedure, read, read_as, write
from holdfast.route import Held, example
from holdfast.types import DerivedActor, Page, as_time
from holdfast.types.agents import PathLock

MAX_REASON = 500
_LIST: Final = "paths.list() lists the locks that are held"


def lock(
    patterns: str | Sequence[str],
    holder: str | None = None,
    ttl: float | None = None,
    shared: bool = False,
    task: str | None = None,
    reason: str | None = None,
    wait: float | None = None,
) -> Steps[PathLock]:
    """Lock paths and globs, and everything below them, waiting for up to `wait` seconds. Raises Held.

    `shared` locks may overlap each other. For a `task` that the holder has claimed, the lock ends with the claim at the
    latest; otherwise after `ttl` seconds, by default `path_lock_timeout` of the settings (1 h), or when it is released.
    """
    check_flag(shared=shared)
    why = None if reason is None else check_line(reason, "reason", MAX_REASON)
    wanted = Detail(check_patterns(patterns), shared, task, why)
    return locks.acquire_by(_PathAttempt(wanted, holder, ttl), wait, Filter((PATH,), ""))


class _PathAttempt:
    """The attempt to lock paths."""

    def __init__(self, wanted: Detail, holder: str | None, ttl: float | None) -> None:
        self._wanted = wanted
        self._holder = holder
        self._ttl = ttl
        self._id: str | None = None  # of the lock that it waits for
        self._ticket: str | None = None
        self._fresh: PathLock | None = None

    def __call__(self, tx: Tx) -> PathLock:
        holder = holder_of(tx, self._holder)
        micros = None if self._ttl is None else check_ttl(self._ttl)
        task = None if self._wanted.task is None else _claimed(tx, self._wanted.task, holder)
        if micros is None and task is None:
            micros = settings_of(tx).config.path_lock_timeout
        again = self._again(tx, holder, task)
        if again is not None:
            locks.forget_ticket(tx, self._ticket)
            return _run_on(tx, again, micros)
        _check_free(tx, self._wanted, holder, self._ticket)
        locks.forget_ticket(tx, self._ticket)
        self._fresh = _take(tx, self._wanted, holder, micros, task, self._id)
        return self._fresh

    def _again(self, tx: Tx, holder: str, task: Stored | None) -> PathLock | None:
        """The same lock, if the holder has it already."""
        wanted = (self._wanted.patterns, self._wanted.shared, None if task is None else task.id)
        where, params = patterns.may_overlap(self._wanted.patterns)
        mine = select(tx, f"{where} AND k.holder = ?", [*params, holder])
        return next((lock for lock in mine if (lock.patterns, lock.shared, lock.task) == wanted), None)

    def stay_in_queue(self, tx: Tx) -> None:
        if self._ticket is None or not leases.renew(tx, self._ticket):
            self._id = self._id or tx.new_id()
            self._ticket = locks.enqueue(tx, target_of(self._id), self._holder, patterns.encode_detail(self._wanted))

    def failed(self) -> None:
        self._fresh = None

    def withdraw(self, tx: Tx) -> None:
        if self._fresh is not None and find(tx, self._fresh.id) == self._fresh:
            _free(tx, self._fresh)
        if self._ticket is not None and self._id is not None:
            locks.leave_queue(tx, target_of(self._id), self._ticket)


def _claimed(tx: Tx, id: str, holder: str) -> Stored:
    """The task. Raises NotClaimOwner unless the holder has claimed it."""
    task = require_task(tx, id)
    authorise(tx, task, holder, None, "lock paths for it")
    return task


def _run_on(tx: Tx, lock: PathLock, micros: int | None) -> PathLock:
    """Locking again keeps the token; the later end wins, and without a ttl that of the claim it is taken for."""
    bound = locks.require(tx, target_of(lock.id))[4]
    claim = _claim_lease(tx, lock.task)
    if bound is not None and bound != claim:
        if micros is not None:
            leases.renew(tx, bound, micros, shorten=False)
        else:
            leases.drop(tx, bound, PATH)
            locks.bind(tx, target_of(lock.id), claim)
    return get(tx, lock.id)


def _claim_lease(tx: Tx, task: str | None) -> int | None:
    return None if task is None else require_task(tx, task).record


def _check_free(tx: Tx, wanted: Detail, holder: str, ticket: str | None) -> None:
    """Raise Held if a lock overlaps, or an earlier waiter waits for one that would."""
    for lock in select(tx, *patterns.may_overlap(wanted.patterns), " ORDER BY k.token"):
        met = clash(lock, wanted, holder)
        if met is not None:
            raise held(lock, *met)
    for other, name, place, detail, deadline in tx.all(
        "SELECT w.ticket, w.holder, w.place, w.detail, l.deadline FROM waiters w JOIN leases l ON l.id = w.ticket"
        " WHERE w.kind = ? AND w.scope = '' ORDER BY w.place",
        (PATH,),
    ):
        if other == ticket:
            return
        first = patterns.decode_detail(detail)
        expected = _expected(name, place, first, deadline)
        met = clash(expected, wanted, holder)
        # A waiter for the caller's own lock must not block the caller.
        if met is not None and not _waits_for(tx, holder, name, first):
            raise held(expected, *met, waits=True)


def _waits_for(tx: Tx, holder: str, waiter: str, wanted: Detail) -> bool:
    """Whether a lock of the holder is in the way of a waiter."""
    where, params = patterns.may_overlap(wanted.patterns)
    mine = select(tx, f"{where} AND k.holder = ?", [*params, holder])
    return any(clash(lock, wanted, waiter) for lock in mine)


def _expected(holder: str, place: int, wanted: Detail, deadline: int) -> PathLock:
    """The lock that a waiter waits for, as if held until its place in the queue expires."""
    until = as_time(deadline)
    return PathLock("", wanted.patterns, holder, place, wanted.shared, wanted.task, wanted.reason, until, until)


def _take(tx: Tx, wanted: Detail, holder: str, micros: int | None, task: Stored | None, id: str | None) -> PathLock:
    id = id or tx.new_id()
    name = None if task is None else task.id
    claim = None if task is None else task.record
    lease = claim if micros is None else leases.start(tx, PATH, holder, micros)
    token = tx.new_token()
    detail = Detail(wanted.patterns, wanted.shared, name, wanted.reason)
    tx.run(
        "INSERT INTO locks (kind, scope, name, holder, token, acquired, lease, task, detail)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*target_of(id).key, holder, token, tx.now, lease, name, patterns.encode_detail(detail)),
    )
    patterns.index(tx, id, wanted.patterns)
    given = {"holder": holder, "token": token, **msgspec.structs.asdict(detail)}
    locks.emit_lock(tx, target_of(id), "acquire", **{field: [None, value] for field, value in given.items()})
    return get(tx, id)


def release(
    tx: Tx,
    id: str | None = None,
    task: str | None = None,
    holder: str | None = None,
    token: int | None = None,
    force: bool = False,
    reason: str | None = None,
) -> int:
    """Release one lock by its id or pattern, or all of the holder's, or those taken for a task; returns how many.

    A lock with several patterns is released by its id. Raises NotHolder for another's lock, unless `force`, which is
    logged with the `reason`, and Fenced for a wrong or lost token.
    """
    check_force(force, reason)
    if id is None:
        if force and task is None and holder is None:
            raise errors.Invalid("force needs an id, a task or a holder", hint="say which locks to release")
        return _release_all(tx, task, holder, token, force, reason)
    if task is not None:
        raise errors.Invalid("give id or task, not both")
    if force and token is None:
        named = [lock for lock in _named(tx, id) if is_uuid7(id) or holder in (None, lock.holder)]
        found = _pick(named, None, id, entire=True)
        if found is not None:
            _free(tx, found, True, reason)
        return int(found is not None)
    found = _pick(_named(tx, id), holder_of(tx, holder), id, entire=True)
    return int(locks.release_target(tx, target_of(id if found is None else found.id), holder, token))


def _named(snapshot: Snapshot, name: str) -> list[PathLock]:
    """Return the lock of an id, or those with a pattern, oldest first."""
    check_name(name, "id")
    if is_uuid7(name):
        found = find(snapshot, name)
        return [] if found is None else [found]
    try:
        pattern = patterns.check_pattern(name)
    except errors.Invalid:
        return []
    near = select(snapshot, *patterns.may_overlap((pattern,)), " ORDER BY k.token")
    return [lock for lock in near if pattern in lock.patterns]


def _pick(named: list[PathLock], holder: str | None, name: str, entire: bool = False) -> PathLock | None:
    """Return the lock that an id or pattern means, of the holder unless None. Raises NotHolder, or Invalid for several.

    A lock with nothing but the pattern precedes others; with `entire` no other is meant.
    """
    if is_uuid7(name) or not named:
        return named[0] if named else None
    mine = [lock for lock in named if holder in (None, lock.holder)]
    if not mine:
        theirs, hint = named[0].holder, f"ask {named[0].holder} by mail, or wait until it is released or expires"
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


def _release_all(
    tx: Tx, task: str | None, holder: str | None, token: int | None, force: bool, reason: str | None
) -> int:
    if token is not None:
        raise errors.Invalid("a token belongs to one lock", hint="give its id too")
    where, params = "", []
    if task is not None:
        where, params = " AND k.task = ?", [require_task(tx, task, deleted=True).id]
    if not force or holder is not None or task is None:
        where += " AND k.holder = ?"
        params.append(holder_of(tx, holder))
    taken = select(tx, where, params)
    for found in taken:
        if force:
            _free(tx, found, True, reason)
        else:
            locks.release_target(tx, target_of(found.id), found.holder, None)
    return len(taken)


def _free(tx: Tx, found: PathLock, forced: bool = False, reason: str | None = None) -> None:
    target = target_of(found.id)
    locks.free(tx, target, locks.require(tx, target), "release", forced=forced, reason=reason)


def refresh(tx: Tx, id: str, holder: str | None = None, ttl: float | None = None, token: int | None = None) -> PathLock:
    """Renew a lock by id or pattern, by default for as long as before. Raises Fenced if it was lost, or NotHolder."""
    who = holder_of(tx, holder)
    found = _pick(_named(tx, id), who, id)
    if found is None and not is_uuid7(id):
        hint = (
            f"{_LIST}; if {who} had it, it was lost: stop the work done under it, lock it again and read the files anew"
        )
        raise errors.Fenced(f"{who} holds no path lock with the id or pattern {id!r}", hint=hint, current=None)
    id = id if found is None else found.id
    row = locks.load(tx, target_of(id))
    if found is not None and found.task is not None and row is not None and row[4] == _claim_lease(tx, found.task):
        hint = f'renew the claim: tasks.heartbeat("{found.task}")'
        raise errors.Invalid(f"the lock lives as long as the claim on task {found.task}", hint=hint)
    locks.renew_target(tx, target_of(id), holder, ttl, token)
    return get(tx, id)


def get(snapshot: Snapshot, id: str) -> PathLock:
    """Return a lock by its id or pattern. Raises NotFound if there is none, or it is no longer held."""
    found = _pick(_named(snapshot, id), None, id)
    if found is None:
        what, ended = (repr(id), "it expired or was released; ") if is_uuid7(id) else (f"with the pattern {id!r}", "")
        raise errors.NotFound(f"there is no path lock {what}", hint=f"{ended}{_LIST}", id=id)
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
    tokens = [found.token for found in _named(snapshot, id)]
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
        lock,
        http="POST /api/paths/lock",
        cli="path lock PATTERNS...",
        help="Lock paths and all below them; exit code 12 if somebody has one.",
        examples=(
            _PATH,
            example("holdfast path lock src/lexer.py docs --task hf-7k2q --reason 'new tokens'", _CLAIM),
            example("holdfast path lock src/parser/rules.py  # exit code 12: agent-2 has it", _THEIRS),
        ),
        grants=True,
        mcp="paths",
    )
    release = write(
        release,
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
        mcp="paths",
    )
    refresh = write(
        refresh,
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
        mcp="paths",
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
