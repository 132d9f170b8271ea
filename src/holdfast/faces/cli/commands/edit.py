"""`holdfast create` and `edit`: a task as a text, from standard input or in an editor; and `undo`, to take it back.

A text that could not be stored is kept in a file, whatever the reason: nobody writes it twice.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains.tasks import Tasks
from holdfast.faces.cli.args import Argument, Usage, convert
from holdfast.faces.cli.call import Session, perform
from holdfast.faces.cli.command import command
from holdfast.faces.cli.derive import derive
from holdfast.types import Op, VersionEquals
from holdfast.workspace.transaction import Root

_HEAD: Final = """\
# {id}, version {version}. Save and leave to change the task; leave it as it is to change nothing.
# The fields end at the first empty line; what follows is the body.
"""
_FIELDS: Final = ("title", "type", "priority", "tags", "assign", "hint")
_EDITOR: Final = "vi"


def create_task(session: Session, given: dict[str, Any]) -> int:
    """Make a task; with - as its title, from standard input: its first line is the title, the rest the body."""
    if given["title"] == "-":
        if "body" in given:
            raise Usage("with - the body comes from standard input too", hint="holdfast create - < FILE")
        title, _, body = sys.stdin.read().strip("\n").partition("\n")
        if not title.strip():
            raise Usage("standard input is empty", hint="its first line is the title, the rest the body")
        given |= {"title": title.strip(), "body": body.strip("\n")}
    return perform(session, Tasks.create, given)


create: Final = msgspec.structs.replace(
    derive(Tasks.create),
    run=create_task,
    more="With - as TITLE, standard input has the title in its first line and the body after it. For several tasks at"
    " once see holdfast help bulk.",
)


def undo_one(session: Session, given: dict[str, Any]) -> int:
    """Take back one transaction: that of a revision, or one's own last."""
    revision, last = given.get("revision"), bool(given.get("last"))
    if (revision is not None) == last:
        wrong = "either a REVISION or --last, not both" if last else "a REVISION, or --last for your newest change"
        raise Usage(f"holdfast undo takes {wrong}", hint="holdfast event list shows the revision of each change")
    if revision is not None and revision < 1:
        raise Usage(f"REVISION must be a whole number from 1, not {revision}")
    return perform(session, Root.undo, given)


undo: Final = msgspec.structs.replace(
    derive(Root.undo),
    run=undo_one,
    more="Again --last takes back the change before that, and so on. To do again what was taken back, undo the revision"
    " of the undo. A note stays: it is no change that could be taken back.",
)


@command(
    "edit",
    Argument("id", word=True, required=True, help="its id"),
    more="The editor is $EDITOR, else $VISUAL, else vi. A task that has changed meanwhile is left alone; your text is"
    " kept in a file then.",
    op=Tasks.get,
)
def edit(session: Session, given: dict[str, Any]) -> int:
    """Change a task in your editor: title, type, priority, tags, assignee, hint and body."""
    with session.open(writing=True) as workspace:
        task = workspace.tasks.get(given["id"])
        before = _text(task)
        path = _write(task.id, before)
        try:
            _open_editor(session, path)
            with open(path, encoding="utf-8", newline="") as file:
                operations = _operations(task.id, _parsed(before), _parsed(file.read()))
            if operations:
                task = _store(session.keyed(workspace), task, operations)
        except (errors.HoldfastError, UnicodeDecodeError) as error:
            raise _kept(error, path, before) from error
        os.unlink(path)
    session.out.result(Tasks.update, task)
    if operations:
        session.wrote()
    else:
        session.out.warn("nothing was changed", "")
    return 0


def _text(task: Any) -> str:
    """A task as the text that is edited."""
    values = (task.title, task.type, task.priority, ", ".join(task.tags), task.assigned_to, task.grimoire_hint)
    lines = [f"{name}: {'' if value is None else value}".rstrip() for name, value in zip(_FIELDS, values, strict=True)]
    end = "" if task.body.endswith("\n") or not task.body else "\n"
    return _HEAD.format(id=task.id, version=task.version) + "\n".join(lines) + f"\n\n{task.body}{end}"


