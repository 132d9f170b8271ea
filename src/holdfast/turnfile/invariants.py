"""The invariants of a session's shared files (R4): checked before every write, and by `turn check`.

Pure: texts by path in, problems with line numbers out. MAILBOX.md is compared with its own cards, MAILBOX.json with the
mailbox, the status block of WORKLOG.md with its latest session, the states of OPEN_QUESTIONS.md with their resolutions;
TURNFILE.yaml may hold no stale lock. All problems are found, not only the first. `validate_edits` decides whether an
edit may be written: only the files that it changes must be valid. Called by `transactions`, `escalation`, `locks` and
`report`.
"""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from holdfast.errors import Invalid
from holdfast.turnfile.mailbox import Mailbox, parse, projection
from holdfast.turnfile.mailbox.cards import ID, OPEN, TERMINAL, Card, numbers_of
from holdfast.turnfile.mailbox.markdown import Table, unclosed
from holdfast.turnfile.mailbox.projection import NOTHING, Inbox, fold, inboxes, is_open, same_value
from holdfast.turnfile.model import MAILBOX, PROJECTION, Level, Problem, next_number
from holdfast.turnfile.worklog import STATES, Entry, StatusLine, Worklog, parse_questions, parse_worklog

Breach = tuple[int, Level, str, str]
"""A problem of one file: line, level, rule, message."""

_CLOSED: Final = ("id", "date", "from_to", "final_status", "outcome", "subject", "closed_by")
_RATIONALE: Final = re.compile(
    r"(?:[-*|] *|\*\*)?(?:Retained|Retention|Rationale)[A-Za-z ]{0,30}[:|*]{1,3} *[^ |:*]", re.IGNORECASE
)
_DENSE: Final = re.compile(r"[ \t]*(?:`{3,}|~{3,})[ \t]*dense\b", re.IGNORECASE)


def _mailbox(text: str) -> Iterator[Breach]:
    box = parse(text)
    yield from _ids(box)
    for card in box.cards:
        yield from _card(card)
    yield from _queue(box)
    yield from _snapshot(box)
    yield from _closed(box)
    for line in unclosed(box.lines):
        yield line.number, "warning", "fence-open", "this code fence or comment is never closed"


def _illegal_changes(before: Mailbox, after: Mailbox) -> Iterator[Breach]:
    """Problems of a change: a new message whose id is not the highest of its day, or an open message that is lost."""
    old = {card.id for card in before.cards} | _closed_ids(before)
    now = {card.id for card in after.cards} | _closed_ids(after)
    used = numbers_of(before.ids)
    for card in after.cards:
        date, sequence = card.order
        if card.id not in old and sequence < next_number(used.get(date, ())):
            yield card.line, "error", "id-reused", f"{card.id} is new, but its id is not above the highest of its day"
    for card in before.cards:
        if is_open(card) and card.id not in now:
            yield 1, "error", "message-lost", f"{card.id} was {card.status}, and is now neither active nor closed"


def _closed_ids(box: Mailbox) -> set[str]:
    return {box.closed.value(row, "id") for row in box.closed.rows} if box.closed else set()


def _ids(box: Mailbox) -> Iterator[Breach]:
    seen: dict[str, Card] = {}
    for card in box.cards:
        if not ID.fullmatch(card.id):
            yield card.line, "error", "id-form", f"{card.id} is not an id of the form MSG-YYYYMMDD-NNN"
        if card.id in seen:
            yield card.line, "error", "id-twice", f"{card.id} is a duplicate of the card in line {seen[card.id].line}"
        seen.setdefault(card.id, card)
    heading = box.sections["active"].heading.text.lower() if "active" in box.sections else ""
    level: Level = "error" if "newest first" in heading else "warning"  # the file promises no order
    falling = level == "error" or not box.rising
    for one, other in itertools.pairwise(box.cards):
        if one.id != other.id and (one.order < other.order) == falling:
            order = "newest first" if falling else "oldest first"
            yield other.line, level, "id-order", f"{other.id} follows {one.id}: the cards are not {order}"
    closed = _closed_ids(box)
    for card in box.cards:
        if card.id in closed and is_open(card):
            yield card.line, "error", "id-closed", f"{card.id} is open, but is in the closed summary"


def _card(card: Card) -> Iterator[Breach]:
    for name, value in (("from", card.sender), ("to", card.receiver), ("status", card.status)):
        if not value:
            yield card.line, "error", "card-field", f"{card.id} has no {name}"
    line = card.line_of("status")
    if card.status and card.status not in OPEN and card.status not in TERMINAL:
        message = f"{card.id} has status {card.status!r}; use {', '.join((*OPEN, 'closed'))}"
        yield line, "error", "status-unknown", message
    if card.status in TERMINAL and not any(_RATIONALE.match(one.text) for one in card.lines if not one.hidden):
        repair = "move it to the closed summary, or add a line `Retained:` with the reason"
        yield line, "error", "terminal-active", f"{card.id} is {card.status}: {repair}"
    for key in ("status", "priority", "type", "subject", "date"):
        values = {field.value.casefold(): field for field in card.fields if field.key == key and field.value}
        if len(values) > 1:
            where = list(values.values())[-1].line.number
            yield where, "error", "field-twice", f"{card.id} has two different values of {key}"
    dense = next((line for line in card.lines if _DENSE.match(line.text)), None)
    if dense and not any("paraphrase" in line.text.lower() for line in card.lines if not line.hidden):
        yield dense.number, "error", "dense", f"{card.id} has a dense block without a paraphrase"


