"""Turn files: the time of a send, an edit and a close in a mailbox of 100, 1,000 and 10,000 open cards.

Each figure is the median of calls by a process that has the mailbox in memory, as an MCP server has, and of calls of
the command line, which starts for each. Among 10,000 cards each must take at most half a second on a quiet machine; no
figure is compared with another tool. Beside it is printed the least processor time, which a busy machine changes less.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from holdfast import turnfile
from holdfast.turnfile import Session
from holdfast.turnfile.mail import Mail
from holdfast.turnfile.mailbox import parse, projection
from holdfast.turnfile.model import MAILBOX, PROJECTION, WORKLOG
from tests.bench.measure import Bench, Row

SIZES = (100, 1_000, 10_000)  # open cards
ROUNDS = 7
MOST = 0.5  # seconds
BODY = "What was found, and what is to be done about it by whom.\n\n- one thing\n- another thing\n"
CARD = """### MSG-202601{day:02}-{number:03}

**From:** ada -> bob
**Date:** 2026-01-{day:02}
**Type:** request
**Priority:** P1
**Status:** unread
**Subject:** What was found in part {seq}
**Closure owner:** ada

{body}
---

"""


def run(bench: Bench) -> list[Row]:
    """The median milliseconds of each step, by size."""
    rows: list[Row] = []
    rounds = bench.count(ROUNDS, 1)
    for wanted in SIZES:
        size = bench.count(wanted, 5)
        session = mailbox(bench.folder / f"turns-{wanted}", size)
        for name, (median, least) in {**inside(session, rounds), **outside(session, rounds)}.items():
            processor = f"{least * 1000:8.1f} ms of processor time"
            bench.say(f"  {size:>6,} cards  {name:<24} {median * 1000:8.1f} ms {processor}")
            bar = MOST if wanted == SIZES[-1] else None
            quiet = os.getloadavg()[0] < (os.cpu_count() or 1) / 2
            rows.append(Row("turns", f"{name}, {wanted:,} cards", median, "s", at_most=bar, applies=quiet))
    return rows


def mailbox(folder: Path, size: int) -> Session:
    """A session with so many open cards."""
    session = Session(folder / "working-session")
    turnfile.init(session, "bench", ("ada", "bob"), "mia")
    path = Path(session.folder.path, MAILBOX)
    box = parse(path.read_text())
    cards = [CARD.format(day=1 + seq // 900, number=1 + seq % 900, seq=seq, body=BODY) for seq in reversed(range(size))]
    at = box.sections["active"].end
    text = f"{box.text[:at]}\n{''.join(cards)}{box.text[at:].lstrip()}"
    path.write_text(projection.refresh(parse(text)).text)
    Path(session.folder.path, PROJECTION).write_text(
        projection.render(path.read_text(), f"working-session/{MAILBOX}", "2026-01-01T00:00:00Z")
    )
    assert [problem for problem in turnfile.check(session) if problem.level == "error"] == []
    return session


Times = tuple[float, float]
"""The median seconds of some calls, and the least processor time."""


def inside(session: Session, rounds: int) -> dict[str, Times]:
    """The times of calls in this process."""
    mail = Mail(session, "ada", wait=None)
    sent = [mail.send("bob", "warm up").id]
    steps: dict[str, Callable[[int], object]] = {
        "send": lambda n: sent.append(mail.send("bob", f"number {n}", body=BODY).id),
        "edit": lambda n: turnfile.transact(
            [WORKLOG], "ada", "log", lambda edit: edit.write(WORKLOG, f"{edit.read(WORKLOG)}\n- {n}\n"), folder=session
        ),
        "edit of the mailbox": lambda n: turnfile.transact(
            [MAILBOX],
            "ada",
            "note",
            lambda edit: edit.write(MAILBOX, f"{edit.read(MAILBOX)}\nNote {n}.\n"),
            folder=session,
        ),
        "close": lambda n: mail.close(sent.pop()),
    }
    return {name: _times(step, rounds) for name, step in steps.items()}


def outside(session: Session, rounds: int) -> dict[str, Times]:
    """The times of calls of the command line."""
    begin = [sys.executable, "-m", "holdfast", "turn", "mail"]
    end = ["--actor", "ada", "--dir", session.folder.path]
    sent: list[str] = []

    def send(n: int) -> None:
        line = [*begin, "send", "--to", "bob", "--subject", f"number {n}", "--body", BODY, "-q", *end]
        sent.append(subprocess.run(line, check=True, capture_output=True, text=True).stdout.split()[0])

    def close(n: int) -> None:
        subprocess.run([*begin, "close", sent.pop(), *end], check=True, capture_output=True)

    return {"send, command line": _times(send, rounds), "close, command line": _times(close, rounds)}


def _times(step: Callable[[int], object], rounds: int) -> Times:
    times, processor = [], []
    for n in range(rounds):
        start, used = time.perf_counter(), _used()
        step(n)
        times.append(time.perf_counter() - start)
        processor.append(_used() - used)
    return statistics.median(times), min(processor)


def _used() -> float:
    """The processor time of this process and of those that it has waited for."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(now.ru_utime + now.ru_stime for now in map(resource.getrusage, kinds))
