"""WORKLOG.md and OPEN_QUESTIONS.md, parsed as far as their invariants need, and repaired; overrides are logged here.

Pure. The status block is the lines above the first section: `Now Working (agent): …`, `Maintainer Focus: …`, `Next
Review Checkpoint: …`. The section of a question gives its state; a status column, if there is one, must agree. Edits
replace spans, so every other byte stays. Called by `invariants`, `locks` and `repairs`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal

import msgspec

from holdfast.turnfile.mailbox.cards import fold
from holdfast.turnfile.mailbox.draft import one_line
from holdfast.turnfile.mailbox.markdown import (
    Edit,
    Line,
    Row,
    Table,
    apply,
    fill,
    key_of,
    lines_of,
    newline_of,
    row_text,
    sections_of,
    table_in,
)
from holdfast.turnfile.mailbox.projection import NOTHING
from holdfast.turnfile.model import Lock

_STATUS: Final = re.compile(r"(Now Working \(([^()]{1,80})\)|Maintainer Focus|Next Review Checkpoint):[ \t]*(.*)")
_SESSION: Final = re.compile(r"##[ \t]+(.*\bSession\b.*)", re.IGNORECASE)
_ENTRY: Final = re.compile(r"###[ \t]+([A-Za-z][A-Za-z0-9_.-]{0,40}):[ \t]+\S.*")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_NUMBER: Final = re.compile(r"\bSession[ \t]+([0-9]{1,6})", re.IGNORECASE)
_OWNER: Final = re.compile(r"Owner:[ \t]*(\S.*)")
_HANDOFF_STATUS: Final = re.compile(r"Status:[ \t]*(\S.*)")


class StatusLine(msgspec.Struct, frozen=True):
    """A line of the status block; `agent` is set for `Now Working` alone."""

    line: int
    name: str
    agent: str
    value: str


class Entry(msgspec.Struct, frozen=True):
    """An entry of a work session: its author, and the owner and status of its handoff, if it has one."""

    line: int
    agent: str
    owner: str
    status: str


class WorkSession(msgspec.Struct, frozen=True):
    """A work session: its title, its entries, and where its text ends."""

    title: str
    line: int
    end: int
    entries: tuple[Entry, ...]


class Worklog(msgspec.Struct, frozen=True):
    """A parsed WORKLOG.md."""

    status: tuple[StatusLine, ...]
    decisions: Table | None
    sessions: tuple[WorkSession, ...]

    @property
    def latest(self) -> WorkSession | None:
        """The session with the latest date, then the highest number, then the last in the file."""
        return max(self.sessions, key=lambda session: (*_age(session.title), session.line), default=None)


def parse_worklog(text: str) -> Worklog:
    """Parse a worklog; accepts any text."""
    lines = lines_of(text)
    status = []
    for line in itertools.takewhile(lambda line: line.hidden or not line.text.startswith("## "), lines):
        match = None if line.hidden else _STATUS.fullmatch(line.text)
        if match:
            status.append(StatusLine(line.number, match[1], (match[2] or "").strip(), match[3].strip()))
    decisions = None
    sessions = []
    for section in sections_of(lines, "## "):
        if session := _SESSION.fullmatch(section[0].text):
            sessions.append(_session(session[1].strip(), section))
        elif key_of(section[0].text) == "decision_index":
            decisions = table_in(section)
    return Worklog(tuple(status), decisions, tuple(sessions))


_IDLE: Final = ("idle", "none", "nothing", "n/a", "-", "—", "offline")
_WORKING: Final = ("in progress", "in_progress", "in-progress", "active", "ongoing", "wip")


def idle_workers(log: Worklog) -> Iterator[tuple[StatusLine, Entry]]:
    """Status lines that say idle although the agent's newest entry of the latest session is in progress."""
    working = {fold(line.agent): line for line in log.status if line.agent}
    newest = {fold(entry.owner or entry.agent): entry for entry in (log.latest.entries if log.latest else ())}
    for agent, entry in newest.items():
        line = working.get(agent)
        if line and entry.status.lower().startswith(_WORKING) and line.value.lower().startswith(_IDLE):
            yield line, entry


Notes = list[tuple[int, str]]
"""What a repair did: line and words."""


