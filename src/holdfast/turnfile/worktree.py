"""Where a session's folder really is: linked git worktrees, and symlinks that lead out of a project.

A linked worktree has its own copy of the working session, which nobody else sees: `Session` warns, or goes to the main
worktree's folder when told to. A repository may hold a symlink to anywhere, and who runs a command in it did not choose
that place: such a folder is refused. Reads git's own files, and runs no command.
"""

from __future__ import annotations

import os
from pathlib import Path


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