def _queue(box: Mailbox) -> Iterator[Breach]:
    listed: set[str] = set()
    if box.queue is not None:
        yield from _rows(box, box.queue, listed)
    elif "queue" not in box.sections and "active" not in box.sections:
        return  # v0 has no queue
    for card in box.cards:
        if is_open(card) and card.id not in listed:
            yield card.line, "error", "queue-missing", f"{card.id} is {card.status}, but not in the queue"


def _rows(box: Mailbox, table: Table, listed: set[str]) -> Iterator[Breach]:
    """Problems of the queue's rows; adds the messages that they list to `listed`."""
    cards = {card.id: card for card in reversed(box.cards)}
    for row in table.rows:
        id, line = table.value(row, "id"), row.line.number
        card = cards.get(id)
        if id in listed:
            yield line, "error", "queue-twice", f"{id} is in the queue twice"
        elif card is None:
            yield line, "error", "queue-orphan", f"{id or 'a row'} is in the queue, but has no card"
        elif card.status in TERMINAL:
            yield line, "error", "queue-terminal", f"{id} is {card.status}, but still in the queue"
        elif "status" in table.columns and not same_value("status", table.value(row, "status"), card.status):
            message = f"{id} is {card.status}, but the queue says {table.value(row, 'status')!r}"
            yield line, "error", "queue-status", message
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
    """Problems of the snapshot's rows; adds the agents that they name to `seen`."""
    for row in table.rows:
        agent, line = table.value(row, "agent"), row.line.number
        if fold(agent) in seen:
            yield line, "error", "snapshot-twice", f"{agent} is in the snapshot twice"
            continue
        seen.add(fold(agent))
        inbox = due.get(fold(agent))
        count, said = inbox.unread if inbox else 0, table.value(row, "unread")
        if said != str(count):
            yield line, "error", "unread-count", f"{agent} has {count} unread, but the snapshot says {said!r}"
        oldest = table.value(row, "oldest_unread")
        if inbox is None and fold(oldest) not in NOTHING:
            yield line, "error", "oldest-unread", f"{agent} has nothing unread, but the snapshot says {oldest}"
        elif inbox is not None and fold(oldest) != fold(inbox.oldest.id):
            message = f"the oldest unread of {agent} is {inbox.oldest.id}, but the snapshot says {oldest!r}"
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
                yield line, "error", "closed-field", f"the closed {id or 'message'} has no {name}"


_IDLE: Final = ("idle", "none", "nothing", "n/a", "-", "—", "offline")
_WORKING: Final = ("in progress", "in_progress", "in-progress", "active", "ongoing", "wip")


def check(texts: Mapping[str, str], before: Mapping[str, str] | None = None) -> list[Problem]:
    """The problems of these files, sorted; errors forbid a write, warnings do not. `before` has the old texts."""
    found: list[Problem] = []
    for path, text in texts.items():
        checks = _RULES.get(posixpath.basename(path))
        if checks is not None:
            found += _problems(path, checks(text))
        if posixpath.basename(path) == "MAILBOX.md":
            if before is not None and path in before:
                found += _problems(path, _illegal_changes(parse(before[path]), parse(text)))
            beside = path.removesuffix("md") + "json"
            if beside in texts and projection.is_stale(text, texts[beside]):
                export = "turnfile.mail.export(mailbox, projection)"
                message = f"it does not match {path}; {export} makes it again from {path}"
                if more := projection.only_there(text, texts[beside]):
                    message += f", without what only {beside} has (messages: {more}): copy it first"
                found.append(Problem(beside, 1, "error", "projection-stale", message))
    return sorted(found)


def _problems(path: str, breaches: Iterator[Breach]) -> list[Problem]:
    return [Problem(path, *breach) for breach in breaches]


