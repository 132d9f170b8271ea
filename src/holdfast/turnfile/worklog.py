"""WORKLOG.md and OPEN_QUESTIONS.md, parsed as far as their invariants need; an override is logged in the worklog.

Pure. The status block is the lines above the first section: `Now Working (agent): …`, `Maintainer Focus: …`, `Next
Review Checkpoint: …`. The section of a question gives its state; a status column, if there is one, must agree. Edits
replace spans, so every other byte stays. Called by `invariants` and `locks`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from holdfast.turnfile.mailbox.draft import one_line
from holdfast.turnfile.mailbox.markdown import Line, Table, key_of, lines_of, newline_of, sections_of, table_in
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


class Question(msgspec.Struct, frozen=True):
    """A question: the state of its section, and its status and resolution cells (None without such a column)."""

    id: str
    line: int
    state: State
    status: str | None
    resolution: str | None


def parse_questions(text: str) -> list[Question]:
    """Parse the questions of a file, in order; accepts any text."""
    found: list[Question] = []
    for section in sections_of(lines_of(text), "## "):
        heading, table = _SECTION.match(section[0].text), table_in(section)
        if heading is None or table is None:
            continue
        state = STATES[heading[1].lower()]
        for row in table.rows:
            status = table.value(row, "status") if "status" in table.columns else None
            resolution = table.value(row, "resolution") if "resolution" in table.columns else None
            found.append(Question(table.value(row, "id"), row.line.number, state, status, resolution))
    return found
