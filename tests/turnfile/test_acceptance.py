"""The six acceptance criteria of the locking contract, as one script of shells on one folder.

Every call is a process of its own, as agents make them: two agents and a maintainer, through two working sessions that
fight for the mailbox, a tie of two locks that other tools wrote, a lock that goes stale and one that nobody gives back.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from holdfast.turnfile.mailbox import projection
from tests.cli.calling import Answer, Shell, ended, environment

EACH = 3  # messages of an agent in a session


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """`holdfast WORDS` in an empty folder, without anything of the user's."""
    return Shell(tmp_path, environment(tmp_path / "home"))


class Room:
    """A working session, and what one sees who looks at its files."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.folder = shell.folder / "working-session"

    def __call__(self, *words: str) -> Answer:
        """`holdfast turn WORDS --json`."""
        return self.shell("--json", "turn", *words)

    def did(self, *words: str) -> Any:
        """The same, which must go well; afterwards the projection is fresh."""
        answer = self(*words)
        assert answer.code == 0, (words, answer)
        self.is_fresh()
        return answer.data

    def start(self, *words: str) -> subprocess.Popen[str]:
        """The same, while others run."""
        return self.shell.start("--json", "turn", *words)

    def text(self, name: str) -> str:
        """What a file says."""
        return (self.folder / name).read_text()

    def is_fresh(self) -> None:
        """Criterion 3, at this moment."""
        assert not projection.is_stale(self.text("MAILBOX.md"), self.text("MAILBOX.json"))

    def is_in_order(self) -> None:
        """Criteria 1, 2, 3 and 5, at this moment: `turn check` knows all four."""
        answer = self("check")
        assert (answer.code, answer.data["problems"]) == (0, []), answer

    def unread(self) -> dict[str, int]:
        """The unread counts, from the cards."""
        said = self.text("MAILBOX.json")
        messages = json.loads(said)["active_messages"]
        to = [message["fields"]["to"] for message in messages if message["status"] == "unread"]
        return {name: to.count(name) for name in ("ada", "bob", "mia")}

    def snapshot(self) -> dict[str, int]:
        """The unread counts, from the table."""
        return {name: int(count) for name, count in re.findall(r"^\| (\w+) \| (\d+) \|", self.text("MAILBOX.md"), re.M)}


def test_the_six_acceptance_criteria_hold(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell("turn", "init", "--agent", "ada", "--agent", "bob", "--maintainer", "mia").code == 0
    room = Room(shell)
    ids = [id for number in (1, 2) for id in _a_session_of_two_agents(room, number)]
    assert len(set(ids)) == len(ids) == 4 * EACH  # 2: no id twice, in two sessions of two agents
    _a_tie_is_resolved_by_precedence(room)
    _no_stale_lock_stays(room)
    _a_silent_holder_is_escalated_and_overridden(room)
    room.is_in_order()
    with capsys.disabled():
        print(f"\n{len(ids)} messages, revision {room('status').data['revision']}, nothing out of order")


def _a_session_of_two_agents(room: Room, number: int) -> Iterator[str]:
    """1, 2, 3: both send at the same time, then read and act; every count is right, every id new."""
    with ExitStack() as stack:
        running = [
            stack.enter_context(
                room.start(
                    *("mail", "send", "--from", sender, "--to", receiver, "--wait", "20"),
                    *("--subject", f"session {number}, {sender} {count}"),
                )
            )
            for count in range(EACH)
            for sender, receiver in (("ada", "bob"), ("bob", "ada"))
        ]
        answers = [ended(process) for process in running]
    assert [answer.code for answer in answers] == [0] * len(running), answers
    room.is_in_order()
    assert room.unread() == room.snapshot() == {"ada": EACH, "bob": EACH, "mia": 0}
    for name, other in (("ada", "bob"), ("bob", "ada")):
        for message in room.did("mail", "list", "--actor", name, "--status", "unread"):
            if message["fields"]["to"] == name:
                room.did("mail", "action", message["id"], "done", "--actor", name)
                room.did("mail", "close", message["id"], "--actor", other)
    room.is_in_order()
    assert room.unread() == room.snapshot() == {"ada": 0, "bob": 0, "mia": 0}
    yield from (answer.data["id"] for answer in answers)


def _a_tie_is_resolved_by_precedence(room: Room) -> None:
    """4: two tools wrote a lock at the same revision: the smaller id wins, the other has its turn after."""
    ledger = room.folder / "TURNFILE.yaml"
    revision = room("status").data["revision"]
    entry = '  {id}:\n    files: ["working-session/WORKLOG.md"]\n    holder: "{holder}"\n    acquired_rev: {revision}\n'
    locks = "".join(
        entry.format(id=f"LOCK-{holder}-900", holder=holder, revision=revision) for holder in ("bob", "ada")
    )
    ledger.write_text(ledger.read_text().replace("locks: {}\n", f"locks:\n{locks}"))
    log = ("transact", "WORKLOG.md", "--reason", "log it", "--no-wait")
    before = room.text("WORKLOG.md")
    lost = room(*log, "--holder", "bob", "--under", "LOCK-bob-900", "--", "sh", "-c", "echo '- bob' >> WORKLOG.md")
    assert lost.code == 13, lost
    assert room.text("WORKLOG.md") == before
    room.did(*log, "--holder", "ada", "--under", "LOCK-ada-900", "--", "sh", "-c", "echo '- ada' >> WORKLOG.md")
    room.did("unlock", "LOCK-ada-900", "--holder", "ada")
    assert room("unlock", "LOCK-bob-900", "--holder", "bob").code == 10  # the loser's lock went when it lost
    room.did(*log, "--holder", "bob", "--", "sh", "-c", "echo '- bob' >> WORKLOG.md")
    assert room.text("WORKLOG.md") == before + "- ada\n- bob\n"


def _no_stale_lock_stays(room: Room) -> None:
    """5: a lock beyond its lease fails the check until somebody clears it; nothing else does."""
    held = room.did("lock", "OPEN_QUESTIONS.md", "--holder", "ada", "--reason", "forgotten", "--lease-revs", "2")
    for _ in range(2):
        room.did("signal", "ready", "--from", "bob")
        room.is_in_order()
    room.did("signal", "ready", "--from", "bob")
    answer = room("check")
    assert (answer.code, [problem["rule"] for problem in answer.data["problems"]]) == (1, ["lock-stale"])
    assert [lock["id"] for lock in room.did("clear", "--actor", "bob")] == [held["id"]]
    room.is_in_order()


def _a_silent_holder_is_escalated_and_overridden(room: Room) -> None:
    """6: nothing moves; who waits asks the maintainer after two looks, who overrides, and the work goes on."""
    held = room.did("lock", "WORKLOG.md", "--holder", "ada", "--reason", "gone to lunch", "--lease-revs", "9")
    want = ("transact", "WORKLOG.md", "--holder", "bob", "--reason", "urgent", "--wait", "0.05")
    edit = ("--", "sh", "-c", "echo '- urgent' >> WORKLOG.md")
    blocked = room(*want, *edit)
    assert (blocked.code, blocked.error["code"]) == (12, "ESCALATED")
    asked = room.did("mail", "show", blocked.error["details"]["notice"])
    assert (asked["fields"]["type"], asked["fields"]["to"]) == ("decision-required", "mia")
    assert held["id"] in asked["body"]
    room.did("override", held["id"], "--reason", "P0: the release waits, ada does not answer", "--actor", "mia")
    assert held["id"] in room.text("WORKLOG.md")
    room.did(*want, *edit)
    room.did("mail", "action", asked["id"], "overridden", "--actor", "mia")
    room.did("mail", "close", asked["id"], "--actor", "bob")
    assert room.text("WORKLOG.md").endswith("- urgent\n")
