"""The invariants of a session's shared files (R4): checked before every write, and by `turn check`.

Pure. What is compared is what the file says with what its cards say; a breach never stops the others from being
found. Called by `invariants`.

`worklog` and `questions` read and extend WORKLOG.md and OPEN_QUESTIONS.md; `invariants` finds what is wrong in any of
the files, `settling` decides whether an edit may be written and adds the projection, `templates` are those of a new
session.

Pure: texts by their path in, problems with lines out. `MAILBOX.md` against its cards, `MAILBOX.json` against the
mailbox, the status block of `WORKLOG.md` against its latest session, the states of `OPEN_QUESTIONS.md` against what
they say, `TURNFILE.yaml` for stale locks that nobody cleared. With `before`, also what a change may not do to a
mailbox. A file that is not given is not looked at.

Pure but for the time that a projection is stamped with, which it is given. Only the files that an edit changes must be
in order: what somebody else left broken elsewhere does not stop it.
"""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from holdfast import errors
from holdfast.errors import Invalid
from holdfast.turnfile.mailbox import Mailbox, derived, parse
from holdfast.turnfile.mailbox.cards import ID, OPEN, TERMINAL, Card
from holdfast.turnfile.mailbox.derived import NOTHING, Inbox, fold, inboxes, is_open, same
from holdfast.turnfile.mailbox.markdown import Table, unclosed
from holdfast.turnfile.model import MAILBOX, PROJECTION, Level, Problem
from holdfast.turnfile.worklog import STATES, Entry, StatusLine, Worklog, parse_questions, parse_worklog

Breach = tuple[int, Level, str, str]

_NEEDED: Final = ("from", "to", "status")
_CLOSED: Final = ("id", "date", "from_to", "final_status", "outcome", "subject", "closed_by")
_RATIONALE: Final = re.compile(
    r"(?:[-*|] *|\*\*)?(?:Retained|Retention|Rationale)[A-Za-z ]{0,30}[:|*]{1,3} *[^ |:*]", re.IGNORECASE
)
_DENSE: Final = re.compile(r"[ \t]*(?:`{3,}|~{3,})[ \t]*dense\b", re.IGNORECASE)


def breaches(box: Mailbox) -> Iterator[Breach]:
    """All that is wrong with a mailbox: line, level, rule, message."""
    yield from _ids(box)
    for card in box.cards:
        yield from _card(card)
    yield from _queue(box)
    yield from _snapshot(box)
    yield from _closed(box)
    for line in unclosed(box.lines):
        yield line.number, "warning", "fence-open", "a code fence or comment is opened here and never closed"


def changes(before: Mailbox, after: Mailbox) -> Iterator[Breach]:
    """What a change may not do: give a new message an id that is not the highest of its day, or lose an open one."""
    old = {card.id for card in before.cards} | _closed_ids(before)
    now = {card.id for card in after.cards} | _closed_ids(after)
    highest: dict[str, int] = {}
    for match in ID.finditer(before.text):
        highest[match[1]] = max(highest.get(match[1], 0), int(match[2]))
    for card in after.cards:
        date, sequence = card.order
        if card.id not in old and sequence <= highest.get(date, 0):
            yield card.line, "error", "id-reused", f"{card.id} is new, but not above the highest id of its day"
    for card in before.cards:
        if is_open(card) and card.id not in now:
            yield 1, "error", "message-lost", f"{card.id} was {card.status}, and is neither here nor closed any more"


def _closed_ids(box: Mailbox) -> set[str]:
    return {box.closed.value(row, "id") for row in box.closed.rows} if box.closed else set()


def _ids(box: Mailbox) -> Iterator[Breach]:
    seen: dict[str, Card] = {}
    for card in box.cards:
        if not ID.fullmatch(card.id):
            yield card.line, "error", "id-form", f"{card.id} is no id: MSG-YYYYMMDD-NNN"
        if card.id in seen:
            yield card.line, "error", "id-twice", f"{card.id} is also the card of line {seen[card.id].line}"
        seen.setdefault(card.id, card)
    heading = box.sections["active"].heading.text.lower() if "active" in box.sections else ""
    level: Level = "error" if "newest first" in heading else "warning"  # an order that nobody promised
    falling = level == "error" or not box.rising
    for one, other in itertools.pairwise(box.cards):
        if one.id != other.id and (one.order < other.order) == falling:
            order = "newest first" if falling else "oldest first"
            yield other.line, level, "id-order", f"{other.id} comes after {one.id}: the cards are not {order}"
    closed = _closed_ids(box)
    for card in box.cards:
        if card.id in closed and is_open(card):
            yield card.line, "error", "id-closed", f"{card.id} is open, and in the closed summary"


