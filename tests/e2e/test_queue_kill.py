"""Eight processes take, acknowledge and give back the items of one queue, and most of them are killed with -9.

Each item ends acknowledged once or in the dead letters, and every delivery was of the first item that was ready then.

`python -m tests.e2e.test_queue_kill NUMBER` is one of the processes. It does what it reads from stdin: `open FOLDER
CLOCK`, answered by `ready`; then `go`, upon which it works until nothing is ready, says `done` for each item that
it acknowledged, and in the end `end`.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

import holdfast
from holdfast.testing import ManualClock
from holdfast.testing.crowd import LONG, start
from holdfast.types.stashes import QueueItem
from tests.amounts import amount
from tests.e2e.claim_worker import ROOT, Fighter, say

PROCESSES = 8
KILLED = 6
ITEMS = amount(600, 10_000)
TTL = 60.0  # on a clock that stands still
DELIVERIES = 3
BAD = 37  # every so many cannot be worked on
QUEUE = (None, "jobs")


# --- in the process --------------------------------------------------------------------------------------------------


def work(ws: holdfast.Workspace) -> None:
    """Two items at a time, so that there is always something to lose."""
    while held := [item for item in (ws.queues.take(QUEUE, ttl=TTL), ws.queues.take(QUEUE, ttl=TTL)) if item]:
        for item in held:
            say("took", item.number)
            assert item.token is not None
            if item.value["bad"]:
                ws.queues.nack(QUEUE, item.token)
            else:
                ws.queues.ack(QUEUE, item.token)
                say("done", item.number)


def main() -> None:
    (number,) = sys.argv[1:]
    _, folder, clock = sys.stdin.readline().split()
    with holdfast.open(folder, actor=f"worker-{number}", clock=ManualClock(clock), busy_timeout=LONG) as ws:
        say("ready")
        assert sys.stdin.readline() == "go\n"
        work(ws)
    say("end")


# --- in the test -----------------------------------------------------------------------------------------------------


class Worker(Fighter):
    """The parent's end of one such process; it dies when it has taken so many items."""

    def __init__(self, number: int, dies_after: int | None = None) -> None:
        self.number = number
        self._dies_after = dies_after
        command = [sys.executable, "-m", "tests.e2e.test_queue_kill", str(number)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)

    def hear(self, last: str) -> list[list[str]]:
        """All it says; it is killed on the way."""
        assert self._process.stdout is not None
        heard: list[list[str]] = []
        for line in self._process.stdout:
            heard.append(line.decode().split())
            if heard[-1] == [last]:
                return heard[:-1]
            if sum(word == "took" for word, *_ in heard) == self._dies_after:
                self.kill()
        assert self._process.wait(LONG) == -9
        return heard


def crowd(stack: ExitStack, deaths: list[int | None], *place: Path) -> list[list[str]]:
    """Have processes work until nothing is ready, or they are dead; returns what all of them said."""
    workers = [stack.enter_context(Worker(number, death)) for number, death in enumerate(deaths)]
    for worker in workers:
        worker.tell("open", *place)
    for worker in workers:
        assert worker.hear("ready") == []
    for worker in workers:
        worker.tell("go")
    futures = [start(partial(worker.hear, "end")) for worker in workers]
    return [line for future in futures for line in future.result(LONG * 4)]


def events(ws: holdfast.Workspace, id: str) -> Iterator[holdfast.Event]:
    """All that the log says of a queue."""
    cursor: int | str = 0
    while page := ws.events.list(kinds=["queue"], id=id, after=cursor, limit=1000):
        yield from page
        cursor = page[-1].cursor


def replay(told: Iterator[holdfast.Event]) -> tuple[Counter[int], set[int]]:
    """How often each item was acknowledged, and the dead letters, if each delivery was of the first that was ready."""
    ready: set[int] = set()
    dead: set[int] = set()
    acks: Counter[int] = Counter()
    for event in told:
        item = event.data.get("item", 0)
        match event.op:
            case "put":
                first, last = event.data["last"]
                ready |= {*range(first + 1, last + 1)}
            case "take":
                assert item == min(ready), f"{item} was taken before {min(ready)}"
                ready.remove(item)
            case "ack":
                acks[item] += 1
            case "nack" | "expire":
                (dead if "dead" in event.data else ready).add(item)
    return acks, dead


@pytest.mark.early
@pytest.mark.timeout(600)
def test_s4_each_item_is_acknowledged_once_or_a_dead_letter_and_in_order_whoever_is_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "store", tmp_path / "clock"
    clock = ManualClock(place[1])
    chance = random.Random(ITEMS)
    with holdfast.open(place[0], actor="judge", clock=clock, busy_timeout=LONG) as ws, ExitStack() as stack:
        id = ws.stashes.create("jobs", "queue", {"max_deliveries": DELIVERIES}).id
        values = [{"n": number, "bad": number % BAD == 0} for number in range(1, ITEMS + 1)]
        for at in range(0, ITEMS, 1000):
            ws.queues.put_all(id, values[at : at + 1000])
        share = ITEMS // PROCESSES
        deaths: list[int | None] = [chance.randrange(2, share // 2) for _ in range(KILLED)]
        said = crowd(stack, [*deaths, None, None], *place)
        lost = ws.queues.size(id).taken
        assert lost >= 1, "nobody was killed with an item in its hands"
        for _ in range(DELIVERIES):
            clock.advance(TTL)
            said += crowd(stack, [None], *place)
        bad = {number for number in range(1, ITEMS + 1) if number % BAD == 0}
        acks, dead = replay(events(ws, id))
        assert {*acks.values()} == {1}, "an item was acknowledged twice"
        assert acks.keys() | dead == {*range(1, ITEMS + 1)}
        assert not acks.keys() & dead
        assert dead >= bad
        assert {int(number) for word, number in said if word == "done"} <= acks.keys()
        letters: list[QueueItem] = []
        while page := ws.queues.list(id, "dead", limit=1000, after=letters[-1].number if letters else 0):
            letters += page
        assert {item.number for item in letters} == dead
        assert all(item.deliveries == DELIVERIES for item in letters)
        assert [*ws.queues.list(id, "ready"), *ws.queues.list(id, "taken")] == []
        assert ws.check().problems == []
    with capsys.disabled():
        print(
            f"\nqueue: {ITEMS} items, {PROCESSES} processes, {KILLED} killed with {lost} items in their hands;"
            f" {len(acks)} acknowledged once, {len(dead)} dead letters ({len(bad)} bad)"
        )


if __name__ == "__main__":
    main()
