"""Disorder of every kind, planted in copies of a session's files: what people and other tools leave behind."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

from holdfast.turnfile.damage import conflict
from holdfast.turnfile.mailbox import parse
from holdfast.turnfile.model import ARCHIVE, CLOSED, MAILBOX, QUESTIONS, SIGNAL_ARCHIVE, TURNFILE, WORKLOG
from tests.turnfile.mailboxes import BOLD, MIXED, PLAIN, SAMPLES, TABLE
from tests.turnfile.mailboxes import QUESTIONS as SOME_QUESTIONS
from tests.turnfile.mailboxes import WORKLOG as A_WORKLOG

Texts = dict[str, str]
Plant = Callable[[random.Random, Texts], bool]
"""Plants one disorder in some texts; False if they have no place for it."""

LEDGER = """\
# Last modified revision: 12
# Modified by: ada

turnfile:
  version: "0.1"
  project: "harbour"
  workspace: "working-session/"
agents:
  ada:
    role: "agent"
    status: "idle"
    current_task: null
  bob:
    role: "agent"
    status: "idle"
    current_task: null
maintainer:
  id: "sam"
  status: "available"
coordination:
  revision: 12
  active_phase: "one"
  active_step: null
  tasks:
    survey:
      description: "survey the harbour"
      owner: "ada"
      status: "pending"
      priority: "P1"
      depends_on: []
locks: {}
turn_queue: []
messages:
  - id: "SIG-002"
    from: "ada"
    to: "all"
    signal: "ready"
    rev: 5
  - id: "SIG-001"
    from: "bob"
    to: "ada"
    signal: "yield"
    rev: 4
