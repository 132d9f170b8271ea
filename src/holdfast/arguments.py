"""The vocabulary of arguments: one name has one meaning and one kind in every operation.

The table that a command line, its help and its completion read. An operation whose argument means something else, or
whose argument no other operation has, says so on its own line (`arguments=`). A kind that the annotation of a parameter
tells plainly (a flag, a number, a list) is not repeated here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from holdfast.types import EVENT_KINDS

_Read = Literal["content", "json", "conditions", "operations"]  # - is standard input
_Moment = Literal["past", "future"]  # a duration counts back from now, or forward
_Text = Literal["text", "texts", "names", "pairs", "path", "paths", "lock", "stash"]
_Number = Literal["int", "ints", "number", "seconds"]
Kind = Literal["flag"] | _Text | _Number | _Read | _Moment


class Meaning(msgspec.Struct, frozen=True):
    """What an argument means. `kind` is None where the annotation tells it; `option` is named like it unless said.

    `names` is what its value names, for completion: a task, an agent, a tag and others. An `id` names what its domain
    is about.
    """

    help: str
    kind: Kind | None = None
    option: str = ""
    short: str = ""
    choices: tuple[str, ...] = ()
    names: str = ""


# By operation: what it is often given although another operation takes it, and how.
ELSEWHERE: Final = {"tasks.update": {"status": "tasks.set_status(id, status) changes the status"}}
VOCABULARY: Final[dict[str, Meaning]] = {
    "ack": Meaning("ask the recipients to acknowledge it"),
    "action": Meaning("create, add_tags, remove_tags, set_priority, close, cancel or delete"),
    "actor": Meaning("this actor alone", names="agent"),
    "after": Meaning("go on after this one, the last of the page before"),
    "after_version": Meaning("what came after this version of the cell"),
    "agent": Meaning("which agent, if not the actor", names="agent"),
    "assigned_to": Meaning("assigned to this agent; none: to nobody", names="agent"),
    "atomic": Meaning("all or nothing"),
    "before": Meaning("only what is below this version or revision"),
    "blocks": Meaning("a task that waits for this one; may be repeated", option="--blocks", names="task"),
    "body": Meaning("the text; - reads it from standard input", "content", short="-b"),
    "budget": Meaning("at most so many bytes"),
    "can": Meaning("an ability of the agent; may be repeated"),
    "cell": Meaning("the cell's name"),
    "changed_by": Meaning("the id of the task that changes it, for its history", names="task"),
    "claimed_by": Meaning("held by this agent; none: by nobody", names="agent"),
    "closed": Meaning("also what is closed"),
    "conditions": Meaning("what must hold, a JSON list", "conditions"),
    "context": Meaning("what else agents should know, a JSON object", "json"),
    "cursor": Meaning("go on where a page ended, with its cursor"),
    "default": Meaning("its value if there is none yet, JSON", "json"),
    "delay": Meaning("not before so long has passed: 90, 90s, 15m", "seconds"),
    "delta": Meaning("how much to add (1)"),
    "depends_on": Meaning("a task that must be done first; may be repeated", option="--depends-on", names="task"),
    "details": Meaning("more fields of the error, a JSON object", "json"),
    "document": Meaning("the document, JSON; - reads it from standard input", "json"),
    "dry_run": Meaning("report what would happen, and change nothing"),
    "error": Meaning("what went wrong; - reads it from standard input", "content"),
    "expected": Meaning("the version that it must have"),
    "field": Meaning("of this field alone"),
    "force": Meaning("although somebody else holds it"),
    "from_id": Meaning("where it leads from: the id of a task, trail or stash", option="--from"),
    "grimoire_hint": Meaning("the workflow it should go to", option="--hint"),
    "holder": Meaning("who, if not the actor", names="agent"),
    "id": Meaning("its id"),
    "include_deleted": Meaning("also what was deleted"),
    "instruction": Meaning("the instruction, such as create-spec"),
    "key": Meaning("its key, such as peer:spec:NAME:cycle:1, or peer:spec:NAME for the current one"),
    "kind": Meaning("depends_on (which it is unless said), discovered_from or related"),
    "kinds": Meaning("of this kind alone; may be repeated", choices=EVENT_KINDS),
    "lease": Meaning("end with this lease", names="lease"),
    "limit": Meaning("at most so many"),
    "link_type": Meaning(
        "belongs_to, child_of, branches_from, scoped_to, depends_on, discovered_from or related", option="--type"
    ),
    "model": Meaning("the model it runs on"),
    "name": Meaning("its name"),
    "new": Meaning("a name that nobody has yet"),
    "note": Meaning("what to say about it; - reads it from standard input", "content"),
    "number": Meaning("the number of the item"),
    "offset": Meaning("skip so many"),
    "on": Meaning("the other task, which must be done first", names="task"),
    "operation": Meaning("the last change: set, increment, acquire or release"),
    "otherwise": Meaning("what is done if they do not, a JSON list", "operations"),
    "output": Meaning("what the phase made, JSON; - reads it from standard input", "json"),
    "parameters": Meaning("its parameters and their defaults, a JSON object", "json"),
    "parent_id": Meaning("the task it is part of; none is the top", option="--parent", names="task"),
    "path": Meaning("a path, from the current folder", "path"),
    "patterns": Meaning("paths or globs from the current folder, such as 'src/parser/**'", "paths"),
    "phase": Meaning("plan, execute, express or review"),
    "prefix": Meaning("names that begin so"),
    "priority": Meaning("0 (first) to 4", short="-p", names="priority"),
    "program": Meaning("the program it runs in"),
    "reason": Meaning("why; - reads it from standard input", "content"),
    "released_by": Meaning("who held the lock when it was loaded, and released it in memory"),
    "result": Meaning("what came of it, JSON", "json"),
    "review": Meaning("let it wait for approve; --no-review closes it; else its route decides"),
    "role": Meaning("agent, person, maintainer or observer"),
    "run": Meaning("the run: whatever groups the cells", names="run"),
    "sender": Meaning("who sends it, if not the actor", names="agent"),
    "sequence": Meaning("the one that you read: others may have written since"),
    "shared": Meaning("others may lock it too, if they share it"),
    "since": Meaning("since then: 2h, today, 'monday 9:00' or a moment", "past"),
    "sort": Meaning("priority, updated or created; -updated reverses it"),
    "spec": Meaning("the name of the spec"),
    "StashId": Meaning("its id, TRAIL/NAME, or the NAME of a global one", "stash", names="stash"),  # a type
    "stash_type": Meaning("resource, artifact, context, counter, lock, queue or channel", option="--type"),
    "state": Meaning("draft, pending, active, completed or abandoned"),
    "status": Meaning("open, in_progress, pending_merge, blocked or closed; may be repeated"),
    "subscriber": Meaning("for whom, if not the actor"),
    "subject": Meaning("what it is about, in a line"),
    "summary": Meaning("what was done; - reads it from standard input", "content"),
    "tag": Meaning("with this tag", short="-t", names="tag"),
    "tag_pattern": Meaning("with a tag that fits this glob, such as 'area/*'"),
    "tags": Meaning("a tag; may be repeated", short="-t", names="tag"),
    "task": Meaning("the task it is about", names="task"),
    "task_ids": Meaning("their ids", option="--id", names="task"),
    "tasks": Meaning("new tasks, a JSON list", "json"),
    "text": Meaning("words or a text; - reads it from standard input", "content"),
    "then": Meaning("what is done then, a JSON list of operations", "operations"),
    "thread": Meaning("the thread it belongs to", names="message"),
    "timeout": Meaning("how long to wait: 90, 90s, 15m, 2h", "seconds"),
    "title": Meaning("what is to be done, in a line"),
    "to": Meaning("an agent, several with commas between, or '*' for all", "names", names="agent"),
    "to_id": Meaning("where it leads to: the id of a task, trail or stash", option="--to"),
    "token": Meaning("the fencing token; else the one that was remembered"),
    "total": Meaning("count them too"),
    "trail": Meaning("the trail's id", names="trail"),
    "tree": Meaning("the tasks of it, JSON", "json"),
    "ttl": Meaning("for how long: 90, 90s, 15m, 2h, 1d", "seconds"),
    "type": Meaning("task, feature, bug, epic or chore"),
    "unread": Meaning("only what is unread"),
    "until": Meaning("until then: 2h, tomorrow, 'monday 9:00' or a moment", "future"),
    "value": Meaning("JSON; - reads it from standard input", "json"),
    "version": Meaning("the version"),
    "wait": Meaning("wait so long for it: 90, 90s, 15m", "seconds"),
}


def kind_of(annotation: str, meaning: Meaning) -> Kind:
    """The kind of an argument: as declared, or as its annotation tells plainly."""
    if meaning.kind is not None:
        return meaning.kind
    if annotation.startswith(("Any", "dict[", "list[", "Mapping[")):
        return "json"
    if annotation.startswith("datetime"):
        return "past"
    if "Sequence[int]" in annotation:
        return "ints"
    if "Sequence[" in annotation:
        return "texts"
    if "bool" in annotation:
        return "flag"
    if "str" in annotation or annotation[:1].isupper():
        return "text"
    return "number" if "float" in annotation else "int"


def meant(name: object, known: Iterable[str]) -> str:
    """The question whether a name that is not known stands for one that is like it; empty if none is."""
    from difflib import get_close_matches  # only who made a mistake needs it

    near = get_close_matches(str(name)[:80], known, n=1)
    return f"did you mean {near[0]}?" if near else ""
