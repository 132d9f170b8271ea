"""Path locks (A5): who edits which files, exclusively or together, until when, and in which order.

A lock is known by its id; what it covers and whom it keeps out follows from its patterns. Waiters are real threads,
tasks and processes; that one has queued is known from its `wait` event, never from time.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import apsw
import msgspec
import pytest

from holdfast import errors
from holdfast.domains.paths.patterns import Detail
from holdfast.kernel.store_files import FILE
from holdfast.types import Event, Exists, NotExists, Op, ValueEquals, VersionEquals
from holdfast.types.agents import PathLock
from holdfast.types.tasks import Task
from holdfast.workspace import Workspace
from holdfast.workspace.context import derive_actor
from tests.conformance.test_waiting import PATIENCE, Background
from tests.worlds.kinds import World

pytestmark = pytest.mark.kinds("drawn")


def claimed(ws: Workspace, **given: Any) -> Task:
    """A new task that `ws` has claimed."""
    return ws.tasks.claim(ws.tasks.create("task").id, **given)


def held(call: Callable[..., object], *args: Any, **given: Any) -> errors.Held:
    """Expect Held; answers it."""
    with pytest.raises(errors.Held) as refused:
        call(*args, **given)
    return refused.value


def events(ws: Workspace, id: str | None = None) -> list[Event]:
    """What happened to path locks, or to one, in order."""
    found: list[Event] = []
    while page := ws.events.list(kinds=["path"], id=id, after=found[-1].cursor if found else 0, limit=1000):
        found += page
    return found


def ops(ws: Workspace, id: str | None = None) -> list[str]:
    """The same in short."""
    return [event.op for event in events(ws, id)]


def by_id(*locks: PathLock) -> list[PathLock]:
    """As they are listed: those of one millisecond, made by several nodes, in any order."""
    return sorted(locks, key=lambda lock: lock.id)


def queued(ws: Workspace, call: Callable[[], PathLock]) -> Background[PathLock]:
    """Start a waiting call; comes back once it stands in line."""
    watch: Any = ws.watch(kinds=["path"], after=ws.revision)
    try:
        waiter = Background(call)
        assert next(event for event in watch if event.op == "wait")
        return waiter
    finally:
        watch.close()


def waiting(ws: Workspace) -> int:
    """How many stand in line."""
    return ws.check().records["waiters"]


# --- exclusive and shared --------------------------------------------------------------------------------------------


def test_a5_a_lock_says_what_it_covers_who_holds_it_and_until_when(world: World) -> None:
    ws = world.open("a")
    lock = ws.paths.lock(["src/**", "./docs/", "docs"], ttl=30, reason="the parser")
    assert (lock.patterns, lock.holder, lock.shared) == (("docs", "src/**"), "a", False)
    assert (lock.task, lock.reason, lock.token > 0) == (None, "the parser", True)
    assert lock.expires_at == lock.acquired_at + timedelta(seconds=30)
    assert ws.paths.get(lock.id) == lock
    assert ws.paths.list() == [lock]
    other = ws.paths.lock("other", "b")
    assert other.expires_at == other.acquired_at + timedelta(hours=1), "no lock is for ever"


@pytest.mark.parametrize(("first", "second", "refused"), [(0, 0, True), (0, 1, True), (1, 0, True), (1, 1, False)])
@pytest.mark.parametrize("other", ["src/a.py", "src", "**/*.py", "{docs,src}/**"])
def test_a5_only_shared_locks_do_not_stand_in_each_others_way(
    world: World, first: int, second: int, refused: bool, other: str
) -> None:
    a, b = world.open("a"), world.open("b")
    mine = a.paths.lock("src/**", shared=bool(first))
    if refused:
        assert held(b.paths.lock, other, shared=bool(second)).lock == mine.id
        assert a.paths.list() == [mine]
    else:
        theirs = b.paths.lock(other, shared=bool(second))
        assert theirs.token > mine.token
        assert a.paths.list() == by_id(mine, theirs)
    assert b.paths.lock("elsewhere/*").holder == "b"


def test_a5_one_pattern_of_several_that_meets_refuses_the_whole_lock(world: World) -> None:
    a, b = world.open("a"), world.open("b")
    a.paths.lock(["x", "src/**/*.py"])
    before = a.revision
    assert held(b.paths.lock, ["docs", "src/a.py", "y"]).pattern == "src/a.py"
    assert a.revision == before
    assert b.paths.lock(["docs", "y"]).holder == "b"


def test_a5_ones_own_locks_are_never_in_the_way(world: World) -> None:
    ws = world.open("a")
    locks = [
        ws.paths.lock("src/**"),
        ws.paths.lock("src/a.py"),
        ws.paths.lock("src", shared=True),
        ws.paths.lock("src/**", shared=True),
        world.open("a").paths.lock("**"),
    ]
    assert len({lock.id for lock in locks}) == len({lock.token for lock in locks}) == 5
    assert ws.paths.list() == by_id(*locks)


@pytest.mark.parametrize("shared", [False, True])
def test_a5_held_names_the_patterns_the_holder_the_lock_the_task_and_the_end(world: World, shared: bool) -> None:
    a, b = world.open("a"), world.open("b")
    task = claimed(a)
    lock = a.paths.lock("src/**", ttl=30, task=task.id, shared=shared, reason="the parser")
    error = held(b.paths.lock, ["lib", "src/x.py"])
    assert (error.name, error.pattern, error.holder) == ("src/**", "src/x.py", "a")
    assert (error.until, error.lock, error.task, error.shared) == (lock.expires_at, lock.id, task.id, shared)
    for word in ("src/**", "src/x.py", " a ", "the parser", lock.expires_at.isoformat() if lock.expires_at else ""):
        assert word in error.message
    assert "paths.lock" in error.hint
    same = held(b.paths.lock, "src/**")
    assert (same.name, same.pattern) == ("src/**", "src/**")


def test_a5_a_holder_is_the_actor_unless_one_is_named_and_never_a_derived_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_ACTOR", raising=False)
    ws = world.open().using(actor=derive_actor())
    for call in (partial(ws.paths.lock, "src"), ws.paths.release, partial(ws.paths.refresh, "some")):
        with pytest.raises(errors.InvalidHolder) as refused:
            call()
        assert "actor" in refused.value.hint
    assert (ws.revision, ws.paths.list()) == (0, [])
    assert ws.paths.lock("src", "named").holder == "named"
    assert world.open("agent-3").paths.lock("docs").holder == "agent-3"


def test_a5_path_locks_and_plain_locks_of_the_same_name_are_apart(world: World) -> None:
    a, b = world.open("a"), world.open("b")
    lock = a.paths.lock("src")
    assert b.locks.acquire("src").holder == "b"
    assert b.locks.acquire(lock.id).holder == "b"
    assert [grant.name for grant in a.locks.list()] == sorted(["src", lock.id])
    assert a.paths.list() == [lock]


# --- locking again ---------------------------------------------------------------------------------------------------


@pytest.mark.kinds("every")
def test_a5_locking_again_keeps_id_and_token_and_the_later_end_wins(world: World) -> None:
    ws = world.open("a")
    first = ws.paths.lock(["src", "docs"], ttl=30)
    world.clock.advance(10)
    before = ws.revision
    assert ws.paths.lock(["docs/", "src"], ttl=5) == first, "an earlier end changes nothing"
    longer = ws.paths.lock(["src", "docs"], ttl=60)
    assert (longer.id, longer.token, longer.acquired_at) == (first.id, first.token, first.acquired_at)
    assert longer.expires_at == first.acquired_at + timedelta(seconds=70)
    usual = ws.paths.lock(["src", "docs"])
    assert (usual.id, usual.token) == (first.id, first.token)
    assert usual.expires_at == first.acquired_at + timedelta(seconds=10 + 3600)
    assert ws.paths.lock(["src", "docs"], ttl=1) == usual
    assert (ws.revision, ws.paths.list()) == (before, [usual])
    world.clock.advance(1000)
    assert ws.paths.get(first.id) == usual
    world.clock.advance(2600)
    assert ws.paths.list() == [], "i22: it ends"
    assert ws.check().records["leases"] == 0


def test_a5_another_set_of_patterns_a_share_or_a_task_make_another_lock(world: World) -> None:
    ws = world.open("a")
    task = claimed(ws)
    locks = [ws.paths.lock("src"), ws.paths.lock(["src", "x"]), ws.paths.lock("src", shared=True)]
    locks.append(ws.paths.lock("src", task=task.id))
    assert len({lock.id for lock in locks}) == 4
    assert ws.paths.lock("src", task=task.id) == locks[-1]


@pytest.mark.kinds("every")
def test_a5_after_its_end_the_same_lock_is_a_new_one(world: World) -> None:
    ws = world.open("a")
    first = ws.paths.lock("src", ttl=30)
    world.clock.advance(30)
    second = ws.paths.lock("src", ttl=30)
    assert (second.id != first.id, second.token > first.token) == (True, True)


# --- checking --------------------------------------------------------------------------------------------------------


def test_a5_check_answers_ones_own_lock_nothing_or_held(world: World) -> None:
    a, b = world.open("a"), world.open("b")
    assert a.paths.check("src/a.py") is None
    lock = a.paths.lock("src", ttl=30)
    assert a.paths.check("src/a.py") == a.paths.check("./src//a.py") == a.paths.check("src") == lock
    assert b.paths.check("src/a.py", "a") == lock
    error = held(b.paths.check, "src/deep/below.py")
    assert (error.holder, error.lock, error.name, error.until) == ("a", lock.id, "src", lock.expires_at)
    assert error.pattern == "src/deep/below.py"
    assert held(a.paths.check, "src/a.py", "b").holder == "a"
    assert b.paths.check("srcs") is None
    assert b.paths.check("lib/src") is None


def test_a5_check_passes_who_shares_a_lock_and_keeps_out_who_does_not(world: World) -> None:
    a, b, c = world.open("a"), world.open("b"), world.open("c")
    first = a.paths.lock("src/*", shared=True)
    second = b.paths.lock("src", shared=True)
    assert a.paths.check("src/x") == first
    assert b.paths.check("src/x") == second
    assert held(c.paths.check, "src/x").lock == first.id
    assert held(a.paths.check, "src").lock == second.id, "a has what is in it, not the directory"


def test_a5_check_takes_a_path_as_it_is_spelled_and_nothing_in_it_is_wild(world: World) -> None:
    a, b = world.open("a"), world.open("b")
    a.paths.lock("app/[id]/page.tsx")
    assert held(b.paths.check, "app/[id]/page.tsx").holder == "a"
    assert held(b.paths.check, "app/i/page.tsx").holder == "a"
    assert b.paths.check("app/*/page.tsx") is None
    assert b.paths.check("app/[") is None


def test_a5_a_derived_actor_may_check_but_owns_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_ACTOR", raising=False)
    name = derive_actor()
    ws = world.open().using(actor=name)
    assert ws.paths.check("src") is None
    lock = world.open("a").paths.lock("src", holder=str(name))
    assert held(ws.paths.check, "src").holder == str(name), "somebody else may be called so"
    assert ws.paths.check("src", str(name)) == lock


@pytest.mark.kinds("every")
@pytest.mark.capability("local")
def test_a5_a_lock_with_a_ttl_of_its_own_is_not_seen_after_its_claim_has_run_out(world: World) -> None:
    ws, other = world.open("ann"), world.open("bob")
    task = claimed(ws, ttl=5)
    lock = ws.paths.lock("src", ttl=3600, task=task.id)
    assert lock.expires_at == task.deadline
    world.clock.advance(10)
    assert other.paths.check("src/a") is None
    with pytest.raises(errors.Fenced):
        ws.paths.check_token(lock.id, lock.token)
    assert other.paths.list() == []


@pytest.mark.kinds("every")
def test_a5_a_lock_past_its_end_is_seen_by_nobody_although_nothing_was_written_since(world: World) -> None:
    a, b = world.open("a"), world.open("b")
    lock = a.paths.lock("src", ttl=30)
    world.clock.advance(29.999999)
    assert held(b.paths.check, "src").holder == "a"
    a.paths.check_token(lock.id, lock.token)
    world.clock.advance(0.000001)
    assert b.paths.check("src") is a.paths.check("src") is None
    with pytest.raises(errors.NotFound):
        a.paths.get(lock.id)
    with pytest.raises(errors.Fenced) as refused:
        a.paths.check_token(lock.id, lock.token)
    assert refused.value.current is None
    assert a.paths.list() == a.paths.list(path="src/x") == []


# --- releasing, refreshing, expiring ---------------------------------------------------------------------------------


def test_a5_release_by_id_by_task_and_by_holder_answers_how_many(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    task = claimed(ws)
    one, two = ws.paths.lock("one"), ws.paths.lock("two")
    ws.paths.lock("three", task=task.id)
    ws.paths.lock("four", task=task.id, ttl=30)
    theirs = other.paths.lock("theirs")
    assert (ws.paths.release(one.id), ws.paths.release(one.id)) == (1, 0)
    assert ws.paths.release(two.id, token=two.token) == 1
    ws.paths.lock("two")
    assert (other.paths.release(task=task.id), ws.paths.release(task=task.id)) == (0, 2)
    ws.paths.lock("one", "c")
    assert (ws.paths.release(), ws.paths.release(), ws.paths.release(holder="c")) == (1, 0, 1)
    assert ws.paths.list() == [theirs]
    assert ops(ws, one.id) == ["acquire", "release"]
    assert ws.check().records["locks"] == 1


def test_a5_a_lock_is_released_refreshed_and_read_by_its_pattern(world: World) -> None:
    ws = world.open("a")
    lock = ws.paths.lock("lib/**", ttl=10)
    assert ws.paths.get("lib/**") == ws.paths.get("./lib//**") == lock
    ws.paths.check_token("lib/**", lock.token)
    world.clock.advance(5)
    assert ws.paths.refresh("lib/**").expires_at == lock.acquired_at + timedelta(seconds=15)
    for token in (lock.token + 1, lock.token - 1):
        for call in (ws.paths.release, ws.paths.refresh, ws.paths.check_token):
            with pytest.raises(errors.Fenced):
                call("lib/**", token=token)
    assert ws.paths.release("lib/x") == 0, "a path below it is not its pattern"
    assert (ws.paths.release("lib/**", token=lock.token), ws.paths.release("lib/**")) == (1, 0)
    assert ws.paths.list() == []
    ws.paths.lock("lib/**")
    assert (ws.paths.release("lib/**"), ws.paths.list()) == (1, [])


def test_a5_by_a_pattern_one_means_ones_own_lock(world: World) -> None:
    a, b = world.open("a"), world.open("b")
    a.paths.lock("x", shared=True, ttl=30)
    for call in (b.paths.release, b.paths.refresh):
        with pytest.raises(errors.NotHolder, match="x is locked by a, not by b") as refused:
            call("x")
        assert refused.value.holder == "a"
    mine = b.paths.lock("x", shared=True, ttl=30)
    assert b.paths.refresh("x", ttl=60).id == mine.id
    assert b.paths.release("x", holder="a") == 1
    assert b.paths.list() == [b.paths.get(mine.id)]
    a.paths.lock("x", shared=True)
    assert b.paths.release("x", holder="c", force=True) == 0
    assert (b.paths.release("x", holder="a", force=True), a.paths.release("x", force=True)) == (1, 1)


def test_a5_a_pattern_that_could_mean_another_lock_names_the_ids(world: World) -> None:
    a, b = world.open("a"), world.open("b")
    both = a.paths.lock(["x", "y"], ttl=30)
    assert a.paths.get("x") == both == a.paths.refresh("y")
    with pytest.raises(errors.Invalid, match="other patterns too: x, y") as wide:
        a.paths.release("x")
    assert (wide.value.ids, both.id in wide.value.hint) == ([both.id], True)
    a.paths.release(both.id)
    one, two = a.paths.lock("x", shared=True), b.paths.lock("x", shared=True)
    for call in (a.paths.get, partial(b.paths.release, force=True)):
        with pytest.raises(errors.Invalid, match="2 path locks have the pattern 'x'") as several:
            call("x")
        assert several.value.ids == [one.id, two.id]
        assert all(f"{lock.id} of {lock.holder}" in several.value.hint for lock in (one, two))
    assert len(a.paths.list()) == 2


def test_a5_what_was_never_locked_is_not_called_lost(world: World) -> None:
    ws = world.open("a")
    gone = ws.paths.lock("gone")
    assert ws.paths.release("gone") == 1
    for name in ("lib/**", "123", "/", "{"):
        assert ws.paths.release(name) == 0
        with pytest.raises(errors.Fenced, match="a holds no path lock with the id or pattern") as refused:
            ws.paths.refresh(name)
        assert refused.value.hint.startswith("paths.list() lists the locks that are held; if a had it, it was lost")
        with pytest.raises(errors.NotFound, match="there is no path lock with the pattern") as missing:
            ws.paths.get(name)
        assert missing.value.hint == "paths.list() lists the locks that are held"
    with pytest.raises(errors.NotFound, match="it expired or was released; paths"):
        ws.paths.get(gone.id)


def test_a5_another_cannot_release_or_refresh_a_lock_and_learns_whose_it_is(world: World) -> None:
    a, b = world.open("a"), world.open("b")
    lock = a.paths.lock("src", ttl=30)
    for token in (None, lock.token):
        for call in (partial(b.paths.release, lock.id), partial(b.paths.refresh, lock.id, ttl=60)):
            with pytest.raises(errors.NotHolder) as refused:
                call(token=token)
            assert refused.value.holder == "a"
    assert a.paths.list() == [lock]


@pytest.mark.kinds("every")
@pytest.mark.parametrize("off", [-1, 1])
def test_a5_a_token_that_is_not_the_live_one_is_fenced(world: World, off: int) -> None:
    ws = world.open("a")
    lock = ws.paths.lock("src", ttl=30)
    for call in (ws.paths.release, ws.paths.refresh):
        with pytest.raises(errors.Fenced) as refused:
            call(lock.id, token=lock.token + off)
        assert refused.value.current == lock.token
    with pytest.raises(errors.Fenced):
        ws.paths.check_token(lock.id, lock.token + off)
    ws.paths.check_token(lock.id, lock.token)
    assert ws.paths.list() == [lock]


@pytest.mark.kinds("every")
@pytest.mark.parametrize("how", ["expired", "released"])
def test_a5_the_token_of_a_lost_lock_is_fenced_and_the_next_holders_lock_stays(world: World, how: str) -> None:
    a, b = world.open("a"), world.open("b")
    lost = a.paths.lock("src", ttl=30)
    if how == "expired":
        world.clock.advance(30)
    else:
        assert a.paths.release(lost.id) == 1
    lock = b.paths.lock("src", ttl=30)
    for call in (a.paths.release, a.paths.refresh, a.paths.check_token):
        with pytest.raises(errors.Fenced) as refused:
            call(lost.id, token=lost.token)
        assert refused.value.current is None
    with pytest.raises(errors.Fenced):
        a.paths.refresh(lost.id)
    assert a.paths.release(lost.id) == 0
    assert (a.paths.list(), lock.token > lost.token) == ([lock], True)


def test_a5_by_force_anybodys_locks_are_taken_away_and_the_log_says_so(world: World) -> None:
    a, b = world.open("a"), world.open("b")
    task = claimed(a)
    single, mine = a.paths.lock("single", ttl=30), b.paths.lock("mine")
    for name in ("one", "two"):
        a.paths.lock(name, task=task.id)
    third, rest = a.paths.lock("three"), b.paths.lock("rest", "c")
    assert b.paths.release(single.id, force=True) == 1
    assert b.paths.release(single.id, force=True) == 0
    last = events(a, single.id)[-1]
    assert (last.op, last.actor, last.data) == (
        "release",
        "b",
        {"holder": ["a", None], "token": [single.token, None], "forced": [False, True]},
    )
    assert b.paths.release(task=task.id, force=True) == 2
    assert b.paths.release(holder="a", force=True) == 1
    with pytest.raises(errors.Invalid):
        b.paths.release(force=True)
    assert b.paths.release() == 1, "without anything named it is one's own"
    assert a.paths.list() == [rest]
    forced = [event.id for event in events(a) if "forced" in event.data]
    assert len(forced) == 4
    assert {single.id, third.id} <= set(forced)
    assert mine.id not in forced
    assert a.check().records["leases"] == 2, "of the claim, and of the one that is left"


@pytest.mark.kinds("every")
def test_a5_refresh_renews_by_the_granted_ttl_or_by_a_given_one(world: World) -> None:
    ws = world.open("a")
    lock = ws.paths.lock("src", ttl=30)
    world.clock.advance(20)
    before = ws.revision
    renewed = ws.paths.refresh(lock.id, token=lock.token)
    assert (renewed.token, renewed.expires_at) == (lock.token, lock.acquired_at + timedelta(seconds=50))
    assert ws.paths.refresh(lock.id, ttl=100).expires_at == lock.acquired_at + timedelta(seconds=120)
    assert ws.paths.refresh(lock.id, ttl=1).expires_at == lock.acquired_at + timedelta(seconds=21)
    assert ws.revision == before, "a renewal is no event"
    usual = ws.paths.lock("docs")
    assert ws.paths.refresh(usual.id) == usual
    assert ws.paths.refresh(usual.id, ttl=5).expires_at == usual.acquired_at + timedelta(seconds=5)
    world.clock.advance(5)
    assert ws.paths.list() == []


@pytest.mark.kinds("every")
def test_a5_a_lock_expires_with_an_event_of_the_system_and_frees_its_paths(world: World) -> None:
    a, b = world.open("a"), world.open("b")
    lock = a.paths.lock("src", ttl=30)
    held(b.paths.lock, "src/x")
    world.clock.advance(30)
    assert b.paths.lock("src/x").token > lock.token
    expired = events(a, lock.id)[-1]
    assert (expired.op, expired.actor, expired.version) == ("expire", "system", 2)
    assert expired.data == {"holder": ["a", None], "token": [lock.token, None]}


@pytest.mark.kinds("every")
def test_a5_the_log_tells_all_of_a_lock(world: World) -> None:
    ws = world.open("a")
    task = claimed(ws)
    watch: Any = ws.watch(kinds=["path"], after=ws.revision, timeout=PATIENCE)
    lock = ws.paths.lock(["src/**", "docs"], shared=True, task=task.id, reason="why")
    plain = ws.paths.lock("x", "b")
    ws.paths.release(lock.id)
    heard = [next(watch) for _ in range(3)]
    watch.close()
    assert heard == events(ws)
    assert [(event.op, event.id, event.version, event.actor, event.scope) for event in heard] == [
        ("acquire", lock.id, 1, "a", ""),
        ("acquire", plain.id, 1, "a", ""),
        ("release", lock.id, 2, "a", ""),
    ]
    assert [event.data for event in heard] == [
        {
            "holder": [None, "a"],
            "token": [None, lock.token],
            "patterns": [None, ["docs", "src/**"]],
            "shared": [None, True],
            "task": [None, task.id],
            "reason": [None, "why"],
        },
        {
            "holder": [None, "b"],
            "token": [None, plain.token],
            "patterns": [None, ["x"]],
            "shared": [None, False],
            "task": [None, None],
            "reason": [None, None],
        },
        {"holder": ["a", None], "token": [lock.token, None]},
    ]


def test_a5_list_shows_locks_by_age_by_path_by_holder_by_task_and_in_pages(world: World) -> None:
    a, b = world.open("a"), world.open("b")
    task = claimed(a)
    locks = []
    for ws, patterns, given in (
        (a, ["src/**", "lib"], {}),
        (b, ["docs/*.md"], {}),
        (a, ["src/a.py"], {"task": task.id}),
        (b, ["tests", "*.toml"], {"ttl": 5}),
        (a, ["tests/unit"], {"holder": "b"}),
    ):
        world.clock.advance(1)
        locks.append(ws.paths.lock(patterns, **given))
    assert a.paths.list() == locks
    assert a.paths.list(path="src/a.py") == [locks[0], locks[2]]
    assert a.paths.list(path="src/a.py", task=task.id) == a.paths.list(task=task.id) == [locks[2]]
    assert a.paths.list(path="lib/x/y") == [locks[0]]
    assert a.paths.list(path="docs") == [], "the directory itself is free"
    assert a.paths.list(holder="b") == [locks[1], locks[3], locks[4]]
    assert a.paths.list(holder="b", path="tests/unit/x") == [locks[3], locks[4]]
    assert a.paths.list(holder="nobody") == a.paths.list(task="hf-none") == []
    assert (a.paths.list(limit=2), a.paths.list(limit=2, after=locks[1].id)) == (locks[:2], locks[2:4])
    assert a.paths.list(path="tests/unit", limit=1) == [locks[3]]
    assert a.paths.list(path="tests/unit", limit=1, after=locks[3].id) == [locks[4]]
    assert a.paths.list(after=locks[-1].id) == []
    world.clock.advance(5)
    assert a.paths.list(limit=4) == [*locks[:3], locks[4]]


# --- together with others --------------------------------------------------------------------------------------------


def test_a5_txn_locks_as_data_and_its_conditions_see_a_lock(world: World) -> None:
    a, b = world.open("a"), world.open("b")
    task = a.tasks.create("task")
    done = a.txn(
        [NotExists("path", "none")],
        [Op("tasks.claim", {"id": task.id}), Op("paths.lock", {"patterns": ["src/**"], "task": task.id})],
    )
    lock = a.paths.list()[0]
    assert done.results[1] == lock
    assert b.txn([Exists("path", lock.id), VersionEquals("path", lock.id, lock.token)], []).succeeded
    assert b.txn([ValueEquals("path", lock.id, "a")], []).succeeded
    assert not b.txn([NotExists("path", lock.id)], []).succeeded
    assert not b.txn([VersionEquals("path", lock.id, lock.token + 1)], []).succeeded
    before = b.revision
    write = Op("cells.set", {"run": "run", "cell": "cell", "value": 1})
    held(b.txn, [], [write, Op("paths.lock", {"patterns": "src/x"})])
    assert (b.revision, b.cells.find("run", "cell")) == (before, None)
    checked = a.txn([], [Op("paths.check", {"path": "src/x"}), Op("paths.list", {}), Op("paths.release", {})])
    assert checked.results == [lock, [lock], 1]


@pytest.mark.capability("callables")
def test_a5_a_refused_lock_inside_a_body_leaves_nothing_of_itself(world: World) -> None:
    a, b = world.open("a"), world.open("b")
    a.paths.lock("src")

    def body(tx: Any) -> str:
        tx.paths.lock("docs")
        held(tx.paths.lock, ["lib", "src/x"])
        return str(tx.paths.lock("lib").holder)

    assert b.transact(body) == "b"
    assert sorted(lock.patterns[0] for lock in a.paths.list(holder="b")) == ["docs", "lib"]
    assert len({event.revision for event in events(a)}) == 2


@pytest.mark.kinds("every")
def test_a5_a_key_makes_a_lock_happen_once_and_a_fence_guards_it(world: World) -> None:
    a = world.open("a")
    keyed = a.using(key="k")
    lock = keyed.paths.lock("src", ttl=30)
    a.paths.release(lock.id)
    assert keyed.paths.lock("src", ttl=30) == lock, "the answer of the first time"
    assert a.paths.list() == []
    with pytest.raises(errors.HoldfastError):
        keyed.paths.lock("docs", ttl=30)
    released = a.using(key="r")
    a.paths.lock("one")
    assert (released.paths.release(), released.paths.release()) == (1, 1)
    grant = a.locks.acquire("door", ttl=30)
    fenced = a.using(fence=("door", grant.token))
    assert fenced.paths.release(fenced.paths.lock("x").id) == 1
    world.clock.advance(30)
    before = a.revision
    for call in (partial(fenced.paths.lock, "x"), partial(fenced.paths.lock, "x", wait=5), fenced.paths.release):
        with pytest.raises(errors.Fenced):
            call()
    assert (a.paths.list(), waiting(a)) == ([], 0)
    assert a.revision <= before + 1, "of the expiry"


# --- what check finds ------------------------------------------------------------------------------------------------


_OF_B = "(SELECT id FROM leases WHERE holder = 'b')"


@pytest.mark.capability("folder")
@pytest.mark.parametrize(
    ("damage", "repair", "problem"),
    [
        ("detail = :src WHERE holder = 'b'", "detail = :docs WHERE holder = 'b'", "of b overlap"),
        ("holder = 'c' WHERE task NOTNULL", "holder = 'a' WHERE task NOTNULL", "a claim that has ended"),
        ("task = 'hf-none' WHERE holder = 'b'", "task = NULL WHERE holder = 'b'", "a claim that has ended"),
        ("lease = 'none' WHERE holder = 'b'", f"lease = {_OF_B} WHERE holder = 'b'", "a lease that does not exist"),
        ("token = token << 20 WHERE holder = 'b'", "token = token >> 20 WHERE holder = 'b'", "a token from a revision"),
    ],
)
def test_a5_check_finds_locks_that_cannot_be_held_together_or_outlive_their_claim(
    world: World, damage: str, repair: str, problem: str
) -> None:
    a, b = world.open("a"), world.open("b")
    a.paths.lock("src", task=claimed(a).id)
    b.paths.lock("docs")
    assert a.check().ok
    details = {"src": _detail("src/x"), "docs": _detail("docs")}
    _damage(world, damage, details)
    try:
        assert any(problem in found for found in a.check().problems), a.check().problems
    finally:
        _damage(world, repair, details)
    assert a.check().ok


def _detail(pattern: str) -> bytes:
    return msgspec.msgpack.encode(Detail((pattern,)))


def _damage(world: World, sql: str, values: dict[str, bytes]) -> None:
    """Change one lock behind the back of everybody."""
    connection = apsw.Connection(str(world.folder / "store" / FILE))
    connection.execute(f"UPDATE locks SET {sql}", values)
    assert connection.changes() == 1
    connection.close()


# --- bad input -------------------------------------------------------------------------------------------------------

NO_NAMES: tuple[Any, ...] = ("", "a\0b", "tab\t", "x" * 513, 7)
NO_TIMES: tuple[Any, ...] = (-1, float("nan"), float("inf"), "5", True)
OUTSIDE: tuple[Any, ...] = ("/a", "~/a", "..", "a/../b")
NO_TEXTS: tuple[Any, ...] = ("", " ", "a\nb", "\x1b", 7, b"a")
Bad = tuple[type[errors.HoldfastError], Callable[[Any, Any], object], tuple[Any, ...]]
BAD: dict[str, Bad] = {
    "patterns": (errors.Invalid, lambda ws, x: ws.paths.lock(x), (*NO_NAMES, *OUTSIDE, None, [], {}, "[", "a\\b")),
    "one of the patterns": (errors.Invalid, lambda ws, x: ws.paths.lock(["ok", x]), (*NO_NAMES, *OUTSIDE, None, "{")),
    "too many patterns": (errors.TooLarge, lambda ws, x: ws.paths.lock(x), ([f"p{n}" for n in range(101)],)),
    "holder": (errors.InvalidName, lambda ws, x: ws.paths.lock("new", x), NO_NAMES),
    "ttl": (errors.Invalid, lambda ws, x: ws.paths.lock("new", ttl=x), (*NO_TIMES, 0)),
    "ttl of a lock one has": (errors.Invalid, lambda ws, x: ws.paths.lock("mine", ttl=x), (*NO_TIMES, 0)),
    "shared": (errors.Invalid, lambda ws, x: ws.paths.lock("new", shared=x), (None, 1, "yes")),
    "task": (errors.InvalidName, lambda ws, x: ws.paths.lock("new", task=x), NO_NAMES),
    "reason": (errors.InvalidValue, lambda ws, x: ws.paths.lock("new", reason=x), NO_TEXTS),
    "a long reason": (errors.TooLarge, lambda ws, x: ws.paths.lock("new", reason=x), ("x" * 501,)),
    "wait": (errors.Invalid, lambda ws, x: ws.paths.lock("new", wait=x), NO_TIMES),
    "ttl, before waiting": (errors.Invalid, lambda ws, x: ws.paths.lock("their", ttl=x, wait=5), (*NO_TIMES, 0)),
    "holder, before waiting": (errors.Invalid, lambda ws, x: ws.paths.lock("their", x, wait=5), NO_NAMES),
    "release: id": (errors.InvalidName, lambda ws, x: ws.paths.release(x), NO_NAMES),
    "release: task": (errors.InvalidName, lambda ws, x: ws.paths.release(task=x), NO_NAMES),
    "release: no such task": (errors.TaskNotFound, lambda ws, x: ws.paths.release(task=x), ("hf-none",)),
    "release: holder": (errors.InvalidName, lambda ws, x: ws.paths.release(holder=x), NO_NAMES),
    "release: force": (errors.Invalid, lambda ws, x: ws.paths.release(force=x), (None, 1, "yes")),
    "release: id and task": (errors.Invalid, lambda ws, x: ws.paths.release("id", task=x), ("hf-none",)),
    "release: a token alone": (errors.Invalid, lambda ws, x: ws.paths.release(token=x), (1,)),
    "refresh: id": (errors.InvalidName, lambda ws, x: ws.paths.refresh(x), (*NO_NAMES, None)),
    "refresh: ttl": (errors.Invalid, lambda ws, x: ws.paths.refresh(mine(ws), ttl=x), (*NO_TIMES, 0)),
    "refresh: token": (errors.Fenced, lambda ws, x: ws.paths.refresh(mine(ws), token=x), ("5", 0)),
    "check: path": (errors.Invalid, lambda ws, x: ws.paths.check(x), (*NO_NAMES, *OUTSIDE, None, ".")),
    "check: actor": (errors.InvalidName, lambda ws, x: ws.paths.check("a", x), NO_NAMES),
    "check_token: id": (errors.InvalidName, lambda ws, x: ws.paths.check_token(x, 1), (*NO_NAMES, None)),
    "check_token: token": (errors.Fenced, lambda ws, x: ws.paths.check_token(mine(ws), x), (None, "1", 0)),
    "get: id": (errors.InvalidName, lambda ws, x: ws.paths.get(x), (*NO_NAMES, None)),
    "get: no such lock": (errors.NotFound, lambda ws, x: ws.paths.get(x), ("none",)),
    "list: path": (errors.Invalid, lambda ws, x: ws.paths.list(path=x), (*NO_NAMES, *OUTSIDE)),
    "list: holder": (errors.InvalidName, lambda ws, x: ws.paths.list(holder=x), NO_NAMES),
    "list: task": (errors.InvalidName, lambda ws, x: ws.paths.list(task=x), NO_NAMES),
    "list: after": (errors.InvalidName, lambda ws, x: ws.paths.list(after=x), (*NO_NAMES[1:], None)),
    "list: limit": (errors.InvalidFilter, lambda ws, x: ws.paths.list(limit=x), (0, -1, 1001, "5", None, True)),
}


def mine(ws: Any) -> str:
    """The id of the only lock that the actor has."""
    return str(ws.paths.list(holder="a")[0].id)


@pytest.mark.parametrize("what", BAD)
def test_a5_bad_input_is_refused_and_leaves_everything_as_it_was(world: World, what: str) -> None:
    ws = world.open("a")
    ws.paths.lock("mine", ttl=30)
    world.open("b").paths.lock("their")
    error, call, values = BAD[what]
    before = [ws.paths.list(), events(ws), ws.check()]
    for bad in values:
        with pytest.raises(error):
            call(ws, bad)
    assert [ws.paths.list(), events(ws), ws.check()] == before


@pytest.mark.kinds("drawn")
@pytest.mark.parametrize(("given", "name"), [("./~n", "~n"), ("./~/n", "~/n"), ("./c:/n", "c:/n")])
def test_a_name_in_the_repository_that_looks_absolute_is_written_with_a_dot(
    workspace: Workspace, given: str, name: str
) -> None:
    with pytest.raises(errors.Invalid, match="is absolute") as refused:
        workspace.paths.lock(name)
    assert f"a name there that begins so is ./{name}" in refused.value.hint
    lock = workspace.paths.lock(given)
    assert lock.patterns == (name,)
    assert workspace.paths.check(given) == lock
    with pytest.raises(errors.Held) as held:
        workspace.using(actor="other").paths.check(given)
    assert given in held.value.hint, "and hints write it so"
    assert workspace.paths.get(name) == lock, "a lock is found by its pattern"
    assert workspace.paths.refresh(name).id == lock.id
    assert workspace.paths.release(name) == 1
