"""The specification of stashes, one test for each of its numbered requirements: tables, errors and scope, R8 to R13."""

from __future__ import annotations

import pytest

from holdfast import cupboard, errors
from holdfast.cupboard import Cupboard, Stash
from holdfast.cupboard.entities import Link
from tests.cupboard.conftest import Shelf

NOBODY = "01890000-0000-7000-8000-000000000000"


def names(found: list[Stash]) -> list[str]:
    return [stash.name for stash in found]


def scope(shelf: Shelf, stash: Stash, trail: str) -> Link:
    """A scoped_to link that is stored."""
    link = Link("scoped_to", stash.id, trail)
    shelf.links.set("", link)
    return link


# --- R8: retrieving --------------------------------------------------------------------------------------------------


def test_r8_1_a_stash_is_loaded_by_its_id(shelf: Shelf) -> None:
    stash = shelf.stash("it", "context", {"a": 1})
    loaded = shelf.stashes.get(stash.id)
    assert (loaded.id, loaded.name, loaded.value, loaded.version) == (stash.id, "it", {"a": 1}, 1)


def test_r8_2_what_is_loaded_is_a_stash_of_its_own_each_time(shelf: Shelf) -> None:
    id = shelf.stash("it", "context", {"a": 1}).id
    one, two = shelf.stashes.Get(id), shelf.stashes.Get(id)
    assert isinstance(one, Stash)
    one.value["a"] = 2
    assert (one is two, two.value) == (False, {"a": 1})


def test_r8_3_an_unknown_id_is_not_found(shelf: Shelf) -> None:
    with pytest.raises(errors.NotFound):
        shelf.stashes.get(NOBODY)


def test_r8_4_an_empty_id_is_invalid(shelf: Shelf) -> None:
    with pytest.raises(errors.InvalidID):
        shelf.stashes.get("")


# --- R9: filters -----------------------------------------------------------------------------------------------------


def test_r9_1_a_filter_maps_names_to_what_is_wanted(shelf: Shelf) -> None:
    shelf.stash("one")
    assert names(shelf.stashes.fetch({"name": "one"})) == ["one"]
    for wrong in ("name", ["name"], 7):
        with pytest.raises(errors.InvalidFilter):
            shelf.stashes.fetch(wrong)


def test_r9_2_type_name_limit_and_offset_filter_in_both_spellings(shelf: Shelf) -> None:
    for name, stash_type in (("a", "lock"), ("b", "counter"), ("c", "lock"), ("d", "lock")):
        shelf.stash(name, stash_type)
    for wanted, found in (
        ({"stash_type": "lock"}, "acd"),
        ({"StashType": "lock"}, "acd"),
        ({"name": "b"}, "b"),
        ({"Name": "B"}, ""),
        ({"limit": 2}, "ab"),
        ({"limit": 0}, "abcd"),
        ({"offset": 3}, "d"),
        ({"Offset": 1, "Limit": 2}, "bc"),
        ({"offset": 9}, ""),
        ({"stash_type": "heap"}, ""),
    ):
        assert "".join(names(shelf.stashes.fetch(wanted))) == found, wanted
    for wrong in ({"stash_type": 1}, {"name": ["b"]}, {"limit": "2"}, {"limit": True}, {"offset": -1}, {"TrailID": 1}):
        with pytest.raises(errors.InvalidFilter):
            shelf.stashes.fetch(wrong)


def test_r9_2_1_the_links_tell_the_stashes_of_a_trail_and_so_does_trail_id(shelf: Shelf) -> None:
    trail = shelf.trail()
    inside, _ = shelf.stash("in", trail_id=trail.id), shelf.stash("out")
    linked = [link.from_id for link in shelf.links.fetch({"LinkType": "scoped_to", "ToID": trail.id})]
    assert linked == [inside.id] == [stash.id for stash in shelf.stashes.fetch({"trail_id": trail.id})]
    assert names(shelf.stashes.fetch({"trail_id": ""})) == ["out"]


def test_r9_3_no_filter_and_an_empty_one_match_all(shelf: Shelf) -> None:
    shelf.stash("one")
    shelf.stash("two", trail_id=shelf.trail().id)
    for wanted in (None, {}, {"name": None}):
        assert names(shelf.stashes.fetch(wanted)) == ["one", "two"]
    assert names(shelf.stashes.fetch()) == ["one", "two"]


def test_r9_4_every_key_of_a_filter_must_match(shelf: Shelf) -> None:
    trail = shelf.trail()
    shelf.stash("a", "lock")
    shelf.stash("a", "counter", trail_id=trail.id)
    shelf.stash("b", "lock", trail_id=trail.id)
    assert len(shelf.stashes.fetch({"name": "a"})) == 2
    assert len(shelf.stashes.fetch({"name": "a", "stash_type": "lock"})) == 1
    assert shelf.stashes.fetch({"name": "a", "stash_type": "lock", "trail_id": trail.id}) == []


