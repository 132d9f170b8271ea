"""What happened, as a sentence: "ada claimed hf-7k2q". The log, a watch and a task's history read so.

An operation without words of its own shows its name and what it changed, so every event has a
sentence. JSON has the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from holdfast.faces.cli.output import printable
from holdfast.faces.cli.times import readable
from holdfast.faces.cli.width import brief, title

if TYPE_CHECKING:
    from holdfast.types import Event
    from holdfast.types.tasks import HistoryEntry, ResumeEvent

Data = Mapping[str, Any]
# What a step did to a task; {id} is its name.
_STEPS: Final = {
    **{"claim": "claimed {id}", "approve": "approved {id}", "reject": "sent {id} back", "block": "blocked {id}"},
    **{"unblock": "unblocked {id}", "close": "closed {id}", "cancel": "cancelled {id}", "reopen": "reopened {id}"},
    **{"delete": "deleted {id}", "restore": "brought {id} back", "purge": "purged {id}", "import": "imported {id}"},
    **{"undefer": "ended the wait of {id}", "note": "noted on {id}", "park": "parked {id}"},
}
# What the parts of a link between tasks say: that it was added, or removed.
_LINKS: Final = {
    "depends_on": ("made {id} wait for {on}", "let {id} no longer wait for {on}"),
    "discovered_from": ("noted that {id} was found in {on}", "noted no longer that {id} was found in {on}"),
    "related": ("linked {id} with {on}", "removed the link of {id} with {on}"),
}
_KINDS: Final = {"cell-lock": "the lock of the cell", "path": "the paths", "stash-lock": "the stash", "run": "the run"}
_DEEDS: Final = {
    **{
        "acquire": "acquired",
        "lock": "locked",
        "release": "released",
        "set": "set",
        "delete": "deleted",
        "create": "created",
    },
    **{"send": "sent", "ack": "acknowledged", "close": "closed", "block": "blocked", "register": "registered"},
    **{"forget": "forgot", "revoke": "ended", "load": "loaded", "reset": "reset", "compact": "compacted"},
    **{"increment": "incremented", "init": "made", "cas": "changed", "update": "changed", "start": "started"},
    **{"complete": "completed", "abandon": "abandoned", "restore": "brought back", "wait": "waits for"},
    **{"leave": "no longer waits for", "import": "imported", "action": "acted on", "finish": "finished"},
    "undo": "took back",
}
# What says nothing to a reader: how the store knows a thing.
_INNER: Final = {
    "short",
    "token",
    "ticket",
    "id",
    "document",
    "thread",
    "status",
    "claimed_by",
    "grimoire",
    "parent_ready",
}


def of_event(event: Event) -> str:
    """The sentence of an event."""
    name = printable(f"{event.scope}/{event.id}" if event.scope else event.id)
    if event.redacted:
        return f"{printable(event.actor)} changed the {event.kind} {name}, which was purged since"
    tell = _tell_task if event.kind == "task" else _KIND.get(event.kind, _tell_other)
    return tell(printable(event.actor), event.kind, name, event.op, event.data)


def of_changes(entries: Sequence[HistoryEntry], actor: str) -> str:
    """The sentence of the entries of one version in a task's history."""
    first = entries[0]
    data: dict[str, Any] = {e.field: (e.old_value, e.new_value) for e in entries if e.field not in ("note", e.op)}
    if first.note is not None:
        data["note"] = first.note
    return _tell_task(printable(actor), "task", "it", first.op, data)


def deed_of(op: str) -> str:
    """The verb of an operation: sent, acknowledged."""
    return _DEEDS.get(op, f"did {op} to")


def of_resumed(event: ResumeEvent, actor: str) -> str:
    """The sentence of an event of a task that is resumed; `actor` may name an author too."""
    data = {**event.changes, "note": event.note} if event.note else event.changes
    return _tell_task(printable(actor), "task", "it", event.op, data)


# --- tasks -----------------------------------------------------------------------------------------------------------


