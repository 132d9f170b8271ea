"""The cupboard itself: attaching and detaching, its tables, and saving what was loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import errors
from holdfast.cupboard import Cupboard, Stash
from holdfast.cupboard.entities import Crumb, Link, Trail
from holdfast.testing import ManualClock
from holdfast.testing.crowd import LONG, Line, start
from tests.cupboard.conftest import Shelf
from tests.worlds.served import shared_server

TABLES = ("crumbs", "trails", "links", "stashes")
LOOKS = 10_000_000


# --- attaching -------------------------------------------------------------------------------------------------------


def test_s1_a_cupboard_is_attached_once_at_a_time(shelf: Shelf) -> None:
    with pytest.raises(errors.AlreadyAttached):
        shelf.cupboard.attach(shelf.config)
    shelf.stash("still here")
    assert len(shelf.stashes.fetch()) == 1


def test_s1_a_folder_a_server_and_an_open_workspace_can_be_attached(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "store", actor="me") as ws:
        server = shared_server()
        name = server.add(tmp_path / "store", ManualClock())
        try:
            places: list[dict[str, Any]] = [{"path": str(tmp_path / "store")}, {"workspace": ws}]
            places.append({"url": f"{server.url}/{name}", "token": server.token})
            for number, place in enumerate(places):
                cupboard = Cupboard()
                cupboard.Attach({**place, "actor": "ann"})
                cupboard.GetTable("stashes").Set("", Stash(f"by {number}", "context"))
                cupboard.Detach()
            made = ws.events.list(kinds=["stash"])
            assert [(event.actor, event.op) for event in made] == [("ann", "create")] * 3
        finally:
            server.remove(name)


def test_s1_what_names_no_workspace_is_refused_and_leaves_the_cupboard_free(tmp_path: Path) -> None:
    cupboard = Cupboard()
    for config in (
        {},
        {"path": ""},
        {"path": "x", "url": "y"},
        {"path": ":memory:", "backend": "x"},
        "path",
        {"url": ""},
        {"path": 5},
        {"path": ["x"]},
        {"url": 5},
        {"url": "http://127.0.0.1:1", "token": 5},
        {"path": ":memory:", "actor": 5},
        {"workspace": ":memory:"},
    ):
        with pytest.raises(errors.Invalid):
            cupboard.attach(config)  # type: ignore[arg-type]
    cupboard.attach({"path": ":memory:"})
    cupboard.detach()


def test_s1_after_detach_everything_is_closed_until_it_is_attached_again(tmp_path: Path) -> None:
    cupboard = Cupboard()
    with pytest.raises(errors.Closed):
        cupboard.table("stashes")
    cupboard.detach()
    cupboard.attach({"path": tmp_path / "store", "actor": "me"})
    table, stash = cupboard.table("stashes"), Stash("it", "counter")
    table.set("", stash)
    cupboard.detach()
    cupboard.detach()
    for use in (
        *(lambda: cupboard.table("stashes"), lambda: table.get(stash.id), lambda: table.set(stash.id, stash)),
        *(lambda: table.delete(stash.id), lambda: table.fetch(), lambda: cupboard.table("no such")),
    ):
        with pytest.raises(errors.Closed):
            use()
    cupboard.attach({"path": tmp_path / "store", "actor": "me"})
    with pytest.raises(errors.Closed):
        table.get(stash.id)  # a table of before stays closed
    assert cupboard.table("stashes").get(stash.id).name == "it"
    cupboard.detach()


def test_s1_a_workspace_that_was_given_open_stays_open() -> None:
    with holdfast.open(":memory:", actor="me") as ws:
        cupboard = Cupboard()
        cupboard.attach({"workspace": ws})
        cupboard.detach()
        assert ws.stashes.list() == []


def test_s1_detach_waits_for_what_is_running() -> None:
    cupboard = Cupboard()
    with holdfast.open(":memory:", actor="me") as ws:
        cupboard.attach({"workspace": ws})
        table = cupboard.table("stashes")
        with Line(ws) as line:
            running = line.queue(lambda: table.set("", Stash("it", "counter")))
            detaching = start(cupboard.detach)
            assert any(is_closed(cupboard) for _ in range(LOOKS)), "nothing is refused while it is being detached"
            assert not detaching.done()
        id = running.result(LONG)
        detaching.result(LONG)
        assert ws.stashes.get(id).name == "it"


def is_closed(cupboard: Cupboard) -> bool:
    try:
        cupboard.table("stashes")
    except errors.Closed:
        return True
    return False


def test_s1_there_are_four_tables_and_no_other(shelf: Shelf) -> None:
    for name in TABLES:
        assert shelf.cupboard.get_table(name).fetch() == []
    unknown: list[Any] = ["properties", "", "Stashes", None]
    for name in unknown:
        with pytest.raises(errors.TableNotFound):
            shelf.cupboard.table(name)


def test_s1_an_entity_of_another_table_is_refused(shelf: Shelf) -> None:
    entities = {"crumbs": Crumb("a"), "trails": Trail("a"), "links": Link(), "stashes": Stash("a", "lock")}
    for table in TABLES:
        for own, entity in entities.items():
            if own != table:
                with pytest.raises(errors.Invalid):
                    shelf.cupboard.table(table).set("", entity)
    assert shelf.ws.revision == 0


# --- saving ----------------------------------------------------------------------------------------------------------


def test_s2_a_stale_stash_is_refused_whatever_was_done_to_it(shelf: Shelf) -> None:
    stash = shelf.stash("it", "context", {"a": 1})
    stale, unchanged = shelf.stashes.get(stash.id), shelf.stashes.get(stash.id)
    stash.set_value({"a": 2})
    shelf.stashes.set(stash.id, stash)
    for _ in range(5):
        stale.set_value({"a": 9})  # its version in memory is beyond the stored one by now
    for each in (stale, unchanged):
        with pytest.raises(errors.VersionMismatch) as refusal:
            shelf.stashes.set(stash.id, each)
        assert (refusal.value.expected, refusal.value.version) == (1, 2)
    assert shelf.stashes.get(stash.id).value == {"a": 2}
    assert len(shelf.stashes.history(stash.id)) == 2


def test_s2_what_was_not_loaded_overwrites_nothing(shelf: Shelf) -> None:
    stash, other = shelf.stash("it", "context", {"a": 1}), shelf.stash("other", "context")
    with pytest.raises(errors.VersionMismatch):
        shelf.stashes.set(stash.id, Stash("it", "context", {"a": 2}))
    for id in (other.id, "", "no such"):
        with pytest.raises(errors.InvalidID):
            shelf.stashes.set(id, stash)
    shelf.stashes.delete(other.id)
    other.set_value({"b": 1})
    with pytest.raises(errors.NotFound):
        shelf.stashes.set(other.id, other)
    assert [(each.name, each.value, each.version) for each in shelf.stashes.fetch()] == [("it", {"a": 1}, 1)]


def test_s2_an_unknown_id_is_not_found(shelf: Shelf) -> None:
    for table, entity in ((shelf.stashes, Stash("new", "context")), (shelf.crumbs, Crumb("new"))):
        with pytest.raises(errors.NotFound):
            table.set("no-such", entity)  # type: ignore[arg-type]


def test_s2_a_version_that_is_set_by_hand_is_not_stored(shelf: Shelf) -> None:
    stash = shelf.stash("it", "counter")
    for version in (50, 0):
        stash.Version = version
        with pytest.raises(errors.Invalid, match="the version of the stash 'it' is 1, not"):
            shelf.stashes.set(stash.id, stash)
    stash.version = 1
    stash.increment()
    stash.Version = 50
    with pytest.raises(errors.Invalid):
        shelf.stashes.set(stash.id, stash)
    assert shelf.ws.stashes.get(stash.id).version == 1
    stash.Version = 2
    shelf.stashes.set(stash.id, stash)
    assert shelf.ws.stashes.get(stash.id).version == 2


def test_s2_saving_what_was_not_changed_writes_nothing(shelf: Shelf) -> None:
    stash = shelf.stash()
    before = shelf.ws.revision
    assert shelf.stashes.set(stash.id, stash) == stash.id
    assert (shelf.ws.revision, stash.version) == (before, 1)


def test_s2_a_value_that_was_changed_in_place_or_assigned_is_saved_too(shelf: Shelf) -> None:
    stash = shelf.stash("it", "context", {"list": [1]})
    stash.value["list"].append(2)
    shelf.stashes.set(stash.id, stash)
    stash.Value = {"list": []}
    shelf.stashes.set(stash.id, stash)
    assert [(each.operation, each.version, each.value["list"]) for each in shelf.stashes.history(stash.id)] == [
        *(("create", 1, [1]), ("set", 2, [1, 2]), ("set", 3, [])),
    ]


def test_s2_the_value_of_a_lock_is_not_changed_behind_its_back(shelf: Shelf) -> None:
    lock = shelf.stash("lock", "lock")
    lock.acquire("w1")
    lock.value["holder"] = "w2"
    with pytest.raises(errors.InvalidStashType):
        lock.value = None
    shelf.stashes.set(lock.id, lock)
    assert shelf.stashes.get(lock.id).value["holder"] == "w1"


def test_s2_a_lock_that_changed_hands_in_memory_is_saved_as_one_change(shelf: Shelf) -> None:
    lock = shelf.stash("lock", "lock")
    lock.acquire("w1")
    lock.release("w1")
    shelf.stashes.set(lock.id, lock)
    lock.acquire("w1")
    shelf.stashes.set(lock.id, lock)
    first = lock.token
    lock.release("w1")
    lock.acquire("w2")
    shelf.stashes.set(lock.id, lock)
    assert (lock.token or 0) > (first or 0) > 0
    found = [
        (each.operation, each.version, each.value and each.value["holder"]) for each in shelf.stashes.history(lock.id)
    ]
    assert found == [("create", 1, None), ("release", 3, None), ("acquire", 4, "w1"), ("acquire", 6, "w2")]
    assert shelf.ws.check().problems == []


def test_s2_whoever_waits_in_line_comes_before_a_save(shelf: Shelf) -> None:
    lock = shelf.stash("lock", "lock")
    shelf.ws.stashes.acquire(lock.id, "w1")
    with shelf.ws.watch(["stash-lock"], after=shelf.ws.revision, timeout=LONG) as watch:
        waiting = start(lambda: shelf.ws.stashes.acquire(lock.id, "w2", wait=LONG))
        assert next(event.op for event in watch) == "wait"
        mine = shelf.stashes.get(lock.id)
        mine.release("w1")
        mine.acquire("w3")
        with pytest.raises(errors.Held) as refusal:
            shelf.stashes.set(lock.id, mine)
        assert (refusal.value.holder, shelf.stashes.get(lock.id).value["holder"]) == ("w2", "w1")
        shelf.ws.stashes.release(lock.id, "w1")
        assert waiting.result(LONG).holder == "w2"


def test_s2_a_holder_whose_time_was_over_cannot_save(shelf: Shelf) -> None:
    lock = shelf.stash("lock", "lock")
    shelf.ws.stashes.acquire(lock.id, "w1", ttl=5)
    late = shelf.stashes.get(lock.id)
    shelf.clock.advance(6)
    shelf.ws.stashes.acquire(lock.id, "w2")
    for change in (lambda: late.acquire("w1"), lambda: late.release("w1")):
        change()  # type: ignore[no-untyped-call]
        with pytest.raises(errors.VersionMismatch):
            shelf.stashes.set(lock.id, late)
    assert shelf.stashes.get(lock.id).value["holder"] == "w2"


def test_s2_save_takes_only_what_so_many_changes_can_lead_to(shelf: Shelf) -> None:
    lock, counter = shelf.stash("lock", "lock"), shelf.stash()
    save = shelf.ws.stashes.save
    shelf.ws.stashes.acquire(lock.id, "w1")
    for version, operation, holder, error in (
        *((3, "acquire", "w2", errors.Held), (3, "release", "w2", errors.NotHolder)),
        *((4, "release", "w2", errors.NotHolder), (3, "acquire", "", errors.InvalidHolder)),
        *((3, "set", None, errors.InvalidStashType), (2, "release", "w1", errors.Invalid)),
        *((4, "acquire", "w2", errors.Held), (5, "release", "w2", errors.NotHolder)),
        *((2**62, "release", "w1", errors.Invalid), (3, "acquire", None, errors.InvalidHolder)),
    ):
        with pytest.raises(error):
            save(lock.id, 2, version, operation, holder=holder)  # type: ignore[arg-type]
    for value, error in (({"value": "x"}, errors.InvalidValue), ([], errors.InvalidValue)):
        with pytest.raises(error):
            save(counter.id, 1, 2, "increment", value)
    with pytest.raises(errors.InvalidStashType):
        save(counter.id, 1, 2, "acquire", holder="w1")
    assert (shelf.stashes.get(lock.id).version, shelf.stashes.get(counter.id).version) == (2, 1)


def test_s7_more_than_a_page_is_fetched_whole(tmp_path: Path) -> None:
    with holdfast.open(":memory:", actor="me") as ws:
        many = 2300
        ws.transact(lambda tx: [tx.stashes.create(f"s{number:04}", "context") for number in range(many)] and None)
        cupboard = Cupboard()
        cupboard.attach({"workspace": ws})
        table = cupboard.table("stashes")
        for wanted, first, count in (
            *(({}, 0, many), ({"limit": 1000}, 0, 1000), ({"limit": 1500}, 0, 1500)),
            *(({"offset": 700}, 700, 1600), ({"offset": 1300}, 1300, 1000)),
        ):
            assert [stash.name for stash in table.fetch(wanted)] == [f"s{first + n:04}" for n in range(count)]


def test_s1_a_field_that_is_none_is_a_mistake_in_either_spelling() -> None:
    with pytest.raises(TypeError):
        Stash("a", "lock", Colour="red")
    with pytest.raises(TypeError):
        Link(FromId="a")
    assert "value={'a': 1}" in repr(Stash("a", "context", {"a": 1}))
