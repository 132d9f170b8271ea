"""The invariants of a session's shared files (R4): checked before every write, and by `turn check`.

Pure: texts by path in, problems with line numbers out. MAILBOX.md is compared with its own cards, MAILBOX.json with the
mailbox, the status block of WORKLOG.md with its latest session, the states of OPEN_QUESTIONS.md with their resolutions;
TURNFILE.yaml may hold no stale lock. All problems are found, not only the first. `validate_edits` decides whether an
edit may be written: only the files that it changes must be valid. Called by `transactions`, `escalation`, `locks` and
`report`.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from holdfast.errors import Invalid
from holdfast.turnfile import damage
from holdfast.turnfile.damage import unmerged
from holdfast.turnfile.mailbox import parse, projection
from holdfast.turnfile.mailbox.cards import fold
from holdfast.turnfile.mailbox.lost import Message
from holdfast.turnfile.mailbox.projection import NOTHING
from holdfast.turnfile.mailbox.rules import Breach, breaches, illegal_changes
from holdfast.turnfile.model import MAILBOX, PROJECTION, Problem
from holdfast.turnfile.worklog import STATES, StatusLine, Worklog, idle_workers, parse_questions, parse_worklog


def check(
    texts: Mapping[str, str],
    before: Mapping[str, str] | None = None,
    everyone: Sequence[str] = (),
    lost: Sequence[Message] = (),
) -> list[Problem]:
    """The problems of these files, sorted; errors forbid a write, warnings do not.

    `before` has the old texts, `everyone` is whom a message to `all` means, `lost` are the messages that only the
    projection has, which may come back.
    """
    found: list[Problem] = []
    before = before and {path: text for path, text in before.items() if not unmerged(path, text)}
    for path, text in texts.items():
        checks = _RULES.get(posixpath.basename(path))
        if checks is not None:
            found += damage.problems(path, text)
            if unmerged(path, text):
                continue  # which of two versions of a line counts is not known
            found += _problems(path, checks(text) if checks is not _mailbox else _mailbox(text, everyone))
            if before is not None and before.get(path, "").strip() and not text.strip():
                found.append(Problem(path, 1, "error", "emptied", f"{path} is emptied: its history would be lost"))
        if posixpath.basename(path) == "MAILBOX.md":
            if before is not None and path in before:
                found += _problems(path, illegal_changes(parse(before[path]), parse(text), lost))
            beside = path.removesuffix("md") + "json"
            if beside in texts and projection.is_stale(text, texts[beside]):
                export = "turnfile.mail.export(mailbox, projection)"
                message = f"it does not match {path}; {export} makes it again from {path}"
                found.append(Problem(beside, 1, "error", "projection-stale", message))
    return sorted(found)


def _problems(path: str, breaches: Iterator[Breach]) -> list[Problem]:
    return [Problem(path, *breach) for breach in breaches]


def _mailbox(text: str, everyone: Sequence[str] = ()) -> Iterator[Breach]:
    return breaches(parse(text), everyone)


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
    for entry in latest.entries if latest else ():
        if fold(entry.agent) != "maintainer" and fold(entry.agent) not in working:
            message = f"{entry.agent} has an entry in the latest session, but no line `Now Working ({entry.agent})`"
            yield entry.line, "warning", "status-missing", message
    for line, entry in idle_workers(log):
        message = f"{fold(line.agent)} is idle here, but working in the latest entry (line {entry.line})"
        yield line.line, "error", "status-stale", message
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
        said, state = question.said, question.state
        if said is not None and said != state:
            yield line, "error", "question-state", f"{id} is in the section {state}, but its status is {said}"
        elif said is None and fold(question.status or "") not in NOTHING:
            known = ", ".join(sorted(STATES))
            message = f"{id} has the unknown status {question.status!r}; known: {known}"
            yield line, "warning", "question-status", message
        if state == "resolved" and question.resolution is not None and not question.resolved:
            yield line, "error", "question-open", f"{id} is in the section resolved, but has no resolution"
        if state == "active" and question.resolved and said in (None, "active"):
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
    edits: dict[str, str],
    texts: dict[str, str | None],
    workspace: str,
    timestamp: str,
    everyone: Sequence[str] = (),
    lost: Sequence[Message] = (),
) -> tuple[dict[str, str], list[Problem]]:
    """The files to write, including the projection if the mailbox changes; and the warnings.

    `texts` has the current texts, `lost` are the messages that only the projection has. Raises Invalid with `problems`
    if the edit makes a finding worse than it was. What was wrong before and is no worse now refuses nothing: it is
    counted in a warning.
    """
    changed = {path: text for path, text in edits.items() if text != texts.get(path)}
    for path, text in changed.items():
        damage.refuse(path, text)
    there = {path: text for path, text in texts.items() if text is not None}
    problems = check(changed, there, everyone, lost)
    broken = [problem for problem in problems if problem.level == "error"]
    merged = {path for path in changed if unmerged(path, there.get(path, ""))}  # what was wrong before is not known
    if any(problem.file not in merged for problem in broken):
        known = Counter(map(_identity, check({path: there[path] for path in changed if path in there}, None, everyone)))
        counted = [problem for problem in broken if problem.file not in merged]
        if worse := [problem for problem in counted if _exceeds(known, problem)]:
            hint = "nothing was written; correct the edit and retry"
            raise _refusal(f"the edit would break {worse[0].file}", worse, hint)
    if MAILBOX in changed:
        changed[PROJECTION] = render_projection(changed[MAILBOX], texts.get(PROJECTION), workspace, timestamp, lost)
    return changed, [*(problem for problem in problems if problem.level == "warning"), *disorder(broken)]


_WHOLE: Final = ("id-order", "nul")  # findings that are counted for the whole file, not for one message or name
_SUBJECT: Final = re.compile(r" (?:has|is) ")


def _identity(problem: Problem) -> tuple[str, str, str]:
    """What a finding is about, whatever its line and the figures in its message."""
    subject = "" if problem.rule in _WHOLE else _SUBJECT.split(problem.message, maxsplit=1)[0]
    return problem.file, problem.rule, subject


def _exceeds(known: Counter[tuple[str, str, str]], problem: Problem) -> bool:
    """Whether a finding is one more than were known; takes it off the known ones."""
    known[_identity(problem)] -= 1
    return known[_identity(problem)] < 0


def disorder(broken: list[Problem]) -> Iterator[Problem]:
    """A warning for each file that stays in disorder."""
    for path, count in Counter(problem.file for problem in broken).items():
        first = next(problem for problem in broken if problem.file == path)
        what = first.message.partition("; turnfile.tidy(")[0]  # which is named once, at the end
        words = f"older problems: {count}, the first in line {first.line}: {what}"
        yield Problem(path, first.line, "warning", "disorder", f"{words}; turnfile.tidy(session, actor) repairs them")


def _refusal(words: str, problems: list[Problem], hint: str) -> Invalid:
    first, more = problems[0], f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return Invalid(f"{words}: line {first.line}: {first.message}{more}", hint=hint, problems=problems, line=first.line)


def render_projection(
    mailbox: str, previous: str | None, workspace: str, timestamp: str, lost: Sequence[Message] = ()
) -> str:
    """The projection of a mailbox, with the lost messages; the previous one unchanged if its content is the same."""
    return projection.render(mailbox, f"{workspace}/{MAILBOX}", timestamp, previous, lost)