"""


def bases() -> list[Texts]:
    """Sessions in order, in every dialect; and those of the samples, if there are any."""
    ours = [
        {TURNFILE: LEDGER, MAILBOX: box, WORKLOG: A_WORKLOG, QUESTIONS: SOME_QUESTIONS}
        for box in (BOLD, TABLE, MIXED, PLAIN)
    ]
    for ledger in sorted(Path(SAMPLES).glob(f"*/{TURNFILE}")):
        paths = [path for name in (TURNFILE, MAILBOX, WORKLOG, QUESTIONS) if (path := ledger.parent / name).is_file()]
        ours.append({path.name: path.read_text() for path in paths})
    return ours


def plant(rng: random.Random, texts: Texts) -> list[str]:
    """Plant one to six disorders; returns their names."""
    planted: list[str] = []
    for kind in rng.sample(KINDS, len(KINDS)):
        if len(planted) == 6 or (planted and rng.random() < 0.15):
            break
        if kind(rng, texts):
            planted.append(kind.__name__)
    return planted


def _swap(texts: Texts, file: str, old: str, new: str) -> bool:
    """Replace the first place of a pattern."""
    if file not in texts:
        return False
    after = re.sub(old, new, texts[file], count=1, flags=re.MULTILINE)
    changed = after != texts[file]
    texts[file] = after
    return changed


def _card(rng: random.Random, texts: Texts) -> tuple[int, int] | None:
    cards = parse(texts[MAILBOX]).cards
    card = rng.choice(cards) if cards else None
    return (card.start, card.lines[-1].end) if card else None


def _into_active(texts: Texts, card: str) -> bool:
    box = parse(texts[MAILBOX])
    if not box.cards:
        return False
    at = box.cards[0].start
    texts[MAILBOX] = f"{box.text[:at]}{card}\n\n---\n\n{box.text[at:]}"
    return True


def copied_card(rng: random.Random, texts: Texts) -> bool:
    span = _card(rng, texts)
    return span is not None and _into_active(texts, texts[MAILBOX][slice(*span)])


def reused_id(rng: random.Random, texts: Texts) -> bool:
    span = _card(rng, texts)
    if span is None:
        return False
    card = texts[MAILBOX][slice(*span)]
    return _into_active(texts, f"{card}\n\nAnother message {rng.random()}.")


def card_below_the_closed_summary(rng: random.Random, texts: Texts) -> bool:
    span = _card(rng, texts)
    if span is None or "active" not in parse(texts[MAILBOX]).sections or "closed" not in parse(texts[MAILBOX]).sections:
        return False
    card = texts[MAILBOX][slice(*span)]
    if not card.startswith("###"):
        return False
    texts[MAILBOX] = texts[MAILBOX].rstrip("\n") + "\n\n" + card + "\n"
    if rng.random() < 0.5:
        texts[MAILBOX] = texts[MAILBOX][: span[0]] + texts[MAILBOX][span[1] :].lstrip("\n")
    return True


def wrong_count(rng: random.Random, texts: Texts) -> bool:
    return _swap(texts, MAILBOX, r"^(\| *(?:Ada|Bob|Codex|Claude) *\|) *[0-9]+ *\|", rf"\1 {rng.randint(3, 9)} |")


def agent_twice_in_the_snapshot(rng: random.Random, texts: Texts) -> bool:
    return _swap(texts, MAILBOX, r"^(\| *(?:Ada|Codex) *\| *[0-9]+ *\|.*)$", r"\1\n\1")


def row_lost(rng: random.Random, texts: Texts) -> bool:
    return _swap(texts, MAILBOX, r"^\| *MSG-.*\n", "")


def row_twice(rng: random.Random, texts: Texts) -> bool:
    return _swap(texts, MAILBOX, r"^(\| *MSG-.*)$", r"\1\n\1")


def row_without_a_card(rng: random.Random, texts: Texts) -> bool:
    return _swap(texts, MAILBOX, r"^(\| *MSG-[0-9]{8})-[0-9]+( *\|.*)$", rf"\1-{rng.randint(700, 900)}\2\n\g<0>")


def status_by_hand(rng: random.Random, texts: Texts) -> bool:
    word = rng.choice(("closed", "resolved", "pondering", "Done", "acknowledged", "blocked", "new"))
    return _swap(texts, MAILBOX, r"^(\*\*Status:\*\*|Status:|\| Status \|) *\w+", rf"\1 {word}")


def no_status(rng: random.Random, texts: Texts) -> bool:
    return _swap(texts, MAILBOX, r"^\*\*Status:\*\* .*\n", "")


def no_receiver(rng: random.Random, texts: Texts) -> bool:
    return _swap(texts, MAILBOX, r"^(\*\*From:\*\* \w+) -> .*$", r"\1") or _swap(texts, MAILBOX, r"^\| To \| .*\n", "")


def no_sender(rng: random.Random, texts: Texts) -> bool:
    return _swap(texts, MAILBOX, r"^\*\*From:\*\* .*\n", "")


def bad_id(rng: random.Random, texts: Texts) -> bool:
    return _swap(texts, MAILBOX, r"^### MSG-([0-9]{4})[0-9]{4}-[0-9]+$", r"### MSG-\1-7")


def two_values(rng: random.Random, texts: Texts) -> bool:
    return _swap(texts, MAILBOX, r"^(\*\*Priority:\*\* P[012])$", r"\1\n**Priority:** P9")


def dense_block(rng: random.Random, texts: Texts) -> bool:
    return _swap(texts, MAILBOX, r"^(Please read.*|Here it is\.|Welcome to .*)$", r"\1\n\n```dense\nq w e\n```")


def open_card_in_the_summary(rng: random.Random, texts: Texts) -> bool:
    cards = [card for card in parse(texts[MAILBOX]).cards if card.status == "unread"]
    closed = parse(texts[MAILBOX]).closed
    if not cards or closed is None or "date" not in closed.columns:
        return False
    row = f"| {cards[0].id} | 2026-03-03 | Ada -> Bob | closed | by hand |\n"
    texts[MAILBOX] = texts[MAILBOX][: closed.end] + row + texts[MAILBOX][closed.end :]
    return True


def closed_row_broken(rng: random.Random, texts: Texts) -> bool:
    closed = parse(texts[MAILBOX]).closed
    if closed is None:
        return False
    row = rng.choice(
        ("| MSG-20250101-001 |", "|  | 2026-01-01 | Ada -> Bob | closed | x |", "| MSG-20250101-002 | | | closed | |")
    )
    texts[MAILBOX] = texts[MAILBOX][: closed.end] + row + "\n" + texts[MAILBOX][closed.end :]
    return True


def out_of_order(rng: random.Random, texts: Texts) -> bool:
    box = parse(texts[MAILBOX])
    if len(box.cards) < 2:
        return False
    first, last = box.cards[0], box.cards[-1]
    one, other = (box.text[card.start : card.lines[-1].end] for card in (first, last))
    between = box.text[first.lines[-1].end : last.start]
    texts[MAILBOX] = box.text[: first.start] + other + between + one + box.text[last.lines[-1].end :]
    return True


def section_lost(rng: random.Random, texts: Texts) -> bool:
    box = parse(texts[MAILBOX])
    if "active" not in box.sections:
        return False
    key = rng.choice(("snapshot", "queue", "closed"))
    if key not in box.sections:
        return False
    section = box.sections[key]
    texts[MAILBOX] = box.text[: section.heading.start] + box.text[section.end :]
    return True


def table_lost(rng: random.Random, texts: Texts) -> bool:
    return _swap(texts, MAILBOX, r"^\| *(?:ID|Agent) *\|.*\n\|[-| ]*\|\n", "")


def strange_columns(rng: random.Random, texts: Texts) -> bool:
    return _swap(texts, MAILBOX, r"^\| *(?:ID|Agent) *\|", "| What |")


def section_twice(rng: random.Random, texts: Texts) -> bool:
    table = "## Open Queue\n\n| ID | From -> To | Priority |\n|--|--|--|\n| MSG-20260101-001 | a -> b | P1 |\n\n"
    return _swap(texts, MAILBOX, r"^(?=## Active Messages)", table)


def nul_byte(rng: random.Random, texts: Texts) -> bool:
    file = rng.choice((MAILBOX, WORKLOG))
    if file not in texts:
        return False
    texts[file] += "\na torn \0 line\n"
    return True


def worker_twice(rng: random.Random, texts: Texts) -> bool:
    return _swap(texts, WORKLOG, r"^(Now Working \([^)]*\)):.*$", r"\g<0>\n\1: something else")


def worker_empty(rng: random.Random, texts: Texts) -> bool:
    return _swap(texts, WORKLOG, r"^(Now Working \([^)]*\)|Maintainer Focus):.*$", r"\1:")


def worker_idle(rng: random.Random, texts: Texts) -> bool:
    return _swap(texts, WORKLOG, r"^Now Working \(bob\):.*$", "Now Working (bob): idle")


def question_twice(rng: random.Random, texts: Texts) -> bool:
    return _swap(texts, QUESTIONS, r"^(\| *OQ-[0-9A-Z]+ *\|)(.*)$", r"\g<0>\n\1 (again) \2")


def question_in_two_sections(rng: random.Random, texts: Texts) -> bool:
    return _swap(texts, QUESTIONS, r"OQ-001", "OQ-R01")


def question_without_id(rng: random.Random, texts: Texts) -> bool:
    return _swap(texts, QUESTIONS, r"^\| *OQ-[0-9A-Z]+ *\|", "| |")


def question_answered(rng: random.Random, texts: Texts) -> bool:
    status = rng.choice(("active", "resolved", "", "deferred", "hmm"))
    return _swap(texts, QUESTIONS, r"\| active \| none \|", f"| {status} | the far one |")


def question_resolved_by_nothing(rng: random.Random, texts: Texts) -> bool:
    return _swap(texts, QUESTIONS, r"\| the near one \|", "| none |")


def stale_lock(rng: random.Random, texts: Texts) -> bool:
    reason = rng.choice(("", '\n    reason: "left"'))
    lock = f'LOCK-eve-001:\n    files: ["working-session/WORKLOG.md"]\n    holder: "eve"\n    acquired_rev: 1{reason}\n'
    return _swap(texts, TURNFILE, r"^locks: \{\}\n", f"locks:\n  {lock}")


def signal_twice(rng: random.Random, texts: Texts) -> bool:
    return _swap(texts, TURNFILE, r"SIG-002", "SIG-001")


def ledger_words(rng: random.Random, texts: Texts) -> bool:
    old, new = rng.choice(
        (
            (r'role: "agent"', 'role: "boss"'),
            (r'status: "pending"', 'status: "In-Progress"'),
            (r'owner: "ada"', 'owner: "zoe"'),
            (r"depends_on: \[\]", 'depends_on: ["nowhere"]'),
            (r"rev: 5", "rev: 500"),
            (r"current_task: null", 'current_task: "nothing"'),
            (r'    signal: "yield"\n', ""),
        )
    )
    return _swap(texts, TURNFILE, old, new)


def all_headings_lost(rng: random.Random, texts: Texts) -> bool:
    box = parse(texts[MAILBOX])
    if "queue" not in box.sections or box.queue is None or not box.queue.rows:
        return False
    cut = sorted((each.heading for each in box.sections.values()), key=lambda line: line.start, reverse=True)
    text = box.text
    for line in cut:
        text = text[: line.start] + text[line.after :]
    texts[MAILBOX] = text
    return True


def arrow_lost(rng: random.Random, texts: Texts) -> bool:
    return _swap(texts, MAILBOX, r"^(\*\*From:\*\* \w+) -> (\w+)$", r"\1 \2")


def archived_id_twice(rng: random.Random, texts: Texts) -> bool:
    """A card of the archive has the id of another, or that of a card of the mailbox; or it is a copy."""
    span = _card(rng, texts)
    if span is None:
        return False
    card = texts[MAILBOX][slice(*span)]
    if not card.startswith("###") or "`" in card:
        return False
    other = f"{card}\n\nAnother message {rng.random()}."
    added = rng.choice(([card], [other], [card, other], [other, card, card]))
    texts[ARCHIVE] = "\n\n---\n\n".join([texts.get(ARCHIVE, "# Mailbox Archive"), *added]) + "\n"
    return True


def nul_byte_in_an_archive(rng: random.Random, texts: Texts) -> bool:
    file = rng.choice((ARCHIVE, CLOSED, SIGNAL_ARCHIVE))
    if not texts.get(file):
        texts[file] = {ARCHIVE: "# Mailbox Archive\n", CLOSED: "# Closed messages\n"}.get(file, "messages:\n")
    texts[file] += "# torn \0 line\n"
    return True


def unmerged(rng: random.Random, texts: Texts) -> bool:
    """Around a line of a file, git's markers: nobody but a person can repair that."""
    file = rng.choice([each for each in (MAILBOX, WORKLOG, QUESTIONS, ARCHIVE) if texts.get(each)])
    lines = texts[file].split("\n")
    at = rng.randrange(len(lines))
    lines[at : at + 1] = ["<<<<<<< HEAD", lines[at], "=======", lines[at].upper(), ">>>>>>> theirs"]
    texts[file] = "\n".join(lines)
    return bool(conflict(texts[file]))


KINDS: list[Plant] = [
    *(all_headings_lost, arrow_lost, archived_id_twice, nul_byte_in_an_archive),
    *(copied_card, reused_id, card_below_the_closed_summary, wrong_count, agent_twice_in_the_snapshot, row_lost),
    *(row_twice, row_without_a_card, status_by_hand, no_status, no_receiver, no_sender, bad_id, two_values),
    *(dense_block, open_card_in_the_summary, closed_row_broken, out_of_order, section_lost, table_lost),
    *(strange_columns, section_twice, nul_byte, worker_twice, worker_empty, worker_idle, question_twice),
    *(question_in_two_sections, question_without_id, question_answered, question_resolved_by_nothing, stale_lock),
    *(signal_twice, ledger_words),
]
