"""Linked git worktrees: each has its own copy of the working session, which nobody else sees.

Reads git's own files, and runs no command. A session in a linked worktree coordinates with nobody, so `Session` warns,
or goes to the main worktree's folder when told to.
"""

from __future__ import annotations

import os
from pathlib import Path


def main_folder(folder: str) -> str | None:
    """For a folder in a linked worktree, the same folder of the main worktree; None anywhere else."""
    here = Path(os.path.abspath(folder))
    for root in (here, *here.parents):
        link = root / ".git"
        if link.is_dir():
            return None
        if link.is_file():
            main = _main_root(link)
            return None if main is None else os.path.join(main, here.relative_to(root))
    return None


def _main_root(link: Path) -> str | None:
    """Where the main worktree is, from the `.git` file of a linked one; a submodule's leads nowhere."""
    try:
        words = link.read_text().strip()
        own = Path(os.path.normpath(link.parent / words.removeprefix("gitdir:").strip()))
        common = Path(os.path.normpath(own / (own / "commondir").read_text().strip()))
    except (OSError, UnicodeDecodeError):
        return None  # no worktree's link: git itself would not follow it either
    return str(common.parent) if words.startswith("gitdir:") and common.name == ".git" else None
