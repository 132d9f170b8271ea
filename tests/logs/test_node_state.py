"""N3: how a node is: its engine, its position, its lag and how durable its log is, in every face that says so."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import holdfast
from holdfast import errors
from holdfast.faces.cli import main
from holdfast.filesystem import LOG_URL
from holdfast.replication import log as log_module
from holdfast.replication.log import CommitLog, LogWrapper, MemoryLog
from holdfast.testing.crowd import LONG
from tests.http.running import Running
from tests.logs.nodes import RUN, Nodes, Wire, at, eventually, once
from tests.worlds.postgres import shared_server

AWAY = "postgresql://localhost:1/nothing?workspace=team"


@pytest.fixture
def url() -> str:
    """The address of a workspace that is not there yet."""
    return f"{shared_server().url}&workspace=state-{os.urandom(6).hex()}"


def state(ws: holdfast.Workspace, **given: bool) -> holdfast.types.NodeState:
    """How a node is."""
    found = ws.node_state(**given)
    assert found is not None
    return found


def test_n3_a_node_knows_its_engine_its_position_and_how_far_it_is_behind(nodes: Nodes) -> None:
    a, b = nodes.open("a"), nodes.stale("b")
    b.cells.set(RUN, "cell", 1)
    assert (state(b).engine, state(b).lag, state(b).doubts) == ("memory", 0, [])
    before = state(b).position
    for number in range(3):
        a.cells.set(RUN, "cell", number)
    behind = state(b)
    assert (behind.position, behind.end, behind.lag) == (before, before + 3, 3)
    b.using(at_least="latest").reach()
    assert state(b).lag == 0
    assert state(a).node != state(b).node
    with holdfast.open(nodes.path("file"), actor="me") as ws:
        assert ws.node_state() is None


def test_n3_a_node_counts_its_appends_and_how_often_another_was_first(nodes: Nodes) -> None:
    a, b = nodes.stale("a"), nodes.stale("b")
    before = state(a).appends

    def overtake() -> None:
        b.cells.increment(RUN, "cell")

    with at("log.append", once(overtake)):
        a.cells.increment(RUN, "cell")
    assert a.cells.get(RUN, "cell").value == 2
    assert (state(a).appends, state(a).moved) == (before + 1, 1)
    assert state(b).moved == 0


def test_n3_a_log_that_is_away_costs_patience_and_the_node_falls_behind(nodes: Nodes) -> None:
    wire = Wire(nodes.log)
    a = nodes.open("a", wire, patience=0.05)
    a.cells.set(RUN, "cell", 1)
    before = state(a).patience
    wire.cut()
    with pytest.raises(errors.Unreachable):
        a.cells.set(RUN, "cell", 2)
    assert state(a).patience > before
    assert state(a).end is None
    assert "line to the log is cut" in state(a).away
    eventually(lambda: state(a, ask=False).behind > 0.3)
    wire.heal()
    eventually(lambda: state(a, ask=False).behind < 0.3)
    assert a.cells.get(RUN, "cell").value == 1


class _Doubtful(LogWrapper):
    def durability(self) -> Sequence[str]:
        return ["the disk is a sieve"]


def test_n5_doubts_about_the_durability_of_a_log_are_passed_on(nodes: Nodes) -> None:
    log: CommitLog = _Doubtful(MemoryLog(clock=nodes.clock))
    a = nodes.open("a", log)
    assert state(a).doubts == ["the disk is a sieve"]
    assert state(a, ask=False).doubts == []


def test_n3_where_and_doctor_tell_node_position_lag_engine_and_durability(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = str(tmp_path / "a")
    assert main(["init", "--dir", folder, "--log", url, "--create", "--actor", "ann"]) == 0
    capsys.readouterr()
    assert main(["where", "--dir", folder]) == 0
    said = capsys.readouterr().out
    assert re.search(r"postgres, node \S+ at position \d+, up to date\n", said)
    assert "an acknowledged commit is on the disks of the log" in said
    assert main(["where", "--dir", folder, "--json"]) == 0
    node = json.loads(capsys.readouterr().out)["data"]["node"]
    assert (node["engine"], node["lag"], node["doubts"]) == ("postgres", 0, [])
    assert main(["doctor", "--dir", folder, "--actor", "ann"]) == 0
    assert re.search(r"ok +log +postgres, node", capsys.readouterr().out)

    monkeypatch.setattr(log_module, "PATIENCE", 0.1)
    (tmp_path / "a" / LOG_URL).write_text(AWAY)
    assert main(["where", "--dir", folder]) == 0
    assert "cannot be reached, reads go on" in capsys.readouterr().out
    assert main(["doctor", "--dir", folder, "--actor", "ann"]) == 1
    assert re.search(r"bad +log +postgres, node", capsys.readouterr().out)
    assert main(["list", "--dir", folder]) == 0
    assert main(["create", "bake", "--dir", folder]) == errors.Unreachable.exit_code


def test_n3_metrics_have_lag_appends_moved_and_the_patience_that_was_spent(url: str, tmp_path: Path) -> None:
    holdfast.open(url, folder=tmp_path / "a", actor="ann", create=True).close()
    server = Running(tmp_path / "a")
    try:
        server.call("PUT", "/api/cells/run/cell", json={"value": 1})

        def metric(name: str) -> float:
            found = re.search(rf'^{name}{{workspace=""}} (\S+)$', server.call("GET", "/metrics").text, re.MULTILINE)
            assert found is not None, name
            return float(found[1])

        assert metric("holdfast_log_appends_total") >= 1
        assert metric("holdfast_log_position") >= 1
        assert metric("holdfast_log_moved_total") == 0
        assert metric("holdfast_log_patience_seconds_total") >= 0
        eventually(lambda: metric("holdfast_log_lag_seconds") < 5)
    finally:
        server.end()


def test_n4_commands_on_a_replica_go_through_its_server_and_say_so(url: str, tmp_path: Path) -> None:
    """Each would otherwise connect to the engine and catch up."""
    folder = tmp_path / "a"
    holdfast.open(url, folder=folder, actor="ann", create=True).close()

    def call(*words: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "holdfast", *words, "--dir", str(folder), "--actor", "ann"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False, cwd=tmp_path)
        return done.returncode, done.stdout, done.stderr

    server = Running(folder)
    try:
        code, id, said = call("create", "bake", "-q", "-v")
        assert (code, said) == (0, "carried out by the server of this folder\n")
        code, found, said = call("show", id.strip(), "-v", "--direct", "-q")
        assert (code, found, said) == (0, id, "carried out here, on the store itself\n")
        assert call("ready", "-q")[2] == "", "only with -v"
        code, _, said = call("ready", "-v", "--json")
        assert json.loads(said) == {"schema_version": 1, "note": "carried out by the server of this folder"}
    finally:
        server.end()
    code, found, said = call("ready", "-q", "-v")
    assert (code, found, said) == (0, id, "carried out here, on the store itself\n")
