"""Imports of any size (T18, S13): rehearsed whole, then in slices, each a transaction; and run again after a kill."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Workspace, errors
from holdfast.domains.tasks import Tasks
from holdfast.faces import cli
from holdfast.faces.cli.commands.transfer import all_lines
from holdfast.interchange import slices
from holdfast.interchange.slices import import_stashes, import_tasks
from holdfast.operation import Do, IsGuarded, drive
from holdfast.testing import ManualClock
from holdfast.testing.crowd import LONG
from holdfast.types import Event, ImportReport
from tests.amounts import amount
from tests.unit.test_stash_transfer import exported, fill
from tests.unit.test_task_import import issue, own


@pytest.fixture
def ws() -> Iterator[Workspace]:
    with holdfast.open(":memory:", actor="bob") as workspace:
        yield workspace


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of three lines."""
    monkeypatch.setattr(slices, "LINES", 3)


def lines_of(ws: Workspace) -> dict[str, str]:
    """Every task's line by its id."""
    return {json.loads(line)["id"]: line for line in all_lines(lambda **how: ws.tasks.export(**how))}


def writes(ws: Workspace) -> dict[int, int]:
    """How many tasks each revision created."""
    return Counter(event.revision for event in every(ws) if event.op == "create")


def every(ws: Workspace) -> Iterator[Event]:
    """Every event of a task."""
    after = None
    while page := ws.events.list(kinds=["task"], after=after, limit=1000):
        yield from page
        after = page[-1].cursor


def tree(seed: int, count: int) -> list[str]:
    """Lines of tasks that name each other in every way that a workspace allows, in no order."""
    rng = random.Random(seed)
    ids = [f"t-{number}" for number in range(count)]
    found = []
    for at, id in enumerate(ids):
        fields: dict[str, Any] = {"status": rng.choice(["open", "closed", "blocked"]), "tags": [f"n{at % 3}"]}
        if at and rng.random() < 0.5:
            fields["parent_id"] = rng.choice(ids[:at])
        if at + 1 < count and rng.random() < 0.4:  # against the order of parents
            fields["depends_on"] = rng.sample(ids[at + 1 :], min(2, count - at - 1))
        fields["related"] = rng.sample([other for other in ids if other != id], rng.choice([0, 0, 1]))
        found.append(own(id, **fields))
    rng.shuffle(found)
    return found


def test_t18_more_than_10_000_tasks_come_back_in_slices_that_let_others_in(ws: Workspace) -> None:
    count = 10_001
    lines = [own(f"t-{number}", parent_id=f"t-{number // 2}" if number else None) for number in range(count)]
    report = import_tasks(ws, lines)
    assert len(report.created["tasks"]) == count
    assert report.created["tasks"][:3] == ["t-0", "t-1", "t-2"], "in the order of the file"
    assert max(writes(ws).values()) <= slices.LINES
    assert sum(writes(ws).values()) == count
    again = import_tasks(ws, lines)
    assert (len(again.unchanged["tasks"]), again.created["tasks"], again.conflicts) == (count, [], [])


def test_t18_one_call_takes_any_number_of_tasks_in_one_transaction_if_that_is_wanted(ws: Workspace) -> None:
    lines = [own(f"t-{number}") for number in range(10_001)]
    assert len(ws.tasks.import_(lines, atomic=True).created["tasks"]) == 10_001
    assert len(writes(ws)) == 1


def test_t18_the_operation_itself_takes_slices_that_let_others_in(ws: Workspace, small: None) -> None:
    lines = [own(f"t-{number}") for number in range(8)]

    def beside_others(step: Do) -> Any:
        ws.cells.increment("run", "others")
        return ws._engine.submit(step.body, "bob")

    report = drive(Tasks.import_.function(lines), {Do: beside_others, IsGuarded: lambda _: False})
    assert len(report.created["tasks"]) == 8
    assert ws.cells.get("run", "others").value == 6  # each slice is rehearsed
    times = [event.revision for event in every(ws) if event.op == "create"]
    between = [event.revision for event in ws.events.list(kinds=["cell"])]
    assert [sum(first < other < last for other in between) for first, last in pairwise(sorted({*times}))] == [1, 1]


