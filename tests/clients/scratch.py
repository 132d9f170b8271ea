"""A scratch repository with a workspace, for one case; and the clients from npm."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Self

from tests.clients.model import Model

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
INSTALLED = ROOT / ".venv" / "clients"
BARE = "/usr/local/bin:/usr/bin:/bin"
PYTHON = sys.executable
PATIENCE = 400  # seconds for one run of a client


@cache
def program(name: str) -> str:
    """A program of the packages, which are installed on first use and when their versions change."""
    wanted = (HERE / "packages.json").read_text()
    stamp = INSTALLED / "package.json"
    if not stamp.exists() or stamp.read_text() != wanted:
        INSTALLED.mkdir(parents=True, exist_ok=True)
        print("installing the clients from npm", flush=True)
        (INSTALLED / "package.json").write_text(wanted)
        done = subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund"], cwd=INSTALLED)
        if done.returncode:
            stamp.unlink()
            raise RuntimeError("npm install failed")
    return str(INSTALLED / "node_modules" / ".bin" / name)


class Scratch:
    """A repository in git with a workspace and a client that is set up, and the stand-in for its model."""

    def __init__(self, client: str, *setup: str, init: bool = True) -> None:
        self.client = client
        INSTALLED.mkdir(parents=True, exist_ok=True)
        self.base = Path(tempfile.mkdtemp(prefix="scratch-", dir=INSTALLED))  # not in /tmp, where sandboxes may write
        self.root = self.base / "repo"
        self.home = self.base / "home"
        self.model = Model()
        for folder in (self.root / "src", self.home):
            folder.mkdir(parents=True)
        (self.root / "README.md").write_text("# Scratch\n")
        self.env = {"PATH": BARE, "HOME": str(self.home), "XDG_STATE_HOME": str(self.base / "state"), "TERM": "dumb"}
        self.env |= {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
        for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "first"]):
            self.run("git", "-c", "user.name=a", "-c", "user.email=a@b.c", *words)
        self.before = self.tree()
        if init:
            self.holdfast("init")
        self.holdfast("setup", client, *setup)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.model.close()
        shutil.rmtree(self.base, ignore_errors=True)

    def run(self, *command: str, code: int | None = 0, env: dict[str, str] | None = None, stdin: str = "") -> str:
        """Run a command in the repository, and return all that it printed."""
        done = subprocess.run(
            command,
            cwd=self.root,
            env={**self.env, **(env or {})},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        said = done.stdout + done.stderr
        assert code is None or done.returncode == code, f"{command[:3]} ended with {done.returncode}: {said[-2000:]}"
        return said

    def holdfast(self, *words: str, code: int | None = 0) -> str:
        """Run a command of holdfast, as somebody else would from a shell of theirs."""
        return self.run(sys.executable, "-m", "holdfast", *words, code=code)

    def data(self, *words: str) -> Any:
        """The data that a command prints as JSON."""
        return json.loads(self.holdfast(*words, "--json"))["data"]

    def tree(self) -> dict[str, bytes]:
        """Every file of the repository, without git's and the workspace's own; and every empty folder."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            name = str(path.relative_to(self.root))
            if not name.startswith((".git/", ".holdfast")) and name != ".git":
                found[name] = path.read_bytes() if path.is_file() else b"" if any(path.iterdir()) else b"(empty)"
        return found

    def wrote(self, name: str) -> bool:
        """Whether a file is there."""
        return (self.root / name).exists()

    def remove_program(self) -> None:
        """Let there be no holdfast, neither where setup noted it nor on PATH."""
        (self.root / ".holdfast" / "program").write_text("/nonexistent/holdfast\n")

    def hang_program(self) -> None:
        """Let holdfast hang."""
        slow = self.base / "slow"
        slow.write_text("#!/bin/sh\nexec sleep 20\n")
        slow.chmod(0o755)
        (self.root / ".holdfast" / "program").write_text(f"{slow}\n")
