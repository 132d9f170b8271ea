"""Commands derived from operations: the arguments of an operation decide what its command takes.

Each is an imperative sentence of at most 75 characters, names no argument and no class; a test sees to that. A command
that is not here is told in the words of its operation.

An argument that an operation needs is a word, in the same order; one that it can do without is an option, named like
it. `SHAPES` has the exceptions, for the sake of fingers. Kinds come from the annotations as they are written, because
resolving them costs more time than most calls take.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.faces.cli.args import KINDS, Argument, Kind
from holdfast.faces.cli.command import Command
from holdfast.operation import REGISTRY, Operation

SUMMARIES: Final = {
    "agent forget": "Forget an agent that is gone; what it holds and its mail stay.",
    "agent get": "Show what is known of an agent.",
    "agent list": "List the agents that registered or wrote something.",
    "agent register": "Make yourself known, or change what is known of you.",
    "approve": "Close a task that was done and waited for approval.",
    "block": "Stop work on your task until somebody unblocks it; the claim ends.",
    "bulk": "Do the same to many tasks, or create many; tell what became of each.",
    "cancel": "Close a task that nobody works on, such as a duplicate.",
    "cell at": "Print the value that a cell had at a version.",
    "cell cas": "Write a cell only if it is at the version you expect.",
    "cell compare-and-delete": "Delete a cell only if it is at the version you expect.",
    "cell delete": "Delete a cell; its history stays.",
    "cell delete-run": "Delete every cell of a run, and print how many.",
    "cell exists": "Print true or false: whether a cell has a value.",
    "cell get": "Print the value of a cell.",
    "cell get-or-init": "Print the value of a cell; write one first if there is none.",
    "cell history": "List the versions of a cell, newest first.",
    "cell increment": "Add to a number and print the new one; a new cell counts from 0.",
    "cell info": "Show version, time and size of a cell without its value.",
    "cell init": "Write a cell only if it has no value yet.",
    "cell list": "List the cells of a run.",
    "cell lock": "Take the lock of a cell.",
    "cell refresh-lock": "Renew your lock of a cell.",
    "cell refresh-ttl": "Set how long a cell lasts from now on.",
    "cell restore": "Write the value of an old version back, as a new version.",
    "cell runs": "List the runs that have cells.",
    "cell set": "Write a cell, and print its new version.",
    "cell stream": "Print the changes of a cell as they come.",
    "cell ttl": "Print the seconds until a cell ends; nothing if it does not.",
    "cell unlock": "Free your lock of a cell.",
    "cell watch": "Wait for one change of a cell, and print it.",
    "cycle add-error": "Note an error of the phase in progress, which goes on.",
    "cycle adopt": "Take a document from elsewhere in the place of ours.",
    "cycle complete-phase": "Complete the phase in progress, with its output.",
    "cycle delete": "Delete a cycle that is at its end, and what its history says.",
    "cycle document": "Print the document of a cycle, also as it was.",
    "cycle fail-phase": "Let the phase in progress fail, and its cycle.",
    "cycle finish": "End a cycle after its review, or with an error.",
    "cycle get": "Show a cycle field by field.",
    "cycle import": "Take in cycles from a NATS bucket or a folder, in any PEER format.",
    "cycle list": "List cycles by spec and number.",
    "cycle recover": "Bring a broken cycle back to its last sound version.",
    "cycle resume": "Tell where to go on: the phase that comes next, with what it has so far.",
    "cycle show": "Draw the four phases of a cycle as a timeline.",
    "cycle start": "Begin the next cycle of a spec or an instruction, and print its key.",
    "cycle start-phase": "Start a phase.",
    "cycle update-phase": "Change what the phase in progress has so far.",
    "cycle validate": "Tell what is wrong with a document; nothing if it is sound.",
    "claim": "Claim a task by its id; exit code 12 if somebody has it.",
    "clock reset": "Accept this machine's clock if the workspace is ahead of it.",
    "close": "Close a blocked task for good.",
    "create": "Make a task.",
    "delete": "Delete a task and all below it; undelete brings them back.",
    "dep add": "Let a task wait for another, or only refer to it.",
    "dep list": "List what a task waits for, and what waits for it.",
    "dep remove": "Let a task wait for another no more.",
    "done": "Finish your task: it is closed, or waits for approval.",
    "event compact": "Forget old events, after a backup; print how many went.",
    "event list": "List events, oldest first.",
    "event refusals": "Count who was refused what on this machine.",
    "explain": "Say whether a task is ready, and if not, why.",
    "heartbeat": "Extend your claim on a task; a parked one runs again.",
    "history": "List what changed in a task, newest first.",
    "lease create": "Make a lease, and print its id; it ends unless refreshed.",
    "lease get": "Show a lease that is alive.",
    "lease list": "List the leases that are alive, oldest first.",
    "lease refresh": "Let a lease run for its time again.",
    "lease revoke": "End a lease now, and everything bound to it.",
    "link create": "Link two records, such as a stash to the trail that it is for.",
    "link delete": "Remove a link.",
    "link get": "Show a link.",
    "link list": "List links, oldest first.",
    "list": "List the tasks that fit every filter given.",
    "lock acquire": "Take a lock; exit code 12 if somebody else holds it.",
    "lock check": "Pass if a lock is held with this token; exit code 15 if not.",
    "lock get": "Show who holds a lock.",
    "lock list": "List the locks that are held.",
    "lock refresh": "Renew your lock; exit code 15 if it was lost meanwhile.",
    "lock release": "Free your lock.",
    "mail about": "List the messages about a task, oldest first.",
    "mail ack": "Say that you have taken notice of a message.",
    "mail action": "Say that you have done what a message asked for.",
    "mail block": "Say what you wait for before you can act on a message.",
    "mail close": "Close a message for all; only its sender or a maintainer can.",
    "mail get": "Show a message; this acknowledges nothing.",
    "mail history": "List the steps in the life of a message, oldest first.",
    "mail inbox": "List your messages that are not closed, newest first.",
    "mail reply": "Answer a message in its thread; this acknowledges nothing.",
    "mail search": "Find the messages in which all words occur, best first.",
    "mail send": "Send a message to an agent, to several, or to all.",
    "mail sent": "List what you have sent, newest first.",
    "mail thread": "List the messages of a thread, oldest first.",
    "mail unread": "Count the messages you have not acknowledged yet.",
    "next": "Claim the best task that is ready; exit code 4 if there is none.",
    "note": "Add a note to a task's history, where a search finds it.",
    "park": "Keep your claim while you wait for a person.",
    "path check": "Pass if you may edit a path; exit code 12 if somebody has locked it.",
    "path get": "Show a path lock.",
    "path list": "List path locks, oldest first.",
    "path lock": "Lock paths and all below them; exit code 12 if somebody has one.",
    "path refresh": "Renew a path lock; exit code 15 if it was lost meanwhile.",
    "path release": "Free a path lock, or all of yours, or those taken for a task.",
    "purge": "Remove a task and all below it for good, after a backup.",
    "ready": "List the tasks that are ready to be claimed, best first.",
    "reject": "Send a task that waits for approval to blocked.",
    "release": "Give your task back, so that somebody else can claim it.",
    "reopen": "Open a closed task again.",
    "reparent": "Move a task and all below it under another one, or to the top.",
    "resume": "Show where work on a task stopped: holder, notes, locks, mail, events.",
    "route check": "Say what is wrong in the routing files; nothing if all is well.",
    "route decide": "Say where a task would go that does not exist yet.",
    "route explain": "Say where a task goes, and what every rule said.",
    "route reload": "Load the routing files now.",
    "search": "Find the tasks in which all words occur; word* finds what begins so.",
    "show": "Show a task; here an unambiguous part of its id is enough.",
    "stash acquire": "Take a lock stash; exit code 12 if somebody else holds it.",
    "stash check": "Pass if a lock stash is held with this token; exit code 15 if not.",
    "stash create": "Make a stash, in a trail or for all.",
    "stash delete": "Delete a stash and what its history says.",
    "stash find": "Show a stash by its name; nothing if there is none.",
    "stash get": "Show a stash.",
    "stash history": "List the saved changes of a stash, oldest first.",
    "stash increment": "Add to a counter and print its new value.",
    "stash list": "List stashes, oldest first.",
    "stash refresh": "Renew your lock stash; exit code 15 if it was lost meanwhile.",
    "stash release": "Give your lock stash back, and print its version.",
    "stash restore": "Write the value of an old version back, as a new version.",
    "stash set": "Give a stash another value.",
    "tag add": "Add tags to a task.",
    "tag remove": "Remove tags from a task.",
    "tag set": "Replace all tags of a task.",
    "template delete": "Forget a template; tasks made from it stay.",
    "template list": "List the templates.",
    "template set": "Keep a tree of tasks as a template.",
    "template show": "Show a template.",
    "template use": "Make the tasks of a template; all of them, or none.",
    "trail abandon": "End a trail and delete its tasks and stashes; restore brings them back.",
    "trail add": "Let a task belong to a trail.",
    "trail complete": "End an active trail; its tasks and stashes stay.",
    "trail create": "Make a trail.",
    "trail delete": "Delete a trail that nothing belongs to any more.",
    "trail get": "Show a trail.",
    "trail list": "List trails, oldest first.",
    "trail remove": "Let a task belong to a trail no more.",
    "trail restore": "Bring back an abandoned trail, with what went with it.",
    "trail state": "Bring a trail on: to pending, active, or its end.",
    "trail tasks": "List the ids of the tasks that belong to a trail.",
    "txn": "Do several operations as one, if conditions hold.",
    "unblock": "Open a blocked task again.",
    "undelete": "Bring back a deleted task, with what was deleted along with it.",
    "update": "Change fields of a task; what is not given stays.",
}


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
    found = (*REGISTRY.within(domain), *REGISTRY.within(""))
    return next((op for op in found if op.route.cli == name), None)


def operations() -> list[Operation[..., Any]]:
    """Every operation."""
    return list(REGISTRY.values())


def derive(op: Operation[..., Any]) -> Command:
    """The command that is an operation."""
    from holdfast.faces.cli.call import perform

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