def test_t18_a_call_of_the_library_is_in_slices_unless_one_transaction_has_to_decide(
    ws: Workspace, small: None
) -> None:
    lines = {each: [own(f"{each}-{number}") for number in range(8)] for each in "abcdef"}
    assert len(ws.tasks.import_(lines["a"]).created["tasks"]) == 8
    assert ws.tasks.import_(lines["b"], dry_run=True).created == {"tasks": [f"b-{number}" for number in range(8)]}
    assert sorted(writes(ws).values()) == [2, 3, 3]
    grant = ws.locks.acquire("import", ttl=60)
    ways: dict[str, Callable[[Any], ImportReport]] = {
        "c": lambda given: ws.tasks.import_(given, atomic=True),
        "d": lambda given: ws.using(key="k").tasks.import_(given),
        "e": lambda given: ws.using(fence=("import", grant.token)).tasks.import_(given),
        "f": lambda given: ws.transact(lambda tx: tx.tasks.import_(given)),
    }
    for name, call in ways.items():
        before = {*writes(ws)}
        assert len(call(lines[name]).created["tasks"]) == 8
        assert [count for revision, count in writes(ws).items() if revision not in before] == [8], name
    assert ws.using(key="k").tasks.import_(lines["d"]).created["tasks"] != []  # the first answer again


def test_t18_a_bad_line_at_the_end_refuses_a_call_in_slices_before_anything_is_written(
    ws: Workspace, small: None
) -> None:
    with pytest.raises(errors.Invalid):
        ws.tasks.import_([*(own(f"t-{number}") for number in range(8)), "no line"])
    assert writes(ws) == {}


def test_s13_stashes_are_imported_in_slices_by_one_call(ws: Workspace, small: None) -> None:
    with holdfast.open(":memory:", actor="ann") as source:
        for number in range(8):
            source.stashes.create(f"s-{number}", "counter")
        tables = exported(source)
    assert len(ws.stashes.import_(tables).created["stashes"]) == 8
    revisions = {event.revision for event in ws.events.list(kinds=["stash"])}
    assert len(revisions) > 1


@pytest.mark.parametrize("seed", range(amount(12, 200)))
def test_t18_slices_make_what_one_transaction_makes(ws: Workspace, small: None, seed: int) -> None:
    lines = tree(seed, 40)
    with holdfast.open(":memory:", actor="bob") as whole:
        expected = whole.tasks.import_(lines, atomic=True)
        rehearsed, report = import_tasks(ws, lines, dry_run=True), import_tasks(ws, lines)
        assert rehearsed.created == report.created == expected.created
        assert {id: fields(line) for id, line in lines_of(ws).items()} == {
            id: fields(line) for id, line in lines_of(whole).items()
        }
    assert len(writes(ws)) > 1
    assert ws.check().problems == []


def fields(line: str) -> dict[str, Any]:
    """A line without the times of its import."""
    return {name: value for name, value in json.loads(line).items() if name not in ("created_at", "updated_at")}


@pytest.mark.parametrize("bad", [0, 20, 39])
def test_t18_a_bad_line_anywhere_refuses_everything_before_anything_is_written(
    ws: Workspace, small: None, bad: int
) -> None:
    lines = tree(7, 40)
    lines[bad] = lines[bad].replace('"status": "', '"status": "un')
    with pytest.raises(errors.Invalid) as refused:
        import_tasks(ws, lines)
    assert [problem.line for problem in refused.value.details["problems"]] == [bad + 1]
    assert ws.tasks.list() == []