def test_r9_5_unknown_keys_are_ignored(shelf: Shelf) -> None:
    shelf.stash("one")
    assert names(shelf.stashes.fetch({"colour": "red", "name": "one", "Version": object()})) == ["one"]


def test_r9_6_the_oldest_come_first(shelf: Shelf) -> None:
    for name in "zmaqb":
        shelf.stash(name)
        shelf.clock.advance(1)
    found = shelf.stashes.fetch()
    assert names(found) == [*"zmaqb"]
    assert [stash.created_at for stash in found] == sorted(stash.created_at for stash in found)


# --- R10: querying ---------------------------------------------------------------------------------------------------


def test_r10_1_fetch_takes_a_filter(shelf: Shelf) -> None:
    trail = shelf.trail()
    shelf.stash("lock", "lock", trail_id=trail.id)
    shelf.stash("count", "counter", trail_id=trail.id)
    assert names(shelf.stashes.Fetch({"trail_id": trail.id, "stash_type": "lock"})) == ["lock"]


def test_r10_2_what_is_fetched_is_a_list_of_stashes_that_can_be_saved(shelf: Shelf) -> None:
    shelf.stash("a")
    shelf.stash("b")
    found = shelf.stashes.fetch()
    for stash in found:
        assert isinstance(stash, Stash)
        stash.increment(3)
        shelf.stashes.set(stash.id, stash)
    assert [stash.value for stash in shelf.stashes.fetch()] == [{"value": 3}] * 2


def test_r10_3_nothing_found_is_an_empty_list(shelf: Shelf) -> None:
    assert shelf.stashes.fetch() == []
    assert shelf.stashes.fetch({"name": ""}) == []
    assert shelf.stashes.fetch({"trail_id": NOBODY}) == []


# --- R11: deleting ---------------------------------------------------------------------------------------------------


def test_r11_1_a_stash_is_deleted_by_its_id(shelf: Shelf) -> None:
    one, two = shelf.stash("one"), shelf.stash("two")
    shelf.stashes.Delete(one.id)
    assert [stash.id for stash in shelf.stashes.fetch()] == [two.id]


def test_r11_2_its_history_goes_with_it(shelf: Shelf) -> None:
    stash = shelf.stash("it", "context", {"secret": "x"})
    shelf.stashes.delete(stash.id)
    with pytest.raises(errors.NotFound):
        shelf.stashes.history(stash.id)
    assert [event.data for event in shelf.ws.events.list(kinds=["stash"], id=stash.id)] == [{}, {}]


def test_r11_3_deleting_what_is_not_there_is_not_found(shelf: Shelf) -> None:
    stash = shelf.stash()
    shelf.stashes.delete(stash.id)
    for id in (stash.id, NOBODY):
        with pytest.raises(errors.NotFound):
            shelf.stashes.delete(id)


def test_r11_4_deleting_an_empty_id_is_invalid(shelf: Shelf) -> None:
    with pytest.raises(errors.InvalidID):
        shelf.stashes.delete("")


def test_r11_5_a_held_lock_is_not_deleted_until_it_is_given_back(shelf: Shelf) -> None:
    lock = shelf.stash("lock", "lock")
    lock.acquire("w1")
    shelf.stashes.set(lock.id, lock)
    with pytest.raises(errors.Held):
        shelf.stashes.delete(lock.id)
    assert shelf.stashes.get(lock.id).value["holder"] == "w1"
    lock.release("w1")
    shelf.stashes.set(lock.id, lock)
    shelf.stashes.delete(lock.id)
    assert shelf.stashes.fetch() == []


def test_r11_6_a_deletion_is_whole_or_it_is_none(shelf: Shelf) -> None:
    trail = shelf.trail()
    lock = shelf.stash("lock", "lock", trail_id=trail.id)
    lock.acquire("w1")
    shelf.stashes.set(lock.id, lock)
    before = shelf.ws.revision
    with pytest.raises(errors.Held):
        shelf.stashes.delete(lock.id)
    assert (shelf.ws.revision, len(shelf.links.fetch()), len(shelf.stashes.history(lock.id))) == (before, 1, 2)
    lock.release("w1")
    shelf.stashes.set(lock.id, lock)
    before = shelf.ws.revision
    shelf.stashes.delete(lock.id)
    written = shelf.ws.events.list(after=before)
    assert {(event.kind, event.op) for event in written} == {("stash", "delete"), ("link", "delete")}
    assert len({event.revision for event in written}) == 1
    assert shelf.links.fetch() == []
    assert shelf.ws.check().problems == []


# --- R12: errors -----------------------------------------------------------------------------------------------------


