"""A working session's folder: where it really is, its ledger and the shared files it guards.

A linked worktree has its own copy of the working session, which nobody else sees: `Session` warns, or goes to the main
worktree's folder when told to. A repository may hold a symlink to anywhere, and who runs a command in it did not choose
that place: such a folder is refused. Reads git's own files, and runs no command.

`read` and `texts` answer what is there, with unfinished replacements settled first. `write` is the only way to change
the ledger: under the folder's OS lock it reads the file afresh, applies the change to that, adds one to the revision
and replaces the file in one step. A change may therefore run more than once, and must not do anything but answer.
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

from holdfast.errors import Invalid, NotFound, Outrun, ReadOnly, VersionMismatch
from holdfast.turnfile import files
from holdfast.turnfile.files import Folder, is_own
from holdfast.turnfile.ledger import Ledger, check_name, read, rules
from holdfast.turnfile.ledger.sections import REGISTRY_KEY
from holdfast.turnfile.model import FOLDER, FOLDER_VARIABLE, MAILBOX, TURNFILE


def main_folder(folder: str) -> str | None:
    """For a folder in a linked worktree, the same folder of the main worktree; None anywhere else."""
    here = Path(os.path.realpath(folder))  # a link to the main worktree's folder is that folder
    for root in (here, *here.parents):
        link = root / ".git"
        if link.is_dir():
            return None
        if link.is_file():
            main = _main_root(link)
            return None if main is None else os.path.join(main, here.relative_to(root))
    return None


def led_out(folder: str) -> str | None:
    """Where symlinks lead a folder, if that is out of its repository; without one, out of the folder it lies in."""
    here, real = Path(os.path.abspath(folder)), Path(os.path.realpath(folder))
    # What lies behind a link says nothing about where the link may lead.
    roots = (each for each in here.parents if (each / ".git").exists() and not each.is_symlink())
    root = next(roots, here.parent)
    inside = [os.path.realpath(root), _main_root(root / ".git") if (root / ".git").is_file() else None]
    return None if any(place is not None and real.is_relative_to(place) for place in inside) else str(real)


def _main_root(link: Path) -> str | None:
    """Where the main worktree is, from the `.git` file of a linked one; a submodule's leads nowhere."""
    try:
        words = link.read_text().strip()
        own = Path(os.path.normpath(link.parent / words.removeprefix("gitdir:").strip()))
        common = Path(os.path.normpath(own / (own / "commondir").read_text().strip()))
    except (OSError, UnicodeDecodeError):
        return None  # no worktree's link: git itself would not follow it either
    return str(common.parent) if words.startswith("gitdir:") and common.name == ".git" else None


WORKTREE_VARIABLE: Final = "HOLDFAST_TURN_WORKTREE"

_TRIES: Final = 5
_LOOK: Final = 0.02  # seconds between two looks at a file that should change

Worktree = Literal["own", "main"]


def outrun(path: str) -> Outrun:
    """The error for a file that somebody changed while it was being edited."""
    hint = "nothing was written: make the edit again on what it says now; turnfile.transact does so by itself"
    return Outrun(f"{path} changed while it was being edited", hint=hint, path=path)


def _apart(path: str, main: str) -> Iterator[str]:
    """What to say about a session in a linked worktree; nothing where there is none, neither here nor in the main."""
    words = f"{path} is in a linked git worktree: nobody outside sees its locks;"
    if os.path.isfile(os.path.join(main, TURNFILE)):
        yield f"{words} the main one is {main} ({WORKTREE_VARIABLE}=main uses it)"
    elif os.path.isfile(os.path.join(path, TURNFILE)):
        yield f"{words} {main} has none"


def _now() -> datetime:
    return datetime.now(UTC)


