"""M5: rules and configuration come from files, by transactions, when a node has changed its copy; never halfway."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

import holdfast
from holdfast import MemoryLog, Op, Transaction, errors
from holdfast.domains.routing import ROUTES, config
from holdfast.domains.routing.rules import Rules
from holdfast.testing import FaultyLog
from holdfast.testing.crowd import LONG, Line, finish

RULES = "matchers:\n  - name: all\n    grimoire: {name}\n    match: {{}}\n"
BROKEN = "matchers:\n  - name: all\n    grimoire: new\n    match: {priority: [9]}\n"
FILE = "grimoire-matchers.yaml"


def write(folder: Path, text: str, file: str = FILE) -> None:
    """As editors do it: a new file in the place of the old."""
    folder.mkdir(exist_ok=True)
    (folder / "draft").write_text(text)
    os.replace(folder / "draft", folder / file)


def routed(ws: holdfast.Workspace) -> str | None:
    """Where a task goes that is claimed now."""
    return ws.tasks.claim(ws.tasks.create("task").id).grimoire


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the workspace is."""
    return tmp_path / "store"


def test_m5_a_file_is_loaded_when_the_workspace_is_opened_by_one_transaction_with_its_event(folder: Path) -> None:
    write(folder, RULES.format(name="first"))
    with holdfast.open(folder, actor="me") as ws:
        (event,) = ws.events.list()
        assert (event.kind, event.id, event.op, event.actor) == ("route", "routes", "load", "me")
        assert event.data == {"source": RULES.format(name="first")}
        assert routed(ws) == "first"
        assert ws.check().ok


def test_m5_rules_of_a_transaction_that_fails_hold_for_nobody_in_its_group(folder: Path) -> None:
    rules = Rules((), "wrong")

    def body(tx: Transaction) -> None:
        config.store(tx._tx, ROUTES, rules, "")
        assert tx.tasks.claim(tx.tasks.create("inside").id).grimoire == "wrong"
        raise ValueError("too late")

    with holdfast.open(folder, actor="me") as ws:
        for _ in range(2):  # the second time each body has its savepoint
            with Line(ws) as line:
                before = line.queue(lambda: ws.transact(lambda tx: tx.tasks.claim(tx.tasks.create("before").id)))
                failing = line.queue(lambda: ws.transact(body))
                after = line.queue(lambda: ws.transact(lambda tx: tx.tasks.claim(tx.tasks.create("after").id)))
            assert isinstance(failing.exception(LONG), ValueError)
            assert (before.result(LONG).grimoire, after.result(LONG).grimoire) == ("implement-bead", "implement-bead")


def test_m5_without_a_file_the_built_in_default_holds(folder: Path) -> None:
    with holdfast.open(folder, actor="me") as ws:
        assert routed(ws) == "implement-bead"
        assert ws.routes.reload() == []
        assert ws.routes.check() == []


def test_m5_a_change_is_loaded_at_the_next_evaluation_and_by_reload(folder: Path) -> None:
    with holdfast.open(folder, actor="me") as ws:
        for name in ("first", "second", "third"):
            write(folder, RULES.format(name=name))
            assert routed(ws) == name
        write(folder, RULES.format(name="fourth"))
        (loaded,) = ws.routes.reload()
        assert (loaded.file, loaded.stored, loaded.matchers, loaded.problems) == (FILE, True, 1, ())
        assert [event.version for event in ws.events.list(kinds=["route"])] == [1, 2, 3, 4]


@pytest.mark.parametrize("form", ["transact", "transaction", "txn", "aio", "claim_next", "ready", "explain", "decide"])
def test_m5_every_way_to_evaluate_loads_the_change_first(folder: Path, form: str) -> None:
    with holdfast.open(folder, actor="me") as ws:
        id = ws.tasks.create("task").id
        write(folder, "matchers:\n  - {grimoire: new, needs: [python], match: {}}\n")
        match form:
            case "transact":
                assert ws.transact(lambda tx: tx.tasks.claim(id).grimoire) == "new"
            case "transaction":
                with ws.transaction() as tx:
                    assert tx.tasks.claim(id).grimoire == "new"
            case "txn":
                assert ws.txn([], [Op("tasks.claim", {"id": id})]).results[0].grimoire == "new"
            case "aio":
                assert finish(_claimed(ws, id)) == "new"
            case "claim_next":
                assert ws.tasks.claim_next(can=["go"]) is None
            case "ready":
                assert ws.tasks.ready(can=["go"]) == []
            case "explain":
                assert ws.routes.explain(id).selected_grimoire == "new"
            case "decide":
                assert ws.routes.decide({"title": "another"}).selected_grimoire == "new"


