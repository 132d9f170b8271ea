"""The comparison at a tiny size, with the peers of the dev extra: its code stays alive, and its works are done."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import ClassVar

import pytest

from tests.peers.__main__ import CALLERS, PEERS, WORKS, Figures, Plan, bars, main, measure, run, table
from tests.peers.ours import ByServer, ByTasks, ByThreads
from tests.peers.peer import CLAIM, WATCH, Heard, Peer
from tests.peers.servers import Nats, Redis
from tests.peers.threads import PostgresThreads, Sqlite

AT_HAND: tuple[type[Peer], ...] = (ByTasks, ByThreads, ByServer, PostgresThreads, Nats, Sqlite)
SMALL = Plan(tasks=600, seconds=0.01, changes=2, rounds=1, claim_rounds=1, callers=(1, 4))


@pytest.mark.early
def test_each_peer_does_each_work_that_it_can(tmp_path: Path) -> None:
    figures, versions = asyncio.run(measure(tmp_path, AT_HAND, SMALL))
    assert set(versions) == set(AT_HAND)
    assert all(versions.values())
    expected = {(work, peer) for work in WORKS for peer in AT_HAND if hasattr(peer, work)}
    assert {key[:2] for key in figures} == expected
    assert all(math.isfinite(figure) and figure > 0 for some in figures.values() for figure in some), figures
    lines = [line for work in WORKS for line in table(work, AT_HAND, figures, SMALL.callers)]
    assert sum(line.startswith("| Holdfast | asyncio |") for line in lines) == len(WORKS)
    assert "| SQLite by hand | threads | - | - | - | - |" in table(WATCH, AT_HAND, figures, SMALL.callers)


def test_a_bar_that_is_missed_is_said_and_one_that_was_not_measured_is_left_out() -> None:
    figures: Figures = {(CLAIM, kind, 32): [figure] for kind, figure in ((ByTasks, 100.0), (Redis, 200.0))}
    assert bars(figures) == ["claim, 32 callers, asyncio, against Redis: 0.50 x (0.50 to 0.50), bar 1.1: NOT reached"]


@pytest.mark.parametrize("kind", [ByTasks, ByThreads, PostgresThreads, Nats, Sqlite])
def test_no_task_is_claimed_twice(kind: type[Peer], tmp_path: Path) -> None:
    """A peer that hands out one task again would be fast for nothing."""

    async def claim_all() -> int:
        peer = kind(tmp_path / "peer", 20)
        peer.home.mkdir()
        async with peer.running():
            claims = [getattr(peer, CLAIM)(number) for number in range(20)]
            if peer.form == "asyncio":
                claims = await asyncio.gather(*claims)
        return len({str(claim) for claim in claims})

    assert asyncio.run(claim_all()) == 20


class Absent(Redis):
    """A peer that nobody has installed."""

    name = "Absent"
    needs: ClassVar[str] = "pip install of-nowhere"
    modules: ClassVar[tuple[str, ...]] = ("of_nowhere.client",)
    programs: ClassVar[tuple[str, ...]] = ("of-nowhere-server",)


def test_what_is_missing_is_named_with_how_to_get_it(tmp_path: Path) -> None:
    lines = run(tmp_path, [Absent], SMALL)
    assert "missing: Absent, asyncio (of_nowhere.client, of-nowhere-server): pip install of-nowhere" in lines


def test_a_peer_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["Oracle"])
    assert "no such peer: Oracle" in capsys.readouterr().err


def test_a_watcher_that_missed_a_change_is_an_error() -> None:
    heard = Heard(2, 1)
    heard.called.append(0.0)
    heard.note(0)
    with pytest.raises(AssertionError, match="has not heard"):
        heard.milliseconds()


def test_every_peer_says_what_it_needs() -> None:
    assert all(peer.needs for peer in PEERS)
    assert CALLERS == (1, 32, 64)
