"""Mutated inputs: whatever a file says, only our own errors come out, in time, and nothing is written elsewhere.

`TURN_FUZZ` sets how many mutations of each kind are tried (2,000; 200,000 for a long run), `TURN_SEED` which ones.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import errors
from holdfast.turnfile import ledger as codec
from holdfast.turnfile.invariants import check
from holdfast.turnfile.mail import Mail, messages
from holdfast.turnfile.mailbox import parse, projection
from holdfast.turnfile.mailbox.draft import Draft, compose
from holdfast.turnfile.mailbox.steps import Actor, close, reply, step
from holdfast.turnfile.model import Lock
from holdfast.turnfile.session import Session
from holdfast.turnfile.worklog import note_override
from tests.turnfile.mailboxes import DIALECTS, EMPTY, QUESTIONS, WORKLOG
from tests.turnfile.test_mailing import LEDGER

COUNT = int(os.environ.get("TURN_FUZZ", "2000"))
SEED = int(os.environ.get("TURN_SEED", "1"))
PIECES = [
    *(
        "\n",
        "\r\n",
        "\r",
        "|",
        "\\|",
        "---\n",
        "```\n",
        "~~~\n",
        "<!--\n",
        "-->",
        "**",
        ":",
        ",",
        " ",
        "\t",
        "\x00",
        "é",
    ),
    *(
        "### MSG-20260302-001\n",
        "### MSG-20260302-999999999\n",
        "## Active Messages\n",
        "## Closed Summary\n",
        "\u2028",
    ),
    *(
        "**Status:** unread\n",
        "**Ack:** x\n",
        "Message ID: MSG-20260302-001\nFrom: a\n",
        "| Field | Value |\n|---|---|\n",
    ),
    *("../../etc/passwd", "'", '"', "&a", "*a", "!!python/object", "{", "}", "[", "]", "#", "- ", "? ", "~", "9" * 30),
    *("|---|\n", "## Open Queue\n", "revision: -1\n"),
]
pytestmark = pytest.mark.timeout(600 + COUNT // 40)
TODAY = "2026-03-04"


def mutated(rng: random.Random, text: str, others: list[str]) -> str:
    """A text with a few pieces cut, doubled, moved, put in or taken from another text."""
    for _ in range(rng.randint(1, 6)):
        at = rng.randint(0, len(text))
        end = min(len(text), at + rng.choice((1, 3, 20, 200)))
        kind = rng.randrange(6)
        if kind == 0:
            text = text[:at] + text[end:]
        elif kind == 1:
            text = text[:at] + text[at:end] * 2 + text[end:]
        elif kind == 2:
            piece, rest = text[at:end], text[:at] + text[end:]
            to = rng.randint(0, len(rest))
            text = rest[:to] + piece + rest[to:]
        elif kind == 3:
            text = text[:at] + rng.choice(PIECES) + text[at:]
        elif kind == 4:
            other = rng.choice(others)
            start = rng.randint(0, len(other))
            text = text[:at] + other[start : start + 300] + text[end:]
        else:
            text = text[:at] + chr(rng.choice((rng.randrange(32, 127), rng.randrange(0x110000 - 0x800)))) + text[end:]
    return text.encode("utf-8", "replace").decode()


def survives(do: Callable[[], object]) -> object | None:
    """What it gives, or None for a refusal of ours; any other error is a failure."""
    try:
        return do()
    except errors.HoldfastError:
        return None


def test_f9_a_mutated_mailbox_is_read_checked_projected_and_changed_or_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rng = random.Random(SEED)
    texts = list(DIALECTS.values())
    done = 0
    for number in range(COUNT):
        text = mutated(rng, rng.choice(texts), texts)
        box = parse(text)
        assert "".join(text[line.start : line.after] for line in box.lines) == text, (SEED, number)
        check({"MAILBOX.md": text})
        assert not projection.is_stale(text, projection.render(text, "x/MAILBOX.md", "now"))
        card = rng.choice(box.cards) if box.cards else None
        id = card.id if card else "MSG-20260302-001"
        receiver = Actor(card.receivers[0] if card and card.receivers else "bob", TODAY)
        sender = Actor(card.sender if card else "ada", TODAY)
        body = mutated(rng, "A body.", texts)
        changes: list[Callable[[], str]] = [
            lambda: compose(text, Draft("ada", "bob", "s", TODAY, body=body))[0],  # noqa: B023 - called at once
            lambda: step(text, id, rng.choice(("ack", "action", "block")), receiver, "a note"),  # noqa: B023
            lambda: close(text, id, sender, "a note").text,  # noqa: B023
            lambda: close(text, id, sender, keep="why").text,  # noqa: B023
            lambda: reply(text, id, receiver, Draft(receiver.name, "", "", TODAY))[0],  # noqa: B023
        ]
        for change in rng.sample(changes, 2):
            after = survives(change)
            if isinstance(after, str):
                done += 1
                kept = {card.id: text[card.start : card.end].strip() for card in box.cards if card.id != id}
                now = {card.id: after[card.start : card.end].strip() for card in parse(after).cards}
                assert kept.items() <= now.items(), (SEED, number)  # no other card is touched
    with capsys.disabled():
        print(f"\n{COUNT} mutated mailboxes, {done} changes of {2 * COUNT} went through, the others were refused")
    assert done


def test_f1_a_mutated_ledger_is_read_or_refused_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(SEED)
    read, lines = 0, list[int]()
    for _ in range(COUNT):
        text = mutated(rng, LEDGER, [LEDGER, EMPTY])
        try:
            ledger = codec.read(text)
        except errors.Invalid as error:
            lines.append(error.details.get("line", 0))
            continue
        read += 1
        assert ledger.text == text
        survives(lambda: ledger.with_lock(Lock("LOCK-x-001", ("a.md",), "x", 1)).stamped(99, "x"))  # noqa: B023
        check({"TURNFILE.yaml": text})
    with capsys.disabled():
        print(f"\n{COUNT} mutated ledgers, {read} of them read, the others refused")
    assert 0 < read < COUNT
    assert min(lines) >= 1


def test_f10_mutated_worklogs_and_questions_are_checked_and_added_to() -> None:
    rng = random.Random(SEED)
    lock = Lock("LOCK-x-001", ("a.md",), "x", 1)
    for _ in range(COUNT // 2):
        text = mutated(rng, WORKLOG, [WORKLOG, QUESTIONS])
        check({"WORKLOG.md": text, "OPEN_QUESTIONS.md": mutated(rng, QUESTIONS, [WORKLOG, QUESTIONS])})
        noted = note_override(text, lock, 9, "sam", "P0")
        assert "### Override of LOCK-x-001 at revision 9" in noted


def test_no_hostile_folder_makes_a_write_outside_of_it(tmp_path: Path) -> None:
    """Mutated files, symlinks in the place of files: what lies beside the folder never changes."""
    rng = random.Random(SEED)
    outside = tmp_path / "outside"
    outside.mkdir()
    victims = [
        outside / name for name in ("MAILBOX.md", "MAILBOX.json", "TURNFILE.yaml", "MAILBOX_ARCHIVE.md", "passwd")
    ]
    for victim in victims:
        victim.write_text(EMPTY)
    folder = tmp_path / "working-session"
    folder.mkdir()

    def seal() -> str:
        digest = hashlib.sha256()
        for path in sorted(outside.rglob("*")):
            digest.update(str(path).encode() + path.read_bytes())
        return digest.hexdigest()

    sealed = seal()
    names = ("TURNFILE.yaml", "MAILBOX.md", "MAILBOX.json", "MAILBOX_ARCHIVE.md", ".TURNFILE.lock")
    for _ in range(max(20, COUNT // 40)):
        for path in folder.iterdir():
            path.unlink()
        ledger = LEDGER if rng.random() < 0.7 else mutated(rng, LEDGER, [LEDGER])
        (folder / "TURNFILE.yaml").write_bytes(
            ledger.replace("working-session/", rng.choice(("working-session/", "../outside/", "/"))).encode()
        )
        (folder / "MAILBOX.md").write_bytes(
            mutated(rng, rng.choice(list(DIALECTS.values())), list(DIALECTS.values())).encode()
        )
        if rng.random() < 0.5:
            name = rng.choice(names)
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(outside / rng.choice(victims).name)
        session = Session(folder)
        ids = [one["id"] for one in survives(lambda: messages(session)) or []]  # type: ignore[attr-defined]  # noqa: B023
        hand = Mail(session, "ada", wait=None)
        survives(lambda: hand.send("bob", "x"))  # noqa: B023
        for id in ids[:1]:
            survives(lambda: hand.ack(id))  # noqa: B023
            survives(lambda: hand.close(id))  # noqa: B023
        assert seal() == sealed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside", "working-session"]
