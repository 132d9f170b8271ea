"""What a disk may hold after the power fails: every crash point of a tape, and states of its files there.

A crash comes after any operation on the tape. What was synced is there. Of the rest

- kept: everything is there; dropped: nothing is;
- mixed: any subset is, over all files and folders, and what is there took effect in its order;
- torn: of one write only some sectors of 512 bytes are there, the first few or any of them, and the file has grown
  for it or not; of the other operations all, or any subset.

A write changes no byte outside itself. The bytes of a file and its name are two things: a name that was made, linked or
removed is safe only when its folder has been synced, whether or not the file was. So an unsynced file may be empty or
full of holes under its name, a synced one may have no name, and a removed one may be back. That is harsher than the
file systems we know, and what POSIX allows. A state is known by its scene, crash point, kind and draw, and the seed:
the same five make the same choice again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

from tests.power.disk import FOLDER, Entry, Mark, Operation, Sync, SyncFolder, Tape, Truncate, Write

SECTOR = 512
Kind = Literal["kept", "dropped", "mixed", "torn"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Change = Write | Truncate | Entry
Files = dict[str, bytes]


class Crash(NamedTuple):
    """One state of the files, and what had been promised when the power failed."""

    name: str
    files: Files
    kind: Kind
    least: int  # the newest promise of the store
    required: frozenset[str]  # the other files that were promised


class Platter:
    """The disk at one moment of a tape: what is durable, and what is not yet."""

    def __init__(self, tape: Tape) -> None:
        self._contents = {number: bytearray(content) for number, content in enumerate(tape.start.values(), FOLDER + 1)}
        self._entries = {path: number for number, path in enumerate(tape.start, FOLDER + 1)}
        self._made: set[str] = set()  # folders that were made on this tape
        self.unsynced: dict[int, Change] = {}
        self.least = 0
        self.required: frozenset[str] = frozenset()

    def go_on(self, number: int, operation: Operation) -> None:
        """The next operation of the tape happens."""
        match operation:
            case Sync(file, before):
                self._settle(before, lambda change: not isinstance(change, Entry) and change.file == file)
            case SyncFolder(folder, before):
                self._settle(before, lambda change: isinstance(change, Entry) and _folder(change.path) == folder)
            case Mark(promise):
                if isinstance(promise, int):
                    self.least = promise
                else:
                    self.required |= {promise}
            case _:
                self.unsynced[number] = operation
                if isinstance(operation, Entry) and operation.file == FOLDER:
                    self._made.add(operation.path)

    def _settle(self, before: int, concerned: Callable[[Change], bool]) -> None:
        for number in [number for number, change in self.unsynced.items() if number < before and concerned(change)]:
            _perform(self.unsynced.pop(number), self._contents, self._entries)

    def files(self, changes: Iterable[Change]) -> Files:
        """The files if of what is not synced these changes are there."""
        contents = {number: bytearray(content) for number, content in self._contents.items()}
        entries = dict(self._entries)
        for change in changes:
            _perform(change, contents, entries)
        return {
            path: bytes(contents.get(number, b""))
            for path, number in entries.items()
            if number != FOLDER and all(folder in entries for folder in _above(path) if folder in self._made)
        }


def _folder(path: str) -> str:
    return os.path.dirname(path)


def _above(path: str) -> Iterator[str]:
    while path := _folder(path):
        yield path


def _perform(change: Change, contents: dict[int, bytearray], entries: dict[str, int]) -> None:
    match change:
        case Write(file, offset, data):
            content = contents.setdefault(file, bytearray())
            content.extend(bytes(max(0, offset - len(content))))
            content[offset : offset + len(data)] = data
        case Truncate(file, size):
            content = contents.setdefault(file, bytearray())
            del content[size:]
            content.extend(bytes(size - len(content)))
        case Entry(path, None):
            entries.pop(path, None)
        case Entry(path, int(number)):
            entries[path] = number


def crashes(
    tape: Tape,
    scene: str,
    seed: int,
    draw: int,
    *,
    share: float = 1,
    claimed: Callable[[Operation], bool] = lambda _: False,
) -> Iterator[Crash]:
    """One round over all crash points: the first draw has every kind, the others mix and tear in other ways.

    `share` of the states are made, chosen by chance over the whole tape; a state that is made is the same with any
    share. `claimed` picks operations that a lying disk says it has done, and has not.
    """
    platter = Platter(tape)
    for point, operation in enumerate(tape.operations):
        if not claimed(operation):
            platter.go_on(point, operation)
        for kind in KINDS if platter.unsynced else KINDS[:1]:
            if draw and kind in ("kept", "dropped"):
                continue
            name = f"{scene}, after operation {point}, {kind}, draw {draw}, seed {seed}"
            if share < 1 and random.Random(f"share of {name}").random() >= share:
                continue
            changes = _choose(kind, list(platter.unsynced.values()), random.Random(name))
            if changes is not None:
                yield Crash(name, platter.files(changes), kind, platter.least, platter.required)


def _choose(kind: Kind, unsynced: list[Change], rng: random.Random) -> list[Change] | None:
    match kind:
        case "kept":
            return unsynced
        case "dropped":
            return []
        case "mixed":
            return _some(unsynced, rng)
        case "torn":
            writes = [number for number, change in enumerate(unsynced) if isinstance(change, Write)]
            if not writes:
                return None
            torn = rng.choice(writes)
            before, after = unsynced[:torn], unsynced[torn + 1 :]
            if rng.random() < 0.5:
                before, after = _some(before, rng), _some(after, rng)
            return [*before, *_tear(unsynced[torn], rng), *after]


def _some(changes: list[Change], rng: random.Random) -> list[Change]:
    share = rng.random()  # so that nearly all and nearly none come as often as half
    return [change for change in changes if rng.random() < share]


def _tear(change: Change, rng: random.Random) -> list[Change]:
    """Some sectors of a write; one without bytes at its end makes the file as long as all of them would."""
    assert isinstance(change, Write)
    file, offset, data = change
    end = offset + len(data)
    bounds = [offset, *range(offset - offset % SECTOR + SECTOR, end, SECTOR), end]
    sectors: list[Change] = [Write(file, low, data[low - offset : high - offset]) for low, high in pairwise(bounds)]
    there = sectors[: rng.randrange(len(sectors))] if rng.random() < 0.5 else _some(sectors, rng)
    return [*there, Write(file, end, b"")] if rng.random() < 0.5 else there