def _tell_task(actor: str, kind: str, name: str, op: str, data: Data) -> str:
    said = f": {title(str(data['note']))}" if data.get("note") else ""
    _, freed = data.get("parent_ready", (None, None))
    after = f"; {printable(freed)} is ready now" if freed else ""
    was = printable(str(data.get("claimed_by", (None, None))[0]))
    match op:
        case "expire":
            return f"the claim of {was} on {name} expired"
        case "due":
            return f"the wait of {name} is over"
        case "release" if "forced" in data:
            return f"{actor} took {name} from {was}{said}"
        case "release":
            return f"{actor} released {name}{said}"
        case "complete":
            review = ", which waits for review" if data.get("status", ("", ""))[1] == "pending_merge" else ""
            return f"{actor} completed {name}{review}{said}{after}"
        case "cancel" if data.get("status", ("", ""))[1] == "in_progress":
            return f"{actor} began to cancel {name}"
    return f"{actor} {_deed(name, op, data)}{said}{after}"


def _deed(name: str, op: str, data: Data) -> str:
    """What was done to a task: its verb and its object."""
    link = next((kind for kind in _LINKS if kind in data), None)
    if link is not None and op in ("depend", "undepend"):
        old, new = data[link]
        return _LINKS[link][new is None].format(id=name, on=printable(str(new or old)))
    match op:
        case "create":
            _, called = data.get("title", (None, None))
            return f"created {name}{f': {title(str(called))}' if called else ''}"
        case "assign":
            to = data.get("assigned_to", (None, None))[1]
            return f"assigned {name} to {printable(str(to))}" if to else f"let everybody claim {name}"
        case "defer":
            to = data.get("deferred_until", (None, None))[1]
            return readable(f"deferred {name} until {to}") if to else f"ended the wait of {name}"
        case "reparent":
            to = data.get("parent_id", (None, None))[1]
            return f"moved {name} under {printable(str(to))}" if to else f"moved {name} to the top"
        case "rename" if "id" in data:
            old, new = (printable(str(each)) for each in data["id"])
            return f"gave {name} the id {new}, because an older task has the id {old}"
        case "undo":
            return _undone(name, data)
        case "add_tags" | "remove_tags" | "set_tags" | "add_ref" | "remove_ref":
            return _list_change(name, op, data)
    return _STEPS[op].format(id=name) if op in _STEPS else f"changed {name}: {_changes(data)}"


def _undone(name: str, data: Data) -> str:
    """What an undo took back, and to what."""
    status = data.get("status")
    changes = [] if status is None else [f"status from {status[0]} to {status[1]}"]
    rest = {field: change for field, change in data.items() if field not in (*_INNER, "undoes", "forced")}
    changes += [_changes(rest)] * bool(rest)
    return f"took back revision {data.get('undoes', (None, 0))[1]} of {name}: {', '.join(changes)}"


def _list_change(name: str, op: str, data: Data) -> str:
    """Tags or references that came and went."""
    field = "tags" if op.endswith("tags") else "refs"
    old, new = ([_text(each) for each in values or ()] for values in data.get(field, ((), ())))
    came, went = ([each for each in one if each not in other] for one, other in ((new, old), (old, new)))
    what = "tag" if field == "tags" else "reference"
    parts = [f"added the {what} {', '.join(came)}"] * bool(came) + [f"removed the {what} {', '.join(went)}"] * bool(
        went
    )
    return f"{' and '.join(parts) or 'changed nothing'} {'on' if came else 'from'} {name}"


def _changes(data: Data) -> str:
    """Fields that changed: from what to what, or only that they did if they are long."""
    parts = []
    for field, change in data.items():
        if field in _INNER or field == "note":
            continue
        pair = isinstance(change, list | tuple) and len(change) == 2
        new = _text(change[1] if pair else change)
        if field == "body":
            parts.append("the body")
        elif not pair or change[0] in (None, "", [], ()):
            parts.append(f"{field.replace('_', ' ')} {new}")
        else:
            parts.append(f"{field.replace('_', ' ')} from {_text(change[0])} to {new}")
    return ", ".join(parts) or "nothing else"