def _card(card: Card) -> Iterator[Breach]:
    said = {"from": card.sender, "to": card.receiver, "status": card.status}
    for name in _NEEDED:
        if not said[name]:
            yield card.line, "error", "card-field", f"{card.id} does not say its {name}"
    line = card.line_of("status")
    if card.status and card.status not in OPEN and card.status not in TERMINAL:
        yield line, "error", "status-unknown", f"{card.id} is {card.status!r}: one of {', '.join((*OPEN, 'closed'))}"
    if card.status in TERMINAL and not any(_RATIONALE.match(one.text) for one in card.lines if not one.hidden):
        message = (
            f"{card.id} is {card.status}, but neither moved to the closed summary nor kept with a line `Retained:`"
        )
        yield line, "error", "terminal-active", message
    for key in ("status", "priority", "type", "subject", "date"):
        values = {field.value.casefold(): field for field in card.fields if field.key == key and field.value}
        if len(values) > 1:
            where = list(values.values())[-1].line.number
            yield where, "error", "field-twice", f"{card.id} says its {key} twice, and not the same"
    dense = next((line for line in card.lines if _DENSE.match(line.text)), None)
    if dense and not any("paraphrase" in line.text.lower() for line in card.lines if not line.hidden):
        yield dense.number, "error", "dense", f"{card.id} has a dense block without a paraphrase"


def _queue(box: Mailbox) -> Iterator[Breach]:
    listed: set[str] = set()
    if box.queue is not None:
        yield from _rows(box, box.queue, listed)
    elif "queue" not in box.sections and "active" not in box.sections:
        return  # v0 knows no queue
    for card in box.cards:
        if is_open(card) and card.id not in listed:
            yield card.line, "error", "queue-missing", f"{card.id} is {card.status}, but not in the queue"


def _rows(box: Mailbox, table: Table, listed: set[str]) -> Iterator[Breach]:
    """What is wrong with the rows of the queue; fills in which messages they list."""
    cards = {card.id: card for card in reversed(box.cards)}
    for row in table.rows:
        id, line = table.value(row, "id"), row.line.number
        card = cards.get(id)
        if id in listed:
            yield line, "error", "queue-twice", f"{id} is in the queue twice"
        elif card is None:
            yield line, "error", "queue-orphan", f"{id or 'a row'} is in the queue, but there is no such card"
        elif card.status in TERMINAL:
            yield line, "error", "queue-terminal", f"{id} is in the queue, but it is {card.status}"
        elif "status" in table.columns and not same("status", table.value(row, "status"), card.status):
            yield line, "error", "queue-status", f"{id} is {card.status}, the queue says {table.value(row, 'status')!r}"
        listed.add(id)


def _snapshot(box: Mailbox) -> Iterator[Breach]:
    due = inboxes(box.cards)
    seen: set[str] = set()
    if box.snapshot is not None:
        yield from _counts(box.snapshot, due, seen)
    elif "snapshot" not in box.sections and "active" not in box.sections:
        return
    for name, inbox in due.items():
        if name not in seen:
            message = f"{inbox.agent} has {inbox.unread} unread, but is not in the snapshot"
            yield inbox.oldest.line, "error", "snapshot-missing", message


