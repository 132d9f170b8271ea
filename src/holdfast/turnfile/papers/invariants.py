"""The invariants of a session's shared files (R4): what must hold before every write, and what `turn check` looks at.

Pure: texts by their path in, problems with lines out. `MAILBOX.md` against its cards, `MAILBOX.json` against the
mailbox, the status block of `WORKLOG.md` against its latest session, the states of `OPEN_QUESTIONS.md` against what
they say, `TURNFILE.yaml` for stale locks that nobody cleared. With `before`, also what a change may not do to a
mailbox. A file that is not given is not looked at.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from holdfast import errors
from holdfast.turnfile.mailbox import document, projection, rules
from holdfast.turnfile.mailbox.derived import NOTHING, fold
from holdfast.turnfile.mailbox.rules import Breach
from holdfast.turnfile.model import Problem
from holdfast.turnfile.papers import questions, worklog

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
                found += _problems(path, rules.changes(document.parse(before[path]), document.parse(text)))
            beside = path.removesuffix("md") + "json"
            if beside in texts and projection.is_stale(text, texts[beside]):
                message = f"the projection says something else than {path}"
                found.append(Problem(beside, 1, "error", "projection-stale", message))
    return sorted(found)


def _problems(path: str, breaches: Iterator[Breach]) -> list[Problem]:
    return [Problem(path, *breach) for breach in breaches]


def _mailbox(text: str) -> Iterator[Breach]:
    return rules.breaches(document.parse(text))


def _worklog(text: str) -> Iterator[Breach]:
    log = worklog.parse(text)
    seen: dict[str, worklog.StatusLine] = {}
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
    newest: dict[str, worklog.Entry] = {}
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


def _decisions(log: worklog.Worklog) -> Iterator[Breach]:
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
    for question in questions.parse(text):
        id, line = question.id or "a question", question.line
        if not question.id:
            yield line, "error", "question-id", "a question has no id"
        elif question.id in seen:
            yield line, "error", "question-twice", f"{id} stands in line {seen[question.id]} already"
        seen.setdefault(question.id, line)
        words = (question.status or "").lower().split()
        said = questions.STATES.get(words[0].strip(".,;:()*`")) if words else None
        if said is not None and said != question.state:
            yield line, "error", "question-state", f"{id} stands among the {question.state}, its status is {said}"
        resolved = fold(question.resolution or "") not in (*NOTHING, "pending", "open", "tbd")
        if question.state == "resolved" and question.resolution is not None and not resolved:
            yield line, "error", "question-open", f"{id} stands among the resolved without a resolution"
        if question.state == "active" and resolved and said is None:
            yield line, "error", "question-resolved", f"{id} has a resolution, and stands among the active"


def _turnfile(text: str) -> Iterator[Breach]:
    from holdfast.turnfile.ledger import codec, locks  # only here: most texts to check are Markdown

    try:
        ledger = codec.read(text)
    except errors.Invalid as error:
        yield error.details.get("line") or 1, "error", "unreadable", error.message
        return
    for lock in ledger.turnfile.locks:
        if locks.is_stale(lock, ledger.revision):
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