def _worklog(text: str) -> Iterator[Breach]:
    log = parse_worklog(text)
    seen: dict[str, StatusLine] = {}
    for line in log.status:
        if fold(line.name) in seen:
            first = seen[fold(line.name)].line
            yield line.line, "error", "status-twice", f"`{line.name}` is already in line {first}"
        if not line.value:
            yield line.line, "error", "status-empty", f"`{line.name}` is empty"
        seen.setdefault(fold(line.name), line)
    if not log.status:
        if log.sessions:
            message = "there is no status block (`Now Working (agent): …`) above the first section"
            yield 1, "warning", "status-block", message
        return
    working = {fold(line.agent): line for line in log.status if line.agent}
    latest = log.latest
    newest: dict[str, Entry] = {}
    for entry in latest.entries if latest else ():
        if fold(entry.agent) != "maintainer" and fold(entry.agent) not in working:
            message = f"{entry.agent} has an entry in the latest session, but no line `Now Working ({entry.agent})`"
            yield entry.line, "warning", "status-missing", message
        newest[fold(entry.owner or entry.agent)] = entry
    for agent, entry in newest.items():
        status_line = working.get(agent)
        if status_line and entry.status.lower().startswith(_WORKING) and status_line.value.lower().startswith(_IDLE):
            message = f"{agent} is idle here, but working in the latest entry (line {entry.line})"
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
            message = f"the decision refers to {table.value(row, 'section')!r}, which does not exist"
            yield row.line.number, "warning", "decision-section", message


def _questions(text: str) -> Iterator[Breach]:
    seen: dict[str, int] = {}
    for question in parse_questions(text):
        id, line = question.id or "a question", question.line
        if not question.id:
            yield line, "error", "question-id", "a question has no id"
        elif question.id in seen:
            yield line, "error", "question-twice", f"{id} is already in line {seen[question.id]}"
        seen.setdefault(question.id, line)
        words = (question.status or "").lower().split()
        said = STATES.get(words[0].strip(".,;:()*`")) if words else None
        if said is not None and said != question.state:
            yield line, "error", "question-state", f"{id} is in the section {question.state}, but its status is {said}"
        resolved = fold(question.resolution or "") not in (*NOTHING, "pending", "open", "tbd")
        if question.state == "resolved" and question.resolution is not None and not resolved:
            yield line, "error", "question-open", f"{id} is in the section resolved, but has no resolution"
        if question.state == "active" and resolved and said is None:
            yield line, "error", "question-resolved", f"{id} has a resolution, but is in the section active"


def _turnfile(text: str) -> Iterator[Breach]:
    from holdfast.turnfile.ledger import read
    from holdfast.turnfile.ledger.rules import is_stale  # loaded here: most files to check are Markdown

    try:
        ledger = read(text)
    except Invalid as error:
        line = error.details.get("line") or 1
        yield line, "error", "unreadable", error.message.removeprefix(f"line {line}: ")
        return
    for lock in ledger.turnfile.locks:
        if is_stale(lock, ledger.revision):
            message = (
                f"{lock.id}, held by {lock.holder}, is stale: acquired at {lock.acquired_rev} for {lock.lease_revs}"
                f" revisions, now {ledger.revision}; turnfile.clear_stale(session, actor) removes it"
            )
            yield ledger.line("locks", lock.id), "error", "lock-stale", message


_RULES: Final[dict[str, Callable[[str], Iterator[Breach]]]] = {
    "MAILBOX.md": _mailbox,
    "WORKLOG.md": _worklog,
    "OPEN_QUESTIONS.md": _questions,
    "TURNFILE.yaml": _turnfile,
}


def validate_edits(
    edits: dict[str, str], texts: dict[str, str | None], workspace: str, timestamp: str
) -> tuple[dict[str, str], list[Problem]]:
    """The files to write, including the projection if the mailbox changes; and the warnings.

    `texts` has the current texts. Raises Invalid with `problems` if an edited file breaks an invariant: those that the
    edit introduces, or else those that were there before.
    """
    changed = {path: text for path, text in edits.items() if text != texts.get(path)}
    there = {path: text for path, text in texts.items() if text is not None}
    problems = check(changed, there)
    broken = [problem for problem in problems if problem.level == "error"]
    if broken:
        known = {_same(old): old for old in check({path: there[path] for path in changed if path in there})}
        if fresh := [problem for problem in broken if _same(problem) not in known]:
            hint = "nothing was written; correct the edit and retry"
            raise _refusal(f"the edit would break {fresh[0].file}", fresh, hint)
        hint = "nothing was written; an edit that repairs the file is accepted"
        old = [known[_same(problem)] for problem in broken]
        raise _refusal(f"{old[0].file} is already broken", old, hint)
    if MAILBOX in changed:
        changed[PROJECTION] = render_projection(changed[MAILBOX], texts.get(PROJECTION), workspace, timestamp)
    return changed, problems


def _same(problem: Problem) -> tuple[str, str, str]:
    """The identity of a problem, independent of line numbers."""
    return problem.file, problem.rule, re.sub(r"\bline [0-9]+", "line", problem.message)


def _refusal(words: str, problems: list[Problem], hint: str) -> Invalid:
    first, more = problems[0], f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return Invalid(f"{words}: line {first.line}: {first.message}{more}", hint=hint, problems=problems, line=first.line)


def render_projection(mailbox: str, previous: str | None, workspace: str, timestamp: str) -> str:
    """The projection of a mailbox; the previous one unchanged if its content is the same."""
    return projection.render(mailbox, f"{workspace}/{MAILBOX}", timestamp, previous)