def _write(id: str, text: str) -> str:
    from tempfile import mkstemp

    descriptor, path = mkstemp(prefix=f"holdfast-{id}-", suffix=".md")
    with open(descriptor, "w", encoding="utf-8", newline="") as file:
        file.write(text)
    return path


def _open_editor(session: Session, path: str) -> None:
    import subprocess
    from shlex import split

    chosen = session.environ.get("EDITOR") or session.environ.get("VISUAL")
    if not chosen and not sys.stdin.isatty():
        raise Usage("there is no editor and no terminal", hint="holdfast update changes fields; or set EDITOR")
    words = split(chosen or _EDITOR)
    try:
        code = subprocess.run([*words, path], check=False).returncode
    except OSError as error:
        hint = "set EDITOR to the command of an editor; holdfast update changes fields without one"
        raise Usage(f"the editor {words[0]} could not be started: {error.strerror}", hint=hint) from error
    if code:
        raise errors.Invalid(f"the editor {words[0]} ended with {code}, so nothing was changed", hint="")


def _parsed(text: str) -> dict[str, str]:
    """The fields of a text, and its body. Raises Usage for a line that is no field."""
    found: dict[str, str] = {}
    lines = text.splitlines(keepends=True)
    while lines and lines[0].startswith("#"):
        lines.pop(0)
    while lines and lines[0].strip():
        line = lines.pop(0)
        name, colon, value = line.partition(":")
        if not colon or name.strip().lower() not in _FIELDS:
            raise Usage(f"{line.strip()!r} is none of the fields {', '.join(_FIELDS)}", hint="fields are NAME: VALUE")
        found[name.strip().lower()] = value.strip()
    return {**found, "body": "".join(lines[1:])}


def _operations(id: str, before: dict[str, str], after: dict[str, str]) -> list[Op]:
    """What makes one text of the other: a field that is missing stays as it is."""
    new = {name: value for name, value in after.items() if value != before[name]}
    if "body" in new and before["body"] in (f"{new['body']}\n", new["body"].removesuffix("\n")):
        del new["body"]  # an editor adds or removes the last line's end
    fields: dict[str, Any] = {name: new[name] for name in ("title", "type", "body") if name in new}
    if "body" in fields:
        fields["body"] = fields["body"].removesuffix("\n")
    if "priority" in new:
        fields["priority"] = convert(Argument("priority", "int"), new["priority"])
    if "hint" in new:
        fields["grimoire_hint"] = new["hint"]
    operations = [Op(Tasks.update.name, {"id": id, **fields})] if fields else []
    if "tags" in new:
        tags = [tag.strip() for tag in new["tags"].split(",") if tag.strip()]
        operations.append(Op(Tasks.set_tags.name, {"id": id, "tags": tags}))
    if "assign" in new:
        operations.append(Op(Tasks.assign.name, {"id": id, "assignee": new["assign"] or None}))
    return operations


def _store(workspace: Any, task: Any, operations: list[Op]) -> Any:
    """Make all changes at once, if the task is as it was read. Raises VersionMismatch."""
    if not workspace.txn([VersionEquals("task", (task.id,), task.version)], operations).succeeded:
        now = workspace.tasks.get(task.id)
        message = f"task {task.id} has changed while you edited it: it is at version {now.version}, not {task.version}"
        hint = f"holdfast history {task.id} says what changed; holdfast edit {task.id} begins again"
        raise errors.VersionMismatch(message, hint=hint, id=task.id, expected=task.version, version=now.version)
    return workspace.tasks.get(task.id)


def _kept(error: Exception, path: str, before: str) -> errors.HoldfastError:
    """An error that says where the text is; one that was not changed is removed."""
    if not isinstance(error, errors.HoldfastError):
        error = errors.Invalid(f"the text is not UTF-8: {error}", hint="")
    with open(path, "rb") as file:
        changed = file.read() != before.encode()
    if changed:
        error.hint = f"{error.hint}; your text is kept in {path}".removeprefix("; ")
        error.details["file"] = path
    else:
        os.unlink(path)
    return error
