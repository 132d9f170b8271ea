"""Processes that share threads: two run one graph and lose nothing, others are killed with -9 and lose nothing either.

`python -m tests.langgraph.test_processes WORK FOLDER NAME` is one of the processes; it says what it has done.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.testing.crowd import LONG, start
from tests.amounts import amount
from tests.e2e.claim_worker import ROOT, say
from tests.langgraph.graphs import asking, checkpoint, config, counter

from langgraph.checkpoint.base import ChannelVersions  # isort: skip
from langgraph.types import Command  # isort: skip

from holdfast.integrations.langgraph import HoldfastSaver  # isort: skip

INVOKES = amount(20, 200)  # of each process
KILLS = amount(3, 30)
ANSWERED = amount(300, 1_000)  # puts before a kill
WRITERS = 4  # processes that are killed at once


# --- in a process ----------------------------------------------------------------------------------------------------


def invoke(folder: str, name: str) -> None:
    """Invoke a graph on one thread, each time with the lock."""
    with holdfast.open(folder, actor=name, busy_timeout=LONG) as ws:
        saver = HoldfastSaver(ws)
        graph = counter(saver)
        for number in range(INVOKES):
            with saver.hold("shared", ttl=60, wait=LONG) as held:
                graph.invoke({"seen": [f"{name}-{number}"]}, held)
            say("answered", f"{name}-{number}")


def put(folder: str, name: str) -> None:
    """Put checkpoints until somebody kills it, and say each that was answered."""
    with holdfast.open(folder, actor=name, busy_timeout=LONG) as ws:
        saver = HoldfastSaver(ws)
        last = saver.get_tuple(config(name))
        at = config(name) if last is None else last.config
        number = 0 if last is None else last.metadata["step"] + 1
        while True:
            values = {"large": [number] * 500, "small": [number, name]}
            versions: ChannelVersions = dict.fromkeys(values, saver.get_next_version(number, None))
            at = saver.put(
                {"configurable": at["configurable"]}, checkpoint(values, versions), {"step": number}, versions
            )
            saver.put_writes(at, [("large", [number])], f"task-{number}")
            say("put", number, at["configurable"]["checkpoint_id"])
            number += 1


def ask(folder: str, name: str) -> None:
    """Run a graph until it asks a person, and wait to be killed."""
    with holdfast.open(folder, actor=name) as ws:
        asking(HoldfastSaver(ws)).invoke({"seen": []}, config("asked"))
        say("asked")
        sys.stdin.read()


# --- in the test -----------------------------------------------------------------------------------------------------


def life(work: str, folder: Path, name: str, dies_after: int | None = None) -> list[list[str]]:
    """What a process says before it is killed, after so many lines, or is through."""
    command = [sys.executable, "-m", "tests.langgraph.test_processes", work, str(folder), name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        heard: list[list[str]] = []
        for line in process.stdout:
            heard.append(line.decode().split())
            if len(heard) == dies_after:
                process.kill()
        assert process.wait(LONG) == (0 if dies_after is None else -9)
    return heard


@pytest.mark.early
def test_every_invoke_that_was_answered_is_in_the_state_of_a_thread_that_two_processes_share(tmp_path: Path) -> None:
    works = [start(lambda name=name: life("invoke", tmp_path / "store", name)) for name in ("ada", "bob")]  # type: ignore[misc]
    answered = {line[1] for work in works for line in work.result(LONG)}
    with holdfast.open(tmp_path / "store", actor="judge") as ws:
        found = HoldfastSaver(ws).get_tuple(config("shared"))
        assert ws.check().problems == []
    assert found is not None
    seen = found.checkpoint["channel_values"]["seen"]
    assert len(answered) == 2 * INVOKES
    assert sorted(seen) == sorted(answered)
    print(f"\none thread, 2 processes: {len(answered)} invokes answered, all in the final state")


@pytest.mark.early
def test_no_checkpoint_that_was_answered_is_lost_or_torn_by_kill_9(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    told: dict[str, dict[int, str]] = {f"w{number}": {} for number in range(WRITERS)}
    for _ in range(KILLS):
        lives = {name: start(lambda name=name: life("put", folder, name, ANSWERED // WRITERS)) for name in told}  # type: ignore[misc]
        for name, heard in lives.items():
            told[name] |= {int(number): id for word, number, id in heard.result(LONG) if word == "put"}
    with holdfast.open(folder, actor="judge") as ws:
        assert ws.check().problems == []
        saver = HoldfastSaver(ws)
        judged = 0
        for name, puts in told.items():
            kept = {each.metadata["step"]: each for each in saver.list(config(name))}
            assert len(puts) >= KILLS * (ANSWERED // WRITERS) - KILLS
            for number, id in puts.items():
                each = kept[number]
                assert each.config["configurable"]["checkpoint_id"] == id
                assert each.checkpoint["channel_values"] == {"large": [number] * 500, "small": [number, name]}
                assert each.pending_writes == [(f"task-{number}", "large", [number])]
                judged += 1
    print(f"\ncheckpoints: {KILLS * WRITERS} writers killed, {judged} puts answered, none lost, none torn")


def test_a_graph_that_waits_for_a_person_is_killed_and_goes_on_in_another_process(tmp_path: Path) -> None:
    assert life("ask", tmp_path / "store", "ada", dies_after=1) == [["asked"]]
    with holdfast.open(tmp_path / "store", actor="bob") as ws:
        graph = asking(HoldfastSaver(ws))
        assert [each.value for each in graph.get_state(config("asked")).interrupts] == ["may I?"]
        assert graph.invoke(Command(resume="yes"), config("asked"))["seen"] == ["before", "yes"]
        assert [each.actor for each in ws.events.list(kinds=["interrupt"])] == ["ada", "bob"]


if __name__ == "__main__":
    {"invoke": invoke, "put": put, "ask": ask}[sys.argv[1]](*sys.argv[2:])
