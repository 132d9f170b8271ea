"""The files that people edit: `config.yaml` as settings and `grimoire-matchers.yaml` as rules, with their problems.

Settings: every key is optional. An unknown key is a warning; a bad value is an error, and then there is no Config at
all: half of a file is not what its author meant.

Rules: conditions may stand under `match:` or beside `grimoire:`, also mixed. A matcher with an error is skipped and the
others stay; a file that cannot be parsed gives no rules. A list may be written as a single value. An empty list of
conditions is an error rather than no condition: a slip must not make a matcher that matches everything.

Guarantee: every text gives a result, and every problem has a line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, get_args

from holdfast.domains.routing import globs, yaml_lines
from holdfast.domains.routing.config import SECOND, Config, Parents
from holdfast.domains.routing.rules import BUILT_IN_DEFAULT, PRIORITIES, Matcher, Rules
from holdfast.domains.routing.yaml_lines import (
    Findings,
    Node,
    Unreadable,
    close_to,
    parse,
    quote,
    read_flag,
    read_name,
    show,
)
from holdfast.kernel.validate import MAX_SECONDS
from holdfast.types.tasks import Problem, TaskType

TYPES: Final = get_args(TaskType)
_MAX_DAYS: Final = 36_525
_MAX_LIMIT: Final = 1_000_000_000
_DURATION: Final = r"(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?"


def read_config(text: str, file: str) -> tuple[Config | None, list[Problem]]:
    """Return the settings and the problems; no Config if any is an error. An empty text means all defaults."""
    found = Findings(file)
    values = _values(text, found)
    return None if found.errors else Config(**values), found.in_order()


def _values(text: str, found: Findings) -> dict[str, Any]:
    try:
        root, line = parse(text)
    except Unreadable as error:
        found.error(error.line, error.message)
        return {}
    if root is not None and not isinstance(root, dict):
        found.error(line, f"the file must be a mapping of settings, not {show(root)}")
        return {}
    values = {}
    for path, node in _flatten(root or {}, found).items():
        if path in _KEYS:
            values[path.rpartition(".")[2]] = _KEYS[path](found, path, node)
        else:
            found.warn(node.line, f"unknown key {path!r} is ignored{_advice(path)}")
    return values


def _flatten(root: dict[str, Node], found: Findings) -> dict[str, Node]:
    """The keys with their path, as in `task_store.retention_days`; sections are the mappings at the top level."""
    flat: dict[str, Node] = {}
    for key, node in root.items():
        if isinstance(node.value, dict) and key not in _KEYS:
            flat.update({f"{key}.{inner}": value for inner, value in node.value.items()})
        elif key in _SECTIONS:
            if node.value is not None:  # a section whose keys are all commented out
                found.error(node.line, f"{key} must be a mapping, not {show(node.value)}")
        else:
            flat[key] = node
    return flat


def _advice(path: str) -> str:
    """What to write instead of an unknown key, if that can be guessed."""
    if path in _OTHER_SPELLINGS:
        return f"; {_OTHER_SPELLINGS[path]}"
    name = path.rpartition(".")[2]
    there = next((known for known in _KEYS if known.rpartition(".")[2] == name), None)
    return f"; write {there!r}" if there else close_to(path, list(_KEYS))


def _prefix(found: Findings, what: str, node: Node) -> str | None:
    if isinstance(node.value, str) and re.fullmatch("[a-z0-9]{1,16}", node.value):
        return node.value
    found.error(node.line, f"{what} must be 1 to 16 of the characters a-z and 0-9, not {show(node.value)}")
    return None


def _parents(found: Findings, what: str, node: Node) -> str | None:
    if node.value in get_args(Parents):
        return str(node.value)
    found.error(node.line, f"{what} must be strict or independent, not {show(node.value)}")
    return None


def _duration(found: Findings, what: str, node: Node) -> int:
    """Microseconds from `1h30m` or a number of seconds."""
    seconds: float = 0
    if isinstance(node.value, int | float) and not isinstance(node.value, bool):
        seconds = node.value
    elif isinstance(node.value, str) and (parts := re.fullmatch(_DURATION, node.value.replace(" ", ""))):
        days, hours, minutes, rest = (int(part or 0) for part in parts.groups())
        seconds = ((days * 24 + hours) * 60 + minutes) * 60 + rest
    if 0 < seconds <= MAX_SECONDS:
        return max(round(seconds * SECOND), 1)
    wanted = "a duration such as 30m, 90s, 1h30m or 2d, or a number of seconds, above 0 and up to 100 years"
    found.error(node.line, f"{what} must be {wanted}, not {show(node.value)}")
    return 0


def _days(found: Findings, what: str, node: Node) -> float | None:
    if node.value is None or node.value == "never":
        return None
    if isinstance(node.value, int | float) and not isinstance(node.value, bool) and 0 <= node.value <= _MAX_DAYS:
        return node.value
    found.error(node.line, f"{what} must be a number of days from 0 to {_MAX_DAYS}, or never, not {show(node.value)}")
    return None


def _limit(found: Findings, what: str, node: Node) -> int:
    if type(node.value) is int and 1 <= node.value <= _MAX_LIMIT:
        return node.value
    found.error(node.line, f"{what} must be an integer from 1 to {_MAX_LIMIT}, not {show(node.value)}")
    return 0


_KEYS: Final[dict[str, Callable[[Findings, str, Node], Any]]] = {
    "prefix": _prefix,
    "parents": _parents,
    "claim_timeout": _duration,
    "path_lock_timeout": _duration,
    "default_grimoire": read_name,
    "task_store.retention_days": _days,
    "task_store.soft_delete_days": _days,
    "task_store.close_threads_first": read_flag,
    "limits.max_title": _limit,
    "limits.max_body": _limit,
    "limits.max_tags": _limit,
}
_SECTIONS: Final = {path.partition(".")[0] for path in _KEYS if "." in path}
_OTHER_SPELLINGS: Final = {
    "store.claimTimeoutMinutes": "write 'claim_timeout', such as 30m",
    "store.taskRetentionDays": "write 'task_store.retention_days'",
    "store.taskSoftDeleteDays": "write 'task_store.soft_delete_days'",
    "store.eventRetentionHours": "there is no such setting; the log is kept",
    "store.workflowRetentionDays": "there is no such setting",
}


# --- rules ----------------------------------------------------------------------------------------------------------


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
