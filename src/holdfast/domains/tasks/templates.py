"""Templates: named trees of tasks with parameters, stored in the workspace, turned into tasks in one transaction.

`{name}` in a text stands for a parameter, `{{` and `}}` for braces. A node may have a `key`, by which other nodes of
the same tree depend on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains.routing.config import Config, settings_of
from holdfast.domains.tasks.creation import MAX_NOTE, Draft, Placed, check_draft, check_text, insert, require_parent
from holdfast.domains.tasks.rows import require, to_task
from holdfast.domains.tasks.tree import depend
from holdfast.kernel.events import compare, pasts
from holdfast.kernel.tx import Snapshot, Tx, newest_version
from holdfast.kernel.validate import check_limit, check_name, page_bounds
from holdfast.operation import Found
from holdfast.types import Page
from holdfast.types.tasks import Task, TaskTemplate, TemplateNode

TEMPLATE: Final = "template"
MAX_NODES: Final = 1000
MAX_DEPTH: Final = 100
_HOLE = r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}|[{}]"
_encode = msgspec.msgpack.Encoder().encode


def set_template(
    tx: Tx, name: str, tree: dict[str, Any], parameters: dict[str, str | None] | None = None
) -> TaskTemplate:
    """Store a tree of tasks under a name; each node is a dict of the fields of a `TemplateNode`.

    `parameters` maps each parameter to its default, None if it is required. Raises Invalid.
    """
    check_name(name, "template name")
    version = newest_version(tx, TEMPLATE, "", name) + 1
    template = TaskTemplate(name, _as_tree(tree), _check_parameters(parameters or {}), version)
    _check(template, settings_of(tx).config)
    content = _encode((template.tree, template.parameters))
    tx.run(
        "INSERT INTO templates (name, version, revision, updated, content) VALUES (?, ?, ?, ?, ?) ON CONFLICT (name)"
        " DO UPDATE SET version = excluded.version, revision = excluded.revision, updated = excluded.updated,"
        " content = excluded.content",
        (name, version, tx.revision, tx.now, content),
    )
    tx.emit(TEMPLATE, name, "set", version=version, data=msgspec.msgpack.encode({"digest": _digest(content)}))
    return template


def _digest(content: bytes) -> str:
    import hashlib  # only for a template that is stored or checked

    return hashlib.blake2b(content, digest_size=16).hexdigest()


def check(snapshot: Snapshot) -> Iterator[str]:
    """Report templates that differ from the log, which has the digest of each."""
    past = pasts(snapshot, TEMPLATE, lambda data: {"digest": (None, data["digest"])})
    columns = ("version", "revision", "updated")
    rows = "SELECT name, version, revision, updated FROM templates"
    yield from compare(snapshot, TEMPLATE, past, rows, columns)
    for name, content in snapshot.all("SELECT name, content FROM templates"):
        digest = past[name].fields.get("digest") if name in past else None
        if digest is not None and digest.new != _digest(content):
            yield f"template {name} has another content than in the log"


def get_template(snapshot: Snapshot, name: str) -> TaskTemplate:
    """Return a template by its name. Raises NotFound."""
    check_name(name, "template name")
    row = snapshot.one("SELECT version, content FROM templates WHERE name = ?", (name,))
    if row is None:
        raise errors.NotFound(f"there is no template {name!r}", hint="tasks.templates() lists them", name=name)
    tree, parameters = msgspec.msgpack.decode(row[1], type=tuple[TemplateNode, dict[str, str | None]])
    return TaskTemplate(name, tree, parameters, row[0])


def probe(tx: Tx, name: str) -> Found | None:
    """What a condition sees of a template."""
    check_name(name, "template name")
    row = tx.one("SELECT version, content FROM templates WHERE name = ?", (name,))
    if row is None:
        return None
    tree, parameters = msgspec.msgpack.decode(row[1])
    return Found(row[0], {"tree": tree, "parameters": parameters})


def list_templates(snapshot: Snapshot, limit: int = 1000, after: str = "") -> Page[str]:
    """List the names of templates in order; `after` is the last name of the previous page."""
    check_limit(limit, 1000, "after")
    bounds, params = page_bounds("name", "", after)
    rows, more = snapshot.page(f"SELECT name FROM templates WHERE true{bounds} ORDER BY name LIMIT ?", params, limit)
    return Page.of((name for (name,) in rows), more, str)


def delete_template(tx: Tx, name: str) -> bool:
    """Delete a template; False if there is none. Tasks made from it stay."""
    check_name(name, "template name")
    if not tx.run("DELETE FROM templates WHERE name = ?", (name,)):
        return False
    tx.emit(TEMPLATE, name, "delete")
    return True


def from_template(tx: Tx, /, name: str, parent_id: str | None = None, **values: str) -> Task:
    """Create the tasks of a template, all or none, with values for its parameters; returns the root. Raises Invalid."""
    template = get_template(tx, name)
    given = _fill(template, values)
    config = settings_of(tx).config
    made: list[tuple[TemplateNode, str]] = []
    left = [(template.tree, require_parent(tx, parent_id))]
    while left:
        node, parent = left.pop()
        task = insert(tx, Placed(_draft(node, given, config), parent), config)
        made.append((node, task.id))
        left += [(child, task) for child in reversed(node.children)]
    keys = {node.key: id for node, id in made}
    for node, id in made:
        for key in node.depends_on:
            depend(tx, id, keys[key])
    return to_task(require(tx, made[0][1]))


def _draft(node: TemplateNode, values: dict[str, str], config: Config) -> Draft:
    title, body = _render(node.title, values), _render(node.body, values)
    tags = [_render(tag, values) for tag in node.tags]
    hint = None if node.grimoire_hint is None else _render(node.grimoire_hint, values)
    return check_draft(config, title, body, node.type, node.priority, tags, hint)


# --- checks ----------------------------------------------------------------------------------------------------------


def _as_tree(tree: Any) -> TemplateNode:
    try:
        return msgspec.convert(msgspec.to_builtins(tree), TemplateNode)
    except (msgspec.ValidationError, TypeError, ValueError, RecursionError) as error:
        hint = f"each task of the tree is an object with {', '.join(TemplateNode.__struct_fields__)}"
        raise errors.Invalid(f"the tree of a template cannot be read: {error}", hint=hint) from error


def _check_parameters(parameters: dict[str, str | None]) -> dict[str, str | None]:
    if not isinstance(parameters, dict):
        raise errors.Invalid(f"parameters must be a dict of names and defaults, not {type(parameters).__name__}")
    for name, default in parameters.items():
        if not isinstance(name, str) or not name.isidentifier() or name in ("name", "parent_id"):
            hint = "use an identifier other than name and parent_id"
            raise errors.InvalidName(f"{name!r} cannot be a parameter", hint=hint)
        if default is not None:
            check_text(default, f"the default of {name}", MAX_NOTE)
    return dict(parameters)


def _check(template: TaskTemplate, config: Config) -> None:
    """Reject now what would fail later: unknown parameters, unknown keys, cycles, bad fields."""
    nodes = list(_nodes(template.tree))
    if len(nodes) > MAX_NODES:
        raise errors.TooLarge(f"the template has {len(nodes)} tasks; the maximum is {MAX_NODES}", limit=MAX_NODES)
    keys = [node.key for node in nodes if node.key is not None]
    for key in keys:
        check_name(key, "key")
    if len(keys) != len({*keys}):
        raise errors.DuplicateName("two tasks of the template have the same key", keys=sorted({*keys}))
    sample = {name: "x" for name in template.parameters}
    for node in nodes:
        _draft(node, sample, config)
        unknown = [key for key in node.depends_on if key not in keys]
        if unknown:
            raise errors.NotFound(f"no task of the template has the key {unknown[0]!r}", key=unknown[0])
    _refuse_circles(nodes)


def _refuse_circles(nodes: list[TemplateNode]) -> None:
    waits = {node.key: set(node.depends_on) for node in nodes if node.key is not None}
    while free := [key for key, on in waits.items() if not on & waits.keys()]:
        for key in free:
            del waits[key]
    if waits:
        circle = sorted(str(key) for key in waits)
        raise errors.WouldCreateCycle(f"tasks of the template depend on each other: {', '.join(circle)}", path=circle)


def _nodes(node: TemplateNode, depth: int = 1) -> Iterator[TemplateNode]:
    if depth > MAX_DEPTH:
        raise errors.TooLarge(f"a template is at most {MAX_DEPTH} tasks deep", limit=MAX_DEPTH)
    yield node
    for child in node.children:
        yield from _nodes(child, depth + 1)


def _fill(template: TaskTemplate, values: dict[str, str]) -> dict[str, str]:
    """Return a value for every parameter. Raises Invalid."""
    unknown = sorted(values.keys() - template.parameters.keys())
    if unknown:
        hint = f"parameters: {', '.join(template.parameters) or 'none'}"
        raise errors.Invalid(f"the template {template.name!r} has no parameter {unknown[0]!r}", hint=hint)
    for name, value in values.items():
        check_text(value, name, MAX_NOTE)
    given = {**template.parameters, **values}
    lacking = sorted(name for name, value in given.items() if value is None)
    if lacking:
        message = f"the template {template.name!r} needs a value for {', '.join(lacking)}"
        raise errors.Invalid(message, parameters=lacking)
    return {name: value for name, value in given.items() if value is not None}


def _render(text: str, values: dict[str, str]) -> str:
    """Replace the parameters in a text; nothing in it is code."""

    def fill(match: re.Match[str]) -> str:
        if match[0] in ("{{", "}}"):
            return match[0][0]
        if match[1] is None:
            raise errors.Invalid(f"a lone brace in {text[:60]!r}", hint="write {{ or }} for a brace")
        if match[1] not in values:
            hint = f'declare it: parameters={{"{match[1]}": None}}'
            raise errors.Invalid(f"{text[:60]!r} uses {match[1]!r}, which is not a parameter", hint=hint)
        return values[match[1]]

    return re.sub(_HOLE, fill, text)
