"""`holdfast turn edit` and `transact`: shared files edited in one transaction, by an editor, a patch or a program.

The edit happens on copies in a private folder; the result is written as one transaction, with lock, checks, projection
and completion note, or not at all. If a file changes in the meantime, the edit is repeated: a program runs again, a
patch or a person's changes are applied to the current text. What a person typed is never lost: if it cannot be
written, the copies stay and the error names their folder.

A hunk of a patch fits where all its old lines are, at the line that it names or at the only other place, never
approximately; one that adds lines at the end of a file fits at the end alone, so that it cannot be applied twice. A
patch applies as a whole or not at all. If it names two files, as `diff -u WORKLOG.md new.md` does, it changes the first
if that is a file of the session, else the second.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import msgspec

from holdfast import turnfile
from holdfast.errors import Invalid, NotFound
from holdfast.faces.cli.args import Argument, Usage
from holdfast.faces.cli.call import Session
from holdfast.faces.cli.command import command
from holdfast.faces.cli.commands import turn
from holdfast.faces.cli.output import printable
from holdfast.turnfile.files import Folder
from holdfast.turnfile.model import FOLDER_VARIABLE

_NO_FILE: Final = "/dev/null"
_HUNK: Final = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")


class Hunk(msgspec.Struct, frozen=True):
    """Old lines, their replacement, and the line (from 0) where they were. Lines keep their line ends."""

    start: int
    old: tuple[str, ...]
    new: tuple[str, ...]
    line: int = 0  # of the patch
    adds: Literal["end", "beginning", ""] = ""  # it only adds lines, with nothing below or above them


Choice = Callable[[str, str, int], str]  # of the file that is meant, from the old name, the new one and a line


def parse(patch: str, choose: Choice = lambda old, new, line: new) -> dict[str, list[Hunk]]:
    """The hunks of a patch, by file. Raises Invalid with `line`."""
    lines = _lines(patch)
    found: dict[str, list[Hunk]] = {}
    path, at = "", 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ "):
            new = _path(lines[at + 1])
            if new == _NO_FILE:
                raise Invalid(f"line {at + 2}: a patch must not remove a file", line=at + 2)
            path = choose(_path(line), new, at + 1)
            found.setdefault(path, [])
            at += 2
        elif line.startswith("rename from "):
            raise Invalid(f"line {at + 1}: a patch must not rename a file", line=at + 1)
        elif (match := _HUNK.match(line)) is not None:
            if not path:
                raise Invalid(f"line {at + 1}: this hunk names no file", line=at + 1)
            hunk, at = _hunk(lines, at + 1, match)
            found[path].append(hunk)
        else:
            at += 1  # text of git or mailers between files
    if not any(found.values()):
        raise Invalid("the patch has no changes", hint="use a unified diff, from diff -u or git diff")
    return found


def apply_patch(text: str, hunks: Sequence[Hunk], path: str, *, strict: bool = True) -> str:
    """Apply all hunks to a text. Raises Invalid for one that does not fit, or is applied already.

    Without `strict`, for the edit of a person whose text has changed since, the nearest of several places counts.
    """
    lines = _lines(text)
    shift, floor = 0, 0
    for hunk in hunks:
        wanted = hunk.start + shift
        place = _strict_place(lines, hunk, wanted, floor, path) if strict else _place(lines, hunk, wanted, floor)
        if place is None:
            which = f"{hunk.start + 1}, from line {hunk.line} of the patch," if hunk.line else f"{hunk.start + 1}"
            message = f"the patch does not fit {path}: its old lines at line {which} are not there"
            raise Invalid(message, hint="make a new patch from the current file", path=path, line=hunk.start + 1)
        lines[place : place + len(hunk.old)] = hunk.new
        shift = place - hunk.start + len(hunk.new) - len(hunk.old)
        floor = place + len(hunk.new)
    return "".join(lines)


def hunks_between(before: str, after: str) -> list[Hunk]:
    """The hunks that turn one text into another."""
    old, new = _lines(before), _lines(after)
    hunks = []
    for group in difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(3):
        first, last = group[0], group[-1]
        hunks.append(Hunk(first[1], tuple(old[first[1] : last[2]]), tuple(new[first[3] : last[4]])))
    return hunks


def _place(lines: list[str], hunk: Hunk, wanted: int, floor: int) -> int | None:
    """Where the old lines are, nearest to the wanted line; None if nowhere."""
    if not hunk.old:  # it only adds lines, so there is nothing to find
        return min(max(wanted, floor), len(lines))
    return min(_places(lines, hunk, floor), key=lambda at: (abs(at - wanted), at), default=None)


def _strict_place(lines: list[str], hunk: Hunk, wanted: int, floor: int, path: str) -> int | None:
    """Where the old lines are, if there is no doubt about it; None if nowhere."""
    size = len(hunk.old)
    if hunk.adds == "end":
        last = len(lines) - size
        return last if floor <= last and tuple(lines[last:]) == hunk.old and (size or not lines) else None
    if hunk.adds == "beginning":
        return 0 if not floor and tuple(lines[:size]) == hunk.old else None
    places = _places(lines, hunk, floor)
    if wanted not in places and tuple(lines[wanted : wanted + len(hunk.new)]) == hunk.new:
        message = f"the patch is already applied to {path}, at line {wanted + 1}"
        raise Invalid(message, hint="nothing was written", path=path, line=wanted + 1)
    if wanted not in places and len(places) > 1:
        where = ", ".join(str(at + 1) for at in places[:5])
        message = f"the patch fits {path} in several places: lines {where}"
        raise Invalid(message, hint="make a new patch from the current file", path=path, line=places[0] + 1)
    return wanted if wanted in places else next(iter(places), None)


def _places(lines: list[str], hunk: Hunk, floor: int) -> list[int]:
    """All places of the old lines."""
    size = len(hunk.old)
    return [at for at in range(floor, len(lines) - size + 1) if tuple(lines[at : at + size]) == hunk.old]


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _path(line: str) -> str:
    name = line[4:].split("\t")[0].rstrip("\r\n").strip()
    return name[2:] if name.startswith(("a/", "b/")) else name


def _hunk(lines: list[str], at: int, match: re.Match[str]) -> tuple[Hunk, int]:
    begin = at
    old_size, new_size = int(match[2] or 1), int(match[4] or 1)
    start = int(match[1]) - (1 if old_size else 0)
    old: list[str] = []
    new: list[str] = []
    marks = ""
    while len(old) < old_size or len(new) < new_size:
        line = lines[at] if at < len(lines) else ""
        mark, content = line[:1], line[1:]
        if mark in ("\n", "\r"):  # an empty context line whose space an editor removed
            mark, content = " ", line
        if mark not in (" ", "-", "+") or not content:
            raise Invalid(f"line {at + 1}: the hunk ends too early", line=at + 1)
        at += 1
        marks += mark
        if at < len(lines) and lines[at].startswith("\\"):  # No newline at end of file
            content = content.rstrip("\r\n")
            at += 1
        if mark != "+":
            old.append(content)
        if mark != "-":
            new.append(content)
    if (len(old), len(new)) != (old_size, new_size):
        raise Invalid(f"line {begin}: the hunk's line counts are wrong", line=begin)
    adds: Literal["end", "beginning", ""] = ""
    if "-" not in marks:
        adds = "end" if marks.endswith("+") else "beginning" if marks.startswith("+") else ""
    return Hunk(max(start, 0), tuple(old), tuple(new), begin, adds), at


Edit = Callable[[turnfile.Transaction], None]
_FILES: Final = Argument("files", "texts", "--files", word=True, rest=True, help="the files, such as WORKLOG.md")
_PROGRAM: Final = Argument("command", "texts", word=True, after=True, of="PROGRAM", help="it edits the copies")
_HOW: Final = (Argument("under", of="LOCK", help="a lock that you already hold, and keep"), turn.LEASE, *turn.WAITING)


@command(
    "turn edit",
    _FILES,
    turn.HOLDER,
    turn.REASON,
    Argument("editor", of="COMMAND", help="the editor (default: VISUAL, EDITOR)"),
    Argument(
        "patch",
        of="FILE",
        help="apply a unified diff instead, to FILES or to the file after ---; - reads standard input",
    ),
    _PROGRAM,
    *_HOW,
    more="The edit happens on copies. A program runs in their folder; if it fails, or writes a file that is not named,"
    " nothing is written.",
)
def edit(session: Session, given: dict[str, Any]) -> int:
    """Edit shared files in one transaction: with an editor, a patch or a program."""
    command, patch, editor = given.pop("command", None), given.pop("patch", None), given.pop("editor", None)
    if sum(each is not None for each in (command, patch, editor)) > 1:
        raise Usage("use one of --editor, --patch and a program after --")
    if patch is not None:
        text = _read(session, patch)
        return _transact(session, given, lambda files: _by_patch(session, files, given, patch, text))
    if not given.get("files"):
        raise Usage("no file given", hint="such as: holdfast turn edit WORKLOG.md --reason 'log it'")
    if command is not None:
        return _transact(session, given, lambda files: _by_program(session, files, command))
    chosen = editor or session.environ.get("VISUAL") or session.environ.get("EDITOR")
    if not chosen and not sys.stdin.isatty():
        hint = "use --editor COMMAND, --patch FILE, or -- PROGRAM"
        raise Usage("no editor given, and there is no terminal", hint=hint)
    words = shlex.split(chosen or "vi")
    if not words:
        raise Usage("--editor must not be empty")
    person = _Editor(words)
    try:
        code = _transact(session, given, lambda _: person, rehearse=False)
    except BaseException:
        person.keep()
        raise
    person.forget()
    return code


def _read(session: Session, patch: str) -> str:
    try:
        if patch == "-":
            return sys.stdin.buffer.read().decode()
        with open(os.path.join(session.folder, patch), "rb") as file:
            return file.read().decode()
    except FileNotFoundError as error:
        raise NotFound(f"there is no file {patch}") from error
    except UnicodeDecodeError as error:
        raise Invalid(f"{patch} is not UTF-8 at byte {error.start}") from error


@command(
    "turn transact",
    *(_FILES, _PROGRAM, turn.HOLDER, turn.REASON, *_HOW),
    more="It runs in a folder with copies of the files; if it fails, breaks an invariant, or writes a file that is not"
    " named, nothing is written.",
)
def transact(session: Session, given: dict[str, Any]) -> int:
    """Edit shared files with a program in one transaction."""
    if not given.get("command"):
        hint = "holdfast turn transact WORKLOG.md --reason 'sort it' -- ./sort.py WORKLOG.md"
        raise Usage("holdfast turn transact needs a program after --", hint=hint)
    return edit.run(session, given)


def _transact(
    session: Session, given: dict[str, Any], means: Callable[[turnfile.Session], Edit], *, rehearse: bool = True
) -> int:
    """Run an edit. A person edits under the lock; a program or a patch is rehearsed before the lock is taken."""
    waiting = turn.wait_policy(given)
    files, holder = turn.session_and_actor(session, given)
    how = {name: given[name] for name in ("lease_revs", "under") if name in given}
    body, reason = means(files), given["reason"]
    done = turnfile.transact(given["files"], holder, reason, body, folder=files, wait=waiting, rehearse=rehearse, **how)
    session.out.say(turn.completion_data(session, done), turn.completion_line(done))
    return 0


# --- by a program ----------------------------------------------------------------------------------------------------


def _by_program(session: Session, files: turnfile.Session, command: list[str]) -> Edit:
    if not command:
        raise Usage("a program is missing after --")
    program = os.path.join(session.folder, command[0]) if os.sep in command[0] else command[0]
    environ = {**session.environ, FOLDER_VARIABLE: files.folder.path}

    def run(transaction: turnfile.Transaction) -> None:
        with tempfile.TemporaryDirectory(prefix="holdfast-turn-") as path:
            folder = _copy(transaction, path)
            # Its output goes to standard error; standard output is for our result.
            _run([program, *command[1:]], stdout=2, cwd=folder.path, env=environ)
            _check_named(transaction, folder)
            _adopt(transaction, folder)

    return run


def _run(command: list[str], **how: Any) -> None:
    try:
        sys.stdout.flush()
        code = subprocess.run(command, check=False, **how).returncode
    except OSError as error:
        raise Invalid(f"{command[0]} could not be started: {error.strerror}", hint="nothing was written") from error
    if code:
        raise Invalid(f"{os.path.basename(command[0])} exited with code {code}", hint="nothing was written")


def _copy(transaction: turnfile.Transaction, path: str) -> Folder:
    """Copy the files of a transaction into a private folder."""
    folder = Folder(os.path.realpath(path))
    for name in transaction.files:
        text = transaction.read(name)
        folder.make(name)
        if text is not None:
            with open(os.path.join(folder.path, name), "x", encoding="utf-8", newline="") as file:
                file.write(text)
    return folder


def _check_named(transaction: turnfile.Transaction, folder: Folder) -> None:
    """Raises Invalid if a program wrote files that the transaction does not name: they would be lost."""
    named = transaction.files
    others = sorted(
        os.path.relpath(os.path.join(here, name), folder.path)
        for here, folders, files in os.walk(folder.path)
        for name in (*files, *(each for each in folders if os.path.islink(os.path.join(here, each))))
    )
    if others := [name for name in others if name not in named]:
        message = f"the program also wrote {', '.join(others)}, which the transaction does not name"
        hint = f"nothing was written; name all files: {' '.join(map(shlex.quote, (*named, *others)))}"
        raise Invalid(message, hint=hint, files=others)


def _adopt(transaction: turnfile.Transaction, folder: Folder) -> None:
    """Take the texts of the copies over into the transaction."""
    for name in transaction.files:
        text = folder.read(name)
        if text is not None:
            transaction.write(name, text)
        elif transaction.read(name) is not None:
            raise Invalid(f"the edit removed {name}", hint="nothing was written; shared files must stay", path=name)


# --- by a patch ------------------------------------------------------------------------------------------------------


def _by_patch(session: Session, files: turnfile.Session, given: dict[str, Any], patch: str, text: str) -> Edit:
    """Apply a patch to the files that were named, or else to those that it names."""
    source = "the patch" if patch == "-" else patch
    named = [files.normalize(path) for path in given.get("files", ())]
    try:
        hunks = parse(text, lambda *names: _meant(session, files, named, *names))
    except Invalid as error:
        if "line" in error.details:
            error = Invalid(f"{source}, {error.message}", hint=error.hint, **error.details)
        raise error from None
    if len(named) == 1 and len(hunks) == 1:
        hunks = dict(zip(named, hunks.values(), strict=True))
    given.setdefault("files", list(hunks))

    def apply(transaction: turnfile.Transaction) -> None:
        for path, found in hunks.items():
            transaction.write(path, apply_patch(transaction.read(path) or "", found, path))

    return apply


def _meant(session: Session, files: turnfile.Session, named: Sequence[str], old: str, new: str, line: int) -> str:
    """The file that a patch is for: the old name counts if the names differ and it is a file of the session."""
    if old in (new, _NO_FILE):
        return files.normalize(new)
    found = [path for path in (_in_session(session, files, old), _in_session(session, files, new)) if path]
    found = [path for path in found if path in named] or found
    if found or len(named) == 1:
        return found[0] if found else named[0]
    raise Invalid(
        f"line {line}: neither {old} nor {new} is a file of the session",
        hint="name the file before --patch, or make the patch with git diff, or with"
        " diff -u --label WORKLOG.md --label WORKLOG.md OLD NEW",
        line=line,
    )


def _in_session(session: Session, files: turnfile.Session, name: str) -> str | None:
    """The path of an existing file of the session, named from its folder, its project or the current folder."""
    for path in (name, os.path.join(os.path.realpath(session.folder), name)):
        try:
            found = files.normalize(path)
            if files.folder.read(found) is not None:
                return found
        except Invalid:
            continue
    return None


# --- by a person -----------------------------------------------------------------------------------------------------


class _Editor:
    """A person's edit: the editor runs once; its changes are applied again if the files have changed since."""

    def __init__(self, editor: list[str]) -> None:
        self._editor = editor
        self._before: dict[str, str] = {}
        self._changes: dict[str, list[Hunk]] = {}
        self._folder: Folder | None = None

    def __call__(self, transaction: turnfile.Transaction) -> None:
        """Run the editor, or apply its changes again."""
        if self._folder is None:
            self._before = {name: transaction.read(name) or "" for name in transaction.files}
            self._folder = _copy(transaction, tempfile.mkdtemp(prefix="holdfast-turn-"))
            _run([*self._editor, *(os.path.join(self._folder.path, name) for name in self._before)])
            _adopt(transaction, self._folder)
            after = {name: transaction.read(name) or "" for name in self._before}
            self._changes = {name: hunks_between(text, after[name]) for name, text in self._before.items()}
            return
        for name, hunks in self._changes.items():
            if hunks:
                transaction.write(name, apply_patch(transaction.read(name) or "", hunks, name, strict=False))

    def keep(self) -> None:
        """Print where the copies are, if the person changed them."""
        folder = self._folder
        if folder is not None and any((folder.read(name) or "") != text for name, text in self._before.items()):
            print(f"holdfast: your text is kept in {printable(folder.path)}", file=sys.stderr)
        else:
            self.forget()

    def forget(self) -> None:
        """Remove the copies."""
        if self._folder is not None:
            shutil.rmtree(self._folder.path)