def repair_worklog(text: str) -> tuple[str, Notes]:
    """The worklog with a status block that agrees with its latest session; and what was done."""
    log, lines = parse_worklog(text), lines_of(text)
    stale = {line.line for line, _ in idle_workers(log)}
    edits: list[Edit] = []
    done: Notes = []
    seen: set[str] = set()
    for status in log.status:
        line = lines[status.line - 1]
        if fold(status.name) in seen:
            done.append((status.line, f"removed the second `{status.name}`"))
            edits.append(Edit(line.start, line.after, ""))
            continue
        seen.add(fold(status.name))
        value = "in progress" if status.line in stale else "none" if not status.value else status.value
        if value != status.value:
            done.append((status.line, f"`{status.name}` is {value}"))
            edits.append(Edit(line.start, line.end, f"{status.name}: {value}"))
    return apply(text, edits), done


def note_override(text: str, lock: Lock, revision: int, actor: str, reason: str, date: str = "") -> str:
    """Log an override (lock, revision, actor, reason) at the end of the latest session."""
    log = parse_worklog(text)
    nl = newline_of(text)
    actor, reason = one_line(actor, "actor"), one_line(reason, "reason")
    lock_id, files = " ".join(lock.id.split()), ", ".join(" ".join(path.split()) for path in lock.files)
    entry = [
        f"### Override of {lock_id} at revision {revision}",
        "",
        f"{f'{date} — ' if date else ''}{actor} overrode the lock {lock_id} of {' '.join(lock.holder.split())}"
        f" (acquired_rev {lock.acquired_rev}, lease_revs {lock.lease_revs}) on {files} at revision {revision}.",
        f"Reason: {reason}",
    ]
    place = log.latest.end if log.latest else len(text)
    if log.latest is None and "\n## Overrides" not in f"\n{text}":
        entry = ["## Overrides", "", *entry]
    lead = "" if not place else nl if text[:place].endswith("\n") else 2 * nl
    return text[:place] + lead + nl.join(entry) + nl + text[place:]


def _session(title: str, lines: Sequence[Line]) -> WorkSession:
    found = ((_ENTRY.fullmatch(section[0].text), section) for section in sections_of(lines, "### "))
    entries = tuple(_entry(match[1].strip(), section) for match, section in found if match)
    full = [line for line in lines if not line.blank]
    return WorkSession(title, lines[0].number, full[-1].after, entries)


def _entry(agent: str, lines: Sequence[Line]) -> Entry:
    """Parse an entry; its handoff is inside a code fence, so hidden lines count."""
    owner = status = ""
    for line in lines[1:]:
        if match := _OWNER.fullmatch(line.text):
            owner = match[1].strip()
        elif match := _HANDOFF_STATUS.fullmatch(line.text):
            status = match[1].strip()
    return Entry(lines[0].number, agent, owner, status)


def _age(title: str) -> tuple[str, int]:
    date, number = _DATE.search(title), _NUMBER.search(title)
    return date[0] if date else "", int(number[1]) if number else -1


State = Literal["active", "deferred", "resolved"]

STATES: Final[dict[str, State]] = {
    **dict.fromkeys(("active", "open", "pending", "unresolved", "parked"), "active"),
    **dict.fromkeys(("deferred", "postponed"), "deferred"),
    **dict.fromkeys(("resolved", "closed", "answered", "done", "decided"), "resolved"),
}
_SECTION: Final = re.compile(r"##[ \t]+(Active|Open|Deferred|Resolved|Closed)\b", re.IGNORECASE)
_UNRESOLVED: Final = (*NOTHING, "pending", "open", "tbd")


class Question(msgspec.Struct, frozen=True):
    """A question: the state of its section, and its status and resolution cells (None without such a column)."""

    id: str
    line: int
    state: State
    status: str | None
    resolution: str | None
    table: Table
    row: Row

    @property
    def said(self) -> State | None:
        """The state that its status cell names; None for no known word."""
        words = (self.status or "").lower().split()
        return STATES.get(words[0].strip(".,;:()*`")) if words else None

    @property
    def text(self) -> str:
        """Its question, for comparison; without a column of that name, its whole row."""
        said = self.table.value(self.row, "question") if "question" in self.table.columns else self.row.line.text
        return " ".join(said.split()).casefold()

    @property
    def resolved(self) -> bool:
        """Whether it has a resolution."""
        return fold(self.resolution or "") not in _UNRESOLVED


