"""TURNFILE.yaml, the ledger: text to model, and changed text back.

Pure. A `Ledger` is a text together with its contents. Its methods return another Ledger whose text differs only where
something changed: comments, order, quoting, unknown keys and line ends stay byte for byte. `read` refuses, with the
line, whatever it cannot be sure to understand; merely unknown words are left to `lint`.

Also here: the header comments with revision and author, the signals that writes leave (completion notes are compacted
into an archive, so that the ledger does not grow for ever; other signals are never removed), and warnings about names.
Below are `yaml_tree` (where each value is in the text), `yaml_edit` (changes of single values), `sections` and `rules`
(lint, and which lock wins). Imported by every module that touches the session's files.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import msgspec

from holdfast.errors import Invalid, NotFound
from holdfast.turnfile.damage import WORDS, conflict
from holdfast.turnfile.ledger import yaml_edit
from holdfast.turnfile.ledger.sections import NEWCOMER_KEY, TRANSACTION_KEY, read_sections
from holdfast.turnfile.ledger.yaml_edit import Change, Insert, Put, Remove
from holdfast.turnfile.ledger.yaml_tree import BOM, Node, parse
from holdfast.turnfile.model import TURNFILE, Lock, Problem, Signal, Turnfile, next_number

_REVISION: Final = re.compile(r"(#[ ]*Last modified revision:)[ ]*([0-9]{0,18})[ ]*$", re.IGNORECASE)
_ACTOR: Final = re.compile(r"(#[ ]*Modified by:)[ ]*(.*?)[ ]*$", re.IGNORECASE)


def read_header(text: str) -> tuple[int | None, str | None]:
    """The revision and author in the opening comments; None for a missing line."""
    revision, actor = None, None
    for line in map(_content, _opening(text)):
        if revision is None and (found := _REVISION.match(line)) and found[2]:
            revision = int(found[2])
        elif actor is None and (found := _ACTOR.match(line)):
            actor = found[2]
    return revision, actor


def with_header(text: str, revision: int, actor: str) -> str:
    """The text with both header lines set; a missing line is added to the opening comments."""
    bom = BOM if text.startswith(BOM) else ""
    eol = "\r\n" if "\r\n" in text else "\n"
    opening = _opening(text)
    lines = list(opening)
    found_lines = set()
    for place, line in enumerate(opening):
        content = _content(line)
        for what, pattern, value in (("revision", _REVISION, str(revision)), ("actor", _ACTOR, actor)):
            if what not in found_lines and (found := pattern.match(content)):
                found_lines.add(what)
                lines[place] = f"{found[1]} {value}{line[len(content) :]}"
    comments = next((place for place, line in enumerate(lines) if not line.startswith("#")), len(lines))
    if "actor" not in found_lines:
        lines.insert(comments, f"# Modified by: {actor}{eol}")
    if "revision" not in found_lines:
        lines.insert(comments, f"# Last modified revision: {revision}{eol}")
    return bom + "".join(lines) + text[len(bom) + sum(map(len, opening)) :]


def _opening(text: str) -> list[str]:
    """The comments and empty lines at the top of the file, each with its line break."""
    lines = []
    for line in text.removeprefix(BOM).splitlines(keepends=True):
        if line.strip() and not line.startswith("#"):
            break
        lines.append(line)
    return lines


def _content(line: str) -> str:
    return line.rstrip("\r\n")


_MAX_NAME: Final = 200

NEWCOMER: Final[dict[str, Any]] = {
    **{"role": "agent", "status": "active", "current_task": None, "last_seen": None, "session_id": None},
    NEWCOMER_KEY: True,
}


class Ledger(msgspec.Struct, frozen=True, eq=False):
    """The text of a TURNFILE.yaml, its tree and its contents."""

    text: str
    tree: Node
    turnfile: Turnfile

    @property
    def revision(self) -> int:
        """The value of coordination.revision."""
        return self.turnfile.revision

    def line(self, *path: str | int) -> int:
        """The line of the value at a path, or of its nearest ancestor."""
        for known in range(len(path), 0, -1):
            parent = self.tree.find(path[: known - 1])
            if parent is not None and isinstance(step := path[known - 1], str) and step in parent.entries:
                return parent.entries[step].key.line
            if (node := self.tree.find(path[:known])) is not None:
                return node.line
        return 1

    def changed(self, changes: Sequence[Change]) -> Ledger:
        """The ledger with some changes applied."""
        return read(yaml_edit.apply(self.text, changes)) if changes else self

    def with_lock(self, lock: Lock) -> Ledger:
        """With a lock added or replaced."""
        return self.changed(self._replacing(lock))

    def without_locks(self, *lock_ids: str) -> Ledger:
        """With some locks removed. Raises NotFound."""
        for lock_id in lock_ids:
            if self.turnfile.lock(lock_id) is None:
                raise NotFound(f"there is no lock {lock_id!r}", lock_id=lock_id)
        return self.changed([Remove(("locks", lock_id)) for lock_id in lock_ids])

    def without(self, lock: Lock | None) -> Ledger:
        """With this very lock removed; unchanged if it is gone or has changed."""
        return self if lock is None or self.turnfile.lock(lock.id) != lock else self.without_locks(lock.id)

    def with_signal(self, signal: Signal, *, instead_of: Sequence[str] = ()) -> Ledger:
        """With a signal added: first, unless the file lists the oldest first. `instead_of` are signals to remove."""
        gone = [place for place, old in enumerate(self.turnfile.signals) if old.id in instead_of]
        if gone:
            kept = self.changed([Remove(("messages", place)) for place in reversed(gone)])
            return kept.with_signal(signal)
        fields = {key: value for key, value in msgspec.to_builtins(signal).items() if value != "" or key != "detail"}
        return self.changed([Insert(("messages",), fields, first=not _rises(self.turnfile.signals))])

    def with_new_signal(
        self, sender: str, receiver: str, word: str, detail: str, *, instead_of: Sequence[str] = ()
    ) -> tuple[Ledger, Signal]:
        """With a signal of this write added, under the next id; and that signal."""
        number = next_signal_id(self.turnfile.signals)
        signal = Signal(number, sender, receiver, word, self.revision + 1, detail)
        return self.with_signal(signal, instead_of=instead_of), signal

    def with_completion_note(
        self, lock_id: str, holder: str, files: Sequence[str], *, broken: bool = False
    ) -> tuple[Ledger, Signal]:
        """With the completion note of a lock: its id, the changed files, and the revision of this write.

        `broken`: the note says instead that the files were left with errors.
        """
        what = "out of order after" if broken else "completed"
        detail = f"{what} {lock_id}: {', '.join(files)}, revision {self.revision + 1}"
        old = _old_notes(self.turnfile.signals, holder)
        return self.with_new_signal(holder, "all", "notify", detail, instead_of=old)

    def with_blocked_signal(self, sender: str, detail: str, facts: str = "") -> tuple[Ledger, Signal]:
        """With a `blocked` signal to the maintainer; if one that begins with the same `facts` is there, that one."""
        for old in self.turnfile.signals:
            if facts and old.signal == "blocked" and old.detail.startswith(facts):
                return self, old
        return self.with_new_signal(sender, self.turnfile.maintainer.id or "maintainer", "blocked", facts + detail)

    def with_task_fields(self, task_id: str, **fields: Any) -> Ledger:
        """With some fields of a task changed. Raises NotFound."""
        if self.turnfile.task(task_id) is None:
            raise NotFound(f"there is no task {task_id!r}", task_id=task_id)
        return self.changed([Put(("coordination", "tasks", task_id, key), value) for key, value in fields.items()])

    def with_agent(self, name: str) -> Ledger:
        """With an agent of that name listed, because `lint` requires every holder and owner to be.

        It is a newcomer: this write does not touch the mailbox, whose counts are those of the agents before.
        """
        return self if self.turnfile.lists(name) else self.changed([Put(("agents", name), dict(NEWCOMER))])

    def with_receivers(self, names: Collection[str]) -> Ledger:
        """With some names listed as agents that receive messages to `all`, for the mailbox counts them now."""
        after = self
        for name in names:
            after = after.with_agent(name)
        newcomers = [agent.id for agent in after.turnfile.agents if agent.newcomer and agent.id in names]
        return after.changed([Remove(("agents", name, NEWCOMER_KEY)) for name in newcomers])

    def stamped(self, revision: int, actor: str) -> Ledger:
        """With the revision set, and revision and actor in the header."""
        check_name("actor", actor)
        put = Put(("coordination", "revision"), revision)
        return read(yaml_edit.apply(self.text, [put], lambda text: with_header(text, revision, actor)))

    def _replacing(self, lock: Lock) -> list[Change]:
        fields = msgspec.to_builtins(lock)
        path = ("locks", fields.pop("id"))
        fields["files"] = list(lock.files)
        if fields.pop("transaction"):
            fields[TRANSACTION_KEY] = True
        old = self.turnfile.lock(lock.id)
        if old is None:
            return [Put(path, fields)]
        if old.files != lock.files:
            return [Remove(path), Put(path, fields)]
        before = msgspec.to_builtins(old)
        del fields["files"]
        return [Put((*path, key), value) for key, value in fields.items() if before.get(key) != value]


def read(text: str, *, part: bool = False) -> Ledger:
    """Parse a TURNFILE.yaml. Raises Invalid with `line`.

    `part`: it may be a part of one, for lint alone; its revision is then the highest one that it mentions.
    """
    if (line := conflict(text, markdown=False)) is not None:
        raise Invalid(f"line {line}: {WORDS}", line=line)
    tree = parse(text)
    return Ledger(text, tree, read_sections(tree, *read_header(text), part=part))


def check_name(what: str, name: str) -> str:
    """Return a name if one line of a file can hold it, else raise Invalid."""
    if not name or name != name.strip() or len(name) > _MAX_NAME or not name.isprintable():
        raise Invalid(f"{what} {name[:40]!r} is not a valid name", hint=f"use 1 to {_MAX_NAME} characters on one line")
    return name


def next_signal_id(signals: Sequence[Signal]) -> str:
    """The next signal id, SIG-NNN: the highest plus one."""
    taken = {int(found[1]) for signal in signals if (found := re.fullmatch(r"SIG-([0-9]{1,9})", signal.id))}
    return f"SIG-{next_number(taken):03d}"


def _rises(signals: Sequence[Signal]) -> bool:
    return len(signals) > 1 and (signals[0].rev, signals[0].id) < (signals[-1].rev, signals[-1].id)


KEPT_NOTES: Final = 10
_COMPLETED: Final = re.compile(r"(?:completed|out of order after) (\S.*): .*, revision [0-9]+")


def _old_notes(signals: Sequence[Signal], holder: str) -> list[str]:
    """The completion notes to drop when the holder writes another: all but the newest, and the last of each agent.

    The last of each agent stays because the ids of its locks continue from there.
    """
    notes = [signal for signal in signals if signal.signal == "notify" and _COMPLETED.fullmatch(signal.detail)]
    notes.sort(key=lambda note: (note.rev, note.id), reverse=True)
    last = {holder: ""} | {note.sender: note.id for note in reversed(notes) if note.sender != holder}
    return [note.id for note in notes[KEPT_NOTES - 1 :] if note.id not in last.values()]


_ARCHIVE_HEAD: Final = "# Signals that left TURNFILE.yaml, in the order in which they left.\n"


def archived_signals(signals: Sequence[Signal], *, new: bool) -> str:
    """The text that an archive of signals gets for some of them; `new`: it begins the archive."""
    return (_ARCHIVE_HEAD if new else "") + yaml_edit.dump([msgspec.to_builtins(signal) for signal in signals])


EVERYBODY: Final = ("all", "everyone")
_SHOWN: Final = 10


def new_names(ledger: Ledger, *names: str) -> list[Problem]:
    """Warn about names that are about to be added to the ledger."""
    return [
        _name_warning(ledger, name, "new-agent", "is new, and is added to the ledger")
        for name in _once(names)
        if not ledger.turnfile.lists(name)
    ]


def unknown_names(ledger: Ledger, *names: str) -> list[Problem]:
    """Warn about sender and recipient names that the ledger does not list."""
    known = {one.casefold() for one in (*ledger.turnfile.people, "maintainer", *EVERYBODY)}
    return [
        _name_warning(ledger, name, "unknown-name", "is not in the ledger")
        for name in _once(names)
        if name.casefold() not in known
    ]


def suggestion(name: str, known: Sequence[str]) -> str:
    """` (did you mean …?)` with the closest known name, or an empty string."""
    from difflib import get_close_matches  # loaded only for a mistyped name

    spelled = {one.casefold(): one for one in reversed(known)}
    found = get_close_matches(name.casefold(), spelled, 1)
    return f" (did you mean {spelled[found[0]]}?)" if found else ""


def describe_unknown(name: str, words: str, known: Sequence[str]) -> str:
    """What is wrong with a name, the names that are known, and the closest of them."""
    shown = ", ".join(known[:_SHOWN]) + (", …" if len(known) > _SHOWN else "")
    return f"{name} {words}; known: {shown or 'nobody'}{suggestion(name, known)}"


def _name_warning(ledger: Ledger, name: str, rule: str, words: str) -> Problem:
    message = describe_unknown(name, words, ledger.turnfile.people)
    return Problem(TURNFILE, ledger.line("agents"), "warning", rule, message)


def _once(names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(each.strip() for each in names) if name]
