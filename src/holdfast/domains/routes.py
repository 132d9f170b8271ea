"""`ws.routes`: which workflow a task is routed to and why, and the files that decide it.

The rules and the configuration are files that people edit. A file is checked and stored by one transaction; a new one
with errors leaves the rules in force unchanged, and its problems are reported with their lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.arguments import Meaning
from holdfast.domains.routing import CONFIG, FILES
from holdfast.domains.routing.config import Config, remember, remembered, settings_of, store
from holdfast.domains.routing.files import read_config, read_rules
from holdfast.domains.routing.rules import Rules, Subject, report
from holdfast.domains.tasks.claims import subject_of
from holdfast.domains.tasks.creation import check_body, check_hint, check_priority, check_tags, check_type
from holdfast.domains.tasks.readiness import rebuild
from holdfast.domains.tasks.rows import find
from holdfast.kernel.tx import Snapshot, Tx
from holdfast.operation import Do, Domain, M, ReadFile, Steps, procedure, read
from holdfast.types.tasks import Loaded, Problem, RouteReport

_FIELDS = {"title", "body", "type", "priority", "tags", "parent_id", "grimoire_hint"}


def explain(snapshot: Snapshot, id: str) -> RouteReport:
    """Return a task's route by the current rules, with the verdict of every matcher in order. Raises TaskNotFound."""
    return report(settings_of(snapshot).rules, subject_of(snapshot, find(snapshot, id)))


def decide(snapshot: Snapshot, task: dict[str, Any]) -> RouteReport:
    """Return the route of a task that does not exist yet, given as the fields of `tasks.create`. Raises Invalid."""
    if not isinstance(task, dict):
        raise errors.Invalid(f"task must be a dict of fields, not {type(task).__name__}")
    if unknown := sorted(str(name)[:40] for name in task.keys() - _FIELDS):
        raise errors.Invalid(f"a task has no field {unknown[0]!r}", hint=f"fields: {', '.join(sorted(_FIELDS))}")
    settings = settings_of(snapshot)
    parent_id = task.get("parent_id")
    parent = None if parent_id is None else find(snapshot, parent_id)
    hint = check_hint(task.get("grimoire_hint"))
    subject = Subject(
        check_tags(task.get("tags", ()), settings.config.max_tags),
        check_priority(task.get("priority", 2)),
        check_type(task.get("type", "task")),
        check_body(task.get("body", ""), settings.config),
        parent is not None,
        parent.hint if hint is None and parent is not None else hint,
        None if parent is None else parent.grimoire,
    )
    return report(settings.rules, subject)


def check() -> Steps[list[Problem]]:
    """Return the problems in this node's files, by file and line, without loading them."""
    drafts = yield from _read(tuple(FILES))
    return [problem for draft in drafts for problem in draft.problems]


def reload() -> Steps[list[Loaded]]:
    """Load this node's files now, whether they have changed or not; returns the result for each."""
    return load(tuple(FILES))


def load(names: Sequence[str]) -> Steps[list[Loaded]]:
    """Load documents from their files, if they exist, in one transaction."""
    drafts = yield from _read(names)
    stored: list[bool] = yield Do(lambda tx: [_store(tx, draft) for draft in drafts], keyed=True)
    return [
        Loaded(FILES[draft.name], taken, _matchers(draft) if taken else 0, tuple(draft.problems))
        for draft, taken in zip(drafts, stored, strict=True)
    ]


MAX_PROBLEMS: Final = 1000


def _bounded(problems: list[Problem]) -> list[Problem]:
    """The first problems of a file, errors before warnings if there are too many, and how many more there are."""
    if len(problems) <= MAX_PROBLEMS:
        return problems
    worst = sorted(problems, key=lambda problem: problem.severity)  # "error" comes first
    rest = worst[MAX_PROBLEMS]
    more = f"and {len(problems) - MAX_PROBLEMS} more problems"
    return [*worst[:MAX_PROBLEMS], msgspec.structs.replace(rest, message=more)]


class Draft(msgspec.Struct, frozen=True):
    """A file: its content and problems, and its path and text if it could be read."""

    name: str
    content: Config | Rules | None
    problems: list[Problem]
    path: str | None = None
    text: str = ""


def _read(names: Sequence[str]) -> Steps[list[Draft]]:
    """Read and check the files of documents, if they exist."""
    drafts: list[Draft] = []
    for name in names:
        try:
            found = yield ReadFile(FILES[name])
        except (errors.Invalid, errors.TooLarge) as error:
            drafts.append(Draft(name, None, [Problem(FILES[name], 0, "error", str(error))]))
            continue
        if found is not None:
            path, text = found
            content, problems = (read_config if name == CONFIG else read_rules)(text, FILES[name])
            drafts.append(Draft(name, content, _bounded(problems), path, text))
    return drafts


def _matchers(draft: Draft) -> int:
    return len(draft.content.matchers) if isinstance(draft.content, Rules) else 0


def _store(tx: Tx, draft: Draft) -> bool:
    """Put it into force, unless it has errors and another is in force; True if it is in force now."""
    if draft.path is not None:
        remember(tx, draft.path, digest_of(draft.text))
    mistakes = any(problem.severity == "error" for problem in draft.problems)
    if draft.content is None or (mistakes and tx.one("SELECT 1 FROM documents WHERE name = ?", (draft.name,))):
        return False
    store(tx, draft.name, draft.content, draft.text)
    if isinstance(draft.content, Config) and draft.content.parents is not None:
        rebuild(tx, draft.content.parents)
    return True


def is_news(snapshot: Snapshot, name: str, path: str, text: str) -> bool:
    """Whether this node's file differs from what it last loaded and from what is in force."""
    if remembered(snapshot, path) == digest_of(text):
        return False
    return not snapshot.one("SELECT 1 FROM documents WHERE name = ? AND source = ?", (name, text))


def digest_of(text: str) -> bytes:
    """A digest by which texts are compared."""
    import hashlib  # only for loading a file

    return hashlib.blake2b(text.encode(), digest_size=16).digest()


class Routes(Domain[M]):
    """`ws.routes`."""

    prefix = "routes"
    explain = read(
        explain,
        http="GET /api/tasks/{id}/route",
        reloads_rules=True,
        cli="route explain",
        help="Say where a task goes, and what every rule said.",
        examples=("holdfast route explain hf-7k2q",),
    )
    decide = read(
        decide,
        http="POST /api/routes/decide",
        reloads_rules=True,
        cli="route decide",
        help="Say where a task would go that does not exist yet.",
        examples=("""holdfast route decide '{"title": "Check the login", "tags": ["security"]}'""",),
        arguments={"task": Meaning("its fields, a JSON object", "json")},
        shapes={"task": "tasks.create"},
    )
    check = procedure(
        check,
        http="GET /api/routes/check",
        looking=True,
        cli="route check",
        help="Say what is wrong in the routing files; exit code 1 if one has an error.",
        examples=("holdfast route check",),
    )
    reload = procedure(
        reload,
        http="POST /api/routes/reload",
        cli="route reload",
        help="Load the routing files now; exit code 1 if one has an error.",
        examples=("holdfast route reload",),
        role="admin",
    )
