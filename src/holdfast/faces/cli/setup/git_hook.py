"""`setup git`: a pre-commit hook that refuses a commit of files whose paths somebody else has locked.

A hook that is there is kept; ours is a marked block below its first line, before anything in it can exit. Only a shell
script can hold one, and only in the repository's own hooks: a folder of hooks outside of it serves other projects too.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Final

from holdfast.errors import Invalid
from holdfast.faces.cli.setup.blocks import Block

LINE: Final = "if command -v holdfast >/dev/null 2>&1; then holdfast guard --staged || exit $?; fi"
_SHELL: Final = re.compile(r"#![ \t]*(?:\S*/)?(?:env[ \t]+(?:-S[ \t]+)?)?(?:\S*/)?(?:ba|da|k|z)?sh(?=\s|$)")


class ShellBlock(Block):
    """A block in a shell script, below its first line."""

    def put(self, old: str | None) -> str:
        """The script with the block in it; refuses what is no shell script."""
        if old is not None and not _SHELL.match(old):
            raise Invalid(
                "it is not a shell script", hint="have it call holdfast guard --staged, and stop if that fails"
            )
        return super().put(old)

    def _where(self, old: str) -> tuple[int, int]:
        first = old.find("\n")
        return (len(old), 1) if first < 0 else (first + 1, 0)


def hooks_folder(root: Path) -> Path:
    """Where git looks for the hooks of a repository."""
    folder = root / _git(root, "--git-path", "hooks")
    own = [root, root / _git(root, "--git-common-dir")]
    if not any(folder.resolve().is_relative_to(place.resolve()) for place in own):
        raise Invalid(
            f"core.hooksPath is {folder}, outside of this project",
            hint=f"it serves other projects too; if you want it there, add to its pre-commit: {LINE}",
        )
    return folder


def _git(root: Path, *asked: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name not in ("GIT_DIR", "GIT_WORK_TREE")}
    try:
        done = subprocess.run(["git", "rev-parse", *asked], cwd=root, env=clean, capture_output=True, text=True)
    except OSError as error:
        raise Invalid(f"git cannot be run: {error}", hint="setup git needs git") from error
    if done.returncode:
        raise Invalid(f"{root} is not a git repository: {done.stderr.strip()}", hint="run git init first")
    return done.stdout.rstrip("\n")
