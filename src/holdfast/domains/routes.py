"""`ws.routes`: which workflow a task is routed to and why; and how rules are read from `grimoire-matchers.yaml`.

Conditions may stand under `match:` or beside `grimoire:`, also mixed. A matcher with an error is skipped and the others
stay; a file that cannot be parsed gives no rules. A list may be written as a single value. An empty list of conditions
is an error rather than no condition: a slip must not make a matcher that matches everything. Guarantee: every text
gives a result, and every problem has a line.

The rules and the configuration are files that people edit. A file is checked and stored by one transaction; a new one
with errors leaves the rules in force unchanged, and its problems are reported with their lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, get_args

import msgspec

from holdfast import errors
from holdfast.arguments import Meaning
from holdfast.domains.routing import CONFIG, FILES, globs, yaml_lines
from holdfast.domains.routing.config import Config, read_config, remember, remembered, settings_of, store
from holdfast.domains.routing.rules import BUILT_IN_DEFAULT, PRIORITIES, Matcher, Rules, Subject, report
from holdfast.domains.routing.yaml_lines import Findings, Node, close_to, quote, read_flag, read_name, show
from holdfast.domains.tasks.claims import subject_of
from holdfast.domains.tasks.creation import check_body, check_hint, check_priority, check_tags, check_type
from holdfast.domains.tasks.readiness import rebuild
from holdfast.domains.tasks.rows import find
from holdfast.kernel.tx import Snapshot, Tx
from holdfast.operation import Do, Domain, M, ReadFile, Steps, procedure, read
from holdfast.types.tasks import Loaded, Problem, RouteReport, TaskType

TYPES: Final = get_args(TaskType)


def read_rules(text: str, file: str) -> tuple[Rules | None, list[Problem]]:
    """Return the rules and the problems; no rules if the file as a whole cannot be read."""
    found = Findings(file)
    rules = _rules(text, found)
    return rules, found.in_order()


def _rules(text: str, found: Findings) -> Rules | None:
    try:
        root, line = yaml_lines.parse(text)
    except yaml_lines.Unreadable as error:
        found.error(error.line, error.message)
        return None
    if not isinstance(root, dict):
        found.error(line, f"the file must be a mapping with the key 'matchers', not {show(root)}")
        return None
    if "matchers" not in root and "default" not in root:
        found.error(line, "the file has neither 'matchers' nor 'default'")
        return None
    for key, node in root.items():
        if key not in ("matchers", "default"):
            found.warn(node.line, f"unknown field {key!r} is ignored{close_to(key, ['matchers', 'default'])}")
    listed = root.get("matchers", Node([], 1))
    if not isinstance(listed.value, list):
        found.error(listed.line, f"matchers must be a list, not {show(listed.value)}")
        return None
    default = read_name(found, "default", root["default"]) if "default" in root else None
    read = [_matcher(node, number, found) for number, node in enumerate(listed.value, start=1)]
    matchers = tuple(matcher for matcher in read if matcher is not None)
    _look_over(matchers, found)
    return Rules(matchers, default or BUILT_IN_DEFAULT)


def _look_over(matchers: tuple[Matcher, ...], found: Findings) -> None:
    """Warn about matchers that do not work together."""
    names: dict[str, int] = {}
    catch_all: Matcher | None = None
    for matcher in matchers:
        if matcher.name in names:
            other = f"the matcher in line {names[matcher.name]}"
            found.warn(matcher.line, f"the name {matcher.name!r} is also that of {other}")
        names.setdefault(matcher.name, matcher.line)
        if catch_all is not None:
            before = f"{catch_all.name!r} in line {catch_all.line} matches every task"
            found.warn(matcher.line, f"matcher {matcher.name!r} is never reached: {before}")
        elif _takes_everything(matcher):
            catch_all = matcher


def _takes_everything(matcher: Matcher) -> bool:
    text = matcher.any_tags or matcher.all_tags or matcher.not_tags or matcher.body_contains
    parent = matcher.inherit or matcher.has_parent is not None
    priority = matcher.priority is not None and set(matcher.priority) < set(PRIORITIES)
    types = matcher.types is not None and set(matcher.types) < set(TYPES)
    return not (text or parent or priority or types)


# --- one matcher -----------------------------------------------------------------------------------------------------


def _matcher(node: Node, number: int, found: Findings) -> Matcher | None:
    """Return the matcher, or None if it has an error."""
    before = found.errors
    if not isinstance(node.value, dict):
        found.error(node.line, f"matcher {number} must be a mapping, not {show(node.value)}")
        return None
    fields = _fields(node, found)
    values = {key: _RULE_FIELDS[key](found, key, value) for key, value in fields.items()}
    inherit = values.get("inherit", False)
    if "grimoire" not in fields and inherit is False:
        found.error(node.line, "a matcher needs 'grimoire', or 'inherit: true'")
    elif "grimoire" in fields and inherit:
        found.error(node.line, "a matcher has either 'grimoire' or 'inherit: true', not both")
    priority = _both(values.get("priority"), values.get("priority_range"))
    if priority == () and values["priority"]:
        found.error(fields["priority"].line, "priority and priority_range have no priority in common")
    if found.errors > before:
        return None
    if inherit and values.get("has_parent") is not True:
        found.warn(node.line, "a matcher with 'inherit' skips tasks without a parent; state it with 'has_parent: true'")
    as_written = ("grimoire", "inherit", "all_tags", "not_tags", "has_parent", "require_review", "needs")
    return Matcher(
        name=values.get("name") or f"matcher {number}",
        any_tags=values.get("any_tags", ()) + values.get("labels", ()),
        priority=priority,
        types=values.get("type"),
        body_contains=tuple(text.casefold() for text in values.get("body_contains", ())),
        line=node.line,
        **{key: values[key] for key in as_written if key in values},
    )


def _fields(node: Node, found: Findings) -> dict[str, Node]:
    """Return the known fields of a matcher, those under `match` and those beside it."""
    beside: dict[str, Node] = dict(node.value)
    match = beside.pop("match", Node({}, node.line))
    inside: dict[str, Node] = {}
    if isinstance(match.value, dict):
        inside = match.value
    elif match.value is not None:  # "match:" and nothing is the same as "match: {}"
        found.error(match.line, f"match must be a mapping, not {show(match.value)}")
    fields = {}
    for key, value in [*beside.items(), *inside.items()]:
        if key not in _RULE_FIELDS and (value is inside.get(key) or _like_a_condition(key, node)):
            # Without it the matcher would match more than was meant, perhaps everything.
            found.error(value.line, f"unknown condition {key!r}{close_to(key, list(_CONDITIONS))}")
        elif key not in _RULE_FIELDS:
            found.warn(value.line, f"unknown field {key!r} is ignored{close_to(key, list(_RULE_FIELDS))}")
        elif value is inside.get(key) and key not in _CONDITIONS:
            found.error(value.line, f"{key!r} is not a condition: it belongs beside 'match', not under it")
        elif key in fields:
            found.error(value.line, f"{key!r} is both under 'match' and beside it")
        else:
            fields[key] = value
    if "labels" in fields:
        found.warn(fields["labels"].line, "'labels' is deprecated; write 'any_tags'")
    return fields


def _like_a_condition(key: str, node: Node) -> bool:
    """Whether a field of a matcher without `match` is likely a misspelt condition."""
    return "match" not in node.value and close_to(key, list(_CONDITIONS)) != ""


def _both(one: tuple[int, ...] | None, other: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Combine two conditions on the priority."""
    if one is None or other is None:
        return other if one is None else one
    return tuple(priority for priority in one if priority in other)