class Session:
    """One `working-session/` folder.

    `registry` names the files that need a lock; without, the ledger does. `worktree` says which folder to use in a
    linked git worktree: its own copy, with a warning, or the main one's (also by HOLDFAST_TURN_WORKTREE=main). A folder
    that a symlink leads out of its repository is refused with Invalid.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        registry: Iterable[str] | None = None,
        worktree: Worktree | None = None,
        patience: float = 10.0,
        now: Callable[[], datetime] = _now,
    ) -> None:
        path = os.path.abspath(folder)
        self.warnings: list[str] = []
        if (main := main_folder(path)) is not None:
            chosen = worktree or os.environ.get(WORKTREE_VARIABLE, "own")
            if chosen not in ("own", "main"):
                raise Invalid(f"{WORKTREE_VARIABLE} is {chosen!r}", hint="it is own or main")
            if chosen == "main":
                path = main
            else:
                self.warnings.extend(_apart(path, main))
        if (led := led_out(path)) is not None:
            raise Invalid(
                f"{path}: a symlink leads out of the project, and is not followed",
                hint=f"if that place is meant, name it: --dir {led}",
                path=path,
            )
        self.folder = Folder(path)
        self._registry = None if registry is None else frozenset(rules.normal(file) for file in registry)
        self._known: Ledger | None = None  # the last one, since a file is read more often than it changes
        self._patience = patience
        self._now = now

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self) -> Ledger:
        """The ledger as it stands. Raises NotFound, or Invalid with `line`."""
        return self.ledger(self.texts([TURNFILE])[TURNFILE])

    def texts(self, paths: Iterable[str]) -> dict[str, str | None]:
        """What some files say, all at one moment between writes; None for a file that is not there.

        Files are only ever replaced whole: when none was while they were read, that was one moment, and no lock is
        needed. Readers therefore never keep a writer waiting.
        """
        wanted = [self.normal(path) for path in paths]
        self._need_folder()
        for _ in range(_TRIES):
            if files.is_pending(self.folder):
                break
            before = [self.folder.signature(path) for path in wanted]
            texts = {path: self.folder.read(path) for path in wanted}
            after = [self.folder.signature(path) for path in wanted]
            if before == after and not files.is_pending(self.folder):
                return texts
        try:
            with self.turn():
                return {path: self.folder.read(path) for path in wanted}
        except ReadOnly:  # who may not write here can still look at what a killed writer left
            return {path: self.folder.read(path) for path in wanted}

    def normal(self, path: str) -> str:
        """A path as seen from this folder, in one spelling. Raises Invalid for one that leaves it."""
        if os.path.isabs(path):
            path = os.path.relpath(path, self.folder.path)
        found = rules.normal(path.removeprefix(f"./{self._name}/").removeprefix(f"{self._name}/"))
        if is_own(found):
            raise Invalid(
                f"{found} is how writers take turns", hint="it is never edited; name a file of the project", path=found
            )
        return found

    def workspace(self, ledger: Ledger) -> str:
        """The name of this folder in the ledger's paths."""
        said = posixpath.normpath(ledger.turnfile.workspace or ".")
        return self._name if said.startswith((".", "/")) else said

    def guarded(self, ledger: Ledger) -> frozenset[str]:
        """The files that need a lock: the usual ones, or those that the ledger lists, and the mailbox in any case.

        Raises Invalid where the ledger lists what is no file of this folder: nothing is edited on a guess.
        """
        if self._registry is not None:
            return self._registry
        if ledger.turnfile.registry is None:
            return frozenset(rules.REGISTRY)
        try:
            return frozenset(
                [MAILBOX, *(rules.normal(path, self.workspace(ledger)) for path in ledger.turnfile.registry)]
            )
        except Invalid as error:
            line = ledger.line("turnfile", REGISTRY_KEY)
            raise Invalid(f"{TURNFILE}, line {line}: {REGISTRY_KEY}: {error.message}", hint=error.hint) from error

    def await_change(self, seconds: float, revision: int, pause: Callable[[float], None] = time.sleep) -> None:
        """Wait until the ledger is no longer at a revision, at most so long."""
        seen = None
        for _ in range(round(seconds / _LOOK)):
            signature = self.folder.signature(TURNFILE)
            if signature != seen and self.read().revision != revision:
                return
            seen = signature
            pause(_LOOK)

    # --- writing -----------------------------------------------------------------------------------------------------

    def write(self, change: Callable[[Ledger], Ledger], actor: str, *, expected: int | None = None) -> Ledger:
        """Replace the ledger by what `change` makes of it; a change that changes nothing writes nothing.

        Raises VersionMismatch where `expected` is given and is not the revision.
        """
        check_name("actor", actor)
        for _ in range(_TRIES):
            with self.turn():
                ledger = self.fresh()
                if expected is not None and ledger.revision != expected:
                    raise VersionMismatch(
                        f"the ledger is at revision {ledger.revision}, not {expected}",
                        expected=expected,
                        version=ledger.revision,
                    )
                after = change(ledger)
                if after.text == ledger.text:
                    return ledger
                after = after.stamped(ledger.revision + 1, actor)
                with contextlib.suppress(Outrun):  # somebody without our lock was faster: once more, on what is there
                    self.replace({TURNFILE: after.text}, {TURNFILE: ledger.text})
                    return after
        raise outrun(TURNFILE)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """The turn to write, with what a killed writer left settled. Raises Busy."""
        self._need_folder()
        with self.folder.turn(patience=self._patience):
            files.recover(self.folder)
            yield

    def fresh(self) -> Ledger:
        """The ledger, for who has the turn."""
        return self.ledger(self.folder.read(TURNFILE))

    def replace(self, texts: dict[str, str], before: dict[str, str | None]) -> None:
        """Replace files as one, for who has the turn. Raises Outrun if one is no longer what was read of it."""
        for path in texts:
            if self.folder.read(path) != before[path]:
                raise outrun(path)
        files.replace(self.folder, texts, before)

    # --- words for the files: no decision rests on them --------------------------------------------------------------

    def today(self) -> str:
        """The date, as cards and log entries are dated."""
        return self._now().date().isoformat()

    def timestamp(self) -> str:
        """The time, as the projection says when it was made."""
        return self._now().isoformat(timespec="seconds").replace("+00:00", "Z")

    @property
    def _name(self) -> str:
        return os.path.basename(self.folder.path)

    def _need_folder(self) -> None:
        if not os.path.isdir(self.folder.path):
            raise NotFound(f"there is no folder {self.folder.path}", hint="make it with: holdfast turn init")

    def ledger(self, text: str | None) -> Ledger:
        """The ledger of a text that was read. Raises NotFound, or Invalid with `line`."""
        if text is None:
            raise NotFound(f"there is no {TURNFILE} in {self.folder.path}", hint="make it with: holdfast turn init")
        known = self._known
        if known is not None and known.text == text:
            return known
        try:
            self._known = known = read(text)
            return known
        except Invalid as error:
            raise Invalid(
                f"{TURNFILE}, {error.message}", hint=error.hint, **{**error.details, "file": TURNFILE}
            ) from error


Place = Session | str | os.PathLike[str] | None
"""Where turn files are: a session, its folder, or None for the one that the environment or the working folder has."""


def session_at(place: Place) -> Session:
    """The session of a place."""
    if isinstance(place, Session):
        return place
    return Session(place or os.environ.get(FOLDER_VARIABLE) or FOLDER)