async def _explained(ws: holdfast.Workspace, id: str) -> str | None:
    return (await ws.aio.routes.explain(id)).selected_grimoire


async def _claimed(ws: holdfast.Workspace, id: str) -> str | None:
    both = await asyncio.gather(ws.aio.tasks.claim(id), ws.aio.tasks.create("another"))
    return both[0].grimoire


def test_m5_a_file_with_mistakes_keeps_the_rules_in_force_and_says_where_it_is_wrong(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(folder, RULES.format(name="old"))
    with holdfast.open(folder, actor="me") as ws, caplog.at_level(logging.WARNING, "holdfast"):
        for text, line in ((BROKEN, 4), ("matchers:\n  - grimoire: [\n", 2), ("- nothing\n", 1)):
            write(folder, text)
            caplog.clear()
            assert routed(ws) == "old"
            assert f"{FILE}:{line}: error" in caplog.text
            (loaded,) = ws.routes.reload()
            assert not loaded.stored
            assert [problem.line for problem in loaded.problems if problem.severity == "error"] == [line]
            assert loaded.problems == tuple(ws.routes.check())
            caplog.clear()
            assert routed(ws) == "old"
            assert caplog.text == "", "it is said once, not with every claim"
        write(folder, RULES.format(name="mended"))
        assert routed(ws) == "mended"


def test_m4_the_first_file_is_loaded_without_its_bad_matchers(folder: Path) -> None:
    write(folder, BROKEN + "  - {name: rest, grimoire: rest, match: {}}\n")
    with holdfast.open(folder, actor="me") as ws:
        assert routed(ws) == "rest"


def test_m5_a_file_that_cannot_be_read_changes_nothing_and_stops_nobody(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(folder, RULES.format(name="old"))
    with holdfast.open(folder, actor="me") as ws, caplog.at_level(logging.WARNING, "holdfast"):
        (folder / FILE).write_bytes(b"matchers: \xff\n")
        assert routed(ws) == "old"
        assert "not UTF-8" in caplog.text
        (problem,) = ws.routes.check()
        assert (problem.severity, problem.file) == ("error", FILE)
        assert "not UTF-8" in problem.message
        (loaded,) = ws.routes.reload()
        assert (loaded.stored, loaded.problems) == (False, (problem,))
        (folder / FILE).write_text("#" * 2_000_000)
        assert routed(ws) == "old"
        (folder / FILE).unlink()
        assert routed(ws) == "old", "a node without a copy follows what is in force"


def test_m5_one_file_that_cannot_be_read_does_not_hide_the_other(folder: Path) -> None:
    with holdfast.open(folder, actor="me") as ws:
        (folder / "config.yaml").write_bytes(b"\xff")
        write(folder, RULES.format(name="good"))
        assert [(loaded.file, loaded.stored) for loaded in ws.routes.reload()] == [("config.yaml", False), (FILE, True)]
        assert [problem.file for problem in ws.routes.check()] == ["config.yaml"]
        assert routed(ws) == "good"


def test_m5_what_is_no_file_is_told_and_nobody_waits_for_it(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder.mkdir()
    os.mkfifo(folder / "config.yaml")
    (folder / FILE).mkdir()
    with caplog.at_level(logging.WARNING, "holdfast"), holdfast.open(folder, actor="me") as ws:
        assert routed(ws) == "implement-bead"
        assert caplog.text.count("is not a file") == 2


def test_m5_a_process_that_opens_the_workspace_does_not_load_again_what_its_node_has_loaded(folder: Path) -> None:
    write(folder, RULES.format(name="first"))
    for _ in range(3):
        with holdfast.open(folder, actor="me") as ws:
            assert routed(ws) == "first"
            assert len(ws.events.list(kinds=["route"])) == 1


def test_m5_two_nodes_with_different_files_do_not_flap(tmp_path: Path) -> None:
    log = MemoryLog()
    one, two = tmp_path / "one", tmp_path / "two"
    write(one, RULES.format(name="one"))
    write(two, RULES.format(name="two"))
    with holdfast.open(one, actor="a", log=log) as a, holdfast.open(two, actor="b", log=log) as b:
        for ws in (a, b, a, b):
            assert routed(ws) == "two", "what was loaded last holds on every node"
        write(one, RULES.format(name="one again"))
        assert routed(a) == "one again"
        assert b.using(at_least="latest").routes.decide({"title": "x"}).selected_grimoire == "one again"
    for folder in (one, two, one):
        with holdfast.open(folder, actor="c", log=log) as ws:
            assert routed(ws) == "one again"
            assert len(ws.events.list(kinds=["route"])) == 3


def test_m5_a_node_that_is_cut_off_goes_on_reading_and_loads_its_file_once_it_is_back(tmp_path: Path) -> None:
    cut: list[bool] = []
    log = FaultyLog(MemoryLog(), lambda _: "unreachable" if cut else None)
    folder = tmp_path / "node"
    with holdfast.open(folder, actor="me", log=log, patience=3600) as ws:  # a read that waits hangs
        id = ws.tasks.create("task").id
        cut.append(True)
        write(folder, RULES.format(name="new"))
        assert [task.id for task in ws.tasks.ready()] == [id]
        for _ in range(3):
            assert ws.routes.explain(id).selected_grimoire == "implement-bead"
        assert finish(_explained(ws, id)) == "implement-bead"
    with holdfast.open(folder, actor="me", log=log, patience=0.1) as ws:
        assert ws.routes.explain(id).selected_grimoire == "implement-bead"
        with pytest.raises(errors.Unreachable):
            ws.tasks.claim(id)
        cut.clear()
        assert ws.tasks.claim(id).grimoire == "new"


def test_m5_the_key_of_a_call_is_not_that_of_a_file_it_happens_to_load(folder: Path) -> None:
    with holdfast.open(folder, actor="me") as ws:
        id = ws.tasks.create("task").id
        keyed = ws.using(key="one and the same")
        write(folder, RULES.format(name="first"))
        first = keyed.tasks.claim(id)
        assert first.grimoire == "first"
        write(folder, RULES.format(name="second"))
        assert keyed.tasks.claim(id) == first, "the answer of the first call"
        assert routed(ws) == "second"


def test_m5_the_configuration_is_loaded_like_the_rules(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with holdfast.open(folder, actor="me") as ws:
        assert ws.tasks.create("task").id.startswith("hf-")
        write(folder, "prefix: acme\nclaim_timeout: 90s\ndefault_grimoire: house\n", "config.yaml")
        task = ws.tasks.create("task")
        assert task.id.startswith("acme-")
        claimed = ws.tasks.claim(task.id)
        assert claimed.claimed_at is not None
        assert claimed.deadline is not None
        assert (claimed.deadline - claimed.claimed_at).total_seconds() == 90
        assert claimed.grimoire == "house"
        assert [event.kind for event in ws.events.list(kinds=["config"])] == ["config"]
        write(folder, "claim_timeout: soon\n", "config.yaml")
        with caplog.at_level(logging.WARNING, "holdfast"):
            assert ws.tasks.create("task").id.startswith("acme-")
        assert "config.yaml:1: error" in caplog.text
        write(folder, "limits: {max_title: 3}\n", "config.yaml")
        with pytest.raises(errors.TooLarge):
            ws.tasks.create("long")
        assert ws.check().ok


def test_m5_a_file_is_not_read_inside_a_transaction(folder: Path) -> None:
    with holdfast.open(folder, actor="me") as ws, ws.transaction() as tx:
        with pytest.raises(errors.Unsupported, match="inside a transaction"):
            tx.routes.reload()
        with pytest.raises(errors.Unsupported, match="inside a transaction"):
            tx.routes.check()
