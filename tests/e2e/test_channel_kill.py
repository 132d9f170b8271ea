"""Eight processes read one channel, each for a subscriber, are killed with -9 and begin again where they acknowledged.

No subscriber misses a message, and none reads one again that it has acknowledged.

`python -m tests.e2e.test_channel_kill SUBSCRIBER LAST FOLDER` is one of the processes: it reads on, says `got` for each
message and `acked` for each acknowledgement, until it has read the last.
"""

from __future__ import annotations

import random
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import holdfast
from holdfast.testing.crowd import LONG, start
from tests.amounts import amount
from tests.e2e.claim_worker import ROOT, say

SUBSCRIBERS = 8
KILLS = amount(1, 3)  # of each
MESSAGES = amount(200, 2_000)
CHANNEL = (None, "news")


# --- in the process --------------------------------------------------------------------------------------------------


def main() -> None:
    subscriber, last, folder = sys.argv[1:]
    with holdfast.open(folder, actor=subscriber, busy_timeout=LONG) as ws:
        cursor = ws.channels.subscribe(CHANNEL, after=0).cursor
        while cursor < int(last):
            for message in ws.channels.read(CHANNEL, limit=7, wait=LONG):
                say("got", message.number, message.value)
                cursor = message.number
            say("acked", ws.channels.ack(CHANNEL, cursor))


# --- in the test -----------------------------------------------------------------------------------------------------


def life(folder: Path, subscriber: str, dies_after: int | None) -> list[list[str]]:
    """What a process of a subscriber says before it is killed, after so many lines, or is through."""
    command = [sys.executable, "-m", "tests.e2e.test_channel_kill", subscriber, str(MESSAGES), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        heard: list[list[str]] = []
        for line in process.stdout:
            heard.append(line.decode().split())
            if len(heard) == dies_after:
                process.kill()
        assert process.wait(LONG) in (0, -9)
    return heard


def lives(folder: Path, subscriber: str) -> list[list[list[str]]]:
    """What each process of a subscriber said: all but the last are killed."""
    chance = random.Random(subscriber)
    deaths: list[int | None] = [chance.randrange(1, MESSAGES // (KILLS + 1)) for _ in range(KILLS)]
    return [life(folder, subscriber, death) for death in [*deaths, None]]


@pytest.mark.early
@pytest.mark.timeout(600)
def test_s4_a_subscriber_that_is_killed_misses_nothing_and_reads_nothing_again_that_it_acknowledged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = 0
    with holdfast.open(tmp_path / "store", actor="publisher", busy_timeout=LONG) as ws:
        ws.stashes.create("news", "channel")
        said = [start(partial(lives, tmp_path / "store", f"reader-{number}")) for number in range(SUBSCRIBERS)]
        for number in range(1, MESSAGES + 1):
            assert ws.channels.publish(CHANNEL, number * 7) == number
        for each in said:
            read = acked = 0
            for heard in each.result(LONG * 4):
                first = True
                for word, said_number, *value in heard:
                    number = int(said_number)
                    if word == "acked":
                        acked = number
                        continue
                    assert value == [str(number * 7)]
                    assert number == read + 1 or (first and acked < number <= read), "a gap, or read again"
                    again += number <= read
                    read, first = number, False
            assert (read, acked) == (MESSAGES, MESSAGES)
        assert [each.cursor for each in ws.channels.subscribers(CHANNEL)] == [MESSAGES] * SUBSCRIBERS
        assert ws.check().problems == []
    with capsys.disabled():
        print(
            f"\nchannel: {MESSAGES} messages, {SUBSCRIBERS} subscribers killed {KILLS} times each;"
            f" no gap, none read again after its acknowledgement, {again} read again before it"
        )


if __name__ == "__main__":
    main()
