"""Crumbs, trails and links of a cupboard: a crumb is a task, a trail goes step by step, a link never changes."""

from __future__ import annotations

import pytest

from holdfast import errors
from holdfast.cupboard.entities import Crumb, Link, Trail
from tests.cupboard.conftest import Shelf


def test_s1_a_crumb_is_a_task(shelf: Shelf) -> None:
    crumb = Crumb(Name="write it")
    id = shelf.crumbs.set("", crumb)
    assert (shelf.ws.tasks.get(id).title, crumb.State, crumb.CrumbID) == ("write it", "ready", id)
    crumb.name, crumb.state = "write it well", "taken"
    shelf.crumbs.set(id, crumb)
    task = shelf.ws.tasks.get(id)
    assert (task.title, task.status, task.claimed_by) == ("write it well", "in_progress", "tester")
    crumb.pebble()
    shelf.crumbs.set(id, crumb)
    assert (shelf.ws.tasks.get(id).status, shelf.crumbs.get(id).state) == ("closed", "pebble")


def test_s1_the_states_of_a_crumb_are_steps_of_its_task(shelf: Shelf) -> None:
    crumb = Crumb("it")
    shelf.crumbs.set("", crumb)
    statuses = []
    for state in ("taken", "pending", "ready", "taken", "ready", "taken", "pebble", "ready"):
        crumb.state = state
        shelf.crumbs.set(crumb.id, crumb)
        assert shelf.crumbs.get(crumb.id).state == crumb.state == state
        statuses.append(shelf.ws.tasks.get(crumb.id).status)
    assert statuses == [*("in_progress", "blocked", "open", "in_progress", "open", "in_progress", "closed", "open")]
    for state in ("pebble", "pending", "draft", "bogus"):
        with pytest.raises(errors.InvalidTransition):
            crumb.set_state(state)
    crumb.set_state("taken")
    crumb.dust()
    shelf.crumbs.set(crumb.id, crumb)
    assert (crumb.state, shelf.crumbs.fetch()) == ("dust", [])
    assert shelf.ws.tasks.restore(crumb.id).status == "open"
    with pytest.raises(errors.InvalidTransition):
        shelf.crumbs.set("", Crumb("x", "pebble"))
    with pytest.raises(errors.InvalidName):
        shelf.crumbs.set("", Crumb(""))


def test_s1_of_two_that_take_a_crumb_one_has_it_and_a_stale_one_changes_nothing(shelf: Shelf) -> None:
    crumb = Crumb("it")
    id = shelf.crumbs.set("", crumb)
    stale = shelf.crumbs.get(id)
    crumb.state = "taken"
    shelf.crumbs.set(id, crumb)
    stale.name, stale.state = "mine", "taken"
    with pytest.raises(errors.VersionMismatch):
        shelf.crumbs.set(id, stale)
    assert shelf.ws.tasks.get(id).title == "it"
    with pytest.raises(errors.TaskActive):
        shelf.crumbs.delete(id)
    crumb.state = "ready"
    shelf.crumbs.set(id, crumb)
    shelf.crumbs.delete(id)
    for use in (shelf.crumbs.get, shelf.crumbs.delete):
        with pytest.raises(errors.NotFound):
            use(id)


def test_s7_crumbs_are_found_by_state_trail_parent_and_name(shelf: Shelf) -> None:
    trail = shelf.trail()
    one, two = Crumb("one"), Crumb("two")
    shelf.crumbs.set("", one)
    shelf.crumbs.set("", two)
    child = shelf.ws.tasks.create("child", parent_id=one.id)
    shelf.links.set("", Link("belongs_to", two.id, trail.id))
    two.state = "taken"
    shelf.crumbs.set(two.id, two)
    for wanted, found in (
        *(({}, "one two child"), ({"states": ["taken", "dust"]}, "two"), ({"State": "ready"}, "one child")),
        *(({"trail_id": trail.id}, "two"), ({"ParentID": one.id}, "child"), ({"name": "one"}, "one")),
        *(({"limit": 1, "offset": 1}, "two"), ({"states": []}, ""), ({"trail_id": child.id}, "")),
    ):
        assert " ".join(crumb.name for crumb in shelf.crumbs.fetch(wanted)) == found, wanted
    with pytest.raises(errors.InvalidFilter):
        shelf.crumbs.fetch({"states": "taken"})


def test_s12_a_trail_is_brought_on_in_memory_and_saved_in_one_transaction(shelf: Shelf) -> None:
    trail, crumb = Trail("release", "draft"), Crumb("it")
    id = shelf.trails.set("", trail)
    shelf.crumbs.set("", crumb)
    shelf.links.set("", Link("belongs_to", crumb.id, id))
    stale, before = shelf.trails.get(id), shelf.ws.revision
    trail.State = "pending"
    trail.SetState("active")
    trail.Complete()
    assert shelf.trails.get(id).state == "draft"
    shelf.trails.set(id, trail)
    assert shelf.ws.revision == before + 1
    assert (trail.State, trail.CompletedAt is not None, shelf.links.fetch()) == ("completed", True, [])
    assert shelf.crumbs.get(crumb.id).name == "it"
    stale.abandon()
    with pytest.raises(errors.VersionMismatch):
        shelf.trails.set(id, stale)
    with pytest.raises(errors.InvalidTransition):
        trail.abandon()
    assert [each.id for each in shelf.trails.fetch({"state": "completed", "Name": "release"})] == [id]
    assert shelf.trails.fetch({"state": "draft"}) == []


def test_s12_a_trail_that_cannot_end_stays_as_it_is(shelf: Shelf) -> None:
    trail = shelf.trail()
    lock = shelf.stash("lock", "lock", trail_id=trail.id)
    lock.acquire("w1")
    shelf.stashes.set(lock.id, lock)
    trail.abandon()
    with pytest.raises(errors.Held):
        shelf.trails.set(trail.id, trail)
    assert shelf.trails.get(trail.id).state == "active"
    lock.release("w1")
    shelf.stashes.set(lock.id, lock)
    shelf.trails.set(trail.id, trail)
    assert (shelf.trails.get(trail.id).state, shelf.stashes.fetch()) == ("abandoned", [])
    shelf.trails.delete(trail.id)
    with pytest.raises(errors.NotFound):
        shelf.trails.get(trail.id)
    with pytest.raises(errors.InvalidName):
        shelf.trails.set("", Trail(""))
    with pytest.raises(errors.InvalidTransition):
        shelf.trails.set("", Trail("x", "completed"))


def test_s11_a_link_never_changes(shelf: Shelf) -> None:
    trail, other, stash = shelf.trail("one"), shelf.trail("other"), shelf.stash()
    link = Link("scoped_to", stash.id, trail.id)
    id = shelf.links.set("", link)
    assert shelf.links.set(id, link) == id
    link.ToID = other.id
    with pytest.raises(errors.Invalid):
        shelf.links.set(id, link)
    assert shelf.links.get(id).to_id == trail.id
    assert shelf.links.set("", Link("scoped_to", stash.id, trail.id)) == id  # each triple once
    with pytest.raises(errors.InvalidType):
        shelf.links.set("", Link("above", stash.id, trail.id))
    shelf.links.delete(id)
    for use in (shelf.links.get, shelf.links.delete):
        with pytest.raises(errors.NotFound):
            use(id)
