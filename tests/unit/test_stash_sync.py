"""Importing again and again what goes on elsewhere: what only went on there is followed, whole; nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

import holdfast
from holdfast import Workspace, errors
from holdfast.domains.stashes.rows import leads
from holdfast.interchange.stash_export import TABLES
from holdfast.testing import ManualClock
from holdfast.types import ImportReport
from tests.unit.test_stash_transfer import counts, exported, filled


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def there(clock: ManualClock) -> Iterator[Workspace]:
    with holdfast.open(":memory:", actor="ann", clock=clock) as workspace:
        yield workspace
        assert workspace.check().problems == []


@pytest.fixture
def here(clock: ManualClock) -> Iterator[Workspace]:
    with holdfast.open(":memory:", actor="bob", clock=clock) as workspace:
        yield workspace
        assert workspace.check().problems == []


def sync(source: Workspace, target: Workspace) -> ImportReport:
    """One import of all there is, after which a second one changes nothing."""
    tables = exported(source)
    trial = target.stashes.import_(tables, dry_run=True)
    report = target.stashes.import_(tables)
    assert (report.skipped, report.updated, report.created) == ([], trial.updated, trial.created)
    revision = target.revision
    again = target.stashes.import_(tables)
    assert (filled(again.created), filled(again.updated), target.revision) == ({}, {}, revision)
    assert again.conflicts == report.conflicts
    assert target.check().problems == []
    return report


def trail_with_all(ws: Workspace, clock: ManualClock) -> tuple[str, list[str], str]:
    """A trail with two tasks, one of them with a child, and a counter."""
    trail = ws.trails.create("t", "active").id
    tasks = [ws.tasks.create(f"task {number}").id for number in range(2)]
    child = ws.tasks.create("child", parent_id=tasks[0]).id
    for task in tasks:
        ws.trails.add(trail, task)
    counter = ws.stashes.create("hits", "counter", trail=trail).id
    ws.stashes.increment(counter, 3)
    clock.advance(1)
    return trail, [*tasks, child], counter


def alive(ws: Workspace, tasks: list[str]) -> list[bool]:
    return [ws.tasks.get(task, include_deleted=True).deleted_at is None for task in tasks]


# --- stashes ---------------------------------------------------------------------------------------------------------


def test_s13_a_stash_that_has_gone_on_there_is_followed(here: Workspace, there: Workspace, clock: ManualClock) -> None:
    counter = there.stashes.create("hits", "counter").id
    context = there.stashes.create("config", "context", {"a": 1}).id
    sync(there, here)
    clock.advance(1)
    there.stashes.increment(counter, 2)
    there.stashes.increment(counter, 5)
    there.stashes.set_value(context, {"a": [2]})
    report = sync(there, here)
    assert filled(report.updated) == {"stashes": [counter, context]}
    assert counts(report.created) == {"stash_history": 3}
    assert counts(report.unchanged) == {"stash_history": 2}
    assert report.conflicts == []
    assert exported(here) == exported(there)
    assert here.stashes.increment(counter) == 8


def test_s13_a_stash_goes_to_and_fro(here: Workspace, there: Workspace) -> None:
    counter = there.stashes.create("hits", "counter").id
    for source, target in ((there, here), (here, there), (there, here), (here, there)):
        source.stashes.increment(counter)
        assert sync(source, target).conflicts == []
        assert exported(source) == exported(target)
    assert [entry.version for entry in there.stashes.history(counter)] == [1, 2, 3, 4, 5]


def test_s13_a_stash_that_went_on_here_or_on_both_sides_is_left_alone(here: Workspace, there: Workspace) -> None:
    ahead, both = (there.stashes.create(name, "counter").id for name in ("ahead", "both"))
    sync(there, here)
    here.stashes.increment(ahead, 10)
    here.stashes.increment(both, 10)
    there.stashes.increment(both)
    there.stashes.increment(both)
    before = exported(here)
    report = sync(there, here)
    assert [problem.id for problem in report.conflicts if problem.file == "stashes.jsonl"] == [ahead, both]
    assert exported(here) == before


def test_s13_a_lock_changes_hands_as_it_did_there(here: Workspace, there: Workspace, clock: ManualClock) -> None:
    lock = there.stashes.create("gate", "lock").id
    there.stashes.acquire(lock, "ann")
    sync(there, here)
    first = here.stashes.get(lock).token
    assert first is not None
    there.stashes.acquire(lock, "ann")  # once more: the same grant
    sync(there, here)
    assert here.stashes.get(lock).token == first
    there.stashes.release(lock, "ann")
    there.stashes.acquire(lock, "carl", ttl=60)
    assert filled(sync(there, here).updated) == {"stashes": [lock]}
    with pytest.raises(errors.Fenced):
        here.stashes.check(lock, first)
    with pytest.raises(errors.Held):
        here.stashes.acquire(lock, "bob")
    assert here.stashes.get(lock).held_until == there.stashes.get(lock).held_until
    there.stashes.refresh(lock, "carl", ttl=600)  # no new version
    token = here.stashes.get(lock).token
    sync(there, here)
    assert here.stashes.get(lock).held_until == there.stashes.get(lock).held_until
    assert here.stashes.get(lock).token == token
    there.stashes.release(lock, "carl")
    sync(there, here)
    assert here.stashes.acquire(lock, "bob").holder == "bob"


def test_s13_a_lock_that_expired_on_both_sides_has_not_diverged(
    here: Workspace, there: Workspace, clock: ManualClock
) -> None:
    lock = there.stashes.create("gate", "lock").id
    there.stashes.acquire(lock, "ann", ttl=5)
    sync(there, here)
    clock.advance(6)
    for each in (here, there):
        each.stashes.create("x", "context")  # whoever writes sweeps
        each.stashes.delete((None, "x"))
    there.stashes.acquire(lock, "ann")
    report = sync(there, here)
    assert (filled(report.updated), report.conflicts) == ({"stashes": [lock]}, [])
    assert [entry.operation for entry in here.stashes.history(lock)] == ["create", "acquire", "expire", "acquire"]


# --- trails ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made_by", ["there", "here"])
def test_s13_a_trail_that_was_abandoned_there_is_so_here_with_all_that_belongs_to_it(
    here: Workspace, there: Workspace, clock: ManualClock, made_by: str
) -> None:
    """Whoever made its tasks: nothing of them was changed here."""
    maker, other = (there, here) if made_by == "there" else (here, there)
    trail, tasks, counter = trail_with_all(maker, clock)
    sync(maker, other)
    there.stashes.increment(counter)
    late = there.stashes.create("late", "context", trail=trail).id
    there.trails.abandon(trail, "enough")
    report = sync(there, here)
    assert report.conflicts == []
    assert report.updated["trails"] == [trail]
    assert report.updated["stashes"] == [counter]
    assert sorted(report.updated["crumbs"]) == sorted(tasks)
    assert here.trails.get(trail).state == "abandoned"
    assert here.stashes.find("hits", trail) is None
    assert alive(here, tasks) == [False] * 3
    assert exported(here) == exported(there)
    here.trails.restore(trail)
    assert alive(here, tasks) == [True] * 3
    assert here.stashes.get((trail, "hits")).value == {"value": 4}
    assert here.stashes.get(late).trail == trail


@pytest.mark.parametrize("made_by", ["there", "here"])
def test_s13_a_trail_that_was_restored_there_comes_back_here(
    here: Workspace, there: Workspace, clock: ManualClock, made_by: str
) -> None:
    maker, other = (there, here) if made_by == "there" else (here, there)
    trail, tasks, counter = trail_with_all(maker, clock)
    maker.trails.abandon(trail)
    sync(maker, other)
    clock.advance(1)
    there.trails.restore(trail)
    there.stashes.increment(counter)
    report = sync(there, here)
    assert report.conflicts == []
    assert here.trails.get(trail).state == "active"
    assert alive(here, tasks) == [True] * 3
    assert here.stashes.get((trail, "hits")).value == {"value": 4}
    assert exported(here) == exported(there)
    clock.advance(8 * 86400)  # longer than what is abandoned is kept
    assert here.stashes.get(counter).trail == trail


def test_s13_what_an_imported_trail_took_along_is_kept_as_long_as_deleted_tasks_are(
    here: Workspace, there: Workspace, clock: ManualClock
) -> None:
    trail, _, _ = trail_with_all(there, clock)
    there.trails.abandon(trail)
    clock.advance(5 * 86400)
    sync(there, here)
    for each, days in ((there, 3), (here, 5)):  # where it was imported it counts from the import
        clock.advance(days * 86400)
        each.tasks.create("whoever writes sweeps")
        each._engine.pulse.finish()  # the backup that the purge waits for
        clock.advance(600)
        each.tasks.create("after it")
        assert each.stashes.export("stashes") == []


def test_s13_a_trail_that_was_completed_there_lets_its_tasks_go_here(
    here: Workspace, there: Workspace, clock: ManualClock
) -> None:
    trail, tasks, counter = trail_with_all(there, clock)
    sync(there, here)
    there.trails.complete(trail)
    report = sync(there, here)
    assert (filled(report.updated), report.conflicts) == ({"trails": [trail]}, [])
    assert here.trails.members(trail) == []
    assert alive(here, tasks) == [True] * 3
    assert here.stashes.get(counter).trail == trail
    assert exported(here) == exported(there)


def test_s13_a_trail_goes_through_several_steps_at_once(here: Workspace, there: Workspace) -> None:
    trail = there.trails.create("t").id
    sync(there, here)
    for state in ("pending", "active", "abandoned"):
        there.trails.set_state(trail, state)
    there.trails.restore(trail)
    there.trails.complete(trail)
    assert filled(sync(there, here).updated) == {"trails": [trail]}
    assert (here.trails.get(trail).state, here.trails.get(trail).version) == ("completed", 6)
    assert exported(here) == exported(there)


def own_task(here: Workspace, trail: str, tasks: list[str]) -> None:
    here.trails.add(trail, here.tasks.create("mine").id)


def own_child(here: Workspace, trail: str, tasks: list[str]) -> None:
    here.tasks.create("mine", parent_id=tasks[1])


def edited_task(here: Workspace, trail: str, tasks: list[str]) -> None:
    here.tasks.update(tasks[0], title="as I see it")


def claimed_task(here: Workspace, trail: str, tasks: list[str]) -> None:
    here.tasks.claim(tasks[0])


def own_stash(here: Workspace, trail: str, tasks: list[str]) -> None:
    here.stashes.create("mine", "context", trail=trail)


def counted_on(here: Workspace, trail: str, tasks: list[str]) -> None:
    here.stashes.increment((trail, "hits"))


def held_lock(here: Workspace, trail: str, tasks: list[str]) -> None:
    here.stashes.acquire((trail, "gate"), "bob")


def completed(here: Workspace, trail: str, tasks: list[str]) -> None:
    here.trails.complete(trail)


@pytest.mark.parametrize(
    "change",
    [own_task, own_child, edited_task, claimed_task, own_stash, counted_on, held_lock, completed],
    ids=lambda change: change.__name__,
)
def test_s13_a_trail_that_cannot_be_abandoned_whole_is_left_alone_whole(
    here: Workspace, there: Workspace, clock: ManualClock, change: Callable[[Workspace, str, list[str]], None]
) -> None:
    trail, tasks, counter = trail_with_all(there, clock)
    there.stashes.create("gate", "lock", trail=trail)
    beside = there.stashes.create("beside", "counter").id
    sync(there, here)
    change(here, trail, tasks)
    before = exported(here)
    there.trails.abandon(trail)
    there.stashes.increment(beside)
    report = sync(there, here)
    assert trail in {problem.id for problem in report.conflicts}
    assert filled(report.updated) == {"stashes": [beside]}, "the rest is followed"
    assert here.trails.get(trail).state != "abandoned"
    assert alive(here, tasks) == [True] * 3
    assert here.stashes.get(counter).trail == trail
    after = exported(here)
    assert {table for table in TABLES if after[table] != before[table]} == {"stashes", "stash_history"}


def test_s13_an_older_file_brings_no_half_of_an_abandoned_trail_back(
    here: Workspace, there: Workspace, clock: ManualClock
) -> None:
    trail, tasks, _ = trail_with_all(there, clock)
    there.stashes.create("new", "context", trail=trail)
    old = exported(there)
    sync(there, here)
    there.trails.abandon(trail)
    sync(there, here)
    before = exported(here)
    report = here.stashes.import_(old)
    assert (filled(report.created), filled(report.updated), report.skipped) == ({}, {}, [])
    assert trail in {problem.id for problem in report.conflicts}
    assert exported(here) == before
    assert alive(here, tasks) == [False] * 3


def test_s13_what_is_new_in_a_trail_that_ended_here_is_told_and_refuses_nothing(
    here: Workspace, there: Workspace, clock: ManualClock
) -> None:
    gone, _, _ = trail_with_all(there, clock)
    done, _, _ = trail_with_all(there, clock)
    sync(there, here)
    here.trails.abandon(gone)
    here.trails.complete(done)
    new = [there.tasks.create("new").id for _ in range(2)]
    there.trails.add(gone, new[0])
    there.trails.add(done, new[1])
    late = there.stashes.create("late", "context", trail=gone).id
    report = sync(there, here)
    assert counts(report.created) == {"crumbs": 2}
    told = {problem.id for problem in report.conflicts}
    assert {gone, done, late} <= told
    assert here.stashes.find("late", gone) is None
    assert here.trails.members(gone) == here.trails.members(done) == []


def test_s13_a_bad_line_of_a_trail_does_not_take_its_tasks_along(
    here: Workspace, there: Workspace, clock: ManualClock
) -> None:
    trail, tasks, counter = trail_with_all(there, clock)
    sync(there, here)
    there.trails.abandon(trail)
    tables = exported(there)
    tables["trails"] = [json.dumps({**json.loads(tables["trails"][0]), "state": "asleep"})]
    with pytest.raises(errors.Invalid):
        here.stashes.import_(tables)
    here.stashes.import_(tables, skip_bad=True)
    assert alive(here, tasks) == [True] * 3
    assert here.stashes.get(counter).trail == trail


@pytest.mark.parametrize(
    ("start", "end", "steps", "can"),
    [
        (("draft", ""), ("active", ""), 1, True),
        (("draft", ""), ("active", ""), 2, True),
        (("draft", ""), ("completed", ""), 1, False),
        (("draft", ""), ("completed", ""), 2, True),
        (("active", ""), ("abandoned", "active"), 1, True),
        (("active", ""), ("abandoned", "draft"), 9, False),
        (("active", ""), ("pending", ""), 1001, False),
        (("active", ""), ("active", ""), 1000, True),
        (("active", ""), ("active", ""), 1001, False),
        (("abandoned", "draft"), ("draft", ""), 1, True),
        (("abandoned", "draft"), ("active", ""), 1, False),
        (("completed", ""), ("abandoned", "active"), 5, False),
    ],
)
def test_s12_a_state_is_reached_by_steps_that_exist(
    start: tuple[str, str], end: tuple[str, str], steps: int, can: bool
) -> None:
    assert leads(start, end, steps) is can


# --- links -----------------------------------------------------------------------------------------------------------


def test_s11_a_link_keeps_its_id_when_the_task_that_has_it_is_imported_again(here: Workspace, there: Workspace) -> None:
    tasks = [there.tasks.create(f"task {number}").id for number in range(3)]
    sync(there, here)
    made = there.links.create("depends_on", tasks[0], tasks[1])
    there.links.create("related", tasks[2], tasks[1])
    report = sync(there, here)
    assert report.conflicts == []
    assert here.links.get(made.id) == made
    assert exported(here) == exported(there)


def test_s11_a_task_that_belongs_to_another_trail_here_stays_there(here: Workspace, there: Workspace) -> None:
    task = there.tasks.create("x").id
    one, two = there.trails.create("one").id, there.trails.create("two").id
    sync(there, here)
    here.trails.add(one, task)
    there.trails.add(two, task)
    report = sync(there, here)
    assert [problem.file for problem in report.conflicts] == ["links.jsonl"]
    assert (here.trails.members(one), here.trails.members(two)) == ([task], [])


# --- lines that a merge of two files leaves twice --------------------------------------------------------------------


def twice(old: dict[str, list[str]], new: dict[str, list[str]]) -> dict[str, list[str]]:
    return {table: [*new[table], *old[table]] for table in old}


def test_s13_of_two_lines_of_a_trail_or_a_stash_the_newer_counts(
    here: Workspace, there: Workspace, clock: ManualClock
) -> None:
    trail = there.trails.create("t").id
    counter = there.stashes.create("hits", "counter", trail=trail).id
    old = exported(there)
    clock.advance(1)
    there.stashes.increment(counter, 3)
    there.trails.set_state(trail, "active")
    report = here.stashes.import_(twice(old, exported(there)))
    assert (report.skipped, report.conflicts) == ([], [])
    assert exported(here) == exported(there)


def test_s13_of_two_lines_of_a_task_the_later_counts_and_nobody_loses_what_is_their_own(
    here: Workspace, there: Workspace, clock: ManualClock
) -> None:
    task = there.tasks.create("base").id
    sync(there, here)
    old = exported(there)
    for each, title in ((here, "mine"), (there, "theirs")):
        clock.advance(1)
        each.tasks.update(task, title=title)
    new, own = exported(there), exported(here)
    for tables in (twice(old, new), twice(new, old), twice(new, new)):
        with holdfast.open(":memory:", actor="carl", clock=clock) as third:
            report = third.stashes.import_(tables)
            assert third.tasks.get(task).title == "theirs"
            assert len(report.warnings) == (tables["crumbs"][0] != tables["crumbs"][1])
    report = here.stashes.import_(twice(own, new))
    assert [problem.id for problem in report.conflicts] == [task]
    assert here.tasks.get(task).title == "mine"
    bad = {**new, "crumbs": [*new["crumbs"], new["crumbs"][0].replace("theirs", "others")]}
    with pytest.raises(errors.Invalid, match="same id"):
        here.stashes.import_(bad)


def test_s13_two_ways_of_one_stash_are_told(here: Workspace, there: Workspace, clock: ManualClock) -> None:
    counter = there.stashes.create("hits", "counter").id
    sync(there, here)
    for each in (here, there):
        clock.advance(1)
        each.stashes.increment(counter)
    with pytest.raises(errors.Invalid) as refused:
        here.stashes.import_(twice(exported(here), exported(there)))
    assert {problem.file for problem in refused.value.details["problems"]} == {"stashes.jsonl", "stash_history.jsonl"}


# --- who may change whose locks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["taken", "freed"])
def test_s10_with_a_holder_given_locks_of_others_stay_as_they_are(here: Workspace, there: Workspace, step: str) -> None:
    lock = there.stashes.create("gate", "lock").id
    if step == "freed":
        there.stashes.acquire(lock, "carl")
        sync(there, here)
        there.stashes.release(lock, "carl")
    else:
        there.stashes.acquire(lock, "carl")
    tables, before = exported(there), exported(here)
    with pytest.raises(errors.Forbidden, match="carl"):
        here.stashes.import_(tables, holder="bob")
    assert exported(here) == before
    assert here.stashes.import_(tables, holder="carl").conflicts == []
    assert here.stashes.import_(tables, holder="bob").conflicts == [], "what is so already changes no hands"