def _counts(table: Table, due: dict[str, Inbox], seen: set[str]) -> Iterator[Breach]:
    """What is wrong with the rows of the snapshot; fills in whom they name."""
    for row in table.rows:
        agent, line = table.value(row, "agent"), row.line.number
        if fold(agent) in seen:
            yield line, "error", "snapshot-twice", f"{agent} is in the snapshot twice"
            continue
        seen.add(fold(agent))
        inbox = due.get(fold(agent))
        count, said = inbox.unread if inbox else 0, table.value(row, "unread")
        if said != str(count):
            yield line, "error", "unread-count", f"{agent} has {count} unread, the snapshot says {said!r}"
        oldest = table.value(row, "oldest_unread")
        if inbox is None and fold(oldest) not in NOTHING:
            yield line, "error", "oldest-unread", f"{agent} has nothing unread, the snapshot says {oldest}"
        elif inbox is not None and fold(oldest) != fold(inbox.oldest.id):
            message = f"the oldest unread of {agent} is {inbox.oldest.id}, the snapshot says {oldest!r}"
            yield line, "error", "oldest-unread", message


def _closed(box: Mailbox) -> Iterator[Breach]:
    table = box.closed
    if table is None:
        return
    seen: set[str] = set()
    for row in table.rows:
        id, line = table.value(row, "id"), row.line.number
        if id in seen:
            yield line, "error", "closed-twice", f"{id} is in the closed summary twice"
        seen.add(id)
        for name in table.columns:
            if name in _CLOSED and not table.value(row, name):
                yield line, "error", "closed-field", f"the closed {id or 'message'} lacks its {name}"


_IDLE: Final = ("idle", "none", "nothing", "n/a", "-", "—", "offline")
_AT_WORK: Final = ("in progress", "in_progress", "in-progress", "active", "ongoing", "wip")


def check(texts: Mapping[str, str], before: Mapping[str, str] | None = None) -> list[Problem]:
    """What is wrong in these files, sorted; errors forbid a write, warnings do not."""
    found: list[Problem] = []
    for path, text in texts.items():
        checks = _RULES.get(posixpath.basename(path))
        if checks is not None:
            found += _problems(path, checks(text))
        if posixpath.basename(path) == "MAILBOX.md":
            if before is not None and path in before:
                found += _problems(path, changes(parse(before[path]), parse(text)))
            beside = path.removesuffix("md") + "json"
            if beside in texts and derived.is_stale(text, texts[beside]):
                message = f"the projection says something else than {path}"
                found.append(Problem(beside, 1, "error", "projection-stale", message))
    return sorted(found)


def _problems(path: str, breaches: Iterator[Breach]) -> list[Problem]:
    return [Problem(path, *breach) for breach in breaches]


def _mailbox(text: str) -> Iterator[Breach]:
    return breaches(parse(text))


def _worklog(text: str) -> Iterator[Breach]:
    log = parse_worklog(text)
    seen: dict[str, StatusLine] = {}
    for line in log.status:
        if fold(line.name) in seen:
            first = seen[fold(line.name)].line
            yield line.line, "error", "status-twice", f"`{line.name}` stands in line {first} already"
        if not line.value:
            yield line.line, "error", "status-empty", f"`{line.name}` says nothing"
        seen.setdefault(fold(line.name), line)
    if not log.status:
        if log.sessions:
            yield 1, "warning", "status-block", "there is no status block (`Now Working (agent): …`) above the sections"
        return
    working = {fold(line.agent): line for line in log.status if line.agent}
    latest = log.latest
    newest: dict[str, Entry] = {}
    for entry in latest.entries if latest else ():
        if fold(entry.agent) != "maintainer" and fold(entry.agent) not in working:
            message = f"{entry.agent} works in the latest session, but has no line `Now Working ({entry.agent})`"
            yield entry.line, "warning", "status-missing", message
        newest[fold(entry.owner or entry.agent)] = entry
    for agent, entry in newest.items():
        status_line = working.get(agent)
        if status_line and entry.status.lower().startswith(_AT_WORK) and status_line.value.lower().startswith(_IDLE):
            message = f"{agent} is idle here, and at work in its latest entry (line {entry.line})"
            yield status_line.line, "error", "status-stale", message
    yield from _decisions(log)


def _decisions(log: Worklog) -> Iterator[Breach]:
    table = log.decisions
    titles = [session.title.lower() for session in log.sessions]
    if table is None or not titles:
        return
    for row in table.rows:
        section = table.value(row, "section").lower()
        if re.fullmatch(r"session\s+[0-9]+", section) and not any(title.startswith(section) for title in titles):
            message = f"the decision refers to {table.value(row, 'section')!r}, and there is no such session"
            yield row.line.number, "warning", "decision-section", message


