"""A working session's folder: where it is, its ledger, and the shared files that it guards.

`read` and `texts` return the files as they were at one moment, after finishing any interrupted replacement. `write` is
the only way to change the ledger: under the folder's write lock it reads the file again, applies the change, adds one
to the revision and replaces the file in one step. A change may run more than once, so it must have no side effects.

A linked git worktree has a copy of the session that nobody else sees: `Session` warns, or uses the main worktree's
folder if so configured. A folder whose symlink leads out of its repository is refused. Git's own files are read; no
command runs. Everything in this package that touches files goes through here.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from holdfast.errors import FileChanged, Invalid, NotFound, ReadOnly
from holdfast.turnfile import damage, files
from holdfast.turnfile.files import Folder, is_internal, not_full
from holdfast.turnfile.ledger import Ledger, archived_signals, check_name, read, rules
from holdfast.turnfile.model import (
    FOLDER,
    FOLDER_VARIABLE,
    MAILBOX,
    PROJECTION,
    QUESTIONS,
    SIGNAL_ARCHIVE,
    TURNFILE,
    WORKLOG,
    Lock,
)


def main_folder(folder: str) -> str | None:
    """The same folder in the main worktree if this one is in a linked worktree, else None."""
    here = Path(os.path.realpath(folder))  # a symlink to the main worktree's folder counts as that folder
    for root in (here, *here.parents):
        link = root / ".git"
        if link.is_dir():
            return None
        if link.is_file():
            main = _main_root(link)
            return None if main is None else os.path.join(main, here.relative_to(root))
    return None


def symlink_escape(folder: str) -> str | None:
    """The target of a folder whose symlinks leave its repository (or, without one, its parent folder); else None."""
    here, real = Path(os.path.abspath(folder)), Path(os.path.realpath(folder))
    # A repository behind a symlink does not decide where that symlink may lead.
    roots = (each for each in here.parents if (each / ".git").exists() and not each.is_symlink())
    root = next(roots, here.parent)
    allowed = [os.path.realpath(root), _main_root(root / ".git") if (root / ".git").is_file() else None]
    return None if any(place is not None and real.is_relative_to(place) for place in allowed) else str(real)


def _main_root(link: Path) -> str | None:
    """The main worktree, from the `.git` file of a linked one; None for the `.git` file of a submodule."""
    try:
        words = link.read_text().strip()
        own = Path(os.path.normpath(link.parent / words.removeprefix("gitdir:").strip()))
        common = Path(os.path.normpath(own / (own / "commondir").read_text().strip()))
    except (OSError, UnicodeDecodeError):
        return None  # not the link of a worktree: git would not follow it either
    return str(common.parent) if words.startswith("gitdir:") and common.name == ".git" else None


def _session_above(start: str) -> str | None:
    """The nearest session in a folder or in one above it, for a caller who is too deep; None if there is none."""
    for folder in (Path(start), *Path(start).parents):
        for place in (folder, folder / FOLDER):
            if (place / TURNFILE).is_file():
                return str(place)
    return None


WORKTREE_VARIABLE: Final = "HOLDFAST_TURN_WORKTREE"

# What hints propose, as Python calls (`holdfast.hints` translates them).
NEW_SESSION: Final = "turnfile.init(session, project, agents)"
RESTORE_LEDGER: Final = (
    f"the ledger is lost: restore {TURNFILE} from version control, or move the folder away and begin a new session with"
    f" {NEW_SESSION}"
)

REPAIR_LEDGER: Final = (
    "nothing was changed: repair that line, or one just above it, in an editor,"
    f" or restore {TURNFILE} from version control"
)

_FULL_ARCHIVE: Final = 4 * 1024 * 1024
_TRIES: Final = 5
_LOOK: Final = 0.02  # seconds between two checks of the ledger

Worktree = Literal["own", "main"]


def file_changed(path: str) -> FileChanged:
    """The error for a file that somebody changed while it was being edited."""
    hint = "nothing was written; repeat the edit on the current text, or use turnfile.transact(...), which retries"
    return FileChanged(f"{path} changed while it was being edited", hint=hint, path=path)


def _worktree_warnings(path: str, main: str) -> Iterator[str]:
    """Warn that a session in a linked worktree is a copy; no warning if there is no session at all."""
    words = f"{path} is in a linked git worktree, so nobody outside it sees these locks;"
    if os.path.isfile(os.path.join(main, TURNFILE)):
        yield f"{words} {WORKTREE_VARIABLE}=main uses {main} instead"
    elif os.path.isfile(os.path.join(path, TURNFILE)):
        yield f"{words} {main} has no {TURNFILE}"


def _now() -> datetime:
    return datetime.now(UTC)


class Session:
    """One `working-session/` folder.

    `registry` lists the files that need a lock; the default is the ledger's own list. `worktree` chooses the folder
    in a linked git worktree: its own copy, with a warning, or the main one's (also HOLDFAST_TURN_WORKTREE=main).
    `write_timeout` is how many seconds a write waits for other writers. Raises Invalid for a folder whose symlink
    leads out of its repository.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        registry: Iterable[str] | None = None,
        worktree: Worktree | None = None,
        write_timeout: float = 10.0,
        now: Callable[[], datetime] = _now,
    ) -> None:
        path = os.path.abspath(folder)
        self.warnings: list[str] = []
        if (main := main_folder(path)) is not None:
            chosen = worktree or os.environ.get(WORKTREE_VARIABLE, "own")
            if chosen not in ("own", "main"):
                raise Invalid(f"{WORKTREE_VARIABLE} is {chosen!r}", hint="use own or main")
            if chosen == "main":
                path = main
            else:
                self.warnings.extend(_worktree_warnings(path, main))
        if (target := symlink_escape(path)) is not None:
            hint = f'if you mean that folder, name it: turnfile.Session("{target}")'
            raise Invalid(f"{path} is a symlink that leads out of the project", hint=hint, path=path)
        self.folder = Folder(path)
        self._registry = None if registry is None else frozenset(rules.normalize(file) for file in registry)
        self._known: Ledger | None = None  # a cache: the file is read more often than it changes
        self._write_timeout = write_timeout
        self._now = now

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self) -> Ledger:
        """The current ledger. Raises NotFound, or Invalid with `line`."""
        return self.ledger(self.texts([TURNFILE])[TURNFILE])

    def spelled(self, name: str) -> str:
        """A name as the ledger spells it: names are compared without case."""
        return self.read().turnfile.spelled(name)

    def texts(self, paths: Iterable[str], *, strict: bool = True) -> dict[str, str | None]:
        """The texts of some files as they were at one moment; None for a file that does not exist.

        Unless `strict`, what cannot be read as text is replaced or left out. Files are only replaced whole, so if none
        was replaced during the read, no lock is needed: readers never block a writer.
        """
        wanted = [self.normalize(path) for path in paths]
        self._need_folder()
        for _ in range(_TRIES):
            if files.is_pending(self.folder):
                break
            before = [self.folder.signature(path) for path in wanted]
            texts = {path: self.folder.read(path, strict=strict) for path in wanted}
            after = [self.folder.signature(path) for path in wanted]
            if before == after and not files.is_pending(self.folder):
                return texts
        try:
            with self.write_lock():
                return {path: self.folder.read(path, strict=strict) for path in wanted}
        except ReadOnly:  # without permission to write, read what a killed writer left
            return {path: self.folder.read(path, strict=strict) for path in wanted}

    def text(self, path: str) -> str | None:
        """The text of a file as it is; None if it does not exist."""
        return self.texts([path])[self.normalize(path)]

    def archived(self, path: str) -> str | None:
        """The text of an archive, as far as it is text: one bad byte hides no message and frees no id."""
        return self.texts([path], strict=False)[self.normalize(path)]

    def normalize(self, path: str) -> str:
        """The path as seen from this folder, in one spelling. Raises Invalid for one that leaves it."""
        if os.path.isabs(path):
            path = os.path.relpath(path, self.folder.path)
        found = rules.normalize(path.removeprefix(f"./{self._name}/").removeprefix(f"{self._name}/"))
        if is_internal(found):
            raise Invalid(f"{found} is an internal file of the session", hint="name a file of the project", path=found)
        return found

    def workspace(self, ledger: Ledger) -> str:
        """This folder's name in the paths of the ledger."""
        said = posixpath.normpath(ledger.turnfile.workspace or ".")
        return self._name if said.startswith((".", "/")) else said

    def guarded(self, ledger: Ledger) -> frozenset[str]:
        """The files that need a lock: the ledger's list or the default one, and always the mailbox.

        While a path of the list is no file of this folder, which `lint` reports, the default files need a lock as well:
        a list that is only half understood frees no file.
        """
        if self._registry is not None:
            return self._registry
        if ledger.turnfile.registry is None:
            return frozenset(rules.REGISTRY)
        place, listed = self.workspace(ledger), ledger.turnfile.registry
        known = [rules.normalize(path, place) for path in listed if rules.is_inside(path, place)]
        return frozenset((MAILBOX, *known, *(rules.REGISTRY if len(known) < len(listed) else ())))

    def await_change(self, seconds: float, revision: int, pause: Callable[[float], None] = time.sleep) -> None:
        """Wait until the ledger leaves a revision, at most so many seconds."""
        seen = None
        for _ in range(round(seconds / _LOOK)):
            signature = self.folder.signature(TURNFILE)
            if signature != seen and self.read().revision != revision:
                return
            seen = signature
            pause(_LOOK)

    # --- writing -----------------------------------------------------------------------------------------------------

    def write(
        self,
        change: Callable[[Ledger], Ledger],
        actor: str,
        log: Callable[[Ledger, Ledger], dict[str, str]] | None = None,
    ) -> Ledger:
        """Replace the ledger by the result of `change`; if that is the same, nothing is written.

        `log` returns, from the old ledger and the new one, what is added to other files in the same replacement.
        """
        check_name("actor", actor)
        for _ in range(_TRIES):
            with self.write_lock():
                ledger = self.fresh()
                after = change(ledger)
                if after.text == ledger.text:
                    return ledger
                added = log(ledger, after) if log is not None else {}
                before = {path: self.folder.read(path) for path in added}
                texts = {path: (before[path] or "") + text for path, text in added.items()}
                after = after.stamped(ledger.revision + 1, actor)
                with contextlib.suppress(FileChanged):  # an editor without our lock was faster: retry on its text
                    self.replace({TURNFILE: after.text, **texts}, {TURNFILE: ledger.text, **before})
                    return after
        raise file_changed(TURNFILE)

    def drop(self, lock: Lock) -> None:
        """Remove this very lock in the name of its holder; one that is gone or has changed is no error."""
        self.write(lambda ledger: ledger.without(lock), lock.holder)

    @contextlib.contextmanager
    def write_lock(self) -> Iterator[None]:
        """Exclude other writers, and finish what a killed writer left. Raises Busy after `write_timeout`."""
        self._need_folder()
        with self.folder.write_lock(timeout=self._write_timeout):
            files.recover(self.folder)
            yield

    def fresh(self) -> Ledger:
        """The current ledger. The caller holds the write lock."""
        return self.ledger(self.folder.read(TURNFILE))

    def replace(self, texts: dict[str, str], before: dict[str, str | None]) -> None:
        """Replace files together. The caller holds the write lock. Raises FileChanged if one is not as `before`."""
        for path in texts:
            if self.folder.read(path) != before[path]:
                raise file_changed(path)
        shelved = self._shelved_signals(texts.get(TURNFILE), before.get(TURNFILE))
        now = {path: self.folder.read(path) or "" for path in shelved}
        texts = {**texts, **{path: texts.get(path, now[path]) + text for path, text in shelved.items()}}
        files.replace(self.folder, texts, {**before, **{path: text or None for path, text in now.items()}})

    def _shelved_signals(self, text: str | None, before: str | None) -> dict[str, str]:
        """What a write of the ledger adds to the archive of signals: those that the ledger no longer has.

        The ledger is an audit trail: a note leaves it only in the replacement that archives it. A full archive is
        followed by another one with the next number.
        """
        if text is None or before is None:
            return {}
        left = set(self.ledger(before).turnfile.signals) - set(read(text).turnfile.signals)
        if not left:
            return {}
        path = not_full(self.folder, SIGNAL_ARCHIVE, _FULL_ARCHIVE, damage.refuse)
        new = self.folder.signature(path) is None
        return {path: archived_signals(sorted(left, key=lambda one: (one.rev, one.id)), new=new)}

    # --- dates for the files: no decision depends on them ------------------------------------------------------------

    def today(self) -> str:
        """Today's date, for cards and log entries."""
        return self._now().date().isoformat()

    def timestamp(self) -> str:
        """The current time, for the projection."""
        return self._now().isoformat(timespec="seconds").replace("+00:00", "Z")

    @property
    def _name(self) -> str:
        return os.path.basename(self.folder.path)

    def _need_folder(self) -> None:
        if not os.path.isdir(self.folder.path):
            above = _session_above(os.path.dirname(self.folder.path))
            hint = f"{NEW_SESSION} begins a session here; if there is one, go to the folder that has it"
            if above:
                hint = f"there is a session in {above}: use that folder; {NEW_SESSION} begins another here"
            raise NotFound(f"there is no folder {self.folder.path}", hint=hint)

    def no_ledger_error(self) -> NotFound:
        """The error for a folder without a ledger: the session has lost it, or there was none."""
        lost = any(self.folder.signature(path) is not None for path in (MAILBOX, PROJECTION, WORKLOG, QUESTIONS))
        hint = RESTORE_LEDGER if lost else f"{NEW_SESSION} creates it"
        return NotFound(f"there is no {TURNFILE} in {self.folder.path}", hint=hint)

    def ledger(self, text: str | None) -> Ledger:
        """Parse the text of a ledger. Raises NotFound for None, or Invalid with `line`."""
        if text is None:
            raise self.no_ledger_error()
        known = self._known
        if known is not None and known.text == text:
            return known
        try:
            self._known = known = read(text)
            return known
        except Invalid as error:
            details = {**error.details, "file": TURNFILE}
            raise Invalid(f"{TURNFILE}, {error.message}", hint=error.hint or REPAIR_LEDGER, **details) from error


SessionLike = Session | str | os.PathLike[str] | None
"""A session, its folder, or None for HOLDFAST_TURN_DIR, else `./working-session`."""


def as_session(folder: SessionLike) -> Session:
    """The session itself, or the one in that folder."""
    if isinstance(folder, Session):
        return folder
    return Session(folder or os.environ.get(FOLDER_VARIABLE) or FOLDER)
