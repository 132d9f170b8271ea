"""Is a crash state sound, and is everything there that was promised?

A `picture` is the whole logical content of a store: its schema and every row. A scene takes one of the live store after
each acknowledged call; they are its promises, in order. A crash state must be sound for SQLite and show exactly one of
these pictures, and none older than the last one acknowledged: so no commit is lost, none is half there, and nothing is
there that was never committed. Any other file that a scene promises (a backup) is whole whenever its name is there,
and so is its sum.
Every state is read by a plain connection; some are also opened as a workspace, which checks itself and is written to.
The same bytes are read once, and held against what was promised at each of their crash points.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import apsw
import msgspec

import holdfast
from holdfast.clock import Now
from holdfast.kernel.maintenance import check
from holdfast.kernel.store import has_commit
from holdfast.kernel.store_files import FILE, StoreFiles
from holdfast.kernel.tx import Snapshot
from holdfast.testing import ManualClock
from holdfast.workspace.registry import CHECKERS
from tests.power.disk import SUM
from tests.power.states import KINDS, Crash, Files, Kind

STORE = "store"
Key = frozenset[tuple[str, int, int]]
NOTHING = b""  # the picture of a store that is not there


class Unsound(Exception):
    """A file or an answer that is not as it must be."""


MISSED = "Unsound: the note of the last commit is of one that is not there"


def picture(path: Path, *, without: str = "", known: dict[bytes, bytes] | None = None) -> bytes:
    """A digest of all that a store or backup holds, found sound by SQLite and our own check; `without` one table.

    `known` are those found before, by a digest of all pages as SQLite shows them after its recovery: most crashes lead
    to one of a few, and equal pages have an equal picture.
    """
    if not path.exists():
        return NOTHING
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.execute("BEGIN")
        schema = connection.execute("SELECT type, name, sql FROM sqlite_schema WHERE name <> ?", (without,)).fetchall()
        if not schema:
            return NOTHING
        pages = b"" if known is None else hashlib.blake2b(connection.serialize("main")).digest()
        if known is not None and pages in known:
            return known[pages]
        problems = check(Snapshot(connection, Now(ManualClock())), CHECKERS).problems
        if problems:
            raise Unsound("; ".join(problems))
        rows = [connection.execute(f"SELECT * FROM {name}").fetchall() for kind, name, _ in schema if kind == "table"]
        found = hashlib.blake2b(msgspec.msgpack.encode([schema, rows])).digest()
        if known is not None:
            known[pages] = found
        return found
    finally:
        connection.close()


class Finding(NamedTuple):
    """What a state turned out to be: the promise that it shows, the other files that are there, or what is wrong."""

    promise: int
    present: frozenset[str]
    problem: str = ""


class Judge:
    """Holds the states of one scene against its promises, and counts."""

    def __init__(
        self,
        promises: Sequence[bytes],
        files: Mapping[str, tuple[bytes, int]],
        scratch: Path,
        *,
        opened_every: int,
        recover: Callable[[Path], object] = lambda _: None,
    ) -> None:
        self._numbers = {promise: number for number, promise in enumerate(promises)}
        self._files = files
        self._scratch = scratch
        self._opened_every = opened_every
        self._recover = recover
        self._findings: dict[Key, Finding] = {}
        self._pictures: dict[bytes, bytes] = {}
        self._known: dict[bytes, bytes] = {}
        self.generated = 0
        self.verified: dict[Kind, set[Key]] = {kind: set() for kind in KINDS}  # the same bytes may be of two kinds
        self.opened = 0
        self.acknowledged = 0  # promises that states were held against
        self.lost = 0
        self.problems: list[str] = []

    def __len__(self) -> int:
        return len(self._findings)

    def judge(self, crash: Crash) -> Finding:
        """Look at a state, unless its bytes are known, and hold it against the promises."""
        key = _key(crash.files)
        finding = self._findings.get(key)
        if finding is None:
            finding = self._findings[key] = self._examine(crash.files)
        self.generated += 1
        self.verified[crash.kind].add(key)
        self.acknowledged += crash.least + len(crash.required)
        if finding.problem:
            self._tell(crash, finding.problem)
            return finding
        if finding.promise < crash.least:
            self.lost += crash.least - finding.promise
            self._tell(crash, f"shows promise {finding.promise}, but {crash.least} was acknowledged")
        for path in sorted(crash.required - finding.present):
            self.lost += 1
            self._tell(crash, f"{path} was promised and is not there")
        return finding

    def _tell(self, crash: Crash, problem: str) -> None:
        self.problems.append(f"{crash.name}: {problem}")

    def _examine(self, files: Files) -> Finding:
        store = self._scratch / STORE
        _lay_out(files, self._scratch)
        try:
            present = self._others(files)
            promise = self._number(picture(store / FILE, known=self._known))
            if _misses_a_commit(store):
                raise Unsound(MISSED.removeprefix("Unsound: "))
            for path, (_, needed_from) in self._files.items():
                if promise >= needed_from and path not in present:
                    raise Unsound(f"the store shows promise {promise}, and {path} is not there")
            if len(self._findings) % self._opened_every == 0:
                _lay_out(files, self._scratch)  # anew, for reading may have changed it: SQLite has recovered it
                self._open(store, promise)
        except Exception as error:  # whatever a reader of broken files stumbles over is the finding
            return Finding(-1, frozenset(), f"{type(error).__name__}: {error}")
        return Finding(promise, present)

    def _number(self, found: bytes) -> int:
        if found not in self._numbers:
            raise Unsound("the store shows what was never committed, or half of a commit")
        return self._numbers[found]

    def _others(self, files: Files) -> frozenset[str]:
        """The promised files that are there, each of them whole."""
        present = frozenset(files) & frozenset(self._files)
        for path in present:
            content = files[path]
            if content not in self._pictures:
                self._pictures[content] = picture(self._scratch / path)
            if self._pictures[content] != self._files[path][0]:
                raise Unsound(f"{path} is there, but not whole")
            if hashlib.sha256(content).hexdigest().encode() not in files.get(f"{path}{SUM}", b""):
                raise Unsound(f"{path} is there, but not its sum")
        return present

    def _open(self, folder: Path, promise: int) -> None:
        """Open it as a program does the next morning, whose clock says no more than the store's last commit."""
        self.opened += 1
        self._recover(folder)
        with holdfast.open(folder, actor="judge", clock=ManualClock()) as ws:
            report = ws.check()
            made_anew = promise == self._numbers.get(NOTHING) and report.revision == report.events == 0
            if not made_anew and self._number(picture(folder / FILE)) < promise:
                raise Unsound(f"the store showed promise {promise}, and does no more once it is opened")
            ws.cells.set("judge", "cell", 1)
            after = ws.check()
        if report.problems or after.problems or after.revision != report.revision + 1:
            raise Unsound(f"the self-check says {report}, and after one more write {after}")


def _misses_a_commit(folder: Path) -> bool:
    mark = StoreFiles(str(folder)).marked() if (folder / FILE).exists() else None
    if mark is None:
        return False
    connection = apsw.Connection(str(folder / FILE), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        return not has_commit(connection, mark)
    finally:
        connection.close()


def _lay_out(files: Files, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _key(files: Files) -> Key:
    """What tells states apart: Python's hash of bytes has 64 bits, and is several times faster than a digest."""
    return frozenset((path, len(content), hash(content)) for path, content in files.items())
