"""What `holdfast setup` does to a project: put in what a client needs, look whether it is there, take it out.

Everything is worked out before anything is written, so a file that cannot be edited leaves all others untouched.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from holdfast.errors import Invalid
from holdfast.faces.cli.setup.clients import CLIENTS, Edit
from holdfast.faces.cli.setup.files import Step, look, write


@dataclass(frozen=True)
class Change:
    """What became of a file."""

    path: Path
    what: Literal["made", "changed", "unchanged", "removed"]


@dataclass(frozen=True)
class Problem:
    """A file that is not as `setup` would have it, and in what."""

    path: Path
    what: str


def install(client: str, root: Path) -> list[Change]:
    """Put in what the client needs, or bring it up to date; what is there already is left alone."""
    return _carry_out([_put(place) for place in _places(client, root)])


def check(client: str, root: Path) -> list[Problem]:
    """What `install` would change, or could not; empty if all is in place and up to date. Writes nothing."""
    problems = []
    for place in _places(client, root):
        try:
            step = _put(place)
            old = step.file.text
            if old is None:
                problems.append(Problem(place.path, f"{place.path} is not there"))
            elif step.new != old:
                missing = place.edit.drop(old) == old
                said = "has nothing of holdfast in it" if missing else "is not up to date"
                problems.append(Problem(place.path, f"{place.path} {said}"))
        except Invalid as error:
            problems.append(Problem(place.path, str(error)))
    return problems


def remove(client: str, root: Path) -> list[Change]:
    """Take out what `install` put in; a file that it made goes too, if nobody has added to it."""
    return _carry_out([_drop(place) for place in _places(client, root)])


@dataclass(frozen=True)
class _Place:
    """A file of a client in a project."""

    path: Path
    edit: Edit
    within: tuple[Path, ...]
    executable: bool


def _places(client: str, root: Path) -> list[_Place]:
    if client not in CLIENTS:
        raise Invalid(f"there is no client {client!r}", hint=f"setup knows {', '.join(CLIENTS)}")
    chosen = CLIENTS[client]
    folder = chosen.folder(root)
    return [_Place(folder / name, edit, (root, folder), chosen.executable) for name, edit in chosen.files.items()]


def _put(place: _Place) -> Step:
    file = look(place.path, place.within)
    if place.executable:
        if file.text is not None and not file.mode & 0o111:
            raise Invalid(f"{place.path} is not executable, so it is never run", hint="make it executable first")
        file = replace(file, mode=file.mode | 0o111) if file.text is None else file
    with _about(place.path):
        return Step(file, place.edit.put(file.text))


def _drop(place: _Place) -> Step:
    file = look(place.path, place.within)
    with _about(place.path):
        return Step(file, None if file.text is None else place.edit.drop(file.text))


@contextmanager
def _about(path: Path) -> Iterator[None]:
    """An edit knows only texts: say which file it refused."""
    try:
        yield
    except Invalid as error:
        raise Invalid(f"{path} cannot be edited: {error.message}", hint=error.hint) from error


def _carry_out(steps: list[Step]) -> list[Change]:
    write(steps)
    return [Change(step.file.path, _what(step)) for step in steps]


def _what(step: Step) -> Literal["made", "changed", "unchanged", "removed"]:
    if step.new == step.file.text:
        return "unchanged"
    if step.file.text is None:
        return "made"
    return "removed" if step.new is None else "changed"