def test_t18_a_rehearsal_and_an_import_leave_out_the_same(ws: Workspace, small: None) -> None:
    lines = [
        own("a"),
        "{",
        own("c", depends_on=["gone"]),
        own("d", depends_on=["c"]),
        own("e", parent_id="d"),
        own("f"),
    ]
    lines += [own("g", related=["h"]), own("h", related=["g"]), own("i", depends_on=["j"]), own("j", depends_on=["i"])]
    rehearsed = import_tasks(ws, lines, dry_run=True, skip_bad=True)
    assert ws.tasks.list() == []
    report = import_tasks(ws, lines, skip_bad=True)
    assert report.created == rehearsed.created == {"tasks": ["a", "f", "g", "h"]}
    assert [(each.line, each.id) for each in report.skipped] == [
        (2, None),
        (3, "c"),
        (4, "d"),
        (5, "e"),
        (9, "i"),
        (10, "j"),
    ]
    assert [str(each) for each in rehearsed.skipped] == [str(each) for each in report.skipped]


def test_t18_what_slices_cannot_do_goes_in_one_transaction(ws: Workspace, small: None) -> None:
    import_tasks(ws, [own("p"), *(own(f"c{number}", parent_id="p") for number in range(5))])
    at = "2025-01-01T00:00:00Z"
    report = import_tasks(ws, [own("p", deleted_at=at), *(own(f"c{number}") for number in range(5))])
    assert report.updated == {"tasks": ["p", *(f"c{number}" for number in range(5))]}
    assert {task.id for task in ws.tasks.list()} == {f"c{number}" for number in range(5)}


def test_t18_deleted_trees_are_deleted_and_restored_whole(ws: Workspace, small: None) -> None:
    live = [own("p"), *(own(f"c{number}", parent_id="p") for number in range(5)), *(own(f"x{n}") for n in range(5))]
    import_tasks(ws, live)
    gone = {"deleted_at": "2025-01-01T00:00:00Z", "deleted_with": "p"}
    dead = [own("p", **gone), *(own(f"c{number}", parent_id="p", **gone) for number in range(5)), *live[6:]]
    assert len(import_tasks(ws, dead).updated["tasks"]) == 6
    assert len(ws.tasks.list()) == 5
    assert len(import_tasks(ws, live).updated["tasks"]) == 6
    assert len(ws.tasks.list()) == 11
    assert ws.check().problems == []


def test_t18_issues_of_beads_go_in_slices_too(ws: Workspace, small: None) -> None:
    lines = [
        issue(f"bd-{number}", dependencies=[{"issue_id": f"bd-{number}", "depends_on_id": f"bd-{number + 1}"}])
        for number in range(10)
    ]
    report = import_tasks(ws, [*lines, issue("bd-10", status="tombstone")], format="beads")
    assert len(report.created["tasks"]) == 10
    assert [(each.line, each.id) for each in report.skipped] == [(11, "bd-10")]
    assert [task.id for task in ws.tasks.ready()] == ["bd-9"]
    assert [each.id for each in report.warnings] == ["bd-9"], "it names one that was deleted in beads"


@pytest.mark.parametrize("atomic", [[], ["--atomic"], ["--key", "k"]])
def test_t18_the_command_line_imports_in_slices_or_in_one_transaction(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], small: None, atomic: list[str]
) -> None:
    file, store = tmp_path / "tasks.jsonl", tmp_path / "store"
    file.write_bytes(b"\xef\xbb\xbf" + "\n".join(tree(3, 20)).encode() + b"\n\xff\n")
    words = ["--dir", str(store), "--actor", "bob"]
    assert cli.main([*words, "init"]) == 0
    key = atomic if "--key" in atomic else []
    more = [each for each in atomic if each == "--atomic"]
    assert cli.main([*words, "import", str(file), *more]) == 1
    assert "line 21: error: not UTF-8 at byte 1" in capsys.readouterr().err
    assert cli.main([*words, "import", str(file), *more, "--skip-bad", "--dry-run"]) == 0
    assert cli.main([*words, *key, "import", str(file), *more, "--skip-bad"]) == 0
    assert "created: 20 tasks" in capsys.readouterr().out
    with holdfast.open(store, actor="bob") as ws:
        assert (len(writes(ws)) == 1) == bool(atomic)


