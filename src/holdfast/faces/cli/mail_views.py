"""Messages, notes and handovers as short text for people: a part of `views`, which loads it when it shows one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from holdfast.faces.cli.output import printable, printable_lines
from holdfast.faces.cli.sentences import of_resumed
from holdfast.faces.cli.times import moment
from holdfast.faces.cli.views import Paint, imported, row, task_lines
from holdfast.faces.cli.width import title

if TYPE_CHECKING:
    from holdfast.types.agents import MailThread, Message
    from holdfast.types.tasks import Resume, ResumeEvent, TaskNote

_ASKING: Final = ("request", "decision-required", "objection")  # types of messages that want an answer
_ANSWERED: Final = ("actioned", "closed")
_NAMED: Final = 3  # names in a line
_BRIEF: Final = 32  # columns of what a message wants
_LISTED: Final = 20  # recipients with their status


def message_line(message: Message, paint: Paint) -> str:
    """A message in a line: its number, who writes to whom, what it is about, and which answers are missing."""
    kind = "" if message.type == "notify" else paint("cyan", message.type)
    about = f"[{message.task}]" if message.task else ""
    wanted = _wanted(message)
    shown = wanted if len(wanted) <= _BRIEF else title(wanted)  # the subject is shortened before what is brief
    parts = [paint("bold", message.short), moment(message.sent_at), _people(message), kind, title(message.subject)]
    return "  ".join(part for part in (*parts, about, paint("yellow", shown) if wanted else "") if part)


def _people(message: Message) -> str:
    return title(f"{message.sender} -> {_names(message.to)}")


def _names(names: Sequence[str], most: int = _NAMED) -> str:
    """The first few names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _wanted(message: Message) -> str:
    """The recipients that have not read a message, and those whose answer or acknowledgement is missing.

    The only recipient is not named again.
    """
    alone = len(message.status) == 1
    unread = [name for name, status in message.status.items() if status == "unread"]
    if message.type in _ASKING:
        wants, owing = "wants an answer", [name for name, status in message.status.items() if status not in _ANSWERED]
    else:
        wants, owing = "wants an ack", unread if message.ack else []
    by, of = ("", "") if alone else (f" by {_names(unread)}", f" from {_names(owing)}")
    if owing and owing == unread:
        return f"unread{by}, {wants}"
    parts = [f"unread{by}" if unread else "", f"{wants}{of}" if owing else ""]
    return ", ".join(part for part in parts if part)


def _message(message: Message, paint: Paint) -> list[str]:
    fields = {
        "id": message.id,
        "thread": message.thread if message.thread != message.id else "",
        "answers": message.answers,
        "status": _names([f"{name} {status}" for name, status in message.status.items()], _LISTED),
    }
    lines = [f"  {name:<11}{printable(value)}" for name, value in fields.items() if value]
    first, *body = _text(message, paint)
    return [first, *lines, *([""] if body else []), *body]


def _text(message: Message, paint: Paint) -> list[str]:
    """A message with its text, as in a thread."""
    return [message_line(message, paint), *(f"  {line}" for line in printable_lines(message.body))]


def _thread(thread: MailThread, paint: Paint) -> str:
    first = thread.first
    count = "1 message" if thread.messages == 1 else f"{thread.messages} messages"
    unread = paint("yellow", f"{thread.unread} unread") if thread.unread else ""
    wants = paint("yellow", "wants your answer") if thread.wants else ""
    parts = [paint("bold", first.short), moment(thread.last_at), _people(first), title(first.subject), count, unread]
    return "  ".join(part for part in (*parts, wants, "closed" if thread.closed else "") if part)


def _note(note: TaskNote, _: Paint) -> list[str]:
    """All of a note: people want to read it."""
    by = note.by if note.author is None else imported(note.author.by, note.by, note.author.at)
    head = f"{moment(note.at)}  {printable(by)}{'' if note.op == 'note' else f', {note.op}'}:"
    first, *others = printable_lines(note.text) or [""]
    return [head, *(f"  {line}" for line in (first, *others))] if others else [f"{head} {first}"]


def _event(event: ResumeEvent, paint: Paint) -> str:
    by = event.actor if event.author is None else imported(event.author.by, event.actor, event.author.at)
    return f"{paint('dim', f'{moment(event.at):<11}')}  {of_resumed(event, by)}"


def _resume(found: Resume, paint: Paint) -> list[str]:
    """Where work on a task stopped, in the order in which it matters."""
    lines = task_lines(found.task, paint)
    ended = "" if found.ended_at is None else f"{found.last_holder}, {found.ended} {moment(found.ended_at)}"
    facts = {
        "last held": ended,
        "waits for": ", ".join(found.waits_for),
        "unfinished": ", ".join(found.children),
        "was locked": ", ".join(found.left),
    }
    end = lines.index("") if "" in lines else len(lines)  # where the body begins
    lines[end:end] = [f"  {name:<11}{printable(value)}" for name, value in facts.items() if value]
    for head, items in (
        ("locks", found.locks),
        ("notes", found.notes),
        ("mail", found.messages),
        ("events", found.events),
    ):
        lines += section(head, items, paint)
    if found.omitted:
        counts = (f"{count} {'bytes of the body' if name == 'body' else name}" for name, count in found.omitted.items())
        lines += ["", f"left out: {', '.join(counts)}; --budget shows more"]
    return lines


def _item(item: Any, paint: Paint) -> list[str]:
    """The lines of an item: a note has several, and a text is a line as it is."""
    if isinstance(item, str):
        return [item]
    return _note(item, paint) if type(item).__name__ == "TaskNote" else [row(item, paint)]


def section(head: str, items: Sequence[Any], paint: Paint, more: str = "") -> list[str]:
    """Records below a heading, each in a line; nothing if there are none."""
    if not items:
        return []
    lines = [line for item in items for line in _item(item, paint)]
    return ["", paint("bold", head), *(f"  {line}" for line in (*lines, *filter(None, [more])))]


# By the names of their types.
LINES: Final[dict[str, Callable[[Any, Paint], str]]] = {
    "MailHit": lambda hit, paint: f"{message_line(hit.message, paint)}  {paint('dim', title(hit.snippet))}",
    "MailThread": _thread,
    "Message": message_line,
    "ResumeEvent": _event,
}
TEXTS: Final = {"Message": _text}
RECORDS: Final[dict[str, Callable[[Any, Paint], list[str]]]] = {"Message": _message, "Resume": _resume}
