"""`ws.routes`: where tasks go and why, and how the rules enter the store.

The rules and the configuration are files that people edit. A file that is loaded is checked and stored by one
transaction; a new one with mistakes leaves what is in force as it is, and says what is wrong and where.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast import errors
from holdfast.domains.routing.config import Config, read_config
from holdfast.domains.routing.matchers import Rules, Subject, report
from holdfast.domains.routing.names import CONFIG, FILES
from holdfast.domains.routing.reading import read_rules
from holdfast.domains.routing.settings import remember, remembered, settings_of, store
from holdfast.domains.tasks.creating import check_body, check_hint, check_priority, check_type
from holdfast.domains.tasks.routes import subject_of
from holdfast.domains.tasks.rows import find
from holdfast.domains.tasks.tags import check_tags
from holdfast.kernel.tx import Snapshot, Tx
from holdfast.ops import Do, Domain, M, ReadFile, Steps, procedure, read
from holdfast.types.routes import Loaded, Problem, RouteReport

_FIELDS = {"title", "body", "type", "priority", "tags", "parent_id", "grimoire_hint"}


def explain(snapshot: Snapshot, id: str) -> RouteReport:
    """Where a task goes by the rules as they are now: every matcher in order, and what it said."""
    task = find(snapshot, id)
    return report(settings_of(snapshot).rules, subject_of(snapshot, task))


def decide(snapshot: Snapshot, task: dict[str, Any]) -> RouteReport:
    """Where a task would go that does not exist yet, given as the fields that `tasks.create` takes."""
    if not isinstance(task, dict):
        raise errors.Invalid(f"a task to be routed is a dict of its fields, not {type(task).__name__}")
    if unknown := sorted(str(name)[:40] for name in task.keys() - _FIELDS):
        raise errors.Invalid(f"a task has no field {unknown[0]!r}", hint=f"fields: {', '.join(sorted(_FIELDS))}")
    settings = settings_of(snapshot)
    parent_id = task.get("parent_id")
    parent = None if parent_id is None else find(snapshot, parent_id)
    hint = check_hint(task.get("grimoire_hint"))
    return report(
        settings.rules,
        Subject(
            check_tags(task.get("tags", ()), settings.config.max_tags),
            check_priority(task.get("priority", 2)),
            check_type(task.get("type", "task")),
            check_body(task.get("body", ""), settings.config),
            parent is not None,
            parent.hint if hint is None and parent is not None else hint,
            None if parent is None else parent.grimoire,
        ),
    )


def check() -> Steps[list[Problem]]:
    """What is wrong in this node's files, by file and line; nothing is loaded. Empty if all is well."""
    problems: list[Problem] = []
    for name, file in FILES.items():
        try:
            found = yield ReadFile(file)
        except (errors.Invalid, errors.TooLarge) as error:
            problems.append(_unreadable(file, error))
        else:
            problems += [] if found is None else _parse(name, found[1])[1]
    return problems


def _unreadable(file: str, error: errors.HoldfastError) -> Problem:
    return Problem(file, 0, "error", str(error))


def reload() -> Steps[list[Loaded]]:
    """Load this node's files now, whether they have changed or not."""
    return load(tuple(FILES))


def load(names: Sequence[str]) -> Steps[list[Loaded]]:
    """Load documents from their files, as far as there are any, in one transaction."""
    drafts: list[Draft] = []
    unreadable: list[Loaded] = []
    for name in names:
        try:
            found = yield ReadFile(FILES[name])
        except (errors.Invalid, errors.TooLarge) as error:
            unreadable.append(Loaded(FILES[name], False, 0, (_unreadable(FILES[name], error),)))
            continue
        if found is not None:
            path, text = found
            content, problems = _parse(name, text)
            drafts.append(Draft(name, path, text, content, problems))
    stored: list[bool] = yield Do(lambda tx: [_store(tx, draft) for draft in drafts], keyed=True)
    return unreadable + [
        Loaded(FILES[draft.name], taken, _matchers(draft) if taken else 0, tuple(draft.problems))
        for draft, taken in zip(drafts, stored, strict=True)
    ]


class Draft(msgspec.Struct, frozen=True):
    """A file that was read: where it is, what it says, and what is wrong with it."""

    name: str
    path: str
    text: str
    content: Config | Rules | None
    problems: list[Problem]


def _parse(name: str, text: str) -> tuple[Config | Rules | None, list[Problem]]:
    return (read_config if name == CONFIG else read_rules)(text, FILES[name])


def _matchers(draft: Draft) -> int:
    return len(draft.content.matchers) if isinstance(draft.content, Rules) else 0


def _store(tx: Tx, draft: Draft) -> bool:
    """Put it into force, unless it has mistakes and there is something that has none; True if it is in force now."""
    remember(tx, draft.path, digest_of(draft.text))
    mistakes = any(problem.severity == "error" for problem in draft.problems)
    if draft.content is None or (mistakes and tx.one("SELECT 1 FROM documents WHERE name = ?", (draft.name,))):
        return False
    store(tx, draft.name, draft.content, draft.text)
    return True


def is_news(snapshot: Snapshot, name: str, path: str, text: str) -> bool:
    """Whether this node's file is neither what it last loaded nor what is in force."""
    if remembered(snapshot, path) == digest_of(text):
        return False
    return not snapshot.one("SELECT 1 FROM documents WHERE name = ? AND source = ?", (name, text))


def digest_of(text: str) -> bytes:
    """What tells one text from another."""
    import hashlib  # only who loads a file needs it

    return hashlib.blake2b(text.encode(), digest_size=16).digest()


class Routes(Domain[M]):
    """`ws.routes`."""

    prefix = "routes"
    explain = read(explain, http="GET /api/tasks/{id}/route", cli="route explain", routed=True)
    decide = read(decide, http="POST /api/routes/decide", cli="route decide", routed=True)
    check = procedure(check, http="GET /api/routes/check", cli="route check", looking=True)
    reload = procedure(reload, http="POST /api/routes/reload", cli="route reload")