# --- readers of one field: each notes its problems -------------------------------------------------------------------


def _items(found: Findings, what: str, node: Node, may_be_empty: bool = False) -> list[Node]:
    """Return the items of a list; a single value is a list of one."""
    if node.value is None or (node.value == [] and not may_be_empty):
        found.error(node.line, f"{what} is empty; omit it, or give a value")
        return []
    return node.value if isinstance(node.value, list) else [node]


def _line_of(text: str, node: Node) -> int:
    """The line of an item in a list, or of a single value."""
    items = node.value if isinstance(node.value, list) else []
    return next((item.line for item in items if item.value == text), node.line)


def _texts(found: Findings, what: str, node: Node, may_be_empty: bool = False) -> tuple[str, ...]:
    texts = []
    for value, line in _items(found, what, node, may_be_empty):
        if not isinstance(value, str):
            found.error(line, f"{what} must be text, not {show(value)}{quote(value)}")
        elif not value.strip():
            found.error(line, f"{what} has an empty text")
        else:
            texts.append(value)
    return tuple(texts)


def _globs(found: Findings, what: str, node: Node) -> tuple[str, ...]:
    patterns = _texts(found, what, node, may_be_empty=what == "not_tags")
    for pattern in patterns:
        problem = globs.check(pattern)
        if problem:
            found.error(_line_of(pattern, node), f"{what} has a bad glob {show(pattern)}: {problem}")
    return patterns


def _names(found: Findings, what: str, node: Node) -> tuple[str, ...]:
    names = [read_name(found, what, item) for item in _items(found, what, node, may_be_empty=True)]
    return tuple(dict.fromkeys(name for name in names if name is not None))


def _priorities(found: Findings, what: str, node: Node) -> tuple[int, ...]:
    priorities = set()
    for value, line in _items(found, what, node):
        if type(value) is int and value in PRIORITIES:
            priorities.add(value)
        else:
            found.error(line, f"{what} must be 0 to 4, not {show(value)}")
    return tuple(sorted(priorities))


def _priority_range(found: Findings, what: str, node: Node) -> tuple[int, ...] | None:
    if not isinstance(node.value, list) or len(node.value) != 2:
        found.error(node.line, f"{what} must be [least, most], not {show(node.value)}")
        return None
    before = found.errors
    _priorities(found, what, node)
    if found.errors > before:
        return None
    least, most = (item.value for item in node.value)
    if least > most:
        found.error(node.line, f"{what} [{least}, {most}] is reversed: the least must come first")
        return None
    return tuple(range(least, most + 1))


def _types(found: Findings, what: str, node: Node) -> tuple[str, ...]:
    types = _texts(found, what, node)
    for kind in types:
        if kind not in TYPES:
            found.error(_line_of(kind, node), f"{what} must be one of {', '.join(TYPES)}, not {show(kind)}")
    return types


_CONDITIONS: Final[dict[str, Callable[[Findings, str, Node], Any]]] = {
    "any_tags": _globs,
    "all_tags": _globs,
    "not_tags": _globs,
    "labels": _globs,
    "priority": _priorities,
    "priority_range": _priority_range,
    "type": _types,
    "body_contains": _texts,
    "has_parent": read_flag,
}
_RULE_FIELDS: Final[dict[str, Callable[[Findings, str, Node], Any]]] = {
    "name": read_name,
    "grimoire": read_name,
    "inherit": read_flag,
    "require_review": read_flag,
    "needs": _names,
    **_CONDITIONS,
}


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
