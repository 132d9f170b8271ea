"""The locks of stashes kept and used (S10, C15): renewed, checked, and as the fence of any other write."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast import Workspace, errors
from tests.conformance.test_stash_locks import lock, steps
from tests.conformance.test_stashes import refused
from tests.worlds.kinds import World


def test_s10_refresh_renews_a_lock_without_a_version_and_one_that_was_lost_is_fenced(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    door = lock(ws)
    grant = ws.stashes.acquire(door.id, ttl=30)
    world.clock.advance(20)
    renewed = ws.stashes.refresh((None, "door"), token=grant.token)
    assert (renewed.token, renewed.expires_at) == (grant.token, grant.acquired_at + timedelta(seconds=50))
    assert ws.stashes.get(door.id).version == 2
    refused(ws, errors.NotHolder, lambda: other.stashes.refresh(door.id))
    assert refused(ws, errors.Fenced, lambda: ws.stashes.refresh(door.id, token=grant.token + 1)).current == grant.token
    assert ws.stashes.refresh(door.id, ttl=90).expires_at == grant.acquired_at + timedelta(seconds=110)
    world.clock.advance(90)
    ws.revision  # noqa: B018  # whoever looks at the store next sweeps
    with pytest.raises(errors.Fenced) as lost:
        ws.stashes.refresh(door.id)
    assert lost.value.current is None
    assert steps(ws, door.id) == [("create", None), ("acquire", "a"), ("expire", None)]


def test_s10_c15_check_passes_with_exactly_the_live_token(world: World) -> None:
    ws = world.open("a")
    door = lock(ws)
    with pytest.raises(errors.Fenced) as free:
        ws.stashes.check(door.id, 4096)
    assert free.value.current is None
    grant = ws.stashes.acquire(door.id, ttl=30)
    ws.stashes.check(door.id, grant.token)
    ws.stashes.check((None, "door"), grant.token)
    for token in (grant.token - 1, grant.token + 1):
        with pytest.raises(errors.Fenced) as other:
            ws.stashes.check(door.id, token)
        assert other.value.current == grant.token
    world.clock.advance(30)
    with pytest.raises(errors.Fenced) as late:
        ws.stashes.check(door.id, grant.token)
    assert late.value.current is None
    with pytest.raises(errors.InvalidStashType):
        ws.stashes.check(ws.stashes.create("count", "counter").id, grant.token)


def test_s10_c15_the_lock_of_a_stash_is_a_fence_for_any_write_by_the_id_of_the_stash(world: World) -> None:
    ws, other = world.open("a"), world.open("b")
    door = lock(ws)
    grant = ws.stashes.acquire(door.id, ttl=30)
    assert grant.name == door.id
    fenced = ws.using(fence=(grant.name, grant.token))
    assert fenced.cells.set("run", "cell", 1) == 1
    assert fenced.stashes.increment(fenced.stashes.create("count", "counter").id) == 1
    world.clock.advance(30)
    revision = refused_by_fence(ws, fenced, None)
    taken = other.stashes.acquire(door.id)
    assert refused_by_fence(ws, fenced, taken.token) > revision
    assert other.using(fence=(door.id, taken.token)).cells.set("run", "cell", 2) == 2
    other.stashes.release(door.id)
    refused_by_fence(ws, other.using(fence=(door.id, taken.token)), None)


def refused_by_fence(ws: Workspace, fenced: Workspace, current: int | None) -> int:
    """A write under a fence is refused with the live token and leaves nothing; answers the revision."""
    before = ws.cells.get("run", "cell")
    with pytest.raises(errors.Fenced) as error:
        fenced.cells.set("run", "cell", "late")
    assert error.value.current == current
    assert ws.cells.get("run", "cell") == before
    return ws.revision


def test_s10_c15_a_plain_lock_that_has_the_id_of_a_stash_as_its_name_is_told_apart_by_its_token(world: World) -> None:
    ws = world.open("a")
    door = lock(ws)
    plain = ws.locks.acquire(door.id)
    stash = ws.stashes.acquire(door.id)
    for version, token in enumerate((plain.token, stash.token), start=1):
        assert ws.using(fence=(door.id, token)).cells.set("run", "cell", token) == version
    ws.stashes.release(door.id)
    refused_by_fence(ws, ws.using(fence=(door.id, stash.token)), plain.token)
    assert ws.using(fence=(door.id, plain.token)).cells.set("run", "cell", 3) == 3
    ws.locks.release(door.id)
    refused_by_fence(ws, ws.using(fence=(door.id, plain.token)), None)


def test_s10_c15_a_fence_of_two_names_is_of_a_cell_or_of_a_lock_stash(world: World) -> None:
    """Whichever was granted with its token, also where a trail is called like a run."""
    ws = world.open()
    trail = ws.trails.create("trail", "active").id
    scoped = ws.stashes.acquire(ws.stashes.create("door", "lock", trail=trail).id)
    of_all = ws.stashes.acquire(ws.stashes.create("a/b", "lock").id)
    cell = ws.cells.acquire_lock(trail, "door")
    plain = ws.locks.acquire("x/y")
    for name, token in (
        ((trail, "door"), scoped.token),
        (f"{trail}/door", scoped.token),
        ((trail, "door"), cell.token),
        (f"{trail}/door", cell.token),
        ((None, "a/b"), of_all.token),
        (("", "a/b"), of_all.token),
        ("/a/b", of_all.token),
        ("x/y", plain.token),
    ):
        fence: Any = (name, token)
        assert ws.using(fence=fence).cells.set("run", "cell", str(name)) > 0
    for name, token in (
        ((trail, "door"), of_all.token),
        ((None, "a/b"), scoped.token),
        ("/a/b", plain.token),
        (("x", "y"), plain.token),
    ):
        fence = (name, token)
        with pytest.raises(errors.Fenced):
            ws.using(fence=fence).cells.set("run", "cell", 0)
    ws.stashes.release((trail, "door"), token=scoped.token)
    fence = ((trail, "door"), scoped.token)
    with pytest.raises(errors.Fenced, match=str(cell.token)):
        ws.using(fence=fence).cells.set("run", "cell", 0)
    ws.cells.release_lock(trail, "door")
    with pytest.raises(errors.Fenced, match="no longer held"):
        ws.using(fence=fence).cells.set("run", "cell", 0)


@pytest.mark.parametrize("name", ["typo", ("trail", "typo"), (None, "typo"), "/typo", "trail/typo", "counter"])
def test_c15_a_fence_that_names_no_lock_does_not_say_that_one_was_lost(world: World, name: Any) -> None:
    ws = world.open()
    ws.stashes.create("counter", "counter")
    with pytest.raises(errors.Fenced) as refused:
        ws.using(fence=("/counter" if name == "counter" else name, 4096)).cells.set("run", "cell", 0)
    assert "there is no lock" in refused.value.message
    assert "lost" not in f"{refused.value.message} {refused.value.hint}"
    assert "no longer held" not in refused.value.message
    assert refused.value.current is None


@pytest.mark.parametrize(
    "fence", [((None, ""), 1), (("", ""), 1), ((1, "x"), 1), (("a", "b", "c"), 1), (("a", None), 1)]
)
def test_c15_what_could_be_no_fence_is_refused_at_once(world: World, fence: Any) -> None:
    ws = world.open()
    with pytest.raises(errors.Invalid):
        ws.using(fence=fence)
