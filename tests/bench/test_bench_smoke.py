"""Every benchmark runs at a tiny size: their code stays alive between the days somebody looks at the figures."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import httpx
import pytest

import holdfast
from holdfast.ids import is_uuid7
from tests.bench import claims, compare, increments, load, stashes
from tests.bench.__main__ import SUBJECTS, main
from tests.bench.baseline import Loop
from tests.bench.load_generator import Generator
from tests.bench.measure import Bench, Row
from tests.bench.task_growth import Raw, specs
from tests.bench.task_rows import HITS, RARE, RARE_TASKS, WORDS, Plan, make_store

EXPECTED = {
    "increments": 3,
    "get": 1,
    "watch": 4,
    "fairness": 2,
    "imports": 3,
    "cold": 17,
    "growth": 8,
    "replicas": 14,
    "telemetry": 6,
    "joining": 2,
    "engines": 17,
    "claims": 5,
    "task_growth": 19,
    "routing": 2,
    "mail": 10,
    "stashes": 1,
    "queues": 9,
    "langgraph": 21,
    "load": 7,
    "client": 3,
    "streams": 4,
    "fleet": 5,
    "scale": 9,
    "turns": 18,
    "share": 4,
}


@pytest.mark.parametrize("name", [name for name in SUBJECTS if name != "ui"])  # that one runs with tests/web
def test_every_subject_yields_its_rows_with_positive_figures(name: str, tmp_path: Path) -> None:
    if name == "langgraph" and os.environ.get("CI") != "true":
        pytest.importorskip("langgraph.checkpoint.sqlite")
    said: list[str] = []
    rows = SUBJECTS[name](Bench(tmp_path, 0.005, said.append))
    assert len(rows) == EXPECTED[name]
    assert {row.subject for row in rows} == {name}
    idle = "% of a core"  # which the system counts in ticks: in a short run an idle server may use none
    wrong = [
        row for row in rows if not math.isfinite(row.figure) or row.figure < 0 or not (row.figure or row.unit == idle)
    ]
    assert wrong == []
    assert any(row.at_most or row.at_least for row in rows)
    assert said


def test_the_baseline_of_the_increments_runs_our_statements_with_our_settings(tmp_path: Path) -> None:
    ours = increments.open_store(tmp_path / "ours")
    increments.open_store(tmp_path / "bare").close()
    loop = Loop(str(tmp_path / "bare" / "holdfast.db"), increments.RUN)
    try:
        assert increments.compare(ours, loop) == []
        assert increments.statements_per_increment(ours) == (7.0, 3 + 4 / 64)
    finally:
        ours.close()
        loop.close()


def test_what_the_baseline_wrote_is_sound(tmp_path: Path) -> None:
    increments.open_store(tmp_path).close()
    loop = Loop(str(tmp_path / "holdfast.db"), increments.RUN)
    loop.one_by_one(increments.some_cells(10))
    loop.in_groups(increments.some_cells(128), 64)
    loop.close()
    with holdfast.open(tmp_path, actor="bench") as ws:
        assert ws.check().problems == []
        assert ws.cells.get(increments.RUN, increments.CELLS[0]).value == 2


def test_the_baseline_of_the_stashes_runs_our_statements_with_our_settings(tmp_path: Path) -> None:
    ours, mine = stashes.open_store(tmp_path / "ours")
    bare, theirs = stashes.open_store(tmp_path / "bare")
    bare.close()
    loop = stashes.StashLoop(str(tmp_path / "bare" / "holdfast.db"))
    try:
        assert stashes.compare(ours, mine, loop, theirs) == []
    finally:
        ours.close()
        loop.close()


def test_what_the_baseline_of_the_stashes_wrote_is_sound(tmp_path: Path) -> None:
    ours, ids = stashes.open_store(tmp_path)
    ours.close()
    loop = stashes.StashLoop(str(tmp_path / "holdfast.db"))
    loop.one_by_one(ids[:10])
    loop.in_groups(ids[:128], 64)
    loop.close()
    with holdfast.open(tmp_path, actor="bench") as ws:
        assert ws.check().problems == []
        history = ws.stashes.history(ids[0])
        assert [(entry.version, entry.value) for entry in history] == [
            (number + 1, {"value": number}) for number in range(3)
        ]
        assert all(is_uuid7(entry.id) for entry in history)


def test_the_baseline_of_the_claims_runs_our_statements(tmp_path: Path) -> None:
    make_store(tmp_path / "original", Plan(400, plain=True))
    assert claims.compare(claims.Copies(tmp_path / "original", tmp_path / "copy")) == []


def test_what_the_baseline_of_the_claims_wrote_is_sound(tmp_path: Path) -> None:
    make_store(tmp_path / "original", Plan(400, plain=True))
    copies = claims.Copies(tmp_path / "original", tmp_path / "copy")
    with copies.bare() as claimer:
        claimer.one_by_one(claims.agents(10))
        claimer.in_groups(claims.agents(128), 64)
        with holdfast.open(tmp_path / "copy", actor="bench") as ws:
            assert ws.check().problems == []
            assert ws.tasks.list(status="in_progress", total=True).total == claims.WARMING + 138


def test_the_baseline_of_the_load_answers_and_refuses_as_our_server_does(tmp_path: Path) -> None:
    found = []
    with load.hollow(tmp_path / "hollow") as hollow, load.ours(tmp_path / "ours", 64) as ours:
        for served in (hollow, ours):
            url = f"http://127.0.0.1:{served.port}/api"
            named = {"authorization": f"Bearer {served.token}", "x-agent-id": "agent-00"}
            claim, cell = f"{url}/tasks/claim-next", f"{url}/cells/bench/cell-0000"
            answers = [
                httpx.post(claim, headers=named, json={}),
                httpx.put(cell, headers=named, json={"value": "plan"}),
                httpx.post(claim, headers={"authorization": "Bearer wrong"}, json={}),
                httpx.post(claim, headers={**named, "host": "elsewhere"}, json={}),
                httpx.post(claim, headers={**named, "origin": "http://elsewhere"}, json={}),
                httpx.post(claim, headers=named, content=b"no"),
                httpx.put(cell, headers=named, json={"ttl": 1}),
                httpx.put(f"{url}/cells/bench", headers=named, json={}),
            ]
            found.append([(each.status_code, list(each.headers), shape(each.json())) for each in answers])
    assert [each[0] for each in found[0]] == [200, 200, 401, 421, 403, 415, 400, 405]
    assert found[0] == found[1]


def shape(content: object) -> object:
    return sorted(content) if isinstance(content, dict) else type(content)


def test_the_load_generator_counts_refusals_and_answers_of_null(tmp_path: Path) -> None:
    generator = Generator(tmp_path)
    claim, cells = load.CALLS["claim-next"], load.CALLS["cell set"]
    with load.ours(tmp_path / "store", 64) as served:
        assert generator.run(served, claim, 4, 64).errors == 0
        outcome = generator.run(served, [claim[0], cells[0]], 4, 20)
        assert (outcome.count, outcome.errors, outcome.empty, outcome.status) == (20, 10, 10, {"200": 20})
        served.token = "wrong"
        outcome = generator.run(served, cells, 4, 20)
        assert (outcome.count, outcome.errors, outcome.empty, outcome.status) == (20, 20, 0, {"401": 20})


def test_a_store_filled_with_rows_is_as_sound_as_one_filled_by_calls(tmp_path: Path) -> None:
    make_store(tmp_path, Plan(2000))
    with holdfast.open(tmp_path, actor="bench") as ws:
        assert ws.check().problems == []
        assert len(ws.tasks.ready(limit=1000, tags=[RARE])) == RARE_TASKS
        assert [len(ws.tasks.search(word, limit=100)) for word in WORDS] == [HITS] * len(WORDS)
        assert ws.tasks.list(priority=0, total=True).total == 200
        assert ws.tasks.ready(priority=0) == []


def test_raw_rows_make_the_tasks_that_a_bulk_call_makes(tmp_path: Path) -> None:
    plan, numbers = Plan(200, plain=True), range(1, 51)
    with holdfast.open(tmp_path / "ours", actor="bench") as ours, holdfast.open(tmp_path / "raw", actor="bench") as ws:
        ours.tasks.bulk("create", tasks=specs(plan, numbers))
        raw = Raw(str(tmp_path / "raw" / "holdfast.db"))
        raw.insert_all([raw.rows(plan, numbers)])
        raw.close()
        for workspace in (ours, ws):
            found = workspace.tasks.list(sort="created", limit=100)
            expected = [plan.task(seq) for seq in numbers]
            assert [(task.title, task.body, task.priority, task.tags) for task in found] == [
                (task.title, task.body, task.priority, task.tags) for task in expected
            ]
            word = expected[0].title.split()[0]
            assert {hit.task.title for hit in workspace.tasks.search(word, limit=100)} >= {expected[0].title}


def test_a_row_is_reached_on_the_right_side_of_its_bar_only() -> None:
    assert Row("s", "w", 1.0, at_least=0.6).reached
    assert not Row("s", "w", 0.5, at_least=0.6).reached
    assert Row("s", "w", 1.3, at_most=1.3).reached
    assert not Row("s", "w", 1.4, at_most=1.3).reached


def test_the_command_runs_what_is_named_and_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["get", "--dir", str(tmp_path), "--scale", "0.002"]) == 0
    printed = capsys.readouterr().out
    assert "cells.get / raw select" in printed
    assert "fdatasyncs a second" in printed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", compare.SUBJECTS)
def test_every_subject_of_the_comparison_takes_processor_time(name: str) -> None:
    assert compare.measure(name, 0.002) > 0


def test_a_tree_is_compared_with_itself_in_processes_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    root = str(Path(__file__).resolve().parents[2])
    assert compare.main([root, "cells.set", "--rounds", "1", "--scale", "0.002"]) == 0
    assert re.fullmatch(r"subject .*\ncells\.set( +\d+\.\d{3} s){2}( +\d+\.\d{3}){2}\n", capsys.readouterr().out)


def test_a_tree_without_its_environment_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        compare.main([str(tmp_path)])
    assert "run `make setup` there" in capsys.readouterr().err