def parse_questions(text: str) -> list[Question]:
    """Parse the questions of a file, in order; accepts any text."""
    found: list[Question] = []
    for state, table in _tables(text):
        for row in table.rows if table else ():
            status = table.value(row, "status") if table and "status" in table.columns else None
            resolution = table.value(row, "resolution") if table and "resolution" in table.columns else None
            id = table.value(row, "id") if table else ""
            found.append(Question(id, row.line.number, state, status, resolution, table, row))
    return found


def _tables(text: str) -> Iterator[tuple[State, Table]]:
    for section in sections_of(lines_of(text), "## "):
        heading, table = _SECTION.match(section[0].text), table_in(section)
        if heading is not None and table is not None:
            yield STATES[heading[1].lower()], table


def repair_questions(text: str) -> tuple[str, Notes]:
    """The questions with unique ids, each in the section of its state; and what was done."""
    done: Notes = []
    for _ in range(3 * len(parse_questions(text)) + 1):  # a question needs at most its id, its place and its resolution
        found = parse_questions(text)
        edits = next((edits for question in found if (edits := _repair(text, question, found, done))), None)
        if edits is None:
            break
        text = apply(text, edits)
    return text, done


def _repair(text: str, question: Question, found: Sequence[Question], done: Notes) -> list[Edit]:
    """The edits that settle the first thing wrong with a question; none if it is in order."""
    id, line = question.id, question.row.line
    same = [other for other in found if other.id == id]
    keeps = next((other for other in same if other.state == "resolved"), same[0])
    cells = {name: question.table.cell(question.row, name) for name in ("id", "status", "resolution")}
    if not id or (keeps is not question and not _repeats(question, same)):
        numbers = [int(match[1]) for other in found if (match := re.fullmatch(r"OQ-([0-9]{1,6})", other.id))]
        new = f"OQ-{max(numbers, default=0) + 1:03d}"
        done.append((line.number, f"{id or 'a question without an id'} is now {new}"))
        return [fill(cells["id"], new)] if cells["id"] else []
    if _repeats(question, same):
        done.append((line.number, f"removed {id} from the section {question.state}: it is there twice, or resolved"))
        return [Edit(line.start, line.after, "")]
    settled = question.said == "resolved" or (question.state == "active" and question.said in (None, "active"))
    if question.state != "resolved" and question.resolved and settled:
        done.append((line.number, f"moved {id} to the section resolved"))
        return [Edit(line.start, line.after, ""), _resolve(text, question)]
    if question.said not in (None, question.state) and cells["status"]:
        done.append((line.number, f"the status of {id} is {question.state}, as its section says"))
        return [fill(cells["status"], question.state)]
    if question.state == "resolved" and question.resolution is not None and not question.resolved:
        done.append((line.number, f"the resolution of {id} is not recorded"))
        if cells["resolution"]:
            return [fill(cells["resolution"], "not recorded")]
        values = [question.table.value(question.row, name) or "not recorded" for name in question.table.columns]
        return [Edit(line.start, line.end, row_text(values))]
    return []


def _repeats(question: Question, same: Sequence[Question]) -> bool:
    """Whether another row says the same, or says how this question was resolved: two may share an id by mistake."""
    earlier = [other for other in same if other.line < question.line]
    if any(other.row.line.text == question.row.line.text for other in earlier):
        return True
    resolved = (other for other in same if other.state == "resolved")
    return question.state != "resolved" and any(other.text == question.text for other in resolved)


def _resolve(text: str, question: Question) -> Edit:
    """Add a question to the resolved ones."""
    nl = newline_of(text)
    table = next((table for state, table in _tables(text) if state == "resolved"), None)
    columns = table.columns if table else ("id", "question", "resolution")
    said = {name: question.table.value(question.row, name) for name in question.table.columns} | {"status": "resolved"}
    row = row_text(said.get(name) or "none" for name in columns) + nl
    if table is not None:
        lead = "" if text[: table.end].endswith("\n") else nl
        return Edit(table.end, table.end, lead + row)
    lead = "" if not text or text.endswith("\n") else nl
    lines = ("", "## Resolved", "", row_text(("ID", "Question", "Resolution")), "|----|----------|------------|", row)
    return Edit(len(text), len(text), lead + nl.join(lines))
