"""Commands from operations: what an operation takes decides what its command takes.

An argument that an operation needs is a word, in the same order; one that it can do without is an option, named like
it. `SHAPES` has the exceptions, for the sake of fingers. Kinds come from the annotations as they are written, because
resolving them costs more time than most calls take.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import msgspec

import holdfast.transaction  # noqa: F401  # fills the table
from holdfast.faces.cli.command import Command
from holdfast.faces.cli.summaries import SUMMARIES
from holdfast.faces.cli.words import KINDS, Argument, Kind
from holdfast.ops import LATE, REGISTRY, Operation, load_all


class Shape(msgspec.Struct, frozen=True):
    """How a command differs from its operation: which arguments are words.

    `rest`: the last takes all that are left; `none`: or nothing, and is then an empty list.
    """

    words: tuple[str, ...] = ()
    rest: bool = False
    none: bool = False


SHAPES: Final[dict[str, Shape]] = {
    "agents.list": Shape(("prefix",)),
    "agents.register": Shape(("name",)),
    "cycles.add_error": Shape(("key", "phase", "error")),
    "cycles.adopt": Shape(("document",)),
    "cycles.complete_phase": Shape(("key", "phase", "output")),
    "cycles.fail_phase": Shape(("key", "phase", "error")),
    "cycles.finish": Shape(("key",)),
    "cells.increment": Shape(("run", "cell", "delta")),
    "cells.list": Shape(("run", "prefix")),
    "cells.runs": Shape(("prefix",)),
    "locks.list": Shape(("prefix",)),
    "mail.ack": Shape(("id", "note")),
    "mail.action": Shape(("id", "note")),
    "mail.close": Shape(("id", "note")),
    "mail.search": Shape(("text",), rest=True),
    "mail.send": Shape(("to", "subject", "body")),
    "paths.list": Shape(("path",)),
    "paths.lock": Shape(("patterns",), rest=True),
    "paths.release": Shape(("id",)),
    "stashes.create": Shape(("name",)),
    "stashes.increment": Shape(("id", "delta")),
    "tasks.add_tags": Shape(("id", "tags"), rest=True),
    "tasks.approve": Shape(("id", "note")),
    "tasks.block": Shape(("id", "reason")),
    "tasks.bulk": Shape(("action", "task_ids"), rest=True),
    "tasks.cancel": Shape(("id", "reason")),
    "tasks.close": Shape(("id", "reason")),
    "tasks.complete": Shape(("id", "summary")),
    "tasks.create": Shape(("title", "body")),
    "tasks.delete": Shape(("id", "reason")),
    "tasks.from_template": Shape(("name", "values"), rest=True),
    "tasks.note": Shape(("id", "text"), rest=True),
    "tasks.park": Shape(("id", "until")),
    "tasks.reject": Shape(("id", "reason")),
    "tasks.release": Shape(("id", "reason")),
    "tasks.remove_tags": Shape(("id", "tags"), rest=True),
    "tasks.reopen": Shape(("id", "reason")),
    "tasks.search": Shape(("text",), rest=True),
    "tasks.set_tags": Shape(("id", "tags"), rest=True, none=True),
    "tasks.unblock": Shape(("id", "note")),
    "trails.abandon": Shape(("id", "reason")),
}
# Options that are not called like their argument.
_OPTIONS: Final = {
    "from_id": "--from",
    "grimoire_hint": "--hint",
    "link_type": "--type",
    "parent_id": "--parent",
    "stash_type": "--type",
    "task_ids": "--id",
    "to_id": "--to",
    "values": "--value",
}
_SHORT: Final = {"body": "-b", "priority": "-p", "tags": "-t", "tag": "-t"}
_DURATIONS: Final = ("ttl", "wait", "timeout")
_CONTENTS: Final = ("body", "error", "text", "summary", "reason", "note")
_JSON: Final = ("Any", "dict[", "Condition", "Op]")
HELP: Final = {
    "ack": "ask those who get it to acknowledge it",
    "action": "create, add_tags, remove_tags, set_priority, close, cancel or delete",
    "actor": "this actor alone",
    "after": "go on after this one, the last of the page before",
    "after_version": "what came after this version of the cell",
    "agent": "which agent, if not the actor",
    "atomic": "all or nothing",
    "before": "only what is below this version or revision",
    "body": "the text; - reads it from standard input",
    "budget": "how many bytes it may have",
    "can": "an ability of the agent; may be repeated",
    "cell": "the cell's name",
    "changed_by": "the task that changes it, for its history",
    "claimed_by": "held by this agent; none: by nobody",
    "closed": "also what is closed",
    "conditions": "what must hold, a JSON list",
    "context": "what else agents should know, a JSON object",
    "cursor": "go on where a page ended, with the cursor it told",
    "default": "its value if there is none yet, JSON",
    "delta": "how much to add (1)",
    "depth": "how deep",
    "details": "more fields of the error, a JSON object",
    "document": "the document, JSON; - reads it from standard input",
    "dry_run": "say what would happen, and do nothing",
    "entries": "documents by their keys, a JSON object",
    "error": "what went wrong; - reads it from standard input",
    "expected": "the version that it must have; for cas, none: that there is no value",
    "field": "of this field alone",
    "force": "although somebody else holds it",
    "format": "holdfast or beads",
    "from_id": "where it leads from: the id of a task, trail or stash",
    "grimoire_hint": "the workflow it should go to",
    "holder": "who, if not the actor",
    **dict.fromkeys(("locks.check.token", "stashes.check.token"), "the fencing token"),
    "mail.send.type": "notify, request, decision-required, objection or handoff-ready",
    "mail.reply.type": "notify, request, decision-required, objection or handoff-ready",
    "paths.list.holder": "held by this one alone",
    "routes.decide.task": "its fields, a JSON object",
    "stashes.list.trail": "in this trail alone, by its id; '' for global ones",
    "cycles.adopt.sequence": "at which ours must still be",
    "cycles.list.status": "initialized, in_progress, completed, failed or corrupt",
    "cycles.delete.force": "wherever it stands, also a broken one",
    "cycles.export.sequence": "as it was then",
    "cycles.update_phase.output": "what to change of it, a JSON merge patch; - reads it from standard input",
    "trails.add.task": "the task's id",
    "trails.create.state": "draft (which it is unless said), pending or active",
    "trails.remove.task": "the task's id",
    "id": "its id",
    "include_deleted": "also what was deleted",
    "instruction": "the instruction, such as create-spec",
    "key": "its key, such as peer:spec:NAME:cycle:1, or peer:spec:NAME for the current one",
    "kind": "depends_on (which it is unless said), discovered_from or related",
    "kinds": "of this kind alone; may be repeated",
    "lease": "end with this lease",
    "limit": "at most so many",
    "link_type": "belongs_to, child_of, branches_from, scoped_to, depends_on, discovered_from or related",
    "model": "the model it runs on",
    "name": "its name",
    "new": "a name that nobody has yet",
    "note": "what to say about it; - reads it from standard input",
    "offset": "skip so many",
    "on": "the other task, which must be done first",
    "output": "what the phase made, JSON; - reads it from standard input",
    "otherwise": "what is done if they do not, a JSON list",
    "parameters": "its parameters and their defaults, a JSON object",
    "parent_id": "the task it is part of; none is the top",
    "path": "a path, from the current folder",
    "patterns": "paths or globs from the current folder, such as 'src/parser/**'",
    "phase": "plan, execute, express or review",
    "prefix": "names that begin so",
    "priority": "0 (first) to 4",
    "program": "the program it runs in",
    "reason": "why; - reads it from standard input",
    "result": "what came of it, JSON",
    "review": "let it wait for approve; --no-review closes it; else its route decides",
    "role": "agent, maintainer or observer",
    "run": "the run: whatever groups the cells",
    "sender": "who sends it, if not the actor",
    "sequence": "the one that you read: others may have written since",
    "shared": "others may lock it too, if they share it",
    "since": "since this moment, or for such as 2h",
    "skip_bad": "leave out what is wrong",
    "sort": "priority, updated or created; -updated turns it round",
    "spec": "the name of the spec",
    "stash_type": "resource, artifact, context, counter or lock",
    "state": "draft, pending, active, completed or abandoned",
    "status": "open, in_progress, pending_merge, blocked or closed; may be repeated",
    "subject": "what it is about, in a line",
    "summary": "what was done; - reads it from standard input",
    "tag": "with this tag",
    "tag_pattern": "with a tag that fits this glob, such as 'area/*'",
    "tags": "a tag; may be repeated",
    "task": "the task it is about",
    "task_ids": "their ids",
    "tasks": "new tasks, a JSON list",
    "text": "words or a text; - reads it from standard input",
    "then": "what is done then, a JSON list of operations",
    "thread": "the thread it belongs to",
    "timeout": "how long to wait: 90, 90s, 15m, 2h",
    "title": "what is to be done, in a line",
    "to": "an agent, several with commas between, or '*' for all",
    "to_id": "where it leads to: the id of a task, trail or stash",
    "token": "the fencing token; else the one that was remembered",
    "total": "count them too",
    "trail": "the trail's id",
    "tree": "the tasks of it, JSON",
    "ttl": "for how long: 90, 90s, 15m, 2h, 1d",
    "type": "task, feature, bug, epic or chore",
    "unread": "only what is unread",
    "until": "until this moment, or for such as 2h",
    "value": "JSON; - reads it from standard input",
    "values": "NAME=VALUE for each parameter",
    "version": "the version",
    "wait": "wait so long for it: 90, 90s, 15m",
    **dict.fromkeys(
        (f"stashes.{op}.id" for op in ("get", "history", "set_value", "increment", "restore", "delete")),
        "its id, TRAIL/NAME, or the NAME of a global one",
    ),
    **dict.fromkeys(
        (f"stashes.{op}.id" for op in ("acquire", "release", "refresh", "check")),
        "its id, TRAIL/NAME, or the NAME of a global one",
    ),
}


def operation_called(name: str, domain: str) -> Operation[..., Any] | None:
    """The operation that is this command, loading no other domain than its own."""
    if domain in LATE:
        import_module(LATE[domain])
    return next((op for op in REGISTRY.values() if op.route.cli == name), None)


def operations() -> list[Operation[..., Any]]:
    """Every operation."""
    load_all()
    return list(REGISTRY.values())


def derive(op: Operation[..., Any]) -> Command:
    """The command that is an operation."""
    from holdfast.faces.cli.performing import perform

    name = op.route.cli
    assert name is not None
    summary = SUMMARIES.get(name, op.summary)
    shape = SHAPES.get(op.name, Shape())
    empty: dict[str, Any] = {shape.words[-1]: []} if shape.none else {}
    return Command(
        name, summary, arguments_of(op), lambda session, given: perform(session, op, empty | given), op=op.name
    )


def arguments_of(op: Operation[..., Any]) -> tuple[Argument, ...]:
    """What its command takes: first the words, in their order."""
    code, defaults = op.function.__code__, op.function.__defaults__ or ()
    count = code.co_argcount + code.co_kwonlyargcount
    names = list(code.co_varnames[op.given : count + bool(code.co_flags & _VARKEYWORDS)])
    optional = {*code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount], "values"}
    shape = SHAPES.get(op.name, Shape(tuple(name for name in names if name not in optional)))
    words = [_argument(op, name, name not in optional, word=True) for name in shape.words]
    if shape.rest:
        words[-1] = msgspec.structs.replace(words[-1], rest=True, required=words[-1].required and not shape.none)
    return (*words, *(_argument(op, name, name not in optional) for name in names if name not in shape.words))


_VARKEYWORDS: Final = 0x08


def _argument(op: Operation[..., Any], name: str, required: bool, word: bool = False) -> Argument:
    written = str(op.function.__annotations__[name])
    kind = kind_of(name, written)
    singular = name[:-1] if kind in ("texts", "ints") and name.endswith("s") and name != "status" else name
    return Argument(
        name=name,
        kind=kind,
        option=_OPTIONS.get(name, f"--{singular.replace('_', '-')}"),
        short=_SHORT.get(name, ""),
        word=word,
        required=required,
        nothing=required and "None" in written,
        help=HELP.get(f"{op.name}.{name}") or HELP[name],
        choices=KINDS if name == "kinds" else (),
    )


def kind_of(name: str, written: str) -> Kind:
    """The kind of an argument, from its name and its annotation as it is written."""
    if name == "values":
        return "pairs"
    if name == "to":
        return "names"
    if any(word in written for word in _JSON):
        return "json"
    if "Sequence[int]" in written:
        return "ints"
    if "Sequence[" in written:
        return "texts"
    if "bool" in written:
        return "flag"
    if "datetime" in written:
        return "time"
    if name in _DURATIONS:
        return "seconds"
    if "str" in written or written[:1].isupper():
        return "content" if name in _CONTENTS else "text"
    return "number" if "float" in written else "int"
