"""Paths as a person, a client or git writes them, and as every face and all worktrees of the project call them.

What is written counts from the current folder, what faces call it from the root of the project. A path of the project
is one whatever it looks like: `~n` and `c:\\x` are files that git and clients report. Of what a person types, a home
folder is refused, which only a shell could have put there, and never a file that exists.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from holdfast import errors
from holdfast.faces.cli import location
from holdfast.faces.cli.args import Usage
from holdfast.types.agents import looks_absolute

if TYPE_CHECKING:
    from holdfast.faces.cli.call import Session


def in_project(session: Session, path: str) -> str | None:
    """Return a path from the root of the project; None if it lies outside.

    Patterns are paths here: only how they begin matters.
    """
    path = os.path.abspath(os.path.join(session.folder, path))
    relative = os.path.relpath(path, _root(session, path))
    return None if relative.split(os.sep, 1)[0] == os.pardir else _plain(relative.replace(os.sep, "/"))


def _root(session: Session, path: str) -> str:
    """The folder from which every face counts a path."""
    root = location.project_root(session.place.folder, path)
    if root is None:  # outside of every repository, and of the folder beside the workspace
        above, name = os.path.split(session.place.folder or "")
        root = above if name == location.FOLDER else session.folder
    return root


def _plain(path: str) -> str:
    """A relative path, so that nobody takes it for a home folder, a drive or an option."""
    return f"./{path}" if looks_absolute(path) or path.startswith("-") else path


def typed(session: Session, path: str) -> str:
    """Return a path that a person wrote. Raises Invalid for one in a home folder, if there is no such file here."""
    if looks_absolute(path) and not os.path.lexists(os.path.join(session.folder, path.partition("/")[0])):
        is_name = path.startswith("~") and os.path.expanduser(path) == path  # which no shell replaces
        if not is_name:
            hint = f"paths count from the current folder; a name in it that begins so is ./{path}"
            raise errors.Invalid(f"the path {path!r} is absolute", hint=hint)
    return path


def name_of(session: Session, path: str) -> str:
    """Return a path that a person wrote from the root of the project. Raises Invalid, or Usage if it lies outside."""
    return _within(session, path, typed(session, path))


def pattern_of(session: Session, pattern: str) -> str:
    """The same for a pattern; it means the file of this name, if there is one and a backslash is a part of it."""
    path = typed(session, pattern)
    if "\\" in path and os.path.lexists(os.path.join(session.folder, path)):
        path = path.replace("\\", "\\\\")
    return _within(session, pattern, path)


def _within(session: Session, written: str, path: str) -> str:
    found = in_project(session, path) if path else path
    if found is None:
        raise Usage(f"{written} lies outside of the project", hint="paths count from the current folder")
    return found


def point(session: Session, error: errors.HoldfastError, *, anywhere: bool = False) -> None:
    """Have the hint of a refused path name it as a shell in the current folder calls it, or one in any folder."""
    pattern = error.details.get("pattern")
    if pattern is None or not isinstance(error, errors.Held):
        return
    from holdfast.hints import waiting

    path = os.path.join(_root(session, session.start if anywhere else session.folder), pattern)
    if not anywhere:
        path = _plain(os.path.relpath(path, session.folder))
    error.hint = error.hint.replace(waiting(pattern), waiting(path))