def test_r12_1_each_refusal_has_its_name(shelf: Shelf) -> None:
    lock = shelf.stash("lock", "lock")
    lock.acquire("w1")
    shelf.stashes.set(lock.id, lock)
    spare = Cupboard()
    spare.attach({"path": ":memory:"})
    table = spare.table("stashes")
    spare.detach()
    for refused, error in (
        (lambda: shelf.stashes.get(NOBODY), cupboard.ErrNotFound),
        (lambda: shelf.stashes.get(""), cupboard.ErrInvalidID),
        (lambda: shelf.stashes.set("", Stash("", "lock")), cupboard.ErrInvalidName),
        (lambda: shelf.stashes.set("", Stash("x", "y")), cupboard.ErrInvalidStashType),
        (lambda: lock.increment(1), cupboard.ErrInvalidStashType),
        (lambda: shelf.stashes.delete(lock.id), cupboard.ErrLockHeld),
        (lambda: lock.acquire("w2"), cupboard.ErrLockHeld),
        (lambda: lock.release("w2"), cupboard.ErrNotLockHolder),
        (lambda: lock.acquire(""), cupboard.ErrInvalidHolder),
        (lambda: table.get(NOBODY), cupboard.ErrCupboardDetached),
    ):
        with pytest.raises(error):
            refused()


def test_r12_2_an_error_is_told_by_its_class_also_when_it_comes_from_afar(shelf: Shelf) -> None:
    with pytest.raises(errors.HoldfastError) as refusal:
        shelf.stashes.get(NOBODY)
    assert (type(refusal.value), refusal.value.code) == (errors.NotFound, "NOT_FOUND")


def test_r12_3_more_refusals_are_there_where_they_are_needed(shelf: Shelf) -> None:
    shelf.stash("same")
    with pytest.raises(cupboard.ErrDuplicateName):
        shelf.stash("same")
    with pytest.raises(errors.InvalidValue):
        shelf.stash("other", "context", ["no object"])
    with pytest.raises(cupboard.ErrInvalidFilter):
        shelf.stashes.fetch({"limit": -1})


# --- R13: scope ------------------------------------------------------------------------------------------------------


def test_r13_1_a_scoped_to_link_puts_a_stash_into_a_trail(shelf: Shelf) -> None:
    trail, stash = shelf.trail(), shelf.stash()
    link = shelf.links.get(scope(shelf, stash, trail.id).id)
    assert (link.LinkType, link.FromID, link.ToID) == ("scoped_to", stash.id, trail.id)


def test_r13_2_a_stash_is_in_one_trail_at_most(shelf: Shelf) -> None:
    trail, other, stash = shelf.trail("one"), shelf.trail("other"), shelf.stash()
    link = scope(shelf, stash, trail.id)
    with pytest.raises(errors.Exists):
        scope(shelf, stash, other.id)
    assert len(shelf.links.fetch({"from_id": stash.id})) == 1
    shelf.links.delete(link.id)
    scope(shelf, stash, other.id)
    assert shelf.stashes.get(stash.id).trail_id == other.id


def test_r13_3_without_a_link_a_stash_is_global(shelf: Shelf) -> None:
    trail = shelf.trail()
    stash = shelf.stash("it", trail_id=trail.id)
    (link,) = shelf.links.fetch({"from_id": stash.id})
    shelf.links.delete(link.id)
    assert shelf.stashes.get(stash.id).trail_id is None
    with pytest.raises(errors.DuplicateName):
        shelf.stash("it")


def test_r13_4_scope_is_made_by_the_table_of_links_and_names_are_checked_there(shelf: Shelf) -> None:
    trail = shelf.trail()
    shelf.stash("taken", trail_id=trail.id)
    stash = shelf.stash("taken")
    with pytest.raises(errors.DuplicateName):
        shelf.links.set("", Link(LinkType="scoped_to", FromID=stash.StashID, ToID=trail.TrailID))
    free = shelf.stash("free")
    shelf.links.Set("", Link(LinkType="scoped_to", FromID=free.StashID, ToID=trail.TrailID))
    assert names(shelf.stashes.fetch({"trail_id": trail.id})) == ["taken", "free"]


def test_r13_5_the_links_tell_the_trail_of_a_stash(shelf: Shelf) -> None:
    trail, stash = shelf.trail(), shelf.stash()
    scope(shelf, stash, trail.id)
    found = shelf.links.fetch({"link_type": "scoped_to", "from_id": stash.id})
    assert [link.to_id for link in found] == [trail.id]


def test_r13_6_the_links_tell_all_stashes_of_a_trail(shelf: Shelf) -> None:
    trail, other = shelf.trail("one"), shelf.trail("other")
    own = [shelf.stash(name, trail_id=trail.id).id for name in "abc"]
    shelf.stash("d", trail_id=other.id)
    found = shelf.links.fetch({"link_type": "scoped_to", "to_id": trail.id})
    assert sorted(link.from_id for link in found) == own