# --- stashes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_s13_a_folder_in_slices_exports_the_same_bytes_again(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(slices, "LINES", size)
    clock = ManualClock()
    with (
        holdfast.open(":memory:", actor="ann", clock=clock) as source,
        holdfast.open(":memory:", actor="ann", clock=clock) as copy,
    ):
        fill(source, clock)
        tables = exported(source)
        rehearsed, report = import_stashes(copy, tables, dry_run=True), import_stashes(copy, tables)
        assert (report.conflicts, report.skipped, report.warnings) == ([], [], [])
        assert rehearsed.created == report.created
        assert {table: len(ids) for table, ids in report.created.items()} == {
            table: len(lines) for table, lines in tables.items()
        }
        assert exported(copy) == tables
        assert copy.check().problems == []
        again = import_stashes(copy, tables)
        assert (sum(map(len, again.created.values())), again.conflicts) == (0, [])
        follows(source, copy, clock)


def follows(source: Workspace, copy: Workspace, clock: ManualClock) -> None:
    """What is done to trails, and to all that belongs to them, arrives whole."""
    trails = {trail.name: trail.id for trail in source.trails.list()}
    clock.advance(1)
    source.trails.abandon(trails["open"], "enough")
    source.trails.restore(trails["gone"])
    tables = exported(source)
    report = import_stashes(copy, tables)
    assert (report.conflicts, report.skipped) == ([], [])
    assert exported(copy) == tables
    assert copy.check().problems == []


def test_s13_a_bad_line_of_a_folder_is_refused_before_anything_is_written(ws: Workspace, small: None) -> None:
    clock = ManualClock()
    with holdfast.open(":memory:", actor="ann", clock=clock) as source:
        fill(source, clock)
        tables = exported(source)
    tables["stash_history"][-1] = "{"
    with pytest.raises(errors.Invalid) as refused:
        import_stashes(ws, tables)
    problems = {(problem.file, problem.line) for problem in refused.value.details["problems"]}
    assert ("stash_history.jsonl", len(tables["stash_history"])) in problems
    assert (ws.tasks.list(), ws.stashes.list(), ws.trails.list()) == ([], [], [])


def test_s13_two_stashes_of_one_name_are_noticed_before_anything_is_written(ws: Workspace, small: None) -> None:
    with holdfast.open(":memory:", actor="ann") as one, holdfast.open(":memory:", actor="ann") as other:
        for source in (one, other):
            for number in range(9):
                source.stashes.create(f"stash {number}", "context", {"n": number})
        first, second = exported(one), exported(other)
    tables = {table: [*first[table], *second[table][:1]] for table in first}
    with pytest.raises(errors.Invalid):
        import_stashes(ws, tables)
    assert ws.stashes.list() == []


# --- killed ----------------------------------------------------------------------------------------------------------


@pytest.mark.early
@pytest.mark.parametrize("after", [1, 600])
def test_t18_an_import_that_was_killed_is_completed_by_running_it_again(tmp_path: Path, after: int) -> None:
    count = 3000
    file, store = tmp_path / "tasks.jsonl", tmp_path / "store"
    lines = [own(f"t-{number}", depends_on=[f"t-{number + 1}"] if number % 7 else []) for number in range(count - 1)]
    file.write_text("\n".join([*lines, own(f"t-{count - 1}"), ""]))
    with holdfast.open(store, actor="bob", busy_timeout=LONG, transaction_timeout=LONG) as ws:
        command = [sys.executable, "-m", "holdfast", "--dir", str(store), "--actor", "bob", "import", str(file)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        watch = ws.watch(kinds=["task"], after=0, timeout=LONG)
        seen = 0
        for event in watch:
            seen += event.op == "create"
            if seen > after:
                break
        with ws.transaction():  # it has the turn: the import gets no further before it is dead
            process.kill()
            process.communicate(timeout=LONG)
        here = ws.tasks.list(limit=1, total=True).total or 0
        assert after < here < count, "it was killed on the way"
        report: ImportReport = import_tasks(ws, file.read_text().splitlines())
        assert len(report.unchanged["tasks"]) == here
        assert len(report.created["tasks"]) == count - here
        assert sum(writes(ws).values()) == count, "nothing was created twice"
        assert len(lines_of(ws)) == count
        assert ws.check().problems == []