def _text(value: Any) -> str:
    """A value in a sentence: a text as it is, names with commas, else JSON; long ones may be shortened."""
    if isinstance(value, str):
        return title(value)
    if value is None:
        return "none"
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return title(" ".join(value)) or "none"
    if isinstance(value, list | tuple) and all(isinstance(each, list | tuple) and len(each) == 2 for each in value):
        return title(" ".join(str(what) for _, what in value))  # references, each after its kind
    return brief(value)


# --- the others ------------------------------------------------------------------------------------------------------


def _tell_other(actor: str, kind: str, name: str, op: str, data: Data) -> str:
    if op == "expire":
        holder = data.get("holder", (None,))[0]
        return f"{_KINDS.get(kind, f'the {kind}')} {name}{f' of {printable(str(holder))}' if holder else ''} expired"
    deed = _DEEDS.get(op, f"did {op} to")
    return f"{actor} {deed} {_KINDS.get(kind, f'the {kind}')} {name}{_rest(data)}"


def _rest(data: Data) -> str:
    """What else an event says."""
    told = {name: value for name, value in data.items() if name not in _INNER and value not in (None, (None, None))}
    return f": {_changes(told)}" if told else ""


def _tell_cell(actor: str, kind: str, name: str, op: str, data: Data) -> str:
    value = f" to {brief(data['value'])}" if "value" in data else ""
    if op == "undo":
        return f"{actor} set the cell {name} back{value or ': it is gone again'}"
    return f"{actor} {_DEEDS.get(op, f'did {op} to')} the cell {name}{value}"


def _tell_message(actor: str, kind: str, name: str, op: str, data: Data) -> str:
    if op == "send":
        to = ", ".join(printable(str(each)) for each in data.get("to", ()))
        about = f" about {printable(data['task'])}" if data.get("task") else ""
        return f"{actor} wrote to {to or 'nobody'}{about}: {title(str(data.get('subject', '')))}"
    said = f": {title(str(data['note']))}" if data.get("note") else ""
    return f"{actor} {deed_of(op)} the message {printable(str(data.get('short', name)))}{said}"


def _tell_lock(actor: str, kind: str, name: str, op: str, data: Data) -> str:
    holder = next((each for each in data.get("holder", ()) if each), None)
    for_whom = f" for {printable(str(holder))}" if holder and holder != actor and op in ("acquire", "release") else ""
    if kind == "path" and "patterns" in data:
        name = " ".join(printable(str(each)) for each in data["patterns"][1] or data["patterns"][0] or ())
    if op == "expire":
        return _tell_other(actor, kind, name, op, data)
    reason = next((f": {title(str(each))}" for each in data.get("reason", ()) if each), "")
    what = _KINDS.get(kind, f"the {kind}")
    if op == "acquire" and kind == "path":
        op = "lock"
    return f"{actor} {_DEEDS.get(op, f'did {op} to')} {what} {name}{for_whom}{reason}"


def _tell_link(actor: str, kind: str, name: str, op: str, data: Data) -> str:
    ends = " ".join(printable(str(data[field])) for field in ("from_id", "link_type", "to_id") if field in data)
    return f"{actor} {_DEEDS.get(op, f'did {op} to')} the link {ends or name}"


def _tell_agent(actor: str, kind: str, name: str, op: str, data: Data) -> str:
    who = "" if name == actor else f" {name}"
    return f"{actor} {_DEEDS.get(op, f'did {op} to')}{who}{_rest(data)}"


def _tell_sharing(actor: str, kind: str, name: str, op: str, data: Data) -> str:
    if op == "read":
        return f"{actor} read shared tasks"
    return f"{actor} {_DEEDS.get(op, f'did {op} to')} the sharing of the {name}{_rest(data)}"


def _tell_undo(actor: str, kind: str, name: str, op: str, data: Data) -> str:
    return f"{actor} took back revision {name}{', which was an undo' if data.get('redo') else ''}"


_KIND: Final[dict[str, Callable[[str, str, str, str, Data], str]]] = {
    "agent": _tell_agent,
    "cell": _tell_cell,
    "link": _tell_link,
    "message": _tell_message,
    "sharing": _tell_sharing,
    "undo": _tell_undo,
    **dict.fromkeys(("lock", "cell-lock", "stash-lock", "path"), _tell_lock),
}
