"""Folders that are as durable as what is in them.

A file that was synced is only found again after a power loss if its folder, and the folder of that, know its name on
disk too. Called by whoever makes a file or a folder that must last.
"""

from __future__ import annotations

import os


def make_folder(path: str | os.PathLike[str]) -> None:
    """Make a folder, private to its owner, with those above it; each lasts once this returns."""
    path = os.path.abspath(path)
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        os.makedirs(folder, mode=0o700, exist_ok=True)  # another process may be making it too
        sync(os.path.dirname(folder))


def sync(path: str | os.PathLike[str]) -> None:
    """Have what a file holds, or the names in a folder, on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def hide_from_git(folder: str) -> None:
    """Keep a new folder out of git; never one where somebody else's files would be hidden."""
    if not os.listdir(folder):
        with open(os.path.join(folder, ".gitignore"), "w", encoding="utf-8") as file:
            file.write("*\n")
