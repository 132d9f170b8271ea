"""F14: processes that fight for the same files lose no edit, give no id twice and leave no drift; kills change nothing.

`TURN_TRANSACTIONS` says how many transactions each way makes in all; a slice by default.
"""

from __future__ import annotations

import json
import os
import random
import re
import selectors
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from holdfast import turnfile
from holdfast.turnfile import Session, files
from holdfast.turnfile.mailbox import parse, projection
from holdfast.turnfile.model import MAILBOX, PROJECTION, TURNFILE, WORKLOG
from tests.turnfile.sessions import AGENTS, is_whole, leftovers, new_session, start, text_of

TRANSACTIONS = int(os.environ.get("TURN_TRANSACTIONS", "24"))
EACH = 3  # transactions of a process among those of which one is killed
DEADLINE = 300 + TRANSACTIONS * 2

pytestmark = pytest.mark.timeout(DEADLINE + 20)


def contenders(session: Session, processes: int, stuck: float = 60.0) -> list[subprocess.Popen[str]]:
    """So many processes that share the transactions."""
    each = TRANSACTIONS // processes
    return [
        start("contender", session.folder.path, AGENTS[place], AGENTS[(place + 1) % 8], 0, each, stuck)
        for place in range(processes)
    ]


def told_by(session: Session, workers: list[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    """What the workers said that they did, with their place; after each the projection is looked at from outside."""
    said = []
    with selectors.DefaultSelector() as selector:
        for place, worker in enumerate(workers):
            assert worker.stdout is not None
            selector.register(worker.stdout, selectors.EVENT_READ, place)
        while selector.get_map():
            ready = selector.select(timeout=DEADLINE)
            assert ready, "nobody gets on"
            for key, _ in ready:
                line = workers[key.data].stdout.readline()
                if line.endswith("\n"):
                    said.append({**json.loads(line), "place": key.data})
                    is_fresh(session)
                else:
                    selector.unregister(key.fileobj)
    for worker in workers:
        _, errors = worker.communicate(timeout=DEADLINE)
        assert worker.returncode in (0, -signal.SIGKILL), errors
    return said


def is_fresh(session: Session) -> None:
    """Fails if the projection and the mailbox are not of the same moment."""
    mailbox, projected = session.texts([MAILBOX, PROJECTION]).values()
    assert mailbox is not None
    assert projected is not None
    assert not projection.is_stale(mailbox, projected)


def noted(said: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """What the workers said, as the worklog has it."""
    return [(AGENTS[line["place"]], str(line["number"]), line["message"]) for line in said]


def entries(session: Session) -> list[tuple[str, str, str]]:
    """Agent, number and message of every line that the contenders logged."""
    return re.findall(r"^- (\w+) (\d+) (MSG-\d+-\d+)$", text_of(session, WORKLOG), re.MULTILINE)


def nothing_is_lost(session: Session, told: list[tuple[str, str, str]]) -> None:
    """Fails unless the files have every edit that somebody was told of, once, and agree with each other."""
    logged = entries(session)
    cards = parse(text_of(session, MAILBOX)).cards
    assert set(told) <= set(logged)
    assert len(set(logged)) == len(logged)
    ids = [card.id for card in cards]
    assert len(set(ids)) == len(ids)
    assert sorted(f"{agent} {number} {message}" for agent, number, message in logged) == sorted(
        f"{card.get('subject')} {card.id}" for card in cards if card.get("type") == "request"
    )
    is_whole(session)
    assert leftovers(session) == []


@pytest.mark.parametrize("processes", [2, 8])
def test_f14_no_edit_is_lost_and_no_id_given_twice(
    tmp_path: Path, processes: int, capsys: pytest.CaptureFixture[str]
) -> None:
    session = new_session(tmp_path)
    workers = contenders(session, processes)
    said = told_by(session, workers)
    done = TRANSACTIONS // processes * processes
    assert len(said) == done
    assert len(entries(session)) == done
    nothing_is_lost(session, noted(said))
    ledger = session.read()
    assert ledger.turnfile.locks == ()
    # Two revisions for each transaction and no other write: who was blocked wrote nothing.
    assert ledger.revision == 1 + 2 * done
    assert sorted(line["revision"] for line in said) == list(range(3, 2 * done + 2, 2))
    with capsys.disabled():
        print(f"\n{processes} processes: {done} transactions, the projection fresh after each")


@pytest.mark.early
@pytest.mark.parametrize("processes", [2, 8])
def test_f14_kills_at_random_points_lose_nothing(
    tmp_path: Path, processes: int, capsys: pytest.CaptureFixture[str]
) -> None:
    session = new_session(tmp_path)
    chance = random.Random(TRANSACTIONS)
    said: list[dict[str, Any]] = []
    kills = 0
    for number in range(max(2, TRANSACTIONS // (EACH * processes))):
        workers = [
            start("contender", session.folder.path, AGENTS[place], "gil", number * 100, EACH, 60.0)
            for place in range(processes)
        ]
        place = chance.randrange(processes)
        victim = workers[place]
        assert victim.stdout is not None
        for _ in range(chance.randrange(3)):  # let it complete some
            said.append({**json.loads(victim.stdout.readline()), "place": place})
        signature = session.folder.signature(TURNFILE)
        for _ in range(chance.randrange(2000)):  # then look on until the files change, or not quite so long
            if session.folder.signature(TURNFILE) != signature:
                break
        victim.kill()
        kills += victim.wait(timeout=300) != 0
        for held in session.read().turnfile.locks:
            if held.holder == AGENTS[place]:
                turnfile.override(session, held.id, "P0: the holder was killed", "mia")
        said += told_by(session, workers)
    turnfile.transact(
        [WORKLOG],
        "hal",
        "the last",
        lambda edit: edit.write(WORKLOG, (edit.read(WORKLOG) or "") + "- end\n"),
        folder=session,
    )
    nothing_is_lost(session, noted(said))
    with capsys.disabled():
        there = len(entries(session))
        print(f"\n{processes} processes, {kills} kills: {len(said)} transactions told, {there} there, none lost")


def test_f14_a_kill_at_every_kind_of_place_among_contenders_loses_nothing(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    for place in files.NAMES:
        with start("kill_worker", session.folder.path, place, 1) as worker:
            worker.communicate(timeout=300)
        for held in session.read().turnfile.locks:
            turnfile.override(session, held.id, "P0: the holder was killed", "mia")
    workers = [start("contender", session.folder.path, AGENTS[place], "gil", 0, 2, 60.0) for place in range(2)]
    assert len(told_by(session, workers)) == 4
    is_whole(session)
    ids = [card.id for card in parse(text_of(session, MAILBOX)).cards]
    assert len(set(ids)) == len(ids)