def _questions(text: str) -> Iterator[Breach]:
    seen: dict[str, int] = {}
    for question in parse_questions(text):
        id, line = question.id or "a question", question.line
        if not question.id:
            yield line, "error", "question-id", "a question has no id"
        elif question.id in seen:
            yield line, "error", "question-twice", f"{id} stands in line {seen[question.id]} already"
        seen.setdefault(question.id, line)
        words = (question.status or "").lower().split()
        said = STATES.get(words[0].strip(".,;:()*`")) if words else None
        if said is not None and said != question.state:
            yield line, "error", "question-state", f"{id} stands among the {question.state}, its status is {said}"
        resolved = fold(question.resolution or "") not in (*NOTHING, "pending", "open", "tbd")
        if question.state == "resolved" and question.resolution is not None and not resolved:
            yield line, "error", "question-open", f"{id} stands among the resolved without a resolution"
        if question.state == "active" and resolved and said is None:
            yield line, "error", "question-resolved", f"{id} has a resolution, and stands among the active"


def _turnfile(text: str) -> Iterator[Breach]:
    from holdfast.turnfile.ledger import read
    from holdfast.turnfile.ledger.rules import is_stale  # only here: most texts to check are Markdown

    try:
        ledger = read(text)
    except errors.Invalid as error:
        yield error.details.get("line") or 1, "error", "unreadable", error.message
        return
    for lock in ledger.turnfile.locks:
        if is_stale(lock, ledger.revision):
            message = (
                f"lock {lock.id} of {lock.holder} is stale: acquired at {lock.acquired_rev} for {lock.lease_revs}"
                f" revisions, now {ledger.revision}; anybody may clear it"
            )
            yield ledger.line("locks", lock.id), "error", "lock-stale", message


_RULES: Final[dict[str, Callable[[str], Iterator[Breach]]]] = {
    "MAILBOX.md": _mailbox,
    "WORKLOG.md": _worklog,
    "OPEN_QUESTIONS.md": _questions,
    "TURNFILE.yaml": _turnfile,
}


def settle(
    edits: dict[str, str], texts: dict[str, str | None], workspace: str, timestamp: str
) -> tuple[dict[str, str], list[Problem]]:
    """The files to write, with the projection among them if the mailbox is; and what there is to warn about.

    `texts` has what the files say now. Raises Invalid with `problems` if an edited file breaks an invariant: those of
    the edit, or where it has none of its own those that were there before, with their lines in the file.
    """
    changed = {path: text for path, text in edits.items() if text != texts.get(path)}
    there = {path: text for path, text in texts.items() if text is not None}
    problems = check(changed, there)
    broken = [problem for problem in problems if problem.level == "error"]
    if broken:
        known = {_same(old): old for old in check({path: there[path] for path in changed if path in there})}
        if fresh := [problem for problem in broken if _same(problem) not in known]:
            hint = "nothing was written; make the edit so that the file stays in order"
            raise _refusal(f"the edit would break {fresh[0].file}", fresh, hint)
        hint = "nothing was written; put the file in order first: an edit that does so is accepted"
        old = [known[_same(problem)] for problem in broken]
        raise _refusal(f"{old[0].file} is out of order already", old, hint)
    if MAILBOX in changed:
        changed[PROJECTION] = projected(changed[MAILBOX], texts.get(PROJECTION), workspace, timestamp)
    return changed, problems


def _same(problem: Problem) -> tuple[str, str, str]:
    """What a problem keeps when lines move."""
    return problem.file, problem.rule, re.sub(r"\bline [0-9]+", "line", problem.message)


def _refusal(words: str, problems: list[Problem], hint: str) -> Invalid:
    first, more = problems[0], f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return Invalid(f"{words}: line {first.line}: {first.message}{more}", hint=hint, problems=problems, line=first.line)


def projected(mailbox: str, previous: str | None, workspace: str, timestamp: str) -> str:
    """The projection of a mailbox; the previous one itself where it says the same."""
    return derived.render(mailbox, f"{workspace}/{MAILBOX}", timestamp, previous)
